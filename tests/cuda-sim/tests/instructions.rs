//! The results of single instructions, lane by lane, against values from the manual or from Rust's own arithmetic.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use retape_cuda_sim::{Machine, Module, Order};

/// Runs an instruction once for each row of operands, all as raw bits; `{d}`, `{a}`, `{b}`, `{c}` are the operands.
fn eval(instruction: &str, to: &str, from: &[&str], rows: &[Vec<u64>]) -> Vec<u64> {
    let mut body = String::new();
    // A block of its own ends with a brace.
    let end = if instruction.starts_with("{ ") { "" } else { ";" };
    let mut text = instruction.replace("{d}", "%d") + end;
    for (n, ty) in from.iter().enumerate() {
        let name = ["a", "b", "c", "e"][n];
        text = text.replace(&format!("{{{name}}}"), &format!("%{name}"));
        if *ty == "pred" {
            body += &format!("  .reg .pred %{name}; ld.global.u32 %t, [%rd1+{}]; setp.ne.u32 %{name}, %t, 0;\n", 8 * n);
        } else {
            body += &format!("  .reg .{ty} %{name}; ld.global.{ty} %{name}, [%rd1+{}];\n", 8 * n);
        }
    }
    let store = match to {
        "pred" => "selp.u32 %t, 1, 0, %d; st.global.u32 [%rd2], %t;".to_owned(),
        _ => format!("st.global.{to} [%rd2], %d;"),
    };
    let module = format!(
        ".version 7.8
.target sm_90
.address_size 64
.visible .entry k(.param .u64 pa, .param .u64 pd, .param .u32 pn) {{
  .reg .pred %q; .reg .b32 %r1, %n, %t; .reg .b64 %rd<4>; .reg .{to} %d;
  ld.param.u64 %rd1, [pa]; ld.param.u64 %rd2, [pd]; ld.param.u32 %n, [pn];
  mov.u32 %r1, %tid.x; setp.ge.u32 %q, %r1, %n; @%q exit;
  mad.wide.u32 %rd1, %r1, 32, %rd1; mad.wide.u32 %rd2, %r1, 8, %rd2;
{body}  {text}
  {store}
  ret;
}}"
    );
    let module = Module::parse(&module).unwrap_or_else(|error| panic!("{error}\n{module}"));
    let flat: Vec<u64> = rows.iter().flat_map(|row| (0..4).map(|n| row.get(n).copied().unwrap_or(0))).collect();
    let mut machine = Machine::new();
    let (a, d) = (machine.put(&flat), machine.put(&vec![0_u64; rows.len()]));
    let block = (rows.len() as u32).next_multiple_of(32);
    machine.launch(&module, "k", 1, block, 0, &[a, d, rows.len() as u64], Order::FORWARD).unwrap();
    machine.get(d, rows.len()).unwrap()
}

/// Results of one row of operands and what they must be.
#[track_caller]
fn check(instruction: &str, to: &str, from: &[&str], cases: &[(&[u64], u64)]) {
    let rows: Vec<Vec<u64>> = cases.iter().map(|(row, _)| row.to_vec()).collect();
    for ((row, wanted), got) in cases.iter().zip(eval(instruction, to, from, &rows)) {
        assert_eq!(got, *wanted, "{instruction} of {row:x?}: {got:#x}, not {wanted:#x}");
    }
}

fn f(x: f32) -> u64 {
    x.to_bits().into()
}

fn g(x: f64) -> u64 {
    x.to_bits()
}

/// The NaN that hardware makes.
const NAN: u64 = 0x7fff_ffff;

const SPECIAL: [f32; 14] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    1.5,
    -2.5,
    0.1,
    1e-40,
    -1e-40,
    f32::MIN_POSITIVE,
    f32::MAX,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
];

#[test]
fn single_precision_is_that_of_the_processor() {
    let pairs: Vec<Vec<u64>> = SPECIAL.iter().flat_map(|a| SPECIAL.iter().map(|b| vec![f(*a), f(*b)])).collect();
    let bits = |x: f32| if x.is_nan() { NAN } else { f(x) };
    let get = |row: &[u64], n: usize| f32::from_bits(row[n] as u32);
    type Binary = fn(f32, f32) -> f32;
    let table: [(&str, Binary); 4] = [
        ("add.rn.f32 {d}, {a}, {b}", |a, b| a + b),
        ("sub.f32 {d}, {a}, {b}", |a, b| a - b),
        ("mul.rn.f32 {d}, {a}, {b}", |a, b| a * b),
        ("div.rn.f32 {d}, {a}, {b}", |a, b| a / b),
    ];
    for (text, rust) in table {
        for (row, got) in pairs.iter().zip(eval(text, "f32", &["f32", "f32"], &pairs)) {
            assert_eq!(got, bits(rust(get(row, 0), get(row, 1))), "{text} {row:x?}");
        }
    }
    let fused = eval("fma.rn.f32 {d}, {a}, {b}, {a}", "f32", &["f32", "f32"], &pairs);
    for (row, got) in pairs.iter().zip(fused) {
        assert_eq!(got, bits(get(row, 0).mul_add(get(row, 1), get(row, 0))), "fma {row:x?}");
    }
}

#[test]
fn minimum_and_maximum() {
    let nan = f(f32::NAN);
    check(
        "min.f32 {d}, {a}, {b}",
        "f32",
        &["f32"; 2],
        &[
            (&[f(0.0), f(-0.0)], f(-0.0)),
            (&[f(-0.0), f(0.0)], f(-0.0)),
            (&[nan, f(1.0)], f(1.0)),
            (&[f(1.0), nan], f(1.0)),
            (&[nan, nan], NAN),
        ],
    );
    check(
        "max.f32 {d}, {a}, {b}",
        "f32",
        &["f32"; 2],
        &[
            (&[f(0.0), f(-0.0)], f(0.0)),
            (&[f(-0.0), f(0.0)], f(0.0)),
            (&[nan, f(1.0)], f(1.0)),
            (&[f(2.0), f(1.0)], f(2.0)),
        ],
    );
    check(
        "max.NaN.f32 {d}, {a}, {b}",
        "f32",
        &["f32"; 2],
        &[(&[nan, f(1.0)], NAN), (&[f(1.0), nan], NAN), (&[f(1.0), f(2.0)], f(2.0))],
    );
    check(
        "min.f64 {d}, {a}, {b}",
        "f64",
        &["f64"; 2],
        &[(&[g(0.0), g(-0.0)], g(-0.0)), (&[g(f64::NAN), g(1.0)], g(1.0))],
    );
    check(
        "max.f16 {d}, {a}, {b}",
        "b16",
        &["b16"; 2],
        &[(&[0x8000, 0], 0), (&[0x7e00, 0x3c00], 0x3c00), (&[0x3c00, 0xbc00], 0x3c00)],
    );
    check("min.s32 {d}, {a}, {b}", "s32", &["s32"; 2], &[(&[0xffff_ffff, 1], 0xffff_ffff)]);
    check("min.u32 {d}, {a}, {b}", "u32", &["u32"; 2], &[(&[0xffff_ffff, 1], 1)]);
}

#[test]
fn flushes_and_saturations() {
    check(
        "add.ftz.f32 {d}, {a}, {b}",
        "f32",
        &["f32"; 2],
        &[(&[f(1e-40), f(0.0)], f(0.0)), (&[f(-1e-40), f(-0.0)], f(-0.0)), (&[f(1.0), f(1e-40)], f(1.0))],
    );
    check("mul.ftz.f32 {d}, {a}, {b}", "f32", &["f32"; 2], &[(&[f(1e-20), f(1e-20)], f(0.0))]);
    check(
        "add.sat.f32 {d}, {a}, {b}",
        "f32",
        &["f32"; 2],
        &[
            (&[f(1.0), f(1.0)], f(1.0)),
            (&[f(-1.0), f(0.5)], f(0.0)),
            (&[f(f32::NAN), f(0.5)], f(0.0)),
            (&[f(0.25), f(0.5)], f(0.75)),
        ],
    );
    check(
        "add.sat.s32 {d}, {a}, {b}",
        "s32",
        &["s32"; 2],
        &[(&[0x7fff_ffff, 1], 0x7fff_ffff), (&[0x8000_0000, 0xffff_ffff], 0x8000_0000)],
    );
    check("setp.eq.ftz.f32 {d}, {a}, {b}", "pred", &["f32"; 2], &[(&[f(1e-40), f(0.0)], 1)]);
    check("setp.eq.f32 {d}, {a}, {b}", "pred", &["f32"; 2], &[(&[f(1e-40), f(0.0)], 0)]);
}

#[test]
fn roots_and_reciprocals_are_rounded_correctly() {
    let rows: Vec<Vec<u64>> = (1..900_u32).map(|i| vec![f(i as f32 * 0.37)]).collect();
    for (row, got) in rows.iter().zip(eval("sqrt.rn.f32 {d}, {a}", "f32", &["f32"], &rows)) {
        let x = f32::from_bits(row[0] as u32);
        assert_eq!(got, f(f64::from(x).sqrt() as f32));
    }
    check("sqrt.rn.f32 {d}, {a}", "f32", &["f32"], &[(&[f(-0.0)], f(-0.0)), (&[f(-1.0)], NAN)]);
    check("rcp.rn.f32 {d}, {a}", "f32", &["f32"], &[(&[f(3.0)], f(1.0 / 3.0)), (&[f(-0.0)], f(f32::NEG_INFINITY))]);
    check("rsqrt.approx.f32 {d}, {a}", "f32", &["f32"], &[(&[f(4.0)], f(0.5)), (&[f(0.0)], f(f32::INFINITY))]);
    check("ex2.approx.f32 {d}, {a}", "f32", &["f32"], &[(&[f(-3.0)], f(0.125)), (&[f(f32::NEG_INFINITY)], f(0.0))]);
    check("lg2.approx.ftz.f32 {d}, {a}", "f32", &["f32"], &[(&[f(8.0)], f(3.0)), (&[f(1e-40)], f(f32::NEG_INFINITY))]);
    let quotients: [(&[u64], u64); 5] = [
        (&[f(3.0), f(2.0)], f(1.5)),
        (&[f(3e38), f(2e38)], f(0.0)),
        (&[f(f32::INFINITY), f(-1e38)], NAN),
        (&[f(1e-40), f(-1e-39)], f(f32::NEG_INFINITY)),
        (&[f(0.0), f(1e-39)], NAN),
    ];
    check("div.approx.f32 {d}, {a}, {b}", "f32", &["f32"; 2], &quotients);
    check("div.full.f32 {d}, {a}, {b}", "f32", &["f32"; 2], &[(&[f(3e38), f(2e38)], f(1.5))]);
    check("tanh.approx.f32 {d}, {a}", "f32", &["f32"], &[(&[f(f32::INFINITY)], f(1.0)), (&[f(0.0)], f(0.0))]);
    check("rcp.rn.f64 {d}, {a}", "f64", &["f64"], &[(&[g(3.0)], g(1.0 / 3.0))]);
    check("copysign.f32 {d}, {a}, {b}", "f32", &["f32"; 2], &[(&[f(-1.0), f(3.0)], f(-3.0))]);
    check("abs.f32 {d}, {a}", "f32", &["f32"], &[(&[f(-3.0)], f(3.0))]);
    check("neg.f64 {d}, {a}", "f64", &["f64"], &[(&[g(0.0)], g(-0.0))]);
}

#[test]
fn conversions_of_floats_to_integers_clamp() {
    check(
        "cvt.rzi.s32.f32 {d}, {a}",
        "s32",
        &["f32"],
        &[(&[f(-1.9)], -1_i32 as u32 as u64), (&[f(3e9)], 0x7fff_ffff), (&[f(-3e9)], 0x8000_0000), (&[f(f32::NAN)], 0)],
    );
    check(
        "cvt.rzi.u32.f32 {d}, {a}",
        "u32",
        &["f32"],
        &[(&[f(-5.0)], 0), (&[f(5e9)], 0xffff_ffff), (&[f(f32::NAN)], 0)],
    );
    check(
        "cvt.rni.s32.f32 {d}, {a}",
        "s32",
        &["f32"],
        &[(&[f(2.5)], 2), (&[f(3.5)], 4), (&[f(-2.5)], -2_i32 as u32 as u64)],
    );
    check("cvt.rmi.s32.f64 {d}, {a}", "s32", &["f64"], &[(&[g(-2.1)], -3_i32 as u32 as u64)]);
    check("cvt.rpi.s64.f32 {d}, {a}", "s64", &["f32"], &[(&[f(2.1)], 3), (&[f(1e30)], i64::MAX as u64)]);
    // NaN is the upper bit alone where either has 64 bits.
    check("cvt.rzi.s64.f32 {d}, {a}", "s64", &["f32"], &[(&[f(f32::NAN)], 1 << 63)]);
    check("cvt.rzi.u32.f64 {d}, {a}", "u32", &["f64"], &[(&[g(f64::NAN)], 1 << 31)]);
    check("cvt.rzi.s64.f64 {d}, {a}", "s64", &["f64"], &[(&[g(f64::NAN)], 1 << 63)]);
    check("cvt.rzi.u8.f32 {d}, {a}", "u32", &["f32"], &[(&[f(300.0)], 255), (&[f(-3.0)], 0)]);
    check("cvt.rzi.s8.f32 {d}, {a}", "s32", &["f32"], &[(&[f(-300.0)], 0xffff_ff80)]);
    check(
        "cvt.rmi.f32.f32 {d}, {a}",
        "f32",
        &["f32"],
        &[(&[f(-0.5)], f(-1.0)), (&[f(0.5)], f(0.0)), (&[f(-0.0)], f(-0.0))],
    );
    check("cvt.rni.f32.f32 {d}, {a}", "f32", &["f32"], &[(&[f(-0.4)], f(-0.0)), (&[f(2.5)], f(2.0))]);
    check("cvt.rzi.f64.f64 {d}, {a}", "f64", &["f64"], &[(&[g(-2.7)], g(-2.0))]);
}

#[test]
fn conversions_to_floats_round() {
    let odd = (1_u64 << 24) + 1;
    check("cvt.rn.f32.u32 {d}, {a}", "f32", &["u32"], &[(&[odd], f(16_777_216.0)), (&[odd + 2], f(16_777_220.0))]);
    check("cvt.rz.f32.u32 {d}, {a}", "f32", &["u32"], &[(&[odd + 2], f(16_777_218.0))]);
    check(
        "cvt.rp.f32.s64 {d}, {a}",
        "f32",
        &["s64"],
        &[(&[odd], f(16_777_218.0)), (&[-(odd as i64) as u64], f(-16_777_216.0))],
    );
    check("cvt.rm.f32.f64 {d}, {a}", "f32", &["f64"], &[(&[g(0.1)], f(0.099_999_994)), (&[g(1e300)], f(f32::MAX))]);
    check(
        "cvt.rp.f32.f64 {d}, {a}",
        "f32",
        &["f64"],
        &[(&[g(0.1)], f(0.1)), (&[g(1e300)], f(f32::INFINITY)), (&[g(1e-300)], f(f32::from_bits(1)))],
    );
    check(
        "cvt.rn.f16.f32 {d}, {a}",
        "b16",
        &["f32"],
        &[
            (&[f(1.0)], 0x3c00),
            (&[f(65519.0)], 0x7bff),
            (&[f(65520.0)], 0x7c00),
            (&[f(6e-8)], 1),
            (&[f(-2e-8)], 0x8000),
            (&[f(f32::NAN)], 0x7fff),
        ],
    );
    check("cvt.rz.f16.f32 {d}, {a}", "b16", &["f32"], &[(&[f(1e9)], 0x7bff), (&[f(1.0009)], 0x3c00)]);
    check(
        "cvt.f32.f16 {d}, {a}",
        "f32",
        &["b16"],
        &[(&[1], f(2_f32.powi(-24))), (&[0xfc00], f(f32::NEG_INFINITY)), (&[0x3555], f(0.333_251_95))],
    );
    check(
        "cvt.rn.bf16.f32 {d}, {a}",
        "b16",
        &["f32"],
        &[(&[f(1.0)], 0x3f80), (&[0x3f80_8000], 0x3f80), (&[0x3f81_8000], 0x3f82), (&[f(f32::MAX)], 0x7f80)],
    );
    check("cvt.rz.bf16.f32 {d}, {a}", "b16", &["f32"], &[(&[0x3f81_ffff], 0x3f81)]);
    check("cvt.rn.relu.bf16.f32 {d}, {a}", "b16", &["f32"], &[(&[f(-1.0)], 0), (&[f(2.0)], 0x4000)]);
    check(
        "cvt.rna.tf32.f32 {d}, {a}",
        "b32",
        &["f32"],
        &[(&[0x3f80_1000], 0x3f80_2000), (&[0x3f80_0fff], 0x3f80_0000)],
    );
    check("cvt.rn.bf16x2.f32 {d}, {a}, {b}", "b32", &["f32"; 2], &[(&[f(2.0), f(1.0)], 0x4000_3f80)]);
    check("cvt.rn.f16x2.f32 {d}, {a}, {b}", "b32", &["f32"; 2], &[(&[f(2.0), f(1.0)], 0x4000_3c00)]);
    check("cvt.sat.f32.f32 {d}, {a}", "f32", &["f32"], &[(&[f(2.0)], f(1.0)), (&[f(f32::NAN)], f(0.0))]);
    check("cvt.f64.f32 {d}, {a}", "f64", &["f32"], &[(&[f(0.1)], g(f64::from(0.1_f32)))]);
}

#[test]
fn conversions_of_integers() {
    check("cvt.s32.s8 {d}, {a}", "s32", &["s32"], &[(&[0x1ff], 0xffff_ffff), (&[0x7f], 0x7f)]);
    check("cvt.u16.u32 {d}, {a}", "u16", &["u32"], &[(&[0x12345], 0x2345)]);
    check("cvt.s64.s32 {d}, {a}", "s64", &["s32"], &[(&[0xffff_fffe], -2_i64 as u64)]);
    check("cvt.u64.u32 {d}, {a}", "u64", &["u32"], &[(&[0xffff_fffe], 0xffff_fffe)]);
    check("cvt.sat.u8.s32 {d}, {a}", "u32", &["s32"], &[(&[300], 255), (&[0xffff_ff00], 0)]);
    check("cvt.sat.s32.u32 {d}, {a}", "s32", &["u32"], &[(&[0xffff_ffff], 0x7fff_ffff)]);
    check("cvt.s32.s8 {d}, {a}", "b64", &["s32"], &[(&[0xff], u64::MAX)]);
    check("cvt.u32.u64 {d}, {a}", "u32", &["u64"], &[(&[0x1_0000_0002], 2)]);
}

#[test]
fn shifts_clamp() {
    check(
        "shl.b32 {d}, {a}, {b}",
        "b32",
        &["b32", "u32"],
        &[(&[1, 31], 1 << 31), (&[1, 32], 0), (&[1, u32::MAX.into()], 0)],
    );
    check("shr.u32 {d}, {a}, {b}", "u32", &["u32", "u32"], &[(&[1 << 31, 31], 1), (&[1 << 31, 32], 0)]);
    check("shr.s32 {d}, {a}, {b}", "s32", &["s32", "u32"], &[(&[1 << 31, 40], 0xffff_ffff), (&[1 << 30, 40], 0)]);
    check("shr.s64 {d}, {a}, {b}", "s64", &["s64", "u32"], &[(&[1 << 63, 64], u64::MAX)]);
    check("shl.b64 {d}, {a}, {b}", "b64", &["b64", "u32"], &[(&[1, 63], 1 << 63), (&[1, 64], 0)]);
    check("shl.b16 {d}, {a}, {b}", "b16", &["b16", "u32"], &[(&[0x8001, 1], 2), (&[1, 16], 0)]);
    check(
        "shf.l.wrap.b32 {d}, {a}, {b}, {c}",
        "b32",
        &["b32", "b32", "u32"],
        &[(&[0x8000_0000, 1, 1], 3), (&[1, 2, 32], 2)],
    );
    check("shf.r.wrap.b32 {d}, {a}, {b}, {c}", "b32", &["b32", "b32", "u32"], &[(&[2, 1, 1], 0x8000_0001)]);
    check("shf.r.clamp.b32 {d}, {a}, {b}, {c}", "b32", &["b32", "b32", "u32"], &[(&[2, 7, 40], 7)]);
    check("shf.l.clamp.b32 {d}, {a}, {b}, {c}", "b32", &["b32", "b32", "u32"], &[(&[2, 7, 40], 2)]);
}

#[test]
fn bits() {
    check(
        "lop3.b32 {d}, {a}, {b}, {c}, 0x96",
        "b32",
        &["b32"; 3],
        &[(&[0b1100, 0b1010, 0b1111], 0b1100 ^ 0b1010 ^ 0b1111)],
    );
    check("lop3.b32 {d}, {a}, {b}, {c}, 0xE8", "b32", &["b32"; 3], &[(&[0b1100, 0b1010, 0b0110], 0b1110)]);
    check(
        "prmt.b32 {d}, {a}, {b}, {c}",
        "b32",
        &["b32"; 3],
        &[(&[0x3322_1100, 0x7766_5544, 0x7410], 0x7744_1100), (&[0x80, 0, 0x8888], 0xffff_ffff)],
    );
    check("prmt.b32.b4e {d}, {a}, {b}, {c}", "b32", &["b32"; 3], &[(&[0x3322_1100, 0x7766_5544, 0], 0x5566_7700)]);
    check("prmt.b32.f4e {d}, {a}, {b}, {c}", "b32", &["b32"; 3], &[(&[0x3322_1100, 0x7766_5544, 1], 0x4433_2211)]);
    check(
        "bfe.u32 {d}, {a}, {b}, {c}",
        "u32",
        &["u32"; 3],
        &[(&[0xabcd_1234, 8, 12], 0xd12), (&[0xffff_ffff, 28, 12], 0xf), (&[5, 40, 3], 0)],
    );
    check(
        "bfe.s32 {d}, {a}, {b}, {c}",
        "s32",
        &["s32", "u32", "u32"],
        &[
            (&[0x0000_0f00, 8, 4], 0xffff_ffff),
            (&[0x0000_0700, 8, 4], 7),
            (&[0x8000_0000, 28, 12], 0xffff_fff8),
            (&[0x8000_0000, 40, 3], 0xffff_ffff),
            (&[7, 0, 0], 0),
        ],
    );
    check("bfe.u64 {d}, {a}, {b}, {c}", "u64", &["u64", "u32", "u32"], &[(&[u64::MAX, 60, 64], 15)]);
    check(
        "bfi.b32 {d}, {a}, {b}, {c}, {e}",
        "b32",
        &["b32", "b32", "u32", "u32"],
        &[(&[0xf, 0xaaaa_0000, 4, 2], 0xaaaa_0030), (&[0xf, 1, 32, 4], 1), (&[0xffff, 0, 24, 16], 0xff00_0000)],
    );
    check("brev.b32 {d}, {a}", "b32", &["b32"], &[(&[1], 1 << 31)]);
    check("clz.b64 {d}, {a}", "u32", &["b64"], &[(&[0], 64), (&[1], 63)]);
    check("popc.b32 {d}, {a}", "u32", &["b32"], &[(&[0xf0f0], 8)]);
    check("bfind.u32 {d}, {a}", "u32", &["u32"], &[(&[0], 0xffff_ffff), (&[0x8000], 15)]);
    check(
        "bfind.s32 {d}, {a}",
        "u32",
        &["s32"],
        &[(&[0xffff_ffff], 0xffff_ffff), (&[0xffff_fff0], 3), (&[0x8000], 15)],
    );
    check("bfind.shiftamt.u32 {d}, {a}", "u32", &["u32"], &[(&[0x8000], 16)]);
    check("not.b16 {d}, {a}", "b16", &["b16"], &[(&[0x00ff], 0xff00)]);
    check("and.pred {d}, {a}, !{b}", "pred", &["pred"; 2], &[(&[1, 0], 1), (&[1, 1], 0), (&[0, 0], 0)]);
    check("mov.pred {d}, !{a}", "pred", &["pred"], &[(&[1], 0), (&[0], 1)]);
    check("mov.pred {d}, 1", "pred", &[], &[(&[], 1)]);
    check("xor.pred {d}, {a}, {b}", "pred", &["pred"; 2], &[(&[1, 0], 1), (&[1, 1], 0)]);
    check("selp.b64 {d}, {a}, {b}, {c}", "b64", &["b64", "b64", "pred"], &[(&[7, 8, 1], 7), (&[7, 8, 0], 8)]);
    check(
        "slct.f32.s32 {d}, {a}, {b}, {c}",
        "f32",
        &["f32", "f32", "s32"],
        &[(&[f(1.0), f(2.0), 0x8000_0000], f(2.0)), (&[f(1.0), f(2.0), 0], f(1.0))],
    );
}

#[test]
fn integers() {
    check("mul.wide.s32 {d}, {a}, {b}", "s64", &["s32"; 2], &[(&[0xffff_ffff, 3], -3_i64 as u64)]);
    check("mul.hi.u64 {d}, {a}, {b}", "u64", &["u64"; 2], &[(&[u64::MAX, u64::MAX], u64::MAX - 1)]);
    check("mul.hi.s32 {d}, {a}, {b}", "s32", &["s32"; 2], &[(&[0x8000_0000, 2], 0xffff_ffff)]);
    check("mad.lo.s32 {d}, {a}, {b}, {c}", "s32", &["s32"; 3], &[(&[0xffff_ffff, 5, 7], 2)]);
    check("mad.wide.u16 {d}, {a}, {b}, {c}", "u32", &["u16", "u16", "u32"], &[(&[0xffff, 0xffff, 1], 0xfffe_0002)]);
    check(
        "div.s32 {d}, {a}, {b}",
        "s32",
        &["s32"; 2],
        &[(&[0xffff_fff9, 2], 0xffff_fffd), (&[0x8000_0000, 0xffff_ffff], 0x8000_0000)],
    );
    check("rem.s32 {d}, {a}, {b}", "s32", &["s32"; 2], &[(&[0xffff_fff9, 2], 0xffff_ffff)]);
    check("div.u16 {d}, {a}, {b}", "u16", &["u16"; 2], &[(&[0xffff, 2], 0x7fff)]);
    check("abs.s32 {d}, {a}", "s32", &["s32"], &[(&[0xffff_ffff], 1)]);
    check("dp4a.s32.s32 {d}, {a}, {b}, {c}", "s32", &["b32", "b32", "s32"], &[(&[0xff01_0203, 0x0101_0101, 10], 15)]);
}

#[test]
fn comparisons() {
    let nan = f(f32::NAN);
    for (name, less, equal, unordered) in [
        ("eq", 0, 1, 0),
        ("ne", 1, 0, 0),
        ("lt", 1, 0, 0),
        ("le", 1, 1, 0),
        ("gt", 0, 0, 0),
        ("ge", 0, 1, 0),
        ("equ", 0, 1, 1),
        ("neu", 1, 0, 1),
        ("ltu", 1, 0, 1),
        ("leu", 1, 1, 1),
        ("gtu", 0, 0, 1),
        ("geu", 0, 1, 1),
        ("num", 1, 1, 0),
        ("nan", 0, 0, 1),
    ] {
        let cases: [(&[u64], u64); 3] =
            [(&[f(1.0), f(2.0)], less), (&[f(0.0), f(-0.0)], equal), (&[nan, f(1.0)], unordered)];
        check(&format!("setp.{name}.f32 {{d}}, {{a}}, {{b}}"), "pred", &["f32"; 2], &cases);
    }
    check("setp.hi.u32 {d}, {a}, {b}", "pred", &["u32"; 2], &[(&[0xffff_ffff, 1], 1)]);
    check("setp.gt.s32 {d}, {a}, {b}", "pred", &["s32"; 2], &[(&[0xffff_ffff, 1], 0)]);
    check("setp.lt.and.u32 {d}, {a}, {b}, !{c}", "pred", &["u32", "u32", "pred"], &[(&[1, 2, 1], 0), (&[1, 2, 0], 1)]);
    check(
        "{ .reg .pred %z; setp.lt.xor.u32 %z|{d}, {a}, {b}, {c}; }",
        "pred",
        &["u32", "u32", "pred"],
        &[(&[1, 2, 1], 1), (&[2, 1, 0], 1), (&[2, 1, 1], 0)],
    );
    check(
        "set.lt.and.u32.f32 {d}, {a}, {b}, !{c}",
        "u32",
        &["f32", "f32", "pred"],
        &[(&[f(1.0), f(2.0), 0], 0xffff_ffff), (&[f(1.0), f(2.0), 1], 0), (&[f(2.0), f(1.0), 0], 0)],
    );
    check("set.gt.u32.s32 {d}, {a}, {b}", "u32", &["s32"; 2], &[(&[1, 0xffff_ffff], 0xffff_ffff)]);
    check("set.lt.f32.s32 {d}, {a}, {b}", "f32", &["s32"; 2], &[(&[0xffff_ffff, 1], f(1.0))]);
    check("testp.subnormal.f32 {d}, {a}", "pred", &["f32"], &[(&[f(1e-40)], 1), (&[f(1.0)], 0)]);
    check("testp.notanumber.f64 {d}, {a}", "pred", &["f64"], &[(&[g(f64::NAN)], 1), (&[g(1.0)], 0)]);
}

#[test]
fn halves_are_rounded_once() {
    check(
        "add.rn.f16 {d}, {a}, {b}",
        "b16",
        &["b16"; 2],
        &[(&[0x3c00, 0x3c00], 0x4000), (&[0x7bff, 0x7bff], 0x7c00), (&[1, 1], 2)],
    );
    check("mul.rn.bf16 {d}, {a}, {b}", "b16", &["b16"; 2], &[(&[0x3f80, 0x4000], 0x4000)]);
    check("add.bf16x2 {d}, {a}, {b}", "b32", &["b32"; 2], &[(&[0x3f80_4000, 0x3f80_3f80], 0x4000_4040)]);
    // (1 + 2^-10) * (1 + 2^-10) lies a hair above a tie once 2^-20 - 2^-24 is added or not.
    check(
        "fma.rn.f16 {d}, {a}, {b}, {c}",
        "b16",
        &["b16"; 3],
        &[
            (&[0x3c01, 0x3c01, 0x0000], 0x3c02),
            (&[0x3c00, 0x3c00, 0x1000], 0x3c00),
            (&[0x3c01, 0x3c00, 0x1000], 0x3c02),
            (&[0x3c00, 0x3c00, 0x1001], 0x3c01),
        ],
    );
    check("fma.rn.relu.f16x2 {d}, {a}, {b}, {c}", "b32", &["b32"; 3], &[(&[0x3c00_bc00, 0x3c00_3c00, 0], 0x3c00_0000)]);
    check("neg.f16x2 {d}, {a}", "b32", &["b32"], &[(&[0x3c00_bc00], 0xbc00_3c00)]);
    check("tanh.approx.bf16x2 {d}, {a}", "b32", &["b32"], &[(&[0x7f80_0000], 0x3f80_0000)]);
}

#[test]
fn moves() {
    check("mov.b32 {d}, {{a}, {b}}", "b32", &["b16"; 2], &[(&[0x1111, 0x2222], 0x2222_1111)]);
    check("mov.b64 {d}, {{a}, {b}}", "b64", &["b32"; 2], &[(&[1, 2], 0x2_0000_0001)]);
    check("{ .reg .b32 %z; mov.b64 {%z, {d}}, {a}; }", "b32", &["b64"], &[(&[0x2_0000_0001], 2)]);
    check("{ .reg .b16 %z; mov.b32 {{d}, %z}, {a}; }", "b16", &["b32"], &[(&[0x2222_1111], 0x1111)]);
    check("mov.b64 {d}, {a}", "b64", &["f64"], &[(&[g(1.5)], g(1.5))]);
    check("mov.f32 {d}, 0f3FC00000", "f32", &[], &[(&[], f(1.5))]);
    check("mov.f64 {d}, 0d3FF8000000000000", "f64", &[], &[(&[], g(1.5))]);
    check("mov.f32 {d}, 1.5", "f32", &[], &[(&[], f(1.5))]);
    check("mov.b32 {d}, -1", "b32", &[], &[(&[], 0xffff_ffff)]);
    check("mov.u32 {d}, %ntid.x", "u32", &[], &[(&[], 32)]);
}
