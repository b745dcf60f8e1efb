//! How rows are cut into tiles of a few heights, so that all tiles keep the processor busy.

/// Rows below which [`NextHeight`] has a table; of more rows, the highest tile comes first.
const TABLE: usize = 64;

/// Chains that keep a processor busy: a fused multiply-add takes four cycles, and two are begun in each.
const CHAINS: usize = 8;

/// For each number of rows, the height of the next tile of a line: of the ways to cut the rows into tiles of these
/// heights and of `NV` vectors, the one that takes the fewest cycles, and then the one that computes the fewest rows for
/// nothing. A tile with fewer than [`CHAINS`] chains takes as long as one that has so many.
pub(super) struct NextHeight<const M0: usize, const M1: usize, const M2: usize, const M3: usize, const NV: usize>;

impl<const M0: usize, const M1: usize, const M2: usize, const M3: usize, const NV: usize>
    NextHeight<M0, M1, M2, M3, NV>
{
    const OF_ROWS: &[usize; TABLE] = &next_heights([M0, M1, M2, M3], NV);

    /// The height of the next tile of `rows` rows.
    #[inline(always)]
    pub(super) fn of(rows: usize) -> usize {
        Self::OF_ROWS.get(rows).copied().unwrap_or(M0)
    }
}

/// The table of [`NextHeight`]; `heights` fall.
const fn next_heights<const N: usize>(heights: [usize; N], vectors: usize) -> [usize; TABLE] {
    let (mut next, mut cost) = ([heights[0]; TABLE], [[0; 2]; TABLE]);
    let mut rows = 1;
    while rows < TABLE {
        let (mut i, mut best) = (0, [usize::MAX; 2]);
        while i < N {
            let height = heights[i];
            let chains = height * vectors;
            let [cycles, computed] = cost[rows.saturating_sub(height)];
            let new = [cycles + if chains > CHAINS { chains } else { CHAINS }, computed + height];
            if new[0] < best[0] || new[0] == best[0] && new[1] < best[1] {
                (best, next[rows]) = (new, height);
            }
            i += 1;
        }
        cost[rows] = best;
        rows += 1;
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The heights of the tiles of some rows, by a table.
    fn tiles(table: &[usize; TABLE], mut rows: usize) -> Vec<usize> {
        let mut heights = vec![];
        while rows > 0 {
            heights.push(table[rows]);
            rows = rows.saturating_sub(table[rows]);
        }
        heights
    }

    /// Rows are cut so that tiles keep the processor busy, and no other cut takes fewer cycles.
    #[test]
    fn rows_are_cut_into_busy_tiles() {
        let avx2 = next_heights([6, 5, 4, 3], 2);
        let expected: [(usize, &[usize]); 8] = [
            (1, &[3]),
            (5, &[5]),
            (7, &[4, 3]),
            (8, &[4, 4]),
            (9, &[5, 4]),
            (14, &[6, 4, 4]),
            (16, &[6, 6, 4]),
            (48, &[6; 8]),
        ];
        for (rows, heights) in expected {
            assert_eq!(tiles(&avx2, rows), heights, "{rows} rows");
        }
        assert_eq!(tiles(&next_heights([12, 8, 6, 4], 1), 16), [8, 8]);
        let avx512 = next_heights([14, 8, 6, 4], 2);
        let expected: [(usize, &[usize]); 6] =
            [(7, &[8]), (10, &[6, 4]), (14, &[14]), (16, &[8, 8]), (28, &[14, 14]), (32, &[14, 14, 4])];
        for (rows, heights) in expected {
            assert_eq!(tiles(&avx512, rows), heights, "{rows} rows");
        }
        let kinds = [
            ([6, 5, 4, 3], 2),
            ([12, 8, 6, 4], 1),
            ([14, 8, 6, 4], 2),
            ([16, 14, 8, 4], 1),
            ([8, 6, 4, 2], 3),
            ([4, 3, 2, 1], 2),
        ];
        for (heights, vectors) in kinds {
            let table = next_heights(heights, vectors);
            let cycles = |height: usize| CHAINS.max(height * vectors);
            let cost = |rows| tiles(&table, rows).into_iter().map(cycles).sum::<usize>();
            for rows in 1..TABLE {
                let best = heights.into_iter().map(|height| cycles(height) + cost(rows.saturating_sub(height))).min();
                assert_eq!(Some(cost(rows)), best, "{rows} rows in tiles of {heights:?}");
            }
        }
    }
}
