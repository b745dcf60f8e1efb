//! Loads, stores, atomics, asynchronous copies and matrix loads.

use super::{Decoder, Result, moves};
use crate::kernel::{Access, Address, AsyncCopy, Atomic, AtomicOp, Base, Fill, LoadMatrix, Op, Space};
use crate::parse::{MemoryBase, Operand, Place};
use crate::types::Ty;

/// Modifiers that only advise the caches.
fn is_hint(name: &str) -> bool {
    match name.split_once("::") {
        None => ["ca", "cg", "cs", "lu", "cv", "wb", "wt"].contains(&name),
        Some(("L1", advice)) => {
            ["evict_normal", "evict_unchanged", "evict_first", "evict_last", "no_allocate"].contains(&advice)
        }
        Some(("L2", advice)) => ["evict_normal", "evict_first", "evict_last", "64B", "128B", "256B"].contains(&advice),
        Some(_) => false,
    }
}

/// The space of an access, and whether it is a parameter or a constant.
enum Where {
    In(Space),
    Param,
    Const,
}

fn space(d: &mut Decoder<'_, '_, '_>) -> Where {
    match d.mods.take_any(&["global", "shared::cta", "shared", "local", "param::entry", "param", "const"]) {
        Some("global") => Where::In(Space::Global),
        Some("shared" | "shared::cta") => Where::In(Space::Shared),
        Some("local") => Where::In(Space::Local),
        Some("const") => Where::Const,
        Some(_) => Where::Param,
        None => Where::In(Space::Generic),
    }
}

fn is_strong(d: &mut Decoder<'_, '_, '_>) -> bool {
    let is_strong = d.mods.take_any(&["volatile", "relaxed", "acquire", "release"]).is_some();
    d.mods.take("weak");
    d.mods.take_any(&["cta", "gpu", "sys", "cluster"]);
    is_strong
}

/// `[base+offset]`, with a base that fits the space; also the place that a name stands for.
fn address<'t>(d: &mut Decoder<'_, '_, 't>, index: usize, space: Space) -> Result<Address> {
    let Operand::Memory(base, offset) = *d.operand(index)? else {
        return Err(format!("operand {index} is not an address"));
    };
    match base {
        MemoryBase::Nothing if space == Space::Local => Ok(Address { base: Base::None, offset }),
        MemoryBase::Nothing => Err("an address that is a number, which only local memory may have".to_owned()),
        MemoryBase::Reg(reg) => {
            if reg.ty.is_float() || reg.ty.size() < 4 {
                return Err("an address in a register that cannot hold one".to_owned());
            }
            if reg.ty.size() == 4 && matches!(space, Space::Global | Space::Generic) {
                return Err("a global address has 64 bits".to_owned());
            }
            d.body.reads.push(reg.id);
            let base = if reg.ty.size() == 8 { Base::Wide(reg.index) } else { Base::Narrow(reg.index) };
            Ok(Address { base, offset })
        }
        MemoryBase::Symbol(name) => {
            let place = d.body.place(name).ok_or_else(|| format!("unknown name {name}"))?;
            let fits = match place {
                Place::Shared(_) | Place::DynamicShared => space == Space::Shared,
                Place::Local(_) => space == Space::Local,
                Place::Global(_) => matches!(space, Space::Global | Space::Generic),
                Place::Constant(_) => false,
            };
            if !fits {
                return Err(format!("{name} lies in another space"));
            }
            let fill = moves::address(d, name, 0)?;
            Ok(match fill {
                Fill::Bits(start) => Address { base: Base::None, offset: (start as i64).wrapping_add(offset) },
                fill => Address { base: Base::Wide(d.body.filled(true, fill)), offset },
            })
        }
    }
}

/// The registers of an access: their indices and bytes; they may be wider than the memory.
fn registers(d: &mut Decoder<'_, '_, '_>, index: usize, ty: Ty, is_load: bool) -> Result<([u16; 8], u8, u8)> {
    let lanes = match d.mods.take_any(&["v2", "v4", "v8"]) {
        Some("v2") => 2,
        Some("v4") => 4,
        Some(_) => 8,
        None => 1,
    };
    if matches!(ty, Ty::F16 | Ty::Bf16 | Ty::F16x2 | Ty::Bf16x2 | Ty::Tf32 | Ty::Pred) {
        return Err(format!("memory is not accessed as .{}", ty.name()));
    }
    let parts = d.vector(index)?;
    if parts.len() != lanes || lanes * ty.size() > if lanes == 8 { 32 } else { 16 } {
        return Err(format!("{} registers for {lanes} values of .{}", parts.len(), ty.name()));
    }
    let (mut found, mut bytes) = ([0; 8], 0);
    for (part, to) in parts.iter().zip(&mut found) {
        let size = match part {
            Operand::Reg(reg) => {
                let is_wider = reg.ty.size() > ty.size() && !ty.is_float() && !reg.ty.is_float();
                if reg.ty == Ty::Pred || !(is_wider || reg.ty.agrees(ty)) {
                    return Err(format!("a register of type .{} for .{}", reg.ty.name(), ty.name()));
                }
                if is_load {
                    d.body.writes.push(reg.id)
                } else {
                    d.body.reads.push(reg.id)
                }
                *to = reg.index;
                reg.ty.size()
            }
            Operand::Sink if is_load => continue,
            literal if !is_load && !parts.iter().any(|part| matches!(part, Operand::Reg(_))) => {
                let is_small = !ty.is_float() && ty.size() < 4;
                *to = d.source_of(literal, if is_small { Ty::B32 } else { ty })?;
                ty.size().max(4)
            }
            _ => return Err("the destination is not a register".to_owned()),
        };
        if bytes != 0 && (bytes == 8) != (size == 8) {
            return Err("registers of different widths".to_owned());
        }
        bytes = bytes.max(size);
    }
    Ok((found, lanes as u8, bytes.max(if ty.size() == 8 { 8 } else { 1 }) as u8))
}

/// `ld` of any space.
pub(super) fn load(d: &mut Decoder<'_, '_, '_>) -> Result<Op> {
    let strong = is_strong(d);
    let place = space(d);
    let constant = matches!(place, Where::In(Space::Global)) && d.mods.take("nc");
    if constant && strong {
        return Err("a load that is both ordered and of constant memory".to_owned());
    }
    d.mods.drop_where(is_hint);
    let ty = d.mods.ty()?;
    d.count(2..=2)?;
    let (regs, count, reg_size) = registers(d, 0, ty, true)?;
    let access = |space, address| Access {
        space,
        address,
        size: ty.size() as u8,
        reg_size,
        signed: ty.is_signed(),
        count,
        regs,
        strong,
        constant,
    };
    match place {
        Where::In(space) => {
            let address = address(d, 1, space)?;
            note_grain(d, space, ty);
            Ok(Op::Load(access(space, address)))
        }
        Where::Param => {
            let offset = param(d, 1, ty.size() * usize::from(count))?;
            let address = Address { base: Base::None, offset: 0 };
            Ok(Op::LoadParam { offset, access: access(Space::Global, address) })
        }
        Where::Const => {
            let address = match *d.operand(1)? {
                Operand::Memory(MemoryBase::Symbol(name), offset) => match d.body.place(name) {
                    Some(Place::Constant(start)) => Address { base: Base::None, offset: start.wrapping_add(offset) },
                    _ => return Err(format!("{name} is not a constant")),
                },
                _ => address(d, 1, Space::Local)?,
            };
            Ok(Op::LoadConst(access(Space::Global, address)))
        }
    }
}

/// Where a parameter lies, of which so many bytes are read.
fn param(d: &Decoder<'_, '_, '_>, index: usize, bytes: usize) -> Result<u32> {
    let Operand::Memory(MemoryBase::Symbol(name), offset) = *d.operand(index)? else {
        return Err("a parameter is read by its name".to_owned());
    };
    let param = d.body.params.iter().find(|param| param.name == name);
    let param = param.ok_or_else(|| format!("unknown parameter {name}"))?;
    let is_inside = usize::try_from(offset).is_ok_and(|at| at <= param.bytes && bytes <= param.bytes - at);
    if !is_inside || !(param.offset + offset as usize).is_multiple_of(bytes) {
        return Err(format!("{bytes} bytes at {offset} of parameter {name}, which has {}", param.bytes));
    }
    Ok((param.offset + offset as usize) as u32)
}

fn note_grain(d: &mut Decoder<'_, '_, '_>, space: Space, ty: Ty) {
    if matches!(space, Space::Shared | Space::Generic) {
        d.body.shared_grain = d.body.shared_grain.min(ty.size() as u32);
    }
}

/// `st` of any space.
pub(super) fn store(d: &mut Decoder<'_, '_, '_>) -> Result<Op> {
    let strong = is_strong(d);
    let Where::In(space) = space(d) else { return Err("this space cannot be written".to_owned()) };
    d.mods.drop_where(is_hint);
    let ty = d.mods.ty()?;
    d.count(2..=2)?;
    let address = address(d, 0, space)?;
    let (regs, count, reg_size) = registers(d, 1, ty, false)?;
    note_grain(d, space, ty);
    let size = ty.size() as u8;
    Ok(Op::Store(Access { space, address, size, reg_size, signed: false, count, regs, strong, constant: false }))
}

/// `atom` and `red`.
pub(super) fn atomic(d: &mut Decoder<'_, '_, '_>, has_result: bool) -> Result<Op> {
    is_strong(d);
    d.mods.take("acq_rel");
    let Where::In(space) = space(d) else { return Err("no atomics in this space".to_owned()) };
    let op = match d.mods.first().unwrap_or("") {
        "add" => AtomicOp::Add,
        "min" => AtomicOp::Min,
        "max" => AtomicOp::Max,
        "and" => AtomicOp::And,
        "or" => AtomicOp::Or,
        "xor" => AtomicOp::Xor,
        "exch" => AtomicOp::Exch,
        "cas" => AtomicOp::Cas,
        "inc" => AtomicOp::Inc,
        "dec" => AtomicOp::Dec,
        other => return Err(format!("unknown atomic .{other}")),
    };
    d.mods.take("noftz");
    let ty = d.mods.ty()?;
    let has_room = ty.size() >= 4 || ty == Ty::F16 || ty == Ty::Bf16;
    let is_known = match op {
        AtomicOp::Add => !ty.is_untyped(),
        AtomicOp::Min | AtomicOp::Max => !ty.is_untyped() && !ty.is_float(),
        AtomicOp::Inc | AtomicOp::Dec => ty == Ty::U32,
        _ => ty.is_untyped(),
    };
    if !has_room || !is_known || ty == Ty::Tf32 {
        return Err(format!("an atomic that is not known of type .{}", ty.name()));
    }
    let first = usize::from(has_result);
    let operands = 2 + first + usize::from(op == AtomicOp::Cas);
    d.count(operands..=operands)?;
    let address = address(d, first, space)?;
    let a = d.source(first + 1, ty)?;
    let b = if op == AtomicOp::Cas { d.source(first + 2, ty)? } else { 0 };
    let to = match d.operand(0)?.clone() {
        _ if !has_result => None,
        Operand::Sink => None,
        operand => Some(d.dest_of(&operand, ty)?),
    };
    note_grain(d, space, ty);
    Ok(Op::Atomic(Box::new(Atomic { op, ty, space, address, d: to, a, b })))
}

/// `cp.async`, its commits and its waits.
pub(super) fn async_copy(d: &mut Decoder<'_, '_, '_>) -> Result<Op> {
    if !d.mods.take("async") {
        return Err("cp without .async".to_owned());
    }
    if d.mods.take("commit_group") {
        d.count(0..=0)?;
        return Ok(Op::AsyncCommit);
    }
    if d.mods.take("wait_all") {
        d.count(0..=0)?;
        return Ok(Op::AsyncWaitAll);
    }
    if d.mods.take("wait_group") {
        d.count(1..=1)?;
        return Ok(Op::AsyncWait(d.immediate(0)? as u32));
    }
    let through_l1 = d.mods.take("ca");
    if !through_l1 && !d.mods.take("cg") {
        return Err("cp.async needs .ca or .cg".to_owned());
    }
    if !(d.mods.take("shared") || d.mods.take("shared::cta")) || !d.mods.take("global") {
        return Err("cp.async goes from .global to .shared".to_owned());
    }
    d.mods.drop_where(is_hint);
    d.count(3..=4)?;
    let (to, from) = (address(d, 0, Space::Shared)?, address(d, 1, Space::Global)?);
    let size = d.immediate(2)?;
    if !matches!(size, 4 | 8 | 16) || (!through_l1 && size != 16) {
        return Err(format!("cp.async of {size} bytes"));
    }
    let (mut source_size, mut ignore) = (None, None);
    if let Ok(operand) = d.operand(3) {
        match operand {
            Operand::Reg(reg) if reg.ty == Ty::Pred => ignore = Some(d.predicate(3)?),
            _ => source_size = Some(d.source(3, Ty::U32)?),
        }
    }
    Ok(Op::AsyncCopy(Box::new(AsyncCopy { to, from, size: size as u8, source_size, ignore })))
}

/// Prefetches and advice: nothing happens.
pub(super) fn prefetch(d: &mut Decoder<'_, '_, '_>) -> Result<Op> {
    d.mods.drop_where(|name| is_hint(name) || matches!(name, "global" | "local" | "L1" | "L2"));
    d.count(1..=2)?;
    Ok(Op::Nothing)
}

/// `ldmatrix` and `stmatrix`.
pub(super) fn matrix(d: &mut Decoder<'_, '_, '_>, store: bool) -> Result<Op> {
    for needed in ["sync", "aligned", "m8n8"] {
        if !d.mods.take(needed) {
            return Err(format!("a matrix access without .{needed}"));
        }
    }
    let count = match d.mods.take_any(&["x1", "x2", "x4"]) {
        Some("x1") => 1,
        Some("x2") => 2,
        Some(_) => 4,
        None => return Err("a matrix access without its number of matrices".to_owned()),
    };
    let transposed = d.mods.take("trans");
    let Where::In(space @ (Space::Shared | Space::Generic)) = space(d) else {
        return Err("matrices lie in .shared".to_owned());
    };
    if d.mods.ty()? != Ty::B16 {
        return Err("matrices have elements of .b16".to_owned());
    }
    d.count(2..=2)?;
    let (data, at) = if store { (1, 0) } else { (0, 1) };
    let parts = d.vector(data)?;
    if parts.len() != count {
        return Err(format!("{} registers for {count} matrices", parts.len()));
    }
    let address = address(d, at, space)?;
    let regs = parts.iter().map(|part| match store {
        true => d.source_of(part, Ty::B32),
        false => d.dest_of(part, Ty::B32),
    });
    let regs = regs.collect::<Result<Vec<u16>>>()?;
    Ok(Op::LoadMatrix(Box::new(LoadMatrix { regs, transposed, space, address, store })))
}
