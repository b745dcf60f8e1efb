//! Machine code that takes and gives tensors.

use std::sync::Arc;

use crate::code::{self, Operands, Target};
use crate::compile::{self, CompileTimes, Compiled, Stages};
use crate::error::Result;
use crate::graph::Graph;
use crate::tensor::Tensor;
use crate::types::TensorType;

/// A compiled graph and the types of its outputs.
#[derive(Clone, Debug)]
pub(crate) struct Code {
    compiled: Arc<Compiled>,
    output_types: Arc<[TensorType]>,
    times: CompileTimes,
}

impl Code {
    /// Optimises and compiles a graph for a target.
    pub(crate) fn of(graph: &Graph, target: Target) -> Result<Code> {
        let mut stages = Stages::default();
        let compiled = compile::compile_for(graph, target, &mut stages)?;
        Ok(Code { times: CompileTimes::of(&stages), ..Code::known(graph, compiled) })
    }

    /// A graph that is compiled already, which cost nothing here.
    pub(crate) fn known(graph: &Graph, compiled: Arc<Compiled>) -> Code {
        let output_types = graph.outputs().iter().map(|&id| graph.ty(id).clone()).collect();
        Code { compiled, output_types, times: CompileTimes::default() }
    }

    /// Runs it on tensors of the parameters' types.
    pub(crate) fn run<'t>(&self, inputs: impl Iterator<Item = &'t Tensor>) -> Result<Vec<Tensor>> {
        let inputs: Vec<&Tensor> = inputs.collect();
        Ok(code::tensors(self.compiled.code.run(&Operands::of(&inputs))?, self.output_types.iter()))
    }

    /// Bytes of machine code and of one arena.
    pub(crate) fn n_bytes(&self) -> usize {
        self.compiled.code.code_bytes() + self.compiled.code.arena_bytes()
    }

    /// The time that making it took.
    pub(crate) fn times(&self) -> CompileTimes {
        self.times
    }
}
