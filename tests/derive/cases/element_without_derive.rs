// Says: `Params` is not a `Tree` | #[derive(Tree)]
use retape::{Tensor, accelerate};

struct Params {
    w: Tensor,
}

fn main() {
    let f = accelerate(|layers: &Vec<Option<Params>>, x: &Tensor| x * layers.len() as f32);
    let y = f.call(vec![], &Tensor::ones([2])).unwrap();
    assert_eq!(y.shape(), [2]);
}
