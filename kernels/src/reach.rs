//! How launches reach memory, row by row: what chains and regions are decided by.
//!
//! A launch that computes row by row may run on some of its rows before another launch has run on others, if wherever one
//! of them writes what the other one reads or writes, both do so in bytes that belong to the same row.

use std::ops::Range;

use crate::ir::{Affine, Inst, operation};
use crate::library::{Library, RowPart};
use crate::program::{Entry, Site};
use crate::schedule::{Nest, Source, Traversal};

/// How a launch reaches an operand, in bytes from the start of its buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reach {
    pub(crate) site: Site,
    pub(crate) writes: bool,
    /// From the first to the end of the last, in the first row and in all rows.
    pub(crate) row: [i64; 2],
    pub(crate) all: [i64; 2],
    /// The distance of rows, if they are at equal ones.
    pub(crate) pitch: Option<i64>,
}

/// The entries of a program that is being made.
#[derive(Clone, Copy)]
pub(crate) struct Entries<'e> {
    pub(crate) all: &'e [Entry],
    /// The pairs of an input and an output that may be one buffer, sorted, and the same by output.
    pub(crate) donations: &'e [(usize, usize)],
    pub(crate) by_output: &'e [(usize, usize)],
    /// Where constants begin in the scratch memory, which nothing writes.
    pub(crate) constants: usize,
}

impl<'e> Entries<'e> {
    /// Those of a nest's parameters, of which it has the first.
    pub(crate) fn of(self, nest: &Nest, first: usize) -> &'e [Entry] {
        &self.all[first..first + nest.sources.len()]
    }

    /// A site, and those that may be the same buffer.
    pub(crate) fn same_buffers(self, site: Site) -> impl Iterator<Item = Site> {
        let (pairs, n) = match site {
            Site::Input(n) => (self.donations, n),
            Site::Output(n) => (self.by_output, n),
            Site::Arena => (&[][..], 0),
        };
        let own = &pairs[pairs.partition_point(|&(from, _)| from < n)..pairs.partition_point(|&(from, _)| from <= n)];
        let other = move |&(_, to): &(usize, usize)| match site {
            Site::Input(_) => Site::Output(to),
            Site::Output(_) | Site::Arena => Site::Input(to),
        };
        [site].into_iter().chain(own.iter().map(other))
    }
}

/// The numbers of rows that the outer loops of a nest have; none if it has one loop.
pub(crate) fn row_counts(nest: &Nest) -> Vec<u64> {
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
        Traversal::Columns { .. } | Traversal::Tile => kept - 1,
        Traversal::Flat => 0,
    }
}

/// The distance of rows of a position, and its range in the first row and in all, in elements.
struct RowRange {
    pitch: Option<i64>,
    row: [i64; 2],
    all: [i64; 2],
}

/// How a nest reaches its parameters, of which it has the first entry, if its items are so many rows.
pub(crate) fn of_nest(nest: &Nest, first: usize, entries: Entries<'_>, rows: u64) -> Option<Vec<Reach>> {
    let kernel = &nest.kernel;
    let n_outer = match nest.traversal {
        Traversal::Flat if nest.items.is_multiple_of(rows) => 0,
        Traversal::Rows | Traversal::Columns { .. } | Traversal::Tile => {
            let counts = row_counts(nest);
            let axes = kernel.axes.iter().take(n_outer(nest)).filter(|axis| axis.extent > 1);
            debug_assert_eq!(axes.count(), counts.len(), "canonical kernels have no axes of one point");
            counts.iter().position(|&n| n == rows)? + 1
        }
        Traversal::Flat => return None,
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

pub(crate) fn overlap<T: PartialOrd>(one: [T; 2], other: [T; 2]) -> bool {
    one[0] < other[1] && other[0] < one[1]
}

/// How a library kernel reaches its operands, whose entries these are, if it computes so many rows one by one.
pub(crate) fn of_library(library: &Library, entries: &[Entry], rows: usize) -> Option<Vec<Reach>> {
    let parts = [0..1, 1..2, 0..rows].map(|rows| library.of_rows(rows));
    let [Some(first), Some(second), Some(all)] = parts else { return None };
    let bytes = |range: &Range<usize>| [range.start as i64, range.end as i64];
    let operands = |part: &RowPart| part.inputs().iter().chain([&part.output()]).map(bytes).collect();
    let [first, second, all]: [Vec<[i64; 2]>; 3] = [&first, &second, &all].map(operands);
    let n_inputs = first.len() - 1;
    let reach = |operand: usize| {
        let Entry { site, offset, .. } = entries[operand];
        let bytes = |[from, to]: [i64; 2]| [from, to].map(|at| at + offset as i64);
        let pitch = Some(second[operand][0] - first[operand][0]);
        Reach { site, writes: operand == n_inputs, row: bytes(first[operand]), all: bytes(all[operand]), pitch }
    };
    Some((0..=n_inputs).map(reach).collect())
}

/// How a launch that keeps to no rows reaches its operands.
pub(crate) fn of_whole(entries: &[Entry], is_written: impl Fn(usize) -> bool) -> impl Iterator<Item = Reach> {
    entries.iter().enumerate().map(move |(operand, entry)| {
        let all = [entry.offset as i64, (entry.offset + entry.len) as i64];
        Reach { site: entry.site, writes: is_written(operand), row: all, all, pitch: None }
    })
}

impl Reach {
    /// Whether both may reach one byte.
    pub(crate) fn touches(&self, other: &Reach, donations: &[(usize, usize)]) -> bool {
        let is_one_buffer = match (self.site, other.site) {
            (Site::Input(input), Site::Output(output)) | (Site::Output(output), Site::Input(input)) => {
                donations.binary_search(&(input, output)).is_ok()
            }
            (one, another) => one == another,
        };
        is_one_buffer && overlap(self.all, other.all)
    }

    /// Whether no row of one reaches a byte that another row of the other one reaches.
    pub(crate) fn keeps_to_rows_of(&self, other: &Reach, donations: &[(usize, usize)]) -> bool {
        let span = self.row[1].max(other.row[1]) - self.row[0].min(other.row[0]);
        let is_within = |pitch: i64| self.pitch == other.pitch && pitch >= span;
        !self.touches(other, donations) || self.pitch.is_some_and(is_within)
    }
}
