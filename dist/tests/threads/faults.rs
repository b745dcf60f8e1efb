//! Calls that do not fit each other, workers that fail, and workers that do not come.

use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

use retape::Tensor;
use retape_dist::{Error, Failure, World};
use retape_kernels::library::communicator;

/// The error of each worker, of work that must fail on all of them within two seconds.
fn errors(size: usize, work: impl Fn(&World) -> Result<(), Error> + Sync) -> Vec<String> {
    let seen = Mutex::new(vec![String::new(); size]);
    let start = Instant::now();
    let outcome = World::threads(size, |world| {
        let outcome = work(&world);
        seen.lock().unwrap()[world.rank()] = outcome.as_ref().map_or_else(Error::to_string, |()| "no error".to_owned());
        Ok(outcome?)
    });
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    let seen = seen.into_inner().unwrap();
    let first = outcome.unwrap_err().to_string();
    assert!(seen.contains(&first), "{first} is none of {seen:?}");
    seen
}

fn exchange(world: &World, call: &str, sent: usize, wanted: usize) -> Result<(), Error> {
    let group = communicator(world.group()).expect("the group of this world");
    let mut receives = vec![vec![0; wanted]; world.size()];
    let mut receives: Vec<&mut [u8]> = receives.iter_mut().map(Vec::as_mut_slice).collect();
    let outcome = group.exchange(call, &vec![vec![0; sent].as_slice(); world.size()], &mut receives);
    outcome.map_err(Error::Broken)
}

#[test]
fn another_order_of_calls_is_found_by_all() {
    for size in [2, 3, 4, 8] {
        let seen = errors(size, |world| {
            world.barrier()?;
            match world.rank() {
                1 => world.any(true).map(drop),
                _ => world.barrier(),
            }
        });
        for (rank, error) in seen.iter().enumerate() {
            assert!(error.contains("rank 1 is at `any` (exchange 2)"), "rank {rank} of {size}: {error}");
            assert!(error.contains("at `barrier` (exchange 2)"), "rank {rank} of {size}: {error}");
        }
    }
}

#[test]
fn all_places_are_told_where_all_are_known() {
    let error = errors(4, |world| exchange(world, ["a", "b", "a", "c"][world.rank()], 1, 1)).swap_remove(0);
    assert!(error.contains("is at `b` (exchange 1)") || error.contains("is at `c` (exchange 1)"), "{error}");
    let error = errors(2, |world| exchange(world, ["sum of f32[3]", "sum of f32[4]"][world.rank()], 12, 12));
    let wanted = "rank 0 is at `sum of f32[3]` (exchange 1), rank 1 is at `sum of f32[4]` (exchange 1)";
    assert_eq!(error, [wanted, wanted]);
}

#[test]
fn calls_that_differ_far_behind_are_told_by_their_digests() {
    let text = |rank: usize| format!("{}{rank}", "x".repeat(5000));
    for error in errors(2, |world| exchange(world, &text(world.rank()), 0, 0)) {
        assert_eq!(error.matches("digest").count(), 2, "{error}");
    }
}

#[test]
fn a_call_that_one_worker_leaves_out_is_found_by_all() {
    let seen = errors(3, |world| {
        let n_calls = if world.rank() == 2 { 4 } else { 5 };
        (0..n_calls).try_for_each(|_| world.barrier())
    });
    for error in &seen[..2] {
        assert!(error.contains("rank 2 is at `the end of its work` (exchange 5)"), "{error}");
        assert!(error.contains("at `barrier` (exchange 5)"), "{error}");
    }
    // The last worker learns of it after its work, when it waits for the others.
    assert_eq!(seen[2], "no error");
}

#[test]
fn lengths_that_do_not_fit_are_found_by_both() {
    for (sent, wanted) in [(8, 12), (12, 8), (1 << 20, 8), (8, 1 << 20)] {
        let seen = errors(2, |world| match world.rank() {
            0 => exchange(world, "sum", sent, 8),
            _ => exchange(world, "sum", 8, wanted),
        });
        let text = format!("rank 0 sends {sent} bytes to rank 1, which waits for {wanted}, both at `sum` (exchange 1)");
        assert_eq!(seen, [text.clone(), text]);
    }
}

#[test]
fn a_disagreement_shows_the_lines_that_differ_and_breaks_nothing() {
    let start = Instant::now();
    let seen = World::threads(3, |world| {
        let odd = world.rank() == 1;
        let text = || format!("first\n{}\nthird", if odd { "y = cos x" } else { "y = sin x" });
        let error = world.agree("the graph of `step`", &[u8::from(odd); 32], &text).unwrap_err();
        Ok((error, world.any(odd)?))
    });
    assert!(start.elapsed() < Duration::from_secs(1));
    let wanted = "the graph of `step` differs between workers: ranks 0 and 2 | rank 1\n\
                  line 2 of rank 0: y = sin x\nline 2 of rank 1: y = cos x";
    assert_eq!(seen.unwrap(), vec![(Error::Disagreement(wanted.to_owned()), true); 3]);
}

#[test]
fn a_panic_reaches_the_workers_that_wait() {
    for size in [2, 3, 8] {
        let start = Instant::now();
        let seen = Mutex::new(vec![]);
        let outcome = World::threads(size, |world| {
            assert!(world.rank() != 1, "no more {}", "tape");
            let error = world.barrier().unwrap_err();
            seen.lock().unwrap().push(error.clone());
            Err::<(), _>(error.into())
        });
        let wanted = Error::Broken("rank 1 panicked: no more tape".to_owned());
        assert_eq!(outcome, Err(wanted.clone()));
        assert_eq!(seen.into_inner().unwrap(), vec![wanted; size - 1]);
        assert!(start.elapsed() < Duration::from_secs(2));
    }
}

#[test]
fn a_failure_reaches_a_worker_that_waits_for_a_long_message() {
    // The heads of both others fit those of worker 0, which then waits for bodies that are never sent.
    let seen = errors(3, |world| {
        let group = communicator(world.group()).expect("the group of this world");
        let long = |a: usize, b: usize| if a + b == 3 { 1 << (18 + a) } else { 1 << 20 };
        let sent: Vec<Vec<u8>> = (0..3).map(|to| vec![1; long(world.rank(), to)]).collect();
        let mut received: Vec<Vec<u8>> = (0..3).map(|from| vec![0; long(world.rank(), from)]).collect();
        let sends: Vec<&[u8]> = sent.iter().map(Vec::as_slice).collect();
        let mut receives: Vec<&mut [u8]> = received.iter_mut().map(Vec::as_mut_slice).collect();
        group.exchange("sum", &sends, &mut receives).map_err(Error::Broken)
    });
    for error in seen {
        assert!(error.contains("both at `sum` (exchange 1)") && error.contains(&(1 << 19).to_string()), "{error}");
    }
}

/// A round of an exchange, behind the first one of all workers.
fn next_round(world: &World, sent: usize, wanted: usize) -> Result<(), Error> {
    let group = communicator(world.group()).expect("the group of this world");
    let mut receives = vec![vec![0; wanted]; world.size()];
    let mut receives: Vec<&mut [u8]> = receives.iter_mut().map(Vec::as_mut_slice).collect();
    let sends = vec![vec![0; sent]; world.size()];
    let sends: Vec<&[u8]> = sends.iter().map(Vec::as_slice).collect();
    group.next_round("sum", &sends, &mut receives, &mut || false).map_err(Error::Broken)
}

#[test]
fn a_failure_between_the_rounds_of_an_exchange_reaches_the_others() {
    let seen = errors(3, |world| {
        exchange(world, "sum", 8, 8)?;
        match world.rank() {
            1 => Err(Error::Broken("the disk is full".to_owned())),
            _ => next_round(world, 1 << 20, 1 << 20),
        }
    });
    assert!(seen.iter().all(|error| error.contains("the disk is full")), "{seen:?}");
}

#[test]
fn a_round_of_another_length_is_an_error() {
    let seen = errors(2, |world| {
        exchange(world, "sum", 8, 8)?;
        // Worker 0 has all it wants, and hears of it in the next call.
        next_round(world, 12 << world.rank(), 24)?;
        world.barrier()
    });
    assert!(seen.iter().all(|error| error.contains("rank 0 sent 12 bytes instead of 24")), "{seen:?}");
}

#[test]
fn work_is_done_while_others_are_waited_for() {
    let done = World::threads(2, |world| {
        let group = communicator(world.group()).expect("the group of this world");
        let mut received = [vec![0; 1 << 20], vec![0; 1 << 20]];
        let mut receives: Vec<&mut [u8]> = received.iter_mut().map(Vec::as_mut_slice).collect();
        let sent = vec![1 + world.rank() as u8; 1 << 20];
        if world.rank() == 1 {
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut n_left = 5;
        let mut work = || {
            n_left -= usize::from(n_left > 0);
            n_left > 0
        };
        group.exchange_while("sum", &[&sent, &sent], &mut receives, &mut work).map_err(Error::Broken)?;
        let is_here = received[1 - world.rank()].iter().all(|&byte| byte == 2 - world.rank() as u8);
        Ok((n_left, is_here))
    });
    // Worker 0 waits long enough to do all of it.
    let done = done.unwrap();
    assert!(done[0] == (0, true) && done[1].1, "{done:?}");
}

#[test]
fn an_error_of_any_type_reaches_the_others() {
    let outcome = World::threads(2, |world| {
        if world.rank() == 0 {
            world.barrier()?;
        }
        Ok("no number".parse::<u32>()?)
    });
    assert_eq!(outcome, Err(Error::Broken("rank 1 failed: invalid digit found in string".to_owned())));
}

#[test]
fn an_abort_ends_the_others() {
    let outcome = World::threads(2, |world| {
        if world.rank() == 1 {
            world.abort("no disk");
        }
        Ok(world.barrier()?)
    });
    assert_eq!(outcome, Err(Error::Broken("rank 1 panicked: rank 1 of 2 ends the job: no disk".to_owned())));
}

#[test]
fn a_time_out_names_who_is_missing() {
    let seen = Mutex::new(vec![]);
    let start = Instant::now();
    let outcome = World::threads(4, |world| {
        world.set_timeout(Duration::from_millis(200));
        if world.rank() % 2 == 1 {
            std::thread::sleep(Duration::from_millis(900));
        }
        let error = world.barrier().unwrap_err();
        seen.lock().unwrap().push(error.to_string());
        Err::<(), _>(error.into())
    });
    assert!(start.elapsed() < Duration::from_secs(3));
    let wanted = "waited 200ms at `barrier` (exchange 1) for ranks 1 and 3";
    // Those that come late are told as well.
    for error in seen.into_inner().unwrap().into_iter().chain([outcome.unwrap_err().to_string()]) {
        assert!(error.contains(wanted) && (error.starts_with("rank 0 ") || error.starts_with("rank 2 ")), "{error}");
    }
}

#[test]
fn later_calls_fail_at_once_with_the_first_error() {
    let seen = errors(2, |world| {
        let first = exchange(world, ["a", "b"][world.rank()], 0, 0).unwrap_err();
        let start = Instant::now();
        for later in [world.barrier(), world.any(true).map(drop), world.gather_bytes(b"x").map(drop)] {
            assert_eq!(later, Err(first.clone()));
        }
        assert!(start.elapsed() < Duration::from_millis(100));
        Err(first)
    });
    assert_eq!(seen[0], "rank 0 is at `a` (exchange 1), rank 1 is at `b` (exchange 1)");
}

#[test]
fn a_world_that_is_kept_beyond_its_end_says_so() {
    let worlds = World::threads(2, Ok).unwrap();
    assert_eq!(worlds[1].barrier(), Err(Error::Broken("rank 1: the world has come to its end".to_owned())));
}

#[test]
fn the_first_culprit_alone_is_named() {
    for who in ["the engine", "the world", "a panic"] {
        let outcome = World::threads(4, |world| {
            let fails = |error: &str| -> Result<(), Failure> { Err(error.into()) };
            if world.rank() == 2 {
                world.fail("the disk is full");
                // The others are first to end with an error.
                std::thread::sleep(Duration::from_millis(100));
                return fails("the disk is full");
            }
            let error = match who {
                "the engine" => world.sum(&Tensor::ones([3])).to_vec::<f32>().unwrap_err().to_string(),
                _ => world.barrier().unwrap_err().to_string(),
            };
            assert!(who != "a panic", "{error}");
            fails(&format!("no sum: {error}"))
        });
        let wanted = Error::Broken("rank 2 failed: the disk is full".to_owned());
        assert_eq!(outcome, Err(wanted), "by {who}");
    }
}

#[test]
fn an_error_of_its_own_behind_that_of_another_worker_stays() {
    let outcome = World::threads(2, |world| match world.rank() {
        0 => {
            world.barrier().unwrap_err();
            Err::<(), Failure>("no log was written".into())
        }
        _ => {
            world.fail("the disk is full");
            std::thread::sleep(Duration::from_millis(500));
            Err("the disk is full".into())
        }
    });
    assert_eq!(outcome, Err(Error::Broken("rank 0 failed: no log was written".to_owned())));
}

#[test]
fn a_worker_that_comes_late_learns_in_that_call() {
    for size in [2, 3] {
        let has_given_up = Barrier::new(size);
        let seen = errors(size, |world| {
            world.set_timeout(Duration::from_millis(300));
            if world.rank() == 1 {
                has_given_up.wait();
                return world.barrier();
            }
            let outcome = world.barrier();
            has_given_up.wait();
            outcome
        });
        assert!(
            seen.iter().all(|error| error.contains(" waited 300ms at `barrier` (exchange 1) for rank 1")),
            "{seen:?}"
        );
    }
}

#[test]
fn a_worker_that_comes_late_to_a_round_learns_in_that_round() {
    let has_failed = Barrier::new(2);
    let seen = errors(2, |world| {
        exchange(world, "sum", 8, 8)?;
        match world.rank() {
            // The round's own bytes are sent before the failure.
            0 => {
                next_round(world, 8, 0)?;
                world.fail("the disk is full");
                has_failed.wait();
                world.barrier()
            }
            _ => {
                has_failed.wait();
                next_round(world, 0, 8)
            }
        }
    });
    assert_eq!(seen, ["rank 0 failed: the disk is full"; 2]);
}
