//! VEX and EVEX encodings: all that the wide emitter needs of an assembler.
//!
//! A vector instruction is a row of the opcode tables ([`Op`]) and its operands ([`Encoded`]); one function writes it
//! for every width. Constants lie in a pool behind the code, which is read relative to the instruction, so that the
//! bytes run wherever they lie on a boundary of 64 bytes.

use super::ops::{LOW_BITS, Op};

/// The general registers that the emitter names.
pub(super) const RAX: u8 = 0;
pub(super) const RCX: u8 = 1;
pub(super) const RDX: u8 = 2;
pub(super) const RSP: u8 = 4;
pub(super) const RSI: u8 = 6;
pub(super) const RDI: u8 = 7;

/// The width of an instruction, as its encoding has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Len {
    Bits128,
    Bits256,
    Bits512,
}

impl Len {
    pub(super) const fn bytes(self) -> usize {
        16 << self as usize
    }
}

/// `[base + index * 2^shift + displacement]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) base: u8,
    pub(super) index: Option<(u8, u8)>,
    pub(super) displacement: i32,
}

impl Memory {
    pub(super) const fn at(base: u8, displacement: i32) -> Memory {
        Memory { base, index: None, displacement }
    }
}

/// The operand that may lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rm {
    Register(u8),
    Memory(Memory),
    /// A constant of the pool; one element, repeated over the lanes, if the flag says so.
    Pool(usize, bool),
}

/// A constant as the pool holds it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Constant {
    /// 32 bits in all lanes.
    Words(u32),
    /// 64 bits in all lanes.
    Quads(u64),
    /// The bytes of a whole vector.
    Lanes(Vec<u8>),
}

/// A vector instruction with its registers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Encoded {
    pub(super) op: Op,
    pub(super) len: Len,
    pub(super) reg: u8,
    pub(super) v: u8,
    pub(super) rm: Rm,
    pub(super) imm: Option<u8>,
    /// The register that masks, 0 for none, and whether the lanes that it leaves out are cleared.
    pub(super) mask: (u8, bool),
}

/// A place in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JumpTarget(usize);

/// Conditions of jumps, as their opcodes have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// No unsigned overflow: the carry is clear.
    NoCarry = 3,
    Equal = 4,
    NotEqual = 5,
    Less = 0xc,
    GreaterOrEqual = 0xd,
    LessOrEqual = 0xe,
    Greater = 0xf,
}

/// Arithmetic of general registers, by the digit or the row that its opcodes have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alu {
    Add = 0,
    And = 4,
    Sub = 5,
    Cmp = 7,
}

/// Writes instructions.
#[derive(Debug)]
pub(super) struct Assembler {
    /// Whether vector instructions have EVEX encodings, and the width of a whole vector.
    is_evex: bool,
    full: Len,
    pub(super) code: Vec<u8>,
    pool: Vec<Constant>,
    /// References to constants: where the distance stands, the constant, and the bytes between it and the next instruction.
    pool_refs: Vec<(usize, usize, usize)>,
    labels: Vec<Option<usize>>,
    jumps: Vec<(usize, JumpTarget)>,
}

/// The bytes of a function, and how many of them are instructions.
#[derive(Debug)]
pub(super) struct Assembled {
    pub(super) bytes: Vec<u8>,
    #[cfg_attr(not(test), allow(dead_code, reason = "tests decode the instructions"))]
    pub(super) n_code: usize,
}

const fn bit(on: bool, at: u8) -> u8 {
    (on as u8) << at
}

impl Assembler {
    pub(super) fn new(is_evex: bool, full: Len) -> Assembler {
        let (code, pool, pool_refs, labels, jumps) = Default::default();
        Assembler { is_evex, full, code, pool, pool_refs, labels, jumps }
    }

    /// The number of a constant in the pool.
    pub(super) fn constant(&mut self, constant: Constant) -> usize {
        self.pool.iter().position(|known| *known == constant).unwrap_or_else(|| {
            self.pool.push(constant);
            self.pool.len() - 1
        })
    }

    /// Whether a constant is one element in all lanes, and if so, whether that has 64 bits.
    pub(super) fn is_repeated(&self, n: usize) -> Option<bool> {
        match self.pool[n] {
            Constant::Words(_) => Some(false),
            Constant::Quads(_) => Some(true),
            Constant::Lanes(_) => None,
        }
    }

    /// Writes a vector or mask instruction.
    pub(super) fn vector(&mut self, i: &Encoded) {
        let is_evex = self.is_evex && !i.op.is_mask();
        let (b, x) = match i.rm {
            Rm::Register(r) => (r & 8 != 0, is_evex && r & 16 != 0),
            Rm::Memory(m) => (m.base & 8 != 0, m.index.is_some_and(|(r, _)| r & 8 != 0)),
            Rm::Pool(..) => (false, false),
        };
        let r = i.reg & 8 != 0;
        let vvvv = (!i.v & 15) << 3;
        if is_evex {
            let repeats = matches!(i.rm, Rm::Pool(_, true));
            self.code.push(0x62);
            self.code.push(bit(!r, 7) | bit(!x, 6) | bit(!b, 5) | bit(i.reg & 16 == 0, 4) | i.op.map);
            self.code.push(bit(i.op.wide, 7) | vvvv | 4 | i.op.prefix);
            let (mask, clears) = i.mask;
            let len = (i.len as u8) << 5;
            self.code.push(bit(clears, 7) | len | bit(repeats, 4) | bit(i.v & 16 == 0, 3) | mask);
        } else {
            let last = vvvv | ((i.len as u8) << 2) | i.op.prefix;
            // AVX2 has one width for elements of both sizes where EVEX tells them apart.
            let wide = i.op.wide && i.op.vex_wide;
            if i.op.map == 1 && !wide && !x && !b {
                self.code.extend([0xc5, bit(!r, 7) | last]);
            } else {
                self.code.extend([0xc4, bit(!r, 7) | bit(!x, 6) | bit(!b, 5) | i.op.map, bit(wide, 7) | last]);
            }
        }
        self.code.push(i.op.opcode);
        let unit = match is_evex {
            true => i.op.is_full.then(|| i.len.bytes() as i32),
            false => Some(1),
        };
        self.modrm(i.reg, i.rm, unit, usize::from(i.imm.is_some()));
        self.code.extend(i.imm);
    }

    /// Writes the operand in memory or a register; short displacements count in `unit`s, where there are short ones.
    fn modrm(&mut self, reg: u8, rm: Rm, unit: Option<i32>, behind: usize) {
        let reg = (reg & 7) << 3;
        let Memory { base, index, displacement } = match rm {
            Rm::Register(r) => return self.code.push(0xc0 | reg | (r & 7)),
            Rm::Pool(n, _) => {
                self.code.push(reg | 5);
                self.pool_refs.push((self.code.len(), n, behind));
                return self.code.extend([0; 4]);
            }
            Rm::Memory(memory) => memory,
        };
        let short =
            unit.filter(|unit| displacement % unit == 0).and_then(|unit| i8::try_from(displacement / unit).ok());
        // Without a displacement, this base would be the next instruction.
        let mode = match short {
            Some(0) if base & 7 != 5 => 0,
            Some(_) => 0x40,
            None => 0x80,
        };
        match index {
            None if base & 7 != RSP => self.code.push(mode | reg | (base & 7)),
            None => self.code.extend([mode | reg | 4, 0x20 | (base & 7)]),
            Some((index, shift)) => {
                self.code.extend([mode | reg | 4, (shift << 6) | ((index & 7) << 3) | (base & 7)]);
            }
        }
        match (mode, short) {
            (0, _) => {}
            (_, Some(short)) => self.code.push(short.to_le_bytes()[0]),
            (_, None) => self.code.extend(displacement.to_le_bytes()),
        }
    }

    /// Writes an instruction on general registers of 64 bits, or of 32 if it is not `wide`.
    pub(super) fn general(&mut self, opcode: &[u8], wide: bool, reg: u8, rm: Rm) {
        let (b, x) = match rm {
            Rm::Register(r) => (r >> 3, 0),
            Rm::Memory(m) => (m.base >> 3, m.index.map_or(0, |(r, _)| r >> 3)),
            Rm::Pool(..) => (0, 0),
        };
        let rex = bit(wide, 3) | (reg >> 3 << 2) | (x << 1) | b;
        // Registers of bytes are the low ones only with a prefix.
        self.code.push(0x40 | rex);
        self.code.extend(opcode);
        self.modrm(reg, rm, Some(1), 0);
    }

    pub(super) fn mov(&mut self, to: u8, from: u8) {
        self.general(&[0x89], true, from, Rm::Register(to));
    }

    pub(super) fn load(&mut self, to: u8, from: Memory) {
        self.general(&[0x8b], true, to, Rm::Memory(from));
    }

    pub(super) fn store(&mut self, from: u8, to: Memory) {
        self.general(&[0x89], true, from, Rm::Memory(to));
    }

    /// `to = value`, sign-extended.
    pub(super) fn mov_imm(&mut self, to: Rm, value: i32) {
        self.general(&[0xc7], true, 0, to);
        self.code.extend(value.to_le_bytes());
    }

    pub(super) fn lea(&mut self, to: u8, from: Memory) {
        self.general(&[0x8d], true, to, Rm::Memory(from));
    }

    /// `to = to op from`.
    pub(super) fn alu(&mut self, op: Alu, to: u8, from: Rm) {
        self.general(&[((op as u8) << 3) | 3], true, to, from);
    }

    /// `to = to op value`.
    pub(super) fn alu_imm(&mut self, op: Alu, to: Rm, value: i32) {
        match i8::try_from(value) {
            Ok(short) => {
                self.general(&[0x83], true, op as u8, to);
                self.code.push(short.to_le_bytes()[0]);
            }
            Err(_) => {
                self.general(&[0x81], true, op as u8, to);
                self.code.extend(value.to_le_bytes());
            }
        }
    }

    /// `to = from * value`.
    pub(super) fn imul(&mut self, to: u8, from: Rm, value: i32) {
        self.general(&[0x69], true, to, from);
        self.code.extend(value.to_le_bytes());
    }

    /// `reg = min(reg, most)`.
    pub(super) fn at_most(&mut self, reg: u8, most: i32) {
        let fits = self.label();
        self.alu_imm(Alu::Cmp, Rm::Register(reg), most);
        self.jump_if(Condition::LessOrEqual, fits);
        self.mov_imm(Rm::Register(reg), most);
        self.bind(fits);
    }

    pub(super) fn push(&mut self, reg: u8) {
        self.code.extend([0x40 | (reg >> 3), 0x50 | (reg & 7)]);
    }

    pub(super) fn pop(&mut self, reg: u8) {
        self.code.extend([0x40 | (reg >> 3), 0x58 | (reg & 7)]);
    }

    pub(super) fn ret(&mut self) {
        self.code.push(0xc3);
    }

    /// Clears the upper parts of the vector registers, whose use by older instructions would be slow.
    pub(super) fn zero_upper(&mut self) {
        self.code.extend([0xc5, 0xf8, 0x77]);
    }

    /// Lets all later stores be seen behind those past the caches.
    pub(super) fn store_fence(&mut self) {
        self.code.extend([0x0f, 0xae, 0xf8]);
    }

    /// `to = from` without the bits from `count` on, of 32.
    pub(super) fn low_bits(&mut self, to: u8, from: u8, count: u8) {
        let (op, len, rm) = (LOW_BITS, Len::Bits128, Rm::Register(from));
        self.vector(&Encoded { op, len, reg: to, v: count, rm, imm: None, mask: (0, false) });
    }

    pub(super) fn label(&mut self) -> JumpTarget {
        self.labels.push(None);
        JumpTarget(self.labels.len() - 1)
    }

    pub(super) fn bind(&mut self, label: JumpTarget) {
        self.labels[label.0] = Some(self.code.len());
    }

    pub(super) fn jump(&mut self, to: JumpTarget) {
        self.code.push(0xe9);
        self.distance(to);
    }

    pub(super) fn jump_if(&mut self, condition: Condition, to: JumpTarget) {
        self.code.extend([0x0f, 0x80 | condition as u8]);
        self.distance(to);
    }

    fn distance(&mut self, to: JumpTarget) {
        self.jumps.push((self.code.len(), to));
        self.code.extend([0; 4]);
    }

    /// The bytes, with the pool behind the code; `None` if a label was never bound.
    pub(super) fn finish(mut self) -> Option<Assembled> {
        let put = |code: &mut Vec<u8>, at: usize, distance: i64| {
            code[at..at + 4].copy_from_slice(&(distance as i32).to_le_bytes());
        };
        for &(at, label) in &self.jumps {
            let target = self.labels[label.0]?;
            put(&mut self.code, at, target as i64 - (at as i64 + 4));
        }
        let n_code = self.code.len();
        let mut bytes = self.code;
        let mut places = vec![0; self.pool.len()];
        // Long ones first, so that all are aligned.
        let mut order: Vec<usize> = (0..self.pool.len()).collect();
        let in_memory = |constant: &Constant| match constant {
            Constant::Lanes(lanes) => lanes.clone(),
            Constant::Words(x) if self.is_evex => x.to_le_bytes().to_vec(),
            Constant::Quads(x) if self.is_evex => x.to_le_bytes().to_vec(),
            Constant::Words(x) => x.to_le_bytes().repeat(self.full.bytes() / 4),
            Constant::Quads(x) => x.to_le_bytes().repeat(self.full.bytes() / 8),
        };
        order.sort_by_key(|&n| std::cmp::Reverse(in_memory(&self.pool[n]).len()));
        for n in order {
            let constant = in_memory(&self.pool[n]);
            // Padding that stops a stray jump.
            bytes.resize(bytes.len().next_multiple_of(constant.len()), 0xcc);
            places[n] = bytes.len();
            bytes.extend(constant);
        }
        for &(at, n, behind) in &self.pool_refs {
            put(&mut bytes, at, places[n] as i64 - (at + 4 + behind) as i64);
        }
        Some(Assembled { bytes, n_code })
    }
}
