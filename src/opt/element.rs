//! Bodies of pointwise ops, looked at from outside: their values for constants, and whether all elements are alike.

use std::cell::Cell;

use retape_kernels::ir::{Inst, KernelBuilder, Value};
use retape_runtime::{DType, Scalar};

use crate::ops::{Lowering, Op, Point};
use crate::types::TensorType;

/// The value of a pointwise op over constants, if it is the same on every machine and at every element.
pub(super) fn of_constants(op: &Op, types: &[&TensorType], ty: &TensorType, args: &[Scalar]) -> Option<Scalar> {
    let Lowering::Pointwise(body) = op.lower(types, ty) else { return None };
    let kernel = KernelBuilder::new();
    let element = Element { kernel: &kernel, args: &|arg| args[arg], position_asked: Cell::new(false) };
    let value = body(&element);
    let Inst::Const(constant) = kernel.inst(value.id()) else { return None };
    (constant.dtype == ty.dtype && !element.position_asked.get()).then_some(constant)
}

/// Whether the op computes every element from those of its arguments alone, and not from its position.
pub(super) fn is_uniform(op: &Op, types: &[&TensorType], ty: &TensorType) -> bool {
    let Lowering::Pointwise(body) = op.lower(types, ty) else { return false };
    let kernel = KernelBuilder::new();
    // Any number will do: bodies cannot see what the numbers are.
    let zero = |arg: usize| Scalar { dtype: types[arg].dtype, bits: 0 };
    let element = Element { kernel: &kernel, args: &zero, position_asked: Cell::new(false) };
    body(&element);
    !element.position_asked.get()
}

/// An element whose arguments are constants, and that notices being asked where it is.
struct Element<'k, 'a> {
    kernel: &'k KernelBuilder,
    args: &'a dyn Fn(usize) -> Scalar,
    position_asked: Cell<bool>,
}

impl<'k> Point<'k> for Element<'k, '_> {
    fn arg(&self, arg: usize) -> Value<'k> {
        self.kernel.constant((self.args)(arg))
    }

    fn index(&self, _: usize) -> Value<'k> {
        self.position_asked.set(true);
        self.kernel.constant(Scalar { dtype: DType::I64, bits: 0 })
    }

    fn at(&self, arg: usize, _: &[Value<'k>]) -> Value<'k> {
        self.position_asked.set(true);
        self.arg(arg)
    }

    fn constant(&self, value: Scalar) -> Value<'k> {
        self.kernel.constant(value)
    }
}
