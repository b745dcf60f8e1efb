//! A confusion matrix as coloured squares.

use plotters::prelude::{DrawingBackend, RGBColor};

use super::canvas::{Canvas, Draw, EDGE, GRID, INK, SOFT, WHITE};
use super::lettering::Type;
use super::number::grouped;
use crate::metrics::Confusion;
use crate::{Error, Result};

/// The colours of no and of all examples of a class, and one between: steps of one hue that also differ in lightness.
const NONE: RGBColor = RGBColor(0xf4, 0xf8, 0xfb);
const HALF: RGBColor = RGBColor(0x4d, 0x97, 0xc4);
const ALL: RGBColor = RGBColor(0x06, 0x33, 0x58);

/// Up to how many classes every square has its count.
const MAX_COUNTED: usize = 30;

/// The size of the smallest counts.
const MIN_COUNT: f64 = 6.0;

/// A confusion matrix: a row for each true class, a column for each predicted one.
///
/// The colour of a square says what share of the class of its row it is, and the number how many examples.
///
/// ```
/// use retape::Tensor;
/// use retape_train::metrics::Confusion;
/// use retape_train::plot::{ConfusionMatrix, Plot};
///
/// let mut confusion = Confusion::new(2)?;
/// confusion.add_predictions(&Tensor::from([0_i64, 1, 1]), &Tensor::from([0_i64, 1, 0]))?;
/// let matrix = ConfusionMatrix::new("Pets", &confusion).names(["cat", "dog"])?;
/// assert!(matrix.svg()?.contains("dog"));
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ConfusionMatrix {
    title: String,
    confusion: Confusion,
    names: Vec<String>,
}

impl ConfusionMatrix {
    /// The matrix with the numbers of the classes as names.
    pub fn new(title: &str, confusion: &Confusion) -> ConfusionMatrix {
        let names = (0..confusion.n_classes()).map(|class| class.to_string()).collect();
        ConfusionMatrix { title: title.to_owned(), confusion: confusion.clone(), names }
    }

    /// Sets the names of all classes, in order.
    ///
    /// # Errors
    ///
    /// Fails if there are more or fewer than classes.
    #[track_caller]
    pub fn names<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Result<ConfusionMatrix> {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        if names.len() != self.names.len() {
            let (given, needed) = (names.len(), self.names.len());
            return Err(Error::argument(format!("confusion matrix: {given} names for {needed} classes")));
        }
        self.names = names;
        Ok(self)
    }

    /// The side of a square.
    fn side(&self) -> f64 {
        (560.0 / self.names.len() as f64).clamp(3.0, 56.0)
    }

    /// The room for the names at the left, and below if they stand upright there.
    fn margins(&self) -> (f64, f64) {
        let type_ = self.name_type();
        let widest = self.names.iter().map(|name| type_.width(name)).fold(0.0, f64::max).min(150.0);
        let below = if self.is_upright(widest) { widest } else { type_size(self.side()) };
        (widest + 46.0, below + 46.0)
    }

    fn is_upright(&self, widest: f64) -> bool {
        widest > 0.92 * self.side() * self.every() as f64
    }

    /// One name in so many is written: all if there is room.
    fn every(&self) -> usize {
        (11.0 / self.side()).ceil() as usize
    }

    /// The size of all counts, in which the longest one has room; none if that is too small to be read.
    fn count_size(&self) -> Option<f64> {
        let usual = (0.3 * self.side()).clamp(MIN_COUNT, 14.0);
        let counts = self.confusion.value().into_iter().flatten().map(|count| grouped(&count.to_string()));
        let widest = counts.map(|text| Type::new(usual, INK).width(&text)).fold(0.0, f64::max);
        let size = usual.min(usual * (self.side() - 4.0) / widest);
        (self.names.len() <= MAX_COUNTED && size >= MIN_COUNT).then_some(size)
    }

    fn name_type(&self) -> Type {
        Type::new(type_size(self.side()), INK)
    }

    fn note(&self) -> String {
        let count = |n: u64| grouped(&n.to_string());
        if self.confusion.n() == 0 {
            return "no examples".to_owned();
        }
        let accuracy = 100.0 * self.confusion.accuracy();
        let mut note = format!("{accuracy:.1} % of {} are right", count(self.confusion.n()));
        let unpredicted: u64 = self.confusion.unpredicted().iter().sum();
        if unpredicted > 0 {
            note += &format!(", {} without a prediction", count(unpredicted));
        }
        note
    }

    fn draw_names<DB: DrawingBackend>(&self, canvas: &Canvas<'_, DB>, left: f64, top: f64) -> Result<()> {
        let (side, type_) = (self.side(), self.name_type());
        let bottom = top + side * self.names.len() as f64;
        let widest = self.margins().0 - 46.0;
        for (class, name) in self.names.iter().enumerate().step_by(self.every()) {
            let middle = (class as f64 + 0.5) * side;
            let name = type_.fitted(name, widest + 1.0);
            canvas.text(&name, (left - 8.0, top + middle), type_.end())?;
            if self.is_upright(widest) {
                // Upward texts end at their position.
                canvas.text(&name, (left + middle, bottom + 8.0), type_.end().upward())?;
            } else {
                canvas.text(&name, (left + middle, bottom + 14.0), type_.middle())?;
            }
        }
        let axis = Type::new(13.0, SOFT).middle();
        let half = side * self.names.len() as f64 / 2.0;
        canvas.text("true class", (EDGE - 2.0, top + half), axis.upward())?;
        canvas.text("predicted class", (left + half, bottom + self.margins().1 - 20.0), axis)
    }

    /// Squares of some shares, with what they stand for.
    fn draw_scale<DB: DrawingBackend>(canvas: &Canvas<'_, DB>, left: f64, top: f64, height: f64) -> Result<()> {
        const STEPS: usize = 64;
        let height = height.min(260.0);
        for step in 0..STEPS {
            let share = 1.0 - (step as f64 + 0.5) / STEPS as f64;
            let from = top + height * step as f64 / STEPS as f64;
            canvas.rectangle((left, from), (left + 12.0, from + height / STEPS as f64 + 0.4), &color(share))?;
        }
        let label = Type::new(11.0, SOFT);
        for (share, text) in [(0.0, "0 %"), (0.5, "50 %"), (1.0, "100 %")] {
            let at = top + height * (1.0 - share);
            canvas.line(&[(left + 12.0, at), (left + 16.0, at)], &SOFT, 1.0)?;
            canvas.text(text, (left + 20.0, at), label)?;
        }
        canvas.text("of the row", (left, top + height + 18.0), label)
    }
}

fn type_size(side: f64) -> f64 {
    (0.42 * side).clamp(9.0, 13.0)
}

/// The colour of a share in `[0, 1]`.
fn color(share: f64) -> RGBColor {
    let (from, to, part) = if share < 0.5 { (NONE, HALF, 2.0 * share) } else { (HALF, ALL, 2.0 * share - 1.0) };
    let mix = |from: u8, to: u8| (f64::from(from) + part * (f64::from(to) - f64::from(from))).round() as u8;
    RGBColor(mix(from.0, to.0), mix(from.1, to.1), mix(from.2, to.2))
}

impl Draw for ConfusionMatrix {
    fn size(&self) -> (u32, u32) {
        let (left, below) = self.margins();
        let squares = self.side() * self.names.len() as f64;
        let width = (EDGE + left + squares + 100.0).max(460.0);
        (width.ceil() as u32, (80.0 + squares.max(120.0) + below).ceil() as u32)
    }

    fn title(&self) -> String {
        self.title.clone()
    }

    fn draw<DB: DrawingBackend>(&self, canvas: &Canvas<'_, DB>) -> Result<()> {
        canvas.clear()?;
        let top = canvas.heading(&self.title, &self.note())?;
        let (side, left) = (self.side(), EDGE + self.margins().0 - 22.0);
        let gap = if side > 8.0 { 1.0 } else { 0.0 };
        let (squares, size) = (side * self.names.len() as f64, self.count_size());
        canvas.rectangle((left - gap, top - gap), (left + squares, top + squares), &GRID)?;
        for (class, row) in self.confusion.value().into_iter().enumerate() {
            let n = row.iter().sum::<u64>() + self.confusion.unpredicted()[class];
            for (predicted, count) in row.into_iter().enumerate() {
                let (x, y) = (left + predicted as f64 * side, top + class as f64 * side);
                let share = if n > 0 { count as f64 / n as f64 } else { 0.0 };
                canvas.rectangle((x, y), (x + side - gap, y + side - gap), &color(share))?;
                if let Some(size) = size.filter(|_| count > 0) {
                    let type_ = Type::new(size, if share > 0.45 { WHITE } else { INK }).middle();
                    canvas.text(&grouped(&count.to_string()), (x + side / 2.0, y + side / 2.0), type_)?;
                }
            }
        }
        self.draw_names(canvas, left, top)?;
        ConfusionMatrix::draw_scale(canvas, left + squares + 26.0, top, squares.max(100.0))
    }
}
