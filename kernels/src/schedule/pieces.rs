//! Kernels whose positions are computed from coordinates, as kernels for parts of their points where the computation is
//! affine.
//!
//! A pad reads an element where all coordinates are inside, and a constant elsewhere; the gradient of a slice with a step
//! divides coordinates by the step. Point by point that is a comparison, a quotient and a load at a computed position.
//! Between the coordinates where a comparison changes, and where a quotient goes to the next number, it is a plain load
//! or a constant. So axes are cut at these coordinates, and an axis that a quotient runs through many times becomes two:
//! the quotient, and the remainder.
//!
//! No sum is cut, since kernels with reduced axes stay whole, so that no bit changes.

use std::cmp::Ordering;

use super::canonical::{affine, over_axes, with_next_axis};
use super::short_rows::without_short_rows;
use crate::ir::{Affine, Axis, AxisId, Binary, Compare, Inst, Kernel, KernelBuilder, ValueId, operation};
use crate::simplify::{AffineValue, bounds, built, simplify_around_coordinates};

/// The fewest points that are worth more than one nest.
const MIN_POINTS: usize = 1 << 12;
/// The most pieces of a kernel: each is code of its own.
const MAX_PIECES: usize = 16;
/// The shortest piece of the last axis that is worth being an axis: shorter rows have less than a vector or two.
const MIN_PERIOD: i64 = 16;

/// A way to cut a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// Before this coordinate of an axis.
    Before(AxisId, i64),
    /// An axis as two, of which the inner one has this extent.
    Periods(AxisId, i64),
}

/// Kernels that together do what a verified kernel does, in any order; the kernel itself if cutting it does not pay.
pub(crate) fn pieces(kernel: &Kernel) -> Vec<Kernel> {
    let is_worth = kernel.kept_len() >= MIN_POINTS;
    let pieces = is_worth.then(|| cut_kernel(kernel)).flatten().unwrap_or_else(|| vec![kernel.clone()]);
    pieces.into_iter().map(without_short_rows).collect()
}

/// The pieces of a kernel, if that has any and they need fewer computed positions.
pub(crate) fn cut_kernel(kernel: &Kernel) -> Option<Vec<Kernel>> {
    let is_computed =
        |inst: &Inst<ValueId>| matches!(inst, Inst::LoadAt(..) | Inst::Binary(Binary::Div | Binary::Rem, ..));
    let is_plain = !kernel.axes.iter().any(|axis| axis.reduced);
    (is_plain && kernel.insts.iter().any(is_computed)).then_some(())?;
    let whole = joined(simplify_around_coordinates(kernel));
    let before = computed_points(&whole);
    (before > 0).then_some(())?;
    let (mut open, mut done) = (vec![whole], vec![]);
    while let Some(kernel) = open.pop() {
        match cut(&kernel) {
            None => done.push(kernel),
            Some(cut) => open.extend(parts(&kernel, cut).iter().map(simplify_around_coordinates)),
        }
        (open.len() + done.len() <= MAX_PIECES).then_some(())?;
    }
    let after = done.iter().map(computed_points).sum::<usize>();
    (2 * after < before).then_some(done)
}

/// The points of a kernel at which a position or a quotient is computed from coordinates; none if it has neither.
fn computed_points(kernel: &Kernel) -> usize {
    let (k, new) = built(kernel);
    let is_computed = |&v: &ValueId| match k.inst(v) {
        Inst::LoadAt(_, x) | Inst::Binary(Binary::Div | Binary::Rem, x, _) => bounds(&k, x).is_some(),
        Inst::Const(_) | Inst::Index(_) | Inst::Load(..) | Inst::Reduce(..) | operation!() => false,
    };
    if new.iter().any(is_computed) { kernel.kept_len() } else { 0 }
}

/// The first cut that makes a comparison or a quotient simpler.
fn cut(kernel: &Kernel) -> Option<Cut> {
    let (k, new) = built(kernel);
    new.iter().find_map(|&v| {
        let inst = k.inst(v);
        if let Inst::Compare(op, x, y) = inst {
            return change(&k, Some(op), x, y);
        }
        let Inst::Binary(op, x, y) = inst else { return None };
        match op {
            Binary::Min | Binary::Max => change(&k, None, x, y),
            Binary::Div | Binary::Rem => period(kernel, &k, x, y),
            Binary::Add
            | Binary::Sub
            | Binary::Mul
            | Binary::And
            | Binary::Or
            | Binary::Xor
            | Binary::Shl
            | Binary::Shr
            | Binary::MulHigh => None,
        }
    })
}

/// A coordinate at which the order of two integers changes, if that follows from one coordinate.
fn change(k: &KernelBuilder, op: Option<Compare>, x: ValueId, y: ValueId) -> Option<Cut> {
    k.value(x).dtype().is_int().then_some(())?;
    let difference = AffineValue::of(k, x)?.plus(-1, &AffineValue::of(k, y)?)?;
    let [(axis, stride)] = difference.terms[..] else { return None };
    // The coordinates where the difference is zero, or gets beyond it.
    let zero = difference.offset.checked_neg()?;
    let (last, next) = (zero.div_euclid(stride), zero.rem_euclid(stride) == 0);
    let candidates = match op {
        Some(Compare::Eq | Compare::Ne) if !next => return None,
        Some(Compare::Eq | Compare::Ne | Compare::Lt | Compare::Le) | None => [last, last.checked_add(1)?],
    };
    let extent = i64::try_from(k.extent(axis)).ok()?;
    let changes = |&at: &i64| {
        let sign = |at: i64| Some(difference.offset.checked_add(stride.checked_mul(at)?)?.signum());
        let answer = |sign: i64| match op {
            Some(Compare::Eq | Compare::Ne) => sign == 0,
            Some(Compare::Le) => sign <= 0,
            Some(Compare::Lt) | None => sign < 0,
        };
        (0 < at && at < extent) && sign(at - 1).map(answer) != sign(at).map(answer)
    };
    candidates.into_iter().find(changes).map(|at| Cut::Before(axis, at))
}

/// The cut behind which a quotient by a constant is the same number, or the axis that it runs through as periods.
fn period(kernel: &Kernel, k: &KernelBuilder, x: ValueId, y: ValueId) -> Option<Cut> {
    let Inst::Const(divisor) = k.inst(y) else { return None };
    let divisor = divisor.to_i64().filter(|&d| d > 1)?;
    let affine = AffineValue::of(k, x).filter(|affine| affine.bounds(k).is_some_and(|(low, _)| low >= 0))?;
    let mut rest = affine.terms.iter().filter(|(_, stride)| stride % divisor != 0);
    let (Some(&(axis, stride)), None) = (rest.next(), rest.next()) else { return None };
    (stride > 0 && divisor % stride == 0).then_some(())?;
    let (length, extent) = (divisor / stride, i64::try_from(k.extent(axis)).ok()?);
    let is_row = kernel.stores.iter().any(|store| store.at.stride(axis.index()) == 1);
    if is_row && length < MIN_PERIOD {
        return None;
    }
    let offset = affine.offset.rem_euclid(divisor);
    // Up to the next multiple, which may be none at the stride.
    let first = (divisor - offset).div_euclid(stride) + i64::from((divisor - offset).rem_euclid(stride) != 0);
    if offset >= stride {
        return (first < extent).then_some(Cut::Before(axis, first));
    }
    match extent % length {
        _ if extent <= length => None,
        0 => Some(Cut::Periods(axis, length)),
        rest => Some(Cut::Before(axis, extent - rest)),
    }
}

/// The kernels that a cut leaves.
fn parts(kernel: &Kernel, cut: Cut) -> Vec<Kernel> {
    match cut {
        Cut::Before(axis, at) => {
            let extent = kernel.axes[axis.index()].extent;
            let part = |start: usize, extent: usize| {
                let mut axes = kernel.axes.clone();
                axes[axis.index()].extent = extent;
                let from =
                    |at: &Affine| Affine { offset: at.offset + start as i64 * at.stride(axis.index()), ..at.clone() };
                over_axes(kernel, &axes, &from, &|k, a| {
                    if a == axis { k.index(a) + start as i64 } else { k.index(a) }
                })
            };
            vec![part(0, at as usize), part(at as usize, extent - at as usize)]
        }
        Cut::Periods(axis, length) => {
            let n = axis.index();
            let mut axes = kernel.axes.clone();
            axes[n].extent /= length as usize;
            axes.insert(n + 1, Axis { extent: length as usize, ..axes[n] });
            let split = |at: &Affine| {
                let stride = |a: usize| match a.cmp(&n) {
                    Ordering::Less => at.stride(a),
                    Ordering::Equal => at.stride(n) * length,
                    Ordering::Greater => at.stride(a - 1),
                };
                affine(at.offset, (0..axes.len()).map(stride))
            };
            let behind = |a: AxisId| AxisId(a.0 + 1);
            vec![over_axes(kernel, &axes, &split, &|k, a| match a.cmp(&axis) {
                Ordering::Less => k.index(a),
                Ordering::Equal => k.index(a) * length + k.index(behind(a)),
                Ordering::Greater => k.index(behind(a)),
            })]
        }
    }
}

/// The kernel with neighbouring axes as one, where their coordinates count positions in it and all accesses walk them so.
fn joined(mut kernel: Kernel) -> Kernel {
    let mut outer = 0;
    while outer + 1 < kernel.axes.len() {
        match joined_at(&kernel, outer) {
            Some(one) => kernel = one,
            None => outer += 1,
        }
    }
    kernel
}

fn joined_at(kernel: &Kernel, outer: usize) -> Option<Kernel> {
    let one = with_next_axis(kernel, outer)?;
    let one = simplify_around_coordinates(&one);
    let quotients = |kernel: &Kernel| {
        let is_quotient = |inst: &&Inst<ValueId>| matches!(inst, Inst::Binary(Binary::Div | Binary::Rem, ..));
        kernel.insts.iter().filter(is_quotient).count()
    };
    (quotients(&one) <= quotients(kernel)).then_some(one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::evaluate;
    use crate::ir::random::{random_inputs, random_kernel_of_positions};

    /// The outputs of some kernels, one after the other.
    fn outputs(kernels: &[Kernel], inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let written = kernels[0].params.iter().filter(|param| param.written);
        let mut outputs: Vec<Vec<u8>> = written.map(|param| vec![0xa5; param.len * param.dtype.size()]).collect();
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        for kernel in kernels {
            evaluate(kernel, &inputs, &mut outputs.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
        }
        outputs
    }

    #[test]
    fn pieces_do_what_the_kernel_does() {
        let (mut n_cut, mut n_pieces) = (0, 0);
        for seed in 0..2000 {
            let kernel = random_kernel_of_positions(seed);
            kernel.verify().unwrap_or_else(|e| panic!("seed {seed}: {e:?}\n{kernel}"));
            let Some(pieces) = cut_kernel(&kernel) else { continue };
            let inputs = random_inputs(&kernel, seed);
            (n_cut, n_pieces) = (n_cut + 1, n_pieces + pieces.len());
            assert_eq!(pieces.iter().map(Kernel::kept_len).sum::<usize>(), kernel.kept_len(), "seed {seed}");
            pieces.iter().for_each(|piece| piece.verify().unwrap_or_else(|e| panic!("seed {seed}: {e:?}\n{piece}")));
            assert!(
                outputs(&pieces, &inputs) == outputs(std::slice::from_ref(&kernel), &inputs),
                "seed {seed}\n{kernel}"
            );
        }
        assert!(n_cut > 200 && n_pieces > 3 * n_cut, "{n_cut} kernels, {n_pieces} pieces");
    }

    /// A vector on a diagonal of a matrix of `n` rows, as the gradient of `diagonal(off)` has it.
    fn diagonal(n: i64, off: i64) -> Kernel {
        let text = format!(
            "kernel (p0: f32[{n}], p1: f32[{len}] out) {{
                axes a0 = {n}, a1 = {n}
                %0 = index a0
                %1 = const {n}: i64
                %2 = mul %0, %1
                %3 = index a1
                %4 = add %2, %3
                %5 = const {off}: i64
                %6 = sub %4, %5
                %7 = const 0: i64
                %8 = max %6, %7
                %9 = const {step}: i64
                %10 = div %8, %9
                %11 = le %7, %6
                %12 = const {count}: i64
                %13 = lt %10, %12
                %14 = and %11, %13
                %15 = rem %8, %9
                %16 = eq %15, %7
                %17 = and %14, %16
                %18 = max %10, %7
                %19 = const {last}: i64
                %20 = min %18, %19
                %21 = load_at p0, %20
                %22 = const 0.0: f32
                %23 = select %17, %21, %22
                store p1[a0 * {n} + a1], %23
            }}",
            len = n * n,
            step = n + 1,
            count = n - off,
            last = n - off - 1
        );
        text.parse().unwrap()
    }

    #[test]
    fn a_diagonal_is_rows_of_constants_and_a_column() {
        for off in [0, 1, 5] {
            let pieces = cut_kernel(&diagonal(64, off)).unwrap();
            assert!(pieces.len() <= 8, "{pieces:?}");
            let computes = |inst: &Inst<ValueId>| {
                matches!(inst, Inst::LoadAt(..) | Inst::Compare(..) | Inst::Binary(Binary::Div | Binary::Rem, ..))
            };
            assert!(!pieces.iter().flat_map(|piece| &piece.insts).any(computes), "{pieces:?}");
            let loads = pieces.iter().filter(|piece| piece.insts.iter().any(|inst| matches!(inst, Inst::Load(..))));
            assert_eq!(loads.map(Kernel::kept_len).sum::<usize>(), 64 - off as usize);
        }
    }
}
