//! Faults that are put into kernels on purpose: each must be seen, with its line.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use retape_cuda_sim::{Fault, Machine, Module, Order};

/// A module of one kernel `k` with two pointers, `%rd1` and `%rd2`, and the thread's number in `%r1`.
fn kernel(body: &str) -> String {
    kernel_with("", body)
}

/// As above, with something between the head and the body.
fn kernel_with(head: &str, body: &str) -> String {
    format!(
        ".version 7.8
.target sm_90
.address_size 64
.visible .entry k(.param .u64 pa, .param .u64 pb)
{head}
{{
  .reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<16>; .reg .b64 %rd<16>; .reg .f32 %f<8>;
  .shared .align 16 .b8 s[4096];
  ld.param.u64 %rd1, [pa]; ld.param.u64 %rd2, [pb];
  mov.u32 %r1, %tid.x;
{body}
  ret;
}}
"
    )
}

/// Runs the kernel with two arrays of 1024 numbers, the second one not written; all checks are on.
fn run(text: &str, grid: u32, block: u32) -> Result<(), Fault> {
    let module = Module::parse(text).unwrap();
    let mut machine = Machine::new();
    let a = machine.put(&(0..1024).collect::<Vec<u32>>());
    let b = machine.alloc(4096);
    machine.launch(&module, "k", grid, block, 0, &[a, b], Order::FORWARD)
}

/// The fault must have this message and the line of this text.
#[track_caller]
fn must_fail(text: &str, grid: u32, block: u32, message: &str, at: &str) {
    let fault = run(text, grid, block).expect_err("no fault");
    assert!(fault.what.contains(message), "{fault}");
    let line = 1 + text.lines().position(|line| line.contains(at)).expect("the text is there") as u32;
    assert_eq!(fault.line, line, "{fault}");
    assert!(fault.text.contains(at), "{fault}");
    assert_eq!(fault.kernel, "k");
}

#[test]
fn global_memory() {
    let index = "mul.wide.u32 %rd3, %r1, 4;\n add.u64 %rd4, %rd1, %rd3;\n";
    must_fail(&kernel(&format!("{index} ld.global.u32 %r2, [%rd4+2048];")), 1, 1024, "out of bounds", "ld.global.u32");
    must_fail(&kernel(&format!("{index} st.global.u32 [%rd4+-4], %r1;")), 1, 32, "out of bounds", "st.global.u32");
    must_fail(&kernel("ld.global.u32 %r2, [%rd1+2];"), 1, 1, "misaligned access: 4 bytes", "ld.global.u32");
    must_fail(
        &kernel("ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd1+8];"),
        1,
        1,
        "misaligned access: 16",
        "ld.global.v4",
    );
    must_fail(&kernel("ld.global.u32 %r2, [%rd2];"), 1, 1, "global memory read that nobody wrote", "ld.global.u32");
    must_fail(&kernel("mov.u64 %rd3, 16;\n ld.global.u32 %r2, [%rd3];"), 1, 1, "out of bounds", "ld.global.u32");
    let changed = "st.global.u32 [%rd2], 1;\n ld.global.nc.u32 %r2, [%rd2];";
    must_fail(&kernel(changed), 1, 1, "ld.global.nc of memory that this launch writes", "ld.global.nc");
    // Half of the word is written.
    let half = "st.global.u16 [%rd2], 1;\n ld.global.u16 %h1, [%rd2];\n ld.global.u32 %r2, [%rd2];";
    must_fail(&kernel(half), 1, 1, "nobody wrote at byte 2", "ld.global.u32");
}

#[test]
fn freed_memory() {
    let module = Module::parse(&kernel("ld.global.u32 %r2, [%rd1+4];")).unwrap();
    let mut machine = Machine::new();
    let (a, b) = (machine.put(&[1_u32, 2]), machine.put(&[1_u32]));
    assert!(machine.free(a) && !machine.free(a));
    let fault = machine.launch(&module, "k", 1, 1, 0, &[a, b], Order::FORWARD).unwrap_err();
    assert!(fault.what.contains("global access after free: 4 bytes at 4 of 8"), "{fault}");
}

#[test]
fn unwritten_memory_is_allowed_where_asked_for() {
    let module = Module::parse(&kernel("ld.global.u32 %r2, [%rd2];")).unwrap();
    let mut machine = Machine::new();
    let (a, b) = (machine.alloc(4), machine.alloc(4));
    assert!(machine.set_strict(b, false) && !machine.set_strict(b + 4, false));
    machine.launch(&module, "k", 1, 1, 0, &[a, b], Order::FORWARD).unwrap();
}

#[test]
fn registers() {
    must_fail(&kernel("add.u32 %r3, %r1, %r2;"), 1, 32, "register %r2 read before it is written", "add.u32");
    let one_side = "setp.eq.u32 %p1, %r1, 3;\n @%p1 mov.u32 %r2, 1;\n mov.u32 %r3, %r2;";
    must_fail(&kernel(one_side), 1, 32, "register %r2 read before it is written (lane 0)", "mov.u32 %r3");
    must_fail(&kernel("@%p2 mov.u32 %r2, 1;"), 1, 32, "register %p2 read", "@%p2 mov.u32");
    must_fail(&kernel("mov.u32 %r3, 0;\n div.u32 %r2, %r1, %r3;"), 1, 32, "integer division by zero", "div.u32");
}

#[test]
fn shared_memory() {
    must_fail(&kernel("ld.shared.u32 %r2, [s];"), 1, 1, "shared memory read before it is written", "ld.shared.u32");
    must_fail(&kernel("st.shared.u32 [s+4096], %r1;"), 1, 1, "shared access out of bounds", "st.shared.u32");
    let local = "{ .local .align 4 .b8 l[16];\n ld.local.u32 %r2, [l+4];\n }";
    must_fail(&kernel(local), 1, 1, "local memory read before it is written", "ld.local.u32");
    let local = "{ .local .align 4 .b8 l[16];\n st.local.u32 [l+16], %r1;\n }";
    must_fail(&kernel(local), 1, 1, "local access out of bounds", "st.local.u32");
}

/// Each thread writes its own word and reads that of the thread at the other end, then writes again.
fn swap(first: &str, second: &str) -> String {
    kernel(&format!(
        "shl.b32 %r2, %r1, 2; mov.u32 %r3, s; add.u32 %r4, %r3, %r2;
  st.shared.u32 [%r4], %r1;
  {first}
  sub.u32 %r5, 1020, %r2; add.u32 %r5, %r3, %r5;
  ld.shared.u32 %r6, [%r5];
  {second}
  st.shared.u32 [%r4], %r6;"
    ))
}

#[test]
fn races_in_shared_memory() {
    run(&swap("bar.sync 0;", "bar.sync 0;"), 1, 256).unwrap();
    run(&swap("barrier.sync 0, 256;", "barrier.sync 1, 256;"), 1, 256).unwrap();
    // Warp 0 reads what warp 7 has not written yet.
    must_fail(&swap("", "bar.sync 0;"), 1, 256, "shared memory read before it is written", "ld.shared.u32");
    let again = "shared-memory race at byte 508: warp 3 wrote, warp 4 reads with no barrier between";
    must_fail(&swap("bar.sync 0;", ""), 1, 256, again, "ld.shared.u32");
    let read_first = "setp.ge.u32 %p1, %r1, 32; shl.b32 %r2, %r1, 2; mov.u32 %r3, s; add.u32 %r4, %r3, %r2;
  st.shared.u32 [%r4], %r1;
  bar.sync 0;
  @!%p1 ld.shared.u32 %r5, [s+128];
  @%p1 st.shared.u32 [%r4], 0;";
    let message = "shared-memory race at byte 128: warp 0 read, warp 1 writes";
    must_fail(&kernel(read_first), 1, 64, message, "@%p1 st.shared.u32");
    let both = "st.shared.u32 [s], 1;";
    must_fail(&kernel(both), 1, 64, "shared-memory race at byte 0: warp 0 wrote, warp 1 writes", "st.shared.u32");
    run(&kernel(both), 1, 32).unwrap();
}

/// Each thread writes its own word, reads that of its neighbour in the warp, and writes its own again.
fn swap_lanes(first: &str, second: &str) -> String {
    kernel(&format!(
        "shl.b32 %r2, %r1, 2; mov.u32 %r3, s; add.u32 %r4, %r3, %r2;
  st.shared.u32 [%r4], %r1;
  {first}
  xor.b32 %r5, %r2, 4; add.u32 %r5, %r3, %r5;
  ld.shared.u32 %r6, [%r5];
  {second}
  st.shared.u32 [%r4], %r6;"
    ))
}

#[test]
fn races_between_lanes_in_shared_memory() {
    let (warp, block) = ("bar.warp.sync 0xffffffff;", "bar.sync 0;");
    for (first, second) in [(warp, warp), (block, block), (warp, block), (block, warp)] {
        run(&swap_lanes(first, second), 1, 64).unwrap();
    }
    let wrote = "shared-memory race at byte 4: lane 1 wrote, lane 0 of its warp reads with no barrier between";
    must_fail(&swap_lanes("", warp), 1, 64, wrote, "ld.shared.u32");
    // A shuffle exchanges registers and orders no memory.
    must_fail(&swap_lanes("shfl.sync.bfly.b32 %r7, %r1, 1, 31, -1;", warp), 1, 64, wrote, "ld.shared.u32");
    let read = "shared-memory race at byte 0: lane 1 read, lane 0 of its warp writes with no barrier between";
    must_fail(&swap_lanes(warp, ""), 1, 64, read, "st.shared.u32 [%r4], %r6");
    let own = "st.shared.u32 [%r4], %r5;\n ld.shared.u32 %r6, [%r4];";
    run(&swap_lanes(warp, &format!("{warp} {own}")), 1, 64).unwrap();
    // In two instructions, so that one of the values is lost.
    let twice = |second: &str| {
        kernel(&format!(
            "setp.eq.u32 %p1, %r1, 0;\n setp.eq.u32 %p2, %r1, 1;\n @%p1 st.shared.u32 [s], 7;\n @%p2 {second};"
        ))
    };
    run(&twice("st.shared.u32 [s], 7"), 1, 32).unwrap();
    let wrote = "shared-memory race at byte 0: lane 0 wrote, lane 1 of its warp";
    must_fail(&twice("st.shared.u32 [s], 8"), 1, 32, &format!("{wrote} writes"), "[s], 8");
    must_fail(&twice("atom.shared.add.u32 %r2, [s], 1"), 1, 32, &format!("{wrote} has an atomic"), "atom");
    // Two lanes read; the second barrier is what the first of them needs.
    let both = "ld.shared.u32 %r7, [%r4];";
    must_fail(&swap_lanes(warp, both), 1, 64, "shared-memory race at byte 0: another lane read", "[%r4], %r6");
    run(&swap_lanes(warp, &format!("{both} {warp}")), 1, 64).unwrap();
}

/// Thread 0 writes, the first lane of each warp reads, and thread 0 writes again with no barrier between.
#[test]
fn races_are_seen_in_every_order() {
    let text = kernel(
        "setp.eq.u32 %p2, %r1, 0; and.b32 %r2, %r1, 31; setp.eq.u32 %p1, %r2, 0;
  @%p2 st.shared.u32 [s], 1;
  bar.sync 0;
  @%p1 ld.shared.u32 %r3, [s];
  @%p2 st.shared.u32 [s], 2;",
    );
    let module = Module::parse(&text).unwrap();
    for order in Order::ALL {
        let mut machine = Machine::new();
        let fault = machine.launch(&module, "k", 1, 64, 0, &[0, 0], order).expect_err("no fault");
        assert!(fault.what.contains("shared-memory race at byte 0: warp"), "{fault}");
    }
}

/// Each thread copies 16 bytes and reads them, or those of a neighbour.
fn copies(wait: &str, neighbour: u32) -> String {
    kernel(&format!(
        "shl.b32 %r2, %r1, 4; mov.u32 %r3, s; add.u32 %r4, %r3, %r2; cvt.u64.u32 %rd3, %r2; add.u64 %rd4, %rd1, %rd3;
  cp.async.cg.shared.global [%r4], [%rd4], 16;
  cp.async.commit_group;
  {wait}
  xor.b32 %r5, %r2, {}; add.u32 %r5, %r5, %r3;
  ld.shared.u32 %r6, [%r5];",
        16 * neighbour
    ))
}

#[test]
fn asynchronous_copies() {
    run(&copies("cp.async.wait_group 0;", 0), 1, 64).unwrap();
    run(&copies("cp.async.wait_all;\n bar.sync 0;", 32), 1, 64).unwrap();
    run(&copies("cp.async.wait_all;\n bar.warp.sync 0xffffffff;", 1), 1, 64).unwrap();
    let under_way = "shared memory read at byte 0 while a cp.async to it is under way";
    must_fail(&copies("", 0), 1, 64, under_way, "ld.shared.u32");
    must_fail(&copies("cp.async.wait_group 1;", 0), 1, 64, under_way, "ld.shared.u32");
    must_fail(&copies("bar.sync 0;", 0), 1, 64, under_way, "ld.shared.u32");
    let by_lane = "copied by cp.async of lane 1, and lane 0 reads it with no barrier between";
    must_fail(&copies("cp.async.wait_all;", 1), 1, 64, by_lane, "ld.shared.u32");
    let twice = copies("cp.async.ca.shared.global [%r4], [%rd4], 4;", 0);
    must_fail(&twice, 1, 32, "written at byte 0 while a cp.async to it is under way", "cp.async.ca");
}

#[test]
fn lanes_that_write_different_values_to_one_address() {
    let message = "lanes 0 and 1 write different values to one address";
    must_fail(&kernel("st.global.u32 [%rd2], %r1;"), 1, 32, message, "st.global.u32");
    let race = "shared-memory race at byte 0: lane 0 wrote, lane 1 of its warp writes";
    must_fail(&kernel("st.shared.u32 [s], %r1;"), 1, 32, race, "st.shared.u32");
    run(&kernel("{ .local .align 4 .b8 l[4];\n st.local.u32 [l], %r1;\n }"), 1, 32).unwrap();
}

#[test]
fn races_between_blocks() {
    let own = "mov.u32 %r2, %ctaid.x; mul.wide.u32 %rd3, %r2, 4; add.u64 %rd4, %rd2, %rd3;\n";
    run(&kernel(&format!("{own} st.global.u32 [%rd4], %r2; ld.global.u32 %r3, [%rd4];")), 8, 1).unwrap();
    must_fail(&kernel("st.global.u32 [%rd2], %r1;"), 2, 1, "block 0 wrote what block 1 writes", "st.global.u32");
    let neighbour = format!("{own} st.global.u32 [%rd4+4], %r2;\n ld.global.u32 %r3, [%rd4];");
    must_fail(
        &kernel(
            &neighbour
                .replace("ld.global", "@%p1 ld.global")
                .replace(own, &format!("{own} setp.ne.u32 %p1, %r2, 0;\n")),
        ),
        8,
        1,
        "block 0 wrote what block 1 reads",
        "ld.global.u32 %r3",
    );
    let late = format!("{own} ld.global.u32 %r3, [%rd1]; setp.eq.u32 %p1, %r2, 3;\n @%p1 st.global.u32 [%rd1], %r3;");
    must_fail(&kernel(&late), 4, 1, "several blocks read what block 3 writes", "st.global.u32");
    // Bytes of one word are not one place.
    let bytes = "mov.u32 %r2, %ctaid.x; cvt.u64.u32 %rd3, %r2; add.u64 %rd4, %rd2, %rd3;\n st.global.u8 [%rd4], %r2;";
    run(&kernel(bytes), 8, 1).unwrap();
    run(&kernel("red.global.add.u32 [%rd1], 1;"), 8, 32).unwrap();
    must_fail(
        &kernel("red.global.add.u32 [%rd1], 1;\n ld.global.u32 %r2, [%rd1];"),
        8,
        1,
        "what block 1 has an atomic",
        "red.global",
    );
}

#[test]
fn races_between_warps_in_global_memory() {
    let exchange = |first: &str, second: &str| {
        kernel(&format!(
            "xor.b32 %r2, %r1, 32; mad.wide.u32 %rd3, %r1, 4, %rd2; mad.wide.u32 %rd4, %r2, 4, %rd2;
  st.global.u32 [%rd3], %r1;
  {first}
  ld.global.u32 %r3, [%rd4];
  {second}
  st.global.u32 [%rd3], %r3;"
        ))
    };
    run(&exchange("bar.sync 0;", "bar.sync 0;"), 1, 64).unwrap();
    run(&exchange("barrier.sync 3, 64;", "bar.sync 0;"), 2, 64).expect_err("both blocks write the same words");
    must_fail(&exchange("", "bar.sync 0;"), 1, 64, "global memory read that nobody wrote", "ld.global.u32");
    let message = "global-memory race: warp 0 wrote what warp 1 reads with no barrier between";
    must_fail(&exchange("bar.sync 0;", ""), 1, 64, message, "ld.global.u32");
    let read_first = "setp.ge.u32 %p1, %r1, 32; mad.wide.u32 %rd3, %r1, 4, %rd1;
  ld.global.u32 %r5, [%rd1+128];
  MORE
  @%p1 st.global.u32 [%rd3], 0;";
    run(&kernel(&read_first.replace("MORE", "bar.sync 0;")), 1, 64).unwrap();
    let message = "global-memory race: warp 0 read what warp 1 writes";
    must_fail(&kernel(&read_first.replace("MORE", "")), 1, 64, message, "@%p1 st.global.u32");
}

#[test]
fn shuffles() {
    let full = "shfl.sync.bfly.b32 %r2, %r1, 1, 31, 0xffffffff;";
    run(&kernel(full), 1, 64).unwrap();
    must_fail(
        &kernel("shfl.sync.bfly.b32 %r2, %r1, 1, 31, 0x0000ffff;"),
        1,
        32,
        "lane 16 runs it but is not in its mask",
        "shfl.sync",
    );
    let half = format!("setp.lt.u32 %p1, %r1, 16;\n @%p1 {full}");
    must_fail(&kernel(&half), 1, 32, "lane 16 is in the mask 0xffffffff but is elsewhere", "shfl.sync");
    let gone = format!("setp.lt.u32 %p1, %r1, 16;\n @%p1 exit;\n {full}");
    must_fail(&kernel(&gone), 1, 32, "lane 0 is in the mask 0xffffffff but has left", "shfl.sync");
    let outside = "setp.ge.u32 %p1, %r1, 16;\n @%p1 exit;\n shfl.sync.idx.b32 %r2, %r1, 20, 31, 0x0000ffff;";
    must_fail(&kernel(outside), 1, 32, "reads from lane 20, which does not take part", "shfl.sync");
}

#[test]
fn barriers() {
    let half = "setp.lt.u32 %p1, %r1, 16;\n @%p1 bar.sync 0;";
    must_fail(&kernel(half), 1, 32, "divergent barrier: 16 of 32 lanes reach it, lane 16 does not", "bar.sync");
    let one_warp = "setp.lt.u32 %p1, %r1, 32;\n @%p1 bra ON;\n bra OFF;\nON:\n bar.sync 1;\nOFF:\n bar.sync 0;";
    must_fail(&kernel(one_warp), 1, 64, "deadlock", "bar.sync 0");
    // Threads that have left do not count.
    run(&kernel("setp.lt.u32 %p1, %r1, 32;\n @%p1 exit;\n bar.sync 0;"), 1, 64).unwrap();
    must_fail(&kernel("bar.sync 0, 40;"), 1, 64, "no whole warps", "bar.sync");
}

#[test]
fn launches() {
    let launch = |text: &str, block: [u32; 3], shared: u32| {
        let module = Module::parse(text).unwrap();
        let mut machine = Machine::new();
        machine.launch(&module, "k", 1, block, shared, &[0, 0], Order::FORWARD).unwrap_err().to_string()
    };
    let required = kernel_with(".reqntid 64, 2, 1", "");
    assert!(launch(&required, [128, 1, 1], 0).contains(".reqntid says [64, 2, 1]"));
    assert!(launch(&kernel_with(".maxntid 64", ""), [65, 1, 1], 0).contains(".maxntid says [64, 1, 1]"));
    assert!(launch(&kernel(""), [1025, 1, 1], 0).contains("a block of [1025, 1, 1] threads"));
    assert!(launch(&kernel(""), [0, 1, 1], 0).contains("an empty launch"));
    assert!(launch(&kernel(""), [1, 1, 1], 227 << 10).contains("shared memory are too many"));
    let static_shared = kernel("").replace("s[4096]", "s[50000]");
    let refused = Module::parse(&static_shared).unwrap_err().to_string();
    assert!(refused.contains("50000 bytes of static shared memory are too many"), "{refused}");
    must_fail(&kernel("trap;"), 1, 1, "trap", "trap");
}

#[test]
fn parameters_beyond_what_a_version_allows() {
    let entry = |version: &str, n: usize| {
        let parameters: Vec<String> = (0..n).map(|n| format!(".param .u64 p{n}")).collect();
        let parameters = parameters.join(", ");
        Module::parse(&format!(".version {version}\n.target sm_75\n.visible .entry k({parameters}) {{ ret; }}"))
    };
    entry("7.8", 512).unwrap();
    assert!(entry("7.8", 513).unwrap_err().to_string().contains("more than 4096 bytes of parameters"));
    entry("8.1", 513).unwrap();
    assert!(entry("8.1", 4096).unwrap_err().to_string().contains("more than 32764 bytes of parameters"));
}

#[test]
fn text_that_is_not_known() {
    let error = |body: &str| Module::parse(&kernel(body)).unwrap_err();
    for (body, message) in [
        ("frobnicate.u32 %r1, %r1;", "unknown instruction frobnicate.u32"),
        ("add.rz.f32 %f1, %f1, %f1;", "unknown instruction add.rz.f32"),
        ("ld.global.wild.u32 %r2, [%rd1];", "unknown modifier .wild"),
        ("ld.shared.nc.u32 %r2, [s];", "unknown modifier .nc"),
        ("ld.global.L1::sometimes.u32 %r2, [%rd1];", "unknown modifier .L1::sometimes"),
        ("add.u32 %r2, %r1, %tid.x;", "a special register, which only mov and cvt read"),
        ("mov.u32 %r2, 0f3F800000;", "a number that is not of type .u32"),
        ("add.u32 _, %r1, %r1;", "the result must go somewhere"),
        ("st.global.v2.u32 [%rd1], {%r1, 2};", "the destination is not a register"),
        ("ld.global.f16 %h1, [%rd1];", "memory is not accessed as .f16"),
        ("add.u32 %r2, %r1, %r99;", "undeclared register %r99"),
        ("add.u32 %r2, %r1, %rd1;", "a register of type .b64 where .u32 is needed"),
        ("add.f32 %f1, %f1, %r1x;", "undeclared register %r1x"),
        ("bra NOWHERE;", "no label NOWHERE"),
        (";", "a semicolon with nothing before it"),
        ("ld.global.u32 %r2, [16];", "an address that is a number"),
        ("ld.param.u64 %rd1, [pz];", "unknown parameter pz"),
        ("ld.global.u32 %r2, [%r1];", "a global address has 64 bits"),
        ("mov.u32 %r2;", "1 operands"),
        ("cp.async.cg.shared.global [s], [%rd1], 8;", "cp.async of 8 bytes"),
        ("cvt.f32.s32 %f1, %r1;", "with this rounding"),
        ("mma.sync.aligned.m16n8k9.row.col.f32.f16.f16.f32 {%f1}, {%r1}, {%r1}, {%f1};", "unknown matrix product"),
    ] {
        let found = error(body);
        assert!(found.what.contains(message), "{found}");
        assert_eq!(found.line, 11, "{found}");
    }
}
