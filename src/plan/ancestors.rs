//! Sets of groups, as each group has one of those that it depends on.
//!
//! A group depends on nearly the same groups as those that it reads. Each set with bits of its own would take
//! memory quadratic in the length of a chain; so sets are made of blocks, and those with a block in common share it.

use std::rc::Rc;

const WORDS: usize = 32;

/// Groups that one block has a bit for.
const GROUPS: usize = 64 * WORDS;

type Block = [u64; WORDS];

/// A set of groups by number.
#[derive(Clone, Debug, Default)]
pub(super) struct Ancestors {
    /// Nothing for a block without groups.
    blocks: Vec<Option<Rc<Block>>>,
}

impl Ancestors {
    pub(super) fn contains(&self, group: usize) -> bool {
        let block = self.blocks.get(group / GROUPS).and_then(Option::as_ref);
        block.is_some_and(|block| block[group % GROUPS / 64] >> (group % 64) & 1 == 1)
    }

    pub(super) fn insert(&mut self, group: usize) {
        // A block is copied only where that changes it.
        if !self.contains(group) {
            let at = group / GROUPS;
            self.blocks.resize(self.blocks.len().max(at + 1), None);
            let block = self.blocks[at].get_or_insert_with(|| Rc::new([0; WORDS]));
            Rc::make_mut(block)[group % GROUPS / 64] |= 1 << (group % 64);
        }
    }

    /// Adds all groups of another set.
    pub(super) fn unite(&mut self, more: &Ancestors) {
        self.blocks.resize(self.blocks.len().max(more.blocks.len()), None);
        for (own, more) in self.blocks.iter_mut().zip(&more.blocks) {
            match (own, more) {
                (_, None) => {}
                (Some(own), Some(more)) if includes(own, more) => {}
                (Some(own), Some(more)) if !includes(more, own) => {
                    Rc::make_mut(own).iter_mut().zip(&**more).for_each(|(word, more)| *word |= more);
                }
                (own, Some(more)) => *own = Some(Rc::clone(more)),
            }
        }
    }

    /// Whether all groups of another set are in this one.
    pub(super) fn includes(&self, other: &Ancestors) -> bool {
        other.blocks.iter().enumerate().all(|(at, other)| match (self.blocks.get(at), other) {
            (_, None) => true,
            (Some(Some(own)), Some(other)) => includes(own, other),
            (Some(None) | None, Some(other)) => other.iter().all(|&word| word == 0),
        })
    }
}

fn includes(block: &Rc<Block>, other: &Rc<Block>) -> bool {
    Rc::ptr_eq(block, other) || block.iter().zip(&**other).all(|(word, other)| other & !word == 0)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashSet};

    use super::*;

    /// A number below `n` from a sequence that is the same on every run.
    fn draw(state: &mut u64, n: usize) -> usize {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) as usize % n
    }

    #[test]
    fn they_are_sets() {
        let n = 3 * GROUPS + 5;
        let state = &mut 1;
        let mut sets: Vec<(Ancestors, BTreeSet<usize>)> = vec![Default::default(); 8];
        for _ in 0..4000 {
            let (a, b) = (draw(state, sets.len()), draw(state, sets.len()));
            match draw(state, 4) {
                0 => {
                    // Neighbours at the edges of words and blocks, more often than others.
                    let edge = [63, 64, GROUPS - 1, GROUPS, 2 * GROUPS, n - 1][draw(state, 6)];
                    let group = if draw(state, 2) == 0 { edge } else { draw(state, n) };
                    sets[a].0.insert(group);
                    sets[a].1.insert(group);
                }
                1 => sets[a] = sets[b].clone(),
                2 => {
                    let (more, more_naive) = sets[b].clone();
                    sets[a].0.unite(&more);
                    sets[a].1.extend(more_naive);
                }
                _ => sets[a] = Default::default(),
            }
            let (ours, naive) = &sets[a];
            assert_eq!(ours.includes(&sets[b].0), naive.is_superset(&sets[b].1));
            let group = draw(state, n);
            assert_eq!(ours.contains(group), naive.contains(&group));
        }
        for (ours, naive) in &sets {
            assert!((0..n + GROUPS).filter(|&group| ours.contains(group)).eq(naive.iter().copied()));
        }
    }

    /// Each group reads the one before it and the first one, and one in two is read by nobody else.
    #[test]
    fn the_sets_of_a_chain_share_their_blocks() {
        let n = 8 * GROUPS;
        let mut sets: Vec<Ancestors> = vec![Ancestors::default()];
        for group in 1..n {
            let mut set = Ancestors::default();
            for read in [0, group - 1, group.saturating_sub(2) & !1] {
                set.unite(&sets[read]);
                set.insert(read);
            }
            sets.push(set);
        }
        let blocks = || sets.iter().flat_map(|set| set.blocks.iter().flatten());
        let distinct: HashSet<*const Block> = blocks().map(Rc::as_ptr).collect();
        assert!(blocks().count() > 4 * n);
        assert!(distinct.len() <= n + 8, "{} blocks of {n} groups", distinct.len());
    }
}
