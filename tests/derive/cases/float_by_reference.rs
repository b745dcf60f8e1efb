// Says: `f32` is not a `Tree` | `Tensor` for a number that changes | `Static<f32>`
use retape::{Tensor, accelerate};

fn main() {
    let f = accelerate(|x: &Tensor, rate: &f32| x * *rate);
    let y = f.call(&Tensor::ones([2]), 0.1_f32).unwrap();
    assert_eq!(y.shape(), [2]);
}
