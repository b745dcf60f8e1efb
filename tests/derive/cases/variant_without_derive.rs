// Says: `Inner` is not a `Tree` | #[derive(Tree)]
use retape::{Tensor, Tree, accelerate};

struct Inner;

#[derive(Tree)]
enum Mode {
    Off,
    On(Inner),
}

fn main() {
    let f = accelerate(|_mode: &Mode, x: &Tensor| x.exp());
    let y = f.call(Mode::Off, 1.0).unwrap();
    assert_eq!(y.shape(), [0; 0]);
}
