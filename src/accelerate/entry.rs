//! One cached trace: machine code, captured tensors, and how results are put together.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use retape_kernels::{Executable, Input, Inputs, Plan};
use retape_runtime::{Buffer, coarse_now};
use smallvec::SmallVec;

use super::check::Turns;
use super::differentiate::{Common, Recheck, Routine};
use super::function::Given;
use super::profile::{self, Runs};
use super::signature::Signature;
use super::stats::{CompileTimes, GradientStats};
use crate::compile::{self, Compiled, StageTime, Stages};
use crate::error::{Caller, Error, Result};
use crate::graph::TensorType;
use crate::ops::CallSite;
use crate::tape::{Capture, Tape};
use crate::tensor::Tensor;
use crate::trace::{Source, Trace};

/// A call that gives away less is quicker if it is run as if it lent all: small results come from the pool in
/// nanoseconds.
const MIN_GIVEN: usize = 32 << 10;

/// An argument whose memory results may take.
#[derive(Clone, Copy, Debug)]
struct Donor {
    argument: usize,
    bytes: usize,
}

/// The inputs of a call: the arguments, then the captures.
struct Arguments<'a> {
    args: &'a [&'a Tensor],
    captures: &'a [Capture],
}

impl Inputs for Arguments<'_> {
    #[inline]
    fn count(&self) -> usize {
        self.args.len() + self.captures.len()
    }

    #[inline]
    fn buffer<'a>(&'a self, input: usize, _: &'a [Buffer]) -> Option<&'a Buffer> {
        let tensor = match self.args.get(input) {
            Some(arg) => arg,
            None => &self.captures.get(input - self.args.len())?.tensor,
        };
        tensor.as_concrete().map(|concrete| concrete.bytes())
    }
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
    /// The arguments whose memory results may take, if they are given away, in order.
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
    pub(super) turns: Turns,
    /// Whether a check has put it in quarantine.
    is_wrong: AtomicBool,
    /// The graph's text with lines of the program, if another process recorded it.
    loaded_text: Option<String>,
}

impl Entry {
    /// Optimises and compiles what was traced; `stages` has noted the trace.
    pub(crate) fn new(signature: Signature, trace: Trace, mut stages: Stages) -> Result<Entry> {
        let compiled = compile::compile_in(&trace.graph, signature.modes(), &mut stages)?;
        let output_types = trace.graph.outputs().iter().map(|&id| trace.graph.ty(id).clone()).collect();
        let donors = donors(&trace, compiled.executable.plan());
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
            is_wrong: AtomicBool::new(false),
            loaded_text: None,
        })
    }

    /// Optimises and compiles what an artefact held.
    pub(crate) fn loaded(signature: Signature, trace: Trace, text: String) -> Result<Entry> {
        Ok(Entry { loaded_text: Some(text), ..Entry::new(signature, trace, Stages::default())? })
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
    pub(crate) fn condemn(&self) {
        self.is_wrong.store(true, Relaxed);
    }

    /// Whether a check found it wrong and fell back.
    #[inline]
    pub(crate) fn is_condemned(&self) -> bool {
        self.is_wrong.load(Relaxed)
    }

    /// Runs the machine code on arguments that have the entry's signature.
    pub(crate) fn run(&self, args: &[&Tensor]) -> Result<Vec<Tensor>> {
        self.touch();
        self.run_unnoted(args)
    }

    /// As [`run`](Entry::run), but no use of the entry as the statistics have it.
    #[inline]
    pub(crate) fn run_unnoted(&self, args: &[&Tensor]) -> Result<Vec<Tensor>> {
        let inputs = Arguments { args, captures: &self.trace.captures };
        let buffers = self.executable().run_from(&inputs).map_err(compile::failed)?;
        Ok(self.results(args, buffers))
    }

    /// As [`run`](Entry::run), and notes in the profiled call of this thread what it took.
    pub(crate) fn run_profiled(&self, args: &[&Tensor]) -> Result<Vec<Tensor>> {
        self.touch();
        let inputs = self.inputs(args)?;
        let start = Instant::now();
        let (buffers, launches) = self.executable().profile(&inputs).map_err(compile::failed)?;
        profile::ran(&self.signature, self.runs(), &launches, start.elapsed());
        Ok(self.results(args, buffers))
    }

    /// What its launches do.
    pub(crate) fn runs(&self) -> &Arc<Runs> {
        self.runs.get_or_init(|| Arc::new(Runs::of(&self.compiled)))
    }

    /// As [`run`](Entry::run), for code with a trap; also says which steps first stored NaN or an infinity.
    pub(crate) fn run_trapped(&self, args: &[&Tensor]) -> Result<(Vec<Tensor>, Option<String>)> {
        self.touch();
        let (buffers, first) = self.executable().run_trapped(&self.inputs(args)?).map_err(compile::failed)?;
        Ok((self.results(args, buffers), first))
    }

    /// The bytes of the arguments, then of the captures.
    #[inline]
    fn inputs<'a>(&'a self, args: &[&'a Tensor]) -> Result<SmallVec<[&'a Buffer; 24]>> {
        let captures = self.trace.captures.iter().map(|capture| &capture.tensor);
        let bytes = |tensor: &'a Tensor| tensor.as_concrete().map(|concrete| concrete.bytes());
        let inputs = args.iter().copied().chain(captures).map(bytes).collect::<Option<_>>();
        inputs.ok_or_else(|| Error::Internal("a compiled trace was given a tensor without bytes".into()))
    }

    #[inline]
    fn results(&self, args: &[&Tensor], buffers: Vec<Buffer>) -> Vec<Tensor> {
        self.trace.results(args, self.outputs(buffers))
    }

    /// Whether results should take the memory of these arguments.
    pub(crate) fn takes(&self, given: &Given) -> bool {
        let mut bytes = 0;
        self.donors.iter().filter(|donor| given.contains(donor.argument)).any(|donor| {
            bytes += donor.bytes;
            bytes >= MIN_GIVEN
        })
    }

    /// Runs the machine code; results take the memory of given arguments that have no other owner.
    pub(crate) fn run_given(&self, mut args: Handles, given: &Given) -> Result<Vec<Tensor>> {
        self.touch();
        let mut donors = self.donors.iter().map(|donor| donor.argument).peekable();
        let own = args.iter_mut().enumerate().map(|(position, arg)| {
            let is_donor = donors.next_if_eq(&position).is_some() && given.contains(position);
            match arg.take_if(|_| is_donor).map(Tensor::into_bytes) {
                Some(Ok(buffer)) => return Some(Input::given(buffer)),
                Some(Err(shared)) => *arg = Some(shared),
                None => {}
            }
            arg.as_ref().and_then(lent)
        });
        let captures = self.trace.captures.iter().map(|capture| lent(&capture.tensor));
        let inputs: SmallVec<[Input<'_>; 24]> = own
            .chain(captures)
            .collect::<Option<_>>()
            .ok_or_else(|| Error::Internal("a compiled trace was given a tensor without bytes".into()))?;
        let buffers = self.executable().run_over(inputs).map_err(compile::failed)?;
        // What is handed through is never a donor.
        let missing = || Tensor::poisoned(Error::Internal("a result was given away".into()));
        let handed = |argument: usize| args[argument].clone().unwrap_or_else(missing);
        Ok(self.trace.results_with(&handed, self.outputs(buffers)))
    }

    #[inline]
    fn touch(&self) {
        let now = coarse_millis();
        // Read first, so that threads which share the entry do not write to it on every call.
        if self.last_use.load(Relaxed) != now {
            self.last_use.store(now, Relaxed);
        }
    }

    fn outputs(&self, buffers: Vec<Buffer>) -> Vec<Tensor> {
        let outputs = buffers.into_iter().zip(&self.output_types);
        outputs.map(|(bytes, ty)| Tensor::concrete(ty.clone(), bytes)).collect()
    }

    /// Records a call on a tape that is evaluated op by op.
    pub(crate) fn record(
        &self,
        tape: &Arc<Tape>,
        args: &[&Tensor],
        common: &Arc<Common>,
        check: Option<Recheck>,
        at: Caller,
    ) -> Vec<Tensor> {
        self.touch();
        let routine = self.routine.get_or_init(|| {
            let captures = self.trace.captures.iter().map(|capture| capture.tensor.clone()).collect();
            let compiled = Arc::clone(&self.compiled);
            Arc::new(Routine::compiled(self.trace.graph.clone(), captures, compiled, Arc::clone(common)))
        });
        let outputs = match routine.output_types().is_empty() {
            true => vec![],
            false => tape.record_call(&Arc::new(CallSite { routine: Arc::clone(routine), of: None, check }), args, at),
        };
        self.trace.results(args, outputs)
    }

    /// Bytes of machine code, of one arena, of what is there for gradients, and of the tensors that the closure captured
    /// or returned as they were.
    pub(crate) fn n_bytes(&self) -> usize {
        let bytes = |tensor: &Tensor| tensor.as_concrete().map_or(0, |concrete| concrete.bytes().len());
        let captured: usize = self.trace.captures.iter().map(|capture| bytes(&capture.tensor)).sum();
        let returned = self.trace.sources.iter().map(|source| match source {
            Source::Constant(tensor) => bytes(tensor),
            Source::Output(_) | Source::Parameter(_) => 0,
        });
        let gradients = self.routine.get().map_or(0, |routine| routine.gradient_bytes());
        let code = self.executable().code_bytes() + self.executable().arena_bytes();
        code + gradients + captured + returned.sum::<usize>()
    }

    /// Bytes of all of it, if that has grown by code for gradients since it was last asked for.
    pub(crate) fn grown_bytes(&self) -> Option<usize> {
        let gradients = self.routine.get()?.gradient_bytes();
        (self.weighed_gradients.swap(gradients, Relaxed) != gradients).then(|| self.n_bytes())
    }

    /// What is there for gradients that are evaluated at once.
    pub(crate) fn gradients(&self) -> Vec<GradientStats> {
        self.routine.get().map_or_else(Vec::new, |routine| routine.gradients())
    }

    /// How long ago it was last used, to some milliseconds.
    pub(crate) fn idle_time(&self) -> Duration {
        Duration::from_millis(coarse_millis().saturating_sub(self.last_use.load(Relaxed)))
    }

    /// What making it cost.
    pub(crate) fn times(&self) -> CompileTimes {
        CompileTimes::of(&self.stages)
    }

    /// The stages of making it, in order.
    pub(crate) fn stages(&self) -> &[StageTime] {
        &self.stages.0
    }

    /// The machine code.
    pub(crate) fn executable(&self) -> &Executable {
        &self.compiled.executable
    }
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

/// A tensor as an input that stays as it is.
fn lent(tensor: &Tensor) -> Option<Input<'_>> {
    tensor.as_concrete().map(|concrete| Input::lent(concrete.bytes()))
}

fn coarse_millis() -> u64 {
    coarse_now().as_millis() as u64
}
