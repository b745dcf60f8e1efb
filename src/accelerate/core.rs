//! The non-generic body of an accelerated function: cache lookup, single-flight misses, the un-accelerated path.

mod checked;
mod inspect;
mod stale;

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use retape_runtime::{
    Cache, CachePadded, CacheStats, Capacity, Deadlock, Device, EventKind, InUse, Insertion, Outcome as Served, Weight,
    hash_words, in_user_code, lock,
};

use self::checked::{described, modes, note_modes};
use super::entry::{Entry, Handles, handles};
use super::function::Given;
use super::pin::{self, HeldEntry};
use super::policy::{OnRetrace, RetracePolicy};
use crate::call::Common;
use crate::compile::{CompileTimes, Stages};
use crate::diagnose::check::Checks;
use crate::error::{Caller, Error, Result};
use crate::identity::Identity;
use crate::observe::advice::{Advice, Detector};
use crate::observe::events::{self, Events};
use crate::observe::explain::{Explanation, Miss, MissLog};
use crate::observe::latency::{Latencies, is_unseen, sample_after_miss, sampled_start};
use crate::observe::profile::{self, CallKind, Profile, Recorder};
use crate::placement::common_device;
use crate::settings::Settings;
use crate::signature::{Description, Signature};
use crate::tape::Tape;
use crate::tensor::{Recording, Tensor};
use crate::trace::{Trace, stand_ins};
use crate::tree::{Reader, Tree, Words, Writer};
use crate::{collective, determinism, eager};

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

/// Flags of the calls that do more than look up and run; one load tells whether any is set.
pub(super) mod flag {
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
    given: Given,
    start: Option<Instant>,
    /// The line of the call.
    at: Caller,
}

/// A call that was given arguments by value: to be run when the caller has let go of them, or done already.
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
        let trust = if Settings::get().stale_check { 0 } else { flag::TRUSTED };
        let flags = Arc::new(CachePadded(AtomicU32::new(trust)));
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
        if flags & !flag::CHEAP != 0 || events::are_hits_heard() {
            return self.call_instrumented(flags, leaves, context);
        }
        let start = sampled_start();
        if start.is_some()
            && is_unseen()
            && let Some(outcome) = self.call_unseen(flags, &leaves)
        {
            return outcome;
        }
        note_modes(flags, &mut leaves);
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
        given: Given,
        context: &CallContext<'_>,
    ) -> Result<DonatingCall> {
        leaves.check()?;
        let flags = self.flags();
        if flags & !flag::CHEAP != 0 || events::are_hits_heard() {
            return self.call_instrumented(flags, leaves, context).map(DonatingCall::Done);
        }
        let start = sampled_start();
        if start.is_some()
            && is_unseen()
            && let Some(outcome) = self.call_unseen(flags, &leaves)
        {
            return outcome.map(DonatingCall::Done);
        }
        note_modes(flags, &mut leaves);
        let args = leaves.tensors;
        let (entry, start) = match self.find(&leaves.words) {
            Some(entry) => (entry, start),
            None => (self.made(flags, leaves.words, &args, context)?.into(), None),
        };
        if entry.takes_donation(&given) {
            // Before the run, since afterwards there are no arguments any more.
            let start = start.map(|_| {
                self.look_for_change(flags, &entry, &args, context);
                Instant::now()
            });
            return Ok(DonatingCall::Ready(Ready { entry, args: handles(&args), given, start, at: context.caller }));
        }
        let tensors = entry.run(&args).map_err(|error| self.refused(error, &entry, context.caller))?;
        if let Some(start) = start {
            self.timed(flags, &entry, start, &args, context);
        }
        Ok(DonatingCall::Done(Outcome::Ran { entry, tensors }))
    }

    /// Runs a call whose arguments have been dropped.
    pub(crate) fn run_ready(&self, ready: Ready) -> Result<Outcome> {
        let Ready { entry, args, given, start, at } = ready;
        let tensors = entry.run_donating(args, &given).map_err(|error| self.refused(error, &entry, at))?;
        if let Some(start) = start {
            entry.stale_turns.ran(self.hit_latency.record(start));
        }
        Ok(Outcome::Ran { entry, tensors })
    }

    /// A call while something is switched on that is not free.
    #[cold]
    fn call_instrumented(&self, flags: u32, mut leaves: Writer<'_>, context: &CallContext<'_>) -> Result<Outcome> {
        if is_unseen()
            && let Some(outcome) = self.call_unseen(flags, &leaves)
        {
            return outcome;
        }
        if flags & flag::PROFILED != 0 {
            return self.recorder.watch(|| self.call_instrumented(flags & !flag::PROFILED, leaves, context));
        }
        let is_quarantined = || flags & flag::QUARANTINED != 0 && self.checks.is_quarantined(&leaves.words);
        if flags & flag::DISABLED != 0 || is_quarantined() {
            profile::served(CallKind::Unaccelerated);
            let trace = traced(Tape::on, &leaves.words, &leaves.tensors, context)?;
            if flags & flag::TRAPPED != 0 {
                self.search(&trace, &leaves.tensors, String::new(), context)?;
            }
            let tensors = eager::evaluate(&trace, &leaves.tensors)?;
            return Ok(Outcome::Evaluated { trace, tensors });
        }
        note_modes(flags, &mut leaves);
        let start = sampled_start();
        let (entry, start) = match self.find(&leaves.words) {
            Some(entry) => {
                self.events.hit(&entry.signature, context.caller);
                (entry, start)
            }
            None => (self.made(flags, leaves.words, &leaves.tensors, context)?.into(), None),
        };
        let refused = |error| self.refused(error, &entry, context.caller);
        let tensors = if flags & flag::TRAPPED == 0 {
            let is_watching = profile::is_watching();
            let tensors = if is_watching { entry.run_profiled(&leaves.tensors) } else { entry.run(&leaves.tensors) };
            tensors.map_err(refused)?
        } else {
            let (tensors, first) = entry.run_trapped(&leaves.tensors).map_err(refused)?;
            if let Some(group) = first {
                self.search(&entry.trace, &leaves.tensors, group, context)?;
            }
            tensors
        };
        let check = (flags & flag::CHECKED != 0).then(|| self.checks.is_due(&entry.turns)).flatten();
        match (start, check) {
            (_, Some(check)) => return self.compared(entry, tensors, &leaves.tensors, &check, context),
            (Some(start), None) if flags & !flag::CHEAP == 0 => {
                self.timed(flags, &entry, start, &leaves.tensors, context);
            }
            // Calls that do more than others are not among those whose time is told.
            (Some(_), None) => self.look_for_change(flags, &entry, &leaves.tensors, context),
            (None, None) => {}
        }
        Ok(Outcome::Ran { entry, tensors })
    }

    /// The entry for these words, if there is one; counts a hit then, and else nothing.
    #[inline]
    fn find(&self, words: &[u64]) -> Option<Found> {
        self.cache.get_recent(words).or_else(|| Some(self.cache.get_present(&hash_words(words), words)?.into()))
    }

    /// A call that found no entry: makes it, or waits for it, and runs it.
    #[cold]
    fn miss(&self, flags: u32, leaves: Writer<'_>, context: &CallContext<'_>) -> Result<Outcome> {
        let (words, args) = (leaves.words, leaves.tensors);
        let entry = self.made(flags, words, &args, context)?;
        let tensors = entry.run(&args).map_err(|error| self.refused(error, &entry, context.caller))?;
        Ok(Outcome::Ran { entry: entry.into(), tensors })
    }

    /// The entry for arguments that were not found: made here, or by the thread that was first.
    #[cold]
    fn made(&self, flags: u32, words: Words, args: &[&Tensor], context: &CallContext<'_>) -> Result<Arc<Entry>> {
        let start = Instant::now();
        let signature = Signature::of_words(words, described(flags, context));
        let make = || self.make(&signature, args, context, start).map_err(Unmade::Failed);
        let (entry, how) = match self.cache.get_or_try_insert_with(&signature.hash(), &signature, make) {
            Ok(found) => found,
            Err(Unmade::Failed(error)) => return Err(error),
            Err(Unmade::Refused(deadlock)) => {
                let error = self.deadlocked(deadlock, &signature, context.caller);
                let (miss, _, counters) = self.begin_miss(&signature, context.caller);
                self.record_miss(Miss { error: Some(error.to_string()), ..miss }, start, counters.clears);
                return Err(error);
            }
        };
        sample_after_miss();
        match how {
            Served::Miss => profile::made(entry.stages()),
            Served::Shared => profile::waited(start),
            Served::Hit => {}
        }
        if how != Served::Miss {
            self.events.hit(&entry.signature, context.caller);
        }
        Ok(entry)
    }

    /// The error of a call that would have to wait for itself.
    fn deadlocked(&self, deadlock: Deadlock, signature: &Signature, at: Caller) -> Error {
        let function = self.identity().full();
        Error::Cache(match deadlock {
            Deadlock::Reentrant => {
                format!("{function} called itself with the signature that is being traced, ({signature}) (at {at})")
            }
            Deadlock::Stuck => format!(
                "{function} does not get traced for ({signature}): several threads in turn have entered the closure, and \
                 none of them gets on, so it seems to wait for a thread that calls the function with this very signature; \
                 call it on the closure's own thread, or before, and pass what it gives as an argument (at {at}; if the \
                 closure is only slow, raise RETAPE_PATIENCE)"
            ),
        })
    }

    /// Makes an entry, and notes what it cost and why it was not there.
    fn make(
        &self,
        signature: &Signature,
        args: &[&Tensor],
        context: &CallContext<'_>,
        start: Instant,
    ) -> Result<(Entry, Weight)> {
        let (mut miss, why, counters) = self.begin_miss(signature, context.caller);
        let call = counters.hits + counters.misses;
        let of_function = |error: Error| {
            let by = || format!("the trace of {} for ({signature})", self.identity().full());
            error.asked_by(by, context.caller)
        };
        let permitted = self.permit(&why, signature, call, context.caller);
        let made = permitted.and_then(|()| make(signature, args, context, self.identity())).map_err(of_function);
        match &made {
            Ok(entry) => miss.times = entry.times(),
            Err(error) => miss.error = Some(error.to_string()),
        }
        self.record_miss(miss, start, counters.clears);
        let entry = made?;
        let advice = lock(&self.detector).note_graph(&entry.trace.graph);
        advice.iter().for_each(|advice| self.events.advice(advice));
        let weight = entry.weight();
        Ok((entry, weight))
    }

    /// A miss of which only the beginning is known.
    fn begin_miss(&self, signature: &Signature, at: Caller) -> (Miss, Explanation, CacheStats) {
        let counters = self.cache.stats();
        let why = lock(&self.log).explain(signature, counters.clears);
        let miss = Miss {
            function: self.identity().name(),
            number: 0,
            reason: why.reason,
            signature: signature.clone(),
            nearest: why.nearest.clone(),
            differences: why.differences.clone(),
            at,
            times: CompileTimes::default(),
            wall: Duration::ZERO,
            since_start: self.start.elapsed(),
            hits: counters.hits,
            error: None,
        };
        (miss, why, counters)
    }

    /// Puts a miss on record and gives the advice that it justifies.
    fn record_miss(&self, mut miss: Miss, start: Instant, n_clears: u64) {
        miss.wall = start.elapsed();
        self.miss_latency.record(start);
        let miss = {
            let mut log = lock(&self.log);
            if miss.error.is_none() {
                log.know(&miss.signature, n_clears);
            }
            log.add(miss)
        };
        self.events.miss(&miss);
        let (occupancy, capacity) = (self.cache.len(), self.cache.capacity().entries);
        // Listeners may call anything, so no lock is held while they are told.
        let advice = lock(&self.detector).note(&miss, self.identity().made_at(), occupancy, capacity);
        advice.iter().for_each(|advice| self.events.advice(advice));
    }

    /// Asks the lock and the policy whether a miss may trace.
    fn permit(&self, why: &Explanation, signature: &Signature, call: u64, at: Caller) -> Result<()> {
        if self.common.is_locked() {
            return Err(Error::Cache(format!(
                "the locked cache of {} makes no entry: {why} (at {at})",
                self.identity()
            )));
        }
        let policy = *lock(&self.policy);
        match policy.action(why.ordinal, call) {
            OnRetrace::Allow => Ok(()),
            OnRetrace::Warn => {
                self.events.retrace(why, signature, at);
                Ok(())
            }
            OnRetrace::Error => {
                Err(Error::Cache(format!("a new trace of {} is refused: {why} (at {at})", self.identity())))
            }
        }
    }

    /// The tape that a call with such arguments is recorded on as a call: that of a gradient that is evaluated at once.
    pub(crate) fn calls_on(&self, leaves: &Writer<'_>) -> Option<Arc<Tape>> {
        let mut traced = leaves.tensors.iter().filter_map(|tensor| tensor.as_traced());
        let flags = self.flags();
        let tape = traced.next()?.tape();
        if !tape.is_evaluated() || tape.is_finished() {
            return None;
        }
        let is_one = flags & (flag::DISABLED | flag::TRAPPED) == 0 && traced.all(|other| other.is_on(&tape));
        let is_quarantined = || flags & flag::QUARANTINED != 0 && self.checks.is_quarantined(&leaves.words);
        (is_one && !is_quarantined()).then_some(tape)
    }

    /// A call inside a gradient that is evaluated at once: a hit or a miss as outside, whose code runs later.
    pub(crate) fn record(&self, tape: &Arc<Tape>, leaves: Writer<'_>, context: &CallContext<'_>) -> Result<Outcome> {
        tape.failing_with_panics(|| self.recorded(tape, leaves, context))
    }

    fn recorded(&self, tape: &Arc<Tape>, mut leaves: Writer<'_>, context: &CallContext<'_>) -> Result<Outcome> {
        leaves.check()?;
        // Such a call is not trapped: that is the affair of the gradient that it is part of.
        let flags = self.flags() & (flag::FAST | flag::NONDETERMINISTIC);
        note_modes(flags, &mut leaves);
        let (words, args) = (leaves.words, leaves.tensors);
        let known = if is_unseen() { self.cache.peek(&hash_words(&words), &words[..]).map(Found::from) } else { None };
        let found =
            known.or_else(|| self.find(&words).inspect(|entry| self.events.hit(&entry.signature, context.caller)));
        let is_hit = found.is_some();
        let entry = found.map_or_else(|| Ok(self.made(flags, words, &args, context)?.into()), Ok);
        let checked = entry.and_then(|entry: Found| Ok((self.recheck(&entry, &args, context)?, entry)));
        // The first error of a trace is its result, whatever the closure makes of it.
        let (check, entry) = checked.inspect_err(|error: &Error| drop(tape.fail(error.clone())))?;
        if is_hit && sampled_start().is_some() {
            self.look_for_change(self.flags(), &entry, &args, context);
        }
        let tensors = entry.record(tape, &args, &self.common, check, context.caller);
        if let Some(weight) = entry.grown() {
            self.cache.reweigh(&entry.signature.hash(), entry.signature.words(), weight);
        }
        Ok(Outcome::Ran { entry, tensors })
    }

    /// A call inside another trace: the function becomes part of it.
    pub(crate) fn inline<R>(
        &self,
        leaves: &Writer<'_>,
        caller: Caller,
        body: &dyn Fn(&mut Reader<'_>) -> Result<R>,
    ) -> Result<R> {
        leaves.check()?;
        let traced = leaves.tensors.iter().find_map(|tensor| tensor.as_traced());
        let tape = &traced.ok_or_else(|| Error::Internal("nothing is traced that could be inlined".into()))?.tape();
        if tape.is_finished() {
            let message = "a traced tensor was passed after its trace had ended; return it from the closure";
            return Err(Error::Escaped { op: "call", message, at: caller });
        }
        if tape.is_evaluated() && self.flags.load(Relaxed) & flag::TRAPPED != 0 {
            tape.trap();
        }
        let args = stand_ins(tape, &leaves.tensors, caller);
        tape.failing_with_panics(|| entered(caller, || body(&mut Reader::new(&leaves.words, &args))))
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
            lock(&self.log).know(&signature, self.cache.stats().clears);
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
        note_modes(flags, &mut leaves);
        let entry = match self.find(&leaves.words) {
            Some(entry) => entry.to_shared(),
            None => self.made(flags, leaves.words, &leaves.tensors, context)?,
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
    }
}

/// Why a call has no entry.
enum Unmade {
    Refused(Deadlock),
    Failed(Error),
}

impl From<Deadlock> for Unmade {
    fn from(deadlock: Deadlock) -> Unmade {
        Unmade::Refused(deadlock)
    }
}

/// Closures that are entered inside closures: deeper than this, a function most likely calls itself.
const MAX_NESTED: u32 = 64;

/// Enters a closure of a user.
fn entered<T>(at: Caller, body: impl FnOnce() -> Result<T>) -> Result<T> {
    thread_local!(static DEPTH: Cell<u32> = const { Cell::new(0) });
    /// Leaves, also when the closure panics.
    struct Leave;

    impl Drop for Leave {
        fn drop(&mut self) {
            DEPTH.set(DEPTH.get() - 1);
        }
    }

    if DEPTH.get() == MAX_NESTED {
        let message = format!("accelerated functions are nested {MAX_NESTED} deep: does one call itself? (at {at})");
        return Err(Error::Cache(message));
    }
    DEPTH.set(DEPTH.get() + 1);
    let _leave = Leave;
    body()
}

/// Traces and compiles.
fn make(signature: &Signature, args: &[&Tensor], context: &CallContext<'_>, function: &Identity) -> Result<Entry> {
    let mut stages = Stages::default();
    let traced = stages.run("trace", || traced(Tape::describing, signature.words(), args, context))?;
    collective::agree(&traced.graph, signature.words())?;
    Entry::new(signature.clone(), traced, stages, function)
}

/// Runs the function on traced stand-ins for the arguments.
fn traced(tape: fn(Device) -> Arc<Tape>, words: &[u64], args: &[&Tensor], context: &CallContext<'_>) -> Result<Trace> {
    let tape = &tape(common_device("call", args, context.caller)?);
    let parameter = |arg: &&Tensor| arg.ty().map(|ty| tape.parameter_on(ty.clone(), arg.device()));
    let parameters: Vec<Tensor> = args
        .iter()
        .map(parameter)
        .collect::<Option<_>>()
        .ok_or_else(|| Error::Internal("a poisoned argument reached the tracer".into()))?;
    let trace = || (context.trace)(tape, &mut Reader::new(words, &parameters));
    let traced = profile::apart(|| entered(context.caller, || in_user_code(trace)));
    traced.map_err(|error| tape.in_words_of_caller(error, |position| (context.describe)().tensor_path(position)))
}
