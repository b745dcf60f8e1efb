use retape::{Tensor, Tree};

struct Plain;

#[derive(Tree)]
struct Params {
    weights: Tensor,
    plain: Plain,
}

#[derive(Tree)]
struct Fixed {
    #[tree(static)]
    plain: Plain,
}

#[derive(Tree)]
enum Mode {
    Off,
    On(Plain),
}

#[derive(Tree)]
struct Generic<T> {
    inner: T,
}

fn takes_a_tree<T: Tree>(_: T) {}

fn main() {
    takes_a_tree(Generic { inner: Plain });
}
