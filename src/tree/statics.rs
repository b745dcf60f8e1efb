//! Static leaves: values that a trace depends on, and so part of the signature.

use std::ops::Deref;

use retape_runtime::{DType, bf16, f16};

use super::{Reader, StaticLeaf, Tree, Writer};
use crate::error::{Error, Result};

/// A value that is part of the signature: a new value means a new trace.
///
/// Makes a tree of what is none otherwise, in particular of floats, which are compared by their bits. A number that
/// changes often should be a [`Tensor`](crate::Tensor) instead.
///
/// ```
/// # use retape::{accelerate, Static, Tensor};
/// let scaled = accelerate(|x: &Tensor, by: &Static<f32>| x * by.0);
/// assert_eq!(scaled.call(Tensor::from([2.0_f32]), Static(3.0))?.to_vec::<f32>()?, [6.0]);
/// assert_eq!(scaled.call(Tensor::from([2.0_f32]), Static(4.0))?.to_vec::<f32>()?, [8.0]);
/// assert_eq!(scaled.stats().misses, 2);
/// # Ok::<(), retape::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Static<T>(
    /// The value.
    pub T,
);

impl<T> Deref for Static<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> From<T> for Static<T> {
    fn from(value: T) -> Static<T> {
        Static(value)
    }
}

impl<T: StaticLeaf> Tree for Static<T> {
    #[inline]
    fn write<'t>(&'t self, to: &mut Writer<'t>) {
        self.0.write_static(to);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self> {
        T::read_static(from).map(Static)
    }
}

/// An option as structure.
pub(super) fn is_there(is_some: bool) -> String {
    if is_some { "Some".to_owned() } else { "None".to_owned() }
}

/// Reads the elements of an array in order.
pub(super) fn read_array<T, const N: usize>(mut read: impl FnMut() -> Result<T>) -> Result<[T; N]> {
    let elements: Vec<T> = (0..N).map(|_| read()).collect::<Result<_>>()?;
    elements.try_into().map_err(|_| Error::Internal("an array lost an element".into()))
}

/// The error of a word that is no `T`.
fn not_a<T>(word: u64) -> Error {
    Error::Tree(format!("{word:#x} is not a static `{}`", std::any::type_name::<T>()))
}

/// Leaves of one word: how it is made of the value, and the value, if any, that it stands for.
macro_rules! words {
    ($($t:ty: $value:ident => $word:expr, $read:expr;)*) => {$(
        impl StaticLeaf for $t {
            #[inline]
            fn write_static(&self, to: &mut Writer<'_>) {
                let $value = *self;
                to.value($word, stringify!($t), || format!("{:?}", self));
            }

            fn read_static(from: &mut Reader<'_>) -> Result<Self> {
                let word = from.word()?;
                let value: Option<$t> = $read(word);
                value.ok_or_else(|| not_a::<$t>(word))
            }
        }
    )*};
}

words! {
    bool: x => u64::from(x), |word| match word { 0 => Some(false), 1 => Some(true), _ => None };
    char: x => u64::from(x), |word| u32::try_from(word).ok().and_then(char::from_u32);
    u8: x => u64::from(x), |word| Self::try_from(word).ok();
    u16: x => u64::from(x), |word| Self::try_from(word).ok();
    u32: x => u64::from(x), |word| Self::try_from(word).ok();
    u64: x => x, Some;
    usize: x => x as u64, |word| Self::try_from(word).ok();
    i8: x => i64::from(x) as u64, |word| Self::try_from(word as i64).ok();
    i16: x => i64::from(x) as u64, |word| Self::try_from(word as i64).ok();
    i32: x => i64::from(x) as u64, |word| Self::try_from(word as i64).ok();
    i64: x => x as u64, |word| Some(word as i64);
    isize: x => x as u64, |word| Self::try_from(word as i64).ok();
    f16: x => u64::from(x.to_bits()), |word| u16::try_from(word).ok().map(Self::from_bits);
    bf16: x => u64::from(x.to_bits()), |word| u16::try_from(word).ok().map(Self::from_bits);
    f32: x => u64::from(x.to_bits()), |word| u32::try_from(word).ok().map(Self::from_bits);
    f64: x => x.to_bits(), |word| Some(Self::from_bits(word));
    DType: x => x as u64, |word| DType::ALL.into_iter().find(|&dtype| dtype as u64 == word);
}

impl StaticLeaf for u128 {
    #[inline]
    fn write_static(&self, to: &mut Writer<'_>) {
        to.value(*self as u64, "u128", || self.to_string());
        to.word((*self >> 64) as u64);
    }

    fn read_static(from: &mut Reader<'_>) -> Result<Self> {
        let low = from.word()?;
        Ok(u128::from(low) | u128::from(from.word()?) << 64)
    }
}

impl StaticLeaf for i128 {
    #[inline]
    fn write_static(&self, to: &mut Writer<'_>) {
        to.value(*self as u64, "i128", || self.to_string());
        to.word((*self >> 64) as u64);
    }

    fn read_static(from: &mut Reader<'_>) -> Result<Self> {
        u128::read_static(from).map(|bits| bits as i128)
    }
}

impl StaticLeaf for String {
    #[inline]
    fn write_static(&self, to: &mut Writer<'_>) {
        to.text(self);
    }

    fn read_static(from: &mut Reader<'_>) -> Result<Self> {
        from.text()
    }
}

/// These static leaves are trees as they are; floats are not, for fear that they change.
macro_rules! trees {
    ($($t:ty),*) => {$(
        impl Tree for $t {
            #[inline]
            fn write<'t>(&'t self, to: &mut Writer<'t>) {
                self.write_static(to);
            }

            fn read(from: &mut Reader<'_>) -> Result<Self> {
                Self::read_static(from)
            }
        }
    )*};
}

trees!(bool, char, u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, DType, String);

impl<T: StaticLeaf> StaticLeaf for Option<T> {
    fn write_static(&self, to: &mut Writer<'_>) {
        to.structure(u64::from(self.is_some()), || is_there(self.is_some()));
        if let Some(value) = self {
            value.write_static(to);
        }
    }

    fn read_static(from: &mut Reader<'_>) -> Result<Self> {
        bool::read_static(from)?.then(|| T::read_static(from)).transpose()
    }
}

impl<T: StaticLeaf, const N: usize> StaticLeaf for [T; N] {
    fn write_static(&self, to: &mut Writer<'_>) {
        self.iter().for_each(|value| value.write_static(to));
    }

    fn read_static(from: &mut Reader<'_>) -> Result<Self> {
        read_array(|| T::read_static(from))
    }
}

macro_rules! tuples {
    ($($name:ident $index:tt),*) => {
        impl<$($name: StaticLeaf),*> StaticLeaf for ($($name,)*) {
            fn write_static(&self, to: &mut Writer<'_>) {
                let _ = &to;
                $(self.$index.write_static(to);)*
            }

            fn read_static(from: &mut Reader<'_>) -> Result<Self> {
                let _ = &from;
                Ok(($($name::read_static(from)?,)*))
            }
        }
    };
}

tuples!();
tuples!(A 0);
tuples!(A 0, B 1);
tuples!(A 0, B 1, C 2);
tuples!(A 0, B 1, C 2, D 3);
