//! Where windows lie on an image: padding, strides and the extents that follow. Shared by convolution and pooling.

use super::TypeError;
use super::check::refuse;
use crate::types::TensorType;

/// The treatment of positions beyond the edges of an image.
///
/// Numbers are explicit padding: `1` on all four sides, `[1, 2]` above and below, and left and right.
///
/// ```
/// use retape::ops::{ConvOptions, Padding};
///
/// assert_eq!(ConvOptions::default().padding(1).padding, Padding::Explicit([[1, 1], [1, 1]]));
/// assert_eq!(Padding::from([1, 2]), Padding::Explicit([[1, 1], [2, 2]]));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Padding {
    /// Nothing: windows lie inside.
    #[default]
    Valid,
    /// As much that there is a window for every `stride` positions; an odd remainder is added at the end.
    Same,
    /// These numbers of positions before and after, along height and width.
    Explicit([[usize; 2]; 2]),
}

impl From<usize> for Padding {
    fn from(padding: usize) -> Padding {
        Padding::Explicit([[padding; 2]; 2])
    }
}

impl From<[usize; 2]> for Padding {
    fn from([height, width]: [usize; 2]) -> Padding {
        Padding::Explicit([[height; 2], [width; 2]])
    }
}

impl From<[[usize; 2]; 2]> for Padding {
    fn from(padding: [[usize; 2]; 2]) -> Padding {
        Padding::Explicit(padding)
    }
}

/// Steps and padded images of more positions than this are refused: sums of a few coordinates must not go over.
const FAR: usize = isize::MAX as usize / 8;

/// The reach of a window of `window` taps that lie `dilation` apart.
fn reach(window: usize, dilation: usize) -> Option<usize> {
    window.checked_sub(1)?.checked_mul(dilation)?.checked_add(1)
}

impl Padding {
    /// The positions added before and after along height and width, for an image of `extent`.
    pub(crate) fn resolve(
        self,
        extent: [usize; 2],
        window: [usize; 2],
        stride: [usize; 2],
        dilation: [usize; 2],
    ) -> [[usize; 2]; 2] {
        let along = |axis: usize| {
            let n_windows = extent[axis].div_ceil(stride[axis].max(1));
            let covered = n_windows.saturating_sub(1).saturating_mul(stride[axis]);
            let reach = reach(window[axis], dilation[axis]).unwrap_or(0);
            let added = covered.saturating_add(reach).saturating_sub(extent[axis]);
            [added / 2, added - added / 2]
        };
        match self {
            Padding::Valid => [[0; 2]; 2],
            Padding::Same => [along(0), along(1)],
            Padding::Explicit(padding) => padding,
        }
    }
}

/// Height and width of an image `[batch, height, width, channels]`.
pub(crate) fn image(position: usize, x: &TensorType) -> Result<[usize; 2], TypeError> {
    match *x.shape {
        [_, height, width, _] => Ok([height, width]),
        _ => refuse!("argument {position} is {x}, but must be [batch, height, width, channels]"),
    }
}

/// How many windows there are along height and width.
pub(crate) fn n_windows(
    extent: [usize; 2],
    window: [usize; 2],
    stride: [usize; 2],
    padding: [[usize; 2]; 2],
    dilation: [usize; 2],
) -> Result<[usize; 2], TypeError> {
    if [window, stride, dilation].concat().contains(&0) {
        refuse!("window {window:?}, stride {stride:?} and dilation {dilation:?} must be positive");
    }
    if [stride, dilation, padding[0], padding[1]].concat().iter().any(|&positions| positions > FAR) {
        refuse!("stride {stride:?}, dilation {dilation:?} or padding {padding:?} is too large to count");
    }
    let along = |axis: usize| {
        let padded = extent[axis].checked_add(padding[axis][0])?.checked_add(padding[axis][1])?;
        Some(padded.checked_sub(reach(window[axis], dilation[axis])?)? / stride[axis] + 1)
    };
    match (along(0), along(1)) {
        (Some(height), Some(width)) => Ok([height, width]),
        _ => refuse!(
            "a window of {window:?} with dilation {dilation:?} does not fit an image of {extent:?} with padding \
             {padding:?}"
        ),
    }
}
