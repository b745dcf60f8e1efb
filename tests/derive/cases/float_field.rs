use retape::{Tensor, Tree};

#[derive(Tree)]
struct Params {
    weights: Tensor,
    rate: f32,
}

#[derive(Tree)]
struct Nested {
    rates: Vec<Option<(u8, f64)>>,
}

type Real = f32;

#[derive(Tree)]
struct Alias {
    rate: Real,
}

fn main() {}
