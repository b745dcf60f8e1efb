// Says: a parameter of type `&[Tensor]` cannot be traced | `&Tensor` | `&Vec<Tensor>` | `&[Tensor; 2]`
use retape::{Tensor, accelerate};

fn main() {
    let f = accelerate(|xs: &[Tensor]| xs[0].exp());
    let y = f.call(&vec![Tensor::ones([2])]).unwrap();
    assert_eq!(y.shape(), [2]);
}
