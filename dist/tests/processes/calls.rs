//! The results of each call, under both libraries.

use crate::job::{LAUNCHERS, Launcher, alone, launch, launch_without};

#[test]
fn calls_give_what_they_must_in_worlds_of_several_sizes() {
    for (launcher, sizes) in [(Launcher::OpenMpi, 1..=4), (Launcher::Mpich, 2..=3)] {
        for size in sizes {
            let Some(job) = launch(launcher, size, "calls", &[]) else { continue };
            assert!(job.is_ok, "{launcher:?}, {size} workers: {job:#?}");
            for rank in 0..size {
                assert_eq!(job.said(rank, size), format!("local {rank} device {rank}"), "{launcher:?}");
            }
        }
    }
}

#[test]
fn without_a_launcher_there_is_one_worker_and_no_library() {
    let job = alone("alone", &[]);
    assert!(job.is_ok, "{job:#?}");
    assert_eq!(job.said(0, 1), "local 0 device 0, with a library of MPI: false");
}

#[test]
fn workers_of_a_machine_are_counted_where_the_launcher_does_not() {
    let without = ["OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"];
    for launcher in LAUNCHERS {
        let Some(job) = launch_without(launcher, &without, 3, "calls", &[]) else { continue };
        (0..3).for_each(|rank| assert_eq!(job.said(rank, 3), format!("local {rank} device {rank}"), "{launcher:?}"));
    }
}

#[test]
fn devices_are_those_of_the_list() {
    let Some(job) = launch(Launcher::OpenMpi, 3, "calls", &[("RETAPE_DEVICES", "4, 2")]) else { return };
    assert_eq!([job.said(0, 3), job.said(1, 3)], ["local 0 device 4", "local 1 device 2"]);
    assert_eq!(job.said(2, 3), "local 2 device RETAPE_DEVICES=4, 2 has no device for local rank 2");
}

#[test]
fn a_second_start_gives_the_same_world() {
    for launcher in LAUNCHERS {
        let Some(job) = launch(launcher, 2, "again", &[]) else { continue };
        assert_eq!((job.is_ok, job.said(1, 2)), (true, "same world: true"), "{launcher:?}");
    }
}

#[test]
fn a_gibibyte_is_broadcast_in_pieces() {
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.trim().strip_suffix(" kB"));
    let available: usize = available.and_then(|kb| kb.trim().parse().ok()).unwrap_or(0);
    if available < 4 << 20 {
        eprintln!("{available} kB of memory are too few for two workers with a gibibyte each");
        return;
    }
    for launcher in LAUNCHERS {
        let Some(job) = launch(launcher, 2, "large", &[]) else { continue };
        assert!(job.is_ok && job.said(1, 2).starts_with("1 GiB in "), "{launcher:?}: {job:#?}");
    }
}

#[test]
fn many_exchanges_of_all_lengths_arrive() {
    for launcher in LAUNCHERS {
        let Some(job) = launch(launcher, 2, "latency", &[]) else { continue };
        assert!(job.is_ok && job.said(0, 2).contains("16777216 B: "), "{launcher:?}: {job:#?}");
        eprintln!("{launcher:?}: {}", job.said(0, 2));
    }
}
