//! The non-generic part of an accelerated function: its state, and calls that are hits. All other ways of a call have
//! files of their own.

mod checked;
mod configure;
mod enter;
mod inspect;
mod instrumented;
mod miss;
mod mode;
mod nested;
mod stale;

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use retape_runtime::{Cache, CachePadded, Capacity, EventKind, InUse, Insertion, hash_words, lock};

use self::mode::{flag, modes, write_modes};
use super::entry::{Entry, Handles, handles};
use super::pin::{self, HeldEntry};
use crate::call::Common;
use crate::callable::Donated;
use crate::determinism;
use crate::diagnose::check::Checks;
use crate::error::{Caller, Error, Result};
use crate::identity::Identity;
use crate::observe::advice::{Advice, Detector};
use crate::observe::events::{self, Events};
use crate::observe::explain::{Miss, MissLog};
use crate::observe::latency::{Latencies, is_unseen, sampled_start};
use crate::observe::profile::{Profile, Recorder};
use crate::options::RetracePolicy;
use crate::settings::{Settings, Stage};
use crate::signature::{Description, Signature};
use crate::tape::Tape;
use crate::tensor::Tensor;
use crate::trace::Trace;
use crate::tree::{Reader, Tree, Writer};

/// Traces the function on arguments read from a stream.
type TraceFn<'r> = dyn Fn(&Arc<Tape>, &mut Reader<'_>) -> Result<Trace> + 'r;

/// The context of a call that only the generic caller knows; the core uses it on its cold paths.
pub(crate) struct CallContext<'r> {
    /// The line of the call.
    pub(crate) caller: Caller,
    /// Writes the arguments again, for people.
    pub(crate) describe: &'r dyn Fn() -> Description,
    /// Traces the function.
    pub(crate) trace: &'r TraceFn<'r>,
}

/// The non-generic part of an accelerated function.
pub(crate) struct Core {
    pub(super) cache: Cache<Signature, Entry>,
    events: Events,
    /// Shared with what raises them when a call has ended.
    pub(super) flags: Arc<CachePadded<AtomicU32>>,
    pub(super) policy: Mutex<RetracePolicy>,
    log: Mutex<MissLog>,
    detector: Mutex<Detector>,
    hit_latency: Latencies,
    miss_latency: Latencies,
    pub(super) checks: Arc<Checks>,
    pub(super) recorder: Recorder,
    /// The type of the function, also of one in a box.
    type_name: &'static str,
    /// When the function was accelerated.
    start: Instant,
    /// The hits and misses of backward code, and whether everything that is not there is an error.
    pub(super) common: Arc<Common>,
}

/// An entry that serves a call.
type Found = InUse<Signature, Entry>;

/// The results of a call, flattened.
pub(crate) enum Outcome {
    Ran { entry: Found, tensors: Vec<Tensor> },
    Evaluated { trace: Trace, tensors: Vec<Tensor> },
}

/// A call whose arguments are not held any more: its entry, and handles of its own to all tensors.
pub(crate) struct Ready {
    entry: Found,
    args: Handles,
    donated: Donated,
    start: Option<Instant>,
    /// The line of the call.
    at: Caller,
}

/// A call with arguments by value: to be run when the caller has let go of them, or done already.
pub(crate) enum DonatingCall {
    Ready(Ready),
    Done(Outcome),
}

impl Outcome {
    /// The results as the tree that was flattened.
    pub(crate) fn read<R: Tree>(self) -> Result<R> {
        match self {
            Outcome::Ran { entry, tensors } => R::read(&mut Reader::giving(&entry.trace.words, tensors)),
            Outcome::Evaluated { trace, tensors } => R::read(&mut Reader::giving(&trace.words, tensors)),
        }
    }
}

impl Core {
    pub(crate) fn new(made_at: Caller, type_name: &'static str) -> Core {
        let identity = Identity::new(type_name, made_at);
        let events = Events { function: identity.clone() };
        let observer = events.clone();
        let cache = Cache::new(Capacity::default()).with_observer(move |event| match (event.kind, event.key) {
            (EventKind::Wait, Some(signature)) => observer.wait(signature),
            (EventKind::TakeOver, Some(signature)) => observer.take_over(signature),
            (EventKind::Evict, Some(signature)) => observer.evict(signature),
            (EventKind::Clear, _) => observer.clear(),
            // A miss is told of when its cost is known, and that a value went in is no news after it.
            _ => {}
        });
        let settings = Settings::get();
        let trust = if settings.stale_check { 0 } else { flag::TRUSTED };
        let profiled = if settings.is_logged(Stage::Profile) { flag::PROFILED } else { 0 };
        let flags = Arc::new(CachePadded(AtomicU32::new(trust | profiled)));
        let checks = Arc::new(Checks::new(Arc::clone(&flags), flag::QUARANTINED));
        Core {
            cache,
            events,
            flags,
            policy: Mutex::default(),
            log: Mutex::default(),
            detector: Mutex::default(),
            hit_latency: Latencies::default(),
            miss_latency: Latencies::default(),
            checks,
            recorder: Recorder::default(),
            type_name,
            start: Instant::now(),
            common: Arc::new(Common::of(identity)),
        }
    }

    /// The flags of the function, and those of the process.
    #[inline]
    fn flags(&self) -> u32 {
        self.flags.load(Relaxed) | if determinism::is_off() { flag::NONDETERMINISTIC } else { 0 }
    }

    /// The hot path: a lookup and a run.
    pub(crate) fn call(&self, mut leaves: Writer<'_>, context: &CallContext<'_>) -> Result<Outcome> {
        leaves.check()?;
        let flags = self.flags();
        if flags & !flag::CHEAP != 0 || events::is_hit_enabled() {
            return self.call_instrumented(flags, leaves, context);
        }
        let start = sampled_start();
        if start.is_some()
            && is_unseen()
            && let Some(outcome) = self.call_unseen(flags, &leaves)
        {
            return outcome;
        }
        write_modes(flags, &mut leaves);
        let Some(entry) = self.find(&leaves.words) else {
            return self.miss(flags, leaves, context);
        };
        let tensors = entry.run(&leaves.tensors).map_err(|error| self.refused(error, &entry, context.caller))?;
        if let Some(start) = start {
            self.timed(flags, &entry, start, &leaves.tensors, context);
        }
        Ok(Outcome::Ran { entry, tensors })
    }

    /// Says which call of which function an entry's run was that is refused memory.
    #[cold]
    fn refused(&self, error: Error, entry: &Entry, at: Caller) -> Error {
        entry.refused(error, self.identity(), at)
    }

    /// As [`call`](Core::call) if some arguments were passed by value. If results may take their memory, nothing runs
    /// until [`run_ready`](Core::run_ready), before which the caller drops the arguments. While calls are instrumented,
    /// arguments are left alone, since more than the entry may read them.
    pub(crate) fn call_donating(
        &self,
        mut leaves: Writer<'_>,
        donated: Donated,
        context: &CallContext<'_>,
    ) -> Result<DonatingCall> {
        leaves.check()?;
        let flags = self.flags();
        if flags & !flag::CHEAP != 0 || events::is_hit_enabled() {
            return self.call_instrumented(flags, leaves, context).map(DonatingCall::Done);
        }
        let start = sampled_start();
        if start.is_some()
            && is_unseen()
            && let Some(outcome) = self.call_unseen(flags, &leaves)
        {
            return outcome.map(DonatingCall::Done);
        }
        write_modes(flags, &mut leaves);
        let args = leaves.tensors;
        let (entry, start) = match self.find(&leaves.words) {
            Some(entry) => (entry, start),
            None => (self.get_or_compile(flags, leaves.words, &args, context)?.into(), None),
        };
        if entry.takes_donation(&donated) {
            // Before the run, since afterwards there are no arguments any more.
            let start = start.map(|_| {
                self.look_for_change(flags, &entry, &args, context);
                Instant::now()
            });
            return Ok(DonatingCall::Ready(Ready { entry, args: handles(&args), donated, start, at: context.caller }));
        }
        let tensors = entry.run(&args).map_err(|error| self.refused(error, &entry, context.caller))?;
        if let Some(start) = start {
            self.timed(flags, &entry, start, &args, context);
        }
        Ok(DonatingCall::Done(Outcome::Ran { entry, tensors }))
    }

    /// Runs a call whose arguments have been dropped.
    pub(crate) fn run_ready(&self, ready: Ready) -> Result<Outcome> {
        let Ready { entry, args, donated, start, at } = ready;
        let tensors = entry.run_donating(args, &donated).map_err(|error| self.refused(error, &entry, at))?;
        if let Some(start) = start {
            entry.stale_turns.ran(self.hit_latency.record(start));
        }
        Ok(Outcome::Ran { entry, tensors })
    }

    /// The entry for these words, if there is one; counts a hit then, and else nothing.
    #[inline]
    fn find(&self, words: &[u64]) -> Option<Found> {
        self.cache.get_recent(words).or_else(|| Some(self.cache.get_present(&hash_words(words), words)?.into()))
    }

    /// The name of the function, and its line.
    pub(crate) fn identity(&self) -> &Identity {
        &self.events.function
    }

    /// The type of the function, also of one in a box.
    pub(crate) fn type_name(&self) -> &'static str {
        self.type_name
    }

    /// The entries, most recently used first.
    pub(crate) fn entries(&self) -> Vec<Arc<Entry>> {
        self.cache.entries().iter().map(|view| Arc::clone(view.value())).collect()
    }

    /// The entry of this signature, if there is one; that is no use of it.
    pub(crate) fn peek(&self, signature: &Signature) -> Option<Arc<Entry>> {
        self.cache.peek(&signature.hash(), signature)
    }

    /// Whether a check found the code of this signature wrong.
    pub(crate) fn is_quarantined(&self, signature: &Signature) -> bool {
        self.checks.has_in_quarantine(signature.argument_words())
    }

    /// How many entries may go in before one must go out.
    pub(crate) fn room(&self) -> usize {
        self.cache.capacity().entries.saturating_sub(self.cache.len())
    }

    /// Puts an entry in that no call asked for.
    pub(crate) fn insert(&self, entry: Entry) -> Insertion {
        let (signature, weight) = (entry.signature.clone(), entry.weight());
        let inserted = self.cache.insert_if_room(&signature.hash(), &signature, entry, weight);
        if inserted == Insertion::Inserted {
            lock(&self.log).add_signature(&signature, self.cache.stats().clears);
        }
        inserted
    }

    /// The entry for these arguments in the modes of now, found or made as by a call that nothing else watches, and kept
    /// from eviction.
    pub(crate) fn pin(&self, mut leaves: Writer<'_>, context: &CallContext<'_>) -> Result<HeldEntry> {
        leaves.check()?;
        if let Some(error) = pin::escaped(&leaves, "pin", context.caller) {
            return Err(error);
        }
        if leaves.tensors.iter().any(|tensor| tensor.is_traced()) {
            let (function, at) = (self.identity(), context.caller);
            return Err(Error::Cache(format!("an entry of {function} cannot be pinned inside a trace (at {at})")));
        }
        if self.checks.has_in_quarantine(&leaves.words) {
            return Err(pin::in_quarantine(self.identity(), &(context.describe)(), context.caller));
        }
        let flags = self.flags();
        write_modes(flags, &mut leaves);
        let entry = match self.find(&leaves.words) {
            Some(entry) => entry.to_shared(),
            None => self.get_or_compile(flags, leaves.words, &leaves.tensors, context)?,
        };
        let (modes, checks, events) = (modes(flags), Arc::clone(&self.checks), self.events.clone());
        Ok(match self.cache.hold(&entry.signature.hash(), &entry.signature) {
            // By now it may be another one of the same signature.
            Some(pin) => HeldEntry { entry: Arc::clone(pin.value()), pin: Some(pin), modes, checks, events },
            None => HeldEntry { entry, pin: None, modes, checks, events },
        })
    }

    pub(crate) fn clear(&self) {
        self.cache.clear();
        self.checks.release();
    }

    pub(crate) fn misses(&self) -> Vec<Miss> {
        lock(&self.log).misses()
    }

    pub(crate) fn profile(&self) -> Profile {
        self.recorder.profile(self.identity().name().to_string())
    }

    pub(crate) fn advice(&self) -> Vec<Advice> {
        lock(&self.detector).advice()
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        let counters = self.cache.stats();
        lock(&self.detector).end(self.identity().made_at(), counters.hits + counters.misses);
        if counters.hits + counters.misses > 0 {
            Settings::get().log(Stage::Profile, || format!("{}\n{}", self.identity(), self.profile()));
        }
    }
}
