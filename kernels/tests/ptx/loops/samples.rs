//! Kernels of all shapes that the schedules tell apart.

use super::kernel;
use retape_kernels::ir::Kernel;

/// A kernel by name.
pub(crate) struct Sample {
    pub(crate) name: &'static str,
    pub(crate) kernel: Kernel,
}

fn sample(name: &'static str, text: &str) -> Sample {
    Sample { name, kernel: kernel(text) }
}

/// `p1 = p0 * p0 + 1` over some elements.
pub(crate) fn square(n: usize, dtype: &str) -> String {
    format!(
        "kernel (p0: {dtype}[{n}], p1: {dtype}[{n}] out) {{
            axes a0 = {n}
            %0 = load p0[a0]
            %1 = mul %0, %0
            %2 = const 1{}: {dtype}
            %3 = add %1, %2
            store p1[a0], %3
        }}",
        if dtype.starts_with('f') { ".0" } else { "" }
    )
}

/// Adds a row to all rows.
pub(crate) fn bias(rows: usize, columns: usize) -> String {
    let n = rows * columns;
    format!(
        "kernel (p0: f32[{n}], p1: f32[{columns}], p2: f32[{n}] out) {{
            axes a0 = {rows}, a1 = {columns}
            %0 = load p0[a0 * {columns} + a1]
            %1 = load p1[a1]
            %2 = add %0, %1
            store p2[a0 * {columns} + a1], %2
        }}"
    )
}

/// Sends rows to columns.
pub(crate) fn transpose(rows: usize, columns: usize, dtype: &str) -> String {
    let n = rows * columns;
    format!(
        "kernel (p0: {dtype}[{n}], p1: {dtype}[{n}] out) {{
            axes a0 = {columns}, a1 = {rows}
            %0 = load p0[a1 * {columns} + a0]
            store p1[a0 * {rows} + a1], %0
        }}"
    )
}

/// Sums over the last axis, with what a mean of squares needs after it.
pub(crate) fn rows(rows: usize, columns: usize, dtype: &str, op: &str) -> String {
    let n = rows * columns;
    format!(
        "kernel (p0: {dtype}[{n}], p1: {dtype}[{rows}] out) {{
            axes a0 = {rows}, a1 = {columns} reduced
            %0 = load p0[a0 * {columns} + a1]
            %1 = reduce {op} %0
            store p1[a0], %1
        }}"
    )
}

/// Folds over the first axis.
pub(crate) fn columns(rows: usize, columns: usize, dtype: &str, op: &str) -> String {
    let n = rows * columns;
    format!(
        "kernel (p0: {dtype}[{n}], p1: {dtype}[{columns}] out) {{
            axes a0 = {columns}, a1 = {rows} reduced
            %0 = load p0[a1 * {columns} + a0]
            %1 = reduce {op} %0
            store p1[a0], %1
        }}"
    )
}

/// Mean, variance and maximum of images per channel; the squares of all elements are written as well.
pub(crate) fn channels(images: usize, channels: usize, pixels: usize) -> String {
    let n = images * channels * pixels;
    let image = channels * pixels;
    format!(
        "kernel (p0: f32[{n}], p1: f32[{channels}], p2: f32[{channels}] out, p3: f32[{channels}] out, p4: bf16[{n}] out) {{
            axes a0 = {images} reduced, a1 = {channels}, a2 = {pixels} reduced
            %0 = load p0[a0 * {image} + a1 * {pixels} + a2]
            %1 = load p1[a1]
            %2 = sub %0, %1
            %3 = reduce sum %2
            %4 = mul %2, %2
            %5 = reduce sum %4
            %6 = reduce max %0
            %7 = cast %4: bf16
            %8 = add %3, %5
            %9 = div %8, %1
            store p2[a1], %9
            store p3[a1], %6
            store p4[a0 * {image} + a1 * {pixels} + a2], %7
        }}"
    )
}

/// A gather of rows by computed, clamped positions.
pub(crate) fn gather(table: usize, count: usize, width: usize) -> String {
    format!(
        "kernel (p0: f32[{}], p1: i32[{count}], p2: f32[{}] out) {{
            axes a0 = {count}, a1 = {width}
            %0 = load p1[a0]
            %1 = cast %0: i64
            %2 = const {width}: i64
            %3 = mul %1, %2
            %4 = index a1
            %5 = add %3, %4
            %6 = load_at p0, %5
            store p2[a0 * {width} + a1], %6
        }}",
        table * width,
        count * width
    )
}

/// Mixed precision: a 16-bit copy beside a scaled `f32`, from a misaligned part of the input.
pub(crate) fn mixed(n: usize, offset: usize) -> String {
    format!(
        "kernel (p0: bf16[{}], p1: f32[{n}], p2: f32[1], p3: f32[{n}] out, p4: f16[{n}] out) {{
            axes a0 = {n}
            %0 = load p0[a0 + {offset}]
            %1 = cast %0: f32
            %2 = load p1[a0]
            %3 = load p2[0]
            %4 = fma %1, %3, %2
            %5 = tanh %4
            %6 = cast %5: f16
            store p3[a0], %4
            store p4[a0], %6
        }}",
        n + offset
    )
}

/// A step of Adam, in place of nothing.
pub(crate) fn adam(n: usize) -> String {
    format!(
        "kernel (p0: f32[{n}], p1: f32[{n}], p2: f32[{n}], p3: f32[{n}], p4: f32[1], \
            p5: f32[{n}] out, p6: f32[{n}] out, p7: f32[{n}] out) {{
            axes a0 = {n}
            %0 = load p0[a0]
            %1 = load p1[a0]
            %2 = load p2[a0]
            %3 = load p3[a0]
            %4 = load p4[0]
            %5 = const 0.9: f32
            %6 = const 0.1: f32
            %7 = mul %2, %5
            %8 = fma %1, %6, %7
            %9 = const 0.999: f32
            %10 = const 0.001: f32
            %11 = mul %1, %1
            %12 = mul %3, %9
            %13 = fma %11, %10, %12
            %14 = sqrt %13
            %15 = const 1e-8: f32
            %16 = add %14, %15
            %17 = div %8, %16
            %18 = mul %17, %4
            %19 = sub %0, %18
            store p5[a0], %19
            store p6[a0], %8
            store p7[a0], %13
        }}"
    )
}

/// The derivative of a function with `erf` in it, in 16 bits.
pub(crate) fn gelu_backward(n: usize) -> String {
    format!(
        "kernel (p0: bf16[{n}], p1: bf16[{n}], p2: bf16[{n}] out) {{
            axes a0 = {n}
            %0 = load p0[a0]
            %1 = cast %0: f32
            %2 = load p1[a0]
            %3 = cast %2: f32
            %4 = const 0.70710677: f32
            %5 = mul %1, %4
            %6 = erf %5
            %7 = const 0.5: f32
            %8 = fma %6, %7, %7
            %9 = mul %5, %5
            %10 = neg %9
            %11 = exp %10
            %12 = const 0.3989423: f32
            %13 = mul %11, %12
            %14 = fma %13, %1, %8
            %15 = mul %14, %3
            %16 = cast %15: bf16
            store p2[a0], %16
        }}"
    )
}

/// One of each kind.
pub(crate) fn samples() -> Vec<Sample> {
    vec![
        sample("square", &square(1 << 12, "f32")),
        sample("square_large", &square(1 << 24, "f32")),
        sample("square_odd", &square(1_000_003, "f64")),
        sample("square_one", &square(1, "f32")),
        sample("square_bytes", &square(4099, "u8")),
        sample("bias", &bias(4096, 1024)),
        sample("bias_odd", &bias(77, 131)),
        sample("transpose", &transpose(1000, 300, "f32")),
        sample("transpose_half", &transpose(128, 64, "bf16")),
        sample("transpose_narrow", &transpose(3, 1000, "f32")),
        sample("rows_short", &rows(10_000, 6, "f32", "sum")),
        sample("rows", &rows(4096, 1024, "f32", "sum")),
        sample("rows_few", &rows(3, 1_000_000, "f32", "max")),
        sample("rows_odd", &rows(65, 1001, "f64", "prod")),
        sample("all", &rows(1, 10_000_019, "f32", "sum")),
        sample("all_small", &rows(1, 1000, "i64", "min")),
        sample("columns", &columns(4096, 1024, "f32", "sum")),
        sample("columns_wide", &columns(100, 1 << 20, "f32", "sum")),
        sample("columns_narrow", &columns(100_000, 3, "f64", "sum")),
        sample("columns_bytes", &columns(50, 64, "u8", "max")),
        sample("channels", &channels(16, 32, 196)),
        sample("channels_odd", &channels(3, 5, 7)),
        sample("adam", &adam(1 << 22)),
        sample("gelu_backward", &gelu_backward(1 << 24)),
        sample("gather", &gather(1000, 64, 128)),
        sample("mixed", &mixed(1 << 20, 8)),
        sample("mixed_misaligned", &mixed(1 << 16, 3)),
    ]
}
