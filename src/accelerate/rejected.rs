//! The methods that a call finds after a mistake, which the compiler tells elsewhere.
//!
//! [`accelerate`](crate::accelerate) refuses a function of which an argument or the result is no tree, and the methods
//! that need trees are not there for it. Each use of them would be an error of its own that says nothing new. So an
//! accelerated function dereferences to [`Rejected`], which has the same methods for any types: the compiler goes there
//! where it has not found one, that is, after a mistake only.
//!
//! In generic code it would go there as well, without a mistake that is told elsewhere, where bounds are missing. So the
//! types have to be [`Known`], which type parameters are not, or these are asked for. And no program runs the methods:
//! code that calls them is not compiled to the end.

use std::marker::PhantomData;
use std::ops::Deref;

use super::{Accelerated, Pinned};
use crate::callable::{Never, for_each_arity};
use crate::diagnose::bisect::Bisection;
use crate::error::Result;
use crate::signature::Signature;

/// An accelerated function whose arguments or result are not known to be trees.
pub struct Rejected<F, Args, R>(PhantomData<fn(F, Args) -> R>);

impl<F, Args, R> Rejected<F, Args, R> {
    /// A compile error at a call of a method below.
    const UNPROVEN: () = panic!("generic code that calls an accelerated function needs `Tree` bounds for its types");

    pub(crate) const fn new() -> Self {
        Rejected(PhantomData)
    }

    /// Ends every method, none of which runs.
    pub(crate) fn refuse<T>() -> T {
        let () = Self::UNPROVEN;
        unreachable!("code with this call is not compiled")
    }
}

/// Types that are no parameters of generic code. There is no such trait; of all that there are, `Unpin` is there for
/// nearly all types, and nearly no generic code asks for it. Code that does is told when it is compiled for its types:
///
/// ```compile_fail,E0080
/// # use retape::{Accelerated, Tensor, Tree, accelerate};
/// fn apply<F, A: Unpin, R: Unpin>(f: &Accelerated<F, (A,), R>, x: &A) -> retape::Result<R> {
///     f.call(x)
/// }
///
/// apply(&accelerate(|x: &Tensor| x.exp()), &Tensor::ones([2]))?;
/// # Ok::<(), retape::Error>(())
/// ```
///
/// ```
/// # use retape::{Accelerated, Tensor, Tree, accelerate};
/// fn apply<F, A: Tree, R: Tree>(f: &Accelerated<F, (A,), R>, x: &A) -> retape::Result<R> {
///     f.call(x)
/// }
///
/// apply(&accelerate(|x: &Tensor| x.exp()), &Tensor::ones([2]))?;
/// # Ok::<(), retape::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "generic code calls an accelerated function, of which each argument and the result need the bound `Tree`: \
               `{Self}`",
    label = "not all of these are known to be a `Tree`",
    note = "these are the arguments, a tuple, and the result"
)]
pub trait Known {}

impl<T: Unpin> Known for T {}

// Never holds: where it is the only one, the compiler reports what an `impl` asks for, and of two the trait itself.
impl<Args, R> Known for (Args, R) where Rejected<(), Args, R>: Never {}

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
        pub fn $method(&self, $($name: impl Sized),*) -> $result
        where
            (($($type,)*), R): Known,
        {
            $(let _ = $name;)*
            Self::refuse()
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
