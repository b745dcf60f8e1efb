//! An entry as the data of its drawings: values, groups, the arena over time, and how long launches took.

use std::collections::{BTreeSet, HashMap, HashSet};

use retape_kernels::{Place, Plan, Step, Work};

use super::json::Json;
use crate::accelerate::Entry;
use crate::graph::{Graph, Node};
use crate::observe::profile::LaunchTotal;
use crate::ops::Lowering;
use crate::plan::{Layout, StepValues};
use crate::types::ValueId;

/// Texts longer than this are cut.
const MAX_TEXT: usize = 1 << 16;
/// Kernels longer than this are cut.
const MAX_KERNEL: usize = 1 << 13;

/// All that the drawings of an entry show.
pub(super) fn detail(entry: &Entry, calls: u64, times: Option<&[LaunchTotal]>) -> Json {
    let compiled = &entry.compiled;
    let (graph, plan) = (&compiled.graph, compiled.code.plan());
    let members = compiled.layout.members(graph);
    let steps = plan.steps.iter().zip(&compiled.layout.steps).zip(&members);
    let steps = steps.map(|((own, values), members)| step(graph, own, values, members));
    let launches = compiled.code.launch_steps().into_iter().map(|steps| Json::list([steps.start, steps.end]));
    let times = times.map(|times| {
        let launch = |time: &LaunchTotal| {
            Json::Map(vec![("total", time.total.into()), ("min", time.min.into()), ("max", time.max.into())])
        };
        Json::Map(vec![("calls", calls.into()), ("launches", Json::List(times.iter().map(launch).collect()))])
    });
    let ids = |ids: &[ValueId]| Json::list(ids.iter().map(|id| id.0));
    Json::Map(vec![
        ("values", Json::List(graph.nodes().iter().map(value).collect())),
        ("params", ids(graph.params())),
        ("outputs", outputs(graph, plan)),
        ("steps", Json::List(steps.collect())),
        ("launches", Json::List(launches.collect())),
        ("arena", arena(graph, plan, &compiled.layout)),
        ("profile", times.into()),
        ("graph_text", cut(graph.to_string(), MAX_TEXT)),
        ("plan_text", cut(plan.to_string(), MAX_TEXT)),
    ])
}

fn value(node: &Node) -> Json {
    Json::Map(vec![
        ("op", node.op.name().into()),
        ("args", Json::list(node.args.iter().map(|arg| arg.0))),
        ("attributes", Json::text(node.op.attributes())),
        ("ty", Json::text(&node.ty)),
        ("bytes", n_bytes(node).into()),
        ("at", node.at.map(|at| at.to_string()).into()),
    ])
}

fn n_bytes(node: &Node) -> usize {
    node.ty.n_elements() * node.ty.dtype.size()
}

/// A text that ends with a remark if it is long.
fn cut(text: String, most: usize) -> Json {
    match text.char_indices().nth(most) {
        Some((end, _)) => Json::text(format_args!("{}\n.. and {} bytes more", &text[..end], text.len() - end)),
        None => text.into(),
    }
}

fn step(graph: &Graph, step: &Step, values: &StepValues, members: &BTreeSet<ValueId>) -> Json {
    let n_read = step.work.signature().1.min(values.operands.len());
    let (reads, writes) = values.operands.split_at(n_read);
    // A copy to a result makes no value.
    let writes = if values.roots.is_empty() { &[] } else { writes };
    let lines: BTreeSet<String> = members.iter().filter_map(|&id| graph.node(id).at).map(ToString::to_string).collect();
    let text = match &step.work {
        Work::Kernel(kernel) => kernel.to_string(),
        Work::Library(library) => library.to_string(),
    };
    let ids = |ids: &[ValueId]| Json::list(ids.iter().map(|id| id.0));
    Json::Map(vec![
        ("label", step.label.as_str().into()),
        ("kind", kind(graph, &step.work, members).into()),
        ("reads", ids(&distinct(reads))),
        ("writes", ids(writes)),
        ("members", Json::list(members.iter().map(|id| id.0))),
        ("lines", Json::list(lines)),
        ("text", cut(text, MAX_KERNEL)),
    ])
}

fn kind(graph: &Graph, work: &Work, members: &BTreeSet<ValueId>) -> &'static str {
    let lowering = |id: &ValueId| {
        let node = graph.node(*id);
        let args: Vec<_> = node.args.iter().map(|&arg| graph.ty(arg)).collect();
        node.op.lower(&args, &node.ty)
    };
    match work {
        Work::Library(_) => "library",
        Work::Kernel(_) if members.iter().any(|id| matches!(lowering(id), Lowering::Reduce { .. })) => "reduction",
        Work::Kernel(_) if members.iter().all(|id| matches!(lowering(id), Lowering::Movement(_))) => "movement",
        Work::Kernel(_) => "pointwise",
    }
}

/// The results, each with the step that writes it.
fn outputs(graph: &Graph, plan: &Plan) -> Json {
    let writer = |output: usize| {
        plan.steps.iter().rposition(|step| {
            let n_read = step.work.signature().1;
            step.operands.iter().skip(n_read).any(|operand| operand.place == Place::Output(output as u32))
        })
    };
    let output = |(n, id): (usize, &ValueId)| Json::Map(vec![("value", id.0.into()), ("step", writer(n).into())]);
    Json::List(graph.outputs().iter().enumerate().map(output).collect())
}

fn distinct(ids: &[ValueId]) -> Vec<ValueId> {
    let mut known = HashSet::new();
    ids.iter().copied().filter(|&id| known.insert(id)).collect()
}

/// Which value lies where in the arena, from the step that writes it to the last one that reads it.
fn arena(graph: &Graph, plan: &Plan, layout: &Layout) -> Json {
    let mut last_read: HashMap<ValueId, usize> = HashMap::new();
    for (n, (step, values)) in plan.steps.iter().zip(&layout.steps).enumerate() {
        let reads = values.operands.iter().take(step.work.signature().1);
        last_read.extend(reads.map(|&value| (value, n)));
    }
    let mut rectangles = vec![];
    for (n, (step, values)) in plan.steps.iter().zip(&layout.steps).enumerate() {
        let n_read = step.work.signature().1;
        let operands = || step.operands.iter().zip(&values.operands);
        for (operand, &value) in operands().skip(n_read) {
            let Place::Slot { offset } = operand.place else { continue };
            let taken = |&(read, id): &(&retape_kernels::Operand, &ValueId)| {
                read.place == operand.place && last_read.get(id) == Some(&n)
            };
            let over = operands().take(n_read).find(taken).map(|(_, id)| id.0);
            rectangles.push(Json::Map(vec![
                ("value", value.0.into()),
                ("offset", offset.into()),
                ("len", n_bytes(graph.node(value)).into()),
                ("from", n.into()),
                ("to", last_read.get(&value).copied().unwrap_or(n).into()),
                ("over", over.into()),
            ]));
        }
    }
    Json::Map(vec![("bytes", plan.arena_bytes.into()), ("rects", Json::List(rectangles))])
}
