//! Every instruction on every dtype, on values that are special to it.

use retape_kernels::ir::{
    Affine, Binary, Compare, Func1, Inst, Kernel, KernelBuilder, Unary, Value, ValueId, eval_inst,
};
use retape_runtime::{DType, Scalar};

use crate::machine::{outputs, same, scalars};
use crate::{TARGETS, step};

/// Values of a dtype at which instructions behave specially, as bits.
fn special(dtype: DType) -> Vec<Scalar> {
    let bits: Vec<u64> = match dtype {
        DType::F32 => {
            let numbers = [
                0.0_f32,
                -0.0,
                1.0,
                -1.0,
                0.5,
                1.5,
                2.5,
                -2.5,
                3.0,
                7.25,
                -0.3,
                1e-40,
                -1e-45,
                f32::MIN_POSITIVE,
                f32::MAX,
                f32::MIN,
                f32::INFINITY,
                f32::NEG_INFINITY,
                f32::NAN,
                255.0,
                256.0,
                -1e9,
                2_147_483_648.0,
                4e9,
                9.3e18,
                -1e19,
                65504.0,
                65519.0,
                65520.0,
                65536.0,
                6e-8,
                2e-8,
                1.0009766,
                1.0048828,
                1.00390625,
                3.39e38,
                8388609.0,
                0.49999997,
                16777217.0,
            ];
            numbers.iter().map(|x| u64::from(x.to_bits())).collect()
        }
        DType::F64 => {
            let numbers = [
                0.0_f64,
                -0.0,
                1.0,
                -1.0,
                0.5,
                1.5,
                2.5,
                -2.5,
                3.0,
                7.25,
                -0.3,
                1e-310,
                -5e-324,
                f64::MIN_POSITIVE,
                f64::MAX,
                f64::INFINITY,
                f64::NEG_INFINITY,
                f64::NAN,
                255.9,
                256.0,
                -1e9,
                2_147_483_647.5,
                4_294_967_295.5,
                9.3e18,
                -1e19,
                65519.99999999999,
                65520.0,
                1.000_488_281_250_000_1,
                1.00048828125,
                1.0009765625,
                1.003_906_250_000_1,
                3.402_823_5e38,
                3.402_823_6e38,
                1e-46,
                6e-8,
                0.499_999_999_999_999_94,
                9_007_199_254_740_993.0,
                1e300,
            ];
            numbers.iter().map(|x| x.to_bits()).collect()
        }
        DType::F16 => {
            vec![0, 0x8000, 0x3c00, 0xc100, 0x7bff, 0x7c00, 0xfc00, 0x7e00, 1, 0x83ff, 0x5bf8, 0x5c00, 0x3555]
        }
        DType::Bf16 => {
            vec![0, 0x8000, 0x3f80, 0xc020, 0x7f7f, 0x7f80, 0xff80, 0x7fc0, 1, 0x807f, 0x437f, 0x4f80, 0xdf00]
        }
        DType::I32 => {
            [0, 1, -1, 2, 7, -7, 31, 33, 255, 256, -256, i32::MAX, i32::MIN, 16_777_217, 65_519, 65_520, 2049]
                .iter()
                .map(|&x: &i32| u64::from(x as u32))
                .collect()
        }
        DType::I64 => {
            let numbers = [
                0,
                1,
                -1,
                2,
                7,
                -7,
                63,
                65,
                255,
                256,
                -256,
                i64::MAX,
                i64::MIN,
                i64::MAX - 511,
                1 << 53,
                (1 << 53) + 1,
                -(1 << 31),
                (1 << 31) - 1,
                (1 << 32) - 1,
                1 << 32,
                65_519,
                65_520,
                2049,
                (1 << 24) + 1,
                (1 << 62) + 1,
                0x0101_0000_0000_0001,
            ];
            numbers.iter().map(|&x: &i64| x as u64).collect()
        }
        DType::U32 => {
            vec![0, 1, 2, 7, 31, 33, 255, 256, 1 << 31, (1 << 31) - 1, u64::from(u32::MAX), 16_777_217, 65_520]
        }
        DType::U8 => vec![0, 1, 2, 7, 8, 9, 127, 128, 200, 255],
        DType::Bool => vec![0, 1],
    };
    bits.into_iter().map(|bits| Scalar { dtype, bits }).collect()
}

/// Instructions over three values of one dtype and a truth value, of which a kernel can have many at once.
fn instructions(dtype: DType) -> Vec<Inst<usize>> {
    let mut insts = vec![Inst::Fma(0, 1, 2), Inst::Select(3, 0, 1)];
    insts.extend(Unary::ALL.iter().map(|&op| Inst::Unary(op, 0)));
    insts.extend(Binary::ALL.iter().map(|&op| Inst::Binary(op, 0, 1)));
    insts.extend(Compare::ALL.iter().map(|&op| Inst::Compare(op, 0, 1)));
    insts.extend(DType::ALL.iter().map(|&to| Inst::Cast(to, 0)));
    insts.extend(DType::ALL.iter().map(|&to| Inst::Bitcast(to, 0)));
    let sample = |v| Scalar::from_f64(1.0, if v == 3 { DType::Bool } else { dtype });
    insts.retain(|inst| eval_inst(&inst.map(sample)).is_some() && !matches!(inst, Inst::Call1(Func1::Exp, _)));
    insts
}

/// The operands at each point: all pairs of special values, with a third that goes through them in another order.
fn operands(dtype: DType) -> Vec<[Scalar; 4]> {
    let values = special(dtype);
    let truth = |n: usize| Scalar { dtype: DType::Bool, bits: n as u64 & 1 };
    let n = values.len();
    (0..n * n).map(|i| [values[i / n], values[i % n], values[(i * 7 + i / n) % n], truth(i / 3)]).collect()
}

/// A kernel that applies some instructions at every point.
fn kernel(insts: &[Inst<usize>], dtype: DType, n: usize) -> Kernel {
    let builder = KernelBuilder::new();
    let axis = Affine::new(0, &[1]);
    let params = [dtype, dtype, dtype, DType::Bool].map(|dtype| builder.param(dtype, n, false));
    builder.axis(n, false);
    let loads: Vec<Value<'_>> = params.iter().map(|&p| builder.load(p, axis.clone())).collect();
    let results: Vec<Value<'_>> =
        insts.iter().map(|inst| builder.push(inst.map(|v| -> ValueId { loads[v].id() }))).collect();
    for value in results {
        let param = builder.param(value.dtype(), n, true);
        builder.store(param, axis.clone(), value);
    }
    builder.finish()
}

#[test]
fn every_instruction_has_the_bits_of_the_evaluator() {
    for dtype in DType::ALL {
        let points = operands(dtype);
        let column = |which: usize| {
            let bytes = points.iter().flat_map(|p| p[which].bits.to_le_bytes().into_iter().take(p[which].dtype.size()));
            bytes.collect::<Vec<u8>>()
        };
        let inputs: Vec<Vec<u8>> = (0..4).map(column).collect();
        let insts = instructions(dtype);
        for insts in insts.chunks(6) {
            let kernel = kernel(insts, dtype, points.len());
            for target in TARGETS {
                let found = outputs(&step(&kernel), &kernel, &inputs, target);
                for (inst, bytes) in insts.iter().zip(found) {
                    let ty = eval_inst(&inst.map(|v| points[0][v])).unwrap().dtype;
                    for (point, found) in points.iter().zip(scalars(&bytes, ty)) {
                        let inst = inst.map(|v| point[v]);
                        let expected = eval_inst(&inst).unwrap();
                        assert!(same(found, expected), "sm_{}: {inst:?} is {found:?}, not {expected:?}", target.sm);
                    }
                }
            }
        }
    }
}
