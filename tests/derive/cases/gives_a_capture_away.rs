// Says: `Fn` | `FnOnce`
use retape::{Tensor, accelerate};

fn main() {
    let w = vec![Tensor::ones([2])];
    let f = accelerate(move |x: &Tensor| (x.exp(), w));
    let (y, _) = f.call(&Tensor::ones([2])).unwrap();
    assert_eq!(y.shape(), [2]);
}
