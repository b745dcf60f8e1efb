//! A collective as a program for one worker: loop nests, which add, and transfers, which move bytes.
//!
//! Additions are those of `library/collective.rs`, along the same tree over the shards, and are compiled like all other
//! nests: so bits do not depend on whether bytes travel between GPUs or through the host. Sums of many shards are divided
//! at nodes of the tree, where a partial sum gets memory of its own, as no kernel takes any number of buffers.

use std::ops::Range;
use std::sync::Arc;

use retape_runtime::{DType, Gpu};
use smallvec::SmallVec;

use super::pending;
use super::{Segment, segments};
use crate::error::{Error, Result};
use crate::ir::{Affine, Kernel, KernelBuilder, ParamId, Value};
use crate::library::{Collective, CollectiveKind, ONE_ROUND, middle, nodes, share};
use crate::plan::{BufferType, Operand, Place, Plan, Step, Work};
use crate::ptx::Target;

/// Addends of one kernel at most.
const MOST_ADDENDS: usize = 32;

/// The work of one worker for a collective.
#[derive(Debug)]
pub(super) struct CollectiveProgram {
    pub(super) stages: Vec<CollectiveStage>,
    /// Sizes of the memory that it needs besides that of the plan, in bytes.
    pub(super) memory: Vec<usize>,
}

/// A part of a program. Parts run in order.
#[derive(Debug)]
pub(super) enum CollectiveStage {
    Nests(Vec<Segment>),
    Exchange(Vec<Transfer>),
    /// Copies of a row of the result: from this byte, to that one, so many.
    Copies(Vec<(usize, usize, usize)>),
}

/// Bytes that go to another worker, or come from there.
#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) peer: usize,
    pub(super) is_sent: bool,
    pub(super) operand: Operand,
    pub(super) bytes: Range<usize>,
}

/// The elements of an operand from one on.
#[derive(Clone, Copy)]
struct OperandSlice {
    operand: Operand,
    start: usize,
}

/// Shards, all below one node of the tree, and where the sum of them lies.
type PartialSum = (Range<usize>, OperandSlice);

struct Builder<'p> {
    plan: &'p Plan,
    collective: &'p Collective,
    rank: usize,
    /// The arrays of the step, and its result.
    arrays: &'p [Operand],
    out: Operand,
    /// Buffers that lie behind the outputs of the plan.
    memory: Vec<BufferType>,
    steps: Vec<Step>,
    target: Target,
    gpu: &'p Arc<Gpu>,
    stages: Vec<CollectiveStage>,
}

/// The program of a worker for a step of a plan, whose operands are the arrays, a token, and the result.
pub(super) fn program(
    plan: &Plan,
    (collective, operands): (&Collective, &[Operand]),
    rank: usize,
    gpu: &Arc<Gpu>,
    target: Target,
) -> Result<CollectiveProgram> {
    let [arrays @ .., _, out] = operands else {
        return Err(Error::Internal(format!("{collective} with {} operands", operands.len())));
    };
    let (memory, steps, stages) = (vec![], vec![], vec![]);
    let mut builder = Builder { plan, collective, rank, arrays, out: *out, memory, steps, target, gpu, stages };
    builder.build()?;
    builder.flush()?;
    let memory = builder.memory.iter().map(BufferType::bytes).collect();
    Ok(CollectiveProgram { stages: builder.stages, memory })
}

impl Builder<'_> {
    fn build(&mut self) -> Result<()> {
        match self.collective.kind {
            CollectiveKind::Sum | CollectiveKind::SumEach => self.sum_over_shards(),
            CollectiveKind::ReduceScatter => self.reduce_scatter(),
            CollectiveKind::Gather => {
                let row = self.collective.row();
                self.pack(self.rank * row)?;
                self.all_gather(&|rank| rank * row..(rank + 1) * row)
            }
            CollectiveKind::Broadcast => self.broadcast(),
        }
    }

    fn out(&self, start: usize) -> OperandSlice {
        OperandSlice { operand: self.out, start }
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let rank = self.rank;
        (0..self.collective.size).filter(move |&other| other != rank)
    }

    /// Memory for elements that lie between two stages.
    fn memory(&mut self, len: usize) -> Operand {
        let ty = BufferType { dtype: self.collective.dtype, len };
        let n = self.plan.outputs.len() + self.memory.len();
        self.memory.push(ty);
        Operand { place: Place::Output(n as u32), dtype: ty.dtype, len }
    }

    /// Sums over all shards: first of those that this worker holds, then of what the workers have.
    fn sum_over_shards(&mut self) -> Result<()> {
        let Collective { shards, size, .. } = *self.collective;
        let row = self.collective.total();
        let all = 0..shards;
        let of = |rank: usize| nodes(all.clone(), &share(shards, rank, size));
        let own = of(self.rank);
        // One partial sum goes where the result will be.
        let several = (own.len() > 1).then(|| self.memory(own.len() * row));
        let partial = |k: usize| several.map_or(self.out(0), |operand| OperandSlice { operand, start: k * row });
        let partials: Vec<OperandSlice> = (0..own.len()).map(partial).collect();
        for (node, partial) in own.iter().zip(&partials) {
            self.sum_of_own(node, *partial)?;
        }
        if size > 1 {
            let part = parts_of(row, self.collective.dtype.size(), size);
            let mine = part(self.rank);
            let sources = self.exchange_partials(&of, &partials, &part)?;
            self.sum(&all, &sources, mine.len(), self.out(mine.start), false)?;
            if row * self.collective.dtype.size() > ONE_ROUND {
                self.all_gather(&part)?;
            }
        }
        self.repeat_row()
    }

    /// The sums of all arrays over shards of this worker.
    fn sum_of_own(&mut self, node: &Range<usize>, to: OperandSlice) -> Result<()> {
        let Collective { shards, size, lens, kind, .. } = self.collective;
        let (held, arrays) = (share(*shards, self.rank, *size), self.arrays);
        let mut start = to.start;
        for (n, &len) in lens.iter().enumerate() {
            let source = |shard: usize| {
                let operand = arrays[(shard - held.start) * lens.len() + n];
                (shard..shard + 1, OperandSlice { operand, start: 0 })
            };
            let sources: Vec<PartialSum> = node.clone().map(source).collect();
            self.sum(node, &sources, len, OperandSlice { start, ..to }, *kind == CollectiveKind::SumEach)?;
            start += len;
        }
        Ok(())
    }

    /// Sends each worker its part of the partial sums, and says where this one's part of all of them lies.
    fn exchange_partials(
        &mut self,
        of: &dyn Fn(usize) -> Vec<Range<usize>>,
        partials: &[OperandSlice],
        part: &dyn Fn(usize) -> Range<usize>,
    ) -> Result<Vec<PartialSum>> {
        let mine = part(self.rank);
        let n_received: usize = self.others().map(|from| of(from).len()).sum();
        let received = self.memory(n_received * mine.len());
        let (mut transfers, mut sources, mut start) = (vec![], vec![], 0);
        for rank in 0..self.collective.size {
            for (k, node) in of(rank).into_iter().enumerate() {
                if rank == self.rank {
                    sources.push((node, OperandSlice { start: partials[k].start + mine.start, ..partials[k] }));
                    continue;
                }
                let to = OperandSlice { operand: received, start };
                transfers.extend(transfer(rank, false, to, mine.len()));
                sources.push((node, to));
                start += mine.len();
            }
        }
        for to in self.others() {
            let part = part(to);
            let piece = |row: &OperandSlice| {
                transfer(to, true, OperandSlice { start: row.start + part.start, ..*row }, part.len())
            };
            transfers.extend(partials.iter().filter_map(piece));
        }
        self.exchange(transfers)?;
        Ok(sources)
    }

    fn reduce_scatter(&mut self) -> Result<()> {
        let Collective { size, .. } = *self.collective;
        let (row, array) = (self.collective.row(), self.arrays[0]);
        let received = self.memory((size - 1) * row);
        let mut transfers = vec![];
        let mut sources = vec![(self.rank..self.rank + 1, OperandSlice { operand: array, start: self.rank * row })];
        for (n, peer) in self.others().enumerate() {
            let from = OperandSlice { operand: received, start: n * row };
            transfers.extend(transfer(peer, false, from, row));
            transfers.extend(transfer(peer, true, OperandSlice { operand: array, start: peer * row }, row));
            sources.push((peer..peer + 1, from));
        }
        sources.sort_by_key(|(shards, _)| shards.start);
        self.exchange(transfers)?;
        self.sum(&(0..size), &sources, row, self.out(0), false)
    }

    /// The row of worker 0 goes to all: a part to each, which then go round.
    fn broadcast(&mut self) -> Result<()> {
        let Collective { size, dtype, .. } = *self.collective;
        let row = self.collective.row();
        if self.rank == 0 {
            self.pack(0)?;
        }
        let part = |to: usize| if size == 2 { 0..row } else { parts_of(row, dtype.size(), size)(to) };
        let piece =
            |peer: usize, is_sent: bool, part: Range<usize>| transfer(peer, is_sent, self.out(part.start), part.len());
        let transfers = match self.rank {
            0 => self.others().filter_map(|to| piece(to, true, part(to))).collect(),
            rank => piece(0, false, part(rank)).into_iter().collect(),
        };
        self.exchange(transfers)?;
        if part(0).len() == row { Ok(()) } else { self.all_gather(&part) }
    }

    /// Sends the own part of the first row of the result to all, and receives the others'.
    fn all_gather(&mut self, part: &dyn Fn(usize) -> Range<usize>) -> Result<()> {
        let mut transfers = vec![];
        for peer in self.others() {
            let (mine, other) = (part(self.rank), part(peer));
            transfers.extend(transfer(peer, true, self.out(mine.start), mine.len()));
            transfers.extend(transfer(peer, false, self.out(other.start), other.len()));
        }
        self.exchange(transfers)
    }

    /// Writes the own arrays in a row.
    fn pack(&mut self, mut start: usize) -> Result<()> {
        for &operand in self.arrays {
            let source = (0..1, OperandSlice { operand, start: 0 });
            self.sum(&(0..1), &[source], operand.len, self.out(start), false)?;
            start += operand.len;
        }
        Ok(())
    }

    /// The first row of the result is that of each shard.
    fn repeat_row(&mut self) -> Result<()> {
        let bytes = self.collective.row() * self.collective.dtype.size();
        let copies = (1..self.collective.n_rows()).map(|row| (0, row * bytes, bytes)).collect();
        self.flush()?;
        self.stages.push(CollectiveStage::Copies(copies));
        Ok(())
    }

    /// Adds up what lies below a node. `positive` sums have no negative zero.
    fn sum(
        &mut self,
        node: &Range<usize>,
        sources: &[PartialSum],
        len: usize,
        to: OperandSlice,
        positive: bool,
    ) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        if sources.len() > MOST_ADDENDS
            && let Some(middle) = middle(node)
        {
            let mut halves = vec![];
            for half in [node.start..middle, middle..node.end] {
                let below = |source: &&PartialSum| half.start <= source.0.start && source.0.end <= half.end;
                let below: Vec<PartialSum> = sources.iter().filter(below).cloned().collect();
                let sum = match below.as_slice() {
                    [(shards, row)] if *shards == half => *row,
                    _ => {
                        let row = OperandSlice { operand: self.memory(len), start: 0 };
                        self.sum(&half, &below, len, row, false)?;
                        row
                    }
                };
                halves.push((half, sum));
            }
            return self.sum(node, &halves, len, to, positive);
        }
        self.steps.push(step(node, sources, len, to, positive)?);
        Ok(())
    }

    fn exchange(&mut self, transfers: Vec<Transfer>) -> Result<()> {
        self.flush()?;
        if !transfers.is_empty() {
            self.stages.push(CollectiveStage::Exchange(transfers));
        }
        Ok(())
    }

    /// Compiles the nests so far.
    fn flush(&mut self) -> Result<()> {
        let steps = std::mem::take(&mut self.steps);
        if steps.is_empty() {
            return Ok(());
        }
        let outputs = self.plan.outputs.iter().chain(&self.memory).copied().collect();
        let Plan { inputs, arena_bytes, donations, .. } = self.plan;
        let (inputs, donations) = (inputs.clone(), donations.clone());
        let plan = Plan { inputs, outputs, arena_bytes: *arena_bytes, steps, donations };
        let (pending, scratch) = pending::segments(&plan, self.target, false)?;
        if scratch > 0 {
            return Err(Error::Internal(format!("additions with {scratch} bytes of scratch")));
        }
        self.stages.push(CollectiveStage::Nests(segments(&plan, self.gpu, pending, 0)?));
        Ok(())
    }
}

/// The part of a row that each worker adds up: all of it if the row is short.
fn parts_of(row: usize, size: usize, n_workers: usize) -> impl Fn(usize) -> Range<usize> {
    move |rank| if row * size <= ONE_ROUND { 0..row } else { share(row, rank, n_workers) }
}

/// A transfer of elements, if there are some.
fn transfer(peer: usize, is_sent: bool, OperandSlice { operand, start }: OperandSlice, len: usize) -> Option<Transfer> {
    let size = operand.dtype.size();
    (len > 0).then(|| Transfer { peer, is_sent, operand, bytes: start * size..(start + len) * size })
}

/// A nest that adds up what lies below a node, or copies it.
fn step(node: &Range<usize>, sources: &[PartialSum], len: usize, to: OperandSlice, positive: bool) -> Result<Step> {
    let mut operands: SmallVec<[Operand; 6]> = SmallVec::new();
    let builder = KernelBuilder::new();
    let mut rows = vec![];
    for (shards, OperandSlice { operand, start }) in sources {
        let known = operands.iter().position(|known| known == operand);
        let param = known.map(|n| ParamId(n as u32)).unwrap_or_else(|| {
            operands.push(*operand);
            builder.param(operand.dtype, operand.len, false)
        });
        rows.push((shards.clone(), param, *start as i64));
    }
    let written = builder.param(to.operand.dtype, to.operand.len, true);
    operands.push(to.operand);
    builder.axis(len, false);
    let mut value = add_up(&builder, node, &rows)?;
    if positive {
        value = plus(value, value.like(0.0));
    }
    builder.store(written, Affine::new(to.start as i64, &[1]), value);
    let kernel: Kernel = builder.finish();
    kernel.verify()?;
    Ok(Step { work: Work::Kernel(kernel), operands, label: "sum of shards".to_owned() })
}

/// The sum of a node.
fn add_up<'k>(
    builder: &'k KernelBuilder,
    node: &Range<usize>,
    rows: &[(Range<usize>, ParamId, i64)],
) -> Result<Value<'k>> {
    if let Some((_, param, start)) = rows.iter().find(|(shards, ..)| shards == node) {
        return Ok(builder.load(*param, Affine::new(*start, &[1])));
    }
    let Some(middle) = middle(node) else {
        return Err(Error::Internal(format!("shard {} is nowhere", node.start)));
    };
    let left = add_up(builder, &(node.start..middle), rows)?;
    let right = add_up(builder, &(middle..node.end), rows)?;
    Ok(plus(left, right))
}

/// A sum that is rounded once: rounding to `f32` in between changes no sum of two floats of 16 bits.
fn plus<'k>(left: Value<'k>, right: Value<'k>) -> Value<'k> {
    match left.dtype() {
        half @ (DType::F16 | DType::Bf16) => (left.cast(DType::F32) + right.cast(DType::F32)).cast(half),
        _ => left + right,
    }
}
