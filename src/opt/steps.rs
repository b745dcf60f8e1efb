//! The optimiser's work step by step: which pass, and which rule, first made a value another one.

use std::borrow::Cow;

use super::rewrite::Rule;
use super::{Pass, Renaming, Rewritten, each_rewrite};
use crate::error::Result;
use crate::graph::Graph;
use crate::settings::Settings;
use crate::types::ValueId;

/// The graphs that the passes made one from another.
#[derive(Debug)]
pub(crate) struct Steps {
    first: Graph,
    steps: Vec<PassStep>,
}

#[derive(Debug)]
struct PassStep {
    pass: Pass,
    made: Rewritten,
}

/// The pass that made a value another one, and the rule, if a single rule alone does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Culprit {
    pub(crate) pass: &'static str,
    pub(crate) rule: Option<&'static str>,
}

/// Whether a value of the first graph has other elements than one of the second.
pub(crate) type Differs<'d> = dyn FnMut(&Graph, ValueId, &Graph, ValueId) -> Result<bool> + 'd;

impl Steps {
    /// Optimises a graph and keeps all that lies between.
    pub(crate) fn of(graph: &Graph) -> Result<Steps> {
        let settings = Settings::get();
        let first = graph.clone();
        let mut steps = vec![];
        if settings.optimise {
            each_rewrite(Cow::Borrowed(&first), settings, &mut |pass, _, made| {
                let made = Rewritten { graph: made.graph.clone(), renaming: made.renaming.clone() };
                steps.push(PassStep { pass: *pass, made });
                Ok(())
            })?;
        } else {
            let (graph, renaming) = first.live();
            let pass = Pass { name: "dce", rules: &[], run: super::dce::run };
            steps.push(PassStep { pass, made: Rewritten { graph, renaming } });
        }
        Ok(Steps { first, steps })
    }

    /// The optimised graph.
    pub(crate) fn last(&self) -> &Graph {
        self.steps.last().map_or(&self.first, |step| &step.made.graph)
    }

    /// The renaming of each value of the graph to its value in the optimised one.
    pub(crate) fn renaming(&self) -> Renaming {
        let all = (0..self.first.n_nodes() as u32).map(ValueId);
        all.map(|id| self.steps.iter().try_fold(id, |id, step| step.made.renaming[id.index()])).collect()
    }

    /// The first pass after which a value of the graph has other elements than before it.
    pub(crate) fn culprit(&self, value: ValueId, differs: &mut Differs<'_>) -> Result<Option<Culprit>> {
        let (mut graph, mut id) = (&self.first, value);
        for PassStep { pass, made } in &self.steps {
            let Some(next) = made.renaming[id.index()] else { return Ok(None) };
            if differs(graph, id, &made.graph, next)? {
                return Ok(Some(Culprit { pass: pass.name, rule: lone_rule(pass, graph, id, differs)? }));
            }
            (graph, id) = (&made.graph, next);
        }
        Ok(None)
    }
}

/// The rule of a pass that alone makes the value another one.
fn lone_rule(pass: &Pass, graph: &Graph, value: ValueId, differs: &mut Differs<'_>) -> Result<Option<&'static str>> {
    for rule in pass.rules {
        let alone: &'static [Rule] = std::slice::from_ref(rule);
        let Some(made) = (pass.run)(graph, alone, &mut Graph::default()) else { continue };
        if let Some(next) = made.renaming[value.index()]
            && differs(graph, value, &made.graph, next)?
        {
            return Ok(Some(rule.name));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::super::wrong::with_wrong_rule;
    use super::*;
    use crate::tensor::Tensor;
    use crate::trace;

    fn graph() -> Graph {
        let formula = |x: &Tensor| {
            let y = -(-x) * 3.0;
            let same = (x * 3.0).reshape([2, 2]).reshape([4]);
            (y + &same + same * 1.0, x.exp())
        };
        trace(formula, &Tensor::zeros([4])).unwrap()
    }

    fn values(graph: &Graph) -> Vec<Vec<f32>> {
        let x = Tensor::from([1.0_f32, 2.0, 3.0, 4.0]);
        let mut values = vec![];
        let mut see = |_: ValueId, _: &[&Tensor], value: &Tensor| {
            values.push(value.to_vec::<f32>()?);
            Ok(std::ops::ControlFlow::Continue(()))
        };
        graph.each_value(&[&x], &mut see).unwrap();
        values
    }

    #[test]
    fn renamings_compose_to_values_of_equal_elements() {
        let graph = graph();
        let steps = Steps::of(&graph).unwrap();
        assert_eq!(*steps.last(), graph.optimized().unwrap());
        let renaming = steps.renaming();
        assert_eq!(renaming.len(), graph.n_nodes());
        for (&before, &after) in graph.outputs().iter().zip(steps.last().outputs()) {
            assert_eq!(renaming[before.index()], Some(after));
        }
        let (before, after) = (values(&graph), values(steps.last()));
        let counterparts = renaming.iter().enumerate().filter_map(|(id, counterpart)| Some((id, (*counterpart)?)));
        let mut n_found = 0;
        for (id, counterpart) in counterparts {
            assert_eq!(before[id], after[counterpart.index()], "%{id} became {counterpart}");
            n_found += 1;
        }
        assert!(n_found >= 4, "only {n_found} values have a counterpart");
    }

    #[test]
    fn the_culprit_is_the_pass_and_the_rule_that_were_wrong() {
        let mut differs = |before: &Graph, id: ValueId, after: &Graph, next: ValueId| {
            Ok(values(before)[id.index()] != values(after)[next.index()])
        };
        let output = graph().outputs()[0];
        assert_eq!(Steps::of(&graph()).unwrap().culprit(output, &mut differs).unwrap(), None);
        with_wrong_rule(|| {
            let culprit = Steps::of(&graph()).unwrap().culprit(output, &mut differs).unwrap();
            assert_eq!(culprit, Some(Culprit { pass: "wrong", rule: Some("triple_is_double") }));
        });
    }
}
