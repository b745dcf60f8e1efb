//! Errors name the method that a line of the program names, whatever ops the method is made of: a table of them all,
//! each with arguments that it does not take, op by op and in a trace.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::iter::Sum;

use retape::nn::{
    self, BatchNorm, BatchNormState, Conv2d, ConvTranspose2d, Dense, Embedding, Gru, LayerNorm, Lstm, Mask,
};
use retape::ops::{ConvOptions, Padding, Triangular};
use retape::optim::{Adam, AdamState, Sgd, SgdState, clip_by_global_norm};
use retape::random::{self, Key};
use retape::{DType, Error, Tensor, concat, einsum, stack, trace, tree};

/// Tensors to call methods on.
#[derive(Clone, retape::Tree)]
struct Given {
    /// `f32[2, 3]`.
    x: Tensor,
    /// `f32[4]`.
    v: Tensor,
    /// `f32[]`.
    number: Tensor,
    /// `f64[2, 3]`.
    wide: Tensor,
    /// `f16[2, 3]`.
    half: Tensor,
    /// `i32[2, 3]`.
    whole: Tensor,
    /// `bool[2, 3]`.
    truth: Tensor,
    /// `f32[1, 4, 4, 2]`.
    image: Tensor,
    /// `f32[2, 0]`.
    empty: Tensor,
}

impl Given {
    fn new() -> Given {
        let x = Tensor::ones([2, 3]);
        Given {
            v: Tensor::ones([4]),
            number: Tensor::from(1.0_f32),
            wide: x.cast(DType::F64),
            half: x.cast(DType::F16),
            whole: x.cast(DType::I32),
            truth: x.cast(DType::Bool),
            image: Tensor::ones([1, 4, 4, 2]),
            empty: Tensor::zeros([2, 0]),
            x,
        }
    }
}

struct Case {
    method: &'static str,
    call: fn(&Given) -> Tensor,
}

/// A table of calls: the method that an error must name, and expressions over what is given.
macro_rules! cases {
    ($($method:literal $g:ident => $($call:expr),+;)*) => {
        vec![$($(Case { method: $method, call: |$g| $call },)+)*]
    };
}

/// Element by element.
fn pointwise() -> Vec<Case> {
    cases! {
        "add" g => &g.x + &g.wide, &g.x + &g.v, &g.whole + 0.5, 0.5 + &g.whole, &g.truth + &g.truth, &g.half + 1.0;
        "sub" g => &g.x - &g.wide, 1e30_f32 - &g.whole;
        "mul" g => &g.x * &g.v, &g.whole * f64::NAN;
        "div" g => &g.x / &g.whole, &g.whole / 4_294_967_296_i64;
        "rem" g => &g.x % &g.v, 0.5 % &g.whole;
        "neg" g => -&g.truth;
        "and" g => &g.x & &g.v, &g.whole & 0.5;
        "or" g => &g.x | &g.v;
        "xor" g => &g.truth ^ &g.whole;
        "not" g => !&g.x;
        "shl" g => &g.x << 1;
        "shr" g => &g.whole >> 3_000_000_000_u32;
        "mul_high" g => g.x.mul_high(&g.x), g.whole.cast(DType::U32).mul_high(-1);
        "eq" g => g.x.eq(&g.wide), g.whole.eq(0.5), g.half.eq(1.0);
        "ne" g => g.x.ne(&g.v);
        "lt" g => g.x.lt(&g.wide), g.whole.lt(1e30);
        "le" g => g.truth.le(2);
        "gt" g => g.x.gt(&g.wide), g.x.gt(&g.v), g.whole.gt(0.5);
        "ge" g => g.x.ge(&g.wide), g.whole.cast(DType::U8).ge(-1);
        "is_nan" g => g.half.is_nan();
        "is_finite" g => g.half.is_finite();
        "maximum" g => g.x.maximum(&g.v), g.whole.maximum(0.5), g.truth.maximum(&g.truth);
        "minimum" g => g.x.minimum(&g.wide);
        "clamp" g => g.whole.clamp(0.5, 3), g.whole.clamp(0, 3.5), g.x.clamp(&g.v, 1.0), g.truth.clamp(0, 1);
        "select" g =>
            g.x.select(&g.x, 0.0),
            g.truth.select(&g.x, &g.v),
            g.truth.select(1.0, 0.0),
            g.truth.select(&g.whole, 0.5);
        "abs" g => g.truth.abs();
        "sign" g => g.truth.sign();
        "floor" g => g.whole.floor();
        "exp" g => g.whole.exp();
        "square" g => g.truth.square(), g.half.square();
        "reciprocal" g => g.truth.reciprocal();
        "pow" g =>
            g.whole.pow(-1),
            g.whole.pow(0.5),
            g.whole.pow(-0.5),
            g.whole.pow(2.5),
            g.whole.pow(17),
            g.x.pow(&g.v),
            g.truth.pow(2),
            g.half.pow(0.5);
        "atan2" g => g.x.atan2(&g.v), g.whole.atan2(0.5);
        "trigamma" g => g.whole.trigamma();
        "polygamma" g => g.x.polygamma(0), g.x.polygamma(99);
        "relu" g => g.truth.relu();
        "relu6" g => g.truth.relu6(), g.half.relu6();
        "log_sigmoid" g => g.whole.log_sigmoid();
        "silu" g => g.whole.silu();
        "gelu_erf" g => g.whole.gelu_erf();
        "gelu_tanh" g => g.whole.gelu_tanh(), g.half.gelu_tanh();
        "leaky_relu" g => g.whole.leaky_relu(0.1), g.truth.leaky_relu(0.1);
        "elu" g => g.whole.elu(1.0), g.half.elu(2.0);
        "full_like" g => g.whole.full_like(0.5), g.truth.full_like(2), g.whole.cast(DType::U8).full_like(-1);
    }
}

/// Shapes, parts and indices.
fn movements() -> Vec<Case> {
    cases! {
        "iota" g => Tensor::iota(g.x.dtype(), [2], 7), Tensor::iota(DType::U8, [300 * g.x.dim(0)], 0);
        "arange" g => Tensor::arange(usize::MAX - g.x.dim(0));
        "reshape" g => g.x.reshape([5]);
        "broadcast_to" g => g.x.broadcast_to([3, 2]);
        "permute" g => g.x.permute([0]), g.x.permute([0, 7]);
        "transpose" g => g.v.transpose();
        "t" g => g.v.t();
        "swap_axes" g => g.x.swap_axes(0, 2);
        "squeeze" g => g.x.squeeze(0), g.x.squeeze(9);
        "unsqueeze" g => g.x.unsqueeze(4);
        "expand_dims" g => g.x.expand_dims(4);
        "flatten_from" g => g.x.flatten_from(2);
        "flip" g => g.x.flip(2);
        "tile" g => g.x.tile(&[1]), g.x.tile(&[usize::MAX, 2]);
        "slice" g =>
            g.x.slice(&[0], &[1], &[1]),
            g.x.slice(&[0, 0], &[9, 9], &[1, 1]),
            g.x.slice(&[0, 0], &[1, 1], &[0, 1]);
        "slice_axis" g => g.x.slice_axis(2, 0..1), g.x.slice_axis(0, 0..9);
        "index_axis" g => g.x.index_axis(0, 2), g.x.index_axis(5, 0);
        "pad" g =>
            g.x.pad(&[1], &[1], 0.0),
            g.whole.pad(&[1, 1], &[0, 0], 0.5),
            g.whole.pad(&[1, 1], &[0, 0], f64::NAN);
        "split" g => g.x.split(0, &[1, 2])[0].clone(), g.x.split(7, &[2])[0].clone();
        "chunk" g => g.x.chunk(1, 2)[0].clone(), g.x.chunk(1, 0)[0].clone();
        "concat" g => concat(&[&g.x, &g.v], 0), concat(&[&g.x, &g.wide], 0), concat(&[&g.x], 3);
        "stack" g => stack(&[&g.x, &g.v], 0), stack(&[&g.x, &g.wide], 0), stack(&[&g.x], 4);
        "tril" g => g.v.tril(0);
        "triu" g => g.v.triu(0);
        "one_hot" g => g.x.one_hot(3), g.truth.one_hot(3), g.whole.one_hot(usize::MAX);
        "one_hot_of" g => g.x.one_hot_of(DType::F64, 3);
        "take" g => g.x.take(&g.x, 0), g.x.take(&g.whole, 2), g.x.take(&g.whole.cast(DType::U8), 0);
        "take_along" g => g.x.take_along(&g.whole.slice_axis(0, 0..1), 1), g.x.take_along(&g.x, 1);
        "scatter_add" g =>
            g.x.scatter_add(0, &g.x, &g.x),
            g.x.scatter_add(9, &g.whole, &g.x),
            g.truth.scatter_add(0, &g.whole, &g.truth);
        "scatter_add_along" g => g.x.scatter_add_along(0, &g.whole, &g.v), g.x.scatter_add_along(9, &g.whole, &g.x);
        "argsort" g => g.x.argsort(2), g.half.argsort(0);
        "argsort_descending" g => g.x.argsort_descending(2), g.half.argsort_descending(0);
        "sort" g => g.x.sort(2), g.half.sort(0);
        "sort_descending" g => g.x.sort_descending(2), g.half.sort_descending(0);
        "top_k" g => g.x.top_k(9, 0).0, g.x.top_k(1, 7).1, g.half.top_k(1, 0).0;
    }
}

/// Folds, scans and what is made of them.
fn folds() -> Vec<Case> {
    cases! {
        "sum" g => g.truth.sum(0), g.x.sum(2), g.half.sum(..), Sum::sum([g.x.clone(), g.v.clone()].into_iter()),
            Sum::sum([&g.x, &g.wide].into_iter());
        "sum_keep" g => g.truth.sum_keep(0), g.x.sum_keep([0, 0]);
        "prod" g => g.truth.prod(0);
        "prod_keep" g => g.truth.prod_keep(0);
        "max" g => g.empty.max(1), g.truth.max(0), g.x.max(2);
        "max_keep" g => g.empty.max_keep(1);
        "min" g => g.empty.min(1);
        "min_keep" g => g.empty.min_keep(1);
        "all" g => g.x.all(..);
        "all_keep" g => g.x.all_keep(..);
        "any" g => g.x.any(..);
        "any_keep" g => g.x.any_keep(..);
        "mean" g => g.whole.mean(0), g.x.mean(2), g.half.mean(..);
        "mean_keep" g => g.whole.mean_keep(0), g.x.mean_keep(2);
        "var" g => g.whole.var(0), g.x.var(2);
        "var_keep" g => g.whole.var_keep(0);
        "std" g => g.whole.std(0), g.x.std(2);
        "std_keep" g => g.whole.std_keep(0);
        "logsumexp" g => g.whole.logsumexp(0), g.x.logsumexp(2);
        "logsumexp_keep" g => g.whole.logsumexp_keep(0), g.x.logsumexp_keep(2);
        "softmax" g => g.whole.softmax(0), g.x.softmax(2), g.number.softmax(-1), g.half.softmax(0);
        "log_softmax" g => g.whole.log_softmax(0), g.x.log_softmax(2);
        "cumsum" g => g.truth.cumsum(0), g.x.cumsum(2);
        "cumprod" g => g.truth.cumprod(0), g.x.cumprod(2);
        "cummax" g => g.truth.cummax(0), g.x.cummax(2);
        "cummin" g => g.truth.cummin(0), g.x.cummin(2);
        "linear_recurrence" g =>
            g.truth.linear_recurrence(&g.truth, 0),
            g.x.linear_recurrence(0.5, 2),
            g.x.linear_recurrence(&g.wide, 0),
            g.half.linear_recurrence(&g.whole, 0);
        "argmax" g => g.truth.argmax(0), g.x.argmax(2), g.empty.argmax(1);
        "argmin" g => g.truth.argmin(0), g.x.argmin(2), g.empty.argmin(1);
    }
}

/// Products, systems and windows.
fn products() -> Vec<Case> {
    cases! {
        "matmul" g =>
            g.x.matmul(&g.x),
            g.x.matmul(&g.number),
            g.whole.matmul(&g.whole.t()),
            g.x.matmul(&g.wide.t()),
            g.v.matmul(&g.x),
            g.x.matmul(&g.v),
            Tensor::ones([2, 2, 3]).matmul(&Tensor::ones([3, 3, 2])) + &g.x;
        "dot" g =>
            g.x.dot(&g.v),
            g.v.dot(&Tensor::ones([3])),
            g.v.dot(&Tensor::ones([4]).cast(DType::F64)),
            g.v.cast(DType::Bool).dot(&g.v.cast(DType::Bool));
        "outer" g =>
            g.x.outer(&g.v),
            g.v.cast(DType::Bool).outer(&g.v.cast(DType::Bool)),
            g.v.outer(&g.v.cast(DType::F64));
        "einsum" g =>
            einsum("ij,jk->ik", &[&g.x, &g.x]),
            einsum("ij,kj->ik", &[&g.x, &g.wide]),
            einsum("ij,ij->", &[&g.truth, &g.truth]),
            einsum("ij->i", &[&g.truth]),
            einsum("i", &[&g.x]),
            einsum("ij,kj->ik", &[&g.whole, &g.whole]),
            einsum("ij,", &[&g.x, &g.wide.sum(..)]);
        "cholesky" g => g.x.cholesky(), Tensor::ones([2, 2]).cast(DType::I32).cholesky() + &g.x;
        "solve_triangular" g =>
            g.x.solve_triangular(&g.v, Triangular::LOWER),
            g.v.solve_triangular(&g.v, Triangular::LOWER),
            Tensor::eye(2).solve_triangular(&g.wide, Triangular::UPPER);
        "solve_positive_definite" g =>
            g.x.solve_positive_definite(&g.v),
            Tensor::eye(2).solve_positive_definite(&g.v),
            Tensor::eye(2).solve_positive_definite(&g.wide);
        "conv2d" g =>
            g.x.conv2d(&g.x, ConvOptions::same()),
            g.image.conv2d(&Tensor::ones([3, 3, 7, 1]), ConvOptions::same()),
            nn::conv2d(&g.image, &Tensor::ones([1, 1, 2, 5]), &g.v, ConvOptions::same());
        "conv_transpose2d" g =>
            g.x.conv_transpose2d(&g.x, ConvOptions::same()),
            g.image.conv_transpose2d(&Tensor::ones([3, 3, 1, 7]), ConvOptions::same()),
            g.image.conv_transpose2d(&Tensor::ones([0, 0, 1, 2]), ConvOptions::default()),
            nn::conv_transpose2d(&g.image, &Tensor::ones([1, 1, 5, 2]), &g.v, ConvOptions::same());
        "max_pool2d" g =>
            g.x.max_pool2d([2, 2], [2, 2], Padding::Valid),
            g.image.max_pool2d([9, 9], [1, 1], Padding::Valid);
        "avg_pool2d" g =>
            g.x.avg_pool2d([2, 2], [2, 2], Padding::Valid),
            g.image.avg_pool2d([9, 9], [1, 1], Padding::Valid),
            g.image.avg_pool2d([usize::MAX, 2], [1, 1], Padding::Valid),
            g.image.avg_pool2d([2, 2], [0, 1], Padding::Same),
            g.image.cast(DType::I32).avg_pool2d([2, 2], [2, 2], Padding::Same);
        "global_avg_pool2d" g =>
            g.x.global_avg_pool2d(),
            g.image.cast(DType::Bool).global_avg_pool2d(),
            g.image.cast(DType::F16).global_avg_pool2d();
    }
}

fn first<T, R>(pair: (T, R)) -> T {
    pair.0
}

/// Layers and their first weights.
fn layers() -> Vec<Case> {
    cases! {
        "dense" g => nn::dense(&g.x, &g.x, &g.v), nn::dense(&g.x, &g.x.t(), &g.v);
        "Dense::apply" g => Dense::new(1, 7, 2).apply(&g.x), Dense::new(1, 3, 2).apply(&g.wide);
        "embedding" g => nn::embedding(&g.x, &g.x), nn::embedding(&g.number, &g.whole);
        "Embedding::apply" g => Embedding::new(1, 4, 2).apply(&g.x);
        "Conv2d::apply" g => Conv2d::new(1, [3, 3], 7, 2).apply(&g.image, ConvOptions::same());
        "batch_norm" g =>
            nn::batch_norm(&g.x, &g.v, &g.number, 1e-5).0,
            nn::batch_norm(&g.whole, &g.number, &g.number, 1e-5).1;
        "batch_norm_inference" g => nn::batch_norm_inference(&g.x, &g.v, &g.v, &g.v, &g.v, 1e-5);
        "BatchNorm::apply" g =>
            first(BatchNorm::new(7).apply(&g.x, &BatchNormState::new(7))),
            BatchNorm::new(3).apply(&g.x, &BatchNormState::new(7)).1.mean;
        "BatchNorm::infer" g => BatchNorm::new(7).infer(&g.x, &BatchNormState::new(7));
        "BatchNormState::updated" g => BatchNormState::new(7).updated(&g.v, &g.v, 0.9).mean;
        "layer_norm" g => nn::layer_norm(&g.x, &g.v, &g.v, 1e-5), nn::layer_norm(&g.whole, &g.number, &g.number, 1e-5);
        "LayerNorm::apply" g => LayerNorm::new(7).apply(&g.x), LayerNorm::new(1).apply(&g.number);
        "lstm_cell" g =>
            first(nn::lstm_cell(&g.x, &g.x, &g.x, &g.x, &g.x, &g.v)),
            first(nn::lstm_cell(&g.x, &g.x, &g.x, &g.x.t(), &g.x.t(), &Tensor::ones([2])));
        "Lstm::step" g => first(Lstm::new(1, 7, 2).step(&g.x, (&g.x, &g.x)));
        "Lstm::apply" g =>
            first(Lstm::new(1, 7, 2).apply(&g.x, None)),
            first(Lstm::new(1, 5, 2).apply(&g.x.unsqueeze(0), None));
        "gru_cell" g => nn::gru_cell(&g.x, &g.x, &g.x, &g.x, &g.v, &g.v);
        "Gru::step" g => Gru::new(1, 7, 2).step(&g.x, &g.x);
        "Gru::apply" g => Gru::new(1, 7, 2).apply(&g.x, None).0, Gru::new(1, 5, 2).apply(&g.x.unsqueeze(0), None).0;
        "attention" g =>
            nn::attention(&g.x, &g.x, &g.x, 1.0, Mask::None),
            nn::attention(&g.image, &g.image.cast(DType::F64), &g.image, 1.0, Mask::Causal),
            nn::attention(&g.image.cast(DType::I32), &g.image.cast(DType::I32), &g.image, 0.5, Mask::Causal);
        "dropout" g =>
            nn::dropout(&g.x, &Key::new(1), 1.5, true),
            nn::dropout(&g.x, &Key::new(1), f64::NAN, false),
            nn::dropout(&g.whole, &Key::new(1), 0.3, true),
            nn::dropout(&g.x, &Key::from_tensor(g.v.clone()), 0.5, true);
        "Dense::with_init" _g => Dense::with_init(nn::Init::he_normal().dtype(DType::U8), 1, 2, 2).weight;
        "Conv2d::with_init" _g => Conv2d::with_init(nn::Init::he_normal().dtype(DType::Bool), 1, [2, 2], 2, 2).weight;
        "ConvTranspose2d::with_init" _g =>
            ConvTranspose2d::with_init(nn::Init::he_normal().dtype(DType::Bool), 1, [2, 2], [1, 1], 2, 2).weight;
        "Init::tensor" _g => nn::Init::he_normal().dtype(DType::I32).tensor(1, [2, 2]);
        "ravel" g => tree::ravel(&(g.x.clone(), g.wide.clone())).0;
        "Unravel::apply" g => tree::ravel(&g.x).1.apply(&g.v), tree::ravel(&g.x).1.apply(&g.wide);
    }
}

/// Losses, random numbers and optimisers.
fn losses() -> Vec<Case> {
    cases! {
        "softmax_cross_entropy" g =>
            nn::softmax_cross_entropy(&g.x, &g.v),
            nn::softmax_cross_entropy(&g.x, &g.wide),
            nn::softmax_cross_entropy(&g.whole, &g.whole),
            nn::softmax_cross_entropy(&g.number, &g.number),
            nn::softmax_cross_entropy(&g.x, &g.x.slice_axis(0, 0..1));
        "softmax_cross_entropy_labels" g =>
            nn::softmax_cross_entropy_labels(&g.x, &g.whole),
            nn::softmax_cross_entropy_labels(&g.x, &g.x.sum(1)),
            nn::softmax_cross_entropy_labels(&g.x, &Tensor::from([0, 1, 2])),
            nn::softmax_cross_entropy_labels(&g.number, &Tensor::from(0)),
            nn::softmax_cross_entropy_labels(&g.whole, &Tensor::from([0, 1]));
        "softmax_cross_entropy_labels_ignoring" g =>
            nn::softmax_cross_entropy_labels_ignoring(&g.x, &g.whole, 0),
            nn::softmax_cross_entropy_labels_ignoring(&g.x, &g.x.sum(1), 0),
            nn::softmax_cross_entropy_labels_ignoring(&g.x, &Tensor::from([0_u8, 1]), -1);
        "mse" g =>
            nn::mse(&g.x, &g.v),
            nn::mse(&g.x, &g.wide),
            nn::mse(&g.whole, &g.whole),
            nn::mse(&g.x, &g.number),
            nn::mse(&g.v.reshape([4, 1]), &g.v);
        "half_mse" g =>
            nn::half_mse(&g.x, &g.v),
            nn::half_mse(&g.x, &g.wide),
            nn::half_mse(&g.whole, &g.whole),
            nn::half_mse(&g.v.reshape([4, 1]), &g.v);
        "bits" g => random::bits(&Key::from_tensor(g.v.clone()), [2]);
        "uniform" g =>
            random::uniform(&Key::from_tensor(g.v.clone()), [2], DType::F32),
            random::uniform(&key(g), [2], DType::F16),
            random::uniform(&key(g), [2], DType::I32);
        "normal" g =>
            random::normal(&Key::from_tensor(g.v.clone()), [2], DType::F32),
            random::normal(&key(g), [2], DType::Bf16);
        "bernoulli" g =>
            random::bernoulli(&key(g), 1.5, [2]),
            random::bernoulli(&key(g), f64::NAN, [2]),
            random::bernoulli(&Key::from_tensor(g.v.clone()), 0.5, [2]),
            random::bernoulli(&key(g), &g.wide, [2, 3]),
            random::bernoulli(&key(g), &g.v, [2]);
        "randint" g =>
            random::randint(&key(g), 3..3, [2], DType::I64),
            random::randint(&key(g), 0..=256, [2], DType::U8),
            random::randint(&key(g), 0..2, [2], DType::F32),
            random::randint(&key(g), .., [2], DType::Bool),
            random::randint(&Key::from_tensor(g.v.clone()), 0..2, [2], DType::I64);
        "Key::split" g => Key::from_tensor(g.v.clone()).split::<2>()[0].tensor().clone();
        "Key::split_into" g => Key::from_tensor(g.v.clone()).split_into(2)[0].tensor().clone();
        "Key::fold_in" g => key(g).fold_in(-1).tensor().clone(), key(g).fold_in(&g.v).tensor().clone();
        "Adam::update" g =>
            first(Adam::new().update(&g.x, &g.v, &adam(&g.x), 0.1)),
            first(Adam::new().update(&g.x, &g.x, &adam(&g.x), &g.v)),
            first(Adam::new().update(&g.whole, &g.whole, &adam(&g.whole), 0.1));
        "Sgd::update" g =>
            first(Sgd::new().update(&g.x, &g.v, &SgdState { velocity: g.x.clone() }, 0.1)),
            first(Sgd::new().momentum(0.5).update(&g.whole, &g.whole, &SgdState { velocity: g.whole.clone() }, 0.1));
        "clip_by_global_norm" g =>
            clip_by_global_norm(&g.truth, 1.0),
            clip_by_global_norm(&(g.x.clone(), g.wide.clone()), 1.0).0,
            clip_by_global_norm(&g.whole, 1.0);
    }
}

/// A key that is traced where the tensors are.
fn key(g: &Given) -> Key {
    Key::from_tensor(g.whole.cast(DType::U32).flatten().slice_axis(0, 0..2))
}

fn adam(like: &Tensor) -> AdamState<Tensor> {
    AdamState { step: Tensor::from(0_i64), first: like.clone(), second: like.clone() }
}

/// The method whose row of a table in this file a line belongs to.
fn row_of(line: u32) -> Option<&'static str> {
    let lines: Vec<&str> = include_str!("methods.rs").lines().collect();
    let mut above = lines[..line as usize].iter().rev();
    let row = above.find_map(|line| line.trim_start().strip_prefix('"'))?;
    row.split_once('"').map(|(method, _)| method)
}

#[track_caller]
fn check(case: &Case, error: &Error, how: &str) {
    let Error::Type { op, at, .. } = error else { panic!("{} {how}: {error}", case.method) };
    assert_eq!(*op, case.method, "{how}: {error}");
    assert_eq!((at.file(), row_of(at.line())), (file!(), Some(case.method)), "{how}: {error}");
}

#[test]
fn errors_name_the_method_of_the_line() {
    let given = Given::new();
    let cases = [pointwise(), movements(), folds(), products(), layers(), losses()].into_iter().flatten();
    let mut checked = 0;
    for case in cases {
        let eager = (case.call)(&given);
        check(&case, eager.error().unwrap_or_else(|| panic!("{} takes {eager}", case.method)), "op by op");
        let traced = trace(|given: &Given| (case.call)(given), &given);
        check(&case, &traced.map(drop).unwrap_err(), "traced");
        checked += 1;
    }
    assert!(checked > 250, "{checked}");
}

#[test]
fn a_sum_of_an_iterator_names_itself_and_not_what_it_is_given() {
    let g = Given::new();
    let of_pairs: Tensor = [&g.x, &g.v].into_iter().sum();
    assert!(matches!(of_pairs.error(), Some(Error::Type { op: "sum", .. })), "{of_pairs}");
    let of_formulas: Tensor = (0..2).map(|_| g.x.matmul(&g.x)).sum();
    assert!(matches!(of_formulas.error(), Some(Error::Type { op: "matmul", .. })), "{of_formulas}");
}
