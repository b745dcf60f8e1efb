#!/usr/bin/env python3
"""Checks and measures retape on a GPU, beside PyTorch and JAX where they are installed.

    bench.py --pack FOLDER [--out FILE] [--quick] [--cpu-peers] [--rounds N] [--seconds S] [--only TEXT,..]
             [--skip NAME,..] [--budget SECONDS]

Every program runs in a process of its own and is asked in turn for a measurement, so that what disturbs one round
disturbs all of it; reported are medians over rounds, and medians of the ratios within rounds. Whatever a program cannot
do, or takes too long for, is left out with its reason. FILE gets every figure after every workload.
"""
import argparse
import datetime
import json
import os
import queue
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PEERS = ["torch", "torch.compile", "jax"]
CHECKS = ["twice", "threads", "memory", "leaks"]
ELEMENTS = 64 << 20
SIZES = [1024, 4096, 8192]
WORKLOADS = (
    ["negate", "elementwise", "digits_train", "digits_predict", "mlp", "launch_1", "launch_10", "launch_100"]
    + [f"matmul_{kind}_{n}" for kind in ("f32", "tf32", "bf16") for n in SIZES]
    + ["transformer_f32", "transformer_bf16"]
)


class Program:
    """A process that answers lines; one that dies or is late is not asked again."""

    def __init__(self, name, command, greets):
        self.name, self.why_gone, self.answers = name, None, queue.Queue()
        # What goes wrong is in the answers; compilers write much besides.
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True, bufsize=1)
        threading.Thread(target=self.listen, daemon=True).start()
        self.greeting = self.answer(300) if greets else {}
        self.why_gone = self.why_gone or self.greeting.get("skipped")

    def listen(self):
        for line in self.process.stdout:
            # Some libraries write to stdout as well.
            if line.startswith("{"):
                self.answers.put(json.loads(line))
        self.answers.put({"skipped": f"{self.name} ended"})

    def answer(self, timeout):
        try:
            answer = self.answers.get(timeout=timeout)
        except queue.Empty:
            answer = {"skipped": f"{self.name} did not answer within {timeout:.0f} s"}
            self.process.kill()
        if answer.get("skipped", "").startswith(f"{self.name} "):
            self.why_gone = answer["skipped"]
        return answer

    def ask(self, line, timeout):
        if self.why_gone:
            return {"skipped": self.why_gone}
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except OSError:
            self.why_gone = f"{self.name} ended"
            return {"skipped": self.why_gone}
        return self.answer(timeout)

    def end(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()


def work_of(workload, size_of_matmul):
    """Bytes that are moved at least, or operations, of a step."""
    if workload == "negate":
        return {"bytes": 8 * ELEMENTS}
    if workload == "elementwise":
        # The array is read, and its gradient written.
        return {"bytes": 8 * ELEMENTS}
    if size_of_matmul:
        return {"operations": 2 * size_of_matmul**3}
    return {}


def measured(workload, programs, options):
    """The figures of one workload."""
    found = {}
    for program in programs:
        answer = program.ask(f"prepare {workload}", options.patience)
        if "skipped" in answer:
            # One that is prepared in part would keep its memory.
            program.ask("drop", 60)
        found[program.name] = answer
    ready = [program for program in programs if "skipped" not in found[program.name]]
    times = {program.name: [] for program in ready}
    for _ in range(options.rounds):
        for program in ready:
            times[program.name].append(program.ask(f"time {options.seconds}", options.patience).get("ms"))
    for program in ready:
        own = found[program.name]
        if None in times[program.name]:
            own["skipped"] = program.why_gone or "a measurement failed"
            continue
        own["ms"] = statistics.median(times[program.name])
        own["ms_rounds"] = times[program.name]
        own["latency_ms"] = program.ask(f"latency {options.seconds}", options.patience).get("ms")
    ours = times.get("retape")
    for program in ready:
        theirs = times[program.name]
        if ours and program.name != "retape" and None not in ours and None not in theirs:
            found[program.name]["times_of_retape"] = statistics.median(b / a for a, b in zip(ours, theirs))
    matmul = re.fullmatch(r"matmul_[a-z0-9]+_(\d+)", workload)
    if not options.quick:
        for kind, amount in work_of(workload, matmul and int(matmul[1])).items():
            unit = {"bytes": "bytes_per_s", "operations": "operations_per_s"}[kind]
            for own in found.values():
                if "ms" in own:
                    own[unit] = amount / own["ms"] * 1e3
    agree(workload, found)
    for program in programs:
        program.ask("drop", 60)
    return found


def agree(workload, found):
    """Says whose loss is another than that of retape."""
    ours = found.get("retape", {}).get("loss_after_5")
    bound = 2e-2 if "bf16" in workload else 3e-3 if "tf32" in workload else 1e-3
    for own in found.values():
        loss = own.get("loss_after_5")
        if ours is not None and loss is not None:
            own["agrees"] = abs(loss - ours) <= bound * max(abs(ours), 1e-3)


def cold(options):
    """The first training step of a process, without and with compiled code on disk."""
    samples = {"empty": [], "warm": []}
    for _ in range(1 if options.quick else 5):
        with tempfile.TemporaryDirectory() as folder:
            for kind in ("empty", "warm"):
                # The driver's own cache would make the first as warm as the second.
                env = dict(os.environ, RETAPE_CUBIN_CACHE=folder, CUDA_CACHE_DISABLE="1")
                samples[kind].append(run([*options.program, "cold"], options.patience, env))
    failed = [sample for kind in samples.values() for sample in kind if "cold_s" not in sample]
    if failed:
        return failed[0]
    median = lambda kind: statistics.median(sample["cold_s"] for sample in samples[kind])
    return {kind: {"cold_s": median(kind), **{k: samples[kind][0][k] for k in ("compiled", "from_disk")}}
            for kind in samples}


def run(command, timeout, env=None):
    """The last line of a program as data, or why there is none."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=env)
        return json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return {"failed": f"not done within {timeout:.0f} s"}
    except (IndexError, ValueError):
        return {"failed": (done.stderr.strip() or f"exit code {done.returncode}")[-600:]}


def table(results):
    """The figures for people."""
    names = ["retape", *PEERS]
    lines = [f"{'milliseconds a step':<22}" + "".join(f"{name:>16}" for name in names) + "   peers / retape"]
    for workload, found in results["workloads"].items():
        cells, ratios = [], []
        for name in names:
            own = found.get(name, {})
            mark = "" if own.get("agrees", True) else " !"
            cells.append(f"{own['ms']:.4f}{mark}" if "ms" in own else "-")
            if "times_of_retape" in own:
                ratios.append(f"{name} {own['times_of_retape']:.2f}")
        lines.append(f"{workload:<22}" + "".join(f"{cell:>16}" for cell in cells) + "   " + ", ".join(ratios))
    for workload, found in results["workloads"].items():
        for name, own in found.items():
            for unit, label, scale in (("bytes_per_s", "GB/s", 1e9), ("operations_per_s", "TFLOP/s", 1e12)):
                if unit in own:
                    lines.append(f"  {workload} {name}: {own[unit] / scale:.1f} {label}")
    reasons = {(name, own["skipped"]) for found in results["workloads"].values() for name, own in found.items()
               if "skipped" in own}
    lines += [f"  left out, {name}: {reason[:160]}" for name, reason in sorted(reasons)]
    for kind, sample in results.get("cold", {}).items():
        lines.append(f"cold first step, {kind} cache of code: {sample}")
    for name, seen in results.get("checks", {}).items():
        lines.append(f"check {name}: {seen}")
    return "\n".join(lines)


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
    parser.add_argument("--budget", type=float, default=1e9)
    parser.add_argument("--patience", type=float, default=150.0)
    options = parser.parse_args()
    options.rounds = options.rounds or (2 if options.quick else 7)
    options.seconds = options.seconds or (0.01 if options.quick else 0.2)
    options.quickly = ["--quick"] if options.quick else []
    options.program = [os.path.join(options.pack, "gpu_bench"), *options.quickly]
    return options


def main():
    options, begin = parsed(), time.monotonic()
    wanted = [name for name in options.only.split(",") if name]
    is_wanted = lambda name: not wanted or any(part in name for part in wanted)
    skipped = options.skip.split(",")
    with open(os.path.join(options.pack, "commit")) as file:
        commit = file.read().strip()
    device = run([*options.program, "device"], 120)
    results = {"device": device, "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
               "commit": commit, "rounds": options.rounds, "seconds_a_round": options.seconds}
    if options.quick:
        results["simulated"] = True
    smi = subprocess.run("nvidia-smi --query-gpu=driver_version --format=csv,noheader", shell=True, text=True,
                         capture_output=True)
    if smi.returncode == 0:
        results["driver"] = smi.stdout.split("\n")[0].strip()
    if "failed" in device:
        sys.exit(f"no device: {device['failed']}")
    print(json.dumps(results), flush=True)

    def save():
        if options.out:
            with open(options.out, "w") as file:
                json.dump(results, file, indent=1)
                file.write("\n")

    results["checks"] = {}
    for name in CHECKS:
        if is_wanted("check_" + name) and "checks" not in skipped:
            results["checks"][name] = run([*options.program, "check", name], 4 * options.patience)
            print(f"check {name}: {results['checks'][name]}", flush=True)
            save()
    if is_wanted("cold") and "cold" not in skipped:
        results["cold"] = cold(options)
        save()
    programs = [Program("retape", [*options.program, "serve"], False)]
    flags = options.quickly + (["--cpu"] if options.cpu_peers else [])
    for name in PEERS:
        if name not in skipped:
            programs.append(Program(name, [sys.executable, os.path.join(HERE, "peers.py"), name, *flags], True))
    results["versions"] = {program.name: program.greeting.get("version") or program.why_gone
                           for program in programs if program.name != "retape"}
    results["workloads"] = {}
    for workload in WORKLOADS:
        if not is_wanted(workload):
            continue
        if time.monotonic() - begin > options.budget:
            print(f"the time is up before {workload}", flush=True)
            break
        results["workloads"][workload] = measured(workload, programs, options)
        save()
        print(workload, {name: own.get("ms", own.get("skipped")) for name, own in
                         results["workloads"][workload].items()}, flush=True)
    for program in programs:
        program.end()
    print(table(results))
    failed = [name for name, seen in results["checks"].items() if "failed" in seen]
    ours = [name for name, found in results["workloads"].items()
            if any(own.get("agrees") is False for own in found.values())]
    if failed or ours:
        sys.exit(f"failed checks: {failed}; losses that differ: {ours}")


if __name__ == "__main__":
    main()
