//! The kernel of a product: which tile a block has, the loop over the sums, and the store of the results.
//!
//! The tiles of the operands go round in a ring of stages. A step waits for the oldest one, starts the copies into the
//! stage that the step before has read, and multiplies; one barrier a step keeps readers and writers apart.

use super::accumulators::{Accumulators, FragmentReader, ring};
use super::choose::{Config, MathUnit, SplitK};
use super::index::{advance, digits, div_rem, mul, number, reach, sum};
use super::load::{Loader, Start};
use super::place::TileOrigin;
use super::problem::{Gather, Problem};
use super::store::TileStore;
use super::tile::TileLayout;
use crate::ptx::{Class, PtxFunction, Reg, ptx};

/// Rows of tiles that blocks which run at the same time share, so that operands stay in the cache of the device.
const GROUP: usize = 8;

/// The work of a block.
struct ThreadBlock {
    /// First row and column.
    row: Reg,
    col: Reg,
    /// The digits of the batch, and which part of the sums.
    batch: super::index::Digits,
    product: Reg,
    part: Reg,
}

/// A product with all decisions taken.
pub(super) struct Emission<'a> {
    pub(super) problem: &'a Problem,
    pub(super) config: Config,
    pub(super) split_k: SplitK,
}

impl Emission<'_> {
    /// The number of blocks.
    pub(super) fn n_blocks(&self) -> usize {
        self.config.blocks(self.problem) * self.split_k.n
    }

    fn n_tiles(&self) -> [usize; 2] {
        let [rows, cols] = self.config.tile();
        [self.problem.m.div_ceil(rows), self.problem.n.div_ceil(cols)]
    }

    fn tiles(&self) -> [TileLayout; 2] {
        let [rows, cols] = self.config.tile();
        let tile = |outer, operand: &Gather| TileLayout::new(&self.config, outer, operand.grain());
        [tile(rows, &self.problem.a), tile(cols, &self.problem.b)]
    }

    fn stage_bytes(&self) -> usize {
        self.tiles().iter().map(TileLayout::bytes).sum()
    }

    /// The shared memory of the ring.
    pub(super) fn ring_bytes(&self) -> usize {
        self.stage_bytes() * self.config.stages
    }

    /// Writes the kernel; parameters are the operands, then what `store` writes to.
    pub(super) fn emit(&self, f: &mut PtxFunction, store: &TileStore<'_>) {
        let block = self.block(f);
        let shared = f.dynamic_shared();
        let shared = f.op(Class::B32, "mov.u32", format_args!("{shared}"));
        let acc = Accumulators::zeros(f, &self.config);
        let tiles = self.tiles();
        let places = [0, tiles[0].bytes()];
        let reader = acc.reader(f, &self.config, tiles, places);
        let (start, n_steps) = self.steps(f, block.part);
        let loader = |f: &mut PtxFunction, side: usize| {
            let (gather, outer, n) = match side {
                0 => (&self.problem.a, block.row, self.problem.m),
                _ => (&self.problem.b, block.col, self.problem.n),
            };
            let size = gather.dtype.size() as i64;
            let pointer = f.param(side);
            let strides = block.batch.iter().zip(&gather.batch);
            let pointer = strides.fold(pointer, |at, (digit, stride)| reach(f, at, *digit, stride * size));
            let start = Start { pointer, outer, k: start, n_outer: n, n_k: self.problem.k, place: places[side] };
            Loader::begin(f, gather, tiles[side], self.config.threads(), &start)
        };
        let loaders = [loader(f, 0), loader(f, 1)];
        self.run(f, loaders, &acc, &reader, shared, n_steps);
        // Found once more, so that the loop has registers for what it does itself.
        let block = self.block(f);
        let n_products = self.problem.n_products();
        let origin = TileOrigin { row: block.row, col: block.col, batch: &block.batch, product: block.product };
        store.emit(f, &self.config, &acc, &origin, (block.part, n_products), shared);
    }

    /// Takes the number of the block apart.
    fn block(&self, f: &mut PtxFunction) -> ThreadBlock {
        let [n_rows, n_cols] = self.n_tiles();
        let index = f.block_index();
        let (product, tile) = div_rem(f, index, n_rows * n_cols);
        let (product, part) = div_rem(f, product, self.split_k.n);
        let batch = digits(f, product, self.problem.batch.iter().copied());
        // Tiles in columns of a few rows each.
        let (group, within) = div_rem(f, tile, GROUP * n_cols);
        let first = mul(f, group, GROUP as i64);
        let (col, row) = if n_rows.is_multiple_of(GROUP) {
            div_rem(f, within, GROUP)
        } else {
            let left = f.op(Class::B32, "sub.s32", format_args!("{n_rows}, {first}"));
            let height = f.op(Class::B32, "min.s32", format_args!("{left}, {GROUP}"));
            let col = f.op(Class::B32, "div.u32", format_args!("{within}, {height}"));
            (col, f.op(Class::B32, "rem.u32", format_args!("{within}, {height}")))
        };
        let row = sum(f, first, row);
        let [rows, cols] = self.config.tile();
        ThreadBlock { row: mul(f, row, rows as i64), col: mul(f, col, cols as i64), batch, product, part }
    }

    /// The first index of the sums and the number of steps of a part.
    fn steps(&self, f: &mut PtxFunction, part: Reg) -> (Reg, Reg) {
        let SplitK { n, len } = self.split_k;
        let depth = self.config.depth;
        if n == 1 {
            return (number(f, 0), number(f, self.problem.k.div_ceil(depth) as i64));
        }
        let start = mul(f, part, len as i64);
        // Only the last part may be shorter.
        let total = number(f, self.problem.k.div_ceil(depth) as i64);
        let before = mul(f, part, -((len / depth) as i64));
        let left = sum(f, total, before);
        (start, f.op(Class::B32, "min.s32", format_args!("{left}, {}", len / depth)))
    }

    /// The loop over the sums.
    fn run(
        &self,
        f: &mut PtxFunction,
        mut loaders: [Loader<'_>; 2],
        acc: &Accumulators,
        reader: &FragmentReader,
        shared: Reg,
        n: Reg,
    ) {
        let stages = self.config.stages as i64;
        let bytes = self.stage_bytes() as i64;
        let is_async = loaders.iter().any(|loader| loader.is_async);
        let commit = |f: &mut PtxFunction| {
            if is_async {
                ptx!(f, "cp.async.commit_group");
            }
        };
        let write = ring(f, shared);
        for stage in 0..stages - 1 {
            self.guarded(f, stage, n, |f| {
                loaders.iter_mut().for_each(|loader| loader.issue(f, write));
                loaders.iter_mut().filter(|loader| !loader.is_async).for_each(|loader| loader.settle(f, write));
            });
            commit(f);
            advance(f, write, bytes);
        }
        let (read, step) = (ring(f, shared), number(f, 0));
        let end = super::index::add(f, shared, bytes * stages);
        let again = f.label();
        f.place(again);
        if is_async {
            ptx!(f, "cp.async.wait_group {}", stages - 2);
        }
        ptx!(f, "bar.sync 0");
        let coming = super::index::add(f, step, stages - 1);
        let more = f.op(Class::Pred, "setp.lt.s32", format_args!("{coming}, {n}"));
        let skip = f.label();
        ptx!(f, "@!{more} bra {skip}");
        loaders.iter_mut().for_each(|loader| loader.issue(f, write));
        f.place(skip);
        commit(f);
        acc.multiply(f, &self.config, reader, read);
        if loaders.iter().any(|loader| !loader.is_async) {
            let skip = f.label();
            ptx!(f, "@!{more} bra {skip}");
            loaders.iter_mut().filter(|loader| !loader.is_async).for_each(|loader| loader.settle(f, write));
            f.place(skip);
        }
        for stage in [read, write] {
            advance(f, stage, bytes);
            let wraps = f.op(Class::Pred, "setp.eq.u32", format_args!("{stage}, {end}"));
            ptx!(f, "selp.b32 {stage}, {shared}, {stage}, {wraps}");
        }
        advance(f, step, 1);
        let goes_on = f.op(Class::Pred, "setp.lt.s32", format_args!("{step}, {n}"));
        ptx!(f, "@{goes_on} bra {again}");
    }

    /// Code of the prologue, for the step with this number if there is one.
    fn guarded(&self, f: &mut PtxFunction, step: i64, n: Reg, body: impl FnOnce(&mut PtxFunction)) {
        let least = if self.split_k.n == 1 { self.problem.k.div_ceil(self.config.depth) as i64 } else { 1 };
        if step < least {
            return body(f);
        }
        let absent = f.op(Class::Pred, "setp.le.s32", format_args!("{n}, {step}"));
        let skip = f.label();
        ptx!(f, "@{absent} bra {skip}");
        body(f);
        f.place(skip);
    }

    /// A name that says what the kernel does.
    pub(super) fn name(&self) -> String {
        let [rows, cols] = self.config.tile();
        let engine = match self.config.engine {
            MathUnit::Simt { .. } => "simt",
            MathUnit::Mma => "mma",
        };
        format!("product_{}_{engine}_{rows}x{cols}", self.config.element.name())
    }
}
