//! Numbers from the formula of the workloads, as tensors of burn.

use burn::tensor::{Device, Int, Tensor, TensorData};

fn unit(i: u32, k: u32) -> f64 {
    let mut x = i.wrapping_mul(2_654_435_761).wrapping_add(k.wrapping_mul(40_503)).wrapping_add(12_345);
    for _ in 0..2 {
        x ^= x >> 16;
        x = x.wrapping_mul(0x45d_9f3b);
    }
    x ^= x >> 16;
    f64::from(x) / 2_147_483_648.0 - 1.0
}

/// A tensor of stream `k`, row-major.
pub(crate) fn tensor<const D: usize>(shape: [usize; D], k: u32, scale: f64, base: f64, device: &Device) -> Tensor<D> {
    let n: usize = shape.iter().product();
    let elements: Vec<f32> = (0..n as u32).map(|i| (base + scale * unit(i, k)) as f32).collect();
    Tensor::from_data(TensorData::new(elements, shape.to_vec()), device)
}

/// Labels `7 i mod 10`, as a column.
pub(crate) fn labels(batch: usize, device: &Device) -> Tensor<2, Int> {
    let labels: Vec<i32> = (0..batch as i32).map(|i| i * 7 % 10).collect();
    Tensor::from_data(TensorData::new(labels, vec![batch, 1]), device)
}
