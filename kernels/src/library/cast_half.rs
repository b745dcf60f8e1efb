//! Casts from and to the 16-bit floats, rounding once to nearest even.
//!
//! Every cast goes through `f32`, which holds all 16-bit floats exactly. From dtypes that `f32` does not hold the step
//! to it rounds to odd: the last bit says whether anything was lost, so that the second rounding cannot tell it from
//! the exact value (24 bits are at least the 11 of the result plus 2; S. Boldo, G. Melquiond, "When double rounding is
//! odd", 2005).

use std::convert::identity;

use half::slice::HalfFloatSliceExt;
use retape_runtime::{DType, Element, bf16, f16};

use super::extents::{Checked, countable};
use super::text::descriptor;
use super::view::{Plain, exactly, for_each_chunk, only, vectorized, view, view_mut};
use crate::ensure::ensure;
use crate::ir::{Affine, Kernel, KernelBuilder};

descriptor! {
    /// The elements converted to another dtype as [`Scalar::cast`](retape_runtime::Scalar::cast) does.
    CastHalf "cast_half" {
        /// The dtype of the input.
        from: DType,
        /// The dtype of the output, another one; one of the two is a float of 16 bits.
        to: DType,
        /// The number of elements.
        len: usize,
    }
}

/// Elements converted at a time.
const GROUP: usize = 256;

/// Elements that a thread takes at a time.
const CHUNK: usize = 1 << 14;

/// Evaluates an expression with `$t` as the Rust type of a dtype.
macro_rules! with_element {
    ($dtype:expr, $t:ident => $e:expr) => {
        match $dtype {
            DType::F32 => with_element!(@ f32, $t, $e),
            DType::F64 => with_element!(@ f64, $t, $e),
            DType::F16 => with_element!(@ f16, $t, $e),
            DType::Bf16 => with_element!(@ bf16, $t, $e),
            DType::I32 => with_element!(@ i32, $t, $e),
            DType::I64 => with_element!(@ i64, $t, $e),
            DType::U32 => with_element!(@ u32, $t, $e),
            DType::U8 => with_element!(@ u8, $t, $e),
            DType::Bool => with_element!(@ bool, $t, $e),
        }
    };
    (@ $element:ident, $t:ident, $e:expr) => {{
        type $t = $element;
        $e
    }};
}

impl CastHalf {
    fn check(&self) -> Checked {
        let CastHalf { from, to, len } = *self;
        let fits = (from.is_half() || to.is_half()) && from != to;
        ensure!(fits, "{from} to {to} is not a cast between dtypes of which one is a float of 16 bits");
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
        self.dispatch(inputs, outputs, &FastCast);
    }

    /// Computes the outputs in the naive way, one by one.
    ///
    /// # Panics
    /// As [`run`](CastHalf::run).
    pub fn reference(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        self.dispatch(inputs, outputs, &NaiveCast);
    }

    /// The cast as a pointwise kernel, with the same bits.
    pub fn kernel(&self) -> Kernel {
        let kernel = KernelBuilder::new();
        let [from, to] =
            [(self.from, false), (self.to, true)].map(|(dtype, written)| kernel.param(dtype, self.len, written));
        kernel.axis(self.len, false);
        let value = kernel.load(from, Affine::new(0, &[1])).cast(self.to);
        kernel.store(to, Affine::new(0, &[1]), value);
        kernel.finish()
    }

    fn dispatch(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]], twin: &impl CastTwin) {
        assert!(self.is_valid(), "{self}");
        let [x] = exactly(inputs);
        let (n, out) = (self.len, only(outputs));
        with_element!(self.from, S => {
            let x = view::<<S as Convert>::Stored>(x, n);
            with_element!(self.to, D => twin.cast::<S, D>(x, view_mut::<<D as Convert>::Stored>(out, n)));
        });
    }
}

/// Any cast between two types.
trait CastTwin {
    fn cast<S: Convert, D: Convert>(&self, x: &[S::Stored], out: &mut [D::Stored]);
}

struct FastCast;

impl CastTwin for FastCast {
    fn cast<S: Convert, D: Convert>(&self, x: &[S::Stored], out: &mut [D::Stored]) {
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

struct NaiveCast;

impl CastTwin for NaiveCast {
    fn cast<S: Convert, D: Convert>(&self, x: &[S::Stored], out: &mut [D::Stored]) {
        out.iter_mut().zip(x).for_each(|(out, x)| *out = D::of_bits(x.to_scalar().cast(D::DTYPE).bits));
    }
}

/// An element type with its conversions.
pub(super) trait Convert: Element {
    /// The type of its elements in memory: `bool` is the bytes 0 and 1.
    type Stored: Plain;
    /// Converts to `f32`, rounding to odd.
    fn to_singles(x: &[Self::Stored], out: &mut [f32]);
    /// Converts from `f32`, rounding to nearest even towards floats and truncating towards integers.
    fn from_singles(x: &[f32], out: &mut [Self::Stored]);
    /// The element of these bits.
    fn of_bits(bits: u64) -> Self::Stored;
}

/// Implements [`Convert`] for types that are converted one by one.
macro_rules! convert {
    ($($t:ident as $stored:ident: $to:expr, $from:expr, $of_bits:expr;)*) => {$(
        impl Convert for $t {
            type Stored = $stored;

            fn to_singles(x: &[$stored], out: &mut [f32]) {
                vectorized(
                    #[inline(always)]
                    || out.iter_mut().zip(x).for_each(|(out, x)| *out = $to(*x)),
                );
            }

            fn from_singles(x: &[f32], out: &mut [$stored]) {
                vectorized(
                    #[inline(always)]
                    || out.iter_mut().zip(x).for_each(|(out, x)| *out = $from(*x)),
                );
            }

            fn of_bits(bits: u64) -> $stored {
                $of_bits(bits)
            }
        }
    )*};
}

convert! {
    f32 as f32: identity, identity, |bits| f32::from_bits(bits as u32);
    f64 as f64: float_to_odd, f64::from, f64::from_bits;
    i32 as i32: |x| int_to_odd(i64::from(x)), |x| x as i32, |bits| bits as i32;
    i64 as i64: int_to_odd, |x| x as i64, |bits| bits as i64;
    u32 as u32: |x| int_to_odd(i64::from(x)), |x| x as u32, |bits| bits as u32;
    u8 as u8: f32::from, |x| x as u8, |bits| bits as u8;
    bool as u8: f32::from, |x| u8::from(x != 0.0), |bits| bits as u8;
}

impl Convert for f16 {
    type Stored = f16;

    fn to_singles(x: &[f16], out: &mut [f32]) {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("f16c") {
            // SAFETY: the processor has the instructions, as was just checked; those of F16C are a part of AVX.
            unsafe { halves_to_singles(x, out) };
            return;
        }
        out.iter_mut().zip(x).for_each(|(out, x)| *out = x.to_f32());
    }

    fn from_singles(x: &[f32], out: &mut [f16]) {
        out.convert_from_f32_slice(x);
    }

    fn of_bits(bits: u64) -> f16 {
        f16::from_bits(bits as u16)
    }
}

impl Convert for bf16 {
    type Stored = bf16;

    fn to_singles(x: &[bf16], out: &mut [f32]) {
        // NaN becomes quiet.
        let quiet = |bits: u16| if bits & 0x7fff > 0x7f80 { bits | 0x40 } else { bits };
        let single = |x: &bf16| f32::from_bits(u32::from(quiet(x.to_bits())) << 16);
        vectorized(
            #[inline(always)]
            || out.iter_mut().zip(x).for_each(|(out, x)| *out = single(x)),
        );
    }

    fn from_singles(x: &[f32], out: &mut [bf16]) {
        vectorized(
            #[inline(always)]
            || out.iter_mut().zip(x).for_each(|(out, x)| *out = bf16::from_bits(bits_of_bf16(*x))),
        );
    }

    fn of_bits(bits: u64) -> bf16 {
        bf16::from_bits(bits as u16)
    }
}

/// Converts eight at a time.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx,f16c")]
fn halves_to_singles(x: &[f16], out: &mut [f32]) {
    use std::arch::x86_64::{_mm_loadu_si128, _mm256_cvtph_ps, _mm256_storeu_ps};
    const N: usize = 8;
    assert_eq!(x.len(), out.len(), "elements to convert");
    let (eights, rest) = out.as_chunks_mut::<N>();
    let (x, x_rest) = x.as_chunks::<N>();
    for (out, x) in eights.iter_mut().zip(x) {
        // SAFETY: both are eight elements.
        unsafe { _mm256_storeu_ps(out.as_mut_ptr(), _mm256_cvtph_ps(_mm_loadu_si128(x.as_ptr().cast()))) };
    }
    rest.iter_mut().zip(x_rest).for_each(|(out, x)| *out = x.to_f32());
}

/// The bits of the `bf16` next to an `f32`, the even one of two; NaN stays NaN.
#[inline(always)]
fn bits_of_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let nearest = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    (if x.is_nan() { bits >> 16 | 0x40 } else { nearest }) as u16
}

/// The neighbour of `x` with an odd last bit, unless `x` is an `f32` itself.
#[inline(always)]
fn float_to_odd(x: f64) -> f32 {
    let nearest = x as f32;
    let (bits, back) = (nearest.to_bits(), f64::from(nearest));
    // The neighbours' bits differ by one, so exactly one is odd. If that is not the nearest one, it is the next
    // towards `x`; seen without the sign, one up or one down. From infinity, down is the largest finite value.
    let is_even = bits & 1 == 0;
    let adjusted = if back.abs() < x.abs() { bits.wrapping_add(1) } else { bits.wrapping_sub(1) };
    let keep = back == x || x.is_nan() || !is_even;
    f32::from_bits(if keep { bits } else { adjusted })
}

/// As [`float_to_odd`], of an integer.
#[inline(always)]
fn int_to_odd(x: i64) -> f32 {
    // Of the 64 bits those from the leading one on are kept that an `f32` has, with one for all others.
    let m = x.unsigned_abs();
    let dropped = (64 - f32::MANTISSA_DIGITS).saturating_sub(m.leading_zeros());
    let kept = m >> dropped | u64::from(m & ((1 << dropped) - 1) != 0);
    let size = kept as f32 * (1_u64 << dropped) as f32;
    if x < 0 { -size } else { size }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::testing::{Draw, assert_close, buffer, drawn};

    /// All pairs of dtypes that the kernel casts between.
    fn pairs() -> impl Iterator<Item = (DType, DType)> {
        let all = DType::ALL.into_iter().flat_map(|from| DType::ALL.into_iter().map(move |to| (from, to)));
        all.filter(|&(from, to)| CastHalf { from, to, len: 1 }.is_valid())
    }

    #[test]
    fn kernels_agree_with_their_twins() {
        let mut draw = Draw::new(12);
        for (from, to) in pairs() {
            for len in [0, 1, 5, 255, 256, 257, 1000] {
                let x = drawn(&mut draw, from, len, true);
                assert_close(&CastHalf { from, to, len }.into(), &[x], 0.0);
            }
        }
    }

    #[test]
    fn all_halves_are_converted() {
        let (all, len) = ((0..=u16::MAX).collect::<Vec<u16>>(), 1 << 16);
        for (from, to) in pairs() {
            let x = match from {
                DType::F16 => buffer(&all.iter().map(|x| f16::from_bits(*x)).collect::<Vec<_>>()),
                DType::Bf16 => buffer(&all.iter().map(|x| bf16::from_bits(*x)).collect::<Vec<_>>()),
                _ => continue,
            };
            assert_close(&CastHalf { from, to, len }.into(), &[x], 0.0);
        }
    }

    /// All values of a format with the middles between neighbours, as far as `f64` and then another type goes: there,
    /// and just beside, rounding twice goes wrong.
    fn middles<T: Element>(of: fn(u16) -> T, infinity: u16) -> Vec<f64> {
        let mut x = vec![1e300, 1e-300, 5e-324, f64::MAX, 3.5e38, f64::INFINITY, f64::NAN, 9.3e18];
        for bits in 0..infinity {
            let (a, b) = (of(bits).to_f64(), of(bits + 1).to_f64());
            // Infinity stands where the next finite value would be.
            let middle = if b.is_finite() { (a + b) / 2.0 } else { a + (a - of(bits - 1).to_f64()) / 2.0 };
            x.extend([a, middle, middle.next_up(), middle.next_down(), middle * (1.0 + 1e-9)]);
        }
        let negative: Vec<f64> = x.iter().map(|x| -x).collect();
        [x, negative].concat()
    }

    fn check<T: Plain>(to: DType, x: &[T]) {
        assert_close(&CastHalf { from: T::DTYPE, to, len: x.len() }.into(), &[buffer(x)], 0.0);
    }

    #[test]
    fn middles_round_once_to_even() {
        for (to, x) in [(DType::F16, middles(f16::from_bits, 0x7c00)), (DType::Bf16, middles(bf16::from_bits, 0x7f80))]
        {
            check(to, &x);
            check(to, &x.iter().map(|x| *x as f32).collect::<Vec<_>>());
            let around = |x: &f64| [(*x as i64).saturating_sub(1), *x as i64, (*x as i64).saturating_add(1)];
            let whole: Vec<i64> = x.iter().flat_map(around).collect();
            check(to, &whole);
            check(to, &whole.iter().map(|x| *x as i32).collect::<Vec<_>>());
            check(to, &whole.iter().map(|x| *x as u32).collect::<Vec<_>>());
        }
    }

    #[test]
    fn rounding_to_odd_keeps_what_was_lost() {
        assert_eq!(float_to_odd(1.5), 1.5);
        assert_eq!(float_to_odd(1.0 + 1e-12).to_bits(), 1.0_f32.to_bits() + 1);
        assert_eq!(float_to_odd(-1.0 + 1e-12).to_bits(), (-1.0_f32).to_bits() - 1);
        assert_eq!(float_to_odd(1e300), f32::MAX);
        assert_eq!(float_to_odd(1e-300).to_bits(), 1);
        assert!(float_to_odd(f64::INFINITY) == f32::INFINITY && float_to_odd(f64::NAN).is_nan());
        assert_eq!([int_to_odd(0), int_to_odd(-7), int_to_odd(i64::MIN)], [0.0, -7.0, -(2.0_f32.powi(63))]);
        assert_eq!(int_to_odd((1 << 24) + 2), 16_777_218.0);
        assert_eq!(int_to_odd((1 << 40) + 1).to_bits(), 2.0_f32.powi(40).to_bits() + 1);
        assert_eq!(int_to_odd(i64::MAX).to_bits(), 2.0_f32.powi(63).to_bits() - 1);
    }

    #[test]
    fn one_side_has_16_bits() {
        assert!(!CastHalf { from: DType::F64, to: DType::F32, len: 1 }.is_valid());
        assert!(!CastHalf { from: DType::F16, to: DType::F16, len: 1 }.is_valid());
        assert_eq!(pairs().count(), 2 + 2 * 2 * 7);
    }
}
