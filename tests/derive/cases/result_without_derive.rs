// Says: `Params` is not a `Tree` | #[derive(Tree)]
use retape::{Tensor, accelerate};

struct Params {
    w: Tensor,
}

fn main() {
    let f = accelerate(|x: &Tensor| Params { w: x.exp() });
    let y = f.call(&Tensor::ones([2])).unwrap();
    assert_eq!(y.w.shape(), [2]);
}
