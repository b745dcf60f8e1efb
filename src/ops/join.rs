//! Tensors joined along an axis, and divided again.

use std::panic::Location;

use retape_kernels::library::Join;
use retape_runtime::{DType, Shape};

use super::attribute::attributes;
use super::axes::{self, AsIndex};
use super::check::{UNLIKE_DTYPES, refuse};
use super::matmul::refused_among;
use super::{Cotangents, Facts, Lowering, OpDef, Sample, Site, TypeError};
use crate::error::ill_typed;
use crate::method::method;
use crate::tensor::Tensor;
use crate::types::TensorType;

/// Tensors that are joined at once; of more, the results of some are joined.
pub(crate) const MAX_JOINED: usize = 1 << 12;

/// Parts that a tensor is divided into at most.
const MOST_CHUNKS: usize = 1 << 20;

/// Tensors one after another along an axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Concat {
    /// The axis.
    pub axis: usize,
}

attributes! {
    Concat { axis }
}

impl OpDef for Concat {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        let Some(first) = args.first() else { refuse!("takes at least one argument") };
        if self.axis >= first.rank() {
            refuse!("axis {} is out of range for {first}", self.axis);
        }
        let mut shape = first.shape.clone();
        for (position, arg) in args.iter().enumerate().skip(1) {
            if arg.dtype != first.dtype {
                refuse!("argument {position} is {arg}, argument 0 is {first}: {UNLIKE_DTYPES}");
            }
            let fits = arg.rank() == first.rank()
                && (0..arg.rank()).all(|axis| axis == self.axis || arg.shape[axis] == first.shape[axis]);
            if !fits {
                refuse!(
                    "argument {position} is {arg}, argument 0 is {first}: all axes except {} must be equal",
                    self.axis
                );
            }
            let extent = &mut shape.extents_mut()[self.axis];
            match extent.checked_add(arg.shape[self.axis]) {
                Some(sum) => *extent = sum,
                None => refuse!("the joined extent cannot be counted"),
            }
        }
        Ok(first.with_shape(shape))
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        let mut start = 0;
        Cotangents::each(at.args.iter().map(|arg| {
            let stop = start + arg.shape()[self.axis];
            let part = at.ct.part(self.axis, start, stop, Location::caller());
            start = stop;
            part
        }))
    }

    fn lower(&self, args: &[&TensorType], result: &TensorType) -> Lowering {
        let (before, after) = (&result.shape[..self.axis], &result.shape[self.axis + 1..]);
        let lens = args.iter().map(|arg| arg.shape[self.axis]).collect();
        let (outer, inner) = (before.iter().product(), after.iter().product());
        Lowering::Library(Join::contiguous(result.dtype, outer, lens, inner).into())
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        vec![
            Sample::floats(Concat { axis: 1 }, &[&[3, 2], &[3, 4], &[3, 1]], -1.0..1.0),
            Sample::floats(Concat { axis: 0 }, &[&[2], &[3]], -1.0..1.0),
        ]
    }
}

/// Joins tensors along an axis, counted from the end if negative.
///
/// ```
/// # use retape::{Tensor, concat};
/// let (a, b) = (Tensor::from([1.0_f32]), Tensor::from([2.0_f32, 3.0]));
/// assert_eq!(concat(&[&a, &b], 0).to_vec::<f32>()?, [1.0, 2.0, 3.0]);
/// # Ok::<(), retape::Error>(())
/// ```
#[track_caller]
pub fn concat(tensors: &[&Tensor], axis: impl AsIndex) -> Tensor {
    let (at, _method) = (Location::caller(), method("concat"));
    let Some(first) = tensors.first() else {
        let message = "takes at least one tensor".to_owned();
        return Tensor::poisoned(ill_typed("concat", message, at));
    };
    match axes::resolve(axis, first.rank()) {
        Ok(axis) => Tensor::apply_in_groups(Concat { axis }, MAX_JOINED, tensors, at),
        Err(message) => first.refused(message, at),
    }
}

/// Joins tensors of one shape along a new axis, counted from the end of the result if negative.
///
/// ```
/// # use retape::{Tensor, stack};
/// let (a, b) = (Tensor::from([1.0_f32, 2.0]), Tensor::from([3.0_f32, 4.0]));
/// assert_eq!(stack(&[&a, &b], 1).to_vec::<f32>()?, [1.0, 3.0, 2.0, 4.0]);
/// # Ok::<(), retape::Error>(())
/// ```
#[track_caller]
pub fn stack(tensors: &[&Tensor], axis: impl AsIndex) -> Tensor {
    let (at, _method) = (Location::caller(), method("stack"));
    let Some(first) = tensors.first() else {
        let message = "takes at least one tensor".to_owned();
        return Tensor::poisoned(ill_typed("stack", message, at));
    };
    // The types as they were given, without the new axis.
    let fits = |other: &Tensor| other.ty().zip(first.ty()).is_none_or(|(other, first)| other == first);
    if let Some(position) = tensors.iter().position(|other| !fits(other)) {
        let other = tensors[position];
        let rule = if other.dtype() == first.dtype() { "shapes must be equal" } else { UNLIKE_DTYPES };
        let (given, wanted) = (other.type_text(), first.type_text());
        let message = format!("argument {position} is {given}, argument 0 is {wanted}: {rule}");
        return refused_among(tensors, message, at);
    }
    match axes::resolve(axis, first.rank() + 1) {
        Ok(axis) => {
            let parts: Vec<Tensor> = tensors.iter().map(|tensor| tensor.with_axis(axis, 1, at)).collect();
            Tensor::apply_in_groups(Concat { axis }, MAX_JOINED, &parts.iter().collect::<Vec<_>>(), at)
        }
        Err(message) => first.refused(message, at),
    }
}

impl Tensor {
    /// Parts of the given extents along an axis, in order; the extents must add up to the axis'.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let parts = Tensor::from([1.0_f32, 2.0, 3.0]).split(0, &[1, 2]);
    /// assert_eq!(parts[1].to_vec::<f32>()?, [2.0, 3.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn split(&self, axis: impl AsIndex, extents: &[usize]) -> Vec<Tensor> {
        let (at, _method) = (Location::caller(), method("split"));
        let whole = axes::resolve(axis, self.rank()).and_then(|axis| {
            let total = extents.iter().try_fold(0_usize, |sum, &extent| sum.checked_add(extent));
            let refusal = || format!("parts {extents:?} do not add up to axis {axis} of {}", self.type_text());
            if total == Some(self.shape()[axis]) { Ok(axis) } else { Err(refusal()) }
        });
        let mut start = 0;
        let mut part = |axis: usize, extent: usize| {
            start += extent;
            self.part(axis, start - extent, start, at)
        };
        match whole {
            Ok(axis) => extents.iter().map(|&extent| part(axis, extent)).collect(),
            Err(message) => vec![self.refused(message, at); extents.len().max(1)],
        }
    }

    /// `n` parts of equal extent along an axis, in order.
    ///
    /// If the axis does not divide into so many, all parts are poisoned; of none, there is one that is, and so it is of
    /// more than 2^20.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let parts = Tensor::from([1.0_f32, 2.0, 3.0, 4.0]).chunk(0, 2);
    /// assert_eq!(parts[1].to_vec::<f32>()?, [3.0, 4.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn chunk(&self, axis: impl AsIndex, n: usize) -> Vec<Tensor> {
        let (at, _method) = (Location::caller(), method("chunk"));
        if n > MOST_CHUNKS {
            let message = format!("{n} parts are more than {MOST_CHUNKS}");
            return vec![self.refused(message, at)];
        }
        match self.divided(axis, n) {
            Ok((axis, extent)) => {
                (0..n).map(|position| self.part(axis, position * extent, (position + 1) * extent, at)).collect()
            }
            // An error needs a tensor to travel in.
            Err(message) => vec![self.refused(message, at); n.max(1)],
        }
    }

    /// As [`chunk`](Tensor::chunk), into as many parts as the pattern names.
    ///
    /// If the axis does not divide into so many, all parts are poisoned, so that formulas go on without a check.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let gates = Tensor::from([[1.0_f32, 2.0, 3.0, 4.0]]);
    /// let [input, output] = gates.chunk_array(-1);
    /// assert_eq!((input * output).to_vec::<f32>()?, [3.0, 8.0]);
    ///
    /// let [a, b, c] = gates.chunk_array(-1);
    /// assert!((a + b + c).error().is_some()); // 4 does not divide by 3
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn chunk_array<const N: usize>(&self, axis: impl AsIndex) -> [Tensor; N] {
        let (at, _method) = (Location::caller(), method("chunk_array"));
        match self.divided(axis, N) {
            Ok((axis, extent)) => {
                std::array::from_fn(|position| self.part(axis, position * extent, (position + 1) * extent, at))
            }
            Err(message) => {
                let poisoned = self.refused(message, at);
                std::array::from_fn(|_| poisoned.clone())
            }
        }
    }

    /// The axis, and the extent of each of `n` equal parts along it.
    fn divided(&self, axis: impl AsIndex, n: usize) -> Result<(usize, usize), String> {
        let axis = axes::resolve(axis, self.rank())?;
        match self.shape()[axis].checked_rem(n) {
            Some(0) => Ok((axis, self.shape()[axis] / n)),
            _ => Err(format!("axis {axis} of {} does not divide into {n} equal parts", self.type_text())),
        }
    }

    /// The tensor `counts[axis]` times in a row along each axis.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let x = Tensor::from([1.0_f32, 2.0]);
    /// assert_eq!(x.tile(&[2]).to_vec::<f32>()?, [1.0, 2.0, 1.0, 2.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn tile(&self, counts: &[usize]) -> Tensor {
        let (at, _method) = (Location::caller(), method("tile"));
        if counts.len() != self.rank() {
            let message = format!("{counts:?} needs one entry for each axis of {}", self.type_text());
            return self.refused(message, at);
        }
        // Each axis gets a companion before it, along which it is repeated.
        let pairs = || counts.iter().zip(self.shape());
        let apart: Shape = pairs().flat_map(|(_, &extent)| [1, extent]).collect();
        let repeated: Shape = pairs().flat_map(|(&count, &extent)| [count, extent]).collect();
        let Some(merged) = pairs().map(|(&count, &extent)| count.checked_mul(extent)).collect::<Option<Shape>>() else {
            return self.refused("the extents cannot be counted".to_owned(), at);
        };
        let repeated = Tensor::apply_at(super::BroadcastTo { shape: repeated }, &[&self.reshape_at(apart, at)], at);
        if repeated.error().is_some() { repeated } else { repeated.reshape_at(merged, at) }
    }
}
