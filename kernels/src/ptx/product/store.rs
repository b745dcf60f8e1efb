//! From the sums of a block to memory.

use super::accumulators::Accumulators;
use super::choose::Config;
use super::epilogue::PtxEpilogue;
use super::index::{Address, add, mad, reach, sum};
use super::place::{MatrixOrigin, TileOrigin, bits, matrix_origin, matrix_row, plus, rounded};
use super::problem::{Scatter, count};
use super::staging::{EpilogueStore, StagingBuffer};
use super::vector::{list, vector};
use crate::ptx::{Class, PtxFunction, Reg, ptx};

/// The use of the sums of a tile.
pub(super) enum TileStore<'a> {
    /// They are the result.
    Store { to: &'a Scatter, n: usize },
    /// They meet an epilogue, whose other parameters follow the operands.
    Fuse { to: &'a Scatter, n: usize, epilogue: &'a PtxEpilogue },
    /// They are parts of it, to be summed later: `[part, product, m, n]`.
    Part { m: usize, n: usize },
}

impl TileStore<'_> {
    /// Writes the sums; `part` is the part's number and the number of products.
    pub(super) fn emit(
        &self,
        f: &mut PtxFunction,
        config: &Config,
        acc: &Accumulators,
        origin: &TileOrigin<'_>,
        part: (Reg, usize),
        shared: Reg,
    ) {
        match *self {
            TileStore::Fuse { to, n, epilogue } => {
                let bases: Vec<Reg> = epilogue.others().enumerate().map(|(p, _)| f.param(2 + p)).collect();
                let tail = EpilogueStore { to, n, epilogue, bases: &bases };
                StagingBuffer::new(config).emit(f, config, acc, origin, &tail, shared);
            }
            TileStore::Store { to, n } => {
                let matrix_origin = matrix_origin(f, to, origin.batch);
                store(f, config, acc, origin, to, n, &matrix_origin);
            }
            TileStore::Part { m, n } => {
                let line = [super::problem::Digit { extent: m, stride: 1 }].into_iter().collect();
                let to = Scatter {
                    dtype: config.sum,
                    width: n,
                    first_row: 0,
                    rows: line,
                    batch: [(0, 0)].into_iter().collect(),
                };
                let row = mad(f, part.0, part.1 as i64, origin.product);
                let matrix_origin = MatrixOrigin { row: Some(super::index::mul(f, row, m as i64)), col: None };
                store(f, config, acc, origin, &to, n, &matrix_origin);
            }
        }
    }
}

/// Stores straight from registers.
fn store(
    f: &mut PtxFunction,
    config: &Config,
    acc: &Accumulators,
    origin: &TileOrigin<'_>,
    to: &Scatter,
    n: usize,
    matrix_origin: &MatrixOrigin,
) {
    let m = count(&to.rows);
    let size = to.dtype.size() as i64;
    let line = to.width as i64 * size;
    let first = sum(f, origin.row, acc.row);
    let col = sum(f, origin.col, acc.col);
    let place = plus(f, col, matrix_origin.col);
    let base = f.param(2);
    let base = reach(f, base, place, size);
    let vec = to.vec(n, acc.run);
    let [tile_rows, tile_cols] = config.tile();
    let columns: Vec<Option<Reg>> = (0..acc.cols.len() / vec)
        .map(|group| {
            let limit = n as i64 - acc.cols[group * vec] as i64;
            (!n.is_multiple_of(tile_cols)).then(|| f.op(Class::Pred, "setp.lt.s32", format_args!("{col}, {limit}")))
        })
        .collect();
    // Rows at fixed distances need one address.
    let even = to.rows.len() == 1 && (config.warp[0] as i64) * to.rows[0].stride * line < 1 << 30;
    let mut start = base;
    if even {
        let row = matrix_row(f, to, first, matrix_origin.row);
        start = reach(f, base, row, line);
    }
    for (number, &distance) in acc.rows.iter().enumerate() {
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
            let row = matrix_row(f, to, index, matrix_origin.row);
            Address::new(reach(f, base, row, line), 0)
        };
        for (group, holds) in columns.iter().enumerate() {
            let values: Vec<Reg> = (0..vec).map(|e| acc.at(number, group * vec + e)).collect();
            let values: Vec<Reg> = values.into_iter().map(|x| rounded(f, x, to.dtype)).collect();
            let guard = holds.map_or(String::new(), |holds| format!("@{holds} "));
            let at = to_row.beyond(acc.cols[group * vec] as i64 * size);
            ptx!(f, "{guard}st.global{} {at}, {}", vector(&values, bits(to.dtype)), list(&values));
        }
        f.place(skip);
    }
}
