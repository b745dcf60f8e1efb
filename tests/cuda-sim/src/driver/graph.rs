//! Graphs: nodes with what they depend on, and graphs ready to run.

use std::collections::BTreeSet;

use super::foreign::Code;
use super::work::Work;

/// A graph under construction.
#[derive(Clone, Default)]
pub(super) struct Graph {
    pub(super) nodes: Vec<Node>,
}

/// A node.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) handle: usize,
    pub(super) work: Work,
    /// Indices of the nodes before it.
    pub(super) deps: Vec<usize>,
}

/// A graph that can be launched.
#[derive(Clone)]
pub(super) struct Exec {
    pub(super) nodes: Vec<Node>,
    pub(super) device: usize,
}

impl Graph {
    /// The index of the node of a handle.
    pub(super) fn index(&self, handle: usize) -> Result<usize, Code> {
        self.nodes.iter().position(|node| node.handle == handle).ok_or(Code::INVALID_VALUE)
    }

    /// Adds a node behind others.
    pub(super) fn add(&mut self, handle: usize, work: Work, deps: &[usize]) -> Result<(), Code> {
        let deps = deps.iter().map(|dep| self.index(*dep)).collect::<Result<_, _>>()?;
        self.nodes.push(Node { handle, work, deps });
        Ok(())
    }

    /// Whether each node is before one of these, or one of them.
    pub(super) fn all_lead_to(&self, tails: &[usize]) -> bool {
        let (mut reached, mut open) = (BTreeSet::new(), tails.to_vec());
        while let Some(index) = open.pop() {
            if reached.insert(index) {
                open.extend(&self.nodes[index].deps);
            }
        }
        reached.len() == self.nodes.len()
    }
}

impl Exec {
    /// An order of the nodes that respects what they depend on: the first or the last of those that could be next.
    ///
    /// A dependency that was forgotten shows as a difference between the two.
    pub(super) fn sequence(&self, reverse: bool) -> Vec<usize> {
        let mut waits: Vec<usize> = self.nodes.iter().map(|node| node.deps.len()).collect();
        let mut behind = vec![vec![]; self.nodes.len()];
        for (index, node) in self.nodes.iter().enumerate() {
            for dep in &node.deps {
                behind[*dep].push(index);
            }
        }
        let mut ready: BTreeSet<usize> = (0..self.nodes.len()).filter(|index| waits[*index] == 0).collect();
        let mut found = Vec::with_capacity(self.nodes.len());
        while let Some(index) = if reverse { ready.pop_last() } else { ready.pop_first() } {
            found.push(index);
            for next in &behind[index] {
                waits[*next] -= 1;
                if waits[*next] == 0 {
                    ready.insert(*next);
                }
            }
        }
        found
    }

    /// Takes over the work of a graph of the same shape; the node that differs otherwise.
    pub(super) fn update(&mut self, graph: &Graph) -> Result<(), Option<usize>> {
        if self.nodes.len() != graph.nodes.len() {
            return Err(None);
        }
        for (own, new) in self.nodes.iter().zip(&graph.nodes) {
            let same_kind = std::mem::discriminant(&own.work) == std::mem::discriminant(&new.work);
            if own.deps != new.deps || !same_kind {
                return Err(Some(new.handle));
            }
        }
        for (own, new) in self.nodes.iter_mut().zip(&graph.nodes) {
            own.work = new.work.clone();
        }
        Ok(())
    }
}
