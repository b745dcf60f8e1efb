//! Functions applied to the tensors of trees, leaf by leaf.

use super::{Reader, Tree, Writer};
use crate::error::Error;
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
pub fn zip_map<T: Tree, const N: usize>(trees: [&T; N], mut f: impl FnMut([&Tensor; N]) -> Tensor) -> T {
    const { assert!(N > 0, "a function of no trees has no type") };
    let writers = trees.map(|tree| {
        let mut leaves = Writer::default();
        tree.write(&mut leaves);
        leaves
    });
    let first = &writers[0];
    let n_leaves = first.tensors.len();
    let fits = writers.iter().all(|leaves| leaves.tensors.len() == n_leaves);
    let leaf = |position: usize| match fits {
        true => f(writers.each_ref().map(|leaves| leaves.tensors[position])),
        false => Tensor::poisoned(Error::Tree("the trees do not have the same number of tensors".to_owned())),
    };
    let results: Vec<Tensor> = (0..n_leaves).map(leaf).collect();
    T::read(&mut Reader::new(&first.words, &results)).expect("a tree reads what it wrote")
}

/// All tensors of a tree, in order.
pub(crate) fn leaves<T: Tree>(tree: &T) -> Vec<Tensor> {
    let mut leaves = Writer::default();
    tree.write(&mut leaves);
    leaves.tensors.iter().map(|&tensor| tensor.clone()).collect()
}
