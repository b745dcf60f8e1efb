//! Branches, barriers, fences and ends.

use super::{Decoder, Result};
use crate::kernel::Op;
use crate::parse::Operand;
use crate::types::Ty;

/// `bar.sync`, `bar.warp.sync`, `barrier.sync`, `bar.arrive`.
pub(super) fn barrier(d: &mut Decoder<'_, '_, '_>) -> Result<Op> {
    if d.mods.take("warp") {
        if !d.mods.take("sync") {
            return Err("bar.warp without .sync".to_owned());
        }
        d.count(1..=1)?;
        return Ok(Op::WarpBarrier { members: d.source(0, Ty::U32)? });
    }
    d.mods.take("cta");
    let has_aligned = d.mods.take("aligned");
    let mode = d.mods.take_any(&["sync", "arrive"]).ok_or("a barrier that is not known")?;
    d.count(1..=2)?;
    let id = d.source(0, Ty::U32)?;
    let count = if d.operands.len() == 2 { Some(d.source(1, Ty::U32)?) } else { None };
    if mode == "arrive" && count.is_none() {
        return Err("arrive needs a number of threads".to_owned());
    }
    Ok(Op::Barrier { id, count, aligned: has_aligned || d.is_bar, arrive: mode == "arrive" })
}

/// `bra` and `bra.uni`.
pub(super) fn branch<'t>(d: &mut Decoder<'_, '_, 't>) -> Result<Op> {
    let uniform = d.mods.take("uni");
    d.count(1..=1)?;
    let label = label(d, 0)?;
    d.body.branch_to(label, d.line);
    Ok(Op::Branch { to: 0, uniform })
}

/// `brx.idx`.
pub(super) fn branch_table<'t>(d: &mut Decoder<'_, '_, 't>) -> Result<Op> {
    d.mods.take("uni");
    if !d.mods.take("idx") {
        return Err("brx without .idx".to_owned());
    }
    d.count(2..=2)?;
    let index = d.source(0, Ty::U32)?;
    let label = label(d, 1)?;
    d.body.branch_to(label, d.line);
    Ok(Op::BranchTable { index, targets: Box::new([]) })
}

fn label<'t>(d: &Decoder<'_, '_, 't>, index: usize) -> Result<&'t str> {
    match d.operand(index)? {
        Operand::Symbol(name, 0) => Ok(name),
        _ => Err("a label is needed".to_owned()),
    }
}

/// Fences order memory, which this machine does anyway.
pub(super) fn fence(d: &mut Decoder<'_, '_, '_>) -> Result<Op> {
    let known = ["cta", "gl", "sys", "gpu", "cluster", "sc", "acq_rel", "acquire", "release", "proxy", "async"];
    d.mods.drop_where(|name| known.contains(&name) || name.starts_with("async"));
    nothing(d, 0)
}

/// An instruction of no effect, with so many operands.
pub(super) fn nothing(d: &mut Decoder<'_, '_, '_>, operands: usize) -> Result<Op> {
    d.mods.drop_where(|name| Ty::parse(name).is_some());
    d.count(operands..=operands)?;
    Ok(Op::Nothing)
}

/// `ret` and `exit`: the same in an entry.
pub(super) fn exit(d: &mut Decoder<'_, '_, '_>) -> Result<Op> {
    d.mods.take("uni");
    d.count(0..=0)?;
    Ok(Op::Exit)
}

/// `trap`.
pub(super) fn trap(d: &mut Decoder<'_, '_, '_>) -> Result<Op> {
    d.count(0..=0)?;
    Ok(Op::Trap)
}
