//! One test per rewrite, where it applies and where it must not; meaning is kept on random kernels.

use retape_kernels::ir::Kernel;
use retape_kernels::ir::random::{random_inputs, random_kernel, random_kernel_of_positions, random_kernel_with_calls};
use retape_kernels::simplify;

use super::{kernel, run, same, scalars};

/// Simplifies a body over `%0: f32`, `%1: i64`, `%2: bool`, `%3: f32` that stores its last value, and returns the
/// instructions left, in order.
fn simplified(body: &str) -> Vec<String> {
    let loads = ["load p0[a0]", "load p1[a0]", "load p2[a0]", "load p0[a0 + 1]"];
    let body: Vec<&str> = loads.into_iter().chain(body.split("; ")).collect();
    let lines: String = body.iter().enumerate().map(|(i, inst)| format!("%{i} = {inst}\n")).collect();
    let text = |dtype| {
        let params = format!("p0: f32[5], p1: i64[4], p2: bool[4], p3: {dtype}[4] out");
        format!("kernel ({params}) {{\naxes a0 = 4\n{lines}store p3[a0], %{}\n}}", body.len() - 1)
    };
    let stored = *kernel(&text("f32")).dtypes().last().unwrap();
    let before = kernel(&text(stored.name()));
    before.verify().unwrap_or_else(|e| panic!("{e}\n{before}"));
    let after = simplify(&before);
    after.verify().unwrap_or_else(|e| panic!("{e}\n{after}"));
    assert_eq!(after.params, before.params);
    after.insts.iter().map(ToString::to_string).collect()
}

/// Asserts what is left of bodies.
fn check(cases: &[(&str, &[&str])]) {
    for (body, expected) in cases {
        assert_eq!(simplified(body), *expected, "{body}");
    }
}

const X: &str = "load p0[a0]";
const I: &str = "load p1[a0]";
const B: &str = "load p2[a0]";
const Y: &str = "load p0[a0 + 1]";

#[test]
fn mul_one() {
    check(&[
        ("const 1.0: f32; mul %0, %4", &[X]),
        ("const 1.0: f32; mul %4, %0", &[X]),
        ("const 1: i64; mul %1, %4", &[I]),
        ("const 0.0: f32; mul %0, %4", &[X, "const 0.0: f32", "mul %0, %1"]),
    ]);
}

#[test]
fn add_zero() {
    check(&[
        ("const -0.0: f32; add %0, %4", &[X]),
        ("const -0.0: f32; add %4, %0", &[X]),
        ("const 0: i64; add %1, %4", &[I]),
        ("const 0.0: f32; add %0, %4", &[X, "const 0.0: f32", "add %0, %1"]),
    ]);
}

#[test]
fn sub_zero() {
    check(&[
        ("const 0.0: f32; sub %0, %4", &[X]),
        ("const 0: i64; sub %1, %4", &[I]),
        ("const -0.0: f32; sub %0, %4", &[X, "const -0.0: f32", "sub %0, %1"]),
        ("const 0.0: f32; sub %4, %0", &[X, "const 0.0: f32", "sub %1, %0"]),
    ]);
}

#[test]
fn add_negated() {
    check(&[("neg %3; add %0, %4", &[X, Y, "sub %0, %1"]), ("neg %0; add %4, %3", &[X, Y, "sub %1, %0"])]);
}

#[test]
fn sub_negated() {
    check(&[("neg %3; sub %0, %4", &[X, Y, "add %0, %1"]), ("neg %0; sub %4, %3", &[X, Y, "neg %0", "sub %2, %1"])]);
}

#[test]
fn div_one() {
    check(&[("const 1.0: f32; div %0, %4", &[X]), ("const 1: i64; div %1, %4", &[I])]);
}

#[test]
fn div_power_of_two() {
    check(&[
        ("const -8.0: f32; div %0, %4", &[X, "const -0.125: f32", "mul %0, %1"]),
        ("const 3.0: f32; div %0, %4", &[X, "const 3.0: f32", "div %0, %1"]),
        ("const 1.7014118e38: f32; div %0, %4", &[X, "const 1.7014118e38: f32", "div %0, %1"]),
        ("const 1e-45: f32; div %0, %4", &[X, "const 1e-45: f32", "div %0, %1"]),
        ("const 2: i64; div %1, %4", &[I, "const 2: i64", "div %0, %1"]),
    ]);
}

/// A kernel that divides coordinates, times `factor` and plus `offset`, by a number.
fn division(factor: i64, offset: i64, divisor: i64) -> Kernel {
    kernel(&format!(
        "kernel (p0: i64[1000] out, p1: i64[1000] out) {{
axes a0 = 1000
%0 = index a0
%1 = const {factor}: i64
%2 = mul %0, %1
%3 = const {offset}: i64
%4 = add %2, %3
%5 = const {divisor}: i64
%6 = div %4, %5
%7 = rem %4, %5
store p0[a0], %6
store p1[a0], %7
}}"
    ))
}

fn divides(kernel: &Kernel) -> bool {
    kernel.insts.iter().any(|inst| inst.to_string().starts_with("div") || inst.to_string().starts_with("rem"))
}

#[test]
fn div_bounded() {
    let divisors = [2, 3, 5, 7, 10, 64, 257, 641, 65_537, (1 << 30) - 1, 1 << 30, (1 << 30) + 1, (1 << 31) - 1];
    // Up to the largest number of 31 bits, and beside multiples.
    let numbers = [(1, 0), (3, 0), (257, 0), (257, 256), (2_149_629, 4_276), (65_537, 65_536)];
    for (divisor, (factor, offset)) in divisors.into_iter().flat_map(|d| numbers.map(|n| (d, n))) {
        let before = division(factor, offset, divisor);
        let after = simplify(&before);
        assert!(!divides(&after), "{after}");
        assert_eq!(run(&before, &[]), run(&after, &[]), "{factor} i + {offset} by {divisor}");
    }
}

#[test]
fn shifts_of_bytes_count_modulo_eight() {
    let before = kernel(
        "kernel (p0: i64[200] out) {
axes a0 = 200
%0 = index a0
%1 = cast %0: u8
%2 = const 9: u8
%3 = shr %1, %2
%4 = cast %3: i64
%5 = const 20: i64
%6 = sub %5, %4
%7 = const 3: i64
%8 = div %6, %7
store p0[a0], %8
}",
    );
    assert_eq!(run(&before, &[]), run(&simplify(&before), &[]));
}

#[test]
fn rem_bounded() {
    // Below zero, above 31 bits, and by what is no positive number.
    for (factor, offset, divisor) in [(1, -1, 3), (2_149_631, 4_277, 3), (1, 0, -3), (1, 0, 0), (1 << 30, 0, 3 << 31)] {
        let before = division(factor, offset, divisor);
        let after = simplify(&before);
        assert!(divides(&after), "{factor} i + {offset} by {divisor}");
        assert_eq!(run(&before, &[]), run(&after, &[]), "{factor} i + {offset} by {divisor}");
    }
    let twice = kernel(
        "kernel (p0: i32[1000] out) {
axes a0 = 1000
%0 = index a0
%1 = cast %0: i32
%2 = const 7: i32
%3 = div %1, %2
%4 = const 5: i32
%5 = rem %3, %4
store p0[a0], %5
}",
    );
    let after = simplify(&twice);
    assert!(!divides(&after), "{after}");
    assert_eq!(run(&twice, &[]), run(&after, &[]));
}

#[test]
fn twice_negated() {
    check(&[("neg %0; neg %4", &[X]), ("not %2; not %4", &[B]), ("neg %1; not %4", &[I, "neg %0", "not %1"])]);
}

#[test]
fn same_operands() {
    check(&[("max %0, %0", &[X]), ("and %2, %2", &[B]), ("xor %1, %1", &[I, "xor %0, %0"])]);
}

#[test]
fn truth_constant() {
    check(&[
        ("const true: bool; and %4, %2", &[B]),
        ("const false: bool; or %2, %4", &[B]),
        ("const false: bool; and %2, %4", &["const false: bool"]),
        ("const true: bool; or %2, %4", &["const true: bool"]),
        ("const 1: i64; and %1, %4", &[I, "const 1: i64", "and %0, %1"]),
    ]);
}

#[test]
fn select_same() {
    check(&[("select %2, %0, %0", &[X]), ("select %2, %0, %3", &[X, B, Y, "select %1, %0, %2"])]);
}

#[test]
fn select_constant() {
    check(&[("const true: bool; select %4, %0, %3", &[X]), ("const false: bool; select %4, %0, %3", &[Y])]);
}

#[test]
fn cast_same() {
    check(&[("cast %0: f32", &[X]), ("bitcast %1: i64", &[I]), ("cast %0: f64", &[X, "cast %0: f64"])]);
}

#[test]
fn cast_there_and_back() {
    check(&[
        ("cast %0: f64; cast %4: f32", &[X]),
        ("cast %2: u8; cast %4: bool", &[B]),
        ("cast %1: f64; cast %4: i64", &[I, "cast %0: f64", "cast %1: i64"]),
        ("cast %0: i64; cast %4: f32", &[X, "cast %0: i64", "cast %1: f32"]),
    ]);
}

#[test]
fn bitcast_chain() {
    check(&[("bitcast %0: u32; bitcast %4: f32", &[X]), ("bitcast %0: u32; bitcast %4: i32", &[X, "bitcast %0: i32"])]);
}

#[test]
fn pow_constant() {
    check(&[
        ("const 0.0: f32; pow %0, %4", &["const 1.0: f32"]),
        ("const 1.0: f32; pow %0, %4", &[X]),
        ("const 2.0: f32; pow %0, %4", &[X, "mul %0, %0"]),
        ("const -1.0: f32; pow %0, %4", &[X, "const 1.0: f32", "div %1, %0"]),
        ("const 0.5: f32; pow %0, %4", &[X, "const 0.5: f32", "pow %0, %1"]),
    ]);
}

#[test]
fn divided_affine() {
    let double = &["index a0", "const 2: i64", "mul %0, %1", "add %2, %1"];
    check(&[
        ("index a0; const 6: i64; mul %4, %5; const 7: i64; add %6, %7; const 3: i64; div %8, %9", double),
        ("index a0; const 6: i64; mul %4, %5; const 7: i64; add %6, %7; const 3: i64; rem %8, %9", &["const 1: i64"]),
        ("index a0; const 4: i64; rem %4, %5", &["index a0"]),
        ("const 4: i64; div %1, %4", &[I, "const 4: i64", "div %0, %1"]),
    ]);
}

#[test]
fn divided_whole() {
    check(&[
        ("const 5: i64; div %1, %4; mul %5, %4; rem %1, %4; add %6, %7", &[I]),
        ("const 5: i64; div %1, %4; mul %4, %5; rem %1, %4; add %7, %6", &[I]),
    ]);
    let other = "const 5: i64; const 6: i64; div %1, %4; mul %6, %5; rem %1, %4; add %7, %8";
    assert_eq!(simplified(other).len(), 7);
    // The sum is zero, or may be.
    let zero = "const 0: i64; div %1, %4; mul %5, %4; rem %1, %4; add %6, %7";
    assert_eq!(simplified(zero).len(), 6);
    let unknown = "add %1, %1; div %1, %4; mul %5, %4; rem %1, %4; add %6, %7";
    assert_eq!(simplified(unknown).len(), 6);
}

#[test]
fn compare_bounded() {
    check(&[
        ("index a0; const 4: i64; lt %4, %5", &["const true: bool"]),
        ("index a0; const -1: i64; le %4, %5", &["const false: bool"]),
        ("index a0; const 4: i64; eq %4, %5", &["const false: bool"]),
        ("index a0; const 2: i64; add %4, %5; lt %4, %6", &["const true: bool"]),
        ("const 3.0: f32; lt %0, %4", &[X, "const 3.0: f32", "lt %0, %1"]),
    ]);
}

#[test]
fn min_max_bounded() {
    check(&[
        ("index a0; const 3: i64; min %4, %5", &["index a0"]),
        ("index a0; const 0: i64; max %5, %4", &["index a0"]),
        ("index a0; const 2: i64; max %4, %5", &["index a0", "const 2: i64", "max %0, %1"]),
    ]);
}

#[test]
fn load_at_affine() {
    check(&[("index a0; const 1: i64; add %4, %5; load_at p0, %6", &[Y])]);
}

#[test]
fn load_at_narrow() {
    let narrow = &["index a0", "cast %0: i32", "const 2: i32", "add %1, %2", "cast %3: i64", "load_at p0, %4"];
    check(&[
        ("index a0; const 2: i64; add %4, %5; load_at p0, %6", narrow),
        ("load_at p0, %1", &[I, "load_at p0, %0"]),
    ]);
}

#[test]
fn compare_narrow() {
    check(&[
        ("index a0; const 3: i64; lt %4, %5", &["index a0", "cast %0: i32", "const 3: i32", "lt %1, %2"]),
        ("const 3: i64; lt %1, %4", &[I, "const 3: i64", "lt %0, %1"]),
    ]);
    // Products beyond 32 bits.
    let far = simplified("index a0; const 2147483647: i64; mul %4, %5; const 5: i64; lt %6, %7");
    assert!(!far.iter().any(|inst| inst.contains("i32")), "{far:?}");
}

#[test]
fn cast_narrow() {
    check(&[(
        "index a0; const 3: i64; mul %4, %5; cast %6: f32",
        &["index a0", "cast %0: i32", "const 3: i32", "mul %1, %2", "cast %3: f32"],
    )]);
}

#[test]
fn computed_positions_keep_their_meaning() {
    for seed in 0..1000 {
        let before = random_kernel_of_positions(seed);
        let after = simplify(&before);
        after.verify().unwrap_or_else(|e| panic!("seed {seed}: {e}\n{before}\n{after}"));
        assert_eq!(simplify(&after), after, "seed {seed}");
        let inputs = random_inputs(&before, seed);
        assert_eq!(run(&before, &inputs), run(&after, &inputs), "seed {seed}\n{before}\n{after}");
    }
}

#[test]
fn constants_fold_and_dead_instructions_go() {
    check(&[
        ("const 2.0: f32; sqrt %4; mul %4, %4", &["const 4.0: f32"]),
        ("const 2.0: f32; exp %4", &["const 2.0: f32", "exp %0"]),
        ("exp %0; neg %1; abs %0", &[X, "abs %0"]),
    ]);
}

#[test]
fn random_kernels_keep_their_meaning() {
    let mut shorter = 0;
    for seed in 0..1000 {
        let before = if seed % 2 == 0 { random_kernel(seed) } else { random_kernel_with_calls(seed) };
        let after = simplify(&before);
        after.verify().unwrap_or_else(|e| panic!("seed {seed}: {e}\n{before}\n{after}"));
        assert_eq!(simplify(&after), after, "seed {seed}");
        shorter += usize::from(after.insts.len() < before.insts.len());
        let inputs = random_inputs(&before, seed);
        let written = before.params.iter().filter(|p| p.written);
        for (param, (x, y)) in written.zip(run(&before, &inputs).iter().zip(run(&after, &inputs))) {
            let pairs = scalars(x, param.dtype).into_iter().zip(scalars(&y, param.dtype));
            for (x, y) in pairs {
                assert!(same(x, y), "seed {seed}: {x:?} became {y:?}\n{before}\n{after}");
            }
        }
    }
    assert!(shorter > 500, "{shorter} kernels became shorter");
}
