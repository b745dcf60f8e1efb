//! Orders of blocks and warps: results that depend on them are not deterministic on hardware.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use retape_cuda_sim::{Machine, Module, Order};

/// A sum by atomics of floats, which no kernel of ours uses unless a program allows it.
const ATOMIC: &str = ".version 7.0
.target sm_75
.address_size 64
.visible .entry sum(.param .u64 px, .param .u64 py) {
  .reg .b32 %r<8>; .reg .b64 %rd<8>; .reg .f32 %f<3>;
  ld.param.u64 %rd1, [px]; ld.param.u64 %rd2, [py];
  mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r3, %r2, 64, %r1;
  mul.wide.u32 %rd3, %r3, 4; add.u64 %rd4, %rd1, %rd3;
  ld.global.f32 %f1, [%rd4];
  red.global.add.f32 [%rd2], %f1;
  ret;
}";

fn values() -> Vec<f32> {
    (0..640_u64).map(|i| ((i * 2_654_435_761 % 1000) as f32).sin() * 10_f32.powi(i as i32 % 7)).collect()
}

#[test]
fn a_sum_by_atomics_depends_on_the_order() {
    let module = Module::parse(ATOMIC).unwrap();
    let results = Order::ALL.map(|order| {
        let mut machine = Machine::new();
        let (x, y) = (machine.put(&values()), machine.put(&[0_f32]));
        machine.launch(&module, "sum", 10, 64, 0, &[x, y], order).unwrap();
        machine.get::<u32>(y, 1).unwrap()[0]
    });
    assert_ne!(results[0], results[1]);
    assert_ne!(results[0], results[2]);
}

#[test]
fn a_tree_does_not() {
    let module = Module::parse(include_str!("../ptx/reduce.ptx")).unwrap();
    let results = Order::ALL.map(|order| {
        let mut machine = Machine::new();
        let (x, y) = (machine.put(&values()), machine.alloc(4 * 2));
        machine.launch(&module, "block_sum", 2, 256, 0, &[x, y, 640], order).unwrap();
        machine.get::<u32>(y, 2).unwrap()
    });
    assert!(results.iter().all(|result| *result == results[0]));
}

#[test]
fn a_message_between_warps_without_a_barrier_is_seen_in_either_order() {
    let text = ".version 7.0
.target sm_75
.address_size 64
.visible .entry k(.param .u64 px) {
  .reg .pred %p1; .reg .b32 %r<4>;
  .shared .align 4 .b8 s[4];
  mov.u32 %r1, %tid.x;
  setp.eq.u32 %p1, %r1, 0;
  @%p1 st.shared.u32 [s], %r1;
  ld.shared.u32 %r2, [s];
  ret;
}";
    let module = Module::parse(text).unwrap();
    for order in Order::ALL {
        let fault = Machine::new().launch(&module, "k", 1, 64, 0, &[0], order).unwrap_err();
        assert!(fault.what.contains("race") || fault.what.contains("before it is written"), "{fault}");
    }
}
