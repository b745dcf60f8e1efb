//! Memory for packed panels and for what travels, kept by each thread from one product or sum to the next.
//!
//! Guarantees 64-byte alignment. Scratch may be taken again while some is in use; each use has memory of its own. A thread
//! that is ending keeps nothing, and can take scratch all the same.

use std::cell::RefCell;

use super::Real;

/// One cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct CacheLine([u8; 64]);

thread_local! {
    static SPARE: RefCell<Vec<Vec<CacheLine>>> = const { RefCell::new(Vec::new()) };
}

/// Bytes above which scratch goes back to the allocator after its use.
const KEEP: usize = 32 << 20;

/// Calls `body` with `len` elements of arbitrary content.
pub(crate) fn with_scratch<T: Real, R>(len: usize, body: impl FnOnce(&mut [T]) -> R) -> R {
    with_lines(len * size_of::<T>(), |lines| {
        // SAFETY: the lines are initialised, aligned for and at least as long as `len` elements of `T`, for which every
        // bit pattern is a value (`Real` is `f32` or `f64`).
        body(unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast::<T>(), len) })
    })
}

/// Calls `body` with `len` bytes of arbitrary content.
pub(crate) fn with_bytes<R>(len: usize, body: impl FnOnce(&mut [u8]) -> R) -> R {
    with_lines(len, |lines| {
        // SAFETY: the lines are initialised and at least as long as `len` bytes.
        body(unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast::<u8>(), len) })
    })
}

/// Calls `body` with at least as many lines as `bytes` take.
fn with_lines<R>(bytes: usize, body: impl FnOnce(&mut [CacheLine]) -> R) -> R {
    let n_lines = bytes.div_ceil(size_of::<CacheLine>());
    let spare = SPARE.try_with(|spare| spare.borrow_mut().pop()).ok().flatten();
    let mut lines = spare.unwrap_or_default();
    if lines.len() < n_lines {
        lines = vec![CacheLine([0; 64]); n_lines];
    }
    let result = body(&mut lines);
    if lines.len() * size_of::<CacheLine>() <= KEEP {
        let _ = SPARE.try_with(|spare| spare.borrow_mut().push(lines));
    }
    result
}
