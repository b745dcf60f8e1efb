//! Runs that are given buffers for good and write results over them, by the donations of the plan.

use retape_runtime::Buffer;

use crate::error::{Error, Result};
use crate::plan::Donation;

/// An input of a run: lent, or given away.
#[derive(Debug)]
pub struct Input<'a, B = Buffer>(Ownership<'a, B>);

/// The owner of an input.
#[derive(Debug)]
enum Ownership<'a, B> {
    Lent(&'a B),
    Given(B),
    /// This output of a run has its memory.
    Taken(usize),
}

/// Where the bytes of an input are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bytes<'a, B = Buffer> {
    /// In a buffer that stays as it is.
    Lent(&'a B),
    /// In this output of the running call.
    Output(usize),
}

impl<'a, B> Input<'a, B> {
    /// Bytes that stay as they are.
    pub fn lent(buffer: &'a B) -> Input<'a, B> {
        Input(Ownership::Lent(buffer))
    }

    /// Bytes that nobody else will read: a result may be written over them.
    pub fn given(buffer: B) -> Input<'a, B> {
        Input(Ownership::Given(buffer))
    }

    /// Makes the buffer an output, if it was given.
    fn take(&mut self, output: usize) -> Option<B> {
        match std::mem::replace(&mut self.0, Ownership::Taken(output)) {
            Ownership::Given(buffer) => Some(buffer),
            other @ (Ownership::Lent(_) | Ownership::Taken(_)) => {
                self.0 = other;
                None
            }
        }
    }

    /// The buffer that was given.
    fn as_given(&self) -> Option<&B> {
        match &self.0 {
            Ownership::Given(buffer) => Some(buffer),
            Ownership::Lent(_) | Ownership::Taken(_) => None,
        }
    }

    /// Where the bytes are.
    #[inline]
    pub(crate) fn bytes(&self) -> Bytes<'_, B> {
        match &self.0 {
            Ownership::Lent(buffer) => Bytes::Lent(buffer),
            Ownership::Given(buffer) => Bytes::Lent(buffer),
            Ownership::Taken(output) => Bytes::Output(*output),
        }
    }

    /// Refuses inputs that an earlier run has taken.
    pub(crate) fn check_untaken(inputs: &[Input<'_, B>]) -> Result<()> {
        match inputs.iter().position(|input| matches!(input.0, Ownership::Taken(_))) {
            Some(n) => Err(Error::Buffers(format!("input {n} was given to an earlier run"))),
            None => Ok(()),
        }
    }

    /// The buffer, which may be an output of the running call.
    pub(crate) fn buffer<'b>(&'b self, outputs: &'b [B]) -> Result<&'b B> {
        match self.bytes() {
            Bytes::Lent(buffer) => Ok(buffer),
            Bytes::Output(n) => outputs.get(n).ok_or_else(|| Error::Internal(format!("there is no output {n}"))),
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
