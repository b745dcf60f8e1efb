//! Numbers, graphs and texts that no honest program has: refused with an error, and nothing panics.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};

use retape::data::{self, Digits, MiniBatches};
use retape::nn::{BatchNorm, Conv2d, ConvTranspose2d, Dense, Embedding, Gru, Init, LayerNorm, Lstm};
use retape::ops::{ConvOptions, Op, Padding, Parameter};
use retape::random::{self, Key};
use retape::{Args, DType, Error, Graph, Node, Shape, Tensor, TensorType, ValueId, accelerate, concat, einsum, stack};

/// Counts that memory cannot hold, and counts that wrap if they are multiplied or added to.
const HUGE: [usize; 6] = [1 << 44, 1 << 60, (1 << 62) + 1, isize::MAX as usize, 0xAAAA_AAAA_AAAA_AAAB, usize::MAX];

/// The result of something that must not panic.
fn calm<T>(what: &dyn Debug, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| panic!("{what:?} panics"))
}

type Make = fn(&Tensor, usize) -> Tensor;

/// The calls on a tensor `f32[2, 3]` that take a count, here one that is none.
const MAKE: &[(&str, Make)] = &[
    ("zeros", |_, n| Tensor::zeros([n])),
    ("ones", |_, n| Tensor::ones([n, n])),
    ("full", |_, n| Tensor::full([2, n], true)),
    ("empty", |_, n| Tensor::zeros([0, n, n])),
    ("zeros_of", |_, n| Tensor::zeros_of(DType::U8, [n, 2])),
    ("arange", |_, n| Tensor::arange(n)),
    ("iota", |_, n| Tensor::iota(DType::F64, [n, n], 1)),
    ("iota axis", |_, n| Tensor::iota(DType::F64, [2], n)),
    ("eye", |_, n| Tensor::eye(n)),
    ("from_vec", |_, n| Tensor::from_vec(vec![0_u8; 0], [0, n, n]).unwrap_or_else(|e| poisoned_by(&e))),
    ("one_hot", |x, n| x.cast(DType::I64).one_hot(n)),
    ("reshape", |x, n| x.reshape([n])),
    ("reshape empty", |x, n| x.slice_axis(0, 0..0).reshape([0, n, n])),
    ("broadcast_to", |x, n| x.broadcast_to([n, 2, 3])),
    ("tile", |x, n| x.tile(&[1, n])),
    ("tile empty", |x, n| x.slice_axis(0, 0..0).tile(&[n, n])),
    ("pad low", |x, n| x.pad(&[n, 0], &[0, 0], 0.0)),
    ("pad high", |x, n| x.pad(&[0, 0], &[1, n], 0.0)),
    ("slice", |x, n| x.slice(&[0, 1], &[n, n], &[1, 1])),
    ("chunk", |x, n| x.chunk(0, n).remove(0)),
    ("chunk empty", |x, n| x.slice_axis(0, 0..0).chunk(0, n).remove(0)),
    ("split", |x, n| x.split(1, &[n, 3]).remove(0)),
    ("top_k", |x, n| x.top_k(n, 1).1),
    ("polygamma", |x, n| x.polygamma(n as u32 | 1 << 20)),
    ("conv2d padding", |x, n| {
        let options = ConvOptions::default().padding(Padding::Explicit([[n, n], [n, n]]));
        x.reshape([1, 2, 3, 1]).conv2d(&Tensor::ones([1, 1, 1, 1]), options)
    }),
    ("conv2d groups", |x, n| {
        x.reshape([1, 2, 3, 1]).conv2d(&Tensor::ones([1, 1, 1, 1]), ConvOptions::same().groups(n))
    }),
    ("conv_transpose2d", |x, n| {
        x.reshape([1, 2, 3, 1]).conv_transpose2d(&Tensor::ones([1, 1, 1, 1]), ConvOptions::same().stride(n))
    }),
    ("max_pool2d", |x, n| x.reshape([1, 2, 3, 1]).max_pool2d([n, 1], [1, 1], Padding::Valid)),
    ("max_pool2d padding", |x, n| {
        x.reshape([1, 2, 3, 1]).max_pool2d([1, 1], [1, 1], Padding::Explicit([[n, 0], [0, n]]))
    }),
    ("avg_pool2d", |x, n| x.reshape([1, 2, 3, 1]).avg_pool2d([n, n], [n, n], Padding::Valid)),
    ("bits", |_, n| random::bits(&Key::new(1), [n])),
    ("uniform", |_, n| random::uniform(&Key::new(1), [n, n], DType::F64)),
    ("normal", |_, n| random::normal(&Key::new(1), [n], DType::F32)),
    ("bernoulli", |_, n| random::bernoulli(&Key::new(1), 0.5, [n])),
    ("randint", |_, n| random::randint(&Key::new(1), .., [n], DType::I64)),
    ("split_into", |_, n| Key::new(1).split_into(n).remove(0).tensor().clone()),
    ("init", |_, n| Init::he_normal().tensor(1, [n, 1])),
    ("init f64", |_, n| Init::glorot_uniform().dtype(DType::F64).tensor(1, [n, n])),
    ("dense", |_, n| Dense::new(1, n, n).weight),
    ("dense bias", |_, n| Dense::new(1, 1, n).bias),
    ("embedding", |_, n| Embedding::new(1, n, 3).table),
    ("conv", |_, n| Conv2d::new(1, [n, n], n, n).weight),
    ("lstm", |_, n| Lstm::new(1, 1, n).bias),
    ("lstm weights", |_, n| Lstm::new(1, n, n).input_weight),
    ("gru", |_, n| Gru::new(1, 1, n).bias),
    ("gru weights", |_, n| Gru::new(1, n, n).hidden_weight),
    ("transposed conv", |_, n| ConvTranspose2d::new(1, [n, n], [n, n], n, n).weight),
    ("lstm steps", |x, n| Lstm::new(1, 3, 2).apply(&x.slice_axis(0, 0..0).reshape([0, n, 3]), None).0),
    ("gru steps", |x, n| Gru::new(1, 3, 2).apply(&x.slice_axis(0, 0..0).reshape([0, n, 3]), None).0),
    ("layer norm", |_, n| LayerNorm::new(n).scale),
    ("batch norm", |_, n| BatchNorm::new(n).offset),
];

/// A poisoned tensor, for functions that return errors.
fn poisoned_by(_: &Error) -> Tensor {
    Tensor::zeros([2]).reshape([3])
}

fn two_by_three() -> Tensor {
    Tensor::from([[0.5_f32, -1.0, 2.0], [0.0, 1.0, 3.0]])
}

#[test]
fn counts_that_nothing_can_hold_are_errors() {
    let x = two_by_three();
    for (name, make) in MAKE {
        for n in HUGE {
            let made = calm(&(name, n), || make(&x, n));
            assert!(made.error().is_some(), "{name} of {n} is {:?}", made.shape());
            // The message is for people, and ops on the result keep the error.
            assert!(!made.error().unwrap().to_string().contains("internal"), "{name} of {n}: {made:?}");
            assert!(calm(&(name, n), || (&made + 1.0).sum(..)).error().is_some());
        }
    }
    assert_eq!((&x + &x).to_vec::<f32>().unwrap()[2], 4.0);
}

#[test]
fn counts_that_nothing_can_hold_fail_a_trace() {
    let x = two_by_three();
    for (name, make) in MAKE {
        for n in HUGE {
            let function = accelerate(move |x: &Tensor| make(x, n));
            let error = calm(&(name, n), || function.call(&x)).expect_err(name);
            assert!(!matches!(error, Error::Panicked(_) | Error::Internal(_)), "{name} of {n}: {error}");
        }
    }
}

#[test]
fn values_that_are_too_many_at_a_time_are_refused() {
    let x = Tensor::from([1.0]);
    // Values of almost 2^62 bytes, of which each can be addressed, and three are alive at a time.
    let function = accelerate(|x: &Tensor| {
        let [a, b, c] = [1.0, 2.0, 3.0].map(|n| (x.broadcast_to([(1 << 59) - 64]) + n).cumsum(0));
        ((&a + &b) * (&b - &c)).cumsum(0) + c.cumsum(0) + a.cumsum(0)
    });
    let error = calm(&"a plan", || function.call(&x)).unwrap_err();
    assert!(matches!(error, Error::Memory(_)), "{error}");
}

/// Each result can be addressed, and their bytes together cannot be counted.
#[test]
fn results_that_are_too_many_together_are_refused() {
    let results = accelerate(|x: &Tensor| [1.0, 2.0, 3.0, 4.0, 5.0].map(|n| x.broadcast_to([1 << 60]) + n).to_vec());
    let error = calm(&"results", || results.call(Tensor::from([1.0_f32]))).unwrap_err();
    assert!(matches!(error, Error::Memory(_)), "{error}");
}

#[test]
fn memory_refused_to_layers_names_their_lines() {
    let made: &[(&str, u32, fn() -> Tensor)] = &[
        ("Init::tensor", line!(), || Init::he_normal().tensor(1, [1 << 44])),
        ("Init::tensor", line!(), || Init::he_normal().dtype(DType::F64).tensor(1, [1 << 44])),
        ("Conv2d::with_init", line!(), || Conv2d::new(1, [1 << 20, 1 << 20], 1, 16).weight),
        ("ConvTranspose2d::with_init", line!(), || ConvTranspose2d::new(1, [1 << 20, 1 << 20], [1, 1], 1, 16).weight),
        ("Init::tensor", line!(), || Gru::new(1, 1 << 44, 1).input_weight),
        ("zeros", line!(), || Gru::new(1, 0, 1 << 44).bias),
    ];
    for (method, line, make) in made {
        let made = make();
        let Some(Error::Memory(refused)) = made.error() else { panic!("{method}: {made}") };
        assert_eq!((refused.by.as_str(), refused.at.line()), (&*format!("`{method}`"), *line), "{made}");
        assert_eq!(refused.at.file(), file!());
    }
}

/// A power has a derivative of the power below it, which the lowest one has not.
#[test]
fn the_lowest_power_is_refused() {
    for (exponent, is_valid) in [(i64::MIN, false), (i64::MIN + 1, true), (i64::MAX, true)] {
        let text =
            format!("graph (%0: f32[]) {{\n  %1 = int_pow %0 {{exponent={exponent}}} : f32[]\n  return %1\n}}\n");
        let slope = calm(&exponent, || text.parse::<Graph>().ok()?.with_gradient().ok()?.with_gradient().ok());
        assert_eq!(calm(&exponent, || text.parse::<Graph>()).is_ok_and(|graph| graph.verify().is_ok()), is_valid);
        assert_eq!(slope.is_some(), exponent == i64::MAX, "{exponent}");
    }
}

#[test]
fn axes_and_places_that_do_not_exist_are_errors() {
    let x = two_by_three();
    let far = [isize::MIN, isize::MIN + 1, -3, 3, isize::MAX - 1, isize::MAX];
    let make: &[(&str, fn(&Tensor, isize) -> Tensor)] = &[
        ("sum", |x, a| x.sum(a)),
        ("max_keep", |x, a| x.max_keep([a, 0])),
        ("permute", |x, a| x.permute([0, a])),
        ("swap_axes", |x, a| x.swap_axes(0, a)),
        ("squeeze", |x, a| x.squeeze(a)),
        ("flatten_from", |x, a| x.flatten_from(a)),
        ("index_axis", |x, a| x.index_axis(a, 0)),
        ("index_axis at", |x, a| x.slice_axis(1, 0..2).index_axis(1, a)),
        ("slice_axis", |x, a| x.slice_axis(a, ..)),
        ("slice_axis to", |x, a| x.slice_axis(0, 2..=a.max(3))),
        ("cumsum", |x, a| x.cumsum(a)),
        ("argsort", |x, a| x.argsort(a)),
        ("argmax", |x, a| x.argmax(a)),
        ("flip", |x, a| x.flip([a, 1])),
        ("softmax", |x, a| x.softmax(a)),
        ("take", |x, a| x.take(&Tensor::from([0_i64]), a)),
        ("chunk", |x, a| x.chunk(a, 2).remove(0)),
        ("concat", |x, a| concat(&[x, x], a)),
        ("einsum", |x, _| einsum(&"i".repeat(3000), &[x])),
        ("stack", |x, a| stack(&[x, x], if a.unsigned_abs() < 8 { 2 * a } else { a })),
        ("unsqueeze", |x, a| x.unsqueeze(if a.unsigned_abs() < 8 { 2 * a } else { a })),
    ];
    for (name, make) in make {
        for a in far {
            let made = calm(&(name, a), || make(&x, a));
            assert!(made.error().is_some(), "{name} at {a} is {:?}", made.shape());
        }
    }
    // These have an answer for every number.
    for a in far {
        assert_eq!(calm(&a, || x.dim(a)), 1);
    }
}

#[test]
fn diagonals_may_lie_anywhere() {
    let x = two_by_three();
    let all = x.to_vec::<f32>().unwrap();
    for far in [3, 4, i64::MAX - 1, i64::MAX] {
        assert_eq!(x.tril(far).to_vec::<f32>().unwrap(), all, "{far}");
        assert_eq!(x.triu(-far).to_vec::<f32>().unwrap(), all, "{far}");
        assert_eq!(x.tril(-far).to_vec::<f32>().unwrap(), [0.0; 6], "{far}");
        assert_eq!(x.triu(far).to_vec::<f32>().unwrap(), [0.0; 6], "{far}");
    }
    assert_eq!(x.triu(i64::MIN).to_vec::<f32>().unwrap(), all);
    assert_eq!(x.tril(i64::MIN).to_vec::<f32>().unwrap(), [0.0; 6]);
}

#[test]
fn data_that_memory_cannot_hold_is_refused() {
    for n in HUGE {
        assert!(calm(&n, || data::one_hot(&[1, 0], n)).is_err(), "{n}");
        assert!(calm(&n, || data::gather(&[1.0], n, &[0])).is_err(), "{n}");
        assert!(calm(&n, || MiniBatches::new(n, 1)).is_err(), "{n}");
        assert!(calm(&n, || Digits::generate(1, n)).is_err(), "{n}");
    }
    assert!(data::one_hot(&[], usize::MAX).unwrap().is_empty());
    let batches = MiniBatches::new(3, usize::MAX).unwrap();
    assert_eq!(batches.epoch(u64::MAX).iter().count(), 1);
    assert_eq!(calm(&"shape", || Shape::new(&[1 << 40, 1 << 40]).n_elements()), usize::MAX);
}

#[test]
fn parts_are_as_many_as_asked_for() {
    let x = two_by_three();
    assert_eq!(x.chunk(1, 3).len(), 3);
    // All parts carry the error, as many as there may be.
    for n in [2, 1 << 20] {
        let parts = x.chunk(1, n);
        assert!(parts.len() == n && parts.iter().all(|part| part.error().is_some()));
    }
    assert_eq!(x.chunk(1, (1 << 20) + 1).len(), 1);
    assert_eq!(x.chunk(1, 0).len(), 1);
    let none = x.slice_axis(0, 0..0).chunk(0, 5);
    assert!(none.len() == 5 && none.iter().all(|part| part.shape() == [0, 3]));
    assert_eq!(x.split(1, &[1; 7]).len(), 7);
}

/// Everything that can be asked of a graph; says whether it verifies.
fn is_asked_everything(graph: &Graph, what: &dyn Debug) -> bool {
    let is_valid = calm(what, || graph.verify()).is_ok();
    let text = calm(what, || graph.to_string());
    calm(&text, || {
        graph.use_counts();
        graph.with_parameters_first();
        graph.without_dead_nodes()
    });
    let inputs: Vec<Tensor> = vec![];
    let asked = [
        calm(&text, || graph.planned().map(|_| ())),
        calm(&text, || graph.executable().map(|_| ())),
        calm(&text, || graph.optimized().map(|_| ())),
        calm(&text, || graph.optimized_by(&Graph::PASSES).map(|_| ())),
        calm(&text, || graph.with_gradient().map(|_| ())),
        calm(&text, || graph.evaluate(&inputs).map(|_| ())),
        calm(&text, || graph.apply(&inputs).map(|_| ())),
    ];
    for answer in asked {
        let is_refused = matches!(&answer, Err(Error::Type { message, .. }) if message.contains("does not verify"));
        assert_eq!(is_refused, !is_valid, "{answer:?} for\n{text}");
        assert!(!matches!(answer, Err(Error::Panicked(_))), "{answer:?} for\n{text}");
    }
    is_valid
}

fn node(op: impl Into<Op>, args: &[u32], ty: &TensorType) -> Node {
    let args: Args = args.iter().map(|&id| ValueId(id)).collect();
    Node { op: op.into(), args, ty: ty.clone(), at: None, origin: None }
}

fn graph_of(nodes: Vec<Node>, outputs: &[u32]) -> Graph {
    let mut graph = Graph::default();
    for node in nodes {
        graph.push(node);
    }
    graph.set_outputs(outputs.iter().map(|&id| ValueId(id)).collect());
    graph
}

#[test]
fn graphs_that_lie_are_refused() {
    let ty = TensorType::new(DType::F32, [2]);
    let parameter = |index| node(Parameter { index, ty: ty.clone() }, &[], &ty);
    let negated = |arg| node(retape::ops::Neg, &[arg], &ty);
    let refused = |nodes: Vec<Node>, outputs: &[u32], because: &str| {
        let graph = graph_of(nodes, outputs);
        assert!(!is_asked_everything(&graph, &because));
        let error = graph.planned().unwrap_err().to_string();
        assert!(error.contains(because) && error.contains("hostile.rs"), "{error}");
    };
    assert!(is_asked_everything(&graph_of(vec![parameter(0), negated(0)], &[1]), &"an honest graph"));
    refused(vec![parameter(0), negated(1)], &[1], "%1: uses %1, which does not come before it");
    refused(vec![parameter(0), negated(2), negated(0)], &[1], "%1: uses %2");
    refused(vec![parameter(0), negated(u32::MAX)], &[1], "uses %4294967295");
    refused(vec![negated(7)], &[0], "%0: uses %7");
    refused(vec![parameter(0)], &[1], "output %1 does not exist");
    refused(vec![parameter(0)], &[u32::MAX], "output %4294967295 does not exist");
    refused(vec![], &[0], "output %0 does not exist");
    refused(vec![parameter(1)], &[0], "%0: is not parameter 0");
    refused(vec![parameter(usize::MAX)], &[0], "%0: is not parameter 0");
    refused(vec![parameter(0), parameter(0)], &[0], "%1: is not parameter 1");
    let wide = TensorType::new(DType::F32, [3]);
    refused(vec![parameter(0), node(retape::ops::Neg, &[0], &wide)], &[1], "neg makes f32[2], not f32[3]");
    refused(vec![parameter(0), node(retape::ops::Neg, &[], &ty)], &[1], "neg: takes 1 arguments, was given 0");
    refused(vec![parameter(0), node(retape::ops::Add, &[0, 0, 0], &ty)], &[1], "takes 2 arguments");
    let far = TensorType::new(DType::F32, [1 << 40, 1 << 40]);
    refused(vec![node(Parameter { index: 0, ty: far.clone() }, &[], &far)], &[0], "too large to address");
    let other = node(Parameter { index: 0, ty: wide }, &[], &ty);
    refused(vec![other], &[0], "parameter makes f32[3], not f32[2]");
}

/// Graphs of one op each, from its samples.
fn samples() -> Vec<Graph> {
    let graph = |sample: retape::ops::Sample| {
        let types: Vec<TensorType> = sample.args.iter().map(|arg| arg.ty.clone()).collect();
        let result = sample.op.infer(&types.iter().collect::<Vec<_>>()).unwrap();
        let parameters = types.iter().enumerate();
        let parameters = parameters.map(|(index, ty)| node(Parameter { index, ty: ty.clone() }, &[], ty));
        let n = types.len() as u32;
        let nodes = parameters.chain([node(sample.op, &(0..n).collect::<Vec<_>>(), &result)]).collect();
        graph_of(nodes, &[n])
    };
    Op::samples().into_iter().map(graph).collect()
}

/// Numbers from a seed.
fn drawn(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed;
    move |n| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 20) as usize % n
    }
}

#[test]
fn graphs_with_a_lie_in_them_are_refused_or_run() {
    let samples = samples();
    let ops: Vec<Op> = samples.iter().map(|graph| graph.nodes().last().unwrap().op.clone()).collect();
    let types: Vec<TensorType> =
        samples.iter().flat_map(|graph| graph.nodes().iter().map(|node| node.ty.clone())).collect();
    let mut draw = drawn(0x9e37_79b9_7f4a_7c15);
    let (mut n_valid, mut n_refused) = (0, 0);
    for graph in &samples {
        for _ in 0..6 {
            let mut nodes = graph.nodes().to_vec();
            let at = draw(nodes.len());
            let ids = [0, 0, 1, 2, 3, at as u32, u32::MAX];
            match draw(5) {
                0 => nodes[at].ty = types[draw(types.len())].clone(),
                1 => nodes[at].op = ops[draw(ops.len())].clone(),
                2 => nodes[at].args.push(ValueId(ids[draw(ids.len())])),
                3 => nodes[at].args.iter_mut().for_each(|arg| *arg = ValueId(ids[draw(ids.len())])),
                _ => drop(nodes.remove(at)),
            }
            let lie = graph_of(nodes, &[ids[draw(ids.len())], graph.outputs()[0].0]);
            match is_asked_everything(&lie, &graph.to_string()) {
                true => n_valid += 1,
                false => n_refused += 1,
            }
        }
    }
    assert!(n_valid > 10 && n_refused > 300, "{n_valid} are valid, {n_refused} refused");
}

#[test]
fn texts_with_hostile_numbers_are_refused_or_planned() {
    const NUMBERS: [&str; 11] = [
        "0",
        "1",
        "2",
        "7",
        "4294967296",
        "1152921504606846976",
        "9223372036854775807",
        "-9223372036854775808",
        "18446744073709551615",
        "-1",
        "99999999999999999999999",
    ];
    let mut draw = drawn(0x1234_5678_9abc_def1);
    let (mut n_read, mut n_refused) = (0, 0);
    for graph in samples() {
        let text = graph.to_string();
        assert_eq!(text.parse::<Graph>().as_ref(), Ok(&graph), "{text}");
        let is_digit = |at: usize| text.as_bytes()[at].is_ascii_digit();
        let is_start = |&at: &usize| is_digit(at) && b" [=".contains(&text.as_bytes()[at - 1]);
        let starts: Vec<usize> = (1..text.len()).filter(is_start).collect();
        for _ in 0..12 {
            let mut places: Vec<usize> = (0..1 + draw(3)).map(|_| starts[draw(starts.len())]).collect();
            places.sort_unstable();
            places.dedup();
            let (mut mutant, number) = (text.clone(), NUMBERS[draw(NUMBERS.len())]);
            for &at in places.iter().rev() {
                let end = (at..text.len()).find(|&at| !is_digit(at)).unwrap();
                mutant.replace_range(at..end, number);
            }
            match calm(&mutant, || mutant.parse::<Graph>()) {
                Ok(graph) => {
                    n_read += 1;
                    assert!(is_asked_everything(&graph, &mutant));
                }
                Err(_) => n_refused += 1,
            }
        }
    }
    assert!(n_read > 20 && n_refused > 500, "{n_read} are read, {n_refused} refused");
}

/// Lines that the kernels for the processor cannot count: a limit of this machine, and no fault of the library.
#[test]
fn lines_that_are_too_long_to_sort_are_named() {
    let at = line!() + 1;
    let sorted = accelerate(|x: &Tensor| x.broadcast_to([1 << 33]).argsort(0).max(..));
    let error = calm(&"a long sort", || sorted.call(Tensor::from([1.0_f32]))).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::Device(_)) && text.contains("sorting 8589934592 elements"), "{at}: {text}");
    assert!(!text.contains("please report"), "{text}");
}
