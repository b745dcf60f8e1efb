//! How the coordinates of a value follow from the point of a kernel's iteration space.
//!
//! A [`View`] gives each coordinate as an affine function of the point. All movements but some reshapes map views to
//! views; where one does not, the planner stores the value it moves, and reads that in row-major order.

use retape_kernels::ir::Affine;
use smallvec::SmallVec;

use crate::ops::Movement;

/// `offset + sum(strides[a] * point[a])`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Coordinate {
    offset: i64,
    strides: SmallVec<[i64; 4]>,
}

impl Clone for Coordinate {
    /// Copies the strides as bytes, which the derived form does one by one.
    fn clone(&self) -> Coordinate {
        Coordinate { offset: self.offset, strides: SmallVec::from_slice(&self.strides) }
    }
}

/// The coordinates of a value, one per axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct View {
    coordinates: SmallVec<[Coordinate; 4]>,
}

impl Coordinate {
    fn zero(n_axes: usize) -> Coordinate {
        Coordinate { offset: 0, strides: SmallVec::from_elem(0, n_axes) }
    }

    /// The sum of this and `factor` times another.
    fn plus(mut self, factor: i64, other: &Coordinate) -> Coordinate {
        self.offset += factor * other.offset;
        for (stride, more) in self.strides.iter_mut().zip(&other.strides) {
            *stride += factor * more;
        }
        self
    }

    /// The least and the largest value over a space without empty axes.
    fn bounds(&self, space: &[usize]) -> (i64, i64) {
        let reach = |(&stride, &extent): (&i64, &usize)| stride * (extent.max(1) as i64 - 1);
        let (mut low, mut high) = (self.offset, self.offset);
        for reach in self.strides.iter().zip(space).map(reach) {
            if reach < 0 { low += reach } else { high += reach }
        }
        (low, high)
    }
}

impl View {
    /// Axis `i` of the value is axis `axes[i]` of a space with `n_axes` axes.
    pub(super) fn of_axes(axes: impl IntoIterator<Item = usize>, n_axes: usize) -> View {
        let along = |axis: usize| {
            let mut coordinate = Coordinate::zero(n_axes);
            coordinate.strides[axis] = 1;
            coordinate
        };
        View { coordinates: axes.into_iter().map(along).collect() }
    }

    /// The view of the argument of a movement, from the view of its result; `None` if it is not affine.
    pub(super) fn through(&self, movement: &Movement, from: &[usize], to: &[usize], space: &[usize]) -> Option<View> {
        let coordinates = match movement {
            Movement::Broadcast => {
                let lead = to.len() - from.len();
                let repeated = |axis: usize| from[axis] == 1 && to[axis + lead] != 1;
                let along = |axis: usize| match repeated(axis) {
                    true => Coordinate::zero(space.len()),
                    false => self.coordinates[axis + lead].clone(),
                };
                (0..from.len()).map(along).collect()
            }
            Movement::Permute(perm) => {
                let mut coordinates = SmallVec::from_elem(Coordinate::zero(0), perm.len());
                for (to, &from) in perm.iter().enumerate() {
                    coordinates[from] = self.coordinates[to].clone();
                }
                coordinates
            }
            Movement::Slice { start, step } => {
                let along = |(axis, coordinate): (usize, &Coordinate)| {
                    let origin = Coordinate { offset: start[axis] as i64, ..Coordinate::zero(space.len()) };
                    origin.plus(step[axis], coordinate)
                };
                self.coordinates.iter().enumerate().map(along).collect()
            }
            Movement::Reshape => self.reshaped(from, to, space)?,
        };
        Some(View { coordinates })
    }

    /// Splits the position within `to` into coordinates of `from`, run by run of axes that hold the same elements.
    fn reshaped(&self, from: &[usize], to: &[usize], space: &[usize]) -> Option<SmallVec<[Coordinate; 4]>> {
        if from.contains(&0) {
            return Some(SmallVec::from_elem(Coordinate::zero(space.len()), from.len()));
        }
        let mut coordinates = SmallVec::new();
        let (mut i, mut j) = (0, 0);
        while i < from.len() || j < to.len() {
            let (first_i, first_j) = (i, j);
            let (mut n_from, mut n_to) = (1, 1);
            loop {
                if n_from <= n_to && i < from.len() {
                    n_from *= from[i];
                    i += 1;
                } else if j < to.len() {
                    n_to *= to[j];
                    j += 1;
                } else {
                    n_from *= from[i];
                    i += 1;
                }
                if n_from == n_to {
                    break;
                }
            }
            let mut position = Coordinate::zero(space.len());
            let mut stride = 1;
            for axis in (first_j..j).rev() {
                position = position.plus(stride, &self.coordinates[axis]);
                stride *= to[axis] as i64;
            }
            coordinates.extend(split(&position, &from[first_i..i], space)?);
        }
        Some(coordinates)
    }

    /// The position of the element in a dense buffer of the given shape.
    pub(super) fn affine(&self, shape: &[usize], n_axes: usize) -> Affine {
        let mut position = Coordinate::zero(n_axes);
        let mut stride = 1;
        for (coordinate, &extent) in self.coordinates.iter().zip(shape).rev() {
            position = position.plus(stride, coordinate);
            stride *= extent as i64;
        }
        Affine { offset: position.offset, strides: position.strides }
    }

    /// The same view except that one coordinate is fixed.
    pub(super) fn with_coordinate(&self, axis: usize, offset: i64) -> View {
        let mut view = self.clone();
        let coordinate = &mut view.coordinates[axis];
        *coordinate = Coordinate { offset, ..Coordinate::zero(coordinate.strides.len()) };
        view
    }

    /// The position in memory of the element, of a value whose coordinates have these strides.
    pub(super) fn through_strides(&self, at: &Affine, n_axes: usize) -> Affine {
        let start = Coordinate { offset: at.offset, ..Coordinate::zero(n_axes) };
        let position = self.coordinates.iter().zip(&at.strides);
        let position = position.fold(start, |position, (coordinate, &stride)| position.plus(stride, coordinate));
        Affine { offset: position.offset, strides: position.strides }
    }

    /// The offset and the stride per axis of the space, of each coordinate.
    pub(super) fn parts(&self) -> impl Iterator<Item = (i64, &[i64])> {
        self.coordinates.iter().map(|coordinate| (coordinate.offset, &coordinate.strides[..]))
    }
}

/// Splits a position in row-major order into coordinates of axes with the given extents, if each term of it belongs
/// to one of them and none overflows into the next.
fn split(position: &Coordinate, extents: &[usize], space: &[usize]) -> Option<SmallVec<[Coordinate; 4]>> {
    if let [_] = extents {
        return Some(SmallVec::from_iter([position.clone()]));
    }
    let mut coordinates: SmallVec<[Coordinate; 4]> = SmallVec::from_elem(Coordinate::zero(space.len()), extents.len());
    let mut offset = position.offset;
    let mut strides: SmallVec<[i64; 4]> = SmallVec::from_elem(1, extents.len());
    for axis in (1..extents.len()).rev() {
        strides[axis - 1] = strides[axis] * extents[axis] as i64;
    }
    for (axis, coordinate) in coordinates.iter_mut().enumerate() {
        coordinate.offset = offset.div_euclid(strides[axis]);
        offset = offset.rem_euclid(strides[axis]);
    }
    for (term, &stride) in position.strides.iter().enumerate() {
        if stride == 0 || space[term] <= 1 {
            continue;
        }
        // The outermost axis whose stride divides the term's; an inner one would overflow.
        let axis = strides.iter().position(|&s| stride.abs() >= s && stride % s == 0)?;
        coordinates[axis].strides[term] = stride / strides[axis];
    }
    let inside = |(coordinate, &extent): (&Coordinate, &usize)| {
        let (low, high) = coordinate.bounds(space);
        low >= 0 && high < extent as i64
    };
    coordinates.iter().zip(extents).all(inside).then_some(coordinates)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strides(view: &View, shape: &[usize], n_axes: usize) -> (i64, Vec<i64>) {
        let affine = view.affine(shape, n_axes);
        (affine.offset, affine.strides.to_vec())
    }

    #[test]
    fn a_reshape_that_splits_what_was_merged_is_affine() {
        let space = [2, 3, 4];
        let merged = View::of_axes([0, 1, 2], 3).through(&Movement::Reshape, &[6, 4], &space, &space);
        let merged = merged.expect("merging is affine");
        assert_eq!(strides(&merged, &[6, 4], 3), (0, vec![12, 4, 1]));
        let split = merged.through(&Movement::Reshape, &[2, 12], &[6, 4], &space).expect("the terms do not overlap");
        assert_eq!(strides(&split, &[2, 12], 3), (0, vec![12, 4, 1]));
    }

    #[test]
    fn a_reshape_that_splits_one_axis_is_not_affine() {
        assert_eq!(View::of_axes([0], 1).through(&Movement::Reshape, &[2, 3], &[6], &[6]), None);
    }

    #[test]
    fn movements_compose() {
        let space = [3, 2];
        let view = View::of_axes([0, 1], 2);
        let view = view.through(&Movement::Permute([1, 0].into_iter().collect()), &[2, 3], &[3, 2], &space).unwrap();
        let slice = Movement::Slice { start: [1, 4].into_iter().collect(), step: [1, -2].into_iter().collect() };
        let view = view.through(&slice, &[5, 7], &[2, 3], &space).unwrap();
        assert_eq!(strides(&view, &[5, 7], 2), (11, vec![-2, 7]));
        let view = View::of_axes([0, 1], 2).through(&Movement::Broadcast, &[1], &[3, 2], &space).unwrap();
        assert_eq!(strides(&view, &[1], 2), (0, vec![0, 0]));
    }
}
