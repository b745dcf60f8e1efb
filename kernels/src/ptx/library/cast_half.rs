//! Casts from and to the 16-bit floats, eight elements a thread.
//!
//! From `f64` the way leads over the `f32` that is rounded to odd: truncated, with the last bit set if anything was
//! lost, which the second rounding cannot tell from the exact value.

use retape_runtime::DType;

use super::{BLOCK, Code, Number, blocks};
use crate::library::CastHalf;
use crate::ptx::{Argument, Class, Launches, Reg, Target, ptx};

/// Elements of a thread.
const GROUP: usize = 8;

/// The launches of [`CastHalf`].
pub(in crate::ptx) fn cast_half(kernel: &CastHalf, target: Target) -> Launches {
    let CastHalf { from, to, len } = *kernel;
    if len == 0 {
        return Launches::default();
    }
    let groups = len.div_ceil(GROUP);
    let mut c = Code::new("cast_half", target, BLOCK, 2, len + GROUP * BLOCK as usize);
    let (source, target) = (c.param(0), c.param(1));
    let group = c.global_thread(BLOCK);
    let exists = c.test("lt", group, groups);
    c.if_then(exists, |c| {
        let (x, out) = (c.at(source, group, GROUP * from.size()), c.at(target, group, GROUP * to.size()));
        let whole = c.test("lt", group, len / GROUP);
        c.if_else(
            whole,
            |c| {
                let values = load_group(c, from, x);
                let values = values.map(|x| cast(c, from, to, x));
                store_group(c, to, out, values);
            },
            |c| {
                for i in 0..len % GROUP {
                    let x = c.load(Number(from), x, i * from.size());
                    let value = cast(c, from, to, x);
                    c.store(Number(to), out, i * to.size(), value);
                }
            },
        );
    });
    let arguments = [Argument::Operand(0), Argument::Operand(1)];
    Launches { launches: vec![c.launch(blocks(groups), BLOCK, &arguments)], scratch: 0 }
}

/// Elements and instructions of 16 bytes: how many elements each has, and the type it names them by.
fn vector(dtype: DType) -> (usize, &'static str) {
    match dtype {
        DType::F64 => (2, "v2.f64"),
        DType::F32 => (4, "v4.f32"),
        _ => (8, "v4.b32"),
    }
}

/// Registers as PTX lists them.
fn list(registers: &[Reg]) -> String {
    let names: Vec<String> = registers.iter().map(Reg::to_string).collect();
    format!("{{{}}}", names.join(", "))
}

fn load_group(c: &mut Code, dtype: DType, address: Reg) -> [Reg; GROUP] {
    let values: [Reg; GROUP] = c.regs(Class::of(dtype));
    let (count, ty) = vector(dtype);
    for (i, values) in values.chunks(count).enumerate() {
        if !dtype.is_half() {
            ptx!(c, "ld.global.{ty} {}, [{address}+{}]", list(values), 16 * i);
            continue;
        }
        let pairs: [Reg; GROUP / 2] = c.regs(Class::B32);
        ptx!(c, "ld.global.{ty} {}, [{address}]", list(&pairs));
        for (pair, halves) in pairs.iter().zip(values.chunks(2)) {
            ptx!(c, "mov.b32 {}, {pair}", list(halves));
        }
    }
    values
}

fn store_group(c: &mut Code, dtype: DType, address: Reg, values: [Reg; GROUP]) {
    let (count, ty) = vector(dtype);
    for (i, values) in values.chunks(count).enumerate() {
        if !dtype.is_half() {
            ptx!(c, "st.global.{ty} [{address}+{}], {}", 16 * i, list(values));
            continue;
        }
        let pairs: [Reg; GROUP / 2] = c.regs(Class::B32);
        for (pair, halves) in pairs.iter().zip(values.chunks(2)) {
            ptx!(c, "mov.b32 {pair}, {}", list(halves));
        }
        ptx!(c, "st.global.{ty} [{address}], {}", list(&pairs));
    }
}

/// One element as another dtype.
fn cast(c: &mut Code, from: DType, to: DType, x: Reg) -> Reg {
    let single = match from {
        DType::F16 => c.op(Class::F32, "cvt.f32.f16", format_args!("{x}")),
        DType::Bf16 => {
            let zero = c.op(Class::B16, "mov.b16", format_args!("0"));
            c.op(Class::F32, "mov.b32", format_args!("{{{zero}, {x}}}"))
        }
        DType::F64 => round_to_odd(c, x),
        _ => x,
    };
    match to {
        DType::F16 => c.op(Class::B16, "cvt.rn.f16.f32", format_args!("{single}")),
        DType::Bf16 if c.target().sm >= 80 => c.op(Class::B16, "cvt.rn.bf16.f32", format_args!("{single}")),
        DType::Bf16 => round_to_bf16(c, single),
        DType::F64 => c.op(Class::F64, "cvt.f64.f32", format_args!("{single}")),
        _ => single,
    }
}

/// The neighbour of a double with an odd last bit, unless it is a single itself.
fn round_to_odd(c: &mut Code, x: Reg) -> Reg {
    let truncated = c.op(Class::F32, "cvt.rz.f32.f64", format_args!("{x}"));
    let back = c.op(Class::F64, "cvt.f64.f32", format_args!("{truncated}"));
    let bits = c.op(Class::B32, "mov.b32", format_args!("{truncated}"));
    let odd = c.or(bits, 1);
    // False for NaN, which stays as it is.
    let lost = c.compare("ne", Number(DType::F64), back, x);
    let bits = c.select(lost, odd, bits);
    c.op(Class::F32, "mov.b32", format_args!("{bits}"))
}

/// The upper half of a single, rounded to nearest even in integers.
fn round_to_bf16(c: &mut Code, x: Reg) -> Reg {
    let bits = c.op(Class::B32, "mov.b32", format_args!("{x}"));
    let upper = c.shr(bits, 16);
    let is_odd = c.and(upper, 1);
    let half = c.add(is_odd, 0x7fff);
    let rounded = c.add(bits, half);
    // The fraction of a NaN must not round to that of infinity.
    let quiet = c.or(bits, 0x0040_0000);
    let nan = c.op(Class::Pred, "setp.nan.f32", format_args!("{x}, {x}"));
    let bits = c.select(nan, quiet, rounded);
    let [low, high] = c.regs(Class::B16);
    ptx!(c, "mov.b32 {{{low}, {high}}}, {bits}");
    high
}
