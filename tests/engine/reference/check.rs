//! A case of the file, run in one dtype on one device and compared with what is expected.

use std::sync::LazyLock;

use retape::{DType, Device, Result, Tensor, accelerate, vjp};

use super::file::{Case, cases, elements};
use super::handlers::apply;
use super::pooling;

pub(crate) static CASES: LazyLock<Vec<Case>> = LazyLock::new(cases);

/// The bound in `f64`, relative to `max(1, |expected|)`.
pub(crate) const F64_BOUND: f64 = 1e-10;

/// How far the results of a case in `f32` may be off.
pub(crate) enum Bound {
    /// About twice what was measured, for outputs and gradients.
    Measured(f64),
    /// By a formula, for outputs and for gradients.
    Derived(fn(&Case) -> [f64; 2]),
}

use Bound::Measured;

impl Bound {
    /// The bounds for outputs and gradients of a case.
    pub(crate) fn of(&self, case: &Case) -> [f64; 2] {
        match self {
            Bound::Measured(bound) => [*bound; 2],
            Bound::Derived(bounds) => bounds(case),
        }
    }
}

/// Families of ops, how far results in `f32` may be off, and their ops.
pub(crate) const FAMILIES: &[(&str, Bound, &[&str])] = &[
    (
        "elementwise",
        Measured(2e-7),
        &["neg", "abs", "sign", "floor", "ceil", "round_half_even", "sqrt", "rsqrt", "reciprocal", "square"],
    ),
    (
        "transcendental",
        Measured(7e-7),
        &[
            "exp", "exp2", "expm1", "log", "log2", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh",
            "cosh", "tanh", "asinh", "acosh", "atanh",
        ],
    ),
    ("special", Measured(3e-7), &["erf", "erfc", "lgamma"]),
    (
        "activations",
        Measured(3e-7),
        &["sigmoid", "relu", "softplus", "silu", "gelu_tanh", "gelu_erf", "leaky_relu", "elu", "log_sigmoid"],
    ),
    ("arithmetic", Measured(8e-7), &["add", "sub", "mul", "div", "maximum", "minimum", "atan2", "pow"]),
    ("comparisons", Measured(1e-7), &["lt", "le", "eq", "ne", "select", "clamp"]),
    ("folds", Measured(1.3e-6), &["sum", "mean", "max", "min", "prod", "var", "logsumexp", "argmax", "argmin"]),
    ("scans", Measured(5e-7), &["cumsum", "cumprod"]),
    ("softmax", Measured(4e-7), &["softmax", "log_softmax"]),
    ("sorting", Measured(1e-7), &["sort", "argsort"]),
    (
        "movement",
        Measured(5e-7),
        &["reshape", "permute", "broadcast_to", "slice", "pad", "flip", "concat", "stack", "triu", "tril"],
    ),
    ("indexing", Measured(2e-7), &["take", "take_along_axis", "scatter_add", "one_hot"]),
    ("matmul", Measured(2.5e-6), &["matmul", "einsum"]),
    ("linear_algebra", Measured(2e-7), &["cholesky", "solve_triangular"]),
    ("convolution", Measured(1.2e-5), &["conv2d", "conv_transpose2d"]),
    ("pooling", Bound::Derived(pooling::bounds), &["max_pool2d", "avg_pool2d"]),
    (
        "networks",
        Measured(1e-6),
        &["batch_norm_train", "layer_norm", "softmax_cross_entropy", "half_mse", "attention_causal", "lstm_cell"],
    ),
];

/// A case in one dtype.
pub(crate) struct Check<'c> {
    pub(crate) case: &'c Case,
    pub(crate) dtype: DType,
    /// How far outputs and gradients may be off.
    pub(crate) bounds: [f64; 2],
    /// Where it runs.
    pub(crate) device: Device,
}

/// Outputs and gradients.
pub(crate) type Results = (Vec<Tensor>, Vec<Tensor>);

impl Check<'_> {
    fn cast(&self, tensor: &Tensor) -> Tensor {
        let cast = if tensor.dtype() == DType::F64 { tensor.cast(self.dtype) } else { tensor.clone() };
        cast.to(self.device)
    }

    fn inputs(&self) -> Vec<Tensor> {
        self.case.inputs.iter().map(|input| self.cast(input)).collect()
    }

    fn cotangents(&self) -> Vec<Tensor> {
        self.case.cotangents.iter().map(|(_, ct)| self.cast(ct)).collect()
    }

    /// The inputs to differentiate.
    fn wrt(&self, inputs: &[Tensor]) -> Vec<Tensor> {
        self.case.grads.iter().map(|&(input, _)| inputs[input].clone()).collect()
    }

    fn apply(&self, inputs: &[Tensor]) -> Vec<Tensor> {
        apply(&self.case.op, &self.case.attrs, inputs).expect("an op of the table")
    }

    /// The gradients for the cotangents of the case.
    fn gradients(&self, inputs: &[Tensor], cotangents: &Vec<Tensor>) -> Result<Vec<Tensor>> {
        let differentiated = |wrt: &Vec<Tensor>| -> Vec<Tensor> {
            let mut inputs = inputs.to_vec();
            self.case.grads.iter().zip(wrt).for_each(|(&(input, _), tensor)| inputs[input] = tensor.clone());
            let outputs = self.apply(&inputs);
            self.case.cotangents.iter().map(|&(output, _)| outputs[output].clone()).collect()
        };
        if self.case.grads.is_empty() {
            return Ok(vec![]);
        }
        Ok(vjp(differentiated, &self.wrt(inputs), cotangents)?.1)
    }

    /// Op by op.
    pub(crate) fn eager(&self) -> Result<Results> {
        let inputs = self.inputs();
        Ok((self.apply(&inputs), self.gradients(&inputs, &self.cotangents())?))
    }

    /// By a call that traces and one that hits, which must give the same bits; `second` runs the latter.
    pub(crate) fn accelerated(
        &self,
        second: impl FnOnce(&dyn Fn() -> Result<Results>) -> Result<Results>,
    ) -> Result<Results> {
        let function = accelerate(|inputs: &Vec<Tensor>, cotangents: &Vec<Tensor>| -> Results {
            let gradients = self.gradients(inputs, cotangents).expect("a failed op is reported by the call");
            (self.apply(inputs), gradients)
        });
        let (inputs, cotangents) = (self.inputs(), self.cotangents());
        let first = function.call(&inputs, &cotangents)?;
        let second = second(&|| function.call(&inputs, &cotangents))?;
        assert_eq!((function.stats().misses, function.stats().hits), (1, 1), "{}", self.case.name);
        for (one, other) in first.0.iter().chain(&first.1).zip(second.0.iter().chain(&second.1)) {
            let bits = |tensor: &Tensor| elements(tensor).into_iter().map(f64::to_bits).collect::<Vec<_>>();
            assert_eq!(bits(one), bits(other), "{}", self.case.name);
        }
        Ok(first)
    }

    /// The largest error of outputs and gradients, or the mistake in them.
    pub(crate) fn compare(&self, (outputs, gradients): &Results) -> Result<f64, String> {
        let expected: Vec<&Tensor> = self.case.grads.iter().map(|(_, grad)| grad).collect();
        let [of_outputs, of_gradients] = self.bounds;
        let worst = self.compare_all("output", outputs, &self.case.outputs.iter().collect::<Vec<_>>(), of_outputs)?;
        Ok(worst.max(self.compare_all("gradient", gradients, &expected, of_gradients)?))
    }

    fn compare_all(&self, what: &str, actual: &[Tensor], expected: &[&Tensor], bound: f64) -> Result<f64, String> {
        if actual.len() != expected.len() {
            return Err(format!("{} of {what}, expected {}", actual.len(), expected.len()));
        }
        let mut worst = 0.0_f64;
        for (position, (actual, expected)) in actual.iter().zip(expected).enumerate() {
            let error =
                self.error(actual, expected, bound).map_err(|message| format!("{what} {position}: {message}"))?;
            worst = worst.max(error);
        }
        Ok(worst)
    }

    /// The largest error of a tensor, relative to `max(1, |expected|)`.
    fn error(&self, actual: &Tensor, expected: &Tensor, bound: f64) -> Result<f64, String> {
        if let Some(error) = actual.error() {
            return Err(error.to_string());
        }
        if actual.shape() != expected.shape() {
            return Err(format!("shape {:?}, expected {:?}", actual.shape(), expected.shape()));
        }
        let float = expected.dtype() == DType::F64;
        // Only `one_hot` makes floats of no floats; its handler asks for f64.
        let made = if self.case.op == "one_hot" { DType::F64 } else { self.dtype };
        let dtype = if float { made } else { expected.dtype() };
        if actual.dtype() != dtype {
            return Err(format!("dtype {}, expected {dtype}", actual.dtype()));
        }
        let bound = if float { bound } else { 0.0 };
        let mut worst = 0.0_f64;
        for (index, (a, e)) in elements(actual).into_iter().zip(elements(expected)).enumerate() {
            let error = (a - e).abs() / e.abs().max(1.0);
            let same = a == e || a.is_nan() && e.is_nan();
            if !same && (error > bound || error.is_nan()) {
                return Err(format!("element {index} is {a:e}, expected {e:e}: off by {error:.1e}"));
            }
            worst = if same { worst } else { worst.max(error) };
        }
        Ok(worst)
    }
}
