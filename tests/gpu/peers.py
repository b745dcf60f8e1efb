#!/usr/bin/env python3
"""The workloads of tests/examples/gpu_bench in other frameworks, behind the same lines on stdin and stdout.

    peers.py torch|torch.compile|jax [--quick] [--cpu]

Definitions are those of examples/workloads: the same formula for parameters and inputs, so that losses agree. Products
of f32 are computed in f32 unless the workload says tf32; those of the bf16 block take operands rounded to bf16.
The first line says which version answers, or {"missing": reason}; what a framework cannot do is {"failed": reason}.
"""
import functools
import json
import math
import sys
import time

try:
    import numpy as np
except ImportError:
    # Who needs it says so when it starts.
    np = None

ELEMENTS = 64 << 20
MAX_STEPS = 200_000


# Large products of several kinds and formulas of several modes have the same operands.
@functools.lru_cache(maxsize=4)
def stream(shape, k, scale=1.0, base=0.0):
    """Elements of stream `k`, row-major: two rounds of a 32-bit hash of the index, in [base - scale, base + scale)."""
    n = int(np.prod(shape)) if shape else 1
    out = np.empty(n, np.float32)
    for start in range(0, n, 1 << 22):
        x = np.arange(start, min(start + (1 << 22), n), dtype=np.uint32)
        x = x * np.uint32(2654435761) + np.uint32((k * 40503 + 12345) & 0xFFFFFFFF)
        for _ in range(2):
            x ^= x >> np.uint32(16)
            x = x * np.uint32(0x45D9F3B)
        x ^= x >> np.uint32(16)
        out[start : start + x.size] = base + scale * (x.astype(np.float64) / 2147483648.0 - 1.0)
    out.flags.writeable = False
    return out.reshape(shape)


class Parameters:
    """Parameters in their order: each takes the next stream, from 1 on."""

    def __init__(self):
        self.all = []

    def add(self, shape, scale, base=0.0):
        self.all.append(stream(shape, len(self.all) + 1, scale, base))

    def weight(self, shape, fan_in):
        self.add(shape, math.sqrt(3.0 / fan_in))

    def bias(self, n):
        self.add((n,), 0.1)

    def norm(self, n):
        self.add((n,), 0.1, 1.0)
        self.bias(n)


def digit_parameters():
    p = Parameters()
    for o, i, k in [(16, 1, 5), (32, 16, 1), (32, 16, 3), (32, 32, 3)]:
        p.weight((o, i, k, k), i * k * k)
        p.bias(o)
        p.norm(o)
    for o in (10, 1):
        p.weight((o, 6272), 6272)
        p.bias(o)
    return p.all


def digit_statistics():
    sizes = [16, 32, 32, 32]
    return [(stream((n,), 500 + 2 * j, 0.1), stream((n,), 501 + 2 * j, 0.5, 1.0)) for j, n in enumerate(sizes)]


def mlp_parameters():
    p = Parameters()
    for i, o in [(784, 512), (512, 512), (512, 10)]:
        p.weight((i, o), i)
        p.bias(o)
    return p.all


def block_parameters(width):
    p = Parameters()
    for kind, i, o in [("n", 1, 1), ("d", 1, 3), ("d", 1, 1), ("n", 1, 1), ("d", 1, 4), ("d", 4, 1)]:
        if kind == "n":
            p.norm(width)
        else:
            p.weight((i * width, o * width), i * width)
            p.bias(o * width)
    return p.all


def labels(batch):
    return np.arange(batch) * 7 % 10


class Work:
    """A step that queues its work, the loss it last had, and the update of workloads that only make gradients."""

    def __init__(self, step, loss, update=lambda: None):
        self.step, self.loss, self.update = step, loss, update


class Sizes:
    def __init__(self, quick):
        self.digits = 1 if quick else 32
        self.mlp = 2 if quick else 128
        self.elements = 1 << 12 if quick else ELEMENTS
        self.block = (1, 8, 32, 2) if quick else (64, 1024, 1024, 16)
        self.divisor = 128 if quick else 1


def serve(make, sync, drop, sizes):
    work = None
    for line in sys.stdin:
        words = line.split()
        try:
            if words[0] == "drop":
                work = None
                drop()
                answer = {}
            elif words[0] == "prepare":
                work = None
                work = make(words[1], sizes)
                sync()
                start = time.perf_counter()
                work.step()
                sync()
                answer = {"cold_s": time.perf_counter() - start, "loss_first": loss_of(work)}
                for _ in range(5):
                    work.update()
                    work.step()
                answer["loss_after_5"] = loss_of(work)
            elif words[0] == "time":
                answer = throughput(work, sync, float(words[1]))
            else:
                answer = latency(work, sync, float(words[1]))
        except Exception as error:  # Whatever a framework cannot do is left out, with its reason.
            answer = {"failed": f"{type(error).__name__}: {error}"[:400]}
        print(json.dumps(answer), flush=True)


def loss_of(work):
    loss = work.loss()
    if not math.isfinite(loss):
        raise ValueError(f"the loss is {loss}")
    return loss


def throughput(work, sync, seconds):
    n = 1
    while True:
        start = time.perf_counter()
        for _ in range(n):
            work.step()
        sync()
        took = time.perf_counter() - start
        if took >= seconds or n == MAX_STEPS:
            return {"ms": 1e3 * took / n, "steps": n}
        n = min(math.ceil(n * min(max(1.1 * seconds / took, 1.5), 10.0)), MAX_STEPS)


def latency(work, sync, seconds):
    begin, samples = time.perf_counter(), []
    while len(samples) < 3 or (time.perf_counter() - begin < seconds and len(samples) < 1000):
        start = time.perf_counter()
        work.step()
        sync()
        samples.append(1e3 * (time.perf_counter() - start))
    return {"ms": sorted(samples)[len(samples) // 2], "steps": len(samples)}


def of_matmul(name, sizes):
    """Kind and size, if that is what the name says."""
    words = name.split("_")
    return (words[1], int(words[2]) // sizes.divisor) if words[0] == "matmul" else None


def main():
    framework = sys.argv[1]
    quick, cpu = "--quick" in sys.argv, "--cpu" in sys.argv
    try:
        if framework == "jax":
            import peers_jax as module
        else:
            import peers_torch as module
        parts = module.start(framework, cpu)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"[:400]
        print(json.dumps({"framework": framework, "missing": reason}), flush=True)
        return
    make, sync, drop, version = parts
    print(json.dumps({"framework": framework, "version": version}), flush=True)
    serve(make, sync, drop, Sizes(quick))


if __name__ == "__main__":
    main()
