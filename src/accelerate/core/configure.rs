//! The settings of a function, read and changed.

use std::sync::atomic::Ordering::Relaxed;

use retape_runtime::{Capacity, lock};

use super::Core;
use super::mode::flag;
use crate::diagnose::check::CheckMode;
use crate::options::{MathMode, Options};

impl Core {
    pub(crate) fn options(&self) -> Options {
        let flags = self.flags.load(Relaxed);
        let has = |flag: u32| flags & flag != 0;
        let Capacity { entries, budget } = self.cache.capacity();
        Options {
            capacity: entries,
            byte_budget: budget,
            enabled: !has(flag::DISABLED),
            locked: self.common.is_locked(),
            stale_check: !has(flag::TRUSTED),
            retrace: *lock(&self.policy),
            check: self.checks.mode(),
            tolerance: self.checks.tolerance(),
            math: self.math_mode(),
            trap_nonfinite: has(flag::TRAPPED),
            profiling: has(flag::PROFILED),
        }
    }

    /// Sets each option that has changed: others may be set by another thread meanwhile.
    pub(crate) fn configure(&self, change: impl FnOnce(&mut Options)) {
        let old = self.options();
        let mut new = old.clone();
        change(&mut new);
        let mut capacity = self.cache.capacity();
        if new.capacity != old.capacity {
            capacity.entries = new.capacity.max(1);
        }
        if new.byte_budget != old.byte_budget {
            capacity.budget = new.byte_budget;
        }
        // Entries that have been over the budget since they were pinned may go now.
        self.cache.resize(capacity);
        if new.locked != old.locked {
            self.common.set_locked(new.locked);
        }
        if new.retrace != old.retrace {
            *lock(&self.policy) = new.retrace;
        }
        if new.check != old.check {
            self.checks.set_mode(new.check);
        }
        if new.tolerance != old.tolerance {
            self.checks.set_tolerance(new.tolerance);
        }
        if new.profiling && !old.profiling {
            self.recorder.restart();
        }
        let flags = |options: &Options| {
            let all = [
                (flag::DISABLED, !options.enabled),
                (flag::TRUSTED, !options.stale_check),
                (flag::CHECKED, options.check != CheckMode::Never),
                (flag::FAST, options.math == MathMode::Fast),
                (flag::TRAPPED, options.trap_nonfinite),
                (flag::PROFILED, options.profiling),
            ];
            all.into_iter().filter(|(_, is_on)| *is_on).fold(0, |flags, (flag, _)| flags | flag)
        };
        let (before, after) = (flags(&old), flags(&new));
        self.flags.fetch_or(after & !before, Relaxed);
        self.flags.fetch_and(!(before & !after), Relaxed);
    }
}
