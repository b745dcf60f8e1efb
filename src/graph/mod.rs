//! The tensor graph, which a trace records and the compiler rewrites.
//!
//! A graph is a list of nodes in dependency order. Each node applies one [`Op`] to earlier values and makes one
//! value, so a value's id is its node's position.
//!
//! Invariant: arguments have smaller ids than their node; parameters are the nodes named in `params`, in order.
//! [`verify`](Graph::verify) checks this and every type.

mod parse;
mod print;
mod verify;

use std::hash::{Hash, Hasher};

use smallvec::SmallVec;

pub use parse::ParseError;
pub use verify::VerifyError;

use crate::error::Caller;
use crate::method::Origin;
use crate::ops::Op;
use crate::types::{TensorType, ValueId};

/// The arguments of a node.
pub type Args = SmallVec<[ValueId; 3]>;

/// One op applied to earlier values.
#[derive(Clone, Debug)]
pub struct Node {
    /// The op with its attributes.
    pub op: Op,
    /// Its arguments.
    pub args: Args,
    /// The type of its value.
    pub ty: TensorType,
    /// The line of the caller's program that asked for it, if known; no part of the graph's identity.
    pub at: Option<Caller>,
    /// The method of the caller's program that recorded it, if that is known and is not the op alone; no part of the
    /// graph's identity.
    pub origin: Option<Origin>,
}

/// Nodes in dependency order, with parameters and outputs.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    nodes: Vec<Node>,
    params: Vec<ValueId>,
    outputs: Vec<ValueId>,
}

impl Graph {
    /// A graph without nodes, in the memory of this one: that of a long program goes back to the system when it is freed,
    /// and getting it again costs as much as filling it.
    pub(crate) fn emptied(mut self) -> Graph {
        self.nodes.clear();
        Graph { nodes: self.nodes, ..Graph::default() }
    }

    /// The graph without room for more nodes.
    pub(crate) fn trimmed(mut self) -> Graph {
        self.nodes.shrink_to_fit();
        self
    }

    /// Makes room for so many nodes in all.
    pub(crate) fn reserve(&mut self, n_nodes: usize) {
        self.nodes.reserve(n_nodes.saturating_sub(self.nodes.len()));
    }

    /// Appends a node and returns its value. Nothing is checked here: [`verify`](Graph::verify) does that, and all that
    /// plans, rewrites or runs a graph asks it first.
    pub fn push(&mut self, node: Node) -> ValueId {
        let id = ValueId(u32::try_from(self.nodes.len()).expect("a graph has fewer than 2^32 nodes"));
        if matches!(node.op, Op::Parameter(_)) {
            self.params.push(id);
        }
        self.nodes.push(node);
        id
    }

    /// The nodes in order; the position of a node is the id of its value.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The nodes with their ids.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (ValueId, &Node)> + ExactSizeIterator {
        self.nodes.iter().enumerate().map(|(index, node)| (ValueId(index as u32), node))
    }

    /// The node that makes `id`.
    ///
    /// # Panics
    ///
    /// Panics if there is no such value.
    pub fn node(&self, id: ValueId) -> &Node {
        &self.nodes[id.index()]
    }

    /// The type of `id`.
    ///
    /// # Panics
    ///
    /// Panics if there is no such value.
    pub fn ty(&self, id: ValueId) -> &TensorType {
        &self.nodes[id.index()].ty
    }

    /// The number of nodes.
    pub fn n_nodes(&self) -> usize {
        self.nodes.len()
    }

    /// The parameters, in order.
    pub fn params(&self) -> &[ValueId] {
        &self.params
    }

    /// The outputs, in order.
    pub fn outputs(&self) -> &[ValueId] {
        &self.outputs
    }

    /// Names the outputs.
    pub fn set_outputs(&mut self, outputs: Vec<ValueId>) {
        self.outputs = outputs;
    }

    /// How many nodes and outputs use each value; uses of what does not exist are not counted.
    pub fn use_counts(&self) -> Vec<u32> {
        let mut uses = vec![0; self.nodes.len()];
        let args = self.nodes.iter().flat_map(|node| node.args.iter());
        for id in args.chain(&self.outputs) {
            uses.get_mut(id.index()).into_iter().for_each(|n| *n += 1);
        }
        uses
    }

    /// The same graph with the parameters at the front, in order, as the text form has them.
    pub fn with_parameters_first(&self) -> Graph {
        self.clone().parameters_first()
    }

    /// As [`with_parameters_first`](Graph::with_parameters_first), in the memory of the graph.
    pub(crate) fn parameters_first(mut self) -> Graph {
        if self.params.iter().zip(0..).all(|(id, first)| *id == ValueId(first)) {
            return self;
        }
        let is_parameter = |node: &Node| matches!(node.op, Op::Parameter(_));
        let (mut parameters, mut others) = (0.., self.params.len() as u32..);
        let mut next = |node: &Node| if is_parameter(node) { parameters.next() } else { others.next() }.map(ValueId);
        let renamed: Vec<Option<ValueId>> = self.nodes.iter().map(&mut next).collect();
        let parameters: Vec<Node> = self.nodes.extract_if(.., |node| is_parameter(node)).collect();
        self.nodes.splice(..0, parameters);
        let args = self.nodes.iter_mut().flat_map(|node| &mut node.args);
        args.chain(&mut self.params).chain(&mut self.outputs).for_each(|id| *id = known(&renamed, *id));
        self
    }

    /// The graph without the nodes that no output needs.
    pub fn without_dead_nodes(&self) -> Graph {
        self.live().0
    }

    /// The graph without the nodes that no output needs, and the new id of each value.
    pub(crate) fn live(&self) -> (Graph, Vec<Option<ValueId>>) {
        self.live_in(Graph::default())
    }

    /// As [`live`](Graph::live), in the memory of an empty graph.
    pub(crate) fn live_in(&self, empty: Graph) -> (Graph, Vec<Option<ValueId>>) {
        let live = self.needed();
        self.renamed(|id| live[id.index()], empty)
    }

    /// Whether an output needs it, for each node.
    pub(crate) fn needed(&self) -> Vec<bool> {
        let mut live = vec![false; self.nodes.len()];
        let mark = |live: &mut [bool], id: &ValueId| live.get_mut(id.index()).into_iter().for_each(|live| *live = true);
        self.outputs.iter().for_each(|id| mark(&mut live, id));
        for (id, node) in self.iter().rev() {
            if live[id.index()] {
                node.args.iter().for_each(|arg| mark(&mut live, arg));
            }
        }
        live
    }

    fn renamed(&self, keep: impl Fn(ValueId) -> bool, mut kept: Graph) -> (Graph, Vec<Option<ValueId>>) {
        kept.reserve(self.nodes.len());
        let mut renamed = vec![None; self.nodes.len()];
        for (id, node) in self.iter() {
            if keep(id) || matches!(node.op, Op::Parameter(_)) {
                let args = node.args.iter().map(|&arg| known(&renamed, arg)).collect();
                renamed[id.index()] = Some(kept.push(Node { args, ..node.clone() }));
            }
        }
        kept.outputs = self.outputs.iter().map(|&id| known(&renamed, id)).collect();
        (kept, renamed)
    }
}

/// The new name of a value; one that no graph has, and that does not verify, if it has none.
fn known(renamed: &[Option<ValueId>], id: ValueId) -> ValueId {
    renamed.get(id.index()).copied().flatten().unwrap_or(ValueId(u32::MAX))
}

/// Graphs are equal if their nodes, parameters and outputs are; source lines do not count.
impl PartialEq for Graph {
    fn eq(&self, other: &Graph) -> bool {
        let same = |a: &Node, b: &Node| a.op == b.op && a.args == b.args && a.ty == b.ty;
        self.outputs == other.outputs
            && self.nodes.len() == other.nodes.len()
            && self.nodes.iter().zip(&other.nodes).all(|(a, b)| same(a, b))
    }
}

impl Eq for Graph {}

impl Hash for Graph {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nodes.iter().for_each(|node| (&node.op, &node.args, &node.ty).hash(state));
        (self.nodes.len(), &self.outputs).hash(state);
    }
}
