//! Launches without a barrier between them.
//!
//! A step of a recurrent network is a few small products and a formula: threads share each for some microseconds and wait
//! for each other after it, and what one of them has written another one reads next. Where every launch computes its rows
//! one by one, they are a *region*: a thread runs all of them on its part of the rows before it waits for others. Source:
//! Tseng, "Compiler optimizations for eliminating barrier synchronization" (PPoPP 1995); the parallel regions of OpenMP.
//!
//! Small launches between them that do not keep to rows, such as sums over them, run after the region if nothing that
//! follows in it needs what they write, or writes what they read.
//!
//! Guarantees that parts of the rows may run at once and in any order: wherever a launch of a region writes what another
//! one reads or writes, both do so in bytes that belong to the same row. Each launch computes the rows that it would
//! compute alone, so no bit of a result changes.

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::library::{Library, RowPart};
use crate::phase::{LinkWork, OneTask, Phase, Region, RegionLink, RowCut};
use crate::program::{HostLaunch, Job, Site};
use crate::reach::{self, Entries, Reach};
use crate::schedule::{Nest, Source};

/// Tasks of a nest that a part may have: with vectors, they take as long as a barrier or two.
const TASKS_OF_PART: u64 = 4;
/// Launches of a region at most, and launches that wait for its end: threads meet again within some hundred microseconds,
/// as the others wait for one that another program takes the processor from in the middle of its part.
const MOST_LAUNCHES: usize = 24;

/// A launch that may belong to a region.
#[derive(Clone, Copy)]
pub(crate) struct Member<'a> {
    pub(crate) work: MemberWork<'a>,
    /// Its first entry.
    pub(crate) first: usize,
}

#[derive(Clone, Copy)]
pub(crate) enum MemberWork<'a> {
    Nest(&'a Nest),
    /// A library kernel, and the nest that runs on blocks of its result.
    Library(&'a Library, Option<&'a Nest>),
}

/// A phase, whose launches have no code yet, by their numbers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PlannedPhase {
    Launch(usize),
    /// Those of one task each that may run at once.
    Apart(Vec<usize>),
    /// Those of a region that computes so many rows.
    Region {
        launches: Vec<usize>,
        rows: usize,
    },
}

impl<'a> Member<'a> {
    /// How the launch reaches its operands, if it computes so many rows one by one and threads have no more of it to share
    /// than parts.
    fn reaches(self, entries: Entries<'_>, rows: usize) -> Option<Vec<Reach>> {
        match self.work {
            MemberWork::Nest(nest) => {
                let n_tasks = nest.items.div_ceil(nest.task);
                let is_shared = n_tasks <= TASKS_OF_PART * most_parts(rows) as u64 && !nest.is_short();
                is_shared.then(|| reach::of_nest(nest, self.first, entries, rows as u64)).flatten()
            }
            MemberWork::Library(library, epilogue) => {
                library.n_rows().filter(|&n| n == rows)?;
                let n_own = library.inputs().len() + 1;
                let mut reaches = reach::of_library(library, &entries.all[self.first..self.first + n_own], rows)?;
                if let Some(nest) = epilogue {
                    reaches.extend(reach::of_nest(nest, self.first + n_own, entries, rows as u64)?);
                }
                Some(reaches)
            }
        }
    }

    /// How it reaches its operands, if it may wait: one thread runs it, and it needs no memory of its own.
    fn reaches_late(self, entries: Entries<'a>) -> Option<impl Iterator<Item = Reach> + 'a> {
        let MemberWork::Nest(nest) = self.work else { return None };
        let has_scratch = nest.sources.iter().any(|source| match *source {
            Source::Scratch(at) => at < entries.constants,
            Source::Param(_) => false,
        });
        let params = &nest.kernel.params;
        (nest.items <= nest.task && !has_scratch)
            .then(|| reach::of_whole(entries.of(nest, self.first), move |param| params[param].written))
    }

    /// The rows of a product, with which a region begins.
    fn begins(self) -> Option<usize> {
        match self.work {
            MemberWork::Library(library @ Library::MatMul(_), _) => library.n_rows(),
            MemberWork::Library(..) | MemberWork::Nest(_) => None,
        }
    }
}

/// The phases of launches, of which those that may belong to no region are not given.
pub(crate) fn planned<'a>(
    members: impl Iterator<Item = Option<Member<'a>>>,
    entries: Entries<'a>,
) -> Vec<PlannedPhase> {
    let mut all = vec![];
    let mut open: Option<OpenRegion<'a>> = None;
    for (launch, member) in members.enumerate() {
        let is_taken = open.as_mut().zip(member).is_some_and(|(open, member)| open.takes(launch, member));
        if is_taken {
            continue;
        }
        all.extend(open.take().into_iter().flat_map(OpenRegion::close));
        open = member.and_then(|member| OpenRegion::begin(launch, member, entries));
        if open.is_none() {
            all.push(PlannedPhase::Launch(launch));
        }
    }
    all.extend(open.into_iter().flat_map(OpenRegion::close));
    all
}

/// A region that grows.
struct OpenRegion<'a> {
    entries: Entries<'a>,
    rows: usize,
    launches: Vec<usize>,
    /// Launches that run after it: in order, those that may run at once.
    late: Vec<Vec<usize>>,
    n_late: usize,
    reached: Reached,
    /// The reach of the last of those that may run at once.
    reached_late: Reached,
}

impl<'a> OpenRegion<'a> {
    fn begin(launch: usize, member: Member<'a>, entries: Entries<'a>) -> Option<OpenRegion<'a>> {
        let rows = member.begins()?;
        let mut open = OpenRegion {
            entries,
            rows,
            launches: vec![],
            late: vec![],
            n_late: 0,
            reached: Reached::default(),
            reached_late: Reached::default(),
        };
        open.takes(launch, member).then_some(open)
    }

    /// Takes the next launch in, or lets it wait; returns whether it could.
    fn takes(&mut self, launch: usize, member: Member<'a>) -> bool {
        if self.launches.len().max(self.n_late) >= MOST_LAUNCHES {
            return false;
        }
        if let Some(reaches) = member.reaches(self.entries, self.rows)
            && reaches.iter().all(|reach| self.reached.keeps_apart(reach, self.entries))
        {
            self.launches.push(launch);
            reaches.into_iter().for_each(|reach| self.reached.insert(reach));
            return true;
        }
        let Some(reaches) = member.reaches_late(self.entries) else { return false };
        let reaches: Vec<Reach> = reaches.collect();
        let is_apart = reaches.iter().all(|reach| self.reached_late.keeps_apart(reach, self.entries));
        match self.late.last_mut().filter(|_| is_apart) {
            Some(last) => last.push(launch),
            None => {
                self.late.push(vec![launch]);
                self.reached_late = Reached::default();
            }
        }
        self.n_late += 1;
        // It runs after all that are there; those to come must not touch what it does.
        for reach in reaches {
            self.reached.insert(reach);
            self.reached_late.insert(reach);
        }
        true
    }

    fn close(self) -> Vec<PlannedPhase> {
        let OpenRegion { rows, mut launches, late, .. } = self;
        if launches.len() > 1 {
            let late = late.into_iter().map(|at_once| match at_once[..] {
                [launch] => PlannedPhase::Launch(launch),
                _ => PlannedPhase::Apart(at_once),
            });
            return [PlannedPhase::Region { launches, rows }].into_iter().chain(late).collect();
        }
        launches.extend(late.into_iter().flatten());
        launches.sort_unstable();
        launches.into_iter().map(PlannedPhase::Launch).collect()
    }
}

/// The reach of all launches of a region, by buffer and place.
#[derive(Default)]
struct Reached {
    by_start: BTreeMap<(Site, i64), Vec<Reach>>,
    /// Bytes of the longest.
    longest: i64,
}

impl Reached {
    fn insert(&mut self, reach: Reach) {
        self.longest = self.longest.max(reach.all[1] - reach.all[0]);
        let there = self.by_start.entry((reach.site, reach.all[0])).or_default();
        if !there.contains(&reach) {
            there.push(reach);
        }
    }

    /// Whether a launch that reaches this keeps to the rows of all others, wherever one of them writes.
    fn keeps_apart(&self, reach: &Reach, entries: Entries<'_>) -> bool {
        let is_apart =
            |other: &Reach| !(reach.writes || other.writes) || reach.keeps_to_rows_of(other, entries.donations);
        entries.same_buffers(reach.site).all(|site| {
            let near = (site, reach.all[0] - self.longest)..(site, reach.all[1]);
            self.by_start.range(near).flat_map(|(_, there)| there).all(is_apart)
        })
    }
}

/// The most parts of so many rows.
fn most_parts(rows: usize) -> usize {
    RowCut::all(rows).map(RowCut::count).into_iter().max().unwrap_or(1)
}

/// The phases with the code of their launches.
///
/// # Errors
///
/// Fails if a launch is not of the kind that was planned.
pub(crate) fn phases(planned: Vec<PlannedPhase>, launches: &[HostLaunch]) -> Result<Vec<Phase>> {
    let other = || Error::Internal("a launch is not as it was planned".into());
    let phase = |planned| match planned {
        PlannedPhase::Launch(launch) => Some(Phase::Launch(launch)),
        PlannedPhase::Apart(numbers) => numbers
            .into_iter()
            .map(|number| one_task(number, &launches[number]))
            .collect::<Option<_>>()
            .map(Phase::Apart),
        PlannedPhase::Region { launches: numbers, rows } => {
            let links = numbers.into_iter().map(|number| link(number, &launches[number], rows));
            Some(Phase::Region(Region::new(links.collect::<Option<_>>()?, rows)))
        }
    };
    planned.into_iter().map(|planned| phase(planned).ok_or_else(other)).collect()
}

/// A launch as one of those that may run at once.
fn one_task(launch: usize, HostLaunch { job, first, .. }: &HostLaunch) -> Option<OneTask> {
    let Job::Code { function, items, .. } = job else { return None };
    Some(OneTask { launch, first: *first, function: function.clone(), items: *items })
}

/// A launch as one of a region of so many rows.
fn link(number: usize, launch: &HostLaunch, rows: usize) -> Option<RegionLink> {
    let work = match &launch.job {
        Job::Code { function, items, .. } => {
            LinkWork::Code { function: function.clone(), items_of_row: items / rows as u64 }
        }
        Job::Library { library, epilogue, .. } => {
            let parts = |cut: RowCut| (0..cut.count()).map(|part| library.of_rows(cut.part(part))).collect();
            let [few, many]: [Option<Vec<RowPart>>; 2] = RowCut::all(rows).map(parts);
            LinkWork::Library { parts: [few?, many?], epilogue: epilogue.clone() }
        }
        Job::Chain { .. } => return None,
    };
    Some(RegionLink { launch: number, first: launch.first, count: launch.count, work })
}
