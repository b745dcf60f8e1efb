//! A plan as launches before their code exists.
//!
//! Consecutive small nests are merged into one function of bounded size, so that tiny graphs cost few calls; nests
//! with much work are split over threads, block by block where one reads what the one before wrote (`chain.rs`). An
//! epilogue runs on each block of the library kernel's result that is finished, where the kernel finishes blocks one by
//! one, and after it elsewhere. None of that changes a bit of a result.

use std::borrow::Cow;
use std::ops::Range;

use crate::chain::{self, Blocks, ChainNest};
use crate::cpu::{Unit, compile};
use crate::error::{Error, Result};
use crate::ir::Kernel;
use crate::library::Library;
use crate::plan::{Donation, Operand, Place, Plan, Step, Work};
use crate::program::{BoundEntries, Entry, FLAG_BYTES, HostLaunch, Job, Link, Modes, Program, Site};
use crate::reach::Entries;
use crate::region::{self, Member, MemberWork};
use crate::schedule::{Nest, Schedule, Source, TASK_WORK, pieces, prepared_all, schedule, share_code, tile_nest};

/// Nests of at most this much work, in scalar instructions, are merged with their neighbours.
const SMALL_WORK: u64 = 1 << 13;
/// Bounds on a merged function: compile time grows faster than size.
const MAX_MERGED_NESTS: usize = 24;
const MAX_MERGED_INSTS: usize = 240;

/// The nests of a step.
enum StepNests {
    /// They run in order, after the library kernel if the step has one.
    InOrder(Schedule),
    /// It runs on finished blocks of the library kernel's result.
    OnTiles(Box<Nest>),
}

/// A launch before its code exists.
struct PendingLaunch<'a> {
    work: PendingWork<'a>,
    /// Its first entry.
    first: usize,
    steps: Range<usize>,
}

enum PendingWork<'a> {
    Code {
        nests: Vec<&'a Nest>,
    },
    /// Nests that run block by block.
    Chain {
        nests: Vec<ChainNest<'a>>,
        blocks: Blocks,
    },
    /// A library kernel, and the nest that runs on blocks of its result.
    Library {
        library: &'a Library,
        epilogue: Option<&'a Nest>,
    },
}

impl<'a> PendingLaunch<'a> {
    /// The launch as one that a region may have: of one nest, or of a library kernel.
    fn member(&self) -> Option<Member<'a>> {
        let work = match &self.work {
            PendingWork::Code { nests } => match nests.as_slice() {
                &[nest] => MemberWork::Nest(nest),
                _ => return None,
            },
            PendingWork::Library { library, epilogue } => MemberWork::Library(library, *epilogue),
            PendingWork::Chain { .. } => return None,
        };
        Some(Member { work, first: self.first })
    }
}

/// The program of a verified plan.
pub(crate) fn program(plan: &Plan, modes: Modes) -> Result<Program> {
    let mut nests = nests(plan, modes);
    let scratch_at = plan.arena_bytes.next_multiple_of(64);
    let scratch = nests.iter().map(StepNests::scratch).max().unwrap_or(0);
    if scratch > Plan::MOST_SCRATCH {
        return Err(Error::Plan(format!("partial results of {scratch} bytes cannot be addressed")));
    }
    let scratch_len = scratch.next_multiple_of(64);
    let constants = share_code(nests.iter_mut().flat_map(StepNests::in_order), scratch_len);
    let scratch_end = match constants.len() {
        0 if scratch == 0 => plan.arena_bytes,
        0 => scratch_at + scratch,
        len => scratch_at + scratch_len + len,
    };
    let flags_at = modes.trap.then(|| scratch_end.next_multiple_of(64));
    let pair = |donation: &Donation| (donation.input as usize, donation.output as usize);
    let mut donations: Vec<(usize, usize)> = plan.donations.iter().map(pair).collect();
    donations.sort_unstable();
    let mut by_output: Vec<(usize, usize)> = donations.iter().map(|&(input, output)| (output, input)).collect();
    by_output.sort_unstable();
    let mut pending = Pending {
        separate: modes.separate,
        scratch_at,
        scratch_len,
        flags_at,
        donations: &donations,
        by_output: &by_output,
        launches: vec![],
        entries: vec![],
    };
    for (n, (step, nests)) in plan.steps.iter().zip(&nests).enumerate() {
        pending.add(n, step, nests);
    }
    pending.mark_read_at_once();
    let is_watched = modes.trap || modes.separate;
    let members = pending.launches.iter().map(|launch| launch.member().filter(|_| !is_watched));
    let planned = region::planned(members, pending.entries());
    let Pending { launches, entries, .. } = pending;
    let launches = compiled(launches, entries.len(), modes.trap)?;
    let n_launches = launches.len();
    Ok(Program {
        phases: region::phases(planned, &launches)?,
        launches,
        bound: BoundEntries::of(&entries, plan.inputs.len(), plan.outputs.len()),
        entries,
        inputs: plan.inputs.iter().map(|t| t.bytes()).collect(),
        outputs: plan.outputs.iter().map(|t| t.bytes()).collect(),
        donations,
        constants,
        constants_at: scratch_at + scratch_len,
        arena_bytes: flags_at.map_or(scratch_end, |flags_at| flags_at + FLAG_BYTES * n_launches),
        flags_at,
    })
}

/// The nest that runs on finished blocks of the library kernel's result, if that finishes any and it pays.
pub(crate) fn nest_on_tiles(step: &Step) -> Option<Nest> {
    let Work::Library { kernel, epilogue: Some(epilogue) } = &step.work else { return None };
    let tiles = kernel.tiles().filter(|_| saves_traffic(step))?;
    tile_nest(epilogue, tiles)
}

/// Whether an epilogue moves no more bytes of its own than it saves by finding the accumulator in cache: others drive out
/// of the cache what the library kernel uses again, and move faster in a loop of their own.
fn saves_traffic(step: &Step) -> bool {
    let Some(accumulator) = step.work.accumulator().and_then(|it| step.operands.get(it)) else { return false };
    let others = step.work.epilogue_operands().into_iter().map(|operand| step.operands[operand]);
    let (own, others): (Vec<Operand>, Vec<Operand>) = others.partition(|operand| operand.place == accumulator.place);
    let others = others.iter().map(|operand| operand.ty().bytes()).fold(0, usize::saturating_add);
    // A block that is written over in cache goes to memory once, instead of twice.
    let n_saved = if own.len() > 1 { 2 } else { 1 };
    let most = accumulator.ty().bytes().saturating_mul(n_saved);
    // Half an element more for each: operands of rows and columns are not worth counting.
    others <= most.saturating_add(accumulator.ty().bytes() / 2)
}

/// The nests of all steps.
fn nests(plan: &Plan, modes: Modes) -> Vec<StepNests> {
    // A run that is watched sees the result of the library kernel by itself.
    let is_watched = modes.trap || modes.separate;
    let on_tiles = |step| if is_watched { None } else { nest_on_tiles(step) };
    let tiles: Vec<Option<Nest>> = plan.steps.iter().map(on_tiles).collect();
    let kernels: Vec<Option<&Kernel>> =
        plan.steps.iter().zip(&tiles).map(|(step, tile)| step.work.kernel().filter(|_| tile.is_none())).collect();
    let pieces: Vec<Vec<Kernel>> = kernels.iter().map(|kernel| kernel.map(pieces).unwrap_or_default()).collect();
    let mut prepared = prepared_all(&pieces.iter().flatten().collect::<Vec<_>>()).into_iter();
    let mut scheduled = |n: usize| Schedule::joined(prepared.by_ref().take(n).map(|kernel| schedule(&kernel)));
    let nests = |(tile, pieces): (Option<Nest>, &Vec<Kernel>)| match tile {
        Some(nest) => StepNests::OnTiles(Box::new(nest)),
        None => StepNests::InOrder(scheduled(pieces.len())),
    };
    tiles.into_iter().zip(&pieces).map(nests).collect()
}

impl StepNests {
    /// The nests that are launches of their own.
    fn in_order(&mut self) -> impl Iterator<Item = &mut Nest> {
        let schedule = if let StepNests::InOrder(schedule) = self { Some(schedule) } else { None };
        schedule.into_iter().flat_map(|schedule| &mut schedule.nests)
    }

    /// Bytes of scratch memory.
    fn scratch(&self) -> usize {
        match self {
            StepNests::InOrder(schedule) => schedule.scratch,
            StepNests::OnTiles(_) => 0,
        }
    }
}

/// Launches, and where their parameters lie.
struct Pending<'a> {
    /// No two nests become one function.
    separate: bool,
    scratch_at: usize,
    scratch_len: usize,
    flags_at: Option<usize>,
    donations: &'a [(usize, usize)],
    by_output: &'a [(usize, usize)],
    launches: Vec<PendingLaunch<'a>>,
    entries: Vec<Entry>,
}

impl<'a> Pending<'a> {
    /// Adds the launches of step `n`.
    fn add(&mut self, n: usize, step: &'a Step, nests: &'a StepNests) {
        let params = match &step.work {
            Work::Kernel(_) => (0..step.operands.len()).collect(),
            Work::Library { kernel, .. } => {
                let epilogue = if let StepNests::OnTiles(nest) = nests { Some(&**nest) } else { None };
                self.push(PendingWork::Library { library: kernel, epilogue }, n);
                let n_inputs = kernel.inputs().len();
                let results = step.work.accumulator().map_or(n_inputs..step.operands.len(), |it| it..it + 1);
                let own = step.operands[..n_inputs].iter().chain(&step.operands[results]);
                self.entries.extend(own.map(entry));
                step.work.epilogue_operands()
            }
        };
        match nests {
            StepNests::OnTiles(_) => self.entries.extend(params.iter().map(|&p| entry(&step.operands[p]))),
            StepNests::InOrder(schedule) => {
                let operands: Vec<Operand> = params.iter().map(|&p| step.operands[p]).collect();
                schedule.nests.iter().for_each(|nest| self.add_nest(n, nest, &operands));
            }
        }
    }

    fn add_nest(&mut self, n: usize, nest: &'a Nest, operands: &[Operand]) {
        let is_merged = !self.separate && self.merge(nest, n);
        let first = self.entries.len();
        if !is_merged {
            self.push(PendingWork::Code { nests: vec![nest] }, n);
            if let Some(flags_at) = self.flags_at {
                let offset = flags_at + FLAG_BYTES * (self.launches.len() - 1);
                self.entries.push(Entry { site: Site::Arena, offset, len: FLAG_BYTES });
            }
        }
        let scratch_at = self.scratch_at;
        self.entries.extend(nest.sources.iter().map(|source| match *source {
            Source::Param(p) => entry(&operands[p]),
            Source::Scratch(at) => Entry { site: Site::Arena, offset: scratch_at + at, len: 0 },
        }));
        if !is_merged && !self.separate && self.flags_at.is_none() {
            self.link(ChainNest { nest: Cow::Borrowed(nest), first });
        }
    }

    fn entries(&self) -> Entries<'_> {
        Entries {
            all: &self.entries,
            donations: self.donations,
            by_output: self.by_output,
            constants: self.scratch_len,
        }
    }

    /// Puts the last launch, which is this nest, behind the one before, if they are a chain.
    fn link(&mut self, nest: ChainNest<'a>) {
        let Some([before, last]) = self.launches.last_chunk() else { return };
        let mut nests = match &before.work {
            PendingWork::Code { nests } => match nests.as_slice() {
                [one] => vec![ChainNest { nest: Cow::Borrowed(one), first: before.first }],
                _ => return,
            },
            PendingWork::Chain { nests, .. } => nests.clone(),
            PendingWork::Library { .. } => return,
        };
        nests.push(nest);
        let Some(blocks) = chain::blocks(&nests, self.entries()) else { return };
        let (first, steps) = (before.first, before.steps.start..last.steps.end);
        self.launches.truncate(self.launches.len() - 2);
        self.launches.push(PendingLaunch { work: PendingWork::Chain { nests, blocks }, first, steps });
    }

    /// Marks the nests of chains whose results are read by a later one.
    fn mark_read_at_once(&mut self) {
        let mut launches = std::mem::take(&mut self.launches);
        for launch in &mut launches {
            if let PendingWork::Chain { nests, .. } = &mut launch.work {
                for n in 0..nests.len() {
                    if chain::is_read_by(&nests[n], &nests[n + 1..], self.entries()) {
                        nests[n].nest.to_mut().is_read_at_once = true;
                    }
                }
            }
        }
        self.launches = launches;
    }

    fn push(&mut self, work: PendingWork<'a>, n: usize) {
        self.launches.push(PendingLaunch { work, first: self.entries.len(), steps: n..n + 1 });
    }

    /// Adds a nest of step `n` to the last function, if both are small.
    fn merge(&mut self, nest: &'a Nest, n: usize) -> bool {
        let Some(PendingLaunch { work: PendingWork::Code { nests }, steps, .. }) = self.launches.last_mut() else {
            return false;
        };
        let insts: usize = nests.iter().map(|n| n.kernel.insts.len()).sum();
        let is_small = nest.work <= SMALL_WORK && nests.iter().all(|n| n.work <= SMALL_WORK);
        let fits = is_small && nests.len() < MAX_MERGED_NESTS && insts + nest.kernel.insts.len() <= MAX_MERGED_INSTS;
        if fits {
            nests.push(nest);
            steps.end = n + 1;
        }
        fits
    }
}

/// The launches with their code.
fn compiled(pending: Vec<PendingLaunch<'_>>, n_entries: usize, trap: bool) -> Result<Vec<HostLaunch>> {
    let alone = |nest| Unit { nests: vec![nest], trap };
    let mut units: Vec<Unit<'_>> = vec![];
    for launch in &pending {
        match &launch.work {
            PendingWork::Code { nests } => units.push(Unit { nests: nests.clone(), trap }),
            PendingWork::Chain { nests, .. } => units.extend(nests.iter().map(|nest| alone(&*nest.nest))),
            PendingWork::Library { epilogue, .. } => units.extend(epilogue.map(alone)),
        }
    }
    let mut functions = compile(&units)?.into_iter();
    let mut function = || functions.next().ok_or_else(|| Error::Internal("a function is missing".into()));
    let ends: Vec<usize> = pending.iter().skip(1).map(|launch| launch.first).chain([n_entries]).collect();
    let mut launches = Vec::with_capacity(pending.len());
    for (PendingLaunch { work, first, steps }, end) in pending.into_iter().zip(ends) {
        let job = match work {
            PendingWork::Library { library, epilogue } => Job::Library {
                library: library.clone(),
                n_inputs: library.inputs().len(),
                epilogue: epilogue.map(|_| function()).transpose()?,
            },
            PendingWork::Chain { nests, blocks } => {
                let link = |ChainNest { nest, first: own }: &ChainNest<'_>| -> Result<Link> {
                    let (items, per_block) = (nest.items, blocks.items(nest));
                    Ok(Link { function: function()?, first: own - first, items, per_block })
                };
                let work = nests.iter().map(|nest| nest.nest.work).fold(1, u64::saturating_add);
                let task = TASK_WORK.div_ceil((work / blocks.count()).max(1));
                Job::Chain { links: nests.iter().map(link).collect::<Result<_>>()?, blocks: blocks.count(), task }
            }
            PendingWork::Code { nests } => {
                let (items, task) = match nests.as_slice() {
                    [nest] => (nest.items, nest.task),
                    // Several nests run whole.
                    _ => (1, 1),
                };
                Job::Code { function: function()?, items, task }
            }
        };
        launches.push(HostLaunch { job, first, count: end - first, steps });
    }
    Ok(launches)
}

fn entry(operand: &Operand) -> Entry {
    let (site, offset) = match operand.place {
        Place::Input(n) => (Site::Input(n as usize), 0),
        Place::Output(n) => (Site::Output(n as usize), 0),
        Place::Slot { offset } => (Site::Arena, offset),
    };
    Entry { site, offset, len: operand.ty().bytes() }
}
