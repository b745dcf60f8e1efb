// Says: HashMap< | is not a `Tree` | `BTreeMap`
use std::collections::HashMap;

use retape::{Tensor, accelerate};

fn main() {
    let f = accelerate(|layers: &HashMap<String, Tensor>| layers["out"].exp());
    let y = f.call(HashMap::new()).unwrap();
    assert_eq!(y.shape(), [2]);
}
