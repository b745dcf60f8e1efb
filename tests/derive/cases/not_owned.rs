use retape::{Tensor, Tree};

#[derive(Tree)]
struct Borrowed<'a> {
    weights: &'a Tensor,
}

#[derive(Tree)]
struct Forever {
    name: &'static str,
}

#[derive(Tree)]
struct Pointer {
    weights: *const Tensor,
}

fn main() {}
