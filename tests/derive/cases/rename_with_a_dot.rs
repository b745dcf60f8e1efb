// Says: a name is not empty and has no dot and no quote
use retape::{Tensor, Tree, accelerate};

#[derive(Tree)]
struct Params {
    #[tree(rename = "layers.0")]
    w: Tensor,
}

fn main() {
    let f = accelerate(|p: &Params| p.w.exp());
    let y = f.call(Params { w: Tensor::ones([2]) }).unwrap();
    assert_eq!(y.shape(), [2]);
}
