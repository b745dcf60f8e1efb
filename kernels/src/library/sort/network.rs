//! A sorting network over many lines at once.
//!
//! The comparisons of a network do not depend on what is sorted, so that elements of many lines are compared by one
//! instruction. Source: Batcher's merge exchange, Algorithm M of Knuth, "The Art of Computer Programming", volume 3,
//! 5.2.2.

/// The lines of which the first elements are selected at once, few so that often none of them has one in a row.
pub(super) const SELECTED_LINES: usize = 16;

/// Rows of as many elements are inserted one by one into so few.
const INSERTED: usize = if cfg!(test) { 2 } else { 8 };

/// The first rows of a matrix with sorted columns, while its rows come block by block.
#[derive(Debug)]
pub(super) struct FirstRows {
    width: usize,
    kept: usize,
    /// The smallest elements so far of each column, in order, if rows are selected.
    first: Option<Vec<i64>>,
    /// Rows that wait, then room for those that come.
    waiting: Vec<i64>,
    n_waiting: usize,
}

impl FirstRows {
    /// The `kept` first rows, one at least, of `width` elements, of blocks of `block` rows at most. They are selected as
    /// blocks come, or there is one block.
    pub(super) fn new(width: usize, kept: usize, block: usize, selects: bool) -> FirstRows {
        let n_waiting = block + if selects { kept } else { 0 };
        let mut first = FirstRows {
            width,
            kept,
            first: selects.then(|| vec![0; kept * width]),
            waiting: vec![0; n_waiting * width],
            n_waiting: 0,
        };
        first.reset(width);
        first
    }

    /// Forgets all rows; those that come have `width` elements, as many as the first ones at most.
    #[inline(always)]
    pub(super) fn reset(&mut self, width: usize) {
        (self.width, self.n_waiting) = (width, 0);
        self.first.iter_mut().for_each(|first| first.fill(i64::MAX));
    }

    /// Adds rows that `make` writes. Elements are less than the largest number.
    #[inline(always)]
    pub(super) fn add(&mut self, n_rows: usize, make: impl FnOnce(&mut [i64])) {
        let (width, start) = (self.width, self.n_waiting);
        make(&mut self.waiting[start * width..(start + n_rows) * width]);
        self.n_waiting += n_rows;
        if self.first.is_none() {
            return;
        }
        self.n_waiting = start;
        for row in start..start + n_rows {
            let last = (self.kept - 1) * width;
            let last = self.first.as_deref().map_or(&[][..], |first| &first[last..last + width]);
            let row = row * width..(row + 1) * width;
            let is_less = |(x, last): (&i64, &i64)| i64::from(x < last);
            if self.waiting[row.clone()].iter().zip(last).map(is_less).fold(0, |any, one| any | one) == 0 {
                continue;
            }
            if let (true, Ok(x)) = (self.kept <= INSERTED, self.waiting[row.clone()].try_into()) {
                insert(self.first.as_deref_mut().unwrap_or_default(), x);
                continue;
            }
            self.waiting.copy_within(row, self.n_waiting * width);
            self.n_waiting += 1;
            if self.n_waiting == self.kept {
                self.merge();
            }
        }
    }

    /// Merges the rows that wait, as many as are kept, with the first ones.
    #[inline(always)]
    fn merge(&mut self) {
        let (width, waiting) = (self.width, &mut self.waiting[..self.kept * self.width]);
        let Some(first) = &mut self.first else { return };
        let first = &mut first[..self.kept * width];
        sort_columns(waiting, width);
        // Of two sorted sequences, the smaller elements of the one and the other turned round are the first ones.
        for (first, row) in first.chunks_exact_mut(width).zip(waiting.chunks_exact(width).rev()) {
            first.iter_mut().zip(row).for_each(|(x, &y)| *x ^= difference_if_greater(*x, y));
        }
        sort_columns(first, width);
        self.n_waiting = 0;
    }

    /// The first rows.
    #[inline(always)]
    pub(super) fn finish(&mut self) -> &[i64] {
        let n = self.kept * self.width;
        if self.first.is_some() {
            if self.n_waiting > 0 {
                self.waiting[self.n_waiting * self.width..n].fill(i64::MAX);
                self.merge();
            }
        } else {
            sort_columns(&mut self.waiting[..self.n_waiting * self.width], self.width);
        }
        &self.first.as_ref().unwrap_or(&self.waiting)[..n]
    }
}

/// Inserts a row into some with sorted columns, whose last elements go.
#[inline(always)]
fn insert(rows: &mut [i64], mut x: [i64; SELECTED_LINES]) {
    for row in rows.as_chunks_mut::<SELECTED_LINES>().0 {
        for (x, y) in x.iter_mut().zip(row) {
            let change = difference_if_greater(*y, *x);
            (*y, *x) = (*y ^ change, *x ^ change);
        }
    }
}

/// Sorts each column of a matrix whose rows have `width` elements.
///
/// # Panics
/// If the elements are no whole rows.
#[inline(always)]
fn sort_columns(matrix: &mut [i64], width: usize) {
    assert!(width > 0 && matrix.len().is_multiple_of(width), "rows of {width} elements");
    let n = matrix.len() / width;
    // Elements at a distance of `distance` whose position has a certain bit are compared: `run` neighbours at a time.
    let top = n.next_power_of_two() / 2;
    let mut run = top;
    while run > 0 && n > 1 {
        let (mut step, mut first, mut distance) = (top, 0, run);
        loop {
            for start in (first..n.saturating_sub(distance)).step_by(2 * run) {
                let len = run.min(n - distance - start) * width;
                let (low, high) = matrix.split_at_mut((start + distance) * width);
                exchange_if_greater(&mut low[start * width..start * width + len], &mut high[..len]);
            }
            if step == run {
                break;
            }
            (distance, first, step) = (step - run, run, step / 2);
        }
        run /= 2;
    }
}

/// The bits in which `x` differs from `y`, if it is greater. Elements that are selected and stored where they were read would
/// become masked stores, which are slow on some processors.
#[inline(always)]
fn difference_if_greater(x: i64, y: i64) -> i64 {
    if x > y { x ^ y } else { 0 }
}

/// Puts the smaller one of each pair into `low`.
#[inline(always)]
fn exchange_if_greater(low: &mut [i64], high: &mut [i64]) {
    for (low, high) in low.iter_mut().zip(high) {
        let change = difference_if_greater(*low, *high);
        (*low, *high) = (*low ^ change, *high ^ change);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::testing::Draw;

    /// The 0-1 principle: a network that sorts all sequences of two numbers sorts all sequences.
    #[test]
    fn all_sequences_of_two_numbers_are_sorted() {
        for n in 1..=14 {
            let mut columns: Vec<i64> = (0..n << n).map(|at| ((at % (1 << n)) >> (at >> n)) & 1).collect();
            sort_columns(&mut columns, 1 << n);
            for column in 0..1 << n {
                let sorted: Vec<i64> = columns[column..].iter().step_by(1 << n).copied().collect();
                assert!(sorted.is_sorted(), "{n} elements, the bits of {column}");
            }
        }
    }

    #[test]
    fn columns_of_any_width_are_sorted() {
        let mut draw = Draw::new(5);
        for n in [1, 2, 3, 31, 64, 100, 257] {
            for width in [1, 3, 16] {
                let matrix: Vec<i64> = (0..n * width).map(|_| draw.below(50) as i64).collect();
                let mut sorted = matrix.clone();
                sort_columns(&mut sorted, width);
                for column in 0..width {
                    let of = |matrix: &[i64]| matrix[column..].iter().step_by(width).copied().collect::<Vec<_>>();
                    let mut wanted = of(&matrix);
                    wanted.sort();
                    assert_eq!(of(&sorted), wanted, "column {column} of {n} by {width}");
                }
            }
        }
    }

    /// Rows that come block by block: so few that they are inserted, more, as many as a block, and all of them.
    #[test]
    fn first_rows_are_those_of_sorted_columns() {
        let mut draw = Draw::new(8);
        for n in [5, 23, 90] {
            for (width, kept) in [(16, 1), (16, 2), (16, 5), (3, 1), (7, 3), (16, 9), (40, 5)] {
                let kept = usize::min(kept, n);
                for block in [4, 10, n] {
                    let mut first = FirstRows::new(width, kept, block, true);
                    let mut all = FirstRows::new(width, kept, n, false);
                    // The second matrix is narrower, and meets nothing of the first one.
                    for width in [width, width - 1] {
                        let matrix: Vec<i64> = (0..n * width).map(|_| draw.below(200) as i64 - 100).collect();
                        first.reset(width);
                        for rows in matrix.chunks(block * width) {
                            first.add(rows.len() / width, |to| to.copy_from_slice(rows));
                        }
                        all.reset(width);
                        all.add(n, |to| to.copy_from_slice(&matrix));
                        let mut sorted = matrix;
                        sort_columns(&mut sorted, width);
                        for made in [&mut first, &mut all] {
                            assert_eq!(made.finish(), &sorted[..kept * width], "{kept} of {n} by {width} in {block}");
                        }
                    }
                }
            }
        }
    }
}
