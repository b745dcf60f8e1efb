//! Casts from and to the 16-bit floats, rounding once to nearest even.
//!
//! Every cast goes through `f32`, which holds all 16-bit floats exactly. From `f64` the step to `f32` rounds to odd:
//! the last bit says whether anything was lost, so that the second rounding cannot tell it from the exact value
//! (24 bits are at least the 11 of the result plus 2; S. Boldo, G. Melquiond, "When double rounding is odd", 2005).

use half::slice::HalfFloatSliceExt;
use retape_runtime::{DType, bf16, f16};

use super::extents::{Check, countable};
use super::text::descriptor;
use super::view::{Plain, exactly, for_each_chunk, only, vectorized, view, view_mut};
use crate::error::ensure;

descriptor! {
    /// The elements converted to another dtype, rounded once to nearest even.
    CastHalf "cast_half" {
        /// The dtype of the input: a float.
        from: DType,
        /// The dtype of the output: another float; one of the two has 16 bits.
        to: DType,
        /// The number of elements.
        len: usize,
    }
}

/// Elements converted at a time.
const GROUP: usize = 256;

/// Elements that a thread takes at a time.
const CHUNK: usize = 1 << 14;

impl CastHalf {
    fn check(&self) -> Check {
        let CastHalf { from, to, len } = *self;
        let is_float = |dtype: DType| dtype.is_float() || dtype.is_half();
        let fits = is_float(from) && is_float(to) && (from.is_half() || to.is_half()) && from != to;
        ensure!(fits, "{from} to {to} is not a cast between floats of which one has 16 bits");
        countable("the input", &[len])
    }

    /// The dtype and the number of elements of each input.
    pub fn inputs(&self) -> Vec<(DType, usize)> {
        vec![(self.from, self.len)]
    }

    /// The dtype and the number of elements of each output.
    pub fn outputs(&self) -> Vec<(DType, usize)> {
        vec![(self.to, self.len)]
    }

    /// Computes the outputs.
    ///
    /// # Panics
    /// If the descriptor is not valid or the buffers are not as `inputs` and `outputs` say.
    pub fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        self.dispatch(inputs, outputs, &Fast);
    }

    /// Computes the outputs in the naive way: arithmetic on the fields, and a search for the nearest value.
    ///
    /// # Panics
    /// As [`run`](CastHalf::run).
    pub fn reference(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        self.dispatch(inputs, outputs, &Naive);
    }

    fn dispatch(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]], twin: &impl Twin) {
        assert!(self.is_valid(), "{self}");
        let [x] = exactly(inputs);
        let (n, out) = (self.len, only(outputs));
        match self.from {
            DType::F16 => self.dispatch_to(view::<f16>(x, n), out, twin),
            DType::Bf16 => self.dispatch_to(view::<bf16>(x, n), out, twin),
            DType::F32 => self.dispatch_to(view::<f32>(x, n), out, twin),
            DType::F64 => self.dispatch_to(view::<f64>(x, n), out, twin),
            other => unreachable!("{other} is no float"),
        }
    }

    fn dispatch_to<S: Convert>(&self, x: &[S], out: &mut [u8], twin: &impl Twin) {
        match self.to {
            DType::F16 => twin.cast(x, view_mut::<f16>(out, self.len)),
            DType::Bf16 => twin.cast(x, view_mut::<bf16>(out, self.len)),
            DType::F32 => twin.cast(x, view_mut::<f32>(out, self.len)),
            DType::F64 => twin.cast(x, view_mut::<f64>(out, self.len)),
            other => unreachable!("{other} is no float"),
        }
    }
}

/// Any cast between two types.
trait Twin {
    fn cast<S: Convert, D: Convert>(&self, x: &[S], out: &mut [D]);
}

struct Fast;

impl Twin for Fast {
    fn cast<S: Convert, D: Convert>(&self, x: &[S], out: &mut [D]) {
        let work = out.len();
        for_each_chunk(out, CHUNK, work, &|i, out| {
            let mut singles = [0.0; GROUP];
            let x = &x[i * CHUNK..i * CHUNK + out.len()];
            for (x, out) in x.chunks(GROUP).zip(out.chunks_mut(GROUP)) {
                S::to_singles(x, &mut singles[..x.len()]);
                D::from_singles(&singles[..x.len()], out);
            }
        });
    }
}

struct Naive;

impl Twin for Naive {
    fn cast<S: Convert, D: Convert>(&self, x: &[S], out: &mut [D]) {
        out.iter_mut().zip(x).for_each(|(out, x)| *out = D::nearest(x.exact()));
    }
}

/// A float type with its conversions.
trait Convert: Plain {
    /// Converts to `f32`, rounding to odd.
    fn to_singles(x: &[Self], out: &mut [f32]);
    /// Converts from `f32`, rounding to nearest even.
    fn from_singles(x: &[f32], out: &mut [Self]);
    /// The value, from its fields.
    fn exact(self) -> f64;
    /// The value nearest to `x`, of two the even one.
    fn nearest(x: f64) -> Self;
}

impl Convert for f32 {
    fn to_singles(x: &[f32], out: &mut [f32]) {
        out.copy_from_slice(x);
    }

    fn from_singles(x: &[f32], out: &mut [f32]) {
        out.copy_from_slice(x);
    }

    fn exact(self) -> f64 {
        self.into()
    }

    fn nearest(x: f64) -> f32 {
        x as f32
    }
}

impl Convert for f64 {
    fn to_singles(x: &[f64], out: &mut [f32]) {
        vectorized(
            #[inline(always)]
            || out.iter_mut().zip(x).for_each(|(out, x)| *out = round_to_odd(*x)),
        );
    }

    fn from_singles(x: &[f32], out: &mut [f64]) {
        vectorized(
            #[inline(always)]
            || out.iter_mut().zip(x).for_each(|(out, x)| *out = (*x).into()),
        );
    }

    fn exact(self) -> f64 {
        self
    }

    fn nearest(x: f64) -> f64 {
        x
    }
}

/// The neighbour of `x` with an odd last bit, unless `x` is an `f32` itself.
#[inline(always)]
fn round_to_odd(x: f64) -> f32 {
    let nearest = x as f32;
    let (bits, back) = (nearest.to_bits(), f64::from(nearest));
    // The neighbours' bits differ by one, so exactly one is odd. If that is not the nearest one, it is the next
    // towards `x`; seen without the sign, one up or one down. From infinity, down is the largest finite value.
    let is_even = bits & 1 == 0;
    let adjusted = if back.abs() < x.abs() { bits.wrapping_add(1) } else { bits.wrapping_sub(1) };
    let keep = back == x || x.is_nan() || !is_even;
    f32::from_bits(if keep { bits } else { adjusted })
}

macro_rules! halves {
    ($($t:ident { fraction: $fraction:literal, bias: $bias:literal, infinity: $infinity:literal })*) => {$(
        impl Convert for $t {
            fn to_singles(x: &[$t], out: &mut [f32]) {
                x.convert_to_f32_slice(out);
            }

            fn from_singles(x: &[f32], out: &mut [$t]) {
                out.convert_from_f32_slice(x);
            }

            fn exact(self) -> f64 {
                let (bits, sign) = (self.to_bits() & 0x7fff, if self.to_bits() >> 15 == 0 { 1.0 } else { -1.0 });
                let (exponent, fraction) = (i32::from(bits >> $fraction), f64::from(bits & ((1 << $fraction) - 1)));
                let unit = |exponent: i32| 2.0_f64.powi(exponent - $bias - $fraction);
                sign * match bits {
                    $infinity => f64::INFINITY,
                    $infinity.. => f64::NAN,
                    _ if exponent == 0 => fraction * unit(1),
                    _ => (fraction + f64::from(1_u32 << $fraction)) * unit(exponent),
                }
            }

            fn nearest(x: f64) -> $t {
                if x.is_nan() {
                    return $t::NAN;
                }
                // Infinity stands where the next finite value would be.
                let value = |bits: u16| match bits {
                    $infinity => 2.0 * $t::from_bits($infinity - (1 << $fraction)).exact(),
                    _ => $t::from_bits(bits).exact(),
                };
                let (mut below, mut above) = (0_u16, $infinity);
                while above - below > 1 {
                    let middle = below + (above - below) / 2;
                    if value(middle) <= x.abs() { below = middle } else { above = middle }
                }
                let (down, up) = (x.abs() - value(below), value(above) - x.abs());
                let bits = if down < up || (down == up && below % 2 == 0) { below } else { above };
                $t::from_bits(bits | if x.is_sign_negative() { 0x8000 } else { 0 })
            }
        }
    )*};
}

halves! {
    f16 { fraction: 10, bias: 15, infinity: 0x7c00 }
    bf16 { fraction: 7, bias: 127, infinity: 0x7f80 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::testing::{Draw, assert_close, buffer, drawn};

    const PAIRS: [(DType, DType); 10] = [
        (DType::F16, DType::Bf16),
        (DType::F16, DType::F32),
        (DType::F16, DType::F64),
        (DType::Bf16, DType::F16),
        (DType::Bf16, DType::F32),
        (DType::Bf16, DType::F64),
        (DType::F32, DType::F16),
        (DType::F32, DType::Bf16),
        (DType::F64, DType::F16),
        (DType::F64, DType::Bf16),
    ];

    #[test]
    fn kernels_agree_with_their_twins() {
        let mut draw = Draw::new(12);
        for (from, to) in PAIRS {
            for len in [0, 1, 5, 255, 256, 257, 1000] {
                let x = drawn(&mut draw, from, len, true);
                assert_close(&CastHalf { from, to, len }.into(), &[x], 0.0);
            }
        }
    }

    #[test]
    fn all_halves_are_converted() {
        let (all, len) = ((0..=u16::MAX).collect::<Vec<u16>>(), 1 << 16);
        for (from, to) in PAIRS {
            let x = match from {
                DType::F16 => buffer(&all.iter().map(|x| f16::from_bits(*x)).collect::<Vec<_>>()),
                DType::Bf16 => buffer(&all.iter().map(|x| bf16::from_bits(*x)).collect::<Vec<_>>()),
                _ => continue,
            };
            assert_close(&CastHalf { from, to, len }.into(), &[x], 0.0);
        }
    }

    /// Values at, just beside and far beside the middle between neighbours, where rounding twice goes wrong.
    #[test]
    fn middles_round_once_to_even() {
        fn middles<T: Convert>(of: fn(u16) -> T, infinity: u16) -> Vec<f64> {
            let mut draw = Draw::new(13);
            let mut x = Vec::new();
            for _ in 0..2000 {
                let bits = draw.below(usize::from(infinity)) as u16;
                let (a, b) = (of(bits).exact(), if bits + 1 == infinity { 65536.0 } else { of(bits + 1).exact() });
                let middle = (a + b) / 2.0;
                for value in [a, middle, middle.next_up(), middle.next_down(), middle * (1.0 + 1e-9)] {
                    x.extend([value, -value]);
                }
            }
            x.extend([1e300, -1e300, 1e-300, -1e-300, 5e-324, f64::MAX, 3.5e38, 65520.0, 65519.99]);
            x
        }
        for (to, x) in [(DType::F16, middles(f16::from_bits, 0x7c00)), (DType::Bf16, middles(bf16::from_bits, 0x7f7f))]
        {
            let single: Vec<f32> = x.iter().map(|x| *x as f32).collect();
            let kernel = |from| CastHalf { from, to, len: x.len() }.into();
            assert_close(&kernel(DType::F64), &[buffer(&x)], 0.0);
            assert_close(&kernel(DType::F32), &[buffer(&single)], 0.0);
        }
    }

    #[test]
    fn round_to_odd_keeps_what_was_lost() {
        assert_eq!(round_to_odd(1.5), 1.5);
        assert_eq!(round_to_odd(1.0 + 1e-12).to_bits(), 1.0_f32.to_bits() + 1);
        assert_eq!(round_to_odd(-1.0 + 1e-12).to_bits(), (-1.0_f32).to_bits() - 1);
        assert_eq!(round_to_odd(1e300), f32::MAX);
        assert_eq!(round_to_odd(1e-300).to_bits(), 1);
        assert!(round_to_odd(f64::INFINITY) == f32::INFINITY && round_to_odd(f64::NAN).is_nan());
        let kernel = CastHalf { from: DType::F64, to: DType::F64, len: 1 };
        assert!(!kernel.is_valid());
    }
}
