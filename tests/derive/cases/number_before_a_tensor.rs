// Says: type annotations needed
use retape::{Tensor, accelerate};

fn main() {
    let f = accelerate(|x: &Tensor| (1.0 - x).log());
    let y = f.call(&Tensor::ones([2])).unwrap();
    assert_eq!(y.shape(), [2]);
}
