//! Products of 16-bit floats, block by block and as a whole.

use retape_runtime::{DType, bf16, f16};

use crate::library::dense::DenseKernel;
use crate::library::micro::{Engine, Level};
use crate::library::testing::{Draw, assert_close, drawn};
use crate::library::{MatMul, MatrixLayout};

#[test]
fn blocks_have_the_bits_of_the_whole() {
    let (mut draw, engine) = (Draw::new(3), Engine::best());
    let mut n_cut = 0;
    for (m, n, k) in [(100, 1, 300), (1, 100, 700), (700, 3, 40), (5, 333, 513), (64, 65, 257), (40, 2, 600)] {
        for dtype in [DType::F16, DType::Bf16] {
            for turned in [[false, false], [true, false], [false, true], [true, true]] {
                let mut op = MatMul::contiguous(dtype, &[], [m, n, k]);
                if turned[0] {
                    op.a = MatrixLayout::contiguous(&[], k, m).transposed();
                }
                if turned[1] {
                    op.b = MatrixLayout::contiguous(&[], n, k).transposed();
                }
                let mut draw_all = |special| -> Vec<_> {
                    op.inputs().into_iter().map(|(dtype, n)| drawn(&mut draw, dtype, n, special)).collect()
                };
                let (inputs, special) = (draw_all(false), draw_all(true));
                let bytes: Vec<&[u8]> = inputs.iter().map(|input| input.bytes()).collect();
                let [mut cut, mut whole] = [0x5a; 2].map(|byte| vec![[byte; 2]; m * n]);
                let is_cut = op.run_in_blocks(&engine, &bytes, &mut [cut.as_flattened_mut()]);
                n_cut += usize::from(is_cut);
                if is_cut {
                    op.run_in_single(&engine, &bytes, &mut [whole.as_flattened_mut()]);
                    assert!(cut == whole, "{op}");
                }
                assert_close(&op.into(), &special, 0.02);
            }
        }
    }
    assert!(n_cut >= 40, "{n_cut} products were cut");
}

/// A vector by rows, or some by columns, of every number of rows that is left over, on every level.
#[test]
fn halves_times_vectors_have_the_bits_of_singles() {
    let mut draw = Draw::new(4);
    let mut n_cut = 0;
    for level in Level::available() {
        let engine = Engine { level, ..Engine::best() };
        for (lines, k) in [(128, 300), (531, 257), (73, 400), (1039, 34), (60, 513), (33, 1000), (300, 1024)] {
            for (dtype, is_turned) in
                [(DType::F16, false), (DType::F16, true), (DType::Bf16, false), (DType::Bf16, true)]
            {
                for [m, n] in [[lines, 1], [1, lines], [2, lines], [5, lines], [8, lines], [11, lines], [16, lines]] {
                    let mut op = MatMul::contiguous(dtype, &[], [m, n, k]);
                    let (matrix, [rows, columns]) = if n == 1 { (&mut op.a, [m, k]) } else { (&mut op.b, [k, n]) };
                    if is_turned {
                        *matrix = MatrixLayout::contiguous(&[], columns, rows).transposed();
                    }
                    matrix.offset = 3;
                    let inputs: Vec<_> =
                        op.inputs().iter().map(|&(dtype, n)| drawn(&mut draw, dtype, n, false)).collect();
                    let bytes: Vec<&[u8]> = inputs.iter().map(|input| input.bytes()).collect();
                    let [mut cut, mut whole] = [0x5a; 2].map(|byte| vec![[byte; 2]; m * n]);
                    n_cut += usize::from(op.run_in_blocks(&engine, &bytes, &mut [cut.as_flattened_mut()]));
                    op.run_in_single(&engine, &bytes, &mut [whole.as_flattened_mut()]);
                    let number = |bytes: &[u8; 2]| {
                        let bits = u16::from_le_bytes(*bytes);
                        let is_nan = if dtype == DType::F16 {
                            f16::from_bits(bits).is_nan()
                        } else {
                            bf16::from_bits(bits).is_nan()
                        };
                        (!is_nan).then_some(bits)
                    };
                    assert!(cut.iter().map(number).eq(whole.iter().map(number)), "{op} on {level:?}");
                }
            }
        }
    }
    assert_eq!(n_cut, 196 * Level::available().count());
}

#[test]
fn other_products_are_whole() {
    let engine = Engine::best();
    let small = MatMul::contiguous(DType::F16, &[], [8, 8, 8]);
    let both = MatMul::contiguous(DType::F16, &[], [80, 80, 80]);
    let several = MatMul::contiguous(DType::F16, &[3], [100, 1, 300]);
    let long = MatMul::contiguous(DType::F16, &[], [2, 2, 3000]);
    let none = MatMul::contiguous(DType::F16, &[], [4000, 1, 0]);
    let single = MatMul::contiguous(DType::F32, &[], [1000, 1, 300]);
    for op in [small, both, several, long, none, single] {
        let inputs: Vec<Vec<u8>> = op.inputs().iter().map(|(dtype, n)| vec![0; dtype.size() * n]).collect();
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        let mut out = vec![0; op.outputs()[0].1 * op.dtype.size()];
        assert!(!op.run_in_blocks(&engine, &inputs, &mut [&mut out]), "{op}");
    }
}
