//! Functions applied to the tensors of trees, leaf by leaf, and the types that trees are made of.

use std::panic::Location;

use super::{Reader, Tree, Writer};
use crate::error::ill_typed;
use crate::tensor::Tensor;

/// A tree of the same structure with `f` applied to each tensor.
///
/// ```
/// # use retape::{Tensor, map};
/// let pair = (Tensor::from([1.0_f32]), Tensor::from([2.0_f32]));
/// let doubled = map(&pair, |x| x * 2.0);
/// assert_eq!(doubled.1.to_vec::<f32>()?, [4.0]);
/// # Ok::<(), retape::Error>(())
/// ```
pub fn map<T: Tree>(tree: &T, mut f: impl FnMut(&Tensor) -> Tensor) -> T {
    zip_map([tree], |[leaf]| f(leaf))
}

/// A tree of the structure of the first with `f` applied to the tensors that stand at the same place in each.
///
/// All tensors of the result are poisoned if the trees do not have as many. A tree that is none is refused by the
/// compiler.
///
/// # Panics
///
/// Panics if the tree is of a type whose own [`read`](Tree::read) refuses what its [`write`](Tree::write) wrote.
///
/// ```
/// # use retape::{Tensor, zip_map};
/// let (a, b) = ((Tensor::from([1.0_f32]),), (Tensor::from([2.0_f32]),));
/// let sum = zip_map([&a, &b], |[x, y]| x + y);
/// assert_eq!(sum.0.to_vec::<f32>()?, [3.0]);
/// # Ok::<(), retape::Error>(())
/// ```
#[track_caller]
pub fn zip_map<T: Tree, const N: usize>(trees: [&T; N], mut f: impl FnMut([&Tensor; N]) -> Tensor) -> T {
    const { assert!(N > 0, "a function of no trees has no structure") };
    let writers = trees.map(Writer::of);
    let first = &writers[0];
    let n_leaves = first.tensors.len();
    let results: Vec<Tensor> = match writers.iter().position(|leaves| leaves.tensors.len() != n_leaves) {
        None => (0..n_leaves).map(|leaf| f(writers.each_ref().map(|leaves| leaves.tensors[leaf]))).collect(),
        Some(other) => {
            let n_others = writers[other].tensors.len();
            let message = format!("tree {other} has {n_others} tensors, tree 0 has {n_leaves}");
            let error = ill_typed("zip_map", message, Location::caller());
            let traced = first.tensors.iter().find_map(|tensor| tensor.as_traced());
            let poisoned = traced.map(|traced| traced.recording.fail(error.clone()));
            vec![poisoned.unwrap_or_else(|| Tensor::poisoned(error)); n_leaves]
        }
    };
    rebuilt(first, &results)
}

/// A tree of the same structure with `f` applied to each tensor and its name, as [`named`] gives it.
///
/// ```
/// # use retape::{Tensor, nn::Dense, tree};
/// let layers = vec![Dense::new(1, 2, 2), Dense::new(2, 2, 2)];
/// let frozen = tree::map_named(&layers, |name, x| if name == "0.weight" { x.stop_gradient() } else { x * 0.5 });
/// assert!(tree::same_bits(&frozen[0].weight, &layers[0].weight)?);
/// # Ok::<(), retape::Error>(())
/// ```
pub fn map_named<T: Tree>(tree: &T, mut f: impl FnMut(&str, &Tensor) -> Tensor) -> T {
    let leaves = Writer::of_named(tree);
    let names = leaves.tensor_names();
    let results: Vec<Tensor> = names.iter().zip(leaves.tensors.iter()).map(|(name, leaf)| f(name, leaf)).collect();
    rebuilt(&leaves, &results)
}

/// A tree of the same structure with `f` applied to each tensor, in order; the first error ends it.
///
/// # Errors
///
/// Those of `f`.
///
/// ```
/// # use retape::{Error, Tensor, tree};
/// // Fails, instead of going on with poisoned tensors.
/// let whole = |x: &Tensor| x.error().cloned().map_or_else(|| Ok(x.clone()), Err);
/// let pair = (Tensor::ones([2]), Tensor::ones([2]) + Tensor::ones([3]));
/// assert!(matches!(tree::try_map(&pair, whole), Err(Error::Type { op: "add", .. })));
/// ```
pub fn try_map<T: Tree, E>(tree: &T, f: impl FnMut(&Tensor) -> Result<Tensor, E>) -> Result<T, E> {
    let leaves = Writer::of(tree);
    let results = leaves.tensors.iter().copied().map(f).collect::<Result<Vec<Tensor>, E>>()?;
    Ok(rebuilt(&leaves, &results))
}

/// The tensors of a tree in order, each with its name: the fields, positions and keys that lead to it, joined by dots.
///
/// A key of a map stands in double quotes if it is empty or has a dot or a quote itself, so that names are distinct. The
/// name of a tree that is one tensor is `value`.
///
/// ```
/// use retape::{Tensor, Tree, nn, tree};
///
/// #[derive(Tree)]
/// struct Block {
///     conv: nn::Conv2d,
/// }
///
/// #[derive(Tree)]
/// struct Net {
///     blocks: Vec<Block>,
/// }
///
/// let net = Net { blocks: vec![Block { conv: nn::Conv2d::new(1, [3, 3], 1, 8) }] };
/// let named = tree::named(&net);
/// assert_eq!(named[0].0, "blocks.0.conv.weight");
/// assert_eq!(named[0].1.shape(), [3, 3, 1, 8]);
/// ```
pub fn named<T: Tree>(tree: &T) -> Vec<(String, &Tensor)> {
    let leaves = Writer::of_named(tree);
    let names = leaves.tensor_names();
    names.into_iter().zip(leaves.tensors.iter().copied()).collect()
}

/// The number of elements of all tensors of a tree; a poisoned one has none.
///
/// ```
/// # use retape::{nn::Dense, tree};
/// assert_eq!(tree::n_parameters(&Dense::new(1, 3, 2)), 8);
/// ```
pub fn n_parameters<T: Tree>(tree: &T) -> usize {
    Writer::of(tree).tensors.iter().filter_map(|tensor| tensor.ty()).map(|ty| ty.n_elements()).sum()
}

/// All tensors of a tree, in order.
pub(crate) fn leaves<T: Tree>(tree: &T) -> Vec<Tensor> {
    Writer::of(tree).tensors.iter().map(|&tensor| tensor.clone()).collect()
}

/// The tree that was written, with other tensors.
pub(super) fn rebuilt<T: Tree>(leaves: &Writer<'_>, tensors: &[Tensor]) -> T {
    T::read(&mut Reader::new(&leaves.words, tensors)).expect("a tree reads what it wrote")
}
