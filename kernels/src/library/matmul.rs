//! Matrix product of strided, batched operands.
//!
//! Guarantees that NaN and infinities propagate as in the plain sum: no operand is skipped for being zero.

use std::fmt;
use std::ops::Range;

use retape_runtime::DType;
use smallvec::SmallVec;

use super::dense::{DenseKernel, check_arity, check_dtype, view, view_mut};
use super::extents::{Checked, count, countable};
use super::halves::{HalfProduct, LineLayout};
use super::micro::{
    ColumnExtents, Dots, Engine, MOST_TURNED, Output, Product, Real, SIDE_BY_SIDE, Strided, fills_vectors, is_narrow,
    is_near, is_of_dots, is_one_task, is_shallow, is_split, is_unpacked, multiply_dots, multiply_turned,
    multiply_unpacked,
};
use super::text::{Field, descriptor, split};
use super::tile::{Tile, TileCallback, TileShape};
use crate::ensure::ensure;

/// Where an operand's matrices lie in its buffer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MatrixLayout {
    /// First element.
    pub offset: usize,
    /// Elements from one matrix to the next, along each batch axis; 0 broadcasts.
    pub batch_strides: SmallVec<[usize; 4]>,
    /// Elements from one row to the next.
    pub row_stride: usize,
    /// Elements from one column to the next.
    pub col_stride: usize,
}

impl MatrixLayout {
    /// A row-major operand of matrices of `rows` by `cols` without gaps.
    pub fn contiguous(batch: &[usize], rows: usize, cols: usize) -> MatrixLayout {
        // An operand that does not fit is refused by the check of the product.
        let mut stride = rows.saturating_mul(cols);
        let mut batch_strides: SmallVec<[usize; 4]> = batch
            .iter()
            .rev()
            .map(|extent| {
                let here = stride;
                stride = stride.saturating_mul(*extent);
                here
            })
            .collect();
        batch_strides.reverse();
        MatrixLayout { offset: 0, batch_strides, row_stride: cols, col_stride: 1 }
    }

    /// The same matrices, transposed.
    #[must_use]
    pub fn transposed(mut self) -> MatrixLayout {
        std::mem::swap(&mut self.row_stride, &mut self.col_stride);
        self
    }

    /// The number of elements its buffer needs: none if an extent is zero; nothing if they cannot be counted.
    pub(super) fn checked_len(&self, batch: &[usize], rows: usize, cols: usize) -> Option<usize> {
        if rows == 0 || cols == 0 || batch.contains(&0) {
            return Some(0);
        }
        let axes = batch.iter().zip(&self.batch_strides).chain([(&rows, &self.row_stride), (&cols, &self.col_stride)]);
        let last = |end: usize, (extent, stride): (&usize, &usize)| end.checked_add((extent - 1).checked_mul(*stride)?);
        axes.into_iter().try_fold(self.offset, last)?.checked_add(1)
    }

    /// The number of elements that are read, those that repeat counted once.
    pub(super) fn n_read(&self, batch: &[usize], rows: usize, cols: usize) -> usize {
        let axes = batch.iter().zip(&self.batch_strides).chain([(&rows, &self.row_stride), (&cols, &self.col_stride)]);
        let extents: SmallVec<[usize; 6]> =
            axes.map(|(&extent, &stride)| if stride == 0 { extent.min(1) } else { extent }).collect();
        count(&extents)
    }

    /// Refuses strides that are not one for each axis of the batch, and elements that cannot be addressed.
    pub(super) fn check(&self, side: &str, batch: &[usize], rows: usize, cols: usize) -> Checked {
        let (n_strides, n_axes) = (self.batch_strides.len(), batch.len());
        ensure!(n_strides == n_axes, "the {side} operand has {n_strides} batch strides for {n_axes} batch axes");
        let MatrixLayout { offset, batch_strides, row_stride, col_stride } = self;
        let what = format_args!(
            "the {side} operand at offset {offset} and strides {batch_strides:?}, {row_stride}, {col_stride}"
        );
        let len = self.checked_len(batch, rows, cols);
        countable(what, &[len.ok_or_else(|| format!("{what} ends beyond what can be counted"))?])
    }

    /// The first element of matrix `index` of the batch; any number if it has no elements.
    pub(super) fn start(&self, batch: &[usize], mut index: usize) -> usize {
        let mut at = self.offset;
        for (extent, stride) in batch.iter().zip(&self.batch_strides).rev() {
            at = at.wrapping_add((index % extent).wrapping_mul(*stride));
            index /= extent;
        }
        at
    }
}

/// `[offset,[batch strides],row stride,column stride]`.
impl Field for MatrixLayout {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{},", self.offset)?;
        self.batch_strides.print(f)?;
        write!(f, ",{},{}]", self.row_stride, self.col_stride)
    }

    fn read(text: &str) -> Option<Self> {
        let items = split(text.strip_prefix('[')?.strip_suffix(']')?);
        let [offset, batch_strides, row_stride, col_stride] = items[..] else { return None };
        Some(MatrixLayout {
            offset: offset.parse().ok()?,
            batch_strides: Field::read(batch_strides)?,
            row_stride: row_stride.parse().ok()?,
            col_stride: col_stride.parse().ok()?,
        })
    }
}

descriptor! {
    /// `c[.., i, j] = sum over p of a[.., i, p] * b[.., p, j]`; the result is row-major `[batch.., m, n]`.
    MatMul "matmul" {
        /// A float; products and sums of 16-bit floats are in single precision, and rounded once.
        dtype: DType,
        /// Batch extents.
        batch: SmallVec<[usize; 4]>,
        /// Rows of the result.
        m: usize,
        /// Columns of the result.
        n: usize,
        /// Length of the sums.
        k: usize,
        /// Left operand: m rows, k columns.
        a: MatrixLayout,
        /// Right operand: k rows, n columns.
        b: MatrixLayout,
    }
}

impl MatMul {
    /// The product of contiguous operands `[batch.., m, k]` and `[batch.., k, n]`.
    pub fn contiguous(dtype: DType, batch: &[usize], [m, n, k]: [usize; 3]) -> MatMul {
        let (a, b) = (MatrixLayout::contiguous(batch, m, k), MatrixLayout::contiguous(batch, k, n));
        MatMul { dtype, batch: batch.into(), m, n, k, a, b }
    }

    fn check(&self) -> Checked {
        let MatMul { dtype, batch, m, n, k, a, b } = self;
        check_dtype(*dtype)?;
        a.check("left", batch, *m, *k)?;
        b.check("right", batch, *k, *n)?;
        let result: SmallVec<[usize; 8]> = batch.iter().chain([m, n]).copied().collect();
        countable("the result", &result)?;
        // Where there is nothing to multiply, the other extents do not matter.
        let n_products = count(&[self.n_matrices(), *m, *n, *k]);
        countable("the number of multiplications", &[n_products])
    }

    /// The number of elements of each operand.
    pub(super) fn lens(&self) -> [usize; 2] {
        let (a, b) = (self.a.checked_len(&self.batch, self.m, self.k), self.b.checked_len(&self.batch, self.k, self.n));
        [a, b].map(|len| len.unwrap_or(usize::MAX))
    }

    /// A multiplication and an addition for each term of the sums.
    pub(super) fn flops(&self) -> u64 {
        count(&[2, count(&self.batch), self.m, self.n, self.k]) as u64
    }

    /// The least number of elements of the two operands' buffers.
    pub fn inputs(&self) -> Vec<(DType, usize)> {
        self.lens().map(|len| (self.dtype, len)).into()
    }

    /// The number of elements that are read of each operand.
    pub(super) fn n_read(&self) -> [usize; 2] {
        let MatMul { batch, m, n, k, a, b, .. } = self;
        [a.n_read(batch, *m, *k), b.n_read(batch, *k, *n)]
    }

    /// The number of elements of the result's buffer.
    pub fn outputs(&self) -> Vec<(DType, usize)> {
        vec![(self.dtype, self.result_len())]
    }

    /// The number of elements of the result.
    fn result_len(&self) -> usize {
        count(&[self.n_matrices(), self.m, self.n])
    }

    /// Computes the product.
    ///
    /// # Panics
    ///
    /// Panics if the descriptor is not valid, or if a buffer is missing, too short or not aligned to its elements.
    pub fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        self.run_with(inputs, outputs, &|_| {});
    }

    /// Computes the product and calls `epilogue` for each finished block of it.
    ///
    /// # Panics
    ///
    /// As [`MatMul::run`].
    pub fn run_with(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]], epilogue: TileCallback<'_>) {
        self.run_on(&Engine::best(), inputs, outputs, epilogue);
    }

    /// The naive loops, with sums in f64: the reference for `run`, up to rounding.
    ///
    /// # Panics
    ///
    /// As [`MatMul::run`].
    pub fn reference(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        self.run_reference(inputs, outputs);
    }

    /// The blocks that are finished one by one: in the dtype that is computed in, and if the sums are not parts that are
    /// added at the end.
    pub(super) fn tiles(&self) -> Option<TileShape> {
        let m = if self.is_one_matrix() { self.n_rows() } else { self.m };
        let has_tiles = self.dtype.is_float() && !is_split(m, self.n, self.k);
        let is_one = is_one_task(m, self.n, self.k) && (self.is_one_matrix() || self.n_matrices() == 1);
        has_tiles.then_some(TileShape { width: self.n, has_whole_rows: false, is_one })
    }

    /// Rows of the results of all matrices.
    pub(super) fn n_rows(&self) -> usize {
        self.n_matrices().saturating_mul(self.m)
    }

    /// Number of matrices in the batch.
    fn n_matrices(&self) -> usize {
        count(&self.batch)
    }

    /// The buffers as elements, checked.
    fn buffers<'i, 'o, T: Real>(
        &self,
        inputs: &[&'i [u8]],
        outputs: &'o mut [&mut [u8]],
    ) -> ([&'i [T]; 2], &'o mut [T]) {
        check_arity(inputs, outputs, 2);
        let needs = self.lens();
        let operand = |index: usize, what: &str| {
            let view: &[T] = view(inputs[index], inputs[index].len() / size_of::<T>(), what);
            assert!(view.len() >= needs[index], "{what}: {} elements, needs {}", view.len(), needs[index]);
            view
        };
        let c = view_mut(outputs[0], self.result_len(), "result");
        ([operand(0, "left operand"), operand(1, "right operand")], c)
    }

    /// Computes a product of elements that other kernels have at hand, of one matrix.
    ///
    /// # Panics
    ///
    /// Panics if there are several matrices, or if an operand or the result is too short.
    pub(super) fn multiply<T: Real>(&self, engine: &Engine, [a, b]: [&[T]; 2], c: &mut [T]) {
        let [n_a, n_b] = self.lens();
        assert!(self.batch.is_empty() && a.len() >= n_a && b.len() >= n_b, "{self}");
        assert_eq!(c.len(), self.result_len(), "{self}");
        if c.is_empty() {
            return;
        }
        if self.k == 0 {
            c.fill(T::ZERO);
            return;
        }
        MatMulCall { op: self, engine, a: a.as_ptr(), b: b.as_ptr(), c: c.as_mut_ptr(), epilogue: &|_| {} }.tall();
    }

    /// Computes a product of 16-bit floats of one matrix block by block, if that pays; `false` if it does not.
    pub(super) fn run_in_blocks(&self, engine: &Engine, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> bool {
        let (alone, MatMul { a, b, .. }) = (engine.alone(), self);
        let operands = [(a, [a.row_stride, a.col_stride]), (b, [b.col_stride, b.row_stride])];
        let product = HalfProduct {
            dtype: self.dtype,
            extents: [self.n_rows(), self.n, self.k],
            operands: operands.map(|(layout, strides)| LineLayout { offset: layout.offset, strides }),
            engine,
            multiply: &|[m, n, k], [(a, a_strides), (b, b_strides)], c| {
                let dense = |[row_stride, col_stride]: [usize; 2]| MatrixLayout {
                    offset: 0,
                    batch_strides: SmallVec::new(),
                    row_stride,
                    col_stride,
                };
                let (batch, layouts) = (SmallVec::new(), [dense(a_strides), dense(b_strides).transposed()]);
                let [a_layout, b_layout] = layouts;
                let block = MatMul { dtype: DType::F32, batch, m, n, k, a: a_layout, b: b_layout };
                block.multiply(&alone, [a, b], c);
            },
        };
        self.is_one_matrix() && product.run_in_blocks(inputs, outputs)
    }

    /// Whether the batch of left matrices is one tall matrix, and all meet the same right matrix.
    pub(crate) fn is_one_matrix(&self) -> bool {
        // Strides that reach no second element can be any number.
        let mut stride = self.m.checked_mul(self.a.row_stride);
        self.batch.iter().zip(&self.a.batch_strides).zip(&self.b.batch_strides).rev().all(|((extent, a), b)| {
            let fits = *extent == 1 || (Some(*a) == stride && *b == 0);
            stride = stride.and_then(|stride| stride.checked_mul(*extent));
            fits
        })
    }
}

impl DenseKernel for MatMul {
    fn dtype(&self) -> DType {
        self.dtype
    }

    fn in_f32(&self) -> MatMul {
        MatMul { dtype: DType::F32, ..self.clone() }
    }

    fn is_valid(&self) -> bool {
        self.is_valid()
    }

    fn row_len(&self) -> usize {
        self.n
    }

    fn run_halves(&self, engine: &Engine, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        check_arity(inputs, outputs, 2);
        if !self.run_in_blocks(engine, inputs, outputs) {
            self.run_in_single(engine, inputs, outputs);
        }
    }

    /// One element type: folds the batch into the rows where it can, then runs matrix by matrix.
    fn run_typed<T: Real>(
        &self,
        engine: &Engine,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
        epilogue: TileCallback<'_>,
    ) {
        let ([a, b], c) = self.buffers::<T>(inputs, outputs);
        if c.is_empty() {
            return;
        }
        if self.k == 0 {
            c.fill(T::ZERO);
            self.finish_all(outputs, epilogue);
            return;
        }
        let call = MatMulCall { op: self, engine, a: a.as_ptr(), b: b.as_ptr(), c: c.as_mut_ptr(), epilogue };
        if self.is_one_matrix() {
            call.tall();
        } else {
            call.batch();
        }
    }

    /// The reference for one element type.
    fn reference_typed<T: Real>(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        let ([a, b], c) = self.buffers::<T>(inputs, outputs);
        for (at, x) in c.iter_mut().enumerate() {
            let (matrix, i, j) = (at / (self.m * self.n), at / self.n % self.m, at % self.n);
            let (a_start, b_start) = (self.a.start(&self.batch, matrix), self.b.start(&self.batch, matrix));
            let term = |p: usize| {
                let x = a[a_start + i * self.a.row_stride + p * self.a.col_stride];
                let y = b[b_start + p * self.b.row_stride + j * self.b.col_stride];
                x.to_f64() * y.to_f64()
            };
            *x = T::from_f64((0..self.k).map(term).fold(0.0, |sum, x| sum + x));
        }
    }
}

/// A product under way.
struct MatMulCall<'a, T> {
    op: &'a MatMul,
    engine: &'a Engine,
    a: *const T,
    b: *const T,
    c: *mut T,
    epilogue: TileCallback<'a>,
}

// SAFETY: tasks read the operands and write disjoint parts of the result.
unsafe impl<T: Sync> Sync for MatMulCall<'_, T> {}

impl<T: Real> MatMulCall<'_, T> {
    /// The operands of matrix `index`.
    fn operands(&self, index: usize) -> [Strided<T>; 2] {
        let op = self.op;
        let strided = |data: *const T, operand: &MatrixLayout, outer: usize, inner: usize| {
            // SAFETY: the buffers were checked to hold all elements that the strides reach, and outlive the call.
            unsafe { Strided::new(data.add(operand.start(&op.batch, index)), outer as isize, inner as isize) }
        };
        [
            strided(self.a, &op.a, op.a.row_stride, op.a.col_stride),
            strided(self.b, &op.b, op.b.col_stride, op.b.row_stride),
        ]
    }

    /// Tells the epilogue of a finished block.
    fn finish(&self, rows: Range<usize>, cols: Range<usize>) {
        let n = self.op.n;
        // SAFETY: inside the result.
        let data = unsafe { self.c.add(rows.start * n + cols.start) };
        (self.epilogue)(Tile { rows, cols, data: data.cast(), row_stride: n, size: size_of::<T>() });
    }

    /// Runs all matrices as one, whose rows follow each other.
    fn tall(&self) {
        let op = self.op;
        let m = op.n_rows();
        self.product(&self.operands(0), m, self.c, &|rows, cols| self.finish(rows, cols));
    }

    /// Runs matrix by matrix: side by side if they are small, else one after the other on all threads.
    fn batch(&self) {
        /// Multiplications of a task at most and at least; a product of more than sixteen times as many is split itself.
        const TASK: usize = 1 << 20;
        const LEAST: usize = 1 << 16;
        /// The same of elements that are chains of their own.
        const LEAST_OF_DOTS: usize = 1 << 14;
        /// Tasks to aim for, if each has as many as it should.
        const TASKS: usize = 16;
        let op = self.op;
        let size = op.m * op.n;
        let work = size.saturating_mul(op.k).max(1);
        let one = |engine: &Engine, index: usize| {
            // SAFETY: inside the result.
            let c = unsafe { self.c.add(index * size) };
            let call = MatMulCall { engine, ..*self };
            let first = index * op.m;
            let finish = |rows: Range<usize>, cols| self.finish(first + rows.start..first + rows.end, cols);
            call.product(&self.operands(index), op.m, c, &finish);
        };
        if work > 16 * TASK {
            (0..op.n_matrices()).for_each(|index| one(self.engine, index));
            return;
        }
        let group = |least: usize| (TASK / work).min(op.n_matrices().div_ceil(TASKS)).max(least / work).max(1);
        // Columns of B that are neighbours fill vectors.
        let are_lines = op.a.col_stride == 1 && op.b.row_stride == 1 && (op.n == 1 || op.b.col_stride != 1);
        if self.engine.unpacked && are_lines && is_of_dots([op.m, op.n, op.k]) {
            let group = group(LEAST_OF_DOTS);
            (self.engine.parallel_for)(op.n_matrices().div_ceil(group), &|task| {
                self.dots(task * group..((task + 1) * group).min(op.n_matrices()));
            });
            return;
        }
        let alone = self.engine.alone();
        let group = group(LEAST);
        (self.engine.parallel_for)(op.n_matrices().div_ceil(group), &|task| {
            (task * group..((task + 1) * group).min(op.n_matrices())).for_each(|index| one(&alone, index));
        });
    }

    /// Runs some matrices element by element, [`SIDE_BY_SIDE`] of them at once.
    fn dots(&self, matrices: Range<usize>) {
        let (op, n_of_matrix) = (self.op, self.op.m * self.op.n);
        let all = matrices.start * n_of_matrix..matrices.end * n_of_matrix;
        let mut lines = [[std::ptr::null(); 2]; SIDE_BY_SIDE];
        let mut filled = 0;
        for index in matrices.clone() {
            let operands = self.operands(index);
            for element in 0..n_of_matrix {
                let [(a, row, _), (b, column, _)] = operands.each_ref().map(Strided::parts);
                let [i, j] = [element / op.n, element % op.n].map(|n| n as isize);
                // SAFETY: the first elements of a row of A and a column of B.
                lines[filled] = unsafe { [a.offset(i * row), b.offset(j * column)] };
                filled += 1;
                let end = index * n_of_matrix + element + 1;
                if filled == SIDE_BY_SIDE || end == all.end {
                    // SAFETY: inside the result, this task's own.
                    let out = unsafe { self.c.add(end - filled) };
                    let dots = Dots { lines, n: filled, k: op.k, out };
                    // SAFETY: lines of k elements of the operands, and as many results.
                    unsafe { multiply_dots(self.engine.level, &dots) };
                    filled = 0;
                }
            }
        }
        matrices.for_each(|index| self.finish(index * op.m..(index + 1) * op.m, 0..op.n));
    }

    /// Runs one product of `m` rows.
    fn product(
        &self,
        [a, b]: &[Strided<T>; 2],
        m: usize,
        c: *mut T,
        done: &(dyn Fn(Range<usize>, Range<usize>) + Sync),
    ) {
        let (n, k) = (self.op.n, self.op.k);
        let kernels = T::kernels(self.engine.level);
        // A column is the rows of A times a vector, and rows are the columns of B times some.
        let is_column = n == 1;
        let (rows, vectors, operands) = if is_column { (m, 1, [a, b]) } else { (n, m, [b, a]) };
        let extents = ColumnExtents { rows, k, vectors };
        let streams = k > 0 && kernels.is_streamed(extents, operands[0]);
        let (row, divides) = (self.op.b.row_stride, self.engine.divides);
        let is_small = self.engine.unpacked && is_unpacked::<T>([m, n, k], row, divides, streams);
        if self.engine.unpacked && !streams && fills_vectors(&kernels, [n, k]) {
            if is_small && m > 1 && self.op.b.col_stride == 1 {
                // SAFETY: `c` is m rows of n elements of the result, this task's own.
                unsafe { multiply_unpacked(self.engine.level, [m, n, k], a, b, c, n) };
                done(0..m, 0..n);
                return;
            }
            // A thread that reads what another one has just turned waits for it.
            let is_read_in_place = self.op.b.col_stride == 1 || !divides || is_one_task(m, n, k);
            if is_read_in_place && is_near(&kernels, [m, n, k], [a, b]) {
                // SAFETY: as above.
                unsafe { self.engine.multiply_near([m, n, k], [a, b], c, done) };
                return;
            }
        }
        if self.engine.unpacked && is_narrow(&kernels, [m, n, k], [a, b]) {
            // SAFETY: `c` is m rows of n elements of the result, this task's own.
            unsafe { self.engine.multiply_narrow([m, n, k], [a, b], c, &|rows| done(rows, 0..n)) };
            return;
        }
        if self.engine.unpacked && is_shallow(&kernels, [m, n, k], [a, b]) {
            // SAFETY: as above.
            unsafe { self.engine.multiply_shallow([m, n, k], [a, b], c, done) };
            return;
        }
        // Rows that lie apart are turned in registers.
        let is_turned = is_column && self.op.a.row_stride != 1 && streams;
        if is_small && m > 1 && n > 1 && self.op.b.col_stride != 1 && k.saturating_mul(n) <= MOST_TURNED {
            // SAFETY: as above.
            unsafe { multiply_turned(self.engine.level, [m, n, k], a, b, c) };
            done(0..m, 0..n);
            return;
        }
        if is_small && (self.op.b.col_stride == 1 || n == 1) && !is_turned {
            // A column whose rows lie side by side is the row of the transposed product, whose lanes are these rows.
            let is_row = n == 1 && self.op.a.row_stride == 1;
            let (extent, [a, b]) = if is_row { ([1, m, k], [b, a]) } else { ([m, n, k], [a, b]) };
            // SAFETY: as above.
            unsafe { multiply_unpacked(self.engine.level, extent, a, b, c, extent[1]) };
            done(0..m, 0..n);
            return;
        }
        if self.engine.unpacked && streams {
            let finish = |lanes: Range<usize>| if is_column { done(lanes, 0..1) } else { done(0..m, lanes) };
            // SAFETY: as above.
            unsafe { self.engine.multiply_column(extents, operands, c, &finish) };
            return;
        }
        let product = Product { m, n, k, a, b, out: Output { data: c, stride: n, rows: None } };
        // SAFETY: as above.
        unsafe { self.engine.multiply(&product, done) };
    }
}
