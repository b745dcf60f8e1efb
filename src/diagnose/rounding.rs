//! Whether rounding explains a difference: sums of numbers that cancel are far from exact, in whatever order they run.
//!
//! The judge is the same trace in `f64`. The results of the code are accepted if they lie about as near to the exact
//! ones as those of the ops do; a wrong rewrite, wrong code or a changed capture puts them further away.

use retape_runtime::DType;

use super::tolerance::Tolerance;
use crate::eager;
use crate::error::Result;
use crate::graph::{Graph, Node};
use crate::tensor::Tensor;
use crate::trace::Trace;
use crate::types::TensorType;

/// How many times as far from the exact result as the result of the ops the result of the code may be.
const MARGIN: f64 = 8.0;

/// Whether all that differs between `got` and `expected`, the results of a trace, is explained by rounding.
pub(crate) fn explains(
    trace: &Trace,
    args: &[&Tensor],
    expected: &[Tensor],
    got: &[Tensor],
    tolerance: &Tolerance,
) -> bool {
    let Ok(Some(exact)) = exact(trace, args) else { return false };
    exact.len() == expected.len()
        && got.iter().zip(expected).zip(&exact).all(|((got, expected), exact)| {
            if got.shape() != expected.shape() || got.dtype() != expected.dtype() {
                return false;
            }
            let leaves = [got, expected, exact].map(numbers);
            let [Some(got), Some(expected), Some(exact)] = leaves else { return is_same(got, expected) };
            let mut triples = got.iter().zip(&expected).zip(&exact);
            got.len() == expected.len()
                && got.len() == exact.len()
                && triples.all(|((got, expected), exact)| is_near(*got, *expected, *exact, tolerance))
        })
}

fn is_near(got: f64, expected: f64, exact: f64, tolerance: &Tolerance) -> bool {
    if got.to_bits() == expected.to_bits() || got == expected || (got.is_nan() && expected.is_nan()) {
        return true;
    }
    let (distance, allowed) = ((got - exact).abs(), MARGIN * (expected - exact).abs());
    // NaN is near to nothing.
    distance <= allowed || distance <= tolerance.absolute || distance <= tolerance.relative * exact.abs()
}

/// The elements of a tensor of a float dtype that `f64` exceeds.
fn numbers(tensor: &Tensor) -> Option<Vec<f64>> {
    match tensor.dtype() {
        DType::F32 | DType::F16 | DType::Bf16 => tensor.cast(DType::F64).to_vec().ok(),
        DType::F64 => tensor.to_vec().ok(),
        _ => None,
    }
}

/// Whether integers and truth values are equal.
fn is_same(got: &Tensor, expected: &Tensor) -> bool {
    let bytes = |tensor: &Tensor| crate::diagnose::check::bytes(tensor).map(<[u8]>::to_vec);
    got.dtype() == expected.dtype() && got.shape() == expected.shape() && bytes(got) == bytes(expected)
}

/// The results of a trace with `f64` in the place of `f32`; none if it cannot be had.
fn exact(trace: &Trace, args: &[&Tensor]) -> Result<Option<Vec<Tensor>>> {
    let Some(graph) = in_f64(&trace.graph) else { return Ok(None) };
    let captures = trace.captures.iter().map(|capture| &capture.tensor);
    let inputs: Vec<Tensor> = args.iter().copied().chain(captures).map(widened).collect();
    let inputs: Vec<&Tensor> = inputs.iter().collect();
    let outputs = eager::evaluate_graph(&graph, &inputs)?;
    Ok(Some(trace.results(args, outputs)))
}

fn widened(tensor: &Tensor) -> Tensor {
    if tensor.dtype() == DType::F32 { tensor.cast(DType::F64) } else { tensor.clone() }
}

/// The graph with `f64` in the place of `f32`.
fn in_f64(graph: &Graph) -> Option<Graph> {
    let wide: fn(DType) -> DType = |dtype| if dtype == DType::F32 { DType::F64 } else { dtype };
    let mut widened = Graph::default();
    for node in graph.nodes() {
        let op = node.op.in_dtypes(wide);
        let types: Vec<&TensorType> = node.args.iter().map(|&arg| widened.ty(arg)).collect();
        let ty = op.infer(&types).ok()?;
        if op.has_effect() {
            return None;
        }
        widened.push(Node { op, args: node.args.clone(), ty, at: node.at, origin: node.origin });
    }
    widened.set_outputs(graph.outputs().to_vec());
    Some(widened)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tape::Tape;
    use crate::trace::flatten;

    fn traced(f: impl Fn(&Tensor) -> Tensor, x: &Tensor) -> Trace {
        let tape = Tape::new();
        let parameter = tape.parameter(x.ty().unwrap().clone());
        flatten(&tape, || Ok(f(&parameter))).unwrap()
    }

    #[test]
    fn sums_that_cancel_are_excused_and_wrong_numbers_are_not() {
        let x = Tensor::from([1e7_f32, 0.5, -1e7, 0.25]);
        let trace = traced(|x| x.sum(..) + 0.0_f32, &x);
        let is_excused = |got: f32, expected: f32| {
            explains(&trace, &[&x], &[Tensor::from(expected)], &[Tensor::from(got)], &Tolerance::default())
        };
        // Exact is 0.75; one order of the sum loses the halves.
        assert!(is_excused(0.25, 0.0) && is_excused(0.75, 0.0) && is_excused(1.0, 0.5));
        assert!(!is_excused(0.0, 0.75) && !is_excused(100.0, 0.5) && !is_excused(f32::NAN, 0.5));
        assert!(!is_excused(1.0, 0.749_999_9));
    }

    #[test]
    fn integers_are_never_excused() {
        let x = Tensor::from([1.0_f32, 2.0]);
        let trace = traced(|x| x.argmax(0), &x);
        let excused =
            |got: i64| explains(&trace, &[&x], &[Tensor::from(1_i64)], &[Tensor::from(got)], &Tolerance::default());
        assert!(excused(1) && !excused(0));
    }
}
