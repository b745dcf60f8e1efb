//! Kernel families against the limits of this machine: time by size, and the part of the limit that is reached.
//!
//! `cargo bench -p retape-benches --bench roofline` prints a table; with `-- gelu softmax` that of the families whose names
//! contain one of these words, and with `-- --plot FOLDER`, seen from `benches`, it also writes a plot of time against
//! size for each family.
//! The limits, fused multiply-adds on registers and copies between large buffers, are measured before and after each
//! sample of a kernel, since others may use the machine: the part of the limit is the median of these ratios. The first
//! line has the best limits of the run's beginning.
//! The least time of a kernel is that of its operations or that of its bytes, whichever is longer, where a transcendental
//! function has the operations of its formula. Operands that fit a cache can be beyond the limit.

#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::cell::RefCell;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use plotters::prelude::*;
use plotters::style::register_font;
use retape::ops::{ConvOptions, Triangular};
use retape::optim::{Adam, AdamState};
use retape::{Accelerated, GroupTime, Tensor, accelerate, concat};
use retape_kernels::{LimitProbe, MachineLimits, StepCost};

/// Samples of each point; the median counts.
const SAMPLES: usize = 15;

/// For how long limits are measured between samples, at least.
const LEAST_SPAN: Duration = Duration::from_millis(1);

/// A family: its name, the meaning of a size, and the sizes.
struct Family {
    name: &'static str,
    size: &'static str,
    sizes: &'static [usize],
    point: fn(usize) -> Result<Point, retape::Error>,
}

/// A kernel of one size.
struct Point {
    median: Duration,
    flops: u64,
    bytes: u64,
    of_limit: f64,
}

impl Point {
    fn floor(&self) -> Duration {
        self.median.mul_f64(self.of_limit)
    }
}

const LINES: &[usize] = &[1 << 4, 1 << 8, 1 << 12, 1 << 14];

const FAMILIES: &[Family] = &[
    Family { name: "matmul", size: "n of n x n x n", sizes: &[32, 64, 128, 256, 512, 1024, 2048], point: matmul },
    Family { name: "matmul-few-rows", size: "rows, by 512 x 512", sizes: &[8, 24, 32, 48, 64, 96], point: few_rows },
    Family { name: "conv3x3", size: "channels, 16 x 32 x 32", sizes: &[4, 8, 16, 32, 64, 128], point: conv },
    Family { name: "depthwise3x3", size: "channels, 16 x 32 x 32", sizes: &[16, 32, 96], point: depthwise },
    Family { name: "cholesky", size: "rows", sizes: &[32, 64, 128, 256, 512, 1024, 2048], point: cholesky },
    Family {
        name: "triangular-solve",
        size: "rows and right sides",
        sizes: &[32, 64, 128, 256, 512, 1024, 2048],
        point: triangular,
    },
    Family {
        name: "triangular-solve-one",
        size: "rows, one right side",
        sizes: &[32, 256, 2048],
        point: triangular_one,
    },
    Family { name: "pointwise", size: "rows of 1024", sizes: LINES, point: pointwise },
    Family { name: "gelu", size: "rows of 1024", sizes: LINES, point: gelu },
    Family { name: "softmax", size: "rows of 1024", sizes: LINES, point: softmax },
    Family { name: "adam", size: "numbers in 50 leaves", sizes: &[3200, 51_200, 819_200, 10_000_000], point: adam },
    Family { name: "sum-of-rows", size: "rows of 1024", sizes: LINES, point: sums },
    Family { name: "sum-of-columns", size: "rows of 1024", sizes: LINES, point: column_sums },
    Family { name: "transpose", size: "rows of 1024", sizes: LINES, point: transpose },
    Family { name: "concat", size: "rows of 1024", sizes: LINES, point: join },
    Family { name: "max-pool", size: "images of 32 x 32 x 16", sizes: &[1, 16, 64, 256], point: max_pool },
    Family {
        name: "max-pool-gradient",
        size: "images of 32 x 32 x 16",
        sizes: &[1, 16, 64, 256],
        point: pool_gradient,
    },
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (mut folder, mut n_sizes, mut words) = (None, usize::MAX, vec![]);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--plot" => folder = Some(PathBuf::from(args.next().ok_or("--plot takes a folder")?)),
            // Cargo adds it.
            "--bench" => {}
            // Two sizes of each family, to see that they run and can be plotted.
            "--test" => n_sizes = 2,
            option if option.starts_with('-') => return Err(format!("{option} is no option: --plot FOLDER").into()),
            _ => words.push(arg),
        }
    }
    // A machine may have no font.
    register_font("sans-serif", FontStyle::Normal, dejavu::sans::regular()).map_err(|_| "the font is broken")?;
    let limits = MachineLimits::measured();
    println!(
        "{} threads: {:.0} GFLOP/s, {:.1} GB/s\n",
        retape::n_threads(),
        limits.flops * 1e-9,
        limits.copy_bytes * 1e-9
    );
    println!("{:<20} {:>30} {:>12} {:>10} {:>8} {:>9}", "family", "size", "time", "GFLOP/s", "GB/s", "of limit");
    let is_wanted = |family: &&Family| words.is_empty() || words.iter().any(|word| family.name.contains(word.as_str()));
    for family in FAMILIES.iter().filter(is_wanted) {
        let mut points = vec![];
        for &size in family.sizes.iter().take(n_sizes) {
            let point = (family.point)(size)?;
            row(family, size, &point);
            points.push((size, point));
        }
        if let Some(folder) = &folder {
            plot(folder, family, &points)?;
        }
    }
    Ok(())
}

fn row(family: &Family, size: usize, point: &Point) {
    let seconds = point.median.as_secs_f64();
    let [flops, bytes] = [point.flops, point.bytes].map(|n| n as f64 / seconds * 1e-9);
    let of_limit = 100.0 * point.of_limit;
    let size = format!("{size} {}", family.size);
    println!("{:<20} {size:>30} {:>12.2?} {flops:>10.1} {bytes:>8.1} {of_limit:>7.0} %", family.name, point.median);
}

/// Times calls, and counts their work by a profile of one.
fn measured<F, A, R>(
    function: &Accelerated<F, A, R>,
    call: impl Fn() -> Result<(), retape::Error>,
) -> Result<Point, retape::Error> {
    call()?;
    function.configure(|options| options.profiling = true);
    call()?;
    let groups = function.profile().groups;
    function.configure(|options| options.profiling = false);
    let limited = groups.iter().filter(|group| group.of_limit.is_some());
    // All families are of `f32`.
    let costs: Vec<StepCost> =
        limited.map(|group| StepCost { flops: group.flops, flops_f64: 0, bytes: group.bytes }).collect();
    let inner = repetitions(&call)?;
    let (mut samples, mut of_limits) = (vec![], vec![]);
    static PROBE: LazyLock<LimitProbe> = LazyLock::new(LimitProbe::new);
    let probe = &*PROBE;
    let mut before = probe.limits(LEAST_SPAN);
    for _ in 0..SAMPLES {
        // The copies have left nothing else in the caches.
        call()?;
        let start = Instant::now();
        for _ in 0..inner {
            call()?;
        }
        let sample = start.elapsed();
        let after = probe.limits((sample / 4).max(LEAST_SPAN));
        let floor = |limits: &MachineLimits| costs.iter().map(|cost| limits.floor(cost)).sum::<Duration>();
        let floors = (floor(&before) + floor(&after)) * inner;
        of_limits.push(floors.as_secs_f64() / (2 * sample).as_secs_f64());
        samples.push(sample / inner);
        before = after;
    }
    samples.sort();
    of_limits.sort_by(f64::total_cmp);
    let [flops, bytes] =
        [|group: &GroupTime| group.flops, |group: &GroupTime| group.bytes].map(|count| groups.iter().map(count).sum());
    Ok(Point { median: samples[SAMPLES / 2], flops, bytes, of_limit: of_limits[SAMPLES / 2] })
}

/// The number of calls that fill 2 ms.
fn repetitions(call: &impl Fn() -> Result<(), retape::Error>) -> Result<u32, retape::Error> {
    let (start, mut n) = (Instant::now(), 0_u32);
    while start.elapsed() < Duration::from_millis(20) {
        call()?;
        n += 1;
    }
    Ok((n / 10).max(1))
}

fn of(shape: &[usize]) -> Tensor {
    (0..shape.iter().product::<usize>()).map(|i| (i % 251) as f32 / 251.0 - 0.5).collect::<Tensor>().reshape(shape)
}

fn unary(shape: &[usize], f: impl Fn(&Tensor) -> Tensor) -> Result<Point, retape::Error> {
    let (x, f) = (of(shape), accelerate(f));
    measured(&f, || f.call(&x).map(drop))
}

fn binary(shapes: [&[usize]; 2], f: impl Fn(&Tensor, &Tensor) -> Tensor) -> Result<Point, retape::Error> {
    let ([x, y], f) = (shapes.map(of), accelerate(f));
    measured(&f, || f.call(&x, &y).map(drop))
}

fn matmul(n: usize) -> Result<Point, retape::Error> {
    binary([&[n, n], &[n, n]], |x: &Tensor, y: &Tensor| x.matmul(y))
}

fn few_rows(rows: usize) -> Result<Point, retape::Error> {
    binary([&[rows, 512], &[512, 512]], |x: &Tensor, y: &Tensor| x.matmul(y))
}

fn conv(channels: usize) -> Result<Point, retape::Error> {
    let shapes: [&[usize]; 2] = [&[16, 32, 32, channels], &[3, 3, channels, channels]];
    binary(shapes, |x: &Tensor, w: &Tensor| x.conv2d(w, ConvOptions::same()))
}

fn depthwise(channels: usize) -> Result<Point, retape::Error> {
    let shapes: [&[usize]; 2] = [&[16, 32, 32, channels], &[3, 3, 1, channels]];
    binary(shapes, move |x: &Tensor, w: &Tensor| x.conv2d(w, ConvOptions::same().groups(channels)))
}

/// A symmetric matrix whose diagonal dominates.
fn positive(n: usize) -> Tensor {
    let x = of(&[n, n]);
    (&x + x.t()) + Tensor::eye(n) * (2.0 * n as f32)
}

fn cholesky(n: usize) -> Result<Point, retape::Error> {
    let (x, f) = (positive(n), accelerate(Tensor::cholesky));
    measured(&f, || f.call(&x).map(drop))
}

fn triangular(n: usize) -> Result<Point, retape::Error> {
    solve(n, &[n, n])
}

fn triangular_one(n: usize) -> Result<Point, retape::Error> {
    solve(n, &[n, 1])
}

fn solve(n: usize, right: &[usize]) -> Result<Point, retape::Error> {
    let (a, b) = (positive(n), of(right));
    let f = accelerate(|a: &Tensor, b: &Tensor| a.solve_triangular(b, Triangular::LOWER));
    measured(&f, || f.call(&a, &b).map(drop))
}

fn pointwise(rows: usize) -> Result<Point, retape::Error> {
    binary([&[rows, 1024], &[rows, 1024]], |x: &Tensor, y: &Tensor| x * 3.0 + y)
}

fn gelu(rows: usize) -> Result<Point, retape::Error> {
    unary(&[rows, 1024], Tensor::gelu_tanh)
}

fn softmax(rows: usize) -> Result<Point, retape::Error> {
    unary(&[rows, 1024], |x: &Tensor| x.softmax(-1))
}

/// An update in place: parameters and moments are given away.
fn adam(n: usize) -> Result<Point, retape::Error> {
    let adam = Adam::new();
    let leaves = || -> Vec<Tensor> { (0..50).map(|_| of(&[n / 50])).collect() };
    let gradient = leaves();
    let update = accelerate(|net: &Vec<Tensor>, state: &AdamState<Vec<Tensor>>, gradient: &Vec<Tensor>| {
        adam.update(net, gradient, state, 1e-3_f32)
    });
    let net = leaves();
    let state = adam.init(&net);
    let carried = RefCell::new(Some((net, state)));
    measured(&update, || {
        let Some((net, state)) = carried.take() else { return Ok(()) };
        carried.replace(Some(update.call(net, state, &gradient)?));
        Ok(())
    })
}

fn sums(rows: usize) -> Result<Point, retape::Error> {
    unary(&[rows, 1024], |x: &Tensor| x.sum(-1))
}

fn column_sums(rows: usize) -> Result<Point, retape::Error> {
    unary(&[rows, 1024], |x: &Tensor| x.sum(0))
}

fn transpose(rows: usize) -> Result<Point, retape::Error> {
    unary(&[rows, 1024], |x: &Tensor| x.permute([1, 0]))
}

fn join(rows: usize) -> Result<Point, retape::Error> {
    binary([&[rows, 512], &[rows, 512]], |x: &Tensor, y: &Tensor| concat(&[x, y], 1))
}

fn max_pool(images: usize) -> Result<Point, retape::Error> {
    unary(&[images, 32, 32, 16], |x: &Tensor| x.max_pool2d([2, 2], [2, 2], 0))
}

fn pool_gradient(images: usize) -> Result<Point, retape::Error> {
    unary(&[images, 32, 32, 16], |x: &Tensor| x.max_pool2d([2, 2], [2, 2], 0).sum(..).grad(x))
}

/// Time against size, both logarithmic, and the least time of the machine below it.
fn plot(folder: &Path, family: &Family, points: &[(usize, Point)]) -> Result<(), Box<dyn Error>> {
    std::fs::create_dir_all(folder)?;
    let file = folder.join(format!("{}.svg", family.name));
    let area = SVGBackend::new(&file, (420, 260)).into_drawing_area();
    area.fill(&WHITE)?;
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    let times = || points.iter().flat_map(|(_, point)| [micros(point.median), micros(point.floor())]);
    let (least, most) = (times().fold(f64::MAX, f64::min).max(1e-3), times().fold(0.0, f64::max));
    let [first, last] = [points[0].0 as f64, points[points.len() - 1].0 as f64];
    let mut chart = ChartBuilder::on(&area)
        .caption(format!("{}: µs by {}", family.name, family.size), ("sans-serif", 14))
        .margin(8)
        .x_label_area_size(24)
        .y_label_area_size(56)
        .build_cartesian_2d((first..last).log_scale(), (least * 0.8..most * 1.25).log_scale())?;
    chart.configure_mesh().light_line_style(TRANSPARENT).draw()?;
    let line =
        |time: fn(&Point) -> Duration| points.iter().map(move |(size, point)| (*size as f64, micros(time(point))));
    chart.draw_series(LineSeries::new(line(|point| point.median), BLUE.stroke_width(2)).point_size(3))?;
    chart.draw_series(LineSeries::new(line(Point::floor), BLACK.mix(0.4).stroke_width(1)))?;
    area.present()?;
    Ok(())
}
