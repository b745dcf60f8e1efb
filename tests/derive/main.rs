//! `#[derive(Tree)]` from outside the crate: what it accepts, what it refuses and in which words, and that static
//! fields are part of the signature. `TRYBUILD=overwrite` writes the expected messages anew.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::collections::BTreeMap;
use std::marker::PhantomData;

use retape::{Static, Tensor, Tree, accelerate};

#[test]
fn refusals() {
    trybuild::TestCases::new().compile_fail("cases/*.rs");
}

#[derive(Clone, Debug, Tree)]
struct Dense {
    weights: Tensor,
    bias: Option<Tensor>,
}

#[derive(Clone, Copy, Debug, PartialEq, Tree)]
enum Activation {
    Identity,
    Relu { slope: Static<f32> },
    Scale(#[tree(static)] f32),
}

#[derive(Clone, Debug, Tree)]
struct Model<L, M: Copy = ()> {
    layers: Vec<(L, Activation)>,
    by_name: BTreeMap<String, L>,
    marker: PhantomData<M>,
}

impl Dense {
    fn new(weight: f32, bias: Option<f32>) -> Dense {
        Dense { weights: Tensor::from([[weight]]), bias: bias.map(Tensor::from) }
    }

    fn apply(&self, x: &Tensor, activation: Activation) -> Tensor {
        let y = x * &self.weights;
        let y = self.bias.iter().fold(y, |y, bias| y + bias);
        match activation {
            Activation::Identity => y,
            Activation::Relu { slope } => y.maximum(&y * slope.0),
            Activation::Scale(by) => y * by,
        }
    }
}

type TwoLayers = Model<Dense, u8>;

fn model(activation: Activation, bias: Option<f32>, name: &str) -> TwoLayers {
    let layers = vec![(Dense::new(2.0, None), Activation::Identity), (Dense::new(-3.0, bias), activation)];
    Model { layers, by_name: BTreeMap::from([(name.to_owned(), Dense::new(1.0, None))]), marker: PhantomData }
}

fn forward(model: &TwoLayers, x: &Tensor) -> Tensor {
    let y = model.layers.iter().fold(x.clone(), |y, (layer, activation)| layer.apply(&y, *activation));
    model.by_name.values().fold(y, |y, layer| layer.apply(&y, Activation::Identity)).sum(..)
}

#[test]
fn derived_trees_go_through_calls_and_gradients() {
    let step = accelerate(|model: &TwoLayers, x: &Tensor| {
        let loss = forward(model, x);
        let grad = loss.grad(model);
        (loss, grad)
    });
    let (loss, grad) = step.call(model(Activation::Scale(0.5), Some(1.0), "out"), Tensor::from([[1.0_f32]])).unwrap();
    assert_eq!(loss.item::<f32>().unwrap(), -2.5);
    assert_eq!(grad.layers[0].0.weights.to_vec::<f32>().unwrap(), [-1.5]);
    assert_eq!(grad.layers[1].0.bias.as_ref().unwrap().item::<f32>().unwrap(), 0.5);
    assert_eq!(grad.layers[1].1, Activation::Scale(0.5));
    assert_eq!(grad.by_name["out"].weights.to_vec::<f32>().unwrap(), [-2.5]);
}

#[test]
fn a_static_value_is_part_of_the_signature() {
    let run = accelerate(forward);
    let x = Tensor::from([[1.0_f32]]);
    let mut misses = 0;
    let mut check = |model: &TwoLayers, expected: f32, new: bool| {
        misses += u64::from(new);
        assert_eq!(run.call(model, &x).unwrap().item::<f32>().unwrap(), expected);
        assert_eq!(run.stats().misses, misses);
    };
    let leaky = |slope| Activation::Relu { slope: Static(slope) };
    check(&model(Activation::Identity, None, "a"), -6.0, true);
    check(&model(Activation::Identity, None, "a"), -6.0, false);
    check(&model(Activation::Scale(0.5), None, "a"), -3.0, true);
    check(&model(Activation::Scale(2.0), None, "a"), -12.0, true);
    check(&model(leaky(0.0), None, "a"), 0.0, true);
    check(&model(leaky(0.5), None, "a"), -3.0, true);
    check(&model(leaky(0.5), Some(2.0), "a"), -2.0, true);
    check(&model(leaky(0.5), Some(4.0), "a"), -1.0, false);
    check(&model(leaky(0.5), Some(4.0), "b"), -1.0, true);
    check(&model(leaky(0.5), Some(4.0), "b"), -1.0, false);
}
