// Says: `&Tensor` is not a `Tree` | owned type
use retape::{Tensor, accelerate};

fn main() {
    let f = accelerate(|x: &Tensor| x);
    let y = f.call(&Tensor::ones([2])).unwrap();
    assert_eq!(y.shape(), [2]);
}
