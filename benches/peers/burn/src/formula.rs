//! Numbers from the formula of the workloads, as tensors of burn.

#[path = "../../../../examples/workloads/stream.rs"]
mod stream;

use burn::tensor::{Device, Int, Tensor, TensorData};

use self::stream::stream;

/// A tensor of stream `k`, row-major.
pub(crate) fn tensor<const D: usize>(shape: [usize; D], k: u32, scale: f64, base: f64, device: &Device) -> Tensor<D> {
    let elements = stream(shape.iter().product(), k, scale, base);
    Tensor::from_data(TensorData::new(elements, shape.to_vec()), device)
}

/// Labels `7 i mod 10`, as a column.
pub(crate) fn labels(batch: usize, device: &Device) -> Tensor<2, Int> {
    let labels: Vec<i32> = (0..batch as i32).map(|i| i * 7 % 10).collect();
    Tensor::from_data(TensorData::new(labels, vec![batch, 1]), device)
}
