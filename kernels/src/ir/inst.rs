//! The closed set of scalar instructions.
//!
//! `V` is what an operand is to the reader: a [`ValueId`](super::ValueId) in a kernel, a number to the evaluator,
//! an SSA value to an emitter. All readers match without a wildcard, so that the compiler lists what is missing.

use retape_runtime::{DType, Scalar};

use super::{Affine, AxisId, ParamId};

/// One scalar instruction over operands of kind `V`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Inst<V> {
    /// A constant.
    Const(Scalar),
    /// The coordinate of the current element along an axis, as `i64`.
    Index(AxisId),
    /// The element of a parameter at an affine function of the coordinates.
    Load(ParamId, Affine),
    /// The element of a parameter at a computed `i64` position; an out-of-range position reads element 0
    /// or the last one, whichever is nearer.
    LoadAt(ParamId, V),
    /// A one-operand instruction; the result has the operand's dtype.
    Unary(Unary, V),
    /// A two-operand instruction; both operands and the result have one dtype.
    Binary(Binary, V, V),
    /// A comparison of two values of one dtype; the result is `bool`. Comparisons with NaN are false except for `Ne`.
    Compare(Compare, V, V),
    /// `if c { x } else { y }` for a `bool` `c`.
    Select(V, V, V),
    /// `x * y + z` rounded once; floats only.
    Fma(V, V, V),
    /// A numeric conversion: rounds to nearest even towards floats, truncates and saturates towards integers
    /// (NaN becomes 0), `x != 0` towards `bool`.
    Cast(DType, V),
    /// The same bits as another dtype of the same size.
    Bitcast(DType, V),
    /// A transcendental function; floats only; expanded into the others by [`expand`](crate::expand).
    Call1(Func1, V),
    /// A transcendental function of two operands; floats only.
    Call2(Func2, V, V),
    /// The reduction of a value over all reduced axes. Instructions that depend on it lie outside the reduced axes.
    Reduce(ReductionOp, V),
}

/// The instructions whose value follows from their operands alone, as a pattern. A new instruction is listed here or
/// named by every match that has no wildcard.
macro_rules! operation {
    () => {
        $crate::ir::Inst::Unary(..)
            | $crate::ir::Inst::Binary(..)
            | $crate::ir::Inst::Compare(..)
            | $crate::ir::Inst::Select(..)
            | $crate::ir::Inst::Fma(..)
            | $crate::ir::Inst::Cast(..)
            | $crate::ir::Inst::Bitcast(..)
            | $crate::ir::Inst::Call1(..)
            | $crate::ir::Inst::Call2(..)
    };
}

pub(crate) use operation;

macro_rules! names {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            /// All of them, in declaration order.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// The name in the text form.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }

            /// The one with this name.
            pub fn from_name(name: &str) -> Option<$name> {
                match name { $($text => Some($name::$variant),)* _ => None }
            }
        }
    };
}

names! {
    /// One-operand instructions.
    Unary {
        /// Negation: floats flip the sign, integers wrap.
        Neg = "neg",
        /// Absolute value: floats clear the sign, integers wrap.
        Abs = "abs",
        /// Square root, correctly rounded; floats only.
        Sqrt = "sqrt",
        /// Largest integral value not above; floats only.
        Floor = "floor",
        /// Smallest integral value not below; floats only.
        Ceil = "ceil",
        /// Nearest integral value, ties to even; floats only.
        Round = "round",
        /// Integral part; floats only.
        Trunc = "trunc",
        /// Bitwise complement of integers, logical complement of `bool`.
        Not = "not",
    }
}

names! {
    /// Two-operand instructions.
    Binary {
        /// Sum; integers wrap.
        Add = "add",
        /// Difference; integers wrap.
        Sub = "sub",
        /// Product; integers wrap.
        Mul = "mul",
        /// Quotient; integers truncate, and division by zero gives 0.
        Div = "div",
        /// Remainder with the sign of the dividend; integers by zero give 0; floats as C's `fmod`.
        Rem = "rem",
        /// The smaller; NaN if either is NaN; -0 is below +0.
        Min = "min",
        /// The larger; NaN if either is NaN; +0 is above -0.
        Max = "max",
        /// Bitwise and; integers and `bool`.
        And = "and",
        /// Bitwise or; integers and `bool`.
        Or = "or",
        /// Bitwise exclusive or; integers and `bool`.
        Xor = "xor",
        /// Left shift, the distance taken modulo the width; integers.
        Shl = "shl",
        /// Right shift (arithmetic for signed), the distance taken modulo the width; integers.
        Shr = "shr",
        /// High half of the full product; `u32` only. Counter-based random generators are made of it.
        MulHigh = "mul_high",
    }
}

names! {
    /// Comparisons.
    Compare {
        /// Equal.
        Eq = "eq",
        /// Not equal; true for NaN.
        Ne = "ne",
        /// Less than.
        Lt = "lt",
        /// Less than or equal.
        Le = "le",
    }
}

names! {
    /// Transcendental functions of one operand.
    Func1 {
        /// e^x.
        Exp = "exp",
        /// 2^x.
        Exp2 = "exp2",
        /// e^x - 1.
        Expm1 = "expm1",
        /// Natural logarithm.
        Log = "log",
        /// Binary logarithm.
        Log2 = "log2",
        /// Natural logarithm of 1 + x.
        Log1p = "log1p",
        /// Sine of radians.
        Sin = "sin",
        /// Cosine of radians.
        Cos = "cos",
        /// Tangent of radians.
        Tan = "tan",
        /// Inverse sine, in radians.
        Asin = "asin",
        /// Inverse cosine, in radians.
        Acos = "acos",
        /// Inverse tangent, in radians.
        Atan = "atan",
        /// Hyperbolic sine.
        Sinh = "sinh",
        /// Hyperbolic cosine.
        Cosh = "cosh",
        /// Hyperbolic tangent.
        Tanh = "tanh",
        /// Inverse hyperbolic sine.
        Asinh = "asinh",
        /// Inverse hyperbolic cosine.
        Acosh = "acosh",
        /// Inverse hyperbolic tangent.
        Atanh = "atanh",
        /// Error function.
        Erf = "erf",
        /// Complementary error function.
        Erfc = "erfc",
        /// Logistic function 1 / (1 + e^-x).
        Sigmoid = "sigmoid",
        /// Logarithm of the absolute value of the gamma function.
        Lgamma = "lgamma",
        /// First derivative of `lgamma`.
        Digamma = "digamma",
        /// Second derivative of `lgamma`.
        Trigamma = "trigamma",
        /// Third derivative of `lgamma`.
        Tetragamma = "tetragamma",
    }
}

names! {
    /// Transcendental functions of two operands.
    Func2 {
        /// x^y with the special cases of IEEE 754 `pow`.
        Pow = "pow",
        /// The angle of the point (y, x), in radians; operands in the order y, x.
        Atan2 = "atan2",
    }
}

names! {
    /// Associative operations with a neutral element.
    ReductionOp {
        /// Sum; for `bool`: not allowed.
        Sum = "sum",
        /// Product.
        Prod = "prod",
        /// Largest; NaN wins.
        Max = "max",
        /// Smallest; NaN wins.
        Min = "min",
        /// Conjunction of `bool`.
        All = "all",
        /// Disjunction of `bool`.
        Any = "any",
    }
}
