//! Formulas of one value that they use several times, such as `x * sigmoid(x)`.
//!
//! The value's cotangent is that of the formula times one derivative, which the forward pass knows: it can keep that number
//! in the place of all that the derivative is computed from. By the rules of the ops alone, the cotangent would be a factor
//! of every term.

use smallvec::SmallVec;

use crate::graph::Graph;
use crate::ops::Op;
use crate::types::ValueId;

/// Nodes of a formula at most: each node that may end one is asked how far it goes back.
const MOST_NODES: usize = 32;

/// A formula of one value.
pub(super) struct OneValueFormula {
    /// The value that it is a formula of.
    pub(super) source: ValueId,
    /// Its nodes, from last to first.
    pub(super) nodes: SmallVec<[ValueId; 8]>,
}

/// The shortest formula that ends with a node and uses one value several times. Other values with a cotangent that it is
/// computed from are used in it alone, as often as `n_uses` says, and `is_free`.
pub(super) fn of_one_value(
    graph: &Graph,
    end: ValueId,
    n_uses: impl Fn(ValueId) -> u32,
    is_free: impl Fn(ValueId) -> bool,
) -> Option<OneValueFormula> {
    let ty = graph.ty(end);
    if !ty.dtype.is_float() || graph.node(end).args.len() < 2 {
        return None;
    }
    let mut nodes: SmallVec<[ValueId; 8]> = SmallVec::new();
    // Values that the formula so far is computed from, and how often it uses each.
    let mut open: SmallVec<[(ValueId, u32); 8]> = SmallVec::new();
    let mut next = end;
    while nodes.len() < MOST_NODES {
        let node = graph.node(next);
        if !multiplies(&node.op) || node.ty != *ty {
            return None;
        }
        for &arg in node.args.iter().filter(|&&arg| n_uses(arg) > 0) {
            match open.iter_mut().find(|(value, _)| *value == arg) {
                Some((_, n)) => *n += 1,
                None => open.push((arg, 1)),
            }
        }
        nodes.push(next);
        if let [(source, n)] = open[..] {
            let is_formula = n > 1 && nodes.len() > 1 && graph.ty(source) == ty;
            return is_formula.then_some(OneValueFormula { source, nodes });
        }
        let (last, &(value, n)) = open.iter().enumerate().max_by_key(|(_, (value, _))| *value)?;
        if n != n_uses(value) || !is_free(value) {
            return None;
        }
        open.remove(last);
        next = value;
    }
    None
}

/// Whether the rule of an op multiplies the cotangent by numbers, element by element. Ops that select have rules that drop
/// cotangents, which need not be finite: zero times such a one would be NaN.
fn multiplies(op: &Op) -> bool {
    matches!(
        op,
        Op::Add(_)
            | Op::Sub(_)
            | Op::Mul(_)
            | Op::Div(_)
            | Op::MulReciprocal(_)
            | Op::Neg(_)
            | Op::Softplus(_)
            | Op::Erf(_)
            | Op::Erfc(_)
            | Op::Sigmoid(_)
            | Op::Exp(_)
            | Op::Exp2(_)
            | Op::Expm1(_)
            | Op::Log(_)
            | Op::Log2(_)
            | Op::Log1p(_)
            | Op::Sqrt(_)
            | Op::Rsqrt(_)
            | Op::Sinh(_)
            | Op::Cosh(_)
            | Op::Tanh(_)
            | Op::Asinh(_)
            | Op::Acosh(_)
            | Op::Atanh(_)
            | Op::Sin(_)
            | Op::Cos(_)
            | Op::Tan(_)
            | Op::Asin(_)
            | Op::Acos(_)
            | Op::Atan(_)
    )
}
