//! Which roots share a kernel.
//!
//! Roots are visited in order. One joins the group of a root that it reads at its own coordinates, or of one that
//! reads the same memory, if both run over the same space, fold over the same axes or one over none, and no value
//! passes from the group to the root through another group (which would be a cycle).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use super::donate;
use super::values::{Read, Values};
use super::view::View;
use crate::ops::Lowering;
use crate::types::ValueId;

/// No kernel reads and writes more buffers than this.
const MAX_BUFFERS: usize = 24;

/// The most that a kernel computes per point, in units of an addition: compile time grows faster than size.
pub(super) const MAX_COST: u32 = 480;

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
    /// The groups that it depends on, directly or not, as bits.
    ancestors: Vec<u64>,
}

/// The groups of a graph.
pub(super) struct Groups {
    pub(super) groups: Vec<FusionGroup>,
    pub(super) group_of: HashMap<ValueId, usize>,
}

/// How a root relates to a group it might join.
struct Fit {
    folded: Vec<usize>,
    space: Vec<usize>,
}

impl Groups {
    /// Groups all roots.
    pub(super) fn of(values: &Values<'_>) -> Groups {
        let mut groups = Groups { groups: vec![], group_of: HashMap::new() };
        let mut readers: HashMap<ValueId, Vec<usize>> = HashMap::new();
        for root in values.roots() {
            let is_library = matches!(values.lowering(root), Lowering::Library(_));
            let reads = if is_library { library_reads(values, root) } else { values.reads(root) };
            let found = if is_library { None } else { groups.find_group(values, root, &reads, &readers) };
            let group = match found {
                Some((group, fit)) => {
                    groups.join(values, group, root, &reads, fit);
                    group
                }
                None => groups.open(values, root, reads.clone(), is_library),
            };
            for read in &reads {
                let known = readers.entry(read.value).or_default();
                if !known.contains(&group) {
                    known.push(group);
                }
            }
        }
        groups
    }

    /// The first group that the root can join: one that makes what it reads, or one that reads the same.
    fn find_group(
        &self,
        values: &Values<'_>,
        root: ValueId,
        reads: &[Read],
        readers: &HashMap<ValueId, Vec<usize>>,
    ) -> Option<(usize, Fit)> {
        let makers = reads.iter().rev().filter_map(|read| self.group_of.get(&read.value).copied());
        let siblings = reads.iter().filter_map(|read| readers.get(&read.value)).flatten().copied();
        // A value may have very many readers.
        let mut tried = HashSet::new();
        makers.chain(siblings).filter(|&group| tried.insert(group)).find_map(|group| {
            let fit = self.can_fuse(values, root, reads, group)?;
            Some((group, fit))
        })
    }

    fn can_fuse(&self, values: &Values<'_>, root: ValueId, reads: &[Read], index: usize) -> Option<Fit> {
        let group = &self.groups[index];
        let is_full = group.reads.len() + group.roots.len() + reads.len() >= MAX_BUFFERS
            || group.cost.saturating_add(values.cost(root)) > MAX_COST;
        if group.is_library || is_full {
            return None;
        }
        let (space, folded) = (values.space(root), values.folded(root));
        let kept = || kept_shape(&group.space, &group.folded);
        let (fit, at) =
            if space == group.space && (folded.is_empty() || group.folded.is_empty() || folded == group.folded) {
                let folded = if folded.is_empty() { &group.folded } else { folded };
                (Fit { folded: folded.to_vec(), space }, Place::Element)
            } else if folded.is_empty() && !group.folded.is_empty() && space == kept() {
                (Fit { folded: group.folded.clone(), space: group.space.clone() }, Place::Tail)
            } else {
                return None;
            };
        let n_axes = values.space(root).len();
        let own = View::of_axes(0..n_axes, n_axes);
        for read in reads {
            match self.group_of.get(&read.value) {
                Some(&maker) if maker == index => {
                    let is_tail = group.is_tail(values, read.value);
                    let here = read.view.as_ref() == Some(&own);
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
        Some(fit)
    }

    fn depends(&self, group: usize, on: usize) -> bool {
        has(&self.groups[group].ancestors, on)
    }

    fn open(&mut self, values: &Values<'_>, root: ValueId, reads: Vec<Read>, is_library: bool) -> usize {
        let index = self.groups.len();
        let ancestors = self.ancestors_of(&reads, index);
        let (space, folded) = (values.space(root), values.folded(root).to_vec());
        let cost = values.cost(root);
        let (roots, products) = (vec![root], vec![]);
        self.groups.push(FusionGroup { roots, space, folded, is_library, products, reads, cost, ancestors });
        self.group_of.insert(root, index);
        index
    }

    fn join(&mut self, values: &Values<'_>, index: usize, root: ValueId, reads: &[Read], fit: Fit) {
        let more = self.ancestors_of(reads, index);
        self.group_of.insert(root, index);
        let group = &mut self.groups[index];
        group.roots.push(root);
        group.cost = group.cost.saturating_add(values.cost(root));
        group.space = fit.space;
        group.folded = fit.folded;
        for read in reads {
            if self.group_of.get(&read.value) != Some(&index) && !group.reads.contains(read) {
                group.reads.push(read.clone());
            }
        }
        for (other, group) in self.groups.iter_mut().enumerate() {
            if other == index || has(&group.ancestors, index) {
                unite(&mut group.ancestors, &more);
            }
        }
    }

    /// The groups that reading this depends on, other than `index` itself.
    fn ancestors_of(&self, reads: &[Read], index: usize) -> Vec<u64> {
        let mut ancestors = vec![];
        for maker in reads.iter().filter_map(|read| self.group_of.get(&read.value).copied()) {
            if maker != index {
                unite(&mut ancestors, &self.groups[maker].ancestors);
                set(&mut ancestors, maker);
            }
        }
        ancestors
    }

    /// The groups that read each value from memory.
    pub(super) fn readers(&self) -> HashMap<ValueId, Vec<usize>> {
        let mut readers: HashMap<ValueId, Vec<usize>> = HashMap::new();
        for (index, group) in self.groups.iter().enumerate() {
            for read in &group.reads {
                let known = readers.entry(read.value).or_default();
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
        bits(&self.groups[reader].ancestors).all(|other| other == index || !self.depends(other, index))
    }

    /// Makes a group one with a group that reads it, which has no roots from then on.
    pub(super) fn absorb(&mut self, index: usize, reader: usize) {
        let own = std::mem::take(&mut self.groups[index].roots);
        let FusionGroup { roots, reads, ancestors, .. } = &mut self.groups[reader];
        let (roots, reads, mut ancestors) = (std::mem::take(roots), std::mem::take(reads), std::mem::take(ancestors));
        clear(&mut ancestors, index);
        self.group_of.extend(roots.iter().map(|&root| (root, index)));
        let group = &mut self.groups[index];
        group.reads.extend(reads.into_iter().filter(|read| !own.contains(&read.value)));
        group.roots = own;
        group.roots.extend(roots);
        unite(&mut group.ancestors, &ancestors);
        let ancestors = group.ancestors.clone();
        for group in &mut self.groups {
            if has(&group.ancestors, reader) {
                clear(&mut group.ancestors, reader);
                set(&mut group.ancestors, index);
            }
            if has(&group.ancestors, index) {
                unite(&mut group.ancestors, &ancestors);
            }
        }
    }

    /// The roots that are read by other groups than their own, or are outputs.
    pub(super) fn read_from_outside(&self, values: &Values<'_>) -> HashSet<ValueId> {
        let outputs = values.graph.outputs().iter().map(|&output| values.memory_of(output));
        self.groups.iter().flat_map(|group| group.reads.iter().map(|read| read.value)).chain(outputs).collect()
    }

    /// The groups in the order of the program, each after what it depends on, and where that leaves a choice after
    /// those that hold it up: `delayed_by` lists for each group the ones that should wait for it.
    pub(super) fn in_order(&self, delayed_by: &[Vec<usize>]) -> Vec<usize> {
        let mut waits: Vec<u32> = self.groups.iter().map(|group| n_bits(&group.ancestors)).collect();
        // As bits, too: as lists they would take many times as much in a long chain.
        let mut heirs = vec![vec![]; self.groups.len()];
        for (index, group) in self.groups.iter().enumerate() {
            bits(&group.ancestors).for_each(|on| set(&mut heirs[on], index));
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
            for heir in bits(&heirs[index]) {
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
                let others = readers[&parameter].iter().filter(|&&other| other != index);
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

/// The extents of the axes that are not folded.
pub(super) fn kept_shape(space: &[usize], folded: &[usize]) -> Vec<usize> {
    let kept = space.iter().enumerate().filter(|(axis, _)| !folded.contains(axis));
    kept.map(|(_, &extent)| extent).collect()
}

/// The reads of a library call: the memory under its arguments.
fn library_reads(values: &Values<'_>, root: ValueId) -> Vec<Read> {
    let memory = |&arg: &ValueId| values.strided(arg).map_or_else(|_| values.memory_of(arg), |(base, _)| base);
    let args = values.graph.node(root).args.iter();
    args.map(|arg| Read { value: memory(arg), view: None }).collect()
}

fn has(bits: &[u64], index: usize) -> bool {
    bits.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
}

/// The positions of the bits that are set, in order.
fn bits(bits: &[u64]) -> impl Iterator<Item = usize> {
    let of_word = |(at, &word): (usize, &u64)| {
        let next = |&rest: &u64| Some(rest & (rest - 1)).filter(|&rest| rest != 0);
        let first = Some(word).filter(|&word| word != 0);
        std::iter::successors(first, next).map(move |rest| 64 * at + rest.trailing_zeros() as usize)
    };
    bits.iter().enumerate().flat_map(of_word)
}

fn n_bits(bits: &[u64]) -> u32 {
    bits.iter().map(|word| word.count_ones()).sum()
}

fn set(bits: &mut Vec<u64>, index: usize) {
    if bits.len() <= index / 64 {
        bits.resize(index / 64 + 1, 0);
    }
    bits[index / 64] |= 1 << (index % 64);
}

fn clear(bits: &mut [u64], index: usize) {
    if let Some(word) = bits.get_mut(index / 64) {
        *word &= !(1 << (index % 64));
    }
}

fn unite(bits: &mut Vec<u64>, more: &[u64]) {
    if bits.len() < more.len() {
        bits.resize(more.len(), 0);
    }
    bits.iter_mut().zip(more).for_each(|(word, more)| *word |= more);
}
