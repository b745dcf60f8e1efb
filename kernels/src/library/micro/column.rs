//! Products with one column or one row: a matrix times a vector. Rows of the matrix are lanes, and nothing is packed.
//!
//! The panels of other products would leave all lanes of a vector empty except one. The chains of additions are those of
//! [`super::drive`], so that no bit differs.

use std::ops::Range;

use super::drive::{Engine, split_depth};
use super::grid::is_one_task;
use super::pack::Strided;
use super::simd::Simd;
use super::tile::Shortest;
use super::{Real, block_depth};

/// Rows of a matrix whose steps are neighbours in memory, below which panels serve as well.
const FEW_ROWS: usize = 16;

/// Multiplications of a task at least.
const TASK: usize = 1 << 16;

/// Tasks at most, if each is large enough.
const TASKS: usize = 16;

/// Rows that a task has a multiple of, unless it is the last one: a tile of the longest vectors.
const UNIT: usize = 128;

/// Steps after which rows are asked for anew, those of a cache line or two, and how many steps ahead.
const RUN: usize = 16;
const AHEAD: usize = 64;

/// Rows of a matrix times a vector: element (i, k) of the matrix is at `a + i * a_row + k * a_step`.
pub(super) struct Column<T> {
    /// Rows, which lie one after the other in the result.
    pub(super) rows: usize,
    /// Length of the sums, of their parts, and of the chains of a part.
    pub(super) steps: usize,
    pub(super) part: usize,
    pub(super) depth: usize,
    /// The matrix, the distance of its rows and that of its steps, one of which is 1.
    pub(super) a: *const T,
    pub(super) a_row: usize,
    pub(super) a_step: usize,
    /// The vector and the distance of its elements.
    pub(super) x: *const T,
    pub(super) x_step: isize,
    /// The result.
    pub(super) c: *mut T,
}

/// A pointer to the result, of which each task writes a part of its own.
struct ColumnResult<T>(*mut T);

// SAFETY: tasks write disjoint parts.
unsafe impl<T: Send> Sync for ColumnResult<T> {}

impl<T> ColumnResult<T> {
    fn at(&self, offset: usize) -> *mut T {
        self.0.wrapping_add(offset)
    }
}

/// Whether a matrix of `rows` rows times a vector is computed without panels.
pub(crate) fn is_streamed<T: Real>(rows: usize, a: &Strided<T>) -> bool {
    let (_, row, step) = a.parts();
    row >= 0 && step >= 0 && (row == 1 || step == 1) && rows >= FEW_ROWS
}

impl Engine {
    /// Computes `rows` sums of `k` products, the rows of `a` times the only row of `x`; `done` is told each finished part.
    ///
    /// # Safety
    ///
    /// [`is_streamed`] holds; `c` is writable for the rows, and nobody else uses these.
    pub(crate) unsafe fn multiply_column<T: Real>(
        &self,
        [rows, k]: [usize; 2],
        [a, x]: [&Strided<T>; 2],
        c: *mut T,
        done: &(dyn Fn(Range<usize>) + Sync),
    ) {
        let (kernels, out) = (T::kernels(self.level), ColumnResult(c));
        let ((a, a_row, a_step), (x, _, x_step)) = (a.parts(), x.parts());
        let [a_row, a_step] = [a_row, a_step].map(isize::unsigned_abs);
        let matrix = ColumnMatrix([a, x]);
        let n_tasks = if is_one_task(rows, 1, k) { 1 } else { (rows.saturating_mul(k) / TASK).clamp(1, TASKS) };
        let unit = if a_row == 1 { UNIT } else { FEW_ROWS };
        let share = rows.div_ceil(n_tasks).next_multiple_of(unit);
        // The parts of a chain, and what precedes them, as for a result of one column and as many rows.
        let (part, depth) = (split_depth(rows, 1, k), block_depth(k));
        (self.parallel_for)(rows.div_ceil(share), &|task| {
            let now = task * share..((task + 1) * share).min(rows);
            let a = matrix.operand(0).wrapping_add(now.start * a_row);
            let (x, c) = (matrix.operand(1), out.at(now.start));
            let column = Column { rows: now.len(), steps: k, part, depth, a, a_row, a_step, x, x_step, c };
            // SAFETY: the level is present; the operands hold all rows and steps, and the rows are this task's own.
            unsafe { (kernels.column)(&column) };
            done(now);
        });
    }
}

/// The operands, which tasks share.
struct ColumnMatrix<T>([*const T; 2]);

// SAFETY: only read while tasks run.
unsafe impl<T: Sync> Sync for ColumnMatrix<T> {}

impl<T> ColumnMatrix<T> {
    fn operand(&self, index: usize) -> *const T {
        self.0[index]
    }
}

/// Adds up the sums of chains: `chain` gives those of some steps. `zero` is not added.
#[inline(always)]
fn total<T, V: Copy>(x: &Column<T>, zero: V, chain: impl Fn(Range<usize>) -> V, add: impl Fn(V, V) -> V) -> V {
    let (mut total, mut start) = (zero, 0);
    while start < x.steps {
        let end = start.saturating_add(x.part).min(x.steps);
        let (mut sum, mut at) = (zero, start);
        while at < end {
            let next = (at + x.depth).min(end);
            let more = chain(at..next);
            sum = if at == start { more } else { add(sum, more) };
            at = next;
        }
        total = if start == 0 { sum } else { add(total, sum) };
        start = end;
    }
    total
}

/// Computes all rows.
///
/// # Safety
///
/// The instruction set of `S`; operands and result are valid for rows and steps, of which there are some.
#[inline(always)]
pub(super) unsafe fn column<S: Simd>(x: &Column<S::Elem>) {
    let mut i = 0;
    while i < x.rows {
        let left = x.rows - i;
        // SAFETY: no more rows than are left.
        i += unsafe {
            if x.a_row == 1 && left >= 8 * S::LANES {
                lanes::<S, 8>(x, i)
            } else if x.a_row == 1 && left >= S::LANES {
                lanes::<S, 1>(x, i)
            } else if x.a_row == 1 && left >= S::Half::LANES {
                lanes::<S::Half, 1>(x, i)
            } else if x.a_step == 1 && left >= 16 {
                squares::<S, 4>(x, i)
            } else if x.a_step == 1 && left >= SIDE {
                squares::<S, 1>(x, i)
            } else {
                single(x, i)
            }
        };
    }
}

/// Rows that are neighbours in memory, `V` vectors of them; returns their number.
#[inline(always)]
unsafe fn lanes<S: Simd, const V: usize>(x: &Column<S::Elem>, i: usize) -> usize {
    // SAFETY: the rows and steps lie inside the operands, and the rows inside the result.
    unsafe {
        let sums = total(
            x,
            [S::zero(); V],
            #[inline(always)]
            |steps| lane_chains::<S, V>(x, i, steps),
            #[inline(always)]
            |mut sums, more| {
                for (sum, more) in sums.iter_mut().zip(more) {
                    *sum = S::add(*sum, more);
                }
                sums
            },
        );
        for (v, sum) in sums.into_iter().enumerate() {
            S::store(x.c.add(i + v * S::LANES), sum);
        }
    }
    V * S::LANES
}

/// The chains of some steps, for [`lanes`].
#[inline(always)]
unsafe fn lane_chains<S: Simd, const V: usize>(x: &Column<S::Elem>, i: usize, steps: Range<usize>) -> [S::Vector; V] {
    // SAFETY: the rows and steps lie inside the operands.
    unsafe {
        let mut sums = [S::zero(); V];
        for k in steps {
            let factor = S::splat(x.x.offset(k as isize * x.x_step));
            let at = x.a.add(k * x.a_step + i);
            for (v, sum) in sums.iter_mut().enumerate() {
                // The next tile reads what follows.
                S::prefetch(at.wrapping_add((V + v) * S::LANES));
                *sum = S::mul_add(S::load(at.add(v * S::LANES)), factor, *sum);
            }
        }
        sums
    }
}

/// Rows and steps that are exchanged at a time.
const SIDE: usize = 4;

/// The sums of `Q` times four rows.
type SquareSums<T, const Q: usize> = [[T; SIDE]; Q];

/// `Q` times four rows whose steps are neighbours in memory, which squares turn to lanes; returns the number of rows.
#[inline(always)]
unsafe fn squares<S: Simd, const Q: usize>(x: &Column<S::Elem>, i: usize) -> usize {
    // SAFETY: the rows and steps lie inside the operands, and the rows inside the result.
    unsafe {
        let sums = total(
            x,
            [[S::Elem::ZERO; SIDE]; Q],
            #[inline(always)]
            |steps| square_chains::<S, Q>(x, i, steps),
            #[inline(always)]
            |mut sums, more| {
                for (sum, more) in sums.as_flattened_mut().iter_mut().zip(more.as_flattened()) {
                    *sum = *sum + *more;
                }
                sums
            },
        );
        x.c.add(i).cast::<SquareSums<S::Elem, Q>>().write_unaligned(sums);
    }
    SIDE * Q
}

/// The chains of some steps, for [`squares`].
#[inline(always)]
unsafe fn square_chains<S: Simd, const Q: usize>(
    x: &Column<S::Elem>,
    i: usize,
    steps: Range<usize>,
) -> SquareSums<S::Elem, Q> {
    let mut sums = [[S::Elem::ZERO; SIDE]; Q];
    let whole = steps.end - steps.len() % SIDE;
    // SAFETY: the rows and steps lie inside the operands.
    unsafe {
        for k in (steps.start..whole).step_by(SIDE) {
            if (k - steps.start).is_multiple_of(RUN) {
                for row in i..i + SIDE * Q {
                    S::prefetch(x.a.wrapping_add(row * x.a_row + k + AHEAD));
                }
            }
            let mut factors = [S::Elem::ZERO; SIDE];
            for (s, factor) in factors.iter_mut().enumerate() {
                *factor = *x.x.offset((k + s) as isize * x.x_step);
            }
            for (q, sums) in sums.iter_mut().enumerate() {
                let square = Shortest::<S>::columns(x.a.add((i + q * SIDE) * x.a_row + k), x.a_row);
                for (column, factor) in square.into_iter().zip(factors) {
                    for (sum, element) in sums.iter_mut().zip(column) {
                        *sum = element.fused(factor, *sum);
                    }
                }
            }
        }
        for k in whole..steps.end {
            let factor = *x.x.offset(k as isize * x.x_step);
            for (row, sum) in sums.as_flattened_mut().iter_mut().enumerate() {
                *sum = (*x.a.add((i + row) * x.a_row + k)).fused(factor, *sum);
            }
        }
    }
    sums
}

/// One row; returns 1.
#[inline(always)]
unsafe fn single<T: Real>(x: &Column<T>, i: usize) -> usize {
    // SAFETY: the row and the steps lie inside the operands, and the row inside the result.
    unsafe {
        *x.c.add(i) = total(
            x,
            T::ZERO,
            #[inline(always)]
            |steps| {
                let mut sum = T::ZERO;
                for k in steps {
                    let element = *x.a.add(i * x.a_row + k * x.a_step);
                    sum = element.fused(*x.x.offset(k as isize * x.x_step), sum);
                }
                sum
            },
            #[inline(always)]
            |sum, more| sum + more,
        );
    }
    1
}
