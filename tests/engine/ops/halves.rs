//! Products of 16-bit floats and their derivatives, and formulas on stored ones, beside those of the same numbers in `f32`.

use retape::ops::ConvOptions;
use retape::{DType, Result, Tensor, accelerate, bf16, value_and_grad};

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

/// A formula on stored numbers is one step, however it reads them, with the bits of the same numbers in `f32`.
#[test]
fn casts_fuse_with_what_reads_and_makes_them() -> Result<()> {
    const TABLE: [i64; 5] = [2, 0, 4, 4, 1];
    type Layout = fn(&Tensor) -> Tensor;
    let layouts: [(&str, Layout); 8] = [
        ("as it lies", Tensor::clone),
        ("turned", Tensor::t),
        ("every third", |x| x.slice(&[0, 1], &[5, 70], &[1, 3])),
        ("backwards", |x| x.flip([0, 1])),
        ("within an edge", |x| match x.dtype() {
            DType::Bf16 => x.pad(&[1, 2], &[0, 3], bf16::from_f32(0.5)),
            _ => x.pad(&[1, 2], &[0, 3], 0.5_f32),
        }),
        ("repeated", |x| x.slice_axis(0, 2..3).broadcast_to([7, 70])),
        ("rows of a table", |x| x.take(&Tensor::from(TABLE), 0)),
        ("columns of a table", |x| x.take(&Tensor::from(TABLE), 1)),
    ];
    let stored = ramp(&[5, 70], 3, DType::Bf16).cast(DType::Bf16);
    for (name, layout) in layouts {
        let formula = move |x: &Tensor| (layout(x).cast(DType::F32) * 1.5).tanh();
        let half = accelerate(move |x: &Tensor| formula(x).cast(DType::Bf16));
        let single = accelerate(move |x: &Tensor| formula(x));
        let made = half.call(&stored)?.to_vec::<bf16>()?;
        let expected = single.call(stored.cast(DType::F32))?.to_vec::<f32>()?;
        assert!(made.iter().zip(&expected).all(|(x, y)| *x == bf16::from_f32(*y)), "{name}");
        // Repeated elements are computed once, before.
        let n_steps = if name == "repeated" { 2 } else { 1 };
        assert_eq!(half.stats().entries[0].n_steps, n_steps, "{name}");
        let sums = accelerate(move |x: &Tensor| (formula(x).sum(0), formula(x).sum(1)));
        let [of_halves, of_singles] = [stored.clone(), stored.cast(DType::F32)].map(|x| sums.call(&x));
        let (of_halves, of_singles) = (of_halves?, of_singles?);
        for (x, y) in [(of_halves.0, of_singles.0), (of_halves.1, of_singles.1)] {
            for (x, y) in x.to_vec::<f32>()?.iter().zip(y.to_vec::<f32>()?) {
                assert!((x - y).abs() < 1e-4, "{name}: {x}, not {y}");
            }
        }
    }
    Ok(())
}
