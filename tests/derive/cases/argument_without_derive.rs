// Says: `Params` is not a `Tree` | #[derive(Tree)]
use retape::{Tensor, accelerate};

struct Params {
    w: Tensor,
}

fn main() {
    let f = accelerate(|p: &Params, x: &Tensor| &p.w * x);
    let y = f.call(&Params { w: Tensor::ones([2]) }, &Tensor::ones([2])).unwrap();
    assert_eq!(y.exp().shape(), [2]);
}
