//! Sums and copies over the workers of a group.
//!
//! A batch is divided into shards, which are numbered through over the workers. Partial sums are added along one binary
//! tree over the shards: a range of more than one splits after the largest power of two below its length. So the bits of
//! a sum depend on the number of shards, and not on the number of workers: a worker adds up the nodes of the tree all of
//! whose shards it holds, only bytes travel, and additions across workers are those of the same tree.
//!
//! Long sums travel in two rounds (R. Thakur, R. Rabenseifner, W. Gropp: Optimization of collective communication
//! operations in MPICH, 2005): each worker receives its part of all partial sums, adds them, and sends the result to all.

mod shards;
mod sum;

use std::cell::Cell;
use std::ops::Range;

use half::{bf16, f16};
use retape_runtime::{DType, Shape};

use super::communicator::{Communicator, communicator, is_alone, place, share};
use super::extents::{Checked, count, countable};
use super::micro::with_bytes;
use super::text::{alternatives, descriptor};
use super::token::Token;
use super::view::only;
use crate::ensure::ensure;
use crate::error::{Error, Result};
use shards::{Addend, Rows, ShardSum, add_up};
pub(crate) use shards::{middle, nodes};
use sum::Sum;

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

/// More bytes than this travel in two rounds.
pub(crate) const ONE_ROUND: usize = 64 << 10;

/// More shards than this, or arrays of all shards of a worker, are refused.
const MOST: usize = 1 << 20;

impl Collective {
    fn check(&self) -> Checked {
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
            CollectiveKind::Sum | CollectiveKind::SumEach | CollectiveKind::Gather | CollectiveKind::Broadcast => {
                self.total()
            }
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
                peers.map_or(Ok(()), |peers| peers.all_gather(out, &|_| row, &mut || false))
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
        let len = out.len();
        let part = |rank: usize| &rows[rank * len..(rank + 1) * len];
        let sends: Vec<&[u8]> = (0..self.size).map(part).collect();
        with_bytes(self.size * len, |received| {
            let mut receives = cut(received, (0..self.size).map(|from| if from == peers.rank { 0 } else { len }));
            peers.exchange(&sends, &mut receives)?;
            let source = |from: usize| if from == peers.rank { part(from) } else { &*receives[from] };
            let sources: Vec<ShardSum<'_>> = (0..self.size).map(|from| (from..from + 1, source(from))).collect();
            add_up::<T>(&(0..self.size), &sources, out, false);
            Ok(())
        })
    }

    fn sum_over_shards<T: Addend>(&self, arrays: &[&[u8]], out: &mut [u8], peers: Option<&Peers<'_>>) -> Result<()> {
        let held = share(self.shards, peers.map_or(0, |peers| peers.rank), self.size);
        let positive = self.kind == CollectiveKind::SumEach;
        let rows = Rows::<T>::new(arrays, held, &self.lens, positive);
        match peers {
            Some(peers) => Sum::new(self, rows, peers, out.len()).run(out),
            None => {
                rows.add_up(&(0..self.shards), 0..out.len(), out);
                Ok(())
            }
        }
    }
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
    /// The exchange, as all workers call it.
    pub(crate) call: String,
    /// Whether all workers have found each other in this exchange: then all that follows has the lengths that it says.
    has_met: Cell<bool>,
}

impl<'c> Peers<'c> {
    fn of(collective: &'c Collective) -> Result<Peers<'c>> {
        let &Collective { kind, group, size, shards, held, dtype, ref lens } = collective;
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
        // Workers that hold other numbers of shards are in the same exchange.
        let call = format!("{} of {dtype}{lens} over {shards} shards{}", kind.name(), place());
        Ok(Peers { communicator, collective, rank, call, has_met: Cell::new(false) })
    }

    fn size(&self) -> usize {
        self.collective.size
    }

    fn exchange(&self, sends: &[&[u8]], receives: &mut [&mut [u8]]) -> Result<()> {
        self.exchange_while(sends, receives, &mut || false)
    }

    /// Exchanges, and does some of the work while messages are under way.
    fn exchange_while(
        &self,
        sends: &[&[u8]],
        receives: &mut [&mut [u8]],
        work: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        let communicator = &self.communicator;
        let outcome = match self.has_met.replace(true) {
            false => communicator.exchange_while(&self.call, sends, receives, work),
            true => communicator.next_round(&self.call, sends, receives, work),
        };
        outcome.map_err(Error::Communication)
    }

    /// Sends the own part of a row to all, and receives the others'. The parts are in the order of the workers.
    fn all_gather(&self, row: &mut [u8], len: &dyn Fn(usize) -> usize, work: &mut dyn FnMut() -> bool) -> Result<()> {
        let mut receives = cut(row, (0..self.size()).map(len));
        let own = std::mem::take(&mut receives[self.rank]);
        self.exchange_while(&vec![&*own; self.size()], &mut receives, work)
    }

    /// Sends the row of worker 0 to all: a part to each, which then go round.
    fn broadcast(&self, row: &mut [u8]) -> Result<()> {
        let (rank, size) = (self.rank, self.size());
        let one_round = size == 2 || row.len() <= ONE_ROUND;
        let part = |to: usize| if one_round { 0..row.len() } else { share(row.len(), to, size) };
        let parts: Vec<Range<usize>> = (0..size).map(part).collect();
        if rank == 0 {
            let sends: Vec<&[u8]> = parts.iter().map(|part| &row[part.clone()]).collect();
            let mut nowhere: Vec<&mut [u8]> = (0..size).map(|_| [].as_mut_slice()).collect();
            self.exchange(&sends, &mut nowhere)?;
        } else {
            let sends = vec![[].as_slice(); size];
            let mut receives: Vec<&mut [u8]> = (0..size).map(|_| [].as_mut_slice()).collect();
            receives[0] = &mut row[parts[rank].clone()];
            self.exchange(&sends, &mut receives)?;
        }
        if one_round { Ok(()) } else { self.all_gather(row, &|rank| parts[rank].len(), &mut || false) }
    }
}

/// Cuts bytes into parts of the given lengths.
fn cut(bytes: &mut [u8], lens: impl Iterator<Item = usize>) -> Vec<&mut [u8]> {
    let mut rest = bytes;
    lens.map(|len| rest.split_off_mut(..len).expect("as many bytes as their parts have")).collect()
}
