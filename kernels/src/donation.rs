//! Runs with donated buffers: results are written over them, by the donations of the plan.

use retape_runtime::Buffer;

use crate::error::{Error, Result};
use crate::plan::Donation;

/// An input of a run: borrowed or donated.
#[derive(Debug)]
pub struct Input<'a, B = Buffer>(Ownership<'a, B>);

/// The owner of an input.
#[derive(Debug)]
enum Ownership<'a, B> {
    Borrowed(&'a B),
    Donated(B),
    /// This output of a run has its memory.
    Moved(usize),
}

/// Where the bytes of an input are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bytes<'a, B = Buffer> {
    /// In a buffer that stays as it is.
    Borrowed(&'a B),
    /// In this output of the running call.
    Output(usize),
}

impl<'a, B> Input<'a, B> {
    /// Bytes that stay as they are.
    pub fn borrowed(buffer: &'a B) -> Input<'a, B> {
        Input(Ownership::Borrowed(buffer))
    }

    /// Bytes that nobody else will read: a result may be written over them.
    pub fn donated(buffer: B) -> Input<'a, B> {
        Input(Ownership::Donated(buffer))
    }

    /// Makes the buffer an output, if it was donated.
    fn take(&mut self, output: usize) -> Option<B> {
        match std::mem::replace(&mut self.0, Ownership::Moved(output)) {
            Ownership::Donated(buffer) => Some(buffer),
            other @ (Ownership::Borrowed(_) | Ownership::Moved(_)) => {
                self.0 = other;
                None
            }
        }
    }

    /// The buffer that was donated.
    fn as_donated(&self) -> Option<&B> {
        match &self.0 {
            Ownership::Donated(buffer) => Some(buffer),
            Ownership::Borrowed(_) | Ownership::Moved(_) => None,
        }
    }

    /// Where the bytes are.
    #[inline]
    pub(crate) fn bytes(&self) -> Bytes<'_, B> {
        match &self.0 {
            Ownership::Borrowed(buffer) => Bytes::Borrowed(buffer),
            Ownership::Donated(buffer) => Bytes::Borrowed(buffer),
            Ownership::Moved(output) => Bytes::Output(*output),
        }
    }

    /// Refuses inputs that an earlier run has taken.
    pub(crate) fn check_not_moved(inputs: &[Input<'_, B>]) -> Result<()> {
        match inputs.iter().position(|input| matches!(input.0, Ownership::Moved(_))) {
            Some(n) => Err(Error::Buffers(format!("input {n} was donated to an earlier run"))),
            None => Ok(()),
        }
    }

    /// The buffer, which may be an output of the running call.
    pub(crate) fn buffer<'b>(&'b self, outputs: &'b [B]) -> Result<&'b B> {
        match self.bytes() {
            Bytes::Borrowed(buffer) => Ok(buffer),
            Bytes::Output(n) => outputs.get(n).ok_or_else(|| Error::Internal(format!("there is no output {n}"))),
        }
    }
}

/// The outputs that take the memory of donated inputs: those of the first donations that do not collide and whose buffer
/// fits its input.
pub(crate) fn take_donated<B>(
    donations: &[Donation],
    inputs: &mut [Input<'_, B>],
    n_outputs: usize,
    fits: impl Fn(&B, usize) -> bool,
) -> Vec<Option<B>> {
    let mut taken: Vec<Option<B>> = Vec::with_capacity(n_outputs);
    taken.resize_with(n_outputs, || None);
    for &Donation { output, input } in donations {
        let (output, n) = (output as usize, input as usize);
        let input = inputs.get_mut(n).filter(|input| input.as_donated().is_some_and(|buffer| fits(buffer, n)));
        if let (None, Some(input)) = (&taken[output], input) {
            taken[output] = input.take(output);
        }
    }
    taken
}
