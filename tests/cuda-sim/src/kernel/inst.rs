//! Decoded instructions: their effects and registers.

use crate::alu::convert::Conversion;
use crate::lanes::{Alu, AluFn};

/// An instruction.
#[derive(Clone, Debug)]
pub(crate) struct Inst {
    /// The predicate that must hold, and whether it is negated.
    pub(crate) guard: Option<Guard>,
    pub(crate) op: Op,
    /// Beginning of the registers read in `Kernel::uses`, their number, and the number of those written behind them.
    pub(crate) uses: (u32, u8, u8),
    pub(crate) line: u32,
    /// Bytes of the module's text.
    pub(crate) span: (u32, u32),
}

/// The predicate of an instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guard {
    pub(crate) pred: u16,
    /// Its number among all registers.
    pub(crate) id: u16,
    pub(crate) negated: bool,
}

/// The effect of an instruction.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Computes on registers.
    Alu {
        run: AluFn,
        alu: Alu,
    },
    /// The same with singles flushed to zero before and after (`ftz`), or clamped to 0..1 after (`sat`).
    AluF32 {
        run: AluFn,
        alu: Alu,
        float: FloatMode,
    },
    Convert {
        conversion: Conversion,
        alu: Alu,
    },
    /// The lanes where a comparison holds receive a value, the others zero.
    Set {
        run: AluFn,
        alu: Alu,
        d: u16,
        value: u32,
    },
    Pack(Box<Packing>),
    Unpack(Box<Packing>),
    /// Nothing: hints, fences, and all that has no effect in a machine that runs one warp at a time.
    Nothing,
    LoadParam {
        offset: u32,
        access: Access,
    },
    LoadConst(Access),
    Load(Access),
    Store(Access),
    Atomic(Box<Atomic>),
    AsyncCopy(Box<AsyncCopy>),
    AsyncCommit,
    /// Waits until at most so many groups are under way.
    AsyncWait(u32),
    /// As above, after a commit.
    AsyncWaitAll,
    LoadMatrix(Box<LoadMatrix>),
    Mma(Box<Mma>),
    Shuffle(Shuffle),
    Vote {
        mode: Vote,
        d: u16,
        pred: u16,
        negated: bool,
        members: u16,
    },
    Match {
        all: bool,
        wide: bool,
        d: u16,
        d2: u16,
        a: u16,
        members: u16,
    },
    Redux {
        op: Redux,
        d: u16,
        a: u16,
        members: u16,
    },
    ActiveMask {
        d: u16,
    },
    Elect {
        d: u16,
        pred: u16,
        members: u16,
    },
    WarpBarrier {
        members: u16,
    },
    /// Barrier of a block, its number, and how many threads it waits for (register, or all).
    Barrier {
        id: u16,
        count: Option<u16>,
        aligned: bool,
        arrive: bool,
    },
    Branch {
        to: u32,
        uniform: bool,
    },
    /// A jump to one of several places.
    BranchTable {
        index: u16,
        targets: Box<[u32]>,
    },
    Exit,
    Trap,
}

/// The effects of `.ftz` and `.sat` on an instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FloatMode {
    pub(crate) flush: bool,
    pub(crate) saturate: bool,
    /// How many of the operands are singles.
    pub(crate) sources: u8,
    /// The result is a predicate.
    pub(crate) is_test: bool,
}

/// Addresses of shared memory as seen by generic accesses begin here.
pub(crate) const SHARED_WINDOW: u64 = 1 << 52;

/// And those of local memory here.
pub(crate) const LOCAL_WINDOW: u64 = 1 << 53;

/// A register and the parts that it is made of, lowest first.
#[derive(Clone, Debug)]
pub(crate) struct Packing {
    pub(crate) parts: Vec<u16>,
    pub(crate) whole: u16,
    /// Bits of each part.
    pub(crate) bits: u32,
    pub(crate) wide: bool,
}

/// A space of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    Global,
    Shared,
    Local,
    /// Global, shared or local, by the address.
    Generic,
}

/// An address: a register (if any) plus an offset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address {
    pub(crate) base: Base,
    pub(crate) offset: i64,
}

/// The register of an address.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Base {
    None,
    Narrow(u16),
    Wide(u16),
}

/// A load or store of one to eight registers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub(crate) space: Space,
    pub(crate) address: Address,
    /// Bytes of each element in memory.
    pub(crate) size: u8,
    /// Bytes of each register.
    pub(crate) reg_size: u8,
    pub(crate) signed: bool,
    pub(crate) count: u8,
    pub(crate) regs: [u16; 8],
    /// Ordered against other blocks: `.volatile`, `.relaxed`, `.acquire`, `.release`.
    pub(crate) strong: bool,
    /// Of memory that does not change: `.nc`.
    pub(crate) constant: bool,
}

/// The operation of an atomic on the value in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtomicOp {
    Add,
    Min,
    Max,
    And,
    Or,
    Xor,
    Exch,
    Cas,
    Inc,
    Dec,
}

/// A read-modify-write.
#[derive(Clone, Debug)]
pub(crate) struct Atomic {
    pub(crate) op: AtomicOp,
    pub(crate) ty: crate::types::Ty,
    pub(crate) space: Space,
    pub(crate) address: Address,
    /// Receives the old value; `red` has none.
    pub(crate) d: Option<u16>,
    pub(crate) a: u16,
    pub(crate) b: u16,
}

/// `cp.async` from global to shared memory.
#[derive(Clone, Debug)]
pub(crate) struct AsyncCopy {
    pub(crate) to: Address,
    pub(crate) from: Address,
    pub(crate) size: u8,
    /// How many bytes come from memory, the rest is zero.
    pub(crate) source_size: Option<u16>,
    /// If this holds nothing comes from memory.
    pub(crate) ignore: Option<(u16, bool)>,
}

/// `ldmatrix`.
#[derive(Clone, Debug)]
pub(crate) struct LoadMatrix {
    pub(crate) regs: Vec<u16>,
    pub(crate) transposed: bool,
    pub(crate) space: Space,
    pub(crate) address: Address,
    /// A store (`stmatrix`) instead of a load.
    pub(crate) store: bool,
}

/// The element types of a matrix product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MmaTy {
    F16,
    Bf16,
    Tf32,
    F64,
}

/// `mma.sync`.
#[derive(Clone, Debug)]
pub(crate) struct Mma {
    pub(crate) ty: MmaTy,
    pub(crate) depth: usize,
    /// Accumulates in half precision.
    pub(crate) half: bool,
    pub(crate) d: Vec<u16>,
    pub(crate) a: Vec<u16>,
    pub(crate) b: Vec<u16>,
    pub(crate) c: Vec<u16>,
}

/// Where a lane of a shuffle reads from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShuffleMode {
    Up,
    Down,
    Butterfly,
    Index,
}

/// `shfl.sync`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shuffle {
    pub(crate) mode: ShuffleMode,
    pub(crate) d: u16,
    pub(crate) pred: Option<u16>,
    pub(crate) a: u16,
    pub(crate) b: u16,
    pub(crate) c: u16,
    pub(crate) members: u16,
}

/// `vote.sync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vote {
    All,
    Any,
    Uniform,
    Ballot,
}

/// `redux.sync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Redux {
    Add,
    MinU,
    MaxU,
    MinS,
    MaxS,
    And,
    Or,
    Xor,
}
