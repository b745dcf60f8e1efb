//! Every way to run an op and its gradient gives the same: at once, compiled, op by op in a trace, interpreted.

use retape::ops::Sample;
use retape::{DType, Graph, Tensor, accelerate};

use super::sample::{arguments, distance, gradient_graph, graph, name, result, samples, types, weights};

/// How far results may be apart, in proportion to the largest element. Sums and products may be ordered in another
/// way, and be fused into one rounding.
const F64_BOUND: f64 = 1e-12;
const F32_BOUND: f64 = 2e-6;

fn check(graph: &Graph, inputs: &[Tensor], bound: f64, what: &str) -> f64 {
    let inputs = inputs.to_vec();
    let compiled = accelerate(|inputs: &Vec<Tensor>| graph.apply(inputs).unwrap());
    let expected = graph.evaluate(&inputs).unwrap_or_else(|e| panic!("{what}: {e}\n{graph}"));
    let at_once = graph.apply(&inputs).unwrap_or_else(|e| panic!("{what}: {e}\n{graph}"));
    let fast = compiled.call(&inputs).unwrap_or_else(|e| panic!("{what}: {e}\n{graph}"));
    compiled.configure(|options| options.enabled = false);
    let traced = compiled.call(&inputs).unwrap_or_else(|e| panic!("{what}: {e}\n{graph}"));
    let mut worst = 0.0_f64;
    for (way, found) in [("at once", at_once), ("compiled", fast), ("op by op", traced)] {
        assert_eq!(found.len(), expected.len());
        for (position, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let apart = distance(expected, found);
            assert!(apart <= bound, "{what}, {way}, output {position}: {apart}\n{graph}\n{expected:?}\n{found:?}");
            worst = worst.max(apart);
        }
    }
    worst
}

fn bound(sample: &Sample) -> f64 {
    let dtypes = sample.args.iter().map(|arg| arg.ty.dtype).chain([result(&sample.op, &types(sample)).dtype]);
    let (mut bound, mut floats) = (F64_BOUND, false);
    for dtype in dtypes {
        bound = if dtype == DType::F32 { F32_BOUND } else { bound };
        floats |= dtype.is_float() || dtype.is_half();
    }
    if floats { bound } else { 0.0 }
}

#[test]
fn values() {
    crate::printed::listen();
    for bounded in [F64_BOUND, F32_BOUND, 0.0] {
        let mut worst = (0.0, String::new());
        for sample in samples().into_iter().filter(|sample| bound(sample) == bounded) {
            let apart = check(&graph(&sample.op, &types(&sample)), &arguments(&sample), bounded, &name(&sample));
            if apart > worst.0 {
                worst = (apart, name(&sample));
            }
        }
        println!("bound {bounded:e}: {worst:?}");
    }
}

#[test]
fn gradients() {
    for bounded in [F64_BOUND, F32_BOUND] {
        let mut worst = (0.0, String::new());
        for sample in samples().into_iter().filter(|sample| bound(sample) == bounded) {
            let types = types(&sample);
            let ty = result(&sample.op, &types);
            if !ty.dtype.is_float() || types.is_empty() {
                continue;
            }
            let inputs = [arguments(&sample), vec![weights(&ty, 5)]].concat();
            let apart = check(&gradient_graph(&sample.op, &types), &inputs, bounded, &name(&sample));
            if apart > worst.0 {
                worst = (apart, name(&sample));
            }
        }
        println!("bound {bounded:e}: {worst:?}");
    }
}
