//! Whole numbers in registers: sums, digits of an index, and addresses.
//!
//! Indices are below 2^31 and live in 32 bits; addresses have 64.

use smallvec::SmallVec;

use crate::ptx::{Class, PtxFunction, Reg, ptx};

/// A special register in an ordinary one.
pub(super) fn special(f: &mut PtxFunction, name: &str) -> Reg {
    f.op(Class::B32, "mov.u32", format_args!("%{name}"))
}

/// A number of 32 bits.
pub(super) fn number(f: &mut PtxFunction, x: i64) -> Reg {
    f.op(Class::B32, "mov.u32", format_args!("{}", x as u32))
}

/// `a + c`.
pub(super) fn add(f: &mut PtxFunction, a: Reg, c: i64) -> Reg {
    if c == 0 { a } else { f.op(Class::B32, "add.s32", format_args!("{a}, {c}")) }
}

/// `a + b`.
pub(super) fn sum(f: &mut PtxFunction, a: Reg, b: Reg) -> Reg {
    f.op(Class::B32, "add.s32", format_args!("{a}, {b}"))
}

/// `a * c`.
pub(super) fn mul(f: &mut PtxFunction, a: Reg, c: i64) -> Reg {
    match c {
        1 => a,
        _ if c > 0 && (c as u64).is_power_of_two() => {
            f.op(Class::B32, "shl.b32", format_args!("{a}, {}", c.trailing_zeros()))
        }
        _ => f.op(Class::B32, "mul.lo.s32", format_args!("{a}, {c}")),
    }
}

/// `a * c + b`.
pub(super) fn mad(f: &mut PtxFunction, a: Reg, c: i64, b: Reg) -> Reg {
    match c {
        0 => b,
        1 => sum(f, a, b),
        _ => f.op(Class::B32, "mad.lo.s32", format_args!("{a}, {c}, {b}")),
    }
}

/// `a & mask`.
pub(super) fn and(f: &mut PtxFunction, a: Reg, mask: usize) -> Reg {
    f.op(Class::B32, "and.b32", format_args!("{a}, {mask}"))
}

/// `a / d` for an index `a`, by a multiplication: with `l = ceil(log2 d)` and `m = floor(2^(31 + l) / d) + 1`, the
/// quotient is the product with `m` without its lower `31 + l` bits.
pub(super) fn div(f: &mut PtxFunction, a: Reg, d: usize) -> Reg {
    debug_assert!(d > 0 && d < 1 << 31);
    if d == 1 {
        return a;
    }
    let l = d.next_power_of_two().trailing_zeros();
    if d.is_power_of_two() {
        return f.op(Class::B32, "shr.u32", format_args!("{a}, {l}"));
    }
    let m = ((1_u128 << (31 + l)) / d as u128 + 1) as u32;
    let high = f.op(Class::B32, "mul.hi.u32", format_args!("{a}, {m}"));
    if l == 1 { high } else { f.op(Class::B32, "shr.u32", format_args!("{high}, {}", l - 1)) }
}

/// Quotient and remainder of an index.
pub(super) fn div_rem(f: &mut PtxFunction, a: Reg, d: usize) -> (Reg, Reg) {
    let q = div(f, a, d);
    let r = match d {
        1 => number(f, 0),
        _ if d.is_power_of_two() => and(f, a, d - 1),
        _ => mad(f, q, -(d as i64), a),
    };
    (q, r)
}

/// The digits of an index below the product of `extents`, outermost first.
pub(super) fn digits(f: &mut PtxFunction, index: Reg, extents: impl DoubleEndedIterator<Item = usize>) -> Digits {
    let mut digits = Digits::new();
    let mut rest = index;
    let mut extents: SmallVec<[usize; 4]> = extents.collect();
    if extents.is_empty() {
        return digits;
    }
    let outermost = extents.remove(0);
    debug_assert!(outermost < 1 << 31);
    for extent in extents.into_iter().rev() {
        let (q, r) = div_rem(f, rest, extent);
        digits.push(r);
        rest = q;
    }
    digits.push(rest);
    digits.reverse();
    digits
}

/// The digits of an index.
pub(super) type Digits = SmallVec<[Reg; 4]>;

/// The address `base + index * step`.
pub(super) fn reach(f: &mut PtxFunction, base: Reg, index: Reg, step: i64) -> Reg {
    if step == 0 {
        return base;
    }
    if i32::try_from(step).is_ok() {
        return f.op(Class::B64, "mad.wide.s32", format_args!("{index}, {step}, {base}"));
    }
    let wide = f.op(Class::B64, "cvt.s64.s32", format_args!("{index}"));
    f.op(Class::B64, "mad.lo.s64", format_args!("{wide}, {step}, {base}"))
}

/// `index * step`, of 64 bits.
pub(super) fn wide(f: &mut PtxFunction, index: Reg, step: i64) -> Reg {
    // The assembler cuts a number that does not fit 32 bits, without a word.
    if i32::try_from(step).is_ok() {
        return f.op(Class::B64, "mul.wide.s32", format_args!("{index}, {step}"));
    }
    let wide = f.op(Class::B64, "cvt.s64.s32", format_args!("{index}"));
    f.op(Class::B64, "mul.lo.s64", format_args!("{wide}, {step}"))
}

/// The address `base + distance`.
pub(super) fn shift(f: &mut PtxFunction, base: Reg, distance: i64) -> Reg {
    if distance == 0 { base } else { f.op(Class::B64, "add.s64", format_args!("{base}, {distance}")) }
}

/// A register and a distance from it, as an address is written: `[%r1+16]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Address {
    pub(super) base: Reg,
    pub(super) distance: i64,
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.distance == 0 { write!(f, "[{}]", self.base) } else { write!(f, "[{}+{}]", self.base, self.distance) }
    }
}

impl Address {
    pub(super) const fn new(base: Reg, distance: i64) -> Address {
        Address { base, distance }
    }

    pub(super) const fn beyond(self, distance: i64) -> Address {
        Address { base: self.base, distance: self.distance + distance }
    }
}

/// The predicate `a < limit`, both taken as unsigned.
pub(super) fn below(f: &mut PtxFunction, a: Reg, limit: usize) -> Reg {
    f.op(Class::Pred, "setp.lt.u32", format_args!("{a}, {limit}"))
}

/// Both predicates; one that is missing holds.
pub(super) fn both(f: &mut PtxFunction, a: Option<Reg>, b: Option<Reg>) -> Option<Reg> {
    match (a, b) {
        (Some(a), Some(b)) => Some(f.op(Class::Pred, "and.pred", format_args!("{a}, {b}"))),
        (one, other) => one.or(other),
    }
}

/// Adds a constant to a register in place.
pub(super) fn advance(f: &mut PtxFunction, a: Reg, c: i64) {
    let ty = if a.class == Class::B64 { "s64" } else { "s32" };
    ptx!(f, "add.{ty} {a}, {a}, {c}");
}
