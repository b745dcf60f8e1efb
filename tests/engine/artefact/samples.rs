//! Every op and every kind of constant survives an artefact with its bits.

use retape::ops::{Op, Parameter, Sample};
use retape::{Args, DType, Graph, Node, Scalar, Shape, Tensor, TensorType, ValueId, accelerate};

type Tensors = Vec<Tensor>;

/// The function that applies a graph, as it is in an artefact; `graph` is none where it must not be entered.
fn applied(graph: Option<Graph>) -> retape::Accelerated<impl Fn(&Tensors) -> Tensors, (Tensors,), Tensors> {
    accelerate(move |xs: &Tensors| {
        let graph = graph.as_ref().expect("a loaded entry never enters the closure");
        graph.apply(xs).expect("a sample applies")
    })
}

fn graph_of(op: &Op, types: &[TensorType]) -> Graph {
    let mut graph = Graph::default();
    let mut push = |op: Op, args: &[ValueId], types: &[&TensorType]| {
        let ty = op.infer(types).unwrap();
        graph.push(Node { op, args: Args::from_slice(args), ty, at: None, origin: None })
    };
    let parameter = |(index, ty): (usize, &TensorType)| Op::from(Parameter { index, ty: ty.clone() });
    let params: Vec<ValueId> = types.iter().enumerate().map(|param| push(parameter(param), &[], &[])).collect();
    let output = push(op.clone(), &params, &types.iter().collect::<Vec<_>>());
    graph.set_outputs(vec![output]);
    graph
}

fn arguments(sample: &Sample) -> Vec<Tensor> {
    let argument = |arg: &retape::ops::SampleArg| {
        let n = arg.ty.n_elements();
        let value = |k: usize| {
            let x = arg.range.start + (arg.range.end - arg.range.start) * (k as f64 + 0.3) / n as f64;
            if arg.ty.dtype.is_float() || arg.ty.dtype.is_half() { x } else { x.floor() }
        };
        Tensor::from_vec((0..n).map(value).collect::<Vec<f64>>(), &*arg.ty.shape).unwrap().cast(arg.ty.dtype)
    };
    sample.args.iter().map(argument).collect()
}

/// The elements with their bits: as integers where `f64` cannot hold them.
fn bits(x: &Tensor) -> Vec<u64> {
    match x.dtype() {
        DType::F64 => x.to_vec::<f64>().unwrap().into_iter().map(f64::to_bits).collect(),
        DType::F32 => x.to_vec::<f32>().unwrap().into_iter().map(|x| x.to_bits().into()).collect(),
        DType::F16 => x.to_vec::<retape::f16>().unwrap().into_iter().map(|x| x.to_bits().into()).collect(),
        DType::Bf16 => x.to_vec::<retape::bf16>().unwrap().into_iter().map(|x| x.to_bits().into()).collect(),
        DType::I32 | DType::I64 | DType::U32 | DType::U8 | DType::Bool => {
            x.cast(DType::I64).to_vec::<i64>().unwrap().into_iter().map(|x| x as u64).collect()
        }
    }
}

/// Saves the function's one entry, loads it into one that cannot trace, and compares bits.
fn survives(graph: Graph, args: &Vec<Tensor>) {
    let text = graph.to_string();
    let first = applied(Some(graph));
    let expected = first.call(args).unwrap_or_else(|e| panic!("{e} in\n{text}"));
    let mut bytes = vec![];
    first.save_to(&mut bytes).unwrap_or_else(|e| panic!("{e} in\n{text}"));
    let second = applied(None);
    second.load_from(&bytes[..]).unwrap_or_else(|e| panic!("{e} in\n{text}"));
    let found = second.call(args).unwrap();
    assert_eq!(second.stats().misses, 0);
    let all = |outputs: &[Tensor]| outputs.iter().map(bits).collect::<Vec<_>>();
    assert_eq!(all(&found), all(&expected), "{text}");
}

#[test]
fn every_op_survives() {
    for sample in Op::samples() {
        let types: Vec<TensorType> = sample.args.iter().map(|arg| arg.ty.clone()).collect();
        let args = arguments(&sample);
        survives(graph_of(&sample.op, &types), &args);
    }
}

#[test]
fn every_kind_of_constant_survives() {
    let f32s = [0x7fc0_0000, 0x7f80_0001, 0xffff_ffff, 0x8000_0000, 0x7f80_0000, 0xff80_0000, 1, 0x3e99_999a];
    let f64s = [f64::NAN.to_bits() | 5, (-0.0_f64).to_bits(), f64::INFINITY.to_bits(), 1, 0.1_f64.to_bits(), u64::MAX];
    let halves = [0x7e01, 0x8000, 0xffff, 1];
    let of = |dtype: DType, all: &[u64]| all.iter().map(|&bits| Scalar { dtype, bits }).collect::<Vec<_>>();
    let scalars = [
        of(DType::F32, &f32s),
        of(DType::F64, &f64s),
        of(DType::F16, &halves),
        of(DType::Bf16, &halves),
        of(DType::I64, &[i64::MIN as u64, u64::MAX]),
        of(DType::U32, &[u32::MAX.into()]),
        of(DType::Bool, &[0, 1]),
    ];
    for value in scalars.concat() {
        let op = retape::ops::Splat { value, shape: Shape::new(&[3]) };
        let graph = graph_of(&op.into(), &[]);
        let read: Graph = graph.to_string().parse().unwrap();
        assert_eq!(read, graph);
        survives(graph, &vec![]);
    }
}

/// Tensors that the closure captures lie in the artefact as bytes.
#[test]
fn every_dtype_of_captured_tensors_survives() {
    for dtype in DType::ALL {
        let captured = Tensor::from([0.0_f64, 1.0, 3.7]).cast(dtype);
        let function = |enter: bool| {
            let captured = captured.clone();
            accelerate(move |xs: &Vec<Tensor>| {
                assert!(enter, "a loaded entry never enters the closure");
                // One is used, one is returned as it is.
                vec![xs[0].eq(&captured), captured.clone()]
            })
        };
        let args = vec![Tensor::from([0.0_f64, 1.0, 1.0]).cast(dtype)];
        let first = function(true);
        let expected = first.call(&args);
        let Ok(expected) = expected else {
            // Halves are stored but not computed with.
            assert!(dtype.is_half(), "{dtype}: {expected:?}");
            continue;
        };
        let mut bytes = vec![];
        first.save_to(&mut bytes).unwrap();
        let second = function(false);
        second.load_from(&bytes[..]).unwrap();
        let found = second.call(&args).unwrap();
        assert_eq!(bits(&found[0]), bits(&expected[0]), "{dtype}");
        assert_eq!(bits(&found[1]), bits(&expected[1]), "{dtype}");
    }
}
