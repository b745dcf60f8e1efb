//! The flags of a function, and the modes among them that are part of a signature.

use super::CallContext;
use crate::signature::{CallModes, Description};
use crate::tree::Writer;

/// Flags of the calls that do more than look up and run; one load tells whether any is set.
pub(crate) mod flag {
    /// Calls go through the un-accelerated path.
    pub(crate) const DISABLED: u32 = 1;
    /// Calls are measured.
    pub(crate) const PROFILED: u32 = 1 << 1;
    /// Some calls are compared with the un-accelerated path.
    pub(crate) const CHECKED: u32 = 1 << 2;
    /// Ops that make NaN or infinities from finite numbers fail the call.
    pub(crate) const TRAPPED: u32 = 1 << 3;
    /// Some signatures are served by the un-accelerated path, for their code is wrong.
    pub(crate) const QUARANTINED: u32 = 1 << 4;
    /// Code may approximate.
    pub(crate) const FAST: u32 = 1 << 5;
    /// No hit enters the closure to look for changes.
    pub(crate) const TRUSTED: u32 = 1 << 6;
    /// A GPU may add in an order that differs between runs; a flag of the process and none of the function.
    pub(crate) const NONDETERMINISTIC: u32 = 1 << 7;
    /// Those that alone do not make a call more than a lookup and a run.
    pub(crate) const CHEAP: u32 = FAST | TRUSTED | NONDETERMINISTIC;
}

/// The modes that change code.
#[inline]
pub(crate) fn modes(flags: u32) -> CallModes {
    let has = |flag: u32| flags & flag != 0;
    CallModes { is_fast: has(flag::FAST), traps: has(flag::TRAPPED), is_nondeterministic: has(flag::NONDETERMINISTIC) }
}

/// Adds the modes that change code to the words of the arguments.
#[inline]
pub(crate) fn write_modes(flags: u32, leaves: &mut Writer<'_>) {
    modes(flags).write(|word| leaves.word(word));
}

/// The arguments of a call and the modes that change its code.
pub(crate) fn described(flags: u32, context: &CallContext<'_>) -> Description {
    Description { modes: modes(flags).texts(), ..(context.describe)() }
}
