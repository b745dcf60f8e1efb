//! Parameters and inputs from a formula, so that any program in any language reproduces them exactly.
//!
//! Element `i` of stream `k`, in wrapping 32-bit arithmetic: `x = i * 2654435761 + k * 40503 + 12345`; twice
//! `x ^= x >> 16; x *= 0x45d9f3b`; `x ^= x >> 16`. Then `u = x / 2^31 - 1`, and the value is `base + scale * u`.

use retape::Tensor;

fn unit(i: u32, k: u32) -> f64 {
    let mut x = i.wrapping_mul(2_654_435_761).wrapping_add(k.wrapping_mul(40_503)).wrapping_add(12_345);
    for _ in 0..2 {
        x ^= x >> 16;
        x = x.wrapping_mul(0x45d_9f3b);
    }
    x ^= x >> 16;
    f64::from(x) / 2_147_483_648.0 - 1.0
}

/// Row-major elements of stream `k`.
pub(crate) fn stream(n: usize, k: u32, scale: f64, base: f64) -> Vec<f32> {
    (0..n as u32).map(|i| (base + scale * unit(i, k)) as f32).collect()
}

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
