// Says: `Params` is not a `Tree` | #[derive(Tree)]
use retape::{Accelerated, Result, Tensor, accelerate};

struct Params {
    w: Tensor,
}

fn model() -> Accelerated<impl Fn(&Params) -> Tensor, (Params,), Tensor> {
    accelerate(|p: &Params| p.w.exp())
}

fn main() -> Result<()> {
    let y = model().call(&Params { w: Tensor::ones([2]) })?;
    assert_eq!(y.shape(), [2]);
    Ok(())
}
