//! Softmax attention, whose scores need no memory.
//!
//! Both ops have several results, which lie one after the other in a vector. The gradient takes the logarithms of the sums
//! of powers from the forward pass, and computes the scores again (Dao et al., "FlashAttention", 2022).

use std::panic::Location;

use retape_kernels::library::{self, AttentionPass, Library};
use retape_runtime::{DType, Shape};
use smallvec::{SmallVec, smallvec};

use super::attribute::attributes;
use super::check::{self, refuse};
use super::{Cotangents, Facts, Iota, Lowering, Op, OpDef, Sample, Site, Slice, TypeError, concat, einsum};
use crate::error::Caller;
use crate::tensor::Tensor;
use crate::types::TensorType;

/// Of queries, keys and values `[batch, position, head, feature]`: the means of the values, weighted by the softmax of the
/// products of the query with the keys, and the logarithms of the sums of the powers of e of these,
/// `[batch, head, query]`, as one vector.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Attention {
    /// Whether a query attends to keys of its own position and those before it only.
    pub causal: bool,
}

/// Of queries, keys, values, the logarithms of [`Attention`], numbers `[batch, head, query]` that are subtracted from the
/// cotangents of weights, and the cotangent of the means: the cotangents of queries, keys and values, as one vector.
///
/// A weight is the power of e of a score less the logarithm of its query; the cotangent of a score is the weight times the
/// cotangent of the weight less the number of its query.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AttentionGrad {
    /// As in [`Attention`].
    pub causal: bool,
}

attributes! {
    Attention { causal }
    AttentionGrad { causal }
}

/// The types of queries, keys and values, which fit each other.
#[derive(Clone, Copy)]
struct HeadTypes<'t>([&'t TensorType; 3]);

impl<'t> HeadTypes<'t> {
    fn new(types: [&'t TensorType; 3]) -> Result<HeadTypes<'t>, TypeError> {
        for (position, ty) in types.iter().enumerate() {
            check::float(position, ty)?;
        }
        let [queries, keys, values] = types;
        let fits = match types.map(|ty| &*ty.shape) {
            [&[batch, _, heads, features], keys @ &[_, positions, _, _], values @ &[_, _, _, _]] => {
                *keys == [batch, positions, heads, features] && values[..3] == keys[..3]
            }
            _ => false,
        };
        if !fits || queries.dtype != keys.dtype || keys.dtype != values.dtype {
            refuse!(
                "argument 0 is {queries}, argument 1 is {keys}, argument 2 is {values}: all must be \
                 [batch, position, head, feature] of one dtype, 0 and 1 of the same batch, heads and features, 1 and 2 of the \
                 same batch, positions and heads"
            );
        }
        Ok(HeadTypes(types))
    }

    /// The shape of the weighted means.
    fn means(self) -> Shape {
        let [queries, _, values] = self.0.map(|ty| &ty.shape);
        Shape::new(&[queries[0], queries[1], queries[2], values[3]])
    }

    /// The shape of what there is for each query and head.
    fn logs(self) -> Shape {
        let queries = &self.0[0].shape;
        Shape::new(&[queries[0], queries[2], queries[1]])
    }

    /// The type of results of these shapes as one vector.
    fn joined(self, shapes: &[Shape]) -> TensorType {
        let len = shapes.iter().map(Shape::n_elements).fold(0, usize::saturating_add);
        self.0[0].with_shape([len])
    }

    fn kernel(self, causal: bool, pass: AttentionPass) -> Lowering {
        let [queries, keys, values] = self.0;
        Lowering::Library(Library::Attention(library::Attention {
            dtype: queries.dtype,
            batch: queries.shape[0],
            heads: queries.shape[2],
            queries: queries.shape[1],
            keys: keys.shape[1],
            features: queries.shape[3],
            value_features: values.shape[3],
            causal,
            pass,
        }))
    }
}

/// The shapes of the results of [`Attention`] for these arguments.
fn forward_shapes(args: &[Tensor]) -> [Shape; 2] {
    let [queries, values] = [args[0].shape(), args[2].shape()];
    let means = [queries[0], queries[1], queries[2], values[3]];
    [Shape::new(&means), Shape::new(&[queries[0], queries[2], queries[1]])]
}

/// The parts of a vector, in these shapes.
fn parts<const N: usize>(vector: &Tensor, shapes: [Shape; N], at: Caller) -> [Tensor; N] {
    let mut start = 0;
    shapes.map(|shape| {
        let len = shape.n_elements();
        let slice = Slice { start: smallvec![start], step: smallvec![1], shape: Shape::new(&[len]) };
        start += len;
        Tensor::apply_at(slice, &[vector], at).unless_poisoned(|part| part.reshape_at(shape, at))
    })
}

/// Tensors as one vector.
#[track_caller]
fn joined(tensors: &[&Tensor], at: Caller) -> Tensor {
    let vectors: SmallVec<[Tensor; 3]> = tensors
        .iter()
        .map(|x| x.unless_poisoned(|x| x.reshape_at(Shape::new(&[x.shape().iter().product()]), at)))
        .collect();
    concat(&vectors.iter().collect::<SmallVec<[&Tensor; 3]>>(), 0)
}

/// Scores `[batch, head, query, key]`, or the like, which are `hidden` where a query does not attend to a key if the mask
/// is causal.
#[track_caller]
pub(crate) fn masked(scores: &Tensor, causal: bool, hidden: f64) -> Tensor {
    if !causal {
        return scores.clone();
    }
    let at = Location::caller();
    let position = |axis| scores.nullary(Iota { axis, dtype: DType::I64, shape: scores.shape().into() }, at);
    position(3).le(position(2)).select(scores, hidden)
}

impl Attention {
    /// The results by way of scores in memory.
    #[track_caller]
    pub(crate) fn composed(&self, args: &[&Tensor]) -> Tensor {
        let at = Location::caller();
        let scores = masked(&einsum("bqhd,bkhd->bhqk", &[args[0], args[1]]), self.causal, f64::NEG_INFINITY);
        let means = einsum("bhqk,bkhe->bqhe", &[&scores.softmax(-1), args[2]]);
        joined(&[&means, &scores.logsumexp(-1)], at)
    }
}

/// Weights and what follows from them in the gradient of attention, by way of scores in memory.
struct Weights {
    /// `[batch, head, query, key]`.
    weights: Tensor,
    /// The cotangents of weights, less the number of their query.
    rest: Tensor,
    /// The cotangents of scores.
    scores: Tensor,
}

impl Weights {
    #[track_caller]
    fn of([queries, keys, values, logsumexp, delta, ct]: [&Tensor; 6], causal: bool) -> Weights {
        let scores = masked(&einsum("bqhd,bkhd->bhqk", &[queries, keys]), causal, f64::NEG_INFINITY);
        let weights = (scores - logsumexp.unsqueeze(-1)).exp();
        // The kernel looks at no hidden value, which may be no finite number.
        let rest = masked(&(einsum("bqhe,bkhe->bhqk", &[ct, values]) - delta.unsqueeze(-1)), causal, 0.0);
        let scores = &weights * &rest;
        Weights { weights, rest, scores }
    }
}

impl AttentionGrad {
    /// The results by way of scores in memory.
    #[track_caller]
    pub(crate) fn composed(&self, args: &[&Tensor]) -> Tensor {
        let &[queries, keys, values, logsumexp, delta, ct] = args else {
            return Tensor::apply_at(self.clone(), args, Location::caller());
        };
        let Weights { weights, scores, .. } = Weights::of([queries, keys, values, logsumexp, delta, ct], self.causal);
        let of_queries = einsum("bhqk,bkhd->bqhd", &[&scores, keys]);
        let of_keys = einsum("bhqk,bqhd->bkhd", &[&scores, queries]);
        let of_values = einsum("bhqk,bqhe->bkhe", &[&weights, ct]);
        joined(&[&of_queries, &of_keys, &of_values], Location::caller())
    }
}

impl Op {
    /// Whether only the processor has a kernel for it; elsewhere its [`composed`](Op::composed) form runs.
    pub(crate) fn is_for_processor(&self) -> bool {
        matches!(self, Op::Attention(_) | Op::AttentionGrad(_))
    }

    /// The result of an op that only the processor has a kernel for, by other ops.
    pub(crate) fn composed(&self, args: &[&Tensor]) -> Option<Tensor> {
        if let Op::Attention(op) = self {
            return Some(op.composed(args));
        }
        if let Op::AttentionGrad(op) = self { Some(op.composed(args)) } else { None }
    }
}

impl OpDef for Attention {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        let types = HeadTypes::new(check::exactly::<3>(args)?)?;
        Ok(types.joined(&[types.means(), types.logs()]))
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        let caller = Location::caller();
        let [means, logsumexp] = parts(at.output, forward_shapes(at.args), caller);
        let [ct, of_logs] = parts(at.ct, forward_shapes(at.args), caller);
        let delta = (&ct * means).sum(-1).swap_axes(1, 2) - of_logs;
        let [queries, keys, values] = [&at.args[0], &at.args[1], &at.args[2]];
        let grad = AttentionGrad { causal: self.causal };
        let all = Tensor::apply_at(grad, &[queries, keys, values, &logsumexp, &delta, &ct], caller);
        Cotangents::of(parts(&all, [queries, keys, values].map(|x| x.shape().into()), caller))
    }

    fn lower(&self, args: &[&TensorType], _: &TensorType) -> Lowering {
        HeadTypes([args[0], args[1], args[2]]).kernel(self.causal, AttentionPass::Forward)
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        let shapes: [&[usize]; 3] = [&[2, 3, 2, 4], &[2, 5, 2, 4], &[2, 5, 2, 3]];
        [false, true].map(|causal| Sample::floats(Attention { causal }, &shapes, -1.0..1.0)).into()
    }
}

impl OpDef for AttentionGrad {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        let [queries, keys, values, rest @ ..] = check::exactly::<6>(args)?;
        let types = HeadTypes::new([queries, keys, values])?;
        let wanted = [types.logs(), types.logs(), types.means()].map(|shape| queries.with_shape(shape));
        for (position, (ty, wanted)) in rest.into_iter().zip(wanted).enumerate() {
            if *ty != wanted {
                refuse!("argument {} is {ty}, but must be {wanted}", position + 3);
            }
        }
        Ok(types.joined(&[queries, keys, values].map(|ty| ty.shape.clone())))
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        let caller = Location::caller();
        let [queries, keys, values, logsumexp, delta, ct] = std::array::from_fn(|arg| &at.args[arg]);
        let Weights { weights, rest, scores } = Weights::of([queries, keys, values, logsumexp, delta, ct], self.causal);
        let shapes = [queries, keys, values].map(|x| x.shape().into());
        let [of_queries, of_keys, of_values] = parts(at.ct, shapes, caller);
        let of_scores =
            einsum("bqhd,bkhd->bhqk", &[&of_queries, keys]) + einsum("bqhd,bkhd->bhqk", &[queries, &of_keys]);
        let of_weights = &of_scores * rest + einsum("bqhe,bkhe->bhqk", &[ct, &of_values]);
        let of_rest = &weights * of_scores;
        let of_raw = &weights * of_weights;
        let to_queries = |weights: &Tensor, x: &Tensor| einsum("bhqk,bkhd->bqhd", &[weights, x]);
        let to_keys = |weights: &Tensor, x: &Tensor| einsum("bhqk,bqhd->bkhd", &[weights, x]);
        Cotangents::of([
            to_queries(&of_raw, keys) + to_queries(&scores, &of_keys),
            to_keys(&of_raw, queries) + to_keys(&scores, &of_queries),
            to_keys(&of_rest, ct),
            -of_raw.sum(-1),
            -of_rest.sum(-1),
            to_queries(&of_rest, values) + to_queries(&weights, &of_values),
        ])
    }

    fn lower(&self, args: &[&TensorType], _: &TensorType) -> Lowering {
        HeadTypes([args[0], args[1], args[2]]).kernel(self.causal, AttentionPass::Gradient)
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        let shapes: [&[usize]; 6] =
            [&[2, 3, 2, 4], &[2, 5, 2, 4], &[2, 5, 2, 3], &[2, 2, 3], &[2, 2, 3], &[2, 3, 2, 3]];
        [false, true].map(|causal| Sample::floats(AttentionGrad { causal }, &shapes, -1.0..1.0)).into()
    }
}

/// The weighted means of the values for these queries and keys, in one pass.
#[track_caller]
pub(crate) fn attend(queries: &Tensor, keys: &Tensor, values: &Tensor, causal: bool) -> Tensor {
    let (at, args) = (Location::caller(), [queries, keys, values].map(Tensor::clone));
    let all = Tensor::apply_at(Attention { causal }, &args.each_ref(), at);
    all.unless_poisoned(|all| {
        let [means, _] = parts(all, forward_shapes(&args), at);
        means
    })
}
