"""The layers of benches/layers by JAX or PyTorch: layers.py jax|torch WORD ...; and what the figures say: layers.py table
FOLDER, which reads FOLDER/layers.*.jsonl."""
import json, math, os, sys

from turns import table, times_of

SAMPLES, SECONDS = 5, 0.05
if sys.argv[1] == "table":
    table(sys.argv[2], "layers", "pass", "passes")
    sys.exit()

import numpy as np

threads = os.environ.get("THREADS", "2")
if sys.argv[1] == "torch":
    import torch

    torch.set_num_threads(int(threads))
else:
    os.environ["XLA_FLAGS"] = f"--xla_cpu_multi_thread_eigen=true intra_op_parallelism_threads={threads}"
    import jax
    import jax.numpy as jnp


def data(shape, seed):
    numbers = (np.arange(math.prod(shape), dtype=np.int64) * 7919 + seed * 104729) % 10007
    return ((numbers.astype(np.float32) / np.float32(10007) - np.float32(0.5)) * np.float32(2)).reshape(shape)


def dense_by_torch(x, w, is_turned):
    x, w = torch.from_numpy(x), torch.from_numpy(w)
    return {"result": lambda: x @ (w.mT if is_turned else w)}


def dense_by_jax(x, w, is_turned):
    x, w = jnp.asarray(x), jnp.asarray(w)
    product = jax.jit(lambda x, w: x @ (w.T if is_turned else w))
    return {"result": lambda: product(x, w).block_until_ready()}


def conv_by_torch(x, f, t, stride, padding, dilation, groups):
    """Arrays in PyTorch's order of axes, with channels last in memory."""
    last = lambda x, axes: torch.from_numpy(x).permute(axes).contiguous(memory_format=torch.channels_last)
    x, f, t = last(x, (0, 3, 1, 2)), last(f, (3, 2, 0, 1)), last(t, (0, 3, 1, 2))
    steps = [[stride] * 2, [padding] * 2, [dilation] * 2]
    gradient = lambda mask: torch.ops.aten.convolution_backward(t, x, f, None, *steps, False, [0, 0], groups, mask)
    return {
        "result": lambda: torch.nn.functional.conv2d(x, f, None, *steps, groups),
        "image": lambda: gradient([True, False, False])[0],
        "filter": lambda: gradient([False, True, False])[1],
    }


def conv_by_jax(x, f, t, stride, padding, dilation, groups):
    x, f, t = map(jnp.asarray, (x, f, t))
    conv = lambda x, f: jax.lax.conv_general_dilated(
        x, f, (stride,) * 2, ((padding,) * 2,) * 2, rhs_dilation=(dilation,) * 2,
        dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups)
    loss = lambda x, f, t: (conv(x, f) * t).sum()
    forward, image, filter = jax.jit(conv), jax.jit(jax.grad(loss)), jax.jit(jax.grad(loss, 1))
    return {
        "result": lambda: forward(x, f).block_until_ready(),
        "image": lambda: image(x, f, t).block_until_ready(),
        "filter": lambda: filter(x, f, t).block_until_ready(),
    }


def passes(words):
    numbers = [int(word) for word in words[1:] if word.isdigit()]
    if words[0] == "dense":
        rows, features, results = numbers
        is_turned = words[-1] == "turned"
        weights = [results, features] if is_turned else [features, results]
        dense = dense_by_torch if sys.argv[1] == "torch" else dense_by_jax
        return dense(data([rows, features], 0), data(weights, 1), is_turned)
    batch, side, channels, results, taps, stride, padding, dilation, groups = numbers
    outputs = (side + 2 * padding - dilation * (taps - 1) - 1) // stride + 1
    shapes = [batch, side, side, channels], [taps, taps, channels // groups, results], [batch, outputs, outputs, results]
    conv = conv_by_torch if sys.argv[1] == "torch" else conv_by_jax
    return conv(*(data(shape, seed) for seed, shape in enumerate(shapes)), stride, padding, dilation, groups)


for line in open(os.path.join(os.path.dirname(__file__), "../layers/layers.txt")):
    words = line.split()
    if line.startswith("#") or words[:len(sys.argv) - 2] != sys.argv[2:]:
        continue
    for name, step in passes(words).items():
        energy = float((np.asarray(step(), dtype=np.float64) ** 2).sum())
        times = times_of(step, SAMPLES, SECONDS)
        print(json.dumps({"pass": f"{' '.join(words)} {name}", "us": round(times[len(times) // 4], 2),
                          "energy": energy}), flush=True)
