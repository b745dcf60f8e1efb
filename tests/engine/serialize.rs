//! Statistics, misses and profiles as data, by the feature `serde`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::SeqCst;

use retape::{Check, Error, Tensor, accelerate};
use serde_json::{Value, json, to_value};

fn names(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn everything_that_is_seen_is_data() {
    let shift = Tensor::ones([3]);
    let f = accelerate(|x: &Tensor, twice: &bool| if *twice { (x + &shift).sum(..) } else { x.sum(..) });
    f.configure(|options| options.profiling = true);
    for (rows, twice) in [(4, true), (4, true), (9, true), (9, false)] {
        f.call(Tensor::ones([rows, 3]), twice).unwrap();
    }

    let stats = to_value(f.stats()).unwrap();
    assert_eq!((&stats["hits"], &stats["misses"]), (&json!(1), &json!(3)));
    assert_eq!(stats["budget"], json!({ "host": null, "device": null }));
    let entry = &stats["entries"][2];
    assert_eq!(entry["signature"]["arguments"], "f32[4, 3], true");
    let leaves = json!([
        { "path": "argument 0", "value": "f32[4, 3]" },
        { "path": "argument 1", "value": "true" },
    ]);
    assert_eq!(entry["signature"]["leaves"], leaves);
    assert_eq!(entry["signature"]["tensors"], json!(["argument 0"]));
    assert_eq!(entry["signature"]["summaries"], json!(["f32[4, 3]", "true"]));
    assert_eq!(entry["bytes"], json!(f.stats().entries[2].bytes));
    assert!(entry["captures"][0].as_str().unwrap().starts_with("f32[3] at tests/engine/serialize.rs:"));
    let stages = ["compile_seconds", "optimise_seconds", "plan_seconds", "trace_seconds"];
    assert_eq!(names(&entry["times"]), BTreeSet::from(stages));
    assert!((1e-9..60.0).contains(&entry["times"]["compile_seconds"].as_f64().unwrap()));
    assert_eq!(stats["miss_latency"]["n_timed"], 3);

    let misses = to_value(f.explain()).unwrap();
    let reasons: Vec<&Value> = misses.as_array().unwrap().iter().map(|miss| &miss["reason"]).collect();
    assert_eq!(reasons, ["first_call", "new_shape", "new_static"]);
    let difference = json!({ "path": "argument 0", "aspect": "axis 0", "old": "4", "new": "9", "type_name": "" });
    assert_eq!(misses[1]["differences"], json!([difference]));
    assert!(misses[1]["at"].as_str().unwrap().starts_with("tests/engine/serialize.rs:"));

    let profile = to_value(f.profile()).unwrap();
    let kinds: Vec<&Value> = profile["calls"].as_array().unwrap().iter().map(|call| &call["kind"]).collect();
    assert_eq!(kinds, ["miss", "hit", "miss", "miss"]);
    assert!(profile["groups"].as_array().unwrap().iter().all(|group| group["share"].as_f64().unwrap() <= 1.0));
    assert!(profile["threads"][0]["name"].is_string());
    assert_eq!(profile["threads"][0]["number"], profile["calls"][0]["thread"]);

    let inspection = f.inspect(2);
    assert_eq!((inspection.stats.entries.len(), inspection.misses.len(), inspection.details.len()), (3, 3, 2));
    let inspection = to_value(inspection).unwrap();
    assert!(inspection["made_at"].as_str().unwrap().starts_with("tests/engine/serialize.rs:"));
    assert!(inspection["age_seconds"].as_f64().unwrap() > 0.0);
    assert_eq!(inspection["history"][2], json!({ "misses": 3, "hits": 1 }));
    let inside = &inspection["details"][0];
    assert_eq!((&inside["values"][0]["type"], &inside["values"][0]["bytes"]), (&json!("f32[9, 3]"), &json!(108)));
    assert_eq!((&inside["steps"][0]["kind"], &inside["launches"][0]["count"]), (&json!("reduction"), &json!(1)));
    assert_eq!(inside["launches"][0]["mean_seconds"], inside["launches"][0]["total_seconds"]);
}

#[test]
fn what_checks_find_is_data() {
    let factor = std::sync::atomic::AtomicU32::new(2);
    let scaled = accelerate(|x: &Tensor| x * factor.load(SeqCst) as f32);
    scaled.configure(|options| options.check = Check::default().into());
    scaled.call(Tensor::ones([3])).unwrap();
    factor.store(3, SeqCst);
    scaled.call(Tensor::ones([3])).unwrap();
    let found = &to_value(scaled.differences()).unwrap()[0];
    assert_eq!((&found["path"], &found["gap"]["n_differing"]), (&json!("result"), &json!(3)));
    assert_eq!(found["gap"]["samples"][1], json!({ "position": 1, "expected": "3.0", "got": "2.0" }));

    let log = accelerate(|x: &Tensor| (x - 2.0_f32).log());
    log.configure(|options| options.trap_nonfinite = true);
    let Err(Error::NonFinite(found)) = log.call(Tensor::ones([3])) else { panic!("nothing was trapped") };
    let found = to_value(*found).unwrap();
    assert_eq!(
        (&found["op"], &found["n_nan"], &found["inputs"][0]["type"]),
        (&json!("log"), &json!(3), &json!("f32[3]"))
    );
    assert!(found["at"].as_str().unwrap().starts_with("tests/engine/serialize.rs:"), "{found}");
}
