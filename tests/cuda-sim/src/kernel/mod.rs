//! A parsed module: kernels whose instructions are decoded, with registers resolved to indices.

mod inst;

use std::sync::Arc;

pub(crate) use inst::{
    Access, Address, AsyncCopy, Atomic, AtomicOp, Base, FloatMode, Guard, Inst, LOCAL_WINDOW, LoadMatrix, Mma, MmaTy,
    Op, Packing, Redux, SHARED_WINDOW, Shuffle, ShuffleMode, Space, Vote,
};

/// A module of PTX: its kernels and the arrays that belong to all of them.
#[derive(Debug)]
pub struct Module {
    pub(crate) kernels: Vec<Arc<Kernel>>,
    pub(crate) data: Arc<ModuleData>,
    /// The architecture that the text is written for, times ten, such as 80.
    pub(crate) target: u32,
    /// The version of PTX.
    pub(crate) version: (u32, u32),
}

/// Arrays of a module.
#[derive(Debug, Default)]
pub(crate) struct ModuleData {
    /// All `.const` arrays, one behind the other.
    pub(crate) constants: Vec<u8>,
    /// Each `.global` array: its name, its initial bytes (nothing if it has none) and its size.
    pub(crate) globals: Vec<GlobalArray>,
}

/// A `.global` array.
#[derive(Clone, Debug)]
pub(crate) struct GlobalArray {
    pub(crate) name: String,
    pub(crate) bytes: usize,
    pub(crate) initial: Option<Vec<u8>>,
}

/// One `.entry` of a module.
pub struct Kernel {
    pub(crate) name: String,
    /// Offset and size of each parameter.
    pub(crate) params: Vec<Param>,
    pub(crate) param_bytes: usize,
    pub(crate) insts: Vec<Inst>,
    /// Registers that instructions read and write, as ranges of this list.
    pub(crate) uses: Vec<u16>,
    /// The registers of all kinds, by their names.
    pub(crate) names: Vec<String>,
    /// How many registers there are of each file.
    pub(crate) files: Files,
    /// Registers that are filled before a warp begins.
    pub(crate) narrow_fill: Vec<(u16, Fill)>,
    pub(crate) wide_fill: Vec<(u16, Fill)>,
    pub(crate) shared_bytes: u32,
    /// Bytes of the smallest access to shared memory: the unit of the race check.
    pub(crate) shared_grain: u32,
    pub(crate) local_bytes: u32,
    pub(crate) required_block: Option<[u32; 3]>,
    pub(crate) max_block: Option<[u32; 3]>,
    pub(crate) data: Arc<ModuleData>,
    pub(crate) text: Arc<str>,
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Kernel({}, {} instructions)", self.name, self.insts.len())
    }
}

/// A parameter of a kernel.
#[derive(Clone, Debug)]
pub(crate) struct Param {
    pub(crate) name: String,
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
}

/// Sizes of the files of registers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Files {
    pub(crate) narrow: u16,
    pub(crate) wide: u16,
    pub(crate) preds: u16,
    /// Registers of all kinds that a program declares.
    pub(crate) declared: u16,
}

/// The content of a register when its warp begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fill {
    Bits(u64),
    Special(Special),
    /// Address of a `.global` array, plus an offset.
    Global(usize, i64),
    /// Where dynamic shared memory begins, plus an offset.
    DynamicShared(i64),
}

/// Registers that the machine fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Special {
    Tid(u8),
    Ntid(u8),
    Ctaid(u8),
    Nctaid(u8),
    LaneId,
    WarpId,
    NWarpId,
    LaneMask(LaneMask),
    TotalShared,
    DynamicShared,
}

/// Masks of the lanes in some relation to the own one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LaneMask {
    Eq,
    Le,
    Lt,
    Ge,
    Gt,
}

impl Module {
    /// The kernels by name, in the order of the text.
    pub fn kernels(&self) -> impl Iterator<Item = &str> {
        self.kernels.iter().map(|kernel| kernel.name.as_str())
    }

    /// The kernel of this name.
    pub fn kernel(&self, name: &str) -> Option<&Arc<Kernel>> {
        self.kernels.iter().find(|kernel| kernel.name == name)
    }

    /// The architecture that the text is written for, such as 80 for `sm_80`.
    pub fn target(&self) -> u32 {
        self.target
    }

    /// The version of PTX that the text is written in, such as `(7, 0)`.
    pub fn version(&self) -> (u32, u32) {
        self.version
    }
}

impl Kernel {
    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Offset and size in bytes of each parameter.
    pub fn params(&self) -> impl Iterator<Item = (usize, usize)> {
        self.params.iter().map(|param| (param.offset, param.bytes))
    }

    /// Bytes of all parameters together.
    pub fn param_bytes(&self) -> usize {
        self.param_bytes
    }

    /// Bytes of statically declared shared memory.
    pub fn shared_bytes(&self) -> u32 {
        self.shared_bytes
    }

    /// Bytes of local memory of each thread.
    pub fn local_bytes(&self) -> u32 {
        self.local_bytes
    }

    /// The greatest number of threads of a block, if the text says one.
    pub fn max_threads(&self) -> Option<u32> {
        self.required_block.or(self.max_block).map(|extents| extents.into_iter().fold(1, u32::saturating_mul))
    }

    /// The instruction as written, on one line.
    pub(crate) fn instruction(&self, inst: &Inst) -> String {
        let text = self.text.get(inst.span.0 as usize..inst.span.1 as usize).unwrap_or("");
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}
