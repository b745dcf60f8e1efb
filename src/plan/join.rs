//! Values that a join would copy one after another, written there at once: the join is no step then.
//!
//! A join along the first axis of its result is a run of memory for each value. Where no one else says where these
//! values lie, their places are parts of the joined one, whose bytes are taken with the first of them and freed after the
//! last read of any.

use retape_kernels::Work;
use retape_kernels::library::{Join, Library};

use super::UnplacedStep;
use super::slots::begin_lines;
use crate::graph::Graph;
use crate::types::{ValueId, ValueTable};

/// A joined value and its parts, in order.
#[derive(Clone, Debug)]
pub(crate) struct Joined {
    pub(crate) whole: ValueId,
    pub(crate) parts: Vec<ValueId>,
}

/// The joins of a plan that are no steps.
#[derive(Clone, Default)]
pub(super) struct Joins {
    pub(super) joins: Vec<Joined>,
    /// For each part, the join it belongs to.
    join_of: ValueTable<usize>,
    /// For each joined value, its join.
    made: ValueTable<usize>,
}

impl Joins {
    /// The joins among some steps whose parts may lie in the result: each has memory of its own, which is written by a
    /// step, and belongs to one join, once.
    pub(super) fn find(graph: &Graph, steps: &[UnplacedStep], is_placed: &dyn Fn(ValueId) -> bool) -> Joins {
        let mut joins = Joins::default();
        let mut is_written = ValueTable::with_capacity(graph.n_nodes());
        for step in steps {
            if let Some((whole, kernel)) = joined(step).filter(|&(whole, _)| !is_placed(whole)) {
                let (parts, join) = (&step.reads, joins.joins.len());
                let is_free = |part: &ValueId| is_written.contains(*part) && !is_placed(*part);
                // A join may also read a part of a larger value.
                let is_all = |(part, len): (&ValueId, &usize)| graph.ty(*part).n_elements() == len * kernel.inner;
                let are_free = parts.iter().all(is_free) && parts.iter().zip(kernel.lens.iter()).all(is_all);
                if begin_lines(graph, parts) && are_free && parts.iter().all(|&part| joins.claim(part, join)) {
                    joins.made.insert(whole, join);
                    joins.joins.push(Joined { whole, parts: parts.to_vec() });
                } else {
                    joins.release(parts, join);
                }
            }
            step.writes.iter().for_each(|&value| is_written.insert(value, ()));
        }
        joins
    }

    /// Makes a value a part of a join, unless it is one already or is itself made of parts.
    fn claim(&mut self, part: ValueId, join: usize) -> bool {
        let is_free = !self.join_of.contains(part) && !self.made.contains(part);
        if is_free {
            self.join_of.insert(part, join);
        }
        is_free
    }

    /// Takes parts out of a join that will be a step.
    fn release(&mut self, parts: &[ValueId], join: usize) {
        for &part in parts {
            if self.join_of.get(part) == Some(&join) {
                self.join_of.remove(part);
            }
        }
    }

    /// The join that a value is a part of.
    pub(super) fn of_part(&self, value: ValueId) -> Option<&Joined> {
        self.join_of.get(value).map(|&join| &self.joins[join])
    }

    /// The join that makes a value.
    pub(super) fn of_whole(&self, value: ValueId) -> Option<&Joined> {
        self.made.get(value).map(|&join| &self.joins[join])
    }

    /// The join that a step would do.
    pub(super) fn of_step(&self, step: &UnplacedStep) -> Option<&Joined> {
        self.of_whole(joined(step)?.0)
    }
}

/// The result of a step that joins along the first axis, and its kernel.
fn joined(step: &UnplacedStep) -> Option<(ValueId, &Join)> {
    match (&step.work, &step.writes[..]) {
        (Work::Library { kernel: Library::Join(join), epilogue: None }, &[whole]) if join.outer == 1 => {
            Some((whole, join))
        }
        _ => None,
    }
}
