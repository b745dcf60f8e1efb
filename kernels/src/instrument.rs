//! Running a plan and looking at what its steps store: for traps, and for what finds wrong code.

use std::ops::Range;

use retape_runtime::{Buffer, DType};

use crate::error::{Error, Result};
use crate::execute::Executable;
use crate::library::Library;
use crate::plan::{Operand, Place, Step};
use crate::program::{FLAG_BYTES, HostLaunch, Job};

impl Executable {
    /// Runs the plan, which was compiled with a trap, into new buffers. Also returns the labels of the first steps that
    /// stored NaN or an infinity, if any did.
    ///
    /// # Errors
    ///
    /// As [`run`](Executable::run), and if the plan was compiled without a trap.
    pub fn run_trapped(&self, inputs: &[&Buffer]) -> Result<(Vec<Buffer>, Option<String>)> {
        let flags_at = self.program.flags_at.ok_or_else(|| Error::Internal("the code has no trap".into()))?;
        let mut outputs = self.new_outputs()?;
        let mut first = None;
        let mut after = |n: usize, arena: &[u8], outputs: &[Buffer]| {
            if first.is_some() {
                return;
            }
            let launch = &self.program.launches[n];
            let raised = match launch.job {
                Job::Code { .. } => arena[flags_at + FLAG_BYTES * n..][..FLAG_BYTES] != [0; FLAG_BYTES],
                // A plan with a trap has no chains.
                Job::Chain { .. } => false,
                Job::Library { .. } => self.plan.steps[launch.steps.clone()].iter().any(|step| {
                    // Of a step with an epilogue, which is a launch of its own here, the accumulator alone is written.
                    let accumulator = step.work.accumulator().and_then(|operand| step.operands.get(operand..=operand));
                    let written = accumulator.unwrap_or_else(|| step.results());
                    written.iter().any(|operand| has_nonfinite(operand.dtype, bytes(operand, arena, outputs)))
                }),
            };
            first = raised.then(|| self.labels(&launch.steps));
        };
        self.with_workspace(|workspace| {
            workspace.run_instrumented(&self.program, inputs, &mut outputs, |_| false, &mut after)
        })?;
        Ok((outputs, first))
    }

    /// Runs the plan one launch at a time and hands out what each step wrote: the step's number, the position among its
    /// written operands, and the bytes. Results that a later step of the same launch has overwritten are left out; code
    /// that was compiled with `separate` leaves nothing out. Nothing is printed.
    ///
    /// # Errors
    ///
    /// As [`run`](Executable::run).
    pub fn run_stepwise(&self, inputs: &[&Buffer], see: &mut dyn FnMut(usize, usize, &[u8])) -> Result<Vec<Buffer>> {
        let mut outputs = self.new_outputs()?;
        let mut after = |n: usize, arena: &[u8], outputs: &[Buffer]| {
            for step in self.finished_by(n) {
                let later = &self.plan.steps[step + 1..self.program.launches[n].steps.end];
                for (position, operand) in self.plan.steps[step].results().iter().enumerate() {
                    let lost = later.iter().flat_map(Step::results).any(|other| other.overlaps(operand));
                    if !lost {
                        see(step, position, bytes(operand, arena, outputs));
                    }
                }
            }
        };
        // The steps left out write tokens only, which have no bytes.
        self.with_workspace(|workspace| {
            workspace.run_instrumented(&self.program, inputs, &mut outputs, prints, &mut after)
        })?;
        Ok(outputs)
    }

    /// The steps of which launch `n` does the last part.
    fn finished_by(&self, n: usize) -> Range<usize> {
        let steps = self.program.launches[n].steps.clone();
        let goes_on = |next: &HostLaunch| next.steps.start + 1 == steps.end;
        let end = match self.program.launches.get(n + 1) {
            Some(next) if goes_on(next) => steps.end - 1,
            _ => steps.end,
        };
        steps.start..end
    }

    fn labels(&self, steps: &Range<usize>) -> String {
        let labels: Vec<&str> = self.plan.steps[steps.clone()].iter().map(|step| step.label.as_str()).collect();
        labels.join(", ")
    }
}

/// Whether a launch is there to print.
fn prints(launch: &HostLaunch) -> bool {
    matches!(launch.job, Job::Library { library: Library::Print(_), .. })
}

/// The bytes of a written operand.
fn bytes<'a>(operand: &Operand, arena: &'a [u8], outputs: &'a [Buffer]) -> &'a [u8] {
    let len = operand.ty().bytes();
    match operand.place {
        Place::Output(n) => &outputs[n as usize].bytes()[..len],
        Place::Slot { offset } => &arena[offset..offset + len],
        // A verified plan writes no input.
        Place::Input(_) => &[],
    }
}

/// Whether elements in memory include NaN or an infinity: an exponent of ones only.
pub(crate) fn has_nonfinite(dtype: DType, bytes: &[u8]) -> bool {
    // Without a way out of the loop it runs in vectors.
    let any16 = |mask: u16| any(bytes, |x| u16::from_le_bytes(x) & mask == mask);
    match dtype {
        DType::F32 => any(bytes, |x| u32::from_le_bytes(x) & 0x7f80_0000 == 0x7f80_0000),
        DType::F64 => any(bytes, |x| u64::from_le_bytes(x) & 0x7ff0 << 48 == 0x7ff0 << 48),
        DType::F16 => any16(0x7c00),
        DType::Bf16 => any16(0x7f80),
        DType::I32 | DType::I64 | DType::U32 | DType::U8 | DType::Bool => false,
    }
}

/// Whether some element is so; blocks are looked at as a whole.
fn any<const N: usize>(bytes: &[u8], is_so: impl Fn([u8; N]) -> bool) -> bool {
    let (elements, _) = bytes.as_chunks::<N>();
    elements.chunks(1024).any(|block| block.iter().fold(false, |any, &x| any | is_so(x)))
}
