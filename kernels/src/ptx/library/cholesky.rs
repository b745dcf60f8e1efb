//! Cholesky factors by panels of 32 columns, one launch a panel, with the operations of the textbook in their order.
//!
//! A block makes one tile of a panel. It takes from A what the panels before contribute, to its own tile and to the
//! diagonal tile, which all blocks factor for themselves, and eliminates both together as one matrix of 64 rows. So no
//! block waits for another. All launches share one kernel: the number of blocks tells the number of the panel.

use super::{BLOCK, KernelWriter, NumberType, Order};
use crate::library::Cholesky;
use crate::ptx::{Argument, Class, Launches, Reg, Target, grid};
use retape_runtime::{DType, Scalar};

/// Rows and columns of a tile.
const TILE: usize = 32;
/// Elements from a row of a tile in shared memory to the next; odd, so that columns lie in different banks.
const PITCH: usize = TILE + 1;
/// Rows of a tile from one element of a thread to its next.
const STEP: usize = BLOCK as usize / TILE;
/// Columns of the panels before that are unrolled.
const UNROLLED: usize = 8;

/// The launches of [`Cholesky`].
pub(in crate::ptx) fn cholesky(kernel: &Cholesky, target: Target) -> Launches {
    let Cholesky { dtype, batch, n } = *kernel;
    if batch * n == 0 {
        return Launches::default();
    }
    let (panels, arguments) = (n.div_ceil(TILE), [Argument::Operand(0), Argument::Operand(1)]);
    let mut c =
        KernelWriter::new("cholesky", target, BLOCK, 2, (batch * n * n).max(batch * panels) + (n + TILE) * TILE);
    Panel::new(&mut c, NumberType(dtype), batch, n).emit(&mut c);
    let first = c.launch(batch * panels, BLOCK, &arguments);
    let launches = (0..panels).map(|panel| {
        let mut launch = first.clone();
        launch.grid = grid([batch * (panels - panel), 1, 1]);
        launch
    });
    Launches { launches: launches.collect(), scratch: 0 }
}

/// NaN of a dtype.
fn nan(number: NumberType) -> Scalar {
    let bits = if number.0 == DType::F32 { u64::from(f32::NAN.to_bits()) } else { f64::NAN.to_bits() };
    Scalar { dtype: number.0, bits }
}

/// The registers of a block's threads. Tiles are given by their first row or column.
struct Panel {
    number: NumberType,
    n: usize,
    a: Reg,
    out: Reg,
    /// The first element of the matrix.
    origin: Reg,
    /// The panel and the own tile.
    panel: Reg,
    own: Reg,
    /// The column of the thread in tiles, and its first row.
    x: Reg,
    y: Reg,
    /// In shared memory: the diagonal tile above the own one, and a column of both.
    tiles: Reg,
    column: Reg,
}

impl Panel {
    fn new(c: &mut KernelWriter, number: NumberType, batch: usize, n: usize) -> Panel {
        let (a, out) = (c.param(0), c.param(1));
        let (block, n_blocks, thread) = (c.block(), c.n_blocks(), c.thread());
        let (block, n_blocks) = (c.widen(block), c.widen(n_blocks));
        let (tile, matrix) = c.div_rem(block, batch);
        let origin = c.mul(matrix, n * n);
        let left = c.div(n_blocks, batch);
        let panels = c.number(n.div_ceil(TILE));
        let panel = c.sub(panels, left);
        let panel = c.mul(panel, TILE);
        let own = c.mad(tile, TILE, panel);
        let (y, x) = c.div_rem(thread, TILE);
        let tiles = c.shared_memory("tiles", 2 * TILE * PITCH * number.size());
        let column = c.shared_memory("column", 2 * TILE * number.size());
        Panel { number, n, a, out, origin, panel, own, x, y, tiles, column }
    }

    /// The address of an element of the tiles in shared memory.
    fn shared(&self, c: &mut KernelWriter, row: Reg, column: Reg) -> Reg {
        let at = c.mad(row, PITCH, column);
        c.shared_at(self.tiles, at, self.number.size())
    }

    /// The address of an element of a matrix.
    fn global(&self, c: &mut KernelWriter, matrix: Reg, row: Reg, column: Reg) -> Reg {
        let at = c.mad(row, self.n, column);
        let at = c.add(at, self.origin);
        c.at(matrix, at, self.number.size())
    }

    /// The rows of the matrix of the thread's elements in both tiles.
    fn rows(&self, c: &mut KernelWriter) -> Vec<Reg> {
        let y = c.widen(self.y);
        let firsts = [self.panel, self.own];
        let each = firsts.into_iter().flat_map(|first| (0..TILE).step_by(STEP).map(move |step| (first, step)));
        each.map(|(first, step)| {
            let row = c.add(y, step);
            c.add(row, first)
        })
        .collect()
    }

    /// The rows of the thread's elements in shared memory, of 32 bits.
    fn shared_rows(&self, c: &mut KernelWriter) -> Vec<Reg> {
        (0..2 * TILE).step_by(STEP).map(|step| c.add(self.y, step)).collect()
    }

    /// An element if it exists.
    fn load_if(&self, c: &mut KernelWriter, exists: Reg, matrix: Reg, row: Reg, column: Reg) -> Reg {
        let value = c.constant(self.number.small(0));
        let from = self.global(c, matrix, row, column);
        c.if_then(exists, |c| {
            let found = c.load(self.number, from, 0);
            c.set(value, found);
        });
        value
    }

    fn emit(&self, c: &mut KernelWriter) {
        let x = c.widen(self.x);
        let column = c.add(x, self.panel);
        let rows = self.rows(c);
        let mut values = Vec::new();
        for row in &rows {
            let (row_exists, column_exists) = (c.test("lt", *row, self.n), c.test("lt", column, self.n));
            let exists = c.and(row_exists, column_exists);
            let value = self.load_if(c, exists, self.a, *row, column);
            // Beyond the matrix the diagonal is 1, and the rest 0.
            let on_diagonal = c.test("eq", *row, column);
            let beyond = c.not(exists);
            let padded = c.and(on_diagonal, beyond);
            let one = c.constant(self.number.small(1));
            values.push(c.select(padded, one, value));
        }
        let start = c.number(0);
        c.count(start, self.panel, TILE, |c, before| self.subtract_before(c, before, &rows, &values));
        for (row, value) in self.shared_rows(c).into_iter().zip(values) {
            let to = self.shared(c, row, self.x);
            c.store_shared(self.number, to, 0, value);
        }
        c.barrier();
        self.eliminate(c);
        self.store(c, &rows, column);
    }

    /// Subtracts what a panel before contributes to the thread's elements.
    fn subtract_before(&self, c: &mut KernelWriter, before: Reg, rows: &[Reg], values: &[Reg]) {
        let x = c.widen(self.x);
        let column = c.add(x, before);
        let shared_rows = self.shared_rows(c);
        for (row, shared_row) in rows.iter().zip(&shared_rows) {
            let exists = c.test("lt", *row, self.n);
            let value = self.load_if(c, exists, self.out, *row, column);
            let to = self.shared(c, *shared_row, self.x);
            c.store_shared(self.number, to, 0, value);
        }
        c.barrier();
        let zero = c.op(Class::B32, "mov.b32", format_args!("0"));
        c.count(zero, TILE, UNROLLED, |c, k| {
            // The thread's column of the panel is that row of the diagonal tile.
            let across = self.shared(c, self.x, k);
            let down: Vec<Reg> = shared_rows.iter().map(|row| self.shared(c, *row, k)).collect();
            for k in 0..UNROLLED {
                let offset = k * self.number.size();
                let other = c.load_shared(self.number, across, offset);
                for (down, value) in down.iter().zip(values) {
                    let factor = c.load_shared(self.number, *down, offset);
                    let product = c.times(self.number, factor, other);
                    let rest = c.minus(self.number, *value, product);
                    c.set(*value, rest);
                }
            }
        });
        c.barrier();
    }

    /// Factors the diagonal tile and eliminates the own one, column by column.
    fn eliminate(&self, c: &mut KernelWriter) {
        let thread = c.thread();
        let zero = c.op(Class::B32, "mov.b32", format_args!("0"));
        let shared_rows = self.shared_rows(c);
        c.count(zero, TILE, 1, |c, k| {
            let has_row = c.test("lt", thread, 2 * TILE);
            c.if_then(has_row, |c| {
                let from = self.shared(c, k, k);
                let pivot = c.load_shared(self.number, from, 0);
                let zero = c.constant(self.number.small(0));
                let positive = c.compare(Order::Greater, self.number, pivot, zero);
                let (root, nan) = (c.root(self.number, pivot), c.constant(nan(self.number)));
                let root = c.select(positive, root, nan);
                let from = self.shared(c, thread, k);
                let value = c.load_shared(self.number, from, 0);
                let quotient = c.quotient(self.number, value, root);
                let is_pivot = c.test("eq", thread, k);
                let value = c.select(is_pivot, root, quotient);
                let to = c.shared_at(self.column, thread, self.number.size());
                c.store_shared(self.number, to, 0, value);
            });
            c.barrier();
            let from = c.shared_at(self.column, self.x, self.number.size());
            let other = c.load_shared(self.number, from, 0);
            let (is_done, is_new) = (c.test("lt", self.x, k), c.test("eq", self.x, k));
            let is_left = c.not(is_done);
            c.if_then(is_left, |c| {
                for row in &shared_rows {
                    let from = c.shared_at(self.column, *row, self.number.size());
                    let factor = c.load_shared(self.number, from, 0);
                    let at = self.shared(c, *row, self.x);
                    let value = c.load_shared(self.number, at, 0);
                    let product = c.times(self.number, factor, other);
                    let rest = c.minus(self.number, value, product);
                    let value = c.select(is_new, factor, rest);
                    c.store_shared(self.number, at, 0, value);
                }
            });
            c.barrier();
        });
    }

    /// Stores the own tile, and zeros where it would lie above the diagonal.
    fn store(&self, c: &mut KernelWriter, rows: &[Reg], column: Reg) {
        let n_rows = rows.len() / 2;
        let shared_rows = self.shared_rows(c);
        let is_diagonal = c.test("eq", self.own, self.panel);
        let x = c.widen(self.x);
        let opposite = c.add(x, self.own);
        let zero = c.constant(self.number.small(0));
        for i in 0..n_rows {
            let shared_row = c.select(is_diagonal, shared_rows[i], shared_rows[n_rows + i]);
            let from = self.shared(c, shared_row, self.x);
            let value = c.load_shared(self.number, from, 0);
            let row = rows[n_rows + i];
            let above = c.test("gt", column, row);
            let value = c.select(above, zero, value);
            let store = |c: &mut KernelWriter, row: Reg, column: Reg, value: Reg| {
                let (row_exists, column_exists) = (c.test("lt", row, self.n), c.test("lt", column, self.n));
                let exists = c.and(row_exists, column_exists);
                let to = self.global(c, self.out, row, column);
                c.if_then(exists, |c| c.store(self.number, to, 0, value));
            };
            store(c, row, column, value);
            let is_below = c.not(is_diagonal);
            c.if_then(is_below, |c| store(c, rows[i], opposite, zero));
        }
    }
}
