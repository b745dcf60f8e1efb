//! A function at one moment, down to the steps of its compiled graphs, as plain data; see
//! [`Accelerated::inspect`](crate::Accelerated::inspect).
//!
//! With the feature `serde` all of it is [`serde::Serialize`]: structs are maps with the names of their fields, times are
//! seconds with names that end in `_seconds`, lines of the program are texts.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::time::Duration;

use retape_kernels::{Operand, Place, Plan, Step as PlanStep, Work};
use retape_runtime::{Device, Gpu};

use super::explain::Miss;
pub use super::history::Milestone;
use super::profile::{LaunchTotal, steady_mean};
use super::stats::Stats;
use crate::compile::Compiled;
use crate::error::Caller;
use crate::graph::{Graph, Node};
use crate::ops::Lowering;
use crate::plan::{Joined, Layout, StepValues};
use crate::types::ValueId;

/// Texts longer than this are cut.
const MAX_TEXT: usize = 1 << 16;
/// Kernels longer than this are cut.
const MAX_KERNEL: usize = 1 << 13;

/// A function and its cache at one moment.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Inspection {
    /// The line that accelerated the function.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serialise::text"))]
    pub made_at: Caller,
    /// How long ago that was.
    #[cfg_attr(feature = "serde", serde(rename = "age_seconds", serialize_with = "crate::serialise::seconds"))]
    pub age: Duration,
    /// Where its calls run.
    pub machine: Machine,
    /// Its counters and its entries, the most recently used first.
    pub stats: Stats,
    /// The last misses, the oldest first; see [`Accelerated::explain`](crate::Accelerated::explain).
    pub misses: Vec<Miss>,
    /// How the counts of misses and hits grew since the first call.
    pub history: Vec<Milestone>,
    /// The insides of the first entries, as many as were asked for.
    pub details: Vec<Detail>,
}

/// Where calls run.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Machine {
    /// The processor's model, if the system tells it.
    pub processor: Option<&'static str>,
    /// Its architecture, such as `x86_64`.
    pub architecture: &'static str,
    /// The operating system.
    pub system: &'static str,
    /// Threads that calls use.
    pub threads: usize,
    /// The instruction set of library kernels.
    pub instruction_set: &'static str,
    /// The GPUs that entries have code for, such as `cuda:0` with its model.
    pub gpus: Vec<String>,
}

/// The inside of an entry: the optimised graph, and the plan that runs it.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Detail {
    /// The values of the graph, by their ids.
    pub values: Vec<Value>,
    /// The arguments, the tensors among a call's arguments first and then captured ones.
    pub params: Vec<ValueId>,
    /// The results.
    pub outputs: Vec<Output>,
    /// The steps of the plan, in order.
    pub steps: Vec<Step>,
    /// The calls of machine code that run the steps.
    pub launches: Vec<Launch>,
    /// The memory of a running call for values between steps.
    pub arena: Arena,
    /// The text of the graph, cut if it is long.
    pub graph_text: String,
    /// The text of the plan, cut if it is long.
    pub plan_text: String,
}

/// A value of a graph.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Value {
    /// The op that makes it.
    pub op: &'static str,
    /// The arguments of the op.
    pub args: Vec<ValueId>,
    /// The attributes of the op as text.
    pub attributes: String,
    /// Dtype and shape, such as `f32[2, 3]`.
    #[cfg_attr(feature = "serde", serde(rename = "type"))]
    pub ty: String,
    /// Bytes of a dense tensor of this type.
    pub bytes: usize,
    /// The line that recorded the op.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serialise::text_if_any"))]
    pub at: Option<Caller>,
}

/// A result of a graph.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Output {
    /// The value.
    pub value: ValueId,
    /// The step that writes it; none if it is an argument.
    pub step: Option<usize>,
}

/// A step of a plan: ops that became one loop nest, or a call of a library kernel.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Step {
    /// The ops, such as `mul+reduce_sum`.
    pub label: String,
    /// The kind of its code.
    pub kind: StepKind,
    /// The stored values that it reads, each once.
    pub reads: Vec<ValueId>,
    /// The values that it stores.
    pub writes: Vec<ValueId>,
    /// The values that it computes, stored or not.
    pub members: Vec<ValueId>,
    /// The lines that recorded these.
    pub lines: Vec<String>,
    /// Its scalar program or its library kernel as text, cut if it is long.
    pub text: String,
}

/// The kind of a step's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum StepKind {
    /// A library kernel: a matrix product, a convolution, a sort.
    Library,
    /// A loop that reduces axes.
    Reduction,
    /// One fused loop.
    Pointwise,
    /// A copy in another layout.
    Movement,
}

/// A call of machine code, and the time of those of its runs that were measured while profiling was on.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Launch {
    /// The steps that it runs. Launches of one large step have the same.
    pub steps: Range<usize>,
    /// How often it was measured.
    pub count: u64,
    /// All measured runs together.
    #[cfg_attr(feature = "serde", serde(rename = "total_seconds", serialize_with = "crate::serialise::seconds"))]
    pub total: Duration,
    /// The mean of all but the first, which may also wait for the system to give memory; of that one, if there is no
    /// other.
    #[cfg_attr(feature = "serde", serde(rename = "mean_seconds", serialize_with = "crate::serialise::seconds"))]
    pub mean: Duration,
    /// The shortest.
    #[cfg_attr(feature = "serde", serde(rename = "min_seconds", serialize_with = "crate::serialise::seconds"))]
    pub min: Duration,
    /// The longest.
    #[cfg_attr(feature = "serde", serde(rename = "max_seconds", serialize_with = "crate::serialise::seconds"))]
    pub max: Duration,
}

/// The memory of a running call for values between steps.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Arena {
    /// Its bytes, without the scratch of long reductions.
    pub bytes: usize,
    /// The values that lie in it, in the order in which they are written.
    pub allocations: Vec<Allocation>,
}

/// A value in the arena, from the step that writes it to the last one that reads it.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Allocation {
    /// The value.
    pub value: ValueId,
    /// Its first byte.
    pub offset: usize,
    /// Its number of bytes.
    pub len: usize,
    /// The step that writes it, or the first of the parts that it is joined of.
    pub first: usize,
    /// The last step that reads it, or one of these parts; the same if none does.
    pub last: usize,
    /// The value whose bytes it takes over, which dies in the same step.
    pub over: Option<ValueId>,
}

impl Machine {
    /// The machine, with the GPUs among some devices.
    pub(crate) fn with(devices: impl Iterator<Item = Device>) -> Machine {
        let ordinals: BTreeSet<u32> = devices
            .filter_map(|device| match device {
                Device::Cuda(ordinal) => Some(ordinal),
                _ => None,
            })
            .collect();
        // Without its driver a GPU is still known by its number.
        let name = |n: u32| {
            let model = Gpu::open(n).map(|gpu| format!(" {}", gpu.name())).unwrap_or_default();
            format!("{}{model}", Device::Cuda(n))
        };
        Machine {
            processor: retape_runtime::processor_model(),
            architecture: std::env::consts::ARCH,
            system: std::env::consts::OS,
            threads: retape_runtime::n_threads(),
            instruction_set: retape_kernels::library::instruction_set(),
            gpus: ordinals.into_iter().map(name).collect(),
        }
    }
}

impl Detail {
    /// The inside of compiled code, with the number of its measured calls and the times of its launches in them.
    pub(crate) fn of(compiled: &Compiled, (count, times): (u64, Vec<LaunchTotal>)) -> Detail {
        let (graph, plan) = (&compiled.graph, compiled.code.plan());
        let members = compiled.layout.members(graph);
        let steps = plan.steps.iter().zip(&compiled.layout.steps).zip(members);
        let mut joined: HashMap<usize, Vec<&Joined>> = HashMap::new();
        compiled.layout.joined.iter().for_each(|(made, join)| joined.entry(*made).or_default().push(join));
        let mut times = times.into_iter();
        let mut launch = |steps| {
            let LaunchTotal { total, first, min, max } = times.next().unwrap_or_default();
            let mean = Duration::from_secs_f64(steady_mean([total, first], count));
            Launch { steps, count, total, mean, min, max }
        };
        Detail {
            values: graph.nodes().iter().map(Value::of).collect(),
            params: graph.params().to_vec(),
            outputs: outputs(graph, plan),
            steps: steps
                .enumerate()
                .map(|(n, ((own, values), members))| {
                    Step::of(graph, own, values, members, joined.get(&n).map_or(&[], Vec::as_slice))
                })
                .collect(),
            launches: compiled.code.launch_steps().into_iter().map(&mut launch).collect(),
            arena: arena(graph, plan, &compiled.layout),
            graph_text: cut(graph.to_string(), MAX_TEXT),
            plan_text: cut(plan.to_string(), MAX_TEXT),
        }
    }
}

impl Value {
    fn of(node: &Node) -> Value {
        Value {
            op: node.op.name(),
            args: node.args.to_vec(),
            attributes: node.op.attributes().to_string(),
            ty: node.ty.to_string(),
            bytes: n_bytes(node),
            at: node.at,
        }
    }
}

fn n_bytes(node: &Node) -> usize {
    node.ty.n_elements() * node.ty.dtype.size()
}

/// A text that ends with a remark if it is long.
fn cut(text: String, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}\n.. and {} bytes more", &text[..end], text.len() - end),
        None => text,
    }
}

impl Step {
    /// A step of a plan, which finishes some joined values: their other parts lie beside what it writes.
    fn of(graph: &Graph, step: &PlanStep, values: &StepValues, members: BTreeSet<ValueId>, joined: &[&Joined]) -> Step {
        let n_read = step.work.signature().1.min(values.operands.len());
        let (reads, writes) = values.operands.split_at(n_read);
        let others = joined.iter().flat_map(|join| &join.parts).filter(|part| !writes.contains(part));
        let reads: Vec<ValueId> = reads.iter().chain(others).copied().collect();
        let wholes = || joined.iter().map(|join| join.whole);
        let computed = members.iter().copied().filter(|&id| wholes().all(|whole| whole != id)).collect();
        // A copy to a result makes no value.
        let writes = if values.roots.is_empty() { &[] } else { writes };
        let lines = members.iter().filter_map(|&id| graph.node(id).at).map(ToString::to_string);
        Step {
            label: step.label.clone(),
            kind: kind(graph, &step.work, &computed),
            reads: distinct(&reads),
            writes: writes.iter().copied().chain(wholes()).collect(),
            lines: lines.collect::<BTreeSet<_>>().into_iter().collect(),
            members: members.into_iter().collect(),
            text: cut(step.work.to_string(), MAX_KERNEL),
        }
    }
}

fn kind(graph: &Graph, work: &Work, members: &BTreeSet<ValueId>) -> StepKind {
    let lowering = |id: &ValueId| {
        let node = graph.node(*id);
        let args: Vec<_> = node.args.iter().map(|&arg| graph.ty(arg)).collect();
        node.op.lower(&args, &node.ty)
    };
    match work {
        Work::Library { .. } => StepKind::Library,
        Work::Kernel(_) if members.iter().any(|id| matches!(lowering(id), Lowering::Reduce { .. })) => {
            StepKind::Reduction
        }
        Work::Kernel(_) if members.iter().all(|id| matches!(lowering(id), Lowering::Movement(_))) => StepKind::Movement,
        Work::Kernel(_) => StepKind::Pointwise,
    }
}

/// The results, each with the step that writes it.
fn outputs(graph: &Graph, plan: &Plan) -> Vec<Output> {
    let writer = |output: usize| {
        plan.steps.iter().rposition(|step| {
            let n_read = step.work.signature().1;
            let mut results = step.operands.iter().take(step.work.n_meaningful()).skip(n_read);
            results.any(|operand| operand.place == Place::Output(output as u32))
        })
    };
    graph.outputs().iter().enumerate().map(|(n, &value)| Output { value, step: writer(n) }).collect()
}

fn distinct(ids: &[ValueId]) -> Vec<ValueId> {
    let mut known = HashSet::new();
    ids.iter().copied().filter(|&id| known.insert(id)).collect()
}

/// Which value lies where in the arena, from the step that writes it to the last one that reads it.
fn arena(graph: &Graph, plan: &Plan, layout: &Layout) -> Arena {
    let mut last_read: HashMap<ValueId, usize> = HashMap::new();
    for (n, (step, values)) in plan.steps.iter().zip(&layout.steps).enumerate() {
        let reads = values.operands.iter().take(step.work.signature().1);
        last_read.extend(reads.map(|&value| (value, n)));
    }
    // A joined value has the bytes of its parts, from the first one on that is written.
    let mut parts: HashMap<ValueId, (ValueId, usize)> = HashMap::new();
    for (_, Joined { whole, parts: its }) in &layout.joined {
        let mut before = 0;
        for &part in its {
            parts.insert(part, (*whole, before));
            before += n_bytes(graph.node(part));
            if let Some(last) = last_read.get(&part).copied() {
                last_read.entry(*whole).and_modify(|found| *found = last.max(*found)).or_insert(last);
            }
        }
    }
    let mut begun = HashSet::new();
    let mut allocations = vec![];
    for (n, (step, values)) in plan.steps.iter().zip(&layout.steps).enumerate() {
        let n_read = step.work.signature().1;
        let operands = || step.operands.iter().zip(&values.operands);
        for (operand, &written) in operands().skip(n_read) {
            let Place::Slot { offset } = operand.place else { continue };
            let (value, before) = parts.get(&written).copied().unwrap_or((written, 0));
            if value != written && !begun.insert(value) {
                continue;
            }
            let taken =
                |&(read, id): &(&Operand, &ValueId)| read.place == operand.place && last_read.get(id) == Some(&n);
            let over = operands().take(n_read).find(taken).map(|(_, &id)| id);
            allocations.push(Allocation {
                value,
                offset: offset - before,
                len: n_bytes(graph.node(value)),
                first: n,
                last: last_read.get(&value).copied().unwrap_or(n),
                over,
            });
        }
    }
    Arena { bytes: plan.arena_bytes, allocations }
}
