// Says: mismatched types
use retape::{Tensor, accelerate};

fn main() {
    let f = accelerate(|x: &Tensor| {
        if x.gt(0.0) { x.clone() } else { -x }
    });
    let y = f.call(&Tensor::ones([2])).unwrap();
    assert_eq!(y.shape(), [2]);
}
