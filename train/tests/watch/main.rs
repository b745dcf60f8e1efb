//! Tests of what watches a training: metrics, monitors and pictures.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::print_stdout, reason = "a child tells its parent how far it is")]

mod board;
mod browser;
mod driver;
mod log;
mod metrics;
mod page;
mod plot;
mod stop;
mod viewer;

use std::path::{Path, PathBuf};
use std::process::Command;

/// An empty folder for one test.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("watch").join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// The variable that tells a test that it runs as the child of itself.
const CHILD: &str = "RETAPE_WATCH_CHILD";

/// This program, to run the test `name` again as a child that is given `value`.
fn child(name: &str, value: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(CHILD, value);
    command
}

/// The value that a child was given; none in the test itself.
fn given() -> Option<PathBuf> {
    std::env::var_os(CHILD).map(PathBuf::from)
}

/// Numbers in `[0, 1)` that follow from a seed: SplitMix64 by G. Steele, D. Lea and C. Flood.
fn chance(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed;
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}
