#!/usr/bin/env python3
"""Checks and measures retape on a GPU, beside PyTorch and JAX where they are installed.

    bench.py --pack FOLDER [--out FILE] [--quick] [--cpu-peers] [--rounds N] [--seconds S] [--only TEXT,..]
             [--skip NAME,..] [--budget SECONDS] [--patience SECONDS]

Every program runs in a process of its own and is asked in turn for a measurement, so that what disturbs one round
disturbs all of it; reported are medians over rounds, and medians of the ratios within rounds. Every loss is compared with
that of the processor, and with those of the peers. What a peer cannot do, or takes too long for, is left out with its
reason; what retape cannot do is a failure.

FILE gets every figure after every workload, and FILE with the ending `.txt` the table. Figures that FILE already has
stay there if they are of the same device and commit, so that a run may be done in parts: --only takes parts of the names
of workloads and of `check_twice`, `check_threads`, `check_memory`, `check_leaks` and `cold`. Workloads come in the order
of their importance; those that the budget has no time for are named in FILE as well.
"""
import argparse
import datetime
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

from programs import Clock, Program, run
from report import PEERS, compare, failures, failures_of, goals, table

HERE = os.path.dirname(os.path.abspath(__file__))
CHECKS = ["twice", "threads", "memory", "leaks"]
WORKLOADS = [
    # What goals are set for.
    "digits_train", "copy", "elementwise", "elementwise_fast", "negate", "matmul_bf16_4096", "matmul_f32_4096",
    # Models, and the cost of launches.
    "mlp", "digits_predict", "launch_1", "launch_10", "launch_100", "transformer_bf16", "transformer_f32",
    # Other sizes; those that take the same numbers one after the other.
    "matmul_tf32_4096", "matmul_bf16_1024", "matmul_f32_1024", "matmul_tf32_1024",
    "matmul_bf16_8192", "matmul_f32_8192", "matmul_tf32_8192",
]


def now():
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def work_of(workload, quick):
    """Bytes that are moved at least, or operations, of a step."""
    if workload in ("copy", "negate", "elementwise", "elementwise_fast"):
        # Each element is read, and its copy, its negative or its gradient written.
        return {"bytes_per_s": 8 * (1 << 12 if quick else 64 << 20)}
    product = re.fullmatch(r"matmul_[a-z0-9]+_(\d+)", workload)
    if product:
        return {"operations_per_s": 2 * (int(product[1]) // (128 if quick else 1)) ** 3}
    return {}


def prepared(workload, programs, clock):
    """What each program says about the first steps."""
    found = {}
    for program in programs:
        reason = program.wake(clock.wait(2))
        found[program.name] = {"failed": reason} if reason else program.ask(f"prepare {workload}", clock.wait())
        if "failed" in found[program.name]:
            # Neither memory nor a broken device is to be carried on.
            program.end()
    return found


def timed(programs, found, options, clock):
    """Adds the times of all programs that are prepared; a failure ends the measurement of its program only."""
    times = {program.name: [] for program in programs if "failed" not in found[program.name]}
    allowed = max(10.0, clock.left() / 4)
    end = clock.left() - allowed
    for n in range(options.rounds):
        # The first rounds are needed; the others make the medians better.
        if n >= 2 and clock.left() < end:
            break
        for program in programs:
            own = found[program.name]
            if "failed" not in own:
                answer = program.ask(f"time {options.seconds}", clock.wait())
                own.update({"failed": answer["failed"]} if "failed" in answer else {})
                times[program.name].append(answer.get("ms"))
    for program in programs:
        own = found[program.name]
        if "failed" not in own:
            own["ms"], own["ms_rounds"] = statistics.median(times[program.name]), times[program.name]
            own["latency_ms"] = program.ask(f"latency {options.seconds}", clock.wait()).get("ms")
    ours = found["retape"].get("ms_rounds")
    for name, own in found.items():
        if ours and name != "retape" and "ms" in own:
            own["times_of_retape"] = statistics.median(b / a for a, b in zip(ours, own["ms_rounds"]))


def measured(workload, programs, options, clock):
    """The figures of one workload."""
    expected = run([*options.program, "expected", workload], clock.wait())
    found = {"date": now(), "expected": expected, "programs": prepared(workload, programs, clock)}
    timed(programs, found["programs"], options, clock)
    for unit, amount in work_of(workload, options.quick).items():
        for own in found["programs"].values():
            if "ms" in own:
                own[unit] = amount / own["ms"] * 1e3
    compare(workload, found)
    for program in programs:
        if "failed" in found["programs"][program.name] or "failed" in program.ask("drop", clock.wait()):
            program.end()
    return found


def cold(options, clock):
    """The first training step of a process, without and with compiled code on disk."""
    samples = {"empty": [], "warm": []}
    for n in range(1 if options.quick else 5):
        if n >= 1 and clock.is_up():
            break
        with tempfile.TemporaryDirectory() as folder:
            for kind, seen in samples.items():
                # The driver's own cache would make the first as warm as the second.
                env = dict(os.environ, RETAPE_CUBIN_CACHE=folder, CUDA_CACHE_DISABLE="1")
                seen.append(run([*options.program, "cold"], clock.wait(), env))
    found = {}
    for kind, seen in samples.items():
        failed = [sample for sample in seen if "cold_s" not in sample]
        median = lambda: statistics.median(sample["cold_s"] for sample in seen)
        found[kind] = failed[0] if failed else {**seen[0], "cold_s": median(), "samples": len(seen)}
    return found


def parsed():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pack", required=True)
    parser.add_argument("--out")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--cpu-peers", action="store_true")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--only", default="")
    parser.add_argument("--skip", default="")
    parser.add_argument("--budget", type=float, default=500.0)
    parser.add_argument("--patience", type=float, default=150.0)
    options = parser.parse_args()
    options.rounds = options.rounds or (2 if options.quick else 7)
    options.seconds = options.seconds or (0.01 if options.quick else 0.2)
    options.only = [part for part in options.only.split(",") if part]
    options.skip = [name for name in options.skip.split(",") if name]
    options.quickly = ["--quick"] if options.quick else []
    options.program = [os.path.join(options.pack, "gpu_bench"), *options.quickly]
    return options


def is_wanted(name, options):
    return name not in options.skip and (not options.only or any(part in name for part in options.only))


def driver_version(device):
    """The version of NVIDIA's driver, or else that of CUDA which the driver itself says it supports."""
    ask = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(ask, text=True, capture_output=True, timeout=60)
        if answer.returncode == 0 and answer.stdout.strip():
            return answer.stdout.split("\n")[0].strip()
    except (OSError, subprocess.TimeoutExpired):
        pass
    version = device["driver_supports_cuda"]
    return f"for CUDA {version // 1000}.{version % 1000 // 10}"


def begun(options):
    """What is known before anything is measured, with the figures that the file has of the same device and commit."""
    device = run([*options.program, "device"], 120)
    if "failed" in device:
        sys.exit(f"no device: {device['failed']}")
    with open(os.path.join(options.pack, "commit")) as file:
        commit = file.read().strip()
    results = {"device": device, "driver": driver_version(device), "date": now(), "commit": commit}
    if options.quick:
        results["simulated"] = True
    same = ("device", "driver", "commit", "simulated")
    old = {}
    if options.out and os.path.exists(options.out):
        with open(options.out) as file:
            old = json.load(file)
    keeps = all(old.get(key) == results.get(key) for key in same)
    for key in ("versions", "checks", "cold", "workloads", "left_out"):
        results[key] = old.get(key, {}) if keeps else {}
    return results


def save(results, options):
    results["goals"], results["failures"] = goals(results), failures(results)
    if not options.out:
        return
    text = json.dumps(results, indent=1, allow_nan=False)
    for path, content in ((options.out, text), (os.path.splitext(options.out)[0] + ".txt", table(results))):
        with open(path, "w") as file:
            file.write(content + "\n")


def leave_out(name, results):
    """Notes what there was no time for, unless the file has it already. An answer that did not come says nothing else."""
    is_there = name in results["workloads"] or name.removeprefix("check_") in results["checks"]
    if not is_there and not (name == "cold" and results["cold"]):
        results["left_out"][name] = "the time was up"
    print(f"{name}: the time was up", flush=True)


def check_all(results, options, clock):
    """Runs the checks and the first step of new processes; returns what failed."""
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        env = dict(os.environ, RETAPE_CUBIN_CACHE=folder)
        for name in [name for name in CHECKS if is_wanted("check_" + name, options) and "checks" not in options.skip]:
            seen = None if clock.is_up() else run([*options.program, "check", name], clock.wait(4), env)
            if seen is None or ("failed" in seen and clock.is_up()):
                leave_out("check_" + name, results)
                continue
            results["checks"][name] = seen
            results["left_out"].pop("check_" + name, None)
            wrong += [f"check {name}: {seen['failed']}"] if "failed" in seen else []
            print(f"check {name}: {seen}", flush=True)
            save(results, options)
    if is_wanted("cold", options):
        seen = None if clock.is_up() else cold(options, clock)
        failed = [f"cold, {kind}: {own['failed']}" for kind, own in (seen or {}).items() if "failed" in own]
        if seen is None or (failed and clock.is_up()):
            leave_out("cold", results)
        else:
            results["cold"], wrong = seen, wrong + failed
            results["left_out"].pop("cold", None)
            print(f"cold: {seen}", flush=True)
        save(results, options)
    return wrong


def measure_all(results, options, clock):
    """Measures the workloads while there is time; returns what failed."""
    peer = lambda name: [sys.executable, os.path.join(HERE, "peers.py"), name, *options.quickly,
                         *(["--cpu"] if options.cpu_peers else [])]
    programs = [Program("retape", [*options.program, "serve"], False)]
    programs += [Program(name, peer(name), True) for name in PEERS if name not in options.skip]
    wrong = []
    for workload in [workload for workload in WORKLOADS if is_wanted(workload, options)]:
        found = None if clock.is_up() else measured(workload, programs, options, clock)
        if found is None or (clock.is_up() and failures_of(workload, found)):
            leave_out(workload, results)
        else:
            results["left_out"].pop(workload, None)
            results["workloads"][workload] = found
            wrong += failures_of(workload, found)
            print(workload, {name: own.get("ms", own.get("failed")) for name, own in found["programs"].items()},
                  flush=True)
        for program in programs[1:]:
            if program.version or program.missing:
                results["versions"][program.name] = program.version or program.missing
        save(results, options)
    for program in programs:
        program.end()
    return wrong


def main():
    options = parsed()
    clock, results = Clock(options.budget, options.patience), begun(options)
    print(json.dumps({key: results[key] for key in ("device", "driver", "commit", "date")}), flush=True)
    wrong = check_all(results, options, clock) + measure_all(results, options, clock)
    save(results, options)
    print(table(results))
    if wrong:
        sys.exit("failed: " + "; ".join(wrong))


if __name__ == "__main__":
    main()
