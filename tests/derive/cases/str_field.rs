// Says: a `Tree` owns its parts | `String`
use retape::{Tensor, Tree, accelerate};

#[derive(Tree)]
struct Params {
    name: Option<&'static str>,
}

fn main() {
    let f = accelerate(|_: &Params, x: &Tensor| x.exp());
    let y = f.call(Params { name: None }, &Tensor::ones([2])).unwrap();
    assert_eq!(y.shape(), [2]);
}
