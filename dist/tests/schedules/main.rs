//! Worlds of threads under schedules drawn at random: the mailboxes and the checks of exchanges, with locks whose every
//! step may give way to another thread. No schedule may hang, lose a body, or leave a worker without the first error.
//!
//! Waits of the model end when they are woken and never by themselves, so whatever ends here ends without a time-out.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(dead_code, reason = "parts of the transport that threads do not use come along")]

#[path = "../../src/agree.rs"]
mod agree;
#[path = "../../src/frame.rs"]
mod frame;
#[path = "../../src/mailbox.rs"]
mod mailbox;
#[path = "../../src/transport.rs"]
mod transport;
#[path = "../../src/wire.rs"]
mod wire;

/// The locks of the model in place of those of the library.
mod sync {
    pub(crate) use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard, atomic};
    pub(crate) use std::sync::{PoisonError, TryLockError};
}

/// Workers of the model have no GPUs.
mod link {
    use std::sync::Arc;
    use std::time::Duration;

    use retape_kernels::library::{Communicator, GpuLink};
    use retape_runtime::Gpu;

    #[derive(Default)]
    pub(crate) struct Links(());

    impl Links {
        pub(crate) fn link(
            &self,
            _: &dyn Communicator,
            _: &str,
            _: &Arc<Gpu>,
            _: Duration,
        ) -> Result<Option<Arc<dyn GpuLink>>, String> {
            Ok(None)
        }

        pub(crate) fn close(&self) {}

        pub(crate) fn abort(&self) {}
    }
}

use mailbox::Threads;
use retape_kernels::library::Communicator;
use wire::Wire;

/// Runs `work` as each of `n` workers, under many schedules.
fn model(n: usize, schedules: usize, work: fn(&Wire)) {
    let world = move || {
        let spawn = |transport| shuttle::thread::spawn(move || work(&Wire::new(Box::new(transport))));
        let workers: Vec<_> = Threads::of(n).into_iter().map(spawn).collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    };
    shuttle::check_random(world, schedules);
    shuttle::check_pct(world, schedules, 3);
}

/// The bytes that one worker sends to another.
fn bytes(from: usize, to: usize, len: usize) -> Vec<u8> {
    (0..len).map(|n| (17 * from + 5 * to + n) as u8).collect()
}

/// All workers send bytes to each other; those that come are the ones that were sent.
fn exchange(wire: &Wire, call: &str, len: usize) -> Result<(), String> {
    let (rank, size) = (wire.rank(), wire.size());
    let sends: Vec<Vec<u8>> = (0..size).map(|to| bytes(rank, to, len)).collect();
    let mut received = vec![vec![0; len]; size];
    let sends: Vec<&[u8]> = sends.iter().map(Vec::as_slice).collect();
    let mut receives: Vec<&mut [u8]> = received.iter_mut().map(Vec::as_mut_slice).collect();
    wire.exchange(call, &sends, &mut receives)?;
    for from in (0..size).filter(|&from| from != rank) {
        assert!(received[from] == bytes(from, rank, len), "the bytes of rank {from} for rank {rank}");
    }
    Ok(())
}

#[test]
fn eight_workers_exchange_what_was_sent() {
    model(8, 60, |wire| {
        // The first fits into the head; of the second a body follows.
        exchange(wire, "short", 3).unwrap();
        exchange(wire, "long", 2 * frame::FRAME).unwrap();
        exchange(wire, "short again", 1).unwrap();
        wire.end().unwrap();
    });
}

#[test]
fn all_of_eight_workers_learn_of_one_that_fails() {
    model(8, 60, |wire| {
        // The error of a worker that has been here may overtake the heads of slower ones, and is of the next call.
        exchange(wire, "before", 3).unwrap();
        if wire.rank() == 5 {
            wire.fail("rank 5 ran out of data");
        }
        for call in ["after", "later"] {
            assert_eq!(exchange(wire, call, 2 * frame::FRAME).unwrap_err(), "rank 5 ran out of data");
        }
        wire.end().unwrap();
    });
}

#[test]
fn two_errors_at_once_leave_each_worker_with_one() {
    model(4, 200, |wire| {
        let rank = wire.rank();
        if rank < 2 {
            wire.fail(&format!("rank {rank} failed"));
        }
        let error = exchange(wire, "after", 2 * frame::FRAME).unwrap_err();
        assert!(error == "rank 0 failed" || error == "rank 1 failed", "{error}");
        assert!(rank > 1 || error == format!("rank {rank} failed"), "{error}");
    });
}

#[test]
fn workers_in_different_calls_all_see_both() {
    model(4, 200, |wire| {
        let call = if wire.rank() == 2 { "left" } else { "right" };
        let error = exchange(wire, call, 3).unwrap_err();
        assert!(error.contains("rank 2 is at `left` (exchange 1)") && error.contains("at `right`"), "{error}");
    });
}
