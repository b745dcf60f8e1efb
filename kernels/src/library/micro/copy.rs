//! Panels that are copied while others are multiplied: a few steps at a time, so that a task waits for no memory. The steps
//! after these are asked for (ADR 105).
//!
//! A store of a vector takes a cycle of both multipliers with AVX2; the rest of a copy is free (ADR 63).

use std::ops::Range;

use super::pack::{CHUNK, PanelSource};
use super::simd::Simd;
use super::{Kernels, LINE, Real, is_short};

/// Bytes of the operands from which on they come from memory.
const FAR: usize = if cfg!(test) { 1 << 14 } else { 4 << 20 };

/// Bytes of a page of memory.
pub(super) const PAGE: usize = 4096;

/// Two column panels of a task: one is in use while the next one is copied from B.
///
/// Rows of B at a distance of a power of two share few sets of a cache, which cannot hold the steps of a panel until the
/// next row panel reads them. A copy has its steps side by side. A few steps at a time between those of the product, it
/// waits for nothing, and takes the cycles of its stores.
pub(super) struct Staging<T> {
    /// The panel in use, and the one that is written.
    pub(super) panels: [*mut T; 2],
    /// Whether the first panel of the block is there.
    pub(super) is_ready: bool,
    /// Whether B comes from memory.
    pub(super) is_far: bool,
    /// Where the first panel of the next block lies, and its steps: none after the last block.
    pub(super) after: (*const T, usize),
}

impl<T> Staging<T> {
    /// Copies what is left of the next panel, which is in use from now on.
    ///
    /// # Safety
    ///
    /// As [`Copying::advance`].
    #[inline(always)]
    pub(super) unsafe fn advance<S: Simd<Elem = T>, const W: usize>(
        &mut self,
        copying: &mut Copying<S, W>,
        later: Option<Copying<S, W>>,
    ) {
        // SAFETY: handed on.
        unsafe {
            copying.advance(copying.left);
            if let Some(mut later) = later {
                later.advance(later.left);
            }
        }
        self.panels.swap(0, 1);
        self.is_ready = true;
    }
}

/// A column panel of `W` vectors that is copied, some steps at a time, or only asked for.
pub(super) struct Copying<S: Simd, const W: usize> {
    from: *const S::Elem,
    from_row: usize,
    /// Null if the panel is to be asked for where it lies.
    to: *mut S::Elem,
    /// Steps that are not copied yet, and those to copy in a chunk of the product's.
    pub(super) left: usize,
    pub(super) share: usize,
    /// Steps by which lines are asked for before their use.
    ahead: usize,
}

/// Steps by which a copy asks for lines before their use. Short vectors ask for few, since a set of a first-level cache has
/// room for few, except where rows are a page apart or more, in operands that come from memory. Long ones are through with
/// two steps long before a line comes from where another core wrote it, and with eight before one comes from memory.
fn ahead<S: Simd>(row: usize, is_far: bool) -> usize {
    const AHEAD: [usize; 3] = [2, 8, 16];
    let is_long = !is_short::<S>() || row >= PAGE / size_of::<S::Elem>();
    AHEAD[if is_far { 2 } else { usize::from(is_long) }]
}

impl<S: Simd, const W: usize> Copying<S, W> {
    /// Nothing is copied.
    pub(super) const fn none() -> Copying<S, W> {
        Copying { from: std::ptr::null(), from_row: 0, to: std::ptr::null_mut(), left: 0, share: 0, ahead: 0 }
    }

    /// Copies some steps, or as many as are left.
    ///
    /// # Safety
    ///
    /// The instruction set of `S`; the steps are readable, and the panel has room for them.
    #[inline(always)]
    pub(super) unsafe fn advance(&mut self, steps: usize) {
        let ahead = self.from_row.wrapping_mul(self.ahead);
        let steps = steps.min(self.left);
        self.left -= steps;
        for _ in 0..steps {
            // SAFETY: handed on.
            unsafe {
                if self.to.is_null() {
                    // Two panels of long vectors are more than the nearest cache holds.
                    if is_short::<S>() {
                        S::prefetch(self.from);
                    } else {
                        (0..W).for_each(|v| S::prefetch_next(self.from.wrapping_add(v * S::LANES)));
                    }
                    self.from = self.from.wrapping_add(self.from_row);
                    continue;
                }
                S::prefetch(self.from.wrapping_add(ahead));
                // Long vectors that begin inside a line are in three.
                if !is_short::<S>() {
                    (1..W).for_each(|v| S::prefetch(self.from.wrapping_add(ahead + v * S::LANES)));
                }
                S::prefetch(self.from.wrapping_add(ahead + W * S::LANES - 1));
                for v in 0..W {
                    S::store(self.to.add(v * S::LANES), S::load(self.from.add(v * S::LANES)));
                }
            }
            self.from = self.from.wrapping_add(self.from_row);
            self.to = self.to.wrapping_add(W * S::LANES);
        }
    }
}

/// A column panel in use, and what is copied meanwhile.
pub(super) struct ColumnPanel<S: Simd, const W: usize> {
    /// The panel, and the distance of its steps.
    pub(super) data: *const S::Elem,
    pub(super) row: usize,
    /// The panel that is used next.
    pub(super) following: *const S::Elem,
    /// Copied first: the panel itself, by the tile that reads it first.
    pub(super) first: Option<Copying<S, W>>,
    /// Copied then: the panel that is used next.
    pub(super) later: Option<Copying<S, W>>,
}

impl<S: Simd, const W: usize> ColumnPanel<S, W> {
    /// A column panel of `depth` steps at the distance `row`, and the one that follows it, in a block with as many row
    /// panels and chunks in all of them.
    #[inline(always)]
    pub(super) fn new(
        [data, following]: [*const S::Elem; 2],
        row: usize,
        depth: usize,
        has_next: bool,
        [n_panels, n_chunks]: [usize; 2],
        is_quick: bool,
        staging: Option<&Staging<S::Elem>>,
    ) -> ColumnPanel<S, W> {
        let ahead = ahead::<S>(row, staging.is_some_and(|staging| staging.is_far));
        let copying =
            |from, to, [left, share]: [usize; 2]| Some(Copying { from, from_row: row, to, left, share, ahead });
        let Some(staging) = staging else {
            // Packed panels lie farther away than steps ahead of their use could ask for.
            let is_asked_for = is_quick && has_next && row == W * S::LANES;
            let share = [depth, depth.div_ceil(n_chunks)];
            let later = if is_asked_for { copying(following, std::ptr::null_mut(), share) } else { None };
            return ColumnPanel { data, row, following, first: None, later };
        };
        let [now, next] = staging.panels;
        let (from, left) = if has_next { (following, depth) } else { staging.after };
        let (first, chunks) = if staging.is_ready {
            (None, n_chunks)
        } else {
            (copying(data, now, [depth, CHUNK]), n_chunks - n_chunks / n_panels)
        };
        let later = copying(from, next, [left, left.div_ceil(chunks.max(1))]);
        ColumnPanel { data: now, row: W * S::LANES, following: next, first, later }
    }
}

/// Copies a chunk of steps of a row panel of height `M`, chunked if `STEP` is [`CHUNK`], and clears the rows that A does
/// not have.
///
/// # Safety
///
/// The instruction set of `S`; A has the rows and steps from `from` on, at the distance `from_row` of rows or, if the panel
/// is not chunked, of steps; the panel at `to` has room for a chunk, and nobody else uses it.
#[inline(always)]
pub(super) unsafe fn copy_rows<S: Simd, const M: usize, const STEP: usize>(
    [from, to]: [*const S::Elem; 2],
    from_row: usize,
    [rows, steps]: [usize; 2],
) {
    let to = to.cast_mut();
    // SAFETY: A has these rows and steps, and the panel has room for a whole chunk of them.
    unsafe {
        if STEP == 1 {
            for k in 0..steps {
                let (from, to) = (from.add(k * from_row), to.add(k * M));
                S::prefetch(from.wrapping_add(CHUNK * from_row));
                if rows == M {
                    to.cast::<[S::Elem; M]>().write_unaligned(from.cast::<[S::Elem; M]>().read_unaligned());
                } else {
                    for i in 0..M {
                        *to.add(i) = if i < rows { *from.add(i) } else { S::Elem::ZERO };
                    }
                }
            }
            return;
        }
        for i in 0..M {
            let (from, to) = (from.wrapping_add(i * from_row), to.add(i * CHUNK));
            if i >= rows {
                to.cast::<[S::Elem; CHUNK]>().write_unaligned([S::Elem::ZERO; CHUNK]);
            } else if steps == CHUNK {
                S::prefetch(from.wrapping_add(2 * CHUNK));
                for v in (0..CHUNK).step_by(S::LANES) {
                    S::store(to.add(v), S::load(from.add(v)));
                }
            } else {
                for k in 0..steps {
                    *to.add(k) = *from.add(k);
                }
            }
        }
    }
}

/// Lines of a cache that the block of steps after this one reads.
///
/// A sum over many steps reads each element of its operands once. Steps of a few hundred bytes, of which a tile reads a part
/// at a time, are no stream that a processor would foresee, and packing does nothing else while it waits. So the lines are
/// asked for, some with each chunk of steps of the block before (ADR 105).
pub(super) struct Ahead<T> {
    /// The next line of each operand, and lines that are left.
    parts: [(*const T, usize); 2],
    /// Lines for each chunk of steps.
    share: usize,
}

impl<T: Real> Ahead<T> {
    /// The lines that follow block `steps` of a task that ends with step `end`, in a product of `m` rows, `n` columns and
    /// `k` steps in all, if its operands come from memory: of those whose steps follow each other there.
    pub(super) fn of_product(
        kernels: &Kernels<T>,
        operands: [&dyn PanelSource<T>; 2],
        [m, n, k]: [usize; 3],
        steps: &Range<usize>,
        end: usize,
    ) -> Option<Ahead<T>> {
        let bytes = m.saturating_add(n).saturating_mul(k).saturating_mul(size_of::<T>());
        let next = steps.end..end.min(steps.end.saturating_add(steps.len()));
        if bytes < FAR || next.is_empty() {
            return None;
        }
        let lines = |operand: &dyn PanelSource<T>, extent: usize| match operand.direct() {
            Some((data, row)) if row == extent => {
                (data.wrapping_add(next.start * row), (next.len() * row).div_ceil(LINE / size_of::<T>()))
            }
            _ => (std::ptr::null(), 0),
        };
        let [a, b] = operands;
        let parts = [lines(b, n), lines(a, m)];
        let n_tiles = m.div_ceil(kernels.heights[0]) * n.div_ceil(kernels.width);
        let share = (parts[0].1 + parts[1].1).div_ceil(n_tiles * (steps.len() / CHUNK).max(1));
        (share > 0).then_some(Ahead { parts, share })
    }

    /// Asks for the next lines.
    ///
    /// # Safety
    ///
    /// The instruction set of `S`.
    #[inline(always)]
    pub(super) unsafe fn advance<S: Simd<Elem = T>>(&mut self) {
        let mut share = self.share;
        for (from, left) in &mut self.parts {
            let now = share.min(*left);
            for _ in 0..now {
                // SAFETY: any address will do.
                unsafe { S::prefetch_next(*from) };
                *from = from.wrapping_add(LINE / size_of::<T>());
            }
            *left -= now;
            share -= now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::micro::drive::Engine;
    use crate::library::micro::pack::Strided;

    /// The lines of the next block, and no others, of the operand whose steps follow each other.
    #[test]
    fn lines_of_the_next_block_are_asked_for() {
        let (m, n, k) = (24, 40, 1000);
        let [a, b] = [m * k, k * n].map(|len| vec![1.0_f32; len]);
        let kernels = f32::kernels(Engine::best().level);
        // SAFETY: the operands outlive their views.
        let [turned, rows, columns] = unsafe {
            [
                Strided::new(a.as_ptr(), 1, m as isize),
                Strided::new(a.as_ptr(), k as isize, 1),
                Strided::new(b.as_ptr(), 1, n as isize),
            ]
        };
        let ahead = |a: &Strided<f32>, steps: Range<usize>, end| {
            Ahead::of_product(&kernels, [a, &columns], [m, n, k], &steps, end)
        };
        let found = ahead(&turned, 0..256, 1000).unwrap();
        let lines = |steps: usize, row: usize| (steps * row).div_ceil(LINE / 4);
        assert_eq!(found.parts, [(b[256 * n..].as_ptr(), lines(256, n)), (a[256 * m..].as_ptr(), lines(256, m))]);
        // The last block of a task is shorter, and nothing follows it.
        let found = ahead(&turned, 256..512, 600).unwrap();
        assert_eq!(found.parts, [(b[512 * n..].as_ptr(), lines(88, n)), (a[512 * m..].as_ptr(), lines(88, m))]);
        assert!(ahead(&turned, 512..600, 600).is_none());
        // Rows of many steps are streams already.
        assert_eq!(ahead(&rows, 0..256, 1000).unwrap().parts[1].1, 0);
        // All of them, in the chunks of the block.
        let mut found = ahead(&turned, 0..256, 1000).unwrap();
        let n_chunks = m.div_ceil(kernels.heights[0]) * n.div_ceil(kernels.width) * (256 / CHUNK);
        for _ in 0..n_chunks {
            // SAFETY: an instruction set that is always there.
            unsafe { found.advance::<super::super::simd::Portable<f32, 4>>() };
        }
        assert_eq!(found.parts.map(|(_, left)| left), [0, 0]);
    }
}
