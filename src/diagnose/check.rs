//! Check mode: calls that also run the un-accelerated path and compare.
//!
//! The un-accelerated path enters the closure again, so it sees what has changed since the trace: a captured tensor or
//! number, a branch on the world outside. It shares no optimised graph, no fused kernel and no arena with the entry.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use retape_runtime::{CachePadded, lock};

use super::tolerance::{Tolerance, compare};
use crate::error::{Caller, Deviation, Error, Gap, Result};
use crate::identity::Identity;
use crate::observe::events::Events;
use crate::observe::stats::CheckCounts;
use crate::signature::Signature;
use crate::tensor::Tensor;
use crate::trace::Trace;

/// How many differences are remembered, the last ones.
const MAX_DEVIATIONS: usize = 64;

/// Whether calls are checked against the un-accelerated path.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum CheckMode {
    /// No call is.
    #[default]
    Never,
    /// Some or all are.
    Check(Check),
}

/// Which calls are checked, how closely, and the action on those that differ.
///
/// ```
/// use retape::{Check, OnDifference, Tensor, accelerate};
/// use std::sync::Mutex;
///
/// static SCALE: Mutex<f32> = Mutex::new(2.0);
///
/// let scaled = accelerate(|x: &Tensor| x * *SCALE.lock().unwrap()).named("scaled");
/// scaled.configure(|options| options.check = (Check { on_difference: OnDifference::Err, ..Check::default() }).into());
/// scaled.call(Tensor::ones([3]))?;
/// *SCALE.lock().unwrap() = 3.0; // the trace does not see this
/// let error = scaled.call(Tensor::ones([3])).unwrap_err();
/// assert!(error.to_string().contains("result of an accelerated call of `scaled` differs"), "{error}");
/// assert!(error.to_string().contains("2.0 instead of 3.0"), "{error}");
/// # Ok::<(), retape::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Check {
    /// Which calls.
    pub when: CheckWhen,
    /// How far results may differ.
    pub tolerance: Tolerance,
    /// The action if they differ more.
    pub on_difference: OnDifference,
}

/// Which calls are checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CheckWhen {
    /// All.
    #[default]
    Every,
    /// The first call after this was set, and every `n`-th after it, over all entries and threads together.
    OneIn(u64),
    /// The first `k` calls that each entry serves after this was set, one that made it included; setting it again counts
    /// from anew.
    First(u64),
}

/// The action if a checked call differs from the un-accelerated one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDifference {
    /// A `tracing` event with level `WARN`, or a line on standard error where nobody listens for it; the call returns
    /// what the compiled code computed.
    #[default]
    Warn,
    /// The call fails with [`Error::Check`](crate::Error::Check).
    Err,
    /// As `Warn`, and the call returns what the un-accelerated path computed. So do all later calls with the signature,
    /// until the cache is cleared: its entry is in quarantine. Only where a gradient that is under way has already used a
    /// tensor that the function handed through or returned as it was, it fails as with `Err`.
    FallBack,
}

impl From<Check> for CheckMode {
    fn from(check: Check) -> CheckMode {
        CheckMode::Check(check)
    }
}

/// A call that is compared with the un-accelerated one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ComparedCall<'c> {
    pub(crate) function: &'c Identity,
    pub(crate) signature: &'c Signature,
    pub(crate) at: Caller,
}

impl Deviation {
    /// A difference in a leaf, whose elements are not compared.
    pub(crate) fn new(call: ComparedCall<'_>, path: String, expected: String, got: String) -> Deviation {
        let ComparedCall { function, signature, at } = call;
        let (function, signature) = (function.name(), signature.clone());
        Deviation { function, signature, at, path, expected, got, gap: None, n_tensors: 0 }
    }

    /// The un-accelerated call fails where the accelerated one does not.
    pub(crate) fn of_failure(call: ComparedCall<'_>, error: &Error) -> Deviation {
        Deviation::new(call, "result".into(), format!("the error `{error}`"), "a result".into())
    }
}

/// The signal that makes calls look for quarantines: a bit of the flags that each call reads.
#[derive(Debug, Default)]
struct Alarm {
    flags: Arc<CachePadded<AtomicU32>>,
    bit: u32,
}

impl Alarm {
    fn is_raised(&self) -> bool {
        self.flags.load(Relaxed) & self.bit != 0
    }
}

/// A check mode, and how many were set before.
#[derive(Clone, Copy, Debug, Default)]
struct NumberedMode {
    mode: CheckMode,
    number: u64,
}

/// How many calls an entry has served since a mode was set that counts them.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<(u64, u64)>);

impl Turns {
    /// How many came before this one in the mode with this number.
    fn next(&self, number: u64) -> u64 {
        let mut turns = lock(&self.0);
        let (counted, n) = *turns;
        let n = if counted == number { n } else { 0 };
        *turns = (number, n + 1);
        n
    }
}

/// Whether a call is among those that were compared and those that differed: it may be compared several times.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    is_checked: AtomicBool,
    is_differing: AtomicBool,
}

/// The state of a function's checks.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    alarm: Alarm,
    mode: Mutex<NumberedMode>,
    tolerance: Mutex<Tolerance>,
    deviations: Mutex<VecDeque<Deviation>>,
    quarantined: Mutex<HashSet<Box<[u64]>>>,
    /// Calls that were up for being checked.
    turns: AtomicU64,
    checked: AtomicU64,
    differing: AtomicU64,
    quarantines: AtomicU64,
    quarantined_calls: AtomicU64,
    trapped: AtomicU64,
    stale_checks: AtomicU64,
    stale: AtomicU64,
}

impl Checks {
    /// Checks of a function whose calls look for quarantines if this bit of its flags is set.
    pub(crate) fn new(flags: Arc<CachePadded<AtomicU32>>, bit: u32) -> Checks {
        Checks { alarm: Alarm { flags, bit }, ..Checks::default() }
    }

    pub(crate) fn mode(&self) -> CheckMode {
        lock(&self.mode).mode
    }

    pub(crate) fn set_mode(&self, mode: CheckMode) {
        {
            let mut current = lock(&self.mode);
            *current = NumberedMode { mode, number: current.number + 1 };
            self.turns.store(0, Relaxed);
        }
        if let CheckMode::Check(check) = mode {
            *lock(&self.tolerance) = check.tolerance;
        }
    }

    pub(crate) fn tolerance(&self) -> Tolerance {
        *lock(&self.tolerance)
    }

    pub(crate) fn set_tolerance(&self, tolerance: Tolerance) {
        if let CheckMode::Check(check) = &mut lock(&self.mode).mode {
            check.tolerance = tolerance;
        }
        *lock(&self.tolerance) = tolerance;
    }

    /// How to check a call that an entry serves, whose turns these are; none if its turn has not come.
    pub(crate) fn is_due(&self, turns: &Turns) -> Option<Check> {
        // Held, so that what is counted belongs to this mode.
        let current = lock(&self.mode);
        let CheckMode::Check(check) = current.mode else { return None };
        let is_due = match check.when {
            CheckWhen::Every => true,
            CheckWhen::OneIn(n) => self.turns.fetch_add(1, Relaxed).is_multiple_of(n.max(1)),
            CheckWhen::First(k) => turns.next(current.number) < k,
        };
        is_due.then_some(check)
    }

    /// Puts a comparison on record, and a difference to its consequences: an error, or whether the call is to go on
    /// with what the un-accelerated path computed, its signature being in quarantine. `tally` is the call's own.
    pub(crate) fn record(
        &self,
        tally: &Tally,
        deviation: Option<Deviation>,
        consequence: OnDifference,
        events: &Events,
    ) -> Result<bool> {
        let is_first = |already: &AtomicBool| u64::from(!already.swap(true, Relaxed));
        self.checked.fetch_add(is_first(&tally.is_checked), Relaxed);
        let Some(deviation) = deviation else { return Ok(false) };
        self.differing.fetch_add(is_first(&tally.is_differing), Relaxed);
        self.keep(&deviation);
        match consequence {
            OnDifference::Err => Err(Error::Check(Box::new(deviation))),
            OnDifference::Warn => {
                events.difference(&deviation);
                Ok(false)
            }
            OnDifference::FallBack => {
                // First, since listeners are the program's code, which may panic.
                self.quarantine(deviation.signature.argument_words());
                events.difference(&deviation);
                events.quarantine(&deviation.signature, deviation.at);
                Ok(true)
            }
        }
    }

    pub(crate) fn count_stale_check(&self, is_stale: bool) {
        self.stale_checks.fetch_add(1, Relaxed);
        self.stale.fetch_add(u64::from(is_stale), Relaxed);
    }

    pub(crate) fn count_trap(&self) {
        self.trapped.fetch_add(1, Relaxed);
    }

    fn keep(&self, deviation: &Deviation) {
        let mut deviations = lock(&self.deviations);
        if deviations.len() == MAX_DEVIATIONS {
            deviations.pop_front();
        }
        deviations.push_back(deviation.clone());
    }

    pub(crate) fn deviations(&self) -> Vec<Deviation> {
        lock(&self.deviations).iter().cloned().collect()
    }

    /// Serves the signature with these words un-accelerated from now on.
    fn quarantine(&self, words: &[u64]) {
        let mut quarantined = lock(&self.quarantined);
        if quarantined.insert(words.into()) {
            self.quarantines.fetch_add(1, Relaxed);
        }
        // Before anybody can lift it.
        self.alarm.flags.fetch_or(self.alarm.bit, Relaxed);
    }

    /// Whether the signature is in quarantine; one load if none is.
    #[inline]
    pub(crate) fn has_in_quarantine(&self, words: &[u64]) -> bool {
        self.alarm.is_raised() && lock(&self.quarantined).contains(words)
    }

    /// Whether the signature is in quarantine; counts the call if so.
    pub(crate) fn is_quarantined(&self, words: &[u64]) -> bool {
        let is_quarantined = self.has_in_quarantine(words);
        self.quarantined_calls.fetch_add(u64::from(is_quarantined), Relaxed);
        is_quarantined
    }

    /// Lifts all quarantines.
    pub(crate) fn release(&self) {
        let mut quarantined = lock(&self.quarantined);
        quarantined.clear();
        // Before a new one can begin.
        self.alarm.flags.fetch_and(!self.alarm.bit, Relaxed);
    }

    pub(crate) fn counts(&self) -> CheckCounts {
        CheckCounts {
            checked: self.checked.load(Relaxed),
            differing: self.differing.load(Relaxed),
            quarantines: self.quarantines.load(Relaxed),
            quarantined_calls: self.quarantined_calls.load(Relaxed),
            trapped: self.trapped.load(Relaxed),
            stale_checks: self.stale_checks.load(Relaxed),
            stale: self.stale.load(Relaxed),
        }
    }
}

/// The results of a call and of the un-accelerated one.
pub(crate) struct Results<'r> {
    pub(crate) call: ComparedCall<'r>,
    /// The trace of the entry, and the results of its code.
    pub(crate) cached: &'r Trace,
    pub(crate) got: &'r [Tensor],
    /// The trace of this call, and the results of its ops, run one by one.
    pub(crate) fresh: &'r Trace,
    pub(crate) expected: &'r [Tensor],
}

impl Results<'_> {
    /// How they differ, if they do.
    pub(crate) fn deviation(&self, tolerance: &Tolerance) -> Option<Deviation> {
        let deviation = |path, expected, got| Deviation::new(self.call, path, expected, got);
        if self.cached.words != self.fresh.words || self.got.len() != self.expected.len() {
            let differences = self.cached.result.differences(&self.fresh.result);
            // The trace of an entry that was loaded has no description.
            let first = differences.into_iter().next().filter(|_| !self.cached.result.leaves.is_empty());
            return Some(match first {
                Some(difference) => deviation(difference.path, difference.new, difference.old),
                None => deviation("result".into(), format!("({})", self.fresh.result), "another structure".into()),
            });
        }
        let pairs = self.expected.iter().zip(self.got).enumerate();
        let differing = pairs.filter_map(|(n, (expected, got))| Some((n, gap(expected, got, tolerance)?)));
        let differing: Vec<(usize, Gap)> = differing.collect();
        let (n, gap) = differing.first()?.clone();
        let path = self.fresh.result.tensor_path(n).unwrap_or_else(|| format!("tensor {n} of the result"));
        let shown = |pick: fn(&crate::error::ElementPair) -> retape_runtime::Scalar| {
            gap.samples.first().map(pick).map(crate::error::shown).unwrap_or_default()
        };
        let (expected, got) = (shown(|pair| pair.expected), shown(|pair| pair.got));
        Some(Deviation { n_tensors: differing.len(), gap: Some(gap), ..deviation(path, expected, got) })
    }
}

/// How two concrete tensors of one type differ.
pub(crate) fn gap(expected: &Tensor, got: &Tensor, tolerance: &Tolerance) -> Option<Gap> {
    compare(got.dtype(), bytes(expected)?, bytes(got)?, tolerance)
}

/// The bytes of the elements of a concrete tensor; its buffer may hold more.
pub(crate) fn bytes(tensor: &Tensor) -> Option<&[u8]> {
    let concrete = tensor.as_concrete()?;
    concrete.bytes().ok()?.bytes().get(..concrete.ty().n_elements() * concrete.ty().dtype.size())
}
