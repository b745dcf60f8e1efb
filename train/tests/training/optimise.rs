//! L2 by group, clipping and accumulation, against formulas and each other.

use retape::nn::{self, Dense};
use retape::{Tensor, accelerate, tree};
use retape_train::optimise::{Accumulated, add_l2, clip_by_value};

fn layer() -> Dense {
    Dense { weight: Tensor::from([[0.5_f64], [-2.0]]), bias: Tensor::from([0.25_f64]) }
}

#[test]
fn l2_is_the_gradient_of_its_penalty() {
    let loss = |layer: &Dense, x: &Tensor| layer.apply(x).square().mean(..);
    let given = accelerate(move |layer: &Dense, x: &Tensor| {
        let gradient = loss(layer, x).grad(layer);
        add_l2(layer, &gradient, |name| if name == "weight" { 0.3 } else { 0.0 })
    });
    let expected = accelerate(move |layer: &Dense, x: &Tensor| {
        (loss(layer, x) + 0.15 * layer.weight.square().sum(..)).grad(layer)
    });
    let x = Tensor::from([[1.0_f64, 2.0], [3.0, -1.0]]);
    let (given, expected) = (given.call(layer(), &x).unwrap(), expected.call(layer(), &x).unwrap());
    for ((name, a), (_, b)) in tree::named(&given).into_iter().zip(tree::named(&expected)) {
        for (a, b) in a.to_vec::<f64>().unwrap().into_iter().zip(b.to_vec::<f64>().unwrap()) {
            assert!((a - b).abs() <= 1e-15 * b.abs().max(1.0), "{name}: {a} and {b}");
        }
    }
}

#[test]
fn values_are_clipped_and_nan_stays() {
    let clipped = clip_by_value(&(Tensor::from([f32::NAN, -7.0]), Tensor::from([0.25_f64])), 0.5);
    let first = clipped.0.to_vec::<f32>().unwrap();
    assert!(first[0].is_nan() && first[1] == -0.5);
    assert_eq!(clipped.1.to_vec::<f64>().unwrap(), [0.25]);
}

#[test]
fn accumulated_gradients_of_unequal_parts_are_the_gradient_of_the_whole() {
    let rows = |range: std::ops::Range<i32>| -> Vec<f64> { range.map(|i| f64::from(i * i % 7) - 3.0).collect() };
    let tensor = |values: Vec<f64>| Tensor::from_vec(values.clone(), [values.len() / 2, 2]).unwrap();
    let gradient = |layer: &Dense, x: &Tensor| nn::mse(&layer.apply(x), &(x * 0.5).sum(1).unsqueeze(1)).grad(layer);
    let whole = accelerate(gradient).call(layer(), tensor(rows(0..20))).unwrap();
    let add = accelerate(move |layer: &Dense, sum: &Accumulated<Dense>, x: &Tensor| {
        sum.add(&gradient(layer, x), &Tensor::from(x.dim(0) as f64))
    });
    let mut sum = Accumulated::zeros(&layer());
    for range in [0..8, 8..16, 16..20] {
        sum = add.call(layer(), sum, tensor(rows(range))).unwrap();
    }
    assert_eq!(sum.weight.item::<f64>().unwrap(), 10.0);
    for ((name, a), (_, b)) in tree::named(&sum.mean()).into_iter().zip(tree::named(&whole)) {
        for (a, b) in a.to_vec::<f64>().unwrap().into_iter().zip(b.to_vec::<f64>().unwrap()) {
            assert!((a - b).abs() <= 1e-13 * b.abs().max(1.0), "{name}: {a} and {b}");
        }
    }
    assert!(Accumulated::zeros(&layer()).mean().bias.to_vec::<f64>().unwrap()[0].is_nan());
}
