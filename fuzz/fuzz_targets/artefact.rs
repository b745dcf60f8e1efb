//! Any bytes as an artefact.
#![no_main]

#[allow(dead_code, reason = "each target uses a part of it")]
#[path = "../../tests/engine/artefact/attack.rs"]
mod attack;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    attack::attack(bytes);
});
