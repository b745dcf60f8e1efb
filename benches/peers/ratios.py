#!/usr/bin/env python3
"""The table of ratios from lines of run.sh: ratios.py LINES. Of repeated runs the one that others disturbed least counts,
and of those the fastest; losses that differ by more than one in a thousand are named."""
import json, sys

COMPILERS = ("jax", "torch_compile")
best = {}
for text in open(sys.argv[1]):
    line = json.loads(text)
    name = line["framework"] + (" " + line["variant"] if line.get("variant") else "")
    key = lambda r: ((r.get("other_cpu") or 0) > 0.25, r["warm_ms_median"])
    runs = best.setdefault(line["workload"], {})
    cold = min(line["cold_s"], runs[name]["cold_s"] if name in runs else 1e9)
    if name not in runs or key(line) < key(runs[name]):
        runs[name] = line
    runs[name]["cold_s"] = cold


def ms(x):
    return f"{x * 1e3:.1f} us" if x < 0.1 else f"{x:.3g} ms"


def mb(x):
    return "" if x is None else f"{x:.1f} MB" if x < 100 else f"{x:.0f} MB"


def leanest(runs, *frameworks):
    return min((r["peak_rss_mb"] for r in runs if r["framework"] in frameworks), default=None)


print("| workload | retape | fastest peer | ratio | first call, retape | fastest compiler | memory, retape | PyTorch | burn |")
print("|---|---|---|---|---|---|---|---|---|")
wrong = []
for workload, runs in best.items():
    own = runs.pop("retape", None)
    if not own or not runs:
        continue
    name, peer = min(runs.items(), key=lambda item: item[1]["warm_ms_median"])
    compilers = [r["cold_s"] for r in runs.values() if r["framework"] in COMPILERS]
    cold = f"{min(compilers):.2f} s" if compilers else ""
    torch, burn = leanest(runs.values(), "torch", "torch_compile"), leanest(runs.values(), "burn")
    ratio = own["warm_ms_median"] / peer["warm_ms_median"]
    print(f"| {workload} | {ms(own['warm_ms_median'])} | {ms(peer['warm_ms_median'])} {name} | {ratio:.2f} "
          f"| {own['cold_s'] * 1e3:.0f} ms | {cold} | {mb(own['peak_rss_mb'])} | {mb(torch)} | {mb(burn)} |")
    for other, run in runs.items():
        if abs(run["loss_after_5"] - own["loss_after_5"]) > 1e-3 * abs(own["loss_after_5"]):
            wrong.append(f"{workload}: {other} {run['loss_after_5']}, retape {own['loss_after_5']}")
print("\nLosses agree." if not wrong else "\nLosses differ: " + "; ".join(wrong))
