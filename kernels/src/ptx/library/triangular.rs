//! Triangular systems: a block per 32 right-hand sides, which it solves by tiles of 32 unknowns.
//!
//! Unknowns are counted in the order in which they can be solved. The terms of those solved are subtracted one by one
//! in that order, as on the CPU.

use super::{BLOCK, KernelWriter, NumberType};
use crate::library::TriangularSolve;
use crate::ptx::{Argument, Class, Launches, Reg, Target};

/// Unknowns and right-hand sides of a tile.
const TILE: usize = 32;
/// Elements from a row of a tile in shared memory to the next.
const PITCH: usize = TILE + 1;
/// Rows of a tile from one element of a thread to its next.
const STEP: usize = BLOCK as usize / TILE;

/// The launches of [`TriangularSolve`].
pub(in crate::ptx) fn triangular_solve(kernel: &TriangularSolve, target: Target) -> Launches {
    let TriangularSolve { dtype, batch, n, n_rhs, .. } = *kernel;
    if batch * n * n_rhs == 0 {
        return Launches::default();
    }
    let largest = (batch * n * n).max(batch * (n + TILE) * (n_rhs + TILE));
    let mut c = KernelWriter::new("triangular_solve", target, BLOCK, 3, largest);
    System::new(&mut c, kernel, NumberType(dtype)).emit(&mut c);
    let blocks = batch * n_rhs.div_ceil(TILE);
    Launches { launches: vec![c.launch(blocks, BLOCK, &[0, 1, 2].map(Argument::Operand))], scratch: 0 }
}

/// The registers of a block's threads.
struct System<'k> {
    kernel: &'k TriangularSolve,
    number: NumberType,
    a: Reg,
    b: Reg,
    out: Reg,
    /// The first elements of A and of B.
    origin: Reg,
    rhs_origin: Reg,
    /// The right-hand side of the thread, and whether it exists.
    column: Reg,
    exists: Reg,
    /// The column of the thread in tiles, and its first row.
    x: Reg,
    y: Reg,
    /// In shared memory: a tile of op(A) and solved unknowns.
    coefficients: Reg,
    solved: Reg,
}

impl<'k> System<'k> {
    fn new(c: &mut KernelWriter, kernel: &'k TriangularSolve, number: NumberType) -> System<'k> {
        let TriangularSolve { n, n_rhs, .. } = *kernel;
        let [a, b, out] = [0, 1, 2].map(|n| c.param(n));
        let (block, thread) = (c.block(), c.thread());
        let block = c.widen(block);
        let (system, tile) = c.div_rem(block, n_rhs.div_ceil(TILE));
        let (y, x) = c.div_rem(thread, TILE);
        let lane = c.widen(x);
        let column = c.mad(tile, TILE, lane);
        let exists = c.test("lt", column, n_rhs);
        let (origin, rhs_origin) = (c.mul(system, n * n), c.mul(system, n * n_rhs));
        let bytes = TILE * PITCH * number.size();
        let (coefficients, solved) = (c.shared_memory("coefficients", bytes), c.shared_memory("solved", bytes));
        System { kernel, number, a, b, out, origin, rhs_origin, column, exists, x, y, coefficients, solved }
    }

    /// The row of A's diagonal that the unknown number `i` belongs to.
    fn row(&self, c: &mut KernelWriter, i: Reg) -> Reg {
        if self.kernel.lower != self.kernel.transpose {
            return i;
        }
        let last = c.number(self.kernel.n - 1);
        c.sub(last, i)
    }

    /// The address of the element of a right-hand side or solution for an unknown.
    fn unknown(&self, c: &mut KernelWriter, array: Reg, i: Reg) -> Reg {
        let row = self.row(c, i);
        let at = c.mad(row, self.kernel.n_rhs, self.column);
        let at = c.add(at, self.rhs_origin);
        c.at(array, at, self.number.size())
    }

    /// A value that is loaded if it exists, else 0.
    fn load_if(&self, c: &mut KernelWriter, exists: Reg, from: Reg) -> Reg {
        let value = c.constant(self.number.small(0));
        c.if_then(exists, |c| {
            let found = c.load(self.number, from, 0);
            c.set(value, found);
        });
        value
    }

    /// The address of an element of a tile in shared memory.
    fn shared(&self, c: &mut KernelWriter, tile: Reg, row: Reg, column: Reg) -> Reg {
        let at = c.mad(row, PITCH, column);
        c.shared_at(tile, at, self.number.size())
    }

    /// The rows of a tile that a thread has, of 32 bits.
    fn rows(&self, c: &mut KernelWriter) -> Vec<Reg> {
        (0..TILE).step_by(STEP).map(|step| c.add(self.y, step)).collect()
    }

    /// Loads the tile of op(A) for unknowns from `first` and terms from `term` on. Of the diagonal tile only what is
    /// below the diagonal is loaded, and the diagonal if it counts.
    fn load_coefficients(&self, c: &mut KernelWriter, first: Reg, term: Reg, is_diagonal: bool) {
        let n = self.kernel.n;
        for y in self.rows(c) {
            // Neighbouring threads read neighbouring elements.
            let (row, column) = if self.kernel.transpose { (self.x, y) } else { (y, self.x) };
            let (wide_row, wide_column) = (c.widen(row), c.widen(column));
            let (i, j) = (c.add(first, wide_row), c.add(term, wide_column));
            let mut exists = c.test("lt", i, n);
            if is_diagonal {
                let op = if self.kernel.unit_diagonal { "gt" } else { "ge" };
                let below = c.test(op, i, j);
                exists = c.and(exists, below);
            }
            let (i, j) = (self.row(c, i), self.row(c, j));
            let (i, j) = if self.kernel.transpose { (j, i) } else { (i, j) };
            let at = c.mad(i, n, j);
            let at = c.add(at, self.origin);
            let from = c.at(self.a, at, self.number.size());
            let value = self.load_if(c, exists, from);
            let to = self.shared(c, self.coefficients, row, column);
            c.store_shared(self.number, to, 0, value);
        }
    }

    fn emit(&self, c: &mut KernelWriter) {
        let start = c.number(0);
        c.count(start, self.kernel.n, TILE, |c, first| {
            let mut unknowns = Vec::new();
            for y in self.rows(c) {
                let y = c.widen(y);
                let i = c.add(first, y);
                let exists = c.test("lt", i, self.kernel.n);
                let exists = c.and(exists, self.exists);
                let from = self.unknown(c, self.b, i);
                unknowns.push((i, exists, self.load_if(c, exists, from)));
            }
            let rests: Vec<Reg> = unknowns.iter().map(|unknown| unknown.2).collect();
            c.count(start, first, TILE, |c, term| self.subtract_terms(c, first, term, &rests));
            self.load_coefficients(c, first, first, true);
            c.barrier();
            self.solve(c, &rests);
            for (i, exists, value) in unknowns {
                let to = self.unknown(c, self.out, i);
                c.if_then(exists, |c| c.store(self.number, to, 0, value));
            }
            // Other threads read the stored values, and the tiles in shared memory are made anew.
            c.barrier();
        });
    }

    /// Subtracts the terms of the unknowns from `term` on, which are solved.
    fn subtract_terms(&self, c: &mut KernelWriter, first: Reg, term: Reg, rests: &[Reg]) {
        self.load_coefficients(c, first, term, false);
        for y in self.rows(c) {
            let wide = c.widen(y);
            let i = c.add(term, wide);
            let from = self.unknown(c, self.out, i);
            let value = self.load_if(c, self.exists, from);
            let to = self.shared(c, self.solved, y, self.x);
            c.store_shared(self.number, to, 0, value);
        }
        c.barrier();
        let rows = self.rows(c);
        let zero = c.op(Class::B32, "mov.b32", format_args!("0"));
        c.count(zero, TILE, 1, |c, k| {
            let from = self.shared(c, self.solved, k, self.x);
            let value = c.load_shared(self.number, from, 0);
            for (row, rest) in rows.iter().zip(rests) {
                self.subtract(c, *rest, *row, k, value);
            }
        });
        c.barrier();
    }

    /// Subtracts the term of unknown `k` of the tile from what is left for a row.
    fn subtract(&self, c: &mut KernelWriter, rest: Reg, row: Reg, k: Reg, value: Reg) {
        let from = self.shared(c, self.coefficients, row, k);
        let coefficient = c.load_shared(self.number, from, 0);
        let product = c.times(self.number, coefficient, value);
        let next = c.minus(self.number, rest, product);
        c.set(rest, next);
    }

    /// Solves the unknowns of a tile one after another, with the diagonal tile.
    fn solve(&self, c: &mut KernelWriter, rests: &[Reg]) {
        let rows = self.rows(c);
        for (turn, rest) in rests.iter().enumerate() {
            let zero = c.op(Class::B32, "mov.b32", format_args!("0"));
            c.count(zero, STEP, 1, |c, y| {
                let k = c.add(y, turn * STEP);
                let slot = self.shared(c, self.solved, k, self.x);
                let is_own = c.test("eq", self.y, y);
                c.if_then(is_own, |c| {
                    if !self.kernel.unit_diagonal {
                        let from = self.shared(c, self.coefficients, k, k);
                        let pivot = c.load_shared(self.number, from, 0);
                        let quotient = c.quotient(self.number, *rest, pivot);
                        c.set(*rest, quotient);
                    }
                    c.store_shared(self.number, slot, 0, *rest);
                });
                c.barrier();
                let value = c.load_shared(self.number, slot, 0);
                let is_after = c.test("gt", self.y, y);
                c.if_then(is_after, |c| self.subtract(c, *rest, rows[turn], k, value));
                for later in turn + 1..rests.len() {
                    self.subtract(c, rests[later], rows[later], k, value);
                }
            });
        }
    }
}
