//! Loop nests of all shapes against the evaluator.

use retape_kernels::ir::random::{Rng, random_kernel, random_kernel_of_selects, random_kernel_with_calls};
use retape_kernels::ir::{Affine, AxisId, Compare, Func1, Kernel, KernelBuilder, ReductionOp, Value};
use retape_runtime::{DType, Scalar};

use super::machine::{check_on, check_within};
use super::samples::samples;
use super::{TARGETS, lowered, step};

#[test]
fn every_sample_has_code() {
    for sample in samples() {
        for target in TARGETS {
            let launches = lowered(&step(&sample.kernel), target);
            assert!(!launches.launches.is_empty(), "{}", sample.name);
        }
    }
}

#[test]
fn random_kernels() {
    let n = std::env::var("RETAPE_PTX_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(60);
    for seed in 0..n {
        let target = TARGETS[seed as usize % 3];
        check_within(&random_kernel(seed), target, seed, 1e-3);
        check_within(&random_kernel_with_calls(seed), target, seed, 1e-3);
        check_within(&random_kernel_of_selects(seed), target, seed, 1e-3);
    }
}

/// Selects on one condition of values for kept points, of which the sums need only one.
#[test]
fn parts_of_which_sums_need_one_select() {
    let k = KernelBuilder::new();
    let [x, p, q] = [37 * 50, 37, 37].map(|len| k.param(DType::F32, len, false));
    k.axis(37, false);
    k.axis(50, true);
    let row = Affine::new(0, &[1, 0]);
    let x = k.load(x, Affine::new(0, &[50, 1]));
    let [p, q] = [p, q].map(|param| k.load(param, row.clone()));
    let condition = p.compare(Compare::Lt, 1.0);
    let inside = condition.select((p * 2.0).call1(Func1::Sin), p);
    let outside = condition.select((q * 2.0).call1(Func1::Cos), q);
    let value = (x * inside).reduce(ReductionOp::Sum) + outside;
    k.store(k.param(DType::F32, 37, true), row, value);
    let kernel = k.finish();
    TARGETS.iter().for_each(|&target| check_within(&kernel, target, 0, 1e-3));
}

/// A kernel over some tens of thousands of points, whose operands lie in some order of the axes, with several
/// reductions, values for all points, and something to do afterwards.
fn large_kernel(rng: &mut Rng) -> Kernel {
    let builder = KernelBuilder::new();
    let n_axes = 1 + rng.below(4);
    let mut room = 1 << (14 + rng.below(3));
    let mut extents = Vec::new();
    for axis in 0..n_axes {
        let extent = if axis + 1 == n_axes { room } else { 1 + rng.below((room / 2).min(300)) };
        room = (room / extent).max(1);
        extents.push(extent + rng.below(2));
    }
    for i in (1..n_axes).rev() {
        extents.swap(i, rng.below(i + 1));
    }
    let reduced: Vec<bool> = (0..n_axes).map(|_| !rng.one_in(3)).collect();
    for (&extent, &reduced) in extents.iter().zip(&reduced) {
        builder.axis(extent, reduced);
    }
    // The layout of some axes, in order half of the time.
    let mut layout = |which: &dyn Fn(usize) -> bool| {
        let mut order: Vec<usize> = (0..n_axes).filter(|&axis| which(axis)).collect();
        if rng.one_in(2) {
            for i in (1..order.len()).rev() {
                order.swap(i, rng.below(i + 1));
            }
        }
        let mut at = Affine::new(0, &vec![0; n_axes]);
        let mut len = 1;
        for axis in order.into_iter().rev() {
            at.strides[axis] = len as i64;
            len *= extents[axis];
        }
        (at, len)
    };
    let all = |_: usize| true;
    let kept = |axis: usize| !reduced[axis];
    let folded = |axis: usize| reduced[axis];
    let reads = [(DType::F32, layout(&all)), (DType::I32, layout(&all)), (DType::F32, layout(&kept))];
    let per_reduced = (DType::F32, layout(&folded));
    let writes = [layout(&all), layout(&kept), layout(&kept), layout(&kept)];
    let loads: Vec<Value<'_>> = reads
        .into_iter()
        .chain([per_reduced])
        .map(|(dtype, (at, len))| (builder.param(dtype, len, false), at))
        .collect::<Vec<_>>()
        .into_iter()
        .map(|(param, at)| builder.load(param, at))
        .collect();
    let index = builder.index(AxisId(0)).cast(DType::I64);
    let sum = loads[0] * loads[3] + loads[2];
    let count = (loads[1].cast(DType::I64) + index).reduce(ReductionOp::Sum);
    let most = sum.max(loads[2]).reduce(ReductionOp::Max);
    let total = sum.reduce(ReductionOp::Sum);
    let results = [sum.cast(DType::Bf16), count, most - loads[2], total * most];
    for (value, (at, len)) in results.into_iter().zip(writes) {
        let param = builder.param(value.dtype(), len, true);
        builder.store(param, at, value);
    }
    builder.finish()
}

#[test]
fn large_random_reductions() {
    let n = std::env::var("RETAPE_PTX_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(8);
    for seed in 0..n {
        let mut rng = Rng::new(seed);
        let kernel = large_kernel(&mut rng);
        let read = kernel.params.iter().filter(|p| !p.written);
        let inputs: Vec<Vec<u8>> = read
            .map(|p| {
                let small = (0..p.len).map(|_| Scalar::from_f64(rng.below(2001) as f64 * 1e-3, p.dtype).bits as u32);
                small.flat_map(u32::to_le_bytes).collect()
            })
            .collect();
        check_on(&step(&kernel), &kernel, TARGETS[seed as usize % 3], &inputs, 1e-4);
    }
}
