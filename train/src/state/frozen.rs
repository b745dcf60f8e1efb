//! Keeping a part of a tree as it is.

use retape::{Tensor, Tree, tree};

use crate::error::{Error, Result};

/// Parts of a tree of parameters that do not learn.
///
/// In the step, [`stop`](Frozen::stop) lets no gradient flow into them, so that none is computed, and
/// [`keep`](Frozen::keep) puts them back after the optimiser: momentum, weight decay and noise do not move them either.
///
/// ```
/// use retape::nn::{self, Dense};
/// use retape::optim::Sgd;
/// use retape::{Tensor, Tree, accelerate, tree};
/// use retape_train::state::Frozen;
///
/// #[derive(Clone, Tree)]
/// struct Net {
///     features: Dense,
///     head: Dense,
/// }
///
/// let net = Net { features: Dense::new(1, 2, 4), head: Dense::new(2, 4, 1) };
/// let frozen = Frozen::parts(&net, ["features"])?;
/// let in_step = frozen.clone();
/// let step = accelerate(move |net: &Net, x: &Tensor, y: &Tensor| {
///     let fixed = in_step.stop(net);
///     let loss = nn::mse(&fixed.head.apply(&fixed.features.apply(x).relu()), y);
///     let sgd = Sgd::new();
///     let (after, _) = sgd.update(net, &loss.grad(net), &sgd.init(net), 0.1);
///     in_step.keep(net, after)
/// });
/// let after = step.call(&net, Tensor::ones([3, 2]), Tensor::ones([3, 1]))?;
/// assert!(tree::same_bits(&after.features, &net.features)?);
/// assert!(!tree::same_bits(&after.head, &net.head)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frozen {
    parts: Vec<String>,
}

impl Frozen {
    /// The parts of these names: of a tensor (`conv1.weight`), or of everything below (`conv1`).
    ///
    /// # Errors
    ///
    /// Fails if the tree has nothing of such a name, and lists the names that it has.
    #[track_caller]
    pub fn parts<T: Tree, S: Into<String>>(tree: &T, parts: impl IntoIterator<Item = S>) -> Result<Frozen> {
        let parts: Vec<String> = parts.into_iter().map(Into::into).collect();
        let names: Vec<String> = tree::named(tree).into_iter().map(|(name, _)| name).collect();
        match parts.iter().find(|part| !names.iter().any(|name| is_part(name, part))) {
            Some(part) => {
                let names = names.join(", ");
                Err(Error::argument(format!("no tensor is called `{part}` or stands below it; there are {names}")))
            }
            None => Ok(Frozen { parts }),
        }
    }

    /// Whether the tensor of this name does not learn.
    pub fn contains(&self, name: &str) -> bool {
        self.parts.iter().any(|part| is_part(name, part))
    }

    /// The tree, with no gradient flowing into the frozen parts.
    #[must_use]
    pub fn stop<T: Tree>(&self, tree: &T) -> T {
        tree::map_named(tree, |name, x| if self.contains(name) { x.stop_gradient() } else { x.clone() })
    }

    /// The tree `after`, with the frozen parts of `before`.
    #[must_use]
    pub fn keep<T: Tree>(&self, before: &T, after: T) -> T {
        let old: Vec<Tensor> = tree::named(before).into_iter().map(|(_, tensor)| tensor.clone()).collect();
        let mut old = old.into_iter();
        tree::map_named(&after, |name, new| match old.next() {
            Some(old) if self.contains(name) => old,
            _ => new.clone(),
        })
    }

    /// The number of elements that do learn.
    pub fn n_trainable<T: Tree>(&self, tree: &T) -> usize {
        let learns = |(name, _): &(String, &Tensor)| !self.contains(name);
        tree::named(tree).into_iter().filter(learns).map(|(_, tensor)| tensor.n_elements()).sum()
    }
}

fn is_part(name: &str, part: &str) -> bool {
    name.strip_prefix(part).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}
