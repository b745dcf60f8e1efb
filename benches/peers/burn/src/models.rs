//! The workloads: each a step that can be repeated, with the loss that it last had.

use burn::tensor::activation::{gelu_approximate, log_softmax, relu, sigmoid};
use burn::tensor::module::{attention, layer_norm, linear};
use burn::tensor::ops::AttentionModuleOptions;
use burn::tensor::{Device, Gradients, Int, Tensor};

use crate::formula::{labels, tensor};
use crate::parameters::{Optimiser, Parameters, Reader};
use crate::vision;

/// A workload.
pub(crate) trait Work {
    /// One full step, whose results are ready when it returns.
    fn step(&mut self);

    /// The loss of the last step.
    fn loss(&self) -> f64;

    /// The untimed update of workloads that only compute gradients.
    fn update(&mut self) {}
}

/// The loss of a model whose parameters the reader hands out.
type Loss = Box<dyn FnMut(&mut Reader<'_>) -> Tensor<1>>;

/// Gradients of a loss, and the optimiser that takes them.
struct Gradient {
    parameters: Parameters,
    optimiser: Optimiser,
    loss: Loss,
    last: Option<Tensor<1>>,
    /// Those of the last step, where they are the result.
    gradients: Option<Gradients>,
}

/// A result of a function.
struct Forward<T> {
    result: Option<T>,
    function: Box<dyn Fn() -> T>,
    loss: fn(&T) -> f64,
}

impl Work for Gradient {
    fn step(&mut self) {
        (self.last, self.gradients) = (None, None);
        let loss = (self.loss)(&mut self.parameters.read());
        let mut gradients = loss.backward();
        self.last = Some(loss);
        match self.optimiser {
            Optimiser::Plain(_) => self.gradients = Some(gradients),
            Optimiser::Momentum(_) | Optimiser::Adam(_) => self.parameters.step(&mut self.optimiser, &mut gradients),
        }
    }

    fn loss(&self) -> f64 {
        self.last.as_ref().map_or(f64::NAN, item)
    }

    fn update(&mut self) {
        if let Some(mut gradients) = self.gradients.take() {
            self.parameters.step(&mut self.optimiser, &mut gradients);
        }
    }
}

impl<T> Work for Forward<T> {
    fn step(&mut self) {
        self.result = None;
        self.result = Some((self.function)());
    }

    fn loss(&self) -> f64 {
        self.result.as_ref().map_or(f64::NAN, self.loss)
    }
}

/// The step that computes gradients of a loss.
pub(crate) fn gradient(
    parameters: Parameters,
    optimiser: Optimiser,
    loss: impl FnMut(&mut Reader<'_>) -> Tensor<1> + 'static,
) -> Box<dyn Work> {
    Box::new(Gradient { parameters, optimiser, loss: Box::new(loss), last: None, gradients: None })
}

/// The step that calls a function.
pub(crate) fn forward<T: 'static>(function: impl Fn() -> T + 'static, loss: fn(&T) -> f64) -> Box<dyn Work> {
    Box::new(Forward { result: None, function: Box::new(function), loss })
}

/// The workload of this name on a device.
pub(crate) fn make(name: &str, device: &Device) -> Option<Box<dyn Work>> {
    match name {
        "digits_train" => Some(vision::digits_train(device)),
        "digits_predict" => Some(vision::digits_predict(device)),
        "mlp" => Some(mlp(device)),
        "elementwise" => Some(elementwise(Tensor::sin, device)),
        "elementwise_ns" => Some(elementwise(sigmoid, device)),
        "tiny" => Some(tiny(device)),
        "transformer" => Some(transformer(device)),
        "lstm" => Some(lstm(device)),
        "resnet" => Some(vision::resnet(device)),
        "autoencoder" => Some(vision::autoencoder(device)),
        "dispatch1" => Some(dispatch1(device)),
        "dispatch50" => Some(dispatch50(device)),
        "matmul512" => Some(matmul(512, device)),
        "matmul1024" => Some(matmul(1024, device)),
        "matmul2048" => Some(matmul(2048, device)),
        _ => None,
    }
}

/// The first number of a tensor.
fn item(tensor: &Tensor<1>) -> f64 {
    tensor.clone().into_scalar::<f32>().into()
}

/// The sum of squares.
pub(crate) fn squares<const D: usize>(tensor: &Tensor<D>) -> f64 {
    item(&tensor.clone().square().sum())
}

/// The mean cross-entropy of logits for labels in a column.
pub(crate) fn cross_entropy(logits: Tensor<2>, labels: &Tensor<2, Int>) -> Tensor<1> {
    -log_softmax(logits, 1).gather(1, labels.clone()).mean()
}

/// A dense layer whose weight and bias come next.
fn dense<const D: usize>(x: Tensor<D>, p: &mut Reader<'_>) -> Tensor<D> {
    linear(x, p.matrix(), Some(p.vector()))
}

fn mlp(device: &Device) -> Box<dyn Work> {
    let device = device.clone().autodiff();
    let mut p = Parameters::on(&device);
    for (inputs, outputs) in [(784, 512), (512, 512), (512, 10)] {
        p.dense(inputs, outputs);
    }
    let (x, labels) = (tensor([128, 784], 1000, 0.5, 0.5, &device), labels(128, &device));
    gradient(p, Optimiser::Momentum(0.05), move |p| {
        let h: Tensor<2> = relu(dense(x.clone(), p));
        let h = relu(dense(h, p));
        cross_entropy(dense(h, p), &labels)
    })
}

fn elementwise(last: fn(Tensor<1>) -> Tensor<1>, device: &Device) -> Box<dyn Work> {
    let mut p = Parameters::on(&device.clone().autodiff());
    p.stream(4_000_000, 1000, 2.0);
    p.number(0.7);
    p.number(0.1);
    // The gradient of a mean is small, by the number of elements.
    let rate = |position| if position == 0 { 1e5 } else { 0.1 };
    gradient(p, Optimiser::Plain(rate), move |p| {
        let [x, a, b] = [(); 3].map(|()| p.vector());
        let square = x.clone().square();
        let bell = (x.clone() * a + b).tanh() * square.clone().neg().exp();
        (bell + square.log1p() * last(x)).mean()
    })
}

fn tiny(device: &Device) -> Box<dyn Work> {
    let device = device.clone().autodiff();
    let mut p = Parameters::on(&device);
    p.matrix([8, 8], 8);
    p.bias(8);
    let first: Tensor<2> = tensor([8, 1], 1000, 1.0, 0.0, &device);
    gradient(p, Optimiser::Plain(|_| 0.01), move |p| {
        let (w, b) = (p.matrix(), p.vector().reshape([8, 1]));
        let step = |h: Tensor<2>| h.clone() + (w.clone().matmul(h) + b.clone()).tanh() * 0.01;
        (0..50).fold(first.clone(), |h, _| step(h)).square().sum()
    })
}

fn transformer(device: &Device) -> Box<dyn Work> {
    let device = device.clone().autodiff();
    let [batch, positions, width, heads] = [8, 128, 256, 4];
    let mut p = Parameters::on(&device);
    p.norm(width);
    p.dense(width, 3 * width);
    p.dense(width, width);
    p.norm(width);
    p.dense(width, 4 * width);
    p.dense(4 * width, width);
    let x: Tensor<3> = tensor([batch, positions, width], 1000, 1.0, 0.0, &device);
    let norm = |x: Tensor<3>, p: &mut Reader<'_>| layer_norm(x, p.vector(), Some(p.vector()), 1e-5);
    gradient(p, Optimiser::Plain(|_| 0.1), move |p| {
        let qkv: Tensor<5> = dense(norm(x.clone(), p), p).reshape([batch, positions, 3, heads, width / heads]);
        let head = |at: usize| qkv.clone().narrow(2, at, 1).squeeze_dim::<4>(2).swap_dims(1, 2);
        let options = AttentionModuleOptions { is_causal: true, ..Default::default() };
        let mixed = attention(head(0), head(1), head(2), None, None, options);
        let x = x.clone() + dense(mixed.swap_dims(1, 2).reshape([batch, positions, width]), p);
        let hidden = gelu_approximate(dense(norm(x.clone(), p), p));
        (x + dense(hidden, p)).square().mean()
    })
}

fn lstm(device: &Device) -> Box<dyn Work> {
    let device = device.clone().autodiff();
    let [batch, steps, features, cells] = [32, 32, 64, 128];
    let mut p = Parameters::on(&device);
    p.matrix([features, 4 * cells], features);
    p.matrix([cells, 4 * cells], cells);
    p.bias(4 * cells);
    let x: Tensor<3> = tensor([steps, batch, features], 1000, 1.0, 0.0, &device);
    let xs: Vec<Tensor<2>> = x.chunk(steps, 0).into_iter().map(|x| x.squeeze_dim(0)).collect();
    gradient(p, Optimiser::Plain(|_| 1.0), move |p| {
        let (input_weight, hidden_weight, bias) = (p.matrix(), p.matrix(), p.vector());
        let start = Tensor::zeros([batch, cells], &device);
        let last = xs.iter().fold((start.clone(), start), |(h, c), x| {
            let z = linear(x.clone(), input_weight.clone(), Some(bias.clone())) + h.matmul(hidden_weight.clone());
            let gate = |at: usize| z.clone().narrow(1, at * cells, cells);
            let c = sigmoid(gate(1)) * c + sigmoid(gate(0)) * gate(2).tanh();
            (sigmoid(gate(3)) * c.clone().tanh(), c)
        });
        last.0.square().mean()
    })
}

fn dispatch1(device: &Device) -> Box<dyn Work> {
    let x: Tensor<1> = tensor([8], 1, 1.0, 0.0, device);
    forward(move || x.clone() + 1.0, |y| item(&y.clone().sum()))
}

fn dispatch50(device: &Device) -> Box<dyn Work> {
    let xs: Vec<Tensor<1>> = (1..=50).map(|k| tensor([8], k, 1.0, 0.0, device)).collect();
    let sums = move || xs.iter().map(|x| x.clone().sum()).collect();
    forward(sums, |sums: &Vec<Tensor<1>>| sums.iter().map(squares).sum())
}

fn matmul(n: usize, device: &Device) -> Box<dyn Work> {
    let [a, b]: [Tensor<2>; 2] = [1, 2].map(|k| tensor([n, n], k, 1.0, 0.0, device));
    forward(move || a.clone().matmul(b.clone()), |c| item(&c.clone().square().mean()))
}
