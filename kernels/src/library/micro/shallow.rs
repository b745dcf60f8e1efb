//! Products of few steps: C is written once, and hardly more than written.
//!
//! Neither packing nor the edges of tiles may cost anything beside so few multiplications. Rows and columns of C that are no
//! multiple of a tile's end with a tile that begins in the one before. A whose rows, and B whose columns are neighbours in
//! memory are read as they lie; else blocks are turned, and a block of columns meets all rows of a task. An element is one
//! chain of fused multiply-adds from +0, as in [`super::drive`].

use std::mem::MaybeUninit;
use std::ops::Range;

use super::drive::{Done, Engine, Output};
use super::grid::{is_one_task, power_of_two, share};
use super::pack::Strided;
use super::simd::Simd;
use super::{Kernels, Real};
use crate::library::exchange::exchange_to;

/// Most steps.
pub(super) const STEPS: usize = 32;

/// Rows whose turned steps the nearest cache holds, beside columns of B and C.
const ROWS: usize = 96;

/// Rows of a tile, and of one that ends where no whole one fits.
const HEIGHTS: [usize; 2] = [6, 4];

/// Columns whose turned steps it holds, too, and of a task that has not all: whole tiles of any vectors.
const COLUMNS: usize = 128;

/// Vectors of a tile.
const VECTORS: usize = 2;

/// Multiplications of a task at least.
const TASK: usize = 1 << 16;

/// Tasks at most, if each is large enough.
const TASKS: usize = 16;

/// Bytes between rows of B, or a multiple of them, at which more than a few steps are copied before their use.
const CROWDED: usize = 1024;
const FEW_STEPS: usize = 4;

/// Rows and columns of the least block that is turned in registers.
const BLOCK: usize = 8;

/// Some rows and columns of a product; of columns as many as a tile has at least.
pub(super) struct Shallow<T> {
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) steps: usize,
    /// A, the distance of its rows and that of its steps, one of which is 1.
    pub(super) a: *const T,
    pub(super) a_row: usize,
    pub(super) a_step: usize,
    /// B, the distance of its columns and that of its steps, one of which is 1.
    pub(super) b: *const T,
    pub(super) b_col: usize,
    pub(super) b_step: usize,
    /// C, whose columns are neighbours, and the distance of its rows.
    pub(super) c: *mut T,
    pub(super) c_row: usize,
}

/// Whether a product is computed without panels that outlive a block.
pub(crate) fn is_shallow<T: Real>(kernels: &Kernels<T>, [m, n, k]: [usize; 3], [a, b]: [&Strided<T>; 2]) -> bool {
    /// Multiplications below which a B whose columns are neighbours is read without a choice of tiles.
    const LEAST: usize = 1 << 13;
    let is_small = b.parts().1 == 1 && m.saturating_mul(n).saturating_mul(k) < LEAST;
    let fits = m > 1 && (1..=STEPS).contains(&k) && n >= VECTORS * kernels.lanes;
    fits && !is_small && a.is_dense() && b.is_dense()
}

/// How the rows and columns of a product are divided between tasks.
#[derive(Debug)]
struct ShallowTasks {
    rows: usize,
    cols: usize,
    down: usize,
    across: usize,
    /// Columns of which a task has a multiple, unless it is the last one.
    unit: usize,
}

impl ShallowTasks {
    fn new(lanes: usize, [m, n, k]: [usize; 3]) -> ShallowTasks {
        let wanted = (m.saturating_mul(n).saturating_mul(k) / TASK).clamp(1, TASKS);
        let unit = VECTORS * lanes;
        // Tasks of other columns turn nothing twice, and none has less than a tile's columns or rows.
        let across = power_of_two(wanted.min(n / COLUMNS).max(1));
        let down = power_of_two((wanted / across).min(m / (4 * HEIGHTS[0])).max(1));
        ShallowTasks { rows: m, cols: n, down, across, unit }
    }

    /// The rows and columns of a task.
    fn of(&self, task: usize) -> [Range<usize>; 2] {
        let rows = share(self.rows, HEIGHTS[0], self.down, task / self.across);
        [rows, share(self.cols, self.unit, self.across, task % self.across)]
    }
}

impl Engine {
    /// Computes a product of few steps into rows of `n` elements; `done` is told each finished part.
    ///
    /// # Safety
    ///
    /// [`is_shallow`] holds; the operands have these rows, columns and steps; `c` is writable for all rows, and nobody else
    /// uses these.
    pub(crate) unsafe fn multiply_shallow<T: Real>(
        &self,
        [m, n, k]: [usize; 3],
        [a, b]: [&Strided<T>; 2],
        c: *mut T,
        done: Done<'_>,
    ) {
        let kernels = T::kernels(self.level);
        let tasks = ShallowTasks::new(kernels.lanes, [m, n, k]);
        let out = Output { data: c, stride: n, rows: None };
        let run = |task: usize| {
            let [rows, cols] = tasks.of(task);
            let ((a, a_row, a_step), (b, b_col, b_step)) = (a.parts(), b.parts());
            let shallow = Shallow {
                rows: rows.len(),
                cols: cols.len(),
                steps: k,
                a: a.wrapping_offset(rows.start as isize * a_row),
                a_row: a_row.unsigned_abs(),
                a_step: a_step.unsigned_abs(),
                b: b.wrapping_offset(cols.start as isize * b_col),
                b_col: b_col.unsigned_abs(),
                b_step: b_step.unsigned_abs(),
                c: out.row(rows.start).wrapping_add(cols.start),
                c_row: n,
            };
            // SAFETY: the level is present; the operands hold these rows and columns, and those of the output are this
            // task's own.
            unsafe { (kernels.shallow)(&shallow) };
            done(rows, cols);
        };
        if is_one_task(m, n, k) {
            (0..tasks.down * tasks.across).for_each(run);
        } else {
            (self.parallel_for)(tasks.down * tasks.across, &run);
        }
    }
}

/// Turned steps of rows, of each all that a tile reads.
#[repr(align(64))]
struct StackPanel<T, const N: usize>([[MaybeUninit<T>; N]; STEPS]);

impl<T: Real, const N: usize> StackPanel<T, N> {
    /// A panel of which each element is written before it is read.
    fn new() -> Self {
        StackPanel([[MaybeUninit::uninit(); N]; STEPS])
    }

    /// The first element.
    fn data(&mut self) -> *mut T {
        self.0.as_mut_ptr().cast()
    }

    /// Copies `rows` rows that are neighbours, of steps at distance `pitch`, as [`turn`](Self::turn) leaves them.
    ///
    /// # Safety
    ///
    /// The instruction set of `S`; a vector of rows at least, which are readable, and no more than `N`; the steps are no
    /// more than [`STEPS`].
    #[inline(always)]
    unsafe fn copy<S: Simd<Elem = T>>(
        &mut self,
        from: *const T,
        pitch: usize,
        [rows, steps]: [usize; 2],
    ) -> (*const T, usize) {
        let to = self.data();
        // The last vector begins in the one before.
        for (step, row) in (0..steps).flat_map(|step| (0..rows).step_by(S::LANES).map(move |row| (step, row))) {
            let row = row.min(rows - S::LANES);
            // SAFETY: the rows are readable, and the panel has as many.
            unsafe { S::store(to.add(step * N + row), S::load(from.add(step * pitch + row))) };
        }
        (to, N)
    }

    /// Turns the steps of `rows` rows at distance `pitch`, and returns where they are and their distance.
    ///
    /// # Safety
    ///
    /// The rows are readable, and no more than `N`; the steps are no more than [`STEPS`].
    #[inline(always)]
    unsafe fn turn(&mut self, from: *const T, pitch: usize, [rows, steps]: [usize; 2]) -> (*const T, usize) {
        let to = self.data();
        // Blocks reach beyond the steps of a row into the next one, as far as there is one, and these are not looked at.
        let (whole, reach) = if steps < BLOCK && pitch + steps >= BLOCK { (rows - 1, BLOCK) } else { (rows, steps) };
        // SAFETY: the rows are readable up to the end of the last one; the panel has as many steps as a block.
        unsafe {
            if whole > 0 {
                let rows = std::slice::from_raw_parts(from, (whole - 1) * pitch + reach);
                exchange_to(rows, pitch, [whole, reach], to, N);
            }
            for (row, step) in (whole..rows).flat_map(|row| (0..steps).map(move |step| (row, step))) {
                *to.add(step * N + row) = *from.add(row * pitch + step);
            }
        }
        (to, N)
    }
}

/// Computes all rows and columns.
///
/// # Safety
///
/// The instruction set of `S`, and pointers valid for the extents.
#[inline(always)]
pub(super) unsafe fn shallow<S: Simd>(x: &Shallow<S::Elem>) {
    let width = VECTORS * S::LANES;
    let (mut row_panel, mut column_panel) = (StackPanel::<S::Elem, ROWS>::new(), StackPanel::<S::Elem, COLUMNS>::new());
    // Rows of B at such a distance share few sets of a cache, which cannot hold them until the next tile reads them.
    let is_crowded =
        x.steps > FEW_STEPS && x.rows > HEIGHTS[0] && (x.b_step * size_of::<S::Elem>()).is_multiple_of(CROWDED);
    let in_place = [x.a_row == 1, x.b_col == 1 && !is_crowded];
    let mut turned = None;
    for i in (0..x.rows).step_by(ROWS) {
        let rows = (x.rows - i).min(ROWS);
        // SAFETY: rows and columns inside the operands and C; the last columns begin in those before.
        unsafe {
            let from = x.a.add(i * x.a_row);
            let a = if in_place[0] { (from, x.a_step) } else { row_panel.turn(from, x.a_row, [rows, x.steps]) };
            for start in (0..x.cols).step_by(COLUMNS).map(|start| start.min(x.cols - width)) {
                let cols = (x.cols - start).min(COLUMNS);
                let from = x.b.add(start * x.b_col);
                let b = match turned {
                    _ if in_place[1] => (from, x.b_step),
                    Some((at, b)) if at == start => b,
                    Some(_) | None if x.b_col == 1 => column_panel.copy::<S>(from, x.b_step, [cols, x.steps]),
                    Some(_) | None => column_panel.turn(from, x.b_col, [cols, x.steps]),
                };
                turned = Some((start, b));
                block::<S>(x, [a, b], x.c.add(i * x.c_row + start), [rows, cols]);
            }
        }
    }
}

/// A block of C, tile by tile along its rows: tiles below each other would write to few sets of a cache.
#[inline(always)]
unsafe fn block<S: Simd>(
    x: &Shallow<S::Elem>,
    [a, b]: [(*const S::Elem, usize); 2],
    c: *mut S::Elem,
    [rows, cols]: [usize; 2],
) {
    let [high, low] = HEIGHTS;
    let mut i = 0;
    while i < rows {
        let left = rows - i;
        // SAFETY: the rows and columns are there.
        unsafe {
            if rows < low {
                tiles::<S, 1>(x, [(a.0.add(i), a.1), b], c.add(i * x.c_row), cols);
                i += 1;
            } else if left > 2 * low || left == high {
                tiles::<S, { HEIGHTS[0] }>(x, [(a.0.add(i), a.1), b], c.add(i * x.c_row), cols);
                i += high;
            } else {
                // Two low tiles in place of a high one and one most of which is there already.
                i = i.min(rows - low);
                tiles::<S, { HEIGHTS[1] }>(x, [(a.0.add(i), a.1), b], c.add(i * x.c_row), cols);
                i += low;
            }
        }
    }
}

/// The tiles of `M` rows.
#[inline(always)]
unsafe fn tiles<S: Simd, const M: usize>(
    x: &Shallow<S::Elem>,
    [a, (b, b_step)]: [(*const S::Elem, usize); 2],
    c: *mut S::Elem,
    cols: usize,
) {
    let width = VECTORS * S::LANES;
    for j in (0..cols).step_by(width).map(|j| j.min(cols - width)) {
        // SAFETY: the columns are there.
        unsafe { tile::<S, M>(x, [a, (b.add(j), b_step)], c.add(j)) };
    }
}

/// One tile of [`tiles`].
#[inline(always)]
unsafe fn tile<S: Simd, const M: usize>(
    x: &Shallow<S::Elem>,
    [(mut a, a_step), (mut b, b_step)]: [(*const S::Elem, usize); 2],
    c: *mut S::Elem,
) {
    // SAFETY: rows, columns and steps inside the operands and C.
    unsafe {
        let mut sums = [[S::zero(); VECTORS]; M];
        for _ in 0..x.steps {
            let row = [S::load(b), S::load(b.add(S::LANES))];
            for (i, sums) in sums.iter_mut().enumerate() {
                let factor = S::splat(a.add(i));
                for (sum, part) in sums.iter_mut().zip(row) {
                    *sum = S::mul_add(factor, part, *sum);
                }
            }
            // After the last step they point behind the operands.
            a = a.wrapping_add(a_step);
            b = b.wrapping_add(b_step);
        }
        for (i, sums) in sums.into_iter().enumerate() {
            for (v, sum) in sums.into_iter().enumerate() {
                S::store(c.add(i * x.c_row + v * S::LANES), sum);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_cover_rows_and_columns_once() {
        for (lanes, m, n) in [2, 4, 8, 16].into_iter().flat_map(|lanes| {
            [2, 7, 24, 100, 784, 6000].into_iter().flat_map(move |m| [32, 100, 128, 500, 6272].map(|n| (lanes, m, n)))
        }) {
            for k in [5, 16, 32] {
                let tasks = ShallowTasks::new(lanes, [m, n, k]);
                let mut covered = 0;
                for task in 0..tasks.down * tasks.across {
                    let [rows, cols] = tasks.of(task);
                    assert!(!rows.is_empty() && cols.len() >= VECTORS * lanes, "{tasks:?} {task}");
                    covered += rows.len() * cols.len();
                }
                assert_eq!(covered, m * n, "{tasks:?}");
            }
        }
    }

    /// Few rows and many columns, and many rows, are divided between threads.
    #[test]
    fn large_products_are_several_tasks() {
        for shape in [[32, 6272, 10], [128, 512, 10], [4096, 64, 10], [784, 128, 32]] {
            let tasks = ShallowTasks::new(8, shape);
            assert!(tasks.down * tasks.across >= 4, "{tasks:?}");
        }
    }
}
