//! Runs that are given buffers for good and write results over them, by the donations of the plan.

use retape_runtime::Buffer;

use crate::error::Result;
use crate::execute::{Executable, Inputs};
use crate::plan::Donation;

/// An input of a run: lent, or given away.
#[derive(Debug)]
pub struct Input<'a, B = Buffer>(Bytes<'a, B>);

/// Where the bytes of an input are.
#[derive(Debug)]
enum Bytes<'a, B> {
    Lent(&'a B),
    Given(B),
    /// In the memory of this output of the running call.
    Output(usize),
}

impl<'a, B> Input<'a, B> {
    /// Bytes that stay as they are.
    pub fn lent(buffer: &'a B) -> Input<'a, B> {
        Input(Bytes::Lent(buffer))
    }

    /// Bytes that nobody else will read: a result may be written over them.
    pub fn given(buffer: B) -> Input<'a, B> {
        Input(Bytes::Given(buffer))
    }

    /// Makes the buffer an output, if it was given.
    fn take(&mut self, output: usize) -> Option<B> {
        match std::mem::replace(&mut self.0, Bytes::Output(output)) {
            Bytes::Given(buffer) => Some(buffer),
            other @ (Bytes::Lent(_) | Bytes::Output(_)) => {
                self.0 = other;
                None
            }
        }
    }

    /// The buffer that was given.
    fn as_given(&self) -> Option<&B> {
        match &self.0 {
            Bytes::Given(buffer) => Some(buffer),
            Bytes::Lent(_) | Bytes::Output(_) => None,
        }
    }

    /// The bytes, which may be those of an output of the running call.
    #[inline]
    pub(crate) fn buffer<'b>(&'b self, outputs: &'b [B]) -> &'b B {
        match &self.0 {
            Bytes::Lent(buffer) => buffer,
            Bytes::Given(buffer) => buffer,
            Bytes::Output(output) => &outputs[*output],
        }
    }
}

/// The outputs that take the memory of given inputs: those of the first donations that do not collide and whose buffer
/// fits its input.
pub(crate) fn take_given<B>(
    donations: &[Donation],
    inputs: &mut [Input<'_, B>],
    n_outputs: usize,
    fits: impl Fn(&B, usize) -> bool,
) -> Vec<Option<B>> {
    let mut taken: Vec<Option<B>> = Vec::with_capacity(n_outputs);
    taken.resize_with(n_outputs, || None);
    for &Donation { output, input } in donations {
        let (output, n) = (output as usize, input as usize);
        let input = inputs.get_mut(n).filter(|input| input.as_given().is_some_and(|buffer| fits(buffer, n)));
        if let (None, Some(input)) = (&taken[output], input) {
            taken[output] = input.take(output);
        }
    }
    taken
}

impl Inputs for [Input<'_>] {
    fn count(&self) -> usize {
        self.len()
    }

    #[inline]
    fn buffer<'a>(&'a self, input: usize, outputs: &'a [Buffer]) -> Option<&'a Buffer> {
        self.get(input).map(|input| input.buffer(outputs))
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
        let fits = |buffer: &Buffer, input: usize| buffer.len() == self.program.inputs[input];
        let taken = take_given(&self.plan.donations, inputs, self.program.outputs.len(), fits);
        let make = |(buffer, &len): (Option<Buffer>, &usize)| buffer.map_or_else(|| Buffer::alloc(len), Ok);
        let outputs = taken.into_iter().zip(&self.program.outputs).map(make);
        let mut outputs = outputs.collect::<std::result::Result<Vec<Buffer>, _>>()?;
        self.call(inputs, &mut outputs, None)?;
        Ok(outputs)
    }
}
