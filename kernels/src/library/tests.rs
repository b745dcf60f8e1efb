//! Every kernel against its reference, and against itself on other instruction sets, threads and paths.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use retape_runtime::{DType, Element, bf16, f16};
use smallvec::SmallVec;

use super::dense::DenseKernel;
use super::micro::{ColumnExtents, Engine, Level, ParallelFor, Real, Strided, block_depth, is_near, split_depth};
use super::testing::on_one_and_two_threads;
use super::{Conv2d, MatMul, MatrixLayout};

mod conv;
mod halves;

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
        let mut seen = seen.lock().unwrap();
        for i in 0..tile.rows.len() {
            seen[first + i * tile.row_stride..][..tile.cols.len()].iter_mut().for_each(|n| *n += 1);
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

/// Right operands of small matrices whose columns are no neighbours, up to and above the size at which they are copied;
/// those whose rows are none either.
#[test]
fn batches_of_small_matrices_agree_with_their_references() {
    let mut random = Random(0x5a11);
    for [m, n, k] in [[2, 2, 2], [3, 5, 7], [1, 16, 16], [9, 16, 17], [4, 255, 1], [5, 2, 128], [20, 20, 12]] {
        for (dtype, gap) in [(DType::F32, 1), (DType::F64, 1), (DType::F32, 3)] {
            let mut op = MatMul::contiguous(dtype, &[5], [m, n, k]);
            op.b = MatrixLayout::contiguous(&[5], n, k * gap).transposed();
            op.b.row_stride = gap;
            check(&op, k, &mut random);
        }
    }
    // Larger ones that are not packed either: rows that are left of a tile, and chains of several blocks.
    for [m, n, k] in [[6, 20, 300], [3, 50, 700], [7, 33, 520], [13, 128, 128], [64, 64, 64], [66, 64, 60]] {
        for (dtype, turned) in [(DType::F32, 0), (DType::F32, 1), (DType::F64, 0)] {
            let mut op = product(dtype, [m, n, k], turned);
            let of = |stride: usize| SmallVec::from_slice(&[stride]);
            (op.batch, op.a.batch_strides, op.b.batch_strides) = (of(3), of(m * k), of(k * n));
            check(&op, k, &mut random);
        }
    }
}

/// Products whose right operand stays in a near cache: strips and tiles that begin in those before, several blocks of steps,
/// rows and columns in several tasks, turned columns with and without a gap behind their rows, and as large as they become.
#[test]
fn products_with_a_near_right_operand_agree_with_their_references() {
    let mut random = Random(0x4ea5);
    for n in [16, 17, 20, 31, 33, 40, 100] {
        for [m, k] in [[2, 16], [5, 40], [7, 17], [9, 300], [13, 64]] {
            for (dtype, turned) in [(DType::F32, 0), (DType::F32, 1), (DType::F64, 2), (DType::F64, 3)] {
                check(&product(dtype, [m, n, k], turned), k, &mut random);
            }
        }
    }
    let large =
        [[97, 72, 40], [24, 400, 50], [500, 16, 33], [96, 50, 257], [60, 128, 70], [40, 100, 160], [130, 36, 200]];
    for extents @ [_, n, k] in large {
        for turned in 0..4 {
            check(&product(DType::F32, extents, turned), k, &mut random);
        }
        // SAFETY: matrices that nobody reads.
        let operands = unsafe {
            let of = |outer: usize, inner: usize| Strided::<f32>::new(std::ptr::null(), outer as isize, inner as isize);
            [of(k, 1), of(1, n)]
        };
        // Rows of 128 elements, and more than 64 of them, share few sets of a cache.
        let is_near = is_near(&f32::kernels(Level::best()), extents, operands.each_ref());
        assert_eq!(is_near, n != 128, "{extents:?}");
    }
}

/// Products of a few elements, whose chains are computed side by side across matrices: one chain left over, chains of
/// several blocks, more than there are tasks, broadcast operands, and as many elements as are not computed so.
#[test]
fn batches_of_few_elements_agree_with_their_references() {
    let mut random = Random(0xd075);
    let shapes = [[1, 1, 40], [3, 1, 74], [6, 1, 217], [7, 1, 9], [8, 1, 30], [2, 2, 8], [2, 5, 224], [1, 12, 300]];
    for [m, n, k] in shapes.into_iter().chain([[3, 4, 700], [2, 6, 257], [1, 13, 300], [2, 3, 0], [3, 2, 1]]) {
        for (dtype, gap) in [(DType::F32, 0), (DType::F64, 3)] {
            let mut op = MatMul::contiguous(dtype, &[3, 7], [m, n, k]);
            op.b = MatrixLayout::contiguous(&[3, 7], n, k + gap).transposed();
            check(&op, k, &mut random);
            // Every matrix of an outer axis has the same right operand, and every one of an inner axis the same left one.
            (op.b.batch_strides[0], op.a.batch_strides[1]) = (0, 0);
            check(&op, k, &mut random);
        }
        let mut many = MatMul::contiguous(DType::F32, &[300], [m, n, k]);
        many.b = MatrixLayout::contiguous(&[300], n, k).transposed();
        check(&many, k, &mut random);
    }
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
    // Parts of a long sum.
    let (rows, cols) = ([3, 5, 12, 13, 16, 31, 49, 100], [6, 16, 31, 48, 65, 128, 160, 250]);
    for round in 0..48 {
        let [m, n, k] = [random.pick(&rows), random.pick(&cols), random.pick(&[2048, 2100, 4111])];
        let mut op = product([DType::F32, DType::F64][usize::from(round % 4 == 3)], [m, n, k], round % 2);
        (op.b.offset, op.b.row_stride) = (random.pick(&[0, 1, 16]), n + random.pick(&[0, 0, 3, 16]));
        assert!(split_depth(m, n, k) < k, "{op:?}");
        check(&op, k, &mut random);
    }
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

/// A product of these rows, columns and steps, whose left operand is turned if bit 0 of `turned` is set, and the right one
/// if bit 1 is.
fn product(dtype: DType, [m, n, k]: [usize; 3], turned: usize) -> MatMul {
    let mut op = MatMul::contiguous(dtype, &[], [m, n, k]);
    if turned & 1 > 0 {
        op.a = MatrixLayout::contiguous(&[], k, m).transposed();
    }
    if turned & 2 > 0 {
        op.b = MatrixLayout::contiguous(&[], n, k).transposed();
    }
    op
}

/// Tiles of few rows and four vectors: rows below, at and above those from which on tiles are wide, that fill the last tile
/// or do not; one to four vectors of columns in the last panel, whole or not, of a B in place, copied, and packed; steps
/// that fill chunks or do not, in one block and in several, whose sums wait in memory of their own; row panels in place,
/// turned and packed, with gaps and broadcast.
#[test]
fn products_on_wide_tiles_agree_with_those_of_panels() {
    let mut random = Random(0x31de);
    let rows = [36, 37, 38, 40, 42, 47, 48, 49, 59, 66, 73, 96, 100];
    let cols = [160, 192, 200, 224, 256, 272, 290, 305, 400, 450, 465, 520, 600, 777, 784];
    let steps = [33, 47, 64, 65, 100, 256, 257, 300, 530];
    for round in 0..48 {
        let dtype = [DType::F32, DType::F64, DType::F32, DType::F32][round % 4];
        let (m, n, k) = (random.pick(&rows), random.pick(&cols), random.pick(&steps));
        let mut op = product(dtype, [m, n, k], round / 4 % 4);
        if round / 4 % 4 == 3 {
            (op.a, op.b) = (operand(&mut random, &[], m, k), operand(&mut random, &[], k, n));
        }
        if round % 23 == 0 {
            op.a.row_stride = 0;
        }
        check(&op, k, &mut random);
    }
    // With panels for all tasks where B is turned, whole, or with few or many columns in the last one; in one task, and in
    // parts that are added up; with less than a chunk of steps.
    let shapes = [[200, 640, 258], [259, 565, 270], [200, 528, 530], [40, 200, 2100], [50, 224, 2100], [200, 300, 7]];
    for [m, n, k] in shapes {
        for (turned, dtype) in [(0, DType::F32), (1, DType::F32), (2, DType::F32), (3, DType::F64)] {
            check(&product(dtype, [m, n, k], turned), k, &mut random);
        }
    }
    // Few rows of a B in memory whose steps are a page apart, from strips on.
    for (round, m) in [16, 17, 18, 19, 20, 23, 24, 25, 28, 30, 35, 36, 37].into_iter().enumerate() {
        for (turned, dtype) in [(0, DType::F32), (round % 2, DType::F64)] {
            let (n, k) = (random.pick(&[1024, 1050, 1100, 1216]), random.pick(&[47, 257, 530]));
            check(&product(dtype, [m, n, k], turned), k, &mut random);
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
            check(&product(dtype, [m, n, k], turned), k, &mut random);
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
        let extents = ColumnExtents { rows: m, k, vectors: 1 };
        n_streamed += usize::from(m * k > 1 << 15 && f32::kernels(Level::best()).is_streamed(extents, &strides));
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

/// Some vectors times a matrix that is read along the memory: groups of every size, columns below, at and above whole vectors
/// and a strip, several tasks, chains of several blocks, sums in parts, and rows that lie apart on either side.
#[test]
fn products_of_few_rows_agree_with_those_of_panels() {
    let mut random = Random(0xf00d);
    for (round, vectors) in (2..18).cycle().take(64).enumerate() {
        let dtype = DTYPES[round % DTYPES.len()];
        let (n, k) = (random.pick(&[256, 263, 390, 517, 1030]), random.pick(&[64, 65, 131, 257, 300, 515, 4100]));
        let mut op = MatMul::contiguous(dtype, &[], [vectors, n, k]);
        if round / 4 % 2 == 0 {
            op.a = MatrixLayout::contiguous(&[], k, vectors).transposed();
            (op.b.offset, op.b.row_stride) = (random.below(5), n + random.below(9));
        }
        // SAFETY: a matrix that nobody reads.
        let b = unsafe { Strided::<f32>::new(std::ptr::null(), 1, op.b.row_stride as isize) };
        let is_few = vectors <= 4 || vectors <= 16 && n * k >= 1 << 15;
        let extents = ColumnExtents { rows: n, k, vectors };
        assert_eq!(f32::kernels(Level::best()).is_streamed(extents, &b), is_few, "{op:?}");
        check(&op, k, &mut random);
    }
    // The matrix turned: every number of rows beside whole vectors, and two groups of vectors of a matrix in memory.
    let mut n_turned = 0;
    for (round, vectors) in (2..18).cycle().take(96).enumerate() {
        let dtype = DTYPES[round % DTYPES.len()];
        let (n, k) = (16 + random.below(60), random.pick(&[2, 7, 64, 131, 257, 300, 515, 600, 1027, 4100]));
        let mut op = MatMul::contiguous(dtype, &[], [vectors, n, k]);
        op.b = MatrixLayout::contiguous(&[], n, k).transposed();
        if round % 2 == 0 {
            op.a = MatrixLayout::contiguous(&[], k, vectors).transposed();
            (op.b.offset, op.b.col_stride) = (random.below(5), k + random.below(9));
        }
        // SAFETY: a matrix that nobody reads.
        let b = unsafe { Strided::<f32>::new(std::ptr::null(), op.b.col_stride as isize, 1) };
        for level in Level::available() {
            let group = match format!("{level:?}").as_str() {
                "Avx512" | "Avx512Small" => 8,
                "Avx2" => 4,
                _ => 1,
            };
            let is_far = n * k >= 1 << 15;
            let most = if group > 1 && is_far { 2 * group } else { group };
            let is_turned = f32::kernels(level).is_streamed(ColumnExtents { rows: n, k, vectors }, &b);
            assert_eq!(is_turned, vectors <= most, "{op:?} on {level:?}");
            n_turned += usize::from(is_turned);
        }
        check(&op, k, &mut random);
    }
    assert!(n_turned > 20 * (Level::available().count() - 1), "{n_turned} matrices were turned in registers");
    // A strip has fewer columns than the matrix.
    for [m, n, k] in [[2, 4500, 20], [7, 1500, 40], [16, 800, 300]] {
        check(&MatMul::contiguous(DType::F32, &[], [m, n, k]), k, &mut random);
    }
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
