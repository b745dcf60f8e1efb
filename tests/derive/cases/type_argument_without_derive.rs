// Says: `Inner` is not a `Tree` | #[derive(Tree)]
use retape::{Tensor, Tree, accelerate};

struct Inner;

#[derive(Tree)]
struct Params<T> {
    w: Tensor,
    inner: T,
}

fn main() {
    let f = accelerate(|p: &Params<Inner>| p.w.exp());
    let y = f.call(&Params { w: Tensor::ones([2]), inner: Inner }).unwrap();
    assert_eq!(y.shape(), [2]);
}
