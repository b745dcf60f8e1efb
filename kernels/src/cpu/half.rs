//! Vectors of 16-bit floats from and to `f32`, by integer arithmetic: not every processor has instructions for it.
//!
//! Guarantees the values of the scalar conversions: rounding once to nearest even, subnormal numbers and infinities
//! included; NaN becomes quiet. Halves become floats without arithmetic on subnormal numbers, which would take long.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use retape_runtime::DType;

use super::emit::Emitter;

/// The magnitude of an `f32`, its infinity, and the quiet bit of a NaN.
const MAGNITUDE: i32 = 0x7fff_ffff;
const INFINITY: i32 = 0x7f80_0000;
const QUIET: i32 = 0x0040_0000;

/// Of `f16`: the smallest normal number and the last place of subnormal ones, 2^-24, as `f32`; the places that `f32` has
/// beyond; and how far the biases of exponents are apart.
const SMALLEST_F16: i32 = 0x3880_0000;
const F16_PLACE: i32 = (127 - 24) << 23;
const F16_PLACES: i32 = 13;
const F16_BIAS: i32 = (127 - 15) << 23;

impl Emitter<'_> {
    fn words(&mut self, x: i32) -> Value {
        self.vconst_i32([x; 4])
    }

    fn band(&mut self, x: Value, mask: i32) -> Value {
        let mask = self.words(mask);
        self.b.ins().band(x, mask)
    }

    /// `x` where a magnitude is at least `least`, else `y`.
    fn where_at_least(&mut self, magnitude: Value, least: i32, x: Value, y: Value) -> Value {
        let least = self.words(least);
        let mask = self.b.ins().icmp(IntCC::SignedGreaterThanOrEqual, magnitude, least);
        self.b.ins().bitselect(mask, x, y)
    }

    /// Four floats of 16 bits, each in a word, as `f32`.
    pub(super) fn floats_of_halves(&mut self, from: DType, halves: Value) -> Value {
        let bits = if from == DType::Bf16 {
            let bits = self.b.ins().ishl_imm_u(halves, 16);
            let (magnitude, quiet) = (self.band(bits, MAGNITUDE), self.words(QUIET));
            let nan = self.b.ins().bor(bits, quiet);
            self.where_at_least(magnitude, INFINITY + 1, nan, bits)
        } else {
            let (sign, places) = (self.band(halves, 0x8000), self.band(halves, 0x7fff));
            let (sign, magnitude) =
                (self.b.ins().ishl_imm_u(sign, 16), self.b.ins().ishl_imm_u(places, i64::from(F16_PLACES)));
            // The exponent of a normal number has another bias; a subnormal one counts places.
            let bias = self.words(F16_BIAS);
            let normal = self.b.ins().iadd(magnitude, bias);
            let (places, place) = (self.b.ins().fcvt_from_sint(types::F32X4, places), self.words(F16_PLACE));
            let place = self.raw_bitcast(types::F32X4, place);
            let subnormal = self.b.ins().fmul(places, place);
            let subnormal = self.raw_bitcast(types::I32X4, subnormal);
            let number = self.where_at_least(magnitude, 0x400 << F16_PLACES, normal, subnormal);
            let (infinity, quiet) = (self.words(INFINITY), self.words(QUIET));
            let special = self.b.ins().bor(magnitude, infinity);
            let nan = self.b.ins().bor(special, quiet);
            let special = self.where_at_least(magnitude, (0x7c00 << F16_PLACES) + 1, nan, special);
            let finite_or_special = self.where_at_least(magnitude, 0x7c00 << F16_PLACES, special, number);
            self.b.ins().bor(finite_or_special, sign)
        };
        self.raw_bitcast(types::F32X4, bits)
    }

    /// Four `f32` as floats of 16 bits, each in a word.
    pub(super) fn halves_of_floats(&mut self, to: DType, floats: Value) -> Value {
        let bits = self.raw_bitcast(types::I32X4, floats);
        let magnitude = self.band(bits, MAGNITUDE);
        let dropped = if to == DType::Bf16 { 16 } else { F16_PLACES };
        // Half a last place less one, and one more where the last place is odd: ties go to even.
        let last = self.b.ins().ushr_imm_u(magnitude, i64::from(dropped));
        let is_odd = self.band(last, 1);
        let below = self.words((1 << (dropped - 1)) - 1);
        let rounding = self.b.ins().iadd(is_odd, below);
        let rounded = self.b.ins().iadd(magnitude, rounding);
        let (number, quiet) = if to == DType::Bf16 {
            (self.b.ins().ushr_imm_u(rounded, 16), QUIET >> 16)
        } else {
            let bias = self.words(F16_BIAS);
            let normal = self.b.ins().isub(rounded, bias);
            let (normal, infinity) = (self.b.ins().ushr_imm_u(normal, i64::from(F16_PLACES)), self.words(0x7c00));
            let normal = self.b.ins().umin(normal, infinity);
            // Beside one half the last place is that of subnormal numbers, so that the addition rounds to it.
            let (small, half) =
                (self.raw_bitcast(types::F32X4, magnitude), self.words(0.5_f32.to_bits().cast_signed()));
            let half_float = self.raw_bitcast(types::F32X4, half);
            let sum = self.b.ins().fadd(small, half_float);
            let sum = self.raw_bitcast(types::I32X4, sum);
            let subnormal = self.b.ins().isub(sum, half);
            (self.where_at_least(magnitude, SMALLEST_F16, normal, subnormal), 0x7c00 | QUIET >> F16_PLACES)
        };
        let payload = if to == DType::Bf16 { last } else { self.band(last, 0x3ff) };
        let quiet = self.words(quiet);
        let nan = self.b.ins().bor(payload, quiet);
        let value = self.where_at_least(magnitude, INFINITY + 1, nan, number);
        let sign = self.b.ins().ushr_imm_u(bits, 16);
        let sign = self.band(sign, 0x8000);
        self.b.ins().bor(value, sign)
    }
}
