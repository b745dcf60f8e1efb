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

    /// The steps of an exchange.
    const STEPS: usize;

    /// Copies so many steps of eight rows, at a distance of `step`, to columns of eight elements. Only vectors with
    /// [`Simd::EXCHANGES`].
    unsafe fn exchange<S: Simd<Elem = T>>(from: *const Self::Stored, step: usize, to: *mut [T; 8]);

    /// As [`Simd::columns`].
    unsafe fn columns<S: Simd<Elem = T>>(x: *const Self::Stored, step: usize) -> [[T; 4]; 4];
}

/// The first elements of eight rows at a distance of `step`.
#[inline(always)]
pub(super) fn eight_rows<T>(from: *const T, step: usize) -> [*const T; 8] {
    std::array::from_fn(|row| from.wrapping_add(row * step))
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
    unsafe fn exchange<S: Simd<Elem = T>>(from: *const T, step: usize, to: *mut [T; 8]) {
        // SAFETY: see the impl.
        unsafe { S::exchange(eight_rows(from, step), to.cast(), 8) }
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

    // Words of two `bf16` are exchanged as one.
    const STEPS: usize = if F16 { 8 } else { 16 };

    #[inline(always)]
    unsafe fn exchange<S: Simd<Elem = f32>>(from: *const u16, step: usize, to: *mut [f32; 8]) {
        let mut words = [[0.0; 8]; 8];
        let rows = eight_rows(from, step);
        // SAFETY: see the impl; vectors with exchanges have eight lanes.
        unsafe {
            if F16 {
                for (row, from) in words.iter_mut().zip(rows) {
                    S::store(row.as_mut_ptr(), S::widen::<F16>(from));
                }
                S::exchange(eight_rows(words.as_ptr().cast(), 8), to.cast(), 8);
                return;
            }
            let pairs = std::array::from_fn(
                #[inline(always)]
                |row| rows[row].cast(),
            );
            S::exchange(pairs, words.as_mut_ptr().cast(), 8);
            for (n, words) in words.iter().enumerate() {
                for (half, numbers) in S::widen_pairs(words.as_ptr()).into_iter().enumerate() {
                    S::store(to.add(2 * n + half).cast(), numbers);
                }
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
