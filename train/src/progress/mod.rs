//! How far a training is, and when it ends.

mod stop;

pub use stop::Stop;
