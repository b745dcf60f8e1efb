// Says: `Params` is not a `Tree` | #[derive(Tree)]
use retape::{Result, Tensor, accelerate};

struct Params {
    w: Tensor,
}

fn main() -> Result<()> {
    let f = accelerate(|p: &Params| p.w.exp());
    let p = Params { w: Tensor::ones([2]) };
    f.configure(|options| options.capacity = 3);
    f.pin(&p)?;
    f.bisect(&p)?;
    f.signature(&p);
    f.save("f.retape")?;
    f.load("f.retape")?;
    assert_eq!((f.stats().hits, f.advice().len(), f.hit_rate()), (0, 0, 0.0));
    let f = f.boxed();
    let y = f.call(&p)?;
    assert_eq!(y.exp().shape(), [2]);
    Ok(())
}
