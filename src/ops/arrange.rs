//! Axes moved, added, dropped and merged: composites of permute and reshape.

use std::panic::Location;

use retape_runtime::Shape;
use smallvec::SmallVec;

use super::Permute;
use super::axes::{self, AsIndex, Axes};
use crate::error::Caller;
use crate::method::method;
use crate::tensor::Tensor;

impl Tensor {
    /// The tensor with axes in another order: axis `i` of the result is axis `order[i]` of this one.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let x = Tensor::zeros([2, 3, 4]);
    /// assert_eq!(x.permute([2, 0, 1]).shape(), [4, 2, 3]);
    /// ```
    #[track_caller]
    pub fn permute(&self, order: impl Into<Axes>) -> Tensor {
        let (at, _method) = (Location::caller(), method("permute"));
        match order.into().in_order(self.rank()) {
            Ok(order) => self.permuted(&order, at),
            Err(message) => self.refused(message, at),
        }
    }

    /// The tensor with its last two axes exchanged.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let x = Tensor::from([[1.0_f32, 2.0], [3.0, 4.0]]);
    /// assert_eq!(x.transpose().to_vec::<f32>()?, [1.0, 3.0, 2.0, 4.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn transpose(&self) -> Tensor {
        let _method = method("transpose");
        self.swap_axes(-2, -1)
    }

    /// Short for [`transpose`](Tensor::transpose).
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::zeros([4, 2, 3]).t().shape(), [4, 3, 2]);
    /// ```
    #[track_caller]
    pub fn t(&self) -> Tensor {
        let _method = method("t");
        self.swap_axes(-2, -1)
    }

    /// The tensor with two axes exchanged.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::zeros([4, 2, 3]).swap_axes(0, -1).shape(), [3, 2, 4]);
    /// ```
    #[track_caller]
    pub fn swap_axes(&self, a: impl AsIndex, b: impl AsIndex) -> Tensor {
        let (at, _method) = (Location::caller(), method("swap_axes"));
        let found = axes::resolve(a, self.rank()).and_then(|a| Ok((a, axes::resolve(b, self.rank())?)));
        match found {
            Ok((a, b)) => {
                let mut order: SmallVec<[usize; 4]> = (0..self.rank()).collect();
                order.swap(a, b);
                self.permuted(&order, at)
            }
            Err(message) => self.refused(message, at),
        }
    }

    /// The tensor without axes, which must have extent 1.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::zeros([1, 3, 1]).squeeze([0, -1]).shape(), [3]);
    /// ```
    #[track_caller]
    pub fn squeeze(&self, axes: impl Into<Axes>) -> Tensor {
        let (at, _method) = (Location::caller(), method("squeeze"));
        self.over_axes(axes.into(), at, |axes| {
            if let Some(&axis) = axes.iter().find(|&&axis| self.shape()[axis] != 1) {
                let message = format!("axis {axis} of {} does not have extent 1", self.type_text());
                return self.refused(message, at);
            }
            let kept = self.shape().iter().enumerate().filter(|(axis, _)| !axes.contains(axis));
            self.reshape_at(kept.map(|(_, &extent)| extent).collect(), at)
        })
    }

    /// The tensor with a new axis of extent 1 at position `axis` of the result, counted from its end if negative.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let x = Tensor::zeros([2, 3]);
    /// assert_eq!(x.unsqueeze(0).shape(), [1, 2, 3]);
    /// assert_eq!(x.unsqueeze(-1).shape(), [2, 3, 1]);
    /// ```
    #[track_caller]
    pub fn unsqueeze(&self, axis: impl AsIndex) -> Tensor {
        let (at, _method) = (Location::caller(), method("unsqueeze"));
        match axes::resolve(axis, self.rank() + 1) {
            Ok(axis) => self.with_axis(axis, 1, at),
            Err(message) => self.refused(message, at),
        }
    }

    /// NumPy's name for [`unsqueeze`](Tensor::unsqueeze).
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::zeros([2, 3]).expand_dims(1).shape(), [2, 1, 3]);
    /// ```
    #[track_caller]
    pub fn expand_dims(&self, axis: impl AsIndex) -> Tensor {
        let _method = method("expand_dims");
        self.unsqueeze(axis)
    }

    /// All elements in row-major order along one axis.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([[1, 2], [3, 4]]).flatten().to_vec::<i32>()?, [1, 2, 3, 4]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn flatten(&self) -> Tensor {
        let _method = method("flatten");
        self.reshape_at(Shape::new(&[self.n_elements()]), Location::caller())
    }

    /// The tensor with all axes from `axis` on merged into one: `x.flatten_from(1)` keeps a batch axis.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::zeros([8, 7, 7, 32]).flatten_from(1).shape(), [8, 1568]);
    /// ```
    #[track_caller]
    pub fn flatten_from(&self, axis: impl AsIndex) -> Tensor {
        let (at, _method) = (Location::caller(), method("flatten_from"));
        match axes::resolve(axis, self.rank()) {
            Ok(axis) => {
                let (kept, merged) = self.shape().split_at(axis);
                self.reshape_at(kept.iter().copied().chain([merged.iter().product()]).collect(), at)
            }
            Err(message) => self.refused(message, at),
        }
    }

    /// A permutation of axes that exist.
    pub(crate) fn permuted(&self, order: &[usize], at: Caller) -> Tensor {
        if order.len() == self.rank() && order.iter().copied().eq(0..self.rank()) {
            return self.clone();
        }
        Tensor::apply_at(Permute { perm: SmallVec::from_slice(order) }, &[self], at)
    }

    /// The tensor with a new axis of the given extent, which must leave the number of elements as it is.
    pub(crate) fn with_axis(&self, axis: usize, extent: usize, at: Caller) -> Tensor {
        let mut shape: Shape = self.shape().into();
        shape.extents_mut().insert(axis.min(self.rank()), extent);
        if self.error().is_some() { self.clone() } else { self.reshape_at(shape, at) }
    }
}
