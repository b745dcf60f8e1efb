//! The entries of a sort: unsigned keys with positions, so that no two are equal and any algorithm is stable.
//!
//! A key of 32 bits and its position are one number, the key above; a key of 64 bits has its position beside it.

use retape_runtime::DType;

use super::{KernelWriter, NumberType};
use crate::ptx::{Class, Reg, ptx};

/// Entries in one word have positions, and keys that are indices, below this; the last number is that of no entry.
pub(super) const MAX_PACKED: usize = u32::MAX as usize;

/// Where keys come from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Keys {
    /// Elements along an axis: their dtype, the extent after the axis, and whether the largest comes first.
    Elements(NumberType, usize, bool),
    /// Indices, with the extent after their axis, into an axis of so many positions. Negative ones count from the
    /// end; those still out of range get the last key.
    Indices(DType, usize, usize),
}

impl Keys {
    /// The extent after the axis.
    pub(super) fn inner(self) -> usize {
        match self {
            Keys::Elements(_, inner, _) | Keys::Indices(_, inner, _) => inner,
        }
    }

    /// The kind of entries.
    pub(super) fn form(self) -> EntryForm {
        match self {
            Keys::Elements(number, ..) if number.size() == 8 => EntryForm::Pair,
            Keys::Elements(..) | Keys::Indices(..) => EntryForm::Packed,
        }
    }

    /// The key of the element at `element`.
    fn key(self, c: &mut KernelWriter, x: Reg, element: Reg) -> Reg {
        match self {
            Keys::Elements(number, _, descending) => {
                let from = c.at(x, element, number.size());
                let value = c.load(number, from, 0);
                element_key(c, number, value, descending)
            }
            Keys::Indices(dtype, _, len) => {
                let index = load_index(c, dtype, x, element);
                let (place, exists) = destination(c, index, len);
                let place = c.low(place);
                let last = c.op(Class::B32, "mov.b32", format_args!("0xffffffff"));
                c.select(exists, place, last)
            }
        }
    }

    /// The entry of the element at `element`, which has this position in its line.
    pub(super) fn entry(self, c: &mut KernelWriter, x: Reg, element: Reg, position: Reg) -> SortEntry {
        let key = self.key(c, x, element);
        match self.form() {
            EntryForm::Pair => SortEntry { key, position: Some(c.long(position)) },
            EntryForm::Packed => {
                let (position, packed) = (c.low(position), c.reg(Class::B64));
                ptx!(c, "mov.b64 {packed}, {{{position}, {key}}}");
                SortEntry { key: packed, position: None }
            }
        }
    }
}

/// An index as `i64`.
pub(super) fn load_index(c: &mut KernelWriter, dtype: DType, indices: Reg, i: Reg) -> Reg {
    let from = c.at(indices, i, dtype.size());
    let index = c.load(NumberType(dtype), from, 0);
    match dtype {
        DType::I32 => c.op(Class::B64, "cvt.s64.s32", format_args!("{index}")),
        DType::U32 => c.op(Class::B64, "cvt.u64.u32", format_args!("{index}")),
        DType::I64 | DType::U8 | DType::Bool | DType::F16 | DType::Bf16 | DType::F32 | DType::F64 => index,
    }
}

/// The position along an axis of `len` that an index means, as `u64`, and whether there is one.
pub(super) fn destination(c: &mut KernelWriter, index: Reg, len: usize) -> (Reg, Reg) {
    let from_end = c.add(index, len);
    let negative = c.op(Class::Pred, "setp.lt.s64", format_args!("{index}, 0"));
    let place = c.select(negative, from_end, index);
    let exists = c.test("lt", place, len);
    (place, exists)
}

/// A number with the wanted order among keys: NaN last, the two zeros equal.
fn element_key(c: &mut KernelWriter, number: NumberType, value: Reg, descending: bool) -> Reg {
    let (sign, all) = match number.size() {
        8 => ("0x8000000000000000", "0xffffffffffffffff"),
        _ => ("0x80000000", "0xffffffff"),
    };
    let key = match number.0 {
        DType::F32 | DType::F64 => {
            let zero = c.constant(number.small(0));
            // -0 becomes 0.
            let value = c.plus(number, value, zero);
            let (class, width) = if number.0 == DType::F32 { (Class::B32, 32) } else { (Class::B64, 64) };
            let bits = c.op(class, &format!("mov.b{width}"), format_args!("{value}"));
            let spread = c.op(class, &format!("shr.s{width}"), format_args!("{bits}, {}", width - 1));
            let mask = c.or(spread, sign);
            c.xor(bits, mask)
        }
        DType::I32 | DType::I64 => c.xor(value, sign),
        DType::U32 | DType::U8 | DType::Bool | DType::F16 | DType::Bf16 => value,
    };
    let key = if descending { c.xor(key, all) } else { key };
    match c.is_nan(number, value) {
        None => key,
        Some(nan) => {
            let last = c.reg(key.class);
            c.set(last, all);
            c.select(nan, last, key)
        }
    }
}

/// How entries are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryForm {
    /// In one word.
    Packed,
    /// In a word for the key and a word for the position.
    Pair,
}

/// An entry in registers of 64 bits.
#[derive(Clone, Copy)]
pub(super) struct SortEntry {
    key: Reg,
    position: Option<Reg>,
}

impl EntryForm {
    pub(super) fn size(self) -> usize {
        match self {
            EntryForm::Packed => 8,
            EntryForm::Pair => 16,
        }
    }

    /// An entry behind all others.
    pub(super) fn last(self, c: &mut KernelWriter) -> SortEntry {
        let key = c.op(Class::B64, "mov.b64", format_args!("-1"));
        SortEntry { key, position: (self == EntryForm::Pair).then_some(key) }
    }

    /// A load from a space, `global` or `shared`.
    pub(super) fn load(self, c: &mut KernelWriter, space: &str, address: Reg) -> SortEntry {
        let key = c.reg(Class::B64);
        match self {
            EntryForm::Packed => {
                ptx!(c, "ld.{space}.b64 {key}, [{address}]");
                SortEntry { key, position: None }
            }
            EntryForm::Pair => {
                let position = c.reg(Class::B64);
                ptx!(c, "ld.{space}.v2.b64 {{{key}, {position}}}, [{address}]");
                SortEntry { key, position: Some(position) }
            }
        }
    }
}

impl SortEntry {
    /// A store to a space, `global` or `shared`.
    pub(super) fn store(self, c: &mut KernelWriter, space: &str, address: Reg) {
        let key = self.key;
        match self.position {
            None => ptx!(c, "st.{space}.b64 [{address}], {key}"),
            Some(position) => ptx!(c, "st.{space}.v2.b64 [{address}], {{{key}, {position}}}"),
        }
    }

    /// Whether this entry comes before another.
    pub(super) fn is_before(self, c: &mut KernelWriter, other: SortEntry) -> Reg {
        let less = c.test("lt", self.key, other.key);
        match (self.position, other.position) {
            (Some(position), Some(other_position)) => {
                let equal = c.test("eq", self.key, other.key);
                let earlier = c.test("lt", position, other_position);
                let tie = c.and(equal, earlier);
                c.or(less, tie)
            }
            _ => less,
        }
    }

    /// The position, as `u64`.
    pub(super) fn position(self, c: &mut KernelWriter) -> Reg {
        match self.position {
            Some(position) => position,
            None => c.and(self.key, "0xffffffff"),
        }
    }

    /// Overwrites the registers with those of another entry.
    pub(super) fn set(self, c: &mut KernelWriter, other: SortEntry) {
        c.set(self.key, other.key);
        if let (Some(position), Some(other)) = (self.position, other.position) {
            c.set(position, other);
        }
    }

    /// New registers with the same entry.
    pub(super) fn copy(self, c: &mut KernelWriter) -> SortEntry {
        SortEntry { key: c.copy(self.key), position: self.position.map(|position| c.copy(position)) }
    }
}
