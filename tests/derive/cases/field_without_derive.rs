// Says: `Inner` is not a `Tree` | #[derive(Tree)]
use retape::{Tensor, Tree, accelerate};

struct Inner;

#[derive(Tree)]
struct Params {
    w: Tensor,
    inner: Inner,
}

fn main() {
    let f = accelerate(|p: &Params| p.w.exp());
    let y = f.call(&Params { w: Tensor::ones([2]), inner: Inner }).unwrap();
    assert_eq!(y.shape(), [2]);
}
