//! Neural networks: layers as plain functions over ops, and small structs of parameters that call them.
//!
//! A layer knows no global state: parameters, running statistics and random keys are arguments, what changes is
//! returned. All structs are trees, so they can be arguments of accelerated functions and of gradients. Images are
//! `[batch, height, width, channels]`.

mod attention;
mod conv;
mod dense;
mod init;
mod loss;
mod norm;
mod recurrent;
mod regular;

pub use attention::{Mask, attention};
pub use conv::{Conv2d, conv_transpose2d, conv2d};
pub use dense::{Dense, Embedding, dense, embedding};
pub use init::{Init, Spread};
pub use loss::{half_mse, mse, softmax_cross_entropy, softmax_cross_entropy_labels};
pub use norm::{BatchNorm, BatchNormState, LayerNorm, batch_norm, batch_norm_inference, layer_norm};
pub use recurrent::{Lstm, lstm_cell};
pub use regular::dropout;

/// Makes structs of tensors trees, by the names of their fields.
macro_rules! trees {
    ($($name:ident { $($field:ident),* $(,)? })*) => {$(
        impl $crate::tree::Tree for $name {
            fn write<'t>(&'t self, to: &mut $crate::tree::Writer<'t>) {
                $(to.field($crate::tree::Field::Named(stringify!($field)), &self.$field);)*
            }

            fn read(from: &mut $crate::tree::Reader<'_>) -> $crate::Result<Self> {
                Ok($name { $($field: $crate::tree::Tree::read(from)?,)* })
            }
        }
    )*};
}

pub(crate) use trees;
