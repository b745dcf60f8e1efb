//! Any text as a graph and, if it reads, as an entry: optimised, planned, compiled and, if it is small, run.
#![no_main]

#[allow(dead_code, reason = "each target uses a part of it")]
#[path = "../../tests/engine/artefact/attack.rs"]
mod attack;

libfuzzer_sys::fuzz_target!(|text: &str| {
    attack::attack_graph(text);
});
