// Says: `&str` cannot be passed for an argument of type `String`
use retape::{Tensor, accelerate};

fn main() {
    let f = accelerate(|x: &Tensor, mode: &String| x * mode.len() as f32);
    let y = f.call(&Tensor::ones([2]), "fast").unwrap();
    assert_eq!(y.shape(), [2]);
}
