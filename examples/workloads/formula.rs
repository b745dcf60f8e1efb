//! Parameters and inputs of the workloads as tensors: streams of numbers, in shapes.

#[path = "stream.rs"]
mod stream;

use retape::Tensor;

pub(crate) use self::stream::stream;

/// A tensor of stream `k`.
pub(crate) fn tensor(shape: &[usize], k: u32, scale: f64, base: f64) -> Tensor {
    let elements = stream(shape.iter().product(), k, scale, base);
    Tensor::from_vec(elements, shape).expect("as many elements as the shape has")
}

/// Hands out parameters: each takes the next stream, from 1 on.
#[derive(Default)]
pub(crate) struct Parameters {
    k: u32,
}

impl Parameters {
    fn next(&mut self, shape: &[usize], scale: f64, base: f64) -> Tensor {
        self.k += 1;
        tensor(shape, self.k, scale, base)
    }

    /// A weight, of scale `sqrt(3 / fan_in)`.
    pub(crate) fn weight(&mut self, shape: &[usize], fan_in: usize) -> Tensor {
        self.next(shape, (3.0 / fan_in as f64).sqrt(), 0.0)
    }

    /// A bias or an offset.
    pub(crate) fn bias(&mut self, n: usize) -> Tensor {
        self.next(&[n], 0.1, 0.0)
    }

    /// The scale of a normalisation.
    pub(crate) fn scale(&mut self, n: usize) -> Tensor {
        self.next(&[n], 0.1, 1.0)
    }

    /// A filter, generated as `[out, in, height, width]` and returned as `[height, width, in, out]`.
    pub(crate) fn filter(&mut self, [o, i, h, w]: [usize; 4]) -> Tensor {
        self.weight(&[o, i, h, w], i * h * w).permute([2, 3, 1, 0])
    }

    /// A dense weight `[out, channels * height * width]`, returned as `[height * width * channels, out]`.
    pub(crate) fn after_flatten(&mut self, out: usize, [c, h, w]: [usize; 3]) -> Tensor {
        let weight = self.weight(&[out, c * h * w], c * h * w);
        weight.reshape([out, c, h, w]).permute([2, 3, 1, 0]).reshape([h * w * c, out])
    }
}

/// Labels `7 i mod 10`, one-hot.
pub(crate) fn labels(batch: usize) -> Tensor {
    let label = |i: usize| i * 7 % 10;
    let elements: Vec<f32> = (0..batch * 10).map(|at| f32::from(u8::from(label(at / 10) == at % 10))).collect();
    Tensor::from_vec(elements, [batch, 10]).expect("ten classes")
}
