// Says: `Inner` cannot be a static value of a signature
use retape::{Tensor, Tree, accelerate};

struct Inner;

#[derive(Tree)]
struct Params {
    w: Tensor,
    #[tree(static)]
    inner: Inner,
}

fn main() {
    let f = accelerate(|p: &Params| p.w.exp());
    let y = f.call(&Params { w: Tensor::ones([2]), inner: Inner }).unwrap();
    assert_eq!(y.shape(), [2]);
}
