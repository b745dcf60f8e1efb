//! How far two sets of weights are from each other, parameter by parameter.

use std::panic::Location;

use plotters::prelude::DrawingBackend;
use retape::{Tensor, Tree, map};

use super::canvas::{AXIS, Canvas, Draw, GRID, PALETTE, SOFT, Type};
use super::number::{grouped, short};
use super::ticks::Axis;
use crate::Result;
use crate::metrics::numbers::{numbers, refuse, type_of};

const WIDTH: u32 = 900;
const HEIGHT: u32 = 400;

/// Up to how many leaves the places where one ends are marked.
const MAX_LEAVES: usize = 60;

/// The differences of two trees of weights as bars by the number of the parameter.
///
/// Parameters are numbered through all tensors of floats, in the order of the tree and row by row. Where there are more of
/// them than the picture is wide, a bar reaches from the least to the largest difference of its parameters, zero
/// included.
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
    /// Where each leaf ends.
    ends: Vec<usize>,
}

impl Difference {
    /// `after` less `before`.
    ///
    /// # Errors
    ///
    /// Fails if the trees differ in the number or shapes of their tensors of floats, or one is poisoned or being traced.
    #[track_caller]
    pub fn between<T: Tree>(title: &str, before: &T, after: &T) -> Result<Difference> {
        let at = Location::caller();
        let (before, after) = (leaves(before), leaves(after));
        if before.len() != after.len() {
            let what = format!("{} tensors before, and {} after", before.len(), after.len());
            return Err(refuse("difference", &what, at));
        }
        let (mut values, mut ends) = (vec![], vec![]);
        for (n, (before, after)) in before.iter().zip(&after).enumerate() {
            let (old, new) = (numbers(before)?, numbers(after)?);
            if before.shape() != after.shape() {
                let what = format!("tensor {n} is {} before, and {} after", type_of(before), type_of(after));
                return Err(refuse("difference", &what, at));
            }
            values.extend(new.iter().zip(&old).map(|(new, old)| new - old));
            ends.push(values.len());
        }
        Ok(Difference { title: title.to_owned(), values, ends })
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
}

fn leaves<T: Tree>(tree: &T) -> Vec<Tensor> {
    let mut leaves = vec![];
    map(tree, |leaf| {
        leaves.push(leaf.clone());
        leaf.clone()
    });
    leaves.retain(|leaf| leaf.error().is_some() || leaf.dtype().is_float() || leaf.dtype().is_half());
    leaves
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
        let frame = canvas.axes(top, 90.0, &x, &y)?;
        let inner = &self.ends[..self.ends.len().saturating_sub(1)];
        if inner.len() <= MAX_LEAVES {
            for &end in inner {
                canvas.line(&[frame.at(end as f64, low), frame.at(end as f64, high)], &GRID, 1.0)?;
            }
        }
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
        canvas.line(&[frame.at(0.0, 0.0), frame.at(n as f64, 0.0)], &AXIS, 1.0)?;
        let below = f64::from(HEIGHT) - 26.0;
        canvas.text("parameter", (frame.to.0 + 12.0, below), Type::new(12.0, SOFT))
    }
}
