//! Convolutional layers.

use std::panic::Location;

use super::fit::Layer;
use super::{Init, trees};
use crate::ops::ConvOptions;
use crate::tensor::Tensor;

/// The convolution of images `x` with a filter `[height, width, channels / groups, out_channels]`, plus a bias
/// `[out_channels]`.
#[track_caller]
pub fn conv2d(x: &Tensor, weight: &Tensor, bias: &Tensor, options: ConvOptions) -> Tensor {
    biased("conv2d", x.conv2d(weight, options), weight, bias)
}

/// The transposed convolution of images `x` with a filter `[height, width, out_channels / groups, channels]`, plus a
/// bias.
#[track_caller]
pub fn conv_transpose2d(x: &Tensor, weight: &Tensor, bias: &Tensor, options: ConvOptions) -> Tensor {
    biased("conv_transpose2d", x.conv_transpose2d(weight, options), weight, bias)
}

/// Adds the bias. One that has an element for each row of the filter tells that its axes are in another order, even
/// where the filter happens to fit the images.
#[track_caller]
fn biased(name: &'static str, y: Tensor, weight: &Tensor, bias: &Tensor) -> Tensor {
    let hint = match weight.rank() == 4 && bias.n_elements() == weight.dim(0) {
        true => "; this looks like PyTorch's order: permute the filter by [2, 3, 1, 0]",
        false => "",
    };
    let layer = Layer { name, at: Location::caller() };
    match layer.refused_broadcast(("the convolution", &y), ("the bias", bias), hint) {
        Some(refused) => refused,
        None => y + bias,
    }
}

/// A convolutional layer: weight `[height, width, channels, out_channels]` and bias `[out_channels]`.
///
/// ```
/// use retape::{Tensor, nn::Conv2d, ops::ConvOptions};
///
/// let layer = Conv2d::new(1, [3, 3], 1, 8);
/// assert_eq!(layer.apply(&Tensor::zeros([2, 28, 28, 1]), ConvOptions::same()).shape(), [2, 28, 28, 8]);
/// ```
#[derive(Clone, Debug)]
pub struct Conv2d {
    /// `[height, width, channels, out_channels]`.
    pub weight: Tensor,
    /// `[out_channels]`.
    pub bias: Tensor,
}

trees! {
    Conv2d { weight, bias }
}

impl Conv2d {
    /// A layer with He's normal weights and zero bias.
    pub fn new(seed: u64, window: [usize; 2], channels: usize, out_channels: usize) -> Conv2d {
        Conv2d::with_init(Init::he_normal(), seed, window, channels, out_channels)
    }

    /// A layer with weights by another rule; give `channels / groups` for a convolution in groups.
    pub fn with_init(init: Init, seed: u64, window: [usize; 2], channels: usize, out_channels: usize) -> Conv2d {
        let weight = init.tensor(seed, [window[0], window[1], channels, out_channels]);
        Conv2d { bias: Tensor::zeros_of(weight.dtype(), [out_channels]), weight }
    }

    /// A layer with the parameters of PyTorch's `Conv2d`: weight `[out_channels, channels / groups, height, width]` and
    /// bias `[out_channels]`.
    ///
    /// ```
    /// # use retape::{Tensor, nn::Conv2d, ops::ConvOptions};
    /// let layer = Conv2d::from_pytorch(&Tensor::ones([16, 3, 5, 7]), &Tensor::zeros([16]));
    /// assert_eq!(layer.weight.shape(), [5, 7, 3, 16]);
    /// let images = Tensor::zeros([2, 3, 8, 8]).permute(&[0, 2, 3, 1]);
    /// assert_eq!(layer.apply(&images, ConvOptions::same()).shape(), [2, 8, 8, 16]);
    /// ```
    #[track_caller]
    pub fn from_pytorch(weight: &Tensor, bias: &Tensor) -> Conv2d {
        Conv2d { weight: weight.permute(&[2, 3, 1, 0]), bias: bias.clone() }
    }

    /// The convolution plus the bias.
    #[track_caller]
    pub fn apply(&self, x: &Tensor, options: ConvOptions) -> Tensor {
        conv2d(x, &self.weight, &self.bias, options)
    }
}
