//! The settings of an accelerated function.

mod math;
mod policy;

use retape_runtime::Budget;

pub use self::math::MathMode;
pub use self::policy::{OnRetrace, RetracePolicy};
use crate::diagnose::check::CheckMode;
use crate::diagnose::tolerance::Tolerance;

/// The settings of an accelerated function, as [`options`](crate::Accelerated::options) gives them and
/// [`configure`](crate::Accelerated::configure) changes them. Calls that begin afterwards go by them.
///
/// ```
/// use retape::{Tensor, accelerate};
///
/// let double = accelerate(|x: &Tensor| x + x);
/// double.configure(|options| {
///     options.capacity = 200;
///     options.profiling = true;
/// });
/// assert_eq!((double.options().capacity, double.options().enabled), (200, true));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Options {
    /// How many entries the cache holds at most, at least 1; 50 unless set. The least recently used entries beyond it
    /// are evicted.
    pub capacity: usize,
    /// The bytes that all entries together may use, beside the bound on their number: machine code, arenas, and the
    /// tensors that traces captured; no bound unless set. The least recently used entries beyond it are evicted. Pinned
    /// entries stay, and an entry that alone is over the budget serves its call and is not kept.
    ///
    /// ```
    /// use retape::{Budget, Tensor, accelerate};
    ///
    /// let sum = accelerate(|x: &Tensor| x.sum(..));
    /// for n in 1..=5 {
    ///     sum.call(Tensor::ones([n]))?;
    /// }
    /// assert_eq!(sum.stats().entries.len(), 5);
    /// let half = Budget { host: Some(sum.stats().bytes() / 2), device: None };
    /// sum.configure(|options| options.byte_budget = half);
    /// assert!(sum.stats().entries.len() < 5);
    /// # Ok::<(), retape::Error>(())
    /// ```
    pub byte_budget: Budget,
    /// Whether calls use the cache; true unless set. With `false`, every call traces the function and runs its ops one
    /// by one: the un-accelerated path, which speed-ups are measured against. Such calls are neither hits nor misses.
    pub enabled: bool,
    /// With `true`, a call that finds no entry fails with an error that says what differs from the nearest entry, and
    /// the closure is not entered: with [`load`](crate::Accelerated::load), no call of a running service waits for a
    /// compiler. False unless set.
    ///
    /// The lock speaks of the cache. Calls of a function that is not [`enabled`](Options::enabled), calls inside another
    /// trace and the calls that [`check`](Options::check) compares with enter the closure as always. The lock comes
    /// before [`retrace`](Options::retrace). Code for a gradient that is taken outside of the function is made when it
    /// is first needed, and no artefact holds it: take such gradients once before the lock, for afterwards one whose
    /// code is not there is an error.
    ///
    /// ```
    /// # use retape::{accelerate, Tensor};
    /// let double = accelerate(|x: &Tensor| x + x);
    /// double.call(Tensor::ones([2]))?;
    /// double.configure(|options| options.locked = true);
    /// double.call(Tensor::zeros([2]))?;
    /// let refused = double.call(Tensor::ones([3])).unwrap_err().to_string();
    /// assert!(refused.contains("locked") && refused.contains("argument 0 axis 0: 2 -> 3"), "{refused}");
    /// # Ok::<(), retape::Error>(())
    /// ```
    pub locked: bool,
    /// With `true`, a hit enters the closure once more now and then, compiles nothing, and compares the record with the
    /// entry. A difference means that the closure depends on something that is no argument: a number, a captured tensor
    /// that was replaced, a flag. Calls go on with the code of the entry, and the difference is told: as
    /// [`advice`](crate::Accelerated::advice) with the first op that differs, both values and the line, as an event, and
    /// on standard error where nobody listens. True unless set, or unless the environment has `RETAPE_STALE_CHECK=0`.
    ///
    /// Of the hits of an entry that are timed (the first ones after a miss, and later one in 64), numbers 1, 2, 4, .., 64
    /// are looked at, as long as that takes less than a tenth of the cost of the entry, within 20 and 100 ms. Later looks
    /// take about a thousandth of the time of all hits. Such a call returns its result as always; side effects of the
    /// closure happen once more, except for output of [`debug_print`](crate::Tensor::debug_print) and for events. Its
    /// errors and panics are ignored. Calls of a [locked](Options::locked) function, of a [`Pinned`](crate::Pinned)
    /// entry, and of an entry from an artefact are not looked at.
    ///
    /// ```
    /// use retape::{AdviceKind, Tensor, accelerate, set_warnings};
    /// use std::cell::Cell;
    ///
    /// # set_warnings(false);
    /// let rate = Cell::new(0.1_f32);
    /// let scaled = accelerate(|x: &Tensor| x * rate.get());
    /// let x = Tensor::ones([2]);
    /// scaled.call(&x)?;
    /// rate.set(0.2); // no call sees this
    /// assert_eq!(scaled.call(&x)?.to_vec::<f32>()?, [0.1, 0.1]);
    /// let advice = &scaled.advice()[0];
    /// assert_eq!(advice.kind, AdviceKind::StaleTrace);
    /// assert!(advice.message.starts_with("constant 0.1 became 0.2 at "), "{advice}");
    /// # Ok::<(), retape::Error>(())
    /// ```
    pub stale_check: bool,
    /// The reaction to misses after the warm-up: nothing, a warning, or an error; see [`RetracePolicy`].
    pub retrace: RetracePolicy,
    /// Which calls are compared with the un-accelerated path; none unless set. See [`Check`](crate::Check), whose
    /// tolerance becomes that of the function.
    ///
    /// A checked call enters the closure once more than others, with its side effects, and runs its ops one by one;
    /// output of [`debug_print`](crate::Tensor::debug_print) appears once. All tensors of the result are compared,
    /// gradients among them, and its static values.
    pub check: CheckMode,
    /// How far the results of checked calls may be apart, also for [`bisect`](crate::Accelerated::bisect): relative
    /// `1e-4` and absolute `1e-6` unless set.
    pub tolerance: Tolerance,
    /// How exact the code is; strict unless set. See [`MathMode`].
    pub math: MathMode,
    /// With `true`, a call fails if an op makes NaN or an infinity from finite numbers, with
    /// [`Error::NonFinite`](crate::Error::NonFinite) that names the op, its line and its inputs. False unless set.
    ///
    /// Code with a trap is other code, so that the next call with each signature misses with the reason
    /// [`ModeChanged`](crate::MissReason::ModeChanged); results keep their bits. The code looks at each value that it
    /// stores: a value that is not finite only between two ops of one kernel, and never reaches memory, goes unnoticed.
    /// After a find the ops are run again one by one to find the one to blame; infinities that arguments or constants
    /// bring along are nobody's fault, and cost that search on every call; so NaN made of infinities, as by the softmax
    /// of a row that a mask filled with minus infinity, is not found.
    ///
    /// A call inside an outer gradient (`value_and_grad`, `vjp`) becomes part of it, and all of that is trapped. A call
    /// inside another accelerated function is trapped only if that one is.
    ///
    /// ```
    /// use retape::{Error, Tensor, accelerate};
    ///
    /// let mean_log = accelerate(|x: &Tensor| x.log().mean(..));
    /// mean_log.configure(|options| options.trap_nonfinite = true);
    /// mean_log.call(Tensor::from([1.0_f32, 2.0]))?;
    /// let Err(Error::NonFinite(found)) = mean_log.call(Tensor::from([1.0_f32, -2.0])) else { panic!() };
    /// assert_eq!((found.op, found.inputs[0].min), ("log", -2.0));
    /// # Ok::<(), retape::Error>(())
    /// ```
    pub trap_nonfinite: bool,
    /// With `true`, calls are measured, for [`profile`](crate::Accelerated::profile) and the report; measurements from
    /// before are forgotten. With `false`, calls are no longer measured, and the measurements are kept. False unless
    /// set, or unless the environment has `RETAPE_LOG=profile`.
    ///
    /// A measured call reads the clock twice for each launch.
    pub profiling: bool,
}
