// Says: `Params` is not a `Tree` | #[derive(Tree)]
use retape::{Boxed, Result, Tensor, accelerate};

struct Params {
    w: Tensor,
}

struct Trainer {
    step: Boxed<(Params, Tensor), (Params, Tensor)>,
}

impl Trainer {
    fn new() -> Trainer {
        let step = accelerate(|p: &Params, x: &Tensor| (Params { w: &p.w * x }, x.clone()));
        Trainer { step: step.boxed() }
    }

    fn run(&self, params: Params) -> Result<Params> {
        let (params, _) = self.step.call(params, &Tensor::ones([2]))?;
        Ok(params)
    }
}

fn main() {
    let trainer = Trainer::new();
    let params = trainer.run(Params { w: Tensor::ones([2]) }).unwrap();
    let (params, _) = trainer.step.call(params, 1.0).unwrap();
    assert_eq!(params.w.shape(), [2]);
}
