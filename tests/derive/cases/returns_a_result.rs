// Says: `Result<Tensor, String>` is not a `Tree` | return its value | `call`
use retape::{Tensor, accelerate};

fn main() {
    let f = accelerate(|x: &Tensor| -> Result<Tensor, String> { Ok(x.exp()) });
    let y = f.call(&Tensor::ones([2])).unwrap();
    assert_eq!(y.unwrap().shape(), [2]);
}
