//! A compiled plan as its calls need it: launches in order, and where the parameters of each lie.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use crate::cpu::Function;
use crate::library::Library;
use crate::phase::Phase;

/// Which buffer a parameter of a nest lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Site {
    Input(usize),
    Output(usize),
    Arena,
}

/// Where a parameter of a nest lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) site: Site,
    pub(crate) offset: usize,
    /// Its bytes.
    pub(crate) len: usize,
}

/// The work of a launch.
#[derive(Debug)]
pub(crate) enum Job {
    Code {
        function: Arc<Function>,
        items: u64,
        task: u64,
    },
    /// Functions that run in turn on each block; so many blocks are a task.
    Chain {
        links: Vec<Link>,
        blocks: u64,
        task: u64,
    },
    /// The epilogue, if there is one, runs on blocks of the result.
    Library {
        library: Library,
        n_inputs: usize,
        epilogue: Option<Arc<Function>>,
    },
}

/// A function of a chain.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) function: Arc<Function>,
    /// Its first entry, from that of the launch on.
    pub(crate) first: usize,
    /// Its items, and those of a block.
    pub(crate) items: u64,
    pub(crate) per_block: u64,
}

/// One call of a function or of a library kernel.
#[derive(Debug)]
pub(crate) struct HostLaunch {
    pub(crate) job: Job,
    /// Its first entry and how many it has.
    pub(crate) first: usize,
    pub(crate) count: usize,
    /// The steps that it does, or a part of one.
    pub(crate) steps: Range<usize>,
}

/// The parts of a compiled plan that a workspace needs.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) launches: Vec<HostLaunch>,
    /// The phases of a call. One that is watched runs the launches one by one.
    pub(crate) phases: Vec<Phase>,
    pub(crate) entries: Vec<Entry>,
    /// The entries that lie in buffers of the call.
    pub(crate) bound: BoundEntries,
    /// Bytes of the inputs and outputs.
    pub(crate) inputs: Vec<usize>,
    pub(crate) outputs: Vec<usize>,
    /// The pairs of an input and an output that it may lie in, sorted.
    pub(crate) donations: Vec<(usize, usize)>,
    /// Numbers that code reads, which lie in the arena from there on.
    pub(crate) constants: Vec<u8>,
    pub(crate) constants_at: usize,
    /// Arena, scratch, constants and flags.
    pub(crate) arena_bytes: usize,
    /// Where the flags of the launches lie at the end of the arena, if code raises any.
    pub(crate) flags_at: Option<usize>,
}

impl Program {
    /// Whether an input may lie in an output.
    pub(crate) fn may_lie(&self, input: usize, output: usize) -> bool {
        self.donations.binary_search(&(input, output)).is_ok()
    }
}

/// The entries of a program that lie in buffers of the call, by buffer.
#[derive(Debug)]
pub(crate) struct BoundEntries {
    /// Those of each input in turn, then those of each output.
    entries: Vec<usize>,
    /// Where those of each buffer end.
    ends: Vec<usize>,
    n_inputs: usize,
}

impl BoundEntries {
    pub(crate) fn of(entries: &[Entry], n_inputs: usize, n_outputs: usize) -> BoundEntries {
        let number = |entry: &Entry| match entry.site {
            Site::Input(n) => Some(n),
            Site::Output(n) => Some(n_inputs + n),
            Site::Arena => None,
        };
        let mut bound: Vec<(usize, usize)> =
            entries.iter().enumerate().filter_map(|(at, entry)| Some((number(entry)?, at))).collect();
        bound.sort_unstable();
        let ends = (0..n_inputs + n_outputs).map(|n| bound.partition_point(|&(buffer, _)| buffer <= n)).collect();
        BoundEntries { entries: bound.into_iter().map(|(_, at)| at).collect(), ends, n_inputs }
    }

    fn of_buffer(&self, n: usize) -> &[usize] {
        let start = n.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.entries[start..self.ends[n]]
    }

    /// The entries that lie in an input.
    #[inline]
    pub(crate) fn input(&self, n: usize) -> &[usize] {
        self.of_buffer(n)
    }

    /// The entries that lie in an output.
    #[inline]
    pub(crate) fn output(&self, n: usize) -> &[usize] {
        self.of_buffer(self.n_inputs + n)
    }
}

/// How a plan is compiled. No mode but [`nondeterministic`](Modes::nondeterministic) changes a bit of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Modes {
    /// Whether code notes that it stored NaN or an infinity; see [`Executable::run_trapped`](crate::Executable::run_trapped).
    pub trap: bool,
    /// Whether small nests stay functions of their own instead of being merged.
    pub separate: bool,
    /// Whether a GPU may add numbers in an order that differs between runs, where that is faster. The processor has no
    /// such code.
    pub nondeterministic: bool,
}

/// The bytes of a flag.
pub(crate) const FLAG_BYTES: usize = 4;

/// When a launch of a call ran, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchTime {
    /// When it began.
    pub start: Instant,
    /// Nanoseconds.
    pub nanos: u64,
}
