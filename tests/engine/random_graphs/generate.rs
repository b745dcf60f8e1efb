//! Random graphs and inputs for them, from a seed.
//!
//! Ops are found by name in the registry and taken if their type rule accepts the arguments, so an op that is added
//! later takes part without being named here.

use retape::ops::{Op, Parameter, Splat};
use retape::{Args, DType, Graph, Node, Scalar, Shape, Tensor, TensorType, ValueId};

/// Tensors have at most this many elements.
const MAX_ELEMENTS: usize = 64;

/// Splitmix64: small, and the same everywhere.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// A number in `[-1, 1)`.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    }

    fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

/// The kinds of ops that graphs are made of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Any op and dtype.
    Any,
    /// Ops with bounded derivatives over `f64`.
    Smooth,
}

const SMOOTH: &[&str] =
    &["add", "sub", "mul", "neg", "tanh", "sin", "cos", "sigmoid", "erf", "atan", "select", "matmul"];

/// A random graph.
pub(crate) fn graph(random: &mut Random, kind: Kind) -> Graph {
    let mut builder = Builder { random, kind, graph: Graph::default() };
    let n_params = 1 + builder.random.below(3);
    for index in 0..n_params {
        let ty = builder.ty();
        builder.push(Parameter { index, ty }.into(), &[]);
    }
    let n_nodes = 4 + builder.random.below(14);
    while builder.graph.n_nodes() < n_params + n_nodes {
        builder.step();
    }
    builder.finish()
}

struct Builder<'r> {
    random: &'r mut Random,
    kind: Kind,
    graph: Graph,
}

impl Builder<'_> {
    /// Outputs are the last values; a smooth graph has the sum of the last number.
    fn finish(mut self) -> Graph {
        let last = self.graph.n_nodes() as u32 - 1;
        let mut outputs: Vec<ValueId> = (0..=self.random.below(3) as u32).map(|back| ValueId(last - back)).collect();
        if self.kind == Kind::Smooth {
            let (last, node) =
                self.graph.iter().rfind(|(_, node)| node.ty.dtype == DType::F64).expect("a parameter is");
            let axes: Vec<usize> = (0..node.ty.rank()).collect();
            let sum = self.parsed("reduce_sum", &format!("axes={axes:?}"), &[last]);
            outputs = vec![sum.expect("a sum over all axes")];
        }
        self.graph.set_outputs(outputs);
        self.graph
    }

    fn ty(&mut self) -> TensorType {
        let rank = self.random.below(4);
        let shape: Shape = (0..rank).map(|_| *self.random.pick(&[1, 2, 3, 4])).collect();
        let dtype = match self.kind {
            Kind::Any => *self.random.pick(&[DType::F64, DType::F32, DType::F32, DType::I64, DType::Bool]),
            Kind::Smooth => DType::F64,
        };
        TensorType { dtype, shape }
    }

    /// Adds an application if the op takes these arguments.
    fn push(&mut self, op: Op, args: &[ValueId]) -> Option<ValueId> {
        let types: Vec<&TensorType> = args.iter().map(|&arg| self.graph.ty(arg)).collect();
        let ty = op.infer(&types).ok().filter(|ty| ty.rank() <= 4 && ty.n_elements() <= MAX_ELEMENTS)?;
        Some(self.graph.push(Node { op, args: Args::from_slice(args), ty, at: None, origin: None }))
    }

    fn parsed(&mut self, name: &str, attributes: &str, args: &[ValueId]) -> Option<ValueId> {
        self.push(Op::parse(name, attributes).ok()?, args)
    }

    /// Any value; mostly a late one, so that graphs grow deep.
    fn value(&mut self) -> ValueId {
        let n = self.graph.n_nodes();
        let back = self.random.below(n).min(self.random.below(n));
        ValueId((n - 1 - back) as u32)
    }

    /// A value that fits: another one, or a constant.
    fn value_of(&mut self, ty: &TensorType) -> ValueId {
        let known: Vec<ValueId> = self.graph.iter().filter(|(_, node)| node.ty == *ty).map(|(id, _)| id).collect();
        if known.is_empty() || self.random.below(4) == 0 {
            return self.constant(ty);
        }
        *self.random.pick(&known)
    }

    fn constant(&mut self, ty: &TensorType) -> ValueId {
        let x = *self.random.pick(&[0.0, -0.0, 1.0, -1.0, 2.0, 0.5, -3.0]);
        let splat = Splat { value: Scalar::from_f64(x, ty.dtype), shape: ty.shape.clone() };
        self.push(splat.into(), &[]).expect("a constant fits")
    }

    fn step(&mut self) {
        let x = self.value();
        match self.random.below(13) {
            0 => self.reshape(x),
            1 => self.broadcast(x),
            2 => self.permute(x),
            3 => self.reduce(x),
            4 => self.slice(x),
            5 => self.cast(x),
            6 => self.matmul(x),
            7 => self.join(x),
            _ => self.formula(x),
        };
    }

    fn formula(&mut self, x: ValueId) -> Option<ValueId> {
        let name = match self.kind {
            Kind::Any => *self.random.pick(Op::NAMES),
            Kind::Smooth => *self.random.pick(SMOOTH),
        };
        let op = Op::parse(name, "").ok()?;
        let ty = self.graph.ty(x).clone();
        if let Some(value) = self.push(op.clone(), &[x]) {
            return Some(value);
        }
        if op.infer(&[&ty, &ty]).is_ok() {
            let y = self.value_of(&ty);
            return self.push(op, &[x, y]);
        }
        let condition = ty.with_dtype(DType::Bool);
        op.infer(&[&condition, &ty, &ty]).ok()?;
        let (condition, y) = (self.value_of(&condition), self.value_of(&ty));
        self.push(op, &[condition, x, y])
    }

    fn reshape(&mut self, x: ValueId) -> Option<ValueId> {
        let mut shape = self.graph.ty(x).shape.to_vec();
        let at = self.random.below(shape.len() + 1);
        match self.random.below(3) {
            0 => shape = vec![shape.iter().product()],
            1 => shape.insert(at, 1),
            _ if at + 1 < shape.len() => {
                let inner = shape.remove(at + 1);
                shape[at] *= inner;
            }
            _ => shape.retain(|&extent| extent != 1),
        }
        self.parsed("reshape", &format!("shape={shape:?}"), &[x])
    }

    fn broadcast(&mut self, x: ValueId) -> Option<ValueId> {
        let mut shape = self.graph.ty(x).shape.to_vec();
        let extent = 1 + self.random.below(3);
        match shape.iter().position(|&extent| extent == 1).filter(|_| self.random.below(2) == 0) {
            Some(axis) => shape[axis] = extent,
            None => shape.insert(0, extent),
        }
        self.parsed("broadcast_to", &format!("shape={shape:?}"), &[x])
    }

    fn permute(&mut self, x: ValueId) -> Option<ValueId> {
        let mut perm: Vec<usize> = (0..self.graph.ty(x).rank()).collect();
        for axis in (1..perm.len()).rev() {
            perm.swap(axis, self.random.below(axis + 1));
        }
        self.parsed("permute", &format!("perm={perm:?}"), &[x])
    }

    fn reduce(&mut self, x: ValueId) -> Option<ValueId> {
        let axes: Vec<usize> = (0..self.graph.ty(x).rank()).filter(|_| self.random.below(2) == 0).collect();
        let names: Vec<&str> = Op::NAMES.iter().copied().filter(|name| name.starts_with("reduce_")).collect();
        let name = if self.kind == Kind::Smooth { "reduce_sum" } else { *self.random.pick(&names) };
        self.parsed(name, &format!("axes={axes:?}"), &[x])
    }

    fn slice(&mut self, x: ValueId) -> Option<ValueId> {
        let shape = self.graph.ty(x).shape.to_vec();
        let backwards: Vec<bool> = shape.iter().map(|_| self.random.below(3) == 0).collect();
        let counts: Vec<usize> = shape.iter().map(|&extent| 1 + self.random.below(extent)).collect();
        let start: Vec<usize> =
            backwards.iter().zip(&shape).map(|(back, extent)| if *back { extent - 1 } else { 0 }).collect();
        let step: Vec<i64> = backwards.iter().map(|back| if *back { -1 } else { 1 }).collect();
        self.parsed("slice", &format!("start={start:?}, step={step:?}, shape={counts:?}"), &[x])
    }

    fn cast(&mut self, x: ValueId) -> Option<ValueId> {
        let dtype = self.random.pick(&["f64", "f32", "i64", "bool", "f16"]);
        let to = if self.kind == Kind::Smooth { "f64" } else { dtype };
        self.parsed("cast", &format!("dtype={to}"), &[x])
    }

    fn matmul(&mut self, x: ValueId) -> Option<ValueId> {
        let ty = self.graph.ty(x).clone();
        let [.., m, k] = *ty.shape else { return None };
        if let Some(product) = self.parsed("permute", &transposed(ty.rank()), &[x]) {
            return self.parsed("matmul", "", &[x, product]);
        }
        let y = self.value_of(&ty.with_shape([k, m]));
        self.parsed("matmul", "", &[x, y])
    }

    /// Parts of a value along an axis, in any order, and perhaps a value like it.
    fn join(&mut self, x: ValueId) -> Option<ValueId> {
        let ty = self.graph.ty(x).clone();
        let axis = self.random.below(ty.rank().max(1));
        let extent = *ty.shape.get(axis)?;
        let mut parts = vec![];
        for _ in 0..1 + self.random.below(3) {
            let (mut start, mut counts) = (vec![0; ty.rank()], ty.shape.to_vec());
            start[axis] = self.random.below(extent);
            counts[axis] = 1 + self.random.below(extent - start[axis]);
            let step = vec![1; ty.rank()];
            parts.push(self.parsed("slice", &format!("start={start:?}, step={step:?}, shape={counts:?}"), &[x])?);
        }
        if self.random.below(2) == 0 {
            parts.push(self.value_of(&ty));
        }
        self.parsed("concat", &format!("axis={axis}"), &parts)
    }
}

fn transposed(rank: usize) -> String {
    let mut perm: Vec<usize> = (0..rank).collect();
    perm.swap(rank - 2, rank - 1);
    format!("perm={perm:?}")
}

/// Inputs for a graph; with special values among the floats if asked for.
pub(crate) fn inputs(random: &mut Random, graph: &Graph, special: bool) -> Vec<Tensor> {
    graph.params().iter().map(|&id| tensor(random, graph.ty(id), special)).collect()
}

fn tensor(random: &mut Random, ty: &TensorType, special: bool) -> Tensor {
    let n = ty.n_elements();
    let numbers: Vec<f64> = (0..n)
        .map(|_| match random.below(8) {
            0 if special => *random.pick(&[0.0, -0.0, f64::INFINITY, f64::NAN, 1e-320, -1e-40]),
            _ => 1.5 * random.unit(),
        })
        .collect();
    let shape = ty.shape.clone();
    let made = match ty.dtype {
        DType::F64 => Tensor::from_vec(numbers, shape),
        DType::F32 => Tensor::from_vec(numbers.iter().map(|&x| x as f32).collect::<Vec<_>>(), shape),
        DType::I64 => Tensor::from_vec(numbers.iter().map(|&x| (4.0 * x) as i64).collect::<Vec<_>>(), shape),
        DType::Bool => Tensor::from_vec(numbers.iter().map(|&x| x > 0.0).collect::<Vec<_>>(), shape),
        other => unreachable!("no parameter is {other}"),
    };
    made.unwrap()
}
