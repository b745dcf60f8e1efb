"""The workloads in JAX, each step one jitted function; training donates what it carries.

All data are arguments that lie on the device: what a jitted function closes over becomes a constant of its code.
"""
import os

# Memory is taken as it is needed: others measure on the same device.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import numpy as np

from peers import (Work, block_parameters, digit_parameters, digit_statistics, labels, mlp_parameters, of_matmul,
                   stream)


def start(_, cpu):
    import jax

    if cpu:
        jax.config.update("jax_platforms", "cpu")
    device = jax.devices()[0]
    if not cpu and device.platform != "gpu":
        raise RuntimeError("no GPU that JAX can use")
    jax.config.update("jax_default_matmul_precision", "float32")
    workloads = Workloads(jax)

    def sync():
        jax.block_until_ready(workloads.last)

    def drop():
        workloads.last = None
        jax.clear_caches()

    return workloads.make, sync, drop, f"jax {jax.__version__}"


class Workloads:
    def __init__(self, jax):
        self.jax, self.jnp, self.last = jax, jax.numpy, None

    def make(self, name, sizes):
        product = of_matmul(name, sizes)
        if product:
            return self.matmul(*product)
        if name.startswith("launch_"):
            return self.launches(int(name.split("_")[1]))
        if name.startswith("transformer_"):
            return self.transformer(name.endswith("bf16"), *sizes.block)
        values = lambda: stream((sizes.elements,), 1000, 2.0, 1.0)
        return {
            "digits_train": lambda: self.digits_train(sizes.digits),
            "digits_predict": lambda: self.digits_predict(sizes.digits),
            "mlp": lambda: self.mlp(sizes.mlp),
            "elementwise": lambda: self.elementwise(sizes.elements),
            "elementwise_fast": lambda: self.elementwise(sizes.elements),
            "negate": lambda: self.forward(lambda x: -x, [values()], self.jnp.mean),
            "copy": lambda: self.forward(self.jnp.copy, [values()], self.jnp.mean),
        }[name]()

    def put(self, tree):
        return self.jax.tree.map(self.jnp.asarray, tree)

    def forward(self, f, inputs, loss):
        jitted, inputs = self.jax.jit(f), self.put(inputs)

        def step():
            self.last = jitted(*inputs)

        return Work(step, lambda: float(loss(self.last)))

    def carrying(self, f, first, inputs):
        """`f` makes the loss and what the next step is given."""
        jitted = self.jax.jit(f, donate_argnums=0)
        carried, inputs = [self.put(first)], self.put(inputs)

        def step():
            loss, carried[0] = jitted(carried[0], *inputs)
            self.last = (loss, carried[0])

        return Work(step, lambda: float(self.last[0]))

    def gradient_only(self, loss, params, inputs, rates):
        """`rates` are those of the untimed descent, one for each parameter."""
        jitted = self.jax.jit(self.jax.value_and_grad(loss))
        held, inputs = [self.put(params)], self.put(inputs)

        def step():
            self.last = jitted(held[0], *inputs)

        def update():
            held[0] = [p - rate * g for p, rate, g in zip(held[0], rates, self.last[1])]

        return Work(step, lambda: float(self.last[0]), update)

    def convolved(self, x, w, stride, pads):
        return self.jax.lax.conv_general_dilated(
            x, w, (stride, stride), pads, dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def digit_layers(self):
        layers = digit_parameters()
        for at in range(0, 16, 4):
            layers[at] = layers[at].transpose(2, 3, 1, 0)
        for at in (16, 18):
            layers[at] = layers[at].reshape(-1, 32, 14, 14).transpose(2, 3, 1, 0).reshape(6272, -1)
        return layers

    def digit_network(self, p, x, norm):
        jnp = self.jnp
        same = lambda k: ((k // 2, k // 2), (k // 2, k // 2))
        halved = ((0, 1), (0, 1))
        a = jnp.maximum(norm(0, self.convolved(x, p[0], 1, same(5)) + p[1], p[2], p[3]), 0)
        skip = norm(1, self.convolved(a, p[4], 2, same(1)) + p[5], p[6], p[7])
        b = jnp.maximum(norm(2, self.convolved(a, p[8], 2, halved) + p[9], p[10], p[11]), 0)
        b = norm(3, self.convolved(b, p[12], 1, same(3)) + p[13], p[14], p[15])
        features = jnp.maximum(b + skip, 0).reshape(x.shape[0], 6272)
        return features @ p[16] + p[17], features @ p[18] + p[19]

    def digits_train(self, batch):
        jax, jnp = self.jax, self.jnp
        targets = np.eye(10, dtype=np.float32)[labels(batch)]
        inputs = [stream((batch, 28, 28, 1), 1000, 0.5, 0.5), stream((batch, 1), 1001), targets]

        def loss(params, running, x, angles, targets):
            new = [None] * 4

            def norm(n, x, scale, offset):
                mean, variance = jnp.mean(x, (0, 1, 2)), jnp.var(x, (0, 1, 2))
                new[n] = tuple(0.9 * old + 0.1 * found for old, found in zip(running[n], (mean, variance)))
                return (x - mean) / jnp.sqrt(variance + 1e-5) * scale + offset

            logits, found = self.digit_network(params, x, norm)
            cross = -jnp.mean(jnp.sum(targets * jax.nn.log_softmax(logits), -1))
            return cross + 0.1 * 0.5 * jnp.sum((found - angles) ** 2) / batch, new

        def step(carried, *inputs):
            params, running, m, v, t = carried
            (value, running), g = jax.value_and_grad(loss, has_aux=True)(params, running, *inputs)
            t = t + 1
            m = [0.9 * m + 0.1 * g for m, g in zip(m, g)]
            v = [0.999 * v + 0.001 * g * g for v, g in zip(v, g)]
            scale = lambda m, v: 1e-3 * (m / (1 - 0.9**t)) / (jnp.sqrt(v / (1 - 0.999**t)) + 1e-8)
            params = [p - scale(m, v) for p, m, v in zip(params, m, v)]
            return value, (params, running, m, v, t)

        params = self.digit_layers()
        zeros = lambda: [np.zeros_like(p) for p in params]
        running = [(np.zeros(n, np.float32), np.ones(n, np.float32)) for n in (16, 32, 32, 32)]
        return self.carrying(step, (params, running, zeros(), zeros(), np.float32(0)), inputs)

    def digits_predict(self, batch):
        jnp = self.jnp

        def predict(params, statistics, x):
            def norm(n, x, scale, offset):
                mean, variance = statistics[n]
                return (x - mean) / jnp.sqrt(variance + 1e-5) * scale + offset

            logits, angles = self.digit_network(params, x, norm)
            return self.jax.nn.softmax(logits), angles

        x = stream((batch, 28, 28, 1), 1000, 0.5, 0.5)
        inputs = [self.digit_layers(), digit_statistics(), x]
        return self.forward(predict, inputs, lambda found: sum(jnp.sum(part * part) for part in found))

    def mlp(self, batch):
        jax, jnp = self.jax, self.jnp
        inputs = [stream((batch, 784), 1000, 0.5, 0.5), np.eye(10, dtype=np.float32)[labels(batch)]]

        def loss(p, x, targets):
            h = jnp.maximum(x @ p[0] + p[1], 0)
            h = jnp.maximum(h @ p[2] + p[3], 0)
            return -jnp.mean(jnp.sum(targets * jax.nn.log_softmax(h @ p[4] + p[5]), -1))

        def step(carried, *inputs):
            params, v = carried
            value, g = jax.value_and_grad(loss)(params, *inputs)
            v = [0.9 * v + g for v, g in zip(v, g)]
            return value, ([p - 0.05 * v for p, v in zip(params, v)], v)

        params = mlp_parameters()
        return self.carrying(step, (params, [np.zeros_like(p) for p in params]), inputs)

    def elementwise(self, n):
        jnp = self.jnp

        def loss(params):
            x, a, b = params
            return jnp.mean(jnp.tanh(x * a + b) * jnp.exp(-x * x) + jnp.log1p(x * x) * jnp.sin(x))

        params = [stream((n,), 1000, 2.0), np.float32(0.7), np.float32(0.1)]
        return self.gradient_only(loss, params, [], [n / 40, 0.1, 0.1])

    def transformer(self, half, batch, positions, width, heads):
        jax, jnp = self.jax, self.jnp
        dtype = jnp.bfloat16 if half else jnp.float32

        def norm(x, scale, offset):
            mean = jnp.mean(x, -1, keepdims=True)
            variance = jnp.var(x, -1, keepdims=True)
            return (x - mean) / jnp.sqrt(variance + 1e-5) * scale + offset

        def dense(x, w, b):
            return (x.astype(dtype) @ w.astype(dtype)).astype(jnp.float32) + b

        def loss(p, x):
            qkv = dense(norm(x, p[0], p[1]), p[2], p[3]).astype(dtype)
            q, k, v = (part.reshape(batch, positions, heads, width // heads) for part in jnp.split(qkv, 3, -1))
            mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True).astype(jnp.float32)
            y = x + dense(mixed.reshape(batch, positions, width), p[4], p[5])
            hidden = jax.nn.gelu(dense(norm(y, p[6], p[7]), p[8], p[9]), approximate=True)
            return jnp.mean((y + dense(hidden, p[10], p[11])) ** 2)

        params = block_parameters(width)
        x = stream((batch, positions, width), 1000)
        return self.gradient_only(loss, params, [x], [0.1] * len(params))

    def matmul(self, kind, n):
        jnp = self.jnp
        precision = {"f32": "float32", "tf32": "tensorfloat32", "bf16": "bfloat16"}[kind]
        dtype = jnp.bfloat16 if kind == "bf16" else jnp.float32
        a, b = (self.put(stream((n, n), k)).astype(dtype) for k in (1, 2))
        product = lambda a, b: jnp.matmul(a, b, precision=precision)
        return self.forward(product, [a, b], lambda product: jnp.mean(product.astype(jnp.float32) ** 2))

    def launches(self, n):
        def chain(x):
            for _ in range(n):
                x = self.jnp.cumsum(x)
            return x

        return self.forward(chain, [np.zeros(256, np.float32)], self.jnp.sum)
