//! Finding what is wrong: comparisons of compiled code with the ops one by one, the search for the first value that
//! differs or is not finite, and looks at closures that record something else by now.

pub(crate) mod bisect;
pub(crate) mod change;
pub(crate) mod check;
pub(crate) mod nonfinite;
pub(crate) mod rounding;
pub(crate) mod stale;
pub(crate) mod tolerance;

pub use self::bisect::{BisectCause, Bisection, FusedGroup, GraphValue};
pub use self::check::{Check, CheckMode, CheckWhen, OnDifference};
pub use self::tolerance::Tolerance;
