"""The workloads in PyTorch: eager, or compiled by torch.compile(mode="max-autotune").

Compiled code is replayed as CUDA graphs. These read their inputs where they were when the graph was recorded, so PyTorch
copies each input there before every replay, but for parameters and buffers of modules and what is marked as static. So
everything is one of these here.
"""
import numpy as np
import torch
from torch.nn import functional

from peers import (Work, block_parameters, digit_parameters, digit_statistics, labels, mlp_parameters, of_matmul,
                   stream)


def start(framework, cpu):
    if not cpu and not torch.cuda.is_available():
        raise RuntimeError("no GPU that PyTorch can use")
    workloads = Workloads(torch.device("cpu" if cpu else "cuda"), framework == "torch.compile")

    def sync():
        if not cpu:
            torch.cuda.synchronize()

    def drop():
        workloads.last = None
        torch.compiler.reset()
        if not cpu:
            torch.cuda.empty_cache()

    return workloads.make, sync, drop, f"torch {torch.__version__}"


def fixed(tensor):
    """A tensor whose address does not change, which CUDA graphs then need no copy of."""
    mark = getattr(torch._dynamo, "mark_static_address", None)
    if mark:
        mark(tensor)
    return tensor


class Model(torch.nn.Module):
    """A formula of parameters and of constants, which are its buffers."""

    def __init__(self, formula, params, constants):
        super().__init__()
        self.formula, self.params = formula, torch.nn.ParameterList(params)
        self.names = [f"constant{n}" for n in range(len(constants))]
        for name, constant in zip(self.names, constants):
            self.register_buffer(name, constant)

    def forward(self):
        return self.formula(list(self.params), [getattr(self, name) for name in self.names])


class Workloads:
    def __init__(self, device, compiled):
        self.device, self.is_compiled, self.last = device, compiled, None

    def make(self, name, sizes):
        # Products and convolutions of f32 in f32, unless the workload says otherwise.
        is_tf32 = name.startswith("matmul_tf32")
        torch.set_float32_matmul_precision("high" if is_tf32 else "highest")
        torch.backends.cudnn.allow_tf32 = is_tf32
        torch.backends.cudnn.benchmark = True
        product = of_matmul(name, sizes)
        if product:
            return self.matmul(*product)
        if name.startswith("launch_"):
            return self.launches(int(name.split("_")[1]))
        if name.startswith("transformer_"):
            return self.transformer(name.endswith("bf16"), *sizes.block)
        values = lambda: [self.put(stream((sizes.elements,), 1000, 2.0, 1.0))]
        return {
            "digits_train": lambda: self.digits_train(sizes.digits),
            "digits_predict": lambda: self.digits_predict(sizes.digits),
            "mlp": lambda: self.mlp(sizes.mlp),
            "elementwise": lambda: self.elementwise(sizes.elements),
            "elementwise_fast": lambda: self.elementwise(sizes.elements),
            "negate": lambda: self.forward(lambda x: -x, values(), lambda y: y.mean()),
            "copy": lambda: self.forward(lambda x: x.clone(), values(), lambda y: y.mean()),
        }[name]()

    def put(self, array):
        return fixed(torch.tensor(array, device=self.device))

    def parameters(self, arrays):
        return [fixed(torch.nn.Parameter(self.put(array))) for array in arrays]

    def compiled(self, f):
        return torch.compile(f, mode="max-autotune") if self.is_compiled else f

    def begin(self):
        # Results of the step before may be written over from here on.
        if self.is_compiled:
            torch.compiler.cudagraph_mark_step_begin()

    def forward(self, f, inputs, loss):
        f = self.compiled(f)

        def step():
            self.begin()
            with torch.no_grad():
                self.last = f(*inputs)

        return Work(step, lambda: float(loss(self.last)))

    def training(self, model, optimizer):
        """Value, gradients and an update."""
        f, update = self.compiled(model), self.compiled(optimizer.step)

        def step():
            self.begin()
            optimizer.zero_grad(set_to_none=True)
            value = f()
            value.backward()
            update()
            self.last = value.detach()

        return Work(step, lambda: float(self.last))

    def gradient_only(self, model, rates):
        """`rates` are those of the untimed descent, one for each parameter."""
        f, params = self.compiled(model), list(model.params)

        def step():
            self.begin()
            value = f()
            self.last = (value.detach(), torch.autograd.grad(value, params))

        def update():
            with torch.no_grad():
                for p, rate, g in zip(params, rates, self.last[1]):
                    p -= rate * g

        return Work(step, lambda: float(self.last[0]), update)

    def digit_network(self, p, x, norm):
        relu, conv, pad = torch.relu, functional.conv2d, functional.pad
        a = relu(norm(0, conv(x, p[0], p[1], padding=2), p[2], p[3]))
        skip = norm(1, conv(a, p[4], p[5], stride=2), p[6], p[7])
        b = relu(norm(2, conv(pad(a, (0, 1, 0, 1)), p[8], p[9], stride=2), p[10], p[11]))
        b = norm(3, conv(b, p[12], p[13], padding=1), p[14], p[15])
        features = relu(b + skip).flatten(1)
        linear = functional.linear
        return linear(features, p[16], p[17]), linear(features, p[18], p[19])

    def digits_train(self, batch):
        params = self.parameters(digit_parameters())
        inputs = [self.put(stream((batch, 1, 28, 28), 1000, 0.5, 0.5)), self.put(stream((batch, 1), 1001)),
                  self.put(labels(batch))]
        fresh = [self.put(make(n, np.float32)) for n in (16, 32, 32, 32) for make in (np.zeros, np.ones)]

        def loss(p, constants):
            x, angles, targets, *running = constants

            def norm(n, x, scale, offset):
                mean, variance = running[2 * n : 2 * n + 2]
                return functional.batch_norm(x, mean, variance, scale, offset, training=True, momentum=0.1, eps=1e-5)

            logits, found = self.digit_network(p, x, norm)
            return functional.cross_entropy(logits, targets) + 0.05 * ((found - angles) ** 2).sum() / batch

        is_gpu = self.device.type == "cuda"
        adam = torch.optim.Adam(params, lr=1e-3, fused=is_gpu and not self.is_compiled, capturable=is_gpu)
        return self.training(Model(loss, params, inputs + fresh), adam)

    def digits_predict(self, batch):
        params = [self.put(p) for p in digit_parameters()]
        statistics = [[self.put(part) for part in pair] for pair in digit_statistics()]

        def norm(n, x, scale, offset):
            return functional.batch_norm(x, *statistics[n], scale, offset, training=False, eps=1e-5)

        def predict(x):
            logits, angles = self.digit_network(params, x, norm)
            return logits.softmax(-1), angles

        x = self.put(stream((batch, 1, 28, 28), 1000, 0.5, 0.5))
        return self.forward(predict, [x], lambda found: sum((part * part).sum() for part in found))

    def mlp(self, batch):
        params = self.parameters(mlp_parameters())
        constants = [self.put(stream((batch, 784), 1000, 0.5, 0.5)), self.put(labels(batch))]

        def loss(p, constants):
            x, targets = constants
            h = torch.relu(torch.addmm(p[1], x, p[0]))
            h = torch.relu(torch.addmm(p[3], h, p[2]))
            return functional.cross_entropy(torch.addmm(p[5], h, p[4]), targets)

        return self.training(Model(loss, params, constants), torch.optim.SGD(params, lr=0.05, momentum=0.9))

    def elementwise(self, n):
        params = self.parameters([stream((n,), 1000, 2.0), np.float32([0.7]), np.float32([0.1])])

        def loss(p, _):
            x, a, b = p
            return (torch.tanh(x * a + b) * torch.exp(-x * x) + torch.log1p(x * x) * torch.sin(x)).mean()

        return self.gradient_only(Model(loss, params, []), [n / 40, 0.1, 0.1])

    def transformer(self, half, batch, positions, width, heads):
        params = self.parameters(block_parameters(width))
        dense = lambda x, w, b: torch.matmul(x, w) + b

        def block(p, x):
            qkv = dense(functional.layer_norm(x, (width,), p[0], p[1]), p[2], p[3])
            q, k, v = (part.reshape(batch, positions, heads, -1).transpose(1, 2) for part in qkv.chunk(3, -1))
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            y = x + dense(mixed.transpose(1, 2).reshape(batch, positions, width), p[4], p[5])
            hidden = dense(functional.layer_norm(y, (width,), p[6], p[7]), p[8], p[9])
            return (y + dense(functional.gelu(hidden, approximate="tanh"), p[10], p[11])).float().square().mean()

        def loss(p, constants):
            with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=half):
                return block(p, *constants)

        x = self.put(stream((batch, positions, width), 1000))
        return self.gradient_only(Model(loss, params, [x]), [0.1] * len(params))

    def matmul(self, kind, n):
        dtype = torch.bfloat16 if kind == "bf16" else torch.float32
        a, b = (fixed(self.put(stream((n, n), k)).to(dtype)) for k in (1, 2))
        return self.forward(torch.matmul, [a, b], lambda product: (product.float() ** 2).mean())

    def launches(self, n):
        def chain(x):
            for _ in range(n):
                x = x.cumsum(0)
            return x

        return self.forward(chain, [self.put(np.zeros(256, np.float32))], lambda y: y.sum())
