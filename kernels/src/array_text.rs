//! Arrays as text for people.
//!
//! Long axes of large arrays are shortened to their first and last three elements, and inner axes to dots if even that
//! is too much: no text is longer than people read.

use std::fmt;

use retape_runtime::{DType, Scalar, Shape};

/// How many elements of a long axis are shown at either end.
const EDGE: usize = 3;

/// Arrays with more elements than this are shortened.
const SHOW_ALL: usize = 200;

/// An axis is shown as dots alone if more elements than this would be shown along the axes up to it.
const SHOW_MOST: usize = 10_000;

/// The elements of an array, in brackets, printed by `Display` with the precision of the format.
#[derive(Clone, Copy, Debug)]
pub struct ArrayText<'a> {
    /// The dtype of the elements.
    pub dtype: DType,
    /// The extents.
    pub shape: &'a Shape,
    /// The elements in row-major order, as many as the shape says.
    pub bytes: &'a [u8],
    /// Whether all of it goes on one line; else rows have lines of their own, in aligned columns.
    pub one_line: bool,
}

impl fmt::Display for ArrayText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = self.shown().map(|index| self.text(index, f.precision()).len());
        let width = if self.one_line { 0 } else { widths.max().unwrap_or(0) };
        self.print_axis(f, 0, 0, width)
    }
}

impl ArrayText<'_> {
    fn text(&self, index: usize, precision: Option<usize>) -> String {
        let size = self.dtype.size();
        let mut bits = [0; 8];
        // Where there are fewer bytes than the shape says, zeros stand for them.
        let element = self.bytes.get(index.saturating_mul(size)..).and_then(|rest| rest.get(..size));
        bits[..size].copy_from_slice(element.unwrap_or(&[0; 8][..size]));
        let scalar = Scalar { dtype: self.dtype, bits: u64::from_le_bytes(bits) };
        match self.dtype {
            DType::F32 | DType::F64 | DType::F16 | DType::Bf16 => match precision {
                Some(precision) => format!("{:.precision$}", scalar.to_f64()),
                None => float(scalar.to_f64()),
            },
            DType::I32 | DType::I64 | DType::U32 | DType::U8 | DType::Bool => scalar.to_string(),
        }
    }

    /// The coordinates shown along an axis; `None` stands for the dots.
    fn along(&self, axis: usize) -> impl Iterator<Item = Option<usize>> + use<> {
        let extent = self.shape[axis];
        // An array without elements can have many empty rows.
        let n_shown = self.shape.iter().fold(1_usize, |n, &extent| n.saturating_mul(extent.max(1)));
        let is_long = |extent: usize| n_shown > SHOW_ALL && extent > 2 * EDGE + 1;
        let edges = |extent: usize| if is_long(extent) { 2 * EDGE } else { extent.max(1) };
        let so_far = self.shape[..=axis].iter().fold(1_usize, |n, &extent| n.saturating_mul(edges(extent)));
        let edge = if so_far > SHOW_MOST { 0 } else { EDGE };
        let cut = is_long(extent) || (edge == 0 && extent > 0);
        let (head, tail) = if cut { (edge, extent - edge) } else { (extent, extent) };
        (0..head).map(Some).chain(cut.then_some(None)).chain((tail..extent).map(Some))
    }

    /// The positions of all elements shown.
    fn shown(&self) -> impl Iterator<Item = usize> {
        let mut positions = vec![0];
        for (axis, extent) in self.shape.iter().enumerate() {
            let inner =
                |at: usize| self.along(axis).flatten().map(move |c| at.saturating_mul(*extent).saturating_add(c));
            positions = positions.into_iter().flat_map(inner).collect();
        }
        positions.into_iter()
    }

    fn print_axis(&self, f: &mut fmt::Formatter<'_>, axis: usize, at: usize, width: usize) -> fmt::Result {
        if axis == self.shape.rank() {
            return write!(f, "{:>width$}", self.text(at, f.precision()));
        }
        let innermost = axis + 1 == self.shape.rank();
        f.write_str("[")?;
        for (position, coordinate) in self.along(axis).enumerate() {
            match (position, innermost || self.one_line) {
                (0, _) => {}
                (_, true) => f.write_str(", ")?,
                (_, false) => write!(f, ",\n{:indent$}", "", indent = axis + 1)?,
            }
            match coordinate {
                Some(c) => {
                    self.print_axis(f, axis + 1, at.saturating_mul(self.shape[axis]).saturating_add(c), width)?
                }
                None => f.write_str("..")?,
            }
        }
        f.write_str("]")
    }
}

/// Up to six significant digits, in the shorter of fixed and scientific notation.
fn float(x: f64) -> String {
    if x == 0.0 || !x.is_finite() {
        return format!("{x:?}");
    }
    if !(1e-4..1e7).contains(&x.abs()) {
        return format!("{x:.5e}");
    }
    let digits = (5 - x.abs().log10().floor() as i32).max(1) as usize;
    let fixed = format!("{x:.digits$}");
    let short = fixed.trim_end_matches('0');
    if short.ends_with('.') { format!("{short}0") } else { short.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_empty_rows_are_shortened() {
        let shape = Shape::new(&[1 << 40, 0]);
        let text = ArrayText { dtype: DType::F32, shape: &shape, bytes: &[], one_line: true };
        assert_eq!(text.to_string(), "[[], [], [], .., [], [], []]");
        let shape = Shape::new(&[0, 1 << 40]);
        assert_eq!(ArrayText { shape: &shape, ..text }.to_string(), "[]");
    }

    #[test]
    fn many_axes_are_shortened() {
        // Seven to the power of twenty empty rows, each of its own line.
        let shape: Shape = [7; 20].into_iter().chain([0]).collect();
        for one_line in [false, true] {
            let text = ArrayText { dtype: DType::F32, shape: &shape, bytes: &[], one_line }.to_string();
            assert!(text.len() < 1 << 20 && text.contains("[..]"), "{} bytes", text.len());
        }
        let shape = Shape::new(&[2; 18]);
        let bytes = vec![0; shape.n_elements()];
        let text = ArrayText { dtype: DType::U8, shape: &shape, bytes: &bytes, one_line: true }.to_string();
        assert!(text.len() < 1 << 20 && text.contains("[..]"), "{} bytes", text.len());
    }

    #[test]
    fn bytes_that_are_missing_are_zeros() {
        let shape = Shape::new(&[3]);
        let text = ArrayText { dtype: DType::I32, shape: &shape, bytes: &[7, 0, 0, 0, 1], one_line: true };
        assert_eq!(text.to_string(), "[7, 0, 0]");
    }
}
