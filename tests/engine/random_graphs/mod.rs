//! Properties of random graphs: text round trips, the optimiser keeps results, gradients are difference quotients,
//! and all ways to run a graph agree. A failure prints the seed and the graph.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod generate;

use std::cell::Cell;

pub(crate) use generate::Random;
use generate::{Kind, graph, inputs};
use retape::{DType, Graph, Tensor, accelerate, vjp};

/// Prints the case if the test panics.
struct Case {
    seed: u64,
    graph: Graph,
}

impl Drop for Case {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}:\n{}", self.seed, self.graph);
        }
    }
}

/// Runs `check` on graphs made from consecutive seeds.
fn for_each_graph(n: u64, kind: Kind, check: impl Fn(&Graph, &mut Random)) {
    for seed in 0..n {
        let mut random = Random::new(seed);
        let case = Case { seed, graph: graph(&mut random, kind) };
        check(&case.graph, &mut random);
    }
}

/// The elements, with the bits of floats; all NaN are alike.
fn bits(tensor: &Tensor) -> Vec<u64> {
    match tensor.dtype() {
        DType::F64 => {
            let canonical = |x: f64| if x.is_nan() { u64::MAX } else { x.to_bits() };
            tensor.to_vec::<f64>().unwrap().into_iter().map(canonical).collect()
        }
        DType::F32 => {
            let canonical = |x: f32| if x.is_nan() { u64::MAX } else { x.to_bits().into() };
            tensor.to_vec::<f32>().unwrap().into_iter().map(canonical).collect()
        }
        DType::I64 => tensor.to_vec::<i64>().unwrap().into_iter().map(|x| x as u64).collect(),
        DType::I32 => tensor.to_vec::<i32>().unwrap().into_iter().map(|x| x as u64).collect(),
        DType::U32 => tensor.to_vec::<u32>().unwrap().into_iter().map(u64::from).collect(),
        DType::U8 => tensor.to_vec::<u8>().unwrap().into_iter().map(u64::from).collect(),
        DType::Bool => tensor.to_vec::<bool>().unwrap().into_iter().map(u64::from).collect(),
        DType::F16 | DType::Bf16 => bits(&tensor.cast(DType::F32)),
    }
}

/// Equal types and elements.
fn assert_same(a: &[Tensor], b: &[Tensor], what: &str) {
    assert_eq!(a.len(), b.len(), "{what}");
    for (position, (a, b)) in a.iter().zip(b).enumerate() {
        assert_eq!((a.dtype(), a.shape()), (b.dtype(), b.shape()), "{what}, output {position}");
        assert!(bits(a) == bits(b), "{what}, output {position}:\n{a:?}\n{b:?}");
    }
}

/// Equal `f64` elements except for rounding, which grows with the largest number on the way.
fn assert_close(a: &[Tensor], b: &[Tensor], what: &str) {
    assert_eq!(a.len(), b.len(), "{what}");
    for (a, b) in a.iter().zip(b) {
        assert_eq!(a.shape(), b.shape(), "{what}");
        let (a, b) = (a.to_vec::<f64>().unwrap(), b.to_vec::<f64>().unwrap());
        let scale = a.iter().fold(1.0_f64, |scale, x| scale.max(x.abs()));
        let close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-11 * scale;
        assert!(a.iter().zip(&b).all(close), "{what}:\n{a:?}\n{b:?}");
    }
}

#[test]
fn text_reads_back() {
    for_each_graph(500, Kind::Any, |graph, _| {
        graph.verify().unwrap();
        assert_eq!(graph.to_string().parse::<Graph>().unwrap(), *graph);
    });
}

#[test]
fn passes_are_deterministic_and_settle() {
    for_each_graph(300, Kind::Any, |graph, _| {
        let optimised = graph.optimized().unwrap();
        optimised.verify().unwrap();
        assert_eq!(optimised, graph.optimized().unwrap());
        assert_eq!(optimised, optimised.optimized().unwrap(), "what is optimised stays");
        let types = |graph: &Graph| graph.outputs().iter().map(|&id| graph.ty(id).clone()).collect::<Vec<_>>();
        assert_eq!(types(&optimised), types(graph));
        assert_eq!(optimised.params().len(), graph.params().len());
    });
}

#[test]
fn passes_keep_every_bit() {
    for_each_graph(150, Kind::Any, |graph, random| {
        let inputs = inputs(random, graph, true);
        let expected = graph.evaluate(&inputs).unwrap();
        for pass in Graph::PASSES {
            let made = graph.optimized_by(&[pass]).unwrap();
            assert_same(&made.evaluate(&inputs).unwrap(), &expected, &format!("{pass} gave\n{made}"));
        }
        let made = graph.optimized().unwrap();
        assert_same(&made.evaluate(&inputs).unwrap(), &expected, &format!("all passes gave\n{made}"));
    });
}

#[test]
fn gradients_are_difference_quotients() {
    for_each_graph(60, Kind::Smooth, |graph, random| {
        let at = inputs(random, graph, false);
        let direction = inputs(random, graph, false);
        let gradient = graph.with_gradient().unwrap().optimized().unwrap().evaluate(&at).unwrap();
        let dot = |a: &Tensor, b: &Tensor| -> f64 {
            a.to_vec::<f64>().unwrap().iter().zip(b.to_vec::<f64>().unwrap()).map(|(x, y)| x * y).sum()
        };
        let slope: f64 = gradient[1..].iter().zip(&direction).map(|(g, d)| dot(g, d)).sum();
        let value = |step: f64| {
            let moved: Vec<Tensor> = at.iter().zip(&direction).map(|(x, d)| moved(x, d, step)).collect();
            graph.evaluate(&moved).unwrap()[0].item::<f64>().unwrap()
        };
        // The error is of the fourth order in the step, and in rounding proportional to the value.
        let quotient = |h: f64| (8.0 * (value(h) - value(-h)) - (value(2.0 * h) - value(-2.0 * h))) / (12.0 * h);
        let (fine, coarse) = (quotient(1e-4), quotient(2e-4));
        let scale = slope.abs().max(value(0.0).abs()).max(1.0);
        // Where the two quotients differ, neither is the derivative to that precision.
        let tolerance = 1e-7 * scale + 2.0 * (fine - coarse).abs();
        assert!((slope - fine).abs() <= tolerance, "gradient {slope}, quotient {fine}, tolerance {tolerance}");
        assert!(tolerance < 1e-3 * scale, "the quotient {fine} is no measure here: {coarse}");
    });
}

fn moved(x: &Tensor, direction: &Tensor, step: f64) -> Tensor {
    let (x, direction, shape) = (x.to_vec::<f64>().unwrap(), direction.to_vec::<f64>().unwrap(), x.shape());
    let moved: Vec<f64> = x.iter().zip(direction).map(|(x, d)| x + step * d).collect();
    Tensor::from_vec(moved, shape).unwrap()
}

#[test]
fn cached_and_fresh_agree_in_every_bit() {
    for_each_graph(40, Kind::Any, |graph, random| {
        let inputs = inputs(random, graph, true);
        let apply = |inputs: &Vec<Tensor>| graph.apply(inputs).unwrap();
        let (cached, fresh) = (accelerate(apply), accelerate(apply));
        let first = cached.call(&inputs).unwrap();
        let hit = cached.call(&inputs).unwrap();
        assert_eq!((cached.stats().hits, cached.stats().misses), (1, 1));
        assert_same(&hit, &first, "a hit and the miss before it");
        assert_same(&fresh.call(&inputs).unwrap(), &first, "another accelerated function");
        cached.clear_cache();
        assert_same(&cached.call(&inputs).unwrap(), &first, "after clearing the cache");
    });
}

#[test]
fn machine_code_and_interpreter_agree_on_values_and_gradients() {
    for_each_graph(40, Kind::Smooth, |graph, random| {
        let inputs = inputs(random, graph, false);
        let graph = graph.with_gradient().unwrap();
        let compiled = accelerate(|inputs: &Vec<Tensor>| graph.apply(inputs).unwrap());
        let expected = graph.evaluate(&inputs).unwrap();
        assert_close(&compiled.call(&inputs).unwrap(), &expected, "compiled");
        compiled.configure(|options| options.enabled = false);
        assert_close(&compiled.call(&inputs).unwrap(), &expected, "op by op in a trace");
        assert_close(&graph.apply(&inputs).unwrap(), &expected, "op by op on concrete tensors");
    });
}

/// The gradient is taken outside: forward code with residuals, and backward code that goes on from them.
#[test]
fn forward_and_backward_code_agree_with_the_interpreter() {
    let n_residuals = Cell::new(0);
    for_each_graph(60, Kind::Smooth, |graph, random| {
        let inputs = inputs(random, graph, false);
        let compiled = accelerate(|inputs: &Vec<Tensor>| graph.apply(inputs).unwrap().remove(0));
        let plain = compiled.call(&inputs).unwrap();
        let (value, gradients) =
            vjp(|xs: &Vec<Tensor>| compiled.call(xs).unwrap(), &inputs, &Tensor::from(1.0)).unwrap();
        assert_same(std::slice::from_ref(&value), &[plain], "the value beside a gradient");
        let expected = graph.with_gradient().unwrap().evaluate(&inputs).unwrap();
        assert_close(&[vec![value], gradients].concat(), &expected, "forward and backward");
        let stats = compiled.stats();
        n_residuals.set(n_residuals.get() + stats.entries[0].gradients.iter().map(|g| g.residuals).sum::<usize>());
    });
    assert!(n_residuals.get() > 0, "no graph has residuals");
}
