//! Operands that can be packed into panels.
//!
//! A panel holds `width` rows of the operand (for B: columns) and some steps of k, zero where the operand has no more
//! rows. Packing costs one read and one write per element, in vectors where the operand's memory order allows.

use std::ops::Range;

use super::{Layout, Real};
use crate::library::exchange::{exchange, exchange_between};
use crate::library::view::vectorized;

/// Steps of k that a chunked panel keeps together for one row.
pub(crate) const CHUNK: usize = 16;

/// An operand of a product: a matrix with an outer index (row of A, column of B) and an inner one (step of k).
pub(crate) trait PanelSource<T>: Sync {
    /// The layout that is quicker to pack as row panels.
    fn layout(&self) -> Layout;

    /// Writes the panel of rows `outer`, at most `width` of them, and steps `inner`.
    ///
    /// `panel` has `width` times the number of steps, rounded up to a multiple of [`CHUNK`], elements. Rows past the
    /// end of `outer` become zero; the padding of the depth stays as it is.
    fn pack(&self, outer: Range<usize>, inner: Range<usize>, layout: Layout, width: usize, panel: &mut [T]);

    /// The operand itself and the distance of its steps, where it can serve as its own column panels: its rows are
    /// neighbours in memory.
    fn direct(&self) -> Option<(*const T, usize)>;

    /// The operand itself and the distance of its rows, or of its steps if those are no neighbours, where row panels in
    /// its layout can be copied from it.
    fn rows(&self) -> Option<(*const T, usize)> {
        None
    }
}

/// Steps by which packing asks for what it reads: rows of a large operand are pages apart.
const AHEAD: isize = 16;

/// Asks for the cache lines of `n` elements, which may have any address.
#[inline(always)]
fn prefetch<T>(from: *const T, n: usize) {
    #[cfg(target_arch = "x86_64")]
    for at in (0..n * size_of::<T>()).step_by(64) {
        // SAFETY: a prefetch reads nothing and does not fail; every processor of this kind has it.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(from.cast::<i8>().wrapping_add(at));
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (from, n);
}

/// Where step `k` of row `i` lies in a panel.
#[inline(always)]
pub(super) fn position(layout: Layout, width: usize, i: usize, k: usize) -> usize {
    match layout {
        Layout::Interleaved => k * width + i,
        Layout::Chunked => (k / CHUNK * width + i) * CHUNK + k % CHUNK,
    }
}

/// Writes zeros to the rows from `rows` on.
pub(super) fn clear_rows<T: Real>(rows: usize, steps: usize, layout: Layout, width: usize, panel: &mut [T]) {
    match layout {
        Layout::Interleaved if rows < width => {
            panel.chunks_exact_mut(width).take(steps).for_each(|step| step[rows..].fill(T::ZERO));
        }
        Layout::Chunked if rows < width => {
            let chunks = panel.chunks_exact_mut(width * CHUNK).take(steps.div_ceil(CHUNK));
            chunks.for_each(|chunk| chunk[rows * CHUNK..].fill(T::ZERO));
        }
        Layout::Interleaved | Layout::Chunked => {}
    }
}

/// Writes `values` to the steps from `k` on of row `i` of a chunked panel.
#[inline(always)]
pub(super) fn write_run<T: Real>(panel: &mut [T], width: usize, i: usize, k: usize, values: &[T]) {
    let (mut k, mut values) = (k, values);
    while !values.is_empty() {
        let n = values.len().min(CHUNK - k % CHUNK);
        let (now, later) = values.split_at(n);
        let at = position(Layout::Chunked, width, i, k);
        if n == CHUNK {
            // A copy of known length is a few vector moves instead of a call.
            panel[at..at + CHUNK].copy_from_slice(&now[..CHUNK]);
        } else {
            panel[at..at + n].iter_mut().zip(now).for_each(|(to, from)| *to = *from);
        }
        values = later;
        k += n;
    }
}

/// Writes zeros to `n` steps from `k` on of row `i` of a chunked panel.
#[inline(always)]
pub(super) fn clear_run<T: Real>(panel: &mut [T], width: usize, i: usize, k: usize, n: usize) {
    let (mut k, end) = (k, k + n);
    while k < end {
        let n = (end - k).min(CHUNK - k % CHUNK);
        let to = &mut panel[position(Layout::Chunked, width, i, k)..][..n];
        match <&mut [T; CHUNK]>::try_from(&mut *to) {
            Ok(chunk) => *chunk = [T::ZERO; CHUNK],
            Err(_) => to.fill(T::ZERO),
        }
        k += n;
    }
}

/// A matrix in memory with any strides.
pub(crate) struct Strided<T> {
    data: *const T,
    outer: isize,
    inner: isize,
}

// SAFETY: only read, and `new` asks that the memory outlives every use.
unsafe impl<T: Sync> Sync for Strided<T> {}

impl<T: Real> Strided<T> {
    /// The matrix whose element (o, i) is at `data + o * outer + i * inner`.
    ///
    /// # Safety
    ///
    /// All elements that a product asks for are readable, and not written, as long as the value is in use.
    pub(crate) unsafe fn new(data: *const T, outer: isize, inner: isize) -> Strided<T> {
        Strided { data, outer, inner }
    }

    /// The pointer and the two strides.
    pub(crate) fn parts(&self) -> (*const T, isize, isize) {
        (self.data, self.outer, self.inner)
    }

    /// Whether rows or steps are neighbours, and none lies before the first.
    pub(super) fn is_dense(&self) -> bool {
        self.outer >= 0 && self.inner >= 0 && (self.outer == 1 || self.inner == 1)
    }

    /// Row `i` from step `k` on, `n` steps, which are neighbours in memory.
    ///
    /// # Safety
    ///
    /// These elements exist.
    #[inline(always)]
    unsafe fn row(&self, i: usize, k: usize, n: usize) -> &[T] {
        // SAFETY: the contract of this function and of `new`.
        unsafe { std::slice::from_raw_parts(self.data.offset(i as isize * self.outer).add(k), n) }
    }

    /// Writes an interleaved panel whose steps are neighbours in memory, and no row lies before the one above.
    fn transpose(&self, outer: Range<usize>, inner: Range<usize>, width: usize, panel: &mut [T]) {
        let [rows, steps] = [outer.len(), inner.len()];
        assert!(rows <= width && steps * width <= panel.len(), "rows and steps of a panel");
        let first = self.data.wrapping_offset(outer.start as isize * self.outer).wrapping_add(inner.start);
        // SAFETY: these rows and steps are readable, as `new` asks, and the panel has room for them.
        unsafe { exchange_between(first, self.outer.unsigned_abs(), [rows, steps], panel.as_mut_ptr(), width) };
    }

    /// Writes a chunked panel whose steps are neighbours in memory.
    #[inline(always)]
    fn chunk(&self, outer: Range<usize>, inner: Range<usize>, width: usize, panel: &mut [T]) {
        for i in 0..outer.len() {
            // SAFETY: a row and steps inside the ranges.
            let row = unsafe { self.row(outer.start + i, inner.start, inner.len()) };
            let (chunks, rest) = row.as_chunks::<CHUNK>();
            let to = panel[i * CHUNK..].chunks_mut(width * CHUNK);
            for (from, to) in chunks.iter().zip(to) {
                prefetch(from.as_ptr().wrapping_offset(self.outer), CHUNK);
                to[..CHUNK].copy_from_slice(from);
            }
            write_run(panel, width, i, chunks.len() * CHUNK, rest);
        }
    }

    /// Writes an interleaved panel whose rows are neighbours in memory, in pieces of known width.
    #[inline(always)]
    fn interleave(&self, outer: Range<usize>, inner: Range<usize>, width: usize, panel: &mut [T]) {
        let mut i = 0;
        while i < outer.len() {
            let (at, to) = (outer.start + i, &mut panel[i..]);
            i += match outer.len() - i {
                32.. => self.columns::<32>(at, inner.clone(), width, to),
                16.. => self.columns::<16>(at, inner.clone(), width, to),
                12.. => self.columns::<12>(at, inner.clone(), width, to),
                8.. => self.columns::<8>(at, inner.clone(), width, to),
                6.. => self.columns::<6>(at, inner.clone(), width, to),
                4.. => self.columns::<4>(at, inner.clone(), width, to),
                2.. => self.columns::<2>(at, inner.clone(), width, to),
                _ => self.columns::<1>(at, inner.clone(), width, to),
            };
        }
    }

    /// Writes `W` rows from `outer` on to an interleaved panel, and returns `W`.
    #[inline(always)]
    fn columns<const W: usize>(&self, outer: usize, inner: Range<usize>, width: usize, panel: &mut [T]) -> usize {
        for (k, to) in inner.zip(panel.chunks_mut(width)) {
            let from = self.data.wrapping_offset(k as isize * self.inner).wrapping_add(outer);
            prefetch(from.wrapping_offset(self.inner.wrapping_mul(AHEAD)), W);
            // SAFETY: `W` rows of one step inside the ranges, neighbours because the outer stride is one.
            to[..W].copy_from_slice(&unsafe { from.cast::<[T; W]>().read_unaligned() });
        }
        W
    }
}

impl<T: Real> PanelSource<T> for Strided<T> {
    fn layout(&self) -> Layout {
        if self.inner == 1 && self.outer != 1 { Layout::Chunked } else { Layout::Interleaved }
    }

    fn pack(&self, outer: Range<usize>, inner: Range<usize>, layout: Layout, width: usize, panel: &mut [T]) {
        let rows = outer.len();
        clear_rows(rows, inner.len(), layout, width, panel);
        match (layout, self.outer, self.inner) {
            (Layout::Chunked, _, 1) => vectorized(
                #[inline(always)]
                || self.chunk(outer, inner, width, panel),
            ),
            (Layout::Interleaved, 1, _) => vectorized(
                #[inline(always)]
                || self.interleave(outer, inner, width, panel),
            ),
            (Layout::Interleaved, 0.., 1) => self.transpose(outer, inner, width, panel),
            (Layout::Chunked | Layout::Interleaved, _, _) => self.gather(outer, inner, layout, width, panel),
        }
    }

    fn direct(&self) -> Option<(*const T, usize)> {
        (self.outer == 1 && self.inner >= 0).then_some((self.data, self.inner.unsigned_abs()))
    }

    fn rows(&self) -> Option<(*const T, usize)> {
        match self.layout() {
            Layout::Chunked => (self.outer >= 0).then_some((self.data, self.outer.unsigned_abs())),
            Layout::Interleaved => self.direct(),
        }
    }
}

impl<T: Real> Strided<T> {
    /// Writes any panel, element by element.
    fn gather(&self, outer: Range<usize>, inner: Range<usize>, layout: Layout, width: usize, panel: &mut [T]) {
        for (s, k) in inner.enumerate() {
            for (r, i) in outer.clone().enumerate() {
                // SAFETY: inside the ranges.
                let x = unsafe { *self.data.offset(i as isize * self.outer + k as isize * self.inner) };
                panel[position(layout, width, r, s)] = x;
            }
        }
    }
}

/// The filter of a convolution as seen by its input gradient: rows are input channels, steps run over the taps of one
/// phase and, for each, over the output channels.
pub(crate) struct Taps<'a, T> {
    /// The filter from its first tap, input channel and output channel on.
    pub(crate) filter: &'a [T],
    /// Number of taps of the phase along width.
    pub(crate) n_x: usize,
    /// Elements from one tap of the phase to the next, along height and width.
    pub(crate) stride: [usize; 2],
    /// Output channels of the group.
    pub(crate) channels: usize,
    /// Elements from one input channel to the next.
    pub(crate) row: usize,
}

impl<T: Real> PanelSource<T> for Taps<'_, T> {
    fn layout(&self) -> Layout {
        Layout::Chunked
    }

    fn pack(&self, outer: Range<usize>, inner: Range<usize>, layout: Layout, width: usize, panel: &mut [T]) {
        clear_rows(outer.len(), inner.len(), layout, width, panel);
        if outer.is_empty() {
            return;
        }
        let mut k = inner.start;
        while k < inner.end {
            let (tap, channel) = (k / self.channels, k % self.channels);
            let n = (self.channels - channel).min(inner.end - k);
            let at = tap / self.n_x * self.stride[0] + tap % self.n_x * self.stride[1] + channel;
            let (first, step) = (at + outer.start * self.row, k - inner.start);
            match layout {
                Layout::Interleaved => {
                    exchange(&self.filter[first..], self.row, [outer.len(), n], &mut panel[step * width..], width);
                }
                Layout::Chunked => {
                    for (r, run) in self.filter[first..].chunks(self.row).take(outer.len()).enumerate() {
                        write_run(panel, width, r, step, &run[..n]);
                    }
                }
            }
            k += n;
        }
    }

    fn direct(&self) -> Option<(*const T, usize)> {
        None
    }
}
