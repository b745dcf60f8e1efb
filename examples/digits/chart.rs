//! Small bar charts, as SVG, as PNG and in the terminal.
//!
//! A chart is laid out once as a list of marks (boxes, lines, texts); the SVG and PNG writers draw that same list.

use std::fmt::Write;
use std::io;
use std::path::Path;

use tiny_skia::{Color, FillRule, Paint, PathBuilder, Pixmap, Rect, Stroke, Transform};
use ttf_parser::{Face, GlyphId, OutlineBuilder};

/// The size of a picture in units of SVG, and how many pixels of a PNG each unit takes.
const WIDTH: f32 = 460.0;
const HEIGHT: f32 = 420.0;
const PIXELS_PER_UNIT: f32 = 2.0;

/// Where the bars stand.
const LEFT: f32 = 64.0;
const RIGHT: f32 = WIDTH - 24.0;
const TOP: f32 = 108.0;
const BOTTOM: f32 = HEIGHT - 52.0;

const INK: &str = "#22313f";
const FAINT: &str = "#7b8794";
const GRID: &str = "#e4e8ec";
const BARS: [&str; 4] = ["#9aa5b1", "#d9622b", "#3b7ea1", "#5a8f5a"];

/// Bars with their values under a title.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    /// What is compared.
    pub(crate) title: String,
    /// The unit of the values.
    pub(crate) unit: String,
    /// The name and value of each bar; values are at least zero.
    pub(crate) bars: Vec<(String, f64)>,
    /// What to learn from it, such as a speed-up.
    pub(crate) note: String,
}

impl Chart {
    /// The chart as the text of an SVG file.
    pub(crate) fn svg(&self) -> String {
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
             height=\"{HEIGHT}\" font-family=\"Ubuntu, 'Segoe UI', Helvetica, Arial, sans-serif\">\n"
        );
        for mark in self.marks() {
            out.push_str(&mark.svg());
            out.push('\n');
        }
        out.push_str("</svg>\n");
        out
    }

    /// Draws the chart to a PNG file at `path`.
    pub(crate) fn png(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let pixels = |units: f32| (units * PIXELS_PER_UNIT) as u32;
        let mut canvas =
            Pixmap::new(pixels(WIDTH), pixels(HEIGHT)).ok_or_else(|| io::Error::other("the picture is empty"))?;
        let font = Font::new();
        for mark in self.marks() {
            mark.draw(&mut canvas, &font);
        }
        canvas.save_png(path).map_err(io::Error::other)
    }

    /// The chart as lines of at most `width` characters; names and values are never cut.
    pub(crate) fn terminal(&self, width: usize) -> String {
        let columns = |text: &str| text.chars().count();
        let values: Vec<String> = self.bars.iter().map(|&(_, value)| number(value)).collect();
        let names = self.bars.iter().map(|(name, _)| columns(name)).max().unwrap_or(0);
        let digits = values.iter().map(|value| columns(value)).max().unwrap_or(0);
        // Two columns of margin and one between each two of name, bar and value.
        let room = width.saturating_sub(names + digits + 4).max(8);
        let mut out = format!("{} ({})\n", self.title, self.unit);
        for ((name, value), text) in self.bars.iter().zip(&values) {
            let eighths = (value.max(0.0) / self.largest() * (8 * room) as f64).round() as usize;
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

    /// The largest value; one if nothing is above zero.
    fn largest(&self) -> f64 {
        let largest = self.bars.iter().map(|&(_, value)| value).filter(|value| value.is_finite()).fold(0.0, f64::max);
        if largest > 0.0 { largest } else { 1.0 }
    }

    /// All that is to be drawn, the hindmost first.
    fn marks(&self) -> Vec<Mark> {
        let font = Font::new();
        let text = |x, y, size: f32, anchor, fill, text: &str, room: f32| {
            let size = size * (room / font.width(text, size)).min(1.0);
            Mark::Text { x, y, size, anchor, fill, text: text.to_owned() }
        };
        let room = WIDTH - 48.0;
        let mut marks = vec![
            Mark::Box { x: 0.0, y: 0.0, width: WIDTH, height: HEIGHT, fill: "#ffffff" },
            text(24.0, 40.0, 24.0, Anchor::Start, INK, &self.title, room),
            text(24.0, 65.0, 16.0, Anchor::Start, BARS[1], &self.note, room),
            text(LEFT - 10.0, TOP - 16.0, 13.0, Anchor::End, FAINT, &self.unit, LEFT - 16.0),
        ];
        let step = tick_step(self.largest());
        let n_steps = (self.largest() / step).ceil();
        let height_of = |value: f64| (BOTTOM - TOP) * (value.max(0.0) / (n_steps * step)).clamp(0.0, 1.0) as f32;
        for tick in 0..=n_steps as usize {
            let value = tick as f64 * step;
            let y = BOTTOM - height_of(value);
            let fill = if tick == 0 { FAINT } else { GRID };
            marks.push(Mark::Line { from: (LEFT, y), to: (RIGHT, y), fill });
            marks.push(text(LEFT - 10.0, y + 4.5, 13.0, Anchor::End, FAINT, &tick_label(value, step), LEFT - 16.0));
        }
        let slot = (RIGHT - LEFT) / self.bars.len().max(1) as f32;
        let width = (0.55 * slot).min(110.0);
        for (at, (name, value)) in self.bars.iter().enumerate() {
            let middle = LEFT + slot * (at as f32 + 0.5);
            let height = height_of(*value);
            let fill = BARS[at % BARS.len()];
            marks.push(Mark::Box { x: middle - width / 2.0, y: BOTTOM - height, width, height, fill });
            // Keeps the lines of the grid from crossing the value.
            let value = number(*value);
            let backing = (font.width(&value, 17.0) + 8.0).min(slot);
            let (x, y) = (middle - backing / 2.0, BOTTOM - height - 25.0);
            marks.push(Mark::Box { x, y, width: backing, height: 22.0, fill: "#ffffff" });
            marks.push(text(middle, BOTTOM - height - 8.0, 17.0, Anchor::Middle, INK, &value, 0.95 * slot));
            marks.push(text(middle, BOTTOM + 26.0, 16.0, Anchor::Middle, INK, name, 0.92 * slot));
        }
        marks
    }
}

/// Writes a value with three significant digits.
fn number(value: f64) -> String {
    let decimals = if value.is_finite() && value != 0.0 { 2.0 - value.abs().log10().floor() } else { 0.0 };
    format!("{value:.*}", decimals.clamp(0.0, 9.0) as usize)
}

/// The distance between the lines of the grid: one, two or five times a power of ten, for three to six lines.
fn tick_step(largest: f64) -> f64 {
    let raw = largest / 5.0;
    let power = 10.0_f64.powf(raw.log10().floor());
    [1.0, 2.0, 5.0].into_iter().map(|digit| digit * power).find(|&step| step >= raw).unwrap_or(10.0 * power)
}

/// Writes a multiple of `step` with just the decimals that `step` has.
fn tick_label(value: f64, step: f64) -> String {
    format!("{value:.*}", (-(step.log10() + 1e-9).floor()).clamp(0.0, 9.0) as usize)
}

/// Which part of a text stands at its position.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Anchor {
    Start,
    Middle,
    End,
}

/// One thing to draw; colours are written `#rrggbb`.
#[derive(Clone, Debug)]
enum Mark {
    Box { x: f32, y: f32, width: f32, height: f32, fill: &'static str },
    Line { from: (f32, f32), to: (f32, f32), fill: &'static str },
    Text { x: f32, y: f32, size: f32, anchor: Anchor, fill: &'static str, text: String },
}

impl Mark {
    fn svg(&self) -> String {
        match self {
            Mark::Box { x, y, width, height, fill } => {
                format!(r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" fill="{fill}"/>"#)
            }
            Mark::Line { from, to, fill } => format!(
                r#"<line x1="{:.1}" y1="{:.1}" x2="{:.1}" y2="{:.1}" stroke="{fill}"/>"#,
                from.0, from.1, to.0, to.1
            ),
            Mark::Text { x, y, size, anchor, fill, text } => {
                let anchor = match anchor {
                    Anchor::Start => "start",
                    Anchor::Middle => "middle",
                    Anchor::End => "end",
                };
                let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
                let place = format!(r#"x="{x:.1}" y="{y:.1}" font-size="{size:.1}" text-anchor="{anchor}""#);
                format!(r#"<text {place} fill="{fill}">{text}</text>"#)
            }
        }
    }

    fn draw(&self, canvas: &mut Pixmap, font: &Font) {
        let view = Transform::from_scale(PIXELS_PER_UNIT, PIXELS_PER_UNIT);
        match self {
            Mark::Box { x, y, width, height, fill } => {
                if let Some(area) = Rect::from_xywh(*x, *y, *width, *height) {
                    canvas.fill_rect(area, &paint(fill), view, None);
                }
            }
            Mark::Line { from, to, fill } => {
                let mut path = PathBuilder::new();
                path.move_to(from.0, from.1);
                path.line_to(to.0, to.1);
                if let Some(path) = path.finish() {
                    canvas.stroke_path(&path, &paint(fill), &Stroke::default(), view, None);
                }
            }
            Mark::Text { x, y, size, anchor, fill, text } => {
                let shift = match anchor {
                    Anchor::Start => 0.0,
                    Anchor::Middle => 0.5,
                    Anchor::End => 1.0,
                };
                if let Some(path) = font.outline(text, x - shift * font.width(text, *size), *y, *size) {
                    canvas.fill_path(&path, &paint(fill), FillRule::Winding, view, None);
                    // The font is a light one; a thin rim gives it the weight of running text.
                    let rim = Stroke { width: size / 50.0, ..Stroke::default() };
                    canvas.stroke_path(&path, &paint(fill), &rim, view, None);
                }
            }
        }
    }
}

/// The paint of a colour written `#rrggbb`; black if it is written otherwise.
fn paint(fill: &str) -> Paint<'static> {
    let part = |at: usize| fill.get(at..at + 2).and_then(|hex| u8::from_str_radix(hex, 16).ok()).unwrap_or(0);
    let mut paint = Paint::default();
    paint.set_color(Color::from_rgba8(part(1), part(3), part(5), 255));
    paint
}

/// A font that comes with the program, since a machine may have none.
struct Font {
    face: Face<'static>,
}

impl Font {
    fn new() -> Font {
        let face = Face::parse(epaint_default_fonts::UBUNTU_LIGHT, 0).expect("the built-in font is well-formed");
        Font { face }
    }

    /// The glyphs of a text with their advances, for size one.
    fn glyphs(&self, text: &str) -> impl Iterator<Item = (GlyphId, f32)> {
        let per_em = f32::from(self.face.units_per_em());
        text.chars().map(move |letter| {
            let glyph = self.face.glyph_index(letter).unwrap_or_default();
            (glyph, f32::from(self.face.glyph_hor_advance(glyph).unwrap_or(0)) / per_em)
        })
    }

    fn width(&self, text: &str, size: f32) -> f32 {
        self.glyphs(text).map(|(_, advance)| advance * size).sum()
    }

    /// The outline of a text whose baseline starts at `(x, y)`.
    fn outline(&self, text: &str, x: f32, y: f32, size: f32) -> Option<tiny_skia::Path> {
        let mut pen = Pen { path: PathBuilder::new(), x, y, scale: size / f32::from(self.face.units_per_em()) };
        for (glyph, advance) in self.glyphs(text) {
            // Blanks have no outline.
            let _ = self.face.outline_glyph(glyph, &mut pen);
            pen.x += advance * size;
        }
        pen.path.finish()
    }
}

/// Carries outlines from the units of the font, where `y` points up, to those of the picture.
struct Pen {
    path: PathBuilder,
    x: f32,
    y: f32,
    scale: f32,
}

impl Pen {
    fn place(&self, x: f32, y: f32) -> (f32, f32) {
        (self.x + self.scale * x, self.y - self.scale * y)
    }
}

impl OutlineBuilder for Pen {
    fn move_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.place(x, y);
        self.path.move_to(x, y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.place(x, y);
        self.path.line_to(x, y);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        let ((x1, y1), (x, y)) = (self.place(x1, y1), self.place(x, y));
        self.path.quad_to(x1, y1, x, y);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        let ((x1, y1), (x2, y2), (x, y)) = (self.place(x1, y1), self.place(x2, y2), self.place(x, y));
        self.path.cubic_to(x1, y1, x2, y2, x, y);
    }

    fn close(&mut self) {
        self.path.close();
    }
}
