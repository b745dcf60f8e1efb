//! Neural networks: layers as plain functions over ops, and small structs of parameters that call them.
//!
//! A layer knows no global state: parameters, running statistics and random keys are arguments, what changes is
//! returned. All structs are trees, so they can be arguments of accelerated functions and of gradients. Images are
//! `[batch, height, width, channels]`, filters `[height, width, in, out]` and weights of dense layers `[in, out]`. PyTorch
//! has them the other way round: [`Conv2d::from_pytorch`] and [`Dense::from_pytorch`] take its parameters, and images
//! are permuted by `[0, 2, 3, 1]`. Parameters that do not fit are an error that names the layer and both shapes.
//!
//! | what | functions | structs |
//! |---|---|---|
//! | dense layers, tables of vectors | [`dense`], [`embedding`] | [`Dense`], [`Embedding`] |
//! | convolutions | [`conv2d`], [`conv_transpose2d`] | [`Conv2d`], [`ConvTranspose2d`] |
//! | normalisation | [`batch_norm`], [`batch_norm_inference`], [`layer_norm`] | [`BatchNorm`], [`BatchNormState`], [`LayerNorm`] |
//! | recurrence | [`lstm_cell`], [`gru_cell`] | [`Lstm`], [`Gru`] |
//! | attention | [`attention`] | [`Mask`] |
//! | regularisation | [`dropout`] | |
//! | losses | [`softmax_cross_entropy`], [`softmax_cross_entropy_labels`], [`softmax_cross_entropy_labels_ignoring`], [`mse`], [`half_mse`] | |
//! | initial values | | [`Init`], [`Spread`] |
//!
//! ```
//! use retape::{Tensor, accelerate, nn};
//!
//! let layer = nn::Dense::new(1, 3, 2);
//! let step = accelerate(|layer: &nn::Dense, x: &Tensor, labels: &Tensor| {
//!     let loss = nn::softmax_cross_entropy_labels(&layer.apply(x), labels);
//!     let gradient = loss.grad(layer);
//!     (loss, gradient)
//! });
//! let (_loss, gradient) = step.call(&layer, Tensor::ones([4, 3]), Tensor::from([0_i64, 1, 1, 0]))?;
//! assert_eq!(gradient.weight.shape(), [3, 2]);
//! # Ok::<(), retape::Error>(())
//! ```

mod attention;
mod conv;
mod dense;
mod fit;
mod init;
mod loss;
mod norm;
mod recurrent;
mod regular;

pub use attention::{Mask, attention};
pub use conv::{Conv2d, ConvTranspose2d, conv_transpose2d, conv2d};
pub use dense::{Dense, Embedding, dense, embedding};
pub use init::{Init, Spread};
pub use loss::{
    half_mse, mse, softmax_cross_entropy, softmax_cross_entropy_labels, softmax_cross_entropy_labels_ignoring,
};
pub use norm::{BatchNorm, BatchNormState, LayerNorm, batch_norm, batch_norm_inference, layer_norm};
pub use recurrent::{Gru, Lstm, gru_cell, lstm_cell};
pub use regular::dropout;
