//! Sums and copies over the workers of a group, and the tokens that keep effects in order.
//!
//! A collective makes a value, and it must happen on every run, once, and in the same order on all workers. It takes
//! the token of the effect before it, and `token` makes one of its value for the effect behind it.

use retape_kernels::library::{self, Collective as Kernel, CollectiveKind};
use retape_runtime::DType;

use super::attribute::{Attribute, attributes};
use super::check::refuse;
use super::debug::{effect, token};
use super::{Cotangents, Facts, Lowering, Op, OpDef, Sample, Site, TypeError};
use crate::tensor::Tensor;
use crate::types::TensorType;

/// A group of workers, as steps of a graph name it. The same on all workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    /// The number under which its communicator is [registered](crate::collective::set_communicator); that of a group of
    /// one need not be.
    pub number: usize,
    /// The number of workers.
    pub size: usize,
    /// The number of shards that their batches are divided into; at least as many as workers.
    pub shards: usize,
}

/// The arrays of each shard of this worker, shard by shard, combined over all workers, and in a row. The last argument is
/// a token.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Collective {
    /// How they are combined.
    pub kind: CollectiveKind,
    /// The number of the group of workers.
    pub group: usize,
    /// The number of its workers.
    pub size: usize,
    /// The number of shards of all workers.
    pub shards: usize,
    /// The number of shards of this worker.
    pub held: usize,
}

/// The token of a value: something has happened once the value is there. The second argument is the token before.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Token;

attributes! {
    Collective { kind, group, size, shards, held }
    Token {}
}

impl Attribute for CollectiveKind {
    fn print(&self) -> String {
        self.name().to_owned()
    }

    fn parse(text: &str) -> Option<Self> {
        CollectiveKind::ALL.iter().copied().find(|kind| kind.name() == text)
    }
}

impl Collective {
    pub(crate) fn group(&self) -> Group {
        Group { number: self.group, size: self.size, shards: self.shards }
    }

    fn kernel(&self, args: &[&TensorType]) -> Kernel {
        let Collective { kind, group, size, shards, held } = *self;
        let n_arrays = args.len().saturating_sub(1) / held.max(1);
        let lens = args[..n_arrays].iter().map(|ty| ty.shape.n_elements()).collect();
        Kernel { kind, group, size, shards, held, dtype: args[0].dtype, lens }
    }
}

impl OpDef for Collective {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        let Some((last, arrays)) = args.split_last() else { refuse!("takes a token at least") };
        if **last != token() {
            refuse!("argument {} is {last}, not the token of an effect, {}", arrays.len(), token());
        }
        if self.held == 0 || arrays.is_empty() || arrays.len() % self.held != 0 {
            refuse!("{} arrays are not as many for each of {} shards", arrays.len(), self.held);
        }
        let n_arrays = arrays.len() / self.held;
        for (n, ty) in arrays.iter().enumerate() {
            let first = arrays[n % n_arrays];
            if **ty != *first {
                refuse!(
                    "array {} is {ty} for shard {} of this worker, and {first} for shard 0",
                    n % n_arrays,
                    n / n_arrays
                );
            }
            if ty.dtype != arrays[0].dtype {
                refuse!("array {} is {ty}, and array 0 is {}: one collective is of one dtype", n % n_arrays, arrays[0]);
            }
        }
        let kernel = self.kernel(args);
        kernel.verify().map_err(|error| TypeError(error.message))?;
        let total: usize = kernel.lens.iter().sum();
        let rows = kernel.n_rows();
        Ok(match self.kind {
            CollectiveKind::Sum | CollectiveKind::Broadcast => TensorType::new(kernel.dtype, [total]),
            CollectiveKind::SumEach | CollectiveKind::Gather => TensorType::new(kernel.dtype, [rows, total]),
            CollectiveKind::ReduceScatter => TensorType::new(kernel.dtype, [total / self.size]),
        })
    }

    /// The loss is the sum of the losses of all shards, or of all workers: a cotangent is the sum of theirs.
    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        let group = self.group();
        let of_workers = Group { shards: self.size, ..group };
        let rows: Vec<Tensor> = match self.kind {
            CollectiveKind::Sum => {
                let total = of_workers.all_in_one(CollectiveKind::Sum, &[vec![at.ct.clone()]]);
                vec![total; self.held]
            }
            CollectiveKind::SumEach => {
                let rows: Vec<Vec<Tensor>> = (0..self.held).map(|shard| vec![at.ct.at(shard)]).collect();
                let totals = group.all_in_one(CollectiveKind::SumEach, &rows);
                (0..self.held).map(|shard| totals.at(shard)).collect()
            }
            CollectiveKind::Gather => {
                vec![of_workers.all_in_one(CollectiveKind::ReduceScatter, &[vec![at.ct.clone()]])]
            }
            CollectiveKind::Broadcast => {
                // As of a gather of which row 0 alone is used.
                let rows = at.ct.unsqueeze(0).pad(&[0, 0], &[self.size - 1, 0], 0.0);
                vec![of_workers.all_in_one(CollectiveKind::ReduceScatter, &[vec![rows]])]
            }
            CollectiveKind::ReduceScatter => {
                vec![of_workers.all_in_one(CollectiveKind::Gather, &[vec![at.ct.clone()]])]
            }
        };
        let arrays = &at.args[..at.args.len() - 1];
        let n_arrays = arrays.len() / self.held;
        let mut cotangents: Vec<Option<Tensor>> = vec![];
        for (row, arrays) in rows.iter().zip(arrays.chunks_exact(n_arrays)) {
            let row = row.reshape([row.n_elements()]);
            cotangents.extend(parts(&row, arrays).into_iter().map(Some));
        }
        cotangents.push(None);
        Cotangents(cotangents.into())
    }

    fn lower(&self, args: &[&TensorType], _: &TensorType) -> Lowering {
        Lowering::Library(self.kernel(args).into())
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        let op = |kind, held| Collective { kind, group: 0, size: 1, shards: held, held };
        let sample = |(op, dtype): (Collective, DType)| {
            let shard = [(TensorType::new(dtype, [2, 3]), 0.5..4.0), (TensorType::new(dtype, [2]), 0.5..4.0)];
            let mut args: Vec<_> = (0..op.held).flat_map(|_| shard.clone()).collect();
            args.push((token(), 0.0..1.0));
            Sample::typed(op, &args)
        };
        let sums = [CollectiveKind::Sum, CollectiveKind::SumEach];
        let sums = sums.into_iter().flat_map(|kind| {
            let dtypes = DType::ALL.into_iter().filter(|dtype| *dtype != DType::Bool);
            dtypes.map(move |dtype| (op(kind, 3), dtype))
        });
        let scattered = DType::ALL.into_iter().filter(|dtype| *dtype != DType::Bool).map(|dtype| {
            let args = [(TensorType::new(dtype, [6]), 0.5..4.0), (token(), 0.0..1.0)];
            Sample::typed(op(CollectiveKind::ReduceScatter, 1), &args)
        });
        let copies = [CollectiveKind::Gather, CollectiveKind::Broadcast].into_iter();
        let copies = copies.flat_map(|kind| DType::ALL.into_iter().map(move |dtype| (op(kind, 1), dtype)));
        sums.chain(copies).map(sample).chain(scattered).collect()
    }
}

/// A row of elements, as arrays of the shapes of others.
pub(crate) fn parts(row: &Tensor, like: &[Tensor]) -> Vec<Tensor> {
    let mut start = 0;
    let part = |like: &Tensor| {
        let from = start;
        start += like.shape().iter().product::<usize>();
        match row.as_concrete() {
            // A slice would be compiled, and its code kept, for each place in the row.
            Some(row) => row.cut(from..start, like.shape().into()).unwrap_or_else(Tensor::poisoned),
            None => row.slice_axis(0, from..start).reshape(like.shape()),
        }
    };
    like.iter().map(part).collect()
}

impl OpDef for Token {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        effect(args)
    }

    fn vjp(&self, _: &Site<'_>) -> Cotangents {
        Cotangents::zero("a token has no elements")
    }

    fn lower(&self, args: &[&TensorType], _: &TensorType) -> Lowering {
        Lowering::Library(library::Token { dtype: args[0].dtype, len: args[0].shape.n_elements() }.into())
    }

    fn facts(&self) -> Facts {
        Facts { has_effect: true, ..Facts::PLAIN }
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        let sample = |dtype| Sample::typed(Token, &[(TensorType::new(dtype, [2, 3]), 0.0..5.0), (token(), 0.0..1.0)]);
        DType::ALL.into_iter().map(sample).collect()
    }
}

impl Op {
    /// Whether the last argument is the token of the effect before, so that effects stay in order.
    pub(crate) fn takes_token(&self) -> bool {
        self.has_effect() || matches!(self, Op::Collective(_))
    }

    /// Whether applying the op takes other workers.
    pub(crate) fn takes_workers(&self) -> bool {
        matches!(self, Op::Collective(op) if op.size > 1)
    }
}
