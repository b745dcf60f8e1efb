//! Values that several workers compute together: sums over the shards of a batch, copies of one worker's values.
//!
//! Here is the engine's side only: ops that are recorded, differentiated and cached like all others, and the order of
//! additions. How bytes get from worker to worker is the business of a [`Communicator`], which a program registers
//! under the number of its group; the crate `retape-dist` has those for MPI and for threads.
//!
//! A batch is divided into shards, numbered through over the workers by [`share`]. Sums are added along one binary
//! tree over the shards, so their bits depend on the number of shards and not on that of the workers.
//!
//! ```
//! use retape::collective::{Group, sum};
//! use retape::{Tensor, accelerate};
//!
//! // One worker that holds all of three shards.
//! let group = Group { number: 0, size: 1, shards: 3 };
//! let total = accelerate(move |a: &Tensor, b: &Tensor, c: &Tensor| {
//!     sum(group, &[vec![a.clone()], vec![b.clone()], vec![c.clone()]]).remove(0)
//! });
//! assert_eq!(total.call(1.0_f32, 2.0_f32, 4.0_f32)?.item::<f32>()?, 7.0);
//! # Ok::<(), retape::Error>(())
//! ```

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::Arc;

use retape_kernels::library::{self, CollectiveKind, is_alone};
use retape_runtime::{Scalar, Shape};

pub use crate::ops::collective::Group;
pub use retape_kernels::library::{Communicator, communicator, set_communicator, share};

use crate::error::{Caller, Error, Result, ill_typed};
use crate::graph::Graph;
use crate::ops::{Collective, Op, Splat, Token, parts};
use crate::tape::Tape;
use crate::tensor::{Recording, Tensor, Traced};

/// The sums of arrays over all shards of all workers: for each shard that this worker holds the same arrays, by dtype and
/// shape. Each worker has all sums.
///
/// Differentiated, each worker has the gradient of the sum of all workers' losses, added by worker and not by shard: in
/// the middle of a loss, [`sum_each`] is the one whose gradients have the same bits for every number of workers.
///
/// Poisoned if arrays of shards differ in type or number, and when the group is not known or does not come together.
///
/// See the [module](self) for an example.
#[track_caller]
pub fn sum(group: Group, shards: &[Vec<Tensor>]) -> Vec<Tensor> {
    by_dtype(CollectiveKind::Sum, group, shards, Location::caller()).swap_remove(0)
}

/// As [`sum`], but with sums for each shard that this worker holds, which is what a step in the middle of a network
/// needs: the gradients of what the shards made of their sums are added in the same order, for any number of workers.
///
/// ```
/// use retape::collective::{Group, sum_each};
/// use retape::{Tensor, value_and_grad};
///
/// let group = Group { number: 0, size: 1, shards: 2 };
/// let (loss, [da, _]) = value_and_grad(
///     |[a, b]: &[Tensor; 2]| {
///         let sums = sum_each(group, &[vec![a.clone()], vec![b.clone()]]);
///         &sums[0][0] * 3.0_f32 + &sums[1][0] * 5.0_f32
///     },
///     &[Tensor::from(1.0_f32), Tensor::from(2.0_f32)],
/// )?;
/// assert_eq!((loss.item::<f32>()?, da.item::<f32>()?), (24.0, 8.0));
/// # Ok::<(), retape::Error>(())
/// ```
#[track_caller]
pub fn sum_each(group: Group, shards: &[Vec<Tensor>]) -> Vec<Vec<Tensor>> {
    by_dtype(CollectiveKind::SumEach, group, shards, Location::caller())
}

/// The arrays of all workers, in the order of their numbers.
#[track_caller]
pub fn gather(group: Group, arrays: &[Tensor]) -> Vec<Vec<Tensor>> {
    by_dtype(CollectiveKind::Gather, group, &[arrays.to_vec()], Location::caller())
}

/// The arrays of worker 0.
#[track_caller]
pub fn broadcast(group: Group, arrays: &[Tensor]) -> Vec<Tensor> {
    by_dtype(CollectiveKind::Broadcast, group, &[arrays.to_vec()], Location::caller()).swap_remove(0)
}

/// One collective for all arrays of a dtype; rows of results.
fn by_dtype(kind: CollectiveKind, group: Group, shards: &[Vec<Tensor>], at: Caller) -> Vec<Vec<Tensor>> {
    let n_rows = match kind {
        CollectiveKind::Sum | CollectiveKind::Broadcast | CollectiveKind::ReduceScatter => 1,
        CollectiveKind::SumEach => shards.len(),
        CollectiveKind::Gather => group.size,
    };
    let arrays = shards.first().map_or(&[][..], Vec::as_slice);
    let most = shards.iter().map(Vec::len).max().unwrap_or(0);
    let poisoned = |error: &Tensor| vec![vec![error.clone(); most]; n_rows.max(1)];
    if let Some(shard) = shards.iter().position(|shard| shard.len() != arrays.len()) {
        let message = format!("{} arrays for shard {shard}, {} for shard 0", shards[shard].len(), arrays.len());
        return poisoned(&Tensor::poisoned(ill_typed(kind.name(), message, at)));
    }
    if shards.is_empty() {
        let message = "this worker holds no shard".to_owned();
        return poisoned(&Tensor::poisoned(ill_typed(kind.name(), message, at)));
    }
    let mut classes: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (n, array) in arrays.iter().enumerate() {
        if array.error().is_some() {
            return poisoned(array);
        }
        classes.entry(array.dtype().name()).or_default().push(n);
    }
    let mut results = vec![vec![None; arrays.len()]; n_rows];
    // Arrays of all dtypes are part of the trace, if one of them is: a call repeats what is recorded, and nothing else.
    let tape = shards.iter().flatten().find_map(|array| array.as_traced()).map(Traced::tape);
    let one = |class: &[Vec<Tensor>]| all_in_one_at(kind, group, class, tape.as_ref(), at);
    // Sums of other shapes that have as many elements are no sums: outside of a graph, which workers compare, exchanges
    // are told apart by the shapes.
    let shapes = tape.is_none().then(|| -> Arc<str> {
        let types: Vec<String> = arrays.iter().filter_map(Tensor::ty).map(ToString::to_string).collect();
        format!("with {}", types.join(", ")).into()
    });
    for members in classes.into_values() {
        let class: Vec<Vec<Tensor>> =
            shards.iter().map(|shard| members.iter().map(|&n| shard[n].clone()).collect()).collect();
        let combined = match &shapes {
            Some(shapes) => library::at_place(shapes, || one(&class)),
            None => one(&class),
        };
        for (row, result) in results.iter_mut().enumerate() {
            let elements = if combined.rank() == 2 { combined.at(row) } else { combined.clone() };
            for (&n, part) in members.iter().zip(parts(&elements, &class[0])) {
                result[n] = Some(part);
            }
        }
    }
    results.into_iter().map(|row| row.into_iter().flatten().collect()).collect()
}

impl Group {
    /// One collective of arrays of one dtype.
    #[track_caller]
    pub(crate) fn all_in_one(self, kind: CollectiveKind, shards: &[Vec<Tensor>]) -> Tensor {
        let tape = shards.iter().flatten().find_map(|array| array.as_traced()).map(Traced::tape);
        all_in_one_at(kind, self, shards, tape.as_ref(), Location::caller())
    }
}

fn all_in_one_at(
    kind: CollectiveKind,
    group: Group,
    shards: &[Vec<Tensor>],
    tape: Option<&Arc<Tape>>,
    at: Caller,
) -> Tensor {
    let op = Collective { kind, group: group.number, size: group.size, shards: group.shards, held: shards.len() };
    let mut args: Vec<&Tensor> = shards.iter().flatten().collect();
    let before = token_before(tape, args[0], at);
    args.push(&before);
    let value = Tensor::apply_at(op, &args, at);
    if tape.is_some() && value.error().is_none() {
        // The value of the token is of no use here: the tape remembers the last one.
        let told = Tensor::apply_at(Token, &[&value, &before], at);
        if told.error().is_some() {
            return told;
        }
    }
    value
}

impl Tensor {
    /// The token of the last effect before a use of this tensor.
    pub(crate) fn token_before(&self, at: Caller) -> Tensor {
        token_before(self.as_traced().map(Traced::tape).as_ref(), self, at)
    }
}

/// The token of the last effect of a tape; of none outside of one.
fn token_before(tape: Option<&Arc<Tape>>, beside: &Tensor, at: Caller) -> Tensor {
    match tape.filter(|tape| !tape.is_finished()) {
        Some(tape) => tape.last_effect().unwrap_or_else(|| tape.record(nothing_yet().into(), &[], at)),
        None => {
            let Splat { value, shape } = nothing_yet();
            Tensor::zeros_of(value.dtype, shape).to(beside.device())
        }
    }
}

/// The token before the first effect.
fn nothing_yet() -> Splat {
    Splat { value: Scalar { dtype: library::Token::DTYPE, bits: 0 }, shape: Shape::new(&[0]) }
}

/// Fails if the workers of a group traced other collectives, or workers with the same signature other graphs.
///
/// Where workers hold unequal numbers of shards, or of rows, their graphs differ for a reason.
pub(crate) fn agree(graph: &Graph, signature: &[u64]) -> Result<()> {
    let collectives = graph.nodes().iter().filter_map(|node| match &node.op {
        Op::Collective(op) if op.size > 1 => Some(op.group()),
        _ => None,
    });
    let mut groups: Vec<Group> = collectives.collect();
    groups.sort_by_key(|group| group.number);
    groups.dedup_by_key(|group| group.number);
    for group in groups {
        let Some(communicator) = communicator(group.number) else {
            let Group { number, size, .. } = group;
            return Err(Error::Communication(format!("group {number} of {size} workers is not known in this process")));
        };
        if is_alone() {
            return Err(Error::Communication("other workers do not look at their functions now".to_owned()));
        }
        communicator.agree("", &exchanged(graph)).map_err(Error::Communication)?;
        communicator.agree(&format!("{signature:x?}"), &graph.to_string()).map_err(Error::Communication)?;
    }
    Ok(())
}

/// The collectives of a graph, without what depends on the shards that a worker holds.
fn exchanged(graph: &Graph) -> String {
    let line = |node: &crate::graph::Node| match &node.op {
        Op::Collective(op) => {
            let types = node.args[..(node.args.len() - 1) / op.held].iter().map(|&arg| graph.ty(arg).to_string());
            let types: Vec<String> = types.collect();
            Some(format!("{} of {} over {} shards\n", op.kind.name(), types.join(", "), op.shards))
        }
        _ => None,
    };
    graph.nodes().iter().filter_map(line).collect()
}

/// Whether running a graph takes other workers: none may run it on its own once more, to look into it.
pub(crate) fn takes_workers(graph: &Graph) -> bool {
    graph.nodes().iter().any(|node| node.op.takes_workers())
}
