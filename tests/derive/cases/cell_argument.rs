// Says: RefCell<Vec<Tensor>>` is not a `Tree` | hold the value itself
use std::cell::RefCell;

use retape::{Tensor, accelerate};

fn main() {
    let f = accelerate(|xs: &RefCell<Vec<Tensor>>| xs.borrow()[0].exp());
    let y = f.call(RefCell::new(vec![Tensor::ones([2])])).unwrap();
    assert_eq!(y.shape(), [2]);
}
