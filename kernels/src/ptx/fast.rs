//! Approximations of the hardware and fewer roundings, used only if [`Target::fast`](super::Target) says so.
//!
//! Errors as the manual of the machine states them, for `f32`: `ex2` 2 units in the last place, `lg2` 2^-22, absolute
//! for arguments between 1/2 and 2 and relative elsewhere, `sin` and `cos` an absolute 2^-20 for arguments within one
//! turn and growing with them, `tanh` a relative 2^-11 on sm_75 and later. `log1p` is a polynomial near zero and takes
//! the logarithm elsewhere.

use retape_runtime::DType;

use super::function::{Class, PtxFunction, ptx};
use super::value::RegValue;
use crate::ir::{Binary, Func1, Inst, Kernel, Store, Unary, ValueId};

/// Whether a function has an approximation.
pub(crate) const fn has(func: Func1, dtype: DType) -> bool {
    use Func1::{Cos, Exp, Exp2, Log, Log2, Sigmoid, Sin, Tanh};
    matches!(dtype, DType::F32) && matches!(func, Exp | Exp2 | Log | Log2 | Sin | Cos | Tanh | Sigmoid)
}

/// Emits the approximation of a function, if there is one and the target wants it.
pub(super) fn call1(f: &mut PtxFunction, func: Func1, x: RegValue) -> Option<RegValue> {
    if !f.target().fast || !has(func, x.dtype) {
        return None;
    }
    const LOG2_E: &str = "0f3FB8AA3B";
    let r = x.reg;
    let one = |f: &mut PtxFunction, op: &str, x| f.op(Class::F32, op, format_args!("{x}"));
    let reg = match func {
        Func1::Exp2 => one(f, "ex2.approx.f32", r),
        Func1::Exp => {
            let scaled = f.op(Class::F32, "mul.rn.f32", format_args!("{r}, {LOG2_E}"));
            one(f, "ex2.approx.f32", scaled)
        }
        Func1::Log2 => one(f, "lg2.approx.f32", r),
        Func1::Log => {
            let log2 = one(f, "lg2.approx.f32", r);
            f.op(Class::F32, "mul.rn.f32", format_args!("{log2}, 0f3F317218"))
        }
        Func1::Sin => one(f, "sin.approx.f32", r),
        Func1::Cos => one(f, "cos.approx.f32", r),
        Func1::Tanh => {
            f.require(7, 0);
            one(f, "tanh.approx.f32", r)
        }
        Func1::Sigmoid => {
            // 1 / (1 + e^-x); an infinite denominator gives 0.
            let scaled = f.op(Class::F32, "mul.rn.f32", format_args!("{r}, 0fBFB8AA3B"));
            let power = one(f, "ex2.approx.f32", scaled);
            let sum = f.reg(Class::F32);
            ptx!(f, "add.rn.f32 {sum}, {power}, 0f3F800000");
            one(f, "rcp.approx.f32", sum)
        }
        Func1::Expm1
        | Func1::Log1p
        | Func1::Tan
        | Func1::Asin
        | Func1::Acos
        | Func1::Atan
        | Func1::Sinh
        | Func1::Cosh
        | Func1::Asinh
        | Func1::Acosh
        | Func1::Atanh
        | Func1::Erf
        | Func1::Erfc
        | Func1::Lgamma
        | Func1::Digamma
        | Func1::Trigamma
        | Func1::Tetragamma => return None,
    };
    Some(RegValue::new(DType::F32, reg))
}

/// The kernel with products that are added to what is no product, and used nowhere else, unrounded. Of `f32` only;
/// before functions are expanded, whose formulas count on each rounding.
pub(super) fn contract(kernel: &Kernel) -> Kernel {
    let dtypes = kernel.dtypes();
    let mut uses = vec![0_usize; kernel.insts.len()];
    for inst in &kernel.insts {
        inst.map(|id| uses[id.index()] += 1);
    }
    kernel.stores.iter().for_each(|store| uses[store.value.index()] += 1);
    let product = |id: ValueId| {
        let Inst::Binary(Binary::Mul, x, y) = kernel.insts[id.index()] else { return None };
        (uses[id.index()] == 1 && dtypes[id.index()] == DType::F32).then_some((x, y))
    };
    let mut insts: Vec<Inst<ValueId>> = Vec::with_capacity(kernel.insts.len());
    let mut ids: Vec<ValueId> = Vec::with_capacity(kernel.insts.len());
    for inst in &kernel.insts {
        let at = |id: ValueId| ids[id.index()];
        let negated = |insts: &mut Vec<Inst<ValueId>>, id: ValueId| {
            insts.push(Inst::Unary(Unary::Neg, at(id)));
            ValueId(insts.len() as u32 - 1)
        };
        // Of two products neither is taken: so sums of two commute, and equal ones cancel.
        let new = if let Inst::Binary(op @ (Binary::Add | Binary::Sub), p, q) = *inst {
            match (op, product(p), product(q)) {
                (Binary::Add, Some((x, y)), None) => Some(Inst::Fma(at(x), at(y), at(q))),
                (Binary::Add, None, Some((x, y))) => Some(Inst::Fma(at(x), at(y), at(p))),
                (Binary::Sub, Some((x, y)), None) => Some(Inst::Fma(at(x), at(y), negated(&mut insts, q))),
                (Binary::Sub, None, Some((x, y))) => Some(Inst::Fma(negated(&mut insts, x), at(y), at(p))),
                _ => None,
            }
        } else {
            None
        };
        insts.push(new.unwrap_or_else(|| inst.map(at)));
        ids.push(ValueId(insts.len() as u32 - 1));
    }
    let stores = kernel.stores.iter().map(|s| Store { value: ids[s.value.index()], ..s.clone() }).collect();
    Kernel { params: kernel.params.clone(), axes: kernel.axes.clone(), insts, stores }
}
