//! Instructions of a whole warp: shuffles, votes, reductions, matrix products.

use super::{Decoder, Result};
use crate::kernel::{Mma, MmaTy, Op, Redux, Shuffle, ShuffleMode, Vote};
use crate::parse::Operand;
use crate::types::Ty;

fn needs(d: &mut Decoder<'_, '_, '_>, modifier: &str) -> Result<()> {
    if d.mods.take(modifier) { Ok(()) } else { Err(format!("this instruction needs .{modifier}")) }
}

/// `shfl.sync.bfly.b32 d|p, a, b, c, members`.
pub(super) fn shuffle(d: &mut Decoder<'_, '_, '_>) -> Result<Op> {
    needs(d, "sync")?;
    let mode = match d.mods.take_any(&["up", "down", "bfly", "idx"]) {
        Some("up") => ShuffleMode::Up,
        Some("down") => ShuffleMode::Down,
        Some("bfly") => ShuffleMode::Butterfly,
        Some(_) => ShuffleMode::Index,
        None => return Err("a shuffle without its mode".to_owned()),
    };
    needs(d, "b32")?;
    d.count(5..=5)?;
    let a = d.source(1, Ty::B32)?;
    let (b, c, members) = (d.source(2, Ty::U32)?, d.source(3, Ty::U32)?, d.source(4, Ty::U32)?);
    let (value, pred) = d.pair(0)?;
    if matches!(value, Operand::Sink) {
        return Err("the result of a shuffle must go somewhere".to_owned());
    }
    let to = d.dest_of(&value, Ty::B32)?;
    let pred = match pred {
        Some(operand) => Some(d.dest_of(&operand, Ty::Pred)?),
        None => None,
    };
    Ok(Op::Shuffle(Shuffle { mode, d: to, pred, a, b, c, members }))
}

/// `vote.sync`.
pub(super) fn vote(d: &mut Decoder<'_, '_, '_>) -> Result<Op> {
    needs(d, "sync")?;
    let (mode, ty) = match d.mods.take_any(&["all", "any", "uni", "ballot"]) {
        Some("all") => (Vote::All, "pred"),
        Some("any") => (Vote::Any, "pred"),
        Some("uni") => (Vote::Uniform, "pred"),
        Some(_) => (Vote::Ballot, "b32"),
        None => return Err("a vote without its mode".to_owned()),
    };
    needs(d, ty)?;
    d.count(3..=3)?;
    let (pred, negated) = d.predicate(1)?;
    let members = d.source(2, Ty::U32)?;
    let to = d.dest(0, if mode == Vote::Ballot { Ty::B32 } else { Ty::Pred })?;
    Ok(Op::Vote { mode, d: to, pred, negated, members })
}

/// `match.any.sync` and `match.all.sync`.
pub(super) fn matching(d: &mut Decoder<'_, '_, '_>) -> Result<Op> {
    let all = d.mods.take("all");
    if !all {
        needs(d, "any")?;
    }
    needs(d, "sync")?;
    let ty = d.mods.ty()?;
    if !matches!(ty, Ty::B32 | Ty::B64) {
        return Err(format!("match of type .{}", ty.name()));
    }
    d.count(3..=3)?;
    let (a, members) = (d.source(1, ty)?, d.source(2, Ty::U32)?);
    let (value, pred) = d.pair(0)?;
    let to = d.dest_of(&value, Ty::B32)?;
    let d2 = match pred {
        Some(operand) if all => d.dest_of(&operand, Ty::Pred)?,
        Some(_) => return Err("match.any has no predicate".to_owned()),
        None => 0,
    };
    Ok(Op::Match { all, wide: ty == Ty::B64, d: to, d2, a, members })
}

/// `redux.sync`.
pub(super) fn redux(d: &mut Decoder<'_, '_, '_>) -> Result<Op> {
    needs(d, "sync")?;
    let name = d.mods.first().unwrap_or("");
    let ty = d.mods.ty()?;
    let op = match (name, ty) {
        ("add", Ty::U32 | Ty::S32) => Redux::Add,
        ("min", Ty::U32) => Redux::MinU,
        ("max", Ty::U32) => Redux::MaxU,
        ("min", Ty::S32) => Redux::MinS,
        ("max", Ty::S32) => Redux::MaxS,
        ("and", Ty::B32) => Redux::And,
        ("or", Ty::B32) => Redux::Or,
        ("xor", Ty::B32) => Redux::Xor,
        _ => return Err(format!("unknown reduction .{name}.{}", ty.name())),
    };
    d.count(3..=3)?;
    let (a, members) = (d.source(1, ty)?, d.source(2, Ty::U32)?);
    Ok(Op::Redux { op, d: d.dest(0, ty)?, a, members })
}

/// `activemask`.
pub(super) fn active_mask(d: &mut Decoder<'_, '_, '_>) -> Result<Op> {
    needs(d, "b32")?;
    d.count(1..=1)?;
    Ok(Op::ActiveMask { d: d.dest(0, Ty::B32)? })
}

/// `elect.sync d|p, members`.
pub(super) fn elect(d: &mut Decoder<'_, '_, '_>) -> Result<Op> {
    needs(d, "sync")?;
    d.count(2..=2)?;
    let members = d.source(1, Ty::U32)?;
    let (Operand::Pair(_), (leader, Some(pred))) = (d.operand(0)?, d.pair(0)?) else {
        return Err("elect writes a register and a predicate".to_owned());
    };
    Ok(Op::Elect { d: d.dest_of(&leader, Ty::B32)?, pred: d.dest_of(&pred, Ty::Pred)?, members })
}

/// `mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 d, a, b, c`.
pub(super) fn mma(d: &mut Decoder<'_, '_, '_>) -> Result<Op> {
    needs(d, "sync")?;
    needs(d, "aligned")?;
    let shape = d.mods.first().unwrap_or("");
    needs(d, "row")?;
    needs(d, "col")?;
    let types = [d.mods.ty()?, d.mods.ty()?, d.mods.ty()?, d.mods.ty()?];
    let (ty, depth) = match (shape, types) {
        ("m16n8k8", [_, Ty::F16, Ty::F16, _]) => (MmaTy::F16, 8),
        ("m16n8k16", [_, Ty::F16, Ty::F16, _]) => (MmaTy::F16, 16),
        ("m16n8k8", [Ty::F32, Ty::Bf16, Ty::Bf16, Ty::F32]) => (MmaTy::Bf16, 8),
        ("m16n8k16", [Ty::F32, Ty::Bf16, Ty::Bf16, Ty::F32]) => (MmaTy::Bf16, 16),
        ("m16n8k4", [Ty::F32, Ty::Tf32, Ty::Tf32, Ty::F32]) => (MmaTy::Tf32, 4),
        ("m16n8k8", [Ty::F32, Ty::Tf32, Ty::Tf32, Ty::F32]) => (MmaTy::Tf32, 8),
        ("m8n8k4", [Ty::F64, Ty::F64, Ty::F64, Ty::F64]) => (MmaTy::F64, 4),
        _ => return Err(format!("unknown matrix product .{shape}")),
    };
    let half = types[0] == Ty::F16;
    if types[0] != types[3] || !(half || matches!(types[0], Ty::F32 | Ty::F64)) {
        return Err("a matrix product whose accumulators differ".to_owned());
    }
    d.count(4..=4)?;
    let (factor, sum) = match ty {
        MmaTy::F64 => (Ty::F64, Ty::F64),
        _ => (Ty::B32, if half { Ty::B32 } else { Ty::F32 }),
    };
    let (a_len, b_len) = match ty {
        MmaTy::F64 => (1, 1),
        MmaTy::Tf32 => (depth / 2, depth / 4),
        MmaTy::F16 | MmaTy::Bf16 => (depth / 4, depth / 8),
    };
    let sums = if half || ty == MmaTy::F64 { 2 } else { 4 };
    let a = fragment(d, 1, factor, a_len)?;
    let b = fragment(d, 2, factor, b_len)?;
    let c = fragment(d, 3, sum, sums)?;
    let parts = d.vector(0)?;
    if parts.len() != sums {
        return Err(format!("{} registers for the result, {sums} are needed", parts.len()));
    }
    let to = parts.iter().map(|part| d.dest_of(part, sum)).collect::<Result<Vec<u16>>>()?;
    Ok(Op::Mma(Box::new(Mma { ty, depth, half, d: to, a, b, c })))
}

fn fragment(d: &mut Decoder<'_, '_, '_>, index: usize, ty: Ty, len: usize) -> Result<Vec<u16>> {
    let parts = d.vector(index)?;
    if parts.len() != len {
        return Err(format!("{} registers in operand {index}, {len} are needed", parts.len()));
    }
    parts.iter().map(|part| d.source_of(part, ty)).collect()
}
