//! Attention.

use std::panic::Location;

use retape_runtime::{DType, Device};

use crate::error::Caller;
use crate::method::method;
use crate::ops::{attend, einsum, masked, refused_among};
use crate::tensor::Tensor;

/// Which positions a query may attend to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mask {
    /// All of them.
    None,
    /// Its own and those before it.
    Causal,
}

/// Whether scores lie in memory: of fewer than eight queries, and of up to 64 if scores take no more memory than keys and
/// values. The kernel that keeps scores out of it computes them twice, packs keys and values for every 128 queries, and has
/// 32 queries in a strip.
fn keeps_scores(n_queries: usize, features: usize) -> bool {
    n_queries < 8 || n_queries <= features.min(64)
}

/// Softmax attention over `[batch, position, head, feature]`: for each head and query the mean of the values, weighted
/// by the softmax of `scale` times the products of the query with the keys.
///
/// On the processor, the scores of more than 64 queries need no memory, in the gradient either, nor do those of eight or more
/// if a key and its value have fewer features than there are queries; a causal mask then halves the work, and a weight below about 2^-100 of the largest (2^-938 in `f64`) counts as zero there.
///
/// ```
/// use retape::{Tensor, nn};
///
/// let x = Tensor::ones([1, 3, 2, 4]);
/// assert_eq!(nn::attention(&x, &x, &x, 0.5, nn::Mask::Causal).shape(), [1, 3, 2, 4]);
/// ```
#[track_caller]
pub fn attention(queries: &Tensor, keys: &Tensor, values: &Tensor, scale: f64, mask: Mask) -> Tensor {
    let (at, _method) = (Location::caller(), method("attention"));
    if let Some(refused) = refused([queries, keys, values], at) {
        return refused;
    }
    let causal = mask == Mask::Causal;
    let has_kernel = queries.device() == Device::Cpu && matches!(queries.dtype(), DType::F32 | DType::F64);
    // Without keys, the logarithm of the sum of no powers is -inf, which a trap would find.
    let few = keeps_scores(queries.extent(1), keys.extent(3) + values.extent(3));
    if has_kernel && !few && keys.extent(1) > 0 {
        return attend(queries, keys, values, scale, causal);
    }
    let scores = einsum("bqhd,bkhd->bhqk", &[queries, keys]) * scale;
    einsum("bhqk,bkhd->bqhd", &[&masked(&scores, causal, f64::NEG_INFINITY).softmax(-1), values])
}

/// The poisoned result if batch, positions, heads or features do not agree.
fn refused(tensors: [&Tensor; 3], at: Caller) -> Option<Tensor> {
    if tensors.iter().any(|tensor| tensor.error().is_some()) {
        return None;
    }
    let fits = match tensors.map(Tensor::shape) {
        [&[batch, _, heads, features], keys @ &[_, positions, _, _], values @ &[_, _, _, _]] => {
            *keys == [batch, positions, heads, features] && values[..3] == keys[..3]
        }
        _ => false,
    };
    let [queries, keys, values] = tensors.map(Tensor::type_text);
    let message = format!(
        "the queries {queries}, keys {keys} and values {values} must be [batch, position, head, feature], queries and keys \
         of the same batch, heads and features, keys and values of the same batch, positions and heads"
    );
    (!fits).then(|| refused_among(&tensors, message, at))
}
