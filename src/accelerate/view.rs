//! The text of an entry at each stage.

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

/// The forms that an entry has on its way to code, for [`text`](Accelerated::text).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Form {
    /// The graph as it was recorded, with the lines of the program where they are known, and as it was optimised.
    Graph,
    /// The plan: the steps in order, the memory that each reads and writes, and their kernels as they were lowered.
    Plan,
    /// The kernels in the form that becomes code: transcendental functions expanded, scalar rewrites done.
    Kernels,
    /// The kernels as Cranelift IR, before its optimiser, each by itself: an entry merges small neighbours.
    Clif,
    /// The kernels as machine instructions, each by itself: an entry merges small neighbours. Those of full width
    /// (AVX2, AVX-512) are lines of bytes for an assembler; with `RETAPE_VECTOR_BITS=128` there are none.
    Disassembly,
    /// The launches of an entry on a GPU: for each the labels of the steps that it does, its size, and its module as PTX.
    Ptx,
}

impl<F, Args, R> Accelerated<F, Args, R> {
    /// An entry as text. Signatures come from `signature(..)` with the arguments of a call, from
    /// [`Stats::entries`](crate::Stats) or from [`explain`](Accelerated::explain).
    ///
    /// ```
    /// # use retape::{accelerate, Tensor};
    /// use retape::Form;
    ///
    /// let f = accelerate(|x: &Tensor| (x * 2.0).tanh());
    /// let x = Tensor::ones([8]);
    /// f.call(&x)?;
    /// let signature = f.signature(&x);
    /// assert!(f.text(&signature, Form::Graph)?.contains("tanh"));
    /// assert!(f.text(&signature, Form::Plan)?.starts_with("plan (f32[8]) -> (f32[8])"));
    /// assert!(f.text(&signature, Form::Kernels)?.contains("axes a0 = 8"));
    /// assert!(f.text(&signature, Form::Clif)?.contains("function"));
    /// assert!(!f.text(&signature, Form::Disassembly)?.is_empty());
    /// # Ok::<(), retape::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if there is no entry of this signature, and names those there are; also if the entry runs on a GPU and the
    /// form is one of the processor's, [`Clif`](Form::Clif) or [`Disassembly`](Form::Disassembly), or the other way
    /// round.
    pub fn text(&self, signature: &Signature, form: Form) -> Result<String> {
        let entry = self.core.entry_of(signature)?;
        match form {
            Form::Graph => {
                let (inputs, recorded, optimised) = (inputs(&entry), entry.recorded_text(), &entry.compiled.graph);
                Ok(format!("; recorded for ({signature})\n{inputs}{recorded}\n\n; optimised\n{optimised}\n"))
            }
            Form::Plan => Ok(entry.code().plan().to_string()),
            Form::Kernels => entry.text_of_steps(|kernel| Ok(simplify(&expand(&simplify(kernel))).to_string())),
            Form::Clif => entry.on_processor()?.text_of_steps(|kernel| Ok(retape_kernels::clif(kernel)?)),
            Form::Disassembly => {
                entry.on_processor()?.text_of_steps(|kernel| Ok(retape_kernels::machine_text(kernel)?))
            }
            Form::Ptx => entry.on_gpu().map(|entry| entry.code().text()),
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
            device => {
                Err(Error::Cache(format!("the entry {} runs on {device}; see `Form::Ptx`", self.signature.label())))
            }
        }
    }

    /// Refuses an entry that runs elsewhere.
    fn on_gpu(&self) -> Result<&Entry> {
        match self.code().device() {
            Device::Cpu => {
                let label = self.signature.label();
                Err(Error::Cache(format!("the entry {label} runs on the processor; see `Form::Clif`")))
            }
            _ => Ok(self),
        }
    }

    /// A text for each step, under its label.
    fn text_of_steps(&self, of_kernel: impl Fn(&Kernel) -> Result<String>) -> Result<String> {
        let text = |(n, step): (usize, &Step)| {
            let text = match &step.work {
                Work::Kernel(kernel) => of_kernel(kernel)?,
                Work::Library { kernel, epilogue } => {
                    let library = format!("; library kernel, compiled with this crate\n; {kernel}");
                    match epilogue {
                        None => library,
                        Some(epilogue) => format!("{library}\n; epilogue\n{}", of_kernel(epilogue.kernel())?),
                    }
                }
            };
            Ok(format!("; step {n}: {}\n{}\n", step.label, text.trim_end()))
        };
        self.code().plan().steps.iter().enumerate().map(text).collect::<Result<Vec<_>>>().map(|texts| texts.join("\n"))
    }
}

/// A comment for each parameter.
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
