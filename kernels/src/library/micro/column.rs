//! Products with one column or a few rows: a matrix times vectors. Rows of the matrix are lanes, and nothing is packed.
//!
//! The panels of other products would leave all lanes of a vector empty except one. The chains of additions are those of
//! [`super::drive`], so that no bit differs: blocks of steps in order, and the parts of a long sum, each a task of its own.

use std::ops::Range;

use super::drive::{Engine, Output};
use super::grid::{is_far, is_one_task, share};
use super::pack::Strided;
use super::parts::PartTasks;
use super::simd::Simd;
use super::split_k::SUM_TASK;
use super::stored::StoredElement;
use super::strip::{Column, GROUP, most_vectors, strip};
use super::sums::add_up;
use super::tile::Shortest;
use super::turned::{SHORT, last_rows};
use super::{Kernels, Real, block_depth, with_scratch};
use crate::library::view::vectorized;

/// Rows of a matrix below which panels serve as well, and of which a task has a multiple where steps are neighbours.
const FEW_ROWS: usize = 16;

/// Vectors of a tile of rows that are neighbours.
const VECTORS: usize = 8;

/// Rows that are neighbours from which on they are passed over as a strip.
const WIDE: usize = 256;

/// Bytes of a matrix of rows with gaps between them that caches may have lost.
const SPARSE: usize = 256 << 10;

/// Computes the rows of a column.
pub(super) type ColumnKernel<A, T> = unsafe fn(&Column<A, T>);

/// One for rows that are neighbours in memory, and one for those whose steps are: compilers find registers for each alone.
pub(super) type ColumnKernels<A, T> = [ColumnKernel<A, T>; 2];

/// A matrix from its first element on, and the distances of its rows and steps, one of which is 1.
struct ColumnMatrix<A> {
    a: *const A,
    a_row: usize,
    a_step: usize,
}

// SAFETY: only read, and its makers ask that the memory outlives every use.
unsafe impl<A: Sync> Sync for ColumnMatrix<A> {}

/// The extents of a matrix times some vectors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ColumnExtents {
    /// Rows of the matrix.
    pub(crate) rows: usize,
    /// Length of the sums.
    pub(crate) k: usize,
    /// Vectors.
    pub(crate) vectors: usize,
}

impl<T: Real> Kernels<T> {
    /// Whether a matrix times some vectors is computed without panels: one vector, or a few.
    pub(crate) fn is_streamed(&self, extents: ColumnExtents, a: &Strided<T>) -> bool {
        let ColumnExtents { rows, k, vectors } = extents;
        let (_, a_row, _) = a.parts();
        let has_strips = || a_row == 1 && rows >= WIDE && vectors <= most_vectors([rows, k]);
        let has_turned = || a_row != 1 && vectors <= self.most_turned([rows, k]);
        rows >= FEW_ROWS && a.is_dense() && (vectors == 1 || has_strips() || has_turned())
    }

    /// The most vectors for which rows that lie apart are turned in registers rather than to panels: a group of them, or two
    /// if the matrix comes from memory, where one more pass takes less time than panels.
    fn most_turned(&self, extents: [usize; 2]) -> usize {
        match self.turned_vectors {
            1 => 1,
            group => group * if is_far(extents) { 2 } else { 1 },
        }
    }
}

impl Engine {
    /// Computes the `rows` sums of `k` products of each vector: the rows of `a` times a row of `x`. The sums of a vector follow
    /// those of the one before; `done` is told each finished part, as rows of all vectors.
    ///
    /// # Safety
    ///
    /// [`Kernels::is_streamed`] holds; `a` has `rows` rows of `k` steps and `x` a row of as many steps for each vector; `c` is
    /// writable for the sums, and nobody else uses these.
    pub(crate) unsafe fn multiply_column<T: Real>(
        &self,
        extents: ColumnExtents,
        [a, x]: [&Strided<T>; 2],
        c: *mut T,
        done: &(dyn Fn(Range<usize>) + Sync),
    ) {
        debug_assert!(T::kernels(self.level).is_streamed(extents, a), "strides are no distances");
        let (a, a_row, a_step) = a.parts();
        let matrix = ColumnMatrix { a, a_row: a_row.unsigned_abs(), a_step: a_step.unsigned_abs() };
        // SAFETY: handed on.
        unsafe { self.multiply_column_by(T::kernels(self.level).columns, extents, &matrix, x, c, done) };
    }

    /// Whether [`Engine::multiply_half_columns`] has code for these extents, with rows at such a distance.
    pub(crate) fn has_half_columns(&self, extents: ColumnExtents, a_row: usize) -> bool {
        let ColumnExtents { rows, k, vectors } = extents;
        let kernels = f32::kernels(self.level);
        // Two groups take less time than single precision in memory.
        let most = if a_row == 1 { GROUP } else { 2 * kernels.turned_vectors };
        let has_few = vectors <= most && (a_row != 1 || rows >= WIDE);
        let is_streamed = rows >= FEW_ROWS && k > 0 && vectors > 0 && (vectors == 1 || has_few);
        is_streamed && kernels.half_columns.is_some()
    }

    /// The sums of a matrix of bits of 16-bit floats, `f16` or `bf16`, whose rows or steps are neighbours, by some vectors, given
    /// with the distances of two of them and of their steps. The sums of a vector follow those of the one before.
    ///
    /// # Panics
    ///
    /// Panics if neither rows nor steps are neighbours, if the matrix or the vectors are too short, if there is not a sum for each
    /// row and vector, or if there is [no code](Engine::has_half_columns) for these.
    pub(crate) fn multiply_half_columns(
        &self,
        is_f16: bool,
        (matrix, [a_row, a_step]): (&[u16], [usize; 2]),
        (x, [x_vector, x_step]): (&[f32], [usize; 2]),
        extents: ColumnExtents,
        sums: &mut [f32],
    ) {
        let ColumnExtents { rows, k, vectors } = extents;
        assert!(self.has_half_columns(extents, a_row), "{extents:?}");
        let last = |[n, m]: [usize; 2], [far, near]: [usize; 2]| {
            (n - 1).saturating_mul(far).saturating_add((m - 1).saturating_mul(near))
        };
        let has_all =
            last([rows, k], [a_row, a_step]) < matrix.len() && last([vectors, k], [x_vector, x_step]) < x.len();
        assert!((a_row == 1 || a_step == 1) && has_all, "{extents:?} of {} and {} elements", matrix.len(), x.len());
        assert_eq!(sums.len(), rows * vectors, "a sum for each row and vector");
        let kernels = f32::kernels(self.level).half_columns.expect("code for 16-bit floats")[usize::from(is_f16)];
        let matrix = ColumnMatrix { a: matrix.as_ptr(), a_row, a_step };
        // SAFETY: the matrix and the vectors have the elements that their strides reach, and there is a sum for each row and
        // vector; the kernels are those of the elements.
        unsafe {
            let x = Strided::new(x.as_ptr(), x_vector.cast_signed(), x_step.cast_signed());
            self.multiply_column_by(kernels, extents, &matrix, &x, sums.as_mut_ptr(), &|_| {});
        }
    }

    /// Multiplies by one of two kernels.
    ///
    /// # Safety
    ///
    /// As [`Engine::multiply_column`]; the kernels are those of this level.
    unsafe fn multiply_column_by<A: Sync, T: Real>(
        &self,
        kernels: ColumnKernels<A, T>,
        extents: ColumnExtents,
        matrix: &ColumnMatrix<A>,
        x: &Strided<T>,
        c: *mut T,
        done: &(dyn Fn(Range<usize>) + Sync),
    ) {
        let ColumnExtents { rows, k, vectors } = extents;
        let kernel = kernels[usize::from(matrix.a_row != 1)];
        let tasks = match matrix.a_row {
            1 => PartTasks::of_blocks([rows, vectors, k], WIDE, self.divides),
            _ => PartTasks::new([rows, vectors, k], FEW_ROWS),
        };
        let out = Output { data: c, stride: 1, rows: None };
        if tasks.parts == 1 {
            // SAFETY: handed on.
            unsafe { self.column_tasks(kernel, (extents, &tasks), (matrix, x), &out, done) };
            return;
        }
        with_scratch::<T, _>(rows * vectors * tasks.parts, |partial| {
            let all = Output { data: partial.as_mut_ptr(), stride: 1, rows: None };
            // SAFETY: the scratch has the sums of each part; the output is handed on.
            unsafe {
                self.column_tasks(kernel, (extents, &tasks), (matrix, x), &all, &|_| {});
                self.add_columns(partial, [rows, vectors], &out, done);
            }
        });
    }

    /// Adds up partial sums of some rows of some vectors, which follow each other, in order.
    ///
    /// # Safety
    ///
    /// The output is writable for the sums, and nobody else uses these.
    unsafe fn add_columns<T: Real>(
        &self,
        partial: &[T],
        [rows, vectors]: [usize; 2],
        out: &Output<'_, T>,
        done: &(dyn Fn(Range<usize>) + Sync),
    ) {
        let n_tasks = (partial.len() / SUM_TASK).clamp(1, (rows / WIDE).max(1));
        (self.parallel_for)(n_tasks, &|task| {
            let own = share(rows, WIDE, n_tasks, task);
            for vector in 0..vectors {
                let at = vector * rows + own.start;
                // SAFETY: rows of the output that no other task uses.
                let to = unsafe { std::slice::from_raw_parts_mut(out.row(at), own.len()) };
                vectorized(
                    #[inline(always)]
                    || add_up(to, partial, at, rows * vectors),
                );
            }
            if !own.is_empty() {
                done(own);
            }
        });
    }

    /// Runs the tasks, of which each writes its rows of its part; the parts follow each other in `out`.
    ///
    /// # Safety
    ///
    /// As [`Engine::multiply_column`], for an output with the sums of each part.
    unsafe fn column_tasks<A: Sync, T: Real>(
        &self,
        kernel: ColumnKernel<A, T>,
        (extents, tasks): (ColumnExtents, &PartTasks),
        (matrix, x): (&ColumnMatrix<A>, &Strided<T>),
        out: &Output<'_, T>,
        done: &(dyn Fn(Range<usize>) + Sync),
    ) {
        let ColumnExtents { rows: n_rows, k, vectors } = extents;
        let depth = block_depth(k);
        let [row, gap] = [k, matrix.a_row].map(|elements| elements.saturating_mul(size_of::<A>()));
        let is_sparse = row <= SHORT && gap >= 2 * row && n_rows.saturating_mul(gap) >= SPARSE;
        let run = |task: usize| {
            let (part, rows, steps) = tasks.of(task);
            let &ColumnMatrix { a, a_row, a_step } = matrix;
            let (x, x_vector, x_step) = x.parts();
            let column = Column {
                rows: rows.len(),
                steps: steps.len(),
                depth,
                a: a.wrapping_add(rows.start * a_row + steps.start * a_step),
                a_row,
                a_step,
                is_far: is_far([n_rows, k]),
                is_sparse,
                x: x.wrapping_offset(steps.start as isize * x_step),
                x_step,
                vectors,
                x_vector,
                c: out.row(part * n_rows * vectors + rows.start),
                c_vector: n_rows,
            };
            // SAFETY: the level is present; the operands hold these rows and steps, and the rows of the output are this
            // task's own.
            unsafe { kernel(&column) };
            done(rows);
        };
        if is_one_task(n_rows, vectors, k) {
            (0..tasks.n_tasks()).for_each(run);
        } else {
            (self.parallel_for)(tasks.n_tasks(), &run);
        }
    }
}

/// Computes all rows, which are neighbours in memory.
///
/// # Safety
///
/// The instruction set of `S`; operands and result are valid for rows and steps.
#[inline(always)]
pub(super) unsafe fn column<S: Simd, P: StoredElement<S::Elem>>(x: &Column<P::Stored, S::Elem>) {
    // SAFETY: rows and steps inside the operands.
    unsafe {
        // The rows of a step lie in the same cache lines, which stay near while all tiles of a block read them.
        for steps in x.blocks() {
            let mut i = 0;
            while x.rows - i >= WIDE {
                i += strip::<S, P>(x, i, steps.clone());
            }
            while i < x.rows {
                let mut n = 0;
                for vector in 0..x.vectors {
                    n = lane_tile::<S, P>(&x.vector(vector), i, steps.clone());
                }
                i += n;
            }
        }
    }
}

/// A block of steps of as many rows that are neighbours in memory as vectors hold; returns their number.
#[inline(always)]
unsafe fn lane_tile<S: Simd, P: StoredElement<S::Elem>>(
    x: &Column<P::Stored, S::Elem>,
    i: usize,
    steps: Range<usize>,
) -> usize {
    let left = x.rows - i;
    // SAFETY: no more rows than are left.
    unsafe {
        if left >= VECTORS * S::LANES {
            lanes::<S, P, VECTORS>(x, i, steps)
        } else if left >= 4 * S::LANES {
            lanes::<S, P, 4>(x, i, steps)
        } else if left >= 2 * S::LANES {
            lanes::<S, P, 2>(x, i, steps)
        } else if left >= S::LANES {
            lanes::<S, P, 1>(x, i, steps)
        } else if left >= S::Half::LANES {
            lanes::<S::Half, P, 1>(x, i, steps)
        } else if left >= Shortest::<S>::LANES {
            lanes::<Shortest<S>, P, 1>(x, i, steps)
        } else {
            last_rows::<S::Elem, P>(x, i, steps)
        }
    }
}

/// `V` vectors of rows that are neighbours in memory; returns their number.
#[inline(always)]
unsafe fn lanes<S: Simd, P: StoredElement<S::Elem>, const V: usize>(
    x: &Column<P::Stored, S::Elem>,
    i: usize,
    steps: Range<usize>,
) -> usize {
    let is_first = steps.start == 0;
    // SAFETY: the rows and steps lie inside the operands, and the rows inside the result.
    unsafe {
        let mut sums = [S::zero(); V];
        for k in steps {
            let factor = S::splat(x.x.offset(k as isize * x.x_step));
            let at = x.a.add(k * x.a_step + i);
            for (v, sum) in sums.iter_mut().enumerate() {
                // The next tile reads what follows.
                S::prefetch(at.wrapping_add((V + v) * S::LANES).cast());
                *sum = S::mul_add(P::load::<S>(at.add(v * S::LANES)), factor, *sum);
            }
        }
        for (v, sum) in sums.into_iter().enumerate() {
            let c = x.c.add(i + v * S::LANES);
            S::store(c, if is_first { sum } else { S::add(S::load(c), sum) });
        }
    }
    V * S::LANES
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Few rows with long sums, and many rows, are divided between threads.
    #[test]
    fn large_products_are_several_tasks() {
        for (unit, [rows, k]) in [WIDE, FEW_ROWS].into_iter().flat_map(|unit| {
            [[16, 1 << 20], [31, 1 << 19], [128, 100_000], [2048, 2048], [8000, 100]].map(|shape| (unit, shape))
        }) {
            let tasks = match unit {
                WIDE => PartTasks::of_blocks([rows, 1, k], unit, true),
                _ => PartTasks::new([rows, 1, k], unit),
            };
            assert!(tasks.n_tasks() >= 8, "{tasks:?}");
        }
    }
}
