//! A sorting network over many lines at once.
//!
//! The comparisons of a network do not depend on what is sorted, so that elements of many lines are compared by one
//! instruction. Source: Batcher's merge exchange, Algorithm M of Knuth, "The Art of Computer Programming", volume 3,
//! 5.2.2.

/// Sorts each column of a matrix whose rows have `width` elements.
///
/// # Panics
/// If the elements are no whole rows.
#[inline(always)]
pub(super) fn sort_columns(matrix: &mut [i64], width: usize) {
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

/// Puts the smaller one of each pair into `low`.
#[inline(always)]
fn exchange_if_greater(low: &mut [i64], high: &mut [i64]) {
    for (low, high) in low.iter_mut().zip(high) {
        // Selected elements would become masked stores, which are slow on some processors.
        let change = if *low > *high { *low ^ *high } else { 0 };
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
}
