// Says: HashMap< | is not a `Tree` | `BTreeMap`
use std::collections::HashMap;

use retape::{Tensor, Tree, accelerate};

#[derive(Tree)]
struct Params {
    layers: HashMap<String, Tensor>,
}

fn main() {
    let f = accelerate(|p: &Params| p.layers["out"].exp());
    let y = f.call(Params { layers: HashMap::new() }).unwrap();
    assert_eq!(y.shape(), [2]);
}
