//! One node for equal applications.
//!
//! Guarantees that afterwards no two nodes have the same op and arguments, the order of arguments aside where it
//! does not matter. One sweep with a table of what is known, and a rebuild if nodes are equal, of which the first stays.

use std::hash::{Hash, Hasher};

use rustc_hash::FxHasher;

use super::Rewritten;
use super::rewrite::Rule;
use crate::graph::{Args, Graph, Node};
use crate::ops::Op;
use crate::types::ValueId;

pub(super) fn run(graph: &Graph, _: &'static [Rule], spare: &mut Graph) -> Option<Rewritten> {
    let mut known = KnownApplications::of(graph);
    for (id, _) in graph.iter() {
        known.see(id);
    }
    let KnownApplications { kept, renamed, .. } = known;
    // Most graphs that come here a second time have no equal nodes.
    if kept.len() == graph.n_nodes() {
        return None;
    }
    let mut merged = std::mem::take(spare);
    merged.reserve(kept.len());
    for node in kept.iter().map(|&(id, _)| graph.node(id)) {
        let args = node.args.iter().map(|arg| renamed[arg.index()]).collect();
        merged.push(Node { args, ..node.clone() });
    }
    merged.set_outputs(graph.outputs().iter().map(|id| renamed[id.index()]).collect());
    Some(Rewritten { graph: merged, renaming: renamed.into_iter().map(Some).collect() })
}

/// The nodes of a graph that stay, as a hash table of their positions: of a long program, the table is in a cache and its
/// nodes are not.
struct KnownApplications<'g> {
    graph: &'g Graph,
    /// The nodes that stay, with the hashes of their applications.
    kept: Vec<(ValueId, u64)>,
    /// Of each node so far, the new name.
    renamed: Vec<ValueId>,
    /// Positions in `kept` from 1 on, and 0 where there is none: at the low bits of the hash, or at the next free place.
    /// At least half of the places are free.
    places: Vec<u32>,
}

impl<'g> KnownApplications<'g> {
    fn of(graph: &'g Graph) -> KnownApplications<'g> {
        let n = graph.n_nodes();
        let places = vec![0; (2 * n).next_power_of_two()];
        KnownApplications { graph, kept: Vec::with_capacity(n), renamed: Vec::with_capacity(n), places }
    }

    /// The new names of the arguments of a node, in an order that equal applications have.
    fn args(&self, node: &Node) -> Args {
        let mut args = node.args.iter().map(|arg| self.renamed[arg.index()]).collect::<Args>();
        sort_arguments(&node.op, &mut args);
        args
    }

    /// Names the next node: as an equal one that stays, or as one that stays itself.
    fn see(&mut self, id: ValueId) {
        let node = self.graph.node(id);
        let args = self.args(node);
        let mut hasher = FxHasher::default();
        (&node.op, &args[..]).hash(&mut hasher);
        let hash = hasher.finish();
        let mask = self.places.len() - 1;
        let mut place = hash as usize & mask;
        while let Some(position) = self.places[place].checked_sub(1) {
            let (other, other_hash) = self.kept[position as usize];
            let other = self.graph.node(other);
            if hash == other_hash && node.op == other.op && args == self.args(other) {
                self.renamed.push(ValueId(position));
                return;
            }
            place = (place + 1) & mask;
        }
        self.renamed.push(ValueId(self.kept.len() as u32));
        self.kept.push((id, hash));
        self.places[place] = self.kept.len() as u32;
    }
}

/// Sorts the arguments of an op if their order does not matter.
pub(crate) fn sort_arguments<I: Ord>(op: &Op, args: &mut [I]) {
    if op.facts().commutes {
        args.sort_unstable();
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;

    #[test]
    fn nodes_are_equal_to_the_first_that_a_search_finds() {
        let mut state = 7_u64;
        let mut draw = |n: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % n
        };
        for n in [0, 1, 2, 3, 7, 8, 9, 200, 200, 200] {
            let mut text = "graph (%0: f32[2], %1: f32[2]) {\n".to_owned();
            for id in 2..n + 2 {
                let op = ["add", "sub", "mul"][draw(3)];
                // Few arguments, so that many nodes are equal.
                let (a, b) = (draw(id.min(6)), draw(id.min(6)));
                let _ = writeln!(text, "  %{id} = {op} %{a}, %{b} : f32[2]");
            }
            let _ = writeln!(text, "  return %{}\n}}", n + 1);
            let graph: Graph = text.parse().unwrap_or_else(|e| panic!("{e} in\n{text}"));
            let (mut kept, mut renamed): (Vec<(&Op, Args)>, Vec<ValueId>) = (vec![], vec![]);
            for node in graph.nodes() {
                let mut args: Args = node.args.iter().map(|arg| renamed[arg.index()]).collect();
                sort_arguments(&node.op, &mut args);
                let found = kept.iter().position(|known| *known == (&node.op, args.clone()));
                renamed.push(ValueId(found.unwrap_or(kept.len()) as u32));
                if found.is_none() {
                    kept.push((&node.op, args));
                }
            }
            match run(&graph, &[], &mut Graph::default()) {
                Some(merged) => {
                    assert_eq!(merged.graph.n_nodes(), kept.len());
                    assert!(merged.renaming.iter().copied().eq(renamed.into_iter().map(Some)));
                }
                None => assert_eq!(kept.len(), graph.n_nodes()),
            }
        }
    }
}
