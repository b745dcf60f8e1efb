//! Every kernel against its reference, and against itself on other instruction sets, threads and paths.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use retape_runtime::{DType, Element, bf16, f16};
use smallvec::SmallVec;

use super::conv::depthwise::Depthwise;
use super::dense::DenseKernel;
use super::micro::{Engine, Level, ParallelFor, Strided, block_depth, is_streamed, lines_of_chain, split_depth};
use super::testing::on_one_and_two_threads;
use super::{Conv2d, ConvPass, MatMul, MatrixLayout};

/// A small generator of test data (xorshift); seeded, so that a failure repeats.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() >> 33) as usize % n
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Values in -1..1.
    fn bytes<T: Element>(&mut self, len: usize) -> Bytes {
        let values: Vec<T> =
            (0..len).map(|_| T::from_f64((self.next() >> 40) as f64 / f64::from(1 << 23) - 1.0)).collect();
        Bytes::of(&values)
    }

    fn bytes_of(&mut self, dtype: DType, len: usize) -> Bytes {
        match dtype {
            DType::F64 => self.bytes::<f64>(len),
            DType::F16 => self.bytes::<f16>(len),
            DType::Bf16 => self.bytes::<bf16>(len),
            _ => self.bytes::<f32>(len),
        }
    }
}

/// The dtypes of random products.
const DTYPES: [DType; 6] = [DType::F32, DType::F64, DType::F32, DType::F64, DType::F16, DType::Bf16];

/// A buffer that is aligned to 8 bytes.
#[derive(Clone)]
struct Bytes(Vec<u64>, usize);

impl Bytes {
    fn of<T: Element>(values: &[T]) -> Bytes {
        let mut bytes = Bytes::filled(size_of_val(values), 0);
        for (to, x) in bytes.get_mut().chunks_exact_mut(size_of::<T>()).zip(values) {
            to.copy_from_slice(&x.to_scalar().bits.to_le_bytes()[..size_of::<T>()]);
        }
        bytes
    }

    fn filled(len: usize, byte: u8) -> Bytes {
        Bytes(vec![u64::from_ne_bytes([byte; 8]); len.div_ceil(8)], len)
    }

    fn get(&self) -> &[u8] {
        // SAFETY: the words are initialised and cover the length.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.1) }
    }

    fn get_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `get`; the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.1) }
    }

    fn values(&self, dtype: DType) -> Vec<f64> {
        let get = self.get();
        let bits = |x: &[u8]| u16::from_le_bytes(x.try_into().unwrap());
        match dtype {
            DType::F64 => get.chunks_exact(8).map(|x| f64::from_le_bytes(x.try_into().unwrap())).collect(),
            DType::F16 => get.chunks_exact(2).map(|x| f16::from_bits(bits(x)).to_f64()).collect(),
            DType::Bf16 => get.chunks_exact(2).map(|x| bf16::from_bits(bits(x)).to_f64()).collect(),
            _ => get.chunks_exact(4).map(|x| f32::from_le_bytes(x.try_into().unwrap()).into()).collect(),
        }
    }
}

/// A kernel under test.
trait Kernel: DenseKernel + std::fmt::Debug + Sync {
    fn lens(&self) -> [Vec<(DType, usize)>; 2];
}

macro_rules! kernel {
    ($name:ty) => {
        impl Kernel for $name {
            fn lens(&self) -> [Vec<(DType, usize)>; 2] {
                [self.inputs(), self.outputs()]
            }
        }
    };
}
kernel!(MatMul);
kernel!(Conv2d);

fn serial(n: usize, body: &(dyn Fn(usize) + Sync)) {
    (0..n).for_each(body);
}

fn backwards(n: usize, body: &(dyn Fn(usize) + Sync)) {
    (0..n).rev().for_each(body);
}

fn on_three_threads(n: usize, body: &(dyn Fn(usize) + Sync)) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                loop {
                    let task = next.fetch_add(1, Ordering::Relaxed);
                    if task >= n {
                        break;
                    }
                    body(task);
                }
            });
        }
    });
}

/// All engines that must agree bit for bit.
fn engines() -> Vec<Engine> {
    let mut engines = Vec::new();
    for level in Level::available() {
        for is_general in [false, true] {
            engines.push(Engine {
                level,
                parallel_for: serial,
                divides: is_general,
                unpacked: !is_general,
                narrow: !is_general,
            });
        }
    }
    let level = Level::best();
    for parallel_for in [backwards as ParallelFor, on_three_threads] {
        engines.push(Engine { level, parallel_for, divides: true, unpacked: true, narrow: false });
    }
    engines.push(Engine::best());
    engines
}

/// Runs a kernel on one engine; the epilogue must see each element once.
fn run(kernel: &impl Kernel, engine: &Engine, inputs: &[Bytes]) -> Bytes {
    let [_, outputs] = kernel.lens();
    // Stale memory must not show.
    let mut out = Bytes::filled(outputs[0].1 * kernel.dtype().size(), 0xff);
    let start = out.get().as_ptr() as usize;
    let seen = Mutex::new(vec![0u8; outputs[0].1]);
    kernel.run_on(engine, &inputs.iter().map(Bytes::get).collect::<Vec<_>>(), &mut [out.get_mut()], &|tile| {
        let first = (tile.data as usize - start) / kernel.dtype().size();
        for i in 0..tile.rows.len() {
            for j in 0..tile.cols.len() {
                seen.lock().unwrap()[first + i * tile.row_stride + j] += 1;
            }
        }
    });
    assert!(seen.lock().unwrap().iter().all(|n| *n == 1), "{kernel:?}: the epilogue sees each element once");
    out
}

/// Checks a kernel against its reference on random data, and all engines against each other.
fn check(kernel: &impl Kernel, terms: usize, random: &mut Random) {
    let [inputs, _] = kernel.lens();
    let inputs: Vec<Bytes> = inputs.iter().map(|(dtype, len)| random.bytes_of(*dtype, *len)).collect();
    check_on(kernel, terms, &inputs);
}

/// As [`check`], on these inputs: all engines agree in every bit, those of NaN aside.
fn check_on(kernel: &impl Kernel, terms: usize, inputs: &[Bytes]) {
    let [_, outputs] = kernel.lens();
    let dtype = kernel.dtype();
    let mut expected = Bytes::filled(outputs[0].1 * dtype.size(), 0);
    kernel.run_reference(&inputs.iter().map(Bytes::get).collect::<Vec<_>>(), &mut [expected.get_mut()]);
    let mut first: Option<Bytes> = None;
    for engine in engines() {
        let out = run(kernel, &engine, inputs);
        let Some(first) = &first else {
            // Terms are below 1, partial sums below `terms`; errors of a chain grow with its length at most.
            let epsilon = if dtype == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
            let bound = epsilon * (terms as f64).max(1.0) * 2.0;
            // Sums in single precision are rounded once more; one that is close to a tie may fall on its other side.
            let last_place = match dtype {
                DType::F16 => f64::from(f16::EPSILON),
                DType::Bf16 => f64::from(bf16::EPSILON),
                _ => 0.0,
            };
            for (at, (x, y)) in out.values(dtype).iter().zip(expected.values(dtype)).enumerate() {
                let bound = bound + y.abs() * last_place;
                let is_equal = *x == y || (x.is_nan() && y.is_nan()) || (x - y).abs() <= bound;
                assert!(is_equal, "{kernel:?} on {engine:?}: element {at} is {x}, not {y}");
            }
            first = Some(out);
            continue;
        };
        let same = |(x, y): (f64, f64)| x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan());
        let is_same = out.get() == first.get() || out.values(dtype).into_iter().zip(first.values(dtype)).all(same);
        assert!(is_same, "{kernel:?}: {engine:?} gives other bits");
    }
}

/// An operand with a random memory order, gap and offset.
fn operand(random: &mut Random, batch: &[usize], rows: usize, cols: usize) -> MatrixLayout {
    let transposed = random.below(2) == 0;
    let (rows, cols) = if transposed { (cols, rows) } else { (rows, cols) };
    let mut operand = MatrixLayout::contiguous(batch, rows, cols);
    if random.below(3) == 0 {
        let gap = 1 + random.below(3);
        operand.row_stride = cols * gap + random.below(3);
        operand.col_stride = gap;
        let mut stride = rows * operand.row_stride;
        for (axis, extent) in batch.iter().enumerate().rev() {
            operand.batch_strides[axis] = stride;
            stride *= extent;
        }
        operand.offset = random.below(5);
    }
    for stride in &mut operand.batch_strides {
        if random.below(3) == 0 {
            *stride = 0;
        }
    }
    if transposed { operand.transposed() } else { operand }
}

#[test]
fn matmul_agrees_with_its_reference_on_any_shape_and_stride() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let extents = [0, 1, 2, 3, 4, 5, 7, 8, 11, 12, 13, 16, 17, 24, 31, 32, 33, 48, 50, 64, 65, 97];
    for round in 0..220 {
        let dtype = DTYPES[round % DTYPES.len()];
        let [m, n, k] = [0; 3].map(|_| random.pick(&extents));
        let batch: SmallVec<[usize; 4]> = (0..random.below(3)).map(|_| random.pick(&[1, 2, 3])).collect();
        let (a, b) = (operand(&mut random, &batch, m, k), operand(&mut random, &batch, k, n));
        check(&MatMul { dtype, batch, m, n, k, a, b }, k, &mut random);
    }
}

#[test]
fn matmul_agrees_with_its_reference_where_it_is_cut() {
    let mut random = Random(77);
    // Several blocks of k, few rows, several tasks, panels of rows that tasks share, columns in several tasks, sums of
    // columns in several tasks that wait between blocks, partial results.
    let shapes = [
        [3, 5, 700],
        [30, 40, 1000],
        [1, 300, 513],
        [20, 200, 257],
        [200, 300, 40],
        [40, 200, 300],
        [200, 610, 70],
        [30, 330, 700],
        [9, 17, 2500],
        [2, 1, 9000],
        [28, 300, 520],
        [196, 1100, 120],
        [50, 900, 160],
    ];
    for [m, n, k] in shapes {
        for dtype in [DType::F32, DType::F64] {
            check(&MatMul::contiguous(dtype, &[], [m, n, k]), k, &mut random);
            let mut transposed = MatMul::contiguous(dtype, &[], [m, n, k]);
            transposed.a = MatrixLayout::contiguous(&[], k, m).transposed();
            transposed.b = MatrixLayout::contiguous(&[], n, k).transposed();
            check(&transposed, k, &mut random);
        }
    }
    assert!(split_depth(9, 17, 2500) < 2500 && block_depth(700) < 700, "the shapes above take these paths");
}

/// Rows below, at and above the tiles of all levels, columns below, at and above those of panels, chains of several blocks,
/// operands with gaps behind their rows, and left ones in either order, in one task and in several: tasks copy panels of
/// both operands while they multiply, or pack them.
#[test]
fn products_that_read_their_right_operand_in_place_agree_with_those_of_panels() {
    let mut random = Random(0x0b5e_55ed);
    let rows = [1, 2, 5, 6, 7, 8, 9, 11, 12, 13, 14, 16, 18, 20, 24, 26, 31, 32, 38, 49, 66, 97, 131];
    let cols = [7, 8, 15, 16, 17, 31, 32, 33, 40, 48, 63, 64, 65, 130, 260, 512, 530];
    let depths = [1, 2, 15, 16, 17, 33, 100, 250, 256, 257, 300, 515, 530, 800];
    let mut n_large = 0;
    for round in 0..300 {
        let dtype = [DType::F32, DType::F64][round % 2];
        let [m, n, k] = [random.pick(&rows), random.pick(&cols), random.pick(&depths)];
        let mut op = MatMul::contiguous(dtype, &[], [m, n, k]);
        op.b.row_stride = n + random.pick(&[0, 0, 1, 3, 16, 128]);
        op.b.offset = random.pick(&[0, 0, 1, 2, 16]);
        op.a.row_stride = k + random.pick(&[0, 0, 1, 3, 16, 128]);
        if random.below(3) == 0 {
            op.a = MatrixLayout::contiguous(&[], k, m + random.pick(&[0, 0, 1, 3, 64])).transposed();
        }
        op.a.offset = random.pick(&[0, 0, 1, 2, 16]);
        n_large += usize::from(m > 6 && n >= 64 && k > 256);
        check(&op, k, &mut random);
    }
    assert!(n_large > 20, "{n_large} products have several tiles, panels and blocks");
}

/// More row panels than pay for a copy of a column panel on vectors of any length, in tasks of their own, over several
/// blocks of steps; more rows than read a far operand in place; rows of B that begin in the middle of a cache line.
#[test]
fn products_of_many_rows_agree_with_their_references() {
    let mut random = Random(0x70a11);
    for [m, n, k, gap] in
        [[200, 130, 700, 0], [260, 96, 530, 4], [104, 300, 520, 4], [210, 530, 300, 16], [75, 70, 900, 1]]
    {
        for (dtype, is_turned) in [DType::F32, DType::F64].into_iter().flat_map(|dtype| [(dtype, false), (dtype, true)])
        {
            let mut op = MatMul::contiguous(dtype, &[], [m, n, k]);
            op.b.row_stride = n + gap;
            if is_turned {
                op.a = MatrixLayout::contiguous(&[], k, m + gap).transposed();
            }
            check(&op, k, &mut random);
        }
    }
}

/// Row panels that all tasks share, where the last two have equal heights on some levels, packed by several tasks.
#[test]
fn products_whose_tasks_share_row_panels_agree_with_their_references() {
    let mut random = Random(0x5ba7e);
    for [m, n, k] in
        [[8, 640, 1100], [14, 400, 2000], [32, 330, 1100], [32, 400, 2000], [26, 400, 1500], [19, 700, 1030]]
    {
        for dtype in [DType::F32, DType::F64] {
            let mut op = MatMul::contiguous(dtype, &[], [m, n, k]);
            op.b = MatrixLayout::contiguous(&[], n, k).transposed();
            check(&op, k, &mut random);
        }
    }
}

/// Few columns and few steps: columns below, at and above the groups of registers and those of a product that has few,
/// rows below, at and above strips and tiles of all levels, steps below, at and above those that are turned at once, chains
/// of several blocks, sums in parts, gaps, broadcast rows, and rows that share few sets of a cache.
#[test]
fn products_of_few_columns_or_few_steps_agree_with_those_of_panels() {
    let mut random = Random(0x0f_e117);
    let rows = [2, 3, 4, 5, 8, 9, 13, 16, 17, 31, 32, 33, 40, 64, 71, 96, 100, 129, 200, 270];
    let few = [2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 16, 17, 20, 24, 33, 50, 100, 127, 128];
    let long = [1, 5, 15, 63, 64, 65, 128, 256, 257, 300, 520, 2100];
    let short = [1, 3, 4, 5, 7, 8, 9, 10, 15, 16, 17, 31, 32, 33];
    let wide = [15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 128, 130, 160, 256, 260, 512];
    for round in 0..200 {
        let dtype = [DType::F32, DType::F64, DType::F32, DType::Bf16][round % 4];
        let m = random.pick(&rows);
        let [n, k] = match round / 4 % 2 {
            0 => [random.pick(&few), random.pick(&long)],
            _ => [random.pick(&wide), random.pick(&short)],
        };
        let (a, b) = (operand(&mut random, &[], m, k), operand(&mut random, &[], k, n));
        let mut op = MatMul { dtype, batch: SmallVec::new(), m, n, k, a, b };
        // One row, or one column, for all.
        match random.below(12) {
            0 => op.a.row_stride = 0,
            1 => op.b.col_stride = 0,
            _ => {}
        }
        check(&op, k, &mut random);
    }
    // Tasks of several shares, and of several parts.
    for [m, n, k] in [[270, 10, 500], [33, 7, 4200], [600, 100, 70], [40, 700, 10], [900, 140, 32], [19, 2, 9000]] {
        for (dtype, turned) in [(DType::F32, 0), (DType::F32, 1), (DType::F32, 2), (DType::F64, 3)] {
            let mut op = MatMul::contiguous(dtype, &[], [m, n, k]);
            if turned & 1 > 0 {
                op.a = MatrixLayout::contiguous(&[], k, m).transposed();
            }
            if turned & 2 > 0 {
                op.b = MatrixLayout::contiguous(&[], n, k).transposed();
            }
            check(&op, k, &mut random);
        }
    }
}

/// A matrix times a vector from either side: rows below, at and above the tiles of all vectors, several tasks, chains of
/// several blocks, sums in parts, gaps, broadcast rows, and numbers that are not finite.
#[test]
fn products_with_a_vector_agree_with_those_of_panels() {
    let mut random = Random(0x5eed);
    let rows = [1, 3, 15, 16, 17, 19, 20, 31, 32, 33, 35, 127, 128, 129, 136, 151, 263, 519, 600];
    let mut n_streamed = 0;
    for round in 0..240 {
        let dtype = DTYPES[round % DTYPES.len()];
        let (m, k) = (random.pick(&rows), random.pick(&[1, 2, 3, 4, 5, 15, 16, 17, 255, 257, 300, 515, 4100]));
        let matrix = operand(&mut random, &[], m, k);
        let vector = operand(&mut random, &[], k, 1);
        let op = if round / 2 % 2 == 0 {
            MatMul { dtype, batch: SmallVec::new(), m, n: 1, k, a: matrix, b: vector }
        } else {
            MatMul { dtype, batch: SmallVec::new(), m: 1, n: m, k, a: vector.transposed(), b: matrix.transposed() }
        };
        let [row, step] =
            if op.n == 1 { [op.a.row_stride, op.a.col_stride] } else { [op.b.col_stride, op.b.row_stride] };
        // SAFETY: a matrix that nobody reads.
        let strides = unsafe { Strided::<f32>::new(std::ptr::null(), row as isize, step as isize) };
        n_streamed += usize::from(m * k > 1 << 15 && is_streamed(m, &strides));
        let mut inputs: Vec<Bytes> = op.inputs().iter().map(|(dtype, len)| random.bytes_of(*dtype, *len)).collect();
        if round % 3 == 0 {
            let (operand, value) = (random.below(2), random.pick(&[f64::INFINITY, f64::NAN, -0.0, 1e-310]));
            let (len, size) = (op.inputs()[operand].1, dtype.size());
            let value = retape_runtime::Scalar::from_f64(value, dtype);
            inputs[operand].get_mut()[random.below(len) * size..][..size]
                .copy_from_slice(&value.bits.to_le_bytes()[..size]);
        }
        check_on(&op, k, &inputs);
        let (out, again) = on_one_and_two_threads(|| run(&op, &Engine::best(), &inputs));
        assert_eq!(out.get(), again.get(), "{op:?} on one thread and on two");
    }
    assert!(n_streamed > 30, "{n_streamed} products stream their matrix");
    for m in [128, 1000, 9000] {
        for transposed in [false, true] {
            let mut op = MatMul::contiguous(DType::F32, &[], [m, 1, 130]);
            op.a = if transposed { MatrixLayout::contiguous(&[], 130, m).transposed() } else { op.a };
            check(&op, 130, &mut random);
        }
    }
    assert!(split_depth(16, 1, 4100) < 4100 && block_depth(4100) < split_depth(16, 1, 4100), "parts of several blocks");
}

/// A random small convolution; some of its extents are zero.
fn convolution(random: &mut Random, dtype: DType, pass: ConvPass) -> Conv2d {
    let groups = random.pick(&[1, 1, 1, 2, 3]);
    let channels = [0; 2].map(|_| groups * random.pick(&[1, 1, 2, 3, 4, 5, 8, 16, 17]));
    let pad = |random: &mut Random| [random.below(3), random.below(3)];
    Conv2d {
        dtype,
        batch: random.pick(&[0, 1, 1, 2, 3]),
        height: random.pick(&[0, 1, 2, 5, 7, 8, 13]),
        width: random.pick(&[1, 2, 3, 6, 7, 14, 19]),
        in_channels: channels[0],
        kernel_height: random.pick(&[1, 1, 2, 3, 3, 5]),
        kernel_width: random.pick(&[1, 1, 2, 3, 3, 5]),
        out_channels: channels[1],
        stride: [0; 2].map(|_| 1 + random.below(3)),
        padding: [pad(random), pad(random)],
        dilation: [0; 2].map(|_| random.pick(&[1, 1, 2, 3])),
        groups,
        pass,
    }
}

#[test]
fn convolutions_agree_with_their_references_on_any_geometry() {
    let mut random = Random(0x1234_5678_9abc_def1);
    for round in 0..240 {
        let pass = [ConvPass::Forward, ConvPass::InputGradient, ConvPass::FilterGradient][round % 3];
        let conv = convolution(&mut random, DTYPES[round / 3 % DTYPES.len()], pass);
        let [height, width] = conv.out_extent();
        let terms = match pass {
            ConvPass::Forward | ConvPass::InputGradient => {
                conv.kernel_height * conv.kernel_width * conv.in_channels.max(conv.out_channels)
            }
            ConvPass::FilterGradient => conv.batch * height * width,
        };
        check(&conv, terms, &mut random);
    }
}

/// A random convolution of one group whose windows lie inside the image, each apart from the next.
fn convolution_of_windows_apart(random: &mut Random, dtype: DType, pass: ConvPass) -> Conv2d {
    let outputs = [random.pick(&[1, 2, 7, 23]), random.pick(&[1, 3, 4, 5, 6, 7, 13, 16, 17, 29])];
    let stride = [0; 2].map(|_| 1 + random.below(4));
    let kernel = stride.map(|stride| if random.below(2) == 0 { 1 } else { 1 + random.below(stride) });
    // Some lines and columns belong to no window.
    let extent = |axis: usize, rest: usize| (outputs[axis] - 1) * stride[axis] + kernel[axis] + rest;
    Conv2d {
        dtype,
        batch: random.pick(&[1, 2, 3, 5]),
        height: extent(0, random.below(stride[0])),
        width: extent(1, random.below(stride[1])),
        in_channels: random.pick(&[1, 3, 8, 15, 16, 17, 33, 64]),
        kernel_height: kernel[0],
        kernel_width: kernel[1],
        out_channels: random.pick(&[1, 4, 5, 7, 8, 9, 16, 17, 31, 32, 33, 65]),
        stride,
        padding: [[0; 2]; 2],
        dilation: [1, 1],
        groups: 1,
        pass,
    }
}

#[test]
fn windows_that_lie_apart_agree_with_copies_and_with_products() {
    let (mut random, mut n_in_place) = (Random(0xfeed_5eed_0bad_cafe), 0);
    for round in 0..160 {
        let pass = [ConvPass::Forward, ConvPass::Forward, ConvPass::InputGradient][round % 3];
        let dtype = [DType::F32, DType::F32, DType::F64][round / 3 % 3];
        let conv = convolution_of_windows_apart(&mut random, dtype, pass);
        let terms = conv.kernel_height * conv.kernel_width * conv.in_channels.max(conv.out_channels);
        check(&conv, terms, &mut random);
        if pass != ConvPass::Forward || [conv.kernel_height, conv.kernel_width] != [1, 1] {
            continue;
        }
        n_in_place += usize::from(conv.stride != [1, 1] && conv.tiles().is_some_and(|tiles| tiles.has_whole_rows));
        // The rows of a product, when those between them have been left out.
        let [(_, len), (_, filter)] = conv.inputs()[..] else { panic!("two inputs") };
        let (image, filter) = (random.bytes_of(dtype, len), random.bytes_of(dtype, filter));
        let ([height, width], pixel) = (conv.out_extent(), conv.in_channels * dtype.size());
        let mut rows = Bytes::filled(conv.batch * height * width * pixel, 0);
        for (at, row) in rows.get_mut().chunks_exact_mut(pixel).enumerate() {
            let (line, x) = (at / width, at % width * conv.stride[1]);
            let line = line / height * conv.height + line % height * conv.stride[0];
            row.copy_from_slice(&image.get()[(line * conv.width + x) * pixel..][..pixel]);
        }
        let dense = Conv2d { height, width, stride: [1, 1], ..conv.clone() };
        let [found, expected] = [(&conv, &image), (&dense, &rows)]
            .map(|(conv, image)| run(conv, &Engine::best(), &[image.clone(), filter.clone()]));
        assert!(found.get() == expected.get(), "{conv:?}: a product gives other bits");
    }
    assert!(n_in_place >= 8, "{n_in_place} shapes of one tap are read in place");
}

/// A random convolution in groups of few channels, and how long its sums are.
fn grouped_convolution(random: &mut Random, dtype: DType, pass: ConvPass) -> (Conv2d, usize) {
    let conv = convolution(random, dtype, pass);
    let groups = random.pick(&[2, 3, 4, 5, 8, 16, 17]);
    let [n_in, n_out] = [0; 2].map(|_| random.pick(&[1, 1, 2, 3, 4, 5, 6, 7, 8]));
    // Some groups of equal numbers of channels, some chains of several blocks, some lines of several tiles.
    let n_out = if random.below(2) == 0 { n_in } else { n_out };
    let [kernel_height, kernel_width] =
        if random.below(6) == 0 { [7, 6] } else { [conv.kernel_height, conv.kernel_width] };
    let is_large = pass == ConvPass::FilterGradient || random.below(3) == 0;
    let [height, width] = if is_large { [15, 21] } else { [conv.height, conv.width] };
    let (in_channels, out_channels) = (groups * n_in, groups * n_out);
    let conv = Conv2d { groups, in_channels, out_channels, kernel_height, kernel_width, height, width, ..conv };
    let [out_height, out_width] = conv.out_extent();
    let terms = match pass {
        ConvPass::Forward | ConvPass::InputGradient => kernel_height * kernel_width * n_in.max(n_out),
        ConvPass::FilterGradient => conv.batch * out_height * out_width,
    };
    (conv, terms)
}

/// The engines with channels as lanes and those that go group by group agree in every bit, whatever meets an edge.
#[test]
fn convolutions_in_groups_agree_with_those_group_by_group() {
    let mut random = Random(0x0def_aced);
    let (mut n_served, mut n_paired, mut n_nan) = ([0; 3], 0, 0);
    for round in 0..240 {
        let pass = ConvPass::ALL[round % 3];
        let (conv, terms) = grouped_convolution(&mut random, DTYPES[round / 3 % DTYPES.len()], pass);
        let is_served = Depthwise::<f32>::new(&conv, &[]).is_some();
        n_served[round % 3] += usize::from(is_served);
        let is_paired = conv.result_channels().next_multiple_of(8).is_multiple_of(16);
        n_paired += usize::from(is_served && is_paired && pass != ConvPass::FilterGradient);
        let mut inputs: Vec<Bytes> = conv.inputs().iter().map(|(dtype, len)| random.bytes_of(*dtype, *len)).collect();
        let [operand, n_special] = [random.below(2), random.below(3)];
        let (n, size) = (conv.inputs()[operand].1, conv.dtype.size());
        for _ in 0..if n == 0 { 0 } else { n_special } {
            let (at, value) = (random.below(n), random.pick(&[f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -0.0]));
            let value = retape_runtime::Scalar::from_f64(value, conv.dtype);
            inputs[operand].get_mut()[at * size..][..size].copy_from_slice(&value.bits.to_le_bytes()[..size]);
        }
        check_on(&conv, terms, &inputs);
        let (out, again) = on_one_and_two_threads(|| run(&conv, &Engine::best(), &inputs));
        assert_eq!(out.get(), again.get(), "{conv:?} on one thread and on two");
        let out = out.values(conv.dtype);
        n_nan += usize::from(out.iter().any(|x| x.is_nan()) && out.iter().any(|x| x.is_finite()));
    }
    assert!(n_served.iter().all(|n| *n > 20), "{n_served:?} convolutions have channels as lanes");
    assert!(n_paired > 20, "{n_paired} have blocks of two vectors");
    assert!(n_nan > 20, "{n_nan} results have NaN and numbers");
}

/// Few channels on either side: pixels or channels as lanes, chains of several lines of taps, in sums of several blocks.
#[test]
fn convolutions_of_few_channels_agree_with_their_references() {
    let (mut random, mut n_wide) = (Random(0xface), 0);
    for round in 0..240 {
        let pass = ConvPass::ALL[round % 3];
        let [kernel_height, kernel_width] = [0; 2].map(|_| random.pick(&[1, 2, 3, 3, 4, 5, 6]));
        let conv = Conv2d {
            height: random.pick(&[8, 9, 12, 17]),
            width: random.pick(&[6, 7, 8, 9, 15, 16, 17, 24, 31, 33, 40]),
            in_channels: random.pick(&[1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 16, 33]),
            out_channels: random.pick(&[1, 2, 3, 4, 5, 6, 7, 8, 8, 9, 16, 16, 33]),
            kernel_height,
            kernel_width,
            stride: [0; 2].map(|_| random.pick(&[1, 1, 2])),
            groups: 1,
            ..convolution(&mut random, [DType::F32, DType::F64][round / 3 % 2], pass)
        };
        // Sixteen channels, where pixels fill vectors of sixteen lanes.
        let width = if pass == ConvPass::Forward { conv.out_extent()[1] } else { conv.width };
        let is_filled = width * 10 >= width.next_multiple_of(16) * 9;
        let is_wide = conv.result_channels() == 16 && is_filled && conv.stride == [1, 1];
        n_wide += usize::from(is_wide && pass != ConvPass::FilterGradient && conv.dtype == DType::F32);
        check(&conv, conv.batch * conv.height * conv.width * conv.in_channels.max(conv.out_channels), &mut random);
    }
    assert!(n_wide > 1, "{n_wide} results have two blocks of eight channels");
}

/// A random filter's gradient whose chains are long and whose channels are whole cache lines.
fn gradient_of_many_channels(random: &mut Random, dtype: DType) -> Conv2d {
    let [kernel_height, kernel_width] = random.pick(&[[1, 2], [2, 1], [2, 2], [3, 3]]);
    Conv2d {
        dtype,
        batch: random.pick(&[1, 1, 2]),
        height: 17 + random.below(12),
        width: 17 + random.below(16),
        in_channels: random.pick(&[16, 24, 32, 32, 48]),
        kernel_height,
        kernel_width,
        out_channels: random.pick(&[3, 8, 24, 32, 33]),
        stride: [random.pick(&[1, 2]), random.pick(&[1, 1, 1, 2])],
        padding: [0; 2].map(|_| [random.below(3), random.below(3)]),
        dilation: [0; 2].map(|_| random.pick(&[1, 1, 2, 3])),
        groups: 1,
        pass: ConvPass::FilterGradient,
    }
}

/// Engines that copy channels in groups, and columns to panels, agree in every bit with those that do not.
#[test]
fn filter_gradients_of_many_channels_agree_with_their_references() {
    let (mut random, mut n_grouped, mut n_far, mut n_apart) = (Random(0xca11_ab1e), 0, 0, 0);
    for round in 0..90 {
        let conv = gradient_of_many_channels(&mut random, [DType::F32, DType::F32, DType::F64][round % 3]);
        let [height, width] = conv.out_extent();
        let chain = lines_of_chain([height, width]) * width;
        let is_far = |channels: usize| channels * chain * conv.dtype.size() > 20_000;
        let is_grouped = conv.is_gradient_direct() && conv.stride[1] == 1 && conv.in_channels >= 32;
        n_grouped += usize::from(is_grouped && is_far(conv.in_channels));
        n_far += usize::from(is_grouped && is_far(conv.out_channels));
        let has_stride = conv.is_gradient_direct() && conv.stride[1] > 1;
        n_apart += usize::from(has_stride && conv.out_channels == 32 && is_far(conv.out_channels));
        check(&conv, conv.batch * height * width, &mut random);
    }
    assert!(n_grouped > 8 && n_far > 2, "{n_grouped} images have channels in groups, {n_far} cotangents lie apart");
    assert!(n_apart > 0, "no cotangent of a stride lies apart");
}

/// Gradients of filters of one tap from images in place agree in every bit with those of products.
#[test]
fn filter_gradients_of_one_tap_agree_with_products() {
    let (mut random, mut n_in_place) = (Random(0x0dd_5eed), 0);
    for round in 0..60 {
        let conv = Conv2d {
            dtype: [DType::F32, DType::F32, DType::F64][round % 3],
            batch: 8 + random.below(8),
            height: 32 + random.below(8),
            width: 32 + random.below(8),
            in_channels: 2 * random.pick(&[1, 3, 8, 8, 17, 32]),
            kernel_height: 1,
            kernel_width: 1,
            out_channels: 2 * random.pick(&[1, 2, 8, 9, 16, 16, 24]),
            stride: random.pick(&[[2, 2], [2, 2], [1, 2], [2, 1], [3, 2]]),
            padding: random.pick(&[[[0; 2]; 2], [[0; 2]; 2], [[0; 2]; 2], [[0, 1], [0, 0]]]),
            dilation: [1 + random.below(2), 1],
            groups: 1 + random.below(2),
            pass: ConvPass::FilterGradient,
        };
        let [height, width] = conv.out_extent();
        n_in_place += usize::from(conv.is_gradient_in_place());
        check(&conv, conv.batch * height * width, &mut random);
    }
    assert!((12..60).contains(&n_in_place), "{n_in_place} images are read in place");
}

#[test]
fn convolutions_agree_with_their_references_where_they_are_cut() {
    let mut random = Random(5);
    // Several images in a group, several blocks of taps, an image that is larger than what a task holds, more images than
    // tasks.
    let shapes = [
        (130, 6, 2, 3, 1),
        (130, 6, 3, 9, 2),
        (21, 12, 1, 6, 1),
        (5, 25, 1, 6, 2),
        (5, 25, 4, 6, 1),
        (2, 13, 40, 33, 2),
        (1, 52, 40, 3, 1),
    ];
    for (batch, extent, in_channels, out_channels, stride) in shapes {
        for pass in [ConvPass::Forward, ConvPass::InputGradient, ConvPass::FilterGradient] {
            let conv = Conv2d {
                dtype: DType::F32,
                batch,
                height: extent,
                width: extent + 2,
                in_channels,
                kernel_height: 3,
                kernel_width: 3,
                out_channels,
                stride: [1, stride],
                padding: [[1, 1], [1, 1]],
                dilation: [1, 1],
                groups: 1,
                pass,
            };
            check(&conv, batch * extent * (extent + 2), &mut random);
        }
    }
}

/// One element that is not finite, in either operand, in the middle or at an edge, meets what lies beyond the other.
#[test]
fn convolutions_agree_with_their_references_on_what_meets_the_zeros_beyond_an_edge() {
    let mut random = Random(0xfeed);
    let mut n_nan = 0;
    for round in 0..360 {
        let pass = [ConvPass::Forward, ConvPass::InputGradient, ConvPass::FilterGradient][round % 3];
        let conv = convolution(&mut random, DTYPES[round / 3 % DTYPES.len()], pass);
        let mut inputs: Vec<Bytes> = conv.inputs().iter().map(|(dtype, len)| random.bytes_of(*dtype, *len)).collect();
        let operand = round / 3 % 2;
        let n = conv.inputs()[operand].1;
        if n == 0 {
            continue;
        }
        let (anywhere, size) = (random.below(n), conv.dtype.size());
        let at = random.pick(&[0, n - 1, anywhere]);
        let value =
            retape_runtime::Scalar::from_f64(random.pick(&[f64::INFINITY, f64::NEG_INFINITY, f64::NAN]), conv.dtype);
        inputs[operand].get_mut()[at * size..][..size].copy_from_slice(&value.bits.to_le_bytes()[..size]);
        check_on(&conv, 2000, &inputs);
        let mut out = Bytes::filled(conv.outputs()[0].1 * size, 0);
        conv.reference(&inputs.iter().map(Bytes::get).collect::<Vec<_>>(), &mut [out.get_mut()]);
        n_nan += usize::from(!value.to_f64().is_nan() && out.values(conv.dtype).iter().any(|x| x.is_nan()));
    }
    assert!(n_nan > 40, "{n_nan}: few infinities met a zero");
}

#[test]
fn nan_and_infinity_propagate_through_zeros() {
    for [m, n, k] in [[2, 3, 4], [40, 50, 60]] {
        let op = MatMul::contiguous(DType::F32, &[], [m, n, k]);
        let mut a = vec![0.0f32; m * k];
        let mut b = vec![1.0f32; k * n];
        a[k] = f32::NAN;
        b[1] = f32::INFINITY;
        for engine in engines() {
            let out = run(&op, &engine, &[Bytes::of(&a), Bytes::of(&b)]).values(DType::F32);
            assert_eq!(out[0], 0.0);
            assert!(out[1].is_nan(), "0 * inf");
            assert!(out[n..2 * n].iter().all(|x| x.is_nan()), "the row of the NaN");
        }
    }
}
