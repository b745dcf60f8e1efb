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
        *LIMITS.get_or_init(|| MachineLimits {
            flops: flops(fma_task::<f32>, FMA_TASK_FLOPS),
            flops_f64: flops(fma_task::<f64>, FMA_TASK_FLOPS / 2),
            copy_bytes: copy_bytes(),
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

/// The most work per second that any round of a body does; the body says how much it did.
fn best(mut body: impl FnMut() -> usize) -> f64 {
    let begin = Instant::now();
    let rate = |_| {
        let start = Instant::now();
        let work = body();
        work as f64 / start.elapsed().as_secs_f64().max(1e-9)
    };
    (0_u64..).take_while(|&round| round == 0 || begin.elapsed() < MEASURING).map(rate).fold(0.0, f64::max)
}

fn flops(task: fn(), flops: usize) -> f64 {
    // More than threads, so that a thread that comes late costs little.
    let n_tasks = 8 * n_threads();
    best(|| {
        parallel_for(n_tasks, &|_| task());
        n_tasks * flops
    })
}

/// A copy of a part of a buffer.
type CopyOfPart = fn(&mut [f32], &[f32]);

fn copy_bytes() -> f64 {
    /// Elements of a task; together they exceed the caches.
    const PART: usize = 1 << 16;
    const PARTS: usize = 192;
    let from: Vec<Vec<f32>> = (0..PARTS).map(|part| vec![part as f32 + 1.0; PART]).collect();
    let to: Vec<Mutex<Vec<f32>>> = from.iter().map(|part| Mutex::new(part.clone())).collect();
    // An ordinary store reads the line that it writes, which is no part of what a kernel has to move.
    let copies: [CopyOfPart; 2] =
        [|to, from| to.copy_from_slice(from), |to, from| stream_runs([(to, from)].into_iter())];
    let rates = copies.map(|copy| {
        best(|| {
            parallel_for(PARTS, &|part| copy(&mut lock(&to[part]), black_box(&from[part])));
            2 * PARTS * PART * size_of::<f32>()
        })
    });
    rates[0].max(rates[1])
}
