//! One cached trace: machine code, captured tensors, and how results are put together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use retape_kernels::Executable;
use retape_runtime::{Buffer, coarse_now};
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
    /// The coarse clock at the last use, in milliseconds.
    last_use: AtomicU64,
}

impl Entry {
    /// Optimises and compiles what was traced; `stages` has noted the trace.
    pub(crate) fn new(signature: Signature, trace: Trace, mut stages: Stages) -> Result<Entry> {
        let compiled = compile::compile_timed(&trace.graph, &mut stages)?;
        let output_types = trace.graph.outputs().iter().map(|&id| trace.graph.ty(id).clone()).collect();
        let last_use = AtomicU64::new(coarse_millis());
        Ok(Entry { signature, trace, compiled, stages, output_types, last_use })
    }

    /// Runs the machine code on arguments that have the entry's signature.
    pub(crate) fn run(&self, args: &[&Tensor]) -> Result<Vec<Tensor>> {
        self.note_use();
        let buffers = self.executable().run(&self.inputs(args)?).map_err(compile::failed)?;
        Ok(self.results(args, buffers))
    }

    /// As [`run`](Entry::run), and notes in the profiled call of this thread what it took.
    pub(crate) fn run_profiled(self: &Arc<Entry>, args: &[&Tensor]) -> Result<Vec<Tensor>> {
        self.note_use();
        let inputs = self.inputs(args)?;
        let start = Instant::now();
        let (buffers, launches) = self.executable().profile(&inputs).map_err(compile::failed)?;
        profile::ran(self, &launches, start.elapsed());
        Ok(self.results(args, buffers))
    }

    #[inline]
    fn note_use(&self) {
        let now = coarse_millis();
        // Read first, so that threads which share the entry do not write to it on every call.
        if self.last_use.load(Relaxed) != now {
            self.last_use.store(now, Relaxed);
        }
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

    /// How long ago it was last used, to some milliseconds.
    pub(crate) fn idle_time(&self) -> Duration {
        Duration::from_millis(coarse_millis().saturating_sub(self.last_use.load(Relaxed)))
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

fn coarse_millis() -> u64 {
    coarse_now().as_millis() as u64
}
