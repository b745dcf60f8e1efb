//! Facts of a thread that hold while it does some work.

use std::cell::Cell;
use std::thread::LocalKey;

/// Runs work with a flag of this thread raised, and restores it afterwards, also after a panic.
pub(super) fn raised<R>(flag: &'static LocalKey<Cell<bool>>, work: impl FnOnce() -> R) -> R {
    struct Restore(&'static LocalKey<Cell<bool>>, bool);

    impl Drop for Restore {
        fn drop(&mut self) {
            self.0.set(self.1);
        }
    }

    let _restore = Restore(flag, flag.replace(true));
    work()
}
