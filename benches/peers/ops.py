"""The operations of benches/ops by JAX or PyTorch: ops.py jax|torch WORD ...; and what the figures say: ops.py table FOLDER,
which reads FOLDER/ops.*.jsonl."""
import json, math, os, sys

from turns import table, times_of

SAMPLES, SECONDS = 5, 0.05
# Steps of a slow pass end after so many seconds.
MOST_SECONDS = 1

if sys.argv[1] == "table":
    table(sys.argv[2], "ops", "pass", "passes")
    sys.exit()

import numpy as np

from dialect import array, attention, concat, cumprod, cumsum, einsum, gru, layer_norm, permute, rsqrt, sort
from dialect import sigmoid, silu, softplus, sin, stack, system, tanh, tril, where, zeros

if system == "jax":
    import jax, jax.numpy as jnp
    from dialect import batch_norm
    from jax import lax

    exp, log, absolute, clip, gelu, elu, erf = (
        jnp.exp, jnp.log, jnp.abs, jnp.clip, jax.nn.gelu, jax.nn.elu, jax.scipy.special.erf)
    folds = {"sum": jnp.sum, "mean": jnp.mean, "max": jnp.max, "min": jnp.min, "prod": jnp.prod, "var": jnp.var,
             "logsumexp": jax.nn.logsumexp}
    fold = lambda name, x, axes, keep=False: folds[name](x, axis=tuple(axes), keepdims=keep)
    softmax, log_softmax = lambda x, axis: jax.nn.softmax(x, axis), lambda x, axis: jax.nn.log_softmax(x, axis)
    cummax, argsort, argmax, argmin = lambda x, axis: lax.cummax(x, axis), jnp.argsort, jnp.argmax, jnp.argmin
    top = lambda x, axis, n: jnp.moveaxis(lax.top_k(jnp.moveaxis(x, axis, -1), n)[0], -1, axis)
    take, take_along = lambda x, i, axis: jnp.take(x, i, axis), lambda x, i, axis: jnp.take_along_axis(x, i, axis)
    scatter = lambda x, i, n: jnp.zeros((n, x.shape[1])).at[i].add(x)
    one_hot, flip, roll = lambda i, n: jax.nn.one_hot(i, n), jnp.flip, lambda x, axis, by: jnp.roll(x, by, axis)
    pad = lambda x, axis, low, high: jnp.pad(x, [(low, high) if n == axis else (0, 0) for n in range(x.ndim)])
    tile, broadcast, eye = jnp.tile, jnp.broadcast_to, jnp.eye
    cholesky = jnp.linalg.cholesky
    solve = lambda a, b: jax.scipy.linalg.cho_solve((cholesky(a), True), b)
    triangular = lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True, lower=True)
    entropy = lambda x, i: -jnp.mean(jnp.take_along_axis(log_softmax(x, -1), i[:, None], 1))

    def pool(x, start, op, window, stride, padding):
        around = [(0, 0), (padding,) * 2, (padding,) * 2, (0, 0)]
        return lax.reduce_window(x, start, op, (1, window, window, 1), (1, stride, stride, 1), around)

    max_pool = lambda x, *numbers: pool(x, -np.inf, lax.max, *numbers)
    avg_pool = lambda x, *numbers: pool(x, 0.0, lax.add, *numbers) / pool(jnp.ones_like(x), 0.0, lax.add, *numbers)

    def lstm(x, wx, wh, b):
        def step(state, x):
            h, c = state
            i, f, g, o = jnp.split(x @ wx + h @ wh + b, 4, -1)
            c = sigmoid(f) * c + sigmoid(i) * tanh(g)
            h = sigmoid(o) * tanh(c)
            return (h, c), h
        start = zeros((x.shape[0], wh.shape[0]))
        return lax.scan(step, (start, start), x.swapaxes(0, 1))[1].swapaxes(0, 1)

    def all_gru(x, wx, wh, b, candidate):
        def step(h, x):
            [xr, xz, xm], [hr, hz, hm] = jnp.split(x @ wx + b, 3, -1), jnp.split(h @ wh, 3, -1)
            r, z = sigmoid(xr + hr), sigmoid(xz + hz)
            m = tanh(xm + r * (hm + candidate))
            h = m + z * (h - m)
            return h, h
        return lax.scan(step, zeros((x.shape[0], wh.shape[0])), x.swapaxes(0, 1))[1].swapaxes(0, 1)

    def passes(function, inputs, floats):
        inputs = [array(x) for x in inputs]
        forward = jax.jit(function)
        yield "result", lambda: [jax.block_until_ready(forward(*inputs))]
        result = forward(*inputs)
        if floats and result.dtype == np.float32:
            t = array(data(result.shape, len(inputs)))
            gradient = jax.jit(jax.grad(lambda t, *x: (function(*x) * t).sum(), [n + 1 for n in floats]))
            yield "gradient", lambda: jax.block_until_ready(gradient(t, *inputs))
else:
    import torch
    import torch.nn.functional as F

    exp, log, absolute, clip, elu, erf = torch.exp, torch.log, torch.abs, torch.clamp, F.elu, torch.erf
    gelu = lambda x: F.gelu(x, approximate="tanh")
    folds = {"sum": torch.sum, "mean": torch.mean, "max": torch.amax, "min": torch.amin, "logsumexp": torch.logsumexp}

    def fold(name, x, axes, keep=False):
        if name == "prod":
            for axis in reversed(axes):
                x = x.prod(axis)
            return x
        if name == "var":
            return torch.var(x, tuple(axes), unbiased=False, keepdim=keep)
        return folds[name](x, tuple(axes), keep)

    softmax, log_softmax = torch.softmax, torch.log_softmax
    cummax, argsort, argmax, argmin = lambda x, axis: x.cummax(axis)[0], torch.argsort, torch.argmax, torch.argmin
    top, take = lambda x, axis, n: x.topk(n, axis)[0], lambda x, i, axis: x.index_select(axis, i)
    take_along = lambda x, i, axis: torch.gather(x, axis, i.long())
    scatter = lambda x, i, n: torch.zeros(n, x.shape[1]).index_add(0, i, x)
    one_hot = lambda i, n: F.one_hot(i.long(), n).float()
    flip, roll = lambda x, axis: x.flip([axis]), lambda x, axis, by: x.roll(by, axis)

    def pad(x, axis, low, high):
        around = [0, 0] * x.ndim
        around[2 * (x.ndim - 1 - axis)], around[2 * (x.ndim - 1 - axis) + 1] = low, high
        return F.pad(x, around)

    tile, broadcast, eye = torch.tile, lambda x, shape: x.expand(shape), torch.eye
    cholesky = torch.linalg.cholesky
    solve = lambda a, b: torch.cholesky_solve(b, cholesky(a))
    triangular = lambda a, b: torch.linalg.solve_triangular(a, b, upper=False)
    entropy = lambda x, i: F.cross_entropy(x, i.long())
    first, last = lambda x: x.permute(0, 3, 1, 2), lambda x: x.permute(0, 2, 3, 1)
    max_pool = lambda x, *numbers: last(F.max_pool2d(first(x), *numbers))
    avg_pool = lambda x, *numbers: last(F.avg_pool2d(first(x), *numbers, count_include_pad=False))

    batch_norm = lambda x, scale, offset: last(F.batch_norm(first(x), None, None, scale, offset, True))

    def lstm(x, wx, wh, b):
        start = torch.zeros(1, x.shape[0], wh.shape[0])
        weights = [wx.t(), wh.t(), b, torch.zeros_like(b)]
        return torch._VF.lstm(x, (start, start), weights, True, 1, 0.0, True, False, True)[0]

    def all_gru(x, wx, wh, b, candidate):
        start = torch.zeros(1, x.shape[0], wh.shape[0])
        weights = [wx.t(), wh.t(), b, F.pad(candidate, (2 * wh.shape[0], 0))]
        return torch._VF.gru(x, start, weights, True, 1, 0.0, True, False, True)[0]

    def passes(function, inputs, floats):
        inputs = [torch.from_numpy(x) for x in inputs]

        def forward():
            with torch.inference_mode():
                return [function(*inputs).contiguous()]

        yield "result", forward
        result = forward()[0]
        if floats and result.dtype == torch.float32:
            t = torch.from_numpy(data(result.shape, len(inputs)))
            for n in floats:
                inputs[n].requires_grad_()
            operands = [inputs[n] for n in floats]
            # Views of the gradients are no results yet.
            yield "gradient", lambda: [g.contiguous() for g in torch.autograd.grad(function(*inputs), operands, t)]


def group_norm(x, scale, offset, groups):
    grouped = x.reshape(*x.shape[:3], groups, x.shape[3] // groups)
    apart = grouped - fold("mean", grouped, [1, 2, 4], True)
    scaled = apart * rsqrt(fold("mean", apart * apart, [1, 2, 4], True) + 1e-5)
    return scaled.reshape(x.shape) * scale + offset


def upsample(x, n):
    batch, high, wide, channels = x.shape
    spread = broadcast(x.reshape(batch, high, 1, wide, 1, channels), (batch, high, n, wide, n, channels))
    return spread.reshape(batch, high * n, wide * n, channels)


def positive(x):
    return einsum("...ij,...kj->...ik", x, x) + eye(x.shape[-1])


formulas = {
    "add": lambda x, y: x + y, "mul": lambda x, y: x * y, "div": lambda x, y: x / (y * y + 1),
    "where": lambda x, y: where(x > y, x, y * 0.5), "lerp": lambda x, y, z: x + (y - x) * z,
    "tanh": tanh, "exp": exp, "log": lambda x: log(absolute(x) + 0.1), "sigmoid": sigmoid, "erf": erf,
    "sin": lambda x: sin(x * 10), "pow": lambda x: (absolute(x) + 0.1) ** 1.7, "rsqrt": lambda x: rsqrt(x * x + 0.1),
    "gelu": gelu, "silu": silu, "softplus": softplus, "elu": elu, "clamp": lambda x: clip(x, -0.5, 0.5),
    "layer_norm": layer_norm, "batch_norm": batch_norm, "cross_entropy": entropy, "matmul": lambda x, y: x @ y,
    "rms_norm": lambda x, scale: x * rsqrt((x * x).mean(-1)[..., None] + 1e-6) * scale,
    "lstm": lambda x, *w: lstm(x, *(w * 0.2 for w in w)), "gru": lambda x, *w: all_gru(x, *(w * 0.2 for w in w)),
    "cholesky": lambda x: cholesky(positive(x)), "solve": lambda x, b: solve(positive(x), b),
    "triangular": lambda x, b: triangular(tril(x, -1) * 0.1 + eye(x.shape[-1]), b), "tril": tril,
}
of_axes = {
    "l2": lambda x, axes: fold("sum", x * x, axes) ** 0.5, "argmax": lambda x, axes: argmax(x, axes[0]),
    "argmin": lambda x, axes: argmin(x, axes[0]), "permute": permute,
    "normalise": lambda x, axes: (x - fold("mean", x, axes, True)) * rsqrt(fold("var", x, axes, True) + 1e-5),
    "unit": lambda x, axes: x * rsqrt(fold("sum", x * x, axes, True) + 1e-5),
}
of_numbers = {
    "softmax": softmax, "log_softmax": log_softmax, "cumsum": cumsum, "cumprod": lambda x, axis: cumprod(x + 1.1, axis),
    "cummax": cummax, "sort": sort, "argsort": argsort, "top": top, "take": take, "take_along": take_along,
    "scatter_add": scatter, "one_hot": one_hot, "flip": flip, "roll": roll, "pad": pad, "max_pool": max_pool,
    "avg_pool": avg_pool, "group_norm": group_norm, "upsample": upsample,
    "attention": lambda q, k, v, is_causal: attention(q, k, v, is_causal == 1),
    "slice": lambda x, axis, start, stop, step: x[tuple(
        slice(start, stop, step) if n == axis else slice(None) for n in range(x.ndim))],
    "tile": lambda x, axis, n: tile(x, [n if m == axis else 1 for m in range(x.ndim)]),
}


def function_of(name, numbers):
    if "->" in name:
        return lambda *x: einsum(name, *x)
    if name in ("concat", "stack"):
        return lambda *x: (concat if name == "concat" else stack)(x, numbers[0])
    if name in formulas:
        return formulas[name]
    if name in of_numbers:
        return lambda *x: of_numbers[name](*x, *numbers)
    if name in of_axes:
        return lambda x: of_axes[name](x, numbers)
    return lambda x: fold(name, x, numbers)


def data(shape, seed):
    numbers = (np.arange(math.prod(shape), dtype=np.int64) * 7919 + seed * 104729) % 10007
    return ((numbers.astype(np.float32) / np.float32(10007) - np.float32(0.5)) * np.float32(2)).reshape(shape)


def argument(word, seed):
    shape, *bound = word.split(":")
    shape = [int(extent) for extent in shape.split("x")]
    if bound:
        return (np.arange(math.prod(shape), dtype=np.int64) * 7919 % int(bound[0])).astype(np.int32).reshape(shape)
    return data(shape, seed)


for line in open(os.path.join(os.path.dirname(__file__), "../ops/ops.txt")).read().splitlines():
    words = line.split(" / ")[0].split(" ")
    if line.startswith("#") or any(taken != word for taken, word in zip(sys.argv[2:], line.split(" "))):
        continue
    numbers = [int(word) for word in line.split(" / ")[1].split(" ")] if " / " in line else []
    floats = [n for n, word in enumerate(words[1:]) if ":" not in word]
    inputs = [argument(word, seed) for seed, word in enumerate(words[1:])]
    for name, step in passes(function_of(words[0], numbers), inputs, floats):
        energy = sum(float((np.asarray(result.detach() if system == "torch" else result).astype(np.float64) ** 2).sum())
                     for result in step())
        times = times_of(step, SAMPLES, SECONDS, MOST_SECONDS)
        print(json.dumps({"pass": f"{line} {name}", "us": round(times[len(times) // 4], 2), "energy": energy}), flush=True)
