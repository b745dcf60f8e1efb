//! Elements chosen by tensors of indices, and sums into chosen places.
//!
//! Along the chosen axis a negative index counts from the end once. An index that is still out of range reads as a fill
//! value and is dropped by a scatter, so that `take` and `scatter_add` are each other's derivatives for all indices.

use std::panic::Location;

use retape_kernels::ir::Value;
use retape_kernels::library::{self, Library};
use retape_runtime::{DType, Scalar, Shape};
use smallvec::SmallVec;

use super::attribute::attributes;
use super::axes::{self, AsIndex};
use super::check::{self, refuse};
use super::{Cotangents, Facts, Lowering, OpDef, Point, Sample, Site, TypeError};
use crate::error::Caller;
use crate::method::method;
use crate::tensor::Tensor;
use crate::types::TensorType;

/// The slices along an axis that a tensor of indices names; the axes of the indices stand in place of the axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Take {
    /// The axis.
    pub axis: usize,
    /// The value read by an index out of range.
    pub fill: Scalar,
}

/// One element along an axis for each index; the indices have the shape of the tensor except along the axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TakeAlong {
    /// The axis.
    pub axis: usize,
    /// The value read by an index out of range.
    pub fill: Scalar,
}

/// A tensor plus updates, each added at its index along an axis; arguments are tensor, indices, updates.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ScatterAdd {
    /// The axis.
    pub axis: usize,
    /// Whether indices are shaped as updates, as in [`TakeAlong`], rather than one for each slice, as in [`Take`].
    pub along: bool,
}

attributes! {
    Take { axis, fill }
    TakeAlong { axis, fill }
    ScatterAdd { axis, along }
}

fn check_indices(position: usize, indices: &TensorType) -> Result<(), TypeError> {
    let fits = |dtype| matches!(dtype, DType::I32 | DType::I64 | DType::U32);
    check::of_dtype(position, indices, "i32, i64 or u32: cast it", fits)
}

fn check_axis(axis: usize, x: &TensorType) -> Result<(), TypeError> {
    if axis >= x.rank() {
        refuse!("axis {axis} is out of range for {x}");
    }
    Ok(())
}

fn check_fill(fill: Scalar, x: &TensorType) -> Result<(), TypeError> {
    if fill.dtype != x.dtype {
        refuse!("the fill value is {}, the tensor {x}: dtypes must be equal", fill.dtype);
    }
    Ok(())
}

/// `x[..axis] + indices + x[axis + 1..]`.
fn taken_shape(x: &[usize], axis: usize, indices: &[usize]) -> Shape {
    x[..axis].iter().chain(indices).chain(&x[axis + 1..]).copied().collect()
}

/// Indices have the shape of `x` along all other axes.
fn check_along(axis: usize, x: &TensorType, indices: &TensorType) -> Result<(), TypeError> {
    let fits = indices.rank() == x.rank() && (0..x.rank()).all(|a| a == axis || indices.shape[a] == x.shape[a]);
    if !fits {
        refuse!("argument 1 is {indices}, argument 0 is {x}: all axes but {axis} must be equal");
    }
    Ok(())
}

/// The element of argument 0 at a computed coordinate along `axis`, or `fill` if that is out of range. Of an axis that can
/// be counted in 32 bits, an index that cannot be is out of range, and stays so as the nearest one that can.
fn read<'k>(
    at: &dyn Point<'k>,
    index: Value<'k>,
    extent: usize,
    fill: Scalar,
    coordinates: impl FnOnce(Value<'k>) -> SmallVec<[Value<'k>; 4]>,
) -> Value<'k> {
    let Some(last) = (extent as i64).checked_sub(1).filter(|&last| last >= 0) else { return at.constant(fill) };
    let index = index.cast(if i32::try_from(extent).is_ok() { DType::I32 } else { DType::I64 });
    let index = index.lt(0_i64).select(index + (last + 1), index);
    let inside = index.ge(0_i64) & index.le(last);
    let element = at.at(0, &coordinates(index.max(0_i64).min(last).cast(DType::I64)));
    inside.select(element, at.constant(fill))
}

impl OpDef for Take {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        let [x, indices] = check::exactly::<2>(args)?;
        check_axis(self.axis, x)?;
        check_indices(1, indices)?;
        check_fill(self.fill, x)?;
        Ok(x.with_shape(taken_shape(&x.shape, self.axis, &indices.shape)))
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        let scatter = ScatterAdd { axis: self.axis, along: false };
        let caller = Location::caller();
        Cotangents::some([
            Some(Tensor::apply_at(scatter, &[&at.args[0].zeros_like(), &at.args[1], at.ct], caller)),
            None,
        ])
    }

    fn lower(&self, args: &[&TensorType], _: &TensorType) -> Lowering {
        let (axis, fill, rank) = (self.axis, self.fill, args[0].rank());
        let (extent, n_index_axes) = (args[0].shape[axis], args[1].rank());
        Lowering::indexed(&[0, 1], move |at| {
            let own: SmallVec<[Value<'_>; 4]> = (axis..axis + n_index_axes).map(|axis| at.index(axis)).collect();
            read(at, at.at(1, &own), extent, fill, |index| {
                let before = (0..axis).map(|axis| at.index(axis));
                let after = (axis + 1..rank).map(|axis| at.index(axis + n_index_axes - 1));
                before.chain([index]).chain(after).collect()
            })
        })
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        let of = |axis, x: &[usize], indices: &[usize]| {
            let x_type = TensorType::new(DType::F64, x);
            let indices = (TensorType::new(DType::I64, indices), 0.0..x[axis] as f64);
            Sample::typed(Take { axis, fill: f64::NAN.into() }, &[(x_type, -1.0..1.0), indices])
        };
        vec![of(1, &[4, 6, 5], &[3, 4]), of(0, &[6, 5], &[5]), of(0, &[6], &[])]
    }
}

impl OpDef for TakeAlong {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        let [x, indices] = check::exactly::<2>(args)?;
        check_axis(self.axis, x)?;
        check_indices(1, indices)?;
        check_fill(self.fill, x)?;
        check_along(self.axis, x, indices)?;
        Ok(x.with_shape(&indices.shape))
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        let scatter = ScatterAdd { axis: self.axis, along: true };
        let caller = Location::caller();
        Cotangents::some([
            Some(Tensor::apply_at(scatter, &[&at.args[0].zeros_like(), &at.args[1], at.ct], caller)),
            None,
        ])
    }

    fn lower(&self, args: &[&TensorType], _: &TensorType) -> Lowering {
        let (axis, fill, rank, extent) = (self.axis, self.fill, args[0].rank(), args[0].shape[self.axis]);
        Lowering::indexed(&[0], move |at| {
            read(at, at.arg(1), extent, fill, |index| {
                (0..rank).map(|other| if other == axis { index } else { at.index(other) }).collect()
            })
        })
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        let x = TensorType::new(DType::F64, [3, 6]);
        let indices = TensorType::new(DType::I64, [3, 4]);
        let take = TakeAlong { axis: 1, fill: f64::NAN.into() };
        vec![Sample::typed(take, &[(x, -1.0..1.0), (indices, 0.0..6.0)])]
    }
}

impl OpDef for ScatterAdd {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        let [x, indices, updates] = check::exactly::<3>(args)?;
        check::number(0, x)?;
        check_axis(self.axis, x)?;
        check_indices(1, indices)?;
        let wanted = if self.along {
            check_along(self.axis, x, indices)?;
            indices.shape.clone()
        } else {
            taken_shape(&x.shape, self.axis, &indices.shape)
        };
        if *updates != x.with_shape(wanted.clone()) {
            refuse!("argument 2 is {updates}, but must be {}", x.with_shape(wanted));
        }
        Ok((*x).clone())
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        let (axis, fill) = (self.axis, Scalar { dtype: at.ct.dtype(), bits: 0 });
        let (args, caller) = ([at.ct, &at.args[1]], Location::caller());
        let updates = match self.along {
            true => Tensor::apply_at(TakeAlong { axis, fill }, &args, caller),
            false => Tensor::apply_at(Take { axis, fill }, &args, caller),
        };
        Cotangents::some([Some(at.ct.clone()), None, Some(updates)])
    }

    fn lower(&self, args: &[&TensorType], _: &TensorType) -> Lowering {
        let (x, indices) = (args[0], args[1]);
        Lowering::Library(Library::ScatterAdd(library::ScatterAdd {
            dtype: x.dtype,
            index_dtype: indices.dtype,
            outer: x.shape[..self.axis].iter().product(),
            len: x.shape[self.axis],
            inner: x.shape[self.axis + 1..].iter().product(),
            n_indices: if self.along { indices.shape[self.axis] } else { indices.n_elements() },
            along: self.along,
            from_zeros: false,
        }))
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        let of = |scatter: ScatterAdd, x: &[usize], indices: &[usize], updates: &[usize]| {
            let float = |shape: &[usize]| (TensorType::new(DType::F64, shape), -1.0..1.0);
            let indices = (TensorType::new(DType::I64, indices), 0.0..x[scatter.axis] as f64);
            Sample::typed(scatter, &[float(x), indices, float(updates)])
        };
        vec![
            of(ScatterAdd { axis: 0, along: false }, &[6, 5], &[4], &[4, 5]),
            of(ScatterAdd { axis: 1, along: false }, &[2, 4], &[3, 2], &[2, 3, 2]),
            of(ScatterAdd { axis: 1, along: true }, &[3, 6], &[3, 4], &[3, 4]),
        ]
    }
}

/// The value that `take` reads out of range: NaN, the least signed or the largest unsigned integer, true.
pub(super) fn absent(dtype: DType) -> Scalar {
    let value = match dtype {
        DType::F32 | DType::F64 | DType::F16 | DType::Bf16 => f64::NAN,
        DType::I32 => f64::from(i32::MIN),
        DType::I64 => i64::MIN as f64,
        DType::U32 => f64::from(u32::MAX),
        DType::U8 => f64::from(u8::MAX),
        DType::Bool => 1.0,
    };
    Scalar::from_f64(value, dtype)
}

impl Tensor {
    /// The slices along `axis` that `indices` (`i32`, `i64` or `u32`, of any shape) name; the axes of the indices
    /// stand in place of the axis.
    ///
    /// Negative indices count from the end. An index out of range reads NaN, for integers the least signed or largest
    /// unsigned number; its derivative is zero.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let rows = Tensor::from([[1.0_f32, 2.0], [3.0, 4.0], [5.0, 6.0]]);
    /// let taken = rows.take(&Tensor::from([2_i64, -3]), 0);
    /// assert_eq!(taken.to_vec::<f32>()?, [5.0, 6.0, 1.0, 2.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn take(&self, indices: &Tensor, axis: impl AsIndex) -> Tensor {
        let (at, _method) = (Location::caller(), method("take"));
        self.over_axis(axis, at, |axis| {
            Tensor::apply_at(Take { axis, fill: absent(self.dtype()) }, &[self, indices], at)
        })
    }

    /// One element along `axis` for each index; `indices` have this shape except along the axis.
    ///
    /// Indices out of range read as in [`take`](Tensor::take).
    ///
    /// ```
    /// # use retape::Tensor;
    /// let x = Tensor::from([[1.0_f32, 2.0], [3.0, 4.0]]);
    /// assert_eq!(x.take_along(&Tensor::from([[1_i64], [0]]), 1).to_vec::<f32>()?, [2.0, 3.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn take_along(&self, indices: &Tensor, axis: impl AsIndex) -> Tensor {
        let (at, _method) = (Location::caller(), method("take_along"));
        self.over_axis(axis, at, |axis| {
            Tensor::apply_at(TakeAlong { axis, fill: absent(self.dtype()) }, &[self, indices], at)
        })
    }

    /// This tensor plus `updates`, of which slice `i` along `axis` is added at `indices[i]`.
    ///
    /// Several updates of one place are added in order. Negative indices count from the end; updates out of range are
    /// dropped.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let x = Tensor::zeros([3]);
    /// let sum = x.scatter_add(0, &Tensor::from([2_i64, 0, 2]), &Tensor::from([1.0_f32, 2.0, 3.0]));
    /// assert_eq!(sum.to_vec::<f32>()?, [2.0, 0.0, 4.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn scatter_add(&self, axis: impl AsIndex, indices: &Tensor, updates: &Tensor) -> Tensor {
        let (at, _method) = (Location::caller(), method("scatter_add"));
        self.over_axis(axis, at, |axis| {
            Tensor::apply_at(ScatterAdd { axis, along: false }, &[self, indices, updates], at)
        })
    }

    /// This tensor plus `updates`, each element added at its own index along `axis`; the transpose of `take_along`.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let x = Tensor::zeros([2, 2]);
    /// let (indices, updates) = (Tensor::from([[1_i64], [0]]), Tensor::from([[5.0_f32], [7.0]]));
    /// assert_eq!(x.scatter_add_along(1, &indices, &updates).to_vec::<f32>()?, [0.0, 5.0, 7.0, 0.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn scatter_add_along(&self, axis: impl AsIndex, indices: &Tensor, updates: &Tensor) -> Tensor {
        let (at, _method) = (Location::caller(), method("scatter_add_along"));
        self.over_axis(axis, at, |axis| {
            Tensor::apply_at(ScatterAdd { axis, along: true }, &[self, indices, updates], at)
        })
    }

    /// Resolves one axis and goes on with it; poisoned if it does not exist.
    pub(crate) fn over_axis(&self, axis: impl AsIndex, at: Caller, then: impl FnOnce(usize) -> Tensor) -> Tensor {
        match axes::resolve(axis, self.rank()) {
            Ok(axis) => then(axis),
            Err(message) => self.refused(message, at),
        }
    }
}
