// Says: must be references of any lifetimes | types spelled out
use retape::{Tensor, accelerate};

fn sum(x: &Tensor, y: &Tensor) -> Tensor {
    x + y
}

fn main() {
    let f = accelerate(|x, y| sum(x, y));
    let y = f.call(&Tensor::ones([2]), &Tensor::ones([2])).unwrap();
    assert_eq!(y.shape(), [2]);
}
