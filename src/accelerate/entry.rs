//! One cached trace: machine code, captured tensors, and how results are put together.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use retape_kernels::{CompiledPlan, Outputs, Plan, library};
use retape_runtime::{ByteCount, Device, Weight, coarse_now};

use crate::call::{CallSite, Common, CompareCall, GradientStats, Routine};
use crate::callable::Donated;
use crate::code::{self, Operands};
use crate::collective;
use crate::compile::{self, CompileTimes, Compiled, StageTime, Stages};
use crate::diagnose::bisect::Cached;
use crate::diagnose::check::Turns;
use crate::diagnose::stale::StaleTurns;
use crate::error::{Caller, Error, Result};
use crate::identity::Identity;
use crate::observe::profile::{self, Runs};
use crate::signature::{LeafValue, Signature};
use crate::tape::Tape;
use crate::tensor::Tensor;
use crate::trace::{Source, Trace, place_captures};
use crate::types::TensorType;

/// A call that donates less is quicker if it is run as if it donated nothing: small results come from the pool in
/// nanoseconds.
const MIN_DONATED: usize = 32 << 10;

/// An argument whose memory results may take.
#[derive(Clone, Copy, Debug)]
struct Donor {
    argument: usize,
    bytes: usize,
}

/// The tensors of a call that holds nothing else of its arguments.
pub(crate) type Handles = Vec<Option<Tensor>>;

/// A compiled trace.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The arguments it is for.
    pub(crate) signature: Signature,
    pub(crate) trace: Trace,
    pub(crate) compiled: Arc<Compiled>,
    stages: Stages,
    output_types: Vec<TensorType>,
    /// The arguments whose memory results may take, if they are donated, in order.
    donors: Vec<Donor>,
    /// The trace as something that is called inside gradients, once it has been.
    routine: OnceLock<Arc<Routine>>,
    /// The bytes of code for gradients that the cache knows of.
    weighed_gradients: AtomicUsize,
    /// How it runs, once that is measured.
    runs: OnceLock<Arc<Runs>>,
    /// The coarse clock at the last use, in milliseconds.
    last_use: AtomicU64,
    /// Calls that it served while the first ones were to be checked.
    pub(crate) turns: Turns,
    /// Which of the hits that it serves enter the closure to look for changes.
    pub(crate) stale_turns: StaleTurns,
    /// Whether a check has put it in quarantine.
    is_wrong: AtomicBool,
    /// The graph's text with lines of the program, if another process recorded it.
    loaded_text: Option<String>,
    /// Its name among other workers, if it takes any.
    place: Option<Arc<str>>,
}

impl Entry {
    /// Optimises and compiles what was traced; `stages` has noted the trace.
    pub(crate) fn new(signature: Signature, trace: Trace, mut stages: Stages, function: &Identity) -> Result<Entry> {
        let compiled = compile::compile_for(&trace.graph, signature.target(), &mut stages)?;
        let output_types = trace.graph.outputs().iter().map(|&id| trace.graph.ty(id).clone()).collect();
        let donors = donors(&trace, compiled.code.plan());
        let times = CompileTimes::of(&stages);
        let place = collective::takes_workers(&trace.graph).then(|| place(function, &signature));
        Ok(Entry {
            signature,
            trace,
            compiled,
            stages,
            output_types,
            donors,
            routine: OnceLock::new(),
            weighed_gradients: AtomicUsize::new(0),
            runs: OnceLock::new(),
            last_use: AtomicU64::new(coarse_millis()),
            turns: Turns::default(),
            stale_turns: StaleTurns::new(times.total(), times.trace),
            is_wrong: AtomicBool::new(false),
            loaded_text: None,
            place,
        })
    }

    /// Optimises and compiles what an artefact held.
    pub(crate) fn loaded(signature: Signature, mut trace: Trace, text: String, function: &Identity) -> Result<Entry> {
        place_captures(signature.target().device, &mut trace.captures, &mut trace.sources)?;
        // Its captured tensors are from another process, and the closure of this one need not have them.
        let stale_turns = StaleTurns::none();
        Ok(Entry { loaded_text: Some(text), stale_turns, ..Entry::new(signature, trace, Stages::default(), function)? })
    }

    /// Whether it comes from an artefact, so that no call made it.
    pub(crate) fn is_loaded(&self) -> bool {
        self.loaded_text.is_some()
    }

    /// The recorded graph as text, with the lines that recorded it as comments.
    pub(crate) fn recorded_text(&self) -> String {
        self.loaded_text.clone().unwrap_or_else(|| self.trace.graph.with_lines().to_string())
    }

    /// Notes that a check found it wrong, so that handles do not run it either.
    pub(crate) fn mark_bad(&self) {
        self.is_wrong.store(true, Relaxed);
    }

    /// Whether a check found it wrong and fell back.
    #[inline]
    pub(crate) fn is_bad(&self) -> bool {
        self.is_wrong.load(Relaxed)
    }

    /// Does what runs the code: other workers meet it under the name of the entry.
    #[inline]
    fn placed<R>(&self, run: impl FnOnce() -> R) -> R {
        match &self.place {
            None => run(),
            Some(place) => library::at_place(place, run),
        }
    }

    /// Runs the machine code on arguments that have the entry's signature.
    pub(crate) fn run(&self, args: &[&Tensor]) -> Result<Vec<Tensor>> {
        self.touch();
        self.run_unnoted(args)
    }

    /// As [`run`](Entry::run), but no use of the entry as the statistics have it.
    #[inline]
    pub(crate) fn run_unnoted(&self, args: &[&Tensor]) -> Result<Vec<Tensor>> {
        let outputs = self.placed(|| self.code().run(&self.operands(args)))?;
        Ok(self.results(args, outputs))
    }

    /// As [`run`](Entry::run), and notes in the profiled call of this thread what it took.
    pub(crate) fn run_profiled(&self, args: &[&Tensor]) -> Result<Vec<Tensor>> {
        self.touch();
        let start = Instant::now();
        let (outputs, launches) = self.placed(|| self.code().profile(&self.operands(args)))?;
        profile::ran(&self.signature, self.runs(), &launches, start.elapsed());
        Ok(self.results(args, outputs))
    }

    /// A description of its launches.
    pub(crate) fn runs(&self) -> &Arc<Runs> {
        self.runs.get_or_init(|| Arc::new(Runs::of(&self.compiled)))
    }

    /// As [`run`](Entry::run), for code with a trap; also says which steps first stored NaN or an infinity.
    pub(crate) fn run_trapped(&self, args: &[&Tensor]) -> Result<(Vec<Tensor>, Option<String>)> {
        self.touch();
        let (outputs, first) = self.placed(|| self.code().run_trapped(&self.operands(args)))?;
        Ok((self.results(args, outputs), first))
    }

    /// Names the call of a function if a run for it is refused memory, with the bytes that it needs.
    #[cold]
    pub(crate) fn refused(&self, error: Error, function: &Identity, at: Caller) -> Error {
        let results = self.code().plan().outputs.iter().map(|output| output.bytes()).fold(0, usize::saturating_add);
        let (arena, results) = (ByteCount(self.code().arena_bytes()), ByteCount(results));
        let by = || {
            let signature = &self.signature;
            format!(
                "a call of {} for ({signature}), which needs {arena} for its arena and {results} for results",
                function.full()
            )
        };
        error.asked_by(by, at)
    }

    #[inline]
    fn operands<'a>(&'a self, args: &'a [&'a Tensor]) -> Operands<'a> {
        Operands { args, captures: &self.trace.captures }
    }

    #[inline]
    fn results(&self, args: &[&Tensor], outputs: Outputs) -> Vec<Tensor> {
        self.trace.results(args, code::tensors(outputs, &self.output_types))
    }

    /// Whether results should take the memory of these arguments.
    pub(crate) fn takes_donation(&self, donated: &Donated) -> bool {
        let mut bytes = 0;
        self.donors.iter().filter(|donor| donated.contains(donor.argument)).any(|donor| {
            bytes += donor.bytes;
            bytes >= MIN_DONATED
        })
    }

    /// Runs the machine code; results take the memory of donated arguments that have no other owner.
    pub(crate) fn run_donating(&self, mut args: Handles, donated: &Donated) -> Result<Vec<Tensor>> {
        self.touch();
        let mut donors = self.donors.iter().map(|donor| donor.argument).peekable();
        let own = args.iter_mut().enumerate().map(|(position, arg)| {
            let is_donor = donors.next_if_eq(&position).is_some() && donated.contains(position);
            match arg.take_if(|_| is_donor).map(Tensor::into_memory) {
                Some(Ok(memory)) => return Ok(memory.donated()),
                Some(Err(shared)) => *arg = Some(shared),
                None => {}
            }
            let gone = || Error::Internal("an argument was given away twice".into());
            code::borrowed(arg.as_ref().ok_or_else(gone)?)
        });
        let captures = self.trace.captures.iter().map(|capture| code::borrowed(&capture.tensor));
        let outputs = self.placed(|| self.code().run_donating(own.chain(captures)))?;
        // An argument that is a result is never donated.
        let missing = || Tensor::poisoned(Error::Internal("a result was given away".into()));
        let handed = |argument: usize| args[argument].clone().unwrap_or_else(missing);
        Ok(self.trace.results_with(&handed, code::tensors(outputs, &self.output_types)))
    }

    #[inline]
    fn touch(&self) {
        let now = coarse_millis();
        // Read first, so that threads which share the entry do not write to it on every call.
        if self.last_use.load(Relaxed) != now {
            self.last_use.store(now, Relaxed);
        }
    }

    /// Records a call on a tape that is evaluated op by op.
    pub(crate) fn record(
        &self,
        tape: &Arc<Tape>,
        args: &[&Tensor],
        common: &Arc<Common>,
        check: Option<Box<dyn CompareCall>>,
        at: Caller,
    ) -> Vec<Tensor> {
        self.touch();
        let routine = self.routine.get_or_init(|| {
            let captures = self.trace.captures.iter().map(|capture| capture.tensor.clone()).collect();
            let (compiled, target) = (Arc::clone(&self.compiled), self.signature.target());
            Arc::new(Routine::compiled(self.trace.graph.clone(), captures, compiled, target, Arc::clone(common)))
        });
        let outputs = match routine.output_types().is_empty() {
            true => vec![],
            false => tape.record_call(&(Arc::new(CallSite::new(Arc::clone(routine), check)) as _), args, at),
        };
        self.trace.results(args, outputs)
    }

    /// Bytes of machine code, of one arena, of the code for gradients, and of the tensors that the closure captured or
    /// returned unchanged: all on the device of the code, except those kept in main memory.
    pub(crate) fn weight(&self) -> Weight {
        let returned = self.trace.sources.iter().filter_map(|source| match source {
            Source::Constant(tensor) => Some(tensor),
            Source::Output(_) | Source::Parameter(_) => None,
        });
        let kept = self.trace.captures.iter().map(|capture| &capture.tensor).chain(returned);
        let mut weight = Weight::default();
        let mut add = |device: Device, bytes: usize| match device {
            Device::Cpu => weight.host += bytes,
            _ => weight.device += bytes,
        };
        for concrete in kept.filter_map(|tensor| tensor.as_concrete()) {
            add(concrete.device(), concrete.n_bytes());
        }
        let gradients = self.routine.get().map_or(0, |routine| routine.gradient_bytes());
        add(self.code().device(), self.code().code_bytes() + self.code().arena_bytes() + gradients);
        weight
    }

    /// Bytes of all of it, if that has grown by code for gradients since it was last asked for.
    pub(crate) fn grown(&self) -> Option<Weight> {
        let gradients = self.routine.get()?.gradient_bytes();
        (self.weighed_gradients.swap(gradients, Relaxed) != gradients).then(|| self.weight())
    }

    /// Statistics of the gradients that are evaluated at once.
    pub(crate) fn gradients(&self) -> Vec<GradientStats> {
        self.routine.get().map_or_else(Vec::new, |routine| routine.gradients())
    }

    /// How long ago it was last used, to some milliseconds.
    pub(crate) fn idle_time(&self) -> Duration {
        Duration::from_millis(coarse_millis().saturating_sub(self.last_use.load(Relaxed)))
    }

    /// The entry as a bisection takes it.
    pub(crate) fn cached(&self) -> Cached<'_> {
        Cached { trace: &self.trace, compiled: &self.compiled, target: self.signature.target() }
    }

    /// The time that making it took.
    pub(crate) fn times(&self) -> CompileTimes {
        CompileTimes::of(&self.stages)
    }

    /// The stages of making it, in order.
    pub(crate) fn stages(&self) -> &[StageTime] {
        &self.stages.0
    }

    /// The machine code.
    pub(crate) fn code(&self) -> &CompiledPlan {
        &self.compiled.code
    }
}

/// The name of an entry among other workers: the function, and the static values, which are the same on all of them.
fn place(function: &Identity, signature: &Signature) -> Arc<str> {
    let mut text = format!("in {}", function.full());
    for leaf in &signature.description().leaves {
        if let LeafValue::Static { text: value, .. } = &leaf.value {
            text.push_str(&format!(", {} = {value}", leaf.path));
        }
    }
    text.into()
}

/// The arguments whose memory the plan may write results to: no captures, and nothing that is itself a result.
fn donors(trace: &Trace, plan: &Plan) -> Vec<Donor> {
    let n_args = trace.graph.params().len() - trace.captures.len();
    let mut may_give = vec![false; n_args];
    for donation in &plan.donations {
        may_give.get_mut(donation.input as usize).into_iter().for_each(|may| *may = true);
    }
    for source in &trace.sources {
        if let Source::Parameter(position) = source {
            may_give.get_mut(*position).into_iter().for_each(|may| *may = false);
        }
    }
    let donor = |argument: usize| Donor { argument, bytes: plan.inputs[argument].bytes() };
    (0..n_args).filter(|&argument| may_give[argument]).map(donor).collect()
}

/// Handles of a call's own to all tensors, so that it can let go of the arguments.
pub(crate) fn handles(args: &[&Tensor]) -> Handles {
    args.iter().map(|&arg| Some(Tensor::clone(arg))).collect()
}

fn coarse_millis() -> u64 {
    coarse_now().as_millis() as u64
}
