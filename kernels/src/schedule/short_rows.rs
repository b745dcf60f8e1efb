//! Kernels over many short rows as kernels over all elements in turn.
//!
//! A nest has vectors along its last axis; of a row that is shorter than a vector, the other lanes are idle, and each row
//! is an iteration. Accesses that walk rows one after the other walk the elements of all rows as one axis; what a kernel
//! computes from the coordinates of a row and a column, positions of elements among them, follows from a quotient and a
//! remainder. Rows that are read from a computed place on, as those of a table, stay rows where vectors hold them.
//!
//! An operand that all rows share is read at the remainder, and one that has an element for each row at the quotient, where
//! that is faster than idle lanes.
//!
//! Sums of each row or of each column are not touched. A kernel that sums all elements of short rows adds them in the order
//! of a kernel over one axis, whether or not rows share an operand.

use super::MIN_VECTOR_EXTENT;
use super::canonical::with_next_axis;
use crate::ir::{Affine, AxisId, Binary, Inst, Kernel, ValueId, operation};
use crate::simplify::{builder_like, simplify_around_coordinates};

/// The shortest rows that are long enough: as many elements as the widest vector has.
const LONG: usize = 16;
/// Elements of an operand at most that all rows share: as many as a vector of 256 bits has, which are chosen from by one
/// instruction.
const TABLE: usize = 8;
/// Instructions of a kernel at most whose rows of any length stay.
const LIGHT: usize = 48;
/// The fewest points that are worth a quotient.
const MIN_POINTS: usize = if cfg!(test) { 16 } else { 1 << 8 };
/// Points whose quotients fit numbers of 32 bits, for which alone machines divide many by a constant at once.
const MAX_POINTS: usize = 1 << 31;

/// The kernel with its short rows as one axis, if it has any and that pays.
pub(super) fn without_short_rows(kernel: Kernel) -> Kernel {
    let mut kernel = kernel;
    while let Some(joined) = with_last_axes_as_one(&kernel) {
        kernel = joined;
    }
    kernel
}

fn with_last_axes_as_one(kernel: &Kernel) -> Option<Kernel> {
    let (outer, len) = (kernel.axes.len().checked_sub(2)?, kernel.axes.last()?.extent);
    let points = kernel.axes.iter().try_fold(1_usize, |points, axis| points.checked_mul(axis.extent))?;
    (len < LONG && (MIN_POINTS..MAX_POINTS).contains(&points)).then_some(())?;
    let is_plain = !kernel.axes.iter().any(|axis| axis.reduced);
    let is_summed = kernel.axes.iter().all(|axis| axis.reduced);
    let is_row = kernel.stores.iter().all(|store| store.at.stride(outer + 1) == 1);
    (is_plain && is_row || is_summed).then_some(())?;
    // Lanes beyond a short row are idle in the rest of the kernel, too.
    let is_formula = |inst: &Inst<ValueId>| matches!(inst, Inst::Call1(..) | Inst::Call2(..));
    let is_light = kernel.insts.len() <= LIGHT && !kernel.insts.iter().any(is_formula);
    // Rows of fewer elements than the narrowest vector has get no vectors.
    let is_scalar = len < MIN_VECTOR_EXTENT;
    let stays = || (len >= LONG / 2 || is_light) && !is_scalar && reads_rows(kernel);
    let loads = ShortRowLoads::of(kernel, outer);
    let is_small = |&param: &usize| {
        let param = kernel.params[param];
        param.len <= TABLE && param.dtype.size() == 4
    };
    let pays = match (loads.shared.is_empty(), loads.has_elements_of_rows) {
        _ if loads.has_others => is_scalar && !is_light && loads.walks,
        (true, false) => true,
        (false, false) => is_scalar || !is_light && len < LONG / 2 && loads.shared.iter().all(is_small),
        (_, true) => is_scalar && if is_plain { !is_light } else { loads.walks },
    };
    if pays && !stays() { with_next_axis(&with_positions(kernel, outer), outer) } else { None }
}

/// How a kernel reads the rows of its last two axes.
struct ShortRowLoads {
    /// The parameters that all rows share.
    shared: Vec<usize>,
    /// Whether a parameter has an element for each row.
    has_elements_of_rows: bool,
    /// Whether there are loads of another order, as of rows with others between them.
    has_others: bool,
    /// Whether something is read at computed positions, or read or written row after row.
    walks: bool,
}

impl ShortRowLoads {
    fn of(kernel: &Kernel, outer: usize) -> ShortRowLoads {
        let walks_rows = |at: &Affine| is_in_turn(kernel, outer, at) && at.stride(outer + 1) != 0;
        let is_stored = kernel.stores.iter().any(|store| walks_rows(&store.at));
        let mut loads =
            ShortRowLoads { shared: vec![], has_elements_of_rows: false, has_others: false, walks: is_stored };
        for inst in &kernel.insts {
            loads.walks |= matches!(inst, Inst::LoadAt(..));
            let Inst::Load(param, at) = inst else { continue };
            match [at.stride(outer), at.stride(outer + 1)] {
                _ if is_in_turn(kernel, outer, at) => loads.walks |= walks_rows(at),
                [0, 1] if at.strides.iter().filter(|&&stride| stride != 0).count() == 1 => {
                    loads.shared.push(param.index());
                }
                [_, 0] => loads.has_elements_of_rows = true,
                _ => loads.has_others = true,
            }
        }
        loads
    }
}

/// Whether an access walks the rows of the last two axes one after the other.
pub(super) fn is_in_turn(kernel: &Kernel, outer: usize, at: &Affine) -> bool {
    let extent = i64::try_from(kernel.axes[outer + 1].extent).ok();
    extent.and_then(|extent| at.stride(outer + 1).checked_mul(extent)) == Some(at.stride(outer))
}

/// The kernel with computed positions in loads that do not walk the rows of the last two axes in turn.
fn with_positions(kernel: &Kernel, outer: usize) -> Kernel {
    let k = builder_like(kernel, &kernel.axes);
    let mut new: Vec<ValueId> = Vec::with_capacity(kernel.insts.len());
    for inst in &kernel.insts {
        let value = match inst {
            Inst::Load(param, at) if !is_in_turn(kernel, outer, at) => {
                let axes = (0..kernel.axes.len()).filter(|&axis| at.stride(axis) != 0);
                let terms = axes.map(|axis| k.index(AxisId(axis as u32)) * at.stride(axis));
                let place = terms.fold(k.constant(at.offset.into()), |place, term| place + term);
                k.load_at(*param, place)
            }
            Inst::Const(_) | Inst::Index(_) | Inst::Load(..) | Inst::LoadAt(..) | Inst::Reduce(..) | operation!() => {
                k.push(inst.map(|v: ValueId| new[v.index()]))
            }
        };
        new.push(value.id());
    }
    for store in &kernel.stores {
        k.store(store.param, store.at.clone(), k.value(new[store.value.index()]));
    }
    k.finish()
}

/// Whether a kernel has loads at positions that are computed from the coordinate along the last axis, and all of them read
/// neighbours along it, from a place on that each row computes: one load of a part of a vector is faster than one for each
/// element. Short elements are read so only by machines that have masks for them.
fn reads_rows(kernel: &Kernel) -> bool {
    let kernel = simplify_around_coordinates(kernel);
    let last = kernel.axes.len() - 1;
    let mut differs: Vec<bool> = Vec::with_capacity(kernel.insts.len());
    let (mut n_rows, mut n_others) = (0, 0);
    for inst in &kernel.insts {
        let is_coordinate = |v: ValueId| matches!(kernel.insts[v.index()], Inst::Index(axis) if axis.index() == last);
        if let Inst::LoadAt(param, at) = *inst
            && differs[at.index()]
        {
            let starts_row = |x: ValueId, y: ValueId| is_coordinate(x) && !differs[y.index()];
            let is_row = matches!(kernel.insts[at.index()], Inst::Binary(Binary::Add, x, y)
                if starts_row(x, y) || starts_row(y, x));
            let is_whole = is_row && kernel.params[param.index()].dtype.size() >= 4;
            *(if is_whole { &mut n_rows } else { &mut n_others }) += 1;
        }
        let is_along = match inst {
            Inst::Index(axis) => axis.index() == last,
            Inst::Load(_, at) => at.stride(last) != 0,
            Inst::Const(_) | Inst::LoadAt(..) | Inst::Reduce(..) | operation!() => false,
        };
        differs.push(is_along || inst.operands().iter().any(|v| differs[v.index()]));
    }
    n_rows > 0 && n_others == 0
}

#[cfg(test)]
mod tests {
    use retape_runtime::DType;

    use super::*;
    use crate::ir::random::{evaluated, random_inputs, random_kernel_of_positions};
    use crate::ir::{Func1, Param};
    use crate::schedule::prepared;

    fn outputs(kernel: &Kernel, inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
        evaluated(std::slice::from_ref(kernel), inputs)
    }

    /// Each element of rows of `len` at an index along its row.
    fn take_along(axes: &str, at: &str, len: usize, n: usize) -> Kernel {
        let text = format!(
            "kernel (p0: i64[{n}], p1: f32[{n}], p2: f32[{n}] out) {{
                axes {axes}
                %0 = load p0[{at}]
                %1 = const 0: i64
                %2 = max %0, %1
                %3 = const {last}: i64
                %4 = min %2, %3
                %5 = index a0
                %6 = const {len}: i64
                %7 = mul %5, %6
                %8 = add %7, %4
                %9 = load_at p1, %8
                store p2[{at}], %9
            }}",
            last = len - 1
        );
        text.parse().unwrap()
    }

    #[test]
    fn kernels_over_short_rows_do_what_they_did() {
        let mut n_joined = 0;
        for seed in 0..2000 {
            let kernel = random_kernel_of_positions(seed);
            let joined = without_short_rows(kernel.clone());
            joined.verify().unwrap_or_else(|e| panic!("seed {seed}: {e:?}\n{joined}"));
            n_joined += usize::from(joined.axes.len() < kernel.axes.len());
            let inputs = random_inputs(&kernel, seed);
            assert!(outputs(&joined, &inputs) == outputs(&kernel, &inputs), "seed {seed}\n{kernel}\n{joined}");
        }
        assert!(n_joined > 50, "{n_joined} kernels");
    }

    #[test]
    fn rows_of_few_elements_become_one_axis() {
        for len in 2..LONG {
            let kernel = take_along(&format!("a0 = 100, a1 = {len}"), &format!("a0 * {len} + a1"), len, 100 * len);
            let joined = without_short_rows(kernel.clone());
            assert_eq!(joined.axes.len(), 1, "{joined}");
            let code = prepared(&joined);
            let divides = code.insts.iter().any(|inst| matches!(inst, Inst::Binary(Binary::Div | Binary::Rem, ..)));
            let position =
                code.insts.iter().find_map(|inst| if let Inst::LoadAt(_, at) = *inst { Some(at) } else { None });
            let dtypes = code.dtypes();
            let is_short =
                |at: ValueId| matches!(code.insts[at.index()], Inst::Cast(_, x) if dtypes[x.index()] == DType::I32);
            assert!(!divides && position.is_some_and(is_short), "{code}");
            let inputs = random_inputs(&kernel, len as u64);
            assert!(outputs(&code, &inputs) == outputs(&kernel, &inputs), "{len}");
        }
    }

    /// A row of a table for each number.
    fn rows_of_table(dtype: &str, len: usize) -> Kernel {
        let text = format!(
            "kernel (p0: i64[100], p1: {dtype}[{n}], p2: {dtype}[{n}] out) {{
                axes a0 = 100, a1 = {len}
                %0 = index a0
                %1 = load_at p0, %0
                %2 = const 0: i64
                %3 = max %1, %2
                %4 = const 99: i64
                %5 = min %3, %4
                %6 = const {len}: i64
                %7 = mul %5, %6
                %8 = index a1
                %9 = add %7, %8
                %10 = load_at p1, %9
                store p2[a0 * {len} + a1], %10
            }}",
            n = 100 * len
        );
        text.parse().unwrap()
    }

    #[test]
    fn rows_of_a_table_stay_rows_where_vectors_hold_them() {
        for len in 2..LONG {
            let kernel = rows_of_table("f32", len);
            let joined = without_short_rows(kernel.clone());
            assert_eq!(joined.axes.len(), if len < MIN_VECTOR_EXTENT { 1 } else { 2 });
            let inputs = random_inputs(&kernel, len as u64);
            assert!(outputs(&prepared(&joined), &inputs) == outputs(&kernel, &inputs), "{len}");
            assert_eq!(without_short_rows(rows_of_table("f16", len)).axes.len(), 1);
            let mut formula = kernel;
            formula.insts.push(Inst::Call1(Func1::Sin, formula.stores[0].value));
            formula.stores[0].value = ValueId(formula.insts.len() as u32 - 1);
            assert_eq!(without_short_rows(formula).axes.len(), if len < LONG / 2 { 1 } else { 2 });
        }
    }

    /// Rows of `len` beside an operand that all share and one that has an element for each, summed where `reduced` says.
    fn beside_broadcasts(len: usize, uses: [bool; 2], reduced: &str, function: &str) -> Kernel {
        let n = 100 * len;
        let at = |is_used, at: &str| if is_used { at.to_string() } else { format!("a0 * {len} + a1") };
        let (shared, of_rows) = (at(uses[0], "a1"), at(uses[1], "a0"));
        let sum = if reduced.is_empty() { "" } else { "%6 = reduce sum %5\n store p4[0], %6" };
        let text = format!(
            "kernel (p0: f32[{n}], p1: f32[{}], p2: f32[{}], p3: f32[{n}] out, p4: f32[1] out) {{
                axes a0 = 100{reduced}, a1 = {len}{reduced}
                %0 = load p0[a0 * {len} + a1]
                %1 = load p1[{shared}]
                %2 = load p2[{of_rows}]
                %3 = add %0, %1
                %4 = mul %3, %2
                %5 = {function} %4
                {sum}
                store p3[a0 * {len} + a1], %5
            }}",
            if uses[0] { len } else { n },
            if uses[1] { 100 } else { n },
        );
        let kernel: Kernel = text.parse().unwrap();
        kernel.verify().unwrap();
        kernel
    }

    #[test]
    fn operands_that_rows_share_are_read_at_positions() {
        for len in 2..=LONG {
            for uses in [[true, false], [false, true], [true, true]] {
                for (reduced, function) in [("", "neg"), ("", "sin"), (" reduced", "neg"), (" reduced", "sin")] {
                    let kernel = beside_broadcasts(len, uses, reduced, function);
                    let joined = without_short_rows(kernel.clone());
                    joined.verify().unwrap_or_else(|e| panic!("{e:?}\n{joined}"));
                    let (is_scalar, is_heavy) = (len < MIN_VECTOR_EXTENT, function == "sin");
                    let pays = match uses[1] {
                        true => is_scalar && (is_heavy || !reduced.is_empty()),
                        false => is_scalar || is_heavy && len < TABLE,
                    };
                    assert_eq!(joined.axes.len() == 1, pays, "{joined}");
                    let number = |i: usize| (i * 37 % 101) as f32 / 7.0 - 5.0;
                    let of = |param: &Param| (0..param.len).flat_map(|i| number(i).to_le_bytes()).collect();
                    let inputs: Vec<Vec<u8>> = kernel.params.iter().filter(|p| !p.written).map(of).collect();
                    // The evaluator adds points in turn, which are the same ones in the same order.
                    assert!(outputs(&kernel, &inputs) == outputs(&joined, &inputs), "{joined}");
                }
            }
        }
    }

    #[test]
    fn sums_that_have_no_idle_lanes_stay() {
        let of = |axes: &str, loads: [&str; 2], to: &str| -> Kernel {
            let text = format!(
                "kernel (p0: f32[90000], p1: f32[90000], p2: f32[300] out) {{
                    axes {axes}
                    %0 = load p0[{}]
                    %1 = load p1[{}]
                    %2 = add %0, %1
                    %3 = reduce sum %2
                    store p2[{to}], %3
                }}",
                loads[0], loads[1]
            );
            text.parse().unwrap()
        };
        let rows = of("a0 = 100, a1 = 3 reduced", ["a0 * 3 + a1", "a1"], "a0");
        let columns = of("a0 = 100 reduced, a1 = 3", ["a0 * 3 + a1", "a1"], "a1");
        // Vectors along the axis that is kept, or along the long one.
        let behind_kept = of("a0 = 64, a1 = 100 reduced, a2 = 3 reduced", ["a1 * 192 + a2 * 64 + a0", "a2"], "a0");
        let apart = of("a0 = 100 reduced, a1 = 3 reduced", ["a0", "a1"], "0");
        let light = of("a0 = 100 reduced, a1 = 7 reduced", ["a0 * 7 + a1", "a1"], "0");
        let turned = of("a0 = 100 reduced, a1 = 3 reduced", ["a0 * 3 + a1", "a1 * 100 + a0"], "0");
        for kernel in [rows, columns, behind_kept, apart, light, turned] {
            assert_eq!(without_short_rows(kernel.clone()), kernel);
        }
        let heavy = |function: &str| -> Kernel {
            let text = format!(
                "kernel (p0: f32[600], p1: f32[300] out) {{
                    axes a0 = 100, a1 = 3
                    %0 = load p0[a0 * 6 + a1 + 3]
                    %1 = {function} %0
                    store p1[a0 * 3 + a1], %1
                }}"
            );
            text.parse().unwrap()
        };
        assert_eq!(without_short_rows(heavy("neg")).axes.len(), 2);
        let joined = without_short_rows(heavy("sin"));
        assert_eq!(joined.axes.len(), 1);
        let inputs = random_inputs(&joined, 1);
        assert!(outputs(&heavy("sin"), &inputs) == outputs(&joined, &inputs), "{joined}");
        let other_place = of("a0 = 100 reduced, a1 = 3 reduced", ["a0 * 3 + a1 + 7", "a1 + 11"], "0");
        assert_eq!(without_short_rows(other_place).axes.len(), 1);
    }

    /// Every second element of rows, with zeros between them, as the gradient of a slice with a step has it.
    #[test]
    fn quotients_of_remainders_are_products() {
        for (len, step) in [(6, 2), (6, 3), (9, 3), (12, 5), (15, 4), (8, 2)] {
            let own = u64::div_ceil(len, step);
            let text = format!(
                "kernel (p0: f32[{}], p1: f32[{}] out) {{
                    axes a0 = 100, a1 = {len}
                    %0 = index a0
                    %1 = index a1
                    %2 = const {step}: i64
                    %3 = div %1, %2
                    %4 = rem %1, %2
                    %5 = const {own}: i64
                    %6 = mul %0, %5
                    %7 = add %6, %3
                    %8 = load_at p0, %7
                    %9 = const 0: i64
                    %10 = eq %4, %9
                    %11 = const 0.0: f32
                    %12 = select %10, %8, %11
                    store p1[a0 * {len} + a1], %12
                }}",
                100 * own,
                100 * len
            );
            let kernel: Kernel = text.parse().unwrap();
            let joined = without_short_rows(kernel.clone());
            assert_eq!(joined.axes.len(), 1);
            let code = prepared(&joined);
            let is_slow = |inst: &Inst<ValueId>| {
                matches!(inst, Inst::Binary(Binary::Div | Binary::Rem, ..) | Inst::Cast(DType::F64, _))
            };
            assert!(!code.insts.iter().any(is_slow), "{code}");
            let inputs = random_inputs(&kernel, len);
            assert!(outputs(&code, &inputs) == outputs(&kernel, &inputs), "{len} by {step}\n{code}");
        }
    }

    #[test]
    fn other_kernels_stay() {
        let n = 100 * LONG;
        let of = |axes: &str, at: &str, len| take_along(axes, at, len, n);
        let long = of(&format!("a0 = 100, a1 = {LONG}"), &format!("a0 * {LONG} + a1"), LONG);
        let apart = of("a0 = 100, a1 = 4", "a0 * 8 + a1", 4);
        let columns = of("a0 = 10, a1 = 4", "a0 + a1 * 10", 4);
        let few = of("a0 = 2, a1 = 4", "a0 * 4 + a1", 4);
        for kernel in [long, apart, columns, few] {
            assert_eq!(without_short_rows(kernel.clone()), kernel);
        }
    }
}
