//! Dense factorisation and triangular systems, batched.
//!
//! The order of operations is fixed by the shape. A matrix is cut into blocks of 64 rows and columns. From each block the
//! terms of all blocks before are subtracted at once, as one product of matrices; inside it, operations are those of
//! the textbook in their order, so that up to 64 rows nothing differs from the naive twin. A single right side is no
//! product: there the terms of all blocks before are one sum in 32 interleaved chains for each unknown, or, if the
//! matrix is transposed, they are subtracted one by one.
//!
//! The products of one large matrix, the rows below a block and the right sides go to all threads; small matrices of a
//! batch go to all threads as they are.

mod block;
mod coefficients;

use std::ops::Range;

use retape_runtime::DType;

use super::extents::{Checked, count, countable};
use super::matmul::{MatMul, MatrixLayout};
use super::micro::{Engine, Real, with_scratch};
use super::number::{Float, with_float};
use super::text::descriptor;
use super::view::{
    Plain, TileView, exactly, for_each_chunk, for_each_tile, only, tile_columns, vectorized, view, view_mut,
};
use crate::ensure::ensure;
use block::{BLOCK, BLOCK_LEN, factor, substitute, substitute_one, transpose, write_block};
use coefficients::Coefficients;

descriptor! {
    /// The lower triangular L with L Lᵀ = A for symmetric A `[batch, n, n]`, of which the lower triangle is read.
    /// The upper triangle of the result is 0. From the first column on whose pivot is not positive, all of the lower
    /// triangle is NaN.
    Cholesky "cholesky" {
        /// `f32` or `f64`.
        dtype: DType,
        /// The number of matrices.
        batch: usize,
        /// Rows and columns of a matrix.
        n: usize,
    }
}

/// Operations above which the matrices of a batch are worth all threads one by one.
const LARGE: usize = 1 << 24;

/// Rows of a system that is solved as it lies in memory; no result depends on it.
const SMALL: usize = 16;

/// Right sides whose rows the nearest cache holds.
const NEAR: usize = 1024;
/// The same where a block has many rows.
const NEAR_BLOCK: usize = 64;

/// Rows of a matrix that is factored in the textbook's way; no result depends on it.
const TINY: usize = 12;

/// Right sides from which on rows of them have vectors enough, so that a block needs no preparation, and the systems of a
/// batch, or the operations of one, that are not cut for threads.
const MANY: usize = 32;
const WHOLE_SYSTEMS: usize = 8;
const WHOLE: usize = 1 << 16;

/// A matrix inside another one.
fn part(offset: usize, row_stride: usize, col_stride: usize) -> MatrixLayout {
    MatrixLayout { offset, batch_strides: Default::default(), row_stride, col_stride }
}

/// A float that products are computed in.
trait LinalgFloat: Float + Real + Plain {}

impl<T: Float + Real + Plain> LinalgFloat for T {}

impl Cholesky {
    fn check(&self) -> Checked {
        ensure!(self.dtype.is_float(), "matrices of {} are not factored", self.dtype);
        countable("the work on the matrices", &[self.batch, self.n, self.n, self.n])
    }

    fn len(&self) -> usize {
        count(&[self.batch, self.n, self.n])
    }

    /// A third of n cubed for each matrix.
    pub(super) fn flops(&self) -> u64 {
        count(&[self.batch, self.n, self.n, self.n]) as u64 / 3
    }

    /// The dtype and the number of elements of each input.
    pub fn inputs(&self) -> Vec<(DType, usize)> {
        vec![(self.dtype, self.len())]
    }

    /// The dtype and the number of elements of each output.
    pub fn outputs(&self) -> Vec<(DType, usize)> {
        vec![(self.dtype, self.len())]
    }

    /// Computes the outputs.
    ///
    /// # Panics
    /// If the descriptor is not valid or the buffers are not as `inputs` and `outputs` say.
    pub fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        assert!(self.is_valid(), "{self}");
        let [a] = exactly(inputs);
        let out = only(outputs);
        if self.dtype == DType::F64 {
            self.factor_all::<f64, 8>(view(a, self.len()), view_mut(out, self.len()));
        } else {
            self.factor_all::<f32, 16>(view(a, self.len()), view_mut(out, self.len()));
        }
    }

    fn factor_all<T: LinalgFloat, const W: usize>(&self, a: &[T], out: &mut [T]) {
        let size = self.n * self.n;
        if size * self.n > LARGE {
            a.chunks(size).zip(out.chunks_mut(size)).for_each(|(a, l)| self.factor_one::<T, W>(a, l));
            return;
        }
        for_each_chunk(out, size, self.len() * self.n, &|matrix, l| {
            let a = &a[matrix * size..][..size];
            if self.n > TINY {
                return self.factor_one::<T, W>(a, l);
            }
            l.copy_from_slice(a);
            vectorized(
                #[inline(always)]
                || eliminate(self.n, l),
            );
        });
    }

    /// Factors one matrix, block of columns by block of columns.
    fn factor_one<T: LinalgFloat, const W: usize>(&self, a: &[T], l: &mut [T]) {
        let n = self.n;
        l.fill(T::default());
        with_scratch(BLOCK_LEN + BLOCK * n, |scratch| {
            let (columns, terms) = scratch.split_at_mut(BLOCK_LEN);
            for start in (0..n).step_by(BLOCK) {
                let len = BLOCK.min(n - start);
                let terms = &mut terms[..(n - start) * len];
                self.terms_before(start, len).multiply(&Engine::best(), [&*l, &*l], terms);
                let (on, below) = terms.split_at_mut(len * len);
                vectorized(
                    #[inline(always)]
                    || self.factor_block::<T, W>(&a[start * (n + 1)..], columns, on, &mut l[start * (n + 1)..]),
                );
                self.factor_below::<T, W>(&a[(start + len) * n..], columns, below, [start, len], l);
            }
        });
    }

    /// The products to subtract from `len` columns from `start` on, from the row `start` on.
    fn terms_before(&self, start: usize, len: usize) -> MatMul {
        let (n, offset) = (self.n, start * self.n);
        let (a, b) = (part(offset, n, 1), part(offset, 1, n));
        MatMul { dtype: self.dtype, batch: Default::default(), m: n - start, n: len, k: start, a, b }
    }

    /// Factors a block on the diagonal: of `a` without the terms before, into `columns` and into `l`.
    #[inline(always)]
    fn factor_block<T: LinalgFloat, const W: usize>(&self, a: &[T], columns: &mut [T], terms: &mut [T], l: &mut [T]) {
        let len = terms.len().isqrt();
        for (terms, a) in terms.chunks_mut(len).zip(a.chunks(self.n)) {
            terms.iter_mut().zip(a).for_each(|(term, a)| *term = *a - *term);
        }
        write_block(columns, len, false, |to| transpose([len, BLOCK], [len, len], terms, to));
        factor::<T, W>(columns, len);
        transpose([BLOCK, len], [len, len], columns, terms);
        for (row, (terms, l)) in terms.chunks(len).zip(l.chunks_mut(self.n)).enumerate() {
            l[..=row].copy_from_slice(&terms[..=row]);
        }
    }

    /// Factors the rows `a` below a block of `len` columns from `start` on.
    fn factor_below<T: LinalgFloat, const W: usize>(
        &self,
        a: &[T],
        columns: &[T],
        terms: &[T],
        [start, len]: [usize; 2],
        l: &mut [T],
    ) {
        let (n, rows) = (self.n, &mut l[(start + len) * self.n..]);
        let work = terms.len() * len;
        for_each_chunk(rows, W * n, work, &|group, rows| {
            vectorized(
                #[inline(always)]
                || {
                    let mut lines = [[T::default(); BLOCK]; W];
                    let mut lanes = [[T::default(); W]; BLOCK];
                    let (a, terms) = (a.chunks(n).skip(group * W), terms.chunks(len).skip(group * W));
                    for (line, (a, terms)) in lines.iter_mut().zip(a.zip(terms)) {
                        let values = a[start..start + len].iter().zip(terms).map(|(a, term)| *a - *term);
                        line.iter_mut().zip(values).for_each(|(to, value)| *to = value);
                    }
                    transpose([BLOCK, W], [W, BLOCK], lines.as_flattened(), lanes.as_flattened_mut());
                    substitute::<T, W>(columns, len, lanes.as_flattened_mut());
                    transpose([W, n], [len, rows.len() / n], lanes.as_flattened(), &mut rows[start..]);
                },
            );
        });
    }

    /// Computes the outputs in the naive way: column by column, with the rest updated after each.
    ///
    /// # Panics
    /// As [`run`](Cholesky::run).
    pub fn reference(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        assert!(self.is_valid(), "{self}");
        let [a] = exactly(inputs);
        let out = only(outputs);
        with_float!(self.dtype, T => {
            let out = view_mut::<T>(out, self.len());
            out.copy_from_slice(view(a, self.len()));
            out.chunks_mut((self.n * self.n).max(1)).for_each(|matrix| eliminate(self.n, matrix));
        });
    }
}

/// Copies some right sides without the terms before, of which the first block has none.
#[inline(always)]
fn load_right_sides<T: Float>([b, terms]: [&[T]; 2], at: Range<usize>, to: &mut [T]) {
    to.copy_from_slice(&b[at.clone()]);
    if !terms.is_empty() {
        to.iter_mut().zip(&terms[at]).for_each(|(to, term)| *to = *to - *term);
    }
}

/// The textbook factorisation in place.
#[inline(always)]
fn eliminate<T: Float>(n: usize, a: &mut [T]) {
    for k in 0..n {
        let pivot = a[k * n + k];
        a[k * n + k] = if pivot > T::default() { pivot.sqrt() } else { T::NAN };
        for i in k + 1..n {
            a[i * n + k] = a[i * n + k] / a[k * n + k];
            a[k * n + i] = T::default();
        }
        for i in k + 1..n {
            for j in k + 1..=i {
                a[i * n + j] = a[i * n + j] - a[i * n + k] * a[j * n + k];
            }
        }
    }
}

descriptor! {
    /// The solution X of op(A) X = B for triangular A `[batch, n, n]` and B `[batch, n, n_rhs]`. Only the triangle
    /// of A is read, and only below or above its diagonal if that is taken to be 1.
    TriangularSolve "triangular_solve" {
        /// `f32` or `f64`.
        dtype: DType,
        /// The number of systems.
        batch: usize,
        /// Rows and columns of A.
        n: usize,
        /// Columns of B.
        n_rhs: usize,
        /// Whether A is lower triangular.
        lower: bool,
        /// Whether op(A) is the transpose of A, rather than A.
        transpose: bool,
        /// Whether the diagonal is taken to be 1.
        unit_diagonal: bool,
    }
}

impl TriangularSolve {
    fn check(&self) -> Checked {
        ensure!(self.dtype.is_float(), "systems of {} are not solved", self.dtype);
        countable("the work on the systems", &[self.batch, self.n, self.n, self.n_rhs])
    }

    /// The number of elements of A and of B.
    fn lens(&self) -> [usize; 2] {
        [count(&[self.batch, self.n, self.n]), count(&[self.batch, self.n, self.n_rhs])]
    }

    /// A multiplication and an addition for each element of a triangle and each right side.
    pub(super) fn flops(&self) -> u64 {
        count(&[self.batch, self.n, self.n, self.n_rhs]) as u64
    }

    /// The dtype and the number of elements of each input: A and B.
    pub fn inputs(&self) -> Vec<(DType, usize)> {
        self.lens().map(|len| (self.dtype, len)).into()
    }

    /// The dtype and the number of elements of each output.
    pub fn outputs(&self) -> Vec<(DType, usize)> {
        vec![(self.dtype, self.lens()[1])]
    }

    /// Computes the outputs.
    ///
    /// # Panics
    /// If the descriptor is not valid or the buffers are not as `inputs` and `outputs` say.
    pub fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        assert!(self.is_valid(), "{self}");
        let [a, b] = exactly(inputs);
        let [n_a, n_b] = self.lens();
        let out = only(outputs);
        if self.dtype == DType::F64 {
            self.solve_all::<f64, 8>(view(a, n_a), view(b, n_b), view_mut(out, n_b));
        } else {
            self.solve_all::<f32, 16>(view(a, n_a), view(b, n_b), view_mut(out, n_b));
        }
    }

    /// The rows of X in the order in which they can be solved.
    fn order(&self) -> impl Iterator<Item = usize> + use<> {
        let (n, forward) = (self.n, self.is_forward());
        (0..n).map(move |i| if forward { i } else { n - 1 - i })
    }

    /// The element of op(A).
    #[inline(always)]
    fn coefficient<T: Float>(&self, a: &[T], row: usize, column: usize) -> T {
        if self.transpose { a[column * self.n + row] } else { a[row * self.n + column] }
    }

    /// Whether the first row of X is solved first.
    fn is_forward(&self) -> bool {
        self.lower != self.transpose
    }

    /// Whether systems are solved as they lie in memory.
    fn is_small(&self) -> bool {
        let work = self.n * self.n * self.n_rhs;
        let is_whole = work <= if self.batch >= WHOLE_SYSTEMS { LARGE } else { WHOLE };
        if self.n <= SMALL {
            return self.n_rhs <= BLOCK || is_whole;
        }
        self.n <= BLOCK && self.n_rhs >= MANY && is_whole
    }

    fn solve_all<T: LinalgFloat, const W: usize>(&self, a: &[T], b: &[T], out: &mut [T]) {
        let (size, n_rhs) = (self.n * self.n, self.n * self.n_rhs);
        let one = |system: usize, x: &mut [T]| {
            let (a, b) = (&a[system * size..][..size], &b[system * n_rhs..][..n_rhs]);
            match self.n_rhs {
                _ if self.is_small() => vectorized(
                    #[inline(always)]
                    || self.solve_small(a, b, x),
                ),
                1 => self.solve_vector(a, b, x),
                _ => self.solve_matrix::<T, W>(a, b, x),
            }
        };
        if size * self.n_rhs > LARGE {
            out.chunks_mut(n_rhs).enumerate().for_each(|(system, x)| one(system, x));
        } else {
            for_each_chunk(out, n_rhs, self.batch * size * self.n_rhs, &one);
        }
    }

    /// Solves a system that is not worth its preparation.
    #[inline(always)]
    fn solve_small<T: Float>(&self, a: &[T], b: &[T], x: &mut [T]) {
        let n_rhs = self.n_rhs;
        x.copy_from_slice(b);
        let strides = if self.transpose { [1, self.n] } else { [self.n, 1] };
        let (is_forward, has_unit_diagonal) = (self.is_forward(), self.unit_diagonal);
        let coefficients = Coefficients { a, strides, is_forward, has_unit_diagonal };
        for first in (0..n_rhs).step_by(NEAR) {
            coefficients.solve([self.n, n_rhs], first..n_rhs.min(first + NEAR), x);
        }
    }

    /// The blocks of rows in the order in which they can be solved, each with the rows solved before.
    fn blocks(&self) -> impl Iterator<Item = [Range<usize>; 2]> + use<> {
        let (n, is_forward) = (self.n, self.is_forward());
        (0..n).step_by(BLOCK).map(move |done| {
            let end = n.min(done + BLOCK);
            if is_forward { [done..end, 0..done] } else { [n - end..n - done, n - done..n] }
        })
    }

    /// Copies the block of op(A) on the diagonal to `columns`, by the order in which its rows can be solved.
    #[inline(always)]
    fn load_block<T: Float>(&self, a: &[T], rows: &Range<usize>, columns: &mut [T]) {
        let (n, len) = (self.n, rows.len());
        let a = &a[rows.start * (n + 1)..];
        write_block(columns, len, !self.is_forward(), |to| {
            if self.transpose {
                let lines = to.chunks_mut(BLOCK).zip(a.chunks(n)).take(len);
                lines.for_each(|(to, a)| to[..len].copy_from_slice(&a[..len]));
            } else {
                transpose([n, BLOCK], [len, len], a, to);
            }
            if self.unit_diagonal {
                (0..len).for_each(|at| to[at * (BLOCK + 1)] = T::ONE);
            }
        });
    }

    /// The products of op(A) with solved rows to subtract from others.
    fn terms_of(&self, rows: &Range<usize>, solved: &Range<usize>) -> MatMul {
        let (n, n_rhs) = (self.n, self.n_rhs);
        let a = if self.transpose {
            part(solved.start * n + rows.start, 1, n)
        } else {
            part(rows.start * n + solved.start, n, 1)
        };
        let b = part(solved.start * n_rhs, n_rhs, 1);
        MatMul { dtype: self.dtype, batch: Default::default(), m: rows.len(), n: n_rhs, k: solved.len(), a, b }
    }

    /// Solves a system with several right sides, which are lanes.
    fn solve_matrix<T: LinalgFloat, const W: usize>(&self, a: &[T], b: &[T], x: &mut [T]) {
        let n_rhs = self.n_rhs;
        with_scratch(BLOCK_LEN + BLOCK * n_rhs, |scratch| {
            let (columns, terms) = scratch.split_at_mut(BLOCK_LEN);
            for [rows, solved] in self.blocks() {
                let (len, terms) = (rows.len(), &mut terms[..if solved.is_empty() { 0 } else { rows.len() * n_rhs }]);
                if !solved.is_empty() {
                    self.terms_of(&rows, &solved).multiply(&Engine::best(), [a, &*x], terms);
                }
                vectorized(
                    #[inline(always)]
                    || self.load_block(a, &rows, columns),
                );
                let (columns, terms, b) = (&*columns, &*terms, &b[rows.start * n_rhs..]);
                let x = &mut x[rows.start * n_rhs..rows.end * n_rhs];
                let width = tile_columns(1, n_rhs);
                for_each_tile(x, [1, len, n_rhs], [len, width], len * len * n_rhs, &|mut x| {
                    if width < NEAR_BLOCK {
                        return vectorized(
                            #[inline(always)]
                            || self.solve_lanes::<T, W>(columns, [b, terms], &mut x),
                        );
                    }
                    with_scratch(len * NEAR_BLOCK, |rows| {
                        vectorized(
                            #[inline(always)]
                            || self.solve_tile(columns, [b, terms], rows, &mut x),
                        );
                    });
                });
            }
        });
    }

    /// Solves the rows of a block for some right sides, of `b` without the terms before, in rows of their own.
    #[inline(always)]
    fn solve_tile<T: Float>(&self, columns: &[T], [b, terms]: [&[T]; 2], rows: &mut [T], x: &mut TileView<'_, T>) {
        let (n_rhs, len, right_sides) = (self.n_rhs, x.rows.len(), x.columns.clone());
        let row = |at: usize| if self.is_forward() { at } else { len - 1 - at };
        let coefficients = Coefficients { a: columns, strides: [1, BLOCK], is_forward: true, has_unit_diagonal: false };
        for first in right_sides.clone().step_by(NEAR_BLOCK) {
            let now = first..right_sides.end.min(first + NEAR_BLOCK);
            let rows = &mut rows[..len * now.len()];
            for (at, to) in rows.chunks_exact_mut(now.len()).enumerate() {
                let at = row(at) * n_rhs;
                load_right_sides([b, terms], at + now.start..at + now.end, to);
            }
            coefficients.solve([len, now.len()], 0..now.len(), rows);
            for (at, from) in rows.chunks_exact(now.len()).enumerate() {
                x.row(row(at))[first - right_sides.start..][..now.len()].copy_from_slice(from);
            }
        }
    }

    /// Solves the rows of a block for some right sides, of `b` without the terms before.
    #[inline(always)]
    fn solve_lanes<T: Float, const W: usize>(&self, columns: &[T], [b, terms]: [&[T]; 2], x: &mut TileView<'_, T>) {
        let (n_rhs, len, right_sides) = (self.n_rhs, x.rows.len(), x.columns.clone());
        let row = |at: usize| if self.is_forward() { at } else { len - 1 - at };
        // Lanes and rows that a group does not have keep numbers of the group before, which nobody reads.
        let mut lanes = [[T::default(); W]; BLOCK];
        for first in right_sides.clone().step_by(W) {
            let now = first..right_sides.end.min(first + W);
            for (at, lanes) in lanes.iter_mut().enumerate().take(len) {
                let at = row(at) * n_rhs;
                load_right_sides([b, terms], at + now.start..at + now.end, &mut lanes[..now.len()]);
            }
            substitute::<T, W>(columns, len, lanes.as_flattened_mut());
            for (at, lanes) in lanes.iter().enumerate().take(len) {
                x.row(row(at))[first - right_sides.start..][..now.len()].copy_from_slice(&lanes[..now.len()]);
            }
        }
    }

    /// Solves a system with one right side.
    fn solve_vector<T: LinalgFloat>(&self, a: &[T], b: &[T], x: &mut [T]) {
        x.copy_from_slice(b);
        with_scratch(BLOCK_LEN, |columns| {
            for [rows, solved] in self.blocks() {
                if !self.transpose {
                    self.subtract_sums(a, &rows, &solved, x);
                }
                let block = vectorized(
                    #[inline(always)]
                    || {
                        self.load_block(a, &rows, columns);
                        self.solve_block(columns, &mut x[rows.clone()])
                    },
                );
                if self.transpose {
                    let later = if self.is_forward() { rows.end..self.n } else { 0..rows.start };
                    self.subtract_terms(a, (&rows, block), later.start, &mut x[later]);
                }
            }
        });
    }

    /// Solves a block for one right side, and returns its unknowns in the order of rows.
    #[inline(always)]
    fn solve_block<T: Float>(&self, columns: &[T], x: &mut [T]) -> [T; BLOCK] {
        let mut block = [T::default(); BLOCK];
        block[..x.len()].copy_from_slice(x);
        if !self.is_forward() {
            block[..x.len()].reverse();
        }
        block = substitute_one(columns, x.len(), block);
        if !self.is_forward() {
            block[..x.len()].reverse();
        }
        x.copy_from_slice(&block[..x.len()]);
        block
    }

    /// Subtracts from some rows of the right side the sums of all terms that are known.
    fn subtract_sums<T: LinalgFloat>(&self, a: &[T], rows: &Range<usize>, solved: &Range<usize>, x: &mut [T]) {
        let mut sums = [T::default(); BLOCK];
        let known = &x[solved.clone()];
        for_each_chunk(&mut sums[..rows.len()], 8, rows.len() * known.len() / 8, &|chunk, sums| {
            vectorized(
                #[inline(always)]
                || {
                    for (sum, a) in sums.iter_mut().zip(a.chunks(self.n).skip(rows.start + chunk * 8)) {
                        *sum = dot(&a[solved.clone()], known);
                    }
                },
            );
        });
        x[rows.clone()].iter_mut().zip(&sums).for_each(|(x, sum)| *x = *x - *sum);
    }

    /// Subtracts the terms of a block from the rows of the right side from `first` on, one by one.
    fn subtract_terms<T: LinalgFloat>(
        &self,
        a: &[T],
        (rows, block): (&Range<usize>, [T; BLOCK]),
        first: usize,
        x: &mut [T],
    ) {
        let work = rows.len() * x.len() / 8;
        for_each_chunk(x, BLOCK, work, &|chunk, x| {
            vectorized(
                #[inline(always)]
                || {
                    for at in 0..rows.len() {
                        let at = if self.is_forward() { at } else { rows.len() - 1 - at };
                        let a = &a[(rows.start + at) * self.n + first + chunk * BLOCK..];
                        x.iter_mut().zip(a).for_each(|(x, a)| *x = *x - *a * block[at]);
                    }
                },
            );
        });
    }

    /// Computes the outputs in the naive way: one right-hand side at a time, eliminating each unknown once solved.
    ///
    /// # Panics
    /// As [`run`](TriangularSolve::run).
    pub fn reference(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        assert!(self.is_valid(), "{self}");
        let [a, b] = exactly(inputs);
        let [n_a, n_b] = self.lens();
        let out = only(outputs);
        with_float!(self.dtype, T => self.eliminate::<T>(view(a, n_a), view(b, n_b), view_mut(out, n_b)));
    }

    fn eliminate<T: Float>(&self, a: &[T], b: &[T], out: &mut [T]) {
        if out.is_empty() {
            return;
        }
        out.copy_from_slice(b);
        for (system, rhs) in (0..self.batch).flat_map(|system| (0..self.n_rhs).map(move |rhs| (system, rhs))) {
            let a = &a[system * self.n * self.n..];
            let at = |i: usize| (system * self.n + i) * self.n_rhs + rhs;
            for (solved, j) in self.order().enumerate() {
                if !self.unit_diagonal {
                    out[at(j)] = out[at(j)] / a[j * self.n + j];
                }
                for i in self.order().skip(solved + 1) {
                    out[at(i)] = out[at(i)] - self.coefficient(a, i, j) * out[at(j)];
                }
            }
        }
    }
}

/// The sum of products in 32 interleaved chains of fused multiply-adds, which are then added in pairs.
#[inline(always)]
fn dot<T: Real>(a: &[T], b: &[T]) -> T {
    let mut sums = [T::ZERO; 32];
    let ((a_lanes, a_rest), (b_lanes, b_rest)) = (a.as_chunks::<32>(), b.as_chunks::<32>());
    for (a, b) in a_lanes.iter().zip(b_lanes) {
        // As one value, the sums stay in registers.
        sums = std::array::from_fn(|lane| a[lane].fused(b[lane], sums[lane]));
    }
    for (sum, (a, b)) in sums.iter_mut().zip(a_rest.iter().zip(b_rest)) {
        *sum = a.fused(*b, *sum);
    }
    let sums: [T; 16] = std::array::from_fn(|lane| sums[lane] + sums[lane + 16]);
    let sums: [T; 8] = std::array::from_fn(|lane| sums[lane] + sums[lane + 8]);
    let [a, b, c, d] = std::array::from_fn(|lane| sums[lane] + sums[lane + 4]);
    (a + c) + (b + d)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::testing::{Draw, assert_close, assert_twins, buffer, values_of};

    /// A symmetric matrix with eigenvalues from about 1 to 40.
    fn positive(draw: &mut Draw, n: usize) -> Vec<f64> {
        let g: Vec<f64> = (0..n * n).map(|_| draw.below(1000) as f64 / 500.0 - 1.0).collect();
        let entry = |i: usize, j: usize| (0..n).map(|k| g[i * n + k] * g[j * n + k]).sum::<f64>() / (n as f64).sqrt();
        (0..n * n).map(|at| entry(at / n, at % n) + f64::from(u8::from(at / n == at % n))).collect()
    }

    #[test]
    fn factors_agree_with_their_twins() {
        let mut draw = Draw::new(8);
        for n in [0, 1, 2, 3, 7, 30, 64, 65, 150] {
            for batch in [0, 1, 3] {
                let a: Vec<f64> = (0..batch).flat_map(|_| positive(&mut draw, n)).collect();
                let single: Vec<f32> = a.iter().map(|x| *x as f32).collect();
                let kernel = |dtype| Cholesky { dtype, batch, n }.into();
                assert_close(&kernel(DType::F64), &[buffer(&a)], 1e-13);
                assert_close(&kernel(DType::F32), &[buffer(&single)], 2e-5);
            }
        }
    }

    #[test]
    fn one_block_has_the_bits_of_its_twin() {
        let mut draw = Draw::new(12);
        for n in [1, 3, 4, 9, 16, 17, 40, 63, 64] {
            let a = positive(&mut draw, n);
            let single: Vec<f32> = a.iter().map(|x| *x as f32).collect();
            assert_close(&Cholesky { dtype: DType::F64, batch: 1, n }.into(), &[buffer(&a)], 0.0);
            assert_close(&Cholesky { dtype: DType::F32, batch: 1, n }.into(), &[buffer(&single)], 0.0);
            assert_twins(&Cholesky { dtype: DType::F32, batch: 2, n }.into(), &mut draw);
        }
    }

    #[test]
    fn factors_multiply_to_the_matrix() {
        let (mut draw, n) = (Draw::new(9), 100);
        let a = positive(&mut draw, n);
        let l = values_of::<f64>(&Cholesky { dtype: DType::F64, batch: 1, n }.into(), &[&a]);
        for (i, j) in (0..n).flat_map(|i| (0..n).map(move |j| (i, j))) {
            let product: f64 = (0..n).map(|k| l[i * n + k] * l[j * n + k]).sum();
            assert!((product - a[i * n + j]).abs() < 1e-12, "element {i}, {j}");
            assert!(i >= j || l[i * n + j] == 0.0, "upper triangle");
        }
    }

    #[test]
    fn a_pivot_that_is_not_positive_gives_nan() {
        let a = [4.0_f32, 9.0, 9.0, 2.0, 1.0, 9.0, 6.0, 3.0, 50.0];
        let l = values_of::<f32>(&Cholesky { dtype: DType::F32, batch: 1, n: 3 }.into(), &[&a]);
        let nan: Vec<bool> = l.iter().map(|x| x.is_nan()).collect();
        assert_eq!(nan, [false, false, false, false, true, false, false, true, true]);
        assert_eq!([l[0], l[1], l[2], l[3], l[5], l[6]], [2.0, 0.0, 0.0, 1.0, 0.0, 3.0]);
    }

    #[test]
    fn a_late_pivot_that_is_not_positive_gives_nan_from_there_on() {
        let (mut draw, n, bad) = (Draw::new(13), 200, 100);
        let mut a = positive(&mut draw, n);
        a[bad * n + bad] = -1.0;
        let l = values_of::<f64>(&Cholesky { dtype: DType::F64, batch: 1, n }.into(), &[&a]);
        for (i, j) in (0..n).flat_map(|i| (0..n).map(move |j| (i, j))) {
            assert_eq!(l[i * n + j].is_nan(), j >= bad && i >= j, "element {i}, {j}");
        }
    }

    #[test]
    fn large_systems_agree_with_their_twins() {
        let mut draw = Draw::new(14);
        for flags in 0..8 {
            let small = [(1, 64, 17), (9, 40, 33), (8, 5, 1100), (1, 3, 2000)];
            let large = [(1, 65, 1), (2, 130, 1), (1, 200, 37), (2, 129, 2), (1, 260, 20), (1, 70, 515)];
            for (batch, n, n_rhs) in small.into_iter().chain(large) {
                let [lower, transpose, unit_diagonal] = [1, 2, 4].map(|flag| flags & flag != 0);
                // Small beside the diagonal, so that the systems are well-posed.
                let entry = |at: usize, x: usize| {
                    let is_diagonal = at / n % n == at % n;
                    if is_diagonal { 1.0 + x as f64 / 1000.0 } else { (x as f64 / 500.0 - 1.0) / n as f64 }
                };
                let a: Vec<f64> = (0..batch * n * n).map(|at| entry(at, draw.below(1000))).collect();
                let b: Vec<f64> = (0..batch * n * n_rhs).map(|_| draw.below(100) as f64 / 10.0 - 5.0).collect();
                let narrow = |x: &[f64]| buffer(&x.iter().map(|x| *x as f32).collect::<Vec<f32>>());
                let kernel = |dtype| TriangularSolve { dtype, batch, n, n_rhs, lower, transpose, unit_diagonal }.into();
                assert_close(&kernel(DType::F64), &[buffer(&a), buffer(&b)], 1e-13);
                assert_close(&kernel(DType::F32), &[narrow(&a), narrow(&b)], 2e-5);
            }
        }
    }

    #[test]
    fn solutions_agree_with_their_twins() {
        let mut draw = Draw::new(10);
        for flags in 0..8 {
            for _ in 0..20 {
                let kernel = TriangularSolve {
                    dtype: if draw.below(2) == 0 { DType::F32 } else { DType::F64 },
                    batch: draw.below(10),
                    n: [0, 1, 2, 9, 33, 64][draw.below(6)],
                    n_rhs: [0, 1, 3, 35, 40][draw.below(5)],
                    lower: flags & 1 != 0,
                    transpose: flags & 2 != 0,
                    unit_diagonal: flags & 4 != 0,
                };
                assert_twins(&kernel.into(), &mut draw);
            }
        }
    }

    #[test]
    fn solutions_solve_the_system() {
        let (mut draw, n, n_rhs) = (Draw::new(11), 20, 3);
        let a: Vec<f64> = (0..n * n).map(|_| draw.below(100) as f64 / 100.0 + 0.5).collect();
        let b: Vec<f64> = (0..n * n_rhs).map(|_| draw.below(100) as f64).collect();
        for flags in 0..8 {
            let [lower, transpose, unit_diagonal] = [1, 2, 4].map(|flag| flags & flag != 0);
            let kernel = TriangularSolve { dtype: DType::F64, batch: 1, n, n_rhs, lower, transpose, unit_diagonal };
            let x = values_of::<f64>(&kernel.clone().into(), &[&a, &b]);
            let element = |i: usize, j: usize| match i.cmp(&j) {
                std::cmp::Ordering::Equal => {
                    if unit_diagonal {
                        1.0
                    } else {
                        a[i * n + i]
                    }
                }
                order => {
                    if (order == std::cmp::Ordering::Greater) == lower {
                        a[i * n + j]
                    } else {
                        0.0
                    }
                }
            };
            for (i, rhs) in (0..n).flat_map(|i| (0..n_rhs).map(move |rhs| (i, rhs))) {
                let terms = (0..n).map(|j| if transpose { element(j, i) } else { element(i, j) } * x[j * n_rhs + rhs]);
                let (product, size) = terms.fold((0.0, 0.0), |(sum, size), t| (sum + t, size + t.abs()));
                assert!(
                    (product - b[i * n_rhs + rhs]).abs() <= 1e-13 * f64::max(size, 1.0),
                    "{kernel:?} at {i}, {rhs}"
                );
            }
        }
    }
}
