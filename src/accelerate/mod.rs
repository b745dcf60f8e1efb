//! `accelerate(f)`: the function that traces once per signature and runs machine code from then on.
//!
//! The generic rim flattens arguments and rebuilds results; the work is done by the non-generic [`Core`].

mod artefact;
mod core;
mod entry;
mod function;
mod signature;
mod stats;

use std::marker::PhantomData;
use std::panic::Location;

pub use self::artefact::{ArtefactError, Loaded, Saved, SkipReason, Skipped};
pub use self::function::{Arg, Function};
pub use self::signature::Signature;
pub use self::stats::{CompileTimes, EntryStats, Stats};

use self::core::Core;
use crate::error::{Caller, Result};
use crate::event::Observer;
use crate::tree::{Field, Reader, Tree, Writer};

/// Wraps a function of tensors into one that compiles itself.
///
/// The function takes one to eight arguments by reference, each a [`Tree`], and returns a tree. The first call with
/// a new signature (structure, dtypes, shapes, device, static values) runs it once on traced tensors, differentiates
/// and optimises what it recorded, and compiles it; later calls with that signature run the machine code and do not
/// enter the function. So side effects of the function happen only while tracing, and a concrete tensor that the
/// function captures keeps the value it had then.
///
/// ```
/// use retape::{accelerate, Tensor};
///
/// let step = accelerate(|w: &Tensor, x: &Tensor, y: &Tensor| {
///     let loss = (x.matmul(w) - y).square().mean(..);
///     let grad = loss.grad(w);
///     (loss, grad)
/// });
/// let (w, x, y) = (Tensor::ones([2, 1]), Tensor::ones([3, 2]), Tensor::zeros([3, 1]));
/// let (loss, grad) = step.call(&w, &x, &y)?;
/// assert_eq!(loss.item::<f32>()?, 4.0);
/// assert_eq!(grad.to_vec::<f32>()?, [4.0, 4.0]);
/// # Ok::<(), retape::Error>(())
/// ```
pub fn accelerate<F, Args, R>(function: F) -> Accelerated<F, Args, R>
where
    F: Function<Args, R>,
    R: Tree,
{
    Accelerated { function, core: Core::new(), types: PhantomData }
}

/// A function together with the cache of its compiled traces; see [`accelerate`].
///
/// Calls may come from many threads at once.
pub struct Accelerated<F, Args, R> {
    function: F,
    core: Core,
    types: PhantomData<fn(Args) -> R>,
}

impl<F, Args, R> Accelerated<F, Args, R>
where
    F: Function<Args, R>,
    R: Tree,
{
    /// The wrapped function.
    pub fn function(&self) -> &F {
        &self.function
    }

    /// Tells `observer` of every event in the cache from now on; the cache begins empty.
    ///
    /// ```
    /// use retape::{accelerate, Event, Tensor};
    /// use std::sync::{Arc, Mutex};
    ///
    /// let log = Arc::new(Mutex::new(String::new()));
    /// let lines = Arc::clone(&log);
    /// let double = accelerate(|x: &Tensor| x + x)
    ///     .observed_by(move |event: &Event<'_>| *lines.lock().unwrap() += &format!("{event}\n"));
    /// double.call(Tensor::ones([4]))?;
    /// double.call(Tensor::zeros([4]))?;
    /// assert_eq!(*log.lock().unwrap(), "miss (f32[4])\nhit  (f32[4])\n");
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[must_use]
    pub fn observed_by(self, observer: impl Observer + 'static) -> Accelerated<F, Args, R> {
        Accelerated { core: self.core.observed_by(observer), ..self }
    }

    /// The fraction of calls that needed no trace, in `[0, 1]`; 0 before the first call.
    pub fn hit_rate(&self) -> f64 {
        self.core.stats().hit_rate()
    }

    /// The fraction of the capacity that is in use, in `[0, 1]`.
    pub fn occupancy(&self) -> f64 {
        self.core.stats().occupancy()
    }

    /// Everything there is to know about the cache, at this moment.
    pub fn stats(&self) -> Stats {
        self.core.stats()
    }

    /// Drops all entries. Calls that are running finish; the counters stay.
    pub fn clear_cache(&self) {
        self.core.clear();
    }

    /// How many entries the cache holds at most; 50 unless set.
    pub fn capacity(&self) -> usize {
        self.core.capacity()
    }

    /// Sets how many entries the cache holds at most, at least 1; what is over is evicted, least recently used first.
    pub fn set_capacity(&self, entries: usize) {
        self.core.set_capacity(entries);
    }

    /// Whether calls use the cache; true unless set.
    pub fn enabled(&self) -> bool {
        self.core.enabled()
    }

    /// With `false`, every call traces the function and runs its ops one by one: the un-accelerated path, which
    /// speed-ups are measured against. Such calls are neither hits nor misses.
    pub fn set_enabled(&self, enabled: bool) {
        self.core.set_enabled(enabled);
    }

    fn run(&self, leaves: Writer<'_>, caller: Caller) -> Result<R> {
        let body = |from: &mut Reader<'_>| self.function.apply(from);
        if leaves.tensors.iter().any(|tensor| tensor.is_traced()) {
            return self.core.inline(&leaves, caller, &body);
        }
        self.core.call(leaves, caller, &|tape, from| crate::trace::flatten(tape, || body(from)))?.read()
    }
}

/// `call` for each number of arguments.
macro_rules! calls {
    ($($name:ident $type:ident $index:tt),*) => {
        impl<F, $($type,)* R> Accelerated<F, ($($type,)*), R>
        where
            F: Function<($($type,)*), R>,
            $($type: Tree,)*
            R: Tree,
        {
            /// Calls the function, tracing and compiling it if no entry fits the arguments.
            ///
            /// Arguments are passed by reference, by value, or as numbers where the function takes a tensor.
            ///
            /// # Errors
            ///
            /// Fails if the function is ill-typed for these arguments or panics, or if the device refuses the work.
            /// A failed call leaves the cache as it was.
            #[track_caller]
            #[allow(clippy::too_many_arguments, reason = "one parameter per argument of the function")]
            pub fn call(&self, $($name: impl Arg<$type>),*) -> Result<R> {
                let caller = Location::caller();
                let held = ($($name.hold(),)*);
                let mut leaves = self.core.writer();
                $(leaves.field(Field::Index($index), std::borrow::Borrow::<$type>::borrow(&held.$index));)*
                self.run(leaves, caller)
            }
        }
    };
}

calls!(a A 0);
calls!(a A 0, b B 1);
calls!(a A 0, b B 1, c C 2);
calls!(a A 0, b B 1, c C 2, d D 3);
calls!(a A 0, b B 1, c C 2, d D 3, e E 4);
calls!(a A 0, b B 1, c C 2, d D 3, e E 4, f G 5);
calls!(a A 0, b B 1, c C 2, d D 3, e E 4, f G 5, g H 6);
calls!(a A 0, b B 1, c C 2, d D 3, e E 4, f G 5, g H 6, h I 7);
