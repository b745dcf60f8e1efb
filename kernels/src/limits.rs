//! The two limits of this machine that any kernel has: how fast it computes, and how fast it copies.

use std::hint::black_box;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use retape_runtime::{lock, n_threads, parallel_for};

use crate::cost::StepCost;
use crate::library::{FMA_TASK_FLOPS, fma_task, stream_runs};

/// The speed of this machine with the number of threads that the process uses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MachineLimits {
    /// Floating-point operations in single precision per second, by fused multiply-adds on registers.
    pub flops: f64,
    /// The same in double precision.
    pub flops_f64: f64,
    /// Bytes read and written per second by a copy between buffers that no cache holds, past the caches where that is
    /// faster.
    pub copy_bytes: f64,
}

/// For how long each limit is measured. The best round counts: threads have to be started, and others use the machine.
const MEASURING: Duration = Duration::from_millis(20);

impl MachineLimits {
    /// The limits, measured on the first call of the process: some 140 ms, and 96 MiB for that time.
    ///
    /// ```
    /// use retape_kernels::MachineLimits;
    ///
    /// let limits = MachineLimits::measured();
    /// assert!(limits.flops > 1e8 && limits.copy_bytes > 1e8);
    /// assert_eq!(limits, MachineLimits::measured());
    /// ```
    pub fn measured() -> MachineLimits {
        static LIMITS: OnceLock<MachineLimits> = OnceLock::new();
        *LIMITS.get_or_init(|| {
            let copies = LimitProbe::new();
            let flops = |task, flops| best(|| rate_of_flops(task, flops));
            MachineLimits {
                flops: flops(fma_task::<f32>, FMA_TASK_FLOPS),
                flops_f64: flops(fma_task::<f64>, FMA_TASK_FLOPS / 2),
                copy_bytes: copies.best,
            }
        })
    }

    /// The least time of some work: that of its arithmetic or that of its bytes, whichever is longer. Work whose
    /// operands lie in a cache can take less.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use retape_kernels::{MachineLimits, StepCost};
    ///
    /// let limits = MachineLimits { flops: 100e9, flops_f64: 50e9, copy_bytes: 20e9 };
    /// let dense = StepCost { flops: 3_000_000, flops_f64: 0, bytes: 1000 };
    /// let sparse = StepCost { flops: 1000, flops_f64: 0, bytes: 2_000_000 };
    /// assert_eq!(limits.floor(&dense), Duration::from_micros(30));
    /// assert_eq!(limits.floor(&sparse), Duration::from_micros(100));
    /// ```
    pub fn floor(&self, cost: &StepCost) -> Duration {
        let arithmetic = cost.flops as f64 / self.flops + cost.flops_f64 as f64 / self.flops_f64;
        let seconds = arithmetic.max(cost.bytes as f64 / self.copy_bytes);
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }
}

/// The most that any round gives.
fn best(mut round: impl FnMut() -> f64) -> f64 {
    let begin = Instant::now();
    (0_u64..).take_while(|&n| n == 0 || begin.elapsed() < MEASURING).map(|_| round()).fold(0.0, f64::max)
}

/// The mean over rounds of equal work.
fn mean(span: Duration, mut round: impl FnMut() -> f64) -> f64 {
    let begin = Instant::now();
    let rounds: Vec<f64> = (0_u64..).take_while(|&n| n == 0 || begin.elapsed() < span).map(|_| round()).collect();
    rounds.len() as f64 / rounds.iter().map(|rate| 1.0 / rate).sum::<f64>()
}

/// Some work per second.
fn rate(work: usize, body: impl FnOnce()) -> f64 {
    let start = Instant::now();
    body();
    work as f64 / start.elapsed().as_secs_f64().max(1e-9)
}

fn rate_of_flops(task: fn(), flops: usize) -> f64 {
    // More than threads, so that a thread that comes late costs little.
    let n_tasks = 8 * n_threads();
    rate(n_tasks * flops, || parallel_for(n_tasks, &|_| task()))
}

/// A copy of a part of a buffer.
type CopyOfPart = fn(&mut [f32], &[f32]);

/// Measures the limits again and again. The work of others on the machine, and on processors that share units with its
/// own, changes within seconds; measurements of kernels that take turns with those of the limits see the same machine.
pub struct LimitProbe {
    from: Vec<Vec<f32>>,
    to: Vec<Mutex<Vec<f32>>>,
    copy: CopyOfPart,
    /// The most bytes per second that any round copied.
    best: f64,
}

impl LimitProbe {
    /// A probe that copies past the caches where this is faster: some 60 ms, and 96 MiB as long as it lives.
    pub fn new() -> LimitProbe {
        /// Elements of a task; together they exceed the caches.
        const PART: usize = 1 << 16;
        const PARTS: usize = 192;
        let from: Vec<Vec<f32>> = (0..PARTS).map(|part| vec![part as f32 + 1.0; PART]).collect();
        let to: Vec<Mutex<Vec<f32>>> = from.iter().map(|part| Mutex::new(part.clone())).collect();
        // An ordinary store reads the line that it writes, which is no part of what a kernel has to move.
        let copies: [CopyOfPart; 2] =
            [|to, from| to.copy_from_slice(from), |to, from| stream_runs([(to, from)].into_iter())];
        let mut probe = LimitProbe { from, to, copy: copies[0], best: 0.0 };
        let rates = copies.map(|copy| best(|| probe.rate_of_copies(copy)));
        (probe.copy, probe.best) = if rates[1] > rates[0] { (copies[1], rates[1]) } else { (copies[0], rates[0]) };
        probe
    }

    /// The limits now: means over so long for each, or over one round, which takes up to some milliseconds.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use retape_kernels::LimitProbe;
    ///
    /// let limits = LimitProbe::new().limits(Duration::from_millis(1));
    /// assert!(limits.flops > 1e8 && limits.flops_f64 > 1e8 && limits.copy_bytes > 1e8);
    /// ```
    pub fn limits(&self, span: Duration) -> MachineLimits {
        MachineLimits {
            flops: mean(span, || rate_of_flops(fma_task::<f32>, FMA_TASK_FLOPS)),
            flops_f64: mean(span, || rate_of_flops(fma_task::<f64>, FMA_TASK_FLOPS / 2)),
            copy_bytes: mean(span, || self.rate_of_copies(self.copy)),
        }
    }

    fn rate_of_copies(&self, copy: CopyOfPart) -> f64 {
        let n_bytes = 2 * self.from.iter().map(|part| size_of_val(&part[..])).sum::<usize>();
        rate(n_bytes, || {
            parallel_for(self.from.len(), &|part| copy(&mut lock(&self.to[part]), black_box(&self.from[part])));
        })
    }
}

impl Default for LimitProbe {
    fn default() -> LimitProbe {
        LimitProbe::new()
    }
}
