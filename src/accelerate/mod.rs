//! `accelerate(f)`: the function that traces once per signature and runs machine code from then on.
//!
//! The generic wrapper flattens arguments and rebuilds results; the work is done by the non-generic [`Core`].

mod core;
mod entry;
mod pin;
mod recheck;
mod rejected;
mod signature;

use std::any::type_name;
use std::panic::Location;
use std::sync::Arc;

pub(crate) use self::core::Core;
use self::core::{CallContext, DonatingCall};
pub(crate) use self::entry::Entry;
pub use self::pin::Pinned;
pub(crate) use self::rejected::{Known, Rejected};
use crate::callable::{Accelerable, Arg, Checked, Donated, Function, Held, for_each_arity};
use crate::diagnose::Bisection;
use crate::error::{Caller, Deviation, Error, Result, caught};
use crate::observe::inspection::Inspection;
use crate::observe::{Advice, Form, Miss, Profile, Stats};
use crate::options::Options;
use crate::signature::{Description, Signature};
use crate::tape::Tape;
use crate::tree::{Reader, Tree, Writer};

/// Wraps a function of tensors into one that compiles itself.
///
/// The function takes one to eight arguments by reference, each a [`Tree`], and returns a tree. The first call with
/// a new signature (structure, dtypes, shapes, device, static values) runs it once on traced tensors, differentiates
/// and optimises what it recorded, and compiles it; later calls with that signature run the machine code. So side effects
/// of the function happen only while tracing, and a concrete tensor or a number that the function captures keeps the
/// value it had then. A few hits enter the function once more, with its side effects, to warn if that has changed; see
/// [`Options::stale_check`].
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
#[track_caller]
pub fn accelerate<F, Args, R, How>(function: F) -> Accelerated<F, Args, R>
where
    F: Accelerable<Args, R, How>,
{
    let core = Core::new(Location::caller(), type_name::<F>());
    Accelerated { checked: Checked { function, apply: F::apply }, core, rejected: Rejected::new() }
}

/// A function together with the cache of its compiled traces; see [`accelerate`].
///
/// Calls may come from many threads at once.
pub struct Accelerated<F, Args, R> {
    checked: Checked<F, Args, R>,
    core: Core,
    rejected: Rejected<F, Args, R>,
}

/// An accelerated function of any closure type, for structs and collections.
///
/// It is an [`Accelerated`] like others, with all its methods. [`Accelerated::boxed`] makes it.
///
/// ```
/// use retape::{Boxed, Tensor, Tree, accelerate, zip_map};
///
/// #[derive(Clone, Tree)]
/// struct Params {
///     slope: Tensor,
///     offset: Tensor,
/// }
///
/// struct Trainer {
///     /// From parameters and inputs to the next parameters and the loss.
///     step: Boxed<(Params, Tensor), (Params, Tensor)>,
/// }
///
/// impl Trainer {
///     fn new(rate: f32) -> Trainer {
///         let step = move |params: &Params, x: &Tensor| {
///             let loss = (x * &params.slope + &params.offset - 1.0).square().mean(..);
///             let next = zip_map([params, &loss.grad(params)], |[p, g]| p - g * rate);
///             (next, loss)
///         };
///         Trainer { step: accelerate(step).boxed() }
///     }
/// }
///
/// let trainer = Trainer::new(0.1);
/// let mut params = Params { slope: Tensor::from(0.0_f32), offset: Tensor::from(0.0_f32) };
/// for _ in 0..500 {
///     (params, _) = trainer.step.call(params, Tensor::from([1.0_f32, 2.0]))?;
/// }
/// assert!((params.slope.item::<f32>()? + params.offset.item::<f32>()? - 1.0).abs() < 1e-2);
/// assert_eq!(trainer.step.stats().misses, 1);
/// # Ok::<(), retape::Error>(())
/// ```
pub type Boxed<Args, R> = Accelerated<Box<dyn Function<Args, R> + Send + Sync>, Args, R>;

impl<F, Args, R> Accelerated<F, Args, R> {
    /// The body behind the generic wrapper.
    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    /// The wrapped function.
    pub fn function(&self) -> &F {
        &self.checked.function
    }

    /// The same function, cache and settings, of a type that can be written down; see [`Boxed`].
    ///
    /// Calls cost no more, since the box is opened only to trace. Artefacts of the function and of its box are the same.
    ///
    /// ```
    /// use retape::{Boxed, Tensor, accelerate};
    ///
    /// let scaled = |by: f64| accelerate(move |x: &Tensor| x * by).boxed();
    /// let functions: Vec<Boxed<(Tensor,), Tensor>> =
    ///     vec![accelerate(Tensor::exp).boxed(), scaled(2.0), scaled(3.0)];
    /// let results = functions.iter().map(|f| f.call(0.0_f32)?.item::<f32>());
    /// assert_eq!(results.collect::<Result<Vec<_>, _>>()?, [1.0, 0.0, 0.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    pub fn boxed(self) -> Boxed<Args, R>
    where
        F: Send + Sync + 'static,
        Args: 'static,
        R: 'static,
    {
        let function: Box<dyn Function<Args, R> + Send + Sync> = Box::new(self.checked);
        let checked = Checked { function, apply: |function, args| function.apply(args) };
        Accelerated { checked, core: self.core, rejected: Rejected::new() }
    }

    /// The function under a name, which statistics, reports, profiles, events, metrics and errors call it by. Unnamed,
    /// it has the name of its declaration, or, as closures have none, the line that accelerated it.
    ///
    /// Names are for people and need not differ; an artefact does not depend on them. A name is one line: control
    /// characters in it become spaces, and an empty one changes nothing.
    ///
    /// ```
    /// use retape::{Tensor, accelerate};
    ///
    /// let step = accelerate(|x: &Tensor| x.square().sum(..)).named("train_step");
    /// step.call(Tensor::ones([4]))?;
    /// assert_eq!(&*step.name(), "train_step");
    /// assert!(step.stats().to_string().starts_with("function   train_step\n"));
    /// assert!(step.explain()[0].to_string().starts_with("miss 1 of `train_step` at "));
    ///
    /// fn double(x: &Tensor) -> Tensor {
    ///     x + x
    /// }
    /// assert_eq!(&*accelerate(double).name(), "double");
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[must_use]
    pub fn named(self, name: impl AsRef<str>) -> Self {
        self.core.identity().set_name(name.as_ref());
        self
    }

    /// The name of the function; see [`named`](Accelerated::named).
    pub fn name(&self) -> Arc<str> {
        self.core.identity().name()
    }

    /// The fraction of calls that needed no trace, in `[0, 1]`; 0 before the first call.
    pub fn hit_rate(&self) -> f64 {
        self.core.stats().hit_rate()
    }

    /// Everything there is to know about the cache, at this moment.
    pub fn stats(&self) -> Stats {
        self.core.stats()
    }

    /// Drops all entries. Calls that are running finish; the counters stay.
    pub fn clear_cache(&self) {
        self.core.clear();
    }

    /// The settings; see [`Options`].
    pub fn options(&self) -> Options {
        self.core.options()
    }

    /// Changes settings; see [`Options`].
    ///
    /// ```
    /// use retape::{Tensor, accelerate};
    ///
    /// let double = accelerate(|x: &Tensor| x + x);
    /// double.configure(|options| options.enabled = false);
    /// double.call(Tensor::ones([2]))?;
    /// assert_eq!(double.stats().misses, 0);
    /// # Ok::<(), retape::Error>(())
    /// ```
    pub fn configure(&self, change: impl FnOnce(&mut Options)) {
        self.core.configure(change);
    }

    /// Why calls missed: the last 256 misses, the oldest first.
    ///
    /// ```
    /// use retape::{MissReason, Tensor, accelerate};
    ///
    /// let sum = accelerate(|x: &Tensor| x.sum(..));
    /// sum.call(Tensor::ones([32, 4]))?;
    /// sum.call(Tensor::ones([8, 4]))?;
    /// let misses = sum.explain();
    /// assert_eq!((misses[0].reason, misses[1].reason), (MissReason::FirstCall, MissReason::NewShape));
    /// assert_eq!(misses[1].differences[0].to_string(), "argument 0 axis 0: 32 -> 8");
    /// # Ok::<(), retape::Error>(())
    /// ```
    pub fn explain(&self) -> Vec<Miss> {
        self.core.misses()
    }

    /// Advice on what to change, if the calls so far show a mistake: one line for each pattern in the misses, or in what
    /// they recorded, and for each op that the closure [no longer records](Options::stale_check) as it did. Each
    /// is also emitted once as a `tracing` event, or written to standard error where nobody listens for that.
    pub fn advice(&self) -> Vec<Advice> {
        self.core.advice()
    }

    /// The differences that checked calls showed, the last 64, the oldest first.
    pub fn differences(&self) -> Vec<Deviation> {
        self.core.checks().deviations()
    }

    /// The measurements made while profiling was on: calls, the stages of misses, and how long groups took.
    ///
    /// ```
    /// use retape::{accelerate, Tensor};
    ///
    /// let norm = accelerate(|x: &Tensor| x.square().sum(..).sqrt());
    /// norm.configure(|options| options.profiling = true);
    /// for _ in 0..3 {
    ///     norm.call(Tensor::ones([4]))?;
    /// }
    /// let profile = norm.profile();
    /// assert_eq!(profile.calls.len(), 3);
    /// assert_eq!(profile.groups[0].count, 3);
    /// # Ok::<(), retape::Error>(())
    /// ```
    pub fn profile(&self) -> Profile {
        self.core.profile()
    }

    /// All of [`stats`](Accelerated::stats) and [`explain`](Accelerated::explain), and the insides of the `n_details`
    /// entries used last: their graphs, steps, memory, and the times of their launches. The crate `retape-report` makes
    /// a page of it.
    ///
    /// ```
    /// use retape::{accelerate, Tensor};
    ///
    /// let norm = accelerate(|x: &Tensor| x.square().sum(..).sqrt());
    /// norm.call(Tensor::ones([4]))?;
    /// let inside = &norm.inspect(1).details[0];
    /// assert_eq!(inside.values[inside.params[0].index()].ty, "f32[4]");
    /// assert!(inside.steps[0].label.contains("reduce_sum"));
    /// # Ok::<(), retape::Error>(())
    /// ```
    pub fn inspect(&self, n_details: usize) -> Inspection {
        self.core.inspect(n_details)
    }

    /// An entry as text. Signatures come from `signature(..)` with the arguments of a call, from
    /// [`Stats::entries`](crate::Stats) or from [`explain`](Accelerated::explain).
    ///
    /// ```
    /// # use retape::{accelerate, Tensor};
    /// use retape::Form;
    ///
    /// let f = accelerate(|x: &Tensor| (x * 2.0).tanh());
    /// let x = Tensor::ones([8]);
    /// f.call(&x)?;
    /// let signature = f.signature(&x);
    /// assert!(f.text(&signature, Form::Graph)?.contains("tanh"));
    /// assert!(f.text(&signature, Form::Plan)?.starts_with("plan (f32[8]) -> (f32[8])"));
    /// assert!(f.text(&signature, Form::Kernels)?.contains("axes a0 = 8"));
    /// assert!(f.text(&signature, Form::Clif)?.contains("function"));
    /// assert!(!f.text(&signature, Form::Disassembly)?.is_empty());
    /// # Ok::<(), retape::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if there is no entry of this signature, and names those there are; also if the entry runs on a GPU and the
    /// form is one of the processor's, [`Clif`](Form::Clif) or [`Disassembly`](Form::Disassembly), or the other way
    /// round.
    pub fn text(&self, signature: &Signature, form: Form) -> Result<String> {
        self.core.text(signature, form)
    }

    /// The misses after the first `before`, as the message of [`assert_no_retrace`](crate::assert_no_retrace).
    #[doc(hidden)]
    pub fn retraces_since(&self, before: u64) -> Option<String> {
        let n = self.core.stats().misses.saturating_sub(before);
        let misses = self.explain();
        let lines = misses.iter().skip(misses.len().saturating_sub(n as usize)).map(|miss| format!("\n  {miss}"));
        (n > 0).then(|| format!("expected no retrace, found {n}:{}", lines.collect::<String>()))
    }
}

/// The methods that read and write trees.
impl<F, Args: Tree, R: Tree> Accelerated<F, Args, R> {
    #[inline]
    fn run<H: Held<Args>>(&self, held: H, caller: Caller) -> Result<R> {
        caught(|| self.run_held(held, caller))
    }

    fn run_held<H: Held<Args>>(&self, held: H, caller: Caller) -> Result<R> {
        let mut leaves = Writer::default();
        let donated = if H::DONATES { held.write_donated(&mut leaves) } else { Donated::default() };
        if !H::DONATES {
            held.write(&mut leaves);
        }
        if leaves.tensors.iter().any(|tensor| tensor.is_traced()) {
            let body = |from: &mut Reader<'_>| self.apply(from);
            return match self.core.calls_on(&leaves) {
                Some(tape) => {
                    self.with_context(&held, caller, |context| self.core.record(&tape, leaves, context))?.read()
                }
                None => self.core.inline(&leaves, caller, &body),
            };
        }
        if !H::DONATES {
            return self.with_context(&held, caller, |context| self.core.call(leaves, context))?.read();
        }
        match self.with_context(&held, caller, |context| self.core.call_donating(leaves, donated, context))? {
            DonatingCall::Done(outcome) => outcome.read(),
            DonatingCall::Ready(ready) => {
                // The donated tensors must have no second owner, so the arguments are dropped first.
                drop(held);
                self.core.run_ready(ready)?.read()
            }
        }
    }

    fn bisect_held<H: Held<Args>>(&self, held: &H, caller: Caller) -> Result<Bisection> {
        caught(|| {
            let mut leaves = Writer::default();
            held.write(&mut leaves);
            if leaves.tensors.iter().any(|tensor| tensor.is_traced()) {
                let remedy = "call `bisect` outside of traced closures";
                return Err(Error::Traced { op: "bisect", remedy, at: caller, call: None });
            }
            self.with_context(held, caller, |context| self.core.bisect(leaves, context))
        })
    }

    fn pin_held<H: Held<Args>>(&self, held: &H, caller: Caller) -> Result<Pinned<Args, R>> {
        caught(|| {
            let mut leaves = Writer::default();
            held.write(&mut leaves);
            self.with_context(held, caller, |context| self.core.pin(leaves, context)).map(Pinned::new)
        })
    }

    /// Reads the arguments and applies the function to them.
    fn apply(&self, from: &mut Reader<'_>) -> Result<R> {
        Ok(self.checked.apply(&Args::read(from)?))
    }

    /// Hands the core what only this generic side knows.
    #[inline]
    fn with_context<H: Held<Args>, T>(&self, held: &H, caller: Caller, work: impl FnOnce(&CallContext<'_>) -> T) -> T {
        let describe = || {
            let mut leaves = Writer::with_paths();
            held.write(&mut leaves);
            Description::of::<Args>(&leaves)
        };
        let trace = |tape: &Arc<Tape>, from: &mut Reader<'_>| crate::trace::flatten(tape, || self.apply(from));
        work(&CallContext { caller, describe: &describe, trace: &trace })
    }
}

/// The signature of arguments, in no mode.
fn signature_of<Args>(held: &impl Held<Args>) -> Signature {
    let mut leaves = Writer::with_paths();
    held.write(&mut leaves);
    let description = Description::of::<Args>(&leaves);
    Signature::of_words(leaves.words, description)
}

/// `call` and its relatives for each number of arguments.
macro_rules! calls {
    ($($name:ident $type:ident),*) => {
        impl<F, $($type,)* R> Accelerated<F, ($($type,)*), R>
        where
            $($type: Tree,)*
            R: Tree,
        {
            /// Calls the function, tracing and compiling it if no entry fits the arguments.
            ///
            /// Arguments are passed by reference, by value, or as numbers where the function takes a tensor. An
            /// argument that is passed by value is donated: results are written over those of its tensors that have no
            /// other handle, so that a step which takes its state by value and returns the next one allocates nothing
            /// for it. Tensors that the caller can still see never change.
            ///
            /// ```
            /// # use retape::{Tensor, accelerate};
            /// let axpy = accelerate(|a: &Tensor, x: &Tensor, y: &Tensor| a * x + y);
            /// let x = Tensor::from([1.0_f32, 2.0]);
            /// let y = axpy.call(2.0_f32, &x, Tensor::ones([2]))?; // a number, a reference, a value
            /// assert_eq!(y.to_vec::<f32>()?, [3.0, 5.0]);
            /// assert!(axpy.call(2.0_f32, &x, Tensor::ones([3])).is_err()); // the cache stays as it was
            /// # Ok::<(), retape::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// Fails if the function is ill-typed for these arguments or panics, or if the device refuses the work.
            /// A failed call leaves the cache as it was; arguments that were passed by value are gone.
            #[track_caller]
            #[allow(clippy::too_many_arguments, reason = "one parameter per argument of the function")]
            pub fn call(&self, $($name: impl Arg<$type>),*) -> Result<R> {
                self.run(($($name.hold(),)*), Location::caller())
            }

            /// Finds where a call with these arguments parts from the un-accelerated one, and why: the first value of the
            /// graph that differs by more than the [check tolerance](Options::tolerance), the fused group
            /// that made it, and whether a captured tensor, the closure, the optimiser or the code is to blame.
            ///
            /// Enters the closure, and is slow: it holds all values of the graph several times over. It is neither a
            /// hit nor a miss, prints nothing, and leaves the cache as it is.
            ///
            /// # Errors
            ///
            /// As [`call`](Accelerated::call).
            #[track_caller]
            #[allow(clippy::too_many_arguments, reason = "one parameter per argument of the function")]
            pub fn bisect(&self, $($name: impl Arg<$type>),*) -> Result<Bisection> {
                self.bisect_held(&($($name.hold(),)*), Location::caller())
            }

            /// A handle that calls the entry for arguments like these with no lookup, and keeps it from eviction; see
            /// [`Pinned`]. Finding or making the entry is a hit or a miss, as for a call; while the function
            /// [traps](Options::trap_nonfinite), it is the entry with the trap.
            ///
            /// # Errors
            ///
            /// As [`call`](Accelerated::call), and if the signature is in quarantine.
            #[track_caller]
            #[allow(clippy::too_many_arguments, reason = "one parameter per argument of the function")]
            pub fn pin(&self, $($name: impl Arg<$type>),*) -> Result<Pinned<($($type,)*), R>> {
                self.pin_held(&($($name.hold(),)*), Location::caller())
            }

            /// The signature that a call with these arguments has, while no mode that changes code is on.
            #[allow(clippy::too_many_arguments, reason = "one parameter per argument of the function")]
            pub fn signature(&self, $($name: impl Arg<$type>),*) -> Signature {
                signature_of::<($($type,)*)>(&($($name.hold(),)*))
            }
        }
    };
}

for_each_arity!(calls);
