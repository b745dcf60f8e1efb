//! One cached trace: machine code, captured tensors, and how results are put together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use retape_kernels::Executable;
use retape_runtime::{Buffer, coarse_now};
use smallvec::SmallVec;

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
    /// The coarse clock at the last use, in milliseconds.
    last_use: AtomicU64,
    /// Calls that it served while the first ones were to be checked.
    pub(crate) n_checkable: AtomicU64,
}

impl Entry {
    /// Optimises and compiles what was traced.
    pub(crate) fn new(signature: Signature, trace: Trace, trace_time: Duration) -> Result<Entry> {
        let compiled = compile::compile_in(&trace.graph, signature.modes())?;
        let output_types = trace.graph.outputs().iter().map(|&id| trace.graph.ty(id).clone()).collect();
        let (last_use, n_checkable) = (AtomicU64::new(coarse_millis()), AtomicU64::new(0));
        Ok(Entry { signature, trace, trace_time, compiled, output_types, last_use, n_checkable })
    }

    /// Runs the machine code on arguments that have the entry's signature.
    pub(crate) fn run(&self, args: &[&Tensor]) -> Result<Vec<Tensor>> {
        self.note_use();
        let buffers = self.executable().run(&self.inputs(args)?).map_err(compile::failed)?;
        Ok(self.results(args, buffers))
    }

    /// As [`run`](Entry::run), for code with a trap; also says which steps first stored NaN or an infinity.
    pub(crate) fn run_trapped(&self, args: &[&Tensor]) -> Result<(Vec<Tensor>, Option<String>)> {
        self.note_use();
        let (buffers, first) = self.executable().run_trapped(&self.inputs(args)?).map_err(compile::failed)?;
        Ok((self.results(args, buffers), first))
    }

    fn note_use(&self) {
        let now = coarse_millis();
        // Read first, so that threads which share the entry do not write to it on every call.
        if self.last_use.load(Relaxed) != now {
            self.last_use.store(now, Relaxed);
        }
    }

    /// The bytes of the arguments, then of the captures.
    #[inline]
    fn inputs<'a>(&'a self, args: &[&'a Tensor]) -> Result<SmallVec<[&'a Buffer; 24]>> {
        let captures = self.trace.captures.iter().map(|capture| &capture.tensor);
        let bytes = |tensor: &'a Tensor| tensor.as_concrete().map(|concrete| concrete.bytes());
        let inputs = args.iter().copied().chain(captures).map(bytes).collect::<Option<_>>();
        inputs.ok_or_else(|| Error::Internal("a compiled trace was given a tensor without bytes".into()))
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

    /// How long ago it was last used, to some milliseconds.
    pub(crate) fn idle_time(&self) -> Duration {
        Duration::from_millis(coarse_millis().saturating_sub(self.last_use.load(Relaxed)))
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

fn coarse_millis() -> u64 {
    coarse_now().as_millis() as u64
}
