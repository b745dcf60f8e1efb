//! The transcendental functions: error bounds, edges, and equality of machine code with the instructions.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cell::RefCell;
use std::collections::HashMap;

use retape_kernels::expand::expand;
use retape_kernels::ir::{
    Affine, Axis, Binary, Func1, Func2, Inst, Kernel, Param, ParamId, Store, ValueId, eval_inst, evaluate,
};
use retape_kernels::{BufferType, Executable, Operand, Place, Plan, Step, Work};
use retape_runtime::{Buffer, DType, Element, Scalar};

/// The key of machine code: the instruction, the dtype and the number of elements.
type Key = (Inst<ValueId>, DType, usize);

/// The elements that machine code makes for `call` of those of the inputs.
fn computed<T: Element>(call: Inst<ValueId>, inputs: &[&[T]]) -> Vec<T> {
    thread_local! {
        static COMPILED: RefCell<HashMap<Key, Executable>> = RefCell::default();
    }
    let len = inputs[0].len();
    let inputs: Vec<Buffer> = inputs.iter().map(|x| Buffer::copy_of(x).unwrap()).collect();
    COMPILED.with_borrow_mut(|known| {
        let code = known.entry((call.clone(), T::DTYPE, len)).or_insert_with(|| {
            Executable::compile(plan_of(kernel_of(T::DTYPE, len, inputs.len() as u32, call))).unwrap()
        });
        code.run(&inputs.iter().collect::<Vec<_>>()).unwrap()[0].as_slice::<T>().to_vec()
    })
}

/// A plan with one step, which reads the inputs and writes the output.
fn plan_of(kernel: Kernel) -> Plan {
    let place = |n: usize, written: bool| if written { Place::Output(0) } else { Place::Input(n as u32) };
    let params = kernel.params.iter().enumerate();
    let operands = params.map(|(n, p)| Operand { place: place(n, p.written), dtype: p.dtype, len: p.len }).collect();
    let types = |written| {
        let of = kernel.params.iter().filter(move |p| p.written == written);
        of.map(|p| BufferType { dtype: p.dtype, len: p.len }).collect()
    };
    let (inputs, outputs) = (types(false), types(true));
    Plan {
        inputs,
        outputs,
        steps: vec![Step { work: Work::Kernel(kernel), operands, label: "call".into() }],
        ..Plan::default()
    }
}

fn one<T: Element>(func: Func1, x: T) -> T {
    computed(Inst::Call1(func, ValueId(0)), &[&[x]])[0]
}

fn two<T: Element>(func: Func2, x: T, y: T) -> T {
    computed(Inst::Call2(func, ValueId(0), ValueId(1)), &[&[x], &[y]])[0]
}

/// The value in double precision, by the evaluator of kernels, whose functions share nothing with the formulas.
fn reference(func: Func1, x: f64) -> f64 {
    eval_inst(&Inst::Call1(func, x.into())).map_or(f64::NAN, Scalar::to_f64)
}

/// The bound on the error in units of the last place, for `f32` and `f64`.
fn bounds(func: Func1) -> (f64, f64) {
    match func {
        Func1::Exp | Func1::Exp2 => (1.0, 1.0),
        Func1::Log | Func1::Log2 => (1.0, 1.0),
        Func1::Sin | Func1::Cos => (1.0, 1.0),
        Func1::Tan | Func1::Asin | Func1::Acos | Func1::Atan => (1.5, 1.5),
        Func1::Expm1 | Func1::Log1p | Func1::Sinh | Func1::Cosh | Func1::Tanh => (1.7, 1.7),
        Func1::Asinh | Func1::Acosh | Func1::Atanh | Func1::Sigmoid => (2.0, 2.0),
        Func1::Erf => (1.5, 1.5),
        Func1::Erfc => (4.0, 4.0),
        Func1::Lgamma | Func1::Digamma | Func1::Trigamma => (8.0, 16.0),
        Func1::Tetragamma => (12.0, 16.0),
    }
}

/// The magnitude that the error is measured against. For the gamma family that is the size of the terms: near their
/// zeros (and, on the negative axis, near the zeros between the poles) the absolute error is what stays small.
fn scale(func: Func1, x: f64, exact: f64) -> f64 {
    match func {
        Func1::Lgamma | Func1::Digamma if x > 0.0 => exact.abs().max(1.0),
        Func1::Lgamma => exact.abs() + reference(func, 1.0 - x).abs() + 2.0,
        Func1::Digamma => exact.abs() + reference(func, 1.0 - x).abs() + 1.0,
        Func1::Trigamma | Func1::Tetragamma if x < 0.0 => exact.abs() + reference(func, 1.0 - x).abs(),
        _ => exact.abs(),
    }
}

/// `|y - exact|` in units of the last place of a `float` of size `scale`; infinite if only one is NaN.
fn ulps(y: f64, exact: f64, scale: f64, mantissa: i32, min_exponent: i32) -> f64 {
    if y.is_nan() || exact.is_nan() {
        return if y.is_nan() && exact.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if y == exact {
        return 0.0;
    }
    let exponent = ((scale.to_bits() >> 52 & 0x7FF) as i32 - 1023).clamp(min_exponent, 1 - min_exponent);
    // In two steps: the unit itself may be below the smallest normal number.
    (y - exact).abs() * 2f64.powi(mantissa - exponent / 2) / 2f64.powi(exponent - exponent / 2)
}

/// In units of an `f32`, where infinity is the next number after the largest one.
fn ulps_narrow(y: f32, exact: f64, scale: f64) -> f64 {
    let top = 2f64.powi(128);
    ulps(f64::from(y).clamp(-top, top), exact.clamp(-top, top), scale.min(f64::from(f32::MAX)), 23, -126)
}

fn ulps_wide(y: f64, exact: f64, scale: f64) -> f64 {
    ulps(y, exact, scale, 52, -1022)
}

/// Bit patterns spread over all of them, more in release builds, and special ones.
fn narrow_arguments() -> impl Iterator<Item = f32> {
    let stride = if cfg!(debug_assertions) { 65_537 } else { 257 };
    let near = (0..2000).map(|i| (i - 1000) as f32 / 125.0);
    (0..=u32::MAX).step_by(stride).map(f32::from_bits).chain(near).chain(special_values())
}

fn special_values() -> impl Iterator<Item = f32> {
    let positive =
        [0.0, 1.0, 0.5, 2.0, 1.5, 3.0, 8.0, 1e-45, 1e-40, f32::MIN_POSITIVE, f32::MAX, f32::INFINITY, f32::NAN];
    let quarters = (1..9).map(|n| n as f32 * std::f32::consts::FRAC_PI_4);
    // The last angle is one of those closest to a multiple of pi/2.
    let angles = [99_999.99, 100_000.02, 1e10, 1e20, 1e30, 16_367_173.0 * 2f32.powi(72)];
    let bounds = [88.72, 88.73, 87.3, 87.4, 103.9, 104.0, 126.0, 127.0, 128.0, 149.0, 150.0, 17.0, 10.0, 0.625, 4.0];
    let all = positive.into_iter().chain(quarters).chain(angles).chain(bounds);
    all.flat_map(|x: f32| [x, -x, f32::from_bits(x.to_bits() ^ 1)])
}

#[test]
fn f32_errors_stay_within_bounds() {
    for &func in Func1::ALL {
        let bound = bounds(func).0;
        let x: Vec<f32> = narrow_arguments().collect();
        let y = computed(Inst::Call1(func, ValueId(0)), &[&x]);
        let (mut worst, mut at) = (0.0, 0.0);
        for (&x, &y) in x.iter().zip(&y) {
            let exact = reference(func, x.into());
            let error = ulps_narrow(y, exact, scale(func, x.into(), exact));
            if error > worst {
                (worst, at) = (error, x);
            }
        }
        assert!(worst <= bound, "{}: {worst} ulp at {at:e} ({:08x})", func.name(), at.to_bits());
    }
}

#[test]
fn f64_errors_stay_within_bounds() {
    let float = |text: &str| f64::from_bits(u64::from_str_radix(text, 16).unwrap());
    let mut lines = 0;
    for line in include_str!("data/f64_reference.txt").lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split(' ').collect();
        let (error, bound) = match words[..] {
            [name, x, exact] => {
                let (func, x, exact) = (Func1::from_name(name).unwrap(), float(x), float(exact));
                (ulps_wide(one(func, x), exact, scale(func, x, exact)), bounds(func).1)
            }
            [name, x, y, exact] => {
                let (func, exact) = (Func2::from_name(name).unwrap(), float(exact));
                (ulps_wide(two(func, float(x), float(y)), exact, exact), 2.0)
            }
            _ => panic!("bad line {line}"),
        };
        assert!(error <= bound, "{line}: {error} ulp");
        lines += 1;
    }
    assert_eq!(lines, 200 * (Func1::ALL.len() + Func2::ALL.len()));
}

#[test]
fn f64_angles_closest_to_a_quarter_turn() {
    let x = 6_381_956_970_095_103.0 * 2f64.powi(797);
    for (func, exact) in
        [(Func1::Cos, -4.687_165_924_254_628e-19), (Func1::Sin, 1.0), (Func1::Tan, -2.133_485_385_753_704e18)]
    {
        let y = one(func, x);
        assert!(ulps_wide(y, exact, exact) <= 1.5, "{}({x:e}): {y:e}, not {exact:e}", func.name());
    }
}

/// Numbers from a linear congruence.
fn random(state: &mut u64) -> u32 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 32) as u32
}

#[test]
fn f32_functions_of_two_operands_stay_within_bounds() {
    let mut state = 1;
    for i in 0..if cfg!(debug_assertions) { 20_000 } else { 2_000_000 } {
        let (x, y) = (f32::from_bits(random(&mut state)), f32::from_bits(random(&mut state)));
        let (a, b) = (f64::from(random(&mut state)) / 1e9, f64::from(random(&mut state)) / 2e7 - 107.0);
        let (x, y) = if i % 2 == 0 { (x, y) } else { (a as f32, b as f32) };
        let (x64, y64) = (f64::from(x), f64::from(y));
        for (func, exact) in [(Func2::Pow, x64.powf(y64)), (Func2::Atan2, x64.atan2(y64))] {
            let error = ulps_narrow(two(func, x, y), exact, exact);
            assert!(error <= 2.0, "{}({x:e}, {y:e}): {error} ulp", func.name());
        }
    }
}

/// Equal bits, any NaN equal to any.
fn same(x: f64, y: f64) -> bool {
    x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan()
}

#[test]
fn edges_of_functions_of_one_operand() {
    const INF: f64 = f64::INFINITY;
    const NAN: f64 = f64::NAN;
    use std::f64::consts::{FRAC_PI_2, PI};
    // The values at -inf, -2, -1, -0, +0, 1, inf; where the exact one is irrational, `skip`.
    let skip = 12345.0;
    let table = [
        (Func1::Exp, [0.0, skip, skip, 1.0, 1.0, skip, INF]),
        (Func1::Exp2, [0.0, 0.25, 0.5, 1.0, 1.0, 2.0, INF]),
        (Func1::Expm1, [-1.0, skip, skip, -0.0, 0.0, skip, INF]),
        (Func1::Log, [NAN, NAN, NAN, -INF, -INF, 0.0, INF]),
        (Func1::Log2, [NAN, NAN, NAN, -INF, -INF, 0.0, INF]),
        (Func1::Log1p, [NAN, NAN, -INF, -0.0, 0.0, skip, INF]),
        (Func1::Sin, [NAN, skip, skip, -0.0, 0.0, skip, NAN]),
        (Func1::Cos, [NAN, skip, skip, 1.0, 1.0, skip, NAN]),
        (Func1::Tan, [NAN, skip, skip, -0.0, 0.0, skip, NAN]),
        (Func1::Asin, [NAN, NAN, -FRAC_PI_2, -0.0, 0.0, FRAC_PI_2, NAN]),
        (Func1::Acos, [NAN, NAN, PI, FRAC_PI_2, FRAC_PI_2, 0.0, NAN]),
        (Func1::Atan, [-FRAC_PI_2, skip, skip, -0.0, 0.0, skip, FRAC_PI_2]),
        (Func1::Sinh, [-INF, skip, skip, -0.0, 0.0, skip, INF]),
        (Func1::Cosh, [INF, skip, skip, 1.0, 1.0, skip, INF]),
        (Func1::Tanh, [-1.0, skip, skip, -0.0, 0.0, skip, 1.0]),
        (Func1::Asinh, [-INF, skip, skip, -0.0, 0.0, skip, INF]),
        (Func1::Acosh, [NAN, NAN, NAN, NAN, NAN, 0.0, INF]),
        (Func1::Atanh, [NAN, NAN, -INF, -0.0, 0.0, INF, NAN]),
        (Func1::Erf, [-1.0, skip, skip, -0.0, 0.0, skip, 1.0]),
        (Func1::Erfc, [2.0, skip, skip, 1.0, 1.0, skip, 0.0]),
        (Func1::Sigmoid, [0.0, skip, skip, 0.5, 0.5, skip, 1.0]),
        (Func1::Lgamma, [INF, INF, INF, INF, INF, 0.0, INF]),
        (Func1::Digamma, [NAN, NAN, NAN, INF, -INF, skip, INF]),
        (Func1::Trigamma, [NAN, INF, INF, INF, INF, skip, 0.0]),
        (Func1::Tetragamma, [NAN, NAN, NAN, INF, -INF, skip, -0.0]),
    ];
    assert_eq!(table.len(), Func1::ALL.len());
    for (func, expected) in table {
        for (x, exact) in [-INF, -2.0, -1.0, -0.0, 0.0, 1.0, INF].into_iter().zip(expected) {
            if exact == skip {
                continue;
            }
            let (wide, narrow) = (one(func, x), one(func, x as f32));
            assert!(same(wide, exact), "f64 {}({x:?}) = {wide:?}, not {exact:?}", func.name());
            assert!(same(narrow.into(), f64::from(exact as f32)), "f32 {}({x:?}) = {narrow:?}", func.name());
        }
        assert!(one(func, NAN).is_nan() && one(func, f32::NAN).is_nan(), "{} of NaN", func.name());
    }
}

#[test]
fn functions_of_slope_one_keep_subnormal_numbers() {
    use Func1::{Asin, Asinh, Atan, Atanh, Expm1, Log1p, Sin, Sinh, Tan, Tanh};
    for func in [Expm1, Log1p, Sin, Tan, Asin, Atan, Sinh, Tanh, Asinh, Atanh] {
        for bits in [1, 2, 3, 5, 1000, 0x7f_ffff, 0x80_0000, 0x80_0001] {
            let (wide, narrow) = (f64::from_bits(bits), f32::from_bits(bits as u32));
            for (wide, narrow) in [(wide, narrow), (-wide, -narrow)] {
                assert_eq!(one(func, wide).to_bits(), wide.to_bits(), "f64 {} of {wide:e}", func.name());
                assert_eq!(one(func, narrow).to_bits(), narrow.to_bits(), "f32 {} of {narrow:e}", func.name());
            }
        }
    }
}

#[test]
fn edges_of_functions_of_two_operands() {
    let values = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 1e300, 1e-320, 9_007_199_254_740_991.0, f64::INFINITY, f64::NAN];
    let values = || values.into_iter().flat_map(|x: f64| [x, -x]);
    for (x, y) in values().flat_map(|x| values().map(move |y| (x, y))) {
        for (func, exact) in [(Func2::Pow, x.powf(y)), (Func2::Atan2, x.atan2(y))] {
            let wide = two(func, x, y);
            let signs_agree = wide.is_nan() || wide.is_sign_negative() == exact.is_sign_negative();
            assert!(signs_agree && ulps_wide(wide, exact, exact) <= 2.0, "{}({x:e}, {y:e}): {wide:e}", func.name());
            let (x, y) = (x as f32, y as f32);
            let exact = match func {
                Func2::Pow => f64::from(x).powf(y.into()),
                Func2::Atan2 => f64::from(x).atan2(y.into()),
            };
            let narrow = two(func, x, y);
            let signs_agree = narrow.is_nan() || narrow.is_sign_negative() == exact.is_sign_negative();
            let near = ulps_narrow(narrow, exact, exact) <= 2.0;
            assert!(signs_agree && near, "{}({x:e}, {y:e}): {narrow:e}, not {exact:e}", func.name());
        }
    }
}

/// A kernel that applies `call` to the elements of `n_inputs` arrays of `len`.
fn kernel_of(dtype: DType, len: usize, n_inputs: u32, call: Inst<ValueId>) -> Kernel {
    let here = Affine::new(0, &[1]);
    let mut params = vec![Param { dtype, len, written: false }; n_inputs as usize];
    params.push(Param { dtype, len, written: true });
    let mut insts: Vec<_> = (0..n_inputs).map(|i| Inst::Load(ParamId(i), here.clone())).collect();
    insts.push(call);
    let stores = vec![Store { param: ParamId(n_inputs), at: here, value: ValueId(n_inputs) }];
    Kernel { params, axes: vec![Axis { extent: len, reduced: false }], insts, stores }
}

/// Checks machine code for `call` against its expansion, evaluated instruction by instruction.
fn agrees<T: Element>(name: &str, call: &Inst<ValueId>, inputs: &[&[T]]) {
    let found = computed(call.clone(), inputs);
    let bytes = |x: &[T]| -> Vec<u8> {
        x.iter().flat_map(|x| x.to_scalar().bits.to_le_bytes().into_iter().take(T::DTYPE.size())).collect()
    };
    let kernel = expand(&kernel_of(T::DTYPE, found.len(), inputs.len() as u32, call.clone()));
    let inputs: Vec<Vec<u8>> = inputs.iter().map(|x| bytes(x)).collect();
    let mut expected = vec![0; found.len() * T::DTYPE.size()];
    evaluate(&kernel, &inputs.iter().map(Vec::as_slice).collect::<Vec<_>>(), &mut [&mut expected]);
    for (i, (found, expected)) in
        bytes(&found).chunks(T::DTYPE.size()).zip(expected.chunks(T::DTYPE.size())).enumerate()
    {
        let read = |b: &[u8]| {
            let bits = b.iter().rev().fold(0, |bits, &b| bits << 8 | u64::from(b));
            Scalar { dtype: T::DTYPE, bits }.to_f64()
        };
        assert!(
            same(read(found), read(expected)),
            "{name} of element {i}: {:e}, not {:e}",
            read(found),
            read(expected)
        );
    }
}

#[test]
fn machine_code_gives_the_bits_of_the_instructions() {
    let mut state = 7;
    let mut x: Vec<f32> = special_values().collect();
    x.extend((0..400).map(|_| f32::from_bits(random(&mut state))));
    x.extend((0..400).map(|i| (i - 200) as f32 * 0.11));
    let wide: Vec<f64> = x.iter().map(|&x| f64::from(x) * if x.abs() > 1e5 { 1e250 } else { 1.000_000_01 }).collect();
    for &func in Func1::ALL {
        let call = Inst::Call1(func, ValueId(0));
        agrees(func.name(), &call, &[&x]);
        agrees(func.name(), &call, &[&wide]);
    }
    let (z, wide_z): (Vec<f32>, Vec<f64>) = (x.iter().rev().copied().collect(), wide.iter().rev().copied().collect());
    for &func in Func2::ALL {
        let call = Inst::Call2(func, ValueId(0), ValueId(1));
        agrees(func.name(), &call, &[&x, &z]);
        agrees(func.name(), &call, &[&wide, &wide_z]);
    }
}

#[test]
fn expansion_keeps_everything_else() {
    let mut kernel = kernel_of(DType::F32, 4, 2, Inst::Binary(Binary::Add, ValueId(0), ValueId(1)));
    assert_eq!(expand(&kernel), kernel);
    // Two calls share their constants, and equal calls are one.
    kernel.insts.extend([Inst::Call1(Func1::Exp, ValueId(2)), Inst::Call1(Func1::Exp, ValueId(2))]);
    kernel.insts.push(Inst::Binary(Binary::Mul, ValueId(3), ValueId(4)));
    kernel.stores = vec![Store { param: ParamId(2), at: Affine::new(0, &[1]), value: ValueId(5) }];
    let expanded = expand(&kernel);
    let Inst::Binary(Binary::Mul, x, y) = expanded.insts[expanded.stores[0].value.index()] else {
        panic!("the product is gone");
    };
    assert_eq!(x, y);
    let mut seen = std::collections::HashSet::new();
    assert!(expanded.insts.iter().all(|inst| seen.insert(inst)), "an instruction occurs twice");
}
