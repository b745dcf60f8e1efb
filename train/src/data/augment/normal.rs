//! Numbers of the standard normal distribution, with the same bits on every platform.
//!
//! The polar method (G. Marsaglia and T. Bray, "A convenient method for generating normal variables", 1964): of points
//! uniform in a square those in the unit disc are kept, and each makes two independent numbers. It needs a square root,
//! whose rounding IEEE 754 fixes, and a logarithm, which is not fixed and hence written out here.

use std::f64::consts::{LN_2, SQRT_2};

use retape::data::Random;

/// A source of such numbers that draws from a stream.
pub(super) struct Normal<'a> {
    random: &'a mut Random,
    /// The second number of a pair.
    spare: Option<f64>,
}

impl<'a> Normal<'a> {
    pub(super) fn new(random: &'a mut Random) -> Normal<'a> {
        Normal { random, spare: None }
    }

    /// The next number.
    pub(super) fn draw(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        loop {
            let (x, y) = (self.random.uniform(-1.0, 1.0), self.random.uniform(-1.0, 1.0));
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                let stretch = (-2.0 * ln(square) / square).sqrt();
                self.spare = Some(y * stretch);
                return x * stretch;
            }
        }
    }
}

/// The natural logarithm of a normal number above zero, to about two units in the last place.
///
/// With `x = 2^e m` and `m` from the root of one half to the root of two, `ln x = e ln 2 + 2 artanh z` for
/// `z = (m - 1) / (m + 1)`. Since `|z| < 0.172`, eleven terms of the series of artanh leave out less than 2^-56 of it.
fn ln(x: f64) -> f64 {
    const FRACTION: u64 = (1 << 52) - 1;
    let bits = x.to_bits();
    let (mut exponent, mut m) = ((bits >> 52) as f64 - 1023.0, f64::from_bits((bits & FRACTION) | (1023 << 52)));
    if m > SQRT_2 {
        (exponent, m) = (exponent + 1.0, m / 2.0);
    }
    let z = (m - 1.0) / (m + 1.0);
    let series = (0..11).rev().fold(0.0, |sum, k| sum * (z * z) + 1.0 / f64::from(2 * k + 1));
    exponent * LN_2 + 2.0 * z * series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logarithm_is_that_of_the_standard_library() {
        let mut random = Random::new(1, 2, 3);
        for n in 0..100_000 {
            let x = match n % 3 {
                0 => random.unit() + f64::MIN_POSITIVE,
                1 => 1.0 - random.unit() * 1e-6,
                _ => 1.0 / (random.bits() as f64 + 1.0),
            };
            let (got, want) = (ln(x), x.ln());
            assert!((got - want).abs() <= 4.0 * f64::EPSILON * want.abs(), "{x}: {got} {want}");
        }
        assert_eq!((ln(1.0), ln(2.0), ln(0.25)), (0.0, LN_2, -2.0 * LN_2));
    }

    #[test]
    fn numbers_keep_their_bits() {
        // Made apart, by the formulas in Python; other bits would change every training with such noise.
        let mut random = Random::new(7, 8, 9);
        let mut normal = Normal::new(&mut random);
        let drawn: Vec<u64> = (0..4).map(|_| normal.draw().to_bits()).collect();
        assert_eq!(drawn, [0x3FF57A203DFF2FDF, 0x3FE380084732844D, 0xBFEABA836EBE1166, 0x3FFC85590E0E53EE]);
    }
}
