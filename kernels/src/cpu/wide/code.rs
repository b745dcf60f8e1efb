//! Straight-line code over virtual registers: the language between the choice of instructions and that of registers.

use retape_runtime::DType;

use super::encode::Len;
use super::ops::Op;
use crate::schedule::PermutedRows;

/// A virtual register: a whole vector, or a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Virtual(pub(super) u32);

impl Virtual {
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The registers of a machine that can hold a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RegClass {
    Vector,
    Mask,
}

/// The use of a register operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RegField {
    /// None, or a digit of the opcode.
    Digit(u8),
    Use(Virtual),
    Define(Virtual),
}

/// A pointer that the loops keep, or a counter: a register or a place of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cell {
    Register(u8),
    /// Bytes from the stack pointer.
    Frame(i32),
}

/// An element of a buffer: `[pointer + position * 2^shift + displacement]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ElementAddress {
    pub(super) pointer: Cell,
    /// Whether it moves with the position on the vector axis, and by how many bytes as a power of two.
    pub(super) shift: Option<u8>,
    pub(super) displacement: i32,
}

impl ElementAddress {
    /// The address that moves with the position, by elements of a dtype.
    pub(super) const fn moving(self, dtype: DType) -> ElementAddress {
        ElementAddress { shift: Some(dtype.size().trailing_zeros() as u8), ..self }
    }

    pub(super) const fn behind(self, bytes: i32) -> ElementAddress {
        ElementAddress { displacement: self.displacement + bytes, ..self }
    }
}

/// The operand that may lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RegOrMem {
    Register(RegField),
    Memory(ElementAddress),
}

/// A vector or mask instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) op: Op,
    pub(super) len: Len,
    pub(super) reg: RegField,
    pub(super) v: RegField,
    pub(super) rm: RegOrMem,
    pub(super) imm: Option<u8>,
    /// The mask of an EVEX instruction, and whether the lanes that it leaves out are cleared.
    pub(super) mask: Option<(Virtual, bool)>,
    /// The fourth register of a VEX instruction.
    pub(super) fourth: Option<Virtual>,
    /// Whether `v` and `rm` may be exchanged.
    pub(super) commutes: bool,
}

impl Row {
    /// `reg = op(rm)`.
    pub(super) const fn of(op: Op, len: Len, reg: RegField, rm: RegOrMem) -> Row {
        let v = RegField::Digit(0);
        Row { op, len, reg, v, rm, imm: None, mask: None, fourth: None, commutes: false }
    }

    pub(super) const fn v(self, v: RegField) -> Row {
        Row { v, ..self }
    }

    pub(super) const fn imm(self, imm: u8) -> Row {
        Row { imm: Some(imm), ..self }
    }

    /// Under a mask; lanes that it leaves out are cleared if a register is made.
    pub(super) const fn masked(self, mask: Option<Virtual>, clears: bool) -> Row {
        let mask = match mask {
            Some(mask) => Some((mask, clears)),
            None => None,
        };
        Row { mask, ..self }
    }

    /// The fields of the registers.
    pub(super) fn fields(&self) -> [RegField; 3] {
        let rm = match self.rm {
            RegOrMem::Register(field) => field,
            RegOrMem::Memory(_) => RegField::Digit(0),
        };
        [self.reg, self.v, rm]
    }
}

/// Selects that code branches around, with what only they need.
#[derive(Clone, Debug)]
pub(super) struct Branch {
    /// The condition.
    pub(super) condition: Virtual,
    /// Whether an element for which it holds asks for the body, or one for which it does not.
    pub(super) when: bool,
    /// The results of the selects, each with its value where nothing asks for the body.
    pub(super) results: Vec<(Virtual, Virtual)>,
    pub(super) body: Vec<Code>,
    /// The results of the selects in the body.
    pub(super) chosen: Vec<Virtual>,
}

/// The source or target of a move between general registers and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MoveWidth {
    Byte,
    Half,
}

impl MoveWidth {
    /// The width of elements of so many bytes, if they are short.
    pub(super) const fn of(size: usize) -> Option<MoveWidth> {
        match size {
            1 => Some(MoveWidth::Byte),
            2 => Some(MoveWidth::Half),
            _ => None,
        }
    }

    pub(super) const fn bytes(self) -> i32 {
        match self {
            MoveWidth::Byte => 1,
            MoveWidth::Half => 2,
        }
    }
}

/// The places of elements that are no neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scattered {
    /// `from + position * stride + lane * stride`, in bytes.
    Along { from: ElementAddress, stride: i32 },
    /// `from + position * stride + index`, where each lane has an index, in elements; of 64 bits if it is `far`.
    At { from: ElementAddress, stride: i32, index: Virtual, far: bool },
}

/// The lanes of a vector that have an element, the first ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LaneCount {
    Known(usize),
    /// As many as are left of a row.
    Left(Cell),
}

/// One step of straight-line code.
#[derive(Clone, Debug)]
pub(super) enum Code {
    Row(Row),
    /// `to = x * y + z`, rounded once; of 64-bit elements if `wide`.
    Fma {
        wide: bool,
        to: Virtual,
        x: Virtual,
        y: Virtual,
        z: Virtual,
    },
    Branch(Box<Branch>),
    /// A counter, or the position on the vector axis where there is none, plus `offset`, in all lanes of 64 bits if
    /// `wide`, else of 32.
    Count {
        to: Virtual,
        from: Option<Cell>,
        offset: i32,
        wide: bool,
    },
    /// A short element of memory, zero-extended, in all lanes of 32 bits.
    RepeatUnit {
        to: Virtual,
        unit: MoveWidth,
        from: ElementAddress,
    },
    /// The first lanes of `to`, one by one from memory; elements of `size` bytes, short ones zero-extended to 32 bits.
    Collect {
        to: Virtual,
        part: Virtual,
        size: usize,
        from: Scattered,
        count: usize,
    },
    /// Every `stride`-th word, picked from whole vectors of neighbours, the last of which ends with the last element.
    Deinterleave {
        to: Virtual,
        part: Virtual,
        from: ElementAddress,
        stride: usize,
    },
    /// Elements of `size` bytes from the position on that the lowest lane of `base` says, of 64 bits if it is `far`, plus
    /// the position on the vector axis where the address moves with it.
    LoadFrom {
        to: Virtual,
        op: Op,
        size: usize,
        base: Virtual,
        far: bool,
        from: ElementAddress,
        mask: Option<Virtual>,
    },
    /// Neighbouring elements from `from + position * stride` on, in bytes.
    LoadAlong {
        to: Virtual,
        op: Op,
        from: ElementAddress,
        stride: i32,
    },
    /// The lowest bits of a vector or a mask to memory.
    StoreUnit {
        value: Virtual,
        unit: MoveWidth,
        to: ElementAddress,
    },
    /// The vectors of words that lie one after the other in the frame, as many as `ways`, to `memory + position * ways` words:
    /// the first lanes of all, then the second ones.
    Interleave {
        made: Virtual,
        before: Virtual,
        ways: usize,
        frame: i32,
        memory: ElementAddress,
    },
    /// As many rows of words as `n_rows` from `to` on, which are permutations of those from `from` on.
    Permute {
        rows: Box<PermutedRows>,
        n_rows: usize,
        parts: [Virtual; 2],
        from: ElementAddress,
        to: ElementAddress,
    },
    /// Rows of as many words as there are columns, which follow one another from `memory + position * columns` words on, and
    /// vectors that follow one another in the frame, one for each column: the vectors are made of the rows if it `loads`, and
    /// the rows of the vectors if not.
    Turn {
        parts: [Virtual; 5],
        columns: usize,
        frame: i32,
        memory: ElementAddress,
        loads: bool,
    },
    /// Elements from a place of the stack to `to + position * stride + lane * stride`, in bytes.
    Scatter {
        size: usize,
        frame: i32,
        to: ElementAddress,
        stride: i32,
        lanes: LaneCount,
    },
    /// As many short elements as are left, to or from a place of the stack.
    CopyLeft {
        unit: MoveWidth,
        memory: ElementAddress,
        frame: i32,
        left: Cell,
        loads: bool,
    },
}

impl Code {
    /// Whether it writes to a buffer.
    pub(super) fn writes_memory(&self) -> bool {
        match self {
            Code::Row(row) => matches!((row.reg, row.rm), (RegField::Use(_), RegOrMem::Memory(_))),
            Code::StoreUnit { .. } | Code::Scatter { .. } | Code::Interleave { .. } | Code::Permute { .. } => true,
            Code::CopyLeft { loads, .. } | Code::Turn { loads, .. } => !loads,
            Code::Fma { .. }
            | Code::Branch(_)
            | Code::Count { .. }
            | Code::RepeatUnit { .. }
            | Code::LoadFrom { .. }
            | Code::LoadAlong { .. }
            | Code::Deinterleave { .. }
            | Code::Collect { .. } => false,
        }
    }

    /// Calls `f` for each register that is read, also by code that a branch leads to.
    pub(super) fn for_each_use(&self, f: &mut dyn FnMut(Virtual)) {
        self.for_each_hot_use(f);
        if let Code::Branch(branch) = self {
            branch.body.iter().for_each(|code| code.for_each_use(f));
            branch.chosen.iter().for_each(|v| f(*v));
        }
    }

    /// Calls `f` for each register that is read where no branch is taken.
    pub(super) fn for_each_hot_use(&self, f: &mut dyn FnMut(Virtual)) {
        match self {
            Code::Row(row) => {
                for field in row.fields() {
                    if let RegField::Use(v) = field {
                        f(v);
                    }
                }
                row.mask.iter().for_each(|(mask, _)| f(*mask));
                row.fourth.iter().for_each(|v| f(*v));
            }
            Code::Fma { x, y, z, .. } => [x, y, z].into_iter().for_each(|v| f(*v)),
            Code::Branch(branch) => {
                f(branch.condition);
                branch.results.iter().for_each(|(_, other)| f(*other));
            }
            Code::Collect { from: Scattered::At { index, .. }, .. } => f(*index),
            Code::LoadFrom { base, mask, .. } => [Some(base), mask.as_ref()].into_iter().flatten().for_each(|v| f(*v)),
            Code::StoreUnit { value, .. } => f(*value),
            Code::Count { .. }
            | Code::RepeatUnit { .. }
            | Code::CopyLeft { .. }
            | Code::LoadAlong { .. }
            | Code::Deinterleave { .. }
            | Code::Scatter { .. }
            | Code::Interleave { .. }
            | Code::Permute { .. }
            | Code::Turn { .. }
            | Code::Collect { .. } => {}
        }
    }
}
