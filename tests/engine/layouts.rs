//! Parameters that do not fit: errors of convolutions and pooling say in which order axes are, and whether that of
//! PyTorch would fit; layers name themselves and both shapes; errors about gradients name the argument.

use retape::nn::{self, BatchNorm, BatchNormState, Conv2d, Dense, Embedding, LayerNorm, Lstm, Mask};
use retape::ops::{ConvOptions, Padding};
use retape::{AdviceKind, Error, Result, Tensor, Tree, accelerate, trace, value_and_grad, vjp};

fn zeros(shape: &[usize]) -> Tensor {
    Tensor::zeros(shape)
}

/// Checks op, line and words of the error of a formula, which is the same at once and in a trace, where it also names the
/// call. The formula stands on
/// the line of the call or the next one.
#[track_caller]
fn refused(formula: fn(&Vec<Tensor>) -> Tensor, shapes: &[&[usize]], op: &str, words: &[&str]) -> String {
    let here = std::panic::Location::caller();
    let inputs: Vec<Tensor> = shapes.iter().map(|shape| zeros(shape)).collect();
    let traced = accelerate(formula).call(&inputs).unwrap_err();
    let eager = formula(&inputs).error().expect("the formula is ill-typed").clone();
    let (at_once, traced) = (eager.to_string(), traced.to_string());
    let call = traced.strip_prefix(at_once.trim_end_matches(')')).unwrap_or_else(|| panic!("{traced}, not {at_once}"));
    assert_eq!(call, format!("; called at {here})"));
    let Error::Type { op: found, at, message, .. } = eager else { panic!("{eager}") };
    assert_eq!((found, at.file()), (op, here.file()), "{message}");
    assert!((here.line()..here.line() + 2).contains(&at.line()), "{message} at {at}, not {here}");
    for word in words {
        assert!(message.contains(word), "`{message}` lacks `{word}`");
    }
    message
}

const PYTORCH: &str = "this looks like PyTorch's order";
const FILTER: &str = "permute the filter by [2, 3, 1, 0]";
const IMAGES: &str = "permute the images by [0, 2, 3, 1]";

#[test]
fn convolutions_say_the_order_of_axes() {
    let conv: fn(&Vec<Tensor>) -> Tensor = |x| x[0].conv2d(&x[1], ConvOptions::default());
    let check = |shapes: [&[usize]; 2], words: &[&str]| -> String {
        let inputs: Vec<Tensor> = shapes.iter().map(|shape| zeros(shape)).collect();
        let message = conv(&inputs).error().expect("the shapes do not fit").to_string();
        let order = ["images are [batch, height, width, channels]", "filters [height, width, in / groups, out]"];
        let shapes = shapes.map(|shape| format!("f32{shape:?}"));
        for word in words.iter().copied().chain(order).chain(shapes.each_ref().map(|shape| &**shape)) {
            assert!(message.contains(word), "`{message}` lacks `{word}`");
        }
        message
    };
    let (images, nchw): (&[usize], &[usize]) = (&[2, 32, 32, 3], &[2, 3, 32, 32]);
    // Channels that do not fit either way, and no hint where none would help.
    let message = check([images, &[3, 3, 5, 16]], &["third axis must be 3, not 5"]);
    assert!(!message.contains("PyTorch"), "{message}");
    let message = check([images, &[3, 3, 32, 16]], &["third axis must be 3, not 32"]);
    assert!(!message.contains("PyTorch"), "{message}");
    let message = check([images, &[3, 3, 1, 8]], &["third axis must be 3, not 1"]);
    assert!(!message.contains("PyTorch"), "{message}");
    // Filters, images, and both.
    check([&[2, 32, 32, 4], &[16, 4, 3, 3]], &["third axis must be 4, not 3", PYTORCH, FILTER]);
    check([nchw, &[5, 5, 3, 16]], &["third axis must be 32, not 3", PYTORCH, IMAGES]);
    let message = check([nchw, &[16, 3, 3, 3]], &[PYTORCH, IMAGES, "and the filter by [2, 3, 1, 0]"]);
    assert!(message.contains("must be 32, not 3"), "{message}");
    // Channels that fit by chance, and taps that do not.
    check([&[2, 8, 8, 3], &[16, 3, 3, 3]], &["a window of [16, 3]", "does not fit", PYTORCH, FILTER]);
    let message = check([&[2, 2, 2, 3], &[3, 3, 3, 8]], &["a window of [3, 3]"]);
    assert!(!message.contains("PyTorch"), "{message}");
    check([&[2, 3, 30, 40], &[3, 3, 3, 8]], &["third axis must be 40, not 3", PYTORCH, IMAGES]);
    check([&[2, 8, 8, 3], &[16, 3, 1, 7]], &["third axis must be 3, not 1", PYTORCH, FILTER]);
    // The advice is right.
    let [x, w] = [zeros(nchw).permute([0, 2, 3, 1]), zeros(&[16, 3, 3, 3]).permute([2, 3, 1, 0])];
    assert_eq!(x.conv2d(&w, ConvOptions::same()).shape(), [2, 32, 32, 16]);
}

#[test]
fn convolutions_in_groups_and_transposed_ones_say_it_too() {
    refused(
        |x| x[0].conv2d(&x[1], ConvOptions::same().groups(2)),
        &[&[1, 8, 8, 4], &[3, 3, 4, 6]],
        "conv2d",
        &["4 channels in 2 groups", "third axis must be 2, not 4", "f32[1, 8, 8, 4]", "f32[3, 3, 4, 6]"],
    );
    refused(
        |x| x[0].conv2d(&x[1], ConvOptions::same().groups(2)),
        &[&[1, 8, 8, 4], &[6, 2, 3, 3]],
        "conv2d",
        &[PYTORCH, FILTER],
    );
    refused(
        |x| x[0].conv2d(&x[1], ConvOptions::same().groups(3)),
        &[&[1, 8, 8, 4], &[3, 3, 1, 6]],
        "conv2d",
        &["f32[1, 8, 8, 4]", "4 channels do not divide into 3 groups"],
    );
    refused(
        |x| x[0].conv_transpose2d(&x[1], ConvOptions::same().stride(2)),
        &[&[1, 8, 8, 4], &[3, 3, 4, 5]],
        "conv_transpose2d",
        &[
            "f32[1, 8, 8, 4]",
            "f32[3, 3, 4, 5]",
            "last axis must be 4, not 5",
            "filters [height, width, out / groups, in]",
        ],
    );
    // PyTorch has the channels that go in first here.
    refused(
        |x| x[0].conv_transpose2d(&x[1], ConvOptions::default()),
        &[&[1, 8, 8, 16], &[16, 5, 3, 3]],
        "conv_transpose2d",
        &[PYTORCH, FILTER],
    );
    refused(
        |x| x[0].conv_transpose2d(&x[1], ConvOptions::default()),
        &[&[1, 16, 8, 8], &[3, 3, 5, 16]],
        "conv_transpose2d",
        &[PYTORCH, IMAGES],
    );
    refused(
        |x| x[0].conv_transpose2d(&x[1], ConvOptions::default()),
        &[&[8, 16], &[3, 3, 5, 16]],
        "conv_transpose2d",
        &["[batch, height, width, channels]"],
    );
}

#[test]
fn pooling_says_the_order_of_axes() {
    for op in ["max_pool2d", "avg_pool2d"] {
        let pool = |x: &Tensor| match op {
            "max_pool2d" => x.max_pool2d([2, 2], [2, 2], Padding::Valid),
            _ => x.avg_pool2d([2, 2], [2, 2], Padding::Valid),
        };
        for (shape, is_hinted) in [(&[5, 1, 28, 28][..], true), (&[5, 1, 1, 9], false), (&[28, 28], false)] {
            let error = pool(&zeros(shape)).error().expect("the windows do not fit").to_string();
            assert!(error.starts_with(&format!("{op}: argument 0 is f32{shape:?}")), "{error}");
            assert!(error.contains("[batch, height, width, channels]"), "{error}");
            assert_eq!(error.contains(PYTORCH) && error.contains(IMAGES), is_hinted, "{error}");
        }
        assert!(pool(&zeros(&[5, 1, 28, 28]).permute([0, 2, 3, 1])).error().is_none());
    }
}

/// A filter in PyTorch's order that fits by chance is taken as it is; its bias gives it away, and so does advice.
#[test]
fn a_filter_that_fits_by_chance_is_told() {
    let (images, filter) = (zeros(&[2, 32, 32, 3]), zeros(&[16, 3, 3, 3]));
    assert_eq!(images.conv2d(&filter, ConvOptions::same()).shape(), [2, 32, 32, 3]);
    refused(
        |x| nn::conv2d(&x[0], &x[1], &x[2], ConvOptions::same()),
        &[&[2, 32, 32, 3], &[16, 3, 3, 3], &[16]],
        "conv2d",
        &["the convolution f32[2, 32, 32, 3] and the bias f32[16] do not fit", PYTORCH, FILTER],
    );
    let f = accelerate(|x: &Tensor, w: &Tensor| x.conv2d(w, ConvOptions::same()).sum(..));
    for filter in [&[3, 3, 3, 16], &[3, 3, 3, 3], &[1, 3, 3, 3], &[7, 1, 1, 1], &[5, 3, 3, 4]] {
        f.call(images.sum_to(filter[2]), zeros(filter)).unwrap();
    }
    assert_eq!(f.advice(), []);
    for _ in 0..2 {
        f.call(&images, &filter).unwrap();
        let advice = f.advice();
        assert_eq!((advice.len(), advice[0].kind), (1, AdviceKind::FilterOrder));
        assert!(advice[0].subject.starts_with(file!()), "{}", advice[0].subject);
        assert!(advice[0].message.contains("f32[16, 3, 3, 3] is one of 16 x 3 taps"), "{}", advice[0]);
        assert!(advice[0].message.contains("permute it by [2, 3, 1, 0]"), "{}", advice[0]);
        f.clear_cache();
    }
}

trait Channels {
    fn sum_to(&self, channels: usize) -> Tensor;
}

impl Channels for Tensor {
    /// Images of other channels.
    fn sum_to(&self, channels: usize) -> Tensor {
        self.sum(-1).unsqueeze(-1).broadcast_to([2, 32, 32, channels])
    }
}

#[test]
fn layers_take_the_parameters_of_pytorch() {
    let numbers = |shape: &[usize]| Tensor::arange(shape.iter().product()).cast(retape::DType::F32).reshape(shape);
    let x = numbers(&[2, 3]);
    let dense = Dense::from_pytorch(&numbers(&[4, 3]), &numbers(&[4]));
    // Row by row: the sum over j of x[i, j] w[o, j], plus b[o].
    let w: Vec<f32> = (0..12).map(|n| n as f32).collect();
    let expected: Vec<f32> = (0..2)
        .flat_map(|i| (0..4).map(move |o| (i, o)))
        .map(|(i, o)| (0..3).map(|j| (3 * i + j) as f32 * w[3 * o + j]).sum::<f32>() + o as f32)
        .collect();
    assert_eq!(dense.apply(&x).to_vec::<f32>().unwrap(), expected);

    let (oihw, nchw) = (numbers(&[2, 3, 2, 2]), numbers(&[1, 3, 3, 3]));
    let conv = Conv2d::from_pytorch(&oihw, &numbers(&[2]));
    let y = conv.apply(&nchw.permute([0, 2, 3, 1]), ConvOptions::default());
    let (w, image) = (oihw.to_vec::<f32>().unwrap(), nchw.to_vec::<f32>().unwrap());
    let at = |o: usize, row: usize, column: usize| {
        let taps = (0..3).flat_map(|c| (0..2).flat_map(move |i| (0..2).map(move |j| (c, i, j))));
        let products =
            taps.map(|(c, i, j)| w[((o * 3 + c) * 2 + i) * 2 + j] * image[(c * 3 + row + i) * 3 + column + j]);
        products.sum::<f32>() + o as f32
    };
    let expected: Vec<f32> = (0..8).map(|n| at(n % 2, n / 4, n / 2 % 2)).collect();
    assert_eq!((y.shape(), y.to_vec::<f32>().unwrap()), (&[1, 2, 2, 2][..], expected));
}

#[test]
fn layers_name_themselves_and_both_shapes() {
    fn layer_norm(scale: &Tensor) -> LayerNorm {
        LayerNorm { scale: scale.clone(), offset: scale.clone(), ..LayerNorm::new(1) }
    }
    fn batch_norm(scale: &Tensor, offset: &Tensor) -> BatchNorm {
        BatchNorm { scale: scale.clone(), offset: offset.clone(), ..BatchNorm::new(1) }
    }
    let words = ["the input f32[5, 4] has 4 features", "the weight f32[3, 2] is [in, out] and takes 3"];
    let message = refused(|x| nn::dense(&x[0], &x[1], &x[2]), &[&[5, 4], &[3, 2], &[2]], "dense", &words);
    assert!(!message.contains("PyTorch"), "{message}");
    refused(|x| nn::dense(&x[0], &x[1], &x[2]), &[&[5, 4], &[2, 4], &[2]], "dense", &[PYTORCH, "transpose it"]);
    refused(|x| nn::dense(&x[0], &x[1], &x[2]), &[&[5, 3], &[3, 2], &[7]], "dense", &["f32[5, 2]", "the bias f32[7]"]);
    refused(
        |x| Dense { weight: x[1].clone(), bias: x[2].clone() }.apply(&x[0]),
        &[&[5, 4], &[3, 2], &[2]],
        "Dense::apply",
        &words,
    );
    refused(
        |x| Embedding { table: x[0].clone() }.apply(&x[1]),
        &[&[9, 4], &[3]],
        "Embedding::apply",
        &["the ids f32[3] must be integers"],
    );
    refused(
        |x| nn::conv2d(&x[0], &x[1], &x[2], ConvOptions::same()),
        &[&[1, 8, 8, 3], &[3, 3, 3, 4], &[5]],
        "conv2d",
        &["f32[1, 8, 8, 4]", "the bias f32[5]"],
    );
    refused(
        |x| nn::conv_transpose2d(&x[0], &x[1], &x[2], ConvOptions::same()),
        &[&[1, 8, 8, 4], &[3, 3, 2, 4], &[5]],
        "conv_transpose2d",
        &["f32[1, 8, 8, 2]", "the bias f32[5]"],
    );
    refused(
        |x| layer_norm(&x[1]).apply(&x[0]),
        &[&[5, 4], &[3]],
        "LayerNorm::apply",
        &["the input f32[5, 4]", "the scale f32[3]"],
    );
    refused(
        |x| batch_norm(&x[1], &x[2]).apply(&x[0], &BatchNormState::new(4)).0,
        &[&[5, 4], &[4], &[3]],
        "BatchNorm::apply",
        &["the input f32[5, 4]", "the offset f32[3]"],
    );
    refused(
        |x| BatchNorm::new(3).infer(&x[0], &BatchNormState::new(3)),
        &[&[5, 3, 8, 8]],
        "BatchNorm::infer",
        &["the scale f32[3]", "PyTorch", "[0, 2, 3, 1]"],
    );
    let message = refused(
        |x| BatchNorm::new(8).apply(&x[0], &BatchNormState::new(8)).0,
        &[&[2, 8, 8, 3]],
        "BatchNorm::apply",
        &["the last axis of the input is its features"],
    );
    assert!(!message.contains("PyTorch"), "8 is the height: {message}");
    refused(
        |x| Lstm::new(1, 3, 5).step(&x[0], (&x[1], &x[1])).0,
        &[&[2, 4], &[2, 5]],
        "Lstm::step",
        &["the input f32[2, 4]", "the input weight f32[3, 20]"],
    );
    refused(
        |x| Lstm::new(1, 3, 5).step(&x[0], (&x[1], &x[1])).1,
        &[&[2, 3], &[2, 4]],
        "Lstm::step",
        &["the output f32[2, 4]", "the hidden weight f32[5, 20]"],
    );
}

#[test]
fn attention_and_losses_name_themselves_and_both_shapes() {
    refused(
        |x| nn::attention(&x[0], &x[1], &x[1], 1.0, Mask::None),
        &[&[1, 3, 2, 4], &[1, 3, 2, 5]],
        "attention",
        &["queries f32[1, 3, 2, 4]", "keys f32[1, 3, 2, 5]"],
    );
    refused(
        |x| nn::softmax_cross_entropy(&x[0], &x[1]),
        &[&[4, 10], &[4, 5]],
        "softmax_cross_entropy",
        &["f32[4, 10]", "f32[4, 5]"],
    );
    refused(|x| nn::mse(&x[0], &x[1]), &[&[4], &[5]], "mse", &["f32[4]", "f32[5]"]);
    refused(|x| nn::half_mse(&x[0], &x[1]), &[&[4], &[5]], "half_mse", &["f32[4]", "f32[5]"]);
    // Parameters that broadcast are as good as ever.
    assert!(nn::dense(&zeros(&[5, 3]), &zeros(&[3, 2]), &Tensor::from(1.0_f32)).error().is_none());
    assert!(nn::dense(&zeros(&[3]), &zeros(&[3, 2]), &zeros(&[2])).error().is_none());
}

#[derive(Clone, Tree)]
struct Params {
    used: Tensor,
    unused: Tensor,
}

fn message<T>(result: Result<T>) -> String {
    match result {
        Err(Error::Gradient { message, .. }) => message,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("the gradient does not exist"),
    }
}

/// An error about a gradient calls the argument by its position and path, at whatever the gradient is taken.
#[test]
fn gradients_name_the_argument() {
    let x = || Tensor::from([1.0_f32, 2.0]);
    let params = || Params { used: x(), unused: x() };
    let depends = |name: &str| format!("the value does not depend on {name}; leave it out, or ask for `grad_or_zero`");
    let (whole, floats) = (Tensor::from([1_i64, 2]), "only f32 and f64 have gradients, so cast it");

    for is_enabled in [true, false] {
        let bare = accelerate(|x: &Tensor, y: &Tensor| x.sum(..).grad(y));
        bare.configure(|options| options.enabled = is_enabled);
        assert_eq!(message(bare.call(x(), x())), depends("argument 1"));
        assert_eq!(message(bare.call(x(), &whole)), format!("argument 1 is i64[2]; {floats}"));
        let part = accelerate(|x: &Tensor, p: &Params| (x * &p.used).sum(..).grad(&p.unused));
        part.configure(|options| options.enabled = is_enabled);
        assert_eq!(message(part.call(x(), params())), depends("argument 1.unused"));
        let tree = accelerate(|x: &Tensor, p: &Params| (x * &p.used).sum(..).grad(p));
        tree.configure(|options| options.enabled = is_enabled);
        assert_eq!(message(tree.call(x(), params())), depends("argument 1.unused"));
        // A value that is no argument has no position.
        let inner = accelerate(|x: &Tensor| x.sum(..).grad(&x.exp()));
        inner.configure(|options| options.enabled = is_enabled);
        assert_eq!(message(inner.call(x())), depends("the tensor"));
        let captured = x();
        let captures = accelerate(|x: &Tensor| x.sum(..).grad(&captured));
        captures.configure(|options| options.enabled = is_enabled);
        let constant = "the tensor is not traced: it is a captured constant of this trace";
        assert_eq!(message(captures.call(x())), constant);
        // The miss has the same words.
        let error = bare.explain().last().and_then(|miss| miss.error.clone());
        assert_eq!(error.is_some_and(|error| error.contains("argument 1 is i64[2]")), is_enabled);
    }

    assert_eq!(message(value_and_grad(|_: &Tensor| x().sum(..), &x())), depends("argument 0"));
    assert_eq!(message(value_and_grad(|p: &Params| p.used.sum(..), &params())), depends("argument 0.unused"));
    assert_eq!(message(value_and_grad(|x: &Tensor| x.sum(..), &whole)), format!("argument 0 is i64[2]; {floats}"));
    assert_eq!(
        message(vjp(|p: &Params| p.used.clone(), &Params { used: x(), unused: whole.clone() }, &x())),
        format!("argument 0.unused is i64[2]; {floats}")
    );
    let traced = trace(|p: &Params| p.used.sum(..).grad(&p.unused), &params());
    assert_eq!(message(traced), depends("argument 0.unused"));
    let pair = value_and_grad(|(x, _): &(Tensor, Tensor)| x.sum(..), &(x(), x()));
    assert_eq!(message(pair), depends("argument 0[1]"));
}
