//! Operands as they stand in the text.

use super::{Body, Cursor, Reg, Result};
use crate::kernel::{LaneMask, Special};

/// An operand of an instruction.
#[derive(Clone, Debug)]
pub(crate) enum Operand<'t> {
    Reg(Reg),
    /// `!%p`.
    Not(Reg),
    /// `%p|%q`; either may be the sink.
    Pair(Box<(Operand<'t>, Operand<'t>)>),
    Int(u64),
    /// A number with a point, or the bits of a double.
    Float(f64),
    /// The bits of a single.
    Single(u32),
    Special(Special),
    /// An array or label, plus an offset.
    Symbol(&'t str, i64),
    /// `[base+offset]`.
    Memory(MemoryBase<'t>, i64),
    /// `{a, b}`.
    Vector(Vec<Operand<'t>>),
    /// `_`.
    Sink,
}

/// The base that an address is relative to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MemoryBase<'t> {
    Reg(Reg),
    Symbol(&'t str),
    Nothing,
}

/// All operands up to the semicolon.
pub(super) fn read_all<'t>(cursor: &mut Cursor<'t>, body: &Body<'_, 't>) -> Result<Vec<Operand<'t>>> {
    let mut found = vec![];
    while !cursor.accept(";") {
        if !found.is_empty() {
            cursor.expect(",")?;
        }
        let first = read(cursor, body)?;
        found.push(if cursor.accept("|") { Operand::Pair(Box::new((first, read(cursor, body)?))) } else { first });
    }
    Ok(found)
}

fn read<'t>(cursor: &mut Cursor<'t>, body: &Body<'_, 't>) -> Result<Operand<'t>> {
    if cursor.accept("{") {
        let mut parts = vec![];
        while !cursor.accept("}") {
            if !parts.is_empty() {
                cursor.expect(",")?;
            }
            if cursor.peek() == "{" {
                return cursor.error("a vector in a vector");
            }
            parts.push(read(cursor, body)?);
        }
        return Ok(Operand::Vector(parts));
    }
    if cursor.accept("[") {
        return read_memory(cursor, body);
    }
    if cursor.accept("!") {
        let name = cursor.take()?.text;
        return match body.register(name) {
            Some(reg) => Ok(Operand::Not(reg)),
            None => cursor.error(format!("undeclared register {name}")),
        };
    }
    let is_negative = cursor.accept("-");
    let word = cursor.take()?.text;
    if word.starts_with(|c: char| c.is_ascii_digit()) || is_negative {
        return number(word, is_negative).map_or_else(|| cursor.error(format!("bad number {word}")), Ok);
    }
    if word == "_" {
        return Ok(Operand::Sink);
    }
    if let Some(reg) = body.register(word) {
        return Ok(Operand::Reg(reg));
    }
    if word == "WARP_SZ" {
        return Ok(Operand::Int(32));
    }
    if let Some(name) = word.strip_prefix('%') {
        return match special(name) {
            Some(special) => Ok(Operand::Special(special)),
            None => cursor.error(format!("undeclared register {word}")),
        };
    }
    let offset = read_offset(cursor)?;
    Ok(Operand::Symbol(word, offset))
}

/// The operand after `[`.
fn read_memory<'t>(cursor: &mut Cursor<'t>, body: &Body<'_, 't>) -> Result<Operand<'t>> {
    let word = cursor.take()?.text;
    let found = if let Some(value) = integer(word) {
        Operand::Memory(MemoryBase::Nothing, value as i64)
    } else {
        let base = match body.register(word) {
            Some(reg) => MemoryBase::Reg(reg),
            None if word.starts_with('%') => return cursor.error(format!("undeclared register {word}")),
            None => MemoryBase::Symbol(word),
        };
        Operand::Memory(base, read_offset(cursor)?)
    };
    cursor.expect("]")?;
    Ok(found)
}

/// `+4`, `+-4` or nothing.
fn read_offset(cursor: &mut Cursor<'_>) -> Result<i64> {
    if !cursor.accept("+") {
        return Ok(0);
    }
    let is_negative = cursor.accept("-");
    let offset = cursor.count()? as i64;
    Ok(if is_negative { offset.wrapping_neg() } else { offset })
}

fn number(word: &str, is_negative: bool) -> Option<Operand<'static>> {
    if let Some(value) = integer(word) {
        return Some(Operand::Int(if is_negative { value.wrapping_neg() } else { value }));
    }
    if word.starts_with("0f") || word.starts_with("0F") {
        let bits = u32::from_str_radix(&word[2..], 16).ok().filter(|_| word.len() == 10)?;
        return Some(Operand::Single(if is_negative { bits ^ 0x8000_0000 } else { bits }));
    }
    float(word).map(|value| Operand::Float(if is_negative { -value } else { value }))
}

/// A whole number in any base.
pub(super) fn integer(word: &str) -> Option<u64> {
    let digits = word.strip_suffix('U').unwrap_or(word);
    if let Some(hex) = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        return u64::from_str_radix(hex, 16).ok();
    }
    if let Some(binary) = digits.strip_prefix("0b") {
        return u64::from_str_radix(binary, 2).ok();
    }
    match digits.strip_prefix('0') {
        Some(octal) if !octal.is_empty() => u64::from_str_radix(octal, 8).ok(),
        _ => digits.parse().ok(),
    }
}

/// A number with a point, or the bits of a single or double.
pub(super) fn float(word: &str) -> Option<f64> {
    let bits = |hex: &str, digits: usize| u64::from_str_radix(hex, 16).ok().filter(|_| hex.len() == digits);
    match word.get(..2) {
        Some("0f" | "0F") => bits(&word[2..], 8).map(|bits| f64::from(f32::from_bits(bits as u32))),
        Some("0d" | "0D") => bits(&word[2..], 16).map(f64::from_bits),
        _ if word.starts_with(|c: char| c.is_ascii_digit()) => {
            word.parse().ok().filter(|value: &f64| value.is_finite())
        }
        _ => None,
    }
}

fn special(name: &str) -> Option<Special> {
    let axis = |name: &str| match name {
        "x" => Some(0),
        "y" => Some(1),
        "z" => Some(2),
        _ => None,
    };
    if let Some((base, end)) = name.split_once('.') {
        let axis = axis(end)?;
        return match base {
            "tid" => Some(Special::Tid(axis)),
            "ntid" => Some(Special::Ntid(axis)),
            "ctaid" => Some(Special::Ctaid(axis)),
            "nctaid" => Some(Special::Nctaid(axis)),
            _ => None,
        };
    }
    Some(match name {
        "laneid" => Special::LaneId,
        "warpid" => Special::WarpId,
        "nwarpid" => Special::NWarpId,
        "lanemask_eq" => Special::LaneMask(LaneMask::Eq),
        "lanemask_le" => Special::LaneMask(LaneMask::Le),
        "lanemask_lt" => Special::LaneMask(LaneMask::Lt),
        "lanemask_ge" => Special::LaneMask(LaneMask::Ge),
        "lanemask_gt" => Special::LaneMask(LaneMask::Gt),
        "total_smem_size" => Special::TotalShared,
        "dynamic_smem_size" => Special::DynamicShared,
        _ => return None,
    })
}
