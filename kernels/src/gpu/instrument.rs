//! Running a plan on a device step by step and looking at what its steps store.

use retape_runtime::DeviceBuffer;

use super::{DeviceExecutable, Segment, call};
use crate::error::Result;
use crate::instrument::has_nonfinite;
use crate::library::Library;
use crate::plan::Step;

impl DeviceExecutable {
    /// Runs the plan one step at a time and hands out what each step wrote: the step's number, the position among its
    /// written operands, and the bytes. Nothing is printed.
    ///
    /// # Errors
    ///
    /// As [`run`](DeviceExecutable::run), and if the work fails.
    pub fn run_stepwise(
        &self,
        inputs: &[&DeviceBuffer],
        see: &mut dyn FnMut(usize, usize, &[u8]),
    ) -> Result<Vec<DeviceBuffer>> {
        self.verify_inputs(inputs)?;
        let outputs = self.new_outputs()?;
        self.call(inputs, &outputs, |buffers| {
            let mut tasks = self.tasks.iter();
            for segment in &self.segments {
                let n_tasks = match segment {
                    Segment::Chain(chain) => chain.launches().len(),
                    Segment::Host { .. } | Segment::Exchanged(_) => 1,
                };
                for (n, task) in tasks.by_ref().take(n_tasks).enumerate() {
                    match segment {
                        Segment::Chain(chain) => call::run_some(chain, n..n + 1, buffers)?,
                        // It writes tokens only, which have no bytes.
                        Segment::Host { library, .. } if matches!(**library, Library::Print(_)) => continue,
                        Segment::Host { .. } | Segment::Exchanged(_) => self.run_segment(segment, buffers)?,
                    }
                    task.finished.iter().try_for_each(|step| self.show(*step, buffers, see))?;
                }
            }
            Ok(())
        })?;
        Ok(outputs)
    }

    /// Hands out what a step wrote.
    fn show(&self, n: usize, buffers: &[&DeviceBuffer], see: &mut dyn FnMut(usize, usize, &[u8])) -> Result<()> {
        for (position, operand) in self.plan.steps[n].results().iter().enumerate() {
            let mut bytes = vec![0; operand.ty().bytes()];
            self.read(operand, buffers, &mut bytes)?;
            see(n, position, &bytes);
        }
        Ok(())
    }

    /// Runs the plan one step at a time. Also returns the label of the first step that stored NaN or an infinity, if any
    /// did.
    ///
    /// # Errors
    ///
    /// As [`run_stepwise`](DeviceExecutable::run_stepwise).
    pub fn run_trapped(&self, inputs: &[&DeviceBuffer]) -> Result<(Vec<DeviceBuffer>, Option<String>)> {
        let mut first: Option<&Step> = None;
        let outputs = self.run_stepwise(inputs, &mut |n, position, bytes| {
            let step = &self.plan.steps[n];
            if first.is_none() && has_nonfinite(step.results()[position].dtype, bytes) {
                first = Some(step);
            }
        })?;
        Ok((outputs, first.map(|step| step.label.clone())))
    }
}
