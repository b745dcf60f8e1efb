use std::collections::HashMap;

use retape::{Tensor, Tree};

#[derive(Tree)]
struct Params {
    layers: HashMap<String, Tensor>,
}

fn takes_a_tree<T: Tree>(_: T) {}

fn main() {
    takes_a_tree(HashMap::from([(1_u8, Tensor::zeros([2]))]));
}
