//! PTX: the steps of a plan as text for NVIDIA GPUs.
//!
//! Each step becomes a few launches of kernels whose shapes are constants of the code, so that equal text means equal
//! code. Nothing here talks to a driver: text goes in and out, and is the same on every machine.
//!
//! Laws of all kernels: no result depends on the order of blocks, warps or memory operations; no atomic operation on
//! floats, unless [`Target::nondeterministic`] allows it; the tree of every reduction follows from the shape;
//! operations on floats say how they round, so that the assembler contracts nothing; fast approximations are used only
//! if [`Target::fast`] says so.

#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

mod cast;
mod fast;
mod function;
mod inst;
mod library;
mod memory;
mod merge;
mod nest;
mod product;
mod remainder;
mod value;

use smallvec::SmallVec;

use crate::error::{Error, Result};
use crate::library::Library;
use crate::plan::{Operand, Step, Work};

pub(crate) use cast::cast;
pub(crate) use function::{Class, CodeLabel, PtxFunction, Reg, ptx};
pub(crate) use inst::{combine, constant, emit_inst};
pub(crate) use memory::{Elements, Space, load, load_many, store, store_many};
pub(crate) use merge::{can_merge, is_small, merge_launches};
pub(crate) use value::RegValue;

/// Parameters of 8 bytes that a kernel may have in the versions of PTX that are emitted.
const MAX_ARGUMENTS: usize = 512;

/// Blocks of a launch along x, y and z at most.
const MAX_GRID: [u32; 3] = [i32::MAX as u32, u16::MAX as u32, u16::MAX as u32];

/// The device and the modes that code is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// The compute capability of the device, times ten: 75, 80, 90.
    pub sm: u32,
    /// Whether approximations of the hardware may stand for exact operations.
    pub fast: bool,
    /// Whether numbers may be added in an order that differs between runs.
    pub nondeterministic: bool,
}

/// A module with one kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Module {
    /// The name of the kernel in it.
    pub name: String,
    function: PtxFunction,
}

/// The buffer that a parameter of a kernel points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Argument {
    /// An operand of the step.
    Operand(usize),
    /// The scratch memory of the step from this byte on, a multiple of 256.
    Scratch(usize),
}

/// One launch of a kernel. All its parameters are addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The code.
    pub module: Module,
    /// Blocks along x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: u32,
    /// Bytes of shared memory beyond what the module declares.
    pub shared: u32,
    /// The targets of the parameters' pointers.
    pub arguments: SmallVec<[Argument; 6]>,
}

/// A step as launches to run in order, and the scratch memory that they share.
#[derive(Clone, Debug, Default)]
pub struct Launches {
    /// The launches.
    pub launches: Vec<Launch>,
    /// Bytes of scratch memory.
    pub scratch: usize,
}

impl Target {
    /// Exact and deterministic code for a device of this compute capability, times ten.
    pub const fn new(sm: u32) -> Target {
        Target { sm, fast: false, nondeterministic: false }
    }

    /// The target that text names: the newest whose features are used, which runs on every later device too.
    pub(crate) const fn arch(self) -> u32 {
        match self.sm {
            90.. => 90,
            80.. => 80,
            _ => 75,
        }
    }

    /// The lowest version of PTX that has the target.
    const fn version(self) -> (u32, u32) {
        match self.arch() {
            90 => (7, 8),
            80 => (7, 0),
            _ => (6, 3),
        }
    }
}

/// The launches of a step; its operands lie at multiples of 256 bytes, except for slots, whose offset gives the
/// alignment.
///
/// # Errors
///
/// Fails if the step cannot run on the device.
pub fn lower(step: &Step, target: Target) -> Result<Launches> {
    match &step.work {
        Work::Kernel(kernel) => launchable(nest::lower(kernel, &step.operands, target), || step.label.clone()),
        Work::Library { kernel, epilogue } => {
            let fused = match epilogue {
                Some(epilogue) => product::lower(kernel, Some(epilogue), target)?,
                None => Some(lower_library(kernel, target)?),
            };
            match fused {
                Some(launches) => launchable(launches, || kernel.to_string()),
                None => lower_separately(step, target),
            }
        }
    }
}

/// As [`lower`], but an epilogue has a launch of its own, which finds the library kernel's result in memory.
///
/// # Errors
///
/// As [`lower`].
pub fn lower_separately(step: &Step, target: Target) -> Result<Launches> {
    let Work::Library { kernel, epilogue: Some(epilogue) } = &step.work else { return lower(step, target) };
    let n_inputs = kernel.inputs().len();
    let params = step.work.epilogue_operands();
    let result = params[epilogue.accumulator().index()];
    let of_library = |operand: usize| if operand == n_inputs { result } else { operand };
    let mut all = launchable(lower_library(kernel, target)?, || kernel.to_string())?;
    rename(&mut all, of_library);
    let operands: Vec<Operand> = params.iter().filter_map(|&p| step.operands.get(p).copied()).collect();
    let mut after = launchable(nest::lower(epilogue.kernel(), &operands, target), || step.label.clone())?;
    rename(&mut after, |param| params[param]);
    all.launches.append(&mut after.launches);
    all.scratch = all.scratch.max(after.scratch);
    Ok(all)
}

/// Gives the operands of launches other numbers.
fn rename(launches: &mut Launches, number: impl Fn(usize) -> usize) {
    for argument in launches.launches.iter_mut().flat_map(|launch| &mut launch.arguments) {
        if let Argument::Operand(operand) = argument {
            *operand = number(*operand);
        }
    }
}

/// Blocks along x, y and z. Saturates to `u32`; a saturated grid fails the check of the launch.
fn grid(blocks: [usize; 3]) -> [u32; 3] {
    blocks.map(|n| u32::try_from(n).unwrap_or(u32::MAX))
}

/// The launches of some work, if a device takes all of them.
fn launchable(launches: Launches, what: impl Fn() -> String) -> Result<Launches> {
    for Launch { grid, block, arguments, .. } in &launches.launches {
        if arguments.len() > MAX_ARGUMENTS {
            let reason = format!("{} takes {} buffers, more than {MAX_ARGUMENTS}", what(), arguments.len());
            return Err(Error::Unsupported(reason));
        }
        if grid.iter().zip(MAX_GRID).any(|(n, most)| *n > most) {
            return Err(Error::Unsupported(format!("{} takes more blocks than a launch has", what())));
        }
        // Where there are no points, there is no launch.
        if grid.contains(&0) || *block == 0 {
            return Err(Error::Internal(format!("{}: a launch without threads", what())));
        }
    }
    Ok(launches)
}

fn lower_library(library: &Library, target: Target) -> Result<Launches> {
    library.verify()?;
    let launches = match library {
        Library::ArgReduce(kernel) => library::arg_reduce(kernel, target),
        Library::CastHalf(kernel) => library::cast_half(kernel, target),
        Library::Cholesky(kernel) => library::cholesky(kernel, target),
        Library::Join(kernel) => library::join(kernel, target),
        Library::Philox(kernel) => library::philox(kernel, target),
        Library::Pool2d(kernel) => library::pool(kernel, target),
        Library::Recurrence(kernel) => library::recurrence(kernel, target),
        Library::Scan(kernel) => library::scan(kernel, target),
        Library::ScatterAdd(kernel) => library::scatter_add(kernel, target),
        Library::Sort(kernel) => library::sort(kernel, target)?,
        // Launches run in order as it is.
        Library::Token(_) => Launches::default(),
        Library::Transpose(kernel) => library::transpose(kernel, target),
        Library::TriangularSolve(kernel) => library::triangular_solve(kernel, target),
        Library::Attention(_)
        | Library::MatMul(_)
        | Library::Conv2d(_)
        | Library::Print(_)
        | Library::Collective(_) => {
            let unsupported = || Error::Unsupported(format!("{} for sm_{}", library.name(), target.sm));
            return product::lower(library, None, target)?.ok_or_else(unsupported);
        }
    };
    Ok(launches)
}
