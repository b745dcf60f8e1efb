"""The networks of benches/jobs/networks.rs by JAX or PyTorch."""
from dialect import *

EPSILON = 1e-5


def norm(x, p, at):
    y = batch_norm(x, p[at], p[at + 1])
    return y if system == "jax" else y.permute(0, 2, 3, 1)


def standard(x):
    d = x - x.mean(-1, keepdims=True)
    return d * rsqrt((d * d).mean(-1, keepdims=True) + EPSILON)


def perceptron(x, weights, activation):
    for weight in weights[:-1]:
        x = activation(x @ weight)
    return x @ weights[-1]


def inverted_residual(x):
    h = relu6(norm(conv(x[0], x[1]), x, 2))
    h = relu6(norm(conv(h, x[4], groups=192), x, 5))
    return energy(x[0] + norm(conv(h, x[7]), x, 8))


def u_net(x):
    layer = lambda h, at: relu(conv(h, x[at]))
    fine = layer(x[0], 1)
    middle = layer(half_pool(fine), 2)
    coarse = layer(half_pool(middle), 3)
    middle = layer(concat([conv_up(coarse, x[4]), middle], -1), 5)
    fine = layer(concat([conv_up(middle, x[6]), fine], -1), 7)
    return energy(sigmoid(conv(fine, x[8])))


def parts(x, n, axis=-1):
    width = x.shape[axis] // n
    axis %= x.ndim
    return [x[(slice(None),) * axis + (slice(i * width, (i + 1) * width),)] for i in range(n)]


def block(x, weights, heads, causal):
    batch, positions, width = x.shape
    q, k, v = (part.reshape(batch, positions, heads, width // heads) for part in parts(standard(x) @ weights[0], 3))
    attended = attention(q, k, v, causal, (width // heads) ** -0.5)
    x = x + attended.reshape(batch, positions, width) @ weights[1]
    return x + perceptron(standard(x), weights[2:4], gelu)


def vision_transformer(x):
    tokens = concat([broadcast(x[1], (8, 1, 192)), x[0]], 1) + x[2]
    return energy(standard(block(tokens, x[3:7], 3, False))[:, 0] @ x[7])


def language_model(x):
    h = rows(x[1], numbers(256, 37, 1000)).reshape(4, 64, 128) + x[0]
    for at in (2, 6):
        h = block(h, x[at:at + 4], 4, True)
    return entropy(standard(h).reshape(256, 128) @ x[1].T, numbers(256, 91, 1000))


def mixer(x):
    mixed = x[0] + perceptron(standard(x[0]).swapaxes(1, 2), x[1:3], gelu).swapaxes(1, 2)
    return energy(mixed + perceptron(standard(mixed), x[3:5], gelu))


def variational(x):
    mean, log_variance = parts(perceptron(x[0], x[1:3], relu), 2)
    logits = perceptron(mean + exp(log_variance * 0.5) * x[5], x[3:5], relu)
    divergence = exp(log_variance) + mean * mean - 1.0 - log_variance
    return (softplus(logits) - logits * x[0]).mean() + divergence.mean() * 0.5


def burgers(x):
    u, slope, bend = bends(lambda p: perceptron(p, x[1:], tanh), x[0])
    return energy(slope[:, :1] + u * slope[:, 1:] - bend[:, 1:] * 0.01)


def neural_ode(x):
    slope, y = lambda y: perceptron(y, x[1:3], tanh), x[0]
    for _ in range(20):
        a = slope(y)
        b = slope(y + a * 0.05)
        c = slope(y + b * 0.05)
        d = slope(y + c * 0.1)
        y = y + (a + b * 2.0 + c * 2.0 + d) * (0.1 / 6.0)
    return energy(y)


def recommender(x):
    dense = perceptron(x[0], x[7:9], relu)
    entries = [rows(table, numbers(256, factor, 1000))
               for table, factor in zip(x[1:7], (7, 11, 13, 17, 19, 23))]
    features = stack([dense] + entries, 1)
    pairs = (features @ features.swapaxes(1, 2)).reshape(256, 49)
    logits = perceptron(concat([pairs, dense], 1), x[9:11], relu)
    return (softplus(logits) - logits * 0.3).mean()


def flow(x):
    (kept, moved), volume = parts(x[0], 2), 0.0
    for at in range(1, 9, 2):
        scale, offset = parts(perceptron(kept, x[at:at + 2], tanh), 2)
        scale = tanh(scale)
        kept, moved = moved * exp(scale) + offset, kept
        volume = volume + scale.sum(1)
    return ((kept * kept + moved * moved).sum(1) * 0.5 - volume).mean()


def policy(x):
    chances = log_softmax(perceptron(x[0], x[1:4], tanh))
    ratio = exp(along(chances, numbers(2048, 7, 5).reshape(2048, 1))[:, 0] + 1.6)
    gain = minimum(ratio * x[4], clip(ratio, 0.8, 1.2) * x[4]).mean()
    return (exp(chances) * chances).sum(-1).mean() * 0.01 - gain


def wave(x):
    h = x[0]
    for at, reach in zip(range(1, 9, 2), (1, 2, 4, 8)):
        a, b = parts(conv_late(h, x[at], reach), 2)
        h = h + conv(tanh(a) * sigmoid(b), x[at + 1])
    return energy(h)


def critic(x):
    score, slope = slopes(lambda p: perceptron(p, x[1:], leaky), x[0])
    length = sqrt((slope * slope).sum(-1))
    return score.mean() + ((length - 1.0) ** 2).mean() * 10.0


def point_cloud(x):
    features = greatest(perceptron(x[0], x[1:4], relu), 1)
    return entropy(perceptron(features, x[4:6], relu), numbers(16, 7, 10))


def convolutional_lstm(x):
    h = c = zeros((4, 16, 16, 16))
    for step in range(5):
        i, f, g, o = parts(conv(concat([x[0][step], h], -1), x[1]), 4)
        c = sigmoid(f) * c + sigmoid(i) * tanh(g)
        h = sigmoid(o) * tanh(c)
    return energy(h)


def radiance(x):
    waves = [wave for n in range(6) for wave in (sin(x[0] * 2.0 ** n), cos(x[0] * 2.0 ** n))]
    out = perceptron(concat([x[0]] + waves, 1), x[1:], relu).reshape(64, 32, 4)
    clear = exp(softplus(out[:, :, 3:4]) * -0.1)
    reaching = concat([ones((64, 1, 1)), cumprod(clear[:, :31], 1)], 1)
    return energy(((1.0 - clear) * reaching * sigmoid(out[:, :, :3])).sum(1))


def shuffled_groups(x):
    h = relu(conv(x[0], x[1], groups=4)).reshape(8, 28, 28, 4, 16).swapaxes(3, 4).reshape(8, 28, 28, 64)
    return energy(relu(x[0] + conv(conv(h, x[2], groups=64), x[3], groups=4)))


def dense_block(x):
    h = x[0]
    for weight in x[1:]:
        h = concat([h, conv(relu(h), weight)], -1)
    return energy(h)


def characters(x):
    letters = (rows(x[0], numbers(512, 37, 64)) @ x[1]).reshape(32, 16, 128)
    h, outputs = zeros((16, 128)), []
    for step in range(32):
        h = tanh(letters[step] + h @ x[2])
        outputs.append(h)
    return entropy(stack(outputs, 0).reshape(512, 128) @ x[3], numbers(512, 29, 64))


def mixture_density(x):
    chance, mean, log_scale = parts(perceptron(x[0], x[1:3], tanh), 3)
    distance = (x[3] - mean) * exp(-log_scale)
    return -logsumexp(log_softmax(chance) - distance * distance * 0.5 - log_scale).mean()


def kalman(x):
    state, spread, noise = zeros((64, 4)), broadcast(eye(4), (64, 4, 4)), eye(4) * 0.1
    for step in range(20):
        state = state @ x[1].T
        spread = x[1] @ spread @ x[1].T + noise
        column = spread[:, :, :1]
        gain = column[:, :, 0] / (spread[:, 0, :1] + 0.5)
        state = state + gain * (x[0][step][:, None] - state[:, :1])
        spread = spread - gain[:, :, None] * column.swapaxes(1, 2)
    return energy(state) + energy(spread)


def bottleneck(x):
    return relu(x[0] + conv(relu(conv(relu(conv(x[0], x[1])), x[2])), x[3]))


def structural_similarity(x):
    u, v = pool_means(x[0]), pool_means(x[1])
    uu, vv = pool_means(x[0] * x[0]) - u * u, pool_means(x[1] * x[1]) - v * v
    uv = pool_means(x[0] * x[1]) - u * v
    return ((u * v * 2 + 0.01) * (uv * 2 + 0.03) / ((u * u + v * v + 0.01) * (uu + vv + 0.03))).mean()


def messages(x):
    sources, targets = numbers(40000, 37, 2000), numbers(40000, 91, 2000)
    return energy(scatter(2000, targets, rows(x[1], sources) * x[0][:, None]))


def polynomial(x):
    y = x[0] * 0.5
    for n in range(30):
        y = y * x[0] + 0.1 * n
    return energy(y)


def oscillators(x):
    place, speed = x
    for _ in range(30):
        force = place * (1.0 - place * place) - speed * 0.1
        place, speed = place + speed * 0.05, speed + force * 0.05
    return energy(place) + energy(speed)


def decoding(x):
    keys, values = (concat([x[n][:, 1:], x[n + 2]], 1) for n in (1, 2))
    return attention(x[0], keys, values, False)


def box_overlaps(x):
    low, high = x[0][:, :2] * 0.5 - 1, x[0][:, 2:] * 0.5 + 1
    common = relu(minimum(high[None], high[:, None]) - maximum(low[None], low[:, None]))
    common = common[..., 0] * common[..., 1]
    sides = high - low
    areas = sides[:, 0] * sides[:, 1]
    return common / (areas[None] + areas[:, None] - common)


MLP = [[784, 512], [512, 512], [512, 10]]
NORM = [[192], [192]]
classify = lambda x: softmax(perceptron(x[0], x[1:], relu), -1)
WAVE = [[1, 2, 32, 64], [1, 1, 32, 32]] * 4
GPT = [[128, 384], [128, 128], [128, 512], [512, 128]] * 2
COUPLING = [[16, 64], [64, 32]] * 4
BOTTLENECK = [[1, 1, 256, 64], [3, 3, 64, 64], [1, 1, 64, 256]]
with_gradient = [
    ("inverted_residual", [[8, 28, 28, 32], [1, 1, 32, 192], *NORM, [3, 3, 1, 192], *NORM, [1, 1, 192, 32], [32], [32]],
     inverted_residual),
    ("u_net", [[4, 64, 64, 4], [3, 3, 4, 16], [3, 3, 16, 32], [3, 3, 32, 64], [2, 2, 32, 64], [3, 3, 64, 32],
               [2, 2, 16, 32], [3, 3, 32, 16], [1, 1, 16, 1]], u_net),
    ("vision_transformer", [[8, 64, 192], [1, 1, 192], [65, 192], [192, 576], [192, 192], [192, 768], [768, 192],
                            [192, 10]], vision_transformer),
    ("language_model", [[64, 128], [1000, 128], *GPT], language_model),
    ("gated_recurrent", [[32, 32, 64], [64, 384], [128, 384], [384], [128]], lambda x: energy(gru(*x))),
    ("mixer", [[16, 64, 128], [64, 128], [128, 64], [128, 512], [512, 128]], mixer),
    ("variational", [[128, 784], [784, 256], [256, 32], [16, 256], [256, 784], [128, 16]], variational),
    ("burgers", [[1024, 2], [2, 64], [64, 64], [64, 1]], burgers),
    ("neural_ode", [[64, 16], [16, 64], [64, 16]], neural_ode),
    ("recommender", [[256, 13], *[[1000, 16]] * 6, [13, 64], [64, 16], [65, 64], [64, 1]], recommender),
    ("flow", [[256, 32], *COUPLING], flow),
    ("policy", [[2048, 8], [8, 64], [64, 64], [64, 5], [2048]], policy),
    ("wave", [[4, 1, 512, 32], *WAVE], wave),
    ("critic", [[128, 64], [64, 128], [128, 128], [128, 1]], critic),
    ("point_cloud", [[16, 256, 3], [3, 64], [64, 128], [128, 256], [256, 64], [64, 10]], point_cloud),
    ("convolutional_lstm", [[5, 4, 16, 16, 8], [3, 3, 24, 64]], convolutional_lstm),
    ("sine_layers", [[4096, 2], [2, 128], [128, 128], [128, 3]],
     lambda x: energy(perceptron(x[0], x[1:], lambda h: sin(h * 3.0)))),
    ("radiance", [[2048, 3], [39, 64], [64, 64], [64, 4]], radiance),
    ("shuffled_groups", [[8, 28, 28, 64], [1, 1, 16, 64], [3, 3, 1, 64], [1, 1, 16, 64]], shuffled_groups),
    ("dense_block", [[8, 28, 28, 32], [3, 3, 32, 16], [3, 3, 48, 16], [3, 3, 64, 16], [3, 3, 80, 16]], dense_block),
    ("characters", [[64, 32], [32, 128], [128, 128], [128, 64]], characters),
    ("mixture_density", [[512, 8], [8, 64], [64, 24], [512, 1]], mixture_density),
    ("hyper_network", [[64, 32], [32, 256], [64, 8, 16]],
     lambda x: energy(tanh(x[2] @ (x[0] @ x[1]).reshape(64, 16, 16)))),
    ("attention_written_out", [[8, 4, 128, 64]] * 3,
     lambda x: energy(softmax(x[0] @ x[1].swapaxes(2, 3) * 0.125, -1) @ x[2])),
    ("kalman", [[20, 64], [4, 4]], kalman),
    ("turned_weight", [[128, 10000], [64, 10000]], lambda x: energy(x[0] @ x[1].T)),
    ("padded", [[1000, 1000]], lambda x: energy(tanh(pad(x[0])))),
    ("tiny_matrices", [[10000, 3, 3]] * 2, lambda x: energy(x[0] @ x[1])),
    ("rows_of_10", [[1000, 10], [50000, 10]], lambda x: energy(rows(x[0], numbers(50000, 37, 1000)) * x[1])),
    ("top_k_100", [[10000, 100]], lambda x: energy(top(x[0]))),
    ("structural_similarity", [[8, 64, 64, 3]] * 2, structural_similarity),
    ("latents", [[2, 16, 4, 64], *[[2, 1024, 4, 64]] * 2], lambda x: energy(attention(*x, False))),
    ("messages", [[40000], [2000, 16]], messages),
    ("layer_norm_12", [[50000, 12], [12], [12]], lambda x: energy(layer_norm(*x))),
    ("polynomial", [[512, 1024]], polynomial),
    ("oscillators", [[512, 512]] * 2, oscillators),
]
results = [
    ("bottleneck_one", [[1, 56, 56, 256], *BOTTLENECK], bottleneck),
    ("bottleneck_8", [[8, 28, 28, 256], *BOTTLENECK], bottleneck),
    ("perceptron_forward_one", [[1, 784], *MLP], classify),
    ("perceptron_forward_64", [[64, 784], *MLP], classify),
    ("attention_forward_one", [[1, 512, 8, 64]] * 3, lambda x: attention(*x, True)),
    ("block_forward", [[1, 128, 256], [256, 768], [256, 256], [256, 1024], [1024, 256]],
     lambda x: block(x[0], x[1:], 4, True)),
    ("softmax_forward", [[1024, 1024]], lambda x: softmax(x[0], -1)),
    ("tanh_forward", [[1024, 1024]], lambda x: tanh(x[0])),
    ("gram_forward", [[4, 64, 1024]], lambda x: x[0] @ x[0].swapaxes(1, 2)),
    ("transposed_sum", [[1024, 1024]], lambda x: x[0].T + x[0]),
    ("channels_first", [[8, 56, 56, 64], [8, 64, 56, 56]], lambda x: relu(permute(x[0], (0, 3, 1, 2))) + x[1]),
    ("reversed_axes", [[64, 128, 256], [256, 128, 64]], lambda x: permute(x[0], (2, 1, 0)) + x[1]),
    ("log_softmax_10", [[65536, 10]], lambda x: log_softmax(x[0])),
    ("cumsum_8", [[100000, 8]], lambda x: cumsum(x[0], 1)),
    ("sort_10", [[65536, 10]], lambda x: sort(x[0], 1)),
    ("sort_3", [[300000, 3]], lambda x: sort(x[0], 1)),
    ("decoding_one", [[1, 1, 8, 64], *[[1, 1024, 8, 64]] * 2, *[[1, 1, 8, 64]] * 2], decoding),
    ("decoding_8", [[8, 1, 8, 64], *[[8, 1024, 8, 64]] * 2, *[[8, 1, 8, 64]] * 2], decoding),
    ("rows_4", [[4, 2048], [2048, 8192]], lambda x: x[0] @ x[1]),
    ("rows_16", [[16, 4096], [4096, 4096]], lambda x: x[0] @ x[1]),
    ("rows_8", [[8, 4096], [4096, 4096]], lambda x: x[0] @ x[1]),
    ("rows_24", [[24, 4096], [4096, 4096]], lambda x: x[0] @ x[1]),
    ("turned_row", [[1, 2048], [2048, 2048]], lambda x: x[0] @ x[1].T),
    ("turned_rows_8", [[8, 4096], [4096, 4096]], lambda x: x[0] @ x[1].T),
    ("sum_of_columns", [[4096, 4096]], lambda x: x[0].sum(0)),
    ("argmax_columns", [[100000, 160]], lambda x: wide(argmax_columns(x[0]))),
    ("box_overlaps", [[1000, 4]], box_overlaps),
    ("argmax_10", [[65536, 10]], lambda x: wide(argmax(x[0]))),
    ("argmax_1000", [[1000, 1000]], lambda x: wide(argmax(x[0]))),
    ("remainder_i32", [[1024, 1024]], lambda x: wide(remainder(whole(x[0] * 1000), 7))),
    ("remainder", [[1024, 1024]] * 2, lambda x: remainder(x[0], x[1])),
]
of_dtypes = [
    ("matmul_f64", "float64", [[512, 512], [512, 512]], lambda x: energy(x[0] @ x[1])),
    ("tanh_f64", "float64", [[512, 1024]], lambda x: energy(tanh(x[0]))),
    ("softmax_f64", "float64", [[512, 1024]], lambda x: energy(softmax(x[0], -1))),
    ("sines_f64", "float64", [[512, 512]], lambda x: energy(sin(x[0]) * cos(x[0]))),
    ("layer_norm_f64", "float64", [[512, 768], [768], [768]], lambda x: energy(layer_norm(*x))),
    ("conv_f64", "float64", [[8, 28, 28, 32], [3, 3, 32, 32]], lambda x: energy(conv(*x))),
    ("perceptron_f64", "float64", [[64, 128], [128, 128], [128, 128], [128, 10]],
     lambda x: energy(perceptron(x[0], x[1:], tanh))),
    ("cumsum_f64", "float64", [[512, 512]], lambda x: energy(cumsum(x[0], 1))),
]
# Computed in 16 bits where a system does so by itself.
halves = [
    ("tanh_bf16", "bfloat16", [[1024, 1024]], lambda x: tanh(x[0])),
    ("softmax_bf16", "bfloat16", [[1024, 1024]], lambda x: softmax(x[0], -1)),
    ("layer_norm_bf16", "bfloat16", [[512, 768], [768], [768]], lambda x: layer_norm(*x)),
    ("row_bf16", "bfloat16", [[1, 4096], [4096, 4096]], lambda x: x[0] @ x[1]),
    ("rows_4_bf16", "bfloat16", [[4, 4096], [4096, 4096]], lambda x: x[0] @ x[1]),
    ("column_f16", "float16", [[1024, 1024], [1024, 1]], lambda x: x[0] @ x[1]),
    ("reversed_f16", "float16", [[1024, 1024]], lambda x: reverse(x[0])),
    ("gelu_f16", "float16", [[1024, 1024]], lambda x: gelu(x[0])),
]
JOBS = ([(name, "float32", shapes, loss, True) for name, shapes, loss in with_gradient]
        + [(name, "float32", shapes, function, False) for name, shapes, function in results]
        + [(name, dtype, shapes, loss, True) for name, dtype, shapes, loss in of_dtypes]
        + [(name, dtype, shapes, function, False) for name, dtype, shapes, function in halves])
