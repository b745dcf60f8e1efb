"""The programs of benches/programs by JAX or PyTorch: programs.py jax|torch NUMBER ...; and what the figures say: programs.py
table FOLDER, which reads FOLDER/programs.*.jsonl."""
import json, math, os, sys

from turns import table, times_of

SAMPLES, SECONDS = 7, 0.06
# Steps of a slow program end after so many seconds.
MOST_SECONDS = 1

if sys.argv[1] == "table":
    table(sys.argv[2], "programs", "program", "programs")
    sys.exit()

import numpy as np

threads = int(os.environ.get("THREADS", "2"))
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
system = sys.argv[1]

if system == "jax":
    import jax, jax.numpy as np_

    array, tanh, exp, sin, cos, sqrt, log1p, abs_ = (
        np_.asarray, np_.tanh, np_.exp, np_.sin, np_.cos, np_.sqrt, np_.log1p, np_.abs)
    sigmoid, relu, gelu, softplus, silu, elu = (
        jax.nn.sigmoid, jax.nn.relu, jax.nn.gelu, jax.nn.softplus, jax.nn.silu, jax.nn.elu)
    leaky, erf, clamp = lambda x: jax.nn.leaky_relu(x, 0.1), jax.scipy.special.erf, lambda x: np_.clip(x, -0.5, 0.5)
    greatest, least, where, concat, stack = np_.maximum, np_.minimum, np_.where, np_.concatenate, np_.stack
    folds = {"sum": np_.sum, "mean": np_.mean, "largest": np_.max, "var": np_.var,
             "logsumexp": lambda x, axis, keepdims: jax.nn.logsumexp(x, axis=axis, keepdims=keepdims)}
    softmax, log_softmax = lambda x, axis: jax.nn.softmax(x, axis=axis), lambda x, axis: jax.nn.log_softmax(x, axis=axis)
    turned, permute, tril, cumsum = lambda x: np_.swapaxes(x, -1, -2), np_.transpose, np_.tril, np_.cumsum
    flip, roll, take = np_.flip, lambda x, axis, by: np_.roll(x, by, axis), lambda x, i: np_.take(x, i, axis=0)
    pad = lambda x, axis, low, high: np_.pad(x, [(low, high) if n == axis else (0, 0) for n in range(x.ndim)])
    pool = lambda x, zero, op: jax.lax.reduce_window(x, zero, op, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    maxpool, avgpool = lambda x: pool(x, -np_.inf, jax.lax.max), lambda x: pool(x, 0.0, jax.lax.add) * 0.25
    conv = lambda x, w, taps, stride: jax.lax.conv_general_dilated(
        x, w, (stride,) * 2, ((taps // 2,) * 2,) * 2, dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def step_of(loss, inputs):
        inputs, step = [array(x) for x in inputs], jax.jit(jax.value_and_grad(loss))
        return lambda: jax.block_until_ready(step(inputs))[0]
else:
    import torch
    import torch.nn.functional as F

    torch.set_num_threads(threads)
    array, tanh, exp, sin, cos, sqrt, log1p, abs_ = (
        torch.from_numpy, torch.tanh, torch.exp, torch.sin, torch.cos, torch.sqrt, torch.log1p, torch.abs)
    sigmoid, relu, gelu, softplus, silu, elu = (
        torch.sigmoid, torch.relu, lambda x: F.gelu(x, approximate="tanh"), F.softplus, F.silu, F.elu)
    leaky, erf, clamp = lambda x: F.leaky_relu(x, 0.1), torch.erf, lambda x: torch.clamp(x, -0.5, 0.5)
    greatest, least, where, concat, stack = torch.maximum, torch.minimum, torch.where, torch.cat, torch.stack
    folds = {"sum": lambda x, axis, keepdims: x.sum(axis, keepdims),
             "mean": lambda x, axis, keepdims: x.mean(axis, keepdims),
             "largest": lambda x, axis, keepdims: x.amax(axis, keepdims),
             "var": lambda x, axis, keepdims: x.var(axis, unbiased=False, keepdim=keepdims),
             "logsumexp": lambda x, axis, keepdims: x.logsumexp(axis, keepdims)}
    softmax, log_softmax = lambda x, axis: x.softmax(axis), lambda x, axis: x.log_softmax(axis)
    turned, permute, tril, cumsum = lambda x: x.mT, lambda x, order: x.permute(order), torch.tril, torch.cumsum
    flip, roll, take = (
        lambda x, axis: x.flip([axis]), lambda x, axis, by: x.roll(by, axis), lambda x, i: x.index_select(0, i))
    first, last = lambda x: x.permute(0, 3, 1, 2), lambda x: x.permute(0, 2, 3, 1)
    maxpool, avgpool = lambda x: last(F.max_pool2d(first(x), 2)), lambda x: last(F.avg_pool2d(first(x), 2))
    conv = lambda x, w, taps, stride: last(F.conv2d(first(x), w.permute(3, 2, 0, 1), None, stride, taps // 2))

    def pad(x, axis, low, high):
        around = [0, 0] * x.ndim
        around[2 * (x.ndim - 1 - axis)], around[2 * (x.ndim - 1 - axis) + 1] = low, high
        return F.pad(x, around)

    def step_of(loss, inputs):
        inputs = [array(x).requires_grad_() for x in inputs]

        def step():
            value = loss(inputs)
            torch.autograd.grad(value, inputs, allow_unused=True)
            return value.detach()

        return step


formulas = {
    "tanh": tanh, "laplace": lambda x: exp(-abs_(x)), "sigmoid": sigmoid, "relu": relu, "gelu": gelu, "sin": sin, "cos": cos,
    "root": lambda x: sqrt(x * x + 1), "log1p": lambda x: log1p(abs_(x)), "square": lambda x: x * x * 0.5,
    "lorentz": lambda x: 1 / (x * x + 1), "softplus": softplus, "silu": silu, "neg": lambda x: -x,
    "scale": lambda x: x * 1.3 + 0.2, "abs": abs_, "leaky": leaky, "elu": elu, "erf": erf, "clamp": clamp, "tril": tril,
    "maxpool": maxpool, "avgpool": avgpool, "outer": lambda x: x[:, :, None] * x[:, None, :],
    "add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y, "over": lambda x, y: x / (y * y + 1),
    "max": greatest, "min": least, "choose": lambda x, y: where(x > 0, x, y * 0.5),
    "matmul": lambda x, y: x @ y, "matmul_turned": lambda x, y: x @ turned(y),
}
of_numbers = {
    "softmax": softmax, "log_softmax": log_softmax, "cumsum": cumsum, "flip": flip, "roll": roll, "pad": pad,
    "permute": lambda x, *order: permute(x, order), "reshape": lambda x, *shape: x.reshape(shape),
    "slice": lambda x, axis, start, stop, step: x[at_axis(x, axis, slice(start, stop, step))],
    "index": lambda x, axis, index: x[at_axis(x, axis, index)],
    "take": lambda x, n: take(x, array((np.arange(n) * 7919 % x.shape[0]).astype(np.int32))),
}
joins = {"concat": concat, "stack": stack}


def at_axis(x, axis, index):
    return tuple(index if n == axis else slice(None) for n in range(x.ndim))


def applied(name, arguments, numbers):
    if name in formulas:
        return formulas[name](*arguments)
    if name in joins:
        return joins[name](arguments, numbers[0])
    if name == "conv":
        return conv(*arguments, *numbers)
    if name in of_numbers:
        return of_numbers[name](*arguments, *numbers)
    x, axes = arguments[0], tuple(numbers[1:1 + numbers[0]])
    if name == "norm":
        mean, variance = (folds[fold](x, axis=axes, keepdims=True) for fold in ("mean", "var"))
        return (x - mean) / sqrt(variance + 1e-5)
    return folds[name](x, axis=axes, keepdims=bool(numbers[-1]))


def loss_of(lines):
    operations = [line.split() for line in lines if line.startswith("op ")]
    results = [int(word) for word in lines[-1].split()[1:]]

    def loss(inputs):
        values = list(inputs)
        for _, name, n, *numbers in operations:
            numbers = list(map(int, numbers))
            values.append(applied(name, [values[at] for at in numbers[:int(n)]], numbers[int(n):]))
        return sum((values[at] * values[at]).mean() for at in results)

    return loss


def data(shape, seed):
    numbers = (np.arange(math.prod(shape), dtype=np.int64) * 7919 + seed * 104729) % 10007
    return ((numbers.astype(np.float32) / np.float32(10007) - np.float32(0.5)) * np.float32(2 if seed == 0 else 0.5)
            ).reshape(shape)


for program in open(os.path.join(os.path.dirname(__file__), "../programs/programs.txt")).read().split("program ")[1:]:
    number, *lines = program.strip().split("\n")
    if sys.argv[2:] and number not in sys.argv[2:]:
        continue
    shapes = [[int(word) for word in line.split()[1:]] for line in lines if line.startswith("in ")]
    step = step_of(loss_of(lines), [data(shape, seed) for seed, shape in enumerate(shapes)])
    energy = float(step())
    times = times_of(step, SAMPLES, SECONDS, MOST_SECONDS)
    print(json.dumps({"program": number, "us": round(times[len(times) // 4], 2), "energy": energy}), flush=True)
