//! Functions that can be accelerated, and values that their calls can be given.

use std::borrow::Borrow;
use std::ops::Range;

use smallvec::SmallVec;

use crate::tensor::Tensor;
use crate::tree::{Field, Tree, Writer};

/// A function of one to eight arguments, each taken by reference.
///
/// Implemented for all closures and functions of that form, and for the boxed function inside of a
/// [`Boxed`](crate::Boxed). It says nothing of the types of arguments and result; that they are trees is asked by
/// [`Accelerable`](crate::Accelerable).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a function of the arguments `{Args}`, each taken by reference, with the result `{R}`"
)]
pub trait Function<Args, R> {
    /// Applies the function to a tuple of arguments.
    fn apply(&self, args: &Args) -> R;
}

/// Invokes a macro for each number of arguments, with a name and a type for each argument.
macro_rules! for_each_arity {
    ($of:ident) => {
        $of!(a A);
        $of!(a A, b B);
        $of!(a A, b B, c C);
        $of!(a A, b B, c C, d D);
        $of!(a A, b B, c C, d D, e E);
        $of!(a A, b B, c C, d D, e E, f G);
        $of!(a A, b B, c C, d D, e E, f G, g H);
        $of!(a A, b B, c C, d D, e E, f G, g H, h I);
    };
}

pub(crate) use for_each_arity;

macro_rules! functions {
    ($($name:ident $type:ident),*) => {
        impl<F, $($type,)* R> Function<($($type,)*), R> for F
        where
            F: Fn($(&$type),*) -> R,
        {
            fn apply(&self, ($($name,)*): &($($type,)*)) -> R {
                self($($name),*)
            }
        }
    };
}

for_each_arity!(functions);

impl<Args, R> Function<Args, R> for Box<dyn Function<Args, R> + Send + Sync> {
    fn apply(&self, args: &Args) -> R {
        (**self).apply(args)
    }
}

/// A function with the knowledge of how it is called, which was found where its types were checked.
pub(crate) struct Checked<F, Args, R> {
    pub(crate) function: F,
    pub(crate) apply: fn(&F, &Args) -> R,
}

impl<F, Args, R> Function<Args, R> for Checked<F, Args, R> {
    fn apply(&self, args: &Args) -> R {
        (self.apply)(&self.function, args)
    }
}

/// A value that can be passed for an argument of type `A`: `&A`, `A` itself, or a float where `A` is [`Tensor`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be passed for an argument of type `{A}`: pass `{A}`, `&{A}`, or for a `Tensor` a float \
               such as `1.0_f32`",
    label = "neither `{A}` nor `&{A}`",
    note = "`Tensor::from` makes a tensor of numbers, arrays and vectors"
)]
pub trait Arg<A: ?Sized> {
    /// Something that keeps the argument for the time of the call.
    type Held: Holder<A>;

    /// Turns the argument into a tree.
    fn hold(self) -> Self::Held;
}

impl<A> Arg<A> for A {
    type Held = A;

    fn hold(self) -> A {
        self
    }
}

impl<'a, A: ?Sized> Arg<A> for &'a A {
    type Held = &'a A;

    fn hold(self) -> &'a A {
        self
    }
}

/// The owner of an argument during a call: the argument itself or a borrow of it.
pub trait Holder<A: ?Sized>: Borrow<A> {
    /// Whether the argument was passed by value, so that results may take the memory of its tensors.
    const IS_DONATED: bool;
}

impl<A> Holder<A> for A {
    const IS_DONATED: bool = true;
}

impl<A: ?Sized> Holder<A> for &A {
    const IS_DONATED: bool = false;
}

/// A number passed for a tensor.
#[derive(Debug)]
pub struct Number(Tensor);

impl Borrow<Tensor> for Number {
    fn borrow(&self) -> &Tensor {
        &self.0
    }
}

impl Holder<Tensor> for Number {
    const IS_DONATED: bool = false;
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Arg<Tensor> for $number {
            type Held = Number;

            fn hold(self) -> Number {
                Number(Tensor::from(self))
            }
        }
    )*};
}

numbers!(f32, f64);

/// Which of the tensors of a call belong to arguments that were passed by value, as ranges of positions.
#[derive(Clone, Debug, Default)]
pub struct Donated(SmallVec<[Range<usize>; 8]>);

impl Donated {
    /// Whether the tensor at this position is one of them.
    pub(crate) fn contains(&self, position: usize) -> bool {
        self.0.iter().any(|range| range.contains(&position))
    }
}

/// The arguments of a call, held for its time: a tuple with one [`Arg::Held`] for each.
pub trait Held<Args> {
    /// Whether any argument was passed by value.
    const DONATES: bool;

    /// Writes the arguments in order.
    fn write<'t>(&'t self, to: &mut Writer<'t>)
    where
        Args: 't;

    /// Writes the arguments in order, and says which tensors are the callee's to keep.
    fn write_donated<'t>(&'t self, to: &mut Writer<'t>) -> Donated
    where
        Args: 't;
}

macro_rules! held {
    ($($type:ident $holder:ident $index:tt),*) => {
        impl<$($type: Tree, $holder: Holder<$type>),*> Held<($($type,)*)> for ($($holder,)*) {
            const DONATES: bool = $($holder::IS_DONATED)||*;

            #[inline]
            fn write<'t>(&'t self, to: &mut Writer<'t>)
            where
                ($($type,)*): 't,
            {
                $(to.field(Field::Index($index), Borrow::<$type>::borrow(&self.$index));)*
            }

            fn write_donated<'t>(&'t self, to: &mut Writer<'t>) -> Donated
            where
                ($($type,)*): 't,
            {
                let mut donated = Donated::default();
                $(
                    let first = to.tensors.len();
                    to.field(Field::Index($index), Borrow::<$type>::borrow(&self.$index));
                    if $holder::IS_DONATED {
                        donated.0.push(first..to.tensors.len());
                    }
                )*
                donated
            }
        }
    };
}

held!(A HA 0);
held!(A HA 0, B HB 1);
held!(A HA 0, B HB 1, C HC 2);
held!(A HA 0, B HB 1, C HC 2, D HD 3);
held!(A HA 0, B HB 1, C HC 2, D HD 3, E HE 4);
held!(A HA 0, B HB 1, C HC 2, D HD 3, E HE 4, F HF 5);
held!(A HA 0, B HB 1, C HC 2, D HD 3, E HE 4, F HF 5, G HG 6);
held!(A HA 0, B HB 1, C HC 2, D HD 3, E HE 4, F HF 5, G HG 6, H HH 7);
