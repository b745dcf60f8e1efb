//! Machine code that takes and gives tensors.

use std::sync::Arc;

use retape_kernels::Modes;
use retape_runtime::Buffer;
use smallvec::SmallVec;

use super::super::stats::CompileTimes;
use crate::compile::{self, Compiled, Stages};
use crate::error::{Error, Result};
use crate::graph::{Graph, TensorType};
use crate::tensor::Tensor;

/// A compiled graph and the types of its outputs.
#[derive(Clone, Debug)]
pub(super) struct Code {
    compiled: Arc<Compiled>,
    output_types: Arc<[TensorType]>,
    times: CompileTimes,
}

impl Code {
    /// Optimises and compiles a graph.
    pub(super) fn of(graph: &Graph) -> Result<Code> {
        let mut stages = Stages::default();
        let compiled = compile::compile_in(graph, Modes::default(), &mut stages)?;
        Ok(Code { times: CompileTimes::of(&stages), ..Code::known(graph, compiled) })
    }

    /// A graph that is compiled already, which cost nothing here.
    pub(super) fn known(graph: &Graph, compiled: Arc<Compiled>) -> Code {
        let output_types = graph.outputs().iter().map(|&id| graph.ty(id).clone()).collect();
        Code { compiled, output_types, times: CompileTimes::default() }
    }

    /// Runs it on tensors of the parameters' types.
    pub(super) fn run<'t>(&self, inputs: impl Iterator<Item = &'t Tensor>) -> Result<Vec<Tensor>> {
        let inputs: SmallVec<[&Buffer; 24]> = inputs
            .map(|tensor| tensor.as_concrete().map(|concrete| concrete.bytes()))
            .collect::<Option<_>>()
            .ok_or_else(|| Error::Internal("compiled code was given a tensor without bytes".into()))?;
        let buffers = self.compiled.executable.run(&inputs).map_err(compile::failed)?;
        let typed = buffers.into_iter().zip(self.output_types.iter());
        Ok(typed.map(|(bytes, ty)| Tensor::concrete(ty.clone(), bytes)).collect())
    }

    /// Bytes of machine code and of one arena.
    pub(super) fn n_bytes(&self) -> usize {
        self.compiled.executable.code_bytes() + self.compiled.executable.arena_bytes()
    }

    /// What making it cost.
    pub(super) fn times(&self) -> CompileTimes {
        self.times
    }
}
