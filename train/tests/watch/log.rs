//! The log with an object per step: kills, cuts, reopening; and lines in the terminal.

use std::fs;
use std::io::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

use retape_train::Error;
use retape_train::monitor::{Monitor, Phase, read_json_lines};
use serde_json::{Value, json};

use super::{child, folder, given};

#[test]
fn a_line_is_a_step() {
    let path = folder("log").join("deep").join("log.jsonl");
    let mut monitor = Monitor::new("log").json_lines(&path).unwrap();
    let hostile = "a \"name\"\nwith everything \u{1}</script>";
    monitor.step(1, 0, &[("loss", 0.1), ("rate", 1e-300), ("loss", f64::NAN), (hostile, -0.0)]);
    monitor.validation(1, 2, &[("loss", f64::INFINITY), ("least", f64::NEG_INFINITY)]);
    monitor.step(u64::MAX, 3, &[]);
    monitor.info("model", "not in the log");
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert_eq!(lines[0]["scalars"], json!({"loss": "NaN", "rate": 1e-300, hostile: -0.0}));
    assert_eq!((&lines[0]["step"], &lines[0]["epoch"], &lines[0]["phase"]), (&json!(1), &json!(0), &json!("training")));
    assert_eq!(
        (&lines[1]["scalars"], &lines[1]["phase"]),
        (&json!({"loss": "inf", "least": "-inf"}), &json!("validation"))
    );
    assert!(lines[2]["time"].as_f64().unwrap() > 1.7e9);
    let records = read_json_lines(&path).unwrap();
    assert!(records[0].scalars[0].1.is_nan() && records[0].scalars[1].1 == 1e-300);
    assert_eq!((records[1].phase, records[2].step), (Phase::Validation, u64::MAX));
    assert_eq!(records[1].scalars[1], ("least".to_owned(), f64::NEG_INFINITY));
}

#[test]
fn reopening_adds_and_a_cut_line_spoils_no_other() {
    let path = folder("reopened").join("log.jsonl");
    let write = |step| {
        let mut monitor = Monitor::new("log").json_lines(&path).unwrap();
        monitor.step(step, 0, &[("loss", 1.0)]);
        monitor.finish().unwrap();
    };
    write(1);
    write(2);
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 2);
    fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"time\":17").unwrap();
    write(3);
    let steps: Vec<u64> = read_json_lines(&path).unwrap().iter().map(|record| record.step).collect();
    assert_eq!(steps, [1, 2, 3]);
    assert_eq!(fs::read_to_string(&path).unwrap().lines().nth(2), Some("{\"time\":17"));
}

#[test]
fn a_killed_run_keeps_its_lines() {
    if let Some(path) = given() {
        let mut monitor = Monitor::new("killed").json_lines(path).unwrap();
        for step in 1.. {
            monitor.step(step, 0, &[("loss", 1.0 / step as f64)]);
            if step == 500 {
                // The parent kills while the run goes on.
                println!("500 steps are done");
            }
        }
    }
    let path = folder("killed").join("log.jsonl");
    let mut run =
        child("log::a_killed_run_keeps_its_lines", &path).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let start = Instant::now();
    while read_json_lines(&path).map_or(0, |records| records.len()) < 500 {
        assert!(start.elapsed() < Duration::from_secs(60), "the child writes nothing");
        std::thread::sleep(Duration::from_millis(5));
    }
    run.kill().unwrap();
    run.wait().unwrap();
    let records = read_json_lines(&path).unwrap();
    assert!(records.len() >= 500);
    assert!(records.iter().zip(1..).all(|(record, step)| record.step == step), "a line is missing");
}

#[test]
fn a_sink_that_fails_is_said_once_and_stops_nothing() {
    let full = std::path::Path::new("/dev/full");
    if !full.exists() {
        return eprintln!("skipped: this system has no device that is always full");
    }
    let path = folder("failing").join("log.jsonl");
    let mut monitor = Monitor::new("full").json_lines(full).unwrap().json_lines(&path).unwrap();
    for step in 1..=3 {
        monitor.step(step, 0, &[("loss", 1.0)]);
    }
    assert!(matches!(monitor.finish(), Err(Error::Io { path, .. }) if path == full));
    assert_eq!(read_json_lines(&path).unwrap().len(), 3);
    assert!(matches!(Monitor::new("folder").json_lines("/"), Err(Error::Io { .. })));
}

#[test]
fn without_a_terminal_there_are_few_lines() {
    if given().is_some() {
        let mut monitor = Monitor::new("lines").steps(1000);
        for step in 1..=1000 {
            monitor.step(step, step / 500, &[("loss", 1.0 / step as f64), ("rate", 1e-3)]);
        }
        monitor.validation(1000, 2, &[("accuracy", 0.5)]);
        monitor.note("a checkpoint was written");
        return;
    }
    let output = child("log::without_a_terminal_there_are_few_lines", "".as_ref()).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    let own: Vec<&str> = text.lines().filter(|line| line.starts_with("lines: ")).collect();
    let expected = [
        "lines: step 1/1000, epoch 0, loss 1, rate 0.001",
        "lines: step 1000/1000, validation, epoch 2, accuracy 0.5",
        "lines: a checkpoint was written",
        "lines: step 1000/1000, epoch 2, loss 0.001, rate 0.001",
    ];
    assert_eq!(own, expected, "{text}");
}
