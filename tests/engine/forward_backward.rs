//! Accelerated functions inside gradients that are evaluated at once: code of their own for forward and backward, with
//! the values and gradients that the functions have themselves.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::printed;
use retape::nn::{self, Dense};
use retape::optim::{Adam, AdamState};
use retape::{
    Accelerated, Budget, Check, CheckMode, DType, Error, OnDifference, Tensor, Tree, accelerate, map, random,
    value_and_grad, vjp, zip_map,
};

/// How far gradients may be apart from those of the function itself, in proportion to the largest element: sums that
/// share a kernel with other formulas are added in another order.
const BOUND: f64 = 1e-12;

fn elements(x: &Tensor) -> Vec<f64> {
    x.cast(DType::F64).to_vec().unwrap()
}

fn bits(x: &Tensor) -> Vec<u64> {
    elements(x).into_iter().map(f64::to_bits).collect()
}

#[track_caller]
fn assert_close(expected: &Tensor, found: &Tensor, bound: f64) {
    assert_eq!((expected.dtype(), expected.shape()), (found.dtype(), found.shape()));
    let (expected, found) = (elements(expected), elements(found));
    let scale = expected.iter().fold(1e-300_f64, |scale, x| scale.max(x.abs()));
    let apart = expected.iter().zip(&found).map(|(x, y)| (x - y).abs() / scale).fold(0.0, f64::max);
    assert!(apart <= bound, "{apart}\n{expected:?}\n{found:?}");
}

fn numbers(shape: &[usize], seed: usize) -> Tensor {
    let n: usize = shape.iter().product();
    let number = |k: usize| ((k * 7919 + seed * 104_729) % 1000) as f64 / 500.0 - 0.999;
    Tensor::from_vec((0..n).map(number).collect::<Vec<_>>(), shape).unwrap()
}

#[derive(Clone, Debug, Tree)]
struct Network {
    first: Dense,
    second: Dense,
    last: Dense,
}

impl Network {
    fn new() -> Network {
        let wide = |dense: Dense| map(&dense, |x| x.cast(DType::F64));
        Network {
            first: wide(Dense::new(1, 12, 40)),
            second: wide(Dense::new(2, 40, 30)),
            last: wide(Dense::new(3, 30, 5)),
        }
    }

    fn apply(&self, x: &Tensor) -> Tensor {
        self.last.apply(&self.second.apply(&self.first.apply(x).tanh()).relu())
    }
}

#[test]
fn training_with_the_gradient_outside() {
    let forward = accelerate(|net: &Network, x: &Tensor| net.apply(x));
    let (x, labels) = (numbers(&[16, 12], 1), Tensor::from((0..16).map(|k| k % 5).collect::<Vec<i64>>()));
    let net = Network::new();
    let loss = |logits: &Tensor| nn::softmax_cross_entropy_labels(logits, &labels);
    let (plain_loss, plain) = value_and_grad(|net: &Network| loss(&net.apply(&x)), &net).unwrap();
    for _ in 0..4 {
        let (fast_loss, fast) = value_and_grad(|net: &Network| loss(&forward.call(net, &x).unwrap()), &net).unwrap();
        assert_close(&plain_loss, &fast_loss, BOUND);
        zip_map([&plain, &fast], |[plain, fast]| {
            assert_close(plain, fast, BOUND);
            plain.clone()
        });
    }
    let stats = forward.stats();
    assert_eq!((stats.misses, stats.hits), (1, 3));
    assert_eq!((stats.backward_misses, stats.backward_hits), (1, 3));
    let [gradient] = &stats.entries[0].gradients[..] else { panic!("{stats}") };
    // All six parameters, but not the images.
    assert_eq!((&gradient.arguments[..], &gradient.results[..]), (&[0, 1, 2, 3, 4, 5][..], &[0][..]));
    assert!(gradient.is_compiled && gradient.calls == 4 && gradient.residuals > 0, "{gradient:?}");
    assert!(gradient.bytes > 0 && stats.entries[0].bytes > gradient.bytes);
    assert!(stats.to_string().contains("backward by [0, 1, 2, 3, 4, 5]"), "{stats}");
    // A concrete call goes by the same entry.
    assert_eq!(forward.call(&net, &x).unwrap().shape(), [16, 5]);
    assert_eq!((forward.stats().misses, forward.stats().hits), (1, 4));
}

#[test]
fn training_by_many_steps_reaches_the_same_loss() {
    let forward = accelerate(|net: &Network, x: &Tensor| net.apply(x));
    let (x, labels) = (numbers(&[16, 12], 1), Tensor::from((0..16).map(|k| k % 5).collect::<Vec<i64>>()));
    let adam = Adam::new();
    let train = |apply: &dyn Fn(&Network, &Tensor) -> Tensor| {
        let mut net = Network::new();
        let mut state: AdamState<Network> = adam.init(&net);
        let mut losses = vec![];
        for _ in 0..20 {
            let loss = |net: &Network| nn::softmax_cross_entropy_labels(&apply(net, &x), &labels);
            let (loss, gradient) = value_and_grad(loss, &net).unwrap();
            (net, state) = adam.update(&net, &gradient, &state, 0.01);
            losses.push(loss.item::<f64>().unwrap());
        }
        losses
    };
    let (plain, fast) = (train(&|net, x| net.apply(x)), train(&|net, x| forward.call(net, x).unwrap()));
    assert!(plain[19] < 0.7 * plain[0], "{plain:?}");
    assert!(plain.iter().zip(&fast).all(|(plain, fast)| (plain - fast).abs() < 1e-9 * plain), "{plain:?}\n{fast:?}");
    assert_eq!((forward.stats().misses, forward.stats().backward_misses), (1, 1));
}

#[test]
fn values_are_those_of_a_plain_call_bit_for_bit() {
    let norm = accelerate(|x: &Tensor, w: &Tensor| {
        let h = x.matmul(w);
        let centred = &h - h.mean_keep(1);
        let scaled = &centred / (centred.square().mean_keep(1) + 1e-5).sqrt();
        (scaled.gelu_tanh().softmax(1), scaled.exp().sum(..))
    });
    for dtype in [DType::F32, DType::F64] {
        let (x, w) = (numbers(&[50, 70], 2).cast(dtype), numbers(&[70, 90], 3).cast(dtype));
        let (soft, sum) = norm.call(&x, &w).unwrap();
        let ct = (numbers(&[50, 90], 4).cast(dtype), Tensor::from(0.5).cast(dtype));
        let ((soft_again, sum_again), _) = vjp(|x: &Tensor| norm.call(x, &w).unwrap(), &x, &ct).unwrap();
        assert_eq!((bits(&soft), bits(&sum)), (bits(&soft_again), bits(&sum_again)));
    }
}

#[test]
fn outputs_without_cotangents_and_arguments_without_gradients() {
    let f = accelerate(|a: &Tensor, b: &Tensor, n: &Tensor| {
        (a * b, a.exp().sum(..), b.stop_gradient() * a, n + 1, a.argmax(0), b.clone())
    });
    let (a, b, n) = (numbers(&[6], 1), numbers(&[6], 2), Tensor::from([1_i64, 2]));
    // Only the first result is used, and only `a` is differentiated by.
    let (_, by_a) = value_and_grad(|a: &Tensor| f.call(a, &b, &n).unwrap().0.sum(..), &a).unwrap();
    assert_eq!(elements(&by_a), elements(&b));
    // The third one: `b` is stopped.
    let only = |(a, b): &(Tensor, Tensor)| f.call(a, b, &n).unwrap().2;
    let (value, (by_a, by_b)) = vjp(only, &(a.clone(), b.clone()), &Tensor::ones([6]).cast(DType::F64)).unwrap();
    assert_eq!(elements(&value), elements(&(&a * &b)));
    assert_eq!((elements(&by_a), elements(&by_b)), (elements(&b), vec![0.0; 6]));
    // The last one hands an argument through, and integers come out as they should.
    let all = |b: &Tensor| {
        let (product, _, _, n, at, same) = f.call(&a, b, &n).unwrap();
        (product.sum(..) * 0.0 + same.square().sum(..), n, at)
    };
    let cts = (Tensor::from(1.0), Tensor::from([0_i64, 0]), Tensor::from(0_i64));
    let (_, by_b) = vjp(all, &b, &cts).unwrap();
    assert_eq!(elements(&by_b), elements(&(&b * 2.0)), "cotangents of integers are not looked at");
    let (_, by_b) = value_and_grad(|b: &Tensor| all(b).0, &b).unwrap();
    assert_eq!(elements(&by_b), elements(&(&b * 2.0)));
    let kinds: Vec<_> =
        f.stats().entries[0].gradients.iter().map(|g| (g.arguments.clone(), g.results.clone())).collect();
    assert_eq!(kinds, [(vec![0], vec![0]), (vec![0, 1], vec![2]), (vec![1], vec![0])]);
}

#[test]
fn results_that_are_not_used_need_not_be() {
    let f = accelerate(|x: &Tensor| x.square());
    let x = numbers(&[5], 1);
    let zero = value_and_grad(|x: &Tensor| f.call(x).unwrap().stop_gradient().sum(..), &x);
    assert!(zero.is_ok_and(|(_, gradient)| elements(&gradient) == [0.0; 5]));
    let unused = value_and_grad(
        |x: &Tensor| {
            drop(f.call(x).unwrap());
            Tensor::from(1.0)
        },
        &x,
    );
    assert!(unused.is_err());
    // A gradient alone: the value is computed within it.
    let (value, _) =
        vjp(|x: &Tensor| value_and_grad(|x: &Tensor| f.call(x).unwrap().sum(..), x).unwrap().1, &x, &x).unwrap();
    assert_eq!(elements(&value), elements(&(&x * 2.0)));
}

#[test]
fn the_same_tensor_as_two_arguments() {
    let f = accelerate(|a: &Tensor, b: &Tensor| (a * a * b).sum(..));
    let x = Tensor::from([1.0_f64, 2.0]);
    let (value, gradient) = value_and_grad(|x: &Tensor| f.call(x, x).unwrap(), &x).unwrap();
    assert_eq!((value.item::<f64>().unwrap(), elements(&gradient)), (9.0, vec![3.0, 12.0]));
    // A function that differentiates by one of them.
    let by_first = accelerate(|a: &Tensor, b: &Tensor| (a * a * b).sum(..).grad(a));
    let outer = |x: &Tensor| by_first.call(x, x).unwrap().sum(..);
    let (value, gradient) = value_and_grad(outer, &x).unwrap();
    // 2 x y at y = x, whose sum has the gradient 2 y + 2 x.
    assert_eq!((value.item::<f64>().unwrap(), elements(&gradient)), (10.0, vec![4.0, 8.0]));
}

#[test]
fn several_calls_and_several_gradients() {
    let layer = accelerate(|x: &Tensor, w: &Tensor| x.matmul(w).tanh());
    let (x, w) = (numbers(&[9, 9], 1), numbers(&[9, 9], 2));
    let deep = |apply: &dyn Fn(&Tensor, &Tensor) -> Tensor, w: &Tensor| {
        (0..4).fold(x.clone(), |x, _| apply(&x, w) + &x).square().sum(..)
    };
    let (plain, expected) = value_and_grad(|w: &Tensor| deep(&|x, w| x.matmul(w).tanh(), w), &w).unwrap();
    let (fast, found) = value_and_grad(|w: &Tensor| deep(&|x, w| layer.call(x, w).unwrap(), w), &w).unwrap();
    assert_close(&plain, &fast, BOUND);
    assert_close(&expected, &found, BOUND);
    assert_eq!((layer.stats().misses, layer.stats().hits), (1, 3));
    // The first call differentiates by the weights alone, the others by what they are given too.
    assert_eq!((layer.stats().backward_misses, layer.stats().backward_hits), (2, 2));
    // Rows of a Jacobian: one call, several gradients of it, which share what it keeps.
    let rows = |f: &dyn Fn(&Tensor) -> Tensor| {
        let both = |w: &Tensor| {
            let y = f(w);
            (0..3).map(|row| y.index_axis(0, row).sum(..).grad(w)).collect::<Vec<_>>()
        };
        vjp(both, &w, &vec![w.clone(); 3]).unwrap()
    };
    let (expected, by_w) = rows(&|w| x.matmul(w).tanh());
    let (found, by_w_again) = rows(&|w| layer.call(&x, w).unwrap());
    expected.iter().zip(&found).for_each(|(expected, found)| assert_close(expected, found, BOUND));
    assert_close(&by_w, &by_w_again, BOUND);
}

#[test]
fn several_gradients_of_one_call_go_on_from_what_it_keeps() {
    let layer = accelerate(|x: &Tensor, w: &Tensor| x.matmul(w).tanh());
    let (x, w) = (numbers(&[9, 9], 1), numbers(&[9, 9], 2));
    let loss = |y: Tensor, w: &Tensor| {
        let rows = (0..3).map(|row| y.index_axis(0, row).sum(..).grad(w).square().sum(..).stop_gradient());
        rows.reduce(|a, b| a + b).unwrap() + y.sum(..)
    };
    let (value, expected) = value_and_grad(|w: &Tensor| loss(x.matmul(w).tanh(), w), &w).unwrap();
    for round in 1..3 {
        let (fast, found) = value_and_grad(|w: &Tensor| loss(layer.call(&x, w).unwrap(), w), &w).unwrap();
        assert_close(&value, &fast, BOUND);
        assert_close(&expected, &found, BOUND);
        let stats = layer.stats();
        assert_eq!((stats.backward_misses, stats.backward_hits), (1, 4 * round - 1));
        assert_eq!((stats.entries[0].gradients.len(), stats.entries[0].gradients[0].calls), (1, 4 * round));
    }
}

#[test]
fn gradients_of_gradients_of_gradients() {
    let cube = |x: &Tensor| (x * x * x * x).sum(..);
    let f = accelerate(cube);
    let x = Tensor::from([1.0_f64, -2.0]);
    let first = |x: &Tensor| value_and_grad(|x: &Tensor| f.call(x).unwrap(), x).unwrap().1;
    let second = |x: &Tensor| value_and_grad(|x: &Tensor| first(x).sum(..), x).unwrap().1;
    let third = |x: &Tensor| value_and_grad(|x: &Tensor| second(x).sum(..), x).unwrap().1;
    assert_eq!(elements(&first(&x)), [4.0, -32.0]);
    assert_eq!(elements(&second(&x)), [12.0, 48.0]);
    assert_eq!(elements(&third(&x)), [24.0, -48.0]);
    assert_eq!(f.stats().misses, 1);
}

#[test]
fn inside_other_accelerated_functions() {
    let inner = accelerate(|x: &Tensor| x.sin());
    let outer = accelerate(|x: &Tensor| inner.call(x).unwrap() * x);
    let x = numbers(&[7], 3);
    let expected = value_and_grad(|x: &Tensor| (x.sin() * x).sum(..), &x).unwrap().1;
    let found = value_and_grad(|x: &Tensor| outer.call(x).unwrap().sum(..), &x).unwrap().1;
    assert_close(&expected, &found, BOUND);
    // The inner one is a part of the outer one's trace, and has no entry.
    assert_eq!((outer.stats().misses, inner.stats().misses), (1, 0));
    // A gradient inside a trace is compiled with it.
    let whole = accelerate(|x: &Tensor| value_and_grad(|x: &Tensor| outer.call(x).unwrap().sum(..), x).unwrap().1);
    assert_close(&expected, &whole.call(&x).unwrap(), BOUND);
    assert_eq!((outer.stats().misses, outer.stats().hits), (1, 0));
    let graph = retape::trace(|x: &Tensor| outer.call(x).unwrap(), &x).unwrap();
    assert!(graph.to_string().contains("sin") && !graph.to_string().contains("call"), "{graph}");
}

#[test]
fn a_disabled_function_is_a_part_of_the_gradient() {
    let f = accelerate(|x: &Tensor| x.sin());
    f.configure(|options| options.enabled = false);
    let x = numbers(&[7], 3);
    let found = value_and_grad(|x: &Tensor| f.call(x).unwrap().sum(..), &x).unwrap().1;
    assert_close(&x.cos(), &found, BOUND);
    assert_eq!((f.stats().misses, f.stats().hits, f.stats().entries.len()), (0, 0, 0));
}

#[test]
fn captured_tensors() {
    let scale = numbers(&[8], 5);
    let f = accelerate(|x: &Tensor| (x * &scale).exp());
    let x = numbers(&[8], 6);
    let expected = value_and_grad(|x: &Tensor| (x * &scale).exp().sum(..), &x).unwrap().1;
    for _ in 0..2 {
        let found = value_and_grad(|x: &Tensor| f.call(x).unwrap().sum(..), &x).unwrap().1;
        assert_close(&expected, &found, BOUND);
    }
}

#[test]
fn what_is_not_a_float() {
    // Half floats carry cotangents through, integers steer, and keys make random numbers.
    let f = accelerate(|x: &Tensor, key: &random::Key, at: &Tensor| {
        let noise = random::uniform(key, [4, 6], DType::F64);
        ((x.cast(DType::Bf16).cast(DType::F64) * noise).take(at, 1), x.cast(DType::Bf16))
    });
    let (x, key, at) = (numbers(&[4, 6], 1), random::Key::new(7), Tensor::from([5_i64, 0, 0]));
    let loss = |(y, half): (Tensor, Tensor)| y.square().sum(..) + half.cast(DType::F64).sum(..);
    let plain = |x: &Tensor| loss((f.function())(x, &key, &at));
    let (value, expected) = value_and_grad(plain, &x).unwrap();
    let (fast, found) = value_and_grad(|x: &Tensor| loss(f.call(x, &key, &at).unwrap()), &x).unwrap();
    assert_close(&value, &fast, BOUND);
    assert_close(&expected, &found, BOUND);
}

#[test]
fn errors_name_the_line_in_the_function() {
    let f = accelerate(|x: &Tensor, y: &Tensor| x.matmul(y));
    let line = line!() - 1;
    let (x, y) = (numbers(&[2, 3], 1), numbers(&[2, 3], 2));
    // The closure may unwrap the error or ignore it.
    let unwrapped = value_and_grad(|x: &Tensor| f.call(x, &y).unwrap().sum(..), &x);
    let ignored = value_and_grad(|x: &Tensor| f.call(x, &y).unwrap_or_else(|_| x.clone()).sum(..), &x);
    for error in [unwrapped.unwrap_err(), ignored.unwrap_err()] {
        let Error::Type { op: "matmul", at, .. } = error else { panic!("{error}") };
        assert_eq!(at.line(), line);
    }
    assert_eq!(f.stats().entries.len(), 0);
    // Correct calls work afterwards.
    let y = numbers(&[3, 2], 2);
    assert!(value_and_grad(|x: &Tensor| f.call(x, &y).unwrap().sum(..), &x).is_ok());
}

#[test]
fn a_traced_tensor_of_the_gradient_is_an_argument_and_no_capture() {
    let x = numbers(&[3], 1);
    let captured = value_and_grad(|x: &Tensor| accelerate(|y: &Tensor| (y * x).sum(..)).call(x).unwrap(), &x);
    let message = captured.unwrap_err().to_string();
    assert!(message.contains("pass the outer one as an argument"), "{message}");
}

#[test]
fn prints_happen_once_a_run_and_in_order() {
    printed::listen();
    let labels = || -> Vec<String> {
        printed::taken("fb ").iter().map(|line| line.split(':').next().unwrap().to_owned()).collect()
    };
    let f = accelerate(|x: &Tensor| {
        let y = x.exp().debug_print("fb inside");
        (y.tanh(), y.debug_print("fb again").sum(..))
    });
    let x = numbers(&[4], 1);
    for _ in 0..2 {
        let loss = |x: &Tensor| {
            let x = x.debug_print("fb before");
            // No result of the second call is used.
            let (_, z) = (f.call(&x).unwrap(), f.call(&x).unwrap());
            drop(z);
            x.square().debug_print("fb after").sum(..)
        };
        value_and_grad(loss, &x).unwrap();
        let once = ["before", "inside", "again", "inside", "again", "after"];
        assert_eq!(labels(), once);
        value_and_grad(|x: &Tensor| f.call(x).unwrap().0.sum(..), &x).unwrap();
        assert_eq!(labels(), ["inside", "again"]);
    }
}

#[test]
fn threads_share_one_trace_and_one_backward_code() {
    let traces = AtomicUsize::new(0);
    let f = accelerate(|x: &Tensor, w: &Tensor| {
        traces.fetch_add(1, Ordering::Relaxed);
        x.matmul(w).tanh()
    });
    f.configure(|options| options.stale_check = false);
    let (x, w) = (numbers(&[12, 12], 1), numbers(&[12, 12], 2));
    let expected = value_and_grad(|w: &Tensor| x.matmul(w).tanh().square().sum(..), &w).unwrap().1;
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..5 {
                    let found = value_and_grad(|w: &Tensor| f.call(&x, w).unwrap().square().sum(..), &w).unwrap().1;
                    assert_close(&expected, &found, BOUND);
                }
            });
        }
    });
    let stats = f.stats();
    assert_eq!(traces.load(Ordering::Relaxed), 1);
    assert_eq!((stats.misses, stats.hits), (1, 39));
    assert_eq!((stats.backward_misses, stats.backward_hits), (1, 39));
}

#[test]
fn code_for_gradients_counts_against_the_budget() {
    let f = accelerate(|x: &Tensor| x.exp().sum(..));
    let (small, large) = (numbers(&[4], 1), numbers(&[5], 1));
    f.call(&large).unwrap();
    f.call(&small).unwrap();
    let bytes = f.stats().bytes();
    f.configure(|options| options.byte_budget = Budget { host: Some(bytes), device: None });
    assert_eq!(f.stats().entries.len(), 2);
    // The code is made by the first gradient, and weighed at the next call.
    for _ in 0..2 {
        value_and_grad(|x: &Tensor| f.call(x).unwrap(), &small).unwrap();
    }
    let stats = f.stats();
    assert!(stats.entries.len() < 2 && stats.evictions > 0, "{stats}");
}

#[test]
fn clearing_and_evicting_while_gradients_run() {
    let f = Arc::new(accelerate(|x: &Tensor| (x.exp() * x).sum(..)));
    f.configure(|options| options.capacity = 1);
    let gradient = |n: usize| {
        let x = numbers(&[n], 1);
        let expected = value_and_grad(|x: &Tensor| (x.exp() * x).sum(..), &x).unwrap().1;
        let inside = |x: &Tensor| {
            let y = f.call(x).unwrap();
            // Between the call and its run, its entry goes.
            f.clear_cache();
            y + f.call(numbers(&[n + 1], 1)).unwrap() * 0.0
        };
        assert_close(&expected, &value_and_grad(inside, &x).unwrap().1, BOUND);
    };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || (0..4).for_each(|n| gradient(3 + thread + n)));
        }
    });
    assert!(f.stats().entries.len() <= 1);
}

/// An artefact holds the recorded graph, from which code for gradients is made.
#[test]
fn loaded_entries_have_gradients() {
    let half = |x: &Tensor| (x * x.stop_gradient()).sum(..);
    let [f, g] = [(); 2].map(|()| accelerate(half));
    let x = numbers(&[6], 1);
    f.call(&x).unwrap();
    let mut bytes = vec![];
    f.save_to(&mut bytes).unwrap();
    g.load_from(&bytes[..]).unwrap();
    let (_, gradient) = value_and_grad(|x: &Tensor| g.call(x).unwrap(), &x).unwrap();
    assert_eq!(elements(&gradient), elements(&x));
    g.configure(|options| options.locked = true);
    let refused = value_and_grad(|x: &Tensor| g.call(x).unwrap(), &numbers(&[7], 1));
    assert!(matches!(refused, Err(Error::Cache(_))), "a locked cache traces nothing");
    assert_eq!(g.stats().entries.len(), 1);
}

#[track_caller]
fn refused_by_lock<T: std::fmt::Debug>(result: retape::Result<T>, parts: &[&str]) {
    let Err(Error::Cache(message)) = &result else { panic!("{result:?}") };
    for part in ["locked", "before the lock", "tests/engine/forward_backward.rs:"].iter().chain(parts) {
        assert!(message.contains(part), "{part}: {message}");
    }
}

/// A locked cache compiles nothing: not for values, and not for gradients from outside.
#[test]
fn a_locked_cache_makes_no_code_for_gradients() {
    let f = accelerate(|x: &Tensor, y: &Tensor| ((x * y).tanh(), x.exp() * y));
    let (x, y) = (numbers(&[6], 1), numbers(&[6], 2));
    f.call(&x, &y).unwrap();
    let by_x = || value_and_grad(|x: &Tensor| f.call(x, &y).unwrap().0.sum(..), &x);
    let by_y = || value_and_grad(|y: &Tensor| f.call(&x, y).unwrap().1.sum(..), &y);
    f.configure(|options| options.locked = true);
    refused_by_lock(by_x(), &["results [0] by argument tensors [0]"]);
    refused_by_lock(by_y(), &["results [1] by argument tensors [1]"]);
    assert_eq!((f.stats().backward_misses, f.stats().entries[0].gradients.len()), (0, 0));
    f.call(&x, &y).unwrap();

    f.configure(|options| options.locked = false);
    let unlocked = by_x().unwrap();
    f.configure(|options| options.locked = true);
    let locked = by_x().unwrap();
    assert_eq!((bits(&locked.0), bits(&locked.1)), (bits(&unlocked.0), bits(&unlocked.1)));
    refused_by_lock(by_y(), &["results [1] by argument tensors [1]"]);
    assert_eq!((f.stats().backward_misses, f.stats().backward_hits), (1, 1));
    // Nor for gradients of gradients.
    let twice = || value_and_grad(|x: &Tensor| by(&f, x, &y).sum(..), &x);
    refused_by_lock(twice(), &[]);
    f.configure(|options| options.locked = false);
    let expected = twice().unwrap();
    f.configure(|options| options.locked = true);
    assert_eq!(bits(&twice().unwrap().1), bits(&expected.1));
}

/// The gradient that a trace around it differentiates again.
fn by(
    f: &Accelerated<impl Fn(&Tensor, &Tensor) -> (Tensor, Tensor), (Tensor, Tensor), (Tensor, Tensor)>,
    x: &Tensor,
    y: &Tensor,
) -> Tensor {
    f.call(x, y).unwrap().0.sum(..).grad(x)
}

/// A gradient may be known and have no code: here one was recorded in a trace that failed.
#[test]
fn a_gradient_that_never_ran_has_no_code_in_a_locked_cache() {
    let f = accelerate(|x: &Tensor| x.tanh());
    let x = numbers(&[6], 1);
    let fails = |x: &Tensor| {
        let y = f.call(x).unwrap().sum(..);
        let _recorded: Tensor = y.grad(x);
        x.matmul(&numbers(&[7], 1))
    };
    assert!(matches!(value_and_grad(fails, &x), Err(Error::Type { op: "matmul", .. })));
    let [known] = &f.stats().entries[0].gradients[..] else { panic!("{}", f.stats()) };
    assert!(!known.is_compiled);
    let gradient = || value_and_grad(|x: &Tensor| f.call(x).unwrap().sum(..), &x);
    f.configure(|options| options.locked = true);
    refused_by_lock(gradient(), &["results [0] by argument tensors [0]"]);
    f.configure(|options| options.locked = false);
    gradient().unwrap();
    f.configure(|options| options.locked = true);
    gradient().unwrap();
}

/// A check computes gradients op by op, and needs no code.
#[test]
fn a_locked_cache_still_checks_gradients() {
    let scale = AtomicUsize::new(2);
    let f = accelerate(scaled(&scale));
    let x = numbers(&[6], 1);
    let gradient = || value_and_grad(|x: &Tensor| f.call(x).unwrap().sum(..), &x);
    gradient().unwrap();
    f.configure(|options| options.locked = true);
    f.configure(|options| options.check = Check::default().into());
    gradient().unwrap();
    assert_eq!((f.stats().checks.checked, f.stats().checks.differing), (1, 0));
}

/// A function that multiplies by a number outside, which its trace does not see change.
fn scaled(scale: &AtomicUsize) -> impl Fn(&Tensor) -> Tensor {
    |x: &Tensor| (x * scale.load(Ordering::Relaxed) as f64).square()
}

#[test]
fn checks_compare_results_and_gradients() {
    for on_difference in [OnDifference::Warn, OnDifference::Err, OnDifference::FallBack] {
        let scale = AtomicUsize::new(2);
        let f = accelerate(scaled(&scale));
        f.configure(|options| options.check = (Check { on_difference, ..Check::default() }).into());
        let x = Tensor::from([1.0_f64, 3.0]);
        let gradient = || value_and_grad(|x: &Tensor| f.call(x).unwrap().sum(..), &x);
        let (value, by_x) = gradient().unwrap();
        assert_eq!((value.item::<f64>().unwrap(), elements(&by_x)), (40.0, vec![8.0, 24.0]));
        let counts = f.stats().checks;
        assert_eq!((counts.checked, counts.differing), (1, 0), "the call, with its gradient");
        scale.store(3, Ordering::Relaxed);
        let found = gradient();
        match on_difference {
            OnDifference::Warn => assert_eq!(elements(&found.unwrap().1), [8.0, 24.0]),
            OnDifference::Err => assert!(matches!(found, Err(Error::Check(_)))),
            OnDifference::FallBack => {
                let (value, by_x) = found.unwrap();
                assert_eq!((value.item::<f64>().unwrap(), elements(&by_x)), (90.0, vec![18.0, 54.0]));
                // From now on the call is a part of the gradient, and other signatures are calls as before.
                let hits = f.stats().hits;
                assert_eq!(elements(&gradient().unwrap().1), [18.0, 54.0]);
                assert_eq!((f.stats().hits, f.stats().checks.quarantines), (hits, 1));
                value_and_grad(|x: &Tensor| f.call(x).unwrap().sum(..), &numbers(&[5], 1)).unwrap();
                assert_eq!(f.stats().entries.iter().filter(|entry| !entry.gradients.is_empty()).count(), 2);
            }
        }
        // One call of two, or of three, differed: in its result and, where it went on, in its gradient.
        assert_eq!(f.stats().checks.differing, 1, "{:?}", f.stats().checks);
        assert_eq!(f.differences().len(), if on_difference == OnDifference::Err { 1 } else { 2 });
    }
}

#[test]
fn what_a_gradient_has_gone_on_with_is_not_mended_but_refused() {
    let captured = Mutex::new(Tensor::from([1.0_f64, 2.0]));
    let hands_through = AtomicUsize::new(0);
    let w = Tensor::from([1.0_f64, 3.0]);
    let check = Check { on_difference: OnDifference::FallBack, ..Check::default() };
    // A constant is part of the loss when it turns out to be another one.
    let f = accelerate(|w: &Tensor| (w * 2.0, captured.lock().unwrap().clone()));
    f.configure(|options| options.check = check.into());
    let loss = || {
        let body = |w: &Tensor| f.call(w).map(|(a, b)| (a * b).sum(..));
        value_and_grad(|w: &Tensor| body(w).unwrap(), &w)
    };
    assert_eq!(loss().unwrap().0.item::<f64>().unwrap(), 14.0);
    *captured.lock().unwrap() = Tensor::from([10.0_f64, 20.0]);
    let Err(Error::Check(deviation)) = loss() else { panic!("the loss has the old constant") };
    assert_eq!((&*deviation.path, &*deviation.got, &*deviation.expected), ("result[1]", "1.0", "10.0"));
    // From now on the call is a part of the gradient.
    assert_eq!(loss().unwrap().0.item::<f64>().unwrap(), 140.0);
    assert_eq!((f.stats().checks.quarantines, f.stats().checks.quarantined_calls), (1, 1));

    // The gradient of an output does not become that of an argument.
    let g = accelerate(|w: &Tensor| if hands_through.load(Ordering::Relaxed) == 0 { w * 2.0 } else { w.clone() });
    g.configure(|options| options.check = check.into());
    let gradient = || value_and_grad(|w: &Tensor| g.call(w).unwrap().sum(..), &w);
    assert_eq!(elements(&gradient().unwrap().1), [2.0, 2.0]);
    hands_through.store(1, Ordering::Relaxed);
    assert!(matches!(gradient(), Err(Error::Check(_))));
    assert_eq!(elements(&gradient().unwrap().1), [1.0, 1.0]);
}

#[test]
fn a_quarantine_that_begins_after_clearing_is_looked_for() {
    let scale = AtomicUsize::new(2);
    let f = accelerate(scaled(&scale));
    f.configure(|options| options.check = (Check { on_difference: OnDifference::FallBack, ..Check::default() }).into());
    let x = Tensor::from([1.0_f64, 3.0]);
    f.call(&x).unwrap();
    scale.store(3, Ordering::Relaxed);
    let loss = |x: &Tensor| {
        let y = f.call(x).unwrap();
        // The call has been recorded, and runs after this.
        f.clear_cache();
        f.configure(|options| options.check = CheckMode::Never);
        y.sum(..)
    };
    assert_eq!(elements(&value_and_grad(loss, &x).unwrap().1), [18.0, 54.0]);
    let checks = f.stats().checks;
    assert_eq!((checks.quarantines, checks.quarantined_calls), (1, 0));
    scale.store(4, Ordering::Relaxed);
    assert_eq!(elements(&f.call(&x).unwrap()), [16.0, 144.0]);
    assert_eq!(f.stats().checks.quarantined_calls, 1);
}

/// Only the derivative differs: the function is the same at this point.
#[test]
fn a_gradient_alone_may_differ() {
    let power = AtomicUsize::new(1);
    let f = accelerate(|x: &Tensor| (0..power.load(Ordering::Relaxed)).fold(x.clone(), |y, _| y * x));
    f.configure(|options| options.check = (Check { on_difference: OnDifference::Err, ..Check::default() }).into());
    let one = Tensor::from([1.0_f64]);
    let gradient = || value_and_grad(|x: &Tensor| f.call(x).unwrap().sum(..), &one);
    assert_eq!(elements(&gradient().unwrap().1), [2.0]);
    power.store(4, Ordering::Relaxed);
    let Err(Error::Check(deviation)) = gradient() else { panic!("the gradient is 5 by now") };
    assert_eq!(deviation.path, "the gradient by argument 0");
    assert_eq!((&*deviation.got, &*deviation.expected), ("2.0", "5.0"));
}

#[test]
fn a_trap_makes_the_call_a_part_of_the_gradient() {
    let f = accelerate(|x: &Tensor| x.sqrt());
    f.configure(|options| options.trap_nonfinite = true);
    let found = value_and_grad(|x: &Tensor| f.call(x).unwrap().sum(..), &Tensor::from([4.0_f64])).unwrap();
    assert_eq!(elements(&found.1), [0.25]);
    assert_eq!(f.stats().misses, 0);
}
