//! Pictures: sizes, marks where the numbers say, nothing cut off, no text that becomes markup.

use std::collections::BTreeMap;

use image::{Rgb, RgbImage};
use retape::nn::Dense;
use retape::{Tensor, map};
use retape_train::metrics::Confusion;
use retape_train::plot::{Bars, ConfusionMatrix, ContactSheet, Curves, Difference, Plot};

use super::{chance, folder};

const HOSTILE: &str =
    "</svg><script>alert(1)</script> & \"a very long text\", which goes on and on and on and on, and on";

fn decoded(png: &[u8]) -> RgbImage {
    image::load_from_memory(png).unwrap().into_rgb8()
}

/// The picture as PNG; both formats are left in a folder, and what every picture has to satisfy is checked.
fn drawn(name: &str, plot: &impl Plot) -> RgbImage {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("watch").join("pictures");
    let (svg, png) = (plot.svg().unwrap(), plot.png().unwrap());
    plot.save(folder.join(format!("{name}.svg"))).unwrap();
    plot.save(folder.join(format!("{name}.png"))).unwrap();
    assert_eq!(std::fs::read(folder.join(format!("{name}.png"))).unwrap(), png);
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>") && !svg.contains("<script"), "{svg}");
    assert_eq!(svg.matches("</svg").count(), 1);
    let picture = decoded(&png);
    assert!(svg.contains(&format!("width=\"{}\" height=\"{}\"", picture.width() / 2, picture.height() / 2)), "{svg}");
    nothing_is_cut(name, &picture);
    picture
}

/// There is a margin all around, in which nothing is drawn.
fn nothing_is_cut(name: &str, picture: &RgbImage) {
    let (width, height) = picture.dimensions();
    let is_edge = |x: u32, y: u32| x < 8 || y < 8 || x >= width - 8 || y >= height - 8;
    let ink = picture.enumerate_pixels().find(|(x, y, pixel)| is_edge(*x, *y) && pixel.0 != [255; 3]);
    assert!(ink.is_none(), "{name} of {width} x {height}: {ink:?}");
}

fn is(pixel: &Rgb<u8>, color: [u8; 3]) -> bool {
    pixel.0.iter().zip(color).all(|(a, b)| a.abs_diff(b) < 12)
}

const BLUE: [u8; 3] = [0x00, 0x6b, 0xa6];
const VERMILION: [u8; 3] = [0xcf, 0x55, 0x00];

/// The largest number of pixels of a colour in one column.
fn height_of(picture: &RgbImage, color: [u8; 3]) -> usize {
    let column = |x: u32| (0..picture.height()).filter(|&y| is(picture.get_pixel(x, y), color)).count();
    (0..picture.width()).map(column).max().unwrap()
}

#[test]
fn bars_are_as_high_as_their_values() {
    let bars = Bars::new("Time of an epoch", "s").bar("eager", 12.0).bar("accelerated", 3.0).note("4 times as fast");
    let picture = drawn("bars", &bars);
    let ratio = height_of(&picture, BLUE) as f64 / height_of(&picture, VERMILION) as f64;
    assert!((ratio - 4.0).abs() < 0.1, "{ratio}");
    let lines: Vec<String> = bars.terminal(40).lines().map(str::to_owned).collect();
    let bar = |n: usize, rest: &str| format!("{}{rest}", "█".repeat(n));
    assert_eq!(lines[0], "Time of an epoch (s)");
    assert_eq!(lines[1], format!("  eager       {} 12.0", bar(21, "")));
    assert_eq!(lines[2], format!("  accelerated {} 3.00", bar(5, "▎")));
    assert_eq!(lines[3], "  4 times as fast");
    assert!(lines.iter().all(|line| line.chars().count() <= 40));
    // Names and values are never cut, and a value that is not finite or below zero has no bar.
    let narrow = Bars::new("t", "u").bar("a long name", f64::NAN).bar("b", -1.0).bar("c", f64::INFINITY).terminal(3);
    assert!(narrow.contains("  a long name  NaN\n  b            -1.00\n") && narrow.contains(" inf"), "{narrow}");
    drawn("bars-below-zero", &Bars::new("Change", "%").bar("up", 3.0).bar("down", -5.0).bar("none", 0.0));
    let mut many = Bars::new(HOSTILE, HOSTILE).note(HOSTILE);
    for n in 0..16 {
        many = many.bar(&format!("number {n} {HOSTILE}"), 1e-7 * f64::from(n) + 1e-8);
    }
    drawn("bars-many", &many.bar("NaN", f64::NAN));
    drawn("bars-none", &Bars::new("Nothing", "s"));
}

/// Where a colour is in a column: the mean row.
fn row_of(picture: &RgbImage, x: u32, color: [u8; 3]) -> f64 {
    let rows: Vec<u32> = (0..picture.height()).filter(|&y| is(picture.get_pixel(x, y), color)).collect();
    assert!(!rows.is_empty(), "nothing in column {x}");
    rows.iter().sum::<u32>() as f64 / rows.len() as f64
}

#[test]
fn curves_are_where_their_points_are() {
    let mut next = chance(1);
    let noisy = |steps: u32, next: &mut dyn FnMut() -> f64| -> Vec<(f64, f64)> {
        let loss = |n: u32| 2.2 * (-f64::from(n) / f64::from(steps) * 3.5).exp() + 0.12 + 0.1 * (next() - 0.5);
        (0..steps).map(loss).enumerate().map(|(n, y)| (n as f64, y)).collect()
    };
    let training = noisy(20_000, &mut next);
    let validation = (1..=20).map(|n| (1000.0 * f64::from(n), 2.1 * (-f64::from(n) / 6.2).exp() + 0.21));
    let curves = Curves::new("Loss").note("ResNet-18 on CIFAR-10, seed 17");
    let curves = curves.curve("training", training).curve("validation", validation);
    drawn("curves", &curves);
    drawn("curves-log", &curves.clone().log());
    let four = ["0.1", "0.03", "0.01", "a long name of a run that was tried, too"];
    let rates = four.iter().enumerate().fold(Curves::new("Learning rates").x_name("epoch"), |curves, (n, name)| {
        let accuracy = |epoch: i32| (f64::from(epoch), 0.9 - 0.8 * (-f64::from(epoch) / (3.0 + n as f64)).exp());
        curves.curve(name, (0..=30).map(accuracy))
    });
    drawn("curves-four", &rates);

    // On a logarithmic scale powers of ten are on a straight line; on a linear one they are not.
    let powers = Curves::new("Powers").curve("p", (0..=300).map(|n| (f64::from(n), 10_f64.powf(f64::from(n) / 100.0))));
    for (plot, is_straight) in [(powers.clone().log(), true), (powers, false)] {
        let picture = decoded(&plot.png().unwrap());
        let colored = |x: &u32| (0..picture.height()).any(|y| is(picture.get_pixel(*x, y), BLUE));
        let (first, last) = ((0..picture.width()).find(colored).unwrap() + 8, 1300);
        let rows = [first, u32::midpoint(first, last), last].map(|x| row_of(&picture, x, BLUE));
        let bend = (rows[1] - f64::midpoint(rows[0], rows[2])).abs();
        assert_eq!(bend < 3.0, is_straight, "{rows:?}");
    }
    // A gap where there is no number, and a dot for a point that stands alone.
    let holes = [(0.0, 1.0), (1.0, 2.0), (2.0, f64::NAN), (3.0, 3.0), (4.0, f64::INFINITY), (5.0, -1.0), (6.0, 2.0)];
    drawn("curves-holes", &Curves::new(HOSTILE).note(HOSTILE).x_name("epoch").curve(HOSTILE, holes));
    drawn("curves-holes-log", &Curves::new("Holes").curve("loss", holes).log());
    for (name, points) in [("none", vec![]), ("one", vec![(7.0, 3.0)]), ("flat", vec![(1.0, 0.0), (2.0, 0.0)])] {
        drawn(&format!("curves-{name}"), &Curves::new("Few points").curve("loss", points.clone()));
        drawn(&format!("curves-{name}-log"), &Curves::new("Few points").curve("loss", points).log());
    }
    let wide = Curves::new("Wide").curve("loss", [(0.0, -1e300), (1e15, 1e300)]);
    drawn("curves-wide", &wide.curve("tiny", [(0.0, 1e-300), (1e15, 0.0)]));
}

#[test]
fn a_confusion_matrix_is_darkest_where_most_are() {
    let mut next = chance(2);
    let mut fill = |n_classes: usize, n: usize| {
        let mut confusion = Confusion::new(n_classes).unwrap();
        let labels: Vec<i64> = (0..n).map(|n| (n % n_classes) as i64).collect();
        let wrong = |label: &i64| if next() < 0.78 { *label } else { (next() * n_classes as f64) as i64 };
        let predicted: Vec<i64> = labels.iter().map(wrong).collect();
        let tensor = |x: &[i64]| Tensor::from_vec(x, [x.len()]).unwrap();
        confusion.add_predictions(&tensor(&predicted), &tensor(&labels)).unwrap();
        confusion
    };
    let names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];
    let cifar = ConfusionMatrix::new("CIFAR-10, validation", &fill(10, 10_000)).names(names).unwrap();
    let picture = drawn("confusion", &cifar);
    // Along a row of squares the darkest one is that of the class itself.
    let dark = |pixel: &Rgb<u8>| pixel.0[0] < 0x30 && pixel.0[2] > 0x50;
    let columns: Vec<usize> = (0..picture.width())
        .map(|x| (0..picture.height()).filter(|&y| dark(picture.get_pixel(x, y))).count())
        .collect();
    assert!(columns.iter().filter(|n| (60..130).contains(*n)).count() > 600, "every class has one dark square");
    drawn("confusion-digits", &ConfusionMatrix::new("Digits", &fill(10, 600)));
    drawn("confusion-two", &ConfusionMatrix::new("Pets", &fill(2, 50)).names(["cat", "dog"]).unwrap());
    drawn("confusion-100", &ConfusionMatrix::new("CIFAR-100", &fill(100, 10_000)));
    let hostile = ConfusionMatrix::new(HOSTILE, &fill(3, 1_000_000)).names([HOSTILE, "b", "c"]).unwrap();
    drawn("confusion-hostile", &hostile);
    drawn("confusion-none", &ConfusionMatrix::new("Nothing", &Confusion::new(4).unwrap()));
    let error = ConfusionMatrix::new("Few", &Confusion::new(3).unwrap()).names(["a"]).unwrap_err();
    assert!(error.to_string().starts_with("confusion matrix: 1 names for 3 classes"), "{error}");
}

#[test]
fn differences_have_a_bar_for_each_parameter() {
    let mut next = chance(4);
    let mut tensor = |shape: &[usize], scale: f64| {
        let values: Vec<f32> = (0..shape.iter().product()).map(|_| (scale * (next() - 0.5)) as f32).collect();
        Tensor::from_vec(values, shape).unwrap()
    };
    let few = (Tensor::from([0.0_f32, 0.0, 1.0]), Tensor::from([2.0_f32]), Tensor::from([1_i64]));
    let after = (Tensor::from([1.0_f32, -0.5, 1.0]), Tensor::from([2.5_f32]), Tensor::from([2_i64]));
    let difference = Difference::between("A step of gradient descent", &few, &after).unwrap();
    assert_eq!(difference.values(), [1.0, -0.5, 0.0, 0.5]);
    let picture = drawn("difference-few", &difference);
    let (up, down) = (height_of(&picture, BLUE) as f64, height_of(&picture, VERMILION) as f64);
    assert!((up / down - 2.0).abs() < 0.1, "{up} {down}");
    let before = vec![tensor(&[784, 100], 0.1), tensor(&[100], 0.1), tensor(&[100, 10], 0.4), tensor(&[10], 0.1)];
    let after = map(&before, |x| x + &tensor(x.shape(), 1e-3) * x);
    drawn("difference", &Difference::between("Compiled less interpreted, after an epoch", &before, &after).unwrap());
    let net = (Dense::new(1, 30, 20), vec![Dense::new(2, 20, 10)]);
    let other = map(&net, |x| x * 0.99);
    let named = Difference::between("Names", &net, &other).unwrap();
    drawn("difference-named", &named);
    let svg = named.svg().unwrap();
    let has = |name: &str| svg.contains(&format!("\n{name}\n"));
    // Of 830 parameters, 20 and 10 are biases, over which no name has room.
    assert!(has("0.weight") && has("1.0.weight") && !svg.contains("bias"), "{svg}");
    let tree = |name: &str| BTreeMap::from([(name.to_owned(), Tensor::ones([2]))]);
    let error = Difference::between("Names", &tree("old"), &tree("new")).unwrap_err().to_string();
    assert!(error.contains("tensor old before stands where new stands after (at "), "{error}");
    let nan = vec![Tensor::from([f32::NAN, 1.0, 2.0])];
    let finite = vec![Tensor::from([1.0_f32, 1.0, 1.0])];
    drawn("difference-nan", &Difference::between("NaN", &nan, &finite).unwrap());
    drawn("difference-none", &Difference::between(HOSTILE, &finite, &finite).unwrap());
    let other = vec![Tensor::from([[1.0_f32, 1.0, 1.0]])];
    let error = Difference::between("Shapes", &finite, &other).unwrap_err().to_string();
    assert!(
        error.contains("tensor 0 is f32[3] before, and f32[1, 3] after (at ") && error.contains("watch/plot.rs"),
        "{error}"
    );
}

#[test]
fn a_contact_sheet_shows_every_pixel() {
    let digits = retape::data::Digits::generate(3, 24).unwrap();
    let side = retape::data::Digits::SIDE;
    let images = Tensor::from_vec(&digits.images[..], [24, side, side]).unwrap();
    let captions: Vec<String> = digits.labels.iter().map(|label| format!("label {label}")).collect();
    let sheet = ContactSheet::new("Synthetic digits", 8).unwrap().batch(&images, &captions).unwrap();
    let path = folder("sheets").join("digits.png");
    sheet.save(&path).unwrap();
    nothing_is_cut("digits", &decoded(&std::fs::read(path).unwrap()));

    // One image of 2 x 2 in colour, of which each pixel is 56 x 56 of the sheet.
    let colors = [[255, 0, 0], [0, 255, 0], [0, 0, 255], [9, 8, 7_u8]];
    let image = Tensor::from_vec(colors.concat(), [2, 2, 3]).unwrap();
    let sheet = ContactSheet::new(HOSTILE, 1).unwrap().image(&image, HOSTILE).unwrap();
    let picture = decoded(&sheet.png().unwrap());
    for color in colors {
        assert_eq!(picture.pixels().filter(|pixel| pixel.0 == color).count(), 56 * 56, "{color:?}");
    }
    nothing_is_cut("one", &picture);
    let gray = Tensor::from([[0.0_f32, 0.5, 2.0, f32::NAN]]);
    let sheet = ContactSheet::new("Grey", 1).unwrap().image(&gray, "").unwrap();
    let picture = decoded(&sheet.png().unwrap());
    assert_eq!(picture.pixels().filter(|pixel| pixel.0 == [128; 3]).count(), 28 * 28);
    assert!(picture.pixels().filter(|pixel| pixel.0 == [0; 3]).count() >= 2 * 28 * 28);
    let refused = [Tensor::zeros([2, 2, 4]), Tensor::zeros([0, 2]), Tensor::zeros([2]), Tensor::from([[1_i64]])];
    for image in refused {
        let error = ContactSheet::new("Bad", 1).unwrap().image(&image, "").unwrap_err().to_string();
        assert!(error.contains("watch/plot.rs"), "{error}");
    }
    assert!(ContactSheet::new("None", 0).is_err());
    assert!(ContactSheet::new("None", 3).unwrap().png().unwrap().starts_with(b"\x89PNG"));
}

#[test]
fn names_of_files_say_the_format() {
    let error = Bars::new("t", "u").save("picture.gif").unwrap_err().to_string();
    assert!(error.starts_with("picture.gif: a picture is written as .svg or .png"), "{error}");
    let path = folder("saved").join("deep").join("bars.SVG");
    Bars::new("t", "u").bar("a", 1.0).save(&path).unwrap();
    assert!(std::fs::read_to_string(path).unwrap().starts_with("<svg"));
}
