//! Results do not depend on the number of threads, and repeat in every bit.
//!
//! The number of threads belongs to the process, and other tests count its blocks of memory, so the test takes a turn.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]
#![allow(clippy::ptr_arg, reason = "what is accelerated takes trees, and slices are none")]

use retape::nn::{self, BatchNorm, BatchNormState, Conv2d, Dense, Mask};
use retape::ops::ConvOptions;
use retape::optim::{Adam, AdamState};
use retape::{DType, Tensor, Tree, accelerate, set_n_threads, value_and_grad};

/// The bits of all elements of all tensors.
fn bits(tensors: &[Tensor]) -> Vec<u64> {
    let of = |x: &Tensor| match x.dtype() {
        DType::F64 => x.to_vec::<f64>().unwrap().into_iter().map(f64::to_bits).collect::<Vec<u64>>(),
        DType::F32 => x.to_vec::<f32>().unwrap().into_iter().map(|x| x.to_bits().into()).collect(),
        _ => x.cast(DType::I64).to_vec::<i64>().unwrap().into_iter().map(|x| x as u64).collect(),
    };
    tensors.iter().flat_map(of).collect()
}

/// Numbers in `[-1, 1)` in no order, of many magnitudes, so that sums in another order differ.
fn numbers(dtype: DType, shape: &[usize], seed: u64) -> Tensor {
    let element = |k: u64| {
        let x = (k + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed.wrapping_mul(0xd1b5_4a32_d192_ed03));
        let x = (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((x ^ (x >> 32)) >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    };
    let n: usize = shape.iter().product();
    Tensor::from_vec((0..n as u64).map(element).collect::<Vec<_>>(), shape).unwrap().cast(dtype)
}

/// Runs a function un-accelerated and accelerated, each with one thread and with two, and after clearing the cache.
/// All accelerated results have the same bits, and so have all un-accelerated ones.
fn check<F>(name: &str, function: F, inputs: &[Tensor])
where
    F: Fn(&Vec<Tensor>) -> Vec<Tensor> + Copy,
{
    let inputs = inputs.to_vec();
    for enabled in [true, false] {
        let f = accelerate(function);
        f.configure(|options| options.enabled = enabled);
        let mut first = None;
        for n_threads in [1, 2, 1, 2, 7] {
            set_n_threads(n_threads);
            assert_eq!(retape::n_threads(), n_threads);
            let found = bits(&f.call(&inputs).unwrap_or_else(|e| panic!("{name}: {e}")));
            let first = first.get_or_insert_with(|| found.clone());
            assert!(found == *first, "{name} with {n_threads} threads, accelerated: {enabled}");
            f.clear_cache();
            let after = accelerate(function);
            after.configure(|options| options.enabled = enabled);
            let fresh = bits(&after.call(&inputs).unwrap_or_else(|e| panic!("{name}: {e}")));
            assert!(fresh == *first, "{name}, fresh, with {n_threads} threads, accelerated: {enabled}");
        }
        assert!(first.unwrap().iter().any(|&bits| bits != 0), "{name} is all zero");
    }
}

#[derive(Clone, Tree)]
struct Net {
    conv: Conv2d,
    norm: BatchNorm,
    dense: Dense,
}

#[derive(Clone, Tree)]
struct Training {
    net: Net,
    state: BatchNormState,
    adam: AdamState<Net>,
}

fn step(training: &Training, x: &Tensor, labels: &Tensor) -> (Tensor, Training) {
    let Training { net, state, adam } = training;
    let features = net.conv.apply(x, ConvOptions::same().stride(2));
    let (features, state) = net.norm.apply(&features, state);
    let logits = net.dense.apply(&features.relu().reshape([x.dim(0), 7 * 7 * 8]));
    let loss = nn::softmax_cross_entropy(&logits, labels);
    let gradient = loss.grad(net);
    let (net, adam) = Adam::new().update(net, &gradient, adam, 1e-2_f32);
    (loss, Training { net, state, adam })
}

/// Losses and final weights of five steps of training.
fn trained(n_threads: usize, enabled: bool) -> Vec<u64> {
    set_n_threads(n_threads);
    let net = Net { conv: Conv2d::new(1, [3, 3], 3, 8), norm: BatchNorm::new(8), dense: Dense::new(2, 7 * 7 * 8, 10) };
    let mut training = Training { adam: Adam::new().init(&net), state: BatchNormState::new(8), net };
    let x = numbers(DType::F32, &[9, 13, 13, 3], 1);
    let labels = (0..90).map(|k| f32::from(u8::from(k / 10 == k % 10))).collect::<Vec<_>>();
    let labels = Tensor::from_vec(labels, [9, 10]).unwrap();
    let step = accelerate(step);
    step.configure(|options| options.enabled = enabled);
    let mut found = vec![];
    for _ in 0..5 {
        let loss;
        (loss, training) = step.call(&training, &x, &labels).unwrap();
        assert!(loss.item::<f32>().unwrap().is_finite());
        found.push(loss);
    }
    let Net { conv, norm, dense } = training.net;
    found.extend(conv.bias);
    found.extend([conv.weight, norm.scale, norm.offset, dense.weight, dense.bias]);
    found.extend([training.state.mean, training.state.variance]);
    bits(&found)
}

fn training_steps() {
    for enabled in [true, false] {
        let once = trained(1, enabled);
        assert!(once[0] != once[4], "training moves");
        for n_threads in [2, 1, 2, 5] {
            assert!(trained(n_threads, enabled) == once, "{n_threads} threads, accelerated: {enabled}");
        }
    }
}

fn attention(inputs: &Vec<Tensor>) -> Vec<Tensor> {
    let [queries, keys, values] = &inputs[..] else { panic!("three inputs") };
    let loss = nn::attention(queries, keys, values, 0.25, Mask::Causal).square().sum(..);
    let gradient = loss.grad(inputs);
    [vec![loss], gradient].concat()
}

fn softmax(inputs: &Vec<Tensor>) -> Vec<Tensor> {
    let (y, gradient) = value_and_grad(|x: &Tensor| (x.softmax(-1) * x).sum(..), &inputs[0]).unwrap();
    vec![inputs[0].softmax(-1), inputs[0].logsumexp(0), y, gradient]
}

fn sums(inputs: &Vec<Tensor>) -> Vec<Tensor> {
    let of = |x: &Tensor| {
        let flat = x.reshape([x.n_elements()]);
        vec![x.sum(..), x.sum(0), x.sum(-1), x.mean(..), x.exp().sum(..), x.max(..), flat.cumsum(0)]
    };
    inputs.iter().flat_map(of).collect()
}

fn products(inputs: &Vec<Tensor>) -> Vec<Tensor> {
    let [a, b] = &inputs[..] else { panic!("two inputs") };
    let product = a.matmul(b);
    vec![a.transpose().matmul(&product), product.matmul(&b.transpose()), product]
}

fn sorted(inputs: &Vec<Tensor>) -> Vec<Tensor> {
    let order = inputs[0].argsort(0);
    vec![inputs[0].take_along(&order, 0), order, inputs[0].argsort_descending(1), inputs[0].argmax(1)]
}

fn convolved(inputs: &Vec<Tensor>) -> Vec<Tensor> {
    let [x, filter] = &inputs[..] else { panic!("two inputs") };
    let loss = x.conv2d(filter, ConvOptions::same()).tanh().sum(..);
    let gradient = loss.grad(inputs);
    [vec![loss], gradient].concat()
}

#[test]
fn threads_and_repetition_change_no_bit() {
    let _turn = crate::alone();
    training_steps();
    for dtype in [DType::F32, DType::F64] {
        let of = |shape: &[usize], seed| numbers(dtype, shape, seed);
        check("attention", attention, &[2, 3, 4].map(|seed| of(&[2, 37, 3, 16], seed)));
        check("softmax", softmax, &[of(&[301, 97], 5)]);
        check("sums", sums, &[of(&[513, 1021], 6), of(&[3, 100_003], 7)]);
        check("products", products, &[of(&[127, 259], 8), of(&[259, 65], 9)]);
        check("products of vectors", products, &[of(&[1, 1001], 10), of(&[1001, 3], 11)]);
        check("batches of products", products, &[of(&[5, 33, 17], 12), of(&[5, 17, 31], 13)]);
        check("sort", sorted, &[of(&[997, 23], 14)]);
        check("convolution", convolved, &[of(&[5, 15, 17, 7], 15), of(&[3, 3, 7, 9], 16)]);
    }
}
