//! Graphs that are called as compiled code, and their gradients.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use retape_runtime::{Lazy, Memo};

use super::code::Code;
use super::partition::{BackwardInput, Partition, partition};
use crate::code::Target;
use crate::compile::{CompileTimes, Compiled};
use crate::error::{Caller, Error, Result};
use crate::graph::Graph;
use crate::identity::Identity;
use crate::tape::Tape;
use crate::tensor::Tensor;
use crate::trace::sent;
use crate::types::{TensorType, ValueId};
use crate::{autodiff, opt};

/// State shared by all entries of a cache: how often backward code was there when it was needed, and the lock.
#[derive(Debug, Default)]
pub(crate) struct Common {
    hits: AtomicU64,
    misses: AtomicU64,
    /// Whether what is not there is an error; asked only where something is made.
    is_locked: AtomicBool,
    /// The function; none of a graph that no function keeps.
    function: Option<Identity>,
}

impl Common {
    /// The common part of all entries of a function.
    pub(crate) fn of(function: Identity) -> Common {
        Common { function: Some(function), ..Common::default() }
    }

    /// Hits and misses.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.hits.load(Relaxed), self.misses.load(Relaxed))
    }

    pub(crate) fn is_locked(&self) -> bool {
        self.is_locked.load(Relaxed)
    }

    pub(crate) fn set_locked(&self, is_locked: bool) {
        self.is_locked.store(is_locked, Relaxed);
    }

    /// Asks the lock whether code for a gradient may be made.
    fn permit(&self, pull: &Pull, at: Caller) -> Result<()> {
        if !self.is_locked() {
            return Ok(());
        }
        let Pull { wrt, results } = pull;
        let of = self.function.as_ref().map(|function| format!(" of {function}")).unwrap_or_default();
        Err(Error::Cache(format!(
            "the locked cache{of} makes no code, and the gradient of results {results:?} by argument tensors {wrt:?} has none; \
             take it once before the lock (at {at})"
        )))
    }
}

/// A graph that is called as compiled code.
#[derive(Debug)]
pub(crate) struct Routine {
    /// The recorded graph; its parameters are the inputs of a call, then the captures.
    graph: Graph,
    captures: Vec<Tensor>,
    /// Where it runs and how exact it is, if it is compiled; so are its gradients.
    target: Target,
    output_types: Vec<TensorType>,
    code: Lazy<Code>,
    pull_backs: Memo<Pull, PullBack>,
    common: Arc<Common>,
    /// Bytes of machine code and arenas that were made for gradients, and theirs.
    gradient_bytes: Arc<AtomicUsize>,
}

/// Which gradient is asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Pull {
    /// The inputs to differentiate by, by position.
    pub(crate) wrt: Vec<usize>,
    /// The results that have a cotangent.
    pub(crate) results: Vec<usize>,
}

/// One gradient of a routine.
#[derive(Debug)]
pub(crate) struct PullBack {
    pull: Pull,
    /// The gradients from the inputs and the cotangents, computed from scratch.
    gradient: Arc<Routine>,
    /// The results and the gradients together, optimised. The parameters are those of the gradient.
    joint: Graph,
    cotangents: Range<usize>,
    split: Lazy<Arc<Split>>,
    calls: AtomicU64,
    /// The time that recording and optimising it took.
    times: CompileTimes,
}

/// The forward and backward code of a cached trace, for calls inside a gradient that is evaluated at once.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct GradientStats {
    /// The tensors among the arguments that are differentiated by, by position.
    pub arguments: Vec<usize>,
    /// The results that the differentiated value depends on, by position among those that are computed.
    pub results: Vec<usize>,
    /// How often the backward code ran.
    pub calls: u64,
    /// Whether it has been compiled; it is when it is first needed.
    pub is_compiled: bool,
    /// Values that the forward code keeps for it, besides results, arguments and captured tensors.
    pub residuals: usize,
    /// Bytes of these values.
    pub residual_bytes: usize,
    /// Bytes of machine code and of one arena each, forward and backward.
    pub bytes: usize,
    /// The time that making it took; tracing is differentiation here.
    pub times: CompileTimes,
}

/// Forward code that keeps what backward code goes on from.
#[derive(Debug)]
struct Split {
    forward: Code,
    backward: Code,
    kept: Vec<usize>,
    reads: Vec<BackwardInput>,
    /// The residuals that are no results.
    n_residuals: usize,
    residual_bytes: usize,
}

impl Routine {
    /// A routine whose code is there, of an entry that was compiled for `target`.
    pub(crate) fn compiled(
        graph: Graph,
        captures: Vec<Tensor>,
        code: Arc<Compiled>,
        target: Target,
        common: Arc<Common>,
    ) -> Routine {
        let code = Lazy::of(Code::known(&graph, code));
        Routine { code, ..Routine::new(graph, captures, target, common, Arc::default()) }
    }

    /// A routine that is to be evaluated op by op.
    pub(crate) fn uncompiled(graph: Graph, captures: Vec<Tensor>) -> Routine {
        Routine::new(graph, captures, Target::default(), Arc::default(), Arc::default())
    }

    fn new(
        graph: Graph,
        captures: Vec<Tensor>,
        target: Target,
        common: Arc<Common>,
        gradient_bytes: Arc<AtomicUsize>,
    ) -> Routine {
        let output_types = graph.outputs().iter().map(|&id| graph.ty(id).clone()).collect();
        let (code, pull_backs) = (Lazy::default(), Memo::at_most(usize::MAX));
        Routine { graph, captures, target, output_types, code, pull_backs, common, gradient_bytes }
    }

    /// Names the call at a line if a run for it is refused memory.
    #[cold]
    pub(crate) fn refused(&self, error: Error, at: Caller) -> Error {
        let by = || match &self.common.function {
            Some(function) => format!("a call inside a gradient of {}", function.full()),
            None => "a call inside a gradient".to_owned(),
        };
        error.asked_by(by, at)
    }

    fn n_inputs(&self) -> usize {
        self.graph.params().len() - self.captures.len()
    }

    /// The types of the inputs.
    pub(crate) fn input_types(&self) -> impl Iterator<Item = &TensorType> {
        self.graph.params().iter().take(self.n_inputs()).map(|&id| self.graph.ty(id))
    }

    /// The types of the results.
    pub(crate) fn output_types(&self) -> &[TensorType] {
        &self.output_types
    }

    /// Whether a call does something besides computing its results; then the last result is a token.
    pub(crate) fn has_effect(&self) -> bool {
        self.graph.outputs().last().is_some_and(|&id| self.graph.node(id).op.has_effect())
    }

    /// The results for some inputs.
    pub(crate) fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        self.code()?.run(inputs.iter().chain(&self.captures))
    }

    /// The graph, whose parameters are the inputs of a call, then the captures.
    pub(crate) fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The tensors that the graph takes besides the inputs.
    pub(crate) fn captures(&self) -> &[Tensor] {
        &self.captures
    }

    fn code(&self) -> Result<Code> {
        Ok(self.code.get_or_try_init(|| Code::of(&self.graph, self.target))?.0)
    }

    /// The gradient of the results with respect to some inputs.
    pub(crate) fn pull_back(&self, pull: Pull, at: Caller) -> Result<Arc<PullBack>> {
        self.pull_backs.get_or_try_insert_with(&pull, || {
            self.common.permit(&pull, at)?;
            Ok(Arc::new(self.differentiate(pull.clone(), at)?))
        })
    }

    /// Bytes of machine code and arenas that were made for gradients.
    pub(crate) fn gradient_bytes(&self) -> usize {
        self.gradient_bytes.load(Relaxed)
    }

    /// Statistics of its gradients, and of theirs.
    pub(crate) fn gradients(&self) -> Vec<GradientStats> {
        let mut known = self.pull_backs.values();
        known.sort_by(|a, b| a.pull.cmp(&b.pull));
        known.iter().flat_map(|pull_back| [vec![pull_back.stats()], pull_back.gradient.gradients()].concat()).collect()
    }

    /// Records the graph and its gradient on a tape of their own.
    fn differentiate(&self, pull: Pull, at: Caller) -> Result<PullBack> {
        let start = Instant::now();
        let tape = Tape::on(self.target.device);
        let typed = |&id: &ValueId| tape.parameter(self.graph.ty(id).clone());
        let (inputs, captures) = self.graph.params().split_at(self.n_inputs());
        let inputs: Vec<Tensor> = inputs.iter().map(typed).collect();
        let cts: Vec<Tensor> =
            pull.results.iter().map(|&result| tape.parameter(self.output_types[result].clone())).collect();
        let captures: Vec<Tensor> = captures.iter().map(typed).collect();
        let all: Vec<Tensor> = inputs.iter().chain(&captures).cloned().collect();
        let values = self.graph.replay(&all, Some(&tape), at)?;
        let results: Vec<&Tensor> = self.graph.outputs().iter().map(|id| &values[id.index()]).collect();
        let seeds: Vec<(&Tensor, Tensor)> =
            pull.results.iter().zip(&cts).map(|(&result, ct)| (results[result], ct.clone())).collect();
        let wrt: Vec<&Tensor> = pull.wrt.iter().map(|&input| &inputs[input]).collect();
        let gradients = autodiff::pull_back(&tape, &seeds, &wrt, at)?;
        let outputs = results.into_iter().chain(&gradients).map(|tensor| tensor.as_traced().map(|traced| traced.id));
        let outputs: Option<Vec<ValueId>> = outputs.collect();
        let outputs = outputs.ok_or_else(|| Error::Internal("a gradient is not on its tape".into()))?;
        let recorded = tape.finish();
        let added = recorded.captures.iter().map(|capture| sent(&capture.tensor, self.target.device, Some(at)));
        let captures = self.captures.iter().cloned().map(Ok).chain(added).collect::<Result<Vec<Tensor>>>()?;
        let mut gradient = recorded.graph;
        gradient.set_outputs(outputs);
        let mut gradient = gradient.with_parameters_first();
        let trace = start.elapsed();
        let joint = opt::run(&gradient)?;
        let times = CompileTimes { trace, optimise: start.elapsed() - trace, ..CompileTimes::default() };
        gradient.set_outputs(gradient.outputs()[self.output_types.len()..].to_vec());
        let (common, bytes) = (Arc::clone(&self.common), Arc::clone(&self.gradient_bytes));
        let gradient = Routine::new(gradient.without_dead_nodes(), captures, self.target, common, bytes);
        let cotangents = self.n_inputs()..self.n_inputs() + pull.results.len();
        let (split, calls) = (Lazy::default(), AtomicU64::new(0));
        Ok(PullBack { pull, gradient: Arc::new(gradient), joint, cotangents, split, calls, times })
    }
}

impl PullBack {
    /// Which gradient it is.
    pub(crate) fn pull(&self) -> &Pull {
        &self.pull
    }

    /// The gradients from the inputs and the cotangents, as a routine of its own.
    pub(crate) fn gradient(&self) -> &Arc<Routine> {
        &self.gradient
    }

    /// The statistics so far.
    fn stats(&self) -> GradientStats {
        let (split, alone) = (self.split.get(), self.gradient.code.get());
        let codes = split.iter().flat_map(|split| [&split.forward, &split.backward]).chain(&alone);
        let times = codes.clone().map(Code::times).fold(self.times, CompileTimes::plus);
        GradientStats {
            arguments: self.pull.wrt.clone(),
            results: self.pull.results.clone(),
            calls: self.calls.load(Relaxed),
            is_compiled: split.is_some() || alone.is_some(),
            residuals: split.as_ref().map_or(0, |split| split.n_residuals),
            residual_bytes: split.as_ref().map_or(0, |split| split.residual_bytes),
            bytes: codes.map(Code::n_bytes).sum(),
            times,
        }
    }

    /// Runs the backward code on its own, from the inputs and the cotangents, for the call at a line.
    pub(crate) fn run_alone(&self, inputs: &[Tensor], at: Caller) -> Result<Vec<Tensor>> {
        let make = || -> Result<Code> {
            self.gradient.common.permit(&self.pull, at)?;
            Ok(self.counted(Code::of(&self.gradient.graph, self.gradient.target)?))
        };
        let (code, is_new) = self.gradient.code.get_or_try_init(make)?;
        self.count(is_new);
        code.run(inputs.iter().chain(&self.gradient.captures))
    }

    /// The results of the call at a line: those of the forward code, and the residuals for the backward code.
    pub(crate) fn run_forward(&self, inputs: &[Tensor], at: Caller) -> Result<(Vec<Tensor>, Residuals)> {
        let make = || -> Result<Arc<Split>> {
            self.gradient.common.permit(&self.pull, at)?;
            self.make_split()
        };
        let (split, is_new) = self.split.get_or_try_init(make)?;
        let mut results = split.forward.run(inputs.iter().chain(&self.gradient.captures))?;
        let kept = split.kept.iter().map(|&output| results[output].clone()).collect();
        results.truncate(results.len() - split.n_residuals);
        Ok((results, Residuals { split, kept, is_new }))
    }

    /// Goes on from the residuals; `inputs` are those of the forward code and the cotangents.
    pub(crate) fn run_backward(&self, residuals: Residuals, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        self.count(residuals.is_new);
        let parameter = |position: usize| match position.checked_sub(inputs.len()) {
            Some(capture) => &self.gradient.captures[capture],
            None => &inputs[position],
        };
        let read = |read: &BackwardInput| match *read {
            BackwardInput::Parameter(position) => parameter(position),
            BackwardInput::Kept(position) => &residuals.kept[position],
        };
        residuals.split.backward.run(residuals.split.reads.iter().map(read))
    }

    fn make_split(&self) -> Result<Arc<Split>> {
        let n_results = self.joint.outputs().len() - self.gradient.output_types.len();
        let Partition { forward, backward, kept, reads } = partition(&self.joint, n_results, &self.cotangents);
        let residuals = forward.outputs()[n_results..].iter().map(|&id| forward.ty(id));
        let (n_residuals, residual_bytes) = (residuals.len(), residuals.filter_map(TensorType::checked_bytes).sum());
        let code = |graph: &Graph| Code::of(graph, self.gradient.target);
        let (forward, backward) = (self.counted(code(&forward)?), self.counted(code(&backward)?));
        Ok(Arc::new(Split { forward, backward, kept, reads, n_residuals, residual_bytes }))
    }

    /// Notes the bytes of code that was made.
    fn counted(&self, code: Code) -> Code {
        self.gradient.gradient_bytes.fetch_add(code.n_bytes(), Relaxed);
        code
    }

    /// Counts a run of the backward code, which was made for it or not.
    pub(crate) fn count(&self, is_new: bool) {
        self.calls.fetch_add(1, Relaxed);
        let common = &self.gradient.common;
        if is_new { &common.misses } else { &common.hits }.fetch_add(1, Relaxed);
    }
}

/// The values that a run of forward code leaves for the backward code.
#[derive(Clone, Debug)]
pub(crate) struct Residuals {
    split: Arc<Split>,
    kept: Vec<Tensor>,
    /// Whether the code was made for this run.
    pub(crate) is_new: bool,
}
