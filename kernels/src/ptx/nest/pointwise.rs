//! Nests without reductions: each thread makes some vectors of points, or a block makes a tile.

use smallvec::{SmallVec, smallvec};

use super::body::{BodyEmitter, Lanes, PointGroup};
use super::index::{barrier, special};
use super::schedule::{self, BLOCK, Pointwise, Tiled};
use super::{BoundKernel, vector_of};
use crate::ir::{Inst, ParamId, ValueId};
use crate::ptx::{Class, CodeLabel, Launch, PtxFunction, Reg, Space, grid, load, ptx, store};
use crate::schedule::LoopStep;

/// The launch of a kernel whose axes are all kept.
pub(super) fn lower(nest: &BoundKernel<'_>) -> Launch {
    match schedule::tiled(nest.kernel) {
        Some(tiled) => tile(nest, &tiled),
        None => flat(nest, schedule::pointwise(nest)),
    }
}

fn flat(nest: &BoundKernel<'_>, plan: Pointwise) -> Launch {
    let (mut f, body, arguments) = nest.begin("pointwise", plan.block, &[]);
    let ints = body.ints;
    let mut root = body.root(&mut f);
    let thread = special(&mut f, "tid.x");
    let block = f.block_index();
    let per_block = plan.block * plan.unroll;
    let blocks = plan.items.div_ceil(per_block);
    let first = ints.linear(&mut f, block, if blocks > 1 { per_block as u64 } else { 0 }, thread);
    let is_ragged = plan.items != blocks * per_block;
    let mut groups: SmallVec<[(PointGroup, Option<Reg>); 8]> = SmallVec::new();
    if !is_ragged && body.kernel.axes.len() == 1 {
        // The vectors of a thread lie at constant distances.
        let mut near = vector(&mut f, &body, &root, first, plan.lanes);
        body.fix(&mut f, &mut near, &schedule::accesses(body.kernel, None));
        groups.extend((0..plan.unroll).map(|n| (near.shifted(0, n * plan.block * plan.lanes), None)));
    }
    let idle = is_ragged.then(|| f.label());
    if let Some(idle) = idle {
        // Threads beyond the end load nothing: others may write there.
        let beyond = ints.compare(&mut f, "ge", first, plan.items);
        ptx!(f, "@{beyond} bra {idle}");
    }
    for n in groups.len()..plan.unroll {
        let mut item = ints.add(&mut f, first, (n * plan.block) as u64);
        let mut guard = None;
        if is_ragged && n > 0 {
            // For an item beyond the end a thread does its first one again, but writes nothing.
            let inside = ints.compare(&mut f, "lt", item, plan.items);
            item = ints.select(&mut f, inside, item, first);
            guard = Some(inside);
        }
        groups.push((vector(&mut f, &body, &root, item, plan.lanes), guard));
    }
    body.fetch(&mut f, groups.iter_mut().map(|(group, _)| group));
    for (mut group, guard) in groups {
        body.points(&mut f, &mut group, guard);
    }
    if let Some(idle) = idle {
        f.place(idle);
    }
    if plan.rest > 0 {
        let end = f.label();
        let is_other = f.op(Class::Pred, "setp.ne.u32", format_args!("{block}, {}", blocks - 1));
        ptx!(f, "@{is_other} bra {end}");
        let beyond = f.op(Class::Pred, "setp.ge.u32", format_args!("{thread}, {}", plan.rest));
        ptx!(f, "@{beyond} bra {end}");
        let wide = ints.widened(&mut f, thread);
        let at = ints.add(&mut f, wide, (plan.items * plan.lanes) as u64);
        root = root.at([(0, at)], None);
        body.points(&mut f, &mut root, None);
        f.place(end);
    }
    Launch { module: f.finish(), grid: grid([blocks, 1, 1]), block: plan.block as u32, shared: 0, arguments }
}

/// The vector of points with a number.
fn vector(f: &mut PtxFunction, body: &BodyEmitter<'_>, root: &PointGroup, item: Reg, lanes: usize) -> PointGroup {
    let axes = &body.kernel.axes;
    let Some(last) = axes.len().checked_sub(1) else { return root.clone() };
    let mut extents: SmallVec<[usize; 4]> = axes.iter().map(|a| a.extent).collect();
    extents[last] /= lanes;
    let mut coords = body.ints.decompose(f, item, &extents);
    coords[last] = body.ints.mul_add(f, coords[last], lanes as i64, None);
    root.at(coords.into_iter().enumerate(), vector_of(last, lanes))
}

/// Points along each side of a tile.
const TILE: usize = 32;
/// Rows of a tile that a block does at once.
const ROWS: usize = BLOCK / TILE;
/// Elements between neighbouring rows of a tile in shared memory: an odd number, so that columns lie in all banks.
const PITCH: usize = TILE + 1;

/// One tile per block: some loads go along their own axis into shared memory, and are found there by the points.
fn tile(nest: &BoundKernel<'_>, plan: &Tiled) -> Launch {
    let (mut f, body, arguments) = nest.begin("tiled", BLOCK, &[]);
    let ints = body.ints;
    let root = body.root(&mut f);
    let axes = &nest.kernel.axes;
    let (along, last) = (plan.axis, axes.len() - 1);
    let mut extents: SmallVec<[usize; 4]> = axes.iter().map(|a| a.extent).collect();
    extents[along] = extents[along].div_ceil(TILE);
    extents[last] = extents[last].div_ceil(TILE);
    let blocks: usize = extents.iter().product();
    let block = f.block_index();
    let thread = special(&mut f, "tid.x");
    let block = ints.widened(&mut f, block);
    let thread = ints.widened(&mut f, thread);
    let (y, x) = ints.div_rem(&mut f, thread, TILE);
    let mut origin = ints.decompose(&mut f, block, &extents);
    for axis in [along, last] {
        origin[axis] = ints.mul_add(&mut f, origin[axis], TILE as i64, None);
    }
    let root = root.at(origin.iter().copied().enumerate(), None);
    let tiles = stage(&mut f, &body, &root, plan, &origin, (x, y));
    barrier(&mut f);
    let idle = f.label();
    let at_last = inside(&mut f, &body, origin[last], x, last, idle);
    let first = inside(&mut f, &body, origin[along], y, along, idle);
    let mut groups: SmallVec<[(PointGroup, Option<Reg>); 4]> = SmallVec::new();
    for row in 0..TILE / ROWS {
        let side = ints.add(&mut f, y, (row * ROWS) as u64);
        let (mut at_along, mut guard) = (first, None);
        if row > 0 {
            at_along = ints.mul_add(&mut f, origin[along], 1, Some(side));
            if !axes[along].extent.is_multiple_of(TILE) {
                // For a row beyond the end a thread does its first one again, but writes nothing.
                let inside = ints.compare(&mut f, "lt", at_along, axes[along].extent);
                at_along = ints.select(&mut f, inside, at_along, first);
                guard = Some(inside);
            }
        }
        let mut group = root.at([(last, at_last), (along, at_along)], None);
        let at = ints.mul_add(&mut f, x, PITCH as i64, Some(side));
        for (&id, tile) in plan.loads.iter().zip(&tiles) {
            group.set(ValueId(id as u32), tile.load(&mut f, &body, at));
        }
        groups.push((group, guard));
    }
    body.fetch(&mut f, groups.iter_mut().map(|(group, _)| group));
    for (mut group, guard) in groups {
        body.points(&mut f, &mut group, guard);
    }
    f.place(idle);
    Launch { module: f.finish(), grid: grid([blocks, 1, 1]), block: BLOCK as u32, shared: 0, arguments }
}

/// The coordinate `origin + offset`; threads for which it lies beyond the end of the axis go to `idle`.
fn inside(f: &mut PtxFunction, body: &BodyEmitter<'_>, origin: Reg, offset: Reg, axis: usize, idle: CodeLabel) -> Reg {
    let (ints, extent) = (body.ints, body.kernel.axes[axis].extent);
    let at = ints.mul_add(f, origin, 1, Some(offset));
    if !extent.is_multiple_of(TILE) {
        let beyond = ints.compare(f, "ge", at, extent);
        ptx!(f, "@{beyond} bra {idle}");
    }
    at
}

/// The coordinate `origin + offset`, or the last one of the axis.
fn clamped(f: &mut PtxFunction, body: &BodyEmitter<'_>, origin: Reg, offset: Reg, axis: usize) -> Reg {
    let (ints, extent) = (body.ints, body.kernel.axes[axis].extent);
    let at = ints.mul_add(f, origin, 1, Some(offset));
    if extent.is_multiple_of(TILE) { at } else { ints.min(f, at, extent as u64 - 1) }
}

/// A tile of a parameter in shared memory.
struct Staged {
    base: Reg,
    param: ParamId,
}

impl Staged {
    fn address(&self, f: &mut PtxFunction, body: &BodyEmitter<'_>, at: Reg) -> Reg {
        let size = body.kernel.params[self.param.index()].dtype.size();
        let at = if body.ints.wide { f.op(Class::B32, "cvt.u32.u64", format_args!("{at}")) } else { at };
        f.op(Class::B32, "mad.lo.u32", format_args!("{at}, {size}, {}", self.base))
    }

    fn load(&self, f: &mut PtxFunction, body: &BodyEmitter<'_>, at: Reg) -> Lanes {
        let address = self.address(f, body, at);
        Lanes::Same(load(f, Space::Shared, body.kernel.params[self.param.index()].dtype, address, 0))
    }
}

/// Copies tiles into shared memory, a row for each coordinate along the last axis. Beyond the end of an axis the last
/// element stands, so that all of the tile is written.
fn stage(
    f: &mut PtxFunction,
    body: &BodyEmitter<'_>,
    root: &PointGroup,
    plan: &Tiled,
    origin: &[Reg],
    (x, y): (Reg, Reg),
) -> Vec<Staged> {
    let (along, last) = (plan.axis, body.kernel.axes.len() - 1);
    let mut tiles: Vec<Staged> = Vec::new();
    for (n, &id) in plan.loads.iter().enumerate() {
        if let Inst::Load(param, _) = body.kernel.insts[id] {
            let size = body.kernel.params[param.index()].dtype.size();
            let name = f.shared(&format!("tile{n}"), 16, TILE * PITCH * size);
            let base = f.op(Class::B32, "mov.u32", format_args!("{name}"));
            tiles.push(Staged { base, param });
        }
    }
    let mut groups: SmallVec<[(PointGroup, Reg); 4]> = smallvec![];
    for row in 0..TILE / ROWS {
        let side = body.ints.add(f, y, (row * ROWS) as u64);
        let at_along = clamped(f, body, origin[along], x, along);
        let at_last = clamped(f, body, origin[last], side, last);
        groups.push((root.at([(last, at_last), (along, at_along)], None), side));
    }
    let loads: Vec<LoopStep> = plan.loads.iter().map(|&id| LoopStep::Make(id)).collect();
    groups.iter_mut().for_each(|(group, _)| body.steps(f, group, &loads, None));
    for (group, side) in groups {
        let at = body.ints.mul_add(f, side, PITCH as i64, Some(x));
        for (&id, tile) in plan.loads.iter().zip(&tiles) {
            let Some(value) = group.value(ValueId(id as u32)).map(|v| v.lane(0)) else { continue };
            let address = tile.address(f, body, at);
            store(f, Space::Shared, value, address, 0, None);
        }
    }
    tiles
}
