//! The canvas of pictures, in units that do not depend on the format.

use std::error::Error as StdError;

use plotters::coord::Shift;
use plotters::element::{Circle, PathElement, Polygon, Rectangle};
use plotters::prelude::{DrawingArea, DrawingAreaErrorKind, DrawingBackend};
use plotters::style::{Color, RGBColor, ShapeStyle};

use super::lettering::Type;
use super::ticks::Axis;
use crate::{Error, Result};

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

/// An area to draw on; positions are from its left upper corner, in units.
pub struct Canvas<'a, DB: DrawingBackend> {
    area: &'a DrawingArea<DB, Shift>,
    /// Pixels of the area per unit.
    unit: f64,
    /// Whether texts are drawn pixel by pixel, or left to those who read the picture.
    is_raster: bool,
}

/// A point, in units.
type Point = (f64, f64);

impl<'a, DB: DrawingBackend> Canvas<'a, DB> {
    /// A canvas for the text of an SVG.
    pub(super) fn vector(area: &'a DrawingArea<DB, Shift>) -> Canvas<'a, DB> {
        Canvas { area, unit: 1.0, is_raster: false }
    }

    /// A canvas for pixels, `unit` of them per unit.
    pub(super) fn raster(area: &'a DrawingArea<DB, Shift>, unit: f64) -> Canvas<'a, DB> {
        Canvas { area, unit, is_raster: true }
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
        if self.is_raster {
            let at = (x * self.unit, y * self.unit);
            return type_.pixels(self.unit, text, at, |at, covered| {
                self.area.draw_pixel(at, &type_.color().mix(f64::from(covered))).map_err(drawn)
            });
        }
        // The library lowers texts by half the height of an x; half a capital letter is a little more.
        let drop = 0.09 * type_.size();
        let at = if type_.is_upward() { (x + drop, y) } else { (x, y + drop) };
        self.area.draw_text(text, &type_.style(), self.point(at)).map_err(drawn)
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
