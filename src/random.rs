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

use std::ops::{Bound, RangeBounds};
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

/// The lower 32 bits.
const WORD: i64 = u32::MAX as i64;

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
    /// The words of integers within bounds, from the lowest on.
    Integer(u32),
    /// Keys made by folding in data.
    Fold,
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
            Stream::Integer(word) => 5 + word,
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
            high.refused(format!("{dtype} is not a float; use `randint`, `bits` or `bernoulli`"), at)
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

/// Uniformly distributed integers of a range, such as `0..10`, `-3..=3`, or `..` for all values; `dtype` is an integer.
///
/// Each of `n` values has the probability `1 / n` up to less than 2^-64: the result is `n` times a random fraction of
/// 64 bits, or of 128 bits where `n` is above 2^32, rounded down.
///
/// ```
/// # use retape::random::{self, Key};
/// # use retape::DType;
/// let dice = random::randint(&Key::new(1), 1..=6, [100], DType::I64);
/// assert!((dice.ge(1) & dice.le(6)).all(..).item::<bool>()?);
/// # Ok::<(), retape::Error>(())
/// ```
#[track_caller]
pub fn randint(key: &Key, range: impl RangeBounds<i64>, shape: impl Into<Shape>, dtype: DType) -> Tensor {
    let (shape, _method) = (shape.into(), method("randint"));
    let (first, last) = match ends(&range, dtype) {
        Ok(ends) => ends,
        Err(message) => return key.0.refused(message, Location::caller()),
    };
    let draw = |position| key.bits(shape.clone(), Stream::Integer(position)).cast(DType::I64);
    let n = i128::from(last) - i128::from(first) + 1; // at most 2^64
    let drawn = if n <= 1 << 32 {
        times(&[draw(0), draw(1)], n as i64, None).1
    } else {
        let fraction = [draw(0), draw(1), draw(2), draw(3)];
        let (mut words, top) = times(&fraction, n as i64 & WORD, None);
        words.push(top);
        let (words, top) = times(&fraction, (n >> 32) as i64, Some(&words[1..]));
        (top << 32) | &words[3]
    };
    (drawn + first).cast(dtype)
}

/// The least and the greatest value of a range of a dtype; or the reason why there are none.
fn ends(range: &impl RangeBounds<i64>, dtype: DType) -> std::result::Result<(i64, i64), String> {
    let (least, greatest) = match dtype {
        DType::I32 => (i32::MIN.into(), i32::MAX.into()),
        DType::I64 => (i64::MIN, i64::MAX),
        DType::U32 => (0, u32::MAX.into()),
        DType::U8 => (0, u8::MAX.into()),
        DType::F32 | DType::F64 | DType::F16 | DType::Bf16 => {
            return Err(format!("{dtype} is not an integer; use `uniform` or `normal`, or cast the result"));
        }
        DType::Bool => return Err("bool is not an integer; use `bernoulli`".to_owned()),
    };
    let first = match range.start_bound() {
        Bound::Included(&first) => first.into(),
        Bound::Excluded(&before) => i128::from(before) + 1,
        Bound::Unbounded => least.into(),
    };
    let last = match range.end_bound() {
        Bound::Included(&last) => last.into(),
        Bound::Excluded(&behind) => i128::from(behind) - 1,
        Bound::Unbounded => greatest.into(),
    };
    if last < first && (least..=greatest).contains(&i64::try_from(first).unwrap_or(i64::MAX)) {
        return Err(format!("the range {first}..{} has no values", last + 1));
    }
    match (i64::try_from(first), i64::try_from(last)) {
        (Ok(first), Ok(last)) if least <= first && first <= last && last <= greatest => Ok((first, last)),
        _ => Err(format!("the range {first}..={last} has values that {dtype} lacks, which are {least}..={greatest}")),
    }
}

/// The product of a number, in words of 32 bits from the lowest on, with a factor of at most 2^32: its words, and the one
/// above these. Words may be added to it, except to a product with 2^32; so that all fits into 64 bits.
#[track_caller]
fn times(number: &[Tensor], factor: i64, add: Option<&[Tensor]>) -> (Vec<Tensor>, Tensor) {
    let mut words = vec![];
    let mut carry: Option<Tensor> = None;
    for (position, word) in number.iter().enumerate() {
        let mut product = word * factor;
        for addend in add.map(|add| &add[position]).into_iter().chain(&carry) {
            product = product + addend;
        }
        words.push(&product & WORD);
        carry = Some((product >> 32) & WORD); // the shift repeats the sign
    }
    (words, carry.unwrap_or_else(|| Tensor::from(0_i64)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of a stream as numbers.
    fn drawn(key: &Key, position: u32, n: usize) -> Vec<u64> {
        let words = key.bits(Shape::new(&[n]), Stream::Integer(position)).to_vec::<u32>().unwrap();
        words.into_iter().map(u64::from).collect()
    }

    #[test]
    fn integers_are_products_with_the_words_of_the_key() {
        const N: usize = 200;
        let key = Key::new(5);
        let [a, b, c, d] = [0, 1, 2, 3].map(|position| drawn(&key, position, N));
        let ends = [0, 1, 2, 6, (1 << 31) - 1, (1 << 32) - 1, 1 << 32, (1 << 32) + 1, (7 << 40) + 3, i64::MAX];
        for (first, last) in ends.into_iter().flat_map(|end| [(0, end), (-end, end), (i64::MIN, end)]) {
            let n = (i128::from(last) - i128::from(first) + 1) as u128;
            for (i, integer) in random(&key, first, last, N).into_iter().enumerate() {
                let [low, high] = [a[i] | b[i] << 32, c[i] | d[i] << 32].map(u128::from);
                let product = match n {
                    0..=0x1_0000_0000 => (low * n) >> 64,
                    0x1_0000_0000_0000_0000 => high, // whose product with `low` has more bits than are there
                    _ => (high * n + ((low * n) >> 64)) >> 64,
                };
                assert_eq!(i128::from(integer), product as i128 + i128::from(first), "{first}..={last} at {i}");
            }
        }
    }

    fn random(key: &Key, first: i64, last: i64, n: usize) -> Vec<i64> {
        randint(key, first..=last, [n], DType::I64).to_vec().unwrap()
    }

    #[test]
    fn ranges_that_do_not_fit_are_refused() {
        let refused = |range: std::ops::Range<i64>, dtype| ends(&range, dtype).unwrap_err();
        assert_eq!(refused(5..5, DType::I64), "the range 5..5 has no values");
        let (start, end) = (5, -5);
        assert_eq!(refused(start..end, DType::I32), "the range 5..-5 has no values");
        let above = "the range 0..=256 has values that u8 lacks, which are 0..=255";
        assert_eq!(refused(0..257, DType::U8), above);
        assert_eq!(
            ends(&(300..), DType::U8).unwrap_err().split(" lacks").next(),
            Some("the range 300..=255 has values that u8")
        );
        assert_eq!(ends(&(-1..), DType::U32).unwrap_err().split(" has").next(), Some("the range -1..=4294967295"));
        assert!(ends(&(Bound::Excluded(i64::MAX), Bound::Unbounded), DType::I64).is_err());
        assert!(refused(0..2, DType::Bf16).starts_with("bf16 is not an integer"));
        assert_eq!(ends(&(..), DType::I32), Ok((i32::MIN.into(), i32::MAX.into())));
    }
}
