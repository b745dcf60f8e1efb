//! Trees of tensors as one vector, and back.

use std::marker::PhantomData;
use std::panic::Location;

use retape_runtime::Shape;

use super::{Reader, Tree, Writer};
use crate::error::ill_typed;
use crate::method::method;
use crate::ops::concat;
use crate::tensor::Tensor;
use crate::types::TensorType;

/// The elements of all tensors of a tree as one vector, and the way back.
///
/// Tensors come in the order of [`named`](super::named), each in row-major order. Both ways consist of ops: they work
/// inside a trace and outside, and are differentiated like others. So an optimiser or a solver that is written for
/// vectors serves trees as well.
///
/// The vector is poisoned if the tensors differ in dtype, or if there are none, since then it would have no dtype.
///
/// ```
/// use retape::{Tensor, accelerate, tree};
///
/// let loss = |p: &(Tensor, Tensor)| (&p.0 * &p.1).square().sum(..);
/// let p = (Tensor::from([1.0_f32, 2.0]), Tensor::from(3.0_f32));
/// let (vector, unravel) = tree::ravel(&p);
/// assert_eq!(vector.to_vec::<f32>()?, [1.0, 2.0, 3.0]);
///
/// // The gradient of a function of trees as one of a function of vectors.
/// let slope = accelerate(move |vector: &Tensor| loss(&unravel.apply(vector)).grad(vector));
/// assert_eq!(slope.call(&vector)?.to_vec::<f32>()?, [18.0, 36.0, 30.0]);
/// # Ok::<(), retape::Error>(())
/// ```
#[track_caller]
pub fn ravel<T: Tree>(tree: &T) -> (Tensor, Unravel<T>) {
    let leaves = Writer::of_named(tree);
    let (at, _method) = (Location::caller(), method("ravel"));
    let types: Vec<TensorType> = leaves.tensors.iter().filter_map(|leaf| leaf.ty().cloned()).collect();
    let vector = match leaves.tensors.iter().find(|leaf| leaf.error().is_some()) {
        Some(poisoned) => Tensor::clone(poisoned),
        None => match types.iter().position(|ty| ty.dtype != types[0].dtype) {
            Some(other) => {
                let names = leaves.tensor_names();
                let (first, name) = (&names[0], &names[other]);
                let message = format!(
                    "`{name}` is {}, `{first}` is {}: a vector has one dtype; ravel them apart",
                    types[other], types[0]
                );
                leaves.tensors[other].refused(message, at)
            }
            None if types.is_empty() => {
                let message = "the tree has no tensors, so its vector has no dtype".to_owned();
                Tensor::poisoned(ill_typed("ravel", message, at))
            }
            None => {
                let parts: Vec<Tensor> =
                    leaves.tensors.iter().map(|leaf| leaf.reshape_at(Shape::new(&[leaf.n_elements()]), at)).collect();
                concat(&parts.iter().collect::<Vec<_>>(), 0)
            }
        },
    };
    let failed = vector.error().is_some().then(|| vector.clone());
    let (words, n_leaves) = (leaves.words.to_vec(), leaves.tensors.len());
    (vector, Unravel { words, types, n_leaves, failed, tree: PhantomData })
}

/// The way from a vector back to the tree whose [`ravel`] it is.
#[derive(Clone, Debug)]
pub struct Unravel<T> {
    words: Vec<u64>,
    types: Vec<TensorType>,
    n_leaves: usize,
    /// The vector, if it was poisoned.
    failed: Option<Tensor>,
    tree: PhantomData<fn() -> T>,
}

impl<T: Tree> Unravel<T> {
    /// A tree of the structure, static values, shapes and dtype of the one that was ravelled, with the elements of a
    /// vector of the length and dtype of its ravel.
    ///
    /// All its tensors are poisoned if the vector is of another type, or if the ravel was poisoned.
    #[track_caller]
    pub fn apply(&self, vector: &Tensor) -> T {
        let (at, _method) = (Location::caller(), method("Unravel::apply"));
        let tensors = match self.refusal(vector) {
            Some(Ok(poisoned)) => vec![poisoned; self.n_leaves],
            Some(Err(message)) => vec![vector.refused(message, at); self.n_leaves],
            None => {
                let mut start = 0;
                let part = |ty: &TensorType| {
                    start += ty.n_elements();
                    vector.part(0, start - ty.n_elements(), start, at).reshape_at(ty.shape.clone(), at)
                };
                self.types.iter().map(part).collect()
            }
        };
        T::read(&mut Reader::new(&self.words, &tensors)).expect("a tree reads what it wrote")
    }

    /// The poisoned tensor that the tree is made of, or why the vector does not fit, if one is so.
    fn refusal(&self, vector: &Tensor) -> Option<Result<Tensor, String>> {
        let poisoned = self.failed.iter().chain([vector]).find(|tensor| tensor.error().is_some());
        if let Some(poisoned) = poisoned {
            return Some(Ok(poisoned.clone()));
        }
        let wanted = TensorType::new(self.types.first()?.dtype, [self.types.iter().map(TensorType::n_elements).sum()]);
        (vector.ty() != Some(&wanted))
            .then(|| Err(format!("the vector is {}, but that of the tree is {wanted}", vector.type_text())))
    }
}
