//! One cached trace: machine code, captured tensors, and how results are put together.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use retape_kernels::Executable;
use retape_runtime::{Buffer, coarse_now};

use super::differentiate::{Counts, Routine};
use super::signature::Signature;
use super::stats::{CompileTimes, GradientStats};
use crate::compile::{self, Compiled};
use crate::error::{Caller, Error, Result};
use crate::graph::TensorType;
use crate::ops::CallSite;
use crate::tape::Tape;
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
    /// The trace as something that is called inside gradients, once it has been.
    routine: OnceLock<Arc<Routine>>,
    /// The coarse clock at the last use, in milliseconds.
    last_use: AtomicU64,
}

impl Entry {
    /// Optimises and compiles what was traced.
    pub(crate) fn new(signature: Signature, trace: Trace, trace_time: Duration) -> Result<Entry> {
        let compiled = compile::compile(&trace.graph)?;
        let output_types = trace.graph.outputs().iter().map(|&id| trace.graph.ty(id).clone()).collect();
        let last_use = AtomicU64::new(coarse_millis());
        let routine = OnceLock::new();
        Ok(Entry { signature, trace, trace_time, compiled, output_types, routine, last_use })
    }

    /// Runs the machine code on arguments that have the entry's signature.
    pub(crate) fn run(&self, args: &[&Tensor]) -> Result<Vec<Tensor>> {
        let now = coarse_millis();
        // Read first, so that threads which share the entry do not write to it on every call.
        if self.last_use.load(Relaxed) != now {
            self.last_use.store(now, Relaxed);
        }
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

    /// Records a call on a tape that is evaluated op by op.
    pub(crate) fn record(&self, tape: &Arc<Tape>, args: &[&Tensor], counts: &Arc<Counts>, at: Caller) -> Vec<Tensor> {
        let routine = self.routine.get_or_init(|| {
            let captures = self.trace.captures.iter().map(|capture| capture.tensor.clone()).collect();
            let compiled = Arc::clone(&self.compiled);
            Arc::new(Routine::compiled(self.trace.graph.clone(), captures, compiled, Arc::clone(counts)))
        });
        let outputs = match routine.output_types().is_empty() {
            true => vec![],
            false => tape.record_call(&Arc::new(CallSite { routine: Arc::clone(routine), of: None }), args, at),
        };
        self.trace.results(args, outputs)
    }

    /// Bytes of machine code and of one arena, with what is there for gradients.
    pub(crate) fn n_bytes(&self) -> usize {
        let gradients: usize = self.gradients().iter().map(|gradient| gradient.bytes).sum();
        self.executable().code_bytes() + self.executable().arena_bytes() + gradients
    }

    /// What is there for gradients that are evaluated at once.
    pub(crate) fn gradients(&self) -> Vec<GradientStats> {
        self.routine.get().map_or_else(Vec::new, |routine| routine.gradients())
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
