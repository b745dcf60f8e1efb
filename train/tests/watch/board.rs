//! Event files, as TensorBoard itself reads them.

use std::path::{Path, PathBuf};
use std::process::Command;

use retape::{Tensor, accelerate};
use retape_train::monitor::Monitor;
use serde_json::{Value, json};

use super::folder;

/// A Python that has TensorBoard: of the virtual environment `tensorboard` in the `tmp` of the target folder, or the
/// system's. Without one the test says so, unless it is required.
fn python() -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tensorboard").join("bin").join("python");
    let imports = |python: &PathBuf| {
        let outcome = Command::new(python).args(["-c", "import tensorboard"]).output();
        outcome.is_ok_and(|output| output.status.success())
    };
    let found = [own, PathBuf::from("python3")].into_iter().find(imports);
    if found.is_none() {
        let is_required = std::env::var("RETAPE_REQUIRE_TENSORBOARD").is_ok_and(|value| value == "1");
        assert!(!is_required, "no Python with TensorBoard is installed");
        eprintln!("skipped: no Python with TensorBoard is installed");
    }
    found
}

/// Prints what TensorBoard finds in the runs of a folder; it fails on a checksum that is wrong.
const READ: &str = r#"
import json, sys
from pathlib import Path
from tensorboard.backend.event_processing import event_file_loader, plugin_event_accumulator
found = {}
for run in sorted(Path(sys.argv[1]).iterdir()):
    files = sorted(run.iterdir())
    events = [event for file in files for event in event_file_loader.RawEventFileLoader(str(file)).Load()]
    accumulator = plugin_event_accumulator.EventAccumulator(str(run), size_guidance={"scalars": 0, "tensors": 0})
    accumulator.Reload()
    # Scalars are tensors to TensorBoard's server, and so to this reader, which is the server's.
    values = {}
    for tag in accumulator.Tags()["tensors"]:
        metadata = accumulator.SummaryMetadata(tag)
        for event in accumulator.Tensors(tag):
            proto = event.tensor_proto
            value = proto.string_val[0].decode() if proto.string_val else repr(proto.float_val[0])
            values.setdefault(tag, [metadata.plugin_data.plugin_name]).append([event.step, value])
    found[run.name] = {"files": len(files), "events": len(events), "values": values, "first": accumulator.FirstEventTimestamp()}
print(json.dumps(found))
"#;

#[test]
fn tensor_board_reads_it_back() {
    let Some(python) = python() else { return };
    let folder = folder("board").join("runs");
    let function = accelerate(|x: &Tensor| x.sum(..));
    for part in 0..2 {
        let mut monitor = Monitor::new("board").tensor_board(&folder).unwrap();
        for step in 3 * part + 1..=3 * part + 3 {
            monitor.step(step, part, &[("loss", 1.0 / step as f64), ("grüße/norm", f64::INFINITY)]);
        }
        monitor.validation(3 * part + 3, part, &[("loss", f64::NAN)]);
        monitor.info("model", "ResNet-18 with **text**");
        function.call(Tensor::ones([2])).unwrap();
        monitor.cache("step", &function);
        monitor.finish().unwrap();
    }
    let script = folder.parent().unwrap().join("read.py");
    std::fs::write(&script, READ).unwrap();
    let output = Command::new(python).arg(script).arg(&folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let (training, validation) = (&found["training"], &found["validation"]);
    // Two files each: the version, then three steps, an info field and a cache; or one validation.
    assert_eq!((&training["files"], &training["events"]), (&json!(2), &json!(12)));
    assert_eq!((&validation["files"], &validation["events"]), (&json!(2), &json!(4)));
    let loss = training["values"]["loss"].as_array().unwrap();
    assert_eq!(loss[0], "scalars");
    for (point, step) in loss[1..].iter().zip(1..) {
        let value: f64 = point[1].as_str().unwrap().parse().unwrap();
        assert_eq!((&point[0], value), (&json!(step), f64::from(1.0_f32 / step as f32)));
    }
    assert_eq!(loss.len(), 7);
    assert_eq!(training["values"]["grüße/norm"][6], json!([6, "inf"]));
    assert_eq!(
        training["values"]["model"],
        json!(["text", [0, "ResNet-18 with **text**"], [0, "ResNet-18 with **text**"]])
    );
    assert_eq!(training["values"]["cache/step/hit_rate"], json!(["scalars", [3, "0.0"], [6, "0.5"]]));
    assert_eq!(training["values"]["cache/step/misses"], json!(["scalars", [3, "1.0"], [6, "1.0"]]));
    assert_eq!(validation["values"]["loss"], json!(["scalars", [3, "nan"], [6, "nan"]]));
    assert!(training["first"].as_f64().unwrap() > 1.7e9);
}
