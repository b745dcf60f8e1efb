//! Counter-based random numbers: Philox 4x32-10.
//!
//! Element `i` is word `i % 4` of the block with counter `[low, high, stream, 0]`, where `low` and `high` are the halves of
//! `i / 4`; it depends on the key, the stream and `i` only. (J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
//! 2011.)

use retape_runtime::DType;

use super::extents::{Checked, countable};
use super::text::descriptor;
use super::view::{exactly, for_each_chunk, only, vectorized, view, view_mut};

descriptor! {
    /// Uniformly distributed `u32`s from a key of two `u32`s.
    Philox "philox" {
        /// The number of elements.
        len: usize,
        /// Which of the independent sequences of a key.
        stream: u32,
    }
}

const MULTIPLIERS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
const WEYL: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];
const ROUNDS: usize = 10;

/// Blocks computed side by side.
const LANES: usize = 32;

/// Elements that a thread takes at a time; a multiple of the elements of `LANES` blocks.
const CHUNK: usize = 1 << 12;

impl Philox {
    fn check(&self) -> Checked {
        countable("the output", &[self.len])
    }

    /// The dtype and the number of elements of each input: the key.
    pub fn inputs(&self) -> Vec<(DType, usize)> {
        vec![(DType::U32, 2)]
    }

    /// The dtype and the number of elements of each output.
    pub fn outputs(&self) -> Vec<(DType, usize)> {
        vec![(DType::U32, self.len)]
    }

    /// Computes the outputs.
    ///
    /// # Panics
    /// If the descriptor is not valid or the buffers are not as `inputs` and `outputs` say.
    pub fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        let (key, out) = self.views(inputs, outputs);
        for_each_chunk(out, CHUNK, self.len, &|i, out| {
            vectorized(
                #[inline(always)]
                || {
                    let mut block = (i * (CHUNK / 4)) as u64;
                    let (whole, rest) = out.as_chunks_mut::<{ 4 * LANES }>();
                    for out in whole {
                        let words = side_by_side(block, self.stream, key);
                        for lane in 0..LANES {
                            for word in 0..4 {
                                out[4 * lane + word] = words[word][lane] as u32;
                            }
                        }
                        block += LANES as u64;
                    }
                    if !rest.is_empty() {
                        let words = side_by_side(block, self.stream, key);
                        rest.iter_mut().enumerate().for_each(|(at, out)| *out = words[at % 4][at / 4] as u32);
                    }
                },
            );
        });
    }

    /// Computes the outputs in the naive way, one block per element.
    ///
    /// # Panics
    /// As [`run`](Philox::run).
    pub fn reference(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        let (key, out) = self.views(inputs, outputs);
        for (i, out) in out.iter_mut().enumerate() {
            let block = (i / 4) as u64;
            *out = philox([block as u32, (block >> 32) as u32, self.stream, 0], key)[i % 4];
        }
    }

    fn views<'o>(&self, inputs: &[&[u8]], outputs: &'o mut [&mut [u8]]) -> ([u32; 2], &'o mut [u32]) {
        assert!(self.is_valid(), "{self}");
        let [key] = exactly(inputs);
        let key = view::<u32>(key, 2);
        ([key[0], key[1]], view_mut(only(outputs), self.len))
    }
}

/// The block of random words for a counter.
fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..ROUNDS {
        let product = |which: usize| u64::from(MULTIPLIERS[which]) * u64::from(counter[2 * which]);
        let (p, q) = (product(0), product(1));
        let high = |product: u64| (product >> 32) as u32;
        counter = [high(q) ^ counter[1] ^ key[0], q as u32, high(p) ^ counter[3] ^ key[1], p as u32];
        key = next(key);
    }
    counter
}

#[inline(always)]
fn next(key: [u32; 2]) -> [u32; 2] {
    [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])]
}

/// The words of the blocks from `block` on, as the lower halves of `[word][lane]`; the upper halves mean nothing, since
/// products are taken of lower halves. All blocks take a round before any takes the next, so that the compiler makes
/// vectors of them.
#[inline(always)]
fn side_by_side(block: u64, stream: u32, mut key: [u32; 2]) -> [[u64; LANES]; 4] {
    let (mut first, mut second, mut third, mut fourth) =
        ([0; LANES], [0; LANES], [u64::from(stream); LANES], [0; LANES]);
    for lane in 0..LANES {
        let block = block + lane as u64;
        (first[lane], second[lane]) = (block, block >> 32);
    }
    for _ in 0..ROUNDS {
        for lane in 0..LANES {
            let lower_half = |word: u64| word & u64::from(u32::MAX);
            let p = u64::from(MULTIPLIERS[0]) * lower_half(first[lane]);
            let q = u64::from(MULTIPLIERS[1]) * lower_half(third[lane]);
            first[lane] = (q >> 32) ^ second[lane] ^ u64::from(key[0]);
            second[lane] = q;
            third[lane] = (p >> 32) ^ fourth[lane] ^ u64::from(key[1]);
            fourth[lane] = p;
        }
        key = next(key);
    }
    [first, second, third, fourth]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::testing::{Draw, assert_twins, values_of};

    /// The known answers published with Random123.
    #[test]
    fn known_answers() {
        let zeros = philox([0; 4], [0; 2]);
        assert_eq!(zeros, [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        let ones = philox([u32::MAX; 4], [u32::MAX; 2]);
        assert_eq!(ones, [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        let pi = philox([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]);
        assert_eq!(pi, [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]);
        assert_eq!(values_of::<u32>(&Philox { len: 4, stream: 0 }.into(), &[&[0, 0]]), zeros);
    }

    #[test]
    fn kernels_agree_with_their_twins() {
        let mut draw = Draw::new(14);
        for len in [0, 1, 3, 4, 31, 32, 33, CHUNK - 1, CHUNK, 3 * CHUNK + 5] {
            assert_twins(&Philox { len, stream: len as u32 / 2 }.into(), &mut draw);
        }
    }

    #[test]
    fn lanes_carry_into_the_high_word() {
        let (block, stream, key) = ((1 << 32) - 3, 5, [7, 8]);
        let words = side_by_side(block, stream, key);
        for lane in 0..LANES {
            let at = block + lane as u64;
            let expected = philox([at as u32, (at >> 32) as u32, stream, 0], key);
            assert_eq!(words.map(|word| word[lane] as u32), expected);
        }
    }
}
