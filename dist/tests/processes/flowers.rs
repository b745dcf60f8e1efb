//! The example of the flowers, on a tiny size: the digests that it prints, for several numbers of workers, threads and
//! processes; and a stop on its page.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use retape_train::monitor::{Record, read_json_lines};

use crate::driver::Browser;
use crate::job::{LAUNCHERS, Launcher, start, start_alone};

const FLOWERS: &str = env!("CARGO_BIN_EXE_retape-dist-flowers");

/// A folder of its own for a test, without what an earlier run left there.
fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("flowers").join(name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).unwrap();
    }
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// The options of a training with 35 photos, three batches for each epoch: of 13, 13 and 9 rows in 4 shards.
fn small(mut command: Command, out: &Path, options: &[&str]) -> Command {
    command.args(["--images", "40", "--size", "24", "--batch", "13", "--log-digests", "--out"]).arg(out);
    command.args(options);
    command
}

fn run(out: &Path, options: &[&str]) -> Output {
    small(start_alone(FLOWERS), out, options).output().unwrap()
}

/// The digests of each step and of the weights at the end.
fn digests(out: &Path, options: &[&str]) -> Vec<String> {
    digests_of(&run(out, options))
}

fn digests_of(output: &Output) -> Vec<String> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let is_digest = |line: &&str| line.starts_with("step ") || line.starts_with("weights ");
    let digests: Vec<String> = text.lines().filter(is_digest).map(str::to_owned).collect();
    assert!(digests.last().is_some_and(|line| line.starts_with("weights ")), "{text}");
    digests
}

#[test]
fn weights_are_the_same_bits_for_every_number_of_workers() {
    let out = folder("workers");
    let sizes = [(&["--epochs", "1"][..], &["2", "3", "4"][..]), (&["--epochs", "1", "--sync"], &["3"])];
    for (options, sizes) in sizes {
        let of = |workers: &str| digests(&out, &[options, &["--workers", workers]].concat());
        let alone = of("1");
        assert_eq!(alone.len(), 4);
        for workers in sizes {
            assert_eq!(of(workers), alone, "{workers} workers, {options:?}");
        }
    }
    // Without threads: the world of a process that no launcher started.
    assert_eq!(digests(&out, sizes[0].0), digests(&out, &["--epochs", "1", "--workers", "2"]));
}

#[test]
fn another_number_of_workers_goes_on_with_the_same_bits() {
    let out = folder("resume");
    let whole = digests(&out, &["--epochs", "3"]);
    assert_eq!(whole.len(), 10);
    let checkpoints = out.join("checkpoints");
    let part = |epochs: &str, workers: &str| {
        let checkpoints = checkpoints.to_str().unwrap();
        digests(&out, &["--epochs", epochs, "--workers", workers, "--resume", "--checkpoints", checkpoints])
    };
    assert_eq!(part("1", "4")[..3], whole[..3]);
    assert_eq!(part("2", "3")[..3], whole[3..6]);
    assert_eq!(part("3", "1"), whole[6..]);
    // The number of shards is that of the checkpoint.
    let options = ["--resume", "--checkpoints", checkpoints.to_str().unwrap(), "--workers", "5"];
    let output = run(&out, &options);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && error.contains("4 shards for 5 workers: each must hold one"), "{error}");
}

#[test]
fn processes_have_the_digests_of_threads() {
    let out = folder("processes");
    let threads = digests(&out, &["--epochs", "1", "--workers", "2"]);
    for launcher in LAUNCHERS {
        let Some(mut command) = start(launcher, 2) else { continue };
        command.arg(FLOWERS);
        let output = small(command, &out, &["--epochs", "1"]).output().unwrap();
        assert_eq!(digests_of(&output), threads, "{launcher:?}");
    }
}

#[test]
fn a_click_on_stop_ends_all_workers_behind_the_same_step() {
    let out = folder("stop");
    let Some(browser) = Browser::start(&out) else { return };
    let Some(mut command) = start(Launcher::OpenMpi, 2) else { return };
    command.arg(FLOWERS);
    let text = |name: &str| out.join(name).to_str().unwrap().to_owned();
    let (checkpoints, logs) = (text("checkpoints"), text("logs"));
    let endless = ["--epochs", "1000000", "--web", "--checkpoints", &checkpoints, "--logs", &logs];
    let mut command = small(command, &out, &endless);
    let mut job = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(job.stderr.take().unwrap()).lines().map_while(Result::ok);
    let url = said.find_map(|line| line.split_once("watch it at ").map(|(_, url)| url.trim().to_owned())).unwrap();
    // Both must find a reader as long as they are there.
    let others = std::thread::spawn(move || said.for_each(drop));
    browser.open(&url);
    browser.wait("document.body.textContent.includes('of rank 1')");
    browser.click("#stop");
    browser.wait("document.getElementById('confirm').open");
    browser.click("#really");
    let output = job.wait_with_output().unwrap();
    others.join().unwrap();
    let stopped = digests_of(&output);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("ended     Stopped"), "{text}");

    // One line for each step and worker, with its rank and, in that of worker 0, the numbers of both.
    let steps = |rank: usize| -> Vec<Record> {
        let records = read_json_lines(out.join("logs").join(format!("rank-{rank}.jsonl"))).unwrap();
        assert!(records.iter().all(|record| record.rank == Some(rank)));
        records
    };
    let [first, second] = [steps(0), steps(1)];
    assert_eq!(first.len(), second.len());
    assert_eq!(first.last().unwrap().step, second.last().unwrap().step);
    let names: Vec<&str> = first[0].scalars.iter().map(|(name, _)| name.as_str()).collect();
    assert!(names.contains(&"loss of rank 0") && names.contains(&"loss of rank 1"), "{names:?}");

    // The checkpoint of the stop goes on in one process, to where an unbroken run comes.
    let done = stopped.len() - 1;
    let epochs = (done / 3 + 1).to_string();
    let rest = digests(&out, &["--epochs", &epochs, "--checkpoints", &checkpoints, "--resume"]);
    let whole = digests(&out, &["--epochs", &epochs]);
    assert_eq!([&stopped[..done], &rest[..]].concat(), whole);
}

#[test]
fn workers_with_other_options_do_not_begin() {
    let out = folder("options");
    let Some(mut command) = start(Launcher::OpenMpi, 1) else { return };
    command.arg(FLOWERS);
    let mut command = small(command, &out, &["--epochs", "1", ":", "-n", "1", FLOWERS]);
    command = small(command, &out, &["--epochs", "1", "--rate", "0.5"]);
    let output = command.output().unwrap();
    let (said, error) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
    assert!(!output.status.success() && !said.contains("step "), "{said}{error}");
    assert!(error.contains("the choice of options differs between workers") && error.contains("rate 0.5"), "{error}");
}

#[test]
fn a_device_that_is_not_there_is_an_error() {
    let out = folder("device");
    let error = |device: &str| {
        let output = run(&out, &["--epochs", "1", "--workers", "2", "--device", device]);
        assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let missing = error("cuda:97");
    assert!(missing.contains("cuda:97"), "{missing}");
    let unknown = error("gpu");
    assert!(unknown.contains("--device gpu") && unknown.contains("none of `auto`, `cpu`, `cuda:N` and"), "{unknown}");

    let Some(mut command) = start(Launcher::OpenMpi, 1) else { return };
    command.arg(FLOWERS);
    let mut command = small(command, &out, &["--epochs", "1", ":", "-n", "1", FLOWERS]);
    command = small(command, &out, &["--epochs", "1", "--device", "auto"]);
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("the choice of options differs"), "{error}");
    assert!(error.contains("device cpu") && error.contains("device auto"), "{error}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_training_on_a_gpu_has_the_same_bits_for_every_number_of_workers() {
    let out = folder("gpu");
    let program = Path::new(FLOWERS).parent().unwrap();
    let driver = [program.join("deps"), program.to_owned()].map(|folder| folder.join("libretape_cuda_sim.so"));
    let driver = driver.iter().find(|path| path.exists()).expect("the stand-in for the driver is built with this test");
    let kernels = out.join("kernels");
    std::fs::create_dir(&kernels).unwrap();
    let on_gpu = |workers: &str| {
        let mut command = start_alone(FLOWERS);
        command.env("LD_PRELOAD", driver).env("RETAPE_PTX_DUMP", &kernels);
        let tiny = ["--images", "20", "--size", "12", "--batch", "9", "--epochs", "1"];
        let options = [&tiny[..], &["--device", "cuda:0", "--workers", workers]].concat();
        digests_of(&small(command, &out, &options).output().unwrap())
    };
    let alone = on_gpu("1");
    assert_eq!(alone.len(), 3);
    assert_eq!(on_gpu("2"), alone);
    // The interpreter leaves the code that it was given.
    assert!(std::fs::read_dir(&kernels).unwrap().count() > 10);
}
