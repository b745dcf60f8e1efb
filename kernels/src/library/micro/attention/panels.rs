//! Panels of heads, products of them, and results turned.

use std::ops::Range;

use crate::library::exchange::{exchange, exchange_to};
use crate::library::micro::drive::pack_row_panels;
use crate::library::micro::pack::{CHUNK, PanelSource, Strided};
use crate::library::micro::softmax::SoftmaxReal;
use crate::library::micro::tile::Block;
use crate::library::micro::{Kernels, Layout, block_depth};

/// Row panels of an operand, in blocks of depth.
pub(super) struct RowPanels<'a, T> {
    data: &'a mut [T],
    rows: usize,
    pub(super) steps: usize,
    layout: Layout,
}

impl<'a, T: SoftmaxReal> RowPanels<'a, T> {
    /// Elements of panels at most.
    pub(super) fn len(kernels: &Kernels<T>, rows: usize, steps: usize) -> usize {
        rows.next_multiple_of(kernels.heights[0]) * steps.div_ceil(block_depth(steps).max(1)) * block_depth(steps)
    }

    pub(super) fn pack(
        kernels: &Kernels<T>,
        source: &Strided<T>,
        [rows, steps]: [usize; 2],
        data: &'a mut [T],
    ) -> Self {
        let (mut rest, layout) = (&mut *data, source.layout());
        for now in blocks(0..steps, block_depth(steps)) {
            let (panels, after) = rest.split_at_mut(RowPanels::block_len(kernels, rows, now.len()));
            pack_row_panels(kernels, source, kernels.row_panels(0..rows), &now, panels);
            rest = after;
        }
        RowPanels { data, rows, steps, layout }
    }

    /// Elements of a block of depth.
    fn block_len(kernels: &Kernels<T>, rows: usize, steps: usize) -> usize {
        rows.next_multiple_of(kernels.heights[0]) * steps.next_multiple_of(CHUNK)
    }

    /// The product of at least `rows` rows over the first `steps` steps with the columns of `b`.
    ///
    /// # Safety
    ///
    /// The level of `kernels` is present, `b` has the steps and columns, and vectors at its edge are readable; `c` is
    /// writable for all rows that were packed.
    pub(super) unsafe fn times(
        &self,
        kernels: &Kernels<T>,
        [rows, steps]: [usize; 2],
        b: &ColumnPanels<T>,
        c: &ProductTarget<T>,
    ) {
        let height = kernels.heights[0];
        // Whole panels, and all of them rather than one of the last two, which may share their rows.
        let rows = rows.next_multiple_of(height);
        let rows = if rows == 0 || rows + height <= self.rows { rows } else { self.rows };
        let mut block_start = 0;
        for now in blocks(0..self.steps, block_depth(self.steps)) {
            let depth = now.len().min(steps.saturating_sub(now.start));
            if depth > 0 && rows > 0 {
                let block = Block {
                    rows,
                    cols: b.cols,
                    depth,
                    a: self.data[block_start..].as_ptr(),
                    a_panel: height * now.len().next_multiple_of(CHUNK),
                    layout: self.layout,
                    a_from: std::ptr::null(),
                    a_from_row: 0,
                    b: b.data.wrapping_add(now.start * b.row),
                    width: kernels.width,
                    b_panel: b.panel,
                    b_row: b.row,
                    c: c.data,
                    c_row: c.row,
                    fresh: c.fresh && now.start == 0,
                    before: c.data,
                    before_row: c.row,
                    is_quick: kernels.is_quick,
                    staging: std::ptr::null_mut(),
                    ahead: std::ptr::null_mut(),
                };
                // SAFETY: the contract of this function.
                unsafe { (kernels.block)(&block) };
            }
            block_start += RowPanels::block_len(kernels, self.rows, now.len());
        }
    }
}

/// Columns of a product, as the micro-kernels read them.
pub(super) struct ColumnPanels<T> {
    pub(super) data: *const T,
    /// Elements from one panel to the next, and from one step to the next.
    pub(super) panel: usize,
    pub(super) row: usize,
    pub(super) cols: usize,
}

/// The place of a product, and whether it is overwritten.
pub(super) struct ProductTarget<T> {
    pub(super) data: *mut T,
    pub(super) row: usize,
    pub(super) fresh: bool,
}

/// A range in parts of `len`.
pub(super) fn blocks(range: Range<usize>, len: usize) -> impl Iterator<Item = Range<usize>> + Clone {
    let end = range.end;
    range.step_by(len.max(1)).map(move |start| start..(start + len).min(end))
}

/// Packs columns panel by panel, all steps of each.
pub(super) fn pack_columns<T: SoftmaxReal>(
    kernels: &Kernels<T>,
    source: &Strided<T>,
    [cols, steps]: [usize; 2],
    to: &mut [T],
) {
    let width = kernels.width;
    for (panel, to) in blocks(0..cols, width).zip(to.chunks_mut((width * steps).max(1))) {
        let (data, outer, inner) = source.parts();
        if inner != 1 || outer < 1 || panel.len() < width || steps == 0 {
            source.pack(panel, 0..steps, Layout::Interleaved, width, to);
            continue;
        }
        let (first, distance) = (data.wrapping_offset(panel.start as isize * outer), outer.unsigned_abs());
        // SAFETY: the columns of the panel, by the contract of the source, each of which has these steps.
        let columns = unsafe { std::slice::from_raw_parts(first, (width - 1) * distance + steps) };
        exchange(columns, distance, [width, steps], to, width);
    }
}

/// Elements of packed columns.
pub(super) fn columns_len<T>(kernels: &Kernels<T>, [cols, steps]: [usize; 2]) -> usize {
    cols.next_multiple_of(kernels.width) * steps
}

/// Writes columns as rows: element (i, j) of `from`, at `i * row + j`, goes to `to + j * stride + i`.
///
/// # Safety
///
/// `to` is writable for `cols` rows of `rows` elements at distance `stride`.
pub(super) unsafe fn write_transposed<T: SoftmaxReal>(
    from: &[T],
    row: usize,
    [rows, cols]: [usize; 2],
    to: *mut T,
    stride: usize,
) {
    // SAFETY: handed on.
    unsafe { exchange_to(from, row, [rows, cols], to, stride) };
}
