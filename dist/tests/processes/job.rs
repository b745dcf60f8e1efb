//! Starts workers, and keeps what they say.

use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// A launcher of MPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Launcher {
    /// The launcher of Open MPI.
    OpenMpi,
    /// The launcher of MPICH.
    Mpich,
}

pub(crate) const LAUNCHERS: [Launcher; 2] = [Launcher::OpenMpi, Launcher::Mpich];

/// Cores are few: one job at a time.
static ONE: Mutex<()> = Mutex::new(());

/// No job may take longer, whatever its fault is.
const LIMIT: &str = "120";

/// How a job ended.
#[derive(Debug)]
pub(crate) struct Job {
    /// Whether all workers ended well.
    pub(crate) is_ok: bool,
    /// The text that workers and launcher wrote.
    pub(crate) lines: Vec<String>,
}

impl Job {
    /// The last words of a worker that ended well.
    pub(crate) fn said(&self, rank: usize, size: usize) -> &str {
        let start = format!("rank {rank} of {size}: ");
        let line = self.lines.iter().find_map(|line| line.strip_prefix(&start));
        line.unwrap_or_else(|| panic!("rank {rank} of {size} said nothing: {self:#?}"))
    }

    /// The errors of workers, which all must have found within two seconds.
    pub(crate) fn errors(&self, size: usize) -> Vec<(usize, &str)> {
        let error = |line: &str| {
            let (rank, rest) = line.strip_prefix("rank ")?.split_once(&format!(" of {size} failed after "))?;
            let (ms, _) = rest.split_once(" ms: ")?;
            let ms: u32 = ms.parse().ok()?;
            assert!(ms < 2000, "{self:#?}");
            rank.parse::<usize>().ok()
        };
        let found = self.lines.iter().filter_map(|line| Some((error(line)?, line.split_once(" ms: ")?.1)));
        let mut found: Vec<(usize, &str)> = found.collect();
        found.sort_unstable();
        found
    }

    /// Whether a line holds a text.
    pub(crate) fn has(&self, text: &str) -> bool {
        self.lines.iter().any(|line| line.contains(text))
    }
}

/// Runs a command of workers.
pub(crate) fn run(mut command: Command) -> Job {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let output = command.stdin(Stdio::null()).output().expect("the command starts");
    let text = [output.stdout, output.stderr].concat();
    let lines = String::from_utf8_lossy(&text).lines().map(str::to_owned).collect();
    let job = Job { is_ok: output.status.success(), lines };
    assert_ne!(output.status.code(), Some(124), "the job took longer than {LIMIT} s: {job:#?}");
    job
}

/// A worker without a launcher.
pub(crate) fn alone(case: &str, variables: &[(&str, &str)]) -> Job {
    let mut command = start_alone(WORKER);
    command.arg(case).envs(variables.iter().copied());
    run(command)
}

const WORKER: &str = env!("CARGO_BIN_EXE_retape-dist-worker");

/// A program without a launcher.
pub(crate) fn start_alone(program: &str) -> Command {
    let mut command = clean("timeout");
    command.args([LIMIT, program]);
    command
}

/// A command without the variables that would be taken for those of a launcher, or that change what workers do.
fn clean(program: &str) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if ["OMPI_", "PMI", "SLURM_", "MPI_", "RETAPE_"].iter().any(|start| name.starts_with(start)) {
            command.env_remove(name);
        }
    }
    command
}

/// Workers under a launcher, if it is installed.
pub(crate) fn launch(launcher: Launcher, size: usize, case: &str, variables: &[(&str, &str)]) -> Option<Job> {
    launch_without(launcher, &[], size, case, variables)
}

/// Workers under a launcher of which some variables are taken away again.
pub(crate) fn launch_without(
    launcher: Launcher,
    without: &[&str],
    size: usize,
    case: &str,
    variables: &[(&str, &str)],
) -> Option<Job> {
    let mut command = start(launcher, size)?;
    command.arg("env").args(without.iter().flat_map(|name| ["-u", name])).args([WORKER, case]);
    command.envs(variables.iter().copied());
    Some(run(command))
}

/// A launcher, if it is installed, that starts workers of the program that comes next.
pub(crate) fn start(launcher: Launcher, size: usize) -> Option<Command> {
    let (program, arguments): (&str, &[&str]) = match launcher {
        Launcher::OpenMpi => ("mpirun.openmpi", &["--oversubscribe", "--allow-run-as-root"]),
        Launcher::Mpich => ("mpiexec.hydra", &[]),
    };
    let is_there = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !is_there {
        let is_required = std::env::var("RETAPE_REQUIRE_MPI").is_ok_and(|value| value == "1");
        assert!(!is_required, "{program} is not installed, but RETAPE_REQUIRE_MPI=1");
        eprintln!("no {program} is installed: its worlds of processes are not tested");
        return None;
    }
    let mut command = clean("timeout");
    command.args([LIMIT, program]).args(arguments).args(["-n", &size.to_string()]);
    Some(command)
}
