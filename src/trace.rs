//! Running a closure on traced tensors, and the trace that this makes.

use std::collections::HashMap;
use std::panic::Location;
use std::sync::Arc;

use retape_runtime::Device;

use crate::Graph;
use crate::error::{Caller, Error, Result, caught};
use crate::ops::{Op, Reshape};
use crate::settings::{Settings, Stage};
use crate::signature::Description;
use crate::tape::{Capture, Tape};
use crate::tensor::Tensor;
use crate::tree::{Reader, Tree, Writer};
use crate::types::ValueId;

/// A traced closure: its graph, and where each tensor of the result comes from.
#[derive(Debug)]
pub(crate) struct Trace {
    /// The graph; its parameters are the arguments' tensors, then the captures; every output is distinct. If the closure
    /// has effects, the token of the last one is the last output, and no part of the result.
    pub(crate) graph: Graph,
    /// The hidden inputs.
    pub(crate) captures: Vec<Capture>,
    /// The words of the result.
    pub(crate) words: Vec<u64>,
    /// The source of each tensor of the result.
    pub(crate) sources: Vec<Source>,
    /// The leaves of the result for people, if the tape was to describe them.
    pub(crate) result: Description,
}

/// Where a tensor of the result comes from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// An output of the graph.
    Output(usize),
    /// A parameter of the graph, handed through.
    Parameter(usize),
    /// A tensor that was concrete during the trace.
    Constant(Tensor),
}

/// Runs `body`, which works on tensors of `tape`, and flattens its result; ends the trace in any case.
pub(crate) fn flatten<R: Tree>(tape: &Arc<Tape>, body: impl FnOnce() -> Result<R>) -> Result<Trace> {
    let result = caught(body);
    if let Some(error) = tape.error() {
        // A panic that follows an ill-typed op is its consequence; the op is what to report.
        tape.finish();
        return Err(Error::clone(&error));
    }
    let traced = result.and_then(|result| caught(|| collect(tape, &result)));
    let recorded = tape.finish();
    let Collected { mut outputs, words, mut sources, result } = traced?;
    outputs.extend(recorded.last_effect);
    let mut captures = recorded.captures;
    if !tape.is_compared() {
        place_captures(tape.device(), &mut captures, &mut sources)?;
    }
    let mut graph = recorded.graph;
    graph.set_outputs(outputs);
    let graph = graph.parameters_first().trimmed();
    if !tape.is_compared() {
        Settings::get().log(Stage::Trace, || graph.to_string());
    }
    Ok(Trace { graph, captures, words, sources, result })
}

/// Moves captures in main memory to the device of a trace; a capture on any other device is an error.
pub(crate) fn place_captures(device: Device, captures: &mut [Capture], sources: &mut [Source]) -> Result<()> {
    for Capture { tensor, at, .. } in captures {
        let line = at.known();
        if !matches!(tensor.device(), Device::Cpu) && tensor.device() != device {
            let text = format!("a captured {} on {} (at {at})", tensor.type_text(), tensor.device());
            return Err(Error::Tree(format!("{text} meets arguments on {device}; pass it as an argument")));
        }
        *tensor = sent(tensor, device, line)?;
    }
    for source in sources {
        if let Source::Constant(tensor) = source
            && tensor.device() == Device::Cpu
        {
            *tensor = sent(tensor, device, None)?;
        }
    }
    Ok(())
}

/// A concrete tensor on a device; fails if that has no room, naming the line that needs the tensor there if it is known.
pub(crate) fn sent(tensor: &Tensor, device: Device, at: Option<Caller>) -> Result<Tensor> {
    let concrete = tensor.as_concrete().filter(|concrete| concrete.device() != device);
    let Some(concrete) = concrete else { return tensor.error().map_or(Ok(tensor.clone()), |error| Err(error.clone())) };
    concrete.copied_to(device).map_err(|error| match at {
        Some(at) => error.asked_by(|| format!("{} that is sent to {device}", tensor.type_text()), at),
        None => error,
    })
}

/// Fresh values on a tape for the arguments of a function that runs inside a trace.
///
/// A function must not mistake what it captured, or another of its arguments, for the argument that it differentiates
/// by, even if all are the same tensor; so each argument becomes a value of its own. Concrete ones become hidden inputs
/// first, so that all can be differentiated by.
pub(crate) fn stand_ins(tape: &Arc<Tape>, args: &[&Tensor], at: Caller) -> Vec<Tensor> {
    let stand_in = |arg: &&Tensor| match arg.as_traced() {
        // Its next use says what is wrong with it.
        Some(traced) if !traced.is_on(tape) => Tensor::clone(arg),
        _ => tape.record(Reshape { shape: arg.shape().into() }.into(), &[arg], at),
    };
    args.iter().map(stand_in).collect()
}

/// The graph that a function records for arguments like `at`, whose values do not matter.
///
/// Its parameters are the tensors of the argument, then those that the function captured; its outputs are the distinct
/// tensors of the result that are not parameters; and, if it prints, the token of the last
/// [`debug_print`](Tensor::debug_print).
///
/// # Errors
///
/// Fails if the function is ill-typed for this argument or panics.
///
/// ```
/// # use retape::{trace, Tensor};
/// let graph = trace(|x: &Tensor| x.tanh().sum(..), &Tensor::zeros([3]))?;
/// assert_eq!(graph.to_string().lines().count(), 5);
/// # Ok::<(), retape::Error>(())
/// ```
pub fn trace<T: Tree, R: Tree>(f: impl Fn(&T) -> R, at: &T) -> Result<Graph> {
    let mut leaves = Writer::default();
    at.write(&mut leaves);
    let tape = Tape::new();
    let parameter = |tensor: &&Tensor| match (tensor.error(), tensor.ty()) {
        (Some(error), _) => Err(error.clone()),
        (None, Some(ty)) => Ok(tape.parameter(ty.clone())),
        (None, None) => Err(Error::Internal("a tensor is neither typed nor poisoned".into())),
    };
    let parameters = leaves.tensors.iter().map(parameter).collect::<Result<Vec<_>>>()?;
    let traced = flatten(&tape, || Ok(f(&T::read(&mut Reader::new(&leaves.words, &parameters))?)));
    Ok(traced.map_err(|error| in_words_of_caller(&tape, error, at))?.graph)
}

/// The error of tracing a function of one argument, as its caller knows that.
pub(crate) fn in_words_of_caller<T: Tree>(tape: &Tape, error: Error, argument: &T) -> Error {
    tape.in_words_of_caller(error, |position| {
        let mut leaves = Writer::with_paths();
        argument.write(&mut leaves);
        leaves.tensor_paths("argument 0").get(position).cloned()
    })
}

/// A flattened result.
struct Collected {
    outputs: Vec<ValueId>,
    words: Vec<u64>,
    sources: Vec<Source>,
    result: Description,
}

#[track_caller]
fn collect<R: Tree>(tape: &Arc<Tape>, result: &R) -> Result<Collected> {
    let mut leaves = if tape.describes() { Writer::with_paths() } else { Writer::default() };
    result.write(&mut leaves);
    let mut outputs = vec![];
    let mut known = HashMap::new();
    let mut sources = vec![];
    for tensor in leaves.tensors.iter() {
        if let Some(error) = tensor.error() {
            return Err(error.clone());
        }
        let Some(traced) = tensor.as_traced() else {
            sources.push(Source::Constant(Tensor::clone(tensor)));
            continue;
        };
        if !traced.is_on(tape) {
            let message = "the closure returned a traced tensor of another trace";
            return Err(Error::Escaped { op: "return", message, at: Location::caller(), call: None });
        }
        let parameter = tape.with_graph(|graph| match &graph.node(traced.id).op {
            Op::Parameter(parameter) => Some(parameter.index),
            _ => None,
        });
        sources.push(match parameter {
            Some(position) => Source::Parameter(position),
            None => Source::Output(*known.entry(traced.id).or_insert_with(|| {
                outputs.push(traced.id);
                outputs.len() - 1
            })),
        });
    }
    let result = Description::of_result(&leaves);
    Ok(Collected { outputs, words: leaves.words.to_vec(), sources, result })
}

impl Trace {
    /// Forgets effects, which happened already when the trace is run a second time for the same call.
    pub(crate) fn without_effects(mut self) -> Trace {
        let outputs = self.sources.iter().filter_map(|source| match source {
            Source::Output(position) => Some(position + 1),
            Source::Parameter(_) | Source::Constant(_) => None,
        });
        let mut kept = self.graph.outputs().to_vec();
        kept.truncate(outputs.max().unwrap_or(0));
        self.graph.set_outputs(kept);
        self
    }

    /// The tensors of the result, from those of the inputs (arguments, then captures) and of the graph's outputs.
    pub(crate) fn results(&self, inputs: &[&Tensor], outputs: Vec<Tensor>) -> Vec<Tensor> {
        self.results_with(&|argument| Tensor::clone(inputs[argument]), outputs)
    }

    /// As [`results`](Trace::results), with a function that knows the arguments which are handed through.
    pub(crate) fn results_with(&self, argument: &dyn Fn(usize) -> Tensor, mut outputs: Vec<Tensor>) -> Vec<Tensor> {
        let is_next = |(n, source): (usize, &Source)| matches!(source, Source::Output(position) if *position == n);
        // An output beyond the sources is the token of an effect.
        if self.sources.len() <= outputs.len() && self.sources.iter().enumerate().all(is_next) {
            outputs.truncate(self.sources.len());
            return outputs;
        }
        let n_args = self.graph.params().len() - self.captures.len();
        let tensor = |source: &Source| match source {
            Source::Output(position) => outputs[*position].clone(),
            Source::Parameter(position) if *position < n_args => argument(*position),
            Source::Parameter(position) => self.captures[position - n_args].tensor.clone(),
            Source::Constant(tensor) => tensor.clone(),
        };
        self.sources.iter().map(tensor).collect()
    }
}
