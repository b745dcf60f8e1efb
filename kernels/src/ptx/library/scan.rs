//! Scans: a thread per line where there are many lines or short ones, else a block per line or part of one.
//!
//! A thread folds its line from the start, as the CPU does. A block goes through its line in tiles: each thread folds
//! `RUN` neighbours from the start, a warp scans the threads' totals by doubling distances, the totals of the warps
//! before and of the tiles before are folded from the start, and the results are prefix after prefix combined in that
//! order. Few long lines are cut into parts: totals of all parts, a scan of these, and the parts again from there.
//! Sums start from -0 and products from 1, which change no bit of what follows.

use super::{BLOCK, KernelWriter, NumberType, Order, aligned, blocks};
use crate::library::{Scan, ScanKind};
use crate::ptx::{Argument, Class, Launch, Launches, Reg, Target};

/// Neighbours that a thread of a block folds.
const RUN: usize = 4;
/// The length of a part of a long line: some tiles of the largest block.
const PART: usize = 4 * RUN * BLOCK as usize;
/// The number of lines from which on none is cut into parts.
const ENOUGH_LINES: usize = 256;
/// Lines of so few elements are folded by one thread each.
const SHORT: usize = 32;
/// Elements that a thread reads ahead.
const AHEAD: usize = 8;

/// The launches of [`Scan`].
pub(in crate::ptx) fn scan(kernel: &Scan, target: Target) -> Launches {
    let Scan { dtype, outer, len, inner, kind, reverse, exclusive } = *kernel;
    let lines = outer * inner;
    if lines * len == 0 {
        return Launches::default();
    }
    let number = NumberType(dtype);
    let sum = match kind {
        ScanKind::Sum | ScanKind::Prod => number.wide(),
        ScanKind::Max | ScanKind::Min => number,
    };
    let whole = ScanPass {
        kind,
        from: number,
        sum,
        outer,
        len,
        inner,
        reverse,
        exclusive,
        part: len,
        starts: false,
        stored: Stored::Line(number),
    };
    let (x, out) = (Argument::Operand(0), Argument::Operand(1));
    if len <= SHORT || (inner >= 32 && lines >= 8 * ENOUGH_LINES) {
        return Launches { launches: vec![whole.by_threads(target, &[x, out])], scratch: 0 };
    }
    if lines >= ENOUGH_LINES || len < 4 * PART {
        return Launches { launches: vec![whole.by_blocks(target, &[x, out])], scratch: 0 };
    }
    let parts = len.div_ceil(PART);
    let bytes = aligned(lines * parts * sum.size());
    let (totals, starts) = (Argument::Scratch(0), Argument::Scratch(bytes));
    let first = ScanPass { part: PART, stored: Stored::Total, ..whole };
    let second = ScanPass {
        from: sum,
        outer: lines,
        len: parts,
        inner: 1,
        reverse: false,
        exclusive: true,
        part: parts,
        stored: Stored::Starts,
        ..whole
    };
    let third = ScanPass { part: PART, starts: true, ..whole };
    Launches {
        launches: vec![
            first.by_blocks(target, &[x, totals]),
            second.by_blocks(target, &[totals, starts]),
            third.by_blocks(target, &[x, out, starts]),
        ],
        scratch: 2 * bytes,
    }
}

/// The results that a pass stores.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stored {
    /// A result per element.
    Line(NumberType),
    /// The start of each part: a result per element, of the type of sums, the first of which is no unit.
    Starts,
    /// One total per part.
    Total,
}

/// A pass over lines, each cut into parts.
#[derive(Clone, Copy)]
struct ScanPass {
    kind: ScanKind,
    from: NumberType,
    /// The type of the accumulator.
    sum: NumberType,
    outer: usize,
    len: usize,
    inner: usize,
    reverse: bool,
    exclusive: bool,
    part: usize,
    /// Whether the third parameter says what the parts start from.
    starts: bool,
    stored: Stored,
}

impl ScanPass {
    fn lines(&self) -> usize {
        self.outer * self.inner
    }

    fn code(&self, name: &str, target: Target, block: u32, n_params: usize) -> KernelWriter {
        // Positions run beyond the end of a line by a tile at most.
        let largest = (self.lines() * self.len).max(self.len + 2 * PART).max(self.lines() + BLOCK as usize);
        KernelWriter::new(name, target, block, n_params, largest)
    }

    /// The neutral element, which changes nothing when it comes before a value.
    fn nothing(&self, c: &mut KernelWriter) -> Reg {
        c.constant(match self.kind {
            ScanKind::Sum => self.sum.nothing(),
            ScanKind::Prod => self.sum.small(1),
            ScanKind::Max => self.sum.lowest(),
            ScanKind::Min => self.sum.highest(),
        })
    }

    fn combine(&self, c: &mut KernelWriter, before: Reg, value: Reg) -> Reg {
        match self.kind {
            ScanKind::Sum => c.plus(self.sum, before, value),
            ScanKind::Prod => c.times(self.sum, before, value),
            ScanKind::Max => c.extreme(Order::Greater, self.sum, before, value),
            ScanKind::Min => c.extreme(Order::Less, self.sum, before, value),
        }
    }

    /// The element of the arrays at place `i` of a line in the order of accumulation.
    fn element(&self, c: &mut KernelWriter, origin: Reg, i: Reg) -> Reg {
        let row = match self.reverse {
            true => {
                let last = c.number(self.len - 1);
                c.sub(last, i)
            }
            false => i,
        };
        c.mad(row, self.inner, origin)
    }

    /// The first element of a line.
    fn origin(&self, c: &mut KernelWriter, line: Reg) -> Reg {
        let (o, column) = c.div_rem(line, self.inner);
        c.mad(o, self.len * self.inner, column)
    }

    fn load(&self, c: &mut KernelWriter, x: Reg, element: Reg) -> Reg {
        let from = c.at(x, element, self.from.size());
        let value = c.load(self.from, from, 0);
        if self.from == self.sum { value } else { c.widened(self.from, value) }
    }

    /// Stores the result at place `i` from what is accumulated before and with its element.
    fn store(&self, c: &mut KernelWriter, out: Reg, (i, element): (Reg, Reg), before: Reg, with: Reg) {
        let mut value = if self.exclusive { before } else { with };
        let number = match self.stored {
            Stored::Line(number) => number,
            Stored::Starts | Stored::Total => self.sum,
        };
        if self.kind == ScanKind::Sum && self.exclusive && self.stored != Stored::Starts && self.sum.is_float() {
            let unit = c.constant(self.sum.small(0));
            let is_first = c.test("eq", i, 0);
            value = c.select(is_first, unit, value);
        }
        if number != self.sum {
            value = c.narrowed(number, value);
        }
        let to = c.at(out, element, number.size());
        c.store(number, to, 0, value);
    }

    /// A thread per line.
    fn by_threads(&self, target: Target, arguments: &[Argument]) -> Launch {
        let mut c = self.code("scan_lines", target, BLOCK, arguments.len());
        let line = c.global_thread(BLOCK);
        let exists = c.test("lt", line, self.lines());
        c.if_then(exists, |c| {
            let (x, out) = (c.param(0), c.param(1));
            let origin = self.origin(c, line);
            let total = self.nothing(c);
            let run = |c: &mut KernelWriter, i: Reg, n: usize| {
                let places: Vec<(Reg, Reg)> = (0..n)
                    .map(|n| {
                        let i = c.add(i, n);
                        (i, self.element(c, origin, i))
                    })
                    .collect();
                let values: Vec<Reg> = places.iter().map(|(_, element)| self.load(c, x, *element)).collect();
                for (place, value) in places.into_iter().zip(values) {
                    let next = self.combine(c, total, value);
                    self.store(c, out, place, total, next);
                    c.set(total, next);
                }
            };
            let (start, rest) = (c.number(0), self.len % AHEAD);
            c.count(start, self.len - rest, AHEAD, |c, i| run(c, i, AHEAD));
            if rest > 0 {
                let i = c.number(self.len - rest);
                run(c, i, rest);
            }
        });
        c.launch(blocks(self.lines()), BLOCK, arguments)
    }

    /// A block per part.
    fn by_blocks(&self, target: Target, arguments: &[Argument]) -> Launch {
        let threads = self.part.div_ceil(RUN).next_power_of_two().clamp(32, BLOCK as usize);
        let mut c = self.code("scan_parts", target, threads as u32, arguments.len());
        let parts = self.len.div_ceil(self.part);
        let block = c.block();
        let block = c.widen(block);
        let (line, part) = c.div_rem(block, parts);
        let origin = self.origin(&mut c, line);
        let start = c.mul(part, self.part);
        let end = c.add(start, self.part);
        let end = c.min(end, self.len);
        let before = self.nothing(&mut c);
        if self.starts {
            let starts = c.param(2);
            let from = c.at(starts, block, self.sum.size());
            let value = c.load(self.sum, from, 0);
            c.set(before, value);
        }
        let tile = WarpSlots::new(&mut c, threads, self.sum);
        c.count(start, end, threads * RUN, |c, first| self.tile(c, &tile, (origin, first, end), before));
        if self.stored == Stored::Total {
            let out = c.param(1);
            let is_first = c.test("eq", tile.thread, 0);
            c.if_then(is_first, |c| {
                let to = c.at(out, block, self.sum.size());
                c.store(self.sum, to, 0, before);
            });
        }
        c.launch(self.lines() * parts, threads as u32, arguments)
    }

    /// Scans the elements of a tile from `first` on, and adds their total to `before`.
    fn tile(&self, c: &mut KernelWriter, tile: &WarpSlots, (origin, first, end): (Reg, Reg, Reg), before: Reg) {
        let (x, out) = (c.param(0), c.param(1));
        let thread = c.widen(tile.thread);
        let own = c.mad(thread, RUN, first);
        let mut run = Vec::new();
        for n in 0..RUN {
            let i = c.add(own, n);
            let exists = c.test("lt", i, end);
            let value = self.nothing(c);
            let element = self.element(c, origin, i);
            c.if_then(exists, |c| {
                let found = self.load(c, x, element);
                c.set(value, found);
            });
            run.push((i, element, exists, value));
        }
        let own_total = run.iter().map(|run| run.3).reduce(|a, b| self.combine(c, a, b));
        let total = own_total.map_or(before, |own| c.copy(own));
        for distance in [1, 2, 4, 8, 16] {
            let other = c.shuffle("up", total, distance);
            let next = self.combine(c, other, total);
            let is_beyond = c.test("ge", tile.lane, distance);
            c.select_into(total, is_beyond, next, total);
        }
        let is_last = c.test("eq", tile.lane, 31);
        c.if_then(is_last, |c| c.store_shared(self.sum, tile.own_slot, 0, total));
        let inside = c.shuffle("up", total, 1);
        let nothing = self.nothing(c);
        let is_first = c.test("eq", tile.lane, 0);
        c.select_into(inside, is_first, nothing, inside);
        c.barrier();
        let prefix = c.copy(before);
        for warp in 0..tile.warps {
            let of_warp = c.load_shared(self.sum, tile.slots, warp * self.sum.size());
            let next = self.combine(c, prefix, of_warp);
            let is_before = c.test("gt", tile.warp, warp);
            c.select_into(prefix, is_before, next, prefix);
            let next = self.combine(c, before, of_warp);
            c.set(before, next);
        }
        c.barrier();
        if self.stored == Stored::Total {
            return;
        }
        let mut sum = self.combine(c, prefix, inside);
        for (i, element, exists, value) in run {
            let next = self.combine(c, sum, value);
            c.if_then(exists, |c| self.store(c, out, (i, element), sum, next));
            sum = next;
        }
    }
}

/// The state shared by the threads of a block: a slot per warp.
struct WarpSlots {
    thread: Reg,
    lane: Reg,
    warp: Reg,
    warps: usize,
    slots: Reg,
    own_slot: Reg,
}

impl WarpSlots {
    fn new(c: &mut KernelWriter, threads: usize, sum: NumberType) -> WarpSlots {
        let warps = threads / 32;
        let thread = c.thread();
        debug_assert_eq!(thread.class, Class::B32);
        let (warp, lane) = c.div_rem(thread, 32);
        let slots = c.shared_memory("totals", warps * sum.size());
        let own_slot = c.shared_at(slots, warp, sum.size());
        WarpSlots { thread, lane, warp, warps, slots, own_slot }
    }
}
