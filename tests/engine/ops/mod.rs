//! Checks of every op, made from its samples: an op that is added later is checked without being named here.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a panic fails the test; measured errors are printed")]

mod agreement;
mod calls;
mod derivatives;
mod halves;
mod sample;
mod special;

use std::collections::HashSet;

use derivatives::STEP;
use retape::ops::Op;
use retape::{DType, Graph, Tensor, TensorType};
use sample::{arguments, graph, name, result, types};

/// A parameter is applied to nothing, a call is of something, and the derivative of `stop_gradient` is not that of its
/// function.
const WITHOUT_SAMPLES: [&str; 3] = ["parameter", "call", "stop_gradient"];

/// Takes any number of arguments but none.
const VARIADIC: &str = "concat";

#[test]
fn every_op_has_samples() {
    let sampled: HashSet<&str> = Op::samples().iter().map(|sample| sample.op.name()).collect();
    for name in Op::NAMES {
        assert_eq!(sampled.contains(name), !WITHOUT_SAMPLES.contains(name), "{name}");
    }
}

/// Kinks are where an element is zero, equal to another of its argument, or equal to its partner in another argument.
#[test]
fn sampled_values_keep_away_from_kinks() {
    for sample in Op::samples() {
        let arguments = arguments(&sample);
        let of = |x: &Tensor| if x.dtype() == DType::F64 { sample::elements(x) } else { vec![] };
        let floats: Vec<Vec<f64>> = arguments.iter().map(of).collect();
        for (x, arg) in floats.iter().zip(&sample.args) {
            assert!(x.iter().all(|x| arg.range.contains(x) && x.abs() > 2.0 * STEP), "{}: {x:?}", name(&sample));
            let mut sorted = x.clone();
            sorted.sort_by(f64::total_cmp);
            // Each value moves by two steps at most.
            let apart = sorted.windows(2).all(|pair| pair[1] - pair[0] > 4.0 * STEP);
            assert!(apart, "{}: {sorted:?}", name(&sample));
        }
        if let [x, y, ..] = &floats[..] {
            let apart = x.iter().zip(y).all(|(x, y)| (x - y).abs() > 4.0 * STEP);
            assert!(apart, "{}: {x:?}, {y:?}", name(&sample));
        }
    }
}

#[test]
fn text_reads_back() {
    for sample in Op::samples() {
        let graph = graph(&sample.op, &types(&sample));
        graph.verify().unwrap();
        let text = graph.to_string();
        assert_eq!(text.parse::<Graph>().unwrap_or_else(|e| panic!("{e} in\n{text}")), graph);
        assert_eq!(Op::parse(sample.op.name(), &sample.op.attributes()), Ok(sample.op));
    }
}

#[test]
fn wrong_numbers_of_arguments_are_refused() {
    for sample in Op::samples() {
        let types = types(&sample);
        let args: Vec<&TensorType> = types.iter().collect();
        let is_variadic = sample.op.name() == VARIADIC;
        let x = TensorType::new(DType::F64, [2, 3]);
        let more: Vec<&TensorType> = args.iter().copied().chain([args.last().copied().unwrap_or(&x)]).collect();
        // A collective for one shard takes any arrays of one dtype.
        let takes_arrays = sample.op.attributes().ends_with("held=1");
        let takes_more =
            takes_arrays && args[0].dtype == more[args.len()].dtype && !sample.op.attributes().contains("scatter");
        assert_eq!(sample.op.infer(&more).is_ok(), is_variadic || takes_more, "{} and another", name(&sample));
        if let [first, rest @ ..] = &args[..] {
            assert!(sample.op.infer(&[]).is_err(), "{} of nothing", name(&sample));
            let takes_fewer = takes_arrays && rest.len() > 1;
            assert_eq!(sample.op.infer(rest).is_ok(), is_variadic || takes_fewer, "{} without {first}", name(&sample));
        }
    }
}

/// The type rule holds: types that it refuses are errors of tensors as well, and types that it accepts run.
#[test]
fn other_dtypes_are_refused_or_run() {
    crate::printed::listen();
    let (mut refused, mut ran) = (0, 0);
    for sample in Op::samples() {
        for position in 0..sample.args.len() {
            for dtype in DType::ALL {
                let mut changed = sample.clone();
                let arg = &mut changed.args[position];
                arg.ty = arg.ty.with_dtype(dtype);
                let types = types(&changed);
                match changed.op.infer(&types.iter().collect::<Vec<_>>()) {
                    Err(error) => {
                        refused += 1;
                        assert!(!error.0.is_empty(), "{}", name(&changed));
                    }
                    Ok(ty) => {
                        ran += 1;
                        let found = graph(&changed.op, &types).apply(&arguments(&changed));
                        let found = found.unwrap_or_else(|e| panic!("{}: {e}", name(&changed)));
                        let found = TensorType::new(found[0].dtype(), found[0].shape());
                        assert_eq!(found, ty, "{}", name(&changed));
                        assert_eq!(ty, result(&changed.op, &types));
                    }
                }
            }
        }
    }
    assert!(refused > 300 && ran > 300, "{refused} refused, {ran} ran");
}

/// A float where truth values belong, and truth values where numbers do.
#[test]
fn refusals_name_the_op_and_come_out_of_tensors() {
    let (x, mask) = (Tensor::from([1.0, 2.0]), Tensor::from([true, false]));
    for (poisoned, op) in [(mask.exp(), "exp"), (x.select(&x, &x), "select"), (mask.argsort(0).take(&x, 0), "take")] {
        let message = poisoned.error().unwrap().to_string();
        assert!(message.starts_with(&format!("{op}: ")), "{message}");
    }
}
