//! Loops over grid items and reduced axes: counters, and pointers that move with them.

use super::code::Cell;
use super::encode::{Alu, Condition, RAX, RCX, RDI, RDX, RSI, Rm};
use super::nest::{VectorGroup, WideLoops};
use super::regs::Registers;
use super::walk::MIN_HELD_TRIPS;

/// Work in rows shorter than an iteration up to which code that is quickly made outweighs Cranelift's, which is quicker
/// to run.
const MAX_SHORT_WORK: u64 = 1 << 13;

impl WideLoops<'_> {
    /// A nest of blocks of the last kept axis. The blocks of a task that are neighbours are walked as one.
    pub(super) fn columns(&mut self, block: usize) -> Option<()> {
        let extent = self.kernel.axes[self.axis].extent;
        let n_blocks = extent.div_ceil(block);
        let (end, first, limit) = (self.frame_cell(), self.frame_cell(), self.frame_cell());
        let groups = self.column_groups().min(block.div_ceil(self.e.level.lanes()));
        self.make_accumulators(groups);
        self.items(end, self.axis, Some((n_blocks, first)), &mut |l| {
            if n_blocks == 1 {
                l.e.regs.asm.alu_imm(Alu::Add, Rm::Register(RSI), 1);
                return l.walk_row(extent, groups, &mut |l, groups| l.column(groups));
            }
            l.blocks([n_blocks, block, extent].map(|n| n as i32), end, first, limit);
            l.walk(limit, groups, &mut |l, groups| l.column(groups))
        })
    }

    /// A nest of rows of a tile, between two columns.
    pub(super) fn tile(&mut self, [low, high]: [Cell; 2]) -> Option<()> {
        let end = self.frame_cell();
        let groups = self.kernel_groups();
        self.items(end, self.axis, None, &mut |l| {
            l.e.regs.asm.alu_imm(Alu::Add, Rm::Register(RSI), 1);
            l.e.regs.asm.general(&[0x8b], true, RCX, Registers::cell(low));
            l.walk(high, groups, &mut |l, groups| l.column(groups))
        })
    }

    /// The position, where it ends, and the next item: of the blocks that are left of this row and of the task.
    pub(super) fn blocks(&mut self, [n_blocks, block, extent]: [i32; 3], end: Cell, first: Cell, limit: Cell) {
        let asm = &mut self.e.regs.asm;
        asm.general(&[0x8b], true, RAX, Registers::cell(end));
        asm.alu(Alu::Sub, RAX, Rm::Register(RSI));
        asm.alu(Alu::Add, RAX, Registers::cell(first));
        asm.at_most(RAX, n_blocks);
        asm.mov(RDI, RAX);
        asm.alu(Alu::Sub, RDI, Registers::cell(first));
        asm.alu(Alu::Add, RSI, Rm::Register(RDI));
        asm.imul(RCX, Registers::cell(first), block);
        asm.imul(RAX, Rm::Register(RAX), block);
        asm.at_most(RAX, extent);
        asm.general(&[0x89], true, RAX, Registers::cell(limit));
        asm.mov_imm(Registers::cell(first), 0);
    }

    /// One iteration of the vector axis of a nest of blocks.
    fn column(&mut self, groups: Vec<VectorGroup>) -> Option<()> {
        self.open(groups);
        let (form, level) = (self.form, self.form.tail_level());
        self.steps(&form.loops[level].steps)?;
        if form.kept == self.n_axes() {
            return Some(());
        }
        self.end_block(level);
        self.begin_sums();
        self.end_body();
        self.reduced_loops(form.kept, self.n_axes(), &mut |l| {
            l.steps(&form.loops[l.innermost()].steps)?;
            l.add_columns()
        })?;
        self.column_sums();
        self.steps(&form.loops[level].tail)
    }

    /// A nest of rows, whose vectors lie along the last reduced axis.
    pub(super) fn rows(&mut self) -> Option<()> {
        let (form, extent) = (self.form, self.kernel.axes[self.axis].extent);
        // Fewer elements than an accumulator has lanes are added one after the other.
        (form.accumulators > 0).then_some(())?;
        let is_short = form.accumulators < self.nest.unroll;
        (!is_short || self.nest.work <= MAX_SHORT_WORK).then_some(())?;
        let end = self.frame_cell();
        let groups = self.row_groups().min(extent.div_ceil(self.e.level.lanes()));
        self.make_accumulators(groups);
        self.items(end, form.kept, None, &mut |l| {
            l.e.regs.asm.alu_imm(Alu::Add, Rm::Register(RSI), 1);
            l.begin_sums();
            l.end_body();
            l.reduced_loops(form.kept, l.axis, &mut |l| {
                l.walk_row(extent, groups, &mut |l, groups| {
                    l.open(groups);
                    l.steps(&form.loops[l.innermost()].steps)?;
                    l.add_row()
                })
            })?;
            l.open(vec![]);
            l.row_sums()?;
            l.steps(&form.loops[form.tail_level()].tail)?;
            l.end_body();
            Some(())
        })
    }

    /// The loop over grid items: the kept axes before `outer`, and the blocks inside, if there are any, with the first
    /// one in a cell. `body` moves the item on.
    pub(super) fn items(
        &mut self,
        end: Cell,
        outer: usize,
        blocks: Option<(usize, Cell)>,
        body: &mut dyn FnMut(&mut Self) -> Option<()>,
    ) -> Option<()> {
        let [top, done] = [(); 2].map(|()| self.e.regs.asm.label());
        let asm = &mut self.e.regs.asm;
        asm.general(&[0x89], true, RDX, Registers::cell(end));
        asm.alu(Alu::Cmp, RSI, Rm::Register(RDX));
        asm.jump_if(Condition::GreaterOrEqual, done);
        self.decompose(outer, blocks);
        self.e.regs.asm.bind(top);
        self.steps(&self.form.loops[1].steps)?;
        self.end_block(1);
        body(self)?;
        self.advance(outer);
        self.e.regs.asm.alu(Alu::Cmp, RSI, Registers::cell(end));
        self.e.regs.asm.jump_if(Condition::Less, top);
        self.e.regs.asm.bind(done);
        Some(())
    }

    /// The coordinates of the first item, row-major, and the pointers there.
    fn decompose(&mut self, outer: usize, blocks: Option<(usize, Cell)>) {
        self.e.regs.asm.mov(RAX, RSI);
        if let Some((n_blocks, first)) = blocks {
            self.divide(n_blocks);
            self.e.regs.asm.general(&[0x89], true, RDX, Registers::cell(first));
        }
        for axis in (0..outer).rev() {
            let cell = self.frame_cell();
            self.counters[axis] = Some(cell);
            let from = if axis == 0 { RAX } else { RDX };
            if axis > 0 {
                self.divide(self.kernel.axes[axis].extent);
            }
            self.e.regs.asm.general(&[0x89], true, from, Registers::cell(cell));
            for (n, &pointer) in self.pointers.iter().enumerate() {
                let stride = self.stride(n, axis);
                if stride != 0 {
                    let asm = &mut self.e.regs.asm;
                    asm.imul(RDI, Registers::cell(cell), stride);
                    asm.general(&[0x01], true, RDI, Registers::cell(pointer));
                }
            }
        }
    }

    /// RAX and, of the rest, RDX of a division of RAX.
    fn divide(&mut self, by: usize) {
        let asm = &mut self.e.regs.asm;
        asm.mov_imm(Rm::Register(RDX), 0);
        asm.mov_imm(Rm::Register(RDI), by as i32);
        asm.general(&[0xf7], true, 6, Rm::Register(RDI));
    }

    /// The coordinates and pointers of the next item.
    fn advance(&mut self, outer: usize) {
        let done = self.e.regs.asm.label();
        for axis in (0..outer).rev() {
            let Some(counter) = self.counters[axis] else { continue };
            self.e.regs.asm.alu_imm(Alu::Add, Registers::cell(counter), 1);
            self.move_pointers(axis, 1);
            if axis > 0 {
                let extent = self.kernel.axes[axis].extent as i32;
                let asm = &mut self.e.regs.asm;
                asm.alu_imm(Alu::Cmp, Registers::cell(counter), extent);
                asm.jump_if(Condition::Less, done);
                asm.mov_imm(Registers::cell(counter), 0);
                self.move_pointers(axis, -extent);
            }
        }
        self.e.regs.asm.bind(done);
    }

    /// Moves the pointers by some steps along an axis.
    pub(super) fn move_pointers(&mut self, axis: usize, steps: i32) {
        for (n, &pointer) in self.pointers.iter().enumerate() {
            let bytes = self.stride(n, axis) * steps;
            if bytes != 0 {
                self.e.regs.asm.alu_imm(Alu::Add, Registers::cell(pointer), bytes);
            }
        }
    }

    /// Loops over the reduced axes `axis..end`; `body` leaves a block that is written inside the innermost loop of the form.
    pub(super) fn reduced_loops(
        &mut self,
        axis: usize,
        end: usize,
        body: &mut dyn FnMut(&mut Self) -> Option<()>,
    ) -> Option<()> {
        if axis == end {
            return body(self);
        }
        let extent = self.kernel.axes[axis].extent;
        let counter = self.counters[axis].unwrap_or_else(|| self.frame_cell());
        self.counters[axis] = Some(counter);
        self.e.regs.asm.mov_imm(Registers::cell(counter), 0);
        let top = self.e.regs.asm.label();
        let mut held = vec![];
        if self.form.level_of(axis) == self.innermost() {
            body(self)?;
            if extent >= MIN_HELD_TRIPS {
                held = self.e.regs.worth_holding(&self.e.block);
            }
            self.e.regs.hold(&held);
            self.e.regs.asm.bind(top);
        } else {
            self.e.regs.asm.bind(top);
            let level = self.form.level_of(axis);
            self.steps(&self.form.loops[level].steps)?;
            self.end_block(level);
            self.reduced_loops(axis + 1, end, body)?;
        }
        self.end_body();
        self.e.regs.asm.alu_imm(Alu::Add, Registers::cell(counter), 1);
        self.move_pointers(axis, 1);
        self.e.regs.asm.alu_imm(Alu::Cmp, Registers::cell(counter), extent as i32);
        self.e.regs.asm.jump_if(Condition::Less, top);
        self.e.regs.let_go(&held);
        self.move_pointers(axis, -(extent as i32));
        Some(())
    }
}
