//! Parameters in the order in which a model uses them, and the optimisers that step them.

use burn::tensor::{Device, Gradients, Tensor};

use crate::formula;

/// A parameter, and what its optimiser remembers of it.
pub(crate) struct Parameter<const D: usize> {
    value: Tensor<D>,
    first: Option<Tensor<D>>,
    second: Option<Tensor<D>>,
}

/// A parameter of any rank that a model has.
enum Ranked {
    Vector(Parameter<1>),
    Matrix(Parameter<2>),
    Filter(Parameter<4>),
}

/// The parameters of a model: made in order, each from the next stream, and read in the same order.
pub(crate) struct Parameters {
    device: Device,
    list: Vec<Ranked>,
}

/// Hands out parameters from the first one on.
pub(crate) struct Reader<'a>(std::slice::Iter<'a, Ranked>);

/// How parameters follow from gradients.
pub(crate) enum Optimiser {
    /// Gradient descent by the rate of each position.
    Plain(fn(usize) -> f64),
    /// Gradient descent by this rate with momentum 0.9.
    Momentum(f64),
    /// Adam with rate 1e-3, after so many steps.
    Adam(i32),
}

impl<const D: usize> Parameter<D> {
    fn new(value: Tensor<D>) -> Parameter<D> {
        Parameter { value, first: None, second: None }
    }

    fn step(&mut self, optimiser: &Optimiser, position: usize, gradients: &mut Gradients) {
        let gradient = self.value.grad_remove(gradients).expect("the loss depends on every parameter");
        let change = match *optimiser {
            Optimiser::Plain(rate) => gradient * rate(position),
            Optimiser::Momentum(rate) => {
                let velocity = match self.first.take() {
                    Some(old) => old * 0.9 + gradient,
                    None => gradient,
                };
                self.first = Some(velocity.clone());
                velocity * rate
            }
            Optimiser::Adam(t) => {
                let mean = decayed(self.first.take(), 0.9, gradient.clone());
                let variance = decayed(self.second.take(), 0.999, gradient.square());
                (self.first, self.second) = (Some(mean.clone()), Some(variance.clone()));
                let [mean_scale, variance_scale] = [0.9_f64, 0.999].map(|decay| 1.0 - decay.powi(t));
                (mean * (1e-3 / mean_scale)) / ((variance / variance_scale).sqrt() + 1e-8)
            }
        };
        self.value = Tensor::from_inner(self.value.clone().inner() - change).require_grad();
    }
}

/// A moving average, at first of zero.
fn decayed<const D: usize>(old: Option<Tensor<D>>, decay: f64, new: Tensor<D>) -> Tensor<D> {
    match old {
        Some(old) => old * decay + new * (1.0 - decay),
        None => new * (1.0 - decay),
    }
}

impl Parameters {
    /// None yet; those on a device of autodiff have gradients.
    pub(crate) fn on(device: &Device) -> Parameters {
        Parameters { device: device.clone(), list: vec![] }
    }

    /// A parameter of the next stream.
    fn made<const D: usize>(&mut self, shape: [usize; D], scale: f64, base: f64) -> Parameter<D> {
        let value = formula::tensor(shape, self.list.len() as u32 + 1, scale, base, &self.device);
        Parameter::new(value.set_require_grad(self.device.is_autodiff()))
    }

    /// Adds a parameter of one number.
    pub(crate) fn number(&mut self, value: f32) {
        let value = Tensor::from_floats([value], &self.device).require_grad();
        self.list.push(Ranked::Vector(Parameter::new(value)));
    }

    /// Adds an array of this stream.
    pub(crate) fn stream(&mut self, n: usize, k: u32, scale: f64) {
        let value = formula::tensor([n], k, scale, 0.0, &self.device).require_grad();
        self.list.push(Ranked::Vector(Parameter::new(value)));
    }

    fn vector(&mut self, n: usize, base: f64) {
        let vector = self.made([n], 0.1, base);
        self.list.push(Ranked::Vector(vector));
    }

    /// Adds a bias.
    pub(crate) fn bias(&mut self, n: usize) {
        self.vector(n, 0.0);
    }

    /// Adds scale and offset of a normalisation.
    pub(crate) fn norm(&mut self, n: usize) {
        self.vector(n, 1.0);
        self.vector(n, 0.0);
    }

    /// Adds a matrix.
    pub(crate) fn matrix(&mut self, shape: [usize; 2], fan_in: usize) {
        let matrix = self.made(shape, (3.0 / fan_in as f64).sqrt(), 0.0);
        self.list.push(Ranked::Matrix(matrix));
    }

    /// Adds the weight `[in, out]` and the bias of a dense layer.
    pub(crate) fn dense(&mut self, inputs: usize, outputs: usize) {
        self.matrix([inputs, outputs], inputs);
        self.bias(outputs);
    }

    /// Adds a filter.
    pub(crate) fn filter(&mut self, shape: [usize; 4], fan_in: usize) {
        let filter = self.made(shape, (3.0 / fan_in as f64).sqrt(), 0.0);
        self.list.push(Ranked::Filter(filter));
    }

    /// Reads them from the first one on.
    pub(crate) fn read(&self) -> Reader<'_> {
        Reader(self.list.iter())
    }

    /// Steps all by their gradients.
    pub(crate) fn step(&mut self, optimiser: &mut Optimiser, gradients: &mut Gradients) {
        if let Optimiser::Adam(t) = optimiser {
            *t += 1;
        }
        for (position, parameter) in self.list.iter_mut().enumerate() {
            match parameter {
                Ranked::Vector(parameter) => parameter.step(optimiser, position, gradients),
                Ranked::Matrix(parameter) => parameter.step(optimiser, position, gradients),
                Ranked::Filter(parameter) => parameter.step(optimiser, position, gradients),
            }
        }
    }
}

impl Reader<'_> {
    /// The next parameter, a vector.
    pub(crate) fn vector(&mut self) -> Tensor<1> {
        match self.0.next() {
            Some(Ranked::Vector(parameter)) => parameter.value.clone(),
            _ => panic!("the next parameter is no vector"),
        }
    }

    /// The next parameter, a matrix.
    pub(crate) fn matrix(&mut self) -> Tensor<2> {
        match self.0.next() {
            Some(Ranked::Matrix(parameter)) => parameter.value.clone(),
            _ => panic!("the next parameter is no matrix"),
        }
    }

    /// The next parameter, a filter.
    pub(crate) fn filter(&mut self) -> Tensor<4> {
        match self.0.next() {
            Some(Ranked::Filter(parameter)) => parameter.value.clone(),
            _ => panic!("the next parameter is no filter"),
        }
    }
}
