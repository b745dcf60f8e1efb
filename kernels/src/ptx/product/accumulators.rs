//! The sums of a block, in the registers of its threads, and how a stage of operands is multiplied into them.

use retape_runtime::DType;

use super::choose::{Config, MathUnit};
use super::index::{Address, add, and, div, mad, mul, number, special, sum};
use super::tile::TileLayout;
use super::vector::{list, vector};
use crate::ptx::{Class, PtxFunction, Reg, ptx};

/// The sums of a thread: those of its rows and columns, which lie at fixed distances from a first one.
pub(super) struct Accumulators {
    /// First row and column, from the corner of the block's tile.
    pub(super) row: Reg,
    pub(super) col: Reg,
    pub(super) rows: Vec<usize>,
    pub(super) cols: Vec<usize>,
    /// How many columns follow each other.
    pub(super) run: usize,
    /// The warp's tile along rows and columns.
    pub(super) warp: [Reg; 2],
    /// Row by row.
    pub(super) regs: Vec<Reg>,
    lane: Reg,
}

/// Where a thread finds its part of the operands, from the start of a stage.
pub(super) struct FragmentReader {
    /// One address for each distinct part; see the engines.
    a: Vec<Reg>,
    b: Vec<Reg>,
    tiles: [TileLayout; 2],
}

impl Accumulators {
    /// Zeros.
    pub(super) fn zeros(f: &mut PtxFunction, config: &Config) -> Accumulators {
        let thread = special(f, "tid.x");
        let lane = and(f, thread, 31);
        let warp = div(f, thread, 32);
        let (warp_row, warp_col) = super::index::div_rem(f, warp, config.warps[1]);
        let warp = [warp_row, warp_col];
        let own = |distances: Vec<usize>, unit: usize, run: usize| -> Vec<usize> {
            distances.into_iter().flat_map(|d| (0..run).map(move |e| d * unit + e)).collect()
        };
        let (row, col, rows, cols, run);
        match config.engine {
            MathUnit::Simt { thread, lanes } => {
                run = group(config).min(thread[1]);
                let row_run = group(config).min(thread[0]);
                let (r, c) = super::index::div_rem(f, lane, lanes[1]);
                (row, col) = (mul(f, r, row_run as i64), mul(f, c, run as i64));
                rows = own((0..thread[0] / row_run).collect(), lanes[0] * row_run, row_run);
                cols = own((0..thread[1] / run).collect(), lanes[1] * run, run);
            }
            MathUnit::Mma => {
                run = 2;
                let (g, t) = super::index::div_rem(f, lane, 4);
                (row, col) = (g, mul(f, t, 2));
                rows = (0..config.warp[0] / 8).map(|n| n * 8).collect();
                cols = own((0..config.warp[1] / 8).collect(), 8, 2);
            }
        }
        let row = mad(f, warp_row, config.warp[0] as i64, row);
        let col = mad(f, warp_col, config.warp[1] as i64, col);
        let class = Class::of(config.sum);
        let regs: Vec<Reg> = (0..rows.len() * cols.len()).map(|_| f.reg(class)).collect();
        for sum in &regs {
            if class == Class::F64 {
                ptx!(f, "mov.f64 {sum}, 0d0000000000000000");
            } else {
                ptx!(f, "mov.f32 {sum}, 0f00000000");
            }
        }
        Accumulators { row, col, rows, cols, run, warp, regs, lane }
    }

    /// The sum of a row and a column, by their numbers.
    pub(super) fn at(&self, row: usize, col: usize) -> Reg {
        self.regs[row * self.cols.len() + col]
    }

    /// Where this thread reads; `places` are those of the operands' tiles in a stage.
    pub(super) fn reader(
        &self,
        f: &mut PtxFunction,
        config: &Config,
        tiles: [TileLayout; 2],
        places: [usize; 2],
    ) -> FragmentReader {
        let of = |f: &mut PtxFunction, side: usize| -> Vec<Reg> {
            let tile = &tiles[side];
            let addresses = match config.engine {
                MathUnit::Simt { .. } => vec![mul(f, [self.row, self.col][side], tile.element.size() as i64)],
                MathUnit::Mma if !tile.swizzled => {
                    let (g, t) = super::index::div_rem(f, self.lane, 4);
                    let outer = mad(f, self.warp[side], config.warp[side] as i64, g);
                    let outer = mul(f, outer, 4);
                    vec![tile.place(f, t, outer)]
                }
                MathUnit::Mma => self.pieces(f, config, tile, side),
            };
            addresses.into_iter().map(|address| add(f, address, places[side] as i64)).collect()
        };
        let (a, b) = (of(f, 0), of(f, 1));
        FragmentReader { a, b, tiles }
    }

    /// The pieces of 16 bytes that this lane names to `ldmatrix`: one address for each 32 bytes of the sums' index if
    /// lines run along it, else one for each 16 rows or columns.
    fn pieces(&self, f: &mut PtxFunction, config: &Config, tile: &TileLayout, side: usize) -> Vec<Reg> {
        // Lane l names row l % 8 of matrix l / 8. The four matrices are two pieces of 8 rows by two halves of the step;
        // rows change first for the left operand, halves for the right one.
        let row = and(f, self.lane, 7);
        let matrix = div(f, self.lane, 8);
        let (high, low) = (div(f, matrix, 2), and(f, matrix, 1));
        let (part, half) = if side == 0 { (low, high) } else { (high, low) };
        let size = tile.element.size();
        if tile.along_k {
            let outer = mad(f, part, 8, row);
            let outer = mad(f, self.warp[side], config.warp[side] as i64, outer);
            let byte = mul(f, half, 16);
            return (0..config.depth * size / 32)
                .map(|step| {
                    let byte = add(f, byte, step as i64 * 32);
                    tile.place(f, outer, byte)
                })
                .collect();
        }
        let k = mad(f, half, 8, row);
        let first = mul(f, self.warp[side], (config.warp[side] * size) as i64);
        let first = mad(f, part, 16, first);
        (0..config.warp[side] / 16)
            .map(|n| {
                let byte = add(f, first, n as i64 * 32);
                tile.place(f, k, byte)
            })
            .collect()
    }

    /// Adds the products of the stage at the shared address `stage`, in the order of the sums' index.
    pub(super) fn multiply(&self, f: &mut PtxFunction, config: &Config, reader: &FragmentReader, stage: Reg) {
        let a: Vec<Reg> = reader.a.iter().map(|part| sum(f, stage, *part)).collect();
        let b: Vec<Reg> = reader.b.iter().map(|part| sum(f, stage, *part)).collect();
        match config.engine {
            MathUnit::Simt { .. } => self.multiply_simt(f, config, reader, a[0], b[0]),
            MathUnit::Mma => {
                for step in 0..config.depth * config.element.size() / 32 {
                    self.step_mma(f, config, &reader.tiles, step, [&a, &b]);
                }
            }
        }
    }

    fn multiply_simt(&self, f: &mut PtxFunction, config: &Config, reader: &FragmentReader, a: Reg, b: Reg) {
        let size = config.element.size();
        let read = |f: &mut PtxFunction, base: Reg, distances: &[usize], pitch: usize, k: usize| -> Vec<Reg> {
            let mut regs: Vec<Reg> = Vec::new();
            while regs.len() < distances.len() {
                let start = distances[regs.len()];
                let run = distances[regs.len()..].iter().zip(start..).take_while(|(d, at)| **d == *at).count();
                let run = run.min(group(config));
                let part: Vec<Reg> = (0..run).map(|_| f.reg(Class::of(config.element))).collect();
                let from = Address::new(base, (k * pitch + start * size) as i64);
                let ty = if size == 8 { "f64" } else { "f32" };
                ptx!(f, "ld.shared{} {}, {from}", vector(&part, ty), list(&part));
                regs.extend(part);
            }
            regs
        };
        let ty = if size == 8 { "f64" } else { "f32" };
        for k in 0..config.depth {
            let x = read(f, a, &self.rows, reader.tiles[0].pitch, k);
            let y = read(f, b, &self.cols, reader.tiles[1].pitch, k);
            for (row, x) in x.iter().enumerate() {
                for (col, y) in y.iter().enumerate() {
                    let sum = self.at(row, col);
                    ptx!(f, "fma.rn.{ty} {sum}, {x}, {y}, {sum}");
                }
            }
        }
    }

    /// A step of 32 bytes along the sums.
    fn step_mma(&self, f: &mut PtxFunction, config: &Config, tiles: &[TileLayout; 2], step: usize, bases: [&[Reg]; 2]) {
        let fragments = |f: &mut PtxFunction, side: usize| -> Vec<[Reg; 4]> {
            (0..config.warp[side] / 16)
                .map(|n| {
                    let regs = match tiles[side].swizzled {
                        true => load_matrices(f, &tiles[side], bases[side], step, n),
                        false => load_words(f, &tiles[side], bases[side][0], step, n, side),
                    };
                    if config.element == DType::F32 { regs.map(|x| tf32(f, x)) } else { regs }
                })
                .collect()
        };
        let (x, y) = (fragments(f, 0), fragments(f, 1));
        for (i, x) in x.iter().enumerate() {
            for j in 0..config.warp[1] / 8 {
                let y = &y[j / 2][j % 2 * 2..][..2];
                let acc = [
                    self.at(2 * i, 2 * j),
                    self.at(2 * i, 2 * j + 1),
                    self.at(2 * i + 1, 2 * j),
                    self.at(2 * i + 1, 2 * j + 1),
                ];
                mma(f, config.element, &acc, x, y);
            }
        }
    }
}

/// Neighbours that a thread reads at once from shared memory.
fn group(config: &Config) -> usize {
    16 / config.element.size()
}

/// Four matrices of 8 rows by 16 bytes: 16 rows or columns, number `n` of the warp's, by 32 bytes along the sums.
fn load_matrices(f: &mut PtxFunction, tile: &TileLayout, bases: &[Reg], step: usize, n: usize) -> [Reg; 4] {
    let regs: [Reg; 4] = f.regs(Class::B32);
    let (base, distance, how) = if tile.along_k {
        (bases[step], n * 16 * tile.pitch, "")
    } else {
        (bases[n], step * 16 * tile.pitch, ".trans")
    };
    let from = Address::new(base, distance as i64);
    ptx!(f, "ldmatrix.sync.aligned.m8n8.x4{how}.shared.b16 {}, {from}", list(&regs));
    regs
}

/// The same of words in lines across the sums, one by one.
fn load_words(f: &mut PtxFunction, tile: &TileLayout, base: Reg, step: usize, n: usize, side: usize) -> [Reg; 4] {
    std::array::from_fn(|matrix| {
        let (part, half) = if side == 0 { (matrix % 2, matrix / 2) } else { (matrix / 2, matrix % 2) };
        let distance = (step * 8 + half * 4) * tile.pitch + (n * 16 + part * 8) * 4;
        f.op(Class::B32, "ld.shared.b32", format_args!("{}", Address::new(base, distance as i64)))
    })
}

/// A number in single precision, rounded to what tensor cores read of it.
fn tf32(f: &mut PtxFunction, x: Reg) -> Reg {
    let float = f.op(Class::F32, "mov.b32", format_args!("{x}"));
    f.op(Class::B32, "cvt.rna.tf32.f32", format_args!("{float}"))
}

/// Adds the product of 16 rows by 8 columns, over 32 bytes along the sums.
fn mma(f: &mut PtxFunction, element: DType, acc: &[Reg; 4], x: &[Reg; 4], y: &[Reg]) {
    let d = list(acc);
    let (shape, ty) = match element {
        DType::F32 => ("m16n8k8", "tf32"),
        DType::Bf16 => ("m16n8k16", "bf16"),
        DType::F16 | DType::F64 | DType::I32 | DType::I64 | DType::U32 | DType::U8 | DType::Bool => ("m16n8k16", "f16"),
    };
    if element == DType::F16 && f.target().sm < 80 {
        f.require(6, 5);
        for half in 0..2 {
            let x = list(&x[half * 2..][..2]);
            ptx!(f, "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {d}, {x}, {{{}}}, {d}", y[half]);
        }
        return;
    }
    ptx!(f, "mma.sync.aligned.{shape}.row.col.f32.{ty}.{ty}.f32 {d}, {}, {}, {d}", list(x), list(y));
}

/// A register that names where a stage begins.
pub(super) fn ring(f: &mut PtxFunction, start: Reg) -> Reg {
    let stage = number(f, 0);
    ptx!(f, "mov.u32 {stage}, {start}");
    stage
}
