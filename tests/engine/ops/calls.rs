//! An accelerated op inside a gradient that is evaluated at once: the same as the op itself.

use retape::ops::Sample;
use retape::{DType, Tensor, accelerate, vjp};

use super::sample::{Case, distance, name, result, samples, types};

/// How far gradients may be apart, in proportion to the largest element. Recomputed values have equal bits; sums that
/// share a kernel with other formulas are added in another order.
fn bound(sample: &Sample) -> f64 {
    let dtypes = sample.args.iter().map(|arg| arg.ty.dtype).chain([result(&sample.op, &types(sample)).dtype]);
    dtypes.map(|dtype| if dtype == DType::F32 { 2e-6 } else { 1e-12 }).fold(0.0, f64::max)
}

impl Case {
    fn all() -> Vec<Case> {
        let cases: Vec<Case> = samples().into_iter().filter_map(Case::new).collect();
        assert!(cases.len() > 160, "{} cases", cases.len());
        cases
    }

    fn check(&self, what: &str, expected: &[Tensor], found: &[Tensor]) -> f64 {
        assert_eq!(expected.len(), found.len());
        let apart = expected.iter().zip(found).map(|(expected, found)| distance(expected, found)).fold(0.0, f64::max);
        let name = name(&self.sample);
        assert!(apart <= bound(&self.sample), "{what} of {name}: {apart}\n{expected:?}\n{found:?}");
        apart
    }
}

fn bits(x: &Tensor) -> Vec<u64> {
    x.cast(DType::F64).to_vec::<f64>().unwrap().into_iter().map(f64::to_bits).collect()
}

#[test]
fn values_and_gradients() {
    let mut worst = (0.0, String::new());
    for case in Case::all() {
        let op = accelerate(|args: &Vec<Tensor>| case.value(args));
        let plain = op.call(&case.fixed).unwrap();
        let (y, expected) = vjp(|xs: &Vec<Tensor>| case.value(&case.with(xs)), &case.at, &case.ct).unwrap();
        case.check("value", &[y], std::slice::from_ref(&plain));
        for _ in 0..2 {
            let f = |xs: &Vec<Tensor>| op.call(case.with(xs)).unwrap();
            let (y, found) = vjp(f, &case.at, &case.ct).unwrap();
            assert_eq!(bits(&y), bits(&plain), "{}", name(&case.sample));
            let apart = case.check("gradient", &expected, &found);
            if apart > worst.0 {
                worst = (apart, name(&case.sample));
            }
        }
        assert_eq!((op.stats().misses, op.stats().hits), (1, 2), "{}", name(&case.sample));
    }
    println!("furthest apart: {worst:?}");
}

/// The gradient of the sum of the squares of the gradient, which is a call of the gradient's gradient.
#[test]
fn gradients_of_gradients() {
    let mut worst = (0.0, String::new());
    for case in Case::all() {
        let op = accelerate(|args: &Vec<Tensor>| case.value(args));
        let norm = |f: &dyn Fn(&[Tensor]) -> Tensor, xs: &Vec<Tensor>| {
            let (y, gradient) = vjp(|xs: &Vec<Tensor>| f(&case.with(xs)), xs, &case.ct).unwrap();
            let squares = gradient.iter().map(|g| g.cast(DType::F64).square().sum(..)).reduce(|a, b| a + b).unwrap();
            squares + (y.cast(DType::F64) * 0.5).sum(..)
        };
        let one = Tensor::from(1.0);
        let outer = |f: &dyn Fn(&[Tensor]) -> Tensor| vjp(|xs: &Vec<Tensor>| norm(f, xs), &case.at, &one).unwrap().1;
        let expected = outer(&|args| case.value(args));
        let found = outer(&|args| op.call(args.to_vec()).unwrap());
        let apart = case.check("second gradient", &expected, &found);
        if apart > worst.0 {
            worst = (apart, name(&case.sample));
        }
    }
    println!("furthest apart: {worst:?}");
}
