//! Payloads that lie under a checksum that fits, and graphs that mean harm.

use retape::data::Random;
use retape::ops::Op;
use retape::{Args, Graph, Node, Tensor, TensorType};

use super::attack::{attack, attack_graph, modes_of, payload_of, sealed, set_modes, subject};

/// Numbers at which sums and products go over, and some that do not.
const NUMBERS: [&str; 16] = [
    "0",
    "1",
    "2",
    "3",
    "-1",
    "7",
    "64",
    "255",
    "65536",
    "2147483648",
    "4294967296",
    "1099511627776",
    "4611686018427387904",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
];

/// A graph with every op's sample as text.
fn samples() -> Vec<String> {
    let text = |sample: retape::ops::Sample| {
        let params: Vec<String> = sample.args.iter().enumerate().map(|(n, arg)| format!("%{n}: {}", arg.ty)).collect();
        let args: Vec<String> = (0..params.len()).map(|n| format!("%{n}")).collect();
        let types: Vec<&TensorType> = sample.args.iter().map(|arg| &arg.ty).collect();
        let (ty, n) = (sample.op.infer(&types).unwrap(), params.len());
        let attributes = match sample.op.attributes() {
            none if none.is_empty() => none,
            some => format!(" {{{some}}}"),
        };
        let (name, args) = (sample.op.name(), args.join(", "));
        format!("graph ({}) {{\n  %{n} = {name} {args}{attributes} : {ty}\n  return %{n}\n}}", params.join(", "))
    };
    Op::samples().into_iter().map(text).collect()
}

/// Positions where a number stands.
fn numbers(text: &str) -> Vec<std::ops::Range<usize>> {
    let mut found: Vec<std::ops::Range<usize>> = vec![];
    for (at, c) in text.char_indices() {
        match found.last_mut() {
            _ if !c.is_ascii_digit() => {}
            Some(last) if last.end == at => last.end = at + 1,
            _ => found.push(at..at + 1),
        }
    }
    found
}

fn replace(text: &mut String, random: &mut Random) {
    let numbers = numbers(text);
    let at = numbers[random.below(numbers.len())].clone();
    text.replace_range(at, NUMBERS[random.below(NUMBERS.len())]);
}

/// The type after the colon is made to fit, so that more of what is tried gets past the type rules.
fn retyped(text: &str) -> String {
    let Err(error) = text.parse::<Graph>() else { return text.to_owned() };
    let Some((_, ty)) = error.message.split_once("the op makes ") else { return text.to_owned() };
    let lines = text.lines().enumerate().map(|(n, line)| match line.rsplit_once(" : ") {
        Some((start, _)) if n + 1 == error.line => format!("{start} : {ty}"),
        _ => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn samples_are_taken() {
    let samples = samples();
    let taken = samples.iter().filter(|text| attack_graph(text)).count();
    assert_eq!(taken, samples.len());
}

#[test]
fn graphs_with_other_numbers_are_refused_or_run() {
    let mut random = Random::new(2, 0, 0);
    let (mut read, mut taken) = (0, 0);
    for text in samples() {
        for _ in 0..12 {
            let mut text = text.clone();
            for _ in 0..=random.below(3) {
                replace(&mut text, &mut random);
            }
            let text = retyped(&text);
            read += usize::from(text.parse::<Graph>().is_ok());
            taken += usize::from(attack_graph(&text));
        }
    }
    assert!(read > 100 && taken > 50, "{read} read, {taken} were taken");
}

#[test]
fn changed_payloads_are_refused_or_verify() {
    let mut random = Random::new(3, 0, 0);
    let payloads: Vec<Vec<u8>> = samples().iter().step_by(7).map(|text| payload_of(&text.parse().unwrap())).collect();
    let (mut refused, mut taken) = (0, 0);
    for n in 0..1500 {
        let mut payload = payloads[n % payloads.len()].clone();
        for _ in 0..=random.below(3) {
            let at = random.below(payload.len());
            match random.below(4) {
                0 => payload[at] ^= 1 << random.below(8),
                1 => payload[at] = random.bits() as u8,
                2 => payload.truncate(at.max(1)),
                _ => payload.insert(at, b"0123456789[]{}%,:= "[random.below(19)]),
            }
        }
        match attack(&sealed(&payload)) {
            true => taken += 1,
            false => refused += 1,
        }
    }
    assert!(refused > 500 && taken > 3, "{refused} refused, {taken} taken");
}

/// One entry for `(f32[2],)`, with parts to change.
struct Parts {
    words: Vec<u64>,
    mode: u8,
    devices: Vec<u64>,
    graph: String,
    captures: Vec<(&'static str, Vec<u8>)>,
    results: Vec<u64>,
    sources: Vec<(u8, u64)>,
}

impl Parts {
    fn new() -> Parts {
        Parts {
            words: vec![1, 1 << 8, 2],
            mode: 0,
            devices: vec![0],
            graph: "graph (%0: f32[2]) {\n  %1 = neg %0 : f32[2]\n  return %1\n}".into(),
            captures: vec![],
            results: vec![1, 1 << 8, 2],
            sources: vec![(0, 0)],
        }
    }

    fn payload(&self) -> Vec<u8> {
        let mut to = 1_u64.to_le_bytes().to_vec();
        let put = |to: &mut Vec<u8>, n: usize| to.extend((n as u64).to_le_bytes());
        put(&mut to, self.words.len());
        self.words.iter().for_each(|word| to.extend(word.to_le_bytes()));
        to.push(self.mode);
        put(&mut to, self.devices.len());
        self.devices.iter().for_each(|word| to.extend(word.to_le_bytes()));
        put(&mut to, 0);
        put(&mut to, self.graph.len());
        to.extend(self.graph.as_bytes());
        put(&mut to, self.captures.len());
        for (ty, bytes) in &self.captures {
            put(&mut to, 0);
            put(&mut to, ty.len());
            to.extend(ty.as_bytes());
            put(&mut to, bytes.len());
            to.extend(bytes);
        }
        put(&mut to, self.results.len());
        self.results.iter().for_each(|word| to.extend(word.to_le_bytes()));
        put(&mut to, self.sources.len());
        for (kind, position) in &self.sources {
            to.push(*kind);
            to.extend(position.to_le_bytes());
        }
        to
    }
}

/// A byte says in which modes the code of an entry is: each of the eight combinations is loaded as just those, and serves
/// calls in them and no others; there are no more. (`tests/process` has calls of a process with the mode that is one's.)
#[test]
fn modes_are_those_of_the_byte() {
    for mode in 0..=u8::MAX {
        let bytes = sealed(&Parts { mode, ..Parts::new() }.payload());
        assert_eq!(attack(&bytes), mode < 8, "{mode}");
        if mode >= 8 {
            let refused = subject().load_from(&bytes[..]).unwrap_err().to_string();
            assert!(refused.contains(&format!("there are no modes {mode}")), "{refused}");
            continue;
        }
        let modes = [mode & 4 != 0, mode & 2 != 0, mode & 1 != 0];
        for other in [[false, false], [false, true], [true, false], [true, true]] {
            let function = subject();
            assert_eq!(function.load_from(&bytes[..]).unwrap().entries, 1);
            assert_eq!(modes_of(&function.stats().entries[0].signature), modes);
            set_modes(&function, other);
            let result = function.call(vec![Tensor::from([1.0_f32, -2.0])]).unwrap();
            // The entry negates, and the function doubles.
            let is_own = [false, other[0], other[1]] == modes;
            let expected = if is_own { [-1.0, 2.0] } else { [2.0, -4.0] };
            assert_eq!(result[0].to_vec::<f32>().unwrap(), expected, "{mode} in {other:?}");
            let stats = function.stats();
            assert_eq!((stats.hits, stats.misses), if is_own { (1, 0) } else { (0, 1) }, "{mode}");
        }
    }
}

/// Each breaks one rule that loading checks, and the message says which.
#[test]
fn every_lie_is_found() {
    let refused = |change: fn(&mut Parts), expected: &str| {
        let mut parts = Parts::new();
        assert!(attack(&sealed(&parts.payload())));
        change(&mut parts);
        let error = subject().load_from(&sealed(&parts.payload())[..]).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
        assert!(!attack(&sealed(&parts.payload())));
    };
    refused(|p| p.words = vec![1, 1 << 8, 3], "signature");
    refused(|p| p.words = vec![1, 1, 2], "signature");
    refused(|p| p.words = vec![2, 1 << 8, 2, 1 << 8, 2], "tree");
    refused(|p| p.words.push(0), "signature");
    refused(|p| p.words = vec![u64::MAX], "tree");
    refused(|p| p.words = vec![1, 0xff], "signature");
    refused(|p| p.mode = 8, "no modes 8");
    refused(|p| p.devices = vec![], "nowhere");
    refused(|p| p.devices = vec![0, 0], "nowhere");
    refused(|p| p.devices = vec![u64::MAX], "nowhere");
    refused(|p| p.devices = vec![1], "signature");
    refused(|p| p.graph = "nonsense".into(), "does not read");
    refused(|p| p.graph = p.graph.replace("neg", "neg %0, "), "does not read");
    refused(|p| p.graph = p.graph.replace(" : f32[2]\n", " : f32[3]\n"), "does not read");
    refused(|p| p.graph = p.graph.replace(": f32[2]\n", ": f32[2] graph () {\n return\n }\n"), "no type");
    refused(|p| p.captures = vec![("f32[2]", vec![0; 8]); 2], "captures more");
    refused(|p| p.captures = vec![("f32[3]", vec![0; 12])], "captures is not");
    refused(|p| p.captures = vec![("f32[2]", vec![0; 7])], "has 7 bytes");
    refused(|p| p.captures = vec![("f32[18446744073709551615, 18446744073709551615]", vec![])], "has 0 bytes");
    refused(|p| p.captures = vec![("bool[1]", vec![2])], "neither 0 nor 1");
    refused(|p| p.captures = vec![("c64[1]", vec![2])], "no type of a tensor");
    refused(|p| p.results = vec![1, 1 << 8, 3], "result");
    refused(|p| p.results = vec![1, 1, 2], "result");
    refused(|p| p.results = vec![], "tree");
    refused(|p| p.sources = vec![], "tree");
    refused(|p| p.sources = vec![(0, 1)], "from nowhere");
    refused(|p| p.sources = vec![(1, 1)], "from nowhere");
    refused(|p| p.sources = vec![(0, u64::MAX)], "from nowhere");
    refused(|p| p.sources = vec![(3, 0)], "no source of kind 3");
    refused(|p| p.sources = vec![(0, 0), (0, 0)], "result");
}

#[test]
fn lengths_within_a_payload_are_checked_against_what_is_there() {
    let payload = Parts::new().payload();
    let mut refused = 0;
    for at in 0..payload.len() - 7 {
        for len in [u64::MAX, 1 << 62, 1 << 33] {
            let mut payload = payload.clone();
            payload[at..at + 8].copy_from_slice(&len.to_le_bytes());
            refused += usize::from(!attack(&sealed(&payload)));
        }
    }
    assert!(refused > payload.len(), "{refused} of {}", 3 * payload.len());
}

/// Each made something go over before it was refused.
#[test]
fn extreme_attributes_are_refused_or_run() {
    let far = i64::MAX;
    let strides = format!("stride=[{far}, 1], padding=[[1, {far}], [1, 1]], dilation=[1, 1], groups=1");
    let conv = |attributes: &str, ty: &str| {
        let head = "graph (%0: f64[2, 4, 5, 3], %1: f64[3, 3, 3, 2]) {";
        format!("{head}\n  %2 = conv2d %0, %1 {{{attributes}}} : {ty}\n  return %2\n}}")
    };
    assert!(!attack_graph(&conv(&strides, "f64[2, 2, 5, 2]")));
    // As far as it goes.
    let far = isize::MAX as usize / 8;
    let strides = format!("stride=[{far}, 1], padding=[[1, {far}], [1, 1]], dilation=[1, 1], groups=1");
    assert!(attack_graph(&conv(&strides, "f64[2, 2, 5, 2]")));
}

/// Steps and gaps between no two elements can be any number.
#[test]
fn steps_that_are_never_taken_do_not_matter() {
    let far = i64::MAX;
    let slice = |step: i64, outer: i64| {
        format!(
            "graph (%0: f64[4, 6]) {{
               %1 = slice %0 {{start=[1, 5], step=[2, {step}], shape=[2, 1]}} : f64[2, 1]
               %2 = slice %1 {{start=[0, 0], step=[1, {outer}], shape=[2, 1]}} : f64[2, 1]
               %3 = slice %1 {{start=[1, {far}], step=[{outer}, {outer}], shape=[1, 0]}} : f64[1, 0]
               return %2, %3
             }}"
        )
    };
    let x = retape::Tensor::from_vec((0..24).map(f64::from).collect::<Vec<_>>(), [4, 6]).unwrap();
    for (step, outer) in [(1, 1), (far, far), (i64::MIN, far), (-far, i64::MIN)] {
        assert!(attack_graph(&slice(step, outer)), "{step}, {outer}");
        let graph: Graph = slice(step, outer).parse().unwrap();
        assert_eq!(graph.apply(std::slice::from_ref(&x)).unwrap()[0].to_vec::<f64>().unwrap(), [11.0, 23.0]);
        let gradient =
            retape::value_and_grad(|x: &retape::Tensor| graph.apply(std::slice::from_ref(x)).unwrap()[0].sum(..), &x);
        let gradient = gradient.unwrap().1.to_vec::<f64>().unwrap();
        assert_eq!(gradient.iter().sum::<f64>(), 2.0);
        assert_eq!((gradient[11], gradient[23]), (1.0, 1.0));
    }
    let pad = |gap: u64| {
        format!(
            "graph (%0: f64[1, 2]) {{
               %1 = pad %0 {{low=[1, 0], high=[0, 1], interior=[{gap}, 1], value=0.0 f64}} : f64[2, 4]
               return %1
             }}"
        )
    };
    let x = retape::Tensor::from([[1.0, 2.0]]);
    for gap in [0, far as u64, u64::MAX] {
        assert!(attack_graph(&pad(gap)), "{gap}");
        let graph: Graph = pad(gap).parse().unwrap();
        let expected = [0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 2.0, 0.0];
        assert_eq!(graph.apply(std::slice::from_ref(&x)).unwrap()[0].to_vec::<f64>().unwrap(), expected);
        let gradient =
            retape::value_and_grad(|x: &retape::Tensor| graph.apply(std::slice::from_ref(x)).unwrap()[0].sum(..), &x);
        assert_eq!(gradient.unwrap().1.to_vec::<f64>().unwrap(), [1.0, 1.0]);
    }
}

/// An artefact may return parameters, and values more than once, where a trace hands them through or returns them once.
#[test]
fn outputs_may_be_parameters_and_repeat() {
    for outputs in ["%0", "%0, %0", "%1, %1", "%1, %0, %2, %1"] {
        let text = "graph (%0: f32[2]) {\n  %1 = neg %0 : f32[2]\n  %2 = neg %1 : f32[2]\n  return ";
        assert!(attack_graph(&format!("{text}{outputs}\n}}")), "{outputs}");
    }
}

/// A graph of this shape takes stack or time in whoever walks it carelessly.
#[test]
fn deep_and_wide_graphs_come_back() {
    let nested =
        format!("graph () {{\n{}", "  %0 = iota {axis=0, dtype=i64, shape=[2]} : i64[2] graph () {\n".repeat(5000));
    assert!(!attack_graph(&nested));
    let mut deep = Graph::default();
    let ty: TensorType = TensorType::new(retape::DType::F32, [2]);
    let op: Op = retape::ops::Parameter { index: 0, ty: ty.clone() }.into();
    let mut last = deep.push(Node { op, args: Args::new(), ty: ty.clone(), at: None, origin: None });
    for n in 0..3000 {
        let op: Op = if n % 2 == 0 { retape::ops::Tanh.into() } else { retape::ops::Neg.into() };
        last = deep.push(Node { op, args: Args::from_slice(&[last]), ty: ty.clone(), at: None, origin: None });
    }
    deep.set_outputs(vec![last]);
    assert!(attack(&sealed(&payload_of(&deep))));
    let long = |n_nodes: usize| {
        let negs = (1..n_nodes).map(|n| format!("  %{n} = neg %{} : f32[2]\n", n - 1)).collect::<String>();
        let mut parts = Parts::new();
        parts.graph = format!("graph (%0: f32[2]) {{\n{negs}  return %{}\n}}", n_nodes - 1);
        subject().load_from(&sealed(&parts.payload())[..])
    };
    assert_eq!(long(20_000).unwrap().entries, 1);
    let refused = long(70_000).unwrap_err().to_string();
    assert!(refused.contains("its graph has 70000 nodes; an artefact holds graphs of at most 65536"), "{refused}");
    let brackets =
        format!("graph (%0: f32[2]) {{\n %1 = reshape %0 {{shape={}}} : f32[2]\n return %1\n}}", "[".repeat(100_000));
    assert!(!attack_graph(&brackets));
}

/// An entry that a load would refuse is refused by name when it is saved, and serves calls all the same.
#[test]
fn graphs_too_large_to_load_are_not_saved() {
    let function = retape::accelerate(|x: &retape::Tensor| (0..70_000).fold(x.clone(), |y, _| -y));
    let x = || retape::Tensor::from([1.0_f32, -2.0]);
    assert_eq!(function.call(x()).unwrap().to_vec::<f32>().unwrap(), [1.0, -2.0]);
    let mut bytes = vec![];
    let error = function.save_to(&mut bytes).unwrap_err().to_string();
    assert!(error.contains("entry for (f32[2]) cannot be saved: its graph has 70001 nodes"), "{error}");
    assert!(bytes.is_empty());
}
