//! The innermost loops on tiles of few rows and four vectors, for blocks of many rows and 32 vector registers.
//!
//! A step of six rows and four vectors takes ten loads for 24 multiplications, where one of twelve rows and two vectors
//! takes fourteen, which keep two multipliers waiting (ADR 79). Column panels are longer than the nearest cache then, and
//! come from the second one as fast as they are used. Six rows of A have room in the sets of a cache wherever they lie, so
//! that they need no copy; twelve are read at a time for the last few columns alone.

use std::ops::Range;

use super::Layout;
use super::copy::{ColumnPanel, Copying};
use super::pack::CHUNK;
use super::simd::Simd;
use super::tile::{Block, UNROLL, finish, finish_edge, line_step, row_panel};

/// Vectors of a column panel.
pub(super) const VECTORS: usize = 4;

/// Rows of a tile, of one of a lower row panel, and of one of one or two vectors.
const ROWS: usize = 6;
const LOW: usize = 4;
const HIGH: usize = 12;

/// Heights of row panels, which hold whole tiles.
pub(super) const HEIGHTS: [usize; 3] = [2 * ROWS, 2 * LOW, LOW];

/// The rows of a tile.
struct TileRows<T> {
    /// The first row and step.
    a: *const T,
    /// Elements from one row to the next, and from one chunk of steps to the next; of an interleaved panel, from one step
    /// to the next in place of both.
    row: usize,
    chunk: usize,
    /// C and the sums of the blocks before.
    c: [*mut T; 2],
    /// The rows of the tile that are stored.
    stored: Range<usize>,
}

/// Computes a block of many rows, whose column panels have [`VECTORS`] vectors. If A is given to copy row panels from, it
/// is read in place; else row panels are of [`HEIGHTS`], and the last column panel has more than two vectors.
///
/// # Safety
///
/// As [`block`](super::tile::block).
#[inline(always)]
pub(super) unsafe fn wide<S: Simd>(x: &Block<S::Elem>) {
    // SAFETY: handed on.
    unsafe {
        match x.layout {
            Layout::Interleaved => panels::<S, 1>(x),
            Layout::Chunked => panels::<S, CHUNK>(x),
        }
    }
}

/// [`wide`] for one layout of the row panels.
#[inline(always)]
unsafe fn panels<S: Simd, const STEP: usize>(x: &Block<S::Elem>) {
    let width = VECTORS * S::LANES;
    let is_in_place = !x.a_from.is_null();
    debug_assert!(STEP == CHUNK || !is_in_place, "steps are neighbours in place");
    // SAFETY: null, or memory that this task alone uses.
    let mut staging = unsafe { x.staging.as_mut() };
    let mut copying = Copying::<S, VECTORS>::none();
    for j in (0..x.cols).step_by(width) {
        let cols = (x.cols - j).min(width);
        let data = [j, j + width].map(|j| x.columns(j));
        let height = if cols > 2 * S::LANES { ROWS } else { HIGH };
        let n_tiles = if is_in_place { x.rows.div_ceil(height) } else { x.rows.div_ceil(HEIGHTS[0]) * 2 };
        let n_chunks = n_tiles * x.depth.div_ceil(CHUNK);
        let has_next = j + width < x.cols;
        let mut column =
            ColumnPanel::new(data, x.b_row, x.depth, has_next, [n_tiles, n_chunks], true, staging.as_deref());
        copying = column.first.take().unwrap_or(copying);
        let c = |i: usize| [x.c.wrapping_add(i * x.c_row + j), x.before.wrapping_add(i * x.before_row + j).cast_mut()];
        let (mut index, mut i) = (0, 0);
        while i < x.rows {
            if copying.left == 0 {
                copying = column.later.take().unwrap_or(copying);
            }
            let b = (column.data, column.row);
            // SAFETY: the panels and the part of C lie inside the block; what is copied has room.
            unsafe {
                if is_in_place {
                    // A last tile begins with rows that are stored already.
                    let first = i.min(x.rows - height);
                    let (a, row) = (x.a_from.add(first * x.a_from_row), x.a_from_row);
                    let rows = TileRows { a, row, chunk: CHUNK, c: c(first), stored: i - first..height };
                    if height == ROWS {
                        tile_of::<S, ROWS, CHUNK>(x, rows, b, cols, &mut copying);
                    } else if cols > S::LANES {
                        tile::<S, HIGH, 2, CHUNK>(x, rows, b, cols, &mut copying);
                    } else {
                        tile::<S, HIGH, 1, CHUNK>(x, rows, b, cols, &mut copying);
                    }
                    i = first + height;
                    continue;
                }
                let [start, end] = row_panel(HEIGHTS, 2, x.rows, index);
                let n_rows = end - start;
                debug_assert!(n_rows > LOW, "of many rows, no panel is lower");
                let height = if n_rows > HEIGHTS[1] { HEIGHTS[0] } else { HEIGHTS[1] };
                let a = x.a.add(index * x.a_panel);
                let of = |first: usize, rows: usize| {
                    let (row, chunk) = if STEP == 1 { (height, height) } else { (CHUNK, height * CHUNK) };
                    let a = a.add(first * if STEP == 1 { 1 } else { CHUNK });
                    TileRows { a, row, chunk, c: c(start + first), stored: 0..n_rows.saturating_sub(first).min(rows) }
                };
                if height == HEIGHTS[0] {
                    tile_of::<S, ROWS, STEP>(x, of(0, ROWS), b, cols, &mut copying);
                    tile_of::<S, ROWS, STEP>(x, of(ROWS, ROWS), b, cols, &mut copying);
                } else {
                    tile_of::<S, LOW, STEP>(x, of(0, LOW), b, cols, &mut copying);
                    tile_of::<S, LOW, STEP>(x, of(LOW, LOW), b, cols, &mut copying);
                }
                i = end;
            }
            index += 1;
        }
        if let Some(staging) = &mut staging {
            // SAFETY: what is left of the next panel.
            unsafe { staging.advance(&mut copying, column.later) };
        }
    }
}

/// One tile of as many vectors as its columns need.
#[inline(always)]
unsafe fn tile_of<S: Simd, const M: usize, const STEP: usize>(
    x: &Block<S::Elem>,
    rows: TileRows<S::Elem>,
    b: (*const S::Elem, usize),
    cols: usize,
    copying: &mut Copying<S, VECTORS>,
) {
    // SAFETY: handed on.
    unsafe {
        if cols > 3 * S::LANES {
            tile::<S, M, 4, STEP>(x, rows, b, cols, copying);
        } else {
            tile::<S, M, 3, STEP>(x, rows, b, cols, copying);
        }
    }
}

/// One tile, held in registers over the whole depth. With each chunk of steps, a part of a later panel of B is copied.
#[inline(always)]
unsafe fn tile<S: Simd, const M: usize, const NV: usize, const STEP: usize>(
    x: &Block<S::Elem>,
    rows: TileRows<S::Elem>,
    (mut b, b_row): (*const S::Elem, usize),
    cols: usize,
    copying: &mut Copying<S, VECTORS>,
) {
    let TileRows { mut a, row, chunk, c: [c, before], stored } = rows;
    let [a_row, a_step] = if STEP == 1 { [1, row] } else { [row, 1] };
    // SAFETY: the caller's block covers the panels; the edge case goes through a local tile.
    unsafe {
        let mut sums = [[S::zero(); NV]; M];
        let mut left = x.depth;
        let near = left.min(4 * CHUNK);
        while left > 0 {
            // C comes from far away where its rows are long, and is not looked at before the last step. Asked for at the
            // first, much of it would have left the nearest cache by then.
            if left <= near && left + CHUNK > near {
                for i in 0..M {
                    for v in 0..NV {
                        S::prefetch(before.wrapping_add(i * x.before_row + v * S::LANES));
                    }
                    S::prefetch(before.wrapping_add(i * x.before_row + cols - 1));
                }
            }
            copying.advance(copying.share);
            if let Some(ahead) = x.ahead.as_mut() {
                ahead.advance::<S>();
            }
            let mut steps = left.min(CHUNK);
            left -= steps;
            let mut at = a;
            while steps >= UNROLL {
                for k in 0..UNROLL {
                    line_step::<S, M, NV>(&mut sums, at.add(k * a_step), a_row, b);
                    b = b.wrapping_add(b_row);
                }
                at = at.wrapping_add(UNROLL * a_step);
                steps -= UNROLL;
            }
            for _ in 0..steps {
                line_step::<S, M, NV>(&mut sums, at, a_row, b);
                // After the last step they point behind the operands.
                at = at.wrapping_add(a_step);
                b = b.wrapping_add(b_row);
            }
            a = if STEP == 1 { at } else { a.wrapping_add(chunk) };
        }
        if stored == (0..M) && cols == NV * S::LANES {
            finish::<S, M, NV>(sums, [c, before], [x.c_row, x.before_row], x.fresh, M, cols);
        } else {
            finish_edge::<S, M, NV>(sums, [c, before], [x.c_row, x.before_row], x.fresh, stored, cols);
        }
    }
}
