//! Kernels of a plan that differ in constants.
//!
//! The steps of an unrolled loop often differ in a number: the time, the rate, an element of a table. Kernels that are
//! equal except for such numbers are prepared once, and their nests are given them in memory, where one function reads
//! them. A number that all of them share stays in the code.
//!
//! Only floats that nothing but float arithmetic uses are treated so, and of these no powers of two and no zeros. All
//! other constants may decide what the code is: bounds of comparisons, distances of shifts, exponents, factors and
//! divisors that rewrites look for. Results keep their bits, as the operations on the numbers are the same.

use retape_runtime::{DType, Scalar};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::{Nest, Source, Traversal, prepared};
use crate::ir::{Affine, Binary, Inst, Kernel, Param, ParamId, ValueId};

/// Kernels that are equal except for some numbers.
struct KernelClass {
    /// Their positions in a list.
    members: Vec<usize>,
    /// The constants in which they differ.
    numbers: Vec<usize>,
}

/// All kernels in the form that is compiled.
pub(crate) fn prepared_all(kernels: &[&Kernel]) -> Vec<Kernel> {
    let mut all: Vec<Option<Kernel>> = vec![None; kernels.len()];
    for KernelClass { members, numbers } in classes(kernels.iter().map(|&kernel| ((), kernel))) {
        let mut template = Kernel::clone(kernels[members[0]]);
        let place = move_numbers(&mut template, &numbers).0;
        let template = prepared(&template);
        for n in members {
            all[n] = Some(with_numbers(template.clone(), place, &values_of(kernels[n], &numbers)));
        }
    }
    all.into_iter().flatten().collect()
}

/// Lets nests that differ in numbers alone read these from memory, which begins at `start` in the scratch memory.
/// Returns what lies there.
pub(crate) fn share_code<'n>(nests: impl Iterator<Item = &'n mut Nest>, start: usize) -> Vec<u8> {
    let mut nests: Vec<&mut Nest> = nests.collect();
    let mut memory: Vec<u8> = vec![];
    let of_one_code = nests.iter().map(|nest| ((nest.traversal, nest.unroll), &nest.kernel));
    let classes: Vec<KernelClass> = classes::<(Traversal, usize)>(of_one_code).collect();
    for KernelClass { members, numbers } in classes.into_iter().filter(|class| !class.numbers.is_empty()) {
        for n in members {
            let nest = &mut nests[n];
            let (place, values) = move_numbers(&mut nest.kernel, &numbers);
            let size = values[0].dtype.size();
            memory.resize(memory.len().next_multiple_of(size), 0);
            nest.sources.insert(place, Source::Scratch(start + memory.len()));
            values.iter().for_each(|value| memory.extend(&value.bits.to_le_bytes()[..size]));
        }
    }
    memory
}

/// The classes of kernels, each with something else that has to be equal; in the order of their first members.
fn classes<'k, T: std::hash::Hash + Eq>(
    kernels: impl Iterator<Item = (T, &'k Kernel)> + Clone,
) -> impl Iterator<Item = KernelClass> {
    let mut known: FxHashMap<(T, Kernel, Vec<usize>), usize> = FxHashMap::default();
    let mut all: Vec<Vec<(usize, &Kernel)>> = vec![];
    for (n, (beside, kernel)) in kernels.enumerate() {
        let numbers = numbers(kernel);
        let key = (beside, outline(kernel, &numbers), equal_numbers(kernel, &numbers));
        let class = *known.entry(key).or_insert(all.len());
        all.resize_with(known.len(), Vec::new);
        all[class].push((n, kernel));
    }
    all.into_iter().map(|class| {
        let (members, kernels): (Vec<usize>, Vec<&Kernel>) = class.into_iter().unzip();
        KernelClass { members, numbers: differing(&kernels) }
    })
}

/// The kernel with all its numbers alike: 1.5, which is one itself, so that no constant that stays looks like them.
fn outline(kernel: &Kernel, numbers: &[usize]) -> Kernel {
    let mut outline = kernel.clone();
    for &id in numbers {
        if let Inst::Const(c) = &mut outline.insts[id] {
            *c = Scalar::from_f64(1.5, c.dtype);
        }
    }
    outline
}

/// For each number, the first one that it equals: those that are one value in a kernel are one in all of its class, so
/// that no kernel has more instructions in company than alone.
fn equal_numbers(kernel: &Kernel, numbers: &[usize]) -> Vec<usize> {
    let values = values_of(kernel, numbers);
    values.iter().map(|value| values.iter().position(|other| other == value).unwrap_or_default()).collect()
}

/// The constants that are numbers and no more, of the dtype of the first one.
fn numbers(kernel: &Kernel) -> Vec<usize> {
    let mut are_numbers: Vec<bool> = kernel.insts.iter().map(|inst| constant(inst).is_some_and(is_ordinary)).collect();
    for inst in &kernel.insts {
        let is_arithmetic =
            matches!(inst, Inst::Binary(Binary::Add | Binary::Sub | Binary::Mul | Binary::Div, ..) | Inst::Fma(..));
        if !is_arithmetic {
            inst.operands().iter().for_each(|operand| are_numbers[operand.index()] = false);
        }
    }
    kernel.stores.iter().for_each(|store| are_numbers[store.value.index()] = false);
    let found = || (0..kernel.insts.len()).filter(|&id| are_numbers[id]);
    let dtype = |id: usize| constant(&kernel.insts[id]).map(|c| c.dtype);
    let first = found().next().and_then(dtype);
    found().filter(|&id| dtype(id) == first).collect()
}

/// Whether a constant is a float, and neither zero, nor a power of two, nor infinite.
fn is_ordinary(c: Scalar) -> bool {
    let (fraction, exponent) = match c.dtype {
        DType::F32 => (0x007f_ffff, 0x7f80_0000),
        DType::F64 => (0x000f_ffff_ffff_ffff, 0x7ff0_0000_0000_0000),
        DType::F16 | DType::Bf16 | DType::I32 | DType::I64 | DType::U32 | DType::U8 | DType::Bool => return false,
    };
    c.bits & fraction != 0 && c.bits & exponent != exponent
}

/// The numbers in which kernels of one outline differ.
fn differing(kernels: &[&Kernel]) -> Vec<usize> {
    let value = |kernel: &Kernel, id: usize| constant(&kernel.insts[id]);
    let differs = |id: &usize| kernels.iter().any(|kernel| value(kernel, *id) != value(kernels[0], *id));
    numbers(kernels[0]).into_iter().filter(differs).collect()
}

/// The values of some constants.
fn values_of(kernel: &Kernel, ids: &[usize]) -> Vec<Scalar> {
    ids.iter().filter_map(|&id| constant(&kernel.insts[id])).collect()
}

fn constant(inst: &Inst<ValueId>) -> Option<Scalar> {
    if let Inst::Const(c) = inst { Some(*c) } else { None }
}

/// Makes some constants, which are of one dtype, elements of a parameter behind the others that are read. Returns the
/// place of this parameter, and its elements; without constants there is none.
fn move_numbers(kernel: &mut Kernel, ids: &[usize]) -> (usize, Vec<Scalar>) {
    let place = kernel.params.iter().position(|param| param.written).unwrap_or(kernel.params.len());
    let values = values_of(kernel, ids);
    if let Some(first) = values.first() {
        kernel.params.insert(place, Param { dtype: first.dtype, len: values.len(), written: false });
        // Nests may read parameters behind written ones: partial results.
        each_param(kernel, |param| param.0 += u32::from(param.index() >= place));
    }
    for (n, &id) in ids.iter().enumerate() {
        let at = Affine { offset: n as i64, strides: SmallVec::from_elem(0, kernel.axes.len()) };
        kernel.insts[id] = Inst::Load(ParamId(place as u32), at);
    }
    (place, values)
}

/// The kernel with constants in place of the elements of a parameter.
fn with_numbers(mut kernel: Kernel, place: usize, values: &[Scalar]) -> Kernel {
    if values.is_empty() {
        return kernel;
    }
    kernel.params.remove(place);
    for inst in &mut kernel.insts {
        if let Inst::Load(param, at) = inst
            && param.index() == place
        {
            *inst = Inst::Const(values[at.offset as usize]);
        }
    }
    each_param(&mut kernel, |param| param.0 -= u32::from(param.index() > place));
    kernel
}

/// Renumbers the parameters that a kernel reads and writes.
fn each_param(kernel: &mut Kernel, mut renumber: impl FnMut(&mut ParamId)) {
    for inst in &mut kernel.insts {
        if let Inst::Load(param, _) | Inst::LoadAt(param, _) = inst {
            renumber(param);
        }
    }
    kernel.stores.iter_mut().for_each(|store| renumber(&mut store.param));
}
