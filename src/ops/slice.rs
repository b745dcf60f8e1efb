//! Parts of a tensor along its axes, and the way back: padding.
//!
//! `Slice` and `Pad` are each other's derivatives: a slice with steps is undone by padding between elements.

use std::panic::Location;

use retape_kernels::ir::Value;
use retape_runtime::{DType, Element, Scalar, Shape};
use smallvec::SmallVec;

use super::attribute::attributes;
use super::axes::{AsIndex, Axes, IndexRange, Subscript, Subscripts};
use super::check::{self, refuse};
use super::{Cotangents, Facts, Lowering, Movement, OpDef, Sample, Site, TypeError};
use crate::error::Caller;
use crate::method::method;
use crate::tensor::Tensor;
use crate::types::TensorType;

/// Elements at regular distances along each axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Slice {
    /// The coordinate of the first element along each axis.
    pub start: SmallVec<[usize; 4]>,
    /// The distance between elements; not zero, negative to go backwards.
    pub step: SmallVec<[i64; 4]>,
    /// The number of elements along each axis.
    pub shape: Shape,
}

/// A constant before, between and after the elements along each axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pad {
    /// How many constants before the first element.
    pub low: SmallVec<[usize; 4]>,
    /// How many after the last.
    pub high: SmallVec<[usize; 4]>,
    /// How many between two neighbours.
    pub interior: SmallVec<[usize; 4]>,
    /// The constant.
    pub value: Scalar,
}

attributes! {
    Slice { start, step, shape }
    Pad { low, high, interior, value }
}

impl Slice {
    /// The first elements of every axis, for as many as `shape` says; steps of one.
    pub(super) fn leading(shape: &[usize]) -> Slice {
        Slice {
            start: SmallVec::from_elem(0, shape.len()),
            step: SmallVec::from_elem(1, shape.len()),
            shape: Shape::new(shape),
        }
    }

    /// Everything, backwards along some axes.
    fn reversed(shape: &[usize], backwards: impl Fn(usize) -> bool) -> Slice {
        let mut slice = Slice::leading(shape);
        for (axis, &extent) in shape.iter().enumerate().filter(|&(axis, &extent)| extent > 0 && backwards(axis)) {
            slice.start[axis] = extent - 1;
            slice.step[axis] = -1;
        }
        slice
    }

    /// The start and the step along an axis, as small as they can be for the elements it takes: of none or one, the
    /// step can be any number.
    fn along(&self, axis: usize) -> (usize, i64) {
        match self.shape[axis] {
            0 => (0, 1),
            1 => (self.start[axis], 1),
            _ => (self.start[axis], self.step[axis]),
        }
    }

    /// The coordinate of the last element along an axis that has some; none if it is out of reach.
    fn last(&self, axis: usize) -> Option<usize> {
        let steps = i64::try_from(self.shape[axis].checked_sub(1)?).ok()?;
        let last = i64::try_from(self.start[axis]).ok()?.checked_add(steps.checked_mul(self.step[axis])?)?;
        usize::try_from(last).ok()
    }

    /// The lowest and the highest coordinate of elements along an axis that has some; none if one is out of reach.
    pub(crate) fn reach(&self, axis: usize) -> Option<(usize, usize)> {
        let (start, last) = (self.start[axis], self.last(axis)?);
        Some((start.min(last), start.max(last)))
    }
}

impl OpDef for Slice {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        let [x] = check::exactly::<1>(args)?;
        if [self.start.len(), self.step.len(), self.shape.rank()] != [x.rank(); 3] {
            refuse!("start, step and shape need one entry for each axis of {x}");
        }
        for (axis, &extent) in x.shape.iter().enumerate() {
            let (start, step, count) = (self.start[axis], self.step[axis], self.shape[axis]);
            let inside = count == 0 || (start < extent && self.last(axis).is_some_and(|last| last < extent));
            if step == 0 {
                refuse!("the step along axis {axis} is zero");
            }
            if !inside {
                refuse!("{count} elements from {start} in steps of {step} leave axis {axis} of {x}");
            }
        }
        Ok(x.with_shape(&self.shape))
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        let shape = at.args[0].shape();
        if self.shape.contains(&0) {
            return Cotangents::of([at.args[0].zeros_like()]);
        }
        let forwards = match self.step.iter().any(|&step| step < 0) {
            true => Tensor::apply(Slice::reversed(&self.shape, |axis| self.step[axis] < 0), &[at.ct]),
            false => at.ct.clone(),
        };
        let ends = |axis: usize| {
            let (first, last) = (self.start[axis], self.last(axis).unwrap_or(self.start[axis]));
            (first.min(last), first.max(last))
        };
        let rank = shape.len();
        let pad = Pad {
            low: (0..rank).map(|axis| ends(axis).0).collect(),
            high: (0..rank).map(|axis| shape[axis] - 1 - ends(axis).1).collect(),
            interior: (0..rank).map(|axis| self.along(axis).1.unsigned_abs() as usize - 1).collect(),
            value: Scalar { dtype: at.ct.dtype(), bits: 0 },
        };
        Cotangents::of([Tensor::apply(pad, &[&forwards])])
    }

    fn lower(&self, _: &[&TensorType], _: &TensorType) -> Lowering {
        let (start, step) = (0..self.shape.rank()).map(|axis| self.along(axis)).unzip();
        Lowering::Movement(Movement::Slice { start, step })
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        let of = |start: &[usize], step: &[i64], shape: &[usize]| Slice {
            start: SmallVec::from_slice(start),
            step: SmallVec::from_slice(step),
            shape: Shape::new(shape),
        };
        vec![
            Sample::floats(of(&[1, 0], &[1, 1], &[2, 3]), &[&[4, 3]], -1.0..1.0),
            Sample::floats(of(&[1, 0, 2], &[2, 3, 1], &[2, 2, 3]), &[&[4, 6, 5]], -1.0..1.0),
            Sample::floats(of(&[3, 4], &[-1, -2], &[4, 3]), &[&[4, 6]], -1.0..1.0),
        ]
    }
}

impl Pad {
    /// The axis and the coordinate from which on an argument of this shape lies in the result, if that is zero
    /// elsewhere and the axis is the only one along which it is longer.
    pub(crate) fn window(&self, shape: &[usize]) -> Option<(usize, usize)> {
        let mut longer = (0..shape.len()).filter(|&axis| (self.low[axis], self.high[axis]) != (0, 0));
        let (axis, other) = (longer.next()?, longer.next());
        let is_dense = (0..shape.len()).all(|axis| self.gap(axis, shape[axis]) == 1);
        (other.is_none() && is_dense && self.value.bits == 0).then(|| (axis, self.low[axis]))
    }

    /// The distance of neighbours along an axis of this extent; one where there are none, whatever is between them.
    fn gap(&self, axis: usize, extent: usize) -> i64 {
        if extent <= 1 { 1 } else { self.interior[axis] as i64 + 1 }
    }
}

impl OpDef for Pad {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        let [x] = check::exactly::<1>(args)?;
        if [self.low.len(), self.high.len(), self.interior.len()] != [x.rank(); 3] {
            refuse!("low, high and interior need one entry for each axis of {x}");
        }
        if self.value.dtype != x.dtype {
            refuse!("the padding is {}, the tensor {x}: dtypes must be equal", self.value.dtype);
        }
        let extent = |axis: usize| {
            let gaps = x.shape[axis].saturating_sub(1).checked_mul(self.interior[axis])?;
            self.low[axis].checked_add(x.shape[axis])?.checked_add(gaps)?.checked_add(self.high[axis])
        };
        match (0..x.rank()).map(extent).collect::<Option<Shape>>() {
            Some(shape) => Ok(x.with_shape(shape)),
            None => refuse!("the padded extents of {x} cannot be counted"),
        }
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        let x = &at.args[0];
        if x.shape().contains(&0) {
            return Cotangents::of([x.zeros_like()]);
        }
        let step = x.shape().iter().enumerate().map(|(axis, &extent)| self.gap(axis, extent)).collect();
        Cotangents::of([Tensor::apply(Slice { start: self.low.clone(), step, shape: x.shape().into() }, &[at.ct])])
    }

    fn lower(&self, args: &[&TensorType], _: &TensorType) -> Lowering {
        let (pad, shape) = (self.clone(), args[0].shape.clone());
        if shape.contains(&0) {
            return Lowering::indexed(&[0], move |at| at.constant(pad.value));
        }
        Lowering::indexed(&[0], move |at| {
            let mut inside: Option<Value<'_>> = None;
            let mut coordinate = |axis: usize| {
                let (low, gap, extent) = (pad.low[axis] as i64, pad.gap(axis, shape[axis]), shape[axis] as i64);
                let c = at.index(axis);
                if (low, gap, pad.high[axis]) == (0, 1, 0) {
                    return c;
                }
                let from_low = c - low;
                // Without a sign, the quotient is a product.
                let distance = if gap == 1 { from_low } else { from_low.max(0_i64) };
                let position = if gap == 1 { distance } else { distance / gap };
                let mut guard = from_low.ge(0_i64) & position.lt(extent);
                if gap > 1 {
                    guard = guard & (distance % gap).eq(0_i64);
                }
                inside = Some(inside.map_or(guard, |others| others & guard));
                position.max(0_i64).min(extent - 1)
            };
            let coordinates: SmallVec<[Value<'_>; 4]> = (0..shape.rank()).map(&mut coordinate).collect();
            let element = at.at(0, &coordinates);
            inside.map_or(element, |inside| inside.select(element, at.constant(pad.value)))
        })
    }

    fn facts(&self) -> Facts {
        Facts { constant: Some(self.value), ..Facts::PLAIN }
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        let of = |low: &[usize], high: &[usize], interior: &[usize]| Pad {
            low: SmallVec::from_slice(low),
            high: SmallVec::from_slice(high),
            interior: SmallVec::from_slice(interior),
            value: 0.5_f64.into(),
        };
        vec![
            Sample::floats(of(&[1, 0], &[2, 3], &[0, 0]), &[&[3, 4]], -1.0..1.0),
            Sample::floats(of(&[0, 2, 0], &[0, 1, 0], &[0, 2, 1]), &[&[2, 3, 4]], -1.0..1.0),
        ]
    }
}

impl Tensor {
    /// The part of a tensor at `subscripts`, one for each of its first axes, as Python's `x[..]`: an index makes its axis
    /// disappear, a range keeps it. Negative numbers count from the end.
    ///
    /// Unlike Python's, ranges must lie within their axis.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let x = Tensor::from([[1.0_f32, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    /// assert_eq!(x.at(0).to_vec::<f32>()?, [1.0, 2.0, 3.0]);
    /// assert_eq!(x.at((1, -1)).item::<f32>()?, 6.0);
    /// assert_eq!(x.at((.., 0)).to_vec::<f32>()?, [1.0, 4.0]);
    /// assert_eq!(x.at((1, ..2)).to_vec::<f32>()?, [4.0, 5.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn at(&self, subscripts: impl Into<Subscripts>) -> Tensor {
        let (at, _method) = (Location::caller(), method("at"));
        let Subscripts(subscripts) = subscripts.into();
        if subscripts.len() > self.rank() {
            let message = format!("{} subscripts are more than the axes of {}", subscripts.len(), self.type_text());
            return self.refused(message, at);
        }
        self.subscripted(subscripts.into_iter().enumerate(), at)
    }

    /// The part of a tensor whose coordinates along `axis` lie in a range; negative ends count from the end.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let x = Tensor::from([1.0_f32, 2.0, 3.0, 4.0]);
    /// assert_eq!(x.slice_axis(0, 1..3).to_vec::<f32>()?, [2.0, 3.0]);
    /// assert_eq!(x.slice_axis(0, -1..).to_vec::<f32>()?, [4.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn slice_axis(&self, axis: impl AsIndex, range: impl Into<IndexRange>) -> Tensor {
        let _method = method("slice_axis");
        let (at, range) = (Location::caller(), range.into());
        self.over_axis(axis, at, |axis| self.subscripted([(axis, Subscript::Range(range))], at))
    }

    /// The part of a tensor at coordinate `index` along `axis`, which disappears; both count from the end if negative.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let x = Tensor::from([[1.0_f32, 2.0], [3.0, 4.0]]);
    /// assert_eq!(x.index_axis(0, -1).to_vec::<f32>()?, [3.0, 4.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn index_axis(&self, axis: impl AsIndex, index: impl AsIndex) -> Tensor {
        let (at, _method) = (Location::caller(), method("index_axis"));
        self.over_axis(axis, at, |axis| self.subscripted([(axis, Subscript::from(index))], at))
    }

    /// Elements `start, start + step, ..` below `stop` along each axis, as NumPy's `x[start:stop:step, ..]`.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let x = Tensor::from([1.0_f32, 2.0, 3.0, 4.0, 5.0]);
    /// assert_eq!(x.slice(&[1], &[5], &[2]).to_vec::<f32>()?, [2.0, 4.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn slice(&self, start: &[usize], stop: &[usize], step: &[usize]) -> Tensor {
        let (at, _method) = (Location::caller(), method("slice"));
        if [start.len(), stop.len(), step.len()] != [self.rank(); 3] {
            let message = format!("start, stop and step need one entry for each axis of {}", self.type_text());
            return self.refused(message, at);
        }
        if step.iter().any(|&step| step == 0 || i64::try_from(step).is_err()) {
            return self.refused(format!("steps {step:?} must be positive"), at);
        }
        let counts = start.iter().zip(stop).zip(step);
        let shape: Shape = counts.map(|((&start, &stop), &step)| stop.saturating_sub(start).div_ceil(step)).collect();
        let slice =
            Slice { start: SmallVec::from_slice(start), step: step.iter().map(|&step| step as i64).collect(), shape };
        Tensor::apply_at(slice, &[self], at)
    }

    /// Adds `low[axis]` elements equal to `value` before and `high[axis]` after the elements along each axis.
    ///
    /// Integers and truth values are padded with one of theirs; a number that is none of them is refused.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let x = Tensor::from([1.0_f32, 2.0]);
    /// assert_eq!(x.pad(&[1], &[2], 0.0).to_vec::<f32>()?, [0.0, 1.0, 2.0, 0.0, 0.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn pad(&self, low: &[usize], high: &[usize], value: impl Element) -> Tensor {
        let (at, _method) = (Location::caller(), method("pad"));
        let value = match self.element(value.to_scalar(), at) {
            Ok(value) => value,
            Err(refused) => return refused,
        };
        let (low, high) = (SmallVec::from_slice(low), SmallVec::from_slice(high));
        let interior = SmallVec::from_elem(0, low.len());
        Tensor::apply_at(Pad { low, high, interior, value }, &[self], at)
    }

    /// The elements in reverse order along axes: `x.flip(0)`, `x.flip([0, 2])`, `x.flip(..)`.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let x = Tensor::from([1.0_f32, 2.0, 3.0]);
    /// assert_eq!(x.flip(0).to_vec::<f32>()?, [3.0, 2.0, 1.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn flip(&self, axes: impl Into<Axes>) -> Tensor {
        let (at, _method) = (Location::caller(), method("flip"));
        self.over_axes(axes.into(), at, |axes| {
            Tensor::apply_at(Slice::reversed(self.shape(), |axis| axes.contains(&axis)), &[self], at)
        })
    }

    /// Coordinates `start..stop` of an axis that exists.
    pub(crate) fn part(&self, axis: usize, start: usize, stop: usize, at: Caller) -> Tensor {
        self.parts(&[(axis, start, stop)], at)
    }

    /// Coordinates `start..stop` along each of some axes that exist.
    fn parts(&self, along: &[(usize, usize, usize)], at: Caller) -> Tensor {
        if self.error().is_some() || along.iter().all(|&(axis, start, stop)| (start, stop) == (0, self.shape()[axis])) {
            return self.clone();
        }
        let mut slice = Slice::leading(self.shape());
        for &(axis, start, stop) in along {
            slice.start[axis] = start;
            slice.shape.extents_mut()[axis] = stop - start;
        }
        Tensor::apply_at(slice, &[self], at)
    }

    /// The part at subscripts of axes that exist; poisoned if one lies outside of its axis.
    fn subscripted(&self, subscripts: impl IntoIterator<Item = (usize, Subscript)>, at: Caller) -> Tensor {
        let (mut along, mut dropped) = (SmallVec::<[_; 4]>::new(), SmallVec::<[usize; 4]>::new());
        for (axis, subscript) in subscripts {
            match subscript.along(axis, self) {
                Ok((start, stop)) => along.push((axis, start, stop)),
                Err(message) => return self.refused(message, at),
            }
            if let Subscript::Index(_) = subscript {
                dropped.push(axis);
            }
        }
        self.parts(&along, at).drop_axes(&dropped, at)
    }

    /// Dtype and shape for messages.
    pub(crate) fn type_text(&self) -> String {
        self.ty().map_or_else(|| "a poisoned tensor".to_owned(), ToString::to_string)
    }
}
