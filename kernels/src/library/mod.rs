//! Library kernels: what no generated loop nest expresses well.
//!
//! Each kernel is a plain descriptor with `inputs`, `outputs`, `run` and `reference`, the naive slow twin. Results do
//! not depend on the number of threads or on the instruction set.

mod conv;
mod matmul;
mod micro;
#[cfg(test)]
mod tests;

use std::ops::Range;

use retape_runtime::{DType, Element};

pub use conv::{Conv2d, ConvPass};
pub use matmul::{MatMul, Operand};

/// A finished block of a kernel's result, still in cache when an epilogue sees it.
#[derive(Clone, Debug)]
pub struct Tile {
    /// Which of the batch's matrices, in row-major order of the batch extents.
    pub batch: usize,
    /// Its rows; for a convolution these are pixels, counted over the whole batch.
    pub rows: Range<usize>,
    /// Its columns; for a convolution these are channels.
    pub cols: Range<usize>,
    /// First element of the block. Nobody else reads or writes the block during the call.
    pub data: *mut u8,
    /// Elements from one row to the next.
    pub row_stride: usize,
}

/// Code that is called once for each finished block; blocks cover the result exactly once.
pub type Epilogue<'a> = &'a (dyn Fn(Tile) + Sync);

/// The elements of a buffer, which holds exactly `len` of them.
fn view<'a, T: Element>(bytes: &'a [u8], len: usize, what: &str) -> &'a [T] {
    assert_eq!(bytes.len(), len * size_of::<T>(), "{what}: bytes of {len} elements of {}", T::DTYPE);
    if len == 0 {
        return &[];
    }
    assert!(bytes.as_ptr().cast::<T>().is_aligned(), "{what}: aligned to its element");
    // SAFETY: length and alignment are checked, and an element has no invalid bit patterns (`T` is a float here).
    unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), len) }
}

/// [`view`], to write to.
fn view_mut<'a, T: Element>(bytes: &'a mut [u8], len: usize, what: &str) -> &'a mut [T] {
    if view::<T>(bytes, len, what).is_empty() {
        return &mut [];
    }
    // SAFETY: as in `view`; the borrow is exclusive.
    unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), len) }
}

/// Asserts that a kernel is called with as many buffers as it has.
fn check_arity(inputs: &[&[u8]], outputs: &[&mut [u8]], n_inputs: usize) {
    assert_eq!(inputs.len(), n_inputs, "number of input buffers");
    assert_eq!(outputs.len(), 1, "number of output buffers");
}

/// The two dtypes that products are computed in.
fn assert_float(dtype: DType) {
    assert!(dtype.is_float(), "products are computed in f32 and f64, not in {dtype}");
}
