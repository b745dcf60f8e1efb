//! The work of lanes, warps and blocks together: shuffles, votes, matrices, atomics, barriers, divergence, spaces of
//! memory.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use retape_cuda_sim::{Machine, Module, Order};

/// Runs a kernel `k` of one pointer, `%rd1`, to `n` words that it writes; the word of each thread is at `%rd2`, the
/// number of the thread in its block is `%r1`.
fn run(body: &str, grid: [u32; 3], block: [u32; 3], n: usize) -> Vec<u32> {
    run_with("", body, grid, block, n)
}

/// As above, with declarations of the module.
fn run_with(module: &str, body: &str, grid: [u32; 3], block: [u32; 3], n: usize) -> Vec<u32> {
    let text = format!(
        ".version 8.0
.target sm_90
.address_size 64
{module}
.visible .entry k(.param .u64 pa) {{
  .reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<32>; .reg .b64 %rd<16>; .reg .f32 %f<16>; .reg .f64 %d<8>;
  ld.param.u64 %rd1, [pa];
  mov.u32 %r1, %tid.x; mov.u32 %r30, %ctaid.x; mov.u32 %r31, %ntid.x; mad.lo.u32 %r31, %r30, %r31, %r1;
  mad.wide.u32 %rd2, %r31, 4, %rd1;
{body}
  ret;
}}"
    );
    let module = Module::parse(&text).unwrap_or_else(|error| panic!("{error}"));
    let results = Order::ALL.map(|order| {
        let mut machine = Machine::new();
        let a = machine.put(&vec![0_u32; n]);
        machine.launch(&module, "k", grid, block, 64, &[a], order).unwrap_or_else(|fault| panic!("{fault}"));
        machine.get::<u32>(a, n).unwrap()
    });
    assert!(results.iter().all(|result| *result == results[0]), "the order matters");
    results[0].clone()
}

fn warp(body: &str) -> Vec<u32> {
    run(body, [1; 3], [32, 1, 1], 32)
}

fn each(f: impl Fn(u32) -> u32) -> Vec<u32> {
    (0..32).map(f).collect()
}

#[test]
fn shuffles() {
    let store = "st.global.u32 [%rd2], %r2;";
    let shuffle = |text: &str| warp(&format!("mul.lo.u32 %r3, %r1, 10;\n {text}\n {store}"));
    assert_eq!(shuffle("shfl.sync.bfly.b32 %r2, %r3, 5, 31, -1;"), each(|lane| 10 * (lane ^ 5)));
    assert_eq!(shuffle("shfl.sync.idx.b32 %r2, %r3, 7, 31, -1;"), each(|_| 70));
    assert_eq!(
        shuffle("shfl.sync.up.b32 %r2, %r3, 3, 0, -1;"),
        each(|lane| 10 * if lane < 3 { lane } else { lane - 3 })
    );
    assert_eq!(
        shuffle("shfl.sync.down.b32 %r2, %r3, 3, 31, -1;"),
        each(|lane| 10 * if lane > 28 { lane } else { lane + 3 })
    );
    // Segments of eight lanes.
    let in_segment = each(|lane| 10 * if lane % 8 == 7 { lane } else { lane + 1 });
    assert_eq!(shuffle("shfl.sync.down.b32 %r2, %r3, 1, 0x1807, -1;"), in_segment);
    assert_eq!(shuffle("shfl.sync.idx.b32 %r2, %r3, 2, 0x181f, -1;"), each(|lane| 10 * (lane / 8 * 8 + 2)));
    let in_range = "shfl.sync.up.b32 %r2|%p1, %r3, 3, 0, -1; selp.u32 %r2, 1, 0, %p1;";
    assert_eq!(shuffle(in_range), each(|lane| (lane >= 3).into()));
}

#[test]
fn votes_and_reductions() {
    let store = "st.global.u32 [%rd2], %r2;";
    let odd = "and.b32 %r3, %r1, 1; setp.eq.u32 %p1, %r3, 1;";
    let vote = |text: &str| warp(&format!("{odd} {text} {store}"))[0];
    assert_eq!(vote("vote.sync.ballot.b32 %r2, %p1, -1;"), 0xaaaa_aaaa);
    assert_eq!(vote("vote.sync.ballot.b32 %r2, !%p1, -1;"), 0x5555_5555);
    assert_eq!(vote("vote.sync.any.pred %p2, %p1, -1; selp.u32 %r2, 1, 0, %p2;"), 1);
    assert_eq!(vote("vote.sync.all.pred %p2, %p1, -1; selp.u32 %r2, 1, 0, %p2;"), 0);
    assert_eq!(vote("vote.sync.uni.pred %p2, %p1, -1; selp.u32 %r2, 1, 0, %p2;"), 0);
    assert_eq!(vote("match.any.sync.b32 %r2, %r3, -1;"), 0x5555_5555);
    assert_eq!(vote("match.all.sync.b32 %r2|%p2, %r3, -1;"), 0);
    assert_eq!(vote("redux.sync.add.u32 %r2, %r1, -1;"), 496);
    assert_eq!(vote("neg.s32 %r4, %r1; redux.sync.min.s32 %r2, %r4, -1;"), -31_i32 as u32);
    assert_eq!(vote("redux.sync.xor.b32 %r2, %r1, -1;"), 0);
    assert_eq!(vote("activemask.b32 %r2;"), u32::MAX);
    assert_eq!(vote("elect.sync %r4|%p2, -1; selp.u32 %r2, 1, 0, %p2;"), 1);
    // Half of the warp.
    let half = "setp.lt.u32 %p1, %r1, 16; mov.u32 %r2, 0; @!%p1 bra ON; redux.sync.add.u32 %r2, %r1, 0xffff; ON:";
    assert_eq!(warp(&format!("{half} {store}")), each(|lane| if lane < 16 { 120 } else { 0 }));
}

#[test]
fn lanes_meet_again_behind_branches_and_loops() {
    // Each lane goes round as often as its number says, on one of two ways; then all shuffle.
    let body = "mov.u32 %r2, 0; mov.u32 %r3, 0;
LOOP:
  setp.ge.u32 %p1, %r2, %r1;
  @%p1 bra DONE;
  and.b32 %r4, %r2, 1; setp.eq.u32 %p2, %r4, 0;
  @%p2 bra EVEN;
  add.u32 %r3, %r3, 100;
  bra NEXT;
EVEN:
  add.u32 %r3, %r3, 1;
NEXT:
  add.u32 %r2, %r2, 1;
  bra LOOP;
DONE:
  shfl.sync.bfly.b32 %r5, %r3, 31, 31, -1;
  st.global.u32 [%rd2], %r5;";
    assert_eq!(warp(body), each(|lane| (31 - lane).div_ceil(2) + 100 * ((31 - lane) / 2)));
    let table = "and.b32 %r2, %r1, 3; mov.u32 %r3, 9;
TABLE: .branchtargets A, B, A, C;
  brx.idx %r2, TABLE;
A: mov.u32 %r3, 1; bra.uni END;
B: mov.u32 %r3, 2; bra.uni END;
C: mov.u32 %r3, 3;
END: st.global.u32 [%rd2], %r3;";
    assert_eq!(warp(table), each(|lane| [1, 2, 1, 3][lane as usize % 4]));
}

#[test]
fn grids_and_blocks_have_three_extents() {
    let body = "mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z; mov.u32 %r4, %ctaid.y; mov.u32 %r5, %ctaid.z;
  mov.u32 %r6, %nctaid.z; mov.u32 %r7, %ntid.y;
  mad.lo.u32 %r8, %r5, 2, %r4; mad.lo.u32 %r8, %r8, 2, %r30;
  mad.lo.u32 %r8, %r8, 4, %r3; mad.lo.u32 %r8, %r8, %r7, %r2; mad.lo.u32 %r8, %r8, 5, %r1;
  mad.wide.u32 %rd3, %r8, 4, %rd1;
  mad.lo.u32 %r9, %r6, 1000, %r8;
  st.global.u32 [%rd3], %r9;";
    let found = run(body, [2, 2, 3], [5, 3, 4], 12 * 60);
    assert_eq!(found, (3000..3720).collect::<Vec<u32>>());
}

#[test]
fn spaces_of_memory() {
    let module = ".const .align 4 .b32 table[4] = {7, 8, 9, -1};
.const .f32 half = 0f3F000000;
.global .align 4 .u32 words[2] = {5, 6};
.extern .shared .align 16 .b8 dynamic[];";
    let body = ".shared .align 4 .b8 fixed[20];
  .local .align 8 .b8 mine[16];
  and.b32 %r2, %r1, 3; shl.b32 %r3, %r2, 2; cvt.u64.u32 %rd4, %r3; mov.u64 %rd5, table; add.u64 %rd5, %rd5, %rd4;
  ld.const.u32 %r4, [%rd5]; ld.const.u32 %r5, [table+8]; ld.const.f32 %f1, [half]; cvt.rzi.u32.f32 %r6, %f1;
  mov.u64 %rd6, words; ld.global.u32 %r7, [%rd6+4]; ld.global.u32 %r8, [words];
  st.local.v2.u32 [mine+8], {%r1, %r4}; ld.local.u64 %rd7, [mine+8]; mov.b64 {%r9, %r10}, %rd7;
  mov.u64 %rd8, mine; cvta.local.u64 %rd8, %rd8; ld.u32 %r11, [%rd8+12];
  setp.ne.u32 %p1, %r1, 0;
  @!%p1 st.shared.u32 [dynamic+4], 40; @!%p1 st.shared.u32 [fixed+16], 2;
  bar.sync 0;
  mov.u32 %r12, dynamic; ld.shared.u32 %r13, [%r12+4]; add.u32 %r13, %r13, %r12;
  mov.u64 %rd9, fixed; cvta.shared.u64 %rd9, %rd9; ld.u32 %r14, [%rd9+16];
  mov.u32 %r15, %dynamic_smem_size;
  add.u32 %r4, %r4, %r5; add.u32 %r4, %r4, %r6; add.u32 %r4, %r4, %r7; add.u32 %r4, %r4, %r8; add.u32 %r4, %r4, %r9;
  add.u32 %r4, %r4, %r10; add.u32 %r4, %r4, %r11; add.u32 %r4, %r4, %r13; add.u32 %r4, %r4, %r14;
  add.u32 %r4, %r4, %r15;
  st.global.u32 [%rd2], %r4;";
    let table = [7, 8, 9, u32::MAX];
    // Dynamic memory begins at 32, behind 20 bytes in steps of 16.
    let wanted = each(|lane| {
        let own = table[lane as usize % 4];
        own.wrapping_mul(3).wrapping_add(9 + 6 + 5 + lane + 40 + 32 + 2 + 64)
    });
    assert_eq!(run_with(module, body, [1; 3], [32, 1, 1], 32), wanted);
}

#[test]
fn atomics() {
    let integer = |op: &str| run(op, [4, 1, 1], [64, 1, 1], 256)[0];
    assert_eq!(integer("red.global.add.u32 [%rd1], %r1;"), 4 * 2016);
    assert_eq!(integer("red.global.max.s32 [%rd1], %r1;"), 63);
    assert_eq!(integer("red.global.or.b32 [%rd1], %r1;"), 63);
    assert_eq!(integer("red.relaxed.gpu.global.inc.u32 [%rd1], 100;"), 256 - 101 * 2);
    assert_eq!(integer("atom.global.exch.b32 %r2, [%rd1], 5;"), 5);
    // A counter by compare and swap, one lane of each warp at a time.
    let cas = "and.b32 %r5, %r1, 31; setp.ne.u32 %p1, %r5, 0; @%p1 exit; ld.relaxed.gpu.global.u32 %r2, [%rd1];
AGAIN:
  add.u32 %r3, %r2, 1; atom.global.cas.b32 %r4, [%rd1], %r2, %r3;
  setp.ne.u32 %p2, %r4, %r2; mov.u32 %r2, %r4; @%p2 bra AGAIN;";
    assert_eq!(integer(cas), 8);
    let shared = ".shared .align 4 .u32 sum; setp.ne.u32 %p1, %r1, 0; @!%p1 st.shared.u32 [sum], 0; bar.sync 0;
  atom.shared.add.u32 %r2, [sum], 1; bar.sync 0; ld.shared.u32 %r3, [sum]; st.global.u32 [%rd2], %r3;";
    assert_eq!(run(shared, [1; 3], [64, 1, 1], 64), vec![64; 64]);
}

/// Global memory flushes singles that are added in it; shared memory does not, and nothing flushes doubles.
#[test]
fn atomic_sums_of_subnormal_numbers() {
    // Half of the least normal number, 32 times.
    let half = "mov.f32 %f1, 0f00400000;";
    assert_eq!(warp(&format!("{half} red.global.add.f32 [%rd1], %f1;"))[0], 0);
    let shared = format!(
        "{half} .shared .align 4 .f32 sum; setp.ne.u32 %p1, %r1, 0; @!%p1 st.shared.u32 [sum], 0; bar.sync 0;
  atom.shared.add.f32 %f2, [sum], %f1; bar.sync 0; ld.shared.u32 %r3, [sum]; st.global.u32 [%rd2], %r3;"
    );
    assert_eq!(warp(&shared), vec![f32::MIN_POSITIVE.to_bits() + (4 << 23); 32]);
    assert_eq!(warp("mov.f64 %d1, 0d0000000000000001; red.global.add.f64 [%rd1], %d1;")[0], 32);
}

#[test]
fn barriers_of_some_warps() {
    // Two pairs of warps exchange words, each pair at a barrier of its own.
    let body = ".shared .align 4 .b8 s[512]; mov.u32 %r2, s; mad.lo.u32 %r3, %r1, 4, %r2;
  st.shared.u32 [%r3], %r1; shr.u32 %r4, %r1, 6; add.u32 %r4, %r4, 1;
  barrier.sync %r4, 64;
  xor.b32 %r5, %r1, 32; mad.lo.u32 %r5, %r5, 4, %r2; ld.shared.u32 %r6, [%r5];
  st.global.u32 [%rd2], %r6;";
    let found = run(body, [1; 3], [128, 1, 1], 128);
    assert_eq!(found, (0..128).map(|thread| thread ^ 32).collect::<Vec<u32>>());
    // The first warp brings, the second waits.
    let arrive = ".shared .align 4 .b8 s[128]; mov.u32 %r2, s; and.b32 %r3, %r1, 31; mad.lo.u32 %r3, %r3, 4, %r2;
  setp.ge.u32 %p1, %r1, 32; mov.u32 %r4, 0; @%p1 bra TAKE;
  st.shared.u32 [%r3], %r1; barrier.arrive 1, 64; bra DONE;
TAKE:
  barrier.sync 1, 64; ld.shared.u32 %r4, [%r3];
DONE:
  st.global.u32 [%rd2], %r4;";
    let wanted: Vec<u32> = (0..64).map(|thread: u32| thread.saturating_sub(32)).collect();
    assert_eq!(run(arrive, [1; 3], [64, 1, 1], 64), wanted);
}

#[test]
fn matrices_go_to_shared_memory_and_back() {
    // Rows of eight halves, the half at row r and column c is 8 r + c; each lane has two neighbours.
    let body = ".shared .align 16 .b8 s[128]; mov.u32 %r2, s; and.b32 %r3, %r1, 7; mad.lo.u32 %r3, %r3, 16, %r2;
  shl.b32 %r4, %r1, 1; add.u32 %r5, %r4, 1; shl.b32 %r5, %r5, 16; or.b32 %r4, %r4, %r5;
  stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r3], {%r4};
  bar.sync 0;
  MORE
  st.global.u32 [%rd2], %r6;";
    let back = body.replace("MORE", "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r6}, [%r3];");
    assert_eq!(warp(&back), each(|lane| (2 * lane) | ((2 * lane + 1) << 16)));
    let plain = body.replace("MORE", "mad.lo.u32 %r7, %r1, 4, %r2; ld.shared.u32 %r6, [%r7];");
    assert_eq!(warp(&plain), each(|lane| (2 * lane) | ((2 * lane + 1) << 16)));
    let transposed = body.replace("MORE", "ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%r6}, [%r3];");
    let at = |row: u32, column: u32| 8 * row + column;
    assert_eq!(warp(&transposed), each(|lane| at(2 * (lane % 4), lane / 4) | at(2 * (lane % 4) + 1, lane / 4) << 16));
}

#[test]
fn products_of_halves_and_of_doubles() {
    // All factors are one: each sum is the depth, plus what was there.
    let half = "mov.u32 %r2, 0x3c003c00; mov.u32 %r3, 0x40004000;
  mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%r4, %r5}, {%r2, %r2, %r2, %r2}, {%r2, %r2}, {%r3, %r3};
  st.global.u32 [%rd2], %r5;";
    assert_eq!(warp(half), each(|_| 0x4c80_4c80));
    let single = "mov.u32 %r2, 0x3c003c00; mov.f32 %f1, 0f3F800000;
  mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f2, %f3, %f4, %f5}, {%r2, %r2}, {%r2}, {%f1, %f1, %f1, %f1};
  st.global.f32 [%rd2], %f4;";
    assert_eq!(warp(single), each(|_| 9_f32.to_bits()));
    // Row i of the first factor is i, column j of the second is j: the sum at (i, j) is 4 i j.
    let double = "shr.u32 %r2, %r1, 2; cvt.rn.f64.u32 %d1, %r2; mov.f64 %d2, 0d0000000000000000;
  mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%d3, %d4}, {%d1}, {%d1}, {%d2, %d2};
  cvt.rzi.u32.f64 %r3, %d3; cvt.rzi.u32.f64 %r4, %d4; mad.lo.u32 %r3, %r4, 1000, %r3;
  st.global.u32 [%rd2], %r3;";
    let sum = |row: u32, column: u32| 4 * row * column;
    assert_eq!(warp(double), each(|lane| sum(lane / 4, 2 * (lane % 4)) + 1000 * sum(lane / 4, 2 * (lane % 4) + 1)));
}

#[test]
fn copies_fill_up_with_zeros() {
    let body = ".shared .align 16 .b8 s[1024]; mov.u32 %r2, s; mad.lo.u32 %r3, %r1, 16, %r2; and.b32 %r4, %r1, 16;
  st.global.u32 [%rd2], -1; bar.sync 0; mov.u64 %rd3, %rd1;
  cp.async.cg.shared.global.L2::128B [%r3], [%rd3], 16, %r4; cp.async.commit_group; cp.async.wait_group 0;
  ld.shared.v4.u32 {%r5, %r6, %r7, %r8}, [%r3]; bar.sync 0; st.global.u32 [%rd2], %r8;";
    assert_eq!(warp(body), each(|lane| if lane < 16 { 0 } else { u32::MAX }));
}
