//! Ops and their vector-Jacobian products against results that another system computed in `f64`.
//!
//! Each case of `ops.json` runs four times: in `f64` and, with inputs rounded, in `f32`; op by op and accelerated.
//! In `f64` a result may be off by 1e-10 of `max(1, |expected|)` (1.6e-14 was measured), in `f32` by the bound of its
//! family, which is about twice what was measured and includes the rounding of the inputs; the widest, 5.6e-6 for a
//! convolution that sums 144 products, is what adding them one by one in `f32` costs (6.3e-6). Integers and truth values must be equal. A call that hits must repeat the bits of
//! the call that traced.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a panic fails the test; measured errors are printed")]

mod file;
mod handlers;

use std::collections::BTreeSet;
use std::sync::LazyLock;

use file::{Case, cases, elements};
use handlers::apply;
use retape::{DType, Result, Tensor, accelerate, vjp};

static CASES: LazyLock<Vec<Case>> = LazyLock::new(cases);

/// The bound in `f64`, relative to `max(1, |expected|)`.
const F64_BOUND: f64 = 1e-10;

/// A test per family, and the table of what belongs to which.
macro_rules! families {
    ($($family:ident $bound:literal: $($op:literal)*;)*) => {
        /// Families with their ops.
        const FAMILIES: &[(&str, &[&str])] = &[$((stringify!($family), &[$($op),*])),*];

        $(
            #[test]
            fn $family() {
                run_family(&[$($op),*], $bound);
            }
        )*
    };
}

families! {
    elementwise 2e-7: "neg" "abs" "sign" "floor" "ceil" "round_half_even" "sqrt" "rsqrt" "reciprocal" "square";
    transcendental 7e-7: "exp" "exp2" "expm1" "log" "log2" "log1p" "sin" "cos" "tan" "asin" "acos" "atan" "sinh" "cosh"
        "tanh" "asinh" "acosh" "atanh";
    special 3e-7: "erf" "erfc" "lgamma";
    activations 3e-7: "sigmoid" "relu" "softplus" "silu" "gelu_tanh" "gelu_erf" "leaky_relu" "elu" "log_sigmoid";
    arithmetic 8e-7: "add" "sub" "mul" "div" "maximum" "minimum" "atan2" "pow";
    comparisons 1e-7: "lt" "le" "eq" "ne" "select" "clamp";
    folds 1.3e-6: "sum" "mean" "max" "min" "prod" "var" "logsumexp" "argmax" "argmin";
    scans 5e-7: "cumsum" "cumprod";
    softmax 4e-7: "softmax" "log_softmax";
    sorting 1e-7: "sort" "argsort";
    movement 5e-7: "reshape" "permute" "broadcast_to" "slice" "pad" "flip" "concat" "stack" "triu" "tril";
    indexing 2e-7: "take" "take_along_axis" "scatter_add" "one_hot";
    matmul 2.5e-6: "matmul" "einsum";
    linear_algebra 2e-7: "cholesky" "solve_triangular";
    convolution 1.2e-5: "conv2d" "conv_transpose2d";
    pooling 2e-7: "max_pool2d" "avg_pool2d";
    networks 1e-6: "batch_norm_train" "layer_norm" "softmax_cross_entropy" "half_mse" "attention_causal" "lstm_cell";
}

#[test]
fn every_case_belongs_to_one_family() {
    assert_eq!(CASES.len(), 272);
    let run: Vec<&str> = FAMILIES.iter().flat_map(|(_, ops)| *ops).copied().collect();
    let of_table: BTreeSet<&str> = run.iter().copied().collect();
    assert_eq!(run.len(), of_table.len(), "an op is in two families");
    let of_file: BTreeSet<&str> = CASES.iter().map(|case| &*case.op).collect();
    assert_eq!(of_table, of_file);
    let n_run: usize =
        FAMILIES.iter().map(|(_, ops)| CASES.iter().filter(|case| ops.contains(&&*case.op)).count()).sum();
    assert_eq!(n_run, 272);
}

#[test]
fn every_op_has_a_handler() {
    let known = |case: &&Case| apply(&case.op, &case.attrs, &case.inputs).is_none();
    let unknown: BTreeSet<&str> = CASES.iter().filter(known).map(|case| &*case.op).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    assert!(apply("no such op", &CASES[0].attrs, &CASES[0].inputs).is_none());
}

fn run_family(ops: &[&str], f32_bound: f64) {
    let mut failures = vec![];
    let (mut n_run, mut worst) = (0, [0.0_f64; 2]);
    for case in CASES.iter().filter(|case| ops.contains(&&*case.op)) {
        for (way, dtype) in [DType::F64, DType::F32].into_iter().enumerate() {
            let bound = if dtype == DType::F64 { F64_BOUND } else { f32_bound };
            let check = Check { case, dtype, bound };
            for (mode, results) in [("eager", check.eager()), ("accelerated", check.accelerated())] {
                match results.map_err(|e| e.to_string()).and_then(|results| check.compare(&results)) {
                    Ok(error) => worst[way] = worst[way].max(error),
                    Err(message) => failures.push(format!("{} {dtype} {mode}: {message}", case.name)),
                }
            }
        }
        n_run += 1;
    }
    println!("{n_run} cases, largest errors {:.1e} (f64) {:.1e} (f32)", worst[0], worst[1]);
    assert!(n_run >= ops.len());
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

/// A case in one dtype.
struct Check<'c> {
    case: &'c Case,
    dtype: DType,
    bound: f64,
}

/// Outputs and gradients.
type Results = (Vec<Tensor>, Vec<Tensor>);

impl Check<'_> {
    fn cast(&self, tensor: &Tensor) -> Tensor {
        if tensor.dtype() == DType::F64 { tensor.cast(self.dtype) } else { tensor.clone() }
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

    fn eager(&self) -> Result<Results> {
        let inputs = self.inputs();
        Ok((self.apply(&inputs), self.gradients(&inputs, &self.cotangents())?))
    }

    fn accelerated(&self) -> Result<Results> {
        let function = accelerate(|inputs: &Vec<Tensor>, cotangents: &Vec<Tensor>| -> Results {
            let gradients = self.gradients(inputs, cotangents).expect("a failed op is reported by the call");
            (self.apply(inputs), gradients)
        });
        let (inputs, cotangents) = (self.inputs(), self.cotangents());
        let first = function.call(&inputs, &cotangents)?;
        let second = function.call(&inputs, &cotangents)?;
        assert_eq!((function.stats().misses, function.stats().hits), (1, 1), "{}", self.case.name);
        for (one, other) in first.0.iter().chain(&first.1).zip(second.0.iter().chain(&second.1)) {
            let bits = |tensor: &Tensor| elements(tensor).into_iter().map(f64::to_bits).collect::<Vec<_>>();
            assert_eq!(bits(one), bits(other), "{}", self.case.name);
        }
        Ok(first)
    }

    /// The largest error of outputs and gradients, or what is wrong with them.
    fn compare(&self, (outputs, gradients): &Results) -> Result<f64, String> {
        let expected: Vec<&Tensor> = self.case.grads.iter().map(|(_, grad)| grad).collect();
        let of_outputs = self.compare_all("output", outputs, &self.case.outputs.iter().collect::<Vec<_>>())?;
        Ok(of_outputs.max(self.compare_all("gradient", gradients, &expected)?))
    }

    fn compare_all(&self, what: &str, actual: &[Tensor], expected: &[&Tensor]) -> Result<f64, String> {
        if actual.len() != expected.len() {
            return Err(format!("{} of {what}, expected {}", actual.len(), expected.len()));
        }
        let mut worst = 0.0_f64;
        for (position, (actual, expected)) in actual.iter().zip(expected).enumerate() {
            let error = self.error(actual, expected).map_err(|message| format!("{what} {position}: {message}"))?;
            worst = worst.max(error);
        }
        Ok(worst)
    }

    /// The largest error of a tensor, relative to `max(1, |expected|)`.
    fn error(&self, actual: &Tensor, expected: &Tensor) -> Result<f64, String> {
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
        let bound = if float { self.bound } else { 0.0 };
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
