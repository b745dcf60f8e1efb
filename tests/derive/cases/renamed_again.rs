// Says: a field has one other name
use retape::{Tensor, Tree, accelerate};

#[derive(Tree)]
struct Params {
    #[tree(rename = "weight", rename = "kernel")]
    w: Tensor,
}

fn main() {
    let f = accelerate(|p: &Params| p.w.exp());
    let y = f.call(Params { w: Tensor::ones([2]) }).unwrap();
    assert_eq!(y.shape(), [2]);
}
