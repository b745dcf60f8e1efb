//! Library kernels whose descriptors hold hostile numbers: refused before anything runs, or in bounds.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use retape_kernels::library::{
    ArgReduce, Attention, AttentionPass, CastHalf, Cholesky, Collective, CollectiveKind, Conv2d, ConvPass, Extreme,
    Join, Library, MatMul, MatrixLayout as Strided, Philox, Pool2d, PoolKind, PoolPass, Print, Recurrence, Scan,
    ScanKind, ScatterAdd, Sort, Token, Transpose, TriangularSolve,
};
use retape_kernels::ptx::{self, Target};
use retape_kernels::{BufferType, Error, Executable, Operand, Place, Plan, Step, Work};
use retape_runtime::{Buffer, DType, Element, Scalar, Shape, bf16, f16};
use smallvec::SmallVec;

/// A third of 2^65 + 1: three times it is 1 in 64 bits.
const THIRD: usize = 0xAAAA_AAAA_AAAA_AAAB;

/// -1 as a stride.
const BACK: usize = usize::MAX;

/// The plan of one library step over buffers of the lengths that it asks for.
fn plan(library: &Library) -> Plan {
    let typed = |(dtype, len): (DType, usize)| BufferType { dtype, len };
    let inputs: Vec<BufferType> = library.inputs().into_iter().map(typed).collect();
    let outputs: Vec<BufferType> = library.outputs().into_iter().map(typed).collect();
    let at = |place: Place, ty: &BufferType| Operand { place, dtype: ty.dtype, len: ty.len };
    let read = (0..).zip(&inputs).map(|(n, ty)| at(Place::Input(n), ty));
    let written = (0..).zip(&outputs).map(|(n, ty)| at(Place::Output(n), ty));
    let operands = read.chain(written).collect();
    let steps = vec![Step { work: Work::library(library.clone()), operands, label: "hostile".into() }];
    Plan { inputs, outputs, steps, ..Plan::default() }
}

fn matmul() -> MatMul {
    MatMul::contiguous(DType::F32, &[], [2, 3, 4])
}

fn conv() -> Conv2d {
    Conv2d {
        dtype: DType::F32,
        batch: 2,
        height: 6,
        width: 7,
        in_channels: 4,
        kernel_height: 3,
        kernel_width: 2,
        out_channels: 6,
        stride: [1, 2],
        padding: [[1, 0], [2, 1]],
        dilation: [2, 1],
        groups: 2,
        pass: ConvPass::Forward,
    }
}

fn attention() -> Attention {
    Attention {
        dtype: DType::F32,
        batch: 2,
        heads: 3,
        queries: 4,
        keys: 5,
        features: 6,
        value_features: 7,
        causal: true,
        scale: Scalar::from_f64(0.3, DType::F32),
        operands: Vec::new(),
        joined: false,
        pass: AttentionPass::Forward,
    }
    .contiguous()
}

/// The gradient of attention in double precision, of queries in a wider buffer.
fn attention_gradient() -> Attention {
    let scale = Scalar::from_f64(1.0, DType::F64);
    let shape = Attention { dtype: DType::F64, keys: 4, causal: false, scale, ..attention() };
    let mut gradient = Attention { joined: true, pass: AttentionPass::Gradient, ..shape }.contiguous();
    gradient.operands[0] =
        Strided { offset: 5, batch_strides: SmallVec::from_slice(&[160, 6]), row_stride: 40, col_stride: 1 };
    gradient
}

fn pool() -> Pool2d {
    Pool2d {
        dtype: DType::F64,
        batch: 2,
        height: 5,
        width: 4,
        channels: 3,
        window: [2, 3],
        stride: [1, 2],
        padding: [[0, 1], [2, 0]],
        kind: PoolKind::Max,
        pass: PoolPass::Forward,
    }
}

fn scan() -> Scan {
    Scan { dtype: DType::F32, outer: 2, len: 5, inner: 3, kind: ScanKind::Sum, reverse: true, exclusive: false }
}

fn recurrence() -> Recurrence {
    Recurrence { dtype: DType::F64, outer: 2, len: 5, inner: 3, reverse: true, lagging: false }
}

fn scatter() -> ScatterAdd {
    let (dtype, index_dtype) = (DType::F32, DType::I64);
    ScatterAdd { dtype, index_dtype, outer: 2, len: 5, inner: 3, n_indices: 4, along: false, from_zeros: false }
}

fn sort() -> Sort {
    Sort { dtype: DType::I32, outer: 2, len: 5, inner: 3, descending: true, kept: 2 }
}

fn arg_reduce() -> ArgReduce {
    ArgReduce { dtype: DType::F64, outer: 2, len: 5, inner: 3, kind: Extreme::Max }
}

fn join() -> Join {
    Join { offsets: Shape::new(&[1, 0, 5]), ..Join::contiguous(DType::Bf16, 2, Shape::new(&[3, 0, 1]), 3) }
}

fn solve() -> TriangularSolve {
    let (lower, transpose, unit_diagonal) = (true, false, true);
    TriangularSolve { dtype: DType::F64, batch: 2, n: 4, n_rhs: 3, lower, transpose, unit_diagonal }
}

fn collective() -> Collective {
    let lens = Shape::new(&[3, 4]);
    Collective { kind: CollectiveKind::Sum, group: 0, size: 1, shards: 3, held: 3, dtype: DType::F32, lens }
}

fn print(shape: &[usize]) -> Print {
    Print { label: "x".into(), dtype: DType::F32, shape: Shape::new(shape) }
}

/// A descriptor of each kind and form that describes a function.
fn valid() -> Vec<Library> {
    let conv_of = |pass| Library::from(Conv2d { pass, ..conv() });
    let pool_of = |kind, pass| Library::from(Pool2d { kind, pass, ..pool() });
    let strided = Strided { offset: 2, batch_strides: SmallVec::from_slice(&[0, 1]), row_stride: 3, col_stride: 7 };
    let batch = SmallVec::from_slice(&[2, 3]);
    vec![
        arg_reduce().into(),
        attention().into(),
        attention_gradient().into(),
        CastHalf { from: DType::F64, to: DType::Bf16, len: 9 }.into(),
        Cholesky { dtype: DType::F32, batch: 2, n: 3 }.into(),
        collective().into(),
        Collective { kind: CollectiveKind::SumEach, dtype: DType::Bf16, ..collective() }.into(),
        Collective { kind: CollectiveKind::Gather, shards: 1, held: 1, dtype: DType::Bool, ..collective() }.into(),
        Collective { kind: CollectiveKind::Broadcast, shards: 1, held: 1, ..collective() }.into(),
        Collective { kind: CollectiveKind::ReduceScatter, shards: 1, held: 1, lens: Shape::new(&[6]), ..collective() }
            .into(),
        conv_of(ConvPass::Forward),
        conv_of(ConvPass::InputGradient),
        conv_of(ConvPass::FilterGradient),
        Conv2d { dtype: DType::F16, height: 1, groups: 1, ..conv() }.into(),
        join().into(),
        matmul().into(),
        MatMul { a: strided.clone(), b: Strided { row_stride: 1, ..strided }, batch, ..matmul() }.into(),
        MatMul::contiguous(DType::F16, &[2], [3, 1, 40]).into(),
        Philox { len: 9, stream: u32::MAX }.into(),
        pool_of(PoolKind::Max, PoolPass::Forward),
        pool_of(PoolKind::Sum, PoolPass::Forward),
        pool_of(PoolKind::Max, PoolPass::Gradient),
        pool_of(PoolKind::Sum, PoolPass::Gradient),
        pool_of(PoolKind::Max, PoolPass::MaxGather),
        recurrence().into(),
        Recurrence { dtype: DType::I64, lagging: true, ..recurrence() }.into(),
        scan().into(),
        Scan { dtype: DType::U8, kind: ScanKind::Max, exclusive: true, ..scan() }.into(),
        scatter().into(),
        ScatterAdd { index_dtype: DType::U32, along: true, ..scatter() }.into(),
        sort().into(),
        solve().into(),
        Token { dtype: DType::F32, len: 5 }.into(),
        Transpose::contiguous(DType::Bool, [2, 5, 3]).into(),
    ]
}

/// Descriptors that describe nothing, with the number that each is refused for.
fn refused() -> Vec<(Library, String)> {
    let text = |x: usize| x.to_string();
    let rows =
        |offset, row_stride, col_stride| Strided { offset, batch_strides: SmallVec::new(), row_stride, col_stride };
    let (far, half) = (usize::MAX, 1 << 32);
    let mut all: Vec<(Library, String)> = vec![
        (MatMul { a: rows(1 << 60, BACK, 1), ..matmul() }.into(), text(1 << 60)),
        (MatMul { b: rows(1 << 60, 1, BACK), ..matmul() }.into(), text(BACK)),
        (MatMul { a: rows(BACK, 1, 1), ..matmul() }.into(), text(BACK)),
        (MatMul { n: THIRD, m: 3, ..matmul() }.into(), text(THIRD)),
        (MatMul { n: THIRD, m: 3, a: rows(0, 0, 0), b: rows(0, 0, 0), ..matmul() }.into(), text(THIRD)),
        (MatMul { k: THIRD, a: rows(0, 1, 0), b: rows(0, 0, 1), ..matmul() }.into(), "multiplications".into()),
        (MatMul::contiguous(DType::F32, &[half, half], [1, 1, 1]).into(), text(half)),
        (MatMul::contiguous(DType::F32, &[], [half, half, half]).into(), text(half)),
        (MatMul { batch: SmallVec::from_slice(&[2]), ..matmul() }.into(), "0 batch strides for 1 batch axes".into()),
        (MatMul { dtype: DType::I32, ..matmul() }.into(), "i32".into()),
        (Collective { lens: Shape::new(&[far, 3]), ..collective() }.into(), text(far)),
        (Collective { lens: Shape::new(&[half, THIRD]), ..collective() }.into(), text(half + THIRD)),
        (Collective { shards: half, held: half, lens: Shape::new(&[0]), ..collective() }.into(), text(half)),
        (Collective { size: 2, shards: 1 << 20, held: 1 << 20, ..collective() }.into(), text(1 << 21)),
        (Collective { size: far, ..collective() }.into(), text(far)),
        (Collective { size: 0, ..collective() }.into(), "no workers".into()),
        (Collective { held: 2, ..collective() }.into(), "2 of 3 shards in a group of one".into()),
        (Collective { held: 0, size: 2, ..collective() }.into(), "0 of 3 shards".into()),
        (Collective { kind: CollectiveKind::Gather, ..collective() }.into(), "3 shards instead of 1".into()),
        (Collective { dtype: DType::Bool, ..collective() }.into(), "bool".into()),
        (Token { dtype: DType::F32, len: far }.into(), text(far)),
        (Transpose::contiguous(DType::F32, [2, THIRD, 3]).into(), text(THIRD)),
        (Transpose { offset: far, ..Transpose::contiguous(DType::F32, [1, 2, 3]) }.into(), "[0, 0, 0, 0, 3]".into()),
        (Transpose { strides: [0, 0, 0, 0, far], ..Transpose::contiguous(DType::F32, [1, 3, 3]) }.into(), text(far)),
        (Recurrence { outer: THIRD, len: 3, inner: 1, ..recurrence() }.into(), text(THIRD)),
        (Recurrence { dtype: DType::F16, ..recurrence() }.into(), "f16".into()),
        (Scan { outer: THIRD, len: 3, inner: 1, ..scan() }.into(), text(THIRD)),
        (Scan { outer: 0, len: half, inner: half, ..scan() }.into(), text(half)),
        (Scan { dtype: DType::Bool, ..scan() }.into(), "bool".into()),
        (ScatterAdd { outer: THIRD, len: 3, inner: 1, ..scatter() }.into(), text(THIRD)),
        (ScatterAdd { n_indices: THIRD, ..scatter() }.into(), text(THIRD)),
        (ScatterAdd { index_dtype: DType::F32, ..scatter() }.into(), "f32".into()),
        (ScatterAdd { dtype: DType::Bf16, ..scatter() }.into(), "bf16".into()),
        (Sort { len: half, inner: half, ..sort() }.into(), text(half)),
        (Sort { outer: THIRD, len: 3, inner: 1, ..sort() }.into(), text(THIRD)),
        (Sort { dtype: DType::F16, ..sort() }.into(), "f16".into()),
        (Sort { kept: 6, ..sort() }.into(), "6 positions are kept of 5".into()),
        (Join { lens: Shape::new(&[]), ..join() }.into(), "nothing is joined".into()),
        (Join::contiguous(DType::F32, THIRD, Shape::new(&[1, 2]), 1).into(), text(THIRD)),
        (Join { offsets: Shape::new(&[0, 1]), ..join() }.into(), "3 inputs have 2 offsets and 3 pitches".into()),
        (Join { pitches: Shape::new(&[far, 0, 3]), ..join() }.into(), text(far)),
        (Join { offsets: Shape::new(&[1 << 60, 0, 3]), ..join() }.into(), text(1 << 60)),
        (ArgReduce { outer: THIRD, len: 3, inner: 1, ..arg_reduce() }.into(), text(THIRD)),
        (ArgReduce { outer: half, len: 0, inner: half, ..arg_reduce() }.into(), text(half)),
        (ArgReduce { dtype: DType::Bf16, ..arg_reduce() }.into(), "bf16".into()),
        (Cholesky { dtype: DType::F32, batch: 1, n: half }.into(), text(half)),
        (Cholesky { dtype: DType::F32, batch: THIRD, n: 1 }.into(), text(THIRD)),
        (Cholesky { dtype: DType::I64, batch: 1, n: 1 }.into(), "i64".into()),
        (TriangularSolve { n_rhs: THIRD, ..solve() }.into(), text(THIRD)),
        (TriangularSolve { n: half, n_rhs: 0, ..solve() }.into(), text(half)),
        (TriangularSolve { dtype: DType::F16, ..solve() }.into(), "f16".into()),
        (Philox { len: far, stream: 0 }.into(), text(far)),
        (print(&[half, half]).into(), text(half)),
        (print(&[0, half, half]).into(), text(half)),
    ];
    all.extend(refused_windows());
    for (from, to) in [(DType::F32, DType::F64), (DType::F16, DType::F16), (DType::I32, DType::F32)] {
        all.push((CastHalf { from, to, len: 1 }.into(), format!("{from} to {to}")));
    }
    all.push((CastHalf { from: DType::F32, to: DType::F16, len: far }.into(), text(far)));
    all
}

/// As [`refused`], for convolutions, attention and pooling.
fn refused_windows() -> Vec<(Library, String)> {
    let text = |x: usize| x.to_string();
    let (far, half) = (usize::MAX, 1 << 32);
    let mut stretched = attention();
    stretched.operands[1].row_stride = far;
    vec![
        (Conv2d { batch: half, height: half, width: 1, ..conv() }.into(), text(half)),
        (Conv2d { in_channels: THIRD - 1, ..conv() }.into(), text(THIRD - 1)),
        (Conv2d { kernel_height: THIRD, padding: [[0, 0]; 2], ..conv() }.into(), "reach".into()),
        (Conv2d { padding: [[far, 0], [0, 0]], ..conv() }.into(), "padded image".into()),
        (Conv2d { padding: [[1 << 62, 0], [0, 0]], ..conv() }.into(), text((1 << 62) + 6)),
        (Conv2d { dilation: [far, 1], ..conv() }.into(), text(far)),
        (Conv2d { stride: [1, far], ..conv() }.into(), text(far)),
        (Conv2d { stride: [0, 1], ..conv() }.into(), "[0, 1]".into()),
        (Conv2d { dilation: [1, 0], ..conv() }.into(), "[1, 0]".into()),
        (Conv2d { groups: 0, ..conv() }.into(), "group".into()),
        (Conv2d { groups: 3, ..conv() }.into(), "4 input channels do not divide into 3 groups".into()),
        (Conv2d { out_channels: 7, ..conv() }.into(), "7 output channels do not divide into 2 groups".into()),
        (Conv2d { dtype: DType::Bool, ..conv() }.into(), "bool".into()),
        (Attention { queries: THIRD, keys: 3, ..attention() }.into(), text(THIRD)),
        (Attention { batch: 0, features: far, ..attention() }.into(), text(far)),
        (Attention { dtype: DType::F16, ..attention() }.into(), "f16".into()),
        (Attention { dtype: DType::F64, ..attention() }.into(), "scale".into()),
        (Attention { pass: AttentionPass::Gradient, ..attention() }.into(), "layouts of 3 operands".into()),
        (Attention { joined: true, ..attention() }.into(), "joined".into()),
        (stretched.into(), text(far)),
        (Pool2d { batch: half, channels: half, ..pool() }.into(), text(half)),
        (Pool2d { padding: [[far, 0], [0, 0]], ..pool() }.into(), text(far)),
        (Pool2d { padding: [[0, 0], [far, far]], ..pool() }.into(), text(far)),
        (Pool2d { stride: [0, 1], ..pool() }.into(), "[0, 1]".into()),
        (Pool2d { stride: [far, 1], ..pool() }.into(), text(far)),
        (Pool2d { window: [1, 0], ..pool() }.into(), "[1, 0]".into()),
        (Pool2d { window: [THIRD, 1], ..pool() }.into(), text(THIRD)),
        (Pool2d { height: 1 << 20, width: 1 << 20, ..pool() }.into(), text(1 << 40)),
        (Pool2d { kind: PoolKind::Sum, pass: PoolPass::MaxGather, ..pool() }.into(), "max_gather".into()),
        (Pool2d { dtype: DType::F16, ..pool() }.into(), "f16".into()),
    ]
}

#[test]
fn descriptors_that_describe_nothing_are_refused_with_their_number() {
    for (library, number) in refused() {
        let error = library.verify().expect_err(&library.to_string()).to_string();
        assert!(error.contains(&library.to_string()) && error.contains(&number), "{number}: {error}");
        // Sizes that cannot be counted neither wrap nor panic, in messages either.
        let plan = plan(&library);
        assert!(plan.to_string().contains(library.name()));
        let refused = plan.verify().expect_err(&library.to_string()).to_string();
        assert!(refused.contains("step 0 (hostile)") && refused.contains(&error), "{refused}");
        assert!(ptx::lower(&plan.steps[0], Target::new(80)).is_err(), "{library}");
        assert!(Executable::compile(plan).is_err(), "{library}");
        assert_eq!(Library::parse(&library.to_string()), None, "what is refused is not read back");
    }
}

fn values<T: Element>(buffer: &Buffer) -> Vec<f64> {
    buffer.to_vec::<T>().expect("the memory suffices").into_iter().map(Element::to_f64).collect()
}

fn numbers(dtype: DType, buffer: &Buffer) -> Vec<f64> {
    match dtype {
        DType::F32 => values::<f32>(buffer),
        DType::F64 => values::<f64>(buffer),
        DType::F16 => values::<f16>(buffer),
        DType::Bf16 => values::<bf16>(buffer),
        DType::I32 => values::<i32>(buffer),
        DType::I64 => values::<i64>(buffer),
        DType::U32 => values::<u32>(buffer),
        DType::U8 | DType::Bool => values::<u8>(buffer),
    }
}

/// A buffer of small numbers.
fn buffer((dtype, len): (DType, usize), draw: &mut impl FnMut() -> u64) -> Buffer {
    let mut bytes = vec![0; len * dtype.size()];
    for element in bytes.chunks_exact_mut(dtype.size()) {
        let x = (draw() % 9) as f64 - 4.0;
        let bits = match dtype {
            DType::F32 => (x as f32).to_scalar(),
            DType::F64 => x.to_scalar(),
            DType::F16 => f16::from_f64(x).to_scalar(),
            DType::Bf16 => bf16::from_f64(x).to_scalar(),
            DType::I32 => (x as i32).to_scalar(),
            DType::I64 => (x as i64).to_scalar(),
            DType::U32 => (x as u32).to_scalar(),
            DType::U8 => (x as u8).to_scalar(),
            DType::Bool => (x > 0.0).to_scalar(),
        };
        element.copy_from_slice(&bits.bits.to_le_bytes()[..dtype.size()]);
    }
    Buffer::from_bytes(&bytes).unwrap()
}

/// Whether a kernel prints, or takes workers that are not there.
fn takes_others(library: &Library) -> bool {
    match library {
        Library::Print(_) => true,
        Library::Collective(collective) => collective.size > 1,
        _ => false,
    }
}

/// Runs a library kernel and its twin, which reads and writes through slices alone, if that takes moments only.
/// Returns whether it ran.
fn runs_as_its_twin(library: &Library, draw: &mut impl FnMut() -> u64) -> bool {
    let executable = match Executable::compile(plan(library)) {
        Ok(executable) => executable,
        Err(Error::Unsupported(reason)) if matches!(library, Library::Sort(_)) => {
            assert!(reason.contains("elements along an axis"), "{reason}");
            return false;
        }
        Err(error) => panic!("{library}: {error}"),
    };
    let count = |types: Vec<(DType, usize)>| types.iter().map(|(_, len)| *len).fold(0, usize::saturating_add);
    let (read, written) = (count(library.inputs()), count(library.outputs()));
    let terms = match library {
        Library::MatMul(product) => product.k,
        _ => read,
    };
    if read > 1 << 16 || written.saturating_mul(terms.max(1)) > 1 << 20 || takes_others(library) {
        return false;
    }
    let inputs: Vec<Buffer> = library.inputs().into_iter().map(|ty| buffer(ty, draw)).collect();
    let inputs: Vec<&Buffer> = inputs.iter().collect();
    let (found, expected) = (executable.run(&inputs).unwrap(), executable.evaluate(&inputs).unwrap());
    // Factors of matrices that are not positive and their solutions grow without bound, as do weights that are not less
    // the logarithm of their own sum.
    let is_stable = match library {
        Library::Cholesky(_) | Library::TriangularSolve(_) => false,
        Library::Attention(attention) => attention.pass == AttentionPass::Forward,
        _ => true,
    };
    let has_powers = matches!(library, Library::Attention(_));
    for (((dtype, _), found), expected) in library.outputs().into_iter().zip(&found).zip(&expected) {
        for (x, y) in numbers(dtype, found).into_iter().zip(numbers(dtype, expected)).filter(|_| is_stable) {
            // Sums of small whole numbers are exact but in 16 bits, which round once to 3 digits at least.
            let is_rounded = (dtype.is_half() && (x - y).abs() <= 1e-2 * y.abs())
                || (has_powers && (x - y).abs() <= 1e-5 * y.abs().max(1.0));
            let same = x == y || (x.is_nan() && y.is_nan()) || is_rounded;
            assert!(same, "{library}: {x} but the twin has {y}");
        }
    }
    true
}

#[test]
fn mutated_descriptors_are_refused_or_stay_in_bounds() {
    const HOSTILE: [usize; 18] = [
        0,
        0,
        1,
        1,
        2,
        3,
        5,
        64,
        1 << 16,
        1 << 31,
        1 << 32,
        1 << 60,
        (1 << 60) - 1,
        isize::MAX as usize,
        1 << 63,
        THIRD,
        usize::MAX - 1,
        usize::MAX,
    ];
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut draw = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 11
    };
    let (mut n_ran, mut n_large, mut n_refused) = (0, 0, 0);
    for library in valid() {
        library.verify().unwrap();
        assert!(runs_as_its_twin(&library, &mut draw), "{library}");
        let text = library.to_string();
        let start = text.find('{').unwrap();
        // Numbers of the text, those in the names of dtypes aside.
        let digit = |at: usize| text.as_bytes()[at].is_ascii_digit();
        let starts: Vec<usize> =
            (start..text.len()).filter(|&at| digit(at) && b"=[,".contains(&text.as_bytes()[at - 1])).collect();
        for _ in 0..150 {
            let mut places: Vec<usize> = (0..1 + draw() % 3).map(|_| starts[draw() as usize % starts.len()]).collect();
            places.sort_unstable();
            places.dedup();
            let mut mutant = text.clone();
            for &at in places.iter().rev() {
                let end = (at..text.len()).find(|&at| !digit(at)).unwrap();
                mutant.replace_range(at..end, &HOSTILE[draw() as usize % HOSTILE.len()].to_string());
            }
            let mutant = Library::parse(&mutant);
            if let Some(library) = &mutant {
                // Code for a GPU may be refused; numbers that cannot be counted must not come up in it.
                for sm in [75, 90] {
                    let _ = ptx::lower(&plan(library).steps[0], Target { fast: true, ..Target::new(sm) });
                }
            }
            match mutant {
                Some(mutant) if runs_as_its_twin(&mutant, &mut draw) => n_ran += 1,
                Some(_) => n_large += 1,
                None => n_refused += 1,
            }
        }
    }
    assert!(n_ran > 500 && n_large > 50 && n_refused > 500, "{n_ran} ran, {n_large} are large, {n_refused} refused");
}

#[test]
fn lines_that_are_too_long_for_the_processor_are_refused_by_it() {
    let long = Sort { outer: 1, len: 1 << 32, inner: 1, ..sort() };
    long.verify().unwrap();
    match Executable::compile(plan(&long.clone().into())) {
        Err(Error::Unsupported(reason)) => assert_eq!(reason, "sorting 4294967296 elements along an axis"),
        other => panic!("{other:?}"),
    }
    // Of no lines, the length can be any number.
    assert!(runs_as_its_twin(&Sort { outer: 0, ..long }.into(), &mut || 1));
}

#[test]
fn padding_that_no_memory_could_hold_is_in_no_memory() {
    let mut draw = || 5;
    for pass in [ConvPass::Forward, ConvPass::InputGradient, ConvPass::FilterGradient] {
        // Nine windows along each axis, of which some lie on the image and most on padding of terabytes.
        let conv = Conv2d {
            batch: 1,
            height: 4,
            width: 4,
            in_channels: 1,
            out_channels: 1,
            kernel_width: 3,
            groups: 1,
            stride: [1 << 26, 1 << 26],
            padding: [[1 << 28, 1 << 28], [1 << 28, 1 << 28]],
            dilation: [1, 1],
            pass,
            ..conv()
        };
        assert_eq!(conv.out_extent(), [9, 9]);
        assert!(runs_as_its_twin(&conv.into(), &mut draw));
    }
}

#[test]
fn texts_that_are_no_descriptor_are_refused() {
    for library in valid() {
        let text = library.to_string();
        assert_eq!(Library::parse(&text).as_ref(), Some(&library));
        for end in 0..text.len() {
            assert_eq!(Library::parse(&text[..end]), None, "{}", &text[..end]);
        }
        for (at, _) in text.char_indices() {
            for c in ['{', '}', '[', ']', ',', '=', '-', 'x', 'ü', '\0'] {
                let mut other = text.clone();
                other.insert(at, c);
                // Nothing but the label of a print may hold all of these.
                let read = Library::parse(&other);
                assert!(read.is_none_or(|read| read.to_string() == other), "{other}");
            }
        }
    }
}
