// Says: `Params` is not a `Tree` | #[derive(Tree)]
use retape::{Tensor, accelerate};

struct Params {
    w: Tensor,
}

fn main() {
    let f = accelerate(|p: &Params, x: &Tensor| (Params { w: &p.w * x }, x.clone()));
    let (p, _) = f.call(Params { w: Tensor::ones([2]) }, &Tensor::ones([2])).unwrap();
    let (p, _) = f.call(p, &Tensor::ones([2])).unwrap();
    assert_eq!(p.w.shape(), [2]);
}
