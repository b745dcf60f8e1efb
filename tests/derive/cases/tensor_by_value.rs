// Says: a parameter of type `Tensor` cannot be traced | `&Tensor` | `&Vec<Tensor>`
use retape::{Tensor, accelerate};

fn main() {
    let f = accelerate(|x: Tensor| x.exp());
    let y = f.call(Tensor::ones([2])).unwrap();
    assert_eq!(y.shape(), [2]);
}
