//! The random choices of one example in one epoch, each by its name.
//!
//! A choice follows from (seed, epoch, index, name) alone: neither the number of threads nor the order in which examples
//! are loaded nor a restart in the middle of an epoch changes a bit of it.

use retape::data::Random;

/// The streams of random numbers of examples, among those of the same seed.
const EXAMPLE: u64 = 0x6578616D706C65;

/// The source of the random choices of one example in one epoch.
///
/// ```
/// use retape_train::data::ExampleRandom;
///
/// let random = ExampleRandom::new(7, 3, 1234);
/// let angle = random.stream("angle").uniform(-10.0, 10.0);
/// assert_eq!(angle, ExampleRandom::new(7, 3, 1234).stream("angle").uniform(-10.0, 10.0));
/// assert_ne!(angle, random.stream("another angle").uniform(-10.0, 10.0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExampleRandom {
    seed: u64,
    epoch: u64,
    index: usize,
}

impl ExampleRandom {
    /// The random choices of example `index` in epoch `epoch`, under `seed`.
    pub fn new(seed: u64, epoch: u64, index: usize) -> ExampleRandom {
        ExampleRandom { seed, epoch, index }
    }

    /// The numbers for the choice called `name`; the same numbers each time it is called.
    pub fn stream(&self, name: &str) -> Random {
        // Three words name a stream of the generator; the first bits of one stream carry two of our four on.
        let carried = Random::new(self.seed, hash(name), self.epoch).bits();
        Random::new(carried, EXAMPLE, self.index as u64)
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The number of the epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The index of the example.
    pub fn index(&self) -> usize {
        self.index
    }
}

/// The hash FNV-1a of 64 bits (Fowler, Noll and Vo), fixed for all time, as that of the standard library is not.
fn hash(name: &str) -> u64 {
    name.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_hash_as_published() {
        // From the authors' table of test values.
        assert_eq!(hash(""), 0xCBF2_9CE4_8422_2325);
        assert_eq!(hash("a"), 0xAF63_DC4C_8601_EC8C);
        assert_eq!(hash("foobar"), 0x8594_4171_F739_67E8);
    }

    #[test]
    fn every_part_of_the_key_counts() {
        let first = |seed, epoch, index, name| ExampleRandom::new(seed, epoch, index).stream(name).bits();
        let mut bits = vec![];
        for seed in 0..4 {
            for epoch in 0..4 {
                for index in 0..4 {
                    bits.extend(["crop", "flip", "crop.2"].map(|name| first(seed, epoch, index, name)));
                }
            }
        }
        let n = bits.len();
        bits.sort_unstable();
        bits.dedup();
        assert_eq!(bits.len(), n);
    }
}
