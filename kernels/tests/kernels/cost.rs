//! Operations and bytes of work, counted from shapes.

use retape_kernels::ir;
use retape_kernels::library::{
    Attention, AttentionPass, Cholesky, Conv2d, ConvPass, Join, MatMul, MatrixLayout as Strided, Philox, Pool2d,
    PoolKind, PoolPass,
};
use retape_kernels::{Place, Step, StepCost, Work};
use retape_runtime::{DType, Scalar, Shape};
use smallvec::SmallVec;

use crate::execute::step;

fn kernel(text: &str) -> StepCost {
    Work::Kernel(ir::parse(text).expect("a kernel")).cost()
}

/// Instructions before, inside and after a reduction run as often as their own points say.
#[test]
fn reductions_count_each_stage_by_its_own_points() {
    let cost = kernel(
        "kernel (p0: f32[12], p1: f32[3], p2: f32[3] out) {
           axes a0 = 3, a1 = 4 reduced
           %0 = load p0[a0 * 4 + a1]
           %1 = load p1[a0]
           %2 = exp %1
           %3 = mul %0, %2
           %4 = reduce sum %3
           %5 = sqrt %4
           store p2[a0], %5
         }",
    );
    // For each row exp, the formula of which has 9 fused multiply-adds and 3 other operations, and sqrt; a product and an
    // addition for each element.
    assert_eq!(cost, StepCost { flops: 3 * (2 * 9 + 3) + 3 + 12 + 12, flops_f64: 0, bytes: 4 * (12 + 3 + 3) });
}

/// Powers with a known exponent are products, as they are compiled.
#[test]
fn operations_are_those_of_the_compiled_form() {
    let cost = kernel(
        "kernel (p0: f32[8], p1: f32[8] out) {
           axes a0 = 8
           %0 = load p0[a0]
           %1 = const 2.0: f32
           %2 = pow %0, %1
           store p1[a0], %2
         }",
    );
    assert_eq!(cost, StepCost { flops: 8, flops_f64: 0, bytes: 4 * (8 + 8) });
}

/// Elements that are read twice count once, integers are no floats, and doubles are counted apart.
#[test]
fn traffic_is_that_of_elements_and_not_of_loads() {
    let cost = kernel(
        "kernel (p0: f64[10], p1: i32[8], p2: f64[8] out, p3: i32[8] out) {
           axes a0 = 8
           %0 = load p0[a0]
           %1 = load p0[a0 + 2]
           %2 = fma %0, %1, %0
           %3 = load p1[a0]
           %4 = add %3, %3
           store p2[a0], %2
           store p3[a0], %4
         }",
    );
    assert_eq!(cost, StepCost { flops: 0, flops_f64: 16, bytes: 8 * 10 + 4 * 8 + 8 * 8 + 4 * 8 });
}

#[test]
fn library_kernels_count_the_terms_of_their_sums() {
    let conv = |pass| {
        Work::library(Conv2d {
            dtype: DType::F32,
            batch: 2,
            height: 8,
            width: 6,
            in_channels: 4,
            out_channels: 10,
            groups: 2,
            kernel_height: 3,
            kernel_width: 3,
            stride: [1, 1],
            padding: [[1, 1], [1, 1]],
            dilation: [1, 1],
            pass,
        })
        .cost()
    };
    let image = 2 * 8 * 6;
    let expected =
        StepCost { flops: 2 * image * 10 * 9 * 2, flops_f64: 0, bytes: 4 * (image * 4 + 9 * 2 * 10 + image * 10) };
    assert_eq!([ConvPass::Forward, ConvPass::InputGradient, ConvPass::FilterGradient].map(conv), [expected; 3]);
    let pool = Pool2d {
        dtype: DType::F64,
        batch: 1,
        height: 8,
        width: 8,
        channels: 3,
        window: [2, 2],
        stride: [2, 2],
        padding: [[0, 0], [0, 0]],
        kind: PoolKind::Max,
        pass: PoolPass::Forward,
    };
    let bytes = 8 * (64 + 16) * 3;
    assert_eq!(Work::library(pool).cost(), StepCost { flops: 0, flops_f64: 16 * 3 * 4, bytes });
    let cholesky = Cholesky { dtype: DType::F32, batch: 2, n: 30 };
    assert_eq!(Work::library(cholesky).cost().flops, 2 * 30 * 30 * 30 / 3);
    assert_eq!(Work::library(Philox { len: 64, stream: 0 }).cost().operations(), 0);
}

/// Operands with strides count what is read of their buffers: parts of one projection, and a matrix for a whole batch.
#[test]
fn operands_with_strides_count_what_is_read() {
    let part = |offset: usize| Strided {
        offset,
        batch_strides: SmallVec::from_slice(&[10 * 96, 8]),
        row_stride: 96,
        col_stride: 1,
    };
    let attention = Attention {
        dtype: DType::F32,
        batch: 3,
        heads: 4,
        queries: 10,
        keys: 10,
        features: 8,
        value_features: 8,
        causal: false,
        scale: Scalar::from_f64(1.0, DType::F32),
        operands: vec![part(0), part(32), part(64)],
        joined: false,
        pass: AttentionPass::Forward,
    };
    // Three parts, and a result with a logarithm for each query and head.
    let elements = 3 * 3 * 10 * 32 + 3 * 10 * 32 + 3 * 4 * 10;
    assert_eq!(Work::library(attention).cost().bytes, 4 * elements);
    let mut product = MatMul::contiguous(DType::F32, &[6], [5, 7, 9]);
    product.b.batch_strides[0] = 0;
    assert_eq!(Work::library(product).cost().bytes, 4 * (6 * 5 * 9 + 9 * 7 + 6 * 5 * 7));
    // A row for all lines, and a part of lines of a hundred.
    let join = Join::contiguous(DType::F32, 3, Shape::new(&[1, 2]), 5);
    let join = Join { offsets: Shape::new(&[7, 50]), pitches: Shape::new(&[0, 100]), ..join };
    assert_eq!(Work::library(join).cost().bytes, 4 * (5 + 3 * 10 + 3 * 15));
}

/// Bytes that a step of a launch hands on to a later one lie in a cache.
#[test]
fn a_launch_moves_what_its_steps_hand_on_once() {
    let text =
        "kernel (p0: f32[8], p1: f32[8] out) {\n  axes a0 = 8\n%0 = load p0[a0]\n%1 = neg %0\nstore p1[a0], %1\n}\n";
    let of = |places: [Place; 2]| step("neg", text, &places);
    let steps = [
        of([Place::Input(0), Place::Slot { offset: 0 }]),
        of([Place::Slot { offset: 0 }, Place::Slot { offset: 0 }]),
        of([Place::Slot { offset: 0 }, Place::Output(0)]),
    ];
    let cost = |steps: &[Step]| StepCost::of_launch(steps).bytes;
    assert_eq!([0..0, 0..1, 1..2, 0..2, 0..3].map(|some| cost(&steps[some])), [0, 64, 64, 64, 96]);
}
