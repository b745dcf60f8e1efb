// Says: a parameter of type `_` cannot be traced | `&Tensor`
use retape::{Tensor, accelerate};

fn main() {
    let f = accelerate(|x, y| x + y);
    let y = f.call(&Tensor::ones([2]), &Tensor::ones([2])).unwrap();
    assert_eq!(y.shape(), [2]);
}
