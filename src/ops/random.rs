//! Random bits from a key, by counting.

use retape_kernels::ir::Value;
use retape_kernels::library;
use retape_runtime::{DType, Shape};

use super::attribute::attributes;
use super::check::{self, refuse};
use super::{Cotangents, Facts, Lowering, OpDef, Sample, Site, TypeError};
use crate::types::TensorType;

/// Uniformly distributed `u32`s: the generator Philox 4x32-10 on a key of two `u32`s.
///
/// Element `i` in row-major order is word `i % 4` of the block with counter `[low, high, stream, 0]`, where `low` and
/// `high` are the halves of `i / 4`. It depends on the key, the stream and its position only, so all backends draw the
/// same numbers. (J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011.)
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RandomBits {
    /// The shape of the result.
    pub shape: Shape,
    /// Which of the independent sequences of a key.
    pub stream: u32,
}

attributes! {
    RandomBits { shape, stream }
}

const MULTIPLIERS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
const WEYL: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];
const ROUNDS: usize = 10;

/// From so many words on the library draws them, each block of four once; a formula computes its block for each word, and
/// needs no memory.
const DRAWN_BY_LIBRARY: usize = 1 << 11;

impl OpDef for RandomBits {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        let [key] = check::exactly::<1>(args)?;
        if *key != TensorType::new(DType::U32, [2]) {
            refuse!("the key is {key}, but must be u32[2]: make it with `Key::new`");
        }
        Ok(key.with_shape(&self.shape))
    }

    fn vjp(&self, _: &Site<'_>) -> Cotangents {
        Cotangents::zero("integers have no derivatives")
    }

    fn lower(&self, _: &[&TensorType], _: &TensorType) -> Lowering {
        let (shape, stream) = (self.shape.clone(), self.stream);
        let len = shape.n_elements();
        if len >= DRAWN_BY_LIBRARY {
            return Lowering::Library(library::Philox { len, stream }.into());
        }
        Lowering::indexed(&[0], move |at| {
            let number = |n: i64| at.constant(n.into());
            let position = shape
                .iter()
                .enumerate()
                .fold(number(0), |position, (axis, &extent)| position * number(extent as i64) + at.index(axis));
            let block = position >> 2_i64;
            let counter =
                [low_half(block), low_half(block >> 32_i64), at.constant(stream.into()), at.constant(0_u32.into())];
            let words = philox(counter, [at.at(0, &[number(0)]), at.at(0, &[number(1)])]);
            let word = position & 3_i64;
            let low = word.eq(0_i64).select(words[0], words[1]);
            word.lt(2_i64).select(low, word.eq(2_i64).select(words[2], words[3]))
        })
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        let of = |shape: &[usize], stream| {
            let key = (TensorType::new(DType::U32, [2]), 0.0..1e6);
            Sample::typed(RandomBits { shape: Shape::new(shape), stream }, &[key])
        };
        vec![of(&[3, 7], 0), of(&[], 1), of(&[9], 5), of(&[3, 7, 11, 13], 2)]
    }
}

/// The lower 32 bits of a number that is not negative.
fn low_half(x: Value<'_>) -> Value<'_> {
    (x & i64::from(u32::MAX)).cast(DType::U32)
}

/// The block of random words for a counter.
fn philox<'k>(mut counter: [Value<'k>; 4], mut key: [Value<'k>; 2]) -> [Value<'k>; 4] {
    for _ in 0..ROUNDS {
        let [a, b, c, d] = counter;
        let [m, n] = MULTIPLIERS.map(f64::from);
        counter = [c.mul_high(n) ^ b ^ key[0], c * n, a.mul_high(m) ^ d ^ key[1], a * m];
        key = [key[0] + f64::from(WEYL[0]), key[1] + f64::from(WEYL[1])];
    }
    counter
}

#[cfg(test)]
mod tests {
    use retape_kernels::ir::KernelBuilder;
    use retape_runtime::Scalar;

    use super::*;

    /// The known answers of the generator's authors for Philox 4x32-10: counter, key, block.
    const KNOWN: [([u32; 4], [u32; 2], [u32; 4]); 3] = [
        ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
        ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
        (
            [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
            [0xa409_3822, 0x299f_31d0],
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
        ),
    ];

    #[test]
    fn philox_gives_the_known_answers() {
        for (counter, key, block) in KNOWN {
            let kernel = KernelBuilder::new();
            let constant = |word: u32| kernel.constant(Scalar::from(word));
            let words = philox(counter.map(constant), key.map(constant));
            // All of it is folded, since integer arithmetic on constants is exact.
            let folded = words.map(|word| {
                let inst = kernel.inst(word.id());
                let retape_kernels::ir::Inst::Const(scalar) = inst else { panic!("{inst:?} is not a constant") };
                scalar.bits as u32
            });
            assert_eq!(folded, block);
        }
    }
}
