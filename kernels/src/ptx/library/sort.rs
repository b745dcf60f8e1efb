//! Stable sorting: tiles in shared memory by a bitonic network, then passes that merge pairs of runs.
//!
//! In a pass each block makes one tile of the result. It finds by bisection which parts of the two runs make the tile,
//! loads them, and puts each entry behind those of the other part that come before it.
//!
//! All passes but the last share one kernel. A kernel gets addresses only, so the number of the pass is told by the
//! distance of two of them.

use retape_runtime::DType;

use super::entry::{EntryForm, Keys, MAX_PACKED, SortEntry};
use super::{BLOCK, KernelWriter, NumberType, aligned};
use crate::error::{Error, Result};
use crate::library::Sort;
use crate::ptx::{Argument, Class, Launch, Launches, Reg, Target, ptx};

/// Bytes of a tile that is sorted in shared memory.
const TILE_BYTES: usize = 1 << 14;
/// Entries of the result that a block merges: no more than a tile has.
const MERGED: usize = 4 * BLOCK as usize;
/// Bytes between the addresses that tell the numbers of neighbouring passes.
const TELL: usize = 256;

const I64: NumberType = NumberType(DType::I64);

/// The launches of [`Sort`].
///
/// # Errors
///
/// Fails if lines are longer than entries can count.
pub(in crate::ptx) fn sort(kernel: &Sort, target: Target) -> Result<Launches> {
    let keys = Keys::Elements(NumberType::of(kernel.dtype), kernel.inner, kernel.descending);
    let lines = kernel.outer * kernel.inner;
    if lines * kernel.kept == 0 {
        return Ok(Launches::default());
    }
    if keys.form() == EntryForm::Packed && kernel.len >= MAX_PACKED {
        return Err(Error::Unsupported(format!("sorting {} elements along an axis", kernel.len)));
    }
    let sorter = Sorter { keys, lines, len: kernel.len, kept: kernel.kept, target };
    let (launches, scratch) = sorter.launches(Argument::Operand(0), Goal::Positions(Argument::Operand(1)));
    Ok(Launches { launches, scratch })
}

/// The wanted result of sorted lines.
#[derive(Clone, Copy)]
pub(super) enum Goal {
    /// The positions, as elements along the axis.
    Positions(Argument),
    /// The entries, `[lines, len]`, at the start of the scratch memory.
    Entries,
}

/// Sorts each of some lines.
pub(super) struct Sorter {
    pub(super) keys: Keys,
    pub(super) lines: usize,
    pub(super) len: usize,
    /// Positions that are stored of each line, if these are the goal.
    pub(super) kept: usize,
    pub(super) target: Target,
}

impl Sorter {
    fn form(&self) -> EntryForm {
        self.keys.form()
    }

    /// Entries of a tile that is sorted in shared memory.
    fn tile(&self) -> usize {
        self.len.next_power_of_two().clamp(64, TILE_BYTES / self.form().size())
    }

    /// The launches, and how much of the scratch memory they use from its start on.
    pub(super) fn launches(&self, source: Argument, goal: Goal) -> (Vec<Launch>, usize) {
        let passes = self.len.div_ceil(self.tile()).next_power_of_two().ilog2() as usize;
        let bytes = aligned(self.lines * self.len * self.form().size());
        // Entries move between two places, the last time to the first of them.
        let place = |pass: usize| match goal {
            Goal::Positions(out) if pass == passes => out,
            Goal::Positions(_) => Argument::Scratch((passes - pass - 1) % 2 * bytes),
            Goal::Entries => Argument::Scratch((passes - pass) % 2 * bytes),
        };
        let is_out = |pass: usize| pass == passes && matches!(goal, Goal::Positions(_));
        let mut launches = vec![self.sort_tiles(&[source, place(0)], is_out(0))];
        for pass in 1..=passes {
            let tell = [Argument::Scratch(0), Argument::Scratch((pass - 1) * TELL)];
            launches.push(self.merge(&[place(pass - 1), place(pass), tell[0], tell[1]], is_out(pass)));
        }
        let places = match goal {
            Goal::Positions(_) => passes.min(2),
            Goal::Entries => (passes + 1).min(2),
        };
        (launches, places * bytes)
    }

    fn code(&self, name: &str, block: u32, n_params: usize) -> KernelWriter {
        KernelWriter::new(name, self.target, block, n_params, self.lines * self.len + 4 * TILE_BYTES)
    }

    /// The element along an axis of extent `len` at position `i` of a line.
    fn element(&self, c: &mut KernelWriter, len: usize, line: Reg, i: Reg) -> Reg {
        let (o, column) = c.div_rem(line, self.keys.inner());
        let row = c.mad(o, len, i);
        c.mad(row, self.keys.inner(), column)
    }

    /// Stores entry number `i` of a line.
    fn store(&self, c: &mut KernelWriter, to: Reg, is_out: bool, (line, i): (Reg, Reg), entry: SortEntry) {
        let store = |c: &mut KernelWriter| {
            let element = self.element(c, self.kept, line, i);
            let to = c.at(to, element, I64.size());
            let position = entry.position(c);
            c.store(I64, to, 0, position);
        };
        if is_out && self.kept < self.len {
            let is_kept = c.test("lt", i, self.kept);
            c.if_then(is_kept, store);
        } else if is_out {
            store(c);
        } else {
            let slot = c.mad(line, self.len, i);
            let to = c.at(to, slot, self.form().size());
            entry.store(c, "global", to);
        }
    }

    /// Sorts each tile of each line.
    fn sort_tiles(&self, arguments: &[Argument], is_out: bool) -> Launch {
        let (tile, form) = (self.tile(), self.form());
        let threads = (tile / 2).clamp(32, 512);
        let mut c = self.code("sort_tiles", threads as u32, arguments.len());
        let (x, out) = (c.param(0), c.param(1));
        let memory = c.shared_memory("entries", tile * form.size());
        let (block, thread) = (c.block(), c.thread());
        let block = c.widen(block);
        let tiles = self.len.div_ceil(tile);
        let (line, tile_number) = c.div_rem(block, tiles);
        let first = c.mul(tile_number, tile);
        let each_slot = |c: &mut KernelWriter, body: &dyn Fn(&mut KernelWriter, Reg, Reg, Reg)| {
            for n in 0..tile / threads {
                let slot = c.add(thread, n * threads);
                let address = c.shared_at(memory, slot, form.size());
                let slot = c.widen(slot);
                let i = c.add(slot, first);
                let exists = c.test("lt", i, self.len);
                body(c, address, i, exists);
            }
        };
        each_slot(&mut c, &|c, address, i, exists| {
            let entry = form.last(c).copy(c);
            c.if_then(exists, |c| {
                let element = self.element(c, self.len, line, i);
                let found = self.keys.entry(c, x, element, i);
                entry.set(c, found);
            });
            entry.store(c, "shared", address);
        });
        c.barrier();
        self.network(&mut c, memory, thread, threads);
        each_slot(&mut c, &|c, address, i, exists| {
            c.if_then(exists, |c| {
                let entry = form.load(c, "shared", address);
                self.store(c, out, is_out, (line, i), entry);
            });
        });
        c.launch(self.lines * tiles, threads as u32, arguments)
    }

    /// The bitonic network: runs of two make a run of twice the length, until one is left.
    fn network(&self, c: &mut KernelWriter, memory: Reg, thread: Reg, threads: usize) {
        let (tile, form) = (self.tile(), self.form());
        let run = c.op(Class::B32, "mov.b32", format_args!("2"));
        c.while_loop(
            |c| c.test("le", run, tile),
            |c| {
                let distance = c.shr(run, 1);
                c.while_loop(
                    |c| c.test("ne", distance, 0),
                    |c| {
                        let low_bits = c.sub(distance, 1);
                        for n in 0..tile / 2 / threads {
                            let pair = c.add(thread, n * threads);
                            let low = c.and(pair, low_bits);
                            // The bits from that of the distance on move up by one.
                            let i = c.add(pair, pair);
                            let i = c.sub(i, low);
                            let address = c.shared_at(memory, i, form.size());
                            let other_address = c.shared_at(address, distance, form.size());
                            let entry = form.load(c, "shared", address);
                            let other = form.load(c, "shared", other_address);
                            let descends = c.and(i, run);
                            let descends = c.test("ne", descends, 0);
                            let ordered = entry.is_before(c, other);
                            let swap = c.reg(Class::Pred);
                            ptx!(c, "xor.pred {swap}, {ordered}, {descends}");
                            let swap = c.not(swap);
                            c.if_then(swap, |c| {
                                other.store(c, "shared", address);
                                entry.store(c, "shared", other_address);
                            });
                        }
                        c.barrier();
                        ptx!(c, "shr.u32 {distance}, {distance}, 1");
                    },
                );
                ptx!(c, "shl.b32 {run}, {run}, 1");
            },
        );
    }

    /// Merges pairs of runs of each line.
    fn merge(&self, arguments: &[Argument], is_out: bool) -> Launch {
        let form = self.form();
        let name = if is_out { "merge_positions" } else { "merge_entries" };
        let mut c = self.code(name, BLOCK, arguments.len());
        let merging = Merging::new(&mut c, self);
        let (entries, out) = (c.param(0), c.param(1));
        let start = c.mul(merging.line, self.len);
        let start = c.add(start, merging.pair);
        let left = c.at(entries, start, form.size());
        let right = c.at(left, merging.n_left, form.size());
        let memory = c.shared_memory("merged", MERGED * form.size());
        let (skipped, n_left, n) = self.parts_of_tile(&mut c, &merging, left, right);
        let each = |c: &mut KernelWriter, body: &dyn Fn(&mut KernelWriter, Reg, Reg, Reg)| {
            for step in 0..MERGED / BLOCK as usize {
                let slot = c.add(merging.thread, step * BLOCK as usize);
                let address = c.shared_at(memory, slot, form.size());
                let exists = c.test("lt", slot, n);
                let is_left = c.test("lt", slot, n_left);
                c.if_then(exists, |c| body(c, slot, address, is_left));
            }
        };
        each(&mut c, &|c, slot, address, is_left| {
            let place = c.widen(slot);
            let on_left = c.add(skipped[0], place);
            let place = c.add(skipped[1], place);
            let before = c.widen(n_left);
            let on_right = c.sub(place, before);
            let run = c.select(is_left, left, right);
            let place = c.select(is_left, on_left, on_right);
            let from = c.at(run, place, form.size());
            form.load(c, "global", from).store(c, "shared", address);
        });
        c.barrier();
        each(&mut c, &|c, slot, address, is_left| {
            let entry = form.load(c, "shared", address);
            let zero = c.op(Class::B32, "mov.b32", format_args!("0"));
            // The slots of the other part.
            let (low, high) = (c.select(is_left, n_left, zero), c.select(is_left, n, n_left));
            let found = bisect(c, low, high, |c, middle| {
                let from = c.shared_at(memory, middle, form.size());
                form.load(c, "shared", from).is_before(c, entry)
            });
            // From the right part the slots of the left are counted already, and the other way round.
            let rank = c.add(slot, found);
            let rank = c.sub(rank, n_left);
            let rank = c.widen(rank);
            let i = c.add(merging.tile, rank);
            self.store(c, out, is_out, (merging.line, i), entry);
        });
        c.launch(self.lines * self.len.div_ceil(MERGED), BLOCK, arguments)
    }

    /// How many entries of the two runs come before the tile, how many of it are from the left run, and how many it
    /// has; the last two of 32 bits.
    fn parts_of_tile(&self, c: &mut KernelWriter, merging: &Merging, left: Reg, right: Reg) -> ([Reg; 2], Reg, Reg) {
        let form = self.form();
        let ends = c.shared_memory("ends", 16);
        let from = c.sub(merging.tile, merging.pair);
        let both = c.add(merging.n_left, merging.n_right);
        let to = c.add(from, MERGED);
        let to = c.min(to, both);
        // One thread finds the start, one the end.
        let searches = c.test("lt", merging.thread, 2);
        c.if_then(searches, |c| {
            let is_end = c.test("eq", merging.thread, 1);
            let diagonal = c.select(is_end, to, from);
            let low = c.max(diagonal, merging.n_right);
            let low = c.sub(low, merging.n_right);
            let high = c.min(diagonal, merging.n_left);
            let found = bisect(c, low, high, |c, middle| {
                let mirrored = c.sub(diagonal, 1);
                let mirrored = c.sub(mirrored, middle);
                let (a, b) = (c.at(left, middle, form.size()), c.at(right, mirrored, form.size()));
                let (a, b) = (form.load(c, "global", a), form.load(c, "global", b));
                a.is_before(c, b)
            });
            let to = c.shared_at(ends, merging.thread, 8);
            let found = c.long(found);
            c.store_shared(I64, to, 0, found);
        });
        c.barrier();
        let [left_start, left_end] = [0, 8].map(|offset| {
            let end = c.load_shared(I64, ends, offset);
            if c.position == end.class { end } else { c.low(end) }
        });
        let right_start = c.sub(from, left_start);
        let n_left = c.sub(left_end, left_start);
        let n = c.sub(to, from);
        ([left_start, right_start], c.low(n_left), c.low(n))
    }
}

/// The numbers of a block that merges.
struct Merging {
    thread: Reg,
    line: Reg,
    /// The first entry of the line that the block makes.
    tile: Reg,
    /// The first entry of the line in the two runs.
    pair: Reg,
    /// Entries of the runs.
    n_left: Reg,
    n_right: Reg,
}

impl Merging {
    fn new(c: &mut KernelWriter, sorter: &Sorter) -> Merging {
        let (base, told) = (c.param(2), c.param(3));
        let (block, thread) = (c.block(), c.thread());
        let block = c.widen(block);
        let (line, tile) = c.div_rem(block, sorter.len.div_ceil(MERGED));
        let tile = c.mul(tile, MERGED);
        let pass = c.sub(told, base);
        let pass = c.shr(pass, TELL.ilog2());
        let pass = c.low(pass);
        let run = c.number(sorter.tile());
        let run = c.shl(run, pass);
        let double = c.add(run, run);
        // The first position of the pair: runs have lengths of powers of two.
        let in_pair = c.sub(double, 1);
        let in_pair = c.and(tile, in_pair);
        let pair = c.sub(tile, in_pair);
        let rest = c.number(sorter.len);
        let rest = c.sub(rest, pair);
        let n_left = c.min(rest, run);
        let rest = c.sub(rest, n_left);
        let n_right = c.min(rest, run);
        Merging { thread, line, tile, pair, n_left, n_right }
    }
}

/// The first number from `low` to below `high` for which `goes_on` does not hold, `high` if there is none; it holds
/// for none after that.
pub(super) fn bisect(
    c: &mut KernelWriter,
    low: Reg,
    high: Reg,
    goes_on: impl FnOnce(&mut KernelWriter, Reg) -> Reg,
) -> Reg {
    let (low, high) = (c.copy(low), c.copy(high));
    c.while_loop(
        |c| c.test("lt", low, high),
        |c| {
            let sum = c.add(low, high);
            let middle = c.shr(sum, 1);
            let holds = goes_on(c, middle);
            let next = c.add(middle, 1);
            c.select_into(low, holds, next, low);
            c.select_into(high, holds, high, middle);
        },
    );
    low
}
