//! Instructions that compute on registers: looked up by name in the table.

use super::{Decoder, Result};
use crate::alu;
use crate::kernel::{FloatMode, Op};
use crate::lanes::{Alu, Row};
use crate::types::Ty;

/// An instruction of the table.
pub(super) fn arithmetic(d: &mut Decoder<'_, '_, '_>, name: &str) -> Result<Op> {
    let is_single = d.mods.0.contains(&"f32");
    let flush = is_single && d.mods.take("ftz");
    let saturate = is_single && d.mods.take("sat");
    if matches!(name, "ex2" | "tanh") {
        d.mods.take("ftz");
    }
    if matches!(name, "add" | "sub" | "mul") {
        d.mods.take("rn");
    }
    let key = if name == "mad" && (is_single || d.mods.0.contains(&"f64")) { "fma" } else { name };
    let full = std::iter::once(key).chain(std::mem::take(&mut d.mods.0)).collect::<Vec<_>>().join(".");
    if full == "lop3.b32" {
        return lop3(d);
    }
    if matches!(full.as_str(), "bfi.b32" | "bfi.b64") {
        return insert(d, &full);
    }
    let row = alu::find(&full).ok_or_else(|| format!("unknown instruction {full}"))?;
    d.count(row.from.len() + 1..=row.from.len() + 1)?;
    let alu = operands(d, row)?;
    let sources = row.from.iter().take_while(|ty| **ty == Ty::F32).count() as u8;
    let float = FloatMode { flush, saturate, sources, is_test: row.to == Ty::Pred };
    Ok(match flush || saturate {
        true => Op::AluF32 { run: row.run, alu, float },
        false => Op::Alu { run: row.run, alu },
    })
}

fn operands(d: &mut Decoder<'_, '_, '_>, row: &Row) -> Result<Alu> {
    let (mut sources, mut extra) = ([0; 3], 0);
    for (n, ty) in row.from.iter().enumerate() {
        sources[n] = match *ty {
            Ty::Pred => {
                let (pred, negated) = d.predicate(n + 1)?;
                // Instructions on predicates look there for what is negated.
                extra |= u32::from(negated) << n;
                pred
            }
            ty => d.source(n + 1, ty)?,
        };
    }
    let [a, b, c] = sources;
    Ok(Alu { d: d.dest(0, row.to)?, a, b, c, extra, ..Alu::default() })
}

fn lop3(d: &mut Decoder<'_, '_, '_>) -> Result<Op> {
    d.count(5..=5)?;
    let row = alu::find("lop3.b32").ok_or("no lop3")?;
    let table = d.immediate(4)?;
    if table > 255 {
        return Err("the table of lop3 has eight bits".to_owned());
    }
    let alu = operands(d, row)?;
    Ok(Op::Alu { run: row.run, alu: Alu { extra: table as u32, ..alu } })
}

/// `bfi d, a, b, position, length`.
fn insert(d: &mut Decoder<'_, '_, '_>, name: &str) -> Result<Op> {
    d.count(5..=5)?;
    let row = alu::find(name).ok_or("no bfi")?;
    let alu = operands(d, row)?;
    let length = d.source(4, Ty::U32)?;
    Ok(Op::Alu { run: row.run, alu: Alu { extra: u32::from(length), ..alu } })
}
