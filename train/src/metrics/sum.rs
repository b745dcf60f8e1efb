//! Sums of many numbers whose error does not grow with their number.

/// A sum with the part that rounding took from it (A. Neumaier, "Rundungsfehleranalyse einiger Verfahren zur Summation
/// endlicher Summen", 1974). NaN and infinities add up as they would in a plain sum.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sum {
    sum: f64,
    lost: f64,
}

impl Sum {
    pub(super) fn add(&mut self, x: f64) {
        let sum = self.sum + x;
        // Beyond the finite numbers there is nothing to correct, and infinity less infinity is NaN.
        if sum.is_finite() {
            self.lost += if self.sum.abs() >= x.abs() { (self.sum - sum) + x } else { (x - sum) + self.sum };
        }
        self.sum = sum;
    }

    pub(super) fn merge(&mut self, other: Sum) {
        self.add(other.sum);
        self.lost += other.lost;
    }

    pub(super) fn value(self) -> f64 {
        if self.sum.is_finite() { self.sum + self.lost } else { self.sum }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(terms: &[f64]) -> f64 {
        let mut sum = Sum::default();
        terms.iter().for_each(|&x| sum.add(x));
        sum.value()
    }

    #[test]
    fn what_a_plain_sum_loses_is_kept() {
        let plain: f64 = [1.0, 1e100, 1.0, -1e100].iter().sum();
        assert_eq!((sum(&[1.0, 1e100, 1.0, -1e100]), plain), (2.0, 0.0));
        let (mut first, mut second) = (Sum::default(), Sum::default());
        [1.0, 1e100].iter().for_each(|&x| first.add(x));
        [1.0, -1e100].iter().for_each(|&x| second.add(x));
        first.merge(second);
        assert_eq!(first.value(), 2.0);
    }

    #[test]
    fn nothing_hides_infinities_and_nan() {
        assert_eq!(sum(&[1.0, f64::INFINITY, 2.0]), f64::INFINITY);
        assert!(sum(&[f64::INFINITY, -f64::INFINITY, 1.0]).is_nan() && sum(&[1.0, f64::NAN]).is_nan());
    }
}
