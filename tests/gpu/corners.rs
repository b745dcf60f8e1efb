//! Edges that a user meets: nothing, one element, every dtype, odd closures, donations, threads on two devices, caches
//! that change under calls, pins and artefacts in both modes, numbers and keys in main memory.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use retape::data::{MiniBatches, gather};
use retape::nn::{self, BatchNorm, BatchNormState, Mask};
use retape::optim::{Adam, AdamState, Sgd};
use retape::random::{self, Key};
use retape::{
    Check, DType, Device, Error, MathMode, OnDifference, Tensor, Tolerance, accelerate, map, value_and_grad, vjp,
};

use crate::compare::{all_bits, apart, bits, ramp, to};
use crate::device::{gpu, second_gpu};

#[test]
fn nothing_and_one_element() {
    let gpu = gpu();
    let f = accelerate(|x: &Tensor| ((x * 2.0).tanh(), x.sum(..), x.max(..)));
    for shape in [vec![], vec![1], vec![1, 1, 1]] {
        let x = ramp(&shape, 3);
        assert_eq!(all_bits(&f.call(x.to(gpu)).unwrap()), all_bits(&f.call(&x).unwrap()), "{shape:?}");
    }
    let f = accelerate(|x: &Tensor| (x * 2.0, x.sum(..), x.sum(0), x.mean(..)));
    for shape in [vec![0], vec![0, 3], vec![3, 0], vec![2, 0, 5]] {
        let x = ramp(&shape, 3);
        assert_eq!(all_bits(&f.call(x.to(gpu)).unwrap()), all_bits(&f.call(&x).unwrap()), "{shape:?}");
        let (a, b) = (f.call(x.to(gpu)).unwrap(), f.call(x.to(gpu)).unwrap());
        assert_eq!((a.0.device(), a.1.device(), b.2.device()), (gpu, gpu, gpu));
    }
    let product = accelerate(|x: &Tensor| (x.matmul(&x.t()), x.t().matmul(x)));
    let x = ramp(&[4, 0], 1);
    assert_eq!(all_bits(&product.call(x.to(gpu)).unwrap()), all_bits(&product.call(&x).unwrap()));
}

#[test]
fn shapes_beyond_memory_are_errors() {
    let gpu = gpu();
    let x = Tensor::ones([1]).to(gpu);
    // The second has more blocks than a launch may have, too.
    for (n, reason) in
        [(1_usize << 40, "4.0 TiB asked for by a call of the function"), (1 << 45, "more blocks than a launch has")]
    {
        let f = accelerate(|x: &Tensor| x.broadcast_to([n]) + x.broadcast_to([n]) * 2.0);
        for _ in 0..2 {
            let text = f.call(&x).unwrap_err().to_string();
            assert!(text.contains("cuda:0") && text.contains(reason) && !text.contains("report"), "{text}");
        }
    }
    assert!((x.broadcast_to([1 << 45]) + 1.0).to_vec::<f32>().is_err());
    assert_eq!((&x + 1.0).item::<f32>().unwrap(), 2.0, "and everything stays usable");
}

#[test]
fn views_of_every_dtype() {
    let gpu = gpu();
    for dtype in DType::ALL {
        let x = (ramp(&[6, 10], 1) * 40.0 + 50.0).cast(dtype);
        let f = |x: &Tensor| x.t().slice(&[1, 0], &[9, 6], &[3, 2]).flip([0]).reshape([9]);
        let there = x.to(gpu);
        assert_eq!(bits(&f(&there)), bits(&f(&x)), "{dtype} op by op");
        let compiled = accelerate(f);
        assert_eq!(bits(&compiled.call(&there).unwrap()), bits(&f(&x)), "{dtype}");
        // A view goes to the device and back as what it shows.
        assert_eq!(bits(&f(&x).to(gpu).to(Device::Cpu)), bits(&f(&x)), "{dtype}");
        assert_eq!(bits(&f(&there).to(Device::Cpu)), bits(&f(&x)), "{dtype}");
        let compared = accelerate(|x: &Tensor| (x.sort(1), x.max(0), x.cast(DType::F32), x.cast(DType::I32)));
        if dtype.is_half() || dtype == DType::Bool {
            continue;
        }
        assert_eq!(all_bits(&compared.call(&there).unwrap()), all_bits(&compared.call(&x).unwrap()), "{dtype}");
    }
}

#[test]
fn closures_that_do_nothing() {
    let gpu = gpu();
    let x = ramp(&[5], 1).to(gpu);
    let same = accelerate(|x: &Tensor| (x.clone(), x.clone()));
    let constant = accelerate(|_: &Tensor| (Tensor::from(3.0_f32), Tensor::ones([2, 2])));
    let both = accelerate(|x: &Tensor| (x.clone(), x * 0.0, Tensor::from(7.0_f32)));
    for _ in 0..2 {
        let (a, b) = same.call(&x).unwrap();
        assert_eq!((bits(&a), bits(&b), a.device()), (bits(&x), bits(&x), gpu));
        let (a, b) = same.call(ramp(&[5], 1).to(gpu)).unwrap();
        assert_eq!((bits(&a), bits(&b)), (bits(&x), bits(&x)));
        let (a, b) = constant.call(&x).unwrap();
        assert_eq!((a.device(), b.device()), (gpu, gpu), "a call runs where its tensors are");
        assert_eq!((a.item::<f32>().unwrap(), b.to_vec::<f32>().unwrap()), (3.0, vec![1.0; 4]));
        let (a, _, c) = both.call(&x).unwrap();
        assert_eq!((bits(&a), c.device(), c.item::<f32>().unwrap()), (bits(&x), gpu, 7.0));
    }
    let captured = x.clone();
    let capture = accelerate(move |x: &Tensor| (captured.clone(), x.clone()));
    for _ in 0..2 {
        assert_eq!(all_bits(&capture.call(&x).unwrap()), [bits(&x), bits(&x)]);
    }
    // The captured tensor says where a call without tensors runs.
    let captured = x.clone();
    let alone = accelerate(move |(): &()| &captured * 2.0);
    let found = alone.call(()).unwrap();
    assert_eq!((found.device(), bits(&found)), (gpu, bits(&(&x * 2.0))));
}

#[test]
fn numbers_in_main_memory_go_along() {
    let gpu = gpu();
    let f = accelerate(|x: &Tensor, rate: &Tensor| x * rate);
    let x = ramp(&[5], 1).to(gpu);
    // A number on the host and on the device, by value and by reference.
    let expected = bits(&(&x * 2.0));
    let two = Tensor::from(2.0_f32);
    assert_eq!(bits(&f.call(&x, 2.0_f32).unwrap()), expected);
    assert_eq!(bits(&f.call(&x, &two).unwrap()), expected);
    assert_eq!(bits(&f.call(&x, two.clone()).unwrap()), expected);
    assert_eq!((two.device(), f.stats().misses), (Device::Cpu, 1), "{:?}", f.explain());
    // One on the device is another signature.
    assert_eq!(bits(&f.call(&x, two.to(gpu)).unwrap()), expected);
    assert_eq!(f.stats().misses, 2);
    // A number on the device does not draw what is in main memory along.
    let text = f.call(ramp(&[5], 1), two.to(gpu)).unwrap_err().to_string();
    assert!(text.contains("cpu") && text.contains("cuda:0"), "{text}");
    // One element with an axis is no number.
    assert!(f.call(&x, Tensor::ones([1])).is_err());
}

/// As a user writes it: the state is made from parameters that are already there.
#[test]
fn optimisers_made_on_the_device_miss_once() {
    let gpu = gpu();
    let adam = Adam::new();
    let step = accelerate(move |p: &Vec<Tensor>, state: &AdamState<Vec<Tensor>>, x: &Tensor| {
        let loss = x.matmul(&p[0]).square().mean(..);
        let gradient = loss.grad(p);
        let (p, state) = adam.update(p, &gradient, state, 1e-2_f32);
        (p, state, loss)
    });
    let run = |device: Device| {
        let mut p = vec![ramp(&[6, 4], 1).to(device)];
        let x = ramp(&[3, 6], 2).to(device);
        let mut state = adam.init(&p);
        for _ in 0..4 {
            let (next, next_state, _) = step.call(p, state, &x).unwrap();
            (p, state) = (next, next_state);
        }
        (p, state)
    };
    let there = run(gpu);
    assert_eq!(step.stats().misses, 1, "{:?}", step.explain());
    let here = run(Device::Cpu);
    assert!(apart(&here.0[0], &there.0[0]) < 1e-5);
    // Un-accelerated.
    let sgd = Sgd::new().momentum(0.5);
    let p = vec![ramp(&[6, 4], 1).to(gpu)];
    let (next, state) = sgd.update(&p, &p, &sgd.init(&p), 0.1_f32);
    assert_eq!(next[0].device(), gpu);
    let (next, _) = sgd.update(&next, &p, &state, 0.1_f32);
    next[0].to_vec::<f32>().unwrap();
    let (next, state) = adam.update(&p, &p, &adam.init(&p), 0.1_f32);
    let (next, _) = adam.update(&next, &p, &state, 0.1_f32);
    assert_eq!(next[0].device(), gpu);
    next[0].to_vec::<f32>().unwrap();
}

#[test]
fn layers_run_op_by_op() {
    let gpu = gpu();
    let (norm, state) = (to(&BatchNorm::new(4), gpu), to(&BatchNormState::new(4), gpu));
    let x = ramp(&[8, 4], 1);
    let (y, next) = norm.apply(&x.to(gpu), &state);
    let (y_here, next_here) = BatchNorm::new(4).apply(&x, &BatchNormState::new(4));
    assert!(apart(&y_here, &y) < 1e-5);
    assert!(all_bits(&next).len() == all_bits(&next_here).len());
    norm.infer(&x.to(gpu), &next).to_vec::<f32>().unwrap();
    // A state that was left in main memory.
    let text = norm.infer(&x.to(gpu), &BatchNormState::new(4)).error().unwrap().to_string();
    assert!(text.contains("cpu") && text.contains("cuda:0") && text.contains("tests/gpu/corners.rs"), "{text}");

    let q = ramp(&[2, 5, 2, 4], 3);
    let mixed = |q: &Tensor| nn::attention(q, q, q, 0.5, Mask::Causal);
    assert!(apart(&mixed(&q), &mixed(&q.to(gpu))) < 1e-5);
    let labels = Tensor::from_vec(vec![0_i64, 3, 1], [3]).unwrap();
    let loss = |x: &Tensor, y: &Tensor| nn::softmax_cross_entropy_labels(x, y);
    let logits = ramp(&[3, 4], 4);
    assert!(apart(&loss(&logits, &labels), &loss(&logits.to(gpu), &labels.to(gpu))) < 1e-5);
}

#[test]
fn keys_in_main_memory() {
    let gpu = gpu();
    let key = Key::new(7);
    let there = Key::from_tensor(key.tensor().to(gpu));
    let draw = |key: &Key| random::normal(&key.fold_in(3_u32), [40], DType::F32);
    assert_eq!(bits(&draw(&there)), bits(&draw(&key)));
    assert_eq!(draw(&there).device(), gpu);
    let noisy =
        accelerate(|x: &Tensor, key: &Tensor| x + random::uniform(&Key::from_tensor(key.clone()), [40], DType::F32));
    let x = ramp(&[40], 1);
    let expected = bits(&noisy.call(&x, key.tensor()).unwrap());
    assert_eq!(bits(&noisy.call(x.to(gpu), there.tensor()).unwrap()), expected);
    let text = noisy.call(x.to(gpu), key.tensor()).unwrap_err().to_string();
    assert!(text.contains("cpu") && text.contains("cuda:0") && text.contains("Tensor::to"), "{text}");
    // A key that the closure captured is sent.
    let captured = key.clone();
    let noisy = accelerate(move |x: &Tensor| x + random::uniform(&captured, [40], DType::F32));
    assert_eq!(bits(&noisy.call(x.to(gpu)).unwrap()), expected);
}

#[test]
fn gradients_with_cotangents_in_main_memory() {
    let gpu = gpu();
    let f = accelerate(|x: &Tensor| x.square().tanh());
    let (x, ct) = (ramp(&[6], 1), ramp(&[6], 2));
    let (_, expected) = vjp(|x: &Tensor| f.call(x).unwrap(), &x, &ct).unwrap();
    let (_, found) = vjp(|x: &Tensor| f.call(x).unwrap(), &x.to(gpu), &ct.to(gpu)).unwrap();
    assert_eq!(bits(&found), bits(&expected));
    let text = vjp(|x: &Tensor| f.call(x).unwrap(), &x.to(gpu), &ct).unwrap_err().to_string();
    assert!(text.contains("cpu") && text.contains("cuda:0"), "{text}");
    // Through what is constant in main memory.
    let (value, gradient) = value_and_grad(|x: &Tensor| (f.call(x).unwrap() * 2.0).sum(..), &x.to(gpu)).unwrap();
    assert_eq!((value.device(), gradient.device()), (gpu, gpu));
    // A parameter without influence has a gradient of zeros where it is asked for.
    let pair = vec![x.to(gpu), x.to(gpu)];
    let (_, zeros) = value_and_grad(|p: &Vec<Tensor>| p[0].sum(..) + p[1].sum(..) * 0.0, &pair).unwrap();
    assert_eq!((zeros[0].device(), zeros[1].device()), (gpu, gpu));
}

#[test]
fn accelerated_functions_inside_others() {
    let gpu = gpu();
    let inner = accelerate(|x: &Tensor| (x * 2.0).tanh());
    let outer = accelerate(|x: &Tensor| {
        let y = inner.call(x).unwrap();
        let (_, gradient) = vjp(|x: &Tensor| inner.call(x).unwrap().sum(..), x, &Tensor::from(1.0_f32)).unwrap();
        y + gradient
    });
    let x = ramp(&[9], 1);
    let expected = bits(&outer.call(&x).unwrap());
    assert_eq!(bits(&outer.call(x.to(gpu)).unwrap()), expected);
    assert_eq!(bits(&outer.call(x.to(gpu)).unwrap()), expected);
    outer.configure(|options| options.enabled = false);
    assert_eq!(bits(&outer.call(x.to(gpu)).unwrap()), expected);
}

#[test]
fn donated_twice() {
    let gpu = gpu();
    let f = accelerate(|a: &Tensor, b: &Tensor| (a + b, a - b));
    let x = ramp(&[4000], 1).to(gpu);
    let expected = all_bits(&f.call(&x, &x).unwrap());
    let y = x.clone();
    assert_eq!(all_bits(&f.call(x, y).unwrap()), expected);
    let x = ramp(&[4000], 1).to(gpu);
    let (view, again) = (x.reshape([4000]), x.reshape([4000]));
    drop(x);
    assert_eq!(all_bits(&f.call(view, again).unwrap()), expected);
    // On the host: the CPU's copy stays.
    let host = ramp(&[4000], 1);
    let (a, b) = (host.to(gpu), host.to(gpu));
    assert_eq!(all_bits(&f.call(a, b).unwrap()), expected);
    assert_eq!(bits(&host), bits(&ramp(&[4000], 1)));
}

#[test]
fn threads_on_two_devices_while_the_cache_changes() {
    let (first, second) = (gpu(), second_gpu());
    let f = accelerate(|x: &Tensor, y: &Tensor| (x.matmul(y).tanh(), (x * 0.5 + y).sum(..)));
    let devices = [Some(Device::Cpu), Some(first), second];
    let expected: Vec<_> = (0..3)
        .map(|k| {
            let (x, y) = (ramp(&[8 + k, 8 + k], k), ramp(&[8 + k, 8 + k], k + 1));
            devices.map(|device| device.map(|device| all_bits(&f.call(x.to(device), y.to(device)).unwrap())))
        })
        .collect();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let calls: Vec<_> = (0..6)
            .map(|thread| {
                let (f, expected) = (&f, &expected);
                scope.spawn(move || {
                    for turn in 0..12 {
                        let k = (thread + turn) % 3;
                        let Some(device) = devices[(thread + turn / 3) % 3] else { continue };
                        let (x, y) = (ramp(&[8 + k, 8 + k], k), ramp(&[8 + k, 8 + k], k + 1));
                        let found = f.call(x.to(device), y.to(device)).unwrap();
                        assert_eq!(Some(all_bits(&found)), expected[k][(thread + turn / 3) % 3], "{device}");
                    }
                })
            })
            .collect();
        let (f, over) = (&f, &over);
        scope.spawn(move || {
            let mut turn = 0;
            while !over.load(SeqCst) {
                turn += 1;
                match turn % 4 {
                    0 => f.clear_cache(),
                    1 => f.configure(|options| options.capacity = 1),
                    2 => f.configure(|options| options.capacity = 50),
                    _ => f.configure(|options| {
                        options.byte_budget = retape::Budget { host: None, device: Some(1 << (turn % 20)) }
                    }),
                }
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        });
        let results: Vec<_> = calls.into_iter().map(|call| call.join()).collect();
        over.store(true, SeqCst);
        results.into_iter().for_each(|result| result.unwrap());
    });
}

#[test]
fn pins_and_artefacts_keep_their_mode() {
    let gpu = gpu();
    let make = || accelerate(|x: &Tensor| x.matmul(x).exp() / 3.0);
    let f = make();
    let x = ramp(&[20, 20], 1).to(gpu);
    let strict = bits(&f.call(&x).unwrap());
    let pinned_strict = f.pin(&x).unwrap();
    f.configure(|options| options.math = MathMode::Fast);
    let pinned_fast = f.pin(&x).unwrap();
    let fast = bits(&f.call(&x).unwrap());
    assert_ne!(strict, fast, "the mode does something");
    f.configure(|options| options.math = MathMode::Strict);
    for _ in 0..2 {
        assert_eq!(
            (bits(&pinned_strict.call(&x).unwrap()), bits(&pinned_fast.call(&x).unwrap())),
            (strict.clone(), fast.clone())
        );
    }
    let mut bytes = vec![];
    assert_eq!(f.save_to(&mut bytes).unwrap().entries, 2);
    let g = make();
    assert_eq!(g.load_from(&bytes[..]).unwrap().entries, 2);
    g.configure(|options| options.locked = true);
    assert_eq!(bits(&g.call(&x).unwrap()), strict);
    g.configure(|options| options.math = MathMode::Fast);
    assert_eq!(bits(&g.call(&x).unwrap()), fast);
    assert!(f.call(ramp(&[3, 3], 1).to(gpu)).is_ok() && g.call(ramp(&[3, 3], 1).to(gpu)).is_err());
}

/// Forward and backward code of a gradient that is taken outside is of the mode that the function is in.
#[test]
fn gradients_outside_follow_the_mode() {
    let f = accelerate(|x: &Tensor| x.matmul(x).exp() / 3.0);
    let x = ramp(&[20, 20], 1).to(gpu());
    let found = |mode| {
        f.configure(|options| options.math = mode);
        let found = value_and_grad(|x: &Tensor| f.call(x).unwrap().sum(..), &x).unwrap();
        (bits(&found.0), bits(&found.1))
    };
    let (strict, fast) = (found(MathMode::Strict), found(MathMode::Fast));
    assert!(strict.0 != fast.0 && strict.1 != fast.1, "the mode does something");
    assert!(found(MathMode::Strict) == strict && found(MathMode::Fast) == fast);
}

#[test]
fn what_a_trace_makes_is_on_its_device() {
    let gpu = gpu();
    let f = accelerate(|x: &Tensor| {
        let made = [Tensor::zeros([3]), Tensor::full([3], 2.0_f32), x.zeros_like()];
        map(&made, |tensor| tensor + x)
    });
    assert_eq!(all_bits(&f.call(ramp(&[3], 1).to(gpu)).unwrap()), all_bits(&f.call(ramp(&[3], 1)).unwrap()));
    let x = ramp(&[3], 1).to(gpu);
    assert_eq!((x.zeros_like().device(), x.ones_like().device()), (gpu, gpu));
}

/// Checks compare fast code with the strict ops, so they need a tolerance for what the mode allows.
#[test]
fn checks_of_fast_code_need_a_tolerance() {
    let f = accelerate(|x: &Tensor| x.matmul(x).tanh());
    f.configure(|options| options.math = MathMode::Fast);
    let x = ramp(&[64, 64], 1).to(gpu());
    let strict = Check { on_difference: OnDifference::Err, ..Check::default() };
    f.configure(|options| options.check = (Check { tolerance: Tolerance::from(1e-2), ..strict }).into());
    (0..2).for_each(|_| drop(f.call(&x).unwrap()));
    assert_eq!((f.stats().checks.checked, f.stats().checks.differing), (2, 0));
    f.configure(|options| options.check = strict.into());
    assert!(matches!(f.call(&x), Err(Error::Check(_))));
}

/// A call of numbers alone runs on the processor, where what is captured on a GPU is refused.
#[test]
fn numbers_alone_do_not_run_on_the_device() {
    let captured = ramp(&[5], 1).to(gpu());
    let pass = accelerate(|x: &Tensor, rate: &Tensor| x * rate);
    let f = accelerate(|rate: &Tensor| &captured * rate);
    let text = f.call(2.0_f32).unwrap_err().to_string();
    assert!(text.contains("cuda:0") && text.contains("cpu") && text.contains("tests/gpu/corners.rs"), "{text}");
    let expected = pass.call(&captured, 2.0_f32).unwrap();
    // The remedy that the text names, and a number that is there.
    assert_eq!(bits(&f.call(Tensor::from(2.0_f32).to(gpu())).unwrap()), bits(&expected));
}

/// Numbers of every dtype are sent along.
#[test]
fn numbers_of_every_dtype_go_along() {
    for dtype in DType::ALL {
        let (x, one) = (ramp(&[7], 1).cast(dtype), Tensor::from(1.0_f32).cast(dtype));
        let f = accelerate(|x: &Tensor, one: &Tensor| (x.cast(DType::F32) * one.cast(DType::F32), one.clone()));
        let found = f.call(x.to(gpu()), &one).unwrap();
        assert_eq!(all_bits(&found), all_bits(&f.call(&x, &one).unwrap()), "{dtype}");
    }
}

/// Modes change while others call: each result is that of one of the modes.
#[test]
fn modes_change_between_calls_of_threads() {
    let f = accelerate(|x: &Tensor| x.matmul(x).exp());
    let x = ramp(&[20, 20], 1).to(gpu());
    let strict = bits(&f.call(&x).unwrap());
    f.configure(|options| options.math = MathMode::Fast);
    let fast = bits(&f.call(&x).unwrap());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (f, x, strict, fast) = (&f, &x, &strict, &fast);
            scope.spawn(move || {
                for turn in 0..20 {
                    f.configure(|options| {
                        options.math = if (thread + turn) % 2 == 0 { MathMode::Strict } else { MathMode::Fast }
                    });
                    f.configure(|options| options.profiling = turn % 3 == 0);
                    let found = bits(&f.call(x).unwrap());
                    assert!(found == *strict || found == *fast);
                }
            });
        }
    });
    assert_eq!(f.stats().misses, 2);
    assert!(f.explain()[1].to_string().contains("mode: usual -> fast math"), "{}", f.explain()[1]);
}

/// Many threads read one result, whose copy to main memory is made once.
#[test]
fn threads_read_one_result() {
    let f = accelerate(|x: &Tensor| (x * 2.0).tanh());
    let expected = bits(&f.call(ramp(&[3000], 1)).unwrap());
    let found = f.call(ramp(&[3000], 1).to(gpu())).unwrap();
    std::thread::scope(|scope| {
        (0..8).for_each(|_| drop(scope.spawn(|| assert_eq!(bits(&found.clone()), expected))));
    });
}

/// Rows of a mini-batch come from main memory at each step.
#[test]
fn batches_are_sent_one_by_one() {
    let rows: Vec<f32> = (0..40).map(|k| k as f32).collect();
    let f = accelerate(|x: &Tensor| x.sum(0));
    let batches = MiniBatches::new(10, 4).unwrap().shuffled(3);
    let run = |device: Device| -> Vec<_> {
        let epoch = batches.epoch(1);
        let batch = |indices: &[usize]| {
            let x = Tensor::from_vec(gather(&rows, 4, indices).unwrap(), [indices.len(), 4]).unwrap();
            f.call(x.to(device)).unwrap()
        };
        let results: Vec<Tensor> = epoch.iter().map(batch).collect();
        results.iter().map(bits).collect()
    };
    assert_eq!(run(gpu()), run(Device::Cpu));
    assert_eq!((f.stats().misses, f.stats().hits), (4, 2));
}

/// A function called inside is part of the graph of the outer function, and so of its mode.
#[test]
fn the_outer_mode_counts() {
    let inner = accelerate(|x: &Tensor| x.matmul(x).exp());
    let outer = accelerate(|x: &Tensor| inner.call(x).unwrap() * 2.0);
    let x = ramp(&[20, 20], 1).to(gpu());
    let strict = bits(&outer.call(&x).unwrap());
    inner.configure(|options| options.math = MathMode::Fast);
    outer.clear_cache();
    assert_eq!(bits(&outer.call(&x).unwrap()), strict);
    outer.configure(|options| options.math = MathMode::Fast);
    assert_ne!(bits(&outer.call(&x).unwrap()), strict);
}

/// The program of `docs/gpu.md`, whose test has no driver.
#[test]
fn the_program_of_the_page_runs() {
    let gpu = gpu();
    let step = accelerate(|x: &Tensor, w: &Tensor| x.matmul(w).tanh().square().mean(..));
    let (x, w) = (Tensor::ones([64, 32]), Tensor::ones([32, 8]));
    let here = step.call(&x, &w).unwrap().item::<f32>().unwrap();
    let there = step.call(x.to(gpu), w.to(gpu)).unwrap();
    assert_eq!(there.device(), gpu);
    assert!((there.item::<f32>().unwrap() - here).abs() < 1e-6);
}
