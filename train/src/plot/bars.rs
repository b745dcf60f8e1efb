//! Bars with their values, as a picture and in the terminal.

use std::fmt::Write;

use plotters::prelude::DrawingBackend;

use super::canvas::{ACCENT, AXIS, Canvas, Draw, EDGE, INK, PALETTE, SOFT, WHITE};
use super::lettering::Type;
use super::number::{three_digits, typeset};
use super::ticks::Axis;
use crate::Result;

const HEIGHT: u32 = 420;

/// Bars with their values under a title.
///
/// ```
/// use retape_train::plot::{Bars, Plot};
///
/// let bars = Bars::new("Time of an epoch", "s").bar("eager", 12.0).bar("accelerated", 3.0).note("4 times as fast");
/// assert!(bars.svg()?.contains("accelerated"));
/// let lines = bars.terminal(40);
/// assert!(lines.contains("  eager       █████████████████████ 12.0"), "{lines}");
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Bars {
    title: String,
    unit: String,
    note: String,
    bars: Vec<(String, f64)>,
}

impl Bars {
    /// No bars yet, under a title, with the unit of the values.
    pub fn new(title: &str, unit: &str) -> Bars {
        Bars { title: title.to_owned(), unit: unit.to_owned(), note: String::new(), bars: vec![] }
    }

    /// Adds a bar. One without a finite value is named, and not drawn.
    pub fn bar(mut self, name: &str, value: f64) -> Bars {
        self.bars.push((name.to_owned(), value));
        self
    }

    /// Sets what to learn from it, such as a speed-up.
    pub fn note(mut self, note: &str) -> Bars {
        note.clone_into(&mut self.note);
        self
    }

    /// The bars as lines of at most `width` characters; names and values are never cut. A negative value has no bar.
    pub fn terminal(&self, width: usize) -> String {
        let columns = |text: &str| text.chars().count();
        let values: Vec<String> = self.bars.iter().map(|&(_, value)| three_digits(value)).collect();
        let names = self.bars.iter().map(|(name, _)| columns(name)).max().unwrap_or(0);
        let digits = values.iter().map(|value| columns(value)).max().unwrap_or(0);
        // Two columns of margin and one between each two of name, bar and value.
        let room = width.saturating_sub(names + digits + 4).max(8);
        let (_, largest) = self.span();
        let largest = if largest > 0.0 { largest } else { 1.0 };
        let mut out = format!("{} ({})\n", self.title, self.unit);
        for ((name, value), text) in self.bars.iter().zip(&values) {
            let eighths = (value.max(0.0) / largest * (8 * room) as f64).round() as usize;
            let eighths = eighths.min(8 * room);
            let mut bar = "█".repeat(eighths / 8);
            if let Some(rest) = ["▏", "▎", "▍", "▌", "▋", "▊", "▉"].get((eighths % 8).wrapping_sub(1)) {
                bar.push_str(rest);
            }
            let _ = writeln!(out, "  {name:<names$} {bar} {text}");
        }
        if !self.note.is_empty() {
            let _ = writeln!(out, "  {}", self.note);
        }
        out
    }

    /// The least and the largest finite value, zero included.
    fn span(&self) -> (f64, f64) {
        let values = self.bars.iter().map(|&(_, value)| value).filter(|value| value.is_finite());
        values.fold((0.0, 0.0), |(low, high), value| (f64::min(low, value), f64::max(high, value)))
    }
}

impl Draw for Bars {
    fn size(&self) -> (u32, u32) {
        // Bars of two or three have the same width as those of four.
        ((180 + 90 * self.bars.len() as u32).clamp(480, 1200), HEIGHT)
    }

    fn title(&self) -> String {
        self.title.clone()
    }

    fn draw<DB: DrawingBackend>(&self, canvas: &Canvas<'_, DB>) -> Result<()> {
        canvas.clear()?;
        let width = f64::from(self.size().0);
        let large = Type::new(18.0, INK).bold();
        canvas.text(&large.fitted(&self.title, width - 2.0 * EDGE), (EDGE, 30.0), large)?;
        let note = Type::new(14.0, ACCENT).bold();
        canvas.text(&note.fitted(&self.note, width - 2.0 * EDGE), (EDGE, 55.0), note)?;
        canvas.text(&self.unit, (EDGE, 84.0), Type::new(12.0, SOFT))?;
        let (low, high) = match self.span() {
            (0.0, 0.0) => (0.0, 1.0),
            // The values need a line of room beyond the bars.
            (low, high) => (1.12 * low, 1.12 * high),
        };
        let n_bars = self.bars.len().max(1) as f64;
        let frame = canvas.axes(102.0, EDGE, &Axis::bare(0.0, n_bars), &Axis::rounded(low, high, 5), "")?;
        let slot = (frame.to.0 - frame.from.0) / n_bars;
        let (thick, value_type) = ((0.56 * slot).min(84.0), Type::new(14.0, INK).bold().middle());
        let name_type = Type::new(13.0, INK).middle();
        for (n, (name, value)) in self.bars.iter().enumerate() {
            let shown = if value.is_finite() { *value } else { 0.0 };
            let (middle, end) = frame.at(n as f64 + 0.5, shown);
            let (_, zero) = frame.at(0.0, 0.0);
            canvas.rectangle((middle - thick / 2.0, end), (middle + thick / 2.0, zero), &PALETTE[n % PALETTE.len()])?;
            let text = typeset(&three_digits(*value));
            let height = if shown < 0.0 { end + 13.0 } else { end - 13.0 };
            // Keeps the lines of the grid from crossing the value.
            let half = (value_type.width(&text) / 2.0 + 4.0).min(slot / 2.0);
            canvas.rectangle((middle - half, height - 9.0), (middle + half, height + 9.0), &WHITE)?;
            canvas.text(&value_type.fitted(&text, slot), (middle, height), value_type)?;
            let name = name_type.fitted(name, slot - 6.0);
            canvas.text(&name, (middle, frame.from.1 + 17.0), name_type)?;
        }
        let (_, zero) = frame.at(0.0, 0.0);
        canvas.line(&[(frame.from.0, zero), (frame.to.0, zero)], &AXIS, 1.0)
    }
}
