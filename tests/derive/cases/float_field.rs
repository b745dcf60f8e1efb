// Says: `f32` is not a `Tree` | `Tensor` for a number that changes | `Static<f32>`
use retape::{Tensor, Tree, accelerate};

#[derive(Tree)]
struct Params {
    w: Tensor,
    rate: f32,
}

fn main() {
    let f = accelerate(|p: &Params| &p.w * p.rate);
    let y = f.call(&Params { w: Tensor::ones([2]), rate: 0.1 }).unwrap();
    assert_eq!(y.shape(), [2]);
}
