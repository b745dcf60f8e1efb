//! Values of a kernel under construction as arithmetic: each operation appends an instruction.
//!
//! Guarantees that equal instructions are appended once, so that formulas may repeat constants and subterms freely.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::{Add, Div, Mul, Neg, Sub};

use retape_runtime::{DType, Element, Scalar};
use rustc_hash::FxHashMap;

use super::arith::{Arith, IntArith, Mask};
use crate::ir::{Binary, Compare, Func1, Inst, Param, Unary, ValueId};

/// The body under construction.
pub(super) struct BodyBuilder {
    /// The instructions so far.
    pub(super) insts: Vec<Inst<ValueId>>,
    dtypes: Vec<DType>,
    known: FxHashMap<Inst<ValueId>, ValueId>,
}

impl BodyBuilder {
    /// An empty body.
    pub(super) fn new() -> BodyBuilder {
        BodyBuilder { insts: Vec::new(), dtypes: Vec::new(), known: FxHashMap::default() }
    }

    /// The dtype of a value.
    pub(super) fn dtype(&self, value: ValueId) -> DType {
        self.dtypes[value.index()]
    }

    /// Appends `inst` unless an equal one is there; reads are pure because written parameters are never read.
    pub(super) fn push(&mut self, inst: Inst<ValueId>, params: &[Param]) -> ValueId {
        if let Some(&id) = self.known.get(&inst) {
            return id;
        }
        let dtype = match &inst {
            Inst::Const(scalar) => scalar.dtype,
            Inst::Index(_) => DType::I64,
            Inst::Load(param, _) | Inst::LoadAt(param, _) => params[param.index()].dtype,
            Inst::Compare(..) => DType::Bool,
            Inst::Cast(dtype, _) | Inst::Bitcast(dtype, _) => *dtype,
            Inst::Unary(_, x)
            | Inst::Binary(_, x, _)
            | Inst::Select(_, x, _)
            | Inst::Fma(x, _, _)
            | Inst::Call1(_, x)
            | Inst::Call2(_, x, _)
            | Inst::Reduce(_, x) => self.dtype(*x),
        };
        let id = ValueId(self.insts.len() as u32);
        self.insts.push(inst.clone());
        self.dtypes.push(dtype);
        self.known.insert(inst, id);
        id
    }
}

/// A value of dtype `T` in a body under construction.
pub(super) struct Term<'k, T> {
    body: &'k RefCell<BodyBuilder>,
    /// Which value.
    pub(super) id: ValueId,
    dtype: PhantomData<T>,
}

impl<T> Clone for Term<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Term<'_, T> {}

impl<'k, T> Term<'k, T> {
    /// The value `id` of `body`.
    pub(super) fn new(body: &'k RefCell<BodyBuilder>, id: ValueId) -> Self {
        Term { body, id, dtype: PhantomData }
    }

    /// Appends an instruction that reads no parameter.
    ///
    /// Out of line, since formulas are hundreds of these calls.
    #[inline(never)]
    fn push<U>(self, inst: Inst<ValueId>) -> Term<'k, U> {
        Term::new(self.body, self.body.borrow_mut().push(inst, &[]))
    }

    /// A function that is not expanded.
    pub(super) fn kept(self, func: Func1) -> Self {
        self.push(Inst::Call1(func, self.id))
    }

    fn constant<U>(self, scalar: Scalar) -> Term<'k, U> {
        self.push(Inst::Const(scalar))
    }

    fn unary(self, op: Unary) -> Self {
        self.push(Inst::Unary(op, self.id))
    }

    fn binary(self, op: Binary, y: Self) -> Self {
        self.push(Inst::Binary(op, self.id, y.id))
    }

    fn compare(self, op: Compare, y: Self) -> Term<'k, bool> {
        self.push(Inst::Compare(op, self.id, y.id))
    }

    fn select(self, mask: Term<'k, bool>, other: Self) -> Self {
        if self.id == other.id { self } else { self.push(Inst::Select(mask.id, self.id, other.id)) }
    }
}

impl Mask for Term<'_, bool> {
    fn and(self, other: Self) -> Self {
        self.binary(Binary::And, other)
    }
    fn or(self, other: Self) -> Self {
        self.binary(Binary::Or, other)
    }
    fn not(self) -> Self {
        self.unary(Unary::Not)
    }
}

macro_rules! operators {
    ($($float:ident: $($trait:ident $method:ident),*;)*) => {$($(
        impl $trait for Term<'_, $float> {
            type Output = Self;
            fn $method(self, y: Self) -> Self {
                self.binary(Binary::$trait, y)
            }
        }
    )*)*};
}

operators! {
    f32: Add add, Sub sub, Mul mul, Div div;
    f64: Add add, Sub sub, Mul mul, Div div;
}

macro_rules! terms {
    ($float:ident, $int:ident, $wide:literal) => {
        impl Neg for Term<'_, $float> {
            type Output = Self;
            fn neg(self) -> Self {
                self.unary(Unary::Neg)
            }
        }

        impl<'k> Arith for Term<'k, $float> {
            type Int = Term<'k, $int>;
            type Mask = Term<'k, bool>;
            const WIDE: bool = $wide;

            fn lit(self, x: f64) -> Self {
                self.constant((x as $float).to_scalar())
            }
            fn fma(self, y: Self, z: Self) -> Self {
                self.push(Inst::Fma(self.id, y.id, z.id))
            }
            fn abs(self) -> Self {
                self.unary(Unary::Abs)
            }
            fn sqrt(self) -> Self {
                self.unary(Unary::Sqrt)
            }
            fn floor(self) -> Self {
                self.unary(Unary::Floor)
            }
            fn lt(self, y: Self) -> Self::Mask {
                self.compare(Compare::Lt, y)
            }
            fn le(self, y: Self) -> Self::Mask {
                self.compare(Compare::Le, y)
            }
            fn eq(self, y: Self) -> Self::Mask {
                self.compare(Compare::Eq, y)
            }
            fn when(self, mask: Self::Mask, other: Self) -> Self {
                self.select(mask, other)
            }
            fn bits(self) -> Self::Int {
                self.push(Inst::Bitcast(<$int as Element>::DTYPE, self.id))
            }
            fn from_bits(bits: Self::Int) -> Self {
                bits.push(Inst::Bitcast(<$float as Element>::DTYPE, bits.id))
            }
        }

        impl<'k> IntArith for Term<'k, $int> {
            type Mask = Term<'k, bool>;
            const WIDE: bool = $wide;

            fn lit(self, x: i64) -> Self {
                self.constant((x as $int).to_scalar())
            }
            fn add(self, y: Self) -> Self {
                self.binary(Binary::Add, y)
            }
            fn sub(self, y: Self) -> Self {
                self.binary(Binary::Sub, y)
            }
            fn mul(self, y: Self) -> Self {
                self.binary(Binary::Mul, y)
            }
            fn and(self, y: Self) -> Self {
                self.binary(Binary::And, y)
            }
            fn xor(self, y: Self) -> Self {
                self.binary(Binary::Xor, y)
            }
            fn shl(self, distance: u32) -> Self {
                self.binary(Binary::Shl, IntArith::lit(self, i64::from(distance)))
            }
            fn shr(self, distance: u32) -> Self {
                self.binary(Binary::Shr, IntArith::lit(self, i64::from(distance)))
            }
            fn eq(self, y: Self) -> Self::Mask {
                self.compare(Compare::Eq, y)
            }
            fn lt(self, y: Self) -> Self::Mask {
                self.compare(Compare::Lt, y)
            }
            fn when(self, mask: Self::Mask, other: Self) -> Self {
                self.select(mask, other)
            }
        }
    };
}

terms!(f32, i32, false);
terms!(f64, i64, true);
