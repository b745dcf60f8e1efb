//! Layers that connect everything with everything, and tables of vectors.

use std::panic::Location;

use super::Init;
use super::fit::{refused_broadcast, refused_product};
use crate::method::method;
use crate::ops::refused_among;
use crate::tensor::Tensor;
use crate::tree::Tree;

/// `x weight + bias` for `x` of shape `[.., in]`, `weight` of shape `[in, out]` and `bias` of shape `[out]`.
#[track_caller]
pub fn dense(x: &Tensor, weight: &Tensor, bias: &Tensor) -> Tensor {
    let _method = method("dense");
    if let Some(refused) = refused_product(("the input", x), ("the weight", weight)) {
        return refused;
    }
    let y = x.matmul(weight);
    match refused_broadcast(("the product with the weight", &y), ("the bias", bias), "") {
        Some(refused) => refused,
        None => y + bias,
    }
}

/// The rows of `table` that `ids` (`i32`, `i64` or `u32`, of any shape) name: shape `ids.shape() + [features]`.
///
/// As [`Tensor::take`]: negative ids count from the end, and an id out of range has a row of NaN.
#[track_caller]
pub fn embedding(table: &Tensor, ids: &Tensor) -> Tensor {
    let _method = method("embedding");
    let is_float = ids.error().is_none() && !ids.dtype().is_int();
    if is_float && table.error().is_none() {
        let message = format!("the ids {} must be integers; cast them", ids.type_text());
        return refused_among(&[table, ids], message, Location::caller());
    }
    table.take(ids, 0)
}

/// A dense layer: weight `[in, out]` and bias `[out]`.
///
/// ```
/// use retape::{Tensor, nn::Dense};
///
/// let layer = Dense::new(1, 3, 2);
/// assert_eq!(layer.apply(&Tensor::zeros([5, 3])).shape(), [5, 2]);
/// ```
#[derive(Clone, Debug, Tree)]
pub struct Dense {
    /// `[in, out]`.
    pub weight: Tensor,
    /// `[out]`.
    pub bias: Tensor,
}

/// A table of vectors, `[entries, features]`.
#[derive(Clone, Debug, Tree)]
pub struct Embedding {
    /// `[entries, features]`.
    pub table: Tensor,
}

impl Dense {
    /// A layer with Glorot's uniform weights and zero bias.
    #[track_caller]
    pub fn new(seed: u64, n_in: usize, n_out: usize) -> Dense {
        Dense::with_init(Init::glorot_uniform(), seed, n_in, n_out)
    }

    /// A layer with weights by another rule.
    #[track_caller]
    pub fn with_init(init: Init, seed: u64, n_in: usize, n_out: usize) -> Dense {
        let _method = method("Dense::with_init");
        let weight = init.tensor(seed, [n_in, n_out]);
        Dense { bias: Tensor::zeros_of(weight.dtype(), [n_out]), weight }
    }

    /// A layer with the parameters of PyTorch's `Linear`: weight `[out, in]` and bias `[out]`.
    ///
    /// ```
    /// # use retape::{Tensor, nn::Dense};
    /// let layer = Dense::from_pytorch(&Tensor::ones([2, 3]), &Tensor::zeros([2]));
    /// assert_eq!(layer.weight.shape(), [3, 2]);
    /// ```
    #[track_caller]
    pub fn from_pytorch(weight: &Tensor, bias: &Tensor) -> Dense {
        Dense { weight: weight.permute([1, 0]), bias: bias.clone() }
    }

    /// `x weight + bias`.
    #[track_caller]
    pub fn apply(&self, x: &Tensor) -> Tensor {
        let _method = method("Dense::apply");
        dense(x, &self.weight, &self.bias)
    }
}

impl Embedding {
    /// A table with entries of variance `1 / features`.
    #[track_caller]
    pub fn new(seed: u64, n_entries: usize, n_features: usize) -> Embedding {
        let gain = n_entries as f64 / n_features.max(1) as f64;
        Embedding { table: Init::he_normal().gain(gain).tensor(seed, [n_entries, n_features]) }
    }

    /// The vectors that integer `ids` name.
    #[track_caller]
    pub fn apply(&self, ids: &Tensor) -> Tensor {
        let _method = method("Embedding::apply");
        embedding(&self.table, ids)
    }
}
