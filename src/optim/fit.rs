//! Whether gradients and states belong to the parameters that they are given with.

use crate::error::Caller;
use crate::ops::refused_among;
use crate::tensor::Tensor;
use crate::tree::{Tree, Writer, leaves, map};

/// A tree of poisoned tensors, if the tensors of a tree are not of the types of the parameters: the error names the first
/// that is not, and both types.
pub(super) fn refused<P: Tree>(parameters: &P, trees: &[(&str, &P)], at: Caller) -> Option<P> {
    let own = leaves(parameters);
    let (message, tensors) = trees.iter().find_map(|(name, tree)| {
        let others = leaves(*tree);
        difference((parameters, &own), (name, *tree, &others)).map(|message| (message, others))
    })?;
    let refused = refused_among(&own.iter().chain(&tensors).collect::<Vec<_>>(), message, at);
    Some(map(parameters, |_| refused.clone()))
}

/// The first difference between the tensors of parameters and of another tree, in words. A poisoned tensor differs in
/// nothing: it has an error of its own.
fn difference<P: Tree>(
    (parameters, own): (&P, &[Tensor]),
    (name, tree, others): (&str, &P, &[Tensor]),
) -> Option<String> {
    let differs = |(x, y): (&Tensor, &Tensor)| x.ty().zip(y.ty()).is_some_and(|(x, y)| x != y);
    let first = own.iter().zip(others).position(differs);
    let remedy = "they belong to other parameters, or to the same in another order";
    if let Some(position) = first {
        let path = |tree: &P, root: &str| Writer::of_named(tree).tensor_paths(root).swap_remove(position);
        let (theirs, ours) = (path(tree, name), path(parameters, "parameters"));
        let (given, wanted) = (others[position].type_text(), own[position].type_text());
        return Some(format!("{theirs} is {given}, {ours} is {wanted}: {remedy}"));
    }
    let (n_others, n_own) = (others.len(), own.len());
    let (longer, root, of) =
        if n_others > n_own { (tree, name, "parameters") } else { (parameters, "parameters", name) };
    (n_others != n_own).then(|| {
        let extra = Writer::of_named(longer).tensor_paths(root).swap_remove(n_own.min(n_others));
        format!("{name} has {n_others} tensors, parameters has {n_own}: {of} has no counterpart of {extra}; {remedy}")
    })
}
