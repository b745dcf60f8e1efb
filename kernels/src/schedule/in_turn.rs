//! Kernels over axes whose coordinates are used together alone, as kernels over one axis in their place.
//!
//! An element of a row that is read from a computed place on, as that of a table, has the position
//! `start + i * extent + j` where the row itself has two axes. Accesses walk both as one axis, and so do the positions: with
//! one coordinate `i * extent + j` no quotient is needed, as `i` and `j` are asked for nowhere else.
//!
//! Kernels with sums stay as they are, since their axes decide the order of additions.

use retape_runtime::{DType, Scalar};

use super::canonical::with_next_axis_by;
use crate::ir::{Binary, Inst, Kernel, ValueId, operation};

/// The kernel with each axis and the next one as one, where accesses and positions walk them so.
pub(super) fn with_axes_in_turn(mut kernel: Kernel) -> Kernel {
    if kernel.axes.iter().any(|axis| axis.reduced) {
        return kernel;
    }
    let mut outer = 0;
    while outer + 1 < kernel.axes.len() {
        match with_next_axis_in_turn(&kernel, outer) {
            Some(one) => (kernel, outer) = (one, outer.saturating_sub(1)),
            None => outer += 1,
        }
    }
    kernel
}

fn with_next_axis_in_turn(kernel: &Kernel, outer: usize) -> Option<Kernel> {
    let is_of = |inst: &Inst<ValueId>| matches!(inst, Inst::Index(axis) if (outer..=outer + 1).contains(&axis.index()));
    // Without positions, the canonical form has them as one.
    kernel.insts.iter().any(is_of).then_some(())?;
    let extent = i64::try_from(kernel.axes[outer + 1].extent).ok()?;
    positions_are_in_turn(kernel, outer, extent).then_some(())?;
    with_next_axis_by(kernel, outer, &|k, merged| [k.constant(Scalar { dtype: DType::I64, bits: 0 }), merged])
}

/// Whether each value that uses coordinates of two axes otherwise than in a sum of multiples uses multiples of
/// `outer * extent + inner`.
fn positions_are_in_turn(kernel: &Kernel, outer: usize, extent: i64) -> bool {
    // The factors of the two coordinates in each integer, besides what follows from the one in their place.
    let mut factors: Vec<[i64; 2]> = Vec::with_capacity(kernel.insts.len());
    let is_in_turn = |[of_outer, of_inner]: [i64; 2]| of_inner.wrapping_mul(extent) == of_outer;
    for inst in &kernel.insts {
        let of = |v: &ValueId| factors[v.index()];
        let constant = |v: &ValueId| {
            let Inst::Const(c) = kernel.insts[v.index()] else { return None };
            if c.dtype == DType::I64 { c.to_i64() } else { None }
        };
        let scaled = |v: &ValueId, by: i64| Some(of(v).map(|factor| factor.wrapping_mul(by)));
        let sum = |x: &ValueId, y: &ValueId, sign: i64| {
            let ([x0, x1], [y0, y1]) = (of(x), of(y));
            Some([x0.wrapping_add(sign.wrapping_mul(y0)), x1.wrapping_add(sign.wrapping_mul(y1))])
        };
        let linear = match inst {
            Inst::Index(axis) if axis.index() == outer => Some([1, 0]),
            Inst::Index(axis) if axis.index() == outer + 1 => Some([0, 1]),
            Inst::Binary(Binary::Add, x, y) => sum(x, y, 1),
            Inst::Binary(Binary::Sub, x, y) => sum(x, y, -1),
            Inst::Binary(Binary::Mul, x, y) => match (constant(x), constant(y)) {
                (Some(c), _) => scaled(y, c),
                (None, Some(c)) => scaled(x, c),
                (None, None) => None,
            },
            Inst::Const(_) | Inst::Index(_) | Inst::Load(..) | Inst::LoadAt(..) | Inst::Reduce(..) | operation!() => {
                None
            }
        };
        if linear.is_none() && !inst.operands().iter().all(|v| is_in_turn(of(v))) {
            return false;
        }
        factors.push(linear.unwrap_or([0, 0]));
    }
    kernel.stores.iter().all(|store| is_in_turn(factors[store.value.index()]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::random::{evaluated, random_inputs, random_kernel_of_positions};

    fn outputs(kernel: &Kernel, inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
        evaluated(std::slice::from_ref(kernel), inputs)
    }

    /// Rows of `[7, 5]` that a table of ten has, from the position on that `of_row` makes of the coordinates %3 and %4.
    fn rows_of_table(of_row: &str) -> Kernel {
        let text = format!(
            "kernel (p0: i32[6], p1: f32[350], p2: f32[210] out) {{
                axes a0 = 6, a1 = 7, a2 = 5
                %0 = load p0[a0]
                %1 = cast %0: i64
                %2 = const 35: i64
                %3 = index a1
                %4 = index a2
                %5 = const 5: i64
                %6 = const 1: i64
                %7 = mul %1, %2
                %8 = mul %4, %6
                {of_row}
                %14 = load_at p1, %13
                store p2[a0 * 35 + a1 * 5 + a2], %14
            }}"
        );
        text.parse().unwrap()
    }

    fn inputs() -> Vec<Vec<u8>> {
        let rows = [3_i32, 0, 9, 9, 1, 5].iter().flat_map(|row| row.to_le_bytes()).collect();
        vec![rows, (0..350).flat_map(|n| (n as f32).to_le_bytes()).collect()]
    }

    #[test]
    fn rows_of_two_axes_are_one() {
        let sums = [
            ("%9 = mul %3, %5\n%10 = add %7, %9\n%11 = add %10, %8\n%12 = sub %11, %6\n%13 = add %12, %6", 2),
            ("%9 = mul %3, %5\n%10 = add %8, %9\n%11 = sub %7, %10\n%12 = add %11, %10\n%13 = add %12, %10", 2),
            // The axes are exchanged, one counts twice, and a quotient asks for one of them alone.
            ("%9 = mul %8, %5\n%10 = add %7, %9\n%11 = add %10, %3\n%12 = add %11, %6\n%13 = sub %12, %6", 3),
            ("%9 = mul %3, %5\n%10 = add %7, %9\n%11 = add %10, %8\n%12 = add %11, %8\n%13 = sub %12, %8", 2),
            ("%9 = mul %3, %5\n%10 = add %7, %9\n%11 = add %10, %8\n%12 = div %8, %5\n%13 = add %11, %12", 3),
            ("%9 = mul %3, %5\n%10 = add %7, %9\n%11 = add %8, %8\n%12 = sub %11, %8\n%13 = mul %3, %8", 3),
        ];
        for (sum, n_axes) in sums {
            let kernel = rows_of_table(sum);
            kernel.verify().unwrap_or_else(|e| panic!("{sum}: {e:?}"));
            let one = with_axes_in_turn(kernel.clone());
            one.verify().unwrap_or_else(|e| panic!("{sum}: {e:?}\n{one}"));
            assert_eq!(one.axes.len(), n_axes, "{sum}\n{one}");
            assert!(outputs(&one, &inputs()) == outputs(&kernel, &inputs()), "{sum}\n{one}");
        }
    }

    #[test]
    fn random_kernels_keep_their_results() {
        let mut n_joined = 0;
        for seed in 0..2000 {
            let kernel = random_kernel_of_positions(seed);
            let one = with_axes_in_turn(kernel.clone());
            one.verify().unwrap_or_else(|e| panic!("seed {seed}: {e:?}\n{one}"));
            n_joined += usize::from(one.axes.len() < kernel.axes.len());
            let inputs = random_inputs(&kernel, seed);
            assert!(outputs(&one, &inputs) == outputs(&kernel, &inputs), "seed {seed}\n{kernel}");
        }
        assert!(n_joined > 50, "{n_joined}");
    }
}
