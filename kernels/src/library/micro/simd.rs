//! Vector arithmetic, once per instruction set, behind one small trait.
//!
//! Guarantees that `mul_add` rounds once in every implementation, so that equal chains give equal bits everywhere.
//! All methods are `#[inline(always)]` and end up inside a function that enables the instruction set.

use super::Real;

/// Vectors of one element type on one instruction set.
///
/// # Safety
///
/// Every method needs the instruction set of the implementing type, and `load`, `store` and `splat` need a pointer
/// that is valid for `LANES` (or one) elements, `columns`, `turned` and `write_rows` ones that are so for their rows, and
/// `widen` one that is so for its numbers; no alignment is asked for.
pub(crate) trait Simd: Copy + 'static {
    /// The type of a lane.
    type Elem: Real;
    /// `LANES` elements.
    type Vector: Copy;
    /// Vectors of half as many lanes on the same instruction set, or the same ones if there are none.
    type Half: Simd<Elem = Self::Elem>;
    /// Elements per vector.
    const LANES: usize;

    /// All lanes +0.
    unsafe fn zero() -> Self::Vector;
    /// All lanes `*x`.
    unsafe fn splat(x: *const Self::Elem) -> Self::Vector;
    /// The `LANES` elements from `x` on.
    unsafe fn load(x: *const Self::Elem) -> Self::Vector;
    /// Writes the `LANES` elements from `x` on.
    unsafe fn store(x: *mut Self::Elem, value: Self::Vector);
    /// `x * y + z`, rounded once.
    unsafe fn mul_add(x: Self::Vector, y: Self::Vector, z: Self::Vector) -> Self::Vector;
    /// `x + y`.
    unsafe fn add(x: Self::Vector, y: Self::Vector) -> Self::Vector;
    /// Asks for the cache line at `x`, which may be any address.
    unsafe fn prefetch(x: *const Self::Elem);
    /// Asks for the cache line at `x`, which may be any address, in the second-level cache.
    unsafe fn prefetch_next(x: *const Self::Elem);
    /// The same value, at hand before anything that follows in the source is read. Compilers that read ahead of chains run
    /// out of registers, and keep what they have read in memory.
    #[inline(always)]
    unsafe fn settle(x: Self::Vector) -> Self::Vector {
        x
    }
    /// Whether `write_rows` is short.
    const EXCHANGES: bool = false;

    /// Writes the first rows of eight elements, at a distance of `step`, or adds to them: lane i of `columns[j]` is the
    /// element of row i in column j. Only if `EXCHANGES`.
    #[inline(always)]
    unsafe fn write_rows(_columns: [Self::Vector; 8], _to: *mut Self::Elem, _step: usize, _rows: usize, _fresh: bool) {
        unreachable!("these vectors have no exchanges")
    }

    /// Whether there is `turned`, and `widen_pairs` of single precision.
    const TURNS: bool = false;

    /// Eight elements of each of `LANES` rows, at a distance of `pitch` bytes, as columns. Only if `TURNS`.
    #[inline(always)]
    unsafe fn turned(_from: *const Self::Elem, _pitch: usize) -> [Self::Vector; 8] {
        unreachable!("these vectors turn no rows")
    }

    /// The 16-bit floats in the lower halves of words, and in their upper halves. Only of single precision, with instructions
    /// that convert `f16`, if `TURNS`.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn widen_pairs<const F16: bool>(_words: Self::Vector) -> [Self::Vector; 2] {
        unreachable!("these vectors do not convert 16-bit floats")
    }

    /// The `LANES` numbers from `x` on, bits of `f16` or of `bf16`. Only of single precision, with instructions that convert
    /// `f16`.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn widen<const F16: bool>(_x: *const u16) -> Self::Vector {
        unreachable!("these vectors do not convert 16-bit floats")
    }

    /// Four rows of four elements, at a distance of `step`, as four columns.
    #[inline(always)]
    unsafe fn columns(x: *const Self::Elem, step: usize) -> [[Self::Elem; 4]; 4] {
        // SAFETY: the caller's rows are readable.
        let rows = std::array::from_fn(|row| unsafe { x.add(row * step).cast::<[Self::Elem; 4]>().read_unaligned() });
        let rows: [[Self::Elem; 4]; 4] = rows;
        std::array::from_fn(
            #[inline(always)]
            |column| {
                std::array::from_fn(
                    #[inline(always)]
                    |row| rows[row][column],
                )
            },
        )
    }
}

/// Lanes of the shortest vectors that narrow results are computed with.
pub(crate) const fn least_lanes<S: Simd>() -> usize {
    <<S::Half as Simd>::Half as Simd>::LANES
}

/// Whether vectors, and those of half their length, write eight columns as rows in few instructions; the latter turn eight rows
/// then.
pub(crate) const fn exchanges<S: Simd>() -> bool {
    S::EXCHANGES && S::Half::EXCHANGES
}

/// Implements [`Simd`] for a marker type by naming the intrinsics.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! simd {
    ($name:ident, $elem:ty, $vector:ty, $lanes:expr, half $half:ty, zero $zero:expr, splat $splat:expr, load $load:expr,
     store $store:expr, mul_add $mul_add:expr, add $add:expr, prefetch $prefetch:expr,
     next $next:expr, settle $settle:ident $(, widen $widen:ident)? $(, columns $columns:ident)? $(, turned $turned:ident)?
     $(, pairs $pairs:ident)? $(, rows $rows:ident)?) => {
        #[derive(Clone, Copy)]
        pub(crate) struct $name;

        // SAFETY (all methods): the trait's contract gives the instruction set and the pointers.
        impl Simd for $name {
            type Elem = $elem;
            type Vector = $vector;
            type Half = $half;
            const LANES: usize = $lanes;

            #[inline(always)]
            unsafe fn zero() -> $vector {
                // SAFETY: see the impl.
                unsafe { $zero }
            }
            #[inline(always)]
            unsafe fn splat(x: *const $elem) -> $vector {
                // SAFETY: see the impl.
                unsafe { $splat(*x) }
            }
            #[inline(always)]
            unsafe fn load(x: *const $elem) -> $vector {
                // SAFETY: see the impl.
                unsafe { $load(x) }
            }
            #[inline(always)]
            unsafe fn store(x: *mut $elem, value: $vector) {
                // SAFETY: see the impl.
                unsafe { $store(x, value) }
            }
            #[inline(always)]
            unsafe fn mul_add(x: $vector, y: $vector, z: $vector) -> $vector {
                // SAFETY: see the impl.
                unsafe { $mul_add(x, y, z) }
            }
            #[inline(always)]
            unsafe fn add(x: $vector, y: $vector) -> $vector {
                // SAFETY: see the impl.
                unsafe { $add(x, y) }
            }
            #[inline(always)]
            unsafe fn prefetch(x: *const $elem) {
                // SAFETY: see the impl.
                unsafe { $prefetch(x.cast()) }
            }
            #[inline(always)]
            unsafe fn prefetch_next(x: *const $elem) {
                // SAFETY: see the impl.
                unsafe { $next(x.cast()) }
            }
            #[inline(always)]
            unsafe fn settle(x: $vector) -> $vector {
                // SAFETY: see the impl.
                unsafe { $settle(x) }
            }
            $(
                #[inline(always)]
                unsafe fn widen<const F16: bool>(x: *const u16) -> $vector {
                    // SAFETY: see the impl.
                    unsafe { $widen::<F16>(x) }
                }
            )?
            $(
                #[inline(always)]
                unsafe fn columns(x: *const $elem, step: usize) -> [[$elem; 4]; 4] {
                    // SAFETY: see the impl.
                    unsafe { $columns(x, step) }
                }
            )?
            $(
                const TURNS: bool = true;

                #[inline(always)]
                unsafe fn turned(from: *const $elem, pitch: usize) -> [$vector; 8] {
                    // SAFETY: see the impl.
                    unsafe { $turned(from, pitch) }
                }
            )?
            $(
                #[inline(always)]
                unsafe fn widen_pairs<const F16: bool>(words: $vector) -> [$vector; 2] {
                    // SAFETY: see the impl.
                    unsafe { $pairs::<F16>(words) }
                }
            )?
            $(
                const EXCHANGES: bool = true;

                #[inline(always)]
                unsafe fn write_rows(columns: [$vector; 8], to: *mut $elem, step: usize, rows: usize, fresh: bool) {
                    // SAFETY: see the impl.
                    unsafe { $rows(columns, to, step, rows, fresh) }
                }
            )?
        }
    };
}

/// [`Simd::settle`] of a type: an instruction of no length that takes and gives the value, and may change any memory, so
/// that no load goes past it.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! settle {
    ($name:ident, $vector:ty, $class:ident, $feature:literal) => {
        #[doc = concat!("[`Simd::settle`] of `", stringify!($vector), "`.")]
        ///
        /// # Safety
        ///
        #[doc = concat!("The instruction set `", $feature, "`.")]
        #[inline]
        #[target_feature(enable = $feature)]
        unsafe fn $name(mut x: $vector) -> $vector {
            // SAFETY: there is no instruction.
            unsafe { std::arch::asm!("/* {0} */", inout($class) x, options(nostack, preserves_flags)) };
            x
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::super::moves::*;
    use super::Simd;

    simd!(Avx512F32, f32, __m512, 16, half Avx2F32, zero _mm512_setzero_ps(), splat _mm512_set1_ps, load _mm512_loadu_ps,
        store _mm512_storeu_ps, mul_add _mm512_fmadd_ps, add _mm512_add_ps, prefetch _mm_prefetch::<_MM_HINT_T0>,
        next _mm_prefetch::<_MM_HINT_T1>, settle settle_zmm, widen widen_16, turned turned_16,
        pairs pairs_16, rows rows_of_16);
    simd!(Avx512F64, f64, __m512d, 8, half Avx2F64, zero _mm512_setzero_pd(), splat _mm512_set1_pd, load _mm512_loadu_pd,
        store _mm512_storeu_pd, mul_add _mm512_fmadd_pd, add _mm512_add_pd, prefetch _mm_prefetch::<_MM_HINT_T0>,
        next _mm_prefetch::<_MM_HINT_T1>, settle settle_zmm_f64, turned turned_8_f64);
    simd!(Avx2F32, f32, __m256, 8, half SseF32, zero _mm256_setzero_ps(), splat _mm256_set1_ps, load _mm256_loadu_ps,
        store _mm256_storeu_ps, mul_add _mm256_fmadd_ps, add _mm256_add_ps, prefetch _mm_prefetch::<_MM_HINT_T0>,
        next _mm_prefetch::<_MM_HINT_T1>, settle settle_ymm, widen widen_8, turned turned_8,
        pairs pairs_8, rows rows_of_8);
    simd!(Avx2F64, f64, __m256d, 4, half SseF64, zero _mm256_setzero_pd(), splat _mm256_set1_pd, load _mm256_loadu_pd,
        store _mm256_storeu_pd, mul_add _mm256_fmadd_pd, add _mm256_add_pd, prefetch _mm_prefetch::<_MM_HINT_T0>,
        next _mm_prefetch::<_MM_HINT_T1>, settle settle_ymm_f64, turned turned_4_f64);
    settle!(settle_zmm, __m512, zmm_reg, "avx512f");
    settle!(settle_zmm_f64, __m512d, zmm_reg, "avx512f");
    settle!(settle_ymm, __m256, ymm_reg, "avx");
    settle!(settle_ymm_f64, __m256d, ymm_reg, "avx");
    settle!(settle_xmm, __m128, xmm_reg, "sse");
    settle!(settle_xmm_f64, __m128d, xmm_reg, "sse2");
    // Halves of the above, with the instructions for fused steps that come with AVX2.
    simd!(SseF32, f32, __m128, 4, half SseF32, zero _mm_setzero_ps(), splat _mm_set1_ps, load _mm_loadu_ps,
        store _mm_storeu_ps, mul_add _mm_fmadd_ps, add _mm_add_ps, prefetch _mm_prefetch::<_MM_HINT_T0>,
        next _mm_prefetch::<_MM_HINT_T1>, settle settle_xmm, widen widen_4, columns columns_f32);
    simd!(SseF64, f64, __m128d, 2, half SseF64, zero _mm_setzero_pd(), splat _mm_set1_pd, load _mm_loadu_pd,
        store _mm_storeu_pd, mul_add _mm_fmadd_pd, add _mm_add_pd, prefetch _mm_prefetch::<_MM_HINT_T0>,
        next _mm_prefetch::<_MM_HINT_T1>, settle settle_xmm_f64);
}
#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2F32, Avx2F64, Avx512F32, Avx512F64};

#[cfg(target_arch = "aarch64")]
mod arm {
    use std::arch::aarch64::*;

    use super::Simd;

    settle!(settle_f32, float32x4_t, vreg, "neon");
    settle!(settle_f64, float64x2_t, vreg, "neon");
    // The instruction adds to its first operand.
    simd!(NeonF32, f32, float32x4_t, 4, half NeonF32, zero vdupq_n_f32(0.0), splat vdupq_n_f32, load vld1q_f32,
        store vst1q_f32, mul_add (|x, y, z| vfmaq_f32(z, x, y)), add vaddq_f32, prefetch (|_: *const u8| ()),
        next (|_: *const u8| ()), settle settle_f32);
    simd!(NeonF64, f64, float64x2_t, 2, half NeonF64, zero vdupq_n_f64(0.0), splat vdupq_n_f64, load vld1q_f64,
        store vst1q_f64, mul_add (|x, y, z| vfmaq_f64(z, x, y)), add vaddq_f64, prefetch (|_: *const u8| ()),
        next (|_: *const u8| ()), settle settle_f64);
}
#[cfg(target_arch = "aarch64")]
pub(crate) use arm::{NeonF32, NeonF64};

/// `N` lanes in plain Rust; the fused step is a library call where the machine has none. Compilers hold 16 bytes as a
/// value, and longer arrays as memory, which takes them several times as long.
#[derive(Clone, Copy)]
pub(crate) struct Portable<T, const N: usize>(std::marker::PhantomData<T>);

// SAFETY (all methods): needs no instruction set; the trait's contract gives the pointers.
impl<T: Real, const N: usize> Simd for Portable<T, N> {
    type Elem = T;
    type Vector = [T; N];
    type Half = Self;
    const LANES: usize = N;

    #[inline(always)]
    unsafe fn zero() -> [T; N] {
        [T::ZERO; N]
    }
    #[inline(always)]
    unsafe fn splat(x: *const T) -> [T; N] {
        // SAFETY: see the impl.
        [unsafe { *x }; N]
    }
    #[inline(always)]
    unsafe fn load(x: *const T) -> [T; N] {
        // SAFETY: see the impl.
        unsafe { x.cast::<[T; N]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(x: *mut T, value: [T; N]) {
        // SAFETY: see the impl.
        unsafe { x.cast::<[T; N]>().write_unaligned(value) }
    }
    #[inline(always)]
    unsafe fn mul_add(x: [T; N], y: [T; N], z: [T; N]) -> [T; N] {
        std::array::from_fn(
            #[inline(always)]
            |lane| x[lane].fused(y[lane], z[lane]),
        )
    }
    #[inline(always)]
    unsafe fn add(x: [T; N], y: [T; N]) -> [T; N] {
        std::array::from_fn(
            #[inline(always)]
            |lane| x[lane] + y[lane],
        )
    }
    #[inline(always)]
    unsafe fn prefetch(_: *const T) {}
    #[inline(always)]
    unsafe fn prefetch_next(_: *const T) {}
}
