//! Orders along an axis: sorting is an order of indices, and elements taken along it.

use std::panic::Location;

use retape_kernels::library::{self, Library};
use retape_runtime::DType;

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

attributes! {
    ArgSort { axis, descending }
}

impl OpDef for ArgSort {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        let [x] = check::exactly::<1>(args)?;
        check::of_dtype(0, x, "a number or bool", |dtype| !dtype.is_half())?;
        if self.axis >= x.rank() {
            refuse!("axis {} is out of range for {x}", self.axis);
        }
        Ok(x.with_dtype(DType::I64))
    }

    fn vjp(&self, _: &Site<'_>) -> Cotangents {
        Cotangents::zero("an order is made of integers")
    }

    fn lower(&self, args: &[&TensorType], _: &TensorType) -> Lowering {
        let x = args[0];
        Lowering::Library(Library::Sort(library::Sort {
            dtype: x.dtype,
            outer: x.shape[..self.axis].iter().product(),
            len: x.shape[self.axis],
            inner: x.shape[self.axis + 1..].iter().product(),
            descending: self.descending,
        }))
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
                let indices = Tensor::apply_at(ArgSort { axis, descending: true }, &[self], at).part(axis, 0, k, at);
                (self.take_along(&indices, axis), indices)
            }
            Err(message) => {
                let poisoned = self.refused(message, at);
                (poisoned.clone(), poisoned)
            }
        }
    }
}
