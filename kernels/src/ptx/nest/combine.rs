//! Folding the results of threads: in pairs, neighbours first in order, through shuffles and shared memory.

use retape_runtime::DType;
use smallvec::SmallVec;

use super::body::Lanes;
use super::index::barrier;
use super::schedule::{BLOCK, Reduction, WARP};
use crate::ir::{ReductionOp, ValueId};
use crate::ptx::memory::{from_word, to_word};
use crate::ptx::value::bits_suffix;
use crate::ptx::{Class, Elements, PtxFunction, Reg, RegValue, Space, combine, load, ptx, store};

/// Shared memory that results take at most, in bytes.
const MAX_SHARED: usize = 32 << 10;

/// The numbers of a thread.
pub(super) struct Threads {
    /// In the block.
    pub(super) thread: Reg,
    /// Among those that share an item.
    pub(super) strip: Reg,
    /// Of its item in the block.
    pub(super) slot: Reg,
}

/// A reduction on its way.
pub(super) struct Partial {
    /// The reduction.
    pub(super) id: ValueId,
    pub(super) op: ReductionOp,
    /// The value that it reduces.
    pub(super) of: ValueId,
    /// Results of a thread, each for some neighbours; one in the end.
    pub(super) chains: Vec<Elements>,
}

impl Partial {
    /// The result.
    pub(super) fn lanes(&self) -> Lanes {
        match self.chains[0].as_slice() {
            [one] => Lanes::Same(*one),
            _ => Lanes::Each(self.chains[0].clone()),
        }
    }

    fn dtype(&self) -> DType {
        self.chains[0][0].dtype
    }
}

/// Folds chains lane by lane: the first half with the second, until one is left.
pub(super) fn pairwise(f: &mut PtxFunction, op: ReductionOp, mut chains: Vec<Elements>) -> Elements {
    while chains.len() > 1 {
        let half = chains.len().div_ceil(2);
        let second = chains.split_off(half);
        for (first, second) in chains.iter_mut().zip(second) {
            *first = both(f, op, first, &second);
        }
    }
    chains.pop().unwrap_or_default()
}

fn both(f: &mut PtxFunction, op: ReductionOp, first: &Elements, second: &Elements) -> Elements {
    first.iter().zip(second).map(|(&x, &y)| combine(f, op, x, y)).collect()
}

/// Folds the results of the threads that share an item; the first of them has the whole.
pub(super) fn across_threads(
    f: &mut PtxFunction,
    plan: Reduction,
    threads: &Threads,
    mut sums: Vec<Partial>,
) -> Vec<Partial> {
    if plan.strips == 1 {
        return sums;
    }
    f.comment("Threads fold each other's results.");
    if plan.columns {
        across_columns(f, plan, threads, &mut sums);
        return sums;
    }
    for sum in &mut sums {
        let mut distance = plan.strips.min(WARP) / 2;
        while distance > 0 {
            let mine = sum.chains[0][0];
            let other = shuffle(f, mine, distance);
            sum.chains[0][0] = combine(f, sum.op, mine, other);
            distance /= 2;
        }
    }
    if plan.strips > WARP {
        across_warps(f, plan, threads, &mut sums);
    }
    sums
}

/// The value of the thread whose number differs in one bit.
fn shuffle(f: &mut PtxFunction, value: RegValue, distance: usize) -> RegValue {
    let word = |f: &mut PtxFunction, r: Reg| {
        f.op(Class::B32, "shfl.sync.bfly.b32", format_args!("{r}, {distance}, 31, 0xffffffff"))
    };
    match value.reg.class {
        Class::B64 | Class::F64 => {
            let [low, high] = f.regs(Class::B32);
            ptx!(f, "mov.b64 {{{low}, {high}}}, {}", value.reg);
            let (low, high) = (word(f, low), word(f, high));
            let reg = f.reg(value.reg.class);
            ptx!(f, "mov.b64 {reg}, {{{low}, {high}}}");
            RegValue { reg, ..value }
        }
        Class::F32 => {
            let bits = f.op(Class::B32, "mov.b32", format_args!("{}", value.reg));
            let moved = word(f, bits);
            RegValue { reg: f.op(Class::F32, "mov.b32", format_args!("{moved}")), ..value }
        }
        Class::Pred | Class::B16 | Class::B32 => {
            let bits = to_word(f, value);
            let moved = word(f, bits);
            from_word(f, value.dtype, moved)
        }
    }
}

/// Each warp leaves its result in shared memory; the first thread of an item reduces those of its warps.
fn across_warps(f: &mut PtxFunction, plan: Reduction, threads: &Threads, sums: &mut [Partial]) {
    let n_warps = plan.strips * plan.items_per_block / WARP;
    let per_item = plan.strips / WARP;
    let base = f.shared("warps", 16, sums.len() * n_warps * 8);
    let base = f.op(Class::B32, "mov.u32", format_args!("{base}"));
    let warp = f.op(Class::B32, "shr.u32", format_args!("{}, 5", threads.thread));
    let lane = f.op(Class::B32, "and.b32", format_args!("{}, 31", threads.thread));
    let is_first = f.op(Class::Pred, "setp.eq.u32", format_args!("{lane}, 0"));
    let own = f.op(Class::B32, "mad.lo.u32", format_args!("{warp}, 8, {base}"));
    let region = |n: usize| (n * n_warps * 8) as i64;
    for (n, sum) in sums.iter().enumerate() {
        store(f, Space::Shared, sum.chains[0][0], own, region(n), Some(is_first));
    }
    barrier(f);
    let item = f.op(Class::B32, "mad.lo.u32", format_args!("{}, {}, {base}", threads.slot, 8 * per_item));
    for (n, sum) in sums.iter_mut().enumerate() {
        let dtype = sum.dtype();
        let parts = (0..per_item).map(|warp| {
            let part = load(f, Space::Shared, dtype, item, region(n) + 8 * warp as i64);
            Elements::from_elem(part, 1)
        });
        let parts: Vec<Elements> = parts.collect();
        sum.chains[0] = pairwise(f, sum.op, parts);
    }
}

/// Threads of one item lie in different warps: they halve their number through shared memory.
fn across_columns(f: &mut PtxFunction, plan: Reduction, threads: &Threads, sums: &mut [Partial]) {
    let n_threads = plan.strips * plan.items_per_block;
    debug_assert!(n_threads <= BLOCK);
    let bytes = |sum: &Partial| n_threads * sum.chains[0].len() * sum.dtype().size();
    let total: usize = sums.iter().map(bytes).sum();
    let largest = sums.iter().map(bytes).max().unwrap_or(0);
    let name = f.shared("strips", 16, total.min(MAX_SHARED.max(largest)));
    let base = f.op(Class::B32, "mov.u32", format_args!("{name}"));
    let mut left = sums;
    while !left.is_empty() {
        // As many reductions at once as there is room for.
        let mut used = 0;
        let fits = |sum: &&mut Partial| {
            used += bytes(sum);
            used <= MAX_SHARED.max(largest)
        };
        let n = left.iter_mut().take_while(fits).count().max(1);
        let (now, later) = left.split_at_mut(n);
        halve(f, plan, threads, base, now);
        if !later.is_empty() {
            barrier(f);
        }
        left = later;
    }
}

fn halve(f: &mut PtxFunction, plan: Reduction, threads: &Threads, base: Reg, sums: &mut [Partial]) {
    let n_threads = plan.strips * plan.items_per_block;
    let mut regions: SmallVec<[(Reg, usize); 4]> = SmallVec::new();
    let mut start = 0;
    for sum in sums.iter() {
        // An own address for each size of elements; lane after lane, so that threads lie side by side.
        let size = sum.dtype().size();
        let own = f.op(Class::B32, "mad.lo.u32", format_args!("{}, {size}, {base}", threads.thread));
        regions.push((own, start));
        for (lane, &value) in sum.chains[0].iter().enumerate() {
            store(f, Space::Shared, value, own, (start + lane * n_threads * size) as i64, None);
        }
        start += sum.chains[0].len() * n_threads * size;
    }
    barrier(f);
    let mut strips = plan.strips / 2;
    while strips > 0 {
        let skip = f.label();
        let idle = f.op(Class::Pred, "setp.ge.u32", format_args!("{}, {strips}", threads.strip));
        // The chains of the other strips are not used again.
        let kept: Vec<Elements> = sums.iter().map(|sum| sum.chains[0].clone()).collect();
        ptx!(f, "@{idle} bra {skip}");
        for ((sum, &(own, start)), kept) in sums.iter_mut().zip(&regions).zip(&kept) {
            let size = sum.dtype().size();
            let distance = strips * plan.items_per_block * size;
            for (lane, &mine) in kept.iter().enumerate() {
                let at = (start + lane * n_threads * size) as i64;
                let other = load(f, Space::Shared, mine.dtype, own, at + distance as i64);
                let new = combine(f, sum.op, mine, other);
                ptx!(f, "mov.{} {}, {}", bits_move(mine), mine.reg, new.reg);
                if strips > 1 {
                    store(f, Space::Shared, mine, own, at, None);
                }
            }
        }
        f.place(skip);
        if strips > 1 {
            barrier(f);
        }
        strips /= 2;
    }
}

/// The suffix of a move of a value.
pub(super) fn bits_move(value: RegValue) -> &'static str {
    match value.reg.class {
        Class::F32 => "f32",
        Class::F64 => "f64",
        Class::Pred | Class::B16 | Class::B32 | Class::B64 => bits_suffix(value.dtype),
    }
}
