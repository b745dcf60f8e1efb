//! How many instructions of lanes a second the interpreter executes, for kernels of several kinds.
//!
//! `cargo run --release -p retape-cuda-sim --example speed`

use std::time::Instant;

use retape_cuda_sim::{Machine, Module, Order};

/// A loop of arithmetic only.
const ARITHMETIC: &str = ".version 7.0
.target sm_75
.address_size 64
.visible .entry spin(.param .u64 out, .param .u32 n) {
  .reg .pred %p1; .reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .f32 %f<4>;
  ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [n];
  mov.u32 %r2, %tid.x; cvt.rn.f32.u32 %f1, %r2; mov.f32 %f2, 0f3F000000; mov.u32 %r3, 0;
LOOP:
  fma.rn.f32 %f1, %f1, %f2, %f2;
  add.rn.f32 %f3, %f1, %f2;
  mul.rn.f32 %f1, %f3, %f2;
  max.f32 %f1, %f1, %f2;
  add.u32 %r3, %r3, 1;
  setp.lt.u32 %p1, %r3, %r1;
  @%p1 bra LOOP;
  mul.wide.u32 %rd2, %r2, 4; add.u64 %rd3, %rd1, %rd2;
  st.global.f32 [%rd3], %f1;
  ret;
}";

/// Products of the same fragments, again and again.
const PRODUCTS: &str = ".version 7.0
.target sm_80
.address_size 64
.visible .entry products(.param .u32 n) {
  .reg .pred %p1; .reg .b32 %r<12>; .reg .f32 %f<4>;
  .shared .align 16 .b8 s[512];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %tid.x; shl.b32 %r3, %r2, 4; mov.u32 %r4, s; add.u32 %r3, %r3, %r4;
  st.shared.v4.u32 [%r3], {%r2, %r2, %r2, %r2};
  mov.f32 %f0, 0f00000000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0; mov.u32 %r5, 0;
LOOP:
  ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r6, %r7, %r8, %r9}, [%r3];
  mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
    {%f0, %f1, %f2, %f3}, {%r6, %r7, %r8, %r9}, {%r6, %r7}, {%f0, %f1, %f2, %f3};
  mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
    {%f0, %f1, %f2, %f3}, {%r6, %r7, %r8, %r9}, {%r8, %r9}, {%f0, %f1, %f2, %f3};
  add.u32 %r5, %r5, 1;
  setp.lt.u32 %p1, %r5, %r1;
  @%p1 bra LOOP;
  ret;
}";

fn main() {
    let n = 1_u64 << 20;
    let mut machine = Machine::new();
    let x: Vec<f32> = (0..n).map(|i| (i % 1000) as f32).collect();
    let (px, py) = (machine.put(&x), machine.alloc(4 * n as usize));
    let mut time = |text: &str, name: &str, grid: u32, block: u32, args: &[u64]| {
        let module = Module::parse(text).expect("a kernel of this file");
        let start = Instant::now();
        machine.launch(&module, name, grid, block, 0, args, Order::FORWARD).expect("a kernel without faults");
        let (seconds, counts) = (start.elapsed().as_secs_f64(), machine.counts()[name]);
        let millions = counts.instructions as f64 / seconds / 1e6;
        let nanos = seconds * 1e9 / counts.warp_instructions as f64;
        eprintln!("{name:12} {seconds:.3} s, {millions:6.0} M/s, {nanos:6.1} ns for an instruction of a warp");
    };
    time(ARITHMETIC, "spin", 1, 256, &[py, 200_000]);
    time(include_str!("../ptx/ew.ptx"), "ew", (n / 1024) as u32, 256, &[px, py, 0, 0, n]);
    time(include_str!("../ptx/reduce.ptx"), "block_sum", 16, 256, &[px, py, n]);
    time(PRODUCTS, "products", 4, 32, &[20_000]);
}
