//! Dense factorisation and triangular systems, batched.
//!
//! The order of operations is fixed by the shape. A matrix is factored by blocks of columns; below a block all rows
//! are independent and go to all threads. Batches go to all threads as they are.

use retape_runtime::DType;

use super::extents::{Checked, count, countable};
use super::number::{Float, with_float};
use super::text::descriptor;
use super::view::{Plain, exactly, for_each_chunk, for_each_tile, only, tile_columns, vectorized, view, view_mut};
use crate::ensure::ensure;

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

/// Columns factored before the rows below them.
const BLOCK: usize = 64;

/// Rows below a block that one thread takes at a time.
const ROWS: usize = 8;

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
        with_float!(self.dtype, T => self.factor_all::<T>(view(a, self.len()), view_mut(out, self.len())));
    }

    fn factor_all<T: Float + Plain>(&self, a: &[T], out: &mut [T]) {
        let (n, size) = (self.n, self.n * self.n);
        if self.batch == 1 {
            factor(n, a, out, &|rows, work, body| for_each_chunk(rows, ROWS * n, work, body));
            return;
        }
        for_each_chunk(out, size, self.len() * n, &|matrix, out| {
            factor(n, &a[matrix * size..(matrix + 1) * size], out, &|rows, _, body| {
                rows.chunks_mut(ROWS * n).enumerate().for_each(|(i, chunk)| body(i, chunk));
            });
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

/// Calls a body with the number and the elements of each run of `ROWS` rows; the work is in elementary steps.
type EachRows<'a, T> = &'a dyn Fn(&mut [T], usize, &(dyn Fn(usize, &mut [T]) + Sync));

/// Factors one matrix.
fn factor<T: Float>(n: usize, a: &[T], l: &mut [T], each_rows: EachRows<'_, T>) {
    l.fill(T::default());
    for start in (0..n).step_by(BLOCK) {
        let end = n.min(start + BLOCK);
        let (done, below) = l.split_at_mut(end * n);
        for i in start..end {
            let (above, row) = done.split_at_mut(i * n);
            vectorized(
                #[inline(always)]
                || factor_row(&a[i * n..], above, &mut row[..n], start..i),
            );
            let pivot = a[i * n + i] - dot(&row[..i], &row[..i]);
            row[i] = if pivot > T::default() { pivot.sqrt() } else { T::NAN };
        }
        let done = &*done;
        each_rows(below, (n - end) * (end - start) * end, &|chunk, rows| {
            for (i, row) in rows.chunks_mut(n).enumerate() {
                let i = end + chunk * ROWS + i;
                vectorized(
                    #[inline(always)]
                    || factor_row(&a[i * n..], done, row, start..end),
                );
            }
        });
    }
}

/// Computes the elements in `columns` of a row of L below the diagonal, from the columns before.
#[inline(always)]
fn factor_row<T: Float>(a: &[T], above: &[T], row: &mut [T], columns: std::ops::Range<usize>) {
    let n = row.len();
    for j in columns {
        let other = &above[j * n..(j + 1) * n];
        row[j] = (a[j] - dot(&row[..j], &other[..j])) / other[j];
    }
}

/// The sum of products in eight interleaved sums, which are then added in pairs.
#[inline(always)]
fn dot<T: Float>(a: &[T], b: &[T]) -> T {
    let mut sums = [T::default(); 8];
    let ((a_lanes, a_rest), (b_lanes, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    for (a, b) in a_lanes.iter().zip(b_lanes) {
        for lane in 0..8 {
            sums[lane] = sums[lane].plus(a[lane] * b[lane]);
        }
    }
    for (sum, (a, b)) in sums.iter_mut().zip(a_rest.iter().zip(b_rest)) {
        *sum = sum.plus(*a * *b);
    }
    let [a, b, c, d, e, f, g, h] = sums;
    a.plus(b).plus(c.plus(d)).plus(e.plus(f).plus(g.plus(h)))
}

/// The textbook factorisation in place.
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
        with_float!(self.dtype, T => self.substitute::<T>(view(a, n_a), view(b, n_b), view_mut(out, n_b)));
    }

    /// The rows of X in the order in which they can be solved.
    fn order(&self) -> impl Iterator<Item = usize> + use<> {
        let (n, forward) = (self.n, self.lower != self.transpose);
        (0..n).map(move |i| if forward { i } else { n - 1 - i })
    }

    /// The element of op(A).
    #[inline(always)]
    fn coefficient<T: Float>(&self, a: &[T], row: usize, column: usize) -> T {
        if self.transpose { a[column * self.n + row] } else { a[row * self.n + column] }
    }

    /// Solves row after row, all right-hand sides of a tile at once.
    fn substitute<T: Float + Plain>(&self, a: &[T], b: &[T], out: &mut [T]) {
        let (n, n_rhs) = (self.n, self.n_rhs);
        let block = [n, tile_columns(self.batch, n_rhs)];
        for_each_tile(out, [self.batch, n, n_rhs], block, self.batch * n * n * n_rhs, &|mut tile| {
            let (a, columns) = (&a[tile.outer * n * n..][..n * n], tile.columns.clone());
            let mut rest = vec![T::default(); columns.len()];
            vectorized(
                #[inline(always)]
                || {
                    for (solved, i) in self.order().enumerate() {
                        let start = (tile.outer * n + i) * n_rhs;
                        rest.copy_from_slice(&b[start + columns.start..start + columns.end]);
                        for j in self.order().take(solved) {
                            let coefficient = self.coefficient(a, i, j);
                            rest.iter_mut().zip(&*tile.row(j)).for_each(|(rest, x)| *rest = *rest - coefficient * *x);
                        }
                        if !self.unit_diagonal {
                            let pivot = a[i * n + i];
                            rest.iter_mut().for_each(|rest| *rest = *rest / pivot);
                        }
                        tile.row(i).copy_from_slice(&rest);
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
    fn solutions_agree_with_their_twins() {
        let mut draw = Draw::new(10);
        for flags in 0..8 {
            for _ in 0..20 {
                let kernel = TriangularSolve {
                    dtype: if draw.below(2) == 0 { DType::F32 } else { DType::F64 },
                    batch: draw.below(4),
                    n: [0, 1, 2, 9, 33][draw.below(5)],
                    n_rhs: [0, 1, 3, 40][draw.below(4)],
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
