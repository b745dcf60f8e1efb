//! Calls of NCCL that fail, and workers that are in different calls: an error on every worker, that says why.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use retape::{Tensor, accelerate};
use retape_dist::World;

use crate::device::{Place, Stage, stage};

/// The error of each worker, of work that must fail on all of them within some seconds.
fn errors(size: usize, work: impl Fn(&World) -> retape::Result<()> + Sync) -> Vec<String> {
    let seen = Mutex::new(vec![String::new(); size]);
    let start = Instant::now();
    let outcome = World::threads(size, |world| {
        let outcome = work(&world);
        let text = outcome.as_ref().map_or_else(ToString::to_string, |()| "no error".to_owned());
        seen.lock().unwrap()[world.rank()] = text;
        Ok(outcome?)
    });
    assert!(outcome.is_err(), "no worker failed");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    seen.into_inner().unwrap()
}

/// Some sums of tensors on GPUs, long enough for two rounds.
fn sums(world: &World) -> retape::Result<()> {
    let of = world.clone();
    let step = accelerate(move |x: &Tensor| of.sum(x));
    let mut x = Tensor::ones([17_000]).to(Place::OwnGpu.of(world));
    for _ in 0..3 {
        x = step.call(&x)?;
    }
    x.to_vec::<f32>().map(drop)
}

/// All workers fail, by a call of one of them.
fn fails(stage: &Stage, call: &str, rank: usize, skip: u32, code: u32, wanted: &str) {
    for size in [2, 3] {
        stage.nccl.reset();
        stage.nccl.fail(call, rank, skip, code);
        for (n, error) in errors(size, sums).iter().enumerate() {
            let is_own = n == rank || error.contains(&format!("rank {rank} failed: "));
            assert!(error.contains(wanted) && is_own, "{call}, rank {n} of {size}: {error}");
            let n_blamed: usize = (0..size).map(|n| error.matches(&format!("rank {n} failed: ")).count()).sum();
            assert!(n_blamed <= 1, "{call}, rank {n} of {size}: {error}");
        }
        assert_eq!(stage.nccl.counters().alive, 0, "{call}: links that are left over");
    }
}

#[test]
fn a_call_that_fails_on_one_worker_is_named_on_all() {
    let stage = stage();
    let wanted = |call: &str, text: &str| format!("{call} of NCCL 2.22.3 failed: {text}, on purpose");
    fails(&stage, "ncclGetUniqueId", 0, 0, 2, &wanted("ncclGetUniqueId", "unhandled system error (2)"));
    fails(&stage, "ncclCommInitRankConfig", 1, 0, 3, &wanted("ncclCommInitRankConfig", "internal error (3)"));
    // The first state that is asked for is that of the start.
    fails(&stage, "async", 1, 0, 6, "ncclCommInitRankConfig of NCCL 2.22.3 failed: remote process exited");
    fails(&stage, "ncclSend", 1, 0, 4, &wanted("ncclSend", "invalid argument (4)"));
    fails(&stage, "ncclRecv", 0, 2, 1, &wanted("ncclRecv", "unhandled cuda error (1)"));
    // The second round of the first sum, and the first of the second.
    fails(&stage, "ncclGroupEnd", 1, 1, 5, &wanted("ncclGroupEnd", "invalid usage (5)"));
    fails(&stage, "ncclGroupEnd", 0, 2, 99, &wanted("ncclGroupEnd", "unknown result code (99)"));
}

#[test]
fn another_call_on_one_worker_is_found_before_bytes_move() {
    let stage = stage();
    let seen = errors(3, |world| {
        let x = Tensor::ones([4]).to(Place::OwnGpu.of(world));
        world.sum(&x).to_vec::<f32>()?;
        let before = stage.nccl.counters().messages;
        let x = Tensor::ones([if world.rank() == 1 { 5 } else { 4 }]).to(x.device());
        let outcome = world.sum(&x).to_vec::<f32>().map(drop);
        assert_eq!(stage.nccl.counters().messages, before);
        outcome
    });
    for error in &seen {
        assert!(error.contains("rank 1 is at `sum of f32[5] over 3 shards with f32[5] between GPUs`"), "{error}");
        assert!(error.contains("at `sum of f32[4] over 3 shards with f32[4] between GPUs`"), "{error}");
    }
    let counters = stage.nccl.counters();
    assert_eq!((counters.aborted, counters.alive), (3, 0));
}

#[test]
fn a_worker_in_main_memory_is_told_from_those_on_gpus() {
    let _stage = stage();
    let seen = errors(2, |world| {
        let place = if world.rank() == 1 { Place::Host } else { Place::OwnGpu };
        world.sum(&Tensor::ones([4]).to(place.of(world))).to_vec::<f32>().map(drop)
    });
    for error in &seen {
        assert!(error.contains("rank 0 is at `the way between GPUs: lengths`"), "{error}");
        assert!(error.contains("rank 1 is at `sum of f32[4] over 2 shards with f32[4]`"), "{error}");
    }
}

#[test]
fn a_worker_that_does_not_come_is_named() {
    let _stage = stage();
    let seen = errors(2, |world| {
        world.set_timeout(Duration::from_millis(300));
        let x = Tensor::ones([4]).to(Place::OwnGpu.of(world));
        world.sum(&x).to_vec::<f32>()?;
        if world.rank() == 1 {
            std::thread::sleep(Duration::from_secs(1));
        }
        world.sum(&x).to_vec::<f32>().map(drop)
    });
    for error in &seen {
        let wanted = "rank 0 waited 300ms at `sum of f32[4] over 2 shards with f32[4] between GPUs`";
        assert!(error.contains(wanted), "{error}");
    }
}
