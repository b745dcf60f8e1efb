//! Two times beside each other, as a picture.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::time::Duration;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::register_font;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::AnyError;

const SIZE: (u32, u32) = (460, 420);
/// Pixels of a PNG for each unit of an SVG, along each axis.
const PIXELS: u32 = 2;

const INK: RGBColor = RGBColor(34, 49, 63);
const GRID: RGBColor = RGBColor(228, 232, 236);
const SLOW: RGBColor = RGBColor(154, 165, 177);
const FAST: RGBColor = RGBColor(217, 98, 43);

/// The times of the same work, un-accelerated and accelerated.
pub(crate) struct Chart<'a> {
    pub(crate) work: &'a str,
    pub(crate) plain: Duration,
    pub(crate) fast: Duration,
}

impl Chart<'_> {
    /// Writes the chart to a folder, as SVG and as PNG.
    pub(crate) fn save(&self, folder: &Path) -> Result<(), AnyError> {
        std::fs::create_dir_all(folder)?;
        // A machine may have no font.
        register_font("sans-serif", FontStyle::Normal, dejavu::sans::regular()).map_err(|_| "the font is broken")?;
        let svg = folder.join(format!("{}.svg", self.work));
        self.draw(&SVGBackend::new(&svg, SIZE).into_drawing_area(), 1)?;

        let size = (PIXELS * SIZE.0, PIXELS * SIZE.1);
        let mut pixels = vec![0; 3 * (size.0 * size.1) as usize];
        self.draw(&BitMapBackend::with_buffer(&mut pixels, size).into_drawing_area(), PIXELS)?;
        let file = File::create(folder.join(format!("{}.png", self.work)))?;
        let mut png = png::Encoder::new(BufWriter::new(file), size.0, size.1);
        png.set_color(png::ColorType::Rgb);
        png.write_header()?.write_image_data(&pixels)?;
        Ok(())
    }

    fn draw<DB: DrawingBackend>(&self, area: &DrawingArea<DB, Shift>, scale: u32) -> Result<(), AnyError>
    where
        DB::ErrorType: 'static,
    {
        let units = |units: u32| units * scale;
        let text = |size: u32| ("sans-serif", units(size)).into_font().color(&INK);
        let (plain, fast) = (self.plain.as_secs_f64(), self.fast.as_secs_f64());
        let title = format!("{}: {:.2} times faster", self.work, plain / fast);
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(area)
            .caption(title, text(24))
            .margin(units(20))
            .x_label_area_size(units(36))
            .y_label_area_size(units(64))
            .build_cartesian_2d(0.0..2.0, 0.0..1.1 * plain.max(fast))?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .label_style(text(14))
            .axis_style(INK)
            .x_labels(0)
            .y_labels(6)
            .y_desc("seconds")
            .draw()?;
        for (middle, name, seconds, color) in [(0.5, "un-accelerated", plain, SLOW), (1.5, "accelerated", fast, FAST)] {
            let corners = [(middle - 0.3, 0.0), (middle + 0.3, seconds)];
            let above = text(16).pos(Pos::new(HPos::Center, VPos::Bottom));
            let below = text(16).pos(Pos::new(HPos::Center, VPos::Top));
            chart.draw_series([Rectangle::new(corners, color.filled())])?;
            chart.draw_series([Text::new(format!("{seconds:.3} s"), (middle, seconds), above)])?;
            let (x, y) = chart.backend_coord(&(middle, 0.0));
            area.draw_text(name, &below, (x, y + units(8) as i32))?;
        }
        Ok(area.present()?)
    }
}
