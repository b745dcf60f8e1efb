// Says: type annotations needed
use retape::{Accelerated, Tensor, accelerate};

fn twice<F, A, R>(f: &Accelerated<F, (A,), R>, x: &A) -> [R; 2] {
    [f.call(x).unwrap(), f.call(x).unwrap()]
}

fn main() {
    let f = accelerate(|x: &Tensor| x.exp());
    twice(&f, &Tensor::ones([2]));
}
