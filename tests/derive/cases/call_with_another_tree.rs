// Says: `&Tensor` cannot be passed for an argument of type `Params`
use retape::{Tensor, Tree, accelerate};

#[derive(Tree)]
struct Params {
    w: Tensor,
}

fn main() {
    let f = accelerate(|p: &Params| p.w.exp());
    let y = f.call(&Tensor::ones([2])).unwrap();
    assert_eq!(y.shape(), [2]);
}
