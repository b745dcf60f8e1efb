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
/// that is valid for `LANES` (or one) elements, `columns` one that is so for its rows; no alignment is asked for.
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
    /// Four rows of four elements, at a distance of `step`, as four columns.
    #[inline(always)]
    unsafe fn columns(x: *const Self::Elem, step: usize) -> [[Self::Elem; 4]; 4] {
        // SAFETY: the caller's rows are readable.
        let rows = std::array::from_fn(|row| unsafe { x.add(row * step).cast::<[Self::Elem; 4]>().read_unaligned() });
        let rows: [[Self::Elem; 4]; 4] = rows;
        std::array::from_fn(|column| rows.map(|row| row[column]))
    }
}

/// Lanes of the shortest vectors that narrow results are computed with.
pub(crate) const fn least_lanes<S: Simd>() -> usize {
    <<S::Half as Simd>::Half as Simd>::LANES
}

/// Implements [`Simd`] for a marker type by naming the intrinsics.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! simd {
    ($name:ident, $elem:ty, $vector:ty, $lanes:expr, half $half:ty, zero $zero:expr, splat $splat:expr, load $load:expr,
     store $store:expr, mul_add $mul_add:expr, add $add:expr, prefetch $prefetch:expr,
     next $next:expr $(, columns $columns:ident)?) => {
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
            $(
                #[inline(always)]
                unsafe fn columns(x: *const $elem, step: usize) -> [[$elem; 4]; 4] {
                    // SAFETY: see the impl.
                    unsafe { $columns(x, step) }
                }
            )?
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::Simd;

    simd!(Avx512F32, f32, __m512, 16, half Avx2F32, zero _mm512_setzero_ps(), splat _mm512_set1_ps, load _mm512_loadu_ps,
        store _mm512_storeu_ps, mul_add _mm512_fmadd_ps, add _mm512_add_ps, prefetch _mm_prefetch::<_MM_HINT_T0>,
        next _mm_prefetch::<_MM_HINT_T1>);
    simd!(Avx512F64, f64, __m512d, 8, half Avx2F64, zero _mm512_setzero_pd(), splat _mm512_set1_pd, load _mm512_loadu_pd,
        store _mm512_storeu_pd, mul_add _mm512_fmadd_pd, add _mm512_add_pd, prefetch _mm_prefetch::<_MM_HINT_T0>,
        next _mm_prefetch::<_MM_HINT_T1>);
    simd!(Avx2F32, f32, __m256, 8, half SseF32, zero _mm256_setzero_ps(), splat _mm256_set1_ps, load _mm256_loadu_ps,
        store _mm256_storeu_ps, mul_add _mm256_fmadd_ps, add _mm256_add_ps, prefetch _mm_prefetch::<_MM_HINT_T0>,
        next _mm_prefetch::<_MM_HINT_T1>);
    simd!(Avx2F64, f64, __m256d, 4, half SseF64, zero _mm256_setzero_pd(), splat _mm256_set1_pd, load _mm256_loadu_pd,
        store _mm256_storeu_pd, mul_add _mm256_fmadd_pd, add _mm256_add_pd, prefetch _mm_prefetch::<_MM_HINT_T0>,
        next _mm_prefetch::<_MM_HINT_T1>);
    // Halves of the above, with the instructions for fused steps that come with AVX2.
    simd!(SseF32, f32, __m128, 4, half SseF32, zero _mm_setzero_ps(), splat _mm_set1_ps, load _mm_loadu_ps,
        store _mm_storeu_ps, mul_add _mm_fmadd_ps, add _mm_add_ps, prefetch _mm_prefetch::<_MM_HINT_T0>,
        next _mm_prefetch::<_MM_HINT_T1>,
        columns columns_f32);
    simd!(SseF64, f64, __m128d, 2, half SseF64, zero _mm_setzero_pd(), splat _mm_set1_pd, load _mm_loadu_pd,
        store _mm_storeu_pd, mul_add _mm_fmadd_pd, add _mm_add_pd, prefetch _mm_prefetch::<_MM_HINT_T0>,
        next _mm_prefetch::<_MM_HINT_T1>);

    /// [`Simd::columns`] by exchanges of halves, which no compiler finds in moves of single elements.
    ///
    /// # Safety
    ///
    /// The four rows are readable.
    #[inline(always)]
    unsafe fn columns_f32(x: *const f32, step: usize) -> [[f32; 4]; 4] {
        // SAFETY: the rows are readable; vectors and arrays of four elements have the same bytes.
        unsafe {
            let [mut a, mut b, mut c, mut d] = [0, 1, 2, 3].map(|row| _mm_loadu_ps(x.add(row * step)));
            _MM_TRANSPOSE4_PS(&mut a, &mut b, &mut c, &mut d);
            std::mem::transmute::<[__m128; 4], [[f32; 4]; 4]>([a, b, c, d])
        }
    }
}
#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2F32, Avx2F64, Avx512F32, Avx512F64};

#[cfg(target_arch = "aarch64")]
mod arm {
    use std::arch::aarch64::*;

    use super::Simd;

    // The instruction adds to its first operand.
    simd!(NeonF32, f32, float32x4_t, 4, half NeonF32, zero vdupq_n_f32(0.0), splat vdupq_n_f32, load vld1q_f32,
        store vst1q_f32, mul_add (|x, y, z| vfmaq_f32(z, x, y)), add vaddq_f32, prefetch (|_: *const u8| ()),
        next (|_: *const u8| ()));
    simd!(NeonF64, f64, float64x2_t, 2, half NeonF64, zero vdupq_n_f64(0.0), splat vdupq_n_f64, load vld1q_f64,
        store vst1q_f64, mul_add (|x, y, z| vfmaq_f64(z, x, y)), add vaddq_f64, prefetch (|_: *const u8| ()),
        next (|_: *const u8| ()));
}
#[cfg(target_arch = "aarch64")]
pub(crate) use arm::{NeonF32, NeonF64};

/// Four lanes in plain Rust; the fused step is a library call where the machine has none.
#[derive(Clone, Copy)]
pub(crate) struct Portable<T>(std::marker::PhantomData<T>);

// SAFETY (all methods): needs no instruction set; the trait's contract gives the pointers.
impl<T: Real> Simd for Portable<T> {
    type Elem = T;
    type Vector = [T; 4];
    type Half = Self;
    const LANES: usize = 4;

    #[inline(always)]
    unsafe fn zero() -> [T; 4] {
        [T::ZERO; 4]
    }
    #[inline(always)]
    unsafe fn splat(x: *const T) -> [T; 4] {
        // SAFETY: see the impl.
        [unsafe { *x }; 4]
    }
    #[inline(always)]
    unsafe fn load(x: *const T) -> [T; 4] {
        // SAFETY: see the impl.
        unsafe { x.cast::<[T; 4]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(x: *mut T, value: [T; 4]) {
        // SAFETY: see the impl.
        unsafe { x.cast::<[T; 4]>().write_unaligned(value) }
    }
    #[inline(always)]
    unsafe fn mul_add(x: [T; 4], y: [T; 4], z: [T; 4]) -> [T; 4] {
        std::array::from_fn(|lane| x[lane].fused(y[lane], z[lane]))
    }
    #[inline(always)]
    unsafe fn add(x: [T; 4], y: [T; 4]) -> [T; 4] {
        std::array::from_fn(|lane| x[lane] + y[lane])
    }
    #[inline(always)]
    unsafe fn prefetch(_: *const T) {}
    #[inline(always)]
    unsafe fn prefetch_next(_: *const T) {}
}
