// Says: `{integer}` cannot be passed for an argument of type `Tensor` | a float such as `1.0_f32`
use retape::{Tensor, accelerate};

fn main() {
    let f = accelerate(|x: &Tensor, by: &Tensor| x * by);
    let y = f.call(&Tensor::ones([2]), 1).unwrap();
    assert_eq!(y.shape(), [2]);
}
