//! What is measured, by name; `tests/gpu/peers.py` has the same.

use retape::{DType, Device, MathMode, Result, Tensor, accelerate};

use crate::formula::tensor;
use crate::models::{self, Size, Work};

/// Elements of arrays whose bandwidth is measured.
const ELEMENTS: usize = 64 << 20;

/// The workload of this name on a device; a tiny one if it is to be quick.
///
/// # Errors
///
/// Fails if there is none.
pub(crate) fn make(name: &str, is_quick: bool, device: Device) -> std::result::Result<Box<dyn Work>, String> {
    let size = |full: usize, tiny: usize| if is_quick { tiny } else { full };
    let block = |products| {
        let size = Size { width: size(1024, 32), heads: size(16, 2), products };
        models::transformer(if is_quick { [1, 8] } else { [64, 1024] }, size, device)
    };
    let unknown = || format!("no workload {name}");
    Ok(match name {
        "digits_train" => models::digits_train(size(32, 1), device),
        "digits_predict" => models::digits_predict(size(32, 1), device),
        "mlp" => models::mlp(size(128, 2), device),
        "elementwise" => models::elementwise(size(ELEMENTS, 1 << 12), Tensor::sin, device),
        "negate" => negate(size(ELEMENTS, 1 << 12), device),
        "transformer_f32" => block(DType::F32),
        "transformer_bf16" => block(DType::Bf16),
        _ => match name.split('_').collect::<Vec<_>>()[..] {
            ["matmul", kind, n] => {
                let (dtype, mode) = match kind {
                    "f32" => (DType::F32, MathMode::Strict),
                    "tf32" => (DType::F32, MathMode::Fast),
                    "bf16" => (DType::Bf16, MathMode::Strict),
                    _ => return Err(unknown()),
                };
                let n: usize = n.parse().map_err(|_| unknown())?;
                models::matmul(if is_quick { n / 128 } else { n }, dtype, mode, device)
            }
            ["launch", n] => Box::new(Launches::new(n.parse().map_err(|_| unknown())?, device)?),
            _ => return Err(unknown()),
        },
    })
}

/// An array read and another written: how fast memory is at best.
fn negate(n: usize, device: Device) -> Box<dyn Work> {
    struct Negate<F>(F, Tensor);
    impl<F: Fn() -> Result<Tensor>> Work for Negate<F> {
        fn step(&mut self) -> Result<()> {
            self.1 = (self.0)()?;
            Ok(())
        }

        fn loss(&mut self) -> Result<f64> {
            Ok(f64::from(self.1.mean(..).item::<f32>()?))
        }
    }
    let x = tensor(&[n], 1000, 2.0, 1.0).to(device);
    let negated = accelerate(|x: &Tensor| -x);
    Box::new(Negate(move || negated.call(&x), Tensor::from(0.0_f32)))
}

/// A chain of so many kernels that cannot become one: each is a cumulative sum. Of zeros, which stay so.
struct Launches {
    call: Box<dyn Fn() -> Result<Tensor>>,
    last: Tensor,
}

impl Launches {
    fn new(n: usize, device: Device) -> std::result::Result<Launches, String> {
        let x = Tensor::zeros([256]).to(device);
        let chain = accelerate(move |x: &Tensor| (0..n).fold(x.clone(), |x, _| x.cumsum(0)));
        let last = chain.call(&x).map_err(|e| e.to_string())?;
        let n_steps: usize = chain.stats().entries.iter().map(|entry| entry.n_steps).sum();
        if n_steps != n {
            return Err(format!("{n} cumulative sums became {n_steps} steps"));
        }
        Ok(Launches { call: Box::new(move || chain.call(&x)), last })
    }
}

impl Work for Launches {
    fn step(&mut self) -> Result<()> {
        self.last = (self.call)()?;
        Ok(())
    }

    fn loss(&mut self) -> Result<f64> {
        Ok(f64::from(self.last.sum(..).item::<f32>()?))
    }
}
