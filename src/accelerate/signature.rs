//! Signatures of calls: made from the words of the arguments, and asked for what code is compiled for.

use retape_kernels::Modes;
use retape_runtime::Device;

use crate::code::Target;
use crate::signature::{CallModes, Description, Signature};
use crate::tree::Words;

impl Signature {
    /// The signature of the arguments that were written as `words`.
    pub(crate) fn of_words(words: Words, description: Description) -> Signature {
        Signature::new(words.into_kept(), description)
    }

    /// The signature of arguments in some modes.
    pub(crate) fn in_modes(modes: CallModes, mut words: Words, description: Description) -> Signature {
        modes.write(|word| words.push(word));
        Signature::of_words(words, Description { modes: modes.texts(), ..description })
    }

    /// The target of its code: the device of the arguments, in the modes.
    pub(crate) fn target(&self) -> Target {
        let CallModes { is_fast, traps: trap, is_nondeterministic } = self.modes();
        let device = self.devices().find(|&device| device != Device::Cpu).unwrap_or_default();
        // The processor has one code for both.
        let nondeterministic = is_nondeterministic && device != Device::Cpu;
        Target { device, is_fast, modes: Modes { trap, nondeterministic, ..Modes::default() } }
    }
}
