//! Which groups read a value, while groups grow.

use rustc_hash::FxHashMap;

use super::ancestors::Ancestors;

/// The room that a root takes in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct RootSize {
    pub(super) n_reads: usize,
    /// In units of an addition.
    pub(super) cost: u32,
}

/// The groups that read a value, in the order in which they came to it.
///
/// In a long program all of thousands of steps may read one weight, and the root of a step can join none of the earlier
/// ones, on which it depends. So groups are looked through by runs, of which each knows its members as a set.
#[derive(Default)]
pub(super) struct Readers {
    /// A group that reads it again after another one is listed twice.
    groups: Vec<usize>,
    /// The set of each whole run.
    runs: Vec<Ancestors>,
    /// By the size of a root: of each whole chunk, the groups that may have room for it. Where terms of a sum read one weight,
    /// all groups but the last few are full. A group is left out for good, even if it would read nothing more with the
    /// root, or roots of the group turn out to need no memory.
    open: FxHashMap<RootSize, Vec<Vec<usize>>>,
}

impl Readers {
    /// Members of a run. A run that is looked through costs as many tests, and one that is left out as many words as it
    /// spreads over.
    const RUN: usize = 256;

    /// Members of a chunk, after which it is known anew which groups are full: so many more are tried at most.
    const CHUNK: usize = 32;

    /// Chunks of a run.
    const CHUNKS: usize = Readers::RUN / Readers::CHUNK;

    pub(super) fn add(&mut self, group: usize) {
        if self.groups.last() == Some(&group) {
            return;
        }
        self.groups.push(group);
        if self.groups.len().is_multiple_of(Readers::RUN) {
            let mut run = Ancestors::default();
            self.groups[self.groups.len() - Readers::RUN..].iter().for_each(|&group| run.insert(group));
            self.runs.push(run);
        }
    }

    /// Whether all groups of a run are in a set.
    fn is_inside(&self, run: usize, set: &Ancestors) -> bool {
        self.runs.get(run).is_some_and(|run| set.includes(run))
    }

    /// Leaves out groups from now on that are full for a root of this size, except those that are in a set, which are
    /// not looked through either.
    pub(super) fn leave_out_full(&mut self, size: RootSize, set: &Ancestors, is_full: impl Fn(usize) -> bool) {
        let n_chunks = self.groups.len() / Readers::CHUNK;
        let n_known = self.open.get(&size).map_or(0, Vec::len);
        if n_known == n_chunks {
            return;
        }
        let mut open = self.open.remove(&size).unwrap_or_default();
        open.extend(self.groups.chunks_exact(Readers::CHUNK).skip(n_known).map(<[usize]>::to_vec));
        for (run, chunks) in open.chunks_mut(Readers::CHUNKS).enumerate() {
            if !self.is_inside(run, set) {
                chunks.iter_mut().for_each(|groups| groups.retain(|&group| !is_full(group)));
            }
        }
        self.open.insert(size, open);
    }

    /// The groups that are not in a set, in order, without those that are known to be full for a root of this size.
    pub(super) fn outside<'s>(&'s self, set: &'s Ancestors, size: RootSize) -> impl Iterator<Item = usize> + 's {
        let open = self.open.get(&size).map_or(&[][..], |open| open);
        let n_known = open.len() * Readers::CHUNK;
        let runs = self.groups.chunks(Readers::RUN).enumerate().filter(move |&(run, _)| !self.is_inside(run, set));
        let groups = runs.flat_map(move |(run, groups)| {
            let known = open.chunks(Readers::CHUNKS).nth(run).unwrap_or_default();
            let others = &groups[n_known.saturating_sub(run * Readers::RUN).min(groups.len())..];
            known.iter().flatten().chain(others)
        });
        groups.copied().filter(|&group| !set.contains(group))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use retape_kernels::ir::random::Rng;

    use super::*;

    #[test]
    fn readers_leave_out_a_set_and_keep_their_order() {
        let mut rng = Rng::new(3);
        let mut draw = |n: usize| rng.below(n);
        for n in [0, 1, Readers::RUN - 1, Readers::RUN, Readers::RUN + 1, 10 * Readers::RUN + 7] {
            let mut readers = Readers::default();
            let known = RootSize { n_reads: 2, cost: 5 };
            let mut listed: Vec<usize> = vec![];
            for group in 0..n {
                // Now and then an earlier group, and now and then the same one again.
                let group = if draw(4) == 0 { draw(group + 1) } else { group };
                for _ in 0..=draw(2) {
                    readers.add(group);
                    if listed.last() != Some(&group) {
                        listed.push(group);
                    }
                }
            }
            for part in [0, n / 3, n.saturating_sub(1), n] {
                let (mut first, mut scattered) = (Ancestors::default(), Ancestors::default());
                (0..part).for_each(|group| first.insert(group));
                (0..part).for_each(|_| scattered.insert(draw(n)));
                for set in [first, scattered] {
                    // Of the groups that are full, some are inside the set and some are not.
                    let full: BTreeSet<usize> = (0..n).filter(|_| draw(3) > 0).collect();
                    readers.open.clear();
                    readers.leave_out_full(known, &set, |group| full.contains(&group));
                    let n_whole = listed.len() / Readers::CHUNK * Readers::CHUNK;
                    let outside = |from: &[usize]| from.iter().copied().filter(|&group| !set.contains(group)).collect();
                    let all: Vec<usize> = outside(&listed);
                    let (first, others): (Vec<usize>, Vec<usize>) =
                        (outside(&listed[..n_whole]), outside(&listed[n_whole..]));
                    let open = first.into_iter().filter(|group| !full.contains(group)).chain(others);
                    assert!(readers.outside(&set, known).eq(open), "{part} of {n} without full ones");
                    for (n_reads, cost) in [(0, 5), (1, 5), (3, 5), (2, 4)] {
                        let size = RootSize { n_reads, cost };
                        assert!(readers.outside(&set, size).eq(all.iter().copied()), "{part} of {n}");
                    }
                }
            }
        }
    }
}
