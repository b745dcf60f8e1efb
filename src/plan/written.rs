//! Which roots of a group need memory, while groups grow.
//!
//! A root whose readers all come into its own group is a value of the kernel and nothing more, so that it takes none of the
//! buffers that a kernel may have. The steps of a polynomial and of its derivative are such roots. While readers of a root
//! have no group yet, it is not known for one.

use super::values::{Read, Values};
use super::view::View;
use crate::ops::Lowering;
use crate::types::{ValueId, ValueTable};

/// How many roots of each group need memory.
pub(super) struct WrittenRoots<'s> {
    /// How often a value is read by roots that have no group yet.
    n_waiting: ValueTable<usize>,
    /// The values that are outputs, that another group than their own reads, that are read elsewhere than at the coordinates
    /// of their reader, or so much later that a group with all roots between would cost too much.
    written: ValueTable<()>,
    /// Roots in whose groups each root counts that may need memory.
    strict: &'s ValueTable<()>,
    groups: Vec<GroupRoots>,
}

/// Roots of a group.
#[derive(Clone, Copy, Debug, Default)]
struct GroupRoots {
    /// Those that need memory.
    n_written: usize,
    /// Those that may need memory, as readers of them have no group yet.
    n_open: usize,
    is_strict: bool,
}

impl<'s> WrittenRoots<'s> {
    /// Before any root, of which each comes with its reads, has a group; no group costs more than `max_cost`.
    pub(super) fn of(
        values: &Values<'_>,
        roots: &[(ValueId, Vec<Read>)],
        strict: &'s ValueTable<()>,
        max_cost: u32,
    ) -> WrittenRoots<'s> {
        let n_nodes = values.graph.n_nodes();
        let (mut n_waiting, mut written) = (ValueTable::with_capacity(n_nodes), ValueTable::with_capacity(n_nodes));
        // By value, the cost of all roots up to the last one that reads it.
        let mut cost_to_reader = ValueTable::with_capacity(n_nodes);
        let mut costs = Vec::with_capacity(roots.len());
        let mut cost = 0_u64;
        for (root, reads) in roots {
            cost += u64::from(values.cost(*root));
            costs.push(cost);
            // A library call has a group of its own, and no root joins the group of one that it reads elsewhere than at its own
            // coordinates.
            let is_library = matches!(values.lowering(*root), Lowering::Library(_));
            let rank = values.space(*root).len();
            let own = (!is_library).then(|| View::of_axes(0..rank, rank));
            for read in reads {
                *n_waiting.or_default(read.value) += 1;
                cost_to_reader.insert(read.value, cost);
                if is_library || read.view != own {
                    written.insert(read.value, ());
                }
            }
        }
        for (&(root, _), cost) in roots.iter().zip(costs) {
            if cost_to_reader.get(root).is_some_and(|to_reader| to_reader - cost > u64::from(max_cost)) {
                written.insert(root, ());
            }
        }
        values.graph.outputs().iter().for_each(|&output| written.insert(values.memory_of(output), ()));
        WrittenRoots { n_waiting, written, strict, groups: vec![] }
    }

    /// Takes note of a root that has come into a group.
    pub(super) fn add(&mut self, root: ValueId, reads: &[Read], group_of: &ValueTable<usize>) {
        let group = group_of[root];
        // Groups are numbered as they open.
        if group == self.groups.len() {
            self.groups.push(GroupRoots::default());
        }
        self.groups[group].is_strict |= self.strict.contains(root);
        if self.written.contains(root) {
            self.groups[group].n_written += 1;
        } else {
            self.groups[group].n_open += 1;
        }
        for &Read { value, .. } in reads {
            let n_waiting = self.n_waiting.or_default(value);
            *n_waiting -= 1;
            let is_read_by_all = *n_waiting == 0;
            let Some(&maker) = group_of.get(value).filter(|_| !self.written.contains(value)) else { continue };
            if maker != group {
                self.written.insert(value, ());
                self.groups[maker].n_written += 1;
                self.groups[maker].n_open -= 1;
            } else if is_read_by_all {
                self.groups[maker].n_open -= 1;
            }
        }
    }

    /// How many roots of a group need memory, as far as is known.
    pub(super) fn n_written(&self, group: usize) -> usize {
        self.groups[group].n_written
    }

    /// How many roots of a group count as written.
    pub(super) fn n_counted(&self, group: usize) -> usize {
        let GroupRoots { n_written, n_open, is_strict } = self.groups[group];
        if is_strict { n_written + n_open } else { n_written }
    }

    /// How many roots of a group count as written once one more root is in it, which has these reads of roots of the group, all
    /// at its own coordinates.
    pub(super) fn n_counted_with<'r>(
        &self,
        group: usize,
        root: ValueId,
        reads: impl Iterator<Item = &'r Read>,
    ) -> usize {
        let GroupRoots { n_written, n_open, is_strict } = self.groups[group];
        if !is_strict && !self.strict.contains(root) {
            return n_written + usize::from(self.written.contains(root));
        }
        let is_read_by_all = |value: ValueId| self.n_waiting[value] == 1 && !self.written.contains(value);
        n_written + n_open + 1 - reads.filter(|read| is_read_by_all(read.value)).count()
    }
}
