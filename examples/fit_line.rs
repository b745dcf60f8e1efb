//! Fits a straight line to noisy points: the smallest complete use of the library.

#![allow(clippy::print_stdout, reason = "an example talks to its user")]

use retape::{Tensor, accelerate};

fn main() -> retape::Result<()> {
    let n = 200;
    let xs: Vec<f32> = (0..n).map(|i| i as f32 / n as f32).collect();
    let ys: Vec<f32> =
        xs.iter().enumerate().map(|(i, x)| 3.0 * x - 1.0 + 0.05 * ((i * 37 % 19) as f32 - 9.0)).collect();
    let (x, y) = (Tensor::from(xs), Tensor::from(ys));

    let step = accelerate(|line: &(Tensor, Tensor), x: &Tensor, y: &Tensor, rate: &Tensor| {
        let (slope, offset) = line;
        let error = slope * x + offset - y;
        let loss = (&error * &error).sum(..) / error.n_elements() as f32;
        let (d_slope, d_offset) = loss.grad(line);
        (loss, (slope - d_slope * rate, offset - d_offset * rate))
    });

    let mut line = (Tensor::from(0.0_f32), Tensor::from(0.0_f32));
    for i in 0..500 {
        let rate = 0.5 / (1.0 + 0.001 * i as f32);
        let (loss, next) = step.call(&line, &x, &y, rate)?;
        if i % 100 == 0 {
            println!("step {i:3}  loss {:.6}", loss.item::<f32>()?);
        }
        line = next;
    }
    println!("slope {:.3}, offset {:.3}", line.0.item::<f32>()?, line.1.item::<f32>()?);
    println!("{}", step.stats());
    Ok(())
}
