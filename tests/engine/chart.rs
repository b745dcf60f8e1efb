//! The charts of the digits example, in all three forms.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../examples/digits/chart.rs"]
mod drawing;

use drawing::Chart;

fn sample() -> Chart {
    Chart {
        title: "Training time".into(),
        unit: "s".into(),
        bars: vec![("un-accelerated".into(), 31.72), ("accelerated".into(), 4.956)],
        note: "6.4 times as fast".into(),
    }
}

#[test]
fn the_terminal_shows_bars_to_scale() {
    // 14 columns of names, 4 of values and 4 of blanks leave 38; 4.956 / 31.72 of them are 5 and 7/8.
    let text = sample().terminal(60);
    let rows = [format!("un-accelerated {} 31.7", "█".repeat(38)), "accelerated    █████▉ 4.96".into()];
    assert_eq!(text, format!("Training time (s)\n  {}\n  {}\n  6.4 times as fast\n", rows[0], rows[1]));
    assert!(text.lines().all(|line| line.chars().count() <= 60));
}

#[test]
fn svg_holds_all_texts_and_is_escaped() {
    let svg = Chart { title: "a < b & c".into(), ..sample() }.svg();
    for text in ["a &lt; b &amp; c", "un-accelerated", "31.7", "4.96", "6.4 times as fast", ">40<", ">10<"] {
        assert!(svg.contains(text), "{text} in {svg}");
    }
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
}

#[test]
fn bar_heights_keep_their_ratio() {
    let svg = sample().svg();
    let heights: Vec<f64> = svg
        .lines()
        .filter(|line| line.starts_with("<rect") && !line.contains("#ffffff"))
        .filter_map(|line| line.split("height=\"").nth(1)?.split('"').next()?.parse().ok())
        .collect();
    assert_eq!(heights.len(), 2);
    assert!((heights[0] / heights[1] - 31.72 / 4.956).abs() < 0.02, "{heights:?}");
}

#[test]
fn png_has_ink_and_a_size() {
    let path = std::env::temp_dir().join(format!("retape-chart-{}.png", std::process::id()));
    sample().png(&path).unwrap();
    let picture = tiny_skia::Pixmap::load_png(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!((picture.width(), picture.height()), (920, 840));
    let white = picture.pixels().iter().filter(|pixel| (pixel.red(), pixel.green(), pixel.blue()) == (255, 255, 255));
    let share = white.count() as f64 / picture.pixels().len() as f64;
    assert!((0.5..0.95).contains(&share), "{share}");
}

#[test]
fn odd_values_do_no_harm() {
    for value in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-12, 1e300] {
        let chart = Chart { bars: vec![("a".into(), value), ("b".into(), 0.0)], ..sample() };
        let svg = chart.svg();
        assert!(
            svg.contains(">a<") && svg.contains(">b<") && !svg.contains("=\"NaN") && !svg.contains("=\"inf"),
            "{svg}"
        );
        assert_eq!(chart.terminal(10).lines().count(), 4);
    }
    let empty = Chart { bars: Vec::new(), ..sample() };
    assert!(empty.svg().contains("Training time"));
    assert_eq!(empty.terminal(0).lines().count(), 2);
}
