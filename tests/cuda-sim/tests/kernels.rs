//! Kernels written by hand, with known answers.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use retape_cuda_sim::{Machine, Module, Order};

/// Numbers in -1..1, the same for each seed.
fn random(n: usize, seed: u32) -> Vec<f32> {
    let mut x = seed;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        (x >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

fn bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16
}

fn wide(x: u16) -> f64 {
    f64::from(f32::from_bits(u32::from(x) << 16))
}

#[test]
fn elementwise() {
    let module = Module::parse(include_str!("../ptx/ew.ptx")).unwrap();
    let x = random(4096, 7);
    let mut machine = Machine::new();
    let (px, py) = (machine.put(&x), machine.alloc(4 * 4096));
    let args = [px, py, u64::from(1.5_f32.to_bits()), u64::from(0.25_f32.to_bits()), 4096];
    machine.launch(&module, "ew", 4, 256, 0, &args, Order::FORWARD).unwrap();
    for (y, x) in machine.get::<f32>(py, 4096).unwrap().iter().zip(&x) {
        assert!((f64::from(*y) - f64::from(1.5_f32.mul_add(*x, 0.25)).tanh()).abs() < 1e-7);
    }
}

#[test]
fn a_reduction_gives_the_same_bits_in_every_order() {
    let module = Module::parse(include_str!("../ptx/reduce.ptx")).unwrap();
    let x = random(10_000, 3);
    let results = Order::ALL.map(|order| {
        let mut machine = Machine::new();
        let (px, py) = (machine.put(&x), machine.alloc(5 * 4));
        machine.launch(&module, "block_sum", 5, 256, 0, &[px, py, 10_000], order).unwrap();
        machine.get::<u32>(py, 5).unwrap()
    });
    assert!(results.iter().all(|result| *result == results[0]));
    let sum: f64 = results[0].iter().map(|bits| f64::from(f32::from_bits(*bits))).sum();
    let exact: f64 = x.iter().map(|x| f64::from(*x)).sum();
    assert!((sum - exact).abs() < 1e-2, "{sum} {exact}");
}

#[test]
fn a_product_of_bf16_through_cp_async_and_ldmatrix() {
    let module = Module::parse(include_str!("../ptx/mma16.ptx")).unwrap();
    let a: Vec<u16> = random(256, 5).into_iter().map(bf16).collect();
    let b: Vec<u16> = random(128, 9).into_iter().map(bf16).collect();
    let mut machine = Machine::new();
    let (pa, pb, pd) = (machine.put(&a), machine.put(&b), machine.alloc(16 * 8 * 4));
    machine.launch(&module, "mma_bf16", 1, 32, 0, &[pa, pb, pd], Order::FORWARD).unwrap();
    let y = machine.get::<f32>(pd, 128).unwrap();
    for (m, n) in (0..16).flat_map(|m| (0..8).map(move |n| (m, n))) {
        let exact: f64 = (0..16).map(|k| wide(a[m * 16 + k]) * wide(b[n * 16 + k])).sum();
        assert!((f64::from(y[m * 8 + n]) - exact).abs() < 1e-5, "{m} {n}");
    }
}

#[test]
fn a_product_of_tf32() {
    let module = Module::parse(include_str!("../ptx/mma16.ptx")).unwrap();
    let (a, b) = (random(128, 5), random(64, 9));
    let mut machine = Machine::new();
    let (pa, pb, pd) = (machine.put(&a), machine.put(&b), machine.alloc(16 * 8 * 4));
    machine.launch(&module, "mma_tf32", 1, 32, 0, &[pa, pb, pd], Order::FORWARD).unwrap();
    let y = machine.get::<f32>(pd, 128).unwrap();
    for (m, n) in (0..16).flat_map(|m| (0..8).map(move |n| (m, n))) {
        let exact: f64 = (0..8).map(|k| f64::from(a[m * 8 + k]) * f64::from(b[k * 8 + n])).sum();
        assert!((f64::from(y[m * 8 + n]) - exact).abs() < 4e-3, "{m} {n}");
    }
}

#[test]
fn a_pipeline_of_copies() {
    let module = Module::parse(include_str!("../ptx/cpasync.ptx")).unwrap();
    let x = random(512 * 6, 11);
    for order in Order::ALL {
        let mut machine = Machine::new();
        let (px, py) = (machine.put(&x), machine.alloc(2048));
        machine.launch(&module, "pipe", 1, 128, 0, &[px, py, 6], order).unwrap();
        for (i, y) in machine.get::<f32>(py, 512).unwrap().into_iter().enumerate() {
            assert_eq!(y, (0..6).fold(0.0, |sum, stage| sum + x[stage * 512 + i]));
        }
    }
}
