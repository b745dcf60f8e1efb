//! The canonical form of a kernel: kept axes first, adjacent axes merged, no axis of extent 1, no dead instruction.
//!
//! Kernels that differ only in how they name the same loops become equal, and so share their code.

use retape_runtime::{DType, Scalar};
use smallvec::SmallVec;

use super::MIN_VECTOR_EXTENT;
use super::interleaved::{interleaved_loads, interleaved_stores};
use crate::ir::{Affine, Axis, AxisId, Inst, Kernel, KernelBuilder, Store, Value, ValueId, operation};
use crate::simplify::{builder_like, without_dead};

/// The canonical form; `None` if there is nothing to do.
pub(crate) fn canonical(kernel: &Kernel) -> Option<Kernel> {
    if kernel.kept_len() == 0 {
        return None;
    }
    let kernel = without_dead(without_empty_reductions(kernel.clone()));
    if kernel.stores.is_empty() {
        return None;
    }
    let (kernel, _) = merged(without_single_reductions(without_units(kernel)), 0);
    Some(merged(ordered(kernel), 0).0)
}

/// Reductions over a single point, where no axis is reduced, as operations on their neutral elements.
pub(super) fn without_single_reductions(kernel: Kernel) -> Kernel {
    let is_reduction = |inst: &Inst<ValueId>| matches!(inst, Inst::Reduce(..));
    if kernel.axes.iter().any(|axis| axis.reduced) || !kernel.insts.iter().any(is_reduction) {
        return kernel;
    }
    let (mut insts, mut new) = (Vec::new(), Vec::new());
    for (inst, dtype) in kernel.insts.iter().zip(kernel.dtypes()) {
        let inst = inst.map(|v: ValueId| new[v.index()]);
        match inst {
            Inst::Reduce(op, x) => {
                let neutral = ValueId(insts.len() as u32);
                insts.extend([Inst::Const(op.neutral(dtype)), Inst::Binary(op.binary(), neutral, x)]);
            }
            Inst::Const(_) | Inst::Index(_) | Inst::Load(..) | Inst::LoadAt(..) | operation!() => insts.push(inst),
        }
        new.push(ValueId(insts.len() as u32 - 1));
    }
    let stores = kernel.stores.into_iter().map(|store| Store { value: new[store.value.index()], ..store }).collect();
    Kernel { insts, stores, ..kernel }
}

/// Reductions over nothing are constants; reduced axes that nothing uses are dropped.
fn without_empty_reductions(mut kernel: Kernel) -> Kernel {
    let reduced = |a: &&Axis| a.reduced;
    let empty = kernel.axes.iter().filter(reduced).any(|a| a.extent == 0);
    if empty {
        let dtypes = kernel.dtypes();
        for (inst, dtype) in kernel.insts.iter_mut().zip(dtypes) {
            if let Inst::Reduce(op, _) = *inst {
                *inst = Inst::Const(op.neutral(dtype));
            }
        }
        let stores = std::mem::take(&mut kernel.stores);
        kernel.stores = stores.into_iter().filter(|s| !kernel.uses_reduced(&s.at)).collect();
        kernel = without_dead(kernel);
    }
    let used = !empty
        && (kernel.insts.iter().any(|i| matches!(i, Inst::Reduce(..)))
            || kernel.stores.iter().any(|s| kernel.uses_reduced(&s.at)));
    if used {
        return kernel;
    }
    let order: Vec<usize> = (0..kernel.axes.len()).filter(|&a| !kernel.axes[a].reduced).collect();
    with_axes(kernel, &order)
}

pub(super) fn without_units(kernel: Kernel) -> Kernel {
    let order: Vec<usize> = (0..kernel.axes.len()).filter(|&a| kernel.axes[a].extent != 1).collect();
    with_axes(kernel, &order)
}

/// As [`select_axes`], for orders that are often the one that is there.
fn with_axes(kernel: Kernel, order: &[usize]) -> Kernel {
    debug_assert!(maps(&kernel).all(|at| at.strides.len() == kernel.axes.len()), "one stride per axis");
    if order.iter().copied().eq(0..kernel.axes.len()) { kernel } else { select_axes(&kernel, order) }
}

/// The kernel with only the axes `order`, in that order; the others are at their origin.
pub(super) fn select_axes(kernel: &Kernel, order: &[usize]) -> Kernel {
    let at = |map: &Affine| Affine { offset: map.offset, strides: order.iter().map(|&a| map.stride(a)).collect() };
    let index = |axis: AxisId| order.iter().position(|&a| a == axis.index()).map(|a| AxisId(a as u32));
    let axes = order.iter().map(|&a| kernel.axes[a]).collect();
    rewritten(kernel, axes, &at, &index)
}

/// The kernel over other axes, given each access and each coordinate there.
pub(super) fn over_axes(
    kernel: &Kernel,
    axes: &[Axis],
    at: &dyn Fn(&Affine) -> Affine,
    index: &dyn for<'k> Fn(&'k KernelBuilder, AxisId) -> Value<'k>,
) -> Kernel {
    let k = builder_like(kernel, axes);
    let mut new: Vec<ValueId> = Vec::with_capacity(kernel.insts.len());
    for inst in &kernel.insts {
        let value = match inst {
            Inst::Index(axis) => index(&k, *axis),
            Inst::Load(param, map) => k.load(*param, at(map)),
            Inst::Const(_) | Inst::LoadAt(..) | Inst::Reduce(..) | operation!() => {
                k.push(inst.map(|v: ValueId| new[v.index()]))
            }
        };
        new.push(value.id());
    }
    for store in &kernel.stores {
        k.store(store.param, at(&store.at), k.value(new[store.value.index()]));
    }
    k.finish()
}

/// The kernel with an axis and the next one as one, if every access walks them so: their coordinates are a quotient and a
/// remainder.
pub(super) fn with_next_axis(kernel: &Kernel, outer: usize) -> Option<Kernel> {
    let extent = i64::try_from(kernel.axes[outer + 1].extent).ok()?;
    with_next_axis_by(kernel, outer, &|_, merged| [merged / extent, merged % extent])
}

/// The kernel with an axis and the next one as one, if every access walks them so, given what stands for their coordinates
/// in place of that one.
pub(super) fn with_next_axis_by(
    kernel: &Kernel,
    outer: usize,
    parts: &dyn for<'k> Fn(&'k KernelBuilder, Value<'k>) -> [Value<'k>; 2],
) -> Option<Kernel> {
    let extent = i64::try_from(kernel.axes[outer + 1].extent).ok()?;
    let are_rows = maps(kernel).all(|at| at.stride(outer + 1).checked_mul(extent) == Some(at.stride(outer)));
    are_rows.then_some(())?;
    let mut axes = kernel.axes.clone();
    axes[outer].extent = axes[outer].extent.checked_mul(axes.remove(outer + 1).extent)?;
    let map = |at: &Affine| affine(at.offset, (0..axes.len()).map(|a| at.stride(if a < outer { a } else { a + 1 })));
    Some(over_axes(kernel, &axes, &map, &|k, a| match a.index() {
        n if (outer..=outer + 1).contains(&n) => parts(k, k.index(AxisId(outer as u32)))[n - outer],
        n if n < outer => k.index(a),
        _ => k.index(AxisId(a.0 - 1)),
    }))
}

fn rewritten(
    kernel: &Kernel,
    axes: Vec<Axis>,
    at: &dyn Fn(&Affine) -> Affine,
    index: &dyn Fn(AxisId) -> Option<AxisId>,
) -> Kernel {
    let insts = kernel.insts.iter().map(|inst| match inst {
        Inst::Load(p, map) => Inst::Load(*p, at(map)),
        Inst::Index(axis) => match index(*axis) {
            Some(axis) => Inst::Index(axis),
            None => Inst::Const(Scalar { dtype: DType::I64, bits: 0 }),
        },
        other @ (Inst::Const(_) | Inst::LoadAt(..) | Inst::Reduce(..) | operation!()) => other.clone(),
    });
    let insts = insts.collect();
    let mut stores = kernel.stores.clone();
    for store in &mut stores {
        store.at = at(&store.at);
    }
    Kernel { params: kernel.params.clone(), axes, insts, stores }
}

fn maps(kernel: &Kernel) -> impl Iterator<Item = &Affine> {
    let loads = kernel.insts.iter().filter_map(|inst| if let Inst::Load(_, at) = inst { Some(at) } else { None });
    loads.chain(kernel.stores.iter().map(|s| &s.at))
}

/// Merges neighbours that every access walks as one row-major axis, except across a border: the first axis behind it,
/// which is returned as it is numbered then.
pub(super) fn merged(mut kernel: Kernel, mut border: usize) -> (Kernel, usize) {
    let mut outer = 0;
    while outer + 1 < kernel.axes.len() {
        let (a, b) = (kernel.axes[outer], kernel.axes[outer + 1]);
        let indexed = kernel
            .insts
            .iter()
            .any(|inst| matches!(inst, Inst::Index(axis) if axis.index() == outer || axis.index() == outer + 1));
        let end_of_row = |at: &Affine| i64::try_from(b.extent).ok().and_then(|n| at.stride(outer + 1).checked_mul(n));
        let rows = maps(&kernel).all(|at| Some(at.stride(outer)) == end_of_row(at));
        if indexed || !rows || a.reduced != b.reduced || outer + 1 == border {
            outer += 1;
            continue;
        }
        kernel.axes[outer + 1].extent = a.extent * b.extent;
        let order: Vec<usize> = (0..kernel.axes.len()).filter(|&axis| axis != outer).collect();
        kernel = select_axes(&kernel, &order);
        border -= usize::from(outer < border);
        outer = outer.saturating_sub(1);
    }
    (kernel, border)
}

/// Kept axes before reduced ones; in each class the axis with most unit strides last, the others by falling strides.
fn ordered(kernel: Kernel) -> Kernel {
    let mut order: Vec<usize> = Vec::new();
    for reduced in [false, true] {
        let mut class: Vec<usize> = (0..kernel.axes.len()).filter(|&a| kernel.axes[a].reduced == reduced).collect();
        class.sort_by_key(|&a| std::cmp::Reverse(leading_stride(&kernel, a, reduced)));
        let score = |&a: &usize| {
            let long = kernel.axes[a].extent >= MIN_VECTOR_EXTENT;
            if long { score(&kernel, a) } else { 0 }
        };
        let best = class.iter().map(score).max().unwrap_or(0);
        if let Some(at) = class.iter().rposition(|a| score(a) == best) {
            let inner = class.remove(at);
            class.push(inner);
        }
        order.extend(class);
    }
    with_axes(kernel, &order)
}

/// How good an axis is as the innermost one: unit strides count most, and those of stores above those of loads. Where nothing is
/// summed, accesses that have the words of short rows together are as good.
fn score(kernel: &Kernel, axis: usize) -> usize {
    let has_rows = kernel.stores.len() > 1 && !kernel.axes.iter().any(|axis| axis.reduced);
    let rows = has_rows.then_some(axis);
    let [loaded, stored] = [interleaved_loads(kernel, rows, 2), interleaved_stores(kernel, rows, 2)];
    let points = |at: &Affine, is_of_row: bool, unit: usize| match at.stride(axis) {
        1 => unit,
        _ if is_of_row => unit,
        0 => 1,
        _ => 0,
    };
    let loads = kernel.insts.iter().zip(loaded);
    let loads = loads.map(|(inst, of)| if let Inst::Load(_, at) = inst { points(at, of.is_some(), 4) } else { 0 });
    let stores = kernel.stores.iter().zip(stored);
    loads.sum::<usize>() + stores.map(|(store, of)| points(&store.at, of.is_some(), 6)).sum::<usize>()
}

/// The stride that decides the loop order: of the first store for kept axes, the largest of loads for reduced ones.
fn leading_stride(kernel: &Kernel, axis: usize, reduced: bool) -> u64 {
    if reduced {
        return maps(kernel).map(|at| at.stride(axis).unsigned_abs()).max().unwrap_or(0);
    }
    kernel.stores.first().map_or(0, |s| s.at.stride(axis).unsigned_abs())
}

/// An affine map of other strides.
pub(super) fn affine(offset: i64, strides: impl IntoIterator<Item = i64>) -> Affine {
    Affine { offset, strides: strides.into_iter().collect::<SmallVec<_>>() }
}
