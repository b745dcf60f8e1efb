// Says: a function cannot be part of a `Tree` | enum
use retape::{Tensor, Tree, accelerate};

#[derive(Tree)]
struct Layer {
    w: Tensor,
    activation: fn(&Tensor) -> Tensor,
}

fn main() {
    let f = accelerate(|layer: &Layer, x: &Tensor| (layer.activation)(&(&layer.w * x)));
    let y = f.call(Layer { w: Tensor::ones([2]), activation: Tensor::exp }, &Tensor::ones([2])).unwrap();
    assert_eq!(y.shape(), [2]);
}
