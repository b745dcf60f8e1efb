//! Types that look like trees and are none, each with the reason that the compiler gives.
//!
//! Each implements [`Tree`] on the condition that [`NotATree`] has a property which nothing has. So nothing can use the
//! implementation, while the compiler, where it looks for one, finds the condition and prints its message: a reason for
//! this type, in place of one that fits all types that are no trees. (A condition that names no type parameter has to
//! be written with a lifetime, `for<'never>`, or it is refused where it stands.)

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::{Arc, Mutex, RwLock};

use retape_runtime::{bf16, f16};

use super::{Reader, Tree, Writer};
use crate::error::Result;

/// Has none of the properties that would make trees of these types.
#[derive(Debug)]
pub enum NotATree {}

/// A property of type `T` that [`NotATree`] lacks.
macro_rules! properties {
    ($($(#[$doc:meta])* $name:ident: $message:literal, $label:literal, $note:literal;)*) => {$(
        $(#[$doc])*
        #[diagnostic::on_unimplemented(message = $message, label = $label, note = $note)]
        pub trait $name<T> {
            /// Never called.
            fn write(value: &T, to: &mut Writer<'_>);

            /// Never called.
            ///
            /// # Errors
            ///
            /// Never.
            fn read(from: &mut Reader<'_>) -> Result<T>;
        }
    )*};
}

properties! {
    /// Leaves have one order.
    LeavesInOrder:
        "`{T}` is not a `Tree`, since its leaves have no order: use a `BTreeMap`, or a `Vec`",
        "leaves without an order",
        "arguments are compared leaf by leaf, so their leaves must come in the same order every time";
    /// It is known whether a number changes.
    ChangesOrNot:
        "`{T}` is not a `Tree`: use a `Tensor` for a number that changes, `Static<{T}>` for one that never does",
        "a bare float",
        "a call can pass an `f32` or `f64` where the closure takes `&Tensor`; a field that never changes can be marked \
         `#[tree(static)]`";
    /// A result is there in any case.
    AlwaysThere:
        "`{T}` is not a `Tree`: return its value without the `Result`, since errors of formulas come out of `call`",
        "a `Result`",
        "an ill-typed formula is an error of the call by itself; the value of a nested call is taken by `expect`";
    /// A value belongs to one tree, and changes only with it.
    Unshared:
        "`{T}` is not a `Tree`: hold the value itself; a `Tensor` is a cheap handle to clone",
        "shared, or changed in place",
        "a tree is taken apart and built anew, after which nothing would be shared; what is no argument, a closure can \
         capture";
}

macro_rules! refused {
    ($([$($generics:tt)*] $type:ty: $property:ident;)*) => {$(
        #[doc(hidden)]
        #[allow(unused_lifetimes, reason = "without a lifetime, a condition of known types must hold")]
        impl<$($generics)*> Tree for $type
        where
            for<'never> NotATree: $property<$type>,
        {
            fn write<'t>(&'t self, to: &mut Writer<'t>) {
                <NotATree as $property<Self>>::write(self, to);
            }

            fn read(from: &mut Reader<'_>) -> Result<Self> {
                <NotATree as $property<Self>>::read(from)
            }
        }
    )*};
}

refused! {
    [] f32: ChangesOrNot;
    [] f64: ChangesOrNot;
    [] f16: ChangesOrNot;
    [] bf16: ChangesOrNot;
    [K, V, S] HashMap<K, V, S>: LeavesInOrder;
    [T, S] HashSet<T, S>: LeavesInOrder;
    [T, E] std::result::Result<T, E>: AlwaysThere;
    [T: ?Sized] Rc<T>: Unshared;
    [T: ?Sized] Arc<T>: Unshared;
    [T] Cell<T>: Unshared;
    [T] RefCell<T>: Unshared;
    [T] Mutex<T>: Unshared;
    [T] RwLock<T>: Unshared;
}
