//! Nests with reductions: threads reduce strips of points, then reduce each other's results.
//!
//! The tree: a thread reduces its points in `unroll * lanes` chains, which it reduces pairwise; then threads of a warp and
//! warps of a block do so pairwise; then a second launch reduces the parts of the blocks, if there are several. Operands
//! keep their order at every step, and every step follows from the shape.

use smallvec::SmallVec;

use super::body::{BodyEmitter, PointGroup, Vector};
use super::combine::{Partial, Threads, across_threads, bits_move, pairwise};
use super::index::{Ints, special};
use super::schedule::{self, Reduction, WARP};
use super::{BoundKernel, vector_of};
use crate::ir::{Kernel, Stage, ValueId};
use crate::ptx::{
    Argument, Class, CodeLabel, Elements, Launch, PtxFunction, Reg, combine, constant, grid, ptx, store_many,
};
use crate::schedule::ReducedValue;

/// The launch that reduces: all the work, or the parts of `partials`, one buffer per reduction.
pub(super) fn lower(nest: &BoundKernel<'_>, plan: Reduction, partials: &[Argument]) -> Launch {
    let block = plan.strips * plan.items_per_block;
    let name = if plan.columns { "columns" } else { "rows" };
    let (mut f, body, arguments) = nest.begin(name, block, partials);
    let blocks = plan.items.div_ceil(plan.items_per_block);
    let mut kernel = ReduceEmitter { f: &mut f, body: &body, plan, kept: kept_axes(nest.kernel) };
    let threads = kernel.threads();
    let end = kernel.f.label();
    let (item, valid) = kernel.item(&threads, blocks, end);
    let mut kept = kernel.kept_group(item);
    let part = (plan.chunks > 1).then(|| special(kernel.f, "ctaid.y"));
    let partial = kernel.strips(&mut kept, &threads, part, valid);
    let results = across_threads(kernel.f, plan, &threads, partial);
    kernel.f.comment("What is done with the results.");
    kernel.leave_unless_first(&threads, valid, end);
    for result in results {
        kept.set(result.id, result.lanes());
    }
    match part {
        None => body.steps(kernel.f, &mut kept, &body.form.loops[1].tail, None),
        Some(part) => {
            let first = arguments.len() - partials.len();
            kernel.store_partials(&kept, item, part, first);
        }
    }
    f.place(end);
    let grid = grid([blocks, plan.chunks, 1]);
    Launch { module: f.finish(), grid, block: block as u32, shared: 0, arguments }
}

fn kept_axes(kernel: &Kernel) -> usize {
    kernel.axes.iter().filter(|a| !a.reduced).count()
}

struct ReduceEmitter<'a, 'k> {
    f: &'a mut PtxFunction,
    body: &'a BodyEmitter<'k>,
    plan: Reduction,
    /// The number of kept axes.
    kept: usize,
}

impl ReduceEmitter<'_, '_> {
    fn threads(&mut self) -> Threads {
        let plan = self.plan;
        let thread = special(self.f, "tid.x");
        let width = if plan.columns { plan.items_per_block } else { plan.strips };
        let (upper, lower) = Ints { wide: false }.div_rem(self.f, thread, width);
        let (strip, slot) = if plan.columns { (upper, lower) } else { (lower, upper) };
        Threads { thread, strip, slot }
    }

    /// The number of the item of a thread, the last one for threads beyond the end, and whether it is none of these.
    ///
    /// Threads beyond the end must not load, since others may write there: they reduce nothing, and go to `end` if nobody
    /// waits for them. They stay where warps wait at a barrier, behind which results are written, or where they share a
    /// warp with threads of the last item.
    fn item(&mut self, threads: &Threads, blocks: usize, end: CodeLabel) -> (Reg, Option<Reg>) {
        let (ints, plan) = (self.body.ints, self.plan);
        let block = self.f.block_index();
        let per_block = if blocks > 1 { plan.items_per_block as u64 } else { 0 };
        let item = ints.linear(self.f, block, per_block, threads.slot);
        if plan.items.is_multiple_of(plan.items_per_block) {
            return (item, None);
        }
        let waits = if plan.columns { plan.strips > 1 } else { plan.strips > WARP };
        // Items whose threads meet in a warp.
        let together = if plan.columns { 1 } else { WARP / plan.strips.min(WARP) };
        if !waits {
            let first = self.first_of(item, threads.slot, together);
            let idle = ints.compare(self.f, "ge", first, plan.items);
            ptx!(self.f, "@{idle} bra {end}");
            if together == 1 {
                return (item, None);
            }
        }
        let valid = ints.compare(self.f, "lt", item, plan.items);
        (ints.min(self.f, item, plan.items as u64 - 1), Some(valid))
    }

    /// The first of so many items, a power of two, that begin at a multiple of that in the block.
    fn first_of(&mut self, item: Reg, slot: Reg, n: usize) -> Reg {
        if n == 1 {
            return item;
        }
        let before = self.f.op(Class::B32, "and.b32", format_args!("{slot}, {}", n - 1));
        let before = self.body.ints.widened(self.f, before);
        self.body.ints.mul_add(self.f, before, -1, Some(item))
    }

    /// The kept point of an item, or its vector of them.
    fn kept_group(&mut self, item: Reg) -> PointGroup {
        let root = self.body.root(self.f);
        let Some(last) = self.kept.checked_sub(1) else { return root };
        let lanes = if self.plan.columns { self.plan.lanes } else { 1 };
        let axes = &self.body.kernel.axes[..self.kept];
        let mut extents: SmallVec<[usize; 4]> = axes.iter().map(|a| a.extent).collect();
        extents[last] /= lanes;
        let mut coords = self.body.ints.decompose(self.f, item, &extents);
        coords[last] = self.body.ints.mul_add(self.f, coords[last], lanes as i64, None);
        root.at(coords.into_iter().enumerate(), vector_of(last, lanes))
    }

    /// How the points of a unit lie.
    fn vector(&self, kept: &PointGroup) -> Option<Vector> {
        if self.plan.columns {
            return vector_of(self.kept.saturating_sub(1), kept.lanes());
        }
        vector_of(self.body.kernel.axes.len() - 1, self.plan.lanes)
    }

    /// Folds the units of a thread.
    fn strips(
        &mut self,
        kept: &mut PointGroup,
        threads: &Threads,
        part: Option<Reg>,
        valid: Option<Reg>,
    ) -> Vec<Partial> {
        let (body, plan) = (self.body, self.plan);
        body.steps(self.f, kept, &body.form.loops[1].steps, None);
        let mut inner = kept.clone();
        body.fix(self.f, &mut inner, &schedule::accesses(body.kernel, Some(Stage::Element)));
        let vector = self.vector(kept);
        let lanes = vector.map_or(1, |v| v.lanes);
        let mut sums: Vec<Partial> = Vec::new();
        for &ReducedValue { id, op, of, dtype, .. } in &body.form.reductions {
            let neutral = op.neutral(dtype);
            let chains = (0..plan.unroll).map(|_| (0..lanes).map(|_| constant(self.f, neutral)).collect());
            sums.push(Partial { id: ValueId(id as u32), op, of, chains: chains.collect() });
        }
        self.f.comment("Each thread folds its units.");
        let walk = self.walk(inner, vector, threads, part, valid);
        if plan.unroll > 1 {
            self.pass(&walk, &mut sums, plan.unroll);
        }
        let covered = plan.chunk.is_multiple_of(plan.strips * plan.unroll) && plan.units.is_multiple_of(plan.chunk);
        if plan.unroll == 1 || !covered {
            self.pass(&walk, &mut sums, 1);
        }
        if plan.rest > 0 {
            self.rest(&walk, &mut sums, threads, part);
        }
        for sum in &mut sums {
            let chains = std::mem::take(&mut sum.chains);
            let op = sum.op;
            sum.chains = vec![pairwise(self.f, op, chains)];
            if !plan.columns {
                let lanes = sum.chains[0].iter().map(|&v| Elements::from_elem(v, 1)).collect();
                sum.chains = vec![pairwise(self.f, op, lanes)];
            }
        }
        sums
    }

    /// The way of a thread over its units.
    fn walk(
        &mut self,
        inner: PointGroup,
        vector: Option<Vector>,
        threads: &Threads,
        part: Option<Reg>,
        valid: Option<Reg>,
    ) -> Walk {
        let (plan, ints) = (self.plan, self.body.ints);
        let next = self.f.reg(ints.class());
        let (mut start, mut end) = (ints.widened(self.f, threads.strip), None);
        if let Some(part) = part {
            start = ints.linear(self.f, part, plan.chunk as u64, threads.strip);
            let wide = ints.widened(self.f, part);
            let from = ints.mul_add(self.f, wide, plan.chunk as i64, None);
            let to = ints.add(self.f, from, plan.chunk as u64);
            end = Some(ints.min(self.f, to, plan.units as u64));
        }
        let bits = if ints.wide { "b64" } else { "b32" };
        match valid {
            Some(valid) => ptx!(self.f, "selp.{bits} {next}, {start}, {}, {valid}", plan.units),
            None => ptx!(self.f, "mov.{bits} {next}, {start}"),
        }
        Walk { inner, vector, next, end, valid }
    }

    /// A loop over `unroll` units at a time while there are so many.
    fn pass(&mut self, walk: &Walk, sums: &mut [Partial], unroll: usize) {
        let (body, plan, ints, next) = (self.body, self.plan, self.body.ints, walk.next);
        let (again, done) = (self.f.label(), self.f.label());
        self.f.place(again);
        let last = ints.add(self.f, next, ((unroll - 1) * plan.strips) as u64);
        let beyond = match walk.end {
            Some(end) => ints.compare(self.f, "ge", last, end),
            None => ints.compare(self.f, "ge", last, plan.units),
        };
        ptx!(self.f, "@{beyond} bra {done}");
        let mut groups: SmallVec<[PointGroup; 8]> = SmallVec::new();
        if body.kernel.axes.len() == self.kept + 1 {
            // The units lie at constant distances.
            let mut near = self.unit(walk, next);
            body.fix(self.f, &mut near, &schedule::accesses(body.kernel, Some(Stage::Element)));
            let step = plan.strips * if plan.columns { 1 } else { plan.lanes };
            groups.extend((0..unroll).map(|n| near.shifted(self.kept, n * step)));
        }
        for n in groups.len()..unroll {
            let unit = ints.add(self.f, next, (n * plan.strips) as u64);
            groups.push(self.unit(walk, unit));
        }
        body.fetch(self.f, groups.iter_mut());
        for (chain, group) in groups.iter_mut().enumerate() {
            self.element(group, sums, chain);
        }
        let step = unroll * plan.strips;
        ptx!(self.f, "add.{} {next}, {next}, {step}", if ints.wide { "u64" } else { "u32" });
        ptx!(self.f, "bra {again}");
        self.f.place(done);
    }

    /// The points of a unit.
    fn unit(&mut self, walk: &Walk, unit: Reg) -> PointGroup {
        let axes = &self.body.kernel.axes[self.kept..];
        let mut extents: SmallVec<[usize; 4]> = axes.iter().map(|a| a.extent).collect();
        let last = extents.len() - 1;
        let lanes = if self.plan.columns { 1 } else { self.plan.lanes };
        extents[last] /= lanes;
        let mut coords = self.body.ints.decompose(self.f, unit, &extents);
        coords[last] = self.body.ints.mul_add(self.f, coords[last], lanes as i64, None);
        let kept = self.kept;
        walk.inner.at(coords.into_iter().enumerate().map(|(a, c)| (kept + a, c)), walk.vector)
    }

    /// Emits the instructions of every point, and reduces their values into a chain.
    fn element(&mut self, group: &mut PointGroup, sums: &mut [Partial], chain: usize) {
        self.body.points(self.f, group, None);
        for sum in sums {
            let Some(values) = group.value(sum.of).cloned() else { continue };
            for lane in 0..group.lanes() {
                let total = sum.chains[chain][lane];
                let new = combine(self.f, sum.op, total, values.lane(lane));
                ptx!(self.f, "mov.{} {}, {}", bits_move(total), total.reg, new.reg);
            }
        }
    }

    /// The points beyond the last full vector of the only reduced axis, one per thread.
    fn rest(&mut self, walk: &Walk, sums: &mut [Partial], threads: &Threads, part: Option<Reg>) {
        let (plan, ints) = (self.plan, self.body.ints);
        let skip = self.f.label();
        let first = (plan.units * plan.lanes) as u64;
        if let Some(part) = part {
            let other = self.f.op(Class::Pred, "setp.ne.u32", format_args!("{part}, {}", plan.chunks - 1));
            ptx!(self.f, "@{other} bra {skip}");
        }
        let (again, strip) = (self.f.label(), self.f.reg(Class::B32));
        match walk.valid {
            Some(valid) => ptx!(self.f, "selp.b32 {strip}, {}, {}, {valid}", threads.strip, plan.rest),
            None => ptx!(self.f, "mov.b32 {strip}, {}", threads.strip),
        }
        self.f.place(again);
        let beyond = self.f.op(Class::Pred, "setp.ge.u32", format_args!("{strip}, {}", plan.rest));
        ptx!(self.f, "@{beyond} bra {skip}");
        let wide = ints.widened(self.f, strip);
        let at = ints.add(self.f, wide, first);
        let mut group = walk.inner.at([(self.kept, at)], None);
        self.element(&mut group, sums, 0);
        if plan.strips < plan.rest {
            ptx!(self.f, "add.u32 {strip}, {strip}, {}", plan.strips);
            ptx!(self.f, "bra {again}");
        }
        self.f.place(skip);
    }

    /// The first thread of an item goes on.
    fn leave_unless_first(&mut self, threads: &Threads, valid: Option<Reg>, end: CodeLabel) {
        if self.plan.strips > 1 {
            let other = self.f.op(Class::Pred, "setp.ne.u32", format_args!("{}, 0", threads.strip));
            ptx!(self.f, "@{other} bra {end}");
        }
        if let Some(valid) = valid {
            ptx!(self.f, "@!{valid} bra {end}");
        }
    }

    /// Writes the results of a part, in rows of all kept points.
    fn store_partials(&mut self, kept: &PointGroup, item: Reg, part: Reg, first: usize) {
        let (ints, lanes) = (self.body.ints, kept.lanes());
        let n_kept = self.plan.items * lanes;
        let part = ints.widened(self.f, part);
        let at = ints.mul_add(self.f, item, lanes as i64, None);
        let at = ints.mul_add(self.f, part, n_kept as i64, Some(at));
        for (n, reduced) in self.body.form.reductions.iter().enumerate() {
            let Some(values) = kept.value(ValueId(reduced.id as u32)).cloned() else { continue };
            let values: Elements = (0..lanes).map(|lane| values.lane(lane)).collect();
            let base = self.f.param(first + n);
            let size = values[0].dtype.size();
            let address = ints.address(self.f, base, at, size);
            let align = 1 << (16 | (lanes * size)).trailing_zeros();
            store_many(self.f, &values, address, 0, align, None);
        }
    }
}

/// How a thread goes over its units.
struct Walk {
    /// The values known at all of them.
    inner: PointGroup,
    /// How the points of a unit lie.
    vector: Option<Vector>,
    /// The next unit.
    next: Reg,
    /// The end of the part; none for the end of all units.
    end: Option<Reg>,
    /// Whether the kept points are not beyond the end; else there is nothing to reduce.
    valid: Option<Reg>,
}
