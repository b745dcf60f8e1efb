// Says: more than eight parameters | struct | tuple
use retape::{Tensor, accelerate};

fn main() {
    let f = accelerate(
        |a: &Tensor, b: &Tensor, c: &Tensor, d: &Tensor, e: &Tensor, f: &Tensor, g: &Tensor, h: &Tensor, i: &Tensor| {
            a + b + c + d + e + f + g + h + i
        },
    );
    let y = f.call(1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0).unwrap();
    assert_eq!(y.shape(), [0; 0]);
}
