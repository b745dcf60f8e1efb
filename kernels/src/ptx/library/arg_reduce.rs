//! First extremes: a thread or a warp searches a line or a part of one, and a second pass the parts' winners.
//!
//! Of two candidates the better one wins, of equal ones that with the lower position: the result is the same for every
//! order of the search.

use retape_runtime::DType;

use super::{BLOCK, KernelWriter, NumberType, Order, blocks};
use crate::library::{ArgReduce, Extreme};
use crate::ptx::{Argument, Class, Launch, Launches, Reg, Target, ptx};

/// Threads that occupy a device.
const THREADS: usize = 1 << 18;
/// Elements that a thread searches at least, where a line is cut.
const MIN_ITEMS: usize = 16;
/// Items that a thread reads ahead.
const AHEAD: usize = 4;
/// Lines of so many elements, not contiguous ones, are searched by warps.
const LONG: usize = 64;

const I64: NumberType = NumberType(DType::I64);

/// The launches of [`ArgReduce`].
pub(in crate::ptx) fn arg_reduce(kernel: &ArgReduce, target: Target) -> Launches {
    let lines = kernel.outer * kernel.inner;
    if lines == 0 {
        return Launches::default();
    }
    let by_warp = kernel.inner < 32 && kernel.len >= LONG;
    let width = if by_warp { 32 } else { 1 };
    // The second pass should not take longer than the first.
    let balanced = (kernel.len / 2).isqrt();
    let wanted = THREADS.div_ceil(lines * width).min(kernel.len.div_ceil(width * MIN_ITEMS)).min(balanced).max(1);
    let part = kernel.len.div_ceil(wanted).max(1);
    let parts = kernel.len.div_ceil(part).max(1);
    let first = SearchPass { kernel, lines, items: kernel.len, part, parts, by_warp, again: false };
    let (x, out) = (Argument::Operand(0), Argument::Operand(1));
    if parts == 1 {
        return Launches { launches: vec![first.launch(target, &[x, out])], scratch: 0 };
    }
    let winners = Argument::Scratch(0);
    let by_warp = parts >= LONG;
    let second = SearchPass { kernel, lines, items: parts, part: parts, parts: 1, by_warp, again: true };
    Launches {
        launches: vec![first.launch(target, &[x, winners]), second.launch(target, &[x, out, winners])],
        scratch: lines * parts * I64.size(),
    }
}

/// A search of all lines, each `items` long and cut into `parts`.
struct SearchPass<'k> {
    kernel: &'k ArgReduce,
    lines: usize,
    items: usize,
    part: usize,
    parts: usize,
    by_warp: bool,
    /// Whether the items are the winners of an earlier pass.
    again: bool,
}

impl SearchPass<'_> {
    fn number(&self) -> NumberType {
        NumberType::of(self.kernel.dtype)
    }

    fn launch(&self, target: Target, arguments: &[Argument]) -> Launch {
        let tasks = self.lines * self.parts;
        let threads = tasks * if self.by_warp { 32 } else { 1 };
        let largest = (self.kernel.outer * self.kernel.len.max(1) * self.kernel.inner).max(threads);
        let mut c =
            KernelWriter::new("arg_reduce", target, BLOCK, arguments.len(), largest + self.part + 64 * BLOCK as usize);
        let thread = c.global_thread(BLOCK);
        let (task, lane) = match self.by_warp {
            true => c.div_rem(thread, 32),
            false => (thread, c.number(0)),
        };
        let exists = c.test("lt", task, tasks);
        c.if_then(exists, |c| self.search(c, task, lane));
        c.launch(blocks(threads), BLOCK, arguments)
    }

    fn search(&self, c: &mut KernelWriter, task: Reg, lane: Reg) {
        let out = c.param(1);
        // Neighbouring threads take neighbouring lines; warps take neighbouring parts.
        let (line, part) = match self.by_warp {
            true => c.div_rem(task, self.parts),
            false => {
                let (part, line) = c.div_rem(task, self.lines);
                (line, part)
            }
        };
        let row = c.number(0);
        if self.items > 0 {
            let (best, at) = self.own_winner(c, line, part, lane);
            c.set(row, at);
            if self.by_warp {
                self.winner_of_warp(c, best, row);
            }
        }
        let slot = c.mad(line, self.parts, part);
        let to = c.at(out, slot, I64.size());
        let is_first = c.test("eq", lane, 0);
        c.if_then(is_first, |c| {
            let row = c.long(row);
            c.store(I64, to, 0, row);
        });
    }

    /// The value and the position of the first extreme among the items of one thread and the first of the part.
    fn own_winner(&self, c: &mut KernelWriter, line: Reg, part: Reg, lane: Reg) -> (Reg, Reg) {
        let (len, inner) = (self.kernel.len, self.kernel.inner);
        let x = c.param(0);
        let (o, column) = c.div_rem(line, inner);
        let origin = c.mul(o, len * inner);
        let origin = c.add(origin, column);
        let winners = self.again.then(|| c.param(2));
        let item = |c: &mut KernelWriter, i: Reg| {
            let row = match winners {
                None => i,
                Some(winners) => {
                    let slot = c.mad(line, self.items, i);
                    let from = c.at(winners, slot, I64.size());
                    let row = c.load(I64, from, 0);
                    if c.position == row.class { row } else { c.low(row) }
                }
            };
            let at = c.mad(row, inner, origin);
            let address = c.at(x, at, self.number().size());
            (c.load(self.number(), address, 0), row)
        };
        let start = c.mul(part, self.part);
        let end = c.add(start, self.part);
        let end = c.min(end, self.items);
        let (value, row) = item(c, start);
        let (best, place) = (c.copy(value), c.copy(row));
        let step = if self.by_warp { 32 } else { 1 };
        let own = c.add(start, lane);
        let run = |c: &mut KernelWriter, n: usize| {
            let items: Vec<(Reg, Reg)> = (0..n)
                .map(|n| {
                    let i = c.add(own, n * step);
                    item(c, i)
                })
                .collect();
            for (value, row) in items {
                let keep = self.is_kept(c, best, value);
                c.select_into(best, keep, best, value);
                c.select_into(place, keep, place, row);
            }
            c.increase(own, n * step);
        };
        let beyond = (AHEAD - 1) * step;
        let last = c.max(end, beyond);
        let last = c.sub(last, beyond);
        c.while_loop(|c| c.test("lt", own, last), |c| run(c, AHEAD));
        c.while_loop(|c| c.test("lt", own, end), |c| run(c, 1));
        (best, place)
    }

    /// Whether `best` wins against a `next` of a higher position.
    fn is_kept(&self, c: &mut KernelWriter, best: Reg, next: Reg) -> Reg {
        let op = match self.kernel.kind {
            Extreme::Max => Order::GreaterEqual,
            Extreme::Min => Order::LessEqual,
        };
        c.compare_or_nan(op, self.number(), best, next)
    }

    /// Leaves the position of the best of all lanes in `row` of each.
    fn winner_of_warp(&self, c: &mut KernelWriter, best: Reg, row: Reg) {
        for distance in [16, 8, 4, 2, 1] {
            let (other, other_row) = (c.shuffle("bfly", best, distance), c.shuffle("bfly", row, distance));
            let (keep, other_keeps) = (self.is_kept(c, best, other), self.is_kept(c, other, best));
            let before = c.test("lt", other_row, row);
            let tie = c.and(other_keeps, before);
            let loses = c.not(keep);
            let taken = c.reg(Class::Pred);
            ptx!(c, "or.pred {taken}, {loses}, {tie}");
            c.select_into(best, taken, other, best);
            c.select_into(row, taken, other_row, row);
        }
    }
}
