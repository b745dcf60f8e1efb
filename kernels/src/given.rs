//! Runs that are given buffers for good and write results over them, by the donations of the plan.

use retape_runtime::Buffer;

use crate::error::Result;
use crate::execute::{Executable, Inputs};
use crate::plan::Donation;

/// An input of a run: lent, or given away.
#[derive(Debug)]
pub struct Input<'a>(Bytes<'a>);

/// Where the bytes of an input are.
#[derive(Debug)]
enum Bytes<'a> {
    Lent(&'a Buffer),
    Given(Buffer),
    /// In the memory of this output of the running call.
    Output(usize),
}

impl<'a> Input<'a> {
    /// Bytes that stay as they are.
    pub fn lent(buffer: &'a Buffer) -> Input<'a> {
        Input(Bytes::Lent(buffer))
    }

    /// Bytes that nobody else will read: a result may be written over them.
    pub fn given(buffer: Buffer) -> Input<'a> {
        Input(Bytes::Given(buffer))
    }

    /// Makes the buffer an output, if it was given.
    fn take(&mut self, output: usize) -> Option<Buffer> {
        match std::mem::replace(&mut self.0, Bytes::Output(output)) {
            Bytes::Given(buffer) => Some(buffer),
            other @ (Bytes::Lent(_) | Bytes::Output(_)) => {
                self.0 = other;
                None
            }
        }
    }

    fn is_given(&self, len: usize) -> bool {
        matches!(&self.0, Bytes::Given(buffer) if buffer.len() == len)
    }
}

impl Inputs for [Input<'_>] {
    fn count(&self) -> usize {
        self.len()
    }

    fn buffer<'a>(&'a self, input: usize, outputs: &'a [Buffer]) -> Option<&'a Buffer> {
        match &self.get(input)?.0 {
            Bytes::Lent(buffer) => Some(buffer),
            Bytes::Given(buffer) => Some(buffer),
            Bytes::Output(output) => outputs.get(*output),
        }
    }
}

impl Executable {
    /// Runs the plan; results take the memory of given inputs where the plan has a donation for them.
    ///
    /// # Errors
    ///
    /// As [`run`](Executable::run); given inputs are gone then, too.
    pub fn run_over<'a>(&self, mut inputs: impl AsMut<[Input<'a>]>) -> Result<Vec<Buffer>> {
        let inputs = inputs.as_mut();
        let mut taken: Vec<Option<Buffer>> = Vec::with_capacity(self.program.outputs.len());
        taken.resize_with(self.program.outputs.len(), || None);
        for &Donation { output, input } in &self.plan.donations {
            let (output, len) = (output as usize, self.program.inputs[input as usize]);
            let input = inputs.get_mut(input as usize).filter(|input| input.is_given(len));
            if let (None, Some(input)) = (&taken[output], input) {
                taken[output] = input.take(output);
            }
        }
        let make = |(buffer, &len): (Option<Buffer>, &usize)| buffer.map_or_else(|| Buffer::alloc(len), Ok);
        let outputs = taken.into_iter().zip(&self.program.outputs).map(make);
        let mut outputs = outputs.collect::<std::result::Result<Vec<Buffer>, _>>()?;
        self.call(inputs, &mut outputs, None)?;
        Ok(outputs)
    }
}
