//! Printing values while a graph runs.
//!
//! A node is kept only if an output needs it, and two that are equal are one; an effect must be neither lost nor merged
//! nor moved before another. So it makes a value that stands for having happened, a *token* of type `u8[0]`, and takes
//! the token of the effect before it. The recorder of a graph makes the last token an output.

use std::panic::Location;
use std::sync::Arc;

use retape_kernels::library::{Label, Print, Token, set_print_sink};
use retape_runtime::DType;

use super::attribute::{Attribute, attributes};
use super::check::{self, refuse};
use super::{Cotangents, Facts, Lowering, Op, OpDef, Sample, Site, TypeError};
use crate::tensor::Tensor;
use crate::types::TensorType;

/// Prints its first argument; its second, and its result, are tokens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DebugPrint {
    /// The beginning of the line.
    pub label: Label,
}

attributes! {
    DebugPrint { label }
}

/// Written in quotes, with what has a meaning in the text of graphs escaped.
impl Attribute for Label {
    fn print(&self) -> String {
        self.to_string()
    }

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

/// The type of a token.
pub(crate) fn token() -> TensorType {
    TensorType::new(Token::DTYPE, [0])
}

/// The type of an effect on a value, its first argument, after the effect whose token is the second.
pub(crate) fn effect(args: &[&TensorType]) -> Result<TensorType, TypeError> {
    let [_, after] = check::exactly::<2>(args)?;
    if *after != token() {
        refuse!("argument 1 is {after}, not the token of an effect, {}", token());
    }
    Ok(token())
}

impl OpDef for DebugPrint {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        effect(args)
    }

    fn vjp(&self, _: &Site<'_>) -> Cotangents {
        Cotangents::zero("a token has no elements")
    }

    fn lower(&self, args: &[&TensorType], _: &TensorType) -> Lowering {
        let TensorType { dtype, shape } = args[0].clone();
        Lowering::Library(Print { label: self.label.clone(), dtype, shape }.into())
    }

    fn facts(&self) -> Facts {
        Facts { has_effect: true, ..Facts::PLAIN }
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        let ops = ["x", "sample, of; {all} [kinds]: \"quoted\"\n"].map(|label| DebugPrint { label: label.into() });
        let dtypes = DType::ALL.into_iter().zip(ops.iter().cycle());
        let sample = |(dtype, op): (DType, &DebugPrint)| {
            let args = [(TensorType::new(dtype, [2, 3]), 0.0..5.0), (token(), 0.0..1.0)];
            Sample::typed(op.clone(), &args)
        };
        dtypes.map(sample).collect()
    }
}

impl Op {
    /// Whether the value of the op stands for an effect, which must happen on every run, once, and in order. The last
    /// argument and the value of such an op are tokens.
    pub fn has_effect(&self) -> bool {
        self.facts().has_effect
    }
}

impl Tensor {
    /// Prints `label: f32[2] [1.0, 2.0]` whenever the value is computed, and returns the tensor itself.
    ///
    /// Inside a traced closure this is recorded, so that the compiled code prints on every call, hits included, in
    /// the order of the program, and even if the result is not used; `println!` there would print while tracing only.
    /// It changes neither values nor gradients. A tensor that is concrete prints at once, also inside a closure: one
    /// that the closure captured prints while tracing only.
    ///
    /// Lines go to standard error or to the sink given to [`set_debug_sink`]. Large tensors are shortened.
    ///
    /// ```
    /// use retape::{accelerate, set_debug_sink, Tensor};
    /// use std::sync::{Arc, Mutex};
    ///
    /// let lines = Arc::new(Mutex::new(vec![]));
    /// let log = Arc::clone(&lines);
    /// set_debug_sink(move |line| log.lock().unwrap().push(line.to_owned()));
    ///
    /// let loss = accelerate(|x: &Tensor| x.square().debug_print("squares").sum(..));
    /// loss.call(Tensor::from([1.0_f32, 2.0]))?;
    /// loss.call(Tensor::from([3.0_f32, 4.0]))?; // a hit
    /// assert_eq!(*lines.lock().unwrap(), ["squares: f32[2] [1.0, 4.0]", "squares: f32[2] [9.0, 16.0]"]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn debug_print(&self, label: &str) -> Tensor {
        let (at, label) = (Location::caller(), Label::from(label));
        if let Some(concrete) = self.as_concrete() {
            // Not compiled first, for the next label may be another one.
            let TensorType { dtype, shape } = concrete.ty().clone();
            let bytes = match concrete.bytes() {
                Ok(bytes) => &bytes.bytes()[..shape.n_elements() * dtype.size()],
                Err(error) => return Tensor::poisoned(error),
            };
            let printed = Print { label, dtype, shape }.try_run(&[bytes, &[]], &mut [&mut []]);
            return printed.map_or_else(|error| Tensor::poisoned(error.into()), |()| self.clone());
        }
        let before = self.token_before(at);
        let printed = Tensor::apply_at(DebugPrint { label }, &[self, &before], at);
        if printed.error().is_some() { printed } else { self.clone() }
    }
}

/// Sends what [`Tensor::debug_print`] prints from now on to a function, line by line, instead of standard error.
///
/// The sink belongs to the process. It is called on the thread of the call that prints, and several threads may call
/// it at once. If it panics, the call that prints fails with [`Error::Panicked`](crate::Error::Panicked), and a tensor
/// that prints outside of calls becomes a poisoned one.
pub fn set_debug_sink(sink: impl Fn(&str) + Send + Sync + 'static) {
    set_print_sink(Some(Arc::new(sink)));
}

/// Sends what [`Tensor::debug_print`] prints from now on to standard error, as at the start.
pub fn reset_debug_sink() {
    set_print_sink(None);
}
