//! Jobs that go wrong: each ends by itself, with an error on every worker that is left.

use crate::job::{LAUNCHERS, Launcher, launch};

/// Runs a case with three workers, and gives what those of them say that fail.
fn fail(launcher: Launcher, case: &str, variables: &[(&str, &str)], check: impl Fn(&[(usize, &str)])) {
    let Some(job) = launch(launcher, 3, case, variables) else { return };
    assert!(!job.is_ok, "{launcher:?}: {job:#?}");
    let errors = job.errors(3);
    eprintln!("{launcher:?}, {case}: {errors:?}");
    check(&errors);
}

#[test]
fn another_order_of_calls_is_an_error_on_all() {
    for launcher in LAUNCHERS {
        fail(launcher, "order", &[], |errors| {
            assert_eq!(errors.iter().map(|(rank, _)| *rank).collect::<Vec<_>>(), [0, 1, 2]);
            for (_, error) in errors {
                assert!(error.contains("at `barrier` (exchange "), "{error}");
                assert!(error.contains("rank 1 is at `any` (exchange "), "{error}");
            }
        });
    }
}

#[test]
fn a_call_that_is_left_out_is_an_error_on_the_others() {
    for launcher in LAUNCHERS {
        fail(launcher, "left out", &[], |errors| {
            // The launcher may end the others as soon as the first worker is gone.
            assert!(!errors.is_empty());
            for (rank, error) in errors {
                assert!(*rank != 1 && error.contains("rank 1 is at `the end of its work`"), "{error}");
            }
        });
    }
}

#[test]
fn lengths_that_do_not_fit_are_errors() {
    for launcher in LAUNCHERS {
        fail(launcher, "lengths", &[], |errors| {
            assert_eq!(errors.len(), 3);
            for (_, error) in errors {
                assert!(error.contains("rank 0 sends 1048576 bytes to rank"), "{error}");
                assert!(error.contains("which waits for 8, both at `parts`"), "{error}");
            }
        });
    }
}

#[test]
fn a_worker_that_waits_for_a_long_message_learns_that_none_comes() {
    for launcher in LAUNCHERS {
        let Some(job) = launch(launcher, 3, "long", &[]) else { continue };
        // The first worker cannot take back what it sends: it gives the reason, and ends the job.
        assert!(!job.is_ok && !job.has("no error"), "{job:#?}");
        assert!(job.has("both at `parts` (exchange "), "{job:#?}");
    }
}

#[test]
fn a_disagreement_is_shown_by_all_and_breaks_nothing() {
    for launcher in LAUNCHERS {
        let Some(job) = launch(launcher, 3, "agree", &[]) else { continue };
        assert!(job.is_ok, "{job:#?}");
        for rank in 0..3 {
            let wanted = "the graph differs between workers: ranks 0 and 2 | rank 1; \
                          line 2 of rank 0: shape of rank any; line 2 of rank 1: shape of rank one";
            assert_eq!(job.said(rank, 3), wanted);
        }
    }
}

#[test]
fn a_killed_worker_ends_the_job() {
    let Some(job) = launch(Launcher::OpenMpi, 3, "killed", &[]) else { return };
    assert!(!job.is_ok && job.has("process rank 1 ") && job.has("signal 9"), "{job:#?}");
    // MPICH's launcher names the machine and the process, and not the rank.
    let Some(job) = launch(Launcher::Mpich, 3, "killed", &[]) else { return };
    assert!(!job.is_ok && job.has("EXIT CODE: 9"), "{job:#?}");
}

#[test]
fn a_panic_is_an_error_on_the_others() {
    for launcher in LAUNCHERS {
        let Some(job) = launch(launcher, 3, "panic", &[]) else { continue };
        assert!(!job.is_ok && job.has("on purpose"), "{job:#?}");
        let errors = job.errors(3);
        // The worker that panics waits a little, so that others can say so before the launcher ends them.
        let is_told = |(rank, error): &(usize, &str)| *rank != 1 && *error == "rank 1 panicked in the thread main";
        assert!(!errors.is_empty() && errors.iter().all(is_told), "{launcher:?}: {job:#?}");
    }
}

#[test]
fn an_abort_names_its_worker() {
    for launcher in LAUNCHERS {
        let Some(job) = launch(launcher, 3, "abort", &[]) else { continue };
        assert!(!job.is_ok && job.has("rank 1 of 3 ends the job: on purpose"), "{job:#?}");
        assert!(!job.has("no error"), "{job:#?}");
    }
}

#[test]
fn a_worker_that_does_not_come_is_named() {
    for launcher in LAUNCHERS {
        fail(launcher, "late", &[("RETAPE_DIST_TIMEOUT", "0.5")], |errors| {
            assert!(!errors.is_empty());
            for (rank, error) in errors {
                assert!(*rank != 1 && error.contains(" waited 500ms at `barrier` (exchange "), "{error}");
                assert!(error.ends_with(" for rank 1"), "{error}");
            }
        });
    }
}

#[test]
fn a_worker_that_comes_late_learns_in_that_call() {
    for launcher in LAUNCHERS {
        let Some(job) = launch(launcher, 2, "behind", &[("RETAPE_DIST_TIMEOUT", "0.4")]) else { continue };
        let wanted = "rank 0 waited 400ms at `barrier` (exchange ";
        let errors = job.errors(2);
        assert!(!job.is_ok && errors.len() == 2, "{launcher:?}: {job:#?}");
        assert!(errors.iter().all(|(_, error)| error.starts_with(wanted)), "{launcher:?}: {job:#?}");
    }
}

#[test]
fn the_first_culprit_alone_is_named() {
    for launcher in LAUNCHERS {
        let Some(job) = launch(launcher, 4, "blame", &[]) else { continue };
        let wanted = [0, 1, 2, 3].map(|rank| (rank, "rank 2 failed: the disk is full"));
        assert_eq!((job.is_ok, job.errors(4)), (false, wanted.to_vec()), "{launcher:?}: {job:#?}");
    }
}
