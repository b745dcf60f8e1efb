//! The bound of `accelerate`, in steps of which a mistake fails one alone.
//!
//! One condition would do: [`Function`] of trees. But of that the compiler only says that it does not hold, for a closure
//! that it prints as a file and a line. So the bound is [`Accelerable`], which holds where all of the following do, and
//! each of these has a message of its own.
//!
//! 1. [`Closure`]: the types of its parameters as they are written. Holds for every closure of up to twelve.
//! 2. [`Parameters`]: each of them is a reference, and there are one to eight. It names the argument types even where
//!    one parameter is wrong, so that calls of the function still have their number of arguments.
//! 3. [`Called`]: the function takes such references of any lifetime.
//! 4. The arguments are trees, and so is the result.
//!
//! A wrong parameter fails 2 and 3 together. The compiler leaves out an error that another one implies if both are about
//! the same type. So 2 and 3 are asked of one type, [`Candidate`], and the traits in 2 have [`Called`] as a supertrait.
//! The function itself is not that type: if the outermost bound and the one that fails are about the same type, the
//! compiler prints the message of the outermost.
//!
//! This relies on habits of the compiler, and cannot make a program wrong: at worst an error reads worse. The programs in
//! `tests/derive/cases` hold each message.

use std::marker::PhantomData;

use super::function::{Function, for_each_arity};
use crate::tree::Tree;

/// A function that can be accelerated: of one to eight arguments, each taken by reference and a [`Tree`], with a tree
/// as result.
///
/// Implemented for all such closures and functions. `How` is for the compiler to find; a function that passes a closure
/// on to [`accelerate`](crate::accelerate) has the same three parameters.
///
/// ```
/// use retape::{Accelerable, Accelerated, Tensor, accelerate};
///
/// fn small<F, Args, R, How>(function: F) -> Accelerated<F, Args, R>
/// where
///     F: Accelerable<Args, R, How>,
/// {
///     let accelerated = accelerate(function);
///     accelerated.configure(|options| options.capacity = 4);
///     accelerated
/// }
///
/// let double = small(|x: &Tensor| x + x);
/// assert_eq!(double.call(2.0_f32)?.item::<f32>()?, 4.0);
/// # Ok::<(), retape::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be accelerated: it is no function of one to eight references",
    label = "not a function of one to eight references",
    note = "accelerate a closure such as `|x: &Tensor| x.exp()`"
)]
pub trait Accelerable<Args, R, How> {
    /// Applies the function to a tuple of arguments.
    fn apply(&self, args: &Args) -> R;
}

impl<F, Args, R, P, A> Accelerable<Args, R, (P, A)> for F
where
    F: Closure<P, R>,
    P: Parameters<F::Candidate, A, R, Args = Args>,
    F::Candidate: Called<A, R> + Asks<Function = F>,
    A: Is<Args> + Tree,
    R: Tree,
{
    fn apply(&self, args: &Args) -> R {
        F::Candidate::apply(self, A::is(args))
    }
}

/// A function that asks to be accelerated.
#[derive(Debug)]
pub struct Candidate<F>(PhantomData<F>);

/// A [`Candidate`]. The steps are implemented for all of these rather than for the one there is, so that the compiler
/// does not list them as types that would do.
pub trait Asks {
    /// The function.
    type Function;
}

impl<F> Asks for Candidate<F> {
    type Function = F;
}

/// A function with parameters of the types `P`, a tuple, and the result `R`.
pub trait Closure<P, R> {
    /// The function as a [`Candidate`]. Of what is no function there is none, so that nothing more is asked of it.
    type Candidate;
}

/// The types of a function's parameters, a tuple, for a [`Candidate`] that is called with arguments `A`.
pub trait Parameters<C, A, R> {
    /// The types of the arguments.
    type Args;
}

/// A candidate that takes parameters of type `T`.
#[diagnostic::on_unimplemented(
    message = "a parameter of type `{T}` cannot be traced: write `&` of a `Tree`, such as `&Tensor`, `&Vec<Tensor>`, \
               `&[Tensor; 2]` or `&String`",
    label = "a parameter of type `{T}`",
    note = "each parameter is a shared reference to a value of a known size, with its type spelled out"
)]
pub trait Takes<T, A, R>: Called<A, R> + Names<T> {}

impl<'a, X, T, A, R> Takes<&'a T, A, R> for X where X: Called<A, R> + Names<&'a T> {}

// These two never hold. If one `impl` could be meant, the compiler reports its condition that fails, as the size of
// `[Tensor]`; if several could, it reports the trait itself, whose message names the parameter. Those of a type that is
// not spelled out could be any.
impl<'a, X, T, A, R> Takes<&'a [T], A, R> for X where X: Called<A, R> + Names<&'a [T]> + Never {}
impl<'a, X, A, R> Takes<&'a str, A, R> for X where X: Called<A, R> + Names<&'a str> + Never {}

/// A bound that does not hold.
pub trait Never {}

/// A candidate for which an argument belongs to a parameter of type `T`.
pub trait Names<T> {
    /// The type of the argument, or [`Unknown`].
    type Tree;
}

/// The argument of a parameter that is a mistake, of which calls can say anything. It is no tree.
#[derive(Debug)]
pub enum Unknown {}

impl<X, T> Names<&T> for X {
    type Tree = T;
}

impl<X, T: ?Sized> Names<&mut T> for X {
    type Tree = Unknown;
}

impl<X, T> Names<&[T]> for X {
    type Tree = Unknown;
}

impl<X> Names<&str> for X {
    type Tree = Unknown;
}

/// A candidate of so many parameters as calls have arguments.
#[diagnostic::on_unimplemented(
    message = "a function of more than eight parameters cannot be accelerated: put some into a struct with \
               `#[derive(Tree)]`, or into a tuple",
    label = "more than eight parameters"
)]
pub trait AtMostEight<A, R>: Called<A, R> {}

/// A candidate that has parameters.
#[diagnostic::on_unimplemented(
    message = "a function of no parameters cannot be accelerated: take what its result depends on, as in \
               `|x: &Tensor| ..`",
    label = "no parameters"
)]
pub trait AtLeastOne<A, R>: Called<A, R> {}

/// A candidate that can be called with references to arguments `A`, a tuple.
#[diagnostic::on_unimplemented(
    message = "the parameters must be references of any lifetimes, with their types spelled out, as in `|x: &Tensor| ..`",
    label = "not for references of any lifetimes",
    note = "a type that only follows from how a closure uses its parameter is a reference of one lifetime, and each call \
            has its own"
)]
pub trait Called<A, R>: Asks {
    /// Calls the function.
    fn apply(function: &Self::Function, args: &A) -> R;
}

/// Types that are equal; the compiler may leave one of them open until it has found the other.
pub trait Is<T> {
    /// The same reference.
    fn is(value: &T) -> &Self;
}

impl<T> Is<T> for T {
    fn is(value: &T) -> &T {
        value
    }
}

macro_rules! arities {
    ($($name:ident $type:ident),*) => {
        impl<F, $($type,)* R> Closure<($($type,)*), R> for F
        where
            F: FnOnce($($type),*) -> R,
        {
            type Candidate = Candidate<F>;
        }

        impl<X, Args, R, $($type),*> Parameters<X, Args, R> for ($($type,)*)
        where
            $(X: Takes<$type, Args, R> + Names<$type>,)*
        {
            type Args = ($(<X as Names<$type>>::Tree,)*);
        }

        impl<X, $($type,)* R> Called<($($type,)*), R> for X
        where
            X: Asks,
            X::Function: Fn($(&$type),*) -> R,
        {
            fn apply(function: &X::Function, args: &($($type,)*)) -> R {
                Function::apply(function, args)
            }
        }
    };
}

for_each_arity!(arities);

/// Numbers of parameters that no call has, each refused by a bound that does not hold.
macro_rules! refused {
    ($bound:ident: $($type:ident),*) => {
        impl<F, $($type,)* R> Closure<($($type,)*), R> for F
        where
            F: FnOnce($($type),*) -> R,
        {
            type Candidate = Candidate<F>;
        }

        impl<X, Args, R, $($type),*> Parameters<X, Args, R> for ($($type,)*)
        where
            X: $bound<Args, R>,
        {
            type Args = ($($type,)*);
        }
    };
}

refused!(AtLeastOne:);
refused!(AtMostEight: A, B, C, D, E, G, H, I, J);
refused!(AtMostEight: A, B, C, D, E, G, H, I, J, K);
refused!(AtMostEight: A, B, C, D, E, G, H, I, J, K, L);
refused!(AtMostEight: A, B, C, D, E, G, H, I, J, K, L, M);
