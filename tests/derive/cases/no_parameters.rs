// Says: no parameters cannot be accelerated | `|x: &Tensor| ..`
use retape::{Tensor, accelerate};

fn main() {
    let f = accelerate(|| Tensor::ones([2]));
    let y = f.call().unwrap();
    assert_eq!(y.shape(), [2]);
}
