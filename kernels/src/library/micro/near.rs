//! Products whose B stays in a near cache: nothing is packed. Its rows are read where they lie, once for every few rows of A;
//! columns that are no neighbours are turned first. The chains of additions are those of [`super::drive`], so that no bit
//! differs.

use std::ops::Range;

use super::drive::{Done, Engine, Output, is_split};
use super::grid::{is_one_task, power_of_two, share};
use super::pack::{PanelSource, Strided};
use super::small::multiply_unpacked;
use super::{Kernels, LINE, Layout, Real, with_scratch};

/// Bytes that rows of B reach over: they stay in a second-level cache beside what else is there, and those of a strip of
/// columns in the nearest one.
const NEAR: usize = 128 << 10;

/// Bytes of a B that is turned.
const TURNED: usize = 64 << 10;

/// Rows from which on a B is worth turning.
const MANY_ROWS: usize = 8;

/// With more steps and more rows than these, panels are quicker: a strip of columns and the rows that it meets are more than
/// the nearest cache holds. With more steps, rows as lanes are quicker where columns leave most of a second vector empty.
const MANY_STEPS: usize = 200;
const FEW_ROWS: usize = 96;

/// Bytes of an A whose steps are rows of memory.
const NEAR_ROWS: usize = 1 << 20;

/// Steps below which C is hardly more than written.
const FEW_STEPS: usize = 16;

/// Rows of which a task has a multiple, as many as the tallest tile of two vectors, and elements of A that a strip of columns
/// meets at a time.
const UNIT: usize = 6;
const CHUNK: usize = 1 << 13;

/// Multiplications of a task, of which there are two at least, and tasks at most.
const TASK: usize = 1 << 17;
const TASKS: usize = 16;

/// Whether so many lines at such a distance, in bytes, share few sets of a nearest cache.
fn is_crowded(lines: usize, distance: usize) -> bool {
    const FAR: usize = 512;
    const MANY: usize = 64;
    const PAGE: usize = 4096;
    const WAYS: usize = 8;
    let shares = |unit: usize| distance > 0 && distance.is_multiple_of(unit);
    shares(FAR) && lines > MANY || shares(PAGE) && lines > WAYS
}

/// Elements from one turned row to the next.
fn turned_pitch<T>(n: usize) -> usize {
    let pitch = n.next_multiple_of(LINE / size_of::<T>());
    if is_crowded(usize::MAX, pitch * size_of::<T>()) { pitch + LINE / size_of::<T>() } else { pitch }
}

/// Whether products with so many columns, of so many steps, fill vectors, and have more to do than to write their results.
pub(crate) fn fills_vectors<T>(kernels: &Kernels<T>, [n, k]: [usize; 2]) -> bool {
    n >= kernels.lanes && n * size_of::<T>() >= LINE && k > 0 && (k >= FEW_STEPS || n < 2 * kernels.lanes)
}

/// Whether a product that fills vectors is computed with a B that stays in a near cache.
pub(crate) fn is_near<T: Real>(kernels: &Kernels<T>, [m, n, k]: [usize; 3], [a, b]: [&Strided<T>; 2]) -> bool {
    let bytes = |elements: usize| elements.saturating_mul(size_of::<T>());
    let ((_, a_row, a_step), (_, b_col, b_step)) = (a.parts(), b.parts());
    let [a_step, b_step] = [a_step, b_step].map(isize::unsigned_abs);
    let is_b_near = if b_col == 1 {
        bytes(b_step.saturating_mul(k)) <= NEAR && !is_crowded(k, bytes(b_step))
    } else {
        m >= MANY_ROWS && bytes(turned_pitch::<T>(n).saturating_mul(k)) <= TURNED
    };
    let are_steps_near = || bytes(m.saturating_mul(k)) <= NEAR_ROWS && !is_crowded(k, bytes(a_step));
    let is_a_near = a_row != 1 || are_steps_near();
    let is_large = k > MANY_STEPS && (m > FEW_ROWS || m >= kernels.lanes && 2 * n < 3 * kernels.lanes);
    m > 1 && k > 0 && !is_large && a.is_dense() && b.is_dense() && is_b_near && is_a_near && !is_split(m, n, k)
}

impl Engine {
    /// Computes a product with a B that stays in a near cache into rows of `n` elements; `done` is told each finished part.
    ///
    /// # Safety
    ///
    /// [`is_near`] holds; the operands have these rows, columns and steps; `c` is writable for all rows, and nobody else
    /// uses these.
    pub(crate) unsafe fn multiply_near<T: Real>(
        &self,
        extents: [usize; 3],
        [a, b]: [&Strided<T>; 2],
        c: *mut T,
        done: Done<'_>,
    ) {
        let [_, n, k] = extents;
        let pitch = turned_pitch::<T>(n);
        let is_turned = b.parts().1 != 1;
        with_scratch::<T, _>(if is_turned { pitch * k } else { 0 }, |turned| {
            // SAFETY: handed on; the turned rows live as long as the product.
            unsafe {
                if is_turned {
                    b.pack(0..n, 0..k, Layout::Interleaved, pitch, turned);
                    let b = Strided::new(turned.as_ptr(), 1, pitch as isize);
                    self.near_tasks(extents, [a, &b], c, done);
                } else {
                    self.near_tasks(extents, [a, b], c, done);
                }
            }
        });
    }

    /// [`Engine::multiply_near`] with a B whose columns are neighbours.
    ///
    /// # Safety
    ///
    /// As there.
    unsafe fn near_tasks<T: Real>(&self, [m, n, k]: [usize; 3], [a, b]: [&Strided<T>; 2], c: *mut T, done: Done<'_>) {
        let width = 2 * T::kernels(self.level).lanes;
        let is_one = !self.divides || is_one_task(m, n, k);
        let wanted = if is_one { 1 } else { (m.saturating_mul(n).saturating_mul(k) / TASK).clamp(2, TASKS) };
        let down = power_of_two(wanted.min(m / (2 * UNIT)).max(1));
        let across = power_of_two((wanted / down).min(n / width).max(1));
        let height = (CHUNK / k / UNIT).max(2) * UNIT;
        let out = Output { data: c, stride: n, rows: None };
        let run = |task: usize| {
            let (all, cols) = (share(m, UNIT, down, task / across), share(n, width, across, task % across));
            for start in all.clone().step_by(height) {
                let rows = start..(start + height).min(all.end);
                // SAFETY: these rows and columns are there, and are this task's own.
                unsafe { self.near_block([rows, cols.clone()], k, [a, b], &out) };
                done(start..(start + height).min(all.end), cols.clone());
            }
        };
        match down * across {
            1 => run(0),
            n_tasks => (self.parallel_for)(n_tasks, &run),
        }
    }

    /// Some rows and columns.
    ///
    /// # Safety
    ///
    /// The operands and the output have these rows and columns, and nobody else uses those of the output.
    unsafe fn near_block<T: Real>(
        &self,
        [rows, cols]: [Range<usize>; 2],
        k: usize,
        [a, b]: [&Strided<T>; 2],
        out: &Output<'_, T>,
    ) {
        let ((a, a_row, a_step), (b, b_col, b_step)) = (a.parts(), b.parts());
        // SAFETY: by the contract of this function.
        unsafe {
            let a = Strided::new(a.offset(rows.start as isize * a_row), a_row, a_step);
            let b = Strided::new(b.add(cols.start), b_col, b_step);
            let c = out.row(rows.start).add(cols.start);
            multiply_unpacked(self.level, [rows.len(), cols.len(), k], &a, &b, c, out.stride);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turned_rows_lie_in_many_sets() {
        for n in 16..3000 {
            let pitch = turned_pitch::<f32>(n);
            assert!(pitch >= n && pitch < n + 32 && !is_crowded(1000, 4 * pitch), "{n}");
        }
    }
}
