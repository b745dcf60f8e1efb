//! Building kernels with operators: the only way to write one but its text form.
//!
//! Guarantees SSA order, one value per distinct instruction, and that constants are folded where the result is exact.
//! Operands of wrong dtypes are bugs of the caller, caught by assertions in debug builds and by
//! [`Kernel::verify`] always.

use std::cell::RefCell;
use std::fmt;
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Rem, Shl, Shr, Sub};

use retape_runtime::{DType, Element, Scalar};
use rustc_hash::FxHashMap;

use super::arith::fold;
use super::{
    Affine, Axis, AxisId, Binary, Compare, Func1, Func2, Inst, Kernel, Param, ParamId, ReductionOp, Store, Unary,
    ValueId,
};

/// A kernel being built.
#[derive(Default)]
pub struct KernelBuilder {
    state: RefCell<BuilderState>,
}

#[derive(Default)]
struct BuilderState {
    kernel: Kernel,
    dtypes: Vec<DType>,
    /// The value of each distinct instruction.
    known: FxHashMap<Inst<ValueId>, ValueId>,
}

/// A value of a kernel being built; operators on it add instructions.
#[derive(Clone, Copy)]
pub struct Value<'k> {
    kernel: &'k KernelBuilder,
    id: ValueId,
    dtype: DType,
}

/// A scalar that can become a [`Value`] of the dtype of another one: a value, or a number.
pub trait IntoValue<'k> {
    /// The operand as a value of the kernel and dtype of `like`.
    fn coerce(self, like: Value<'k>) -> Value<'k>;
}

impl<'k> IntoValue<'k> for Value<'k> {
    fn coerce(self, _: Value<'k>) -> Value<'k> {
        self
    }
}

impl<'k> IntoValue<'k> for f64 {
    fn coerce(self, like: Value<'k>) -> Value<'k> {
        like.kernel.constant(Scalar::from_f64(self, like.dtype))
    }
}

impl<'k> IntoValue<'k> for i64 {
    fn coerce(self, like: Value<'k>) -> Value<'k> {
        let exact = self.to_scalar();
        let scalar = if like.dtype == DType::I64 { exact } else { Scalar::from_f64(self as f64, like.dtype) };
        like.kernel.constant(scalar)
    }
}

impl KernelBuilder {
    /// A kernel without parameters, axes and instructions.
    pub fn new() -> KernelBuilder {
        KernelBuilder::default()
    }

    /// Makes room for so many more instructions.
    pub(crate) fn reserve(&self, n: usize) {
        let state = &mut *self.state.borrow_mut();
        state.kernel.insts.reserve(n);
        state.dtypes.reserve(n);
        state.known.reserve(n);
    }

    /// Adds a parameter; those that are read must be added before those that are written.
    pub fn param(&self, dtype: DType, len: usize, written: bool) -> ParamId {
        let params = &mut self.state.borrow_mut().kernel.params;
        debug_assert!(written || params.last().is_none_or(|p| !p.written), "read parameters come first");
        params.push(Param { dtype, len, written });
        ParamId(params.len() as u32 - 1)
    }

    /// Adds an axis inside of those before it. Affine maps made earlier do not move along it.
    pub fn axis(&self, extent: usize, reduced: bool) -> AxisId {
        let axes = &mut self.state.borrow_mut().kernel.axes;
        axes.push(Axis { extent, reduced });
        AxisId(axes.len() as u32 - 1)
    }

    /// The extent of an axis.
    ///
    /// # Panics
    ///
    /// Panics if there is no such axis.
    pub fn extent(&self, axis: AxisId) -> usize {
        self.state.borrow().kernel.axes[axis.index()].extent
    }

    pub(crate) fn n_axes(&self) -> usize {
        self.state.borrow().kernel.axes.len()
    }

    pub(crate) fn param_of(&self, param: ParamId) -> Param {
        self.state.borrow().kernel.params[param.index()]
    }

    /// A constant.
    pub fn constant(&self, value: Scalar) -> Value<'_> {
        self.push(Inst::Const(value))
    }

    /// The coordinate along an axis, as `i64`.
    pub fn index(&self, axis: AxisId) -> Value<'_> {
        self.push(Inst::Index(axis))
    }

    /// The element of a parameter at an affine function of the coordinates; missing strides are 0.
    pub fn load(&self, param: ParamId, mut at: Affine) -> Value<'_> {
        self.pad(&mut at);
        self.push(Inst::Load(param, at))
    }

    /// The element of a parameter at a computed `i64` position, which is clamped into its range.
    pub fn load_at(&self, param: ParamId, at: Value<'_>) -> Value<'_> {
        debug_assert_eq!(at.dtype, DType::I64);
        self.push(Inst::LoadAt(param, at.id))
    }

    /// Writes a value to a parameter at an affine function of the coordinates; missing strides are 0.
    pub fn store(&self, param: ParamId, mut at: Affine, value: Value<'_>) {
        self.pad(&mut at);
        let kernel = &mut self.state.borrow_mut().kernel;
        debug_assert!(kernel.params.get(param.index()).is_some_and(|p| p.written && p.dtype == value.dtype));
        kernel.stores.push(Store { param, at, value: value.id });
    }

    /// Adds an instruction over existing values, or finds the value that it makes already.
    pub fn push(&self, inst: Inst<ValueId>) -> Value<'_> {
        let mut state = self.state.borrow_mut();
        let insts = &state.kernel.insts;
        let folded = fold(&inst, |v| match insts.get(v.index()) {
            Some(Inst::Const(c)) => Some(*c),
            _ => None,
        });
        let inst = folded.map_or(inst, Inst::Const);
        let id = match state.known.get(&inst) {
            Some(&id) => id,
            None => {
                let id = ValueId(state.kernel.insts.len() as u32);
                let dtype = state.kernel.dtype_given(&inst, &state.dtypes);
                state.known.insert(inst.clone(), id);
                state.kernel.insts.push(inst);
                state.dtypes.push(dtype);
                id
            }
        };
        Value { kernel: self, id, dtype: state.dtypes[id.index()] }
    }

    /// The value with an id from this builder.
    ///
    /// # Panics
    ///
    /// Panics if there is no such value.
    pub fn value(&self, id: ValueId) -> Value<'_> {
        Value { kernel: self, id, dtype: self.state.borrow().dtypes[id.index()] }
    }

    /// The instruction that makes a value of this builder.
    ///
    /// # Panics
    ///
    /// Panics if there is no such value.
    pub fn inst(&self, id: ValueId) -> Inst<ValueId> {
        self.state.borrow().kernel.insts[id.index()].clone()
    }

    /// The finished kernel.
    pub fn finish(self) -> Kernel {
        let mut kernel = self.state.into_inner().kernel;
        let n_axes = kernel.axes.len();
        for inst in &mut kernel.insts {
            if let Inst::Load(_, at) = inst {
                at.strides.resize(n_axes, 0);
            }
        }
        for store in &mut kernel.stores {
            store.at.strides.resize(n_axes, 0);
        }
        kernel
    }

    fn pad(&self, at: &mut Affine) {
        let n_axes = self.state.borrow().kernel.axes.len();
        debug_assert!(at.strides.len() <= n_axes, "more strides than axes");
        at.strides.resize(n_axes, 0);
    }
}

impl fmt::Debug for KernelBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.state.borrow().kernel, f)
    }
}

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.id, self.dtype)
    }
}

impl<'k> Value<'k> {
    /// The id of the instruction that makes the value.
    pub fn id(self) -> ValueId {
        self.id
    }

    /// The dtype of the value.
    pub fn dtype(self) -> DType {
        self.dtype
    }

    /// The kernel that the value belongs to.
    pub fn kernel(self) -> &'k KernelBuilder {
        self.kernel
    }

    /// A constant of this value's dtype.
    pub fn like(self, x: f64) -> Value<'k> {
        x.coerce(self)
    }

    /// A one-operand instruction.
    pub fn unary(self, op: Unary) -> Value<'k> {
        self.kernel.push(Inst::Unary(op, self.id))
    }

    /// A two-operand instruction.
    pub fn binary(self, op: Binary, y: impl IntoValue<'k>) -> Value<'k> {
        let y = self.same(y);
        self.kernel.push(Inst::Binary(op, self.id, y.id))
    }

    /// A comparison.
    pub fn compare(self, op: Compare, y: impl IntoValue<'k>) -> Value<'k> {
        let y = self.same(y);
        self.kernel.push(Inst::Compare(op, self.id, y.id))
    }

    /// `self > y`.
    pub fn gt(self, y: impl IntoValue<'k>) -> Value<'k> {
        y.coerce(self).lt(self)
    }

    /// `self >= y`.
    pub fn ge(self, y: impl IntoValue<'k>) -> Value<'k> {
        y.coerce(self).le(self)
    }

    /// `if self { x } else { y }` for a `bool`.
    pub fn select(self, x: Value<'k>, y: impl IntoValue<'k>) -> Value<'k> {
        debug_assert_eq!(self.dtype, DType::Bool);
        let y = x.same(y);
        self.kernel.push(Inst::Select(self.id, x.id, y.id))
    }

    /// `self * y + z`, rounded once.
    pub fn fma(self, y: impl IntoValue<'k>, z: impl IntoValue<'k>) -> Value<'k> {
        debug_assert!(self.dtype.is_float());
        let (y, z) = (self.same(y), self.same(z));
        self.kernel.push(Inst::Fma(self.id, y.id, z.id))
    }

    /// The value converted to another dtype; itself if it has that dtype.
    pub fn cast(self, dtype: DType) -> Value<'k> {
        if dtype == self.dtype { self } else { self.kernel.push(Inst::Cast(dtype, self.id)) }
    }

    /// The same bits as another dtype of the same size; itself if it has that dtype.
    pub fn bitcast(self, dtype: DType) -> Value<'k> {
        debug_assert_eq!(dtype.size(), self.dtype.size());
        if dtype == self.dtype { self } else { self.kernel.push(Inst::Bitcast(dtype, self.id)) }
    }

    /// A transcendental function.
    pub fn call1(self, func: Func1) -> Value<'k> {
        debug_assert!(self.dtype.is_float());
        self.kernel.push(Inst::Call1(func, self.id))
    }

    /// A transcendental function of two operands.
    pub fn call2(self, func: Func2, y: impl IntoValue<'k>) -> Value<'k> {
        debug_assert!(self.dtype.is_float());
        let y = self.same(y);
        self.kernel.push(Inst::Call2(func, self.id, y.id))
    }

    /// The reduction over all reduced axes.
    pub fn reduce(self, op: ReductionOp) -> Value<'k> {
        debug_assert!(op.allows(self.dtype));
        self.kernel.push(Inst::Reduce(op, self.id))
    }

    /// The other operand, which must have the same dtype.
    fn same(self, y: impl IntoValue<'k>) -> Value<'k> {
        let y = y.coerce(self);
        debug_assert_eq!(self.dtype, y.dtype, "operands differ in dtype");
        debug_assert!(std::ptr::eq(self.kernel, y.kernel), "operands are of different kernels");
        y
    }
}

/// Methods with no further operand.
macro_rules! methods1 {
    ($call:ident $table:ident: $($(#[$doc:meta])* $method:ident $variant:ident,)*) => {
        impl<'k> Value<'k> {$(
            $(#[$doc])*
            pub fn $method(self) -> Value<'k> {
                self.$call($table::$variant)
            }
        )*}
    };
}

/// Methods with one further operand.
macro_rules! methods2 {
    ($call:ident $table:ident: $($(#[$doc:meta])* $method:ident $variant:ident,)*) => {
        impl<'k> Value<'k> {$(
            $(#[$doc])*
            pub fn $method(self, y: impl IntoValue<'k>) -> Value<'k> {
                self.$call($table::$variant, y)
            }
        )*}
    };
}

methods1! { unary Unary:
    /// Absolute value.
    abs Abs,
    /// Square root.
    sqrt Sqrt,
    /// Largest integral value not above.
    floor Floor,
    /// Smallest integral value not below.
    ceil Ceil,
    /// Nearest integral value, ties to even.
    round Round,
    /// Integral part.
    trunc Trunc,
}

methods2! { binary Binary:
    /// The smaller; NaN if either is NaN.
    min Min,
    /// The larger; NaN if either is NaN.
    max Max,
    /// Bitwise or logical and.
    and And,
    /// Bitwise or logical or.
    or Or,
    /// Bitwise or logical exclusive or.
    xor Xor,
    /// High half of the full product.
    mul_high MulHigh,
}

methods2! { compare Compare:
    /// `self == y`.
    eq Eq,
    /// `self != y`.
    ne Ne,
    /// `self < y`.
    lt Lt,
    /// `self <= y`.
    le Le,
}

methods1! { call1 Func1:
    /// e^self.
    exp Exp,
    /// 2^self.
    exp2 Exp2,
    /// e^self - 1.
    expm1 Expm1,
    /// Natural logarithm.
    log Log,
    /// Binary logarithm.
    log2 Log2,
    /// Natural logarithm of 1 + self.
    log1p Log1p,
    /// Sine.
    sin Sin,
    /// Cosine.
    cos Cos,
    /// Tangent.
    tan Tan,
    /// Inverse sine.
    asin Asin,
    /// Inverse cosine.
    acos Acos,
    /// Inverse tangent.
    atan Atan,
    /// Hyperbolic sine.
    sinh Sinh,
    /// Hyperbolic cosine.
    cosh Cosh,
    /// Hyperbolic tangent.
    tanh Tanh,
    /// Inverse hyperbolic sine.
    asinh Asinh,
    /// Inverse hyperbolic cosine.
    acosh Acosh,
    /// Inverse hyperbolic tangent.
    atanh Atanh,
    /// Error function.
    erf Erf,
    /// Complementary error function.
    erfc Erfc,
    /// Logistic function.
    sigmoid Sigmoid,
    /// Logarithm of the absolute value of the gamma function.
    lgamma Lgamma,
    /// First derivative of `lgamma`.
    digamma Digamma,
    /// Second derivative of `lgamma`.
    trigamma Trigamma,
    /// Third derivative of `lgamma`.
    tetragamma Tetragamma,
}

methods2! { call2 Func2:
    /// self^y.
    pow Pow,
    /// The angle of the point (y, self), where `self` is the ordinate and `y` the abscissa.
    atan2 Atan2,
}

macro_rules! operators {
    ($($trait:ident $method:ident $variant:ident;)*) => {$(
        impl<'k, T: IntoValue<'k>> $trait<T> for Value<'k> {
            type Output = Value<'k>;

            fn $method(self, y: T) -> Value<'k> {
                self.binary(Binary::$variant, y)
            }
        }

        operators! { @left $trait $method $variant f64 }
        operators! { @left $trait $method $variant i64 }
    )*};
    (@left $trait:ident $method:ident $variant:ident $number:ty) => {
        impl<'k> $trait<Value<'k>> for $number {
            type Output = Value<'k>;

            fn $method(self, y: Value<'k>) -> Value<'k> {
                self.coerce(y).binary(Binary::$variant, y)
            }
        }
    };
}

operators! {
    Add add Add;
    Sub sub Sub;
    Mul mul Mul;
    Div div Div;
    Rem rem Rem;
    BitAnd bitand And;
    BitOr bitor Or;
    BitXor bitxor Xor;
    Shl shl Shl;
    Shr shr Shr;
}

impl<'k> Neg for Value<'k> {
    type Output = Value<'k>;

    fn neg(self) -> Value<'k> {
        self.unary(Unary::Neg)
    }
}

impl<'k> Not for Value<'k> {
    type Output = Value<'k>;

    fn not(self) -> Value<'k> {
        self.unary(Unary::Not)
    }
}
