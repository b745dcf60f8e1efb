//! The method of the caller's program that is running: its name for errors, its line for what it records.
//!
//! `x.softmax(0)` applies a maximum, a difference, an exponential and more, none of which its caller wrote. So errors in
//! these name `softmax`, and the nodes that they record belong to the line of `softmax`. A composite calls [`method`]
//! first; its name holds on the thread until the guard is dropped, and inside another composite the outer name holds.
//! Derivative rules run as methods, too, under the name and the line of their op.

use std::cell::Cell;
use std::marker::PhantomData;
use std::panic::Location;

/// The source line an op was called from.
pub type Caller = &'static Location<'static>;

/// The method of the program that recorded an op as a part of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Origin {
    /// Its name, such as `softmax`; of an operator that of its op, such as `div`.
    pub method: &'static str,
    /// Whether the op is part of its gradient.
    pub is_gradient: bool,
}

/// A method that runs, and the line that called it.
#[derive(Clone, Copy)]
struct Outermost {
    origin: Origin,
    at: Caller,
}

thread_local! {
    /// The outermost method that runs on this thread.
    static OUTERMOST: Cell<Option<Outermost>> = const { Cell::new(None) };
}

/// A method that runs on this thread until this is dropped.
#[must_use = "it holds until it is dropped"]
pub(crate) struct Running {
    is_outermost: bool,
    /// The name is that of a thread.
    thread: PhantomData<*const ()>,
}

/// Names the method that runs from here on.
#[track_caller]
pub(crate) fn method(name: &'static str) -> Running {
    method_at(name, Location::caller())
}

/// [`method`] with the caller's line given.
pub(crate) fn method_at(name: &'static str, at: Caller) -> Running {
    running(Origin { method: name, is_gradient: false }, at)
}

/// As [`method_at`], for the derivative rule of an op of a method.
pub(crate) fn gradient_of(name: &'static str, at: Caller) -> Running {
    running(Origin { method: name, is_gradient: true }, at)
}

fn running(origin: Origin, at: Caller) -> Running {
    let is_outermost = OUTERMOST.get().is_none();
    if is_outermost {
        OUTERMOST.set(Some(Outermost { origin, at }));
    }
    Running { is_outermost, thread: PhantomData }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.is_outermost {
            OUTERMOST.set(None);
        }
    }
}

/// The method and the line to report for an op: those of the method that runs, if one does.
pub(crate) fn reported(op: &'static str, at: Caller) -> (&'static str, Caller) {
    OUTERMOST.get().map_or((op, at), |outermost| (outermost.origin.method, outermost.at))
}

/// The method that an op is recorded as a part of, if one runs.
pub(crate) fn origin() -> Option<Origin> {
    OUTERMOST.get().map(|outermost| outermost.origin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outer_method_is_named_until_it_returns() {
        let here = Location::caller();
        let name = || reported("op", here).0;
        assert_eq!(name(), "op");
        {
            let _outer = method("outer");
            let _inner = method("inner");
            assert_eq!(name(), "outer");
            drop(method("another"));
            assert_eq!(name(), "outer");
            assert_eq!(std::thread::scope(|scope| scope.spawn(name).join().unwrap()), "op");
        }
        assert_eq!(name(), "op");
        let panicking = std::panic::catch_unwind(|| {
            let _method = method("panicking");
            panic!("with the method running");
        });
        assert!(panicking.is_err());
        assert_eq!(name(), "op");
    }
}
