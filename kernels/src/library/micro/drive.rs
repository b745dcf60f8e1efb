//! Splits a product into tasks and packs what each needs.
//!
//! Tasks are cut by shape alone. Three ways, by shape: a small product runs at once on its operands; a result that is
//! small beside its depth is cut along k, into partial results that are summed in order; everything else is cut into
//! tiles of C. Tiles share column panels where several of them want the same, and row panels where each packs few columns
//! of its own, or long vectors a turned A (ADR 73), or an A that is gathered, such as windows of an image (ADR 109); a B
//! that the second-level cache holds is not packed at all (ADR 42), nor one of a product that is cut along k
//! (`split_k.rs`), if its columns are neighbours.
//! Tasks copy row panels while they multiply, or read rows in place (ADR 79), and column panels as well if the nearest cache
//! has room for them (ADR 63, 69, 70), or if B lies in memory (ADR 107).

use std::ops::Range;

use super::copy::{Ahead, PAGE, Staging};
use super::grid::{ColumnSource, Grid, ROWS, is_far, rows_of_copies};
use super::pack::{CHUNK, PanelSource};
use super::tile::Block;
use super::{Kernels, Layout, Level, Real, block_depth, with_scratch};

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
    /// Whether tasks run side by side, so that a product, the gradient of a filter or groups of channels are worth dividing; no
    /// result depends on it.
    pub(crate) divides: bool,
    /// Whether small products and those with a vector may skip packing, and others read their right operand in place, as
    /// convolutions do their filter; no result depends on it.
    pub(crate) unpacked: bool,
    /// Whether convolutions may choose what is a lane, how chains are grouped, which images need no copy and which taps
    /// are left out; no result depends on it, the sign of a sum that has vanished aside.
    pub(crate) narrow: bool,
}

impl Engine {
    /// The fastest for this machine.
    pub(crate) fn best() -> Engine {
        let parallel_for = retape_runtime::parallel_for;
        Engine { level: Level::best(), parallel_for, divides: true, unpacked: true, narrow: true }
    }

    /// The same without threads, for one of several products that tasks compute.
    pub(crate) fn alone(&self) -> Engine {
        Engine { parallel_for: |n, body| (0..n).for_each(body), divides: false, ..*self }
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

/// Elements of a task that packs.
const PACK_TASK: usize = 1 << 15;

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

/// Elements that are packed at a time for all tasks: of A, and of column panels of B, fewer than of A, as caches hold these
/// while all rows pass over them.
const STRIP: [usize; 2] = [4 << 20, 1 << 20];

/// Columns of a strip at least, if these are no more elements than are packed of A: rows are copied once more for each
/// strip.
const LEAST_STRIP: usize = 512;

/// Steps of a panel that are written at a time where rows become columns: they stay in the nearest cache meanwhile.
fn turned_steps<T>(width: usize) -> usize {
    const BYTES: usize = 32 << 10;
    (BYTES / (width * size_of::<T>())).next_multiple_of(CHUNK)
}

/// Whether tasks read a B with so many elements to a row where it lies, by the distance of the ends of a block of steps:
/// rows at a power of two share few sets of a cache.
fn reads_in_place<T>(kernels: &Kernels<T>, m: usize, row: usize, k: usize) -> bool {
    /// Bytes that stay in a second-level cache beside what else is there.
    const NEAR: usize = 512 << 10;
    /// Bytes of rows a page apart. Panels are copied from them by several tasks more slowly than packed once.
    const FAR: usize = 1 << 20;
    let bytes = row.saturating_mul(block_depth(k)).saturating_mul(size_of::<T>());
    let is_near = if kernels.is_short() { bytes < FAR } else { bytes <= NEAR };
    // Where one task has all rows, it copies each panel once, as packing would, and no thread waits for another.
    let few_rows = if kernels.is_quick && !kernels.is_short() {
        ROWS.max(rows_of_copies::<T>(k))
    } else if kernels.is_quick {
        ROWS
    } else {
        FEW_PANELS * kernels.heights[0]
    };
    m <= few_rows || is_near
}

impl Engine {
    /// Computes a product that is not empty; `done` is told each finished part.
    ///
    /// # Safety
    ///
    /// The output is writable for m rows of n elements, and nobody else uses these.
    pub(crate) unsafe fn multiply<T: Real>(&self, x: &Product<'_, T>, done: Done<'_>) {
        // SAFETY: handed on.
        unsafe { self.multiply_in_parts(x, split_depth(x.m, x.n, x.k), done) };
    }

    /// As [`Engine::multiply`], with sums of `part` steps that are added up in order: whole blocks, unless it is all steps.
    ///
    /// # Safety
    ///
    /// As there.
    pub(crate) unsafe fn multiply_in_parts<T: Real>(&self, x: &Product<'_, T>, part: usize, done: Done<'_>) {
        if x.m == 0 || x.n == 0 {
            return;
        }
        if x.k == 0 {
            self.clear(x);
            done(0..x.m, 0..x.n);
            return;
        }
        if part < x.k {
            // SAFETY: handed on.
            unsafe { self.multiply_by_depth(x, part) };
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

    /// One task for each tile of C; column panels are packed first, a strip of columns at a time.
    fn multiply_by_tiles<T: Real>(&self, x: &Product<'_, T>, done: Done<'_>) {
        let kernels = T::kernels(self.level);
        let width = kernels.width;
        if let Some(columns) = self.columns_in_place(&kernels, x, |row| reads_in_place(&kernels, x.m, row, x.k)) {
            self.tiles(&kernels, x, &columns, done);
            return;
        }
        if x.m <= ROWS {
            let (source, data, whole) = (ColumnSource::Tasks, std::ptr::null(), 0);
            let (cols, is_staged) = (0..x.n, false);
            let is_far = false;
            let columns = Columns { source, data, width, row: 0, panel: 0, block: 0, cols, whole, is_staged, is_far };
            self.tiles(&kernels, x, &columns, done);
            return;
        }
        let width = kernels.product_width(x.m, x.n, false);
        let depth = x.k.next_multiple_of(CHUNK);
        let strip = (STRIP[1] / depth).max(LEAST_STRIP.min(STRIP[0] / depth)).max(width);
        let strip = x.n.div_ceil(x.n.div_ceil(strip)).next_multiple_of(width);
        for start in (0..x.n).step_by(strip) {
            let cols = start..(start + strip).min(x.n);
            let n_panels = cols.len().div_ceil(width);
            with_scratch::<T, _>(n_panels * width * x.k, |packed| {
                self.pack_columns(x.b, &cols, [x.k, width], packed);
                let (source, data, whole) = (ColumnSource::Panels, packed.as_ptr(), cols.end);
                let columns = Columns {
                    source,
                    data,
                    width,
                    row: width,
                    panel: width * x.k,
                    block: width,
                    cols,
                    whole,
                    is_staged: false,
                    is_far: false,
                };
                self.tiles(&kernels, x, &columns, done);
            });
        }
    }

    /// All columns of B where they lie, if that pays by the number of elements from row to row.
    pub(super) fn columns_in_place<T: Real>(
        &self,
        kernels: &Kernels<T>,
        x: &Product<'_, T>,
        pays: impl Fn(usize) -> bool,
    ) -> Option<Columns<T>> {
        let (data, row) = x.b.direct().filter(|&(_, row)| self.unpacked && pays(row))?;
        let is_far = row >= PAGE / size_of::<T>() && is_far([x.n, x.k]);
        let (source, width, is_staged) = (ColumnSource::Operand, kernels.width, kernels.is_quick || is_far);
        let (cols, whole) = (0..x.n, x.n / width * width);
        Some(Columns { source, data, width, row, panel: width, block: row, cols, whole, is_staged, is_far })
    }

    /// Whether rows of A are copied while they multiply, or read in place: not where rows are neighbours, by which long
    /// vectors lose.
    pub(super) fn copies_rows<T: Real>(&self, kernels: &Kernels<T>, a: &dyn PanelSource<T>) -> bool {
        self.unpacked && (kernels.is_short() || a.layout() == Layout::Chunked)
    }

    /// Packs row panels, given by their rows, of `k` steps: for each block of steps, all panels.
    fn pack_all_rows<T: Real>(
        &self,
        kernels: &Kernels<T>,
        a: &dyn PanelSource<T>,
        panels: &[Range<usize>],
        k: usize,
        packed: &mut [T],
    ) {
        let (depth, height, n_panels) = (block_depth(k), kernels.heights[0], panels.len());
        let batch = (PACK_TASK / (height * k)).max(1);
        let out = Output { data: packed.as_mut_ptr(), stride: 1, rows: None };
        (self.parallel_for)(n_panels.div_ceil(batch), &|task| {
            let part = task * batch..((task + 1) * batch).min(n_panels);
            for start in (0..k).step_by(depth) {
                let steps = start..(start + depth).min(k);
                let pitch = height * steps.len().next_multiple_of(CHUNK);
                let (at, len) = (start * n_panels * height + part.start * pitch, part.len() * pitch);
                // SAFETY: the panels of these rows and steps, which no other task uses.
                let to = unsafe { std::slice::from_raw_parts_mut(out.row(at), len) };
                pack_row_panels(kernels, a, panels[part.clone()].iter().cloned(), &steps, to);
            }
        });
    }

    /// Packs all column panels, of `width`, of `cols` of an operand of `k` steps: for each panel all of k, in block order.
    pub(super) fn pack_columns<T: Real>(
        &self,
        b: &dyn PanelSource<T>,
        cols: &Range<usize>,
        [k, width]: [usize; 2],
        packed: &mut [T],
    ) {
        /// Panels, of the least width, that are written together, so that what lies in one row of the operand is read at
        /// once.
        const PANELS: usize = 8;
        /// Steps of a panel that are written at a time.
        const STEPS: usize = 32;
        let depth = block_depth(k);
        let panels = cols.len().div_ceil(width);
        let batch = (PACK_TASK / (width * depth)).max(PANELS * T::kernels(self.level).width / width);
        let blocks = k.div_ceil(depth);
        let n_steps = if b.layout() == Layout::Interleaved { STEPS } else { turned_steps::<T>(width) };
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
        let extents = [x.m, columns.cols.len(), x.k];
        let grid = Grid::new(kernels, extents, columns.source, self.divides);
        // Where many tasks have the same rows and few columns, they share the panels, as where panels of long vectors are
        // turned on the way, and where an A is gathered, as windows of an image are: each task would do that again.
        let n_panels = |i: usize| (0..i).map(|i| grid.rows(x.m, i).len().div_ceil(kernels.heights[0])).sum::<usize>();
        let len_of_panel = kernels.heights[0].saturating_mul(x.k.next_multiple_of(CHUNK));
        let n_shared = n_panels(grid.down).saturating_mul(len_of_panel);
        let (is_turned, is_gathered) = (x.a.layout() == Layout::Interleaved, x.a.rows().is_none());
        let most = if is_gathered {
            STRIP[0]
        } else if is_turned && !kernels.is_short() {
            STRIP[1]
        } else {
            0
        };
        let is_repeated = columns.source == ColumnSource::Tasks && grid.across > 2 && n_shared <= STRIP[0];
        let shares = is_repeated || grid.across > 1 && n_shared <= most;
        let copies = !shares && self.copies_rows(kernels, x.a);
        // A thread begins with tasks that follow each other. They have the same rows, which may be in its cache; those of
        // a turned A it has computed only in part, and reads less if it has the same columns of a wide B.
        let by_columns = is_turned && columns.cols.len() > x.m;
        let run = |packed: Option<&[T]>| {
            (self.parallel_for)(grid.down * grid.across, &|task| {
                let (i, j) = match by_columns {
                    true => (task % grid.down, task / grid.down),
                    false => (task / grid.across, task % grid.across),
                };
                let (rows, cols) = (grid.rows(x.m, i), grid.cols(columns.cols.len(), j));
                if rows.is_empty() || cols.is_empty() {
                    return;
                }
                let cols = columns.cols.start + cols.start..columns.cols.start + cols.end;
                let source = if copies { x.a.rows() } else { None };
                let packed =
                    packed.map(|panels| PackedRows { panels, first: n_panels(i), n_panels: n_panels(grid.down) });
                ProductTask { kernels, product: x, packed, columns, source }.run(&rows, &cols);
                done(rows, cols);
            });
        };
        if shares {
            with_scratch::<T, _>(n_shared, |packed| {
                // A task's last panels are those of its own rows.
                let panels: Vec<_> = (0..grid.down).flat_map(|i| kernels.row_panels(grid.rows(x.m, i))).collect();
                self.pack_all_rows(kernels, x.a, &panels, x.k, packed);
                run(Some(packed));
            });
        } else {
            run(None);
        }
    }
}

impl<T> Output<'_, T> {
    /// The first element of row `i`.
    pub(crate) fn row(&self, i: usize) -> *mut T {
        let at = self.rows.map_or(i * self.stride, |place| place(i));
        // SAFETY: the contract of `multiply` covers all rows.
        unsafe { self.data.add(at) }
    }
}

/// B for a strip of columns: packed panels, or the operand itself.
pub(super) struct Columns<T> {
    /// Where the panels are found, except those of an edge.
    source: ColumnSource,
    /// First element of the first panel; not used if `whole` is 0.
    data: *const T,
    /// Columns of a panel.
    width: usize,
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
    /// Whether tasks copy panels before their use.
    is_staged: bool,
    /// Whether the operand lies in memory, each step in other pages than the one before.
    is_far: bool,
}

// SAFETY: only read while tasks run.
unsafe impl<T: Sync> Sync for Columns<T> {}

/// Packs row panels, given by their rows, of `steps`.
pub(super) fn pack_row_panels<T: Real>(
    kernels: &Kernels<T>,
    a: &dyn PanelSource<T>,
    panels: impl Iterator<Item = Range<usize>> + Clone,
    steps: &Range<usize>,
    packed: &mut [T],
) {
    /// Steps of a panel that are written at a time.
    const STEPS: usize = 32;
    let pitch = kernels.heights[0] * steps.len().next_multiple_of(CHUNK);
    let layout = a.layout();
    // Where rows are neighbours in memory, panels are written together, so that what lies in one step of the operand is
    // read at once.
    let n_steps = if layout == Layout::Interleaved { STEPS } else { steps.len().max(1) };
    for start in steps.clone().step_by(n_steps) {
        for (rows, panel) in panels.clone().zip(packed.chunks_mut(pitch)) {
            let (width, now) = (kernels.height_for(rows.len()), start..steps.end.min(start + n_steps));
            a.pack(rows, now, layout, width, &mut panel[(start - steps.start) * width..]);
        }
    }
}

/// Packs all row panels of a block of `rows` and `steps`.
pub(super) fn pack_rows<T: Real>(
    kernels: &Kernels<T>,
    a: &dyn PanelSource<T>,
    rows: &Range<usize>,
    steps: &Range<usize>,
    packed: &mut [T],
) {
    pack_row_panels(kernels, a, kernels.row_panels(rows.clone()), steps, packed);
}

impl<T: Real> Kernels<T> {
    /// Computes a block, on wide tiles as far as it has columns for these. Row panels that are copied from A for other
    /// tiles are there for the next block, which has no source any more.
    ///
    /// # Safety
    ///
    /// As [`block`](super::tile::block).
    pub(super) unsafe fn compute(&self, is_wide: bool, x: &mut Block<T>) {
        if x.cols == 0 {
            return;
        }
        let Some(wide) = self.wide.filter(|_| is_wide) else {
            // SAFETY: handed on.
            unsafe { (self.block)(x) };
            x.a_from = std::ptr::null();
            return;
        };
        let width = 2 * self.width;
        let (is_copied, is_in_place) = (!x.staging.is_null(), !x.a_from.is_null());
        // Copies have all columns of a panel, and tiles of packed rows three vectors at least.
        let is_all = !is_copied && (is_in_place || x.width == width && x.cols % width > self.width);
        let cols = if is_all { x.cols } else { x.cols / width * width };
        let (b, c, before) = (x.columns(cols), x.c.wrapping_add(cols), x.before.wrapping_add(cols));
        let mut rest = Block { cols: x.cols - cols, b, c, before, ..*x };
        // SAFETY: handed on; both parts of the block have the columns that their tiles read.
        unsafe {
            if cols > 0 {
                wide(&Block { cols, ..*x });
                rest.staging = std::ptr::null_mut();
            }
            if rest.cols > 0 && is_in_place && rest.staging.is_null() {
                wide(&rest);
            } else if rest.cols > 0 {
                (self.block)(&rest);
                x.a_from = std::ptr::null();
            }
        }
    }
}

/// The row panels of all tasks, for each block of steps.
#[derive(Clone, Copy)]
pub(super) struct PackedRows<'a, T> {
    panels: &'a [T],
    /// The first panel of a task, and the number of all.
    first: usize,
    n_panels: usize,
}

/// The parts of a product that its tasks share.
pub(super) struct ProductTask<'a, T> {
    pub(super) kernels: &'a Kernels<T>,
    pub(super) product: &'a Product<'a, T>,
    /// Its row panels, if they are packed already.
    pub(super) packed: Option<PackedRows<'a, T>>,
    pub(super) columns: &'a Columns<T>,
    /// A and the distance of its rows or steps, where row panels are copied from it while they are first used.
    pub(super) source: Option<(*const T, usize)>,
}

impl<T: Real> ProductTask<'_, T> {
    /// Computes one tile of C, which no other task writes.
    fn run(&self, rows: &Range<usize>, cols: &Range<usize>) {
        let (out, steps) = (&self.product.out, 0..self.product.k);
        match out.rows {
            // SAFETY: this task's tile of the output.
            None => unsafe { self.tile(rows, cols, &steps, out.row(rows.start).add(cols.start), out.stride) },
            Some(_) => with_scratch::<T, _>(rows.len() * cols.len(), |c| {
                // SAFETY: the scratch is a tile of its own; each row goes to a place no other task uses.
                unsafe { self.tile(rows, cols, &steps, c.as_mut_ptr(), cols.len()) };
                for (row, from) in rows.clone().zip(c.chunks_exact(cols.len())) {
                    // SAFETY: as above.
                    unsafe { std::slice::from_raw_parts_mut(out.row(row).add(cols.start), cols.len()) }
                        .copy_from_slice(from);
                }
            }),
        }
    }

    /// Whether tiles are wide: not for columns that a task packs just before their use, which stay in the nearest cache in
    /// panels of the usual width.
    fn is_wide(&self, n_rows: usize, n_cols: usize) -> bool {
        let ProductTask { kernels, columns, .. } = *self;
        match columns.source {
            ColumnSource::Operand => kernels.product_width(n_rows, n_cols, columns.is_far) > kernels.width,
            ColumnSource::Panels => columns.width > kernels.width && n_rows >= kernels.many_rows(false),
            ColumnSource::Tasks => false,
        }
    }

    /// The row panels of some steps: those that all tasks share, or packed to `scratch`.
    fn row_panels<'s>(&'s self, rows: &Range<usize>, steps: &Range<usize>, scratch: &'s mut [T]) -> &'s [T] {
        let Some(PackedRows { panels, first, n_panels }) = self.packed else {
            pack_rows(self.kernels, self.product.a, rows, steps, scratch);
            return scratch;
        };
        let height = self.kernels.heights[0];
        &panels[height * (steps.start * n_panels + first * steps.len().next_multiple_of(CHUNK))..]
    }

    /// Computes one tile of C over some steps, which begin with a block.
    ///
    /// # Safety
    ///
    /// `c` is writable for the rows and columns.
    pub(super) unsafe fn tile(
        &self,
        rows: &Range<usize>,
        cols: &Range<usize>,
        all: &Range<usize>,
        c: *mut T,
        c_row: usize,
    ) {
        let ProductTask { kernels, product: x, packed, columns, .. } = *self;
        let depth = block_depth(x.k);
        let is_wide = self.is_wide(rows.len(), cols.len());
        let width = if is_wide { 2 * kernels.width } else { kernels.width };
        let n_packed = if packed.is_some() { 0 } else { rows.len().next_multiple_of(kernels.heights[0]) * depth };
        let whole = columns.whole.clamp(cols.start, cols.end);
        // Between the blocks of a long chain, sums wait in memory of their own: rows of C may lie a page apart, in few
        // sets of the caches.
        let has_sums = all.len() > 2 * depth && c_row > cols.len();
        let sums_row = cols.len().next_multiple_of(width) + CHUNK;
        let n_sums = if has_sums { rows.len() * sums_row } else { 0 };
        let is_staged = columns.is_staged && rows.len() >= kernels.many_rows(columns.is_far) && whole > cols.start;
        let n_staged = if is_staged { 2 * width * depth } else { 0 };
        with_scratch::<T, _>(n_packed + n_staged + width * depth + n_sums, |scratch| {
            let (a, scratch) = scratch.split_at_mut(n_packed);
            let (staged, scratch) = scratch.split_at_mut(n_staged);
            let (narrow, sums) = scratch.split_at_mut(width * depth);
            let (one, other) = staged.split_at_mut(n_staged / 2);
            let panels = [one.as_mut_ptr(), other.as_mut_ptr()];
            let is_part = rows.len() == x.m && cols.len() == x.n;
            let is_far = columns.is_far;
            let mut staging = Staging { panels, is_ready: false, is_far, after: (columns.data, 0) };
            let (before, before_row) = if has_sums { (sums.as_mut_ptr(), sums_row) } else { (c, c_row) };
            for start in all.clone().step_by(depth) {
                let steps = start..(start + depth).min(all.end);
                let (a, a_from, a_from_row) = match self.source {
                    Some((data, row)) => {
                        let (across, along) = if x.a.layout() == Layout::Chunked { (row, 1) } else { (1, row) };
                        // Written through this pointer, and read.
                        let panels = a.as_mut_ptr().cast_const();
                        (panels, data.wrapping_add(rows.start * across + start * along), row)
                    }
                    None => (self.row_panels(rows, &steps, a).as_ptr(), std::ptr::null(), 0),
                };
                let first = (cols.start - columns.cols.start) / columns.width * columns.panel + start * columns.block;
                let (c, c_row) = if steps.end < all.end { (before, before_row) } else { (c, c_row) };
                let after = columns.data.wrapping_add(first + steps.len() * columns.block);
                staging.after = (after, depth.min(all.end - steps.end));
                let ahead = || Ahead::of_product(kernels, [x.a, x.b], [x.m, x.n, x.k], &steps, all.end);
                let mut ahead = is_part.then(ahead).flatten();
                let ahead = ahead.as_mut().map_or(std::ptr::null_mut(), |ahead| &raw mut *ahead);
                let mut block = Block {
                    rows: rows.len(),
                    cols: whole - cols.start,
                    depth: steps.len(),
                    a,
                    a_panel: kernels.heights[0] * steps.len().next_multiple_of(CHUNK),
                    layout: x.a.layout(),
                    a_from,
                    a_from_row,
                    b: columns.data.wrapping_add(first),
                    width: columns.width,
                    b_panel: columns.panel,
                    b_row: columns.row,
                    c,
                    c_row,
                    fresh: start == all.start,
                    before,
                    before_row,
                    is_quick: kernels.is_quick,
                    staging: if is_staged { &raw mut staging } else { std::ptr::null_mut() },
                    ahead,
                };
                // SAFETY: the level is present; panels and C cover the tile.
                unsafe { kernels.compute(is_wide, &mut block) };
                block.staging = std::ptr::null_mut();
                for j in (whole..cols.end).step_by(width) {
                    let outer = j..(j + width).min(cols.end);
                    (block.cols, block.width, block.b_row) = (outer.len(), width, width);
                    let n_steps = turned_steps::<T>(width);
                    for now in steps.clone().step_by(n_steps) {
                        let (at, now) = ((now - start) * width, now..(now + n_steps).min(steps.end));
                        x.b.pack(outer.clone(), now, Layout::Interleaved, width, &mut narrow[at..]);
                    }
                    block.b = narrow.as_ptr();
                    block.c = c.wrapping_add(j - cols.start);
                    block.before = before.wrapping_add(j - cols.start);
                    // SAFETY: as above.
                    unsafe { kernels.compute(is_wide, &mut block) };
                }
            }
        });
    }
}
