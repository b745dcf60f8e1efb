//! The text of an entry at each stage.

use std::fmt::Write;

use retape_kernels::expand::expand;
use retape_kernels::ir::Kernel;
use retape_kernels::{Step, Work, simplify};
use retape_runtime::Device;

use crate::compile::Compiled;
use crate::error::{Error, Result};
use crate::signature::{LeafValue, Signature};
use crate::trace::Trace;

/// The forms that an entry has on its way to code, for [`text`](crate::Accelerated::text).
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

/// An entry as the texts show it.
pub(crate) struct EntryText<'e> {
    pub(crate) signature: &'e Signature,
    pub(crate) trace: &'e Trace,
    /// The recorded graph with the lines of the program.
    pub(crate) recorded: &'e dyn Fn() -> String,
    pub(crate) compiled: &'e Compiled,
}

impl EntryText<'_> {
    /// The text of one form.
    pub(crate) fn of(&self, form: Form) -> Result<String> {
        match form {
            Form::Graph => {
                let (inputs, recorded, optimised) = (self.inputs(), (self.recorded)(), &self.compiled.graph);
                Ok(format!("; recorded for ({})\n{inputs}{recorded}\n\n; optimised\n{optimised}\n", self.signature))
            }
            Form::Plan => Ok(self.compiled.code.plan().to_string()),
            Form::Kernels => self.text_of_steps(|kernel| Ok(simplify(&expand(&simplify(kernel))).to_string())),
            Form::Clif => self.on_processor()?.text_of_steps(|kernel| Ok(retape_kernels::clif(kernel)?)),
            Form::Disassembly => self.on_processor()?.text_of_steps(|kernel| Ok(retape_kernels::machine_text(kernel)?)),
            Form::Ptx => self.on_gpu().map(|entry| entry.compiled.code.text()),
        }
    }

    /// Refuses an entry that runs elsewhere.
    fn on_processor(&self) -> Result<&Self> {
        match self.compiled.code.device() {
            Device::Cpu => Ok(self),
            device => {
                Err(Error::Cache(format!("the entry {} runs on {device}; see `Form::Ptx`", self.signature.label())))
            }
        }
    }

    /// Refuses an entry that runs elsewhere.
    fn on_gpu(&self) -> Result<&Self> {
        match self.compiled.code.device() {
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
        self.compiled
            .code
            .plan()
            .steps
            .iter()
            .enumerate()
            .map(text)
            .collect::<Result<Vec<_>>>()
            .map(|texts| texts.join("\n"))
    }

    /// A comment for each parameter.
    fn inputs(&self) -> String {
        let mut text = String::new();
        let leaves = self.signature.description().leaves.iter();
        let args = leaves.filter(|leaf| matches!(leaf.value, LeafValue::Tensor { .. })).map(|leaf| leaf.path.clone());
        let captures = self.trace.captures.iter().map(|capture| format!("captured at {}", capture.at));
        for (id, what) in self.trace.graph.params().iter().zip(args.chain(captures)) {
            // Writing to a string does not fail.
            let _ = writeln!(text, "; {id}: {}", what.replace(char::is_control, " "));
        }
        text
    }
}
