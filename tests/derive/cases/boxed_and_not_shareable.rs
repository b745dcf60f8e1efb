// Says: `Cell<u32>` cannot be shared between threads safely
use std::cell::Cell;

use retape::{Tensor, accelerate};

fn main() {
    let n_traces = Cell::new(0_u32);
    let f = accelerate(move |x: &Tensor| {
        n_traces.set(n_traces.get() + 1);
        x.exp()
    })
    .boxed();
    let y = f.call(&Tensor::ones([2])).unwrap();
    assert_eq!(y.shape(), [2]);
}
