//! Sums of columns, row by row: memory is read along its rows, and the sums of a block of columns wait in the frame from
//! row to row.
//!
//! A block of a few vectors whose sums stay in registers reads one or two cache lines of each row: where rows are long,
//! each of them in another page of memory, and for each operand again. Sums in the frame cost a load and a store for each
//! vector, in the first-level cache. The order of additions is the same: a column has one sum, to which its elements are
//! added row by row.

use retape_runtime::DType;

use super::WideIsa;
use super::code::{Cell, ElementAddress};
use super::emit::{WideVal, is_wide};
use super::encode::{Alu, Condition, Memory, RAX, RCX, RDI, RSI, RSP, Rm};
use super::memory::StripSums;
use super::nest::WideLoops;
use super::reduce::groups_of_sums;
use super::regs::Registers;
use super::walk::VectorBody;
use crate::ir::{Inst, ValueId};
use crate::schedule::{FormPointer, LoopForm, Nest, Traversal};

/// Bytes of the frame that the sums of a block take at most: half of what a frame has.
const MAX_BYTES: usize = 1 << 13;
/// Rows from which on reading along them outweighs what sums in the frame cost.
const MIN_ROWS: usize = 8;

/// Rows that are read side by side, at most, counted for each load: as many streams as processors foresee. A single one
/// waits at each page for its first lines.
const STREAMS: usize = 8;
/// Instructions of the rows that are computed side by side, at most.
const MAX_INSTS: usize = 64;
/// Bytes from a pointer to an element of such a row, at most: an address adds those to a vector of the iteration.
const MAX_DISTANCE: i64 = 1 << 30;

/// The emission of a walk over the columns of a block, for a body.
type StripWalk<'w, 'a> = dyn FnMut(&mut WideLoops<'a>, &mut VectorBody<'_, 'a>) -> Option<()> + 'w;

/// The form in strips of a nest, if that pays.
pub(super) fn strips(nest: &Nest, level: WideIsa) -> Option<LoopForm<'_>> {
    let Traversal::Columns { block } = nest.traversal else { return None };
    let form = LoopForm::in_strips(nest)?;
    let each: usize = form.reductions.iter().map(|reduced| size(reduced.dtype)).sum();
    let n_rows = nest.kernel.axes[form.kept..].iter().map(|axis| axis.extent).fold(1, usize::saturating_mul);
    let is_long = block > groups_of_sums(&form, level) * level.lanes() && n_rows >= MIN_ROWS;
    (is_long && columns(block, level).saturating_mul(each) <= MAX_BYTES).then_some(form)
}

/// The rows along the last reduced axis that are computed side by side: a power of two, and 1 where something is made once
/// for each row.
pub(super) fn rows_side_by_side(form: &LoopForm<'_>) -> usize {
    let (kernel, axis) = (form.kernel, form.kernel.axes.len() - 1);
    let is_of_row = |inst: &Inst<ValueId>| matches!(inst, Inst::Index(of) if of.index() == axis);
    if !form.loops[form.level_of(axis)].steps.is_empty() || kernel.insts.iter().any(is_of_row) {
        return 1;
    }
    let bytes = |pointer: &FormPointer| pointer.at.stride(axis) * kernel.params[pointer.param].dtype.size() as i64;
    let n_streams = form.pointers.iter().filter(|pointer| bytes(pointer) != 0).count();
    // Addresses of all rows must fit their instructions.
    let farthest = form.pointers.iter().map(|pointer| bytes(pointer).abs() * STREAMS as i64).max().unwrap_or(0);
    let most = (STREAMS / n_streams.max(1)).min(MAX_INSTS / kernel.insts.len()).min(kernel.axes[axis].extent);
    if farthest + form.farthest() > MAX_DISTANCE { 1 } else { 1 << most.max(1).ilog2() }
}

/// The columns that a block has room for: whole vectors.
fn columns(block: usize, level: WideIsa) -> usize {
    block.next_multiple_of(level.lanes())
}

/// Bytes of a sum, as registers hold it.
const fn size(dtype: DType) -> usize {
    if is_wide(dtype) { 8 } else { 4 }
}

impl<'a> WideLoops<'a> {
    /// A nest of blocks of columns, row by row.
    pub(super) fn strips(&mut self, block: usize) -> Option<()> {
        let extent = self.kernel.axes[self.axis].extent;
        let n_blocks = extent.div_ceil(block);
        let groups = self.column_groups();
        self.make_strips(block);
        let [end, first, limit, low, high] = [(); 5].map(|()| self.frame_cell());
        self.items(end, self.axis, Some((n_blocks, first)), &mut |l| {
            if n_blocks == 1 {
                l.e.regs.asm.alu_imm(Alu::Add, Rm::Register(RSI), 1);
                l.e.regs.asm.mov_imm(Registers::cell(low), 0);
                return l.strip(low, &mut |l, body| l.walk_row(extent, groups, body));
            }
            l.blocks([n_blocks, block, extent].map(|n| n as i32), end, first, limit);
            let top = l.e.regs.asm.label();
            l.e.regs.asm.bind(top);
            l.next_block(block as i32, [low, high], limit);
            l.strip(low, &mut |l, body| {
                l.e.regs.asm.general(&[0x8b], true, RCX, Registers::cell(low));
                l.walk(high, groups, body)
            })?;
            let asm = &mut l.e.regs.asm;
            asm.general(&[0x8b], true, RCX, Registers::cell(high));
            asm.alu(Alu::Cmp, RCX, Registers::cell(limit));
            asm.jump_if(Condition::Less, top);
            Some(())
        })
    }

    /// Room for the sums of a block.
    fn make_strips(&mut self, block: usize) {
        let columns = columns(block, self.e.level);
        for reduced in &self.form.reductions {
            let size = size(reduced.dtype);
            let at = self.e.regs.slots(columns * size / self.e.level.len().bytes());
            let origin = self.cell();
            self.strips.push(StripSums { at, origin, size });
        }
    }

    /// Where the block that begins at the position begins and ends, within a limit.
    fn next_block(&mut self, block: i32, [low, high]: [Cell; 2], limit: Cell) {
        let asm = &mut self.e.regs.asm;
        asm.general(&[0x89], true, RCX, Registers::cell(low));
        asm.lea(RAX, Memory::at(RCX, block));
        asm.alu(Alu::Cmp, RAX, Registers::cell(limit));
        let fits = asm.label();
        asm.jump_if(Condition::LessOrEqual, fits);
        asm.general(&[0x8b], true, RAX, Registers::cell(limit));
        asm.bind(fits);
        asm.general(&[0x89], true, RAX, Registers::cell(high));
    }

    /// The block of columns from `low` on, which `walk` goes over: their sums, and what depends on them.
    fn strip(&mut self, low: Cell, walk: &mut StripWalk<'_, 'a>) -> Option<()> {
        self.point_to_sums(low);
        let form = self.form;
        walk(self, &mut |l, groups| {
            l.open(groups);
            l.begin_strip();
            Some(())
        })?;
        self.open(vec![]);
        self.reduced_loops(form.kept, self.n_axes() - 1, &mut |l| l.strip_rows(walk))?;
        walk(self, &mut |l, groups| {
            l.open(groups);
            l.strip_sums();
            l.steps(&form.loops[l.innermost()].tail)
        })?;
        self.open(vec![]);
        Some(())
    }

    /// Adds the rows along the last reduced axis: several side by side, and those that are left one by one.
    fn strip_rows(&mut self, walk: &mut StripWalk<'_, 'a>) -> Option<()> {
        let (form, axis) = (self.form, self.n_axes() - 1);
        let extent = self.kernel.axes[axis].extent;
        let n_rows = rows_side_by_side(form);
        let counter = self.counters[axis].unwrap_or_else(|| self.frame_cell());
        self.counters[axis] = Some(counter);
        self.e.regs.asm.mov_imm(Registers::cell(counter), 0);
        let whole = extent / n_rows * n_rows;
        for (n, rows) in [(n_rows, 0..whole), (1, whole..extent)] {
            if rows.is_empty() {
                continue;
            }
            let (top, level) = (self.e.regs.asm.label(), form.level_of(axis));
            self.e.regs.asm.bind(top);
            self.steps(&form.loops[level].steps)?;
            self.end_block(level);
            walk(self, &mut |l, groups| {
                l.open(groups);
                l.add_to_strip(n)
            })?;
            self.open(vec![]);
            self.end_body();
            self.e.regs.asm.alu_imm(Alu::Add, Registers::cell(counter), n as i32);
            self.move_pointers(axis, n as i32);
            self.e.regs.asm.alu_imm(Alu::Cmp, Registers::cell(counter), rows.end as i32);
            self.e.regs.asm.jump_if(Condition::Less, top);
        }
        self.move_pointers(axis, -(extent as i32));
        Some(())
    }

    /// Lets the sums of the first column of a block lie where the frame has room for them.
    fn point_to_sums(&mut self, low: Cell) {
        for StripSums { at, origin, size } in self.strips.clone() {
            let asm = &mut self.e.regs.asm;
            asm.imul(RDI, Registers::cell(low), -(size as i32));
            asm.lea(RAX, Memory::at(RSP, at));
            asm.alu(Alu::Add, RAX, Rm::Register(RDI));
            asm.general(&[0x89], true, RAX, Registers::cell(origin));
        }
    }

    /// The place of a group's sums, which are whole vectors also where the group is not.
    fn strip_sum(&self, n: usize, g: usize) -> ElementAddress {
        let StripSums { origin, size, .. } = self.strips[n];
        let displacement = self.groups[g].offset * size as i32;
        ElementAddress { pointer: origin, shift: Some(size.trailing_zeros() as u8), displacement }
    }

    /// The dtype that moves sums as registers hold them.
    fn dtype_of_sum(&self, n: usize) -> DType {
        if is_wide(self.form.reductions[n].dtype) { DType::I64 } else { DType::I32 }
    }

    /// Sets the sums of all groups to their neutral elements.
    fn begin_strip(&mut self) {
        for n in 0..self.form.reductions.len() {
            let reg = self.neutral(n).regs[0];
            let dtype = self.dtype_of_sum(n);
            let regs = [reg].into_iter().cycle().take(if is_wide(dtype) { 2 } else { 1 }).collect();
            let neutral = WideVal::new(dtype, regs);
            for g in 0..self.groups.len() {
                let to = self.strip_sum(n, g);
                self.e.store(&neutral, to, None);
            }
        }
    }

    fn load_sum(&mut self, n: usize, g: usize) -> WideVal {
        let from = self.strip_sum(n, g);
        let sum = self.e.load(self.dtype_of_sum(n), from, None);
        WideVal::new(self.form.reductions[n].dtype, sum.regs)
    }

    /// Adds the groups of some rows to the sums of their columns, row by row.
    fn add_to_strip(&mut self, n_rows: usize) -> Option<()> {
        let (n_groups, n_reductions) = (self.groups.len(), self.form.reductions.len());
        let places = (0..n_reductions).flat_map(|n| (0..n_groups).map(move |g| (n, g)));
        let mut sums: Vec<WideVal> = vec![];
        for row in 0..n_rows {
            self.go_to_row(row as i32);
            self.steps(&self.form.loops[self.innermost()].steps)?;
            let made = places.clone().enumerate().map(|(at, (n, g))| {
                let sum = sums.get(at).cloned().unwrap_or_else(|| self.load_sum(n, g));
                let x = self.reduced(n, g)?;
                self.e.combine(self.form.reductions[n].op, &sum, &x)
            });
            sums = made.collect::<Option<_>>()?;
        }
        self.go_to_row(0);
        for ((n, g), sum) in places.zip(sums) {
            let to = self.strip_sum(n, g);
            self.e.store(&WideVal::new(self.dtype_of_sum(n), sum.regs), to, None);
        }
        Some(())
    }

    /// Makes the sums of columns the values of their reductions.
    fn strip_sums(&mut self) {
        for n in 0..self.form.reductions.len() {
            for g in 0..self.groups.len() {
                let sum = self.load_sum(n, g);
                let value = self.e.mask_of_words(sum);
                self.set(Some(g), self.form.reductions[n].id, value);
            }
        }
    }
}
