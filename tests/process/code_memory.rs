//! Machine code is shared by equal graphs and freed with the last entry that uses it.
//!
//! The counters are those of the process, so all of this is one test that runs alone.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use retape::{AdviceKind, Tensor, accelerate};
use retape_runtime::{live_bytes, live_code_bytes};

#[test]
fn machine_code_lives_as_long_as_its_entries() {
    let _turn = crate::alone();
    code_is_freed_by_clear_and_eviction();
    equal_graphs_share_code();
    re_created_closures_share_code();
    many_shapes_stay_within_bounds();
}

fn code_is_freed_by_clear_and_eviction() {
    let before = live_code_bytes();
    let f = accelerate(|x: &Tensor| (x * 2.0_f32).sum(..));
    let call = |n: usize| {
        for _ in 0..2 {
            assert_eq!(f.call(Tensor::ones([n])).unwrap().item::<f32>().unwrap(), 2.0 * n as f32);
        }
    };
    call(5);
    let of_five = live_code_bytes() - before;
    assert!(of_five > 0);
    f.clear_cache();
    assert_eq!(live_code_bytes(), before, "a clear frees");

    f.configure(|options| options.capacity = 1);
    call(700);
    assert!(live_code_bytes() > before);
    call(5);
    assert_eq!(live_code_bytes() - before, of_five, "an eviction frees");
    drop(f);
    assert_eq!(live_code_bytes(), before, "the end of the function frees");
}

fn equal_graphs_share_code() {
    let before = live_code_bytes();
    let first = accelerate(|x: &Tensor| (x + 1.0_f32).square());
    let second = accelerate(|y: &Tensor| {
        let shifted = y + 1.0_f32;
        shifted.square()
    });
    let x = Tensor::from([1.0_f32, 2.0, 3.0]);
    let call_first = || first.call(&x).unwrap().to_vec::<f32>().unwrap();
    let call_second = || second.call(&x).unwrap().to_vec::<f32>().unwrap();
    assert_eq!(call_first(), [4.0, 9.0, 16.0]);
    let of_first = live_code_bytes();
    assert!(of_first > before);
    assert_eq!(call_second(), [4.0, 9.0, 16.0]);
    assert_eq!(live_code_bytes(), of_first, "the second function runs the code of the first");
    first.clear_cache();
    assert_eq!(live_code_bytes(), of_first, "the second function keeps it");
    assert_eq!(call_second(), [4.0, 9.0, 16.0]);
    assert_eq!((first.stats().misses, second.stats().misses), (1, 1), "each function traces for itself");
    second.clear_cache();
    assert_eq!(live_code_bytes(), before);
}

/// As in a program that wraps its closure anew in every iteration.
fn re_created_closures_share_code() {
    let before = live_code_bytes();
    let x = Tensor::from([1.0_f32, 2.0, 3.0]);
    let make = |power: i32| accelerate(move |x: &Tensor| x.pow(power).sum(..));
    let mut held = vec![];
    let mut of_one = 0;
    for n in 0..100 {
        let f = make(3);
        assert_eq!(f.call(&x).unwrap().item::<f32>().unwrap(), 36.0);
        of_one = if n == 0 { live_code_bytes() } else { of_one };
        assert_eq!(live_code_bytes(), of_one, "closure {n} runs the code of the first");
        held.push(f);
    }
    assert!(of_one > before);
    // A tensor that the closure captured is part of what is recorded: another value is another graph.
    let other = make(2);
    assert_eq!(other.call(&x).unwrap().item::<f32>().unwrap(), 14.0);
    assert!(live_code_bytes() > of_one);
    drop((held, other));
    assert_eq!(live_code_bytes(), before);
}

fn many_shapes_stay_within_bounds() {
    // A miss takes an unoptimised build many times longer.
    let n_shapes = if cfg!(debug_assertions) { 300 } else { 10_000 };
    let (code_before, bytes_before) = (live_code_bytes(), live_bytes());
    let f = accelerate(|x: &Tensor| {
        let y = x.square();
        (y.sum(..), y)
    });
    let mut largest = 0;
    for n in 1..=n_shapes {
        let (sum, squares) = f.call(Tensor::full([n], 2.0_f32)).unwrap();
        assert_eq!((sum.item::<f32>().unwrap(), squares.n_elements()), (4.0 * n as f32, n));
        largest = largest.max(f.stats().entries[0].bytes);
        if n % 100 == 0 {
            let bound = 50 * largest;
            assert!(f.stats().bytes() <= bound, "{} bytes of entries after {n} shapes", f.stats().bytes());
            let code = live_code_bytes() - code_before;
            assert!(code <= bound, "{code} bytes of code after {n} shapes");
            let bytes = live_bytes().saturating_sub(bytes_before);
            assert!(bytes <= 4 << 20, "{bytes} bytes of tensors and arenas after {n} shapes");
        }
    }
    assert!(largest < 64 << 10, "an entry of {largest} bytes");
    let stats = f.stats();
    assert_eq!((stats.hits, stats.misses, stats.evictions), (0, n_shapes as u64, n_shapes as u64 - 50));
    let advice = f.advice();
    assert!(matches!(&advice[..], [only] if only.kind == AdviceKind::ManyShapes), "{advice:?}");
    assert!(f.explain().len() <= 256, "the log of misses is bounded");
    drop((f, advice));
    assert_eq!(live_code_bytes(), code_before);
}
