//! The lines of a grid, and the numbers beside them.

use super::number::{multiple, short};

/// An axis: where it begins and ends, and its marks.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Axis {
    pub(super) low: f64,
    pub(super) high: f64,
    /// Positions between them, with texts.
    pub(super) marks: Vec<(f64, String)>,
    is_log: bool,
}

impl Axis {
    /// An axis without marks.
    pub(super) fn bare(low: f64, high: f64) -> Axis {
        Axis { low, high, marks: vec![], is_log: false }
    }

    /// An axis from `low` to `high` with about `n` marks at multiples of one, two or five times a power of ten.
    pub(super) fn linear(low: f64, high: f64, n: usize) -> Axis {
        Axis::with_step(low, high, step(low, high, n))
    }

    fn with_step(low: f64, high: f64, step: f64) -> Axis {
        let (first, last) = ((low / step - 1e-9).ceil() as i64, (high / step + 1e-9).floor() as i64);
        let mark = |k: i64| (k as f64 * step, multiple(k as f64 * step, step));
        Axis { low, high, marks: (first..=last).map(mark).collect(), is_log: false }
    }

    /// As [`linear`](Axis::linear), from a multiple to a multiple, so that the ends have marks too.
    pub(super) fn rounded(low: f64, high: f64, n: usize) -> Axis {
        let step = step(low, high, n);
        Axis::with_step((low / step + 1e-9).floor() * step, (high / step - 1e-9).ceil() * step, step)
    }

    /// An axis of whole numbers.
    pub(super) fn counts(low: f64, high: f64, n: usize) -> Axis {
        let mut axis = Axis::linear(low, high, n);
        axis.marks.retain(|(at, _)| (at - at.round()).abs() < 1e-9);
        for (at, text) in &mut axis.marks {
            *text = multiple(at.round(), 1.0);
        }
        axis
    }

    /// A logarithmic axis from `low` to `high`, both above zero, with about `n` marks.
    pub(super) fn logarithmic(low: f64, high: f64, n: usize) -> Axis {
        let (low, high) = (low.log10(), high.log10());
        let at = |digits: &[f64], every: usize| -> Vec<f64> {
            let powers = (low.floor() as i64..=high.ceil() as i64).step_by(every.max(1));
            let marks = powers.flat_map(|power| digits.iter().map(move |digit| power as f64 + digit.log10()));
            marks.filter(|mark| (low - 1e-9..=high + 1e-9).contains(mark)).collect()
        };
        let fine = at(&[1.0, 2.0, 5.0], 1);
        let marks = match fine.len() {
            0..3 => at(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0], 1),
            few if few <= n + 2 => fine,
            _ => at(&[1.0], ((high - low) / n as f64).ceil() as usize),
        };
        // Within a part of a decade the grid is that of a linear axis.
        let marks: Vec<f64> = match marks.len() {
            0..2 => {
                Axis::linear(10_f64.powf(low), 10_f64.powf(high), n).marks.iter().map(|(at, _)| at.log10()).collect()
            }
            _ => marks,
        };
        let text = |mark: &f64| (*mark, short_power(10_f64.powf(*mark)));
        Axis { low, high, marks: marks.iter().map(text).collect(), is_log: true }
    }

    /// Where a value is on the axis; none if it is nowhere.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        let place = if self.is_log { value.log10() } else { value };
        place.is_finite().then_some(place)
    }
}

/// A number without the digits that a power leaves.
fn short_power(value: f64) -> String {
    let text = short(value);
    match text.split_once('e') {
        Some((digits, power)) => format!("{}e{power}", digits.trim_end_matches('0').trim_end_matches('.')),
        None => text,
    }
}

/// One, two or five times a power of ten, of which about `n` reach from `low` to `high`.
fn step(low: f64, high: f64, n: usize) -> f64 {
    let raw = (high - low) / n as f64;
    let power = 10_f64.powf(raw.log10().floor());
    let steps = [1.0, 2.0, 5.0].map(|digit| digit * power);
    steps.into_iter().find(|step| *step >= raw * 0.999).unwrap_or(10.0 * power)
}

/// A range around values for an axis: the values with a little room, from zero if that is near.
pub(super) fn around(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let low = values.clone().fold(f64::INFINITY, f64::min);
    let high = values.fold(f64::NEG_INFINITY, f64::max);
    if low > high {
        return (0.0, 1.0);
    }
    let room = match high - low {
        0.0 if low == 0.0 => 1.0,
        0.0 => 0.1 * low.abs(),
        span => 0.05 * span,
    };
    let is_near = low >= 0.0 && low < 0.35 * high;
    (if is_near { 0.0 } else { low - room }, high + room)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(axis: &Axis) -> Vec<&str> {
        axis.marks.iter().map(|(_, text)| text.as_str()).collect()
    }

    #[test]
    fn marks_are_round_and_within() {
        assert_eq!(texts(&Axis::linear(0.0, 1.04, 5)), ["0.0", "0.5", "1.0"]);
        assert_eq!(texts(&Axis::linear(0.0, 1.04, 6)), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(
            texts(&Axis::rounded(-0.7, 2.3, 6)),
            ["\u{2212}1.0", "\u{2212}0.5", "0.0", "0.5", "1.0", "1.5", "2.0", "2.5"]
        );
        assert_eq!(texts(&Axis::counts(0.0, 3.0, 6)), ["0", "1", "2", "3"]);
        assert_eq!(texts(&Axis::counts(0.0, 60_000.0, 4)), ["0", "20\u{2009}000", "40\u{2009}000", "60\u{2009}000"]);
        for (low, high) in [(1e-12, 3e-12), (-1e9, 1e9), (0.999, 1.001), (5.0, 5.000_001)] {
            let axis = Axis::linear(low, high, 6);
            assert!((3..=8).contains(&axis.marks.len()), "{axis:?}");
            assert!(axis.marks.iter().all(|(at, _)| *at >= low - 1e-9 * high.abs() && *at <= high * (1.0 + 1e-9)));
        }
    }

    #[test]
    fn marks_of_logarithms_are_there_however_short_the_axis_is() {
        assert_eq!(texts(&Axis::logarithmic(0.009, 12.0, 5)), ["0.01", "0.1", "1", "10"]);
        assert_eq!(texts(&Axis::logarithmic(0.09, 1.2, 5)), ["0.1", "0.2", "0.5", "1"]);
        assert_eq!(texts(&Axis::logarithmic(0.25, 0.75, 5)), ["0.3", "0.4", "0.5", "0.6", "0.7"]);
        assert!(Axis::logarithmic(0.61, 0.68, 5).marks.len() >= 2);
        assert!(Axis::logarithmic(1e-30, 1e30, 5).marks.len() <= 8);
    }
}
