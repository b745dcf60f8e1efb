//! Places of elements of a product in the matrix that it is written to, and elements as they are written.

use retape_runtime::DType;

use super::index::{Digits, add, digits, mad, reach, sum};
use super::problem::Scatter;
use crate::ptx::{Class, PtxFunction, Reg};

/// Where the sums of a block belong.
pub(super) struct TileOrigin<'a> {
    /// First row and column of the product.
    pub(super) row: Reg,
    pub(super) col: Reg,
    /// Digits and number of the product in the batch.
    pub(super) batch: &'a Digits,
    pub(super) product: Reg,
}

/// The place of a product in the matrix that it is written to, as registers.
pub(super) struct MatrixOrigin {
    pub(super) row: Option<Reg>,
    pub(super) col: Option<Reg>,
}

/// Where the product with these digits begins.
pub(super) fn matrix_origin(f: &mut PtxFunction, to: &Scatter, batch: &Digits) -> MatrixOrigin {
    let mut matrix_origin = MatrixOrigin { row: None, col: None };
    let step = |f: &mut PtxFunction, so_far: Option<Reg>, digit: Reg, step: usize| match (so_far, step) {
        (so_far, 0) => so_far,
        (None, step) => Some(super::index::mul(f, digit, step as i64)),
        (Some(so_far), step) => Some(mad(f, digit, step as i64, so_far)),
    };
    for (digit, (rows, cols)) in batch.iter().zip(&to.batch) {
        matrix_origin.row = step(f, matrix_origin.row, *digit, *rows);
        matrix_origin.col = step(f, matrix_origin.col, *digit, *cols);
    }
    matrix_origin
}

pub(super) fn plus(f: &mut PtxFunction, a: Reg, b: Option<Reg>) -> Reg {
    b.map_or(a, |b| sum(f, a, b))
}

/// Row of the matrix that row `index` of a product is.
pub(super) fn matrix_row(f: &mut PtxFunction, to: &Scatter, index: Reg, matrix_origin: Option<Reg>) -> Reg {
    let own = digits(f, index, to.rows.iter().map(|digit| digit.extent));
    let mut row: Option<Reg> = matrix_origin;
    for (digit, value) in to.rows.iter().zip(&own) {
        row = Some(match row {
            None => super::index::mul(f, *value, digit.stride),
            Some(row) => mad(f, *value, digit.stride, row),
        });
    }
    add(f, row.unwrap_or(index), to.first_row as i64)
}

/// The type of an access to elements of a dtype.
pub(super) fn bits(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "f64",
        DType::F32 => "f32",
        DType::F16 | DType::Bf16 | DType::I32 | DType::I64 | DType::U32 | DType::U8 | DType::Bool => "b16",
    }
}

/// A sum as an element of the result.
pub(super) fn rounded(f: &mut PtxFunction, x: Reg, to: DType) -> Reg {
    match to {
        DType::F16 => f.op(Class::B16, "cvt.rn.f16.f32", format_args!("{x}")),
        DType::Bf16 if f.target().sm >= 80 => f.op(Class::B16, "cvt.rn.bf16.f32", format_args!("{x}")),
        DType::Bf16 => {
            // Adds half of the last place, ties to even, except for NaN, whose lower bits may be all it has.
            let x_bits = f.op(Class::B32, "mov.b32", format_args!("{x}"));
            let high = f.op(Class::B32, "shr.u32", format_args!("{x_bits}, 16"));
            let odd = super::index::and(f, high, 1);
            let up = sum(f, x_bits, odd);
            let up = add(f, up, 0x7fff);
            let nan = f.op(Class::Pred, "setp.nan.f32", format_args!("{x}, {x}"));
            let chosen = f.op(Class::B32, "selp.b32", format_args!("{}, {up}, {nan}", 0x7fff_ffff));
            let high = f.op(Class::B32, "shr.u32", format_args!("{chosen}, 16"));
            f.op(Class::B16, "cvt.u16.u32", format_args!("{high}"))
        }
        DType::F32 | DType::F64 | DType::I32 | DType::I64 | DType::U32 | DType::U8 | DType::Bool => x,
    }
}

/// The address of the element of the result at `row` and `col` of a product, given the digits of its number.
pub(super) fn element(f: &mut PtxFunction, to: &Scatter, batch: &Digits, row: Reg, col: Reg) -> [Reg; 2] {
    let matrix_origin = matrix_origin(f, to, batch);
    let row = matrix_row(f, to, row, matrix_origin.row);
    [row, plus(f, col, matrix_origin.col)]
}

/// The address of an element of a dense matrix.
pub(super) fn address(f: &mut PtxFunction, base: Reg, [row, col]: [Reg; 2], width: usize, size: usize) -> Reg {
    let at = reach(f, base, row, (width * size) as i64);
    reach(f, at, col, size as i64)
}
