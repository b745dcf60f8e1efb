//! Wide code against Cranelift's, bit for bit.

use std::sync::Arc;

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use retape_runtime::DType;

use super::WideIsa;
use super::encode::Assembled;
use super::function::assembled;
use super::positions::Positions;
#[cfg(unix)]
use crate::cpu::tests::run_guarded;
use crate::cpu::tests::{
    compare, every_instruction, expected, function, narrow_functions, pointwise, run_blocks, run_functions,
    run_together, special_pairs,
};
use crate::cpu::{Function, Unit};
use crate::epilogue::Epilogue;
use crate::ir::random::{
    random_inputs, random_kernel, random_kernel_of_positions, random_kernel_of_selects, random_kernel_with_calls,
};
use crate::ir::{Affine, Compare, Inst, Kernel, KernelBuilder, Param, ParamId, ReductionOp, Store, Value, ValueId};
use crate::library::TileShape;
use crate::schedule::{LoopForm, Nest, Schedule, cut_kernel, prepared, schedule, settled, tile_nest};

mod padded;
mod permuted;
mod slots;
mod strided;
mod strips;
mod tables;

/// As few registers as an instruction can name, so that values must move.
const FEW: u32 = super::regs::MOST_NAMED;

/// More than any frame has.
const FRAME: u64 = 1 << 15;

/// The levels of this machine; of others, code is made and decoded here, but not run.
fn levels() -> Vec<WideIsa> {
    let (present, missing): (Vec<WideIsa>, Vec<WideIsa>) =
        [WideIsa::Avx2, WideIsa::Avx512].into_iter().partition(|level| level.is_present());
    missing.iter().for_each(|level| eprintln!("{level:?} is not tested on this machine"));
    present
}

#[test]
fn a_text_caps_the_width() {
    let of_all = |bits| WideIsa::widest(bits, |_| true);
    assert_eq!([None, Some("512"), Some("wide")].map(of_all), [Some(WideIsa::Avx512); 3]);
    assert_eq!([Some("256"), Some(" 300 ")].map(of_all), [Some(WideIsa::Avx2); 2]);
    assert_eq!([Some("128"), Some("0")].map(of_all), [None; 2]);
    assert_eq!(WideIsa::widest(None, |level| level == WideIsa::Avx2), Some(WideIsa::Avx2));
}

/// Every page of the frame is read in order before the stack pointer moves over it, so that none lies beyond the guard page.
fn check_probes(code: &Assembled, name: &str) {
    let code = &code.bytes[..code.n_code];
    let below = |inst: &Instruction| inst.memory_displacement64().wrapping_neg();
    let mut reached = 0;
    for inst in &mut Decoder::with_ip(64, code, 0, DecoderOptions::NONE) {
        match inst.mnemonic() {
            Mnemonic::Mov if inst.memory_base() == Register::RSP => {
                assert!(below(&inst) <= reached + 4096, "{name}: {} after {reached}", below(&inst));
                reached = reached.max(below(&inst));
            }
            Mnemonic::Lea => {
                assert!(0 < below(&inst) && below(&inst) <= reached, "{name}: {} after {reached}", below(&inst));
                return;
            }
            _ => {}
        }
    }
    panic!("{name}: no frame");
}

/// Decodes code: every instruction is valid, jumps stay inside, and memory is the frame, a constant or behind a pointer.
fn check_instructions(code: &Assembled, name: &str) {
    check_probes(code, name);
    let mut decoder = Decoder::with_ip(64, &code.bytes[..code.n_code], 0, DecoderOptions::NONE);
    let mut starts = vec![];
    let mut targets = vec![];
    while decoder.can_decode() {
        let mut inst = Instruction::default();
        decoder.decode_out(&mut inst);
        assert!(!inst.is_invalid(), "{name}: at {:x}", inst.ip());
        starts.push(inst.ip());
        if matches!(inst.op0_kind(), OpKind::NearBranch64) {
            targets.push(inst.near_branch_target());
        }
        if (0..inst.op_count()).any(|n| inst.op_kind(n) == OpKind::Memory) {
            let place = inst.memory_displacement64();
            match inst.memory_base() {
                Register::RIP => {
                    let is_constant = (code.n_code as u64..code.bytes.len() as u64).contains(&place);
                    assert!(is_constant, "{name}: a constant at {place:x}");
                }
                Register::RSP => assert!(place.wrapping_add(FRAME) < 2 * FRAME, "{name}: {place:x} of the frame"),
                Register::RAX | Register::R15 | Register::RCX | Register::RDI => {}
                Register::RBX | Register::RBP | Register::R8 | Register::R9 | Register::R10 | Register::R11 => {}
                Register::R12 | Register::R13 | Register::R14 => {}
                other => panic!("{name}: memory behind {other:?}"),
            }
        }
    }
    assert_eq!(decoder.position(), code.n_code);
    targets.iter().for_each(|target| assert!(starts.contains(target), "{name}: a jump to {target:x}"));
}

/// Wide code of all nests of a schedule that have some, Cranelift's of the others; and how many have some.
fn functions(schedule: &Schedule, level: WideIsa, limit: u32, name: &str) -> (Vec<Arc<Function>>, usize) {
    let narrow = crate::cpu::compile::isa_at(None);
    let mut n_wide = 0;
    let of_nest = |nest| {
        if let Some(code) = assembled(&[nest], &[LoopForm::of_nest(nest)], level, limit) {
            n_wide += 1;
            check_instructions(&code, name);
            return function(&code.bytes);
        }
        function(&crate::cpu::compile::machine_code(&Unit { nests: vec![nest], trap: false }, &narrow).unwrap())
    };
    (schedule.nests.iter().map(of_nest).collect(), n_wide)
}

/// Compares a kernel's code of every level of this machine with Cranelift's; gives how many nests were wide.
fn check(kernel: &Kernel, inputs: &[Vec<u8>], name: &str) -> usize {
    let schedule = schedule(kernel);
    let (expected, _) = run_functions(kernel, &schedule, &narrow_functions(&schedule), inputs, 1, false);
    let mut n_wide = 0;
    for level in [WideIsa::Avx2, WideIsa::Avx512] {
        for limit in [u32::MAX, FEW] {
            let name = format!("{name} at {level:?} with {limit} registers");
            if !level.is_present() {
                // Code of any machine can be made, and read.
                functions(&schedule, level, limit, &name);
                continue;
            }
            let (functions, n) = functions(&schedule, level, limit, &name);
            n_wide += n;
            for parts in [1, 2, 7] {
                let (made, _) = run_functions(kernel, &schedule, &functions, inputs, parts, false);
                compare(kernel, &made, &expected, 0.0, &format!("{name} in {parts} parts"));
            }
        }
    }
    n_wide
}

/// Checks that code of every level gives these outputs where buffers begin, or end, at pages that nothing may touch.
#[cfg(unix)]
fn check_guarded(kernel: &Kernel, inputs: &[Vec<u8>], expected: &[Vec<u8>], name: &str) {
    let schedule = schedule(kernel);
    for level in levels() {
        let (functions, _) = functions(&schedule, level, u32::MAX, name);
        for at_end in [true, false] {
            let made = run_guarded(kernel, &schedule, &functions, inputs, at_end, false);
            compare(kernel, &made, expected, 0.0, name);
        }
    }
}

#[test]
fn random_kernels_have_the_bits_of_cranelift() {
    let mut n_wide = 0;
    for seed in 0..400 {
        let kernel = random_kernel(seed);
        n_wide += check(&kernel, &random_inputs(&kernel, seed), &format!("seed {seed}"));
    }
    assert!(n_wide > 120 * levels().len(), "{n_wide}");
}

#[test]
fn functions_have_the_bits_of_cranelift() {
    let mut n_wide = 0;
    for seed in 0..40 {
        let kernel = prepared(&random_kernel_with_calls(seed));
        n_wide += check(&kernel, &random_inputs(&kernel, seed), &format!("seed {seed}"));
    }
    assert!(n_wide > 10 * levels().len(), "{n_wide}");
}

#[test]
fn cold_regions_have_the_bits_of_cranelift() {
    let mut n_wide = 0;
    for seed in 0..60 {
        let kernel = prepared(&random_kernel_of_selects(seed));
        n_wide += check(&kernel, &random_inputs(&kernel, seed), &format!("seed {seed}"));
    }
    assert!(n_wide > 10 * levels().len(), "{n_wide}");
}

/// Whole kernels, whose positions are computed, and their pieces, where they are not.
#[test]
fn computed_positions_have_the_bits_of_cranelift() {
    let (mut n_wide, mut n_pieces) = (0, 0);
    for seed in 0..150 {
        let kernel = random_kernel_of_positions(seed);
        let inputs = random_inputs(&kernel, seed);
        n_wide += check(&prepared(&kernel), &inputs, &format!("seed {seed}"));
        let pieces = cut_kernel(&kernel).unwrap_or_default();
        if pieces.is_empty() {
            continue;
        }
        let schedule = Schedule::joined(pieces.iter().map(|piece| schedule(&prepared(piece))));
        n_pieces += pieces.len();
        for level in levels() {
            let (functions, _) = functions(&schedule, level, u32::MAX, &format!("seed {seed} at {level:?}"));
            let (made, _) = run_functions(&kernel, &schedule, &functions, &inputs, 2, false);
            compare(&kernel, &made, &expected(&kernel, &inputs), 0.0, &format!("pieces of seed {seed} at {level:?}"));
        }
    }
    assert!(n_wide > 60 * levels().len() && n_pieces > 100, "{n_wide} {n_pieces}");
}

#[test]
fn special_values_have_the_bits_of_cranelift() {
    for dtype in DType::ALL {
        let inputs = special_pairs(dtype);
        let n = inputs[0].len() / dtype.size();
        let kernels = every_instruction(n, dtype);
        let mut n_wide = 0;
        for kernel in kernels.iter().filter(|kernel| kernel.verify().is_ok()) {
            n_wide += check(kernel, &inputs, &format!("special values\n{kernel}"));
        }
        assert!(n_wide > 10 * levels().len(), "{dtype}: {n_wide}");
    }
}

/// Half of a number plus 1, as the dtype that it had.
fn halved<'k>(x: Value<'k>) -> Value<'k> {
    let dtype = x.dtype();
    (x.cast(DType::F32) * 0.5 + 1.0).cast(dtype)
}

/// The same after steps that wait for each other, so many that several vectors take turns.
fn halved_after_a_chain<'k>(x: Value<'k>) -> Value<'k> {
    let chain = (0..9).fold(x.cast(DType::F32), |y, n| y * 0.75 + f64::from(n));
    halved(chain.cast(x.dtype()))
}

/// Kernels over rows of `n` elements: along one axis, along the last of two, reduced along rows and across them; the first
/// ones with long formulas.
fn kernels_of_length(n: usize, dtype: DType) -> Vec<Kernel> {
    let flat = pointwise(n, dtype, |_, [x, y]| x.compare(Compare::Ne, y).select(halved(x), y));
    let long = pointwise(n, dtype, |_, [x, y]| x.compare(Compare::Ne, y).select(halved_after_a_chain(x), y));
    let make_of = |formula: for<'k> fn(Value<'k>) -> Value<'k>,
                   extents: [(usize, bool); 2],
                   strides: [i64; 2],
                   reduces: bool,
                   wide: bool| {
        let k = KernelBuilder::new();
        let len = extents[0].0 * extents[1].0;
        let x = k.param(dtype, len, false);
        for (extent, reduced) in extents {
            k.axis(extent, reduced);
        }
        let at = Affine::new(0, &strides);
        let value = formula(k.load(x, at.clone()));
        k.store(k.param(dtype, len, true), at, value);
        if reduces {
            let kept = extents[0].0;
            let sum = value.cast(DType::F32).reduce(ReductionOp::Sum);
            k.store(k.param(DType::F32, kept, true), Affine::new(0, &[1, 0]), sum);
            if wide {
                let most = value.cast(DType::F64).reduce(ReductionOp::Max);
                k.store(k.param(DType::F64, kept, true), Affine::new(0, &[1, 0]), most);
            }
        }
        k.finish()
    };
    let make = |extents, strides, reduces, wide| make_of(halved, extents, strides, reduces, wide);
    let make_long = |extents, strides, reduces| make_of(halved_after_a_chain, extents, strides, reduces, false);
    let row = n as i64;
    vec![
        long,
        make_long([(3, false), (n, false)], [row, 1], false),
        make_long([(3, false), (n, true)], [row, 1], true),
        make_long([(n, false), (3, true)], [1, row], true),
        flat,
        make([(3, false), (n, false)], [row, 1], false, false),
        make([(3, false), (n, true)], [row, 1], true, false),
        make([(3, false), (n, true)], [row, 1], true, true),
        make([(n, false), (3, true)], [1, row], true, false),
        make([(n, false), (3, true)], [1, row], true, true),
    ]
}

/// Vectors that take turns, over ranges that begin and end anywhere.
#[test]
fn long_formulas_have_the_bits_of_cranelift() {
    let mut n_wide = 0;
    for n in [1, 15, 16, 17, 31, 33, 47, 48, 49, 64, 80, 95, 97, 200, 1000] {
        for dtype in [DType::F32, DType::I32, DType::F16, DType::Bool] {
            for (kind, kernel) in kernels_of_length(n, dtype).into_iter().take(4).enumerate() {
                let schedule = schedule(&kernel);
                let takes_turns = |nest: &Nest| {
                    levels().iter().all(|&level| super::walk::chains(&LoopForm::of_nest(nest), level) > 1)
                };
                assert!(schedule.nests.iter().any(takes_turns), "kind {kind} of {n} {dtype}");
                n_wide += check(&kernel, &random_inputs(&kernel, n as u64), &format!("kind {kind} of {n} {dtype}"));
            }
        }
    }
    assert!(n_wide > 300 * levels().len(), "{n_wide}");
}

#[test]
#[cfg(unix)]
fn nothing_beyond_a_buffer_is_touched() {
    let mut n_wide = 0;
    for n in (1..36).chain([47, 48, 49, 63, 64, 65, 69, 95, 96, 97, 113, 145]) {
        for dtype in [DType::F32, DType::F64, DType::I32, DType::U8, DType::F16, DType::Bf16, DType::Bool] {
            for (kind, kernel) in kernels_of_length(n, dtype).into_iter().enumerate() {
                let inputs = random_inputs(&kernel, (n + kind) as u64);
                let schedule = schedule(&kernel);
                let (expected, _) = run_functions(&kernel, &schedule, &narrow_functions(&schedule), &inputs, 1, false);
                for level in levels() {
                    let name = format!("kind {kind} of {n} at {level:?}");
                    let (functions, n) = functions(&schedule, level, u32::MAX, &name);
                    n_wide += n;
                    for (at_end, over) in [(true, false), (false, false), (true, true)] {
                        let made = run_guarded(&kernel, &schedule, &functions, &inputs, at_end, over);
                        compare(&kernel, &made, &expected, 0.0, &format!("{name}, over an input: {over}"));
                    }
                }
            }
        }
    }
    assert!(n_wide > 1400 * levels().len(), "{n_wide}");
}

/// Over `n` elements: a long formula of each, and the element itself, stored in this order or in the other one.
fn formula_and_element(n: usize, dtype: DType, element_first: bool) -> Kernel {
    let k = KernelBuilder::new();
    let [from, formula, element] = [false, true, true].map(|written| k.param(dtype, n, written));
    k.axis(n, false);
    let at = Affine::new(0, &[1]);
    let x = k.load(from, at.clone());
    // More values than a few registers hold wait for the sum of all.
    let terms: Vec<Value<'_>> = (0..5).map(|n| (x + f64::from(n)) * x).collect();
    let sum = terms[1..].iter().fold(terms[0], |sum, term| sum + *term);
    let long = terms.iter().fold(sum, |y, term| y * sum + *term);
    let mut stores = [(formula, long), (element, x)];
    if element_first {
        stores.reverse();
    }
    stores.into_iter().for_each(|(to, value)| k.store(to, at.clone(), value));
    k.finish()
}

/// Elements that no register is left for are read again from their buffer, except behind a store, which may have written
/// over them.
#[test]
#[cfg(unix)]
fn elements_are_read_again_until_something_is_written() {
    for (dtype, n) in [DType::F32, DType::F64, DType::I32].into_iter().flat_map(|dtype| [(dtype, 64), (dtype, 147)]) {
        for level in levels() {
            let n_reads = [true, false].map(|element_first| {
                let kernel = formula_and_element(n, dtype, element_first);
                let (inputs, schedule) = (random_inputs(&kernel, n as u64), schedule(&kernel));
                let (expected, _) = run_functions(&kernel, &schedule, &narrow_functions(&schedule), &inputs, 1, false);
                for limit in [u32::MAX, FEW] {
                    let name = format!("{n} {dtype} at {level:?} with {limit} registers");
                    let (functions, n_wide) = functions(&schedule, level, limit, &name);
                    assert_eq!(n_wide, 1);
                    let made = run_guarded(&kernel, &schedule, &functions, &inputs, true, true);
                    compare(&kernel, &made, &expected, 0.0, &name);
                }
                let code = assembled(&[&schedule.nests[0]], &[LoopForm::of_nest(&schedule.nests[0])], level, FEW);
                let code = code.unwrap();
                let reads = |inst: &Instruction| {
                    inst.memory_index() == Register::RCX
                        && (1..inst.op_count()).any(|n| inst.op_kind(n) == OpKind::Memory)
                };
                Decoder::with_ip(64, &code.bytes[..code.n_code], 0, DecoderOptions::NONE).iter().filter(reads).count()
            });
            assert!(n_reads[0] > n_reads[1], "{n} {dtype} at {level:?}: {n_reads:?} reads");
        }
    }
}

/// Sums of columns, each of which what its column has is multiplied with; then the same is stored behind the sums.
fn columns_and_their_factor(columns: usize, dtype: DType) -> Kernel {
    let k = KernelBuilder::new();
    let [factor, x] = [columns, 8 * columns].map(|len| k.param(dtype, len, false));
    let [sums, copy] = [0; 2].map(|_| k.param(dtype, columns, true));
    k.axis(columns, false);
    k.axis(8, true);
    let [of_column, of_all] = [[1, 0], [1, columns as i64]].map(|strides| Affine::new(0, &strides));
    let factor = k.load(factor, of_column.clone());
    k.store(sums, of_column.clone(), (factor * k.load(x, of_all)).reduce(ReductionOp::Sum));
    k.store(copy, of_column, factor);
    k.finish()
}

/// Elements that outlive a loop inside are not read again behind it, where sums may lie over them.
#[test]
#[cfg(unix)]
fn elements_that_live_on_are_kept() {
    for (dtype, columns) in [DType::F32, DType::F64].into_iter().flat_map(|dtype| [(dtype, 64), (dtype, 131)]) {
        let kernel = columns_and_their_factor(columns, dtype);
        let (inputs, schedule) = (random_inputs(&kernel, columns as u64), schedule(&kernel));
        let (expected, _) = run_functions(&kernel, &schedule, &narrow_functions(&schedule), &inputs, 1, false);
        for (level, limit) in levels().into_iter().flat_map(|level| [u32::MAX, FEW].map(|limit| (level, limit))) {
            let name = format!("{columns} columns of {dtype} at {level:?} with {limit} registers");
            let (functions, n_wide) = functions(&schedule, level, limit, &name);
            assert!(n_wide > 0, "{name}");
            let made = run_guarded(&kernel, &schedule, &functions, &inputs, true, true);
            compare(&kernel, &made, &expected, 0.0, &name);
        }
    }
}

/// Buffers that are more than there are registers for pointers, so that those to the last seven lie in the frame. The
/// elements behind these are read again, in products of three whose sum takes the place of none.
#[test]
fn elements_behind_pointers_of_the_frame_are_read_again() {
    let (n, n_first, n_last) = (147, 9, 7);
    let k = KernelBuilder::new();
    let buffers: Vec<ParamId> = (0..n_first + n_last).map(|_| k.param(DType::F32, n, false)).collect();
    k.axis(n, false);
    let at = Affine::new(0, &[1]);
    let x: Vec<Value<'_>> = buffers.into_iter().map(|buffer| k.load(buffer, at.clone())).collect();
    let (first, last) = x.split_at(n_first);
    let product = |n: usize| last[n % n_last].fma(last[(n + 2) % n_last], last[(n + 3) % n_last]);
    let start = first.iter().fold(product(0), |sum, x| sum + *x);
    let sum = (1..3 * n_last).fold(start, |sum, n| sum * 0.5 + product(n));
    k.store(k.param(DType::F32, n, true), at, sum);
    let kernel = k.finish();
    assert_eq!(check(&kernel, &random_inputs(&kernel, 1), "many buffers"), 2 * levels().len());
}

/// Stores past the caches that the code of a kernel has, which are as wide as a vector; the fewest of all levels.
fn n_past(kernel: &Kernel) -> usize {
    let of_nest = |nest: &Nest, level: WideIsa| {
        let code = assembled(&[nest], &[LoopForm::of_nest(nest)], level, u32::MAX).unwrap();
        let instructions = Decoder::with_ip(64, &code.bytes[..code.n_code], 0, DecoderOptions::NONE);
        let is_past = |inst: &Instruction| inst.mnemonic() == Mnemonic::Vmovntps;
        let whole = match level {
            WideIsa::Avx2 => Code::VEX_Vmovntps_m256_ymm,
            WideIsa::Avx512 => Code::EVEX_Vmovntps_m512_zmm,
        };
        instructions.into_iter().filter(is_past).inspect(|inst| assert_eq!(inst.code(), whole)).count()
    };
    let nests = schedule(kernel).nests;
    let of_level = |level| nests.iter().map(|nest| of_nest(nest, level)).sum();
    [WideIsa::Avx2, WideIsa::Avx512].map(of_level).into_iter().min().unwrap()
}

#[test]
fn large_results_of_whole_vectors_go_past_the_caches() {
    let of = |n: usize, dtype: DType, kind: usize| n_past(&kernels_of_length(n, dtype)[kind]);
    let flat = 4;
    let rows = |n: usize, pitch: usize| {
        let k = KernelBuilder::new();
        let [x, y] = [false, true].map(|written| k.param(DType::F32, 8 * pitch, written));
        k.axis(8, false);
        k.axis(n, false);
        let at = Affine::new(0, &[pitch as i64, 1]);
        k.store(y, at.clone(), halved(k.load(x, at)));
        n_past(&k.finish())
    };
    assert!(of(256, DType::F32, flat) > 0 && of(128, DType::F64, flat) > 0 && rows(64, 80) > 0);
    assert_eq!(of(100, DType::F32, flat), 0, "a small one");
    assert_eq!(of(2000, DType::U8, flat), 0, "short elements");
    assert_eq!(rows(64, 72), 0, "rows that begin anywhere");
    assert_eq!(rows(32, 80), 0, "short rows");
}

#[test]
fn several_nests_of_a_function_run_in_order() {
    let mut n_wide = 0;
    for seed in 0..200 {
        let kernels: Vec<Kernel> = (0..3).map(|n| prepared(&random_kernel(3 * seed + n))).collect();
        let schedules: Vec<Schedule> = kernels.iter().map(schedule).collect();
        if schedules.iter().any(|schedule| schedule.scratch > 0) {
            continue;
        }
        let inputs: Vec<Vec<Vec<u8>>> = kernels.iter().map(|kernel| random_inputs(kernel, seed)).collect();
        let nests: Vec<&Nest> = schedules.iter().flat_map(|schedule| &schedule.nests).collect();
        let expected: Vec<Vec<Vec<u8>>> = (0..3)
            .map(|n| {
                let functions = narrow_functions(&schedules[n]);
                run_functions(&kernels[n], &schedules[n], &functions, &inputs[n], 1, false).0
            })
            .collect();
        for level in levels() {
            let forms: Vec<LoopForm<'_>> = nests.iter().map(|nest| LoopForm::of_nest(nest)).collect();
            let Some(code) = assembled(&nests, &forms, level, u32::MAX).filter(|_| nests.len() > 1) else { continue };
            n_wide += 1;
            let name = format!("seed {seed} at {level:?}");
            check_instructions(&code, &name);
            let made = run_together(&kernels, &schedules, &inputs, &function(&code.bytes));
            for ((kernel, made), expected) in kernels.iter().zip(&made).zip(&expected) {
                compare(kernel, made, expected, 0.0, &name);
            }
        }
    }
    assert!(n_wide > 5 * levels().len(), "{n_wide}");
}

/// Reads of every `stride`-th element, and of elements at positions that are out of range now and then.
#[test]
fn gathers_have_the_bits_of_cranelift() {
    let words = [(DType::F32, 3), (DType::F64, 3), (DType::I32, -2), (DType::I64, -1), (DType::U32, 40)];
    let reversed = [DType::F32, DType::F64, DType::I32, DType::F16, DType::U8, DType::Bool].map(|dtype| (dtype, -1));
    let short = [(DType::F16, 2), (DType::Bf16, -1), (DType::F16, -40), (DType::U8, 3), (DType::Bool, -2)];
    let pairs = [DType::F32, DType::F64, DType::I32, DType::I64].map(|dtype| (dtype, 2));
    let picked = [(DType::F32, 4), (DType::I32, 5), (DType::U32, 7), (DType::F32, 8)];
    for (dtype, stride) in words.into_iter().chain(short).chain(reversed).chain(pairs).chain(picked) {
        for n in [5, 16, 33, 100] {
            let k = KernelBuilder::new();
            // Nothing lies behind the last element that is read.
            let len = (n - 1) * i64::unsigned_abs(stride) as usize + 1;
            let [x, y] = [len, n * 40].map(|len| k.param(dtype, len, false));
            let at = k.param(DType::I64, n, false);
            k.axis(n, false);
            let along = Affine::new(0, &[1]);
            let first = if stride < 0 { len as i64 - 1 } else { 0 };
            let [position, one] = [1, 0].map(|by| k.load(at, Affine::new(0, &[by])));
            let loads = [k.load(x, Affine::new(first, &[stride])), k.load_at(y, position * 50), k.load_at(y, one * 3)];
            let made = if dtype.size() < 4 { DType::F32 } else { dtype };
            let [strided, gathered, one] = loads.map(|x| x.cast(made));
            // Long enough for gathers to pay.
            let mut value = strided - one;
            for c in 1..12 {
                value = value * f64::from(c) + gathered;
            }
            k.store(k.param(made, n, true), along, value);
            let kernel = k.finish();
            let (inputs, name) = (random_inputs(&kernel, n as u64), format!("{dtype} by {stride}"));
            assert_eq!(check(&kernel, &inputs, &name), 2 * levels().len());
            #[cfg(unix)]
            {
                let schedule = schedule(&kernel);
                let narrow = narrow_functions(&schedule);
                let (expected, _) = run_functions(&kernel, &schedule, &narrow, &inputs, 1, false);
                check_guarded(&kernel, &inputs, &expected, &name);
            }
        }
    }
}

/// The rows of a table that `n_rows` numbers choose, or their own numbers, and the sums of each.
fn rows_of_table([n_rows, entries, columns]: [usize; 3], dtype: DType) -> [Kernel; 3] {
    [(true, false), (true, true), (false, false)].map(|(is_chosen, reduces)| {
        let k = KernelBuilder::new();
        let (chosen, table) = (k.param(DType::I64, n_rows, false), k.param(dtype, entries * columns, false));
        let (number, column) = (k.axis(n_rows, false), k.axis(columns, reduces));
        let row = match is_chosen {
            true => k.load(chosen, Affine::new(0, &[1, 0])).max(0_i64).min(entries as i64 - 1),
            false => (k.index(number) * 2_i64).min(entries as i64 - 1),
        };
        let value = k.load_at(table, row * columns as i64 + k.index(column));
        let (value, dtype) = if dtype.size() < 4 { (value.cast(DType::F32), DType::F32) } else { (value, dtype) };
        k.store(k.param(dtype, n_rows * columns, true), Affine::new(0, &[columns as i64, 1]), value);
        if reduces {
            k.store(k.param(dtype, n_rows, true), Affine::new(0, &[1, 0]), value.reduce(ReductionOp::Sum));
        }
        prepared(&k.finish())
    })
}

/// A row at a computed position, of 64 bits or of 32, is read as vectors, which stay within the table.
#[test]
#[cfg(unix)]
fn rows_at_computed_positions_are_read_as_vectors() {
    for columns in [4_usize, 5, 16, 17, 31, 33, 64, 70, 129] {
        for dtype in [DType::F32, DType::F64, DType::I32, DType::I64, DType::Bf16, DType::U8] {
            // Without masks, the end of a row of short elements is left to Cranelift.
            let has_code =
                |level: &WideIsa| dtype.size() >= 4 || level.has_masks() || columns.is_multiple_of(level.lanes());
            for (kind, kernel) in rows_of_table([7, 3, columns], dtype).into_iter().enumerate() {
                let (inputs, schedule) = (random_inputs(&kernel, columns as u64), schedule(&kernel));
                let name = format!("kind {kind} of {columns} of {dtype}");
                let starts = |nest| Positions::of(&LoopForm::of_nest(nest), true).row_starts.iter().flatten().count();
                assert_eq!(schedule.nests.iter().map(starts).sum::<usize>(), 1, "{name}");
                let n_wide = 2 * levels().iter().filter(|level| has_code(level)).count() * schedule.nests.len();
                assert_eq!(check(&kernel, &inputs, &name), n_wide, "{name}");
                let run =
                    |functions: &[Arc<Function>]| run_functions(&kernel, &schedule, functions, &inputs, 1, false).0;
                let made = run(&narrow_functions(&schedule));
                compare(&kernel, &made, &expected(&kernel, &inputs), 1e-5, &name);
                check_guarded(&kernel, &inputs, &made, &name);
            }
        }
    }
}

/// A kernel with the sums of its floats over all axes except the first `kept`, so that nothing is simplified before it is
/// scheduled.
fn with_sums(kernel: &Kernel, kept: usize) -> Kernel {
    let (mut kernel, dtypes) = (kernel.clone(), kernel.dtypes());
    kernel.axes.iter_mut().skip(kept).for_each(|axis| axis.reduced = true);
    let mut strides = vec![0; kernel.axes.len()];
    let mut len = 1;
    for axis in (0..kept).rev() {
        strides[axis] = len as i64;
        len *= kernel.axes[axis].extent;
    }
    let values: Vec<ValueId> = kernel.stores.iter().map(|store| store.value).collect();
    for value in values.into_iter().filter(|value| dtypes[value.index()].is_float()) {
        let param = ParamId(kernel.params.len() as u32);
        kernel.params.push(Param { dtype: dtypes[value.index()], len, written: true });
        kernel.insts.push(Inst::Reduce(ReductionOp::Sum, value));
        let value = ValueId(kernel.insts.len() as u32 - 1);
        kernel.stores.push(Store { param, at: Affine::new(0, &strides), value });
    }
    kernel
}

/// Coordinates that are simplified when the schedule is settled leave all bits as they are.
#[test]
fn sums_keep_their_bits_when_coordinates_are_simplified() {
    let (mut n_changed, mut n_kept) = (0, 0);
    for seed in 0..300 {
        let kernel = random_kernel_of_positions(seed);
        let kept = seed as usize % kernel.axes.len().max(1);
        let kernel = prepared(&with_sums(&kernel, kept));
        if kernel.verify().is_err() || !kernel.insts.iter().any(|inst| matches!(inst, Inst::Reduce(..))) {
            continue;
        }
        let (inputs, before) = (random_inputs(&kernel, seed), settled(&kernel));
        let changed = schedule(&kernel).nests.iter().zip(&before.nests).filter(|(x, y)| x.kernel != y.kernel).count();
        n_changed += changed;
        n_kept += usize::from(changed > 0 && kept > 0);
        let run = |schedule: &Schedule, functions: &[Arc<Function>]| {
            run_functions(&kernel, schedule, functions, &inputs, 1, false).0
        };
        let (expected, after) = (run(&before, &narrow_functions(&before)), schedule(&kernel));
        compare(&kernel, &run(&after, &narrow_functions(&after)), &expected, 0.0, &format!("seed {seed}"));
        check(&kernel, &inputs, &format!("seed {seed}"));
    }
    assert!(n_changed > 50 && n_kept > 20, "{n_changed} nests changed, {n_kept} kernels that keep axes");
}

/// A kernel over a result of `[2, 5, width]` elements that reads it, one element of each column, one of each row of the
/// second axis, and as many as the result has in another order of its rows.
fn epilogue(width: usize) -> Epilogue {
    let kernel = KernelBuilder::new();
    let len = 10 * width;
    let lens = [len, width, 5, len];
    let [result, column, row, other] = lens.map(|len| kernel.param(DType::F32, len, false));
    for extent in [2, 5, width] {
        kernel.axis(extent, false);
    }
    let place = Affine::new(0, &[5 * width as i64, width as i64, 1]);
    let sum = kernel.load(result, place.clone()) + kernel.load(column, Affine::new(0, &[0, 0, 1]));
    let scaled = sum * kernel.load(row, Affine::new(0, &[0, 1, 0]));
    let turned = kernel.load(other, Affine::new(0, &[width as i64, 2 * width as i64, 1]));
    let made = (scaled - turned).max(kernel.constant(0.0_f32.into()));
    let to = kernel.param(DType::F32, len, true);
    kernel.store(to, place.clone(), made);
    let half = kernel.param(DType::F16, len, true);
    kernel.store(half, Affine::new(0, &[width as i64, 2 * width as i64, 1]), scaled.cast(DType::F16));
    let is_positive = kernel.param(DType::Bool, len, true);
    kernel.store(is_positive, place, scaled.gt(turned));
    Epilogue::new(&kernel.finish(), ParamId(0)).unwrap()
}

#[test]
fn blocks_of_an_epilogue() {
    for width in [64, 70, 131] {
        let epilogue = epilogue(width);
        let kernel = prepared(epilogue.kernel());
        let inputs = random_inputs(&kernel, width as u64);
        let whole = schedule(&kernel);
        let (expected, _) = run_functions(&kernel, &whole, &narrow_functions(&whole), &inputs, 1, false);
        let nest = tile_nest(&epilogue, TileShape { width, has_whole_rows: false, is_one: false }).unwrap();
        let unit = Unit { nests: vec![&nest], trap: false };
        let narrow = crate::cpu::compile::isa_at(None);
        let mut all = vec![(None, crate::cpu::compile::machine_code(&unit, &narrow).unwrap())];
        for level in levels() {
            for limit in [u32::MAX, FEW] {
                let code = assembled(&[&nest], &[LoopForm::of_nest(&nest)], level, limit).unwrap();
                check_instructions(&code, &format!("{level:?}"));
                all.push((Some(level), code.bytes));
            }
        }
        for (level, code) in all {
            let function = function(&code);
            for rows in [&[10][..], &[3, 10], &[1, 5, 6, 10]] {
                for columns in [&[width][..], &[32, width], &[7, 8, 41, width]] {
                    let made = run_blocks(&kernel, &function, &inputs, [rows, columns]);
                    compare(&kernel, &made, &expected, 0.0, &format!("{level:?}: {rows:?}, {columns:?}"));
                }
            }
        }
    }
}
