//! Pinned entries: calls of one compiled trace without a lookup.

use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;

use super::entry::{Entry, handles};
use crate::callable::{Arg, Donated, Held, for_each_arity};
use crate::diagnose::check::Checks;
use crate::error::{Caller, Error, Result, caught};
use crate::identity::Identity;
use crate::observe::events::Events;
use crate::signature::{CallModes, Description, Signature};
use crate::tree::{Reader, Tree, Writer};

/// One entry of an accelerated function, called with no lookup; made by [`Accelerated::pin`](crate::Accelerated).
///
/// It takes arguments of its own signature and refuses all others, so it never traces. It owns what it needs: it may
/// outlive the function, and be moved to and called from any thread. While it lives, its entry is not evicted; after
/// [`clear_cache`](crate::Accelerated::clear_cache) it still holds the entry, which the function makes anew when asked.
///
/// Its calls are neither hits, misses nor uses in the statistics, and the settings that watch or change the calls of
/// the function (checks, profiles, [`enabled`](crate::Options::enabled)) do not apply to them: they run the entry. The
/// [trap](crate::Options::trap_nonfinite) for NaN and infinities belongs to the entry: a handle that was made while
/// it was on traps, and one that was made while it was off does not, whatever the function does later. A signature in
/// quarantine is neither pinned nor run: such calls fail as long as the quarantine lasts, and with a handle on the very
/// entry that was found wrong for good.
///
/// ```
/// # use retape::{accelerate, Tensor};
/// let double = accelerate(|x: &Tensor| x + x);
/// let pinned = double.pin(Tensor::ones([2]))?;
/// assert_eq!(pinned.call(Tensor::from([1.0_f32, 2.0]))?.to_vec::<f32>()?, [2.0, 4.0]);
/// let refused = pinned.call(Tensor::ones([3])).unwrap_err().to_string();
/// assert!(refused.contains("argument 0 axis 0: 2 -> 3"), "{refused}");
/// # Ok::<(), retape::Error>(())
/// ```
pub struct Pinned<Args, R> {
    held: HeldEntry,
    types: PhantomData<fn(Args) -> R>,
}

/// An entry that is not evicted.
pub(crate) struct HeldEntry {
    pub(crate) entry: Arc<Entry>,
    /// None if the cache had no room for the entry.
    pub(crate) pin: Option<retape_runtime::Pin<Signature, Entry>>,
    /// The modes that its code is compiled in.
    pub(crate) modes: CallModes,
    /// Those of the function, for its quarantines and its trap.
    pub(crate) checks: Arc<Checks>,
    pub(crate) events: Events,
}

impl<Args, R: Tree> Pinned<Args, R> {
    pub(crate) fn new(held: HeldEntry) -> Pinned<Args, R> {
        Pinned { held, types: PhantomData }
    }

    /// The signature that it takes.
    pub fn signature(&self) -> &Signature {
        &self.held.entry.signature
    }

    /// Whether the cache has the entry, which it keeps as long as this lives: false if it had no room for it, if it was
    /// cleared since, or if the function is gone.
    pub fn is_in_cache(&self) -> bool {
        self.held.pin.as_ref().is_some_and(retape_runtime::Pin::is_in_cache)
    }

    #[inline]
    fn run<H: Held<Args>>(&self, args: H, at: Caller) -> Result<R> {
        caught(|| self.run_held(args, at))
    }

    #[inline]
    fn run_held<H: Held<Args>>(&self, args: H, at: Caller) -> Result<R> {
        let entry = &*self.held.entry;
        if self.held.modes.traps {
            return self.run_trapped(&args, at);
        }
        let mut leaves = Writer::default();
        let donated = if H::DONATES { args.write_donated(&mut leaves) } else { Donated::default() };
        if !H::DONATES {
            args.write(&mut leaves);
        }
        self.admit(&leaves, entry.signature.argument_words(), &args, at)?;
        let tensors = if H::DONATES && entry.takes_donation(&donated) {
            let handles = handles(&leaves.tensors);
            // The donated tensors must have no second owner, so the arguments are dropped first.
            drop(leaves);
            drop(args);
            entry.run_donating(handles, &donated)
        } else {
            entry.run_unnoted(&leaves.tensors)
        };
        let tensors = tensors.map_err(|error| entry.refused(error, &self.held.events.function, at))?;
        R::read(&mut Reader::giving(&entry.trace.words, tensors))
    }

    /// As [`run_held`](Pinned::run_held), for code with a trap. More than the code may read the arguments, so none are donated.
    #[cold]
    fn run_trapped<H: Held<Args>>(&self, args: &H, at: Caller) -> Result<R> {
        let entry = &*self.held.entry;
        let mut leaves = Writer::default();
        args.write(&mut leaves);
        self.admit(&leaves, entry.signature.argument_words(), args, at)?;
        let ran = entry.run_trapped(&leaves.tensors);
        let (tensors, first) = ran.map_err(|error| entry.refused(error, &self.held.events.function, at))?;
        if let Some(group) = first {
            self.held.checks.search(&self.held.events, &entry.trace, &leaves.tensors, group, at)?;
        }
        R::read(&mut Reader::giving(&entry.trace.words, tensors))
    }

    /// Refuses arguments of other words than the entry's, and those in quarantine.
    #[inline]
    fn admit<H: Held<Args>>(&self, leaves: &Writer<'_>, own: &[u64], args: &H, at: Caller) -> Result<()> {
        let fits = leaves.words[..] == *own && leaves.tensors.iter().all(|tensor| tensor.as_concrete().is_some());
        if !fits {
            return Err(self.refusal(args, at));
        }
        if self.held.entry.is_bad() || self.held.checks.has_in_quarantine(own) {
            return Err(in_quarantine(&self.held.events.function, self.signature().description(), at));
        }
        Ok(())
    }

    /// Why the arguments do not fit.
    #[cold]
    fn refusal<H: Held<Args>>(&self, args: &H, at: Caller) -> Error {
        let mut leaves = Writer::with_paths();
        args.write(&mut leaves);
        if let Err(error) = leaves.check() {
            return error;
        }
        let (own, function) = (self.signature(), &self.held.events.function);
        if let Some(error) = escaped(&leaves, "call", at) {
            return error;
        }
        if leaves.tensors.iter().any(|tensor| tensor.is_traced()) {
            let remedy = "call the function itself, which then becomes part of the trace";
            return Error::Cache(format!(
                "a pinned entry of {function} has no place inside a trace; {remedy} (at {at})"
            ));
        }
        let description = Description::of::<Args>(&leaves);
        let given = Signature::in_modes(self.held.modes, leaves.words, description);
        let differences: Vec<String> = own.differences(&given).iter().map(ToString::to_string).collect();
        // Trees that describe themselves alike can differ in words that an own implementation writes.
        let differences =
            if differences.is_empty() { format!("it was given ({given})") } else { differences.join(", ") };
        let own = own.summary();
        Error::Cache(format!(
            "a pinned entry of {function} takes its own signature ({own}) only: {differences} (at {at})"
        ))
    }
}

/// The error if a traced tensor is among the arguments whose trace has ended.
pub(crate) fn escaped(leaves: &Writer<'_>, op: &'static str, at: Caller) -> Option<Error> {
    let mut traced = leaves.tensors.iter().filter_map(|tensor| tensor.as_traced());
    traced.any(|traced| traced.recording.is_finished()).then(|| crate::tape::escaped(op, at))
}

/// A check has found the code for such arguments wrong.
#[cold]
pub(crate) fn in_quarantine(function: &Identity, arguments: &Description, at: Caller) -> Error {
    let remedy = "call the function itself, or clear its cache and pin anew";
    let arguments = arguments.summary();
    Error::Cache(format!(
        "the entry of {function} for ({arguments}) is in quarantine, a check found it wrong; {remedy} (at {at})"
    ))
}

impl<Args, R> fmt::Debug for Pinned<Args, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pinned").field(&format_args!("{}", self.held.entry.signature)).finish()
    }
}

/// `call` for each number of arguments.
macro_rules! calls {
    ($($name:ident $type:ident),*) => {
        impl<$($type,)* R> Pinned<($($type,)*), R>
        where
            $($type: Tree,)*
            R: Tree,
        {
            /// Runs the entry. Arguments that are passed by value are given away, as in calls of the function.
            ///
            /// # Errors
            ///
            /// Fails if the arguments have another signature, saying what differs, if the signature is in
            /// quarantine, if the entry has a trap that an op falls into, or if the device refuses the work.
            #[track_caller]
            #[inline]
            #[allow(clippy::too_many_arguments, reason = "one parameter per argument of the function")]
            pub fn call(&self, $($name: impl Arg<$type>),*) -> Result<R> {
                self.run(($($name.hold(),)*), Location::caller())
            }
        }
    };
}

for_each_arity!(calls);
