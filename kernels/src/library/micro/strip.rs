//! Strips of a product of a few vectors by a matrix whose rows are neighbours in memory: some steps at a time, so that the
//! matrix is read along the memory, once for all vectors, while the sums wait in the nearest cache.
//!
//! Tiles, whose sums stay in registers over all steps, read a few cache lines of each step: where steps are a page apart,
//! each in another page, so that no prefetcher follows and few reads are under way at a time.

use std::mem::MaybeUninit;
use std::ops::Range;

use super::grid::{is_far, share};
use super::parts::LARGE;
use super::simd::Simd;
use super::stored::StoredElement;
use super::{LINE, is_short};

/// Sums of a strip at most, of all vectors, and rows: those of a few pages of memory, whose sums the nearest cache holds; half
/// of them where elements have 64 bits.
const SUMS: usize = 8192;
const MOST_ROWS: usize = 4096;

/// Vectors whose factors of eight steps are at hand at one time, and those of four steps: more of them share an element that
/// is read, and their sums are read and written more often.
const FEW: usize = 4;
pub(super) const GROUP: usize = 2 * FEW;

/// Whether groups are large: with AVX-512, whose 32 registers hold the sums and most of the factors.
const fn has_large_groups<S: Simd>() -> bool {
    !is_short::<S>()
}

/// Sums of two vectors lie apart by as many more than there are, so that they do not share sets of the nearest cache.
const GAP: usize = 128;

/// The most vectors of a matrix in memory. Groups cost more than tiles where these find the matrix in a cache.
const MOST_VECTORS: usize = 16;

/// The most vectors for which strips are faster than tiles, by the extents of the matrix.
pub(super) fn most_vectors(extents: [usize; 2]) -> usize {
    if is_far(extents) {
        MOST_VECTORS
    } else if extents[0].saturating_mul(extents[1]) >= LARGE {
        FEW
    } else {
        1
    }
}

/// Rows of a matrix times some vectors: element (i, k) of the matrix is at `a + i * a_row + k * a_step`.
pub(super) struct Column<A, T> {
    /// Rows, which lie one after the other in the result.
    pub(super) rows: usize,
    /// Length of the sums, and of their chains.
    pub(super) steps: usize,
    pub(super) depth: usize,
    /// The matrix, the distance of its rows and that of its steps, one of which is 1.
    pub(super) a: *const A,
    pub(super) a_row: usize,
    pub(super) a_step: usize,
    /// Whether the matrix is larger than caches.
    pub(super) is_far: bool,
    /// Whether it has gaps between short rows, and may have left the caches.
    pub(super) is_sparse: bool,
    /// The first vector, the distance of its elements, how many vectors there are, and their distance.
    pub(super) x: *const T,
    pub(super) x_step: isize,
    pub(super) vectors: usize,
    pub(super) x_vector: isize,
    /// The result of the first vector, and the distance of those of two.
    pub(super) c: *mut T,
    pub(super) c_vector: usize,
}

impl<A, T> Column<A, T> {
    /// The steps of each chain.
    pub(super) fn blocks(&self) -> impl Iterator<Item = Range<usize>> + use<A, T> {
        let (steps, depth) = (self.steps, self.depth);
        (0..steps).step_by(depth).map(move |start| start..start.saturating_add(depth).min(steps))
    }

    /// One of its vectors alone.
    pub(super) fn vector(&self, vector: usize) -> Column<A, T> {
        let (x, c) =
            (self.x.wrapping_offset(vector as isize * self.x_vector), self.c.wrapping_add(vector * self.c_vector));
        Column { x, c, vectors: 1, ..*self }
    }
}

/// The memory of these sums, from the beginning of a cache line on. The vectors that compilers put beside it, for want of
/// registers, begin at one as well; otherwise some lie in two lines each, for 1.4 times the time of eight vectors.
#[repr(align(64))]
struct SumsInLines<T>([T; SUMS]);

/// Where the sums of a strip wait: those of a vector follow each other, `pitch` behind those of the vector before.
struct WaitingSums<T> {
    data: *mut T,
    pitch: usize,
}

/// A block of steps of the rows from `i` on, as many as a strip has, for all vectors; returns the number of rows.
///
/// # Safety
///
/// The instruction set of `S`; rows are neighbours in memory, and operands and result are valid for rows, steps and at most
/// [`MOST_VECTORS`] vectors.
#[inline(always)]
pub(super) unsafe fn strip<S: Simd, P: StoredElement<S::Elem>>(
    x: &Column<P::Stored, S::Elem>,
    i: usize,
    steps: Range<usize>,
) -> usize {
    let (left, words) = (x.rows - i, size_of::<S::Elem>().div_ceil(size_of::<f32>()));
    let most = (MOST_ROWS / words).min(SUMS / words / x.vectors - GAP);
    // All strips have about as many rows, so that few are left behind the last one.
    let n = left.div_ceil(left.div_ceil(most)).next_multiple_of(S::LANES).min(left.min(most) / S::LANES * S::LANES);
    let mut memory = MaybeUninit::<SumsInLines<S::Elem>>::uninit();
    let sums = WaitingSums { data: memory.as_mut_ptr().cast::<S::Elem>(), pitch: n + GAP };
    let is_large_group = x.vectors > FEW && has_large_groups::<S>();
    let mut k = steps.start;
    // SAFETY: the rows and steps lie inside the operands, and the rows inside the result; the first pass writes all sums.
    unsafe {
        while k < steps.end {
            let is_first = k == steps.start;
            let at = [i, n, k];
            k += match steps.end - k {
                8.. if !is_large_group => passes::<S, P, 8>(x, at, &sums, is_first),
                4.. => passes::<S, P, 4>(x, at, &sums, is_first),
                2.. => passes::<S, P, 2>(x, at, &sums, is_first),
                _ => passes::<S, P, 1>(x, at, &sums, is_first),
            };
        }
        for vector in 0..x.vectors {
            let (c, sums) = (x.c.add(vector * x.c_vector + i), sums.data.add(vector * sums.pitch));
            for row in (0..n).step_by(S::LANES) {
                let sum = S::load(sums.add(row));
                S::store(c.add(row), if steps.start == 0 { sum } else { S::add(S::load(c.add(row)), sum) });
            }
        }
    }
    n
}

/// `N` steps from `k` on of `n` rows from `i` on, for all vectors; returns `N`.
#[inline(always)]
unsafe fn passes<S: Simd, P: StoredElement<S::Elem>, const N: usize>(
    x: &Column<P::Stored, S::Elem>,
    [i, n, k]: [usize; 3],
    sums: &WaitingSums<S::Elem>,
    is_first: bool,
) -> usize {
    let has_large_groups = const { N < 8 && has_large_groups::<S>() };
    let n_groups = x.vectors.div_ceil(if has_large_groups { GROUP } else { FEW });
    for group in 0..n_groups {
        let vectors = share(x.vectors, 1, n_groups, group);
        let at = (vectors.start, n);
        // SAFETY: handed on from the strip.
        unsafe {
            match vectors.len() {
                GROUP.. if has_large_groups => pass::<S, P, N, GROUP>(x, [i, k], at, sums, is_first),
                7 if has_large_groups => pass::<S, P, N, 7>(x, [i, k], at, sums, is_first),
                6 if has_large_groups => pass::<S, P, N, 6>(x, [i, k], at, sums, is_first),
                5 if has_large_groups => pass::<S, P, N, 5>(x, [i, k], at, sums, is_first),
                FEW.. => pass::<S, P, N, FEW>(x, [i, k], at, sums, is_first),
                3 => pass::<S, P, N, 3>(x, [i, k], at, sums, is_first),
                2 => pass::<S, P, N, 2>(x, [i, k], at, sums, is_first),
                _ => pass::<S, P, N, 1>(x, [i, k], at, sums, is_first),
            };
        }
    }
    N
}

/// The steps of [`passes`] for `V` vectors from `first` on. Each step is a stream that processors foresee too late where it is
/// short, so that the first vectors ask for the next steps of a matrix in memory: to the second-level cache, for steps a
/// power of two apart share the ways of one set of the nearest one, and drive each other out.
#[inline(always)]
unsafe fn pass<S: Simd, P: StoredElement<S::Elem>, const N: usize, const V: usize>(
    x: &Column<P::Stored, S::Elem>,
    [i, k]: [usize; 2],
    (first, n): (usize, usize),
    sums: &WaitingSums<S::Elem>,
    is_first: bool,
) {
    // SAFETY: handed on from the strip.
    unsafe {
        let mut factors = [[S::zero(); N]; V];
        for (vector, factors) in factors.iter_mut().enumerate() {
            let from = x.x.offset((first + vector) as isize * x.x_vector);
            for (step, factor) in factors.iter_mut().enumerate() {
                *factor = S::splat(from.offset((k + step) as isize * x.x_step));
            }
        }
        let a = x.a.add(k * x.a_step + i);
        let waiting = sums.data.add(first * sums.pitch);
        let (per_line, asks) = (LINE / size_of::<P::Stored>(), x.is_far && first == 0);
        for row in (0..n).step_by(S::LANES) {
            if asks && row.is_multiple_of(per_line) {
                for step in 0..N {
                    S::prefetch_next(a.wrapping_add((N + step) * x.a_step + row).cast());
                }
            }
            let mut parts = [S::zero(); V];
            if !is_first {
                for (vector, part) in parts.iter_mut().enumerate() {
                    *part = S::load(waiting.add(vector * sums.pitch + row));
                }
            }
            for step in 0..N {
                let elements = P::load::<S>(a.add(step * x.a_step + row));
                for (part, factors) in parts.iter_mut().zip(&factors) {
                    *part = S::mul_add(elements, factors[step], *part);
                }
            }
            for (vector, part) in parts.into_iter().enumerate() {
                S::store(waiting.add(vector * sums.pitch + row), part);
            }
        }
    }
}
