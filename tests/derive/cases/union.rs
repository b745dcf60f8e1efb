// Says: a union cannot be a `Tree` | enum
use retape::{Tensor, Tree, accelerate};

#[derive(Tree)]
union Number {
    whole: u32,
    bytes: [u8; 4],
}

fn main() {
    let f = accelerate(|_: &Number, x: &Tensor| x.exp());
    let y = f.call(Number { whole: 1 }, &Tensor::ones([2])).unwrap();
    assert_eq!(y.shape(), [2]);
}
