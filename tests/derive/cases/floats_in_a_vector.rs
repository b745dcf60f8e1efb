// Says: `f32` is not a `Tree` | `Tensor` for a number that changes | `Static<f32>`
use retape::{Tensor, accelerate};

fn main() {
    let f = accelerate(|x: &Tensor, rates: &Vec<f32>| x * rates[0]);
    let y = f.call(&Tensor::ones([2]), vec![0.1_f32]).unwrap();
    assert_eq!(y.shape(), [2]);
}
