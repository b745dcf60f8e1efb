//! The text of some modules, as files under `tests/golden/ptx`; `RETAPE_BLESS=1` writes them anew.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use retape_kernels::library::{Library, MatMul, ScatterAdd};
use retape_kernels::ptx::Target;
use retape_kernels::{BufferType, Operand, Place, Step, Work};
use retape_runtime::DType;

use super::samples::{channels, columns, mixed, rows, square, transpose};
use super::{kernel, lowered, step};

/// A product of dense matrices.
fn product(dtype: DType) -> Step {
    library_step(MatMul::contiguous(dtype, &[], [256, 192, 96]), "product")
}

/// Many rows that are added to few.
fn scatter() -> Step {
    let (dtype, index_dtype) = (DType::F32, DType::I64);
    let [along, from_zeros] = [false; 2];
    let scatter = ScatterAdd { dtype, index_dtype, outer: 1, len: 10, inner: 48, n_indices: 1000, along, from_zeros };
    library_step(scatter, "scatter")
}

/// A library kernel on buffers of its own.
fn library_step(library: impl Into<Library>, label: &str) -> Step {
    let work = Work::library(library);
    let (types, _) = work.signature();
    let operand =
        |(n, ty): (usize, &BufferType)| Operand { place: Place::Input(n as u32), dtype: ty.dtype, len: ty.len };
    let operands = types.iter().enumerate().map(operand).collect();
    Step { work, operands, label: label.into() }
}

/// The launches of a step as text.
fn text(step: &Step, target: Target) -> String {
    let launches = lowered(step, target);
    let mut text = String::new();
    for launch in &launches.launches {
        let (grid, block) = (launch.grid, launch.block);
        writeln!(text, "// grid {grid:?}, block {block}, arguments {:?}", launch.arguments).unwrap();
        text += &launch.module.text();
    }
    text
}

#[test]
fn modules_are_as_they_were() {
    let (plain, fast) = (Target::new, |sm| Target { fast: true, ..Target::new(sm) });
    let kernels = [
        ("square", square(1 << 20, "f32"), plain(80)),
        ("mixed", mixed(1003, 8), fast(90)),
        ("transpose", transpose(1000, 300, "f32"), plain(80)),
        ("rows", rows(4096, 1024, "f32", "sum"), plain(80)),
        ("rows_in_parts", rows(1, 1_000_003, "f32", "max"), plain(75)),
        ("columns", columns(64, 4096, "f32", "sum"), plain(80)),
        ("channels", channels(16, 32, 196), plain(80)),
    ];
    let products = [
        ("product_f32", product(DType::F32), plain(80)),
        ("product_tf32", product(DType::F32), fast(80)),
        ("product_bf16", product(DType::Bf16), plain(90)),
        ("product_f16", product(DType::F16), plain(75)),
    ];
    let scatters = [("scatter_atomic", scatter(), Target { nondeterministic: true, ..plain(75) })];
    let kernels = kernels.map(|(name, text, target)| (name, step(&kernel(&text)), target));
    let bless = std::env::var("RETAPE_BLESS").is_ok_and(|value| value == "1");
    for (name, step, target) in kernels.into_iter().chain(products).chain(scatters) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("golden/ptx/{name}.ptx"));
        let made = text(&step, target);
        if bless {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, &made).unwrap();
        }
        let expected = fs::read_to_string(&path).unwrap_or_default();
        assert!(made == expected, "{name} differs; RETAPE_BLESS=1 rewrites it. Made:\n{made}");
    }
}
