//! Products whose result is small beside their depth, cut along k ("split-K"): each task computes a partial result, and
//! these are added up in order.
//!
//! A task reads a B whose columns are neighbours in memory where it lies, and if it has rows enough, copies each panel while
//! it multiplies by the one before: packed at once, the panels of a block of steps fill the second-level cache, and each
//! step waits for memory (ADR 109). Another B is packed.

use std::ops::Range;

use super::copy::Ahead;
use super::drive::{Engine, Output, Product, ProductTask, pack_rows};
use super::pack::CHUNK;
use super::sums::add_up;
use super::tile::Block;
use super::{Kernels, Layout, Real, block_depth, with_scratch};
use crate::library::exchange::exchange_to;
use crate::library::view::vectorized;

/// Elements of partial results that a task adds up.
pub(super) const SUM_TASK: usize = 1 << 15;

/// Whether parts read a B with so many elements to a row where it lies: not if many rows would read it again and again
/// without a copy, from few sets of the nearest cache.
fn reads_in_place<T>(kernels: &Kernels<T>, m: usize, row: usize) -> bool {
    const MANY: usize = 512;
    const CROWDED: usize = 1024;
    kernels.is_quick || m < MANY || !(row * size_of::<T>()).is_multiple_of(CROWDED)
}

impl Engine {
    /// Computes a product in parts of `part` steps, whose results are added up in order.
    ///
    /// # Safety
    ///
    /// As [`Engine::multiply`].
    pub(super) unsafe fn multiply_by_depth<T: Real>(&self, x: &Product<'_, T>, part: usize) {
        let are_turned = self.unpacked && x.a.direct().is_some() && x.b.direct().is_some() && x.out.rows.is_none();
        // SAFETY: handed on.
        unsafe {
            match are_turned && x.m >= 2 * x.n {
                true => self.multiply_turned(x, part),
                false => self.multiply_parts(x, part),
            }
        }
    }

    /// The transpose, as B<sup>T</sup> A<sup>T</sup>, whose rows and columns are exchanged then: the wider operand is read
    /// in place, and only the other one is packed. Sums are the same, as factors may change places.
    ///
    /// # Safety
    ///
    /// As [`Engine::multiply`]; rows of the output lie at its stride.
    unsafe fn multiply_turned<T: Real>(&self, x: &Product<'_, T>, part: usize) {
        /// Rows of the result that a task writes.
        const ROWS: usize = 64;
        with_scratch::<T, _>(x.m * x.n, |transpose| {
            let out = Output { data: transpose.as_mut_ptr(), stride: x.m, rows: None };
            // SAFETY: the scratch has all rows of the transpose.
            unsafe { self.multiply_parts(&Product { m: x.n, n: x.m, k: x.k, a: x.b, b: x.a, out }, part) };
            let transpose = &*transpose;
            (self.parallel_for)(x.m.div_ceil(ROWS), &|task| {
                let rows = task * ROWS..((task + 1) * ROWS).min(x.m);
                let from = &transpose[rows.start..];
                // SAFETY: rows of the output, which no other task uses.
                unsafe { exchange_to(from, x.m, [x.n, rows.len()], x.out.row(rows.start), x.out.stride) };
            });
        });
    }

    /// One task for each part of k; the partial results are summed in order.
    ///
    /// # Safety
    ///
    /// As [`Engine::multiply`].
    unsafe fn multiply_parts<T: Real>(&self, x: &Product<'_, T>, part: usize) {
        let kernels = T::kernels(self.level);
        let size = x.m * x.n;
        let parts = x.k.div_ceil(part);
        let columns = self.columns_in_place(&kernels, x, |row| reads_in_place(&kernels, x.m, row));
        let copies = self.copies_rows(&kernels, x.a);
        with_scratch::<T, _>(size * parts, |partial| {
            let all = Output { data: partial.as_mut_ptr(), stride: x.n, rows: None };
            (self.parallel_for)(parts, &|p| {
                let (steps, c) = (p * part..((p + 1) * part).min(x.k), all.row(p * x.m));
                let source = if copies { x.a.rows() } else { None };
                // SAFETY: part `p` of the scratch, which no other task uses.
                unsafe {
                    match &columns {
                        Some(columns) => ProductTask { kernels: &kernels, product: x, packed: None, columns, source }
                            .tile(&(0..x.m), &(0..x.n), &steps, c, x.n),
                        None => alone(&kernels, x, steps, c, x.n),
                    }
                }
            });
            // SAFETY: handed on.
            unsafe { self.add_parts(partial, [x.m, x.n], &x.out) };
        });
    }

    /// Adds up partial results of m rows of n elements, which follow each other, in order.
    ///
    /// # Safety
    ///
    /// The output is writable for m rows of n elements, and nobody else uses these.
    pub(super) unsafe fn add_parts<T: Real>(&self, partial: &[T], [m, n]: [usize; 2], out: &Output<'_, T>) {
        let size = m * n;
        if size == 0 || partial.is_empty() {
            return;
        }
        assert!(partial.len().is_multiple_of(size), "whole partial results");
        let is_dense = out.rows.is_none() && out.stride == n;
        let run = (SUM_TASK / (partial.len() / size * n)).max(1);
        (self.parallel_for)(m.div_ceil(run), &|task| {
            let rows = task * run..((task + 1) * run).min(m);
            let (step, len) = if is_dense { (rows.len(), rows.len() * n) } else { (1, n) };
            for i in rows.step_by(step) {
                // SAFETY: rows of the output, which no other task uses.
                let to = unsafe { std::slice::from_raw_parts_mut(out.row(i), len) };
                vectorized(
                    #[inline(always)]
                    || add_up(to, partial, i * n, size),
                );
            }
        });
    }
}

/// Computes all of C over some steps, with panels of its own.
///
/// # Safety
///
/// `c` is writable for m rows of n elements at distance `c_row`.
unsafe fn alone<T: Real>(kernels: &Kernels<T>, x: &Product<'_, T>, steps: Range<usize>, c: *mut T, c_row: usize) {
    let (depth, width) = (block_depth(x.k), kernels.product_width(x.m, x.n, false));
    let is_wide = width > kernels.width;
    let n_rows = x.m.next_multiple_of(kernels.heights[0]) * depth;
    let n_cols = x.n.next_multiple_of(width) * depth;
    with_scratch::<T, _>(n_rows + n_cols, |scratch| {
        let (a, b) = scratch.split_at_mut(n_rows);
        for start in steps.clone().step_by(depth) {
            let now = start..(start + depth).min(steps.end);
            pack_rows(kernels, x.a, &(0..x.m), &now, a);
            for (j, panel) in (0..x.n).step_by(width).zip(b.chunks_mut(width * depth)) {
                x.b.pack(j..(j + width).min(x.n), now.clone(), Layout::Interleaved, width, panel);
            }
            let mut ahead = Ahead::of_product(kernels, [x.a, x.b], [x.m, x.n, x.k], &now, steps.end);
            let ahead = ahead.as_mut().map_or(std::ptr::null_mut(), |ahead| &raw mut *ahead);
            let mut block = Block {
                rows: x.m,
                cols: x.n,
                depth: now.len(),
                a: a.as_ptr(),
                a_panel: kernels.heights[0] * now.len().next_multiple_of(CHUNK),
                layout: x.a.layout(),
                a_from: std::ptr::null(),
                a_from_row: 0,
                b: b.as_ptr(),
                width,
                b_panel: width * depth,
                b_row: width,
                c,
                c_row,
                fresh: start == steps.start,
                before: c,
                before_row: c_row,
                is_quick: kernels.is_quick,
                staging: std::ptr::null_mut(),
                ahead,
            };
            // SAFETY: the level is present; panels and C cover the product.
            unsafe { kernels.compute(is_wide, &mut block) };
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::micro::Level;
    use crate::library::micro::pack::Strided;

    /// Partial results of `m` by `n`, whose sums depend on the order of additions, and those of the function under test
    /// and of one element after the other, in an output with a gap behind each row.
    fn added<T: Real>(engine: &Engine, [m, n, parts, gap]: [usize; 4]) -> [Vec<T>; 2] {
        let of = |i: usize| T::from_f64((i * 2_654_435_761 % 1021) as f64 * 0.37 - 190.0);
        let partial: Vec<T> = (0..m * n * parts).map(of).collect();
        let (stride, untouched) = (n + gap, T::from_f64(-7.5));
        let mut found = vec![untouched; m * stride];
        // From the last row to the first one, where rows have no common distance.
        let place = |i: usize| (m - 1 - i) * stride;
        let rows: Option<&(dyn Fn(usize) -> usize + Sync)> = if gap == 2 { Some(&place) } else { None };
        let out = Output { data: found.as_mut_ptr(), stride, rows };
        // SAFETY: the output has m rows of n elements, wherever they lie.
        unsafe { engine.add_parts(&partial, [m, n], &out) };
        let mut expected = vec![untouched; m * stride];
        for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
            let at = if gap == 2 { place(i) } else { i * stride };
            let mut terms = partial.chunks_exact(m * n).map(|part| part[i * n + j]);
            let first = terms.next().expect("a partial result");
            expected[at + j] = terms.fold(first, |sum, x| sum + x);
        }
        [found, expected]
    }

    #[test]
    fn partial_results_are_added_in_order() {
        let all = |n: usize, body: &(dyn Fn(usize) + Sync)| (0..n).rev().for_each(body);
        let engines = [Engine::best(), Engine { parallel_for: all, ..Engine::best() }];
        // Below, at and above a block of sums; several tasks, the last of which has fewer rows.
        let shapes = [[1, 1, 1], [3, 63, 2], [2, 64, 16], [5, 65, 3], [1, 129, 16], [0, 5, 2], [4, 0, 2]];
        for [m, n, parts] in shapes.into_iter().chain([[577, 64, 16], [97, 131, 7]]) {
            for (engine, gap) in engines.iter().flat_map(|engine| [0, 1, 2].map(|gap| (engine, gap))) {
                let [found, expected] = added::<f32>(engine, [m, n, parts, gap]);
                assert!(found.iter().zip(&expected).all(|(x, y)| x.to_bits() == y.to_bits()), "{m} {n} {parts} {gap}");
                let [found, expected] = added::<f64>(engine, [m, n, parts, gap]);
                assert!(found.iter().zip(&expected).all(|(x, y)| x.to_bits() == y.to_bits()), "{m} {n} {parts} {gap}");
            }
        }
    }

    /// A product of turned operands of `T`, in parts, with a gap behind each row of the result.
    fn product<T: Real>(engine: &Engine, [m, n, k, part]: [usize; 4]) -> Vec<T> {
        let of = |i: usize| T::from_f64((i * 2_654_435_761 % 2039) as f64 / 510.0 - 2.0);
        let [a, b]: [Vec<T>; 2] = [m, n].map(|len| (0..len * k).map(|i| of(i + len)).collect());
        let stride = n + 3;
        let mut found = vec![T::from_f64(-7.5); m * stride];
        // SAFETY: the operands outlive their views.
        let [a, b] = unsafe { [(a.as_ptr(), m), (b.as_ptr(), n)].map(|(at, row)| Strided::new(at, 1, row as isize)) };
        let out = Output { data: found.as_mut_ptr(), stride, rows: None };
        // SAFETY: the output has m rows at its stride.
        unsafe { engine.multiply_by_depth(&Product { m, n, k, a: &a, b: &b, out }, part) };
        found
    }

    /// High results by way of their transpose, others as they are, from operands in place and packed.
    #[test]
    fn transposes_have_the_same_sums() {
        for level in Level::available() {
            let best = Engine { level, ..Engine::best() };
            let packs = Engine { unpacked: false, ..best };
            let depth = 2 * block_depth(2500);
            for [m, n] in [[40, 20], [150, 17], [33, 16], [200, 96], [16, 40], [130, 3], [39, 20], [60, 1100]] {
                let shape = [m, n, 2500, depth];
                let bits = |x: Vec<f32>| x.into_iter().map(f32::to_bits).collect::<Vec<_>>();
                let [found, expected] = [&best, &packs].map(|engine| bits(product(engine, shape)));
                assert_eq!(found, expected, "{level:?} {shape:?}");
                let bits = |x: Vec<f64>| x.into_iter().map(f64::to_bits).collect::<Vec<_>>();
                let [found, expected] = [&best, &packs].map(|engine| bits(product(engine, shape)));
                assert_eq!(found, expected, "{level:?} {shape:?}");
            }
        }
    }
}
