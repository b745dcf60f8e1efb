//! Maxima of floats as minima.
//!
//! Minimum and maximum instructions give the second operand where one is NaN and where both are zeros, so both orders are
//! asked. The union of the answers is the minimum, with NaN and the sign of zeros; of the maximum, the difference has to be
//! taken from it, which takes three more instructions from one element to the next. Signs are changed beside that chain.

use crate::ir::{Inst, Kernel, ReductionOp, Unary, ValueId, operation};
use crate::simplify::without_dead;

/// The kernel whose maxima of floats are negated minima of the negated elements. The signs of NaN differ.
pub(super) fn with_minima(kernel: Kernel) -> Kernel {
    let dtypes = kernel.dtypes();
    let is_maximum = |(inst, id): (&Inst<ValueId>, usize)| {
        matches!(inst, Inst::Reduce(ReductionOp::Max, _)) && dtypes[id].is_float()
    };
    if !kernel.insts.iter().zip(0..).any(is_maximum) {
        return kernel;
    }
    let (mut insts, mut new): (Vec<Inst<ValueId>>, Vec<ValueId>) = (Vec::new(), Vec::new());
    let mut push = |inst| {
        insts.push(inst);
        ValueId(insts.len() as u32 - 1)
    };
    for (id, inst) in kernel.insts.iter().enumerate() {
        let mapped = inst.map(|v: ValueId| new[v.index()]);
        let value = match mapped {
            Inst::Reduce(ReductionOp::Max, x) if is_maximum((inst, id)) => {
                let negated = push(Inst::Unary(Unary::Neg, x));
                let least = push(Inst::Reduce(ReductionOp::Min, negated));
                push(Inst::Unary(Unary::Neg, least))
            }
            Inst::Const(_) | Inst::Index(_) | Inst::Load(..) | Inst::LoadAt(..) | Inst::Reduce(..) | operation!() => {
                push(mapped)
            }
        };
        new.push(value);
    }
    let mut kernel = kernel;
    for store in &mut kernel.stores {
        store.value = new[store.value.index()];
    }
    without_dead(Kernel { insts, ..kernel })
}
