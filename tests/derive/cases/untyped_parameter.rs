// Says: type annotations needed
use retape::{Tensor, accelerate};

fn main() {
    let f = accelerate(|x| x.square());
    let y = f.call(&Tensor::ones([2])).unwrap();
    assert_eq!(y.shape(), [2]);
}
