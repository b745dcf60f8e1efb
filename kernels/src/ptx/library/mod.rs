//! Library kernels as PTX.
//!
//! Each file lowers one descriptor; `crate::library` says what it computes. Results are those of the CPU bit for bit,
//! except for sums and products of floats in scans, whose tree is another one. Everything is chosen by shape: threads
//! per line, parts of long lines, tiles. Nothing is launched for results of no elements.

mod arg_reduce;
mod cast_half;
mod cholesky;
mod code;
mod entry;
mod join;
mod number;
mod philox;
mod pool;
mod scan;
mod scatter;
mod sort;
mod transpose;
mod triangular;

use code::KernelWriter;
use number::{NumberType, Order};

pub(super) use arg_reduce::arg_reduce;
pub(super) use cast_half::cast_half;
pub(super) use cholesky::cholesky;
pub(super) use join::join;
pub(super) use philox::philox;
pub(super) use pool::pool;
pub(super) use scan::{recurrence, scan};
pub(super) use scatter::scatter_add;
pub(super) use sort::sort;
pub(super) use transpose::transpose;
pub(super) use triangular::triangular_solve;

/// Threads of a block where nothing asks for another number.
const BLOCK: u32 = 256;

/// Blocks for a thread per item.
fn blocks(items: usize) -> usize {
    items.div_ceil(BLOCK as usize)
}

/// The next multiple of 256, to which parts of the scratch memory are aligned.
fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(256)
}
