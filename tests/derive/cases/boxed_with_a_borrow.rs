// Says: closure may outlive the current function, but it borrows `w`
use retape::{Tensor, accelerate};

fn main() {
    let f = {
        let w = Tensor::ones([2]);
        accelerate(|x: &Tensor| x * &w).boxed()
    };
    let y = f.call(&Tensor::ones([2])).unwrap();
    assert_eq!(y.shape(), [2]);
}
