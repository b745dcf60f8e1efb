//! Rows and columns of a matrix exchanged in registers, one square block after another.
//!
//! Guarantees: every element of the result is written, with the bits of its source, and nothing else is.

use super::plain::Plain;

/// Rows and columns of a block.
pub(crate) const BLOCK: usize = 8;

/// Writes `to[column * to_pitch + row] = from[row * from_pitch + column]` for all of `rows` and `cols`.
///
/// # Panics
/// If one of the slices ends before.
pub(crate) fn exchange<T: Plain>(
    from: &[T],
    from_pitch: usize,
    [rows, cols]: [usize; 2],
    to: &mut [T],
    to_pitch: usize,
) {
    assert!(reach([cols, rows], to_pitch).is_some_and(|len| len <= to.len()), "elements that are exchanged");
    // SAFETY: the slice has all of the elements, as was just checked, and is borrowed exclusively.
    unsafe { exchange_to(from, from_pitch, [rows, cols], to.as_mut_ptr(), to_pitch) };
}

/// The number of elements up to the last one of so many lines at distance `pitch`.
fn reach([lines, line]: [usize; 2], pitch: usize) -> Option<usize> {
    if lines == 0 || line == 0 { Some(0) } else { (lines - 1).checked_mul(pitch)?.checked_add(line) }
}

/// [`exchange`] to memory of which each line is given.
///
/// # Panics
/// If the slice ends before.
///
/// # Safety
///
/// `rows` elements at each of `cols` multiples of `to_pitch` after `to` can be written, and nobody else uses them.
pub(crate) unsafe fn exchange_to<T: Plain>(
    from: &[T],
    from_pitch: usize,
    [rows, cols]: [usize; 2],
    to: *mut T,
    to_pitch: usize,
) {
    assert!(reach([rows, cols], from_pitch).is_some_and(|len| len <= from.len()), "elements to exchange");
    // SAFETY: the source has all of its elements, as was just checked, and the target, by the caller.
    unsafe { exchange_between(from.as_ptr(), from_pitch, [rows, cols], to, to_pitch) };
}

/// Whether this processor exchanges blocks in registers.
pub(crate) fn has_registers() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("avx2");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// [`exchange_to`] past the caches, right from registers, if there are ([`has_registers`]).
///
/// # Panics
/// As [`exchange_to`], and if rows or columns are no whole blocks: none may be written twice.
///
/// # Safety
///
/// As [`exchange_to`]. Lines of the target are whole cache lines, and a fence follows before anybody reads or writes them.
pub(crate) unsafe fn exchange_past_caches<T: Plain>(
    from: &[T],
    from_pitch: usize,
    [rows, cols]: [usize; 2],
    to: *mut T,
    to_pitch: usize,
) {
    assert!(reach([rows, cols], from_pitch).is_some_and(|len| len <= from.len()), "elements to exchange");
    assert!(rows.is_multiple_of(BLOCK) && cols.is_multiple_of(BLOCK), "whole blocks");
    // SAFETY: as for `exchange_to`; the caller sees to whole lines and to the fence.
    unsafe { exchange_as::<T, true>(from.as_ptr(), from_pitch, [rows, cols], to, to_pitch) };
}

/// [`exchange`] from and to memory of which each line is given.
///
/// # Safety
///
/// As [`exchange_to`], and `cols` elements at each of `rows` multiples of `from_pitch` after `from` can be read.
pub(crate) unsafe fn exchange_between<T: Plain>(
    from: *const T,
    from_pitch: usize,
    [rows, cols]: [usize; 2],
    to: *mut T,
    to_pitch: usize,
) {
    // SAFETY: the caller's.
    unsafe { exchange_as::<T, false>(from, from_pitch, [rows, cols], to, to_pitch) };
}

/// [`exchange_between`], past the caches if `PAST_CACHES` is set.
///
/// # Safety
///
/// As [`exchange_between`]; past the caches, as [`exchange_past_caches`].
unsafe fn exchange_as<T: Plain, const PAST_CACHES: bool>(
    from: *const T,
    from_pitch: usize,
    [rows, cols]: [usize; 2],
    to: *mut T,
    to_pitch: usize,
) {
    #[cfg(target_arch = "x86_64")]
    if rows >= BLOCK && cols >= BLOCK && has_registers() {
        let (from, to) = (from.cast(), to.cast());
        let pitches = [from_pitch, to_pitch].map(|pitch| pitch * size_of::<T>());
        // SAFETY: the processor has AVX2; there is a block at least, and source and target have all of its elements, by
        // the caller. An element has the bytes that its function is named for.
        unsafe {
            match size_of::<T>() {
                1 => x86::exchange::<1, PAST_CACHES>(from, to, pitches, [rows, cols]),
                2 => x86::exchange::<2, PAST_CACHES>(from, to, pitches, [rows, cols]),
                4 => x86::exchange::<4, PAST_CACHES>(from, to, pitches, [rows, cols]),
                _ => x86::exchange::<8, PAST_CACHES>(from, to, pitches, [rows, cols]),
            }
        }
        return;
    }
    /// Rows that are read together, so that runs of them are written.
    const ROWS: usize = 4;
    for first in (0..rows).step_by(ROWS) {
        for column in 0..cols {
            for row in first..rows.min(first + ROWS) {
                // SAFETY: an element of the target, and one of the source, by the caller.
                unsafe { to.add(column * to_pitch + row).write(*from.add(row * from_pitch + column)) };
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m128i, __m256i, _mm_cvtsi128_si64, _mm_loadl_epi64, _mm_loadu_si128, _mm_storel_epi64, _mm_storeu_si128,
        _mm_stream_si64, _mm_stream_si128, _mm_unpackhi_epi16, _mm_unpackhi_epi32, _mm_unpackhi_epi64,
        _mm_unpacklo_epi8, _mm_unpacklo_epi16, _mm_unpacklo_epi32, _mm_unpacklo_epi64, _mm256_castsi128_si256,
        _mm256_inserti128_si256, _mm256_storeu_si256, _mm256_stream_si256, _mm256_unpackhi_epi32,
        _mm256_unpackhi_epi64, _mm256_unpacklo_epi32, _mm256_unpacklo_epi64,
    };

    use super::BLOCK;

    /// Exchanges by blocks; the last ones of rows and columns that are no multiple of a block's begin in those before.
    ///
    /// # Safety
    ///
    /// There is a block of elements of `SIZE` bytes at least. `from` is readable for all of them, `to` is writable, at these
    /// distances in bytes from row to row, and they have no byte in common.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn exchange<const SIZE: usize, const PAST_CACHES: bool>(
        from: *const u8,
        to: *mut u8,
        pitches: [usize; 2],
        [rows, cols]: [usize; 2],
    ) {
        // Past the caches, lines are finished before others begin: a processor joins writes of few lines at a time.
        let strip = if PAST_CACHES { BLOCK } else { cols };
        for first in (0..cols).step_by(strip) {
            for row in (0..rows).step_by(BLOCK).map(|row| row.min(rows - BLOCK)) {
                for column in (first..cols.min(first + strip)).step_by(BLOCK).map(|column| column.min(cols - BLOCK)) {
                    // SAFETY: the block's first elements; all others of its rows and columns are there as well.
                    unsafe {
                        let from = from.add(row * pitches[0] + column * SIZE);
                        let to = to.add(column * pitches[1] + row * SIZE);
                        match SIZE {
                            1 => block_of_1::<PAST_CACHES>(from, to, pitches),
                            2 => block_of_2::<PAST_CACHES>(from, to, pitches),
                            4 => block_of_4::<PAST_CACHES>(from, to, pitches),
                            _ => block_of_8::<PAST_CACHES>(from, to, pitches),
                        }
                    }
                }
            }
        }
    }

    /// Defines writes of a register, or of its first bytes.
    macro_rules! writes {
        ($(#[$meta:meta])* $name:ident, $register:ty, $to:ident, $bytes:ident: $past:expr, $near:expr) => {
            $(#[$meta])*
            ///
            /// # Safety
            ///
            /// The bytes can be written; past the caches, they are aligned, and a fence follows.
            #[inline]
            #[target_feature(enable = "avx2")]
            unsafe fn $name<const PAST_CACHES: bool>($to: *mut u8, $bytes: $register) {
                // SAFETY: the caller's.
                unsafe { if PAST_CACHES { $past } else { $near } }
            }
        };
    }

    writes! {
        /// Writes the first 8 bytes of a register.
        write_8, __m128i, to, bytes:
        _mm_stream_si64(to.cast(), _mm_cvtsi128_si64(bytes)), _mm_storel_epi64(to.cast(), bytes)
    }
    writes! {
        /// Writes a register of 16 bytes.
        write_16, __m128i, to, bytes: _mm_stream_si128(to.cast(), bytes), _mm_storeu_si128(to.cast(), bytes)
    }
    writes! {
        /// Writes a register of 32 bytes.
        write_32, __m256i, to, bytes: _mm256_stream_si256(to.cast(), bytes), _mm256_storeu_si256(to.cast(), bytes)
    }

    /// A block of elements of one byte: pairs of rows, then fours, then all, element by element in turn.
    ///
    /// # Safety
    ///
    /// The block can be read and written.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn block_of_1<const PAST_CACHES: bool>(from: *const u8, to: *mut u8, [from_pitch, to_pitch]: [usize; 2]) {
        // SAFETY: the caller's.
        let pair = |row: usize| unsafe {
            let row = from.add(row * from_pitch);
            _mm_unpacklo_epi8(_mm_loadl_epi64(row.cast()), _mm_loadl_epi64(row.add(from_pitch).cast()))
        };
        let [a, b, c, d] = [pair(0), pair(2), pair(4), pair(6)];
        let fours = [
            [_mm_unpacklo_epi16(a, b), _mm_unpacklo_epi16(c, d)],
            [_mm_unpackhi_epi16(a, b), _mm_unpackhi_epi16(c, d)],
        ];
        for (at, [upper, lower]) in fours.into_iter().enumerate() {
            let pairs = [_mm_unpacklo_epi32(upper, lower), _mm_unpackhi_epi32(upper, lower)];
            for (pair, columns) in pairs.into_iter().enumerate() {
                // SAFETY: the caller's.
                unsafe {
                    let to = to.add((4 * at + 2 * pair) * to_pitch);
                    write_8::<PAST_CACHES>(to, columns);
                    write_8::<PAST_CACHES>(to.add(to_pitch), _mm_unpackhi_epi64(columns, columns));
                }
            }
        }
    }

    /// A block of elements of two bytes, in the same way.
    ///
    /// # Safety
    ///
    /// The block can be read and written.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn block_of_2<const PAST_CACHES: bool>(from: *const u8, to: *mut u8, [from_pitch, to_pitch]: [usize; 2]) {
        // SAFETY: the caller's.
        let line = |row: usize| unsafe { _mm_loadu_si128(from.add(row * from_pitch).cast()) };
        let pairs = |row: usize| -> [__m128i; 2] {
            let (upper, lower) = (line(row), line(row + 1));
            [_mm_unpacklo_epi16(upper, lower), _mm_unpackhi_epi16(upper, lower)]
        };
        let [a, b, c, d] = [pairs(0), pairs(2), pairs(4), pairs(6)];
        for half in 0..2 {
            let fours = [
                [_mm_unpacklo_epi32(a[half], b[half]), _mm_unpacklo_epi32(c[half], d[half])],
                [_mm_unpackhi_epi32(a[half], b[half]), _mm_unpackhi_epi32(c[half], d[half])],
            ];
            for (at, [upper, lower]) in fours.into_iter().enumerate() {
                // SAFETY: the caller's.
                unsafe {
                    let to = to.add((4 * half + 2 * at) * to_pitch);
                    write_16::<PAST_CACHES>(to, _mm_unpacklo_epi64(upper, lower));
                    write_16::<PAST_CACHES>(to.add(to_pitch), _mm_unpackhi_epi64(upper, lower));
                }
            }
        }
    }

    /// 16 bytes of two rows, the second `distance` bytes after the first.
    ///
    /// # Safety
    ///
    /// The bytes can be read.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn two_rows(from: *const u8, distance: usize) -> __m256i {
        // SAFETY: the caller's. Loads join rows without a shuffle.
        unsafe {
            let (upper, lower) = (_mm_loadu_si128(from.cast()), _mm_loadu_si128(from.add(distance).cast()));
            _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(upper), lower)
        }
    }

    /// A block of elements of four bytes, by halves of its columns.
    ///
    /// # Safety
    ///
    /// The block can be read and written.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn block_of_4<const PAST_CACHES: bool>(from: *const u8, to: *mut u8, [from_pitch, to_pitch]: [usize; 2]) {
        for half in 0..2 {
            // SAFETY: the caller's.
            let rows = |row: usize| unsafe { two_rows(from.add(row * from_pitch + 16 * half), 4 * from_pitch) };
            let [a, b, c, d] = [rows(0), rows(1), rows(2), rows(3)];
            let pairs = [
                [_mm256_unpacklo_epi32(a, b), _mm256_unpacklo_epi32(c, d)],
                [_mm256_unpackhi_epi32(a, b), _mm256_unpackhi_epi32(c, d)],
            ];
            for (at, [upper, lower]) in pairs.into_iter().enumerate() {
                // SAFETY: the caller's.
                unsafe {
                    let to = to.add((4 * half + 2 * at) * to_pitch);
                    write_32::<PAST_CACHES>(to, _mm256_unpacklo_epi64(upper, lower));
                    write_32::<PAST_CACHES>(to.add(to_pitch), _mm256_unpackhi_epi64(upper, lower));
                }
            }
        }
    }

    /// A block of elements of eight bytes, by quarters of its columns and halves of its rows.
    ///
    /// # Safety
    ///
    /// The block can be read and written.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn block_of_8<const PAST_CACHES: bool>(from: *const u8, to: *mut u8, [from_pitch, to_pitch]: [usize; 2]) {
        for quarter in 0..4 {
            for half in 0..2 {
                // SAFETY: the caller's.
                unsafe {
                    let from = from.add(4 * half * from_pitch + 16 * quarter);
                    let to = to.add(2 * quarter * to_pitch + 32 * half);
                    let (even, odd) = (two_rows(from, 2 * from_pitch), two_rows(from.add(from_pitch), 2 * from_pitch));
                    write_32::<PAST_CACHES>(to, _mm256_unpacklo_epi64(even, odd));
                    write_32::<PAST_CACHES>(to.add(to_pitch), _mm256_unpackhi_epi64(even, odd));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use retape_runtime::f16;

    use super::*;

    /// [`exchange`] by moves of single elements.
    fn one_by_one<T: Copy>(from: &[T], from_pitch: usize, [rows, cols]: [usize; 2], to: &mut [T], to_pitch: usize) {
        for column in 0..cols {
            for (row, to) in to[column * to_pitch..][..rows].iter_mut().enumerate() {
                *to = from[row * from_pitch + column];
            }
        }
    }

    fn check<T: Plain + PartialEq + Debug>(element: impl Fn(usize) -> T) {
        for rows in [0, 1, 7, 8, 9, 16, 21, 40] {
            for cols in [0, 1, 7, 8, 11, 24, 31] {
                for slack in [0, 3] {
                    let (from_pitch, to_pitch) = (cols + slack, rows + 2 * slack);
                    let from: Vec<T> = (0..rows * from_pitch).map(&element).collect();
                    let [mut found, mut expected] = [(); 2].map(|()| vec![element(77); cols * to_pitch]);
                    exchange(&from, from_pitch, [rows, cols], &mut found, to_pitch);
                    one_by_one(&from, from_pitch, [rows, cols], &mut expected, to_pitch);
                    assert_eq!(found, expected, "{rows} by {cols} {}, at distances with {slack}", T::DTYPE);
                }
            }
        }
    }

    /// Also that nothing between lines is written.
    #[test]
    fn blocks_are_what_single_elements_are() {
        check(|at| (at * 37 % 251) as u8);
        check(|at| f16::from_bits((at * 37) as u16 % 30_000));
        check(|at| at as u32);
        check(|at| at as i64);
    }

    #[test]
    #[should_panic(expected = "elements that are exchanged")]
    fn a_result_that_is_too_short_is_refused() {
        exchange(&[0_u32; 64], 8, [8, 8], &mut [0; 63], 8);
    }
}
