// Says: another field has this name
use retape::{Tensor, Tree, accelerate};

#[derive(Tree)]
struct Params {
    weight: Tensor,
    #[tree(rename = "weight")]
    w: Tensor,
}

fn main() {
    let f = accelerate(|p: &Params| &p.weight * &p.w);
    let y = f.call(Params { weight: Tensor::ones([2]), w: Tensor::ones([2]) }).unwrap();
    assert_eq!(y.shape(), [2]);
}
