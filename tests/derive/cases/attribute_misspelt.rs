// Says: the things to say here are `static` and `rename = ".."`
use retape::{Tensor, Tree, accelerate};

#[derive(Tree)]
struct Params {
    #[tree(statics)]
    rate: f32,
}

fn main() {
    let f = accelerate(|_: &Params, x: &Tensor| x.exp());
    let y = f.call(Params { rate: 0.1 }, &Tensor::ones([2])).unwrap();
    assert_eq!(y.shape(), [2]);
}
