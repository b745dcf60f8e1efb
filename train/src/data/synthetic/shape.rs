//! Ten shapes about the origin, about as large as the unit disc, by their signed distances.
//!
//! A distance is negative inside and exact near the edge, which is all that drawing needs. Only additions,
//! multiplications, square roots and comparisons, so that bits are the same on every platform.

/// A shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Disc,
    Ring,
    Square,
    Triangle,
    Cross,
    Stripes,
    Star,
    Crescent,
    Angle,
    BowTie,
}

impl Shape {
    /// All shapes, in the order of their labels.
    pub(super) const ALL: [Shape; 10] = [
        Shape::Disc,
        Shape::Ring,
        Shape::Square,
        Shape::Triangle,
        Shape::Cross,
        Shape::Stripes,
        Shape::Star,
        Shape::Crescent,
        Shape::Angle,
        Shape::BowTie,
    ];

    /// The signed distance of a point from the edge.
    pub(super) fn distance(self, (x, y): (f32, f32)) -> f32 {
        match self {
            Shape::Disc => length(x, y) - 0.85,
            Shape::Ring => (length(x, y) - 0.72).abs() - 0.2,
            Shape::Square => rectangle((x, y), (0.74, 0.74)),
            Shape::Triangle => triangle(x, y),
            Shape::Cross => rectangle((x, y), (0.92, 0.27)).min(rectangle((x, y), (0.27, 0.92))),
            Shape::Stripes => {
                [-0.58, 0.0, 0.58].map(|middle| rectangle((x, y - middle), (0.8, 0.17))).into_iter().fold(9.0, f32::min)
            }
            Shape::Star => star(x, y),
            Shape::Crescent => (length(x, y) - 0.92).max(0.8 - length(x - 0.5, y)),
            Shape::Angle => rectangle((x + 0.48, y), (0.26, 0.8)).min(rectangle((x, y - 0.54), (0.74, 0.26))),
            // The normal of the slanted edges has length one: 0.6 squared and 0.8 squared.
            Shape::BowTie => (x.abs() - 0.84).max(0.8 * y.abs() - 0.6 * x.abs() - 0.06),
        }
    }
}

fn length(x: f32, y: f32) -> f32 {
    (x * x + y * y).sqrt()
}

/// The distance from a rectangle about the origin of these half sides.
fn rectangle((x, y): (f32, f32), (half_x, half_y): (f32, f32)) -> f32 {
    let (x, y) = (x.abs() - half_x, y.abs() - half_y);
    length(x.max(0.0), y.max(0.0)) + x.max(y).min(0.0)
}

/// An equilateral triangle with a corner upwards: the farthest of three edges.
fn triangle(x: f32, y: f32) -> f32 {
    const SIN_60: f32 = 0.866_025_4;
    let slanted = SIN_60 * x.abs() - 0.5 * y;
    slanted.max(y) - 0.5
}

/// A star of five points: one tenth of it, to which the plane is folded at three lines of its symmetry
/// (Quilez, "2D distance functions").
fn star(x: f32, y: f32) -> f32 {
    const COS_36: f32 = 0.809_017;
    const SIN_36: f32 = 0.587_785_25;
    const RADIUS: f32 = 1.0;
    const INNER: f32 = 0.45;
    let (mut x, mut y) = (x.abs(), y);
    for normal_x in [COS_36, -COS_36] {
        let beyond = 2.0 * (normal_x * x - SIN_36 * y).max(0.0);
        (x, y) = (x - beyond * normal_x, y + beyond * SIN_36);
    }
    let (x, y) = (x.abs(), y - RADIUS);
    // The edge goes from the point of the star, now the origin, in this direction.
    let (edge_x, edge_y) = (INNER * SIN_36, INNER * COS_36 - 1.0);
    let along = ((x * edge_x + y * edge_y) / (edge_x * edge_x + edge_y * edge_y)).clamp(0.0, RADIUS);
    let distance = length(x - edge_x * along, y - edge_y * along);
    if y * edge_x - x * edge_y > 0.0 { distance } else { -distance }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Points of a fine grid over `[-1.2, 1.2]`.
    fn grid() -> impl Iterator<Item = (f32, f32)> {
        let line = || (-60..=60).map(|i| i as f32 / 50.0);
        line().flat_map(move |y| line().map(move |x| (x, y)))
    }

    #[test]
    fn shapes_fill_about_the_unit_disc() {
        for shape in Shape::ALL {
            let inside: Vec<(f32, f32)> = grid().filter(|&point| shape.distance(point) < 0.0).collect();
            let area = inside.len() as f32 / 2500.0;
            assert!((0.9..2.5).contains(&area), "{shape:?} has area {area}");
            let reach = inside.iter().map(|&(x, y)| length(x, y)).fold(0.0, f32::max);
            assert!((0.8..1.1).contains(&reach), "{shape:?} reaches {reach}");
        }
    }

    #[test]
    fn distances_change_as_fast_as_the_place_near_the_edge() {
        for shape in Shape::ALL {
            for (x, y) in grid().filter(|&point| shape.distance(point).abs() < 0.05) {
                let step = 1e-3;
                let slope =
                    |dx, dy| (shape.distance((x + dx, y + dy)) - shape.distance((x - dx, y - dy))) / (2.0 * step);
                let gradient = length(slope(step, 0.0), slope(0.0, step));
                // Less at inner ridges, where two edges are equally near.
                assert!(gradient < 1.01, "{shape:?} at {x} {y}: {gradient}");
            }
        }
    }

    #[test]
    fn shapes_differ() {
        for (at, a) in Shape::ALL.into_iter().enumerate() {
            for b in &Shape::ALL[..at] {
                let differing = grid().filter(|&point| (a.distance(point) < 0.0) != (b.distance(point) < 0.0)).count();
                assert!(differing as f32 / 2500.0 > 0.3, "{a:?} and {b:?}");
            }
        }
    }
}
