//! Orders of axes in errors of convolutions and pooling: their own, and a hint where the order of another library would
//! fit.
//!
//! PyTorch has images as `[batch, channels, height, width]`, and filters as `[out, in, height, width]` (those of
//! transposed convolutions as `[in, out, height, width]`).

use retape_runtime::Shape;

use super::TypeError;
use crate::types::TensorType;

/// The order of an image's axes.
pub(crate) const IMAGES: &str = "images are [batch, height, width, channels]";

/// The permutation from PyTorch's images to ours.
const TO_IMAGES: [usize; 4] = [0, 2, 3, 1];
/// The permutation from PyTorch's filters to ours, those of transposed convolutions too.
const TO_FILTER: [usize; 4] = [2, 3, 1, 0];

/// A type with its axes in another order, if it has four.
fn permuted(ty: &TensorType, order: [usize; 4]) -> Option<TensorType> {
    (ty.rank() == 4).then(|| ty.with_shape(order.iter().map(|&axis| ty.shape[axis]).collect::<Shape>()))
}

/// Images in our order, if they are more likely in PyTorch's: if they are closer to squares then.
fn turned_images(images: &TensorType) -> Option<TensorType> {
    let turned = permuted(images, TO_IMAGES)?;
    let sides = |ty: &TensorType| [ty.shape[1].min(ty.shape[2]) as u128, ty.shape[1].max(ty.shape[2]) as u128];
    let ([short, long], [own_short, own_long]) = (sides(&turned), sides(images));
    (short * own_long >= own_short * long).then_some(turned)
}

/// A filter in our order, if it is more likely in PyTorch's: if it has fewer taps then, and does not give up a square
/// window for one that is none, as `[3, 3, 1, 8]` would.
fn turned_filter(filter: &TensorType) -> Option<TensorType> {
    let turned = permuted(filter, TO_FILTER)?;
    let n_taps = |ty: &TensorType| ty.shape[0] as u128 * ty.shape[1] as u128;
    let is_square = |ty: &TensorType| ty.shape[0] == ty.shape[1];
    (n_taps(&turned) < n_taps(filter) && (is_square(&turned) || !is_square(filter))).then_some(turned)
}

/// Adds to an error about images that they fit after a permutation, if they do.
pub(crate) fn with_image_hint(error: TypeError, images: &TensorType, fits: impl Fn(&TensorType) -> bool) -> TypeError {
    let hint = match turned_images(images) {
        Some(images) if fits(&images) => {
            format!("; this looks like PyTorch's order: permute the images by {TO_IMAGES:?}")
        }
        _ => String::new(),
    };
    TypeError(format!("{}; {IMAGES}{hint}", error.0))
}

/// Adds to an error about images and a filter, whose axes are `filters`, which of them fit after a permutation.
pub(crate) fn with_filter_hint(
    error: TypeError,
    filters: &str,
    [images, filter]: [&TensorType; 2],
    fits: impl Fn(&TensorType, &TensorType) -> bool,
) -> TypeError {
    let (turned_images, turned_filter) = (turned_images(images), turned_filter(filter));
    let candidates = [
        (Some(images), turned_filter.as_ref(), format!("permute the filter by {TO_FILTER:?}")),
        (
            turned_images.as_ref(),
            turned_filter.as_ref(),
            format!("permute the images by {TO_IMAGES:?} and the filter by {TO_FILTER:?}"),
        ),
        (turned_images.as_ref(), Some(filter), format!("permute the images by {TO_IMAGES:?}")),
    ];
    let remedy = candidates.into_iter().find_map(|(images, filter, remedy)| {
        let (images, filter) = images.zip(filter)?;
        fits(images, filter).then_some(remedy)
    });
    let hint = remedy.map_or_else(String::new, |remedy| format!("; this looks like PyTorch's order: {remedy}"));
    TypeError(format!("{}; {IMAGES}, filters {filters}{hint}", error.0))
}

/// The doubt about a filter that fits: a tall window for as many channels as it is wide, which in PyTorch's order is
/// many square windows.
pub(crate) fn doubt_of_filter(filter: &TensorType) -> Option<String> {
    match *filter.shape {
        [height, width, n_in, n_out] if width > 1 && [n_in, n_out] == [width; 2] && height > width => Some(format!(
            "the filter {filter} is one of {height} x {width} taps for {n_out} channels; if it is meant as {height} filters \
             of {width} x {width}, it is in PyTorch's order: permute it by {TO_FILTER:?}"
        )),
        _ => None,
    }
}
