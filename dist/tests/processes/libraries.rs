//! Which library is opened, and the errors where it is none, or the wrong one.

use crate::job::{Launcher, alone, launch, launch_without};

fn refused(variables: &[(&str, &str)]) -> String {
    let job = alone("calls", variables);
    assert!(!job.is_ok, "{job:#?}");
    job.lines.into_iter().find_map(|line| line.strip_prefix("init: ").map(str::to_owned)).expect("an error of `init`")
}

#[test]
fn a_library_of_another_launcher_is_refused() {
    let worlds = [
        (Launcher::OpenMpi, "libmpich.so.12", "OMPI_COMM_WORLD_SIZE=2", "(MPICH "),
        (Launcher::Mpich, "libmpi.so.40", "PMI_SIZE=2", "(Open MPI "),
    ];
    for (launcher, library, evidence, version) in worlds {
        let Some(job) = launch(launcher, 2, "calls", &[("RETAPE_MPI", library)]) else { continue };
        assert!(!job.is_ok && !job.has("local"), "{job:#?}");
        let start = format!("init: the launcher started 2 workers ({evidence}), but {library} {version}");
        assert!(job.lines.iter().any(|line| line.starts_with(&start) && line.contains(" finds 1: ")), "{job:#?}");
    }
}

#[test]
fn the_library_is_the_one_that_is_named() {
    let Some(job) = launch(Launcher::OpenMpi, 2, "calls", &[("RETAPE_MPI", "libmpi.so.40")]) else { return };
    assert!(job.is_ok, "{job:#?}");
    // A named library is opened without a launcher as well, and gives a world of one.
    let job = alone("alone", &[("RETAPE_MPI", "libmpi.so.40")]);
    assert_eq!(job.said(0, 1), "local 0 device 0, with a library of MPI: true");
}

#[test]
fn a_launcher_that_only_speaks_of_processes_is_served() {
    // As `srun --mpi=pmix` does it.
    let without = ["OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"];
    let Some(job) = launch_without(Launcher::OpenMpi, &without, 2, "calls", &[]) else { return };
    assert_eq!([job.said(0, 2), job.said(1, 2)], ["local 0 device 0", "local 1 device 1"]);
}

#[test]
fn a_path_that_leads_nowhere_is_named() {
    let error = refused(&[("RETAPE_MPI", "/nowhere/libmpi.so")]);
    assert!(error.contains("RETAPE_MPI=/nowhere/libmpi.so cannot be opened"), "{error}");
    assert!(error.contains("/nowhere/libmpi.so: cannot open shared object file"), "{error}");
}

#[test]
fn a_library_of_something_else_is_refused() {
    let error = refused(&[("RETAPE_MPI", "libm.so.6")]);
    assert!(error.starts_with("libm.so.6: MPI_Get_library_version is missing"), "{error}");
}

#[test]
fn tasks_that_do_not_know_of_each_other_are_refused() {
    let error = refused(&[("SLURM_STEP_NUM_TASKS", "4")]);
    assert!(error.contains("srun started 4 tasks") && error.contains("--mpi=pmix"), "{error}");
}

#[test]
fn a_time_out_that_is_none_is_refused() {
    for text in ["soon", "-1", "0", "nan"] {
        let error = refused(&[("RETAPE_DIST_TIMEOUT", text)]);
        assert_eq!(error, format!("RETAPE_DIST_TIMEOUT={text} is not a number of seconds"));
    }
}

#[test]
fn a_launcher_with_a_number_that_is_none_is_refused() {
    for (name, value) in [("OMPI_COMM_WORLD_SIZE", "banana"), ("OMPI_COMM_WORLD_SIZE", ""), ("PMI_RANK", "-3")] {
        let error = refused(&[(name, value)]);
        assert!(error.contains(&format!("{name}={value:?} is no number")), "{error}");
    }
}
