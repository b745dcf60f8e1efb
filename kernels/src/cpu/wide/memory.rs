//! Loads and stores of vectors, whole or as far as a row goes.
//!
//! Guarantees that no byte beyond the last element of a row is read or written: masks leave the lanes beyond it alone,
//! and short elements, for which AVX2 has no masks, go in pieces, or through a place of the stack if their number is not
//! known.

use retape_runtime::DType;
use smallvec::{SmallVec, smallvec};

use super::code::{
    Cell, Code, ElementAddress, LaneCount, MoveWidth, RegClass, RegField, RegOrMem, Row, Scattered, Virtual,
};
use super::emit::{VirtualRegs, WideEmitter, WideVal, is_wide};
use super::encode::{Constant, Len, RSP};
use super::ops::{self, Op};
use super::strided::min_turned;
use crate::ir::Compare;
use crate::schedule::PermutedRows;

/// The elements that are left of a row where they are fewer than a vector has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tail {
    /// The lanes that have one.
    pub(super) mask: Virtual,
    /// How many there are.
    pub(super) left: Cell,
    /// Their number, if it is known.
    pub(super) count: Option<usize>,
}

/// The sums of a reduction that lie in the frame, one for each column of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct StripSums {
    /// Bytes from the stack pointer to the sum of the first column of a block.
    pub(super) at: i32,
    /// Where the sum of the first column of all would lie.
    pub(super) origin: Cell,
    /// Bytes of a sum, as registers hold it.
    pub(super) size: usize,
}

fn unit(dtype: DType) -> Option<MoveWidth> {
    MoveWidth::of(dtype.size())
}

/// The instruction that makes words of short elements.
fn widening(unit: MoveWidth) -> Op {
    match unit {
        MoveWidth::Byte => ops::BYTES_TO_WORDS,
        MoveWidth::Half => ops::HALVES_TO_WORDS,
    }
}

/// The pieces of fewer than 16 bytes, the largest first: where each begins, and its size, a power of two.
fn pieces_of_short(bytes: usize) -> impl Iterator<Item = (usize, usize)> {
    let sizes = [8, 4, 2, 1].into_iter().filter(move |size| bytes & size != 0);
    sizes.map(move |size| (bytes & !(2 * size - 1), size))
}

impl Tail {
    /// The lanes that have an element, as a value.
    pub(super) fn lanes(self) -> WideVal {
        WideVal::new(DType::Bool, smallvec![self.mask])
    }
}

impl WideEmitter {
    /// Neighbouring elements.
    pub(super) fn load(&mut self, dtype: DType, from: ElementAddress, tail: Option<Tail>) -> WideVal {
        match (unit(dtype), tail) {
            (Some(unit), Some(Tail { count: Some(count), .. })) if !self.level.has_masks() => {
                let short = self.load_short_pieces(from, count * dtype.size());
                let words = self.one(widening(unit), short);
                self.elements(dtype, smallvec![words])
            }
            (Some(unit), Some(tail)) if !self.level.has_masks() => {
                let frame = self.regs.slot();
                self.block.push(Code::CopyLeft { unit, memory: from, frame, left: tail.left, loads: true });
                let from = ElementAddress { pointer: Cell::Register(RSP), shift: None, displacement: frame };
                self.load_under(dtype, from, None)
            }
            _ => self.load_under(dtype, from, tail.map(|tail| tail.mask)),
        }
    }

    /// Neighbouring elements, as far as a mask has their lanes; 0 in the other lanes. For short ones, masks must be registers
    /// of their own.
    pub(super) fn load_under(&mut self, dtype: DType, from: ElementAddress, mask: Option<Virtual>) -> WideVal {
        if let Some(unit) = unit(dtype) {
            let (op, to) = (widening(unit), self.vector());
            self.push(Row::of(op, self.len, RegField::Define(to), RegOrMem::Memory(from)).masked(mask, true));
            return self.elements(dtype, smallvec![to]);
        }
        let wide = is_wide(dtype);
        let masks = mask.map(|mask| self.masks(mask, dtype));
        let n = if wide { 2 } else { 1 };
        let part = |n: usize| {
            let to = self.vector();
            let memory = RegOrMem::Memory(from.behind((n * self.len.bytes()) as i32));
            let mask = masks.as_ref().map(|masks| masks[n]);
            let row = match mask {
                Some(mask) if self.regs.class(mask) == RegClass::Vector => {
                    Row::of(ops::load_masked(wide), self.len, RegField::Define(to), memory).v(RegField::Use(mask))
                }
                _ => Row::of(ops::move_elements(wide), self.len, RegField::Define(to), memory).masked(mask, true),
            };
            self.push(row);
            to
        };
        WideVal::new(dtype, (0..n).map(part).collect())
    }

    /// The first `bytes` of a register, fewer than 16, in pieces that are powers of two; zeros behind them.
    fn load_short_pieces(&mut self, from: ElementAddress, bytes: usize) -> Virtual {
        let mut short = None;
        for (at, size) in pieces_of_short(bytes) {
            let (to, memory) = (self.vector(), RegOrMem::Memory(from.behind(at as i32)));
            let row = match (short, size) {
                (None, 4 | 8) => Row::of(ops::load_lane(size == 8), Len::Bits128, RegField::Define(to), memory),
                (before, _) => {
                    let before = before.unwrap_or_else(|| self.word(0));
                    let op = match size {
                        4 => ops::INSERT_GENERAL,
                        2 => ops::INSERT_HALF,
                        _ => ops::INSERT_BYTE,
                    };
                    let row = Row::of(op, Len::Bits128, RegField::Define(to), memory);
                    row.v(RegField::Use(before)).imm((at / size) as u8)
                }
            };
            self.push(row);
            short = Some(to);
        }
        short.unwrap_or_else(|| self.word(0))
    }

    /// Elements that registers hold, short ones as zero-extended words.
    fn elements(&mut self, dtype: DType, regs: VirtualRegs) -> WideVal {
        if dtype == DType::Bool { self.non_zero(&WideVal::new(DType::I32, regs)) } else { WideVal::new(dtype, regs) }
    }

    fn non_zero(&mut self, words: &WideVal) -> WideVal {
        if self.level.has_masks() {
            let mask = self.test(ops::TEST_WORDS, words.regs[0], words.regs[0], None);
            return WideVal::new(DType::Bool, smallvec![mask]);
        }
        // Bytes are not negative.
        let zero = self.number(0.0, DType::I32);
        self.compare(Compare::Lt, &zero, words)
    }

    /// Elements at positions within a parameter, of 64 or 32 bits.
    pub(super) fn load_at(&mut self, dtype: DType, from: ElementAddress, at: &WideVal) -> WideVal {
        let (wide, far) = (is_wide(dtype), is_wide(at.dtype));
        let mut indices = at.regs.clone();
        if wide && !far {
            indices.push(self.upper_half(at.regs[0]));
        }
        let count = self.level.lanes() / if wide || far { 2 } else { 1 };
        let part = |&index: &Virtual| {
            let from = Scattered::At { from, stride: 0, index, far };
            self.collected(dtype, from, count)
        };
        let mut parts: VirtualRegs = indices.iter().map(part).collect();
        if parts.len() == 2 && !wide {
            parts = smallvec![self.joined(parts[0], parts[1])];
        }
        self.elements(dtype, parts)
    }

    /// Elements of 32 bits at positions within a parameter that has no more of them than a vector has lanes: a mask has a lane
    /// for each, if there are fewer.
    pub(super) fn load_permuted(
        &mut self,
        dtype: DType,
        from: ElementAddress,
        at: &WideVal,
        mask: Option<Virtual>,
    ) -> WideVal {
        let lanes = if is_wide(at.dtype) { self.low_words(at.regs[0], at.regs[1]) } else { at.regs[0] };
        let all = self.load_under(dtype, from, mask);
        WideVal::new(dtype, smallvec![self.two(ops::permute_by(false), lanes, all.regs[0])])
    }

    /// Neighbouring elements from a position on, of 64 bits or of 32, that is the same in all lanes; all of them that a mask
    /// has are within the parameter, and the other lanes are 0. For short ones, masks must be registers of their own.
    pub(super) fn load_from(
        &mut self,
        dtype: DType,
        from: ElementAddress,
        base: &WideVal,
        mask: Option<Virtual>,
    ) -> Option<WideVal> {
        let (wide, far, base, size) = (is_wide(dtype), is_wide(base.dtype), base.regs[0], dtype.size());
        let masks = mask.map(|mask| self.masks(mask, dtype));
        let part = |n: usize| {
            let (to, mask) = (self.vector(), masks.as_ref().map(|masks| masks[n]));
            let is_vector = mask.is_some_and(|mask| self.regs.class(mask) == RegClass::Vector);
            let op = match unit(dtype) {
                Some(_) if is_vector => return None,
                Some(unit) => widening(unit),
                None if is_vector => ops::load_masked(wide),
                None => ops::move_elements(wide),
            };
            let from = from.behind((n * self.len.bytes()) as i32);
            self.block.push(Code::LoadFrom { to, op, size, base, far, from, mask });
            Some(to)
        };
        let parts: VirtualRegs = (0..if wide { 2 } else { 1 }).map(part).collect::<Option<_>>()?;
        Some(self.elements(dtype, parts))
    }

    /// One element, at a position of 64 bits or of 32 within the parameter, in all lanes.
    pub(super) fn load_one_from(&mut self, dtype: DType, from: ElementAddress, at: &WideVal) -> WideVal {
        if unit(dtype).is_some() {
            // The position is the same in all lanes, and one lane is enough.
            let index = at.regs[0];
            let from = Scattered::At { from, stride: 0, index, far: is_wide(at.dtype) };
            let one = self.collected(dtype, from, 1);
            let words = self.one(ops::repeat(false), one);
            return self.elements(dtype, smallvec![words]);
        }
        let (to, wide, size) = (self.vector(), is_wide(dtype), dtype.size());
        let (op, far, base) = (ops::repeat(wide), is_wide(at.dtype), at.regs[0]);
        self.block.push(Code::LoadFrom { to, op, size, base, far, from, mask: None });
        WideVal::new(dtype, if wide { smallvec![to, to] } else { smallvec![to] })
    }

    /// Elements at a distance of `stride`.
    pub(super) fn load_strided(
        &mut self,
        dtype: DType,
        from: ElementAddress,
        stride: i32,
        tail: Option<Tail>,
    ) -> WideVal {
        let wide = is_wide(dtype);
        if stride == -1 && tail.is_none() {
            return self.load_reversed(dtype, from);
        }
        if stride == 2 && unit(dtype).is_none() && tail.is_none() {
            return self.load_paired(dtype, from);
        }
        let bytes = stride * dtype.size() as i32;
        let each = self.level.lanes() / if wide { 2 } else { 1 };
        let count = match tail {
            None if dtype.size() == 4 && (3..=self.most_interleaved()).contains(&stride) => {
                let [to, part] = [(); 2].map(|()| self.vector());
                self.block.push(Code::Deinterleave { to, part, from, stride: stride as usize });
                return WideVal::new(dtype, smallvec![to]);
            }
            None => self.level.lanes(),
            Some(Tail { count: Some(count), .. }) => count,
            Some(tail) => return self.load_strided_tail(dtype, from, stride, tail),
        };
        let n = if wide { 2 } else { 1 };
        let part = |n: usize| {
            let from = from.behind((n * each) as i32 * bytes);
            let count = count.saturating_sub(n * each).min(each);
            self.collected(dtype, Scattered::Along { from, stride: bytes }, count)
        };
        let parts: VirtualRegs = (0..n).map(part).collect();
        self.elements(dtype, parts)
    }

    /// The largest distance of words that are picked from vectors of all: beyond it, and for elements of 64 bits, lanes that
    /// are read one by one take as many steps.
    fn most_interleaved(&self) -> i32 {
        if self.level.has_masks() { 8 } else { 4 }
    }

    /// The first elements of neighbouring pairs, from two vectors of which the second ends with the last of them: nothing is
    /// read behind it.
    fn load_paired(&mut self, dtype: DType, from: ElementAddress) -> WideVal {
        let (wide, size) = (is_wide(dtype), dtype.size() as i32);
        let each = self.len.bytes() as i32 / size;
        let mut half = |at: i32| {
            let (to, op, from) = (self.vector(), ops::move_elements(wide), from.behind(at * size));
            self.block.push(match wide {
                true => Code::LoadAlong { to, op, from, stride: 2 * size },
                false => {
                    let from = ElementAddress { shift: Some(3), ..from };
                    Code::Row(Row::of(op, self.len, RegField::Define(to), RegOrMem::Memory(from)))
                }
            });
            to
        };
        let n = if wide { 2 } else { 1 };
        let halves: SmallVec<[[Virtual; 2]; 2]> =
            (0..n).map(|part| [0, each - 1].map(|at| half(2 * part * each + at))).collect();
        let joined = |&[low, high]: &[Virtual; 2]| {
            // Within each 128 bits, the even elements of the first and the odd ones of the second.
            let mixed = match wide {
                true => self.two_imm(ops::SHUFFLE_TWO_QUADS, low, high, 0xaa),
                false => self.two_imm(ops::SHUFFLE_TWO, low, high, 0xd8),
            };
            if self.len == Len::Bits256 {
                return self.one_of(ops::PERMUTE_QUADS, self.len, mixed, Some(0xd8));
            }
            let lanes = [0_u64, 2, 4, 6, 1, 3, 5, 7].into_iter().flat_map(u64::to_le_bytes).collect();
            let lanes = self.regs.constant(Constant::Lanes(lanes));
            self.two(ops::permute_by(true), lanes, mixed)
        };
        WideVal::new(dtype, halves.iter().map(joined).collect())
    }

    /// Neighbouring elements, the last one in memory first.
    fn load_reversed(&mut self, dtype: DType, from: ElementAddress) -> WideVal {
        let (wide, size) = (is_wide(dtype), dtype.size() as i32);
        let op = unit(dtype).map_or(ops::move_elements(wide), widening);
        let (n, all) = (if wide { 2 } else { 1 }, self.level.lanes() as i32);
        let part = |part: i32| {
            let to = self.vector();
            let from = from.behind(((part + 1) * (all / n) - 1) * -size);
            self.block.push(Code::LoadAlong { to, op, from, stride: -size });
            self.reversed(wide, to)
        };
        let regs = (0..n).map(part).collect();
        self.elements(dtype, regs)
    }

    /// The elements of a register, the last one first.
    fn reversed(&mut self, wide: bool, x: Virtual) -> Virtual {
        let n = self.len.bytes() / if wide { 8 } else { 4 };
        if wide && n == 4 {
            return self.one_of(ops::PERMUTE_QUADS, self.len, x, Some(0x1b));
        }
        let size = if wide { 8 } else { 4 };
        let lanes = (0..n as u64).rev().flat_map(|lane| lane.to_le_bytes()[..size].to_vec()).collect();
        let lanes = self.regs.constant(Constant::Lanes(lanes));
        self.two(ops::permute_by(wide), lanes, x)
    }

    /// Lanes beyond the end of a row read its last element.
    fn load_strided_tail(&mut self, dtype: DType, from: ElementAddress, stride: i32, tail: Tail) -> WideVal {
        let last = self.vector();
        self.block.push(Code::Count { to: last, from: Some(tail.left), offset: -1, wide: false });
        let lanes = self.numbers(false, 0);
        let lanes = self.either(ops::min_signed(false), last, lanes);
        let step = self.word(stride as u32);
        let index = self.either(ops::mul_low(false), lanes, step);
        let wide = is_wide(dtype);
        let indices: VirtualRegs = if wide { smallvec![index, self.upper_half(index)] } else { smallvec![index] };
        let count = self.level.lanes() / if wide { 2 } else { 1 };
        let stride = stride * dtype.size() as i32;
        let part = |&index: &Virtual| {
            let from = Scattered::At { from, stride, index, far: false };
            self.collected(dtype, from, count)
        };
        let parts: VirtualRegs = indices.iter().map(part).collect();
        self.elements(dtype, parts)
    }

    fn collected(&mut self, dtype: DType, from: Scattered, count: usize) -> Virtual {
        let [to, part] = [(); 2].map(|()| self.vector());
        self.block.push(Code::Collect { to, part, size: dtype.size(), from, count });
        to
    }

    /// One element in all lanes.
    pub(super) fn load_one(&mut self, dtype: DType, from: ElementAddress) -> WideVal {
        let to = self.vector();
        let Some(unit) = unit(dtype) else {
            let wide = is_wide(dtype);
            self.push(Row::of(ops::repeat(wide), self.len, RegField::Define(to), RegOrMem::Memory(from)));
            return WideVal::new(dtype, if wide { smallvec![to, to] } else { smallvec![to] });
        };
        self.block.push(Code::RepeatUnit { to, unit, from });
        self.elements(dtype, smallvec![to])
    }

    /// Writes neighbouring elements.
    pub(super) fn store(&mut self, value: &WideVal, to: ElementAddress, tail: Option<Tail>) {
        match unit(value.dtype) {
            Some(unit) => self.store_units(value, unit, to, tail),
            None => self.store_words(value, to, tail),
        }
    }

    /// Writes whole vectors of words past the caches.
    pub(super) fn store_past(&mut self, value: &WideVal, to: ElementAddress) {
        for (n, &reg) in value.regs.iter().enumerate() {
            let memory = RegOrMem::Memory(to.behind((n * self.len.bytes()) as i32));
            self.push(Row::of(ops::STREAM, self.len, RegField::Use(reg), memory));
        }
    }

    /// Writes elements at a distance of `stride`, by way of a place of the stack for a vector.
    pub(super) fn store_strided(
        &mut self,
        value: &WideVal,
        to: ElementAddress,
        stride: i32,
        tail: Option<Tail>,
        frame: i32,
    ) {
        let size = value.dtype.size();
        self.store_in_frame(value, frame);
        let lanes = match tail {
            None => LaneCount::Known(self.level.lanes()),
            Some(Tail { count: Some(count), .. }) => LaneCount::Known(count),
            Some(Tail { left, .. }) => LaneCount::Left(left),
        };
        self.block.push(Code::Scatter { size, frame, to, stride: stride * size as i32, lanes });
    }

    /// Writes a vector to a place of the stack.
    pub(super) fn store_in_frame(&mut self, value: &WideVal, frame: i32) {
        let inside = ElementAddress { pointer: Cell::Register(RSP), shift: None, displacement: frame };
        self.store(value, inside, None);
    }

    /// Reads rows of so many words, which follow each other, to vectors of the frame, one for each column, or writes them from
    /// there.
    pub(super) fn turn(&mut self, columns: usize, frame: i32, memory: ElementAddress, loads: bool) {
        let parts = [(); 5].map(|()| self.vector());
        self.block.push(Code::Turn { parts, columns, frame, memory, loads });
    }

    /// Writes vectors of words that lie in the frame in turn, word by word.
    pub(super) fn store_interleaved(&mut self, ways: usize, frame: i32, memory: ElementAddress) {
        if ways >= min_turned(self.level) {
            return self.turn(ways, frame, memory, false);
        }
        let [made, before] = [(); 2].map(|()| self.vector());
        self.block.push(Code::Interleave { made, before, ways, frame, memory });
    }

    /// Writes some rows that are permutations of others.
    pub(super) fn store_permuted(
        &mut self,
        rows: &PermutedRows,
        n_rows: usize,
        from: ElementAddress,
        to: ElementAddress,
    ) {
        let parts = [(); 2].map(|()| self.vector());
        self.block.push(Code::Permute { rows: Box::new(rows.clone()), n_rows, parts, from, to });
    }

    fn store_words(&mut self, value: &WideVal, to: ElementAddress, tail: Option<Tail>) {
        let wide = is_wide(value.dtype);
        if let Some(count) = tail.and_then(|tail| tail.count) {
            return self.store_pieces(value, to, count * value.dtype.size());
        }
        let masks = tail.map(|tail| self.masks(tail.mask, value.dtype));
        for (n, &reg) in value.regs.iter().enumerate() {
            let memory = RegOrMem::Memory(to.behind((n * self.len.bytes()) as i32));
            let mask = masks.as_ref().map(|masks| masks[n]);
            let row = match mask {
                Some(mask) if self.regs.class(mask) == RegClass::Vector => {
                    Row::of(ops::store_masked(wide), self.len, RegField::Use(reg), memory).v(RegField::Use(mask))
                }
                _ => Row::of(ops::store_elements(wide), self.len, RegField::Use(reg), memory).masked(mask, false),
            };
            self.push(row);
        }
    }

    /// The first `bytes` of a value, in pieces that are powers of two: masked stores are slow on some machines.
    fn store_pieces(&mut self, value: &WideVal, to: ElementAddress, bytes: usize) {
        let full = self.len.bytes();
        for (n, &reg) in value.regs.iter().enumerate() {
            let left = bytes.saturating_sub(n * full).min(full);
            let (mut reg, mut at) = (reg, 0);
            while at < left {
                let (op, len, size) = match left - at {
                    64 => (ops::STORE, Len::Bits512, 64),
                    32.. => (ops::STORE, Len::Bits256, 32),
                    16.. => (ops::STORE, Len::Bits128, 16),
                    8.. => (ops::move_from_lane(true), Len::Bits128, 8),
                    _ => (ops::move_from_lane(false), Len::Bits128, 4),
                };
                self.push(Row::of(op, len, RegField::Use(reg), RegOrMem::Memory(to.behind((n * full + at) as i32))));
                at += size;
                if at < left {
                    // The rest moves to the front.
                    reg = match size {
                        32 => self.extracted(ops::EXTRACT_256, reg, 1),
                        16 => self.extracted(ops::EXTRACT_128, reg, 1),
                        _ => self.one_of(ops::SHUFFLE, Len::Bits128, reg, Some(0x4e)),
                    };
                }
            }
        }
    }

    fn store_units(&mut self, value: &WideVal, unit: MoveWidth, to: ElementAddress, tail: Option<Tail>) {
        if self.level.has_masks() {
            let mask = tail.map(|tail| tail.mask);
            let (op, len, reg) = match (value.dtype, unit) {
                (DType::Bool, _) => (ops::STORE_BYTES, Len::Bits128, self.bytes_of_mask(value.regs[0])),
                (_, MoveWidth::Byte) => (ops::NARROW_BYTES, self.len, value.regs[0]),
                (_, MoveWidth::Half) => (ops::NARROW_HALVES, self.len, value.regs[0]),
            };
            return self.push(Row::of(op, len, RegField::Use(reg), RegOrMem::Memory(to)).masked(mask, false));
        }
        let (reg, op, len) = match unit {
            MoveWidth::Byte => {
                let words = self.words_of(value);
                (self.low_bytes(words), ops::move_from_lane(true), Len::Bits128)
            }
            MoveWidth::Half => (self.low_halves(value.regs[0]), ops::STORE, Len::Bits128),
        };
        let Some(tail) = tail else {
            return self.push(Row::of(op, len, RegField::Use(reg), RegOrMem::Memory(to)));
        };
        if let Some(count) = tail.count {
            return self.store_short_pieces(reg, to, count * value.dtype.size());
        }
        let frame = self.regs.slot();
        let inside = ElementAddress { pointer: Cell::Register(RSP), shift: None, displacement: frame };
        self.push(Row::of(op, len, RegField::Use(reg), RegOrMem::Memory(inside)));
        self.block.push(Code::CopyLeft { unit, memory: to, frame, left: tail.left, loads: false });
    }

    /// The first `bytes` of a register, fewer than 16, in pieces that are powers of two.
    fn store_short_pieces(&mut self, reg: Virtual, to: ElementAddress, bytes: usize) {
        for (at, size) in pieces_of_short(bytes) {
            let (op, lane) = match (at, size) {
                (0, 4 | 8) => (ops::move_from_lane(size == 8), None),
                (_, 4) => (ops::EXTRACT_LANE, Some((at / size) as u8)),
                (_, 2) => (ops::EXTRACT_HALF, Some((at / size) as u8)),
                _ => (ops::EXTRACT_BYTE, Some((at / size) as u8)),
            };
            let row = Row::of(op, Len::Bits128, RegField::Use(reg), RegOrMem::Memory(to.behind(at as i32)));
            self.push(Row { imm: lane, ..row });
        }
    }

    /// A mask register as bytes of 0 and 1.
    fn bytes_of_mask(&mut self, mask: Virtual) -> Virtual {
        let ones = self.regs.constant(Constant::Lanes(vec![1; self.level.len().bytes()]));
        let to = self.vector();
        let row = Row::of(ops::LOAD_BYTES, Len::Bits128, RegField::Define(to), RegOrMem::Register(RegField::Use(ones)));
        self.push(row.masked(Some(mask), true));
        to
    }

    /// The elements as numbers in words; a mask as zeros and ones.
    fn words_of(&mut self, value: &WideVal) -> Virtual {
        if value.dtype != DType::Bool {
            return value.regs[0];
        }
        let one = self.word(1);
        self.either(ops::and(false), value.regs[0], one)
    }

    /// Writes the element that all lanes have.
    pub(super) fn store_one(&mut self, value: &WideVal, to: ElementAddress) {
        let wide = is_wide(value.dtype);
        match unit(value.dtype) {
            None => {
                let op = ops::move_from_lane(wide);
                self.push(Row::of(op, Len::Bits128, RegField::Use(value.regs[0]), RegOrMem::Memory(to)));
            }
            Some(unit) => {
                let is_mask = self.regs.class(value.regs[0]) == RegClass::Mask;
                let value = if is_mask { value.regs[0] } else { self.words_of(value) };
                self.block.push(Code::StoreUnit { value, unit, to });
            }
        }
    }
}
