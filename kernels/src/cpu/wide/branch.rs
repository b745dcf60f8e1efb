//! Branches around cold parts, and the few steps that take general registers.

use super::code::{Branch, Cell, Code, ElementAddress, MoveWidth, RegClass, Scattered, Virtual};
use super::encode::{Alu, Condition, Encoded, JumpTarget, Len, Memory, RAX, RCX, RDI, RSP, Rm};
use super::ops;
use super::regs::{Cold, Registers};

/// A general register for addresses, besides the one of every step.
pub(super) const R15: u8 = 15;

impl Registers {
    /// Writes the test of a condition and keeps the rest for [`cold_parts`](Registers::cold_parts).
    pub(super) fn branch(&mut self, branch: &Branch, code: &Code) {
        // All that the body needs must outlast the copies.
        self.count_uses_from_now();
        for &(result, other) in &branch.results {
            self.pin_only(&[branch.condition]);
            self.copy(result, other);
        }
        self.pin_only(&[]);
        let condition = self.register(branch.condition);
        let (begin, back) = (self.asm.label(), self.asm.label());
        let Branch { results, body, chosen, .. } = branch;
        let mut read: Vec<Virtual> = results.iter().map(|&(result, _)| result).chain(chosen.iter().copied()).collect();
        body.iter().for_each(|code| code.for_each_use(&mut |v| read.push(v)));
        let homes = self.homes_with(read.into_iter());
        self.jump_if_any(condition, branch.when, begin, self.class(branch.condition));
        self.asm.bind(back);
        self.count_uses_behind();
        self.release(code);
        let (usable, after, frame) = (self.usable(), self.owned(), self.frame());
        self.put_off(Cold { branch: branch.clone(), begin, back, homes, frame, usable, after });
    }

    /// Jumps where an element of a condition is `when`.
    fn jump_if_any(&mut self, condition: u8, when: bool, to: JumpTarget, class: RegClass) {
        let jump = match (class, when) {
            (RegClass::Mask, _) => {
                self.write(ops::MASK_TEST, Len::Bits128, condition, 0, Rm::Register(condition), None);
                if when { Condition::NotEqual } else { Condition::NoCarry }
            }
            (RegClass::Vector, _) => {
                self.write(ops::SIGNS, Len::Bits256, RAX, 0, Rm::Register(condition), None);
                self.asm.alu_imm(Alu::Cmp, Rm::Register(RAX), if when { 0 } else { 0xff });
                Condition::NotEqual
            }
        };
        self.asm.jump_if(jump, to);
    }

    /// Writes the parts that branches lead to; called behind the end of the function.
    pub(super) fn cold_parts(&mut self) {
        // One part runs at a time, and then those that it leads to: they share what is behind the frame of the nests.
        self.keep_frame();
        while let Some(cold) = self.next_cold() {
            self.cold_part(&cold);
        }
    }

    /// Saves the registers, makes the body in free ones, and leaves all as the branch does.
    fn cold_part(&mut self, cold: &Cold) {
        let Branch { results, body, chosen, .. } = &cold.branch;
        self.asm.bind(cold.begin);
        self.enter(cold);
        let is_result = |v: Virtual| results.iter().any(|&(result, _)| result == v);
        let mut inputs: Vec<Virtual> = cold.after.iter().map(|&(_, _, v)| v).filter(|&v| !is_result(v)).collect();
        body.iter().for_each(|code| code.for_each_use(&mut |v| inputs.push(v)));
        inputs.extend(chosen);
        inputs.into_iter().for_each(|v| self.spill(v));
        self.forget();
        self.block(body, chosen);
        for (&(result, _), &from) in results.iter().zip(chosen) {
            let home = cold.homes.iter().find(|(v, _)| *v == result);
            if let Some(slot) = home.and_then(|(_, home)| home.slot()) {
                self.pin_only(&[]);
                let r = self.register(from);
                self.put(self.class(from), r, slot);
            }
        }
        self.forget();
        for &(_, r, v) in &cold.after {
            let from = results.iter().position(|&(result, _)| result == v).map_or(v, |n| chosen[n]);
            self.fetch(r, from);
        }
        self.asm.jump(cold.back);
    }

    /// The address of an element; `spare` may be written.
    pub(super) fn memory(&mut self, address: ElementAddress, spare: u8) -> Memory {
        let base = match address.pointer {
            Cell::Register(r) => r,
            Cell::Frame(at) => {
                self.asm.load(spare, Memory::at(RSP, at));
                spare
            }
        };
        Memory { base, index: address.shift.map(|shift| (RCX, shift)), displacement: address.displacement }
    }

    /// A cell as an operand.
    pub(super) fn cell(cell: Cell) -> Rm {
        match cell {
            Cell::Register(r) => Rm::Register(r),
            Cell::Frame(at) => Rm::Memory(Memory::at(RSP, at)),
        }
    }

    /// Writes a step that takes general registers.
    pub(super) fn general(&mut self, code: &Code) {
        match *code {
            Code::Row(_) | Code::Fma { .. } | Code::Branch(_) => {}
            Code::Count { to, from, offset, wide } => {
                match from {
                    Some(from) => self.asm.general(&[0x8b], true, RAX, Registers::cell(from)),
                    None => self.asm.mov(RAX, RCX),
                }
                if offset != 0 {
                    self.asm.alu_imm(Alu::Add, Rm::Register(RAX), offset);
                }
                self.repeat_general(to, wide);
            }
            Code::RepeatUnit { to, unit, from } => {
                let from = self.memory(from, RAX);
                self.load_unit(unit, RAX, from);
                self.repeat_general(to, false);
            }
            Code::Collect { to, part, size, from, count } => self.collect([to, part], size, from, count),
            Code::Deinterleave { to, part, from, stride } => self.deinterleave([to, part], from, stride),
            Code::LoadFrom { to, op, size, base, far, from, mask } => {
                let mask = mask.map(|mask| (self.class(mask), self.register(mask)));
                self.lowest_lane(base, far);
                if from.shift.is_some() {
                    self.asm.alu(Alu::Add, RAX, Rm::Register(RCX));
                }
                let pointer = match from.pointer {
                    Cell::Register(r) => r,
                    Cell::Frame(at) => {
                        self.asm.load(RDI, Memory::at(RSP, at));
                        RDI
                    }
                };
                let index = Some((RAX, size.trailing_zeros() as u8));
                let rm = Rm::Memory(Memory { base: pointer, index, displacement: from.displacement });
                let (v, mask) = match mask {
                    Some((RegClass::Vector, r)) => (r, (0, false)),
                    Some((RegClass::Mask, r)) => (0, (r, true)),
                    None => (0, (0, false)),
                };
                let reg = self.give(to);
                self.asm.vector(&Encoded { op, len: self.full(), reg, v, rm, imm: None, mask });
            }
            Code::LoadAlong { to, op, from, stride } => {
                let memory = self.moved(from, stride);
                let reg = self.give(to);
                self.write(op, self.full(), reg, 0, Rm::Memory(memory), None);
            }
            Code::StoreUnit { value, unit, to } => {
                let value_in = self.register(value);
                match self.class(value) {
                    RegClass::Mask => {
                        self.write(ops::MASK_TO_GENERAL, Len::Bits128, RDI, 0, Rm::Register(value_in), None);
                        self.asm.alu_imm(Alu::And, Rm::Register(RDI), 1);
                    }
                    RegClass::Vector => {
                        self.write(ops::move_from_lane(false), Len::Bits128, value_in, 0, Rm::Register(RDI), None);
                    }
                }
                let to = self.memory(to, RAX);
                self.store_unit(unit, RDI, to);
            }
            Code::Interleave { made, before, ways, frame, memory } => {
                self.interleave([made, before], ways, frame, memory);
            }
            Code::Permute { ref rows, n_rows, parts, from, to } => self.permute_rows(rows, n_rows, parts, [from, to]),
            Code::Turn { parts, columns, frame, memory, loads } => self.turn(parts, columns, frame, memory, loads),
            Code::Scatter { size, frame, to, stride, lanes } => self.scatter(size, frame, to, stride, lanes),
            Code::CopyLeft { unit, memory, frame, left, loads } => self.copy_left(unit, memory, frame, left, loads),
        }
    }

    /// An address that moves with the position on the vector axis by `stride` bytes, with RDI as its base.
    pub(super) fn moved(&mut self, from: ElementAddress, stride: i32) -> Memory {
        let base = self.memory(from, RAX);
        self.asm.imul(RDI, Rm::Register(RCX), stride);
        self.asm.alu(Alu::Add, RDI, Rm::Register(base.base));
        Memory { base: RDI, ..base }
    }

    /// Lanes one by one, 128 bits after 128 bits.
    fn collect(&mut self, [to, part]: [Virtual; 2], size: usize, from: Scattered, count: usize) {
        let (first, stride) = match from {
            Scattered::Along { from, stride } | Scattered::At { from, stride, .. } => (from, stride),
        };
        let frame = match from {
            Scattered::At { index, .. } => {
                let (r, frame) = (self.register(index), self.slot());
                self.put(RegClass::Vector, r, frame);
                frame
            }
            Scattered::Along { .. } => 0,
        };
        let base = if stride != 0 {
            self.moved(first, stride)
        } else {
            let base = self.memory(first, RAX);
            match base.base {
                RAX => {
                    self.asm.mov(RDI, RAX);
                    Memory { base: RDI, ..base }
                }
                _ => base,
            }
        };
        let [to, part] = [to, part].map(|v| self.give(v));
        let wide = size == 8;
        let fours = if wide { 2 } else { 4 };
        let unit = MoveWidth::of(size);
        for lane in 0..count {
            let memory = match from {
                Scattered::Along { .. } => Memory { displacement: base.displacement + lane as i32 * stride, ..base },
                Scattered::At { far, .. } => {
                    let at = Memory::at(RSP, frame + lane as i32 * if far { 8 } else { 4 });
                    // Sign-extended if it has 32 bits.
                    self.asm.general(if far { &[0x8b] } else { &[0x63] }, true, RAX, Rm::Memory(at));
                    Memory { index: Some((RAX, size.trailing_zeros() as u8)), ..base }
                }
            };
            let r = if lane < fours { to } else { part };
            if let Some(unit) = unit {
                self.load_unit(unit, RAX, memory);
            }
            let (op, v, imm) = match (lane % fours, wide) {
                (0, _) if unit.is_some() => (ops::move_to_lane(false), 0, None),
                (0, _) => (ops::load_lane(wide), 0, None),
                (_, true) => (ops::INSERT_HIGH, r, None),
                (n, false) if unit.is_some() => (ops::INSERT_GENERAL, r, Some(n as u8)),
                (n, false) => (ops::INSERT_WORD, r, Some(n as u8 * 16)),
            };
            let rm = if unit.is_some() { Rm::Register(RAX) } else { Rm::Memory(memory) };
            self.write(op, Len::Bits128, r, v, rm, imm);
            if lane >= fours && (lane + 1 == count || lane % fours == fours - 1) {
                self.write(ops::INSERT_128, self.full(), to, to, Rm::Register(part), Some((lane / fours) as u8));
            }
        }
    }

    /// A general register, or its low half, in all lanes.
    fn repeat_general(&mut self, to: Virtual, wide: bool) {
        let r = self.give(to);
        if self.is_evex() {
            return self.write(ops::repeat_general(wide), self.full(), r, 0, Rm::Register(RAX), None);
        }
        self.write(ops::move_to_lane(wide), Len::Bits128, r, 0, Rm::Register(RAX), None);
        self.write(ops::repeat(wide), self.full(), r, 0, Rm::Register(r), None);
    }

    pub(super) fn load_unit(&mut self, unit: MoveWidth, to: u8, from: Memory) {
        let opcode = match unit {
            MoveWidth::Byte => [0x0f, 0xb6],
            MoveWidth::Half => [0x0f, 0xb7],
        };
        self.asm.general(&opcode, false, to, Rm::Memory(from));
    }

    pub(super) fn store_unit(&mut self, unit: MoveWidth, from: u8, to: Memory) {
        match unit {
            MoveWidth::Byte => self.asm.general(&[0x88], false, from, Rm::Memory(to)),
            MoveWidth::Half => {
                self.asm.code.push(0x66);
                self.asm.general(&[0x89], false, from, Rm::Memory(to));
            }
        }
    }

    /// Copies what is left from its end to its start.
    fn copy_left(&mut self, unit: MoveWidth, memory: ElementAddress, frame: i32, left: Cell, loads: bool) {
        let memory = self.memory(memory, RAX);
        self.asm.lea(R15, memory);
        self.asm.general(&[0x8b], true, RDI, Registers::cell(left));
        let top = self.asm.label();
        self.asm.bind(top);
        let index = Some((RDI, unit as u8));
        let outside = Memory { base: R15, index, displacement: -unit.bytes() };
        let inside = Memory { base: RSP, index, displacement: frame - unit.bytes() };
        let (from, to) = if loads { (outside, inside) } else { (inside, outside) };
        self.load_unit(unit, RAX, from);
        self.store_unit(unit, RAX, to);
        self.asm.alu_imm(Alu::Sub, Rm::Register(RDI), 1);
        self.asm.jump_if(Condition::NotEqual, top);
    }
}
