//! A nest as it is emitted: where each value is made, where accesses point, and blocks of straight-line code.
//!
//! A value is made in the outermost loop that knows all coordinates it depends on; there, it is in a slot of the frame
//! for the loops inside. Values that do not depend on the vector axis are made once, the others for each group: a vector
//! at a fixed distance from the position.

use retape_runtime::{DType, Scalar};
use smallvec::SmallVec;

use super::code::{Branch, Cell, Code, ElementAddress, RegClass, Virtual};
use super::emit::{VirtualRegs, WideEmitter, WideVal};
use super::encode::{Alu, Constant, Memory, RAX, RDI, RSP, Rm};
use super::memory::Tail;
use super::ops;
use super::regs::Registers;
use crate::ir::{Affine, Binary, Inst, Kernel, Param, Stage, ValueId, operation};
use crate::schedule::{Analysis, Form, Nest};

/// Registers for pointers and counters.
const CELLS: [u8; 9] = [8, 9, 10, 11, 3, 5, 12, 13, 14];
/// Instructions that a nest must have for each load across the vectors, which is no faster than in Cranelift's code, so
/// that the rest is worth it.
const STRIDED_COST: usize = 12;

/// A place in the nest where values are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LoopPlace {
    /// 0 is the function, 1 the grid; a loop more, one more.
    pub(super) level: usize,
    /// Whether it is behind the loops inside.
    pub(super) after: bool,
}

impl LoopPlace {
    pub(super) const fn before(level: usize) -> LoopPlace {
        LoopPlace { level, after: false }
    }
}

/// A vector of an iteration.
#[derive(Clone, Copy, Debug)]
pub(super) struct VectorGroup {
    /// Its distance from the position, in elements.
    pub(super) offset: i32,
    /// The elements that it has, if it is not whole.
    pub(super) tail: Option<Tail>,
}

/// A pointer into a parameter that follows the loops.
#[derive(Clone, Debug)]
pub(super) struct Pointer {
    param: usize,
    at: Affine,
    pub(super) cell: Cell,
}

/// Emits one nest.
#[derive(Debug)]
pub(super) struct WideLoops<'a> {
    pub(super) e: WideEmitter,
    pub(super) nest: &'a Nest,
    pub(super) kernel: &'a Kernel,
    pub(super) facts: Analysis,
    pub(super) axis: usize,
    places: Vec<LoopPlace>,
    /// Per instruction, whether another place uses its value.
    leaves: Vec<bool>,
    pub(super) pointers: Vec<Pointer>,
    /// Of each access: its pointer and the distance from it in bytes.
    accesses: Vec<(usize, i32)>,
    /// Of each parameter, the pointer to its first element, if positions in it are computed.
    tables: Vec<Option<usize>>,
    /// The counters of axes, as far as there are any.
    pub(super) counters: Vec<Option<Cell>>,
    pub(super) groups: Vec<VectorGroup>,
    pub(super) values: Vec<Option<WideVal>>,
    pub(super) group_values: Vec<Vec<Option<WideVal>>>,
    /// The sums of each reduction.
    pub(super) accumulators: Vec<Vec<Virtual>>,
    free_cells: Vec<u8>,
}

impl<'a> WideLoops<'a> {
    /// Emits a nest for the grid items between the second and the third argument, which are all of them if it runs
    /// `whole`; its parameters start at `first` in the table, to which the first argument points.
    pub(super) fn emit(e: WideEmitter, nest: &'a Nest, first: usize, whole: bool) -> Option<WideEmitter> {
        let kernel = &nest.kernel;
        let facts = Analysis::of(nest);
        is_within_reach(nest, facts.axis).then_some(())?;
        let n = kernel.insts.len();
        let mut loops = WideLoops {
            e,
            nest,
            kernel,
            axis: facts.axis.unwrap_or(kernel.axes.len()),
            places: vec![],
            leaves: vec![false; n],
            pointers: vec![],
            accesses: vec![],
            tables: vec![None; kernel.params.len()],
            counters: vec![None; kernel.axes.len()],
            groups: vec![],
            values: vec![None; n],
            group_values: vec![],
            accumulators: vec![],
            free_cells: CELLS.iter().rev().copied().collect(),
            facts,
        };
        loops.place_all();
        loops.point(first);
        let columns = loops.columns_of_tile(first);
        let all = LoopPlace::before(0);
        loops.made_at(all)?;
        if loops.n_axes() == 0 {
            loops.stores_at(all)?;
        }
        loops.end_block(all);
        match nest.form {
            Form::Flat => loops.flat(whole)?,
            Form::Columns { block } => loops.columns(block)?,
            Form::Tile => loops.tile(columns?)?,
            Form::Rows if loops.n_axes() == 0 => {}
            Form::Rows => loops.rows()?,
        }
        loops.accumulators.iter().for_each(|sums| loops.e.regs.let_go(sums));
        Some(loops.e)
    }

    /// The level of the loop over an axis.
    pub(super) fn level_of(&self, axis: usize) -> usize {
        let kept = self.facts.kept;
        match self.nest.form {
            Form::Flat => 1,
            Form::Columns { .. } | Form::Tile if axis >= kept => 3 + axis - kept,
            Form::Columns { .. } | Form::Tile => 1 + usize::from(axis == self.axis),
            Form::Rows if axis >= kept => 2 + axis - kept,
            Form::Rows => 1,
        }
    }

    /// The level of the loop over vectors.
    pub(super) fn vector_level(&self) -> usize {
        self.level_of(self.axis)
    }

    pub(super) fn n_axes(&self) -> usize {
        self.kernel.axes.len()
    }

    /// The place behind the reduced loops.
    pub(super) fn tail_place(&self) -> LoopPlace {
        let level = if self.nest.form == Form::Rows { 1 } else { self.vector_level() };
        LoopPlace { level, after: true }
    }

    fn place_all(&mut self) {
        let stages = self.kernel.stages();
        let reduces = self.facts.kept < self.n_axes();
        let tail = self.tail_place();
        for (id, stage) in stages.into_iter().enumerate() {
            let deps = self.facts.deps[id];
            let axes = (0..self.n_axes()).filter(|axis| deps & (1 << axis) != 0);
            let level = axes.map(|axis| self.level_of(axis)).max().unwrap_or(0);
            let tail_only = level == tail.level && !self.facts.needed[0][id];
            let after = reduces && (stage == Stage::Tail || tail_only);
            self.places.push(if after { tail } else { LoopPlace::before(level) });
        }
        for (id, inst) in self.kernel.insts.iter().enumerate() {
            for operand in inst.operands() {
                let user =
                    if matches!(inst, Inst::Reduce(..)) && reduces { self.body_place() } else { self.places[id] };
                self.leaves[operand.index()] |= self.places[operand.index()] != user;
            }
        }
        for store in &self.kernel.stores {
            let user = self.store_place(&store.at);
            self.leaves[store.value.index()] |= self.places[store.value.index()] != user;
        }
    }

    /// The place of what is done at every point.
    pub(super) fn body_place(&self) -> LoopPlace {
        LoopPlace::before(self.n_axes().checked_sub(1).map_or(0, |last| self.level_of(last)))
    }

    fn store_place(&self, at: &Affine) -> LoopPlace {
        let tail = self.facts.kept < self.n_axes() && !self.kernel.uses_reduced(at);
        if tail { self.tail_place() } else { self.body_place() }
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

    /// Pointers for all accesses, at the origin; accesses at a fixed distance from each other share one.
    fn point(&mut self, first: usize) {
        if self.nest.form != Form::Flat && self.facts.kept < self.n_axes() {
            // The counter of the innermost loop.
            let last = self.n_axes() - 1;
            if last != self.axis {
                self.counters[last] = Some(self.cell());
            }
        }
        for (param, at) in self.facts.accesses.clone() {
            let size = self.size(param);
            let near = |p: &Pointer| p.param == param && p.at.strides == at.strides;
            let distance = |p: &Pointer| i32::try_from((at.offset - p.at.offset) * size).ok();
            let known = self.pointers.iter().enumerate().find_map(|(n, p)| Some((n, distance(p).filter(|_| near(p))?)));
            let (n, distance) = known.unwrap_or_else(|| {
                let cell = self.cell();
                self.pointers.push(Pointer { param, at, cell });
                (self.pointers.len() - 1, 0)
            });
            self.accesses.push((n, distance));
        }
        for inst in &self.kernel.insts {
            if let Inst::LoadAt(param, _) = inst {
                let param = param.index();
                self.tables[param] = Some(self.pointers.len());
                let at = Affine::new(0, &[]);
                let cell = self.cell();
                self.pointers.push(Pointer { param, at, cell });
            }
        }
        for Pointer { param, at, cell } in &self.pointers {
            let r = if let Cell::Register(r) = cell { *r } else { RAX };
            let asm = &mut self.e.regs.asm;
            asm.load(r, Memory::at(RDI, 8 * (first + param) as i32));
            let bytes = at.offset * self.kernel.params[*param].dtype.size() as i64;
            if bytes != 0 {
                // Within reach, as was checked.
                asm.alu_imm(Alu::Add, Rm::Register(r), bytes as i32);
            }
            if let Cell::Frame(at) = cell {
                asm.store(RAX, Memory::at(RSP, *at));
            }
        }
    }

    /// The places of the columns of a tile, which lie behind the pointers in the table.
    fn columns_of_tile(&mut self, first: usize) -> Option<[Cell; 2]> {
        (self.nest.form == Form::Tile).then(|| {
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

    fn size(&self, param: usize) -> i64 {
        self.kernel.params[param].dtype.size() as i64
    }

    /// The bytes that a pointer moves along an axis.
    pub(super) fn stride(&self, pointer: &Pointer, axis: usize) -> i32 {
        (pointer.at.stride(axis) * self.size(pointer.param)) as i32
    }

    /// The address of an access at the position, and whether it moves with it; `None` if it does in other steps than 1.
    fn address(&self, access: usize, group: Option<usize>) -> Option<(ElementAddress, bool)> {
        let (n, displacement) = self.accesses[access];
        let pointer = &self.pointers[n];
        let size = self.size(pointer.param) as i32;
        match pointer.at.stride(self.axis) {
            0 => Some((ElementAddress { pointer: pointer.cell, shift: None, displacement }, false)),
            1 => {
                let offset = group.map_or(0, |g| self.groups[g].offset);
                let displacement = displacement + offset * size;
                Some((
                    ElementAddress { pointer: pointer.cell, shift: Some(size.trailing_zeros() as u8), displacement },
                    true,
                ))
            }
            _ => None,
        }
    }

    /// Emits the values of a place.
    pub(super) fn made_at(&mut self, place: LoopPlace) -> Option<()> {
        for id in 0..self.kernel.insts.len() {
            let is_needed = self.facts.needed[0][id] || self.facts.needed[1][id];
            if self.places[id] != place || !is_needed || !self.facts.rare.is_in(id, None) || self.is_made(id) {
                continue;
            }
            if self.facts.deps[id] & self.facts.axis_bit() == 0 {
                self.values[id] = Some(self.value(id, None)?);
                continue;
            }
            for g in 0..self.groups.len() {
                self.make(g, id)?;
            }
        }
        Some(())
    }

    fn is_made(&self, id: usize) -> bool {
        let of_groups = !self.group_values.is_empty() && self.group_values.iter().all(|values| values[id].is_some());
        self.values[id].is_some() || of_groups
    }

    /// Emits a value for a group, with the part of which it is a select.
    fn make(&mut self, g: usize, id: usize) -> Option<()> {
        if self.group_values[g][id].is_some() {
            return Some(());
        }
        match self.facts.rare.selected(id) {
            Some(part) => self.branch(g, part),
            None => {
                self.group_values[g][id] = Some(self.value(id, Some(g))?);
                Some(())
            }
        }
    }

    /// Emits the selects of a cold part, with a branch around what they need.
    fn branch(&mut self, g: usize, part: usize) -> Option<()> {
        let rare = self.facts.rare.all[part].clone();
        let condition = self.operand(g, rare.condition)?.regs[0];
        let others: Vec<ValueId> = rare.others(&self.kernel.insts).collect();
        let others: Vec<WideVal> = others.into_iter().map(|v| self.operand(g, v)).collect::<Option<_>>()?;
        let outer = std::mem::take(&mut self.e.block);
        for &id in rare.body.iter().filter(|&&id| self.facts.rare.is_in(id, Some(part))).collect::<Vec<_>>() {
            self.make(g, id)?;
        }
        let chosen: Vec<WideVal> = rare.selects.iter().map(|&id| self.value(id, Some(g))).collect::<Option<_>>()?;
        let body = std::mem::replace(&mut self.e.block, outer);
        rare.body.iter().for_each(|&id| self.group_values[g][id] = None);
        let mut results = vec![];
        for (&id, other) in rare.selects.iter().zip(&others) {
            let regs: VirtualRegs = other.regs.iter().map(|&r| self.e.regs.make(self.e.regs.class(r))).collect();
            results.extend(regs.iter().copied().zip(other.regs.iter().copied()));
            self.group_values[g][id] = Some(WideVal::new(self.facts.dtypes[id], regs));
        }
        let chosen = chosen.into_iter().flat_map(|val| val.regs).collect();
        let branch = Branch { condition, when: rare.when, results, body, chosen };
        self.e.block.push(Code::Branch(Box::new(branch)));
        Some(())
    }

    /// A value as a group sees it.
    pub(super) fn operand(&mut self, g: usize, id: ValueId) -> Option<WideVal> {
        let of_group = self.group_values.get(g).and_then(|values| values[id.index()].clone());
        of_group.or_else(|| self.values[id.index()].clone())
    }

    /// The value of an instruction, of a group if it depends on the vector axis.
    fn value(&mut self, id: usize, group: Option<usize>) -> Option<WideVal> {
        let kernel = self.kernel;
        let inst = &kernel.insts[id];
        match inst {
            Inst::Load(param, at) if !matches!(at.stride(self.axis), 0 | 1) => {
                let dtype = kernel.params[param.index()].dtype;
                let (n, displacement) = self.accesses[self.facts.access_of[id]];
                let VectorGroup { offset, tail } = self.groups[group?];
                let stride = at.stride(self.axis) as i32;
                let displacement = displacement + offset * stride * dtype.size() as i32;
                let from = ElementAddress { pointer: self.pointers[n].cell, shift: None, displacement };
                self.e.load_strided(dtype, from, stride, tail)
            }
            Inst::LoadAt(param, x) => {
                let Param { dtype, len, .. } = kernel.params[param.index()];
                let pointer = &self.pointers[self.tables[param.index()]?];
                let from = ElementAddress { pointer: pointer.cell, shift: None, displacement: 0 };
                let mut at = self.operand(group.unwrap_or(0), *x)?;
                for (op, bound) in [(Binary::Max, 0), (Binary::Min, len.checked_sub(1)?)] {
                    let bound = self.e.constant(Scalar { dtype: DType::I64, bits: bound as u64 });
                    at = self.e.binary(op, &at, &bound)?;
                }
                self.e.load_at(dtype, from, &at)
            }
            Inst::Load(param, _) => {
                let dtype = kernel.params[param.index()].dtype;
                let (address, moves) = self.address(self.facts.access_of[id], group)?;
                let tail = group.and_then(|g| self.groups[g].tail);
                Some(if moves { self.e.load(dtype, address, tail) } else { self.e.load_one(dtype, address) })
            }
            Inst::Index(axis) if axis.index() == self.axis => Some(self.position(group, true)),
            Inst::Index(axis) => {
                let from = self.counters[axis.index()];
                from.map(|from| self.coordinate(from))
            }
            Inst::Cast(dtype, x) if self.counts_in_words(*x, *dtype) => {
                let words = self.position(group, false);
                self.e.cast(*dtype, &words)
            }
            Inst::Reduce(monoid, x) if self.facts.kept == self.n_axes() => {
                let x = self.operand(group.unwrap_or(0), *x)?;
                let neutral = self.e.constant(monoid.neutral(self.facts.dtypes[id]));
                // An accumulator that starts as a constant is none.
                self.e.combine(*monoid, &WideVal { constant: None, ..neutral }, &x)
            }
            Inst::Const(_) | Inst::Reduce(..) | operation!() => {
                let operands: SmallVec<[ValueId; 3]> = inst.operands();
                let operands = operands.iter().map(|&v| self.operand(group.unwrap_or(0), v));
                let operands: SmallVec<[WideVal; 3]> = operands.collect::<Option<_>>()?;
                self.e.apply(inst, &operands)
            }
        }
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

    /// Whether a cast of a coordinate along the vector axis can start from 32 bits.
    fn counts_in_words(&self, x: ValueId, dtype: DType) -> bool {
        let along = matches!(self.kernel.insts[x.index()], Inst::Index(axis) if axis.index() == self.axis);
        along && self.kernel.axes[self.axis].extent <= i32::MAX as usize && dtype != DType::Bool && !dtype.is_half()
    }

    /// Emits the stores of a place.
    pub(super) fn stores_at(&mut self, place: LoopPlace) -> Option<()> {
        let kernel = self.kernel;
        let n_loads = self.facts.accesses.len() - kernel.stores.len();
        for (n, store) in kernel.stores.iter().enumerate() {
            if self.store_place(&store.at) != place {
                continue;
            }
            if self.groups.is_empty() {
                let value = self.values[store.value.index()].clone()?;
                let (address, _) = self.address(n_loads + n, None)?;
                self.e.store_one(&value, address);
            }
            for g in 0..self.groups.len() {
                let value = self.operand(g, store.value)?;
                let (address, moves) = self.address(n_loads + n, Some(g))?;
                moves.then_some(())?;
                self.e.store(&value, address, self.groups[g].tail);
            }
        }
        Some(())
    }

    /// The registers of the values of a place that others use.
    fn left_by(&self, place: LoopPlace) -> Vec<Virtual> {
        let ids = (0..self.kernel.insts.len()).filter(|&id| self.places[id] == place && self.leaves[id]);
        let of_groups = |id: usize| self.group_values.iter().map(move |values| &values[id]);
        let found = ids.flat_map(|id| std::iter::once(&self.values[id]).chain(of_groups(id)));
        found.flatten().flat_map(|val| val.regs.iter().copied()).collect()
    }

    /// Writes the block of a place whose values others use.
    pub(super) fn end_block(&mut self, place: LoopPlace) {
        let keep = self.left_by(place);
        let block = std::mem::take(&mut self.e.block);
        self.e.regs.block(&block, &keep);
    }

    /// Opens the vector axis with some groups.
    pub(super) fn open(&mut self, groups: Vec<VectorGroup>) {
        self.group_values = vec![vec![None; self.kernel.insts.len()]; groups.len()];
        self.groups = groups;
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
        let mask = if self.e.level.has_masks() {
            let (mask, slot) = self.e.regs.make_in_frame(RegClass::Mask);
            self.e.regs.asm.mov_imm(Rm::Memory(Memory::at(RSP, slot)), (1 << left) - 1);
            mask
        } else {
            let lanes = (0..self.e.level.lanes()).flat_map(|lane| if lane < left { [0xff; 4] } else { [0; 4] });
            self.e.regs.constant(Constant::Lanes(lanes.collect()))
        };
        Tail { mask, left: Cell::Frame(cell), count: Some(left) }
    }
}

/// Whether all distances fit the instructions that hold them.
fn is_within_reach(nest: &Nest, axis: Option<usize>) -> bool {
    let kernel = &nest.kernel;
    let fits = |x: i64| i32::try_from(x).is_ok();
    let is_near = |param: usize, at: &Affine| {
        let size = kernel.params[param].dtype.size() as i64;
        // A vector reaches less far than this many elements.
        let is_near =
            fits(at.strides.iter().map(|stride| stride.saturating_abs()).max().unwrap_or(0).saturating_mul(512));
        // Code of flat nests never goes back.
        let axes = kernel.axes.iter().enumerate().filter(|_| nest.form != Form::Flat);
        let ends = axes.map(|(axis, a)| at.stride(axis).saturating_mul(size).saturating_mul(a.extent as i64));
        is_near && ends.chain([at.offset.saturating_mul(size)]).all(fits)
    };
    let loads =
        || kernel.insts.iter().filter_map(|inst| if let Inst::Load(p, at) = inst { Some((p, at)) } else { None });
    let are_loads_near = loads().all(|(param, at)| is_near(param.index(), at));
    let strided = loads().filter(|(_, at)| !matches!(axis.map_or(0, |axis| at.stride(axis)), 0 | 1));
    let pays = kernel.insts.len() >= STRIDED_COST * strided.count();
    let axes = pays && nest.form == Form::Flat || kernel.axes.iter().all(|a| fits(a.extent as i64));
    axes && are_loads_near && kernel.stores.iter().all(|store| is_near(store.param.index(), &store.at))
}
