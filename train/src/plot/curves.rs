//! Curves over steps.

use plotters::prelude::{Color, DrawingBackend, RGBColor};

use super::canvas::{Canvas, Draw, EDGE, Frame, PALETTE, SOFT, WHITE};
use super::lettering::Type;
use super::ticks::{Axis, around};
use crate::Result;

const WIDTH: u32 = 760;
const HEIGHT: u32 = 430;

/// Points of a curve per part of its width; curves with more are drawn as the mean of each part, within a band from the
/// least to the largest value.
const PARTS: usize = 480;

/// Up to how many points of a curve are marked with dots.
const MAX_DOTS: usize = 40;

/// Curves over the steps of a training, such as the loss in training and validation.
///
/// Points that are no finite number, or on a logarithmic scale not above zero, leave a gap. A curve of very many points is
/// drawn as means within a band from the least to the largest value.
///
/// ```
/// use retape_train::plot::{Curves, Plot};
///
/// let curves = Curves::new("Accuracy")
///     .note("ResNet-18 on CIFAR-10")
///     .curve("training", [(0.0, 0.1), (100.0, 0.6), (200.0, 0.8)])
///     .curve("validation", [(100.0, 0.55), (200.0, 0.7)]);
/// assert!(curves.png()?.starts_with(b"\x89PNG"));
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Curves {
    title: String,
    note: String,
    x_name: String,
    is_log: bool,
    curves: Vec<(String, Vec<(f64, f64)>)>,
}

impl Curves {
    /// No curves yet, under a title.
    pub fn new(title: &str) -> Curves {
        Curves {
            title: title.to_owned(),
            note: String::new(),
            x_name: "step".to_owned(),
            is_log: false,
            curves: vec![],
        }
    }

    /// Sets the line below the title.
    pub fn note(mut self, note: &str) -> Curves {
        note.clone_into(&mut self.note);
        self
    }

    /// Names the horizontal axis; it is `step`.
    pub fn x_name(mut self, name: &str) -> Curves {
        name.clone_into(&mut self.x_name);
        self
    }

    /// Adds a curve, as its points from left to right.
    pub fn curve(mut self, name: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Curves {
        self.curves.push((name.to_owned(), points.into_iter().collect()));
        self
    }

    /// Makes the vertical axis logarithmic.
    pub fn log(mut self) -> Curves {
        self.is_log = true;
        self
    }

    /// Whether a point can be drawn.
    fn is_shown(&self, (x, y): (f64, f64)) -> bool {
        x.is_finite() && y.is_finite() && (!self.is_log || y > 0.0)
    }

    /// The points that can be drawn.
    fn shown(&self) -> impl Iterator<Item = (f64, f64)> + Clone {
        self.curves.iter().flat_map(|(_, points)| points.iter().copied()).filter(|&point| self.is_shown(point))
    }

    fn axes(&self) -> (Axis, Axis) {
        let (xs, ys) = (self.shown().map(|(x, _)| x), self.shown().map(|(_, y)| y));
        let (left, right) = (xs.clone().fold(f64::INFINITY, f64::min), xs.clone().fold(f64::NEG_INFINITY, f64::max));
        // Between two steps there is nothing to mark.
        let axis = if xs.clone().all(|x| x.fract() == 0.0) { Axis::counts } else { Axis::linear };
        let x = match right - left {
            span if span > 0.0 && left >= 0.0 && left < 0.1 * right => axis(0.0, right, 8),
            span if span > 0.0 => axis(left, right, 8),
            // A single step, or nothing at all.
            0.0 => axis(left - 0.5, right + 0.5, 4),
            _ => axis(0.0, 1.0, 4),
        };
        let y = if self.is_log && self.shown().next().is_some() {
            let (low, high) = (ys.clone().fold(f64::INFINITY, f64::min), ys.fold(0.0, f64::max));
            let room = (high / low).powf(0.05).max(1.05);
            Axis::logarithmic(low / room, high * room, 6)
        } else {
            let (low, high) = around(ys);
            Axis::linear(low, high, 6)
        };
        (x, y)
    }

    fn draw_curve<DB: DrawingBackend>(
        &self,
        canvas: &Canvas<'_, DB>,
        frame: &Frame,
        y: &Axis,
        points: &[(f64, f64)],
        color: RGBColor,
    ) -> Result<()> {
        let place = |x: f64, value: f64| y.place(value).map(|at| frame.at(x, at));
        for run in runs(points, |point| self.is_shown(point)) {
            let parts = condensed(run, PARTS);
            if parts.len() < run.len() {
                let upper = parts.iter().filter_map(|part| place(part.x, part.max));
                let lower = parts.iter().rev().filter_map(|part| place(part.x, part.min));
                canvas.polygon(&upper.chain(lower).collect::<Vec<_>>(), &color.mix(0.22))?;
            }
            let line: Vec<(f64, f64)> = parts.iter().filter_map(|part| place(part.x, part.mean)).collect();
            canvas.line(&line, &color, 2.0)?;
            if points.len() <= MAX_DOTS || run.len() == 1 {
                for &at in &line {
                    canvas.dot(at, &WHITE, 3.6)?;
                    canvas.dot(at, &color, 2.8)?;
                }
            }
        }
        Ok(())
    }
}

/// The longest parts of a slice that satisfy a condition throughout.
fn runs<T: Copy>(points: &[T], condition: impl Fn(T) -> bool) -> impl Iterator<Item = &[T]> {
    points.split(move |&point| !condition(point)).filter(|run| !run.is_empty())
}

/// Neighbouring points as one.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Part {
    x: f64,
    mean: f64,
    min: f64,
    max: f64,
}

/// At most `n` parts for a curve: a point each if there are no more, or equally many points each.
fn condensed(points: &[(f64, f64)], n: usize) -> Vec<Part> {
    let size = points.len().div_ceil(n);
    let part = |points: &[(f64, f64)]| {
        let values = points.iter().map(|(_, y)| *y);
        let n = points.len() as f64;
        Part {
            x: points.iter().map(|(x, _)| x / n).sum(),
            mean: values.clone().map(|y| y / n).sum(),
            min: values.clone().fold(f64::INFINITY, f64::min),
            max: values.fold(f64::NEG_INFINITY, f64::max),
        }
    };
    points.chunks(size.max(1)).map(part).collect()
}

/// Heights near those that are wished, at least `gap` from each other, and between `top` and `bottom` if they fit there.
fn apart(wished: &[f64], gap: f64, top: f64, bottom: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wished.len()).collect();
    order.sort_by(|&a, &b| wished[a].total_cmp(&wished[b]));
    let mut found = wished.to_vec();
    let mut least = top;
    for &n in &order {
        found[n] = found[n].max(least);
        least = found[n] + gap;
    }
    let mut most = bottom;
    for &n in order.iter().rev() {
        found[n] = found[n].min(most);
        most = found[n] - gap;
    }
    found
}

impl Draw for Curves {
    fn size(&self) -> (u32, u32) {
        (WIDTH, HEIGHT)
    }

    fn title(&self) -> String {
        self.title.clone()
    }

    fn draw<DB: DrawingBackend>(&self, canvas: &Canvas<'_, DB>) -> Result<()> {
        canvas.clear()?;
        let top = canvas.heading(&self.title, &self.note)?;
        let label = Type::new(13.0, SOFT).bold();
        let name = |n: usize| label.fitted(&self.curves[n].0, 180.0);
        let widest = (0..self.curves.len()).map(|n| label.width(&name(n))).fold(0.0, f64::max);
        let (x, y) = self.axes();
        // Names stand at the ends of their curves.
        let frame = canvas.axes(top, widest + 10.0 + EDGE, &x, &y, &self.x_name)?;
        let mut ends = vec![];
        for (n, (_, points)) in self.curves.iter().enumerate() {
            let color = PALETTE[n % PALETTE.len()];
            self.draw_curve(canvas, &frame, &y, points, color)?;
            let last = points.iter().rev().find(|&&point| self.is_shown(point)).and_then(|(_, value)| y.place(*value));
            ends.push(frame.at(x.high, last.unwrap_or(y.low)).1);
        }
        let heights = apart(&ends, 18.0, frame.to.1, frame.from.1);
        for (n, height) in heights.into_iter().enumerate() {
            let type_ = Type::new(13.0, PALETTE[n % PALETTE.len()]).bold();
            canvas.text(&name(n), (frame.to.0 + 10.0, height), type_)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_apart() {
        assert_eq!(apart(&[50.0, 52.0, 10.0], 18.0, 0.0, 100.0), [50.0, 68.0, 10.0]);
        assert_eq!(apart(&[99.0, 98.0], 18.0, 0.0, 100.0), [100.0, 82.0]);
    }

    #[test]
    fn many_points_become_few_parts_that_lose_no_spike() {
        let mut points: Vec<(f64, f64)> = (0..10_000).map(|n| (f64::from(n), 1.0)).collect();
        points[1234].1 = 50.0;
        let parts = condensed(&points, 480);
        assert!(parts.len() <= 480 && parts.iter().any(|part| part.max == 50.0 && part.min == 1.0));
        assert_eq!(condensed(&points[..3], 480).len(), 3);
    }
}
