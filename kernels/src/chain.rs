//! Launches that run block by block.
//!
//! A softmax is several loop nests over the rows of an array: the largest element of each row, exponentials and their
//! sum, quotients. One after another, each moves the array through memory. Where a row of every nest needs nothing of
//! other rows, the nests are a *chain*: all of them run on a block of rows that a cache holds before any runs on the next
//! block. Source: the strip-mining of fused outer loops, as in Wolf and Lam, "A data locality optimizing algorithm" (1991).
//!
//! Guarantees that the nests of a chain may run on different blocks at once and in any order of blocks: wherever one
//! writes what another one reads or writes, both do so in bytes that belong to the same row. Each nest runs the items that
//! it would run alone, so no bit of a result changes.

use std::borrow::Cow;

use crate::program::Site;
use crate::reach::{self, Entries, Reach, overlap, row_counts};
use crate::schedule::{Nest, TASK_WORK};

/// Bytes of a block: a part of a second-level cache, which holds other things as well.
const BLOCK: u64 = 1 << 16;
/// Bytes of the rows of all nests from which on a chain pays: less than that stays in a second-level cache anyway.
const LEAST: u64 = 1 << 18;
/// Bytes of a row at most.
const MOST_ROW: u64 = 1 << 20;
/// Tasks that are enough for many threads.
const MANY_TASKS: u64 = 64;
/// Nests of a chain at most: every two of them are compared.
const MOST_NESTS: usize = 16;

/// A nest of a chain.
#[derive(Clone, Debug)]
pub(crate) struct ChainNest<'a> {
    pub(crate) nest: Cow<'a, Nest>,
    /// The first of the entries of its parameters.
    pub(crate) first: usize,
}

/// The blocks of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Blocks {
    /// The rows of all, and of a block.
    rows: u64,
    per_block: u64,
}

impl Blocks {
    /// The number of blocks.
    pub(crate) fn count(self) -> u64 {
        self.rows.div_ceil(self.per_block)
    }

    /// The items that a nest of the chain has in a block.
    pub(crate) fn items(self, nest: &Nest) -> u64 {
        nest.items / self.rows * self.per_block
    }
}

/// The blocks in which all nests may run, and with the last one are better run, in turn.
pub(crate) fn blocks(nests: &[ChainNest<'_>], entries: Entries<'_>) -> Option<Blocks> {
    let bytes = nests.iter().flat_map(|nest| entries.of(&nest.nest, nest.first)).map(|entry| entry.len as u64);
    let is_large = bytes.fold(0, u64::saturating_add) >= LEAST;
    if nests.len() > MOST_NESTS || !is_large || nests.iter().any(|nest| nest.nest.is_short()) {
        return None;
    }
    let mut candidates: Vec<u64> = nests.iter().flat_map(|nest| row_counts(&nest.nest)).collect();
    candidates.sort_unstable();
    candidates.dedup();
    candidates.into_iter().rev().find_map(|rows| blocks_of(nests, entries, rows))
}

fn blocks_of(nests: &[ChainNest<'_>], entries: Entries<'_>, rows: u64) -> Option<Blocks> {
    let reaches: Option<Vec<Vec<Reach>>> =
        nests.iter().map(|nest| reach::of_nest(&nest.nest, nest.first, entries, rows)).collect();
    let reaches = reaches?;
    let is_apart = |x: &Reach, y: &Reach| !(x.writes || y.writes) || x.keeps_to_rows_of(y, entries.donations);
    let are_apart =
        |later: &[Reach], before: &[Vec<Reach>]| later.iter().all(|x| before.iter().flatten().all(|y| is_apart(x, y)));
    if !(1..reaches.len()).all(|n| are_apart(&reaches[n], &reaches[..n])) {
        return None;
    }
    let (last, before) = reaches.split_last()?;
    let is_shared = |x: &&Reach| {
        let shares = |y: &Reach| x.touches(y, entries.donations) && (x.pitch != y.pitch || overlap(x.row, y.row));
        x.pitch.is_some() && before.iter().flatten().any(shares)
    };
    let shared = last.iter().filter(is_shared);
    let [shared, own] = [bytes_of_row(shared), bytes_of_row(last.iter())];
    let bytes = bytes_of_row(reaches.iter().flatten());
    let pays = 4 * shared >= own.max(1) && bytes <= MOST_ROW && bytes.saturating_mul(rows) >= LEAST;
    let work = nests.iter().map(|nest| nest.nest.work).fold(1, u64::saturating_add);
    let per_task = rows.saturating_mul(TASK_WORK) / work;
    let blocks = Blocks { rows, per_block: (BLOCK / bytes.max(1)).min(per_task).clamp(1, rows) };
    // Threads have as much to share as they had.
    let n_tasks = nests.iter().map(|nest| nest.nest.items.div_ceil(nest.nest.task)).max()?;
    (pays && blocks.count() >= n_tasks.clamp(2, MANY_TASKS)).then_some(blocks)
}

/// Whether a nest stores what one of the others, which run after it, reads.
pub(crate) fn is_read_by(nest: &ChainNest<'_>, later: &[ChainNest<'_>], entries: Entries<'_>) -> bool {
    let spans = |nest: &ChainNest<'_>, written: bool| -> Vec<(Site, [usize; 2])> {
        let params = nest.nest.kernel.params.iter().zip(entries.of(&nest.nest, nest.first));
        let some = params.filter(|(param, _)| param.written == written);
        some.map(|(_, entry)| (entry.site, [entry.offset, entry.offset + entry.len])).collect()
    };
    let read: Vec<_> = later.iter().flat_map(|nest| spans(nest, false)).collect();
    spans(nest, true).iter().any(|x| read.iter().any(|y| x.0 == y.0 && overlap(x.1, y.1)))
}

/// Bytes of a row, those that several nests reach once.
fn bytes_of_row<'r>(reaches: impl Iterator<Item = &'r Reach>) -> u64 {
    let mut rows: Vec<(usize, usize, [i64; 2])> = reaches
        .filter(|reach| reach.pitch.is_some_and(|pitch| pitch != 0))
        .map(|reach| match reach.site {
            Site::Input(n) => (0, n, reach.row),
            Site::Output(n) => (1, n, reach.row),
            Site::Arena => (2, 0, reach.row),
        })
        .collect();
    rows.sort_unstable();
    rows.dedup();
    rows.iter().map(|(.., [start, end])| (end - start) as u64).sum()
}
