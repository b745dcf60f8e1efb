//! Convolutions and their gradients.

use retape_kernels::library::{Conv2d, ConvPass, Library};
use retape_runtime::{DType, Scalar};

use super::{DTYPES, Random, TARGETS, check, check_on, launches, machine, reference, target, values};

const PASSES: [ConvPass; 3] = [ConvPass::Forward, ConvPass::InputGradient, ConvPass::FilterGradient];

/// A convolution of 8 to 16 channels by 3x3 taps.
const PLAIN: Conv2d = Conv2d {
    dtype: DType::F32,
    batch: 2,
    height: 9,
    width: 11,
    in_channels: 8,
    kernel_height: 3,
    kernel_width: 3,
    out_channels: 16,
    stride: [1, 1],
    padding: [[1, 1], [1, 1]],
    dilation: [1, 1],
    groups: 1,
    pass: ConvPass::Forward,
};

/// The length of the sums.
fn terms(op: &Conv2d) -> usize {
    let [height, width] = op.out_extent();
    match op.pass {
        ConvPass::Forward | ConvPass::InputGradient => {
            op.kernel_height * op.kernel_width * op.in_channels.max(op.out_channels)
        }
        ConvPass::FilterGradient => op.batch * height * width,
    }
}

#[test]
fn any_geometry_on_any_target() {
    let mut random = Random(0x1234_5678_9abc_def1);
    let none = [[0, 0], [0, 0]];
    let geometries = [
        PLAIN,
        Conv2d { stride: [2, 3], padding: [[1, 0], [2, 1]], ..PLAIN },
        Conv2d { in_channels: 3, kernel_height: 5, dilation: [1, 2], ..PLAIN },
        Conv2d { groups: 2, in_channels: 6, out_channels: 4, ..PLAIN },
        Conv2d { groups: 8, out_channels: 8, stride: [2, 2], ..PLAIN },
        Conv2d { kernel_height: 1, kernel_width: 1, padding: none, ..PLAIN },
        Conv2d { kernel_height: 1, kernel_width: 1, stride: [2, 2], padding: none, ..PLAIN },
        Conv2d { dilation: [2, 3], stride: [2, 2], padding: [[2, 2], [3, 3]], ..PLAIN },
        // A line of one channel.
        Conv2d {
            in_channels: 1,
            out_channels: 1,
            height: 1,
            kernel_height: 1,
            padding: [[0, 0], [4, 4]],
            kernel_width: 9,
            width: 40,
            ..PLAIN
        },
        // One product visits all distances from the stride's grid.
        Conv2d {
            height: 25,
            width: 24,
            kernel_height: 6,
            kernel_width: 6,
            stride: [6, 6],
            in_channels: 3,
            out_channels: 5,
            padding: none,
            ..PLAIN
        },
    ];
    for (round, op) in geometries.into_iter().enumerate() {
        for (p, pass) in PASSES.into_iter().enumerate() {
            for (d, dtype) in DTYPES.into_iter().enumerate() {
                let op = Conv2d { pass, dtype, ..op.clone() };
                check(op.clone(), TARGETS[(round + p + d) % TARGETS.len()], terms(&op), &mut random);
            }
        }
    }
}

#[test]
fn filter_gradients_cut_their_sums() {
    let mut random = Random(17);
    for dtype in [DType::F32, DType::Bf16] {
        let op = Conv2d { height: 18, width: 18, in_channels: 4, pass: ConvPass::FilterGradient, dtype, ..PLAIN };
        assert_eq!(launches(&op.clone().into(), target(80, false)).launches.len(), 2);
        check(op.clone(), target(80, false), terms(&op), &mut random);
    }
}

#[test]
fn images_without_windows() {
    let mut random = Random(5);
    for pass in PASSES {
        // No output at all, no images, and pixels between the windows.
        let small = Conv2d { height: 2, width: 2, padding: [[0, 0], [0, 0]], pass, ..PLAIN };
        check(small, target(80, false), 1, &mut random);
        check(Conv2d { batch: 0, pass, ..PLAIN }, target(80, false), 1, &mut random);
        let apart = Conv2d { stride: [4, 3], kernel_height: 2, kernel_width: 1, pass, ..PLAIN };
        check(apart.clone(), target(80, false), terms(&apart), &mut random);
    }
}

/// A convolution of any geometry.
fn random_geometry(round: usize, random: &mut Random) -> Conv2d {
    let groups = random.pick(&[1, 1, 1, 2, 3]);
    let channels = [0; 2].map(|_| groups * random.pick(&[1, 2, 3, 4, 8, 17]));
    let mut pad = || [random.pick(&[0, 1, 2]), random.pick(&[0, 1, 2])];
    let padding = [pad(), pad()];
    Conv2d {
        dtype: DTYPES[round / 3 % 4],
        batch: random.pick(&[1, 1, 2, 3]),
        height: random.pick(&[1, 2, 5, 7, 8]),
        width: random.pick(&[1, 3, 6, 7, 14]),
        in_channels: channels[0],
        kernel_height: random.pick(&[1, 2, 3, 5]),
        kernel_width: random.pick(&[1, 2, 3]),
        out_channels: channels[1],
        stride: [0; 2].map(|_| random.pick(&[1, 2, 3])),
        padding,
        dilation: [0; 2].map(|_| random.pick(&[1, 1, 2, 3])),
        groups,
        pass: PASSES[round % 3],
    }
}

/// One element that is not finite, in either operand, meets what lies beyond the edges of the other.
#[test]
fn what_meets_the_zeros_beyond_an_edge() {
    let mut random = Random(0x77);
    let mut n_nan = 0;
    for round in 0..48 {
        let op = random_geometry(round, &mut random);
        let library = Library::from(op.clone());
        let types = library.inputs();
        let mut inputs: Vec<Vec<u8>> = types.iter().map(|(dtype, len)| random.bytes(*dtype, *len)).collect();
        let (operand, size) = (round / 3 % 2, op.dtype.size());
        let Some(last) = types[operand].1.checked_sub(1) else { continue };
        let at = random.pick(&[0, last, last / 2, last / 3]);
        let value = Scalar::from_f64(random.pick(&[f64::INFINITY, f64::NEG_INFINITY, f64::NAN]), op.dtype);
        inputs[operand][at * size..][..size].copy_from_slice(&value.bits.to_le_bytes()[..size]);
        check_on(&library, random.pick(&TARGETS), terms(&op), &inputs);
        n_nan += usize::from(!value.to_f64().is_nan() && reference(&library, &inputs).iter().any(|x| x.is_nan()));
    }
    assert!(n_nan > 6, "{n_nan}: few infinities met a zero");
}

/// The exception that `docs/gpu.md` names: one product that visits all distances from the stride's grid multiplies
/// zeros between the strides too.
#[test]
fn what_meets_the_zeros_between_many_strides() {
    let op = Conv2d {
        height: 25,
        width: 24,
        kernel_height: 6,
        kernel_width: 6,
        stride: [6, 6],
        in_channels: 3,
        out_channels: 5,
        padding: [[0, 0], [0, 0]],
        pass: ConvPass::InputGradient,
        ..PLAIN
    };
    let library = Library::from(op.clone());
    let mut random = Random(8);
    let mut inputs: Vec<Vec<u8>> = library.inputs().iter().map(|(dtype, len)| random.bytes(*dtype, *len)).collect();
    inputs[1][..4].copy_from_slice(&f32::INFINITY.to_le_bytes());
    let (_, len) = library.outputs()[0];
    let found = machine::both(&launches(&library, target(80, false)), &inputs, &[len * 4]);
    let (found, expected) = (values(op.dtype, &found[0]), reference(&library, &inputs));
    let between = found.iter().zip(&expected).filter(|(x, y)| x.is_nan() && y.is_finite()).count();
    assert!(between > 0 && found.iter().zip(&expected).all(|(x, y)| x.is_nan() || x.is_finite() == y.is_finite()));
}

#[test]
fn random_geometries() {
    let mut random = Random(0x51);
    for round in 0..40 {
        let op = random_geometry(round, &mut random);
        check(op.clone(), random.pick(&TARGETS), terms(&op), &mut random);
    }
}
