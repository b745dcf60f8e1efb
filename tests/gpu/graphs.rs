//! Random graphs on the GPU: values and gradients against the processor, and the same bits in every order.

use retape::{DType, Graph, Tensor, accelerate, vjp};

use crate::compare::{all_bits, apart, to};
use crate::device::{gpu, reversed};
use crate::generate::{Kind, Random, graph, inputs};

/// Prints the case if the test panics.
struct Case(u64, Graph);

impl Drop for Case {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}:\n{}", self.0, self.1);
        }
    }
}

fn for_each_graph(n: u64, kind: Kind, check: impl Fn(&Graph, &mut Random)) {
    for seed in 0..n {
        let mut random = Random::new(seed);
        let case = Case(seed, graph(&mut random, kind));
        check(&case.1, &mut random);
    }
}

/// Whether a graph adds or multiplies floats whose number depends on a shape; their order is free.
fn sums(graph: &Graph) -> bool {
    graph.iter().any(|(_, node)| {
        let is_float = node.args.iter().any(|&arg| graph.ty(arg).dtype.is_float() || graph.ty(arg).dtype.is_half());
        is_float && SUMS.contains(&node.op.name())
    })
}

const SUMS: [&str; 4] = ["reduce_sum", "reduce_prod", "matmul", "einsum"];

/// Any op and dtype, with special values among the floats.
#[test]
fn graphs_without_sums_have_the_bits_of_the_processor() {
    let compared = std::cell::Cell::new(0);
    for_each_graph(420, Kind::Any, |graph, random| {
        let inputs = inputs(random, graph, true);
        let there = to(&inputs, gpu());
        let compiled = accelerate(|inputs: &Vec<Tensor>| graph.apply(inputs).unwrap());
        let found = all_bits(&compiled.call(&there).unwrap());
        assert_eq!(reversed(|| all_bits(&compiled.call(&there).unwrap())), found, "reversed order");
        assert_eq!((compiled.stats().hits, compiled.stats().misses), (1, 1));
        let eager = all_bits(&graph.apply(&there).unwrap());
        assert_eq!(reversed(|| all_bits(&graph.apply(&there).unwrap())), eager, "op by op in reversed order");
        if !sums(graph) {
            compared.set(compared.get() + 1);
            assert_eq!(found, all_bits(&compiled.call(&inputs).unwrap()), "accelerated");
            assert_eq!(eager, all_bits(&graph.apply(&inputs).unwrap()), "op by op");
        }
    });
    assert!(compared.get() > 250, "{}", compared.get());
}

/// Equal `f64` elements except for rounding, which grows with the largest number on the way.
fn assert_close(here: &[Tensor], there: &[Tensor], what: &str) {
    assert_eq!(here.len(), there.len());
    for (here, there) in here.iter().zip(there) {
        assert_eq!(here.dtype(), DType::F64);
        let largest = here.to_vec::<f64>().unwrap().into_iter().fold(1e-300_f64, |largest, x| largest.max(x.abs()));
        let apart = apart(here, there) * largest.min(1.0);
        assert!(apart <= 1e-11, "{what}: {apart}\n{here:?}\n{there:?}");
    }
}

#[test]
fn values_and_gradients_are_those_of_the_processor() {
    for_each_graph(120, Kind::Smooth, |graph, random| {
        let inputs = inputs(random, graph, false);
        let there = to(&inputs, gpu());
        let graph = graph.with_gradient().unwrap();
        let compiled = accelerate(|inputs: &Vec<Tensor>| graph.apply(inputs).unwrap());
        let here = compiled.call(&inputs).unwrap();
        let found = compiled.call(&there).unwrap();
        assert_close(&here, &found, "accelerated");
        let eager = graph.apply(&there).unwrap();
        assert_close(&here, &eager, "op by op");
        let again = reversed(|| all_bits(&graph.apply(&there).unwrap()));
        assert_eq!(again, all_bits(&eager), "op by op in reversed order");
        let again = reversed(|| all_bits(&compiled.call(&there).unwrap()));
        assert_eq!(again, all_bits(&found), "reversed order");
    });
}

/// The gradient is taken outside: forward code with residuals, and backward code that goes on from them.
#[test]
fn forward_and_backward_code_agree_with_the_processor() {
    for_each_graph(100, Kind::Smooth, |graph, random| {
        let inputs = inputs(random, graph, false);
        let there = to(&inputs, gpu());
        let compiled = accelerate(|inputs: &Vec<Tensor>| graph.apply(inputs).unwrap().remove(0));
        let run = |inputs: &Vec<Tensor>| {
            let (value, gradients) =
                vjp(|xs: &Vec<Tensor>| compiled.call(xs).unwrap(), inputs, &Tensor::from(1.0)).unwrap();
            [vec![value], gradients].concat()
        };
        let (here, found) = (run(&inputs), run(&there));
        assert_close(&here, &found, "forward and backward");
        assert_eq!(reversed(|| all_bits(&run(&there))), all_bits(&found), "reversed order");
    });
}
