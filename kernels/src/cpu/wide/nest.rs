//! A nest as it is emitted: the steps of its loop form as blocks of straight-line code.
//!
//! A value that other places use is in a slot of the frame for them. Values that do not depend on the vector axis are
//! made once, the others for each group: a vector at a fixed distance from the position.

use retape_runtime::{DType, Scalar};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::code::{Branch, Cell, Code, ElementAddress, RegClass, Virtual};
use super::emit::{VirtualRegs, WideEmitter, WideVal};
use super::encode::{Alu, Constant, Memory, RAX, RDI, RSP, Rm};
use super::memory::{StripSums, Tail};
use super::ops;
use super::positions::{PaddedRow, Positions, short_position};
use super::regs::Registers;
use super::strided::min_turned;
use crate::ir::{Affine, Binary, Compare, Inst, Kernel, Param, Store, ValueId, operation};
use crate::schedule::{
    FormPointer, Interleaved, LoopForm, LoopStep, NEAR, Nest, PermutedRows, Traversal, interleaved_loads,
    interleaved_stores,
};

/// Registers for pointers and counters.
const CELLS: [u8; 9] = [8, 9, 10, 11, 3, 5, 12, 13, 14];

/// Instructions of a kernel that stores elements far apart, at least.
const LEAST_SCATTERED: usize = 64;

/// A vector of an iteration.
#[derive(Clone, Copy, Debug)]
pub(super) struct VectorGroup {
    /// Its distance from the position, in elements.
    pub(super) offset: i32,
    /// The elements that it has, if it is not whole.
    pub(super) tail: Option<Tail>,
}

/// Emits one nest.
#[derive(Debug)]
pub(super) struct WideLoops<'a> {
    pub(super) e: WideEmitter,
    pub(super) nest: &'a Nest,
    pub(super) kernel: &'a Kernel,
    pub(super) form: &'a LoopForm<'a>,
    /// The vector axis, or the number of axes.
    pub(super) axis: usize,
    /// The form's pointers, which follow the loops.
    pub(super) pointers: Vec<Cell>,
    /// The counters of axes, as far as there are any.
    pub(super) counters: Vec<Option<Cell>>,
    pub(super) groups: Vec<VectorGroup>,
    pub(super) values: Vec<Option<WideVal>>,
    pub(super) group_values: Vec<Vec<Option<WideVal>>>,
    /// The row that is computed, of those side by side along the last axis.
    row: i32,
    /// The sums of each reduction.
    pub(super) accumulators: Vec<Vec<Virtual>>,
    /// Of each reduction, where its sums lie in the frame while they wait for the next row.
    pub(super) strips: Vec<StripSums>,
    /// Of each store, whether it goes past the caches.
    is_past: Vec<bool>,
    /// The loads at computed positions that read neighbours.
    positions: Positions,
    /// Of each value, whether it is one that no instruction needs.
    is_needless: Vec<bool>,
    /// Of parameters that are shorter than a vector and read at computed positions, their lengths, and the lanes that have
    /// an element.
    table_masks: Vec<(usize, Virtual)>,
    /// The place of vectors whose elements are stored one by one.
    scattered: Option<i32>,
    /// The stores that are one with others, and for the first of each and a group where its vectors wait, and how many.
    interleaved: Vec<Option<Interleaved>>,
    ways: FxHashMap<(usize, usize), (i32, usize)>,
    /// The loads that are one with others, and for the first of each and a group where its vectors are, and whether they are
    /// there in this body.
    turned: Vec<Option<Interleaved>>,
    columns: FxHashMap<(usize, usize), (i32, bool)>,
    /// The stores, if they are permutations of what is loaded.
    permuted: Option<PermutedRows>,
    free_cells: Vec<u8>,
}

impl<'a> WideLoops<'a> {
    /// Emits a nest for the grid items between the second and the third argument, which are all of them if it runs
    /// `whole`; its parameters start at `first` in the table, to which the first argument points. Stores that `is_past`
    /// names go past the caches where they are whole vectors.
    pub(super) fn emit(
        e: WideEmitter,
        (nest, form): (&'a Nest, &'a LoopForm<'a>),
        first: usize,
        whole: bool,
        is_past: Vec<bool>,
    ) -> Option<WideEmitter> {
        let kernel = &nest.kernel;
        is_within_reach(nest, form.axis).then_some(())?;
        let positions = Positions::of(form, e.level.has_masks());
        // With masks there are permutations of two vectors, by which few columns become whole vectors.
        let least = min_turned(e.level);
        let interleaved = interleaved_stores(kernel, form.axis, if e.level.has_masks() { 2 } else { least });
        (!scatters_most(nest, form.axis, &interleaved)).then_some(())?;
        let turned = interleaved_loads(kernel, form.axis, least);
        let permuted = form.axis.and_then(|axis| PermutedRows::of(kernel, axis, e.level.lanes()));
        let mut loops = WideLoops {
            e,
            nest,
            kernel,
            form,
            axis: form.axis.unwrap_or(kernel.axes.len()),
            pointers: vec![],
            counters: vec![None; kernel.axes.len()],
            groups: vec![],
            values: vec![None; kernel.insts.len()],
            group_values: vec![],
            row: 0,
            accumulators: vec![],
            strips: vec![],
            is_past,
            is_needless: needless(form, &positions),
            positions,
            table_masks: vec![],
            scattered: None,
            interleaved,
            ways: FxHashMap::default(),
            turned,
            columns: FxHashMap::default(),
            permuted,
            free_cells: CELLS.iter().rev().copied().collect(),
        };
        loops.point(first);
        loops.make_table_masks();
        let columns = loops.columns_of_tile(first);
        loops.steps(&form.loops[0].steps)?;
        loops.end_block(0);
        match nest.traversal {
            Traversal::Flat => loops.flat(whole)?,
            Traversal::Columns { block } if form.is_in_strips() => loops.strips(block)?,
            Traversal::Columns { block } => loops.columns(block)?,
            Traversal::Tile => loops.tile(columns?)?,
            Traversal::Rows if form.loops.len() == 1 => {}
            Traversal::Rows => loops.rows()?,
        }
        loops.accumulators.iter().for_each(|sums| loops.e.regs.let_go(sums));
        Some(loops.e)
    }

    pub(super) fn n_axes(&self) -> usize {
        self.kernel.axes.len()
    }

    /// The number of the innermost loop.
    pub(super) fn innermost(&self) -> usize {
        self.form.loops.len() - 1
    }

    /// A cell in a register, or in the frame.
    pub(super) fn cell(&mut self) -> Cell {
        match self.free_cells.pop() {
            Some(r) => Cell::Register(r),
            None => self.frame_cell(),
        }
    }

    pub(super) fn frame_cell(&mut self) -> Cell {
        Cell::Frame(self.e.regs.place(8))
    }

    /// The form's pointers, at the origin.
    fn point(&mut self, first: usize) {
        if self.form.kept < self.n_axes() {
            // The counter of the innermost loop.
            let last = self.n_axes() - 1;
            if last != self.axis {
                self.counters[last] = Some(self.cell());
            }
        }
        self.pointers = self.form.pointers.iter().map(|_| self.cell()).collect();
        for (pointer, &cell) in self.form.pointers.iter().zip(&self.pointers) {
            let r = if let Cell::Register(r) = cell { r } else { RAX };
            let asm = &mut self.e.regs.asm;
            asm.load(r, Memory::at(RDI, 8 * (first + pointer.param) as i32));
            let bytes = pointer.at.offset * self.kernel.params[pointer.param].dtype.size() as i64;
            if bytes != 0 {
                // Within reach, as was checked.
                asm.alu_imm(Alu::Add, Rm::Register(r), bytes as i32);
            }
            if let Cell::Frame(at) = cell {
                asm.store(RAX, Memory::at(RSP, at));
            }
        }
    }

    /// The places of the columns of a tile, which lie behind the pointers in the table.
    fn columns_of_tile(&mut self, first: usize) -> Option<[Cell; 2]> {
        (self.nest.traversal == Traversal::Tile).then(|| {
            let behind = first + self.kernel.params.len();
            [behind, behind + 1].map(|place| {
                let cell = self.frame_cell();
                let asm = &mut self.e.regs.asm;
                asm.load(RAX, Memory::at(RDI, 8 * place as i32));
                asm.general(&[0x89], true, RAX, Registers::cell(cell));
                cell
            })
        })
    }

    /// The bytes that a pointer moves along an axis.
    pub(super) fn stride(&self, pointer: usize, axis: usize) -> i32 {
        let pointer = &self.form.pointers[pointer];
        (pointer.at.stride(axis) * self.kernel.params[pointer.param].dtype.size() as i64) as i32
    }

    /// The bytes from the first of the rows side by side to the one that is computed.
    fn bytes_to_row(&self, pointer: usize) -> i32 {
        if self.row == 0 { 0 } else { self.row * self.stride(pointer, self.n_axes() - 1) }
    }

    /// The address of an access at the position, and whether it moves with it; `None` if it does in other steps than 1.
    fn address(&self, (pointer, distance): (usize, i64), group: Option<usize>) -> Option<(ElementAddress, bool)> {
        let (cell, displacement) = (self.pointers[pointer], distance as i32 + self.bytes_to_row(pointer));
        let FormPointer { param, at } = &self.form.pointers[pointer];
        let size = self.kernel.params[*param].dtype.size() as i32;
        match at.stride(self.axis) {
            0 => Some((ElementAddress { pointer: cell, shift: None, displacement }, false)),
            1 => {
                let displacement = displacement + group.map_or(0, |g| self.groups[g].offset) * size;
                let shift = Some(size.trailing_zeros() as u8);
                Some((ElementAddress { pointer: cell, shift, displacement }, true))
            }
            _ => None,
        }
    }

    /// The stride along the vector axis of an access, and the address of a group's first element.
    fn strided(
        &self,
        at: &Affine,
        (pointer, distance): (usize, i64),
        dtype: DType,
        group: usize,
    ) -> (i32, ElementAddress) {
        let stride = at.stride(self.axis) as i32;
        let to_group = self.groups[group].offset * stride * dtype.size() as i32;
        let displacement = distance as i32 + self.bytes_to_row(pointer) + to_group;
        (stride, ElementAddress { pointer: self.pointers[pointer], shift: None, displacement })
    }

    /// Emits the steps of a place.
    pub(super) fn steps(&mut self, steps: &[LoopStep]) -> Option<()> {
        for &step in steps {
            if self.groups.is_empty() || !self.form.is_of_groups(step) {
                self.step(step, None)?;
            } else {
                (0..self.groups.len()).try_for_each(|g| self.step(step, Some(g)))?;
            }
        }
        Some(())
    }

    fn step(&mut self, step: LoopStep, group: Option<usize>) -> Option<()> {
        match step {
            LoopStep::Make(id) if self.is_needless[id] || self.is_permuted(id, group) => Some(()),
            LoopStep::Make(id) => {
                let value = self.value(id, group)?;
                self.set(group, id, value);
                Some(())
            }
            LoopStep::Branch(region) => self.branch(group, region),
            LoopStep::Store(n) => self.store(n, group),
        }
    }

    pub(super) fn set(&mut self, group: Option<usize>, id: usize, value: WideVal) {
        match group {
            Some(g) => self.group_values[g][id] = Some(value),
            None => self.values[id] = Some(value),
        }
    }

    /// Emits the selects of a cold region, with a branch around the steps that they need.
    fn branch(&mut self, group: Option<usize>, region: usize) -> Option<()> {
        let region = &self.form.cold.all[region];
        let condition = self.operand(group, region.condition)?.regs[0];
        let others = region.others(&self.kernel.insts).map(|v| self.operand(group, v));
        let others: Vec<WideVal> = others.collect::<Option<_>>()?;
        let outer = std::mem::take(&mut self.e.block);
        region.steps.iter().try_for_each(|&step| self.step(step, group))?;
        let chosen = region.selects.iter().map(|&id| self.value(id, group));
        let chosen: Vec<WideVal> = chosen.collect::<Option<_>>()?;
        let body = std::mem::replace(&mut self.e.block, outer);
        let mut results = vec![];
        for (&id, other) in region.selects.iter().zip(&others) {
            let regs: VirtualRegs = other.regs.iter().map(|&r| self.e.regs.make(self.e.regs.class(r))).collect();
            results.extend(regs.iter().copied().zip(other.regs.iter().copied()));
            self.set(group, id, WideVal::new(self.form.dtypes[id], regs));
        }
        let chosen = chosen.into_iter().flat_map(|val| val.regs).collect();
        let branch = Branch { condition, when: region.when, results, body, chosen };
        self.e.block.push(Code::Branch(Box::new(branch)));
        Some(())
    }

    /// A value as a group sees it, or as all do.
    pub(super) fn operand(&self, group: Option<usize>, id: ValueId) -> Option<WideVal> {
        let values = if self.form.is_grouped(id.index()) { &self.group_values[group?] } else { &self.values };
        values[id.index()].clone()
    }

    /// The value of an instruction, of a group if it depends on the vector axis.
    fn value(&mut self, id: usize, group: Option<usize>) -> Option<WideVal> {
        let kernel = self.kernel;
        let inst = &kernel.insts[id];
        if let (Inst::Select(_, x, y), Some(op)) = (inst, chosen(self.form, id)) {
            let (x, y) = (self.operand(group, *x)?, self.operand(group, *y)?);
            return Some(self.e.float_chosen(op, &x, &y));
        }
        if let (&Inst::Select(c, x, y), Some(row)) = (inst, self.positions.padded_rows[id]) {
            return self.padded(group, [c, x, y], row);
        }
        match inst {
            Inst::Load(_, at) if !matches!(at.stride(self.axis), 0 | 1) => {
                let dtype = self.form.dtypes[id];
                if let Some(column) = self.turned_column(id, group?) {
                    return Some(self.e.load(dtype, column, None));
                }
                let (stride, from) = self.strided(at, self.form.load(id), dtype, group?);
                Some(self.e.load_strided(dtype, from, stride, self.groups[group?].tail))
            }
            Inst::LoadAt(..) => self.load_at(id, group),
            Inst::Load(..) => {
                let dtype = self.form.dtypes[id];
                let (address, moves) = self.address(self.form.load(id), group)?;
                let tail = group.and_then(|g| self.groups[g].tail);
                Some(if moves { self.e.load(dtype, address, tail) } else { self.e.load_one(dtype, address) })
            }
            Inst::Index(axis) if axis.index() == self.axis => Some(self.position(group, true)),
            Inst::Index(axis) => {
                let from = self.counters[axis.index()];
                from.map(|from| self.coordinate(from))
            }
            Inst::Cast(dtype, x) if self.form.counts_in_words(*x, *dtype) => {
                let words = self.position(group, false);
                self.e.cast(*dtype, &words)
            }
            Inst::Const(_) | Inst::Reduce(..) | operation!() => {
                let operands = inst.operands().into_iter().map(|v| self.operand(group, v));
                let operands: SmallVec<[WideVal; 3]> = operands.collect::<Option<_>>()?;
                self.e.apply(inst, &operands)
            }
        }
    }

    /// A load at a computed position: of a row that is within its parameter, or of elements whose positions are brought into
    /// it; in 32 bits if they come from them.
    fn load_at(&mut self, id: usize, group: Option<usize>) -> Option<WideVal> {
        let Inst::LoadAt(param, x) = self.kernel.insts[id] else { return None };
        let Param { dtype, len, .. } = self.kernel.params[param.index()];
        let pointer = self.pointers[self.form.load(id).0];
        let from = ElementAddress { pointer, shift: None, displacement: 0 };
        if let Some(start) = self.positions.row_starts[id] {
            let VectorGroup { offset, tail } = self.groups[group?];
            let from = from.moving(dtype).behind(offset * dtype.size() as i32);
            let start = self.operand(None, start)?;
            return self.e.load_from(dtype, from, &start, tail.map(|tail| tail.mask));
        }
        let last = len.checked_sub(1)?;
        let (x, of, last) = match short_position(self.form, param, x) {
            Some(short) => (short, self.form.dtypes[short.index()], last.min(i32::MAX as usize)),
            None => (x, DType::I64, last),
        };
        let mut at = self.operand(group, x)?;
        let bounds = [(Binary::Max, 0), (Binary::Min, last)];
        for (op, bound) in bounds.into_iter().skip(usize::from(of == DType::U32)) {
            let bound = self.e.constant(Scalar { dtype: of, bits: bound as u64 });
            at = self.e.binary(op, &at, &bound)?;
        }
        if group.is_none() {
            return Some(self.e.load_one_from(dtype, from, &at));
        }
        let is_table = len <= self.e.level.lanes() && dtype.size() == 4;
        let mask = self.table_masks.iter().find(|(of, _)| *of == len).map(|&(_, mask)| mask);
        Some(if is_table { self.e.load_permuted(dtype, from, &at, mask) } else { self.e.load_at(dtype, from, &at) })
    }

    /// A select of a row's elements where its condition says that there are any, and of another value elsewhere.
    fn padded(&mut self, group: Option<usize>, [c, x, y]: [ValueId; 3], row: PaddedRow) -> Option<WideVal> {
        let Inst::LoadAt(param, _) = self.kernel.insts[x.index()] else { return None };
        let Param { dtype, .. } = self.kernel.params[param.index()];
        let [condition, other] = [c, y].map(|v| self.operand(group, v));
        let (condition, other) = (condition?, other?);
        let VectorGroup { offset, tail } = self.groups[group?];
        let mask = tail.map_or(condition.regs[0], |tail| self.e.logic(Binary::And, &condition, &tail.lanes()).regs[0]);
        let from = ElementAddress { pointer: self.pointers[self.form.load(x.index()).0], shift: None, displacement: 0 };
        let from = from.moving(dtype).behind((offset + row.offset) * dtype.size() as i32);
        let inside = match row.start {
            Some(start) => {
                let start = self.operand(None, start)?;
                self.e.load_from(dtype, from, &start, Some(mask))?
            }
            None => self.e.load_under(dtype, from, Some(mask)),
        };
        // Lanes that a mask leaves out are 0.
        let is_zero = other.constant.is_some_and(|c| c.bits == 0);
        Some(if is_zero { inside } else { self.e.select(&condition, &inside, &other) })
    }

    /// Coordinates along the vector axis, as `i64` or as `i32`.
    fn position(&mut self, group: Option<usize>, wide: bool) -> WideVal {
        let offset = group.map_or(0, |g| self.groups[g].offset);
        let to = self.e.vector();
        self.e.block.push(Code::Count { to, from: None, offset, wide });
        let lanes = self.e.level.lanes() as u64;
        let mut part = |first: u64| {
            let numbers = self.e.numbers(wide, first);
            self.e.either(ops::add_int(wide), to, numbers)
        };
        if wide {
            WideVal::new(DType::I64, [0, lanes / 2].into_iter().map(part).collect())
        } else {
            WideVal::new(DType::I32, [part(0)].into_iter().collect())
        }
    }

    /// The coordinate along another axis.
    fn coordinate(&mut self, from: Cell) -> WideVal {
        let to = self.e.vector();
        self.e.block.push(Code::Count { to, from: Some(from), offset: 0, wide: true });
        WideVal::new(DType::I64, [to, to].into_iter().collect())
    }

    /// Emits a store for a group.
    fn store(&mut self, n: usize, group: Option<usize>) -> Option<()> {
        if let Some((g, n_rows, rows)) = self.permuting(group) {
            if n == rows.store {
                let rows = rows.clone();
                let Inst::Load(_, at) = &self.kernel.insts[rows.load] else { return None };
                let (dtype, stored) = (self.form.dtypes[rows.load], &self.kernel.stores[n].at);
                let (_, from) = self.strided(at, self.form.load(rows.load), dtype, g);
                let (_, to) = self.strided(stored, self.form.store(n), dtype, g);
                self.e.store_permuted(&rows, n_rows, from, to);
            }
            return Some(());
        }
        let Store { at, value, .. } = &self.kernel.stores[n];
        let value = self.operand(group, *value)?;
        if let (Some(g), false) = (group, matches!(at.stride(self.axis), 0 | 1)) {
            self.store_strided(n, &value, g);
            return Some(());
        }
        let (address, moves) = self.address(self.form.store(n), group)?;
        match group {
            None => self.e.store_one(&value, address),
            Some(g) => {
                moves.then_some(())?;
                match self.groups[g].tail {
                    None if self.is_past[n] => self.e.store_past(&value, address),
                    tail => self.e.store(&value, address, tail),
                }
            }
        }
        Some(())
    }

    /// The stores of a group, if they are permutations of what is loaded; with the number of rows.
    fn permuting(&self, group: Option<usize>) -> Option<(usize, usize, &PermutedRows)> {
        let permuted = self.permuted.as_ref()?;
        let g = group?;
        let n_rows = self.groups[g].tail.map_or(Some(self.e.level.lanes()), |tail| tail.count)?;
        (n_rows >= permuted.least).then_some((g, n_rows, permuted))
    }

    /// Whether a load is part of such stores, and of nothing else.
    fn is_permuted(&self, id: usize, group: Option<usize>) -> bool {
        self.permuting(group).is_some_and(|(_, _, rows)| rows.only_here.contains(&id))
    }

    /// The place in the frame of a load at a distance along the vector axis that is one with others.
    fn turned_column(&mut self, id: usize, g: usize) -> Option<ElementAddress> {
        let Interleaved { first, ways, way } = self.turned[id].filter(|_| self.groups[g].tail.is_none())?;
        let regs = &mut self.e.regs;
        let (frame, is_there) = self.columns.entry((first, g)).or_insert_with(|| (regs.slots(ways), false));
        let (frame, is_there) = (*frame, std::mem::replace(is_there, true));
        if !is_there && let Inst::Load(_, at) = &self.kernel.insts[first] {
            let (_, from) = self.strided(at, self.form.load(first), self.form.dtypes[first], g);
            self.e.turn(ways, frame, from, true);
        }
        let displacement = frame + (way * self.e.level.len().bytes()) as i32;
        Some(ElementAddress { pointer: Cell::Register(RSP), shift: None, displacement })
    }

    /// Stores elements at a distance along the vector axis: together with those between them, if other stores have these.
    fn store_strided(&mut self, n: usize, value: &WideVal, g: usize) {
        let VectorGroup { tail, .. } = self.groups[g];
        if let (Some(Interleaved { first, ways, way }), None) = (self.interleaved[n], tail) {
            let bytes = self.e.level.len().bytes();
            let regs = &mut self.e.regs;
            let (frame, n_made) = self.ways.entry((first, g)).or_insert_with(|| (regs.slots(ways), 0));
            let frame = *frame;
            *n_made = (*n_made + 1) % ways;
            let is_last = *n_made == 0;
            self.e.store_in_frame(value, frame + (way * bytes) as i32);
            if is_last {
                let at = &self.kernel.stores[first].at;
                let (_, memory) = self.strided(at, self.form.store(first), value.dtype, g);
                self.e.store_interleaved(ways, frame, memory);
            }
            return;
        }
        let (stride, to) = self.strided(&self.kernel.stores[n].at, self.form.store(n), value.dtype, g);
        let frame = self.scattered.unwrap_or_else(|| self.e.regs.slots(2));
        self.scattered = Some(frame);
        self.e.store_strided(value, to, stride, tail, frame);
    }

    /// Writes the block of a loop's steps; the frame keeps the values that others use.
    pub(super) fn end_block(&mut self, level: usize) {
        let of_groups = |id: usize| self.group_values.iter().map(move |values| &values[id]);
        let found = self.form.loops[level].leaves.iter();
        let found = found.flat_map(|&id| std::iter::once(&self.values[id]).chain(of_groups(id)));
        let keep: Vec<Virtual> = found.flatten().flat_map(|val| val.regs.iter().copied()).collect();
        let block = std::mem::take(&mut self.e.block);
        self.e.regs.block(&block, &keep);
    }

    /// Opens the vector axis with some groups.
    pub(super) fn open(&mut self, groups: Vec<VectorGroup>) {
        self.group_values = vec![vec![None; self.kernel.insts.len()]; groups.len()];
        self.groups = groups;
        self.forget_columns();
    }

    /// Computes another one of the rows side by side from here on.
    pub(super) fn go_to_row(&mut self, row: i32) {
        self.row = row;
        self.forget_columns();
    }

    fn forget_columns(&mut self) {
        self.columns.values_mut().for_each(|(_, is_there)| *is_there = false);
    }

    pub(super) fn whole_groups(&self, count: usize) -> Vec<VectorGroup> {
        (0..count).map(|g| VectorGroup { offset: (g * self.e.level.lanes()) as i32, tail: None }).collect()
    }

    /// Of `count` elements: as many whole groups as fit, then one with the rest.
    pub(super) fn mixed_groups(&mut self, count: usize) -> Vec<VectorGroup> {
        let lanes = self.e.level.lanes();
        let mut groups = self.whole_groups(count / lanes);
        if !count.is_multiple_of(lanes) {
            let tail = Some(self.fixed_tail(count % lanes));
            groups.push(VectorGroup { offset: (count / lanes * lanes) as i32, tail });
        }
        groups
    }

    /// A tail of a known number of elements.
    fn fixed_tail(&mut self, left: usize) -> Tail {
        let cell = self.e.regs.place(8);
        self.e.regs.asm.mov_imm(Rm::Memory(Memory::at(RSP, cell)), left as i32);
        Tail { mask: self.first_lanes(left), left: Cell::Frame(cell), count: Some(left) }
    }

    /// The mask of the first lanes, fewer than all.
    fn first_lanes(&mut self, count: usize) -> Virtual {
        if self.e.level.has_masks() {
            let (mask, slot) = self.e.regs.make_in_frame(RegClass::Mask);
            self.e.regs.asm.mov_imm(Rm::Memory(Memory::at(RSP, slot)), (1 << count) - 1);
            return mask;
        }
        let lanes = (0..self.e.level.lanes()).flat_map(|lane| if lane < count { [0xff; 4] } else { [0; 4] });
        self.e.regs.constant(Constant::Lanes(lanes.collect()))
    }

    /// Makes the masks of short parameters before all loops.
    fn make_table_masks(&mut self) {
        for inst in &self.kernel.insts {
            let Inst::LoadAt(param, _) = inst else { continue };
            let Param { dtype, len, .. } = self.kernel.params[param.index()];
            let is_short = len < self.e.level.lanes() && dtype.size() == 4;
            if is_short && self.table_masks.iter().all(|(of, _)| *of != len) {
                let mask = self.first_lanes(len);
                self.table_masks.push((len, mask));
            }
        }
    }
}

/// The operation, if a select is one of the machine: of the operands of `x < y`, which for NaN and equal zeros is false,
/// the minimum is `x` where that holds and else `y`, and the maximum `y` where it holds and else `x`.
fn chosen(form: &LoopForm<'_>, id: usize) -> Option<Binary> {
    let Inst::Select(c, p, q) = form.kernel.insts[id] else { return None };
    let Inst::Compare(Compare::Lt, x, y) = form.kernel.insts[c.index()] else { return None };
    matches!(form.dtypes[x.index()], DType::F32 | DType::F64).then_some(())?;
    match (p, q) {
        _ if x == y => None,
        _ if (p, q) == (x, y) => Some(Binary::Min),
        _ if (p, q) == (y, x) => Some(Binary::Max),
        _ => None,
    }
}

/// The values that neither a store, a reduction nor a branch needs, by themselves or through others. Selects that are
/// [operations](chosen) of their own need no condition, and those that [read padded rows](PaddedRow) no load.
fn needless(form: &LoopForm<'_>, positions: &Positions) -> Vec<bool> {
    let insts = &form.kernel.insts;
    let mut is_needless: Vec<bool> = insts.iter().map(|inst| !matches!(inst, Inst::Reduce(..))).collect();
    form.kernel.stores.iter().for_each(|store| is_needless[store.value.index()] = false);
    for region in &form.cold.all {
        is_needless[region.condition.index()] = false;
        region.selects.iter().for_each(|&id| is_needless[id] = false);
    }
    for (id, inst) in insts.iter().enumerate().rev() {
        if is_needless[id] {
            continue;
        }
        let mut need = |v: ValueId| is_needless[v.index()] = false;
        match (inst, positions.padded_rows[id]) {
            (Inst::Select(c, _, y), Some(row)) => [Some(*c), Some(*y), row.start].into_iter().flatten().for_each(need),
            (Inst::LoadAt(param, x), _) => {
                need(positions.row_starts[id].or_else(|| short_position(form, *param, *x)).unwrap_or(*x));
            }
            (Inst::Cast(dtype, x), _) if form.counts_in_words(*x, *dtype) => {}
            // The condition of a select is the first operand.
            _ => inst.operands().into_iter().skip(usize::from(chosen(form, id).is_some())).for_each(need),
        }
    }
    is_needless
}

/// Whether a kernel is quickly computed and stores elements that lie far apart: code of four lanes does that as fast.
fn scatters_most(nest: &Nest, axis: Option<usize>, interleaved: &[Option<Interleaved>]) -> bool {
    let is_far = |store: &Store| axis.is_some_and(|axis| store.at.stride(axis).unsigned_abs() > NEAR as u64);
    let scatters = nest.kernel.stores.iter().zip(interleaved).any(|(store, set)| set.is_none() && is_far(store));
    scatters && nest.kernel.insts.len() < LEAST_SCATTERED
}

/// Whether all distances fit the instructions that hold them.
fn is_within_reach(nest: &Nest, axis: Option<usize>) -> bool {
    let kernel = &nest.kernel;
    let fits = |x: i64| i32::try_from(x).is_ok();
    let is_near = |param: usize, at: &Affine| {
        let size = kernel.params[param].dtype.size() as i64;
        // The vectors of an iteration reach less far than this many elements.
        let along = axis.map_or(0, |axis| at.stride(axis).saturating_abs());
        let is_near = fits(along.saturating_mul(512).saturating_mul(size));
        // Code of flat nests never goes back.
        let axes = kernel.axes.iter().enumerate().filter(|_| nest.traversal != Traversal::Flat);
        let ends = axes.map(|(axis, a)| at.stride(axis).saturating_mul(size).saturating_mul(a.extent as i64));
        is_near && ends.chain([at.offset.saturating_mul(size)]).all(fits)
    };
    let mut loads =
        kernel.insts.iter().filter_map(|inst| if let Inst::Load(p, at) = inst { Some((p, at)) } else { None });
    let are_loads_near = loads.all(|(param, at)| is_near(param.index(), at));
    let axes = nest.traversal == Traversal::Flat || kernel.axes.iter().all(|a| fits(a.extent as i64));
    axes && are_loads_near && kernel.stores.iter().all(|store| is_near(store.param.index(), &store.at))
}
