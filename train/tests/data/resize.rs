//! Resizing, against numbers by hand and a plain loop over all pixels.

use retape::data::Random;
use retape_train::data::augment::{Augment, Resize};
use retape_train::data::{Image, Pixels};

use crate::place::noise;

fn resized(image: &Image, resize: Resize) -> Image {
    resize.apply(image.clone(), &mut Random::new(0, 0, 0)).unwrap()
}

fn floats(image: &Image) -> Vec<f32> {
    match image.pixels() {
        Pixels::F32(values) => values.clone(),
        Pixels::U8(_) => panic!("floats stay floats"),
    }
}

fn check_near(got: &[f32], want: &[f32]) {
    assert_eq!(got.len(), want.len());
    for (got, want) in got.iter().zip(want) {
        assert!((got - want).abs() <= 1e-5 * want.abs().max(1.0), "{got} {want}");
    }
}

#[test]
fn growing_is_bilinear() {
    let image = Image::from_f32(vec![0.0, 4.0], [1, 2, 1]).unwrap();
    check_near(&floats(&resized(&image, Resize::to(1, 4))), &[0.0, 1.0, 3.0, 4.0]);
    let image = Image::from_f32(vec![0.0, 8.0, 16.0, 24.0], [2, 2, 1]).unwrap();
    let want = [[0.0, 2.0, 6.0, 8.0], [4.0, 6.0, 10.0, 12.0], [12.0, 14.0, 18.0, 20.0], [16.0, 18.0, 22.0, 24.0]];
    check_near(&floats(&resized(&image, Resize::to(4, 4))), want.as_flattened());
}

#[test]
fn shrinking_is_an_antialiased_mean() {
    // Halved: result 0 lies at 1.0, so pixels count by 0.75, 0.75 and 0.25.
    let image = Image::from_f32(vec![0.0, 100.0, 200.0, 300.0], [4, 1, 1]).unwrap();
    let first = (0.75 * 0.0 + 0.75 * 100.0 + 0.25 * 200.0) / 1.75;
    check_near(&floats(&resized(&image, Resize::to(2, 1))), &[first, 300.0 - first]);
    // To one pixel: in the middle at 2.0, pixels count by 0.625, 0.875, 0.875, 0.625.
    let image = Image::from_f32(vec![1.0, 0.0, 0.0, 0.0], [1, 4, 1]).unwrap();
    check_near(&floats(&resized(&image, Resize::to(1, 1))), &[0.625 / 3.0]);
    // A board of alternating pixels becomes even, where plain bilinear interpolation would keep some of them.
    let board: Vec<f32> = (0..64 * 64).map(|at| ((at / 64 + at) % 2) as f32).collect();
    let small = floats(&resized(&Image::from_f32(board, [64, 64, 1]).unwrap(), Resize::to(9, 9)));
    assert!(small.iter().all(|value| (value - 0.5).abs() < 0.05), "{small:?}");
}

/// A result as the weighted mean over all pixels of the image, in `f64`.
fn mean(image: &Image, [rows, columns]: [usize; 2], [row, column, channel]: [usize; 3]) -> f64 {
    let weight = |from: usize, to: usize, result: usize, pixel: usize| {
        let scale = from as f64 / to as f64;
        let distance = pixel as f64 + 0.5 - (result as f64 + 0.5) * scale;
        (1.0 - distance.abs() / scale.max(1.0)).max(0.0)
    };
    let (mut sum, mut weights) = (0.0, 0.0);
    for y in 0..image.height() {
        for x in 0..image.width() {
            let weight = weight(image.height(), rows, row, y) * weight(image.width(), columns, column, x);
            sum += weight * f64::from(image.value(y, x, channel).unwrap());
            weights += weight;
        }
    }
    sum / weights
}

#[test]
fn every_size_follows_the_formula() {
    for (shape, size) in [
        ([7, 9, 3], [7, 20]),
        ([7, 9, 3], [3, 2]),
        ([6, 5, 1], [13, 2]),
        ([1, 1, 4], [5, 6]),
        ([16, 16, 3], [8, 8]),
        ([11, 13, 2], [1, 1]),
    ] {
        let bytes = Image::from_u8(noise(7, shape.iter().product()), shape).unwrap();
        for (image, tolerance) in [(bytes.clone(), 0.5 / 255.0 + 1e-5), (bytes.into_f32(), 1e-5)] {
            let small = resized(&image, Resize::to(size[0], size[1]));
            assert_eq!(small.shape(), [size[0], size[1], shape[2]]);
            for row in 0..size[0] {
                for column in 0..size[1] {
                    for channel in 0..shape[2] {
                        let got = f64::from(small.value(row, column, channel).unwrap());
                        let want = mean(&image, size, [row, column, channel]);
                        assert!((got - want).abs() < tolerance, "{shape:?} to {size:?}: {got} {want}");
                    }
                }
            }
        }
    }
}

#[test]
fn the_shorter_side_keeps_the_proportions() {
    for (shape, side, want) in [
        ([100, 200, 3], 50, [50, 100, 3]),
        ([200, 100, 3], 50, [100, 50, 3]),
        ([30, 30, 1], 7, [7, 7, 1]),
        ([3, 10, 1], 4, [4, 13, 1]),
    ] {
        let image = Image::from_u8(vec![200; shape.iter().product()], shape).unwrap();
        let result = resized(&image, Resize::shorter_side(side));
        assert_eq!(result.shape(), want);
        assert_eq!(result.pixels(), &Pixels::U8(vec![200; want.iter().product()]));
    }
    let image = Image::from_u8(noise(8, 12), [3, 4, 1]).unwrap();
    assert_eq!(resized(&image, Resize::to(3, 4)), image);
}

#[test]
fn sizes_that_make_no_sense_or_fill_the_memory_are_refused() {
    let line = Image::from_u8(vec![0; 100_000], [1, 100_000, 1]).unwrap();
    for resize in [
        Resize::shorter_side(4096),
        Resize::shorter_side(usize::MAX),
        Resize::shorter_side(0),
        Resize::to(0, 5),
        Resize::to(5, 0),
        Resize::to(usize::MAX, usize::MAX),
        Resize::to(1 << 20, 1 << 20),
    ] {
        let error = resize.apply(line.clone(), &mut Random::new(0, 0, 0)).unwrap_err();
        assert!(error.to_string().contains("1x100000x1 cannot be resized"), "{error}");
    }
}
