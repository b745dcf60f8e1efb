//! Splits a product into tasks and packs what each needs.
//!
//! Tasks are cut by shape alone. Three ways, by shape: a small product runs at once on its operands; a result that is
//! small beside its depth is cut along k, into partial results that are summed in order; everything else is cut into
//! tiles of C, which share packed column panels.

use std::ops::Range;

use super::pack::{Source, Strided};
use super::tile::{Block, CHUNK, Quick};
use super::{Kernels, Layout, Level, Real, block_depth, with_scratch};

/// Runs a body for each of `n` tasks, in any order and on any threads.
pub(crate) type ParallelFor = fn(usize, &(dyn Fn(usize) + Sync));

/// What products are computed with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Engine {
    /// Instruction set.
    pub(crate) level: Level,
    /// Runs tasks.
    pub(crate) parallel_for: ParallelFor,
    /// Whether small products may skip packing; no result depends on it.
    pub(crate) quick: bool,
}

impl Engine {
    /// The fastest for this machine.
    pub(crate) fn best() -> Engine {
        Engine { level: Level::best(), parallel_for: retape_runtime::parallel_for, quick: true }
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
    pub(crate) a: &'a dyn Source<T>,
    /// Columns of B.
    pub(crate) b: &'a dyn Source<T>,
    /// C.
    pub(crate) out: Output<'a, T>,
}

/// Called for each finished part of C, by rows and columns.
pub(crate) type Done<'a> = &'a (dyn Fn(Range<usize>, Range<usize>) + Sync);

/// Operations below which a product is not packed.
const QUICK: usize = 32 * 32 * 32;

/// Whether a product is so small that packing would cost more than it saves.
pub(crate) fn is_quick(m: usize, n: usize, k: usize) -> bool {
    m.saturating_mul(n).saturating_mul(k) <= QUICK && split_depth(m, n, k) >= k
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

/// Computes small products directly; `a` and `b` are given for each, `b` with unit row stride.
///
/// # Safety
///
/// `c` is writable for m rows of n elements at distance `stride`.
pub(crate) unsafe fn quick<T: Real>(
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
    let x = Quick { extent, a: a.parts(), b: (b_data, b_inner), c: (c, stride) };
    // SAFETY: the level is present, and the operands cover the extents by their own contract.
    unsafe { (T::kernels(level).quick)(&x) }
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
            for i in 0..x.m {
                // SAFETY: row `i` of the output, by the contract of `multiply`.
                let row = unsafe { std::slice::from_raw_parts_mut(x.out.row(i), x.n) };
                row.copy_from_slice(&partial[i * x.n..][..x.n]);
                for p in 1..parts {
                    let more = &partial[p * size + i * x.n..][..x.n];
                    row.iter_mut().zip(more).for_each(|(sum, y)| *sum = *sum + *y);
                }
            }
        });
    }

    /// One task for each tile of C; column panels are packed first, a strip of columns at a time.
    fn multiply_by_tiles<T: Real>(&self, x: &Product<'_, T>, done: Done<'_>) {
        /// Elements of packed column panels at a time.
        const STRIP: usize = 4 << 20;
        let kernels = T::kernels(self.level);
        let width = kernels.width;
        // Few rows do not pay for packing a B that can be read as it is.
        let direct = x.b.direct().filter(|_| x.m <= 2 * kernels.heights[0]);
        let depth = x.k.next_multiple_of(CHUNK) + CHUNK;
        let strip = (STRIP / depth / width * width).clamp(width, x.n.next_multiple_of(width));
        for start in (0..x.n).step_by(strip) {
            let cols = start..(start + strip).min(x.n);
            if let Some((b, row)) = direct {
                let columns = Columns { data: b, row, cols, packed: false, depth: x.k, width };
                self.tiles(&kernels, x, &columns, done);
            } else {
                let n_panels = cols.len().div_ceil(width);
                with_scratch::<T, _>(n_panels * width * x.k, |packed| {
                    let data = packed.as_mut_ptr();
                    let columns = Columns { data, row: width, cols, packed: true, depth: x.k, width };
                    self.pack_columns(x, &columns, data);
                    self.tiles(&kernels, x, &columns, done);
                });
            }
        }
    }

    /// Packs all column panels of a strip: for each panel all of k, in block order.
    fn pack_columns<T: Real>(&self, x: &Product<'_, T>, columns: &Columns<T>, packed: *mut T) {
        let depth = block_depth(x.k);
        let width = columns.width;
        let panels = columns.cols.len().div_ceil(width);
        // About 64 KiB elements to a task.
        let batch = ((1 << 16) / (width * x.k)).max(1);
        let out = Output { data: packed, stride: width * x.k, rows: None };
        let pack = |task: usize| {
            for panel in task * batch..((task + 1) * batch).min(panels) {
                let first = columns.cols.start + panel * width;
                let outer = first..(first + width).min(columns.cols.end);
                // SAFETY: the memory of this panel, which no other task uses.
                let to = unsafe { std::slice::from_raw_parts_mut(out.row(panel), width * x.k) };
                for (block, to) in to.chunks_mut(width * depth).enumerate() {
                    let steps = block * depth..((block + 1) * depth).min(x.k);
                    x.b.pack(outer.clone(), steps, Layout::Interleaved, width, to);
                }
            }
        };
        (self.parallel_for)(panels.div_ceil(batch), &pack);
    }

    /// Computes the tiles of one strip of columns.
    fn tiles<T: Real>(&self, kernels: &Kernels<T>, x: &Product<'_, T>, columns: &Columns<T>, done: Done<'_>) {
        let [rows, cols] = tile_extent(kernels, [x.m, columns.cols.len(), x.k]);
        let (down, across) = (x.m.div_ceil(rows), columns.cols.len().div_ceil(cols));
        (self.parallel_for)(down * across, &|task| {
            let (i, j) = (task / across * rows, columns.cols.start + task % across * cols);
            let rows = i..(i + rows).min(x.m);
            let cols = j..(j + cols).min(columns.cols.end);
            match x.out.rows {
                // SAFETY: this task's tile of the output.
                None => unsafe {
                    tile(kernels, x, columns, &rows, &cols, x.out.row(i).add(j), x.out.stride);
                },
                Some(_) => with_scratch::<T, _>(rows.len() * cols.len(), |c| {
                    // SAFETY: the scratch is a tile of its own; each row goes to a place no other task uses.
                    unsafe { tile(kernels, x, columns, &rows, &cols, c.as_mut_ptr(), cols.len()) };
                    for (row, from) in rows.clone().zip(c.chunks_exact(cols.len())) {
                        // SAFETY: as above.
                        unsafe { std::slice::from_raw_parts_mut(x.out.row(row).add(j), cols.len()) }
                            .copy_from_slice(from);
                    }
                }),
            }
            done(rows, cols);
        });
    }
}

impl<T> Output<'_, T> {
    /// The first element of row `i`.
    fn row(&self, i: usize) -> *mut T {
        let at = self.rows.map_or(i * self.stride, |place| place(i));
        // SAFETY: the contract of `multiply` covers all rows.
        unsafe { self.data.add(at) }
    }
}

/// B for a strip of columns: packed panels, or the operand itself.
struct Columns<T> {
    data: *const T,
    row: usize,
    cols: Range<usize>,
    packed: bool,
    depth: usize,
    width: usize,
}

// SAFETY: only read while tasks run.
unsafe impl<T: Sync> Sync for Columns<T> {}

impl<T> Columns<T> {
    /// The panel of column `j` (a multiple of the width within the strip) from step `k` on, and the distance of panels.
    fn panel(&self, j: usize, k: usize) -> (*const T, usize) {
        if self.packed {
            let at = (j - self.cols.start) * self.depth + k * self.width;
            // SAFETY: inside the packed strip.
            (unsafe { self.data.add(at) }, self.width * self.depth)
        } else {
            // SAFETY: inside the operand.
            (unsafe { self.data.add(k * self.row + j) }, self.width)
        }
    }
}

/// Rows and columns of a task: panels stay in the second-level cache, and there are tasks enough for many threads.
fn tile_extent<T>(kernels: &Kernels<T>, [m, n, k]: [usize; 3]) -> [usize; 2] {
    const TASKS: usize = 16;
    let (height, width) = (kernels.heights[0], kernels.width);
    let (mut rows, mut cols) = (192usize, 512usize.next_multiple_of(width));
    let tasks = |rows: usize, cols: usize| m.div_ceil(rows) * n.div_ceil(cols);
    while tasks(rows, cols) < TASKS && rows > 48 {
        rows /= 2;
    }
    // A task should outweigh its start.
    while tasks(rows, cols) < TASKS && cols > 2 * width && rows.min(m) * cols.min(n) * k > 1 << 20 {
        cols = (cols / 2).next_multiple_of(width);
    }
    if m * n * k <= 1 << 18 {
        // One task.
        return [m.next_multiple_of(height), n.next_multiple_of(width)];
    }
    let rows = m.div_ceil(m.div_ceil(rows)).next_multiple_of(height);
    [rows, n.div_ceil(n.div_ceil(cols)).next_multiple_of(width)]
}

/// Packs all row panels of `rows` and `steps`.
fn pack_rows<T: Real>(
    kernels: &Kernels<T>,
    a: &dyn Source<T>,
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

/// Computes one tile of C over all of k.
///
/// # Safety
///
/// `c` is writable for the rows and columns.
unsafe fn tile<T: Real>(
    kernels: &Kernels<T>,
    x: &Product<'_, T>,
    columns: &Columns<T>,
    rows: &Range<usize>,
    cols: &Range<usize>,
    c: *mut T,
    c_row: usize,
) {
    let (depth, width) = (block_depth(x.k), columns.width);
    let n_packed = rows.len().next_multiple_of(kernels.heights[0]) * depth;
    // Without packed panels the last, narrow panel would be read past its end.
    let n_whole = if columns.packed { cols.len() } else { cols.len() / width * width };
    with_scratch::<T, _>(n_packed + width * depth, |scratch| {
        let (a, narrow) = scratch.split_at_mut(n_packed);
        for start in (0..x.k).step_by(depth) {
            let steps = start..(start + depth).min(x.k);
            pack_rows(kernels, x.a, rows, &steps, a);
            let (b, b_panel) = columns.panel(cols.start, start);
            let whole = Block {
                rows: rows.len(),
                cols: n_whole,
                depth: steps.len(),
                a: a.as_ptr(),
                layout: x.a.layout(),
                b,
                b_panel,
                b_row: columns.row,
                c,
                c_row,
                fresh: start == 0,
            };
            // SAFETY: the level is present; panels and C cover the tile.
            unsafe { (kernels.block)(&whole) };
            if n_whole < cols.len() {
                x.b.pack(cols.start + n_whole..cols.end, steps, Layout::Interleaved, width, narrow);
                // SAFETY: the columns that are left.
                let c = unsafe { c.add(n_whole) };
                let rest = Block { cols: cols.len() - n_whole, b: narrow.as_ptr(), b_row: width, c, ..whole };
                // SAFETY: as above.
                unsafe { (kernels.block)(&rest) };
            }
        }
    });
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
            };
            // SAFETY: the level is present; panels and C cover the product.
            unsafe { (kernels.block)(&block) };
        }
    });
}
