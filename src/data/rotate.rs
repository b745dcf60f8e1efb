//! Rotation by degrees with the same bits everywhere.

/// The sine and cosine of an angle in degrees.
///
/// Only additions and multiplications after an exact reduction to `[-45, 45]` degrees, because the standard library's
/// functions differ between platforms in their last bits. The Taylor series end below 3e-17 relative to one.
///
/// ```
/// use retape::data::sin_cos_degrees;
///
/// assert_eq!(sin_cos_degrees(90.0).0, 1.0);
/// assert!((sin_cos_degrees(30.0).0 - 0.5).abs() < 1e-15);
/// ```
pub fn sin_cos_degrees(degrees: f64) -> (f64, f64) {
    let within_turn = degrees % 360.0;
    let quarter = (within_turn / 90.0).round();
    let x = (within_turn - 90.0 * quarter) * (std::f64::consts::PI / 180.0);
    let square = x * x;
    // Divisors of successive terms: (2k)(2k + 1) for the sine, (2k - 1)(2k) for the cosine.
    let (mut sin, mut cos) = (1.0, 1.0);
    for k in (1..=8).rev() {
        let k = f64::from(k);
        sin = 1.0 - square / (2.0 * k * (2.0 * k + 1.0)) * sin;
        cos = 1.0 - square / ((2.0 * k - 1.0) * 2.0 * k) * cos;
    }
    sin *= x;
    match (quarter as i64).rem_euclid(4) {
        0 => (sin, cos),
        1 => (cos, -sin),
        2 => (-sin, -cos),
        _ => (-cos, sin),
    }
}

/// Writes `source` to `target`, turned by `degrees` counter-clockwise about its centre.
///
/// Bilinear between the four nearest pixels; outside the image all is zero. Both are squares of `side` pixels.
pub(super) fn rotate_image(source: &[f32], target: &mut [f32], side: usize, degrees: f64) {
    let (sin, cos) = sin_cos_degrees(degrees);
    let centre = (side as f64 - 1.0) / 2.0;
    let pixel = |row: f64, column: f64| -> f64 {
        let inside = |at: f64| (0.0..side as f64).contains(&at);
        if inside(row) && inside(column) { f64::from(source[row as usize * side + column as usize]) } else { 0.0 }
    };
    for (at, out) in target.iter_mut().enumerate() {
        // Rows grow downwards, so a counter-clockwise turn by the eye is undone by this matrix.
        let (y, x) = ((at / side) as f64 - centre, (at % side) as f64 - centre);
        let row = centre + x * sin + y * cos;
        let column = centre + x * cos - y * sin;
        let (top, left) = (row.floor(), column.floor());
        let (down, right) = (row - top, column - left);
        let upper = pixel(top, left) * (1.0 - right) + pixel(top, left + 1.0) * right;
        let lower = pixel(top + 1.0, left) * (1.0 - right) + pixel(top + 1.0, left + 1.0) * right;
        *out = (upper * (1.0 - down) + lower * down) as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sine_and_cosine_are_those_of_the_library() {
        for tenth in -9_000..=9_000 {
            let degrees = f64::from(tenth) / 10.0;
            let (sin, cos) = sin_cos_degrees(degrees);
            let (want_sin, want_cos) = degrees.to_radians().sin_cos();
            assert!((sin - want_sin).abs() < 1e-14 && (cos - want_cos).abs() < 1e-14, "{degrees}");
        }
        assert_eq!(sin_cos_degrees(90.0), (1.0, -0.0));
    }

    #[test]
    fn a_quarter_turn_moves_the_right_side_to_the_top() {
        let source = [0.0, 0.0, 0.0, 0.0, 0.0, 0.5, 0.0, 0.0, 1.0];
        let mut target = [9.0; 9];
        rotate_image(&source, &mut target, 3, 90.0);
        assert_eq!(target, [0.0, 0.5, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn no_turn_changes_nothing() {
        let source: Vec<f32> = (0..25).map(|i| i as f32 / 25.0).collect();
        let mut target = vec![0.0; 25];
        rotate_image(&source, &mut target, 5, 0.0);
        assert_eq!(source, target);
    }
}
