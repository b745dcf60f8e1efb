// Says: `i64` cannot be passed for an argument of type `Tensor`
use retape::{Tensor, accelerate};

fn main() {
    let f = accelerate(|x: &Tensor, by: &Tensor| x * by);
    let y = f.call(&Tensor::ones([2]), 1_i64).unwrap();
    assert_eq!(y.shape(), [2]);
}
