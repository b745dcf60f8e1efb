//! Memory for packed panels and for what travels, kept by each thread from one product or sum to the next.
//!
//! Guarantees 64-byte alignment. Scratch may be taken again while some is in use; each use has memory of its own. A thread
//! that is ending keeps nothing, and can take scratch all the same.

use std::alloc::{Layout, handle_alloc_error};
use std::cell::RefCell;

use retape_runtime::Scratch;

use super::Real;

thread_local! {
    static SPARE: RefCell<Vec<Scratch>> = const { RefCell::new(Vec::new()) };
}

/// Bytes above which scratch is freed after its use.
const KEEP: usize = 32 << 20;

/// Calls `body` with `len` elements of arbitrary content.
pub(crate) fn with_scratch<T: Real, R>(len: usize, body: impl FnOnce(&mut [T]) -> R) -> R {
    with_bytes(len * size_of::<T>(), |bytes| {
        // SAFETY: the bytes are initialised, aligned for and at least as long as `len` elements of `T`, for which every
        // bit pattern is a value (`Real` is `f32` or `f64`).
        body(unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast::<T>(), len) })
    })
}

/// Calls `body` with `len` bytes of arbitrary content.
pub(crate) fn with_bytes<R>(len: usize, body: impl FnOnce(&mut [u8]) -> R) -> R {
    let spare = SPARE.try_with(|spare| spare.borrow_mut().pop()).ok().flatten();
    let mut scratch = spare.unwrap_or_else(|| fresh(len));
    if scratch.as_mut_slice().len() < len {
        scratch = fresh(len);
    }
    let bytes = scratch.as_mut_slice();
    let is_kept = bytes.len() <= KEEP;
    let result = body(&mut bytes[..len]);
    if is_kept {
        let _ = SPARE.try_with(|spare| spare.borrow_mut().push(scratch));
    }
    result
}

/// At least `len` bytes.
fn fresh(len: usize) -> Scratch {
    // Kernels often ask for more soon after, and pages that none touches take addresses alone.
    let bytes = if len <= KEEP { len.next_power_of_two() } else { len };
    Scratch::zeroed(bytes).unwrap_or_else(|| {
        let layout = Layout::array::<u8>(bytes).expect("a slice of so many elements was asked for");
        handle_alloc_error(layout)
    })
}
