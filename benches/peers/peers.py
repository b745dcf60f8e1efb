#!/usr/bin/env python3
"""One peer, one workload, one process; prints one JSON line.

  peers.py --framework jax|torch|torch_compile --workload W --repeat N
           [--threads 2] [--variant V] [--max-seconds S] [--cold2]

cold_s   first call of a fresh step (trace + compile + run); framework imported, data made
cold2_s  (--cold2) the same again in the same process with new function objects
warm_*   per-step milliseconds over N samples (short steps are looped inside a sample)
"""
import argparse, json, os, resource, sys, tempfile, time

ap = argparse.ArgumentParser()
ap.add_argument("--framework", required=True)
ap.add_argument("--workload", required=True)
ap.add_argument("--repeat", type=int, default=30)
ap.add_argument("--threads", type=int, default=2)
ap.add_argument("--variant", default=None)
ap.add_argument("--max-seconds", type=float, default=20.0)
ap.add_argument("--cold2", action="store_true")
ap.add_argument("--keep-malloc", action="store_true", help="glibc keeps freed memory (no page faults at every step); best setting of a peer")
a = ap.parse_args()
if a.keep_malloc and "MALLOC_TRIM_THRESHOLD_" not in os.environ:
    os.environ["MALLOC_TRIM_THRESHOLD_"] = os.environ["MALLOC_MMAP_THRESHOLD_"] = "4000000000"
    os.execv(sys.executable, [sys.executable] + sys.argv)

cpus = sorted(os.sched_getaffinity(0))[: a.threads]
os.sched_setaffinity(0, cpus)
for v in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[v] = str(a.threads)
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
cache = tempfile.mkdtemp(prefix="inductor_")
os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.environ.get("PEERS_INDUCTOR_CACHE", cache)
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = str(a.threads)

t0 = time.perf_counter()
if a.framework == "jax":
    import w_jax as mod
elif a.framework in ("torch", "torch_compile"):
    import torch
    torch.set_num_threads(a.threads)
    import w_torch as mod
    mod.COMPILE = a.framework == "torch_compile"
    if mod.COMPILE:
        import torch._inductor.config as ic
        if a.variant == "cppwrap":
            ic.cpp_wrapper = True
else:
    sys.exit("unknown framework")
import_s = time.perf_counter() - t0
mod.VARIANT = a.variant

w = mod.make(a.workload)
rss0 = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
t0 = time.perf_counter()
w.step()
cold = time.perf_counter() - t0
losses = [w.loss()]
for _ in range(5):
    w.update()
    w.step()
    losses.append(w.loss())

# warm-up and calibration: samples of at least ~1 ms
t0 = time.perf_counter(); n = 0
while time.perf_counter() - t0 < 0.5 or n < 3:
    w.step(); n += 1
per = (time.perf_counter() - t0) / n
inner = max(1, int(2e-3 / per))


def cpu_seconds():
    f = [float(v) / os.sysconf("SC_CLK_TCK") for v in open("/proc/stat").readline().split()[1:9]]
    u = resource.getrusage(resource.RUSAGE_SELF); c = resource.getrusage(resource.RUSAGE_CHILDREN)
    return f[0] + f[1] + f[2] + f[5] + f[6] + f[7], u.ru_utime + u.ru_stime + c.ru_utime + c.ru_stime


samples = []
b0, o0 = cpu_seconds(); begin = time.perf_counter()
end = time.perf_counter() + a.max_seconds
for r in range(a.repeat):
    t0 = time.perf_counter()
    for _ in range(inner):
        w.step()
    samples.append((time.perf_counter() - t0) / inner * 1e3)
    if time.perf_counter() > end and r >= 6:
        break
wall = time.perf_counter() - begin
b1, o1 = cpu_seconds()
other = round(max(0.0, (b1 - b0) - (o1 - o0)) / wall, 2)   # CPUs busy with other processes meanwhile
samples.sort()
q = lambda f: samples[min(len(samples) - 1, int(f * len(samples)))]
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
cold2 = None
if a.cold2:
    w.refresh()
    t0 = time.perf_counter(); w.step(); cold2 = round(time.perf_counter() - t0, 4)
out = dict(framework=a.framework, workload=a.workload, variant=((a.variant or '') + ('+m' if a.keep_malloc else '')) or None, threads=a.threads,
           cold_s=round(cold, 4), cold2_s=cold2, import_s=round(import_s, 3),
           warm_ms_median=round(q(.5), 5), warm_ms_p10=round(q(.1), 5), warm_ms_p90=round(q(.9), 5),
           samples=len(samples), inner=inner, other_cpu=other, peak_rss_mb=round(peak, 1), base_rss_mb=round(rss0, 1),
           loss_first=losses[0], loss_after_5=losses[5], versions=mod.versions())
if a.workload.startswith("matmul"):
    n = int(a.workload[6:]); out["gflops"] = round(2 * n ** 3 / (q(.5) * 1e6), 1)
print(json.dumps(out), flush=True)
import shutil
shutil.rmtree(cache, ignore_errors=True)
