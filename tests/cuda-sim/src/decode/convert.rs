//! `cvt`: every pair of types, every rounding.

use super::{Decoder, Result};
use crate::alu::convert::{self, Conversion};
use crate::kernel::Op;
use crate::lanes::Alu;
use crate::parse::Operand;
use crate::round::Rounding;
use crate::types::Ty;

/// `cvt.rn.sat.to.from d, a` and `cvt.rn.f16x2.f32 d, upper, lower`.
pub(super) fn cvt(d: &mut Decoder<'_, '_, '_>) -> Result<Op> {
    let rounding = d.mods.take_any(&["rn", "rz", "rm", "rp", "rna", "rni", "rzi", "rmi", "rpi"]);
    let (flush, saturate, relu) = (d.mods.take("ftz"), d.mods.take("sat"), d.mods.take("relu"));
    let (to, from) = (d.mods.ty()?, d.mods.ty()?);
    check_rounding(rounding, to, from)?;
    let rounding_of = match rounding.map_or("z", |name| &name[1..]) {
        "n" | "ni" => Rounding::Nearest,
        "na" => Rounding::Away,
        "m" | "mi" => Rounding::Down,
        "p" | "pi" => Rounding::Up,
        _ => Rounding::Zero,
    };
    let to_integer = rounding.is_some_and(|name| name.ends_with('i'));
    if relu && !matches!(to, Ty::F16 | Ty::Bf16 | Ty::F16x2 | Ty::Bf16x2 | Ty::Tf32) {
        return Err("unknown modifier .relu".to_owned());
    }
    let conversion = Conversion { to, from, rounding: rounding_of, to_integer, flush, saturate, relu };
    let is_pair = matches!(to, Ty::F16x2 | Ty::Bf16x2);
    d.count(2 + usize::from(is_pair)..=2 + usize::from(is_pair))?;
    let a = source(d, 1, from)?;
    let b = if is_pair { source(d, 2, from)? } else { 0 };
    let to_reg = dest(d, to)?;
    let alu = Alu { d: to_reg.0, a, b, extra: 8 * to_reg.1, ..Alu::default() };
    let is_extended = to_reg.1 as usize == 8 && to.size() < 8;
    Ok(match convert::fast(&conversion) {
        Some(run) if !is_extended => Op::Alu { run, alu },
        _ => Op::Convert { conversion, alu },
    })
}

/// Which roundings may or must stand between two types.
fn check_rounding(rounding: Option<&str>, to: Ty, from: Ty) -> Result<()> {
    let is_integral = rounding.is_some_and(|name| name.ends_with('i'));
    let is_known = match (to.is_float(), from.is_float()) {
        (false, false) => rounding.is_none(),
        (false, true) => is_integral,
        (true, false) => rounding.is_some() && !is_integral,
        (true, true) if to == Ty::Tf32 => rounding.is_some() && from == Ty::F32,
        (true, true) if to.size() < from.size() || (matches!(to, Ty::F16x2 | Ty::Bf16x2)) => {
            rounding.is_some() && !is_integral
        }
        (true, true) if to == from => is_integral || rounding.is_none(),
        (true, true) => rounding.is_none() || (to.size() == from.size() && !is_integral),
    };
    if is_known && !matches!((to, from), (Ty::Pred, _) | (_, Ty::Pred)) {
        return Ok(());
    }
    Err(format!("cvt from .{} to .{} with this rounding", from.name(), to.name()))
}

/// Sources of a conversion may be wider than their type.
fn source(d: &mut Decoder<'_, '_, '_>, index: usize, ty: Ty) -> Result<u16> {
    let Operand::Reg(reg) = *d.operand(index)? else { return d.source(index, ty) };
    if reg.ty == Ty::Pred || reg.ty.size() < ty.size() || (ty.is_float() && reg.ty.size() != ty.size()) {
        return Err(format!("a register of type .{} where .{} is needed", reg.ty.name(), ty.name()));
    }
    d.body.reads.push(reg.id);
    if reg.ty.size() == 8 && ty.size() < 8 {
        return Err("a source of 64 bits for a narrower type is not known".to_owned());
    }
    Ok(reg.index)
}

/// The destination, which may be wider, and its bytes.
fn dest(d: &mut Decoder<'_, '_, '_>, ty: Ty) -> Result<(u16, u32)> {
    let Operand::Reg(reg) = *d.operand(0)? else { return Err("the destination is not a register".to_owned()) };
    if reg.ty == Ty::Pred || reg.ty.size() < ty.size() || (ty.is_float() && reg.ty.size() != ty.size()) {
        return Err(format!("a register of type .{} for .{}", reg.ty.name(), ty.name()));
    }
    d.body.writes.push(reg.id);
    Ok((reg.index, reg.ty.size() as u32))
}
