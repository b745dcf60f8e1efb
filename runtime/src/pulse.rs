//! The pulse of a thread: whether it runs code of a user, and signs that it gets on.
//!
//! A thread that makes a value may run a user's closure for that. The library cannot know how long that takes, nor
//! whether it ever ends: the closure may wait for another thread, which waits for the value. So the thread says when it
//! is in such code, and beats whenever it does something there that this library sees. `waits.rs` judges by that.
//!
//! Guarantees that the state is what it was before once a function here returns or panics.

use crate::sync::{Arc, AtomicBool, AtomicU64, Relaxed, thread_local};

/// The state of one thread, for others to read.
pub(crate) struct Pulse {
    is_in_user_code: AtomicBool,
    beats: AtomicU64,
}

thread_local! {
    static OWN: Arc<Pulse> = Arc::new(Pulse { is_in_user_code: AtomicBool::new(false), beats: AtomicU64::new(0) });
}

impl Pulse {
    /// The pulse of this thread; a thread that is ending has a new one, which says that it is at work.
    pub(crate) fn own() -> Arc<Pulse> {
        let new = || Arc::new(Pulse { is_in_user_code: AtomicBool::new(false), beats: AtomicU64::new(0) });
        OWN.try_with(Arc::clone).unwrap_or_else(|_| new())
    }

    pub(crate) fn is_in_user_code(&self) -> bool {
        self.is_in_user_code.load(Relaxed)
    }

    pub(crate) fn beats(&self) -> u64 {
        self.beats.load(Relaxed)
    }

    /// Changed by its own thread only, so a load and a store.
    fn beat(&self) {
        self.beats.store(self.beats.load(Relaxed).wrapping_add(1), Relaxed);
    }
}

/// Gives a thread its state back.
struct Restore(Arc<Pulse>, bool);

impl Drop for Restore {
    fn drop(&mut self) {
        self.0.is_in_user_code.store(self.1, Relaxed);
        self.0.beat();
    }
}

fn run<R>(is_in_user_code: bool, work: impl FnOnce() -> R) -> R {
    let own = Pulse::own();
    let before = own.is_in_user_code.swap(is_in_user_code, Relaxed);
    let _restore = Restore(own, before);
    work()
}

/// Runs code of a user, of which nobody knows whether it ends. A thread that waits for a value which this thread makes
/// meanwhile may lose its patience; see [`Cache::get_or_try_insert_with`](crate::Cache::get_or_try_insert_with).
pub fn in_user_code<R>(work: impl FnOnce() -> R) -> R {
    run(true, work)
}

/// Runs code that ends, perhaps on behalf of a user's code: no thread that waits loses its patience meanwhile. Code of a
/// user within it is run by [`in_user_code`] again.
pub fn at_work<R>(work: impl FnOnce() -> R) -> R {
    run(false, work)
}

/// Notes that the user's code which this thread runs, if it does, gets on.
#[inline]
pub fn note_progress() {
    // A thread that is ending makes nothing that others wait for.
    let _ = OWN.try_with(|own| own.beat());
}
