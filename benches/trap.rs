//! The cost of the trap for non-finite values and of checks: each workload plainly and instrumented, alternately.

#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::time::{Duration, Instant};

use retape::{Check, CheckWhen, Result, Tensor, accelerate};

/// How often a plain and a watched run alternate.
const ROUNDS: usize = 41;

/// A workload of one tensor, as plain function.
type Workload = (&'static str, usize, fn(&Tensor) -> Tensor);

const WORKLOADS: [Workload; 7] = [
    ("x + 1, 64", 64, |x| x + 1.0),
    ("x + 1, 64 Ki", 1 << 16, |x| x + 1.0),
    ("x + 1, 4 Mi", 1 << 22, |x| x + 1.0),
    ("polynomial of degree 8, 64 Ki", 1 << 16, |x| (0..8).fold(x * 0.5, |y, _| y * x + 0.25)),
    ("tanh, 64 Ki", 1 << 16, Tensor::tanh),
    ("row sums of exp, 64 Ki", 1 << 16, |x| x.reshape([256, 256]).exp().sum(1)),
    ("matmul 512 and its gradient", 1 << 18, |x| {
        let x = x.reshape([512, 512]);
        x.matmul(&x).square().mean(..).grad(&x)
    }),
];

fn main() -> Result<()> {
    println!("{:32} {:>12} {:>12} {:>9} {:>14}", "", "plain", "trap", "more", "check 1 in 100");
    for (name, n, function) in WORKLOADS {
        let [plain, trapped, checked] = [0, 1, 2].map(|_| accelerate(function));
        trapped.configure(|options| options.trap_nonfinite = true);
        checked.configure(|options| options.check = (Check { when: CheckWhen::OneIn(100), ..Check::default() }).into());
        let x = Tensor::from((0..n).map(|i| (i % 97) as f32 / 97.0).collect::<Vec<_>>());
        let calls = (1 << 22) / n.max(1 << 9) / 8 + 1;
        let mut times = [const { vec![] }; 3];
        for _ in 0..ROUNDS {
            for (times, step) in times.iter_mut().zip([&plain, &trapped, &checked]) {
                step.call(&x)?;
                let start = Instant::now();
                for _ in 0..calls {
                    step.call(&x)?;
                }
                times.push(start.elapsed() / calls as u32);
            }
        }
        let [plain, trapped, checked] = times.map(least);
        let more = |time: Duration| 100.0 * (time.as_secs_f64() / plain.as_secs_f64() - 1.0);
        println!("{name:32} {plain:>12.2?} {trapped:>12.2?} {:>8.1}% {:>13.1}%", more(trapped), more(checked));
    }
    Ok(())
}

/// The least time: the load of other programs only adds.
fn least(times: Vec<Duration>) -> Duration {
    times.into_iter().min().unwrap_or_default()
}
