//! A concurrency soak: many threads call a few accelerated functions with many signatures, while others clear, resize,
//! switch off and look into their caches at random; some calls go through pinned entries.
//!
//! Every result is compared with a known answer, bit by bit: all numbers are small integers, so that every order of
//! operations gives the same. At the end the counters must add up exactly, and all memory must have come back.
//!
//! `cargo run --release --example soak -- --seconds 60 --threads 8`; it fails with a status other than zero.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example talks to its user")]

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use lexopt::prelude::*;
use retape::{Accelerated, Budget, Static, Tensor, accelerate};
use retape_runtime::{live_bytes, live_code_bytes};

/// The options of the command line.
struct Options {
    seconds: u64,
    threads: usize,
}

fn options() -> Result<Options, lexopt::Error> {
    let mut options = Options { seconds: 10, threads: 8 };
    let mut args = lexopt::Parser::from_env();
    while let Some(arg) = args.next()? {
        match arg {
            Long("seconds") => options.seconds = args.value()?.parse()?,
            Long("threads") => options.threads = args.value()?.parse::<usize>()?.clamp(1, 256),
            _ => return Err(arg.unexpected()),
        }
    }
    Ok(options)
}

/// Numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 33) as usize % n
    }
}

/// The failures; only the first few are kept.
#[derive(Default)]
struct Failures(Mutex<Vec<String>>);

impl Failures {
    fn add(&self, failure: String) {
        let mut failures = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if failures.len() < 20 {
            failures.push(failure);
        }
    }

    fn check(&self, is_right: bool, failure: impl FnOnce() -> String) {
        if !is_right {
            self.add(failure());
        }
    }
}

/// A function whose cache is soaked.
trait Subject: Sync {
    /// Calls it with arguments that `random` chooses, and compares the result with the known answer.
    fn call(&self, random: &mut Random, failures: &Failures);
    /// Has every op of it compiled for use outside a trace; such code stays for the life of the process.
    fn warm_up(&self, failures: &Failures);
    /// Does to its cache what may be done while others call.
    fn disturb(&self, random: &mut Random, failures: &Failures);
    /// Checks its counters when nobody calls any more.
    fn settle(&self, failures: &Failures);
}

/// The usual subject: `call` tells whether the result was right.
struct Function<F, Args, R, C> {
    name: &'static str,
    function: Accelerated<F, Args, R>,
    call: C,
    n_calls: AtomicU64,
    /// How often the function itself ran.
    n_traces: Arc<AtomicU64>,
}

impl<F, Args, R, C> Subject for Function<F, Args, R, C>
where
    F: retape::Function<Args, R> + Sync,
    R: retape::Tree,
    C: Fn(&Accelerated<F, Args, R>, &mut Random) -> retape::Result<bool> + Sync,
{
    fn call(&self, random: &mut Random, failures: &Failures) {
        // Before the call, so that the cache never counts more.
        self.n_calls.fetch_add(1, SeqCst);
        match (self.call)(&self.function, random) {
            Ok(is_right) => failures.check(is_right, || format!("{}: a wrong result", self.name)),
            Err(error) => failures.add(format!("{}: {error}", self.name)),
        }
    }

    fn warm_up(&self, failures: &Failures) {
        self.function.configure(|options| options.enabled = false);
        let mut random = Random(0);
        (0..1000).for_each(|_| self.call(&mut random, failures));
        self.function.configure(|options| options.enabled = true);
    }

    fn disturb(&self, random: &mut Random, failures: &Failures) {
        let function = &self.function;
        match random.below(12) {
            0 => function.clear_cache(),
            1..=3 => function.configure(|options| options.capacity = 1 + random.below(MAX_ENTRIES)),
            4 => function
                .configure(|options| options.byte_budget = Budget { host: Some(random.below(100_000)), device: None }),
            5 => function.configure(|options| options.byte_budget = Budget::default()),
            6 => function.configure(|options| options.enabled = false),
            7 | 8 => function.configure(|options| options.enabled = true),
            _ => {
                let stats = function.stats();
                let n_calls = self.n_calls.load(SeqCst);
                let is_sane = stats.hits + stats.misses <= n_calls && stats.entries.len() <= 50;
                failures.check(is_sane, || format!("{}: in {n_calls} calls {stats}", self.name));
                failures.check(function.explain().len() <= 256, || format!("{}: a log without end", self.name));
            }
        }
    }

    fn settle(&self, failures: &Failures) {
        let name = self.name;
        let stats = self.function.stats();
        // A sampled check of a hit for staleness runs the function once more.
        let n_checks = stats.checks.stale_checks;
        let (calls, traces) = (self.n_calls.load(SeqCst), self.n_traces.load(SeqCst).wrapping_sub(n_checks));
        println!(
            "{name:>8}: {calls} calls, {} hits, {} misses, {} waits, {} un-accelerated",
            stats.hits,
            stats.misses,
            stats.waits,
            traces.wrapping_sub(stats.misses)
        );
        println!(
            "          {} evictions, {} not kept, {} clears, {n_checks} checks for staleness",
            stats.evictions, stats.rejected, stats.clears
        );
        // A call is a hit, or it ran the function: to trace it for a miss, or because the cache was switched off.
        failures.check(stats.hits + traces == calls && stats.misses <= traces, || {
            format!("{name}: {} hits, {} misses and {traces} traces in {calls} calls", stats.hits, stats.misses)
        });
        self.function.clear_cache();
        self.function.configure(|options| options.capacity = MAX_ENTRIES);
        failures.check(self.function.stats().entries.is_empty(), || format!("{name}: entries after a clear"));
    }
}

/// Capacities are chosen up to this; there are more signatures than that.
const MAX_ENTRIES: usize = 8;

/// Whether the elements of a tensor are these.
fn is(tensor: &Tensor, expected: impl Iterator<Item = f32>) -> retape::Result<bool> {
    Ok(tensor.to_vec::<f32>()?.into_iter().eq(expected))
}

/// Squares and their sum, for vectors of many lengths.
fn squares() -> impl Subject {
    let n_traces = Arc::new(AtomicU64::new(0));
    let traces = Arc::clone(&n_traces);
    let function = accelerate(move |x: &Tensor| {
        traces.fetch_add(1, SeqCst);
        let y = x.square();
        (y.sum(..), y)
    });
    let call = |function: &Accelerated<_, (Tensor,), (Tensor, Tensor)>, random: &mut Random| {
        let (n, value) = (1 + random.below(12), random.below(9) as f32);
        let x = Tensor::full([n], value);
        let is_right = |(sum, y): (Tensor, Tensor)| {
            Ok(sum.item::<f32>()? == n as f32 * value * value && is(&y, (0..n).map(|_| value * value))?)
        };
        if random.below(8) > 0 {
            return is_right(function.call(&x)?);
        }
        // To pin is to call, for the counters; calls of what is pinned are not counted, and work whatever happens.
        let pinned = function.pin(&x)?;
        (0..random.below(100)).try_fold(true, |is_all, _| Ok(is_all && is_right(pinned.call(&x)?)?))
    };
    Function { name: "squares", function, call, n_calls: AtomicU64::new(0), n_traces }
}

/// A loss and its gradient, for matrices of several sizes.
fn slope() -> impl Subject {
    let n_traces = Arc::new(AtomicU64::new(0));
    let traces = Arc::clone(&n_traces);
    let function = accelerate(move |w: &Tensor, x: &Tensor| {
        traces.fetch_add(1, SeqCst);
        let loss = x.matmul(w).square().sum(..);
        let gradient = loss.grad(w);
        (loss, gradient)
    });
    let call = |function: &Accelerated<_, (Tensor, Tensor), (Tensor, Tensor)>, random: &mut Random| {
        let (rows, inner, columns) = (1 + random.below(3), 1 + random.below(4), 1 + random.below(3));
        let (w, x) = (random.below(4) as f32, random.below(4) as f32);
        let (loss, gradient) = function.call(Tensor::full([inner, columns], w), Tensor::full([rows, inner], x))?;
        let product = inner as f32 * w * x;
        let each = 2.0 * rows as f32 * x * product;
        let is_loss = loss.item::<f32>()? == (rows * columns) as f32 * product * product;
        Ok(is_loss && is(&gradient, (0..inner * columns).map(|_| each))?)
    };
    Function { name: "slope", function, call, n_calls: AtomicU64::new(0), n_traces }
}

/// A power by a static exponent.
fn powers() -> impl Subject {
    let n_traces = Arc::new(AtomicU64::new(0));
    let traces = Arc::clone(&n_traces);
    let function = accelerate(move |x: &Tensor, exponent: &Static<u32>| {
        traces.fetch_add(1, SeqCst);
        (1..**exponent).fold(x.clone(), |product, _| &product * x)
    });
    let call = |function: &Accelerated<_, (Tensor, Static<u32>), Tensor>, random: &mut Random| {
        let (n, base, exponent) = (1 + random.below(2), random.below(4) as f32, 1 + random.below(6) as u32);
        let y = function.call(Tensor::full([n], base), Static(exponent))?;
        is(&y, (0..n).map(|_| base.powi(exponent as i32)))
    };
    Function { name: "powers", function, call, n_calls: AtomicU64::new(0), n_traces }
}

/// One signature only: the hits that threads share.
fn shared() -> impl Subject {
    let n_traces = Arc::new(AtomicU64::new(0));
    let traces = Arc::clone(&n_traces);
    let function = accelerate(move |x: &Tensor, y: &Tensor| {
        traces.fetch_add(1, SeqCst);
        (x + y, x * y)
    });
    let call = |function: &Accelerated<_, (Tensor, Tensor), (Tensor, Tensor)>, random: &mut Random| {
        let (x, y) = (random.below(1000) as f32, random.below(1000) as f32);
        let (sum, product) = match random.below(50) {
            0 => function.pin(x, y)?.call(x, y)?,
            _ => function.call(x, y)?,
        };
        Ok(sum.item::<f32>()? == x + y && product.item::<f32>()? == x * y)
    };
    Function { name: "shared", function, call, n_calls: AtomicU64::new(0), n_traces }
}

/// A function that is wrapped anew for each call, so that machine code is shared and freed all the time.
struct Recreated;

impl Subject for Recreated {
    fn call(&self, random: &mut Random, failures: &Failures) {
        let (n, value) = (1 + random.below(3), random.below(100) as f32);
        let function = accelerate(|x: &Tensor| x * 3.0 + 1.0);
        let is_right = (0..2).all(|_| {
            let y = function.call(Tensor::full([n], value));
            y.and_then(|y| is(&y, (0..n).map(|_| 3.0 * value + 1.0))).unwrap_or(false)
        });
        let stats = function.stats();
        failures.check(is_right && (stats.hits, stats.misses) == (1, 1), || format!("re-created: {stats}"));
    }

    fn warm_up(&self, _: &Failures) {}

    fn disturb(&self, _: &mut Random, _: &Failures) {}

    fn settle(&self, _: &Failures) {}
}

/// Runs `work` on `n` threads, each with its own random numbers, until `is_over`.
fn spawn_all<'s>(
    scope: &'s thread::Scope<'s, '_>,
    n: usize,
    seed: u64,
    is_over: &'s AtomicBool,
    work: &'s (dyn Fn(&mut Random) + Sync),
) {
    for thread in 0..n {
        scope.spawn(move || {
            let mut random = Random(seed + thread as u64);
            while !is_over.load(SeqCst) {
                work(&mut random);
            }
        });
    }
}

/// Calls and disturbs all subjects for some time.
fn soak(subjects: &[Box<dyn Subject>], options: &Options, failures: &Failures) {
    let is_over = AtomicBool::new(false);
    let call = |random: &mut Random| {
        // Mostly the same few: hits and misses both come often.
        let subject = &subjects[random.below(subjects.len() + 20).saturating_sub(20)];
        (0..random.below(50)).for_each(|_| subject.call(random, failures));
        let any = random.below(subjects.len());
        subjects[any].call(random, failures);
    };
    let disturb = |random: &mut Random| {
        subjects[random.below(subjects.len())].disturb(random, failures);
        thread::sleep(Duration::from_micros(random.below(3000) as u64));
    };
    thread::scope(|scope| {
        spawn_all(scope, options.threads, 1, &is_over, &call);
        spawn_all(scope, 2, 1000, &is_over, &disturb);
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(options.seconds) && failures.0.lock().is_ok_and(|f| f.is_empty()) {
            thread::sleep(Duration::from_millis(20));
        }
        is_over.store(true, SeqCst);
    });
    subjects.iter().for_each(|subject| subject.settle(failures));
}

fn subjects() -> Vec<Box<dyn Subject>> {
    vec![Box::new(shared()), Box::new(squares()), Box::new(slope()), Box::new(powers()), Box::new(Recreated)]
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(usage) => {
            eprintln!("{usage}");
            return ExitCode::FAILURE;
        }
    };
    let failures = Failures::default();
    subjects().iter().for_each(|subject| subject.warm_up(&failures));
    let (bytes, code) = (live_bytes(), live_code_bytes());
    soak(&subjects(), &options, &failures);
    let (bytes_after, code_after) = (live_bytes(), live_code_bytes());
    println!("memory  : {bytes_after} bytes of buffers and {code_after} of code are left, {bytes} and {code} before");
    failures.check(bytes_after <= bytes, || format!("{} bytes of buffers are leaked", bytes_after - bytes));
    failures.check(code_after <= code, || format!("{} bytes of code are leaked", code_after - code));
    let failures = failures.0.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    failures.iter().for_each(|failure| eprintln!("FAILED: {failure}"));
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
