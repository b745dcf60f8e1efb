// Says: `#[tree(..)]` belongs on a field
use retape::{Tensor, Tree, accelerate};

#[derive(Tree)]
#[tree(static)]
struct Params(u8);

fn main() {
    let f = accelerate(|_: &Params, x: &Tensor| x.exp());
    let y = f.call(Params(1), &Tensor::ones([2])).unwrap();
    assert_eq!(y.shape(), [2]);
}
