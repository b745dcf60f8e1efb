// Says: must be references of any lifetimes
use retape::{Tensor, accelerate};

fn sum<'a>(x: &'a Tensor, y: &'a Tensor) -> Tensor {
    x + y
}

fn main() {
    let f = accelerate(sum);
    let y = f.call(&Tensor::ones([2]), &Tensor::ones([2])).unwrap();
    assert_eq!(y.shape(), [2]);
}
