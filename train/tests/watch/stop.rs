//! Ctrl-C: the first asks for a stop, the second ends the process.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use retape_train::monitor::Monitor;
use retape_train::progress::Stop;

use super::{child, given};

/// Starts this test as a child, and waits until it says that it is ready.
fn start(name: &str, how: &str) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut run = child(name, how.as_ref()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(run.stdout.take().unwrap());
    read_until(&mut output, "ready");
    (run, output)
}

fn read_until(output: &mut impl BufRead, text: &str) {
    let mut line = String::new();
    while !line.contains(text) {
        line.clear();
        assert!(output.read_line(&mut line).unwrap() > 0, "the child ended without {text:?}");
    }
}

fn interrupt(run: &Child) {
    assert!(Command::new("kill").args(["-INT", &run.id().to_string()]).status().unwrap().success());
}

#[test]
fn ctrl_c_stops_after_the_step_and_a_second_one_ends_the_process() {
    const NAME: &str = "stop::ctrl_c_stops_after_the_step_and_a_second_one_ends_the_process";
    if let Some(how) = given() {
        let monitor = Monitor::new("interrupted").stop_on_ctrl_c().unwrap();
        let (other, left) = (Stop::new(), Stop::new());
        other.on_ctrl_c().unwrap();
        left.on_ctrl_c().unwrap();
        drop(left);
        println!("ready");
        while !monitor.should_stop() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(other.is_requested());
        println!("stopped by itself");
        match how.to_str().unwrap() {
            "polite" => return,
            "gone" => drop((monitor, other)),
            _ => {}
        }
        println!("still there");
        std::thread::sleep(Duration::from_secs(60));
        unreachable!("a second Ctrl-C ends the process");
    }
    let (mut run, mut output) = start(NAME, "polite");
    interrupt(&run);
    read_until(&mut output, "stopped by itself");
    assert!(run.wait().unwrap().success());

    // A second one while the stop is on its way, or after the training is over, ends the process.
    for how in ["stubborn", "gone"] {
        let (mut run, mut output) = start(NAME, how);
        interrupt(&run);
        read_until(&mut output, "still there");
        interrupt(&run);
        assert_eq!(run.wait().unwrap().code(), Some(130), "{how}");
    }
}

#[test]
fn a_stop_can_come_from_another_thread() {
    let monitor = Monitor::new("threads");
    assert!(!monitor.should_stop());
    let stop = monitor.stop();
    std::thread::spawn(move || stop.request()).join().unwrap();
    assert!(monitor.should_stop());
}
