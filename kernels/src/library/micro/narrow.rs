//! Products with few columns: rows of A are lanes, and elements of B are factors.
//!
//! Panels of columns would leave lanes of a vector empty, six of sixteen for ten columns. A whose rows are neighbours in
//! memory is read as it lies; else some steps of some rows at a time are turned. The chains of additions are those of
//! [`super::drive`], so that no bit differs: blocks of steps in order, and the parts of a long sum, each with tasks of its
//! own. The sums of a strip of rows stay in near memory, and are turned when they are complete.

use std::cell::Cell;
use std::ops::Range;

use super::drive::{Engine, Output};
use super::grid::is_one_task;
use super::pack::Strided;
use super::parts::PartTasks;
use super::simd::Simd;
use super::tile::Shortest;
use super::{Kernels, Real, block_depth, with_scratch};
use crate::library::exchange::{exchange, exchange_to};
use crate::library::view::CACHE_LINE;

/// Vectors of rows in a strip.
const VECTORS: usize = 4;

/// Steps that are turned at a time: with so many rows, a part of the nearest cache.
const STEPS: usize = 64;

/// Columns that registers hold the sums of, beside two vectors of rows.
const COLUMNS: usize = 6;

/// Columns up to which rows that are neighbours are read in place, once for each group of columns.
const FEW_COLUMNS: usize = 2 * COLUMNS;

/// Elements of A from which on it comes from memory, and sums that wait for the next block of its steps at most.
const FAR: usize = if cfg!(test) { 1 << 12 } else { 1 << 20 };
const MOST_SUMS: usize = 1 << 15;

/// Elements of B that are turned by a task.
const TURNED: usize = 1 << 14;

/// Some rows of a product, of which there is a vector at least.
pub(super) struct Narrow<T> {
    pub(super) rows: usize,
    pub(super) cols: usize,
    /// Length of the sums, and of their chains.
    pub(super) steps: usize,
    pub(super) depth: usize,
    /// A, the distance of its rows and that of its steps, one of which is 1.
    pub(super) a: *const T,
    pub(super) a_row: usize,
    pub(super) a_step: usize,
    /// B, whose columns are neighbours, and the distance of its steps.
    pub(super) b: *const T,
    pub(super) b_step: usize,
    /// C, whose columns are neighbours, and the distance of its rows.
    pub(super) c: *mut T,
    pub(super) c_row: usize,
    /// Memory for turned steps, and for sums: of a block of steps, and of the strips whose sums wait for the next block.
    pub(super) panel: *mut T,
    pub(super) sums: *mut T,
    /// Whether all strips of a block of steps come before the next block, whose rows are in memory after it.
    pub(super) by_blocks: bool,
}

/// Whether a product of `m` rows and `n` columns is computed with rows as lanes: where column panels would leave lanes
/// empty or, on vectors shorter than a cache line, if it has few columns, and sums so long that they are worth turning.
pub(crate) fn is_narrow<T: Real>(kernels: &Kernels<T>, [m, n, k]: [usize; 3], [a, b]: [&Strided<T>; 2]) -> bool {
    /// Columns of a product that has few.
    const FEW: usize = 128;
    /// Multiplications below which the turning of sums would cost more than empty lanes.
    const LEAST: usize = 1 << 11;
    /// Of so many lanes of its panels one would be empty.
    const WASTE: usize = 12;
    /// Steps, and rows where A alone or both operands are turned, that are worth it if no lane is empty.
    const LONG: usize = 64;
    const MANY: [usize; 2] = [32, 128];
    let lanes = kernels.lanes;
    let work = m.saturating_mul(n).saturating_mul(k);
    if n <= 1 || n >= FEW || m < lanes || work < LEAST || !a.is_dense() || !b.is_dense() {
        return false;
    }
    let is_short = lanes * size_of::<T>() < CACHE_LINE;
    let panels = n.next_multiple_of(kernels.width);
    let is_wasteful = (panels - n) * WASTE > panels && (is_short || !n.is_multiple_of(lanes));
    let is_flat = k <= super::shallow::STEPS && n >= 4 * kernels.width;
    let is_long = is_short && k >= LONG && m >= MANY[usize::from(b.parts().1 != 1)];
    (is_wasteful && !is_flat) || is_long
}

/// The tasks of a product of `m` rows, `n` columns and `k` steps.
fn tasks(lanes: usize, [m, n, k]: [usize; 3]) -> PartTasks {
    // Tiles of few columns need many rows to keep the multipliers busy.
    PartTasks::new([m, n, k], lanes * if n * 2 > COLUMNS { 2 } else { VECTORS })
}

/// B with columns that are neighbours, and the distance of its steps.
struct Factors<T>(*const T, usize);

// SAFETY: only read while tasks run.
unsafe impl<T: Sync> Sync for Factors<T> {}

impl Engine {
    /// Computes a product of few columns into rows of `n` elements; `done` is told the rows that are finished.
    ///
    /// # Safety
    ///
    /// [`is_narrow`] holds; the operands have these rows, columns and steps; `c` is writable for all rows, and nobody else
    /// uses these.
    pub(crate) unsafe fn multiply_narrow<T: Real>(
        &self,
        [m, n, k]: [usize; 3],
        [a, b]: [&Strided<T>; 2],
        c: *mut T,
        done: &(dyn Fn(Range<usize>) + Sync),
    ) {
        let tasks = tasks(T::kernels(self.level).lanes, [m, n, k]);
        let (data, outer, inner) = b.parts();
        let n_turned = if outer == 1 { 0 } else { n * k };
        with_scratch::<T, _>(n_turned, |turned| {
            let factors = if outer == 1 {
                Factors(data, inner.unsigned_abs())
            } else {
                // SAFETY: the rows of the operand, which has its elements by the contract of this function.
                unsafe { self.turn_factors([data.cast_mut(), turned.as_mut_ptr()], [n, k], outer.unsigned_abs()) };
                Factors(turned.as_ptr(), n)
            };
            let out = Output { data: c, stride: n, rows: None };
            if tasks.parts == 1 {
                // SAFETY: handed on.
                unsafe { self.narrow_tasks(&tasks, a, &factors, &out, done) };
                return;
            }
            with_scratch::<T, _>(m * n * tasks.parts, |partial| {
                let all = Output { data: partial.as_mut_ptr(), stride: n, rows: None };
                // SAFETY: the scratch has the rows of each part; the output is handed on.
                unsafe {
                    self.narrow_tasks(&tasks, a, &factors, &all, &|_| {});
                    self.add_parts(partial, [m, n], &out);
                }
            });
            done(0..m);
        });
    }

    /// Turns `n` rows of `k` elements at distance `row`, so that they are columns.
    ///
    /// # Safety
    ///
    /// The first pointer has these rows, and the second one is writable for as many elements.
    unsafe fn turn_factors<T: Real>(&self, [from, to]: [*mut T; 2], [n, k]: [usize; 2], row: usize) {
        let run = (TURNED / n).max(1);
        let [from, to] = [from, to].map(|data| Output { data, stride: 1, rows: None });
        (self.parallel_for)(k.div_ceil(run), &|task| {
            let steps = task * run..((task + 1) * run).min(k);
            let len = (n - 1) * row + steps.len();
            // SAFETY: these steps of all rows; no other task writes them.
            unsafe {
                let rows = std::slice::from_raw_parts(from.row(steps.start), len);
                exchange_to(rows, row, [n, steps.len()], to.row(steps.start * n), n);
            }
        });
    }

    /// Runs the tasks, of which each writes its rows of its part; the parts follow each other in `out`.
    ///
    /// # Safety
    ///
    /// As [`Engine::multiply_narrow`], for an output with the rows of each part.
    unsafe fn narrow_tasks<T: Real>(
        &self,
        tasks: &PartTasks,
        a: &Strided<T>,
        b: &Factors<T>,
        out: &Output<'_, T>,
        done: &(dyn Fn(Range<usize>) + Sync),
    ) {
        let (kernels, depth, n) = (T::kernels(self.level), block_depth(tasks.k), out.stride);
        let width = VECTORS * kernels.lanes;
        let run = |task: usize| {
            let (part, rows, steps) = tasks.of(task);
            let (a, a_row, a_step) = a.parts();
            // All rows of a step follow each other in memory, and so do the steps.
            let is_dense = a_row == 1 && a_step.unsigned_abs() == rows.len();
            let n_sums = strips(rows.len(), kernels.lanes).count() * n * width;
            let is_far = rows.len().saturating_mul(tasks.k) >= FAR && n_sums <= MOST_SUMS;
            let by_blocks = is_dense && is_far && steps.len() > depth;
            let n_sums = if by_blocks { n_sums } else { n * width };
            with_scratch::<T, _>((STEPS + n) * width + n_sums, |scratch| {
                let (panel, sums) = scratch.split_at_mut(STEPS * width);
                let narrow = Narrow {
                    rows: rows.len(),
                    cols: n,
                    steps: steps.len(),
                    depth,
                    a: a.wrapping_offset(rows.start as isize * a_row + steps.start as isize * a_step),
                    a_row: a_row.unsigned_abs(),
                    a_step: a_step.unsigned_abs(),
                    b: b.0.wrapping_add(steps.start * b.1),
                    b_step: b.1,
                    c: out.row(part * tasks.rows + rows.start),
                    c_row: n,
                    panel: panel.as_mut_ptr(),
                    sums: sums.as_mut_ptr(),
                    by_blocks,
                };
                // SAFETY: the level is present; the operands hold these rows and steps, and the rows of the output are
                // this task's own; the scratch has room.
                unsafe { (kernels.narrow)(&narrow) };
            });
            done(rows);
        };
        if is_one_task(tasks.rows, n, tasks.k) {
            (0..tasks.n_tasks()).for_each(run);
        } else {
            (self.parallel_for)(tasks.n_tasks(), &run);
        }
    }
}

/// The first row of each strip and its rows. The last strip has whole vectors as well: it begins in the one before.
fn strips(rows: usize, lanes: usize) -> impl Iterator<Item = [usize; 2]> {
    let mut end = 0;
    std::iter::from_fn(move || {
        let len = (rows - end).min(VECTORS * lanes).next_multiple_of(lanes).min(rows / lanes * lanes);
        let start = end.min(rows - len);
        let is_there = end < rows;
        end = start + len;
        is_there.then_some([start, len])
    })
}

/// Computes all rows.
///
/// # Safety
///
/// The instruction set of `S`, and pointers valid for the extents.
#[inline(always)]
pub(super) unsafe fn narrow<S: Simd>(x: &Narrow<S::Elem>) {
    let n_sums = x.cols * VECTORS * S::LANES;
    // SAFETY: rows and steps inside the operands, and there is memory for these sums.
    unsafe {
        if !x.by_blocks {
            let ahead = Cell::new((std::ptr::null(), 0));
            for strip in strips(x.rows, S::LANES) {
                for start in (0..x.steps).step_by(x.depth) {
                    strip_block::<S>(x, strip, start, [x.sums, x.sums.add(n_sums)], &ahead);
                }
                finish::<S>(x, strip[1], x.sums, x.c.add(strip[0] * x.c_row));
            }
            return;
        }
        for start in (0..x.steps).step_by(x.depth) {
            let next = (start + x.depth).min(x.steps);
            let (from, len) = (x.a.wrapping_add(next * x.a_step), (x.steps - next).min(x.depth) * x.a_step);
            let ahead = Cell::new((from, len));
            for (number, strip) in strips(x.rows, S::LANES).enumerate() {
                strip_block::<S>(x, strip, start, [x.sums.add((number + 1) * n_sums), x.sums], &ahead);
            }
        }
        for (number, [start, rows]) in strips(x.rows, S::LANES).enumerate() {
            finish::<S>(x, rows, x.sums.add((number + 1) * n_sums), x.c.add(start * x.c_row));
        }
    }
}

/// Some vectors of rows, over the steps of a block from `start` on: added to the sums of the blocks before, if there are
/// any.
#[inline(always)]
unsafe fn strip_block<S: Simd>(
    x: &Narrow<S::Elem>,
    [i, rows]: [usize; 2],
    start: usize,
    [all, block]: [*mut S::Elem; 2],
    ahead: &Cell<(*const S::Elem, usize)>,
) {
    let width = VECTORS * S::LANES;
    let in_place = x.a_row == 1 && x.cols <= FEW_COLUMNS;
    let run = if in_place { x.depth } else { STEPS };
    // SAFETY: rows and steps inside the operands; the memory for sums holds one for each row of a strip and column.
    unsafe {
        let end = (start + x.depth).min(x.steps);
        let sums = if start == 0 { all } else { block };
        for k in (start..end).step_by(run) {
            let steps = k..(k + run).min(end);
            let a = x.a.add(i * x.a_row + k * x.a_step);
            let group = RowGroup { a, a_step: x.a_step, rows, steps, sums, start, ahead };
            if in_place {
                groups::<S, true>(x, &group);
            } else {
                turn::<S>(x, &group);
                groups::<S, false>(x, &RowGroup { a: x.panel, a_step: width, ..group });
            }
        }
        if start > 0 {
            for at in (0..x.cols * width).step_by(S::LANES) {
                S::store(all.add(at), S::add(S::load(all.add(at)), S::load(block.add(at))));
            }
        }
    }
}

/// Some steps of a strip.
struct RowGroup<'a, T> {
    /// The steps of the first row, and their distance; rows are neighbours.
    a: *const T,
    a_step: usize,
    rows: usize,
    steps: Range<usize>,
    /// Where the sums are, and the first step of their chains.
    sums: *mut T,
    start: usize,
    /// Elements that the next block reads and that are not asked for yet: the first one and their number.
    ahead: &'a Cell<(*const T, usize)>,
}

/// Writes some steps of a strip to the panel, in which rows are neighbours.
#[inline(always)]
unsafe fn turn<S: Simd>(x: &Narrow<S::Elem>, group: &RowGroup<'_, S::Elem>) {
    let (width, rows, n) = (VECTORS * S::LANES, group.rows, group.steps.len());
    // SAFETY: rows and steps inside the operand, and the panel has room for them.
    unsafe {
        if x.a_row == 1 {
            for k in 0..n {
                for v in (0..rows).step_by(S::LANES) {
                    S::store(x.panel.add(k * width + v), S::load(group.a.add(k * x.a_step + v)));
                }
            }
            return;
        }
        let from = std::slice::from_raw_parts(group.a, (rows - 1) * x.a_row + n);
        let panel = std::slice::from_raw_parts_mut(x.panel, STEPS * width);
        exchange(from, x.a_row, [rows, n], panel, width);
    }
}

/// Some steps of all columns, in groups of as equal size as can be.
#[inline(always)]
unsafe fn groups<S: Simd, const IN_PLACE: bool>(x: &Narrow<S::Elem>, group: &RowGroup<'_, S::Elem>) {
    let n_groups = x.cols.div_ceil(COLUMNS);
    for index in 0..n_groups {
        let [j, end] = [index, index + 1].map(|index| x.cols * index / n_groups);
        // SAFETY: columns inside the operand and the sums.
        unsafe {
            match end - j {
                1 => columns::<S, 4, 1, IN_PLACE>(x, group, j),
                2 => columns::<S, 4, 2, IN_PLACE>(x, group, j),
                3 => columns::<S, 4, 3, IN_PLACE>(x, group, j),
                4 => columns::<S, 2, 4, IN_PLACE>(x, group, j),
                5 => columns::<S, 2, 5, IN_PLACE>(x, group, j),
                _ => columns::<S, 2, COLUMNS, IN_PLACE>(x, group, j),
            }
        }
    }
}

/// Some steps of `N` columns, `V` vectors of rows at a time.
#[inline(always)]
unsafe fn columns<S: Simd, const V: usize, const N: usize, const IN_PLACE: bool>(
    x: &Narrow<S::Elem>,
    group: &RowGroup<'_, S::Elem>,
    j: usize,
) {
    let mut row = 0;
    // SAFETY: the rows are there.
    unsafe {
        while group.rows - row >= V * S::LANES {
            tile::<S, V, N, IN_PLACE>(x, group, j, row);
            row += V * S::LANES;
        }
        while row < group.rows {
            tile::<S, 1, N, IN_PLACE>(x, group, j, row);
            row += S::LANES;
        }
    }
}

/// One tile of [`columns`].
#[inline(always)]
unsafe fn tile<S: Simd, const V: usize, const N: usize, const IN_PLACE: bool>(
    x: &Narrow<S::Elem>,
    group: &RowGroup<'_, S::Elem>,
    j: usize,
    row: usize,
) {
    let width = VECTORS * S::LANES;
    // SAFETY: rows, steps and columns inside the operands and the sums.
    unsafe {
        let at = |column: usize, v: usize| group.sums.add((j + column) * width + row + v * S::LANES);
        let mut sums = [[S::zero(); V]; N];
        if group.steps.start > group.start {
            for (column, sums) in sums.iter_mut().enumerate() {
                for (v, sum) in sums.iter_mut().enumerate() {
                    *sum = S::load(at(column, v));
                }
            }
        }
        let (mut a, mut b) = (group.a.add(row), x.b.add(group.steps.start * x.b_step + j));
        let (from, left) = group.ahead.get();
        let mut ahead = from;
        let line = if left == 0 { 0 } else { CACHE_LINE / size_of::<S::Elem>() };
        for _ in group.steps.clone() {
            if line > 0 {
                // As many as it takes to be through with them before the last tile of the block.
                for _ in 0..if IN_PLACE { V } else { 1 } {
                    S::prefetch_next(ahead);
                    ahead = ahead.wrapping_add(line);
                }
            }
            let mut lanes = [S::zero(); V];
            for (v, lanes) in lanes.iter_mut().enumerate() {
                if IN_PLACE {
                    // The next strip reads what follows.
                    S::prefetch(a.wrapping_add(width + v * S::LANES));
                }
                *lanes = S::load(a.add(v * S::LANES));
            }
            for (column, sums) in sums.iter_mut().enumerate() {
                let factor = S::splat(b.add(column));
                for (sum, lanes) in sums.iter_mut().zip(lanes) {
                    *sum = S::mul_add(lanes, factor, *sum);
                }
            }
            // After the last step they point behind the operands.
            a = a.wrapping_add(group.a_step);
            b = b.wrapping_add(x.b_step);
        }
        if left > 0 {
            let asked = ahead.addr().wrapping_sub(from.addr()) / size_of::<S::Elem>();
            group.ahead.set((ahead, left.saturating_sub(asked)));
        }
        for (column, sums) in sums.into_iter().enumerate() {
            for (v, sum) in sums.into_iter().enumerate() {
                S::store(at(column, v), sum);
            }
        }
    }
}

/// Writes the sums of a strip as rows.
#[inline(always)]
unsafe fn finish<S: Simd>(x: &Narrow<S::Elem>, rows: usize, all: *const S::Elem, c: *mut S::Elem) {
    /// Rows and columns of the least square, and of those of an exchange.
    const SIDES: [usize; 2] = [4, 8];
    let (width, n) = (VECTORS * S::LANES, x.cols);
    // SAFETY: the sums have all rows and columns, and so has C.
    unsafe {
        let mut i = 0;
        if n >= SIDES[1] {
            let sums = std::slice::from_raw_parts(all, n * width);
            exchange_to(sums, width, [n, rows], c, x.c_row);
            return;
        }
        while n >= SIDES[0] && rows - i >= SIDES[0] {
            // The last square of columns begins in the one before.
            for j in (0..n).step_by(SIDES[0]).map(|j| j.min(n - SIDES[0])) {
                let square = Shortest::<S>::columns(all.add(j * width + i), width);
                for (r, row) in square.into_iter().enumerate() {
                    c.add((i + r) * x.c_row + j).cast::<[S::Elem; SIDES[0]]>().write_unaligned(row);
                }
            }
            i += SIDES[0];
        }
        for i in i..rows {
            for j in 0..n {
                *c.add(i * x.c_row + j) = *all.add(j * width + i);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    /// Few rows with long sums, and many rows, are divided between threads.
    #[test]
    fn large_products_are_several_tasks() {
        for shape in [[32, 10, 6272], [32, 10, 512], [128, 10, 512], [6272, 10, 32], [512, 3, 128]] {
            let tasks = super::tasks(8, shape);
            assert!(tasks.n_tasks() >= 2, "{tasks:?}");
        }
    }
    /// Strips cover all rows with whole vectors, wherever these end.
    #[test]
    fn strips_cover_all_rows() {
        for (rows, lanes) in (4..300).flat_map(|rows| [4, 8, 16].map(|lanes| (rows, lanes))) {
            let mut end = 0;
            for [start, len] in super::strips(rows, lanes).take_while(|_| rows >= lanes) {
                assert!(start <= end && start + len > end && start + len <= rows, "{rows} {lanes}");
                assert!(len.is_multiple_of(lanes) && len <= super::VECTORS * lanes, "{rows} {lanes}");
                end = start + len;
            }
            assert!(end == rows || rows < lanes, "{rows} {lanes}");
        }
    }
}
