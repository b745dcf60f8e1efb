//! The switch of determinism, which belongs to the process.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use retape_runtime::CachePadded;

/// Every call reads it, so it shares a cache line with nothing that is written.
static IS_OFF: CachePadded<AtomicBool> = CachePadded(AtomicBool::new(false));

/// Whether the same program has to give the same bits in every run, for all of this process; returns what was set
/// before. It has to unless this is called with `false`.
///
/// With `false`, a GPU may add numbers in an order that differs between runs where that is faster: sums of `f32` and
/// `f64` in [`scatter_add`](crate::Tensor::scatter_add), [`scatter_add_along`](crate::Tensor::scatter_add_along) and so
/// in gradients of `take`, `take_along` and `embedding` with more than 32 indices become atomic additions, which also
/// turn subnormal sums of `f32` into zero. Everything else on a GPU, and everything on the processor, is the same as
/// with `true`. [The page on determinism](crate::guide::determinism) has the details.
///
/// The switch is part of the signature of accelerated functions: after a change the next call with each signature
/// misses with the reason [`ModeChanged`](crate::MissReason::ModeChanged), and finds its entry again when the switch is
/// back. Entries, pinned and loaded ones too, keep the state that they were made in, and so do gradients that are taken
/// of them. Calls that run at the time of a change are of either state.
///
/// ```rust,standalone_crate
/// use retape::set_deterministic;
///
/// let previous = set_deterministic(false);
/// assert!(previous); // the default
/// // What is worth more speed than equal bits.
/// set_deterministic(previous);
/// assert!(retape::deterministic());
/// ```
pub fn set_deterministic(is_on: bool) -> bool {
    !IS_OFF.swap(!is_on, Relaxed)
}

/// Whether the same program has to give the same bits in every run; see [`set_deterministic`].
///
/// ```
/// assert!(retape::deterministic());
/// ```
pub fn deterministic() -> bool {
    !is_off()
}

/// Whether the order of additions is left open.
#[inline]
pub(crate) fn is_off() -> bool {
    IS_OFF.load(Relaxed)
}
