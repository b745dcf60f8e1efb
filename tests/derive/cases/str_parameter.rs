// Says: a parameter of type `&str` cannot be traced | `&Tensor` | `&Vec<Tensor>` | `&String`
use retape::{Tensor, accelerate};

fn main() {
    let f = accelerate(|x: &Tensor, mode: &str| x * mode.len() as f32);
    let y = f.call(&Tensor::ones([2]), "fast").unwrap();
    assert_eq!(y.shape(), [2]);
}
