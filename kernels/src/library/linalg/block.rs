//! Blocks of triangular matrices that fit a first-level cache, several rows or right sides in lanes.
//!
//! Guarantees the operations of the textbook for every element: the terms of the columns before are subtracted one by
//! one, products rounded before, and the rest is divided by the pivot. Lanes do not meet, so that an element does not
//! depend on those beside it.

use super::super::number::Float;

/// Rows and columns of a block.
pub(super) const BLOCK: usize = 64;

/// Elements of a block.
pub(super) const BLOCK_LEN: usize = BLOCK * BLOCK;

/// Columns that are computed together, each lane in registers.
const STEP: usize = 4;

/// Some columns of a block in registers.
type LaneColumns<T, const W: usize> = [[T; W]; STEP];

/// The part on the diagonal of some columns: the elements of each column, of which those before the pivot have no
/// meaning.
type Corner<T> = [[T; STEP]; STEP];

/// Rows and columns that a block of `len` takes: whole vectors of lanes.
fn padded(len: usize) -> usize {
    len.next_multiple_of(16)
}

/// Writes a block of `len` columns by `write`, which gets its first element, column by column; its lower triangle
/// counts. With `reversed`, the last row and column become the first. An identity pads the block.
#[inline(always)]
pub(super) fn write_block<T: Float>(columns: &mut [T], len: usize, reversed: bool, write: impl FnOnce(&mut [T])) {
    let columns = &mut columns[..padded(len) * BLOCK];
    if len < padded(len) {
        columns.fill(T::default());
    }
    let corner = if reversed { (padded(len) - len) * BLOCK + BLOCK - len } else { 0 };
    write(&mut columns[corner..]);
    if reversed {
        columns.reverse();
    }
    (len..padded(len)).for_each(|at| columns[at * (BLOCK + 1)] = T::ONE);
}

/// Factors the lower triangle of a block in place; above the diagonal, any numbers go in and come out.
#[inline(always)]
pub(super) fn factor<T: Float, const W: usize>(columns: &mut [T], len: usize) {
    for first in (0..len).step_by(STEP) {
        let mut corner = Corner::default();
        let top = first / W * W;
        for row in (top..len).step_by(W) {
            let mut lanes = eliminate::<T, W, BLOCK>(columns, columns, row, first);
            if row == top {
                corner = pivot(&mut lanes, first - top);
            } else {
                divide(&mut lanes, &corner);
            }
            for (column, lanes) in columns.chunks_exact_mut(BLOCK).skip(first).zip(&lanes) {
                column[row..row + W].copy_from_slice(lanes);
            }
        }
    }
}

/// Solves L X = B in place for the lower triangle L of a block and the first `len` rows of `x`, which has rows of `W`.
#[inline(always)]
pub(super) fn substitute<T: Float, const W: usize>(columns: &[T], len: usize, x: &mut [T]) {
    for first in (0..len).step_by(STEP) {
        let mut lanes = eliminate::<T, W, W>(columns, x, 0, first);
        let corner = std::array::from_fn(|c| std::array::from_fn(|r| columns[(first + c) * BLOCK + first + r]));
        divide(&mut lanes, &corner);
        x[first * W..][..STEP * W].copy_from_slice(lanes.as_flattened());
    }
}

/// Solves L x = b for the lower triangle L of a block, its first `len` unknowns.
#[inline(always)]
pub(super) fn substitute_one<T: Float>(columns: &[T], len: usize, mut b: [T; BLOCK]) -> [T; BLOCK] {
    let mut x = [T::default(); BLOCK];
    for (k, column) in columns.chunks_exact(BLOCK).take(len).enumerate() {
        x[k] = b[k] / column[k];
        // Those above are not needed any more, and lines of one length are quicker.
        b[..padded(len)].iter_mut().zip(column).for_each(|(b, coefficient)| *b = *b - *coefficient * x[k]);
    }
    x
}

/// The `W` elements from `at` on of some rows of `x`, without the terms of the rows before.
#[inline(always)]
fn eliminate<T: Float, const W: usize, const PITCH: usize>(
    columns: &[T],
    x: &[T],
    at: usize,
    first: usize,
) -> LaneColumns<T, W> {
    let mut lanes: LaneColumns<T, W> = [[T::default(); W]; STEP];
    for (lanes, row) in lanes.iter_mut().zip(x.chunks_exact(PITCH).skip(first)) {
        lanes.copy_from_slice(&row[at..at + W]);
    }
    for (column, row) in columns.chunks_exact(BLOCK).zip(x.chunks_exact(PITCH)).take(first) {
        let (coefficients, row) = (&column[first..first + STEP], &row[at..at + W]);
        for (lanes, coefficient) in lanes.iter_mut().zip(coefficients) {
            lanes.iter_mut().zip(row).for_each(|(lane, x)| *lane = *lane - *coefficient * *x);
        }
    }
    lanes
}

/// Computes the columns whose pivots are in the lanes from `at` on, and returns their corner.
#[inline(always)]
fn pivot<T: Float, const W: usize>(lanes: &mut LaneColumns<T, W>, at: usize) -> Corner<T> {
    let mut corner = Corner::default();
    for c in 0..STEP {
        let pivot = lanes[c][at + c];
        let root = if pivot > T::default() { pivot.sqrt() } else { T::NAN };
        lanes[c].iter_mut().for_each(|lane| *lane = *lane / root);
        lanes[c][at + c] = root;
        corner[c].copy_from_slice(&lanes[c][at..at + STEP]);
        subtract(lanes, c, &corner[c]);
    }
    corner
}

/// Computes columns below or beside their corner.
#[inline(always)]
fn divide<T: Float, const W: usize>(lanes: &mut LaneColumns<T, W>, corner: &Corner<T>) {
    for (c, column) in corner.iter().enumerate() {
        lanes[c].iter_mut().for_each(|lane| *lane = *lane / column[c]);
        subtract(lanes, c, column);
    }
}

/// Subtracts the terms of column `c` from those after it.
#[inline(always)]
fn subtract<T: Float, const W: usize>(lanes: &mut LaneColumns<T, W>, c: usize, column: &[T; STEP]) {
    let solved = lanes[c];
    for (lanes, coefficient) in lanes.iter_mut().zip(column).skip(c + 1) {
        lanes.iter_mut().zip(&solved).for_each(|(lane, x)| *lane = *lane - *coefficient * *x);
    }
}

/// Copies a matrix of `rows` and `cols`, transposed; the pitches are the elements from one row to the next.
#[inline(always)]
pub(super) fn transpose<T: Float>(
    [from_pitch, to_pitch]: [usize; 2],
    [rows, cols]: [usize; 2],
    from: &[T],
    to: &mut [T],
) {
    /// Rows and columns that are turned in registers.
    const TILE: usize = 4;
    for row in (0..rows).step_by(TILE) {
        for col in (0..cols).step_by(TILE) {
            let (n_rows, n_cols) = (TILE.min(rows - row), TILE.min(cols - col));
            if (n_rows, n_cols) != (TILE, TILE) {
                for (r, c) in (0..n_rows).flat_map(|r| (0..n_cols).map(move |c| (row + r, col + c))) {
                    to[c * to_pitch + r] = from[r * from_pitch + c];
                }
                continue;
            }
            let lines: [[T; TILE]; TILE] = std::array::from_fn(|r| {
                let line = &from[(row + r) * from_pitch + col..][..TILE];
                std::array::from_fn(|c| line[c])
            });
            for c in 0..TILE {
                let turned: [T; TILE] = std::array::from_fn(|r| lines[r][c]);
                to[(col + c) * to_pitch + row..][..TILE].copy_from_slice(&turned);
            }
        }
    }
}
