//! A token of something that has happened: that a value is there.

use retape_runtime::DType;

use super::extents::{Checked, countable};
use super::text::descriptor;
use super::view::{exactly, only};

descriptor! {
    /// From an array and a token to a token, an array without elements. Reading is all it does: a step that reads the
    /// token runs after the one that made the array.
    Token "token" {
        /// The dtype of the array.
        dtype: DType,
        /// The number of its elements.
        len: usize,
    }
}

impl Token {
    /// The dtype of tokens.
    pub const DTYPE: DType = DType::U8;

    fn check(&self) -> Checked {
        countable("the array", &[self.len])
    }

    /// The dtype and the number of elements of each input.
    pub fn inputs(&self) -> Vec<(DType, usize)> {
        vec![(self.dtype, self.len), (Token::DTYPE, 0)]
    }

    /// The dtype and the number of elements of each output.
    pub fn outputs(&self) -> Vec<(DType, usize)> {
        vec![(Token::DTYPE, 0)]
    }

    /// Checks the buffers; there are no elements to write.
    ///
    /// # Panics
    /// If the descriptor is not valid or the buffers are not as `inputs` and `outputs` say.
    pub fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        assert!(self.is_valid(), "{self}");
        let [array, before] = exactly(inputs);
        assert_eq!(array.len(), self.len * self.dtype.size(), "length of the array");
        assert!(before.is_empty() && only(outputs).is_empty(), "tokens are empty");
    }

    /// As [`run`](Token::run).
    ///
    /// # Panics
    /// As [`run`](Token::run).
    pub fn reference(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        self.run(inputs, outputs);
    }
}
