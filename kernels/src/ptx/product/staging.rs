//! Sums that meet an epilogue: they pass through shared memory, from where one loop takes them element by element.
//!
//! So the epilogue's code is there once for each slice of the tile and not once for each sum of a thread, neighbouring
//! lanes have neighbouring columns, and the loads of the epilogue read whole lines.

use super::accumulators::Accumulators;
use super::choose::{Config, MathUnit};
use super::epilogue::PtxEpilogue;
use super::index::{Address, advance, and, below, both, div, mad, mul, special, sum};
use super::place::{TileOrigin, element, rounded};
use super::problem::{Scatter, count};
use super::vector::{list, vector};
use crate::ptx::{Class, PtxFunction, Reg, RegValue, ptx};

/// Shared memory of a slice at most.
const LARGEST: usize = 48 << 10;

/// The shared memory that a slice of a block's tile passes through: some rows of each warp.
pub(super) struct StagingBuffer {
    /// Rows of a warp's tile.
    rows: usize,
    /// Elements from one row to the next.
    pitch: usize,
}

/// The store of the elements, after the epilogue.
pub(super) struct EpilogueStore<'a> {
    pub(super) to: &'a Scatter,
    /// Columns of the product.
    pub(super) n: usize,
    pub(super) epilogue: &'a PtxEpilogue,
    /// The addresses of what it loads and stores.
    pub(super) bases: &'a [Reg],
}

impl StagingBuffer {
    pub(super) fn new(config: &Config) -> StagingBuffer {
        let pitch = config.tile()[1] + 32 / config.sum.size();
        let unit = match config.engine {
            MathUnit::Simt { thread, lanes } => lanes[0] * thread[0].min(16 / config.sum.size()),
            MathUnit::Mma => 16,
        };
        let mut staging = StagingBuffer { rows: config.warp[0], pitch };
        while staging.bytes(config) > LARGEST && staging.rows > unit {
            staging.rows /= 2;
        }
        staging
    }

    /// The shared memory it takes.
    pub(super) fn bytes(&self, config: &Config) -> usize {
        config.warps[0] * self.rows * self.pitch * config.sum.size()
    }

    /// Takes all sums through shared memory and the epilogue.
    pub(super) fn emit(
        &self,
        f: &mut PtxFunction,
        config: &Config,
        acc: &Accumulators,
        origin: &TileOrigin<'_>,
        tail: &EpilogueStore<'_>,
        shared: Reg,
    ) {
        let EpilogueStore { to, n, epilogue, bases } = *tail;
        for slice in 0..config.warp[0] / self.rows {
            ptx!(f, "bar.sync 0");
            self.write(f, config, acc, slice, shared);
            ptx!(f, "bar.sync 0");
            self.visit(f, config, slice, shared, |f, place, value| {
                let [row, col] = [sum(f, origin.row, place[0]), sum(f, origin.col, place[1])];
                let skip = f.label();
                let [tile_rows, tile_cols] = config.tile();
                let m = count(&to.rows);
                let in_rows = (!m.is_multiple_of(tile_rows)).then(|| below(f, row, m));
                let in_cols = (!n.is_multiple_of(tile_cols)).then(|| below(f, col, n));
                if let Some(inside) = both(f, in_rows, in_cols) {
                    ptx!(f, "@!{inside} bra {skip}");
                }
                let value = RegValue::new(to.dtype, rounded(f, value, to.dtype));
                let place = element(f, to, origin.batch, row, col);
                epilogue.emit(f, bases, place, to.width, value);
                f.place(skip);
            });
        }
    }

    /// Each thread writes its sums in the rows of the slice.
    fn write(&self, f: &mut PtxFunction, config: &Config, acc: &Accumulators, slice: usize, shared: Reg) {
        let size = config.sum.size();
        let first = slice * self.rows;
        // Rows of a warp's tile lie together in the slice.
        let row = mad(f, acc.warp[0], self.rows as i64 - config.warp[0] as i64, acc.row);
        let at = mad(f, row, (self.pitch * size) as i64, shared);
        let at = mad(f, acc.col, size as i64, at);
        for (number, distance) in acc.rows.iter().enumerate() {
            if !(first..first + self.rows).contains(distance) {
                continue;
            }
            for group in (0..acc.cols.len()).step_by(acc.run) {
                let values: Vec<Reg> = (0..acc.run).map(|e| acc.at(number, group + e)).collect();
                let to = (distance - first) * self.pitch + acc.cols[group];
                let to = Address::new(at, (to * size) as i64);
                let ty = if size == 8 { "f64" } else { "f32" };
                ptx!(f, "st.shared{} {to}, {}", vector(&values, ty), list(&values));
            }
        }
    }

    /// The loop over the elements of a slice, given row and column in the block's tile and the sum.
    fn visit(
        &self,
        f: &mut PtxFunction,
        config: &Config,
        slice: usize,
        shared: Reg,
        body: impl FnOnce(&mut PtxFunction, [Reg; 2], Reg),
    ) {
        let size = config.sum.size();
        let cols = config.tile()[1];
        let number = f.reg(Class::B32);
        let thread = special(f, "tid.x");
        ptx!(f, "mov.u32 {number}, {thread}");
        let again = f.label();
        f.place(again);
        let (line, col) = (div(f, number, cols), and(f, number, cols - 1));
        let at = mad(f, line, (self.pitch * size) as i64, shared);
        let at = mad(f, col, size as i64, at);
        let ty = if size == 8 { "f64" } else { "f32" };
        let value = f.op(Class::of(config.sum), &format!("ld.shared.{ty}"), format_args!("[{at}]"));
        let (warp, within) = (div(f, line, self.rows), and(f, line, self.rows - 1));
        let row = mul(f, warp, config.warp[0] as i64);
        let row = sum(f, row, within);
        let row = super::index::add(f, row, (slice * self.rows) as i64);
        body(f, [row, col], value);
        advance(f, number, config.threads() as i64);
        let more = below(f, number, config.warps[0] * self.rows * cols);
        ptx!(f, "@{more} bra {again}");
    }
}
