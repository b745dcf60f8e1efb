// Says: a `Tree` owns its parts
use retape::{Tensor, Tree, accelerate};

#[derive(Tree)]
struct Params {
    w: *const Tensor,
}

fn main() {
    let f = accelerate(|_: &Params, x: &Tensor| x.exp());
    let y = f.call(Params { w: std::ptr::null() }, &Tensor::ones([2])).unwrap();
    assert_eq!(y.shape(), [2]);
}
