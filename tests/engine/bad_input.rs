//! Wrong programs and awkward data: each error has the right kind, names the op and the line of this file, and leaves
//! everything usable; empty tensors, NaN and infinities are no errors.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::sync::Mutex;

use retape::{Accelerated, DType, Error, Function, Tensor, Tree, accelerate, value_and_grad, vjp};

/// Evaluates an expression, which stands on one line, and tells that line.
macro_rules! here {
    ($value:expr) => {
        ($value, line!())
    };
}

/// The kind of an error, without what it says.
#[derive(Debug, PartialEq)]
enum Kind {
    Type,
    Traced,
    Escaped,
    Gradient,
}

/// Checks the kind, the op and the line of an error, and that its text has all of them and some words.
#[track_caller]
fn expect(error: &Error, kind: Kind, op: &str, line: u32, words: &[&str]) {
    let (found, found_op, at) = match error {
        Error::Type { op, at, .. } => (Kind::Type, *op, at),
        Error::Traced { op, at, .. } => (Kind::Traced, *op, at),
        Error::Escaped { op, at, .. } => (Kind::Escaped, *op, at),
        Error::Gradient { at, .. } => (Kind::Gradient, "gradient", at),
        other => panic!("{other}"),
    };
    assert_eq!((found, found_op), (kind, op), "{error}");
    assert_eq!((at.file(), at.line()), (file!(), line), "{error}");
    let text = error.to_string();
    let place = format!("{}:{line}", file!());
    for word in words.iter().chain([&op, &&*place]) {
        assert!(text.contains(word), "`{text}` lacks `{word}`");
    }
}

/// An ill-typed formula of two tensors, op by op and in a trace; the next correct call of the same function works.
#[track_caller]
fn ill_typed(f: fn(&Tensor, &Tensor) -> (Tensor, u32), bad: [Tensor; 2], good: [Tensor; 2], op: &str, words: &[&str]) {
    let (result, line) = f(&bad[0], &bad[1]);
    expect(&result.to_vec::<f32>().unwrap_err(), Kind::Type, op, line, words);
    expect((result.exp() + 1.0).error().unwrap(), Kind::Type, op, line, words);
    let traced = accelerate(move |x: &Tensor, y: &Tensor| f(x, y).0);
    for _ in 0..2 {
        expect(&traced.call(&bad[0], &bad[1]).unwrap_err(), Kind::Type, op, line, words);
    }
    assert_eq!(traced.stats().entries.len(), 0);
    let expected = f(&good[0], &good[1]).0;
    let result = traced.call(&good[0], &good[1]).unwrap();
    assert_eq!(result.shape(), expected.shape());
    assert_eq!(result.to_vec::<f32>().unwrap(), expected.to_vec::<f32>().unwrap());
    assert_eq!(traced.stats().entries.len(), 1);
}

/// Checks that a function traces and runs.
#[track_caller]
fn works<F: Function<(Tensor,), R>, R: Tree>(function: &Accelerated<F, (Tensor,), R>, x: Tensor) -> R {
    function.call(&x).unwrap()
}

fn ones(shape: &[usize]) -> Tensor {
    Tensor::ones(shape)
}

fn floats(tensor: &Tensor) -> Vec<f32> {
    tensor.to_vec().unwrap()
}

#[test]
fn wrong_rank() {
    let f = |x: &Tensor, y: &Tensor| here!(x.matmul(y));
    ill_typed(f, [ones(&[2, 3]), ones(&[2, 3])], [ones(&[2, 3]), ones(&[3, 2])], "matmul", &["2", "3"]);
    let f = |x: &Tensor, y: &Tensor| here!(x.permute([1, 0]) + y);
    ill_typed(f, [ones(&[2]), ones(&[1])], [ones(&[2, 3]), ones(&[2])], "permute", &[]);
    let f = |x: &Tensor, y: &Tensor| here!(x.sum(1) + y);
    ill_typed(f, [ones(&[2]), ones(&[1])], [ones(&[2, 3]), ones(&[2])], "sum", &["axis"]);
    let f = |x: &Tensor, y: &Tensor| here!(x.conv2d(y, retape::ops::ConvOptions::same()));
    let image = [1, 4, 4, 2];
    ill_typed(f, [ones(&[4, 4]), ones(&[3, 3, 2, 1])], [ones(&image), ones(&[3, 3, 2, 1])], "conv2d", &[]);
    ill_typed(f, [ones(&image), ones(&[3, 3, 5, 1])], [ones(&image), ones(&[3, 3, 2, 1])], "conv2d", &["5"]);
}

#[test]
fn an_axis_that_does_not_exist_has_no_extent_in_a_trace() {
    let line = line!() + 1;
    let mean = accelerate(|x: &Tensor| x.sum(..) / x.dim(1) as f64);
    expect(&mean.call(ones(&[6])).unwrap_err(), Kind::Type, "dim", line, &["axis 1", "rank 1"]);
    assert_eq!(floats(&mean.call(ones(&[6, 2])).unwrap()), [6.0]);
    assert_eq!(ones(&[6]).dim(1), 1, "a number has no room for an error");
}

#[test]
fn unlike_dtypes_are_named_with_the_shapes_that_were_given() {
    let words = ["f64[]", "f32[2, 7]", "0.5_f32"];
    let given = |scale: Tensor| [ones(&[2, 7]), scale];
    let (bad, good) = (Tensor::from(0.1_f64), Tensor::from(0.5_f32));
    ill_typed(|x, scale| here!(x * scale), given(bad.clone()), given(good.clone()), "mul", &words);
    ill_typed(|x, scale| here!(scale + x), given(bad), given(good), "add", &words);
}

#[test]
fn labels_are_integers() {
    let logits = ones(&[2, 3]);
    let (loss, line) = here!(retape::nn::softmax_cross_entropy_labels(&logits, &ones(&[2])));
    let op = "softmax_cross_entropy_labels";
    expect(loss.error().unwrap(), Kind::Type, op, line, &["labels are f32[2]", "integers"]);
}

#[test]
fn a_scalar_where_a_tensor_is_expected() {
    let f = |x: &Tensor, y: &Tensor| here!(x.matmul(y));
    ill_typed(f, [Tensor::from(2.0_f32), ones(&[2, 3])], [ones(&[2]), ones(&[2, 3])], "matmul", &[]);
    let f = |x: &Tensor, y: &Tensor| here!(x.softmax(0) + y);
    ill_typed(f, [Tensor::from(2.0_f32), ones(&[2])], [ones(&[2]), ones(&[2])], "softmax", &["axis"]);
    let f = |x: &Tensor, y: &Tensor| here!(retape::concat(&[x, y], 0));
    ill_typed(f, [Tensor::from(2.0_f32), ones(&[2])], [ones(&[1]), ones(&[2])], "concat", &[]);
}

#[test]
fn wrong_dtype() {
    let whole = Tensor::from([1_i64, 2]);
    let f = |x: &Tensor, y: &Tensor| here!(x.sin() + y);
    ill_typed(f, [whole.clone(), ones(&[2])], [ones(&[2]), ones(&[2])], "sin", &["i64"]);
    let f = |x: &Tensor, y: &Tensor| here!(x + y);
    ill_typed(f, [whole.clone(), ones(&[2])], [ones(&[2]), ones(&[2])], "add", &["i64", "f32"]);
    ill_typed(f, [Tensor::from([1.0_f64]), ones(&[2])], [ones(&[1]), ones(&[2])], "add", &["f64", "f32"]);
    let f = |x: &Tensor, y: &Tensor| here!(y.take(x, 0).cast(DType::F32));
    ill_typed(f, [ones(&[2]), ones(&[3])], [Tensor::from([1_i64, 2]), ones(&[3])], "take", &["f32"]);
    let f = |x: &Tensor, y: &Tensor| here!(x.select(y, 0.0));
    ill_typed(f, [ones(&[2]), ones(&[2])], [Tensor::from([true, false]), ones(&[2])], "select", &["bool"]);
    let (read, line) = here!(whole.to_vec::<f32>());
    expect(&read.unwrap_err(), Kind::Type, "to_vec", line, &["i64", "f32"]);
    let (read, line) = here!(whole.item::<i64>());
    expect(&read.unwrap_err(), Kind::Type, "item", line, &[]);
    assert_eq!(whole.to_vec::<i64>().unwrap(), [1, 2]);
}

#[test]
fn mismatched_broadcast() {
    let f = |x: &Tensor, y: &Tensor| here!(x * y);
    ill_typed(f, [ones(&[2, 3]), ones(&[4])], [ones(&[2, 3]), ones(&[3])], "mul", &["[2, 3]", "[4]"]);
    let f = |x: &Tensor, y: &Tensor| here!(x.maximum(y));
    ill_typed(f, [ones(&[2, 3]), ones(&[2])], [ones(&[2, 3]), ones(&[2, 1])], "maximum", &["[2, 3]", "[2]"]);
    let f = |x: &Tensor, y: &Tensor| here!(x.broadcast_to([4, 3]) + y);
    ill_typed(f, [ones(&[2, 3]), ones(&[1])], [ones(&[1, 3]), ones(&[1])], "broadcast_to", &[]);
    let f = |x: &Tensor, y: &Tensor| here!(x.reshape([5]) + y);
    ill_typed(f, [ones(&[2, 3]), ones(&[1])], [ones(&[5, 1]), ones(&[1])], "reshape", &[]);
}

/// Runs a function of one tensor op by op and accelerated, and expects both to give these elements.
#[track_caller]
fn both(f: impl Fn(&Tensor) -> Tensor, x: &Tensor, shape: &[usize], expected: &[f32]) {
    let accelerated = accelerate(|x: &Tensor| f(x)).call(x).unwrap();
    for result in [f(x), accelerated] {
        assert_eq!(result.shape(), shape);
        let equal =
            |(a, e): (f32, &f32)| a == *e && a.is_sign_negative() == e.is_sign_negative() || a.is_nan() && e.is_nan();
        let elements = floats(&result);
        assert_eq!(elements.len(), expected.len());
        assert!(elements.iter().copied().zip(expected).all(equal), "{elements:?}, expected {expected:?}");
    }
}

#[test]
fn empty_axes() {
    let empty = Tensor::zeros([0, 3]);
    both(|x| x.exp() + 1.0, &empty, &[0, 3], &[]);
    both(|x| x.sum(0), &empty, &[3], &[0.0; 3]);
    both(|x| x.sum(1), &empty, &[0], &[]);
    both(|x| x.sum(..), &empty, &[], &[0.0]);
    both(|x| x.prod(0), &empty, &[3], &[1.0; 3]);
    both(|x| x.matmul(&Tensor::ones([3, 2])), &empty, &[0, 2], &[]);
    both(|x| x.transpose().matmul(x), &empty, &[3, 3], &[0.0; 9]);
    both(|x| x.transpose().reshape([3, 0, 7]), &empty, &[3, 0, 7], &[]);
    both(|x| x.cumsum(0), &empty, &[0, 3], &[]);
    both(|x| x.softmax(-1), &empty, &[0, 3], &[]);
    both(|x| x.sort(0), &empty, &[0, 3], &[]);
    both(|x| retape::concat(&[x, &Tensor::ones([1, 3])], 0), &empty, &[1, 3], &[1.0; 3]);
    both(|x| x.broadcast_to([2, 0, 3]).sum(1), &empty, &[2, 3], &[0.0; 6]);
    let batch = Tensor::zeros([0, 4, 4, 2]);
    both(|x| x.conv2d(&Tensor::ones([3, 3, 2, 5]), retape::ops::ConvOptions::same()), &batch, &[0, 4, 4, 5], &[]);
    both(|x| x.max_pool2d([2, 2], [2, 2], retape::ops::Padding::Valid), &batch, &[0, 2, 2, 2], &[]);
    let (loss, grad) = value_and_grad(|x: &Tensor| x.square().sum(..), &empty).unwrap();
    assert_eq!((loss.item::<f32>().unwrap(), grad.shape()), (0.0, &[0, 3][..]));
    let (_, grad) = value_and_grad(|w: &Tensor| empty.matmul(w).sum(..), &Tensor::ones([3, 2])).unwrap();
    assert_eq!(floats(&grad), [0.0; 6]);
}

#[test]
fn an_empty_fold_without_a_neutral_element_is_an_error() {
    let f = |x: &Tensor, y: &Tensor| here!(x.argmax(0).cast(DType::F32) + y);
    ill_typed(f, [Tensor::zeros([0]), ones(&[1])], [ones(&[2]), ones(&[1])], "argmax", &[]);
}

#[test]
fn nan_and_infinities_propagate() {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let x = Tensor::from([1.0, nan, inf, -inf, -0.0]);
    both(|x| x * 2.0, &x, &[5], &[2.0, nan, inf, -inf, -0.0]);
    both(|x| x.maximum(0.5), &x, &[5], &[1.0, nan, inf, 0.5, 0.5]);
    both(|x| x.minimum(0.5), &x, &[5], &[0.5, nan, 0.5, -inf, -0.0]);
    both(|x| x.relu(), &x, &[5], &[1.0, nan, inf, 0.0, 0.0]);
    both(|x| x.exp(), &x, &[5], &[1.0_f32.exp(), nan, inf, 0.0, 1.0]);
    both(|x| x.sqrt(), &x, &[5], &[1.0, nan, inf, nan, -0.0]);
    both(|x| 1.0 / x, &x, &[5], &[1.0, nan, 0.0, -0.0, -inf]);
    both(|x| x.sum(..), &x, &[], &[nan]);
    both(|x| x.max(..), &x, &[], &[nan]);
    both(|x| x.min(..), &x, &[], &[nan]);
    both(|x| x.reshape([5, 1]).matmul(&Tensor::zeros([1, 1])), &x, &[5, 1], &[0.0, nan, nan, nan, 0.0]);
    both(|x| x.is_finite().select(x, 7.0), &x, &[5], &[1.0, 7.0, 7.0, 7.0, -0.0]);
    let infinities = Tensor::from([inf, -inf, 1.0]);
    both(|x| x.sum(..), &infinities, &[], &[nan]);
    both(|x| x.max(..), &infinities, &[], &[inf]);
    both(|x| x.softmax(0), &Tensor::from([-inf, 0.0, -inf]), &[3], &[0.0, 1.0, 0.0]);
    let (loss, grad) = value_and_grad(|x: &Tensor| x.square().sum(..), &infinities).unwrap();
    assert_eq!((loss.item::<f32>().unwrap(), floats(&grad)), (inf, vec![inf, -inf, 2.0]));
}

#[test]
fn reading_a_traced_value() {
    let mut line = 0;
    let line_of = Mutex::new(&mut line);
    let item = accelerate(|x: &Tensor| {
        let (read, line) = here!(x.item::<f32>());
        **line_of.lock().unwrap() = line;
        // The error counts even if the closure goes on without the value.
        x * read.unwrap_or(1.0)
    });
    for _ in 0..2 {
        let error = item.call(Tensor::from(2.0_f32)).unwrap_err();
        expect(&error, Kind::Traced, "item", **line_of.lock().unwrap(), &["select", "static"]);
    }
    let steered = accelerate(
        |x: &Tensor, read: &bool| if *read { here!(x.to_vec::<f32>()).0.map(Tensor::from).unwrap() } else { x * 3.0 },
    );
    let error = steered.call(Tensor::from([2.0_f32]), true).unwrap_err();
    assert!(matches!(error, Error::Traced { op: "to_vec", .. }), "{error}");
    assert_eq!(floats(&steered.call(Tensor::from([2.0_f32]), false).unwrap()), [6.0]);
}

#[test]
fn a_traced_tensor_that_outlives_its_trace() {
    let kept: Mutex<Option<Tensor>> = Mutex::new(None);
    let keep = accelerate(|x: &Tensor| {
        *kept.lock().unwrap() = Some(x * 2.0);
        x + 1.0
    });
    assert_eq!(works(&keep, Tensor::from(1.0_f32)).item::<f32>().unwrap(), 2.0);
    let kept = kept.lock().unwrap().take().unwrap();
    assert!(kept.is_traced());
    let (read, line) = here!(kept.item::<f32>());
    expect(&read.unwrap_err(), Kind::Escaped, "item", line, &["trace had ended"]);
    let (used, line) = here!(kept.exp());
    expect(used.error().unwrap(), Kind::Escaped, "exp", line, &["trace had ended"]);
    let (mixed, line) = here!(&kept + Tensor::from(1.0_f32));
    expect(&mixed.item::<f32>().unwrap_err(), Kind::Escaped, "add", line, &["trace had ended"]);
    // As an argument and as a capture of another trace.
    let scaled = accelerate(|x: &Tensor| x * 2.0);
    let through = scaled.call(&kept).and_then(|y| y.item::<f32>());
    assert!(matches!(through, Err(Error::Escaped { .. })), "{through:?}");
    let captures = accelerate(|x: &Tensor, capture: &bool| if *capture { x * &kept } else { x * 2.0 });
    let error = captures.call(Tensor::from(1.0_f32), true).unwrap_err();
    assert!(matches!(error, Error::Escaped { op: "mul", .. }), "{error}");
    assert_eq!(captures.call(Tensor::from(1.0_f32), false).unwrap().item::<f32>().unwrap(), 2.0);
    let returns = accelerate(|_: &Tensor| kept.clone());
    let error = returns.call(Tensor::from(1.0_f32)).unwrap_err();
    assert!(matches!(error, Error::Escaped { .. }), "{error}");
    assert_eq!(works(&scaled, Tensor::from(4.0_f32)).item::<f32>().unwrap(), 8.0);
    assert_eq!(works(&keep, Tensor::from(1.0_f32)).item::<f32>().unwrap(), 2.0);
}

#[test]
fn a_traced_tensor_in_another_trace() {
    let outer = accelerate(|x: &Tensor, captured: &bool| {
        if *captured {
            let inner = accelerate(|y: &Tensor| y * x);
            inner.call(Tensor::from(2.0_f32)).unwrap_or_else(|_| x.clone())
        } else {
            let inner = accelerate(|y: &Tensor, x: &Tensor| y * x);
            inner.call(Tensor::from(2.0_f32), x).unwrap()
        }
    });
    let error = outer.call(Tensor::from(3.0_f32), true).unwrap_err();
    assert!(matches!(error, Error::Escaped { op: "mul", at, .. } if at.file() == file!()), "{error}");
    assert!(error.to_string().contains("two traces"), "{error}");
    assert_eq!(outer.call(Tensor::from(3.0_f32), false).unwrap().item::<f32>().unwrap(), 6.0);
}

#[test]
fn a_closure_that_panics() {
    let picky = accelerate(|x: &Tensor, panics: &bool| {
        assert!(!panics, "not like this");
        x * 2.0
    });
    let call = |panics| picky.call(Tensor::from(1.0_f32), panics);
    assert_eq!(call(false).unwrap().item::<f32>().unwrap(), 2.0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let call = &call;
            scope.spawn(move || {
                for round in 0..20 {
                    if (thread + round) % 2 == 0 {
                        let error = call(true).unwrap_err();
                        assert!(
                            matches!(&error, Error::Panicked(panic) if panic.message.contains("not like this")),
                            "{error}"
                        );
                    } else {
                        assert_eq!(call(false).unwrap().item::<f32>().unwrap(), 2.0);
                    }
                }
            });
        }
    });
    assert_eq!(picky.stats().entries.len(), 1);
    assert_eq!(call(false).unwrap().item::<f32>().unwrap(), 2.0);
}

#[derive(Clone, Tree)]
struct Params {
    used: Tensor,
    layers: Vec<Tensor>,
}

fn params(unused: Tensor) -> Params {
    Params { used: Tensor::from([1.0_f32, 2.0]), layers: vec![Tensor::from([3.0_f32, 4.0]), unused] }
}

fn loss(params: &Params) -> Tensor {
    (&params.used * &params.layers[0]).sum(..)
}

#[test]
fn gradients_of_what_the_loss_does_not_depend_on() {
    let unused = params(Tensor::from([5.0_f32]));
    let (result, line) = here!(value_and_grad(loss, &unused));
    expect(&result.map(drop).unwrap_err(), Kind::Gradient, "gradient", line, &["layers[1]", "grad_or_zero"]);
    let strict = accelerate(|params: &Params| loss(params).grad(params));
    let error = strict.call(&unused).map(drop).unwrap_err();
    assert!(matches!(error, Error::Gradient { .. }) && error.to_string().contains("layers[1]"), "{error}");
    let lenient = accelerate(|params: &Params| loss(params).grad_or_zero(params));
    let grad = lenient.call(&unused).unwrap();
    assert_eq!(floats(&grad.used), [3.0, 4.0]);
    assert_eq!(floats(&grad.layers[0]), [1.0, 2.0]);
    assert_eq!(floats(&grad.layers[1]), [0.0]);
}

#[test]
fn gradients_of_integers() {
    let whole = params(Tensor::from([5_i64]));
    let through = |params: &Params| loss(params) + params.layers[1].cast(DType::F32).sum(..);
    let (result, line) = here!(value_and_grad(through, &whole));
    expect(&result.map(drop).unwrap_err(), Kind::Gradient, "gradient", line, &["layers[1]", "i64"]);
    let (result, line) = here!(value_and_grad(|x: &Tensor| x.sum(..), &Tensor::from([1_i64])));
    expect(&result.map(drop).unwrap_err(), Kind::Gradient, "gradient", line, &[]);
    let float = params(Tensor::from([5.0_f32]));
    assert_eq!(floats(&value_and_grad(through, &float).unwrap().1.layers[1]), [1.0]);
}

#[test]
fn gradients_of_more_than_a_scalar() {
    let x = Tensor::from([1.0_f32, 2.0]);
    let (result, line) = here!(value_and_grad(Tensor::square, &x));
    expect(&result.map(drop).unwrap_err(), Kind::Gradient, "gradient", line, &["[2]", "vjp"]);
    let (result, line) = here!(vjp(Tensor::square, &x, &Tensor::from(1.0_f32)));
    expect(&result.map(drop).unwrap_err(), Kind::Gradient, "gradient", line, &["cotangents"]);
    assert_eq!(floats(&vjp(Tensor::square, &x, &x).unwrap().1), [2.0, 8.0]);
    let (outside, line) = here!(x.sum(..).grad(&x));
    expect(&outside.to_vec::<f32>().unwrap_err(), Kind::Gradient, "gradient", line, &[]);
}

#[test]
fn more_elements_than_can_be_counted() {
    let (zeros, line) = here!(Tensor::zeros([usize::MAX, 2]));
    expect(zeros.error().unwrap(), Kind::Type, "zeros", line, &["bytes"]);
    let (zeros, line) = here!(Tensor::zeros_of(DType::F64, [usize::MAX / 4]));
    expect(zeros.error().unwrap(), Kind::Type, "zeros_of", line, &["bytes"]);
    let (made, line) = here!(Tensor::from_vec(vec![0.0_f32; 4], [usize::MAX, usize::MAX]));
    expect(&made.unwrap_err(), Kind::Type, "from_vec", line, &[]);
    let half = usize::MAX / 2;
    let f = |x: &Tensor, y: &Tensor| here!(x.broadcast_to([usize::MAX / 64, x.dim(0), 3]).sum(..) + y);
    let empty = || [ones(&[0, 1]), ones(&[1])];
    ill_typed(f, [ones(&[8, 1]), ones(&[1])], empty(), "broadcast_to", &["bytes"]);
    let (padded, line) = here!(ones(&[2]).pad(&[0], &[usize::MAX], 0.0));
    expect(padded.error().unwrap(), Kind::Type, "pad", line, &[]);
    assert_eq!(Tensor::zeros([half / 4, 0]).n_elements(), 0);
}

#[test]
fn memory_that_does_not_exist() {
    let is_refused = |tensor: &Tensor| matches!(tensor.error(), Some(Error::Memory(_)));
    let huge = 1_usize << 55;
    assert!(is_refused(&Tensor::zeros([huge])));
    assert!(is_refused(&Tensor::full([huge], 1.0_f64)));
    let spread = accelerate(|x: &Tensor, n: &usize| x.broadcast_to([*n]).exp());
    for _ in 0..2 {
        let error = spread.call(Tensor::from([0.0_f32]), huge).unwrap_err();
        assert!(matches!(error, Error::Memory(_)), "{error}");
        assert!(is_refused(&Tensor::from([0.0_f32]).broadcast_to([huge]).exp()));
    }
    assert_eq!(floats(&spread.call(Tensor::from([0.0_f32]), 2_usize).unwrap()), [1.0, 1.0]);
}
