//! Producers that stand still in code of a user: their waiters take over, give up, or go on waiting.
//!
//! A program of its own, since patience belongs to the process.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use retape_runtime::{
    Cache, Deadlock, Error, EventKind, Hash32, Lazy, Outcome, in_user_code, note_progress, patience, set_patience,
};

type Numbers = Cache<u32, u32>;

fn hash(key: u32) -> Hash32 {
    *blake3::hash(&key.to_le_bytes()).as_bytes()
}

/// Sets the patience for one test, while others wait for their turn.
fn with_patience(millis: u64) -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    set_patience(Duration::from_millis(millis));
    turn
}

fn until(is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(60), "it never came");
        thread::sleep(Duration::from_millis(1));
    }
}

fn ask(cache: &Numbers, make: impl FnOnce() -> Result<(u32, usize), Error>) -> Result<(Arc<u32>, Outcome), Error> {
    cache.get_or_try_insert_with(&hash(1), &1, make)
}

#[test]
fn a_thread_that_the_maker_waits_for_makes_the_value() {
    let _turn = with_patience(20);
    let log = Arc::new(Mutex::new(vec![]));
    let sink = Arc::clone(&log);
    let cache = Numbers::default().with_observer(move |event| sink.lock().unwrap().push(event.kind));
    let (value, outcome) = ask(&cache, || {
        // Scoped or not, and whatever it is that the producer waits for.
        let inner = in_user_code(|| thread::scope(|scope| scope.spawn(|| ask(&cache, || Ok((7, 1)))).join().unwrap()));
        assert_eq!(inner.map(|(value, outcome)| (*value, outcome)), Ok((7, Outcome::Miss)));
        Ok((8, 1))
    })
    .unwrap();
    assert_eq!((*value, outcome), (7, Outcome::Miss), "the value that came first is everybody's");
    assert!(Arc::ptr_eq(&value, &cache.peek(&hash(1), &1).unwrap()));
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses, stats.waits, stats.inserts, stats.rejected), (0, 2, 1, 1, 1));
    use EventKind::{Insert, Miss, TakeOver, Wait};
    assert_eq!(*log.lock().unwrap(), [Miss, Wait, TakeOver, Miss, Insert]);
}

/// Asks for what it makes, on a thread of its own, without end.
fn recursive(cache: &Numbers, entered: &AtomicUsize) -> Result<(Arc<u32>, Outcome), Error> {
    ask(cache, || {
        entered.fetch_add(1, SeqCst);
        let inner = || thread::scope(|scope| scope.spawn(|| recursive(cache, entered)).join().unwrap());
        in_user_code(inner).map(|(value, _)| (*value, 1))
    })
}

#[test]
fn a_value_that_always_needs_itself_is_an_error() {
    let _turn = with_patience(5);
    let (cache, entered) = (Numbers::default(), AtomicUsize::new(0));
    assert_eq!(recursive(&cache, &entered), Err(Error::Deadlock(Deadlock::Stuck)));
    // The first producer, four that took over, and one who gave up.
    let stats = cache.stats();
    assert_eq!((entered.load(SeqCst), stats.waits, stats.misses, stats.hits), (5, 5, 6, 0));
    assert_eq!(stats.occupancy, 0);
    assert_eq!(ask(&cache, || Ok((3, 1))).map(|(value, outcome)| (*value, outcome)), Ok((3, Outcome::Miss)));
}

#[test]
fn two_values_that_need_each_other_over_threads_are_an_error() {
    let _turn = with_patience(5);
    let caches = [Numbers::default(), Numbers::default()];
    fn make(caches: &[Numbers; 2], n: usize) -> Result<(Arc<u32>, Outcome), Error> {
        ask(&caches[n], || {
            let inner = || thread::scope(|scope| scope.spawn(|| make(caches, 1 - n)).join().unwrap());
            in_user_code(inner).map(|(value, _)| (*value, 1))
        })
    }
    assert_eq!(make(&caches, 0).map(drop), Err(Error::Deadlock(Deadlock::Stuck)));
    // One of them asks on its own thread: a part of the circle is a wait that is known.
    fn mixed(caches: &[Numbers; 2], n: usize) -> Result<(Arc<u32>, Outcome), Error> {
        ask(&caches[n], || {
            let inner = || match n {
                0 => thread::scope(|scope| scope.spawn(|| mixed(caches, 1)).join().unwrap()),
                _ => mixed(caches, 0),
            };
            in_user_code(inner).map(|(value, _)| (*value, 1))
        })
    }
    for n in [0, 1] {
        assert!(matches!(mixed(&caches, n), Err(Error::Deadlock(_))), "from {n}");
    }
}

#[test]
fn a_maker_at_work_is_waited_for_however_long_it_takes() {
    let _turn = with_patience(2);
    let (cache, other) = (Numbers::default(), Numbers::default());
    let made = AtomicUsize::new(0);
    let work = || {
        ask(&cache, || {
            made.fetch_add(1, SeqCst);
            in_user_code(|| ());
            until(|| cache.stats().waits >= 3);
            thread::sleep(Duration::from_millis(200));
            Ok((1, 1))
        })
    };
    // A thread that waits for such a producer is no less at work, though a user's code asked for it.
    let waiting = || ask(&other, || in_user_code(|| work().map(|(value, _)| (*value, 1))));
    thread::scope(|scope| {
        let calls: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        until(|| made.load(SeqCst) == 1);
        let behind: Vec<_> = (0..3).map(|_| scope.spawn(waiting)).collect();
        let outcomes: Vec<Outcome> = calls.into_iter().map(|call| call.join().unwrap().unwrap().1).collect();
        assert_eq!(outcomes.iter().filter(|outcome| **outcome == Outcome::Miss).count(), 1, "{outcomes:?}");
        assert!(behind.into_iter().all(|call| call.join().unwrap().is_ok()));
    });
    assert_eq!((made.into_inner(), cache.stats().misses, other.stats().misses), (1, 1, 1));
}

#[test]
fn a_maker_whose_code_gets_on_is_waited_for() {
    let _turn = with_patience(500);
    let cache = Numbers::default();
    let (begun, has_begun) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            let steps = || {
                begun.send(()).unwrap();
                let start = Instant::now();
                while start.elapsed() < Duration::from_millis(1500) {
                    note_progress();
                    thread::sleep(Duration::from_millis(1));
                }
            };
            ask(&cache, || {
                in_user_code(steps);
                Ok((1, 1))
            })
        });
        has_begun.recv().unwrap();
        assert_eq!(ask(&cache, || Ok((2, 1))).map(|(value, outcome)| (*value, outcome)), Ok((1, Outcome::Shared)));
    });
}

/// A closure that blocks on the world outside is slow, and no mistake.
#[test]
fn threads_that_wait_for_a_slow_maker_all_get_a_value() {
    const N_WAITERS: u64 = 12;
    let _turn = with_patience(2);
    let cache = Numbers::default();
    let (start, is_over) = (Instant::now(), AtomicBool::new(false));
    let slow = || {
        in_user_code(|| until(|| is_over.load(SeqCst)));
        Ok((1, 1))
    };
    thread::scope(|scope| {
        let calls: Vec<_> = (0..=N_WAITERS).map(|_| scope.spawn(|| ask(&cache, slow))).collect();
        until(|| cache.stats().waits == N_WAITERS);
        // A hundred times as long as one of them would wait for one producer.
        thread::sleep(Duration::from_millis(200));
        is_over.store(true, SeqCst);
        let values: Vec<_> = calls.into_iter().map(|call| call.join().unwrap().unwrap().0).collect();
        assert!(values.iter().all(|value| Arc::ptr_eq(value, &values[0])));
    });
    let stats = cache.stats();
    assert_eq!((stats.hits + stats.misses, stats.inserts), (N_WAITERS + 1, 1));
    // Patience doubles with each producer, so that few of the threads have entered the code.
    let most = 2 + u64::from((start.elapsed().as_millis() as u64 / 2).ilog2());
    assert!((2..=most).contains(&stats.misses), "{stats:?}, at most {most}");
    assert_eq!(stats.rejected, stats.misses - 1);
}

#[test]
fn a_maker_that_fails_leaves_the_others_at_it() {
    let _turn = with_patience(5);
    let cache = Numbers::default();
    let (fail, may_fail) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let cache = &cache;
        let first = scope.spawn(move || {
            ask(cache, || {
                in_user_code(|| may_fail.recv().unwrap());
                Err(Error::Code("failed".to_owned()))
            })
        });
        until(|| cache.stats().misses == 1);
        let second = scope.spawn(move || {
            ask(cache, || {
                fail.send(()).unwrap();
                // The first one is gone when this lands, and the third still waits.
                until(|| cache.stats().waits == 2);
                Ok((2, 1))
            })
        });
        until(|| cache.stats().misses == 2);
        assert_eq!(first.join().unwrap(), Err(Error::Code("failed".to_owned())));
        let third = scope.spawn(move || ask(cache, || Ok((3, 1))));
        for (call, outcome) in [(second, Outcome::Miss), (third, Outcome::Shared)] {
            assert_eq!(call.join().unwrap().map(|(value, how)| (*value, how)), Ok((2, outcome)));
        }
    });
}

#[test]
fn a_lazy_value_does_not_hang_either() {
    let _turn = with_patience(5);
    let lazy: Lazy<u32> = Lazy::default();
    let get = || lazy.get_or_try_init(|| Ok::<_, Error>(2));
    let outer = lazy.get_or_try_init(|| {
        // On this thread it makes one of its own, and another thread takes over.
        assert_eq!(get(), Ok((2, true)));
        assert_eq!(in_user_code(|| thread::scope(|scope| scope.spawn(get).join().unwrap())), Ok((2, true)));
        Ok::<_, Error>(1)
    });
    assert_eq!((outer, lazy.get()), (Ok((2, true)), Some(2)));
    assert_eq!((get(), patience()), (Ok((2, false)), Duration::from_millis(5)));

    let failing: Lazy<u32> = Lazy::default();
    assert_eq!(failing.get_or_try_init(|| Err(Error::Code("no".into()))), Err(Error::Code("no".into())));
    assert_eq!((failing.get(), failing.get_or_try_init(|| Ok::<_, Error>(3))), (None, Ok((3, true))));
}
