//! Integers that count points: coordinates, and positions in memory.
//!
//! They are 32 bits wide where no count and no position reaches 2^31, else 64.

use crate::ptx::{Class, PtxFunction, Reg, ptx};
use smallvec::SmallVec;

/// How wide the integers of a kernel are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ints {
    /// Whether they have 64 bits.
    pub(super) wide: bool,
}

/// Counts below this fit 32 bits.
pub(super) const NARROW: usize = 1 << 31;

impl Ints {
    pub(super) fn class(self) -> Class {
        if self.wide { Class::B64 } else { Class::B32 }
    }

    /// A constant.
    pub(super) fn constant(self, f: &mut PtxFunction, x: usize) -> Reg {
        let bits = if self.wide { 64 } else { 32 };
        f.op(self.class(), &format!("mov.b{bits}"), format_args!("{x}"))
    }

    /// The 32-bit number of a thread or block.
    pub(super) fn widened(self, f: &mut PtxFunction, x: Reg) -> Reg {
        if self.wide { f.op(Class::B64, "cvt.u64.u32", format_args!("{x}")) } else { x }
    }

    /// `block * per_block + thread`, of 32-bit numbers.
    pub(super) fn linear(self, f: &mut PtxFunction, block: Reg, per_block: u64, thread: Reg) -> Reg {
        if per_block == 0 {
            return self.widened(f, thread);
        }
        let thread = self.widened(f, thread);
        let op = if self.wide { "mad.wide.u32" } else { "mad.lo.u32" };
        f.op(self.class(), op, format_args!("{block}, {per_block}, {thread}"))
    }

    /// `x + y`.
    pub(super) fn add(self, f: &mut PtxFunction, x: Reg, y: u64) -> Reg {
        if y == 0 {
            return x;
        }
        f.op(self.class(), if self.wide { "add.u64" } else { "add.u32" }, format_args!("{x}, {y}"))
    }

    /// The smaller of `x` and `y`.
    pub(super) fn min(self, f: &mut PtxFunction, x: Reg, y: u64) -> Reg {
        f.op(self.class(), if self.wide { "min.u64" } else { "min.u32" }, format_args!("{x}, {y}"))
    }

    /// `x` where `p` holds, else `y`.
    pub(super) fn select(self, f: &mut PtxFunction, p: Reg, x: Reg, y: Reg) -> Reg {
        f.op(self.class(), if self.wide { "selp.b64" } else { "selp.b32" }, format_args!("{x}, {y}, {p}"))
    }

    /// A comparison of `x` with `y`, which a number or register may be.
    pub(super) fn compare(self, f: &mut PtxFunction, op: &str, x: Reg, y: impl std::fmt::Display) -> Reg {
        let ty = if self.wide { "u64" } else { "u32" };
        f.op(Class::Pred, &format!("setp.{op}.{ty}"), format_args!("{x}, {y}"))
    }

    /// `x * by + sum`.
    pub(super) fn mul_add(self, f: &mut PtxFunction, x: Reg, by: i64, sum: Option<Reg>) -> Reg {
        let class = self.class();
        let ty = if self.wide { "s64" } else { "s32" };
        let bits = if self.wide { "b64" } else { "b32" };
        match sum {
            None if by == 1 => x,
            None if by > 0 && by.count_ones() == 1 => {
                f.op(class, &format!("shl.{bits}"), format_args!("{x}, {}", by.trailing_zeros()))
            }
            None => f.op(class, &format!("mul.lo.{ty}"), format_args!("{x}, {by}")),
            Some(sum) if by == 1 => f.op(class, &format!("add.{ty}"), format_args!("{x}, {sum}")),
            Some(sum) => f.op(class, &format!("mad.lo.{ty}"), format_args!("{x}, {by}, {sum}")),
        }
    }

    /// `base + position * size`: an address.
    pub(super) fn address(self, f: &mut PtxFunction, base: Reg, position: Reg, size: usize) -> Reg {
        let op = if self.wide { "mad.lo.s64" } else { "mad.wide.s32" };
        f.op(Class::B64, op, format_args!("{position}, {size}, {base}"))
    }

    /// The quotient and the remainder of `x` by a constant.
    pub(super) fn div_rem(self, f: &mut PtxFunction, x: Reg, by: usize) -> (Reg, Reg) {
        if by == 1 {
            return (x, self.constant(f, 0));
        }
        let class = self.class();
        let bits = if self.wide { 64 } else { 32 };
        if by.is_power_of_two() {
            let quotient = f.op(class, &format!("shr.u{bits}"), format_args!("{x}, {}", by.trailing_zeros()));
            return (quotient, f.op(class, &format!("and.b{bits}"), format_args!("{x}, {}", by - 1)));
        }
        let quotient = if self.wide {
            f.op(class, "div.u64", format_args!("{x}, {by}"))
        } else {
            let (magic, shift) = magic(by);
            let high = f.op(class, "mul.hi.u32", format_args!("{x}, {magic}"));
            f.op(class, "shr.u32", format_args!("{high}, {shift}"))
        };
        (quotient, self.mul_add(f, quotient, -(by as i64), Some(x)))
    }

    /// The coordinates of point `x` of a row-major space, outermost first.
    pub(super) fn decompose(self, f: &mut PtxFunction, x: Reg, extents: &[usize]) -> SmallVec<[Reg; 4]> {
        let mut coordinates = SmallVec::new();
        let mut left = x;
        for (axis, &extent) in extents.iter().enumerate().rev() {
            if axis == 0 {
                coordinates.push(left);
                break;
            }
            let (quotient, remainder) = self.div_rem(f, left, extent);
            coordinates.push(remainder);
            left = quotient;
        }
        coordinates.reverse();
        coordinates
    }
}

/// The factor `m` and shift `s` with `x / by == (x * m >> 32) >> s` for all `x` below 2^31.
///
/// With `2^l >= by > 2^(l-1)` the factor is `2^(31+l) / by`, rounded up: it is too large by less than 1, which the
/// product with `x / 2^(31+l) < 2^-l <= 1 / by` cannot carry over the next whole number. It fits 32 bits since
/// `by > 2^(l-1)`.
pub(in crate::ptx) fn magic(by: usize) -> (u64, u32) {
    let l = by.next_power_of_two().trailing_zeros();
    let factor = (1u128 << (31 + l)) / by as u128 + 1;
    (factor as u64, l - 1)
}

/// The number of a register that the machine sets, such as `tid.x`.
pub(super) fn special(f: &mut PtxFunction, name: &str) -> Reg {
    f.op(Class::B32, "mov.u32", format_args!("%{name}"))
}

/// Waits until all threads of the block are here.
pub(super) fn barrier(f: &mut PtxFunction) {
    ptx!(f, "bar.sync 0");
}

#[cfg(test)]
mod tests {
    use super::magic;

    #[test]
    fn magic_numbers_divide() {
        let divisors =
            (1usize..300).chain([641, 1000, 4095, 4097, 65535, 65537, 1_000_003, (1 << 30) + 1, (1 << 31) - 1]);
        for by in divisors.filter(|by| !by.is_power_of_two()) {
            let (factor, shift) = magic(by);
            assert!(u32::try_from(factor).is_ok(), "{by}");
            let last = (1u64 << 31) - 1;
            let near = |x: u64| [x.saturating_sub(1), x, x + 1];
            let edges =
                (0..2000).chain((1..1000).flat_map(|k| near(k * by as u64))).chain(near(last / by as u64 * by as u64));
            for x in edges.chain([last]).filter(|&x| x <= last) {
                assert_eq!(((x * factor) >> 32) >> shift, x / by as u64, "{x} / {by}");
            }
        }
    }
}
