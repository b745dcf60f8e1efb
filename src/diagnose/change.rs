//! How a trace differs from one that the same closure recorded before: the first op, captured tensor or result.
//!
//! Two traces are the same if they compute the same. Each value gets a number that says how it is computed, so the order
//! in which ops were recorded does not matter, nor do ops that nothing uses. Captured tensors are the same if the
//! closure held the same one, or one with equal elements: a closure may make its constants each time.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use retape_runtime::{DType, Scalar};
use smallvec::SmallVec;

use super::tolerance::{Tolerance, compare, equal};
use crate::error::{Caller, Gap, shown};
use crate::graph::{Graph, Node};
use crate::observe::advice::{Advice, AdviceKind};
use crate::ops::Op;
use crate::opt::sort_arguments;
use crate::signature::Signature;
use crate::tape::Capture;
use crate::tensor::{Concrete, Tensor};
use crate::trace::{Source, Trace};
use crate::types::{TensorType, ValueId};

/// The first difference between two traces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// The line of it, if it is an op or a captured tensor.
    pub(crate) at: Option<Caller>,
    /// The old and the new, with the line.
    pub(crate) text: String,
}

impl Change {
    /// The advice for calls with a signature for which the closure was traced before it changed.
    pub(crate) fn advice(&self, signature: &Signature) -> Advice {
        let text = &self.text;
        Advice {
            kind: AdviceKind::StaleTrace,
            subject: self.at.map_or_else(|| "result".to_owned(), ToString::to_string),
            message: format!(
                "{text}: the closure depends on something that is no argument, and calls with ({signature}) go on with what \
                 was traced; make it an argument, or clear the cache when it changes"
            ),
        }
    }
}

/// How a value is computed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Formula<'g> {
    Argument(usize),
    /// A captured tensor, by its place among those of the old trace.
    Captured(usize),
    /// One that the old trace does not have, by its place among the new ones.
    NewlyCaptured(usize),
    Op(&'g Op, SmallVec<[usize; 3]>),
}

/// The numbers of formulas, the same ones for both traces.
type Numbers<'g> = HashMap<Formula<'g>, usize>;

/// The first difference between two traces of one closure for arguments of one signature, if there is one.
pub(crate) fn first_change(old: &Trace, new: &Trace) -> Option<Change> {
    let matched = match_captures(old, new);
    let is_plain = matched.iter().enumerate().all(|(n, place)| *place == Some(n));
    if is_plain && old.graph == new.graph && old.captures.len() == new.captures.len() {
        return changed_result(old, new, is_same_place);
    }
    let mut numbers = Numbers::new();
    let was = number(&old.graph, old.captures.len(), &mut numbers, Formula::Captured);
    let is = number(&new.graph, new.captures.len(), &mut numbers, |n| match matched[n] {
        Some(place) => Formula::Captured(place),
        None => Formula::NewlyCaptured(n),
    });
    let value = |numbers: &[usize], graph: &Graph, source: &Source| match source {
        Source::Output(n) => graph.outputs().get(*n).map(|id| numbers[id.index()]),
        Source::Parameter(n) => graph.params().get(*n).map(|id| numbers[id.index()]),
        Source::Constant(_) => None,
    };
    let same_source = |x: &Source, y: &Source| {
        let (x, y) = (value(&was, &old.graph, x), value(&is, &new.graph, y));
        x.is_some() && x == y
    };
    let effects = |trace: &Trace, numbers: &[usize]| trace.graph.outputs().last().map(|id| numbers[id.index()]);
    let has_effects = |trace: &Trace| trace.graph.nodes().iter().any(|node| node.op.has_effect());
    let result = changed_result(old, new, same_source);
    let same_effects = !(has_effects(old) || has_effects(new)) || effects(old, &was) == effects(new, &is);
    if result.is_none() && same_effects {
        return None;
    }
    let captured = (0..new.captures.len()).find(|&n| matched[n].is_none() && is_used(&new.graph, captured(new, n)));
    if let Some(n) = captured {
        return Some(changed_capture(old, new, &matched, n));
    }
    changed_op(&old.graph, &new.graph, &was, &is).or(result)
}

/// For each captured tensor of the new trace its place in the old one, if that has it.
fn match_captures(old: &Trace, new: &Trace) -> Vec<Option<usize>> {
    let mut is_free = vec![true; old.captures.len()];
    let mut matched: Vec<Option<usize>> = vec![None; new.captures.len()];
    // The very same tensors go first, so that equal elements do not take their places.
    let relations: [fn(&Capture, &Capture) -> bool; 2] = [is_same_tensor, has_equal_elements];
    for is_related in relations {
        for (n, (capture, place)) in new.captures.iter().zip(&mut matched).enumerate() {
            if place.is_some() {
                continue;
            }
            // The same place is the likeliest.
            let mut places = std::iter::once(n).chain(0..old.captures.len());
            let is_it = |at: &usize| is_free.get(*at) == Some(&true) && is_related(&old.captures[*at], capture);
            *place = places.find(is_it);
            place.iter().for_each(|&at| is_free[at] = false);
        }
    }
    matched
}

/// Whether the closure held the same bytes, in the same shape.
fn is_same_tensor(old: &Capture, new: &Capture) -> bool {
    let Some(concrete) = new.tensor.as_concrete() else { return false };
    std::ptr::eq(old.origin.as_ptr(), Arc::as_ptr(concrete.owner())) && old.tensor.ty() == new.tensor.ty()
}

fn has_equal_elements(old: &Capture, new: &Capture) -> bool {
    are_equal(&old.tensor, &new.tensor)
}

/// Whether two concrete tensors are of one type and have equal elements. A tensor is compared with many, so this looks no
/// further than the first difference.
fn are_equal(old: &Tensor, new: &Tensor) -> bool {
    old.ty() == new.ty() && looked_at(old, new, equal).unwrap_or(true)
}

/// How the elements of two concrete tensors of one type differ.
fn gap(old: &Tensor, new: &Tensor) -> Option<Gap> {
    looked_at(old, new, |dtype, was, is| compare(dtype, was, is, &Tolerance::EXACT))?
}

/// The outcome of a comparison of the elements of two concrete tensors of one type; nothing if they do not come from their
/// device, so that they count as equal.
fn looked_at<R>(old: &Tensor, new: &Tensor, compare: impl FnOnce(DType, &[u8], &[u8]) -> R) -> Option<R> {
    let (old, new): (&Concrete, &Concrete) = (old.as_concrete()?, new.as_concrete()?);
    let dtype = old.ty().dtype;
    old.read(|was| new.read(|is| compare(dtype, was, is))).ok()?.ok()
}

/// The value of captured tensor `n`.
fn captured(trace: &Trace, n: usize) -> ValueId {
    trace.graph.params()[trace.graph.params().len() - trace.captures.len() + n]
}

fn is_used(graph: &Graph, id: ValueId) -> bool {
    graph.outputs().contains(&id) || graph.nodes().iter().any(|node| node.args.contains(&id))
}

/// The number of each value.
fn number<'g>(
    graph: &'g Graph,
    n_captures: usize,
    numbers: &mut Numbers<'g>,
    capture: impl Fn(usize) -> Formula<'g>,
) -> Vec<usize> {
    let n_args = graph.params().len() - n_captures;
    let mut known: Vec<usize> = Vec::with_capacity(graph.n_nodes());
    for node in graph.nodes() {
        let formula = match &node.op {
            Op::Parameter(parameter) if parameter.index < n_args => Formula::Argument(parameter.index),
            Op::Parameter(parameter) => capture(parameter.index - n_args),
            op => {
                let mut args: SmallVec<[usize; 3]> = node.args.iter().map(|arg| known[arg.index()]).collect();
                sort_arguments(op, &mut args);
                Formula::Op(op, args)
            }
        };
        let next = numbers.len();
        known.push(*numbers.entry(formula).or_insert(next));
    }
    known
}

/// The change of a captured tensor: `n` is one that the old trace does not have.
fn changed_capture(old: &Trace, new: &Trace, matched: &[Option<usize>], n: usize) -> Change {
    let is = &new.captures[n];
    // The tensor that was used at the same line, if no other one is that now.
    let of_line =
        (0..old.captures.len()).find(|place| !matched.contains(&Some(*place)) && old.captures[*place].at == is.at);
    let became = match of_line.map(|place| &old.captures[place].tensor) {
        None => "was not captured before".to_owned(),
        Some(was) => replaced(was, &is.tensor),
    };
    Change { at: is.at.known(), text: format!("the captured {} used at {} {became}", type_text(&is.tensor), is.at) }
}

fn type_text(tensor: &Tensor) -> String {
    tensor.ty().map_or_else(String::new, TensorType::to_string)
}

/// How a concrete tensor stands in the place of another one.
fn replaced(was: &Tensor, is: &Tensor) -> String {
    if was.ty() != is.ty() {
        return format!("was {}", type_text(was));
    }
    let pair = gap(was, is).and_then(|gap| gap.samples.first().copied());
    pair.map_or_else(
        || "is another one".to_owned(),
        |pair| format!("has other elements, {} at {} was {}", shown(pair.got), pair.position, shown(pair.expected)),
    )
}

/// The first op that the new graph has and the old one has not, or the other way round, with what stands in its place.
fn changed_op(old: &Graph, new: &Graph, was: &[usize], is: &[usize]) -> Option<Change> {
    let (had, has) = (live_numbers(old, was), live_numbers(new, is));
    let first = |graph: &Graph, numbers: &[usize], own: &HashSet<usize>, other: &HashSet<usize>| {
        let is_new = |id: &ValueId| own.contains(&numbers[id.index()]) && !other.contains(&numbers[id.index()]);
        graph.iter().map(|(id, _)| id).find(is_new)
    };
    let (gone, come) = (first(old, was, &had, &has), first(new, is, &has, &had));
    let line = |graph: &Graph, id: Option<ValueId>| id.and_then(|id| graph.node(id).at);
    let at = line(new, come).or(line(old, gone));
    let place = at.map_or_else(String::new, |at| format!(" at {at}"));
    let text = match (gone, come) {
        (None, None) => return None,
        (Some(gone), None) => format!("`{}` is no longer recorded{place}", old.node_text(gone)),
        (None, Some(come)) => format!("`{}` is recorded, too, by now{place}", new.node_text(come)),
        (Some(gone), Some(come)) => match (&old.node(gone).op, &new.node(come).op) {
            (Op::Splat(was), Op::Splat(is)) if was.value.dtype == is.value.dtype => {
                format!("constant {} became {}{place}", shown(was.value), shown(is.value))
            }
            (one, other) => match changed_constant(old, new, was, is, at) {
                Some((was, is)) => format!("constant {} became {}{place}", shown(was), shown(is)),
                None if one.name() != other.name() => format!("`{}` became `{}`{place}", one.name(), other.name()),
                None => format!("`{}` became `{}`{place}", old.node_text(gone), new.node_text(come)),
            },
        },
    };
    Some(Change { at, text })
}

/// The first constant in the place of another one, among the arguments of ops that a line records in both graphs. Other
/// ops may use either as well, so that it is neither gone nor new.
fn changed_constant(
    old: &Graph,
    new: &Graph,
    was: &[usize],
    is: &[usize],
    at: Option<Caller>,
) -> Option<(Scalar, Scalar)> {
    let at = Some(at?);
    let of_line = |graph: &'_ Graph| -> Vec<ValueId> {
        graph.iter().filter(|(_, node)| node.at == at && !node.args.is_empty()).map(|(id, _)| id).collect()
    };
    let pairs = of_line(old).into_iter().zip(of_line(new));
    let (before, now) = pairs.into_iter().find(|(before, now)| was[before.index()] != is[now.index()])?;
    let (before, now) = (old.node(before), new.node(now));
    let args = before.args.iter().zip(&now.args).filter(|_| before.op == now.op);
    let mut constants = args.map(|(&before, &now)| (&old.node(before).op, &new.node(now).op));
    constants.find_map(|constants| match constants {
        (Op::Splat(was), Op::Splat(is)) if was.value.dtype == is.value.dtype && was != is => {
            Some((was.value, is.value))
        }
        _ => None,
    })
}

/// The numbers of the values that outputs need.
fn live_numbers(graph: &Graph, numbers: &[usize]) -> HashSet<usize> {
    let (_, kept) = graph.live();
    let is_op = |node: &Node| !matches!(node.op, Op::Parameter(_));
    let live = graph.iter().filter(|(id, node)| kept[id.index()].is_some() && is_op(node));
    live.map(|(id, _)| numbers[id.index()]).collect()
}

/// Whether two tensors of a result are the same value of equal graphs.
fn is_same_place(was: &Source, is: &Source) -> bool {
    match (was, is) {
        (Source::Output(was), Source::Output(is)) | (Source::Parameter(was), Source::Parameter(is)) => was == is,
        (Source::Output(_) | Source::Parameter(_) | Source::Constant(_), _) => false,
    }
}

/// A change of the result: a static value, the structure, or another tensor.
fn changed_result(old: &Trace, new: &Trace, is_same_value: impl Fn(&Source, &Source) -> bool) -> Option<Change> {
    if old.words != new.words || old.sources.len() != new.sources.len() {
        let first = old.result.differences(&new.result).into_iter().next();
        let text = first
            .map_or_else(|| "the result has another structure now".to_owned(), |difference| difference.to_string());
        return Some(Change { at: None, text });
    }
    let differs = |(was, is): (&Source, &Source)| match (was, is) {
        (Source::Constant(was), Source::Constant(is)) => !are_equal(was, is),
        (was, is) => !is_same_value(was, is),
    };
    let n = old.sources.iter().zip(&new.sources).position(differs)?;
    let path = new.result.tensor_path(n).unwrap_or_else(|| format!("tensor {n} of the result"));
    let became = match (&old.sources[n], &new.sources[n]) {
        (Source::Constant(was), Source::Constant(is)) => replaced(was, is),
        _ => "is another value".to_owned(),
    };
    Some(Change { at: None, text: format!("{path} {became}") })
}
