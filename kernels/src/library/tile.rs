//! Finished blocks of a kernel's result, on which epilogues run.

use std::ops::Range;

/// A finished block of a kernel's result, still in cache when an epilogue sees it.
#[derive(Clone, Debug)]
pub struct Tile {
    /// Its rows, counted over the whole batch; for a convolution these are pixels.
    pub rows: Range<usize>,
    /// Its columns; for a convolution these are channels.
    pub cols: Range<usize>,
    /// First element of the block. Nobody else reads or writes the block during the call.
    pub data: *mut u8,
    /// Elements from one row to the next.
    pub row_stride: usize,
    /// Bytes of an element.
    pub size: usize,
}

impl Tile {
    /// Bytes from the first element of the result to the first of the block.
    pub fn offset(&self) -> usize {
        (self.rows.start * self.row_stride + self.cols.start) * self.size
    }
}

/// The blocks that a kernel finishes one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TileShape {
    /// Elements of a row of the result.
    pub(crate) width: usize,
    /// Whether blocks have all elements of their rows.
    pub(crate) has_whole_rows: bool,
    /// Whether the result is one block.
    pub(crate) is_one: bool,
}

/// Code that is called once for each finished block; blocks cover the result exactly once.
pub type TileCallback<'a> = &'a (dyn Fn(Tile) + Sync);
