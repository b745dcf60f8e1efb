"""The jobs of benches/jobs by JAX or PyTorch: jobs.py jax|torch NAME ...; and the table of ratios: jobs.py table FOLDER,
which reads FOLDER/jobs.*.jsonl."""
import json, sys, time

from turns import best_runs, times_of

SAMPLES, SECONDS = 15, 0.25


def table(folder):
    best = best_runs(folder, "jobs", "job")
    ratio = lambda runs: runs["retape"]["us"] / min(r["us"] for s, r in runs.items() if s != "retape")
    print("| job | retape | JAX | PyTorch | ratio |\n|---|---|---|---|---|")
    rows = [(name, runs) for name, runs in best.items() if "retape" in runs and len(runs) > 1]
    for name, runs in rows:
        cells = [f"{runs[s]['us']:.0f} us" if s in runs else "" for s in ("retape", "jax", "torch")]
        print(f"| {name} | {' | '.join(cells)} | {ratio(runs):.2f} |")
    losses = lambda runs: [r["loss"] for r in runs.values()]
    apart = [n for n, runs in rows if max(losses(runs)) - min(losses(runs)) > 2e-3 * max(map(abs, losses(runs)))]
    print("\n" + (f"Losses differ: {', '.join(apart)}." if apart else "Losses agree."))


if sys.argv[1] == "table":
    table(sys.argv[2])
    sys.exit()

from dialect import *
import networks

names = sys.argv[2:]


def data(shape, seed, is_network):
    n = int(np.prod(shape))
    numbers = (np.arange(n, dtype=np.int64) * 7919 + seed * 104729) % 10007
    scale = np.sqrt(np.float32(3 / np.prod(shape[:-1]))) if is_network and seed else np.float32(1)
    return ((numbers.astype(np.float32) / np.float32(10007) - np.float32(0.5)) * np.float32(2) * scale).reshape(shape)


def recurrent(x):
    h = zeros((x[0].shape[1], x[2].shape[0]))
    for step in range(x[0].shape[0]):
        h = tanh(x[0][step] @ x[1] + h @ x[2] * 0.1)
    return energy(h)


def diffusion(x):
    u = x[0]
    inside = lambda row, column: u[row:row + 510, column:column + 510]
    for _ in range(10):
        center = inside(1, 1)
        around = inside(0, 1) + inside(2, 1) + inside(1, 0) + inside(1, 2)
        u = pad(center + (around - center * 4.0) * 0.1)
    return energy(u)


def likelihood(x):
    factor = cholesky(x[0] @ x[0].T * 0.01 + array(np.eye(300, dtype=np.float32)) * 10.0)
    solved = solve(factor, x[1])
    return (solved * solved).sum() + log(diagonal(factor)).sum()


def group_norm(x):
    x = x.reshape(16, 28, 28, 8, 8)
    d = x - x.mean((1, 2, 4), keepdims=True)
    return energy(tanh(d * rsqrt((d * d).mean((1, 2, 4), keepdims=True) + 1e-5)))


def huber(x):
    d = abs(x[0] - x[1])
    return where(d < 0.5, d * d * 0.5, d * 0.5 - 0.125).mean()


def rotary(x):
    a, b, sine, cosine = x[0][..., :32], x[0][..., 32:], sin(x[1]), cos(x[1])
    return energy(tanh(concat([a * cosine - b * sine, a * sine + b * cosine], -1)))


def logistic(x):
    z = x[0] @ x[1]
    return (softplus(z) - z * 0.3).mean()


def excite(x):
    gate = sigmoid(relu(x[0].mean((1, 2)) @ x[1]) @ x[2])
    return energy(x[0] * gate.reshape(16, 1, 1, 64))


def upsample(x):
    return broadcast(x.reshape(8, 28, 1, 28, 1, 64), (8, 28, 2, 28, 2, 64)).reshape(8, 56, 56, 64)


def avg_pool(x):
    return x.reshape(8, 28, 2, 28, 2, 64).mean((2, 4))


def middle(x):
    d = x - x.mean(1, keepdims=True)
    return sqrt((d * d).mean(1)).sum()


def spectrum(x):
    a, b = x[0] @ x[1], x[0] @ x[2]
    return log(a * a + b * b + 1e-6).mean()


unit = lambda x: x / sqrt((x * x).sum(-1, keepdims=True))
rms = lambda x: x * rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)
distances = lambda x, y: ((x[:, None] - y[None]) ** 2).sum(-1)
product = lambda x: energy(x[0] @ x[1])
origins, targets, words, keys = (
    numbers(10000, 37, 2000), numbers(10000, 911, 2000), numbers(256, 31, 8000), numbers(512, 37, 100000))
earlier = tril(array(np.ones((128, 128), np.float32))) > 0.5
same = lambda x: energy(conv(*x))
by_2 = lambda x: energy(conv(*x, stride=2))
labels, entries, places = numbers(1024, 7, 1000), numbers(4096, 37, 10000), numbers(512 * 64, 37, 1024).reshape(512, 64)
JOBS = [
    ("conv3x3_64_56", [[8, 56, 56, 64], [3, 3, 64, 64]], same),
    ("conv3x3_128_28", [[8, 28, 28, 128], [3, 3, 128, 128]], same),
    ("conv3x3_256_14", [[8, 14, 14, 256], [3, 3, 256, 256]], same),
    ("conv3x3_512_7", [[8, 7, 7, 512], [3, 3, 512, 512]], same),
    ("conv3x3_512_7_one", [[1, 7, 7, 512], [3, 3, 512, 512]], same),
    ("conv3x3_by2_256_512", [[8, 14, 14, 256], [3, 3, 256, 512]], by_2),
    ("conv1x1_256_64", [[8, 28, 28, 256], [1, 1, 256, 64]], same),
    ("conv1x1_64_256", [[8, 28, 28, 64], [1, 1, 64, 256]], same),
    ("conv7x7_by2_3_64", [[4, 112, 112, 3], [7, 7, 3, 64]], by_2),
    ("conv5x5_6_16", [[64, 28, 28, 6], [5, 5, 6, 16]], same),
    ("conv9x9_32_32", [[4, 32, 32, 32], [9, 9, 32, 32]], same),
    ("conv3x3_12_20", [[16, 32, 32, 12], [3, 3, 12, 20]], same),
    ("conv_groups8_64", [[8, 28, 28, 64], [3, 3, 8, 64]], lambda x: energy(conv(*x, groups=8))),
    ("conv_depthwise_96", [[8, 28, 28, 96], [3, 3, 1, 96]], lambda x: energy(conv(*x, groups=96))),
    ("conv_depthwise7_120", [[4, 40, 40, 120], [7, 7, 1, 120]], lambda x: energy(conv(*x, groups=120))),
    ("conv_depthwise_1024", [[8, 14, 14, 1024], [3, 3, 1, 1024]], lambda x: energy(conv(*x, groups=1024))),
    ("conv_depthwise9_300", [[32, 3, 3, 300], [9, 9, 1, 300]], lambda x: energy(conv(*x, groups=300))),
    ("conv_channels_320", [[16, 13, 13, 320], [1, 1, 1, 320]], lambda x: energy(conv(*x, groups=320))),
    ("conv1x1_72_20", [[16, 32, 32, 72], [1, 1, 72, 20]], same),
    ("conv1x1_24_144", [[16, 56, 56, 24], [1, 1, 24, 144]], same),
    ("conv3x3_20_24", [[8, 56, 56, 20], [3, 3, 20, 24]], same),
    ("batched_rows_6", [[64, 6, 300], [64, 300, 20]], lambda x: energy(x[0] @ x[1])),
    ("conv_line_5_32_64", [[16, 1, 512, 32], [1, 5, 32, 64]], same),
    ("max_pool3x3_by2", [[8, 56, 56, 64]], lambda x: energy(max_pool(x[0]))),
    ("batch_norm", [[32, 28, 28, 64], [64], [64]], lambda x: energy(batch_norm(*x))),
    ("layer_norm", [[512, 768], [768], [768]], lambda x: energy(layer_norm(*x))),
    ("softmax", [[1024, 1024]], lambda x: energy(softmax(x[0], -1))),
    ("softmax_columns", [[1024, 512]], lambda x: energy(softmax(x[0], 0))),
    ("softmax_3", [[300000, 3]], lambda x: energy(softmax(x[0], -1))),
    ("mean_of_2", [[300000, 2]], lambda x: energy(sin(tanh(x[0]).mean(-1)))),
    ("max_of_5", [[100000, 5]], lambda x: energy(greatest(x[0], -1))),
    ("centred_3", [[300000, 3]], lambda x: energy(sin(tanh(x[0]) - tanh(x[0]).mean(0)))),
    ("log_softmax_slice", [[256, 10000]], lambda x: -log_softmax(x[0])[:, 3:4].mean()),
    ("log_softmax_slice_64", [[4096, 64]], lambda x: -log_softmax(x[0])[:, 3:4].mean()),
    ("cross_entropy", [[1024, 1000]], lambda x: entropy(x[0], labels)),
    ("embedding", [[10000, 64]], lambda x: energy(rows(x[0], entries))),
    ("take_along", [[512, 1024]], lambda x: energy(along(x[0], places))),
    ("feed_forward", [[256, 512], [512, 2048], [2048, 512]], lambda x: energy(gelu(x[0] @ x[1]) @ x[2])),
    ("perceptron_one", [[1, 256], [256, 256], [256, 256], [256, 10]],
     lambda x: energy(tanh(tanh(x[0] @ x[1]) @ x[2]) @ x[3])),
    ("batched_64", [[64, 64, 64], [64, 64, 64]], lambda x: energy(x[0] @ x[1])),
    ("batched_vector", [[256, 64, 64], [256, 64]], lambda x: energy(einsum("bij,bj->bi", x[0], x[1]))),
    ("matrix_vector", [[4096, 1024], [1024]], lambda x: energy(x[0] @ x[1])),
    ("tall", [[20000, 32], [32, 32]], lambda x: energy(relu(x[0] @ x[1]))),
    ("distances", [[256, 16], [256, 16]], lambda x: sqrt(((x[0][:, None] - x[1][None]) ** 2).sum(-1)).mean()),
    ("attention_512_causal", [[2, 512, 8, 64]] * 3, lambda x: energy(attention(*x, True))),
    ("attention_2048", [[1, 2048, 4, 64]] * 3, lambda x: energy(attention(*x, False))),
    ("recurrent", [[32, 16, 32], [32, 64], [64, 64]], recurrent),
    ("diffusion", [[512, 512]], diffusion),
    ("likelihood", [[300, 300], [300, 1]], likelihood),
    ("cumsum", [[512, 1024]], lambda x: energy(cumsum(x[0], 1))),
    ("sort", [[256, 1024]], lambda x: energy(sort(x[0], 1))),
    ("permute", [[64, 64, 128]], lambda x: energy(permute(x[0], (0, 2, 1))) + tanh(permute(x[0], (1, 0, 2))).sum()),
    ("concat", [[512, 100], [512, 28], [512, 128]], lambda x: energy(tanh(concat(list(x), 1)))),
    ("sines", [[512, 1024]], lambda x: energy(sin(x[0]) * cos(x[0]))),
    ("conv_dilated_64", [[8, 28, 28, 64], [3, 3, 64, 64]], lambda x: energy(conv(*x, dilation=2))),
    ("conv_groups32_128", [[8, 28, 28, 128], [3, 3, 4, 128]], lambda x: energy(conv(*x, groups=32))),
    ("conv3x3_by2_3_32", [[2, 224, 224, 3], [3, 3, 3, 32]], by_2),
    ("conv_depthwise5x5_192", [[8, 14, 14, 192], [5, 5, 1, 192]], lambda x: energy(conv(*x, groups=192))),
    ("conv_depthwise_by2_96", [[8, 56, 56, 96], [3, 3, 1, 96]], lambda x: energy(conv(*x, stride=2, groups=96))),
    ("conv3x3_64_56_one", [[1, 56, 56, 64], [3, 3, 64, 64]], same),
    ("conv16x16_by16_3_192", [[4, 224, 224, 3], [16, 16, 3, 192]], lambda x: energy(conv(*x, stride=16))),
    ("conv_line_80_by4", [[4, 1, 16000, 1], [1, 80, 1, 64]], lambda x: energy(conv(*x, stride=4))),
    ("conv_up_64_32", [[8, 28, 28, 64], [4, 4, 32, 64]], lambda x: energy(conv_up(*x))),
    ("upsample", [[8, 28, 28, 64]], lambda x: energy(tanh(upsample(x[0])))),
    ("avg_pool", [[8, 56, 56, 64]], lambda x: energy(avg_pool(x[0]))),
    ("squeeze_excite", [[16, 28, 28, 64], [64, 16], [16, 64]], excite),
    ("group_norm", [[16, 28, 28, 64]], lambda x: group_norm(x[0])),
    ("rms_norm", [[2048, 512], [512]], lambda x: energy(tanh(rms(x[0]) * x[1]))),
    ("layer_norm_64", [[16384, 64], [64], [64]], lambda x: energy(layer_norm(*x))),
    ("gated", [[256, 512], [512, 1024], [512, 1024], [1024, 512]],
     lambda x: energy((silu(x[0] @ x[1]) * (x[0] @ x[2])) @ x[3])),
    ("gelu_erf", [[512, 2048]], lambda x: energy(gelu_erf(x[0]))),
    ("softplus", [[512, 2048]], lambda x: energy(softplus(x[0]) + sigmoid(x[0]))),
    ("power", [[512, 1024]], lambda x: energy((abs(x[0]) + 0.1) ** 1.7)),
    ("huber", [[1024, 1024], [1024, 1024]], huber),
    ("rotary", [[4, 256, 8, 64], [256, 1, 32]], rotary),
    ("attention_64", [[16, 64, 8, 32]] * 3, lambda x: energy(attention(*x, False))),
    ("attention_one_query", [[8, 1, 8, 64], [8, 1024, 8, 64], [8, 1024, 8, 64]],
     lambda x: energy(attention(*x, False))),
    ("matmul_odd", [[300, 700], [700, 100]], product),
    ("matmul_1000", [[1000, 1000], [1000, 1000]], product),
    ("matmul_deep", [[32, 50000], [50000, 32]], product),
    ("batched_8", [[4096, 8, 8], [4096, 8, 8]], product),
    ("batched_3", [[20000, 3, 3], [20000, 3, 1]], product),
    ("outer", [[512, 64], [512, 64]], lambda x: energy(tanh(x[0][:, :, None] * x[1][:, None]))),
    ("logistic", [[20000, 100], [100]], logistic),
    ("graph", [[2000, 64], [64, 64]],
     lambda x: energy(tanh(scatter(2000, targets, rows(x[0] @ x[1], origins))))),
    ("mixture", [[2000, 16], [32, 16]], lambda x: logsumexp(distances(*x) * -0.5).mean()),
    ("cosine", [[512, 256], [512, 256]], lambda x: energy(unit(x[0]) @ unit(x[1]).T)),
    ("variance_middle", [[64, 256, 64]], lambda x: middle(x[0])),
    ("max_rows", [[2048, 512]], lambda x: energy(greatest(x[0], -1))),
    ("max_columns", [[2048, 512]], lambda x: energy(greatest(x[0], 0))),
    ("top_k", [[256, 1024]], lambda x: energy(top(x[0]))),
    ("vocabulary", [[256, 256], [256, 8000]], lambda x: entropy(x[0] @ x[1], words)),
    ("large_table", [[100000, 32]], lambda x: energy(rows(x[0], keys))),
    ("mean_4m", [[4, 1024, 1024]], lambda x: energy(x[0])),
    ("recurrent_256", [[16, 64, 256], [256, 256], [256, 256]], recurrent),
    ("masked_softmax", [[16, 8, 128, 128]], lambda x: energy(softmax(where(earlier, x[0], -1e30), -1))),
    ("shifted", [[512, 1024]], lambda x: energy(concat([x[0][:, 1:], x[0][:, :1]], 1) * x[0])),
    ("flipped", [[512, 1024]], lambda x: energy(flip(x[0]) * x[0])),
    ("spectrum", [[64, 512], [512, 512], [512, 512]], spectrum),
    ("solve", [[128, 128], [128, 64]],
     lambda x: energy(solve_positive(x[0] @ x[0].T * 0.01 + array(np.eye(128, dtype=np.float32)) * 10.0, x[1]))),
]
singles = [(name, "float32", shapes, loss, True) for name, shapes, loss in JOBS]
for n, (name, dtype, shapes, function, has_gradient) in enumerate(singles + networks.JOBS):
    if names and name not in names:
        continue
    inputs = [data(shape, seed, n >= len(singles)) for seed, shape in enumerate(shapes)]
    step = steps(function, inputs, dtype, has_gradient)
    start = time.perf_counter()
    value = step()
    first = time.perf_counter() - start
    value = float(value if has_gradient else energy(wide(value)))
    times = times_of(step, SAMPLES, SECONDS)
    print(json.dumps({"job": name, "us": round(times[len(times) // 2], 1), "first_us": round(first * 1e6),
                      "loss": value}), flush=True)
