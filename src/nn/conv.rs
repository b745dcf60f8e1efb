//! Convolutional layers.

use super::{Init, trees};
use crate::method::method;
use crate::ops::ConvOptions;
use crate::tensor::Tensor;

/// The convolution of images `x` with a filter `[height, width, channels / groups, out_channels]`, plus a bias.
#[track_caller]
pub fn conv2d(x: &Tensor, weight: &Tensor, bias: &Tensor, options: ConvOptions) -> Tensor {
    let _method = method("conv2d");
    x.conv2d(weight, options) + bias
}

/// The transposed convolution of images `x` with a filter `[height, width, out_channels / groups, channels]`, plus a
/// bias.
#[track_caller]
pub fn conv_transpose2d(x: &Tensor, weight: &Tensor, bias: &Tensor, options: ConvOptions) -> Tensor {
    let _method = method("conv_transpose2d");
    x.conv_transpose2d(weight, options) + bias
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
    #[track_caller]
    pub fn new(seed: u64, window: [usize; 2], channels: usize, out_channels: usize) -> Conv2d {
        Conv2d::with_init(Init::he_normal(), seed, window, channels, out_channels)
    }

    /// A layer with weights by another rule; give `channels / groups` for a convolution in groups.
    #[track_caller]
    pub fn with_init(init: Init, seed: u64, window: [usize; 2], channels: usize, out_channels: usize) -> Conv2d {
        let _method = method("Conv2d::with_init");
        let weight = init.tensor(seed, [window[0], window[1], channels, out_channels]);
        Conv2d { bias: Tensor::zeros_of(weight.dtype(), [out_channels]), weight }
    }

    /// The convolution plus the bias.
    #[track_caller]
    pub fn apply(&self, x: &Tensor, options: ConvOptions) -> Tensor {
        let _method = method("Conv2d::apply");
        conv2d(x, &self.weight, &self.bias, options)
    }
}
