//! The text form reads back, and no text makes the parser panic.

use retape_kernels::ir::random::{Rng, exact_values, random_kernel, random_kernel_with_calls};
use retape_kernels::ir::{Binary, Compare, Func1, Func2, Inst, Kernel, ReductionOp, Unary, parse};
use retape_runtime::DType;

use super::kernel;

const MEAN_OF_SQUARES: &str = "\
kernel (p0: f32[1024], p1: f32[32] out) {
  axes a0 = 32, a1 = 32 reduced
  %0 = load p0[a0 * 32 + a1]
  %1 = mul %0, %0
  %2 = reduce sum %1
  %3 = const 0.03125: f32
  %4 = mul %2, %3
  store p1[a0], %4
}
";

#[test]
fn the_example_prints_as_it_was_read() {
    let k = kernel(MEAN_OF_SQUARES);
    k.verify().unwrap();
    assert_eq!(k.to_string(), MEAN_OF_SQUARES);
}

#[test]
fn every_form_of_instruction_reads_back() {
    let mut text = String::from("kernel (p0: f64[9], p1: f16[4], p2: u8[16] out, p3: bool[0] out) {\n");
    text += "  axes a0 = 2, a1 = 0 reduced, a2 = 2\n";
    let mut n = 0;
    let mut line = |inst: String| {
        text += &format!("  %{n} = {inst}\n");
        n += 1;
    };
    for inst in [
        "load p0[a0 + a1 * 3 + a2 * -2 + 4]",
        "load p1[0]",
        "load p1[-1]",
        "load_at p1, %0",
        "index a2",
        "const nan:7fc00001: f32",
        "const nan:fff8000000000001: f64",
        "const -inf: f32",
        "const -0.0: f64",
        "const 1e-45: f32",
        "const bits:3f80: bf16",
        "const -9223372036854775808: i64",
        "const 255: u8",
        "const true: bool",
        "select %1, %2, %3",
        "fma %1, %2, %3",
        "cast %1: i32",
        "bitcast %1: u32",
        "reduce all %4",
    ] {
        line(inst.into());
    }
    Unary::ALL.iter().for_each(|op| line(format!("{} %0", op.name())));
    Func1::ALL.iter().for_each(|func| line(format!("{} %0", func.name())));
    Binary::ALL.iter().for_each(|op| line(format!("{} %0, %1", op.name())));
    Compare::ALL.iter().for_each(|op| line(format!("{} %0, %1", op.name())));
    Func2::ALL.iter().for_each(|func| line(format!("{} %0, %1", func.name())));
    text += "  store p2[a0 * 9223372036854775807 + a2 * -1], %7\n}\n";
    assert_eq!(kernel(&text).to_string(), text);
}

#[test]
fn random_kernels_read_back() {
    for seed in 0..2000 {
        let k = if seed % 2 == 0 { random_kernel(seed) } else { random_kernel_with_calls(seed) };
        k.verify().unwrap_or_else(|e| panic!("seed {seed}: {e}\n{k}"));
        assert_eq!(parse(&k.to_string()).as_ref(), Ok(&k), "seed {seed}");
    }
}

/// The kinds of instructions that other tests rely on random kernels to contain.
#[test]
fn random_kernels_are_of_all_kinds() {
    let mut seen = std::collections::BTreeMap::<String, usize>::new();
    let mut see = |what: String| *seen.entry(what).or_default() += 1;
    for seed in 0..2000 {
        let k = random_kernel(seed);
        let (stages, exact, dtypes) = (k.stages(), exact_values(&k), k.dtypes());
        for (i, inst) in k.insts.iter().enumerate() {
            see(inst.to_string().split(' ').next().unwrap_or("").to_string());
            see(format!("{:?}", stages[i]));
            see(format!("exact {}", exact[i]));
            see(dtypes[i].to_string());
            if let Inst::Reduce(op, _) = inst {
                see(format!("reduce {}", op.name()));
            }
        }
        see(format!("empty {}", k.n_points() == 0));
        see(format!("long {}", k.axes.last().is_some_and(|a| a.extent > 16)));
        see(format!("{} axes", k.axes.len()));
    }
    let mut expected: Vec<String> = ["load", "load_at", "index", "const", "select", "fma", "cast", "bitcast", "Kept"]
        .into_iter()
        .chain(["Element", "Tail", "exact true", "exact false", "empty true", "long true", "0 axes", "4 axes"])
        .map(String::from)
        .collect();
    expected.extend(DType::ALL.iter().map(ToString::to_string));
    expected.extend(Unary::ALL.iter().map(|op| op.name().to_string()));
    expected.extend(Binary::ALL.iter().map(|op| op.name().to_string()));
    expected.extend(Compare::ALL.iter().map(|op| op.name().to_string()));
    expected.extend(ReductionOp::ALL.iter().map(|m| format!("reduce {}", m.name())));
    for what in expected {
        assert!(seen.get(&what).is_some_and(|&n| n >= 20), "{what}: {:?}", seen.get(&what));
    }
}

#[test]
fn spaces_and_comments_do_not_matter() {
    let spaced = MEAN_OF_SQUARES.replace(", ", "  ,").replace('\n', " ; a comment\n\n").replace(" * ", "*");
    assert_eq!(kernel(&spaced), kernel(MEAN_OF_SQUARES));
    assert_eq!(kernel("kernel () {\n}"), Kernel::default());
}

#[test]
fn errors_name_the_line() {
    for (from, to, message) in [
        ("mul %0, %0", "mull %0, %0", "line 4: no instruction is called 'mull'"),
        ("mul %0, %0", "mul %0", "line 4: expected ',', found ''"),
        ("mul %0, %0", "mul %0, %0 %1", "line 4: unexpected '%1'"),
        ("%1 = mul", "%2 = mul", "line 4: expected %1, found %2"),
        ("reduce sum", "reduce mean", "line 5: no reduction is called 'mean'"),
        ("0.03125: f32", "0.03125: f33", "line 6: no dtype is called 'f33'"),
        ("0.03125: f32", "0.03125: i32", "line 6: '0.03125' is no i32"),
        ("0.03125: f32", "nan:1234567890: f32", "line 6: 'nan:1234567890' is no f32"),
        ("a0 = 32", "a0 = -32", "line 2: expected a number, found '-32, a1 = 32 reduced'"),
        ("[a0 * 32 + a1]", "[a0 * 32 + a2]", "line 3: there is no axis a2"),
        ("[a0 * 32 + a1]", "[a0 * 32 + a0]", "line 3: axis a0 appears twice"),
        ("p1: f32[32] out", "p2: f32[32] out", "line 1: expected p1, found p2"),
        ("store", "stare", "line 8: expected an instruction, a store or '}', found 'stare p1[a0], %4'"),
        ("\n}\n", "\n", "line 8: the text ends before the kernel does"),
        ("\n}\n", "\n}\n}\n", "line 10: text after the end of the kernel"),
    ] {
        let error = parse(&MEAN_OF_SQUARES.replacen(from, to, 1)).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    assert_eq!(parse("").unwrap_err().to_string(), "line 1: the text ends before the kernel does");
}

/// Texts that are nearly kernels: reading and verifying always answer.
#[test]
fn mutated_text_never_panics() {
    const INSERTS: [&str; 14] =
        ["%", "a", "p", "[", "]", "99999999999999999999", "-", ":", ",", "é", "\n", "reduced", "out", " store "];
    let mut rng = Rng::new(7);
    let (mut read, mut sound) = (0, 0);
    for seed in 0..3000 {
        let text = random_kernel_with_calls(seed % 300).to_string();
        let mut chars: Vec<char> = text.chars().collect();
        for _ in 0..1 + rng.below(3) {
            let at = rng.below(chars.len());
            match rng.below(6) {
                0 => drop(chars.remove(at)),
                1 => chars.splice(at..at, rng.pick(&INSERTS).chars()).for_each(drop),
                2 => chars[at] = char::from(rng.below(128) as u8),
                3 | 4 => {
                    let digits: Vec<usize> = (0..chars.len()).filter(|&i| chars[i].is_ascii_digit()).collect();
                    if !digits.is_empty() {
                        chars[rng.pick(&digits)] = char::from(b'0' + rng.below(10) as u8);
                    }
                }
                _ => chars.truncate(at + 1),
            }
        }
        if let Ok(k) = parse(&chars.iter().collect::<String>()) {
            read += 1;
            sound += usize::from(k.verify().is_ok());
            let _ = (k.to_string(), k.dtypes(), k.stages(), k.n_points(), k.kept_len());
        }
    }
    assert!(read > 100 && sound > 20 && sound < read, "the mutations reach the verifier: {read}, {sound}");
}
