//! Prints the speed of matrix products, convolutions and attention, in GFLOP/s: of the median run and of the best.

use std::time::Instant;

use retape_kernels::library::{Attention, AttentionPass, Conv2d, ConvPass, Library, MatMul, MatrixLayout};
use retape_runtime::{DType, Scalar};

/// One named measurement.
struct Case {
    name: String,
    dtype: DType,
    flops: f64,
    lens: Vec<usize>,
    run: Box<Run>,
}

/// Runs a kernel on its inputs and outputs.
type Run = dyn Fn(&[&[u8]], &mut [&mut [u8]]);

fn main() {
    let filter = std::env::args().nth(1).unwrap_or_default();
    for case in cases().iter().filter(|case| case.name.contains(&filter)) {
        let mut buffers: Vec<Vec<u64>> = case.lens.iter().map(|len| ramp(case.dtype, *len)).collect();
        let mut out = buffers.pop().unwrap_or_default();
        let inputs: Vec<&[u8]> = buffers.iter().map(|x| bytes(x)).collect();
        let [median, best] = times(|| (case.run)(&inputs, &mut [bytes_mut(&mut out)]));
        let speed = |seconds: f64| case.flops / seconds * 1e-9;
        let (name, micros) = (&case.name, median * 1e6);
        let line = format!("{name:40} {micros:9.1} us {:7.1} best {:7.1} GFLOP/s\n", speed(median), speed(best));
        std::io::Write::write_all(&mut std::io::stdout(), line.as_bytes()).expect("standard output is open");
    }
}

/// The products and convolutions that are measured.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for extent in [32, 64, 128, 256, 512, 1024, 2048] {
        cases.push(matmul("", MatMul::contiguous(DType::F32, &[], [extent; 3])));
    }
    for rows in [8, 24, 32, 48, 64, 96] {
        cases.push(matmul("", MatMul::contiguous(DType::F32, &[], [rows, 512, 512])));
    }
    for shape in [[128, 512, 784], [128, 10, 512], [32, 512, 128], [32, 2048, 512], [1024, 512, 128]] {
        cases.push(matmul("", MatMul::contiguous(DType::F32, &[], shape)));
    }
    for shape in [[256, 512, 784], [256, 512, 512], [128, 784, 512], [64, 768, 768], [512, 1000, 512], [8, 4096, 1024]]
    {
        cases.push(matmul("", MatMul::contiguous(DType::F32, &[], shape)));
    }
    for shape in [[64; 3], [128; 3], [256; 3], [512; 3], [1024; 3], [32, 512, 512], [8, 512, 512]] {
        cases.push(matmul("", MatMul::contiguous(DType::F64, &[], shape)));
    }
    for [m, n, k] in [[1024; 3], [512; 3], [128, 784, 512], [784, 512, 128], [512, 512, 128]] {
        let mut op = MatMul::contiguous(DType::F32, &[], [m, n, k]);
        op.b = MatrixLayout::contiguous(&[], n, k).transposed();
        cases.push(matmul(" b turned", op.clone()));
        op.b = MatrixLayout::contiguous(&[], k, n);
        op.a = MatrixLayout::contiguous(&[], k, m).transposed();
        cases.push(matmul(" a turned", op));
    }
    cases.extend(heads());
    for (batch, shape) in [(256, [64; 3]), (64, [128, 128, 64]), (64, [128, 64, 128]), (8, [256, 512, 64])] {
        cases.push(matmul("", MatMul::contiguous(DType::F32, &[batch], shape)));
    }
    for pass in [ConvPass::Forward, ConvPass::InputGradient, ConvPass::FilterGradient] {
        for [extent, channels, kernel, filters, stride] in [
            [28, 1, 5, 16, 1],
            [28, 16, 3, 32, 2],
            [14, 32, 3, 32, 1],
            [28, 16, 1, 32, 2],
            [56, 64, 3, 64, 1],
            [32, 4, 3, 4, 1],
            [32, 8, 3, 8, 1],
            [32, 16, 3, 16, 1],
            [32, 16, 3, 32, 2],
            [32, 3, 3, 16, 1],
            [16, 32, 3, 32, 1],
            [8, 64, 3, 64, 1],
        ] {
            cases.push(conv(pass, extent, channels, kernel, filters, stride));
        }
    }
    for pass in AttentionPass::ALL {
        for (causal, positions) in [false, true].into_iter().flat_map(|causal| [128, 512, 2048].map(|n| (causal, n))) {
            cases.push(attention(*pass, causal, positions));
        }
    }
    cases
}

/// Products with few columns or a short sum: layers that end in few classes, with the gradients of their inputs and of
/// their weights.
fn heads() -> Vec<Case> {
    let mut cases = Vec::new();
    for [rows, features, classes] in [
        [32, 6272, 10],
        [32, 6272, 2],
        [128, 512, 10],
        [32, 512, 10],
        [32, 64, 10],
        [128, 512, 3],
        [128, 512, 32],
        [128, 512, 100],
        [1024, 512, 100],
        [4096, 64, 10],
    ] {
        cases.push(matmul(" head", MatMul::contiguous(DType::F32, &[], [rows, classes, features])));
        let mut op = MatMul::contiguous(DType::F32, &[], [rows, features, classes]);
        op.b = MatrixLayout::contiguous(&[], features, classes).transposed();
        cases.push(matmul(" head input gradient", op.clone()));
        op = MatMul::contiguous(DType::F32, &[], [features, classes, rows]);
        op.a = MatrixLayout::contiguous(&[], rows, features).transposed();
        cases.push(matmul(" head weight gradient", op));
    }
    cases.push(matmul(" head", MatMul::contiguous(DType::F64, &[], [128, 10, 512])));
    cases
}

/// Attention of four heads of 64 features over so many positions.
fn attention(pass: AttentionPass, causal: bool, positions: usize) -> Case {
    let (batch, heads, features) = ((512 / positions).max(1), 4, 64);
    let (dtype, value_features) = (DType::F32, features);
    let op = Attention {
        dtype,
        batch,
        heads,
        queries: positions,
        keys: positions,
        features,
        value_features,
        causal,
        scale: Scalar::from_f64(0.125, dtype),
        operands: Default::default(),
        joined: false,
        pass,
    }
    .contiguous();
    let lens = op.inputs().into_iter().chain(op.outputs()).map(|(_, len)| len).collect();
    let pairs = if causal { positions * (positions + 1) / 2 } else { positions * positions };
    let n_products = if pass == AttentionPass::Forward { 2 } else { 5 };
    let flops = (2 * batch * heads * pairs * features * n_products) as f64;
    let run = Library::from(op.clone());
    Case { name: op.to_string(), dtype, flops, lens, run: Box::new(move |inputs, outputs| run.run(inputs, outputs)) }
}

fn matmul(note: &str, op: MatMul) -> Case {
    let flops = 2.0 * (op.batch.iter().product::<usize>() * op.m * op.n * op.k) as f64;
    let lens = op.inputs().into_iter().chain(op.outputs()).map(|(_, len)| len).collect();
    let name = format!("matmul {} {:?} {}x{}x{}{note}", op.dtype, op.batch, op.m, op.n, op.k);
    Case { name, dtype: op.dtype, flops, lens, run: Box::new(move |inputs, outputs| op.run(inputs, outputs)) }
}

/// A convolution of 32 images whose result has the image's extent over the stride, rounded up.
fn conv(pass: ConvPass, extent: usize, channels: usize, kernel: usize, filters: usize, stride: usize) -> Case {
    let out = extent.div_ceil(stride);
    let pad = ((out - 1) * stride + kernel).saturating_sub(extent);
    let op = Conv2d {
        dtype: DType::F32,
        batch: 32,
        height: extent,
        width: extent,
        in_channels: channels,
        kernel_height: kernel,
        kernel_width: kernel,
        out_channels: filters,
        stride: [stride; 2],
        padding: [[pad / 2, pad - pad / 2]; 2],
        dilation: [1, 1],
        groups: 1,
        pass,
    };
    let flops = 2.0 * (32 * out * out * kernel * kernel * channels * filters) as f64;
    let lens = op.inputs().into_iter().chain(op.outputs()).map(|(_, len)| len).collect();
    let name = format!("{pass:?} {extent}x{extent}x{channels} {kernel}x{kernel} to {filters} by {stride}");
    Case { name, dtype: DType::F32, flops, lens, run: Box::new(move |inputs, outputs| op.run(inputs, outputs)) }
}

/// The median and the best time of a call, after a warm-up.
fn times(mut run: impl FnMut()) -> [f64; 2] {
    let start = Instant::now();
    run();
    let runs = (0.3 / start.elapsed().as_secs_f64().max(1e-6)).clamp(5.0, 2000.0) as usize;
    let mut times: Vec<f64> = (0..runs)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    [times[times.len() / 2], times[0]]
}

/// Numbers of a dtype, `len` of them, and perhaps one more.
fn ramp(dtype: DType, len: usize) -> Vec<u64> {
    let of = |i: usize| (i % 17) as f64 / 8.0 - 1.0;
    match dtype {
        DType::F64 => (0..len).map(|i| of(i).to_bits()).collect(),
        _ => {
            let word = |i: usize| u64::from((of(i) as f32).to_bits());
            (0..len).step_by(2).map(|i| word(i) | word(i + 1) << 32).collect()
        }
    }
}

fn bytes(x: &[u64]) -> &[u8] {
    // SAFETY: any initialised words are bytes.
    unsafe { std::slice::from_raw_parts(x.as_ptr().cast(), size_of_val(x)) }
}

fn bytes_mut(x: &mut [u64]) -> &mut [u8] {
    // SAFETY: any bytes are a word, and the borrow is exclusive.
    unsafe { std::slice::from_raw_parts_mut(x.as_mut_ptr().cast(), size_of_val(x)) }
}
