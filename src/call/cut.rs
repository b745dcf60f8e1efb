//! Minimum cuts of networks.
//!
//! Guarantees the minimum cut that is nearest to the sink, whatever the order of edges: the fewest nodes are on the
//! sink's side.
//!
//! The idea: Dinic's algorithm. As long as the sink is within reach, shortest paths are filled along the levels of a
//! breadth-first search; a depth-first search with a memory of exhausted edges finds them. The graphs are sparse, as
//! nodes have few arguments, and few phases are needed.

use std::collections::VecDeque;

/// The capacity of what must not be cut. Sums of two of them do not overflow.
pub(crate) const UNCUTTABLE: u64 = u64::MAX / 4;

#[derive(Clone, Copy, Debug)]
struct Edge {
    to: usize,
    /// The residual capacity.
    rest: u64,
}

/// Nodes and edges with capacities.
#[derive(Debug)]
pub(crate) struct Network {
    /// Each edge is followed by its reverse.
    edges: Vec<Edge>,
    /// The edges from each node.
    from: Vec<Vec<usize>>,
}

impl Network {
    pub(crate) fn new(n_nodes: usize) -> Network {
        Network { edges: vec![], from: vec![vec![]; n_nodes] }
    }

    pub(crate) fn edge(&mut self, from: usize, to: usize, capacity: u64) {
        self.from[from].push(self.edges.len());
        self.edges.push(Edge { to, rest: capacity.min(UNCUTTABLE) });
        self.from[to].push(self.edges.len());
        self.edges.push(Edge { to: from, rest: 0 });
    }

    /// For each node whether it is on the sink's side of the cut.
    pub(crate) fn cut(mut self, source: usize, sink: usize) -> Vec<bool> {
        while let Some(levels) = self.levels(source, sink) {
            let mut next = vec![0; self.from.len()];
            while self.fill_path(source, sink, &levels, &mut next) {}
        }
        self.reaching(sink)
    }

    /// The distances of nodes from the source, if the sink has one.
    fn levels(&self, source: usize, sink: usize) -> Option<Vec<usize>> {
        let mut levels = vec![usize::MAX; self.from.len()];
        levels[source] = 0;
        let mut queue = VecDeque::from([source]);
        while let Some(node) = queue.pop_front() {
            for edge in self.from[node].iter().map(|&edge| self.edges[edge]) {
                if edge.rest > 0 && levels[edge.to] == usize::MAX {
                    levels[edge.to] = levels[node] + 1;
                    queue.push_back(edge.to);
                }
            }
        }
        (levels[sink] < usize::MAX).then_some(levels)
    }

    /// Fills one path along the levels; false if there is none. `next` is the first edge of each node worth a look.
    fn fill_path(&mut self, source: usize, sink: usize, levels: &[usize], next: &mut [usize]) -> bool {
        let mut path: Vec<usize> = vec![];
        let mut node = source;
        while node != sink {
            match self.from[node].get(next[node]) {
                Some(&edge) => {
                    let Edge { to, rest } = self.edges[edge];
                    if rest > 0 && levels[to] == levels[node] + 1 {
                        path.push(edge);
                        node = to;
                    } else {
                        next[node] += 1;
                    }
                }
                None => {
                    let Some(edge) = path.pop() else { return false };
                    node = self.edges[edge ^ 1].to;
                    next[node] += 1;
                }
            }
        }
        let flow = path.iter().map(|&edge| self.edges[edge].rest).min().unwrap_or(0);
        for edge in path {
            self.edges[edge].rest -= flow;
            self.edges[edge ^ 1].rest += flow;
        }
        true
    }

    /// The nodes from which more could flow to the sink.
    fn reaching(&self, sink: usize) -> Vec<bool> {
        let mut reaching = vec![false; self.from.len()];
        reaching[sink] = true;
        let mut queue = vec![sink];
        while let Some(node) = queue.pop() {
            for &edge in &self.from[node] {
                let before = self.edges[edge].to;
                if self.edges[edge ^ 1].rest > 0 && !reaching[before] {
                    reaching[before] = true;
                    queue.push(before);
                }
            }
        }
        reaching
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(n_nodes: usize, edges: &[(usize, usize, u64)]) -> Network {
        let mut network = Network::new(n_nodes);
        for &(from, to, capacity) in edges {
            network.edge(from, to, capacity);
        }
        network
    }

    /// The capacity of the edges from the source's side to the sink's.
    fn capacity(edges: &[(usize, usize, u64)], sides: &[bool]) -> u64 {
        edges.iter().filter(|(from, to, _)| !sides[*from] && sides[*to]).map(|(.., capacity)| capacity).sum()
    }

    #[test]
    fn of_two_equal_cuts_the_one_nearer_to_the_sink() {
        let chain = network(4, &[(0, 1, 3), (1, 2, 3), (2, 3, 5)]);
        assert_eq!(chain.cut(0, 3), [false, false, true, true]);
    }

    #[test]
    fn flow_is_taken_back_where_that_helps() {
        // The shortest paths in order fill the middle edge first.
        let edges = [(0, 1, 1), (1, 2, 1), (2, 5, 1), (0, 3, 1), (3, 2, 1), (1, 4, 1), (4, 5, 1)];
        assert_eq!(capacity(&edges, &network(6, &edges).cut(0, 5)), 2);
    }

    #[test]
    fn what_the_sink_cannot_be_reached_from_is_on_the_other_side() {
        assert_eq!(network(3, &[(0, 1, 7)]).cut(0, 2), [false, false, true]);
    }

    /// Against all cuts of small networks.
    #[test]
    fn no_cut_is_smaller() {
        let mut state = 7_u64;
        let mut random = move |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        for _ in 0..200 {
            let n = 3 + random(6) as usize;
            let n_edges = random(20) as usize;
            let mut node = || random(n as u64) as usize;
            let ends: Vec<(usize, usize)> = (0..n_edges).map(|_| (node(), node())).filter(|(a, b)| a != b).collect();
            let edges: Vec<(usize, usize, u64)> = ends.into_iter().map(|(a, b)| (a, b, 1 + random(9))).collect();
            let all = (0..1_u32 << n).map(|bits| (0..n).map(|node| bits >> node & 1 == 1).collect::<Vec<_>>());
            let sides = all.filter(|sides| !sides[0] && sides[n - 1]);
            let sized: Vec<(u64, usize)> =
                sides.map(|sides| (capacity(&edges, &sides), sides.iter().filter(|side| **side).count())).collect();
            let found = network(n, &edges).cut(0, n - 1);
            let size = (capacity(&edges, &found), found.iter().filter(|side| **side).count());
            assert_eq!(Some(&size), sized.iter().min(), "{edges:?}");
        }
    }
}
