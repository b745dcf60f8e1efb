//! How far pooling in `f32` may be off, by the number of windows that overlap: derived, not measured.

use retape::Tensor;

use super::file::{Case, array, elements, number};

/// The unit roundoff of `f32`.
pub(crate) const U: f64 = 1.0 / (1_u64 << 24) as f64;

/// The error of a sum of `n` numbers of magnitude `most` at most, of which each has been rounded `roundings` times, in
/// any order of additions one by one.
///
/// A rounding is off by `U` of what it rounds: `n` numbers of `most`, and then, where the `k`th number joins the sum, a
/// partial sum of `k most`, for `k` from 2 to `n`. The 1 + 1e-4 is for roundings of roundings.
pub(crate) fn sum_bound(n: usize, roundings: usize, most: f64) -> f64 {
    let (n, roundings) = (n as f64, roundings as f64);
    U * most * (roundings * n + n * (n + 1.0) / 2.0 - 1.0) * (1.0 + 1e-4)
}

/// The windows that an element can be in.
pub(crate) fn n_overlapping(window: [usize; 2], stride: [usize; 2]) -> usize {
    (0..2).map(|axis| window[axis].div_ceil(stride[axis])).product()
}

/// The bounds for outputs and gradients of a case of pooling.
///
/// A maximum is an element, which has been rounded once; its gradient is the sum of the cotangents of the windows that
/// chose it. A mean is a sum over the window, divided; its gradient is a sum of cotangents which were divided before.
pub(crate) fn bounds(case: &Case) -> [f64; 2] {
    let most = |tensor: &Tensor| elements(tensor).into_iter().fold(0.0_f64, |most, x| most.max(x.abs()));
    let (x, ct) = (most(&case.inputs[0]), case.cotangents.iter().map(|(_, ct)| most(ct)).fold(0.0, f64::max));
    let pair = |name: &str| [0, 1].map(|axis| number(&array(&case.attrs[name])[axis]));
    let n = n_overlapping(pair("window"), pair("stride"));
    match &*case.op {
        "max_pool2d" => [sum_bound(1, 1, x), sum_bound(n, 1, ct)],
        "avg_pool2d" => {
            let area: usize = pair("window").iter().product();
            [sum_bound(area, 1, x) / area as f64 + U * x, sum_bound(n, 2, ct)]
        }
        other => panic!("{other} is no pooling"),
    }
}
