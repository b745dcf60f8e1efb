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

/// A shape of `mma.sync` with sums in single precision.
struct Product {
    name: &'static str,
    depth: usize,
    /// Values of a register: two halves or one single.
    per_register: usize,
    /// A value as it lies in a register, and what it counts.
    encode: fn(f32) -> (u32, f64),
}

/// Row and column of value `i` of a lane in the first factor, as the manual of PTX has them.
fn first_place(product: &Product, lane: usize, i: usize) -> (usize, usize) {
    let (group, thread) = (lane / 4, lane % 4);
    match product.per_register {
        2 => (group + 8 * (i / 2 % 2), 2 * thread + i % 2 + if i < 4 { 0 } else { 8 }),
        _ => (group + 8 * (i % 2), thread + if i < 2 { 0 } else { 4 }),
    }
}

/// The same in the second factor.
fn second_place(product: &Product, lane: usize, i: usize) -> (usize, usize) {
    let (group, thread) = (lane / 4, lane % 4);
    match product.per_register {
        2 => (2 * thread + i % 2 + if i < 2 { 0 } else { 8 }, group),
        _ => (thread + 4 * i, group),
    }
}

fn half(x: f32) -> (u32, f64) {
    // Multiples of 1/64 below one, as a half: sign, exponent and fraction from those of the single.
    let x = (x * 64.0).round() / 64.0;
    let bits = x.to_bits();
    let encoded = if x == 0.0 { 0 } else { (((bits >> 13) & 0x3ffff) - (112 << 10)) & 0x7fff };
    ((bits >> 16) & 0x8000 | encoded, f64::from(x))
}

#[test]
fn products_of_all_shapes() {
    let bf16 = |x: f32| (u32::from(bf16(x)), wide(bf16(x)));
    let tf32 = |x: f32| (x.to_bits() & 0xffff_e000, f64::from(f32::from_bits(x.to_bits() & 0xffff_e000)));
    for product in [
        Product { name: "m16n8k8.row.col.f32.f16.f16.f32", depth: 8, per_register: 2, encode: half },
        Product { name: "m16n8k16.row.col.f32.f16.f16.f32", depth: 16, per_register: 2, encode: half },
        Product { name: "m16n8k8.row.col.f32.bf16.bf16.f32", depth: 8, per_register: 2, encode: bf16 },
        Product { name: "m16n8k16.row.col.f32.bf16.bf16.f32", depth: 16, per_register: 2, encode: bf16 },
        Product { name: "m16n8k4.row.col.f32.tf32.tf32.f32", depth: 4, per_register: 1, encode: tf32 },
        Product { name: "m16n8k8.row.col.f32.tf32.tf32.f32", depth: 8, per_register: 1, encode: tf32 },
    ] {
        check_product(&product);
    }
}

fn check_product(product: &Product) {
    let Product { name, depth, per_register, encode } = product;
    let (a, b, c) = (random(16 * depth, 3), random(depth * 8, 4), random(16 * 8, 5));
    let counts = [16 * depth / 32 / per_register, depth * 8 / 32 / per_register, 4];
    let mut words = vec![];
    for lane in 0..32 {
        let pack = |values: Vec<u32>| -> Vec<u32> {
            let joined = |pair: &[u32]| pair.iter().enumerate().fold(0, |word, (n, bits)| word | bits << (16 * n));
            values.chunks(*per_register).map(joined).collect()
        };
        let first = (0..counts[0] * per_register).map(|i| first_place(product, lane, i));
        words.extend(pack(first.map(|(row, column)| encode(a[row * depth + column]).0).collect()));
        let second = (0..counts[1] * per_register).map(|i| second_place(product, lane, i));
        words.extend(pack(second.map(|(row, column)| encode(b[row * 8 + column]).0).collect()));
        words.extend((0..4).map(|i| c[(lane / 4 + 8 * (i / 2)) * 8 + 2 * (lane % 4) + i % 2].to_bits()));
    }
    let list = |prefix: &str, count: usize| (0..count).map(|n| format!("{prefix}{n}")).collect::<Vec<_>>().join(", ");
    let load = |prefix: &str, count: usize, start: usize| -> String {
        let one = |n| format!("  ld.global.b32 {prefix}{n}, [%rd1+{}];\n", 4 * (start + n));
        (0..count).map(one).collect()
    };
    let [n_a, n_b, n_c] = counts;
    let text = format!(
        ".version 7.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 pa, .param .u64 pd) {{
  .reg .b32 %r1, %a<4>, %b<2>; .reg .f32 %f<4>; .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [pa]; ld.param.u64 %rd2, [pd]; mov.u32 %r1, %laneid;
  mad.wide.u32 %rd1, %r1, {}, %rd1; mad.wide.u32 %rd2, %r1, 16, %rd2;
{}{}{}
  mma.sync.aligned.{name} {{{}}}, {{{}}}, {{{}}}, {{{}}};
  st.global.v4.f32 [%rd2], {{{}}};
  ret;
}}",
        4 * (n_a + n_b + n_c),
        load("%a", n_a, 0),
        load("%b", n_b, n_a),
        load("%f", n_c, n_a + n_b),
        list("%f", 4),
        list("%a", n_a),
        list("%b", n_b),
        list("%f", 4),
        list("%f", 4),
    );
    let module = Module::parse(&text).unwrap();
    let mut machine = Machine::new();
    let (pa, pd) = (machine.put(&words), machine.alloc(512));
    machine.launch(&module, "k", 1, 32, 0, &[pa, pd], Order::FORWARD).unwrap();
    for (at, got) in machine.get::<f32>(pd, 128).unwrap().into_iter().enumerate() {
        let (lane, i) = (at / 4, at % 4);
        let (row, column) = (lane / 4 + 8 * (i / 2), 2 * (lane % 4) + i % 2);
        let term = |k: usize| encode(a[row * depth + k]).1 * encode(b[k * 8 + column]).1;
        let exact = f64::from(c[row * 8 + column]) + (0..*depth).map(term).sum::<f64>();
        assert!((f64::from(got) - exact).abs() < 1e-5, "{name}: {got} at {row}, {column}, not {exact}");
    }
}
