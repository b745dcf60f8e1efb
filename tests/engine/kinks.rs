//! Values and derivatives where samples do not go: kinks, ties, zeros, infinities; and what random numbers promise.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::f64::consts::{FRAC_PI_4, LN_2};

use retape::ops::Padding;
use retape::random::{self, Key};
use retape::{DType, Result, Tensor, accelerate, value_and_grad, vjp};

const INF: f64 = f64::INFINITY;

/// The derivative of the sum of `f(x)`.
fn slope(f: impl Fn(&Tensor) -> Tensor, x: &[f64]) -> Vec<f64> {
    let (_, slope) = value_and_grad(|x: &Tensor| f(x).sum(..), &Tensor::from(x)).unwrap();
    slope.to_vec().unwrap()
}

/// The derivative of the sum of the derivative of the sum of `f(x)`.
fn curvature(f: impl Fn(&Tensor) -> Tensor, x: &[f64]) -> Vec<f64> {
    slope(|x| f(x).sum(..).grad(x), x)
}

/// The derivatives of the sum of `f(x, y)`.
fn slopes(f: impl Fn(&Tensor, &Tensor) -> Tensor, x: &[f64], y: &[f64]) -> [Vec<f64>; 2] {
    let at = (Tensor::from(x), Tensor::from(y));
    let (_, (dx, dy)) = vjp(|(x, y): &(Tensor, Tensor)| f(x, y), &at, &at.0.ones_like()).unwrap();
    [dx, dy].map(|d| d.to_vec().unwrap())
}

fn values(x: &Tensor) -> Vec<f64> {
    x.to_vec().unwrap()
}

/// A row of the table of ties in `docs/numerics.md`: the method, where it is tried, and its derivatives there.
type Row = (&'static str, fn(&Tensor) -> Tensor, &'static [f64], &'static [f64]);

/// The table's rows for functions of one tensor.
const TIES: [Row; 18] = [
    ("relu", Tensor::relu, &[-1.0, -0.0, 0.0, 2.0, f64::NAN], &[0.0, 0.0, 0.0, 1.0, 0.0]),
    ("relu6", Tensor::relu6, &[-1.0, -0.0, 0.0, 2.0, 6.0, 7.0], &[0.0, 0.0, 0.0, 1.0, 0.0, 0.0]),
    ("leaky_relu", |x| x.leaky_relu(0.25), &[-1.0, -0.0, 0.0, 1.0], &[0.25, 1.0, 1.0, 1.0]),
    ("elu", |x| x.elu(0.25), &[-0.0, 0.0, 1.0], &[0.25, 0.25, 1.0]),
    ("abs", Tensor::abs, &[-1.0, -0.0, 0.0, 1.0], &[-1.0, 0.0, 0.0, 1.0]),
    ("clamp", |x| x.clamp(-1.0, 1.0), &[-2.0, -1.0, 0.0, 1.0, 2.0], &[0.0, 1.0, 1.0, 1.0, 0.0]),
    ("clamp", |x| x.clamp(0.0, 6.0), &[-0.0, 0.0, 6.0], &[1.0, 1.0, 1.0]),
    // Limits that contradict each other leave nothing of the element.
    ("clamp", |x| x.clamp(1.0, -1.0), &[-2.0, -1.0, 0.0, 1.0, 2.0], &[0.0; 5]),
    ("maximum", |x| x.maximum(2.0), &[1.0, 2.0, 3.0], &[0.0, 0.5, 1.0]),
    ("minimum", |x| x.minimum(2.0), &[1.0, 2.0, 3.0], &[1.0, 0.5, 0.0]),
    ("max", |x| x.max(..), &[2.0, 1.0, 2.0], &[0.5, 0.0, 0.5]),
    ("min", |x| x.min(..), &[2.0, 1.0, 1.0], &[0.0, 0.5, 0.5]),
    ("sort", |x| weighed(&x.sort(0)), &[2.0, 1.0, 2.0, 2.0], &[2.0, 1.0, 3.0, 4.0]),
    ("sort_descending", |x| weighed(&x.sort_descending(0)), &[2.0, 1.0, 2.0, 3.0], &[2.0, 4.0, 3.0, 1.0]),
    ("top_k", |x| weighed(&x.top_k(2, 0).0), &[2.0, 1.0, 2.0, 2.0], &[1.0, 0.0, 2.0, 0.0]),
    ("cummax", |x| x.cummax(0), &[1.0, 3.0, 2.0, 3.0], &[1.0, 2.0, 0.0, 1.0]),
    ("cummin", |x| x.cummin(0), &[3.0, 1.0, 2.0, 1.0], &[1.0, 2.0, 0.0, 1.0]),
    (
        "max_pool2d",
        |x| x.reshape([1, 2, 2, 1]).max_pool2d([2, 2], [1, 1], Padding::Valid),
        &[1.0, 2.0, 2.0, 2.0],
        &[0.0, 1.0, 0.0, 0.0],
    ),
];

/// The elements times 1, 2, and so on, so that it shows which of equal ones is where.
fn weighed(x: &Tensor) -> Tensor {
    x * (Tensor::arange(x.n_elements()) + 1).cast(DType::F64)
}

#[test]
fn derivatives_at_ties_are_the_documented_ones() {
    let page = include_str!("../../docs/numerics.md");
    for (name, f, x, expected) in TIES {
        assert_eq!(slope(f, x), expected, "{name} op by op");
        let compiled = accelerate(|x: &Tensor| f(x).sum(..).grad(x)).call(Tensor::from(x)).unwrap();
        assert_eq!(values(&compiled), expected, "{name} compiled");
        assert!(page.lines().any(|line| line.starts_with('|') && line.contains(&format!("`{name}`"))), "{name}");
    }
    // The two arguments of an extreme, and the limits of `clamp`.
    assert_eq!(slopes(|x, y| x.maximum(y), &[1.0, 2.0, 3.0], &[2.0, 2.0, 2.0]), [[0.0, 0.5, 1.0], [1.0, 0.5, 0.0]]);
    assert_eq!(slopes(|x, y| x.minimum(y), &[1.0, 2.0, 3.0], &[2.0, 2.0, 2.0]), [[1.0, 0.5, 0.0], [0.0, 0.5, 1.0]]);
    let x = &[1.0, 2.0, 3.0];
    assert_eq!(slopes(|x, low| x.clamp(low, 9.0), x, &[2.0; 3]), [[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]]);
    assert_eq!(slopes(|x, high| x.clamp(-9.0, high), x, &[2.0; 3]), [[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]);
    assert_eq!(slopes(|x, both| x.clamp(both, both), x, &[2.0; 3]), [[0.0, 1.0, 0.0], [1.0, 0.0, 1.0]]);
    assert_eq!(slopes(|x, high| x.clamp(5.0, high), x, &[2.0; 3]), [[0.0; 3], [1.0; 3]]);
}

/// `clamp` is `minimum(maximum(x, low), high)` in every bit, and `relu6` that of 0 and 6.
#[test]
fn limits_are_held_in_every_bit() {
    let special = [-INF, -7.0, -0.0, 0.0, 1e-310, 3.0, 6.0, 6.5, INF, f64::NAN];
    let bits = |x: &Tensor| values(x).iter().map(|x| if x.is_nan() { 0 } else { x.to_bits() }).collect::<Vec<_>>();
    let x = Tensor::from(special);
    for low in special {
        for high in special {
            let [found, expected] = [x.clamp(low, high), x.maximum(low).minimum(high)];
            assert_eq!(bits(&found), bits(&expected), "{low} {high}");
        }
    }
    assert_eq!(bits(&x.relu6()), bits(&x.clamp(0.0, 6.0)));
    assert_eq!(Tensor::from([-3, 0, 5, 9]).relu6().to_vec::<i32>().unwrap(), [0, 0, 5, 6]);
}

#[test]
fn smooth_functions_of_kinked_parts_have_no_kink() {
    assert_eq!(slope(Tensor::softplus, &[0.0, 800.0, -800.0]), [0.5, 1.0, 0.0]);
    assert_eq!(curvature(Tensor::softplus, &[0.0, 800.0, -800.0]), [0.25, 0.0, 0.0]);
    assert_eq!(curvature(|x| x.pow(2), &[0.0]), [2.0]);
    assert_eq!(slope(|x| x.pow(0), &[0.0, 3.0]), [0.0, 0.0]);
    assert_eq!(slope(Tensor::atan, &[1e200, -1e300]), [0.0, 0.0]);
    assert_eq!(curvature(Tensor::atan, &[1e200, -1e300]), [0.0, 0.0]);
}

#[test]
fn products_are_differentiated_without_division() {
    assert_eq!(slope(|x| x.prod(..), &[2.0, 0.0, 5.0]), [0.0, 10.0, 0.0]);
    assert_eq!(slope(|x| x.prod(..), &[0.0, 0.0, 5.0]), [0.0, 0.0, 0.0]);
    assert_eq!(curvature(|x| x.prod(..), &[0.0, 0.0, 5.0]), [5.0, 5.0, 0.0]);
    // The results are 2, 0 and 0; the derivatives of the last are 0, 10 and 0.
    assert_eq!(slope(|x| x.cumprod(0), &[2.0, 0.0, 5.0]), [1.0, 12.0, 0.0]);
}

/// Bases and exponents for which IEEE 754 says what a power is, and some others.
const BASES: [f64; 17] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    2.0,
    -2.0,
    0.5,
    -0.5,
    INF,
    -INF,
    f64::NAN,
    1e-310,
    -1e-310,
    f64::MIN_POSITIVE,
    f64::MAX,
    -f64::MAX,
    1e154,
];

/// A number as exponent, which is rewritten, and a tensor, which the general formula takes, give the same powers and
/// the same derivatives: those of the definition, with C's function as witness for the values.
#[test]
fn numbers_and_tensors_as_exponents_agree() {
    let same = |x: f64, y: f64| {
        let close = (x - y).abs() <= 1e-14 * y.abs() || (x - y).abs() < 1e-322;
        x.is_nan() && y.is_nan()
            || close && (x != 0.0 || x.is_sign_negative() == y.is_sign_negative())
            || x == y && x != 0.0
    };
    let bases = Tensor::from(BASES);
    for n in
        [0.5, -0.5, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 16.0, -1.0, -2.0, -3.0, -4.0, -7.0, -16.0, 0.25, 17.0, -17.0, 2.5]
    {
        let exponents = bases.full_like(n);
        let by_number = accelerate(move |x: &Tensor| {
            let y = x.pow(n);
            let gradient = y.sum(..).grad(x);
            (y, gradient)
        });
        let by_tensor = accelerate(|x: &Tensor, n: &Tensor| {
            let y = x.pow(n);
            let gradient = y.sum(..).grad(x);
            (y, gradient)
        });
        let (y, dy) = by_number.call(&bases).unwrap();
        let (z, dz) = by_tensor.call(&bases, &exponents).unwrap();
        for (found, how) in [
            (&y, "number"),
            (&z, "tensor"),
            (&bases.pow(n), "number, op by op"),
            (&bases.pow(&exponents), "tensor, op by op"),
        ] {
            for (x, found) in BASES.iter().zip(values(found)) {
                assert!(same(found, x.powf(n)), "{x} to the {n} by a {how}: {found}, not {}", x.powf(n));
            }
        }
        let op_by_op = Tensor::from(slope(|x| x.pow(n), &BASES));
        for (found, how) in [(&dy, "number"), (&dz, "tensor"), (&op_by_op, "number, op by op")] {
            for (x, found) in BASES.iter().zip(values(found)) {
                // A constant, and elsewhere the definition.
                let expected = if n == 0.0 { 0.0 } else { n * x.powf(n - 1.0) };
                let is_same = same(found, expected) || found == 0.0 && expected == 0.0;
                assert!(is_same, "derivative of {x} to the {n} by a {how}: {found}, not {expected}");
            }
        }
    }
}

/// `x^-n` where `x^n` is infinite or subnormal and the result is not.
#[test]
fn negative_powers_reach_as_far_as_their_results() {
    for (x, n) in
        [(1e20_f32, -2), (2.0_f32.powi(64), -2), (300.0, -16), (6e-20, -2), (1.1e-19, -2), (6e12, -3), (-6e12, -3)]
    {
        let exact = f64::from(x).powi(n);
        for found in [Tensor::from([x]).pow(n), accelerate(move |x: &Tensor| x.pow(n)).call(Tensor::from([x])).unwrap()]
        {
            let found = f64::from(found.item::<f32>().unwrap());
            // Some units of the result, which may be subnormal.
            let unit = f64::from((exact as f32).next_up()) - f64::from(exact as f32);
            assert!((found - exact).abs() <= 12.0 * unit.abs(), "{x} to the {n}: {found}, not {exact}");
        }
    }
}

/// The derivative by the exponent is 0 where the element is 0, whatever the exponent is.
#[test]
fn derivatives_by_exponents_are_finite_or_right() {
    let (x, y) = ([0.0, -0.0, 0.0, 0.0, INF, INF, 1.0, 2.0], [-1.0, -2.0, 0.0, 2.0, -1.0, 2.0, INF, -INF]);
    let [_, dy] = slopes(|x, y| x.pow(y), &x, &y);
    assert_eq!(dy[..4], [0.0; 4]);
    assert_eq!((dy[4], dy[5], dy[7]), (0.0, INF, 0.0));
}

#[test]
fn powers_at_zero() {
    let [dx, dy] = slopes(|x, y| x.pow(y), &[0.0, 0.0, 0.0, 2.0], &[0.0, 2.0, 1.0, 0.0]);
    assert_eq!(dx, [0.0, 0.0, 1.0, 0.0]);
    assert_eq!(dy, [0.0, 0.0, 0.0, LN_2]);
}

#[test]
fn angles_of_tiny_and_huge_points() {
    let (y, x) = ([1e-200, 1e200], [1e-200, 1e200]);
    let angles = Tensor::from(y).atan2(Tensor::from(x));
    values(&angles).iter().for_each(|angle| assert!((angle - FRAC_PI_4).abs() < 1e-15));
    let [dy, dx] = slopes(|y, x| y.atan2(x), &y, &x);
    for (d, expected) in dy.iter().zip([5e199, 5e-201]).chain(dx.iter().zip([-5e199, -5e-201])) {
        assert!((d / expected - 1.0).abs() < 1e-14, "{d} against {expected}");
    }
}

#[test]
fn infinities_in_sums_of_powers() {
    assert_eq!(values(&Tensor::from([-INF, -INF]).logsumexp(..)), [-INF]);
    assert_eq!(values(&Tensor::from([INF, 1.0]).logsumexp(..)), [INF]);
    assert_eq!(values(&Tensor::from([1000.0, 1000.0]).logsumexp(..)), [1000.0 + LN_2]);
    assert_eq!(values(&Tensor::from([-INF, 0.0]).softmax(0)), [0.0, 1.0]);
    assert_eq!(values(&Tensor::from([-800.0]).log_sigmoid()), [-800.0]);
}

#[test]
fn signs_of_zeros_and_nan() {
    let signs = values(&Tensor::from([-0.0, 0.0, f64::NAN, -3.0, INF]).sign());
    assert!(signs[0].is_sign_negative() && signs[0] == 0.0 && signs[1].is_sign_positive());
    assert!(signs[2].is_nan());
    assert_eq!(signs[3..], [-1.0, 1.0]);
}

#[test]
fn casts_take_every_dtype_to_every_other() {
    for from in DType::ALL {
        for to in DType::ALL {
            let there = Tensor::from([0.0, 1.0, 3.0]).cast(from).cast(to);
            assert_eq!(there.dtype(), to);
            let bound = if from == DType::Bool || to == DType::Bool { 1.0 } else { 3.0 };
            assert_eq!(values(&there.cast(DType::F64)), [0.0, 1.0, bound], "{from} to {to}");
        }
    }
}

#[test]
fn gradients_pass_through_16_bit_floats() {
    let f = |x: &Tensor| {
        let half = x.cast(DType::Bf16);
        half.cast(DType::F64) + half.cast(DType::F64) * 2.0
    };
    assert_eq!(slope(f, &[1.0, -2.0]), [3.0, 3.0]);
}

#[test]
fn numbers_beside_tensors_keep_all_bits_or_are_refused() {
    let mask = (1_i64 << 62) | 1;
    assert_eq!((Tensor::from([-1_i64]) & mask).to_vec::<i64>().unwrap(), [mask]);
    assert!((Tensor::from([1]) + 0.5).error().is_some());
    assert!((Tensor::from([1_u8]) + 256).error().is_some());
}

#[test]
fn errors_name_argument_dtype_and_remedy() {
    let message = |x: Tensor| x.error().unwrap().to_string();
    let half = message(Tensor::from([1.0]).cast(DType::F16).exp());
    assert!(half.contains("f16[1]") && half.contains("cast it to f32 first"), "{half}");
    let int = message(Tensor::from([1]).mean(..));
    assert!(int.starts_with("mean: argument 0 is i32[1], but must be f32 or f64"), "{int}");
    let empty = message(Tensor::zeros([0, 3]).max(0));
    assert!(empty.contains("axis 0 of f32[0, 3] is empty"), "{empty}");
}

#[test]
fn a_key_always_draws_the_same_numbers_and_another_key_others() -> Result<()> {
    let draw = |key: &Key| random::normal(key, [64], DType::F32).to_vec::<f32>();
    let [a, b] = Key::new(7).split();
    assert_eq!(draw(&a)?, draw(&Key::new(7).split::<2>()[0])?);
    assert_ne!(draw(&a)?, draw(&b)?);
    assert_ne!(draw(&Key::new(7))?, draw(&Key::new(7).fold_in(1))?);
    let folded = Key::new(7).fold_in(Tensor::from(1_u32));
    assert_eq!(draw(&folded)?, draw(&Key::new(7).fold_in(1))?);
    Ok(())
}

#[test]
fn a_cached_trace_draws_from_the_key_of_each_call() -> Result<()> {
    let draw = accelerate(|key: &Key| random::uniform(key, [5], DType::F64));
    for seed in [1, 2, 1] {
        let eager = random::uniform(&Key::new(seed), [5], DType::F64).to_vec::<f64>()?;
        assert_eq!(draw.call(Key::new(seed))?.to_vec::<f64>()?, eager);
    }
    assert_eq!(draw.stats().misses, 1);
    Ok(())
}

#[test]
fn integers_are_drawn_from_the_range_and_equally_often() -> Result<()> {
    let (key, n) = (Key::new(11), 12_000);
    for dtype in [DType::U8, DType::I32, DType::U32, DType::I64] {
        let drawn = random::randint(&key, 3..=8, [n], dtype).cast(DType::I64).to_vec::<i64>()?;
        for value in 3..=8 {
            // Bounds of five standard deviations of a count.
            let count = drawn.iter().filter(|&&x| x == value).count();
            assert!((1796..=2204).contains(&count), "{value} occurs {count} times among {dtype}");
        }
        assert!(drawn.iter().all(|x| (3..=8).contains(x)));
    }
    // All values of a dtype, its least and greatest ones alone, and ranges as wide as no word.
    let whole = random::randint(&key, .., [4000], DType::U8).to_vec::<u8>()?;
    assert!((0..=u8::MAX).all(|value| whole.contains(&value)));
    assert_eq!(random::randint(&key, i64::MAX.., [2], DType::I64).to_vec::<i64>()?, [i64::MAX; 2]);
    assert_eq!(random::randint(&key, ..=i64::MIN, [2], DType::I64).to_vec::<i64>()?, [i64::MIN; 2]);
    for range in [i64::MIN..i64::MAX, -1..1 << 32, -(1 << 40)..7, i64::MIN..1] {
        let drawn = random::randint(&key, range.clone(), [n], DType::I64).to_vec::<i64>()?;
        let width = (i128::from(range.end) - i128::from(range.start)) as f64;
        let mean = drawn.iter().map(|x| (i128::from(*x) - i128::from(range.start)) as f64 / width).sum::<f64>();
        assert!(drawn.iter().all(|x| range.contains(x)), "{range:?}");
        assert!((mean / n as f64 - 0.5).abs() < 0.0132, "{range:?}: {mean}");
    }
    assert_eq!(random::randint(&key, 0..9, [2, 0], DType::I64).shape(), [2, 0]);
    Ok(())
}

#[test]
fn integers_are_the_same_in_a_trace() -> Result<()> {
    let draw = |key: &Key| {
        let die = random::randint(key, 1..=6, [33], DType::U8);
        (die, random::randint(key, .., [5, 7], DType::I64), random::randint(key, -9..1 << 40, [], DType::I64))
    };
    let accelerated = accelerate(draw);
    for seed in [1, 2, u64::MAX] {
        let (expected, found) = (draw(&Key::new(seed)), accelerated.call(Key::new(seed))?);
        assert_eq!(found.0.to_vec::<u8>()?, expected.0.to_vec::<u8>()?);
        assert_eq!(found.1.to_vec::<i64>()?, expected.1.to_vec::<i64>()?);
        assert_eq!(found.2.item::<i64>()?, expected.2.item::<i64>()?);
    }
    assert_eq!(accelerated.stats().misses, 1);
    Ok(())
}

/// A number depends on its position alone: many, which the library draws, begin as few, for which a formula stands.
#[test]
fn many_random_numbers_begin_as_few_do() -> Result<()> {
    let key = Key::new(11);
    let few = random::bits(&key, [1999]).to_vec::<u32>()?;
    let draw = accelerate(|key: &Key| {
        (random::bits(key, [2048]), random::bits(key, [5, 1001]), random::uniform(key, [2, 1025], DType::F64))
    });
    let (many, rows, wide) = draw.call(key.clone())?;
    assert_eq!(many.to_vec::<u32>()?[..1999], few);
    assert_eq!(rows.to_vec::<u32>()?[..1999], few);
    // Two streams: each bit pattern has its own of both.
    let few = random::uniform(&key, [1999], DType::F64).to_vec::<f64>()?;
    assert_eq!(wide.to_vec::<f64>()?[..1999], few);
    Ok(())
}

#[test]
fn random_numbers_have_the_moments_of_their_distribution() -> Result<()> {
    let (key, n) = (Key::new(3), 10_000);
    let moments = |x: Tensor| -> Result<[f64; 2]> {
        let x = x.cast(DType::F64);
        Ok([x.mean(..).item()?, x.var(..).item()?])
    };
    for dtype in [DType::F32, DType::F64] {
        let uniform = random::uniform(&key, [n], dtype);
        assert!(uniform.ge(0.0).all(..).item::<bool>()? && uniform.lt(1.0).all(..).item::<bool>()?);
        // Bounds of five standard deviations of the estimates.
        let [mean, var] = moments(uniform)?;
        assert!((mean - 0.5).abs() < 0.0145 && (var - 1.0 / 12.0).abs() < 0.0038, "{mean} {var}");
        let [mean, var] = moments(random::normal(&key, [n], dtype))?;
        assert!(mean.abs() < 0.05 && (var - 1.0).abs() < 0.071, "{mean} {var}");
    }
    let [mean, _] = moments(random::bernoulli(&key, 0.3, [n]))?;
    assert!((mean - 0.3).abs() < 0.023, "{mean}");
    Ok(())
}
