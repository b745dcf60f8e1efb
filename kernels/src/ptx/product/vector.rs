//! Vectors of neighbours in registers: reading and writing them, and their elements.

use retape_runtime::DType;

use super::index::{Address, div, mul};
use crate::ptx::{Class, PtxFunction, Reg, ptx};

/// Reads `bytes` into registers, or zeros if the predicate does not hold.
pub(super) fn fetch(f: &mut PtxFunction, from: Address, holds: Option<Reg>, bytes: usize, dtype: DType) -> Vec<Reg> {
    let (class, ty, n) = match (dtype.size(), bytes) {
        (8, _) => (Class::B64, "b64", bytes / 8),
        (_, 2) => (Class::B16, "b16", 1),
        _ => (Class::B32, "b32", bytes / 4),
    };
    let units: Vec<Reg> = (0..n).map(|_| f.reg(class)).collect();
    let guard = match holds {
        None => String::new(),
        Some(holds) => {
            units.iter().for_each(|unit| ptx!(f, "mov.{ty} {unit}, 0"));
            format!("@{holds} ")
        }
    };
    ptx!(f, "{guard}ld.global{} {}, {from}", vector(&units, ty), list(&units));
    units
}

pub(super) fn store_shared(f: &mut PtxFunction, guard: &str, to: Address, units: &[Reg]) {
    let ty = match units[0].class {
        Class::B64 => "b64",
        Class::B16 => "b16",
        Class::B32 | Class::F32 | Class::F64 | Class::Pred => "b32",
    };
    ptx!(f, "{guard}st.shared{} {to}, {}", vector(units, ty), list(units));
}

/// The suffix of an access to that many registers: `.v4.b32`.
pub(super) fn vector(regs: &[Reg], ty: &str) -> String {
    if regs.len() == 1 { format!(".{ty}") } else { format!(".v{}.{ty}", regs.len()) }
}

/// The registers of an access: `{%r0, %r1}`.
pub(super) fn list(regs: &[Reg]) -> String {
    let names: Vec<String> = regs.iter().map(Reg::to_string).collect();
    if regs.len() == 1 { names.concat() } else { format!("{{{}}}", names.join(", ")) }
}

/// The elements in `units`, as bits of another dtype.
pub(super) fn elements(f: &mut PtxFunction, units: &[Reg], from: DType, to: DType) -> Vec<Reg> {
    if from == to {
        return units.to_vec();
    }
    let mut elements = Vec::new();
    for &unit in units {
        if unit.class == Class::B16 {
            let bits = f.op(Class::B32, "cvt.u32.u16", format_args!("{unit}"));
            elements.push(widened(f, bits, from));
        } else {
            let high = div(f, unit, 1 << 16);
            elements.extend([widened(f, unit, from), widened(f, high, from)]);
        }
    }
    elements
}

/// The bits in single precision of the 16-bit float in the lower half of `bits`.
fn widened(f: &mut PtxFunction, bits: Reg, from: DType) -> Reg {
    if from != DType::F16 {
        return mul(f, bits, 1 << 16);
    }
    let half = f.op(Class::B16, "cvt.u16.u32", format_args!("{bits}"));
    let wide = f.op(Class::F32, "cvt.f32.f16", format_args!("{half}"));
    f.op(Class::B32, "mov.b32", format_args!("{wide}"))
}
