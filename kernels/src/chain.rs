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
use std::ops::Range;

use crate::ir::{Affine, Inst, operation};
use crate::program::{Entry, Site};
use crate::schedule::{Nest, Source, TASK_WORK, Traversal};

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

/// How a nest reaches a parameter, in bytes from the start of its buffer.
#[derive(Clone, Copy, Debug)]
struct Reach {
    site: Site,
    writes: bool,
    /// From the first to the end of the last, in the first row and in all rows.
    row: [i64; 2],
    all: [i64; 2],
    /// The distance of rows, if they are at equal ones.
    pitch: Option<i64>,
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

/// The entries of a program that is being made.
#[derive(Clone, Copy)]
pub(crate) struct Entries<'e> {
    pub(crate) all: &'e [Entry],
    /// The pairs of an input and an output that may be one buffer.
    pub(crate) donations: &'e [(usize, usize)],
    /// Where constants begin in the scratch memory, which nothing writes.
    pub(crate) constants: usize,
}

/// The blocks in which all nests may run, and with the last one are better run, in turn.
pub(crate) fn blocks(nests: &[ChainNest<'_>], entries: Entries<'_>) -> Option<Blocks> {
    let bytes = nests.iter().flat_map(|nest| entries.of(nest)).map(|entry| entry.len as u64);
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
    let reaches: Option<Vec<Vec<Reach>>> = nests.iter().map(|nest| reaches(nest, entries, rows)).collect();
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
        let params = nest.nest.kernel.params.iter().zip(entries.of(nest));
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

impl Entries<'_> {
    fn of(&self, nest: &ChainNest<'_>) -> &[Entry] {
        &self.all[nest.first..nest.first + nest.nest.sources.len()]
    }
}

/// The numbers of rows that the outer loops of a nest have; none if it has one loop.
fn row_counts(nest: &Nest) -> Vec<u64> {
    let outer = nest.kernel.axes.iter().take(n_outer(nest)).map(|axis| axis.extent as u64);
    let counts = outer.scan(1_u64, |n, extent| {
        *n = n.saturating_mul(extent);
        Some(*n)
    });
    counts.filter(|&n| n > 1).collect()
}

/// The axes of which a grid item is a point.
fn n_outer(nest: &Nest) -> usize {
    let kept = nest.kernel.axes.iter().filter(|axis| !axis.reduced).count();
    match nest.traversal {
        Traversal::Rows => kept,
        Traversal::Columns { .. } => kept - 1,
        Traversal::Flat | Traversal::Tile => 0,
    }
}

/// The distance of rows of a position, and its range in the first row and in all, in elements.
struct RowRange {
    pitch: Option<i64>,
    row: [i64; 2],
    all: [i64; 2],
}

/// How a nest reaches its parameters, if its items are so many rows.
fn reaches(nest: &ChainNest<'_>, entries: Entries<'_>, rows: u64) -> Option<Vec<Reach>> {
    let (first, nest) = (nest.first, &nest.nest);
    let kernel = &nest.kernel;
    let n_outer = match nest.traversal {
        Traversal::Flat if nest.items.is_multiple_of(rows) => 0,
        Traversal::Rows | Traversal::Columns { .. } => {
            let counts = row_counts(nest);
            let axes = kernel.axes.iter().take(n_outer(nest)).filter(|axis| axis.extent > 1);
            debug_assert_eq!(axes.count(), counts.len(), "canonical kernels have no axes of one point");
            counts.iter().position(|&n| n == rows)? + 1
        }
        Traversal::Flat | Traversal::Tile => return None,
    };
    let range = |at: &Affine| match nest.traversal {
        Traversal::Flat => flat_range(at, nest.items as i64, rows as i64),
        Traversal::Rows | Traversal::Columns { .. } | Traversal::Tile => nested_range(nest, at, n_outer),
    };
    let mut found = vec![];
    let mut add = |param: usize, writes: bool, range: RowRange| {
        let entry = entries.all[first + param];
        let size = kernel.params[param].dtype.size() as i64;
        let bytes = |[from, to]: [i64; 2]| [from, to + 1].map(|at| entry.offset as i64 + at * size);
        let pitch = range.pitch.map(|pitch| pitch * size);
        match nest.sources[param] {
            Source::Scratch(at) if at < entries.constants => return None,
            Source::Scratch(_) => {}
            Source::Param(_) => {
                found.push(Reach { site: entry.site, writes, row: bytes(range.row), all: bytes(range.all), pitch })
            }
        }
        Some(())
    };
    for inst in &kernel.insts {
        match inst {
            Inst::Load(param, at) => add(param.index(), false, range(at))?,
            // A position that is computed may be any.
            Inst::LoadAt(param, _) => {
                let all = [0, kernel.params[param.index()].len as i64 - 1];
                add(param.index(), false, RowRange { pitch: None, row: all, all })?;
            }
            Inst::Const(_) | Inst::Index(_) | Inst::Reduce(..) | operation!() => {}
        }
    }
    for store in &kernel.stores {
        add(store.param.index(), true, range(&store.at))?;
    }
    Some(found)
}

/// The range of a position over one axis of `n` points, which are rows of equal length.
fn flat_range(at: &Affine, n: i64, rows: i64) -> RowRange {
    let (stride, len) = (at.stride(0), n / rows);
    let range = |n: i64| [at.offset + (stride * (n - 1)).min(0), at.offset + (stride * (n - 1)).max(0)];
    RowRange { pitch: Some(stride * len), row: range(len), all: range(n) }
}

/// The range of a position over axes of which the first ones count rows.
fn nested_range(nest: &Nest, at: &Affine, n_outer: usize) -> RowRange {
    let extent = |axis: usize| nest.kernel.axes[axis].extent as i64;
    let over = |axes: Range<usize>| {
        let ends = axes.map(|axis| at.stride(axis) * (extent(axis) - 1));
        ends.fold([at.offset; 2], |[low, high], end| [low + end.min(0), high + end.max(0)])
    };
    let step = at.stride(n_outer - 1);
    let mut expected = step;
    let is_even = (0..n_outer).rev().all(|axis| {
        let is_so = at.stride(axis) == expected;
        expected = expected.saturating_mul(extent(axis));
        is_so
    });
    let n_axes = nest.kernel.axes.len();
    RowRange { pitch: is_even.then_some(step), row: over(n_outer..n_axes), all: over(0..n_axes) }
}

fn overlap<T: PartialOrd>(one: [T; 2], other: [T; 2]) -> bool {
    one[0] < other[1] && other[0] < one[1]
}

impl Reach {
    /// Whether both may reach one byte.
    fn touches(&self, other: &Reach, donations: &[(usize, usize)]) -> bool {
        let is_one_buffer = match (self.site, other.site) {
            (Site::Input(input), Site::Output(output)) | (Site::Output(output), Site::Input(input)) => {
                donations.binary_search(&(input, output)).is_ok()
            }
            (one, another) => one == another,
        };
        is_one_buffer && overlap(self.all, other.all)
    }

    /// Whether no row of one reaches a byte that another row of the other one reaches.
    fn keeps_to_rows_of(&self, other: &Reach, donations: &[(usize, usize)]) -> bool {
        let span = self.row[1].max(other.row[1]) - self.row[0].min(other.row[0]);
        let is_within = |pitch: i64| self.pitch == other.pitch && pitch >= span;
        !self.touches(other, donations) || self.pitch.is_some_and(is_within)
    }
}
