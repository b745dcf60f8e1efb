//! Graphs as programs: applied to tensors, differentiated on a tape, and evaluated by the reference interpreter.
//!
//! These are the slow twins that tests compare the usual paths with, and are open to readers of graph text.

use std::ops::ControlFlow;
use std::panic::Location;
use std::sync::Arc;

use retape_kernels::Executable;
use retape_runtime::{Buffer, Device};
use smallvec::SmallVec;

use crate::autodiff::{self, Unused};
use crate::error::{Caller, Error, Result};
use crate::graph::Graph;
use crate::ops::{BroadcastTo, Op};
use crate::placement::{common_device, device_of};
use crate::tape::Tape;
use crate::tensor::{Tensor, Traced};
use crate::types::ValueId;
use crate::{eager, plan};

/// Sees a value of a graph with the values that it was computed from, and says whether to go on.
pub(crate) type SeeValue<'s> = dyn FnMut(ValueId, &[&Tensor], &Tensor) -> Result<ControlFlow<()>> + 's;

impl Graph {
    /// The plan that this graph is compiled by, as text: which values share a kernel, the kernels, and where every
    /// value lies. Call it on an [optimised](Graph::optimized) graph to see what a trace becomes.
    ///
    /// # Errors
    ///
    /// Fails if the graph does not [verify](Graph::verify), or if the planner breaks one of its own rules.
    ///
    /// ```
    /// # use retape::{trace, Tensor};
    /// let graph = trace(|x: &Tensor| (x * 2.0).exp(), &Tensor::zeros([3]))?;
    /// assert_eq!(graph.optimized()?.planned()?.matches("kernel (").count(), 1);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn planned(&self) -> Result<String> {
        self.verified("planned", Location::caller())?;
        Ok(plan::plan(&self.without_dead_nodes(), Device::Cpu)?.0.to_string())
    }

    /// The machine code of this graph alone, for measurements: the rest of a call's cost is retape's own time.
    ///
    /// # Errors
    ///
    /// Fails if the graph does not [verify](Graph::verify), if the planner breaks one of its own rules, or if the system
    /// refuses executable memory.
    #[doc(hidden)]
    #[track_caller]
    pub fn executable(&self) -> Result<Executable> {
        self.verified("executable", Location::caller())?;
        Executable::compile(plan::plan(&self.without_dead_nodes(), Device::Cpu)?.0).map_err(Error::from)
    }

    /// The graph with the gradient of its first output, a scalar, as further outputs: one for each parameter that is
    /// a float, in order, and zero for those that the output does not depend on.
    ///
    /// # Errors
    ///
    /// Fails if the graph does not [verify](Graph::verify), or if the first output is not one float.
    ///
    /// ```
    /// # use retape::Graph;
    /// let square: Graph = "
    ///     graph (%0: f32[]) {
    ///       %1 = mul %0, %0 : f32[]
    ///       return %1
    ///     }"
    /// .parse()?;
    /// assert_eq!(square.with_gradient()?.outputs().len(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn with_gradient(&self) -> Result<Graph> {
        let at = Location::caller();
        self.verified("with_gradient", at)?;
        let tape = Tape::new();
        let parameter = |&id: &ValueId| tape.parameter(self.ty(id).clone());
        let values = self.replay(&self.params().iter().map(parameter).collect::<Vec<_>>(), Some(&tape), at)?;
        let scalar = self.outputs().first().filter(|&&id| self.ty(id).n_elements() == 1);
        let Some(loss) = scalar.map(|id| &values[id.index()]) else {
            return Err(Error::Gradient {
                message: "the graph's first output is not one element".into(),
                at,
                call: None,
            });
        };
        let floats = self.params().iter().filter(|&&id| self.ty(id).dtype.is_float());
        let wrt: Vec<&Tensor> = floats.map(|id| &values[id.index()]).collect();
        let one = loss.constant_like(1.0, at);
        let name = |position: usize| format!("parameter {position}");
        let gradients = autodiff::vjp(&[(loss, one)], &wrt, Unused::Zero, &name, at);
        let outputs = self.outputs().iter().map(|id| &values[id.index()]).chain(&gradients);
        let ids: Option<Vec<ValueId>> = outputs.map(|tensor| tensor.as_traced().map(|Traced { id, .. }| *id)).collect();
        if let Some(error) = tape.error() {
            return Err(Error::clone(&error));
        }
        let mut graph = tape.finish().graph;
        graph.set_outputs(ids.ok_or_else(|| Error::Internal("a replayed value is not on its tape".into()))?);
        Ok(graph)
    }

    /// The outputs for some inputs, op by op: at once if all are concrete, else onto the tape of those that are traced.
    ///
    /// # Errors
    ///
    /// Fails if the graph does not [verify](Graph::verify), if the inputs are not of the parameters' types or lie on several
    /// devices, or if an op fails.
    ///
    /// ```
    /// # use retape::{Graph, Tensor};
    /// let square: Graph = "
    ///     graph (%0: f32[2]) {
    ///       %1 = mul %0, %0 : f32[2]
    ///       return %1
    ///     }"
    /// .parse()?;
    /// let outputs = square.apply(&[Tensor::from([2.0_f32, 3.0])])?;
    /// assert_eq!(outputs[0].to_vec::<f32>()?, [4.0, 9.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn apply(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let at = Location::caller();
        self.verified("apply", at)?;
        self.check_inputs("apply", inputs, at)?;
        common_device("apply", &inputs.iter().collect::<SmallVec<[&Tensor; 8]>>(), at)?;
        let tape = inputs.iter().find_map(Tensor::as_traced).map(Traced::tape);
        let values = self.replay(inputs, tape.as_ref(), at)?;
        Ok(self.outputs().iter().map(|id| values[id.index()].clone()).collect())
    }

    /// Applies the op of every node, on a tape if there is one; where a node does not say its line, `at` is it.
    pub(crate) fn replay(&self, inputs: &[Tensor], tape: Option<&Arc<Tape>>, at: Caller) -> Result<Vec<Tensor>> {
        let mut values: Vec<Tensor> = Vec::with_capacity(self.n_nodes());
        let device = device_of(inputs);
        for node in self.nodes() {
            let args: Vec<&Tensor> = node.args.iter().map(|arg| &values[arg.index()]).collect();
            let value = match (&node.op, tape) {
                (Op::Parameter(parameter), _) => inputs[parameter.index].clone(),
                (op, Some(tape)) => tape.record(op.clone(), &args, node.at.unwrap_or(at)),
                (op, None) => eager::run_on(device, op.clone(), &args, at)?,
            };
            if let Some(error) = value.error() {
                return Err(error.clone());
            }
            values.push(value);
        }
        Ok(values)
    }

    /// Computes every value in order, op by op and movements included, from those of the parameters, and shows each
    /// with its arguments. Effects do not happen, and the first op that takes other workers ends it. Each value is
    /// freed after its last use.
    pub(crate) fn each_value(&self, inputs: &[&Tensor], see: &mut SeeValue<'_>) -> Result<()> {
        let mut values: Vec<Option<Tensor>> = vec![None; self.n_nodes()];
        let mut uses = self.use_counts();
        let device = device_of(inputs.iter().copied());
        for (id, node) in self.iter() {
            if node.op.takes_workers() {
                return Ok(());
            }
            let at = node.at.unwrap_or(Location::caller());
            let args: SmallVec<[Tensor; 3]> = node.args.iter().filter_map(|arg| values[arg.index()].clone()).collect();
            let args: SmallVec<[&Tensor; 3]> = args.iter().collect();
            let value = match &node.op {
                Op::Parameter(parameter) => inputs[parameter.index].clone(),
                // The code for a broadcast serves all constants.
                Op::Splat(splat) => {
                    let (scalar, shape) = (Tensor::of_scalar(splat.value, at), splat.shape.clone());
                    eager::run_on(device, BroadcastTo { shape }.into(), &[&scalar], at)?
                }
                // A token stands for all of them.
                op if op.has_effect() => args.last().map_or_else(|| Tensor::zeros([0]), |&token| token.clone()),
                op => eager::run_on(device, op.clone(), &args, at)?,
            };
            if see(id, &args, &value)?.is_break() {
                return Ok(());
            }
            values[id.index()] = Some(value);
            for arg in &node.args {
                uses[arg.index()] -= 1;
                if uses[arg.index()] == 0 {
                    values[arg.index()] = None;
                }
            }
        }
        Ok(())
    }

    /// Refuses inputs that are not of the parameters' types.
    fn check_inputs(&self, op: &'static str, inputs: &[Tensor], at: Caller) -> Result<()> {
        if let Some(error) = inputs.iter().find_map(Tensor::error) {
            return Err(error.clone());
        }
        let types: Vec<_> = inputs.iter().filter_map(Tensor::ty).collect();
        let wanted: Vec<_> = self.params().iter().map(|&id| self.ty(id)).collect();
        if types == wanted {
            return Ok(());
        }
        Err(Error::Type { op, message: format!("the graph takes {wanted:?}, was given {types:?}"), at, call: None })
    }

    /// The outputs for some inputs, by the reference interpreter: planned as it stands, without the optimiser, and
    /// interpreted rather than run as machine code.
    ///
    /// # Errors
    ///
    /// Fails if the graph does not [verify](Graph::verify), or if the inputs are not concrete tensors of the parameters'
    /// types.
    ///
    /// ```
    /// # use retape::{Graph, Tensor};
    /// let graph: Graph = "
    ///     graph (%0: f32[2]) {
    ///       %1 = add %0, %0 : f32[2]
    ///       return %1
    ///     }"
    /// .parse()?;
    /// let outputs = graph.evaluate(&[Tensor::from([1.0_f32, 2.0])])?;
    /// assert_eq!(outputs[0].to_vec::<f32>()?, [2.0, 4.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn evaluate(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let at = Location::caller();
        self.verified("evaluate", at)?;
        self.check_inputs("evaluate", inputs, at)?;
        let mut buffers: Vec<&Buffer> = vec![];
        for input in inputs {
            buffers.push(input.value_for("evaluate", at)?.bytes()?);
        }
        let executable =
            Executable::compile(plan::plan(&self.without_dead_nodes(), Device::Cpu)?.0).map_err(Error::from)?;
        let outputs = executable.evaluate(&buffers).map_err(Error::from)?;
        let typed = self.outputs().iter().zip(outputs);
        Ok(typed.map(|(&id, bytes)| Tensor::concrete(self.ty(id).clone(), bytes)).collect())
    }
}
