//! Sums of rows over the workers of a group.
//!
//! A long row travels in buckets. While the partial sums of one bucket are under way, those of the bucket before, which
//! have arrived, are added up; and while these sums go round, the partial sums of a later bucket are made. Two buckets
//! have memory at a time, of a size that stays in the cache.

use std::marker::PhantomData;
use std::mem::{size_of, swap, take};
use std::ops::Range;

use super::shards::{Addend, Rows, ShardSum, add_block, blocks, nodes, scratch_len};
use super::{Collective, ONE_ROUND, Peers, cut};
use crate::error::Result;
use crate::library::communicator::share;
use crate::library::micro::with_bytes;

/// Bytes of a bucket for each worker, and at most for all: shorter messages cost more for their heads, and longer ones
/// leave the cache.
const PART: usize = 1 << 20;
const LONGEST: usize = 128 << 20;

/// A sum that is made together with other workers.
pub(super) struct Sum<'a, T> {
    rows: Rows<'a, T>,
    peers: &'a Peers<'a>,
    n_shards: usize,
    /// The nodes of the tree whose sums each worker makes.
    nodes: Vec<Vec<Range<usize>>>,
    /// Bytes of a row.
    row: usize,
    element: PhantomData<T>,
}

/// The memory of a bucket.
struct Bucket<'s> {
    /// The own partial sums: for each worker the part that it adds up, node by node. Empty if they need not be made.
    packed: &'s mut [u8],
    /// The partial sums of the part that this worker adds up, of the others, worker by worker and node by node.
    received: &'s mut [u8],
}

impl<'s> Bucket<'s> {
    /// A bucket in memory of which so many bytes are for partial sums; in none, if there is none.
    fn over(memory: &'s mut [u8], packed: usize) -> Bucket<'s> {
        let (packed, received) = memory.split_at_mut(packed.min(memory.len()));
        Bucket { packed, received }
    }
}

impl<'a, T: Addend> Sum<'a, T> {
    pub(super) fn new(of: &Collective, rows: Rows<'a, T>, peers: &'a Peers<'a>, row: usize) -> Sum<'a, T> {
        let all = 0..of.shards;
        let nodes = (0..of.size).map(|rank| nodes(all.clone(), &share(of.shards, rank, of.size))).collect();
        Sum { rows, peers, n_shards: of.shards, nodes, row, element: PhantomData }
    }

    /// The sum of all rows of all workers.
    pub(super) fn run(&self, out: &mut [u8]) -> Result<()> {
        let (packed, received) = self.bucket_bytes();
        let n_held = self.n_buckets().min(2);
        with_bytes(n_held * (packed + received), |scratch| {
            let (here, there) = scratch.split_at_mut(packed + received);
            self.in_buckets(out, Bucket::over(here, packed), Bucket::over(there, packed))
        })
    }

    fn in_buckets<'s>(&self, out: &mut [u8], mut here: Bucket<'s>, mut there: Bucket<'s>) -> Result<()> {
        let n_buckets = self.n_buckets();
        finish(self.pack(0, here.packed));
        self.exchange(0, &mut here, &mut || false)?;
        if n_buckets > 1 {
            finish(self.pack(1, there.packed));
        }
        for n in 0..n_buckets {
            let sources = self.sources(n, here.packed, here.received);
            let mut scratch = vec![0; scratch_len::<T>(&(0..self.n_shards), &sources, self.row)];
            let mut add = self.add(n, &sources, out, &mut scratch);
            if n + 1 < n_buckets {
                self.exchange(n + 1, &mut there, &mut add)?;
            }
            finish(add);
            let mut pack = self.pack(n + 2, here.packed);
            if !self.is_one_round() {
                let len = |rank| self.part(n, rank).len();
                self.peers.all_gather(&mut out[self.bucket(n)], &len, &mut pack)?;
            }
            finish(pack);
            swap(&mut here, &mut there);
        }
        Ok(())
    }

    /// Sends the partial sums of a bucket, and receives those of the others.
    fn exchange(&self, n: usize, bucket: &mut Bucket<'_>, work: &mut dyn FnMut() -> bool) -> Result<()> {
        let sends: Vec<&[u8]> = (0..self.size()).map(|to| self.packed(n, to, bucket.packed)).collect();
        let lens = (0..self.size()).map(|from| self.received_len(n, from));
        self.peers.exchange_while(&sends, &mut cut(bucket.received, lens), work)
    }

    /// Makes the own partial sums of a bucket, block by block; of none if there is no such bucket.
    fn pack<'s>(&'s self, n: usize, packed: &'s mut [u8]) -> impl FnMut() -> bool + 's {
        let is_made = n < self.n_buckets() && self.rows.as_it_is().is_none();
        let workers = if self.is_one_round() { 1 } else { self.size() };
        let parts = (0..if is_made { workers } else { 0 }).map(move |to| self.part(n, to));
        let own = &self.nodes[self.peers.rank];
        let of_part = move |part: Range<usize>| own.iter().map(move |node| (node, part.clone()));
        let in_blocks = |(node, part)| blocks::<T>(part).map(move |at| (node, at));
        let mut places = parts.flat_map(of_part).flat_map(in_blocks);
        let mut rest = packed;
        move || {
            let Some((node, at)) = places.next() else { return false };
            let (here, others) = take(&mut rest).split_at_mut(at.len());
            self.rows.add_up(node, at, here);
            rest = others;
            true
        }
    }

    /// Adds up the part of a bucket that this worker adds up, block by block.
    fn add<'s>(
        &'s self,
        n: usize,
        sources: &'s [ShardSum<'s>],
        out: &'s mut [u8],
        scratch: &'s mut [u8],
    ) -> impl FnMut() -> bool + 's {
        let part = self.part(n, self.peers.rank);
        let mut places = blocks::<T>(0..part.len());
        let mut rest = &mut out[part];
        move || {
            let Some(at) = places.next() else { return false };
            let (here, others) = take(&mut rest).split_at_mut(at.len());
            add_block::<T>(&(0..self.n_shards), sources, at, here, scratch);
            rest = others;
            true
        }
    }

    /// The partial sums of the part that this worker adds up, of all workers.
    fn sources<'s>(&'s self, n: usize, packed: &'s [u8], received: &'s [u8]) -> Vec<ShardSum<'s>> {
        let len = self.part(n, self.peers.rank).len();
        let mut rest = received;
        let mut sources = vec![];
        for (rank, nodes) in self.nodes.iter().enumerate() {
            let mut bytes = match rank == self.peers.rank {
                true => self.packed(n, rank, packed),
                false => rest.split_off(..self.received_len(n, rank)).expect("as many bytes as were received"),
            };
            for node in nodes {
                let partial = bytes.split_off(..len).expect("a part for each node");
                sources.push((node.clone(), partial));
            }
        }
        sources
    }

    /// The own partial sums that go to a worker.
    fn packed<'s>(&'s self, n: usize, to: usize, packed: &'s [u8]) -> &'s [u8] {
        let part = self.part(n, to);
        if let Some(row) = self.rows.as_it_is() {
            return &row[part];
        }
        let (start, n_nodes) = (self.bucket(n).start, self.nodes[self.peers.rank].len());
        &packed[n_nodes * (part.start - start)..n_nodes * (part.end - start)]
    }

    /// The bytes of the partial sums that come from a worker.
    fn received_len(&self, n: usize, from: usize) -> usize {
        if from == self.peers.rank { 0 } else { self.nodes[from].len() * self.part(n, self.peers.rank).len() }
    }

    /// The bytes of a row that travel as a bucket.
    fn bucket(&self, n: usize) -> Range<usize> {
        let len = self.bucket_len();
        (n * len).min(self.row)..((n + 1) * len).min(self.row)
    }

    /// The bytes of a row that a worker adds up, of those of a bucket.
    fn part(&self, n: usize, rank: usize) -> Range<usize> {
        let bucket = self.bucket(n);
        if self.is_one_round() {
            return bucket;
        }
        let elements = share(bucket.len() / size_of::<T>(), rank, self.size());
        bucket.start + elements.start * size_of::<T>()..bucket.start + elements.end * size_of::<T>()
    }

    fn n_buckets(&self) -> usize {
        if self.is_one_round() { 1 } else { self.row.div_ceil(self.bucket_len()) }
    }

    /// Bytes of a bucket, except the last, which may be shorter.
    fn bucket_len(&self) -> usize {
        PART.saturating_mul(self.size()).min(LONGEST)
    }

    /// Bytes of the own partial sums and of those of others, of a bucket.
    fn bucket_bytes(&self) -> (usize, usize) {
        let n_own = if self.rows.as_it_is().is_some() { 0 } else { self.nodes[self.peers.rank].len() };
        // No bucket is longer than the first, nor a part of it.
        let received = (0..self.size()).map(|from| self.received_len(0, from)).sum();
        (n_own * self.bucket(0).len(), received)
    }

    /// Whether each worker adds up all that travels.
    fn is_one_round(&self) -> bool {
        self.row <= ONE_ROUND
    }

    fn size(&self) -> usize {
        self.peers.size()
    }
}

/// Does all of the work that is left.
fn finish(mut work: impl FnMut() -> bool) {
    while work() {}
}
