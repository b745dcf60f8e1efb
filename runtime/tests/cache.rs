//! The cache from outside: counting, order of eviction, capacities, single flight, clear.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use retape_runtime::{Budget, Cache, Capacity, Deadlock, Error, EventKind, Hash32, Insertion, Outcome, Weight};

type Numbers = Cache<u32, u32>;

fn hash(key: u32) -> Hash32 {
    *blake3::hash(&key.to_le_bytes()).as_bytes()
}

fn with_capacity(entries: usize) -> Numbers {
    Cache::new(holding(entries))
}

/// A capacity of this many entries of any weight.
fn holding(entries: usize) -> Capacity {
    Capacity { entries, budget: Budget::default() }
}

fn host(bytes: usize) -> Budget {
    Budget { host: Some(bytes), device: None }
}

/// Asks for `key`, whose value is its double and whose weight is `weight`.
fn ask_weighing(cache: &Numbers, key: u32, weight: usize) -> Outcome {
    let made = cache.get_or_try_insert_with(&hash(key), &key, || Ok::<_, Error>((2 * key, weight)));
    let (value, outcome) = made.unwrap();
    assert_eq!(*value, 2 * key);
    outcome
}

fn ask(cache: &Numbers, key: u32) -> Outcome {
    ask_weighing(cache, key, 1)
}

/// The keys, last used first.
fn keys(cache: &Numbers) -> Vec<u32> {
    cache.entries().iter().map(|entry| *entry.key()).collect()
}

/// Waits until `n` calls wait for somebody's value.
fn until_waits(cache: &Numbers, n: u64) {
    let start = Instant::now();
    while cache.stats().waits < n {
        assert!(start.elapsed() < Duration::from_secs(30), "{n} waits never came: {:?}", cache.stats());
        thread::yield_now();
    }
}

#[test]
fn calls_are_hits_or_misses() {
    let cache = Numbers::default();
    assert_eq!(cache.get(&hash(1), &1), None);
    assert_eq!(ask(&cache, 1), Outcome::Miss);
    assert_eq!(ask(&cache, 1), Outcome::Hit);
    assert_eq!(cache.get(&hash(1), &1).as_deref(), Some(&2));
    assert_eq!(cache.peek(&hash(1), &1).as_deref(), Some(&2));
    assert_eq!(cache.peek(&hash(2), &2), None);
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses, stats.inserts), (2, 2, 1));
    assert_eq!((stats.occupancy, stats.weight, stats.capacity), (1, 1.into(), 50));
    assert_eq!(stats.hit_rate(), 0.5);
    assert_eq!(cache.entries()[0].hits, 2);
    let text = "2 hits, 2 misses (50.0% hits), 0 waits, 0 evictions, 0 clears, \
                1 of 50 entries (0 pinned), 1 bytes on the host, 0 on devices";
    assert_eq!(stats.to_string(), text);
}

#[test]
fn equality_decides_and_not_the_hash() {
    let cache = Numbers::default();
    let same = [7; 32];
    for key in 0..5 {
        let (value, outcome) = cache.get_or_try_insert_with(&same, &key, || Ok::<_, Error>((key, 1))).unwrap();
        assert_eq!((*value, outcome), (key, Outcome::Miss));
    }
    assert!((0..5).all(|key| cache.get(&same, &key).as_deref() == Some(&key)));
    assert!(cache.remove(&same, &3));
    assert_eq!(cache.get(&same, &3), None);
    assert_eq!(cache.get(&same, &4).as_deref(), Some(&4));
}

#[test]
fn borrowed_keys_find_owned_ones() {
    let cache: Cache<String, usize> = Cache::default();
    let length = |text: &str| {
        let hash = *blake3::hash(text.as_bytes()).as_bytes();
        *cache.get_or_try_insert_with(&hash, text, || Ok::<_, Error>((text.len(), 1))).unwrap().0
    };
    assert_eq!((length("four"), length("three"), length("four")), (4, 5, 4));
    assert_eq!(cache.stats().hits, 1);
}

#[test]
fn the_least_recently_used_goes_first() {
    let cache = with_capacity(3);
    for key in [1, 2, 3, 1, 4] {
        ask(&cache, key);
    }
    assert_eq!(keys(&cache), [4, 1, 3]);
    cache.get(&hash(3), &3);
    // A look that is no use does not save an entry.
    cache.peek(&hash(1), &1);
    ask(&cache, 5);
    assert_eq!(keys(&cache), [5, 3, 4]);
    assert_eq!(cache.stats().evictions, 2);
}

#[test]
fn weights_are_bounded() {
    let cache = Numbers::new(Capacity { entries: 50, budget: host(100) });
    for key in 0..4 {
        ask_weighing(&cache, key, 30);
    }
    assert_eq!((keys(&cache), cache.stats().weight.host), (vec![3, 2, 1], 90));
    // It fits beside one other only.
    ask_weighing(&cache, 4, 70);
    assert_eq!((keys(&cache), cache.stats().weight.host), (vec![4, 3], 100));
    // Too heavy for the whole cache: made, but nothing makes way for it.
    assert_eq!(ask_weighing(&cache, 5, 101), Outcome::Miss);
    assert_eq!(ask_weighing(&cache, 5, usize::MAX), Outcome::Miss);
    assert_eq!((keys(&cache), cache.stats().rejected), (vec![4, 3], 2));
    cache.resize(holding(50));
    ask_weighing(&cache, 5, usize::MAX);
    ask_weighing(&cache, 6, usize::MAX);
    assert_eq!((cache.len(), cache.stats().weight.host), (4, usize::MAX));
    cache.resize(Capacity { entries: 3, budget: host(usize::MAX - 1) });
    assert_eq!(cache.len(), 0);
}

#[test]
fn an_entry_that_grows_makes_others_go() {
    let cache = Numbers::new(Capacity { entries: 50, budget: host(100) });
    (1..=3).for_each(|key| assert_eq!(ask_weighing(&cache, key, 30), Outcome::Miss));
    assert!(cache.reweigh(&hash(3), &3, 60));
    assert_eq!((keys(&cache), cache.stats().weight.host), (vec![3, 2], 90));
    assert!(cache.reweigh(&hash(3), &3, 20) && !cache.reweigh(&hash(1), &1, 5));
    assert_eq!((ask_weighing(&cache, 1, 50), keys(&cache)), (Outcome::Miss, vec![1, 3, 2]));
    // An entry that is too heavy on its own goes itself.
    assert!(cache.reweigh(&hash(2), &2, 101));
    assert!(!keys(&cache).contains(&2) && cache.stats().evictions >= 2);
}

#[test]
fn host_and_device_have_budgets_of_their_own() {
    let both = |host, device| Budget { host: Some(host), device: Some(device) };
    let cache = Numbers::new(Capacity { entries: 50, budget: both(100, 10) });
    let ask = |key, host, device| {
        cache.get_or_try_insert_with(&hash(key), &key, || Ok::<_, Error>((key, Weight { host, device }))).unwrap();
    };
    ask(1, 40, 0);
    ask(2, 20, 6);
    ask(3, 20, 4);
    assert_eq!(cache.stats().weight, Weight { host: 80, device: 10 });
    // Only what is on the device makes way for what wants to be there.
    ask(4, 20, 1);
    assert_eq!(keys(&cache), [4, 3, 1]);
    ask(5, 60, 0);
    assert_eq!(keys(&cache), [5, 4, 3]);
    ask(6, 1, 11);
    assert_eq!((keys(&cache), cache.stats().rejected), (vec![5, 4, 3], 1));
    let _pin = cache.hold(&hash(3), &3).unwrap();
    cache.resize(Capacity { entries: 50, budget: both(100, 0) });
    assert_eq!(keys(&cache), [5, 3], "a pinned entry stays where it is too heavy");
    assert_eq!((cache.stats().pinned, cache.stats().budget), (1, both(100, 0)));
}

#[test]
fn pinned_entries_stay() {
    let cache = with_capacity(2);
    ask(&cache, 1);
    let first = cache.hold(&hash(1), &1).unwrap();
    assert!(cache.hold(&hash(9), &9).is_none());
    for key in 2..5 {
        ask(&cache, key);
    }
    assert_eq!(keys(&cache), [4, 1]);
    let fourth = [cache.hold(&hash(4), &4).unwrap(), cache.hold(&hash(4), &4).unwrap()];
    // No room beside pinned entries.
    assert_eq!([ask(&cache, 5), ask(&cache, 5)], [Outcome::Miss; 2]);
    cache.resize(holding(0));
    assert_eq!(keys(&cache), [4, 1]);
    assert_eq!(cache.stats().pinned, 2, "entries, not pins");
    assert!(cache.entries().iter().all(|entry| entry.is_pinned));
    drop(first);
    assert_eq!(cache.stats().pinned, 1);
    cache.resize(holding(1));
    assert_eq!(keys(&cache), [4]);
    // Each pin holds for itself.
    let [one, other] = fourth;
    drop(one);
    cache.resize(holding(0));
    assert_eq!((keys(&cache), cache.stats().pinned), (vec![4], 1));
    drop(other);
    assert_eq!((cache.len(), cache.stats().pinned), (1, 0));
    cache.resize(holding(0));
    assert!(cache.is_empty());
}

#[test]
fn pins_outlive_their_entries() {
    let cache = with_capacity(2);
    let pins = [1, 2].map(|key| {
        ask(&cache, key);
        cache.hold(&hash(key), &key).unwrap()
    });
    let are_in = |pins: &[retape_runtime::Pin<u32, u32>; 2]| pins.each_ref().map(|pin| pin.is_in_cache());
    assert_eq!(are_in(&pins), [true; 2]);
    assert!(cache.remove(&hash(1), &1));
    assert_eq!(are_in(&pins), [false, true]);
    cache.clear();
    assert_eq!((cache.len(), cache.stats().pinned), (0, 0));
    assert_eq!(are_in(&pins), [false; 2]);
    assert_eq!(pins.each_ref().map(|pin| (*pin.key(), **pin.value())), [(1, 2), (2, 4)]);
    // New values for their keys are not theirs.
    ask(&cache, 1);
    assert_eq!((cache.stats().pinned, are_in(&pins)), (0, [false; 2]));
    drop(pins);
    cache.resize(holding(0));
    assert!(cache.is_empty());
}

#[test]
fn an_entry_stays_while_any_pin_is_held() {
    let cache = with_capacity(1);
    assert!(cache.hold(&hash(1), &1).is_none());
    ask(&cache, 1);
    let pins = [cache.hold(&hash(1), &1).unwrap(), cache.hold(&hash(1), &1).unwrap()];
    let [one, other] = pins;
    assert_eq!((*one.key(), **one.value()), (1, 2));
    ask(&cache, 2);
    assert_eq!(keys(&cache), [1]);
    drop(one);
    ask(&cache, 2);
    assert_eq!((keys(&cache), cache.stats().pinned), (vec![1], 1));
    drop(other);
    ask(&cache, 2);
    assert_eq!((keys(&cache), cache.stats().pinned), (vec![2], 0));
    // A pin keeps the value after a clear, and does not pin what is made for the key later.
    let pin = cache.hold(&hash(2), &2).unwrap();
    cache.clear();
    ask(&cache, 2);
    ask(&cache, 3);
    assert_eq!((keys(&cache), **pin.value()), (vec![3], 4));
    assert_eq!(cache.stats().hits, 0, "to hold is no call");
    let pin = cache.hold(&hash(3), &3).unwrap();
    assert!(pin.is_in_cache());
    drop(cache);
    assert!(!pin.is_in_cache());
}

#[test]
fn values_that_nobody_asked_for_go_in_where_there_is_room() {
    let cache = Numbers::new(Capacity { entries: 3, budget: host(100) });
    ask_weighing(&cache, 1, 40);
    let put = |key: u32, weight: usize| cache.insert_if_room(&hash(key), &key, 7, weight);
    assert_eq!(put(1, 1), Insertion::Present);
    assert_eq!(put(2, 61), Insertion::NoRoom);
    assert_eq!(put(2, 60), Insertion::Inserted);
    assert_eq!(put(3, 0), Insertion::Inserted);
    assert_eq!(put(4, 0), Insertion::NoRoom);
    assert_eq!(keys(&cache), [3, 2, 1]);
    assert_eq!((cache.get(&hash(1), &1).as_deref(), cache.get(&hash(2), &2).as_deref()), (Some(&2), Some(&7)));
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses, stats.inserts, stats.evictions, stats.rejected), (2, 1, 3, 0, 0));
}

/// A value that a thread is producing is not put in beside it, and calls that wait for one are served by the other.
#[test]
fn values_that_are_being_made_are_present() {
    let cache = with_capacity(2);
    let made = cache.get_or_try_insert_with(&hash(1), &1, || {
        thread::scope(|scope| {
            let put = scope.spawn(|| cache.insert_if_room(&hash(1), &1, 7, 1));
            assert_eq!(put.join().unwrap(), Insertion::Present);
        });
        assert_eq!(cache.insert_if_room(&hash(1), &1, 7, 1), Insertion::Present);
        Ok::<_, Error>((2, 1))
    });
    assert_eq!((*made.unwrap().0, keys(&cache)), (2, vec![1]));
}

#[test]
fn no_capacity_means_no_cache() {
    let cache = with_capacity(0);
    assert_eq!([ask(&cache, 1), ask(&cache, 1)], [Outcome::Miss; 2]);
    assert!(cache.is_empty());
}

#[test]
fn evicted_values_live_on_in_use() {
    let cache = with_capacity(1);
    let (held, _) = cache.get_or_try_insert_with(&hash(1), &1, || Ok::<_, Error>((11, 1))).unwrap();
    let weak = Arc::downgrade(&held);
    ask(&cache, 2);
    assert_eq!(cache.peek(&hash(1), &1), None);
    assert_eq!(*held, 11);
    drop(held);
    assert!(weak.upgrade().is_none(), "the cache holds nothing that it evicted");
}

#[test]
fn recent_values_need_no_hash_and_count_as_hits() {
    let cache = with_capacity(3);
    let recent = |key: u32| cache.get_recent(&key).map(|value| *value);
    ask(&cache, 1);
    assert_eq!(recent(1), None, "a value that was made is not looked up yet");
    ask(&cache, 1);
    assert_eq!((recent(1), recent(2)), (Some(2), None));
    ask(&cache, 2);
    ask(&cache, 2);
    assert_eq!((recent(2), recent(1), recent(1)), (Some(4), Some(2), Some(2)));
    let hits: Vec<(u32, u64)> = cache.entries().iter().map(|entry| (*entry.key(), entry.hits)).collect();
    assert_eq!(hits, [(1, 4), (2, 2)]);
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses), (6, 2));
    // It is a use like any other: the other entry goes first.
    ask(&cache, 3);
    assert_eq!(recent(1), Some(2));
    ask(&cache, 4);
    assert_eq!(keys(&cache), [4, 1, 3]);
    assert_eq!(recent(2), None);
}

#[test]
fn more_keys_than_a_thread_remembers_are_counted() {
    const N_KEYS: u32 = 11;
    const N_ROUNDS: u64 = if cfg!(miri) { 2 } else { 5 };
    let cache = Numbers::default();
    for round in 0..N_ROUNDS {
        for key in 0..N_KEYS {
            if cache.get_recent(&key).is_none() {
                assert_eq!(ask(&cache, key), if round == 0 { Outcome::Miss } else { Outcome::Hit });
            }
            // The one just used is remembered.
            assert_eq!(cache.get_recent(&key).as_deref(), (round > 0).then_some(&(2 * key)));
        }
    }
    let hits = 2 * (N_ROUNDS - 1);
    assert!(cache.entries().iter().all(|entry| entry.hits == hits));
    assert_eq!(cache.stats().hits, hits * u64::from(N_KEYS));
}

#[test]
fn what_went_out_is_not_kept_alive_by_threads_that_used_it() {
    const N_THREADS: usize = 5;
    type Removal = fn(&Numbers);
    let removals: [Removal; 4] = [
        |cache| cache.clear(),
        |cache| assert!(cache.remove(&hash(1), &1)),
        |cache| assert_eq!(ask(cache, 2), Outcome::Miss),
        |cache| cache.resize(holding(0)),
    ];
    for remove in removals {
        let cache = with_capacity(1);
        let (used, removed) = (Barrier::new(N_THREADS + 1), Barrier::new(N_THREADS + 1));
        thread::scope(|scope| {
            for _ in 0..N_THREADS {
                scope.spawn(|| {
                    ask(&cache, 1);
                    // Two threads may share a shard, and then one finds nothing while the other looks.
                    while cache.get_recent(&1).as_deref() != Some(&2) {
                        ask(&cache, 1);
                    }
                    used.wait();
                    removed.wait();
                    assert!(cache.get_recent(&1).is_none());
                });
            }
            used.wait();
            let weak = Arc::downgrade(&cache.peek(&hash(1), &1).unwrap());
            remove(&cache);
            assert!(weak.upgrade().is_none(), "somebody keeps what went out");
            removed.wait();
        });
    }
}

#[test]
fn a_value_in_use_survives_its_removal() {
    let cache = Numbers::default();
    ask(&cache, 1);
    ask(&cache, 1);
    let value = cache.get_recent(&1).unwrap();
    let weak = Arc::downgrade(&value.to_shared());
    cache.clear();
    assert!(cache.is_empty() && cache.get_recent(&1).is_none());
    assert_eq!(*value, 2);
    drop(value);
    assert!(weak.upgrade().is_none());
}

#[test]
fn counters_are_exact_with_many_threads() {
    const N_THREADS: u32 = 8;
    const N_CALLS: u32 = if cfg!(miri) { 12 } else { 4000 };
    let cache = with_capacity(5);
    let made = AtomicUsize::new(0);
    thread::scope(|scope| {
        for thread in 0..N_THREADS {
            let (cache, made) = (&cache, &made);
            scope.spawn(move || {
                for call in 0..N_CALLS {
                    let key = (call * 7 + thread * 3 + call * call % 11) % 9;
                    let make = || {
                        made.fetch_add(1, Relaxed);
                        Ok::<_, Error>((2 * key, 1))
                    };
                    match (call + thread) % 5 {
                        0 => drop(cache.get(&hash(key), &key)),
                        1 | 2 if cache.get_recent(&key).inspect(|value| assert_eq!(**value, 2 * key)).is_some() => {}
                        _ => assert_eq!(*cache.get_or_try_insert_with(&hash(key), &key, make).unwrap().0, 2 * key),
                    }
                    assert!(cache.len() <= 5);
                    if call % 501 == 500 {
                        cache.clear();
                    }
                }
            });
        }
    });
    let stats = cache.stats();
    assert_eq!(stats.hits + stats.misses, u64::from(N_THREADS * N_CALLS));
    assert_eq!(stats.inserts + stats.rejected, made.into_inner() as u64);
    assert!(stats.misses >= stats.inserts + stats.rejected);
    let cleared = stats.inserts - stats.evictions - stats.occupancy as u64;
    assert!(cleared <= 5 * stats.clears, "{stats:?}");
    assert_eq!(keys(&cache).len(), stats.occupancy);
}

#[test]
fn one_thread_makes_for_all() {
    const N_WAITERS: u64 = 7;
    let cache = Numbers::default();
    let made = AtomicUsize::new(0);
    let call = || {
        let make = || {
            made.fetch_add(1, Relaxed);
            until_waits(&cache, N_WAITERS);
            Ok::<_, Error>((5, 1))
        };
        cache.get_or_try_insert_with(&hash(1), &1, make).unwrap()
    };
    let results: Vec<_> = thread::scope(|scope| {
        let calls: Vec<_> = (0..=N_WAITERS).map(|_| scope.spawn(call)).collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    assert_eq!(made.into_inner(), 1);
    assert!(results.iter().all(|(value, _)| Arc::ptr_eq(value, &results[0].0)));
    let shared = results.iter().filter(|(_, outcome)| *outcome == Outcome::Shared).count();
    assert_eq!(shared as u64, N_WAITERS);
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses, stats.waits, stats.inserts), (N_WAITERS, 1, N_WAITERS, 1));
}

#[test]
fn other_keys_do_not_wait() {
    let cache = Numbers::default();
    let (begun, has_begun) = mpsc::channel();
    let (finish, may_finish) = mpsc::channel();
    thread::scope(|scope| {
        let cache = &cache;
        scope.spawn(move || {
            let make = || {
                begun.send(()).unwrap();
                may_finish.recv().unwrap();
                Ok::<_, Error>((2, 1))
            };
            cache.get_or_try_insert_with(&hash(1), &1, make).unwrap();
        });
        has_begun.recv().unwrap();
        assert_eq!([ask(cache, 2), ask(cache, 2)], [Outcome::Miss, Outcome::Hit]);
        assert_eq!(cache.stats().waits, 0);
        finish.send(()).unwrap();
    });
    assert_eq!(ask(&cache, 1), Outcome::Hit);
}

/// Two waiters behind a producer that ends by `fail`: one of them makes the value, the other shares it.
fn waiters_take_over(fail: impl Fn() -> Error + Sync) {
    let cache = Numbers::default();
    let (begun, has_begun) = mpsc::channel();
    let outcomes = thread::scope(|scope| {
        let (cache, fail) = (&cache, &fail);
        let producer = scope.spawn(move || {
            let make = || {
                begun.send(()).unwrap();
                until_waits(cache, 2);
                Err::<(u32, usize), _>(fail())
            };
            let made = catch_unwind(AssertUnwindSafe(|| cache.get_or_try_insert_with(&hash(1), &1, make)));
            made.is_err() || made.is_ok_and(|result| result.unwrap_err() == Error::Code("failed".to_owned()))
        });
        has_begun.recv().unwrap();
        let waiters = [scope.spawn(|| ask(cache, 1)), scope.spawn(|| ask(cache, 1))];
        let mut outcomes = waiters.map(|waiter| waiter.join().unwrap());
        assert!(producer.join().unwrap());
        outcomes.sort_by_key(|outcome| *outcome == Outcome::Miss);
        outcomes
    });
    assert_eq!(outcomes, [Outcome::Shared, Outcome::Miss]);
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses, stats.inserts, stats.occupancy), (1, 2, 1, 1));
}

#[test]
fn waiters_take_over_from_a_failure() {
    waiters_take_over(|| Error::Code("failed".to_owned()));
}

#[test]
fn waiters_take_over_from_a_panic() {
    waiters_take_over(|| panic!("the producer gives up"));
}

#[test]
fn asking_for_oneself_is_an_error() {
    let cache = Numbers::default();
    let nested = || cache.get_or_try_insert_with(&hash(1), &1, || Ok::<_, Error>((0, 1)));
    let made = cache.get_or_try_insert_with(&hash(1), &1, || {
        assert_eq!(nested().unwrap_err(), Error::Deadlock(Deadlock::Reentrant));
        // Neither a detour over another key nor a clear changes that.
        let detour = cache.get_or_try_insert_with(&hash(2), &2, || nested().map(|(value, _)| (*value, 1)));
        assert_eq!(detour.unwrap_err(), Error::Deadlock(Deadlock::Reentrant));
        cache.clear();
        nested().map(|(value, _)| (*value, 1))
    });
    assert_eq!(made.unwrap_err(), Error::Deadlock(Deadlock::Reentrant));
    assert_eq!((cache.stats().misses, cache.stats().occupancy), (5, 0));
    assert_eq!(ask(&cache, 1), Outcome::Miss, "the failure left nothing behind");
}

#[test]
fn circles_over_threads_are_errors() {
    let cache = Numbers::default();
    let both_begun = Barrier::new(2);
    let make = |own: u32, other: u32| {
        cache.get_or_try_insert_with(&hash(own), &own, || {
            both_begun.wait();
            // Each needs what the other makes; the second to ask must not wait.
            match cache.get_or_try_insert_with(&hash(other), &other, || Ok((other, 1))) {
                Ok((value, _)) => Ok((*value, 1)),
                Err(error) => Err(error),
            }
        })
    };
    let results = thread::scope(|scope| {
        let calls = [scope.spawn(|| make(1, 2)), scope.spawn(|| make(2, 1))];
        calls.map(|call| call.join().unwrap())
    });
    let refused = results.iter().filter(|result| matches!(result, Err(Error::Deadlock(Deadlock::Reentrant)))).count();
    assert_eq!(refused, 1, "one gives up, and the other then makes both");
}

#[test]
fn a_clear_keeps_out_what_is_being_made() {
    let cache = Numbers::default();
    let made = cache.get_or_try_insert_with(&hash(1), &1, || {
        cache.clear();
        // A later call, on another thread, does not share what was begun before the clear.
        let later = thread::scope(|scope| scope.spawn(|| ask(&cache, 1)).join().unwrap());
        assert_eq!(later, Outcome::Miss);
        Ok::<_, Error>((99, 1))
    });
    assert_eq!(*made.unwrap().0, 99);
    assert_eq!(cache.get(&hash(1), &1).as_deref(), Some(&2), "the later value stays");
    let stats = cache.stats();
    assert_eq!((stats.clears, stats.inserts, stats.rejected, stats.occupancy), (1, 1, 1, 1));
}

#[test]
fn observers_see_what_happens_in_order() {
    let log = Arc::new(Mutex::new(String::new()));
    let sink = log.clone();
    let cache = with_capacity(2).with_observer(move |event| {
        let key = event.key.map_or("-".to_owned(), u32::to_string);
        write!(sink.lock().unwrap(), "{:?} {key}, ", event.kind).unwrap();
    });
    for key in [1, 2, 1, 3] {
        ask(&cache, key);
    }
    cache.get(&hash(2), &2);
    cache.remove(&hash(1), &1);
    cache.clear();
    let expected = "Miss 1, Insert 1, Miss 2, Insert 2, Miss 3, Insert 3, Evict 2, Miss -, Evict 1, Clear -, ";
    assert_eq!(*log.lock().unwrap(), expected);
}

#[test]
fn observers_may_use_the_cache() {
    let cell: Arc<std::sync::OnceLock<Numbers>> = Arc::default();
    // The observer is a part of what it looks at.
    let inner = Arc::downgrade(&cell);
    let cache = with_capacity(1).with_observer(move |event| {
        if event.kind != EventKind::Clear {
            inner.upgrade().unwrap().get().unwrap().clear();
        }
    });
    let cache = cell.get_or_init(|| cache);
    ask(cache, 1);
    assert!(cache.is_empty());
}
