//! How far a training is, and when it ends.

mod every;
mod nonfinite;
mod patience;
mod position;
mod step;
mod steps;
mod stop;

pub use every::Every;
pub use nonfinite::nonfinite_error;
pub use patience::{BestState, Goal, Patience, Verdict};
pub use position::Position;
pub use step::Step;
pub use steps::{End, Loop, Moment};
pub use stop::Stop;
