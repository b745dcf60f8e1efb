//! The measured workloads, by name; `tests/gpu/peers.py` has the same.

use retape::{DType, Device, MathMode, Result, Tensor, accelerate};
use retape_runtime::{DeviceBuffer, Gpu};

use crate::formula::{stream, tensor};
use crate::models::{self, Size, Work};

/// Elements of arrays whose bandwidth is measured.
const ELEMENTS: usize = 64 << 20;

/// How large workloads are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    /// As they are measured.
    Full,
    /// As [`Full`](Scale::Full), but with few sequences, which a processor gets through.
    Reduced,
    /// For an interpreter.
    Tiny,
}

impl Scale {
    fn pick<T>(self, full: T, tiny: T) -> T {
        if self == Scale::Tiny { tiny } else { full }
    }

    /// This one, or a smaller one at which a processor has the workload done soon.
    pub(crate) fn affordable(self, name: &str) -> Scale {
        let is_long = self == Scale::Full && name.starts_with("transformer");
        if is_long { Scale::Reduced } else { self }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Scale::Full => "full",
            Scale::Reduced => "reduced",
            Scale::Tiny => "tiny",
        }
    }
}

/// Whether a later step of this workload has another loss than the first.
pub(crate) fn learns(name: &str) -> bool {
    ["digits_train", "mlp", "elementwise", "transformer"].iter().any(|kind| name.starts_with(kind))
}

/// The workload of this name on a device.
///
/// # Errors
///
/// Fails if there is none.
pub(crate) fn make(name: &str, scale: Scale, device: Device) -> std::result::Result<Box<dyn Work>, crate::AnyError> {
    let n = scale.pick(ELEMENTS, 1 << 12);
    let elementwise = |mode| models::elementwise(n, Tensor::sin, mode, device);
    Ok(match name {
        "digits_train" => models::digits_train(scale.pick(32, 1), device),
        "digits_predict" => models::digits_predict(scale.pick(32, 1), device),
        "mlp" => models::mlp(scale.pick(128, 2), device),
        "elementwise" => elementwise(MathMode::Strict),
        "elementwise_fast" => elementwise(MathMode::Fast),
        "negate" => negate(n, device),
        "copy" => Box::new(Copy::new(n, device)?),
        "transformer_f32" => transformer(DType::F32, scale, device),
        "transformer_bf16" => transformer(DType::Bf16, scale, device),
        _ => match name.split('_').collect::<Vec<_>>()[..] {
            ["matmul", kind, n] => matmul(kind, n.parse()?, scale, device)?,
            ["launch", n] => Box::new(Launches::new(n.parse()?, device)?),
            _ => return Err(format!("no workload {name}").into()),
        },
    })
}

fn transformer(products: DType, scale: Scale, device: Device) -> Box<dyn Work> {
    let size = Size { width: scale.pick(1024, 32), heads: scale.pick(16, 2), products };
    let sequences = match scale {
        Scale::Full => [64, 1024],
        Scale::Reduced => [2, 1024],
        Scale::Tiny => [1, 8],
    };
    models::transformer(sequences, size, device)
}

fn matmul(kind: &str, n: usize, scale: Scale, device: Device) -> std::result::Result<Box<dyn Work>, String> {
    let (dtype, mode) = match kind {
        "f32" => (DType::F32, MathMode::Strict),
        "tf32" => (DType::F32, MathMode::Fast),
        "bf16" => (DType::Bf16, MathMode::Strict),
        _ => return Err(format!("no matmul of {kind}")),
    };
    Ok(models::matmul(scale.pick(n, n / 128), dtype, mode, device))
}

/// An array read and another written by a kernel: how fast ours are at best.
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

/// An array copied by the driver, without a kernel of ours: the reference for bandwidth.
enum Copy {
    Here { from: Vec<f32>, to: Vec<f32> },
    There { from: DeviceBuffer, to: Option<DeviceBuffer> },
}

impl Copy {
    fn new(n: usize, device: Device) -> Result<Copy> {
        let from = stream(n, 1000, 2.0, 1.0);
        let Device::Cuda(ordinal) = device else { return Ok(Copy::Here { from, to: vec![] }) };
        let bytes: Vec<u8> = from.into_iter().flat_map(f32::to_le_bytes).collect();
        Ok(Copy::There { from: DeviceBuffer::from_bytes(&Gpu::open(ordinal)?, &bytes)?, to: None })
    }
}

impl Work for Copy {
    fn step(&mut self) -> Result<()> {
        match self {
            Copy::Here { from, to } => to.clone_from(from),
            Copy::There { from, to } => *to = Some(from.copy_to(from.gpu())?),
        }
        Ok(())
    }

    fn loss(&mut self) -> Result<f64> {
        let copied: Vec<f32> = match self {
            Copy::Here { to, .. } => to.clone(),
            Copy::There { to, .. } => to.as_ref().map_or(Ok(vec![]), |to| to.to_host()?.to_vec())?,
        };
        Ok(copied.iter().map(|&x| f64::from(x)).sum::<f64>() / copied.len() as f64)
    }
}

/// A chain of so many kernels that cannot become one: each is a cumulative sum. Of zeros, which stay so.
struct Launches {
    call: Box<dyn Fn() -> Result<Tensor>>,
    last: Tensor,
}

impl Launches {
    fn new(n: usize, device: Device) -> std::result::Result<Launches, crate::AnyError> {
        let x = Tensor::zeros([256]).to(device);
        let chain = accelerate(move |x: &Tensor| (0..n).fold(x.clone(), |x, _| x.cumsum(0)));
        let last = chain.call(&x)?;
        let n_steps: usize = chain.stats().entries.iter().map(|entry| entry.n_steps).sum();
        if n_steps != n {
            return Err(format!("{n} cumulative sums became {n_steps} steps").into());
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
