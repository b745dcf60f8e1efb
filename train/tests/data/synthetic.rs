//! Synthetic objects: balanced, repeatable, and not to be told by colours or single pixels.

use retape::data::gather;
use retape::{Tensor, Tree, accelerate, nn};
use retape_train::data::synthetic::Objects;
use retape_train::data::{Dataset, Image, Labelled, Pixels};

/// Values of an image.
const VALUES: usize = 32 * 32 * 3;

/// All images as floats about zero, and all labels.
fn arrays(objects: &Objects) -> (Vec<f32>, Vec<i32>) {
    let (mut values, mut labels) = (vec![], vec![]);
    for index in 0..objects.len() {
        let (image, label) = objects.get(index).unwrap();
        let Pixels::F32(pixels) = image.into_f32().into_pixels() else { panic!("floats were asked for") };
        values.extend(pixels.iter().map(|pixel| pixel - 0.5));
        labels.push(label);
    }
    (values, labels)
}

#[test]
fn classes_are_balanced_and_shuffled() {
    let objects = Objects::generate(11, 1000);
    let labels: Vec<i32> = (0..1000).map(|index| objects.label(index).unwrap()).collect();
    for class in 0..10 {
        assert_eq!(labels.iter().filter(|&&label| label == class).count(), 100);
    }
    assert!(labels.chunks(10).filter(|ten| ten.is_sorted()).count() <= 1);
    assert!(objects.get(1000).is_err() && objects.label(1000).is_err());
    assert_eq!(Objects::CLASSES.len(), 10);
}

#[test]
fn the_same_bits_as_ever() {
    // Every experiment that names a seed relies on this sum of all bits.
    let objects = Objects::generate(2024, 50);
    let mut sum = 0_u64;
    for index in 0..50 {
        let Pixels::U8(bytes) = objects.get(index).unwrap().0.into_pixels() else { panic!("objects are bytes") };
        for byte in bytes {
            sum = sum.rotate_left(5).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(byte);
        }
    }
    assert_eq!(sum, 2_462_697_038_082_674_022);
}

/// Features of an image, and its label.
type Features = (Vec<f32>, i32);

/// The share of held-out examples whose nearest class mean, by some features of an image, is their own.
fn accuracy_by_mean(features: impl Fn(&Image) -> Vec<f32>) -> f64 {
    let of = |seed, n| {
        let objects = Objects::generate(seed, n);
        (0..n).map(|index| objects.get(index).unwrap()).map(|(image, label)| (features(&image), label)).collect()
    };
    let (train, test): (Vec<Features>, Vec<Features>) = (of(1, 1000), of(2, 500));
    let mut means = vec![vec![0.0; train[0].0.len()]; 10];
    for (features, label) in &train {
        means[*label as usize].iter_mut().zip(features).for_each(|(sum, feature)| *sum += feature / 100.0);
    }
    let is_right = |(features, label): &&(Vec<f32>, i32)| {
        let distance = |mean: &[f32]| -> f32 { mean.iter().zip(features).map(|(a, b)| (a - b) * (a - b)).sum() };
        let nearest = (0..10).min_by(|&a, &b| distance(&means[a]).total_cmp(&distance(&means[b])));
        nearest == Some(*label as usize)
    };
    test.iter().filter(is_right).count() as f64 / test.len() as f64
}

#[test]
fn colours_say_nothing_about_the_class() {
    let channel = |image: &Image, channel: usize| -> Vec<f32> {
        (0..1024).map(|at| image.value(at / 32, at % 32, channel).unwrap()).collect()
    };
    let mean = |image: &Image| (0..3).map(|c| channel(image, c).iter().sum::<f32>() / 1024.0).collect::<Vec<f32>>();
    let middle = |image: &Image| (0..3).map(|c| channel(image, c)[16 * 32 + 16]).collect::<Vec<f32>>();
    // Chance is 0.1; three standard deviations of 500 tries are 0.04.
    for accuracy in [accuracy_by_mean(mean), accuracy_by_mean(middle)] {
        assert!(accuracy < 0.17, "{accuracy}");
    }
}

#[derive(Clone, Tree)]
struct Linear {
    weight: Tensor,
    bias: Tensor,
}

#[test]
fn a_linear_model_does_not_learn_them() {
    let (n_train, n_test, batch_size) = (1500, 500, 100);
    let (images, labels) = arrays(&Objects::generate(1, n_train));
    let (test_images, test_labels) = arrays(&Objects::generate(2, n_test));
    let logits = |model: &Linear, x: &Tensor| nn::dense(x, &model.weight, &model.bias);
    let step = accelerate(move |model: &Linear, x: &Tensor, labels: &Tensor| {
        let loss = nn::softmax_cross_entropy_labels(&logits(model, x), labels);
        let gradient: Linear = loss.grad(model);
        let rate = 0.15;
        let next = Linear { weight: &model.weight - gradient.weight * rate, bias: &model.bias - gradient.bias * rate };
        (loss, next)
    });
    let batches: Vec<(Tensor, Tensor)> = (0..n_train / batch_size)
        .map(|batch| {
            let rows: Vec<usize> = (batch * batch_size..(batch + 1) * batch_size).collect();
            let x = Tensor::from_vec(gather(&images, VALUES, &rows).unwrap(), [batch_size, VALUES]).unwrap();
            (x, Tensor::from(&labels[rows[0]..][..batch_size]))
        })
        .collect();
    let mut model = Linear { weight: Tensor::zeros([VALUES, 10]), bias: Tensor::zeros([10]) };
    let mut losses = vec![];
    for _ in 0..15 {
        for (x, labels) in &batches {
            let (loss, next) = step.call(&model, x, labels).unwrap();
            losses.push(loss.item::<f32>().unwrap());
            model = next;
        }
    }
    // It does learn what it can: the images it has seen.
    let last = losses[losses.len() - 15..].iter().sum::<f32>() / 15.0;
    assert!(last < 2.0, "{last} after {}", losses[0]);
    let x = Tensor::from_vec(test_images, [n_test, VALUES]).unwrap();
    let right = logits(&model, &x).argmax(-1).cast(retape::DType::I32).eq(Tensor::from(test_labels));
    let accuracy = right.cast(retape::DType::F32).mean(..).item::<f32>().unwrap();
    assert!(accuracy < 0.6, "a linear model has {accuracy}");
}
