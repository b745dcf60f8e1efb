//! Cutting a graph of values and gradients into a forward and a backward graph.
//!
//! Guarantees that the forward graph computes the results just as they are computed without a gradient: it has the
//! nodes that the results need and no more, and what becomes a residual has memory anyway or is part of no reduction's
//! kernel, whose order of additions would depend on it.
//!
//! The idea: the values that the backward graph needs of the forward one are a cut between the two. A value that is
//! kept costs its bytes, to be read back, and as much again if it has to be written first; a value that is computed
//! again costs its arithmetic. In one unit, an addition per byte, the best choice is a minimum cut of a network in
//! which each value is an edge: cut it to keep the value, or pay for an edge from the source to compute it on the
//! sink's side. So cheap formulas are computed again, and transcendental functions rarely are. Arguments and captured
//! tensors are at hand for nothing. Matrix products, convolutions, reductions and all else that is a kernel of its own
//! are never computed twice. Of equal cuts the one nearest to the backward graph is taken, which computes least again.
//! Chains of recomputed values are short: the planner gives memory to values whose formula would grow beyond its limit,
//! and there the cut finds a value to keep.

use std::collections::HashMap;
use std::ops::Range;

use super::cut::{Network, UNCUTTABLE};
use crate::graph::{Args, Graph, Node};
use crate::ops::{Op, Parameter};
use crate::plan::{self, ComputeCost};
use crate::types::ValueId;

/// The cost of keeping a value, besides its bytes: a buffer of its own.
const BUFFER: u64 = 256;

/// A forward and a backward graph.
#[derive(Debug)]
pub(crate) struct Partition {
    /// From the parameters that are no cotangents to the results and the residuals.
    pub(crate) forward: Graph,
    /// From what [`reads`](Partition::reads) says to the gradients.
    pub(crate) backward: Graph,
    /// The outputs of the forward graph that the backward one reads. Some may be results too.
    pub(crate) kept: Vec<usize>,
    /// The source of each parameter of the backward graph.
    pub(crate) reads: Vec<BackwardInput>,
}

/// A source of a parameter of the backward graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackwardInput {
    /// A parameter of the whole graph.
    Parameter(usize),
    /// A kept value, by its position among them.
    Kept(usize),
}

/// Cuts a graph whose first `n_results` outputs are results and whose others are gradients; the parameters in
/// `cotangents` reach gradients only.
pub(crate) fn partition(joint: &Graph, n_results: usize, cotangents: &Range<usize>) -> Partition {
    let (results, gradients) = joint.outputs().split_at(n_results);
    let is_late = late(joint, cotangents);
    let is_kept = kept(joint, results, gradients, &is_late);
    let begins = |id: ValueId| is_kept[id.index()] || matches!(joint.node(id).op, Op::Parameter(_));
    let needed = ancestors(joint, gradients, begins);
    let early = (0..joint.params().len()).filter(|position| !cotangents.contains(position));
    let early: Vec<ValueId> = early.map(|position| joint.params()[position]).collect();
    let mut outputs = results.to_vec();
    let mut places: HashMap<ValueId, usize> = HashMap::new();
    for (place, &output) in outputs.iter().enumerate() {
        places.entry(output).or_insert(place);
    }
    let (mut kept, mut reads, mut inputs) = (vec![], vec![], vec![]);
    for (id, node) in joint.iter().filter(|(id, _)| needed[id.index()] && begins(*id)) {
        inputs.push(id);
        reads.push(match &node.op {
            Op::Parameter(parameter) => BackwardInput::Parameter(parameter.index),
            _ => {
                let place = places.entry(id).or_insert_with(|| {
                    outputs.push(id);
                    outputs.len() - 1
                });
                kept.push(*place);
                BackwardInput::Kept(kept.len() - 1)
            }
        });
    }
    let forward = extract(joint, &early, &outputs);
    Partition { forward, backward: extract(joint, &inputs, gradients), kept, reads }
}

/// The values that depend on a cotangent.
fn late(joint: &Graph, cotangents: &Range<usize>) -> Vec<bool> {
    let mut late = vec![false; joint.n_nodes()];
    for (id, node) in joint.iter() {
        late[id.index()] = match &node.op {
            Op::Parameter(parameter) => cotangents.contains(&parameter.index),
            _ => node.args.iter().any(|arg| late[arg.index()]),
        };
    }
    late
}

/// The values that computing `targets` needs, which include these, from values where it begins.
fn ancestors(graph: &Graph, targets: &[ValueId], begins: impl Fn(ValueId) -> bool) -> Vec<bool> {
    let mut needed = vec![false; graph.n_nodes()];
    targets.iter().for_each(|id| needed[id.index()] = true);
    for (id, node) in graph.iter().rev() {
        if needed[id.index()] && !begins(id) {
            node.args.iter().for_each(|arg| needed[arg.index()] = true);
        }
    }
    needed
}

/// The values to keep: the minimum cut.
fn kept(joint: &Graph, results: &[ValueId], gradients: &[ValueId], is_late: &[bool]) -> Vec<bool> {
    let early = |id: ValueId| !is_late[id.index()] && !matches!(joint.node(id).op, Op::Parameter(_));
    let needed = ancestors(joint, gradients, |id| matches!(joint.node(id).op, Op::Parameter(_)));
    let in_forward = ancestors(joint, results, |_| false);
    let memory = memory(joint, results);
    let compute_costs = plan::compute_costs(joint);
    // A value is the edge from `into(value)` to `out(value)`.
    let (into, out) = (|id: ValueId| 2 + 2 * id.index(), |id: ValueId| 3 + 2 * id.index());
    let (source, sink) = (0, 1);
    let mut network = Network::new(2 + 2 * joint.n_nodes());
    for (id, node) in joint.iter().filter(|(id, _)| needed[id.index()]) {
        let end = if early(id) { into(id) } else { sink };
        for &arg in node.args.iter().filter(|&&arg| early(arg)) {
            network.edge(out(arg), end, UNCUTTABLE);
        }
        if early(id) {
            let n_elements = joint.ty(id).n_elements() as u64;
            let bytes = n_elements * joint.ty(id).dtype.size() as u64;
            let compute_cost = compute_costs[id.index()].0;
            let keeping = match (memory[id.index()], compute_cost) {
                (Residency::Written, _) => bytes + BUFFER,
                (Residency::Writable, ComputeCost::PerElement(_)) => 2 * bytes + BUFFER,
                (Residency::Writable | Residency::None, _) => UNCUTTABLE,
            };
            network.edge(into(id), out(id), keeping);
            let again = match compute_cost {
                // A value that the results do not need is computed once, in the forward or in the backward graph.
                _ if !in_forward[id.index()] => 0,
                ComputeCost::Nothing => 0,
                ComputeCost::PerElement(cost) => u64::from(cost) * n_elements,
                ComputeCost::Reduction | ComputeCost::Library => UNCUTTABLE,
            };
            network.edge(source, into(id), again);
        }
    }
    for &gradient in gradients.iter().filter(|&&id| early(id)) {
        network.edge(out(gradient), sink, UNCUTTABLE);
    }
    let in_backward = network.cut(source, sink);
    joint.iter().map(|(id, _)| early(id) && !in_backward[into(id)] && in_backward[out(id)]).collect()
}

/// The place of a value in a plan of the results alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Residency {
    /// It is not computed, or it is fused into a reduction.
    None,
    /// It could be written where it is computed, and nothing else would change.
    Writable,
    /// It has memory.
    Written,
}

fn memory(joint: &Graph, results: &[ValueId]) -> Vec<Residency> {
    let (forward, renamed) = extract_named(joint, joint.params(), results);
    let compute_costs = plan::compute_costs(&forward);
    let mut in_fold = vec![false; forward.n_nodes()];
    for (id, node) in forward.iter().rev() {
        let (compute_cost, is_stored) = compute_costs[id.index()];
        let passes_on = match compute_cost {
            ComputeCost::Reduction => true,
            ComputeCost::Library => false,
            ComputeCost::Nothing | ComputeCost::PerElement(_) => in_fold[id.index()],
        };
        if passes_on {
            node.args.iter().for_each(|arg| in_fold[arg.index()] = true);
        }
        // Invariant: a value that is not computed twice can be kept.
        debug_assert!(
            is_stored || !matches!(compute_cost, ComputeCost::Reduction | ComputeCost::Library),
            "{id} has no memory"
        );
    }
    let of = |id: &ValueId| match compute_costs[id.index()].1 {
        true => Residency::Written,
        false if in_fold[id.index()] => Residency::None,
        false => Residency::Writable,
    };
    joint.iter().map(|(id, _)| renamed.get(&id).map_or(Residency::None, of)).collect()
}

/// The graph that computes `outputs` from `params`.
fn extract(graph: &Graph, params: &[ValueId], outputs: &[ValueId]) -> Graph {
    extract_named(graph, params, outputs).0
}

/// The graph that computes `outputs` from `params`, and the names of values in it.
fn extract_named(graph: &Graph, params: &[ValueId], outputs: &[ValueId]) -> (Graph, HashMap<ValueId, ValueId>) {
    let mut extracted = Graph::default();
    let mut renamed: HashMap<ValueId, ValueId> = HashMap::new();
    for (index, &id) in params.iter().enumerate() {
        let ty = graph.ty(id).clone();
        let op = Parameter { index, ty: ty.clone() }.into();
        renamed.insert(id, extracted.push(Node { op, args: Args::new(), ty, at: None, origin: None }));
    }
    let needed = ancestors(graph, outputs, |id| renamed.contains_key(&id));
    for (id, node) in graph.iter().filter(|(id, _)| needed[id.index()]) {
        if !renamed.contains_key(&id) {
            let args = node.args.iter().map(|arg| renamed[arg]).collect();
            renamed.insert(id, extracted.push(Node { args, ..node.clone() }));
        }
    }
    extracted.set_outputs(outputs.iter().map(|id| renamed[id]).collect());
    (extracted, renamed)
}
