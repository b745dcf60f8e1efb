//! Graphs as programs: differentiated by playing them onto a tape, and evaluated by the reference interpreter.
//!
//! Both are the slow twins that tests compare the usual paths with, and are open to readers of graph text.

use std::panic::Location;
use std::sync::Arc;

use retape_kernels::Executable;
use retape_runtime::Buffer;

use crate::autodiff::{self, Unused};
use crate::compile;
use crate::error::{Caller, Error, Result};
use crate::graph::{Graph, ValueId};
use crate::ops::Op;
use crate::plan;
use crate::tape::Tape;
use crate::tensor::{Tensor, Traced};

impl Graph {
    /// The graph with the gradient of its first output, a scalar, as further outputs: one for each parameter that is
    /// a float, in order, and zero for those that the output does not depend on.
    ///
    /// # Errors
    ///
    /// Fails if the first output is not one float, or if a node has sub-graphs.
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
        let tape = Tape::new();
        let values = self.replay(&tape, at)?;
        let scalar = self.outputs().first().filter(|&&id| self.ty(id).n_elements() == 1);
        let Some(loss) = scalar.map(|id| &values[id.index()]) else {
            return Err(Error::Gradient { message: "the graph's first output is not one element".into(), at });
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

    /// Records every node on a tape.
    fn replay(&self, tape: &Arc<Tape>, at: Caller) -> Result<Vec<Tensor>> {
        let mut values: Vec<Tensor> = Vec::with_capacity(self.n_nodes());
        for node in self.nodes() {
            if !node.regions.is_empty() {
                let message = format!("{} has sub-graphs, which are not replayed", node.op.name());
                return Err(Error::Gradient { message, at });
            }
            let args: Vec<&Tensor> = node.args.iter().map(|arg| &values[arg.index()]).collect();
            let value = match &node.op {
                Op::Parameter(parameter) => tape.parameter(parameter.ty.clone()),
                op => tape.record(op.clone(), &args, node.at.unwrap_or(at)),
            };
            if let Some(error) = value.error() {
                return Err(error.clone());
            }
            values.push(value);
        }
        Ok(values)
    }

    /// The outputs for some inputs, by the reference interpreter: planned as it stands, without the optimiser, and
    /// interpreted rather than run as machine code.
    ///
    /// # Errors
    ///
    /// Fails if the inputs are not concrete tensors of the parameters' types.
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
        let mut buffers: Vec<&Buffer> = vec![];
        for input in inputs {
            buffers.push(input.value_for("evaluate", at)?.bytes());
        }
        let types: Vec<_> = inputs.iter().filter_map(Tensor::ty).collect();
        let wanted: Vec<_> = self.params().iter().map(|&id| self.ty(id)).collect();
        if types != wanted {
            let message = format!("the graph takes {wanted:?}, was given {types:?}");
            return Err(Error::Type { op: "evaluate", message, at });
        }
        let executable = Executable::compile(plan::plan(self)?).map_err(compile::failed)?;
        let outputs = executable.evaluate(&buffers).map_err(compile::failed)?;
        let typed = self.outputs().iter().zip(outputs);
        Ok(typed.map(|(&id, bytes)| Tensor::concrete(self.ty(id).clone(), Arc::new(bytes))).collect())
    }
}
