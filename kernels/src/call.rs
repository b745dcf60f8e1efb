//! The memory of one call and the jump into generated code: the only unsafe code of the emitter.
//!
//! Why the jump is sound, in one place. A [`Program`] is made from a verified plan only. Verification proves that every
//! access of a kernel lies inside its parameters (affine maps are checked over the whole iteration space, computed
//! positions are clamped by the code), that each parameter is bound to a range of its own length inside an input, an
//! output, a constant or the arena, and that what a step writes overlaps nothing that it reads, except elements
//! that one point reads before it writes them. A [`Workspace`] asks for each buffer of the call once, checks its length,
//! and holds the arena, which no other call uses. Items of a nest write different elements, so that they can run in
//! parallel. Generated code calls only functions of this crate that have no effects. An epilogue runs on blocks of a
//! library kernel's result while the kernel computes others: blocks are disjoint, the epilogue reads the result and what
//! it writes over it at the elements of its block only, and verification has proved that it writes over nothing that the
//! library kernel reads. Functions of a chain run in turn on the rows of one block while others run on other blocks: what
//! one of them writes and another one accesses are bytes of the same row (`chain.rs`); so do launches of a region on their
//! rows (`region.rs`).
//!
//! Buffers of a call own their bytes, and the outputs are borrowed exclusively while the inputs are borrowed, so an input
//! shares its bytes with nothing that is written, with one exception: an input that was donated may *be* an output,
//! by a donation of the plan, which [`Workspace`] looks up. Verification has proved of each such pair that
//! the steps which read the input come before the one that writes the output, or are it, a kernel which at every
//! point reads just the element that it writes; library steps are never both. A pair concerns no other buffer, and
//! each input and output is in at most one of those in use, so pairs do not disturb each other.

use std::time::Instant;

use retape_runtime::{Buffer, n_threads, parallel_for};
use smallvec::SmallVec;

use crate::cpu::Function;
use crate::donation::Bytes;
use crate::error::{Error, Result};
use crate::library::{RowPart, Tile};
use crate::phase::{LinkWork, OneTask, Phase, Region, RegionLink};
use crate::program::{Entry, HostLaunch, Job, LaunchTime, Program, Site};

impl Function {
    /// Runs the items `begin..end`.
    ///
    /// # Safety
    ///
    /// `table` holds a pointer for each parameter of each nest of the function, valid for what the nest accesses
    /// during the call, and no other thread accesses what the items write.
    #[inline]
    pub(crate) unsafe fn call(&self, table: *const *mut u8, begin: u64, end: u64) {
        let address = self.code.address(self.offset);
        // SAFETY: a function with this signature and the default calling convention starts at the address, since
        // `compile` put it there; `self` keeps the mapping alive.
        let function: extern "C" fn(*const *mut u8, u64, u64) = unsafe { std::mem::transmute(address) };
        function(table, begin, end);
    }
}

/// The memory of one call at a time: the arena, and where each parameter of each nest lies.
#[derive(Debug)]
pub(crate) struct Workspace {
    arena: Buffer,
    /// Short ones lie in the workspace itself, so that the workspaces of two threads share no cache line.
    table: SmallVec<[*mut u8; 16]>,
}

// SAFETY: the pointers of an idle workspace are used by nobody; `bind` sets those of buffers it does not own.
unsafe impl Send for Workspace {}

/// Sees the number of a launch that has run, the arena and the outputs.
pub(crate) type After<'a> = dyn FnMut(usize, &[u8], &[Buffer]) + 'a;

/// A pointer table that threads share during a launch.
#[derive(Clone, Copy)]
struct Table(*const *mut u8);

// SAFETY: threads only read the table; the call argues for their use of the pointers.
unsafe impl Sync for Table {}

impl Table {
    fn at(&self) -> *const *mut u8 {
        self.0
    }
}

/// An epilogue that runs on blocks of a library kernel's result.
struct TileEpilogue<'a> {
    function: &'a Function,
    /// The result's first element.
    accumulator: *mut u8,
    /// Where the epilogue's parameters lie.
    table: &'a [*mut u8],
}

// SAFETY: threads only read the table; the call argues for their use of the pointers.
unsafe impl Sync for TileEpilogue<'_> {}

impl TileEpilogue<'_> {
    /// Runs on a finished block.
    fn run(&self, tile: &Tile) {
        let start = tile.data.wrapping_sub(tile.offset());
        // Memory of the result is reached by the pointer that the block was written with.
        let own = |&pointer: &*mut u8| if pointer == self.accumulator { start } else { pointer };
        let columns = [tile.cols.start, tile.cols.end].map(std::ptr::without_provenance_mut);
        let table: SmallVec<[*mut u8; 16]> = self.table.iter().map(own).chain(columns).collect();
        // SAFETY: the argument at the head of this file. The rows and columns of different blocks are disjoint, and this
        // one is finished; the table ends with the columns, as functions of such nests expect.
        unsafe { self.function.call(table.as_ptr(), tile.rows.start as u64, tile.rows.end as u64) };
    }
}

impl Workspace {
    /// A workspace for a program, with an arena of its own.
    pub(crate) fn new(program: &Program) -> Result<Workspace> {
        let mut arena = Buffer::alloc(program.arena_bytes)?;
        if !program.constants.is_empty() {
            arena.bytes_mut()[program.constants_at..][..program.constants.len()].copy_from_slice(&program.constants);
        }
        let base = arena.as_mut_ptr();
        let pointer = |entry: &Entry| match entry.site {
            Site::Arena => base.wrapping_add(entry.offset),
            Site::Input(_) | Site::Output(_) => std::ptr::null_mut(),
        };
        Ok(Workspace { arena, table: program.entries.iter().map(pointer).collect() })
    }

    /// Runs the program on these buffers. `clock`, if any, gets the time of each launch; launches run one by one then.
    pub(crate) fn run<'b>(
        &mut self,
        program: &Program,
        input: impl Fn(usize) -> Option<Bytes<'b>>,
        outputs: &'b mut [Buffer],
        clock: Option<&mut Vec<LaunchTime>>,
    ) -> Result<()> {
        self.bind(program, input, outputs)?;
        let Some(clock) = clock else {
            return program.phases.iter().try_for_each(|phase| self.phase(program, phase));
        };
        for launch in &program.launches {
            let start = Instant::now();
            self.launch(program, launch)?;
            clock.push(LaunchTime { start, nanos: start.elapsed().as_nanos() as u64 });
        }
        Ok(())
    }

    fn phase(&self, program: &Program, phase: &Phase) -> Result<()> {
        match phase {
            Phase::Launch(launch) => self.launch(program, &program.launches[*launch])?,
            Phase::Apart(tasks) => {
                let table = Table(self.table.as_ptr());
                parallel_for(tasks.len(), &|n| {
                    let OneTask { first, function, items, .. } = &tasks[n];
                    // SAFETY: the argument at the head of this file; no launch touches what another one writes.
                    unsafe { function.call(table.at().add(*first), 0, *items) };
                });
            }
            Phase::Region(region) => self.region(region),
        }
        Ok(())
    }

    /// Runs all launches of a region on each part of its rows.
    fn region(&self, region: &Region) {
        let (table, (number, cut)) = (Table(self.table.as_ptr()), region.cut(n_threads()));
        parallel_for(cut.count(), &|part| {
            let rows = cut.part(part);
            for RegionLink { first, count, work, .. } in &region.links {
                // SAFETY: the entries of the launch, which nobody changes during a call.
                let pointers = unsafe { std::slice::from_raw_parts(table.at().add(*first), *count) };
                match work {
                    LinkWork::Code { function, items_of_row } => {
                        let [begin, end] = [rows.start, rows.end].map(|row| row as u64 * items_of_row);
                        // SAFETY: the argument at the head of this file: the items of a part are its rows.
                        unsafe { function.call(pointers.as_ptr(), begin, end) };
                    }
                    LinkWork::Library { parts, epilogue } => {
                        // SAFETY: as above, of the rows of a library kernel.
                        unsafe { run_rows(&parts[number][part], epilogue.as_deref(), pointers) };
                    }
                }
            }
        });
    }

    /// Runs the program on these buffers and shows the arena and the outputs after each launch. Launches that `is_left_out`
    /// picks do not happen.
    pub(crate) fn run_instrumented(
        &mut self,
        program: &Program,
        inputs: &[&Buffer],
        outputs: &mut [Buffer],
        is_left_out: fn(&HostLaunch) -> bool,
        after: &mut After<'_>,
    ) -> Result<()> {
        self.bind(program, |n| inputs.get(n).copied().map(Bytes::Borrowed), outputs)?;
        if let Some(flags_at) = program.flags_at {
            self.arena.bytes_mut()[flags_at..].fill(0);
        }
        for (n, launch) in program.launches.iter().enumerate() {
            if !is_left_out(launch) {
                self.launch(program, launch)?;
            }
            after(n, self.arena.bytes(), outputs);
        }
        Ok(())
    }

    /// Points the entries of the table to the buffers of a call, each of which is asked for once.
    ///
    /// Invariant: the caller borrows all that `input` gives, and the outputs exclusively, until the last launch is done.
    fn bind<'b>(
        &mut self,
        program: &Program,
        input: impl Fn(usize) -> Option<Bytes<'b>>,
        outputs: &'b mut [Buffer],
    ) -> Result<()> {
        if outputs.len() != program.outputs.len() {
            return Err(Error::Buffers(format!("{} outputs instead of {}", outputs.len(), program.outputs.len())));
        }
        debug_assert!(self.arena.len() == program.arena_bytes, "a frame belongs to one program");
        for (n, (buffer, &len)) in outputs.iter_mut().zip(&program.outputs).enumerate() {
            if buffer.len() != len {
                return Err(Error::Buffers(format!("output {n} has {} bytes instead of {len}", buffer.len())));
            }
            let pointer = buffer.as_mut_ptr();
            program.bound.output(n).iter().for_each(|&at| self.table[at] = pointer);
        }
        let mut taken = Numbers::default();
        for (n, &len) in program.inputs.iter().enumerate() {
            let (found, pointer) = match input(n) {
                Some(Bytes::Borrowed(buffer)) => (buffer.len(), buffer.as_ptr().cast_mut()),
                Some(Bytes::Output(output)) => {
                    if !program.may_lie(n, output) || !taken.insert(output) {
                        return Err(Error::Buffers(format!(
                            "input {n} lies in output {output}, which it does not go to"
                        )));
                    }
                    (outputs[output].len(), outputs[output].as_mut_ptr())
                }
                None => return Err(Error::Buffers(format!("there is no input {n}"))),
            };
            if found != len {
                return Err(Error::Buffers(format!("input {n} has {found} bytes instead of {len}")));
            }
            program.bound.input(n).iter().for_each(|&at| self.table[at] = pointer);
        }
        Ok(())
    }

    #[inline]
    fn launch(&self, program: &Program, launch: &HostLaunch) -> Result<()> {
        let table = Table(self.table[launch.first..].as_ptr());
        match &launch.job {
            Job::Code { function, items, task } => {
                if items <= task {
                    // SAFETY: the argument at the head of this file; the whole range runs on this thread.
                    unsafe { function.call(table.at(), 0, *items) };
                    return Ok(());
                }
                parallel_for(items.div_ceil(*task) as usize, &|n| {
                    let begin = n as u64 * task;
                    // SAFETY: as above; the ranges of different tasks are disjoint.
                    unsafe { function.call(table.at(), begin, (begin + task).min(*items)) };
                });
                Ok(())
            }
            Job::Chain { links, blocks, task } => {
                parallel_for(blocks.div_ceil(*task) as usize, &|n| {
                    let begin = n as u64 * task;
                    for block in begin..(begin + task).min(*blocks) {
                        for link in links {
                            let [begin, end] = [block, block + 1].map(|at| (at * link.per_block).min(link.items));
                            // SAFETY: as above; the entries of each function lie behind those of the one before.
                            unsafe { link.function.call(table.at().add(link.first), begin, end) };
                        }
                    }
                });
                Ok(())
            }
            Job::Library { library, n_inputs, epilogue } => {
                let n_own = if epilogue.is_some() { n_inputs + 1 } else { launch.count };
                let entries = &program.entries[launch.first..launch.first + n_own];
                let (pointers, others) = self.table[launch.first..launch.first + launch.count].split_at(n_own);
                let (read, written) = entries.split_at(*n_inputs);
                // SAFETY: entries of a verified plan lie inside live memory of at least `len` bytes, and an operand
                // that a library step writes overlaps none of its other operands.
                let inputs = read.iter().zip(pointers).map(|(e, &p)| unsafe { slice(p, e.len) });
                let inputs: SmallVec<[&[u8]; 4]> = inputs.collect();
                let mut outputs: SmallVec<[&mut [u8]; 2]> = written
                    .iter()
                    .zip(&pointers[*n_inputs..])
                    // SAFETY: as for the inputs.
                    .map(|(e, &p)| unsafe { slice_mut(p, e.len) })
                    .collect();
                let Some(function) = epilogue else { return library.launch(&inputs, &mut outputs) };
                let epilogue = TileEpilogue { function, accumulator: pointers[*n_inputs], table: others };
                library.run_with(&inputs, &mut outputs, &|tile| epilogue.run(&tile));
                Ok(())
            }
        }
    }
}

/// Computes rows of a library kernel, and what its epilogue makes of them.
///
/// # Safety
///
/// `pointers` has those of the operands and then of the epilogue's parameters, as a launch has them. While this runs,
/// nobody writes what the rows read or accesses what they write.
unsafe fn run_rows(part: &RowPart, epilogue: Option<&Function>, pointers: &[*mut u8]) {
    let (own, others) = pointers.split_at(part.inputs().len() + 1);
    let reads = part.inputs().iter().zip(own);
    // SAFETY: inside the operand, by the caller's promise.
    let inputs = reads.map(|(bytes, pointer)| unsafe { slice(pointer.wrapping_add(bytes.start), bytes.len()) });
    let inputs: SmallVec<[&[u8]; 4]> = inputs.collect();
    let (accumulator, bytes) = (own[part.inputs().len()], part.output());
    // SAFETY: as above.
    let output = unsafe { slice_mut(accumulator.wrapping_add(bytes.start), bytes.len()) };
    let Some(function) = epilogue else { return part.run(&inputs, output, &|_| {}) };
    let epilogue = TileEpilogue { function, accumulator, table: others };
    part.run(&inputs, output, &|tile| epilogue.run(&tile));
}

/// A set of numbers of outputs, of which a call may have thousands: a bit for each.
#[derive(Default)]
struct Numbers {
    words: SmallVec<[u64; 8]>,
}

impl Numbers {
    /// Adds a number; returns whether it is new.
    fn insert(&mut self, number: usize) -> bool {
        let (word, bit) = (number / 64, 1 << (number % 64));
        self.words.resize(self.words.len().max(word + 1), 0);
        let is_new = self.words[word] & bit == 0;
        self.words[word] |= bit;
        is_new
    }
}

/// The bytes at `pointer`; an empty slice has no address.
///
/// # Safety
///
/// `pointer` is valid for reads of `len` bytes for `'a`, and nobody writes them meanwhile.
unsafe fn slice<'a>(pointer: *const u8, len: usize) -> &'a [u8] {
    // SAFETY: the caller's promise.
    if len == 0 { &[] } else { unsafe { std::slice::from_raw_parts(pointer, len) } }
}

/// As [`slice`], to write.
///
/// # Safety
///
/// `pointer` is valid for reads and writes of `len` bytes for `'a`, and nobody else accesses them meanwhile.
unsafe fn slice_mut<'a>(pointer: *mut u8, len: usize) -> &'a mut [u8] {
    // SAFETY: the caller's promise.
    if len == 0 { &mut [] } else { unsafe { std::slice::from_raw_parts_mut(pointer, len) } }
}
