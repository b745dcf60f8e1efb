//! Functions that can be accelerated, and the values that their calls take: bounds and conversions, no cache.

mod accelerable;
mod function;

pub use self::accelerable::Accelerable;
pub(crate) use self::accelerable::Never;
pub use self::function::{Arg, Donated, Function, Held, Holder};
pub(crate) use self::function::{Checked, for_each_arity};
