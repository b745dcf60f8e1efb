// Says: takes 2 arguments but 3 arguments were supplied
use retape::{Tensor, accelerate};

fn main() {
    let f = accelerate(|x: &Tensor, by: &Tensor| x * by);
    let y = f.call(&Tensor::ones([2]), 1.0, 2.0).unwrap();
    assert_eq!(y.shape(), [2]);
}
