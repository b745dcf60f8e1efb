//! Library kernels that only move or pass over memory: microseconds, and the part of this machine's copy bandwidth.
//! Words as arguments choose the families whose names contain one of them.

#![allow(clippy::print_stdout, reason = "a program for people")]

use std::time::Instant;

use retape_kernels::MachineLimits;
use retape_kernels::library::{
    ArgReduce, Conv2d, ConvPass, Extreme, Library, Pool2d, PoolKind, PoolPass, ScatterAdd, Sort, Transpose,
};
use retape_runtime::{Buffer, DType, Element};

/// The rows of a base to which updates are added.
const ROWS: usize = 2003;

fn filled(dtype: DType, len: usize) -> Buffer {
    // In no order that a processor would foresee.
    let values = (0..len).map(|i| (i * 7919 % 10_007) as f64 * 1e-4 + 0.5);
    match dtype {
        DType::F32 => Buffer::copy_of(&values.map(f32::from_f64).collect::<Vec<_>>()).expect("there is memory"),
        DType::F64 => Buffer::copy_of(&values.collect::<Vec<_>>()).expect("there is memory"),
        // Rows that indices choose in no order a processor would foresee.
        DType::I32 => Buffer::copy_of(&(0..len as i32).map(|i| i * 7919 % ROWS as i32).collect::<Vec<_>>())
            .expect("there is memory"),
        _ => Buffer::zeroed(len * dtype.size()).expect("there is memory"),
    }
}

/// Prints the median time of a kernel, and the least.
fn measure(name: &str, kernel: &Library, copy_bytes: f64) {
    let inputs: Vec<Buffer> = kernel.inputs().into_iter().map(|(dtype, len)| filled(dtype, len)).collect();
    let mut outputs: Vec<Buffer> = kernel.outputs().into_iter().map(|(dtype, len)| filled(dtype, len)).collect();
    let bytes: usize = inputs.iter().chain(&outputs).map(|buffer| buffer.bytes().len()).sum();
    let inputs: Vec<&[u8]> = inputs.iter().map(Buffer::bytes).collect();
    let mut call = || kernel.run(&inputs, &mut outputs.iter_mut().map(Buffer::bytes_mut).collect::<Vec<_>>());
    let start = Instant::now();
    call();
    let repeats = (2e-3 / start.elapsed().as_secs_f64()).clamp(1.0, 1e5) as usize;
    let mut times: Vec<f64> = (0..15)
        .map(|_| {
            let start = Instant::now();
            (0..repeats).for_each(|_| call());
            start.elapsed().as_secs_f64() / repeats as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let (median, least) = (times[times.len() / 2], times[0]);
    println!(
        "{name:44} {:10.2} us (least {:10.2}) {:6.1} GB/s {:4.0} %",
        median * 1e6,
        least * 1e6,
        bytes as f64 / median * 1e-9,
        bytes as f64 / median / copy_bytes * 100.0
    );
}

fn depthwise([batch, side, channels]: [usize; 3], by: [usize; 2], pass: ConvPass) -> Library {
    convolution([batch, side, channels, channels], by, channels, pass)
}

fn convolution(
    [batch, side, in_channels, out_channels]: [usize; 4],
    [kernel, stride]: [usize; 2],
    groups: usize,
    pass: ConvPass,
) -> Library {
    Library::Conv2d(Conv2d {
        dtype: DType::F32,
        batch,
        height: side,
        width: side,
        in_channels,
        kernel_height: kernel,
        kernel_width: kernel,
        out_channels,
        stride: [stride; 2],
        padding: [[kernel / 2; 2]; 2],
        dilation: [1, 1],
        groups,
        pass,
    })
}

fn pool(
    [batch, side, channels]: [usize; 3],
    [window, stride, padding]: [usize; 3],
    pass: PoolPass,
    kind: PoolKind,
) -> Library {
    Library::Pool2d(Pool2d {
        dtype: DType::F32,
        batch,
        height: side,
        width: side,
        channels,
        window: [window; 2],
        stride: [stride; 2],
        padding: [[padding; 2]; 2],
        kind,
        pass,
    })
}

/// Adds poolings by windows side by side, by windows that move on by one row and column, and by those in between.
fn add_pools(kernels: &mut Vec<(String, Library)>) {
    for (extent, shape) in [
        ([1, 32, 16], [2, 2, 0]),
        ([16, 32, 16], [2, 2, 0]),
        ([64, 32, 16], [2, 2, 0]),
        ([8, 64, 3], [7, 1, 0]),
        ([8, 64, 1], [3, 1, 1]),
        ([8, 14, 256], [3, 1, 1]),
        ([8, 28, 64], [5, 1, 2]),
        ([1, 7, 512], [3, 1, 1]),
        ([8, 56, 64], [3, 2, 1]),
        ([8, 64, 1], [3, 2, 1]),
        ([1, 56, 512], [28, 28, 0]),
    ] {
        for (pass, kind) in [
            (PoolPass::Forward, PoolKind::Max),
            (PoolPass::Gradient, PoolKind::Max),
            (PoolPass::Forward, PoolKind::Sum),
            (PoolPass::Gradient, PoolKind::Sum),
        ] {
            let name = format!("pool {} {} {extent:?} by {shape:?}", kind.name(), pass.name());
            kernels.push((name, pool(extent, shape, pass, kind)));
        }
    }
}

/// Adds sums of rows at the places that indices name, for rows of different lengths.
fn add_scatters(kernels: &mut Vec<(String, Library)>) {
    for (n_indices, inner) in
        [(1 << 16, 1), (1 << 16, 4), (40_000, 12), (40_000, 16), (20_000, 20), (20_000, 32), (10_000, 64), (4096, 256)]
    {
        for along in [false, true] {
            let scatter = ScatterAdd {
                dtype: DType::F32,
                index_dtype: DType::I32,
                outer: 1,
                len: ROWS,
                inner,
                n_indices,
                along,
                from_zeros: true,
            };
            let indices = if along { "elements of rows" } else { "rows" };
            kernels.push((format!("scatter_add {n_indices} {indices} of {inner}"), Library::ScatterAdd(scatter)));
        }
    }
}

/// Adds searches for the largest element of lines, and of columns.
fn add_searches(kernels: &mut Vec<(String, Library)>) {
    for [outer, len, inner] in
        [[65_536, 10, 1], [16_384, 3, 1], [16_384, 24, 1], [4096, 100, 1], [1000, 1000, 1], [1, 1000, 1000]]
    {
        let search = ArgReduce { dtype: DType::F32, outer, len, inner, kind: Extreme::Max };
        kernels.push((format!("arg_reduce {outer} x {len} x {inner}"), Library::ArgReduce(search)));
    }
}

/// Adds selections of the first elements of lines, and of columns.
fn add_selections(kernels: &mut Vec<(String, Library)>) {
    for (dtype, [outer, len, inner, kept]) in [
        (DType::F32, [256, 1024, 1, 1]),
        (DType::F32, [256, 1024, 1, 5]),
        (DType::F32, [256, 1024, 1, 16]),
        (DType::F32, [256, 1024, 1, 100]),
        (DType::F32, [10_000, 100, 1, 1]),
        (DType::F32, [10_000, 100, 1, 5]),
        (DType::F32, [10_000, 100, 1, 8]),
        (DType::F32, [10_000, 64, 1, 2]),
        (DType::F32, [2000, 300, 1, 16]),
        (DType::F32, [8, 32_000, 1, 8]),
        (DType::F32, [8, 32_000, 1, 50]),
        (DType::F32, [1, 200_000, 1, 50]),
        (DType::F32, [4, 1000, 50, 8]),
        (DType::F64, [256, 1024, 1, 16]),
    ] {
        let sort = Sort { dtype, outer, len, inner, descending: true, kept };
        kernels.push((format!("sort {dtype} {outer} x {len} x {inner}, {kept} of them"), Library::Sort(sort)));
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let limits = MachineLimits::measured();
    println!("{} threads, copies {:.1} GB/s", retape_runtime::n_threads(), limits.copy_bytes * 1e-9);
    let mut kernels: Vec<(String, Library)> = vec![];
    for (dtype, shapes) in [
        (
            DType::F32,
            &[[16, 1024], [64, 1024], [256, 1024], [1024, 1024], [2048, 1024], [4096, 1024], [16384, 1024]][..],
        ),
        (DType::F32, &[[1000, 1000], [1024, 16], [3000, 1001], [16384, 64], [300, 7], [1024, 4096]]),
        (DType::F64, &[[16, 1024], [256, 1024], [4096, 1024]]),
        (DType::F16, &[[16, 1024], [256, 1024], [4096, 1024]]),
        (DType::U8, &[[256, 1024], [4096, 1024]]),
    ] {
        for &[rows, cols] in shapes {
            let name = format!("transpose {dtype} {rows} x {cols}");
            kernels.push((name, Library::Transpose(Transpose::contiguous(dtype, [1, rows, cols]))));
        }
    }
    let dtype = DType::F32;
    kernels
        .push(("transpose 64 of f32 128 x 64".into(), Library::Transpose(Transpose::contiguous(dtype, [64, 128, 64]))));
    kernels
        .push(("transpose 512 of f32 32 x 32".into(), Library::Transpose(Transpose::contiguous(dtype, [512, 32, 32]))));
    for &pass in ConvPass::ALL {
        for (extent, shape) in [
            ([16, 32, 16], [3, 1]),
            ([16, 32, 32], [3, 1]),
            ([16, 32, 96], [3, 1]),
            ([1, 32, 96], [3, 1]),
            ([16, 56, 96], [3, 1]),
            ([16, 14, 384], [3, 1]),
            ([16, 7, 384], [3, 1]),
            ([16, 112, 64], [3, 2]),
            ([16, 28, 20], [5, 1]),
        ] {
            let name = format!("depthwise {} {extent:?} by {shape:?}", pass.name());
            kernels.push((name, depthwise(extent, shape, pass)));
        }
    }
    for &pass in ConvPass::ALL {
        for (extent, shape) in [
            ([32, 28, 1, 16], [5, 1]),
            ([32, 28, 16, 32], [3, 2]),
            ([32, 28, 16, 32], [1, 2]),
            ([32, 14, 32, 32], [3, 1]),
            ([16, 32, 16, 16], [3, 1]),
            ([32, 32, 3, 16], [3, 1]),
            ([100, 16, 8, 16], [3, 1]),
            ([100, 32, 1, 8], [3, 1]),
            ([100, 16, 8, 16], [4, 2]),
            ([16, 16, 64, 64], [3, 1]),
            ([8, 14, 128, 128], [3, 1]),
        ] {
            let name = format!("convolution {} {extent:?} by {shape:?}", pass.name());
            kernels.push((name, convolution(extent, shape, 1, pass)));
        }
    }
    add_pools(&mut kernels);
    add_scatters(&mut kernels);
    add_searches(&mut kernels);
    add_selections(&mut kernels);
    for (name, kernel) in &kernels {
        if words.is_empty() || words.iter().any(|word| name.contains(word.as_str())) {
            measure(name, kernel, limits.copy_bytes);
        }
    }
}
