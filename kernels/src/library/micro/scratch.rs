//! Memory for packed panels, kept by each thread from one product to the next.
//!
//! Guarantees 64-byte alignment. Scratch may be taken again while some is in use; each use has memory of its own. A thread
//! that is ending keeps nothing, and can take scratch all the same.

use std::cell::RefCell;

use super::Real;

/// One cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

thread_local! {
    static SPARE: RefCell<Vec<Vec<Line>>> = const { RefCell::new(Vec::new()) };
}

/// Bytes above which scratch goes back to the allocator after its use.
const KEEP: usize = 32 << 20;

/// Calls `body` with `len` elements of arbitrary content.
pub(crate) fn with_scratch<T: Real, R>(len: usize, body: impl FnOnce(&mut [T]) -> R) -> R {
    let n_lines = (len * size_of::<T>()).div_ceil(size_of::<Line>());
    let spare = SPARE.try_with(|spare| spare.borrow_mut().pop()).ok().flatten();
    let mut lines = spare.unwrap_or_default();
    if lines.len() < n_lines {
        lines = vec![Line([0; 64]); n_lines];
    }
    // SAFETY: the lines are initialised, aligned for and at least as long as `len` elements of `T`, for which every
    // bit pattern is a value (`Real` is `f32` or `f64`).
    let result = body(unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast::<T>(), len) });
    if lines.len() * size_of::<Line>() <= KEEP {
        let _ = SPARE.try_with(|spare| spare.borrow_mut().push(lines));
    }
    result
}
