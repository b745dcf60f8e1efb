//! Seeded inputs for a descriptor.

use retape_kernels::library::{Library, ScatterAdd};
use retape_runtime::{DType, Element, Scalar, bf16, f16};

/// A seeded source of numbers (SplitMix64).
pub struct Draw(u64);

impl Draw {
    pub fn new(seed: u64) -> Draw {
        Draw(seed)
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }

    /// A float: often a small whole number, so that there are ties; sometimes special; else from -4 to 4.
    fn float(&mut self) -> f64 {
        const SPECIAL: [f64; 9] =
            [f64::NAN, -0.0, 0.0, f64::INFINITY, f64::NEG_INFINITY, 1e-40, 65_519.999, 3e-8, 1.000_000_059_604_645];
        match self.below(48) {
            0..6 => SPECIAL[self.below(SPECIAL.len())],
            6..18 => self.below(7) as f64 - 3.0,
            _ => (self.bits() >> 11) as f64 / (1_u64 << 50) as f64 - 4.0,
        }
    }

    fn scalar(&mut self, dtype: DType) -> Scalar {
        let is_small = self.below(2) == 0;
        let bits = match dtype {
            DType::F32 => return (self.float() as f32).to_scalar(),
            DType::F64 => return self.float().to_scalar(),
            DType::F16 => return f16::from_f64(self.float()).to_scalar(),
            DType::Bf16 => return bf16::from_f64(self.float()).to_scalar(),
            DType::Bool => self.bits() & 1,
            _ if is_small => self.below(11) as u64,
            DType::I64 => self.bits(),
            DType::I32 | DType::U32 => self.bits() >> 32,
            DType::U8 => self.bits() >> 56,
        };
        Scalar { dtype, bits }
    }

    /// The bytes of `n` elements.
    fn bytes(&mut self, dtype: DType, n: usize) -> Vec<u8> {
        to_bytes((0..n).map(|_| self.scalar(dtype)))
    }
}

fn to_bytes(scalars: impl Iterator<Item = Scalar>) -> Vec<u8> {
    scalars.flat_map(|s| s.bits.to_le_bytes().into_iter().take(s.dtype.size())).collect()
}

/// The elements of an array.
pub fn scalars(dtype: DType, bytes: &[u8]) -> Vec<Scalar> {
    let bits = |bytes: &[u8]| bytes.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte));
    bytes.chunks(dtype.size()).map(|bytes| Scalar { dtype, bits: bits(bytes) }).collect()
}

fn float(dtype: DType, x: f64) -> Scalar {
    if dtype == DType::F32 { (x as f32).to_scalar() } else { x.to_scalar() }
}

/// Inputs of a kernel, as it expects them.
pub fn inputs(kernel: &Library, draw: &mut Draw) -> Vec<Vec<u8>> {
    let types = kernel.inputs();
    let mut all: Vec<Vec<u8>> = types.iter().map(|(dtype, n)| draw.bytes(*dtype, *n)).collect();
    match kernel {
        Library::ScatterAdd(scatter) => all[1] = indices(scatter, types[1].1, draw),
        Library::Cholesky(cholesky) => {
            let matrices = (0..cholesky.batch).flat_map(|_| positive(draw, cholesky.n));
            all[0] = to_bytes(matrices.map(|x| float(cholesky.dtype, x)));
        }
        _ => {}
    }
    all
}

/// Indices of which some count from the end and some are out of range.
fn indices(scatter: &ScatterAdd, n: usize, draw: &mut Draw) -> Vec<u8> {
    let dtype = scatter.index_dtype;
    let range = 3 * scatter.len + 4;
    let index = |draw: &mut Draw| match draw.below(50) {
        0 => i64::MIN,
        _ => draw.below(range) as i64 - (range / 2) as i64,
    };
    to_bytes((0..n).map(|_| Scalar { dtype, bits: index(draw) as u64 }))
}

/// A symmetric matrix with positive eigenvalues, whose upper triangle is nonsense.
fn positive(draw: &mut Draw, n: usize) -> Vec<f64> {
    let g: Vec<f64> = (0..n * n).map(|_| draw.below(1000) as f64 / 500.0 - 1.0).collect();
    let entry = |i: usize, j: usize| (0..n).map(|k| g[i * n + k] * g[j * n + k]).sum::<f64>() / (n as f64).sqrt();
    let element = |i: usize, j: usize| match i.cmp(&j) {
        std::cmp::Ordering::Less => f64::NAN,
        std::cmp::Ordering::Equal => entry(i, j) + 1.0,
        std::cmp::Ordering::Greater => entry(i, j),
    };
    (0..n * n).map(|at| element(at / n, at % n)).collect()
}
