// Says: HashSet<u8> | is not a `Tree` | `BTreeMap`, or a `Vec`
use std::collections::HashSet;

use retape::{Tensor, accelerate};

fn main() {
    let f = accelerate(|x: &Tensor, on: &HashSet<u8>| x * on.len() as f32);
    let y = f.call(Tensor::ones([2]), HashSet::new()).unwrap();
    assert_eq!(y.shape(), [2]);
}
