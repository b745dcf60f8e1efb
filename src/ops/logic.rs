//! Bits and truth values, element by element: integers and `bool`; no derivatives.

use std::ops::Not as NotOperator;

use retape_runtime::DType;

use super::attribute::attributes;
use super::operators::TensorOrScalar;
use super::{Cotangents, Facts, Lowering, OpDef, Sample, Site, TypeError, check};
use crate::method::method;
use crate::tensor::Tensor;
use crate::types::TensorType;

/// Bitwise and of integers, conjunction of truth values: the operator `&`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct And;

/// Bitwise or of integers, disjunction of truth values: the operator `|`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Or;

/// Bitwise exclusive or of integers, inequality of truth values: the operator `^`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Xor;

/// Complement of all bits of integers, negation of truth values: the operator `!`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Not;

/// Left shift of integers by a distance modulo the width: the operator `<<`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shl;

/// Right shift of integers by a distance modulo the width, arithmetic for signed ones: the operator `>>`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shr;

/// The op of [`Tensor::mul_high`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MulHigh;

attributes! {
    And {}
    Or {}
    Xor {}
    Not {}
    Shl {}
    Shr {}
    MulHigh {}
}

/// Why these ops have no cotangents.
const DISCRETE: &str = "integers and truth values have no derivatives";

fn bits(position: usize, arg: &TensorType) -> Result<(), TypeError> {
    check::of_dtype(position, arg, "an integer or bool", |dtype| dtype.is_int() || dtype == DType::Bool)
}

fn integer(position: usize, arg: &TensorType) -> Result<(), TypeError> {
    check::of_dtype(position, arg, "an integer", DType::is_int)
}

/// Implements [`OpDef`] for an op of two equal types.
macro_rules! binary {
    ($($op:ident: $check:ident, commutes: $commutes:literal, $value:ident; $lowered:expr;)*) => {$(
        impl OpDef for $op {
            fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
                let [x, _] = check::same::<2>(args)?;
                $check(0, x)?;
                Ok(x.clone())
            }

            fn vjp(&self, _: &Site<'_>) -> Cotangents {
                Cotangents::zero(DISCRETE)
            }

            fn lower(&self, _: &[&TensorType], _: &TensorType) -> Lowering {
                Lowering::pointwise(|at| {
                    let $value = [at.arg(0), at.arg(1)];
                    $lowered
                })
            }

            fn facts(&self) -> Facts {
                Facts { commutes: $commutes, ..Facts::PLAIN }
            }

            fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
                self.clone()
            }

            fn samples() -> Vec<Sample> {
                let fits = |dtype: &DType| $check(0, &TensorType::new(*dtype, [3, 4])).is_ok();
                let sample = |dtype: DType| {
                    // Distances of shifts stay below every width.
                    let arg = (TensorType::new(dtype, [3, 4]), 0.0..if dtype == DType::Bool { 2.0 } else { 8.0 });
                    Sample::typed($op, &[arg.clone(), arg])
                };
                DType::ALL.into_iter().filter(fits).map(sample).collect()
            }
        }
    )*};
}

fn word(position: usize, arg: &TensorType) -> Result<(), TypeError> {
    check::of_dtype(position, arg, "u32", |dtype| dtype == DType::U32)
}

binary! {
    And: bits, commutes: true, v; v[0] & v[1];
    Or: bits, commutes: true, v; v[0] | v[1];
    Xor: bits, commutes: true, v; v[0] ^ v[1];
    Shl: integer, commutes: false, v; v[0] << v[1];
    Shr: integer, commutes: false, v; v[0] >> v[1];
    MulHigh: word, commutes: false, v; v[0].mul_high(v[1]);
}

impl OpDef for Not {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        let [x] = check::exactly::<1>(args)?;
        bits(0, x)?;
        Ok(x.clone())
    }

    fn vjp(&self, _: &Site<'_>) -> Cotangents {
        Cotangents::zero(DISCRETE)
    }

    fn lower(&self, _: &[&TensorType], _: &TensorType) -> Lowering {
        Lowering::pointwise(|at| !at.arg(0))
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        let sample = |dtype| Sample::typed(Not, &[(TensorType::new(dtype, [3, 4]), 0.0..2.0)]);
        vec![sample(DType::Bool), sample(DType::I32), sample(DType::U8)]
    }
}

impl Tensor {
    /// The high 32 bits of the 64-bit products of `u32` elements.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let x = Tensor::from([1_u32 << 31]);
    /// assert_eq!(x.mul_high(6_u32).to_vec::<u32>()?, [3]); // 6 * 2^31 is 3 * 2^32
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn mul_high(&self, other: impl TensorOrScalar) -> Tensor {
        let _method = method("mul_high");
        let other = other.tensor_like(self, std::panic::Location::caller());
        Tensor::broadcast_apply(MulHigh, &[self, &other])
    }
}

impl NotOperator for Tensor {
    type Output = Tensor;

    #[track_caller]
    fn not(self) -> Tensor {
        Tensor::apply(Not, &[&self])
    }
}

impl NotOperator for &Tensor {
    type Output = Tensor;

    #[track_caller]
    fn not(self) -> Tensor {
        Tensor::apply(Not, &[self])
    }
}
