//! How products whose rows are lanes are divided between tasks: by rows, and by parts of long sums.

use std::ops::Range;

use super::block_depth;
use super::drive::split_depth;
use super::grid::{power_of_two, share};

/// Multiplications of a task at least.
const TASK: usize = 1 << 16;

/// Tasks at most, if each is large enough.
const TASKS: usize = 16;

/// Elements of a matrix from which on runs of memory outweigh what is added once more for each block.
pub(super) const LARGE: usize = if cfg!(test) { 1 << 14 } else { 1 << 18 };

/// Sums of all blocks that wait to be added at most.
const MOST_SUMS: usize = 1 << 22;

/// How the rows and steps of a product are divided between tasks.
#[derive(Debug)]
pub(super) struct PartTasks {
    pub(super) rows: usize,
    pub(super) k: usize,
    /// Tasks with a share of the rows each, in multiples of `unit`.
    pub(super) shares: usize,
    unit: usize,
    /// Steps of a part of the sums, and the number of parts, each with tasks of its own.
    pub(super) part: usize,
    pub(super) parts: usize,
}

impl PartTasks {
    /// The tasks of a product of `m` rows, `n` columns and `k` steps; no share of the rows is less than a unit.
    pub(super) fn new([m, n, k]: [usize; 3], unit: usize) -> PartTasks {
        let part = split_depth(m, n, k);
        let parts = k.div_ceil(part).max(1);
        let wanted = (m.saturating_mul(n).saturating_mul(k) / TASK).clamp(1, TASKS);
        // A power of two of them occupies as many threads evenly.
        let shares = power_of_two(wanted.div_ceil(parts).min(m / unit).max(1));
        PartTasks { rows: m, k, shares, unit, part, parts }
    }

    /// The tasks of `n` vectors of sums of `k` steps, of `m` rows that are neighbours in memory. Of a large matrix, a task has
    /// blocks of steps: all rows of a step lie next to each other, a share of them does not. Where no tasks run side by
    /// side, there is one for each part.
    pub(super) fn of_blocks([m, n, k]: [usize; 3], unit: usize, divides: bool) -> PartTasks {
        let tasks = PartTasks::new([m, n, k], unit);
        let part = block_depth(k);
        let parts = k.div_ceil(part);
        if !divides {
            return PartTasks { shares: 1, ..tasks };
        }
        let n_sums = m.saturating_mul(n).saturating_mul(parts);
        if tasks.parts > 1 || m.saturating_mul(k) < LARGE || n_sums > MOST_SUMS {
            return tasks;
        }
        // Where threads cannot have as many tasks each, these are smaller.
        let wanted = if parts.is_power_of_two() { tasks.shares } else { 2 * tasks.shares };
        let shares = wanted.div_ceil(parts).next_power_of_two().min(m / unit).max(1);
        PartTasks { part, parts, shares, ..tasks }
    }

    pub(super) fn n_tasks(&self) -> usize {
        self.shares * self.parts
    }

    /// The part of a task, its rows and its steps.
    pub(super) fn of(&self, task: usize) -> (usize, Range<usize>, Range<usize>) {
        let part = task / self.shares;
        let first = part * self.part;
        let rows = share(self.rows, self.unit, self.shares, task % self.shares);
        (part, rows, first..first.saturating_add(self.part).min(self.k))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_cover_rows_and_steps_once() {
        let shapes = [16, 31, 100, 128, 1000, 5000].into_iter().flat_map(|m| [1, 2, 3, 5, 10, 31].map(|n| [m, n]));
        for ([m, n], unit) in shapes.flat_map(|shape| [4, 8, 16, 32, 64, 256].map(|unit| (shape, unit))) {
            for (k, kind) in [1, 300, 2048, 100_000].into_iter().flat_map(|k| (0..3).map(move |kind| (k, kind))) {
                let tasks = match kind {
                    0 => PartTasks::new([m, n, k], unit),
                    _ => PartTasks::of_blocks([m, n, k], unit, kind == 1),
                };
                assert!(kind < 2 || tasks.shares == 1, "{tasks:?}");
                let mut covered = vec![0; tasks.parts];
                for task in 0..tasks.n_tasks() {
                    let (part, rows, steps) = tasks.of(task);
                    assert!(rows.len() >= unit.min(m) && !steps.is_empty(), "{tasks:?} {task}");
                    assert_eq!(steps.start, part * tasks.part, "{tasks:?} {task}");
                    covered[part] += rows.len() * steps.len();
                }
                let steps = |part: usize| k.min((part + 1) * tasks.part) - part * tasks.part;
                assert!((0..tasks.parts).all(|part| covered[part] == m * steps(part)), "{tasks:?}");
            }
        }
    }
}
