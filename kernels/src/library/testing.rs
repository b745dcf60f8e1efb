//! The common parts of the tests of library kernels: seeded inputs, aligned buffers and the comparison with the twin.

use std::sync::Mutex;

use retape_runtime::{Buffer, DType, Element, bf16, f16, lock, n_threads, set_n_threads};

use super::Library;
use super::view::{Plain, view};

/// A seeded source of numbers (SplitMix64).
pub(crate) struct Draw(u64);

impl Draw {
    pub(crate) fn new(seed: u64) -> Draw {
        Draw(seed)
    }

    pub(crate) fn bits(&mut self) -> u64 {
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
    fn float(&mut self, special: bool) -> f64 {
        const SPECIAL: [f64; 6] = [f64::NAN, -0.0, 0.0, f64::INFINITY, f64::NEG_INFINITY, 1e-40];
        match self.below(16) {
            0..2 if special => SPECIAL[self.below(SPECIAL.len())],
            2..6 => self.below(7) as f64 - 3.0,
            _ => (self.bits() >> 11) as f64 / (1_u64 << 50) as f64 - 4.0,
        }
    }
}

/// A buffer that holds a copy of `values`.
pub(crate) fn buffer<T: Plain>(values: &[T]) -> Buffer {
    Buffer::copy_of(values).unwrap()
}

/// A buffer of `n` drawn elements.
pub(crate) fn drawn(draw: &mut Draw, dtype: DType, n: usize, special: bool) -> Buffer {
    fn fill<T: Plain>(n: usize, next: impl FnMut() -> T) -> Buffer {
        let mut next = next;
        buffer(&(0..n).map(|_| next()).collect::<Vec<T>>())
    }
    match dtype {
        DType::F32 => fill(n, || draw.float(special) as f32),
        DType::F64 => fill(n, || draw.float(special)),
        DType::F16 => fill(n, || f16::from_f64(draw.float(special))),
        DType::Bf16 => fill(n, || bf16::from_f64(draw.float(special))),
        DType::I32 => fill(n, || if draw.below(2) == 0 { draw.bits() as i32 } else { draw.below(11) as i32 - 5 }),
        DType::I64 => fill(n, || if draw.below(2) == 0 { draw.bits() as i64 } else { draw.below(11) as i64 - 5 }),
        DType::U32 => fill(n, || if draw.below(2) == 0 { draw.bits() as u32 } else { draw.below(5) as u32 }),
        DType::U8 => fill(n, || draw.bits() as u8),
        DType::Bool => fill(n, || draw.below(2) as u8),
    }
}

fn outputs_of(kernel: &Library, inputs: &[Buffer], naive: bool) -> Vec<Buffer> {
    let inputs: Vec<&[u8]> = inputs.iter().map(Buffer::bytes).collect();
    // Filled with a byte that makes no reasonable result.
    let blank = |(dtype, n): &(DType, usize)| Buffer::from_bytes(&vec![0xa5; dtype.size() * n]).unwrap();
    let mut outputs: Vec<Buffer> = kernel.outputs().iter().map(blank).collect();
    let mut views: Vec<&mut [u8]> = outputs.iter_mut().map(Buffer::bytes_mut).collect();
    match naive {
        false => kernel.run(&inputs, &mut views),
        true => kernel.reference(&inputs, &mut views),
    }
    outputs
}

/// The values of the only output for these inputs, all of one type.
pub(crate) fn values_of<T: Plain>(kernel: &Library, inputs: &[&[T]]) -> Vec<T> {
    let inputs: Vec<Buffer> = inputs.iter().map(|x| buffer(x)).collect();
    output_of(kernel, &inputs)
}

/// The values of the only output for these inputs.
pub(crate) fn output_of<T: Plain>(kernel: &Library, inputs: &[Buffer]) -> Vec<T> {
    let outputs = outputs_of(kernel, inputs, false);
    view(outputs[0].bytes(), kernel.outputs()[0].1).to_vec()
}

/// The results of `body` on one thread and on two.
pub(crate) fn on_one_and_two_threads<R>(body: impl Fn() -> R) -> (R, R) {
    // The number of threads belongs to the whole process.
    static SETTING: Mutex<()> = Mutex::new(());
    let _guard = lock(&SETTING);
    let before = n_threads();
    set_n_threads(1);
    let one = body();
    set_n_threads(2);
    let two = body();
    set_n_threads(before);
    (one, two)
}

/// Draws inputs with special values and asserts that kernel and twin agree bit by bit, NaN by NaN.
pub(crate) fn assert_twins(kernel: &Library, draw: &mut Draw) {
    let inputs: Vec<Buffer> = kernel.inputs().into_iter().map(|(dtype, n)| drawn(draw, dtype, n, true)).collect();
    assert_close(kernel, &inputs, 0.0);
}

/// Asserts that kernel and twin agree on these inputs: floats within `tolerance` times the larger of 1 and their
/// size, NaN with NaN and infinities with themselves; everything else exactly. Asserts too that the text form reads
/// back, and that one thread and two give the same bits.
pub(crate) fn assert_close(kernel: &Library, inputs: &[Buffer], tolerance: f64) {
    assert_eq!(Library::parse(&kernel.to_string()).as_ref(), Some(kernel), "{kernel} reads back");
    let (fast, again) = on_one_and_two_threads(|| outputs_of(kernel, inputs, false));
    let naive = outputs_of(kernel, inputs, true);
    for (((dtype, n), fast), (again, naive)) in kernel.outputs().into_iter().zip(&fast).zip(again.iter().zip(&naive)) {
        assert_eq!(fast.bytes(), again.bytes(), "{kernel} on one thread and on two");
        let same = match dtype {
            DType::F32 => first_difference(view::<f32>(fast.bytes(), n), view(naive.bytes(), n), tolerance),
            DType::F64 => first_difference(view::<f64>(fast.bytes(), n), view(naive.bytes(), n), tolerance),
            DType::F16 => first_difference(view::<f16>(fast.bytes(), n), view(naive.bytes(), n), tolerance),
            DType::Bf16 => first_difference(view::<bf16>(fast.bytes(), n), view(naive.bytes(), n), tolerance),
            _ => fast.bytes().iter().zip(naive.bytes()).position(|(a, b)| a != b).map(|at| format!("byte {at}")),
        };
        assert_eq!(same, None, "{kernel}");
    }
}

/// Where two arrays of floats differ; with tolerance 0, in their bits unless both are NaN.
fn first_difference<T: Element>(fast: &[T], naive: &[T], tolerance: f64) -> Option<String> {
    let same = |a: T, b: T| {
        let (x, y) = (a.to_f64(), b.to_f64());
        let close = (x - y).abs() <= tolerance * y.abs().max(1.0);
        a.to_scalar() == b.to_scalar() || (x.is_nan() && y.is_nan()) || (tolerance > 0.0 && (x == y || close))
    };
    let at = fast.iter().zip(naive).position(|(a, b)| !same(*a, *b))?;
    Some(format!("element {at}: {} but the twin has {}", fast[at], naive[at]))
}
