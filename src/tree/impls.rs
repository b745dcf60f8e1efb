//! Trees of the standard library's types.

use super::{Field, Reader, Tree, Writer};
use crate::error::Result;
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
