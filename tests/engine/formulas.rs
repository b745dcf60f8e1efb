//! Derivatives of formulas that use one value several times: they are one factor of the cotangent.

use retape::{Form, Result, Tensor, accelerate};

/// A function of a tensor, element by element.
type Formula = fn(&Tensor) -> Tensor;

fn sample(n: usize) -> Tensor {
    (0..n).map(|i| (i * i % 17) as f64 * 0.23 - 1.85).collect()
}

/// Weights, so that no cotangent is 1.
fn weighted(x: &Tensor) -> Tensor {
    (x * (sample(x.shape().iter().product()).cos() + 1.5).reshape(x.shape())).sum(..)
}

/// Asserts that the first and the second derivative are those that central differences give.
#[track_caller]
fn check(formula: Formula) {
    const STEP: f64 = 1e-5;
    let x = sample(11);
    let first = accelerate(move |x: &Tensor| weighted(&formula(x)).grad(x));
    let second = accelerate(move |x: &Tensor| weighted(&weighted(&formula(x)).grad(x)).grad(x));
    let value = move |x: &Tensor| weighted(&formula(x));
    let of_first = move |x: &Tensor| weighted(&weighted(&formula(x)).grad(x));
    let functions: [(Tensor, Box<dyn Fn(&Tensor) -> Result<Tensor>>); 2] = [
        (first.call(&x).unwrap(), Box::new(move |x| accelerate(value).call(x))),
        (second.call(&x).unwrap(), Box::new(move |x| accelerate(of_first).call(x))),
    ];
    for (found, function) in functions {
        for (i, found) in found.to_vec::<f64>().unwrap().into_iter().enumerate() {
            let at = |step: f64| {
                let moved: Tensor = x
                    .to_vec::<f64>()
                    .unwrap()
                    .into_iter()
                    .enumerate()
                    .map(|(j, x)| if i == j { x + step } else { x })
                    .collect();
                function(&moved).unwrap().to_vec::<f64>().unwrap()[0]
            };
            let expected = (at(STEP) - at(-STEP)) / (2.0 * STEP);
            assert!((found - expected).abs() <= 2e-8 * expected.abs().max(1.0), "{i}: {found}, not {expected}");
        }
    }
}

#[test]
fn a_formula_of_one_value_has_its_derivative() {
    check(|x| x * x.tanh());
    check(Tensor::gelu_tanh);
    check(Tensor::silu);
    check(|x| x.exp() * x.sin() / (x.square() + 1.0));
    // A formula in a formula, behind a value that is used once.
    check(|x| {
        let y = (x * x.sigmoid()).cos() * 2.0;
        &y * y.tanh() + &y
    });
    // More nodes than are looked at together.
    check(|x| (0..20).fold(x.clone(), |y, _| x.cos() + y.sin() * 0.5) * x);
}

#[test]
fn values_that_others_use_keep_their_own_cotangent() {
    // A value within the formula is used behind it, and before it ends.
    check(|x| {
        let t = x.tanh();
        x * &t + t.sin() * x.square()
    });
    check(|x| {
        let t = x.tanh();
        t.exp() + (x * &t).cos()
    });
    check(|x| x.sin().gt(0.1).select(&(x * x.tanh()), x.square()));
    // Two values.
    check(|x| {
        let sums = x.cumsum(0);
        x * &sums * (x + sums).tanh()
    });
}

/// The rules of ops that select drop cotangents that are not finite, also where a value is used twice.
#[test]
fn cotangents_that_an_op_drops_stay_dropped() {
    let x = Tensor::from([-4.0_f64, 0.0, 4.0]);
    let slope = accelerate(|x: &Tensor| ((x + 3.0).relu() - (x - 3.0).relu()).sqrt().sum(..).grad(x)).call(&x).unwrap();
    assert_eq!(slope.to_vec::<f64>().unwrap(), [0.0, 0.5 / 3.0_f64.sqrt(), 0.0]);
    let slope = accelerate(|x: &Tensor| (x.clamp(-1.0, 1.0) * x.gt(0.0).select(x, 0.0)).sqrt().sum(..).grad(x));
    assert_eq!(slope.call(&x).unwrap().to_vec::<f64>().unwrap()[0], 0.0);
}

#[test]
fn values_within_a_formula_can_be_differentiated_by() {
    let f = accelerate(|x: &Tensor| {
        let t = x.tanh();
        let y = x * &t;
        let both = weighted(&y).grad(&(x.clone(), t.clone()));
        (both, weighted(&y).grad(&t))
    });
    let x = sample(11);
    let ((by_x, by_t), by_t_alone) = f.call(&x).unwrap();
    let weights = sample(11).cos() + 1.5;
    let expected = (&weights * &x).to_vec::<f64>().unwrap();
    for found in [by_t, by_t_alone] {
        assert_eq!(found.to_vec::<f64>().unwrap(), expected);
    }
    let (t, by_x) = (x.tanh().to_vec::<f64>().unwrap(), by_x.to_vec::<f64>().unwrap());
    let [x, weights] = [x, weights].map(|x| x.to_vec::<f64>().unwrap());
    for i in 0..t.len() {
        let expected = weights[i] * (t[i] + x[i] * (1.0 - t[i] * t[i]));
        assert!((by_x[i] - expected).abs() <= 1e-14, "{}, not {expected}", by_x[i]);
    }
}

/// Bytes of memory that a call of the gradient takes, by its plan.
fn arena(loss: impl Fn(&Tensor) -> Tensor + Send + Sync + 'static, x: &Tensor) -> usize {
    let gradient = accelerate(move |x: &Tensor| loss(x).grad(x));
    gradient.call(x).unwrap();
    let plan = gradient.text(&gradient.signature(x), Form::Plan).unwrap();
    let line = plan.lines().find_map(|line| line.trim().strip_prefix("arena ")).expect("a line of the arena");
    line.split(' ').next().and_then(|n| n.parse().ok()).expect("a number of bytes")
}

/// Between two products the derivative of an activation is all that waits for the backward pass.
#[test]
fn the_derivative_is_kept_in_the_place_of_what_it_follows_from() {
    let x = Tensor::ones([256, 256]);
    let size = 256 * 256 * size_of::<f32>();
    let layers = |activation: Formula| {
        move |x: &Tensor| {
            let weights = x * 0.01_f32;
            let layer = |y: &Tensor| activation(&y.matmul(&weights));
            layer(&layer(&layer(x))).sum(..)
        }
    };
    let (plain, gelu) = (arena(layers(Tensor::tanh), &x), arena(layers(Tensor::gelu_tanh), &x));
    assert!(gelu <= plain + 4 * size, "{gelu} bytes, and {plain} for an activation that is its own residual");
}
