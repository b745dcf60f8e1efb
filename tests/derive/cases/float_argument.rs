use retape::{Tensor, accelerate};

fn main() {
    let scaled = accelerate(|x: &Tensor, by: &f32| x * *by);
    let by_value = accelerate(|x: Tensor| x.exp());
    let float_result = accelerate(|x: &Tensor| x.n_elements() as f32);
}
