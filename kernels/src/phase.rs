//! The phases of a call: launches between two meetings of its threads.

use std::ops::Range;
use std::sync::Arc;

use crate::cpu::Function;
use crate::library::RowPart;

/// Parts for two threads, and for more: the fewer there are, the more rows share each read of a matrix.
const PARTS: [usize; 2] = [2, 4];

/// Rows from which on more parts than two are worth it.
const FULL_ROWS: usize = 12;

/// Launches that run before the threads of a call meet.
#[derive(Debug)]
pub(crate) enum Phase {
    /// A launch, by its number.
    Launch(usize),
    /// Launches of one task each that may run at once.
    Apart(Vec<OneTask>),
    /// Launches on rows.
    Region(Region),
}

/// A launch of a function that one thread runs.
#[derive(Debug)]
pub(crate) struct OneTask {
    /// Its number.
    pub(crate) launch: usize,
    /// Its first entry.
    pub(crate) first: usize,
    pub(crate) function: Arc<Function>,
    pub(crate) items: u64,
}

/// Launches that run one after another on each part of their rows.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) links: Vec<RegionLink>,
    /// The parts for two threads, and for more.
    cuts: [RowCut; PARTS.len()],
}

/// A launch of a region.
#[derive(Debug)]
pub(crate) struct RegionLink {
    /// Its number.
    pub(crate) launch: usize,
    /// Its first entry and how many it has.
    pub(crate) first: usize,
    pub(crate) count: usize,
    pub(crate) work: LinkWork,
}

/// The work of a launch of a region.
#[derive(Debug)]
pub(crate) enum LinkWork {
    /// Items of a function, of which each row has so many.
    Code { function: Arc<Function>, items_of_row: u64 },
    /// The library kernel of each part of each cut, and the epilogue that runs on blocks of the results.
    Library { parts: [Vec<RowPart>; PARTS.len()], epilogue: Option<Arc<Function>> },
}

/// Rows in parts of equal length, except for the last one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowCut {
    rows: usize,
    len: usize,
}

impl Phase {
    /// The numbers of its launches.
    pub(crate) fn launches(&self) -> Vec<usize> {
        match self {
            Phase::Launch(launch) => vec![*launch],
            Phase::Apart(tasks) => tasks.iter().map(|task| task.launch).collect(),
            Phase::Region(region) => region.links.iter().map(|link| link.launch).collect(),
        }
    }
}

impl Region {
    pub(crate) fn new(links: Vec<RegionLink>, rows: usize) -> Region {
        Region { links, cuts: RowCut::all(rows) }
    }

    /// The number of the cut for so many threads, and the cut.
    pub(crate) fn cut(&self, n_threads: usize) -> (usize, RowCut) {
        let number = usize::from(n_threads > PARTS[0]);
        (number, self.cuts[number])
    }
}

impl RowCut {
    /// The cuts of some rows for two threads, and for more.
    pub(crate) fn all(rows: usize) -> [RowCut; PARTS.len()] {
        PARTS.map(|most| {
            let n_parts = if rows >= most * FULL_ROWS { most } else { PARTS[0] };
            RowCut { rows, len: rows.div_ceil(n_parts).max(1) }
        })
    }

    /// The number of parts.
    pub(crate) fn count(self) -> usize {
        self.rows.div_ceil(self.len)
    }

    /// The rows of a part.
    pub(crate) fn part(self, part: usize) -> Range<usize> {
        part * self.len..self.rows.min((part + 1) * self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_the_rows_once() {
        for rows in 2..300 {
            for (cut, most) in RowCut::all(rows).into_iter().zip(PARTS) {
                assert!((2..=most).contains(&cut.count()) && cut.len >= FULL_ROWS.min(rows.div_ceil(2)), "{cut:?}");
                let mut end = 0;
                for part in (0..cut.count()).map(|part| cut.part(part)) {
                    assert!(part.start == end && !part.is_empty(), "{cut:?}");
                    assert!(part.len() == cut.len || part.end == rows, "{cut:?}");
                    end = part.end;
                }
                assert_eq!(end, rows, "{cut:?}");
            }
        }
    }
}
