//! Launches that run side by side as one: each takes microseconds to begin, and a small one leaves most of a device
//! idle.
//!
//! Each kernel keeps its code, its blocks and so its bits. The choice of merged launches follows from shapes alone.

use smallvec::SmallVec;

use super::function::MAX_ALIGN;
use super::{Launch, Module, PtxFunction};

/// Kernels in a launch at most.
const MAX_KERNELS: usize = 16;

/// Characters of a launch's text at most: the assembler takes a tenth of a second for so many, on one core.
const MAX_TEXT: usize = 1 << 17;

/// Blocks of a launch that leave room for others: less than one for each multiprocessor of a large device.
const SMALL: u32 = 128;

/// Bytes of shared memory that every device gives a block without being asked.
const SHARED: usize = 48 << 10;

/// Whether other work fits on a device while this launch runs.
pub(crate) fn is_small(launch: &Launch) -> bool {
    launch.grid[0] <= SMALL && launch.shared as usize <= SHARED
}

/// Whether the launches have a form in which they can run as one; whether they may, the caller knows.
pub(crate) fn can_merge(launches: &[&Launch]) -> bool {
    let total = |of: fn(&Launch) -> usize| launches.iter().map(|launch| of(launch)).sum::<usize>();
    let most = |of: fn(&Launch) -> u32| launches.iter().map(|launch| of(launch)).max().unwrap_or(0);
    let waits = |launch: &&Launch| launch.block < most(|l| l.block) && launch.module.function.has_barrier();
    // Each kernel has its own arrays, though a block uses those of one only.
    let own = total(|launch| launch.module.function.static_shared());
    let asked = most(|launch| launch.shared) as usize;
    launches.len() <= MAX_KERNELS
        && total(|launch| launch.module.function.text_len()) <= MAX_TEXT
        && total(|launch| launch.arguments.len()) <= super::MAX_ARGUMENTS
        && total(|launch| launch.grid[0] as usize) <= super::MAX_GRID[0] as usize
        && (own == 0 || own + MAX_KERNELS * MAX_ALIGN + asked <= SHARED)
        && launches.iter().all(|launch| launch.grid[1..] == [1, 1])
        && !launches.iter().any(waits)
}

/// Launches that [`can_merge`] and do not depend on each other as one, whose arguments are those of all in order.
pub(crate) fn merge_launches(launches: &[&Launch]) -> Launch {
    let most = |of: fn(&Launch) -> u32| launches.iter().map(|launch| of(launch)).max().unwrap_or(0);
    let kernels: SmallVec<[(&PtxFunction, u32); 8]> =
        launches.iter().map(|launch| (&launch.module.function, launch.grid[0])).collect();
    let module: Module = PtxFunction::merge(&kernels).finish();
    Launch {
        module,
        grid: [launches.iter().map(|launch| launch.grid[0]).sum(), 1, 1],
        block: most(|launch| launch.block),
        shared: most(|launch| launch.shared),
        arguments: launches.iter().flat_map(|launch| launch.arguments.iter().copied()).collect(),
    }
}
