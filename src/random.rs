//! Random tensors from keys.
//!
//! A [`Key`] is a tensor, so a key that is an argument of an accelerated function is an input of its trace: every call
//! draws anew from the key it is given, and the same key always gives the same numbers, on every device and for any
//! number of threads. Use each key once: [`split`](Key::split) it, or [`fold_in`](Key::fold_in) a step number, to get
//! new ones.
//!
//! ```
//! use retape::random::{self, Key};
//! use retape::DType;
//!
//! let [noise, mask] = Key::new(42).split();
//! let x = random::normal(&noise, [2, 3], DType::F32);
//! let keep = random::bernoulli(&mask, 0.9, [2, 3]);
//! let dropped = keep.select(x / 0.9, 0.0);
//! assert_eq!(dropped.shape(), [2, 3]);
//! ```

use std::ops::Range;
use std::panic::Location;

use retape_runtime::{DType, Shape};

use crate::error::Result;
use crate::method::method;
use crate::ops::RandomBits;
use crate::ops::TensorOrScalar;
use crate::tensor::Tensor;
use crate::tree::{Reader, Tree, Writer};

/// Keys that one is split into at most.
const MOST_KEYS: usize = 1 << 20;

/// The start of a sequence of random numbers.
#[derive(Clone, Debug)]
pub struct Key(Tensor);

/// Which sequence of a key's is used for what, so that no two uses share numbers.
#[derive(Clone, Copy, Debug)]
enum Stream {
    /// The first words of uniform numbers.
    Uniform,
    /// Their second words, where one has too few bits.
    UniformLow,
    /// As these, for the angles of normal numbers.
    Angle,
    /// The second words of angles.
    AngleLow,
    /// Keys made by folding in data.
    Fold,
    /// The first words of integers of a range.
    Integer,
    /// Their second words.
    IntegerLow,
    /// Keys made by splitting, by position.
    Split(u32),
}

impl Stream {
    fn number(self) -> u32 {
        match self {
            Stream::Uniform => 0,
            Stream::UniformLow => 1,
            Stream::Angle => 2,
            Stream::AngleLow => 3,
            Stream::Fold => 4,
            Stream::Integer => 5,
            Stream::IntegerLow => 6,
            Stream::Split(position) => position | (1 << 31),
        }
    }
}

impl Key {
    /// The key of a seed.
    pub fn new(seed: u64) -> Key {
        Key(Tensor::from([seed as u32, (seed >> 32) as u32]))
    }

    /// The key in a tensor `u32[2]`; uses of it are poisoned if it is of another type.
    pub fn from_tensor(key: Tensor) -> Key {
        Key(key)
    }

    /// The tensor `u32[2]` that holds the key.
    pub fn tensor(&self) -> &Tensor {
        &self.0
    }

    /// New keys, independent of this one and of each other.
    #[track_caller]
    pub fn split<const N: usize>(&self) -> [Key; N] {
        let _method = method("Key::split");
        let mut keys = [(); N].map(|()| None);
        for (position, key) in keys.iter_mut().enumerate() {
            *key = Some(self.child(position));
        }
        keys.map(|key| key.unwrap_or_else(|| self.clone()))
    }

    /// As [`split`](Key::split), for a number of keys that is known at run time only.
    ///
    /// Of more than 2^20 keys there is only one, whose uses are poisoned.
    ///
    /// ```
    /// # use retape::random::Key;
    /// assert_eq!(Key::new(1).split_into(3).len(), 3);
    /// assert!(Key::new(1).split_into(1 << 40)[0].tensor().error().is_some());
    /// ```
    #[track_caller]
    pub fn split_into(&self, n: usize) -> Vec<Key> {
        let _method = method("Key::split_into");
        if n > MOST_KEYS {
            let message = format!("{n} keys are more than {MOST_KEYS}; split the keys of a split again");
            return vec![Key(self.0.refused(message, Location::caller()))];
        }
        let mut keys = vec![];
        for position in 0..n {
            keys.push(self.child(position));
        }
        keys
    }

    #[track_caller]
    fn child(&self, position: usize) -> Key {
        Key(self.bits(Shape::new(&[2]), Stream::Split(position as u32)))
    }

    /// The key for this one and some data: an integer, or a tensor of one `u32`, such as the number of a training step.
    #[track_caller]
    pub fn fold_in(&self, data: impl TensorOrScalar) -> Key {
        let _method = method("Key::fold_in");
        let mixed = Key(&self.0 ^ data.tensor_like(&self.0, Location::caller()));
        Key(mixed.bits(Shape::new(&[2]), Stream::Fold))
    }

    #[track_caller]
    fn bits(&self, shape: Shape, stream: Stream) -> Tensor {
        Tensor::apply(RandomBits { shape, stream: stream.number() }, &[&self.0])
    }
}

impl Tree for Key {
    fn write<'t>(&'t self, to: &mut Writer<'t>) {
        self.0.write(to);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self> {
        Tensor::read(from).map(Key)
    }
}

/// Uniformly distributed `u32`s over all their values.
#[track_caller]
pub fn bits(key: &Key, shape: impl Into<Shape>) -> Tensor {
    let _method = method("bits");
    key.bits(shape.into(), Stream::Uniform)
}

/// Uniformly distributed numbers of at least 0 and below 1; `dtype` is a float.
///
/// `f32` numbers are multiples of 2^-24, `f64` numbers of 2^-53.
#[track_caller]
pub fn uniform(key: &Key, shape: impl Into<Shape>, dtype: DType) -> Tensor {
    let _method = method("uniform");
    unit(key, shape.into(), dtype, [Stream::Uniform, Stream::UniformLow])
}

/// Uniform numbers below 1 from the words of two streams.
#[track_caller]
fn unit(key: &Key, shape: Shape, dtype: DType, [high, low]: [Stream; 2]) -> Tensor {
    let at = Location::caller();
    let high = key.bits(shape.clone(), high);
    match dtype {
        DType::F64 => {
            let low = key.bits(shape, low);
            let (high, low) = ((high >> 5).cast(DType::F64), (low >> 6).cast(DType::F64));
            (high * f64::from(1 << 26) + low) * (f64::EPSILON / 2.0)
        }
        DType::F32 => (high >> 8).cast(DType::F32) * (f64::from(f32::EPSILON) / 2.0),
        DType::F16 | DType::Bf16 => high.refused(format!("{dtype} is for storage: draw f32 and cast the result"), at),
        DType::I32 | DType::I64 | DType::U32 | DType::U8 | DType::Bool => {
            high.refused(format!("{dtype} is not a float; use `bits` or `bernoulli`"), at)
        }
    }
}

/// Normally distributed numbers with mean 0 and variance 1; `dtype` is a float.
///
/// By the method of Box and Muller, so `f32` numbers reach 5.8 in magnitude and `f64` numbers 8.6.
#[track_caller]
pub fn normal(key: &Key, shape: impl Into<Shape>, dtype: DType) -> Tensor {
    let (shape, _method) = (shape.into(), method("normal"));
    // In (0, 1], of which the logarithm is finite.
    let radius = unit(key, shape.clone(), dtype, [Stream::Uniform, Stream::UniformLow]);
    let angle = unit(key, shape, dtype, [Stream::Angle, Stream::AngleLow]);
    ((1.0_f64 - radius).log() * -2.0).sqrt() * (angle * std::f64::consts::TAU).cos()
}

/// Truth values that are true with probability `p`: a number from 0 to 1, or an `f32` tensor that broadcasts to the
/// shape.
#[track_caller]
pub fn bernoulli(key: &Key, p: impl TensorOrScalar, shape: impl Into<Shape>) -> Tensor {
    let _method = method("bernoulli");
    if let Some(p) = p.number()
        && !(0.0..=1.0).contains(&p)
    {
        return key.0.refused(format!("the probability {p} is not between 0 and 1"), Location::caller());
    }
    uniform(key, shape, DType::F32).lt(p)
}

/// The most values that integers are drawn from, for which products with 32 random bits are exact in `i64`.
const MOST_VALUES: i64 = 1 << 31;

/// Uniformly distributed integers of a range, whose end is not one of them; `dtype` is an integer that has all of them.
///
/// The range has at most 2^31 values; [`bits`] draws from all of `u32`. Of `n` values, each has `floor` or `ceil` of
/// 2^64 / `n` of the 2^64 pairs of random words, so that no two probabilities differ by more than 2^-64.
///
/// ```
/// # use retape::{DType, random::{self, Key}};
/// let rolls = random::randint(&Key::new(1), 1..7, [100], DType::I64).to_vec::<i64>()?;
/// assert!((1..7).all(|face| rolls.contains(&face)) && !rolls.contains(&0) && !rolls.contains(&7));
/// # Ok::<(), retape::Error>(())
/// ```
#[track_caller]
pub fn randint(key: &Key, range: Range<i64>, shape: impl Into<Shape>, dtype: DType) -> Tensor {
    let (at, _method) = (Location::caller(), method("randint"));
    let n = match n_values(&range, dtype) {
        Ok(n) => n,
        Err(message) => return key.0.refused(message, at),
    };
    let shape = shape.into();
    let [high, low] = [Stream::Integer, Stream::IntegerLow].map(|stream| key.bits(shape.clone(), stream));
    // The upper 64 bits of the product of 64 random bits and n, of which no part exceeds 2^63 - 1.
    let (high, low) = (high.cast(DType::I64) * n, (low.cast(DType::I64) * n) >> 32);
    (((high + low) >> 32) + range.start).cast(dtype)
}

/// How many values integers are drawn from, or why there are no such integers.
fn n_values(range: &Range<i64>, dtype: DType) -> Result<i64, String> {
    let (least, greatest) = match dtype {
        DType::I64 => (i64::MIN, i64::MAX),
        DType::I32 => (i32::MIN.into(), i32::MAX.into()),
        DType::U32 => (0, u32::MAX.into()),
        DType::U8 => (0, u8::MAX.into()),
        DType::F32 | DType::F64 | DType::F16 | DType::Bf16 | DType::Bool => {
            return Err(format!("{dtype} is not an integer; use `uniform` or `bernoulli`"));
        }
    };
    if range.is_empty() {
        return Err(format!("the range {range:?} has no values"));
    }
    if range.start < least || range.end - 1 > greatest {
        return Err(format!(
            "the range {range:?} has values that {dtype} has not, which is from {least} to {greatest}"
        ));
    }
    let n = range.end.checked_sub(range.start).filter(|&n| n <= MOST_VALUES);
    n.ok_or_else(|| format!("the range {range:?} has more than {MOST_VALUES} values; use `bits` for all of u32"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accelerate;

    /// The integers of a range by 128-bit arithmetic on the words of the streams.
    fn expected(key: &Key, range: &Range<i64>, n: usize) -> Vec<i64> {
        let words = |stream| key.bits(Shape::new(&[n]), stream).to_vec::<u32>().expect("words");
        let drawn = words(Stream::Integer).into_iter().zip(words(Stream::IntegerLow));
        let n_values = range.end.abs_diff(range.start).into();
        let scaled = |(high, low): (u32, u32)| (u128::from(high) << 32 | u128::from(low)) * n_values >> 64;
        drawn.map(|pair| range.start + scaled(pair) as i64).collect()
    }

    #[test]
    fn integers_are_the_upper_half_of_an_exact_product() {
        let key = Key::new(11);
        let most = MOST_VALUES;
        let ranges = [0..1, -1..0, 0..2, 1..7, -5..1000, 0..most - 1, 0..most, -most..0, i64::MIN..i64::MIN + 3];
        for range in ranges.into_iter().chain([i64::MAX - 3..i64::MAX]) {
            for n in [0, 1, 2, 7, 64, 1001] {
                let eager = randint(&key, range.clone(), [n], DType::I64).to_vec::<i64>().expect("integers");
                assert_eq!(eager, expected(&key, &range, n), "{range:?}");
                assert!(eager.iter().all(|x| range.contains(x)));
                let traced = accelerate(|key: &Key| randint(key, range.clone(), [n], DType::I64)).call(&key);
                assert_eq!(traced.and_then(|x| x.to_vec::<i64>()).expect("integers"), eager);
            }
        }
    }

    #[test]
    fn integers_of_each_dtype_reach_its_ends_evenly() {
        let key = Key::new(3);
        let narrow =
            |dtype, range| randint(&key, range, [60_000], dtype).cast(DType::I64).to_vec::<i64>().expect("integers");
        let (top, bottom) = (i64::from(u32::MAX), i64::from(i32::MIN));
        for (dtype, range) in [(DType::U8, 250..256), (DType::U32, top - 5..top + 1), (DType::I32, bottom..bottom + 6)]
        {
            let drawn = narrow(dtype, range.clone());
            for value in range {
                let count = drawn.iter().filter(|&&x| x == value).count();
                // Five standard deviations of a count with mean 10,000.
                assert!(count.abs_diff(10_000) < 460, "{dtype} {value}: {count}");
            }
        }
    }
}
