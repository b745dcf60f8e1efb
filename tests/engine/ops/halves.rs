//! Products of 16-bit floats and their derivatives, beside those of the same numbers in `f32`.

use retape::ops::ConvOptions;
use retape::{DType, Tensor, value_and_grad};

fn ramp(shape: &[usize], seed: usize, dtype: DType) -> Tensor {
    let n = shape.iter().product();
    let values: Vec<f32> = (0..n).map(|i| (((i + seed) * 7919) % 1013) as f32 * 2e-3 - 1.0).collect();
    // Both ways of computing begin with the same numbers.
    Tensor::from_vec(values, shape).unwrap().cast(dtype).cast(DType::F32)
}

/// The loss and its derivatives, with products in `dtype` of arguments that it holds exactly.
fn check(shapes: [&[usize]; 2], product: impl Fn(&Tensor, &Tensor) -> Tensor) {
    for (dtype, bound) in [(DType::Bf16, 0.02), (DType::F16, 0.003)] {
        let args = (ramp(shapes[0], 1, dtype), ramp(shapes[1], 5, dtype));
        let loss = |to: DType| {
            value_and_grad(
                |(x, w): &(Tensor, Tensor)| product(&x.cast(to), &w.cast(to)).cast(DType::F32).square().sum(..),
                &args,
            )
            .unwrap()
        };
        let ((half, (dx, dw)), (single, (dx_single, dw_single))) = (loss(dtype), loss(DType::F32));
        for (half, single) in [(half, single), (dx, dx_single), (dw, dw_single)] {
            let [half, single] = [half, single].map(|tensor| tensor.to_vec::<f32>().unwrap());
            let largest = single.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
            assert!(largest > 0.1 && half != single);
            for (half, single) in half.iter().zip(&single) {
                assert!((half - single).abs() <= bound * largest, "{dtype}: {half}, not {single}");
            }
        }
    }
}

#[test]
fn products_of_matrices() {
    check([&[5, 40], &[40, 7]], Tensor::matmul);
    // The second matrix meets a batch of first ones, so that its derivative is a sum.
    check([&[2, 3, 4, 6], &[3, 6, 5]], Tensor::matmul);
}

#[test]
fn convolutions() {
    check([&[2, 5, 6, 3], &[3, 3, 3, 4]], |x, w| x.conv2d(w, ConvOptions::default()));
}

#[test]
fn other_ops_say_what_to_do() {
    let x = ramp(&[2, 2], 1, DType::Bf16).cast(DType::Bf16);
    let text = (&x.matmul(&x) + &x).error().unwrap().to_string();
    assert!(text.contains("cast it to f32 first"), "{text}");
    let text = x.matmul(&x.cast(DType::F32)).error().unwrap().to_string();
    assert!(text.contains("dtypes must be equal"), "{text}");
}
