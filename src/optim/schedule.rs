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
    /// `from * factor ^ floor(step / steps)`: the rate drops by a factor every `steps` steps.
    Step {
        /// The first rate.
        from: f64,
        /// The factor.
        factor: f64,
        /// After how many steps it applies once more.
        steps: u32,
    },
    /// One rate after another, each from a step on.
    Piecewise {
        /// The first rate.
        from: f64,
        /// Steps, and the rates from these on; of those whose step has come the last in the list counts.
        then: Vec<(u32, f64)>,
    },
    /// Rises to the schedule's first rate along a line over `steps` steps, and then follows it.
    Warmup {
        /// How many steps.
        steps: u32,
        /// The schedule that follows.
        then: Box<Schedule>,
    },
}

impl Schedule {
    /// This schedule after a rise along a line over `steps` steps.
    #[must_use]
    pub fn warmup(self, steps: u32) -> Schedule {
        Schedule::Warmup { steps, then: Box::new(self) }
    }

    /// This schedule with every rate times `factor`, such as a batch size over the one that the rates were found for
    /// (linear scaling; Goyal et al., 2017).
    ///
    /// ```
    /// # use retape::optim::Schedule;
    /// let schedule = Schedule::Step { from: 0.1, factor: 0.1, steps: 1000 }.scaled(512.0 / 256.0);
    /// assert_eq!(schedule.rate(0), 0.2);
    /// ```
    #[must_use]
    pub fn scaled(self, factor: f64) -> Schedule {
        match self {
            Schedule::Constant(rate) => Schedule::Constant(rate * factor),
            Schedule::Linear { from, to, steps } => Schedule::Linear { from: from * factor, to: to * factor, steps },
            Schedule::Cosine { from, to, steps } => Schedule::Cosine { from: from * factor, to: to * factor, steps },
            Schedule::Exponential { from, factor: per_steps, steps } => {
                Schedule::Exponential { from: from * factor, factor: per_steps, steps }
            }
            Schedule::Step { from, factor: drop, steps } => Schedule::Step { from: from * factor, factor: drop, steps },
            Schedule::Piecewise { from, then } => {
                let then = then.into_iter().map(|(step, rate)| (step, rate * factor)).collect();
                Schedule::Piecewise { from: from * factor, then }
            }
            Schedule::Warmup { steps, then } => Schedule::Warmup { steps, then: Box::new(then.scaled(factor)) },
        }
    }

    /// The rate at a step, as a number.
    pub fn rate(&self, step: u64) -> f64 {
        let done = |steps: u32| (step as f64 / f64::from(steps.max(1))).min(1.0);
        match *self {
            Schedule::Constant(rate) => rate,
            Schedule::Linear { from, to, steps } => from + (to - from) * done(steps),
            Schedule::Cosine { from, to, steps } => to + (from - to) * 0.5 * (1.0 + (PI * done(steps)).cos()),
            Schedule::Exponential { from, factor, steps } => from * factor.powf(step as f64 / f64::from(steps.max(1))),
            Schedule::Step { from, factor, steps } => from * factor.powf((step / u64::from(steps.max(1))) as f64),
            Schedule::Piecewise { from, ref then } => {
                let come = then.iter().rfind(|(at, _)| u64::from(*at) <= step);
                come.map_or(from, |&(_, rate)| rate)
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
                step.full_like(factor).pow(&step / f64::from(steps.max(1))) * from
            }
            Schedule::Step { from, factor, steps } => {
                step.full_like(factor).pow((&step / f64::from(steps.max(1))).floor()) * from
            }
            Schedule::Piecewise { from, ref then } => {
                then.iter().fold(step.full_like(from), |rate, &(at, next)| step.lt(f64::from(at)).select(rate, next))
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
    fn steps_and_pieces_begin_where_they_say() {
        let steps = Schedule::Step { from: 0.8, factor: 0.5, steps: 3 };
        let rates: Vec<f64> = (0..7).map(|step| steps.rate(step)).collect();
        assert_eq!(rates, [0.8, 0.8, 0.8, 0.4, 0.4, 0.4, 0.2]);
        let pieces = Schedule::Piecewise { from: 1.0, then: vec![(2, 0.5), (4, 0.25)] }.scaled(2.0);
        let rates: Vec<f64> = (0..6).map(|step| pieces.rate(step)).collect();
        assert_eq!(rates, [2.0, 2.0, 1.0, 1.0, 0.5, 0.5]);
    }

    #[test]
    fn numbers_and_tensors_agree() {
        let schedules = [
            Schedule::Constant(0.3),
            Schedule::Linear { from: 1.0, to: 0.1, steps: 7 },
            Schedule::Cosine { from: 1.0, to: 0.1, steps: 7 }.warmup(3),
            Schedule::Exponential { from: 0.5, factor: 0.1, steps: 5 },
            Schedule::Step { from: 0.5, factor: 0.1, steps: 4 },
            Schedule::Step { from: 0.5, factor: 0.0, steps: 4 },
            Schedule::Exponential { from: 0.5, factor: 0.0, steps: 4 },
            Schedule::Piecewise { from: 0.5, then: vec![(3, 0.2), (7, 0.1)] }.warmup(2).scaled(4.0),
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
