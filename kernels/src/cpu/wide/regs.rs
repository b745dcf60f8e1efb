//! Registers for straight-line code: from virtual registers to the bytes of instructions.
//!
//! Every value has homes: a register, a slot of the stack frame, a constant of the pool, the buffer that it was read from.
//! Where registers run out, a value leaves its register that needs no store, having another home, or else one for a slot;
//! of these, the one whose next use is farthest (Belady). Instructions read an operand where it lies in memory if they
//! can. Code around which a branch leads is written out of line, behind the function, and finds and leaves the registers
//! as the branch does.

use std::mem;

use smallvec::{SmallVec, smallvec};

use super::code::{Branch, Code, ElementAddress, RegClass, RegField, RegOrMem, Row, Virtual};
use super::encode::{Assembler, Constant, Encoded, JumpTarget, Len, Memory, RAX, RDI, RSP, Rm};
use super::ops;

/// The place in a block of a use behind it.
const LIVE_OUT: u32 = u32::MAX - 1;
/// The place of no use at all.
const NEVER: u32 = u32::MAX;

/// The registers of a class that an instruction names at most.
pub(super) const MOST_NAMED: u32 = 5;

/// The places that hold a value.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Home {
    register: Option<u8>,
    /// Whether it never leaves its register.
    is_fixed: bool,
    /// Whether it leaves its register for its slot whenever it is made.
    is_kept: bool,
    slot: Option<i32>,
    /// Whether the slot is free for others after the last use in the block at hand.
    lends_slot: bool,
    constant: Option<usize>,
    /// The elements of a buffer that it was read from, if nothing is written before its last use.
    source: Option<ElementAddress>,
}

impl Home {
    pub(super) const fn slot(&self) -> Option<i32> {
        self.slot
    }

    /// Whether the value can leave its register without a store.
    const fn needs_no_store(&self) -> bool {
        self.slot.is_some() || self.constant.is_some() || self.source.is_some()
    }
}

/// Code to be written out of line, with the state at the branch to it.
#[derive(Debug)]
pub(super) struct Cold {
    pub(super) branch: Branch,
    pub(super) begin: JumpTarget,
    pub(super) back: JumpTarget,
    /// The places of what is in registers at the branch, of what it reads, and of its results.
    pub(super) homes: Vec<(Virtual, Home)>,
    /// The end of the part of the frame that is in use.
    pub(super) frame: i32,
    pub(super) usable: [u32; 2],
    /// The registers that hold something when the branch is back.
    pub(super) after: Vec<(RegClass, u8, Virtual)>,
}

/// Gives registers to virtual ones and writes the instructions.
#[derive(Debug)]
pub(super) struct Registers {
    pub(super) asm: Assembler,
    is_evex: bool,
    full: Len,
    classes: Vec<RegClass>,
    homes: Vec<Home>,
    /// The virtual registers of the constants, by their numbers in the pool.
    constants: Vec<Virtual>,
    owners: [[Option<Virtual>; 32]; 2],
    /// The registers that may be given, as bits, by class.
    usable: [u32; 2],
    /// Those that the current instruction names.
    pinned: [u32; 2],
    /// Of each value, the places in the block that use it.
    uses: Vec<Vec<u32>>,
    /// The values that have such places.
    used: Vec<Virtual>,
    /// The place of the first step that writes to a buffer.
    first_write: u32,
    now: u32,
    /// The place from which on uses count as next ones.
    next: u32,
    /// The values whose homes lend slots, and perhaps others.
    lenders: Vec<Virtual>,
    /// Slots of values that nobody needs any more.
    free_slots: Vec<i32>,
    /// Those that the current instruction may still read.
    dying_slots: Vec<i32>,
    frame: i32,
    most_frame: i32,
    cold: Vec<Cold>,
}

impl Registers {
    /// Registers for whole vectors of this width; at most `limit` of each class are used.
    pub(super) fn new(is_evex: bool, full: Len, limit: u32) -> Registers {
        let vectors = (if is_evex { 32 } else { 16 }).min(limit);
        // The first mask register stands for no mask.
        let masks = if is_evex { 7.min(limit) } else { 0 };
        let bits = |n: u32| u32::MAX.checked_shr(32 - n).unwrap_or(0);
        Registers {
            asm: Assembler::new(is_evex, full),
            is_evex,
            full,
            classes: vec![],
            homes: vec![],
            constants: vec![],
            owners: [[None; 32]; 2],
            usable: [bits(vectors), bits(masks) << 1],
            pinned: [0; 2],
            uses: vec![],
            used: vec![],
            first_write: 0,
            now: 0,
            next: 0,
            lenders: vec![],
            free_slots: vec![],
            dying_slots: vec![],
            frame: 0,
            most_frame: 0,
            cold: vec![],
        }
    }

    /// A new virtual register.
    pub(super) fn make(&mut self, class: RegClass) -> Virtual {
        let v = Virtual(self.classes.len() as u32);
        self.classes.push(class);
        self.homes.push(Home::default());
        self.uses.push(vec![]);
        v
    }

    pub(super) fn class(&self, v: Virtual) -> RegClass {
        self.classes[v.index()]
    }

    /// The virtual register of a constant.
    pub(super) fn constant(&mut self, constant: Constant) -> Virtual {
        let n = self.pooled(constant);
        self.constants[n]
    }

    /// The number of a constant in the pool, each of which has a virtual register.
    pub(super) fn pooled(&mut self, constant: Constant) -> usize {
        let n = self.asm.constant(constant);
        if n == self.constants.len() {
            let v = self.make(RegClass::Vector);
            self.homes[v.index()].constant = Some(n);
            self.constants.push(v);
        }
        n
    }

    /// A place of the frame.
    pub(super) fn place(&mut self, bytes: i32) -> i32 {
        self.frame = (self.frame + bytes - 1) / bytes * bytes;
        self.frame += bytes;
        self.frame - bytes
    }

    /// A slot for a whole vector.
    pub(super) fn slot(&mut self) -> i32 {
        self.place(self.full.bytes() as i32)
    }

    /// A place for whole vectors that lie one after the other.
    pub(super) fn slots(&mut self, count: usize) -> i32 {
        let first = self.slot();
        self.frame += ((count - 1) * self.full.bytes()) as i32;
        first
    }

    /// The end of the frame so far.
    pub(super) fn frame(&self) -> i32 {
        self.frame
    }

    /// The largest end that the frame has had.
    pub(super) fn most_frame(&self) -> i32 {
        self.most_frame.max(self.frame)
    }

    /// Gives back the places behind `end`, or goes on behind it.
    pub(super) fn end_frame(&mut self, end: i32) {
        self.most_frame = self.most_frame();
        self.frame = end;
        self.free_slots.retain(|&slot| slot < end);
    }

    /// A virtual register that lies in the frame from the start.
    pub(super) fn make_in_frame(&mut self, class: RegClass) -> (Virtual, i32) {
        let (v, slot) = (self.make(class), self.slot());
        self.homes[v.index()].slot = Some(slot);
        (v, slot)
    }

    /// A virtual register that may be made again and again: in a register of its own, or in the frame if none can be
    /// spared.
    pub(super) fn make_fixed(&mut self) -> Virtual {
        let v = self.make(RegClass::Vector);
        if self.fix(v).is_none() {
            let slot = self.slot();
            self.homes[v.index()].slot = Some(slot);
            self.homes[v.index()].is_kept = true;
        }
        v
    }

    fn fix(&mut self, v: Virtual) -> Option<u8> {
        let usable = &mut self.usable[self.classes[v.index()] as usize];
        let r = (usable.count_ones() > MOST_NAMED).then(|| 31 - usable.leading_zeros() as u8)?;
        *usable &= !(1 << r);
        self.homes[v.index()].register = Some(r);
        self.homes[v.index()].is_fixed = true;
        Some(r)
    }

    /// Brings values to registers that are theirs until [`let_go`](Registers::let_go).
    pub(super) fn hold(&mut self, values: &[Virtual]) {
        for &v in values {
            let home = self.homes[v.index()];
            if let Some(r) = self.fix(v) {
                self.homes[v.index()].register = None;
                self.fetch_from(r, v, home);
                self.homes[v.index()].register = Some(r);
            }
        }
    }

    pub(super) fn let_go(&mut self, values: &[Virtual]) {
        for v in values {
            let home = &mut self.homes[v.index()];
            if let Some(r) = home.register.take() {
                home.is_fixed = false;
                self.usable[self.classes[v.index()] as usize] |= 1 << r;
            }
        }
    }

    /// The values from outside that a block uses most often, as many as registers can be spared for.
    pub(super) fn worth_holding(&self, block: &[Code]) -> Vec<Virtual> {
        let mut n_uses = vec![0_u32; self.classes.len()];
        block.iter().for_each(|code| code.for_each_hot_use(&mut |v| n_uses[v.index()] += 1));
        let is_outside = |v: &Virtual| {
            let home = self.homes[v.index()];
            n_uses[v.index()] > 0 && !home.is_fixed && (home.slot.is_some() || home.constant.is_some())
        };
        let mut outside: Vec<Virtual> = (0..n_uses.len() as u32).map(Virtual).filter(is_outside).collect();
        outside.sort_by_key(|v| std::cmp::Reverse(n_uses[v.index()]));
        let pressure = self.pressure(block, &|v| self.homes[v.index()].slot.is_none());
        let mut spare =
            [0, 1].map(|class| (self.usable[class].count_ones() as usize).saturating_sub(pressure[class] + 3));
        outside.retain(|v| {
            let spare = &mut spare[self.class(*v) as usize];
            let is_spare = *spare > 0;
            *spare = spare.saturating_sub(1);
            is_spare
        });
        outside
    }

    /// The most values of each class that a block makes and that live at one time.
    fn pressure(&self, block: &[Code], is_inside: &dyn Fn(Virtual) -> bool) -> [usize; 2] {
        let mut is_live = vec![false; self.classes.len()];
        let (mut live, mut most) = ([0; 2], [0; 2]);
        for code in block.iter().rev() {
            for v in defined(code) {
                if mem::replace(&mut is_live[v.index()], false) {
                    live[self.class(v) as usize] -= 1;
                }
            }
            code.for_each_hot_use(&mut |v| {
                let home = self.homes[v.index()];
                if is_inside(v)
                    && home.constant.is_none()
                    && !home.is_fixed
                    && !mem::replace(&mut is_live[v.index()], true)
                {
                    live[self.class(v) as usize] += 1;
                }
            });
            most = [most[0].max(live[0]), most[1].max(live[1])];
        }
        most
    }

    /// Writes a block; `keep` has slots afterwards, and registers that are not fixed hold nothing.
    pub(super) fn block(&mut self, block: &[Code], keep: &[Virtual]) {
        for v in self.used.drain(..) {
            self.uses[v.index()].clear();
        }
        for (at, code) in block.iter().enumerate() {
            code.for_each_use(&mut |v| self.add_use(v, at as u32));
        }
        keep.iter().for_each(|&v| self.add_use(v, LIVE_OUT));
        let writes = block.iter().position(Code::writes_memory);
        self.first_write = writes.map_or(LIVE_OUT, |at| at as u32);
        // A value that has a slot from before may be needed behind the block.
        for v in self.lenders.drain(..) {
            self.homes[v.index()].lends_slot = false;
        }
        for (at, code) in block.iter().enumerate() {
            self.now = at as u32;
            self.next = self.now + 1;
            self.pinned = [0; 2];
            code.for_each_hot_use(&mut |v| self.pin(v));
            match code {
                Code::Row(row) => self.row(row, code),
                Code::Fma { wide, to, x, y, z } => self.fma(*wide, *to, [*x, *y, *z], code),
                Code::Branch(branch) => self.branch(branch, code),
                Code::Count { .. }
                | Code::RepeatUnit { .. }
                | Code::Collect { .. }
                | Code::Deinterleave { .. }
                | Code::LoadFrom { .. }
                | Code::LoadAlong { .. }
                | Code::StoreUnit { .. }
                | Code::Scatter { .. }
                | Code::Interleave { .. }
                | Code::Permute { .. }
                | Code::Turn { .. }
                | Code::CopyLeft { .. } => self.general(code),
            }
            self.release(code);
            defined(code).into_iter().for_each(|v| self.drop_dead(v));
            self.free_slots.append(&mut self.dying_slots);
        }
        keep.iter().for_each(|&v| self.spill(v));
        self.pinned = [0; 2];
        self.forget();
    }

    fn add_use(&mut self, v: Virtual, at: u32) {
        if self.uses[v.index()].is_empty() {
            self.used.push(v);
        }
        self.uses[v.index()].push(at);
    }

    /// Lets registers that are not fixed hold nothing.
    pub(super) fn forget(&mut self) {
        for v in self.owners.iter_mut().flatten().filter_map(Option::take) {
            self.homes[v.index()].register = None;
        }
    }

    fn next_use(&self, v: Virtual) -> u32 {
        let uses = &self.uses[v.index()];
        uses.get(uses.partition_point(|&at| at < self.next)).copied().unwrap_or(NEVER)
    }

    fn pin(&mut self, v: Virtual) {
        if let Some(r) = self.homes[v.index()].register {
            self.pinned[self.classes[v.index()] as usize] |= 1 << r;
        }
    }

    fn drop_register(&mut self, v: Virtual) {
        let (class, home) = (self.class(v), &mut self.homes[v.index()]);
        if !home.is_fixed
            && let Some(r) = home.register.take()
        {
            self.owners[class as usize][r as usize] = None;
        }
    }

    /// Frees the registers of values that an instruction used last.
    pub(super) fn release(&mut self, code: &Code) {
        let mut last = vec![];
        code.for_each_use(&mut |v| last.push(v));
        last.into_iter().for_each(|v| self.drop_dead(v));
    }

    fn drop_dead(&mut self, v: Virtual) {
        if self.next_use(v) == NEVER {
            self.drop_register(v);
            let home = &mut self.homes[v.index()];
            if let (true, Some(slot)) = (mem::take(&mut home.lends_slot), home.slot) {
                self.dying_slots.push(slot);
            }
        }
    }

    fn free(&self, class: RegClass) -> Option<u8> {
        let usable = self.usable[class as usize];
        (0..32).find(|&r| usable & (1 << r) != 0 && self.owners[class as usize][r as usize].is_none())
    }

    /// Lets values that the current step uses count as needed.
    pub(super) fn count_uses_from_now(&mut self) {
        self.next = self.now;
    }

    pub(super) fn count_uses_behind(&mut self) {
        self.next = self.now + 1;
    }

    pub(super) fn pin_only(&mut self, values: &[Virtual]) {
        self.pinned = [0; 2];
        values.iter().for_each(|&v| self.pin(v));
    }

    /// Whether a value is in a register that nobody needs behind the current instruction.
    pub(super) fn dies_in_register(&self, v: Virtual) -> bool {
        self.is_in_register(v) && !self.homes[v.index()].is_fixed && self.next_use(v) == NEVER
    }

    /// Gives the register of one value to another.
    pub(super) fn rename(&mut self, from: Virtual, to: Virtual) {
        if let Some(r) = self.homes[from.index()].register.take() {
            self.owners[self.class(from) as usize][r as usize] = Some(to);
            self.homes[to.index()].register = Some(r);
        }
    }

    /// Makes a value that is equal to another.
    pub(super) fn copy(&mut self, to: Virtual, from: Virtual) {
        self.register(from);
        let r = self.give(to);
        self.fetch(r, from);
    }

    /// The places at this point of what is in registers and of some other values.
    pub(super) fn homes_with(&self, others: impl Iterator<Item = Virtual>) -> Vec<(Virtual, Home)> {
        let owners = self.owners.iter().flatten().filter_map(|&owner| owner);
        owners.chain(others).map(|v| (v, self.homes[v.index()])).collect()
    }

    pub(super) fn usable(&self) -> [u32; 2] {
        self.usable
    }

    /// The registers that are not fixed and hold something that is still needed.
    pub(super) fn owned(&self) -> Vec<(RegClass, u8, Virtual)> {
        let all = [RegClass::Vector, RegClass::Mask].into_iter().flat_map(|class| (0..32).map(move |r| (class, r)));
        let owner = |(class, r): (RegClass, u8)| Some((class, r, self.owners[class as usize][r as usize]?));
        all.filter_map(owner).filter(|&(.., v)| self.next_use(v) != NEVER).collect()
    }

    pub(super) fn put_off(&mut self, cold: Cold) {
        self.cold.push(cold);
    }

    pub(super) fn next_cold(&mut self) -> Option<Cold> {
        self.cold.pop()
    }

    /// Keeps the frame so far from the parts that are put off: while the nests run, all of it may be in use.
    pub(super) fn keep_frame(&mut self) {
        let end = self.most_frame();
        self.cold.iter_mut().for_each(|cold| cold.frame = end);
    }

    /// Goes back to the state at a branch, as far as the part needs it. Slots that are free now may not have been so there.
    pub(super) fn enter(&mut self, cold: &Cold) {
        self.end_frame(cold.frame);
        self.free_slots.clear();
        self.forget();
        for &(v, home) in &cold.homes {
            self.homes[v.index()] = Home { lends_slot: false, ..home };
            if let (Some(r), false) = (home.register, home.is_fixed) {
                self.owners[self.class(v) as usize][r as usize] = Some(v);
            }
        }
        self.usable = cold.usable;
    }

    pub(super) fn is_evex(&self) -> bool {
        self.is_evex
    }

    pub(super) fn full(&self) -> Len {
        self.full
    }

    /// A register for a value that has none.
    pub(super) fn give(&mut self, v: Virtual) -> u8 {
        if let Some(r) = self.homes[v.index()].register {
            return r;
        }
        let class = self.class(v);
        let r = self.free(class).unwrap_or_else(|| self.evict(class));
        self.owners[class as usize][r as usize] = Some(v);
        self.homes[v.index()].register = Some(r);
        self.pin(v);
        r
    }

    /// The register of the value that leaves: one that needs no store, if there is one, whose next use is farthest.
    fn evict(&mut self, class: RegClass) -> u8 {
        let free = self.usable[class as usize] & !self.pinned[class as usize];
        let distance = |r: &u8| {
            let owner = self.owners[class as usize][*r as usize];
            owner.map_or((true, NEVER), |v| (self.homes[v.index()].needs_no_store(), self.next_use(v)))
        };
        let r = (0..32).filter(|r| free & (1 << r) != 0).max_by_key(distance);
        let r = r.expect("an instruction names fewer registers than there are");
        if let Some(v) = self.owners[class as usize][r as usize] {
            if self.next_use(v) != NEVER {
                self.spill(v);
            }
            self.drop_register(v);
        }
        r
    }

    /// Writes a value to a slot unless it has another home than its register.
    pub(super) fn spill(&mut self, v: Virtual) {
        let home = self.homes[v.index()];
        if let (Some(r), false) = (home.register, home.needs_no_store()) {
            let slot = self.free_slots.pop().unwrap_or_else(|| self.slot());
            let home = &mut self.homes[v.index()];
            (home.slot, home.lends_slot) = (Some(slot), true);
            self.lenders.push(v);
            self.put(self.class(v), r, slot);
        }
    }

    /// Writes a register to the frame.
    pub(super) fn put(&mut self, class: RegClass, r: u8, slot: i32) {
        let (op, len) = if class == RegClass::Mask { (ops::MASK_STORE, Len::Bits128) } else { (ops::STORE, self.full) };
        self.write(op, len, r, 0, Rm::Memory(Memory::at(RSP, slot)), None);
    }

    /// Reads a value to a register, which it need not own.
    pub(super) fn fetch(&mut self, r: u8, v: Virtual) {
        self.fetch_from(r, v, self.homes[v.index()]);
    }

    fn fetch_from(&mut self, r: u8, v: Virtual, home: Home) {
        let (op, len, from) = match (self.class(v), home) {
            (RegClass::Mask, Home { register: Some(from), .. }) => (ops::MASK_MOVE, Len::Bits128, Rm::Register(from)),
            (RegClass::Vector, Home { register: Some(from), .. }) => (ops::MOVE, self.full, Rm::Register(from)),
            (RegClass::Vector, Home { constant: Some(n), .. }) => match (self.is_evex, self.asm.is_repeated(n)) {
                (true, Some(wide)) => (ops::repeat(wide), self.full, Rm::Pool(n, false)),
                _ => (ops::MOVE, self.full, Rm::Pool(n, false)),
            },
            (RegClass::Vector, Home { slot: None, source: Some(source), .. }) => {
                (ops::MOVE, self.full, Rm::Memory(self.memory(source, RAX)))
            }
            (class, Home { slot, .. }) => {
                let (op, len) = match class {
                    RegClass::Mask => (ops::MASK_MOVE, Len::Bits128),
                    RegClass::Vector => (ops::MOVE, self.full),
                };
                (op, len, Rm::Memory(Memory::at(RSP, slot.unwrap_or_default())))
            }
        };
        if from != Rm::Register(r) {
            self.write(op, len, r, 0, from, None);
        }
    }

    /// The register of a value, to which it is read if it is not there.
    pub(super) fn register(&mut self, v: Virtual) -> u8 {
        let home = self.homes[v.index()];
        if let Some(r) = home.register {
            return r;
        }
        let r = self.give(v);
        self.fetch_from(r, v, home);
        r
    }

    /// The lowest lane of a value, of 64 bits if it is `far`, in RAX.
    pub(super) fn lowest_lane(&mut self, v: Virtual, far: bool) {
        match self.homes[v.index()] {
            Home { register: None, slot: Some(slot), .. } => {
                self.asm.general(&[0x8b], far, RAX, Rm::Memory(Memory::at(RSP, slot)));
            }
            Home { .. } => {
                let r = self.register(v);
                self.write(ops::move_from_lane(far), Len::Bits128, r, 0, Rm::Register(RAX), None);
            }
        }
    }

    pub(super) fn is_in_register(&self, v: Virtual) -> bool {
        self.homes[v.index()].register.is_some()
    }

    /// A value as an operand that may lie in memory.
    fn operand(&mut self, v: Virtual, op: ops::Op) -> Rm {
        let home = self.homes[v.index()];
        // A register that nobody needs saves the next use an access.
        let is_used_again = self.next_use(v) < LIVE_OUT && self.free(self.class(v)).is_some();
        let in_memory = match home {
            _ if !op.in_memory || home.register.is_some() || is_used_again => None,
            Home { constant: Some(n), .. } => match self.asm.is_repeated(n) {
                Some(wide) if self.is_evex => (op.repeats && op.wide == wide).then_some(Rm::Pool(n, true)),
                _ => op.is_full.then_some(Rm::Pool(n, false)),
            },
            Home { slot: Some(slot), .. } if self.class(v) == RegClass::Vector => {
                Some(Rm::Memory(Memory::at(RSP, slot)))
            }
            // Another operand may be fetched by way of RAX before the instruction is written.
            Home { slot: None, source: Some(source), .. } => Some(Rm::Memory(self.memory(source, RDI))),
            Home { .. } => None,
        };
        in_memory.unwrap_or_else(|| Rm::Register(self.register(v)))
    }

    pub(super) fn write(&mut self, op: ops::Op, len: Len, reg: u8, v: u8, rm: Rm, imm: Option<u8>) {
        self.asm.vector(&Encoded { op, len, reg, v, rm, imm, mask: (0, false) });
    }

    fn row(&mut self, row: &Row, code: &Code) {
        let mut row = *row;
        if let (true, RegField::Use(v), RegOrMem::Register(RegField::Use(rm))) = (row.commutes, row.v, row.rm)
            && !self.is_in_register(v)
            && self.is_in_register(rm)
        {
            (row.v, row.rm) = (RegField::Use(rm), RegOrMem::Register(RegField::Use(v)));
        }
        let (reg, v) = (self.used(row.reg), self.used(row.v));
        let mask = row.mask.map_or((0, false), |(mask, clears)| (self.register(mask), clears));
        let fourth = row.fourth.map(|v| self.register(v) << 4);
        let rm = match row.rm {
            RegOrMem::Memory(address) => Some(Rm::Memory(self.memory(address, RAX))),
            RegOrMem::Register(RegField::Use(rm)) => Some(self.operand(rm, row.op)),
            RegOrMem::Register(_) => None,
        };
        self.release(code);
        let [reg_made, v_made, rm_made] = row.fields().map(|field| match field {
            RegField::Define(v) => Some(self.give(v)),
            RegField::Digit(_) | RegField::Use(_) => None,
        });
        let rm = rm.or(rm_made.map(Rm::Register)).unwrap_or(Rm::Register(0));
        let (reg, v) = (reg_made.unwrap_or(reg), v_made.unwrap_or(v));
        self.asm.vector(&Encoded { op: row.op, len: row.len, reg, v, rm, imm: row.imm.or(fourth), mask });
        if let RegField::Define(v) = row.reg {
            self.keep(v, reg);
            if let RegOrMem::Memory(source) = row.rm
                && row.op == ops::move_elements(row.op.wide)
                && row.mask.is_none()
                && row.len == self.full
                && self.uses[v.index()].last().is_some_and(|&last| last < LIVE_OUT && last <= self.first_write)
            {
                self.homes[v.index()].source = Some(source);
            }
        }
    }

    /// Writes a value to the slot that it belongs to.
    fn keep(&mut self, v: Virtual, r: u8) {
        if let Home { is_kept: true, slot: Some(slot), .. } = self.homes[v.index()] {
            self.put(RegClass::Vector, r, slot);
            self.drop_register(v);
        }
    }

    fn used(&mut self, field: RegField) -> u8 {
        match field {
            RegField::Use(v) => self.register(v),
            RegField::Digit(digit) => digit,
            RegField::Define(_) => 0,
        }
    }

    /// The result takes the register of an operand that dies, where there is one.
    fn fma(&mut self, wide: bool, to: Virtual, [x, y, z]: [Virtual; 3], code: &Code) {
        let is_fixed = self.homes[to.index()].is_fixed;
        let over = [z, x, y].into_iter().find(|&v| !is_fixed && self.dies_in_register(v));
        let (x, y) = if self.is_in_register(x) { (x, y) } else { (y, x) };
        let (op, taken, v, rm) = match over {
            Some(taken) if taken == z => (ops::fma231(wide), taken, x, y),
            Some(taken) => {
                let other = if taken == x { y } else { x };
                match self.is_in_register(other) || !self.is_in_register(z) {
                    true => (ops::fma213(wide), taken, other, z),
                    false => (ops::fma132(wide), taken, z, other),
                }
            }
            None => (ops::fma231(wide), z, x, y),
        };
        let v = self.register(v);
        let rm = self.operand(rm, op);
        if over.is_some() {
            self.rename(taken, to);
            self.release(code);
        } else {
            let home = self.homes[z.index()];
            let r = self.give(to);
            self.fetch_from(r, z, home);
        }
        let r = self.register(to);
        self.write(op, self.full, r, v, rm, None);
    }
}

/// The values that a step makes.
fn defined(code: &Code) -> SmallVec<[Virtual; 2]> {
    match code {
        Code::Row(row) => row
            .fields()
            .into_iter()
            .filter_map(|field| match field {
                RegField::Define(v) => Some(v),
                RegField::Digit(_) | RegField::Use(_) => None,
            })
            .collect(),
        Code::Fma { to, .. }
        | Code::Count { to, .. }
        | Code::RepeatUnit { to, .. }
        | Code::LoadFrom { to, .. }
        | Code::LoadAlong { to, .. } => smallvec![*to],
        Code::Collect { to, part, .. } | Code::Deinterleave { to, part, .. } => smallvec![*to, *part],
        Code::Interleave { made, before, .. } => smallvec![*made, *before],
        Code::Permute { parts, .. } => SmallVec::from_slice(parts),
        Code::Turn { parts, .. } => SmallVec::from_slice(parts),
        Code::Branch(branch) => branch.results.iter().map(|&(result, _)| result).collect(),
        Code::StoreUnit { .. } | Code::Scatter { .. } | Code::CopyLeft { .. } => smallvec![],
    }
}
