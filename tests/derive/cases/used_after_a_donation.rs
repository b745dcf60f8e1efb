// Says: moved value: `w`
use retape::{Tensor, accelerate};

fn main() {
    let f = accelerate(|w: &Tensor, x: &Tensor| w - x);
    let (w, x) = (Tensor::ones([2]), Tensor::ones([2]));
    let next = f.call(w, &x).unwrap();
    assert_eq!(next.shape(), w.shape());
}
