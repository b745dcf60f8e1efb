//! Splits a product into tasks and packs what each needs.
//!
//! Tasks are cut by shape alone. Three ways, by shape: a small product runs at once on its operands; a result that is
//! small beside its depth is cut along k, into partial results that are summed in order; everything else is cut into
//! tiles of C. Tiles share column panels where several of them want the same, and row panels where these would be packed
//! often; a B that the second-level cache holds is not packed at all (ADR 42).

use std::ops::Range;

use smallvec::SmallVec;

use super::pack::{PanelSource, Strided};
use super::tile::{Block, CHUNK, Unpacked};
use super::{Kernels, Layout, Level, Real, block_depth, with_scratch};
use crate::library::view::vectorized;

/// Runs a body for each of `n` tasks, in any order and on any threads.
pub(crate) type ParallelFor = fn(usize, &(dyn Fn(usize) + Sync));

/// Tasks of neighbouring pieces.
const RUNS: usize = 64;

/// The machine that products are computed with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Engine {
    /// Instruction set.
    pub(crate) level: Level,
    /// Runs tasks.
    pub(crate) parallel_for: ParallelFor,
    /// Whether small products and those with a vector may skip packing; no result depends on it.
    pub(crate) unpacked: bool,
    /// Whether convolutions may choose what is a lane, how chains are grouped, and which images need no copy; no result
    /// depends on it.
    pub(crate) narrow: bool,
}

impl Engine {
    /// The fastest for this machine.
    pub(crate) fn best() -> Engine {
        Engine { level: Level::best(), parallel_for: retape_runtime::parallel_for, unpacked: true, narrow: true }
    }

    /// Runs a body for each of `n` pieces, whose results follow each other, in at most [`RUNS`] tasks of neighbours.
    /// Where threads took small pieces in turn, each would ask ahead for memory that another one writes.
    pub(crate) fn for_each_in_runs(&self, n: usize, body: &(dyn Fn(usize) + Sync)) {
        let run = n.div_ceil(RUNS).max(1);
        (self.parallel_for)(n.div_ceil(run), &|i| (i * run..n.min((i + 1) * run)).for_each(body));
    }
}

/// Where a product goes: rows of neighbours in memory.
pub(crate) struct Output<'a, T> {
    /// First element.
    pub(crate) data: *mut T,
    /// Elements from one row to the next.
    pub(crate) stride: usize,
    /// Place of each row, where rows have no common distance.
    pub(crate) rows: Option<&'a (dyn Fn(usize) -> usize + Sync)>,
}

// SAFETY: tasks write disjoint rows or columns.
unsafe impl<T: Send> Sync for Output<'_, T> {}

/// C = A B, where C is m by n, and A has k columns.
pub(crate) struct Product<'a, T> {
    /// Rows of C.
    pub(crate) m: usize,
    /// Columns of C.
    pub(crate) n: usize,
    /// Steps.
    pub(crate) k: usize,
    /// Rows of A.
    pub(crate) a: &'a dyn PanelSource<T>,
    /// Columns of B.
    pub(crate) b: &'a dyn PanelSource<T>,
    /// C.
    pub(crate) out: Output<'a, T>,
}

/// Called for each finished part of C, by rows and columns.
pub(crate) type Done<'a> = &'a (dyn Fn(Range<usize>, Range<usize>) + Sync);

/// Most rows of a task, and of a product whose tasks differ in columns only.
const ROWS: usize = 192;

/// Operations below which a product is not packed.
const MAX_UNPACKED: usize = 32 * 32 * 32;

/// Whether a product is so small that packing would cost more than it saves.
pub(crate) fn is_unpacked(m: usize, n: usize, k: usize) -> bool {
    m.saturating_mul(n).saturating_mul(k) <= MAX_UNPACKED && !is_split(m, n, k)
}

/// Elements of partial results that a task adds up.
const SUM_TASK: usize = 1 << 15;

/// Elements of a task that packs.
const PACK_TASK: usize = 1 << 15;

/// Operations of a task at least.
const MIN_TASK: usize = 1 << 17;

/// Whether a product that is not cut along k is one task, however many threads there are.
pub(crate) fn is_one_task(m: usize, n: usize, k: usize) -> bool {
    m.saturating_mul(n).saturating_mul(k) <= MIN_TASK
}

/// Whether a product is cut along k.
pub(crate) fn is_split(m: usize, n: usize, k: usize) -> bool {
    split_depth(m, n, k) < k
}

/// The number of steps of each partial result, a multiple of the block depth; `k` or more if k is not cut.
pub(crate) fn split_depth(m: usize, n: usize, k: usize) -> usize {
    const PARTS: usize = 16;
    if k < 2048 || k < 8 * m.max(n) {
        return k.max(1);
    }
    let depth = block_depth(k);
    k.div_ceil(PARTS).next_multiple_of(depth).max(2 * depth)
}

/// Row panels that read B too few times to pay for packing it.
const FEW_PANELS: usize = 4;

/// Elements of A, and of column panels of B, that are packed at a time for all tasks.
const STRIP: usize = 4 << 20;

/// Whether a block of steps of a B with so many elements to a row stays in a second-level cache beside what else is
/// there: by the distance of its ends, since rows at a power of two share few sets.
fn stays_in_cache<T>(row: usize, k: usize) -> bool {
    const BYTES: usize = 512 << 10;
    row.saturating_mul(block_depth(k)).saturating_mul(size_of::<T>()) <= BYTES
}

/// Sums of the elements from `at` on of partial results of `size` elements, in order.
#[inline(always)]
fn add_up<T: Real>(to: &mut [T], partial: &[T], at: usize, size: usize) {
    /// Sums that registers hold until they are complete.
    const BLOCK: usize = 64;
    let parts: SmallVec<[&[T]; 16]> = partial.chunks_exact(size).map(|part| &part[at..at + to.len()]).collect();
    let [first, more @ ..] = &parts[..] else { return };
    for (block, to) in to.chunks_mut(BLOCK).enumerate() {
        let block = block * BLOCK..block * BLOCK + to.len();
        to.copy_from_slice(&first[block.clone()]);
        if let Ok(to) = <&mut [T; BLOCK]>::try_from(&mut *to) {
            let mut sums = *to;
            for part in more {
                sums.iter_mut().zip(&part[block.clone()]).for_each(|(sum, y)| *sum = *sum + *y);
            }
            *to = sums;
        } else {
            for part in more {
                to.iter_mut().zip(&part[block.clone()]).for_each(|(sum, y)| *sum = *sum + *y);
            }
        }
    }
}

/// Computes small products directly; `a` and `b` are given for each, `b` with unit row stride.
///
/// # Safety
///
/// `c` is writable for m rows of n elements at distance `stride`.
pub(crate) unsafe fn unpacked<T: Real>(
    level: Level,
    extent: [usize; 3],
    a: &Strided<T>,
    b: &Strided<T>,
    c: *mut T,
    stride: usize,
) {
    let [m, n, k] = extent;
    let (b_data, b_outer, b_inner) = b.parts();
    debug_assert!(b_outer == 1 || n == 1, "columns are neighbours");
    if k == 0 {
        for i in 0..m {
            // SAFETY: row `i` of the output.
            unsafe { std::slice::from_raw_parts_mut(c.add(i * stride), n) }.fill(T::ZERO);
        }
        return;
    }
    let x = Unpacked { extent, a: a.parts(), b: (b_data, b_inner), c: (c, stride) };
    // SAFETY: the level is present, and the operands cover the extents by their own contract.
    unsafe { (T::kernels(level).unpacked)(&x) }
}

impl Engine {
    /// Computes a product that is not empty; `done` is told each finished part.
    ///
    /// # Safety
    ///
    /// The output is writable for m rows of n elements, and nobody else uses these.
    pub(crate) unsafe fn multiply<T: Real>(&self, x: &Product<'_, T>, done: Done<'_>) {
        if x.m == 0 || x.n == 0 {
            return;
        }
        if x.k == 0 {
            self.clear(x);
            done(0..x.m, 0..x.n);
            return;
        }
        let part = split_depth(x.m, x.n, x.k);
        if part < x.k {
            self.multiply_by_depth(x, part);
            done(0..x.m, 0..x.n);
        } else {
            self.multiply_by_tiles(x, done);
        }
    }

    /// Writes zeros.
    fn clear<T: Real>(&self, x: &Product<'_, T>) {
        for i in 0..x.m {
            // SAFETY: row `i` of the output, by the contract of `multiply`.
            unsafe { std::slice::from_raw_parts_mut(x.out.row(i), x.n) }.fill(T::ZERO);
        }
    }

    /// One task for each part of k; the partial results are summed in order.
    fn multiply_by_depth<T: Real>(&self, x: &Product<'_, T>, part: usize) {
        let kernels = T::kernels(self.level);
        let size = x.m * x.n;
        let parts = x.k.div_ceil(part);
        with_scratch::<T, _>(size * parts, |partial| {
            let all = Output { data: partial.as_mut_ptr(), stride: x.n, rows: None };
            (self.parallel_for)(parts, &|p| {
                let steps = p * part..((p + 1) * part).min(x.k);
                // SAFETY: part `p` of the scratch, which no other task uses.
                unsafe { alone(&kernels, x, steps, all.row(p * x.m), x.n) }
            });
            // SAFETY: by the contract of `multiply`.
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

    /// One task for each tile of C; column panels are packed first, a strip of columns at a time.
    fn multiply_by_tiles<T: Real>(&self, x: &Product<'_, T>, done: Done<'_>) {
        let kernels = T::kernels(self.level);
        let width = kernels.width;
        // Packing pays where panels would come from far away more than once.
        let direct =
            x.b.direct().filter(|&(_, row)| x.m <= FEW_PANELS * kernels.heights[0] || stays_in_cache::<T>(row, x.k));
        if let Some((data, row)) = direct {
            let (source, whole) = (ColumnSource::Operand, x.n / width * width);
            let columns = Columns { source, data, row, panel: width, block: row, cols: 0..x.n, whole };
            self.tiles(&kernels, x, &columns, done);
            return;
        }
        if x.m <= ROWS {
            let (source, data, whole) = (ColumnSource::Tasks, std::ptr::null(), 0);
            let columns = Columns { source, data, row: 0, panel: 0, block: 0, cols: 0..x.n, whole };
            self.tiles(&kernels, x, &columns, done);
            return;
        }
        let depth = x.k.next_multiple_of(CHUNK);
        let strip = (STRIP / depth).max(width);
        let strip = x.n.div_ceil(x.n.div_ceil(strip)).next_multiple_of(width);
        for start in (0..x.n).step_by(strip) {
            let cols = start..(start + strip).min(x.n);
            let n_panels = cols.len().div_ceil(width);
            with_scratch::<T, _>(n_panels * width * x.k, |packed| {
                self.pack_columns(x.b, &cols, x.k, packed);
                let (source, data, whole) = (ColumnSource::Panels, packed.as_ptr(), cols.end);
                let columns = Columns { source, data, row: width, panel: width * x.k, block: width, cols, whole };
                self.tiles(&kernels, x, &columns, done);
            });
        }
    }

    /// Packs all row panels of `m` rows and `k` steps: for each block of steps, all panels.
    fn pack_all_rows<T: Real>(
        &self,
        kernels: &Kernels<T>,
        a: &dyn PanelSource<T>,
        [m, k]: [usize; 2],
        packed: &mut [T],
    ) {
        let (depth, height) = (block_depth(k), kernels.heights[0]);
        let batch = (PACK_TASK / (height * k)).max(1) * height;
        let rows = m.next_multiple_of(height);
        let out = Output { data: packed.as_mut_ptr(), stride: 1, rows: None };
        (self.parallel_for)(m.div_ceil(batch), &|task| {
            let part = task * batch..((task + 1) * batch).min(m);
            for start in (0..k).step_by(depth) {
                let steps = start..(start + depth).min(k);
                let pitch = steps.len().next_multiple_of(CHUNK);
                let (at, len) = (start * rows + part.start * pitch, part.len().next_multiple_of(height) * pitch);
                // SAFETY: the panels of these rows and steps, which no other task uses.
                let to = unsafe { std::slice::from_raw_parts_mut(out.row(at), len) };
                pack_rows(kernels, a, &part, &steps, to);
            }
        });
    }

    /// Packs all column panels of `cols` of an operand of `k` steps: for each panel all of k, in block order.
    pub(super) fn pack_columns<T: Real>(
        &self,
        b: &dyn PanelSource<T>,
        cols: &Range<usize>,
        k: usize,
        packed: &mut [T],
    ) {
        /// Panels that are written together, so that what lies in one row of the operand is read at once.
        const PANELS: usize = 8;
        /// Steps of a panel that are written at a time.
        const STEPS: usize = 32;
        let (depth, width) = (block_depth(k), T::kernels(self.level).width);
        let panels = cols.len().div_ceil(width);
        let batch = (PACK_TASK / (width * depth)).max(PANELS);
        let blocks = k.div_ceil(depth);
        let n_steps = if b.layout() == Layout::Interleaved { STEPS } else { depth };
        let out = Output { data: packed.as_mut_ptr(), stride: width * k, rows: None };
        (self.parallel_for)(panels.div_ceil(batch) * blocks, &|task| {
            let (first, block) = (task / blocks * batch, task % blocks * depth);
            let end = (block + depth).min(k);
            for start in (block..end).step_by(n_steps) {
                let steps = start..(start + n_steps).min(end);
                for panel in first..(first + batch).min(panels) {
                    let outer = cols.start + panel * width;
                    // SAFETY: the steps of this panel, which no other task uses.
                    let to = unsafe {
                        std::slice::from_raw_parts_mut(out.row(panel).add(start * width), steps.len() * width)
                    };
                    b.pack(outer..(outer + width).min(cols.end), steps.clone(), Layout::Interleaved, width, to);
                }
            }
        });
    }

    /// Computes the tiles of one strip of columns.
    fn tiles<T: Real>(&self, kernels: &Kernels<T>, x: &Product<'_, T>, columns: &Columns<T>, done: Done<'_>) {
        let grid = Grid::new(kernels, [x.m, columns.cols.len(), x.k], columns.source);
        let run = |packed: Option<&[T]>| {
            (self.parallel_for)(grid.down * grid.across, &|task| {
                let rows = grid.rows(x.m, task / grid.across);
                let cols = grid.cols(columns.cols.len(), task % grid.across);
                if rows.is_empty() || cols.is_empty() {
                    return;
                }
                let cols = columns.cols.start + cols.start..columns.cols.start + cols.end;
                ProductTask { kernels, product: x, packed, columns }.run(&rows, &cols);
                done(rows, cols);
            });
        };
        // Where many tasks have the same rows and few columns, they share the panels.
        let n_shared = x.m.next_multiple_of(kernels.heights[0]).saturating_mul(x.k.next_multiple_of(CHUNK));
        if columns.source == ColumnSource::Tasks && grid.across > 2 && n_shared <= STRIP {
            with_scratch::<T, _>(n_shared, |packed| {
                self.pack_all_rows(kernels, x.a, [x.m, x.k], packed);
                run(Some(packed));
            });
        } else {
            run(None);
        }
    }
}

impl<T> Output<'_, T> {
    /// The first element of row `i`.
    pub(super) fn row(&self, i: usize) -> *mut T {
        let at = self.rows.map_or(i * self.stride, |place| place(i));
        // SAFETY: the contract of `multiply` covers all rows.
        unsafe { self.data.add(at) }
    }
}

/// Where tasks find column panels.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ColumnSource {
    /// In the operand, whose rows are neighbours in memory.
    Operand,
    /// In panels that were packed for all.
    Panels,
    /// Each packs them just before their use.
    Tasks,
}

/// B for a strip of columns: packed panels, or the operand itself.
struct Columns<T> {
    /// Where the panels are found, except those of an edge.
    source: ColumnSource,
    /// First element of the first panel; not used if `whole` is 0.
    data: *const T,
    /// Elements from one step to the next in a panel.
    row: usize,
    /// Elements from one panel to the next.
    panel: usize,
    /// Elements for each step that precedes a block.
    block: usize,
    /// The strip.
    cols: Range<usize>,
    /// The end of the columns that `data` has; each task packs those that follow.
    whole: usize,
}

// SAFETY: only read while tasks run.
unsafe impl<T: Sync> Sync for Columns<T> {}

/// How the tasks of a product divide its rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Grid {
    /// Tasks below each other, and side by side.
    down: usize,
    across: usize,
    /// Rows and columns of which a task has a multiple, unless it is the last one.
    unit: [usize; 2],
}

impl Grid {
    /// Panels of a task stay in the second-level cache, there are tasks enough for many threads, and they have equal
    /// shares, as far as their units allow.
    fn new<T>(kernels: &Kernels<T>, [m, n, k]: [usize; 3], source: ColumnSource) -> Grid {
        const TASKS: usize = 16;
        /// Operations that outweigh the start of a task.
        const TASK: usize = 1 << 19;
        /// Columns of a task at most, and those over which the packing of its rows weighs little.
        const COLUMNS: [usize; 2] = [512, 128];
        let [height, _, least] = kernels.heights;
        if is_one_task(m, n, k) {
            return Grid { down: 1, across: 1, unit: [height, kernels.width] };
        }
        if source == ColumnSource::Tasks {
            return Grid::across(kernels, [m, n, k]);
        }
        let work = m.saturating_mul(n).saturating_mul(k);
        let wanted = (work / TASK).clamp(2, TASKS);
        let across = n.div_ceil(COLUMNS[0]);
        // Tasks of different rows pack nothing twice. A power of two of them occupies as many threads evenly.
        // Packed panels come from farther away than a B that a cache holds, and should serve more rows.
        let least_rows = if source == ColumnSource::Panels { 8 * height } else { 2 * height };
        let share = wanted.div_ceil(across).min(m / least_rows).max(1);
        let least_down = m.div_ceil(ROWS).next_multiple_of(if m > 4 * ROWS { 4 } else { 1 });
        let down = least_down.max(1 << share.ilog2());
        let across = across.max(wanted.div_ceil(down).min(n / COLUMNS[1]));
        Grid { down, across, unit: [least, kernels.width] }
    }

    /// Tasks that differ in columns alone, each of which packs its own.
    fn across<T>(kernels: &Kernels<T>, [m, n, k]: [usize; 3]) -> Grid {
        const TASKS: usize = 16;
        /// Operations that outweigh the start of a task, and its share of packing.
        const TASK: usize = 1 << 20;
        let width = kernels.width;
        let mut cols = 2048usize.next_multiple_of(width);
        let is_large = |cols: usize| {
            let work = m.saturating_mul(cols.min(n)).saturating_mul(k);
            let n_tasks = n.div_ceil(cols);
            n_tasks < TASKS && work > TASK || n_tasks < 2 && !is_one_task(m, cols.min(n), k)
        };
        while is_large(cols) && cols > 2 * width {
            cols = (cols / 2).next_multiple_of(width);
        }
        Grid { down: 1, across: n.div_ceil(cols), unit: [kernels.heights[0], width] }
    }

    /// The rows of the tasks at place `i` from above, of `m`.
    fn rows(&self, m: usize, i: usize) -> Range<usize> {
        share(m, self.unit[0], self.down, i)
    }

    /// The columns of the tasks at place `j` from the left, of `n`.
    fn cols(&self, n: usize, j: usize) -> Range<usize> {
        share(n, self.unit[1], self.across, j)
    }
}

/// Share `index` of `n` equal ones of `extent` elements, in whole units; some are empty where there are few units.
pub(super) fn share(extent: usize, unit: usize, n: usize, index: usize) -> Range<usize> {
    let units = extent.div_ceil(unit);
    let start = |index: usize| (units * index / n * unit).min(extent);
    start(index)..start(index + 1)
}

/// Packs all row panels of `rows` and `steps`.
pub(super) fn pack_rows<T: Real>(
    kernels: &Kernels<T>,
    a: &dyn PanelSource<T>,
    rows: &Range<usize>,
    steps: &Range<usize>,
    packed: &mut [T],
) {
    let height = kernels.heights[0];
    let pitch = height * steps.len().next_multiple_of(CHUNK);
    for (i, panel) in rows.clone().step_by(height).zip(packed.chunks_mut(pitch)) {
        let outer = i..(i + height).min(rows.end);
        let width = kernels.height_for(outer.len());
        a.pack(outer, steps.clone(), a.layout(), width, panel);
    }
}

/// The parts of a product that its tasks share.
struct ProductTask<'a, T> {
    kernels: &'a Kernels<T>,
    product: &'a Product<'a, T>,
    /// All row panels, if they are packed already.
    packed: Option<&'a [T]>,
    columns: &'a Columns<T>,
}

impl<T: Real> ProductTask<'_, T> {
    /// Computes one tile of C, which no other task writes.
    fn run(&self, rows: &Range<usize>, cols: &Range<usize>) {
        let out = &self.product.out;
        match out.rows {
            // SAFETY: this task's tile of the output.
            None => unsafe { self.tile(rows, cols, out.row(rows.start).add(cols.start), out.stride) },
            Some(_) => with_scratch::<T, _>(rows.len() * cols.len(), |c| {
                // SAFETY: the scratch is a tile of its own; each row goes to a place no other task uses.
                unsafe { self.tile(rows, cols, c.as_mut_ptr(), cols.len()) };
                for (row, from) in rows.clone().zip(c.chunks_exact(cols.len())) {
                    // SAFETY: as above.
                    unsafe { std::slice::from_raw_parts_mut(out.row(row).add(cols.start), cols.len()) }
                        .copy_from_slice(from);
                }
            }),
        }
    }

    /// The row panels of some steps: those that all tasks share, or packed to `scratch`.
    fn row_panels<'s>(&'s self, rows: &Range<usize>, steps: &Range<usize>, scratch: &'s mut [T]) -> &'s [T] {
        let (x, height) = (self.product, self.kernels.heights[0]);
        match self.packed {
            Some(packed) => {
                let at = steps.start * x.m.next_multiple_of(height) + rows.start * steps.len().next_multiple_of(CHUNK);
                &packed[at..]
            }
            None => {
                pack_rows(self.kernels, x.a, rows, steps, scratch);
                scratch
            }
        }
    }

    /// Computes one tile of C over all of k.
    ///
    /// # Safety
    ///
    /// `c` is writable for the rows and columns.
    unsafe fn tile(&self, rows: &Range<usize>, cols: &Range<usize>, c: *mut T, c_row: usize) {
        let ProductTask { kernels, product: x, packed, columns } = *self;
        let (depth, width) = (block_depth(x.k), kernels.width);
        let n_packed = if packed.is_some() { 0 } else { rows.len().next_multiple_of(kernels.heights[0]) * depth };
        let whole = columns.whole.clamp(cols.start, cols.end);
        // Between the blocks of a long chain, sums wait in memory of their own: rows of C may lie a page apart, in few
        // sets of the caches.
        let has_sums = x.k > 2 * depth && c_row > cols.len();
        let sums_row = cols.len().next_multiple_of(width) + CHUNK;
        let n_sums = if has_sums { rows.len() * sums_row } else { 0 };
        with_scratch::<T, _>(n_packed + width * depth + n_sums, |scratch| {
            let (a, scratch) = scratch.split_at_mut(n_packed);
            let (narrow, sums) = scratch.split_at_mut(width * depth);
            let (before, before_row) = if has_sums { (sums.as_mut_ptr(), sums_row) } else { (c, c_row) };
            for start in (0..x.k).step_by(depth) {
                let steps = start..(start + depth).min(x.k);
                let a = self.row_panels(rows, &steps, a);
                let first = (cols.start - columns.cols.start) / width * columns.panel + start * columns.block;
                let (c, c_row) = if steps.end < x.k { (before, before_row) } else { (c, c_row) };
                let mut block = Block {
                    rows: rows.len(),
                    cols: whole - cols.start,
                    depth: steps.len(),
                    a: a.as_ptr(),
                    layout: x.a.layout(),
                    b: columns.data.wrapping_add(first),
                    b_panel: columns.panel,
                    b_row: columns.row,
                    c,
                    c_row,
                    fresh: start == 0,
                    before,
                    before_row,
                };
                // SAFETY: the level is present; panels and C cover the tile.
                unsafe { (kernels.block)(&block) };
                for j in (whole..cols.end).step_by(width) {
                    let outer = j..(j + width).min(cols.end);
                    (block.cols, block.b_row) = (outer.len(), width);
                    x.b.pack(outer, steps.clone(), Layout::Interleaved, width, narrow);
                    block.b = narrow.as_ptr();
                    block.c = c.wrapping_add(j - cols.start);
                    block.before = before.wrapping_add(j - cols.start);
                    // SAFETY: as above.
                    unsafe { (kernels.block)(&block) };
                }
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
    let (depth, width) = (block_depth(x.k), kernels.width);
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
            let block = Block {
                rows: x.m,
                cols: x.n,
                depth: now.len(),
                a: a.as_ptr(),
                layout: x.a.layout(),
                b: b.as_ptr(),
                b_panel: width * depth,
                b_row: width,
                c,
                c_row,
                fresh: start == steps.start,
                before: c,
                before_row: c_row,
            };
            // SAFETY: the level is present; panels and C cover the product.
            unsafe { (kernels.block)(&block) };
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// Tasks cover rows and columns once, begin at whole panels, and are no higher than a task may be.
    #[test]
    fn tasks_cover_a_product_once() {
        let extents = [1, 2, 11, 12, 13, 23, 24, 31, 33, 48, 95, 97, 191, 193, 512, 769, 1031, 6272];
        for level in Level::available() {
            let kernels = <f32 as Real>::kernels(level);
            for [m, n] in extents.iter().flat_map(|m| extents.map(|n| [*m, n])) {
                for (k, source) in [1, 40, 1000].into_iter().flat_map(|k| {
                    [ColumnSource::Operand, ColumnSource::Panels, ColumnSource::Tasks].map(|source| (k, source))
                }) {
                    if source == ColumnSource::Tasks && m > ROWS {
                        continue;
                    }
                    let grid = Grid::new(&kernels, [m, n, k], source);
                    let all = |ranges: Vec<Range<usize>>, extent: usize, unit: usize| {
                        let mut end = 0;
                        for range in ranges {
                            assert!(
                                range.start == end && (end.is_multiple_of(unit) || end == extent),
                                "{grid:?} {m} {n}"
                            );
                            end = range.end;
                        }
                        assert_eq!(end, extent, "{grid:?} {m} {n} {k}");
                    };
                    let rows: Vec<_> = (0..grid.down).map(|i| grid.rows(m, i)).collect();
                    let highest = rows.iter().map(Range::len).max().unwrap_or(0);
                    assert!(highest <= ROWS + kernels.heights[0] || is_one_task(m, n, k), "{grid:?} {m} {n} {k}");
                    all(rows, m, kernels.heights[2]);
                    all((0..grid.across).map(|j| grid.cols(n, j)).collect(), n, kernels.width);
                }
            }
        }
    }

    /// Rows that are divided between threads have equal shares: the one with the most work has little more than the mean.
    #[test]
    fn tasks_have_equal_shares() {
        let kernels = <f32 as Real>::kernels(Level::best());
        for m in [48, 64, 96, 100, 128, 256, 512, 1024, 2048] {
            let grid = Grid::new(&kernels, [m, 512, 512], ColumnSource::Operand);
            let most = (0..grid.down).map(|i| grid.rows(m, i).len()).max().unwrap_or(0);
            assert!(
                grid.down.is_multiple_of(2) && most * grid.down <= m + grid.down * kernels.heights[1],
                "{m}: {grid:?}"
            );
        }
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
}
