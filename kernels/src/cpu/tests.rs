//! Generated code against the evaluator.

use std::sync::Arc;

use retape_runtime::{Code, DType, Element};

use super::{Function, Unit, clif, compile};
use crate::ir::random::{
    random_inputs, random_kernel, random_kernel_of_positions, random_kernel_of_selects, random_kernel_with_calls,
};
use crate::ir::{Affine, Binary, Compare, Inst, Kernel, KernelBuilder, Unary, Value, evaluate, parse};
use crate::schedule::{Schedule, Source, schedule};

/// Runs a schedule; every nest is called for `parts` ranges of its items.
fn run(kernel: &Kernel, schedule: &Schedule, inputs: &[Vec<u8>], parts: u64) -> Vec<Vec<u8>> {
    run_in_mode(kernel, schedule, inputs, parts, Mode::Plain).0
}

/// How a kernel is compiled for a test.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Plain,
    Trap,
    /// As on a machine without fused multiply-add.
    TrapWithoutFma,
}

/// Code for a machine without fused multiply-add, which no cache knows.
fn compile_without_fma(units: &[Unit<'_>]) -> Vec<Arc<Function>> {
    let isa = super::compile::isa_without_fma().unwrap();
    units.iter().map(|unit| function(&super::compile::machine_code(unit, &isa).unwrap())).collect()
}

/// A function of its own, which no cache knows.
pub(super) fn function(bytes: &[u8]) -> Arc<Function> {
    let code = Arc::new(Code::new(bytes).unwrap());
    Arc::new(Function { code, offset: 0, len: bytes.len() })
}

/// As [`run`], in some mode; also says whether the flag was raised.
fn run_in_mode(
    kernel: &Kernel,
    schedule: &Schedule,
    inputs: &[Vec<u8>],
    parts: u64,
    mode: Mode,
) -> (Vec<Vec<u8>>, bool) {
    let trap = mode != Mode::Plain;
    let units: Vec<Unit<'_>> = schedule.nests.iter().map(|nest| Unit { nests: vec![nest], trap }).collect();
    let functions = if mode == Mode::TrapWithoutFma { compile_without_fma(&units) } else { compile(&units).unwrap() };
    run_functions(kernel, schedule, &functions, inputs, parts, trap)
}

/// Runs code of a schedule; also says whether the flag was raised.
pub(super) fn run_functions(
    kernel: &Kernel,
    schedule: &Schedule,
    functions: &[Arc<Function>],
    inputs: &[Vec<u8>],
    parts: u64,
    trap: bool,
) -> (Vec<Vec<u8>>, bool) {
    let mut outputs = fresh_outputs(kernel);
    let mut inputs = inputs.to_vec();
    let mut pointers: Vec<*mut u8> = Vec::new();
    let (mut reads, mut writes) = (inputs.iter_mut(), outputs.iter_mut());
    for param in &kernel.params {
        let buffer = if param.written { writes.next() } else { reads.next() };
        pointers.push(buffer.unwrap().as_mut_ptr());
    }
    let flag = run_at(schedule, functions, &pointers, parts, trap);
    (outputs, flag)
}

/// Runs code of a schedule on the bytes behind some pointers; says whether the flag was raised.
fn run_at(schedule: &Schedule, functions: &[Arc<Function>], pointers: &[*mut u8], parts: u64, trap: bool) -> bool {
    let mut flag = 0_u32;
    let mut scratch = vec![0u8; schedule.scratch];
    for (nest, function) in schedule.nests.iter().zip(functions) {
        let pointer = |source: &Source| match *source {
            Source::Param(p) => pointers[p],
            Source::Scratch(at) => scratch[at..].as_mut_ptr(),
        };
        let flag = trap.then_some((&raw mut flag).cast::<u8>());
        let table: Vec<*mut u8> = flag.into_iter().chain(nest.sources.iter().map(pointer)).collect();
        for part in 0..parts {
            let (begin, end) = (nest.items * part / parts, nest.items * (part + 1) / parts);
            if begin < end {
                // SAFETY: the kernel is verified and its buffers have the lengths of its parameters.
                unsafe { function.call(table.as_ptr(), begin, end) };
            }
        }
    }
    flag != 0
}

/// Runs code of a nest on blocks of a matrix, which end at these rows and columns.
pub(super) fn run_blocks(
    kernel: &Kernel,
    function: &Function,
    inputs: &[Vec<u8>],
    ends: [&[usize]; 2],
) -> Vec<Vec<u8>> {
    let mut outputs = fresh_outputs(kernel);
    let mut inputs = inputs.to_vec();
    let mut table: Vec<*mut u8> = inputs.iter_mut().chain(&mut outputs).map(|buffer| buffer.as_mut_ptr()).collect();
    let blocks = |ends: &[usize]| [&[0], ends].concat().windows(2).map(|pair| [pair[0], pair[1]]).collect::<Vec<_>>();
    for columns in blocks(ends[1]) {
        table.truncate(kernel.params.len());
        table.extend(columns.map(std::ptr::without_provenance_mut::<u8>));
        for [begin, end] in blocks(ends[0]) {
            // SAFETY: the kernel is verified, its buffers have the lengths of its parameters, and the blocks lie inside.
            unsafe { function.call(table.as_ptr(), begin as u64, end as u64) };
        }
    }
    outputs
}

/// Runs the code of one function that has the nests of several schedules without scratch memory.
pub(super) fn run_together(
    kernels: &[Kernel],
    schedules: &[Schedule],
    inputs: &[Vec<Vec<u8>>],
    function: &Function,
) -> Vec<Vec<Vec<u8>>> {
    let mut outputs: Vec<Vec<Vec<u8>>> = kernels.iter().map(fresh_outputs).collect();
    let mut inputs = inputs.to_vec();
    let mut table = vec![];
    for (((kernel, schedule), inputs), outputs) in kernels.iter().zip(schedules).zip(&mut inputs).zip(&mut outputs) {
        let (mut reads, mut writes) = (inputs.iter_mut(), outputs.iter_mut());
        let buffers = kernel.params.iter().map(|p| if p.written { writes.next() } else { reads.next() });
        let pointers: Vec<*mut u8> = buffers.map(|buffer| buffer.unwrap().as_mut_ptr()).collect();
        for source in schedule.nests.iter().flat_map(|nest| &nest.sources) {
            let Source::Param(p) = *source else { panic!("scratch memory") };
            table.push(pointers[p]);
        }
    }
    // SAFETY: the kernels are verified and their buffers have the lengths of their parameters.
    unsafe { function.call(table.as_ptr(), 0, 1) };
    outputs
}

/// Bytes between two pages that nothing may touch, at the end of their own page or at its start.
#[cfg(unix)]
struct Guarded {
    pages: *mut u8,
    start: usize,
    len: usize,
}

#[cfg(unix)]
const PAGE: usize = 1 << 16;

#[cfg(unix)]
impl Guarded {
    fn new(bytes: &[u8], at_end: bool) -> Guarded {
        assert!(bytes.len() <= PAGE);
        let start = if at_end { 2 * PAGE - bytes.len() } else { PAGE };
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANON);
        // SAFETY: the pages are new, and those in the middle are the only ones that are used.
        let pages = unsafe {
            let pages = libc::mmap(std::ptr::null_mut(), 3 * PAGE, libc::PROT_NONE, flags, -1, 0);
            assert_ne!(pages, libc::MAP_FAILED);
            let pages = pages.cast::<u8>();
            assert_eq!(libc::mprotect(pages.add(PAGE).cast(), PAGE, access), 0);
            pages.add(start).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            pages
        };
        Guarded { pages, start, len: bytes.len() }
    }

    fn pointer(&self) -> *mut u8 {
        self.pages.wrapping_add(self.start)
    }

    fn bytes(&self) -> Vec<u8> {
        // SAFETY: the bytes were written when the pages were made.
        unsafe { std::slice::from_raw_parts(self.pointer(), self.len) }.to_vec()
    }
}

#[cfg(unix)]
impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: nothing points to the pages any more.
        unsafe { libc::munmap(self.pages.cast(), 3 * PAGE) };
    }
}

/// Cranelift's code of all nests.
pub(super) fn narrow_functions(schedule: &Schedule) -> Vec<Arc<Function>> {
    let narrow = compile::isa_at(None);
    let code = |nest| compile::machine_code(&Unit { nests: vec![nest], trap: false }, &narrow).unwrap();
    schedule.nests.iter().map(|nest| function(&code(nest))).collect()
}

/// Runs code of a schedule on buffers between guards; the first input is the first output too, if it lies `over` it.
#[cfg(unix)]
pub(super) fn run_guarded(
    kernel: &Kernel,
    schedule: &Schedule,
    functions: &[Arc<Function>],
    inputs: &[Vec<u8>],
    at_end: bool,
    over: bool,
) -> Vec<Vec<u8>> {
    let reads: Vec<Guarded> = inputs.iter().map(|bytes| Guarded::new(bytes, at_end)).collect();
    let writes: Vec<Guarded> = fresh_outputs(kernel).iter().map(|bytes| Guarded::new(bytes, at_end)).collect();
    let (mut next_read, mut next_write) = (reads.iter(), writes.iter());
    let buffer = |written: bool| if written { next_write.next() } else { next_read.next() };
    let mut pointers: Vec<*mut u8> =
        kernel.params.iter().map(|p| p.written).map(buffer).map(|b| b.unwrap().pointer()).collect();
    if over {
        pointers[kernel.params.iter().position(|p| p.written).unwrap()] = reads[0].pointer();
    }
    run_at(schedule, functions, &pointers, 1, false);
    let made =
        if over { reads.iter().take(1).chain(&writes[1..]).collect() } else { writes.iter().collect::<Vec<_>>() };
    made.into_iter().map(Guarded::bytes).collect()
}

/// Whether a buffer holds NaN or an infinity.
fn has_nonfinite(dtype: DType, bytes: &[u8]) -> bool {
    let is_finite = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        retape_runtime::Scalar { dtype, bits: u64::from_le_bytes(word) }.to_f64().is_finite()
    };
    (dtype.is_float() || dtype.is_half()) && !bytes.chunks(dtype.size()).all(is_finite)
}

#[test]
fn a_trap_changes_no_bit_and_its_flag_says_what_was_stored() {
    let (mut raised, mut quiet) = (0, 0);
    for seed in 0..300 {
        let kernel = random_kernel(seed);
        let inputs = random_inputs(&kernel, seed);
        let schedule = schedule(&kernel);
        for parts in [1, 3] {
            let (plain, unasked) = run_in_mode(&kernel, &schedule, &inputs, parts, Mode::Plain);
            let (trapped, flag) = run_in_mode(&kernel, &schedule, &inputs, parts, Mode::Trap);
            let (slower, other) = run_in_mode(&kernel, &schedule, &inputs, parts, Mode::TrapWithoutFma);
            assert!(slower == plain && other == flag, "seed {seed} in {parts} parts, without fma");
            assert!(!unasked && plain == trapped, "seed {seed} in {parts} parts");
            let written = kernel.params.iter().filter(|p| p.written);
            let stored = written.zip(&trapped).any(|(param, bytes)| has_nonfinite(param.dtype, bytes));
            // Partial results of a split reduction are stored too.
            let partial = schedule.scratch > 0;
            assert!(flag == stored || (flag && partial), "seed {seed} in {parts} parts: {flag}\n{kernel}");
            if flag { raised += 1 } else { quiet += 1 }
        }
    }
    assert!(raised > 50 && quiet > 50, "{raised} raised, {quiet} not");
}

/// A frame of several pages is touched page by page before it is used: the guard page below a stack may be but one.
#[cfg(target_arch = "x86_64")]
#[test]
fn large_frames_of_cranelift_are_probed() {
    use iced_x86::{Decoder, DecoderOptions, Mnemonic, Register};
    const PAGE: u64 = 4096;
    let isa = super::compile::isa_at(None);
    let mut largest = 0;
    for n in [8, 60, 100, 200] {
        // All elements are needed once more when the last one is there.
        let k = KernelBuilder::new();
        let x = k.param(DType::F32, 64 * n, false);
        k.axis(64, false);
        let loads: Vec<Value<'_>> = (0..n).map(|at| k.load(x, Affine::new(at as i64, &[n as i64]))).collect();
        let mut sum = loads[0];
        for (at, load) in loads.iter().enumerate() {
            sum = sum * loads[n - 1 - at] + *load;
        }
        k.store(k.param(DType::F32, 64, true), Affine::new(0, &[1]), sum);
        let kernel = k.finish();
        let schedule = schedule(&kernel);
        for nest in &schedule.nests {
            let code = super::compile::machine_code(&Unit { nests: vec![nest], trap: false }, &isa).unwrap();
            let (mut touched, mut below) = (0, 0);
            for inst in &mut Decoder::with_ip(64, &code, 0, DecoderOptions::NONE) {
                let is_stack = inst.op0_register() == Register::RSP;
                match inst.mnemonic() {
                    Mnemonic::Sub if is_stack => {
                        below += inst.immediate(1);
                        if inst.immediate(1) > PAGE {
                            assert!(below < touched + PAGE, "{below} bytes, of which {touched} are touched");
                        }
                        largest = largest.max(below);
                    }
                    Mnemonic::Add if is_stack => below = below.saturating_sub(inst.immediate(1)),
                    Mnemonic::Mov if inst.memory_base() == Register::RSP && inst.memory_displacement64() == 0 => {
                        touched = touched.max(below);
                    }
                    _ => {}
                }
            }
        }
    }
    assert!(largest > PAGE, "no frame is larger than {largest} bytes");
}

fn fresh_outputs(kernel: &Kernel) -> Vec<Vec<u8>> {
    kernel.params.iter().filter(|p| p.written).map(|p| vec![0u8; p.len * p.dtype.size()]).collect()
}

pub(super) fn expected(kernel: &Kernel, inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut outputs = fresh_outputs(kernel);
    let reads: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    evaluate(kernel, &reads, &mut outputs.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
    outputs
}

/// The distance of two elements relative to their size; 0 if both are NaN or equal.
fn distance(dtype: DType, x: &[u8], y: &[u8]) -> f64 {
    let of = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        retape_runtime::Scalar { dtype, bits: u64::from_le_bytes(word) }
    };
    let (x, y) = (of(x), of(y));
    if x.to_i64().is_some() {
        return if x == y { 0.0 } else { f64::INFINITY };
    }
    let (x, y) = (x.to_f64(), y.to_f64());
    if (x == y && x.is_sign_negative() == y.is_sign_negative()) || (x.is_nan() && y.is_nan()) {
        return 0.0;
    }
    // The least distance that is not 0, for zeros of two signs.
    if x == y { f64::MIN_POSITIVE } else { (x - y).abs() / x.abs().max(y.abs()).max(1.0) }
}

fn check(kernel: &Kernel, inputs: &[Vec<u8>], tolerance: f64, name: &str) {
    let schedule = schedule(kernel);
    let outputs = run(kernel, &schedule, inputs, 1);
    for parts in [2, 3, 7] {
        // Only the bits of a NaN may tell a vector from an element.
        let again = run(kernel, &schedule, inputs, parts);
        compare(kernel, &again, &outputs, 0.0, &format!("{name} in {parts} parts"));
    }
    compare(kernel, &outputs, &expected(kernel, inputs), tolerance, name);
}

pub(super) fn compare(kernel: &Kernel, made: &[Vec<u8>], expected: &[Vec<u8>], tolerance: f64, name: &str) {
    let written = kernel.params.iter().filter(|p| p.written);
    for ((param, made), expected) in written.zip(made).zip(expected) {
        let size = param.dtype.size();
        for (at, (x, y)) in made.chunks(size).zip(expected.chunks(size)).enumerate() {
            let off = distance(param.dtype, x, y);
            assert!(off <= tolerance, "{name}: element {at} is {x:?}, not {y:?}\n{kernel}");
        }
    }
}

pub(super) fn bytes<T: Element>(values: impl IntoIterator<Item = f64>) -> Vec<u8> {
    values.into_iter().flat_map(|x| T::from_f64(x).to_scalar().bits.to_le_bytes()[..T::DTYPE.size()].to_vec()).collect()
}

#[test]
fn random_kernels_agree_with_the_evaluator() {
    for seed in 0..400 {
        let kernel = random_kernel(seed);
        let inputs = random_inputs(&kernel, seed);
        check(&kernel, &inputs, 1e-5, &format!("seed {seed}"));
    }
}

#[test]
fn random_kernels_with_calls_agree_with_the_evaluator() {
    for seed in 0..60 {
        let kernel = random_kernel_with_calls(seed);
        let inputs = random_inputs(&kernel, seed);
        let expanded = crate::schedule::prepared(&kernel);
        let outputs = run(&expanded, &schedule(&expanded), &inputs, 1);
        compare(&kernel, &outputs, &expected(&kernel, &inputs), 1e-4, &format!("seed {seed}"));
    }
}

#[test]
fn computed_positions_have_the_bits_of_the_evaluator() {
    for seed in 0..200 {
        let kernel = random_kernel_of_positions(seed);
        let inputs = random_inputs(&kernel, seed);
        let prepared = crate::schedule::prepared(&kernel);
        check(&prepared, &inputs, 0.0, &format!("seed {seed}"));
        let outputs = run(&kernel, &schedule(&prepared), &inputs, 1);
        compare(&kernel, &outputs, &expected(&kernel, &inputs), 0.0, &format!("seed {seed} as it was"));
    }
}

#[test]
fn cold_regions_have_the_bits_of_the_evaluator() {
    for seed in 0..80 {
        let kernel = crate::schedule::prepared(&random_kernel_of_selects(seed));
        let inputs = random_inputs(&kernel, seed);
        check(&kernel, &inputs, 0.0, &format!("seed {seed}"));
    }
}

const SPECIAL: [f64; 24] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    3.0,
    7.0,
    255.0,
    256.0,
    -129.0,
    2147483647.0,
    2147483648.0,
    -2147483649.0,
    4294967296.0,
    1e19,
    -1e19,
    1e-40,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
];

/// All pairs of special values of a dtype, as bytes of two buffers.
pub(super) fn special_pairs(dtype: DType) -> Vec<Vec<u8>> {
    let element = |x: f64| retape_runtime::Scalar::from_f64(x, dtype).bits.to_le_bytes()[..dtype.size()].to_vec();
    let pairs = || SPECIAL.iter().flat_map(|&x| SPECIAL.iter().map(move |&y| (x, y)));
    vec![pairs().flat_map(|(x, _)| element(x)).collect(), pairs().flat_map(|(_, y)| element(y)).collect()]
}

/// A kernel over `n` elements of two buffers; one element more than vectors fill, so that both paths run.
pub(super) fn pointwise(
    n: usize,
    dtype: DType,
    f: impl for<'k> Fn(&'k KernelBuilder, [Value<'k>; 2]) -> Value<'k>,
) -> Kernel {
    let k = KernelBuilder::new();
    let [x, y] = [0, 1].map(|_| k.param(dtype, n, false));
    k.axis(n, false);
    let at = Affine::new(0, &[1]);
    let value = f(&k, [k.load(x, at.clone()), k.load(y, at.clone())]);
    let out = k.param(value.dtype(), n, true);
    k.store(out, at, value);
    k.finish()
}

/// A kernel of each instruction of two values, of constants too: an emitter may have shorter forms of those.
pub(super) fn every_instruction(n: usize, dtype: DType) -> Vec<Kernel> {
    let mut kernels = Vec::new();
    for to in DType::ALL {
        kernels.push(pointwise(n, dtype, |_, [x, _]| x.cast(to)));
    }
    for &op in Unary::ALL {
        kernels.push(pointwise(n, dtype, |k, [x, _]| k.push(Inst::Unary(op, x.id()))));
    }
    for &op in Binary::ALL {
        kernels.push(pointwise(n, dtype, |k, [x, y]| k.push(Inst::Binary(op, x.id(), y.id()))));
        for c in [0.0, -0.0, 3.0] {
            kernels.push(pointwise(n, dtype, |k, [x, _]| k.push(Inst::Binary(op, x.id(), x.like(c).id()))));
            kernels.push(pointwise(n, dtype, |k, [x, _]| k.push(Inst::Binary(op, x.like(c).id(), x.id()))));
        }
    }
    for &op in Compare::ALL {
        kernels.push(pointwise(n, dtype, |k, [x, y]| k.push(Inst::Compare(op, x.id(), y.id()))));
        kernels.push(pointwise(n, dtype, |k, [x, y]| {
            let c = k.push(Inst::Compare(op, x.id(), y.id()));
            k.push(Inst::Select(c.id(), y.id(), x.id()))
        }));
        kernels.push(pointwise(n, dtype, |k, [x, y]| {
            let c = k.push(Inst::Compare(op, x.id(), y.id()));
            k.push(Inst::Select(c.id(), x.id(), y.id()))
        }));
    }
    kernels.push(pointwise(n, dtype, |k, [x, y]| k.push(Inst::Fma(x.id(), y.id(), x.id()))));
    kernels
}

#[test]
fn special_values_go_through_all_instructions_as_in_the_evaluator() {
    let n = SPECIAL.len() * SPECIAL.len();
    for dtype in DType::ALL {
        let inputs = special_pairs(dtype);
        let kernels = every_instruction(n, dtype);
        let mut checked = 0;
        for kernel in kernels.iter().filter(|kernel| kernel.verify().is_ok()) {
            check(kernel, &inputs, 0.0, "special values");
            checked += 1;
        }
        assert!(checked >= 9, "{dtype}: only {checked} kernels are well-typed");
    }
}

/// Middles between neighbours with 16 bits, and the numbers beside them: there rounding twice goes wrong. The same of
/// `f32`, between whole numbers.
#[test]
fn casts_round_once() {
    let halves = [(DType::F16, 0x7c00), (DType::Bf16, 0x7f80)].into_iter().flat_map(|(dtype, infinity)| {
        let value = move |bits| retape_runtime::Scalar { dtype, bits }.to_f64();
        (0..infinity - 1).step_by(31).map(move |bits| (value(bits) + value(bits + 1)) / 2.0)
    });
    let singles = (24..63).flat_map(|n| [1.0, 3.0, 5.0].map(|odd| 2.0_f64.powi(n) + odd * 2.0_f64.powi(n - 24)));
    let floats: Vec<f64> = halves.chain(singles).flat_map(|x| [x, x.next_down(), x.next_up()]).collect();
    let floats: Vec<f64> = floats.iter().flat_map(|&x| [x, -x]).collect();
    let integers: Vec<i64> = floats.iter().flat_map(|&x| [-1, 0, 1].map(|by| (x as i64).saturating_add(by))).collect();
    for from in [DType::F64, DType::F32, DType::I64, DType::I32, DType::U32, DType::U8] {
        let scalars: Vec<retape_runtime::Scalar> = match from.is_float() {
            true => floats.iter().map(|x| x.to_scalar().cast(from)).collect(),
            false => integers.iter().map(|x| x.to_scalar().cast(from)).collect(),
        };
        let bytes: Vec<u8> = scalars.iter().flat_map(|x| x.bits.to_le_bytes()[..from.size()].to_vec()).collect();
        for to in [DType::F16, DType::Bf16, DType::F32, DType::F64] {
            let kernel = pointwise(scalars.len(), from, |_, [x, _]| x.cast(to));
            check(&kernel, &[bytes.clone(), bytes.clone()], 0.0, &format!("{from} to {to}"));
        }
    }
}

/// All floats of 16 bits, and some `f32` of each exponent, NaN among them.
#[test]
fn half_casts_agree_for_all_bits() {
    let halves: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let singles: Vec<u8> = (0..=u32::MAX).step_by(0x1_fff1).flat_map(u32::to_le_bytes).collect();
    for half in [DType::F16, DType::Bf16] {
        for (from, to, input) in [(half, DType::F32, &halves), (DType::F32, half, &singles)] {
            let kernel = pointwise(input.len() / from.size(), from, |_, [x, _]| x.cast(to));
            let (inputs, name) = ([input.clone(), input.clone()], format!("{from} to {to}"));
            check(&kernel, &inputs, 0.0, &name);
            let schedule = schedule(&kernel);
            let (made, _) = run_functions(&kernel, &schedule, &narrow_functions(&schedule), &inputs, 1, false);
            compare(&kernel, &made, &expected(&kernel, &inputs), 0.0, &format!("{name} by Cranelift"));
        }
    }
}

#[test]
fn long_reductions_agree_with_the_evaluator() {
    let ramp = |n: usize| bytes::<f32>((0..n).map(|i| ((i * 7919) % 1000) as f64 * 1e-3));
    for (kept, reduced, columns) in [
        (1, 200_003, false),
        (16, 25_088, true),
        (10, 8_195, true),
        (3, 70_001, false),
        (70, 1_001, true),
        (5, 13, false),
    ] {
        let n = kept * reduced;
        let at = if columns { format!("a1 * {kept} + a0") } else { format!("a0 * {reduced} + a1") };
        for op in ["sum", "max", "min"] {
            let text = format!(
                "kernel (p0: f32[{n}], p1: f32[{kept}] out, p2: f32[{n}] out) {{\n  axes a0 = {kept}, a1 = {reduced} reduced\n\
                 %0 = load p0[{at}]\n%1 = index a1\n%2 = cast %1: f32\n%3 = const 1e-5: f32\n%4 = fma %2, %3, %0\n\
                 %5 = reduce {op} %4\n%6 = neg %5\nstore p1[a0], %6\nstore p2[{at}], %4\n}}\n"
            );
            let kernel = parse(&text).unwrap();
            check(&kernel, &[ramp(n)], 1e-5, &format!("{op} of {reduced} for {kept}"));
        }
    }
}

#[test]
fn gathers_clamp_their_positions() {
    let text = "kernel (p0: f32[5], p1: i64[6], p2: f32[6] out) {\n  axes a0 = 6\n  %0 = load p1[a0]\n\
                %1 = load_at p0, %0\n  store p2[a0], %1\n}\n";
    let positions = bytes::<i64>([-3.0, 0.0, 4.0, 5.0, 1e18, 2.0]);
    check(&parse(text).unwrap(), &[bytes::<f32>([1.0, 2.0, 3.0, 4.0, 5.0]), positions], 0.0, "gather");
}

#[test]
fn equal_nests_share_code_and_free_it() {
    let text = |n: usize| {
        format!(
            "kernel (p0: f32[{n}], p1: f32[{n}] out) {{\n  axes a0 = {n}\n  %0 = load p0[a0]\n  %1 = const 0.625: f32\n  \
             %2 = mul %0, %1\n  store p1[a0], %2\n}}\n"
        )
    };
    // Longer ones store past the caches, which tests begin at 512 bytes.
    let schedules = [17, 100, 10, 12].map(|n| schedule(&parse(&text(n)).unwrap()));
    let units = schedules.each_ref().map(|s| Unit { nests: vec![&s.nests[0]], trap: false });
    let first = compile(&units[..1]).unwrap();
    let second = compile(&units[1..]).unwrap();
    assert!(std::sync::Arc::ptr_eq(&first[0], &second[0]), "one code serves all lengths");
    let is_shared = |m: usize, n: usize| std::sync::Arc::ptr_eq(&second[m], &second[n]);
    assert!(!is_shared(0, 1) && !is_shared(1, 2), "a short nest has code of its length");
    let key = units[0].key();
    assert!(super::CACHE.get(&key).is_some_and(|found| std::sync::Arc::ptr_eq(&found, &first[0])));
    drop((first, second));
    assert!(super::CACHE.get(&key).is_none(), "nobody uses the code any more");
}

#[test]
fn clif_of_two_kernels() {
    for (name, text, golden) in [
        (
            "scale",
            include_str!("../../tests/golden/machine/scale.kernel"),
            include_str!("../../tests/golden/machine/scale.clif"),
        ),
        (
            "sums",
            include_str!("../../tests/golden/machine/sums.kernel"),
            include_str!("../../tests/golden/machine/sums.clif"),
        ),
    ] {
        let made = clif(&parse(text).unwrap()).unwrap();
        // The calling convention in the first line is the machine's.
        let body = |text: &str| text.lines().skip(1).map(|l| l.trim_end().to_string()).collect::<Vec<_>>();
        if std::env::var_os("RETAPE_BLESS").is_some() {
            let path = format!("{}/golden/machine/{name}.clif", env!("CARGO_MANIFEST_DIR"));
            std::fs::write(path, &made).unwrap();
            continue;
        }
        assert_eq!(body(&made), body(golden), "{name} changed; if that is right, run the test with RETAPE_BLESS=1");
    }
}

/// A flat nest of another length may reach beyond a parameter that the first one's code needs no clamps for.
#[test]
#[cfg(unix)]
fn code_for_rows_within_a_parameter_is_not_that_of_longer_ones() {
    let functions = [100, 120].map(|n: usize| {
        let k = KernelBuilder::new();
        let (start, table) = (k.param(DType::I64, 1, false), k.param(DType::F32, 1000, false));
        let axis = k.axis(n, false);
        let at = k.load(start, Affine::new(0, &[0])).max(0_i64).min(900_i64) + k.index(axis);
        let value = k.load_at(table, at);
        k.store(k.param(DType::F32, n, true), Affine::new(0, &[1]), value);
        let kernel = k.finish();
        let schedule = schedule(&kernel);
        let units: Vec<Unit<'_>> = schedule.nests.iter().map(|nest| Unit { nests: vec![nest], trap: false }).collect();
        let functions = super::compile(&units).unwrap();
        let inputs = [i64::MAX.to_le_bytes().to_vec(), random_inputs(&kernel, 1)[1].clone()];
        let made = run_guarded(&kernel, &schedule, &functions, &inputs, true, false);
        compare(&kernel, &made, &expected(&kernel, &inputs), 0.0, &format!("{n} elements"));
        functions
    });
    assert!(!Arc::ptr_eq(&functions[0][0], &functions[1][0]));
}
