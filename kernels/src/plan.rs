//! The static plan of a graph: steps over buffers whose places are decided.
//!
//! Guarantees of a verified plan: every operand lies inside its buffer and has the dtype and length that its step
//! expects, inputs are not written, every output is, and no step writes what it reads, unless it is a
//! kernel that reads and writes each element at the same point. An epilogue may write so over what it reads and over its
//! accumulator, but never over what the library kernel reads, which other parts of the same step still need. An output
//! may be written over an input if a [`Donation`] says so: then nothing reads the input after the output is begun, unless
//! at the same point.

#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

use std::fmt;
use std::ops::Range;

use retape_runtime::DType;
use smallvec::SmallVec;

use crate::ensure::ensure;
use crate::epilogue::Epilogue;
use crate::error::{Error, Result};
use crate::ir::{Inst, Kernel, operation};
use crate::library::Library;

/// The alignment of addresses that library kernels expect, in bytes.
const LIBRARY_ALIGN: usize = 64;

/// The type of a buffer: a dtype and a number of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BufferType {
    /// The dtype of the elements.
    pub dtype: DType,
    /// The number of elements.
    pub len: usize,
}

/// Where an operand lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// An input of the call.
    Input(u32),
    /// A result of the call.
    Output(u32),
    /// Bytes of the arena from `offset` on.
    Slot {
        /// A multiple of the element size, and of 64 if a library step uses it.
        offset: usize,
    },
}

/// An operand of a step, read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operand {
    /// Where it lies.
    pub place: Place,
    /// The dtype of its elements.
    pub dtype: DType,
    /// The number of its elements.
    pub len: usize,
}

/// The work of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// Runs a loop nest.
    Kernel(Kernel),
    /// Runs a library kernel, and an epilogue on its result.
    Library {
        /// The library kernel.
        kernel: Library,
        /// The pointwise kernel that follows it, element by element.
        epilogue: Option<Epilogue>,
    },
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The work.
    pub work: Work,
    /// The operands that it reads, then those that it writes: with an epilogue, those of the library kernel before the
    /// epilogue's, and the accumulator last.
    pub operands: SmallVec<[Operand; 6]>,
    /// The name for people.
    pub label: String,
}

/// An output that may be written into the memory of an input, if the caller gives that away.
///
/// Pairs do not depend on each other: any of them that share no input and no output may be used in one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Donation {
    /// The number of the output.
    pub output: u32,
    /// The number of the input.
    pub input: u32,
}

/// Steps to run in order, and the buffers they run on.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The buffers passed to a call.
    pub inputs: Vec<BufferType>,
    /// The buffers that a call returns.
    pub outputs: Vec<BufferType>,
    /// The size of the memory for what lies in between.
    pub arena_bytes: usize,
    /// The steps.
    pub steps: Vec<Step>,
    /// The outputs that may be written into donated inputs; of two pairs for one output or of one input, the first is
    /// preferred.
    pub donations: Vec<Donation>,
}

/// Where the inputs of a plan are read and its outputs written, as pairs of a step and an operand.
struct Uses {
    reads: Vec<Vec<(usize, usize)>>,
    writes: Vec<Vec<(usize, usize)>>,
}

impl BufferType {
    /// The size in bytes.
    pub fn bytes(&self) -> usize {
        self.len.saturating_mul(self.dtype.size())
    }
}

impl Operand {
    /// The type of the operand.
    pub fn ty(&self) -> BufferType {
        BufferType { dtype: self.dtype, len: self.len }
    }

    /// Its bytes in its buffer.
    fn range(&self) -> Range<usize> {
        let start = match self.place {
            Place::Slot { offset } => offset,
            Place::Input(_) | Place::Output(_) => 0,
        };
        start..start.saturating_add(self.ty().bytes())
    }

    pub(crate) fn overlaps(&self, other: &Operand) -> bool {
        let same = match (self.place, other.place) {
            (Place::Slot { .. }, Place::Slot { .. }) => true,
            (a, b) => a == b,
        };
        let (a, b) = (self.range(), other.range());
        same && a.start.max(b.start) < a.end.min(b.end)
    }
}

impl Work {
    /// A library kernel without an epilogue.
    pub fn library(kernel: impl Into<Library>) -> Work {
        Work::Library { kernel: kernel.into(), epilogue: None }
    }

    /// The loop nest: the kernel, or the epilogue of a library kernel.
    pub(crate) fn kernel(&self) -> Option<&Kernel> {
        match self {
            Work::Kernel(kernel) => Some(kernel),
            Work::Library { epilogue, .. } => epilogue.as_ref().map(Epilogue::kernel),
        }
    }

    /// The epilogue, if there is one.
    pub fn epilogue(&self) -> Option<&Epilogue> {
        match self {
            Work::Kernel(_) => None,
            Work::Library { epilogue, .. } => epilogue.as_ref(),
        }
    }

    /// The types of the operands, and how many of them are read.
    pub fn signature(&self) -> (Vec<BufferType>, usize) {
        let types_of = |kernel: &Kernel| -> Vec<BufferType> {
            kernel.params.iter().map(|p| BufferType { dtype: p.dtype, len: p.len }).collect()
        };
        match self {
            Work::Kernel(kernel) => (types_of(kernel), kernel.params.iter().filter(|p| !p.written).count()),
            Work::Library { kernel, epilogue } => {
                let typed = |list: Vec<(DType, usize)>| list.into_iter().map(|(dtype, len)| BufferType { dtype, len });
                let mut types: Vec<BufferType> = typed(kernel.inputs()).collect();
                let mut n_read = types.len();
                if let Some(epilogue) = epilogue {
                    let all = types_of(epilogue.kernel());
                    types.extend(epilogue.others().map(|p| all[p]));
                    n_read += epilogue.others().filter(|&p| !epilogue.kernel().params[p].written).count();
                }
                types.extend(typed(kernel.outputs()));
                (types, n_read)
            }
        }
    }

    /// How many operands, from the first on, are what it reads and its results: all but an accumulator that is not kept.
    pub fn n_meaningful(&self) -> usize {
        let drops = self.epilogue().is_some_and(|epilogue| !epilogue.keeps_accumulator());
        self.signature().0.len() - usize::from(drops)
    }

    /// The operand that is the accumulator of the epilogue.
    pub fn accumulator(&self) -> Option<usize> {
        self.epilogue_operands().iter().copied().max()
    }

    /// Whether the library kernel reads or writes an operand.
    fn is_of_library(&self, operand: usize) -> bool {
        match self {
            Work::Kernel(_) => false,
            Work::Library { epilogue: None, .. } => true,
            Work::Library { kernel, .. } => operand < kernel.inputs().len() || self.accumulator() == Some(operand),
        }
    }

    /// The operand that each parameter of the epilogue is.
    pub(crate) fn epilogue_operands(&self) -> SmallVec<[usize; 6]> {
        let Work::Library { kernel, epilogue: Some(epilogue) } = self else { return SmallVec::new() };
        let first = kernel.inputs().len();
        let last = first + epilogue.kernel().params.len() - 1;
        let accumulator = epilogue.accumulator().index();
        let operand = |p: usize| match p {
            _ if p == accumulator => last,
            _ if p > accumulator => first + p - 1,
            _ => first + p,
        };
        (0..epilogue.kernel().params.len()).map(operand).collect()
    }

    /// Whether operand `read` may lie where operand `written` does. An accumulator that is not kept counts as read by
    /// its epilogue.
    pub fn works_in_place(&self, read: usize, written: usize) -> bool {
        match self {
            Work::Kernel(kernel) => is_in_place(kernel, read, written),
            Work::Library { epilogue: None, .. } => false,
            Work::Library { epilogue: Some(epilogue), .. } => {
                let operands = self.epilogue_operands();
                let param = |operand: usize| operands.iter().position(|&it| it == operand);
                let kept = |param: usize| param == epilogue.accumulator().index() && epilogue.keeps_accumulator();
                match (param(read), param(written)) {
                    (Some(read), Some(written)) => !kept(read) && is_in_place(epilogue.kernel(), read, written),
                    _ => false,
                }
            }
        }
    }

    fn verify(&self) -> Result<()> {
        match self {
            Work::Kernel(kernel) => Ok(kernel.verify()?),
            Work::Library { epilogue: None, .. } => Ok(()),
            Work::Library { kernel, epilogue: Some(epilogue) } => {
                epilogue.kernel().verify()?;
                let accumulator = epilogue.kernel().params[epilogue.accumulator().index()];
                match kernel.outputs()[..] {
                    [result] if result == (accumulator.dtype, accumulator.len) => Ok(()),
                    _ => Err(Error::Plan(format!("the result of {kernel} is not what its epilogue reads"))),
                }
            }
        }
    }
}

/// Whether parameter `read` of a kernel may lie where parameter `written` does.
fn is_in_place(kernel: &Kernel, read: usize, written: usize) -> bool {
    let mut stores = kernel.stores.iter().filter(|s| s.param.index() == written);
    let (Some(store), None) = (stores.next(), stores.next()) else { return false };
    kernel.insts.iter().all(|inst| match inst {
        Inst::Load(p, at) => p.index() != read || *at == store.at,
        Inst::LoadAt(p, _) => p.index() != read,
        Inst::Const(_) | Inst::Index(_) | Inst::Reduce(..) | operation!() => true,
    })
}

impl Step {
    /// The operands that are results of the step.
    pub(crate) fn results(&self) -> &[Operand] {
        let (_, n_read) = self.work.signature();
        &self.operands[n_read..self.work.n_meaningful()]
    }
}

impl Plan {
    /// Bytes of a verified plan's arena at most: the sum with alignment and scratch can still be counted.
    pub const MOST_ARENA: usize = isize::MAX as usize / 2;

    /// Bytes of scratch at most.
    pub(crate) const MOST_SCRATCH: usize = isize::MAX as usize / 4;

    /// Checks the invariants.
    ///
    /// # Errors
    ///
    /// Fails with the first broken one and the step that breaks it.
    pub fn verify(&self) -> Result<()> {
        for (n, step) in self.steps.iter().enumerate() {
            self.verify_step(step).map_err(|reason| Error::Plan(format!("step {n} ({}): {reason}", step.label)))?;
            step.work.verify()?;
        }
        self.verify_sizes().map_err(Error::Plan)?;
        let mut is_written = vec![false; self.outputs.len()];
        for operand in self.steps.iter().flat_map(Step::results) {
            if let Place::Output(n) = operand.place {
                is_written[n as usize] = true;
            }
        }
        if let Some(n) = is_written.iter().position(|is_written| !is_written) {
            return Err(Error::Plan(format!("no step writes output {n}")));
        }
        let uses = self.uses();
        for donation in &self.donations {
            self.verify_donation(*donation, &uses)
                .map_err(|reason| Error::Plan(format!("{donation} is no donation: {reason}")))?;
        }
        Ok(())
    }

    /// The bytes of outputs that need no memory of their own if all inputs are donated.
    pub fn donated_bytes(&self) -> usize {
        let (mut served, mut taken) = (vec![false; self.outputs.len()], vec![false; self.inputs.len()]);
        let mut bytes = 0_usize;
        for donation in &self.donations {
            let (output, input) = (donation.output as usize, donation.input as usize);
            if !served[output] && !taken[input] {
                (served[output], taken[input]) = (true, true);
                bytes = self.outputs[output].bytes().saturating_add(bytes);
            }
        }
        bytes
    }

    fn uses(&self) -> Uses {
        let mut uses = Uses { reads: vec![vec![]; self.inputs.len()], writes: vec![vec![]; self.outputs.len()] };
        for (n, step) in self.steps.iter().enumerate() {
            let (_, n_read) = step.work.signature();
            for (o, operand) in step.operands.iter().enumerate() {
                match operand.place {
                    Place::Input(input) => uses.reads[input as usize].push((n, o)),
                    Place::Output(output) if o >= n_read => uses.writes[output as usize].push((n, o)),
                    Place::Output(_) | Place::Slot { .. } => {}
                }
            }
        }
        uses
    }

    /// Proves that the output can be written into the input's memory: each write comes after all reads of the input,
    /// or in the same step with every read at the very element that is written.
    fn verify_donation(&self, Donation { output, input }: Donation, uses: &Uses) -> std::result::Result<(), String> {
        let (Some(to), Some(from)) = (self.outputs.get(output as usize), self.inputs.get(input as usize)) else {
            return Err("it does not exist".into());
        };
        if to.bytes() != from.bytes() {
            return Err(format!("{to} has another size than {from}"));
        }
        for &(writing, w) in &uses.writes[output as usize] {
            for &(reading, r) in &uses.reads[input as usize] {
                let step = &self.steps[writing];
                if reading > writing {
                    return Err(format!("step {reading} reads the input after step {writing} wrote"));
                }
                // Whole buffers on both sides, so that equal positions are equal addresses.
                let alike = |o: usize| step.operands[o].ty();
                if reading == writing
                    && (alike(r) != *from
                        || alike(w) != *to
                        || from.dtype.size() != to.dtype.size()
                        || !step.work.works_in_place(r, w))
                {
                    return Err(format!("step {writing} reads other elements than it writes"));
                }
            }
        }
        Ok(())
    }

    fn verify_sizes(&self) -> std::result::Result<(), String> {
        for (what, types) in [("input", &self.inputs), ("output", &self.outputs)] {
            for (n, ty) in types.iter().enumerate() {
                ensure!(isize::try_from(ty.bytes()).is_ok(), "{what} {n} is {ty}, which cannot be addressed");
            }
        }
        let (bytes, most) = (self.arena_bytes, Plan::MOST_ARENA);
        ensure!(bytes <= most, "the arena has {bytes} bytes, more than {most}");
        Ok(())
    }

    fn verify_step(&self, step: &Step) -> std::result::Result<(), String> {
        if let Work::Library { kernel, .. } = &step.work {
            kernel.verify().map_err(|e| e.to_string())?;
        }
        let (types, n_read) = step.work.signature();
        if types.len() != step.operands.len() {
            return Err(format!("{} operands instead of {}", step.operands.len(), types.len()));
        }
        for (n, (operand, ty)) in step.operands.iter().zip(&types).enumerate() {
            if operand.ty() != *ty {
                return Err(format!("operand {n} is {} instead of {ty}", operand.ty()));
            }
            let library = step.work.is_of_library(n);
            self.verify_place(operand, n >= n_read, library).map_err(|reason| format!("operand {n} {reason}"))?;
        }
        for (w, written) in step.operands.iter().enumerate().skip(n_read) {
            for (o, other) in step.operands.iter().enumerate().take(w).filter(|(_, o)| o.overlaps(written)) {
                let alike = other.range() == written.range() && other.dtype.size() == written.dtype.size();
                let in_place = match o < n_read {
                    true => step.work.works_in_place(o, w),
                    false => step.work.accumulator() == Some(w) && step.work.works_in_place(w, o),
                };
                if !(alike && in_place) {
                    return Err(format!("operand {w} is written over operand {o}"));
                }
            }
        }
        Ok(())
    }

    fn verify_place(&self, operand: &Operand, written: bool, library: bool) -> std::result::Result<(), String> {
        // A library call that reads through strides may need no more than the start of what it reads.
        let fits = |ty: &BufferType| match library && !written {
            true => ty.dtype == operand.dtype && operand.len <= ty.len,
            false => *ty == operand.ty(),
        };
        let listed = |types: &[BufferType], n: u32| match types.get(n as usize) {
            Some(ty) if fits(ty) => Ok(()),
            Some(ty) => Err(format!("is {} in a buffer of {ty}", operand.ty())),
            None => Err("does not exist".into()),
        };
        match operand.place {
            Place::Input(_) if written => Err("is written but must not be".into()),
            Place::Input(n) => listed(&self.inputs, n),
            Place::Output(n) => listed(&self.outputs, n),
            Place::Slot { offset } => {
                if operand.range().end > self.arena_bytes {
                    return Err(format!("ends at byte {} of {}", operand.range().end, self.arena_bytes));
                }
                let aligned = offset % if library { LIBRARY_ALIGN } else { operand.dtype.size() } == 0;
                if aligned { Ok(()) } else { Err(format!("is not aligned at byte {offset}")) }
            }
        }
    }
}

impl fmt::Display for BufferType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.dtype, self.len)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Input(n) => write!(f, "input {n}"),
            Place::Output(n) => write!(f, "output {n}"),
            Place::Slot { offset } => write!(f, "slot {offset}"),
        }
    }
}

impl fmt::Display for Donation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "output {} over input {}", self.output, self.input)
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Work::Kernel(kernel) => kernel.fmt(f),
            Work::Library { kernel, epilogue: None } => kernel.fmt(f),
            Work::Library { kernel, epilogue: Some(epilogue) } => {
                write!(f, "{kernel}\nepilogue of {}\n{}", epilogue.accumulator(), epilogue.kernel())
            }
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let types = |types: &[BufferType]| types.iter().map(|t| t.to_string()).collect::<Vec<_>>().join(", ");
        writeln!(f, "plan ({}) -> ({})", types(&self.inputs), types(&self.outputs))?;
        writeln!(f, "  arena {} bytes", self.arena_bytes)?;
        if !self.donations.is_empty() {
            let pairs: Vec<String> = self.donations.iter().map(Donation::to_string).collect();
            writeln!(f, "  donations ({})", pairs.join(", "))?;
        }
        for (n, step) in self.steps.iter().enumerate() {
            let (_, n_read) = step.work.signature();
            let list = |operands: &[Operand]| {
                let texts: Vec<String> = operands.iter().map(|o| format!("{}: {}", o.place, o.ty())).collect();
                texts.join(", ")
            };
            let n_meaningful = step.work.n_meaningful().min(step.operands.len());
            let (meaningful, passed) = step.operands.split_at(n_meaningful);
            let (read, written) = meaningful.split_at(n_read.min(n_meaningful));
            write!(f, "  {n} {}: ({}) -> ({})", step.label, list(read), list(written))?;
            match passed {
                [] => writeln!(f)?,
                passed => writeln!(f, " through {}", list(passed))?,
            }
            for line in step.work.to_string().lines() {
                writeln!(f, "    {line}")?;
            }
        }
        Ok(())
    }
}
