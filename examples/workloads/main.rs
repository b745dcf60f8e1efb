//! Runs one workload from formula-defined parameters and prints its times: `workloads NAME --repeat N --threads N
//! --device auto|cpu|cuda:N --json`.
//!
//! Prints the first call of a fresh function (trace, differentiate, compile, run), then five more steps whose loss is
//! compared with other programs, then the median of timed samples, each of as many steps as fill 2 ms.

#![allow(clippy::print_stdout, reason = "an example talks to its user")]

#[path = "../digits/device.rs"]
mod device;
mod formula;
mod models;
#[allow(dead_code, reason = "only the digit example starts from random parameters")]
#[path = "../digits/network.rs"]
mod network;

use std::time::Instant;

use lexopt::prelude::*;
use retape::Device;

struct Options {
    workload: String,
    repeat: usize,
    threads: usize,
    device: Device,
    json: bool,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = options()?;
    retape::set_n_threads(options.threads);
    let device = options.device;
    let mut work =
        models::make(&options.workload, device).ok_or_else(|| format!("no workload {}", options.workload))?;

    let start = Instant::now();
    work.step()?;
    device.sync()?;
    let cold_s = start.elapsed().as_secs_f64();
    let loss_first = work.loss()?;
    for _ in 0..5 {
        work.update()?;
        work.step()?;
    }
    let loss_after_5 = work.loss()?;

    let (warm_up, mut n) = (Instant::now(), 0_u32);
    while warm_up.elapsed().as_secs_f64() < 0.3 || n < 3 {
        work.step()?;
        device.sync()?;
        n += 1;
    }
    let inner = ((2e-3 * f64::from(n) / warm_up.elapsed().as_secs_f64()) as usize).max(1);
    let mut samples = vec![];
    for _ in 0..options.repeat.max(1) {
        let start = Instant::now();
        for _ in 0..inner {
            work.step()?;
        }
        device.sync()?;
        samples.push(start.elapsed().as_secs_f64() * 1e3 / inner as f64);
    }
    samples.sort_by(f64::total_cmp);
    let quantile = |q: f64| samples[((q * samples.len() as f64) as usize).min(samples.len() - 1)];
    let (median, p10, p90) = (quantile(0.5), quantile(0.1), quantile(0.9));
    let Options { workload, threads, .. } = &options;
    if options.json {
        println!(
            "{{\"framework\": \"retape\", \"workload\": \"{workload}\", \"variant\": null, \"threads\": {threads}, \
             \"device\": \"{device}\", \
             \"cold_s\": {cold_s:.5}, \"cold2_s\": null, \"warm_ms_median\": {median:.6}, \"warm_ms_p10\": {p10:.6}, \
             \"warm_ms_p90\": {p90:.6}, \"samples\": {}, \"inner\": {inner}, \"peak_rss_mb\": {}, \
             \"loss_first\": {loss_first}, \"loss_after_5\": {loss_after_5}, \"versions\": \"retape {}\"}}",
            samples.len(),
            peak_rss_mb().map_or_else(|| "null".to_owned(), |mb| format!("{mb:.1}")),
            env!("CARGO_PKG_VERSION"),
        );
    } else {
        println!("{workload} on {threads} threads, {device}");
        println!("  first call {:.2} ms, then {median:.4} ms ({p10:.4} to {p90:.4})", 1e3 * cold_s);
        println!("  loss {loss_first} at first, {loss_after_5} after five more steps");
    }
    Ok(())
}

/// The most memory the process had, where the system says so.
fn peak_rss_mb() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok().map(|kb| kb / 1024.0)
}

fn options() -> Result<Options, Box<dyn std::error::Error>> {
    let (threads, device) = (retape::n_threads(), Device::Cpu);
    let mut options = Options { workload: String::new(), repeat: 20, threads, device, json: false };
    let mut args = lexopt::Parser::from_env();
    while let Some(arg) = args.next()? {
        match arg {
            Long("repeat") => options.repeat = args.value()?.parse()?,
            Long("threads") => options.threads = args.value()?.parse()?,
            Long("device") => options.device = device::chosen(&args.value()?.string()?)?,
            Long("json") => options.json = true,
            Value(name) => options.workload = name.string()?,
            _ => return Err(arg.unexpected().into()),
        }
    }
    Ok(options)
}
