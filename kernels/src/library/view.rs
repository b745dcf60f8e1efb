//! Typed views of byte buffers, disjoint tiles of an output, and their distribution over threads.
//!
//! The only file of the elementary library kernels with `unsafe` code. Guarantees: a view covers exactly its bytes;
//! two tiles of one buffer never overlap; the division into tiles depends on shapes only, so that results do not
//! depend on the number of threads.

use std::marker::PhantomData;
use std::ops::Range;
use std::slice;

use retape_runtime::parallel_for;

use super::exchange::{exchange_past_caches, exchange_to};
pub(crate) use super::plain::Plain;
use super::tile::Tile;

/// The elements in `bytes`.
///
/// # Panics
/// If the buffer is not aligned for `T` or does not hold exactly `len` elements.
pub(crate) fn view<T: Plain>(bytes: &[u8], len: usize) -> &[T] {
    assert_eq!(Some(bytes.len()), len.checked_mul(size_of::<T>()), "length of an input of {len} {}", T::DTYPE);
    if len == 0 {
        return &[];
    }
    assert!(bytes.as_ptr().cast::<T>().is_aligned(), "alignment of an input");
    // SAFETY: the bytes are initialised, borrowed for the lifetime of the result, as many as `len` elements have and
    // aligned for `T`, all as just asserted; every bit pattern is a `T` because it is `Plain`.
    unsafe { slice::from_raw_parts(bytes.as_ptr().cast::<T>(), len) }
}

/// The elements in `bytes`, to be written.
///
/// # Panics
/// As [`view`].
pub(crate) fn view_mut<T: Plain>(bytes: &mut [u8], len: usize) -> &mut [T] {
    assert_eq!(Some(bytes.len()), len.checked_mul(size_of::<T>()), "length of an output of {len} {}", T::DTYPE);
    if len == 0 {
        return &mut [];
    }
    assert!(bytes.as_ptr().cast::<T>().is_aligned(), "alignment of an output");
    // SAFETY: as in `view`; the exclusive borrow of the bytes makes the result exclusive, and every `T` is plain
    // bytes without padding, so that the buffer stays initialised.
    unsafe { slice::from_raw_parts_mut(bytes.as_mut_ptr().cast::<T>(), len) }
}

/// The only output of a kernel.
///
/// # Panics
/// If there is not exactly one.
pub(crate) fn only<'a>(outputs: &'a mut [&mut [u8]]) -> &'a mut [u8] {
    match outputs {
        [out] => out,
        _ => panic!("{} outputs given to a kernel of one", outputs.len()),
    }
}

/// The `N` inputs of a kernel.
///
/// # Panics
/// If there are not exactly `N`.
pub(crate) fn exactly<'a, const N: usize>(inputs: &[&'a [u8]]) -> [&'a [u8]; N] {
    inputs.try_into().unwrap_or_else(|_| panic!("{} inputs given to a kernel of {N}", inputs.len()))
}

/// Work below this many elementary steps stays on the calling thread; tests share whatever they can.
const WORTH_SHARING: usize = if cfg!(test) { 1 } else { 1 << 15 };

/// The largest number of shares that work is divided into.
const MAX_SHARES: usize = 64;

/// Calls `body` with each of `0..n`, on several threads if `work`, the number of elementary steps of all calls
/// together, is worth it. Calls must be independent of each other.
pub(crate) fn for_each(n: usize, work: usize, body: &(dyn Fn(usize) + Sync)) {
    if n <= 1 || work < WORTH_SHARING {
        (0..n).for_each(body);
        return;
    }
    let share = n.div_ceil(MAX_SHARES);
    parallel_for(n.div_ceil(share), &|i| (i * share..n.min((i + 1) * share)).for_each(body));
}

/// A pointer to a buffer that tiles are cut from.
struct Base<T>(*mut T);

// SAFETY: the pointer comes from an exclusive borrow of a slice of `Send` elements that outlives all uses, and
// threads reach disjoint elements through it (see `for_each_tile` and `for_each_chunk`).
unsafe impl<T: Send> Sync for Base<T> {}

impl<T> Base<T> {
    /// A method, so that closures capture the wrapper and not the bare pointer.
    fn get(&self) -> *mut T {
        self.0
    }
}

/// Calls `body` with the index and the elements of each run of `len` consecutive elements of `out`; the last run may
/// be shorter.
pub(crate) fn for_each_chunk<T: Send>(out: &mut [T], len: usize, work: usize, body: &(dyn Fn(usize, &mut [T]) + Sync)) {
    let total = out.len();
    let base = Base(out.as_mut_ptr());
    for_each(total.div_ceil(len.max(1)), work, &|i| {
        let range = i * len.max(1)..total.min((i + 1) * len.max(1));
        // SAFETY: the ranges of different `i` are disjoint and within the slice, which is borrowed exclusively for the
        // whole call; `for_each` calls with each `i` once.
        let chunk = unsafe { slice::from_raw_parts_mut(base.get().add(range.start), range.len()) };
        body(i, chunk);
    });
}

/// A rectangle of a buffer shaped `[outer, len, inner]`: some rows and columns at one outer position.
pub(crate) struct TileView<'a, T> {
    /// The outer position.
    pub(crate) outer: usize,
    /// The position between the middle axis and the inner one.
    pub(crate) between: usize,
    /// The positions along the middle axis.
    pub(crate) rows: Range<usize>,
    /// The positions along the inner axis.
    pub(crate) columns: Range<usize>,
    /// Elements before the tile's inner position in its row of the buffer.
    first_column: usize,
    start: *mut T,
    stride: usize,
    borrow: PhantomData<&'a mut [T]>,
}

impl<T> TileView<'_, T> {
    /// The elements of the tile at position `row` of the middle axis (counted from the axis's start).
    #[inline(always)]
    pub(crate) fn row(&mut self, row: usize) -> &mut [T] {
        assert!(self.rows.contains(&row), "row of a tile");
        // SAFETY: `start` points to the tile's first element in a slice that outlives the tile; row and columns lie in
        // the tile, as asserted for the row. Other tiles are disjoint and the result borrows this one exclusively.
        unsafe { slice::from_raw_parts_mut(self.start.add((row - self.rows.start) * self.stride), self.columns.len()) }
    }

    /// The elements of one row of the tile, or of some rows if there is no gap between two.
    #[inline(always)]
    pub(crate) fn rows(&mut self, rows: Range<usize>) -> &mut [T] {
        if rows.len() == 1 {
            return self.row(rows.start);
        }
        let (first, len) = (self.rows.start, self.columns.len());
        &mut self.contiguous().expect("rows without a gap")[(rows.start - first) * len..(rows.end - first) * len]
    }

    /// All elements of the tile, if its rows follow each other without a gap.
    pub(crate) fn contiguous(&mut self) -> Option<&mut [T]> {
        // SAFETY: without gaps, the rows of `row` are one run of elements of the tile.
        (self.stride == self.columns.len())
            .then(|| unsafe { slice::from_raw_parts_mut(self.start, self.rows.len() * self.stride) })
    }
}

/// Bytes of a cache line.
pub(crate) const CACHE_LINE: usize = 64;

impl<T: Plain> TileView<'_, T> {
    /// Fills some rows of the tile with the columns of a matrix, whose rows are at distance `pitch`.
    ///
    /// # Panics
    /// If the matrix ends before, or the tile has not all of the rows.
    pub(crate) fn exchange(&mut self, rows: Range<usize>, from: &[T], pitch: usize) {
        assert!(self.rows.start <= rows.start && rows.end <= self.rows.end, "rows of a tile");
        // SAFETY: the lines that are written are rows of the tile, as was just checked, and it is borrowed exclusively.
        unsafe {
            let to = self.start.add((rows.start - self.rows.start) * self.stride);
            exchange_to(from, pitch, [self.columns.len(), rows.len()], to, self.stride);
        }
    }

    /// Some rows of the tile as a finished block of the result, of which `n_rows` make one outer position.
    ///
    /// # Panics
    /// If the tile has not all of the rows.
    pub(crate) fn finished(&mut self, rows: Range<usize>, n_rows: usize) -> Tile {
        assert!(self.rows.start <= rows.start && rows.end <= self.rows.end, "rows of a tile");
        let data = self.start.wrapping_add((rows.start - self.rows.start) * self.stride);
        let first = self.outer * n_rows;
        Tile {
            rows: first + rows.start..first + rows.end,
            cols: self.first_column + self.columns.start..self.first_column + self.columns.end,
            data: data.cast(),
            row_stride: self.stride,
            size: size_of::<T>(),
        }
    }

    /// Whether all rows of the tile are whole cache lines.
    #[inline(always)]
    pub(crate) fn has_whole_lines(&self) -> bool {
        let bytes = [self.start.addr(), self.stride * size_of::<T>(), self.columns.len() * size_of::<T>()];
        bytes.into_iter().all(|bytes| bytes.is_multiple_of(CACHE_LINE))
    }

    /// Calls `body` with the rows of the tile, to be written past the caches as far as they are whole cache lines.
    pub(crate) fn stream<R>(&mut self, body: impl FnOnce(&mut StreamedRows<'_, '_, T>) -> R) -> R {
        // Also if `body` panics.
        let _fence = StreamFence;
        body(&mut StreamedRows(self))
    }
}

/// The rows of a tile that is written past the caches, and not read.
pub(crate) struct StreamedRows<'t, 'a, T>(&'t mut TileView<'a, T>);

impl<T: Plain> StreamedRows<'_, '_, T> {
    /// Writes a row, counted from the tile's first.
    #[inline(always)]
    pub(crate) fn write_row(&mut self, row: usize, from: &[T]) {
        let row = self.0.rows.start + row;
        // SAFETY: nobody but this has the tile until `stream` has ended its fence.
        unsafe { stream_line(self.0.row(row), from) };
    }

    /// Fills some rows and columns, counted from the tile's first, with the columns of a matrix, whose rows are at distance
    /// `pitch`.
    ///
    /// # Panics
    /// If the matrix ends before, the tile has not all of the elements, these are no whole blocks, or rows of the tile
    /// are no [whole lines](TileView::has_whole_lines).
    #[inline(always)]
    pub(crate) fn exchange(&mut self, [rows, columns]: [Range<usize>; 2], from: &[T], pitch: usize) {
        let tile = &mut *self.0;
        let is_part = |part: &Range<usize>, len: usize| part.start <= part.end && part.end <= len;
        assert!(is_part(&rows, tile.rows.len()) && is_part(&columns, tile.columns.len()), "elements of a tile");
        let are_lines = [columns.start, columns.end].map(|at| (at * size_of::<T>()).is_multiple_of(CACHE_LINE));
        assert!(tile.has_whole_lines() && are_lines == [true; 2], "whole lines of a tile");
        // SAFETY: the elements that are written are of the tile and whole lines, as was just checked, and it is borrowed
        // exclusively until `stream` has ended its fence.
        unsafe {
            let to = tile.start.add(rows.start * tile.stride + columns.start);
            exchange_past_caches(from, pitch, [columns.len(), rows.len()], to, tile.stride);
        }
    }
}

/// Makes writes past the caches be in order with all that follow its end.
struct StreamFence;

impl Drop for StreamFence {
    fn drop(&mut self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: every processor of this architecture has the instruction.
        unsafe {
            std::arch::x86_64::_mm_sfence();
        }
    }
}

/// Copies elements past the caches, if they are whole cache lines.
///
/// # Safety
///
/// A [`StreamFence`] ends before anything else reads or writes `to`.
#[inline(always)]
unsafe fn stream_line<T: Plain>(to: &mut [T], from: &[T]) {
    assert_eq!(to.len(), from.len(), "elements of a line");
    #[cfg(target_arch = "x86_64")]
    if to.as_ptr().addr().is_multiple_of(CACHE_LINE) && size_of_val(to).is_multiple_of(CACHE_LINE) {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
        let n = size_of_val(from) / size_of::<__m128i>();
        let (to, from) = (to.as_mut_ptr().cast::<__m128i>(), from.as_ptr().cast::<__m128i>());
        for at in 0..n {
            // SAFETY: both have as many bytes, and the target is aligned, as was just checked; every processor of this
            // architecture has the instruction. The caller sees to the fence.
            unsafe { _mm_stream_si128(to.add(at), _mm_loadu_si128(from.add(at))) };
        }
        return;
    }
    to.copy_from_slice(from);
}

/// Copies runs of elements, which are pairs of equal length, past the caches as far as they have whole cache lines.
pub(crate) fn stream_runs<'a, T: Plain>(runs: impl Iterator<Item = (&'a mut [T], &'a [T])>) {
    // Also if the iterator panics.
    let _fence = StreamFence;
    let n = CACHE_LINE / size_of::<T>();
    for (to, from) in runs {
        assert_eq!(to.len(), from.len(), "elements of a run");
        let start = to.as_ptr().align_offset(CACHE_LINE).min(to.len());
        let (head, to) = to.split_at_mut(start);
        let (to, tail) = to.split_at_mut(to.len() / n * n);
        let (head_from, from) = from.split_at(start);
        let (from, tail_from) = from.split_at(to.len());
        head.copy_from_slice(head_from);
        for (to, from) in to.chunks_exact_mut(n).zip(from.chunks_exact(n)) {
            // SAFETY: runs are exclusive and given away, so that nothing reads or writes them before the fence, which ends
            // with this function.
            unsafe { stream_line(to, from) };
        }
        tail.copy_from_slice(tail_from);
    }
}

/// Cuts `out`, shaped `[outer, len, inner]`, into tiles of at most `rows` by `columns` and calls `body` with each.
pub(crate) fn for_each_tile<T: Send>(
    out: &mut [T],
    [outer, len, inner]: [usize; 3],
    [rows, columns]: [usize; 2],
    work: usize,
    body: &(dyn Fn(TileView<'_, T>) + Sync),
) {
    for_each_tile_between(out, [outer, len, 1, inner], [rows, columns], work, body);
}

/// As [`for_each_tile`] for `out` shaped `[outer, len, between, inner]`, with tiles at each position of the third axis.
pub(crate) fn for_each_tile_between<T: Send>(
    out: &mut [T],
    [outer, len, between, inner]: [usize; 4],
    [rows, columns]: [usize; 2],
    work: usize,
    body: &(dyn Fn(TileView<'_, T>) + Sync),
) {
    let n = [len, between, inner].into_iter().try_fold(outer, usize::checked_mul);
    assert_eq!(Some(out.len()), n, "elements to tile");
    if out.is_empty() {
        return;
    }
    let (rows, columns) = (rows.clamp(1, len), columns.clamp(1, inner));
    let (down, across) = (len.div_ceil(rows), inner.div_ceil(columns));
    let base = Base(out.as_mut_ptr());
    for_each(outer * between * down * across, work, &|i| {
        // Neighbours along the third axis share cache lines, and follow each other.
        let (b, i) = (i % between, i / between);
        let (o, row, column) = (i / (down * across), i / across % down * rows, i % across * columns);
        let start = ((o * len + row) * between + b) * inner + column;
        body(TileView {
            outer: o,
            between: b,
            first_column: b * inner,
            rows: row..len.min(row + rows),
            columns: column..inner.min(column + columns),
            // SAFETY: `o`, `row`, `b` and `column` are positions in the buffer, so `start` is below its length. Different
            // `i` give disjoint rectangles, `for_each` calls with each `i` once, and the tile cannot outlive the call.
            start: unsafe { base.get().add(start) },
            stride: between * inner,
            borrow: PhantomData,
        });
    });
}

/// How many columns the tiles of an array with `outer` outer and `inner` inner positions have: all of them where the
/// outer axis has enough tiles, else runs of whole cache lines. At most 512.
pub(crate) fn tile_columns(outer: usize, inner: usize) -> usize {
    const ENOUGH_TILES: usize = 8;
    let runs = ENOUGH_TILES.div_ceil(outer.max(1));
    inner.div_ceil(runs).next_multiple_of(16).min(512)
}

/// Asks for the cache line of an element, which need not exist, as far as to the second-level cache: the nearest one has
/// few requests to memory under way at a time, and loads would wait behind them.
#[inline(always)]
pub(crate) fn prefetch<T>(x: &[T], at: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction takes any address, and reads nothing that a program sees.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(x.as_ptr().wrapping_add(at).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (x, at);
}

/// Runs `body` compiled for AVX2 and FMA where the processor has them. The arithmetic is the same: nothing is contracted.
#[inline(always)]
pub(crate) fn vectorized<R>(body: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
        #[target_feature(enable = "avx2,fma")]
        fn with_avx2<R>(body: impl FnOnce() -> R) -> R {
            body()
        }
        // SAFETY: the processor has AVX2 and FMA, as just checked.
        return unsafe { with_avx2(body) };
    }
    body()
}

/// The same, for AVX-512 where the processor has it: for bodies with integers of 64 bits, which AVX2 compares in more steps.
#[inline(always)]
pub(crate) fn vectorized_for_integers<R>(body: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx512f") && std::arch::is_x86_feature_detected!("avx512vl") {
        #[target_feature(enable = "avx512f,avx512vl")]
        fn with_avx512<R>(body: impl FnOnce() -> R) -> R {
            body()
        }
        // SAFETY: the processor has these parts of AVX-512, as just checked.
        return unsafe { with_avx512(body) };
    }
    vectorized(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_cover_everything_once() {
        for extents in [[1, 1, 1], [3, 5, 7], [2, 0, 4], [1, 40, 100], [4, 9, 33]] {
            for block in [[1, 1], [2, 3], [100, 16], [4, 1000]] {
                let mut out = vec![0_u32; extents.iter().product()];
                for_each_tile(&mut out, extents, block, usize::MAX, &|mut tile| {
                    for row in tile.rows.clone() {
                        tile.row(row).iter_mut().for_each(|x| *x += 1);
                    }
                });
                assert!(out.iter().all(|&x| x == 1), "{extents:?} in {block:?}");
            }
        }
    }

    #[test]
    fn runs_are_copied_wherever_they_begin() {
        fn check<T: Plain + PartialEq + std::fmt::Debug>(element: impl Fn(usize) -> T) {
            let n = CACHE_LINE / size_of::<T>();
            let from: Vec<T> = (0..5 * n).map(|at| element(at % 120)).collect();
            for start in [0, 1, n - 1, n] {
                for len in [0, 1, n - 1, n, n + 1, 2 * n - 1, 3 * n + 1] {
                    let mut to = vec![element(127); 5 * n];
                    stream_runs([(&mut to[start..start + len], &from[1..1 + len])].into_iter());
                    assert!(to[..start].iter().chain(&to[start + len..]).all(|x| *x == element(127)));
                    assert_eq!(to[start..start + len], from[1..1 + len]);
                }
            }
        }
        check(|at| at as u8);
        check(|at| at as u32);
        check(|at| at as f64);
    }

    #[test]
    fn chunks_cover_everything_once() {
        for (n, len) in [(0, 4), (1, 4), (1000, 7), (1000, 0)] {
            let mut out = vec![0; n];
            for_each_chunk(&mut out, len, usize::MAX, &|i, chunk| chunk.iter_mut().for_each(|x| *x += i + 1));
            assert!(out.iter().enumerate().all(|(at, &x)| x == at / len.max(1) + 1), "{n} by {len}");
        }
    }
}
