//! Scans and linear recurrences: a thread per line where there are many lines or short ones, else a block per line or
//! part of one.
//!
//! A thread folds its line from the start, as the CPU does. A block goes through its line in tiles: each thread folds
//! `RUN` neighbours from the start, a warp scans the threads' totals by doubling distances, the totals of the warps
//! before and of the tiles before are folded from the start, and the results are prefix after prefix combined in that
//! order. Few long lines are cut into parts: totals of all parts, a scan of these, and the parts again from there.
//! Sums start from -0 and products from 1, which change no bit of what follows.
//!
//! The elements of a recurrence are steps `s -> term + coefficient * s`, and one step after another is such a step as
//! well (G. E. Blelloch, "Prefix sums and their applications", 1990, section 1.4). Behind coefficients that are infinite or
//! overflow in their product, and infinite states times a product that underflows, states are infinite or NaN.

use smallvec::{SmallVec, smallvec};

use super::{BLOCK, KernelWriter, NumberType, Order, aligned, blocks};
use crate::library::{Recurrence, Scan, ScanKind};
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
    let number = NumberType(dtype);
    let sum = match kind {
        ScanKind::Sum | ScanKind::Prod => number.wide(),
        ScanKind::Max | ScanKind::Min => number,
    };
    let (fold, stored) = (ScanFold::Scan(kind), Stored::Line(number));
    let whole =
        ScanPass { fold, from: number, sum, outer, len, inner, reverse, exclusive, part: len, starts: false, stored };
    whole.launches(target)
}

/// The launches of [`Recurrence`].
pub(in crate::ptx) fn recurrence(kernel: &Recurrence, target: Target) -> Launches {
    let Recurrence { dtype, outer, len, inner, reverse, lagging } = *kernel;
    let number = NumberType(dtype);
    let (fold, stored) = (ScanFold::Recurrence { lagging }, Stored::Line(number));
    let (sum, exclusive, starts) = (number.wide(), false, false);
    let whole = ScanPass { fold, from: number, sum, outer, len, inner, reverse, exclusive, part: len, starts, stored };
    whole.launches(target)
}

/// The operation that is accumulated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ScanFold {
    Scan(ScanKind),
    /// A step of a recurrence after those before; the coefficient may be that at the element before.
    Recurrence {
        lagging: bool,
    },
}

/// Accumulated elements: their fold, or the term and the coefficient of the steps of a recurrence together.
type Prefix = SmallVec<[Reg; 2]>;

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
///
/// Its parameters are the inputs, the outputs, and the starts of the parts if there are any.
#[derive(Clone, Copy)]
struct ScanPass {
    fold: ScanFold,
    from: NumberType,
    /// The type of the accumulator.
    sum: NumberType,
    outer: usize,
    len: usize,
    inner: usize,
    reverse: bool,
    exclusive: bool,
    part: usize,
    /// Whether the last parameter says what the parts start from.
    starts: bool,
    stored: Stored,
}

impl ScanPass {
    fn lines(&self) -> usize {
        self.outer * self.inner
    }

    /// The inputs, and the values of an accumulated element.
    fn n_inputs(&self) -> usize {
        match self.fold {
            ScanFold::Scan(_) => 1,
            ScanFold::Recurrence { .. } => 2,
        }
    }

    /// The launches of a pass over whole lines.
    fn launches(self, target: Target) -> Launches {
        let (whole, lines, n_inputs) = (self, self.lines(), self.n_inputs());
        if lines * self.len == 0 {
            return Launches::default();
        }
        let operands: Vec<Argument> = (0..=n_inputs).map(Argument::Operand).collect();
        if self.len <= SHORT || (self.inner >= 32 && lines >= 8 * ENOUGH_LINES) {
            return Launches { launches: vec![whole.by_threads(target, &operands)], scratch: 0 };
        }
        if lines >= ENOUGH_LINES || self.len < 4 * PART {
            return Launches { launches: vec![whole.by_blocks(target, &operands)], scratch: 0 };
        }
        let parts = self.len.div_ceil(PART);
        let bytes = aligned(lines * parts * self.sum.size());
        let scratch = |n: usize| Argument::Scratch(n * bytes);
        let (inputs, totals) = (&operands[..n_inputs], (0..n_inputs).map(scratch).collect::<Vec<_>>());
        let starts = [scratch(n_inputs)];
        let first = ScanPass { part: PART, stored: Stored::Total, ..whole };
        let second = ScanPass {
            fold: match self.fold {
                ScanFold::Scan(kind) => ScanFold::Scan(kind),
                ScanFold::Recurrence { .. } => ScanFold::Recurrence { lagging: false },
            },
            from: self.sum,
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
                first.by_blocks(target, &[inputs, &totals].concat()),
                second.by_blocks(target, &[&totals, &starts[..]].concat()),
                third.by_blocks(target, &[&operands, &starts[..]].concat()),
            ],
            scratch: (n_inputs + 1) * bytes,
        }
    }

    fn code(&self, name: &str, target: Target, block: u32, n_params: usize) -> KernelWriter {
        // Positions run beyond the end of a line by a tile at most.
        let largest = (self.lines() * self.len).max(self.len + 2 * PART).max(self.lines() + BLOCK as usize);
        KernelWriter::new(name, target, block, n_params, largest)
    }

    /// The neutral element, which changes nothing when it comes before a value.
    fn nothing(&self, c: &mut KernelWriter) -> Prefix {
        let value = c.constant(match self.fold {
            ScanFold::Scan(ScanKind::Sum) | ScanFold::Recurrence { .. } => self.sum.nothing(),
            ScanFold::Scan(ScanKind::Prod) => self.sum.small(1),
            ScanFold::Scan(ScanKind::Max) => self.sum.lowest(),
            ScanFold::Scan(ScanKind::Min) => self.sum.highest(),
        });
        match self.fold {
            ScanFold::Scan(_) => smallvec![value],
            ScanFold::Recurrence { .. } => smallvec![value, c.constant(self.sum.small(1))],
        }
    }

    /// The result of accumulated elements after the result `before`.
    fn advance(&self, c: &mut KernelWriter, before: Reg, value: &Prefix) -> Reg {
        match self.fold {
            ScanFold::Scan(ScanKind::Sum) => c.plus(self.sum, before, value[0]),
            ScanFold::Scan(ScanKind::Prod) => c.times(self.sum, before, value[0]),
            ScanFold::Scan(ScanKind::Max) => c.extreme(Order::Greater, self.sum, before, value[0]),
            ScanFold::Scan(ScanKind::Min) => c.extreme(Order::Less, self.sum, before, value[0]),
            ScanFold::Recurrence { .. } => {
                let carried = c.times(self.sum, value[1], before);
                c.plus(self.sum, value[0], carried)
            }
        }
    }

    fn combine(&self, c: &mut KernelWriter, before: &Prefix, value: &Prefix) -> Prefix {
        let mut both: Prefix = smallvec![self.advance(c, before[0], value)];
        if let (Some(&before), Some(&value)) = (before.get(1), value.get(1)) {
            both.push(c.times(self.sum, before, value));
        }
        both
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

    /// The accumulated element at place `i` of a line. The first state of a recurrence is its term: its coefficient is none.
    fn value(&self, c: &mut KernelWriter, inputs: &[Reg], origin: Reg, (i, element): (Reg, Reg)) -> Prefix {
        let value = self.load(c, inputs[0], element);
        let ScanFold::Recurrence { lagging } = self.fold else { return smallvec![value] };
        let is_first = c.test("eq", i, 0);
        let of_coefficient = if lagging {
            let before = c.sub(i, 1);
            let place = c.select(is_first, i, before);
            self.element(c, origin, place)
        } else {
            element
        };
        let found = self.load(c, inputs[1], of_coefficient);
        let none = c.constant(self.sum.small(0));
        smallvec![value, c.select(is_first, none, found)]
    }

    /// Stores the result at place `i` from what is accumulated before and with its element.
    fn store(&self, c: &mut KernelWriter, out: Reg, (i, element): (Reg, Reg), before: Reg, with: Reg) {
        let mut value = if self.exclusive { before } else { with };
        let number = match self.stored {
            Stored::Line(number) => number,
            Stored::Starts | Stored::Total => self.sum,
        };
        if self.fold == ScanFold::Scan(ScanKind::Sum)
            && self.exclusive
            && self.stored != Stored::Starts
            && self.sum.is_float()
        {
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

    /// The inputs among the parameters.
    fn inputs(&self, c: &mut KernelWriter) -> SmallVec<[Reg; 2]> {
        (0..self.n_inputs()).map(|input| c.param(input)).collect()
    }

    /// A thread per line.
    fn by_threads(&self, target: Target, arguments: &[Argument]) -> Launch {
        let mut c = self.code("scan_lines", target, BLOCK, arguments.len());
        let line = c.global_thread(BLOCK);
        let exists = c.test("lt", line, self.lines());
        c.if_then(exists, |c| {
            let (inputs, out) = (self.inputs(c), c.param(self.n_inputs()));
            let origin = self.origin(c, line);
            let total = self.nothing(c)[0];
            let run = |c: &mut KernelWriter, i: Reg, n: usize| {
                let places: Vec<(Reg, Reg)> = (0..n)
                    .map(|n| {
                        let i = c.add(i, n);
                        (i, self.element(c, origin, i))
                    })
                    .collect();
                let values: Vec<Prefix> = places.iter().map(|&place| self.value(c, &inputs, origin, place)).collect();
                for (place, value) in places.into_iter().zip(values) {
                    let next = self.advance(c, total, &value);
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
            let starts = c.param(arguments.len() - 1);
            let from = c.at(starts, block, self.sum.size());
            let value = c.load(self.sum, from, 0);
            c.set(before[0], value);
        }
        let tile = WarpSlots::new(&mut c, threads, self.sum, self.n_inputs());
        c.count(start, end, threads * RUN, |c, first| self.tile(c, &tile, (origin, first, end), &before));
        if self.stored == Stored::Total {
            let is_first = c.test("eq", tile.thread, 0);
            c.if_then(is_first, |c| {
                for (n, &value) in before.iter().enumerate() {
                    let out = c.param(self.n_inputs() + n);
                    let to = c.at(out, block, self.sum.size());
                    c.store(self.sum, to, 0, value);
                }
            });
        }
        c.launch(self.lines() * parts, threads as u32, arguments)
    }

    /// Scans the elements of a tile from `first` on, and adds their total to `before`.
    fn tile(&self, c: &mut KernelWriter, tile: &WarpSlots, (origin, first, end): (Reg, Reg, Reg), before: &Prefix) {
        let (inputs, out) = (self.inputs(c), c.param(self.n_inputs()));
        let thread = c.widen(tile.thread);
        let own = c.mad(thread, RUN, first);
        let mut run = Vec::new();
        for n in 0..RUN {
            let i = c.add(own, n);
            let exists = c.test("lt", i, end);
            let value = self.nothing(c);
            let element = self.element(c, origin, i);
            c.if_then(exists, |c| {
                let found = self.value(c, &inputs, origin, (i, element));
                value.iter().zip(found).for_each(|(&value, found)| c.set(value, found));
            });
            run.push((i, element, exists, value));
        }
        let own_total = run.iter().map(|run| run.3.clone()).reduce(|a, b| self.combine(c, &a, &b));
        let total = own_total.unwrap_or_default();
        let total: Prefix = total.into_iter().map(|own| c.copy(own)).collect();
        for distance in [1, 2, 4, 8, 16] {
            let other: Prefix = total.iter().map(|&total| c.shuffle("up", total, distance)).collect();
            let next = self.combine(c, &other, &total);
            let is_beyond = c.test("ge", tile.lane, distance);
            total.iter().zip(next).for_each(|(&total, next)| c.select_into(total, is_beyond, next, total));
        }
        let is_last = c.test("eq", tile.lane, 31);
        c.if_then(is_last, |c| {
            for (n, &total) in total.iter().enumerate() {
                c.store_shared(self.sum, tile.own_slot, n * tile.row(self.sum), total);
            }
        });
        let inside: Prefix = total.iter().map(|&total| c.shuffle("up", total, 1)).collect();
        let nothing = self.nothing(c);
        let is_first = c.test("eq", tile.lane, 0);
        for (&inside, nothing) in inside.iter().zip(nothing) {
            c.select_into(inside, is_first, nothing, inside);
        }
        c.barrier();
        let prefix = c.copy(before[0]);
        for warp in 0..tile.warps {
            let slot = |n: usize| n * tile.row(self.sum) + warp * self.sum.size();
            let of_warp: Prefix = (0..before.len()).map(|n| c.load_shared(self.sum, tile.slots, slot(n))).collect();
            let next = self.advance(c, prefix, &of_warp);
            let is_before = c.test("gt", tile.warp, warp);
            c.select_into(prefix, is_before, next, prefix);
            let next = self.combine(c, before, &of_warp);
            before.iter().zip(next).for_each(|(&before, next)| c.set(before, next));
        }
        c.barrier();
        if self.stored == Stored::Total {
            return;
        }
        let mut sum = self.advance(c, prefix, &inside);
        for (i, element, exists, value) in run {
            let next = self.advance(c, sum, &value);
            c.if_then(exists, |c| self.store(c, out, (i, element), sum, next));
            sum = next;
        }
    }
}

/// The state shared by the threads of a block: for each value of an accumulated element a row with a slot per warp.
struct WarpSlots {
    thread: Reg,
    lane: Reg,
    warp: Reg,
    warps: usize,
    slots: Reg,
    own_slot: Reg,
}

impl WarpSlots {
    fn new(c: &mut KernelWriter, threads: usize, sum: NumberType, n_values: usize) -> WarpSlots {
        let warps = threads / 32;
        let thread = c.thread();
        debug_assert_eq!(thread.class, Class::B32);
        let (warp, lane) = c.div_rem(thread, 32);
        let slots = c.shared_memory("totals", n_values * warps * sum.size());
        let own_slot = c.shared_at(slots, warp, sum.size());
        WarpSlots { thread, lane, warp, warps, slots, own_slot }
    }

    /// The bytes of a row.
    fn row(&self, sum: NumberType) -> usize {
        self.warps * sum.size()
    }
}
