//! Softmax attention, whose scores need no memory.
//!
//! Both ops have several results in one tensor. The gradient takes the logarithms of the sums of powers from the forward
//! pass, and computes the scores again (Dao et al., "FlashAttention", 2022). Of as many queries as keys it is joined
//! position by position: where queries, keys and values are parts of one projection, its gradient is just that.

use std::panic::Location;

use retape_kernels::library::{self, AttentionPass, Library};
use retape_runtime::{DType, Scalar, Shape};
use smallvec::{SmallVec, smallvec};

use super::attribute::attributes;
use super::check::{self, refuse};
use super::{Cotangents, Facts, Iota, Lowering, Op, OpDef, Sample, Site, Slice, TypeError, concat, einsum};
use crate::error::Caller;
use crate::tensor::Tensor;
use crate::types::TensorType;

/// Of queries, keys and values `[batch, position, head, feature]`: the means of the values, weighted by the softmax of the
/// products of the scaled query with the keys, and the logarithms of the sums of the powers of e of these,
/// `[batch, head, query]`, as one vector.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Attention {
    /// The factor of queries, in their dtype.
    pub scale: Scalar,
    /// Whether a query attends to keys of its own position and those before it only.
    pub causal: bool,
}

/// Of queries, keys, values, the logarithms of [`Attention`], numbers `[batch, head, query]` that are subtracted from the
/// cotangents of weights, and the cotangent of the means: the cotangents of queries, keys and values. Of as many queries as
/// keys they are `[batch, position, feature]`, for a position the features of all heads of its query, then those of its
/// key, then those of its value; otherwise they are one vector.
///
/// A weight is the power of e of a score less the logarithm of its query; the cotangent of a score is the weight times the
/// cotangent of the weight less the number of its query.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AttentionGrad {
    /// As in [`Attention`].
    pub scale: Scalar,
    /// As in [`Attention`].
    pub causal: bool,
}

attributes! {
    Attention { scale, causal }
    AttentionGrad { scale, causal }
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

    /// Refuses a scale in another dtype.
    fn check_scale(self, scale: Scalar) -> Result<(), TypeError> {
        if scale.dtype != self.0[0].dtype {
            refuse!("the scale is a number in {}, but must be in the dtype of {}", scale.dtype, self.0[0]);
        }
        Ok(())
    }

    /// The type of the results of [`AttentionGrad`].
    fn gradients(self) -> TensorType {
        let [queries, keys, values] = self.0;
        if !is_joined(&queries.shape, &keys.shape) {
            return self.joined(&[queries, keys, values].map(|ty| ty.shape.clone()));
        }
        let (batch, positions) = (queries.shape[0], queries.shape[1]);
        let row = self.0.iter().map(|ty| ty.shape[2].saturating_mul(ty.shape[3])).fold(0, usize::saturating_add);
        queries.with_shape([batch, positions, row])
    }

    fn kernel(self, scale: Scalar, causal: bool, pass: AttentionPass) -> Lowering {
        let [queries, keys, values] = self.0;
        let kernel = library::Attention {
            dtype: queries.dtype,
            batch: queries.shape[0],
            heads: queries.shape[2],
            queries: queries.shape[1],
            keys: keys.shape[1],
            features: queries.shape[3],
            value_features: values.shape[3],
            causal,
            scale,
            operands: Vec::new(),
            joined: pass == AttentionPass::Gradient && is_joined(&queries.shape, &keys.shape),
            pass,
        };
        Lowering::Library(Library::Attention(kernel.contiguous()))
    }
}

/// Whether the cotangents of queries, keys and values of these queries and keys are joined position by position.
fn is_joined(queries: &[usize], keys: &[usize]) -> bool {
    queries[1] == keys[1]
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

/// The cotangents of queries, keys and values in the result of [`AttentionGrad`].
fn gradient_parts(all: &Tensor, args: [&Tensor; 3], at: Caller) -> [Tensor; 3] {
    let shapes = args.map(|x| Shape::from(x.shape()));
    let [queries, keys, _] = &shapes;
    if !is_joined(queries, keys) {
        return parts(all, shapes, at);
    }
    let mut start = 0;
    shapes.map(|shape| {
        let features = shape[2] * shape[3];
        let slice = Slice {
            start: smallvec![0, 0, start],
            step: smallvec![1, 1, 1],
            shape: Shape::new(&[shape[0], shape[1], features]),
        };
        start += features;
        Tensor::apply_at(slice, &[all], at).unless_poisoned(|part| part.reshape_at(shape, at))
    })
}

/// The result of [`AttentionGrad`], of the cotangents of queries, keys and values; `by_position` as [`is_joined`] says.
#[track_caller]
fn joined_gradients(cotangents: [&Tensor; 3], by_position: bool, at: Caller) -> Tensor {
    if !by_position {
        return joined(&cotangents, at);
    }
    let rows = cotangents.map(|x| {
        x.unless_poisoned(|x| {
            let shape = x.shape();
            x.reshape_at(Shape::new(&[shape[0], shape[1], shape[2] * shape[3]]), at)
        })
    });
    concat(&rows.each_ref(), 2)
}

/// Queries times their scale.
fn scaled(queries: &Tensor, scale: Scalar) -> Tensor {
    queries * scale.to_f64()
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
        let queries = scaled(args[0], self.scale);
        let scores = masked(&einsum("bqhd,bkhd->bhqk", &[&queries, args[1]]), self.causal, f64::NEG_INFINITY);
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
        let by_position = is_joined(queries.shape(), keys.shape());
        let queries = &scaled(queries, self.scale);
        let Weights { weights, scores, .. } = Weights::of([queries, keys, values, logsumexp, delta, ct], self.causal);
        let of_queries = scaled(&einsum("bhqk,bkhd->bqhd", &[&scores, keys]), self.scale);
        let of_keys = einsum("bhqk,bqhd->bkhd", &[&scores, queries]);
        let of_values = einsum("bhqk,bqhe->bkhe", &[&weights, ct]);
        joined_gradients([&of_queries, &of_keys, &of_values], by_position, Location::caller())
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
        types.check_scale(self.scale)?;
        Ok(types.joined(&[types.means(), types.logs()]))
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        let caller = Location::caller();
        let [means, logsumexp] = parts(at.output, forward_shapes(at.args), caller);
        let [ct, of_logs] = parts(at.ct, forward_shapes(at.args), caller);
        let delta = (&ct * means).sum(-1).swap_axes(1, 2) - of_logs;
        let [queries, keys, values] = [&at.args[0], &at.args[1], &at.args[2]];
        let grad = AttentionGrad { scale: self.scale, causal: self.causal };
        let all = Tensor::apply_at(grad, &[queries, keys, values, &logsumexp, &delta, &ct], caller);
        Cotangents::of(gradient_parts(&all, [queries, keys, values], caller))
    }

    fn lower(&self, args: &[&TensorType], _: &TensorType) -> Lowering {
        HeadTypes([args[0], args[1], args[2]]).kernel(self.scale, self.causal, AttentionPass::Forward)
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, to: fn(DType) -> DType) -> Self {
        Self { scale: self.scale.cast(to(self.scale.dtype)), ..*self }
    }

    fn samples() -> Vec<Sample> {
        let shapes: [&[usize]; 3] = [&[2, 3, 2, 4], &[2, 5, 2, 4], &[2, 5, 2, 3]];
        let scale = Scalar::from_f64(0.7, DType::F64);
        [false, true].map(|causal| Sample::floats(Attention { scale, causal }, &shapes, -1.0..1.0)).into()
    }
}

impl OpDef for AttentionGrad {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        let [queries, keys, values, rest @ ..] = check::exactly::<6>(args)?;
        let types = HeadTypes::new([queries, keys, values])?;
        types.check_scale(self.scale)?;
        let wanted = [types.logs(), types.logs(), types.means()].map(|shape| queries.with_shape(shape));
        for (position, (ty, wanted)) in rest.into_iter().zip(wanted).enumerate() {
            if *ty != wanted {
                refuse!("argument {} is {ty}, but must be {wanted}", position + 3);
            }
        }
        Ok(types.gradients())
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        let caller = Location::caller();
        let [queries, keys, values, logsumexp, delta, ct] = std::array::from_fn(|arg| &at.args[arg]);
        let [of_queries, of_keys, of_values] = gradient_parts(at.ct, [queries, keys, values], caller);
        // The cotangent of what is scaled is the scaled cotangent, on the way in and out.
        let (queries, of_queries) = (&scaled(queries, self.scale), scaled(&of_queries, self.scale));
        let Weights { weights, rest, scores } = Weights::of([queries, keys, values, logsumexp, delta, ct], self.causal);
        let of_scores =
            einsum("bqhd,bkhd->bhqk", &[&of_queries, keys]) + einsum("bqhd,bkhd->bhqk", &[queries, &of_keys]);
        let of_weights = &of_scores * rest + einsum("bqhe,bkhe->bhqk", &[ct, &of_values]);
        let of_rest = &weights * of_scores;
        let of_raw = &weights * of_weights;
        let to_queries = |weights: &Tensor, x: &Tensor| einsum("bhqk,bkhd->bqhd", &[weights, x]);
        let to_keys = |weights: &Tensor, x: &Tensor| einsum("bhqk,bqhd->bkhd", &[weights, x]);
        Cotangents::of([
            scaled(&(to_queries(&of_raw, keys) + to_queries(&scores, &of_keys)), self.scale),
            to_keys(&of_raw, queries) + to_keys(&scores, &of_queries),
            to_keys(&of_rest, ct),
            -of_raw.sum(-1),
            -of_rest.sum(-1),
            to_queries(&of_rest, values) + to_queries(&weights, &of_values),
        ])
    }

    fn lower(&self, args: &[&TensorType], _: &TensorType) -> Lowering {
        HeadTypes([args[0], args[1], args[2]]).kernel(self.scale, self.causal, AttentionPass::Gradient)
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, to: fn(DType) -> DType) -> Self {
        Self { scale: self.scale.cast(to(self.scale.dtype)), ..*self }
    }

    fn samples() -> Vec<Sample> {
        let scale = Scalar::from_f64(0.7, DType::F64);
        let of = |keys: usize, causal| {
            let logs = [2, 2, 3];
            let shapes: [&[usize]; 6] =
                [&[2, 3, 2, 4], &[2, keys, 2, 4], &[2, keys, 2, 3], &logs, &logs, &[2, 3, 2, 3]];
            Sample::floats(AttentionGrad { scale, causal }, &shapes, -1.0..1.0)
        };
        [5, 3].into_iter().flat_map(|keys| [false, true].map(|causal| of(keys, causal))).collect()
    }
}

/// The weighted means of the values for these queries, times `scale`, and keys, in one pass.
#[track_caller]
pub(crate) fn attend(queries: &Tensor, keys: &Tensor, values: &Tensor, scale: f64, causal: bool) -> Tensor {
    let (at, args) = (Location::caller(), [queries, keys, values].map(Tensor::clone));
    let attention = Attention { scale: Scalar::from_f64(scale, queries.dtype()), causal };
    let all = Tensor::apply_at(attention, &args.each_ref(), at);
    all.unless_poisoned(|all| {
        let [means, _] = parts(all, forward_shapes(&args), at);
        means
    })
}
