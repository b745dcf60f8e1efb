//! Derivatives against difference quotients, of first and second order.

use std::slice::from_ref;

use retape::ops::{Op, Sample};
use retape::{Accelerated, DType, Function, Tensor, TensorType, accelerate, vjp};

use super::sample::{Case, elements, name, result, types, weights};

/// The difference between two points of a quotient in `f64`.
pub(crate) const STEP: f64 = 1e-4;

/// The step of the quotients, and how far derivatives may be apart from them, in proportion to the sum of what they are
/// made from; by the coarsest dtype among the arguments and the result.
///
/// The errors of quotients are of the fourth power of the step, and of rounding divided by the step.
fn step_and_bound(sample: &Sample) -> (f64, f64) {
    let mut dtypes = sample.args.iter().map(|arg| arg.ty.dtype).chain([result(&sample.op, &types(sample)).dtype]);
    if dtypes.any(|dtype| dtype == DType::F32) { (2e-2, 3e-5) } else { (STEP, 1e-10) }
}

/// The sum of the products of the elements.
fn dot(xs: &[Tensor], ys: &[Tensor]) -> f64 {
    let product = |(x, y): (&Tensor, &Tensor)| elements(x).iter().zip(elements(y)).map(|(x, y)| x * y).sum::<f64>();
    xs.iter().zip(ys).map(product).sum()
}

/// The sum of the absolute values of the products of the elements.
fn dot_abs(xs: &[Tensor], ys: &[Tensor]) -> f64 {
    xs.iter().zip(ys).map(|(x, y)| dot(&[x.abs()], &[y.abs()])).sum()
}

/// The same as [`dot`], as a tensor that can be differentiated.
fn traced_dot(xs: &[Tensor], ys: &[Tensor]) -> Tensor {
    let product = |(x, y): (&Tensor, &Tensor)| (x.cast(DType::F64) * y.cast(DType::F64)).sum(..);
    xs.iter().zip(ys).map(product).reduce(|a, b| a + b).unwrap()
}

/// The slope of `value` along `direction`.
fn quotient(at: &[Tensor], direction: &[Tensor], step: f64, value: impl Fn(&Vec<Tensor>) -> f64) -> f64 {
    let moved = |distance: f64| {
        let move_one = |(x, d): (&Tensor, &Tensor)| {
            let moved = elements(x).iter().zip(elements(d)).map(|(x, d)| x + distance * d).collect::<Vec<_>>();
            Tensor::from_vec(moved, x.shape()).unwrap().cast(x.dtype())
        };
        value(&at.iter().zip(direction).map(move_one).collect())
    };
    (8.0 * (moved(step) - moved(-step)) - (moved(2.0 * step) - moved(-2.0 * step))) / (12.0 * step)
}

impl Case {
    fn gradient(&self, floats: &[Tensor], ct: &Tensor) -> Vec<Tensor> {
        vjp(|floats: &Vec<Tensor>| self.apply(floats), &floats.to_vec(), ct).unwrap().1
    }
}

/// A direction for all of some tensors together, and one for each alone.
fn directions(at: &[Tensor], seed: usize) -> Vec<Vec<Tensor>> {
    let weights = |(k, x): (usize, &Tensor)| weights(&TensorType::new(x.dtype(), x.shape()), seed + k);
    let all: Vec<Tensor> = at.iter().enumerate().map(weights).collect();
    let one = |k: usize| {
        let others = |(j, x): (usize, &Tensor)| if j == k { x.clone() } else { x.zeros_like() };
        all.iter().enumerate().map(others).collect()
    };
    let each: Vec<Vec<Tensor>> = (0..at.len()).map(one).collect();
    [vec![all.clone()], each].concat()
}

fn call<F: Function<(Vec<Tensor>,), R>, R: retape::Tree>(
    f: &Accelerated<F, (Vec<Tensor>,), R>,
    at: &Vec<Tensor>,
    case: &Case,
) -> R {
    f.call(at).unwrap_or_else(|e| panic!("{}: {e}", name(&case.sample)))
}

/// Fails with what is apart; returns by how much in proportion to the bound.
fn check(case: &Case, order: &str, derivative: f64, quotient: f64, bound: f64) -> f64 {
    let ratio = (derivative - quotient).abs() / bound;
    let name = name(&case.sample);
    assert!(ratio <= 1.0, "{order} derivative of {name}: {derivative}, quotient {quotient}, {ratio} times the bound");
    ratio
}

fn cases() -> Vec<Case> {
    let cases: Vec<Case> = Op::samples().into_iter().filter_map(Case::new).collect();
    assert!(cases.len() > 80, "{} cases", cases.len());
    cases
}

#[test]
fn first_derivatives_are_difference_quotients() {
    let mut worst = (0.0, String::new());
    for case in cases() {
        let (step, bound) = step_and_bound(&case.sample);
        let value = accelerate(|xs: &Vec<Tensor>| case.apply(xs));
        let gradient = case.gradient(&case.at, &case.ct);
        let y = call(&value, &case.at, &case);
        for direction in directions(&case.at, 10) {
            let of = |xs: &Vec<Tensor>| dot(&[call(&value, xs, &case)], from_ref(&case.ct));
            let quotient = quotient(&case.at, &direction, step, of);
            let scale = 1.0 + dot_abs(&gradient, &direction) + dot_abs(from_ref(&y), from_ref(&case.ct));
            let ratio = check(&case, "first", dot(&gradient, &direction), quotient, bound * scale);
            if ratio > worst.0 {
                worst = (ratio, name(&case.sample));
            }
        }
    }
    println!("closest to its bound: {worst:?}");
}

/// Of the product of the gradient with a direction, as a function of the arguments and of the cotangent.
#[test]
fn second_derivatives_are_difference_quotients() {
    let mut worst = (0.0, String::new());
    for case in cases() {
        let (step, bound) = step_and_bound(&case.sample);
        let along = directions(&case.at, 20).remove(0);
        let at = [case.at.clone(), vec![case.ct.clone()]].concat();
        let n = case.at.len();
        let slope = |xs: &Vec<Tensor>| traced_dot(&case.gradient(&xs[..n], &xs[n]), &along);
        let curvature = |xs: &Vec<Tensor>| vjp(slope, xs, &Tensor::from(1.0)).unwrap();
        let (slope, curvature) = (accelerate(slope), accelerate(curvature));
        let (y, gradient) = call(&curvature, &at, &case);
        for direction in directions(&at, 30) {
            let of = |xs: &Vec<Tensor>| call(&slope, xs, &case).item::<f64>().unwrap();
            let quotient = quotient(&at, &direction, step, of);
            let scale = 1.0 + dot_abs(&gradient, &direction) + y.item::<f64>().unwrap().abs();
            let ratio = check(&case, "second", dot(&gradient, &direction), quotient, bound * scale);
            if ratio > worst.0 {
                worst = (ratio, name(&case.sample));
            }
        }
    }
    println!("closest to its bound: {worst:?}");
}

/// The sample of `cholesky` has matrices of one element; here they are larger, and symmetric however they are moved.
#[test]
fn derivatives_of_factorisations() {
    let square = TensorType::new(DType::F64, [2, 4, 4]);
    let (at, direction, ct) = (vec![weights(&square, 1)], vec![weights(&square, 2)], weights(&square, 3));
    let factor = |xs: &Vec<Tensor>| {
        let eye =
            Tensor::from_vec((0..16).map(|k| f64::from(u8::from(k % 5 == 0))).collect::<Vec<_>>(), [4, 4]).unwrap();
        (xs[0].matmul(&xs[0].transpose()) + eye).cholesky()
    };
    let gradient = |xs: &Vec<Tensor>| vjp(factor, xs, &ct).unwrap().1;
    let slope = |xs: &Vec<Tensor>| traced_dot(&gradient(xs), &direction);
    let of = |xs: &Vec<Tensor>| dot(&[factor(xs)], from_ref(&ct));
    let first = quotient(&at, &direction, 2e-4, of);
    assert!((slope(&at).item::<f64>().unwrap() - first).abs() < 1e-10 * (1.0 + first.abs()));
    let second = quotient(&at, &direction, 2e-4, |xs| slope(xs).item::<f64>().unwrap());
    let found = vjp(slope, &at, &Tensor::from(1.0)).unwrap().1;
    assert!((dot(&found, &direction) - second).abs() < 1e-10 * (1.0 + second.abs()));
}
