//! Recurrent layers, one step at a time.

use std::panic::Location;

use super::fit::Layer;
use super::{Init, trees};
use crate::tensor::Tensor;

/// One step of a long short-term memory (Hochreiter and Schmidhuber, 1997): from input `x`, output `h` and cell `c` to
/// the new output and cell.
///
/// Weights are `[in, 4 n]` and `[n, 4 n]`, the bias `[4 n]`, in the order input gate, forget gate, candidate, output
/// gate.
#[track_caller]
pub fn lstm_cell(
    x: &Tensor,
    h: &Tensor,
    c: &Tensor,
    input_weight: &Tensor,
    hidden_weight: &Tensor,
    bias: &Tensor,
) -> (Tensor, Tensor) {
    let layer = Layer { name: "lstm_cell", at: Location::caller() };
    let refused = layer.refused_product(("the input", x), ("the input weight", input_weight));
    let refused = refused.or_else(|| layer.refused_product(("the output", h), ("the hidden weight", hidden_weight)));
    if let Some(refused) = refused {
        return (refused.clone(), refused);
    }
    let gates = x.matmul(input_weight) + h.matmul(hidden_weight) + bias;
    let parts = gates.chunk(-1, 4);
    let [input, forget, candidate, output] = &parts[..] else { return (gates.clone(), gates) };
    let cell = forget.sigmoid() * c + input.sigmoid() * candidate.tanh();
    (output.sigmoid() * cell.tanh(), cell)
}

/// A long short-term memory of `n` cells.
///
/// ```
/// use retape::{Tensor, nn::Lstm};
///
/// let lstm = Lstm::new(1, 3, 5);
/// let (h, c) = (Tensor::zeros([2, 5]), Tensor::zeros([2, 5]));
/// let (h, c) = lstm.apply(&Tensor::ones([2, 3]), &h, &c);
/// assert_eq!((h.shape(), c.shape()), (&[2, 5][..], &[2, 5][..]));
/// ```
#[derive(Clone, Debug)]
pub struct Lstm {
    /// `[in, 4 n]`.
    pub input_weight: Tensor,
    /// `[n, 4 n]`.
    pub hidden_weight: Tensor,
    /// `[4 n]`.
    pub bias: Tensor,
}

trees! {
    Lstm { input_weight, hidden_weight, bias }
}

impl Lstm {
    /// Glorot's uniform weights and zero bias.
    pub fn new(seed: u64, n_in: usize, n: usize) -> Lstm {
        let init = Init::glorot_uniform();
        Lstm {
            input_weight: init.tensor(seed, [n_in, 4 * n]),
            hidden_weight: init.tensor(seed.wrapping_add(1), [n, 4 * n]),
            bias: Tensor::zeros([4 * n]),
        }
    }

    /// One step: from input, output and cell to the new output and cell.
    #[track_caller]
    pub fn apply(&self, x: &Tensor, h: &Tensor, c: &Tensor) -> (Tensor, Tensor) {
        lstm_cell(x, h, c, &self.input_weight, &self.hidden_weight, &self.bias)
    }
}
