//! Named local rewrites of kernels, and removal of what no store needs.
//!
//! Guarantees the same bits as before for every input, NaN payloads aside, and correctly rounded ones in place of a
//! power: a rule that is exact only for some floats (`x + 0` turns -0 into +0) applies only where it is exact.
//! To add a rule: one function, one row in [`RULES`].

#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

mod affine;
mod bounds;
mod narrow;

use std::borrow::Cow;

use retape_runtime::{DType, Scalar};

pub(crate) use affine::AffineValue;

use crate::ir::{Axis, Binary, Func2, Inst, Kernel, KernelBuilder, Unary, Value, ValueId};
use affine::{compare_bounded, divided_affine, divided_whole, load_at_affine, min_max_bounded};
pub(crate) use bounds::{bounds, bounds_of_clamped};
use narrow::{cast_narrow, compare_narrow, load_at_narrow};

/// A rule: the value that an instruction makes, said more simply; `None` where the rule does not apply.
type Rule = for<'k> fn(&'k KernelBuilder, &Inst<ValueId>) -> Option<Value<'k>>;

/// All rules by name; the first that applies is taken.
const RULES: &[(&str, Rule)] = &[
    ("mul_one", mul_one),
    ("add_zero", add_zero),
    ("sub_zero", sub_zero),
    ("add_negated", add_negated),
    ("sub_negated", sub_negated),
    ("div_one", div_one),
    ("div_power_of_two", div_power_of_two),
    ("twice_negated", twice_negated),
    ("same_operands", same_operands),
    ("truth_constant", truth_constant),
    ("select_same", select_same),
    ("select_constant", select_constant),
    ("cast_same", cast_same),
    ("cast_there_and_back", cast_there_and_back),
    ("bitcast_chain", bitcast_chain),
    ("pow_constant", pow_constant),
];

/// Rules for quotients by constants, behind which coordinates cannot be told any more.
const OF_QUOTIENTS: &[(&str, Rule)] = &[("div_bounded", div_bounded), ("rem_bounded", rem_bounded)];

/// Rules for arithmetic on coordinates. The order in which a sum is added follows from the instructions beside it, so
/// kernels with sums keep theirs until they are scheduled.
const OF_COORDINATES: &[(&str, Rule)] = &[
    ("divided_affine", divided_affine),
    ("divided_whole", divided_whole),
    ("compare_bounded", compare_bounded),
    ("min_max_bounded", min_max_bounded),
    ("load_at_affine", load_at_affine),
];

/// Rules for 32 bits in place of 64, behind which coordinates cannot be told any more.
const OF_NARROW_COORDINATES: &[(&str, Rule)] =
    &[("compare_narrow", compare_narrow), ("cast_narrow", cast_narrow), ("load_at_narrow", load_at_narrow)];

/// Applies all rules until none applies, and removes dead instructions. Parameters and axes stay as they are.
///
/// # Panics
///
/// May panic if the kernel does not verify.
pub fn simplify(kernel: &Kernel) -> Kernel {
    if kernel.axes.iter().any(|axis| axis.reduced) {
        return until_none_applies(kernel, &[RULES, OF_QUOTIENTS].concat());
    }
    simplify_coordinates(kernel)
}

/// The same with arithmetic on coordinates beside sums, for a kernel whose schedule is settled.
pub(crate) fn simplify_coordinates(kernel: &Kernel) -> Kernel {
    let rules = [RULES, OF_COORDINATES, OF_QUOTIENTS, OF_NARROW_COORDINATES];
    until_none_applies(&simplify_around_coordinates(kernel), &rules.concat())
}

/// The same for a kernel without sums, except that arithmetic on coordinates can still be told.
pub(crate) fn simplify_around_coordinates(kernel: &Kernel) -> Kernel {
    until_none_applies(kernel, &[RULES, OF_COORDINATES].concat())
}

fn until_none_applies(kernel: &Kernel, rules: &[(&str, Rule)]) -> Kernel {
    let mut kernel = Cow::Borrowed(kernel);
    loop {
        let (rewritten, any_applied) = rewrite(&kernel, rules);
        let next = without_dead(rewritten);
        // A rule that gives what is there already applies for ever.
        if !any_applied || next == *kernel {
            return next;
        }
        kernel = Cow::Owned(next);
    }
}

/// A builder with the parameters and the axes of a kernel.
pub(crate) fn builder_like(kernel: &Kernel, axes: &[Axis]) -> KernelBuilder {
    let builder = KernelBuilder::new();
    builder.reserve(kernel.insts.len());
    for param in &kernel.params {
        builder.param(param.dtype, param.len, param.written);
    }
    for axis in axes {
        builder.axis(axis.extent, axis.reduced);
    }
    builder
}

/// The kernel in a builder, with the value of each instruction.
pub(crate) fn built(kernel: &Kernel) -> (KernelBuilder, Vec<ValueId>) {
    let k = builder_like(kernel, &kernel.axes);
    let mut new: Vec<ValueId> = Vec::with_capacity(kernel.insts.len());
    for inst in &kernel.insts {
        let inst = inst.map(|v: ValueId| new[v.index()]);
        new.push(k.push(inst).id());
    }
    (k, new)
}

/// Rebuilds a kernel, taking for each instruction the first rule that applies; says whether one did.
fn rewrite(kernel: &Kernel, rules: &[(&str, Rule)]) -> (Kernel, bool) {
    let mut any_applied = false;
    let builder = builder_like(kernel, &kernel.axes);
    let mut new: Vec<ValueId> = Vec::with_capacity(kernel.insts.len());
    for inst in &kernel.insts {
        let inst = inst.map(|v| new[v.index()]);
        let value = rules.iter().find_map(|(_, rule)| rule(&builder, &inst));
        any_applied |= value.is_some();
        new.push(value.unwrap_or_else(|| builder.push(inst)).id());
    }
    for store in &kernel.stores {
        builder.store(store.param, store.at.clone(), builder.value(new[store.value.index()]));
    }
    (builder.finish(), any_applied)
}

/// The kernel without instructions that no store needs.
pub(crate) fn without_dead(mut kernel: Kernel) -> Kernel {
    let mut live = vec![false; kernel.insts.len()];
    for store in &kernel.stores {
        live[store.value.index()] = true;
    }
    for (i, inst) in kernel.insts.iter().enumerate().rev() {
        if live[i] {
            inst.operands().into_iter().for_each(|v| live[v.index()] = true);
        }
    }
    if live.iter().all(|&live| live) {
        return kernel;
    }
    let mut new = vec![ValueId(0); kernel.insts.len()];
    let mut insts = Vec::with_capacity(kernel.insts.len());
    for (i, inst) in kernel.insts.iter().enumerate().filter(|&(i, _)| live[i]) {
        new[i] = ValueId(insts.len() as u32);
        insts.push(inst.map(|v| new[v.index()]));
    }
    kernel.insts = insts;
    for store in &mut kernel.stores {
        store.value = new[store.value.index()];
    }
    kernel
}

fn constant(k: &KernelBuilder, v: ValueId) -> Option<Scalar> {
    let Inst::Const(c) = k.inst(v) else { return None };
    Some(c)
}

/// Whether `v` is the constant `x`; zeros of other signs differ.
fn is(k: &KernelBuilder, v: ValueId, x: f64) -> bool {
    constant(k, v).is_some_and(|c| c == Scalar::from_f64(x, c.dtype))
}

/// The operands of a two-operand instruction.
fn binary(inst: &Inst<ValueId>, op: Binary) -> Option<(ValueId, ValueId)> {
    let Inst::Binary(found, x, y) = *inst else { return None };
    (found == op).then_some((x, y))
}

/// `-y` for a value that is the negation of `y`.
fn negated(k: &KernelBuilder, v: ValueId) -> Option<ValueId> {
    let Inst::Unary(Unary::Neg, y) = k.inst(v) else { return None };
    Some(y)
}

fn mul_one<'k>(k: &'k KernelBuilder, inst: &Inst<ValueId>) -> Option<Value<'k>> {
    match binary(inst, Binary::Mul)? {
        (x, y) if is(k, y, 1.0) => Some(k.value(x)),
        (x, y) if is(k, x, 1.0) => Some(k.value(y)),
        _ => None,
    }
}

/// Of the two zeros of floats only -0 is neutral: +0 turns -0 into +0.
fn add_zero<'k>(k: &'k KernelBuilder, inst: &Inst<ValueId>) -> Option<Value<'k>> {
    match binary(inst, Binary::Add)? {
        (x, y) if is(k, y, -0.0) => Some(k.value(x)),
        (x, y) if is(k, x, -0.0) => Some(k.value(y)),
        _ => None,
    }
}

/// Of the two zeros of floats only +0 is neutral: -0 - (-0) is +0.
fn sub_zero<'k>(k: &'k KernelBuilder, inst: &Inst<ValueId>) -> Option<Value<'k>> {
    let (x, y) = binary(inst, Binary::Sub)?;
    is(k, y, 0.0).then(|| k.value(x))
}

fn add_negated<'k>(k: &'k KernelBuilder, inst: &Inst<ValueId>) -> Option<Value<'k>> {
    let (x, y) = binary(inst, Binary::Add)?;
    match (negated(k, x), negated(k, y)) {
        (_, Some(y)) => Some(k.value(x) - k.value(y)),
        (Some(x), None) => Some(k.value(y) - k.value(x)),
        (None, None) => None,
    }
}

fn sub_negated<'k>(k: &'k KernelBuilder, inst: &Inst<ValueId>) -> Option<Value<'k>> {
    let (x, y) = binary(inst, Binary::Sub)?;
    negated(k, y).map(|y| k.value(x) + k.value(y))
}

fn div_one<'k>(k: &'k KernelBuilder, inst: &Inst<ValueId>) -> Option<Value<'k>> {
    let (x, y) = binary(inst, Binary::Div)?;
    is(k, y, 1.0).then(|| k.value(x))
}

/// The quotient and the product are the same real number, rounded once, if the reciprocal is exact.
fn div_power_of_two<'k>(k: &'k KernelBuilder, inst: &Inst<ValueId>) -> Option<Value<'k>> {
    let (x, y) = binary(inst, Binary::Div)?;
    let c = constant(k, y)?;
    let (mantissa, least) = match c.dtype {
        DType::F32 => ((1_u64 << 23) - 1, f64::from(f32::MIN_POSITIVE)),
        DType::F64 => ((1_u64 << 52) - 1, f64::MIN_POSITIVE),
        DType::F16 | DType::Bf16 | DType::I32 | DType::I64 | DType::U32 | DType::U8 | DType::Bool => return None,
    };
    let (value, inverse) = (c.to_f64(), 1.0 / c.to_f64());
    let normal = value.is_finite() && value.abs() >= least && inverse.abs() >= least;
    (normal && c.bits & mantissa == 0).then(|| k.value(x) * inverse)
}

/// The operands of a division of integers, both as 32 bits, of which the first has no sign, by a constant above 1.
fn bounded<'k>(k: &'k KernelBuilder, inst: &Inst<ValueId>, op: Binary) -> Option<(Value<'k>, u32)> {
    let (x, y) = binary(inst, op)?;
    let x = k.value(x);
    if !matches!(x.dtype(), DType::I32 | DType::I64) {
        return None;
    }
    let divisor = u32::try_from(constant(k, y)?.to_i64()?).ok().filter(|d| (2..1 << 31).contains(d))?;
    let (low, high) = bounds(k, x.id())?;
    (low >= 0 && high < 1 << 31).then(|| (x.cast(DType::U32), divisor))
}

/// The quotient by a constant, as the high half of a product (Granlund and Montgomery, 1994): for `x` below 2^31 and
/// d of s bits, x / d is the whole part of x m / 2^(31 + s), where m is 2^(31 + s) / d, rounded up.
fn quotient(x: Value<'_>, divisor: u32) -> Value<'_> {
    match factor_of_quotient(divisor) {
        (None, bits) => x >> bits as i64,
        (Some(factor), bits) => x.binary(Binary::MulHigh, factor as i64) >> (bits as i64 - 1),
    }
}

/// m, unless d is a power of two, and s.
fn factor_of_quotient(divisor: u32) -> (Option<u64>, u64) {
    let bits = u64::from(divisor.next_power_of_two().ilog2());
    let factor = || (1_u64 << (31 + bits)).div_ceil(u64::from(divisor));
    ((!divisor.is_power_of_two()).then(factor), bits)
}

/// The divisor, if the difference of two numbers below 2^31 is the remainder that [`rem_bounded`] makes of the first.
fn divisor_of_remainder(k: &KernelBuilder, x: ValueId, y: ValueId) -> Option<u32> {
    let Inst::Binary(Binary::Mul, whole, divisor) = k.inst(y) else { return None };
    let Inst::Binary(Binary::Shr, shifted, by) = k.inst(whole) else { return None };
    let number = |v: ValueId| u64::try_from(constant(k, v)?.to_i64()?).ok();
    let (divisor, by) = (u32::try_from(number(divisor)?).ok().filter(|&divisor| divisor > 1)?, number(by)?);
    let is_quotient = match factor_of_quotient(divisor) {
        (None, bits) => shifted == x && by == bits,
        (Some(factor), bits) => {
            matches!(k.inst(shifted), Inst::Binary(Binary::MulHigh, of, f) if of == x && number(f) == Some(factor))
                && by == bits - 1
        }
    };
    (is_quotient && k.value(x).dtype() == DType::U32).then_some(divisor)
}

fn div_bounded<'k>(k: &'k KernelBuilder, inst: &Inst<ValueId>) -> Option<Value<'k>> {
    let (x, divisor) = bounded(k, inst, Binary::Div)?;
    let dtype = k.value(binary(inst, Binary::Div)?.0).dtype();
    Some(quotient(x, divisor).cast(dtype))
}

fn rem_bounded<'k>(k: &'k KernelBuilder, inst: &Inst<ValueId>) -> Option<Value<'k>> {
    let (x, divisor) = bounded(k, inst, Binary::Rem)?;
    let dtype = k.value(binary(inst, Binary::Rem)?.0).dtype();
    Some((x - quotient(x, divisor) * i64::from(divisor)).cast(dtype))
}

fn twice_negated<'k>(k: &'k KernelBuilder, inst: &Inst<ValueId>) -> Option<Value<'k>> {
    let Inst::Unary(op @ (Unary::Neg | Unary::Not), x) = *inst else { return None };
    let Inst::Unary(inner, y) = k.inst(x) else { return None };
    (inner == op).then(|| k.value(y))
}

fn same_operands<'k>(k: &'k KernelBuilder, inst: &Inst<ValueId>) -> Option<Value<'k>> {
    let Inst::Binary(Binary::Min | Binary::Max | Binary::And | Binary::Or, x, y) = *inst else { return None };
    (x == y).then(|| k.value(x))
}

fn truth_constant<'k>(k: &'k KernelBuilder, inst: &Inst<ValueId>) -> Option<Value<'k>> {
    let Inst::Binary(op @ (Binary::And | Binary::Or), x, y) = *inst else { return None };
    let (truth, constant, other) = [(x, y), (y, x)].into_iter().find_map(|(c, other)| {
        let truth = constant(k, c).filter(|c| c.dtype == DType::Bool)?;
        Some((truth.bits != 0, c, other))
    })?;
    let neutral = truth == (op == Binary::And);
    Some(k.value(if neutral { other } else { constant }))
}

fn select_same<'k>(k: &'k KernelBuilder, inst: &Inst<ValueId>) -> Option<Value<'k>> {
    let Inst::Select(_, x, y) = *inst else { return None };
    (x == y).then(|| k.value(x))
}

fn select_constant<'k>(k: &'k KernelBuilder, inst: &Inst<ValueId>) -> Option<Value<'k>> {
    let Inst::Select(c, x, y) = *inst else { return None };
    constant(k, c).map(|c| k.value(if c.bits != 0 { x } else { y }))
}

fn cast_same<'k>(k: &'k KernelBuilder, inst: &Inst<ValueId>) -> Option<Value<'k>> {
    let (Inst::Cast(dtype, x) | Inst::Bitcast(dtype, x)) = *inst else { return None };
    Some(k.value(x)).filter(|x| x.dtype() == dtype)
}

/// A cast to a dtype that holds all values, and back.
fn cast_there_and_back<'k>(k: &'k KernelBuilder, inst: &Inst<ValueId>) -> Option<Value<'k>> {
    let Inst::Cast(dtype, x) = *inst else { return None };
    let Inst::Cast(between, y) = k.inst(x) else { return None };
    Some(k.value(y)).filter(|y| y.dtype() == dtype && holds_all(between, dtype))
}

/// Whether `wide` has all the values of `narrow`.
fn holds_all(wide: DType, narrow: DType) -> bool {
    match narrow {
        DType::Bool => true,
        // 8 bits are all that the significand of a `bf16` has.
        DType::U8 => wide != DType::Bool,
        DType::I32 | DType::U32 => matches!(wide, DType::I64 | DType::F64),
        DType::F16 | DType::Bf16 => wide.is_float(),
        DType::F32 => wide == DType::F64,
        DType::F64 | DType::I64 => false,
    }
}

fn bitcast_chain<'k>(k: &'k KernelBuilder, inst: &Inst<ValueId>) -> Option<Value<'k>> {
    let Inst::Bitcast(dtype, x) = *inst else { return None };
    let Inst::Bitcast(_, y) = k.inst(x) else { return None };
    Some(k.value(y).bitcast(dtype))
}

/// The exponents whose power one correctly rounded instruction makes, special cases included.
fn pow_constant<'k>(k: &'k KernelBuilder, inst: &Inst<ValueId>) -> Option<Value<'k>> {
    let Inst::Call2(Func2::Pow, x, y) = *inst else { return None };
    let (x, y) = (k.value(x), constant(k, y)?.to_f64());
    match y {
        0.0 => Some(x.like(1.0)),
        1.0 => Some(x),
        2.0 => Some(x * x),
        -1.0 => Some(1.0 / x),
        _ => None,
    }
}
