//! Every instruction on every dtype, on values that are special to it.

use retape_kernels::ir::{Affine, Binary, Compare, Inst, Kernel, KernelBuilder, Unary, Value, ValueId, eval_inst};
use retape_runtime::{DType, Scalar};

use super::machine::{outputs, same, scalars};
use super::{TARGETS, step};

const SINGLE: &str = "0 -0 1 -1 0.5 1.5 2.5 -2.5 3 7.25 -0.3 1e-40 -1e-45 1.1754944e-38 3.4028235e38 -3.4028235e38
    inf -inf nan 255 256 -1e9 2147483648 4e9 9.3e18 -1e19 65504 65519 65520 65536 6e-8 2e-8 1.0009766 1.0048828
    1.00390625 3.39e38 8388609 0.49999997 16777217";

const DOUBLE: &str = "0 -0 1 -1 0.5 1.5 2.5 -2.5 3 7.25 -0.3 1e-310 -5e-324 2.2250738585072014e-308
    1.7976931348623157e308 inf -inf nan 255.9 256 -1e9 2147483647.5 4294967295.5 9.3e18 -1e19 65519.99999999999 65520
    1.0004882812500001 1.00048828125 1.0009765625 1.0039062500001 3.4028235e38 3.4028236e38 1e-46 6e-8
    0.49999999999999994 9007199254740993 1e300";

const I32: &str = "0 1 -1 2 7 -7 31 33 255 256 -256 2147483647 -2147483648 16777217 65519 65520 2049";

const I64: &str = "0 1 -1 2 7 -7 63 65 255 256 -256 9223372036854775807 -9223372036854775808 9223372036854775296
    9007199254740992 9007199254740993 -2147483648 2147483647 4294967295 4294967296 65519 65520 2049 16777217
    4611686018427387905 72339069014638593";

const U32: &str = "0 1 2 7 31 33 255 256 2147483648 2147483647 4294967295 16777217 65520";

/// Values of a dtype at which instructions behave specially.
fn special(dtype: DType) -> Vec<Scalar> {
    let text = match dtype {
        DType::F32 => SINGLE,
        DType::F64 => DOUBLE,
        DType::I32 => I32,
        DType::I64 => I64,
        DType::U32 => U32,
        DType::U8 => "0 1 2 7 8 9 127 128 200 255",
        DType::Bool => "false true",
        DType::F16 | DType::Bf16 => {
            "0000 8000 3c00 c100 7bff 7c00 fc00 7e00 0001 83ff 5bf8 5c00 3555 3f80 7f7f ff80 7fc0 4f80"
        }
    };
    let values = text.split_whitespace().map(|number| match dtype {
        DType::F16 | DType::Bf16 => Scalar { dtype, bits: u64::from_str_radix(number, 16).unwrap() },
        _ => Scalar::parse(number, dtype).unwrap(),
    });
    values.collect()
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
    insts.retain(|inst| eval_inst(&inst.map(sample)).is_some());
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
