//! Rows of a matrix whose steps are neighbours in memory, times some vectors: rows are turned to lanes in registers, once for
//! a group of vectors, each row with a chain of its own.

use std::ops::Range;

use super::grid::share;
use super::simd::Simd;
use super::stored::{StoredElement, add_step};
use super::strip::Column;
use super::tile::Shortest;
use super::{LINE, Real, is_short};

/// Bytes of a short row.
pub(super) const SHORT: usize = 2048;

/// Steps after which squares ask for rows anew, those of a cache line or two, and how many steps ahead.
const RUN: usize = 16;
const AHEAD: usize = 64;

/// Vectors of a group at most: where 32 registers hold their sums and some columns, and where 16 do.
const MOST: usize = 8;
const FEW: usize = 4;

/// Vectors of a group at most; one where rows are not turned to whole vectors.
pub(super) const fn most_vectors<S: Simd>() -> usize {
    match (S::TURNS, is_short::<S>()) {
        (false, _) => 1,
        (true, true) => FEW,
        (true, false) => MOST,
    }
}

/// Lanes of a vector at most.
const LANES: usize = 16;

/// Computes all rows, whose steps are neighbours in memory: each tile has rows of its own, which are read along it.
///
/// # Safety
///
/// The instruction set of `S`; steps are neighbours in memory, and operands and result are valid for rows, steps and vectors.
#[inline(always)]
pub(super) unsafe fn turned<S: Simd, P: StoredElement<S::Elem>>(x: &Column<P::Stored, S::Elem>) {
    let mut i = 0;
    while i < x.rows {
        // SAFETY: handed on.
        i += unsafe { turned_rows::<S, P>(x, i) };
    }
}

/// All steps of some rows from `i` on, for all vectors; returns the number of rows.
#[inline(always)]
unsafe fn turned_rows<S: Simd, P: StoredElement<S::Elem>>(x: &Column<P::Stored, S::Elem>, i: usize) -> usize {
    let left = x.rows - i;
    // SAFETY: no more rows than are left.
    unsafe {
        if S::TURNS && left >= S::LANES && !(S::Half::TURNS && drive_out::<P::Stored, S::Elem>(x, S::LANES)) {
            return whole_vectors::<S, P>(x, i);
        } else if S::Half::TURNS && left >= S::Half::LANES {
            return whole_vectors::<S::Half, P>(x, i);
        }
        let mut height = 1;
        for vector in 0..x.vectors {
            let x = x.vector(vector);
            for steps in x.blocks() {
                height = if left >= 2 * SIDE {
                    squares::<S, P, 2>(&x, i, steps)
                } else if left >= SIDE {
                    squares::<S, P, 1>(&x, i, steps)
                } else {
                    last_rows::<S::Elem, P>(&x, i, steps)
                };
            }
        }
        height
    }
}

/// Whether so many rows drive each other's lines out of the nearest cache before a single vector has met them: a set has
/// eight lines or more, and its lines are a power of two apart. Of shorter elements, whose conversion takes longer, rows may.
fn drive_out<A, T>(x: &Column<A, T>, rows: usize) -> bool {
    const WAYS: usize = 8;
    const SETS: usize = 64;
    let is_stored_so = size_of::<A>() == size_of::<T>();
    x.vectors == 1 && rows > WAYS && is_stored_so && (x.a_row * size_of::<A>()).is_multiple_of(SETS * LINE)
}

/// All steps of as many rows as vectors hold, or of twice as many, for all vectors; returns the number of rows.
///
/// A single chain waits for itself. The chains of one vector are those of two blocks of steps: more rows would be more streams
/// than processors foresee, which drive each other's lines out where rows are a power of two apart. With fewer blocks, chains of
/// more rows keep the multipliers busy; from memory, a single chain is as fast as its bytes, and reads long runs.
#[inline(always)]
unsafe fn whole_vectors<S: Simd, P: StoredElement<S::Elem>>(x: &Column<P::Stored, S::Elem>, i: usize) -> usize {
    let n_blocks = x.steps / x.depth;
    let has_pairs = n_blocks == 2 || n_blocks >= 4;
    // SAFETY: the rows and steps lie inside the operands, and the rows inside the result.
    unsafe {
        if x.vectors > 1 {
            let n_groups = x.vectors.div_ceil(most_vectors::<S>());
            for group in 0..n_groups {
                let vectors = share(x.vectors, 1, n_groups, group);
                for steps in x.blocks() {
                    group_of::<S, P>(x, i, steps, vectors.clone());
                }
            }
            return S::LANES;
        }
        if !has_pairs && x.rows - i >= 2 * S::LANES {
            for steps in x.blocks() {
                let starts = [[i, steps.start], [i + S::LANES, steps.start]];
                chains::<S, P, 2, 1>(x, starts, steps.len(), 0);
            }
            return 2 * S::LANES;
        }
        let mut start = 0;
        while start < x.steps {
            if !x.is_far && x.steps - start >= 2 * x.depth {
                chains::<S, P, 2, 1>(x, [[i, start], [i, start + x.depth]], x.depth, 0);
                start += 2 * x.depth;
            } else {
                let len = x.depth.min(x.steps - start);
                chains::<S, P, 1, 1>(x, [[i, start]], len, 0);
                start += len;
            }
        }
        S::LANES
    }
}

/// A block of steps of as many rows as a vector holds, for a group of vectors.
#[inline(always)]
unsafe fn group_of<S: Simd, P: StoredElement<S::Elem>>(
    x: &Column<P::Stored, S::Elem>,
    i: usize,
    steps: Range<usize>,
    vectors: Range<usize>,
) {
    let (starts, len, first) = ([[i, steps.start]], steps.len(), vectors.start);
    // SAFETY: handed on.
    unsafe {
        match vectors.len() {
            MOST if !is_short::<S>() => chains::<S, P, 1, MOST>(x, starts, len, first),
            7 if !is_short::<S>() => chains::<S, P, 1, 7>(x, starts, len, first),
            6 if !is_short::<S>() => chains::<S, P, 1, 6>(x, starts, len, first),
            5 if !is_short::<S>() => chains::<S, P, 1, 5>(x, starts, len, first),
            FEW => chains::<S, P, 1, FEW>(x, starts, len, first),
            3 => chains::<S, P, 1, 3>(x, starts, len, first),
            2 => chains::<S, P, 1, 2>(x, starts, len, first),
            _ => chains::<S, P, 1, 1>(x, starts, len, first),
        }
    }
}

/// How many elements ahead chains of some rows ask for what they read, if it comes from memory: of short rows with gaps between
/// them the next rows, of which no processor foresees the first lines; of other ones what follows, for many streams wait for
/// each other.
fn ahead_of<A, T>(x: &Column<A, T>, rows: usize) -> usize {
    if x.is_sparse {
        rows * x.a_row
    } else if x.is_far {
        SHORT / size_of::<A>()
    } else {
        0
    }
}

/// `B` chains of `len` steps of as many rows as a vector holds, given by their first rows and steps, for each of `V` vectors
/// from `first` on. A chain takes a cache line of each of its rows before the next one: rows at a power of two share the ways
/// of one set.
#[inline(always)]
unsafe fn chains<S: Simd, P: StoredElement<S::Elem>, const B: usize, const V: usize>(
    x: &Column<P::Stored, S::Elem>,
    starts: [[usize; 2]; B],
    len: usize,
    first: usize,
) {
    let run = const { LINE / size_of::<P::Stored>() };
    let whole = len - len % P::STEPS;
    let ahead = if first == 0 { ahead_of(x, starts[B - 1][0] + S::LANES - starts[0][0]) } else { 0 };
    let strides = [x.x_vector, x.x_step];
    let factors_of = |step: usize| x.x.wrapping_offset(first as isize * x.x_vector + step as isize * x.x_step);
    // SAFETY: the rows and steps lie inside the operands, and the rows inside the result.
    unsafe {
        let mut sums = [[S::zero(); V]; B];
        for at in (0..whole).step_by(run) {
            for (&[row, start], sums) in starts.iter().zip(&mut sums) {
                let rows = x.a.add(row * x.a_row + start + at);
                for lane in 0..if ahead > 0 { S::LANES } else { 0 } {
                    S::prefetch_next(rows.wrapping_add(lane * x.a_row + ahead).cast());
                }
                for k in (0..run.min(whole - at)).step_by(P::STEPS) {
                    let factors = (factors_of(start + at + k), strides);
                    P::add_turned::<S, V>((rows.add(k), x.a_row), factors, sums);
                }
            }
        }
        for (&[row, start], sums) in starts.iter().zip(&mut sums) {
            let mut column = [S::Elem::ZERO; LANES];
            for k in start + whole..start + len {
                for (lane, element) in column[..S::LANES].iter_mut().enumerate() {
                    *element = P::element(*x.a.add((row + lane) * x.a_row + k));
                }
                add_step::<S, V>(S::load(column.as_ptr()), (factors_of(k), strides), 0, sums);
            }
            for (vector, sum) in sums.iter().enumerate() {
                let c = x.c.add((first + vector) * x.c_vector + row);
                S::store(c, if start == 0 { *sum } else { S::add(S::load(c), *sum) });
            }
        }
    }
}

/// Writes sums, or adds them to what is there.
///
/// # Safety
///
/// `c` can be written, and read unless this `is_first`.
#[inline(always)]
unsafe fn write_sums<T: Real, const N: usize, const B: usize>(
    c: *mut [[T; N]; B],
    mut sums: [[T; N]; B],
    is_first: bool,
) {
    // SAFETY: by the contract of this function.
    unsafe {
        if !is_first {
            let before = c.read_unaligned();
            for (sum, before) in sums.as_flattened_mut().iter_mut().zip(before.as_flattened()) {
                *sum = *before + *sum;
            }
        }
        c.write_unaligned(sums);
    }
}

/// Rows and steps that squares turn at a time.
const SIDE: usize = 4;

/// The sums of `Q` times four rows.
type SquareSums<T, const Q: usize> = [[T; SIDE]; Q];

/// `Q` times four rows whose steps are neighbours in memory, which squares turn to lanes; returns the number of rows.
#[inline(always)]
unsafe fn squares<S: Simd, P: StoredElement<S::Elem>, const Q: usize>(
    x: &Column<P::Stored, S::Elem>,
    i: usize,
    steps: Range<usize>,
) -> usize {
    let is_first = steps.start == 0;
    // SAFETY: the rows and steps lie inside the operands, and the rows inside the result.
    unsafe { write_sums(x.c.add(i).cast(), square_chains::<S, P, Q>(x, i, steps), is_first) };
    SIDE * Q
}

/// The chains of some steps, for [`squares`].
#[inline(always)]
unsafe fn square_chains<S: Simd, P: StoredElement<S::Elem>, const Q: usize>(
    x: &Column<P::Stored, S::Elem>,
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
                    S::prefetch(x.a.wrapping_add(row * x.a_row + k + AHEAD).cast());
                }
            }
            let mut factors = [S::Elem::ZERO; SIDE];
            for (s, factor) in factors.iter_mut().enumerate() {
                *factor = *x.x.offset((k + s) as isize * x.x_step);
            }
            for (q, sums) in sums.iter_mut().enumerate() {
                let square = P::columns::<Shortest<S>>(x.a.add((i + q * SIDE) * x.a_row + k), x.a_row);
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
                *sum = P::element(*x.a.add((i + row) * x.a_row + k)).fused(factor, *sum);
            }
        }
    }
    sums
}

/// The last rows, fewer than four; returns their number.
#[inline(always)]
pub(super) unsafe fn last_rows<T: Real, P: StoredElement<T>>(
    x: &Column<P::Stored, T>,
    i: usize,
    steps: Range<usize>,
) -> usize {
    // SAFETY: no more rows than are left.
    unsafe {
        match x.rows - i {
            1 => single_rows::<T, P, 1>(x, i, steps),
            2 => single_rows::<T, P, 2>(x, i, steps),
            _ => single_rows::<T, P, 3>(x, i, steps),
        }
    }
}

/// `R` rows, whose chains overlap; returns their number.
#[inline(always)]
unsafe fn single_rows<T: Real, P: StoredElement<T>, const R: usize>(
    x: &Column<P::Stored, T>,
    i: usize,
    steps: Range<usize>,
) -> usize {
    let is_first = steps.start == 0;
    // SAFETY: the rows and steps lie inside the operands, and the rows inside the result.
    unsafe {
        let mut sums = [T::ZERO; R];
        for k in steps {
            let factor = *x.x.offset(k as isize * x.x_step);
            for (row, sum) in sums.iter_mut().enumerate() {
                *sum = P::element(*x.a.add((i + row) * x.a_row + k * x.a_step)).fused(factor, *sum);
            }
        }
        let c = x.c.add(i).cast::<[T; R]>();
        if !is_first {
            let before = c.read_unaligned();
            sums = std::array::from_fn(|row| before[row] + sums[row]);
        }
        c.write_unaligned(sums);
    }
    R
}
