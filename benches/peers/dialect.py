"""The operations of the jobs by JAX or PyTorch, as the first argument says, under the same names."""
import os, sys

threads = int(os.environ.get("THREADS", "2"))
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
import numpy as np

system = sys.argv[1]

if system == "jax":
    import jax, jax.numpy as np_
    from jax import lax

    array, log, sqrt, tanh, sin, cos = (
        np_.asarray, np_.log, np_.sqrt, np_.tanh, np_.sin, np_.cos)
    einsum, permute, cumsum, sort, concat, zeros = (
        np_.einsum, np_.transpose, np_.cumsum, np_.sort, np_.concatenate, np_.zeros)
    relu, softmax, gelu = jax.nn.relu, jax.nn.softmax, lambda x: jax.nn.gelu(x, approximate=True)
    log_softmax = lambda x: jax.nn.log_softmax(x, -1)
    rows, along = lambda x, i: x[i], lambda x, i: np_.take_along_axis(x, i, 1)
    pad, diagonal, cholesky = lambda u: np_.pad(u, 1), np_.diagonal, np_.linalg.cholesky
    solve = lambda l, b: jax.scipy.linalg.solve_triangular(l, b, lower=True)
    entropy = lambda x, labels: -np_.mean(np_.take_along_axis(log_softmax(x), labels[:, None], 1))

    def conv(x, w, stride=1, groups=1, dilation=1):
        return lax.conv_general_dilated(x, w, (stride, stride), "SAME", feature_group_count=groups,
                                        rhs_dilation=(dilation, dilation), dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def conv_late(x, w, reach):
        return lax.conv_general_dilated(x, w, (1, 1), [(0, 0), (reach, 0)], rhs_dilation=(1, reach),
                                        dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def conv_up(x, w):
        around = (w.shape[0] // 2,) * 2
        return lax.conv_general_dilated(x, np_.flip(w, (0, 1)).swapaxes(2, 3), (1, 1), [around, around],
                                        lhs_dilation=(2, 2), dimension_numbers=("NHWC", "HWIO", "NHWC"))

    sigmoid, silu, softplus, gelu_erf = (
        jax.nn.sigmoid, jax.nn.silu, jax.nn.softplus, lambda x: jax.nn.gelu(x, approximate=False))
    where, logsumexp, broadcast, rsqrt = np_.where, lambda x: jax.nn.logsumexp(x, -1), np_.broadcast_to, lax.rsqrt
    scatter = lambda n, i, x: np_.zeros((n, x.shape[1])).at[i].add(x)
    remainder, reverse = np_.fmod, lambda x: np_.flip(x, 1)
    greatest, top, flip = lambda x, axis: x.max(axis), lambda x: lax.top_k(x, 16)[0], lambda x: np_.flip(x, (0, 1))
    tril, exp, stack, eye, ones = np_.tril, np_.exp, np_.stack, np_.eye, np_.ones
    clip, minimum, maximum, cumprod = np_.clip, np_.minimum, np_.maximum, np_.cumprod
    argmax, argmax_columns = lambda x: x.argmax(1), lambda x: x.argmax(0)
    whole = lambda x: x.astype(np.int32)
    wide = lambda x: x.astype(np.float32)
    relu6, leaky = jax.nn.relu6, lambda x: jax.nn.leaky_relu(x, 0.2)

    def slopes(f, x):
        return f(x), jax.grad(lambda x: f(x).sum())(x)

    def bends(f, x):
        slope = lambda x: slopes(f, x)[1]
        return f(x), slope(x), jax.grad(lambda x: slope(x)[:, 1].sum())(x)

    solve_positive = lambda a, b: jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(a, lower=True), b)

    def gru(x, wx, wh, b, candidate):
        def step(h, x):
            [xr, xz, xm], [hr, hz, hm] = np_.split(x @ wx + b, 3, -1), np_.split(h @ wh, 3, -1)
            r, z = sigmoid(xr + hr), sigmoid(xz + hz)
            m = tanh(xm + r * (hm + candidate))
            return m + z * (h - m), None
        return lax.scan(step, zeros((x.shape[1], wh.shape[0])), x)[0]

    def half_pool(x):
        return lax.reduce_window(x, -np_.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    def pool_means(x):
        return lax.reduce_window(x, 0.0, lax.add, (1, 7, 7, 1), (1, 1, 1, 1), "VALID") / 49

    def max_pool(x):
        return lax.reduce_window(x, -np_.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), [(0, 0), (1, 1), (1, 1), (0, 0)])

    def layer_norm(x, scale, offset):
        d = x - x.mean(-1, keepdims=True)
        return d / sqrt((d * d).mean(-1, keepdims=True) + 1e-5) * scale + offset

    def batch_norm(x, scale, offset):
        mean = x.mean((0, 1, 2))
        return (x - mean) * (scale / sqrt((x * x).mean((0, 1, 2)) - mean * mean + 1e-5)) + offset

    def attention(q, k, v, causal, scale=0.125):
        scores = einsum("bqhd,bkhd->bhqk", q, k) * scale
        if causal:
            scores = np_.where(np_.tril(np_.ones(scores.shape[-2:], bool)), scores, -1e30)
        return einsum("bhqk,bkhd->bqhd", softmax(scores, -1), v)

    def steps(function, inputs, dtype, has_gradient):
        jax.config.update("jax_enable_x64", dtype == "float64")
        inputs = [array(x).astype(dtype) for x in inputs]
        if has_gradient:
            both = jax.jit(jax.value_and_grad(function))
            return lambda: jax.block_until_ready(both(inputs))[0]
        compiled = jax.jit(function)
        return lambda: jax.block_until_ready(compiled(inputs))
else:
    import torch, torch.nn.functional as F

    torch.set_num_threads(threads)
    array, log, sqrt, tanh, sin, cos = (
        torch.as_tensor, torch.log, torch.sqrt, torch.tanh, torch.sin, torch.cos)
    einsum, cumsum, concat, zeros = torch.einsum, torch.cumsum, torch.cat, lambda shape: torch.zeros(*shape)
    permute, sort = lambda x, axes: x.permute(axes), lambda x, axis: torch.sort(x, axis)[0]
    remainder, reverse = torch.fmod, lambda x: torch.flip(x, (1,))
    relu, softmax, gelu = torch.relu, torch.softmax, lambda x: F.gelu(x, approximate="tanh")
    log_softmax = lambda x: torch.log_softmax(x, -1)
    rows, along = lambda x, i: F.embedding(i, x), lambda x, i: torch.gather(x, 1, i)
    pad, diagonal, cholesky = lambda u: F.pad(u, (1, 1, 1, 1)), torch.diagonal, torch.linalg.cholesky
    solve = lambda l, b: torch.linalg.solve_triangular(l, b, upper=False)
    entropy = F.cross_entropy

    def conv(x, w, stride=1, groups=1, dilation=1):
        gap = lambda n, k: max((-(-n // stride) - 1) * stride + (k - 1) * dilation + 1 - n, 0)
        high, wide = gap(x.shape[1], w.shape[0]), gap(x.shape[2], w.shape[1])
        x, w = x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1)
        padding = (high // 2, wide // 2)
        if high % 2 or wide % 2:
            x, padding = F.pad(x, (wide // 2, wide - wide // 2, high // 2, high - high // 2)), 0
        return F.conv2d(x, w, stride=stride, groups=groups, padding=padding, dilation=dilation).permute(0, 2, 3, 1)

    def conv_late(x, w, reach):
        return conv_valid(F.pad(x, (0, 0, reach, 0)), w, (1, reach))

    def conv_valid(x, w, dilation):
        return F.conv2d(x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1), dilation=dilation).permute(0, 2, 3, 1)

    def conv_up(x, w):
        x, w, around = x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1), w.shape[0] // 2 - 1
        return F.conv_transpose2d(x, w, stride=2, padding=around).permute(0, 2, 3, 1)

    sigmoid, silu, softplus, gelu_erf = torch.sigmoid, F.silu, F.softplus, F.gelu
    where, logsumexp, rsqrt = torch.where, lambda x: torch.logsumexp(x, -1), torch.rsqrt
    broadcast = lambda x, shape: x.expand(shape)
    scatter = lambda n, i, x: torch.zeros(n, x.shape[1]).index_add(0, i, x)
    greatest, top, flip = torch.amax, lambda x: torch.topk(x, 16)[0], lambda x: torch.flip(x, (0, 1))
    tril, exp, stack, eye = torch.tril, torch.exp, torch.stack, torch.eye
    ones = lambda shape: torch.ones(*shape)
    clip, minimum, maximum, cumprod = torch.clamp, torch.minimum, torch.maximum, torch.cumprod
    argmax, argmax_columns = lambda x: x.argmax(1), lambda x: x.argmax(0)
    whole = lambda x: x.int()
    wide = lambda x: x.float()
    relu6, leaky = F.relu6, lambda x: F.leaky_relu(x, 0.2)
    derivative = lambda y, x: torch.autograd.grad(y.sum(), x, create_graph=True)[0]

    def slopes(f, x):
        y = f(x)
        return y, derivative(y, x)

    def bends(f, x):
        y, slope = slopes(f, x)
        return y, slope, derivative(slope[:, 1], x)

    solve_positive = lambda a, b: torch.cholesky_solve(b, torch.linalg.cholesky(a))

    def gru(x, wx, wh, b, candidate):
        start = torch.zeros(1, x.shape[1], wh.shape[0])
        weights = [wx.t(), wh.t(), b, F.pad(candidate, (2 * wh.shape[0], 0))]
        return torch._VF.gru(x, start, weights, True, 1, 0.0, True, False, False)[1][0]

    half_pool = lambda x: F.max_pool2d(x.permute(0, 3, 1, 2), 2).permute(0, 2, 3, 1)
    pool_means = lambda x: F.avg_pool2d(x.permute(0, 3, 1, 2), 7, 1).permute(0, 2, 3, 1)
    max_pool = lambda x: F.max_pool2d(x.permute(0, 3, 1, 2), 3, 2, 1)
    layer_norm = lambda x, scale, offset: F.layer_norm(x, (x.shape[-1],), scale, offset, 1e-5)
    batch_norm = lambda x, scale, offset: F.batch_norm(x.permute(0, 3, 1, 2), None, None, scale, offset, True)

    def attention(q, k, v, causal, scale=0.125):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale).transpose(1, 2)

    def steps(function, inputs, dtype, has_gradient):
        inputs = [torch.from_numpy(x).to(getattr(torch, dtype)).requires_grad_(has_gradient) for x in inputs]

        def step():
            with torch.inference_mode(not has_gradient):
                if not has_gradient:
                    return function(inputs)
                for x in inputs:
                    x.grad = None
                value = function(inputs)
                value.backward()
                return value.detach()

        return step


def energy(x):
    return (x * x).mean()


def numbers(n, factor, modulus):
    return array(np.arange(n) * factor % modulus)
