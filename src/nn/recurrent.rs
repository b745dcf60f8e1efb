//! Recurrent layers: one step, and sequences step by step.
//!
//! A sequence is `[batch, time, features]`. Its steps are recorded one after another, so that a trace grows with their
//! number, and a new length is a new signature.

use std::panic::Location;

use retape_runtime::{Scalar, Shape};

use super::Init;
use super::fit::refused_product;
use crate::error::Caller;
use crate::method::method;
use crate::ops::{Splat, stack};
use crate::tensor::Tensor;
use crate::tree::Tree;

/// Steps of a sequence at most: each is recorded.
const MOST_STEPS: usize = 1 << 20;

/// One step of a long short-term memory (Hochreiter and Schmidhuber, 1997): from input `x`, output `h` and cell `c` to
/// the new output and cell.
///
/// Weights are `[in, 4 n]` and `[n, 4 n]`, the bias `[4 n]`, in the order input gate, forget gate, candidate, output
/// gate.
///
/// ```
/// use retape::{Tensor, nn};
///
/// let (x, h) = (Tensor::ones([2, 3]), Tensor::zeros([2, 5]));
/// let (w, u, b) = (Tensor::zeros([3, 20]), Tensor::zeros([5, 20]), Tensor::zeros([20]));
/// let (h, c) = nn::lstm_cell(&x, &h, &h, &w, &u, &b);
/// assert_eq!((h.shape(), c.shape()), (&[2, 5][..], &[2, 5][..]));
/// ```
#[track_caller]
pub fn lstm_cell(
    x: &Tensor,
    h: &Tensor,
    c: &Tensor,
    input_weight: &Tensor,
    hidden_weight: &Tensor,
    bias: &Tensor,
) -> (Tensor, Tensor) {
    let _method = method("lstm_cell");
    let refused = refused_product(("the input", x), ("the input weight", input_weight));
    let refused = refused.or_else(|| refused_product(("the output", h), ("the hidden weight", hidden_weight)));
    if let Some(refused) = refused {
        return (refused.clone(), refused);
    }
    let gates = x.matmul(input_weight) + h.matmul(hidden_weight) + bias;
    let [input, forget, candidate, output] = gates.chunk_array(-1);
    let cell = forget.sigmoid() * c + input.sigmoid() * candidate.tanh();
    (output.sigmoid() * cell.tanh(), cell)
}

/// One step of a gated recurrent unit (Cho et al., 2014): from input `x` and output `h` to the new output.
///
/// Weights are `[in, 3 n]` and `[n, 3 n]`, the bias `[3 n]`, in the order reset gate, update gate, candidate. The reset
/// gate applies to the product of `h` and its weight plus `candidate_bias`, `[n]`, as in PyTorch, cuDNN and the
/// paper's first version:
///
/// `r = σ(x Wr + h Ur + br)`, `z = σ(x Wz + h Uz + bz)`, `m = tanh(x Wm + bm + r (h Um + bh))`, `h' = (1 - z) m + z h`.
///
/// ```
/// use retape::{Tensor, nn};
///
/// let (x, h) = (Tensor::ones([2, 3]), Tensor::ones([2, 5]));
/// let (w, u, b) = (Tensor::zeros([3, 15]), Tensor::zeros([5, 15]), Tensor::zeros([15]));
/// let h = nn::gru_cell(&x, &h, &w, &u, &b, &Tensor::zeros([5]));
/// assert_eq!(h.to_vec::<f32>()?, [0.5; 10]); // the update gate is half open
/// # Ok::<(), retape::Error>(())
/// ```
#[track_caller]
pub fn gru_cell(
    x: &Tensor,
    h: &Tensor,
    input_weight: &Tensor,
    hidden_weight: &Tensor,
    bias: &Tensor,
    candidate_bias: &Tensor,
) -> Tensor {
    let _method = method("gru_cell");
    let refused = refused_product(("the input", x), ("the input weight", input_weight));
    let refused = refused.or_else(|| refused_product(("the output", h), ("the hidden weight", hidden_weight)));
    if let Some(refused) = refused {
        return refused;
    }
    let [x_reset, x_update, x_candidate] = (x.matmul(input_weight) + bias).chunk_array(-1);
    let [h_reset, h_update, h_candidate] = h.matmul(hidden_weight).chunk_array(-1);
    let (reset, update) = ((x_reset + h_reset).sigmoid(), (x_update + h_update).sigmoid());
    let candidate = (x_candidate + reset * (h_candidate + candidate_bias)).tanh();
    &candidate + update * (h - &candidate)
}

/// A long short-term memory of `n` cells.
///
/// ```
/// use retape::{Tensor, nn::Lstm};
///
/// let lstm = Lstm::new(1, 3, 5);
/// let x = Tensor::ones([2, 7, 3]); // two sequences of seven steps
/// let (outputs, (h, c)) = lstm.apply(&x, None);
/// assert_eq!((outputs.shape(), h.shape(), c.shape()), (&[2, 7, 5][..], &[2, 5][..], &[2, 5][..]));
/// let (_, (_h, _c)) = lstm.apply(&x, &(h, c)); // goes on
/// ```
#[derive(Clone, Debug, Tree)]
pub struct Lstm {
    /// `[in, 4 n]`.
    pub input_weight: Tensor,
    /// `[n, 4 n]`.
    pub hidden_weight: Tensor,
    /// `[4 n]`.
    pub bias: Tensor,
}

/// A gated recurrent unit of `n` cells; see [`gru_cell`].
///
/// ```
/// use retape::{Tensor, nn::Gru};
///
/// let gru = Gru::new(1, 3, 5);
/// let x = Tensor::ones([2, 7, 3]); // two sequences of seven steps
/// let (outputs, h) = gru.apply(&x, None);
/// assert_eq!((outputs.shape(), h.shape()), (&[2, 7, 5][..], &[2, 5][..]));
/// let (_, _h) = gru.apply(&x, &h); // goes on
/// ```
#[derive(Clone, Debug, Tree)]
pub struct Gru {
    /// `[in, 3 n]`.
    pub input_weight: Tensor,
    /// `[n, 3 n]`.
    pub hidden_weight: Tensor,
    /// `[3 n]`.
    pub bias: Tensor,
    /// `[n]`: added to the hidden part of the candidate, to which the reset gate applies.
    pub candidate_bias: Tensor,
}

impl Lstm {
    /// Glorot's uniform weights and zero bias.
    #[track_caller]
    pub fn new(seed: u64, n_in: usize, n: usize) -> Lstm {
        let init = Init::glorot_uniform();
        // If that does not fit, it is still more than can be addressed.
        let gates = n.saturating_mul(4);
        Lstm {
            input_weight: init.tensor(seed, [n_in, gates]),
            hidden_weight: init.tensor(seed.wrapping_add(1), [n, gates]),
            bias: Tensor::zeros([gates]),
        }
    }

    /// One step: from input `[batch, in]`, output and cell to the new output and cell, `[batch, n]`.
    ///
    /// ```
    /// # use retape::{Tensor, nn::Lstm};
    /// let zeros = Tensor::zeros([2, 5]);
    /// let (h, c) = Lstm::new(1, 3, 5).step(&Tensor::ones([2, 3]), (&zeros, &zeros));
    /// assert_eq!((h.shape(), c.shape()), (&[2, 5][..], &[2, 5][..]));
    /// ```
    #[track_caller]
    pub fn step(&self, x: &Tensor, (h, c): (&Tensor, &Tensor)) -> (Tensor, Tensor) {
        let _method = method("Lstm::step");
        lstm_cell(x, h, c, &self.input_weight, &self.hidden_weight, &self.bias)
    }

    /// The outputs of all steps of sequences `[batch, time, in]`, as `[batch, time, n]`, and the last output and cell,
    /// `[batch, n]`; from an initial output and cell, or from zeros.
    ///
    /// Poisoned if a sequence has more than 2^20 steps, since each is recorded.
    #[track_caller]
    pub fn apply<'s>(
        &self,
        x: &Tensor,
        initial: impl Into<Option<&'s (Tensor, Tensor)>>,
    ) -> (Tensor, (Tensor, Tensor)) {
        let _method = method("Lstm::apply");
        let (at, weight) = (Location::caller(), &self.hidden_weight);
        let n_steps = match n_steps(x, at) {
            Ok(n_steps) => n_steps,
            Err(poisoned) => return (poisoned.clone(), (poisoned.clone(), poisoned)),
        };
        let zero = || zeros(x, &[x.extent(0), weight.extent(0)], weight, at);
        let (mut h, mut c) = initial.into().cloned().unwrap_or_else(|| (zero(), zero()));
        let mut outputs = Vec::with_capacity(n_steps);
        for time in 0..n_steps {
            (h, c) = self.step(&x.at((.., time)), (&h, &c));
            outputs.push(h.clone());
        }
        (in_time(&outputs, x, weight, at), (h, c))
    }
}

impl Gru {
    /// Glorot's uniform weights and zero biases.
    #[track_caller]
    pub fn new(seed: u64, n_in: usize, n: usize) -> Gru {
        let init = Init::glorot_uniform();
        // If that does not fit, it is still more than can be addressed.
        let gates = n.saturating_mul(3);
        Gru {
            input_weight: init.tensor(seed, [n_in, gates]),
            hidden_weight: init.tensor(seed.wrapping_add(1), [n, gates]),
            bias: Tensor::zeros([gates]),
            candidate_bias: Tensor::zeros([n]),
        }
    }

    /// One step: from input `[batch, in]` and output `[batch, n]` to the new output.
    ///
    /// ```
    /// # use retape::{Tensor, nn::Gru};
    /// let h = Gru::new(1, 3, 5).step(&Tensor::ones([2, 3]), &Tensor::zeros([2, 5]));
    /// assert_eq!(h.shape(), [2, 5]);
    /// ```
    #[track_caller]
    pub fn step(&self, x: &Tensor, h: &Tensor) -> Tensor {
        let _method = method("Gru::step");
        gru_cell(x, h, &self.input_weight, &self.hidden_weight, &self.bias, &self.candidate_bias)
    }

    /// The outputs of all steps of sequences `[batch, time, in]`, as `[batch, time, n]`, and the last one, `[batch, n]`;
    /// from an initial output, or from zeros.
    ///
    /// Poisoned if a sequence has more than 2^20 steps, since each is recorded.
    #[track_caller]
    pub fn apply<'s>(&self, x: &Tensor, initial: impl Into<Option<&'s Tensor>>) -> (Tensor, Tensor) {
        let _method = method("Gru::apply");
        let (at, weight) = (Location::caller(), &self.hidden_weight);
        let n_steps = match n_steps(x, at) {
            Ok(n_steps) => n_steps,
            Err(poisoned) => return (poisoned.clone(), poisoned),
        };
        let mut h = initial.into().cloned().unwrap_or_else(|| zeros(x, &[x.extent(0), weight.extent(0)], weight, at));
        let mut outputs = Vec::with_capacity(n_steps);
        for time in 0..n_steps {
            h = self.step(&x.at((.., time)), &h);
            outputs.push(h.clone());
        }
        (in_time(&outputs, x, weight, at), h)
    }
}

/// The number of steps of sequences; else the poisoned result.
fn n_steps(x: &Tensor, at: Caller) -> Result<usize, Tensor> {
    match (x.error(), x.shape()) {
        (None, &[_, n_steps, _]) if n_steps > MOST_STEPS => {
            let message = format!("{} has {n_steps} steps, but {MOST_STEPS} at most are recorded", x.type_text());
            Err(x.refused(message, at))
        }
        (None, &[_, n_steps, _]) => Ok(n_steps),
        _ => Err(x.refused(format!("{} must be [batch, time, features]", x.type_text()), at)),
    }
}

/// Outputs along an axis of time; of no steps, an empty tensor.
#[track_caller]
fn in_time(outputs: &[Tensor], x: &Tensor, weight: &Tensor, at: Caller) -> Tensor {
    match outputs {
        [] => zeros(x, &[x.extent(0), 0, weight.extent(0)], weight, at),
        _ => stack(&outputs.iter().collect::<Vec<_>>(), 1),
    }
}

/// Zeros of the dtype of a weight, as a constant of the trace that the input or the weight belongs to.
fn zeros(x: &Tensor, shape: &[usize], weight: &Tensor, at: Caller) -> Tensor {
    let zero = Splat { value: Scalar { dtype: weight.dtype(), bits: 0 }, shape: Shape::new(shape) };
    if x.is_traced() { x.nullary(zero, at) } else { weight.nullary(zero, at) }
}
