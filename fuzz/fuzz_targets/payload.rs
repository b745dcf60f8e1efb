//! Any bytes as the payload of an artefact whose head, length and checksum fit.
#![no_main]

#[allow(dead_code, reason = "each target uses a part of it")]
#[path = "../../tests/engine/artefact/attack.rs"]
mod attack;

libfuzzer_sys::fuzz_target!(|payload: &[u8]| {
    attack::attack(&attack::sealed(payload));
});
