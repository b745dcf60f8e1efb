//! The part of retape in the measurements on a GPU, which `tests/gpu/bench.py` runs beside other programs.
//!
//! `gpu_bench serve` reads lines and answers each by a line of JSON: `prepare NAME` makes a workload and does six steps,
//! `time SECONDS` queues steps one behind the other for about so long, `latency SECONDS` waits for each, `drop` forgets
//! it. `gpu_bench device` describes the device, `gpu_bench expected NAME` says what the loss should be by the processor,
//! `gpu_bench check NAME` runs a check, and `gpu_bench cold` the first step of training in a new process. With `--quick`
//! everything is tiny.

#![allow(clippy::print_stdout, reason = "it answers whoever started it")]

mod checks;
#[allow(dead_code, reason = "a module of another program, of which not everything is used")]
#[path = "../../../examples/workloads/formula.rs"]
mod formula;
#[allow(dead_code, reason = "a module of another program, of which not everything is used")]
#[path = "../../../examples/workloads/models.rs"]
mod models;
#[allow(dead_code, reason = "a module of another program, of which not everything is used")]
#[path = "../../../examples/digits/network.rs"]
mod network;
mod workloads;

use std::io::BufRead;
use std::time::Instant;

use models::Work;
use retape::Device;
use retape_runtime::Gpu;
use serde_json::{Value, json};
use workloads::Scale;

/// Steps of one measurement at most.
const MAX_STEPS: u64 = 200_000;

type AnyError = Box<dyn std::error::Error>;

fn main() -> Result<(), AnyError> {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let is_quick = args.iter().any(|arg| arg == "--quick");
    args.retain(|arg| arg != "--quick");
    let (device, scale) = (Device::cuda(0)?, if is_quick { Scale::Tiny } else { Scale::Full });
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["serve"] => serve(device, scale)?,
        ["device"] => println!("{}", described()?),
        ["cold"] => println!("{}", cold(device, scale)?),
        ["expected", name] => println!("{}", expected(name, scale, device)?),
        ["check", name] => println!("{}", checks::run(name, is_quick, device)?),
        _ => return Err("serve, device, cold, expected NAME, or check NAME".into()),
    }
    Ok(())
}

fn described() -> Result<Value, AnyError> {
    let gpu = Gpu::open(0)?;
    let (major, minor) = gpu.capability();
    Ok(json!({
        "name": gpu.name(),
        "capability": format!("{major}.{minor}"),
        "driver_supports_cuda": gpu.driver_version(),
        "bytes": gpu.total_bytes(),
        "multiprocessors": gpu.n_multiprocessors(),
    }))
}

/// The first step of a process, with what the driver compiled for it.
fn cold(device: Device, scale: Scale) -> Result<Value, AnyError> {
    let mut work = workloads::make("digits_train", scale, device)?;
    let cold_s = timed(device, || work.step())?;
    loss_of(work.as_mut())?;
    let code = Gpu::open(0)?.code_stats();
    Ok(json!({ "cold_s": cold_s, "compiled": code.compiled, "from_disk": code.from_disk }))
}

/// The loss after six steps by the processor; where a processor would take long for the workload, of a smaller one, with
/// what the device makes of that.
fn expected(name: &str, full: Scale, device: Device) -> Result<Value, AnyError> {
    let scale = full.affordable(name);
    let run = |device| -> Result<f64, AnyError> {
        let mut work = workloads::make(name, scale, device)?;
        work.step()?;
        if workloads::learns(name) {
            five_more(work.as_mut())?;
        }
        loss_of(work.as_mut())
    };
    let mut answer = json!({ "size": scale.name(), "loss": run(Device::Cpu)? });
    if scale != full {
        answer["loss_on_device"] = json!(run(device)?);
    }
    Ok(answer)
}

fn serve(device: Device, scale: Scale) -> Result<(), AnyError> {
    let mut work = None;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = match (&words[..], &mut work) {
            (["drop"], _) => {
                work = None;
                Gpu::open(0)?.trim().map(|()| json!({})).map_err(AnyError::from)
            }
            (["prepare", name], _) => {
                work = None;
                prepare(name, scale, device).map(|(made, answer)| {
                    work = Some(made);
                    answer
                })
            }
            (["time", seconds], Some(work)) => throughput(work.as_mut(), device, seconds.parse()?),
            (["latency", seconds], Some(work)) => latency(work.as_mut(), device, seconds.parse()?),
            _ => Err(format!("`{line}` is not known, or nothing is prepared").into()),
        };
        println!("{}", answer.unwrap_or_else(|error| json!({ "failed": error.to_string() })));
    }
    Ok(())
}

/// Seconds until the device has done some work.
fn timed(device: Device, work: impl FnOnce() -> retape::Result<()>) -> retape::Result<f64> {
    let start = Instant::now();
    work()?;
    device.sync()?;
    Ok(start.elapsed().as_secs_f64())
}

/// The loss of the last step, which must be a number.
fn loss_of(work: &mut dyn Work) -> Result<f64, AnyError> {
    let loss = work.loss()?;
    if loss.is_finite() { Ok(loss) } else { Err(format!("the loss is {loss}").into()) }
}

fn five_more(work: &mut dyn Work) -> Result<(), AnyError> {
    for _ in 0..5 {
        work.update()?;
        work.step()?;
    }
    Ok(())
}

fn prepare(name: &str, scale: Scale, device: Device) -> Result<(Box<dyn Work>, Value), AnyError> {
    let mut work = workloads::make(name, scale, device)?;
    device.sync()?;
    let cold_s = timed(device, || work.step())?;
    let loss_first = loss_of(work.as_mut())?;
    five_more(work.as_mut())?;
    let loss_after_5 = loss_of(work.as_mut())?;
    Ok((work, json!({ "cold_s": cold_s, "loss_first": loss_first, "loss_after_5": loss_after_5 })))
}

/// Steps that are queued one behind the other, until they take long enough.
fn throughput(work: &mut dyn Work, device: Device, seconds: f64) -> Result<Value, AnyError> {
    let mut n = 1_u64;
    loop {
        let took = timed(device, || (0..n).try_for_each(|_| work.step()))?;
        if took >= seconds || n == MAX_STEPS {
            return Ok(json!({ "ms": 1e3 * took / n as f64, "steps": n }));
        }
        let more = (1.1 * seconds / took).clamp(1.5, 10.0);
        n = ((n as f64 * more).ceil() as u64).min(MAX_STEPS);
    }
}

/// The median of steps each of which is waited for.
fn latency(work: &mut dyn Work, device: Device, seconds: f64) -> Result<Value, AnyError> {
    let start = Instant::now();
    let mut samples = vec![];
    while samples.len() < 3 || (start.elapsed().as_secs_f64() < seconds && samples.len() < 1000) {
        samples.push(1e3 * timed(device, || work.step())?);
    }
    samples.sort_by(f64::total_cmp);
    Ok(json!({ "ms": samples[samples.len() / 2], "steps": samples.len() }))
}
