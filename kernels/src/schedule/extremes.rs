//! Maxima of floats as minima.
//!
//! Minimum and maximum instructions of x86-64 give the second operand where one is NaN and where both are zeros, so both orders are
//! asked. The union of the answers is the minimum, with NaN and the sign of zeros; of the maximum, the difference has to be
//! taken from it, which takes three more instructions from one element to the next. Signs are changed beside that chain.
//! Other machines have both as one instruction, and two changes of sign more.

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::random::evaluated;

    /// The largest and the smallest element of rows of four.
    fn extremes(dtype: &str) -> Kernel {
        let text = format!(
            "kernel (p0: {dtype}[16], p1: {dtype}[4] out, p2: {dtype}[4] out) {{
                axes a0 = 4, a1 = 4 reduced
                %0 = load p0[a0 * 4 + a1]
                %1 = reduce max %0
                %2 = reduce min %0
                store p1[a0], %1
                store p2[a0], %2
            }}"
        );
        text.parse().unwrap()
    }

    #[test]
    fn maxima_of_floats_are_minima() {
        let rows = [[1.0, -2.0, 3.0, 0.5], [-0.0, 0.0, -0.0, -1.0], [f32::NEG_INFINITY; 4], [2.0, f32::NAN, 5.0, 1.0]];
        let rewritten = with_minima(extremes("f32"));
        rewritten.verify().unwrap();
        assert!(!rewritten.to_string().contains("max"), "{rewritten}");
        let inputs = [rows.as_flattened().iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>()];
        let [found, expected] = [rewritten, extremes("f32")].map(|kernel| evaluated(&[kernel], &inputs));
        let values = |bytes: &[u8]| bytes.as_chunks::<4>().0.iter().map(|x| f32::from_le_bytes(*x)).collect::<Vec<_>>();
        for (found, expected) in found.iter().zip(&expected).map(|(found, expected)| (values(found), values(expected)))
        {
            for (x, y) in found.into_iter().zip(expected) {
                assert!(x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan(), "{x} is not {y}");
            }
        }
    }

    #[test]
    fn maxima_of_integers_stay() {
        assert_eq!(with_minima(extremes("i32")), extremes("i32"));
    }
}
