//! Which roots share a kernel.
//!
//! Roots are visited in order. One joins the group of a root that it reads at its own coordinates, or of one that
//! reads the same memory, if both run over the same space, fold over the same axes or one over none, and no value
//! passes from the group to the root through another group (which would be a cycle).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

use retape_kernels::library::Library;
use smallvec::SmallVec;

use super::ancestors::Ancestors;
use super::donate;
use super::readers::{Readers, RootSize};
use super::values::{Read, Values};
use super::view::View;
use super::written::WrittenRoots;
use crate::ops::Lowering;
use crate::types::{ValueId, ValueTable};

/// No root joins a group whose kernel would then read and write more buffers than this.
const MAX_BUFFERS: usize = 24;

/// The most that a kernel computes per point, in units of an addition: compile time grows faster than size.
pub(super) const MAX_COST: u32 = 2400;

/// Roots that one step computes.
#[derive(Debug)]
pub(super) struct FusionGroup {
    /// The roots, in order; none if the group has become a part of another one.
    pub(super) roots: Vec<ValueId>,
    /// The extents of the iteration space.
    pub(super) space: Vec<usize>,
    /// The axes that the group folds over; empty for a pointwise group.
    pub(super) folded: Vec<usize>,
    /// Whether it is a library call, which stands alone.
    pub(super) is_library: bool,
    /// The small products that it computes, and that have no memory.
    pub(super) products: Vec<ValueId>,
    /// Its reads from the memory of other groups.
    pub(super) reads: Vec<Read>,
    /// The cost of its roots and products, in units of an addition.
    pub(super) cost: u32,
    /// The groups that it depends on, directly or not.
    ancestors: Ancestors,
    /// Whether another group reads what it makes.
    is_read: bool,
}

/// The groups of a graph.
pub(super) struct Groups {
    pub(super) groups: Vec<FusionGroup>,
    pub(super) group_of: ValueTable<usize>,
    /// How many groups roots have tried to join.
    #[cfg(test)]
    n_tries: std::cell::Cell<usize>,
}

/// A root that looks for a group to join.
struct JoiningRoot<'r> {
    root: ValueId,
    reads: &'r [Read],
    /// The extents of the iteration space.
    space: Vec<usize>,
    /// The axes that the root folds over.
    folded: &'r [usize],
    /// The view of what is read at the root's own coordinates.
    own: View,
}

/// All that is known of the groups while roots come into them.
struct KnownGroups<'s> {
    /// The groups that read each value.
    readers: ValueTable<Readers>,
    written: WrittenRoots<'s>,
    /// The last root that tried to join each group.
    tried: Vec<Option<ValueId>>,
}

/// How a root relates to a group it might join.
struct Fit {
    folded: Vec<usize>,
    space: Vec<usize>,
}

impl Groups {
    /// Groups all roots.
    ///
    /// At first, roots whose readers are not all in groups yet count as if they needed no memory. Where some then do and a
    /// group has too many buffers, all is done again, and groups of its roots count such roots at once.
    pub(super) fn of(values: &Values<'_>) -> Groups {
        let is_library = |root: ValueId| matches!(values.lowering(root), Lowering::Library(_));
        let reads = |root: ValueId| if is_library(root) { library_reads(values, root) } else { values.reads(root) };
        let roots: Vec<(ValueId, Vec<Read>)> = values.roots().map(|root| (root, reads(root))).collect();
        let mut strict = ValueTable::default();
        let (mut groups, mut overfull) = Groups::grown(values, &roots, &strict);
        // Other groups may get too many buffers then. The last time all of them count all roots.
        for is_last in [false, false, false, true] {
            if overfull.is_empty() {
                break;
            }
            let all = roots.iter().map(|&(root, _)| root);
            let counting: Vec<ValueId> = if is_last { all.collect() } else { overfull };
            counting.into_iter().for_each(|root| strict.insert(root, ()));
            #[cfg(test)]
            let n_tries = groups.n_tries.get();
            (groups, overfull) = Groups::grown(values, &roots, &strict);
            #[cfg(test)]
            groups.n_tries.set(groups.n_tries.get() + n_tries);
        }
        groups
    }

    /// Groups roots, of which each comes with its reads; `strict` ones, and those of their groups, count as written as long as
    /// readers of them have no group. Also returns the roots of groups that got too many buffers.
    fn grown(values: &Values<'_>, roots: &[(ValueId, Vec<Read>)], strict: &ValueTable<()>) -> (Groups, Vec<ValueId>) {
        let n_nodes = values.graph.n_nodes();
        let mut groups = Groups {
            groups: vec![],
            group_of: ValueTable::with_capacity(n_nodes),
            #[cfg(test)]
            n_tries: std::cell::Cell::default(),
        };
        let mut known = KnownGroups {
            readers: ValueTable::with_capacity(n_nodes),
            written: WrittenRoots::of(values, roots, strict, MAX_COST),
            tried: vec![],
        };
        for (root, reads) in roots {
            let root = *root;
            let is_library = matches!(values.lowering(root), Lowering::Library(_));
            let found = if is_library { None } else { groups.find_group(values, root, reads, &mut known) };
            let group = match found {
                Some((group, fit)) => {
                    groups.join(values, group, root, reads, fit);
                    group
                }
                None => groups.open(values, root, reads.clone(), is_library),
            };
            known.written.add(root, reads, &groups.group_of);
            // Nothing joins a library call, however many read the same weight.
            if !is_library {
                reads.iter().for_each(|read| known.readers.or_default(read.value).add(group));
            }
        }
        let has_too_many = |(index, group): &(usize, &FusionGroup)| {
            group.roots.len() > 1 && group.reads.len() + known.written.n_written(*index) > MAX_BUFFERS
        };
        let overfull = groups.groups.iter().enumerate().filter(has_too_many);
        let overfull = overfull.flat_map(|(_, group)| group.roots.iter().copied()).collect();
        (groups, overfull)
    }

    /// The first group that a root can join: one that makes what it reads, or one that reads the same.
    fn find_group(
        &self,
        values: &Values<'_>,
        root: ValueId,
        reads: &[Read],
        known: &mut KnownGroups<'_>,
    ) -> Option<(usize, Fit)> {
        let KnownGroups { readers, written, tried } = known;
        let size = RootSize { n_reads: reads.len(), cost: values.cost(root) };
        let (space, folded) = (values.space(root), values.folded(root));
        let own = View::of_axes(0..space.len(), space.len());
        let joining = JoiningRoot { root, reads, space, folded, own };
        let makers = || reads.iter().rev().filter_map(|read| self.group_of.get(read.value).copied());
        // A root joins no group that a maker of its reads waits for: the group would wait for itself.
        let mut before = Ancestors::default();
        makers().for_each(|maker| before.unite(&self.groups[maker].ancestors));
        for read in reads {
            let readers = readers.get_mut(read.value).into_iter();
            let is_full = |index: usize| {
                let group = &self.groups[index];
                !group.has_room(written.n_counted(index), 1 + size.n_reads) || !group.can_afford(size.cost)
            };
            readers.for_each(|readers| readers.leave_out_full(size, &before, is_full));
        }
        let siblings = reads.iter().filter_map(|read| readers.get(read.value));
        let siblings = siblings.flat_map(|readers| readers.outside(&before, size));
        tried.resize(self.groups.len(), None);
        // A value may have very many readers.
        let mut is_new = |group: usize| tried[group].replace(root) != Some(root);
        makers().chain(siblings).filter(|&group| is_new(group)).find_map(|group| {
            #[cfg(test)]
            self.n_tries.set(self.n_tries.get() + 1);
            // Few reads of a root add to those of its group, so at first only the groups that are full anyhow are left out.
            if !self.groups[group].has_room(written.n_written(group), 0) {
                return None;
            }
            let fit = self.can_fuse(values, &joining, group)?;
            let has_room = self.n_buffers_with(group, root, reads, written) <= MAX_BUFFERS;
            has_room.then_some((group, fit))
        })
    }

    fn can_fuse(&self, values: &Values<'_>, joining: &JoiningRoot<'_>, index: usize) -> Option<Fit> {
        let &JoiningRoot { root, reads, ref space, folded, ref own } = joining;
        let group = &self.groups[index];
        if group.is_library || !group.can_afford(values.cost(root)) {
            return None;
        }
        let kept = || kept_shape(&group.space, &group.folded);
        let (folded, space, at) =
            if *space == group.space && (folded.is_empty() || group.folded.is_empty() || folded == group.folded) {
                (if folded.is_empty() { &group.folded[..] } else { folded }, space, Place::Element)
            } else if folded.is_empty() && !group.folded.is_empty() && *space == kept() {
                (&group.folded[..], &group.space, Place::Tail)
            } else {
                return None;
            };
        for read in reads {
            match self.group_of.get(read.value) {
                Some(&maker) if maker == index => {
                    let is_tail = group.is_tail(values, read.value);
                    let here = read.view.as_ref() == Some(own);
                    let fits = match at {
                        Place::Element => here && !is_tail,
                        Place::Tail => here && is_tail,
                    };
                    if !fits {
                        return None;
                    }
                }
                Some(&maker) if self.depends(maker, index) => return None,
                _ => {}
            }
        }
        Some(Fit { folded: folded.to_vec(), space: space.clone() })
    }

    /// How many buffers a group would read and write with one more root, which has these reads.
    fn n_buffers_with(&self, index: usize, root: ValueId, reads: &[Read], written: &WrittenRoots<'_>) -> usize {
        let group = &self.groups[index];
        let is_made = |read: &&Read| self.group_of.get(read.value) == Some(&index);
        let n_more = reads.iter().filter(|read| !is_made(read) && !group.reads.contains(read)).count();
        group.reads.len() + n_more + written.n_counted_with(index, root, reads.iter().filter(is_made))
    }

    fn depends(&self, group: usize, on: usize) -> bool {
        self.groups[group].ancestors.contains(on)
    }

    fn open(&mut self, values: &Values<'_>, root: ValueId, reads: Vec<Read>, is_library: bool) -> usize {
        let index = self.groups.len();
        let ancestors = self.wait_for(&reads, index);
        let (space, folded) = (values.space(root), values.folded(root).to_vec());
        let cost = values.cost(root);
        let (roots, products) = (vec![root], vec![]);
        let is_read = false;
        self.groups.push(FusionGroup { roots, space, folded, is_library, products, reads, cost, ancestors, is_read });
        self.group_of.insert(root, index);
        index
    }

    fn join(&mut self, values: &Values<'_>, index: usize, root: ValueId, reads: &[Read], fit: Fit) {
        let more = self.wait_for(reads, index);
        self.group_of.insert(root, index);
        let group = &mut self.groups[index];
        group.roots.push(root);
        group.cost = group.cost.saturating_add(values.cost(root));
        group.space = fit.space;
        group.folded = fit.folded;
        for read in reads {
            if self.group_of.get(read.value) != Some(&index) && !group.reads.contains(read) {
                group.reads.push(read.clone());
            }
        }
        let is_new = !group.ancestors.includes(&more);
        group.ancestors.unite(&more);
        if is_new && group.is_read {
            self.pass_on(index, &more);
        }
    }

    /// Lets the groups that depend on one depend on more.
    fn pass_on(&mut self, index: usize, more: &Ancestors) {
        let heirs = self.groups.iter_mut().filter(|group| group.ancestors.contains(index));
        heirs.for_each(|group| group.ancestors.unite(more));
    }

    /// The groups that reading this depends on, other than `index` itself; those that make it are read from then on.
    fn wait_for(&mut self, reads: &[Read], index: usize) -> Ancestors {
        let mut ancestors = Ancestors::default();
        for maker in reads.iter().filter_map(|read| self.group_of.get(read.value).copied()) {
            if maker != index {
                let group = &mut self.groups[maker];
                group.is_read = true;
                ancestors.unite(&group.ancestors);
                ancestors.insert(maker);
            }
        }
        ancestors
    }

    /// The groups that one waits for and that make what it reads, or products that it computes, each once.
    fn makers(&self, index: usize) -> SmallVec<[usize; 8]> {
        let FusionGroup { reads, products, .. } = &self.groups[index];
        let values = reads.iter().map(|read| &read.value).chain(products);
        let makers = values.filter_map(|&value| self.group_of.get(value).copied());
        let mut makers: SmallVec<[usize; 8]> = makers.filter(|&maker| maker != index).collect();
        makers.sort_unstable();
        makers.dedup();
        makers
    }

    /// The groups that read each value from memory.
    pub(super) fn readers(&self) -> ValueTable<Vec<usize>> {
        let mut readers: ValueTable<Vec<usize>> = ValueTable::default();
        for (index, group) in self.groups.iter().enumerate() {
            for read in &group.reads {
                let known = readers.or_default(read.value);
                if known.last() != Some(&index) {
                    known.push(index);
                }
            }
        }
        readers
    }

    /// Whether a group can be one with a group that reads it: whether nothing that the reader waits for waits for the
    /// group itself.
    pub(super) fn can_absorb(&self, index: usize, reader: usize) -> bool {
        self.makers(reader).iter().all(|&maker| maker == index || !self.depends(maker, index))
    }

    /// Makes a group one with a group that reads it, which has no roots from then on. Groups that depend on the reader
    /// depend on both from before; `has_others` says whether others depend on the group.
    pub(super) fn absorb(&mut self, index: usize, reader: usize, has_others: bool) {
        let FusionGroup { roots, reads, products, is_read, .. } = &mut self.groups[reader];
        let (roots, reads, products) = (std::mem::take(roots), std::mem::take(reads), std::mem::take(products));
        let is_read = *is_read;
        let more = self.wait_for(&reads, index);
        roots.iter().for_each(|&root| self.group_of.insert(root, index));
        let group = &mut self.groups[index];
        let own = &group.roots;
        group.reads.extend(reads.into_iter().filter(|read| !own.contains(&read.value)));
        group.roots.extend(roots);
        group.products.extend(products);
        group.is_read = is_read || has_others;
        group.ancestors.unite(&more);
        if has_others {
            self.pass_on(index, &more);
        }
    }

    /// Gives memory to a value, written by a group of its own. The reads of other groups, and the groups that they wait for,
    /// are as before.
    pub(super) fn store_alone(&mut self, values: &mut Values<'_>, id: ValueId) {
        if values.is_root(id) {
            let group = &mut self.groups[self.group_of[id]];
            if group.roots.len() == 1 {
                return;
            }
            group.roots.retain(|&root| root != id);
            group.cost = cost_of(values, &group.roots);
        }
        values.store(id);
        self.open(values, id, values.reads(id), false);
    }

    /// Lets one group compute formulas with memory, of what it makes itself, for another one that reads them now. The ancestors
    /// of groups are as before.
    pub(super) fn take_over(&mut self, values: &Values<'_>, [maker, reader]: [usize; 2], formulas: &[ValueId]) {
        formulas.iter().for_each(|&formula| self.group_of.insert(formula, maker));
        let group = &mut self.groups[maker];
        group.roots.extend(formulas);
        group.cost = cost_of(values, &group.roots);
        self.renew_reads(values, reader);
    }

    /// Gives roots of a group, of one space, a group of their own. The ancestors of groups are as before.
    pub(super) fn separate(&mut self, values: &Values<'_>, from: usize, roots: &[ValueId]) {
        self.groups[from].roots.retain(|root| !roots.contains(root));
        let index = self.open(values, roots[0], vec![], false);
        self.groups[index].roots = roots.to_vec();
        roots.iter().for_each(|&root| self.group_of.insert(root, index));
        for group in [from, index] {
            self.groups[group].cost = cost_of(values, &self.groups[group].roots);
            self.renew_reads(values, group);
        }
    }

    /// Finds anew what a group reads, after some values got memory, and before it computes products.
    pub(super) fn renew_reads(&mut self, values: &Values<'_>, index: usize) {
        debug_assert!(self.groups[index].products.is_empty(), "operands of products would be forgotten");
        let mut reads = vec![];
        for read in self.groups[index].roots.iter().flat_map(|&root| values.reads(root)) {
            if self.group_of.get(read.value) != Some(&index) && !reads.contains(&read) {
                reads.push(read);
            }
        }
        self.groups[index].reads = reads;
    }

    /// Finds anew which groups each one depends on.
    pub(super) fn renew_ancestors(&mut self) {
        for index in self.in_order(&[]) {
            let reads = std::mem::take(&mut self.groups[index].reads);
            self.groups[index].ancestors = self.wait_for(&reads, index);
            self.groups[index].reads = reads;
        }
    }

    /// The roots that are read by other groups than their own, or are outputs.
    pub(super) fn read_from_outside(&self, values: &Values<'_>) -> ValueTable<()> {
        let mut outside = ValueTable::default();
        let outputs = values.graph.outputs().iter().map(|&output| values.memory_of(output));
        let read = self.groups.iter().flat_map(|group| group.reads.iter().map(|read| read.value));
        read.chain(outputs).for_each(|id| outside.insert(id, ()));
        outside
    }

    /// The groups in the order of the program, each after what it depends on, and where that leaves a choice after
    /// those that hold it up: `delayed_by` lists for each group the ones that should wait for it.
    pub(super) fn in_order(&self, delayed_by: &[Vec<usize>]) -> Vec<usize> {
        let mut waits = vec![0; self.groups.len()];
        let mut heirs = vec![vec![]; self.groups.len()];
        for (index, waits) in waits.iter_mut().enumerate() {
            let makers = self.makers(index);
            *waits = makers.len();
            makers.into_iter().for_each(|maker| heirs[maker].push(index));
        }
        let mut holds = vec![0; self.groups.len()];
        delayed_by.iter().flatten().for_each(|&index| holds[index] += 1);
        // A group that is held up has the second rank: it runs when nothing else can.
        let entry = |index: usize, holds: &[u32]| Reverse((holds[index] > 0, self.groups[index].roots[0], index));
        let all = || (0..self.groups.len()).filter(|&index| !self.groups[index].roots.is_empty());
        let ready = all().filter(|&index| waits[index] == 0);
        let mut ready: BinaryHeap<_> = ready.map(|index| entry(index, &holds)).collect();
        let mut is_done = vec![false; self.groups.len()];
        let mut order = vec![];
        while let Some(Reverse((_, _, index))) = ready.pop() {
            if std::mem::replace(&mut is_done[index], true) {
                continue;
            }
            order.push(index);
            for &heir in &heirs[index] {
                waits[heir] -= 1;
                if waits[heir] == 0 {
                    ready.push(entry(heir, &holds));
                }
            }
            for &other in delayed_by.get(index).into_iter().flatten() {
                holds[other] -= 1;
                // It may be in the queue with the second rank, too.
                if holds[other] == 0 && waits[other] == 0 {
                    ready.push(entry(other, &holds));
                }
            }
        }
        debug_assert_eq!(order.len(), all().count(), "groups depend on each other in a circle");
        order
    }

    /// For each group those that should rather run after it, since they could be written over what it reads.
    pub(super) fn delayed_by(&self, values: &Values<'_>) -> Vec<Vec<usize>> {
        let readers = self.readers();
        let outputs: HashSet<ValueId> = values.graph.outputs().iter().map(|&id| values.memory_of(id)).collect();
        let mut delayed_by = vec![vec![]; self.groups.len()];
        for (index, group) in self.groups.iter().enumerate() {
            for parameter in group.overwrites(values, &outputs) {
                let others = readers[parameter].iter().filter(|&&other| other != index);
                others.filter(|&&other| !self.depends(other, index)).for_each(|&other| delayed_by[other].push(index));
            }
        }
        delayed_by
    }
}

/// Where a root is computed in a group that folds.
enum Place {
    Element,
    Tail,
}

impl FusionGroup {
    /// Whether a kernel that reads what the group reads, and writes so many roots of it, can have so many buffers more.
    pub(super) fn has_room(&self, n_written: usize, n_more: usize) -> bool {
        self.reads.len() + n_written + n_more <= MAX_BUFFERS
    }

    /// Whether the kernel may compute so much more per point.
    fn can_afford(&self, cost: u32) -> bool {
        self.cost.saturating_add(cost) <= MAX_COST
    }

    /// The parameters that an output of this group could be written over, if nothing else reads them later.
    fn overwrites(&self, values: &Values<'_>, outputs: &HashSet<ValueId>) -> Vec<ValueId> {
        let made = self.roots.iter().filter(|root| outputs.contains(root));
        let made: Vec<_> = made.map(|&root| values.graph.ty(root)).collect();
        let mut found = vec![];
        for read in self.reads.iter().filter(|read| !values.is_root(read.value)) {
            let ty = values.graph.ty(read.value);
            let at_element = |other: &Read| other.view == Some(View::of_axes(0..ty.rank(), ty.rank()));
            let mut reads = self.reads.iter().filter(|other| other.value == read.value);
            let is_large = ty.n_elements() * ty.dtype.size() >= donate::MIN_BYTES;
            if is_large && made.contains(&ty) && !found.contains(&read.value) && reads.all(at_element) {
                found.push(read.value);
            }
        }
        found
    }

    /// Whether a root of this group is known only after the fold.
    pub(super) fn is_tail(&self, values: &Values<'_>, root: ValueId) -> bool {
        !self.folded.is_empty() && (!values.folded(root).is_empty() || values.space(root) != self.space)
    }
}

/// The cost of computing roots.
fn cost_of(values: &Values<'_>, roots: &[ValueId]) -> u32 {
    roots.iter().map(|&root| values.cost(root)).fold(0, u32::saturating_add)
}

/// The extents of the axes that are not folded.
pub(super) fn kept_shape(space: &[usize], folded: &[usize]) -> Vec<usize> {
    let kept = space.iter().enumerate().filter(|(axis, _)| !folded.contains(axis));
    kept.map(|(_, &extent)| extent).collect()
}

/// The reads of a library call: the memory under its arguments.
fn library_reads(values: &Values<'_>, root: ValueId) -> Vec<Read> {
    let read = |value: ValueId| Read { value, view: None };
    if let Lowering::Library(Library::Join(_)) = values.lowering(root) {
        return values.parts(root).iter().map(|part| read(part.source)).collect();
    }
    let memory = |&arg: &ValueId| values.strided(arg).map_or_else(|_| values.memory_of(arg), |(base, _)| base);
    values.library_args(root).iter().map(|arg| read(memory(arg))).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeSet;
    use std::fmt::Write;

    use super::*;
    use crate::graph::Graph;
    use crate::plan::{epilogue, products, unplaced_steps};

    /// A graph of pointwise ops, sums that are broadcast, and products of two sizes, over values drawn by `seed`.
    fn drawn(seed: u64, n: u32) -> Graph {
        let mut state = seed;
        let mut draw = |n: u32| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u32 % n
        };
        let side = if seed.is_multiple_of(2) { 16 } else { 8 };
        let ty = format!("f32[{side}, {side}]");
        let mut text = format!("graph (%0: {ty}, %1: {ty}) {{\n");
        let mut values = vec![0, 1];
        let mut next = 2;
        for _ in 0..n {
            // The last values are read most.
            let recent = draw(2) == 0;
            let from = if recent { values.len().saturating_sub(3) } else { 0 };
            let mut value = || values[from + draw((values.len() - from) as u32) as usize];
            let (x, y) = (value(), value());
            let made = match draw(6) {
                0 | 1 => format!("matmul %{x}, %{y}"),
                2 => format!("add %{x}, %{y}"),
                3 => format!("tanh %{x}"),
                4 => format!("sin %{x}"),
                _ => {
                    let _ = writeln!(text, "  %{next} = reduce_sum %{x} {{axes=[0]}} : f32[{side}]");
                    next += 1;
                    format!("broadcast_to %{} {{shape=[{side}, {side}]}}", next - 1)
                }
            };
            let _ = writeln!(text, "  %{next} = {made} : {ty}");
            values.push(next);
            next += 1;
        }
        let _ = writeln!(text, "  return %{}, %{}\n}}", values[values.len() - 1], values[values.len() / 2]);
        let graph: Graph = text.parse().unwrap_or_else(|e| panic!("{e} in\n{text}"));
        graph.without_dead_nodes()
    }

    /// The groups that each group depends on by its edges and those of others.
    fn closure(groups: &Groups) -> Vec<BTreeSet<usize>> {
        let of = |index: usize| {
            let (mut found, mut open) = (BTreeSet::new(), groups.makers(index).to_vec());
            while let Some(maker) = open.pop() {
                if found.insert(maker) {
                    open.extend(groups.makers(maker));
                }
            }
            found
        };
        (0..groups.groups.len()).map(of).collect()
    }

    /// Asserts that groups know which others they depend on, and can run in an order.
    pub(in crate::plan) fn assert_known(groups: &Groups, values: &Values<'_>) {
        let has_step = |index: &usize| groups.groups[*index].roots.first().is_some_and(|&root| values.is_root(root));
        let live: Vec<usize> = (0..groups.groups.len()).filter(has_step).collect();
        for (index, ancestors) in closure(groups).iter().enumerate().filter(|(index, _)| has_step(index)) {
            assert!(!ancestors.contains(&index), "a circle through {index}");
            for &on in &live {
                assert_eq!(groups.depends(index, on), ancestors.contains(&on), "{index} on {on}");
            }
        }
        let mut ended = BTreeSet::new();
        for index in groups.in_order(&groups.delayed_by(values)) {
            assert!(groups.makers(index).iter().all(|maker| ended.contains(maker)), "{index} is too early");
            ended.insert(index);
        }
    }

    /// The number of tries, and the groups without it.
    fn tries(graph: &Graph) -> (usize, usize) {
        let groups = Groups::of(&Values::of(graph));
        (groups.n_tries.get(), groups.groups.len())
    }

    /// Terms that all read one value, of which each group takes a few, behind a group that none of them can join, with and
    /// without a sum of them; and steps of which each waits for the one before.
    #[test]
    fn tries_grow_as_the_program_does() {
        let sums = |n: u32, is_chain: bool, is_summed: bool| {
            let mut text = "graph (%0: f32[8, 8], %1: f32[8]) {\n".to_owned();
            text += "  %2 = reduce_sum %0 {axes=[1]} : f32[8]\n";
            let (mut last, mut sums) = (2, vec!["%2".to_owned()]);
            for _ in 0..n {
                let next = last + 1;
                let from = if is_chain { last } else { 1 };
                let _ = writeln!(text, "  %{next} = broadcast_to %{from} {{shape=[8, 8]}} : f32[8, 8]");
                let _ = writeln!(text, "  %{} = mul %0, %{next} : f32[8, 8]", next + 1);
                // Numbers tell the terms apart.
                let _ = writeln!(text, "  %{} = splat {{value={next}.0 f32, shape=[8, 8]}} : f32[8, 8]", next + 2);
                let _ = writeln!(text, "  %{} = add %{}, %{} : f32[8, 8]", next + 3, next + 1, next + 2);
                let _ = writeln!(text, "  %{} = reduce_sum %{} {{axes=[0]}} : f32[8]", next + 4, next + 3);
                last = next + 4;
                sums.push(format!("%{last}"));
            }
            if is_summed {
                for sum in &sums[..sums.len() - 1] {
                    let _ = writeln!(text, "  %{} = add %{last}, {sum} : f32[8]", last + 1);
                    last += 1;
                }
                sums.push(format!("%{last}"));
            }
            let is_one = is_chain || is_summed;
            let _ =
                writeln!(text, "  return {}\n}}", if is_one { sums[sums.len() - 1].clone() } else { sums.join(", ") });
            let graph: Graph = text.parse().unwrap_or_else(|e| panic!("{e} in\n{text}"));
            graph
        };
        for (is_chain, is_summed) in [(false, false), (true, false), (false, true)] {
            let [few, many] = [3000, 30_000].map(|n| tries(&sums(n, is_chain, is_summed)));
            assert!(many.0 <= 12 * few.0 && many.1 >= 9 * few.1, "{few:?}, {many:?}");
        }
    }

    /// Steps of a polynomial in `%0`, and the sum of all of them times a factor, the last first: the last step itself, or the
    /// sum of its elements, which no kernel knows before it has seen all.
    fn polynomial(n_steps: u32, by_sum: bool) -> Graph {
        let ty = "f32[64, 64]";
        let mut text = format!("graph (%0: {ty}) {{\n  %1 = mul %0, %0 : {ty}\n  %2 = add %1, %0 : {ty}\n");
        let (mut last, mut steps) = (2, vec![2]);
        for _ in 1..n_steps {
            let _ = writeln!(text, "  %{} = mul %{last}, %0 : {ty}", last + 1);
            let _ = writeln!(text, "  %{} = splat {{value={last}.0 f32, shape=[64, 64]}} : {ty}", last + 2);
            let _ = writeln!(text, "  %{} = add %{}, %{} : {ty}", last + 3, last + 1, last + 2);
            last += 3;
            steps.push(last);
        }
        let mut factor = last;
        if by_sum {
            let _ = writeln!(text, "  %{} = reduce_sum %{last} {{axes=[0, 1]}} : f32[]", last + 1);
            let _ = writeln!(text, "  %{} = broadcast_to %{} {{shape=[64, 64]}} : {ty}", last + 2, last + 1);
            factor = last + 2;
            last = factor;
        }
        let mut sum = factor;
        for step in steps.into_iter().rev() {
            let _ = writeln!(text, "  %{} = mul %{step}, %{factor} : {ty}", last + 1);
            let _ = writeln!(text, "  %{} = add %{}, %{sum} : {ty}", last + 2, last + 1);
            let _ = writeln!(text, "  %{} = mul %{factor}, %0 : {ty}", last + 3);
            (sum, factor) = (last + 2, last + 3);
            last += 3;
        }
        let _ = writeln!(text, "  return %{sum}\n}}");
        let graph: Graph = text.parse().unwrap_or_else(|e| panic!("{e} in\n{text}"));
        graph.without_dead_nodes()
    }

    /// The number of roots, of reads and of written roots of each group.
    fn sizes(graph: &Graph) -> Vec<[usize; 3]> {
        let values = Values::of(graph);
        let groups = Groups::of(&values);
        assert_known(&groups, &values);
        let written = groups.read_from_outside(&values);
        let size = |group: &FusionGroup| {
            let n_written = group.roots.iter().filter(|&&root| written.contains(root)).count();
            [group.roots.len(), group.reads.len(), n_written]
        };
        groups.groups.iter().map(size).collect()
    }

    #[test]
    fn a_root_that_its_own_group_reads_takes_no_buffer() {
        for n_steps in [9, 40] {
            let sizes = sizes(&polynomial(n_steps, false));
            assert!(matches!(sizes[..], [[n_roots, 1, 1]] if n_roots > n_steps as usize), "{sizes:?}");
        }
    }

    /// Of two polynomials in one program, the steps of one are kept for a second pass, and those of the other are not.
    #[test]
    fn what_one_group_cannot_do_stands_in_the_way_of_no_other() {
        let text = |graph: &Graph, parameter: usize, shift: usize| {
            let text = graph.to_string();
            let mut parts = text.split_once('\n').unwrap().1.trim_end_matches(['\n', '}']).split('%');
            let start = parts.next().unwrap().to_owned();
            let renamed = parts.fold(start, |made, part| {
                let end = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
                let n: usize = part[..end].parse().unwrap();
                format!("{made}%{}{}", if n == 0 { parameter } else { n + shift }, &part[end..])
            });
            renamed.split_once("  return ").map(|(body, result)| (body.to_owned(), result.to_owned())).unwrap()
        };
        let [kept, free] = [polynomial(60, true), polynomial(40, false)];
        let ((one, result), (other, other_result)) = (text(&kept, 0, 1), text(&free, 1, kept.n_nodes()));
        let both =
            format!("graph (%0: f32[64, 64], %1: f32[64, 64]) {{\n{one}{other}  return {result}, {other_result}\n}}");
        let both: Graph = both.parse().unwrap_or_else(|e| panic!("{e} in\n{both}"));
        let sizes = sizes(&both);
        assert!(
            sizes.iter().any(|&[n_roots, n_reads, n_written]| n_roots > 40 && n_reads + n_written < 4),
            "{sizes:?}"
        );
        assert!(sizes.iter().all(|[n_roots, n_reads, n_written]| *n_roots == 1 || n_reads + n_written <= MAX_BUFFERS));
    }

    #[test]
    fn no_group_has_more_buffers_than_a_kernel_may_have() {
        let graphs =
            (0..60).map(|seed| drawn(seed, 20 + 3 * seed as u32)).chain([60, 200].map(|n| polynomial(n, true)));
        for graph in graphs {
            for [n_roots, n_reads, n_written] in sizes(&graph) {
                assert!(n_roots == 1 || n_reads + n_written <= MAX_BUFFERS, "{n_reads} reads and {n_written} roots");
            }
        }
        // All steps are kept for the second pass, which is as short of room.
        let sizes = sizes(&polynomial(60, true));
        assert!(sizes.len() > 4 && sizes.iter().any(|[_, _, n_written]| *n_written > MAX_BUFFERS / 2), "{sizes:?}");
    }

    #[test]
    fn groups_know_all_that_they_depend_on() {
        let mut n_absorbed = 0;
        for seed in 0..60 {
            let graph = drawn(seed, 20 + 3 * seed as u32);
            let mut values = Values::of(&graph);
            let mut groups = Groups::of(&values);
            assert_known(&groups, &values);
            products::absorb(&mut values, &mut groups);
            assert_known(&groups, &values);
            let mut steps = unplaced_steps(&values, &groups);
            epilogue::attach(&values, &mut groups, &mut steps);
            assert_known(&groups, &values);
            n_absorbed += groups.groups.iter().filter(|group| group.roots.is_empty()).count();
        }
        assert!(n_absorbed > 20, "{n_absorbed} epilogues");
    }
}
