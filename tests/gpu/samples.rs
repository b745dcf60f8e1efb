//! The samples of every op, their gradients and special values, on the GPU against the processor: accelerated and
//! op by op, each with everything in reversed order, too.
//!
//! Ops other than sums and products of many elements give the bits of the processor, all NaN being alike. The others
//! may be ordered in another way: [`F64_BOUND`] and [`F32_BOUND`] are the bounds of `tests/engine/ops`.

use retape::ops::{Lowering, Op, Sample};
use retape::{DType, Device, Graph, MathMode, Tensor, TensorType, accelerate, bf16, f16};

use crate::compare::{all_bits, bits, to};
use crate::device::{driver, gpu, reversed};
use crate::sample::{
    arguments, distance, gradient_graph, graph, is_pointwise, name, result, samples, tuples, types, weights,
};

/// How far results may be apart, in proportion to the largest element.
const F64_BOUND: f64 = 1e-12;
const F32_BOUND: f64 = 2e-6;

fn bound(sample: &Sample) -> f64 {
    let dtypes = sample.args.iter().map(|arg| arg.ty.dtype).chain([result(&sample.op, &types(sample)).dtype]);
    let of = |dtype| match dtype {
        DType::F32 => F32_BOUND,
        // Tensor cores of a device cut off sums in their own way: a result may round to its neighbour.
        DType::F16 if driver().is_none() => f16::EPSILON.to_f64(),
        DType::Bf16 if driver().is_none() => bf16::EPSILON.to_f64(),
        _ => F64_BOUND,
    };
    dtypes.map(of).fold(0.0, f64::max)
}

/// Whether an op adds or multiplies elements, so that their order is free.
fn folds(sample: &Sample) -> bool {
    let types = types(sample);
    let lowering = sample.op.lower(&types.iter().collect::<Vec<_>>(), &result(&sample.op, &types));
    matches!(lowering, Lowering::Reduce { .. } | Lowering::Library(_))
}

/// The names of ops whose results have been apart, and by how much at most.
#[derive(Default)]
struct Apart(std::collections::BTreeMap<&'static str, f64>);

impl Apart {
    /// Runs a graph in all ways and compares; each output is to be within its bound.
    fn check(&mut self, op: &'static str, graph: &Graph, inputs: &Vec<Tensor>, bounds: [f64; 2], what: &str) {
        let (device, there) = (gpu(), to(inputs, gpu()));
        let failed = |e: retape::Error| -> ! { panic!("{what}: {e}\n{graph}") };
        let compiled = accelerate(|inputs: &Vec<Tensor>| graph.apply(inputs).unwrap());
        let here = compiled.call(inputs).unwrap_or_else(|e| failed(e));
        let found = compiled.call(&there).unwrap_or_else(|e| failed(e));
        let again = reversed(|| all_bits(&compiled.call(&there).unwrap_or_else(|e| failed(e))));
        assert_eq!(all_bits(&found), again, "{what}: the order changes bits\n{graph}");
        let eager_here = graph.apply(inputs).unwrap_or_else(|e| failed(e));
        let eager = graph.apply(&there).unwrap_or_else(|e| failed(e));
        let again = reversed(|| all_bits(&graph.apply(&there).unwrap_or_else(|e| failed(e))));
        assert_eq!(all_bits(&eager), again, "{what}: the order changes bits op by op\n{graph}");
        for (way, here, found) in [("accelerated", &here, &found), ("op by op", &eager_here, &eager)] {
            assert_eq!(here.len(), found.len());
            for (position, (here, found)) in here.iter().zip(found).enumerate() {
                assert!(inputs.is_empty() || found.device() == device, "{what}, {way}, output {position}");
                let apart = if bits(here) == bits(found) { 0.0 } else { distance(here, &found.to(Device::Cpu)) };
                let bound = bounds[position.min(1)];
                assert!(apart <= bound, "{what}, {way}, output {position}: {apart}\n{graph}\n{here:?}\n{found:?}");
                if apart > 0.0 {
                    let worst = self.0.entry(op).or_default();
                    *worst = worst.max(apart);
                }
            }
        }
    }
}

#[test]
fn values_are_those_of_the_processor() {
    retape::set_debug_sink(|_| ());
    let mut all = Apart::default();
    for sample in samples() {
        let graph = graph(&sample.op, &types(&sample));
        let bound = if folds(&sample) { bound(&sample) } else { 0.0 };
        all.check(sample.op.name(), &graph, &arguments(&sample), [bound; 2], &name(&sample));
    }
    println!("{:?}", all.0);
}

/// The first result is a sum; gradients of formulas are formulas.
#[test]
fn gradients_are_those_of_the_processor() {
    let mut all = Apart::default();
    for sample in samples() {
        let types = types(&sample);
        let ty = result(&sample.op, &types);
        if !ty.dtype.is_float() || types.is_empty() {
            continue;
        }
        let inputs = [arguments(&sample), vec![weights(&ty, 5)]].concat();
        let graph = gradient_graph(&sample.op, &types);
        let bounds = [bound(&sample), if is_pointwise(&sample) { 0.0 } else { bound(&sample) }];
        all.check(sample.op.name(), &graph, &inputs, bounds, &name(&sample));
    }
    println!("{:?}", all.0);
}

/// How far a fast result may be from the strict one, by what the manual of PTX states for the instructions that it is
/// made of. The interpreter rounds exact results instead.
fn fast_bound(sample: &Sample, result: DType) -> f64 {
    if result != DType::F32 && types(sample).iter().all(|ty| ty.dtype != DType::F32) {
        return 0.0;
    }
    match sample.op.name() {
        // Each operand is rounded to the 11 bits of TF32.
        "matmul" | "conv2d" | "conv2d_input_grad" | "conv2d_filter_grad" => 2.0_f64.powi(-10),
        // The one that is coarse.
        "tanh" => 2.0_f64.powi(-11) + 2.0_f64.powi(-20),
        // Within one turn.
        "sin" | "cos" => 2.0_f64.powi(-20),
        // Powers, logarithms, quotients and roots have two units in the last place; formulas have several of them.
        _ => 2.0_f64.powi(-18),
    }
}

/// Approximations concern `f32` alone, and are the same in every order.
#[test]
fn fast_results_are_near_strict_ones() {
    retape::set_debug_sink(|_| ());
    let mut worst = std::collections::BTreeMap::new();
    for sample in samples() {
        let (graph, there) = (graph(&sample.op, &types(&sample)), to(&arguments(&sample), gpu()));
        let function = accelerate(|inputs: &Vec<Tensor>| graph.apply(inputs).unwrap());
        let strict = function.call(&there).unwrap();
        function.configure(|options| options.math = MathMode::Fast);
        let fast = function.call(&there).unwrap();
        let again = reversed(|| all_bits(&function.call(&there).unwrap()));
        assert_eq!(all_bits(&fast), again, "{}: the order changes bits", name(&sample));
        let bound = fast_bound(&sample, fast[0].dtype());
        let on_host = |x: &Tensor| x.to(Device::Cpu);
        let apart =
            if bits(&strict[0]) == bits(&fast[0]) { 0.0 } else { distance(&on_host(&strict[0]), &on_host(&fast[0])) };
        assert!(apart <= bound, "{}: {apart}\n{strict:?}\n{fast:?}", name(&sample));
        if apart > 0.0 {
            let worst = worst.entry(sample.op.name()).or_insert(0.0_f64);
            *worst = worst.max(apart);
        }
    }
    println!("{worst:?}");
    assert!(!worst.is_empty(), "nothing was approximated");
}

/// Each argument of each sample in each other dtype that the op takes.
#[test]
fn other_dtypes_give_the_same() {
    retape::set_debug_sink(|_| ());
    let mut n = 0;
    for sample in Op::samples() {
        for position in 0..sample.args.len() {
            for dtype in DType::ALL {
                let mut changed = sample.clone();
                let arg = &mut changed.args[position];
                arg.ty = arg.ty.with_dtype(dtype);
                let types = types(&changed);
                if changed.op.infer(&types.iter().collect::<Vec<_>>()).is_err() {
                    continue;
                }
                n += 1;
                let (graph, inputs) = (graph(&changed.op, &types), arguments(&changed));
                let (here, there) = (graph.apply(&inputs).unwrap(), graph.apply(&to(&inputs, gpu())));
                let there = there.unwrap_or_else(|e| panic!("{}: {e}", name(&changed)));
                let again = reversed(|| all_bits(&graph.apply(&to(&inputs, gpu())).unwrap()));
                assert_eq!(all_bits(&there), again, "{}: the order changes bits", name(&changed));
                let apart = distance(&here[0], &there[0].to(Device::Cpu));
                assert!(apart <= bound(&changed), "{}: {apart}\n{here:?}\n{there:?}", name(&changed));
            }
        }
    }
    assert!(n > 300, "{n} ran");
}

/// Zeros, infinities, NaN, subnormal and huge numbers through every pointwise op of floats: all bits.
#[test]
fn special_values_have_the_bits_of_the_processor() {
    let mut n = 0;
    for sample in Op::samples().into_iter().filter(is_pointwise) {
        for dtype in [DType::F64, DType::F32] {
            let inputs = tuples(dtype, sample.args.len());
            let types: Vec<TensorType> = inputs.iter().map(|x| TensorType::new(dtype, x.shape())).collect();
            if sample.op.infer(&types.iter().collect::<Vec<_>>()).is_err() {
                continue;
            }
            let graph = graph(&sample.op, &types);
            let (here, there) = (graph.apply(&inputs).unwrap(), graph.apply(&to(&inputs, gpu())).unwrap());
            let again = reversed(|| all_bits(&graph.apply(&to(&inputs, gpu())).unwrap()));
            assert_eq!(all_bits(&there), again, "{}: the order changes bits", name(&sample));
            let (here, there) = (bits(&here[0]), bits(&there[0]));
            if let Some(k) = here.iter().zip(&there).position(|(a, b)| a != b) {
                let at: Vec<u64> = inputs.iter().map(|x| bits(x)[k]).collect();
                panic!("{} at {at:x?} as {dtype}: {:x} here, {:x} there", name(&sample), here[k], there[k]);
            }
            n += 1;
        }
    }
    assert!(n > 80, "{n} ops");
}
