//! What a call finds after a mistake that the compiler has told already.
//!
//! [`accelerate`](crate::accelerate) refuses a function of which an argument or the result is no tree, and the methods
//! that need trees are not there for it. Each use of them would be an error of its own that says nothing new. So an
//! accelerated function dereferences to [`Rejected`], which has the same methods for any types: the compiler goes there
//! where it has not found one, that is, after a mistake only.
//!
//! No program can call them. They ask for a [`ProofOfTrees`], which no type is, and which a caller does not name: an
//! error about that, "type annotations needed", is one that the compiler keeps to itself if it has told another one of
//! the same body. It tells it in generic code that does not ask for trees itself.

use std::marker::PhantomData;
use std::ops::Deref;

use super::bisect::Bisection;
use super::function::for_each_arity;
use super::{Accelerated, Loaded, Pinned, Saved, Signature};
use crate::error::Result;

/// An accelerated function whose arguments or result are not known to be trees.
pub struct Rejected<F, Args, R>(PhantomData<fn(F, Args) -> R>);

impl<F, Args, R> Rejected<F, Args, R> {
    pub(super) const fn new() -> Self {
        Rejected(PhantomData)
    }
}

/// That arguments `Args` and the result `R` are trees. No type implements it; where the compiler misses it, bounds are
/// missing: each argument and the result must be a [`Tree`](trait@crate::Tree).
pub trait ProofOfTrees<Args, R> {
    /// Never called.
    fn never() -> !;
}

#[doc(hidden)]
impl<F, Args, R> Deref for Accelerated<F, Args, R> {
    type Target = Rejected<F, Args, R>;

    fn deref(&self) -> &Rejected<F, Args, R> {
        &self.rejected
    }
}

macro_rules! rejected {
    ($($name:ident $type:ident),*) => {
        impl<F, $($type,)* R> Rejected<F, ($($type,)*), R> {
            rejected!(@method call, Result<R>, ($($name $type),*));
            rejected!(@method bisect, Result<Bisection>, ($($name $type),*));
            rejected!(@method pin, Result<Pinned<($($type,)*), R>>, ($($name $type),*));
            rejected!(@method signature, Signature, ($($name $type),*));
        }
    };
    (@method $method:ident, $result:ty, ($($name:ident $type:ident),*)) => {
        #[doc(hidden)]
        #[allow(clippy::too_many_arguments, reason = "one parameter per argument of the function")]
        pub fn $method<Proof: ProofOfTrees<($($type,)*), R>>(&self, $($name: impl Sized),*) -> $result {
            $(let _ = $name;)*
            Proof::never()
        }
    };
}

for_each_arity!(rejected);

// Functions of so many parameters are never accelerated: their number is the mistake.
rejected!();
rejected!(a A, b B, c C, d D, e E, f G, g H, h I, i J);
rejected!(a A, b B, c C, d D, e E, f G, g H, h I, i J, j K);
rejected!(a A, b B, c C, d D, e E, f G, g H, h I, i J, j K, k L);
rejected!(a A, b B, c C, d D, e E, f G, g H, h I, i J, j K, k L, l M);

macro_rules! files {
    ($($method:ident -> $result:ty),*) => {
        impl<F, Args, R> Rejected<F, Args, R> {
            $(
                #[doc(hidden)]
                pub fn $method<Proof: ProofOfTrees<Args, R>>(&self, _: impl Sized) -> Result<$result> {
                    Proof::never()
                }
            )*
        }
    };
}

files!(save -> Saved, save_to -> Saved, load -> Loaded, load_from -> Loaded);
