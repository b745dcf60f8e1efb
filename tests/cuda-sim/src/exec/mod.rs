//! Runs the blocks of a grid, one after the other, and the warps of a block until each waits at a barrier or is done.

mod access;
mod asynchronous;
mod atomic;
mod collective;
mod execute;
mod matrix;
mod warp;

use crate::check::Owner;
use crate::fault::{Fault, Stop};
use crate::kernel::{Kernel, Special};
use crate::machine::{Counts, Order};
use crate::memory::Global;
use crate::shared::Shared;
use warp::{State, Warp};

/// The parts of a launch that are the same for all its blocks.
pub(crate) struct Launch<'l> {
    pub(crate) kernel: &'l Kernel,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) dynamic_shared: u32,
    pub(crate) params: &'l [u8],
    /// Addresses of the module's global arrays.
    pub(crate) globals: &'l [u64],
    pub(crate) order: Order,
    /// Branches after which the launch counts as endless.
    pub(crate) branch_limit: u64,
}

/// The state that the warps of a block share.
pub(crate) struct Env<'l> {
    pub(crate) launch: &'l Launch<'l>,
    pub(crate) global: &'l mut Global,
    pub(crate) shared: &'l mut Shared,
    pub(crate) owner: Owner,
    pub(crate) counts: &'l mut Counts,
    /// Coordinates of the block in the grid.
    pub(crate) place: [u32; 3],
    branches: u64,
}

impl Launch<'_> {
    pub(crate) fn threads(&self) -> u32 {
        self.block.iter().product()
    }

    pub(crate) fn shared_bytes(&self) -> u32 {
        self.dynamic_start() + self.dynamic_shared
    }

    /// Where dynamic shared memory begins.
    pub(crate) fn dynamic_start(&self) -> u32 {
        self.kernel.shared_bytes.next_multiple_of(16)
    }
}

/// Runs all blocks; `first_serial` and those behind it are the launch's own.
pub(crate) fn run(
    launch: &Launch<'_>,
    global: &mut Global,
    shared: &mut Shared,
    counts: &mut Counts,
    first_serial: u32,
) -> Result<(), Fault> {
    let kernel = launch.kernel;
    let blocks: u32 = launch.grid.iter().product();
    let n_warps = launch.threads().div_ceil(32) as usize;
    let mut warps: Vec<Warp> = (0..n_warps).map(|index| Warp::new(launch, index)).collect();
    let owner = Owner { launch: first_serial, block: 0 };
    let mut env = Env { launch, global, shared, owner, counts, place: [0; 3], branches: 0 };
    for n in 0..blocks {
        let n = if launch.order.reverse_blocks { blocks - 1 - n } else { n };
        env.place = [n % launch.grid[0], n / launch.grid[0] % launch.grid[1], n / launch.grid[0] / launch.grid[1]];
        env.owner.block = first_serial + 1 + n;
        env.shared.begin(launch.shared_bytes() as usize, kernel.shared_grain, n_warps);
        run_block(&mut env, &mut warps).map_err(|(pc, what)| {
            let inst = kernel.insts.get(pc);
            let [x, y, z] = env.place;
            Fault {
                kernel: kernel.name.clone(),
                line: inst.map_or(0, |inst| inst.line),
                text: inst.map_or(String::new(), |inst| kernel.instruction(inst)),
                what: format!("{what}, block ({x}, {y}, {z})"),
            }
        })?;
    }
    Ok(())
}

/// An error with the number of its instruction.
type Trouble = (usize, Stop);

fn run_block(env: &mut Env<'_>, warps: &mut [Warp]) -> Result<(), Trouble> {
    for warp in warps.iter_mut() {
        warp.begin(env);
    }
    loop {
        for n in 0..warps.len() {
            let n = if env.launch.order.reverse_warps { warps.len() - 1 - n } else { n };
            warps[n].run(env)?;
        }
        if warps.iter().all(|warp| warp.alive == 0) {
            return Ok(());
        }
        release(env, warps)?;
    }
}

/// Lets those go whose barrier is complete. Each barrier of a block has a number.
fn release(env: &mut Env<'_>, warps: &mut [Warp]) -> Result<(), Trouble> {
    let alive: u32 = warps.iter().map(|warp| warp.alive.count_ones()).sum();
    let mut any = false;
    for id in 0..16 {
        let (mut threads, mut counted, mut members, mut wanted, mut at) = (0, 0, 0, None, 0);
        for (n, warp) in warps.iter().enumerate() {
            for (lanes, count, pc) in warp.waiting_at(id) {
                threads += lanes.count_ones();
                // A barrier with a number counts whole warps.
                counted += 32;
                members |= 1_u32 << n;
                at = pc;
                if count.is_some() && wanted.is_some() && wanted != count {
                    return Err((pc, Box::new(format!("barrier {id} is reached with different numbers of threads"))));
                }
                wanted = wanted.or(count);
            }
            if warp.arrivals[id] > 0 {
                counted += 32 * warp.arrivals[id];
                members |= 1 << n;
            }
        }
        if threads == 0 {
            continue;
        }
        let is_complete = match wanted {
            None => threads == alive,
            Some(count) if counted > count => {
                let what = format!("barrier {id} waits for {count} threads and {counted} came");
                return Err((at, Box::new(what)));
            }
            Some(count) => counted == count,
        };
        if is_complete {
            any = true;
            env.shared.barrier(members);
            for warp in warps.iter_mut() {
                warp.release(id);
            }
        }
    }
    if any { Ok(()) } else { Err(deadlock(warps)) }
}

fn deadlock(warps: &[Warp]) -> Trouble {
    let mut found = vec![];
    let mut at = 0;
    for (n, warp) in warps.iter().enumerate() {
        match warp.state() {
            State::Done => found.push(format!("warp {n} is done")),
            State::Waits { id, pc, lanes } => {
                at = pc;
                let of = warp.alive.count_ones();
                found.push(format!("{} of {of} lanes of warp {n} wait at barrier {id}", lanes.count_ones()));
            }
        }
    }
    found.truncate(6);
    (at, Box::new(format!("deadlock: {}", found.join(", "))))
}

/// The value of a special register of a lane, in the block at this place.
fn special(special: Special, launch: &Launch<'_>, place: [u32; 3], warp: usize, lane: usize) -> u32 {
    use crate::kernel::LaneMask;
    let [width, height, _] = launch.block;
    let thread = (32 * warp + lane) as u32;
    match special {
        Special::Tid(0) => thread % width,
        Special::Tid(1) => thread / width % height,
        Special::Tid(_) => thread / width / height,
        Special::Ntid(axis) => launch.block[usize::from(axis)],
        Special::Ctaid(axis) => place[usize::from(axis)],
        Special::Nctaid(axis) => launch.grid[usize::from(axis)],
        Special::LaneId => lane as u32,
        Special::WarpId => warp as u32,
        Special::NWarpId => launch.threads().div_ceil(32),
        Special::LaneMask(LaneMask::Eq) => 1 << lane,
        Special::LaneMask(LaneMask::Le) => u32::MAX >> (31 - lane),
        Special::LaneMask(LaneMask::Lt) => (1 << lane) - 1,
        Special::LaneMask(LaneMask::Ge) => u32::MAX << lane,
        Special::LaneMask(LaneMask::Gt) => u32::MAX << lane << 1,
        Special::TotalShared => launch.shared_bytes(),
        Special::DynamicShared => launch.dynamic_shared,
    }
}

impl Env<'_> {
    /// Counts a branch and stops a kernel that never ends.
    #[inline]
    fn count_branch(&mut self) -> Result<(), Stop> {
        self.branches += 1;
        if self.branches > self.launch.branch_limit { crate::fault::stop("the kernel does not end") } else { Ok(()) }
    }
}
