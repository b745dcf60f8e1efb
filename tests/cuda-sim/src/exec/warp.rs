//! A warp: its registers, and the groups of lanes that are at the same instruction.
//!
//! The group at the lowest instruction runs first, until it meets another or jumps: lanes that took different ways come
//! together where the ways do, for every program whose text follows its structure.

use super::{Env, Launch, Trouble, special};
use crate::fault::{Stop, stop};
use crate::kernel::{Fill, Inst, Kernel, Op, Special};
use crate::lanes::{ALL, LANES, Regs, lanes};

use super::asynchronous::Copies;

/// Lanes at one instruction.
#[derive(Clone, Copy, Debug)]
struct Group {
    pc: u32,
    lanes: u32,
    /// The barrier that they wait at, and how many threads it wants.
    waits: Option<(usize, Option<u32>)>,
}

/// The state of a warp that cannot go on.
pub(super) enum State {
    Done,
    Waits { id: usize, pc: usize, lanes: u32 },
}

/// A warp.
pub(super) struct Warp {
    pub(super) index: usize,
    pub(super) regs: Regs,
    groups: Vec<Group>,
    /// Lanes that have not left.
    pub(super) alive: u32,
    /// Lanes that there are: the last warp of a block may have fewer.
    all: u32,
    /// How often the warp arrived at each barrier without waiting.
    pub(super) arrivals: [u32; 16],
    /// Local memory of each lane, and which of its bytes are written.
    pub(super) local: Vec<(u8, bool)>,
    pub(super) copies: Copies,
}

impl Warp {
    pub(super) fn new(launch: &Launch<'_>, index: usize) -> Warp {
        let files = launch.kernel.files;
        let lanes = (launch.threads() as usize - 32 * index).min(32);
        let mut warp = Warp {
            index,
            regs: Regs {
                narrow: vec![[0; LANES]; usize::from(files.narrow)],
                wide: vec![[0; LANES]; usize::from(files.wide)],
                preds: vec![0; usize::from(files.preds)],
                written: vec![0; usize::from(files.declared)],
            },
            groups: vec![],
            alive: 0,
            all: ALL >> (32 - lanes),
            arrivals: [0; 16],
            local: vec![],
            copies: Copies::default(),
        };
        for (reg, fill) in &launch.kernel.narrow_fill {
            warp.regs.narrow[usize::from(*reg)] =
                std::array::from_fn(|lane| fill_value(*fill, launch, [0; 3], index, lane) as u32);
        }
        for (reg, fill) in &launch.kernel.wide_fill {
            warp.regs.wide[usize::from(*reg)] =
                std::array::from_fn(|lane| fill_value(*fill, launch, [0; 3], index, lane));
        }
        warp
    }

    /// Makes the warp that of the block in `env`.
    pub(super) fn begin(&mut self, env: &Env<'_>) {
        let kernel = env.launch.kernel;
        self.regs.written.fill(0);
        self.alive = self.all;
        self.arrivals = [0; 16];
        self.groups.clear();
        self.groups.push(Group { pc: 0, lanes: self.all, waits: None });
        self.local.clear();
        self.local.resize(LANES * kernel.local_bytes as usize, (0, false));
        self.copies.clear();
        // Registers that depend on the place of the block; the rest has been filled when the warp was made.
        for (index, fill) in &kernel.narrow_fill {
            if matches!(fill, Fill::Special(Special::Ctaid(_))) {
                self.regs.narrow[usize::from(*index)] =
                    [fill_value(*fill, env.launch, env.place, self.index, 0) as u32; LANES];
            }
        }
        for (index, fill) in &kernel.wide_fill {
            if matches!(fill, Fill::Special(Special::Ctaid(_))) {
                self.regs.wide[usize::from(*index)] = [fill_value(*fill, env.launch, env.place, self.index, 0); LANES];
            }
        }
    }

    /// Lanes that wait at a barrier, the threads that it wants, and their instruction.
    pub(super) fn waiting_at(&self, id: usize) -> impl Iterator<Item = (u32, Option<u32>, usize)> {
        self.groups.iter().filter_map(move |group| match group.waits {
            Some((own, count)) if own == id => Some((group.lanes, count, group.pc as usize)),
            _ => None,
        })
    }

    /// Lets those go that wait at a barrier.
    pub(super) fn release(&mut self, id: usize) {
        self.arrivals[id] = 0;
        for group in &mut self.groups {
            if group.waits.is_some_and(|(own, _)| own == id) {
                group.waits = None;
                group.pc += 1;
            }
        }
    }

    pub(super) fn state(&self) -> State {
        match self.groups.iter().find_map(|group| group.waits.map(|(id, _)| (id, group))) {
            Some((id, group)) => State::Waits { id, pc: group.pc as usize, lanes: group.lanes },
            None => State::Done,
        }
    }

    /// Runs until no group can go on.
    pub(super) fn run(&mut self, env: &mut Env<'_>) -> Result<(), Trouble> {
        while let Some((mut group, limit)) = self.take_lowest() {
            let mut pc = group.pc as usize;
            let end = self
                .advance(env, &mut group, &mut pc, limit)
                .map_err(|what| (pc, Box::new(format!("{what}, warp {}", self.index))))?;
            if let Some(group) = end {
                self.groups.push(group);
            }
        }
        Ok(())
    }

    /// Takes the group at the lowest instruction, joined by others there, and where the next group is.
    fn take_lowest(&mut self) -> Option<(Group, u32)> {
        let runs = |group: &&Group| group.waits.is_none();
        let pc = self.groups.iter().filter(runs).map(|group| group.pc).min()?;
        let (mut lanes, mut limit) = (0, u32::MAX);
        self.groups.retain(|group| {
            if group.waits.is_none() && group.pc == pc {
                lanes |= group.lanes;
                return false;
            }
            if group.waits.is_none() {
                limit = limit.min(group.pc);
            }
            true
        });
        Some((Group { pc, lanes, waits: None }, limit))
    }

    /// Runs a group until it reaches `limit`, splits, waits or leaves; returns the rest of it.
    fn advance(
        &mut self,
        env: &mut Env<'_>,
        group: &mut Group,
        pc: &mut usize,
        limit: u32,
    ) -> Result<Option<Group>, Stop> {
        let kernel: &Kernel = env.launch.kernel;
        loop {
            let Some(inst) = kernel.insts.get(*pc) else {
                self.leave(group.lanes);
                return Ok(None);
            };
            let lanes = self.guarded(kernel, inst, group.lanes)?;
            if lanes != 0 {
                env.counts.warp_instructions += 1;
                env.counts.instructions += u64::from(lanes.count_ones());
                let (start, reads, writes) = inst.uses;
                let uses = &kernel.uses[start as usize..start as usize + usize::from(reads) + usize::from(writes)];
                let (reads, writes) = uses.split_at(usize::from(reads));
                for id in reads {
                    if lanes & !self.regs.written[usize::from(*id)] != 0 {
                        return self.unwritten(kernel, *id, lanes);
                    }
                }
                match &inst.op {
                    Op::Alu { run, alu } => run(&mut self.regs, alu, lanes)?,
                    Op::Branch { to, uniform } => {
                        env.count_branch()?;
                        if lanes == group.lanes {
                            *pc = *to as usize;
                            // Beyond another group, or behind: choose anew.
                            if *to >= limit {
                                return Ok(Some(Group { pc: *to, ..*group }));
                            }
                            continue;
                        }
                        if *uniform {
                            return stop("bra.uni that not all lanes take");
                        }
                        self.groups.push(Group { pc: *to, lanes, waits: None });
                        return Ok(Some(Group { pc: *pc as u32 + 1, lanes: group.lanes & !lanes, waits: None }));
                    }
                    Op::BranchTable { index, targets } => {
                        env.count_branch()?;
                        self.scatter(*index, targets, lanes)?;
                        let rest = group.lanes & !lanes;
                        return Ok((rest != 0).then_some(Group { pc: *pc as u32 + 1, lanes: rest, waits: None }));
                    }
                    Op::Exit => {
                        self.leave(lanes);
                        let rest = group.lanes & !lanes;
                        return Ok((rest != 0).then_some(Group { pc: *pc as u32 + 1, lanes: rest, waits: None }));
                    }
                    Op::Barrier { id, count, aligned, arrive } => {
                        let (id, count) = self.barrier(*id, *count, *aligned, group.lanes, lanes)?;
                        if !*arrive {
                            let waits = Some((id, count));
                            let rest = group.lanes & !lanes;
                            if rest != 0 {
                                self.groups.push(Group { pc: *pc as u32 + 1, lanes: rest, waits: None });
                            }
                            return Ok(Some(Group { pc: *pc as u32, lanes, waits }));
                        }
                        self.arrivals[id] += 1;
                    }
                    op => self.execute(env, op, lanes)?,
                }
                for id in writes {
                    self.regs.written[usize::from(*id)] |= lanes;
                }
            }
            *pc += 1;
            if *pc as u32 >= limit {
                return Ok(Some(Group { pc: *pc as u32, ..*group }));
            }
        }
    }

    /// The lanes whose guard holds.
    #[inline(always)]
    fn guarded(&self, kernel: &Kernel, inst: &Inst, lanes: u32) -> Result<u32, Stop> {
        let Some(guard) = inst.guard else { return Ok(lanes) };
        if lanes & !self.regs.written[usize::from(guard.id)] != 0 {
            return self.unwritten(kernel, guard.id, lanes);
        }
        let value = self.regs.preds[usize::from(guard.pred)];
        Ok(lanes & if guard.negated { !value } else { value })
    }

    #[cold]
    fn unwritten<T>(&self, kernel: &Kernel, id: u16, lanes: u32) -> Result<T, Stop> {
        let lane = (lanes & !self.regs.written[usize::from(id)]).trailing_zeros();
        stop(format!("register {} read before it is written (lane {lane})", kernel.names[usize::from(id)]))
    }

    /// The lanes that there are.
    pub(super) fn all_lanes(&self) -> u32 {
        self.all
    }

    fn leave(&mut self, lanes: u32) {
        self.alive &= !lanes;
    }

    /// Sends each lane to its own target.
    fn scatter(&mut self, index: u16, targets: &[u32], active: u32) -> Result<(), Stop> {
        for lane in lanes(active) {
            let index = self.regs.narrow[usize::from(index)][lane] as usize;
            let Some(pc) = targets.get(index) else {
                return stop(format!("target {index} of {}", targets.len()));
            };
            self.groups.push(Group { pc: *pc, lanes: 1 << lane, waits: None });
        }
        Ok(())
    }

    /// Number of a barrier and the threads it wants, after its checks.
    fn barrier(
        &self,
        id: u16,
        count: Option<u16>,
        aligned: bool,
        group: u32,
        active: u32,
    ) -> Result<(usize, Option<u32>), Stop> {
        if aligned && active != self.alive {
            let (here, all) = (active.count_ones(), self.alive.count_ones());
            let away = (self.alive & !active).trailing_zeros();
            let how = if active == group { "others are elsewhere" } else { "its guard differs" };
            return stop(format!("divergent barrier: {here} of {all} lanes reach it, lane {away} does not ({how})"));
        }
        let id = self.uniform(id, active, "number of a barrier")? as usize;
        let count = count.map(|count| self.uniform(count, active, "number of threads of a barrier")).transpose()?;
        if id > 15 {
            return stop(format!("barrier {id}: there are 16"));
        }
        if count.is_some_and(|count| count == 0 || count % 32 != 0) {
            return stop(format!("a barrier for {} threads, which are no whole warps", count.unwrap_or(0)));
        }
        Ok((id, count))
    }

    /// The value of a narrow register that must be the same in all active lanes.
    pub(super) fn uniform(&self, index: u16, active: u32, what: &str) -> Result<u32, Stop> {
        let values = &self.regs.narrow[usize::from(index)];
        let first = values[active.trailing_zeros() as usize];
        match lanes(active).find(|lane| values[*lane] != first) {
            None => Ok(first),
            Some(lane) => stop(format!("{what} differs between lanes: {first}, and {} in lane {lane}", values[lane])),
        }
    }
}

/// The first content of a register.
fn fill_value(fill: Fill, launch: &Launch<'_>, place: [u32; 3], warp: usize, lane: usize) -> u64 {
    match fill {
        Fill::Bits(bits) => bits,
        Fill::Special(name) => u64::from(special(name, launch, place, warp, lane)),
        Fill::Global(index, offset) => launch.globals[index].wrapping_add_signed(offset),
        Fill::DynamicShared(offset) => (i64::from(launch.dynamic_start()) + offset) as u64,
    }
}
