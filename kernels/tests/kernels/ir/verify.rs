//! Each invariant rejects the kernel that breaks it, and says so.

use retape_kernels::ir::{Affine, Inst, Kernel, ValueId};
use retape_runtime::{DType, Scalar};

use super::kernel;

/// Asserts what the verifier says about a body inside a fixed frame.
fn rejects(body: &str, expected: &str) {
    let k = framed(body);
    let error = k.verify().expect_err(body).to_string();
    assert_eq!(error, expected, "{k}");
}

fn accepts(body: &str) {
    let k = framed(body);
    k.verify().unwrap_or_else(|e| panic!("{e}\n{k}"));
}

fn framed(body: &str) -> Kernel {
    let params = "p0: f32[24], p1: i64[4], p2: bool[4], p3: f16[4], p4: u32[0], p5: f32[24] out, p6: f32[4] out";
    kernel(&format!("kernel ({params}) {{\n axes a0 = 4, a1 = 6 reduced\n{}\n}}", body.replace("; ", "\n")))
}

#[test]
fn ids_and_order() {
    rejects("%0 = neg %0", "operand %0 does not come before its use, in '%0 = neg %0'");
    rejects(
        "%0 = reduce sum %1; %1 = const 1.0: f32",
        "operand %1 does not come before its use, in '%0 = reduce sum %1'",
    );
    rejects("%0 = index a2", "there is no axis a2, in '%0 = index a2'");
    rejects("%0 = load p9[0]", "there is no parameter p9, in '%0 = load p9[0]'");
    rejects("store p5[a0], %3", "there is no value %3, in 'store p5[a0], %3'");
    rejects("%0 = const 1.0: f32; store p9[a0], %0", "there is no parameter p9, in 'store p9[a0], %0'");
}

#[test]
fn strides_and_constants() {
    let mut k = framed("%0 = load p0[a0]; store p6[a0], %0");
    k.insts[0] = Inst::Load(retape_kernels::ir::ParamId(0), Affine::new(0, &[1]));
    assert_eq!(k.verify().unwrap_err().message, "the position has 1 strides for 2 axes");
    let mut k = framed("%0 = load p0[a0]; store p6[a0], %0");
    k.stores[0].at.strides.push(1);
    assert_eq!(k.verify().unwrap_err().message, "the position has 3 strides for 2 axes");
    for (dtype, bits) in [(DType::Bool, 2), (DType::U8, 256), (DType::F16, 1 << 16), (DType::F32, 1 << 32)] {
        k.insts.insert(0, Inst::Const(Scalar { dtype, bits }));
        let message = k.verify().unwrap_err().message;
        assert_eq!(message, format!("the constant has bits beyond its dtype {dtype}"));
    }
}

#[test]
fn dtypes() {
    let values = "%0 = load p0[0]; %1 = load p1[0]; %2 = load p2[0]; %3 = load p3[0]; ";
    for (inst, message) in [
        ("add %0, %1", "operands %0: f32 and %1: i64 differ in dtype"),
        ("lt %0, %1", "operands %0: f32 and %1: i64 differ in dtype"),
        ("select %2, %0, %1", "operands %0: f32 and %1: i64 differ in dtype"),
        ("fma %0, %0, %1", "operands %0: f32 and %1: i64 differ in dtype"),
        ("pow %0, %1", "operands %0: f32 and %1: i64 differ in dtype"),
        ("select %0, %0, %0", "condition %0 is f32, not bool"),
        ("load_at p0, %0", "position %0 is f32, not i64"),
        ("sqrt %1", "sqrt is not defined for i64"),
        ("not %0", "not is not defined for f32"),
        ("neg %2", "neg is not defined for bool"),
        ("add %2, %2", "add is not defined for bool"),
        ("add %3, %3", "add is not defined for f16"),
        ("eq %3, %3", "eq is not defined for f16"),
        ("and %0, %0", "and is not defined for f32"),
        ("shl %2, %2", "shl is not defined for bool"),
        ("mul_high %1, %1", "mul_high is not defined for i64"),
        ("fma %1, %1, %1", "i64 is not a float to compute with"),
        ("exp %3", "f16 is not a float to compute with"),
        ("atan2 %1, %1", "i64 is not a float to compute with"),
        ("bitcast %0: f64", "f32 and f64 differ in size"),
        ("reduce sum %2", "sum is not defined for bool"),
        ("reduce any %0", "any is not defined for f32"),
    ] {
        rejects(&format!("{values}%4 = {inst}"), &format!("{message}, in '%4 = {inst}'"));
    }
    rejects("%0 = const 1: u8; %1 = bitcast %0: bool", "the bits of u8 are not bool, in '%1 = bitcast %0: bool'");
    accepts(&format!("{values}%4 = select %2, %3, %3; %5 = bitcast %3: bf16; %6 = cast %5: i32; %7 = bitcast %2: u8"));
}

#[test]
fn parameters() {
    rejects("%0 = load p5[0]", "written parameter p5 is read, in '%0 = load p5[0]'");
    rejects("%0 = index a0; %1 = load_at p5, %0", "written parameter p5 is read, in '%1 = load_at p5, %0'");
    rejects("%0 = const 1.0: f32; store p0[a0], %0", "read parameter p0 is written, in 'store p0[a0], %0'");
    rejects("%0 = const 1: i64; store p5[a0], %0", "a value of dtype i64 is written to p5: f32, in 'store p5[a0], %0'");
    let late = kernel("kernel (p0: f32[1] out, p1: f32[1]) {\n}").verify().unwrap_err();
    assert_eq!(late.message, "read parameter p1 comes after a written one");
    let huge = kernel("kernel (p0: f32[9223372036854775807]) {\n}").verify().unwrap_err();
    assert_eq!(huge.message, "the bytes of p0 do not fit isize");
    let huge = kernel("kernel () {\n axes a0 = 4294967296, a1 = 0, a2 = 4294967296\n}").verify().unwrap_err();
    assert_eq!(huge.message, "the number of points does not fit i64");
}

#[test]
fn bounds() {
    accepts("%0 = load p0[a0 * 6 + a1]; %1 = load p0[a0 * -6 + a1 * -1 + 23]; %2 = load p1[a0 * -1 + 3]");
    rejects(
        "%0 = load p0[a0 * 6 + a1 + 1]",
        "positions 1 to 24 leave p0 of length 24, in '%0 = load p0[a0 * 6 + a1 + 1]'",
    );
    rejects("%0 = load p1[a0 * -1 + 2]", "positions -1 to 2 leave p1 of length 4, in '%0 = load p1[a0 * -1 + 2]'");
    rejects(
        "%0 = load p0[a0 * 4611686018427387904]",
        "the position in p0 does not fit i64, in '%0 = load p0[a0 * 4611686018427387904]'",
    );
    rejects(
        "%0 = const 1.0: f32; store p6[a0 + 1], %0",
        "positions 1 to 4 leave p6 of length 4, in 'store p6[a0 + 1], %0'",
    );
    rejects("%0 = index a0; %1 = load_at p4, %0", "a load from the empty parameter p4, in '%1 = load_at p4, %0'");
}

#[test]
fn empty_spaces_have_no_positions() {
    let empty = "kernel (p0: f32[0], p1: f32[0] out) {\n axes a0 = 0, a1 = 3\n %0 = load p0[a0 * 3 + a1 + 7]\n";
    kernel(&format!("{empty} %1 = index a1\n %2 = load_at p0, %1\n store p1[a1], %0\n}}")).verify().unwrap();
    // Instructions outside empty reduced axes run all the same.
    let reduced = "kernel (p0: f32[3], p1: f32[3] out) {\n axes a0 = 0 reduced, a1 = 3\n %0 = load p0[a1 + 1]\n}";
    assert_eq!(kernel(reduced).verify().unwrap_err().message, "positions 1 to 3 leave p0 of length 3");
}

#[test]
fn stages() {
    let sum = "%0 = load p0[a0 * 6 + a1]; %1 = reduce sum %0; ";
    let meets = "a value that depends on a reduction meets one that varies along reduced axes";
    rejects(&format!("{sum}%2 = sub %0, %1"), &format!("{meets}, in '%2 = sub %0, %1'"));
    rejects(
        &format!("{sum}%2 = index a1; %3 = cast %2: f32; %4 = mul %1, %3"),
        &format!("{meets}, in '%4 = mul %1, %3'"),
    );
    let twice = "a reduction of a value that depends on a reduction";
    rejects(&format!("{sum}%2 = neg %1; %3 = reduce max %2"), &format!("{twice}, in '%3 = reduce max %2'"));
    rejects(
        &format!("{sum}store p5[a0 * 6 + a1], %1"),
        "a value that depends on a reduction is written along reduced axes, in 'store p5[a0 * 6 + a1], %1'",
    );
    rejects(
        &format!("{sum}store p6[a0], %0"),
        "a value that varies along reduced axes is written once per kept point, in 'store p6[a0], %0'",
    );
    accepts(&format!(
        "{sum}%2 = load p0[a0]; %3 = sub %1, %2; %4 = mul %0, %2; store p6[a0], %3; store p5[a0 * 6 + a1], %4"
    ));
}

#[test]
fn stores_do_not_meet() {
    let one = "%0 = const 1.0: f32; ";
    for (at, ok) in [
        ("a0 * 6 + a1", true),
        ("a0 + a1 * 4", true),
        ("a0 + a1 * -4 + 20", true),
        ("a0 + a1 * 3", false),
        ("a1", false),
        ("a0", true),
        ("a0 * 2 + 1", true),
        ("3", false),
    ] {
        let body = format!("{one}store p5[{at}], %0");
        if ok {
            accepts(&body);
        } else {
            rejects(&body, &format!("two points may write the same element of p5, in 'store p5[{at}], %0'"));
        }
    }
    for (first, second, ok) in [
        ("a0", "a0 + 4", true),
        ("a0", "a0 + 3", false),
        ("a0 * 2", "a0 * 2 + 1", true),
        ("a0 * 2", "a0 * 4 + 6", false),
        ("a0 * 6", "a0 * 6 + 5", true),
        ("a0 * 3 + 2", "a0 * 2 + 1", false),
    ] {
        let body = format!("{one}store p5[{first}], %0; store p5[{second}], %0");
        if ok {
            accepts(&body);
        } else {
            rejects(&body, &format!("two stores may write the same element of p5, in 'store p5[{second}], %0'"));
        }
    }
    // The halves of a concatenation along the inner axis.
    let halves = "kernel (p0: f32[64] out) {\n axes a0 = 8, a1 = 4\n %0 = const 1.0: f32\n store p0[a0 * 8 + a1], %0\n";
    kernel(&format!("{halves} store p0[a0 * 8 + a1 + 4], %0\n}}")).verify().unwrap();
    kernel(&format!("{halves} store p0[a0 * 8 + a1 + 3], %0\n}}")).verify().unwrap_err();
}

#[test]
fn questions_about_kernels() {
    let k = framed("%0 = load p0[a0 * 6 + a1]; %1 = reduce sum %0; %2 = const 1.0: f32; %3 = lt %1, %2");
    assert_eq!((k.n_points(), k.kept_len()), (24, 4));
    let tail: Vec<bool> = (0..4).map(|i| k.in_tail(ValueId(i))).collect();
    assert_eq!(tail, [false, true, false, true]);
    assert_eq!(k.dtypes(), [DType::F32, DType::F32, DType::F32, DType::Bool]);
    assert_eq!(k.dtype_of(ValueId(1)), DType::F32);
}
