//! The example of the flowers, on a tiny size: the digests that it prints, for several numbers of workers.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder of its own for a test, without what an earlier run left there.
fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("flowers").join(name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).unwrap();
    }
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Trains with 35 photos, three batches for each epoch: of 13, 13 and 9 rows in 4 shards.
fn run(out: &Path, options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_retape-dist-flowers"));
    command.args(["--images", "40", "--size", "24", "--batch", "13", "--log-digests", "--out"]).arg(out);
    command.args(options).output().unwrap()
}

/// The digests of each step and of the weights at the end.
fn digests(out: &Path, options: &[&str]) -> Vec<String> {
    let output = run(out, options);
    assert!(output.status.success(), "{options:?}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
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
