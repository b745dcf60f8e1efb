//! Quotients and remainders of integers, and remainders of floats, in terms of quotients of floats, of which one
//! instruction makes many.
//!
//! A processor divides integers one by one, and the remainder of floats is a loop over the bits of a quotient. Source of
//! the exact steps: the remainder of two floats is a float, so that a fused multiplication and addition of a quotient that
//! is off by one at most rounds nothing.

use retape_runtime::DType;

use crate::ir::{Binary, Inst, Kernel, KernelBuilder, Value, ValueId};
use crate::simplify::builder_like;

/// The kernel with formulas in place of the quotients and remainders that have one. No result changes.
pub(crate) fn expand_quotients(kernel: &Kernel) -> Kernel {
    let divides = |inst: &Inst<ValueId>| matches!(inst, Inst::Binary(Binary::Div | Binary::Rem, ..));
    if !kernel.insts.iter().any(divides) {
        return kernel.clone();
    }
    let k = builder_like(kernel, &kernel.axes);
    let mut new: Vec<ValueId> = Vec::with_capacity(kernel.insts.len());
    for inst in &kernel.insts {
        let inst = inst.map(|v: ValueId| new[v.index()]);
        new.push(formula(&k, &inst).unwrap_or_else(|| k.push(inst)).id());
    }
    for store in &kernel.stores {
        k.store(store.param, store.at.clone(), k.value(new[store.value.index()]));
    }
    k.finish()
}

fn formula<'k>(k: &'k KernelBuilder, inst: &Inst<ValueId>) -> Option<Value<'k>> {
    let Inst::Binary(op @ (Binary::Div | Binary::Rem), x, y) = *inst else { return None };
    let (x, y) = (k.value(x), k.value(y));
    match (x.dtype(), op) {
        (DType::F32 | DType::F64, Binary::Rem) => Some(remainder(x, y)),
        (DType::I32 | DType::U32, _) => Some(of_integers(op, x, y, DType::F64)),
        (DType::U8, _) => Some(of_integers(op, x, y, DType::F32)),
        (DType::I64, _) => Some(of_long_integers(op, x, y)),
        _ => None,
    }
}

/// Whether an operand may have a value.
fn may_be(x: Value<'_>, value: i64) -> bool {
    match x.kernel().inst(x.id()) {
        Inst::Const(c) => c.to_i64() == Some(value),
        _ => true,
    }
}

/// By zero, both are zero.
fn unless_zero<'k>(divisor: Value<'k>, result: Value<'k>) -> Value<'k> {
    if may_be(divisor, 0) { divisor.eq(0).select(result.like(0.0), result) } else { result }
}

/// A float that is further from zero than the reciprocal of a constant by half a unit of its last place to one and a half;
/// `None` for zero, one and minus one.
fn beyond_reciprocal(y: Value<'_>, float: DType) -> Option<f64> {
    let Inst::Const(c) = y.kernel().inst(y.id()) else { return None };
    let divisor = c.to_i64().filter(|divisor| divisor.unsigned_abs() > 1)?;
    Some(match float {
        DType::F32 => {
            let near = 1.0 / divisor as f32;
            f64::from(f32::from_bits(near.to_bits() + 1))
        }
        _ => {
            let near = 1.0 / divisor as f64;
            f64::from_bits(near.to_bits() + 1)
        }
    })
}

/// The quotient or the remainder of integers; the float has more bits than both operands together.
///
/// A quotient of floats is rounded, but never up to the next integer: it is further from that than half a unit. The same
/// holds of the product with a reciprocal that is a little too far from zero, and a quotient that is an integer does not
/// fall below it. Source: Granlund and Montgomery, Division by Invariant Integers using Multiplication (1994), section 7.
fn of_integers<'k>(op: Binary, x: Value<'k>, y: Value<'k>, float: DType) -> Value<'k> {
    let mut quotient = match beyond_reciprocal(y, float) {
        Some(reciprocal) => (x.cast(float) * reciprocal).cast(x.dtype()),
        None => (x.cast(float) / y.cast(float)).cast(x.dtype()),
    };
    // The quotient of the least number does not fit, and wraps.
    if x.dtype() == DType::I32 && may_be(y, -1) {
        quotient = y.eq(-1).select(-x, quotient);
    }
    unless_zero(y, if op == Binary::Div { quotient } else { x - quotient * y })
}

/// The quotient or the remainder of integers of which a float has the first bits only.
///
/// The rounded quotient is off by 2^-51 of itself and one at most, so that it leaves the divisor and 2^12 at most. The
/// second one leaves less than the divisor, but it may have the other sign. Everything wraps, so that sums and products of
/// numbers that do not fit are right where the result does; the quotient of the least number by -1 wraps to itself.
fn of_long_integers<'k>(op: Binary, x: Value<'k>, y: Value<'k>) -> Value<'k> {
    let divisor = y.cast(DType::F64);
    let step = |x: Value<'k>| {
        let quotient = (x.cast(DType::F64) / divisor).cast(DType::I64);
        (quotient, x - quotient * y)
    };
    let (first, rest) = step(x);
    let (second, rest) = step(rest);
    let is_beyond = !rest.eq(0) & (rest ^ x).lt(0);
    let (are_alike, zero) = ((x ^ y).ge(0), x.like(0.0));
    let result = match op {
        Binary::Div => first + second - is_beyond.select(are_alike.select(x.like(1.0), -1), zero),
        _ => rest + is_beyond.select(are_alike.select(y, -y), zero),
    };
    unless_zero(y, result)
}

/// Bits by which one of the [`FAR`] steps of a remainder of `f32` scales the divisor less than the one before. Quotients of
/// `f32` are below 2^277, so that the first step, from 2^224 on, leaves 53 bits at most, as many as a quotient of `f64` may
/// have, and each of the others [`STEP`]. Fewer and longer steps would do, but a short formula would be made at all points,
/// without a branch around it.
const STEP: i32 = 28;
const FAR: i32 = 9;

/// The remainder of floats with the sign of the first operand, without rounding; always the same NaN where there is none.
fn remainder<'k>(x: Value<'k>, y: Value<'k>) -> Value<'k> {
    let (a, b) = (x.abs(), y.abs());
    let (far, digits, bits) = match x.dtype() {
        DType::F32 => (far_remainder(a, b), 24, DType::U32),
        _ => (a.binary(Binary::Rem, b), 53, DType::I64),
    };
    // From there on, a quotient may be off by more than one.
    let is_near = (a / b).lt(f64::from(digits).exp2());
    // Also where the divisor is infinite.
    let magnitude = a.lt(b).select(a, is_near.select(modulo(a, b), far));
    let (x, sign) = (x.bitcast(bits), x.like(-0.0).bitcast(bits));
    let signed = (magnitude.bitcast(bits) | (x & sign)).bitcast(a.dtype());
    // Operations of several NaN keep one of them, another one on vectors than in a call.
    magnitude.eq(magnitude).select(signed, a.like(f64::NAN))
}

/// The remainder of `f32` without sign, of any quotient.
fn far_remainder<'k>(x: Value<'k>, y: Value<'k>) -> Value<'k> {
    let [x, y] = [x, y].map(|v| v.cast(DType::F64));
    let scaled = |step: i32| y * f64::from(step * STEP).exp2();
    (0..FAR).rev().fold(x, |rest, step| modulo(rest, scaled(step))).cast(DType::F32)
}

/// The remainder of a number without sign by another one, of which the quotient has fewer bits than a float.
fn modulo<'k>(x: Value<'k>, y: Value<'k>) -> Value<'k> {
    let quotient = (x / y).trunc();
    let rest = (-quotient).fma(y, x);
    rest.lt(0.0).select(rest + y, rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::evaluate;
    use crate::ir::random::Rng;

    /// A kernel of one operation on two arrays of `n` elements.
    fn kernel(op: Binary, dtype: DType, n: usize) -> Kernel {
        let name = op.name();
        format!(
            "kernel (p0: {dtype}[{n}], p1: {dtype}[{n}], p2: {dtype}[{n}] out) {{
                axes a0 = {n}
                %0 = load p0[a0]
                %1 = load p1[a0]
                %2 = {name} %0, %1
                store p2[a0], %2
            }}"
        )
        .parse()
        .unwrap()
    }

    fn check(op: Binary, dtype: DType, [x, y]: [Vec<u8>; 2]) {
        let kernel = kernel(op, dtype, x.len() / dtype.size());
        check_kernel(&kernel, op, dtype, [x, y]);
    }

    /// Checks a kernel whose operands are `x` and `y`.
    fn check_kernel(kernel: &Kernel, op: Binary, dtype: DType, [x, y]: [Vec<u8>; 2]) {
        let expanded = expand_quotients(kernel);
        expanded.verify().unwrap();
        assert_ne!(expanded, *kernel);
        let [one, other] = [kernel, &expanded].map(|kernel| {
            let mut out = vec![0; x.len()];
            evaluate(kernel, &[&x, &y], &mut [&mut out]);
            out
        });
        for (at, (one, other)) in one.chunks(dtype.size()).zip(other.chunks(dtype.size())).enumerate() {
            let is_nan = |bytes: &[u8]| match dtype {
                DType::F32 => f32::from_le_bytes(bytes.try_into().unwrap()).is_nan(),
                DType::F64 => f64::from_le_bytes(bytes.try_into().unwrap()).is_nan(),
                _ => false,
            };
            let are_nan = is_nan(one) && is_nan(other);
            let of = |v: &[u8]| v[at * dtype.size()..][..dtype.size()].to_vec();
            assert!(one == other || are_nan, "{op:?} of {dtype}: {:?} {:?}: {one:?} {other:?}", of(&x), of(&y));
        }
    }

    #[test]
    fn remainders_of_floats_are_exact() {
        let special = [
            0.0,
            1.0,
            1.5,
            3.0,
            1e-45,
            3e-45,
            f32::MIN_POSITIVE,
            1e-39,
            f32::MAX,
            f32::INFINITY,
            f32::NAN,
            16_777_215.0,
            16_777_216.0,
            33_554_430.0,
            0.1,
            7.25,
            f32::EPSILON,
            1e30,
        ];
        let special = special.iter().flat_map(|&x| [x, -x]).collect::<Vec<f32>>();
        let mut rng = Rng::new(7);
        let mut pairs: Vec<(f32, f32)> = special.iter().flat_map(|&x| special.iter().map(move |&y| (x, y))).collect();
        for n in 0..200_000 {
            let any = |rng: &mut Rng| f32::from_bits((rng.next_u64() >> 32) as u32);
            let (x, y) = (any(&mut rng), any(&mut rng));
            // Of all sizes, of one size, and multiples with what is next to them.
            let multiple = y * rng.below(1 << (1 + n % 25)) as f32;
            let next = f32::from_bits(multiple.to_bits().wrapping_add(rng.below(3) as u32).wrapping_sub(1));
            pairs.extend([(x, y), (x, f32::from_bits(x.to_bits() ^ (y.to_bits() & 0x1ff_ffff))), (next, y)]);
        }
        let (x, y): (Vec<f32>, Vec<f32>) = pairs.into_iter().unzip();
        check(Binary::Rem, DType::F32, [&x, &y].map(|v| v.iter().flat_map(|v| v.to_le_bytes()).collect()));
        // With the other half of the bits drawn as well, and quotients of up to 2^53.
        let mut wide = |v: &[f32]| -> Vec<u8> {
            let bits = v.iter().map(|&v| f64::from(v).to_bits() ^ (rng.next_u64() & rng.pick(&[0, 0xffff_ffff])));
            bits.flat_map(|bits| bits.to_le_bytes()).collect()
        };
        let pair = [wide(&x), wide(&y)];
        check(Binary::Rem, DType::F64, pair);
    }

    #[test]
    fn quotients_of_long_integers_are_exact() {
        let mut rng = Rng::new(9);
        let special: Vec<i64> =
            (0..64).flat_map(|n| [1_i64 << n, (1_i64 << n).wrapping_sub(1), (1_i64 << n).wrapping_add(1)]).collect();
        let special: Vec<i64> = special.iter().flat_map(|&x| [x, x.wrapping_neg()]).chain([0, 10]).collect();
        let mut pairs: Vec<(i64, i64)> = special.iter().flat_map(|&x| special.iter().map(move |&y| (x, y))).collect();
        for _ in 0..200_000 {
            let any = |rng: &mut Rng| (rng.next_u64() as i64) >> rng.below(64);
            let (x, y) = (any(&mut rng), any(&mut rng));
            let multiple = y.wrapping_mul(any(&mut rng));
            pairs.extend([(x, y), (multiple, y), (multiple.wrapping_sub(1), y), (multiple.wrapping_add(1), y)]);
        }
        let (x, y): (Vec<i64>, Vec<i64>) = pairs.into_iter().unzip();
        for op in [Binary::Div, Binary::Rem] {
            check(op, DType::I64, [&x, &y].map(|v| v.iter().flat_map(|v| v.to_le_bytes()).collect()));
        }
    }

    #[test]
    fn quotients_of_short_integers_are_exact() {
        let mut rng = Rng::new(8);
        let special = [0, 1, 2, 3, 10, 0x7f, 0x80, 0xff, 0x7fff_ffff, 0x8000_0000, 0x8000_0001, u32::MAX - 1, u32::MAX];
        let mut pairs: Vec<(u32, u32)> = special.iter().flat_map(|&x| special.iter().map(move |&y| (x, y))).collect();
        for _ in 0..200_000 {
            let any = |rng: &mut Rng| {
                let bits = (rng.next_u64() >> 32) as u32;
                let short = bits >> rng.below(32);
                if rng.below(2) == 0 { short } else { short.wrapping_neg() }
            };
            let (x, y) = (any(&mut rng), any(&mut rng));
            let multiple = y.wrapping_mul(any(&mut rng));
            pairs.extend([(x, y), (multiple, y), (multiple.wrapping_sub(1), y)]);
        }
        let (x, y): (Vec<u32>, Vec<u32>) = pairs.into_iter().unzip();
        for op in [Binary::Div, Binary::Rem] {
            for dtype in [DType::I32, DType::U32] {
                check(op, dtype, [&x, &y].map(|v| v.iter().flat_map(|v| v.to_le_bytes()).collect()));
            }
            let all = (0..=u8::MAX).flat_map(|x| (0..=u8::MAX).map(move |y| (x, y)));
            let (x, y) = all.unzip();
            check(op, DType::U8, [x, y]);
        }
    }

    #[test]
    fn quotients_by_constants_are_exact() {
        let mut rng = Rng::new(10);
        let powers = (1..32).flat_map(|n| [1_i64 << n, (1 << n) - 1, (1 << n) + 1]);
        let mut divisors: Vec<i64> = powers.flat_map(|c| [c, -c]).chain([0, 7, 10, 100, 1000, 0xffff_ffff]).collect();
        divisors.extend((0..200).map(|_| (rng.next_u64() >> 32) as i64 >> rng.below(31)));
        for (dtype, range) in [
            (DType::I32, i64::from(i32::MIN)..=i64::from(i32::MAX)),
            (DType::U32, 0..=i64::from(u32::MAX)),
            (DType::U8, 0..=i64::from(u8::MAX)),
        ] {
            for &divisor in divisors.iter().filter(|c| range.contains(c)) {
                let ends = [*range.start(), *range.start() + 1, -1, 0, 1, *range.end() - 1, *range.end()];
                let mut x: Vec<i64> = ends.into_iter().filter(|x| range.contains(x)).collect();
                let spread = (range.end() - range.start()) as u64 + 1;
                for _ in 0..300 {
                    let any = range.start() + (rng.next_u64() % spread) as i64;
                    let multiple = any - any % divisor.abs().max(1);
                    x.extend([any, multiple, multiple - 1, multiple + 1].into_iter().filter(|x| range.contains(x)));
                }
                // The last multiples, whose quotients are the largest.
                let most = range.end() - range.end() % divisor.abs().max(1);
                x.extend([most, most - 1]);
                let bytes = |values: Vec<i64>| -> Vec<u8> {
                    values.iter().flat_map(|x| x.to_le_bytes()[..dtype.size()].to_vec()).collect()
                };
                for op in [Binary::Div, Binary::Rem] {
                    let (name, n) = (op.name(), x.len());
                    let kernel = format!(
                        "kernel (p0: {dtype}[{n}], p1: {dtype}[{n}], p2: {dtype}[{n}] out) {{
                            axes a0 = {n}
                            %0 = load p0[a0]
                            %1 = const {divisor}: {dtype}
                            %2 = {name} %0, %1
                            store p2[a0], %2
                        }}"
                    );
                    let operands = [bytes(x.clone()), bytes(vec![divisor; n])];
                    check_kernel(&kernel.parse().unwrap(), op, dtype, operands);
                }
            }
        }
    }
}
