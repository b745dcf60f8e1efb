//! The canvas of pictures, in units that do not depend on the format.

use std::error::Error as StdError;
use std::sync::OnceLock;

use plotters::coord::Shift;
use plotters::element::{Circle, PathElement, Polygon, Rectangle};
use plotters::prelude::{DrawingArea, DrawingAreaErrorKind, DrawingBackend};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{
    Color, FontDesc, FontFamily, FontStyle, FontTransform, RGBColor, ShapeStyle, TextStyle, register_font,
};

use super::ticks::Axis;
use crate::{Error, Result};

/// The fonts of all texts: the first one draws PNGs, and browsers take the first that they have.
const FAMILY: &str = "DejaVu Sans, Verdana, Helvetica, Arial, sans-serif";

pub(super) const INK: RGBColor = RGBColor(0x1f, 0x29, 0x33);
pub(super) const SOFT: RGBColor = RGBColor(0x5b, 0x67, 0x74);
pub(super) const GRID: RGBColor = RGBColor(0xe3, 0xe8, 0xed);
pub(super) const AXIS: RGBColor = RGBColor(0xa8, 0xb2, 0xbd);
pub(super) const ACCENT: RGBColor = RGBColor(0xc2, 0x4a, 0x00);
pub(super) const WHITE: RGBColor = RGBColor(0xff, 0xff, 0xff);

/// Blue, vermilion, green, purple, brown and grey: each at least 3 to 1 against white.
pub(super) const PALETTE: [RGBColor; 6] = [
    RGBColor(0x00, 0x6b, 0xa6),
    RGBColor(0xcf, 0x55, 0x00),
    RGBColor(0x00, 0x8a, 0x66),
    RGBColor(0xb0, 0x56, 0x8b),
    RGBColor(0x8a, 0x63, 0x1b),
    RGBColor(0x6c, 0x77, 0x84),
];

/// Something that can be drawn; [`Plot`](super::Plot) is for everybody else.
pub trait Draw {
    /// The width and height in units.
    fn size(&self) -> (u32, u32);

    /// The title, for those who do not see the picture.
    fn title(&self) -> String;

    /// Draws everything on a canvas of that size.
    ///
    /// # Errors
    ///
    /// Fails if the library that draws does.
    fn draw<DB: DrawingBackend>(&self, canvas: &Canvas<'_, DB>) -> Result<()>;
}

/// The error of the library that draws, as one of this crate.
pub(super) fn drawn<E: StdError + Send + Sync>(error: DrawingAreaErrorKind<E>) -> Error {
    Error::Drawing(error.to_string())
}

/// Makes the fonts known to the library that draws, once.
pub(super) fn register_fonts() -> Result<()> {
    static DONE: OnceLock<bool> = OnceLock::new();
    let register = |style, bytes| register_font(FAMILY, style, bytes).is_ok();
    let is_done = *DONE.get_or_init(|| {
        register(FontStyle::Normal, dejavu::sans::regular()) && register(FontStyle::Bold, dejavu::sans::bold())
    });
    if is_done { Ok(()) } else { Err(Error::Drawing("the font of the pictures cannot be read".to_owned())) }
}

/// A text's size in units, weight, colour, and which part of it is at its position.
#[derive(Clone, Copy, Debug)]
pub(super) struct Type {
    size: f64,
    color: RGBColor,
    is_bold: bool,
    /// From 0, the left end, to 2, the right end.
    at: u8,
    is_upward: bool,
}

impl Type {
    pub(super) const fn new(size: f64, color: RGBColor) -> Type {
        Type { size, color, is_bold: false, at: 0, is_upward: false }
    }

    pub(super) const fn bold(mut self) -> Type {
        self.is_bold = true;
        self
    }

    /// With its middle at the position.
    pub(super) const fn middle(mut self) -> Type {
        self.at = 1;
        self
    }

    /// With its right end at the position.
    pub(super) const fn end(mut self) -> Type {
        self.at = 2;
        self
    }

    /// Read from below.
    pub(super) const fn upward(mut self) -> Type {
        self.is_upward = true;
        self
    }

    fn font(&self, unit: f64) -> FontDesc<'static> {
        let style = if self.is_bold { FontStyle::Bold } else { FontStyle::Normal };
        // The library's size is 1.24 of the em.
        let font = FontDesc::new(FontFamily::Name(FAMILY), self.size * 1.24 * unit, style);
        if self.is_upward { font.transform(FontTransform::Rotate270) } else { font }
    }

    fn style(&self, unit: f64) -> TextStyle<'static> {
        let horizontal = [HPos::Left, HPos::Center, HPos::Right][usize::from(self.at)];
        let pos = Pos::new(horizontal, VPos::Center);
        TextStyle { font: self.font(unit), color: self.color.to_backend_color(), pos }
    }

    /// How wide a text is, in units.
    pub(super) fn width(&self, text: &str) -> f64 {
        // Measured large, since the library counts in whole pixels.
        const LARGE: f64 = 16.0;
        let flat = Type { is_upward: false, ..*self };
        flat.font(LARGE).box_size(text).map_or(0.0, |(width, _)| f64::from(width) / LARGE)
    }

    /// The text, or its beginning and an ellipsis if it is wider than `room`.
    pub(super) fn fitted(&self, text: &str, room: f64) -> String {
        if self.width(text) <= room {
            return text.to_owned();
        }
        let ends = text.char_indices().map(|(at, _)| at).rev();
        let shortened = ends.map(|end| format!("{}…", text[..end].trim_end()));
        shortened.into_iter().find(|text| self.width(text) <= room).unwrap_or_default()
    }
}

/// An area to draw on; positions are from its left upper corner, in units.
pub struct Canvas<'a, DB: DrawingBackend> {
    area: &'a DrawingArea<DB, Shift>,
    /// Pixels of the area per unit.
    unit: f64,
    /// How much lower than the library puts them texts are, by their size.
    drop: f64,
}

/// A point, in units.
type Point = (f64, f64);

impl<'a, DB: DrawingBackend> Canvas<'a, DB> {
    /// A canvas for the text of an SVG.
    pub(super) fn vector(area: &'a DrawingArea<DB, Shift>) -> Canvas<'a, DB> {
        // The library lowers texts by half the height of an x; half a capital letter is a little more.
        Canvas { area, unit: 1.0, drop: 0.09 }
    }

    /// A canvas for pixels, `unit` of them per unit.
    pub(super) fn raster(area: &'a DrawingArea<DB, Shift>, unit: f64) -> Canvas<'a, DB> {
        // The library puts the base line 0.12 of the size below the position, and half a capital letter has 0.38.
        Canvas { area, unit, drop: 0.26 }
    }

    fn pixels(&self, units: f64) -> i32 {
        (units * self.unit).round() as i32
    }

    fn point(&self, (x, y): Point) -> (i32, i32) {
        (self.pixels(x), self.pixels(y))
    }

    /// A line's colour and width.
    fn stroke(&self, color: &impl Color, width: f64) -> ShapeStyle {
        color.stroke_width(self.pixels(width).max(1) as u32)
    }

    pub(super) fn clear(&self) -> Result<()> {
        self.area.fill(&WHITE).map_err(drawn)
    }

    /// Draws a text whose capital letters have their middle at the height of `at`.
    pub(super) fn text(&self, text: &str, (x, y): Point, type_: Type) -> Result<()> {
        let drop = self.drop * type_.size;
        let at = if type_.is_upward { (x + drop, y) } else { (x, y + drop) };
        self.area.draw_text(text, &type_.style(self.unit), self.point(at)).map_err(drawn)
    }

    pub(super) fn rectangle(&self, from: Point, to: Point, color: &impl Color) -> Result<()> {
        self.area.draw(&Rectangle::new([self.point(from), self.point(to)], color.filled())).map_err(drawn)
    }

    pub(super) fn line(&self, points: &[Point], color: &impl Color, width: f64) -> Result<()> {
        let points: Vec<(i32, i32)> = points.iter().map(|point| self.point(*point)).collect();
        self.area.draw(&PathElement::new(points, self.stroke(color, width))).map_err(drawn)
    }

    pub(super) fn polygon(&self, points: &[Point], color: &impl Color) -> Result<()> {
        let points: Vec<(i32, i32)> = points.iter().map(|point| self.point(*point)).collect();
        self.area.draw(&Polygon::new(points, color.filled())).map_err(drawn)
    }

    pub(super) fn dot(&self, at: Point, color: &impl Color, radius: f64) -> Result<()> {
        self.area.draw(&Circle::new(self.point(at), self.pixels(radius), color.filled())).map_err(drawn)
    }

    /// Draws a title with a line of text below it, and gives the height that they take.
    pub(super) fn heading(&self, title: &str, note: &str) -> Result<f64> {
        let room = f64::from(self.area.dim_in_pixel().0) / self.unit - 2.0 * EDGE;
        let (large, small) = (Type::new(18.0, INK).bold(), Type::new(13.0, SOFT));
        self.text(&large.fitted(title, room), (EDGE, 30.0), large)?;
        if note.is_empty() {
            return Ok(60.0);
        }
        self.text(&small.fitted(note, room), (EDGE, 54.0), small)?;
        Ok(80.0)
    }

    /// Draws two axes with a horizontal grid, `top` from the upper edge and at least `right` from the right one, with
    /// the name of the horizontal axis at its end; gives where the values of `x` and `y` are.
    pub(super) fn axes(&self, top: f64, right: f64, x: &Axis, y: &Axis, name: &str) -> Result<Frame> {
        let label = Type::new(12.0, SOFT);
        let name = label.fitted(name, 160.0);
        // The last mark may stand at the very end.
        let half = x.marks.last().map_or(0.0, |(_, text)| label.width(text) / 2.0);
        let beyond = (half + 10.0).max(12.0);
        let right = if name.is_empty() { right } else { right.max(beyond + label.width(&name) + EDGE) };
        let widest = y.marks.iter().map(|(_, text)| label.width(text)).fold(0.0, f64::max);
        let (width, height) = self.area.dim_in_pixel();
        let size = (f64::from(width) / self.unit, f64::from(height) / self.unit);
        let (from, to) = ((EDGE + widest + 12.0, size.1 - 44.0), (size.0 - right, top));
        let frame = Frame { x: (x.low, x.high), y: (y.low, y.high), from, to };
        for (at, text) in &y.marks {
            let (_, height) = frame.at(x.low, *at);
            self.line(&[(from.0, height), (to.0, height)], &GRID, 1.0)?;
            self.text(text, (from.0 - 8.0, height), label.end())?;
        }
        self.line(&[from, (to.0, from.1)], &AXIS, 1.0)?;
        for (at, text) in &x.marks {
            let (middle, _) = frame.at(*at, y.low);
            self.line(&[(middle, from.1), (middle, from.1 + 5.0)], &AXIS, 1.0)?;
            self.text(text, (middle, from.1 + 17.0), label.middle())?;
        }
        self.text(&name, (to.0 + beyond, from.1 + 17.0), label)?;
        Ok(frame)
    }
}

/// The distance of everything from the edges.
pub(super) const EDGE: f64 = 22.0;

/// Where values are on a canvas with axes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    x: (f64, f64),
    y: (f64, f64),
    /// The left lower and the right upper corner.
    pub(super) from: Point,
    pub(super) to: Point,
}

impl Frame {
    /// The position of a point of the axes.
    pub(super) fn at(&self, x: f64, y: f64) -> Point {
        let along =
            |value: f64, (low, high): (f64, f64), from: f64, to: f64| from + (value - low) / (high - low) * (to - from);
        (along(x, self.x, self.from.0, self.to.0), along(y, self.y, self.from.1, self.to.1))
    }
}
