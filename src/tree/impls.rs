//! Trees of the standard library's types.
//!
//! Collections that grow write their length first. Invariant: each of their elements takes at least one word, if need
//! be one that says nothing. So a length is never more than the words that are left, and a corrupt one is found before
//! anything is built. Maps must be ordered: a `HashMap` is no tree.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::marker::PhantomData;

use super::statics::{is_there, read_array};
use super::{Field, Reader, StaticLeaf, Tree, Writer};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

impl Tree for Tensor {
    #[inline]
    fn write<'t>(&'t self, to: &mut Writer<'t>) {
        to.tensor(self);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self> {
        from.tensor()
    }
}

macro_rules! tuples {
    ($($name:ident $index:tt),*) => {
        impl<$($name: Tree),*> Tree for ($($name,)*) {
            #[inline]
            fn write<'t>(&'t self, to: &mut Writer<'t>) {
                let _ = &to;
                $(to.field(Field::Index($index), &self.$index);)*
            }

            fn read(from: &mut Reader<'_>) -> Result<Self> {
                let _ = &from;
                Ok(($($name::read(from)?,)*))
            }
        }
    };
}

tuples!();
tuples!(A 0);
tuples!(A 0, B 1);
tuples!(A 0, B 1, C 2);
tuples!(A 0, B 1, C 2, D 3);
tuples!(A 0, B 1, C 2, D 3, E 4);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);

impl<T> Tree for PhantomData<T> {
    #[inline]
    fn write<'t>(&'t self, _: &mut Writer<'t>) {}

    fn read(_: &mut Reader<'_>) -> Result<Self> {
        Ok(PhantomData)
    }
}

impl<T: Tree> Tree for Box<T> {
    #[inline]
    fn write<'t>(&'t self, to: &mut Writer<'t>) {
        T::write(self, to);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self> {
        from.nested(T::read).map(Box::new)
    }
}

/// Whether there is a value is static.
impl<T: Tree> Tree for Option<T> {
    #[inline]
    fn write<'t>(&'t self, to: &mut Writer<'t>) {
        to.structure(u64::from(self.is_some()), || is_there(self.is_some()));
        if let Some(value) = self {
            value.write(to);
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self> {
        bool::read_static(from)?.then(|| T::read(from)).transpose()
    }
}

impl<T: Tree, const N: usize> Tree for [T; N] {
    #[inline]
    fn write<'t>(&'t self, to: &mut Writer<'t>) {
        for (index, element) in self.iter().enumerate() {
            to.field(Field::Index(index), element);
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self> {
        read_array(|| T::read(from))
    }
}

/// The length is static.
impl<T: Tree> Tree for Vec<T> {
    #[inline]
    fn write<'t>(&'t self, to: &mut Writer<'t>) {
        to.structure(self.len() as u64, || length(self.len()));
        for (index, element) in self.iter().enumerate() {
            to.at_least_one_word(|to| to.field(Field::Index(index), element));
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self> {
        from.nested(|from| read_collection(from, T::read))
    }
}

/// The keys are static.
impl<K: StaticLeaf + Ord + Debug, V: Tree> Tree for BTreeMap<K, V> {
    fn write<'t>(&'t self, to: &mut Writer<'t>) {
        to.structure(self.len() as u64, || length(self.len()));
        for (key, value) in self {
            to.at_least_one_word(|to| {
                key.write_static(to);
                to.field_named_by(|| Field::Key(key_text(key)), value);
            });
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self> {
        let entry = |from: &mut Reader<'_>| Ok((K::read_static(from)?, V::read(from)?));
        let entries: Vec<(K, V)> = from.nested(|from| read_collection(from, entry))?;
        if entries.iter().zip(entries.iter().skip(1)).any(|(one, next)| one.0 >= next.0) {
            return Err(Error::Tree("the keys of a map are out of order".into()));
        }
        Ok(entries.into_iter().collect())
    }
}

/// A length as structure.
fn length(len: usize) -> String {
    format!("length {len}")
}

/// A key as the path of its entry shows it.
fn key_text(key: &impl Debug) -> String {
    let text = format!("{key:?}");
    text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).map(str::to_owned).unwrap_or(text)
}

impl<T: StaticLeaf> StaticLeaf for Vec<T> {
    fn write_static(&self, to: &mut Writer<'_>) {
        to.structure(self.len() as u64, || length(self.len()));
        for element in self {
            to.at_least_one_word(|to| element.write_static(to));
        }
    }

    fn read_static(from: &mut Reader<'_>) -> Result<Self> {
        from.nested(|from| read_collection(from, T::read_static))
    }
}

fn read_collection<T>(from: &mut Reader<'_>, read: impl Fn(&mut Reader<'_>) -> Result<T>) -> Result<Vec<T>> {
    let len = from.length()?;
    // Room for more than this is made as elements are found to be there.
    let mut elements = Vec::with_capacity(len.min(256));
    for _ in 0..len {
        elements.push(from.at_least_one_word(&read)?);
    }
    Ok(elements)
}
