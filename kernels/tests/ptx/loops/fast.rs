//! The changes that the fast mode may make, and their bounds.

use retape_kernels::ir::Func1;
use retape_kernels::ptx::Target;
use retape_runtime::{DType, Element};

use super::machine::{expected, outputs, scalars};
use super::{kernel, lowered, step};

const FAST: Target = Target { fast: true, ..Target::new(80) };

fn call(name: &str, n: usize) -> String {
    format!(
        "kernel (p0: f32[{n}], p1: f32[{n}] out) {{
            axes a0 = {n}
            %0 = load p0[a0]
            %1 = {name} %0
            store p1[a0], %1
        }}"
    )
}

#[test]
fn approximations_are_near() {
    let n = 1000;
    // An argument of every size that the functions are used with; the logarithm's are positive.
    let wide: Vec<f32> = (0..n).map(|i| (i as f32 - 500.0) * 0.01).collect();
    let positive: Vec<f32> = (0..n).map(|i| (i as f32 * 0.05 - 20.0).exp2()).collect();
    let functions =
        [Func1::Exp, Func1::Exp2, Func1::Log, Func1::Log2, Func1::Sin, Func1::Cos, Func1::Tanh, Func1::Sigmoid];
    for func in functions {
        let kernel = kernel(&call(func.name(), n));
        assert!(lowered(&step(&kernel), FAST).launches[0].module.text().contains(".approx"), "{}", func.name());
        let plain = Target { fast: false, ..FAST };
        assert!(!lowered(&step(&kernel), plain).launches[0].module.text().contains(".approx"), "{}", func.name());
        let x = if matches!(func, Func1::Log | Func1::Log2) { &positive } else { &wide };
        let inputs = vec![x.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>()];
        let found = outputs(&step(&kernel), &kernel, &inputs, FAST);
        let pairs = scalars(&found[0], DType::F32).into_iter().zip(scalars(&expected(&kernel, &inputs)[0], DType::F32));
        for ((found, expected), x) in pairs.zip(x) {
            let (found, expected) = (found.to_f64(), expected.to_f64());
            let error = (found - expected).abs() / expected.abs().max(1e-2);
            assert!(error < 1e-3, "{} of {x}: {found}, not {expected}", func.name());
        }
    }
}

/// The logarithm is good to an absolute error near 1; `log1p` is not to lose its small results to that.
#[test]
fn log1p_is_near_by_the_size_of_its_result() {
    let n = 4000;
    let sizes = (0..n / 2).map(|i| (i as f32 * 0.05 - 90.0).exp2());
    let x: Vec<f32> = sizes.flat_map(|x| [x, -x.min(0.999 - x / 1e12)]).collect();
    let kernel = kernel(&call("log1p", n));
    assert!(lowered(&step(&kernel), FAST).launches[0].module.text().contains("lg2.approx"));
    let inputs = vec![x.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>()];
    let found = scalars(&outputs(&step(&kernel), &kernel, &inputs, FAST)[0], DType::F32);
    for (found, &x) in found.into_iter().zip(&x) {
        let (found, expected) = (found.to_f64(), f64::from(x).ln_1p());
        let error = (found - expected).abs();
        assert!(error <= 1e-6 * expected.abs(), "log1p of {x}: {found}, not {expected}");
    }
}

#[test]
fn the_edges_stay() {
    let edges = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 0.0, 200.0, -200.0];
    let inputs = vec![edges.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>()];
    let cases = [
        (Func1::Exp, [f32::INFINITY, 0.0, f32::NAN, 1.0, f32::INFINITY, 0.0]),
        (Func1::Sigmoid, [1.0, 0.0, f32::NAN, 0.5, 1.0, 0.0]),
        (Func1::Tanh, [1.0, -1.0, f32::NAN, 0.0, 1.0, -1.0]),
        (Func1::Log1p, [f32::INFINITY, f32::NAN, f32::NAN, 0.0, 201.0_f32.ln(), f32::NAN]),
    ];
    for (func, expected) in cases {
        let kernel = kernel(&call(func.name(), edges.len()));
        let found = scalars(&outputs(&step(&kernel), &kernel, &inputs, FAST)[0], DType::F32);
        for (found, expected) in found.into_iter().zip(expected) {
            let same = (found.to_f64() - f64::from(expected)).abs() < 1e-6
                || found == expected.to_scalar()
                || (found.to_f64().is_nan() && expected.is_nan());
            assert!(same, "{}: {found:?}, not {expected}", func.name());
        }
    }
}

/// Quotients are approximate over the whole range.
#[test]
fn quotients_of_huge_and_tiny_numbers_are_near() {
    let x: Vec<f32> = (0..2000).map(|i| ((i as f32 - 1000.0) * 0.127).exp2()).collect();
    let n = x.len();
    let text = format!(
        "kernel (p0: f32[{n}], p1: f32[{n}], p2: f32[{n}] out) {{
            axes a0 = {n}
            %0 = load p0[a0]
            %1 = load p1[a0]
            %2 = div %0, %1
            store p2[a0], %2
        }}"
    );
    let kernel = kernel(&text);
    let y = x.iter().map(|x| x * 0.7);
    let inputs = [x.clone(), y.collect()].map(|x| x.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>());
    assert!(lowered(&step(&kernel), FAST).launches[0].module.text().contains("div.full.f32"));
    for found in scalars(&outputs(&step(&kernel), &kernel, &inputs, FAST)[0], DType::F32) {
        assert!((found.to_f64() - 1.0 / 0.7).abs() < 1e-6, "{found:?}");
    }
}

/// Products that are added are not rounded before, unless something else takes them, too, or they are added to one.
#[test]
fn products_are_added_unrounded() {
    let n = 500;
    let text = |last: &str| {
        format!(
            "kernel (p0: f32[{n}], p1: f32[{n}], p2: f32[{n}], p3: f32[{n}] out) {{
                axes a0 = {n}
                %0 = load p0[a0]
                %1 = load p1[a0]
                %2 = load p2[a0]
                %3 = mul %0, %1
                {last}
            }}"
        )
    };
    let x: [Vec<f32>; 3] = [1, 2, 3].map(|k| (0..n).map(|i| ((i * 37 * k) % 1009) as f32 * 1e-3 - 0.5).collect());
    let inputs: Vec<Vec<u8>> = x.iter().map(|x| x.iter().flat_map(|x| x.to_le_bytes()).collect()).collect();
    type Formula = fn(f32, f32, f32) -> f32;
    let cases: [(&str, Formula); 7] = [
        ("add %3, %2", |a, b, c| a.mul_add(b, c)),
        ("add %2, %3", |a, b, c| a.mul_add(b, c)),
        ("sub %3, %2", |a, b, c| a.mul_add(b, -c)),
        ("sub %2, %3", |a, b, c| (-a).mul_add(b, c)),
        ("add %3, %3", |a, b, _| a * b + a * b),
        ("mul %0, %2\n%5 = sub %3, %4", |a, b, c| a * b - a * c),
        ("mul %1, %0\n%5 = sub %3, %4", |_, _, _| 0.0),
    ];
    for (sum, expected) in cases {
        let store = if sum.contains("%5") { "store p3[a0], %5" } else { "store p3[a0], %4" };
        let kernel = kernel(&text(&format!("%4 = {sum}\n{store}")));
        let found = scalars(&outputs(&step(&kernel), &kernel, &inputs, FAST)[0], DType::F32);
        for (i, found) in found.into_iter().enumerate() {
            assert_eq!(found, expected(x[0][i], x[1][i], x[2][i]).to_scalar(), "{sum} of {i}");
        }
        let plain = Target { fast: false, ..FAST };
        assert!(!lowered(&step(&kernel), plain).launches[0].module.text().contains("fma"), "{sum}");
    }
    let twice = kernel(&text("%4 = add %3, %2\n%5 = mul %4, %3\nstore p3[a0], %5"));
    assert!(!lowered(&step(&twice), FAST).launches[0].module.text().contains("fma"));
}
