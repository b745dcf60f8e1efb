//! The cache of accelerated functions: misses, hits, evictions, and the views of several threads.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Barrier, Mutex, OnceLock};
use std::time::Duration;

use crate::heard::Listener;
use expect_test::{Expect, expect};
use retape::{Accelerated, Budget, DType, Error, Tensor, accelerate};

#[track_caller]
fn check(log: &Listener, expected: &Expect) {
    expected.assert_eq(&log.lines().join("\n"));
}

fn ones(shape: &[usize]) -> Tensor {
    Tensor::ones(shape.to_vec())
}

#[test]
fn a_new_shape_or_dtype_misses_once() {
    let (log, _listening) = Listener::here();
    let f = accelerate(|x: &Tensor| x + x);
    for x in [ones(&[4]), ones(&[4]), ones(&[2, 3]), ones(&[4]), ones(&[2, 3]), ones(&[])] {
        f.call(x).unwrap();
    }
    f.call(Tensor::zeros_of(DType::F64, [4])).unwrap();
    f.call(Tensor::zeros_of(DType::F64, [4])).unwrap();
    check(
        &log,
        &expect![[r#"
        miss (f32[4])
        hit  (f32[4])
        miss (f32[2, 3])
        hit  (f32[4])
        hit  (f32[2, 3])
        miss (f32[])
        miss (f64[4])
        hit  (f64[4])"#]],
    );
}

#[test]
fn a_new_static_value_misses_once() {
    let (log, _listening) = Listener::here();
    let f = accelerate(|x: &Tensor, twice: &bool, axis: &usize| {
        let y = x.sum(*axis as isize);
        if *twice { &y + &y } else { y }
    });
    let x = ones(&[2, 3]);
    for (twice, axis, expected) in [(false, 0, vec![2.0; 3]), (true, 0, vec![4.0; 3]), (true, 1, vec![6.0; 2])] {
        for _ in 0..2 {
            assert_eq!(f.call(&x, twice, axis).unwrap().to_vec::<f32>().unwrap(), expected);
        }
    }
    check(
        &log,
        &expect![[r#"
        miss (f32[2, 3], false, 0)
        hit  (f32[2, 3], false, 0)
        miss (f32[2, 3], true, 0)
        hit  (f32[2, 3], true, 0)
        miss (f32[2, 3], true, 1)
        hit  (f32[2, 3], true, 1)"#]],
    );
}

#[test]
fn a_new_structure_misses_once() {
    let (log, _listening) = Listener::here();
    let f = accelerate(|xs: &Vec<Tensor>, bias: &Option<Tensor>| {
        let sum = xs.iter().fold(Tensor::from(0.0_f32), |sum, x| sum + x.sum(..));
        match bias {
            Some(bias) => sum + bias,
            None => sum,
        }
    });
    let one = || Tensor::from(1.0_f32);
    let call = |n: usize, bias: Option<Tensor>| f.call(vec![ones(&[2]); n], bias).unwrap().item::<f32>().unwrap();
    assert_eq!([call(1, None), call(1, None)], [2.0, 2.0]);
    assert_eq!([call(2, None), call(2, None)], [4.0, 4.0]);
    assert_eq!([call(2, Some(one())), call(2, Some(one()))], [5.0, 5.0]);
    check(
        &log,
        &expect![[r#"
        miss (length 1, f32[2], None)
        hit  (length 1, f32[2], None)
        miss (length 2, f32[2], f32[2], None)
        hit  (length 2, f32[2], f32[2], None)
        miss (length 2, f32[2], f32[2], Some, f32[])
        hit  (length 2, f32[2], f32[2], Some, f32[])"#]],
    );
}

#[test]
fn every_call_is_a_hit_or_a_miss() {
    let f = accelerate(|x: &Tensor| x * 2.0_f32);
    assert_eq!((f.hit_rate(), f.stats().occupancy(), f.options().capacity), (0.0, 0.0, 50));
    for n in [3, 4, 3, 4, 3] {
        f.call(ones(&[n])).unwrap();
    }
    let stats = f.stats();
    assert_eq!((stats.hits, stats.misses, stats.waits), (3, 2, 0));
    assert_eq!((f.hit_rate(), f.stats().occupancy()), (0.6, 0.04));
    // The last used comes first.
    let calls: Vec<_> = stats.entries.iter().map(|entry| (entry.signature.to_string(), entry.calls)).collect();
    assert_eq!(calls, [("f32[3]".to_owned(), 3), ("f32[4]".to_owned(), 2)]);
}

#[test]
fn the_least_recently_used_entry_makes_room() {
    let (log, _listening) = Listener::here();
    let f = accelerate(|x: &Tensor| -x);
    f.configure(|options| options.capacity = 2);
    for n in [1, 2, 1, 3, 1, 2] {
        f.call(ones(&[n])).unwrap();
    }
    f.configure(|options| options.capacity = 1);
    f.call(ones(&[2])).unwrap();
    check(
        &log,
        &expect![[r#"
        miss (f32[1])
        miss (f32[2])
        hit  (f32[1])
        miss (f32[3])
        evict (f32[2])
        hit  (f32[1])
        miss (f32[2])
        evict (f32[3])
        evict (f32[1])
        hit  (f32[2])"#]],
    );
    assert_eq!((f.options().capacity, f.stats().occupancy(), f.stats().evictions), (1, 1.0, 3));
}

#[test]
fn the_order_of_use_is_kept_without_an_observer_too() {
    let f = accelerate(|x: &Tensor| -x);
    f.configure(|options| options.capacity = 2);
    for n in [1, 2, 2, 1, 1, 3, 1] {
        f.call(ones(&[n])).unwrap();
    }
    let stats = f.stats();
    let held: Vec<String> = stats.entries.iter().map(|entry| entry.signature.to_string()).collect();
    assert_eq!(held, ["f32[1]", "f32[3]"]);
    assert_eq!((stats.hits, stats.misses, stats.evictions), (4, 3, 1));
}

#[test]
fn a_byte_budget_evicts_what_is_over_and_spares_what_is_pinned() {
    let captured = Tensor::ones([1000]);
    let f = accelerate(move |x: &Tensor| x.sum(..) + &captured);
    for n in 1..=4 {
        f.call(ones(&[n])).unwrap();
    }
    let stats = f.stats();
    assert_eq!((stats.budget, stats.pinned, stats.rejected), (Budget::default(), 0, 0));
    let bytes: Vec<usize> = stats.entries.iter().map(|entry| entry.bytes).collect();
    assert!(bytes.iter().all(|&bytes| bytes > 4000), "captured tensors count: {bytes:?}");

    // Room for two entries and a half.
    let two = bytes[0] + bytes[1] + bytes[2] / 2;
    let budget = Budget { host: Some(two), device: Some(0) };
    f.configure(|options| options.byte_budget = budget);
    assert_eq!((f.options().byte_budget, f.stats().entries.len(), f.stats().evictions), (budget, 2, 2));
    assert!(f.stats().bytes() <= two);
    f.call(ones(&[5])).unwrap();
    assert!(f.stats().bytes() <= two && f.stats().evictions > 2, "{}", f.stats());

    let pinned = f.pin(ones(&[5])).unwrap();
    f.configure(|options| options.byte_budget = Budget { host: Some(0), device: None });
    assert_eq!((f.stats().entries.len(), f.stats().pinned), (1, 1));
    // Others are served, but there is no room for them.
    assert_eq!(f.call(ones(&[1])).unwrap().to_vec::<f32>().unwrap(), [2.0; 1000]);
    assert_eq!((f.stats().entries.len(), f.stats().rejected), (1, 1));
    drop(pinned);
    f.configure(|options| options.byte_budget = Budget { host: Some(0), device: None });
    assert_eq!((f.stats().entries.len(), f.stats().pinned), (0, 0));
    f.configure(|options| options.byte_budget = Budget::default());
    f.call(ones(&[1])).unwrap();
    assert_eq!(f.stats().entries.len(), 1);
}

#[test]
fn a_clear_drops_entries_and_keeps_counters() {
    let (log, _listening) = Listener::here();
    let f = accelerate(|x: &Tensor| x + 1.0_f32);
    f.call(ones(&[4])).unwrap();
    f.call(ones(&[4])).unwrap();
    f.clear_cache();
    assert_eq!((f.stats().occupancy(), f.hit_rate()), (0.0, 0.5));
    f.call(ones(&[4])).unwrap();
    check(
        &log,
        &expect![[r#"
        miss (f32[4])
        hit  (f32[4])
        clear
        miss (f32[4])"#]],
    );

    let unobserved = accelerate(|x: &Tensor| x + 1.0_f32);
    for _ in 0..3 {
        unobserved.call(ones(&[4])).unwrap();
    }
    unobserved.clear_cache();
    unobserved.call(ones(&[4])).unwrap();
    let stats = unobserved.stats();
    assert_eq!((stats.hits, stats.misses, stats.clears), (2, 2, 1));
}

#[test]
fn a_disabled_cache_counts_nothing_and_gives_the_same() {
    let f = accelerate(|w: &Tensor, x: &Tensor| {
        let loss = (w * x).square().sum(..);
        let grad = loss.grad(w);
        (loss, grad)
    });
    let (w, x) = (Tensor::from([1.0_f32, 2.0]), Tensor::from([3.0_f32, -1.0]));
    let read = |(loss, grad): (Tensor, Tensor)| (loss.item::<f32>().unwrap(), grad.to_vec::<f32>().unwrap());
    let fast = read(f.call(&w, &x).unwrap());
    f.configure(|options| options.enabled = false);
    let plain = read(f.call(&w, &x).unwrap());
    assert_eq!(fast, (13.0, vec![18.0, 4.0]));
    assert_eq!(plain, fast);
    assert!(!f.options().enabled);
    assert_eq!((f.stats().hits, f.stats().misses), (0, 1));
    f.configure(|options| options.enabled = true);
    assert_eq!(read(f.call(&w, &x).unwrap()), fast);
    assert_eq!((f.stats().hits, f.stats().misses), (1, 1));
}

#[test]
fn numbers_are_inputs() {
    let f = accelerate(|w: &Tensor, rate: &Tensor| w - rate * w);
    let w = ones(&[2]);
    for i in 0..10 {
        let rate = i as f32 / 16.0;
        assert_eq!(f.call(&w, rate).unwrap().to_vec::<f32>().unwrap(), [1.0 - rate; 2]);
    }
    assert_eq!((f.stats().hits, f.stats().misses), (9, 1));
}

#[test]
fn a_captured_tensor_is_a_listed_input_and_keeps_its_value() {
    let scale = Mutex::new(Tensor::from([2.0_f32, 3.0]));
    let line = line!() + 1;
    let f = accelerate(|x: &Tensor| x * &*scale.lock().unwrap());
    let first = f.call(ones(&[2])).unwrap();
    *scale.lock().unwrap() = Tensor::from([5.0_f32, 7.0]);
    let second = f.call(ones(&[2])).unwrap();
    for result in [first, second] {
        assert_eq!(result.to_vec::<f32>().unwrap(), [2.0, 3.0]);
    }
    let captures = &f.stats().entries[0].captures;
    assert_eq!(captures.len(), 1);
    assert!(captures[0].starts_with("f32[2] at "), "{}", captures[0]);
    assert!(captures[0].contains(&format!("cache.rs:{line}:")), "{}", captures[0]);
    f.clear_cache();
    assert_eq!(f.call(ones(&[2])).unwrap().to_vec::<f32>().unwrap(), [5.0, 7.0]);
}

#[test]
fn results_never_share_memory() {
    let f = accelerate(|x: &Tensor| (x * 2.0_f32, x.clone()));
    let x = ones(&[3]);
    let (first, handed) = f.call(&x).unwrap();
    let (second, _) = f.call(Tensor::full([3], 10.0_f32)).unwrap();
    assert_eq!(first.to_vec::<f32>().unwrap(), [2.0; 3]);
    assert_eq!(second.to_vec::<f32>().unwrap(), [20.0; 3]);
    assert_eq!(handed.to_vec::<f32>().unwrap(), [1.0; 3]);
}

#[test]
fn a_failed_call_leaves_the_cache_as_it_was() {
    let f = accelerate(|x: &Tensor, y: &Tensor| x + y);
    assert!(matches!(f.call(ones(&[2]), ones(&[3])), Err(Error::Type { .. })));
    assert_eq!(f.stats().occupancy(), 0.0);
    assert_eq!(f.call(ones(&[2]), ones(&[2])).unwrap().to_vec::<f32>().unwrap(), [2.0; 2]);
    assert_eq!((f.stats().hits, f.stats().misses, f.stats().entries.len()), (0, 2, 1));
}

#[test]
fn threads_that_need_one_trace_wait_for_it() {
    let (n_traces, log) = (AtomicUsize::new(0), Listener::default());
    let f = accelerate(|x: &Tensor| {
        n_traces.fetch_add(1, SeqCst);
        std::thread::sleep(Duration::from_millis(100));
        x + x
    });
    let barrier = Barrier::new(8);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let _listening = tracing::subscriber::set_default(log.clone());
                barrier.wait();
                assert_eq!(f.call(ones(&[4])).unwrap().to_vec::<f32>().unwrap(), [2.0; 4]);
            });
        }
    });
    assert_eq!(n_traces.load(SeqCst), 1);
    let stats = f.stats();
    assert_eq!((stats.hits, stats.misses), (7, 1));
    let lines = log.lines();
    let count = |line: &str| lines.iter().filter(|other| *other == line).count();
    assert_eq!((count("miss (f32[4])"), count("hit  (f32[4])")), (1, 7));
    assert_eq!(count("wait (f32[4])") as u64, stats.waits);
    assert_eq!(lines.len() as u64, 8 + stats.waits);
}

#[test]
fn threads_with_mixed_shapes_are_counted_exactly() {
    const CALLS: usize = 60;
    let n_traces = AtomicUsize::new(0);
    let f = accelerate(|x: &Tensor| {
        n_traces.fetch_add(1, SeqCst);
        (x * 3.0_f32).sum(..)
    });
    f.configure(|options| options.stale_check = false);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let f = &f;
            scope.spawn(move || {
                for i in 0..CALLS {
                    let (n, value) = (1 + (i * 7 + thread) % 5, (i + thread) as f32);
                    let sum = f.call(Tensor::full([n], value)).unwrap();
                    assert_eq!(sum.item::<f32>().unwrap(), 3.0 * value * n as f32);
                }
            });
        }
    });
    let stats = f.stats();
    assert_eq!((stats.misses, n_traces.load(SeqCst)), (5, 5));
    assert_eq!(stats.hits + stats.misses, 8 * CALLS as u64);
    let calls: u64 = stats.entries.iter().map(|entry| entry.calls).sum();
    assert_eq!(calls, 8 * CALLS as u64);
}

#[test]
fn a_panic_in_one_thread_is_its_own() {
    let n_traces = AtomicUsize::new(0);
    let f = accelerate(|x: &Tensor| {
        let is_first = n_traces.fetch_add(1, SeqCst) == 0;
        std::thread::sleep(Duration::from_millis(100));
        assert!(!is_first, "the first trace goes wrong");
        x + x
    });
    let barrier = Barrier::new(4);
    let failures: Vec<String> = std::thread::scope(|scope| {
        let call = || {
            barrier.wait();
            f.call(ones(&[4])).map(|y| assert_eq!(y.to_vec::<f32>().unwrap(), [2.0; 4]))
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(call)).collect();
        threads.into_iter().filter_map(|thread| thread.join().unwrap().err()).map(|e| e.to_string()).collect()
    });
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert!(failures[0].contains("the first trace goes wrong"), "{failures:?}");
    assert_eq!((f.stats().hits, f.stats().misses, n_traces.load(SeqCst)), (2, 2, 2));
}

type Boxed = Box<dyn Fn(&Tensor) -> Tensor + Send + Sync>;

#[test]
fn a_call_of_what_is_being_traced_is_an_error() {
    static FUNCTION: OnceLock<Accelerated<Boxed, (Tensor,), Tensor>> = OnceLock::new();
    static INNER: Mutex<Option<Error>> = Mutex::new(None);
    static LINE: AtomicU32 = AtomicU32::new(0);
    let function: Boxed = Box::new(|x: &Tensor| {
        let inner = FUNCTION.get().expect("it is set before it is called").call(ones(&[4]));
        LINE.store(line!() - 1, SeqCst);
        *INNER.lock().unwrap() = inner.err();
        x + x
    });
    let at = line!() + 1;
    let f = FUNCTION.get_or_init(|| accelerate(function).named("doubled"));
    assert_eq!(f.call(ones(&[4])).unwrap().to_vec::<f32>().unwrap(), [2.0; 4]);
    let inner = INNER.lock().unwrap().take().expect("the inner call fails").to_string();
    assert!(inner.starts_with(&format!("cache: `doubled` (accelerated at {}:{at}:", file!())), "{inner}");
    let called = format!(
        "called itself with the signature that is being traced, (f32[4]) (at {}:{}:",
        file!(),
        LINE.load(SeqCst)
    );
    assert!(inner.contains(&called), "{inner}");
    assert_eq!(f.call(ones(&[4])).unwrap().to_vec::<f32>().unwrap(), [2.0; 4]);
    assert_eq!((f.stats().hits, f.stats().misses), (1, 2));
}

#[test]
fn a_call_inside_a_trace_becomes_part_of_it() {
    let inner = accelerate(|x: &Tensor| x * 3.0_f32);
    let outer = accelerate(|x: &Tensor| {
        let loss = inner.call(x).unwrap().sum(..);
        let grad = loss.grad(x);
        (loss, grad)
    });
    for _ in 0..2 {
        let (loss, grad) = outer.call(ones(&[4])).unwrap();
        assert_eq!((loss.item::<f32>().unwrap(), grad.to_vec::<f32>().unwrap()), (12.0, vec![3.0; 4]));
    }
    assert_eq!((outer.stats().hits, outer.stats().misses), (1, 1));
    assert_eq!((inner.stats().hits, inner.stats().misses), (0, 0));
}
