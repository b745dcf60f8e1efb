//! Numbers as people read them.

/// A number with four significant digits.
pub(crate) fn short(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() || value == 0.0 {
        return value.to_string();
    }
    if !(1e-4..1e7).contains(&size) {
        return format!("{value:.3e}");
    }
    let decimals = (3.0 - size.log10().floor()).max(0.0) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') { trimmed(&text) } else { text }
}

/// A number with three significant digits, zeros at its end included.
pub(super) fn three_digits(value: f64) -> String {
    let size = value.abs();
    match size {
        // Without a sign.
        0.0 => size.to_string(),
        _ if !value.is_finite() => value.to_string(),
        1e-4..1e7 => format!("{value:.*}", (2.0 - size.log10().floor()).max(0.0) as usize),
        _ => format!("{value:.2e}"),
    }
}

/// A text of a number, with the sign that typesetters use.
pub(super) fn typeset(text: &str) -> String {
    text.strip_prefix('-').map_or_else(|| text.to_owned(), |size| format!("\u{2212}{size}"))
}

/// A text with decimals, without those that are zero at its end.
fn trimmed(text: &str) -> String {
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A multiple of `step`, with just the decimals that `step` has, and thousands apart.
pub(super) fn multiple(value: f64, step: f64) -> String {
    // A power of ten may lie a little below what it is meant to be.
    let decimals = (-(step.log10() + 1e-9).floor()).max(0.0) as usize;
    if decimals > 4 || value.abs() >= 1e7 {
        let text = format!("{value:.2e}");
        let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
        return if value == 0.0 { "0".to_owned() } else { typeset(&format!("{}e{power}", trimmed(digits))) };
    }
    // A zero has no sign.
    grouped(&format!("{:.decimals$}", if value == 0.0 { 0.0 } else { value }))
}

/// Thin spaces between thousands before the decimals.
pub(super) fn grouped(text: &str) -> String {
    let (sign, rest) = text.strip_prefix('-').map_or(("", text), |rest| ("\u{2212}", rest));
    let (whole, decimals) = rest.find('.').map_or((rest, ""), |at| rest.split_at(at));
    let mut out = sign.to_owned();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && whole.len() > 4 && (whole.len() - at).is_multiple_of(3) {
            out.push('\u{2009}');
        }
        out.push(digit);
    }
    out + decimals
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_digits() {
        let cases = [
            (0.0, "0"),
            (1.0, "1"),
            (0.123_456, "0.1235"),
            (-12.345, "-12.35"),
            (0.000_25, "0.00025"),
            (123_456.7, "123457"),
            (1200.0, "1200"),
            (3.2e-7, "3.200e-7"),
            (4e12, "4.000e12"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (value, text) in cases {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn numbers_have_three_digits() {
        let cases = [
            (0.0, "0"),
            (-0.0, "0"),
            (12.0, "12.0"),
            (-5.0, "-5.00"),
            (0.012_345, "0.0123"),
            (123_456.7, "123457"),
            (1.5e-7, "1.50e-7"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (value, text) in cases {
            assert_eq!(three_digits(value), text);
        }
        assert_eq!((typeset("-5.00"), typeset("1e-5")), ("\u{2212}5.00".to_owned(), "1e-5".to_owned()));
    }

    #[test]
    fn multiples_have_the_decimals_of_their_step() {
        let cases = [
            (0.30000000000000004, 0.1, "0.3"),
            (2.0, 0.5, "2.0"),
            (-0.0, 0.5, "0.0"),
            (-20_000.0, 5000.0, "\u{2212}20\u{2009}000"),
            (1500.0, 500.0, "1500"),
            (2e-6, 1e-6, "2e-6"),
            (0.0, 1e-6, "0"),
            (-2e-6, 1e-6, "\u{2212}2e-6"),
            (2.5e8, 5e7, "2.5e8"),
        ];
        for (value, step, text) in cases {
            assert_eq!(multiple(value, step), text);
        }
    }
}
