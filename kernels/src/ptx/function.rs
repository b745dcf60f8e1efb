//! Writing a kernel: registers, labels, shared memory, and the text of a module.

use std::fmt::{self, Write};

use retape_runtime::{DType, Scalar};

use super::{Module, Target};

/// The kinds of registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    /// Predicates.
    Pred,
    /// 16 bits.
    B16,
    /// 32 bits.
    B32,
    /// 64 bits.
    B64,
    /// Single precision.
    F32,
    /// Double precision.
    F64,
}

impl Class {
    const ALL: [Class; 6] = [Class::Pred, Class::B16, Class::B32, Class::B64, Class::F32, Class::F64];

    const fn prefix(self) -> &'static str {
        match self {
            Class::Pred => "p",
            Class::B16 => "h",
            Class::B32 => "r",
            Class::B64 => "rd",
            Class::F32 => "f",
            Class::F64 => "fd",
        }
    }

    const fn ty(self) -> &'static str {
        match self {
            Class::Pred => "pred",
            Class::B16 => "b16",
            Class::B32 => "b32",
            Class::B64 => "b64",
            Class::F32 => "f32",
            Class::F64 => "f64",
        }
    }

    /// The class that holds values of a dtype in arithmetic: `bool` as a predicate, 16-bit floats as their bits, `u8`
    /// in 32 bits whose upper 24 are zero.
    pub(crate) const fn of(dtype: DType) -> Class {
        match dtype {
            DType::Bool => Class::Pred,
            DType::F16 | DType::Bf16 => Class::B16,
            DType::U8 | DType::I32 | DType::U32 => Class::B32,
            DType::I64 => Class::B64,
            DType::F32 => Class::F32,
            DType::F64 => Class::F64,
        }
    }
}

/// A virtual register; prints as PTX writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Reg {
    pub(crate) class: Class,
    number: u32,
}

impl fmt::Display for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}{}", self.class.prefix(), self.number)
    }
}

/// A place in the code; prints as PTX writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CodeLabel(u32);

impl fmt::Display for CodeLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "L{}", self.0)
    }
}

/// Appends one instruction to a [`PtxFunction`]: `ptx!(f, "add.s32 {d}, {a}, 1")`.
macro_rules! ptx {
    ($f:expr, $($text:tt)*) => { $f.push(format_args!($($text)*)) };
}
pub(crate) use ptx;

/// The largest alignment of what a kernel declares.
pub(super) const MAX_ALIGN: usize = 128;

/// The register that has the number of a block along x.
const BLOCK_INDEX: &str = "%ctaid.x";

/// The register that has the number of blocks along x.
const N_BLOCKS: &str = "%nctaid.x";

/// A parameter as an operand.
fn parameter(number: usize) -> String {
    format!("[p{number}]")
}

/// A kernel that is being written. All its parameters are addresses of global memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PtxFunction {
    name: String,
    target: Target,
    version: (u32, u32),
    block: u32,
    min_blocks_per_sm: Option<u32>,
    n_params: usize,
    n_regs: [u32; Class::ALL.len()],
    n_labels: u32,
    shared: String,
    /// Bytes of what `shared` declares, and of what kernels within declare.
    static_shared: usize,
    has_dynamic_shared: bool,
    /// How deep kernels lie in kernels.
    depth: u32,
    body: String,
}

impl PtxFunction {
    /// An empty kernel of blocks of `block` threads with `n_params` parameters.
    pub(crate) fn new(name: impl Into<String>, target: Target, block: u32, n_params: usize) -> PtxFunction {
        PtxFunction {
            name: name.into(),
            target,
            version: target.version(),
            block,
            min_blocks_per_sm: None,
            n_params,
            n_regs: [0; Class::ALL.len()],
            n_labels: 0,
            shared: String::new(),
            static_shared: 0,
            has_dynamic_shared: false,
            depth: 0,
            body: String::new(),
        }
    }

    /// The target of the code.
    pub(crate) fn target(&self) -> Target {
        self.target
    }

    /// Says that the code needs this version of PTX.
    pub(crate) fn require(&mut self, major: u32, minor: u32) {
        self.version = self.version.max((major, minor));
    }

    /// Says how many blocks must fit a multiprocessor, which bounds the registers of a thread.
    pub(crate) fn min_blocks_per_sm(&mut self, n: u32) {
        self.min_blocks_per_sm = Some(n);
    }

    /// A new register.
    pub(crate) fn reg(&mut self, class: Class) -> Reg {
        let number = &mut self.n_regs[class as usize];
        *number += 1;
        Reg { class, number: *number - 1 }
    }

    /// New registers.
    pub(crate) fn regs<const N: usize>(&mut self, class: Class) -> [Reg; N] {
        std::array::from_fn(|_| self.reg(class))
    }

    /// Appends an instruction, without its semicolon; see [`ptx!`].
    pub(crate) fn push(&mut self, instruction: fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = writeln!(self.body, "    {instruction};");
    }

    /// Appends `instruction` with one new register of `class` as its destination: `op` is what stands before the
    /// destination, `operands` what follows it.
    pub(crate) fn op(&mut self, class: Class, op: &str, operands: fmt::Arguments<'_>) -> Reg {
        let d = self.reg(class);
        self.push(format_args!("{op} {d}, {operands}"));
        d
    }

    /// Appends a comment.
    pub(crate) fn comment(&mut self, text: &str) {
        let _ = writeln!(self.body, "    // {text}");
    }

    /// A new label, which must be placed once.
    pub(crate) fn label(&mut self) -> CodeLabel {
        self.n_labels += 1;
        CodeLabel(self.n_labels - 1)
    }

    /// Places a label here.
    pub(crate) fn place(&mut self, label: CodeLabel) {
        let _ = writeln!(self.body, "{label}:");
    }

    /// Declares static shared memory and returns its name.
    pub(crate) fn shared(&mut self, name: &str, align: usize, bytes: usize) -> String {
        let _ = writeln!(self.shared, "    .shared .align {align} .b8 {name}[{bytes}];");
        self.static_shared = self.static_shared.next_multiple_of(align) + bytes;
        name.to_owned()
    }

    /// The name of the shared memory whose size the launch says, aligned to 128 bytes.
    pub(crate) fn dynamic_shared(&mut self) -> &'static str {
        self.has_dynamic_shared = true;
        "dynamic_shared"
    }

    /// The address of a parameter, in the global window.
    pub(crate) fn param(&mut self, number: usize) -> Reg {
        debug_assert!(number < self.n_params);
        let generic = self.op(Class::B64, "ld.param.u64", format_args!("{}", parameter(number)));
        self.op(Class::B64, "cvta.to.global.u64", format_args!("{generic}"))
    }

    /// The bits of a constant in a new register of its class; see [`Class::of`].
    pub(crate) fn constant(&mut self, c: Scalar) -> Reg {
        let class = Class::of(c.dtype);
        let d = self.reg(class);
        let bits = c.bits;
        match class {
            Class::Pred if bits == 0 => ptx!(self, "setp.ne.u32 {d}, 0, 0"),
            Class::Pred => ptx!(self, "setp.eq.u32 {d}, 0, 0"),
            Class::B16 => ptx!(self, "mov.b16 {d}, {}", bits as u16),
            Class::B32 => ptx!(self, "mov.b32 {d}, {}", bits as u32),
            Class::B64 => ptx!(self, "mov.b64 {d}, {}", bits as i64),
            Class::F32 => ptx!(self, "mov.f32 {d}, 0f{:08X}", bits as u32),
            Class::F64 => ptx!(self, "mov.f64 {d}, 0d{bits:016X}"),
        }
        d
    }

    /// The number of the block along x.
    pub(crate) fn block_index(&mut self) -> Reg {
        self.op(Class::B32, "mov.u32", format_args!("{BLOCK_INDEX}"))
    }

    /// The number of blocks along x.
    pub(crate) fn n_blocks(&mut self) -> Reg {
        self.op(Class::B32, "mov.u32", format_args!("{N_BLOCKS}"))
    }

    /// A module with this kernel alone.
    pub(crate) fn finish(self) -> Module {
        Module { name: self.name.clone(), function: self }
    }

    /// A kernel whose blocks do the work of those of several kernels, one after the other; each comes with the number
    /// of its blocks, all along x. Parameters are those of the first, then those of the second, and so on.
    ///
    /// A kernel with fewer threads a block than another must have no barrier.
    pub(crate) fn merge(kernels: &[(&PtxFunction, u32)]) -> PtxFunction {
        let most = |of: fn(&PtxFunction) -> u32| kernels.iter().map(|(kernel, _)| of(kernel)).max().unwrap_or(0);
        let (first, _) = kernels[0];
        let mut all = PtxFunction::new("beside", first.target, most(|kernel| kernel.block), 0);
        all.min_blocks_per_sm = kernels.iter().filter_map(|(kernel, _)| kernel.min_blocks_per_sm).min();
        all.depth = 1 + most(|kernel| kernel.depth);
        // Names that no kernel within has; each declares its other registers and labels within its braces.
        let (here, block, thread) =
            (format!("%here{}", all.depth), format!("%block{}", all.depth), format!("%thread{}", all.depth));
        ptx!(all, ".reg .pred {here}");
        ptx!(all, ".reg .b32 {block}, {thread}");
        ptx!(all, "mov.u32 {block}, {BLOCK_INDEX}");
        ptx!(all, "mov.u32 {thread}, %tid.x");
        for (n, &(kernel, n_blocks)) in kernels.iter().enumerate() {
            let (major, minor) = kernel.version;
            all.require(major, minor);
            all.has_dynamic_shared |= kernel.has_dynamic_shared;
            all.static_shared = all.static_shared.next_multiple_of(MAX_ALIGN) + kernel.static_shared;
            let next = all.label();
            if n + 1 < kernels.len() {
                ptx!(all, "setp.ge.u32 {here}, {block}, {n_blocks}");
                ptx!(all, "@{here} bra NEXT_{next}");
            }
            if kernel.block < all.block {
                ptx!(all, "setp.ge.u32 {here}, {thread}, {}", kernel.block);
                ptx!(all, "@{here} ret");
            }
            let text = kernel.scoped().replace(BLOCK_INDEX, &block).replace(N_BLOCKS, &n_blocks.to_string());
            // From the last on, so that none is taken for a later one that it became.
            let renamed = |text: String, n: usize| text.replace(&parameter(n), &parameter(n + all.n_params));
            let text = (0..kernel.n_params).rev().fold(text, renamed);
            let _ = writeln!(all.body, "    {{\n{text}    ret;\n    }}");
            all.n_params += kernel.n_params;
            if n + 1 < kernels.len() {
                let _ = writeln!(all.body, "NEXT_{next}:");
                ptx!(all, "sub.u32 {block}, {block}, {n_blocks}");
            }
        }
        all
    }

    /// Characters of its instructions.
    pub(crate) fn text_len(&self) -> usize {
        self.body.len()
    }

    /// Bytes of shared memory that it declares.
    pub(crate) fn static_shared(&self) -> usize {
        self.static_shared
    }

    /// Whether threads of a block wait for each other.
    pub(crate) fn has_barrier(&self) -> bool {
        self.body.contains("bar.sync")
    }

    /// Declarations and instructions.
    fn scoped(&self) -> String {
        let mut text = String::new();
        for class in Class::ALL {
            let n = self.n_regs[class as usize];
            if n > 0 {
                let _ = writeln!(text, "    .reg .{} %{}<{n}>;", class.ty(), class.prefix());
            }
        }
        text + &self.shared + &self.body
    }
}

impl Module {
    /// The whole text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let f = &self.function;
        let (major, minor) = f.version;
        let params: Vec<String> = (0..f.n_params).map(|n| format!("    .param .u64 p{n}")).collect();
        let _ = writeln!(text, ".version {major}.{minor}\n.target sm_{}\n.address_size 64\n", f.target.arch());
        if f.has_dynamic_shared {
            let _ = writeln!(text, ".extern .shared .align 128 .b8 dynamic_shared[];\n");
        }
        let _ = writeln!(text, ".visible .entry {}(\n{}\n)\n.reqntid {}", f.name, params.join(",\n"), f.block);
        if let Some(n) = f.min_blocks_per_sm {
            let _ = writeln!(text, ".minnctapersm {n}");
        }
        let _ = write!(text, "{{\n{}    ret;\n}}\n", f.scoped());
        text
    }
}
