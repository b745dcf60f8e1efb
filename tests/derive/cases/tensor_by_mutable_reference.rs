// Says: a parameter of type `&mut Tensor` cannot be traced | `&Tensor` | `&Vec<Tensor>`
use retape::{Tensor, accelerate};

fn main() {
    let f = accelerate(|x: &mut Tensor| x.exp());
    let y = f.call(&mut Tensor::ones([2])).unwrap();
    assert_eq!(y.shape(), [2]);
}
