//! Graph to graph: the passes, in the order they run.
//!
//! Guarantees that the result computes what the graph does: bit for bit, except for the sign and payload of NaN, which
//! IEEE 754 leaves open. Parameters stay as they are, outputs keep their number, order and types. Nothing depends on
//! the order of a hash map. Every pass says which value became which ([`Renaming`]), so that a difference can be traced
//! to the pass that made it ([`Steps`]).

#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

mod convolution;
mod cse;
mod dce;
mod element;
mod fold;
mod movement;
mod rewrite;
mod simplify;
mod slices;
mod steps;
#[cfg(test)]
pub(crate) mod wrong;

use std::borrow::Cow;
use std::panic::Location;

use self::rewrite::Rule;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::settings::{Settings, Stage};
use crate::types::ValueId;

pub(crate) use self::cse::sort_arguments;
pub(crate) use self::steps::{Culprit, Steps};

/// A rewrite of whole graphs, near-linear in their nodes.
#[derive(Clone, Copy, Debug)]
struct Pass {
    name: &'static str,
    /// The local rules it applies; none for passes over whole graphs.
    rules: &'static [Rule],
    /// The new graph, if it is another one, in the memory of the last argument, which has no nodes.
    run: fn(&Graph, &'static [Rule], &mut Graph) -> Option<Rewritten>,
}

/// The result of a pass over a graph.
#[derive(Debug)]
struct Rewritten {
    graph: Graph,
    renaming: Renaming,
}

/// For each value of a graph its counterpart in another one, which has the same elements; none if it is gone.
pub(crate) type Renaming = Vec<Option<ValueId>>;

const PIPELINE: &[Pass] = &[
    Pass { name: "cse", rules: &[], run: cse::run },
    Pass { name: "fold", rules: fold::RULES, run: rewrite::rewrite },
    Pass { name: "simplify", rules: simplify::RULES, run: rewrite::rewrite },
    Pass { name: "movement", rules: movement::RULES, run: rewrite::rewrite },
    Pass { name: "dce", rules: &[], run: dce::run },
];

/// Rewrites beget rewrites, but not for long; a graph that has not settled after so many rounds is good enough.
const MAX_ROUNDS: usize = 6;

/// Optimises a graph.
pub(crate) fn run(graph: &Graph) -> Result<Graph> {
    let settings = Settings::get();
    let optimised = match settings.optimise {
        true => optimise(graph, settings)?,
        // The planner expects that every value has a use.
        false => graph.without_dead_nodes(),
    };
    settings.log(Stage::Opt, || format!("; optimised\n{optimised}"));
    Ok(optimised)
}

fn optimise(graph: &Graph, settings: &Settings) -> Result<Graph> {
    Ok(each_rewrite(Cow::Borrowed(graph), settings, &mut |_, _, _| Ok(()))?.into_owned().trimmed())
}

/// Sees a pass that changed a graph, the graph before it, and what it made.
type Visit<'v> = dyn FnMut(&Pass, &Graph, &Rewritten) -> Result<()> + 'v;

/// Runs the passes as often as they find something to do.
fn each_rewrite<'g>(mut graph: Cow<'g, Graph>, settings: &Settings, visit: &mut Visit<'_>) -> Result<Cow<'g, Graph>> {
    let mut spare = Graph::default();
    for _ in 0..MAX_ROUNDS {
        let mut changed = false;
        for pass in pipeline().iter() {
            if let Some(rewritten) = apply(pass, &graph, settings, &mut spare)? {
                visit(pass, &graph, &rewritten)?;
                if let Cow::Owned(before) = std::mem::replace(&mut graph, Cow::Owned(rewritten.graph)) {
                    spare = before.emptied();
                }
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    Ok(graph)
}

/// The passes that run.
#[cfg(not(test))]
fn pipeline() -> Cow<'static, [Pass]> {
    Cow::Borrowed(PIPELINE)
}

/// The passes that run: in tests of what finds wrong passes, with one more that a test added on its thread.
#[cfg(test)]
fn pipeline() -> Cow<'static, [Pass]> {
    match wrong::RULES.get() {
        Some(rules) => {
            let pass = Pass { name: "wrong", rules, run: rewrite::rewrite };
            Cow::Owned([PIPELINE, &[pass]].concat())
        }
        None => Cow::Borrowed(PIPELINE),
    }
}

fn apply(pass: &Pass, graph: &Graph, settings: &Settings, spare: &mut Graph) -> Result<Option<Rewritten>> {
    let rewritten = (pass.run)(graph, pass.rules, spare);
    if let Some(Rewritten { graph: made, renaming }) = rewritten.as_ref().filter(|_| settings.verify) {
        let broken = |e| Error::Internal(format!("pass {}: {e} in\n{made}of\n{graph}", pass.name));
        made.verify().map_err(broken)?;
        debug_assert!(is_typed(graph, made, renaming), "pass {}: a value is renamed to one of another type", pass.name);
    }
    Ok(rewritten)
}

/// Whether every value has a counterpart of its own type or none, and every output has the one at its place.
fn is_typed(from: &Graph, to: &Graph, renaming: &Renaming) -> bool {
    let same = |(id, counterpart): (usize, &Option<ValueId>)| {
        counterpart.is_none_or(|counterpart| from.nodes()[id].ty == *to.ty(counterpart))
    };
    let outputs = from.outputs().iter().map(|id| renaming[id.index()]);
    renaming.len() == from.n_nodes()
        && renaming.iter().enumerate().all(same)
        && outputs.eq(to.outputs().iter().map(|&id| Some(id)))
}

impl Graph {
    /// The names of the optimiser's passes, in the order they run.
    pub const PASSES: [&'static str; PIPELINE.len()] = {
        let mut names = [""; PIPELINE.len()];
        let mut pass = 0;
        while pass < names.len() {
            names[pass] = PIPELINE[pass].name;
            pass += 1;
        }
        names
    };

    /// The names of the rewrite rules within the passes.
    pub fn rewrite_names() -> impl Iterator<Item = &'static str> {
        [fold::RULES, simplify::RULES, movement::RULES].into_iter().flatten().map(|rule| rule.name)
    }

    /// The graph after some passes of the optimiser, each run once in the order given.
    ///
    /// # Errors
    ///
    /// Fails if the graph does not [verify](Graph::verify), or if there is no pass of such a name.
    ///
    /// ```
    /// # use retape::Graph;
    /// let graph: Graph = "
    ///     graph (%0: f32[2]) {
    ///       %1 = neg %0 : f32[2]
    ///       %2 = neg %1 : f32[2]
    ///       return %2
    ///     }"
    /// .parse()?;
    /// let optimised = graph.optimized_by(&["simplify", "dce"])?;
    /// assert_eq!(optimised.to_string(), "graph (%0: f32[2]) {\n  return %0\n}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn optimized_by(&self, passes: &[&str]) -> Result<Graph> {
        let at = Location::caller();
        self.verified("optimized_by", at)?;
        let mut graph = Cow::Borrowed(self);
        for &name in passes {
            let Some(pass) = PIPELINE.iter().find(|pass| pass.name == name) else {
                return Err(Error::Type {
                    op: "optimized_by",
                    message: format!("no pass is called {name}"),
                    at,
                    call: None,
                });
            };
            if let Some(rewritten) = apply(pass, &graph, Settings::get(), &mut Graph::default())? {
                graph = Cow::Owned(rewritten.graph);
            }
        }
        Ok(graph.into_owned())
    }

    /// The graph after all passes of the optimiser, as often as they find something to do.
    ///
    /// # Errors
    ///
    /// Fails if the graph does not [verify](Graph::verify), or if a pass breaks an invariant of graphs, where that is
    /// checked: a bug of this library.
    #[track_caller]
    pub fn optimized(&self) -> Result<Graph> {
        self.verified("optimized", Location::caller())?;
        optimise(self, Settings::get())
    }
}
