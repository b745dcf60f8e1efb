//! Whether gradients, states and rates belong to the parameters that they are given with.

use retape_runtime::DType;

use crate::error::Caller;
use crate::ops::refused_among;
use crate::tensor::Tensor;
use crate::tree::{Tree, Writer, leaves, map};

/// The arguments of an update that are no trees like the parameters.
pub(super) struct Scalars<'a> {
    /// Of any dtype: it is cast to that of each parameter.
    pub(super) rate: &'a Tensor,
    /// The number of steps taken, where the optimiser counts them.
    pub(super) step: Option<&'a Tensor>,
}

impl Scalars<'_> {
    /// The first that is not as it should be, with the reason. A poisoned tensor has an error of its own.
    fn unfit(&self) -> Option<(String, Vec<Tensor>)> {
        let is_scalar = |tensor: &Tensor| tensor.ty().is_none_or(|ty| ty.shape.is_empty());
        if !is_scalar(self.rate) {
            let given = self.rate.type_text();
            return Some((format!("learning_rate is {given}, which is no scalar"), vec![self.rate.clone()]));
        }
        let is_count = |step: &Tensor| is_scalar(step) && step.ty().is_none_or(|ty| ty.dtype == DType::I64);
        self.step.filter(|step| !is_count(step)).map(|step| {
            let message = format!("state.step is {}, which is no scalar of `i64`", step.type_text());
            (message, vec![step.clone()])
        })
    }
}

/// A tree of poisoned tensors, if a scalar is unfit, or if the tensors of a tree are not of the types of the parameters: the
/// error names the first that is not, and both types.
pub(super) fn refused<P: Tree>(parameters: &P, trees: &[(&str, &P)], scalars: &Scalars<'_>, at: Caller) -> Option<P> {
    let own = leaves(parameters);
    let unlike = || {
        trees.iter().find_map(|(name, tree)| {
            let others = leaves(*tree);
            difference((parameters, &own), (name, *tree, &others)).map(|message| (message, others))
        })
    };
    let (message, tensors) = unlike().or_else(|| scalars.unfit())?;
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
