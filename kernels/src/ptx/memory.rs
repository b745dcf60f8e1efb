//! Loads and stores of one element and of several neighbours.
//!
//! A `bool` is a byte of 0 or 1 in memory and a predicate in a register.

use std::fmt;

use retape_runtime::DType;
use smallvec::SmallVec;

use super::function::{Class, PtxFunction, Reg, ptx};
use super::value::RegValue;

/// Where an address points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    /// Memory of the device.
    Global,
    /// Memory of the block.
    Shared,
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Space::Global => "global",
            Space::Shared => "shared",
        })
    }
}

/// Neighbouring elements.
pub(crate) type Elements = SmallVec<[RegValue; 8]>;

/// The largest access of one thread, in bytes.
const MAX_ACCESS: usize = 16;

/// The type of an access to one element.
const fn access(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "f32",
        DType::F64 => "f64",
        DType::F16 | DType::Bf16 => "b16",
        DType::I32 | DType::U32 => "b32",
        DType::I64 => "b64",
        DType::U8 | DType::Bool => "u8",
    }
}

/// The element at an address plus `offset` bytes.
pub(crate) fn load(f: &mut PtxFunction, space: Space, dtype: DType, address: Reg, offset: i64) -> RegValue {
    let class = if dtype == DType::Bool { Class::B32 } else { Class::of(dtype) };
    let d = f.op(class, &format!("ld.{space}.{}", access(dtype)), format_args!("[{address}+{offset}]"));
    from_word(f, dtype, d)
}

/// Writes an element at an address plus `offset` bytes, if `guard` holds.
pub(crate) fn store(f: &mut PtxFunction, space: Space, value: RegValue, address: Reg, offset: i64, guard: Option<Reg>) {
    let r = to_word(f, value);
    let guard = guard.map(|p| format!("@{p} ")).unwrap_or_default();
    ptx!(f, "{guard}st.{space}.{} [{address}+{offset}], {r}", access(value.dtype));
}

/// Neighbouring elements, the first at an address plus `offset` bytes that is a multiple of `align`.
pub(crate) fn load_many(
    f: &mut PtxFunction,
    dtype: DType,
    count: usize,
    address: Reg,
    offset: i64,
    align: usize,
) -> Elements {
    let mut elements = Elements::new();
    for part in parts(dtype, count, align) {
        let at = offset + (elements.len() * dtype.size()) as i64;
        if part.count == 1 {
            elements.push(load(f, Space::Global, dtype, address, at));
            continue;
        }
        let class = part.class(dtype);
        let regs: SmallVec<[Reg; 4]> = (0..part.n_regs(dtype)).map(|_| f.reg(class)).collect();
        ptx!(f, "ld.global{} {}, [{address}+{at}]", part.suffix(dtype), List(&regs));
        for r in regs {
            unpack(f, dtype, r, part.count, &mut elements);
        }
    }
    elements
}

/// Writes neighbouring elements, the first at an address plus `offset` bytes that is a multiple of `align`.
pub(crate) fn store_many(
    f: &mut PtxFunction,
    values: &[RegValue],
    address: Reg,
    offset: i64,
    align: usize,
    guard: Option<Reg>,
) {
    let Some(dtype) = values.first().map(|v| v.dtype) else { return };
    let mut done = 0;
    for part in parts(dtype, values.len(), align) {
        let at = offset + (done * dtype.size()) as i64;
        let values = &values[done..done + part.count];
        done += part.count;
        if part.count == 1 {
            store(f, Space::Global, values[0], address, at, guard);
            continue;
        }
        let per_reg = part.count / part.n_regs(dtype);
        let regs: SmallVec<[Reg; 4]> = values.chunks(per_reg).map(|part| pack(f, part)).collect();
        let guard = guard.map(|p| format!("@{p} ")).unwrap_or_default();
        ptx!(f, "{guard}st.global{} [{address}+{at}], {}", part.suffix(dtype), List(&regs));
    }
}

/// Elements of one access.
#[derive(Clone, Copy)]
struct VectorPart {
    count: usize,
}

/// The accesses to `count` neighbours.
fn parts(dtype: DType, count: usize, align: usize) -> SmallVec<[VectorPart; 8]> {
    let size = dtype.size();
    // The largest power of two that divides the alignment.
    let most = (1 << align.trailing_zeros().min(4)).min(MAX_ACCESS) / size;
    let most = most.max(1);
    let mut parts = SmallVec::new();
    let mut left = count;
    while left > 0 {
        // The largest power of two that fits; sizes fall, so that each part is aligned to itself.
        let count = most.min(1 << left.ilog2());
        parts.push(VectorPart { count });
        left -= count;
    }
    parts
}

impl VectorPart {
    fn bytes(self, dtype: DType) -> usize {
        self.count * dtype.size()
    }

    /// Registers of the access: small elements share one.
    fn n_regs(self, dtype: DType) -> usize {
        if dtype.size() == 8 { self.count } else { self.bytes(dtype).div_ceil(4) }
    }

    fn class(self, dtype: DType) -> Class {
        if dtype.size() >= 4 { Class::of(dtype) } else { Class::B32 }
    }

    fn suffix(self, dtype: DType) -> &'static str {
        match (dtype.size(), self.n_regs(dtype)) {
            (8, 2) => ".v2.b64",
            (8, _) => ".b64",
            (_, 4) => ".v4.b32",
            (_, 2) => ".v2.b32",
            // Two bytes, zero-extended.
            _ if self.bytes(dtype) == 2 => ".u16",
            _ => ".b32",
        }
    }
}

/// Registers as PTX writes several.
struct List<'a>(&'a [Reg]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [one] => write!(f, "{one}"),
            many => {
                let names: Vec<String> = many.iter().map(Reg::to_string).collect();
                write!(f, "{{{}}}", names.join(", "))
            }
        }
    }
}

/// Takes the elements out of a register of an access to `count` of them.
fn unpack(f: &mut PtxFunction, dtype: DType, r: Reg, count: usize, elements: &mut Elements) {
    match dtype.size() {
        1 => {
            for byte in 0..count.min(4) {
                let word = match byte {
                    3 => f.op(Class::B32, "shr.u32", format_args!("{r}, 24")),
                    0 => f.op(Class::B32, "and.b32", format_args!("{r}, 255")),
                    _ => {
                        let word = f.op(Class::B32, "shr.u32", format_args!("{r}, {}", 8 * byte));
                        f.op(Class::B32, "and.b32", format_args!("{word}, 255"))
                    }
                };
                elements.push(from_word(f, dtype, word));
            }
        }
        2 => {
            let [low, high] = f.regs(Class::B16);
            ptx!(f, "mov.b32 {{{low}, {high}}}, {r}");
            elements.extend([RegValue::new(dtype, low), RegValue::new(dtype, high)]);
        }
        _ => elements.push(RegValue::new(dtype, r)),
    }
}

/// The elements of one register.
fn pack(f: &mut PtxFunction, values: &[RegValue]) -> Reg {
    match values {
        [value] => value.reg,
        [low, high] if low.dtype.size() == 2 => {
            f.op(Class::B32, "mov.b32", format_args!("{{{}, {}}}", low.reg, high.reg))
        }
        _ => {
            let mut word = to_word(f, values[0]);
            for (byte, &value) in values.iter().enumerate().skip(1) {
                let r = to_word(f, value);
                let shifted = f.op(Class::B32, "shl.b32", format_args!("{r}, {}", 8 * byte));
                word = f.op(Class::B32, "or.b32", format_args!("{word}, {shifted}"));
            }
            word
        }
    }
}

/// The value of a word of memory; predicates do not come from memory.
pub(super) fn from_word(f: &mut PtxFunction, dtype: DType, r: Reg) -> RegValue {
    if dtype == DType::Bool {
        return RegValue::new(dtype, f.op(Class::Pred, "setp.ne.b32", format_args!("{r}, 0")));
    }
    RegValue::new(dtype, r)
}

/// The word of memory for a value.
pub(super) fn to_word(f: &mut PtxFunction, value: RegValue) -> Reg {
    if value.dtype == DType::Bool {
        return f.op(Class::B32, "selp.b32", format_args!("1, 0, {}", value.reg));
    }
    value.reg
}
