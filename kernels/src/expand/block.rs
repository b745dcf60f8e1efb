//! Block kernels: the formulas over slices, compiled for several instruction sets and chosen at run time.
//!
//! All versions are one loop around the same formula; more lanes change no bit.

use std::sync::LazyLock;

use super::{call1, call2, trig};
use crate::ir::{Func1, Func2};

/// A precompiled loop over `n` elements: `out[i] = f(x[i])`. `x` and `out` may be the same array.
pub type Block1<T> = unsafe extern "C" fn(x: *const T, out: *mut T, n: usize);

/// A precompiled loop over `n` elements: `out[i] = f(x[i], y[i])`. `out` may be the same array as an input.
pub type Block2<T> = unsafe extern "C" fn(x: *const T, y: *const T, out: *mut T, n: usize);

/// A float with block kernels: `f32` or `f64`.
pub trait BlockFloat: Copy + sealed::Sealed {
    /// The fastest block kernel of `func` on this machine.
    ///
    /// To call it, the pointers must be valid for `n` elements, and `out` disjoint from the input or equal to it.
    fn kernel1(func: Func1) -> Block1<Self>;

    /// The fastest block kernel of `func` on this machine, with the same duties as [`kernel1`](Self::kernel1)'s.
    fn kernel2(func: Func2) -> Block2<Self>;
}

mod sealed {
    /// Keeps [`BlockFloat`](super::BlockFloat) to the two widths.
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// Writes `func` of every element of `x` to `out`.
///
/// # Panics
/// If the lengths differ.
pub fn block1<T: BlockFloat>(func: Func1, x: &[T], out: &mut [T]) {
    assert_eq!(x.len(), out.len(), "block1: lengths differ");
    // SAFETY: both slices are valid for their common length and, being slices of which one is exclusive, disjoint.
    unsafe { T::kernel1(func)(x.as_ptr(), out.as_mut_ptr(), x.len()) }
}

/// Writes `func` of every pair of elements of `x` and `y` to `out`.
///
/// # Panics
/// If the lengths differ.
pub fn block2<T: BlockFloat>(func: Func2, x: &[T], y: &[T], out: &mut [T]) {
    assert!(x.len() == out.len() && y.len() == out.len(), "block2: lengths differ");
    // SAFETY: the slices are valid for their common length, and `out`, being exclusive, is disjoint from the inputs.
    unsafe { T::kernel2(func)(x.as_ptr(), y.as_ptr(), out.as_mut_ptr(), x.len()) }
}

/// The instruction sets that block kernels are compiled for.
#[derive(Clone, Copy)]
enum Level {
    /// The instructions of every machine of the architecture.
    Baseline,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
}

/// The best level of this machine.
static LEVEL: LazyLock<Level> = LazyLock::new(|| {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("fma")
        {
            return Level::Avx512;
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            return Level::Avx2;
        }
    }
    Level::Baseline
});

/// How many elements are looked at together: enough to fill registers, few enough to stay in L1.
const CHUNK: usize = 256;

/// Applies `f` to `n` elements, a chunk at a time, by way of a local array so that the arrays may coincide.
///
/// `easy` says whether a chunk may be given to `f_easy`, which must agree with `f` on such chunks.
///
/// # Safety
/// `x` must be valid for reading and `out` for writing `n` elements; they must be disjoint or equal.
#[inline(always)]
unsafe fn map1<T: Copy + Default>(
    (x, out, n): (*const T, *mut T, usize),
    easy: impl Fn(T) -> bool,
    f_easy: impl Fn(T) -> T,
    f: impl Fn(T) -> T,
) {
    let mut chunk = [T::default(); CHUNK];
    let mut start = 0;
    while start < n {
        let len = CHUNK.min(n - start);
        // SAFETY: `start + len <= n`, up to which `x` and `out` are valid; `chunk` is a local of `CHUNK >= len`.
        unsafe { std::ptr::copy_nonoverlapping(x.add(start), chunk.as_mut_ptr(), len) };
        let chunk = &mut chunk[..len];
        let mut all_easy = true;
        for x in chunk.iter() {
            all_easy &= easy(*x);
        }
        if all_easy {
            for x in chunk.iter_mut() {
                *x = f_easy(*x);
            }
        } else {
            for x in chunk.iter_mut() {
                *x = f(*x);
            }
        }
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(chunk.as_ptr(), out.add(start), len) };
        start += len;
    }
}

/// Applies `f` to `n` pairs, a chunk at a time, by way of local arrays so that the arrays may coincide.
///
/// # Safety
/// `x` and `y` must be valid for reading and `out` for writing `n` elements; `out` must be disjoint from each input
/// or equal to it.
#[inline(always)]
unsafe fn map2<T: Copy + Default>((x, y, out, n): (*const T, *const T, *mut T, usize), f: impl Fn(T, T) -> T) {
    let (mut left, mut right) = ([T::default(); CHUNK], [T::default(); CHUNK]);
    let mut start = 0;
    while start < n {
        let len = CHUNK.min(n - start);
        // SAFETY: `start + len <= n`, up to which the arrays are valid; the locals hold `CHUNK >= len`.
        unsafe {
            std::ptr::copy_nonoverlapping(x.add(start), left.as_mut_ptr(), len);
            std::ptr::copy_nonoverlapping(y.add(start), right.as_mut_ptr(), len);
        }
        let (left, right) = (&mut left[..len], &right[..len]);
        for (x, y) in left.iter_mut().zip(right) {
            *x = f(*x, *y);
        }
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(left.as_ptr(), out.add(start), len) };
        start += len;
    }
}

/// One module of kernels per width and level; the attribute switches the level's features on.
macro_rules! level {
    ($module:ident, $float:ident, $small:expr, $attribute:meta, [$($one:ident)*], [$($two:ident)*]) => {
        mod $module {
            use super::*;

            /// The kernel of a function of one operand.
            pub(super) fn kernel1(func: Func1) -> Block1<$float> {
                match func {$(
                    Func1::$one => {
                        // SAFETY: `map1` asks of the pointers what the type `Block1` asks of the caller; that the
                        // machine has the features is checked before a kernel of this module is chosen.
                        #[$attribute]
                        unsafe extern "C" fn kernel(x: *const $float, out: *mut $float, n: usize) {
                            // SAFETY: handed on from the caller.
                            unsafe {
                                map1(
                                    (x, out, n),
                                    |x| !trigonometric(Func1::$one) | (x.abs() <= $small),
                                    |x| call1::<$float, false>(Func1::$one, x),
                                    |x| call1::<$float, true>(Func1::$one, x),
                                );
                            }
                        }
                        kernel
                    }
                )*}
            }

            /// The kernel of a function of two operands.
            pub(super) fn kernel2(func: Func2) -> Block2<$float> {
                match func {$(
                    Func2::$two => {
                        #[$attribute]
                        unsafe extern "C" fn kernel(x: *const $float, y: *const $float, out: *mut $float, n: usize) {
                            // SAFETY: handed on from the caller.
                            unsafe { map2((x, y, out, n), |x, y| call2(Func2::$two, x, y)) }
                        }
                        kernel
                    }
                )*}
            }
        }
    };
}

/// Whether `func` reduces its argument by multiples of pi/2.
#[inline(always)]
fn trigonometric(func: Func1) -> bool {
    matches!(func, Func1::Sin | Func1::Cos | Func1::Tan)
}

/// All levels of one width.
macro_rules! levels {
    ($float:ident, $small:expr, $baseline:ident $avx2:ident $avx512:ident) => {
        levels!(@one $baseline, $float, $small, inline(never));
        #[cfg(target_arch = "x86_64")]
        levels!(@one $avx2, $float, $small, target_feature(enable = "avx2,fma"));
        #[cfg(target_arch = "x86_64")]
        levels!(@one $avx512, $float, $small, target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma"));

        impl BlockFloat for $float {
            fn kernel1(func: Func1) -> Block1<$float> {
                match *LEVEL {
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx512 => $avx512::kernel1(func),
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx2 => $avx2::kernel1(func),
                    _ => $baseline::kernel1(func),
                }
            }

            fn kernel2(func: Func2) -> Block2<$float> {
                match *LEVEL {
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx512 => $avx512::kernel2(func),
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx2 => $avx2::kernel2(func),
                    _ => $baseline::kernel2(func),
                }
            }
        }
    };
    (@one $module:ident, $float:ident, $small:expr, $attribute:meta) => {
        level!(
            $module, $float, $small, $attribute,
            [Exp Exp2 Expm1 Log Log2 Log1p Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh Asinh Acosh Atanh Erf Erfc Sigmoid
             Lgamma Digamma Trigamma Tetragamma],
            [Pow Atan2]
        );
    };
}

levels!(f32, trig::SMALL_NARROW, f32_baseline f32_avx2 f32_avx512);
levels!(f64, trig::SMALL_WIDE, f64_baseline f64_avx2 f64_avx512);

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of all sizes, in and out of every domain.
    fn arguments() -> Vec<f32> {
        let spread = (0..=u32::MAX).step_by(4_000_037).map(f32::from_bits);
        spread.chain((-300..300).map(|i| i as f32 * 0.07)).filter(|x| !x.is_nan()).collect()
    }

    macro_rules! agree {
        ($float:ident, $baseline:ident, $($level:ident)*) => {{
            let x: Vec<$float> = arguments().into_iter().map($float::from).collect();
            let mut expected = vec![0.0; x.len()];
            let mut y = vec![0.0; x.len()];
            for &func in Func1::ALL {
                // SAFETY: the arrays have `x.len()` elements; only levels up to the machine's own are listed.
                unsafe { $baseline::kernel1(func)(x.as_ptr(), expected.as_mut_ptr(), x.len()) };
                $(
                    // SAFETY: as above.
                    unsafe { $level::kernel1(func)(x.as_ptr(), y.as_mut_ptr(), x.len()) };
                    for i in 0..x.len() {
                        let equal = y[i].to_bits() == expected[i].to_bits() || y[i].is_nan() && expected[i].is_nan();
                        assert!(equal, "{}({:e}): {:e}, not {:e}", func.name(), x[i], y[i], expected[i]);
                    }
                )*
            }
        }};
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn instruction_sets_agree() {
        match *LEVEL {
            Level::Baseline => {}
            Level::Avx2 => {
                agree!(f32, f32_baseline, f32_avx2);
                agree!(f64, f64_baseline, f64_avx2);
            }
            Level::Avx512 => {
                agree!(f32, f32_baseline, f32_avx2 f32_avx512);
                agree!(f64, f64_baseline, f64_avx2 f64_avx512);
            }
        }
    }

    #[test]
    fn kernels_work_in_place() {
        let mut x: Vec<f64> = (0..1000).map(f64::from).collect();
        let data = x.as_mut_ptr();
        // SAFETY: the pointer is valid for the 1000 elements and both arguments are equal.
        unsafe { f64::kernel1(Func1::Log2)(data, data, 1000) };
        assert_eq!((x[1], x[2], x[512]), (0.0, 1.0, 9.0));
    }
}
