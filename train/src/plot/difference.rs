//! How far two sets of weights are from each other, parameter by parameter.

use std::panic::Location;

use plotters::prelude::DrawingBackend;
use retape::{Tensor, Tree, tree};

use super::canvas::{AXIS, Canvas, Draw, EDGE, Frame, GRID, PALETTE, SOFT};
use super::lettering::Type;
use super::number::{grouped, short};
use super::ticks::Axis;
use crate::Result;
use crate::metrics::numbers::{numbers, refuse, type_of};

const WIDTH: u32 = 900;
const HEIGHT: u32 = 400;

/// Up to how many tensors the places where one ends are marked.
const MAX_TENSORS: usize = 60;

/// The room for names of tensors above the bars.
const NAMES: f64 = 22.0;

/// How much of a name has to be readable.
const MIN_NAME: f64 = 24.0;

/// The differences of two trees of weights as bars by the number of the parameter.
///
/// Parameters are numbered through all tensors of floats, in the order of the tree and row by row. Where there are more of
/// them than the picture is wide, a bar reaches from the least to the largest difference of its parameters, zero
/// included. Above the bars of a tensor stands its name in the tree, as [`retape::tree::named`] gives it, if there is
/// room.
///
/// ```
/// use retape::Tensor;
/// use retape_train::plot::{Difference, Plot};
///
/// let before = vec![Tensor::from([1.0_f32, 2.0]), Tensor::from([3.0_f32])];
/// let after = vec![Tensor::from([1.5_f32, 2.0]), Tensor::from([2.0_f32])];
/// let difference = Difference::between("Weights after a step", &before, &after)?;
/// assert_eq!(difference.values(), [0.5, 0.0, -1.0]);
/// assert!(difference.svg()?.contains("3 parameters"));
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Difference {
    title: String,
    values: Vec<f64>,
    /// The name of each tensor, and where it ends.
    tensors: Vec<(String, usize)>,
}

impl Difference {
    /// `after` less `before`.
    ///
    /// # Errors
    ///
    /// Fails if the trees differ in the names or shapes of their tensors of floats, or one is poisoned or being traced.
    #[track_caller]
    pub fn between<T: Tree>(title: &str, before: &T, after: &T) -> Result<Difference> {
        let at = Location::caller();
        let (before, after) = (floats(before), floats(after));
        if before.len() != after.len() {
            let what = format!("{} tensors before, and {} after", before.len(), after.len());
            return Err(refuse("difference", &what, at));
        }
        let (mut values, mut tensors) = (vec![], vec![]);
        for ((name, before), (other, after)) in before.into_iter().zip(after) {
            if name != other {
                return Err(refuse(
                    "difference",
                    &format!("tensor {name} before stands where {other} stands after"),
                    at,
                ));
            }
            let (old, new) = (numbers(before)?, numbers(after)?);
            if before.shape() != after.shape() {
                let what = format!("tensor {name} is {} before, and {} after", type_of(before), type_of(after));
                return Err(refuse("difference", &what, at));
            }
            values.extend(new.iter().zip(&old).map(|(new, old)| new - old));
            tensors.push((name, values.len()));
        }
        Ok(Difference { title: title.to_owned(), values, tensors })
    }

    /// The difference of each parameter.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    fn note(&self) -> String {
        let finite: Vec<f64> = self.values.iter().copied().filter(|value| value.is_finite()).collect();
        let largest = finite.iter().fold(0.0, |largest: f64, value| largest.max(value.abs()));
        // Divided first, so that no square is too large.
        let scale = if largest > 0.0 { largest } else { 1.0 };
        let squares: f64 = finite.iter().map(|value| (value / scale) * (value / scale)).sum();
        let root = scale * (squares / finite.len().max(1) as f64).sqrt();
        let n = grouped(&self.values.len().to_string());
        let mut note = format!("{n} parameters, at most {}, root mean square {}", short(largest), short(root));
        let n_bad = self.values.len() - finite.len();
        if n_bad > 0 {
            note += &format!(", {} not finite", grouped(&n_bad.to_string()));
        }
        note
    }

    /// Marks where tensors end, and names those whose part is wide enough.
    fn draw_tensors<DB: DrawingBackend>(&self, canvas: &Canvas<'_, DB>, frame: &Frame) -> Result<()> {
        if self.tensors.len() > MAX_TENSORS {
            return Ok(());
        }
        let type_ = Type::new(11.0, SOFT);
        let mut start = 0;
        for (name, end) in &self.tensors {
            let [left, right] = [start, *end].map(|n| frame.at(n as f64, 0.0).0);
            if right < frame.to.0 - 0.5 {
                canvas.line(&[(right, frame.from.1), (right, frame.to.1 - NAMES)], &GRID, 1.0)?;
            }
            let room = right - left - 8.0;
            if room >= MIN_NAME {
                canvas.text(&type_.fitted(name, room), (left + 4.0, frame.to.1 - 0.6 * NAMES), type_)?;
            }
            start = *end;
        }
        Ok(())
    }
}

/// The tensors of floats of a tree by name.
fn floats<T: Tree>(tree: &T) -> Vec<(String, &Tensor)> {
    let mut named = tree::named(tree);
    named.retain(|(_, leaf)| leaf.error().is_some() || leaf.dtype().is_float() || leaf.dtype().is_half());
    named
}

impl Draw for Difference {
    fn size(&self) -> (u32, u32) {
        (WIDTH, HEIGHT)
    }

    fn title(&self) -> String {
        self.title.clone()
    }

    fn draw<DB: DrawingBackend>(&self, canvas: &Canvas<'_, DB>) -> Result<()> {
        canvas.clear()?;
        let top = canvas.heading(&self.title, &self.note())?;
        let finite = self.values.iter().copied().filter(|value| value.is_finite());
        let (low, high) = finite.fold((0.0, 0.0), |(low, high), value| (f64::min(low, value), f64::max(high, value)));
        let (low, high) = if low == high { (-1.0, 1.0) } else { (1.05 * low, 1.05 * high) };
        let n = self.values.len().max(1);
        let (x, y) = (Axis::counts(0.0, n as f64, 8), Axis::linear(low, high, 6));
        let frame = canvas.axes(top + NAMES, EDGE, &x, &y, "parameter")?;
        self.draw_tensors(canvas, &frame)?;
        let columns = (frame.to.0 - frame.from.0) as usize;
        let size = n.div_ceil(columns);
        // Few parameters have a gap between their bars.
        let thick = if columns >= 4 * n { 0.72 } else { 1.0 };
        for (column, values) in self.values.chunks(size).enumerate() {
            let values = values.iter().copied().filter(|value| value.is_finite());
            let (least, most) = values.fold((0.0, 0.0), |(low, high), x| (f64::min(low, x), f64::max(high, x)));
            let middle = (column * size) as f64 + size as f64 / 2.0;
            let (from, to) = (middle - thick * size as f64 / 2.0, middle + thick * size as f64 / 2.0);
            for (value, color) in [(most, PALETTE[0]), (least, PALETTE[1])] {
                if value != 0.0 {
                    canvas.rectangle(frame.at(from, value), frame.at(to, 0.0), &color)?;
                }
            }
        }
        canvas.line(&[frame.at(0.0, 0.0), frame.at(n as f64, 0.0)], &AXIS, 1.0)
    }
}
