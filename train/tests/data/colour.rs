//! Colour jitter, against the formulas in `f64`.

use retape::data::Random;
use retape_train::data::augment::{Augment, ColourJitter};
use retape_train::data::{Image, Pixels};

use crate::place::noise;

type Colour = [f64; 3];

fn grey([r, g, b]: Colour) -> f64 {
    0.299 * r + 0.587 * g + 0.114 * b
}

fn blend(value: f64, other: f64, factor: f64) -> f64 {
    (factor * value + (1.0 - factor) * other).clamp(0.0, 1.0)
}

/// The textbook's way from a colour to hue, saturation and value.
fn hsv([r, g, b]: Colour) -> Colour {
    let (most, least) = (r.max(g).max(b), r.min(g).min(b));
    if most == least {
        return [0.0, 0.0, most];
    }
    let [rc, gc, bc] = [r, g, b].map(|value| (most - value) / (most - least));
    let hue = if r == most {
        bc - gc
    } else if g == most {
        2.0 + rc - bc
    } else {
        4.0 + gc - rc
    };
    [(hue / 6.0).rem_euclid(1.0), (most - least) / most, most]
}

/// And back, by the sector of the wheel.
fn rgb([hue, saturation, value]: Colour) -> Colour {
    let sector = (hue * 6.0).floor();
    let within = hue * 6.0 - sector;
    let p = value * (1.0 - saturation);
    let q = value * (1.0 - saturation * within);
    let t = value * (1.0 - saturation * (1.0 - within));
    match (sector as i64).rem_euclid(6) {
        0 => [value, t, p],
        1 => [q, value, p],
        2 => [p, value, t],
        3 => [p, q, value],
        4 => [t, p, value],
        _ => [value, p, q],
    }
}

/// The jitter of a whole image by these factors, in the documented order.
fn jittered(pixels: &[Colour], [brightness, contrast, saturation]: [f64; 3], turns: f64) -> Vec<Colour> {
    let mut pixels: Vec<Colour> = pixels.iter().map(|pixel| pixel.map(|x| (brightness * x).clamp(0.0, 1.0))).collect();
    let mean = pixels.iter().map(|&pixel| grey(pixel)).sum::<f64>() / pixels.len() as f64;
    pixels.iter_mut().for_each(|pixel| *pixel = pixel.map(|x| blend(x, mean, contrast)));
    for pixel in &mut pixels {
        let grey = grey(*pixel);
        *pixel = pixel.map(|x| blend(x, grey, saturation));
        let [hue, saturation, value] = hsv(*pixel);
        *pixel = rgb([(hue + turns).rem_euclid(1.0), saturation, value]);
    }
    pixels
}

/// The factors that a stream gives, as documented.
fn factors(amounts: [f64; 4], random: &mut Random) -> ([f64; 3], f64) {
    let [brightness, contrast, saturation, hue] = amounts;
    let factors = [brightness, contrast, saturation].map(|a| random.uniform((1.0 - a).max(0.0), 1.0 + a));
    (factors, random.uniform(-hue, hue))
}

fn jitter([brightness, contrast, saturation, hue]: [f64; 4]) -> ColourJitter {
    ColourJitter::new().brightness(brightness).contrast(contrast).saturation(saturation).hue(hue)
}

#[test]
fn jitter_follows_the_formulas() {
    let bytes = Image::from_u8(noise(1, 5 * 6 * 3), [5, 6, 3]).unwrap();
    let image = bytes.clone().into_f32();
    let Pixels::F32(values) = image.pixels() else { panic!("floats") };
    let pixels: Vec<Colour> = values.as_chunks::<3>().0.iter().map(|pixel| pixel.map(f64::from)).collect();
    for amounts in [
        [0.5, 0.0, 0.0, 0.0],
        [0.0, 0.7, 0.0, 0.0],
        [0.0, 0.0, 1.5, 0.0],
        [0.0, 0.0, 0.0, 0.5],
        [0.4, 0.4, 0.4, 0.1],
        [2.0, 2.0, 2.0, 0.5],
    ] {
        for draw in 0..10 {
            let random = || Random::new(1, 2, draw);
            let (factors, turns) = factors(amounts, &mut random());
            let want = jittered(&pixels, factors, turns);
            for (image, tolerance) in [(&image, 2e-5), (&bytes, 0.5 / 255.0 + 2e-5)] {
                let got = jitter(amounts).apply(image.clone(), &mut random()).unwrap();
                for (at, want) in want.as_flattened().iter().enumerate() {
                    let got = f64::from(got.value(at / 18, at / 3 % 6, at % 3).unwrap());
                    assert!((got - want).abs() < tolerance, "{amounts:?} at {at}: {got} {want}");
                }
            }
        }
    }
}

#[test]
fn known_colours_come_out() {
    let apply = |amounts, pixel: [f32; 3], draw| {
        let image = Image::from_f32(pixel.to_vec(), [1, 1, 3]).unwrap();
        let jittered = jitter(amounts).apply(image, &mut Random::new(5, 5, draw)).unwrap();
        [0, 1, 2].map(|channel| jittered.value(0, 0, channel).unwrap())
    };
    for draw in 0..30 {
        let (_, turns) = factors([0.0, 0.0, 0.0, 0.5], &mut Random::new(5, 5, draw));
        let [r, g, b] = apply([0.0, 0.0, 0.0, 0.5], [1.0, 0.0, 0.0], draw);
        // Red turns through yellow or magenta; of a pure colour one primary is full and one is empty.
        assert!([r, g, b].contains(&1.0) && [r, g, b].contains(&0.0));
        if turns.abs() < 1.0 / 6.0 {
            let (second, other) = if turns > 0.0 { (g, b) } else { (b, g) };
            assert!((f64::from(second) - 6.0 * turns.abs()).abs() < 1e-5 && r == 1.0 && other == 0.0);
        }
        // Grey has no hue and no saturation.
        assert_eq!(apply([0.0, 0.0, 0.9, 0.5], [0.25; 3], draw).map(|x| (x * 1000.0).round()), [250.0; 3]);
        // The contrast of one pixel is that with its own grey.
        let [r, ..] = apply([0.0, 0.0, 0.0, 0.0], [0.3, 0.6, 0.9], draw);
        assert_eq!(r, 0.3);
    }
}

#[test]
fn factors_fill_their_range() {
    let image = Image::from_f32(vec![0.5], [1, 1, 1]).unwrap();
    let n = 4000;
    let mut counts = [0_u32; 10];
    for draw in 0..n {
        let jittered = jitter([0.4, 0.0, 0.0, 0.0]).apply(image.clone(), &mut Random::new(9, 9, draw)).unwrap();
        let factor = jittered.value(0, 0, 0).unwrap() / 0.5;
        assert!((0.6..=1.4).contains(&factor));
        counts[((factor - 0.6) / 0.08).clamp(0.0, 9.0) as usize] += 1;
    }
    // Each tenth of the range, within five standard deviations.
    let spread = (n as f64 * 0.1 * 0.9).sqrt();
    assert!(counts.iter().all(|&count| (f64::from(count) - 400.0).abs() < 5.0 * spread), "{counts:?}");
}

#[test]
fn an_amount_of_zero_leaves_the_others_as_they_are() {
    let image = Image::from_u8(noise(2, 27), [3, 3, 3]).unwrap().into_f32();
    let random = || Random::new(3, 3, 3);
    let (factors, _) = factors([0.0, 0.0, 0.8, 0.0], &mut random());
    let (with_all, _) = self::factors([0.3, 0.2, 0.8, 0.0], &mut random());
    assert_eq!(factors[2], with_all[2]);
    assert_eq!(jitter([0.0; 4]).apply(image.clone(), &mut random()).unwrap(), image);
}

#[test]
fn one_channel_has_brightness_and_contrast_only() {
    let image = Image::from_f32(vec![0.2, 0.6], [1, 2, 1]).unwrap();
    let random = || Random::new(4, 4, 4);
    assert_eq!(jitter([0.0, 0.0, 0.9, 0.5]).apply(image.clone(), &mut random()).unwrap(), image);
    let got = jitter([0.0, 0.5, 0.0, 0.0]).apply(image.clone(), &mut random()).unwrap();
    let ([_, contrast, _], _) = factors([0.0, 0.5, 0.0, 0.0], &mut random());
    for (column, value) in [0.2, 0.6].into_iter().enumerate() {
        let want = blend(value, 0.4, contrast);
        assert!((f64::from(got.value(0, column, 0).unwrap()) - want).abs() < 1e-6);
    }
    let two = Image::from_f32(vec![0.2, 0.6], [1, 1, 2]).unwrap();
    assert!(jitter([0.1; 4]).apply(two, &mut random()).unwrap_err().to_string().contains("2 channels"));
}

#[test]
fn amounts_that_make_no_sense_are_refused() {
    let image = Image::from_f32(vec![0.2, 0.6, 0.1], [1, 1, 3]).unwrap();
    for amounts in [
        [-0.1, 0.0, 0.0, 0.0],
        [0.0, f64::NAN, 0.0, 0.0],
        [0.0, 0.0, f64::INFINITY, 0.0],
        [0.0, 0.0, 0.0, 0.6],
        [0.0, 0.0, 0.0, -0.1],
    ] {
        let error = jitter(amounts).apply(image.clone(), &mut Random::new(0, 0, 0)).unwrap_err();
        assert!(error.to_string().contains("no amount"), "{error}");
    }
    // Numbers that are no colours do no harm.
    let odd = Image::from_f32(vec![f32::NAN, f32::INFINITY, -1.0], [1, 1, 3]).unwrap();
    assert!(jitter([0.5; 4]).apply(odd, &mut Random::new(0, 0, 0)).is_ok());
}
