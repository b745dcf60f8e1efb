//! burn on the processor, by its backend `flex`: `peer-burn WORKLOAD --repeat N --max-seconds S` prints the line of JSON
//! that `peers.py` prints for its peers. It computes on as many threads as it is given processors.

mod formula;
mod models;
mod parameters;
mod vision;

use std::error::Error;
use std::thread::available_parallelism;
use std::time::Instant;

use burn::tensor::Device;

struct Options {
    workload: String,
    repeat: usize,
    max_seconds: f64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let Options { workload, repeat, max_seconds } = options()?;
    let threads = available_parallelism()?;
    let device = Device::flex();
    let mut work = models::make(&workload, &device).ok_or_else(|| format!("no workload {workload}"))?;

    let start = Instant::now();
    work.step();
    let cold_s = start.elapsed().as_secs_f64();
    let loss_first = work.loss();
    for _ in 0..5 {
        work.update();
        work.step();
    }
    let loss_after_5 = work.loss();

    let (warm_up, mut n) = (Instant::now(), 0_u32);
    while warm_up.elapsed().as_secs_f64() < 0.3 || n < 3 {
        work.step();
        n += 1;
    }
    let inner = ((2e-3 * f64::from(n) / warm_up.elapsed().as_secs_f64()) as usize).max(1);
    let (begin, mut samples) = (Instant::now(), vec![]);
    while samples.len() < repeat.max(1) && (samples.len() < 7 || begin.elapsed().as_secs_f64() < max_seconds) {
        let start = Instant::now();
        for _ in 0..inner {
            work.step();
        }
        samples.push(start.elapsed().as_secs_f64() * 1e3 / inner as f64);
    }
    samples.sort_by(f64::total_cmp);
    let quantile = |q: f64| samples[((q * samples.len() as f64) as usize).min(samples.len() - 1)];
    println!(
        "{{\"framework\": \"burn\", \"workload\": \"{workload}\", \"variant\": null, \"threads\": {threads}, \
         \"cold_s\": {cold_s:.5}, \"cold2_s\": null, \"warm_ms_median\": {:.6}, \"warm_ms_p10\": {:.6}, \
         \"warm_ms_p90\": {:.6}, \"samples\": {}, \"inner\": {inner}, \"peak_rss_mb\": {:.1}, \
         \"loss_first\": {loss_first}, \"loss_after_5\": {loss_after_5}, \"versions\": \"burn 0.22.1, flex\"}}",
        quantile(0.5),
        quantile(0.1),
        quantile(0.9),
        samples.len(),
        peak_rss_mb()?,
    );
    Ok(())
}

/// The most memory that the process had.
fn peak_rss_mb() -> Result<f64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("the system does not say the peak")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse::<f64>()? / 1024.0)
}

fn options() -> Result<Options, Box<dyn Error>> {
    let mut options = Options { workload: String::new(), repeat: 20, max_seconds: f64::INFINITY };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} has no value"));
        match arg.as_str() {
            "--repeat" => options.repeat = value()?.parse()?,
            "--max-seconds" => options.max_seconds = value()?.parse()?,
            _ => options.workload = arg,
        }
    }
    Ok(options)
}
