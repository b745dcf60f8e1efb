//! Where an error arose: the function and the call that traced it, the leaf of an optimiser's tree,
//! the method that an op is part of; and types as they were given.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use retape::nn::{self, Dense};
use retape::ops::ConvOptions;
use retape::optim::{Adam, AdamState, Sgd};
use retape::{DType, Error, Tensor, accelerate, concat, einsum, stack, value_and_grad, vjp};

fn ones(shape: &[usize]) -> Tensor {
    Tensor::ones(shape)
}

/// Evaluates an expression, which stands on one line, and gives that line in words.
macro_rules! here {
    ($value:expr) => {
        ($value, format!("{}:{}:", file!(), line!()))
    };
}

#[track_caller]
fn ends(error: &Error, op_at: &str, function: &str, called_at: &str) {
    let text = error.to_string();
    assert!(text.contains(&format!("(at {op_at}")), "{text}");
    assert!(text.contains(&format!("; in `{function}`, called at {called_at}")) && text.ends_with(')'), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
fn an_error_in_a_closure_names_the_function_and_the_call() {
    let op_at = format!("{}:{}:", file!(), line!() + 1);
    let step = accelerate(|x: &Tensor, y: &Tensor| x.matmul(y)).named("step");
    let x = ones(&[2, 3]);
    for enabled in [true, false] {
        step.configure(|options| options.enabled = enabled);
        let (refused, at) = here!(step.call(&x, &x));
        ends(&refused.unwrap_err(), &op_at, "step", &at);
        let (refused, at) = here!(step.call(x.clone(), x.clone()));
        ends(&refused.unwrap_err(), &op_at, "step", &at);
    }
    step.configure(|options| options.enabled = true);
    let (refused, at) = here!(step.pin(&x, &x).map(drop));
    ends(&refused.unwrap_err(), &op_at, "step", &at);
    // Inlined, it is part of the function around it; called by a gradient, it is a trace of its own.
    let outer = accelerate(|x: &Tensor| step.call(x, x).unwrap()).named("outer");
    let (refused, at) = here!(outer.call(&x));
    ends(&refused.unwrap_err(), &op_at, "outer", &at);
    let (called, at) = here!(|x: &Tensor| step.call(x, x).map_or_else(|_| x.sum(..), |y| y.sum(..)));
    ends(&value_and_grad(called, &x).unwrap_err(), &op_at, "step", &at);
    assert_eq!(step.call(&x, ones(&[3, 1])).unwrap().shape(), [2, 1]);
    assert_eq!(step.stats().entries.len(), 1);
}

#[test]
fn functions_without_a_name_and_gradients_are_found_too() {
    let x = ones(&[2, 3]);
    let (made, op_at) = here!(accelerate(|x: &Tensor| x.matmul(x)));
    let (refused, at) = here!(made.call(&x));
    let refused = refused.unwrap_err();
    ends(&refused, &op_at, &made.name(), &at);
    let Error::Type { op: "matmul", call: Some(call), .. } = refused else { panic!("{refused}") };
    assert_eq!((&*call.function, call.called_at.line() > 0), (&*made.name(), true));
    let (refused, at) = here!(value_and_grad(|x: &Tensor| x.matmul(x), &x));
    ends(&refused.unwrap_err(), &at, "value_and_grad", &at);
    let (refused, at) = here!(vjp(|x: &Tensor| x.matmul(x), &x, &x));
    ends(&refused.unwrap_err(), &at, "vjp", &at);
    let (refused, at) = here!(accelerate(|x: &Tensor| x.grad(x)).named("slope").call(&x));
    ends(&refused.unwrap_err(), &at, "slope", &at);
    let (refused, at) = here!(accelerate(|x: &Tensor| x * x.item::<f32>().unwrap_or(1.0)).named("read").call(&x));
    ends(&refused.unwrap_err(), &at, "read", &at);
}

#[test]
fn an_op_outside_of_the_closure_is_not_said_to_be_in_it() {
    let bad = ones(&[2]).matmul(&ones(&[3]));
    let scaled = accelerate(|x: &Tensor| x * &bad);
    for refused in [scaled.call(ones(&[2])), accelerate(Tensor::exp).call(&bad)] {
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("matmul") && !text.contains("called at"), "{text}");
    }
    let x = ones(&[2]);
    let slope: Tensor = x.sum(..).grad(&x);
    let text = accelerate(|x: &Tensor| x * &slope).call(&x).unwrap_err().to_string();
    assert!(text.contains("gradient") && !text.contains("called at"), "{text}");
}

#[test]
fn a_panic_keeps_its_message_and_names_the_call() {
    let table = [1.0, 2.0];
    let f = accelerate(|x: &Tensor| x * table[x.dim(0)]).named("look up");
    assert_eq!(f.call(ones(&[1])).unwrap().to_vec::<f32>().unwrap(), [2.0]);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10 {
                    let (refused, at) = here!(f.call(ones(&[3])));
                    let Err(Error::Panicked(panic)) = refused else { panic!("{refused:?}") };
                    assert!(panic.message.contains("the len is 2 but the index is 3"), "{panic}");
                    let call = panic.call.as_ref().expect("the call that traced it");
                    assert_eq!((&*call.function, call.called_at.to_string().starts_with(&at)), ("look up", true));
                    let text = panic.to_string();
                    assert!(text.contains(&format!(" (in `look up`, called at {at}")) && text.ends_with(')'), "{text}");
                }
            });
        }
    });
    // A panic that another thread began is one of the call, too.
    let passed_on = accelerate(|x: &Tensor| {
        let thrown = std::thread::spawn(|| panic!("elsewhere")).join().unwrap_err();
        if x.rank() == 1 { std::panic::resume_unwind(thrown) } else { x.clone() }
    });
    let Err(Error::Panicked(panic)) = passed_on.call(ones(&[1])) else { panic!("it panics") };
    assert_eq!((&*panic.message, panic.call.is_some()), ("elsewhere", true));
    assert_eq!((f.stats().entries.len(), f.call(ones(&[1])).is_ok()), (1, true));
}

#[test]
fn an_optimiser_names_the_leaf_that_belongs_to_another_net() {
    let net = |n: usize| vec![Dense::new(1, 3, n), Dense::new(2, n, 2)];
    let (own, other, shorter) = (net(4), net(5), vec![Dense::new(1, 3, 4)]);
    let adam = Adam::new();
    let step = accelerate(|p: &Vec<Dense>, state: &AdamState<Vec<Dense>>| adam.update(p, p, state, 0.1));
    let cases = [
        (&other, &["state.first[0].weight is f32[3, 5]", "parameters[0].weight is f32[3, 4]"]),
        (&shorter, &["state.first has 2 tensors, parameters has 4", "parameters[1].weight"]),
    ];
    for (net, words) in cases {
        let state = adam.init(net);
        let eager = adam.update(&own, &own, &state, 0.1).0[1].weight.error().unwrap().to_string();
        let traced = step.call(&own, &state).map(drop).unwrap_err().to_string();
        for text in [eager, traced] {
            assert!(text.starts_with("Adam::update: ") && text.contains(file!()), "{text}");
            assert!(words.iter().all(|word| text.contains(word)), "{text}");
        }
    }
    let (p, _) = Sgd::new().update(&own, &other, &Sgd::new().init(&own), 0.1);
    let text = p[0].weight.error().unwrap().to_string();
    assert!(text.contains("gradients[0].weight is f32[3, 5]"), "{text}");
    let (p, _) = Sgd::new().update(&own, &own, &Sgd::new().init(&other), 0.1);
    assert!(p[0].weight.error().unwrap().to_string().contains("state.velocity[0].weight is f32[3, 5]"));
    // The dtype counts as well; the same net goes on.
    let wide = Sgd::new().init(&vec![Dense::of_dtype(DType::F64)]).velocity;
    let (p, _) = Sgd::new().update(&shorter, &wide, &Sgd::new().init(&shorter), 0.1);
    assert!(p[0].weight.error().unwrap().to_string().contains("gradients[0].weight is f64[3, 4]"));
    assert!(step.call(&own, adam.init(&own)).is_ok());
}

#[test]
fn an_optimiser_names_a_rate_that_is_no_scalar_and_a_step_that_is_no_count() {
    let (adam, sgd) = (Adam::new(), Sgd::new());
    let (p, rates) = (ones(&[3]), ones(&[2, 3]));
    let by_sgd = accelerate(|p: &Tensor, rate: &Tensor| sgd.update(p, p, &sgd.init(p), rate).0);
    let by_adam = accelerate(|p: &Tensor, state: &AdamState<Tensor>| adam.update(p, p, state, 0.1).0);
    let stepped = |step: Tensor| AdamState { step, ..adam.init(&p) };
    let of = |tensor: Tensor| tensor.error().unwrap().to_string();
    let rate = "learning_rate is f32[2, 3], which is no scalar";
    for text in [
        of(sgd.update(&p, &p, &sgd.init(&p), &rates).0),
        by_sgd.call(&p, &rates).map(drop).unwrap_err().to_string(),
        of(adam.update(&p, &p, &adam.init(&p), &rates).0),
    ] {
        assert!(text.contains("::update: ") && text.contains(rate) && text.contains(file!()), "{text}");
    }
    for (step, given) in [(Tensor::from(1.0_f32), "f32[]"), (Tensor::from([1_i64]), "i64[1]")] {
        let expected = format!("Adam::update: state.step is {given}, which is no scalar of `i64`");
        let traced = by_adam.call(&p, stepped(step.clone())).map(drop).unwrap_err().to_string();
        for text in [of(adam.update(&p, &p, &stepped(step), 0.1).0), traced] {
            assert!(text.starts_with(&expected), "{text}");
        }
    }
    assert!(by_sgd.call(&p, Tensor::from(0.1_f64)).is_ok() && by_adam.call(&p, adam.init(&p)).is_ok());
}

/// A layer of another dtype.
trait OfDtype {
    fn of_dtype(dtype: DType) -> Dense;
}

impl OfDtype for Dense {
    fn of_dtype(dtype: DType) -> Dense {
        let layer = Dense::new(1, 3, 4);
        Dense { weight: layer.weight.cast(dtype), bias: layer.bias.cast(dtype) }
    }
}

#[test]
fn the_trap_names_the_method_that_an_op_is_part_of() {
    let trapped = |f: &dyn Fn(&Tensor) -> Tensor, x: Tensor| {
        let f = accelerate(|x: &Tensor| f(x));
        f.configure(|options| options.trap_nonfinite = true);
        let Err(Error::NonFinite(found)) = f.call(x) else { panic!("it is trapped") };
        (found.origin.map(|origin| (origin.method, origin.is_gradient)), found.to_string())
    };
    let zero = || Tensor::from([1.0_f32, 0.0]);
    let (origin, text) = trapped(&|x| x.sqrt().sum(..).grad(x), zero());
    assert_eq!(origin, Some(("sqrt", true)));
    assert!(
        text.contains(", in the gradient of `sqrt`, makes inf of finite numbers at tests/engine/blame.rs:"),
        "{text}"
    );
    let labels = |x: &Tensor| nn::softmax_cross_entropy_labels(&ones(&[2, 3]), &x.cast(DType::I64));
    let (origin, text) = trapped(&labels, Tensor::from([1.0_f32, 7.0]));
    assert_eq!(origin, Some(("softmax_cross_entropy_labels", false)));
    assert!(text.contains(", in `softmax_cross_entropy_labels`, makes NaN"), "{text}");
    // The gradient of a composite names that, and an op of its own name nothing more.
    assert_eq!(trapped(&|x| x.norm_of().grad(x), Tensor::from([0.0_f32, 0.0])).0, Some(("sqrt", true)));
    assert_eq!(trapped(&|x| x.std(..).grad(x), Tensor::from([1.0_f32, 1.0])).0, Some(("std", true)));
    assert_eq!(trapped(&Tensor::log, zero()).0, None);
}

/// A norm in two steps of the program.
trait Norm {
    fn norm_of(&self) -> Tensor;
}

impl Norm for Tensor {
    fn norm_of(&self) -> Tensor {
        self.square().sum(..).sqrt()
    }
}

#[test]
fn unlike_dtypes_are_told_as_they_were_given() {
    let (x, wide) = (ones(&[2, 3]), Tensor::from([1.0_f64, 2.0, 3.0]));
    let (number, mask, whole) = (Tensor::from(0.5_f64), Tensor::from([true, false, true]), Tensor::from([1_i64, 2, 3]));
    let image = ones(&[1, 4, 4, 2]);
    let refused = [
        (mask.select(&x, &wide), ["choices are f32[2, 3] and f64[3]", "cast one"]),
        (mask.select(&x, &number), ["f32[2, 3] and f64[]", "0.5_f32"]),
        (x.clamp(&wide, &wide), ["argument 1 is f64[3], argument 0 is f32[2, 3]", "cast one"]),
        (x.clamp(0.0, &number), ["argument 2 is f64[], argument 0 is f32[2, 3]", "0.5_f32"]),
        (x.lt(&wide), ["argument 1 is f64[3], argument 0 is f32[2, 3]", "cast one"]),
        (x.ge(&mask), ["argument 1 is bool[3], argument 0 is f32[2, 3]", "cast one"]),
        (x.gt(&number), ["argument 1 is f64[], argument 0 is f32[2, 3]", "cast one"]),
        (x.gt(ones(&[4])), ["shapes [2, 3] and [4]", "do not broadcast"]),
        (concat(&[&x, &x.cast(DType::F64)], 0), ["argument 1 is f64[2, 3], argument 0 is f32[2, 3]", "cast one"]),
        (stack(&[&x, &x.cast(DType::F64)], 0), ["argument 1 is f64[2, 3], argument 0 is f32[2, 3]", "cast one"]),
        (stack(&[&x, &ones(&[2])], 0), ["argument 1 is f32[2], argument 0 is f32[2, 3]", "shapes must be equal"]),
        (x.matmul(&whole), ["argument 0 is f32[2, 3], argument 1 is i64[3]", "cast one"]),
        (
            ones(&[2]).matmul(&ones(&[3])),
            ["argument 0 is f32[2], argument 1 is f32[3]", "2 columns do not meet 3 rows"],
        ),
        (ones(&[2]).matmul(&ones(&[4, 3, 2])), ["f32[2], argument 1 is f32[4, 3, 2]", "2 columns do not meet 3 rows"]),
        (einsum("ij,j->i", &[&x, &wide]), ["f32[2, 3]", "cast one"]),
        (image.conv2d(&ones(&[3, 3, 2, 5]).cast(DType::F64), ConvOptions::same()), ["f64[3, 3, 2, 5]", "cast one"]),
    ];
    for (result, words) in refused {
        let text = result.error().unwrap().to_string();
        assert!(words.iter().all(|word| text.contains(word)) && text.contains(file!()), "{text}");
    }
    // In a trace the words are the same.
    let traced = accelerate(|x: &Tensor, y: &Tensor| x.ge(0.0).select(x, y));
    let text = traced.call(&x, &wide).unwrap_err().to_string();
    assert!(text.contains("choices are f32[2, 3] and f64[3]"), "{text}");
    assert_eq!(x.gt(0.5).to_vec::<bool>().unwrap(), [true; 6]);
}

#[test]
fn constants_of_the_library_are_no_captures() {
    let p = ones(&[2, 3]);
    let (adam, sgd) = (Adam::new().weight_decay(0.1), Sgd::new().momentum(0.9));
    let by_adam = accelerate(|p: &Tensor, state: &AdamState<Tensor>| adam.update(p, p, state, 0.1));
    let next = by_adam.call(&p, adam.init(&p)).unwrap();
    let by_sgd = accelerate(|p: &Tensor, v: &retape::optim::SgdState<Tensor>| sgd.update(p, p, v, 0.1_f32).0);
    let moved = by_sgd.call(&p, sgd.init(&p)).unwrap();
    assert!(by_adam.stats().entries[0].captures.is_empty() && by_sgd.stats().entries[0].captures.is_empty());
    // The bits are those of a rate that is a tensor, and of the ops one by one.
    let by_tensor = accelerate(|p: &Tensor, state: &AdamState<Tensor>, rate: &Tensor| adam.update(p, p, state, rate));
    let expected = by_tensor.call(&p, adam.init(&p), 0.1_f64).unwrap();
    assert!(retape::tree::same_bits(&next, &expected).unwrap());
    assert!(retape::tree::same_bits(&next, &adam.update(&p, &p, &adam.init(&p), 0.1)).unwrap());
    assert!(retape::tree::same_bits(&moved, &sgd.update(&p, &p, &sgd.init(&p), 0.1_f32).0).unwrap());
    let loss = accelerate(|x: &Tensor, labels: &Tensor| nn::softmax_cross_entropy_labels(x, labels).grad(x));
    loss.call(ones(&[2, 3]), Tensor::from([1_i64, 2])).unwrap();
    let norm = nn::LayerNorm::new(3);
    let normed = accelerate(|norm: &nn::LayerNorm, x: &Tensor| norm.apply(x).gelu_tanh().sum(..).grad(norm));
    normed.call(&norm, ones(&[2, 3])).unwrap();
    assert!(loss.stats().entries[0].captures.is_empty() && normed.stats().entries[0].captures.is_empty());
}
