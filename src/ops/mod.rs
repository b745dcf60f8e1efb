//! The ops: one block of code each, and one row in the registry below.
//!
//! An op is a plain struct with its attributes. Its block holds the type rule, the derivative as a formula over
//! tensors, the lowering, sample inputs, and the public method on [`Tensor`](crate::Tensor). Composites are plain
//! functions over ops and have no row.

mod arithmetic;
pub(crate) mod attribute;
mod axes;
mod check;
mod define;
mod leaf;
mod lowering;
mod movement;
mod reduce;
mod transcendental;

pub use arithmetic::*;
pub use attribute::{Attribute, Attributes};
pub use axes::Axes;
pub use define::{Cotangents, OpDef, Sample, Site, TypeError};
pub use leaf::{Parameter, Splat};
pub use lowering::{Body, Lowering, Movement, Point};
pub use movement::*;
pub use reduce::*;
pub use transcendental::*;

pub(crate) use check::{addressable, broadcast_all};

use crate::graph::TensorType;

/// Generates `Op` and its dispatch. Rows hold no code.
macro_rules! ops {
    ($($name:literal => $module:ident::$op:ident,)*) => {
        /// Any op: the closed set of what a graph is made of.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub enum Op {
            $(#[doc = concat!("`", $name, "`.")] $op($module::$op),)*
        }

        impl Op {
            /// The names of all ops, in registry order.
            pub const NAMES: &'static [&'static str] = &[$($name),*];

            /// The name in text forms and messages.
            pub const fn name(&self) -> &'static str {
                match self { $(Op::$op(_) => $name,)* }
            }

            /// The type of the result.
            ///
            /// # Errors
            ///
            /// Says which argument does not fit, and why.
            pub fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
                match self { $(Op::$op(op) => op.infer(args),)* }
            }

            /// The cotangents of the arguments.
            pub fn vjp(&self, at: &Site<'_>) -> Cotangents {
                match self { $(Op::$op(op) => op.vjp(at),)* }
            }

            /// How the op becomes code, for arguments that `infer` accepts.
            pub fn lower(&self, args: &[&TensorType], result: &TensorType) -> Lowering {
                match self { $(Op::$op(op) => op.lower(args, result),)* }
            }

            /// The attributes as text.
            pub fn attributes(&self) -> String {
                match self { $(Op::$op(op) => op.print_attributes(),)* }
            }

            /// The op with this name and these attributes.
            ///
            /// # Errors
            ///
            /// Says whether the name or the attributes are not understood.
            pub fn parse(name: &str, attributes: &str) -> Result<Op, String> {
                match name {
                    $($name => <$module::$op as Attributes>::parse_attributes(attributes)
                        .map(Op::$op)
                        .ok_or_else(|| format!("{name} has no attributes {{{attributes}}}")),)*
                    _ => Err(format!("no op is called {name}")),
                }
            }

            /// Sample applications of every op, from which its checks are made.
            pub fn samples() -> Vec<Sample> {
                let mut samples = vec![];
                $(samples.extend(<$module::$op as OpDef>::samples());)*
                samples
            }
        }

        $(impl From<$module::$op> for Op {
            fn from(op: $module::$op) -> Op {
                Op::$op(op)
            }
        })*
    };
}

ops! {
    "parameter" => leaf::Parameter,
    "splat" => leaf::Splat,
    "add" => arithmetic::Add,
    "sub" => arithmetic::Sub,
    "mul" => arithmetic::Mul,
    "div" => arithmetic::Div,
    "rem" => arithmetic::Rem,
    "neg" => arithmetic::Neg,
    "tanh" => transcendental::Tanh,
    "reshape" => movement::Reshape,
    "broadcast_to" => movement::BroadcastTo,
    "permute" => movement::Permute,
    "reduce_sum" => reduce::ReduceSum,
}
