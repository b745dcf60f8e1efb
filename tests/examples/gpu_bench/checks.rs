//! Checks that are too long for tests on an interpreter: equal bits of long trainings, threads, memory that runs out,
//! and memory that leaks.

use std::time::Instant;

use retape::nn::Dense;
use retape::{Device, Tensor, Tree, accelerate, map, zip_map};
use retape_runtime::Gpu;
use serde_json::{Value, json};

use crate::AnyError;
use crate::formula::{Parameters, labels, tensor};
use crate::network::Training;

/// Runs a check; the answer says what was seen.
///
/// # Errors
///
/// Fails if what is checked is not so.
pub(crate) fn run(name: &str, is_quick: bool, device: Device) -> Result<Value, AnyError> {
    let size = |full: usize, tiny: usize| if is_quick { tiny } else { full };
    let start = Instant::now();
    let mut seen = match name {
        "twice" => twice(size(200, 2), size(32, 1), device)?,
        "threads" => threads(8, size(1000, 5), device)?,
        "memory" => memory(is_quick.then_some(4 << 20), device)?,
        // Code of a device comes and goes in large parts.
        "leaks" => leaks(size(10_000, 50), size(100, 2), size(16 << 20, 0), device)?,
        _ => return Err(format!("no check {name}: twice, threads, memory, leaks").into()),
    };
    seen["seconds"] = json!(start.elapsed().as_secs_f64());
    Ok(seen)
}

/// The bits of all tensors of a tree.
fn bits(tree: &impl Tree) -> Result<Vec<u32>, AnyError> {
    let (mut bits, mut failed) = (vec![], None);
    map(tree, |leaf| {
        match leaf.to_vec::<f32>() {
            Ok(values) => bits.extend(values.into_iter().map(f32::to_bits)),
            // Counters are no floats.
            Err(_) => match leaf.to_vec::<i64>() {
                Ok(values) => bits.extend(values.into_iter().map(|x| x as u32)),
                Err(error) => failed = Some(error),
            },
        }
        leaf.clone()
    });
    failed.map_or(Ok(bits), |error| Err(error.into()))
}

fn ensure(holds: bool, otherwise: impl Into<String>) -> Result<(), AnyError> {
    if holds { Ok(()) } else { Err(otherwise.into().into()) }
}

/// Two trainings from one start, the second with code that was made anew, have the same bits after all steps.
fn twice(n_steps: usize, batch: usize, device: Device) -> Result<Value, AnyError> {
    let step = accelerate(|t: &Training, x: &Tensor, digits: &Tensor, angles: &Tensor, rate: &Tensor| {
        t.step(x, digits, angles, rate)
    });
    let digits = labels(batch).to(device);
    let train = || -> Result<(Vec<u32>, f32), AnyError> {
        let mut training = map(&Training::new(7), |leaf| leaf.to(device));
        let mut loss = Tensor::from(f32::NAN);
        for n in 0..n_steps {
            let stream = 1000 + 2 * n as u32;
            let x = tensor(&[batch, 28, 28, 1], stream, 0.5, 0.5).to(device);
            let angles = tensor(&[batch, 1], stream + 1, 1.0, 0.0).to(device);
            (loss, training) = step.call(training, &x, &digits, &angles, 1e-3_f32)?;
        }
        Ok((bits(&training)?, loss.item()?))
    };
    let (first, loss) = train()?;
    ensure(loss.is_finite(), format!("the loss is {loss}"))?;
    step.clear_cache();
    let (second, _) = train()?;
    let n_different = first.iter().zip(&second).filter(|(a, b)| a != b).count();
    ensure(n_different == 0, format!("{n_different} of {} values have other bits the second time", first.len()))?;
    Ok(json!({ "steps": n_steps, "values": first.len(), "loss": loss }))
}

/// A small network.
fn layers() -> Vec<Dense> {
    let p = &mut Parameters::default();
    [(64, 48), (48, 10)].map(|(i, o)| Dense { weight: p.weight(&[i, o], i), bias: p.bias(o) }).to_vec()
}

fn loss_of(layers: &[Dense], x: &Tensor) -> Tensor {
    layers.iter().fold(x.clone(), |x, layer| layer.apply(&x).tanh()).square().mean(..)
}

/// Threads that call one function at once get the bits of one that calls alone.
fn threads(n_threads: usize, n_calls: usize, device: Device) -> Result<Value, AnyError> {
    let step = accelerate(|layers: &Vec<Dense>, x: &Tensor| {
        let loss = loss_of(layers, x);
        let gradient = loss.grad(layers);
        (loss, gradient)
    });
    let layers = map(&layers(), |leaf| leaf.to(device));
    let inputs: Vec<Tensor> = (0..n_threads as u32).map(|k| tensor(&[32, 64], 100 + k, 1.0, 0.0).to(device)).collect();
    let expected = inputs.iter().map(|x| bits(&step.call(&layers, x)?)).collect::<Result<Vec<_>, _>>()?;
    let call = |x: &Tensor, expected: &[u32]| -> Result<(), String> {
        for n in 0..n_calls {
            let found = step.call(&layers, x).map_err(|e| e.to_string())?;
            // Some results are read, others are dropped while they are computed.
            if n % 8 == 0 && bits(&found).map_err(|e| e.to_string())? != expected {
                return Err(format!("call {n} has other bits"));
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let call = &call;
        let running: Vec<_> =
            inputs.iter().zip(&expected).map(|(x, expected)| scope.spawn(move || call(x, expected))).collect();
        running.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked".to_owned())?)
    })?;
    let stats = step.stats();
    ensure(stats.misses == 1, format!("{} misses", stats.misses))?;
    Ok(json!({ "threads": n_threads, "calls": stats.hits }))
}

/// More memory than there is, or than a limit: an error at once or after filling the device, after which everything goes
/// on.
fn memory(limit: Option<usize>, device: Device) -> Result<Value, AnyError> {
    let gpu = Gpu::open(0)?;
    gpu.set_memory_limit(limit.unwrap_or(usize::MAX));
    let total = limit.unwrap_or(gpu.total_bytes());
    let outer = accelerate(|x: &Tensor, y: &Tensor| x.outer(y));
    let ones = |n: usize| Tensor::ones([n]).to(device);
    let small = (ones(100), ones(99));
    let expected = bits(&outer.call(&small.0, &small.1)?)?;
    let side = (total as f64 / 2.0).sqrt() as usize;
    let refused = match outer.call(ones(side), ones(side)) {
        Ok(_) => return Err(format!("{side} by {side} floats fit into {total} bytes").into()),
        Err(error) => error.to_string(),
    };
    // A sixteenth of the memory each.
    let (mut held, x) = (vec![], ones((total as f64 / 64.0).sqrt() as usize));
    let refused_later = loop {
        match outer.call(&x, &x) {
            Ok(tensor) => held.push(tensor),
            Err(error) => break error.to_string(),
        }
        ensure(held.len() < 100, "100 parts of a sixteenth fit")?;
    };
    let n_held = held.len();
    ensure(n_held >= 8, format!("only {n_held} parts of a sixteenth fit"))?;
    drop(held);
    let found = bits(&outer.call(&small.0, &small.1)?)?;
    ensure(found == expected, "other bits after memory ran out")?;
    ensure(outer.call(&x, &x).is_ok(), "memory that was dropped is not found again")?;
    Ok(json!({ "refused": refused, "parts_that_fit": n_held, "refused_later": refused_later }))
}

/// One step of gradient descent.
fn descend(layers: &Vec<Dense>, x: &Tensor, rate: &Tensor) -> (Tensor, Vec<Dense>) {
    let loss = loss_of(layers, x);
    let gradient = loss.grad(layers);
    (loss, zip_map([layers, &gradient], |[p, g]| p - rate * g))
}

/// The memory that this process holds while nothing of a check is alive.
struct Held {
    /// Bytes of the pool that buffers have.
    live: usize,
    /// Bytes of the device that nobody has, by the driver's count: also code and graphs are missing from it.
    free: usize,
    host: usize,
}

impl Held {
    fn now(gpu: &Gpu) -> Result<Held, AnyError> {
        gpu.trim()?;
        Ok(Held { live: gpu.memory().live_bytes, free: gpu.free_bytes()?, host: resident_bytes() })
    }
}

/// Memory of the device and of the process is what it was before, after many calls of one entry, and after many entries
/// that were evicted, cleared and made again.
fn leaks(n_calls: usize, n_rounds: usize, allowed: usize, device: Device) -> Result<Value, AnyError> {
    let gpu = Gpu::open(0)?;
    same_entry(n_calls / 10, device)?;
    new_entries(n_rounds / 4 + 1, device)?;
    let before = Held::now(&gpu)?;
    let n_made = same_entry(n_calls, device)? + new_entries(n_rounds, device)?;
    let after = Held::now(&gpu)?;
    ensure(after.live == before.live, format!("{} bytes live, {} before", after.live, before.live))?;
    let lost = before.free.saturating_sub(after.free);
    ensure(lost <= allowed, format!("{lost} bytes less of the device are free than before"))?;
    let grown = after.host.saturating_sub(before.host);
    ensure(grown <= 64 << 20, format!("the process has grown by {grown} bytes"))?;
    Ok(json!({
        "calls": n_calls, "entries_made": n_made, "device_bytes_lost": lost, "device_bytes_free": after.free,
        "host_bytes_grown": grown,
    }))
}

/// Calls one entry; returns how many were made.
fn same_entry(n_calls: usize, device: Device) -> Result<u64, AnyError> {
    let step = accelerate(descend);
    let x = tensor(&[32, 64], 100, 1.0, 0.0).to(device);
    let mut layers = map(&layers(), |leaf| leaf.to(device));
    for n in 0..n_calls {
        let loss;
        (loss, layers) = step.call(layers, &x, 1e-2_f32)?;
        if n % 100 == 0 {
            loss.item::<f32>()?;
        }
    }
    Ok(step.stats().misses)
}

/// Calls with one shape after the other, more than the cache holds, so that each call makes an entry; returns how many.
fn new_entries(n_rounds: usize, device: Device) -> Result<u64, AnyError> {
    let step = accelerate(descend);
    step.configure(|options| options.capacity = 3);
    let layers = map(&layers(), |leaf| leaf.to(device));
    for round in 0..n_rounds {
        for batch in [1, 2, 3, 5, 8] {
            let x = tensor(&[batch, 64], 100, 1.0, 0.0).to(device);
            let (loss, _) = step.call(&layers, &x, 1e-2_f32)?;
            // Some results are read, others outlive their entry or are dropped while they are computed.
            if round % 2 == 0 {
                loss.item::<f32>()?;
            }
        }
        if round % 3 == 0 {
            step.clear_cache();
        }
    }
    let stats = step.stats();
    ensure(stats.misses == 5 * n_rounds as u64, format!("{} misses", stats.misses))?;
    Ok(stats.misses)
}

/// Memory of this process, where the system says so.
fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|text| text.split_whitespace().nth(1)?.parse::<usize>().ok());
    pages.unwrap_or(0) * 4096
}
