//! Cuts of small graphs whose best answers are known.

use super::partition::{BackwardInput, partition};
use crate::graph::Graph;
use crate::ops::Op;
use crate::{Tensor, trace, vjp};

/// The ops of the forward graph's residuals, and all ops of the backward graph but movements.
fn cut(joint: &Graph, n_results: usize, n_inputs: usize, n_cts: usize) -> (Vec<&'static str>, Vec<&'static str>) {
    let parts = partition(joint, n_results, &(n_inputs..n_inputs + n_cts));
    parts.forward.verify().unwrap();
    parts.backward.verify().unwrap();
    let kept = parts.kept.iter().map(|&output| parts.forward.node(parts.forward.outputs()[output]).op.name());
    let is_work =
        |op: &Op| !matches!(op, Op::Parameter(_) | Op::Splat(_) | Op::BroadcastTo(_) | Op::Permute(_) | Op::Reshape(_));
    let work = parts.backward.nodes().iter().map(|node| &node.op).filter(|op| is_work(op)).map(Op::name);
    let n_kept = parts.reads.iter().filter(|read| matches!(read, BackwardInput::Kept(_))).count();
    assert_eq!(n_kept, parts.kept.len());
    (kept.collect(), work.collect())
}

/// The joint graph of a function of some tensors and a cotangent of its result.
fn joint(f: impl Fn(&[Tensor]) -> Tensor, shapes: &[&[usize]], result: &[usize]) -> Graph {
    let inputs: Vec<Tensor> = shapes.iter().map(|&shape| Tensor::ones(shape)).collect();
    let at = (inputs, Tensor::ones(result));
    let both = |(xs, ct): &(Vec<Tensor>, Tensor)| vjp(|xs: &Vec<Tensor>| f(xs), xs, ct).unwrap();
    trace(both, &at).unwrap().optimized().unwrap()
}

#[test]
fn an_activation_keeps_what_its_derivative_reads() {
    // Of the product before and the result behind, the result: it is there for the caller too, and tanh is not redone.
    let graph = joint(|xs| xs[0].matmul(&xs[1]).tanh(), &[&[64, 32], &[32, 48]], &[64, 48]);
    let (kept, work) = cut(&graph, 1, 2, 1);
    assert_eq!(kept, ["tanh"]);
    assert!(!work.contains(&"tanh") && work.iter().filter(|op| **op == "matmul").count() == 2, "{work:?}");
}

#[test]
fn a_cheap_chain_behind_a_product_is_computed_again() {
    let chain = |xs: &[Tensor]| {
        let z = xs[0].matmul(&xs[1]);
        let y = (&z * &z + 1.0) * (&z - 2.0);
        (&y * &y - &z) * 0.5 * &y
    };
    let (kept, work) = cut(&joint(chain, &[&[64, 32], &[32, 48]], &[64, 48]), 1, 2, 1);
    assert_eq!(kept, ["matmul"]);
    assert!(work.contains(&"mul"), "{work:?}");
}

#[test]
fn a_dear_part_of_a_formula_is_kept() {
    // The plan gives no memory to the hyperbolic tangent inside; the derivative needs it, and writing it is cheaper.
    let gelu = |xs: &[Tensor]| xs[0].matmul(&xs[1]).gelu_tanh().matmul(&xs[2]);
    let (kept, work) = cut(&joint(gelu, &[&[64, 32], &[32, 48], &[48, 8]], &[64, 8]), 1, 3, 1);
    assert_eq!(kept, ["matmul", "tanh"]);
    assert!(!work.contains(&"tanh"), "{work:?}");
    // But not where it is fused into a reduction, whose order of additions is to stay.
    let sum = |xs: &[Tensor]| xs[0].matmul(&xs[1]).gelu_tanh().sum(1);
    let (kept, work) = cut(&joint(sum, &[&[64, 32], &[32, 48]], &[64]), 1, 2, 1);
    assert_eq!(kept, ["matmul"]);
    assert!(work.contains(&"tanh"), "{work:?}");
}

#[test]
fn arguments_are_at_hand() {
    // Everything can be made from the argument at the cost of a few additions per element.
    let (kept, _) = cut(&joint(|xs| (&xs[0] * &xs[0] + 1.0).square(), &[&[4096]], &[4096]), 1, 1, 1);
    assert!(kept.is_empty(), "{kept:?}");
    // Linear in each argument: the products of the gradient read the other one.
    let (kept, work) = cut(&joint(|xs| xs[0].matmul(&xs[1]), &[&[64, 32], &[32, 48]], &[64, 48]), 1, 2, 1);
    assert!(kept.is_empty() && work == ["matmul", "matmul"], "{kept:?} {work:?}");
}

#[test]
fn a_small_fold_is_kept_rather_than_repeated() {
    let normal = |xs: &[Tensor]| &xs[0] / xs[0].square().sum_keep(1).sqrt();
    let (kept, work) = cut(&joint(normal, &[&[256, 128]], &[256, 128]), 1, 1, 1);
    // The sum of the squares, or its root, of 256 numbers; the sum in the backward graph is that of the cotangents.
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert!(["reduce_sum", "sqrt"].contains(&kept[0]), "{kept:?}");
    assert_eq!(work.iter().filter(|op| **op == "reduce_sum").count(), 1, "{work:?}");
}

#[test]
fn the_narrow_side_of_a_network_is_kept() {
    // Between two products lies a wide value that is made from a narrow one by repetition and a cheap formula.
    let f = |xs: &[Tensor]| {
        let narrow = xs[0].matmul(&xs[1]);
        ((narrow.broadcast_to([64, 512]) + &xs[2]).relu()).matmul(&xs[3])
    };
    let graph = joint(f, &[&[64, 32], &[32, 1], &[64, 512], &[512, 8]], &[64, 8]);
    let (kept, _) = cut(&graph, 1, 4, 1);
    assert_eq!(kept, ["matmul"]);
}

#[test]
fn the_same_graph_is_cut_the_same_way() {
    let f = |xs: &[Tensor]| (xs[0].matmul(&xs[1]).sigmoid() + &xs[2]).tanh().matmul(&xs[3]).softmax(1);
    let graph = joint(f, &[&[64, 32], &[32, 48], &[48], &[48, 10]], &[64, 10]);
    let text = |graph: &Graph| {
        let parts = partition(graph, 1, &(4..5));
        format!("{}\n{}\n{:?}", parts.forward, parts.backward, parts.reads)
    };
    assert_eq!(text(&graph), text(&graph.clone()));
    assert!(text(&graph).contains("matmul"));
}
