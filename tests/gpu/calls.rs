//! Calls of functions on a GPU: from threads, after their entry is gone, with donations.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use retape::optim::{Adam, AdamState};
use retape::{Device, Error, Tensor, accelerate, value_and_grad, vjp};

use crate::compare::{all_bits, apart, bits, ramp, to};
use crate::device::{driver, gpu, in_own_process, of_runtime};

const MIB: usize = 1 << 20;

#[test]
fn threads_share_one_trace_and_get_the_same_bits() {
    const THREADS: usize = 8;
    let n_traces = AtomicUsize::new(0);
    let f = accelerate(|w: &Tensor, x: &Tensor| {
        n_traces.fetch_add(1, SeqCst);
        let loss = x.matmul(w).tanh().square().mean(..);
        (w - loss.grad(w), loss)
    });
    f.configure(|options| options.stale_check = false);
    let (w, x) = (ramp(&[17, 9], 1).to(gpu()), ramp(&[21, 17], 2).to(gpu()));
    let start = Barrier::new(THREADS);
    let found: Vec<Vec<Vec<u64>>> = std::thread::scope(|scope| {
        let call = || {
            start.wait();
            let first = all_bits(&f.call(&w, &x).unwrap());
            for _ in 0..10 {
                assert_eq!(all_bits(&f.call(&w, &x).unwrap()), first);
            }
            first
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(call)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(found.iter().all(|bits| *bits == found[0]));
    assert_eq!((n_traces.load(SeqCst), f.stats().misses), (1, 1));
}

/// Threads that carry their own state, some by value, through one entry.
#[test]
fn threads_keep_what_is_theirs() {
    let f = accelerate(|state: &Tensor, field: &Tensor| state * 0.5 + field);
    let (field, n) = (ramp(&[3000], 5), 6);
    let last = |device: Device, k: usize| {
        let (start, field) = (ramp(&[3000], k).to(device), field.to(device));
        bits(&(0..n).fold(start, |state, _| f.call(state, field.clone()).unwrap()))
    };
    std::thread::scope(|scope| {
        for k in 0..4 {
            scope.spawn(move || {
                let expected = last(Device::Cpu, k);
                (0..5).for_each(|_| assert_eq!(last(gpu(), k), expected, "thread {k}"));
            });
        }
    });
}

#[test]
fn results_outlive_their_function() {
    let x = ramp(&[50, 40], 3).to(gpu());
    let make = || accelerate(|x: &Tensor| (x.matmul(&x.t()).softmax(1), x.sum(..)));
    let expected = all_bits(&make().call(&x).unwrap());
    // Dropped while its work is queued.
    let results = make().call(&x).unwrap();
    assert_eq!(all_bits(&results), expected);
    // Cleared.
    let f = make();
    let results = f.call(&x).unwrap();
    f.clear_cache();
    assert_eq!(all_bits(&results), expected);
    // Evicted: each shape makes room for the next.
    f.configure(|options| options.capacity = 1);
    let inputs: Vec<Tensor> = (1..6).map(|n| ramp(&[n, 40], n).to(gpu())).collect();
    let results: Vec<_> = inputs.iter().map(|x| f.call(x).unwrap()).collect();
    assert!(f.stats().evictions >= 4, "{}", f.stats());
    f.configure(|options| options.enabled = false);
    for (x, result) in inputs.iter().zip(&results) {
        assert!(apart(&f.call(x).unwrap().0, &result.0) < 1e-6);
    }
    drop(f);
    let again = all_bits(&results);
    assert_eq!(all_bits(&results), again);
}

/// Memory that is given back while work that reads it is queued must not be written by others before.
#[test]
fn handles_may_be_dropped_early() {
    let f = accelerate(|x: &Tensor| (x * 2.0).tanh() + 1.0);
    let expected: Vec<_> = (0..20).map(|k| bits(&f.call(ramp(&[5000], k)).unwrap())).collect();
    let results: Vec<Tensor> = (0..20)
        .map(|k| {
            let x = ramp(&[5000], k).to(gpu());
            let y = f.call(&x).unwrap();
            drop(x);
            // Likely in the memory of `x`.
            drop(ramp(&[5000], k + 1).to(gpu()));
            y
        })
        .collect();
    for (result, expected) in results.iter().zip(&expected) {
        assert_eq!(bits(result), *expected);
    }
    // Chains of eager ops whose temporaries go at once.
    let chain = |x: &Tensor| (0..10).fold(x.clone(), |x, _| (&x * 0.5 + x.sin()).tanh());
    assert_eq!(bits(&chain(&ramp(&[5000], 1).to(gpu()))), bits(&chain(&ramp(&[5000], 1))));
}

#[test]
fn what_is_still_seen_is_left_alone() {
    let next = accelerate(|a: &Tensor, b: &Tensor| (a * 2.0 + b, b - a));
    let n = 10_000;
    let (a, b) = (ramp(&[n], 1).to(gpu()), ramp(&[n], 2).to(gpu()));
    let expected = all_bits(&next.call(&a, &b).unwrap());
    let check = |found: (Tensor, Tensor)| assert_eq!(all_bits(&found), expected);
    let unchanged = |x: &Tensor, seed: usize| assert_eq!(bits(&x.reshape([n])), bits(&ramp(&[n], seed)));
    check(next.call(a.clone(), b.clone()).unwrap());
    unchanged(&a, 1);
    let view = a.reshape([100, 100]);
    check(next.call(a, &b).unwrap());
    unchanged(&view, 1);
    check(next.call(view.reshape([n]), &b).unwrap());
    unchanged(&view, 1);
    let lone = view.reshape([n]);
    drop(view);
    check(next.call(lone, &b).unwrap());
    unchanged(&b, 2);
    // One tensor twice, given and lent, and both given.
    let same = all_bits(&next.call(&b, &b).unwrap());
    assert_eq!(all_bits(&next.call(b.clone(), &b).unwrap()), same);
    unchanged(&b, 2);
    assert_eq!(all_bits(&next.call(b.clone(), b).unwrap()), same);
}

#[test]
fn captured_tensors_and_results_handed_through_are_left_alone() {
    let n = 5000;
    let offset = ramp(&[n], 3).to(gpu());
    let captured = offset.clone();
    let shifted = accelerate(move |x: &Tensor| (x + &captured, x.clone(), x * 3.0));
    let expected = all_bits(&shifted.call(&offset).unwrap());
    // Given away here, but the trace reads it at every call.
    shifted.call(offset).unwrap();
    let (sum, same, triple) = shifted.call(ramp(&[n], 3).to(gpu())).unwrap();
    assert_eq!(vec![bits(&sum), bits(&ramp(&[n], 3)), bits(&triple)], expected);
    assert_eq!(bits(&same), expected[1]);
}

/// A value that was read on the host is still given to the step that follows.
#[test]
fn what_was_read_can_be_given() {
    let f = accelerate(|x: &Tensor| x + 1.0);
    let mut x = ramp(&[3000], 1).to(gpu());
    for k in 0..4 {
        let before = x.to_vec::<f32>().unwrap();
        x = f.call(x).unwrap();
        let after = x.to_vec::<f32>().unwrap();
        assert!(before.iter().zip(after).all(|(a, b)| a + 1.0 == b), "step {k}");
    }
}

#[test]
fn an_adam_step_by_value_needs_no_more_memory() {
    in_own_process("calls::an_adam_step_by_value_needs_no_more_memory", &[], || {
        let n = MIB;
        let parts = || (0..4).map(|k| ramp(&[n / 4 / 4], k)).collect::<Vec<Tensor>>();
        let adam = Adam::new();
        let step = accelerate(
            move |params: &Vec<Tensor>, gradients: &Vec<Tensor>, state: &AdamState<Vec<Tensor>>, rate: &Tensor| {
                adam.update(params, gradients, state, rate)
            },
        );
        let gradients = to(&parts(), gpu());
        let (mut params, mut state) = (to(&parts(), gpu()), to(&adam.init(&parts()), gpu()));
        for _ in 0..3 {
            (params, state) = step.call(params, &gradients, state, 1e-3_f32).unwrap();
        }
        let gpu = of_runtime();
        let live = gpu.memory().live_bytes;
        let fresh = gpu.memory().fresh;
        gpu.reset_peak_bytes();
        for _ in 0..10 {
            (params, state) = step.call(params, &gradients, state, 1e-3_f32).unwrap();
        }
        let memory = gpu.memory();
        println!("{n} bytes of parameters, {} bytes above {live} that live", memory.peak_bytes - live);
        assert!(memory.peak_bytes - live < n / 100, "{memory:?}, {live} lived");
        assert_eq!((memory.live_bytes, memory.fresh), (live, fresh));
        let by_reference = step.call(&params, &gradients, &state, 1e-3_f32).unwrap();
        assert!(gpu.memory().peak_bytes - live >= 3 * n, "{:?} by reference", gpu.memory());
        let by_value = step.call(params, &gradients, state, 1e-3_f32).unwrap();
        assert!(all_bits(&by_value) == all_bits(&by_reference));
    });
}

#[test]
fn nothing_piles_up_over_many_calls() {
    in_own_process("calls::nothing_piles_up_over_many_calls", &[], || {
        let f = accelerate(|w: &Tensor, x: &Tensor| {
            let loss = x.matmul(w).tanh().square().mean(..);
            (w - loss.grad(w) * 0.1, loss)
        });
        let loss = accelerate(|w: &Tensor, x: &Tensor| x.matmul(w).sigmoid().sum(..));
        let x = ramp(&[4, 5], 1).to(gpu());
        let run = |n: usize| {
            let mut w = ramp(&[5, 3], 2).to(gpu());
            for k in 0..n {
                w = match k % 4 {
                    // By value and by reference, with numbers of the host, eager ops and a gradient outside.
                    0 => f.call(w, &x).unwrap().0,
                    1 => f.call(&w, &x).unwrap().0,
                    2 => (&w * 0.5 + 0.25).tanh(),
                    _ => value_and_grad(|w: &Tensor| loss.call(w, &x).unwrap(), &w).unwrap().1,
                };
                if k % 50 == 0 {
                    w.to_vec::<f32>().unwrap();
                }
            }
            drop(w);
            of_runtime().sync().unwrap();
        };
        let numbers = || {
            let of_driver = driver().map(|driver| (driver.counters().live_allocations, driver.counters().live_bytes));
            (of_runtime().memory().live_bytes, of_runtime().code_stats().live, of_driver)
        };
        run(100);
        let before = numbers();
        run(2000);
        assert_eq!(numbers(), before);
        // And all of it goes with the functions.
        drop((f, loss));
        of_runtime().trim().unwrap();
        let left = of_runtime().memory();
        println!("{left:?} after the functions are gone, {before:?} before");
        assert_eq!(left.idle_bytes, 0);
        assert!(left.live_bytes < before.0);
    });
}

/// The stand-in runs what is queued when somebody waits for it, so what it has run says who waited.
#[test]
fn calls_return_before_the_device_is_done() {
    in_own_process("calls::calls_return_before_the_device_is_done", &[], || {
        let Some(driver) = driver() else { return };
        let f = accelerate(|x: &Tensor| x.matmul(&x.t()).exp().sum(0));
        let x = ramp(&[16, 16], 1).to(gpu());
        let expected = all_bits(&f.call(&x).unwrap());
        // Launched one by one while a graph is made, then replayed.
        for _ in 0..3 {
            gpu().sync().unwrap();
            let before = driver.counters();
            let result = f.call(&x).unwrap();
            assert_eq!(driver.counters().launches, before.launches, "a call waits for nothing");
            assert_eq!(all_bits(&result), expected);
            assert!(driver.counters().launches > before.launches, "who reads waits");
            let result = f.call(&x).unwrap();
            let before = driver.counters();
            gpu().sync().unwrap();
            assert!(driver.counters().launches > before.launches, "`sync` waits");
            drop(result);
        }
    });
}

#[test]
fn running_out_of_memory_loses_nothing() {
    in_own_process("calls::running_out_of_memory_loses_nothing", &[], || {
        let f = accelerate(|a: &Tensor, b: &Tensor| (a + b, a.sqrt() - b, (a * b).exp()));
        let (a, b) = (ramp(&[MIB / 4], 1).to(gpu()), ramp(&[MIB / 4], 2).to(gpu()));
        let expected = all_bits(&f.call(&a, &b).unwrap());
        let gpu = of_runtime();
        let refuse = |limited: &dyn Fn(bool)| {
            gpu.trim().unwrap();
            let live = gpu.memory().live_bytes;
            limited(true);
            let error = f.call(&a, &b).err().unwrap();
            let text = error.to_string();
            assert!(matches!(error, Error::Memory(_)), "{text}");
            let parts =
                ["memory: 1.0 MiB asked for by a call of the function", " on cuda:0", "results", "tests/gpu/calls.rs"];
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
            // Other ways to need memory.
            for (result, op) in [(&a + &b, "`add`"), (ramp(&[MIB / 4], 3).to(crate::device::gpu()), "`to`")] {
                let text = result.error().unwrap().to_string();
                let start = format!("memory: 1.0 MiB asked for by {op} (at tests/gpu/calls.rs:");
                assert!(text.starts_with(&start) && text.contains(" on cuda:0"), "{text}");
            }
            // Not even code of another shape can be made, and a small call that there is room for works.
            let wrong = f.call(ramp(&[MIB], 1).to(crate::device::gpu()), &a).err().unwrap();
            assert!(wrong.to_string().contains("4.0 MiB asked for by"), "{wrong}");
            assert_eq!(gpu.memory().live_bytes, live, "everything that a failed call took is given back");
            limited(false);
            assert_eq!(all_bits(&f.call(&a, &b).unwrap()), expected);
        };
        refuse(&|is_on| gpu.set_memory_limit(if is_on { gpu.memory().live_bytes + MIB / 2 } else { usize::MAX }));
        if let Some(driver) = driver() {
            let all = gpu.total_bytes() as u64;
            refuse(&|is_on| {
                driver.set_memory(0, if is_on { driver.counters().live_bytes + MIB as u64 / 2 } else { all });
            });
        }
        assert_eq!(f.stats().misses, 1, "{}", f.stats());
        assert_eq!((bits(&a), bits(&b)), (bits(&ramp(&[MIB / 4], 1)), bits(&ramp(&[MIB / 4], 2))));
    });
}

/// A first call that fails for want of memory leaves no broken entry.
#[test]
fn a_first_call_without_memory_can_be_repeated() {
    in_own_process("calls::a_first_call_without_memory_can_be_repeated", &[], || {
        let f = accelerate(|a: &Tensor| (a.matmul(a) + 1.0).softmax(1).matmul(a));
        let there = ramp(&[100, 100], 1).to(gpu());
        let expected = bits(&accelerate(|a: &Tensor| (a.matmul(a) + 1.0).softmax(1).matmul(a)).call(&there).unwrap());
        let gpu = of_runtime();
        for more in [0, 10_000, 50_000, 200_000] {
            gpu.trim().unwrap();
            gpu.set_memory_limit(gpu.memory().live_bytes + more);
            let result = f.call(&there);
            gpu.set_memory_limit(usize::MAX);
            if let Err(error) = result {
                assert!(error.to_string().contains(" asked for by "), "{error}");
            }
        }
        assert_eq!(bits(&f.call(&there).unwrap()), expected);
        let (_, gradient) = vjp(|a: &Tensor| f.call(a).unwrap(), &there, &there).unwrap();
        assert_eq!(gradient.device(), there.device());
    });
}

#[test]
fn a_device_budget_evicts() {
    let f = accelerate(|x: &Tensor| x.exp().sum(..) * x.matmul(&x.t()).sum(..));
    let call = |n: usize| drop(f.call(ramp(&[n, 40], n).to(gpu())).unwrap());
    (1..5).for_each(|n| call(10 * n));
    let stats = f.stats();
    let of_one = stats.entries.iter().map(|entry| entry.device_bytes).max().unwrap();
    assert!(of_one > 0 && stats.device_bytes() >= 2 * of_one, "{stats}");
    f.configure(|options| options.byte_budget = retape::Budget { host: None, device: Some(of_one) });
    call(10);
    let stats = f.stats();
    assert!(stats.device_bytes() <= of_one && stats.evictions > 0, "{stats}");
    call(20);
    assert!(f.stats().device_bytes() <= of_one);
    // Entries of the processor do not count.
    f.call(ramp(&[10, 40], 1)).unwrap();
    f.call(ramp(&[20, 40], 1)).unwrap();
    assert!(f.stats().entries.len() >= 2, "{}", f.stats());
}
