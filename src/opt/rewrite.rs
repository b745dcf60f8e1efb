//! Local rewrites: a pass rebuilds its graph once, node by node, and asks its rules about each node on the way.
//!
//! Rules see the node's op with its arguments in the new graph, all of which have been rewritten before, and answer
//! with a value that replaces it. The nodes that a rule builds are rewritten in turn, so one rebuild reaches far; rules
//! must therefore lead somewhere, never back. Values that lost their last user stay behind for `dce`.

use retape_runtime::{Scalar, Shape};
use smallvec::SmallVec;

use super::Rewritten;
use crate::error::Caller;
use crate::graph::{Args, Graph, Node};
use crate::method::Origin;
use crate::ops::{Op, Splat};
use crate::types::{TensorType, ValueId};

/// A named local rewrite.
#[derive(Debug)]
pub(super) struct Rule {
    /// The name, under which `tests/golden/opt` has an example.
    pub(super) name: &'static str,
    /// The value that replaces a node, if the rule applies to it.
    pub(super) rewrite: fn(&mut RewriteSite<'_>) -> Option<ValueId>,
}

/// The table of rules for functions that are called as the rules are.
macro_rules! rules {
    ($($rule:ident,)*) => {
        &[$($crate::opt::rewrite::Rule { name: stringify!($rule), rewrite: $rule },)*]
    };
}

pub(super) use rules;

/// Rebuilds a graph with some rules; `None` if no rule applies anywhere.
pub(super) fn rewrite(graph: &Graph, rules: &'static [Rule], spare: &mut Graph) -> Option<Rewritten> {
    let taken = std::mem::take(spare);
    let mut rewriter = Rewriter { n_same: 0, made: None, spare: taken, rules, n_rewrites: 0, at: None, origin: None };
    let mut renamed: Vec<ValueId> = Vec::with_capacity(graph.n_nodes());
    for (id, node) in graph.iter() {
        (rewriter.at, rewriter.origin, rewriter.n_same) = (node.at, node.origin, id.index());
        let renamed_args = rewriter.made.is_some().then(|| node.args.iter().map(|arg| renamed[arg.index()]).collect());
        let args = renamed_args.as_ref().unwrap_or(&node.args);
        let value = match rewriter.rewritten(graph, &node.op, args, &node.ty) {
            Some(value) => value,
            None if rewriter.made.is_none() => id,
            None => rewriter.made(graph).push(Node { args: args.clone(), ..node.clone() }),
        };
        renamed.push(value);
    }
    if rewriter.n_rewrites == 0 {
        // A rule that gave up may have left nodes.
        *spare = rewriter.made.map_or(rewriter.spare, Graph::emptied);
        return None;
    }
    let mut rewritten = rewriter.made?;
    rewritten.set_outputs(graph.outputs().iter().map(|id| renamed[id.index()]).collect());
    Some(Rewritten { graph: rewritten, renaming: renamed.into_iter().map(Some).collect() })
}

/// The graph being built: the first nodes of the one that is rewritten until something differs, so that a pass that
/// finds nothing copies nothing.
struct Rewriter {
    /// The number of those nodes.
    n_same: usize,
    /// The graph, once it is another one.
    made: Option<Graph>,
    /// An empty graph in whose memory it is built.
    spare: Graph,
    rules: &'static [Rule],
    n_rewrites: usize,
    /// The line that asked for the node being rewritten, and so for what replaces it.
    at: Option<Caller>,
    /// Its method, likewise.
    origin: Option<Origin>,
}

impl Rewriter {
    /// The value of an application: that of the first rule that has one, else a new node.
    fn place(&mut self, source: &Graph, op: Op, args: Args, ty: TensorType) -> ValueId {
        let value = self.rewritten(source, &op, &args, &ty);
        let (at, origin) = (self.at, self.origin);
        value.unwrap_or_else(|| self.made(source).push(Node { op, args, ty, at, origin }))
    }

    /// The value of an application by the first rule that has one.
    fn rewritten(&mut self, source: &Graph, op: &Op, args: &[ValueId], ty: &TensorType) -> Option<ValueId> {
        let value = self.rules.iter().find_map(|rule| {
            let value = (rule.rewrite)(&mut RewriteSite { source, rewriter: self, op, args, ty })?;
            debug_assert_eq!(self.node(source, value).ty, *ty, "{} changes the type", rule.name);
            Some(value)
        })?;
        self.n_rewrites += 1;
        // Nodes after a replaced one are at other places, even if none is new.
        self.made(source);
        Some(value)
    }

    /// The graph as one of its own.
    fn made(&mut self, source: &Graph) -> &mut Graph {
        self.made.get_or_insert_with(|| {
            let mut made = std::mem::take(&mut self.spare);
            made.reserve(source.n_nodes());
            for node in &source.nodes()[..self.n_same] {
                made.push(node.clone());
            }
            made
        })
    }

    fn node<'g>(&'g self, source: &'g Graph, id: ValueId) -> &'g Node {
        self.made.as_ref().unwrap_or(source).node(id)
    }
}

/// An application that rules are asked about.
pub(super) struct RewriteSite<'r> {
    source: &'r Graph,
    rewriter: &'r mut Rewriter,
    /// The op.
    pub(super) op: &'r Op,
    /// Its arguments.
    pub(super) args: &'r [ValueId],
    /// The type of the result.
    pub(super) ty: &'r TensorType,
}

impl<'r> RewriteSite<'r> {
    /// Adds an application; `None` if the op does not take these arguments.
    pub(super) fn apply(&mut self, op: impl Into<Op>, args: &[ValueId]) -> Option<ValueId> {
        let op = op.into();
        let ty = op.infer(&self.types(args)).ok()?;
        Some(self.rewriter.place(self.source, op, Args::from_slice(args), ty))
    }

    /// Adds a constant of the given shape.
    pub(super) fn constant(&mut self, value: Scalar, shape: impl Into<Shape>) -> Option<ValueId> {
        self.apply(Splat { value, shape: shape.into() }, &[])
    }

    /// The node that makes a value.
    pub(super) fn node(&self, id: ValueId) -> &Node {
        self.rewriter.node(self.source, id)
    }

    /// The type of an argument.
    pub(super) fn arg_ty(&self, arg: usize) -> &TensorType {
        &self.node(self.args[arg]).ty
    }

    /// The op that makes the only argument, with that op's own first argument.
    pub(super) fn inner(&self) -> Option<(&Op, ValueId)> {
        let [arg] = *self.args else { return None };
        let node = self.node(arg);
        Some((&node.op, *node.args.first()?))
    }

    /// The constant that an argument is, if it is one.
    pub(super) fn splat(&self, arg: usize) -> Option<Scalar> {
        self.splat_of(self.args[arg])
    }

    /// The constant that a value is, if it is one.
    pub(super) fn splat_of(&self, id: ValueId) -> Option<Scalar> {
        let Op::Splat(splat) = &self.node(id).op else { return None };
        Some(splat.value)
    }

    /// Whether an argument is this number of its dtype, bit for bit.
    pub(super) fn is_number(&self, arg: usize, x: f64) -> bool {
        self.splat(arg) == Some(Scalar::from_f64(x, self.arg_ty(arg).dtype))
    }

    /// The types of the arguments.
    pub(super) fn arg_types(&self) -> SmallVec<[&TensorType; 3]> {
        self.types(self.args)
    }

    fn types(&self, args: &[ValueId]) -> SmallVec<[&TensorType; 3]> {
        args.iter().map(|&arg| &self.node(arg).ty).collect()
    }
}
