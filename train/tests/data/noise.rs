//! Noise: salt and pepper against a plain loop, Gaussian noise against its distribution.

use retape::data::Random;
use retape_train::data::augment::{Augment, GaussianNoise, Pipeline, SaltAndPepper};
use retape_train::data::{ExampleRandom, Image, Pixels};

use crate::place::noise;

fn random(index: u64) -> Random {
    Random::new(31, 32, index)
}

fn floats(image: &Image) -> Vec<f64> {
    match image.clone().into_f32().into_pixels() {
        Pixels::F32(values) => values.into_iter().map(f64::from).collect(),
        Pixels::U8(_) => panic!("floats were asked for"),
    }
}

#[test]
fn each_pixel_turns_by_its_own_number() {
    let shape = [9, 7, 3];
    let bytes = Image::from_u8(noise(6, 9 * 7 * 3), shape).unwrap();
    for image in [bytes.clone(), bytes.into_f32()] {
        for (fraction, white) in [(0.3, 0.5), (0.8, 0.1), (1.0, 0.5), (1.0, 0.0), (1.0, 1.0), (0.0, 0.5)] {
            let noisy = SaltAndPepper::new(fraction).unwrap().white(white).unwrap();
            let noisy = noisy.apply(image.clone(), &mut random(4)).unwrap();
            assert_eq!(matches!(noisy.pixels(), Pixels::U8(_)), matches!(image.pixels(), Pixels::U8(_)));
            let mut stream = random(4);
            for place in 0..9 * 7 {
                let (row, column, drawn) = (place / 7, place % 7, stream.unit());
                for channel in 0..3 {
                    let want = match drawn {
                        _ if drawn < fraction * white => Some(1.0),
                        _ if drawn < fraction => Some(0.0),
                        _ => image.value(row, column, channel),
                    };
                    assert_eq!(noisy.value(row, column, channel), want, "{fraction} {white} at {row} {column}");
                }
            }
        }
    }
}

#[test]
fn salt_and_pepper_come_as_often_as_asked() {
    let image = Image::from_f32(vec![0.5; 200 * 200], [200, 200, 1]).unwrap();
    for (fraction, white, noisy) in [
        (0.1, 0.5, SaltAndPepper::new(0.1).unwrap()),
        (0.4, 0.25, SaltAndPepper::new(0.4).unwrap().white(0.25).unwrap()),
    ] {
        let values = floats(&noisy.apply(image.clone(), &mut random(5)).unwrap());
        for (value, share) in [(1.0, fraction * white), (0.0, fraction * (1.0 - white)), (0.5, 1.0 - fraction)] {
            let (n, count) = (values.len() as f64, values.iter().filter(|x| **x == value).count() as f64);
            // Five standard deviations.
            assert!((count - n * share).abs() < 5.0 * (n * share * (1.0 - share)).sqrt(), "{count} of {n} are {value}");
        }
    }
}

/// The numbers that noise of this deviation added to grey, in deviations.
fn added(deviation: f64, side: usize) -> Vec<f64> {
    let image = Image::from_f32(vec![0.0; side * side], [side, side, 1]).unwrap();
    let noise = GaussianNoise::new(deviation).unwrap().unclamped();
    floats(&noise.apply(image, &mut random(6)).unwrap()).into_iter().map(|value| value / deviation).collect()
}

#[test]
fn gaussian_noise_is_normal() {
    let drawn = added(0.25, 600);
    let n = drawn.len() as f64;
    let mean = drawn.iter().sum::<f64>() / n;
    let variance = drawn.iter().map(|z| z * z).sum::<f64>() / n;
    // The variance of a square is 2. All bounds are five standard deviations.
    assert!(mean.abs() < 5.0 / n.sqrt(), "mean {mean}");
    assert!((variance - 1.0).abs() < 5.0 * (2.0 / n).sqrt(), "variance {variance}");
    // Quantiles of the standard normal distribution, from tables; beyond 3.5 no sum of a few uniform numbers comes.
    let quantiles = [
        (-3.719_016, 0.0001),
        (-2.326_348, 0.01),
        (-1.644_854, 0.05),
        (-0.674_490, 0.25),
        (0.0, 0.5),
        (0.253_347, 0.6),
        (1.281_552, 0.9),
        (1.959_964, 0.975),
        (3.090_232, 0.999),
    ];
    for (quantile, share) in quantiles {
        let below = drawn.iter().filter(|z| **z < quantile).count() as f64;
        let bound = 5.0 * (n * share * (1.0 - share)).sqrt();
        assert!((below - n * share).abs() < bound, "{below} of {n} below {quantile}");
    }
    // Neither neighbours, which come in pairs, nor their squares go together.
    for distance in [1, 2, 3, 600] {
        let pairs = || drawn.iter().zip(&drawn[distance..]);
        let product = pairs().map(|(a, b)| a * b).sum::<f64>() / n;
        let squares = pairs().map(|(a, b)| (a * a - 1.0) * (b * b - 1.0)).sum::<f64>() / n;
        assert!(product.abs() < 5.0 / n.sqrt(), "{distance}: {product}");
        assert!(squares.abs() < 5.0 * 2.0 / n.sqrt(), "{distance}: {squares}");
    }
}

#[test]
fn gaussian_noise_is_scaled_rounded_and_clamped() {
    let shape = [8, 9, 3];
    let bytes = Image::from_u8(noise(7, 8 * 9 * 3), shape).unwrap();
    let image = bytes.clone().into_f32();
    let z: Vec<f64> = {
        let flat = Image::from_f32(vec![0.0; 8 * 9 * 3], shape).unwrap();
        floats(&GaussianNoise::new(1.0).unwrap().unclamped().apply(flat, &mut random(8)).unwrap())
    };
    for deviation in [0.0, 0.05, 0.5, 30.0] {
        let noise = GaussianNoise::new(deviation).unwrap();
        let open = floats(&noise.unclamped().apply(image.clone(), &mut random(8)).unwrap());
        let clamped = floats(&noise.apply(image.clone(), &mut random(8)).unwrap());
        let rounded = floats(&noise.apply(bytes.clone(), &mut random(8)).unwrap());
        for (at, x) in floats(&image).into_iter().enumerate() {
            let want = x + deviation * z[at];
            assert!((open[at] - want).abs() < 1e-6 * (1.0 + want.abs()), "{deviation} at {at}");
            assert!((clamped[at] - want.clamp(0.0, 1.0)).abs() < 1e-5, "{deviation} at {at}");
            assert!((rounded[at] - want.clamp(0.0, 1.0)).abs() < 0.5 / 255.0 + 1e-5, "{deviation} at {at}");
        }
    }
    let still = GaussianNoise::new(0.0).unwrap();
    assert_eq!(still.apply(bytes.clone(), &mut random(1)).unwrap(), bytes);
}

#[test]
fn noise_is_keyed_by_example_and_epoch() {
    let image = Image::from_f32(vec![0.5; 400], [20, 20, 1]).unwrap();
    let pipelines = [
        Pipeline::new().then(SaltAndPepper::new(0.3).unwrap()),
        Pipeline::new().then(GaussianNoise::new(0.1).unwrap()),
    ];
    for pipeline in pipelines {
        let noisy =
            |seed, epoch, index| pipeline.apply(image.clone(), &ExampleRandom::new(seed, epoch, index)).unwrap();
        assert_eq!(noisy(1, 2, 3), noisy(1, 2, 3));
        for (seed, epoch, index) in [(2, 2, 3), (1, 3, 3), (1, 2, 4)] {
            assert_ne!(noisy(1, 2, 3), noisy(seed, epoch, index));
        }
    }
}

#[test]
fn amounts_of_noise_that_make_no_sense_are_refused() {
    for bad in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
        let message = SaltAndPepper::new(bad).unwrap_err().to_string();
        assert!(message.starts_with(&format!("{bad} is no fraction of pixels to turn black or white")), "{message}");
        let message = SaltAndPepper::new(0.5).unwrap().white(bad).unwrap_err().to_string();
        assert!(message.starts_with(&format!("{bad} is no share of white among changed pixels")), "{message}");
    }
    for bad in [-0.1, f64::NAN, f64::INFINITY] {
        let message = GaussianNoise::new(bad).unwrap_err().to_string();
        assert!(message.starts_with(&format!("{bad} is no standard deviation of noise")), "{message}");
    }
    // Pixels that are no numbers do no harm.
    let odd = Image::from_f32(vec![f32::NAN, f32::INFINITY, -1.0], [1, 1, 3]).unwrap();
    assert!(GaussianNoise::new(0.5).unwrap().apply(odd.clone(), &mut random(0)).is_ok());
    assert!(SaltAndPepper::new(0.5).unwrap().apply(odd, &mut random(0)).is_ok());
}
