//! The policy for misses after the warm-up.

/// The action on a miss that the policy does not expect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnRetrace {
    /// It traces and compiles, as every miss.
    #[default]
    Allow,
    /// It also emits the `tracing` event `retrace` with level `WARN`.
    Warn,
    /// The call fails with an error that says what differs; the closure is not entered.
    Error,
}

/// A policy for misses: the action, and the first miss that it applies to.
///
/// Misses are unexpected once both the allowed misses and the warm-up are over. Neither is counted by default, so that
/// a policy made `from` an [`OnRetrace`] lets one miss pass, the first, and acts on every later one.
///
/// ```
/// use retape::{OnRetrace, RetracePolicy, Tensor, accelerate};
///
/// let double = accelerate(|x: &Tensor| x + x);
/// double.configure(|options| options.retrace = RetracePolicy::from(OnRetrace::Error).after_misses(2));
/// double.call(Tensor::ones([2]))?;
/// double.call(Tensor::ones([3]))?;
/// let refused = double.call(Tensor::ones([4])).unwrap_err();
/// assert!(refused.to_string().contains("argument 0 axis 0: 3 -> 4"), "{refused}");
/// # Ok::<(), retape::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetracePolicy {
    action: OnRetrace,
    allowed_misses: u64,
    warm_up_calls: u64,
}

impl From<OnRetrace> for RetracePolicy {
    fn from(action: OnRetrace) -> RetracePolicy {
        RetracePolicy { action, allowed_misses: 1, warm_up_calls: 0 }
    }
}

impl Default for RetracePolicy {
    fn default() -> RetracePolicy {
        OnRetrace::Allow.into()
    }
}

impl RetracePolicy {
    /// The first `n` misses of the function are expected.
    #[must_use]
    pub fn after_misses(self, n: u64) -> RetracePolicy {
        RetracePolicy { allowed_misses: n, ..self }
    }

    /// All misses among the first `n` calls of the function are expected.
    #[must_use]
    pub fn after_calls(self, n: u64) -> RetracePolicy {
        RetracePolicy { warm_up_calls: n, ..self }
    }

    /// The action for the miss with this number (from 1) at the call with this number (from 1).
    pub(crate) fn action(self, miss: u64, call: u64) -> OnRetrace {
        if miss <= self.allowed_misses || call <= self.warm_up_calls { OnRetrace::Allow } else { self.action }
    }
}

/// Runs a block and panics if the accelerated function traces anew meanwhile, with the reason of each miss; gives the
/// value of the block. For tests of a steady state.
///
/// ```
/// use retape::{Tensor, accelerate, assert_no_retrace};
///
/// let double = accelerate(|x: &Tensor| x + x);
/// double.call(Tensor::ones([2]))?;
/// let y = assert_no_retrace!(double, { double.call(Tensor::zeros([2]))? });
/// assert_eq!(y.shape(), [2]);
/// # Ok::<(), retape::Error>(())
/// ```
#[macro_export]
macro_rules! assert_no_retrace {
    ($function:expr, $body:expr $(,)?) => {{
        let function = &$function;
        let before = function.stats().misses;
        let value = $body;
        if let Some(message) = function.retraces_since(before) {
            ::std::panic!("{message}");
        }
        value
    }};
}
