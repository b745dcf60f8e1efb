//! Reflection, translation, crops, rotation, normalisation and pipelines, against plain loops, and their distributions.

use std::collections::BTreeMap;

use retape::data::{Digits, Random};
use retape_train::Error;
use retape_train::data::augment::{
    Augment, Border, CentreCrop, ColourJitter, GaussianNoise, Normalisation, Pipeline, RandomCrop, Reflection, Resize,
    Rotation, SaltAndPepper, Translation,
};
use retape_train::data::{ExampleRandom, Image, Pixels};

use crate::place::noise;

/// Random pixels: bytes, and the same image as floats.
fn both_kinds(shape: [usize; 3]) -> [Image; 2] {
    let bytes = Image::from_u8(noise(1, shape.iter().product()), shape).unwrap();
    [bytes.clone(), bytes.into_f32()]
}

/// The pixels one by one, as the augmentation has them.
fn value(image: &Image, row: usize, column: usize, channel: usize) -> f32 {
    image.value(row, column, channel).unwrap()
}

/// Whether two images have the same kind of pixels and hold what a function of the place says.
fn check(image: &Image, like: &Image, shape: [usize; 3], want: impl Fn(usize, usize, usize) -> f32) {
    assert_eq!(image.shape(), shape);
    assert_eq!(matches!(image.pixels(), Pixels::U8(_)), matches!(like.pixels(), Pixels::U8(_)));
    for row in 0..shape[0] {
        for column in 0..shape[1] {
            for channel in 0..shape[2] {
                let (got, want) = (value(image, row, column, channel), want(row, column, channel));
                assert_eq!(got, want, "{row} {column} {channel}");
            }
        }
    }
}

fn random(index: u64) -> Random {
    Random::new(11, 22, index)
}

#[test]
fn reflections_swap_sides() {
    for shape in [[3, 5, 3], [4, 4, 1], [1, 1, 2], [2, 7, 4], [5, 1, 3]] {
        for image in both_kinds(shape) {
            let [height, width, _] = shape;
            let horizontal = Reflection::horizontal().probability(1.0).unwrap();
            let reflected = horizontal.apply(image.clone(), &mut random(0)).unwrap();
            check(&reflected, &image, shape, |row, column, channel| value(&image, row, width - 1 - column, channel));
            let vertical = Reflection::vertical().probability(1.0).unwrap();
            let reflected = vertical.apply(image.clone(), &mut random(0)).unwrap();
            check(&reflected, &image, shape, |row, column, channel| value(&image, height - 1 - row, column, channel));
            let never = Reflection::vertical().probability(0.0).unwrap();
            assert_eq!(never.apply(image.clone(), &mut random(0)).unwrap(), image);
        }
    }
    assert!(Reflection::vertical().probability(1.1).is_err() && Reflection::vertical().probability(f64::NAN).is_err());
}

#[test]
fn reflections_occur_half_of_the_time() {
    let image = Image::from_u8(vec![1, 2], [1, 2, 1]).unwrap();
    for (reflection, want) in
        [(Reflection::horizontal(), 0.5), (Reflection::horizontal().probability(0.2).unwrap(), 0.2)]
    {
        let n = 10_000;
        let reflected = (0..n).filter(|&i| reflection.apply(image.clone(), &mut random(i)).unwrap() != image).count();
        // Five standard deviations.
        let (mean, spread) = (n as f64 * want, (n as f64 * want * (1.0 - want)).sqrt());
        assert!((reflected as f64 - mean).abs() < 5.0 * spread, "{reflected} of {n}");
    }
}

/// The value beyond the borders as the names say it, one step at a time.
fn beyond(image: &Image, row: isize, column: isize, channel: usize, border: Border) -> f32 {
    let inside = |at: isize, len: usize| (0..len as isize).contains(&at);
    let [height, width, _] = image.shape();
    if inside(row, height) && inside(column, width) {
        return value(image, row as usize, column as usize, channel);
    }
    let towards = |at: isize, len: usize| match border {
        Border::Reflect if len > 1 => {
            let mut at = at;
            while !inside(at, len) {
                at = if at < 0 { -at } else { 2 * (len as isize - 1) - at };
            }
            at as usize
        }
        _ => at.clamp(0, len as isize - 1) as usize,
    };
    match border {
        Border::Constant(constant) => constant,
        Border::Edge | Border::Reflect => value(image, towards(row, height), towards(column, width), channel),
    }
}

const BORDERS: [Border; 4] = [Border::Constant(0.0), Border::Constant(1.0), Border::Edge, Border::Reflect];

/// How often each pair of shifts comes, found by a search for the one shift that explains the image.
fn shifts(augment: &impl Augment, image: &Image, most: isize, border: Border, n: u64) -> BTreeMap<(isize, isize), u32> {
    let mut counts = BTreeMap::new();
    for draw in 0..n {
        let shifted = augment.apply(image.clone(), &mut random(draw)).unwrap();
        assert_eq!(shifted.shape(), image.shape());
        let explains = |&(down, right): &(isize, isize)| {
            (0..image.height()).all(|row| {
                (0..image.width()).all(|column| {
                    let (from_row, from_column) = (row as isize - down, column as isize - right);
                    value(&shifted, row, column, 0) == beyond(image, from_row, from_column, 0, border)
                })
            })
        };
        let all = (-most..=most).flat_map(|down| (-most..=most).map(move |right| (down, right)));
        *counts.entry(all.clone().find(explains).expect("some shift explains the image")).or_insert(0) += 1;
    }
    counts
}

/// Whether counts of equally likely outcomes are as unequal as chance makes them, by the statistic chi square.
fn check_uniform(counts: &[u32], n_outcomes: usize) {
    let n: u32 = counts.iter().sum();
    let mean = f64::from(n) / n_outcomes as f64;
    let missing = (n_outcomes - counts.len()) as f64;
    let square = |&count: &u32| (f64::from(count) - mean).powi(2) / mean;
    let chi: f64 = counts.iter().map(square).sum::<f64>() + missing * mean;
    let freedom = n_outcomes as f64 - 1.0;
    assert!((chi - freedom).abs() < 5.0 * (2.0 * freedom).sqrt(), "chi square {chi} for {n_outcomes} outcomes");
}

#[test]
fn translations_are_uniform_and_show_the_border() {
    for image in both_kinds([9, 9, 1]) {
        for border in BORDERS {
            let counts = shifts(&Translation::within(2, 2).border(border), &image, 2, border, 500);
            check_uniform(&counts.into_values().collect::<Vec<_>>(), 25);
        }
    }
    let image = Image::from_u8(noise(3, 49), [7, 7, 1]).unwrap();
    let counts = shifts(&Translation::within(0, 3), &image, 3, Border::Constant(0.0), 350);
    assert!(counts.keys().all(|&(down, _)| down == 0));
    check_uniform(&counts.into_values().collect::<Vec<_>>(), 7);
}

#[test]
fn a_crop_of_a_padded_image_is_a_uniform_translation() {
    // Padded by 4 and cut to the old size: shifts from -4 to 4, all 81 equally likely.
    let image = Image::from_u8(noise(4, 144), [12, 12, 1]).unwrap();
    let crop = RandomCrop::new(12, 12).padding(4, Border::Reflect);
    let counts = shifts(&crop, &image, 4, Border::Reflect, 1600);
    check_uniform(&counts.into_values().collect::<Vec<_>>(), 81);
}

#[test]
fn crops_are_parts_of_the_padded_image() {
    for image in both_kinds([5, 6, 3]) {
        for border in BORDERS {
            for draw in 0..40 {
                let crop = RandomCrop::new(4, 9).padding(3, border);
                let cut = crop.apply(image.clone(), &mut random(draw)).unwrap();
                // As documented: the place is drawn by rows, then by columns.
                let mut stream = random(draw);
                let (top, left) = (stream.below(5 + 6 - 4 + 1), stream.below(6 + 6 - 9 + 1));
                check(&cut, &image, [4, 9, 3], |row, column, channel| {
                    let place = |start: usize, at: usize| (start + at) as isize - 3;
                    beyond(&image, place(top, row), place(left, column), channel, border)
                });
            }
        }
    }
}

#[test]
fn a_centre_crop_is_the_middle() {
    for image in both_kinds([6, 9, 3]) {
        let cut = CentreCrop::new(3, 5).apply(image.clone(), &mut random(0)).unwrap();
        check(&cut, &image, [3, 5, 3], |row, column, channel| value(&image, row + 1, column + 2, channel));
        let whole = CentreCrop::new(6, 9).apply(image.clone(), &mut random(0)).unwrap();
        assert_eq!(whole, image);
    }
}

#[test]
fn crops_that_do_not_fit_are_refused() {
    let image = Image::from_u8(vec![0; 12], [3, 4, 1]).unwrap();
    let message = |augment: &dyn Augment| match augment.apply(image.clone(), &mut random(0)) {
        Err(Error::Argument { message, at: None }) => message,
        other => panic!("{other:?}"),
    };
    assert_eq!(message(&RandomCrop::new(4, 4)), "a crop of 4x4 does not fit an image of 3x4");
    let padded = message(&RandomCrop::new(6, 4).padding(1, Border::Edge));
    assert_eq!(padded, "a crop of 6x4 does not fit an image of 3x4 padded by 1 on each side");
    assert!(message(&CentreCrop::new(3, 5)).contains("3x5"));
    for [height, width] in [[0, 2], [2, 0]] {
        message(&RandomCrop::new(height, width));
        message(&CentreCrop::new(height, width));
    }
}

/// A turn by the formula, in `f64` and with the functions of the standard library.
fn turned(image: &Image, degrees: f64, border: Border, row: usize, column: usize, channel: usize) -> f64 {
    let (sin, cos) = degrees.to_radians().sin_cos();
    let middle = |extent: usize| (extent as f64 - 1.0) / 2.0;
    let (y, x) = (row as f64 - middle(image.height()), column as f64 - middle(image.width()));
    let (at_row, at_column) = (middle(image.height()) + x * sin + y * cos, middle(image.width()) + x * cos - y * sin);
    let mut sum = 0.0;
    for down in [0.0, 1.0] {
        for right in [0.0, 1.0] {
            let (near_row, near_column) = (at_row.floor() + down, at_column.floor() + right);
            let weight = (1.0 - (at_row - near_row).abs()) * (1.0 - (at_column - near_column).abs());
            let pixel = beyond(image, near_row as isize, near_column as isize, channel, border);
            sum += weight * f64::from(pixel);
        }
    }
    sum
}

#[test]
fn rotations_follow_the_formula() {
    for [bytes, floats] in [both_kinds([7, 10, 3]), both_kinds([8, 5, 1])] {
        for degrees in [-200.0, -37.5, -1.0, 12.25, 45.0, 100.0] {
            for border in BORDERS {
                let rotation = Rotation::by(degrees).unwrap().border(border);
                for (image, tolerance) in [(&bytes, 0.5 / 255.0 + 1e-5), (&floats, 1e-5)] {
                    let rotated = rotation.apply(image.clone(), &mut random(0)).unwrap();
                    assert_eq!(rotated.shape(), image.shape());
                    for row in 0..image.height() {
                        for column in 0..image.width() {
                            let channel = image.channels() - 1;
                            let want = turned(image, degrees, border, row, column, channel);
                            let got = f64::from(value(&rotated, row, column, channel));
                            assert!(
                                (got - want).abs() < tolerance,
                                "{degrees} {border:?} {row} {column}: {got} {want}"
                            );
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn rotations_are_those_of_the_engine_s_digits() {
    let digits = Digits::generate(1, 5).unwrap();
    let turned = digits.rotated(9);
    for index in 0..5 {
        let pixels = digits.image(index).unwrap().to_vec();
        let image = Image::from_f32(pixels, [28, 28, 1]).unwrap();
        let degrees = f64::from(turned.angles[index]) - f64::from(digits.angles[index]);
        let Pixels::F32(got) = Rotation::by(degrees).unwrap().apply(image, &mut random(0)).unwrap().into_pixels()
        else {
            panic!("floats stay floats");
        };
        // The angles are rounded to floats, so they are known to some millionths of a degree.
        let worst = got.iter().zip(turned.image(index).unwrap()).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < 1e-4, "{worst}");
    }
}

#[test]
fn quarter_turns_move_pixels_exactly() {
    for image in both_kinds([5, 5, 3]) {
        let quarter = Rotation::by(90.0).unwrap().apply(image.clone(), &mut random(0)).unwrap();
        check(&quarter, &image, [5, 5, 3], |row, column, channel| value(&image, column, 4 - row, channel));
        let full = Rotation::by(-360.0).unwrap().apply(image.clone(), &mut random(0)).unwrap();
        assert_eq!(full, image);
    }
}

#[test]
fn angles_are_uniform_in_their_range() {
    let image = Image::from_f32(noise(5, 81).into_iter().map(f32::from).collect(), [9, 9, 1]).unwrap();
    for draw in 0..50 {
        let rotated = Rotation::within(30.0).unwrap().apply(image.clone(), &mut random(draw)).unwrap();
        let degrees = random(draw).uniform(-30.0, 30.0);
        assert_eq!(rotated, Rotation::by(degrees).unwrap().apply(image.clone(), &mut random(0)).unwrap());
    }
    assert!(Rotation::within(-1.0).is_err() && Rotation::within(f64::NAN).is_err());
    assert!(Rotation::within(f64::INFINITY).is_err() && Rotation::by(f64::NAN).is_err());
}

#[test]
fn normalisation_subtracts_and_divides() {
    let image = Image::from_u8(vec![0, 255, 51, 102, 0, 255], [1, 2, 3]).unwrap();
    let normalisation = Normalisation::new([0.5, 0.0, 0.2], [0.5, 2.0, 0.1]).unwrap();
    let normalised = normalisation.apply(image.clone(), &mut random(0)).unwrap();
    let Pixels::F32(values) = normalised.pixels() else { panic!("the results are floats") };
    for (got, want) in values.iter().zip([-1.0, 0.5, 0.0, -0.2, 0.0, 8.0]) {
        assert!((got - want).abs() < 1e-6, "{got} {want}");
    }
    let grey = Image::from_u8(vec![0], [1, 1, 1]).unwrap();
    let message = normalisation.apply(grey, &mut random(0)).unwrap_err().to_string();
    assert_eq!(message, "1 channels cannot be normalised by 3 means");
    assert!(Normalisation::new([0.5], [0.5, 0.5]).is_err());
    for (mean, deviation) in [(0.5, 0.0), (0.5, -1.0), (0.5, f32::NAN), (0.5, f32::INFINITY), (f32::NAN, 1.0)] {
        assert!(Normalisation::new([mean], [deviation]).is_err(), "{mean} {deviation}");
    }
    for known in [Normalisation::CIFAR10, Normalisation::IMAGENET] {
        assert_eq!(known.apply(image.clone(), &mut random(0)).unwrap().shape(), [1, 2, 3]);
    }
}

/// A stage that replaces the image by the first number of its stream.
fn first_number(name: &str) -> (String, impl Fn(Image, &mut Random) -> Result<Image, Error> + use<>) {
    (name.to_owned(), |image: Image, random: &mut Random| {
        let mut values: Vec<f32> = match image.into_pixels() {
            Pixels::F32(values) => values,
            Pixels::U8(_) => vec![],
        };
        values.push(random.unit() as f32);
        let n = values.len();
        Image::from_f32(values, [1, n, 1])
    })
}

fn numbers(names: &[&str], example: &ExampleRandom) -> Vec<f32> {
    let pipeline = names.iter().fold(Pipeline::new(), |pipeline, name| {
        let (name, stage) = first_number(name);
        pipeline.then_fn(name, stage)
    });
    let image = Image::from_u8(vec![0], [1, 1, 1]).unwrap();
    match pipeline.apply(image, example).unwrap().into_pixels() {
        Pixels::F32(values) => values,
        Pixels::U8(_) => panic!("the stages make floats"),
    }
}

#[test]
fn every_stage_has_numbers_of_its_own_by_its_name() {
    let example = ExampleRandom::new(1, 2, 3);
    let all = numbers(&["a", "b", "a", "c", "a"], &example);
    let by_name = ["a", "b", "a.2", "c", "a.3"].map(|name| example.stream(name).unit() as f32);
    assert_eq!(all, by_name);
    // A stage does not depend on those before it.
    assert_eq!(numbers(&["c"], &example)[0], all[3]);
    assert_eq!(numbers(&["x", "b"], &example)[1], all[1]);
    for (seed, epoch, index) in [(2, 2, 3), (1, 3, 3), (1, 2, 4)] {
        let others = numbers(&["a", "b", "a", "c", "a"], &ExampleRandom::new(seed, epoch, index));
        assert!(others.iter().zip(&all).all(|(a, b)| a != b));
    }
}

#[test]
fn bytes_stay_bytes_and_floats_floats() {
    let stages: [Box<dyn Augment>; 9] = [
        Box::new(Reflection::vertical()),
        Box::new(Translation::within(1, 1)),
        Box::new(RandomCrop::new(4, 4)),
        Box::new(CentreCrop::new(4, 4)),
        Box::new(Resize::to(3, 9)),
        Box::new(Rotation::within(20.0).unwrap()),
        Box::new(ColourJitter::new().brightness(0.5).hue(0.2)),
        Box::new(SaltAndPepper::new(0.3).unwrap()),
        Box::new(GaussianNoise::new(0.1).unwrap()),
    ];
    for stage in stages {
        for image in both_kinds([6, 5, 3]) {
            let was_bytes = matches!(image.pixels(), Pixels::U8(_));
            let changed = stage.apply(image, &mut random(3)).unwrap();
            assert_eq!(matches!(changed.pixels(), Pixels::U8(_)), was_bytes, "{}", stage.name());
        }
    }
}
