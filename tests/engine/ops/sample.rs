//! The material of the checks: arguments for a sample, the sample as a graph, and comparisons.

use retape::ops::{Lowering, Op, Parameter, Sample};
use retape::{Args, DType, Graph, Node, Tensor, TensorType, ValueId};

/// The fractional parts of the multiples of the golden section: spread over `[0, 1)`, and never the same twice.
fn golden(k: usize) -> f64 {
    (k as f64 * 0.618_033_988_749_894_9).fract()
}

/// A number that is not small, in `-1..=-0.25` or `0.25..=1`, for cotangents and directions.
fn weight(k: usize) -> f64 {
    let x = 1.5 * golden(k + 1) - 0.75;
    x + 0.25_f64.copysign(x)
}

/// Elements as a tensor of a type.
pub(crate) fn tensor(elements: Vec<f64>, ty: &TensorType) -> Tensor {
    Tensor::from_vec(elements, &*ty.shape).unwrap().cast(ty.dtype)
}

/// Cotangents or directions of a type; other ones for another `seed`.
pub(crate) fn weights(ty: &TensorType, seed: usize) -> Tensor {
    tensor((0..ty.n_elements()).map(|k| weight(k + 1000 * seed)).collect(), ty)
}

/// The samples, and those of `f64` as `f32` too.
pub(crate) fn samples() -> Vec<Sample> {
    let samples = Op::samples();
    let narrow: Vec<Sample> = samples.iter().filter_map(narrowed).collect();
    [samples, narrow].concat()
}

/// The sample in `f32`, if it is one of `f64`.
fn narrowed(sample: &Sample) -> Option<Sample> {
    let mut narrow = sample.clone();
    for arg in narrow.args.iter_mut().filter(|arg| arg.ty.dtype == DType::F64) {
        arg.ty = arg.ty.with_dtype(DType::F32);
    }
    if narrow.op.infer(&types(&narrow).iter().collect::<Vec<_>>()).is_err() {
        // The constant of the sample is an `f64`.
        let attributes = narrow.op.attributes().replace("nan:7ff8000000000000", "0.0").replace("f64", "f32");
        narrow.op = Op::parse(narrow.op.name(), &attributes).unwrap();
    }
    (types(&narrow) != types(sample)).then_some(narrow)
}

/// Zeros, infinities, NaN, subnormal and huge numbers.
fn specials(dtype: DType) -> Vec<f64> {
    let (least, subnormal, most) = match dtype {
        DType::F32 => (f64::from(f32::MIN_POSITIVE), f64::from(f32::from_bits(1)), f64::from(f32::MAX)),
        _ => (f64::MIN_POSITIVE, f64::from_bits(1), f64::MAX),
    };
    let positive = [0.0, f64::INFINITY, subnormal, 3.0 * subnormal, least, most, 0.5, 1.0, 2.0, 3.5, 100.0, 1e30];
    positive.into_iter().flat_map(|x| [x, -x]).chain([f64::NAN]).collect()
}

/// All tuples of special values: one tensor for each position.
pub(crate) fn tuples(dtype: DType, n: usize) -> Vec<Tensor> {
    let specials = specials(dtype);
    let count = specials.len().pow(n as u32);
    let value = |k: usize, position: usize| specials[k / specials.len().pow(position as u32) % specials.len()];
    let column = |position| (0..count).map(|k| value(k, position)).collect::<Vec<f64>>();
    (0..n).map(|position| Tensor::from(column(position)).cast(dtype)).collect()
}

/// Whether all arguments are of one float dtype, and the result is computed element by element.
pub(crate) fn is_pointwise(sample: &Sample) -> bool {
    let types: Vec<&TensorType> = sample.args.iter().map(|arg| &arg.ty).collect();
    let Some(first) = types.first() else { return false };
    let same = types.iter().all(|ty| ty == first) && first.dtype.is_float();
    let result = sample.op.infer(&types).unwrap();
    same && matches!(sample.op.lower(&types, &result), Lowering::Pointwise(_))
}

/// The arguments of a sample. No two elements of all of them have the same value, unless they are integers, and none
/// is close to the middle of its interval, where intervals around zero have their zero.
pub(crate) fn arguments(sample: &Sample) -> Vec<Tensor> {
    let n_args = sample.args.len() as f64;
    let make = |(position, arg): (usize, _)| {
        let arg: &retape::ops::SampleArg = arg;
        let n = arg.ty.n_elements();
        let step = (0..).map(|k| n / 2 + 1 + k).find(|&step| coprime(step, n.max(1))).unwrap();
        let value = |k: usize| {
            let cell = (k * step + position) % n;
            let inside = (position as f64 + 0.55 + 0.4 * golden(k + 7 * position)) / n_args;
            let x = arg.range.start + (arg.range.end - arg.range.start) * (cell as f64 + inside) / n as f64;
            if arg.ty.dtype.is_float() || arg.ty.dtype.is_half() { x } else { x.floor() }
        };
        tensor((0..n).map(value).collect(), &arg.ty)
    };
    sample.args.iter().enumerate().map(make).collect()
}

fn coprime(a: usize, b: usize) -> bool {
    if b == 0 { a == 1 } else { coprime(b, a % b) }
}

/// The types of the arguments.
pub(crate) fn types(sample: &Sample) -> Vec<TensorType> {
    sample.args.iter().map(|arg| arg.ty.clone()).collect()
}

/// The type of the result.
pub(crate) fn result(op: &Op, args: &[TensorType]) -> TensorType {
    op.infer(&args.iter().collect::<Vec<_>>()).unwrap_or_else(|e| panic!("{}: {e}", op.name()))
}

/// A name for messages.
pub(crate) fn name(sample: &Sample) -> String {
    format!("{} {{{}}} of {:?}", sample.op.name(), sample.op.attributes(), types(sample))
}

/// Builds graphs node by node.
#[derive(Default)]
struct Builder(Graph);

impl Builder {
    fn push(&mut self, op: impl Into<Op>, args: &[ValueId]) -> ValueId {
        let op = op.into();
        let types: Vec<TensorType> = args.iter().map(|&arg| self.0.ty(arg).clone()).collect();
        let ty = result(&op, &types);
        self.0.push(Node { op, args: Args::from_slice(args), ty, at: None, origin: None })
    }

    fn parameters(&mut self, types: &[TensorType]) -> Vec<ValueId> {
        let parameters = types.iter().enumerate();
        parameters.map(|(index, ty)| self.push(Parameter { index, ty: ty.clone() }, &[])).collect()
    }
}

/// One op on parameters.
pub(crate) fn graph(op: &Op, args: &[TensorType]) -> Graph {
    let mut builder = Builder::default();
    let parameters = builder.parameters(args);
    let output = builder.push(op.clone(), &parameters);
    builder.0.set_outputs(vec![output]);
    builder.0
}

/// The product of an op's result with a cotangent, the last parameter, and its gradients.
pub(crate) fn gradient_graph(op: &Op, args: &[TensorType]) -> Graph {
    let mut builder = Builder::default();
    let ty = result(op, args);
    let mut parameters = builder.parameters(&[args, std::slice::from_ref(&ty)].concat());
    let ct = parameters.pop().unwrap();
    let value = builder.push(op.clone(), &parameters);
    let product = builder.push(retape::ops::Mul, &[value, ct]);
    let sum = retape::ops::ReduceSum { axes: (0..ty.rank()).collect() };
    let sum = builder.push(sum, &[product]);
    builder.0.set_outputs(vec![sum]);
    builder.0.with_gradient().unwrap_or_else(|e| panic!("{}: {e}", op.name()))
}

/// The elements as numbers.
pub(crate) fn elements(x: &Tensor) -> Vec<f64> {
    x.cast(DType::F64).to_vec::<f64>().unwrap()
}

/// The largest difference of two tensors' elements, in proportion to the largest of them or 1; NaN are alike, and
/// infinities differ from all but themselves.
pub(crate) fn distance(a: &Tensor, b: &Tensor) -> f64 {
    assert_eq!((a.dtype(), a.shape()), (b.dtype(), b.shape()));
    let (a, b) = (elements(a), elements(b));
    let scale = a.iter().filter(|x| x.is_finite()).fold(1.0_f64, |scale, x| scale.max(x.abs()));
    let difference = |(a, b): (&f64, &f64)| if a == b || a.is_nan() && b.is_nan() { 0.0 } else { (a - b).abs() };
    let differences = a.iter().zip(&b).map(difference);
    differences.map(|d| if d.is_nan() { f64::INFINITY } else { d / scale }).fold(0.0, f64::max)
}

/// A sample with float arguments and a float result, as a function of those arguments.
pub(crate) struct Case {
    pub(crate) sample: Sample,
    /// All arguments.
    pub(crate) fixed: Vec<Tensor>,
    /// The positions of the float arguments.
    floats: Vec<usize>,
    /// The float arguments.
    pub(crate) at: Vec<Tensor>,
    /// A cotangent of the result.
    pub(crate) ct: Tensor,
}

impl Case {
    pub(crate) fn new(sample: Sample) -> Option<Case> {
        let ty = result(&sample.op, &types(&sample));
        let is_float = |&position: &usize| sample.args[position].ty.dtype.is_float();
        let floats: Vec<usize> = (0..sample.args.len()).filter(is_float).collect();
        if !ty.dtype.is_float() || floats.is_empty() {
            return None;
        }
        let fixed = arguments(&sample);
        let at = floats.iter().map(|&position| fixed[position].clone()).collect();
        Some(Case { ct: weights(&ty, 3), sample, fixed, floats, at })
    }

    /// The arguments, the float ones replaced.
    pub(crate) fn with(&self, floats: &[Tensor]) -> Vec<Tensor> {
        let mut args = self.fixed.clone();
        for (&position, x) in self.floats.iter().zip(floats) {
            args[position] = x.clone();
        }
        args
    }

    /// The result for all arguments.
    pub(crate) fn value(&self, args: &[Tensor]) -> Tensor {
        graph(&self.sample.op, &types(&self.sample)).apply(args).unwrap().remove(0)
    }

    /// The result for the float arguments.
    pub(crate) fn apply(&self, floats: &[Tensor]) -> Tensor {
        self.value(&self.with(floats))
    }
}
