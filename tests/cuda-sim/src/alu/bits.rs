//! Bits: logic, shifts (which clamp), fields, permutations, and moves.

use crate::fault::Stop;
use crate::lanes::{Alu, B16, B32, B64, LANES, Regs, Row, S16, S32, S64, U16, U32, U64, put, rows};
use crate::types::Ty;

/// Instructions that map bits to bits.
pub(super) const MAPS: &[Row] = rows! {
    "mov.b32" B32 => B32 |a| a;
    "mov.b64" B64 => B64 |a| a;
    "and.b16" B16, B16 => B16 |a, b| a & b;
    "and.b32" B32, B32 => B32 |a, b| a & b;
    "and.b64" B64, B64 => B64 |a, b| a & b;
    "or.b16" B16, B16 => B16 |a, b| a | b;
    "or.b32" B32, B32 => B32 |a, b| a | b;
    "or.b64" B64, B64 => B64 |a, b| a | b;
    "xor.b16" B16, B16 => B16 |a, b| a ^ b;
    "xor.b32" B32, B32 => B32 |a, b| a ^ b;
    "xor.b64" B64, B64 => B64 |a, b| a ^ b;
    "not.b16" B16 => B16 |a| !a;
    "not.b32" B32 => B32 |a| !a;
    "not.b64" B64 => B64 |a| !a;
    "cnot.b32" B32 => B32 |a| u32::from(a == 0);
    "cnot.b64" B64 => B64 |a| u64::from(a == 0);
    "shl.b16" B16, U32 => B16 |a, b| if b > 15 { 0 } else { a << b };
    "shl.b32" B32, U32 => B32 |a, b| if b > 31 { 0 } else { a << b };
    "shl.b64" B64, U32 => B64 |a, b| if b > 63 { 0 } else { a << b };
    "shr.b16" B16, U32 => B16 |a, b| if b > 15 { 0 } else { a >> b };
    "shr.b32" B32, U32 => B32 |a, b| if b > 31 { 0 } else { a >> b };
    "shr.b64" B64, U32 => B64 |a, b| if b > 63 { 0 } else { a >> b };
    "shr.u16" U16, U32 => U16 |a, b| if b > 15 { 0 } else { a >> b };
    "shr.u32" U32, U32 => U32 |a, b| if b > 31 { 0 } else { a >> b };
    "shr.u64" U64, U32 => U64 |a, b| if b > 63 { 0 } else { a >> b };
    "shr.s16" S16, U32 => S16 |a, b| a >> b.min(15);
    "shr.s32" S32, U32 => S32 |a, b| a >> b.min(31);
    "shr.s64" S64, U32 => S64 |a, b| a >> b.min(63);
    "shf.l.wrap.b32" B32, B32, U32 => B32 |a, b, c| funnel(a, b, c & 31);
    "shf.l.clamp.b32" B32, B32, U32 => B32 |a, b, c| funnel(a, b, c.min(32));
    "shf.r.wrap.b32" B32, B32, U32 => B32 |a, b, c| funnel_right(a, b, c & 31);
    "shf.r.clamp.b32" B32, B32, U32 => B32 |a, b, c| funnel_right(a, b, c.min(32));
    "prmt.b32" B32, B32, B32 => B32 |a, b, c| permute(a, b, [c, c >> 4, c >> 8, c >> 12]);
    "prmt.b32.f4e" B32, B32, B32 => B32 |a, b, c| permute(a, b, [c & 3, (c & 3) + 1, (c & 3) + 2, (c & 3) + 3]);
    "prmt.b32.b4e" B32, B32, B32 => B32
        |a, b, c| permute(a, b, [c & 3, ((c & 3) + 7) & 7, ((c & 3) + 6) & 7, ((c & 3) + 5) & 7]);
    "prmt.b32.rc8" B32, B32, B32 => B32 |a, b, c| permute(a, b, [c & 3; 4]);
    "prmt.b32.rc16" B32, B32, B32 => B32 |a, b, c| permute(a, b, [2 * (c & 1), 2 * (c & 1) + 1, 2 * (c & 1), 2 * (c & 1) + 1]);
    "bfe.u32" U32, U32, U32 => U32 |a, b, c| field(u64::from(a), b, c) as u32;
    "bfe.u64" U64, U32, U32 => U64 |a, b, c| field(a, b, c);
    "bfe.s32" S32, U32, U32 => S32 |a, b, c| signed_field(i64::from(a), 31, b, c) as i32;
    "bfe.s64" S64, U32, U32 => S64 |a, b, c| signed_field(a, 63, b, c);
    "brev.b32" B32 => B32 |a| a.reverse_bits();
    "brev.b64" B64 => B64 |a| a.reverse_bits();
    "clz.b32" B32 => U32 |a| a.leading_zeros();
    "clz.b64" B64 => U32 |a| a.leading_zeros();
    "popc.b32" B32 => U32 |a| a.count_ones();
    "popc.b64" B64 => U32 |a| a.count_ones();
    "bfind.u32" U32 => U32 |a| 31_u32.wrapping_sub(a.leading_zeros());
    "bfind.u64" U64 => U32 |a| 63_u32.wrapping_sub(a.leading_zeros());
    "bfind.s32" S32 => U32 |a| 31_u32.wrapping_sub((a ^ a >> 31).leading_zeros());
    "bfind.s64" S64 => U32 |a| 63_u32.wrapping_sub((a ^ a >> 63).leading_zeros());
    "bfind.shiftamt.u32" U32 => U32 |a| if a == 0 { u32::MAX } else { a.leading_zeros() };
    "bfind.shiftamt.u64" U64 => U32 |a| if a == 0 { u32::MAX } else { a.leading_zeros() };
    "slct.b32.s32" B32, B32, S32 => B32 |a, b, c| if c >= 0 { a } else { b };
    "slct.u32.s32" U32, U32, S32 => U32 |a, b, c| if c >= 0 { a } else { b };
    "slct.s32.s32" S32, S32, S32 => S32 |a, b, c| if c >= 0 { a } else { b };
    "slct.b64.s32" B64, B64, S32 => B64 |a, b, c| if c >= 0 { a } else { b };
    "slct.u64.s32" U64, U64, S32 => U64 |a, b, c| if c >= 0 { a } else { b };
};

/// Instructions on predicates, and those that need more than three operands.
pub(super) const OTHERS: &[Row] = &[
    Row { name: "lop3.b32", to: Ty::B32, from: &[Ty::B32; 3], run: lop3 },
    Row {
        name: "bfi.b32",
        to: Ty::B32,
        from: &[Ty::B32, Ty::B32, Ty::U32],
        run: |regs, alu, mask| {
            let (a, b) = (regs.narrow[usize::from(alu.a)], regs.narrow[usize::from(alu.b)]);
            let field = |lane: usize, at, len| insert(u64::from(a[lane]), u64::from(b[lane]), at, len, 32) as u32;
            let out = fields(regs, alu, field);
            put(regs, alu.d, mask, &out);
            Ok(())
        },
    },
    Row {
        name: "bfi.b64",
        to: Ty::B64,
        from: &[Ty::B64, Ty::B64, Ty::U32],
        run: |regs, alu, mask| {
            let (a, b) = (regs.wide[usize::from(alu.a)], regs.wide[usize::from(alu.b)]);
            let out = fields(regs, alu, |lane, at, len| insert(a[lane], b[lane], at, len, 64));
            put(regs, alu.d, mask, &out);
            Ok(())
        },
    },
    Row {
        name: "selp.b32",
        to: Ty::B32,
        from: &[Ty::B32, Ty::B32, Ty::Pred],
        run: |regs, alu, mask| {
            let (a, b, p) = (&regs.narrow[usize::from(alu.a)], &regs.narrow[usize::from(alu.b)], pred(regs, alu.c));
            let out: [u32; LANES] = std::array::from_fn(|lane| if p >> lane & 1 == 1 { a[lane] } else { b[lane] });
            put(regs, alu.d, mask, &out);
            Ok(())
        },
    },
    Row {
        name: "selp.b64",
        to: Ty::B64,
        from: &[Ty::B64, Ty::B64, Ty::Pred],
        run: |regs, alu, mask| {
            let (a, b, p) = (&regs.wide[usize::from(alu.a)], &regs.wide[usize::from(alu.b)], pred(regs, alu.c));
            let out: [u64; LANES] = std::array::from_fn(|lane| if p >> lane & 1 == 1 { a[lane] } else { b[lane] });
            put(regs, alu.d, mask, &out);
            Ok(())
        },
    },
    Row { name: "mov.pred", to: Ty::Pred, from: &[Ty::Pred], run: |regs, alu, mask| set(regs, alu, mask, |a, _| a) },
    Row { name: "not.pred", to: Ty::Pred, from: &[Ty::Pred], run: |regs, alu, mask| set(regs, alu, mask, |a, _| !a) },
    Row {
        name: "and.pred",
        to: Ty::Pred,
        from: &[Ty::Pred; 2],
        run: |regs, alu, mask| set(regs, alu, mask, |a, b| a & b),
    },
    Row {
        name: "or.pred",
        to: Ty::Pred,
        from: &[Ty::Pred; 2],
        run: |regs, alu, mask| set(regs, alu, mask, |a, b| a | b),
    },
    Row {
        name: "xor.pred",
        to: Ty::Pred,
        from: &[Ty::Pred; 2],
        run: |regs, alu, mask| set(regs, alu, mask, |a, b| a ^ b),
    },
];

fn pred(regs: &Regs, index: u16) -> u32 {
    regs.preds[usize::from(index)]
}

/// `d = f(a, b)` of predicates.
fn set(regs: &mut Regs, alu: &Alu, mask: u32, f: impl Fn(u32, u32) -> u32) -> Result<(), Stop> {
    let operand = |index: u16, n: u32| if alu.extra >> n & 1 == 1 { !pred(regs, index) } else { pred(regs, index) };
    let value = f(operand(alu.a, 0), operand(alu.b, 1));
    let to = &mut regs.preds[usize::from(alu.d)];
    *to = *to & !mask | value & mask;
    Ok(())
}

/// The upper half of `upper:lower` shifted left by up to 32.
fn funnel(lower: u32, upper: u32, by: u32) -> u32 {
    ((((u64::from(upper) << 32) | u64::from(lower)) << by) >> 32) as u32
}

fn funnel_right(lower: u32, upper: u32, by: u32) -> u32 {
    (((u64::from(upper) << 32) | u64::from(lower)) >> by) as u32
}

/// Each byte of the result is one of the eight of `upper:lower`, or its sign (bit 3 of the selector).
fn permute(lower: u32, upper: u32, selectors: [u32; 4]) -> u32 {
    let bytes = ((u64::from(upper) << 32) | u64::from(lower)).to_le_bytes();
    u32::from_le_bytes(selectors.map(|selector| {
        let byte = bytes[(selector & 7) as usize];
        if selector & 8 == 0 { byte } else { ((byte as i8) >> 7) as u8 }
    }))
}

fn low_mask(len: u32) -> u64 {
    if len > 63 { u64::MAX } else { (1 << len) - 1 }
}

/// Bits of `a` from `at` on; position and length are bytes.
fn field(a: u64, at: u32, len: u32) -> u64 {
    let (at, len) = (at & 255, len & 255);
    if at > 63 { 0 } else { a >> at & low_mask(len) }
}

/// As above, and the bit above (or the sign, past the end) fills the rest.
fn signed_field(a: i64, top: u32, at: u32, len: u32) -> i64 {
    let (at, len) = (at & 255, len & 255);
    if len == 0 {
        return 0;
    }
    let sign = a >> (at + len - 1).min(top) & 1;
    let bits = if at > top { 0 } else { (a >> at) as u64 & low_mask(len) & low_mask(top + 1 - at) };
    let filled = len.min(top.saturating_sub(at) + if at > top { 0 } else { 1 });
    if sign == 1 { (bits | !low_mask(filled)) as i64 } else { bits as i64 }
}

/// `b` with the lowest bits of `a` at a position.
fn insert(a: u64, b: u64, at: u32, len: u32, bits: u32) -> u64 {
    let (at, len) = (at & 255, len & 255);
    if at >= bits {
        return b;
    }
    let mask = low_mask(len) << at;
    b & !mask | a << at & mask
}

/// The lanes of a field operation, whose position is in `c` and whose length is in `extra`.
fn fields<T>(regs: &Regs, alu: &Alu, f: impl Fn(usize, u32, u32) -> T) -> [T; LANES] {
    let (at, len) = (&regs.narrow[usize::from(alu.c)], &regs.narrow[alu.extra as usize]);
    std::array::from_fn(|lane| f(lane, at[lane], len[lane]))
}

/// Any function of three bits: its table has the answer for the bits `abc` at that place.
fn lop3(regs: &mut Regs, alu: &Alu, mask: u32) -> Result<(), Stop> {
    let [a, b, c] = [alu.a, alu.b, alu.c].map(|index| &regs.narrow[usize::from(index)]);
    let out: [u32; LANES] = std::array::from_fn(|lane| {
        let pick = |bit: u32, value: u32| if bit == 0 { !value } else { value };
        (0..8)
            .filter(|row| alu.extra >> row & 1 == 1)
            .map(|row| pick(row & 4, a[lane]) & pick(row & 2, b[lane]) & pick(row & 1, c[lane]))
            .fold(0, |sum, term| sum | term)
    });
    put(regs, alu.d, mask, &out);
    Ok(())
}
