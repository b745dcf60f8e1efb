//! Random numbers with the same bits everywhere.
//!
//! The generator is splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014): a
//! counter that steps by the odd constant nearest to 2^64 / golden ratio, each value passed through a mixing function.
//! A stream is named by `(seed, purpose, index)`, so that item `index` can be drawn without drawing those before it.

const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// A reproducible stream of random numbers.
///
/// ```
/// use retape::data::Random;
///
/// let (mut a, mut b) = (Random::new(7, 0, 3), Random::new(7, 0, 3));
/// assert_eq!(a.uniform(-1.0, 1.0), b.uniform(-1.0, 1.0));
/// ```
#[derive(Clone, Debug)]
pub struct Random {
    counter: u64,
}

impl Random {
    /// Starts stream `index` of those that serve `purpose` under `seed`.
    pub fn new(seed: u64, purpose: u64, index: u64) -> Random {
        let keyed = mix(mix(seed.wrapping_add(STEP)) ^ purpose.wrapping_mul(STEP));
        Random { counter: mix(keyed ^ index.wrapping_mul(STEP)) }
    }

    /// Draws 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.counter = self.counter.wrapping_add(STEP);
        mix(self.counter)
    }

    /// Draws uniformly from `[0, 1)`, in steps of 2^-53.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// Draws uniformly from `low` to `high`.
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Draws from a bell of mean zero and standard deviation one that never leaves `[-3.47, 3.47]`.
    ///
    /// A sum of four uniform draws: near enough to normal for jitter, and free of logarithms, whose last bits differ
    /// between platforms.
    pub fn bell(&mut self) -> f64 {
        let sum = self.unit() + self.unit() + self.unit() + self.unit();
        (sum - 2.0) * 3.0_f64.sqrt()
    }

    /// Draws an integer below `bound`; zero if `bound` is zero.
    ///
    /// The high half of a 128-bit product; its bias is at most `bound` / 2^64.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.bits()) * bound as u128) >> 64) as usize
    }

    /// Puts `items` in random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let chosen = self.below(last + 1);
            items.swap(last, chosen);
        }
    }
}

/// The finaliser of splitmix64: a bijection in which every input bit moves every output bit.
fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_the_published_sequence() {
        // The first outputs of splitmix64 from state zero.
        let mut random = Random { counter: 0 };
        assert_eq!(random.bits(), 0xE220_A839_7B1D_CDAF);
        assert_eq!(random.bits(), 0x6E78_9E6A_A1B9_65F4);
    }

    #[test]
    fn streams_differ_by_seed_purpose_and_index() {
        let mut first: Vec<u64> = Vec::new();
        for (seed, purpose, index) in [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (0, 1, 1), (1, 1, 1)] {
            first.push(Random::new(seed, purpose, index).bits());
        }
        let n_streams = first.len();
        first.sort_unstable();
        first.dedup();
        assert_eq!(first.len(), n_streams);
    }

    #[test]
    fn draws_have_their_moments() {
        let mut random = Random::new(1, 2, 3);
        let n_draws = 20_000;
        let (mut sum, mut bell, mut square) = (0.0, 0.0, 0.0);
        for _ in 0..n_draws {
            let unit = random.unit();
            assert!((0.0..1.0).contains(&unit));
            sum += unit;
            let value = random.bell();
            bell += value;
            square += value * value;
        }
        let n = f64::from(n_draws);
        assert!((sum / n - 0.5).abs() < 0.01);
        assert!((bell / n).abs() < 0.03);
        assert!((square / n - 1.0).abs() < 0.05);
    }

    #[test]
    fn below_reaches_every_value_and_no_other() {
        let mut random = Random::new(5, 0, 0);
        let mut seen = [0; 7];
        for _ in 0..700 {
            seen[random.below(7)] += 1;
        }
        assert!(seen.iter().all(|&count| count > 50), "{seen:?}");
        assert_eq!(random.below(0), 0);
    }
}
