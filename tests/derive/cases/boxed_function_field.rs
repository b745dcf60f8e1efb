// Says: a function cannot be part of a `Tree` | enum
use retape::{Tensor, Tree, accelerate};

#[derive(Tree)]
struct Layer {
    activation: Option<Box<dyn Fn(&Tensor) -> Tensor + Send>>,
}

fn main() {
    let f = accelerate(|_: &Layer, x: &Tensor| x.exp());
    let y = f.call(Layer { activation: None }, &Tensor::ones([2])).unwrap();
    assert_eq!(y.shape(), [2]);
}
