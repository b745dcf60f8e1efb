//! Transcendental functions in terms of the other instructions, each written once for both float widths.
//!
//! A formula is generic code over arithmetic. Run on the values of a kernel it appends instructions ([`expand`]);
//! run on numbers it computes, and loops over it are what the block kernels are made of. Because both are the same
//! operations in the same order, they give the same bits.
//!
//! Formulas are branch-free and use no tables, so that they vectorise: polynomials after range reduction, selects for
//! the edges.
//!
//! Largest errors of `f32` in units of the last place, measured by `examples/ulp.rs` over every argument (*) or every
//! 67th to 509th:
//!
//! | function | error | function | error | function | error | function | error |
//! |---|---|---|---|---|---|---|---|
//! | `exp`* | 0.93 | `log1p` | 1.36 | `acos` | 1.03 | `asinh` | 1.69 |
//! | `exp2` | 0.84 | `sin`* | 0.86 | `atan` | 1.12 | `acosh` | 1.89 |
//! | `expm1` | 1.42 | `cos` | 0.84 | `sinh`* | 1.62 | `atanh` | 1.93 |
//! | `log` | 0.77 | `tan` | 1.11 | `cosh` | 1.32 | `erf` | 1.03 |
//! | `log2` | 0.89 | `asin`* | 1.11 | `tanh` | 1.34 | `erfc` | 3.65 |
//! | `sigmoid` | 1.55 | `trigamma` | 5.7 | `pow`, `atan2` | below 2 | | |
//!
//! In `f64` all but the gamma family keep the same bounds on a table of correctly rounded values, 200 per function.
//! `lgamma`, `digamma` and `tetragamma` have zeros where their terms cancel; there the error is small against the terms
//! only: at most 8 units (`tetragamma` in `f32`: 12; `f64`: 16) of the size of the terms. Poles of odd order give NaN
//! except at zero, whose sign decides; poles of even order and of `lgamma` give infinity.

mod arith;
mod block;
mod erf;
mod exp;
mod gamma;
mod hyperbolic;
mod log;
mod pow;
mod term;
mod trig;

use std::cell::RefCell;

use retape_runtime::DType;

use crate::ir::{Func1, Func2, Inst, Kernel, Store, ValueId};
use arith::Arith;
use term::{Body, Term};

pub use block::{Block1, Block2, BlockFloat, block1, block2};

/// The formula of a function of one operand.
///
/// With `HUGE` off, trigonometric functions are right for arguments below the bounds in [`trig`] only. Debug builds
/// give up the loops' speed for one copy of each formula instead of one per instruction set.
#[cfg_attr(not(debug_assertions), inline(always))]
fn call1<F: Arith, const HUGE: bool>(func: Func1, x: F) -> F {
    match func {
        Func1::Exp => x.apply(exp::exp),
        Func1::Exp2 => x.apply(exp::exp2),
        Func1::Expm1 => x.apply(exp::expm1),
        Func1::Log => x.apply(log::log),
        Func1::Log2 => x.apply(log::log2),
        Func1::Log1p => x.apply(log::log1p),
        Func1::Sin => x.apply(trig::sin::<F, HUGE>),
        Func1::Cos => x.apply(trig::cos::<F, HUGE>),
        Func1::Tan => x.apply(trig::tan::<F, HUGE>),
        Func1::Asin => x.apply(trig::asin),
        Func1::Acos => x.apply(trig::acos),
        Func1::Atan => x.apply(trig::atan),
        Func1::Sinh => x.apply(hyperbolic::sinh),
        Func1::Cosh => x.apply(hyperbolic::cosh),
        Func1::Tanh => x.apply(hyperbolic::tanh),
        Func1::Asinh => x.apply(hyperbolic::asinh),
        Func1::Acosh => x.apply(hyperbolic::acosh),
        Func1::Atanh => x.apply(hyperbolic::atanh),
        Func1::Erf => x.apply(erf::erf),
        Func1::Erfc => x.apply(erf::erfc),
        Func1::Sigmoid => x.apply(exp::sigmoid),
        Func1::Lgamma => x.apply(gamma::lgamma),
        Func1::Digamma => x.apply(gamma::digamma),
        Func1::Trigamma => x.apply(gamma::trigamma),
        Func1::Tetragamma => x.apply(gamma::tetragamma),
    }
}

/// The formula of a function of two operands.
#[cfg_attr(not(debug_assertions), inline(always))]
fn call2<F: Arith>(func: Func2, x: F, y: F) -> F {
    match func {
        Func2::Pow => pow::pow(x, y),
        Func2::Atan2 => trig::atan2(x, y),
    }
}

/// The kernel with every [`Inst::Call1`] and [`Inst::Call2`] replaced by its formula; equal instructions are merged.
pub fn expand(kernel: &Kernel) -> Kernel {
    expand_but(kernel, |_, _| false)
}

/// The same, but functions that `keep` names stay, and may serve others.
pub(crate) fn expand_but(kernel: &Kernel, keep: impl Fn(Func1, DType) -> bool) -> Kernel {
    let body = RefCell::new(Body::new());
    let mut ids: Vec<ValueId> = Vec::with_capacity(kernel.insts.len());
    for inst in &kernel.insts {
        let inst = inst.map(|id| ids[id.index()]);
        let dtype = |x| body.borrow().dtype(x);
        let wide = |x| dtype(x) == DType::F64;
        let id = match inst {
            Inst::Call1(func, x) if keep(func, dtype(x)) => body.borrow_mut().push(inst, &kernel.params),
            Inst::Call1(Func1::Log1p, x) if !wide(x) && keep(Func1::Log, dtype(x)) => {
                let x = Term::<f32>::new(&body, x);
                log::log1p_beside(x, (x.lit(1.0) + x).kept(Func1::Log)).id
            }
            Inst::Call1(func, x) if wide(x) => call1::<_, true>(func, Term::<f64>::new(&body, x)).id,
            Inst::Call1(func, x) => call1::<_, true>(func, Term::<f32>::new(&body, x)).id,
            Inst::Call2(func, x, y) if wide(x) => {
                call2(func, Term::<f64>::new(&body, x), Term::<f64>::new(&body, y)).id
            }
            Inst::Call2(func, x, y) => call2(func, Term::<f32>::new(&body, x), Term::<f32>::new(&body, y)).id,
            other => body.borrow_mut().push(other, &kernel.params),
        };
        ids.push(id);
    }
    let stores = kernel.stores.iter().map(|s| Store { value: ids[s.value.index()], ..s.clone() }).collect();
    let insts = body.into_inner().insts;
    Kernel { params: kernel.params.clone(), axes: kernel.axes.clone(), insts, stores }
}
