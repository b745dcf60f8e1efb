//! Transcendental functions in terms of the other instructions, each written once for both float widths.
//!
//! A formula is generic code over arithmetic of either width: run on the values of a kernel it appends instructions
//! ([`expand`]), which are the same for all backends, and so are the bits of the results.
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
mod erf;
mod exp;
mod gamma;
mod hyperbolic;
mod log;
mod plain;
mod pow;
mod quotient;
mod term;
mod trig;

use std::cell::RefCell;

use retape_runtime::DType;

use crate::ir::{Func1, Func2, Inst, Kernel, Store, ValueId};
use arith::Arith;
pub(crate) use plain::Transcendental;
pub(crate) use quotient::expand_quotients;
use term::{BodyBuilder, Term};

/// The formula of a function of one operand.
fn call1<F: Arith>(func: Func1, x: F) -> F {
    match func {
        Func1::Exp => exp::exp(x),
        Func1::Exp2 => exp::exp2(x),
        Func1::Expm1 => exp::expm1(x),
        Func1::Log => log::log(x),
        Func1::Log2 => log::log2(x),
        Func1::Log1p => log::log1p(x),
        Func1::Sin => trig::sin(x),
        Func1::Cos => trig::cos(x),
        Func1::Tan => trig::tan(x),
        Func1::Asin => trig::asin(x),
        Func1::Acos => trig::acos(x),
        Func1::Atan => trig::atan(x),
        Func1::Sinh => hyperbolic::sinh(x),
        Func1::Cosh => hyperbolic::cosh(x),
        Func1::Tanh => hyperbolic::tanh(x),
        Func1::Asinh => hyperbolic::asinh(x),
        Func1::Acosh => hyperbolic::acosh(x),
        Func1::Atanh => hyperbolic::atanh(x),
        Func1::Erf => erf::erf(x),
        Func1::Erfc => erf::erfc(x),
        Func1::Sigmoid => exp::sigmoid(x),
        Func1::Lgamma => gamma::lgamma(x),
        Func1::Digamma => gamma::digamma(x),
        Func1::Trigamma => gamma::trigamma(x),
        Func1::Tetragamma => gamma::tetragamma(x),
    }
}

/// The formula of a function of two operands.
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
    let body = RefCell::new(BodyBuilder::new());
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
            Inst::Call1(func, x) if wide(x) => call1(func, Term::<f64>::new(&body, x)).id,
            Inst::Call1(func, x) => call1(func, Term::<f32>::new(&body, x)).id,
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
