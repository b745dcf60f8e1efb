//! Declarations of arrays, variables and parameters.

use super::operand::{float, integer};
use super::{Cursor, Result, dotted_type};
use crate::types::Ty;

/// Greatest alignment, and greatest size of an array in bytes.
const MAX_ALIGN: usize = 1 << 12;
const MAX_BYTES: usize = 1 << 30;

/// `.shared .align 16 .b8 name[512]`, also with initial values, and without its semicolon a parameter.
pub(super) struct Declaration<'t> {
    pub(super) space: &'t str,
    pub(super) is_extern: bool,
    pub(super) name: &'t str,
    pub(super) bytes: usize,
    pub(super) align: usize,
    pub(super) initial: Option<Vec<u8>>,
}

impl<'t> Declaration<'t> {
    /// Reads a declaration; of a parameter everything but the comma or bracket behind it.
    pub(super) fn read(cursor: &mut Cursor<'t>) -> Result<Declaration<'t>> {
        let is_extern = cursor.accept(".extern");
        let space = cursor.take()?.text;
        if !matches!(space, ".shared" | ".const" | ".global" | ".local" | ".param") {
            return cursor.error(format!("`{space}` is not a declaration that is known"));
        }
        let (mut ty, mut align) = (None, None);
        while cursor.peek().starts_with('.') {
            let word = cursor.take()?.text;
            match word {
                ".align" => align = Some(cursor.count()?),
                // The space that a parameter points to is of no matter here.
                ".ptr" | ".global" | ".shared" | ".const" | ".local" if space == ".param" => {}
                _ => match dotted_type(word) {
                    Some(found) if ty.is_none() => ty = Some(found),
                    _ => return cursor.error(format!("`{word}` in a declaration")),
                },
            }
        }
        let Some(ty) = ty else { return cursor.error("declaration without a type") };
        let align = align.unwrap_or(ty.size());
        if !align.is_power_of_two() || align > MAX_ALIGN {
            return cursor.error(format!("alignment {align} is no power of two, or too great"));
        }
        let name = cursor.name()?;
        let (count, is_open) = read_extents(cursor)?;
        if is_open != is_extern && space != ".param" {
            return cursor.error(format!("{name} has no size, or one that it must not have"));
        }
        let Some(bytes) = count.checked_mul(ty.size()).filter(|bytes| *bytes <= MAX_BYTES) else {
            return cursor.error(format!("{name} is too great"));
        };
        let initial = if cursor.accept("=") { Some(read_initial(cursor, ty, bytes)?) } else { None };
        if space != ".param" {
            cursor.expect(";")?;
        }
        Ok(Declaration { space, is_extern, name, bytes, align, initial })
    }
}

/// `[2][3]` is six; `[]` is open.
fn read_extents(cursor: &mut Cursor<'_>) -> Result<(usize, bool)> {
    let (mut count, mut is_open) = (1, false);
    while cursor.accept("[") {
        if cursor.accept("]") {
            is_open = true;
            continue;
        }
        let extent = cursor.count()?;
        count = usize::checked_mul(count, extent).unwrap_or(usize::MAX);
        cursor.expect("]")?;
    }
    Ok((count, is_open))
}

/// Values in braces (nested ones count as flat) or a single value; the rest is zero.
fn read_initial(cursor: &mut Cursor<'_>, ty: Ty, bytes: usize) -> Result<Vec<u8>> {
    let (mut found, mut depth) = (Vec::with_capacity(bytes), 0);
    loop {
        if cursor.accept("{") {
            depth += 1;
            continue;
        }
        if cursor.accept("}") {
            depth -= 1;
        } else if !cursor.accept(",") {
            let is_negative = cursor.accept("-");
            let word = cursor.take()?.text;
            let Some(bits) = scalar(word, is_negative, ty) else {
                return cursor.error(format!("`{word}` is not a value of .{}", ty.name()));
            };
            found.extend_from_slice(&bits.to_le_bytes()[..ty.size()]);
        }
        if depth == 0 {
            break;
        }
    }
    if found.len() > bytes {
        return cursor.error("more values than the array has room for");
    }
    found.resize(bytes, 0);
    Ok(found)
}

fn scalar(word: &str, is_negative: bool, ty: Ty) -> Option<u64> {
    if let Some(value) = integer(word) {
        return Some(if is_negative { value.wrapping_neg() } else { value });
    }
    let value = float(word)?;
    let value = if is_negative { -value } else { value };
    Some(if ty == Ty::F64 { value.to_bits() } else { u64::from((value as f32).to_bits()) })
}
