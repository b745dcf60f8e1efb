// Says: `Params` is not a `Tree` | #[derive(Tree)]
use retape::{Tensor, accelerate};

struct Params {
    w: Tensor,
}

fn main() {
    let f = accelerate(|x: &Tensor| {
        let p = Params { w: x.exp() };
        p.w.sum(..).grad(&p).w
    });
    let y = f.call(&Tensor::ones([2])).unwrap();
    assert_eq!(y.shape(), [2]);
}
