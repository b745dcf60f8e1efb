//! Learning rates as functions of the step.

use std::f64::consts::PI;

use retape_runtime::DType;

use crate::method::method;
use crate::tensor::Tensor;

/// A learning rate for each step, the first of which is step 0.
///
/// ```
/// use retape::optim::Schedule;
///
/// let schedule = Schedule::Cosine { from: 0.1, to: 0.0, steps: 100 }.warmup(10);
/// assert_eq!(schedule.rate(4), 0.05);
/// assert!(schedule.rate(200) < 1e-12);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Schedule {
    /// The same rate always.
    Constant(f64),
    /// From one rate to another along a line, and then constant.
    Linear {
        /// The first rate.
        from: f64,
        /// The last rate.
        to: f64,
        /// After how many steps the last rate is reached.
        steps: u32,
    },
    /// From one rate to another along half a cosine, and then constant.
    Cosine {
        /// The first rate.
        from: f64,
        /// The last rate.
        to: f64,
        /// After how many steps the last rate is reached.
        steps: u32,
    },
    /// `from * factor ^ (step / steps)`.
    Exponential {
        /// The first rate.
        from: f64,
        /// The factor.
        factor: f64,
        /// After how many steps it applies once.
        steps: u32,
    },
    /// Rises to the schedule's first rate along a line over `steps` steps, and then follows it.
    Warmup {
        /// How many steps.
        steps: u32,
        /// What follows.
        then: Box<Schedule>,
    },
}

impl Schedule {
    /// This schedule after a rise along a line over `steps` steps.
    #[must_use]
    pub fn warmup(self, steps: u32) -> Schedule {
        Schedule::Warmup { steps, then: Box::new(self) }
    }

    /// The rate at a step, as a number.
    pub fn rate(&self, step: u64) -> f64 {
        let done = |steps: u32| (step as f64 / f64::from(steps.max(1))).min(1.0);
        match *self {
            Schedule::Constant(rate) => rate,
            Schedule::Linear { from, to, steps } => from + (to - from) * done(steps),
            Schedule::Cosine { from, to, steps } => to + (from - to) * 0.5 * (1.0 + (PI * done(steps)).cos()),
            Schedule::Exponential { from, factor, steps } => {
                from * (factor.ln() * (step as f64 / f64::from(steps.max(1)))).exp()
            }
            Schedule::Warmup { steps, ref then } => match step.checked_sub(u64::from(steps)) {
                Some(step) => then.rate(step),
                None => then.rate(0) * (step + 1) as f64 / f64::from(steps),
            },
        }
    }

    /// The rate at a step given as an integer scalar, such as an optimiser's: an `f64` scalar, computed in the trace.
    #[track_caller]
    pub fn traced_rate(&self, step: &Tensor) -> Tensor {
        let _method = method("Schedule::traced_rate");
        let step = step.cast(DType::F64);
        let done = |steps: u32| (&step / f64::from(steps.max(1))).minimum(1.0);
        match *self {
            Schedule::Constant(rate) => step.full_like(rate),
            Schedule::Linear { from, to, steps } => done(steps) * (to - from) + from,
            Schedule::Cosine { from, to, steps } => ((done(steps) * PI).cos() + 1.0) * (0.5 * (from - to)) + to,
            Schedule::Exponential { from, factor, steps } => {
                (&step * (factor.ln() / f64::from(steps.max(1)))).exp() * from
            }
            Schedule::Warmup { steps, ref then } => {
                let rising = (&step + 1.0) * (then.rate(0) / f64::from(steps.max(1)));
                let later = then.traced_rate(&(&step - f64::from(steps)).maximum(0.0));
                step.lt(f64::from(steps)).select(rising, later)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_tensors_agree() {
        let schedules = [
            Schedule::Constant(0.3),
            Schedule::Linear { from: 1.0, to: 0.1, steps: 7 },
            Schedule::Cosine { from: 1.0, to: 0.1, steps: 7 }.warmup(3),
            Schedule::Exponential { from: 0.5, factor: 0.1, steps: 5 },
        ];
        for schedule in schedules {
            for step in 0..12_u64 {
                let traced = schedule.traced_rate(&Tensor::from(step as i64)).item::<f64>().unwrap();
                let rate = schedule.rate(step);
                assert!((traced - rate).abs() < 1e-12, "{schedule:?} at {step}: {traced} and {rate}");
            }
        }
    }
}
