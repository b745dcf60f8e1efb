// Says: `f32` is not a `Tree` | `Tensor` for a number that changes | `Static<f32>`
use retape::{Tensor, accelerate};

fn main() {
    let f = accelerate(|x: &Tensor| x.n_elements() as f32);
    let y = f.call(&Tensor::ones([2])).unwrap();
    assert_eq!(y, 2.0);
}
