// Says: `Tensor` cannot be accelerated
use retape::{Tensor, accelerate};

fn main() {
    accelerate(Tensor::ones([2]));
}
