//! From graph to machine code: the list of stages, and the process-wide cache of their result.

use std::borrow::Cow;
use std::panic::Location;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use retape_kernels::CompiledPlan;
use retape_runtime::{Device, Hash32, Memo, hash_value, in_user_code};
use smallvec::SmallVec;

use crate::code::Target;
use crate::error::{Error, Result, caught};
use crate::graph::Graph;
use crate::method::method_at;
use crate::ops::Op;
use crate::plan::Layout;
use crate::settings::{Settings, Stage};
use crate::tape::Tape;
use crate::tensor::Tensor;
use crate::types::ValueId;
use crate::{opt, plan};

/// Machine code for a graph.
#[derive(Debug)]
pub(crate) struct Compiled {
    /// The optimised graph.
    pub(crate) graph: Graph,
    pub(crate) code: CompiledPlan,
    /// The steps of the code by their nodes in the optimised graph.
    pub(crate) layout: Layout,
}

/// All compiled graphs that someone still holds, by the hash of their target and what they are.
static SHARED: LazyLock<Memo<Hash32, Compiled>> = LazyLock::new(Memo::in_use);

/// When a stage of a compilation began, and how long it took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StageTime {
    pub(crate) name: &'static str,
    pub(crate) start: Instant,
    pub(crate) time: Duration,
}

/// The stages that one compilation went through; those that found their result made are not among them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stages(pub(crate) SmallVec<[StageTime; 4]>);

impl Stages {
    /// Runs a stage, in a span of its own for listeners, and notes its time.
    pub(crate) fn run<T>(&mut self, name: &'static str, stage: impl FnOnce() -> T) -> T {
        let span = in_user_code(|| tracing::debug_span!(target: "retape", "retape::stage", stage = name).entered());
        let start = Instant::now();
        let result = stage();
        self.0.push(StageTime { name, start, time: start.elapsed() });
        in_user_code(|| drop(span));
        result
    }

    /// The time of a stage; zero if it did not run.
    pub(crate) fn time(&self, name: &str) -> Duration {
        self.0.iter().filter(|stage| stage.name == name).map(|stage| stage.time).sum()
    }
}

/// The time each stage of a miss took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct CompileTimes {
    /// Running the closure on traced tensors, with differentiation.
    #[cfg_attr(feature = "serde", serde(rename = "trace_seconds", serialize_with = "crate::serialise::seconds"))]
    pub trace: Duration,
    /// Rewriting the graph.
    #[cfg_attr(feature = "serde", serde(rename = "optimise_seconds", serialize_with = "crate::serialise::seconds"))]
    pub optimise: Duration,
    /// Fusion and memory planning.
    #[cfg_attr(feature = "serde", serde(rename = "plan_seconds", serialize_with = "crate::serialise::seconds"))]
    pub plan: Duration,
    /// Making machine code.
    #[cfg_attr(feature = "serde", serde(rename = "compile_seconds", serialize_with = "crate::serialise::seconds"))]
    pub compile: Duration,
}

impl CompileTimes {
    pub(crate) fn of(stages: &Stages) -> CompileTimes {
        CompileTimes {
            trace: stages.time("trace"),
            optimise: stages.time("optimise"),
            plan: stages.time("plan"),
            compile: stages.time("compile"),
        }
    }

    /// The sums of the stages.
    pub(crate) fn plus(self, other: CompileTimes) -> CompileTimes {
        CompileTimes {
            trace: self.trace + other.trace,
            optimise: self.optimise + other.optimise,
            plan: self.plan + other.plan,
            compile: self.compile + other.compile,
        }
    }

    /// All stages together.
    pub fn total(&self) -> Duration {
        self.trace + self.optimise + self.plan + self.compile
    }
}

/// Compiles a graph for a target, or finds that an identical one has been compiled; notes what it took.
pub(crate) fn compile_for(graph: &Graph, target: Target, stages: &mut Stages) -> Result<Arc<Compiled>> {
    // Listeners for the stages are called from everywhere, also from ops outside of calls.
    caught(|| optimised_and_compiled(graph, target, stages))
}

fn optimised_and_compiled(graph: &Graph, target: Target, stages: &mut Stages) -> Result<Arc<Compiled>> {
    let graph = for_device(graph, target.device)?;
    let optimised = stages.run("optimise", || opt::run(&graph))?;
    let key = hash_value(&(target, &optimised));
    SHARED.get_or_try_insert_with(&key, || {
        let (plan, layout) = stages.run("plan", || plan::plan(&optimised, target.device))?;
        let settings = Settings::get();
        settings.log(Stage::Plan, || plan.to_string());
        let code = stages.run("compile", || target.compile(plan))?;
        settings.log(Stage::Code, || code.text());
        Ok(Arc::new(Compiled { graph: optimised, code, layout }))
    })
}

/// The graph with formulas in place of the ops that only the processor has a kernel for.
fn for_device(graph: &Graph, device: Device) -> Result<Cow<'_, Graph>> {
    if device == Device::Cpu || !graph.nodes().iter().any(|node| node.op.is_for_processor()) {
        return Ok(Cow::Borrowed(graph));
    }
    let tape = Tape::on(device);
    let mut values: Vec<Tensor> = Vec::with_capacity(graph.n_nodes());
    for node in graph.nodes() {
        let args: Vec<&Tensor> = node.args.iter().map(|arg| &values[arg.index()]).collect();
        let value = match &node.op {
            Op::Parameter(_) => tape.parameter(node.ty.clone()),
            op => {
                let at = node.at.unwrap_or(Location::caller());
                // The formula belongs to the line of the op.
                let _method = method_at(op.name(), at);
                op.composed(&args).unwrap_or_else(|| tape.record(op.clone(), &args, at))
            }
        };
        values.push(value);
    }
    if let Some(error) = tape.error() {
        return Err(Error::clone(&error));
    }
    let id = |id: &ValueId| Some(values[id.index()].as_traced()?.id);
    let outputs: Option<Vec<ValueId>> = graph.outputs().iter().map(id).collect();
    let mut made = tape.finish().graph;
    made.set_outputs(outputs.ok_or_else(|| Error::Internal("a value of a formula is not on its tape".into()))?);
    Ok(Cow::Owned(made))
}
