//! The innermost loops: a block of C from packed panels, from a B that is copied on the way, or from an image.
//!
//! Each element of C is one chain of fused multiply-adds over the block's depth, starting from +0, whose result is
//! stored (first block) or added (later blocks). The chain is the same for every tile shape and instruction set.

use std::mem::MaybeUninit;
use std::ops::Range;

use super::copy::{Ahead, ColumnPanel, Copying, Staging, copy_rows};
use super::heights::NextHeight;
use super::pack::CHUNK;
use super::simd::Simd;
use super::unrolled::each_row;
use super::{Layout, Real, is_short};

/// One block of C and the packed panels it is made from.
pub(super) struct Block<T> {
    /// Rows of C.
    pub(super) rows: usize,
    /// Columns of C.
    pub(super) cols: usize,
    /// Length of the chain.
    pub(super) depth: usize,
    /// Row panels, each padded to a multiple of [`CHUNK`] in depth.
    pub(super) a: *const T,
    /// Distance of two row panels.
    pub(super) a_panel: usize,
    /// How the row panels are laid out.
    pub(super) layout: Layout,
    /// The first row and step of A, from which row panels are copied just before their first use, or null. Wide tiles read
    /// rows there.
    pub(super) a_from: *const T,
    /// Distance of its rows if row panels are chunked, else of its steps; those between are neighbours.
    pub(super) a_from_row: usize,
    /// Column panels, or B itself.
    pub(super) b: *const T,
    /// Columns of a column panel, and the distance of two.
    pub(super) width: usize,
    pub(super) b_panel: usize,
    /// Distance of two steps of k in a column panel.
    pub(super) b_row: usize,
    /// First element of C.
    pub(super) c: *mut T,
    /// Distance of two rows of C.
    pub(super) c_row: usize,
    /// Whether the block is the first of its elements of C.
    pub(super) fresh: bool,
    /// The sums of the blocks before, where there are some: in C, or in memory of the task.
    pub(super) before: *const T,
    /// Distance of two rows of it.
    pub(super) before_row: usize,
    /// Whether tiles find panels that were read before, or copied, in the nearest cache.
    pub(super) is_quick: bool,
    /// Where column panels are copied before their use, or null; C has whole panels of the usual width then.
    pub(super) staging: *mut Staging<T>,
    /// The lines that the next block reads, or null.
    pub(super) ahead: *mut Ahead<T>,
}

impl<T> Block<T> {
    /// Where the columns from `j` on lie, which are the first ones of a panel or of a part of one.
    #[inline(always)]
    pub(super) fn columns(&self, j: usize) -> *const T {
        self.b.wrapping_add(j / self.width * self.b_panel + j % self.width)
    }
}

/// Computes a block whose row panels are `M0` high, the last one `M0`, `M1` or `M2`, and whose column panels are `NV`
/// vectors wide.
///
/// # Safety
///
/// The instruction set of `S`, and a block whose pointers are valid for its extents.
#[inline(always)]
pub(super) unsafe fn block<S: Simd, const M0: usize, const M1: usize, const M2: usize, const NV: usize>(
    x: &Block<S::Elem>,
) {
    // SAFETY: handed on.
    unsafe {
        match x.layout {
            Layout::Interleaved => panels::<S, M0, M1, M2, NV, 1>(x),
            Layout::Chunked => panels::<S, M0, M1, M2, NV, CHUNK>(x),
        }
    }
}

/// Chains of a tile that keep the multipliers of a processor busy: two of them, for four cycles each.
const CHAINS: usize = 8;

/// Rows of row panel `index` of a block of `rows` rows, for row panels of these heights and column panels of `nv` vectors.
/// All panels are of the first height, except the last one; where a panel of the least height would have no more chains
/// than keep the multipliers busy, the last two share their rows.
#[inline(always)]
pub(super) const fn row_panel([m0, m1, m2]: [usize; 3], nv: usize, rows: usize, index: usize) -> [usize; 2] {
    let last = (rows - 1) / m0;
    let shares = last > 0 && rows - last * m0 <= m2 && m2 * nv <= CHAINS && m0 + m2 <= 2 * m1;
    if shares && index + 1 == last {
        [index * m0, index * m0 + m1]
    } else if shares && index == last {
        [index * m0 - m0 + m1, rows]
    } else if index < last {
        [index * m0, index * m0 + m0]
    } else {
        [index * m0, rows]
    }
}

/// [`block`] for one layout of the row panels.
#[inline(always)]
unsafe fn panels<S: Simd, const M0: usize, const M1: usize, const M2: usize, const NV: usize, const STEP: usize>(
    x: &Block<S::Elem>,
) {
    let width = NV * S::LANES;
    let n_panels = x.rows.div_ceil(M0);
    let n_chunks = n_panels * x.depth.div_ceil(CHUNK);
    // SAFETY: null, or memory that this task alone uses.
    let mut staging = unsafe { x.staging.as_mut() };
    let mut copying = Copying::<S, NV>::none();
    for j in (0..x.cols).step_by(width) {
        let cols = (x.cols - j).min(width);
        let has_next = j + width < x.cols;
        let data = [j, j + width].map(|j| x.columns(j));
        let mut column =
            ColumnPanel::new(data, x.b_row, x.depth, has_next, [n_panels, n_chunks], x.is_quick, staging.as_deref());
        copying = column.first.take().unwrap_or(copying);
        for index in 0..n_panels {
            let [i, end] = row_panel([M0, M1, M2], NV, x.rows, index);
            let rows = end - i;
            if copying.left == 0 {
                copying = column.later.take().unwrap_or(copying);
            }
            // The tile after this one has the same columns, or those of the next panel.
            let next = if end < x.rows { column.data } else { column.following };
            // SAFETY: the panels and the part of C lie inside the block; what is copied has room.
            unsafe {
                let a = x.a.add(index * x.a_panel);
                let rows_apart = if STEP == 1 { 1 } else { x.a_from_row };
                let from = if j == 0 && !x.a_from.is_null() { x.a_from.add(i * rows_apart) } else { std::ptr::null() };
                let a = [a, from];
                let is_near = x.is_quick && (staging.is_some() || j + index > 0);
                let b = ([column.data, next], column.row, is_near);
                let c = x.c.add(i * x.c_row + j);
                let before = x.before.wrapping_add(i * x.before_row + j);
                let c = [c, before.cast_mut()];
                let copying = &mut copying;
                match (rows > M1, rows > M2, cols > S::LANES) {
                    (true, _, true) => tile::<S, M0, NV, NV, STEP>(x, a, b, c, [rows, cols], copying),
                    (true, _, false) => tile::<S, M0, 1, NV, STEP>(x, a, b, c, [rows, cols], copying),
                    (false, true, true) => tile::<S, M1, NV, NV, STEP>(x, a, b, c, [rows, cols], copying),
                    (false, true, false) => tile::<S, M1, 1, NV, STEP>(x, a, b, c, [rows, cols], copying),
                    (false, false, true) => tile::<S, M2, NV, NV, STEP>(x, a, b, c, [rows, cols], copying),
                    (false, false, false) => tile::<S, M2, 1, NV, STEP>(x, a, b, c, [rows, cols], copying),
                }
            }
        }
        if let Some(staging) = &mut staging {
            // SAFETY: what is left of the next panel.
            unsafe { staging.advance(&mut copying, column.later) };
        }
    }
}

/// Steps of the product that follow each other without a jump.
pub(super) const UNROLL: usize = 4;

/// One tile of C, held in registers over the whole depth. With each chunk of steps, a part of a later panel of B is copied.
/// Panels that are not near are asked for a chunk of steps before their use, of B at the end the panel that is wanted
/// next.
#[inline(always)]
unsafe fn tile<S: Simd, const M: usize, const NV: usize, const W: usize, const STEP: usize>(
    x: &Block<S::Elem>,
    [mut a, mut a_from]: [*const S::Elem; 2],
    ([mut b, next], b_row, is_near): ([*const S::Elem; 2], usize, bool),
    [c, before]: [*mut S::Elem; 2],
    [rows, cols]: [usize; 2],
    copying: &mut Copying<S, W>,
) {
    // SAFETY: the caller's block covers the panels; the edge case goes through a local tile.
    unsafe {
        let mut sums = [[S::zero(); NV]; M];
        let mut left = x.depth;
        let near = left.min(4 * CHUNK);
        if is_short::<S>() && !x.fresh {
            for i in 0..M {
                S::prefetch(before.wrapping_add(i * x.before_row));
            }
        }
        while left > 0 {
            // C comes from far away where its rows are long, and is not looked at before the last step. Asked for at the
            // first, much of it would have left the nearest cache by then.
            if !is_short::<S>() && left <= near && left + CHUNK > near {
                for i in 0..M {
                    S::prefetch(before.wrapping_add(i * x.before_row));
                    S::prefetch(before.wrapping_add(i * x.before_row + cols - 1));
                }
            }
            copying.advance(copying.share);
            if let Some(ahead) = x.ahead.as_mut() {
                ahead.advance::<S>();
            }
            let mut steps = left.min(CHUNK);
            left -= steps;
            if !a_from.is_null() {
                copy_rows::<S, M, STEP>([a_from, a], x.a_from_row, [rows, steps]);
                a_from = a_from.wrapping_add(if STEP == 1 { CHUNK * x.a_from_row } else { CHUNK });
            }
            let a_step = if STEP == 1 { M } else { 1 };
            if is_near && b_row == W * S::LANES {
                for line in 0..M {
                    S::prefetch(a.wrapping_add((M + line) * CHUNK));
                }
                while steps >= UNROLL {
                    for k in 0..UNROLL {
                        step::<S, M, NV, STEP>(&mut sums, a.add(k * a_step), b.add(k * W * S::LANES));
                    }
                    a = a.wrapping_add(UNROLL * a_step);
                    b = b.wrapping_add(UNROLL * W * S::LANES);
                    steps -= UNROLL;
                }
            }
            let mut b_ahead = if left > 0 { b.wrapping_add(b_row.wrapping_mul(CHUNK)) } else { next };
            let mut a_ahead = a.wrapping_add(M * CHUNK);
            for _ in 0..steps {
                for v in 0..NV {
                    S::prefetch(b_ahead.wrapping_add(v * S::LANES));
                }
                S::prefetch(a_ahead);
                b_ahead = b_ahead.wrapping_add(b_row);
                a_ahead = a_ahead.wrapping_add(CHUNK);
                step::<S, M, NV, STEP>(&mut sums, a, b);
                // After the last step they point behind the operands.
                a = a.wrapping_add(a_step);
                b = b.wrapping_add(b_row);
            }
            // A chunk holds `STEP` steps of the first row, then of the next.
            if STEP > 1 {
                a = a.wrapping_add((M - 1) * STEP);
            }
        }
        finish::<S, M, NV>(sums, [c, before], [x.c_row, x.before_row], x.fresh, rows, cols);
    }
}

/// The sums of one tap of each row. No `map` of an array, as in no step of a tile: compilers inline its closure only if
/// they optimise all parts of a crate together.
#[inline(always)]
pub(super) fn tap_sums<V: Copy, const K: usize, const M: usize>(sums: &[[V; K]; M], tap: usize) -> [[V; 1]; M] {
    std::array::from_fn(
        #[inline(always)]
        |row| [sums[row][tap % K]],
    )
}

/// Stores a tile's sums to C, or adds them.
#[inline(always)]
pub(super) unsafe fn finish<S: Simd, const M: usize, const NV: usize>(
    mut sums: [[S::Vector; NV]; M],
    [c, before]: [*mut S::Elem; 2],
    [c_row, before_row]: [usize; 2],
    fresh: bool,
    rows: usize,
    cols: usize,
) {
    // SAFETY: C covers the rows and columns; at an edge the tile goes through local memory.
    unsafe {
        if cols == NV * S::LANES {
            let at = |i: usize, v: usize| c.add(i * c_row + v * S::LANES);
            // All loads before all stores: where rows lie a page apart, a load would wait for the store before it.
            // Bounds of the loops in place of the conditions would keep the sums in memory.
            if !fresh {
                for (i, row) in sums.iter_mut().enumerate() {
                    if i < rows {
                        for (v, sum) in row.iter_mut().enumerate() {
                            *sum = S::add(S::load(before.add(i * before_row + v * S::LANES)), *sum);
                        }
                    }
                }
            }
            for (i, row) in sums.iter().enumerate() {
                if i < rows {
                    for (v, sum) in row.iter().enumerate() {
                        S::store(at(i, v), *sum);
                    }
                }
            }
            return;
        }
        finish_edge::<S, M, NV>(sums, [c, before], [c_row, before_row], fresh, 0..rows, cols);
    }
}

/// [`finish`] for some rows, element by element.
#[inline(always)]
pub(super) unsafe fn finish_edge<S: Simd, const M: usize, const NV: usize>(
    sums: [[S::Vector; NV]; M],
    [c, before]: [*mut S::Elem; 2],
    [c_row, before_row]: [usize; 2],
    fresh: bool,
    rows: Range<usize>,
    cols: usize,
) {
    // SAFETY: C covers the rows and columns.
    unsafe {
        let mut edge = [MaybeUninit::<S::Elem>::uninit(); 512];
        let edge = edge.as_mut_ptr().cast::<S::Elem>();
        for (i, row) in sums.iter().enumerate() {
            for (v, sum) in row.iter().enumerate() {
                S::store(edge.add((i * NV + v) * S::LANES), *sum);
            }
        }
        write_edge(edge, NV * S::LANES, [c, before], [c_row, before_row], fresh, rows, cols);
    }
}

/// Stores or adds the first elements of some rows of `edge`. One function for all tiles: loops of its own in each of
/// them would take the compiler as long as the tile.
///
/// # Safety
///
/// `edge`, C and the sums before cover the rows and columns.
#[inline(never)]
unsafe fn write_edge<T: Real>(
    edge: *const T,
    edge_row: usize,
    [c, before]: [*mut T; 2],
    [c_row, before_row]: [usize; 2],
    fresh: bool,
    rows: Range<usize>,
    cols: usize,
) {
    for i in rows {
        for j in 0..cols {
            // SAFETY: the contract of this function.
            unsafe {
                let (at, sum) = (c.add(i * c_row + j), *edge.add(i * edge_row + j));
                *at = if fresh { sum } else { *before.add(i * before_row + j) + sum };
            }
        }
    }
}

/// One step of k: the outer product of a column of A and a row of B.
#[inline(always)]
unsafe fn step<S: Simd, const M: usize, const NV: usize, const STEP: usize>(
    sums: &mut [[S::Vector; NV]; M],
    a: *const S::Elem,
    b: *const S::Elem,
) {
    // SAFETY: handed on from the tile.
    unsafe {
        let mut row = [S::zero(); NV];
        for (v, part) in row.iter_mut().enumerate() {
            *part = S::load(b.add(v * S::LANES));
        }
        each_row!(i < M {
            let factor = S::splat(a.add(i * STEP));
            for (s, part) in sums[i].iter_mut().zip(row) {
                *s = S::mul_add(factor, part, *s);
            }
        });
    }
}

/// A block of C whose rows are read from a plain image: element (i, k) of line l of A is at
/// `a + l * a_line + i * a_row + offsets[k]`.
pub(super) struct Lines<'a, T> {
    /// Groups of rows, at the distances `a_line` and `c_line`.
    pub(super) lines: usize,
    /// Rows of a line.
    pub(super) rows: usize,
    /// Columns of C.
    pub(super) cols: usize,
    /// Where each step of k lies; its length is the length of the chain.
    pub(super) offsets: &'a [isize],
    /// First element of A, and the distances of lines and rows. Readable for a whole tile past the last row.
    pub(super) a: *const T,
    pub(super) a_line: usize,
    pub(super) a_row: usize,
    /// Column panels, the distance of two panels and of two steps in one.
    pub(super) b: *const T,
    pub(super) b_panel: usize,
    pub(super) b_row: usize,
    /// C, and the distances of its lines and rows.
    pub(super) c: *mut T,
    pub(super) c_line: usize,
    pub(super) c_row: usize,
    /// Whether C is to be overwritten.
    pub(super) fresh: bool,
}

/// Computes lines, in tiles of `NV` vectors and four heights, `M0` to `M3`, or of one vector and `N0` to `N3`.
///
/// # Safety
///
/// The instruction set of `S`, and pointers valid for the extents.
#[inline(always)]
pub(super) unsafe fn lines<
    S: Simd,
    const M0: usize,
    const M1: usize,
    const M2: usize,
    const M3: usize,
    const NV: usize,
    const N0: usize,
    const N1: usize,
    const N2: usize,
    const N3: usize,
>(
    x: &Lines<'_, S::Elem>,
) {
    for (panel, j) in (0..x.cols).step_by(NV * S::LANES).enumerate() {
        let cols = (x.cols - j).min(NV * S::LANES);
        // SAFETY: the panels and the part of C lie inside the block.
        unsafe {
            let (b, c) = (x.b.add(panel * x.b_panel), x.c.add(j));
            if cols > S::LANES {
                columns::<S, M0, M1, M2, M3, NV>(x, b, c, cols);
            } else if cols > S::Half::LANES {
                columns::<S, N0, N1, N2, N3, 1>(x, b, c, cols);
            } else if cols > Shortest::<S>::LANES {
                columns::<S::Half, N0, N1, N2, N3, 1>(x, b, c, cols);
            } else {
                columns::<Shortest<S>, N0, N1, N2, N3, 1>(x, b, c, cols);
            }
        }
    }
}

/// The columns of one panel in all lines, on vectors no longer than they need.
#[inline(always)]
unsafe fn columns<S: Simd, const M0: usize, const M1: usize, const M2: usize, const M3: usize, const NV: usize>(
    x: &Lines<'_, S::Elem>,
    b: *const S::Elem,
    c: *mut S::Elem,
    cols: usize,
) {
    if NV == 1 && x.a_row == 1 {
        // Chains of few rows are too few to hide the time that a step takes.
        // SAFETY: handed on.
        unsafe {
            match x.rows {
                1 => return stacks::<S, 8, 1>(x, b, c, cols),
                2 => return stacks::<S, 4, 2>(x, b, c, cols),
                3 => return stacks::<S, 3, 3>(x, b, c, cols),
                4 => return stacks::<S, 2, 4>(x, b, c, cols),
                5 => return stacks::<S, 2, 5>(x, b, c, cols),
                _ => {}
            }
        }
    }
    for line in 0..x.lines {
        let mut i = 0;
        while i < x.rows {
            let left = x.rows - i;
            let height = NextHeight::<M0, M1, M2, M3, NV>::of(left);
            let rows = left.min(height);
            // SAFETY: the rows lie inside the line.
            unsafe {
                let a = x.a.add(line * x.a_line + i * x.a_row);
                let c = c.add(line * x.c_line + i * x.c_row);
                if height == M0 {
                    line_tile::<S, M0, NV>(x, a, b, c, rows, cols);
                } else if height == M1 {
                    line_tile::<S, M1, NV>(x, a, b, c, rows, cols);
                } else if height == M2 {
                    line_tile::<S, M2, NV>(x, a, b, c, rows, cols);
                } else {
                    line_tile::<S, M3, NV>(x, a, b, c, rows, cols);
                }
            }
            i += rows;
        }
    }
}

/// One tile of [`lines`].
#[inline(always)]
unsafe fn line_tile<S: Simd, const M: usize, const NV: usize>(
    x: &Lines<'_, S::Elem>,
    a: *const S::Elem,
    mut b: *const S::Elem,
    c: *mut S::Elem,
    rows: usize,
    cols: usize,
) {
    // SAFETY: the caller's block covers panels and image.
    unsafe {
        let mut sums = [[S::zero(); NV]; M];
        // Four steps for each jump: chains of usual lengths then have so few that their end is foreseen, and the next tile
        // begins while this one ends. Compilers keep the sums of more steps, or of other tiles, in memory.
        let (fours, rest) = if NV > 1 && M * NV <= 12 { x.offsets.as_chunks::<4>() } else { (&[][..], x.offsets) };
        for &[first, second, third, fourth] in fours {
            let b3 = b.wrapping_add(3 * x.b_row);
            line_step::<S, M, NV>(&mut sums, a.offset(first), x.a_row, b);
            line_step::<S, M, NV>(&mut sums, a.offset(second), x.a_row, b.wrapping_add(x.b_row));
            line_step::<S, M, NV>(&mut sums, a.offset(third), x.a_row, b.wrapping_add(2 * x.b_row));
            line_step::<S, M, NV>(&mut sums, a.offset(fourth), x.a_row, b3);
            b = b3.wrapping_add(x.b_row);
        }
        for offset in rest {
            line_step::<S, M, NV>(&mut sums, a.offset(*offset), x.a_row, b);
            b = b.wrapping_add(x.b_row);
        }
        finish::<S, M, NV>(sums, [c; 2], [x.c_row; 2], x.fresh, rows, cols);
    }
}

/// One step of a tile: the elements of its rows, `a_row` apart, times a row of B.
#[inline(always)]
pub(super) unsafe fn line_step<S: Simd, const M: usize, const NV: usize>(
    sums: &mut [[S::Vector; NV]; M],
    mut at: *const S::Elem,
    a_row: usize,
    b: *const S::Elem,
) {
    // SAFETY: handed on from the tile.
    unsafe {
        // Four rows share a pointer, so that the pointers of all rows fit the registers.
        let (one, two, three) = (a_row, 2 * a_row, 3 * a_row);
        let mut row = [S::zero(); NV];
        for (v, part) in row.iter_mut().enumerate() {
            *part = S::load(b.add(v * S::LANES));
        }
        each_row!(i < M {
            if i > 0 && i.is_multiple_of(4) {
                at = at.add(three).add(one);
            }
            let from = match i % 4 {
                0 => at,
                1 => at.add(one),
                2 => at.add(two),
                _ => at.add(three),
            };
            let factor = S::splat(from);
            for (s, part) in sums[i].iter_mut().zip(row) {
                let next = S::mul_add(factor, part, *s);
                // With one vector, the factor is not needed again: settled, its register would become that of the sum.
                *s = if NV > 1 { S::settle(next) } else { next };
            }
        });
    }
}

/// The columns of one panel in all lines, which have `R` rows that are neighbours in memory: `L` lines at a time.
#[inline(always)]
unsafe fn stacks<S: Simd, const L: usize, const R: usize>(
    x: &Lines<'_, S::Elem>,
    b: *const S::Elem,
    c: *mut S::Elem,
    cols: usize,
) {
    let mut line = 0;
    while line < x.lines {
        // SAFETY: these lines are there.
        unsafe {
            let (a, c) = (x.a.add(line * x.a_line), c.add(line * x.c_line));
            if x.lines - line >= L {
                stack::<S, L, R>(x, a, b, c, cols);
                line += L;
            } else {
                stack::<S, 1, R>(x, a, b, c, cols);
                line += 1;
            }
        }
    }
}

/// One tile of [`stacks`]: `L` whole lines.
#[inline(always)]
unsafe fn stack<S: Simd, const L: usize, const R: usize>(
    x: &Lines<'_, S::Elem>,
    a: *const S::Elem,
    mut b: *const S::Elem,
    c: *mut S::Elem,
    cols: usize,
) {
    // SAFETY: the caller's block covers panels and image.
    unsafe {
        let mut sums = [[[S::zero(); 1]; R]; L];
        for offset in x.offsets {
            let part = S::load(b);
            let at = a.offset(*offset);
            for (line, sums) in sums.iter_mut().enumerate() {
                let at = at.add(line * x.a_line);
                for (row, [sum]) in sums.iter_mut().enumerate() {
                    *sum = S::mul_add(S::splat(at.add(row)), part, *sum);
                }
            }
            b = b.wrapping_add(x.b_row);
        }
        for (line, sums) in sums.into_iter().enumerate() {
            finish::<S, R, 1>(sums, [c.add(line * x.c_line); 2], [x.c_row; 2], x.fresh, R, cols);
        }
    }
}

/// The shortest vectors of an instruction set.
pub(super) type Shortest<S> = <<S as Simd>::Half as Simd>::Half;
