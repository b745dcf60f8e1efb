//! The builder writes what its operators say, once.

use retape_kernels::ir::{Affine, KernelBuilder, ReductionOp};
use retape_runtime::{DType, Element};

#[test]
fn operators_write_instructions() {
    let k = KernelBuilder::new();
    let (rows, _) = (k.axis(4, false), k.axis(8, true));
    let (input, output) = (k.param(DType::F32, 32, false), k.param(DType::F32, 4, true));
    let x = k.load(input, Affine::new(0, &[8, 1]));
    let y = (1 - x) * (x + 2.5) / x - (-x % 3);
    let z = x.gt(0.0).select(y.max(0.5), x).fma(2.0, y).tanh();
    let row = k.index(rows).cast(DType::F32);
    k.store(output, Affine::new(0, &[1]), z.reduce(ReductionOp::Sum).pow(row));
    let kernel = k.finish();
    kernel.verify().unwrap();
    let expected = "\
kernel (p0: f32[32], p1: f32[4] out) {
  axes a0 = 4, a1 = 8 reduced
  %0 = load p0[a0 * 8 + a1]
  %1 = const 1.0: f32
  %2 = sub %1, %0
  %3 = const 2.5: f32
  %4 = add %0, %3
  %5 = mul %2, %4
  %6 = div %5, %0
  %7 = neg %0
  %8 = const 3.0: f32
  %9 = rem %7, %8
  %10 = sub %6, %9
  %11 = const 0.0: f32
  %12 = lt %11, %0
  %13 = const 0.5: f32
  %14 = max %10, %13
  %15 = select %12, %14, %0
  %16 = const 2.0: f32
  %17 = fma %15, %16, %10
  %18 = tanh %17
  %19 = index a0
  %20 = cast %19: f32
  %21 = reduce sum %18
  %22 = pow %21, %20
  store p1[a0], %22
}
";
    assert_eq!(kernel.to_string(), expected);
}

#[test]
fn equal_instructions_are_one() {
    let k = KernelBuilder::new();
    let axis = k.axis(4, false);
    let x = k.index(axis);
    assert_eq!((x * x + 1).id(), (k.index(axis) * x + 1).id());
    assert_ne!((x - 1).id(), (1 - x).id());
    assert_ne!(k.constant(0.0_f32.to_scalar()).id(), k.constant((-0.0_f32).to_scalar()).id());
}

#[test]
fn integers_take_operators() {
    let k = KernelBuilder::new();
    let x = k.index(k.axis(4, false)).cast(DType::U32);
    let bits = ((x << 3) ^ (x >> 29) & 0xFF | !x).mul_high(0xFFFF_FFFF);
    assert_eq!(bits.dtype(), DType::U32);
    k.finish().verify().unwrap();
}

#[test]
fn exact_constants_fold_and_others_stay() {
    let k = KernelBuilder::new();
    let two = k.constant(2.0_f32.to_scalar());
    assert_eq!((two * 3.0 + 1).sqrt().id(), k.constant(7.0_f32.sqrt().to_scalar()).id());
    assert_eq!(two.lt(3.0).id(), k.constant(true.to_scalar()).id());
    assert_eq!(two.cast(DType::I64).id(), k.constant(2_i64.to_scalar()).id());
    // Generated code rounds these in its own way, and the bits of this NaN are the machine's.
    let zero = k.constant(0.0_f32.to_scalar());
    let (exp, nan) = (two.exp().id(), (zero / zero).id());
    let kernel = k.finish();
    assert_eq!(kernel.insts[exp.index()].to_string(), format!("exp {}", two_id(&kernel)));
    assert!(kernel.insts[nan.index()].to_string().starts_with("div"));
}

fn two_id(kernel: &retape_kernels::ir::Kernel) -> String {
    let at = kernel.insts.iter().position(|i| i.to_string() == "const 2.0: f32").unwrap();
    format!("%{at}")
}

#[test]
fn axes_may_come_late() {
    let k = KernelBuilder::new();
    let input = k.param(DType::F32, 4, false);
    k.axis(4, false);
    let x = k.load(input, Affine::new(0, &[1]));
    k.axis(3, true);
    let output = k.param(DType::F32, 4, true);
    k.store(output, Affine::new(0, &[1]), x.reduce(ReductionOp::Max));
    k.finish().verify().unwrap();
}
