//! What an entry looks like at each stage, as text.

use std::fmt::Write;
use std::sync::Arc;

use retape_kernels::expand::expand;
use retape_kernels::ir::Kernel;
use retape_kernels::{Step, Work, simplify};
use retape_runtime::Device;

use super::Accelerated;
use super::core::Core;
use super::entry::Entry;
use crate::error::{Error, Result};
use crate::signature::{LeafValue, Signature};

/// How many signatures the message names when there is no entry.
const MAX_NAMED: usize = 8;

/// What entries look like. Signatures come from `signature(..)` with the arguments of a call, from
/// [`Stats::entries`](crate::Stats) or from [`explain`](Accelerated::explain).
///
/// ```
/// # use retape::{accelerate, Tensor};
/// let f = accelerate(|x: &Tensor| (x * 2.0).tanh());
/// let x = Tensor::ones([8]);
/// f.call(&x)?;
/// let signature = f.signature(&x);
/// assert!(f.graph(&signature)?.contains("tanh"));
/// assert!(f.plan(&signature)?.starts_with("plan (f32[8]) -> (f32[8])"));
/// assert!(f.kernels(&signature)?.contains("axes a0 = 8"));
/// assert!(f.clif(&signature)?.contains("function"));
/// assert!(!f.disassembly(&signature)?.is_empty());
/// # Ok::<(), retape::Error>(())
/// ```
impl<F, Args, R> Accelerated<F, Args, R> {
    /// The graph as it was recorded, with the lines of the program where they are known, and as it was optimised.
    ///
    /// # Errors
    ///
    /// Fails if there is no entry of this signature, and names those there are.
    pub fn graph(&self, signature: &Signature) -> Result<String> {
        let entry = self.core.entry_of(signature)?;
        let (inputs, recorded) = (inputs(&entry), entry.recorded_text());
        Ok(format!("; recorded for ({signature})\n{inputs}{recorded}\n\n; optimised\n{}\n", entry.compiled.graph))
    }

    /// The plan: the steps in order, which memory each reads and writes, and their kernels as they were lowered.
    ///
    /// # Errors
    ///
    /// As [`graph`](Accelerated::graph).
    pub fn plan(&self, signature: &Signature) -> Result<String> {
        Ok(self.core.entry_of(signature)?.code().plan().to_string())
    }

    /// The kernels in the form that becomes code: transcendental functions expanded, scalar rewrites done.
    ///
    /// # Errors
    ///
    /// As [`graph`](Accelerated::graph).
    pub fn kernels(&self, signature: &Signature) -> Result<String> {
        self.core.entry_of(signature)?.text_of_steps(|kernel| Ok(simplify(&expand(&simplify(kernel))).to_string()))
    }

    /// The kernels as Cranelift IR, before its optimiser, each by itself: an entry merges small neighbours.
    ///
    /// # Errors
    ///
    /// As [`graph`](Accelerated::graph); also if the entry runs on a GPU.
    pub fn clif(&self, signature: &Signature) -> Result<String> {
        self.core
            .entry_of(signature)?
            .on_processor()?
            .text_of_steps(|kernel| retape_kernels::clif(kernel).map_err(Error::from))
    }

    /// The kernels as machine instructions, each by itself: an entry merges small neighbours.
    ///
    /// # Errors
    ///
    /// As [`graph`](Accelerated::graph); also if the entry runs on a GPU.
    pub fn disassembly(&self, signature: &Signature) -> Result<String> {
        let text = |kernel: &Kernel| retape_kernels::machine_text(kernel).map_err(Error::from);
        self.core.entry_of(signature)?.on_processor()?.text_of_steps(text)
    }

    /// The launches of an entry on a GPU: for each the labels of the steps that it does, its size, and its module as
    /// PTX.
    ///
    /// # Errors
    ///
    /// As [`graph`](Accelerated::graph); also if the entry runs on the processor.
    pub fn ptx(&self, signature: &Signature) -> Result<String> {
        let entry = self.core.entry_of(signature)?;
        match entry.code().device() {
            Device::Cpu => {
                Err(Error::Cache(format!("the entry {} runs on the processor; see `clif`", signature.label())))
            }
            _ => Ok(entry.code().text()),
        }
    }
}

impl Core {
    fn entry_of(&self, signature: &Signature) -> Result<Arc<Entry>> {
        self.peek(signature).ok_or_else(|| {
            let entries = self.entries();
            let named: Vec<String> = entries.iter().take(MAX_NAMED).map(|entry| entry.signature.label()).collect();
            let known = match entries.len() {
                0 => "its cache is empty".to_owned(),
                n if n > named.len() => {
                    format!("it has {} and {} more", named.join(", "), n - named.len())
                }
                _ => format!("it has {}", named.join(", ")),
            };
            Error::Cache(format!("{} has no entry {}; {known}", self.identity(), signature.label()))
        })
    }
}

impl Entry {
    /// Refuses an entry that runs elsewhere.
    fn on_processor(&self) -> Result<&Entry> {
        match self.code().device() {
            Device::Cpu => Ok(self),
            device => Err(Error::Cache(format!("the entry {} runs on {device}; see `ptx`", self.signature.label()))),
        }
    }

    /// A text for each step, under its label.
    fn text_of_steps(&self, of_kernel: impl Fn(&Kernel) -> Result<String>) -> Result<String> {
        let text = |(n, step): (usize, &Step)| {
            let text = match &step.work {
                Work::Kernel(kernel) => of_kernel(kernel)?,
                Work::Library(library) => format!("; library kernel, compiled with this crate\n; {library}"),
            };
            Ok(format!("; step {n}: {}\n{}\n", step.label, text.trim_end()))
        };
        self.code().plan().steps.iter().enumerate().map(text).collect::<Result<Vec<_>>>().map(|texts| texts.join("\n"))
    }
}

/// What each parameter is, as comments.
fn inputs(entry: &Entry) -> String {
    let mut text = String::new();
    let leaves = entry.signature.description().leaves.iter();
    let args = leaves.filter(|leaf| matches!(leaf.value, LeafValue::Tensor { .. })).map(|leaf| leaf.path.clone());
    let captures = entry.trace.captures.iter().map(|capture| format!("captured at {}", capture.at));
    for (id, what) in entry.trace.graph.params().iter().zip(args.chain(captures)) {
        // Writing to a string does not fail.
        let _ = writeln!(text, "; {id}: {}", what.replace(char::is_control, " "));
    }
    text
}
