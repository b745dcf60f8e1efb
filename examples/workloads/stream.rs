//! Numbers from a formula, so that any program in any language reproduces them exactly.
//!
//! Element `i` of stream `k`, in wrapping 32-bit arithmetic: `x = i * 2654435761 + k * 40503 + 12345`; twice
//! `x ^= x >> 16; x *= 0x45d9f3b`; `x ^= x >> 16`. Then `u = x / 2^31 - 1`, and the value is `base + scale * u`.

fn unit(i: u32, k: u32) -> f64 {
    let mut x = i.wrapping_mul(2_654_435_761).wrapping_add(k.wrapping_mul(40_503)).wrapping_add(12_345);
    for _ in 0..2 {
        x ^= x >> 16;
        x = x.wrapping_mul(0x45d_9f3b);
    }
    x ^= x >> 16;
    f64::from(x) / 2_147_483_648.0 - 1.0
}

/// Row-major elements of stream `k`.
pub(crate) fn stream(n: usize, k: u32, scale: f64, base: f64) -> Vec<f32> {
    (0..n as u32).map(|i| (base + scale * unit(i, k)) as f32).collect()
}
