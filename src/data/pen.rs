//! Curves through points, and their picture on a small grid of pixels.
//!
//! Additions, multiplications, divisions and square roots only, so the same picture on every platform.

use super::strokes::Knot;

/// Straight pieces per stretch between two knots; on 28 pixels more are not visible.
const PIECES: usize = 8;

/// A point of the plane.
pub(super) type Point2 = (f64, f64);

/// Returns the points of a smooth curve through `knots` that breaks at corners only.
///
/// A cubic Hermite spline with chordal (not uniform) tangents, which do not overshoot where knots lie unevenly.
/// Between two corners the curve is the straight line.
pub(super) fn spline(knots: &[Knot]) -> Vec<Point2> {
    let mut points = Vec::with_capacity(knots.len() * PIECES + 1);
    points.extend(knots.first().map(|knot| (knot.x, knot.y)));
    for at in 1..knots.len() {
        let (from, to) = (knots[at - 1], knots[at]);
        let chord = (to.x - from.x, to.y - from.y);
        let leaving = tangent(knots, at - 1, chord);
        let arriving = tangent(knots, at, chord);
        // An end without a tangent of its own takes that of zero curvature.
        let natural = |other: Point2| (1.5 * chord.0 - 0.5 * other.0, 1.5 * chord.1 - 0.5 * other.1);
        let (leaving, arriving) = match (leaving, arriving) {
            (Some(leaving), Some(arriving)) => (leaving, arriving),
            (Some(leaving), None) => (leaving, natural(leaving)),
            (None, Some(arriving)) => (natural(arriving), arriving),
            (None, None) => (chord, chord),
        };
        for piece in 1..=PIECES {
            let t = piece as f64 / PIECES as f64;
            let (out, into, end) = (t * (1.0 - t) * (1.0 - t), t * t * (t - 1.0), t * t * (3.0 - 2.0 * t));
            points.push((
                from.x + end * chord.0 + out * leaving.0 + into * arriving.0,
                from.y + end * chord.1 + out * leaving.1 + into * arriving.1,
            ));
        }
    }
    points
}

/// The derivative of the curve at knot `at`, for a stretch as long as `chord`; none at corners and ends.
fn tangent(knots: &[Knot], at: usize, chord: Point2) -> Option<Point2> {
    if at == 0 || at + 1 == knots.len() || knots[at].corner {
        return None;
    }
    let (before, here, after) = (knots[at - 1], knots[at], knots[at + 1]);
    let (arriving, leaving) = ((here.x - before.x, here.y - before.y), (after.x - here.x, after.y - here.y));
    // The small term keeps coinciding knots from dividing by zero.
    let (a, b) = (length(arriving) + 1e-9, length(leaving) + 1e-9);
    let scale = length(chord) / (a + b);
    Some((scale * (arriving.0 / a * b + leaving.0 / b * a), scale * (arriving.1 / a * b + leaving.1 / b * a)))
}

fn length(v: Point2) -> f64 {
    (v.0 * v.0 + v.1 * v.1).sqrt()
}

/// A square picture on which thick lines are drawn.
pub(super) struct Canvas {
    side: usize,
    /// How far each pixel's centre lies inside the ink, in pixels; negative outside.
    depth: Vec<f32>,
}

impl Canvas {
    /// An empty picture of `side` times `side` pixels.
    pub(super) fn new(side: usize) -> Canvas {
        Canvas { side, depth: vec![f32::NEG_INFINITY; side * side] }
    }

    /// Wipes the picture.
    pub(super) fn clear(&mut self) {
        self.depth.fill(f32::NEG_INFINITY);
    }

    /// Draws lines through `points`, in pixels, as a round pen does whose radius goes from `radii.0` to `radii.1`.
    pub(super) fn draw(&mut self, points: &[Point2], radii: (f64, f64)) {
        let n_lines = points.len().saturating_sub(1).max(1) as f64;
        for (at, line) in points.windows(2).enumerate() {
            let radius = radii.0 + (radii.1 - radii.0) * (at as f64 / n_lines);
            self.draw_line(line[0], line[1], radius);
        }
    }

    fn draw_line(&mut self, from: Point2, to: Point2, radius: f64) {
        // Ink fades over one pixel, half of it outside the radius.
        let reach = radius + 0.5;
        let pixels = |low: f64, high: f64| {
            // Casts saturate: strokes outside the picture are cut off.
            let first = (low - reach).ceil().max(0.0) as usize;
            let end = ((high + reach).floor() + 1.0).max(0.0) as usize;
            first..end.min(self.side)
        };
        let (rows, columns) = (pixels(from.1.min(to.1), from.1.max(to.1)), pixels(from.0.min(to.0), from.0.max(to.0)));
        let along = (to.0 - from.0, to.1 - from.1);
        let inverse = 1.0 / (along.0 * along.0 + along.1 * along.1).max(1e-12);
        for row in rows {
            for column in columns.clone() {
                let (x, y) = (column as f64 - from.0, row as f64 - from.1);
                let t = ((x * along.0 + y * along.1) * inverse).clamp(0.0, 1.0);
                let distance = length((x - t * along.0, y - t * along.1));
                let depth = &mut self.depth[row * self.side + column];
                *depth = depth.max((radius - distance) as f32);
            }
        }
    }

    /// Writes the ink of each pixel, from 0 to 1, to `image`, row by row.
    pub(super) fn ink(&self, image: &mut [f32]) {
        for (out, depth) in image.iter_mut().zip(&self.depth) {
            *out = (depth + 0.5).clamp(0.0, 1.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knot(x: f64, y: f64, corner: bool) -> Knot {
        Knot { x, y, corner }
    }

    #[test]
    fn a_curve_passes_its_knots_and_stays_near_a_circle() {
        let r = 0.5_f64.sqrt();
        let ring = [(1.0, 0.0), (r, r), (0.0, 1.0), (-r, r), (-1.0, 0.0)];
        let knots: Vec<Knot> = ring.iter().map(|&(x, y)| knot(x, y, false)).collect();
        let points = spline(&knots);
        assert_eq!(points.len(), 4 * PIECES + 1);
        for (at, &(x, y)) in ring.iter().enumerate() {
            let point = points[at * PIECES];
            assert!((point.0 - x).abs() < 1e-12 && (point.1 - y).abs() < 1e-12);
        }
        for &point in &points {
            assert!((length(point) - 1.0).abs() < 0.04, "{point:?}");
        }
    }

    #[test]
    fn corners_make_straight_lines_and_degenerate_strokes_do_no_harm() {
        let points = spline(&[knot(0.0, 0.0, true), knot(4.0, 2.0, true)]);
        assert!(points.iter().all(|&(x, y)| (x - 2.0 * y).abs() < 1e-12));
        assert!(spline(&[]).is_empty());
        assert!(spline(&[knot(1.0, 1.0, false); 4]).iter().all(|p| p.0.is_finite() && p.1.is_finite()));
    }

    #[test]
    fn a_line_has_full_ink_inside_and_half_on_its_edge() {
        let mut canvas = Canvas::new(9);
        canvas.draw(&[(-5.0, 4.0), (50.0, 4.0)], (1.0, 1.0));
        let mut image = [0.0; 81];
        canvas.ink(&mut image);
        for column in 0..9 {
            let ink: Vec<f32> = (2..7).map(|row| image[row * 9 + column]).collect();
            assert_eq!(ink, [0.0, 0.5, 1.0, 0.5, 0.0]);
        }
        canvas.clear();
        canvas.ink(&mut image);
        assert_eq!(image, [0.0; 81]);
    }
}
