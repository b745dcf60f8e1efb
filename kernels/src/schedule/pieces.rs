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

use super::canonical::{affine, over_axes, with_next_axis, without_units};
use super::in_turn::with_axes_in_turn;
use super::interleaved::MOST_WAYS;
use super::permuted::PermutedRows;
use super::short_rows::{is_in_turn, without_short_rows};
use super::written_out::{MOST_INSTS, accesses, written_out};
use super::{MIN_VECTOR_EXTENT, NEAR};
use crate::ir::{Affine, Axis, AxisId, Binary, Compare, Inst, Kernel, KernelBuilder, Store, ValueId, operation};
use crate::simplify::{AffineValue, bounds, built, simplify_around_coordinates};

/// The fewest points that are worth more than one nest.
const MIN_POINTS: usize = 1 << 12;
/// The most pieces of a kernel: each is code of its own.
const MAX_PIECES: usize = 16;
/// The shortest piece of the last axis that is worth being an axis: shorter rows have less than a vector or two.
const MIN_PERIOD: i64 = 16;
/// Cuts before a row that are tried: at its ends, and where periods begin and end.
const MOST_CUTS: usize = 4;
/// The fewest rows that are worth lanes of their own.
const MIN_ROWS: usize = if cfg!(test) { 16 } else { 1 << 8 };
/// The fewest of them that follow each other at equal distances.
const MIN_LANES: usize = 16;
/// Elements of the widest vector.
const WIDEST: usize = 16;
/// The longest rows of elements that are the same, or follow from what all rows share and an element of the row, that are
/// written out: vectors of longer rows are nearly full. Where something is computed from coordinates, longer rows are worth it.
const LONGEST_SPREAD: usize = 12;

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
    let rows_of = |piece| {
        let piece = without_units(with_axes_in_turn(piece));
        with_short_row_written_out(&piece).unwrap_or_else(|| without_short_rows(piece))
    };
    pieces.into_iter().map(rows_of).collect()
}

/// The kernel with short rows written out, where that pays.
fn with_short_row_written_out(kernel: &Kernel) -> Option<Kernel> {
    let last = kernel.axes.len().checked_sub(1).filter(|&last| last > 0)?;
    let is_plain = !kernel.axes.iter().any(|axis| axis.reduced);
    // An element for each row, or a row for some of them.
    let is_of_rows = |(_, at): (usize, &Affine)| match [at.stride(last - 1), at.stride(last)] {
        [of_row, 0] => of_row != 0,
        [0, 1] => (0..last - 1).any(|axis| at.stride(axis) != 0),
        _ => false,
    };
    let pays = written_rows_pay(kernel, last) && accesses(kernel).any(is_of_rows);
    // Elements that only move are worth it as permutations of vectors, of which rows that are one axis need none.
    let is_moved = || {
        let is_one_axis = accesses(kernel).all(|(_, at)| is_in_turn(kernel, last - 1, at));
        is_copy(kernel) && !is_one_axis && kernel.axes[last].extent <= MOST_WAYS
    };
    (is_plain && (pays || is_moved())).then_some(())?;
    written_row(kernel, last).filter(|written| pays || permuted_rows(written).is_some())
}

/// Whether rows beside what is of a row are worth writing out.
fn written_rows_pay(kernel: &Kernel, last: usize) -> bool {
    let extent = kernel.axes[last].extent;
    let has = |wanted: fn(&Inst<ValueId>) -> bool| kernel.insts.iter().any(wanted);
    let is_computed = has(|inst| matches!(inst, Inst::Index(_)));
    if has(|inst| matches!(inst, Inst::LoadAt(..))) {
        return false;
    }
    // A quotient would find what is of the row for each of the few elements.
    let is_scalar = extent <= MIN_VECTOR_EXTENT && !is_computed;
    // A vector would hold a single row, whose elements follow from an element of the row and what all rows share.
    let is_of_row = |(_, at): &(usize, &Affine)| at.stride(last) != 0 && (0..last).any(|axis| at.stride(axis) != 0);
    let longest = if is_computed || is_copy(kernel) { MOST_WAYS } else { LONGEST_SPREAD };
    is_scalar || extent <= longest && accesses(kernel).filter(is_of_row).count() == kernel.stores.len()
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
        // Short periods are no axis, so that they are cut only where they end written out.
        let (short, other) = (cut(&kernel, true), cut(&kernel, false));
        let is_short = |cut: &Cut| short != other && ends_written_out(&kernel, *cut, MOST_CUTS);
        let found = short.filter(is_short).or(other);
        let written = found.and_then(|cut| with_row_written_out(&kernel, cut));
        match written.map(|kernel| vec![kernel]).or_else(|| found.map(|cut| parts(&kernel, cut))) {
            None => done.push(kernel),
            Some(parts) => open.extend(parts.iter().map(simplify_around_coordinates)),
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
    // A row that is written out has a store for each of its points.
    if new.iter().any(is_computed) { kernel.kept_len() * kernel.stores.len() } else { 0 }
}

/// Whether the largest part of a kernel has a row that is written out, after some cuts.
fn ends_written_out(kernel: &Kernel, found: Cut, most_cuts: usize) -> bool {
    if with_row_written_out(kernel, found).is_some() {
        return true;
    }
    let Some(most_cuts) = most_cuts.checked_sub(1) else { return false };
    let largest = parts(kernel, found).into_iter().max_by_key(Kernel::kept_len);
    let largest = largest.map(|part| simplify_around_coordinates(&part));
    largest.is_some_and(|part| cut(&part, true).is_some_and(|found| ends_written_out(&part, found, most_cuts)))
}

/// The kernel with a short last axis that is to be cut, or short periods of it, written out: pieces of rows of a few
/// elements would each touch all cache lines. The rows lie side by side in vectors then, if whole rows are read and written.
fn with_row_written_out(kernel: &Kernel, cut: Cut) -> Option<Kernel> {
    let last = kernel.axes.len().checked_sub(1)?;
    let (kernel, row) = match cut {
        Cut::Before(axis, _) if axis.index() == last => (kernel.clone(), last),
        Cut::Periods(axis, length) if axis.index() == last && length < MIN_PERIOD => {
            (parts(kernel, cut).pop()?, last + 1)
        }
        Cut::Before(..) | Cut::Periods(..) => return None,
    };
    written_row(&kernel, row)
}

/// The kernel with rows written out, if they lie side by side in vectors then; a few of them that follow each other, as those
/// of a repeated row do, are one row.
fn written_row(kernel: &Kernel, row: usize) -> Option<Kernel> {
    let extent = kernel.axes[row].extent;
    let is_small = kernel.insts.len() as u64 * extent as u64 <= MOST_INSTS;
    let is_word = kernel.params.iter().all(|param| param.dtype.size() == 4);
    // The stores of each parameter are a row already, of which the axis has several.
    let stored = |store: &Store| kernel.stores.iter().filter(|other| other.param == store.param).count();
    let is_row = kernel.stores.iter().all(|store| store.at.stride(row) == stored(store) as i64);
    let longest = kernel.stores.iter().map(|store| stored(store) * extent).max();
    let is_short = extent >= 2 && longest? <= MOST_WAYS && kernel.kept_len() / extent >= MIN_ROWS;
    (row > 0 && is_small && is_word && is_row && is_short).then_some(())?;
    let written = joined(simplify_around_coordinates(&written_out(kernel, row)));
    let rows = written.axes.len().checked_sub(1)?;
    let least = permuted_rows(&written).map_or(MIN_LANES, |rows| rows.least);
    let is_by_rows = || (written.axes[rows].extent >= least && is_by_whole_rows(&written)).then(|| written.clone());
    let has_few = written.axes[rows].extent < MIN_LANES;
    has_few.then(|| written_row(&written, rows)).flatten().or_else(is_by_rows)
}

/// The rows along the last axis as permutations of the widest vectors.
fn permuted_rows(kernel: &Kernel) -> Option<PermutedRows> {
    PermutedRows::of(kernel, kernel.axes.len().checked_sub(1)?, WIDEST)
}

/// Whether a kernel computes nothing, and no position either.
fn is_copy(kernel: &Kernel) -> bool {
    kernel.insts.iter().all(|inst| matches!(inst, Inst::Load(..) | Inst::Const(_)))
}

/// Whether all elements between those that a parameter has at neighbouring points of the last axis are accessed, or they
/// are few, and no position is read from memory.
fn is_by_whole_rows(kernel: &Kernel) -> bool {
    let Some(last) = kernel.axes.len().checked_sub(1) else { return false };
    let strides = || accesses(kernel).map(|(param, at)| (param, at.stride(last)));
    let is_whole = |&(param, stride): &(usize, i64)| {
        let n = strides().filter(|&other| other == (param, stride)).count();
        (0..=NEAR).contains(&stride) || usize::try_from(stride) == Ok(n)
    };
    let mut is_data: Vec<bool> = Vec::with_capacity(kernel.insts.len());
    for inst in &kernel.insts {
        if matches!(inst, Inst::LoadAt(_, at) if is_data[at.index()]) {
            return false;
        }
        let is_load = matches!(inst, Inst::Load(..) | Inst::LoadAt(..));
        is_data.push(is_load || inst.operands().iter().any(|v| is_data[v.index()]));
    }
    strides().all(|of| is_whole(&of))
}

/// The first cut that makes a comparison or a quotient simpler; periods of a few elements of a row only if asked for.
fn cut(kernel: &Kernel, has_short_periods: bool) -> Option<Cut> {
    let (k, new) = built(kernel);
    new.iter().find_map(|&v| {
        let inst = k.inst(v);
        if let Inst::Compare(op, x, y) = inst {
            return change(&k, Some(op), x, y);
        }
        let Inst::Binary(op, x, y) = inst else { return None };
        match op {
            Binary::Min | Binary::Max => change(&k, None, x, y),
            Binary::Div | Binary::Rem => period(kernel, &k, [x, y], has_short_periods),
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
fn period(kernel: &Kernel, k: &KernelBuilder, [x, y]: [ValueId; 2], has_short_periods: bool) -> Option<Cut> {
    let Inst::Const(divisor) = k.inst(y) else { return None };
    let divisor = divisor.to_i64().filter(|&d| d > 1)?;
    let affine = AffineValue::of(k, x).filter(|affine| affine.bounds(k).is_some_and(|(low, _)| low >= 0))?;
    let mut rest = affine.terms.iter().filter(|(_, stride)| stride % divisor != 0);
    let (Some(&(axis, stride)), None) = (rest.next(), rest.next()) else { return None };
    (stride > 0 && divisor % stride == 0).then_some(())?;
    let (length, extent) = (divisor / stride, i64::try_from(k.extent(axis)).ok()?);
    let is_row = kernel.stores.iter().any(|store| store.at.stride(axis.index()) == 1);
    if is_row && length < MIN_PERIOD && !has_short_periods {
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
    use crate::ir::random::{evaluated, random_inputs, random_kernel_of_positions};

    #[test]
    fn pieces_do_what_the_kernel_does() {
        let (mut n_cut, mut n_pieces) = (0, 0);
        for seed in 0..2000 {
            let kernel = random_kernel_of_positions(seed);
            kernel.verify().unwrap_or_else(|e| panic!("seed {seed}: {e:?}\n{kernel}"));
            let Some(pieces) = cut_kernel(&kernel) else { continue };
            let inputs = random_inputs(&kernel, seed);
            (n_cut, n_pieces) = (n_cut + 1, n_pieces + pieces.len());
            let stored = |kernel: &Kernel| kernel.kept_len() * kernel.stores.len();
            assert_eq!(pieces.iter().map(stored).sum::<usize>(), stored(&kernel), "seed {seed}");
            pieces.iter().for_each(|piece| piece.verify().unwrap_or_else(|e| panic!("seed {seed}: {e:?}\n{piece}")));
            assert!(
                evaluated(&pieces, &inputs) == evaluated(std::slice::from_ref(&kernel), &inputs),
                "seed {seed}\n{kernel}"
            );
        }
        assert!(n_cut > 200 && n_pieces > 3 * n_cut, "{n_cut} kernels, {n_pieces} pieces");
    }

    /// Zeros with every `step`-th element of `n` from `low` on, in rows of `len`, as the gradient of a slice has it.
    fn spread([rows, len]: [usize; 2], [low, step, n]: [usize; 3]) -> Kernel {
        let text = format!(
            "kernel (p0: f32[{from}], p1: f32[{to}] out) {{
                axes a0 = {rows}, a1 = {len}
                %0 = const 0: i64
                %1 = index a0
                %2 = index a1
                %3 = const {low}: i64
                %4 = sub %2, %3
                %5 = max %4, %0
                %6 = const {step}: i64
                %7 = div %5, %6
                %8 = le %0, %4
                %9 = const {n}: i64
                %10 = lt %7, %9
                %11 = and %8, %10
                %12 = rem %5, %6
                %13 = eq %12, %0
                %14 = and %11, %13
                %15 = max %7, %0
                %16 = const {last}: i64
                %17 = min %15, %16
                %18 = mul %1, %9
                %19 = add %18, %17
                %20 = load_at p0, %19
                %21 = const 0.0: f32
                %22 = select %14, %20, %21
                store p1[a0 * {len} + a1], %22
            }}",
            from = rows * n,
            to = rows * len,
            last = n - 1
        );
        text.parse().unwrap()
    }

    #[test]
    fn short_rows_are_written_out() {
        for (shape, slice, n_pieces) in [
            // Periods of a few elements, and the ends before and behind them.
            ([72, 3072], [74, 3, 928], 4),
            ([300, 1024], [0, 2, 512], 1),
            ([500, 300], [1, 16, 17], 4),
            // Pads of short rows, and of such with steps.
            ([1000, 12], [3, 1, 8], 1),
            ([1000, 16], [1, 3, 5], 1),
            ([1000, 16], [2, 1, 12], 1),
            // Long rows, of which what is left behind a cut is short, but no whole row.
            ([1000, 17], [2, 1, 13], 3),
        ] {
            let kernel = spread(shape, slice);
            let pieces = cut_kernel(&kernel).unwrap_or_else(|| panic!("{shape:?} {slice:?}"));
            assert_eq!(pieces.len(), n_pieces, "{shape:?} {slice:?}: {pieces:?}");
            let computes = |inst: &Inst<ValueId>| matches!(inst, Inst::LoadAt(..) | Inst::Index(_));
            assert!(!pieces.iter().flat_map(|piece| &piece.insts).any(computes), "{pieces:?}");
            let inputs = random_inputs(&kernel, 1);
            assert!(
                evaluated(&pieces, &inputs) == evaluated(std::slice::from_ref(&kernel), &inputs),
                "{shape:?} {slice:?}"
            );
        }
    }

    /// The pieces of a kernel have so many stores together, and do what it does.
    fn check_pieces(text: &str, n_stores: usize) {
        let kernel: Kernel = text.parse().unwrap();
        let written = pieces(&kernel);
        assert_eq!(written.iter().map(|piece| piece.stores.len()).sum::<usize>(), n_stores, "{text}: {written:?}");
        let inputs = random_inputs(&kernel, 1);
        assert!(evaluated(&written, &inputs) == evaluated(&[kernel], &inputs), "{text}");
    }

    #[test]
    fn short_rows_beside_their_own_operand_are_written_out() {
        for (other, n_stores) in [
            // An element for each row, for some of them, and a row for some.
            ("a0 * 40 + a1", 3),
            ("a1", 3),
            ("a0 * 3 + a2", 3),
            // A row for all, and whole rows.
            ("a2", 1),
            ("a0 * 120 + a1 * 3 + a2", 1),
        ] {
            let text = format!(
                "kernel (p0: f32[2400], p1: f32[2400], p2: f32[2400] out) {{
                    axes a0 = 20, a1 = 40, a2 = 3
                    %0 = load p0[a0 * 120 + a1 * 3 + a2]
                    %1 = load p1[{other}]
                    %2 = mul %0, %1
                    store p2[a0 * 120 + a1 * 3 + a2], %2
                }}"
            );
            check_pieces(&text, n_stores);
        }
    }

    #[test]
    fn rows_that_follow_from_one_element_are_written_out() {
        for (other, len, n_stores) in [
            // A column, and a row for all.
            ("load p1[a0]", 7, 7),
            ("load p1[a1]", 7, 7),
            ("load p1[a1]", 12, 12),
            // Nearly full vectors, unless their elements are computed.
            ("load p1[a1]", 13, 1),
            ("const 3.0: f32", 13, 1),
            ("index a1", 13, 13),
            ("index a1", 16, 16),
            ("index a1", 17, 1),
            // Whole rows.
            ("load p1[a0 * 7 + a1]", 7, 1),
        ] {
            let text = format!(
                "kernel (p0: f32[300], p1: f32[2100], p2: f32[{}] out) {{
                    axes a0 = 300, a1 = {len}
                    %0 = load p0[a0]
                    %1 = {other}
                    %2 = cast %1: f32
                    %3 = mul %0, %2
                    store p2[a0 * {len} + a1], %3
                }}",
                300 * len
            );
            let text = if other.starts_with("index") { text } else { text.replace("cast %1: f32", "neg %1") };
            check_pieces(&text, n_stores);
        }
    }

    #[test]
    fn short_rows_in_another_order_are_written_out() {
        for (load, len, n_stores) in [
            ("a0 * 7 + a1 * -1 + 6", 7, 7),
            ("a0 * 16 + a1 * -1 + 15", 16, 16),
            ("a0 * 17 + a1 * -1 + 16", 17, 1),
            // Several elements of a row, between which are others.
            ("a0 * 8 + a1 + 2", 5, 5),
            // One axis, with a step.
            ("a0 * 21 + a1 * 3 + 1", 7, 1),
            // A row that all rows share.
            ("a1", 7, 1),
            ("a1", 16, 1),
            // A few of many elements, which lie in more than two vectors.
            ("a0 * 8 + a1 + 2", 2, 1),
            // Rows too far apart.
            ("a0 * 23 + a1 + 1", 7, 1),
        ] {
            let text = format!(
                "kernel (p0: f32[9000], p1: f32[{}] out) {{
                    axes a0 = 300, a1 = {len}
                    %0 = load p0[{load}]
                    store p1[a0 * {len} + a1], %0
                }}",
                300 * len
            );
            check_pieces(&text, n_stores);
        }
    }

    #[test]
    fn repeated_short_rows_are_one_row() {
        for ([wide, n, channels], n_stores) in [
            ([28, 4, 3], 12),
            ([28, 2, 4], 8),
            // An axis of one element hides nothing.
            ([28, 4, 1], 4),
            ([64, 2, 1], 2),
            // Rows of all images are one axis.
            ([5, 4, 3], 12),
            // More elements than a row that is written out has.
            ([28, 6, 3], 1),
        ] {
            let (x, y) = (wide * channels, wide * n * channels);
            let text = format!(
                "kernel (p0: f32[{}], p1: f32[{}] out) {{
                    axes a0 = 56, a1 = {wide}, a2 = {n}, a3 = {channels}
                    %0 = load p0[a0 * {x} + a1 * {channels} + a3]
                    store p1[a0 * {y} + a1 * {} + a2 * {channels} + a3], %0
                }}",
                56 * x,
                56 * y,
                n * channels
            );
            check_pieces(&text, n_stores);
        }
    }

    #[test]
    fn rows_read_from_computed_places_stay_rows() {
        let text = "kernel (p0: i32[1000], p1: f32[80], p2: f32[12000] out) {
            axes a0 = 1000, a1 = 12
            %0 = load p0[a0]
            %1 = cast %0: i64
            %2 = index a1
            %3 = const 2: i64
            %4 = sub %2, %3
            %5 = const 0: i64
            %6 = max %4, %5
            %7 = const 7: i64
            %8 = min %6, %7
            %9 = const 8: i64
            %10 = mul %1, %9
            %11 = add %10, %8
            %12 = load_at p1, %11
            %13 = le %5, %4
            %14 = const 0.0: f32
            %15 = select %13, %12, %14
            store p2[a0 * 12 + a1], %15
        }";
        let kernel: Kernel = text.parse().unwrap();
        let found = cut(&kernel, true).unwrap();
        assert_eq!((found, with_row_written_out(&kernel, found)), (Cut::Before(AxisId(1), 2), None));
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
