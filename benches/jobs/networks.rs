//! Small networks of many kinds, and steps of inference.

use retape::nn;
use retape::ops::{ConvOptions, Padding};
use retape::{DType, Tensor, concat, einsum, stack};

use super::{Job, attention, energy, forward, job, numbers, product, same};

const EPSILON: f64 = 1e-5;

/// Batch norm with the scale and the offset at `at`.
fn norm(x: &Tensor, parameters: &[Tensor], at: usize) -> Tensor {
    nn::batch_norm(x, &parameters[at], &parameters[at + 1], EPSILON).0
}

/// Layer norm without a scale and an offset.
fn standard(x: &Tensor) -> Tensor {
    let d = x - x.mean_keep(-1);
    &d * (d.square().mean_keep(-1) + EPSILON).rsqrt()
}

/// Layers of a perceptron: `activation` stands between them.
fn perceptron(x: &Tensor, weights: &[Tensor], activation: fn(&Tensor) -> Tensor) -> Tensor {
    let (last, inner) = weights.split_last().expect("a perceptron has a layer");
    inner.iter().fold(x.clone(), |h, weight| activation(&h.matmul(weight))).matmul(last)
}

fn inverted_residual(x: &[Tensor]) -> Tensor {
    let h = norm(&x[0].conv2d(&x[1], ConvOptions::same()), x, 2).relu6();
    let h = norm(&h.conv2d(&x[4], ConvOptions::same().groups(192)), x, 5).relu6();
    energy(&(&x[0] + norm(&h.conv2d(&x[7], ConvOptions::same()), x, 8)))
}

fn u_net(x: &[Tensor]) -> Tensor {
    let conv = |h: &Tensor, at: usize| h.conv2d(&x[at], ConvOptions::same()).relu();
    let down = |h: &Tensor| h.max_pool2d([2, 2], [2, 2], Padding::Valid);
    let up = |h: &Tensor, at: usize| h.conv_transpose2d(&x[at], ConvOptions::same().stride(2));
    let fine = conv(&x[0], 1);
    let middle = conv(&down(&fine), 2);
    let coarse = conv(&down(&middle), 3);
    let middle = conv(&concat(&[&up(&coarse, 4), &middle], -1), 5);
    let fine = conv(&concat(&[&up(&middle, 6), &fine], -1), 7);
    energy(&fine.conv2d(&x[8], ConvOptions::same()).sigmoid())
}

/// One block with `heads` heads of attention: weights of queries, keys and values, of the output, and of the perceptron.
fn block(x: &Tensor, weights: &[Tensor], heads: usize, mask: nn::Mask) -> Tensor {
    let (batch, positions, width) = (x.dim(0), x.dim(1), x.dim(2));
    let [q, k, v] = standard(x)
        .matmul(&weights[0])
        .chunk_array(-1)
        .map(|part: Tensor| part.reshape([batch, positions, heads, width / heads]));
    let scale = 1.0 / ((width / heads) as f64).sqrt();
    let attended = nn::attention(&q, &k, &v, scale, mask).reshape([batch, positions, width]);
    let x = x + attended.matmul(&weights[1]);
    &x + perceptron(&standard(&x), &weights[2..4], Tensor::gelu_tanh)
}

fn vision_transformer(x: &[Tensor]) -> Tensor {
    let tokens = concat(&[&x[1].broadcast_to([8, 1, 192]), &x[0]], 1) + &x[2];
    energy(&standard(&block(&tokens, &x[3..7], 3, nn::Mask::None)).slice_axis(1, 0..1).squeeze(1).matmul(&x[7]))
}

fn language_model(x: &[Tensor]) -> Tensor {
    let start = nn::embedding(&x[1], &numbers(256, 37, 1000)).reshape([4, 64, 128]) + &x[0];
    let last = x[2..].chunks(4).fold(start, |h, weights| block(&h, weights, 4, nn::Mask::Causal));
    nn::softmax_cross_entropy_labels(&standard(&last).reshape([256, 128]).matmul(&x[1].t()), &numbers(256, 91, 1000))
}

fn gated_recurrent(x: &[Tensor]) -> Tensor {
    let steps = x[0].dim(0);
    let start = Tensor::zeros([x[0].dim(1), x[2].dim(0)]);
    energy(&(0..steps).fold(start, |h, step| nn::gru_cell(&x[0].at(step), &h, &x[1], &x[2], &x[3], &x[4])))
}

fn mixer(x: &[Tensor]) -> Tensor {
    let mixed = &x[0] + perceptron(&standard(&x[0]).swap_axes(1, 2), &x[1..3], Tensor::gelu_tanh).swap_axes(1, 2);
    energy(&(&mixed + perceptron(&standard(&mixed), &x[3..5], Tensor::gelu_tanh)))
}

fn variational(x: &[Tensor]) -> Tensor {
    let [mean, log_variance] = perceptron(&x[0], &x[1..3], Tensor::relu).chunk_array(-1);
    let code = &mean + (&log_variance * 0.5).exp() * &x[5];
    let logits = perceptron(&code, &x[3..5], Tensor::relu);
    let divergence = log_variance.exp() + mean.square() - 1.0 - log_variance;
    (logits.softplus() - logits * &x[0]).mean(..) + divergence.mean(..) * 0.5
}

/// The residual of Burgers' equation at points of time and place.
fn burgers(x: &[Tensor]) -> Tensor {
    let u = perceptron(&x[0], &x[1..], Tensor::tanh);
    let slopes = u.sum(..).grad(&x[0]);
    let [by_time, by_place] = slopes.chunk_array(1);
    let curvature = by_place.sum(..).grad(&x[0]).slice_axis(1, 1..2);
    energy(&(by_time + u * by_place - curvature * 0.01))
}

/// Twenty steps of Runge and Kutta.
fn neural_ode(x: &[Tensor]) -> Tensor {
    let slope = |y: Tensor| perceptron(&y, &x[1..3], Tensor::tanh);
    energy(&(0..20).fold(x[0].clone(), |y, _| {
        let a = slope(y.clone());
        let b = slope(&y + &a * 0.05);
        let c = slope(&y + &b * 0.05);
        let d = slope(&y + &c * 0.1);
        y + (a + b * 2.0 + c * 2.0 + d) * (0.1 / 6.0)
    }))
}

fn recommender(x: &[Tensor]) -> Tensor {
    let dense = perceptron(&x[0], &x[7..9], Tensor::relu);
    let factors = [7, 11, 13, 17, 19, 23];
    let entries = x[1..7].iter().zip(factors).map(|(table, factor)| nn::embedding(table, &numbers(256, factor, 1000)));
    let features: Vec<Tensor> = std::iter::once(dense.clone()).chain(entries).collect();
    let features = stack(&features.iter().collect::<Vec<_>>(), 1);
    let pairs = features.matmul(&features.swap_axes(1, 2)).reshape([256, 49]);
    let logits = perceptron(&concat(&[&pairs, &dense], 1), &x[9..11], Tensor::relu);
    (logits.softplus() - logits * 0.3).mean(..)
}

/// Coupling layers, each of which scales and moves one half by what it makes of the other.
fn flow(x: &[Tensor]) -> Tensor {
    let [mut kept, mut moved] = x[0].chunk_array(1);
    let mut volume = Tensor::zeros([256]);
    for weights in x[1..].chunks(2) {
        let [scale, offset] = perceptron(&kept, weights, Tensor::tanh).chunk_array(1);
        let scale = scale.tanh();
        (kept, moved) = (moved * scale.exp() + offset, kept);
        volume = volume + scale.sum(1);
    }
    ((kept.square() + moved.square()).sum(1) * 0.5 - volume).mean(..)
}

fn policy(x: &[Tensor]) -> Tensor {
    let log_chances = perceptron(&x[0], &x[1..4], Tensor::tanh).log_softmax(-1);
    let chosen = log_chances.take_along(&numbers(2048, 7, 5).reshape([2048, 1]), 1).squeeze(1);
    let ratio = (chosen + 1.6).exp();
    let gain = (&ratio * &x[4]).minimum(ratio.clamp(0.8, 1.2) * &x[4]).mean(..);
    (log_chances.exp() * &log_chances).sum(-1).mean(..) * 0.01 - gain
}

/// Gated convolutions that see the past alone, each twice as far.
fn wave(x: &[Tensor]) -> Tensor {
    let layers = x[1..].chunks(2).zip([1, 2, 4, 8]);
    energy(&layers.fold(x[0].clone(), |h, (weights, reach)| {
        let late = h.pad(&[0, 0, reach, 0], &[0; 4], 0.0_f32);
        let [a, b] = late.conv2d(&weights[0], ConvOptions::default().dilation(reach)).chunk_array(-1);
        h + (a.tanh() * b.sigmoid()).conv2d(&weights[1], ConvOptions::same())
    }))
}

/// A critic whose slope is held near one.
fn critic(x: &[Tensor]) -> Tensor {
    let score = perceptron(&x[0], &x[1..], |h| h.leaky_relu(0.2));
    let slope = score.sum(..).grad(&x[0]).square().sum(-1).sqrt();
    score.mean(..) + (slope - 1.0).square().mean(..) * 10.0
}

fn point_cloud(x: &[Tensor]) -> Tensor {
    let features = perceptron(&x[0], &x[1..4], Tensor::relu).max(1);
    nn::softmax_cross_entropy_labels(&perceptron(&features, &x[4..6], Tensor::relu), &numbers(16, 7, 10))
}

fn convolutional_lstm(x: &[Tensor]) -> Tensor {
    let zero = Tensor::zeros([4, 16, 16, 16]);
    let (h, _) = (0..5).fold((zero.clone(), zero), |(h, c), step| {
        let z = concat(&[&x[0].at(step), &h], -1).conv2d(&x[1], ConvOptions::same());
        let [i, f, g, o]: [Tensor; 4] = z.chunk_array(-1);
        let c = f.sigmoid() * c + i.sigmoid() * g.tanh();
        (o.sigmoid() * c.tanh(), c)
    });
    energy(&h)
}

/// Colours along rays, by a perceptron of places.
fn radiance(x: &[Tensor]) -> Tensor {
    let waves = (0..6).flat_map(|n| {
        let scaled = &x[0] * f64::from(1 << n);
        [scaled.sin(), scaled.cos()]
    });
    let features: Vec<Tensor> = std::iter::once(x[0].clone()).chain(waves).collect();
    let out = perceptron(&concat(&features.iter().collect::<Vec<_>>(), 1), &x[1..], Tensor::relu).reshape([64, 32, 4]);
    let clear = (out.slice_axis(2, 3..4).softplus() * -0.1).exp();
    let reaching = concat(&[&Tensor::ones([64, 1, 1]), &clear.slice_axis(1, 0..31).cumprod(1)], 1);
    energy(&((1.0_f32 - clear) * reaching * out.slice_axis(2, 0..3).sigmoid()).sum(1))
}

fn shuffled_groups(x: &[Tensor]) -> Tensor {
    let grouped = |h: &Tensor, at: usize| h.conv2d(&x[at], ConvOptions::same().groups(4));
    let h = grouped(&x[0], 1).relu().reshape([8, 28, 28, 4, 16]).swap_axes(3, 4).reshape([8, 28, 28, 64]);
    energy(&(&x[0] + grouped(&h.conv2d(&x[2], ConvOptions::same().groups(64)), 3)).relu())
}

fn dense_block(x: &[Tensor]) -> Tensor {
    energy(
        &x[1..].iter().fold(x[0].clone(), |h, filter| concat(&[&h, &h.relu().conv2d(filter, ConvOptions::same())], -1)),
    )
}

fn characters(x: &[Tensor]) -> Tensor {
    let letters = nn::embedding(&x[0], &numbers(512, 37, 64)).matmul(&x[1]).reshape([32, 16, 128]);
    let mut h = Tensor::zeros([16, 128]);
    let outputs: Vec<Tensor> = (0..32)
        .map(|step| {
            h = (letters.at(step) + h.matmul(&x[2])).tanh();
            h.clone()
        })
        .collect();
    nn::softmax_cross_entropy_labels(
        &stack(&outputs.iter().collect::<Vec<_>>(), 0).reshape([512, 128]).matmul(&x[3]),
        &numbers(512, 29, 64),
    )
}

fn mixture_density(x: &[Tensor]) -> Tensor {
    let [chance, mean, log_scale] = perceptron(&x[0], &x[1..3], Tensor::tanh).chunk_array(1);
    let distance = (&x[3] - mean) * (-&log_scale).exp();
    -(chance.log_softmax(-1) - distance.square() * 0.5 - log_scale).logsumexp(-1).mean(..)
}

/// Twenty steps of a Kalman filter over states of four numbers, of which the first is observed.
fn kalman(x: &[Tensor]) -> Tensor {
    let noise = Tensor::eye(4) * 0.1;
    let turned = x[1].t();
    let start = (Tensor::zeros([64, 4]), Tensor::eye(4).broadcast_to([64, 4, 4]));
    let (state, spread) = (0..20).fold(start, |(state, spread), step| {
        let state = state.matmul(&turned);
        let spread = x[1].matmul(&spread).matmul(&turned) + &noise;
        let column = spread.slice_axis(2, 0..1);
        let gain = column.squeeze(2) / (spread.slice(&[0, 0, 0], &[64, 1, 1], &[1, 1, 1]).squeeze(2) + 0.5);
        let missed = x[0].at(step).unsqueeze(1) - state.slice_axis(1, 0..1);
        let spread = &spread - gain.unsqueeze(2) * column.swap_axes(1, 2);
        (state + gain * missed, spread)
    });
    energy(&state) + energy(&spread)
}

/// Thirty steps of damped oscillators whose springs grow stiffer.
fn oscillators(x: &[Tensor]) -> Tensor {
    let (place, speed) = (0..30).fold((x[0].clone(), x[1].clone()), |(place, speed), _| {
        let force = &place * (1.0_f32 - place.square()) - &speed * 0.1;
        (&place + &speed * 0.05, speed + force * 0.05)
    });
    energy(&place) + energy(&speed)
}

fn bottleneck(x: &[Tensor]) -> Tensor {
    let h = x[1..3].iter().fold(x[0].clone(), |h, filter| h.conv2d(filter, ConvOptions::same()).relu());
    (&x[0] + h.conv2d(&x[3], ConvOptions::same())).relu()
}

/// The structural similarity of two images under windows of 7x7, as Wang et al. (2004) define it, with means for weights.
fn structural_similarity(x: &[Tensor]) -> Tensor {
    let mean = |x: &Tensor| x.avg_pool2d([7, 7], [1, 1], Padding::Valid);
    let [u, v] = [&x[0], &x[1]].map(mean);
    let [uu, vv] = [(&x[0], &u), (&x[1], &v)].map(|(x, mean_of_x)| mean(&x.square()) - mean_of_x.square());
    let uv = mean(&(&x[0] * &x[1])) - &u * &v;
    let (means, variances) = (u.square() + v.square() + 0.01, uu + vv + 0.03);
    ((&u * &v * 2.0 + 0.01) * (uv * 2.0 + 0.03) / (means * variances)).mean(..)
}

/// Sums of messages along 40,000 edges of a graph with 2,000 nodes.
fn messages(x: &[Tensor]) -> Tensor {
    let (from, to) = (numbers(40_000, 37, 2000), numbers(40_000, 91, 2000));
    let messages = x[1].take(&from, 0) * x[0].unsqueeze(1);
    energy(&Tensor::zeros([2000, 16]).scatter_add(0, &to, &messages))
}

/// A query over a cache of keys and values, from which the oldest go and to which the newest are joined.
fn decoding(x: &[Tensor]) -> Tensor {
    let [keys, values] = [1, 2].map(|n| concat(&[&x[n].slice_axis(1, 1..), &x[n + 2]], 1));
    nn::attention(&x[0], &keys, &values, 0.125, nn::Mask::None)
}

/// The shares of their union that pairs of boxes have in common, from their least and greatest coordinates.
fn box_overlaps(x: &[Tensor]) -> Tensor {
    let [low, high] = x[0].chunk_array(1).map(|corner| corner * 0.5);
    let (low, high) = (low - 1.0, high + 1.0);
    let area = |low: &Tensor, high: &Tensor| {
        let sides = high - low;
        sides.at((.., 0)) * sides.at((.., 1))
    };
    let common = high.unsqueeze(0).minimum(high.unsqueeze(1)) - low.unsqueeze(0).maximum(low.unsqueeze(1));
    let common = common.relu();
    let common = common.at((.., .., 0)) * common.at((.., .., 1));
    let areas = area(&low, &high);
    &common / (areas.unsqueeze(0) + areas.unsqueeze(1) - &common)
}

/// Computes in `f32` what is stored in half of it.
fn in_f32(x: &[Tensor], function: fn(&[Tensor]) -> Tensor) -> Tensor {
    let wide: Vec<Tensor> = x.iter().map(|x| x.cast(DType::F32)).collect();
    function(&wide).cast(x[0].dtype())
}

/// Of dtype `dtype` instead of `f32`.
const fn of(dtype: DType, job: Job) -> Job {
    Job { dtype, ..job }
}

pub(super) const JOBS: &[Job] = &[
    job(
        "inverted_residual",
        &[
            &[8, 28, 28, 32],
            &[1, 1, 32, 192],
            &[192],
            &[192],
            &[3, 3, 1, 192],
            &[192],
            &[192],
            &[1, 1, 192, 32],
            &[32],
            &[32],
        ],
        inverted_residual,
    ),
    job(
        "u_net",
        &[
            &[4, 64, 64, 4],
            &[3, 3, 4, 16],
            &[3, 3, 16, 32],
            &[3, 3, 32, 64],
            &[2, 2, 32, 64],
            &[3, 3, 64, 32],
            &[2, 2, 16, 32],
            &[3, 3, 32, 16],
            &[1, 1, 16, 1],
        ],
        u_net,
    ),
    job(
        "vision_transformer",
        &[&[8, 64, 192], &[1, 1, 192], &[65, 192], &[192, 576], &[192, 192], &[192, 768], &[768, 192], &[192, 10]],
        vision_transformer,
    ),
    job(
        "language_model",
        &[
            &[64, 128],
            &[1000, 128],
            &[128, 384],
            &[128, 128],
            &[128, 512],
            &[512, 128],
            &[128, 384],
            &[128, 128],
            &[128, 512],
            &[512, 128],
        ],
        language_model,
    ),
    job("gated_recurrent", &[&[32, 32, 64], &[64, 384], &[128, 384], &[384], &[128]], gated_recurrent),
    job("mixer", &[&[16, 64, 128], &[64, 128], &[128, 64], &[128, 512], &[512, 128]], mixer),
    job("variational", &[&[128, 784], &[784, 256], &[256, 32], &[16, 256], &[256, 784], &[128, 16]], variational),
    job("burgers", &[&[1024, 2], &[2, 64], &[64, 64], &[64, 1]], burgers),
    job("neural_ode", &[&[64, 16], &[16, 64], &[64, 16]], neural_ode),
    job(
        "recommender",
        &[
            &[256, 13],
            &[1000, 16],
            &[1000, 16],
            &[1000, 16],
            &[1000, 16],
            &[1000, 16],
            &[1000, 16],
            &[13, 64],
            &[64, 16],
            &[65, 64],
            &[64, 1],
        ],
        recommender,
    ),
    job(
        "flow",
        &[&[256, 32], &[16, 64], &[64, 32], &[16, 64], &[64, 32], &[16, 64], &[64, 32], &[16, 64], &[64, 32]],
        flow,
    ),
    job("policy", &[&[2048, 8], &[8, 64], &[64, 64], &[64, 5], &[2048]], policy),
    job(
        "wave",
        &[
            &[4, 1, 512, 32],
            &[1, 2, 32, 64],
            &[1, 1, 32, 32],
            &[1, 2, 32, 64],
            &[1, 1, 32, 32],
            &[1, 2, 32, 64],
            &[1, 1, 32, 32],
            &[1, 2, 32, 64],
            &[1, 1, 32, 32],
        ],
        wave,
    ),
    job("critic", &[&[128, 64], &[64, 128], &[128, 128], &[128, 1]], critic),
    job("point_cloud", &[&[16, 256, 3], &[3, 64], &[64, 128], &[128, 256], &[256, 64], &[64, 10]], point_cloud),
    job("convolutional_lstm", &[&[5, 4, 16, 16, 8], &[3, 3, 24, 64]], convolutional_lstm),
    job("sine_layers", &[&[4096, 2], &[2, 128], &[128, 128], &[128, 3]], |x| {
        energy(&perceptron(&x[0], &x[1..], |h| (h * 3.0).sin()))
    }),
    job("radiance", &[&[2048, 3], &[39, 64], &[64, 64], &[64, 4]], radiance),
    job("shuffled_groups", &[&[8, 28, 28, 64], &[1, 1, 16, 64], &[3, 3, 1, 64], &[1, 1, 16, 64]], shuffled_groups),
    job(
        "dense_block",
        &[&[8, 28, 28, 32], &[3, 3, 32, 16], &[3, 3, 48, 16], &[3, 3, 64, 16], &[3, 3, 80, 16]],
        dense_block,
    ),
    job("characters", &[&[64, 32], &[32, 128], &[128, 128], &[128, 64]], characters),
    job("mixture_density", &[&[512, 8], &[8, 64], &[64, 24], &[512, 1]], mixture_density),
    job("hyper_network", &[&[64, 32], &[32, 256], &[64, 8, 16]], |x| {
        energy(&x[2].matmul(&x[0].matmul(&x[1]).reshape([64, 16, 16])).tanh())
    }),
    job("attention_written_out", &[&[8, 4, 128, 64], &[8, 4, 128, 64], &[8, 4, 128, 64]], |x| {
        energy(&(x[0].matmul(&x[1].swap_axes(2, 3)) * 0.125).softmax(-1).matmul(&x[2]))
    }),
    job("kalman", &[&[20, 64], &[4, 4]], kalman),
    job("turned_weight", &[&[128, 10_000], &[64, 10_000]], |x| energy(&x[0].matmul(&x[1].t()))),
    job("padded", &[&[1000, 1000]], |x| energy(&x[0].pad(&[1, 1], &[1, 1], 0.0_f32).tanh())),
    job("tiny_matrices", &[&[10_000, 3, 3], &[10_000, 3, 3]], |x| energy(&x[0].matmul(&x[1]))),
    job("rows_of_10", &[&[1000, 10], &[50_000, 10]], |x| {
        energy(&(nn::embedding(&x[0], &numbers(50_000, 37, 1000)) * &x[1]))
    }),
    job("top_k_100", &[&[10_000, 100]], |x| energy(&x[0].top_k(16, -1).0)),
    job("structural_similarity", &[&[8, 64, 64, 3], &[8, 64, 64, 3]], structural_similarity),
    job("latents", &[&[2, 16, 4, 64], &[2, 1024, 4, 64], &[2, 1024, 4, 64]], |x| attention(x, nn::Mask::None)),
    job("messages", &[&[40_000], &[2000, 16]], messages),
    job("layer_norm_12", &[&[50_000, 12], &[12], &[12]], |x| energy(&nn::layer_norm(&x[0], &x[1], &x[2], EPSILON))),
    job("polynomial", &[&[512, 1024]], |x| energy(&(0..30).fold(&x[0] * 0.5, |y, n| y * &x[0] + 0.1 * f64::from(n)))),
    job("oscillators", &[&[512, 512], &[512, 512]], oscillators),
    forward("bottleneck_one", &[&[1, 56, 56, 256], &[1, 1, 256, 64], &[3, 3, 64, 64], &[1, 1, 64, 256]], bottleneck),
    forward("bottleneck_8", &[&[8, 28, 28, 256], &[1, 1, 256, 64], &[3, 3, 64, 64], &[1, 1, 64, 256]], bottleneck),
    forward("perceptron_forward_one", &[&[1, 784], &[784, 512], &[512, 512], &[512, 10]], |x| {
        perceptron(&x[0], &x[1..], Tensor::relu).softmax(-1)
    }),
    forward("perceptron_forward_64", &[&[64, 784], &[784, 512], &[512, 512], &[512, 10]], |x| {
        perceptron(&x[0], &x[1..], Tensor::relu).softmax(-1)
    }),
    forward("attention_forward_one", &[&[1, 512, 8, 64], &[1, 512, 8, 64], &[1, 512, 8, 64]], |x| {
        nn::attention(&x[0], &x[1], &x[2], 0.125, nn::Mask::Causal)
    }),
    forward("block_forward", &[&[1, 128, 256], &[256, 768], &[256, 256], &[256, 1024], &[1024, 256]], |x| {
        block(&x[0], &x[1..], 4, nn::Mask::Causal)
    }),
    forward("softmax_forward", &[&[1024, 1024]], |x| x[0].softmax(-1)),
    forward("tanh_forward", &[&[1024, 1024]], |x| x[0].tanh()),
    forward("gram_forward", &[&[4, 64, 1024]], |x| einsum("bik,bjk->bij", &[&x[0], &x[0]])),
    forward("transposed_sum", &[&[1024, 1024]], |x| x[0].t() + &x[0]),
    forward("channels_first", &[&[8, 56, 56, 64], &[8, 64, 56, 56]], |x| x[0].permute([0, 3, 1, 2]).relu() + &x[1]),
    forward("reversed_axes", &[&[64, 128, 256], &[256, 128, 64]], |x| x[0].permute([2, 1, 0]) + &x[1]),
    forward("log_softmax_10", &[&[65_536, 10]], |x| x[0].log_softmax(-1)),
    forward("cumsum_8", &[&[100_000, 8]], |x| x[0].cumsum(1)),
    forward("sort_10", &[&[65_536, 10]], |x| x[0].sort(1)),
    forward("sort_3", &[&[300_000, 3]], |x| x[0].sort(1)),
    forward(
        "decoding_one",
        &[&[1, 1, 8, 64], &[1, 1024, 8, 64], &[1, 1024, 8, 64], &[1, 1, 8, 64], &[1, 1, 8, 64]],
        decoding,
    ),
    forward(
        "decoding_8",
        &[&[8, 1, 8, 64], &[8, 1024, 8, 64], &[8, 1024, 8, 64], &[8, 1, 8, 64], &[8, 1, 8, 64]],
        decoding,
    ),
    forward("rows_4", &[&[4, 2048], &[2048, 8192]], |x| x[0].matmul(&x[1])),
    forward("rows_16", &[&[16, 4096], &[4096, 4096]], |x| x[0].matmul(&x[1])),
    forward("rows_8", &[&[8, 4096], &[4096, 4096]], |x| x[0].matmul(&x[1])),
    forward("rows_24", &[&[24, 4096], &[4096, 4096]], |x| x[0].matmul(&x[1])),
    forward("turned_row", &[&[1, 2048], &[2048, 2048]], |x| x[0].matmul(&x[1].t())),
    forward("turned_rows_8", &[&[8, 4096], &[4096, 4096]], |x| x[0].matmul(&x[1].t())),
    forward("sum_of_columns", &[&[4096, 4096]], |x| x[0].sum(0)),
    forward("argmax_columns", &[&[100_000, 160]], |x| x[0].argmax(0).cast(DType::F32)),
    forward("box_overlaps", &[&[1000, 4]], box_overlaps),
    forward("argmax_10", &[&[65_536, 10]], |x| x[0].argmax(1).cast(DType::F32)),
    forward("argmax_1000", &[&[1000, 1000]], |x| x[0].argmax(1).cast(DType::F32)),
    forward("remainder_i32", &[&[1024, 1024]], |x| ((&x[0] * 1000.0).cast(DType::I32) % 7).cast(DType::F32)),
    forward("remainder", &[&[1024, 1024], &[1024, 1024]], |x| &x[0] % &x[1]),
    of(DType::F64, job("matmul_f64", &[&[512, 512], &[512, 512]], product)),
    of(DType::F64, job("tanh_f64", &[&[512, 1024]], |x| energy(&x[0].tanh()))),
    of(DType::F64, job("softmax_f64", &[&[512, 1024]], |x| energy(&x[0].softmax(-1)))),
    of(DType::F64, job("sines_f64", &[&[512, 512]], |x| energy(&(x[0].sin() * x[0].cos())))),
    of(
        DType::F64,
        job("layer_norm_f64", &[&[512, 768], &[768], &[768]], |x| {
            energy(&nn::layer_norm(&x[0], &x[1], &x[2], EPSILON))
        }),
    ),
    of(DType::F64, job("conv_f64", &[&[8, 28, 28, 32], &[3, 3, 32, 32]], same)),
    of(
        DType::F64,
        job("perceptron_f64", &[&[64, 128], &[128, 128], &[128, 128], &[128, 10]], |x| {
            energy(&perceptron(&x[0], &x[1..], Tensor::tanh))
        }),
    ),
    of(DType::F64, job("cumsum_f64", &[&[512, 512]], |x| energy(&x[0].cumsum(1)))),
    of(DType::Bf16, forward("tanh_bf16", &[&[1024, 1024]], |x| in_f32(x, |x| x[0].tanh()))),
    of(DType::Bf16, forward("softmax_bf16", &[&[1024, 1024]], |x| in_f32(x, |x| x[0].softmax(-1)))),
    of(
        DType::Bf16,
        forward("layer_norm_bf16", &[&[512, 768], &[768], &[768]], |x| {
            in_f32(x, |x| nn::layer_norm(&x[0], &x[1], &x[2], EPSILON))
        }),
    ),
    of(DType::Bf16, forward("row_bf16", &[&[1, 4096], &[4096, 4096]], |x| x[0].matmul(&x[1]))),
    of(DType::Bf16, forward("rows_4_bf16", &[&[4, 4096], &[4096, 4096]], |x| x[0].matmul(&x[1]))),
    of(DType::F16, forward("column_f16", &[&[1024, 1024], &[1024, 1]], |x| x[0].matmul(&x[1]))),
    of(DType::F16, forward("reversed_f16", &[&[1024, 1024]], |x| x[0].flip(1))),
    of(DType::F16, forward("gelu_f16", &[&[1024, 1024]], |x| in_f32(x, |x| x[0].gelu_tanh()))),
];
