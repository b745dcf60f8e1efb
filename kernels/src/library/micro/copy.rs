//! Panels that are copied while others are multiplied: a few steps at a time, so that a task waits for no memory.
//!
//! A store of a vector takes a cycle of both multipliers with AVX2; the rest of a copy is free (ADR 63).

use super::pack::CHUNK;
use super::simd::Simd;
use super::{Real, is_short};

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
}

impl<S: Simd, const W: usize> Copying<S, W> {
    /// Nothing is copied.
    pub(super) const fn none() -> Copying<S, W> {
        Copying { from: std::ptr::null(), from_row: 0, to: std::ptr::null_mut(), left: 0, share: 0 }
    }

    /// Copies some steps, or as many as are left.
    ///
    /// # Safety
    ///
    /// The instruction set of `S`; the steps are readable, and the panel has room for them.
    #[inline(always)]
    pub(super) unsafe fn advance(&mut self, steps: usize) {
        /// Steps by which lines are asked for before their use. Short vectors ask for few, since a set of a first-level
        /// cache has room for few, except where rows are a page apart or more, in operands that come from memory. Long
        /// ones are through with two steps long before a line comes from where another core wrote it.
        const AHEAD: [usize; 2] = [2, 8];
        const PAGE: usize = 4096;
        let is_far = !is_short::<S>() || self.from_row >= PAGE / size_of::<S::Elem>();
        let ahead = self.from_row.wrapping_mul(AHEAD[usize::from(is_far)]);
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
        let copying = |from, to, [left, share]: [usize; 2]| Some(Copying { from, from_row: row, to, left, share });
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
