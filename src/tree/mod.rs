//! Structured arguments and results: flattened into leaves, and rebuilt from them.
//!
//! A tree is written as a stream of words that says everything a trace depends on (structure, static values, dtype,
//! shape and device of each tensor) and, beside it, the tensors themselves. Reading is the inverse. Trees of one Rust
//! type are structurally equal exactly if their words are equal, which makes the words the body of a signature.
//!
//! | what | functions |
//! |---|---|
//! | a tree made of others, tensor by tensor | [`map`], [`zip_map`], [`map_named`], [`try_map`] |
//! | tensors with their names, for files of parameters | [`named`] |
//! | a tree as one vector, and back | [`ravel`], [`Unravel`] |
//! | how large a tree is, and whether two are equal | [`n_parameters`], [`same_bits`] |

mod compare;
mod derived;
mod describe;
mod impls;
mod map;
mod ravel;
mod reader;
mod refused;
mod scratch;
mod statics;
#[cfg(test)]
mod tests;
mod writer;

pub use compare::same_bits;
#[doc(hidden)]
pub use derived::{HasField, HasStaticField};
pub(crate) use map::leaves;
pub use map::{map, map_named, n_parameters, named, try_map, zip_map};
pub use ravel::{Unravel, ravel};
pub use reader::Reader;
/// Derives the trait [`Tree`](trait@Tree).
pub use retape_derive::Tree;
pub(crate) use scratch::{TensorList, Words};
pub use statics::Static;
pub use writer::{Field, Writer};

use crate::error::Result;

/// A structure whose leaves are tensors and static values.
///
/// Tensors are inputs. Every other leaf (`bool`, integers, `String`, enums) is *static*: its value is part of the
/// signature, so a new value means a new trace. Floats are no leaves: pass a number that changes as a [`Tensor`]
/// (calls convert `f32` and `f64` for you), and one that never changes in [`Static`].
///
/// Use `#[derive(Tree)]` for structs and enums. A field marked `#[tree(static)]` is a static leaf, and one marked
/// `#[tree(rename = "..")]` has another name in paths, messages and files than in Rust:
///
/// ```
/// use retape::{Tensor, Tree, tree};
///
/// #[derive(Tree)]
/// struct Linear {
///     #[tree(rename = "weight")]
///     w: Tensor,
///     #[tree(static)]
///     slope: f32,
/// }
///
/// assert_eq!(tree::named(&Linear { w: Tensor::zeros([2]), slope: 0.1 })[0].0, "weight");
/// ```
///
/// [`Tensor`]: crate::Tensor
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a `Tree`: derive it with `#[derive(Tree)]`, or use an owned type that is one",
    label = "`{Self}` is not a `Tree`",
    note = "trees are tensors, static values (`bool`, integers, `String`), and structs, tuples and collections of trees"
)]
pub trait Tree: Sized {
    /// Writes structure and static values as words, and the tensors.
    fn write<'t>(&'t self, to: &mut Writer<'t>);

    /// Reads what `write` wrote.
    ///
    /// # Errors
    ///
    /// Fails if the stream was not written by this type.
    fn read(from: &mut Reader<'_>) -> Result<Self>;
}

/// A plain value that can be part of a signature, word by word.
///
/// Two values must write the same words exactly if a trace may treat them as the same.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a static value of a signature",
    label = "not a `StaticLeaf`",
    note = "static values are numbers, `bool`, `char`, `String`, `DType`, and tuples, arrays and options of them"
)]
pub trait StaticLeaf: Sized {
    /// Writes the value as words.
    fn write_static(&self, to: &mut Writer<'_>);

    /// Reads what `write_static` wrote.
    ///
    /// # Errors
    ///
    /// Fails if the stream was not written by this type.
    fn read_static(from: &mut Reader<'_>) -> Result<Self>;
}
