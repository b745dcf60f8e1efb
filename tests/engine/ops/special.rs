//! Zeros, infinities, NaN, subnormal and huge numbers through every pointwise op of floats.

use retape::ops::Op;
use retape::{DType, Tensor, TensorType, accelerate};

use super::sample::{elements, graph, is_pointwise, name, tuples};

/// The ops that IEEE 754 and the definitions of rounding and choice leave no freedom in. All others are approximations,
/// of which machine code and interpreter have each their own.
const EXACT: [&str; 20] = [
    "add",
    "sub",
    "mul",
    "div",
    "rem",
    "neg",
    "relu",
    "equal",
    "not_equal",
    "less",
    "less_equal",
    "maximum",
    "minimum",
    "cast",
    "abs",
    "sign",
    "floor",
    "ceil",
    "round",
    "trunc",
];

/// How far two results are apart: zero for the same bits and for two NaN, infinite for another kind of number.
fn apart(a: f64, b: f64) -> f64 {
    if a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan() {
        return 0.0;
    }
    if a.is_finite() && b.is_finite() && a.is_sign_negative() == b.is_sign_negative() && a != 0.0 && b != 0.0 {
        return (a - b).abs() / a.abs();
    }
    f64::INFINITY
}

#[test]
fn special_values_are_the_same_in_machine_code_and_interpreter() {
    let mut worst = [(0.0, String::new()), (0.0, String::new())];
    let mut n = 0;
    for sample in Op::samples().into_iter().filter(is_pointwise) {
        for (which, dtype) in [DType::F64, DType::F32].into_iter().enumerate() {
            let inputs = tuples(dtype, sample.args.len());
            let types: Vec<TensorType> = inputs.iter().map(|x| TensorType::new(dtype, x.shape())).collect();
            if sample.op.infer(&types.iter().collect::<Vec<_>>()).is_err() {
                assert!(sample.args[0].ty.rank() > 1, "{}", name(&sample));
                continue;
            }
            let graph = graph(&sample.op, &types);
            let expected = elements(&graph.evaluate(&inputs).unwrap()[0]);
            let compiled = accelerate(|inputs: &Vec<Tensor>| graph.apply(inputs).unwrap());
            let found = elements(&compiled.call(&inputs).unwrap()[0]);
            for (k, (expected, found)) in expected.iter().zip(&found).enumerate() {
                let apart = apart(*expected, *found);
                let bound = match (EXACT.contains(&sample.op.name()), dtype) {
                    (true, _) => 0.0,
                    (false, DType::F32) => 1e-6,
                    (false, _) => 1e-13,
                };
                let at: Vec<f64> = inputs.iter().map(|x| elements(x)[k]).collect();
                assert!(apart <= bound, "{} at {at:?} as {dtype}: {expected}, {found}", name(&sample));
                if apart > worst[which].0 {
                    worst[which] = (apart, format!("{} at {at:?}", name(&sample)));
                }
            }
            n += 1;
        }
    }
    println!("furthest apart: {worst:?}");
    assert!(n > 80, "{n} ops");
}
