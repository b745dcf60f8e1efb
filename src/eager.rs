//! Ops outside a trace: compiled one by one, at once.
//!
//! An op with the broadcasts of its arguments is a tiny graph. It goes through the same planner and the same code
//! generator as a trace, and its machine code is kept, by graph, for the next time. Constants are inputs of such
//! graphs, so that a number which changes from call to call compiles nothing.

use std::panic::Location;
use std::sync::{Arc, LazyLock};

use retape_runtime::{Device, Memo, Shape, at_work};
use smallvec::SmallVec;

use crate::call::Calls;
use crate::code::{self, Operands, Target};
use crate::compile::{self, Compiled, Stages};
use crate::error::{Caller, Error, Result, ill_typed};
use crate::graph::{Args, Graph, Node};
use crate::ops::{self, BroadcastTo, Lowering, Op, Parameter};
use crate::placement::{common_device, device_of};
use crate::tensor::Tensor;
use crate::trace::{Trace, sent};
use crate::types::{TensorType, ValueId};

/// How many op graphs are kept; beyond it all are dropped and made again as needed.
const CAPACITY: usize = 4096;

/// The key of a compiled op: its target, the op, and the movements that bring its arguments into shape.
type OpKey = (Target, Op, SmallVec<[OpArg; 3]>);

/// An argument of an op graph: the type of its input, and the movements applied to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct OpArg {
    ty: TensorType,
    movements: SmallVec<[Op; 2]>,
}

static KERNELS: LazyLock<Memo<OpKey, Compiled>> = LazyLock::new(|| Memo::at_most(CAPACITY));

/// Applies an op to concrete tensors, where they are.
pub(crate) fn run(op: Op, args: &[&Tensor], at: Caller) -> Result<Tensor> {
    run_on(common_device(op.name(), args, at)?, op, args, at)
}

/// Applies an op to concrete tensors on a device, to which those in main memory are sent.
pub(crate) fn run_on(device: Device, op: Op, args: &[&Tensor], at: Caller) -> Result<Tensor> {
    let inputs = args.iter().map(|arg| input(arg, SmallVec::new())).collect::<Result<SmallVec<_>>>()?;
    apply(device, op, inputs, at)
}

/// Applies an op to concrete tensors that are first broadcast to `shape`.
pub(crate) fn run_broadcast(op: Op, args: &[&Tensor], shape: &Shape, at: Caller) -> Result<Tensor> {
    let spread = |arg: &&Tensor| match arg.shape() == &**shape {
        true => input(arg, SmallVec::new()),
        false => input(arg, SmallVec::from_iter([BroadcastTo { shape: shape.clone() }.into()])),
    };
    let device = common_device(op.name(), args, at)?;
    apply(device, op, args.iter().map(spread).collect::<Result<SmallVec<_>>>()?, at)
}

/// An argument with its value.
struct Input {
    arg: OpArg,
    value: Tensor,
}

fn input(tensor: &Tensor, movements: SmallVec<[Op; 2]>) -> Result<Input> {
    let concrete =
        tensor.as_concrete().ok_or_else(|| Error::Internal("an eager op has an abstract argument".into()))?;
    Ok(Input { arg: OpArg { ty: concrete.ty().clone(), movements }, value: tensor.clone() })
}

/// Applies an op. However long that takes, threads that wait for the closure in which it is applied know that it ends.
fn apply(device: Device, op: Op, inputs: SmallVec<[Input; 3]>, at: Caller) -> Result<Tensor> {
    at_work(|| applied(device, op, inputs, at))
}

fn applied(device: Device, op: Op, inputs: SmallVec<[Input; 3]>, at: Caller) -> Result<Tensor> {
    let typed = |e: ops::TypeError, op: &Op| ill_typed(op.name(), e.0, at);
    let (args, values): (SmallVec<[OpArg; 3]>, SmallVec<[Tensor; 3]>) =
        inputs.into_iter().map(|input| (input.arg, input.value)).unzip();
    let mut types: SmallVec<[TensorType; 3]> = SmallVec::new();
    for arg in &args {
        let mut ty = arg.ty.clone();
        for movement in &arg.movements {
            ty = movement.infer(&[&ty]).map_err(|e| typed(e, movement))?;
        }
        types.push(ty);
    }
    let types: SmallVec<[&TensorType; 3]> = types.iter().collect();
    let ty = op.infer(&types).and_then(ops::addressable).map_err(|e| typed(e, &op))?;
    if let (Op::Reshape(_), [only]) = (&op, &values[..])
        && args[0].movements.is_empty()
    {
        return viewed(ty, only);
    }
    let name = op.name();
    let compiled =
        compiled(&(Target::of_ops_on(device), op, args), &types, &ty, at).map_err(|error| error.of_op(name, at))?;
    let values: SmallVec<[&Tensor; 3]> = values.iter().collect();
    let outputs = compiled.code.run(&Operands::of(&values)).map_err(|error| Error::from(error).of_op(name, at))?;
    let mut outputs = code::tensors(outputs, [&ty]);
    outputs.pop().ok_or_else(|| Error::Internal("an eager op has no output".into()))
}

/// The bytes of a tensor as another one.
fn viewed(ty: TensorType, of: &Tensor) -> Result<Tensor> {
    let concrete = of.as_concrete().ok_or_else(|| Error::Internal("an eager op has an abstract argument".into()))?;
    Ok(Tensor::concrete_over(ty, concrete))
}

/// The machine code of an op graph, whose op makes `ty` of what the movements make of its arguments.
fn compiled(key: &OpKey, types: &[&TensorType], ty: &TensorType, at: Caller) -> Result<Arc<Compiled>> {
    KERNELS.get_or_try_insert_with(key, || {
        key.1.check_kernel(types, ty).map_err(|e| ill_typed(key.1.name(), e.0, at))?;
        compile::compile_for(&op_graph(key, ty.clone()), key.0, &mut Stages::default())
    })
}

fn op_graph((_, op, args): &OpKey, ty: TensorType) -> Graph {
    let mut graph = Graph::default();
    let push = |graph: &mut Graph, op: Op, args: Args, ty| graph.push(Node { op, args, ty, at: None, origin: None });
    let parameter = |(index, arg): (usize, &OpArg)| Op::from(Parameter { index, ty: arg.ty.clone() });
    let mut values: Args = args
        .iter()
        .enumerate()
        .map(|(index, arg)| push(&mut graph, parameter((index, arg)), Args::new(), arg.ty.clone()))
        .collect();
    for (value, arg) in values.iter_mut().zip(args) {
        for movement in &arg.movements {
            let ty = movement.infer(&[graph.ty(*value)]).expect("the caller has inferred it");
            *value = push(&mut graph, movement.clone(), Args::from_iter([*value]), ty);
        }
    }
    let output = push(&mut graph, op.clone(), values, ty);
    graph.set_outputs(vec![output]);
    graph
}

/// Runs a traced graph op by op: the un-accelerated path.
///
/// Movements are not carried out on their own: as in other eager libraries they only change how the next op reads its
/// argument. Unused values are left out, and each value is freed after its last use.
pub(crate) fn evaluate(trace: &Trace, args: &[&Tensor]) -> Result<Vec<Tensor>> {
    let captures = trace.captures.iter().map(|capture| &capture.tensor);
    let inputs: Vec<&Tensor> = args.iter().copied().chain(captures).collect();
    Ok(trace.results(args, evaluate_graph(&trace.graph, &inputs)?))
}

/// The outputs of a graph for values of its parameters, op by op.
pub(crate) fn evaluate_graph(graph: &Graph, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
    let graph = graph.without_dead_nodes();
    Evaluation::new(&graph, inputs).run()
}

struct Evaluation<'g> {
    graph: &'g Graph,
    device: Device,
    calls: Calls,
    values: Vec<Option<Tensor>>,
    uses: Vec<u32>,
}

impl<'g> Evaluation<'g> {
    fn new(graph: &'g Graph, inputs: &[&Tensor]) -> Evaluation<'g> {
        let mut values = vec![None; graph.n_nodes()];
        for (&id, &input) in graph.params().iter().zip(inputs) {
            values[id.index()] = Some(input.clone());
        }
        Evaluation {
            graph,
            device: device_of(inputs.iter().copied()),
            calls: Calls::of(graph),
            values,
            uses: graph.use_counts(),
        }
    }

    fn run(mut self) -> Result<Vec<Tensor>> {
        for (id, node) in self.graph.iter() {
            if let Op::Call(_) = node.op {
                self.call(id, node)?;
                continue;
            }
            let types: SmallVec<[&TensorType; 3]> = node.args.iter().map(|&arg| self.graph.ty(arg)).collect();
            match node.op.lower(&types, &node.ty) {
                Lowering::Parameter | Lowering::Movement(_) => {}
                Lowering::Pointwise(_) | Lowering::Indexed { .. } | Lowering::Reduce { .. } | Lowering::Library(_) => {
                    self.values[id.index()] = Some(self.apply(node)?);
                    node.args.iter().for_each(|&arg| self.release(arg));
                }
            }
        }
        let outputs = self.graph.outputs().to_vec();
        outputs.into_iter().map(|id| self.whole(id)).collect()
    }

    /// Runs compiled code, unless another of its results has come before.
    fn call(&mut self, id: ValueId, node: &Node) -> Result<()> {
        if self.values[id.index()].is_none() {
            let inputs = node.args.iter().map(|&arg| self.whole(arg)).collect::<Result<Vec<_>>>()?;
            for (id, result) in self.calls.run(id, &inputs)? {
                self.values[id.index()] = Some(result);
            }
        }
        node.args.iter().for_each(|&arg| self.release(arg));
        Ok(())
    }

    fn apply(&self, node: &Node) -> Result<Tensor> {
        let at = node.at.unwrap_or(Location::caller());
        if let Op::Splat(splat) = &node.op {
            return Ok(Tensor::of_scalar(splat.value, at));
        }
        let inputs = node.args.iter().map(|&arg| self.read(arg)).collect::<Result<SmallVec<_>>>()?;
        apply(self.device, node.op.clone(), inputs, at)
    }

    /// A value as an input: the nearest materialised one with the movements after it.
    fn read(&self, id: ValueId) -> Result<Input> {
        let node = self.graph.node(id);
        let mut movements = SmallVec::new();
        if let Some(value) = &self.values[id.index()] {
            if value.shape() != &*node.ty.shape {
                movements.push(BroadcastTo { shape: node.ty.shape.clone() }.into());
            }
            return input(value, movements);
        }
        let mut read = self.read(node.args[0])?;
        read.arg.movements.push(node.op.clone());
        Ok(read)
    }

    /// A value on its own, in its full shape.
    fn whole(&self, id: ValueId) -> Result<Tensor> {
        let mut read = self.read(id)?;
        let node = self.graph.node(id);
        let at = node.at.unwrap_or(Location::caller());
        match read.arg.movements.pop() {
            Some(movement) => apply(self.device, movement, SmallVec::from_iter([read]), at),
            None => sent(&viewed(read.arg.ty, &read.value)?, self.device, Some(at)),
        }
    }

    /// Forgets a value after its last use. A movement holds on to what it moves for as long as it is used itself.
    fn release(&mut self, id: ValueId) {
        let uses = &mut self.uses[id.index()];
        *uses = uses.saturating_sub(1);
        if *uses == 0 && self.values[id.index()].take().is_none() {
            self.graph.node(id).args.iter().for_each(|&arg| self.release(arg));
        }
    }
}
