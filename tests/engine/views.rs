//! The text of entries, stage by stage.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use retape::{Form, Graph, Static, Tensor, accelerate};

#[test]
fn a_graph_shows_what_was_recorded_and_what_became_of_it() {
    let shift = Tensor::from([1.0_f32, 2.0]);
    let first = line!() + 2;
    let f = accelerate(|x: &Tensor, by: &Static<f32>| {
        let y = -(-x);
        (y + &shift) * by.0
    });
    let x = Tensor::ones([3, 2]);
    f.call(&x, Static(0.5)).unwrap();
    let text = f.text(&f.signature(&x, Static(0.5)), Form::Graph).unwrap();
    let (recorded, optimised) = text.split_once("\n; optimised\n").unwrap();
    let captured = format!("; %1: captured at tests/engine/views.rs:{}:", first + 1);
    for part in ["; recorded for (f32[3, 2], 0.5)", "; %0: argument 0", &captured] {
        assert!(recorded.contains(part), "{part}: {text}");
    }
    // Every recorded line says where it comes from.
    for (op, line) in [("neg", first), ("add", first + 1), ("mul", first + 1)] {
        let node = recorded.lines().find(|node| node.contains(&format!(" = {op} "))).unwrap();
        assert!(node.contains(&format!("; tests/engine/views.rs:{line}:")), "{node}");
    }
    let (recorded, optimised): (Graph, Graph) = (recorded.parse().unwrap(), optimised.parse().unwrap());
    let count = |graph: &Graph, op: &str| graph.nodes().iter().filter(|node| node.op.name() == op).count();
    assert_eq!((count(&recorded, "neg"), count(&optimised, "neg")), (2, 0));
    assert_eq!((count(&recorded, "add"), count(&optimised, "add")), (1, 1));
}

#[test]
fn a_plan_and_its_kernels_show_every_step() {
    let f = accelerate(|x: &Tensor, w: &Tensor| x.matmul(w).exp() + 1.0);
    // A product of more steps than a kernel writes out.
    let (x, w) = (Tensor::ones([4, 20]), Tensor::ones([20, 2]));
    f.call(&x, &w).unwrap();
    let signature = f.signature(&x, &w);
    let plan = f.text(&signature, Form::Plan).unwrap();
    assert!(plan.starts_with("plan (f32[80], f32[40]) -> (f32[8])\n  arena 0 bytes\n"), "{plan}");
    let step = "0 matmul+add: (input 0: f32[80], input 1: f32[40]) -> (output 0: f32[8]) through output 0: f32[8]\n";
    for part in [step, "    matmul{", "    epilogue of p0\n", "exp %0"] {
        assert!(plan.contains(part), "{part}: {plan}");
    }
    let kernels = f.text(&signature, Form::Kernels).unwrap();
    assert!(kernels.contains("; step 0: matmul+add\n; library kernel"), "{kernels}");
    assert!(kernels.contains("\n; epilogue\nkernel (p0: f32[8]"), "{kernels}");
    assert!(!kernels.contains(" = exp "), "expanded: {kernels}");
    let clif = f.text(&signature, Form::Clif).unwrap();
    assert!(clif.contains("; epilogue\nfunction u0:0(i64, i64, i64)") && clif.contains("block0("), "{clif}");
    let code = f.text(&signature, Form::Disassembly).unwrap();
    // Nests of full width are shown as bytes, others by Cranelift.
    let is_instructions = code.contains("ret") && (!cfg!(target_arch = "x86_64") || code.contains("%xmm"));
    assert!(code.contains("; epilogue\n") && (is_instructions || code.contains("  .byte 0x")), "{code}");
}

#[test]
fn signatures_come_from_calls_statistics_and_misses() {
    let f = accelerate(|x: &Tensor| x + x);
    f.call(Tensor::ones([2])).unwrap();
    let signature = f.signature(Tensor::zeros([2]));
    assert_eq!((&f.stats().entries[0].signature, &f.explain()[0].signature), (&signature, &signature));
    let text = f.text(&signature, Form::Graph).unwrap();
    assert_eq!(f.text(&f.stats().entries[0].signature, Form::Graph).unwrap(), text);
    // Looking is no use: counters and order stay.
    assert_eq!((f.stats().hits, f.stats().misses), (0, 1));
}

#[test]
fn an_entry_that_is_not_there_is_an_error_that_names_those_that_are() {
    let f = accelerate(|x: &Tensor| x + x).named("double");
    let signature = |n: usize| f.signature(Tensor::ones([n]));
    let unknown = f.signature(Tensor::ones([9, 9]));
    let none = format!("cache: `double` has no entry {} (f32[9, 9])", unknown.id());
    assert_eq!(f.text(&unknown, Form::Graph).unwrap_err().to_string(), format!("{none}; its cache is empty"));
    for n in 1..=10 {
        f.call(Tensor::ones([n])).unwrap();
    }
    let error = |result: retape::Result<String>| result.unwrap_err().to_string();
    let known: Vec<String> = (3..=10).rev().map(|n| format!("{} (f32[{n}])", signature(n).id())).collect();
    let expected = format!("{none}; it has {} and 2 more", known.join(", "));
    for found in [
        f.text(&unknown, Form::Graph),
        f.text(&unknown, Form::Plan),
        f.text(&unknown, Form::Kernels),
        f.text(&unknown, Form::Clif),
        f.text(&unknown, Form::Disassembly),
    ] {
        assert_eq!(error(found), expected);
    }
}
