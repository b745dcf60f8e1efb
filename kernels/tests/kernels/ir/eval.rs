//! The evaluator against answers known from elsewhere.

use retape_kernels::ir::random::{random_inputs, random_kernel_with_calls};
use retape_kernels::ir::{Binary, Compare, Func1, Func2, Inst, Unary, eval_inst};
use retape_runtime::{DType, Element, Scalar, bf16, f16};

use super::{bytes, kernel, run, same, scalars};

#[test]
fn mean_of_rows() {
    let k = kernel(
        "kernel (p0: f32[6], p1: f32[2] out, p2: f32[6] out) {
            axes a0 = 2, a1 = 3 reduced
            %0 = load p0[a0 * 3 + a1]
            %1 = reduce sum %0
            %2 = const 3.0: f32
            %3 = div %1, %2
            %4 = mul %0, %0
            store p1[a0], %3
            store p2[a1 * 2 + a0], %4
        }",
    );
    let out = run(&k, &[bytes(&[1.0_f32, 2.0, 3.0, 4.0, 5.0, 9.0])]);
    assert_eq!(out, [bytes(&[2.0_f32, 6.0]), bytes(&[1.0_f32, 16.0, 4.0, 25.0, 9.0, 81.0])]);
}

#[test]
fn reductions_and_their_neutral_elements() {
    for (extent, expected) in [(3, [2.0_f32, -24.0, 4.0, -2.0]), (0, [0.0, 1.0, f32::NEG_INFINITY, f32::INFINITY])] {
        let k = kernel(&format!(
            "kernel (p0: f32[3], p1: f32[4] out, p2: bool[2] out) {{
                axes a0 = {extent} reduced
                %0 = load p0[a0]
                %1 = reduce sum %0
                %2 = reduce prod %0
                %3 = reduce max %0
                %4 = reduce min %0
                %5 = const 3.0: f32
                %6 = lt %0, %5
                %7 = reduce all %6
                %8 = reduce any %6
                store p1[0], %1
                store p1[1], %2
                store p1[2], %3
                store p1[3], %4
                store p2[0], %7
                store p2[1], %8
            }}"
        ));
        let input = [3.0_f32, -2.0, 4.0];
        let expected = if extent == 3 { [5.0, -24.0, 4.0, -2.0] } else { expected };
        let truth = if extent == 3 { [false, true] } else { [true, false] };
        assert_eq!(run(&k, &[bytes(&input)]), [bytes(&expected), bytes(&truth)]);
    }
}

#[test]
fn computed_positions_clamp() {
    let k = kernel(
        "kernel (p0: i32[3], p1: i32[6] out) {
            axes a0 = 6
            %0 = index a0
            %1 = const 2: i64
            %2 = sub %0, %1
            %3 = load_at p0, %2
            store p1[a0 * -1 + 5], %3
        }",
    );
    assert_eq!(run(&k, &[bytes(&[7, 8, 9])]), [bytes(&[9, 9, 8, 7, 7, 7])]);
}

#[test]
fn what_reduced_axes_do_not_touch_runs_without_them() {
    let k = kernel(
        "kernel (p0: f32[2], p1: f32[2] out, p2: f32[0] out) {
            axes a0 = 2, a1 = 0 reduced
            %0 = load p0[a0]
            store p1[a0], %0
            store p2[a1], %0
        }",
    );
    assert_eq!(run(&k, &[bytes(&[1.5_f32, 2.5])]), [bytes(&[1.5_f32, 2.5]), vec![]]);
}

#[test]
fn a_kept_value_is_reduced_once_per_point() {
    let k = kernel(
        "kernel (p0: i32[1] out) {\naxes a0 = 5 reduced\n%0 = const 3: i32\n%1 = reduce sum %0\nstore p0[0], %1\n}",
    );
    assert_eq!(run(&k, &[]), [bytes(&[15])]);
}

fn unary(op: Unary, x: impl Element) -> Scalar {
    eval_inst(&Inst::Unary(op, x.to_scalar())).unwrap()
}

fn binary<T: Element>(op: Binary, x: T, y: T) -> Scalar {
    eval_inst(&Inst::Binary(op, x.to_scalar(), y.to_scalar())).unwrap()
}

fn cast(x: impl Element, dtype: DType) -> Scalar {
    eval_inst(&Inst::Cast(dtype, x.to_scalar())).unwrap()
}

#[track_caller]
fn equal(found: Scalar, expected: impl Element) {
    assert!(same(found, expected.to_scalar()), "found {found:?}, expected {expected:?}");
}

#[test]
fn float_instructions_follow_ieee() {
    let nan = f32::NAN;
    for (op, x, y, expected) in [
        (Binary::Min, 0.0, -0.0, -0.0),
        (Binary::Min, -0.0, 0.0, -0.0),
        (Binary::Max, 0.0, -0.0, 0.0),
        (Binary::Max, -0.0, 0.0, 0.0),
        (Binary::Min, 1.0, nan, nan),
        (Binary::Max, nan, 1.0, nan),
        (Binary::Max, 1.0, 2.0, 2.0),
        (Binary::Rem, -7.5, 2.0, -1.5),
        (Binary::Rem, 7.5, -2.0, 1.5),
        (Binary::Div, 1.0, -0.0, f32::NEG_INFINITY),
        (Binary::Add, 16_777_216.0, 1.0, 16_777_216.0),
    ] {
        equal(binary(op, x, y), expected);
        equal(
            binary(op, f64::from(x), f64::from(y)),
            if op == Binary::Add { 16_777_217.0 } else { f64::from(expected) },
        );
    }
    equal(unary(Unary::Round, 2.5_f32), 2.0_f32);
    equal(unary(Unary::Round, -0.5_f64), -0.0_f64);
    equal(unary(Unary::Trunc, -1.9_f32), -1.0_f32);
    equal(unary(Unary::Abs, -0.0_f32), 0.0_f32);
    let fma = [1.0 + f32::EPSILON, 1.0 - f32::EPSILON, -1.0].map(Element::to_scalar);
    equal(eval_inst(&Inst::Fma(fma[0], fma[1], fma[2])).unwrap(), -(f32::EPSILON * f32::EPSILON));
    for (op, less, equal_nan) in
        [(Compare::Eq, false, false), (Compare::Ne, true, true), (Compare::Lt, true, false), (Compare::Le, true, false)]
    {
        let of = |x: f32, y: f32| eval_inst(&Inst::Compare(op, x.to_scalar(), y.to_scalar())).unwrap();
        equal(of(1.0, 2.0), less);
        equal(of(nan, nan), equal_nan);
    }
}

#[test]
fn integer_instructions_wrap() {
    equal(binary(Binary::Add, i32::MAX, 1), i32::MIN);
    equal(binary(Binary::Mul, 200_u8, 2), 144_u8);
    equal(binary(Binary::Div, -7, 2), -3);
    equal(binary(Binary::Div, 7, 0), 0);
    equal(binary(Binary::Div, i64::MIN, -1), i64::MIN);
    equal(binary(Binary::Rem, -7, 2), -1);
    equal(binary(Binary::Rem, 7_u32, 0), 0_u32);
    equal(binary(Binary::Rem, i32::MIN, -1), 0);
    equal(binary(Binary::Shl, 1_u8, 9), 2_u8);
    equal(binary(Binary::Shl, 1_i32, -1), i32::MIN);
    equal(binary(Binary::Shr, -8_i64, 65), -4_i64);
    equal(binary(Binary::Shr, 0x8000_0000_u32, 31), 1_u32);
    equal(binary(Binary::MulHigh, 0xFFFF_FFFF_u32, 0xFFFF_FFFF), 0xFFFF_FFFE_u32);
    equal(unary(Unary::Neg, i32::MIN), i32::MIN);
    equal(unary(Unary::Abs, i32::MIN), i32::MIN);
    equal(unary(Unary::Abs, 200_u8), 200_u8);
    equal(unary(Unary::Not, 1_u8), 254_u8);
    equal(unary(Unary::Not, true), false);
}

#[test]
fn casts_round_once_and_saturate() {
    equal(cast(f32::NAN, DType::I32), 0_i32);
    equal(cast(3e9_f32, DType::I32), i32::MAX);
    equal(cast(-1.9_f64, DType::I64), -1_i64);
    equal(cast(-1.0_f32, DType::U8), 0_u8);
    equal(cast(300_i32, DType::U8), 255_u8);
    equal(cast(-1_i64, DType::U32), 0_u32);
    equal(cast(f32::NAN, DType::Bool), true);
    equal(cast(-0.0_f64, DType::Bool), false);
    equal(cast(true, DType::F32), 1.0_f32);
    // By way of f64 this would become a tie and round down.
    equal(cast((1_i64 << 60) + (1 << 36) + 1, DType::F32), ((1_i64 << 60) + (1 << 37)) as f32);
    // Ties in f32 that the last bit of the f64 breaks.
    let above = |tie: f64| f64::from_bits(tie.to_bits() + 1);
    equal(cast(1.0 + 2f64.powi(-11), DType::F16), f16::ONE);
    equal(cast(above(1.0 + 2f64.powi(-11)), DType::F16), f16::from_bits(0x3C01));
    equal(cast(above(1.0 + 2f64.powi(-8)), DType::Bf16), bf16::from_bits(0x3F81));
    equal(cast((1_i64 << 62) + (1 << 54) + 1, DType::Bf16), bf16::from_bits(0x5E81));
    equal(cast(1e9_f32, DType::F16), f16::INFINITY);
    equal(cast(f64::MAX, DType::Bf16), bf16::INFINITY);
    equal(cast(f64::MIN_POSITIVE, DType::F16), f16::ZERO);
    equal(cast(f16::from_f32(-1.5), DType::I32), -1_i32);
    equal(cast(bf16::from_f32(0.25), DType::F64), 0.25_f64);
}

#[test]
fn wrong_dtypes_have_no_value() {
    let (x, i, c) = (1.0_f32.to_scalar(), 1_i32.to_scalar(), true.to_scalar());
    for inst in [
        Inst::Binary(Binary::Add, x, i),
        Inst::Binary(Binary::And, x, x),
        Inst::Binary(Binary::Add, c, c),
        Inst::Binary(Binary::MulHigh, i, i),
        Inst::Unary(Unary::Sqrt, i),
        Inst::Unary(Unary::Neg, f16::ONE.to_scalar()),
        Inst::Select(x, x, x),
        Inst::Fma(i, i, i),
        Inst::Bitcast(DType::F64, x),
        Inst::Bitcast(DType::Bool, 2_u8.to_scalar()),
        Inst::Call1(Func1::Exp, i),
        Inst::Call2(Func2::Pow, x, i),
        Inst::Reduce(retape_kernels::ir::ReductionOp::Sum, x),
    ] {
        assert_eq!(eval_inst(&inst), None, "{inst}");
    }
}

fn call(func: Func1, x: f64) -> f64 {
    eval_inst(&Inst::Call1(func, x.to_scalar())).unwrap().to_f64()
}

/// Values of the functions that the standard library lacks, to 16 digits from tables.
#[test]
fn special_functions() {
    const EULER: f64 = 0.577_215_664_901_532_9;
    const ZETA3: f64 = 1.202_056_903_159_594_3;
    let pi2 = std::f64::consts::PI.powi(2);
    let ln2 = std::f64::consts::LN_2;
    for (func, x, terms) in [
        (Func1::Erf, 0.5, &[0.520_499_877_813_046_5][..]),
        (Func1::Erfc, 3.0, &[2.209_049_699_858_544e-5][..]),
        (Func1::Lgamma, 0.5, &[std::f64::consts::PI.ln() / 2.0][..]),
        (Func1::Lgamma, 10.0, &[362_880_f64.ln()][..]),
        (Func1::Digamma, 1.0, &[-EULER][..]),
        (Func1::Digamma, 0.5, &[-EULER, -2.0 * ln2][..]),
        (Func1::Digamma, -0.5, &[2.0, -EULER, -2.0 * ln2][..]),
        (Func1::Digamma, 100.0, &[4.600_161_852_738_087][..]),
        (Func1::Trigamma, 1.0, &[pi2 / 6.0][..]),
        (Func1::Trigamma, 0.5, &[pi2 / 2.0][..]),
        (Func1::Trigamma, -0.5, &[pi2 / 2.0, 4.0][..]),
        (Func1::Tetragamma, 1.0, &[-2.0 * ZETA3][..]),
        (Func1::Tetragamma, 0.5, &[-14.0 * ZETA3][..]),
        (Func1::Tetragamma, -0.5, &[16.0, -14.0 * ZETA3][..]),
        (Func1::Sigmoid, 0.0, &[0.5][..]),
        (Func1::Sigmoid, -710.0, &[(-710_f64).exp()][..]),
        (Func1::Asinh, 1e-10, &[1e-10][..]),
        (Func1::Acosh, 1.0, &[0.0][..]),
        (Func1::Atanh, 0.5, &[3_f64.ln() / 2.0][..]),
    ] {
        let found = call(func, x);
        // Near a root the terms cancel, and with them the leading digits.
        let (expected, scale) = (terms.iter().sum::<f64>(), terms.iter().fold(0.0, |m, t| t.abs().max(m)));
        let error = (found - expected).abs();
        assert!(error <= 8.0 * f64::EPSILON * scale, "{func:?}({x}) = {found}, not {expected}");
    }
}

#[test]
fn polygammas_are_derivatives_of_each_other() {
    for (func, derivative) in
        [(Func1::Lgamma, Func1::Digamma), (Func1::Digamma, Func1::Trigamma), (Func1::Trigamma, Func1::Tetragamma)]
    {
        for x in [-7.3, -2.6, -0.4, 0.1, 0.9, 1.5, 3.0, 15.5, 16.5, 40.0] {
            let h = 1e-5;
            let slope = (call(func, x + h) - call(func, x - h)) / (2.0 * h);
            let found = call(derivative, x);
            assert!(
                (slope - found).abs() <= 1e-6 * found.abs().max(1.0),
                "{derivative:?}({x}) = {found}, slope {slope}"
            );
        }
    }
}

#[test]
fn poles_and_ends() {
    let inf = f64::INFINITY;
    let nan = f64::NAN;
    for (func, x, expected) in [
        (Func1::Digamma, 0.0, -inf),
        (Func1::Digamma, -0.0, inf),
        (Func1::Digamma, -3.0, nan),
        (Func1::Digamma, inf, inf),
        (Func1::Trigamma, -2.0, inf),
        (Func1::Trigamma, inf, 0.0),
        (Func1::Tetragamma, 0.0, -inf),
        (Func1::Tetragamma, -1.0, nan),
        (Func1::Lgamma, 0.0, inf),
        (Func1::Sigmoid, -inf, 0.0),
        (Func1::Sigmoid, inf, 1.0),
    ] {
        let found = call(func, x);
        assert!(same(found.to_scalar(), expected.to_scalar()), "{func:?}({x}) = {found}, not {expected}");
    }
    Func1::ALL.iter().for_each(|&func| assert!(call(func, nan).is_nan(), "{func:?} of NaN"));
}

/// Twice the same bits, and every element of the outputs written: the layouts of random kernels are dense.
#[test]
fn random_kernels_run() {
    for seed in 0..500 {
        let k = random_kernel_with_calls(seed);
        let inputs = random_inputs(&k, seed);
        let first = run(&k, &inputs);
        assert_eq!(first, run(&k, &inputs), "seed {seed}");
        let written = k.params.iter().filter(|p| p.written);
        for (param, out) in written.zip(&first) {
            assert_eq!(scalars(out, param.dtype).len(), param.len);
        }
    }
}
