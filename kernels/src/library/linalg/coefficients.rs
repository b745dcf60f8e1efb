//! Systems solved row by row, as they lie in memory.
//!
//! Guarantees the operations of the textbook for every element, as the blocks do.

use std::ops::Range;

use super::super::number::Float;

/// The coefficients of a system whose rows can be solved from the first one on, or from the last one on.
#[derive(Clone, Copy)]
pub(super) struct Coefficients<'a, T> {
    pub(super) a: &'a [T],
    /// Elements from row to row, and from column to column.
    pub(super) strides: [usize; 2],
    pub(super) is_forward: bool,
    /// Whether the diagonal is taken to be 1.
    pub(super) has_unit_diagonal: bool,
}

impl<T: Float> Coefficients<'_, T> {
    #[inline(always)]
    fn at(&self, row: usize, column: usize) -> T {
        self.a[row * self.strides[0] + column * self.strides[1]]
    }

    /// Solves the system in place for some columns of `x`, which has `n` rows of `pitch`. The terms of the rows before are
    /// subtracted one by one.
    #[inline(always)]
    pub(super) fn solve(&self, [n, pitch]: [usize; 2], columns: Range<usize>, x: &mut [T]) {
        for solved in 0..n {
            let i = if self.is_forward { solved } else { n - 1 - solved };
            let (above, rest) = x.split_at_mut(i * pitch);
            let (row, below) = rest.split_at_mut(pitch);
            let (row, others) = (&mut row[columns.clone()], [&*above, &*below]);
            let whole = solved / 4 * 4;
            for step in (0..whole).step_by(4) {
                let (c0, x0) = self.term([n, i, step], others, pitch, &columns);
                let (c1, x1) = self.term([n, i, step + 1], others, pitch, &columns);
                let (c2, x2) = self.term([n, i, step + 2], others, pitch, &columns);
                let (c3, x3) = self.term([n, i, step + 3], others, pitch, &columns);
                let others = x0.iter().zip(x1).zip(x2.iter().zip(x3));
                for (x, ((x0, x1), (x2, x3))) in row.iter_mut().zip(others) {
                    *x = *x - c0 * *x0 - c1 * *x1 - c2 * *x2 - c3 * *x3;
                }
            }
            for step in whole..solved {
                let (coefficient, other) = self.term([n, i, step], others, pitch, &columns);
                row.iter_mut().zip(other).for_each(|(x, other)| *x = *x - coefficient * *other);
            }
            if !self.has_unit_diagonal {
                let pivot = self.at(i, i);
                row.iter_mut().for_each(|x| *x = *x / pivot);
            }
        }
    }

    /// The row that is solved at a step, of those above and below a row, and its coefficient there.
    #[inline(always)]
    fn term<'x>(
        &self,
        [n, i, step]: [usize; 3],
        [above, below]: [&'x [T]; 2],
        pitch: usize,
        columns: &Range<usize>,
    ) -> (T, &'x [T]) {
        let (j, x) = if self.is_forward {
            (step, &above[step * pitch..])
        } else {
            (n - 1 - step, &below[(n - 2 - step - i) * pitch..])
        };
        (self.at(i, j), &x[columns.clone()])
    }
}
