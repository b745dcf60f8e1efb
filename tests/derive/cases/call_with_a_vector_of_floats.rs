// Says: `&Vec<f32>` cannot be passed for an argument of type `Tensor`
use retape::{Tensor, accelerate};

fn main() {
    let f = accelerate(|x: &Tensor, by: &Tensor| x * by);
    let y = f.call(&Tensor::ones([2]), &vec![1.0_f32, 2.0]).unwrap();
    assert_eq!(y.shape(), [2]);
}
