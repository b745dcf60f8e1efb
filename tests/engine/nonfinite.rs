//! The trap for NaN and infinities: which op is named, what is nobody's fault, and that no bit changes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use retape::ops::{Op, Sample};
use retape::optim::{Adam, AdamState};
use retape::{
    DType, Error, Graph, MissReason, NonFinite, Scalar, Tensor, accelerate, bf16, concat, f16, value_and_grad,
};

fn trapped<T: std::fmt::Debug>(result: retape::Result<T>) -> NonFinite {
    match result {
        Err(Error::NonFinite(found)) => *found,
        other => panic!("{other:?}"),
    }
}

fn line(found: &NonFinite) -> u32 {
    let at = found.at.unwrap();
    assert_eq!(at.file(), "tests/engine/nonfinite.rs");
    at.line()
}

#[test]
fn the_first_op_of_a_fused_group_is_named() {
    const LOG: u32 = line!() + 3;
    let f = accelerate(|x: &Tensor| {
        let y = x * 2.0;
        let z = y.log();
        (z + 1.0).exp().sum(..)
    });
    f.configure(|options| options.trap_nonfinite = true);
    assert!(f.options().trap_nonfinite);
    f.call(Tensor::from([1.0_f32, 2.0, 3.0])).unwrap();
    let called = line!() + 1;
    let found = trapped(f.call(Tensor::from([1.0_f32, -2.0, 3.0])));
    assert_eq!((found.op, line(&found), found.called_at.line()), ("log", LOG, called));
    assert_eq!((found.n_elements, found.n_nan, found.n_infinite, found.first), (3, 1, 0, 1));
    let input = &found.inputs[0];
    assert_eq!((input.min, input.max, input.mean, input.n_nan, input.n_infinite), (-4.0, 6.0, 4.0 / 3.0, 0, 0));
    assert_eq!(input.at_first, Some(-4.0));
    assert!(found.group.contains("reduce_sum"), "{found}");
    let text = found.to_string();
    assert!(text.contains("`log` makes NaN of finite numbers at tests/engine/nonfinite.rs:"), "{text}");
    assert_eq!((f.stats().checks.trapped, f.stats().hits, f.stats().misses), (1, 1, 1));
}

#[test]
fn an_infinity_is_found_where_it_arises_and_not_where_it_becomes_nan() {
    let f = accelerate(|x: &Tensor| {
        let large = x.exp();
        &large - &large
    });
    f.configure(|options| options.trap_nonfinite = true);
    let found = trapped(f.call(Tensor::from([1.0_f32, 100.0])));
    assert_eq!((found.op, found.n_nan, found.n_infinite, found.value), ("exp", 0, 1, f64::INFINITY));
}

#[test]
fn the_backward_pass_names_the_line_of_its_op() {
    const ROOT: u32 = line!() + 2;
    let f = accelerate(|x: &Tensor| {
        let loss = x.sqrt().sum(..);
        let gradient = loss.grad(x);
        (loss, gradient)
    });
    f.configure(|options| options.trap_nonfinite = true);
    f.call(Tensor::from([1.0_f64, 4.0])).unwrap();
    let found = trapped(f.call(Tensor::from([1.0_f64, 0.0])));
    assert_eq!((line(&found), found.first, found.value), (ROOT, 1, f64::INFINITY));
}

/// The ops of a composite belong to its line, those in its closures too.
#[test]
fn an_optimiser_names_the_line_of_its_update() {
    const UPDATE: u32 = line!() + 3;
    let adam = Adam::new().epsilon(0.0);
    let f = accelerate(move |p: &Tensor, gradient: &Tensor, state: &AdamState<Tensor>| {
        adam.update(p, gradient, state, 0.1)
    });
    f.configure(|options| options.trap_nonfinite = true);
    let p = Tensor::from([1.0_f64, 2.0]);
    f.call(&p, Tensor::from([1.0_f64, 2.0]), adam.init(&p)).unwrap();
    let found = trapped(f.call(&p, Tensor::from([1.0_f64, 0.0]), adam.init(&p)));
    assert_eq!((found.op, line(&found), found.first), ("div", UPDATE, 1));
}

#[test]
fn library_ops_are_named() {
    let f = accelerate(|a: &Tensor, b: &Tensor| a.matmul(b).sum(..));
    f.configure(|options| options.trap_nonfinite = true);
    let large = Tensor::ones([8, 8]) * 1e30_f32;
    f.call(Tensor::ones([8, 8]), &large).unwrap();
    let found = trapped(f.call(&large, &large));
    assert_eq!((found.op, found.inputs.len(), found.n_infinite), ("matmul", 2, 64));
    let sum = accelerate(|x: &Tensor| x.cumsum(0).min(..));
    sum.configure(|options| options.trap_nonfinite = true);
    let found = trapped(sum.call(Tensor::ones([4]) * 3e38_f32));
    assert_eq!((found.op, found.first, found.n_infinite), ("cumsum", 1, 3));
}

#[test]
fn reductions_are_named_in_small_and_in_large() {
    for n in [3, 1 << 20] {
        let f = accelerate(|x: &Tensor| x.sum(..) * 0.5);
        f.configure(|options| options.trap_nonfinite = true);
        let found = trapped(f.call(Tensor::ones([n]) * 3e38_f32));
        assert_eq!(found.op, "reduce_sum");
    }
}

#[test]
fn narrow_floats_count_too() {
    let f = accelerate(|x: &Tensor| (x.cast(DType::F16), x.cast(DType::Bf16)));
    f.configure(|options| options.trap_nonfinite = true);
    for n in [1, 7, 64] {
        f.call(Tensor::ones([n]) * 65504.0_f32).unwrap();
        let found = trapped(f.call(Tensor::ones([n]) * 65536.0_f32));
        assert_eq!((found.op, found.n_infinite), ("cast", n));
        assert!(found.node.contains("f16"), "{found}");
        let found = trapped(f.call(Tensor::ones([n]) * f32::MAX));
        assert!(found.node.contains("f16"), "{found}");
    }
    let only = accelerate(|x: &Tensor| x.cast(DType::Bf16));
    only.configure(|options| options.trap_nonfinite = true);
    assert_eq!(only.call(Tensor::ones([5]) * 3e38_f32).unwrap().to_vec::<bf16>().unwrap().len(), 5);
    assert!(trapped(only.call(Tensor::ones([5]) * f32::MAX)).node.contains("bf16"));
}

#[test]
fn what_arguments_and_constants_bring_along_is_nobodys_fault() {
    let f = accelerate(|x: &Tensor| {
        let masked = x.lt(0.0).select(x * f32::NEG_INFINITY, x).exp();
        concat(&[&masked, &(x + f32::INFINITY)], 0)
    });
    f.configure(|options| options.trap_nonfinite = true);
    for _ in 0..2 {
        f.call(Tensor::from([1.0_f32, 2.0])).unwrap();
        f.call(Tensor::from([f32::INFINITY, f32::NAN])).unwrap();
    }
    // An element that is not finite excuses its own results only.
    let log = accelerate(|x: &Tensor| x.log());
    log.configure(|options| options.trap_nonfinite = true);
    log.call(Tensor::from([f32::NAN, 1.0])).unwrap();
    let found = trapped(log.call(Tensor::from([f32::NAN, -1.0])));
    assert_eq!((found.first, found.inputs[0].n_nan), (1, 1));
}

#[test]
fn captured_infinities_excuse_as_arguments_do() {
    let mask = Tensor::from([0.0_f32, f32::NEG_INFINITY]);
    let f = accelerate(move |x: &Tensor| (x + &mask).softmax(0));
    f.configure(|options| options.trap_nonfinite = true);
    assert_eq!(f.call(Tensor::from([1.0_f32, 2.0])).unwrap().to_vec::<f32>().unwrap(), [1.0, 0.0]);
}

#[test]
fn switching_is_a_miss_of_its_own_kind_and_both_codes_stay() {
    let f = accelerate(|x: &Tensor| x.log());
    let bad = || Tensor::from([-1.0_f32]);
    f.call(bad()).unwrap();
    f.configure(|options| options.trap_nonfinite = true);
    trapped(f.call(bad()));
    f.configure(|options| options.trap_nonfinite = false);
    f.call(bad()).unwrap();
    f.configure(|options| options.trap_nonfinite = true);
    trapped(f.call(bad()));
    let misses = f.explain();
    assert_eq!(
        misses.iter().map(|miss| miss.reason).collect::<Vec<_>>(),
        [MissReason::FirstCall, MissReason::ModeChanged]
    );
    assert!(misses[1].to_string().contains("trap for non-finite values"), "{}", misses[1]);
    assert_eq!((f.stats().hits, f.stats().misses, f.stats().entries.len()), (2, 2, 2));
    assert!(f.stats().entries.iter().any(|entry| entry.signature.to_string() == "f32[1]; trap for non-finite values"));
}

#[test]
fn equal_functions_in_both_modes_share_no_code() {
    let formula = |x: &Tensor| (x - 3.0).log() * 0.25;
    let (plain, watched) = (accelerate(formula), accelerate(formula));
    watched.configure(|options| options.trap_nonfinite = true);
    plain.call(Tensor::ones([4])).unwrap();
    trapped(watched.call(Tensor::ones([4])));
    plain.call(Tensor::ones([4])).unwrap();
}

#[test]
fn the_un_accelerated_path_traps_as_well() {
    let f = accelerate(|x: &Tensor| x.log().sum(..));
    f.configure(|options| options.enabled = false);
    f.configure(|options| options.trap_nonfinite = true);
    f.call(Tensor::ones([2])).unwrap();
    let found = trapped(f.call(Tensor::from([-1.0_f32])));
    assert_eq!((found.op, found.group.as_str()), ("log", ""));
}

#[test]
fn threads_trap_their_own_calls() {
    let f = accelerate(|x: &Tensor| (x.log() * 2.0).sum(..));
    f.configure(|options| options.trap_nonfinite = true);
    let (good, bad) = (Tensor::ones([1 << 16]), -Tensor::ones([1 << 16]));
    std::thread::scope(|scope| {
        for n in 0..4 {
            let (f, good, bad) = (&f, &good, &bad);
            scope.spawn(move || {
                for m in 0..20 {
                    match (n + m) % 3 {
                        0 => assert_eq!(trapped(f.call(bad)).n_nan, 1 << 16),
                        _ => assert_eq!(f.call(good).unwrap().item::<f32>().unwrap(), 0.0),
                    }
                }
            });
        }
    });
    assert_eq!(f.stats().misses, 1);
}

#[test]
fn gradients_outside_are_not_concerned() {
    // `value_and_grad` is no accelerated function, and has no trap.
    let (value, _) = value_and_grad(|x: &Tensor| x.log().sum(..), &Tensor::from([-1.0_f32])).unwrap();
    assert!(value.item::<f32>().unwrap().is_nan());
}

/// The graph of a sample, and arguments for it with special values among them.
fn applied(sample: &Sample) -> Option<(Graph, Vec<Tensor>)> {
    let mut text = String::from("graph (");
    for (n, arg) in sample.args.iter().enumerate() {
        text += &format!("{}%{n}: {}", if n > 0 { ", " } else { "" }, arg.ty);
    }
    let types: Vec<_> = sample.args.iter().map(|arg| &arg.ty).collect();
    let names: Vec<String> = (0..types.len()).map(|n| format!("%{n}")).collect();
    let (n, ty) = (types.len(), sample.op.infer(&types).ok()?);
    let attributes = sample.op.attributes();
    text += &format!(") {{\n%{n} = {} {} {{{attributes}}} : {ty}\nreturn %{n}\n}}", sample.op.name(), names.join(", "));
    let tensor = |arg: &retape::ops::SampleArg| {
        let (low, high) = (arg.range.start, arg.range.end);
        let len = arg.ty.n_elements();
        let value = |i: usize| match i % 11 {
            3 if arg.ty.dtype.is_float() && i > 40 => f64::NAN,
            7 if arg.ty.dtype.is_float() && i > 40 => f64::INFINITY,
            _ => low + (high - low) * (i as f64 + 0.5) / len as f64,
        };
        let values: Vec<f64> = (0..len).map(value).collect();
        Tensor::from_vec(values, [len]).unwrap().cast(arg.ty.dtype).reshape(arg.ty.shape.to_vec())
    };
    Some((text.parse().ok()?, sample.args.iter().map(tensor).collect()))
}

#[test]
fn a_trap_changes_no_bit_of_any_op() {
    let mut n_samples = 0;
    for sample in Op::samples().iter().filter(|sample| !sample.op.has_effect()) {
        let Some((graph, args)) = applied(sample) else { continue };
        let plain = accelerate(|args: &Vec<Tensor>| graph.apply(args).unwrap());
        let watched = accelerate(|args: &Vec<Tensor>| graph.apply(args).unwrap());
        watched.configure(|options| options.trap_nonfinite = true);
        let expected = plain.call(&args).unwrap();
        let Ok(got) = watched.call(&args) else { continue };
        for (expected, got) in expected.iter().zip(&got) {
            assert_eq!(bits(expected), bits(got), "{graph}");
        }
        n_samples += 1;
    }
    assert!(n_samples > 150, "only {n_samples} samples");
}

/// The bits of the elements. Any NaN is the same one, as its bits are left to the machine: code with traps and code of
/// full width may ask for the operands of a maximum in another order.
fn bits(tensor: &Tensor) -> Vec<Scalar> {
    fn of<T: retape::Element>(tensor: &Tensor) -> Vec<Scalar> {
        let nan = Scalar::from(f64::NAN).cast(T::DTYPE);
        let elements = tensor.to_vec::<T>().unwrap().into_iter().map(Scalar::from);
        elements.map(|x| if x.to_f64().is_nan() { nan } else { x }).collect()
    }
    match tensor.dtype() {
        DType::F32 => of::<f32>(tensor),
        DType::F64 => of::<f64>(tensor),
        DType::F16 => of::<f16>(tensor),
        DType::Bf16 => of::<bf16>(tensor),
        DType::I32 => of::<i32>(tensor),
        DType::I64 => of::<i64>(tensor),
        DType::U32 => of::<u32>(tensor),
        DType::U8 => of::<u8>(tensor),
        DType::Bool => of::<bool>(tensor),
    }
}

#[test]
fn an_outer_gradient_of_a_trapped_function_is_trapped() {
    let f = accelerate(|x: &Tensor| x.log());
    f.configure(|options| options.trap_nonfinite = true);
    let gradient = |x: &Tensor| value_and_grad(|x: &Tensor| f.call(x).unwrap().sum(..), x);
    gradient(&Tensor::from([1.0_f32, 2.0])).unwrap();
    let Err(Error::NonFinite(found)) = gradient(&Tensor::from([0.5_f32, -1.0])) else { panic!("not trapped") };
    assert_eq!((found.op, found.first, found.at.unwrap().file()), ("log", 1, file!()));
    // In the backward pass: the square root of zero has no slope.
    let root = accelerate(|x: &Tensor| x.sqrt());
    root.configure(|options| options.trap_nonfinite = true);
    let Err(Error::NonFinite(found)) =
        value_and_grad(|x: &Tensor| root.call(x).unwrap().sum(..), &Tensor::from([0.0_f32]))
    else {
        panic!("not trapped")
    };
    assert!(found.value.is_infinite(), "{found}");
}

#[test]
fn numbers_in_messages_stay_short() {
    let f = accelerate(|x: &Tensor| x * x);
    f.configure(|options| options.trap_nonfinite = true);
    let message = f.call(Tensor::from([1e300_f64])).unwrap_err().to_string();
    assert!(message.contains("min 1e300") && message.len() < 400, "{message}");
}

/// Terms of a softmax's gradient are of the size of the cotangents, however many there are.
#[test]
fn the_gradient_of_a_softmax_does_not_overflow() {
    let gradient = |scale: f32| {
        let loss = |x: &Tensor| (x.softmax(-1) * scale).sum(..);
        value_and_grad(loss, &Tensor::zeros([2, 1024])).unwrap().1.to_vec::<f32>().unwrap()
    };
    assert!(gradient(1e36).iter().all(|x| x.abs() < 1e28), "{:?}", &gradient(1e36)[..3]);
}
