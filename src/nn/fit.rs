//! Whether parameters fit the input of a layer: an error that names the layer, both shapes and what they are.
//!
//! Only what would be an error anyway is refused here: shapes that broadcast are fine.

use std::panic::Location;

use crate::ops::{broadcast_all, refused_among};
use crate::tensor::Tensor;

/// A tensor with what it is to the layer, such as `the bias`.
pub(super) type Role<'t> = (&'static str, &'t Tensor);

/// The poisoned result if the last axis of the input is not the first of a matrix of weights `[in, out]`.
#[track_caller]
pub(super) fn refused_product((input, x): Role<'_>, (weight, w): Role<'_>) -> Option<Tensor> {
    if poisoned(&[x, w]) || x.rank() == 0 || w.rank() != 2 || x.extent(-1) == w.extent(0) {
        return None;
    }
    let hint = match x.extent(-1) == w.extent(1) {
        true => "; this looks like PyTorch's order, [out, in]: transpose it",
        false => "",
    };
    let message = format!(
        "{input} {} has {} features, but {weight} {} is [in, out] and takes {}{hint}",
        x.type_text(),
        x.extent(-1),
        w.type_text(),
        w.extent(0)
    );
    Some(refused_among(&[x, w], message, Location::caller()))
}

/// The poisoned result if two tensors do not broadcast.
#[track_caller]
pub(super) fn refused_broadcast((one, a): Role<'_>, (other, b): Role<'_>, hint: &str) -> Option<Tensor> {
    if poisoned(&[a, b]) || broadcast_all(&[a, b]).is_ok() {
        return None;
    }
    let message = format!("{one} {} and {other} {} do not fit{hint}", a.type_text(), b.type_text());
    Some(refused_among(&[a, b], message, Location::caller()))
}

/// Whether one of the tensors carries an error, which is the one to tell.
fn poisoned(tensors: &[&Tensor]) -> bool {
    tensors.iter().any(|tensor| tensor.error().is_some())
}
