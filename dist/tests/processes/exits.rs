//! Processes that exit without the drop of their world: the status of the job, and the errors of the others.

use std::time::{Duration, Instant};

use crate::job::{LAUNCHERS, launch};

/// Whether the C library tells handlers the status of the process.
const KNOWS_STATUS: bool = cfg!(all(target_os = "linux", target_env = "gnu"));

#[test]
fn a_worker_that_exits_in_the_middle_fails_the_job() {
    for launcher in LAUNCHERS {
        let Some(job) = launch(launcher, 2, "exit", &[]) else { continue };
        assert!(!job.is_ok && !job.has("no error"), "{launcher:?}: {job:#?}");
        let errors = job.errors(2);
        let [(0, error)] = errors[..] else { panic!("{launcher:?}: {job:#?}") };
        assert!(error.contains("rank 1 is at `the end of its work` (exchange "), "{launcher:?}: {error}");
    }
}

#[test]
fn a_worker_that_exits_with_a_failure_tells_the_others() {
    for launcher in LAUNCHERS {
        let Some(job) = launch(launcher, 3, "exit_status", &[]) else { continue };
        assert!(!job.is_ok, "{launcher:?}: {job:#?}");
        if KNOWS_STATUS {
            let errors = job.errors(3);
            let is_told = |(rank, error): &(usize, &str)| *rank != 1 && *error == "rank 1 exited with status 3";
            assert!(!errors.is_empty() && errors.iter().all(is_told), "{launcher:?}: {job:#?}");
        }
    }
}

#[test]
fn workers_that_exit_at_their_end_end_well() {
    for launcher in LAUNCHERS {
        let Some(job) = launch(launcher, 3, "exit_end", &[]) else { continue };
        assert!(job.is_ok, "{launcher:?}: {job:#?}");
        assert_eq!([0, 1, 2].map(|rank| job.said(rank, 3)), ["exits"; 3], "{launcher:?}");
        assert_eq!(job.lines.len(), 3, "{launcher:?}: {job:#?}");
    }
}

#[test]
fn a_world_that_is_static_ends_well() {
    for launcher in LAUNCHERS {
        let Some(job) = launch(launcher, 3, "static", &[]) else { continue };
        assert!(job.is_ok, "{launcher:?}: {job:#?}");
        assert_eq!([0, 1, 2].map(|rank| job.said(rank, 3)), ["kept"; 3], "{launcher:?}");
        assert_eq!(job.lines.len(), 3, "{launcher:?}: {job:#?}");
    }
}

#[test]
fn an_exit_does_not_wait_for_a_thread_in_a_call() {
    for launcher in LAUNCHERS {
        // The second is that of a program that Ctrl-C ends.
        for status in ["0", "130"] {
            let start = Instant::now();
            let Some(job) = launch(launcher, 2, "exit_busy", &[("STATUS", status)]) else { continue };
            assert!(!job.is_ok && !job.has("no error"), "{launcher:?}, status {status}: {job:#?}");
            assert!(start.elapsed() < Duration::from_secs(10), "{launcher:?}, status {status}: {:?}", start.elapsed());
            let is_told = job.has("rank 1 of 2 exits while another of its threads is in a call of the world");
            assert_eq!(is_told, status == "0" || !KNOWS_STATUS, "{launcher:?}: {job:#?}");
        }
    }
}

#[test]
fn an_exit_beside_an_abort_is_a_failure() {
    for launcher in LAUNCHERS {
        let Some(job) = launch(launcher, 2, "exit_abort", &[]) else { continue };
        assert!(!job.is_ok && job.has("rank 1 of 2 ends the job: on purpose"), "{launcher:?}: {job:#?}");
    }
}

#[test]
fn the_exit_of_a_copy_of_a_process_leaves_the_world_alone() {
    for launcher in LAUNCHERS {
        let Some(job) = launch(launcher, 2, "exit_child", &[]) else { continue };
        assert!(job.is_ok, "{launcher:?}: {job:#?}");
        assert_eq!([0, 1].map(|rank| job.said(rank, 2)), ["child ended well: true"; 2], "{launcher:?}");
    }
}
