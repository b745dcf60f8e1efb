//! Closures that wait for threads which call the function that is being traced: never a hang, and no honest wait fails.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use retape::{Accelerated, Error, Result, Tensor, accelerate, set_patience, value_and_grad};

type Boxed = Box<dyn Fn(&Tensor) -> Tensor + Send + Sync>;
type Boxes = Accelerated<Boxed, (Tensor,), Tensor>;

/// Keeps the other tests waiting, and lets the next one begin with the usual patience.
struct Impatient(#[allow(dead_code, reason = "it is held")] MutexGuard<'static, ()>);

impl Drop for Impatient {
    fn drop(&mut self) {
        set_patience(Duration::from_secs(5));
    }
}

fn with_patience(millis: u64) -> Impatient {
    let turn = super::alone();
    set_patience(Duration::from_millis(millis));
    Impatient(turn)
}

fn ones() -> Tensor {
    Tensor::ones([4])
}

/// A function whose closure may call it; made at the line before it is called.
fn recursive(body: impl Fn(&Boxes, &Tensor) -> Tensor + Send + Sync + 'static) -> Arc<OnceLock<Boxes>> {
    let cell: Arc<OnceLock<Boxes>> = Arc::default();
    let itself = Arc::downgrade(&cell);
    let boxed: Boxed = Box::new(move |x| body(itself.upgrade().unwrap().get().unwrap(), x));
    assert!(cell.set(accelerate(boxed)).is_ok());
    cell
}

#[test]
fn a_closure_that_always_joins_a_call_of_itself_is_an_error() {
    let _turn = with_patience(10);
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&seen);
    let f = recursive(move |f, x| {
        let inner = thread::scope(|scope| scope.spawn(|| f.call(ones())).join().unwrap());
        match inner {
            Ok(y) => x + y,
            Err(error) => {
                log.lock().unwrap().push(error.to_string());
                panic!("{error}");
            }
        }
    });
    let f = f.get().unwrap();
    let Err(Error::Panicked(panic)) = f.call(ones()) else { panic!("it cannot have a value") };
    // The innermost call is refused, and says which function, for which arguments, and the remedy.
    let refused = seen.lock().unwrap()[0].clone();
    for part in [file!(), "(f32[4])", "call it on the closure's own thread", "RETAPE_PATIENCE"] {
        assert!(refused.contains(part), "{part} is not in {refused}");
    }
    assert!(panic.message.contains("does not get traced"), "{panic}");
    let stats = f.stats();
    assert_eq!((stats.hits, stats.misses, stats.waits, stats.entries.len()), (0, 6, 5, 0));
    let misses = f.explain();
    assert_eq!((misses.len(), misses.iter().filter(|miss| miss.error.is_some()).count()), (6, 6));
}

#[test]
fn a_closure_that_joins_a_call_of_itself_once_has_a_value() {
    let _turn = with_patience(10);
    let entered = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&entered);
    let f = recursive(move |f, x| {
        if count.fetch_add(1, SeqCst) > 0 {
            return x * 3.0_f32;
        }
        // The inner call's result is a captured tensor of this trace; the inner trace has none.
        x * thread::scope(|scope| scope.spawn(|| f.call(ones() * 2.0_f32)).join().unwrap()).unwrap()
    });
    let f = f.get().unwrap();
    // The entry that came first serves the outer call, too.
    assert_eq!(f.call(ones()).unwrap().to_vec::<f32>().unwrap(), [3.0; 4]);
    assert_eq!(f.call(ones()).unwrap().to_vec::<f32>().unwrap(), [3.0; 4]);
    let stats = f.stats();
    assert_eq!((stats.hits, stats.misses, stats.waits, stats.rejected), (1, 2, 1, 1));
    assert!(entered.load(SeqCst) >= 2);
}

#[test]
fn two_functions_that_join_calls_of_each_other_are_an_error() {
    let _turn = with_patience(10);
    static BOTH: [OnceLock<Boxes>; 2] = [OnceLock::new(), OnceLock::new()];
    for (n, own) in BOTH.iter().enumerate() {
        let body: Boxed = Box::new(move |x| {
            let other = move || BOTH[1 - n].get().unwrap().call(ones());
            x + thread::spawn(other).join().unwrap().unwrap()
        });
        assert!(own.set(accelerate(body)).is_ok());
    }
    let results = thread::scope(|scope| {
        let calls = [0, 1].map(|n| scope.spawn(move || BOTH[n].get().unwrap().call(ones())));
        calls.map(|call| call.join().unwrap())
    });
    assert!(results.iter().all(|result| matches!(result, Err(Error::Panicked(_)))), "{results:?}");
    // No trace is left behind: an entry that does not need itself is made.
    for f in BOTH.iter().map(|f| f.get().unwrap()) {
        assert_eq!((f.stats().hits, f.stats().entries.len()), (0, 0));
    }
}

/// A pool whose worker steals a call of the function while it works for the closure, as those of `rayon` do.
#[test]
fn a_worker_that_the_closure_needs_may_call_the_function_meanwhile() {
    let _turn = with_patience(10);
    type Job = Box<dyn FnOnce() + Send>;
    let (jobs, next) = mpsc::channel::<Job>();
    let worker = thread::spawn(move || next.into_iter().for_each(|job| job()));
    let (in_closure, is_in_closure) = mpsc::channel::<()>();
    let (queued, is_queued) = mpsc::channel::<()>();
    let once = Mutex::new(Some((in_closure, is_queued)));
    let pool = jobs.clone();
    let f = recursive(move |_, x| {
        let first = once.lock().unwrap().take();
        if let Some((in_closure, is_queued)) = first {
            in_closure.send(()).unwrap();
            is_queued.recv().unwrap();
            // Behind the call in the worker's queue.
            let (done, is_done) = mpsc::channel();
            pool.send(Box::new(move || done.send(()).unwrap())).unwrap();
            is_done.recv().unwrap();
        }
        x * 2.0_f32
    });
    let outer = {
        let f = Arc::clone(&f);
        thread::spawn(move || f.get().unwrap().call(ones()))
    };
    is_in_closure.recv().unwrap();
    let (result, has_result) = mpsc::channel();
    let stolen = Arc::clone(&f);
    jobs.send(Box::new(move || result.send(stolen.get().unwrap().call(ones())).unwrap())).unwrap();
    queued.send(()).unwrap();
    let both: [Result<Tensor>; 2] = [has_result.recv().unwrap(), outer.join().unwrap()];
    for y in both {
        assert_eq!(y.unwrap().to_vec::<f32>().unwrap(), [2.0; 4]);
    }
    assert_eq!((f.get().unwrap().stats().misses, f.get().unwrap().stats().hits), (2, 0));
    drop((f, jobs));
    worker.join().unwrap();
}

#[test]
fn threads_that_wait_for_a_long_trace_share_it() {
    let _turn = with_patience(250);
    let n_entered = AtomicUsize::new(0);
    let f = accelerate(|x: &Tensor| {
        n_entered.fetch_add(1, SeqCst);
        // Far longer than the patience of those who wait, but it gets on.
        (0..200).fold(x.clone(), |x, _| {
            thread::sleep(Duration::from_millis(5));
            x + 1.0_f32
        })
    });
    thread::scope(|scope| {
        let calls: Vec<_> = (0..5).map(|_| scope.spawn(|| f.call(ones()))).collect();
        for call in calls {
            assert_eq!(call.join().unwrap().unwrap().to_vec::<f32>().unwrap(), [201.0; 4]);
        }
    });
    assert_eq!((n_entered.load(SeqCst), f.stats().hits, f.stats().misses), (1, 4, 1));
}

#[test]
fn threads_that_wait_for_one_long_op_share_it() {
    let _turn = with_patience(10);
    let n_entered = AtomicUsize::new(0);
    let values = Tensor::iota(retape::DType::F32, [1 << 20], 0).sin();
    let f = accelerate(|x: &Tensor| {
        n_entered.fetch_add(1, SeqCst);
        // No other op tells meanwhile that this one gets on.
        x + values.argsort(0).at(0).cast(retape::DType::F32) * 0.0_f32
    });
    thread::scope(|scope| {
        let calls: Vec<_> = (0..3).map(|_| scope.spawn(|| f.call(ones()))).collect();
        for call in calls {
            assert_eq!(call.join().unwrap().unwrap().to_vec::<f32>().unwrap(), [1.0; 4]);
        }
    });
    assert_eq!((n_entered.load(SeqCst), f.stats().hits, f.stats().misses), (1, 2, 1));
}

#[test]
fn threads_that_wait_for_a_blocked_trace_all_have_a_value() {
    let _turn = with_patience(2);
    let is_over = AtomicBool::new(false);
    let f = accelerate(|x: &Tensor| {
        while !is_over.load(SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
        x + 1.0_f32
    });
    thread::scope(|scope| {
        let calls: Vec<_> = (0..9).map(|_| scope.spawn(|| f.call(ones()))).collect();
        thread::sleep(Duration::from_millis(300));
        is_over.store(true, SeqCst);
        for call in calls {
            assert_eq!(call.join().unwrap().unwrap().to_vec::<f32>().unwrap(), [2.0; 4]);
        }
    });
    let stats = f.stats();
    assert_eq!((stats.hits + stats.misses, stats.entries.len()), (9, 1));
    assert!(stats.misses > 1, "the patience of some is over");
}

/// Inside a gradient that is evaluated at once, calls are looked up all the same.
#[test]
fn calls_inside_gradients_do_not_hang_either() {
    let _turn = with_patience(10);
    let entered = Arc::new(AtomicBool::new(false));
    let f = recursive(move |f, x| {
        if !entered.swap(true, SeqCst) {
            thread::scope(|scope| {
                let inner = || value_and_grad(|x: &Tensor| f.call(x).unwrap().sum(..), &ones()).unwrap();
                assert_eq!(scope.spawn(inner).join().unwrap().1.to_vec::<f32>().unwrap(), [2.0; 4]);
            });
        }
        x.square()
    });
    let f = f.get().unwrap();
    let (_, slope) = value_and_grad(|x: &Tensor| f.call(x).unwrap().sum(..), &ones()).unwrap();
    assert_eq!(slope.to_vec::<f32>().unwrap(), [2.0; 4]);
    assert_eq!((f.stats().hits, f.stats().misses), (0, 2));
}
