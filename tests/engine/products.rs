//! Small products, which kernels compute along with their neighbours, have the bits that the library kernel has: of
//! operands of any strides, with NaN, infinities, subnormal numbers and zeros of both signs, at every width of vectors.

use std::process::Command;

use retape::{DType, Form, Tensor, accelerate};
use retape_kernels::library::MatMul;
use retape_runtime::Buffer;

use crate::random_graphs::Random;

/// Numbers, one in eight of them special.
fn numbers(random: &mut Random, shape: &[usize], dtype: DType) -> Tensor {
    const SPECIAL: [f64; 8] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1e-40, -1e-310, 3e38];
    let number = |random: &mut Random| match random.below(8) {
        0 => SPECIAL[random.below(SPECIAL.len())],
        _ => random.unit(),
    };
    let values: Vec<f64> = (0..shape.iter().product()).map(|_| number(random)).collect();
    Tensor::from_vec(values, shape).unwrap().cast(dtype)
}

/// A tensor, and one of its views that is a stack of matrices of `rows` by `columns`.
fn operand(random: &mut Random, batch: &[usize], [rows, columns]: [usize; 2], dtype: DType) -> (Tensor, View) {
    let view = VIEWS[random.below(VIEWS.len())];
    let [stored_rows, stored_columns] = match view {
        View::Whole | View::Flipped => [rows, columns],
        View::Turned => [columns, rows],
        View::EverySecond => [2 * rows, 2 * columns],
        View::OneRow => [1, columns],
    };
    let shape: Vec<usize> = batch.iter().copied().chain([stored_rows, stored_columns]).collect();
    (numbers(random, &shape, dtype), view)
}

#[derive(Clone, Copy, Debug)]
enum View {
    Whole,
    Turned,
    EverySecond,
    OneRow,
    Flipped,
}

const VIEWS: [View; 5] = [View::Whole, View::Turned, View::EverySecond, View::OneRow, View::Flipped];

impl View {
    fn of(self, x: &Tensor, [rows, columns]: [usize; 2]) -> Tensor {
        let rank = x.rank();
        let whole: Vec<usize> = x.shape()[..rank - 2].to_vec();
        match self {
            View::Whole => x.clone(),
            View::Turned => x.transpose(),
            View::EverySecond => {
                let start: Vec<usize> = whole.iter().map(|_| 0).chain([1, 0]).collect();
                let stop: Vec<usize> = whole.iter().copied().chain([2 * rows, 2 * columns]).collect();
                let step: Vec<usize> = whole.iter().map(|_| 1).chain([2, 2]).collect();
                x.slice(&start, &stop, &step)
            }
            View::OneRow => x.broadcast_to(whole.into_iter().chain([rows, columns]).collect::<Vec<_>>()),
            View::Flipped => x.flip(-1),
        }
    }
}

/// The product of dense operands by the library kernel.
fn of_library(a: &Tensor, b: &Tensor, sizes: [usize; 3]) -> Tensor {
    let batch = &a.shape()[..a.rank() - 2];
    let product = MatMul::contiguous(a.dtype(), batch, sizes);
    let [a, b] = [a, b].map(|x| Buffer::from_bytes(&x.to_le_bytes().unwrap()).unwrap());
    let (dtype, len) = product.outputs()[0];
    let mut result = Buffer::zeroed(len * dtype.size()).unwrap();
    product.run(&[a.bytes(), b.bytes()], &mut [result.bytes_mut()]);
    let shape: Vec<usize> = batch.iter().copied().chain([sizes[0], sizes[1]]).collect();
    Tensor::from_le_bytes(dtype, shape, result.bytes()).unwrap()
}

/// The bits of all elements, those of NaN aside.
fn bits(x: &Tensor) -> Vec<u64> {
    let of = |x: f64| if x.is_nan() { f64::NAN.to_bits() } else { x.to_bits() };
    x.cast(DType::F64).to_vec::<f64>().unwrap().into_iter().map(of).collect()
}

#[test]
fn small_products_have_the_bits_of_the_library() {
    let random = &mut Random::new(7);
    for case in 0..150 {
        let dtype = if case % 3 == 0 { DType::F64 } else { DType::F32 };
        let batch: &[usize] = [&[][..], &[2], &[2, 3]][random.below(3)];
        // Some have too many steps or multiplications to be small, so both ways are met.
        let most = if case % 10 == 9 { [300, 40, 5] } else { [18; 3] };
        let [m, n, k] = most.map(|most| 1 + random.below(most));
        let (sizes_a, sizes_b) = ([m, k], [k, n]);
        let (a, view_a) = operand(random, batch, sizes_a, dtype);
        let (b, view_b) = operand(random, batch, sizes_b, dtype);
        let factor = numbers(random, &batch.iter().copied().chain([m, n]).collect::<Vec<_>>(), dtype);
        let product = |a: &Tensor, b: &Tensor| view_a.of(a, sizes_a).matmul(&view_b.of(b, sizes_b));
        let alone = accelerate(product).call(&a, &b).unwrap();
        let fused = accelerate(|a: &Tensor, b: &Tensor, factor: &Tensor| product(a, b) * factor - 0.5);
        let fused = fused.call(&a, &b, &factor).unwrap();
        let folded = accelerate(|a: &Tensor, b: &Tensor| product(a, b).sum(-1)).call(&a, &b).unwrap();
        let expected = of_library(&view_a.of(&a, sizes_a), &view_b.of(&b, sizes_b), [m, n, k]);
        let what = format!("{dtype} {batch:?} {m} by {n}, {k} steps, of {view_a:?} and {view_b:?}");
        assert_eq!(bits(&alone), bits(&expected), "{what}");
        assert_eq!(bits(&fused), bits(&(&expected * &factor - 0.5)), "{what}, fused");
        assert_eq!(bits(&folded), bits(&expected.sum(-1)), "{what}, folded");
    }
}

#[test]
fn small_products_have_the_bits_of_the_library_at_every_width() {
    let test = "products::small_products_have_the_bits_of_the_library";
    for width in ["128", "256", "512"] {
        let mut child = Command::new(std::env::current_exe().unwrap());
        let output = child.args(["--exact", test]).env("RETAPE_VECTOR_BITS", width).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{width} bits: {text}");
    }
}

#[test]
fn a_sum_of_small_products_is_one_kernel() {
    let f = accelerate(|x: &Tensor, y: &Tensor| {
        let of = |n: usize| x.slice_axis(0, n..n + 1).transpose().matmul(&y.slice_axis(0, n..n + 1));
        (1..6).fold(of(0), |sum, n| sum + of(n))
    });
    let x = Tensor::from_vec((0..48).map(|n| n as f32 / 7.0).collect::<Vec<_>>(), [6, 8]).unwrap();
    let y = x.flip(1);
    let sum = f.call(&x, &y).unwrap();
    let plan = f.text(&f.signature(&x, &y), Form::Plan).unwrap();
    assert_eq!((plan.matches("kernel (").count(), plan.matches("matmul{").count()), (1, 0), "{plan}");
    let of = |n: usize| x.slice_axis(0, n..n + 1).transpose().matmul(&y.slice_axis(0, n..n + 1));
    assert_eq!(bits(&sum), bits(&(1..6).fold(of(0), |sum, n| sum + of(n))));
}

#[test]
fn many_tiny_products_are_a_kernel_whichever_operand_is_turned() {
    let random = &mut Random::new(3);
    for [m, n, k] in [[2, 2, 2], [3, 3, 3], [5, 4, 3]] {
        let [a, b] = [[1000, m, k], [1000, n, k]].map(|shape| numbers(random, &shape, DType::F32));
        let f = accelerate(|a: &Tensor, b: &Tensor| a.matmul(&b.transpose()));
        let made = f.call(&a, &b).unwrap();
        let plan = f.text(&f.signature(&a, &b), Form::Plan).unwrap();
        assert_eq!((plan.matches("kernel (").count(), plan.matches("matmul{").count()), (1, 0), "{plan}");
        let turned = View::Turned.of(&b, [k, n]);
        assert_eq!(bits(&made), bits(&of_library(&a, &turned, [m, n, k])), "{m} by {n}, {k} steps");
    }
}
