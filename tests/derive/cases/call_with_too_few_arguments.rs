// Says: takes 2 arguments but 1 argument was supplied
use retape::{Tensor, accelerate};

fn main() {
    let f = accelerate(|x: &Tensor, by: &Tensor| x * by);
    let y = f.call(&Tensor::ones([2])).unwrap();
    assert_eq!(y.shape(), [2]);
}
