// Says: a parameter of type `Params` cannot be traced | `&Tensor` | `&Vec<Tensor>`
use retape::{Tensor, Tree, accelerate};

#[derive(Tree)]
struct Params {
    w: Tensor,
}

fn main() {
    let f = accelerate(|x: &Tensor, p: Params| x * p.w);
    let y = f.call(&Tensor::ones([2]), Params { w: Tensor::ones([2]) }).unwrap();
    assert_eq!(y.shape(), [2]);
}
