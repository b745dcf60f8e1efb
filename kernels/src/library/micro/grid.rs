//! How a product is divided into tasks: by its shape alone.

use std::ops::Range;

use super::{Kernels, block_depth};

/// Most rows of a task, and of a product whose tasks differ in columns only.
pub(super) const ROWS: usize = 192;

/// Operations of a task at least.
const MIN_TASK: usize = 1 << 17;

/// Whether a product that is not cut along k is one task, however many threads there are.
pub(crate) fn is_one_task(m: usize, n: usize, k: usize) -> bool {
    m.saturating_mul(n).saturating_mul(k) <= MIN_TASK
}

/// Whether a matrix of such extents lies in memory: it has about as many elements as last-level caches hold.
pub(super) fn is_far(extents: [usize; 2]) -> bool {
    const FAR: usize = if cfg!(test) { 1 << 15 } else { 1 << 23 };
    extents[0].saturating_mul(extents[1]) >= FAR
}

/// Rows and columns of a task that copies what it multiplies, at most.
const MOST: usize = 512;

/// Rows of such a task, at most: a second-level cache holds their panels beside all else.
pub(super) fn rows_of_copies<T>(k: usize) -> usize {
    const BYTES: usize = 256 << 10;
    (BYTES / (block_depth(k) * size_of::<T>())).min(MOST)
}

/// Where tasks find column panels.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ColumnSource {
    /// In the operand, whose rows are neighbours in memory.
    Operand,
    /// In panels that were packed for all.
    Panels,
    /// Each packs them just before their use.
    Tasks,
}

/// How the tasks of a product divide its rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    /// Tasks below each other, and side by side.
    pub(super) down: usize,
    pub(super) across: usize,
    /// Rows and columns of which a task has a multiple, unless it is the last one.
    unit: [usize; 2],
}

impl Grid {
    /// Panels of a task stay in the second-level cache, there are tasks enough for many threads, and they have equal
    /// shares, as far as their units allow.
    ///
    /// Where nobody else works on the product, fewer tasks may do.
    pub(super) fn new<T>(kernels: &Kernels<T>, [m, n, k]: [usize; 3], source: ColumnSource, divides: bool) -> Grid {
        const TASKS: usize = 16;
        /// Operations that outweigh the start of a task.
        const TASK: usize = 1 << 19;
        /// Columns of a task at most, and those over which the packing of its rows weighs little.
        const COLUMNS: [usize; 2] = [512, 128];
        /// Tasks that are worth more than that packing.
        const FEW_TASKS: usize = 4;
        /// Rows of a task at least, where there are so many: of one that reads B in place, and of one that has panels.
        const LEAST_ROWS: [usize; 2] = [24, 96];
        let [height, _, least] = kernels.heights;
        if is_one_task(m, n, k) {
            return Grid { down: 1, across: 1, unit: [height, kernels.width] };
        }
        if source == ColumnSource::Tasks {
            return Grid::across(kernels, [m, n, k]);
        }
        if kernels.is_quick {
            return Grid::of_copies(kernels, [m, n, k], source, divides);
        }
        let work = m.saturating_mul(n).saturating_mul(k);
        let wanted = power_of_two((work / TASK).clamp(2, TASKS));
        let across = n.div_ceil(COLUMNS[0]);
        // Tasks of different rows pack nothing twice. A power of two of them occupies as many threads evenly.
        // Packed panels come from farther away than a B that a cache holds, and should serve more rows.
        let least_rows = if source == ColumnSource::Panels { LEAST_ROWS[1] } else { LEAST_ROWS[0] };
        let share = wanted.div_ceil(across).min(m / least_rows).max(1);
        let least_down = m.div_ceil(ROWS).next_multiple_of(if m > 4 * ROWS { 4 } else { 1 });
        let down = least_down.max(power_of_two(share));
        let most_across = (n / COLUMNS[1]).max((n / (2 * kernels.width)).min(FEW_TASKS)).max(1);
        let across = across.max(power_of_two(wanted.div_ceil(down).min(most_across)));
        Grid { down, across, unit: [least, kernels.width] }
    }

    /// Tasks that copy what they multiply. The larger they are the less each copies for its share of the product, so they
    /// are few. Squares copy least; short vectors copy rows with more effort than columns, so their tasks are wider.
    fn of_copies<T>(kernels: &Kernels<T>, [m, n, k]: [usize; 3], source: ColumnSource, divides: bool) -> Grid {
        /// Bytes of a right operand that the second-level cache of each core keeps from one product to the next.
        const SMALL: usize = 256 << 10;
        /// Rows of a task at least, where there are so many, and if B is small.
        const LEAST_ROWS: [usize; 2] = [24, 16];
        /// Column panels of a task at least, where there are so many.
        const LEAST_PANELS: usize = 2;
        /// Operations of one of a few tasks, and those of products that are worth more.
        const TASK: usize = 1 << 20;
        const MANY: [usize; 2] = [1 << 27, 1 << 30];
        let work = m.saturating_mul(n).saturating_mul(k);
        let few = power_of_two(work.div_ceil(TASK).clamp(2, 4));
        let wanted = MANY.into_iter().filter(|least| work >= *least).fold(few, |tasks, _| 2 * tasks);
        let wanted = if divides { wanted } else { 1 };
        let rows = rows_of_copies::<T>(k);
        let mut down = m.div_ceil(rows).next_multiple_of(if m > 4 * rows { 4 } else { 1 });
        let mut across = n.div_ceil(MOST);
        // Tasks that differ in rows alone leave rows with the thread that reads them next.
        let is_small = !kernels.is_short() && m <= ROWS && k.saturating_mul(n).saturating_mul(size_of::<T>()) <= SMALL;
        let least_rows = if is_small { LEAST_ROWS[1] } else { LEAST_ROWS[0] };
        // The copy of a row beside that of a column, for the vectors of a level.
        let effort = if kernels.is_short() { 2 } else { 1 };
        while down * across < wanted {
            let can_be_lower = m >= 2 * down * least_rows;
            let can_be_narrower = n >= 2 * across * LEAST_PANELS * kernels.width;
            if can_be_lower && (is_small || effort * m * across >= n * down || !can_be_narrower) {
                down *= 2;
            } else if can_be_narrower {
                across *= 2;
            } else {
                break;
            }
        }
        // Panels for all tasks are of either width.
        let is_packed = source == ColumnSource::Panels;
        let is_far = is_far([n, k]);
        let width = if is_packed { kernels.most_width() } else { kernels.product_width(m, n / across, is_far) };
        Grid { down, across, unit: [kernels.heights[2], width] }
    }

    /// Tasks that differ in columns alone, each of which packs its own.
    fn across<T>(kernels: &Kernels<T>, [m, n, k]: [usize; 3]) -> Grid {
        const TASKS: usize = 16;
        /// Operations that outweigh the start of a task, and its share of packing.
        const TASK: usize = 1 << 20;
        let width = kernels.width;
        let mut cols = 2048usize.next_multiple_of(width);
        let is_large = |cols: usize| {
            let work = m.saturating_mul(cols.min(n)).saturating_mul(k);
            let n_tasks = n.div_ceil(cols);
            n_tasks < TASKS && work > TASK || n_tasks < 2 && !is_one_task(m, cols.min(n), k)
        };
        while is_large(cols) && cols > 2 * width {
            cols = (cols / 2).next_multiple_of(width);
        }
        Grid { down: 1, across: n.div_ceil(cols), unit: [kernels.heights[0], width] }
    }

    /// The rows of the tasks at place `i` from above, of `m`.
    pub(super) fn rows(&self, m: usize, i: usize) -> Range<usize> {
        share(m, self.unit[0], self.down, i)
    }

    /// The columns of the tasks at place `j` from the left, of `n`.
    pub(super) fn cols(&self, n: usize, j: usize) -> Range<usize> {
        share(n, self.unit[1], self.across, j)
    }
}

/// The largest power of two that is no more than a positive number.
pub(super) fn power_of_two(n: usize) -> usize {
    1 << n.ilog2()
}

/// Share `index` of `n` equal ones of `extent` elements, in whole units; some are empty where there are few units.
pub(crate) fn share(extent: usize, unit: usize, n: usize, index: usize) -> Range<usize> {
    let units = extent.div_ceil(unit);
    let start = |index: usize| (units * index / n * unit).min(extent);
    start(index)..start(index + 1)
}

#[cfg(test)]
mod tests {
    use super::super::{Level, Real};
    use super::*;

    /// Tasks cover rows and columns once, begin at whole panels, and are no higher than a task may be.
    #[test]
    fn tasks_cover_a_product_once() {
        let extents = [1, 2, 11, 12, 13, 23, 24, 31, 33, 48, 95, 97, 191, 193, 512, 769, 1031, 6272];
        for level in Level::available() {
            let kernels = <f32 as Real>::kernels(level);
            for [m, n] in extents.iter().flat_map(|m| extents.map(|n| [*m, n])) {
                for (k, source) in [1, 40, 1000].into_iter().flat_map(|k| {
                    [ColumnSource::Operand, ColumnSource::Panels, ColumnSource::Tasks].map(|source| (k, source))
                }) {
                    if source == ColumnSource::Tasks && m > ROWS {
                        continue;
                    }
                    let grid = Grid::new(&kernels, [m, n, k], source, n % 2 == 0);
                    let all = |ranges: Vec<Range<usize>>, extent: usize, unit: usize| {
                        let mut end = 0;
                        for range in ranges {
                            assert!(
                                range.start == end && (end.is_multiple_of(unit) || end == extent),
                                "{grid:?} {m} {n}"
                            );
                            end = range.end;
                        }
                        assert_eq!(end, extent, "{grid:?} {m} {n} {k}");
                    };
                    let rows: Vec<_> = (0..grid.down).map(|i| grid.rows(m, i)).collect();
                    let highest = rows.iter().map(Range::len).max().unwrap_or(0);
                    let bytes = highest.saturating_sub(kernels.heights[0]) * block_depth(k) * size_of::<f32>();
                    let is_low =
                        if kernels.is_quick { bytes <= 256 << 10 } else { highest <= ROWS + kernels.heights[0] };
                    assert!(is_low || is_one_task(m, n, k), "{grid:?} {m} {n} {k}");
                    all(rows, m, kernels.heights[2]);
                    all((0..grid.across).map(|j| grid.cols(n, j)).collect(), n, kernels.width);
                }
            }
        }
    }

    /// Tasks have equal shares: the one with the most work has little more than the mean.
    #[test]
    fn tasks_have_equal_shares() {
        for level in Level::available() {
            let kernels = <f32 as Real>::kernels(level);
            for m in [48, 64, 96, 100, 128, 256, 512, 1024, 2048] {
                let grid = Grid::new(&kernels, [m, 512, 512], ColumnSource::Operand, true);
                let highest = (0..grid.down).map(|i| grid.rows(m, i).len()).max().unwrap_or(0);
                let widest = (0..grid.across).map(|j| grid.cols(512, j).len()).max().unwrap_or(0);
                assert!(
                    (grid.down * grid.across).is_multiple_of(2)
                        && highest * grid.down <= m + grid.down * kernels.heights[1]
                        && widest * grid.across <= 512 + grid.across * kernels.width,
                    "{level:?} {m}: {grid:?}"
                );
            }
        }
    }

    /// Tasks of a few rows by a small matrix differ in rows alone, so that each row stays with one thread.
    #[test]
    fn rows_stay_together_where_the_matrix_is_small() {
        for level in Level::available() {
            let kernels = <f32 as Real>::kernels(level);
            if !kernels.is_quick || kernels.is_short() {
                continue;
            }
            for (shape, expected) in [
                ([32, 512, 128], [2, 1]),
                ([32, 128, 512], [2, 1]),
                ([64, 256, 256], [4, 1]),
                ([31, 512, 128], [1, 2]),
                ([32, 512, 256], [1, 4]),
                ([256, 256, 256], [2, 2]),
            ] {
                let grid = Grid::new(&kernels, shape, ColumnSource::Operand, true);
                assert_eq!([grid.down, grid.across], expected, "{shape:?}");
            }
        }
    }

    /// Tasks that copy are wider than high, or nearly so, and no more than the product is worth; a product that is one of
    /// several is one task as long as caches hold its panels.
    #[test]
    fn tasks_that_copy_are_few_and_wide() {
        for level in Level::available() {
            let kernels = <f32 as Real>::kernels(level);
            if !kernels.is_quick {
                continue;
            }
            for (shape, n_tasks) in
                [([64; 3], 2), ([128; 3], 2), ([256; 3], 4), ([512; 3], 8), ([1024; 3], 16), ([64, 512, 512], 4)]
            {
                let [m, n, _] = shape;
                for source in [ColumnSource::Operand, ColumnSource::Panels] {
                    let grid = Grid::new(&kernels, shape, source, true);
                    assert_eq!(grid.down * grid.across, n_tasks, "{level:?} {shape:?}: {grid:?}");
                    assert!(m / grid.down <= n / grid.across, "{level:?} {shape:?}: {grid:?}");
                    let alone = Grid::new(&kernels, shape, source, false);
                    let most = m.div_ceil(256) * n.div_ceil(512);
                    assert_eq!(alone.down * alone.across, most, "{level:?} {shape:?}: {alone:?}");
                }
            }
        }
    }

    /// Products of few rows and columns are divided, too, and evenly.
    #[test]
    fn few_rows_and_columns_are_several_tasks() {
        for level in Level::available() {
            let kernels = <f32 as Real>::kernels(level);
            for (m, n) in [1, 5, 8, 16, 23, 47].into_iter().flat_map(|m| [64, 128, 255, 384, 500].map(|n| (m, n))) {
                let shape = [m, n, (1 << 22) / (m * n)];
                let grid = Grid::new(&kernels, shape, ColumnSource::Operand, true);
                let least = (n / (2 * kernels.width)).clamp(1, 4);
                let n_tasks = grid.down * grid.across;
                assert!(n_tasks >= power_of_two(least) && n_tasks.is_power_of_two(), "{level:?} {shape:?}: {grid:?}");
            }
        }
    }

    /// Row panels cover all rows once, none is empty or higher than the highest tile, and only one is low.
    #[test]
    fn row_panels_cover_a_block_once() {
        fn check<T: Real>(level: Level) {
            let kernels = T::kernels(level);
            let [height, middle, _] = kernels.heights;
            for rows in 0..200 {
                let panels: Vec<_> = kernels.row_panels(0..rows).collect();
                assert_eq!(panels.len(), rows.div_ceil(height), "{level:?} {rows}");
                let mut end = 0;
                for panel in &panels {
                    assert!(panel.start == end && (1..=height).contains(&panel.len()), "{level:?} {rows} {panels:?}");
                    end = panel.end;
                }
                assert_eq!(end, rows, "{level:?} {panels:?}");
                let n_low = panels.iter().filter(|panel| panel.len() < middle).count();
                assert!(n_low <= 1, "{level:?} {rows} {panels:?}");
            }
        }
        for level in Level::available() {
            check::<f32>(level);
            check::<f64>(level);
        }
    }
}
