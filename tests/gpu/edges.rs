//! The rims: nothing, one number, constants, captured tensors, calls in calls, and the needs of libraries of layers.

use retape::nn::{self, Dense, Embedding, Lstm};
use retape::ops::Op;
use retape::optim::{Adam, Sgd, clip_by_global_norm};
use retape::random::{self, Key};
use retape::{DType, Device, Tensor, accelerate, concat, map, stack, value_and_grad};

use crate::compare::{all_bits, apart, bits, leaves, ramp, to};
use crate::device::{gpu, reversed};

/// Runs a function here and there, op by op and accelerated; all results are where the arguments are.
fn same_bits(name: &str, inputs: &[Tensor], f: impl Fn(&Vec<Tensor>) -> Vec<Tensor>) {
    let (here, there) = (inputs.to_vec(), to(&inputs.to_vec(), gpu()));
    let function = accelerate(&f);
    let expected = all_bits(&function.call(&here).unwrap_or_else(|e| panic!("{name}: {e}")));
    let found = function.call(&there).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert!(found.iter().all(|tensor| tensor.device() == gpu()), "{name}");
    assert_eq!(all_bits(&found), expected, "{name}");
    assert_eq!(reversed(|| all_bits(&function.call(&there).unwrap())), expected, "{name}, reversed");
    function.configure(|options| options.enabled = false);
    let found = function.call(&there).unwrap_or_else(|e| panic!("{name}, op by op: {e}"));
    assert_eq!(all_bits(&found), expected, "{name}, op by op");
}

#[test]
fn nothing_is_computed_as_on_the_processor() {
    for shape in [[0, 3], [3, 0]] {
        let x = [Tensor::zeros(shape)];
        same_bits(&format!("formulas of {shape:?}"), &x, |x| vec![(&x[0] * 2.0).tanh(), x[0].t(), &x[0] + &x[0]]);
        same_bits(&format!("sums of {shape:?}"), &x, |x| vec![x[0].sum(..), x[0].sum(0), x[0].sum(1), x[0].prod(1)]);
        same_bits(&format!("gradients of {shape:?}"), &x, |x| vec![x[0].square().sum(..).grad(&x[0])]);
        same_bits(&format!("scans of {shape:?}"), &x, |x| vec![x[0].cumsum(1), x[0].sort(0), x[0].cummax(0)]);
    }
    let pair = [Tensor::zeros([4, 0]), Tensor::zeros([0, 5])];
    same_bits("a product over nothing", &pair, |x| vec![x[0].matmul(&x[1]), x[1].t().matmul(&x[0].t()) + 1.0]);
    let parts = [Tensor::zeros([0, 2]), ramp(&[3, 2], 1)];
    same_bits("nothing and something", &parts, |x| vec![concat(&[&x[0], &x[1]], 0), x[1].slice_axis(0, 1..1)]);
    let none = Tensor::from_vec(Vec::<i64>::new(), [0]).unwrap();
    same_bits("takes of nothing", &[ramp(&[3, 2], 1), none], |x| vec![x[0].take(&x[1], 0)]);
    let empty = accelerate(|x: &Vec<Tensor>| x.clone());
    assert!(empty.call(Vec::new()).unwrap().is_empty());
}

#[test]
fn numbers_are_tensors_too() {
    let number = Tensor::from(1.5_f32);
    same_bits("a number", std::slice::from_ref(&number), |x| vec![x[0].sin(), x[0].sum(..), x[0].square().grad(&x[0])]);
    same_bits("a number and more", &[number.clone(), ramp(&[7], 1)], |x| vec![&x[0] * &x[1], x[0].broadcast_to([4])]);
    let there = number.to(gpu());
    assert_eq!(there.item::<f32>().unwrap(), 1.5);
    assert_eq!((&there + &number).item::<f32>().unwrap(), 3.0);
    assert_eq!((&number + &there).device(), gpu());
}

/// Constants, arguments and captured tensors that are results lie where everything else does.
#[test]
fn all_results_are_on_the_device() {
    let captured = ramp(&[3], 4);
    same_bits("results of all sources", &[ramp(&[3], 1), ramp(&[2], 2)], move |x| {
        let constant = Tensor::from([1.0_f32, 2.0, 3.0]).to(x[0].device());
        let captured = if x[0].is_traced() { captured.clone() } else { captured.to(x[0].device()) };
        vec![x[0].ones_like(), x[1].clone(), x[0].reshape([1, 3]), captured.clone(), &x[0] + &captured, constant]
    });
    let host = ramp(&[3], 4);
    let returned = accelerate(move |x: &Tensor| (x + &host, host.clone())).call(ramp(&[3], 1).to(gpu())).unwrap();
    assert_eq!((returned.0.device(), returned.1.device()), (gpu(), gpu()));
    assert_eq!(bits(&returned.1), bits(&ramp(&[3], 4)));
}

/// A closure captured a tensor on a GPU, and has nothing but numbers as arguments.
#[test]
fn captured_tensors_say_where_to_run() {
    let weights = ramp(&[5], 1);
    let there = weights.to(gpu());
    let scaled = accelerate(move |rate: &Tensor| (&there * rate).tanh());
    let text = scaled.call(2.0_f32).unwrap_err().to_string();
    assert!(text.contains("cuda:0") && text.contains("cpu") && text.contains("tests/gpu/edges.rs"), "{text}");
    let rate = Tensor::from(2.0_f32).to(gpu());
    assert_eq!(bits(&scaled.call(rate).unwrap()), bits(&(&weights * 2.0).tanh()));
    // In an artefact, too.
    let there = weights.to(gpu());
    let make = |captured: Tensor| accelerate(move |x: &Tensor| x * &captured);
    let first = make(there.clone());
    let expected = bits(&first.call(&there).unwrap());
    let mut bytes = vec![];
    first.save_to(&mut bytes).unwrap();
    let second = make(Tensor::zeros([5]).to(gpu()));
    assert_eq!(second.load_from(&bytes[..]).unwrap().entries, 1);
    assert_eq!(bits(&second.call(&there).unwrap()), expected);
}

#[test]
fn calls_in_calls() {
    let inner = accelerate(|x: &Tensor| (x * 3.0).sin());
    let outer = accelerate(|x: &Tensor| {
        let y = inner.call(x).expect("a call in a trace");
        (y.square().sum(..).grad(x), y)
    });
    let x = ramp(&[2, 3], 1);
    let (here, there) = (outer.call(&x).unwrap(), outer.call(x.to(gpu())).unwrap());
    assert_eq!(all_bits(&there), all_bits(&here));
    assert_eq!(there.0.device(), gpu());
}

/// The same key gives the same numbers everywhere.
#[test]
fn random_numbers_are_those_of_the_processor() {
    let key = Key::new(7);
    let there = to(&key, gpu());
    let draw = |key: &Key| {
        let [a, b, c] = key.split();
        let uniform = random::uniform(&a, [40], DType::F32);
        let integers = random::randint(&a, -5..1_000_000, [37], DType::I32);
        let wide = random::randint(&b, .., [35], DType::I64);
        let normal = random::normal(&b, [33], DType::F64);
        vec![uniform, normal, random::bernoulli(&c.fold_in(3), 0.5, [50]), integers, wide]
    };
    let function = accelerate(|key: &Key| draw(key));
    let expected = all_bits(&draw(&key));
    assert_eq!(all_bits(&function.call(&key).unwrap()), expected);
    assert_eq!(all_bits(&function.call(&there).unwrap()), expected);
    assert_eq!(all_bits(&draw(&there)), expected);
    let x = ramp(&[60], 1);
    let dropped = accelerate(|x: &Tensor, key: &Key| nn::dropout(x, key, 0.3, true));
    let expected = bits(&dropped.call(&x, &key).unwrap());
    assert_eq!(bits(&dropped.call(x.to(gpu()), &there).unwrap()), expected);
    assert_eq!(bits(&nn::dropout(&x.to(gpu()), &there, 0.3, true)), expected);
}

/// States that optimisers make lie where their parameters are, and steps go on there.
#[test]
fn optimisers_start_on_the_device() {
    let model = || vec![Dense::new(1, 6, 5), Dense::new(2, 5, 3)];
    let step = |params: &Vec<Dense>, x: &Tensor| {
        let loss = params.iter().fold(x.clone(), |h, layer| layer.apply(&h).tanh()).square().mean(..);
        (clip_by_global_norm(&loss.grad(params), 0.5), loss)
    };
    let (x, adam, sgd) = (ramp(&[4, 6], 3), Adam::new(), Sgd::new().momentum(0.9).nesterov());
    let run = |device: Device| {
        let (mut params, x) = (to(&model(), device), x.to(device));
        let (mut state, mut momentum) = (adam.init(&params), sgd.init(&params));
        let moments = [leaves(&state.first), leaves(&momentum)].concat();
        assert!(moments.iter().filter(|tensor| tensor.rank() > 0).all(|tensor| tensor.device() == device));
        let function = accelerate(|params: &Vec<Dense>, x: &Tensor| step(params, x));
        for _ in 0..3 {
            let (gradient, _) = function.call(&params, &x).unwrap();
            // Un-accelerated updates.
            (params, state) = adam.update(&params, &gradient, &state, 1e-2_f32);
            (params, momentum) = sgd.update(&params, &gradient, &momentum, 1e-2_f32);
        }
        params
    };
    let (here, there) = (leaves(&run(Device::Cpu)), leaves(&run(gpu())));
    for (here, there) in here.iter().zip(&there) {
        assert_eq!(there.device(), gpu());
        assert!(apart(here, there) < 1e-5, "{}", apart(here, there));
    }
}

#[test]
fn layers_and_losses_run() {
    let (table, lstm, labels) = (Embedding::new(1, 9, 4), Lstm::new(2, 4, 6), Tensor::from([1_i64, 0, 3]));
    let ids = Tensor::from([4_i64, 8, 4]);
    let zeros = Tensor::zeros([3, 6]);
    let loss = |model: &(Embedding, Lstm), ids: &Tensor, labels: &Tensor, zeros: &Tensor| {
        let x = model.0.apply(ids);
        let (h, c) = model.1.step(&x, (zeros, zeros));
        nn::softmax_cross_entropy_labels(&(h + c), labels)
    };
    let model = (table, lstm);
    let run = |device: Device| {
        let [ids, labels, zeros] = [&ids, &labels, &zeros].map(|tensor| tensor.to(device));
        let function = accelerate(|model: &(Embedding, Lstm), ids: &Tensor, labels: &Tensor, zeros: &Tensor| {
            let loss = loss(model, ids, labels, zeros);
            (loss.grad(model), loss)
        });
        let model = to(&model, device);
        let (gradient, value) = function.call(&model, &ids, &labels, &zeros).unwrap();
        let at_once = value_and_grad(|model: &(Embedding, Lstm)| loss(model, &ids, &labels, &zeros), &model).unwrap();
        for (a, b) in leaves(&at_once.1).iter().zip(leaves(&gradient)) {
            assert!(apart(a, &b) < 2e-6);
        }
        [vec![value], leaves(&gradient)].concat()
    };
    for (here, there) in run(Device::Cpu).iter().zip(run(gpu())) {
        assert!(apart(here, &there) < 2e-6, "{}", apart(here, &there));
    }
}

/// Many small tensors in one call, and many outputs.
#[test]
fn calls_have_many_arguments() {
    let xs: Vec<Tensor> = (1..80).map(|n| ramp(&[n % 7 + 1], n)).collect();
    same_bits("many", &xs, |xs| {
        let each = xs.iter().map(|x| x.max(..) * 2.0);
        let all = stack(&each.clone().collect::<Vec<_>>().iter().collect::<Vec<_>>(), 0);
        each.chain([all]).collect()
    });
}

/// A kernel has room for 512 addresses.
#[test]
fn lists_are_longer_than_a_kernel_has_parameters() {
    let xs: Vec<Tensor> = (0..600).map(|n| ramp(&[2], n)).collect();
    same_bits("a long list", &xs, |xs| {
        let all: Vec<&Tensor> = xs.iter().collect();
        let (rows, row) = (stack(&all, 0), concat(&all, 0));
        let loss = (rows.square().sum(1) * row.slice_axis(0, 0..600)).sum(..);
        vec![loss.grad(&xs[0]), loss.grad(&xs[599]), rows, row]
    });
}

/// Threads that trace, compile, run, move and free at once.
#[test]
fn many_threads_do_many_things() {
    let expected: Vec<Vec<Vec<u64>>> = (0..8).map(|k| work(k, Device::Cpu)).collect();
    std::thread::scope(|scope| {
        for (k, expected) in expected.iter().enumerate() {
            scope.spawn(move || assert_eq!(work(k, gpu()), *expected, "thread {k}"));
        }
    });
}

fn work(k: usize, device: Device) -> Vec<Vec<u64>> {
    let mut found = vec![];
    for round in 0..6 {
        let factor = (k * 10 + round) as f32 * 0.1;
        let f = accelerate(move |x: &Tensor| ((x * factor).sin(), x.max(..)));
        let x = ramp(&[20 + 3 * k + round, 5], k).to(device);
        let (y, largest) = f.call(&x).unwrap();
        let moved = y.to(Device::Cpu).to(device);
        found.push(bits(&(&moved * &largest - y.t().t())));
        drop((f, x));
        found.push(bits(&moved.argsort(0)));
    }
    found
}

/// The registry is what the samples are made from; here are the ops that have none.
#[test]
fn the_ops_without_samples_run() {
    let ops: Vec<&str> = Op::NAMES.to_vec();
    assert!(ops.contains(&"stop_gradient"));
    same_bits("stop_gradient", &[ramp(&[5], 1)], |x| {
        let stopped = x[0].stop_gradient() * &x[0];
        vec![stopped.sum(..).grad(&x[0]), stopped]
    });
    let there = ramp(&[5], 1).to(gpu());
    assert_eq!(map(&there, Tensor::clone).device(), gpu());
}
