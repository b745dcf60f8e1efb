//! NaN and infinities at the edges of images: convolutions, their gradients and pooling against plain loops over images
//! that hold their padding, eagerly, compiled and interpreted.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use retape::ops::{ConvOptions, Padding};
use retape::{Tensor, accelerate, trace, vjp};

/// A convolution of small whole numbers, of which sums are exact.
#[derive(Clone, Copy, Debug)]
struct Geometry {
    batch: usize,
    image: [usize; 2],
    channels: usize,
    filter: [usize; 2],
    out_channels: usize,
    stride: [usize; 2],
    padding: [[usize; 2]; 2],
    dilation: [usize; 2],
    groups: usize,
}

const PLAIN: Geometry = Geometry {
    batch: 1,
    image: [4, 5],
    channels: 2,
    filter: [3, 3],
    out_channels: 2,
    stride: [1, 1],
    padding: [[1, 1], [1, 1]],
    dilation: [1, 1],
    groups: 1,
};

fn geometries() -> [Geometry; 8] {
    [
        PLAIN,
        Geometry { padding: [[0, 0], [0, 0]], ..PLAIN },
        Geometry { padding: [[2, 0], [1, 3]], stride: [2, 1], ..PLAIN },
        Geometry { stride: [2, 3], dilation: [2, 1], image: [7, 6], padding: [[2, 2], [1, 1]], ..PLAIN },
        Geometry { groups: 2, channels: 4, out_channels: 6, stride: [2, 2], ..PLAIN },
        Geometry { filter: [1, 1], padding: [[1, 0], [0, 2]], ..PLAIN },
        // Large enough for the ways that read images in place.
        Geometry { batch: 2, image: [9, 12], channels: 3, out_channels: 17, ..PLAIN },
        Geometry { batch: 3, image: [10, 14], channels: 1, out_channels: 4, filter: [2, 5], dilation: [1, 2], ..PLAIN },
    ]
}

impl Geometry {
    fn options(&self) -> ConvOptions {
        let Geometry { stride, dilation, groups, .. } = *self;
        ConvOptions { stride, padding: Padding::Explicit(self.padding), dilation, groups }
    }

    /// The number of outputs along an axis.
    fn outputs(&self, axis: usize) -> usize {
        let reach = (self.filter[axis] - 1) * self.dilation[axis] + 1;
        (self.image[axis] + self.padding[axis][0] + self.padding[axis][1] - reach) / self.stride[axis] + 1
    }

    /// The shapes of image, filter and result.
    fn shapes(&self) -> [[usize; 4]; 3] {
        let [height, width] = self.image;
        [
            [self.batch, height, width, self.channels],
            [self.filter[0], self.filter[1], self.channels / self.groups, self.out_channels],
            [self.batch, self.outputs(0), self.outputs(1), self.out_channels],
        ]
    }

    /// Result, image gradient and filter gradient, by loops over all pairs of an output and a tap, with zeros in the
    /// place of what lies beyond the edges of what is read.
    fn expected(&self, x: &[f64], w: &[f64], ct: &[f64]) -> [Vec<f64>; 3] {
        let [[_, height, width, channels], [taps_y, taps_x, n_in, out_channels], [_, out_y, out_x, _]] = self.shapes();
        let mut found = self.shapes().map(|shape| vec![0.0; shape.iter().product()]);
        let [dx, dw, y] = &mut found;
        let at = |values: &[f64], place: Option<usize>| place.map_or(0.0, |place| values[place]);
        let inside = |coordinate: i64, extent: usize| usize::try_from(coordinate).ok().filter(|c| *c < extent);
        let pairs = |n: usize, m: usize| (0..n).flat_map(move |i| (0..m).map(move |j| (i, j)));
        let pixel = |o: usize, t: usize, axis: usize| {
            (o * self.stride[axis] + t * self.dilation[axis]) as i64 - self.padding[axis][0] as i64
        };
        for (b, (ty, tx)) in (0..self.batch).flat_map(|b| pairs(taps_y, taps_x).map(move |taps| (b, taps))) {
            for (co, ci) in pairs(out_channels, n_in) {
                let channel = co / (out_channels / self.groups) * n_in + ci;
                let tap = ((ty * taps_x + tx) * n_in + ci) * out_channels + co;
                let output = |oy: usize, ox: usize| ((b * out_y + oy) * out_x + ox) * out_channels + co;
                let place = |py: usize, px: usize| ((b * height + py) * width + px) * channels + channel;
                for (oy, ox) in pairs(out_y, out_x) {
                    let [py, px] = [inside(pixel(oy, ty, 0), height), inside(pixel(ox, tx, 1), width)];
                    let read = at(x, py.zip(px).map(|(py, px)| place(py, px)));
                    y[output(oy, ox)] += read * w[tap];
                    dw[tap] += read * ct[output(oy, ox)];
                }
                for (py, px) in pairs(height, width) {
                    // Outputs are whole strides away, and go on beyond the last and the first.
                    let away = [py as i64 - pixel(0, ty, 0), px as i64 - pixel(0, tx, 1)];
                    let stride = self.stride.map(|stride| stride as i64);
                    if away[0] % stride[0] == 0 && away[1] % stride[1] == 0 {
                        let [oy, ox] = [inside(away[0] / stride[0], out_y), inside(away[1] / stride[1], out_x)];
                        dx[place(py, px)] += at(ct, oy.zip(ox).map(|(oy, ox)| output(oy, ox))) * w[tap];
                    }
                }
            }
        }
        let [dx, dw, y] = found;
        [y, dx, dw]
    }
}

/// Small whole numbers, of which some are another one.
fn numbers(shape: &[usize], special: &[(usize, f64)]) -> Vec<f64> {
    let mut values: Vec<f64> = (0..shape.iter().product()).map(|i: usize| (i * 7 % 5) as f64 - 1.0).collect();
    special.iter().for_each(|&(at, x)| values[at] = x);
    values
}

fn same(x: &[f64], y: &[f64]) -> bool {
    x.len() == y.len() && x.iter().zip(y).all(|(x, y)| x == y || x.is_nan() && y.is_nan())
}

/// The results of a function of several tensors: eagerly, compiled and interpreted.
fn everywhere(f: impl Fn(&Vec<Tensor>) -> Vec<Tensor> + Copy, args: &[Tensor]) -> [Vec<Vec<f64>>; 3] {
    let args = args.to_vec();
    let eager = f(&args);
    let compiled = accelerate(f).call(&args).unwrap();
    let interpreted = trace(f, &args).unwrap().evaluate(&args).unwrap();
    [eager, compiled, interpreted].map(|tensors| tensors.iter().map(|x| x.to_vec::<f64>().unwrap()).collect())
}

#[test]
fn convolutions_are_those_of_images_that_hold_their_zeros() {
    let mut n_nan = [0; 3];
    for geometry in geometries() {
        let shapes = geometry.shapes();
        for (operand, special) in [0, 1, 2].into_iter().flat_map(|n| [f64::INFINITY, f64::NAN].map(|x| (n, x))) {
            let n: usize = shapes[operand].iter().product();
            let values = |which: usize, at: usize| match which == operand {
                true => numbers(&shapes[which], &[(at, special)]),
                false => numbers(&shapes[which], &[]),
            };
            for at in [0, n / 2, n - 1] {
                let [x, w, ct] = [0, 1, 2].map(|which| values(which, at));
                let expected = geometry.expected(&x, &w, &ct);
                let tensor = |values: &[f64], shape: [usize; 4]| Tensor::from_vec(values, shape).unwrap();
                let args = [tensor(&x, shapes[0]), tensor(&w, shapes[1]), tensor(&ct, shapes[2])];
                let options = geometry.options();
                let all = move |args: &Vec<Tensor>| {
                    let y = args[0].conv2d(&args[1], options);
                    let pair = (args[0].clone(), args[1].clone());
                    let (_, (dx, dw)) = vjp(|(x, w): &(Tensor, Tensor)| x.conv2d(w, options), &pair, &args[2]).unwrap();
                    vec![y, dx, dw]
                };
                for found in everywhere(all, &args) {
                    for (pass, (found, expected)) in found.iter().zip(&expected).enumerate() {
                        assert!(
                            same(found, expected),
                            "pass {pass} of {geometry:?} with {special} at {at} of {operand}: {found:?}, not {expected:?}"
                        );
                    }
                }
                for (n, expected) in n_nan.iter_mut().zip(&expected) {
                    *n += usize::from(special.is_infinite() && expected.iter().any(|x| x.is_nan()));
                }
            }
        }
    }
    assert!(n_nan.iter().all(|n| *n > 5), "{n_nan:?}: few infinities met a zero");
}

/// A transposed convolution is the image gradient, and its gradients are the other two.
#[test]
fn transposed_convolutions_follow_the_same_rule() {
    for geometry in geometries() {
        let shapes = geometry.shapes();
        let n: usize = shapes[1].iter().product();
        for at in [0, n / 2, n - 1] {
            let (w, ct) = (numbers(&shapes[1], &[(at, f64::INFINITY)]), numbers(&shapes[2], &[]));
            let expected = geometry.expected(&numbers(&shapes[0], &[]), &w, &ct);
            let options = geometry.options();
            let small = |axis: usize| {
                let rest = geometry.image[axis] + geometry.padding[axis][0] + geometry.padding[axis][1];
                let reach = (geometry.filter[axis] - 1) * geometry.dilation[axis] + 1;
                (rest - reach) % geometry.stride[axis]
            };
            // Else the image that the transposed convolution makes is smaller than the one of this geometry.
            if small(0) + small(1) > 0 {
                continue;
            }
            let args = [Tensor::from_vec(&ct, shapes[2]).unwrap(), Tensor::from_vec(&w, shapes[1]).unwrap()];
            for found in everywhere(move |args| vec![args[0].conv_transpose2d(&args[1], options)], &args) {
                assert!(same(&found[0], &expected[1]), "{geometry:?}: {:?}, not {:?}", found[0], expected[1]);
            }
        }
    }
}

/// Windows see the image only: positions beyond its edges are no maximum and no term of a mean.
#[test]
fn pooling_sees_the_image_only() {
    let shape = [1, 4, 5, 2];
    for (window, stride, padding) in
        [([2, 2], [1, 1], [[1, 0], [0, 1]]), ([3, 3], [2, 2], [[1, 1], [1, 1]]), ([3, 2], [1, 2], [[2, 1], [0, 0]])]
    {
        for (at, special) in
            [0, 9, 39].into_iter().flat_map(|at| [f64::INFINITY, -f64::INFINITY, f64::NAN].map(|x| (at, x)))
        {
            let x = numbers(&shape, &[(at, special)]);
            let outputs = [0, 1]
                .map(|axis| (shape[axis + 1] + padding[axis][0] + padding[axis][1] - window[axis]) / stride[axis] + 1);
            let (mut largest, mut means) = (vec![], vec![]);
            for (oy, ox) in (0..outputs[0]).flat_map(|oy| (0..outputs[1]).map(move |ox| (oy, ox))) {
                for channel in 0..2 {
                    let seen = |o: usize, axis: usize| {
                        let first = (o * stride[axis]) as i64 - padding[axis][0] as i64;
                        (first..first + window[axis] as i64).filter(move |c| (0..shape[axis + 1] as i64).contains(c))
                    };
                    let values: Vec<f64> = seen(oy, 0)
                        .flat_map(|y| seen(ox, 1).map(move |x| (y, x)))
                        .map(|(y, column)| x[(y as usize * 5 + column as usize) * 2 + channel])
                        .collect();
                    let is_nan = values.iter().any(|x| x.is_nan());
                    largest.push(if is_nan { f64::NAN } else { values.iter().copied().fold(-f64::INFINITY, f64::max) });
                    means.push(values.iter().sum::<f64>() / values.len() as f64);
                }
            }
            let padding = Padding::Explicit(padding);
            let pools = move |args: &Vec<Tensor>| {
                vec![args[0].max_pool2d(window, stride, padding), args[0].avg_pool2d(window, stride, padding)]
            };
            for found in everywhere(pools, &[Tensor::from_vec(&x, shape).unwrap()]) {
                assert!(same(&found[0], &largest), "{window:?}: {:?}, not {largest:?}", found[0]);
                assert!(same(&found[1], &means), "{window:?}: {:?}, not {means:?}", found[1]);
            }
            // Each cotangent goes to the places of its window inside the image, an infinite one too.
            let gradients = move |args: &Vec<Tensor>| {
                let pooled =
                    |x: &Tensor| (x.max_pool2d(window, stride, padding), x.avg_pool2d(window, stride, padding));
                let cts = (args[1].clone(), args[1].clone());
                vec![vjp(|x: &Tensor| pooled(x), &args[0], &cts).unwrap().1]
            };
            let ct_shape = [1, outputs[0], outputs[1], 2];
            let ct = Tensor::from_vec(numbers(&ct_shape, &[(0, special)]), ct_shape).unwrap();
            let [eager, compiled, interpreted] = everywhere(gradients, &[Tensor::from_vec(&x, shape).unwrap(), ct]);
            assert!(same(&eager[0], &compiled[0]) && same(&eager[0], &interpreted[0]), "{eager:?}, {interpreted:?}");
            assert!(eager[0].iter().filter(|x| !x.is_finite()).count() <= 2 * window[0] * window[1]);
        }
    }
}
