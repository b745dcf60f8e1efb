//! Convolutions that are products of matrices: those of one tap, and those with windows as wide as the image.
//!
//! A sum over the taps of such a window has the steps of the product, in the same order, so that no bit changes. A
//! product knows more ways to be computed, and what reads it can have other views of it. Gradients are products where
//! their sums have these steps as well: that of an image meets zeros beyond the cotangent, if windows have more taps.

use smallvec::smallvec;

use super::rewrite::RewriteSite;
use crate::ops::{Conv2d, MatMul, Op, Permute, Reshape};
use crate::types::{TensorType, ValueId};

/// Rows of windows and elements of each of them, if these rows are the image in order: a window has one tap, which visits
/// every pixel, or it is as wide as the image, and as high as it or of one line.
fn rows_of_windows(conv: &Conv2d, image: &TensorType, filter: &TensorType) -> Option<[usize; 2]> {
    let (images, taps) = (&image.shape, &filter.shape);
    let extents = [images[1], images[2]];
    let visits_all = |axis: usize| taps[axis] == 1 && (conv.stride[axis] == 1 || extents[axis] == 1);
    let is_whole = |axis: usize| taps[axis] == extents[axis] && (taps[axis] == 1 || conv.dilation[axis] == 1);
    let fits = is_whole(0) && is_whole(1) || visits_all(0) && (is_whole(1) || visits_all(1));
    let is_plain = conv.groups == 1 && conv.padding == [[0; 2]; 2];
    let elements = taps[0] * taps[1] * taps[2];
    (is_plain && fits && elements > 0).then(|| [image.n_elements() / elements, elements])
}

/// Whether a filter has one tap.
fn has_one_tap(filter: &TensorType) -> bool {
    filter.shape[..2] == [1, 1]
}

/// The value as a matrix.
fn matrix(at: &mut RewriteSite<'_>, value: ValueId, rows: usize, columns: usize) -> Option<ValueId> {
    at.apply(Reshape { shape: [rows, columns].into() }, &[value])
}

/// The transpose of a matrix.
fn turned(at: &mut RewriteSite<'_>, matrix: ValueId) -> Option<ValueId> {
    at.apply(Permute { perm: smallvec![1, 0] }, &[matrix])
}

/// The product of two matrices, in the shape of the result.
fn product(at: &mut RewriteSite<'_>, a: ValueId, b: ValueId) -> Option<ValueId> {
    let product = at.apply(MatMul, &[a, b])?;
    at.apply(Reshape { shape: at.ty.shape.clone() }, &[product])
}

/// The image as rows, one for each window, times the filter as columns.
pub(super) fn conv_is_product(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let Op::Conv2d(conv) = at.op else { return None };
    let [rows, taps] = rows_of_windows(conv, at.arg_ty(0), at.arg_ty(1))?;
    let (image, filter, n_out) = (at.args[0], at.args[1], at.ty.shape[3]);
    let a = matrix(at, image, rows, taps)?;
    let b = matrix(at, filter, taps, n_out)?;
    product(at, a, b)
}

/// The cotangent's pixels times the transposed filter.
pub(super) fn conv_input_grad_is_product(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let Op::Conv2dInputGrad(gradient) = at.op else { return None };
    let [rows, taps] = rows_of_windows(&gradient.conv(), at.ty, at.arg_ty(1))?;
    if !has_one_tap(at.arg_ty(1)) || gradient.stride != [1, 1] {
        return None;
    }
    let (ct, filter, n_out) = (at.args[0], at.args[1], at.arg_ty(1).shape[3]);
    let a = matrix(at, ct, rows, n_out)?;
    let b = matrix(at, filter, taps, n_out)?;
    let b = turned(at, b)?;
    product(at, a, b)
}

/// The transposed image times the cotangent's pixels.
pub(super) fn conv_filter_grad_is_product(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let Op::Conv2dFilterGrad(gradient) = at.op else { return None };
    let [rows, taps] = rows_of_windows(&gradient.conv(), at.arg_ty(0), at.ty)?;
    // Sums over several outputs of an image begin anew with each image.
    if !has_one_tap(at.ty) && at.arg_ty(1).shape[1..3] != [1, 1] {
        return None;
    }
    let (image, ct, n_out) = (at.args[0], at.args[1], at.ty.shape[3]);
    let a = matrix(at, image, rows, taps)?;
    let a = turned(at, a)?;
    let b = matrix(at, ct, rows, n_out)?;
    product(at, a, b)
}
