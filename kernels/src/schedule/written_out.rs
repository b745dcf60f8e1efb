//! Short axes written out: a copy of the instructions for each of their points.
//!
//! A nest that folds rows has vectors along them; of a row of three elements most lanes are idle, and what a row needs
//! besides is done for one row at a time. Written out, rows lie side by side in the lanes, and the elements of a row are
//! values of their own. The same goes for sums of a few columns, whose vectors are then rows again.
//!
//! The elements of a row are added in their order.

use super::interleaved::MOST_WAYS;
use super::{MIN_VECTOR_EXTENT, NEAR, Traversal, split};
use crate::ir::{Affine, Axis, AxisId, Inst, Kernel, ReductionOp, Stage, ValueId, operation};
use crate::simplify::builder_like;

/// The longest axis that is written out: rows of words are turned as a whole.
const LONGEST: usize = MOST_WAYS;

/// The longest axis along which elements of so many bytes are written out. Those that are no words are read and written one by
/// one, which takes longer than rows as vectors where these fill whole vectors.
const fn longest_of(bytes: usize) -> usize {
    match bytes {
        4 => LONGEST,
        8 => 12,
        _ => 7,
    }
}

/// The fewest points of the axis that has the vectors then.
const MIN_ROWS: usize = 16;
/// The fewest rows of all.
const MIN_POINTS: usize = if cfg!(test) { 16 } else { 1 << 8 };
/// Kept points from which on threads have enough without chunks.
const MANY_KEPT: usize = 512;
/// Instructions of all copies at most.
pub(super) const MOST_INSTS: u64 = 1 << 10;
/// Instructions for each access from which on rows of four elements or more are written out: of words that are stored, in rows
/// of at most eight; of other elements that are stored; and of elements that are not.
const HEAVY: usize = 3;
const HEAVY_LONG: usize = 6;
const HEAVY_SUMMED: usize = 3;
/// Instructions of an extreme of floats, which heeds NaN and the signs of zeros.
const FLOAT_MAX: usize = 3;

/// The kernel, which is canonical, with a short axis written out, if that pays.
pub(super) fn with_short_axis_written_out(kernel: &Kernel) -> Option<Kernel> {
    let kept = kernel.axes.iter().filter(|axis| !axis.reduced).count();
    let last = kernel.axes.len().checked_sub(1)?;
    (kept <= last && super::traversal(kernel, kept) == Traversal::Rows).then_some(())?;
    let is_short = |axis: usize| {
        let along = accesses(kernel).filter(|(_, at)| at.stride(axis) != 0);
        let longest = along.map(|(param, _)| longest_of(kernel.params[param].dtype.size())).min();
        (2..=longest.unwrap_or(LONGEST)).contains(&kernel.axes[axis].extent)
    };
    let is_walked = |axis: usize, rows: usize| {
        // Rows that follow one another are turned as a whole.
        let is_near = |stride: i64| (0..=NEAR).contains(&stride) || stride == kernel.axes[axis].extent as i64;
        let is_near = |(_, at): (usize, &Affine)| at.stride(axis) == 1 && is_near(at.stride(rows));
        let mut along = accesses(kernel).filter(|(_, at)| at.stride(axis) != 0).peekable();
        rows != axis && kernel.axes[rows].extent >= MIN_ROWS && along.peek().is_some() && along.all(is_near)
    };
    let is_large = |axis: usize| {
        let [before, after] = [kernel.n_points(), kernel.n_points() / kernel.axes[axis].extent];
        // A sum that is worth chunks for threads stays so.
        let has_chunks = kernel.kept_len() < MANY_KEPT && (after..before).contains(&(split::MIN_POINTS - 1));
        after >= MIN_POINTS && !has_chunks
    };
    let pays = |axis: usize| {
        let extent = kernel.axes[axis].extent;
        let is_small = super::cost_of_point(kernel) * extent as u64 <= MOST_INSTS;
        let is_word = |(param, at): (usize, &Affine)| at.stride(axis) == 0 || kernel.params[param].dtype.size() >= 4;
        is_small && (extent < MIN_VECTOR_EXTENT && accesses(kernel).all(is_word) || is_heavy(kernel, axis))
    };
    // Elements of short rows, or few columns beside results for each element; other axes have the vectors then.
    let column = kept.checked_sub(1).filter(|_| stores_elements(kernel));
    let mut candidates = (kept..=last).rev().chain(column).filter(|&axis| is_short(axis) && is_large(axis));
    // The last kept axis beside a column is the one before it.
    let is_of_rows = |axis: usize| {
        let mut rows = (kept.saturating_sub(2)..=last).filter(|&rows| is_walked(axis, rows)).peekable();
        rows.peek()?;
        let written = written_out(kernel, axis);
        // The elements of long rows are only near each other if the vectors lie along the rows.
        let is_near = kernel.axes[axis].extent <= NEAR as usize;
        let lanes = vector_axis(&written, kept - usize::from(axis < kept));
        (is_near || rows.any(|rows| lanes == Some(rows - usize::from(axis < rows)))).then_some(written)
    };
    candidates.find_map(|axis| if pays(axis) { is_of_rows(axis) } else { None })
}

/// The axis of a kernel with so many kept ones that has the vectors.
fn vector_axis(kernel: &Kernel, kept: usize) -> Option<usize> {
    match super::traversal(kernel, kept) {
        Traversal::Rows => kernel.axes.len().checked_sub(1),
        Traversal::Flat | Traversal::Columns { .. } | Traversal::Tile => kept.checked_sub(1),
    }
}

/// Whether rows of four elements or more, which have vectors of their own, are better written out: where an element takes
/// many instructions for each access, or, if it is not stored, some.
fn is_heavy(kernel: &Kernel, axis: usize) -> bool {
    let (dtypes, depends) = (kernel.dtypes(), dependants(kernel, axis));
    let (mut n_loads, mut cost) = (0, 0);
    for (inst, dtype) in kernel.insts.iter().zip(dtypes).zip(depends).filter(|&(_, depends)| depends).map(|(of, _)| of)
    {
        match inst {
            Inst::Load(..) => n_loads += 1,
            Inst::Reduce(ReductionOp::Max | ReductionOp::Min, _) if dtype.is_float() => cost += FLOAT_MAX,
            Inst::Const(_) | Inst::Index(_) | Inst::LoadAt(..) | Inst::Reduce(..) | operation!() => cost += 1,
        }
    }
    let n_stores = kernel.stores.iter().filter(|store| store.at.stride(axis) != 0).count();
    let is_of_words =
        accesses(kernel).all(|(param, at)| at.stride(axis) == 0 || kernel.params[param].dtype.size() == 4);
    let heavy = if is_of_words && kernel.axes[axis].extent <= NEAR as usize { HEAVY } else { HEAVY_LONG };
    cost >= if n_stores == 0 { HEAVY_SUMMED * n_loads } else { heavy * (n_loads + n_stores) }
}

/// Whether a result has an element for each point of the reduced axes.
fn stores_elements(kernel: &Kernel) -> bool {
    kernel.stores.iter().any(|store| kernel.uses_reduced(&store.at))
}

/// All that are loaded and stored: the parameters and the positions.
pub(super) fn accesses(kernel: &Kernel) -> impl Iterator<Item = (usize, &Affine)> {
    let loads = kernel.insts.iter().filter_map(|inst| match inst {
        Inst::Load(param, at) => Some((param.index(), at)),
        Inst::Const(_) | Inst::Index(_) | Inst::LoadAt(..) | Inst::Reduce(..) | operation!() => None,
    });
    loads.chain(kernel.stores.iter().map(|store| (store.param.index(), &store.at)))
}

/// The kernel without an axis: with copies, one for each of its points, of all instructions that depend on it.
pub(super) fn written_out(kernel: &Kernel, axis: usize) -> Kernel {
    let mut axes = kernel.axes.clone();
    let Axis { extent, reduced } = axes.remove(axis);
    let is_summed = axes.iter().any(|axis| axis.reduced);
    let k = builder_like(kernel, &axes);
    let at = |at: &Affine, point: usize| Affine {
        offset: at.offset + point as i64 * at.stride(axis),
        strides: (0..kernel.axes.len()).filter(|&a| a != axis).map(|a| at.stride(a)).collect(),
    };
    let (dtypes, stages, depends) = (kernel.dtypes(), kernel.stages(), dependants(kernel, axis));
    // Instructions behind a sum over the axis are there once.
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
                    // A sum begins with zero, to which -0 adds nothing; one that is left begins so anyway.
                    0 if !is_summed && *op == ReductionOp::Sum => {
                        let zero = k.constant(op.neutral(dtypes[id])).id();
                        k.push(Inst::Binary(op.binary(), zero, element)).id()
                    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::evaluate;
    use crate::ir::random::random_inputs;
    use crate::schedule::{Schedule, schedule};

    /// The kernel with a short axis written out, which does the same; numbers of `i32` have the same sums in any
    /// order.
    fn checked(text: &str) -> Option<Kernel> {
        let kernel: Kernel = text.parse().unwrap();
        kernel.verify().unwrap();
        let canonical = crate::schedule::canonical(&kernel).unwrap();
        let written = with_short_axis_written_out(&canonical)?;
        written.verify().unwrap();
        let inputs = random_inputs(&kernel, 7);
        let of = |kernel: &Kernel| {
            let results = kernel.params.iter().filter(|param| param.written);
            let mut results: Vec<Vec<u8>> = results.map(|param| vec![0xa5; param.len * param.dtype.size()]).collect();
            let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
            evaluate(kernel, &inputs, &mut results.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
            results
        };
        assert_eq!(of(&kernel), of(&written), "{text}");
        Some(written)
    }

    /// Sums of rows of `len` at a distance, with a result for each element if `stores` says so.
    fn rows(len: usize, pitch: usize, dtype: &str, stores: bool, n_steps: usize) -> String {
        let n = 40 * pitch;
        let steps: String = (2..2 + n_steps).map(|id| format!("%{id} = mul %{}, %0\n", id - 1)).collect();
        let last = 1 + n_steps;
        let store = if stores { format!("store p1[a0 * {pitch} + a1], %{last}") } else { String::new() };
        format!(
            "kernel (p0: {dtype}[{n}], p1: {dtype}[{n}] out, p2: {dtype}[40] out) {{
                axes a0 = 40, a1 = {len} reduced
                %0 = load p0[a0 * {pitch} + a1]
                %1 = add %0, %0
                {steps}
                %{} = reduce sum %{last}
                {store}
                store p2[a0], %{}
            }}",
            last + 1,
            last + 1
        )
    }

    #[test]
    fn sums_of_short_rows_have_rows_as_lanes() {
        for (len, pitch, stores) in [(2, 2, true), (3, 3, false), (3, 3, true), (3, 5, true), (2, 8, false)] {
            let written = checked(&rows(len, pitch, "i32", stores, 0)).unwrap();
            assert_eq!(written.axes, [Axis { extent: 40, reduced: false }]);
            assert_eq!(written.stores.len(), if stores { len + 1 } else { 1 });
        }
        // The vectors lie along the rows.
        let kernel: Kernel = rows(3, 3, "f32", false, 0).parse().unwrap();
        let Schedule { nests, .. } = schedule(&kernel);
        assert_eq!(nests[0].traversal, Traversal::Flat);
    }

    #[test]
    fn longer_rows_are_written_out_if_their_elements_take_long() {
        assert!(checked(&rows(5, 5, "i32", false, 0)).is_none());
        assert!(checked(&rows(5, 5, "i32", false, 4)).is_some());
        assert!(checked(&rows(5, 5, "i32", true, 1)).is_none());
        assert!(checked(&rows(5, 5, "i32", true, 5)).is_some());
        assert!(checked(&rows(10, 10, "i32", true, 5)).is_none());
        assert!(checked(&rows(7, 7, "i32", true, 20)).is_some());
        assert!(checked(&rows(16, 16, "i32", true, 40)).is_some());
        assert!(checked(&rows(17, 17, "i32", true, 40)).is_none(), "long rows");
        assert!(checked(&rows(9, 16, "i32", true, 40)).is_none(), "long rows with gaps");
        assert!(checked(&rows(12, 12, "i64", true, 40)).is_some());
        assert!(checked(&rows(13, 13, "i64", true, 40)).is_none(), "long rows of 64 bits");
        assert!(checked(&rows(8, 8, "u8", true, 40)).is_none(), "long rows of short elements");
        assert!(checked(&rows(3, 40, "i32", true, 0)).is_none(), "rows that lie apart");
        assert!(checked(&rows(3, 3, "u8", true, 0)).is_none(), "short elements");
        assert!(checked(&rows(3, 3, "u8", true, 20)).is_some(), "short elements that take long");
    }

    /// Long rows are written out only if vectors then lie along the rows.
    #[test]
    fn vectors_lie_along_long_rows() {
        let text = |len: usize| {
            let steps: String = (2..42).map(|id| format!("%{id} = mul %{}, %0\n", id - 1)).collect();
            format!(
                "kernel (p0: i32[{}], p1: i32[40] out) {{
                    axes a0 = 40, a1 = 25 reduced, a2 = {len} reduced
                    %0 = load p0[a0 * {len} + a1 * {} + a2]
                    %1 = add %0, %0
                    {steps}
                    %42 = reduce sum %41
                    store p1[a0], %42
                }}",
                1000 * len,
                40 * len
            )
        };
        for (len, is_written) in [(6, true), (12, false)] {
            assert_eq!(checked(&text(len)).is_some(), is_written, "{len}");
        }
    }

    /// Rows of three that are summed with others, with what all rows share and what each row has.
    #[test]
    fn a_sum_over_more_axes_is_left() {
        let text = "kernel (p0: i32[2400], p1: i32[3], p2: i32[800], p3: i32[2400] out, p4: i32[8] out) {
            axes a0 = 8, a1 = 100 reduced, a2 = 3 reduced
            %0 = load p0[a0 * 300 + a1 * 3 + a2]
            %1 = load p1[a2]
            %2 = mul %0, %1
            %3 = load p2[a0 * 100 + a1]
            %4 = add %2, %3
            %5 = index a2
            %6 = cast %5: i32
            %7 = add %4, %6
            %8 = reduce sum %7
            %9 = reduce max %3
            %10 = add %8, %9
            store p3[a0 * 300 + a1 * 3 + a2], %7
            store p4[a0], %10
        }";
        let written = checked(text).unwrap();
        assert_eq!(written.axes, [Axis { extent: 8, reduced: false }, Axis { extent: 100, reduced: true }]);
        assert_eq!(written.insts.iter().filter(|inst| matches!(inst, Inst::Reduce(..))).count(), 2);
    }

    /// Sums of three columns beside results for each element: one pass, in which each column has a sum.
    #[test]
    fn few_columns_have_a_sum_each() {
        let text = |more: &str| {
            format!(
                "kernel (p0: i32[3000], p1: i32[1000], p2: i32[3000] out, p3: i32[3] out) {{
                    axes a0 = 1000 reduced, a1 = 3
                    %0 = load p0[a0 * 3 + a1]
                    %1 = load p1[a0]
                    %2 = mul %0, %1
                    %3 = reduce sum %2
                    {more}
                    store p3[a1], %3
                }}"
            )
        };
        let written = checked(&text("store p2[a0 * 3 + a1], %2")).unwrap();
        assert_eq!(written.axes, [Axis { extent: 1000, reduced: true }]);
        assert_eq!((written.stores.len(), written.insts.len()), (6, 10));
        assert!(checked(&text("")).is_none(), "sums alone");
    }

    /// The sums of rows of three numbers.
    fn sums_of(row: [f32; 3]) -> Vec<f32> {
        let kernel: Kernel = rows(3, 3, "f32", false, 0).parse().unwrap();
        let written = with_short_axis_written_out(&crate::schedule::canonical(&kernel).unwrap()).unwrap();
        let input: Vec<u8> = row.repeat(40).iter().flat_map(|x| x.to_le_bytes()).collect();
        let mut results = [vec![0; 480], vec![0xa5; 160]];
        let [unused, sums] = &mut results;
        evaluate(&written, &[&input], &mut [unused, sums]);
        results[1].chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
    }

    #[test]
    fn elements_are_added_in_their_order() {
        // Their doubles are added.
        assert_eq!(sums_of([1e8, -1e8, 1.0]), [2.0; 40]);
        assert_eq!(sums_of([1.0, 1e8, -1e8]), [0.0; 40]);
    }

    #[test]
    fn a_sum_of_negative_zeros_is_zero() {
        assert!(sums_of([-0.0; 3]).iter().all(|sum| sum.to_bits() == 0));
    }
}
