//! The functions that derived code calls for each field.
//!
//! It could call [`Tree`] itself. But where the type of a field is none, the compiler would list what implements the
//! trait that was asked for, among it the types that do so on a condition that never holds; of these traits it lists
//! nothing, for they are implemented for all types.

use super::{Reader, StaticLeaf, Tree, Writer};
use crate::error::Result;

/// A type that may have a field of type `T`, since that is a tree.
pub trait HasField<T> {
    /// Writes the field.
    fn write<'t>(field: &'t T, to: &mut Writer<'t>);

    /// Reads the field.
    ///
    /// # Errors
    ///
    /// As [`Tree::read`].
    fn read(from: &mut Reader<'_>) -> Result<T>;
}

impl<X, T: Tree> HasField<T> for X {
    #[inline]
    fn write<'t>(field: &'t T, to: &mut Writer<'t>) {
        field.write(to);
    }

    #[inline]
    fn read(from: &mut Reader<'_>) -> Result<T> {
        T::read(from)
    }
}

/// A type that may have a static field of type `T`.
pub trait HasStaticField<T> {
    /// Writes the field.
    fn write(field: &T, to: &mut Writer<'_>);

    /// Reads the field.
    ///
    /// # Errors
    ///
    /// As [`StaticLeaf::read_static`].
    fn read(from: &mut Reader<'_>) -> Result<T>;
}

impl<X, T: StaticLeaf> HasStaticField<T> for X {
    #[inline]
    fn write(field: &T, to: &mut Writer<'_>) {
        field.write_static(to);
    }

    #[inline]
    fn read(from: &mut Reader<'_>) -> Result<T> {
        T::read_static(from)
    }
}
