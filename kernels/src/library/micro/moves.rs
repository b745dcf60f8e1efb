//! Several instructions of x86-64 for one operation of [`Simd`](super::simd::Simd): rows and columns of registers exchanged,
//! and 16-bit floats made wide.

use std::arch::x86_64::*;

/// [`super::simd::Simd::widen`]: by an instruction, or as the upper halves of words.
macro_rules! widen {
    ($name:ident, $lanes:literal, $vector:ty, $features:literal, $load:ident, $convert:ident, $words:ident, $shift:ident, $cast:ident) => {
        #[doc = concat!("[`super::simd::Simd::widen`] of ", $lanes, " elements.")]
        ///
        /// # Safety
        ///
        #[doc = concat!($features, ", and readable elements.")]
        #[inline(always)]
        pub(super) unsafe fn $name<const F16: bool>(x: *const u16) -> $vector {
            // SAFETY: the instruction set is present, and the elements are there.
            unsafe {
                let x = $load(x.cast());
                if F16 { $convert(x) } else { $cast($shift::<16>($words(x))) }
            }
        }
    };
}

widen!(
    widen_16,
    16,
    __m512,
    "AVX-512F",
    _mm256_loadu_si256,
    _mm512_cvtph_ps,
    _mm512_cvtepu16_epi32,
    _mm512_slli_epi32,
    _mm512_castsi512_ps
);
widen!(
    widen_8,
    8,
    __m256,
    "AVX2, F16C",
    _mm_loadu_si128,
    _mm256_cvtph_ps,
    _mm256_cvtepu16_epi32,
    _mm256_slli_epi32,
    _mm256_castsi256_ps
);
widen!(
    widen_4,
    4,
    __m128,
    "SSE4.1, F16C",
    _mm_loadl_epi64,
    _mm_cvtph_ps,
    _mm_cvtepu16_epi32,
    _mm_slli_epi32,
    _mm_castsi128_ps
);

/// Four columns as rows of four elements: part l of 128 bits of the n-th has those of row 4 l + n.
macro_rules! quads {
    ($columns:expr, $cast:ident, $low:ident, $high:ident, $low_pair:ident, $high_pair:ident) => {{
        let [a, b, c, d] = $columns;
        let (low, high) = ([$cast($low(a, b)), $cast($low(c, d))], [$cast($high(a, b)), $cast($high(c, d))]);
        [
            $low_pair(low[0], low[1]),
            $high_pair(low[0], low[1]),
            $low_pair(high[0], high[1]),
            $high_pair(high[0], high[1]),
        ]
    }};
}

/// Rows of eight elements in pairs: lane i of a column is the element of row i. Pair n of the first four has rows n and
/// n + 4, and pair n of the others rows n + 8 and n + 12.
///
/// # Safety
///
/// AVX-512F.
#[inline(always)]
unsafe fn pairs_of_rows([c0, c1, c2, c3, c4, c5, c6, c7]: [__m512; 8]) -> [[__m512; 4]; 2] {
    // SAFETY: the instruction set is present.
    unsafe {
        let left = quads_of_16([c0, c1, c2, c3]);
        let right = quads_of_16([c4, c5, c6, c7]);
        let (first, last) = (_mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0), _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4));
        // No closures: what they call would not be a part of the function with the instruction set.
        [
            [
                _mm512_castpd_ps(_mm512_permutex2var_pd(left[0], first, right[0])),
                _mm512_castpd_ps(_mm512_permutex2var_pd(left[1], first, right[1])),
                _mm512_castpd_ps(_mm512_permutex2var_pd(left[2], first, right[2])),
                _mm512_castpd_ps(_mm512_permutex2var_pd(left[3], first, right[3])),
            ],
            [
                _mm512_castpd_ps(_mm512_permutex2var_pd(left[0], last, right[0])),
                _mm512_castpd_ps(_mm512_permutex2var_pd(left[1], last, right[1])),
                _mm512_castpd_ps(_mm512_permutex2var_pd(left[2], last, right[2])),
                _mm512_castpd_ps(_mm512_permutex2var_pd(left[3], last, right[3])),
            ],
        ]
    }
}

/// [`quads`] of 16 rows.
///
/// # Safety
///
/// AVX-512F.
#[inline(always)]
unsafe fn quads_of_16(columns: [__m512; 4]) -> [__m512d; 4] {
    // SAFETY: the instruction set is present.
    unsafe {
        quads!(
            columns,
            _mm512_castps_pd,
            _mm512_unpacklo_ps,
            _mm512_unpackhi_ps,
            _mm512_unpacklo_pd,
            _mm512_unpackhi_pd
        )
    }
}

/// [`quads`] of 8 rows.
///
/// # Safety
///
/// AVX.
#[inline(always)]
unsafe fn quads_of_8(columns: [__m256; 4]) -> [__m256d; 4] {
    // SAFETY: the instruction set is present.
    unsafe {
        quads!(
            columns,
            _mm256_castps_pd,
            _mm256_unpacklo_ps,
            _mm256_unpackhi_ps,
            _mm256_unpacklo_pd,
            _mm256_unpackhi_pd
        )
    }
}

/// [`super::simd::Simd::write_rows`] of 16 rows.
///
/// # Safety
///
/// AVX-512F, and writable rows.
#[inline(always)]
pub(super) unsafe fn rows_of_16(columns: [__m512; 8], to: *mut f32, step: usize, rows: usize, fresh: bool) {
    // SAFETY: the instruction set is present, and the rows that are written are there.
    unsafe {
        let [first, last] = pairs_of_rows(columns);
        for (n, pair) in first.into_iter().enumerate() {
            write_row(low_half(pair), to, step, n, rows, fresh);
            write_row(high_half(pair), to, step, n + 4, rows, fresh);
        }
        for (n, pair) in last.into_iter().enumerate() {
            write_row(low_half(pair), to, step, n + 8, rows, fresh);
            write_row(high_half(pair), to, step, n + 12, rows, fresh);
        }
    }
}

/// The first eight lanes.
///
/// # Safety
///
/// AVX-512F.
#[inline(always)]
unsafe fn low_half(x: __m512) -> __m256 {
    // SAFETY: the instruction set is present.
    unsafe { _mm512_castps512_ps256(x) }
}

/// The last eight lanes.
///
/// # Safety
///
/// AVX-512F.
#[inline(always)]
unsafe fn high_half(x: __m512) -> __m256 {
    // SAFETY: the instruction set is present.
    unsafe { _mm256_castpd_ps(_mm512_extractf64x4_pd::<1>(_mm512_castps_pd(x))) }
}

/// Writes or adds a row of eight elements, if there are so many rows.
///
/// # Safety
///
/// AVX, and a writable row.
#[inline(always)]
unsafe fn write_row(new: __m256, to: *mut f32, step: usize, row: usize, rows: usize, fresh: bool) {
    if row < rows {
        // SAFETY: the instruction set is present, and the row is there.
        unsafe {
            let at = to.add(row * step);
            _mm256_storeu_ps(at, if fresh { new } else { _mm256_add_ps(_mm256_loadu_ps(at), new) });
        }
    }
}

/// Eight rows of eight elements as columns.
///
/// # Safety
///
/// AVX.
#[inline(always)]
unsafe fn exchanged([c0, c1, c2, c3, c4, c5, c6, c7]: [__m256; 8]) -> [__m256; 8] {
    // SAFETY: the instruction set is present.
    unsafe {
        let [a0, a1, a2, a3] = quads_of_8([c0, c1, c2, c3]);
        let [b0, b1, b2, b3] = quads_of_8([c4, c5, c6, c7]);
        [
            _mm256_castpd_ps(_mm256_permute2f128_pd::<0x20>(a0, b0)),
            _mm256_castpd_ps(_mm256_permute2f128_pd::<0x20>(a1, b1)),
            _mm256_castpd_ps(_mm256_permute2f128_pd::<0x20>(a2, b2)),
            _mm256_castpd_ps(_mm256_permute2f128_pd::<0x20>(a3, b3)),
            _mm256_castpd_ps(_mm256_permute2f128_pd::<0x31>(a0, b0)),
            _mm256_castpd_ps(_mm256_permute2f128_pd::<0x31>(a1, b1)),
            _mm256_castpd_ps(_mm256_permute2f128_pd::<0x31>(a2, b2)),
            _mm256_castpd_ps(_mm256_permute2f128_pd::<0x31>(a3, b3)),
        ]
    }
}

/// [`super::simd::Simd::write_rows`] of 8 rows.
///
/// # Safety
///
/// AVX, and writable rows.
#[inline(always)]
pub(super) unsafe fn rows_of_8(columns: [__m256; 8], to: *mut f32, step: usize, rows: usize, fresh: bool) {
    // SAFETY: handed on.
    unsafe {
        for (row, new) in exchanged(columns).into_iter().enumerate() {
            write_row(new, to, step, row, rows, fresh);
        }
    }
}

/// The row at a distance of `row` pitches.
///
/// # Safety
///
/// AVX, and a readable row.
#[inline(always)]
unsafe fn row_of_8(from: *const f32, pitch: usize, row: usize) -> __m256 {
    // SAFETY: by the contract of this function.
    unsafe { _mm256_loadu_ps(from.byte_add(row * pitch)) }
}

/// The row at a distance of `row` pitches.
///
/// # Safety
///
/// AVX, and a readable row.
#[inline(always)]
unsafe fn row_of_4(from: *const f64, pitch: usize, row: usize) -> __m256d {
    // SAFETY: by the contract of this function.
    unsafe { _mm256_loadu_pd(from.byte_add(row * pitch)) }
}

/// [`super::simd::Simd::turned`] of 8 rows.
///
/// # Safety
///
/// AVX, and readable rows.
#[inline(always)]
pub(super) unsafe fn turned_8(from: *const f32, pitch: usize) -> [__m256; 8] {
    // SAFETY: handed on.
    unsafe {
        exchanged([
            row_of_8(from, pitch, 0),
            row_of_8(from, pitch, 1),
            row_of_8(from, pitch, 2),
            row_of_8(from, pitch, 3),
            row_of_8(from, pitch, 4),
            row_of_8(from, pitch, 5),
            row_of_8(from, pitch, 6),
            row_of_8(from, pitch, 7),
        ])
    }
}

/// [`super::simd::Simd::turned`] of 16 rows: the halves of a vector begin as rows four apart, so that whole parts of two vectors make
/// a column.
///
/// # Safety
///
/// AVX-512F, and readable rows.
#[inline(always)]
pub(super) unsafe fn turned_16(from: *const f32, pitch: usize) -> [__m512; 8] {
    // SAFETY: the instruction set is present, and the rows are there.
    unsafe {
        let [a0, a1, a2, a3] = quads_of_16([
            two_of_8(from, pitch, 0),
            two_of_8(from, pitch, 1),
            two_of_8(from, pitch, 2),
            two_of_8(from, pitch, 3),
        ]);
        let [b0, b1, b2, b3] = quads_of_16([
            two_of_8(from, pitch, 8),
            two_of_8(from, pitch, 9),
            two_of_8(from, pitch, 10),
            two_of_8(from, pitch, 11),
        ]);
        [
            _mm512_castpd_ps(_mm512_shuffle_f64x2::<0x88>(a0, b0)),
            _mm512_castpd_ps(_mm512_shuffle_f64x2::<0x88>(a1, b1)),
            _mm512_castpd_ps(_mm512_shuffle_f64x2::<0x88>(a2, b2)),
            _mm512_castpd_ps(_mm512_shuffle_f64x2::<0x88>(a3, b3)),
            _mm512_castpd_ps(_mm512_shuffle_f64x2::<0xdd>(a0, b0)),
            _mm512_castpd_ps(_mm512_shuffle_f64x2::<0xdd>(a1, b1)),
            _mm512_castpd_ps(_mm512_shuffle_f64x2::<0xdd>(a2, b2)),
            _mm512_castpd_ps(_mm512_shuffle_f64x2::<0xdd>(a3, b3)),
        ]
    }
}

/// A row and the one four rows further.
///
/// # Safety
///
/// AVX-512F, and readable rows.
#[inline(always)]
unsafe fn two_of_8(from: *const f32, pitch: usize, row: usize) -> __m512 {
    // SAFETY: the instruction set is present, and the rows are there.
    unsafe {
        let low = _mm512_castpd256_pd512(_mm256_castps_pd(row_of_8(from, pitch, row)));
        let high = _mm256_castps_pd(row_of_8(from, pitch, row + 4));
        _mm512_castpd_ps(_mm512_insertf64x4::<1>(low, high))
    }
}

/// [`super::simd::Simd::turned`] of 8 rows.
///
/// # Safety
///
/// AVX-512F, and readable rows.
#[inline(always)]
pub(super) unsafe fn turned_8_f64(from: *const f64, pitch: usize) -> [__m512d; 8] {
    // SAFETY: handed on.
    unsafe {
        let [c0, c1, c2, c3] = half_of_8(from, pitch);
        let [c4, c5, c6, c7] = half_of_8(from.add(4), pitch);
        [c0, c1, c2, c3, c4, c5, c6, c7]
    }
}

/// Four elements of each of eight rows as columns: the halves of a vector begin as rows two apart.
///
/// # Safety
///
/// AVX-512F, and readable rows.
#[inline(always)]
unsafe fn half_of_8(from: *const f64, pitch: usize) -> [__m512d; 4] {
    // SAFETY: the instruction set is present, and the rows are there.
    unsafe {
        let (a, b) = (two_of_4(from, pitch, 0), two_of_4(from, pitch, 1));
        let (c, d) = (two_of_4(from, pitch, 4), two_of_4(from, pitch, 5));
        let (low, high) = (_mm512_unpacklo_pd(a, b), _mm512_unpackhi_pd(a, b));
        let (next_low, next_high) = (_mm512_unpacklo_pd(c, d), _mm512_unpackhi_pd(c, d));
        [
            _mm512_shuffle_f64x2::<0x88>(low, next_low),
            _mm512_shuffle_f64x2::<0x88>(high, next_high),
            _mm512_shuffle_f64x2::<0xdd>(low, next_low),
            _mm512_shuffle_f64x2::<0xdd>(high, next_high),
        ]
    }
}

/// A row and the one two rows further.
///
/// # Safety
///
/// AVX-512F, and readable rows.
#[inline(always)]
unsafe fn two_of_4(from: *const f64, pitch: usize, row: usize) -> __m512d {
    // SAFETY: the instruction set is present, and the rows are there.
    unsafe {
        let low = _mm512_castpd256_pd512(row_of_4(from, pitch, row));
        _mm512_insertf64x4::<1>(low, row_of_4(from, pitch, row + 2))
    }
}

/// [`super::simd::Simd::turned`] of 4 rows.
///
/// # Safety
///
/// AVX, and readable rows.
#[inline(always)]
pub(super) unsafe fn turned_4_f64(from: *const f64, pitch: usize) -> [__m256d; 8] {
    // SAFETY: handed on.
    unsafe {
        let [c0, c1, c2, c3] = half_of_4(from, pitch);
        let [c4, c5, c6, c7] = half_of_4(from.add(4), pitch);
        [c0, c1, c2, c3, c4, c5, c6, c7]
    }
}

/// Four elements of each of four rows as columns.
///
/// # Safety
///
/// AVX, and readable rows.
#[inline(always)]
unsafe fn half_of_4(from: *const f64, pitch: usize) -> [__m256d; 4] {
    // SAFETY: the instruction set is present, and the rows are there.
    unsafe {
        let (a, b) = (row_of_4(from, pitch, 0), row_of_4(from, pitch, 1));
        let (c, d) = (row_of_4(from, pitch, 2), row_of_4(from, pitch, 3));
        let (low, high) = (_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b));
        let (next_low, next_high) = (_mm256_unpacklo_pd(c, d), _mm256_unpackhi_pd(c, d));
        [
            _mm256_permute2f128_pd::<0x20>(low, next_low),
            _mm256_permute2f128_pd::<0x20>(high, next_high),
            _mm256_permute2f128_pd::<0x31>(low, next_low),
            _mm256_permute2f128_pd::<0x31>(high, next_high),
        ]
    }
}

/// [`super::simd::Simd::widen_pairs`] of 8 words.
///
/// # Safety
///
/// AVX2, F16C.
#[inline(always)]
pub(super) unsafe fn pairs_8<const F16: bool>(words: __m256) -> [__m256; 2] {
    // SAFETY: the instruction set is present.
    unsafe {
        let words = _mm256_castps_si256(words);
        if F16 {
            let lower = _mm256_and_si256(words, _mm256_set1_epi32(0xffff));
            return [narrowed_8(lower), narrowed_8(_mm256_srli_epi32::<16>(words))];
        }
        let upper = _mm256_and_si256(words, _mm256_set1_epi32(0xffff_0000_u32.cast_signed()));
        [_mm256_castsi256_ps(_mm256_slli_epi32::<16>(words)), _mm256_castsi256_ps(upper)]
    }
}

/// The numbers of words whose lower halves are `f16`, and whose upper halves are zero.
///
/// # Safety
///
/// AVX2, F16C.
#[inline(always)]
unsafe fn narrowed_8(words: __m256i) -> __m256 {
    // SAFETY: the instruction set is present.
    unsafe {
        let (low, high) = (_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words));
        _mm256_cvtph_ps(_mm_packus_epi32(low, high))
    }
}

/// [`super::simd::Simd::widen_pairs`] of 16 words.
///
/// # Safety
///
/// AVX-512F.
#[inline(always)]
pub(super) unsafe fn pairs_16<const F16: bool>(words: __m512) -> [__m512; 2] {
    // SAFETY: the instruction set is present.
    unsafe {
        let words = _mm512_castps_si512(words);
        if F16 {
            let upper = _mm512_srli_epi32::<16>(words);
            return [_mm512_cvtph_ps(_mm512_cvtepi32_epi16(words)), _mm512_cvtph_ps(_mm512_cvtepi32_epi16(upper))];
        }
        let upper = _mm512_and_si512(words, _mm512_set1_epi32(0xffff_0000_u32.cast_signed()));
        [_mm512_castsi512_ps(_mm512_slli_epi32::<16>(words)), _mm512_castsi512_ps(upper)]
    }
}

/// [`super::simd::Simd::columns`] by exchanges of halves, which no compiler finds in moves of single elements.
///
/// # Safety
///
/// The four rows are readable.
#[inline(always)]
pub(super) unsafe fn columns_f32(x: *const f32, step: usize) -> [[f32; 4]; 4] {
    // SAFETY: the rows are readable; vectors and arrays of four elements have the same bytes.
    unsafe {
        let (mut a, mut b) = (_mm_loadu_ps(x), _mm_loadu_ps(x.add(step)));
        let (mut c, mut d) = (_mm_loadu_ps(x.add(2 * step)), _mm_loadu_ps(x.add(3 * step)));
        _MM_TRANSPOSE4_PS(&mut a, &mut b, &mut c, &mut d);
        std::mem::transmute::<[__m128; 4], [[f32; 4]; 4]>([a, b, c, d])
    }
}
