//! The launcher of this process, as its environment names it, and the library that belongs to it.

use std::time::Duration;

use crate::error::{Error, Result};

/// Names of the library of Open MPI.
const OPEN_MPI: [&str; 2] = ["libmpi.so.40", "libmpi.so"];

/// Names of the library of MPICH, and of those that are built like it.
const MPICH: [&str; 3] = ["libmpich.so.12", "libmpi.so.12", "libmpich.so"];

/// The job, as the environment describes it.
#[derive(Debug)]
pub(crate) struct Launcher {
    /// The variable by which the launcher is known, with its value.
    pub(crate) evidence: String,
    /// The number of workers, if the launcher tells.
    pub(crate) size: Option<usize>,
    /// The number of this worker, if the launcher tells.
    pub(crate) rank: Option<usize>,
    /// The number of this worker among those of its machine, if the launcher tells.
    pub(crate) local_rank: Option<usize>,
    /// The libraries that may belong to it, best first.
    pub(crate) libraries: Vec<String>,
}

/// Reads a variable of the environment.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The launcher of this process, if it has one.
pub(crate) fn launcher() -> Result<Option<Launcher>> {
    for name in ["OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_SIZE", "PMI_RANK", "PMIX_RANK"] {
        // Without the number nobody would notice a library that finds itself alone.
        if let Some(text) = variable(name).filter(|text| text.trim().parse::<usize>().is_err()) {
            return Err(Error::Launch(format!("{name}={text:?} is no number of a worker, nor of workers")));
        }
    }
    let number = |name: &str| variable(name).and_then(|value| value.trim().parse::<usize>().ok());
    let first = |names: &[&str]| names.iter().find_map(|name| number(name));
    let evidence = |name: &str| variable(name).map(|value| format!("{name}={value}"));
    let named = variable("RETAPE_MPI");
    let (evidence, size, libraries) = if let Some(evidence) = evidence("OMPI_COMM_WORLD_SIZE") {
        (evidence, number("OMPI_COMM_WORLD_SIZE"), OPEN_MPI.to_vec())
    } else if let Some(evidence) = evidence("PMI_SIZE").or_else(|| evidence("PMI_RANK")) {
        (evidence, number("PMI_SIZE"), MPICH.to_vec())
    } else if let Some(evidence) = evidence("PMIX_RANK") {
        let size = first(&["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"]);
        (evidence, size, [OPEN_MPI.as_slice(), &MPICH].concat())
    } else if let Some(path) = &named {
        (format!("RETAPE_MPI={path}"), number("SLURM_STEP_NUM_TASKS"), vec![])
    } else {
        let n_tasks = number("SLURM_STEP_NUM_TASKS").unwrap_or(1);
        if n_tasks > 1 {
            // Each of them would be a world of one, and all would train the same.
            return Err(Error::Launch(format!(
                "srun started {n_tasks} tasks, and none of them knows of the others: say `srun --mpi=pmix`, or \
                 `srun --mpi=pmi2`"
            )));
        }
        return Ok(None);
    };
    let local = ["OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID", "PMIX_LOCAL_RANK"];
    let libraries = match named {
        Some(path) => vec![path],
        None => libraries.into_iter().map(str::to_owned).collect(),
    };
    let rank = first(&["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"]);
    Ok(Some(Launcher { evidence, size, rank, local_rank: first(&local), libraries }))
}

/// The time-out that the environment asks for.
pub(crate) fn timeout() -> Result<Option<Duration>> {
    let Some(text) = variable("RETAPE_DIST_TIMEOUT") else { return Ok(None) };
    let seconds = text.trim().parse().ok();
    let timeout = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    match timeout {
        Some(timeout) if !timeout.is_zero() => Ok(Some(timeout)),
        _ => Err(Error::Launch(format!("RETAPE_DIST_TIMEOUT={text} is not a number of seconds"))),
    }
}
