//! Operands and results of attention, wherever they lie in their buffers.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use smallvec::SmallVec;

use crate::library::micro::drive::Engine;
use crate::library::micro::pack::Strided;
use crate::library::micro::softmax::SoftmaxReal;
use crate::library::view::vectorized;

/// A tensor `[batch, position, head, feature]` of these extents in a buffer.
#[derive(Clone, Copy)]
pub(crate) struct HeadOperand<'a, T> {
    pub(crate) data: &'a [T],
    /// The first element.
    pub(crate) offset: usize,
    pub(crate) extents: [usize; 4],
    /// Elements from one index to the next along each axis.
    pub(crate) strides: [usize; 4],
}

/// One head of an operand.
pub(super) struct Head<T> {
    first: *const T,
    /// Elements from one position to the next, and from one feature to the next.
    row: usize,
    col: usize,
}

impl<T: SoftmaxReal> Head<T> {
    /// The first feature of a position; anything if there are none.
    fn position(&self, position: usize) -> *const T {
        self.first.wrapping_add(position.wrapping_mul(self.row))
    }

    /// Rows are positions, and steps features.
    pub(super) fn by_position(&self, start: usize) -> Strided<T> {
        // SAFETY: the buffers outlive the call, and nobody writes them.
        unsafe { Strided::new(self.position(start), self.row as isize, self.col as isize) }
    }

    /// Rows are features, and steps positions.
    pub(super) fn by_feature(&self, start: usize) -> Strided<T> {
        // SAFETY: as above.
        unsafe { Strided::new(self.position(start), self.col as isize, self.row as isize) }
    }
}

impl<'a, T: SoftmaxReal> HeadOperand<'a, T> {
    /// A head, counted over the batch.
    pub(super) fn head(&self, index: usize) -> Head<T> {
        let ([_, _, heads, _], [batch, row, head, col]) = (self.extents, self.strides);
        let start = (index / heads).wrapping_mul(batch).wrapping_add((index % heads).wrapping_mul(head));
        Head { first: self.data.as_ptr().wrapping_add(self.offset).wrapping_add(start), row, col }
    }

    /// The check of the operand times a factor. One whose features are no neighbours is taken with what lies between them.
    pub(super) fn check(&self, factor: T) -> FiniteCheck<'a, T> {
        let [batch, positions, heads, features] = self.extents;
        let [of_batch, of_position, of_head, of_feature] = self.strides;
        if self.extents.contains(&0) {
            return FiniteCheck::from(&[][..]);
        }
        let data = &self.data[self.offset..];
        if of_feature != 1 && features > 1 {
            return FiniteCheck { factor, ..FiniteCheck::from(data) };
        }
        let axes = [[heads, of_head], [positions, of_position], [batch, of_batch]];
        let (mut len, mut outer) = (features, SmallVec::new());
        for [extent, stride] in axes {
            if outer.is_empty() && stride == len {
                len *= extent;
            } else if extent > 1 {
                outer.push([extent, stride]);
            }
        }
        FiniteCheck { data, len, outer, factor }
    }
}

/// Numbers in memory whose products with a factor should be finite: pieces without gaps, of one length.
pub(super) struct FiniteCheck<'a, T> {
    data: &'a [T],
    len: usize,
    /// Extents and strides at which the pieces begin, from the innermost axis.
    outer: SmallVec<[[usize; 2]; 3]>,
    factor: T,
}

impl<'a, T: SoftmaxReal> From<&'a [T]> for FiniteCheck<'a, T> {
    fn from(data: &'a [T]) -> Self {
        FiniteCheck { data, len: data.len(), outer: SmallVec::new(), factor: T::ONE }
    }
}

impl<T: SoftmaxReal> FiniteCheck<'_, T> {
    fn n_pieces(&self) -> usize {
        self.outer.iter().map(|[extent, _]| extent).product()
    }

    /// Whether a range of some pieces is finite.
    fn are_finite(&self, mut pieces: Range<usize>, range: &Range<usize>) -> bool {
        pieces.all(|mut piece| {
            let mut start = 0;
            for [extent, stride] in &self.outer {
                start += piece % extent * stride;
                piece /= extent;
            }
            let x = &self.data[start..][range.clone()];
            // Zero times a number that is not finite is NaN.
            vectorized(
                #[inline(always)]
                || x.iter().fold(true, |all, x| all & (*x * self.factor * T::ZERO == T::ZERO)),
            )
        })
    }
}

impl Engine {
    /// Whether all numbers are finite.
    pub(super) fn all_finite<T: SoftmaxReal>(&self, checks: &[FiniteCheck<'_, T>]) -> bool {
        /// Elements of a task. Longer pieces are cut, and shorter ones taken together.
        const PART: usize = 1 << 16;
        let mut parts = Vec::new();
        for check in checks {
            let (step, n_pieces) = (check.len.clamp(1, PART), check.n_pieces());
            let cut = |len: usize, step: usize| (0..len).step_by(step).map(move |at| at..(at + step).min(len));
            for range in cut(check.len, step) {
                parts.extend(cut(n_pieces, PART / step).map(|pieces| (check, pieces, range.clone())));
            }
        }
        let finite = AtomicBool::new(true);
        (self.parallel_for)(parts.len(), &|part| {
            let (check, pieces, range) = &parts[part];
            if !check.are_finite(pieces.clone(), range) {
                finite.store(false, Ordering::Relaxed);
            }
        });
        finite.into_inner()
    }
}

/// Where a result `[batch, position, head, feature]` lies in its buffer: the heads of a position are neighbours.
#[derive(Clone, Copy)]
pub(crate) struct HeadResult {
    /// The first element.
    pub(crate) start: usize,
    /// Elements from one sequence to the next, and from one position to the next.
    pub(crate) batch: usize,
    pub(crate) row: usize,
}

impl HeadResult {
    /// The first element of a head, counted over the batch.
    pub(super) fn head(&self, heads: usize, features: usize, index: usize) -> usize {
        self.start + index / heads * self.batch + index % heads * features
    }
}
