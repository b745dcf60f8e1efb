//! The result of a bisection, as data and as text.

use std::fmt;

use crate::diagnose::tolerance::Tolerance;
use crate::error::{Caller, Gap};
use crate::graph::Graph;
use crate::types::{TensorType, ValueId};

/// The result of [`Accelerated::bisect`](crate::Accelerated::bisect).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Bisection {
    /// Why the compiled code computes something else.
    pub cause: BisectCause,
    /// The first value of the graph that differs, in the order of the program.
    pub value: Option<GraphValue>,
    /// The fused group that made it, or that first used it if it is an input.
    pub group: Option<FusedGroup>,
    /// How the value differs; none if it has another type.
    pub gap: Option<Gap>,
    /// The tolerance within which values counted as equal.
    pub tolerance: Tolerance,
}

/// Why a call differs.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum BisectCause {
    /// Nothing differs.
    None,
    /// A tensor that the closure captured is not what it was when it was traced.
    #[non_exhaustive]
    CaptureChanged {
        /// The line that used it.
        at: Caller,
        /// Its dtype and shape in the trace.
        recorded: TensorType,
        /// Its dtype and shape now.
        now: TensorType,
        /// The position of the first element that differs, if the types do not.
        element: Option<usize>,
    },
    /// The closure records other ops than when it was traced, or returns something else: it read a number or took a
    /// branch that has changed.
    #[non_exhaustive]
    TraceChanged {
        /// The line of the first op that differs.
        at: Option<Caller>,
        /// The op in the trace, as graph text; empty if it ends before. If the ops are the same, a leaf of the result,
        /// such as `result[1] = %0` or `result.n value: 7`.
        recorded: String,
        /// The op or the leaf now; empty if the graph ends before.
        now: String,
    },
    /// The optimiser changed what is computed: a bug of this library.
    #[non_exhaustive]
    Rewrite {
        /// The pass.
        pass: String,
        /// The rule, if one alone does it.
        rule: Option<String>,
    },
    /// Rounding alone: neither the code nor the ops are much nearer to what `f64` gives, as in sums of numbers that
    /// cancel.
    Rounding,
    /// The machine code computes something else than the optimised graph: a bug of this library.
    #[non_exhaustive]
    Code {
        /// The number of the step in the plan.
        step: usize,
        /// Its label.
        label: String,
    },
}

/// A value of a graph.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct GraphValue {
    /// Its number.
    pub id: ValueId,
    /// The op that makes it.
    pub op: &'static str,
    /// The op as graph text, such as `%3 = mul %1, %2 : f32[4]`.
    pub text: String,
    /// The line that asked for it.
    pub at: Option<Caller>,
}

/// A step of the compiled plan.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FusedGroup {
    /// Its number.
    pub step: usize,
    /// The ops that it computes, such as `mul+reduce_sum`.
    pub label: String,
}

impl fmt::Display for BisectCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BisectCause::None => f.write_str("nothing differs"),
            BisectCause::Rounding => f.write_str("both are about as far from the exact result: rounding of sums"),
            BisectCause::CaptureChanged { at, recorded, now, element } => {
                write!(f, "the captured tensor {recorded} used at {at} has changed since the trace")?;
                match element {
                    Some(element) => write!(f, ", first at element {element}"),
                    None => write!(f, " to {now}"),
                }
            }
            BisectCause::TraceChanged { at, recorded, now } => {
                let or_end = |text: &str| if text.is_empty() { "the end".to_owned() } else { format!("`{text}`") };
                write!(f, "the closure now records {} instead of {}", or_end(now), or_end(recorded))?;
                at.map_or(Ok(()), |at| write!(f, " at {at}"))
            }
            BisectCause::Rewrite { pass, rule: Some(rule) } => {
                write!(f, "the rule `{rule}` of the pass `{pass}` is wrong")
            }
            BisectCause::Rewrite { pass, rule: None } => write!(f, "the pass `{pass}` is wrong"),
            BisectCause::Code { step, label } => write!(f, "the code of step {step} ({label}) is wrong"),
        }
    }
}

impl fmt::Display for Bisection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.cause)?;
        if let Some(value) = &self.value {
            write!(f, "\n  first value   {}", value.text)?;
            value.at.map_or(Ok(()), |at| write!(f, " ({at})"))?;
        }
        if let Some(group) = &self.group {
            write!(f, "\n  fused group   step {}: {}", group.step, group.label)?;
        }
        self.gap.iter().try_for_each(|gap| write!(f, "\n  difference    {gap}"))
    }
}

impl GraphValue {
    pub(crate) fn of(graph: &Graph, id: ValueId) -> GraphValue {
        let node = graph.node(id);
        GraphValue { id, op: node.op.name(), text: graph.node_text(id), at: node.at }
    }
}
