//! What a product will read from memory, asked for while it multiplies.
//!
//! A sum over many steps reads each element of its operands once. Steps of a few hundred bytes, of which a tile reads a part
//! at a time, are no stream that a processor would foresee, and packing does nothing else while it waits. So the lines of the
//! next block of steps are asked for, some with each chunk of steps of this one (ADR 105).

use std::ops::Range;

use super::pack::{CHUNK, PanelSource};
use super::simd::Simd;
use super::{Kernels, LINE, Real};

/// Bytes of the operands from which on they come from memory.
const FAR: usize = if cfg!(test) { 1 << 14 } else { 4 << 20 };

/// Lines of a cache that the block of steps after this one reads.
pub(super) struct Ahead<T> {
    /// The next line of each operand, and lines that are left.
    parts: [(*const T, usize); 2],
    /// Lines for each chunk of steps.
    share: usize,
}

impl<T: Real> Ahead<T> {
    /// What follows block `steps` of a task that ends with step `end`, in a product of `m` rows, `n` columns and `k` steps in
    /// all, if its operands come from memory: of those whose steps follow each other there.
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
