//! Numeric conversions, and vectors of elements of one size as those of another.
//!
//! Guarantees the results of Cranelift's code: rounding to nearest even towards floats, truncation and saturation
//! towards integers, 0 for NaN. The machine's conversions to integers give their lowest number, or the largest unsigned
//! one, for all that does not fit.

use retape_runtime::{DType, Scalar};
use smallvec::{SmallVec, smallvec};

use super::code::{RegField, RegOrMem, Row, Virtual};
use super::emit::{VirtualRegs, WideEmitter, WideVal, is_wide};
use super::encode::Len;
use super::ops::{self, Op, Shift};
use crate::ir::{Binary, Compare, int_range};

impl WideEmitter {
    /// A numeric conversion.
    pub(super) fn cast(&mut self, dtype: DType, x: &WideVal) -> Option<WideVal> {
        use DType::{Bf16, Bool, F16, F32, F64, I32, I64, U8, U32};
        let has_quads = self.level.has_masks();
        let regs = match (x.dtype, dtype) {
            (from, to) if from == to => return Some(x.clone()),
            (F16, F32) => {
                let halves = self.low_halves(x.regs[0]);
                smallvec![self.one(ops::HALF_TO_FLOAT, halves)]
            }
            (Bf16, F32) => smallvec![self.shift_imm(Shift::Left, false, x.regs[0], 16)],
            (F16 | Bf16, _) => {
                let wide = self.cast(F32, x)?;
                return self.cast(dtype, &wide);
            }
            // Each has an exact `f32`.
            (U8 | Bool, F16 | Bf16) => {
                let wide = self.cast(F32, x)?;
                return self.cast(dtype, &wide);
            }
            (F32, F16) => smallvec![self.half_of(x.regs[0])],
            (F32, Bf16) => return Some(self.bf16_of(x)),
            (_, F16 | Bf16) => return None,
            (_, Bool) => {
                let zero = self.number(0.0, x.dtype);
                return Some(self.compare(Compare::Ne, x, &zero));
            }
            (Bool, _) => {
                let (one, zero) = (self.number(1.0, dtype), self.number(0.0, dtype));
                return Some(self.select(x, &one, &zero));
            }
            (F32, I32) => smallvec![self.one(ops::FLOAT_TO_INT, x.regs[0])],
            (F64, I32) => smallvec![self.ints_of_doubles(&x.regs)],
            (F32 | F64, U32 | U8) => return Some(self.float_to_unsigned(dtype, x)),
            (F32, I64) => {
                let wide = self.cast(F64, x)?;
                return self.cast(I64, &wide);
            }
            (F64, I64) if has_quads => self.map(x, &mut |e, r| e.one(ops::DOUBLE_TO_QUAD, r)).regs,
            (I64, F64) if has_quads => self.map(x, &mut |e, r| e.one(ops::QUAD_TO_DOUBLE, r)).regs,
            (I64, F32) if has_quads => {
                let parts = self.map(x, &mut |e, r| e.one(ops::QUAD_TO_FLOAT, r)).regs;
                smallvec![self.joined(parts[0], parts[1])]
            }
            (F64, I64) | (I64, F64 | F32) => return None,
            (F64, F32) => {
                let parts = self.map(x, &mut |e, r| e.one(ops::DOUBLE_TO_FLOAT, r)).regs;
                smallvec![self.joined(parts[0], parts[1])]
            }
            (F32, F64) => self.quads_of_words(x.regs[0], ops::FLOAT_TO_DOUBLE),
            (I32 | U8, F32) => smallvec![self.one(ops::INT_TO_FLOAT, x.regs[0])],
            (U32, F32) => smallvec![self.unsigned_to_float(x.regs[0])],
            (I32 | U8, F64) => self.quads_of_words(x.regs[0], ops::INT_TO_DOUBLE),
            (U32, F64) => self.unsigned_to_double(x.regs[0]),
            (I32, I64) => self.quads_of_words(x.regs[0], ops::WORDS_TO_QUADS_SIGNED),
            (U32 | U8, I64) => self.quads_of_words(x.regs[0], ops::WORDS_TO_QUADS),
            (I32 | U32 | U8 | I64, I32 | U32 | U8 | I64) => return self.int_to_int(dtype, x),
            (F32 | F64, F32 | F64) => x.regs.clone(),
        };
        let made = WideVal::new(dtype, regs);
        Some(if x.dtype.is_float() && dtype.is_int() { self.saturated(made, x) } else { made })
    }

    /// A machine's signed conversion of a float, where the float does not fit.
    fn saturated(&mut self, made: WideVal, x: &WideVal) -> WideVal {
        let (limit, most) = match made.dtype {
            DType::I64 => (9_223_372_036_854_775_808.0, i64::MAX as u64),
            DType::I32 | DType::U32 | DType::U8 | DType::Bool | DType::F16 | DType::Bf16 | DType::F32 | DType::F64 => {
                (2_147_483_648.0, i32::MAX as u64)
            }
        };
        let limit = self.number(limit, x.dtype);
        let fits = self.compare(Compare::Lt, x, &limit);
        let most = self.constant(Scalar { dtype: made.dtype, bits: most });
        let made = self.select(&fits, &made, &most);
        let is_number = self.compare(Compare::Eq, x, x);
        let zero = self.number(0.0, made.dtype);
        self.select(&is_number, &made, &zero)
    }

    /// Clamped as a float, which loses nothing, and then converted as a signed integer or in two halves.
    fn float_to_unsigned(&mut self, dtype: DType, x: &WideVal) -> WideVal {
        let wide = is_wide(x.dtype);
        let zero = self.number(0.0, x.dtype);
        // The machine's maximum gives the second operand for NaN.
        let x = self.zip(x, &zero, &mut |e, p, q| e.two(ops::max_float(wide), p, q));
        let to_ints = |e: &mut Self, x: &WideVal| match x.regs.len() {
            2 => e.ints_of_doubles(&x.regs),
            _ => e.one(ops::FLOAT_TO_INT, x.regs[0]),
        };
        if dtype == DType::U8 {
            let most = self.number(255.0, x.dtype);
            let x = self.zip(&x, &most, &mut |e, p, q| e.either(ops::min_float(wide), p, q));
            return WideVal::new(dtype, smallvec![to_ints(self, &x)]);
        }
        if !wide && self.level.has_masks() {
            return WideVal::new(dtype, smallvec![self.one(ops::FLOAT_TO_UNSIGNED, x.regs[0])]);
        }
        // The upper half begins here; there, the numbers less this are exact.
        let middle = self.number(2_147_483_648.0, x.dtype);
        let less = self.zip(&x, &middle, &mut |e, p, q| e.two(ops::sub_float(wide), p, q));
        let [low, high] = [&x, &less].map(|x| WideVal::new(DType::I32, smallvec![to_ints(self, x)]));
        let high = self.saturated(high, &less);
        let sign = self.word(1 << 31);
        let high = self.map(&high, &mut |e, r| e.either(ops::xor(false), r, sign));
        let is_low = self.compare(Compare::Lt, &x, &middle);
        WideVal { dtype, ..self.select(&is_low, &low, &high) }
    }

    /// Half by half: the upper one times 2^16 is exact, and so is the lower one, so that the sum rounds once.
    fn unsigned_to_float(&mut self, x: Virtual) -> Virtual {
        if self.level.has_masks() {
            return self.one(ops::UNSIGNED_TO_FLOAT, x);
        }
        let high = self.shift_imm(Shift::Right, false, x, 16);
        let high = self.one(ops::INT_TO_FLOAT, high);
        let scale = self.word(65_536.0_f32.to_bits());
        let high = self.either(ops::mul_float(false), high, scale);
        let mask = self.word(0xffff);
        let low = self.either(ops::and(false), x, mask);
        let low = self.one(ops::INT_TO_FLOAT, low);
        self.either(ops::add_float(false), high, low)
    }

    /// As a signed number less 2^31, which is then added; both are exact.
    fn unsigned_to_double(&mut self, x: Virtual) -> VirtualRegs {
        let sign = self.word(1 << 31);
        let flipped = self.either(ops::xor(false), x, sign);
        let middle = self.quad(2_147_483_648.0_f64.to_bits());
        let parts = self.quads_of_words(flipped, ops::INT_TO_DOUBLE);
        parts.into_iter().map(|r| self.either(ops::add_float(true), r, middle)).collect()
    }

    fn ints_of_doubles(&mut self, x: &[Virtual]) -> Virtual {
        let parts: SmallVec<[Virtual; 2]> = x.iter().map(|&r| self.one(ops::DOUBLE_TO_INT, r)).collect();
        self.joined(parts[0], parts[1])
    }

    /// Clamped to the range of the integers, then narrowed.
    fn int_to_int(&mut self, to: DType, x: &WideVal) -> Option<WideVal> {
        let ((low, high), (lowest, highest)) = (int_range(to), int_range(x.dtype));
        let mut x = x.clone();
        for (op, bound, is_needed) in [(Binary::Max, low, low > lowest), (Binary::Min, high, high < highest)] {
            if is_needed {
                let bits = if is_wide(x.dtype) { bound as u64 } else { u64::from(bound as u32) };
                let bound = self.constant(Scalar { dtype: x.dtype, bits });
                x = self.binary(op, &x, &bound)?;
            }
        }
        let regs = if is_wide(x.dtype) { smallvec![self.low_words(x.regs[0], x.regs[1])] } else { x.regs };
        Some(WideVal::new(to, regs))
    }

    fn half_of(&mut self, x: Virtual) -> Virtual {
        let halves = self.vector();
        let row = Row::of(ops::FLOAT_TO_HALF, self.len, RegField::Use(x), RegOrMem::Register(RegField::Define(halves)));
        self.push(row.imm(0));
        self.one(ops::HALVES_TO_WORDS, halves)
    }

    /// The upper half, rounded to nearest even by an addition; NaN keeps its upper bits and becomes quiet.
    fn bf16_of(&mut self, x: &WideVal) -> WideVal {
        let r = x.regs[0];
        let high = self.shift_imm(Shift::Right, false, r, 16);
        let (one, below) = (self.word(1), self.word(0x7fff));
        let is_odd = self.either(ops::and(false), high, one);
        let rounding = self.either(ops::add_int(false), is_odd, below);
        let rounded = self.either(ops::add_int(false), r, rounding);
        let rounded = self.shift_imm(Shift::Right, false, rounded, 16);
        let quiet = self.word(0x40);
        let nan = self.either(ops::or(false), high, quiet);
        let is_number = self.compare(Compare::Eq, x, x);
        let [rounded, nan] = [rounded, nan].map(|r| WideVal::new(DType::Bf16, smallvec![r]));
        self.select(&is_number, &rounded, &nan)
    }

    /// Two halves as a whole vector.
    pub(super) fn joined(&mut self, low: Virtual, high: Virtual) -> Virtual {
        let op = if self.level.has_masks() { ops::INSERT_256 } else { ops::INSERT_128 };
        self.two_imm(op, low, high, 1)
    }

    /// The upper half of a vector as a lower one.
    pub(super) fn upper_half(&mut self, x: Virtual) -> Virtual {
        let op = if self.level.has_masks() { ops::EXTRACT_256 } else { ops::EXTRACT_128 };
        self.extracted(op, x, 1)
    }

    /// A part of a vector.
    pub(super) fn extracted(&mut self, op: Op, x: Virtual, part: u8) -> Virtual {
        let to = self.vector();
        let len = self.level.len();
        self.push(Row::of(op, len, RegField::Use(x), RegOrMem::Register(RegField::Define(to))).imm(part));
        to
    }

    /// Each word as an element of 64 bits, by an instruction that takes half a vector.
    pub(super) fn quads_of_words(&mut self, x: Virtual, op: Op) -> VirtualRegs {
        let upper = self.upper_half(x);
        [x, upper].into_iter().map(|half| self.one(op, half)).collect()
    }

    /// The low words of the elements of two vectors.
    pub(super) fn low_words(&mut self, low: Virtual, high: Virtual) -> Virtual {
        if self.level.has_masks() {
            let [low, high] = [low, high].map(|r| self.narrowed(ops::NARROW_WORDS, r));
            return self.joined(low, high);
        }
        let mixed = self.two_imm(ops::SHUFFLE_TWO, low, high, 0x88);
        self.one_of(ops::PERMUTE_QUADS, self.len, mixed, Some(0xd8))
    }

    /// The low part of each element, side by side.
    pub(super) fn narrowed(&mut self, op: Op, x: Virtual) -> Virtual {
        let to = self.vector();
        self.push(Row::of(op, self.len, RegField::Use(x), RegOrMem::Register(RegField::Define(to))));
        to
    }

    /// The low half of each word, side by side.
    pub(super) fn low_halves(&mut self, x: Virtual) -> Virtual {
        if self.level.has_masks() {
            return self.narrowed(ops::NARROW_HALVES, x);
        }
        let packed = self.two(ops::PACK_WORDS_UNSIGNED, x, x);
        self.one_of(ops::PERMUTE_QUADS, self.len, packed, Some(0xd8))
    }

    /// The low byte of each word, side by side in the lowest 64 bits; of words without more than a byte, with AVX2.
    pub(super) fn low_bytes(&mut self, x: Virtual) -> Virtual {
        let halves = self.low_halves(x);
        let to = self.vector();
        let [v, rm] = [RegField::Use(halves); 2];
        let op = ops::PACK_BYTES_UNSIGNED;
        self.push(Row::of(op, Len::Bits128, RegField::Define(to), RegOrMem::Register(rm)).v(v));
        to
    }
}
