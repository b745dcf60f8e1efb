// Says: a parameter of type `f32` cannot be traced | `&Tensor` | `&Vec<Tensor>`
use retape::{Tensor, accelerate};

fn main() {
    let f = accelerate(|x: &Tensor, rate: f32| x * rate);
    let y = f.call(&Tensor::ones([2]), 0.1).unwrap();
    assert_eq!(y.shape(), [2]);
}
