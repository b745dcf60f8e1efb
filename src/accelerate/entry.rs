//! One cached trace: machine code, captured tensors, and how results are put together.

use std::sync::Arc;
use std::time::Duration;

use retape_kernels::Executable;
use retape_runtime::Buffer;

use super::signature::Signature;
use super::stats::CompileTimes;
use crate::compile::{self, Compiled};
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
    pub(crate) trace_time: Duration,
    pub(crate) compiled: Arc<Compiled>,
    output_types: Vec<TensorType>,
    /// The graph's text with lines of the program, if another process recorded it.
    loaded_text: Option<String>,
}

impl Entry {
    /// Optimises and compiles what was traced.
    pub(crate) fn new(signature: Signature, trace: Trace, trace_time: Duration) -> Result<Entry> {
        let compiled = compile::compile(&trace.graph)?;
        let output_types = trace.graph.outputs().iter().map(|&id| trace.graph.ty(id).clone()).collect();
        Ok(Entry { signature, trace, trace_time, compiled, output_types, loaded_text: None })
    }

    /// Optimises and compiles what an artefact held.
    pub(crate) fn loaded(signature: Signature, trace: Trace, text: String) -> Result<Entry> {
        Ok(Entry { loaded_text: Some(text), ..Entry::new(signature, trace, Duration::ZERO)? })
    }

    /// Whether it comes from an artefact, so that no call made it.
    pub(crate) fn is_loaded(&self) -> bool {
        self.loaded_text.is_some()
    }

    /// The recorded graph as text, with the lines that recorded it as comments.
    pub(crate) fn recorded_text(&self) -> String {
        self.loaded_text.clone().unwrap_or_else(|| self.trace.graph.with_lines().to_string())
    }

    /// Runs the machine code on arguments that have the entry's signature.
    pub(crate) fn run(&self, args: &[&Tensor]) -> Result<Vec<Tensor>> {
        let captures = self.trace.captures.iter().map(|capture| &capture.tensor);
        let inputs: smallvec::SmallVec<[&Buffer; 24]> = args
            .iter()
            .copied()
            .chain(captures)
            .map(|tensor| tensor.as_concrete().map(|concrete| concrete.bytes()))
            .collect::<Option<_>>()
            .ok_or_else(|| Error::Internal("a compiled trace was given a tensor without bytes".into()))?;
        let buffers = self.executable().run(&inputs).map_err(compile::failed)?;
        let outputs = buffers.into_iter().zip(&self.output_types);
        let outputs: Vec<Tensor> = outputs.map(|(bytes, ty)| Tensor::concrete(ty.clone(), bytes)).collect();
        Ok(self.trace.results(args, outputs))
    }

    /// Bytes of machine code and of one arena.
    pub(crate) fn n_bytes(&self) -> usize {
        self.executable().code_bytes() + self.executable().arena_bytes()
    }

    /// What making it cost.
    pub(crate) fn times(&self) -> CompileTimes {
        CompileTimes {
            trace: self.trace_time,
            optimise: self.compiled.optimise_time,
            plan: self.compiled.plan_time,
            compile: self.compiled.compile_time,
        }
    }

    /// The machine code.
    pub(crate) fn executable(&self) -> &Executable {
        &self.compiled.executable
    }
}
