//! One cached trace: machine code, captured tensors, and how results are put together.

use std::sync::Arc;
use std::time::Instant;

use retape_kernels::Executable;
use retape_runtime::Buffer;
use smallvec::SmallVec;

use super::profile;
use super::signature::Signature;
use super::stats::CompileTimes;
use crate::compile::{self, Compiled, StageTime, Stages};
use crate::error::{Error, Result};
use crate::graph::TensorType;
use crate::tensor::Tensor;
use crate::trace::Trace;

/// A compiled trace.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The arguments it is for.
    pub(crate) signature: Signature,
    pub(crate) trace: Trace,
    pub(crate) compiled: Arc<Compiled>,
    stages: Stages,
    output_types: Vec<TensorType>,
}

impl Entry {
    /// Optimises and compiles what was traced; `stages` has noted the trace.
    pub(crate) fn new(signature: Signature, trace: Trace, mut stages: Stages) -> Result<Entry> {
        let compiled = compile::compile_timed(&trace.graph, &mut stages)?;
        let output_types = trace.graph.outputs().iter().map(|&id| trace.graph.ty(id).clone()).collect();
        Ok(Entry { signature, trace, compiled, stages, output_types })
    }

    /// Runs the machine code on arguments that have the entry's signature.
    pub(crate) fn run(&self, args: &[&Tensor]) -> Result<Vec<Tensor>> {
        let buffers = self.executable().run(&self.inputs(args)?).map_err(compile::failed)?;
        Ok(self.results(args, buffers))
    }

    /// As [`run`](Entry::run), and notes in the profiled call of this thread what it took.
    pub(crate) fn run_profiled(self: &Arc<Entry>, args: &[&Tensor]) -> Result<Vec<Tensor>> {
        let inputs = self.inputs(args)?;
        let start = Instant::now();
        let (buffers, launches) = self.executable().profile(&inputs).map_err(compile::failed)?;
        profile::ran(self, &launches, start.elapsed());
        Ok(self.results(args, buffers))
    }

    #[inline]
    fn inputs<'t>(&'t self, args: &[&'t Tensor]) -> Result<SmallVec<[&'t Buffer; 24]>> {
        let captures = self.trace.captures.iter().map(|capture| &capture.tensor);
        let bytes = args.iter().copied().chain(captures).map(|tensor| Some(tensor.as_concrete()?.bytes()));
        bytes
            .collect::<Option<_>>()
            .ok_or_else(|| Error::Internal("a compiled trace was given a tensor without bytes".into()))
    }

    #[inline]
    fn results(&self, args: &[&Tensor], buffers: Vec<Buffer>) -> Vec<Tensor> {
        let outputs = buffers.into_iter().zip(&self.output_types);
        let outputs: Vec<Tensor> = outputs.map(|(bytes, ty)| Tensor::concrete(ty.clone(), bytes)).collect();
        self.trace.results(args, outputs)
    }

    /// Bytes of machine code and of one arena.
    pub(crate) fn n_bytes(&self) -> usize {
        self.executable().code_bytes() + self.executable().arena_bytes()
    }

    /// What making it cost.
    pub(crate) fn times(&self) -> CompileTimes {
        CompileTimes {
            trace: self.stages.time("trace"),
            optimise: self.stages.time("optimise"),
            plan: self.stages.time("plan"),
            compile: self.stages.time("compile"),
        }
    }

    /// The stages of making it, in order.
    pub(crate) fn stages(&self) -> &[StageTime] {
        &self.stages.0
    }

    /// The machine code.
    pub(crate) fn executable(&self) -> &Executable {
        &self.compiled.executable
    }
}
