//! Seeded inputs for a descriptor.

use retape_kernels::library::{Library, ScanKind, ScatterAdd, TriangularSolve};
use retape_runtime::{DType, Element, Scalar, bf16, f16};

/// A seeded source of numbers (SplitMix64).
pub(crate) struct Draw(u64);

impl Draw {
    pub(crate) fn new(seed: u64) -> Draw {
        Draw(seed)
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
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

    /// A float with many equals and rarely NaN, so that long lines do not end in NaN or at infinity.
    fn calm_float(&mut self) -> f64 {
        if self.below(3000) == 0 { f64::NAN } else { self.below(65) as f64 / 8.0 - 4.0 }
    }

    fn scalar(&mut self, dtype: DType, mood: Mood) -> Scalar {
        if dtype.is_float() || dtype.is_half() {
            let x = match mood {
                Mood::Wild => self.float(),
                Mood::Calm => self.calm_float(),
                Mood::NearOne => 1.0 + (self.below(1001) as f64 - 500.0) / 5000.0,
            };
            return match dtype {
                DType::F32 => (x as f32).to_scalar(),
                DType::F16 => f16::from_f64(x).to_scalar(),
                DType::Bf16 => bf16::from_f64(x).to_scalar(),
                _ => x.to_scalar(),
            };
        }
        let is_small = self.below(2) == 0;
        let bits = match dtype {
            DType::Bool => self.bits() & 1,
            _ if is_small => self.below(11) as u64,
            DType::I64 => self.bits(),
            DType::U8 => self.bits() >> 56,
            _ => self.bits() >> 32,
        };
        Scalar { dtype, bits }
    }

    /// The bytes of `n` elements.
    fn bytes(&mut self, dtype: DType, n: usize, mood: Mood) -> Vec<u8> {
        to_bytes((0..n).map(|_| self.scalar(dtype, mood)))
    }
}

/// The kind of floats that are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    /// With many special values.
    Wild,
    /// With few.
    Calm,
    /// Factors of long products.
    NearOne,
}

impl Mood {
    /// The kind that fits a kernel: where one element meets many others, special values must be rare.
    fn of(kernel: &Library) -> Mood {
        const MANY: usize = 30;
        match kernel {
            Library::Scan(scan) if scan.len > MANY && scan.kind == ScanKind::Prod => Mood::NearOne,
            Library::Scan(scan) if scan.len > MANY => Mood::Calm,
            Library::Recurrence(recurrence) if recurrence.len > MANY => Mood::NearOne,
            Library::ArgReduce(search) if search.len > MANY => Mood::Calm,
            Library::ScatterAdd(scatter) if scatter.n_indices > MANY => Mood::Calm,
            _ => Mood::Wild,
        }
    }
}

/// The bytes of an array.
pub(crate) fn to_bytes(scalars: impl Iterator<Item = Scalar>) -> Vec<u8> {
    scalars.flat_map(|s| s.bits.to_le_bytes().into_iter().take(s.dtype.size())).collect()
}

/// The elements of an array.
pub(crate) fn scalars(dtype: DType, bytes: &[u8]) -> Vec<Scalar> {
    let bits = |bytes: &[u8]| bytes.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte));
    bytes.chunks(dtype.size()).map(|bytes| Scalar { dtype, bits: bits(bytes) }).collect()
}

fn float(dtype: DType, x: f64) -> Scalar {
    if dtype == DType::F32 { (x as f32).to_scalar() } else { x.to_scalar() }
}

/// Inputs of a kernel, as it expects them.
pub(crate) fn inputs(kernel: &Library, draw: &mut Draw) -> Vec<Vec<u8>> {
    let (types, mood) = (kernel.inputs(), Mood::of(kernel));
    let mut all: Vec<Vec<u8>> = types.iter().map(|(dtype, n)| draw.bytes(*dtype, *n, mood)).collect();
    match kernel {
        Library::ScatterAdd(scatter) => {
            let at = usize::from(!scatter.from_zeros);
            all[at] = indices(scatter, types[at].1, draw);
        }
        Library::Cholesky(cholesky) => {
            let matrices = (0..cholesky.batch).flat_map(|i| symmetric(draw, cholesky.n, i != 1));
            all[0] = to_bytes(matrices.map(|x| float(cholesky.dtype, x)));
        }
        // Coefficients of gradients of extremes, and their negatives.
        Library::Recurrence(recurrence) if recurrence.len > 30 && draw.below(2) == 0 => {
            let coefficients = (0..types[1].1).map(|_| draw.below(3) as f64 - 1.0);
            all[1] = to_bytes(coefficients.map(|x| Scalar::from(x).cast(recurrence.dtype)));
        }
        // Else some systems keep their special values.
        Library::TriangularSolve(solve) if draw.below(4) > 0 => {
            let matrices = (0..solve.batch).flat_map(|_| triangular(draw, solve));
            all[0] = to_bytes(matrices.map(|x| float(solve.dtype, x)));
            all[1] = draw.bytes(solve.dtype, types[1].1, Mood::NearOne);
        }
        _ => {}
    }
    all
}

/// A triangular matrix that is easy to solve with, and nonsense where it is not read.
fn triangular(draw: &mut Draw, solve: &TriangularSolve) -> Vec<f64> {
    let n = solve.n;
    let mut element = |row: usize, column: usize| {
        let x = draw.below(1000) as f64 / 1000.0;
        match row.cmp(&column) {
            std::cmp::Ordering::Equal if solve.unit_diagonal => f64::NAN,
            std::cmp::Ordering::Equal => 0.5 + x,
            order if (order == std::cmp::Ordering::Greater) == solve.lower => (x - 0.5) / 8.0,
            _ => f64::NAN,
        }
    };
    (0..n * n).map(|at| element(at / n, at % n)).collect()
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

/// A symmetric matrix with positive eigenvalues, or else one that is found not to have them at its middle column. Its
/// upper triangle is nonsense.
fn symmetric(draw: &mut Draw, n: usize, is_positive: bool) -> Vec<f64> {
    let g: Vec<f64> = (0..n * n).map(|_| draw.below(1000) as f64 / 500.0 - 1.0).collect();
    let entry = |i: usize, j: usize| (0..n).map(|k| g[i * n + k] * g[j * n + k]).sum::<f64>() / (n as f64).sqrt();
    let element = |i: usize, j: usize| match i.cmp(&j) {
        std::cmp::Ordering::Less => f64::NAN,
        std::cmp::Ordering::Equal if !is_positive && i == n / 2 => -1.0,
        std::cmp::Ordering::Equal => entry(i, j) + 1.0,
        std::cmp::Ordering::Greater => entry(i, j),
    };
    (0..n * n).map(|at| element(at / n, at % n)).collect()
}
