//! Sums and copies over the workers of a group.
//!
//! A batch is divided into shards, which are numbered through over the workers. Partial sums are added along one binary
//! tree over the shards: a range of more than one splits after the largest power of two below its length. So the bits of
//! a sum depend on the number of shards, and not on the number of workers: a worker adds up the nodes of the tree all of
//! whose shards it holds, only bytes travel, and additions across workers are those of the same tree.
//!
//! Long sums travel in two rounds (R. Thakur, R. Rabenseifner, W. Gropp: Optimization of collective communication
//! operations in MPICH, 2005): each worker receives its part of all partial sums, adds them, and sends the result to all.

use std::mem::size_of;
use std::ops::Range;

use half::{bf16, f16};
use retape_runtime::{DType, Shape};

use super::communicator::{Communicator, communicator, is_alone, share};
use super::extents::{Check, count, countable};
use super::text::{alternatives, descriptor};
use super::token::Token;
use super::view::only;
use crate::ensure::ensure;
use crate::error::{Error, Result};

alternatives! {
    /// How the arrays of all workers become one.
    CollectiveKind {
        /// The sum over all shards.
        Sum = "sum",
        /// The sum over all shards, once for each shard of the worker.
        SumEach = "sum_each",
        /// The arrays of all workers, one after the other.
        Gather = "gather",
        /// The arrays of worker 0.
        Broadcast = "broadcast",
        /// From an array with a part for each worker to the sum of this worker's parts of all workers.
        ReduceScatter = "reduce_scatter",
    }
}

descriptor! {
    /// From the arrays of each shard of this worker, shard by shard, to all arrays in a row, combined over the workers.
    /// Reads a token after the arrays, so that the workers come to their collectives in one order.
    Collective "collective" {
        /// The kind.
        kind: CollectiveKind,
        /// The number of the group.
        group: usize,
        /// The number of its workers.
        size: usize,
        /// The number of shards of all workers.
        shards: usize,
        /// The number of shards that this worker holds.
        held: usize,
        /// The dtype of the arrays.
        dtype: DType,
        /// The number of elements of each array of a shard.
        lens: Shape,
    }
}

/// Sums of more bytes than this travel in two rounds.
pub(crate) const ONE_ROUND: usize = 64 << 10;

/// More shards than this, or arrays of all shards of a worker, are refused.
const MOST: usize = 1 << 20;

/// Elements that are added at a time, so that partial sums stay in the cache.
const BLOCK: usize = 8 << 10;

impl Collective {
    fn check(&self) -> Check {
        let Collective { kind, size, shards, held, dtype, lens, .. } = self;
        ensure!(*size >= 1, "a group of no workers");
        ensure!(*held == 1 || self.is_over_shards(), "{held} shards instead of 1");
        let adds = self.is_over_shards() || *kind == CollectiveKind::ReduceScatter;
        ensure!(!adds || *dtype != DType::Bool, "bool is not added up");
        let has_all = *size > 1 || !self.is_over_shards() || held == shards;
        ensure!(has_all, "{held} of {shards} shards in a group of one");
        ensure!((1..=*shards).contains(held), "{held} of {shards} shards");
        ensure!(*size <= *shards, "{shards} shards for {size} workers");
        let n_arrays = held.saturating_mul(lens.len());
        ensure!(
            *shards <= MOST && n_arrays <= MOST,
            "{n_arrays} arrays of {shards} shards, where {MOST} can be counted"
        );
        let total = lens.iter().try_fold(0_usize, |sum, &len| sum.checked_add(len));
        let Some(total) = total else { return Err(format!("arrays of {lens} elements are more than can be counted")) };
        if *kind == CollectiveKind::ReduceScatter {
            ensure!(
                lens.len() == 1 && total % size == 0,
                "arrays of {lens} elements have no part for each of {size} workers"
            );
        }
        countable("the result", &[total.max(1), *shards, *size])
    }

    fn is_not_for(&self, size: usize) -> String {
        format!("group {} has {size} workers, the step is for {}", self.group, self.size)
    }

    /// Whether it adds up over shards.
    pub(crate) fn is_over_shards(&self) -> bool {
        matches!(self.kind, CollectiveKind::Sum | CollectiveKind::SumEach)
    }

    /// The number of elements of all arrays of a shard.
    pub(crate) fn total(&self) -> usize {
        self.lens.iter().fold(0, |sum, &len| sum.saturating_add(len))
    }

    /// The dtype and the number of elements of each input.
    pub fn inputs(&self) -> Vec<(DType, usize)> {
        let shard = self.lens.iter().map(|&len| (self.dtype, len));
        // A descriptor that is refused may name more shards than there is memory for.
        let shards = (0..self.held.min(MOST)).flat_map(|_| shard.clone()).take(MOST);
        shards.chain([(Token::DTYPE, 0)]).collect()
    }

    /// The dtype and the number of elements of each output.
    pub fn outputs(&self) -> Vec<(DType, usize)> {
        vec![(self.dtype, count(&[self.n_rows(), self.row()]))]
    }

    /// The number of elements of a row of the result.
    pub(crate) fn row(&self) -> usize {
        match self.kind {
            CollectiveKind::ReduceScatter => self.total() / self.size.max(1),
            _ => self.total(),
        }
    }

    /// How many rows of all arrays the result has.
    pub fn n_rows(&self) -> usize {
        match self.kind {
            CollectiveKind::Sum | CollectiveKind::Broadcast | CollectiveKind::ReduceScatter => 1,
            CollectiveKind::SumEach => self.held,
            CollectiveKind::Gather => self.size,
        }
    }

    /// Computes the outputs.
    ///
    /// # Panics
    /// If the descriptor is not valid or the buffers are not as `inputs` and `outputs` say, or if the group is not known
    /// or its communicator fails.
    pub fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        if let Err(error) = self.try_run(inputs, outputs) {
            panic!("{error}");
        }
    }

    /// Computes the outputs: there is one order of additions, and so one way to.
    ///
    /// # Panics
    /// As [`run`](Collective::run).
    pub fn reference(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        self.run(inputs, outputs);
    }

    /// Computes the outputs.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Communication`] if the group is not known in this process, or its communicator fails.
    ///
    /// # Panics
    ///
    /// If the descriptor is not valid or the buffers are not as `inputs` and `outputs` say.
    pub fn try_run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<()> {
        assert!(self.is_valid(), "{self}");
        let lens: Vec<usize> = inputs.iter().map(|bytes| bytes.len()).collect();
        let wanted: Vec<usize> = self.inputs().iter().map(|(dtype, len)| dtype.size() * len).collect();
        assert_eq!(lens, wanted, "lengths of the inputs of {self}");
        let out = only(outputs);
        let row = self.row() * self.dtype.size();
        assert_eq!(out.len(), self.n_rows() * row, "length of the output of {self}");
        let arrays = &inputs[..inputs.len() - 1];
        let peers = self.peers()?;
        match self.kind {
            CollectiveKind::Sum | CollectiveKind::ReduceScatter => self.sum(arrays, out, peers.as_ref()),
            CollectiveKind::SumEach => {
                let (first, others) = out.split_at_mut(row);
                self.sum(arrays, first, peers.as_ref())?;
                others.chunks_exact_mut(row.max(1)).for_each(|other| other.copy_from_slice(first));
                Ok(())
            }
            CollectiveKind::Gather => {
                let rank = peers.as_ref().map_or(0, |peers| peers.rank);
                pack(arrays, &mut out[rank * row..(rank + 1) * row]);
                peers.map_or(Ok(()), |peers| peers.all_gather(out, &|rank| rank * row..(rank + 1) * row))
            }
            CollectiveKind::Broadcast => {
                pack(arrays, out);
                peers.map_or(Ok(()), |peers| peers.broadcast(out))
            }
        }
    }

    /// The workers that the step runs with; `None` if there is nobody else.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Communication`] if the group is not known in this process, or is not that of the step.
    pub(crate) fn peers(&self) -> Result<Option<Peers<'_>>> {
        if self.size > 1 {
            return Peers::of(self).map(Some);
        }
        // Code that was made for one worker, and loaded by several, would train a model on each.
        match communicator(self.group).map(|workers| workers.size()).filter(|&size| size > 1) {
            Some(size) => Err(Error::Communication(self.is_not_for(size))),
            None => Ok(None),
        }
    }

    fn sum(&self, arrays: &[&[u8]], out: &mut [u8], peers: Option<&Peers<'_>>) -> Result<()> {
        match self.dtype {
            DType::F32 => self.sum_of::<f32>(arrays, out, peers),
            DType::F64 => self.sum_of::<f64>(arrays, out, peers),
            DType::F16 => self.sum_of::<f16>(arrays, out, peers),
            DType::Bf16 => self.sum_of::<bf16>(arrays, out, peers),
            DType::I32 | DType::U32 => self.sum_of::<u32>(arrays, out, peers),
            DType::I64 => self.sum_of::<u64>(arrays, out, peers),
            DType::U8 => self.sum_of::<u8>(arrays, out, peers),
            DType::Bool => unreachable!("refused by `check`"),
        }
    }

    fn sum_of<T: Addend>(&self, arrays: &[&[u8]], out: &mut [u8], peers: Option<&Peers<'_>>) -> Result<()> {
        match (self.kind, peers) {
            (CollectiveKind::ReduceScatter, None) => {
                out.copy_from_slice(arrays[0]);
                Ok(())
            }
            (CollectiveKind::ReduceScatter, Some(peers)) => self.reduce_scatter::<T>(arrays[0], out, peers),
            _ => self.sum_over_shards::<T>(arrays, out, peers),
        }
    }

    fn reduce_scatter<T: Addend>(&self, rows: &[u8], out: &mut [u8], peers: &Peers<'_>) -> Result<()> {
        let part = |rank: usize| &rows[rank * out.len()..(rank + 1) * out.len()];
        let sends: Vec<&[u8]> = (0..self.size).map(part).collect();
        let mut received = vec![vec![0; out.len()]; self.size];
        peers.exchange(&sends, &mut received)?;
        received[peers.rank].copy_from_slice(sends[peers.rank]);
        let sources: Vec<Source<'_>> = received.iter().enumerate().map(|(n, bytes)| (n..n + 1, &bytes[..])).collect();
        add_up::<T>(&(0..self.size), &sources, out, false);
        Ok(())
    }

    fn sum_over_shards<T: Addend>(&self, arrays: &[&[u8]], out: &mut [u8], peers: Option<&Peers<'_>>) -> Result<()> {
        let (rank, size) = peers.map_or((0, 1), |peers| (peers.rank, self.size));
        let held = share(self.shards, rank, size);
        let all = 0..self.shards;
        let nodes = |rank| nodes(all.clone(), &share(self.shards, rank, size));
        let own = nodes(rank);
        let row = out.len();
        // One partial sum goes where the result will be.
        let mut several = vec![0; if own.len() > 1 { own.len() * row } else { 0 }];
        let partial: &mut [u8] = if own.len() > 1 { &mut several } else { &mut *out };
        for (node, partial) in own.iter().zip(partial.chunks_exact_mut(row.max(1))) {
            let mut start = 0;
            for (n, len) in self.lens.iter().enumerate() {
                let end = start + len * size_of::<T>();
                let arrays = held.clone().zip(arrays.chunks_exact(self.lens.len()));
                let sources: Vec<Source<'_>> = arrays.map(|(shard, arrays)| (shard..shard + 1, arrays[n])).collect();
                add_up::<T>(node, &sources, &mut partial[start..end], self.kind == CollectiveKind::SumEach);
                start = end;
            }
        }
        let Some(peers) = peers else { return Ok(()) };
        let counts: Vec<usize> = (0..size).map(|rank| nodes(rank).len()).collect();
        // Each worker adds up a part of the elements: all of them if the message is short.
        let one_round = row <= ONE_ROUND;
        let part = |rank| {
            let elements = if one_round { 0..row / size_of::<T>() } else { share(row / size_of::<T>(), rank, size) };
            elements.start * size_of::<T>()..elements.end * size_of::<T>()
        };
        let sent: Vec<Vec<u8>> = match own.len() {
            1 => vec![],
            _ => (0..size).map(|to| partials(&several, row, part(to))).collect(),
        };
        let partial: &[u8] = if own.len() > 1 { &several } else { &*out };
        let sends: Vec<&[u8]> =
            (0..size).map(|to| sent.get(to).map_or_else(|| &partial[part(to)], Vec::as_slice)).collect();
        let mine = part(rank);
        let mut received: Vec<Vec<u8>> =
            counts.iter().enumerate().map(|(from, n)| vec![0; if from == rank { 0 } else { n * mine.len() }]).collect();
        peers.exchange(&sends, &mut received)?;
        received[rank] = partials(partial, row, mine.clone());
        drop(sends);
        let mut sources: Vec<Source<'_>> = vec![];
        for (rank, bytes) in received.iter().enumerate() {
            let empty = [].as_slice();
            let pieces = bytes.chunks_exact(mine.len().max(1)).chain(std::iter::repeat(empty));
            sources.extend(nodes(rank).into_iter().zip(pieces));
        }
        add_up::<T>(&all, &sources, &mut out[mine], false);
        if one_round { Ok(()) } else { peers.all_gather(out, &part) }
    }
}

/// A part of each of several rows, one after the other.
fn partials(rows: &[u8], row: usize, part: Range<usize>) -> Vec<u8> {
    rows.chunks_exact(row.max(1)).flat_map(|row| &row[part.clone()]).copied().collect()
}

fn pack(arrays: &[&[u8]], mut out: &mut [u8]) {
    for array in arrays {
        let (here, rest) = out.split_at_mut(array.len());
        here.copy_from_slice(array);
        out = rest;
    }
}

/// The communicator of a step that runs, and how the step is called among the workers.
pub(crate) struct Peers<'c> {
    pub(crate) communicator: std::sync::Arc<dyn Communicator>,
    collective: &'c Collective,
    pub(crate) rank: usize,
}

impl<'c> Peers<'c> {
    fn of(collective: &'c Collective) -> Result<Peers<'c>> {
        let Collective { group, size, shards, held, .. } = *collective;
        let fail = |reason: String| Err(Error::Communication(reason));
        if is_alone() {
            return fail(format!("{collective} takes other workers, who do not look at their functions now"));
        }
        let Some(communicator) = communicator(group) else {
            return fail(format!("group {group} of {size} workers is not known in this process"));
        };
        if communicator.size() != size {
            return fail(collective.is_not_for(communicator.size()));
        }
        let rank = communicator.rank();
        let share = share(shards, rank, size).len();
        if collective.is_over_shards() && share != held {
            return fail(format!("worker {rank} of {size} holds {share} of {shards} shards, the step is for {held}"));
        }
        Ok(Peers { communicator, collective, rank })
    }

    fn exchange(&self, sends: &[&[u8]], receives: &mut [Vec<u8>]) -> Result<()> {
        let mut receives: Vec<&mut [u8]> = receives.iter_mut().map(Vec::as_mut_slice).collect();
        self.exchange_slices(sends, &mut receives)
    }

    fn exchange_slices(&self, sends: &[&[u8]], receives: &mut [&mut [u8]]) -> Result<()> {
        self.communicator.exchange(&self.call(), sends, receives).map_err(Error::Communication)
    }

    /// How the workers call the step. Those that hold other numbers of shards are in the same exchange.
    pub(crate) fn call(&self) -> String {
        let Collective { kind, shards, dtype, lens, .. } = self.collective;
        format!("{} of {dtype}{lens} over {shards} shards", kind.name())
    }

    /// Sends the own part of a row to all, and receives the others'.
    fn all_gather(&self, row: &mut [u8], part: &dyn Fn(usize) -> Range<usize>) -> Result<()> {
        let own = row[part(self.rank)].to_vec();
        let sends = vec![own.as_slice(); self.collective.size];
        let mut receives: Vec<&mut [u8]> = vec![];
        let mut rest = row;
        for rank in 0..self.collective.size {
            let (here, others) = rest.split_at_mut(part(rank).len());
            receives.push(if rank == self.rank { &mut [] } else { here });
            rest = others;
        }
        self.exchange_slices(&sends, &mut receives)
    }

    /// Sends the row of worker 0 to all: a part to each, which then go round.
    fn broadcast(&self, row: &mut [u8]) -> Result<()> {
        let (rank, size) = (self.rank, self.collective.size);
        let one_round = size == 2 || row.len() <= ONE_ROUND;
        let part = |to: usize| if one_round { 0..row.len() } else { share(row.len(), to, size) };
        let parts: Vec<Range<usize>> = (0..size).map(part).collect();
        if rank == 0 {
            let sends: Vec<&[u8]> = parts.iter().map(|part| &row[part.clone()]).collect();
            self.exchange(&sends, &mut vec![vec![]; size])?;
        } else {
            let sends = vec![[].as_slice(); size];
            let mut receives: Vec<&mut [u8]> = (0..size).map(|_| [].as_mut_slice()).collect();
            receives[0] = &mut row[parts[rank].clone()];
            self.exchange_slices(&sends, &mut receives)?;
        }
        if one_round { Ok(()) } else { self.all_gather(row, &|rank| parts[rank].clone()) }
    }
}

/// Shards, all below one node of the tree, and the bytes of their sum. Sources are in the order of their shards.
type Source<'a> = (Range<usize>, &'a [u8]);

/// The bytes of the sum of a node, if it is a source.
fn source<'a>(sources: &[Source<'a>], node: &Range<usize>) -> Option<&'a [u8]> {
    let at = sources.binary_search_by_key(&node.start, |(shards, _)| shards.start).ok()?;
    (sources[at].0 == *node).then_some(sources[at].1)
}

/// Where a node of the tree splits, if it is not a leaf.
pub(crate) fn middle(node: &Range<usize>) -> Option<usize> {
    (node.len() > 1).then(|| node.start + node.len().next_power_of_two() / 2)
}

/// The largest nodes below `node` all of whose shards are among those `held`.
pub(crate) fn nodes(node: Range<usize>, held: &Range<usize>) -> Vec<Range<usize>> {
    if held.start <= node.start && node.end <= held.end {
        return vec![node];
    }
    match middle(&node) {
        Some(middle) if node.start < held.end && held.start < node.end => {
            let mut found = nodes(node.start..middle, held);
            found.append(&mut nodes(middle..node.end, held));
            found
        }
        _ => vec![],
    }
}

/// Adds up what lies below a node. `positive` sums have no negative zero, whatever the number of shards.
fn add_up<T: Addend>(node: &Range<usize>, sources: &[Source<'_>], out: &mut [u8], positive: bool) {
    let depth = usize::BITS - node.len().leading_zeros();
    let block = BLOCK * size_of::<T>();
    let mut scratch = vec![0; depth as usize * block.min(out.len())];
    for (n, out) in out.chunks_mut(block).enumerate() {
        let at = n * block..n * block + out.len();
        add_block::<T>(node, sources, at, out, &mut scratch);
        if positive {
            for x in out.chunks_exact_mut(size_of::<T>()) {
                T::store(T::load(x).plus(T::ZERO), x);
            }
        }
    }
}

fn add_block<T: Addend>(
    node: &Range<usize>,
    sources: &[Source<'_>],
    at: Range<usize>,
    out: &mut [u8],
    scratch: &mut [u8],
) {
    if let Some(bytes) = source(sources, node) {
        out.copy_from_slice(&bytes[at]);
        return;
    }
    let middle = middle(node).expect("each leaf of the tree is a source, or below one");
    add_block::<T>(&(node.start..middle), sources, at.clone(), out, scratch);
    let (other, scratch) = scratch.split_at_mut(out.len());
    let right = middle..node.end;
    match source(sources, &right) {
        Some(bytes) => add::<T>(out, &bytes[at]),
        None => {
            add_block::<T>(&right, sources, at, other, scratch);
            add::<T>(out, other);
        }
    }
}

fn add<T: Addend>(sum: &mut [u8], other: &[u8]) {
    for (x, y) in sum.chunks_exact_mut(size_of::<T>()).zip(other.chunks_exact(size_of::<T>())) {
        T::store(T::load(x).plus(T::load(y)), x);
    }
}

/// An element type that is added up. Integers wrap, and those of one size are added by the same bits.
trait Addend: Copy {
    const ZERO: Self;
    fn load(bytes: &[u8]) -> Self;
    fn store(self, bytes: &mut [u8]);
    fn plus(self, other: Self) -> Self;
}

macro_rules! addends {
    ($($t:ty: $zero:expr, $plus:expr;)*) => {$(
        impl Addend for $t {
            const ZERO: $t = $zero;
            #[inline(always)]
            fn load(bytes: &[u8]) -> $t {
                <$t>::from_ne_bytes(bytes.try_into().expect("as many bytes as an element has"))
            }
            #[inline(always)]
            fn store(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_ne_bytes());
            }
            #[inline(always)]
            fn plus(self, other: $t) -> $t {
                let plus: fn($t, $t) -> $t = $plus;
                plus(self, other)
            }
        }
    )*};
}

addends! {
    f32: 0.0, |x, y| x + y;
    f64: 0.0, |x, y| x + y;
    f16: f16::ZERO, |x, y| x + y;
    bf16: bf16::ZERO, |x, y| x + y;
    u8: 0, u8::wrapping_add;
    u32: 0, u32::wrapping_add;
    u64: 0, u64::wrapping_add;
}
