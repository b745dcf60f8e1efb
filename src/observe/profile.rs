//! Where the time of calls goes: calls, the stages of misses, and the launches of entries, while profiling is on.
//!
//! The last calls are kept as they happened, as many as fit a bounded number of spans; totals are kept for each entry.
//! While a thread is in a profiled call, what it measures is noted in a record of that thread, so that the stages need
//! not be handed a recorder.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use retape_kernels::{LaunchTime, MachineLimits, StepCost};
use retape_runtime::{Device, lock};

use crate::compile::{Compiled, StageTime};
use crate::error::Result;
use crate::signature::Signature;

/// How many calls, stages and launches are kept, together.
const MAX_SPANS: usize = 1 << 16;
/// How many entries have totals, those used last.
const MAX_ENTRIES: usize = 256;

/// How a measured call was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum CallKind {
    /// By an entry that was there.
    Hit,
    /// By an entry that it made.
    Miss,
    /// By an entry that another thread made meanwhile.
    Wait,
    /// Without the cache, op by op.
    Unaccelerated,
    /// Not at all: it failed.
    Failed,
}

impl CallKind {
    /// The kind as a word, such as `hit`.
    pub const fn name(self) -> &'static str {
        match self {
            CallKind::Hit => "hit",
            CallKind::Miss => "miss",
            CallKind::Wait => "wait",
            CallKind::Unaccelerated => "unaccelerated",
            CallKind::Failed => "failed",
        }
    }
}

/// A measured call.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ProfiledCall {
    /// How it was served.
    pub kind: CallKind,
    /// The entry that served it, if one did.
    pub signature: Option<Signature>,
    /// Bytes of the arena of this entry.
    pub arena_bytes: Option<usize>,
    /// The thread: a number of this process, from 0, in the order of their first profiled calls.
    pub thread: u64,
    /// When it began, since profiling was turned on.
    #[cfg_attr(feature = "serde", serde(rename = "start_seconds", serialize_with = "crate::serialise::seconds"))]
    pub start: Duration,
    /// How long it took.
    #[cfg_attr(feature = "serde", serde(rename = "time_seconds", serialize_with = "crate::serialise::seconds"))]
    pub time: Duration,
    /// Its parts, in order.
    pub spans: Vec<ProfiledSpan>,
}

/// A part of a measured call.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ProfiledSpan {
    /// A stage of a miss (`trace`, `optimise`, `plan`, `compile`, `wait`), the `stale check` of a hit, or the labels of the
    /// groups that ran.
    pub name: Arc<str>,
    /// The groups that ran, as steps of the entry's plan; none for a stage. [`Profile::groups`] has more on them.
    pub steps: Option<Range<usize>>,
    /// When it began, since profiling was turned on.
    #[cfg_attr(feature = "serde", serde(rename = "start_seconds", serialize_with = "crate::serialise::seconds"))]
    pub start: Duration,
    /// How long it took.
    #[cfg_attr(feature = "serde", serde(rename = "time_seconds", serialize_with = "crate::serialise::seconds"))]
    pub time: Duration,
}

/// The time of an entry's launches, all measured calls together.
///
/// A launch is one call of machine code: one group, several small ones, or a part of one.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct GroupTime {
    /// The entry.
    pub signature: Signature,
    /// The labels of its groups.
    pub label: Arc<str>,
    /// Its groups, as steps of the plan.
    pub steps: Range<usize>,
    /// The dtypes and shapes of what its groups store, such as `f32[8, 16]`.
    pub results: Vec<String>,
    /// The source lines of the ops in its groups.
    pub lines: Vec<String>,
    /// How often it ran.
    pub count: u64,
    /// All runs together.
    #[cfg_attr(feature = "serde", serde(rename = "total_seconds", serialize_with = "crate::serialise::seconds"))]
    pub total: Duration,
    /// The first measured run, which may also wait for the system to give memory.
    #[cfg_attr(feature = "serde", serde(rename = "first_seconds", serialize_with = "crate::serialise::seconds"))]
    pub first: Duration,
    /// The shortest run.
    #[cfg_attr(feature = "serde", serde(rename = "min_seconds", serialize_with = "crate::serialise::seconds"))]
    pub min: Duration,
    /// The longest run.
    #[cfg_attr(feature = "serde", serde(rename = "max_seconds", serialize_with = "crate::serialise::seconds"))]
    pub max: Duration,
    /// Its part of the time that the entry ran, in `[0, 1]`, without the first measured run if there are others.
    pub share: f64,
    /// The floating-point operations of a run, by shapes: additions, multiplications, divisions, minima and maxima are one,
    /// fused multiply-adds two, and transcendental functions those of their formulas. Of the launches of one group, the
    /// first has them all, and the bytes.
    pub flops: u64,
    /// The bytes that a run reads and writes, each element of an operand once.
    pub bytes: u64,
    /// The least time that this machine needs for so many operations or bytes, as a part of the mean time: 1 is a group
    /// that is limited by the machine alone, and a group whose operands lie in caches can have more. None on GPUs, and
    /// where there is nothing to count.
    pub of_limit: Option<f64>,
}

impl GroupTime {
    /// The mean over all measured runs but the first; of that one, if there is no other.
    ///
    /// ```
    /// # use retape::{Tensor, accelerate};
    /// let norm = accelerate(|x: &Tensor| x.square().sum(..).sqrt());
    /// norm.configure(|options| options.profiling = true);
    /// norm.call(Tensor::ones([4]))?;
    /// let profile = norm.profile();
    /// assert_eq!(profile.groups[0].mean(), profile.groups[0].total); // it ran once
    /// # Ok::<(), retape::Error>(())
    /// ```
    pub fn mean(&self) -> Duration {
        Duration::from_secs_f64(steady_mean([self.total, self.first], self.count))
    }
}

/// The measurements made while profiling was on; see [`Options::profiling`](crate::Options::profiling).
///
/// As text it is a table of the entries, those used last first, and the groups that each runs, in order, with what they
/// store, their times, and what they come to: operations and bytes per second, and how near to the limit of the machine
/// that is. `share` is the part of the time that the entry ran.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Profile {
    /// The function's name.
    pub function: String,
    /// The last calls, in the order in which they ended.
    pub calls: Vec<ProfiledCall>,
    /// The number of measured calls that are no longer among these.
    pub n_forgotten: u64,
    /// The times of launches, by entry and in order.
    pub groups: Vec<GroupTime>,
    /// The threads that made calls.
    pub threads: Vec<ProfiledThread>,
}

/// A thread that made measured calls.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ProfiledThread {
    /// The number that calls have.
    pub number: u64,
    /// Its name, or its number as text.
    pub name: String,
}

/// The seconds of a run other than the first, by those of all runs together and of the first.
pub(super) fn steady_mean([total, first]: [Duration; 2], count: u64) -> f64 {
    let others = count.saturating_sub(1);
    let all = if others == 0 { total } else { total.saturating_sub(first) };
    all.as_secs_f64() / others.max(1) as f64
}

/// How an entry runs, whatever the time it takes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Runs {
    pub(crate) launches: Vec<LaunchInfo>,
    pub(crate) arena_bytes: usize,
}

/// The description of a launch, known before it runs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LaunchInfo {
    pub(crate) label: Arc<str>,
    pub(crate) steps: Range<usize>,
    pub(crate) results: Vec<String>,
    pub(crate) lines: Vec<String>,
    pub(crate) cost: StepCost,
    /// Whether the limits of the processor say anything of the launch.
    pub(crate) is_limited: bool,
}

/// The times of the runs of one launch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LaunchTotal {
    pub(crate) total: Duration,
    pub(crate) first: Duration,
    pub(crate) min: Duration,
    pub(crate) max: Duration,
}

impl LaunchTotal {
    /// Adds a run. The first call of an entry has one of each launch, as every call that succeeds.
    fn add(&mut self, time: Duration, is_first: bool) {
        if is_first {
            (self.first, self.min) = (time, time);
        }
        self.min = self.min.min(time);
        self.max = self.max.max(time);
        self.total += time;
    }
}

/// The totals of one entry.
#[derive(Debug)]
struct Totals {
    runs: Arc<Runs>,
    times: Vec<LaunchTotal>,
    n_calls: u64,
    /// The time that it ran, in all calls and in the first.
    running: [Duration; 2],
    /// The number of calls when it last ran.
    used: u64,
}

/// A measured part: a stage by its name, or a launch by its number.
#[derive(Clone, Copy, Debug)]
struct Part {
    what: What,
    start: Instant,
    time: Duration,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Stage(&'static str),
    Launch(u32),
}

/// A finished call.
#[derive(Debug)]
struct FinishedCall {
    kind: CallKind,
    entry: Option<(Signature, Arc<Runs>)>,
    thread: u64,
    start: Instant,
    time: Duration,
    parts: Vec<Part>,
}

/// The call that a thread is in.
#[derive(Debug, Default)]
struct Open {
    kind: Option<CallKind>,
    entry: Option<(Signature, Arc<Runs>)>,
    parts: Vec<Part>,
    running: Duration,
}

thread_local! {
    // Without a destructor, so that calls made by the destructors of other thread-local values are measured as well. It
    // holds nothing between calls, so nothing is lost with it.
    static OPEN: RefCell<ManuallyDrop<Option<Open>>> = const { RefCell::new(ManuallyDrop::new(None)) };
    static THREAD: Cell<Option<u64>> = const { Cell::new(None) };
}

fn with_open(note: impl FnOnce(&mut Open)) {
    OPEN.with_borrow_mut(|open| {
        if let Some(open) = &mut **open {
            note(open);
        }
    });
}

/// Makes another call the one that this thread is in; gives the one before.
fn replace_open(open: Option<Open>) -> Option<Open> {
    OPEN.with_borrow_mut(|place| std::mem::replace(&mut **place, open))
}

/// Whether this thread is in a profiled call.
pub(crate) fn is_recording() -> bool {
    OPEN.with_borrow(|open| open.is_some())
}

/// Runs the closure of a call, whose own calls of other functions are no part of what is noted.
pub(crate) fn suspended<T>(body: impl FnOnce() -> T) -> T {
    let _outer = Restore(replace_open(None));
    body()
}

/// Notes that the call that this thread is in made an entry in these stages, if that is profiled.
pub(crate) fn compiled(stages: &[StageTime]) {
    with_open(|open| {
        open.kind = Some(CallKind::Miss);
        let part = |stage: &StageTime| Part { what: What::Stage(stage.name), start: stage.start, time: stage.time };
        open.parts.extend(stages.iter().map(part));
    });
}

/// Notes that the call that this thread is in waited for an entry since `start`, if that is profiled.
pub(crate) fn waited(start: Instant) {
    with_open(|open| {
        open.kind = Some(CallKind::Wait);
        open.parts.push(Part { what: What::Stage("wait"), start, time: start.elapsed() });
    });
}

/// Notes that the call that this thread is in entered the closure since `start` to look for changes, if that is profiled.
pub(crate) fn looked(start: Instant) {
    with_open(|open| {
        open.parts.push(Part { what: What::Stage("stale check"), start, time: start.elapsed() });
    });
}

/// Notes how the call that this thread is in was served, if that is profiled.
pub(crate) fn served(kind: CallKind) {
    with_open(|open| open.kind = Some(kind));
}

/// Notes a run of an entry in the call that this thread is in, if that is profiled.
pub(crate) fn ran(signature: &Signature, runs: &Arc<Runs>, launches: &[LaunchTime], running: Duration) {
    with_open(|open| {
        let part = |(n, launch): (u32, &LaunchTime)| Part {
            what: What::Launch(n),
            start: launch.start,
            time: Duration::from_nanos(launch.nanos),
        };
        open.entry = Some((signature.clone(), Arc::clone(runs)));
        open.running = running;
        open.parts.extend((0..).zip(launches).map(part));
    });
}

/// Collects what profiled calls measure.
#[derive(Debug)]
pub(crate) struct Recorder(Mutex<State>);

#[derive(Debug)]
struct State {
    start: Instant,
    calls: VecDeque<FinishedCall>,
    n_spans: usize,
    n_calls: u64,
    totals: HashMap<Signature, Totals>,
    threads: Vec<ProfiledThread>,
}

impl State {
    fn new() -> State {
        State {
            start: Instant::now(),
            calls: VecDeque::new(),
            n_spans: 0,
            n_calls: 0,
            totals: HashMap::new(),
            threads: vec![],
        }
    }
}

impl Default for Recorder {
    fn default() -> Recorder {
        Recorder(Mutex::new(State::new()))
    }
}

/// Gives a thread its outer call back.
struct Restore(Option<Open>);

impl Drop for Restore {
    fn drop(&mut self) {
        drop(replace_open(self.0.take()));
    }
}

impl Recorder {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }

    /// Forgets everything; times count from now.
    pub(crate) fn restart(&self) {
        *self.lock() = State::new();
    }

    /// Runs a call and keeps what it notes.
    pub(crate) fn record<T>(&self, body: impl FnOnce() -> Result<T>) -> Result<T> {
        let outer = Restore(replace_open(Some(Open::default())));
        let start = Instant::now();
        let result = body();
        let time = start.elapsed();
        let open = replace_open(None).unwrap_or_default();
        drop(outer);
        let kind = if result.is_ok() { open.kind.unwrap_or(CallKind::Hit) } else { CallKind::Failed };
        self.add(kind, open, start, time);
        result
    }

    fn add(&self, kind: CallKind, open: Open, start: Instant, time: Duration) {
        let thread = thread_number();
        let mut state = self.lock();
        if state.start > start {
            // Profiling began anew while the call ran.
            return;
        }
        state.n_calls += 1;
        if state.threads.iter().all(|known| known.number != thread) {
            let name = std::thread::current().name().map_or_else(|| format!("thread {thread}"), str::to_owned);
            state.threads.push(ProfiledThread { number: thread, name });
        }
        if let Some((signature, runs)) = &open.entry {
            state.add_totals(signature, runs, &open.parts, open.running);
        }
        state.n_spans += 1 + open.parts.len();
        state.calls.push_back(FinishedCall { kind, entry: open.entry, thread, start, time, parts: open.parts });
        while state.n_spans > MAX_SPANS {
            let Some(oldest) = state.calls.pop_front() else { break };
            state.n_spans -= 1 + oldest.parts.len();
        }
    }

    /// All that was measured, of the function with this name.
    pub(crate) fn profile(&self, function: String) -> Profile {
        let state = self.lock();
        let since = |at: Instant| at.saturating_duration_since(state.start);
        let span = |call: &FinishedCall, part: &Part| {
            let launch = |n: u32| call.entry.as_ref().and_then(|(_, runs)| runs.launches.get(n as usize));
            let (name, steps) = match part.what {
                What::Stage(name) => (Some(name.into()), None),
                What::Launch(n) => (launch(n).map(|l| Arc::clone(&l.label)), launch(n).map(|l| l.steps.clone())),
            };
            ProfiledSpan { name: name.unwrap_or_default(), steps, start: since(part.start), time: part.time }
        };
        let call = |call: &FinishedCall| ProfiledCall {
            kind: call.kind,
            signature: call.entry.as_ref().map(|(signature, _)| signature.clone()),
            arena_bytes: call.entry.as_ref().map(|(_, runs)| runs.arena_bytes),
            thread: call.thread,
            start: since(call.start),
            time: call.time,
            spans: call.parts.iter().map(|part| span(call, part)).collect(),
        };
        let mut totals: Vec<_> = state.totals.iter().collect();
        totals.sort_by_key(|(_, totals)| std::cmp::Reverse(totals.used));
        Profile {
            function,
            calls: state.calls.iter().map(call).collect(),
            n_forgotten: state.n_calls - state.calls.len() as u64,
            groups: totals.iter().flat_map(|(signature, totals)| totals.groups(signature)).collect(),
            threads: state.threads.clone(),
        }
    }

    /// How many calls of an entry were measured, and what its launches took.
    pub(crate) fn totals(&self, signature: &Signature, runs: &Runs) -> Option<(u64, Vec<LaunchTotal>)> {
        let state = self.lock();
        let totals = state.totals.get(signature)?;
        (*totals.runs == *runs).then(|| (totals.n_calls, totals.times.clone()))
    }
}

impl State {
    fn add_totals(&mut self, signature: &Signature, runs: &Arc<Runs>, parts: &[Part], running: Duration) {
        if self.totals.get(signature).is_none_or(|totals| *totals.runs != **runs) {
            if self.totals.len() >= MAX_ENTRIES {
                let oldest = self.totals.iter().min_by_key(|(_, totals)| totals.used).map(|(key, _)| key.clone());
                oldest.and_then(|key| self.totals.remove(&key));
            }
            self.totals.insert(signature.clone(), Totals::of(runs));
        }
        let n_calls = self.n_calls;
        let totals = self.totals.get_mut(signature).expect("it has just been put there");
        totals.used = n_calls;
        totals.add(parts, running);
    }
}

impl Totals {
    fn of(runs: &Arc<Runs>) -> Totals {
        Totals {
            times: vec![LaunchTotal::default(); runs.launches.len()],
            runs: Arc::clone(runs),
            n_calls: 0,
            running: [Duration::ZERO; 2],
            used: 0,
        }
    }

    /// Adds a run.
    fn add(&mut self, parts: &[Part], running: Duration) {
        let is_first = self.n_calls == 0;
        self.n_calls += 1;
        self.running[0] += running;
        if is_first {
            self.running[1] = running;
        }
        for part in parts {
            if let What::Launch(n) = part.what
                && let Some(time) = self.times.get_mut(n as usize)
            {
                time.add(part.time, is_first);
            }
        }
    }

    fn groups(&self, signature: &Signature) -> impl Iterator<Item = GroupTime> {
        let running = steady_mean(self.running, self.n_calls);
        let mean = |time: &LaunchTotal| steady_mean([time.total, time.first], self.n_calls);
        let of_limit = move |launch: &LaunchInfo, time: &LaunchTotal| {
            let mean = mean(time);
            let floor = || MachineLimits::measured().floor(&launch.cost).as_secs_f64();
            (launch.is_limited && mean > 0.0).then(|| floor() / mean)
        };
        self.runs.launches.iter().zip(&self.times).map(move |(launch, time)| GroupTime {
            signature: signature.clone(),
            label: Arc::clone(&launch.label),
            steps: launch.steps.clone(),
            results: launch.results.clone(),
            lines: launch.lines.clone(),
            count: self.n_calls,
            total: time.total,
            first: time.first,
            min: time.min,
            max: time.max,
            share: if running > 0.0 { mean(time) / running } else { 0.0 },
            flops: launch.cost.operations(),
            bytes: launch.cost.bytes,
            of_limit: of_limit(launch, time),
        })
    }
}

impl Runs {
    /// A description of the launches of compiled code.
    pub(crate) fn of(compiled: &Compiled) -> Runs {
        let plan = compiled.code.plan();
        let members = compiled.layout.members(&compiled.graph);
        let ranges = compiled.code.launch_steps();
        let on_host = compiled.code.device() == Device::Cpu;
        // A step of several launches does nearly all its work in the first; the others combine partial results.
        let mut n_counted = 0;
        let launch = |steps: &Range<usize>| {
            let steps = steps.clone();
            let cost = StepCost::of_launch(&plan.steps[steps.start.max(n_counted)..steps.end.max(n_counted)]);
            n_counted = n_counted.max(steps.end);
            let labels: Vec<&str> = plan.steps[steps.clone()].iter().map(|step| step.label.as_str()).collect();
            let values = members[steps.clone()].iter().flatten();
            let lines: BTreeSet<String> =
                values.filter_map(|&id| compiled.graph.node(id).at).map(ToString::to_string).collect();
            let roots = compiled.layout.steps[steps.clone()].iter().flat_map(|step| &step.roots);
            let results = roots.map(|&id| compiled.graph.ty(id).to_string()).collect();
            let (label, lines) = (labels.join(", ").into(), lines.into_iter().collect());
            LaunchInfo { label, steps, results, lines, cost, is_limited: on_host && cost != StepCost::default() }
        };
        Runs { launches: ranges.iter().map(launch).collect(), arena_bytes: compiled.code.arena_bytes() }
    }
}

/// The number of this thread.
fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    THREAD.get().unwrap_or_else(|| {
        let number = NEXT.fetch_add(1, Relaxed);
        THREAD.set(Some(number));
        number
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Tensor;

    #[test]
    fn means_and_shares_leave_out_the_first_run() {
        let launch = LaunchInfo {
            label: "add".into(),
            steps: 0..1,
            results: vec![],
            lines: vec![],
            cost: StepCost::default(),
            is_limited: false,
        };
        let mut totals = Totals::of(&Arc::new(Runs { launches: vec![launch], arena_bytes: 0 }));
        let signature = crate::accelerate(|x: &Tensor| x.clone()).signature(Tensor::zeros([1]));
        let nanos = Duration::from_nanos;
        let mut seen = vec![];
        // A clock may stand still during a run.
        for (own, all) in [(0, 500), (40, 50), (60, 75)] {
            let part = Part { what: What::Launch(0), start: Instant::now(), time: nanos(own) };
            totals.add(&[part], nanos(all));
            let group = totals.groups(&signature).next().expect("there is a launch");
            seen.push((group.count, group.mean(), [group.total, group.first, group.min, group.max], group.share));
        }
        assert_eq!(seen[0], (1, nanos(0), [nanos(0); 4], 0.0));
        assert_eq!(seen[1], (2, nanos(40), [40, 0, 0, 40].map(nanos), 0.8));
        assert_eq!(seen[2], (3, nanos(50), [100, 0, 0, 60].map(nanos), 0.8));
    }
}
