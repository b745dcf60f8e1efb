//! Convolutional layers.

use super::Init;
use super::fit::refused_broadcast;
use crate::method::method;
use crate::ops::ConvOptions;
use crate::tensor::Tensor;
use crate::tree::Tree;

/// The convolution of images `x` with a filter `[height, width, channels / groups, out_channels]`, plus a bias if there
/// is one.
///
/// ```
/// use retape::{Tensor, nn, ops::ConvOptions};
///
/// let (x, weight) = (Tensor::ones([1, 4, 4, 1]), Tensor::ones([3, 3, 1, 2]));
/// assert_eq!(nn::conv2d(&x, &weight, &Tensor::zeros([2]), ConvOptions::same()).shape(), [1, 4, 4, 2]);
/// assert_eq!(nn::conv2d(&x, &weight, None, ConvOptions::default()).shape(), [1, 2, 2, 2]);
/// ```
#[track_caller]
pub fn conv2d<'t>(x: &Tensor, weight: &Tensor, bias: impl Into<Option<&'t Tensor>>, options: ConvOptions) -> Tensor {
    let _method = method("conv2d");
    biased(x.conv2d(weight, options), weight, bias.into())
}

/// The transposed convolution of images `x` with a filter `[height, width, out_channels / groups, channels]`, plus a
/// bias if there is one.
///
/// ```
/// use retape::{Tensor, nn, ops::ConvOptions};
///
/// let (x, weight) = (Tensor::ones([1, 4, 4, 3]), Tensor::ones([2, 2, 5, 3]));
/// assert_eq!(nn::conv_transpose2d(&x, &weight, None, ConvOptions::default().stride(2)).shape(), [1, 8, 8, 5]);
/// ```
#[track_caller]
pub fn conv_transpose2d<'t>(
    x: &Tensor,
    weight: &Tensor,
    bias: impl Into<Option<&'t Tensor>>,
    options: ConvOptions,
) -> Tensor {
    let _method = method("conv_transpose2d");
    biased(x.conv_transpose2d(weight, options), weight, bias.into())
}

/// Adds the bias, if there is one. One that has an element for each row of the filter tells that its axes are in another
/// order, even where the filter happens to fit the images.
#[track_caller]
fn biased(y: Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
    let Some(bias) = bias else { return y };
    let hint = match weight.rank() == 4 && bias.n_elements() == weight.extent(0) {
        true => "; this looks like PyTorch's order: permute the filter by [2, 3, 1, 0]",
        false => "",
    };
    match refused_broadcast(("the convolution", &y), ("the bias", bias), hint) {
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
///
/// let before_a_norm = Conv2d::new(1, [3, 3], 1, 8).without_bias();
/// assert!(before_a_norm.bias.is_none());
/// ```
#[derive(Clone, Debug, Tree)]
pub struct Conv2d {
    /// `[height, width, channels, out_channels]`.
    pub weight: Tensor,
    /// `[out_channels]`; none where what follows has its own, such as a normalisation.
    pub bias: Option<Tensor>,
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
        Conv2d { bias: Some(Tensor::zeros_of(weight.dtype(), [out_channels])), weight }
    }

    /// The layer without its bias.
    #[must_use]
    pub fn without_bias(self) -> Conv2d {
        Conv2d { bias: None, ..self }
    }

    /// A layer with the parameters of PyTorch's `Conv2d`: weight `[out_channels, channels / groups, height, width]` and
    /// bias `[out_channels]`, if there is one.
    ///
    /// ```
    /// # use retape::{Tensor, nn::Conv2d, ops::ConvOptions};
    /// let layer = Conv2d::from_pytorch(&Tensor::ones([16, 3, 5, 7]), &Tensor::zeros([16]));
    /// assert_eq!(layer.weight.shape(), [5, 7, 3, 16]);
    /// let images = Tensor::zeros([2, 3, 8, 8]).permute([0, 2, 3, 1]);
    /// assert_eq!(layer.apply(&images, ConvOptions::same()).shape(), [2, 8, 8, 16]);
    /// ```
    #[track_caller]
    pub fn from_pytorch<'t>(weight: &Tensor, bias: impl Into<Option<&'t Tensor>>) -> Conv2d {
        Conv2d { weight: weight.permute([2, 3, 1, 0]), bias: bias.into().cloned() }
    }

    /// The convolution plus the bias.
    #[track_caller]
    pub fn apply(&self, x: &Tensor, options: ConvOptions) -> Tensor {
        let _method = method("Conv2d::apply");
        conv2d(x, &self.weight, self.bias.as_ref(), options)
    }
}

/// A layer of transposed convolution, which makes images larger by its stride: weight
/// `[height, width, out_channels, channels]` and bias `[out_channels]`.
///
/// ```
/// use retape::{Tensor, nn::ConvTranspose2d, ops::ConvOptions};
///
/// let layer = ConvTranspose2d::new(1, [4, 4], [2, 2], 8, 3);
/// let options = ConvOptions::same().stride(2);
/// assert_eq!(layer.apply(&Tensor::zeros([2, 14, 14, 8]), options).shape(), [2, 28, 28, 3]);
/// ```
#[derive(Clone, Debug, Tree)]
pub struct ConvTranspose2d {
    /// `[height, width, out_channels, channels]`: the filter of the convolution of which this is the transpose.
    pub weight: Tensor,
    /// `[out_channels]`.
    pub bias: Option<Tensor>,
}

impl ConvTranspose2d {
    /// A layer with He's normal weights and zero bias, for the stride with which it will be applied.
    ///
    /// An output takes part in `taps / stride` windows, on average: so many times `channels` are its incoming
    /// connections, and not those of the convolution, whose outputs are the inputs here.
    #[track_caller]
    pub fn new(
        seed: u64,
        window: [usize; 2],
        stride: [usize; 2],
        channels: usize,
        out_channels: usize,
    ) -> ConvTranspose2d {
        ConvTranspose2d::with_init(Init::he_normal(), seed, window, stride, channels, out_channels)
    }

    /// A layer with weights by another rule; give `out_channels / groups` and `channels / groups` for one in groups.
    #[track_caller]
    pub fn with_init(
        init: Init,
        seed: u64,
        window: [usize; 2],
        stride: [usize; 2],
        channels: usize,
        out_channels: usize,
    ) -> ConvTranspose2d {
        let _method = method("ConvTranspose2d::with_init");
        let [taps, steps] = [window, stride].map(|pair| pair[0] as f64 * pair[1] as f64);
        let connections = [channels as f64 * taps / steps.max(1.0), out_channels as f64 * taps];
        let shape = [window[0], window[1], out_channels, channels];
        let weight = init.tensor_with(connections, seed, shape);
        ConvTranspose2d { bias: Some(Tensor::zeros_of(weight.dtype(), [out_channels])), weight }
    }

    /// The layer without its bias.
    #[must_use]
    pub fn without_bias(self) -> ConvTranspose2d {
        ConvTranspose2d { bias: None, ..self }
    }

    /// The transposed convolution plus the bias.
    #[track_caller]
    pub fn apply(&self, x: &Tensor, options: ConvOptions) -> Tensor {
        let _method = method("ConvTranspose2d::apply");
        conv_transpose2d(x, &self.weight, self.bias.as_ref(), options)
    }
}
