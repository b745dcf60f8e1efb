// Says: Rc<Tensor>` is not a `Tree` | hold the value itself
use std::rc::Rc;

use retape::{Tensor, Tree, accelerate};

#[derive(Tree)]
struct Params {
    w: Rc<Tensor>,
}

fn main() {
    let f = accelerate(|p: &Params| p.w.exp());
    let y = f.call(Params { w: Rc::new(Tensor::ones([2])) }).unwrap();
    assert_eq!(y.shape(), [2]);
}
