// Says: a parameter of type `Option<&Tensor>` cannot be traced | `&Tensor` | `&Vec<Tensor>`
use retape::{Tensor, accelerate};

fn main() {
    let f = accelerate(|x: &Tensor, y: Option<&Tensor>| x + y.unwrap_or(x));
    let y = f.call(&Tensor::ones([2]), None).unwrap();
    assert_eq!(y.shape(), [2]);
}
