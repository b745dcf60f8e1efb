//! The text of some modules, as files under `tests/golden/ptx`; `RETAPE_BLESS=1` writes them anew.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use retape_kernels::ptx::Target;

use crate::samples::{channels, columns, mixed, rows, square, transpose};
use crate::{kernel, lowered, step};

/// The launches of a kernel as text.
fn text(kernel_text: &str, target: Target) -> String {
    let launches = lowered(&step(&kernel(kernel_text)), target);
    let mut text = String::new();
    for launch in &launches.launches {
        let (grid, block) = (launch.grid, launch.block);
        writeln!(text, "// grid {grid:?}, block {block}, arguments {:?}", launch.arguments).unwrap();
        text += &launch.module.text;
    }
    text
}

#[test]
fn modules_are_as_they_were() {
    let plain = |sm| Target { sm, fast: false };
    let cases = [
        ("square", square(1 << 20, "f32"), plain(80)),
        ("mixed", mixed(1003, 8), Target { sm: 90, fast: true }),
        ("transpose", transpose(1000, 300, "f32"), plain(80)),
        ("rows", rows(4096, 1024, "f32", "sum"), plain(80)),
        ("rows_in_parts", rows(1, 1_000_003, "f32", "max"), plain(75)),
        ("columns", columns(64, 4096, "f32", "sum"), plain(80)),
        ("channels", channels(16, 32, 196), plain(80)),
    ];
    let bless = std::env::var("RETAPE_BLESS").is_ok_and(|value| value == "1");
    for (name, kernel, target) in cases {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/ptx/{name}.ptx"));
        let made = text(&kernel, target);
        if bless {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, &made).unwrap();
        }
        let expected = fs::read_to_string(&path).unwrap_or_default();
        assert!(made == expected, "{name} differs; RETAPE_BLESS=1 rewrites it. Made:\n{made}");
    }
}
