//! Every call of the driver may fail: the error says which, and nothing is lost or broken by it. And random programs
//! with arguments by value and by reference, on memory that others still see.

use retape::{Device, Tensor, accelerate, value_and_grad};

use crate::compare::{all_bits, apart, bits, ramp, to};
use crate::device::{driver, gpu, in_own_process, of_runtime};
use crate::programs::{Program, Random};

/// Functions of the driver that runs, moves and compiles go through.
const CALLS: [&str; 21] = [
    "cuEventCreate",
    "cuEventQuery",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuFuncSetAttribute",
    "cuGraphAddKernelNode_v2",
    "cuGraphCreate",
    "cuGraphExecKernelNodeSetParams_v2",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuLaunchKernel",
    "cuLinkAddData_v2",
    "cuLinkComplete",
    "cuLinkCreate_v2",
    "cuMemAlloc_v2",
    "cuMemHostAlloc",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuStreamSynchronize",
];

/// Traces, compiles, hits by value and by reference, reads, and works op by op.
fn work() -> retape::Result<Vec<Vec<f32>>> {
    let x = ramp(&[6, 5], 1).to(gpu());
    let step = accelerate(|w: &Tensor, x: &Tensor| {
        let loss = x.matmul(w).tanh().square().mean(..);
        (w - loss.grad(w), loss)
    });
    let (mut w, mut found) = (ramp(&[5, 4], 2).to(gpu()), vec![]);
    for _ in 0..3 {
        let (next, loss) = step.call(w, &x)?;
        found.push(loss.to_vec()?);
        w = next;
    }
    let kept = w.clone();
    found.push(step.call(w, &x)?.0.to_vec()?);
    let loss = accelerate(|w: &Tensor| (w * 0.5).sin().sum(..));
    let failure = std::cell::RefCell::new(None);
    let call = |w: &Tensor| {
        let note = |error| {
            failure.replace(Some(error));
            w.sum(..)
        };
        loss.call(w).unwrap_or_else(note)
    };
    let gradient = value_and_grad(call, &kept)?.1;
    if let Some(error) = failure.take() {
        return Err(error);
    }
    found.push(gradient.to_vec()?);
    found.push((kept.matmul(&kept.t()) + 1.0).to_vec()?);
    Ok(found)
}

#[test]
fn every_call_of_the_driver_may_fail() {
    let Some(driver) = driver() else { return };
    in_own_process("faults::every_call_of_the_driver_may_fail", &[], || {
        let expected = work().unwrap();
        let settled = || {
            of_runtime().trim().unwrap();
            of_runtime().memory().live_bytes
        };
        let live = settled();
        let (mut n_failed, mut n_survived) = (0, 0);
        for name in CALLS {
            for (skip, code) in (0..4).flat_map(|skip| [(skip, 1), (skip, 2)]) {
                driver.fail(name, skip, code);
                match work() {
                    Ok(found) => {
                        assert_eq!(found, expected, "{name} fails after {skip}");
                        n_survived += 1;
                    }
                    Err(error) => {
                        let text = error.to_string();
                        assert!(text.contains("cuda:0") || text.contains("bytes"), "{name} fails after {skip}: {text}");
                        n_failed += 1;
                    }
                }
                driver.reset();
                assert_eq!(work().unwrap(), expected, "after {name} failed after {skip}");
                assert_eq!(settled(), live, "{name} failed after {skip}");
            }
        }
        println!("{n_failed} errors, {n_survived} survived");
        assert!(n_failed > 30);
    });
}

/// Matrices that are several blocks wide, with a rest.
const SIDE: usize = 45;

#[test]
fn programs_by_value_change_nothing_that_is_seen() {
    let square = |phase: usize| ramp(&[SIDE, SIDE], phase).to(gpu());
    for seed in 0..40 {
        let mut random = Random(seed);
        let program = Program::new(&mut random, 5);
        let captured = square(77);
        let f = accelerate(move |a: &(Tensor, Tensor), b: &Tensor, c: &Vec<Tensor>| {
            let args = [&a.0, &a.1, b, &c[0]].map(Tensor::clone).into_iter().chain([captured.clone()]);
            program.run(args.collect())
        });
        // Handles that the test keeps, with what they must go on to hold.
        let mut kept: Vec<(Tensor, Vec<u64>)> = vec![];
        let mut known: Vec<Tensor> = (0..4).map(|k| square(seed as usize + k)).collect();
        for round in 0..6 {
            let args: Vec<Tensor> = (0..4)
                .map(|k| match random.below(4) {
                    0 => known[random.below(known.len())].clone(),
                    1 => known[random.below(known.len())].reshape([SIDE * SIDE]).reshape([SIDE, SIDE]),
                    _ => square(round * 4 + k),
                })
                .collect();
            if random.below(2) == 0 {
                let tensor = args[random.below(4)].clone();
                kept.push((tensor.clone(), bits(&tensor)));
                known.push(tensor);
            }
            let [a0, a1, b, c0] = <[Tensor; 4]>::try_from(args).unwrap();
            let (a, c) = ((a0, a1), vec![c0]);
            let expected = all_bits(&f.call(&a, &b, &c).unwrap());
            let by_value = random.below(8);
            let found = match by_value {
                0 => f.call(a, &b, &c),
                1 => f.call(&a, b, &c),
                2 => f.call(&a, &b, c),
                3 => f.call(a, b, &c),
                4 => f.call(a, &b, c),
                5 => f.call(&a, b, c),
                _ => f.call(a, b, c),
            };
            let found = found.unwrap();
            assert_eq!(all_bits(&found), expected, "seed {seed}, round {round}, way {by_value}");
            for (tensor, expected) in &kept {
                assert_eq!(bits(tensor), *expected, "seed {seed}, round {round}: what is kept changed");
            }
            if let Some(result) = found.first().filter(|_| random.below(2) == 0) {
                kept.push((result.clone(), bits(result)));
                known.push(result.clone());
            }
        }
        assert_eq!(f.stats().misses, 1);
    }
}

/// Hundreds of steps in one entry, with gradients through all of them.
#[test]
fn deep_graphs_run() {
    let f = accelerate(|w: &Tensor, h: &Tensor| {
        let last = (0..60).fold(h.clone(), |h, _| &h + 0.05 * (w.matmul(&h)).tanh());
        let loss = last.square().sum(..);
        (loss.grad(w), loss)
    });
    let inputs = (ramp(&[8, 8], 1), ramp(&[8], 2));
    let there = to(&inputs, gpu());
    let (here, found) = (f.call(&inputs.0, &inputs.1).unwrap(), f.call(&there.0, &there.1).unwrap());
    assert!(apart(&here.0, &found.0) < 1e-5 && apart(&here.1, &found.1) < 1e-6);
    let again = crate::device::reversed(|| all_bits(&f.call(&there.0, &there.1).unwrap()));
    assert_eq!(again, all_bits(&found));
    assert_eq!(found.1.to(Device::Cpu).device(), Device::Cpu);
}
