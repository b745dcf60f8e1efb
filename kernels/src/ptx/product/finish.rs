//! From the sums of a block to memory.

use retape_runtime::DType;

use super::choose::Config;
use super::epilogue::Epilogue;
use super::index::{Address, Digits, add, digits, mad, reach, sum};
use super::problem::{Scatter, count};
use super::slab::{Slab, Tail};
use super::sums::Sums;
use super::vector::{list, vector};
use crate::ptx::{Class, Function, Reg, ptx};

/// Where the sums of a block belong.
pub(super) struct Corner<'a> {
    /// First row and column of the product.
    pub(super) row: Reg,
    pub(super) col: Reg,
    /// Digits and number of the product in the batch.
    pub(super) batch: &'a Digits,
    pub(super) product: Reg,
}

/// What becomes of the sums.
pub(super) enum Finish<'a> {
    /// They are the result.
    Store { to: &'a Scatter, n: usize },
    /// They meet an epilogue, whose other parameters follow the operands.
    Fuse { to: &'a Scatter, n: usize, epilogue: &'a Epilogue },
    /// They are parts of it, to be summed later: `[part, product, m, n]`.
    Part { m: usize, n: usize },
}

/// The place of a product in the matrix that it is written to, as registers.
struct Origin {
    row: Option<Reg>,
    col: Option<Reg>,
}

impl Finish<'_> {
    /// Writes the sums; `part` is the part's number and the number of products.
    pub(super) fn emit(
        &self,
        f: &mut Function,
        config: &Config,
        sums: &Sums,
        corner: &Corner<'_>,
        part: (Reg, usize),
        shared: Reg,
    ) {
        match *self {
            Finish::Fuse { to, n, epilogue } => {
                let bases: Vec<Reg> = epilogue.others().enumerate().map(|(p, _)| f.param(2 + p)).collect();
                let tail = Tail { to, n, epilogue, bases: &bases };
                Slab::new(config).emit(f, config, sums, corner, &tail, shared);
            }
            Finish::Store { to, n } => {
                let origin = origin(f, to, corner.batch);
                store(f, config, sums, corner, to, n, &origin);
            }
            Finish::Part { m, n } => {
                let line = [super::problem::Digit { extent: m, stride: 1 }].into_iter().collect();
                let to = Scatter {
                    dtype: config.sum,
                    width: n,
                    first_row: 0,
                    rows: line,
                    batch: [(0, 0)].into_iter().collect(),
                };
                let row = mad(f, part.0, part.1 as i64, corner.product);
                let origin = Origin { row: Some(super::index::mul(f, row, m as i64)), col: None };
                store(f, config, sums, corner, &to, n, &origin);
            }
        }
    }
}

/// Where the product with these digits begins.
fn origin(f: &mut Function, to: &Scatter, batch: &Digits) -> Origin {
    let mut origin = Origin { row: None, col: None };
    let step = |f: &mut Function, so_far: Option<Reg>, digit: Reg, step: usize| match (so_far, step) {
        (so_far, 0) => so_far,
        (None, step) => Some(super::index::mul(f, digit, step as i64)),
        (Some(so_far), step) => Some(mad(f, digit, step as i64, so_far)),
    };
    for (digit, (rows, cols)) in batch.iter().zip(&to.batch) {
        origin.row = step(f, origin.row, *digit, *rows);
        origin.col = step(f, origin.col, *digit, *cols);
    }
    origin
}

fn plus(f: &mut Function, a: Reg, b: Option<Reg>) -> Reg {
    b.map_or(a, |b| sum(f, a, b))
}

/// Row of the matrix that row `index` of a product is.
fn matrix_row(f: &mut Function, to: &Scatter, index: Reg, origin: Option<Reg>) -> Reg {
    let own = digits(f, index, to.rows.iter().map(|digit| digit.extent));
    let mut row: Option<Reg> = origin;
    for (digit, value) in to.rows.iter().zip(&own) {
        row = Some(match row {
            None => super::index::mul(f, *value, digit.stride),
            Some(row) => mad(f, *value, digit.stride, row),
        });
    }
    add(f, row.unwrap_or(index), to.first_row as i64)
}

/// Stores straight from registers.
fn store(f: &mut Function, config: &Config, sums: &Sums, corner: &Corner<'_>, to: &Scatter, n: usize, origin: &Origin) {
    let m = count(&to.rows);
    let size = to.dtype.size() as i64;
    let line = to.width as i64 * size;
    let first = sum(f, corner.row, sums.row);
    let col = sum(f, corner.col, sums.col);
    let place = plus(f, col, origin.col);
    let base = f.param(2);
    let base = reach(f, base, place, size);
    let vec = to.vec(n, sums.run);
    let [tile_rows, tile_cols] = config.tile();
    let columns: Vec<Option<Reg>> = (0..sums.cols.len() / vec)
        .map(|group| {
            let limit = n as i64 - sums.cols[group * vec] as i64;
            (!n.is_multiple_of(tile_cols)).then(|| f.op(Class::Pred, "setp.lt.s32", format_args!("{col}, {limit}")))
        })
        .collect();
    // Rows at fixed distances need one address.
    let even = to.rows.len() == 1 && (config.warp[0] as i64) * to.rows[0].stride * line < 1 << 30;
    let mut start = base;
    if even {
        let row = matrix_row(f, to, first, origin.row);
        start = reach(f, base, row, line);
    }
    for (number, &distance) in sums.rows.iter().enumerate() {
        let skip = f.label();
        if !m.is_multiple_of(tile_rows) {
            let limit = m as i64 - distance as i64;
            let absent = f.op(Class::Pred, "setp.ge.s32", format_args!("{first}, {limit}"));
            ptx!(f, "@{absent} bra {skip}");
        }
        let to_row = if even {
            Address::new(start, distance as i64 * to.rows[0].stride * line)
        } else {
            let index = add(f, first, distance as i64);
            let row = matrix_row(f, to, index, origin.row);
            Address::new(reach(f, base, row, line), 0)
        };
        for (group, holds) in columns.iter().enumerate() {
            let values: Vec<Reg> = (0..vec).map(|e| sums.at(number, group * vec + e)).collect();
            let values: Vec<Reg> = values.into_iter().map(|x| rounded(f, x, to.dtype)).collect();
            let guard = holds.map_or(String::new(), |holds| format!("@{holds} "));
            let at = to_row.beyond(sums.cols[group * vec] as i64 * size);
            ptx!(f, "{guard}st.global{} {at}, {}", vector(&values, bits(to.dtype)), list(&values));
        }
        f.place(skip);
    }
}

/// The type of an access to elements of a dtype.
pub(super) fn bits(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "f64",
        DType::F32 => "f32",
        _ => "b16",
    }
}

/// A sum as an element of the result.
pub(super) fn rounded(f: &mut Function, x: Reg, to: DType) -> Reg {
    match to {
        DType::F16 => f.op(Class::B16, "cvt.rn.f16.f32", format_args!("{x}")),
        DType::Bf16 if f.target().sm >= 80 => f.op(Class::B16, "cvt.rn.bf16.f32", format_args!("{x}")),
        DType::Bf16 => {
            // Adds half of the last place, ties to even, but for NaN, whose lower bits may be all it has.
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
        _ => x,
    }
}

/// The address of the element of the result at `row` and `col` of a product, given the digits of its number.
pub(super) fn element(f: &mut Function, to: &Scatter, batch: &Digits, row: Reg, col: Reg) -> [Reg; 2] {
    let origin = origin(f, to, batch);
    let row = matrix_row(f, to, row, origin.row);
    [row, plus(f, col, origin.col)]
}

/// The address of an element of a dense matrix.
pub(super) fn address(f: &mut Function, base: Reg, [row, col]: [Reg; 2], width: usize, size: usize) -> Reg {
    let at = reach(f, base, row, (width * size) as i64);
    reach(f, at, col, size as i64)
}
