//! From global to shared memory: each thread copies a few vectors of each tile.
//!
//! Addresses that do not depend on the step of the sums are computed once: for each row that a thread reads, an address
//! and the row's part of the window coordinates. A step adds the part of the sums' index, whose digits are found by
//! multiplications where there is more than one. Elements outside are filled with zeros, and not read.
//!
//! Copies are asynchronous where the device has that and the bytes need not change: a stage is then a few steps ahead.
//! Other copies pass through registers: they are read before the arithmetic of a step and written after it.

use smallvec::SmallVec;

use super::index::{Address, add, advance, and, below, both, digits, div, mul, number, reach, shift, sum, wide};
use super::problem::{Digit, Gather};
use super::tile::TileLayout;
use super::vector::{elements, fetch, store_shared};
use crate::ptx::{Class, PtxFunction, Reg, ptx};

/// The stand-in for a window coordinate of a row or a step that does not exist: no sum of them is a coordinate.
const NO_ROW: i64 = 0x8000_0000;
const NO_STEP: i64 = 0xc000_0000;

/// One copy of a vector.
struct VectorCopy {
    /// The row and the step, as numbers in the lists of those of the thread.
    outer: usize,
    k: usize,
    /// Where to, from the start of the stage.
    place: Address,
}

/// A row of the operand that a thread reads.
struct OperandRow {
    distance: usize,
    address: Address,
    windows: SmallVec<[Reg; 2]>,
}

/// A step of the sums that a thread reads.
#[derive(Default)]
struct Depth {
    holds: Option<Reg>,
    address: Option<Reg>,
    windows: SmallVec<[Reg; 2]>,
}

/// The copies of one operand's tiles.
pub(super) struct Loader<'a> {
    gather: &'a Gather,
    tile: TileLayout,
    vec: usize,
    /// Whether vectors lie along the sums.
    along_k: bool,
    pub(super) is_async: bool,
    passes: Vec<VectorCopy>,
    /// Whether the thread has anything to copy.
    active: Option<Reg>,
    /// First row, and the step of the coming tile.
    outer: Reg,
    k: Reg,
    rows: Vec<OperandRow>,
    steps: Vec<usize>,
    /// Rows and steps that exist, where that has to be looked at.
    n_outer: Option<usize>,
    n_k: Option<usize>,
    staged: Vec<Vec<Reg>>,
}

/// Where a block's tile begins.
pub(super) struct Start {
    /// The operand's first element of this product.
    pub(super) pointer: Reg,
    /// First row (or column) and first step of the sums.
    pub(super) outer: Reg,
    pub(super) k: Reg,
    /// Rows and steps in all.
    pub(super) n_outer: usize,
    pub(super) n_k: usize,
    /// The tile's place in a stage.
    pub(super) place: usize,
}

impl<'a> Loader<'a> {
    /// Computes what does not change from tile to tile.
    pub(super) fn begin(
        f: &mut PtxFunction,
        gather: &'a Gather,
        tile: TileLayout,
        threads: usize,
        start: &Start,
    ) -> Self {
        let grain = gather.grain();
        let (vec, along_k) = (grain.vec, grain.along_k);
        let same = gather.dtype == tile.element;
        let is_async =
            f.target().sm >= 80 && same && vec * gather.dtype.size() >= 4 && (vec == 1 || along_k == tile.along_k);
        let (along, across) = if along_k { (tile.depth, tile.outer) } else { (tile.outer, tile.depth) };
        let n_vecs = along / vec;
        let total = n_vecs * across;
        let thread = super::index::special(f, "tid.x");
        let active = (total < threads).then(|| below(f, thread, total));
        // Where this thread begins, and how much further each of its copies is.
        let (at, line) = if threads >= n_vecs {
            (and(f, thread, n_vecs - 1), div(f, thread, n_vecs))
        } else {
            (thread, number(f, 0))
        };
        let at = mul(f, at, vec as i64);
        let own = if along_k { [line, at] } else { [at, line] };
        let deltas: Vec<[usize; 2]> = (0..total.div_ceil(threads))
            .map(|pass| {
                let (at, line) = match n_vecs / threads {
                    0 => (0, pass * (threads / n_vecs)),
                    repeat => (pass % repeat * threads * vec, pass / repeat),
                };
                if along_k { [line, at] } else { [at, line] }
            })
            .collect();
        let passes = places(f, &tile, own, &deltas, start.place);
        let mut loader = Loader {
            gather,
            tile,
            vec,
            along_k,
            is_async,
            passes,
            active,
            outer: sum(f, start.outer, own[0]),
            k: f.reg(Class::B32),
            rows: Vec::new(),
            steps: distinct(deltas.iter().map(|d| d[1])),
            n_outer: (!start.n_outer.is_multiple_of(tile.outer)).then_some(start.n_outer),
            n_k: (!start.n_k.is_multiple_of(tile.depth)).then_some(start.n_k),
            staged: Vec::new(),
        };
        ptx!(f, "add.s32 {}, {}, {}", loader.k, start.k, own[1]);
        loader.rows(f, start.pointer, &distinct(deltas.iter().map(|d| d[0])));
        for (pass, delta) in loader.passes.iter_mut().zip(&deltas) {
            pass.outer = loader.rows.iter().position(|row| row.distance == delta[0]).unwrap_or(0);
            pass.k = loader.steps.iter().position(|step| *step == delta[1]).unwrap_or(0);
        }
        loader
    }

    /// Addresses and coordinates of the thread's rows.
    fn rows(&mut self, f: &mut PtxFunction, pointer: Reg, distances: &[usize]) {
        let gather = self.gather;
        let size = gather.dtype.size() as i64;
        let mut base = shift(f, pointer, gather.offset * size);
        if gather.is_affine_in_k() {
            let moving = f.reg(Class::B64);
            let start = reach(f, base, self.k, gather.inner[0].stride * size);
            ptx!(f, "mov.b64 {moving}, {start}");
            base = moving;
        }
        if gather.is_affine() {
            let stride = gather.outer[0].stride * size;
            let start = reach(f, base, self.outer, stride);
            if start != base {
                ptx!(f, "mov.b64 {base}, {start}");
            }
            for &distance in distances {
                let step = distance as i64 * stride;
                let near = step.abs() < 1 << 30;
                let address = if near { Address::new(base, step) } else { Address::new(shift(f, base, step), 0) };
                self.rows.push(OperandRow { distance, address, windows: SmallVec::new() });
            }
            return;
        }
        for &distance in distances {
            let index = add(f, self.outer, distance as i64);
            let own = digits(f, index, gather.outer.iter().map(|digit| digit.extent));
            let address = gather
                .outer
                .iter()
                .zip(&own)
                .fold(base, |at, (digit, value)| reach(f, at, *value, digit.stride * size));
            let mut windows: SmallVec<[Reg; 2]> = SmallVec::new();
            for (n, window) in gather.windows.iter().enumerate() {
                let mut t = mul(f, own[window.outer.0], window.outer.1);
                t = add(f, t, window.offset);
                if let (0, Some(extent)) = (n, self.n_outer) {
                    let holds = below(f, index, extent);
                    t = f.op(Class::B32, "selp.b32", format_args!("{t}, {NO_ROW}, {holds}"));
                }
                windows.push(t);
            }
            self.rows.push(OperandRow { distance, address: Address::new(address, 0), windows });
        }
    }

    /// The parts of addresses and windows that the coming tile's steps add.
    fn depths(&self, f: &mut PtxFunction) -> Vec<Depth> {
        let gather = self.gather;
        let size = gather.dtype.size() as i64;
        let mut depths = Vec::new();
        for &step in &self.steps {
            let mut depth = Depth::default();
            let index =
                if gather.is_affine_in_k() && self.n_k.is_none() { self.k } else { add(f, self.k, step as i64) };
            let holds = self.n_k.map(|n| below(f, index, n));
            if gather.is_affine_in_k() {
                depth.holds = holds;
                depths.push(depth);
                continue;
            }
            let own = digits(f, index, gather.inner.iter().map(|digit| digit.extent));
            for (Digit { stride, .. }, value) in gather.inner.iter().zip(&own) {
                depth.address = match depth.address {
                    None => Some(wide(f, *value, stride * size)),
                    Some(so_far) => Some(reach(f, so_far, *value, stride * size)),
                };
            }
            for (n, window) in gather.windows.iter().enumerate() {
                let t = mul(f, own[window.inner.0], window.inner.1);
                let t = match (n, holds) {
                    (0, Some(holds)) => f.op(Class::B32, "selp.b32", format_args!("{t}, {NO_STEP}, {holds}")),
                    _ => t,
                };
                depth.windows.push(t);
            }
            if gather.windows.is_empty() {
                depth.holds = holds;
            }
            depths.push(depth);
        }
        depths
    }

    /// The address of a vector and whether it exists.
    fn source(&self, f: &mut PtxFunction, pass: &VectorCopy, depth: &Depth) -> (Address, Option<Reg>) {
        let (gather, row) = (self.gather, &self.rows[pass.outer]);
        let size = gather.dtype.size() as i64;
        let mut holds = depth.holds;
        if let (Some(n), true) = (self.n_outer, gather.windows.is_empty()) {
            let limit = n as i64 - row.distance as i64;
            let inside = f.op(Class::Pred, "setp.lt.s32", format_args!("{}, {limit}", self.outer));
            holds = both(f, holds, Some(inside));
        }
        let mut address = match depth.address {
            None => {
                let from = row.address.beyond(self.steps[pass.k] as i64 * gather.inner[0].stride * size);
                // An offset beside a register has 32 bits.
                match i32::try_from(from.distance) {
                    Ok(_) => from,
                    Err(_) => Address::new(shift(f, from.base, from.distance), 0),
                }
            }
            Some(part) => {
                let near = row.address.base;
                Address::new(f.op(Class::B64, "add.s64", format_args!("{near}, {part}")), row.address.distance)
            }
        };
        for (n, window) in gather.windows.iter().enumerate() {
            let t = sum(f, row.windows[n], depth.windows[n]);
            let inside = below(f, t, window.extent * window.div);
            holds = both(f, holds, Some(inside));
            if window.div > 1 {
                let (quotient, rest) = super::index::div_rem(f, t, window.div);
                let on_grid = f.op(Class::Pred, "setp.eq.u32", format_args!("{rest}, 0"));
                holds = both(f, holds, Some(on_grid));
                address.base = reach(f, address.base, quotient, window.stride * size);
            }
        }
        (address, both(f, holds, self.active))
    }

    /// Starts the copies of the coming tile to the stage at the shared address `stage`, and moves on.
    pub(super) fn issue(&mut self, f: &mut PtxFunction, stage: Reg) {
        let depths = self.depths(f);
        let bytes = self.vec * self.gather.dtype.size();
        let mut staged = Vec::new();
        for pass in &self.passes {
            let (from, holds) = self.source(f, pass, &depths[pass.k]);
            if self.is_async {
                let to = Address::new(sum(f, stage, pass.place.base), pass.place.distance);
                let kind = if bytes == 16 { "cg" } else { "ca" };
                let guard = self.active.map_or(String::new(), |active| format!("@{active} "));
                match holds {
                    Some(holds) if Some(holds) != self.active => {
                        let n = f.op(Class::B32, "selp.b32", format_args!("{bytes}, 0, {holds}"));
                        ptx!(f, "{guard}cp.async.{kind}.shared.global {to}, {from}, {bytes}, {n}");
                    }
                    _ => ptx!(f, "{guard}cp.async.{kind}.shared.global {to}, {from}, {bytes}"),
                }
            } else {
                staged.push(fetch(f, from, holds, bytes, self.gather.dtype));
            }
        }
        self.staged = staged;
        self.advance(f);
    }

    /// Moves to the next tile.
    fn advance(&self, f: &mut PtxFunction) {
        let depth = self.tile.depth as i64;
        if !self.gather.is_affine_in_k() || self.n_k.is_some() {
            advance(f, self.k, depth);
        }
        if self.gather.is_affine_in_k() {
            let step = depth * self.gather.inner[0].stride * self.gather.dtype.size() as i64;
            for base in distinct(self.rows.iter().map(|row| row.address.base)) {
                advance(f, base, step);
            }
        }
    }

    /// Writes what `issue` read into registers.
    pub(super) fn settle(&mut self, f: &mut PtxFunction, stage: Reg) {
        let same = self.gather.dtype == self.tile.element && (self.vec == 1 || self.along_k == self.tile.along_k);
        for (pass, units) in self.passes.iter().zip(std::mem::take(&mut self.staged)) {
            let to = Address::new(sum(f, stage, pass.place.base), pass.place.distance);
            let guard = self.active.map_or(String::new(), |active| format!("@{active} "));
            if same {
                store_shared(f, &guard, to, &units);
                continue;
            }
            let step = if self.along_k == self.tile.along_k { self.tile.element.size() } else { self.tile.pitch };
            for (n, element) in elements(f, &units, self.gather.dtype, self.tile.element).into_iter().enumerate() {
                store_shared(f, &guard, to.beyond((n * step) as i64), &[element]);
            }
        }
    }
}

/// Where each copy goes; the rows and steps are filled in later.
fn places(
    f: &mut PtxFunction,
    tile: &TileLayout,
    own: [Reg; 2],
    deltas: &[[usize; 2]],
    start: usize,
) -> Vec<VectorCopy> {
    let mut known: Vec<([usize; 2], Reg)> = Vec::new();
    let size = tile.element.size();
    let in_line = |[outer, k]: [usize; 2]| if tile.along_k { (outer, k * size) } else { (k, outer * size) };
    let mut passes = Vec::new();
    for &delta in deltas {
        let (line, byte) = in_line(delta);
        let near = known.iter().find_map(|(from, base)| {
            let (from_line, from_byte) = in_line(*from);
            let distance = tile.distance(line.checked_sub(from_line)?, byte.checked_sub(from_byte)?)?;
            Some(Address::new(*base, distance))
        });
        let mut place = near.unwrap_or_else(|| {
            let (line, byte) = tile.line_of(f, own, delta);
            let base = tile.place(f, line, byte);
            known.push((delta, base));
            Address::new(base, 0)
        });
        place.distance += start as i64;
        passes.push(VectorCopy { outer: 0, k: 0, place });
    }
    passes
}

/// The different values, in order of first appearance.
fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for value in values {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}
