//! Short axes written out: a copy of the instructions for each of their points.
//!
//! A nest that folds rows has vectors along them; of a row of three elements most lanes are idle, and what a row needs
//! besides is done for one row at a time. Written out, rows lie side by side in the lanes, and the elements of a row are
//! values of their own. The same goes for sums of a few columns, whose vectors are then rows again.
//!
//! The elements of a row are added in their order.

use super::{MIN_VECTOR_EXTENT, NEAR, Traversal};
use crate::ir::{Affine, Axis, AxisId, Inst, Kernel, Stage, ValueId, operation};
use crate::simplify::builder_like;

/// The longest axis that is written out.
const LONGEST: usize = NEAR as usize;
/// The fewest points of the axis that has the vectors then.
const MIN_ROWS: usize = 16;
/// The fewest rows of all.
const MIN_POINTS: usize = if cfg!(test) { 16 } else { 1 << 8 };
/// Instructions of all copies at most.
const MOST_INSTS: u64 = 1 << 10;
/// Instructions for each access from which on rows of a vector or more are written out.
const HEAVY: usize = 7;

/// The kernel, which is canonical, with its last short axis written out, if that pays.
pub(super) fn with_short_axis_written_out(kernel: &Kernel) -> Option<Kernel> {
    let kept = kernel.axes.iter().filter(|axis| !axis.reduced).count();
    let last = kernel.axes.len().checked_sub(1)?;
    (kept <= last && super::traversal(kernel, kept) == Traversal::Rows).then_some(())?;
    let is_short = |axis: usize| (2..=LONGEST).contains(&kernel.axes[axis].extent);
    let before = |axis: usize| axis.checked_sub(1);
    // Of a short row, the axis before it has the vectors then; of a few columns, that or the rows that are summed.
    let columns = before(kept).filter(|&column| is_short(column) && stores_elements(kernel));
    let (axis, rows) = match columns {
        _ if is_short(last) => (last, [before(last), None]),
        Some(column) => (column, [before(column), Some(last)]),
        None => return None,
    };
    let extent = kernel.axes[axis].extent;
    let is_walked = |rows: usize| {
        let is_near = |at: &Affine| at.stride(axis) == 1 && (0..=LONGEST as i64).contains(&at.stride(rows));
        kernel.axes[rows].extent >= MIN_ROWS && accesses(kernel).all(|at| at.stride(axis) == 0 || is_near(at))
    };
    let is_small = super::cost_of_point(kernel) * extent as u64 <= MOST_INSTS;
    let pays = extent < MIN_VECTOR_EXTENT || is_heavy(kernel, axis);
    let is_large = kernel.n_points() / extent >= MIN_POINTS && rows.into_iter().flatten().any(is_walked);
    (is_large && is_small && pays).then(|| written_out(kernel, axis))
}

/// Whether an element takes so many instructions that how it is read and written does not matter.
fn is_heavy(kernel: &Kernel, axis: usize) -> bool {
    let depends = dependants(kernel, axis);
    let of_elements = || kernel.insts.iter().zip(&depends).filter(|&(_, &depends)| depends);
    let n_loads = of_elements().filter(|(inst, _)| matches!(inst, Inst::Load(..))).count();
    let stores = kernel.stores.iter().filter(|store| store.at.stride(axis) != 0);
    let are_words = stores.clone().all(|store| kernel.params[store.param.index()].dtype.size() == 4);
    are_words && of_elements().count() >= HEAVY * (n_loads + stores.count())
}

/// Whether a result has an element for each point of the reduced axes.
fn stores_elements(kernel: &Kernel) -> bool {
    kernel.stores.iter().any(|store| kernel.uses_reduced(&store.at))
}

fn accesses(kernel: &Kernel) -> impl Iterator<Item = &Affine> {
    let loads = kernel.insts.iter().filter_map(|inst| if let Inst::Load(_, at) = inst { Some(at) } else { None });
    loads.chain(kernel.stores.iter().map(|store| &store.at))
}

/// The kernel without an axis: with copies, one for each of its points, of all instructions that depend on it.
fn written_out(kernel: &Kernel, axis: usize) -> Kernel {
    let mut axes = kernel.axes.clone();
    let Axis { extent, reduced } = axes.remove(axis);
    let is_summed = axes.iter().any(|axis| axis.reduced);
    let k = builder_like(kernel, &axes);
    let at = |at: &Affine, point: usize| Affine {
        offset: at.offset + point as i64 * at.stride(axis),
        strides: (0..kernel.axes.len()).filter(|&a| a != axis).map(|a| at.stride(a)).collect(),
    };
    let (stages, depends) = (kernel.stages(), dependants(kernel, axis));
    // What follows a sum over the axis is there once.
    let is_behind = |id: usize| reduced && stages[id] == Stage::Tail;
    // One copy follows another, so that few values are needed at once.
    let mut new = vec![vec![ValueId(0); kernel.insts.len()]; extent];
    for point in 0..extent {
        for (id, inst) in kernel.insts.iter().enumerate().filter(|&(id, _)| !is_behind(id)) {
            if point > 0 && !depends[id] {
                new[point][id] = new[0][id];
                continue;
            }
            new[point][id] = match inst {
                Inst::Index(a) if a.index() == axis => k.constant((point as i64).into()),
                Inst::Index(a) => k.index(AxisId(a.0 - u32::from(a.index() > axis))),
                Inst::Load(param, map) => k.load(*param, at(map, point)),
                Inst::Const(_) | Inst::LoadAt(..) | Inst::Reduce(..) | operation!() => {
                    k.push(inst.map(|v: ValueId| new[point][v.index()]))
                }
            }
            .id();
        }
        for (id, inst) in kernel.insts.iter().enumerate() {
            if let Inst::Reduce(op, x) = inst
                && is_behind(id)
            {
                let element = new[point][x.index()];
                new[0][id] = match point {
                    0 => element,
                    _ => k.push(Inst::Binary(op.binary(), new[0][id], element)).id(),
                };
            }
        }
    }
    for (id, inst) in kernel.insts.iter().enumerate().filter(|&(id, _)| is_behind(id)) {
        new[0][id] = match inst {
            Inst::Reduce(op, _) if is_summed => k.push(Inst::Reduce(*op, new[0][id])).id(),
            Inst::Reduce(..) => new[0][id],
            Inst::Const(_) | Inst::Index(_) | Inst::Load(..) | Inst::LoadAt(..) | operation!() => {
                k.push(inst.map(|v: ValueId| new[0][v.index()])).id()
            }
        };
    }
    for store in &kernel.stores {
        let points = if store.at.stride(axis) == 0 { 1 } else { extent };
        for (point, new) in new.iter().enumerate().take(points) {
            k.store(store.param, at(&store.at, point), k.value(new[store.value.index()]));
        }
    }
    k.finish()
}

/// Of each instruction, whether it differs between points of an axis.
fn dependants(kernel: &Kernel, axis: usize) -> Vec<bool> {
    let mut depends: Vec<bool> = Vec::with_capacity(kernel.insts.len());
    for inst in &kernel.insts {
        let depends_on_axis = match inst {
            Inst::Index(a) => a.index() == axis,
            Inst::Load(_, at) => at.stride(axis) != 0,
            Inst::Const(_) | Inst::LoadAt(..) | Inst::Reduce(..) | operation!() => false,
        };
        depends.push(depends_on_axis || inst.operands().iter().any(|v| depends[v.index()]));
    }
    depends
}
