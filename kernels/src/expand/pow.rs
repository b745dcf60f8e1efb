//! Powers.
//!
//! `x^y = 2^(y log2 |x|)` with the logarithm and the product held as pairs, then the special cases of IEEE 754.

use super::arith::{Arith, IntArith, Mask};
use super::exp::exp2_pair;
use super::log::log2_pair;

/// `x^y`.
pub(super) fn pow<F: Arith>(x: F, y: F) -> F {
    let (zero, one, infinity) = (x.lit(0.0), x.lit(1.0), x.lit(f64::INFINITY));
    let size = x.abs();
    let log = log2_pair(size);
    let hi = (-infinity).when(size.eq(zero), size.when(size.eq(infinity), log.hi));
    let product = y * hi;
    // Out of this range the result is 0 or infinite, and the low part may be NaN.
    let ordinary = product.abs().lt(x.lit(5000.0));
    let low = y.fma(log.lo, y.fma(hi, -product)).when(ordinary, zero);
    // 1^y is 1 for infinite y as well, where the product is NaN.
    let value = one.when(size.eq(one), exp2_pair(product, low));

    let half = y * x.lit(0.5);
    let integral = y.floor().eq(y);
    let odd = integral.and(half.floor().eq(half).not());
    let negative = x.bits().lt(x.bits().lit(0));
    let value = (-value).when(odd.and(negative), value);
    let undefined = x.lt(zero).and((-infinity).lt(x)).and(integral.not());
    let value = x.lit(f64::NAN).when(undefined, value);
    let value = value.when(x.eq(x).and(y.eq(y)), x + y);
    one.when(x.eq(one).or(y.eq(zero)), value)
}
