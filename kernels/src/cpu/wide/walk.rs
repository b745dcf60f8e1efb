//! Loops over the vector axis, and what is left of less than a vector.

use super::WideIsa;
use super::code::{Cell, RegClass, Virtual};
use super::emit::is_wide;
use super::encode::{Alu, Condition, JumpTarget, Len, Memory, RAX, RCX, RDI, RDX, RSI, RSP, Rm};
use super::memory::Tail;
use super::nest::{VectorGroup, WideLoops};
use super::ops;
use super::regs::Registers;
use crate::ir::{Inst, ValueId};
use crate::schedule::{LoopForm, REDUCTION_LANES};

/// Trips of a loop from which on values in registers outweigh bringing them there.
pub(super) const MIN_HELD_TRIPS: usize = 4;

/// Instructions of a vector from which on the machine sees too few vectors by itself.
const LONG: usize = 16;

/// Cycles from one arithmetic instruction to the next that needs its result, for each of which there is one vector at most.
const LATENCY: usize = 4;

/// The vectors of a nest that take turns, instruction by instruction. A formula is a chain whose instructions wait for
/// each other; chains of several vectors fill the time. Elements of 64 bits have two registers as it is.
pub(super) fn chains(form: &LoopForm<'_>, level: WideIsa) -> usize {
    let is_made = |inst: &&Inst<ValueId>| !matches!(inst, Inst::Const(_) | Inst::Bitcast(..));
    let n = form.kernel.insts.iter().filter(is_made).count();
    if n < LONG || form.dtypes.iter().any(|&dtype| is_wide(dtype)) {
        return 1;
    }
    match level {
        // Most values of four vectors find one of sixteen registers.
        WideIsa::Avx2 if n <= 200 => 4,
        WideIsa::Avx512 if n <= 100 => 4,
        // More of these find no registers.
        WideIsa::Avx512 if n <= 400 => 3,
        // Of still longer ones the code takes long to make, so there are as many as the longest chain alone keeps waiting.
        WideIsa::Avx2 | WideIsa::Avx512 => (LATENCY * longest_chain(form) / n).clamp(1, 3),
    }
}

/// The most instructions of a formula of which each waits for the one before.
fn longest_chain(form: &LoopForm<'_>) -> usize {
    let mut lengths: Vec<usize> = Vec::with_capacity(form.kernel.insts.len());
    for inst in &form.kernel.insts {
        let before = inst.operands().into_iter().map(|operand| lengths[operand.index()]).max().unwrap_or(0);
        lengths.push(before + 1);
    }
    lengths.into_iter().max().unwrap_or(0)
}

/// The body of a loop over vectors, for some groups.
pub(super) type VectorBody<'b, 'a> = dyn FnMut(&mut WideLoops<'a>, Vec<VectorGroup>) -> Option<()> + 'b;

impl<'a> WideLoops<'a> {
    /// A nest of one axis, from the second argument to the third, or whole.
    pub(super) fn flat(&mut self, whole: bool) -> Option<()> {
        let form = self.form;
        let body = &mut |l: &mut Self, groups| {
            l.open(groups);
            l.steps(&form.loops[l.innermost()].steps)
        };
        let groups = self.kernel_groups();
        if whole {
            let extent = self.kernel.axes[self.axis].extent;
            return self.walk_row(extent, groups.min(extent.div_ceil(self.e.level.lanes())), body);
        }
        self.e.regs.asm.mov(RCX, RSI);
        self.walk(Cell::Register(RDX), groups, body)
    }

    /// Vectors of an iteration: as many as the schedule has elements for, or as chains hide latencies.
    pub(super) fn kernel_groups(&self) -> usize {
        let chains = chains(self.form, self.e.level).min(self.e.most_chains);
        (self.nest.unroll * REDUCTION_LANES / self.e.level.lanes()).max(chains)
    }

    /// All points from the position on to the end in a cell: several vectors at once, single ones, and the rest.
    pub(super) fn walk(&mut self, end: Cell, groups: usize, body: &mut VectorBody<'_, 'a>) -> Option<()> {
        if groups > 1 {
            self.repeat_vectors(end, groups, body)?;
        }
        self.repeat_vectors(end, 1, body)?;
        let done = self.e.regs.asm.label();
        let asm = &mut self.e.regs.asm;
        asm.general(&[0x8b], true, RAX, Registers::cell(end));
        asm.alu(Alu::Sub, RAX, Rm::Register(RCX));
        asm.jump_if(Condition::Equal, done);
        let tail = self.open_tail();
        body(self, vec![VectorGroup { offset: 0, tail: Some(tail) }])?;
        self.end_body();
        self.e.regs.asm.bind(done);
        Some(())
    }

    /// All points of an axis from its origin on: `groups` vectors at once, and then what is left.
    pub(super) fn walk_row(&mut self, extent: usize, groups: usize, body: &mut VectorBody<'_, 'a>) -> Option<()> {
        let step = groups * self.e.level.lanes();
        let (trips, rest) = (extent / step, extent % step);
        self.e.regs.asm.mov_imm(Rm::Register(RCX), 0);
        if trips > 0 {
            let whole = self.whole_groups(groups);
            let top = self.e.regs.asm.label();
            let held = self.begin_loop(top, trips >= MIN_HELD_TRIPS, whole, body)?;
            self.e.regs.asm.alu_imm(Alu::Add, Rm::Register(RCX), step as i32);
            if trips > 1 {
                self.e.regs.asm.alu_imm(Alu::Cmp, Rm::Register(RCX), (trips * step) as i32);
                self.e.regs.asm.jump_if(Condition::Less, top);
            }
            self.e.regs.let_go(&held);
        }
        if rest > 0 {
            let rest = self.mixed_groups(rest);
            body(self, rest)?;
            self.end_body();
        }
        Some(())
    }

    /// Writes the body of a loop behind its label; gives the values that are held in registers for it.
    fn begin_loop(
        &mut self,
        top: JumpTarget,
        holds: bool,
        groups: Vec<VectorGroup>,
        body: &mut VectorBody<'_, 'a>,
    ) -> Option<Vec<Virtual>> {
        let mut held = vec![];
        if self.form.level_of(self.axis) == self.innermost() {
            // One block, which is known before it is written.
            body(self, groups)?;
            if holds {
                held = self.e.regs.worth_holding(&self.e.block);
            }
            self.e.regs.hold(&held);
            self.e.regs.asm.bind(top);
        } else {
            self.e.regs.asm.bind(top);
            body(self, groups)?;
        }
        self.end_body();
        Some(held)
    }

    /// A loop over `count` vectors at once while they fit.
    fn repeat_vectors(&mut self, end: Cell, count: usize, body: &mut VectorBody<'_, 'a>) -> Option<()> {
        let step = (count * self.e.level.lanes()) as i32;
        let [top, skip] = [(); 2].map(|()| self.e.regs.asm.label());
        let groups = self.whole_groups(count);
        let fits = |l: &mut Self, condition, to| {
            l.e.regs.asm.lea(RAX, Memory::at(RCX, step));
            l.e.regs.asm.alu(Alu::Cmp, RAX, Registers::cell(end));
            l.e.regs.asm.jump_if(condition, to);
        };
        fits(self, Condition::Greater, skip);
        let held = self.begin_loop(top, true, groups, body)?;
        self.e.regs.asm.alu_imm(Alu::Add, Rm::Register(RCX), step);
        fits(self, Condition::LessOrEqual, top);
        self.e.regs.let_go(&held);
        self.e.regs.asm.bind(skip);
        Some(())
    }

    /// Writes a block that is the body of a loop.
    pub(super) fn end_body(&mut self) {
        let block = std::mem::take(&mut self.e.block);
        self.e.regs.block(&block, &[]);
    }

    /// The tail of as many elements as RAX has.
    fn open_tail(&mut self) -> Tail {
        let left = self.e.regs.place(8);
        self.e.regs.asm.store(RAX, Memory::at(RSP, left));
        let left = Cell::Frame(left);
        if self.e.level.has_masks() {
            let (mask, slot) = self.e.regs.make_in_frame(RegClass::Mask);
            let asm = &mut self.e.regs.asm;
            asm.mov_imm(Rm::Register(RDI), -1);
            asm.low_bits(RDI, RDI, RAX);
            asm.store(RDI, Memory::at(RSP, slot));
            return Tail { mask, left, count: None };
        }
        let (mask, slot) = self.e.regs.make_in_frame(RegClass::Vector);
        let numbers = self.e.numbers(false, 0);
        let regs = &mut self.e.regs;
        // Nothing is in registers between blocks, except what is fixed, high up.
        regs.write(ops::move_to_lane(false), Len::Bits128, 0, 0, Rm::Register(RAX), None);
        regs.write(ops::repeat(false), Len::Bits256, 0, 0, Rm::Register(0), None);
        regs.fetch(1, numbers);
        regs.write(ops::greater_int(false), Len::Bits256, 0, 0, Rm::Register(1), None);
        regs.put(RegClass::Vector, 0, slot);
        Tail { mask, left, count: None }
    }
}
