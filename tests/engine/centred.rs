//! Derivatives of what a mean was subtracted from: cotangents whose own mean is zero give the mean none.

use retape::nn::{batch_norm, layer_norm};
use retape::{Form, Result, Tensor, accelerate};

/// A function of a tensor and the way to take a mean.
type Loss = fn(&Tensor, Mean) -> Tensor;

/// The mean over axes that are kept.
type Mean = fn(&Tensor, &[isize]) -> Tensor;

fn mean(x: &Tensor, axes: &[isize]) -> Tensor {
    x.mean_keep(axes)
}

/// The same with a factor in the place of a divisor, which the derivative does not take for a mean.
fn scaled_sum(x: &Tensor, axes: &[isize]) -> Tensor {
    let sum = x.sum_keep(axes);
    let n = x.shape().iter().product::<usize>() / sum.shape().iter().product::<usize>();
    sum * (1.0 / n as f64)
}

fn sample(shape: &[usize]) -> Tensor {
    (0..shape.iter().product()).map(|n: usize| (n * n % 17) as f64 * 0.3 - 1.9).collect::<Tensor>().reshape(shape)
}

/// The gradient, that of a weighted sum of it, and the number of passes over the data that the gradient takes.
fn derivatives(x: &Tensor, loss: Loss, mean: Mean) -> Result<([Vec<f64>; 2], usize)> {
    let first = accelerate(move |x: &Tensor| loss(x, mean).grad(x));
    let second = accelerate(move |x: &Tensor| {
        let weights = sample(x.shape()).cos();
        (loss(x, mean).grad(x) * weights).sum(..).grad(x)
    });
    let values = [first.call(x)?.to_vec::<f64>()?, second.call(x)?.to_vec::<f64>()?];
    let plan = first.text(&first.signature(x), Form::Plan)?;
    let is_step =
        |line: &&str| line.strip_prefix("  ").is_some_and(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    Ok((values, plan.lines().filter(is_step).count()))
}

/// Looks at the derivatives of a loss beside those of the same with means that are not taken for such; the latter take
/// `more` passes.
#[track_caller]
fn check(shape: &[usize], more: usize, loss: Loss) {
    let x = sample(shape);
    let (found, passes) = derivatives(&x, loss, mean).unwrap();
    let (expected, all_passes) = derivatives(&x, loss, scaled_sum).unwrap();
    for (found, expected) in found.iter().zip(&expected) {
        let scale = expected.iter().fold(1e-3, |most: f64, x| most.max(x.abs()));
        let off = found.iter().zip(expected).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
        assert!(off <= 1e-12 * scale, "{shape:?}: {found:?} and not {expected:?}");
    }
    assert_eq!(all_passes, passes + more, "{shape:?}");
}

/// A variance with its own mean, as the engine writes it.
fn variance(x: &Tensor, mean: Mean, axes: &[isize]) -> Tensor {
    mean(&(x - mean(x, axes)).square(), axes)
}

#[test]
fn variances_send_no_cotangent_through_their_mean() {
    check(&[7], 1, |x, mean| (variance(x, mean, &[0]) * 3.0).sum(..));
    check(&[5, 6], 1, |x, mean| variance(x, mean, &[0]).exp().sum(..));
    check(&[5, 6], 1, |x, mean| variance(x, mean, &[1]).exp().sum(..));
    check(&[3, 4, 5], 1, |x, mean| variance(x, mean, &[0, 2]).square().sum(..));
    check(&[4, 3], 1, |x, mean| (variance(x, mean, &[0, 1]) + 0.1).rsqrt().sum(..));
    check(&[6, 6], 1, |x, mean| (variance(x, mean, &[0]) * variance(x, mean, &[1])).sum(..));
}

#[test]
fn normalisations_send_only_what_has_a_mean() {
    check(&[4, 5, 3], 1, |x, mean| {
        let centred = x - mean(x, &[0, 1]);
        let variance = mean(&centred.square(), &[0, 1]);
        (centred * (variance + 1e-5).rsqrt()).sin().sum(..)
    });
    check(&[6, 8], 1, |x, mean| {
        let centred = x - mean(x, &[-1]);
        let variance = mean(&centred.square(), &[-1]);
        (centred * (variance + 1e-5).rsqrt()).tanh().sum(..)
    });
}

/// Factors that vary along the axes keep their cotangents, and so does a mean of another tensor.
#[test]
fn others_send_all() {
    // Weights along the axes of the mean, or along one of them.
    check(&[5, 6], 0, |x, mean| ((x - mean(x, &[0])).square() * sample(&[5, 6])).sum(..));
    check(&[5, 6], 0, |x, mean| ((x - mean(x, &[0, 1])).square() * sample(&[5, 1])).sum(..));
    check(&[5, 6], 0, |x, mean| ((x - mean(x, &[0])).square() * (x - mean(x, &[0]))).sum(..));
    // The mean of rows from columns.
    check(&[5, 5], 0, |x, mean| (x - mean(x, &[1]).squeeze(1)).square().sum(..));
    // The mean of another tensor, and a tensor from the mean.
    check(&[5, 6], 0, |x, mean| (x - mean(&x.sin(), &[0])).square().sum(..));
    check(&[5, 6], 0, |x, mean| (mean(x, &[0]) - x).square().sum(..));
    // Twice the mean, and a sum over fewer.
    check(&[5, 6], 0, |x, mean| (x - mean(x, &[0]) * 2.0).square().sum(..));
    check(&[5, 6], 0, |x, _| (x - x.sum_keep(0) / 4.0).square().sum(..));
}

/// A derivative by the mean is that of all that the mean is used for.
#[test]
fn a_mean_can_be_differentiated_by() -> Result<()> {
    let f = accelerate(|x: &Tensor| {
        let mean = x.mean_keep(0);
        let variance = (x - &mean).square().mean(..);
        let slope = variance.grad(&mean);
        let curvature = slope.sum(..).grad(&mean);
        (slope, curvature)
    });
    let (slope, curvature) = f.call(Tensor::from([1.0_f64, 2.0, 6.0]))?;
    assert_eq!(curvature.to_vec::<f64>()?, [2.0]);
    assert!(slope.to_vec::<f64>()?[0].abs() < 1e-15);
    // By the divisor n of the sum s: of Σ (x - s / n)², 2 s / n² Σ (x - s / n), and by n once more, as Σ (x - s / n) is
    // zero here, 2 s² / n³.
    let f = accelerate(|x: &Tensor| {
        let sum = x.sum_keep(0);
        let n = sum.full_like(3.0);
        let slope = (x - &sum / &n).square().sum(..).grad(&n);
        slope.sum(..).grad(&n)
    });
    assert_eq!(f.call(Tensor::from([1.0_f64, 2.0, 6.0]))?.to_vec::<f64>()?, [6.0]);
    Ok(())
}

/// The layers of the library are written so that this holds for them: mean and variance take a pass each, and so do the
/// sums of the gradient, both at once, and the gradient itself.
#[test]
fn gradients_of_layers_take_two_passes() -> Result<()> {
    let x = sample(&[3, 5, 4]);
    let batch: Loss = |x, _| batch_norm(x, &sample(&[4]), &sample(&[4]), 1e-5).0.sin().sum(..);
    let layer: Loss = |x, _| layer_norm(x, &sample(&[4]), &sample(&[4]), 1e-5).sin().sum(..);
    let variance: Loss = |x, _| x.var(0).square().sum(..);
    for (loss, expected) in [(batch, 4), (layer, 4), (variance, 3)] {
        assert_eq!(derivatives(&x, loss, mean)?.1, expected);
    }
    Ok(())
}
