//! Tensors and accelerated functions on a GPU, against the processor.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking; measured errors are printed")]
#![allow(dead_code, reason = "what is shared with other tests is not all used here")]

mod calls;
mod cases;
#[path = "../engine/reference/check.rs"]
mod check;
mod compare;
mod corners;
mod determinism;
mod device;
mod edges;
mod faults;
#[path = "../engine/reference/file.rs"]
mod file;
#[path = "../../examples/workloads/formula.rs"]
mod formula;
#[path = "../engine/random_graphs/generate.rs"]
mod generate;
mod graphs;
#[path = "../engine/reference/handlers.rs"]
mod handlers;
#[path = "../../examples/workloads/models.rs"]
mod models;
#[path = "../../examples/digits/network.rs"]
mod network;
mod options;
#[path = "../engine/reference/pooling.rs"]
mod pooling;
#[path = "../process/programs.rs"]
mod programs;
mod refusals;
#[path = "../engine/ops/sample.rs"]
mod sample;
mod samples;
mod sizes;
mod tools;
mod training;

use compare::ramp;
use device::{gpu, reversed};
use retape::{Device, Tensor, Tree, accelerate, value_and_grad};

fn bits(tensor: &Tensor) -> Vec<u32> {
    tensor.to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect()
}

#[test]
fn tensors_go_there_and_back() {
    let gpu = gpu();
    let x = ramp(&[3, 5], 1);
    let there = x.to(gpu);
    assert_eq!((there.device(), there.shape(), there.dtype()), (gpu, x.shape(), x.dtype()));
    assert_eq!(bits(&there), bits(&x));
    assert_eq!(bits(&there.to(Device::Cpu)), bits(&x));
    assert_eq!(there.to_string(), x.to_string());
    assert!(Tensor::zeros([0]).to(gpu).to_vec::<f32>().unwrap().is_empty());
}

#[test]
fn ops_run_where_their_tensors_are() {
    let gpu = gpu();
    let (x, y) = (ramp(&[4, 6], 2), ramp(&[6], 3));
    let f = |x: &Tensor, y: &Tensor| (x * y + 0.5).tanh();
    let (here, there) = (f(&x, &y), f(&x.to(gpu), &y.to(gpu)));
    assert_eq!(there.device(), gpu);
    assert_eq!(bits(&there), bits(&here), "pointwise graphs give the bits of the processor");
}

#[test]
fn two_devices_do_not_meet() {
    let gpu = gpu();
    let (x, y) = (ramp(&[4], 2), ramp(&[4], 3).to(gpu));
    let text = (&x + &y).error().unwrap().to_string();
    assert!(text.contains("cpu") && text.contains("cuda:0") && text.contains("tests/gpu/main.rs"), "{text}");
    let add = accelerate(|x: &Tensor, y: &Tensor| x + y);
    let text = add.call(&x, &y).unwrap_err().to_string();
    assert!(text.contains("cpu") && text.contains("cuda:0") && text.contains("tests/gpu/main.rs"), "{text}");
    assert_eq!(bits(&add.call(x.to(gpu), &y).unwrap()), bits(&add.call(&x, y.to(Device::Cpu)).unwrap()));
    assert_eq!(add.stats().entries.len(), 2, "the device is part of the signature");
}

#[derive(Clone, Tree)]
struct Params {
    w: Tensor,
    b: Tensor,
}

#[test]
fn a_training_step_agrees_with_the_processor() {
    let gpu = gpu();
    let step = accelerate(|p: &Params, x: &Tensor, y: &Tensor, rate: &Tensor| {
        let loss = ((x.matmul(&p.w) + &p.b).tanh() - y).square().mean(..);
        let grad: Params = loss.grad(p);
        let next = Params { w: &p.w - rate * grad.w, b: &p.b - rate * grad.b };
        (next, loss)
    });
    let params = Params { w: ramp(&[7, 5], 1), b: ramp(&[5], 2) };
    let (x, y) = (ramp(&[9, 7], 3), ramp(&[9, 5], 4));
    let there = |tensor: &Tensor| tensor.to(gpu);
    let mut here = params.clone();
    let mut on_gpu = Params { w: there(&params.w), b: there(&params.b) };
    for _ in 0..4 {
        let (next, loss) = step.call(here, &x, &y, 0.1_f32).unwrap();
        let (next_on_gpu, loss_on_gpu) = step.call(on_gpu, there(&x), there(&y), 0.1_f32).unwrap();
        assert_eq!(loss_on_gpu.device(), gpu);
        let (a, b) = (loss.item::<f32>().unwrap(), loss_on_gpu.item::<f32>().unwrap());
        assert!((a - b).abs() <= 1e-6 * a.abs(), "{a} and {b}");
        (here, on_gpu) = (next, next_on_gpu);
    }
    let close = |a: &Tensor, b: &Tensor| {
        a.to_vec::<f32>().unwrap().iter().zip(b.to_vec::<f32>().unwrap()).all(|(a, b)| (a - b).abs() < 1e-6)
    };
    assert!(close(&here.w, &on_gpu.w) && close(&here.b, &on_gpu.b));
    let stats = step.stats();
    assert_eq!((stats.misses, stats.hits), (2, 6));
    assert!(stats.device_bytes() > 0);
}

#[test]
fn the_unaccelerated_path_and_gradients_outside_run_there_too() {
    let gpu = gpu();
    let loss = accelerate(|p: &Params, x: &Tensor| (x.matmul(&p.w) + &p.b).sigmoid().sum(..));
    let p = Params { w: ramp(&[6, 4], 1).to(gpu), b: ramp(&[4], 2).to(gpu) };
    let x = ramp(&[3, 6], 5).to(gpu);
    let here = Params { w: p.w.to(Device::Cpu), b: p.b.to(Device::Cpu) };
    let x_here = x.to(Device::Cpu);
    let (value, gradient) = value_and_grad(|p: &Params| loss.call(p, &x).unwrap(), &p).unwrap();
    let (expected, expected_gradient) = value_and_grad(|p: &Params| loss.call(p, &x_here).unwrap(), &here).unwrap();
    assert_eq!((value.device(), gradient.w.device()), (gpu, gpu));
    let near = |a: &Tensor, b: &Tensor| {
        a.to_vec::<f32>().unwrap().iter().zip(b.to_vec::<f32>().unwrap()).all(|(a, b)| (a - b).abs() < 1e-5)
    };
    assert!(near(&value, &expected) && near(&gradient.w, &expected_gradient.w));
    loss.configure(|options| options.enabled = false);
    assert!(near(&loss.call(&p, &x).unwrap(), &expected));
}

#[test]
fn orders_of_blocks_and_warps_do_not_matter() {
    let gpu = gpu();
    let f = accelerate(|x: &Tensor| (x.exp().sum(..), x.softmax(1), x.matmul(&x.t())));
    let x = ramp(&[65, 33], 7).to(gpu);
    let run = || {
        let (a, b, c) = f.call(&x).unwrap();
        [bits(&a), bits(&b), bits(&c)]
    };
    assert_eq!(run(), reversed(run));
}
