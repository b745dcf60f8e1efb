//! Numeric conversions between all pairs of dtypes.
//!
//! Guarantees rounding to nearest even towards floats, truncation from floats to integers, and saturation
//! of what integers. Every result is the exact value rounded once.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use retape_runtime::{DType, Scalar};
use smallvec::smallvec;

use super::emit::{Emitter, Regs, Val, vector_regs};
use super::libcalls::Lib;
use crate::ir::{Binary, Compare, int_range};

impl Emitter<'_> {
    /// A numeric conversion.
    pub(super) fn cast(&mut self, dtype: DType, x: &Val) -> Val {
        if x.dtype == dtype {
            return x.clone();
        }
        if x.vector { self.vector_cast(dtype, x) } else { self.scalar_cast(dtype, x) }
    }

    fn scalar_cast(&mut self, dtype: DType, x: &Val) -> Val {
        let value = x.regs[0];
        if x.dtype.is_half() {
            let lib = if x.dtype == DType::F16 { Lib::F16ToF32 } else { Lib::Bf16ToF32 };
            let wide = self.call(lib, &[value]);
            return self.cast(dtype, &Val::scalar(DType::F32, wide));
        }
        if dtype.is_half() {
            let lib = match (x.dtype, dtype) {
                (DType::I64, DType::F16) => Lib::I64ToF16,
                (DType::I64, _) => Lib::I64ToBf16,
                (_, DType::F16) => Lib::F64ToF16,
                _ => Lib::F64ToBf16,
            };
            let wide = if x.dtype == DType::I64 { x.clone() } else { self.cast(DType::F64, x) };
            let bits = self.call(lib, &[wide.regs[0]]);
            return Val::scalar(dtype, bits);
        }
        if dtype == DType::Bool {
            return self.non_zero(x);
        }
        let r = match x.dtype {
            DType::F32 | DType::F64 => self.float_to(dtype, x.dtype, value),
            DType::Bool => return self.bool_to(dtype, value),
            DType::I32 | DType::I64 | DType::U32 | DType::U8 => self.int_to(dtype, x.dtype, value),
            DType::F16 | DType::Bf16 => value,
        };
        Val::scalar(dtype, r)
    }

    fn non_zero(&mut self, x: &Val) -> Val {
        let zero = self.constant(Scalar::from_f64(0.0, x.dtype));
        let zero = if x.vector { self.vectorised(&zero) } else { zero };
        self.compare(Compare::Ne, x, &zero)
    }

    fn bool_to(&mut self, dtype: DType, x: Value) -> Val {
        if dtype == DType::I64 {
            let r = self.b.ins().uextend(types::I64, x);
            return Val::scalar(dtype, r);
        }
        let word = self.b.ins().uextend(types::I32, x);
        self.cast(dtype, &Val::scalar(DType::U8, word))
    }

    fn float_to(&mut self, to: DType, from: DType, x: Value) -> Value {
        let b = &mut self.b;
        match to {
            DType::F32 if from == DType::F64 => b.ins().fdemote(types::F32, x),
            DType::F64 if from == DType::F32 => b.ins().fpromote(types::F64, x),
            DType::I32 => b.ins().fcvt_to_sint_sat(types::I32, x),
            DType::U32 => b.ins().fcvt_to_uint_sat(types::I32, x),
            DType::I64 => b.ins().fcvt_to_sint_sat(types::I64, x),
            DType::U8 => {
                let word = b.ins().fcvt_to_uint_sat(types::I32, x);
                let most = b.ins().iconst(types::I32, 255);
                b.ins().umin(word, most)
            }
            DType::F32 | DType::F64 | DType::F16 | DType::Bf16 | DType::Bool => x,
        }
    }

    fn int_to(&mut self, to: DType, from: DType, x: Value) -> Value {
        let b = &mut self.b;
        match (to, from) {
            (DType::F32, DType::U32) => b.ins().fcvt_from_uint(types::F32, x),
            (DType::F64, DType::U32) => b.ins().fcvt_from_uint(types::F64, x),
            (DType::F32, _) => b.ins().fcvt_from_sint(types::F32, x),
            (DType::F64, _) => b.ins().fcvt_from_sint(types::F64, x),
            (DType::I64, DType::I32) => b.ins().sextend(types::I64, x),
            (DType::I64, _) => b.ins().uextend(types::I64, x),
            (DType::I32 | DType::U32 | DType::U8, _) => {
                let clamped = self.clamped_to(to, from, &Val::scalar(from, x));
                let x = clamped.regs[0];
                if from == DType::I64 { self.b.ins().ireduce(types::I32, x) } else { x }
            }
            (DType::F16 | DType::Bf16 | DType::Bool, _) => x,
        }
    }

    fn vector_cast(&mut self, dtype: DType, x: &Val) -> Val {
        use DType::{Bf16, Bool, F16, F32, F64, I32, I64, U8, U32};
        let regs: Regs = match (x.dtype, dtype) {
            (F32 | F64 | I32 | U32 | U8 | I64, Bool) => return self.non_zero(x),
            (Bool, _) if !dtype.is_half() => return self.mask_to_number(dtype, x),
            (F32, I32) => smallvec![self.b.ins().fcvt_to_sint_sat(types::I32X4, x.regs[0])],
            (F32, U32) => smallvec![self.b.ins().fcvt_to_uint_sat(types::I32X4, x.regs[0])],
            (F32, U8) => {
                let word = self.b.ins().fcvt_to_uint_sat(types::I32X4, x.regs[0]);
                let most = self.vconst_i32([255; 4]);
                smallvec![self.b.ins().umin(word, most)]
            }
            (I32 | U8, F32) => smallvec![self.b.ins().fcvt_from_sint(types::F32X4, x.regs[0])],
            (U32, F32) => smallvec![self.b.ins().fcvt_from_uint(types::F32X4, x.regs[0])],
            (I32 | U32 | U8 | I64, I32 | U32 | U8) => {
                let clamped = self.clamped_to(dtype, x.dtype, x);
                if x.dtype == I64 { smallvec![self.pick_words(&clamped.regs, 0)] } else { clamped.regs }
            }
            (I32, I64) => smallvec![self.b.ins().swiden_low(x.regs[0]), self.b.ins().swiden_high(x.regs[0])],
            (U32 | U8, I64) => smallvec![self.b.ins().uwiden_low(x.regs[0]), self.b.ins().uwiden_high(x.regs[0])],
            (F16 | Bf16, F32) => smallvec![self.floats_of_halves(x.dtype, x.regs[0])],
            (F32, F16 | Bf16) => smallvec![self.halves_of_floats(dtype, x.regs[0])],
            (F32, F64) => {
                let swapped = self.swap_halves(x.regs[0]);
                smallvec![self.b.ins().fvpromote_low(x.regs[0]), self.b.ins().fvpromote_low(swapped)]
            }
            _ => return self.cast_lanes(dtype, x),
        };
        Val::vector(dtype, regs)
    }

    /// `x` within the range of the integers `to`, still as a `from`.
    fn clamped_to(&mut self, to: DType, from: DType, x: &Val) -> Val {
        let ((low, high), (lowest, highest)) = (int_range(to), int_range(from));
        let mut x = x.clone();
        for (op, bound, needed) in [(Binary::Max, low, low > lowest), (Binary::Min, high, high < highest)] {
            if needed {
                let bits = if from == DType::I64 { bound as u64 } else { u64::from(bound as u32) };
                let bound = self.constant(Scalar { dtype: from, bits });
                let bound = if x.vector { self.vectorised(&bound) } else { bound };
                x = self.binary(op, &x, &bound);
            }
        }
        x
    }

    fn swap_halves(&mut self, x: Value) -> Value {
        let bytes: Vec<u8> = (0..16).map(|i| (i + 8) % 16).collect();
        let raw = self.raw_bitcast(types::I8X16, x);
        let mask = self.b.func.dfg.immediates.push(bytes.as_slice().into());
        let swapped = self.b.ins().shuffle(raw, raw, mask);
        self.raw_bitcast(types::F32X4, swapped)
    }

    /// The mask selects the bits of 1.
    fn mask_to_number(&mut self, dtype: DType, x: &Val) -> Val {
        let mask = self.mask(x, vector_regs(dtype));
        let one = self.constant(Scalar::from_f64(1.0, dtype));
        let one = self.vectorised(&one);
        let zero = self.constant(Scalar::from_f64(0.0, dtype));
        let zero = self.vectorised(&zero);
        self.select(&mask, &one, &zero)
    }

    /// `min(max(x, 0), len - 1)` of a position.
    pub(super) fn clamped(&mut self, x: Value, len: usize) -> Value {
        let zero = self.int(0);
        let last = self.int(len as i64 - 1);
        let negative = self.b.ins().icmp(IntCC::SignedLessThan, x, zero);
        let x = self.b.ins().select(negative, zero, x);
        let beyond = self.b.ins().icmp(IntCC::SignedGreaterThan, x, last);
        self.b.ins().select(beyond, last, x)
    }
}
