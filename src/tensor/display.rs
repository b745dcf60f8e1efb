//! Tensors as text for people.
//!
//! Elements are aligned in columns; long axes are shortened to their first and last three elements.

use std::fmt;

use retape_runtime::DType;

use super::{Concrete, Repr, Tensor};

/// How many elements of a long axis are shown at either end.
const EDGE: usize = 3;

/// Tensors with more elements than this are shortened.
const SHOW_ALL: usize = 200;

impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.repr {
            Repr::Concrete(concrete) => print(f, concrete),
            Repr::Traced(traced) => write!(f, "traced {} {}", traced.id, traced.ty),
            Repr::Poisoned(error) => write!(f, "poisoned: {error}"),
        }
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn print(f: &mut fmt::Formatter<'_>, concrete: &Concrete) -> fmt::Result {
    let ty = &concrete.ty;
    let shorten = ty.n_elements() > SHOW_ALL;
    let elements = Elements { concrete, precision: f.precision(), shorten };
    let width = elements.shown().map(|index| elements.text(index).len()).max().unwrap_or(0);
    elements.print_axis(f, 0, 0, width)?;
    write!(f, " {ty}")
}

struct Elements<'t> {
    concrete: &'t Concrete,
    precision: Option<usize>,
    shorten: bool,
}

impl Elements<'_> {
    fn text(&self, index: usize) -> String {
        let size = self.concrete.ty.dtype.size();
        let mut bits = [0; 8];
        bits[..size].copy_from_slice(&self.concrete.bytes().bytes()[index * size..(index + 1) * size]);
        let scalar = retape_runtime::Scalar { dtype: self.concrete.ty.dtype, bits: u64::from_le_bytes(bits) };
        match self.concrete.ty.dtype {
            DType::F32 | DType::F64 | DType::F16 | DType::Bf16 => match self.precision {
                Some(precision) => format!("{:.precision$}", scalar.to_f64()),
                None => float(scalar.to_f64()),
            },
            DType::I32 | DType::I64 | DType::U32 | DType::U8 | DType::Bool => scalar.to_string(),
        }
    }

    /// The coordinates shown along an axis; `None` stands for the dots.
    fn along(&self, axis: usize) -> impl Iterator<Item = Option<usize>> + use<> {
        let extent = self.concrete.ty.shape[axis];
        let cut = self.shorten && extent > 2 * EDGE + 1;
        let (head, tail) = if cut { (EDGE, extent - EDGE) } else { (extent, extent) };
        (0..head).map(Some).chain(cut.then_some(None)).chain((tail..extent).map(Some))
    }

    /// The positions of all elements shown.
    fn shown(&self) -> impl Iterator<Item = usize> {
        let shape = &self.concrete.ty.shape;
        let mut positions = vec![0];
        for (axis, extent) in shape.iter().enumerate() {
            let inner = |at: usize| self.along(axis).flatten().map(move |c| at * extent + c);
            positions = positions.into_iter().flat_map(inner).collect();
        }
        positions.into_iter()
    }

    fn print_axis(&self, f: &mut fmt::Formatter<'_>, axis: usize, at: usize, width: usize) -> fmt::Result {
        let shape = &self.concrete.ty.shape;
        if axis == shape.rank() {
            return write!(f, "{:>width$}", self.text(at));
        }
        let innermost = axis + 1 == shape.rank();
        f.write_str("[")?;
        for (position, coordinate) in self.along(axis).enumerate() {
            match (position, innermost) {
                (0, _) => {}
                (_, true) => f.write_str(", ")?,
                (_, false) => write!(f, ",\n{:indent$}", "", indent = axis + 1)?,
            }
            match coordinate {
                Some(c) => self.print_axis(f, axis + 1, at * shape[axis] + c, width)?,
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
