// Says: each argument and the result need the bound `Tree` | `((A,), R)`
use retape::{Accelerated, Tensor, Tree, accelerate};

fn apply<F, A, R: Tree>(f: &Accelerated<F, (A,), R>, x: &A) -> R {
    f.call(x).unwrap()
}

fn main() {
    let f = accelerate(|x: &Tensor| x.exp());
    apply(&f, &Tensor::ones([2]));
}
