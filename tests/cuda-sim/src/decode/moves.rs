//! Moves, selections and comparisons.

use super::{Decoder, Result};
use crate::alu;
use crate::alu::compare::{self, Combine, Compare};
use crate::kernel::{Fill, FloatMode, LOCAL_WINDOW, Op, Packing, SHARED_WINDOW};
use crate::lanes::Alu;
use crate::parse::{Operand, Place};
use crate::types::Ty;

fn row(name: &str, alu: Alu) -> Result<Op> {
    let row = alu::find(name).ok_or_else(|| format!("unknown instruction {name}"))?;
    Ok(Op::Alu { run: row.run, alu })
}

/// `mov`: registers, numbers, special registers, addresses of arrays, packing and unpacking.
pub(super) fn mov(d: &mut Decoder<'_, '_, '_>) -> Result<Op> {
    let ty = d.mods.ty()?;
    d.count(2..=2)?;
    match (d.operand(0)?.clone(), d.operand(1)?.clone()) {
        (Operand::Vector(parts), _) => unpack(d, &parts, ty),
        (_, Operand::Vector(parts)) => pack(d, &parts, ty),
        (_, Operand::Symbol(name, offset)) => {
            let fill = address(d, name, offset)?;
            let a = d.body.filled(ty.size() == 8, fill);
            if ty.size() < 4 {
                return Err("an address has at least 32 bits".to_owned());
            }
            let alu = Alu { d: d.dest(0, ty)?, a, ..Alu::default() };
            row(if ty.size() == 8 { "mov.b64" } else { "mov.b32" }, alu)
        }
        (_, Operand::Int(value)) if ty == Ty::Pred => {
            // A predicate and its opposite: always, or never.
            let bit = d.body.filled(false, Fill::Bits(u64::from(value != 0)));
            let zero = d.body.filled(false, Fill::Bits(0));
            let run = compare::setp(Ty::U32, Compare::Ne)?;
            let extra = compare::pack(Compare::Ne, Combine::None, false);
            Ok(Op::Alu { run, alu: Alu { d: d.dest(0, ty)?, a: bit, b: zero, extra, ..Alu::default() } })
        }
        (_, Operand::Not(_)) if ty == Ty::Pred => {
            let (a, _) = d.predicate(1)?;
            row("not.pred", Alu { d: d.dest(0, ty)?, a, ..Alu::default() })
        }
        (_, source) => {
            // The number of a move may be given as bits or as a value.
            let alu = Alu { a: d.source_of(&source, ty)?, d: d.dest(0, ty)?, ..Alu::default() };
            row(
                match ty.size() {
                    _ if ty == Ty::Pred => "mov.pred",
                    8 => "mov.b64",
                    _ => "mov.b32",
                },
                alu,
            )
        }
    }
}

/// The content of a register that is to be the address of an array.
pub(super) fn address<'t>(d: &mut Decoder<'_, '_, 't>, name: &'t str, offset: i64) -> Result<Fill> {
    if d.body.params.iter().any(|param| param.name == name) {
        return Err(format!("the address of parameter {name} cannot be taken"));
    }
    Ok(match d.body.place(name).ok_or_else(|| format!("unknown name {name}"))? {
        Place::Shared(start) | Place::Local(start) | Place::Constant(start) => {
            Fill::Bits(start.wrapping_add(offset) as u64)
        }
        Place::DynamicShared => Fill::DynamicShared(offset),
        Place::Global(index) => Fill::Global(index, offset),
    })
}

/// Bytes of each part of a vector that fills `ty`.
fn part_type(parts: &[Operand<'_>], ty: Ty) -> Result<Ty> {
    match (ty.size(), parts.len()) {
        (4, 2) => Ok(Ty::B16),
        (8, 2) => Ok(Ty::B32),
        (8, 4) => Ok(Ty::B16),
        _ => Err(format!("{} parts do not make a .{}", parts.len(), ty.name())),
    }
}

fn pack<'t>(d: &mut Decoder<'_, '_, 't>, parts: &[Operand<'t>], ty: Ty) -> Result<Op> {
    let part = part_type(parts, ty)?;
    let sources = parts.iter().map(|operand| d.source_of(operand, part)).collect::<Result<Vec<u16>>>()?;
    let whole = d.dest(0, ty)?;
    Ok(Op::Pack(Box::new(Packing { parts: sources, whole, bits: 8 * part.size() as u32, wide: ty.size() == 8 })))
}

fn unpack<'t>(d: &mut Decoder<'_, '_, 't>, parts: &[Operand<'t>], ty: Ty) -> Result<Op> {
    let part = part_type(parts, ty)?;
    let whole = d.source(1, ty)?;
    let parts = parts.iter().map(|operand| d.dest_of(operand, part)).collect::<Result<Vec<u16>>>()?;
    Ok(Op::Unpack(Box::new(Packing { parts, whole, bits: 8 * part.size() as u32, wide: ty.size() == 8 })))
}

/// `cvta` and `cvta.to`: global addresses are generic ones, the other spaces have windows.
pub(super) fn cvta<'t>(d: &mut Decoder<'_, '_, 't>) -> Result<Op> {
    let to_space = d.mods.take("to");
    d.mods.take("cta");
    let space = d
        .mods
        .take_any(&["global", "shared", "shared::cta", "local", "const"])
        .ok_or("cvta of a space that is not known")?;
    let ty = d.mods.ty()?;
    if ty.size() != 8 {
        return Err("only addresses of 64 bits are known".to_owned());
    }
    d.count(2..=2)?;
    let a = match d.operand(1)?.clone() {
        Operand::Symbol(name, offset) => {
            let fill = address(d, name, offset)?;
            d.body.filled(true, fill)
        }
        operand => d.source_of(&operand, ty)?,
    };
    let window = match space {
        "global" => 0,
        "const" => return Err("cvta of constants is not known".to_owned()),
        "local" => LOCAL_WINDOW,
        _ => SHARED_WINDOW,
    };
    let shift = if to_space { window.wrapping_neg() } else { window };
    let b = d.body.filled(true, Fill::Bits(shift));
    row("add.u64", Alu { d: d.dest(0, ty)?, a, b, ..Alu::default() })
}

/// `selp d, a, b, p`.
pub(super) fn selp(d: &mut Decoder<'_, '_, '_>) -> Result<Op> {
    let ty = d.mods.ty()?;
    d.count(4..=4)?;
    let (a, b) = (d.source(1, ty)?, d.source(2, ty)?);
    let (c, negated) = d.predicate(3)?;
    let (a, b) = if negated { (b, a) } else { (a, b) };
    row(if ty.size() == 8 { "selp.b64" } else { "selp.b32" }, Alu { d: d.dest(0, ty)?, a, b, c, ..Alu::default() })
}

/// The common part of `setp` and `set`: the comparison, how it is combined, and the type that is compared.
fn comparison(d: &mut Decoder<'_, '_, '_>) -> Result<(Compare, Combine)> {
    let name = d.mods.first().ok_or("no comparison")?;
    let compare = Compare::parse(name).ok_or_else(|| format!("unknown comparison .{name}"))?;
    let combine = match d.mods.take_any(&["and", "or", "xor"]) {
        Some("and") => Combine::And,
        Some("or") => Combine::Or,
        Some(_) => Combine::Xor,
        None => Combine::None,
    };
    Ok((compare, combine))
}

/// The predicate operand of a combining comparison, in `Alu::c`, and whether it is negated.
fn combined(d: &mut Decoder<'_, '_, '_>, combine: Combine) -> Result<(u16, bool)> {
    let has_predicate = combine != Combine::None;
    d.count(3 + usize::from(has_predicate)..=3 + usize::from(has_predicate))?;
    if has_predicate { d.predicate(3) } else { Ok((0, false)) }
}

/// `setp.lt.and.f32 p|q, a, b, c`.
pub(super) fn setp(d: &mut Decoder<'_, '_, '_>) -> Result<Op> {
    let (compare, combine) = comparison(d)?;
    let flush = d.mods.take("ftz");
    let ty = d.mods.ty()?;
    let run = compare::setp(ty, compare)?;
    let (a, b) = (d.source(1, ty)?, d.source(2, ty)?);
    let (c, negated) = combined(d, combine)?;
    let (first, second) = d.pair(0)?;
    let to = d.dest_of(&first, Ty::Pred)?;
    let d2 = second.map_or(Ok(0), |operand| d.dest_of(&operand, Ty::Pred))?;
    let alu = Alu { d: to, d2, a, b, c, extra: compare::pack(compare, combine, negated) };
    Ok(match flush && ty == Ty::F32 {
        true => Op::AluF32 { run, alu, float: FloatMode { flush, saturate: false, sources: 2, is_test: true } },
        false => Op::Alu { run, alu },
    })
}

/// `set.lt.u32.f32 d, a, b`: all ones or 1.0 where it holds.
pub(super) fn set(d: &mut Decoder<'_, '_, '_>) -> Result<Op> {
    let (compare, combine) = comparison(d)?;
    let to = d.mods.ty()?;
    let ty = d.mods.ty()?;
    if !matches!(to, Ty::U32 | Ty::S32 | Ty::F32) {
        return Err(format!("set to .{}", to.name()));
    }
    let run = compare::setp(ty, compare)?;
    let (a, b) = (d.source(1, ty)?, d.source(2, ty)?);
    let (c, negated) = combined(d, combine)?;
    let alu = Alu { a, b, c, extra: compare::pack(compare, combine, negated), ..Alu::default() };
    let value = if to == Ty::F32 { 1.0_f32.to_bits() } else { u32::MAX };
    Ok(Op::Set { run, alu, d: d.dest(0, to)?, value })
}
