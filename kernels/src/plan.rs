//! The static plan of a graph: steps over buffers whose places are decided.
//!
//! Guarantees of a verified plan: every operand lies inside its buffer and has the dtype and length that its step
//! expects, inputs are not written, every output is, and no step writes what it reads, unless it is a
//! kernel that reads and writes each element at the same point. An output may be written over an input if a
//! [`Donation`] says so: then nothing reads the input after the output is begun, unless at the same point.

#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

use std::fmt;
use std::ops::Range;

use retape_runtime::DType;
use smallvec::SmallVec;

use crate::ensure::ensure;
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
    /// Runs a library kernel.
    Library(Library),
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The work.
    pub work: Work,
    /// The operands that it reads, then those that it writes.
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
    /// The types of the operands, and how many of them are read.
    pub fn signature(&self) -> (Vec<BufferType>, usize) {
        match self {
            Work::Kernel(kernel) => {
                let types = kernel.params.iter().map(|p| BufferType { dtype: p.dtype, len: p.len }).collect();
                (types, kernel.params.iter().filter(|p| !p.written).count())
            }
            Work::Library(library) => {
                let inputs = library.inputs();
                let n_read = inputs.len();
                let all = inputs.into_iter().chain(library.outputs());
                (all.map(|(dtype, len)| BufferType { dtype, len }).collect(), n_read)
            }
        }
    }

    /// Whether parameter `read` may lie where parameter `written` does.
    pub fn works_in_place(&self, read: usize, written: usize) -> bool {
        let Work::Kernel(kernel) = self else { return false };
        let mut stores = kernel.stores.iter().filter(|s| s.param.index() == written);
        let (Some(store), None) = (stores.next(), stores.next()) else { return false };
        kernel.insts.iter().all(|inst| match inst {
            Inst::Load(p, at) => p.index() != read || *at == store.at,
            Inst::LoadAt(p, _) => p.index() != read,
            Inst::Const(_) | Inst::Index(_) | Inst::Reduce(..) | operation!() => true,
        })
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
            if let Work::Kernel(kernel) = &step.work {
                kernel.verify()?;
            }
        }
        self.verify_sizes().map_err(Error::Plan)?;
        for n in 0..self.outputs.len() {
            let written = self.steps.iter().any(|step| {
                let (_, n_read) = step.work.signature();
                step.operands[n_read..].iter().any(|o| o.place == Place::Output(n as u32))
            });
            if !written {
                return Err(Error::Plan(format!("no step writes output {n}")));
            }
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
        if let Work::Library(library) = &step.work {
            library.verify().map_err(|e| e.to_string())?;
        }
        let (types, n_read) = step.work.signature();
        if types.len() != step.operands.len() {
            return Err(format!("{} operands instead of {}", step.operands.len(), types.len()));
        }
        let library = matches!(step.work, Work::Library(_));
        for (n, (operand, ty)) in step.operands.iter().zip(&types).enumerate() {
            if operand.ty() != *ty {
                return Err(format!("operand {n} is {} instead of {ty}", operand.ty()));
            }
            self.verify_place(operand, n >= n_read, library).map_err(|reason| format!("operand {n} {reason}"))?;
        }
        for (w, written) in step.operands.iter().enumerate().skip(n_read) {
            for (o, other) in step.operands.iter().enumerate().take(w).filter(|(_, o)| o.overlaps(written)) {
                let alike =
                    o < n_read && other.range() == written.range() && other.dtype.size() == written.dtype.size();
                if !alike || !step.work.works_in_place(o, w) {
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
            let (read, written) = step.operands.split_at(n_read.min(step.operands.len()));
            writeln!(f, "  {n} {}: ({}) -> ({})", step.label, list(read), list(written))?;
            let body = match &step.work {
                Work::Kernel(kernel) => kernel.to_string(),
                Work::Library(library) => library.to_string(),
            };
            for line in body.lines() {
                writeln!(f, "    {line}")?;
            }
        }
        Ok(())
    }
}
