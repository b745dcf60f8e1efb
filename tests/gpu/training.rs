//! Training steps of whole networks on the GPU: losses and parameters against the processor, and the same bits in every
//! order of blocks, warps and graph nodes.

use retape::{DType, Device, Tensor, Tree, accelerate, zip_map};

use crate::compare::{all_bits, apart, leaves, to};
use crate::device::{gpu, reversed};
use crate::formula::{labels, tensor};
use crate::models::{Block, Mlp, MlpState, Size};
use crate::network::Training;

/// How far losses and parameters of `f32` may be apart, in proportion to the largest element of each: sums of up to
/// some thousand products are ordered in another way than on the processor, over a few steps.
const BOUND: f64 = 5e-6;

fn check(what: &str, here: &[Tensor], there: &[Tensor], bound: f64) -> f64 {
    assert_eq!(here.len(), there.len());
    let worst = here.iter().zip(there).enumerate().map(|(position, (here, there))| {
        let apart = apart(here, there);
        assert!(apart <= bound, "{what} {position}: {apart}");
        apart
    });
    worst.fold(0.0, f64::max)
}

/// Runs steps here, there, and there in reversed order; each step maps what it carries to a loss and what is next.
fn check_steps<S: Tree + Clone>(
    n_steps: usize,
    start: &S,
    step: impl Fn(S, Device) -> (Tensor, S),
    compare: impl Fn(usize, &S, &S),
) {
    let gpu = gpu();
    let run = |device: Device| {
        let mut carried = to(start, device);
        let mut all = vec![];
        for _ in 0..n_steps {
            let (loss, next) = step(carried, device);
            assert_eq!(loss.device(), device);
            all.push((loss, next.clone()));
            carried = next;
        }
        all
    };
    let (here, there) = (run(Device::Cpu), run(gpu));
    for (k, ((loss, carried), (loss_there, carried_there))) in here.iter().zip(&there).enumerate() {
        let losses = check("the loss of step", std::slice::from_ref(loss), std::slice::from_ref(loss_there), BOUND);
        println!("step {k}: loss {loss}, apart by {losses:.1e}");
        compare(k, carried, carried_there);
    }
    let forward: Vec<_> = there.iter().map(|(loss, carried)| (all_bits(loss), all_bits(carried))).collect();
    let again: Vec<_> =
        reversed(|| run(gpu).iter().map(|(loss, carried)| (all_bits(loss), all_bits(carried))).collect());
    assert!(forward == again, "the order changes bits");
}

fn parameters_are_close<S: Tree>(k: usize, here: &S, there: &S) {
    let worst = check("parameter", &leaves(here), &leaves(there), BOUND);
    println!("step {k}: parameters apart by {worst:.1e}");
}

const RATE: f32 = 1e-3;

/// The two-output digit network at a batch of 2: convolutions, batch normalisation, Adam.
///
/// Adam divides a gradient by its size: where a gradient is nothing but rounding, as that of a bias before a
/// normalisation is, the step is of any sign and as large as the rate. So the gradients, which the first step keeps as
/// means, are compared as everything else is, in proportion to the largest of all of them; and steps where gradients
/// are above that noise.
#[test]
fn a_step_of_the_digit_network() {
    let step = accelerate(|t: &Training, x: &Tensor, digits: &Tensor, angles: &Tensor, rate: &Tensor| {
        t.step(x, digits, angles, rate)
    });
    let (x, digits, angles) = (tensor(&[2, 28, 28, 1], 1000, 0.5, 0.5), labels(2), tensor(&[2, 1], 1001, 1.0, 0.0));
    let run = |training: Training, device: Device| {
        let [x, digits, angles] = [&x, &digits, &angles].map(|input| input.to(device));
        step.call(training, x, digits, angles, RATE).unwrap()
    };
    let start = Training::new(7);
    check_steps(1, &start, run, |_, here, there| {
        let worst = check("running statistic", &leaves(&here.state), &leaves(&there.state), BOUND);
        let means = leaves(&here.adam.first).into_iter().zip(leaves(&there.adam.first));
        let numbers = |x: &Tensor| x.to_vec::<f32>().unwrap();
        let means: Vec<(Vec<f32>, Vec<f32>)> = means.map(|(a, b)| (numbers(&a), numbers(&b))).collect();
        let largest = means.iter().flat_map(|(a, _)| a).fold(0.0_f32, |largest, x| largest.max(x.abs()));
        let (before, params) = (leaves(&start.params), leaves(&here.params).into_iter().zip(leaves(&there.params)));
        let (mut n_noise, mut n, mut worst_mean, mut worst_step) = (0, 0, 0.0_f32, 0.0_f32);
        for (((mean, mean_there), (here, there)), before) in means.iter().zip(params).zip(&before) {
            let own = mean.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
            for (k, (here, there)) in numbers(&here).iter().zip(numbers(&there)).enumerate() {
                let apart = (mean[k] - mean_there[k]).abs();
                worst_mean = worst_mean.max(apart / largest);
                n += 1;
                // The bound on the step's difference: the relative error of the gradient, and the rounding of the
                // parameter.
                let relative = if apart > 0.0 { 2.0 * apart / mean[k].abs() } else { 0.0 };
                let is_noise = apart > 0.0 && (mean[k].abs() < 1e-3 * own || own < 1e-5 * largest);
                n_noise += usize::from(is_noise);
                let allowed = if is_noise { 2.0 * RATE } else { RATE * relative };
                let rounding = 2.0 * f32::EPSILON * (here.abs() + RATE);
                assert!((here - there).abs() <= allowed + rounding, "{here} and {there}, of {before}");
                if !is_noise {
                    worst_step = worst_step.max((here - there).abs() / RATE);
                }
            }
        }
        println!("statistics apart by {worst:.1e}, gradients by {worst_mean:.1e}, steps by {worst_step:.1e}");
        println!("{n_noise} of {n} gradients are no more than noise");
        assert!(f64::from(worst_mean) <= BOUND && worst_step < 1e-2);
        assert!(n_noise * 10 < n, "{n_noise} of {n}");
    });
}

/// The workload `mlp` at a tenth of its size: three dense layers, momentum.
#[test]
fn three_steps_of_the_mlp() {
    let (mlp, start) = Mlp::new([(78, 52), (52, 52), (52, 10)]);
    let (x, y) = (tensor(&[12, 78], 1000, 0.5, 0.5), labels(12));
    let step = accelerate(move |carried: &MlpState, x: &Tensor, y: &Tensor| mlp.step(carried, x, y));
    let run = |carried: MlpState, device: Device| step.call(carried, x.to(device), y.to(device)).unwrap();
    check_steps(3, &start, run, parameters_are_close);
    assert_eq!(step.stats().misses, 2);
}

/// The workload `transformer` at an eighth of its width.
#[test]
fn three_steps_of_the_transformer() {
    let size = Size { width: 32, heads: 4, products: DType::F32 };
    let x = tensor(&[2, 12, size.width], 1000, 1.0, 0.0);
    let step = accelerate(move |block: &Block, x: &Tensor| {
        let loss = block.apply(size, x).square().mean(..);
        let gradient = loss.grad(block);
        (loss, zip_map([block, &gradient], |[p, g]| p - g * 0.1_f32))
    });
    let run = |block: Block, device: Device| step.call(block, x.to(device)).unwrap();
    check_steps(3, &Block::new(size.width), run, parameters_are_close);
    assert_eq!(step.stats().misses, 2);
}
