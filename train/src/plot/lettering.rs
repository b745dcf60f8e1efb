//! Texts of pictures: sizes, widths, and glyphs as pixels.
//!
//! Glyphs are placed here, by advances, bearings and kerning, since the library that draws leaves bearings out.

use std::sync::LazyLock;

use ab_glyph::{Font, FontRef, GlyphId, PxScale, PxScaleFont, ScaleFont, point};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontDesc, FontFamily, FontStyle, FontTransform, RGBColor, TextStyle};

use crate::Result;

/// The fonts of an SVG, of which browsers take the first that they have.
const FAMILY: &str = "DejaVu Sans, Verdana, Helvetica, Arial, sans-serif";

/// The fonts of a PNG: DejaVu Sans, regular and bold.
static FONTS: LazyLock<[FontRef<'static>; 2]> = LazyLock::new(|| {
    let font = |bytes| FontRef::try_from_slice(bytes).expect("the fonts of the crate `dejavu` are whole");
    [dejavu::sans::regular(), dejavu::sans::bold()].map(font)
});

/// The height of a capital letter of these fonts, in ems.
const CAPITAL: f64 = 0.729;

/// A text's size in units (its em), weight, colour, and which part of it is at its position.
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

    pub(super) fn size(&self) -> f64 {
        self.size
    }

    pub(super) fn color(&self) -> RGBColor {
        self.color
    }

    pub(super) fn is_upward(&self) -> bool {
        self.is_upward
    }

    /// The style for the library that draws, in units.
    pub(super) fn style(&self) -> TextStyle<'static> {
        let weight = if self.is_bold { FontStyle::Bold } else { FontStyle::Normal };
        // The library's size is 1.24 of the em.
        let font = FontDesc::new(FontFamily::Name(FAMILY), self.size * 1.24, weight);
        let font = if self.is_upward { font.transform(FontTransform::Rotate270) } else { font };
        let horizontal = [HPos::Left, HPos::Center, HPos::Right][usize::from(self.at)];
        TextStyle { font, color: self.color.to_backend_color(), pos: Pos::new(horizontal, VPos::Center) }
    }

    /// The font, `unit` pixels to a unit.
    fn font(&self, unit: f64) -> PxScaleFont<&'static FontRef<'static>> {
        let font = &FONTS[usize::from(self.is_bold)];
        // Scales of the reader of fonts are not those of the em, but of the height of a line.
        let line = font.units_per_em().map_or(1.0, |em| font.height_unscaled() / em);
        font.as_scaled(PxScale::from((self.size * unit) as f32 * line))
    }

    /// The glyphs of a text and where each stands along the line, in pixels; and where the line ends.
    fn line(&self, unit: f64, text: &str) -> (Vec<(GlyphId, f32)>, f32) {
        let font = self.font(unit);
        let (mut glyphs, mut x): (Vec<(GlyphId, f32)>, f32) = (vec![], 0.0);
        for c in text.chars() {
            let glyph = font.glyph_id(c);
            x += glyphs.last().map_or(0.0, |(last, _)| font.kern(*last, glyph));
            glyphs.push((glyph, x));
            x += font.h_advance(glyph);
        }
        (glyphs, x)
    }

    /// How wide a text is, in units.
    pub(super) fn width(&self, text: &str) -> f64 {
        f64::from(self.line(1.0, text).1)
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

    /// Gives each pixel that a text at `at`, in pixels, covers, and how much of it; `unit` pixels are a unit.
    ///
    /// # Errors
    ///
    /// The first of `draw`.
    pub(super) fn pixels(
        &self,
        unit: f64,
        text: &str,
        at: (f64, f64),
        mut draw: impl FnMut((i32, i32), f32) -> Result<()>,
    ) -> Result<()> {
        let (font, (glyphs, end)) = (self.font(unit), self.line(unit, text));
        let start = -0.5 * f32::from(self.at) * end;
        let base = (0.5 * CAPITAL * self.size * unit) as f32;
        // An upward text is drawn about the origin, and then turned by whole pixels.
        let (origin, turned) = if self.is_upward {
            ((0.0, 0.0), Some((at.0.round() as i32, at.1.round() as i32)))
        } else {
            ((at.0 as f32, at.1 as f32), None)
        };
        let mut outcome = Ok(());
        for (glyph, x) in glyphs {
            let place = point(origin.0 + start + x, origin.1 + base);
            let Some(outline) = font.outline_glyph(glyph.with_scale_and_position(font.scale(), place)) else {
                continue;
            };
            let corner = outline.px_bounds().min;
            outline.draw(|column, row, covered| {
                let (x, y) = (corner.x as i32 + column as i32, corner.y as i32 + row as i32);
                let pixel = turned.map_or((x, y), |(to_x, to_y)| (to_x + y, to_y - x - 1));
                if outcome.is_ok() && covered > 0.0 {
                    outcome = draw(pixel, covered.min(1.0));
                }
            });
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The columns and rows that a text covers.
    fn bounds(type_: Type, text: &str, at: (f64, f64)) -> [i32; 4] {
        let mut bounds = [i32::MAX, i32::MIN, i32::MAX, i32::MIN];
        let add = |(x, y): (i32, i32), covered: f32| {
            if covered > 0.5 {
                bounds = [bounds[0].min(x), bounds[1].max(x), bounds[2].min(y), bounds[3].max(y)];
            }
            Ok(())
        };
        type_.pixels(10.0, text, at, add).unwrap();
        bounds
    }

    #[test]
    fn texts_stand_where_they_are_put() {
        let plain = Type::new(20.0, RGBColor(0, 0, 0));
        // A capital letter of an em of 200 pixels is 146 high, and has its middle at the position.
        let [left, right, top, bottom] = bounds(plain.middle(), "H", (1000.0, 500.0));
        assert!((left + right + 1 - 2000).abs() <= 2 && (top + bottom + 1 - 1000).abs() <= 2, "{left} {right} {top}");
        assert!((bottom + 1 - top - 146).abs() <= 2, "{top} {bottom}");
        // Turned by a quarter, counter-clockwise, columns become rows.
        let upward = bounds(plain.middle().upward(), "H", (500.0, 1000.0));
        for (turned, straight) in upward.into_iter().zip([top, bottom, left, right]) {
            assert!((turned - straight).abs() <= 2, "{upward:?}");
        }
        let [left, ..] = bounds(plain, "H", (1000.0, 500.0));
        let [_, right, ..] = bounds(plain.end(), "H", (1000.0, 500.0));
        assert!((1000..1040).contains(&left) && (960..1000).contains(&right), "{left} {right}");
    }

    #[test]
    fn letters_keep_the_room_that_their_font_gives_them() {
        let plain = Type::new(20.0, RGBColor(0, 0, 0));
        // The stroke of an i stands in the middle of its advance.
        let advance = 10.0 * plain.width("i");
        let [left, right, ..] = bounds(plain, "i", (0.0, 500.0));
        assert!((f64::from(left + right + 1) - advance).abs() <= 2.0, "{left} {right} of {advance}");
        assert!(plain.width("AV") < plain.width("A") + plain.width("V"), "kerning");
        assert_eq!(plain.fitted("a long text", 1000.0), "a long text");
        let fitted = plain.fitted("a long text", 60.0);
        assert!(fitted.ends_with('…') && plain.width(&fitted) <= 60.0, "{fitted}");
        assert_eq!(plain.fitted("a long text", 1.0), "");
    }
}
