//! Convolutions against their references, and against themselves on other paths.

use retape_runtime::DType;

use super::{Bytes, DTYPES, Random, check, check_on, engines, run};
use crate::library::conv::MOST_LIGHT;
use crate::library::conv::depthwise::Depthwise;
use crate::library::dense::DenseKernel;
use crate::library::micro::{Engine, images_of_task, lines_of_chain, split_depth};
use crate::library::testing::on_one_and_two_threads;
use crate::library::{Conv2d, ConvPass, MatMul, MatrixLayout};

/// A random small convolution; some of its extents are zero.
fn convolution(random: &mut Random, dtype: DType, pass: ConvPass) -> Conv2d {
    let groups = random.pick(&[1, 1, 1, 2, 3]);
    let channels = [0; 2].map(|_| groups * random.pick(&[1, 1, 2, 3, 4, 5, 8, 16, 17]));
    let pad = |random: &mut Random| [random.below(3), random.below(3)];
    Conv2d {
        dtype,
        batch: random.pick(&[0, 1, 1, 2, 3]),
        height: random.pick(&[0, 1, 2, 5, 7, 8, 13]),
        width: random.pick(&[1, 2, 3, 6, 7, 14, 19]),
        in_channels: channels[0],
        kernel_height: random.pick(&[1, 1, 2, 3, 3, 5]),
        kernel_width: random.pick(&[1, 1, 2, 3, 3, 5]),
        out_channels: channels[1],
        stride: [0; 2].map(|_| 1 + random.below(3)),
        padding: [pad(random), pad(random)],
        dilation: [0; 2].map(|_| random.pick(&[1, 1, 2, 3])),
        groups,
        pass,
    }
}

#[test]
fn convolutions_agree_with_their_references_on_any_geometry() {
    let mut random = Random(0x1234_5678_9abc_def1);
    for round in 0..240 {
        let pass = [ConvPass::Forward, ConvPass::InputGradient, ConvPass::FilterGradient][round % 3];
        let conv = convolution(&mut random, DTYPES[round / 3 % DTYPES.len()], pass);
        let [height, width] = conv.out_extent();
        let terms = match pass {
            ConvPass::Forward | ConvPass::InputGradient => {
                conv.kernel_height * conv.kernel_width * conv.in_channels.max(conv.out_channels)
            }
            ConvPass::FilterGradient => conv.batch * height * width,
        };
        check(&conv, terms, &mut random);
    }
}

/// A random convolution of one group whose windows lie inside the image, each apart from the next.
fn convolution_of_windows_apart(random: &mut Random, dtype: DType, pass: ConvPass) -> Conv2d {
    let outputs = [random.pick(&[1, 2, 7, 23]), random.pick(&[1, 3, 4, 5, 6, 7, 13, 16, 17, 29])];
    let stride = [0; 2].map(|_| 1 + random.below(4));
    let kernel = stride.map(|stride| if random.below(2) == 0 { 1 } else { 1 + random.below(stride) });
    // Some lines and columns belong to no window.
    let extent = |axis: usize, rest: usize| (outputs[axis] - 1) * stride[axis] + kernel[axis] + rest;
    Conv2d {
        dtype,
        batch: random.pick(&[1, 2, 3, 5]),
        height: extent(0, random.below(stride[0])),
        width: extent(1, random.below(stride[1])),
        in_channels: random.pick(&[1, 3, 8, 15, 16, 17, 33, 64]),
        kernel_height: kernel[0],
        kernel_width: kernel[1],
        out_channels: random.pick(&[1, 4, 5, 7, 8, 9, 16, 17, 31, 32, 33, 65]),
        stride,
        padding: [[0; 2]; 2],
        dilation: [1, 1],
        groups: 1,
        pass,
    }
}

#[test]
fn windows_that_lie_apart_agree_with_copies_and_with_products() {
    let (mut random, mut n_in_place) = (Random(0xfeed_5eed_0bad_cafe), 0);
    for round in 0..160 {
        let pass = [ConvPass::Forward, ConvPass::Forward, ConvPass::InputGradient][round % 3];
        let dtype = [DType::F32, DType::F32, DType::F64][round / 3 % 3];
        let conv = convolution_of_windows_apart(&mut random, dtype, pass);
        let terms = conv.kernel_height * conv.kernel_width * conv.in_channels.max(conv.out_channels);
        check(&conv, terms, &mut random);
        if pass != ConvPass::Forward || [conv.kernel_height, conv.kernel_width] != [1, 1] {
            continue;
        }
        n_in_place += usize::from(conv.stride != [1, 1] && conv.tiles().is_some_and(|tiles| tiles.has_whole_rows));
        // The rows of a product, when those between them have been left out.
        let [(_, len), (_, filter)] = conv.inputs()[..] else { panic!("two inputs") };
        let (image, filter) = (random.bytes_of(dtype, len), random.bytes_of(dtype, filter));
        let ([height, width], pixel) = (conv.out_extent(), conv.in_channels * dtype.size());
        let mut rows = Bytes::filled(conv.batch * height * width * pixel, 0);
        for (at, row) in rows.get_mut().chunks_exact_mut(pixel).enumerate() {
            let (line, x) = (at / width, at % width * conv.stride[1]);
            let line = line / height * conv.height + line % height * conv.stride[0];
            row.copy_from_slice(&image.get()[(line * conv.width + x) * pixel..][..pixel]);
        }
        let dense = Conv2d { height, width, stride: [1, 1], ..conv.clone() };
        let [found, expected] = [(&conv, &image), (&dense, &rows)]
            .map(|(conv, image)| run(conv, &Engine::best(), &[image.clone(), filter.clone()]));
        assert!(found.get() == expected.get(), "{conv:?}: a product gives other bits");
    }
    assert!(n_in_place >= 8, "{n_in_place} shapes of one tap are read in place");
}

/// Convolutions of one tap, and those with a window as large as the image, except for the gradient of that image, have the
/// bits of the products that take their place.
#[test]
fn convolutions_that_are_products_have_their_bits() {
    let (mut random, mut n_split) = (Random(0x0de_c0de), 0);
    for round in 0..432 {
        let (pass, dtype) = (ConvPass::ALL[round % 3], DTYPES[round / 3 % DTYPES.len()]);
        let is_whole = pass != ConvPass::InputGradient && random.below(3) == 0;
        let [height, width] = [0; 2].map(|_| if is_whole { random.pick(&[1, 2, 3]) } else { random.pick(&[1, 7, 20]) });
        let [kernel_height, kernel_width] = if is_whole { [height, width] } else { [1, 1] };
        let [in_channels, out_channels] = [0; 2].map(|_| random.pick(&[1, 3, 4, 10, 16, 20, 33, 64]));
        let batch = if is_whole { random.pick(&[1, 3, 40, 2100]) } else { random.pick(&[1, 2, 6]) };
        let conv = Conv2d {
            batch,
            height,
            width,
            kernel_height,
            kernel_width,
            in_channels,
            out_channels,
            stride: [1, 1],
            padding: [[0; 2]; 2],
            dilation: [1, 1],
            groups: 1,
            ..convolution(&mut random, dtype, pass)
        };
        let (taps, n) = (kernel_height * kernel_width * in_channels, out_channels);
        let rows = batch * height * width / (kernel_height * kernel_width);
        let product = match pass {
            ConvPass::Forward => MatMul::contiguous(dtype, &[], [rows, n, taps]),
            ConvPass::InputGradient => MatMul {
                b: MatrixLayout::contiguous(&[], taps, n).transposed(),
                ..MatMul::contiguous(dtype, &[], [rows, taps, n])
            },
            ConvPass::FilterGradient => MatMul {
                a: MatrixLayout::contiguous(&[], rows, taps).transposed(),
                ..MatMul::contiguous(dtype, &[], [taps, n, rows])
            },
        };
        n_split += usize::from(split_depth(product.m, product.n, product.k) < product.k);
        let mut inputs: Vec<Bytes> = conv.inputs().iter().map(|(dtype, len)| random.bytes_of(*dtype, *len)).collect();
        let infinity = retape_runtime::Scalar::from_f64(f64::INFINITY, dtype).bits.to_le_bytes();
        let (operand, size) = (random.below(2), dtype.size());
        let at = random.below(conv.inputs()[operand].1) * size;
        inputs[operand].get_mut()[at..at + size].copy_from_slice(&infinity[..size]);
        let [found, expected] = [run(&conv, &Engine::best(), &inputs), run(&product, &Engine::best(), &inputs)]
            .map(|out| out.values(dtype));
        let same = |(a, b): (&f64, &f64)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
        assert!(found.iter().zip(&expected).all(same) && found.len() == expected.len(), "{conv:?} as {product:?}");
    }
    assert!(n_split > 5, "{n_split} products are cut along their depth");
}

/// A random convolution in groups of few channels, and how long its sums are.
fn grouped_convolution(random: &mut Random, dtype: DType, pass: ConvPass) -> (Conv2d, usize) {
    let conv = convolution(random, dtype, pass);
    let groups = random.pick(&[2, 3, 4, 5, 8, 16, 17]);
    let [n_in, n_out] = [0; 2].map(|_| random.pick(&[1, 1, 2, 3, 4, 5, 6, 7, 8]));
    // Some groups of equal numbers of channels, some chains of several blocks, some lines of several tiles.
    let n_out = if random.below(2) == 0 { n_in } else { n_out };
    let [kernel_height, kernel_width] =
        if random.below(6) == 0 { [7, 6] } else { [conv.kernel_height, conv.kernel_width] };
    let is_large = pass == ConvPass::FilterGradient || random.below(3) == 0;
    let [height, width] = if is_large { [15, 21] } else { [conv.height, conv.width] };
    let (in_channels, out_channels) = (groups * n_in, groups * n_out);
    let conv = Conv2d { groups, in_channels, out_channels, kernel_height, kernel_width, height, width, ..conv };
    let [out_height, out_width] = conv.out_extent();
    let terms = match pass {
        ConvPass::Forward | ConvPass::InputGradient => kernel_height * kernel_width * n_in.max(n_out),
        ConvPass::FilterGradient => conv.batch * out_height * out_width,
    };
    (conv, terms)
}

/// Looks at all engines, on one thread and on two, with infinities and NaN on one side; whether they met numbers.
fn check_with_specials(conv: &Conv2d, terms: usize, random: &mut Random) -> bool {
    let mut inputs: Vec<Bytes> = conv.inputs().iter().map(|(dtype, len)| random.bytes_of(*dtype, *len)).collect();
    let [operand, n_special] = [random.below(2), random.below(3)];
    let (n, size) = (conv.inputs()[operand].1, conv.dtype.size());
    for _ in 0..if n == 0 { 0 } else { n_special } {
        let (at, value) = (random.below(n), random.pick(&[f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -0.0]));
        let value = retape_runtime::Scalar::from_f64(value, conv.dtype);
        inputs[operand].get_mut()[at * size..][..size].copy_from_slice(&value.bits.to_le_bytes()[..size]);
    }
    check_on(conv, terms, &inputs);
    let (out, again) = on_one_and_two_threads(|| run(conv, &Engine::best(), &inputs));
    assert_eq!(out.get(), again.get(), "{conv:?} on one thread and on two");
    let out = out.values(conv.dtype);
    out.iter().any(|x| x.is_nan()) && out.iter().any(|x| x.is_finite())
}

/// The engines with channels as lanes and those that go group by group agree in every bit, whatever meets an edge.
#[test]
fn convolutions_in_groups_agree_with_those_group_by_group() {
    let mut random = Random(0x0def_aced);
    let (mut n_served, mut n_paired, mut n_tasks, mut n_nan) = ([0; 3], 0, 0, 0);
    for round in 0..240 {
        let pass = ConvPass::ALL[round % 3];
        let (conv, terms) = grouped_convolution(&mut random, DTYPES[round / 3 % DTYPES.len()], pass);
        let is_served = Depthwise::<f32>::new(&conv, &[]).is_some();
        n_served[round % 3] += usize::from(is_served);
        let is_paired = conv.result_channels().next_multiple_of(8).is_multiple_of(16);
        n_paired += usize::from(is_served && is_paired && pass != ConvPass::FilterGradient);
        n_tasks += usize::from(!is_served && conv.outputs()[0].1 > 0 && conv.batch > 0 && conv.has_tasks_of_groups());
        n_nan += usize::from(check_with_specials(&conv, terms, &mut random));
    }
    assert!(n_served.iter().all(|n| *n > 20), "{n_served:?} convolutions have channels as lanes");
    assert!(n_paired > 20, "{n_paired} have blocks of two vectors");
    assert!(n_tasks > 10, "{n_tasks} have groups as tasks");
    assert!(n_nan > 20, "{n_nan} results have NaN and numbers");
}

/// Depthwise convolutions with pixels half a page apart, or more: from copies of several blocks of channels, from copies
/// that reach over lines that no tap meets, in place where few taps read a pixel, and with phases that have no tap.
#[test]
fn depthwise_convolutions_agree_with_copies_of_channels() {
    let mut random = Random(0xc0_91e5);
    let shapes = [
        // Batch, sides, channels, taps, strides, padding before and after, dilation.
        (2, [14, 14], 1024, [3, 3], [1, 1], [[1, 1], [1, 1]], [1, 1]),
        (1, [9, 15], 520, [5, 3], [1, 1], [[2, 2], [1, 1]], [1, 1]),
        (1, [12, 12], 512, [3, 3], [1, 1], [[5, 5], [5, 5]], [5, 5]),
        (3, [7, 7], 512, [7, 7], [1, 1], [[0, 0], [0, 0]], [1, 1]),
        (2, [10, 11], 512, [3, 3], [2, 2], [[1, 1], [1, 1]], [1, 1]),
        (1, [13, 1], 512, [3, 1], [1, 2], [[1, 1], [1, 0]], [1, 1]),
        (2, [6, 2], 512, [3, 1], [1, 4], [[1, 1], [2, 2]], [1, 1]),
    ];
    for (batch, [height, width], channels, [kernel_height, kernel_width], stride, padding, dilation) in shapes {
        for (pass, dtype) in ConvPass::ALL.iter().flat_map(|pass| [(*pass, DType::F32), (*pass, DType::F64)]) {
            let sizes = Conv2d {
                batch,
                height,
                width,
                kernel_height,
                kernel_width,
                stride,
                padding,
                dilation,
                ..convolution(&mut random, dtype, pass)
            };
            let conv = Conv2d { groups: channels, in_channels: channels, out_channels: channels, ..sizes };
            assert!(conv.is_valid() && Depthwise::<f32>::new(&conv, &[]).is_some(), "{conv:?}");
            let [out_height, out_width] = conv.out_extent();
            let of_window = kernel_height * kernel_width;
            let terms = if pass == ConvPass::FilterGradient { batch * out_height * out_width } else { of_window };
            check_with_specials(&conv, terms, &mut random);
        }
    }
}

/// The same where each channel is a group and images are read in place: lines shorter and longer than what is computed
/// together, vectors of three lengths, taps on both sides of an image and past it.
#[test]
fn depthwise_convolutions_agree_with_those_group_by_group() {
    let mut random = Random(0xdee9_0a11);
    let (mut n_in_place, mut n_long, mut n_neighbours, mut n_copied) = ([0; 3], [0; 3], [0; 3], [0; 3]);
    let (mut n_small, mut n_nan) = (0, 0);
    for round in 0..480 {
        let pass = ConvPass::ALL[round % 3];
        // With parts of vectors, with pixels at distances that caches do not like, and so many that they are copied.
        let channels = random.pick(&[2, 3, 4, 5, 8, 12, 16, 18, 20, 27, 28, 31, 32, 36, 48, 256, 400, 512]);
        let conv = Conv2d {
            // Several images to a task of a filter's gradient, and one.
            batch: random.pick(&[1, 1, 2, 3, 17, 33]),
            height: random.pick(&[1, 2, 5, 8, 13]),
            width: random.pick(&[1, 2, 3, 5, 7, 11, 14, 19, 26]),
            kernel_height: random.pick(&[1, 2, 3, 3, 4, 5, 7]),
            kernel_width: random.pick(&[1, 2, 3, 3, 3, 4, 5, 7]),
            stride: [0; 2].map(|_| random.pick(&[1, 1, 1, 2, 3])),
            groups: channels,
            in_channels: channels,
            out_channels: channels,
            ..convolution(&mut random, DTYPES[round / 3 % DTYPES.len()], pass)
        };
        let served = Depthwise::<f32>::new(&conv, &[]);
        let is_in_place = served.is_some_and(|pass| pass.is_in_place(&Engine::best()));
        n_in_place[round % 3] += usize::from(is_in_place);
        let [height, width] = conv.out_extent();
        let of_line = if pass == ConvPass::InputGradient { conv.width } else { width * conv.stride[1] };
        n_long[round % 3] += usize::from(is_in_place && of_line / conv.stride[1] >= 8 + conv.kernel_width);
        let has_neighbours = [3, 5, 7].contains(&conv.kernel_width) && [conv.stride[1], conv.dilation[1]] == [1, 1];
        n_neighbours[round % 3] += usize::from(is_in_place && has_neighbours);
        // Floats of 16 bits are computed as `f32`.
        let pixel = channels * conv.dtype.size().max(4);
        let has_part = pass == ConvPass::FilterGradient && !channels.is_multiple_of(4);
        n_copied[round % 3] += usize::from(is_in_place && (pixel.is_multiple_of(2048) || has_part));
        let of_gradient = conv.batch * height * width;
        n_small += usize::from(is_in_place && pass == ConvPass::FilterGradient && height * width < 64);
        let of_window = conv.kernel_height * conv.kernel_width;
        let terms = if pass == ConvPass::FilterGradient { of_gradient } else { of_window };
        n_nan += usize::from(check_with_specials(&conv, terms, &mut random));
    }
    assert!(n_in_place.iter().all(|n| *n > 25), "{n_in_place:?} read their images in place");
    assert!(n_long.iter().all(|n| *n > 5), "{n_long:?} have long lines");
    assert!(n_neighbours.iter().all(|n| *n > 8), "{n_neighbours:?} have taps that share pixels");
    assert!(n_copied.iter().all(|n| *n > 8), "{n_copied:?} read copies");
    assert!(n_small > 10, "{n_small} gradients of filters are from small images");
    assert!(n_nan > 10, "{n_nan} results have NaN and numbers");
}

/// Few channels on either side: pixels or channels as lanes, chains of several lines of taps, in sums of several blocks.
#[test]
fn convolutions_of_few_channels_agree_with_their_references() {
    let mut random = Random(0xface);
    for round in 0..240 {
        let pass = ConvPass::ALL[round % 3];
        let [kernel_height, kernel_width] = [0; 2].map(|_| random.pick(&[1, 2, 3, 3, 4, 5, 6, 7]));
        let conv = Conv2d {
            height: random.pick(&[8, 9, 12, 17]),
            width: random.pick(&[6, 7, 8, 9, 15, 16, 17, 24, 31, 33, 40]),
            in_channels: random.pick(&[1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 16, 33]),
            out_channels: random.pick(&[1, 2, 3, 4, 5, 6, 7, 8, 8, 9, 16, 16, 33]),
            kernel_height,
            kernel_width,
            stride: [0; 2].map(|_| random.pick(&[1, 1, 2])),
            groups: 1,
            ..convolution(&mut random, [DType::F32, DType::F64][round / 3 % 2], pass)
        };
        check(&conv, conv.batch * conv.height * conv.width * conv.in_channels.max(conv.out_channels), &mut random);
    }
}

/// Convolutions along one line, as of sound: few channels on either side, many taps, so that chains have several blocks, a
/// stride, and lines of several pieces and of vectors that are not full.
#[test]
fn convolutions_along_a_line_agree_with_their_references() {
    let (mut random, mut n_pieces) = (Random(0x50bd), 0);
    for round in 0..75 {
        let pass = ConvPass::ALL[round % 3];
        let [kernel_width, stride] = [random.pick(&[3, 40, 80, 80]), random.pick(&[1, 2, 4])];
        let conv = Conv2d {
            batch: 1 + random.below(3),
            height: 1,
            width: random.pick(&[17, 300, 700]),
            in_channels: random.pick(&[1, 1, 2, 3, 16]),
            out_channels: random.pick(&[1, 2, 4, 16, 33]),
            kernel_height: 1,
            kernel_width,
            stride: [1, stride],
            padding: [[0, 0], [kernel_width / 2; 2]],
            dilation: [1, 1],
            groups: 1,
            ..convolution(&mut random, [DType::F32, DType::F64][usize::from(round % 5 == 4)], pass)
        };
        let (steps, n) = match pass {
            ConvPass::Forward if stride == 1 => (kernel_width * conv.in_channels, conv.out_channels),
            ConvPass::InputGradient => (kernel_width / stride * conv.out_channels, conv.in_channels),
            ConvPass::Forward | ConvPass::FilterGradient => (0, 0),
        };
        n_pieces += usize::from(steps > 256 && n < 5 && conv.width / stride > 128);
        check(&conv, conv.batch * conv.width * conv.in_channels.max(conv.out_channels) * kernel_width, &mut random);
    }
    assert!(n_pieces > 3, "{n_pieces} have several pieces and blocks");
}

/// Gradients of filters with taps that share pixels where vectors have sixteen lanes: rows that are channels or lines of
/// taps, pieces of two and three taps and taps left alone, and a dilation of a line that has no next one.
#[test]
fn filter_gradients_of_taps_that_share_pixels_agree_with_their_references() {
    let (mut random, mut n_long) = (Random(0x51de), 0);
    for round in 0..48 {
        let kernel_height = random.pick(&[1, 2, 3, 5, 7]);
        let conv = Conv2d {
            dtype: [DType::F32, DType::F64][usize::from(round % 4 == 3)],
            batch: 2 + random.below(3),
            height: 13 + random.below(6),
            width: random.pick(&[14, 17, 28, 33]),
            in_channels: random.pick(&[1, 1, 2, 3, 8, 16, 21]),
            kernel_height,
            kernel_width: [3, 4, 5, 6, 7, 2][round % 6],
            out_channels: random.pick(&[3, 8, 16, 20, 32]),
            stride: [1, random.pick(&[1, 1, 2])],
            padding: [[2, 3], [5, 4]],
            dilation: [if kernel_height == 1 { 1 << 60 } else { random.pick(&[1, 1, 2]) }, 1],
            groups: 1,
            pass: ConvPass::FilterGradient,
        };
        n_long += usize::from(conv.is_gradient_direct() && conv.out_extent()[1] > 9);
        check(&conv, conv.batch * conv.height * conv.width, &mut random);
    }
    assert!(n_long > 24, "{n_long} have taps that share pixels");
}

/// Results of channels that leave a part of a vector empty, of eight and of sixteen, with pixels as lanes where vectors have
/// sixteen of them: vectors that are not full, numbers of lines that are no multiple of a tile's, and chains of several blocks.
#[test]
fn convolutions_with_pixels_as_lanes_agree_with_their_references() {
    let mut random = Random(0xbeef);
    for round in 0..120 {
        let (pass, n) = (ConvPass::ALL[round % 2], [8, 16, 5, 7, 10, 11, 13, 20, 24, 27][round / 2 % 10]);
        let other = random.pick(&[4, 8, 16, 24, 33]);
        let is_forward = pass == ConvPass::Forward;
        let conv = Conv2d {
            dtype: DType::F32,
            batch: 4,
            height: 18 + random.below(7),
            width: if n == 8 { random.pick(&[8, 12, 16, 25, 33]) } else { random.pick(&[14, 15, 16, 28, 31, 32, 48]) },
            in_channels: if is_forward { other } else { n },
            kernel_height: 3,
            kernel_width: random.pick(&[1, 3, 3, 5]),
            out_channels: if is_forward { n } else { other },
            stride: if n == 8 && !is_forward { random.pick(&[[1, 1], [2, 2]]) } else { [1, 1] },
            padding: [[1, 1], [2, 2]],
            dilation: [1, 1],
            groups: 1,
            pass,
        };
        assert!(conv.stride != [1, 1] || conv.tiles().is_some_and(|tiles| tiles.has_whole_rows), "{conv:?} is direct");
        check(&conv, conv.kernel_height * conv.kernel_width * other, &mut random);
    }
}

/// Images of one channel, whose taps of a line are in registers, and gradients of images with a stride, two phases of which
/// share tiles, where vectors have sixteen lanes: also with infinities and NaN.
#[test]
fn convolutions_that_read_a_pixel_once_agree_with_their_references() {
    let (mut random, mut n_shaped, mut n_nan) = (Random(0x0ff5_e75e), [0; 2], 0);
    for round in 0..240 {
        let (dtype, lanes) = if round % 3 == 2 { (DType::F64, 8) } else { (DType::F32, 16) };
        let is_forward = round % 2 == 0;
        let channels = if is_forward { 1 } else { random.pick(&[1, 3, 8, 32, 70]) };
        let groups = random.pick(&[1, 1, 1, 2]);
        let [n_in, n_out] = if is_forward { [1, lanes] } else { [lanes, channels] };
        let conv = Conv2d {
            dtype,
            batch: random.pick(&[1, 2, 5]),
            height: random.pick(&[1, 2, 7, 8, 15]),
            width: random.pick(&[12, 14, 15, 16, 18, 28, 29, 32, 34, 48, 130]),
            in_channels: groups * n_in,
            kernel_height: random.pick(&[1, 2, 3, 3, 4, 5]),
            kernel_width: random.pick(if is_forward { &[3, 5, 7, 3, 4] } else { &[2, 3, 4, 5, 7] }),
            out_channels: groups * n_out,
            stride: if is_forward {
                [1 + random.below(2), 1]
            } else {
                random.pick(&[[1, 2], [2, 2], [2, 2], [2, 2], [3, 2], [2, 1], [2, 3]])
            },
            padding: [0; 2].map(|_| [random.below(3), random.below(3)]),
            dilation: [0; 2].map(|_| random.pick(&[1, 1, 1, 1, 1, 2, 3])),
            groups,
            pass: if is_forward { ConvPass::Forward } else { ConvPass::InputGradient },
        };
        let is_shaped = if is_forward {
            [3, 5].contains(&conv.kernel_width) && conv.out_extent()[1] >= 14
        } else {
            // Both phases of a line have as many outputs, taps at the same pixels, and one chain.
            let taps = conv.kernel_height.div_ceil(conv.stride[0]) * conv.kernel_width.div_ceil(2);
            let is_pair = conv.stride[1] == 2 && conv.width.is_multiple_of(2) && conv.kernel_width > 2;
            is_pair && conv.kernel_height >= conv.stride[0] && conv.dilation[0] == 1 && taps * channels <= 256
        };
        n_shaped[round % 2] += usize::from(is_shaped && conv.dilation[1] == 1);
        let terms = conv.kernel_height * conv.kernel_width * channels;
        n_nan += usize::from(check_with_specials(&conv, terms, &mut random));
    }
    assert!(n_shaped.iter().all(|n| *n > 12), "{n_shaped:?} have the shapes for it");
    assert!(n_nan > 10, "{n_nan} results have NaN and numbers");
}

/// A filter that is read where it lies gives what a packed one does, and so does one whose steps begin inside a cache line.
#[test]
fn filters_are_read_in_place_or_packed() {
    /// Words of a cache line.
    const LINE: usize = 8;
    let mut random = Random(0xf117_e25e);
    for round in 0..120 {
        let out_channels = random.pick(&[1, 2, 4, 8, 8, 12, 16, 16, 24, 32, 32, 48, 64]);
        let conv = Conv2d {
            dtype: [DType::F32, DType::F32, DType::F64][round % 3],
            batch: random.pick(&[1, 3]),
            height: random.pick(&[3, 5, 14]),
            width: random.pick(&[6, 7, 14, 15, 28, 33]),
            in_channels: random.pick(&[1, 1, 3, 8, 33, 70]),
            kernel_height: random.pick(&[1, 2, 3]),
            kernel_width: random.pick(&[2, 3, 5]),
            out_channels,
            stride: [0; 2].map(|_| random.pick(&[1, 1, 2])),
            padding: [0; 2].map(|_| [random.below(3), random.below(3)]),
            dilation: [1, 1],
            groups: 1,
            pass: ConvPass::Forward,
        };
        let [image, filter] = [0, 1].map(|n| random.bytes_of(conv.dtype, conv.inputs()[n].1));
        let packed = Engine { unpacked: false, ..Engine::best() };
        let expected = run(&conv, &packed, &[image.clone(), filter.clone()]);
        // Behind the filter there is NaN, which a further step would meet.
        let mut placed = Bytes::filled(8 * (filter.0.len() + 3 * LINE), 0xff);
        let aligned = placed.0.as_ptr().align_offset(8 * LINE);
        for first in [aligned, aligned + 1, aligned + LINE / 2] {
            placed.0[first..][..filter.0.len()].copy_from_slice(&filter.0);
            let filter_bytes = &placed.get()[8 * first..][..filter.1];
            for engine in engines() {
                let mut out = Bytes::filled(expected.1, 0xff);
                conv.run_on(&engine, &[image.get(), filter_bytes], &mut [out.get_mut()], &|_| {});
                assert_eq!(out.get(), expected.get(), "{conv:?} on {engine:?}, from word {first}");
            }
            placed.0[first..][..filter.0.len()].fill(u64::MAX);
        }
    }
}

/// Products in place of passes that would read a large filter for each image agree in every bit with these passes.
#[test]
fn convolutions_with_large_filters_agree_with_their_references() {
    let (mut random, mut n_far) = (Random(0xb16_f117), 0);
    for (round, out_channels) in [256, 233, 320, 256, 233, 320].into_iter().enumerate() {
        let pass = [ConvPass::Forward, ConvPass::InputGradient][round % 2];
        let conv = Conv2d {
            dtype: [DType::F32, DType::F32, DType::F64][round / 2],
            batch: 1 + random.below(2),
            height: 3 + random.below(3),
            width: 6 + random.below(3),
            in_channels: random.pick(&[256, 260]),
            kernel_height: 3,
            kernel_width: 3,
            out_channels,
            stride: [1, 1 + round / 2 % 2],
            padding: [0; 2].map(|_| [1, random.below(2)]),
            dilation: [1, 1 + random.below(2)],
            groups: 1,
            pass,
        };
        let width = if pass == ConvPass::Forward { conv.out_extent()[1] } else { conv.width / conv.stride[1] };
        n_far += usize::from(conv.is_direct(width) && conv.is_far());
        let terms = 9 * conv.in_channels.max(out_channels);
        check_with_specials(&conv, terms, &mut random);
    }
    assert!(n_far > 2, "{n_far} filters are far");
}

/// A random filter's gradient whose chains are long and whose channels are whole cache lines.
fn gradient_of_many_channels(random: &mut Random, dtype: DType) -> Conv2d {
    let [kernel_height, kernel_width] = random.pick(&[[1, 2], [2, 1], [2, 2], [3, 3]]);
    Conv2d {
        dtype,
        batch: random.pick(&[1, 1, 2]),
        height: 17 + random.below(12),
        width: 17 + random.below(16),
        in_channels: random.pick(&[16, 24, 32, 32, 48]),
        kernel_height,
        kernel_width,
        out_channels: random.pick(&[3, 8, 24, 32, 33]),
        stride: [random.pick(&[1, 2]), random.pick(&[1, 1, 1, 2])],
        padding: [0; 2].map(|_| [random.below(3), random.below(3)]),
        dilation: [0; 2].map(|_| random.pick(&[1, 1, 2, 3])),
        groups: 1,
        pass: ConvPass::FilterGradient,
    }
}

/// Engines that copy channels in groups, and columns to panels, agree in every bit with those that do not.
#[test]
fn filter_gradients_of_many_channels_agree_with_their_references() {
    let (mut random, mut n_grouped, mut n_far, mut n_apart) = (Random(0xca11_ab1e), 0, 0, 0);
    for round in 0..90 {
        let conv = gradient_of_many_channels(&mut random, [DType::F32, DType::F32, DType::F64][round % 3]);
        let [height, width] = conv.out_extent();
        let chain = lines_of_chain([height, width]) * width;
        let is_far = |channels: usize| channels * chain * conv.dtype.size() > 20_000;
        let is_grouped = conv.is_gradient_direct() && conv.stride[1] == 1 && conv.in_channels >= 32;
        n_grouped += usize::from(is_grouped && is_far(conv.in_channels));
        n_far += usize::from(is_grouped && is_far(conv.out_channels));
        let has_stride = conv.is_gradient_direct() && conv.stride[1] > 1;
        n_apart += usize::from(has_stride && conv.out_channels == 32 && is_far(conv.out_channels));
        check(&conv, conv.batch * height * width, &mut random);
    }
    assert!(n_grouped > 8 && n_far > 2, "{n_grouped} images have channels in groups, {n_far} cotangents lie apart");
    assert!(n_apart > 0, "no cotangent of a stride lies apart");
}

/// Gradients of filters whose partial results would be large: of few groups of images, in parts of channels and of lines of
/// taps.
#[test]
fn gradients_of_heavy_filters_agree_with_their_references() {
    let (mut random, mut n_heavy, mut n_whole) = (Random(0x4ea7), 0, 0);
    let shapes = [
        (3, [3, 3], 96, 80, 1),
        (1, [3, 3], 90, 88, 1),
        (2, [7, 5], 64, 32, 1),
        (1, [2, 3], 160, 70, 1),
        (2, [3, 3], 176, 168, 2),
        (2, [5, 5], 112, 190, 1),
    ];
    for (round, (batch, [kernel_height, kernel_width], in_channels, out_channels, groups)) in
        shapes.into_iter().enumerate()
    {
        let dtype = if round % 4 == 1 { DType::F64 } else { DType::F32 };
        let conv = Conv2d {
            dtype,
            batch,
            height: 5 + random.below(2),
            width: 9 + random.below(4),
            in_channels,
            kernel_height,
            kernel_width,
            out_channels,
            stride: [1, 1 + usize::from(round == 3)],
            padding: [[2, 3], [1 + random.below(2), 2]],
            dilation: [1, 1 + usize::from(round == 1)],
            groups,
            pass: ConvPass::FilterGradient,
        };
        let [height, width] = conv.out_extent();
        let is_heavy = conv.filter_of_group() > MOST_LIGHT && conv.is_gradient_direct();
        n_heavy += usize::from(is_heavy);
        n_whole += usize::from(is_heavy && batch > 1 && images_of_task(batch, conv.filter_of_group()) == batch);
        check_with_specials(&conv, conv.batch * height * width, &mut random);
    }
    assert!(n_heavy > 4 && n_whole > 0, "{n_heavy} filters are heavy, {n_whole} have one sum of several images");
}

/// Gradients of filters of one tap from images in place agree in every bit with those of products.
#[test]
fn filter_gradients_of_one_tap_agree_with_products() {
    let (mut random, mut n_in_place) = (Random(0x0dd_5eed), 0);
    for round in 0..60 {
        let conv = Conv2d {
            dtype: [DType::F32, DType::F32, DType::F64][round % 3],
            batch: 8 + random.below(8),
            height: 32 + random.below(8),
            width: 32 + random.below(8),
            in_channels: 2 * random.pick(&[1, 3, 8, 8, 17, 32]),
            kernel_height: 1,
            kernel_width: 1,
            out_channels: 2 * random.pick(&[1, 2, 8, 9, 16, 16, 24]),
            stride: random.pick(&[[2, 2], [2, 2], [1, 2], [2, 1], [3, 2]]),
            padding: random.pick(&[[[0; 2]; 2], [[0; 2]; 2], [[0; 2]; 2], [[0, 1], [0, 0]]]),
            dilation: [1 + random.below(2), 1],
            groups: 1 + random.below(2),
            pass: ConvPass::FilterGradient,
        };
        let [height, width] = conv.out_extent();
        n_in_place += usize::from(conv.is_gradient_in_place());
        check(&conv, conv.batch * height * width, &mut random);
    }
    assert!((12..60).contains(&n_in_place), "{n_in_place} images are read in place");
}

#[test]
fn convolutions_agree_with_their_references_where_they_are_cut() {
    let mut random = Random(5);
    // Several images in a group, several blocks of taps, an image that is larger than what a task holds, more images than
    // tasks.
    let shapes = [
        (130, 6, 2, 3, 1),
        (130, 6, 3, 9, 2),
        (21, 12, 1, 6, 1),
        (5, 25, 1, 6, 2),
        (5, 25, 4, 6, 1),
        (2, 13, 40, 33, 2),
        (1, 52, 40, 3, 1),
    ];
    for (batch, extent, in_channels, out_channels, stride) in shapes {
        for pass in [ConvPass::Forward, ConvPass::InputGradient, ConvPass::FilterGradient] {
            let conv = Conv2d {
                dtype: DType::F32,
                batch,
                height: extent,
                width: extent + 2,
                in_channels,
                kernel_height: 3,
                kernel_width: 3,
                out_channels,
                stride: [1, stride],
                padding: [[1, 1], [1, 1]],
                dilation: [1, 1],
                groups: 1,
                pass,
            };
            check(&conv, batch * extent * (extent + 2), &mut random);
        }
    }
}

/// One element that is not finite, in either operand, in the middle or at an edge, meets what lies beyond the other.
#[test]
fn convolutions_agree_with_their_references_on_what_meets_the_zeros_beyond_an_edge() {
    let mut random = Random(0xfeed);
    let mut n_nan = 0;
    for round in 0..360 {
        let pass = [ConvPass::Forward, ConvPass::InputGradient, ConvPass::FilterGradient][round % 3];
        let conv = convolution(&mut random, DTYPES[round / 3 % DTYPES.len()], pass);
        let mut inputs: Vec<Bytes> = conv.inputs().iter().map(|(dtype, len)| random.bytes_of(*dtype, *len)).collect();
        let operand = round / 3 % 2;
        let n = conv.inputs()[operand].1;
        if n == 0 {
            continue;
        }
        let (anywhere, size) = (random.below(n), conv.dtype.size());
        let at = random.pick(&[0, n - 1, anywhere]);
        let value =
            retape_runtime::Scalar::from_f64(random.pick(&[f64::INFINITY, f64::NEG_INFINITY, f64::NAN]), conv.dtype);
        inputs[operand].get_mut()[at * size..][..size].copy_from_slice(&value.bits.to_le_bytes()[..size]);
        check_on(&conv, 2000, &inputs);
        let mut out = Bytes::filled(conv.outputs()[0].1 * size, 0);
        conv.reference(&inputs.iter().map(Bytes::get).collect::<Vec<_>>(), &mut [out.get_mut()]);
        n_nan += usize::from(!value.to_f64().is_nan() && out.values(conv.dtype).iter().any(|x| x.is_nan()));
    }
    assert!(n_nan > 40, "{n_nan}: few infinities met a zero");
}

/// Taps in the padding are left out where what they meet is finite; results are those of all taps in every bit, and
/// infinities and NaN meet the zeros as before.
#[test]
fn convolutions_with_taps_in_the_padding_agree_with_their_references() {
    let mut random = Random(0x0dd5);
    let mut n_nan = 0;
    for round in 0..180 {
        let pass = [ConvPass::Forward, ConvPass::InputGradient, ConvPass::FilterGradient][round % 3];
        let [kernel_height, kernel_width] = [0; 2].map(|_| random.pick(&[1, 2, 3, 3, 3, 5, 7]));
        // Some lines of outputs meet no tap inside the image.
        let pad = |random: &mut Random, taps: usize| [0; 2].map(|_| random.below(taps + 1));
        let [in_channels, out_channels] = [0; 2].map(|_| random.pick(&[1, 3, 8, 16, 17, 32, 64]));
        let conv = Conv2d {
            dtype: random.pick(&[DType::F32, DType::F32, DType::F64, DType::F16]),
            batch: random.pick(&[1, 2, 5]),
            height: random.pick(&[1, 3, 7, 8, 14]),
            width: random.pick(&[6, 8, 10, 14, 19]),
            in_channels,
            kernel_height,
            kernel_width,
            out_channels,
            stride: [0; 2].map(|_| random.pick(&[1, 1, 1, 2])),
            padding: [pad(&mut random, kernel_height), pad(&mut random, kernel_width)],
            dilation: [0; 2].map(|_| random.pick(&[1, 1, 1, 2])),
            groups: if in_channels % 2 + out_channels % 2 == 0 { random.pick(&[1, 1, 2]) } else { 1 },
            pass,
        };
        n_nan += usize::from(check_with_specials(&conv, 49 * 64, &mut random));
    }
    assert!(n_nan > 20, "{n_nan} results with NaN beside numbers");
}
