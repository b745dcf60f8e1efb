//! Orders along an axis: sorting is an order of indices, and elements taken along it.

use std::panic::Location;

use retape_kernels::library::{self, Library};
use retape_runtime::{DType, Shape};

use super::attribute::attributes;
use super::axes::{self, AsIndex};
use super::check::{self, refuse};
use super::{Cotangents, Facts, Lowering, OpDef, Sample, Site, TypeError};
use crate::method::method;
use crate::tensor::Tensor;
use crate::types::TensorType;

/// The indices (`i64`) that sort along an axis; equal elements keep their order and NaN comes last.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArgSort {
    /// The axis.
    pub axis: usize,
    /// Whether the largest element comes first.
    pub descending: bool,
}

/// The indices (`i64`) of the largest elements along an axis, descending; the first ones of
/// [`ArgSort`] with the largest first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArgTopK {
    /// The axis.
    pub axis: usize,
    /// The number of elements.
    pub k: usize,
}

attributes! {
    ArgSort { axis, descending }
    ArgTopK { axis, k }
}

/// The type of `kept` indices along an axis of `x`, or of all.
fn order_type(x: &TensorType, axis: usize, kept: Option<usize>) -> Result<TensorType, TypeError> {
    check::of_dtype(0, x, "a number or bool", |dtype| !dtype.is_half())?;
    let Some(&extent) = x.shape.get(axis) else { refuse!("axis {axis} is out of range for {x}") };
    let kept = kept.unwrap_or(extent);
    if kept > extent {
        refuse!("axis {axis} of {x} has fewer than {kept} elements");
    }
    let extents = x.shape.iter().enumerate().map(|(n, &extent)| if n == axis { kept } else { extent });
    Ok(x.with_shape(extents.collect::<Shape>()).with_dtype(DType::I64))
}

/// The library's order of the elements along an axis of `x`, `kept` of each line.
fn order(x: &TensorType, axis: usize, descending: bool, kept: usize) -> Lowering {
    Lowering::Library(Library::Sort(library::Sort {
        dtype: x.dtype,
        outer: x.shape[..axis].iter().product(),
        len: x.shape[axis],
        inner: x.shape[axis + 1..].iter().product(),
        descending,
        kept,
    }))
}

impl OpDef for ArgSort {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        let [x] = check::exactly::<1>(args)?;
        order_type(x, self.axis, None)
    }

    fn vjp(&self, _: &Site<'_>) -> Cotangents {
        Cotangents::zero("an order is made of integers")
    }

    fn lower(&self, args: &[&TensorType], _: &TensorType) -> Lowering {
        order(args[0], self.axis, self.descending, args[0].shape[self.axis])
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        vec![
            Sample::floats(ArgSort { axis: 1, descending: false }, &[&[4, 9]], -1.0..1.0),
            Sample::floats(ArgSort { axis: 0, descending: true }, &[&[5, 2]], -1.0..1.0),
        ]
    }
}

impl OpDef for ArgTopK {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        let [x] = check::exactly::<1>(args)?;
        order_type(x, self.axis, Some(self.k))
    }

    fn vjp(&self, _: &Site<'_>) -> Cotangents {
        Cotangents::zero("an order is made of integers")
    }

    fn lower(&self, args: &[&TensorType], _: &TensorType) -> Lowering {
        order(args[0], self.axis, true, self.k)
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        vec![
            Sample::floats(ArgTopK { axis: 1, k: 3 }, &[&[4, 9]], -1.0..1.0),
            Sample::floats(ArgTopK { axis: 0, k: 5 }, &[&[5, 2]], -1.0..1.0),
        ]
    }
}

impl Tensor {
    /// The indices (`i64`) that sort along `axis`, ascending; equal elements keep their order and NaN comes last.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let order = Tensor::from([3.0_f32, 1.0, 2.0]).argsort(0);
    /// assert_eq!(order.to_vec::<i64>()?, [1, 2, 0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn argsort(&self, axis: impl AsIndex) -> Tensor {
        let (at, _method) = (Location::caller(), method("argsort"));
        self.over_axis(axis, at, |axis| Tensor::apply_at(ArgSort { axis, descending: false }, &[self], at))
    }

    /// As [`argsort`](Tensor::argsort), but the largest element comes first; NaN comes last all the same.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let order = Tensor::from([3.0_f32, f32::NAN, 5.0]).argsort_descending(0);
    /// assert_eq!(order.to_vec::<i64>()?, [2, 0, 1]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn argsort_descending(&self, axis: impl AsIndex) -> Tensor {
        let (at, _method) = (Location::caller(), method("argsort_descending"));
        self.over_axis(axis, at, |axis| Tensor::apply_at(ArgSort { axis, descending: true }, &[self], at))
    }

    /// The elements sorted along `axis`, ascending; NaN comes last.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let sorted = Tensor::from([3.0_f32, 1.0, 2.0]).sort(0);
    /// assert_eq!(sorted.to_vec::<f32>()?, [1.0, 2.0, 3.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn sort(&self, axis: impl AsIndex) -> Tensor {
        let _method = method("sort");
        self.take_along(&self.argsort(axis), axis)
    }

    /// The elements sorted along `axis`, descending; NaN comes last.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let sorted = Tensor::from([3.0_f32, 1.0, 2.0]).sort_descending(0);
    /// assert_eq!(sorted.to_vec::<f32>()?, [3.0, 2.0, 1.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn sort_descending(&self, axis: impl AsIndex) -> Tensor {
        let _method = method("sort_descending");
        self.take_along(&self.argsort_descending(axis), axis)
    }

    /// The `k` largest elements along `axis`, descending, and their indices (`i64`).
    ///
    /// ```
    /// # use retape::Tensor;
    /// let (values, indices) = Tensor::from([3.0_f32, 1.0, 2.0]).top_k(2, 0);
    /// assert_eq!(values.to_vec::<f32>()?, [3.0, 2.0]);
    /// assert_eq!(indices.to_vec::<i64>()?, [0, 2]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn top_k(&self, k: usize, axis: impl AsIndex) -> (Tensor, Tensor) {
        let (at, _method) = (Location::caller(), method("top_k"));
        let fits = axes::resolve(axis, self.rank()).and_then(|axis| match self.shape()[axis] {
            extent if k <= extent => Ok(axis),
            _ => Err(format!("axis {axis} of {} has fewer than {k} elements", self.type_text())),
        });
        match fits {
            Ok(axis) => {
                let indices = Tensor::apply_at(ArgTopK { axis, k }, &[self], at);
                (self.take_along(&indices, axis), indices)
            }
            Err(message) => {
                let poisoned = self.refused(message, at);
                (poisoned.clone(), poisoned)
            }
        }
    }
}
