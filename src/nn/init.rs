//! Initial values of parameters.
//!
//! Values are made on the host from a seed, so that they are the same on every machine and device.

use std::panic::Location;

use retape_runtime::{Buffer, DType, Element, Shape};

use crate::data::Random;
use crate::error::{Caller, Error, Result, ill_typed};
use crate::method::method;
use crate::tensor::Tensor;
use crate::types::TensorType;

/// The stream of random numbers that parameters are drawn from.
const PARAMETERS: u64 = 20;

/// The distribution that parameters are drawn from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Evenly from an interval around zero.
    Uniform,
    /// From a normal distribution: a sum of twelve even draws, which needs no logarithm and never leaves six standard
    /// deviations.
    Normal,
}

/// The divisor of the variance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fan {
    In,
    Mean,
}

/// A rule for initial weights: their variance is `gain` over the number of connections.
///
/// ```
/// use retape::nn::Init;
///
/// let weight = Init::he_normal().tensor(7, [3, 3, 16, 32]);
/// assert_eq!(weight.shape(), [3, 3, 16, 32]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Init {
    spread: Spread,
    fan: Fan,
    gain: f64,
    dtype: DType,
}

impl Init {
    /// Glorot and Bengio (2010), uniform: variance 1 over the mean of incoming and outgoing connections.
    pub fn glorot_uniform() -> Init {
        Init { spread: Spread::Uniform, fan: Fan::Mean, gain: 1.0, dtype: DType::F32 }
    }

    /// Glorot and Bengio (2010), normal.
    pub fn glorot_normal() -> Init {
        Init { spread: Spread::Normal, ..Init::glorot_uniform() }
    }

    /// He et al. (2015), uniform: variance 2 over the number of incoming connections; for ReLU.
    pub fn he_uniform() -> Init {
        Init { spread: Spread::Uniform, fan: Fan::In, gain: 2.0, dtype: DType::F32 }
    }

    /// He et al. (2015), normal.
    pub fn he_normal() -> Init {
        Init { spread: Spread::Normal, ..Init::he_uniform() }
    }

    /// Another factor of the variance.
    #[must_use]
    pub fn gain(self, gain: f64) -> Init {
        Init { gain, ..self }
    }

    /// Another dtype than `f32`.
    #[must_use]
    pub fn dtype(self, dtype: DType) -> Init {
        Init { dtype, ..self }
    }

    /// The standard deviation for weights of a shape: `[.., in, out]`, axes before the last two are taps of a filter.
    pub fn standard_deviation(&self, shape: &[usize]) -> f64 {
        self.deviation(connections(shape))
    }

    fn deviation(&self, [n_in, n_out]: [f64; 2]) -> f64 {
        let fan = match self.fan {
            Fan::In => n_in,
            Fan::Mean => (n_in + n_out) / 2.0,
        };
        (self.gain / fan.max(1.0)).sqrt()
    }

    /// Weights of a shape `[.., in, out]`, the same for the same seed.
    ///
    /// Poisoned if the dtype is not that of a float, the memory is refused, or the shape has more bytes than can be
    /// addressed.
    #[track_caller]
    pub fn tensor(&self, seed: u64, shape: impl Into<Shape>) -> Tensor {
        let (shape, _method) = (shape.into(), method("Init::tensor"));
        self.tensor_with(connections(&shape), seed, shape)
    }

    /// Weights of any shape, for the numbers of incoming connections of an output and outgoing ones of an input.
    ///
    /// ```
    /// use retape::nn::Init;
    ///
    /// // The transpose of a dense layer with the weight [in, out] = [4, 100].
    /// let weight = Init::he_normal().tensor_with([100.0, 4.0], 7, [4, 100]);
    /// assert!(weight.to_vec::<f32>()?.iter().all(|x| x.abs() < 6.0 * (2.0_f32 / 100.0).sqrt()));
    /// # Ok::<(), retape::Error>(())
    /// ```
    ///
    /// Poisoned as those of [`tensor`](Init::tensor).
    #[track_caller]
    pub fn tensor_with(&self, connections: [f64; 2], seed: u64, shape: impl Into<Shape>) -> Tensor {
        let (shape, at, _method) = (shape.into(), Location::caller(), method("Init::tensor_with"));
        if !self.dtype.is_float() && !self.dtype.is_half() {
            let message = format!("weights are fractions, and {} is not a float", self.dtype);
            return Tensor::poisoned(ill_typed("tensor", message, at));
        }
        let deviation = self.deviation(connections);
        let mut random = Random::new(seed, PARAMETERS, 0);
        let draw = || {
            deviation
                * match self.spread {
                    Spread::Uniform => random.uniform(-1.0, 1.0) * 3.0_f64.sqrt(),
                    Spread::Normal => (0..12).map(|_| random.unit()).sum::<f64>() - 6.0,
                }
        };
        let made = match self.dtype {
            DType::F32 => drawn::<f32>(shape, draw, at),
            // Rounded once, from the number that was drawn.
            dtype => drawn::<f64>(shape, draw, at).map(|made| made.cast(dtype)),
        };
        made.unwrap_or_else(Tensor::poisoned)
    }
}

/// A tensor of numbers that are drawn one by one.
fn drawn<T: Element>(shape: Shape, mut draw: impl FnMut() -> f64, at: Caller) -> Result<Tensor> {
    let ty = TensorType::new(T::DTYPE, shape);
    let Some(n_bytes) = ty.checked_bytes() else {
        let message = format!("{ty} has more bytes than can be addressed");
        return Err(ill_typed("tensor", message, at));
    };
    let mut buffer = Buffer::zeroed(n_bytes).map_err(|error| Error::from(error).of_op("tensor", at))?;
    buffer.as_mut_slice::<T>().iter_mut().for_each(|x| *x = T::from_f64(draw()));
    Ok(Tensor::concrete(ty, buffer))
}

/// Incoming and outgoing connections of weights `[.., in, out]`.
fn connections(shape: &[usize]) -> [f64; 2] {
    match *shape {
        [] => [1.0; 2],
        [n] => [n as f64; 2],
        [ref taps @ .., n_in, n_out] => {
            let n_taps = taps.iter().map(|&n| n as f64).product::<f64>();
            [n_in as f64 * n_taps, n_out as f64 * n_taps]
        }
    }
}

#[cfg(test)]
mod tests {
    use retape_runtime::{Element, f16};

    use super::*;

    #[test]
    fn deviations_follow_the_connections() {
        assert_eq!(Init::glorot_uniform().standard_deviation(&[30, 20]), 0.2);
        assert_eq!(Init::he_normal().standard_deviation(&[5, 5, 2, 7]), 0.2);
    }

    #[test]
    fn other_floats_are_rounded_once_and_integers_are_refused() {
        let exact = Init::he_normal().dtype(DType::F64).tensor(3, [40, 50]).to_vec::<f64>().unwrap();
        let half = Init::he_normal().dtype(DType::F16).tensor(3, [40, 50]).to_vec::<f16>().unwrap();
        assert!(half.into_iter().eq(exact.into_iter().map(Element::from_f64)));
        let error = Init::he_normal().dtype(DType::I32).tensor(3, [2, 2]).error().unwrap().to_string();
        assert!(error.starts_with("Init::tensor: ") && error.contains("i32"), "{error}");
    }

    #[test]
    fn values_have_the_deviation_and_depend_on_the_seed() {
        for init in [Init::glorot_uniform(), Init::glorot_normal(), Init::he_uniform(), Init::he_normal()] {
            let values = init.tensor(1, [100, 200]).to_vec::<f32>().unwrap();
            let square = values.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / values.len() as f64;
            let ratio = square.sqrt() / init.standard_deviation(&[100, 200]);
            assert!((ratio - 1.0).abs() < 0.02, "{init:?}: {ratio}");
            assert_ne!(values, init.tensor(2, [100, 200]).to_vec::<f32>().unwrap());
            assert_eq!(values, init.tensor(1, [100, 200]).to_vec::<f32>().unwrap());
        }
    }
}
