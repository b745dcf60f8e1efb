//! Elements as they lie in memory, and as they are computed with: the same, or 16-bit floats as single precision.

#[cfg(target_arch = "x86_64")]
use retape_runtime::f16;

use super::Real;
use super::simd::Simd;

/// The number of these bits, of `f16` or of `bf16`.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn single<const F16: bool>(bits: u16) -> f32 {
    if F16 { f16::from_bits(bits).to_f32() } else { f32::from_bits(u32::from(bits) << 16) }
}

/// How elements that are computed with as `T` lie in memory.
///
/// # Safety
///
/// Methods need what those of [`Simd`] need.
pub(super) trait StoredElement<T: Real> {
    /// An element in memory.
    type Stored: Copy;

    /// The element as it is computed with.
    fn element(x: Self::Stored) -> T;

    /// The elements of a vector from `x` on.
    unsafe fn load<S: Simd<Elem = T>>(x: *const Self::Stored) -> S::Vector;

    /// The steps of [`add_turned`](StoredElement::add_turned).
    const STEPS: usize;

    /// Adds the products of so many steps of as many rows as a vector has lanes, at a distance of `a_row`, by `V` vectors: those
    /// at `factors` and at one more distance each, the first of two distances, of which the other one is that of their steps.
    /// Only vectors with [`Simd::TURNS`].
    unsafe fn add_turned<S: Simd<Elem = T>, const V: usize>(
        rows: (*const Self::Stored, usize),
        factors: (*const T, [isize; 2]),
        sums: &mut [S::Vector; V],
    );

    /// As [`Simd::columns`].
    unsafe fn columns<S: Simd<Elem = T>>(x: *const Self::Stored, step: usize) -> [[T; 4]; 4];
}

/// Adds the products of a step of some rows by `V` vectors, given as for [`StoredElement::add_turned`].
///
/// # Safety
///
/// The instruction set of `S`, and readable factors.
#[inline(always)]
pub(super) unsafe fn add_step<S: Simd, const V: usize>(
    column: S::Vector,
    (factors, [x_vector, x_step]): (*const S::Elem, [isize; 2]),
    step: usize,
    sums: &mut [S::Vector; V],
) {
    for (vector, sum) in sums.iter_mut().enumerate() {
        // SAFETY: by the contract of this function.
        unsafe {
            let factor = S::splat(factors.offset(vector as isize * x_vector + step as isize * x_step));
            *sum = S::mul_add(column, factor, *sum);
        }
    }
}

/// Elements that are computed with as they are.
pub(super) struct AsStored;

// SAFETY (all methods): the trait's contract is handed on.
impl<T: Real> StoredElement<T> for AsStored {
    type Stored = T;

    #[inline(always)]
    fn element(x: T) -> T {
        x
    }

    #[inline(always)]
    unsafe fn load<S: Simd<Elem = T>>(x: *const T) -> S::Vector {
        // SAFETY: see the impl.
        unsafe { S::load(x) }
    }

    const STEPS: usize = 8;

    #[inline(always)]
    unsafe fn add_turned<S: Simd<Elem = T>, const V: usize>(
        (from, a_row): (*const T, usize),
        factors: (*const T, [isize; 2]),
        sums: &mut [S::Vector; V],
    ) {
        // SAFETY: see the impl.
        unsafe {
            for (step, column) in S::turned(from, a_row * size_of::<T>()).into_iter().enumerate() {
                add_step::<S, V>(column, factors, step, sums);
            }
        }
    }

    #[inline(always)]
    unsafe fn columns<S: Simd<Elem = T>>(x: *const T, step: usize) -> [[T; 4]; 4] {
        // SAFETY: see the impl.
        unsafe { S::columns(x, step) }
    }
}

/// Bits of 16-bit floats, `f16` or `bf16`, that are computed with as single precision.
#[cfg(target_arch = "x86_64")]
pub(super) struct Widened<const F16: bool>;

// SAFETY (all methods): the trait's contract is handed on.
#[cfg(target_arch = "x86_64")]
impl<const F16: bool> StoredElement<f32> for Widened<F16> {
    type Stored = u16;

    #[inline(always)]
    fn element(x: u16) -> f32 {
        single::<F16>(x)
    }

    #[inline(always)]
    unsafe fn load<S: Simd<Elem = f32>>(x: *const u16) -> S::Vector {
        // SAFETY: see the impl.
        unsafe { S::widen::<F16>(x) }
    }

    // Words of two elements are turned as one.
    const STEPS: usize = 16;

    #[inline(always)]
    unsafe fn add_turned<S: Simd<Elem = f32>, const V: usize>(
        (from, a_row): (*const u16, usize),
        factors: (*const f32, [isize; 2]),
        sums: &mut [S::Vector; V],
    ) {
        // SAFETY: see the impl.
        unsafe {
            for (pair, words) in S::turned(from.cast(), a_row * size_of::<u16>()).into_iter().enumerate() {
                let [first, second] = S::widen_pairs::<F16>(words);
                add_step::<S, V>(first, factors, 2 * pair, sums);
                add_step::<S, V>(second, factors, 2 * pair + 1, sums);
            }
        }
    }

    #[inline(always)]
    unsafe fn columns<S: Simd<Elem = f32>>(x: *const u16, step: usize) -> [[f32; 4]; 4] {
        let at = |column: usize, row: usize| x.wrapping_add(row * step + column);
        // SAFETY: see the impl.
        std::array::from_fn(|column| std::array::from_fn(|row| single::<F16>(unsafe { *at(column, row) })))
    }
}
