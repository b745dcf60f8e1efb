//! When two values count as equal, and how far apart they are.

use crate::error::{ElementPair, Gap};
use std::fmt;

use retape_runtime::{DType, Scalar};

/// How far a result may be from the expected one.
///
/// An element is fine if *any* of the bounds holds: it is at most `absolute` away, or at most `relative` times the
/// expected magnitude, or at most `ulps` floating-point numbers of its dtype. NaN equals NaN, whatever its bits; an
/// infinity equals itself only; zeros of both signs are equal. Integers and truth values must be exact.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// The absolute bound.
    pub absolute: f64,
    /// The bound relative to the expected value.
    pub relative: f64,
    /// The bound in units in the last place.
    pub ulps: u64,
}

impl Tolerance {
    /// Equal numbers only.
    pub const EXACT: Tolerance = Tolerance { absolute: 0.0, relative: 0.0, ulps: 0 };
}

/// Relative `1e-4`, absolute `1e-6`.
impl Default for Tolerance {
    fn default() -> Tolerance {
        Tolerance { absolute: 1e-6, relative: 1e-4, ulps: 0 }
    }
}

/// The number as the absolute and as the relative bound.
impl From<f64> for Tolerance {
    fn from(bound: f64) -> Tolerance {
        Tolerance { absolute: bound, relative: bound, ulps: 0 }
    }
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "absolute {:e}, relative {:e}, {} ulp", self.absolute, self.relative, self.ulps)
    }
}

/// How many elements a gap shows.
const MAX_SAMPLES: usize = 8;

/// The elements of a buffer.
pub(crate) fn elements(dtype: DType, bytes: &[u8]) -> impl Iterator<Item = Scalar> {
    bytes.chunks_exact(dtype.size()).map(move |element| {
        let mut word = [0; 8];
        word[..element.len()].copy_from_slice(element);
        Scalar { dtype, bits: u64::from_le_bytes(word) }
    })
}

/// Compares two buffers of equal length.
pub(crate) fn compare(dtype: DType, expected: &[u8], got: &[u8], tolerance: &Tolerance) -> Option<Gap> {
    if expected == got {
        return None;
    }
    let mut gap: Option<Gap> = None;
    for (position, (expected, got)) in elements(dtype, expected).zip(elements(dtype, got)).enumerate() {
        let Some(distance) = distance(expected, got, tolerance) else { continue };
        let gap = gap.get_or_insert(Gap {
            n_elements: 0,
            n_differing: 0,
            first: position,
            samples: vec![],
            largest_absolute: 0.0,
            largest_relative: 0.0,
            largest_ulps: 0,
        });
        gap.n_differing += 1;
        gap.largest_absolute = gap.largest_absolute.max(distance.absolute);
        gap.largest_relative = gap.largest_relative.max(distance.relative);
        gap.largest_ulps = gap.largest_ulps.max(distance.ulps);
        if gap.samples.len() < MAX_SAMPLES {
            gap.samples.push(ElementPair { position, expected, got });
        }
    }
    gap.map(|gap| Gap { n_elements: got.len() / dtype.size(), ..gap })
}

/// Whether two buffers of equal length have [equal](Tolerance::EXACT) elements.
pub(crate) fn equal(dtype: DType, expected: &[u8], got: &[u8]) -> bool {
    let mut pairs = elements(dtype, expected).zip(elements(dtype, got));
    expected == got || pairs.all(|(expected, got)| distance(expected, got, &Tolerance::EXACT).is_none())
}

struct Distance {
    absolute: f64,
    relative: f64,
    ulps: u64,
}

/// How far apart two elements are, if that is beyond the tolerance.
fn distance(expected: Scalar, got: Scalar, tolerance: &Tolerance) -> Option<Distance> {
    if expected.bits == got.bits {
        return None;
    }
    let (x, y) = (expected.to_f64(), got.to_f64());
    if let (Some(p), Some(q)) = (expected.to_i64(), got.to_i64()) {
        let ulps = p.abs_diff(q);
        return Some(Distance { absolute: ulps as f64, relative: ulps as f64 / x.abs(), ulps });
    }
    if x == y || (x.is_nan() && y.is_nan()) {
        return None;
    }
    if !x.is_finite() || !y.is_finite() {
        return Some(Distance { absolute: f64::INFINITY, relative: f64::INFINITY, ulps: u64::MAX });
    }
    let absolute = (x - y).abs();
    let ulps = order(expected).abs_diff(order(got));
    let is_fine = absolute <= tolerance.absolute || absolute <= tolerance.relative * x.abs() || ulps <= tolerance.ulps;
    (!is_fine).then(|| Distance { absolute, relative: absolute / x.abs(), ulps })
}

/// The place of a float among the finite ones of its dtype, zero at zero.
fn order(x: Scalar) -> i64 {
    let sign = 1_u64 << (8 * x.dtype.size() - 1);
    let magnitude = (x.bits & (sign - 1)) as i64;
    if x.bits & sign == 0 { magnitude } else { -magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(expected: f64, got: f64, tolerance: Tolerance) -> bool {
        let bytes = |x: f64| (x as f32).to_le_bytes();
        compare(DType::F32, &bytes(expected), &bytes(got), &tolerance).is_some()
    }

    #[test]
    fn one_bound_is_enough() {
        let of = |absolute, relative, ulps| Tolerance { absolute, relative, ulps };
        assert!(gap(1.0, 1.1, Tolerance::EXACT));
        assert!(!gap(1.0, 1.1, of(0.2, 0.0, 0)));
        assert!(!gap(10.0, 11.0, of(0.0, 0.2, 0)));
        assert!(gap(10.0, 11.0, of(0.2, 0.0, 0)));
        let next = f64::from(f32::from_bits(1.0_f32.to_bits() + 3));
        assert!(!gap(1.0, next, of(0.0, 0.0, 3)));
        assert!(gap(1.0, next, of(0.0, 0.0, 2)));
    }

    #[test]
    fn nan_equals_nan_and_infinities_only_themselves() {
        let wide = Tolerance { absolute: f64::INFINITY, relative: f64::INFINITY, ulps: u64::MAX };
        assert!(!gap(f64::NAN, -f64::NAN, Tolerance::EXACT));
        assert!(!gap(f64::INFINITY, f64::INFINITY, Tolerance::EXACT));
        assert!(gap(f64::INFINITY, f64::from(f32::MAX), wide));
        assert!(gap(f64::INFINITY, f64::NEG_INFINITY, wide));
        assert!(gap(f64::NAN, 1.0, wide));
        assert!(!gap(0.0, -0.0, Tolerance::EXACT));
    }

    #[test]
    fn integers_are_exact_whatever_the_tolerance() {
        let wide = Tolerance::from(1e9);
        let gap = compare(DType::I32, &5_i32.to_le_bytes(), &7_i32.to_le_bytes(), &wide).unwrap();
        assert_eq!((gap.n_differing, gap.largest_ulps, gap.largest_absolute), (1, 2, 2.0));
    }

    #[test]
    fn a_gap_counts_and_shows_what_differs() {
        let bytes = |values: [f64; 4]| values.map(f64::to_le_bytes).concat();
        let (expected, got) = (bytes([1.0, 2.0, 3.0, 4.0]), bytes([1.0, 2.5, 3.0, 3.0]));
        let gap = compare(DType::F64, &expected, &got, &Tolerance::default()).unwrap();
        assert_eq!((gap.n_elements, gap.n_differing, gap.first), (4, 2, 1));
        assert_eq!((gap.largest_absolute, gap.largest_relative), (1.0, 0.25));
        assert_eq!(gap.samples.iter().map(|pair| pair.position).collect::<Vec<_>>(), [1, 3]);
        assert!(gap.to_string().contains("element 1 is 2.5 and not 2.0"), "{gap}");
    }

    #[test]
    fn halves_across_zero_are_counted_in_their_own_ulps() {
        let bits = |bits: u16| bits.to_le_bytes();
        let gap = compare(DType::F16, &bits(0x8001), &bits(0x0001), &Tolerance::EXACT).unwrap();
        assert_eq!(gap.largest_ulps, 2);
    }
}
