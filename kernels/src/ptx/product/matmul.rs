//! Matrix products as problems.

use smallvec::SmallVec;

use super::problem::{Gather, Problem, Scatter, line};
use crate::library::{MatMul, MatrixLayout, reached};

impl Problem {
    /// A matrix product. A batch of left matrices that is one tall matrix, and meets one right matrix, is one product.
    pub(super) fn of_matmul(op: &MatMul) -> Problem {
        let is_tall = op.is_one_matrix();
        let batch: SmallVec<[usize; 4]> = if is_tall { SmallVec::new() } else { op.batch.clone() };
        let m = if is_tall { op.m * op.batch.iter().product::<usize>() } else { op.m };
        let gather = |operand: &MatrixLayout, outer: (usize, usize), inner: usize| {
            Gather {
                dtype: op.dtype,
                offset: reached(operand.offset),
                batch: operand.batch_strides[..batch.len()].iter().copied().map(reached).collect(),
                outer: line(&[(outer.0, reached(outer.1))]),
                inner: line(&[(op.k, reached(inner))]),
                windows: SmallVec::new(),
            }
            .simplified()
        };
        let a = gather(&op.a, (m, op.a.row_stride), op.a.col_stride);
        let b = gather(&op.b, (op.n, op.b.col_stride), op.b.row_stride);
        let mut rows = m;
        let mut strides: SmallVec<[(usize, usize); 4]> = SmallVec::new();
        for extent in batch.iter().rev() {
            strides.push((rows, 0));
            rows *= extent;
        }
        strides.reverse();
        let c = Scatter { dtype: op.dtype, width: op.n, first_row: 0, rows: line(&[(m, 1)]), batch: strides };
        Problem { batch, m, n: op.n, k: op.k, a, b, c }
    }
}
