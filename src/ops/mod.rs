//! The ops: one block of code each, and one row in the registry below.
//!
//! An op is a plain struct with its attributes. Its block holds the type rule, the derivative as a formula over
//! tensors, the lowering, sample inputs, and the public method on [`Tensor`](crate::Tensor). Composites are plain
//! functions over ops and have no row.
//!
//! The families, by the methods of [`Tensor`](crate::Tensor) that they give:
//!
//! | family | methods |
//! |---|---|
//! | arithmetic | `+ - * / %`, unary `-`, `square`, `reciprocal`, `pow` |
//! | comparison and choice | `lt`, `le`, `gt`, `ge`, `eq`, `ne`, `is_nan`, `is_finite`, `maximum`, `minimum`, `clamp`, `select` |
//! | bits and truth values | `& \| ^ << >> !`, `mul_high` |
//! | rounding | `abs`, `sign`, `floor`, `ceil`, `round`, `trunc` |
//! | exponentials | `exp`, `exp2`, `expm1`, `log`, `log2`, `log1p`, `sqrt`, `rsqrt` |
//! | hyperbolic | `sinh`, `cosh`, `tanh`, `asinh`, `acosh`, `atanh` |
//! | trigonometric | `sin`, `cos`, `tan`, `asin`, `acos`, `atan`, `atan2` |
//! | special | `erf`, `erfc`, `lgamma`, `digamma`, `trigamma`, `polygamma` |
//! | activations | `relu`, `relu6`, `sigmoid`, `log_sigmoid`, `softplus`, `silu`, `gelu_erf`, `gelu_tanh`, `leaky_relu`, `elu`, `softmax`, `log_softmax` |
//! | conversion | `cast`, `stop_gradient` |
//! | movement | `reshape`, `broadcast_to`, `permute`, `transpose`, `t`, `swap_axes`, `squeeze`, `unsqueeze`, `flatten`, `flatten_from`, `flip`, `tile` |
//! | parts and joints | `at`, `slice`, `slice_axis`, `index_axis`, `pad`, `split`, `chunk`, `chunk_array`; [`concat()`], [`stack`] |
//! | coordinates | `iota`, `tril`, `triu`, `one_hot` |
//! | indexing | `take`, `take_along`, `scatter_add`, `scatter_add_along` |
//! | folds | `sum`, `prod`, `max`, `min`, `all`, `any`, `mean`, `var`, `std`, `logsumexp`, and each with `_keep`; see [`Axes`] |
//! | cumulative | `cumsum`, `cumprod`, `cummax`, `cummin`, `linear_recurrence` |
//! | order | `argmax`, `argmin`, `argsort`, `sort`, `top_k`, and descending forms |
//! | products | `matmul`, `dot`, `outer`; [`einsum`] |
//! | linear algebra | `cholesky`, `solve_triangular`, `solve_positive_definite`, `logdet_positive_definite`, `diagonal`, `trace` |
//! | images | `conv2d`, `conv_transpose2d`, `max_pool2d`, `avg_pool2d`, `global_avg_pool2d`; see [`ConvOptions`] |
//! | printing | `debug_print` |
//! | several workers | [`sum`](crate::collective::sum), [`sum_each`](crate::collective::sum_each), [`gather`](crate::collective::gather), [`broadcast`](crate::collective::broadcast) |
//! | random | [`RandomBits`], behind [`crate::random`] |

#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

mod activation;
mod arithmetic;
mod arrange;
mod attention;
pub(crate) mod attribute;
mod axes;
mod call;
mod check;
pub(crate) mod collective;
mod compare;
mod conv;
mod convert;
mod debug;
mod define;
mod einsum;
mod index;
mod join;
mod layout;
mod leaf;
mod linalg;
mod logic;
mod lowering;
mod matmul;
mod movement;
mod operators;
mod pool;
mod power;
mod random;
mod reduce;
mod rounding;
mod scan;
mod slice;
mod sort;
mod special;
mod statistics;
mod transcendental;
mod triangle;
mod trigonometric;
mod unary;
mod window;

pub use activation::*;
pub use arithmetic::*;
pub use attention::{Attention, AttentionGrad};
pub(crate) use attention::{attend, masked};
pub use attribute::{Attribute, Attributes};
pub use axes::{AsIndex, Axes, IndexRange, Subscript, Subscripts};
pub use call::Call;
pub(crate) use call::Callee;
pub(crate) use collective::parts;
pub use collective::{Collective, Token};
pub use compare::*;
pub use conv::*;
pub use convert::*;
pub use debug::*;
pub use define::{Cotangents, Facts, OpDef, Reduction, Sample, SampleArg, Site, TypeError};
pub use einsum::einsum;
pub use index::*;
pub use join::*;
pub use leaf::{Parameter, Splat};
pub use linalg::*;
pub use logic::*;
pub use lowering::{Body, Lowering, Movement, Point};
pub use matmul::MatMul;
pub use movement::*;
pub use operators::TensorOrScalar;
pub use pool::*;
pub use power::*;
pub use random::*;
pub use reduce::*;
pub use rounding::*;
pub use scan::*;
pub use slice::*;
pub use sort::*;
pub use special::*;
pub use transcendental::*;
pub use triangle::*;
pub use trigonometric::*;
pub use window::Padding;

pub(crate) use check::{addressable, broadcast_all};
pub(crate) use matmul::{SMALL_PRODUCT, refused_among};

use retape_runtime::DType;

use crate::types::TensorType;

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

            /// The facts that passes and checks ask for.
            pub fn facts(&self) -> Facts {
                match self { $(Op::$op(op) => op.facts(),)* }
            }

            /// The op with other dtypes among its attributes: `to` says which takes the place of one.
            #[must_use]
            pub fn in_dtypes(&self, to: fn(DType) -> DType) -> Op {
                match self { $(Op::$op(op) => Op::$op(op.in_dtypes(to)),)* }
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

impl Op {
    /// The doubt about an application that is well-typed, with what would be meant more likely.
    pub(crate) fn doubt(&self, args: &[&TensorType]) -> Option<String> {
        match (self, args) {
            (Op::Conv2d(_), [_, filter]) => layout::doubt_of_filter(filter),
            _ => None,
        }
    }

    /// The type of the result, for a graph: one that can be addressed, by a kernel that can count what it does.
    pub(crate) fn admit(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        let ty = self.infer(args).and_then(addressable)?;
        self.check_kernel(args, &ty)?;
        Ok(ty)
    }

    /// Refuses arguments, which `infer` accepts, that the library kernel of the op does not.
    pub(crate) fn check_kernel(&self, args: &[&TensorType], result: &TensorType) -> Result<(), TypeError> {
        match self.lower(args, result) {
            Lowering::Library(kernel) => kernel.verify().map_err(|e| TypeError(e.message)),
            Lowering::Pointwise(_)
            | Lowering::Indexed { .. }
            | Lowering::Movement(_)
            | Lowering::Reduce { .. }
            | Lowering::Parameter => Ok(()),
        }
    }
}

ops! {
    "parameter" => leaf::Parameter,
    "splat" => leaf::Splat,
    "call" => call::Call,
    "add" => arithmetic::Add,
    "sub" => arithmetic::Sub,
    "mul" => arithmetic::Mul,
    "div" => arithmetic::Div,
    "mul_reciprocal" => arithmetic::MulReciprocal,
    "rem" => arithmetic::Rem,
    "neg" => arithmetic::Neg,
    "relu" => activation::Relu,
    "softplus" => activation::Softplus,
    "equal" => compare::Equal,
    "not_equal" => compare::NotEqual,
    "less" => compare::Less,
    "less_equal" => compare::LessEqual,
    "maximum" => compare::Maximum,
    "minimum" => compare::Minimum,
    "clamp" => compare::Clamp,
    "select" => compare::Select,
    "cast" => convert::Cast,
    "stop_gradient" => convert::StopGradient,
    "debug_print" => debug::DebugPrint,
    "collective" => collective::Collective,
    "token" => collective::Token,
    "and" => logic::And,
    "or" => logic::Or,
    "xor" => logic::Xor,
    "not" => logic::Not,
    "shl" => logic::Shl,
    "shr" => logic::Shr,
    "mul_high" => logic::MulHigh,
    "pow" => power::Pow,
    "int_pow" => power::IntPow,
    "abs" => rounding::Abs,
    "sign" => rounding::Sign,
    "floor" => rounding::Floor,
    "ceil" => rounding::Ceil,
    "round" => rounding::Round,
    "trunc" => rounding::Trunc,
    "erf" => special::Erf,
    "erfc" => special::Erfc,
    "sigmoid" => special::Sigmoid,
    "lgamma" => special::Lgamma,
    "digamma" => special::Digamma,
    "polygamma" => special::Polygamma,
    "exp" => transcendental::Exp,
    "exp2" => transcendental::Exp2,
    "expm1" => transcendental::Expm1,
    "log" => transcendental::Log,
    "log2" => transcendental::Log2,
    "log1p" => transcendental::Log1p,
    "sqrt" => transcendental::Sqrt,
    "rsqrt" => transcendental::Rsqrt,
    "sinh" => transcendental::Sinh,
    "cosh" => transcendental::Cosh,
    "tanh" => transcendental::Tanh,
    "asinh" => transcendental::Asinh,
    "acosh" => transcendental::Acosh,
    "atanh" => transcendental::Atanh,
    "sin" => trigonometric::Sin,
    "cos" => trigonometric::Cos,
    "tan" => trigonometric::Tan,
    "asin" => trigonometric::Asin,
    "acos" => trigonometric::Acos,
    "atan" => trigonometric::Atan,
    "atan2" => trigonometric::Atan2,
    "reshape" => movement::Reshape,
    "broadcast_to" => movement::BroadcastTo,
    "permute" => movement::Permute,
    "slice" => slice::Slice,
    "pad" => slice::Pad,
    "concat" => join::Concat,
    "iota" => triangle::Iota,
    "triangle" => triangle::Triangle,
    "one_hot" => triangle::OneHot,
    "take" => index::Take,
    "take_along" => index::TakeAlong,
    "scatter_add" => index::ScatterAdd,
    "argsort" => sort::ArgSort,
    "arg_top_k" => sort::ArgTopK,
    "matmul" => matmul::MatMul,
    "attention" => attention::Attention,
    "attention_grad" => attention::AttentionGrad,
    "cholesky" => linalg::Cholesky,
    "solve_triangular" => linalg::SolveTriangular,
    "conv2d" => conv::Conv2d,
    "conv2d_input_grad" => conv::Conv2dInputGrad,
    "conv2d_filter_grad" => conv::Conv2dFilterGrad,
    "max_pool2d" => pool::MaxPool2d,
    "max_pool2d_grad" => pool::MaxPool2dGrad,
    "max_pool2d_gather" => pool::MaxPool2dGather,
    "sum_pool2d" => pool::SumPool2d,
    "sum_pool2d_grad" => pool::SumPool2dGrad,
    "random_bits" => random::RandomBits,
    "reduce_sum" => reduce::ReduceSum,
    "reduce_prod" => reduce::ReduceProd,
    "reduce_max" => reduce::ReduceMax,
    "reduce_min" => reduce::ReduceMin,
    "reduce_all" => reduce::ReduceAll,
    "reduce_any" => reduce::ReduceAny,
    "cumsum" => scan::CumSum,
    "cumprod" => scan::CumProd,
    "cummax" => scan::CumMax,
    "cummin" => scan::CumMin,
    "linear_recurrence" => scan::LinearRecurrence,
    "shift" => scan::Shift,
    "argmax" => scan::ArgMax,
    "argmin" => scan::ArgMin,
}
