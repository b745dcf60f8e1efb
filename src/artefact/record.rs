//! The payload: one record per entry, and the checks that make a record a trace again.
//!
//! A record holds the words of the signature, the recorded graph as text, the captured tensors, and how the result is
//! put together. It holds no machine code, since nothing could tell good code from bad.
//!
//! Guarantees that a record which passes [`Record::verify`] is as good as a fresh trace of a function of these types:
//! the graph verifies and has a bounded number of nodes, its parameters are the tensors of the signature and then the
//! captures, and the words of the signature and of the result are such as arguments and results of these types write.
//! Types of the program that panic over words which they never wrote refuse these; the panic goes no further.

use std::any::type_name;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use retape_runtime::{Buffer, DType, Device, panic_message};

use super::bytes::{Decoder, Encoder, malformed};
use crate::accelerate::Entry;
use crate::error::ArtefactError;
use crate::graph::Graph;
use crate::signature::{CallModes, Description, Signature};
use crate::tape::{Capture, Line, Tape};
use crate::tensor::Tensor;
use crate::trace::{Source, Trace};
use crate::tree::{Reader, Tree, Writer};
use crate::types::{TensorType, parse_type};

type Result<T> = std::result::Result<T, ArtefactError>;

/// No graph in an artefact has more nodes: planning takes memory that grows with their square, about a gigabyte for a
/// chain of so many steps.
const MAX_NODES: usize = 1 << 16;

/// An entry as it is written.
#[derive(Debug)]
pub(crate) struct Record {
    /// The words of the arguments.
    words: Vec<u64>,
    modes: CallModes,
    /// The devices of the arguments' tensors, as their codes.
    devices: Vec<u64>,
    /// The arguments for people.
    arguments: String,
    /// The graph, with the lines of the program as comments.
    text: String,
    captures: Vec<Capture>,
    /// The words of the result.
    results: Vec<u64>,
    sources: Vec<Source>,
}

/// The parts of a verified record.
#[derive(Debug)]
pub(crate) struct Verified {
    pub(crate) signature: Signature,
    pub(crate) trace: Trace,
    /// The graph with the lines of the program that recorded it.
    pub(crate) text: String,
}

/// How the types of a function read what a record says of them.
pub(crate) struct Types {
    pub(crate) arguments: Rewrite,
    pub(crate) results: Rewrite,
}

/// Reads a tree from words and tensors and writes it again: its words and its description. None unless all tensors come
/// out again, in order.
type Rewrite = fn(&[u64], &[Tensor]) -> RewrittenWords;

/// The words and the description, none if not all tensors came out again, or the error of a failed rewrite.
type RewrittenWords = std::result::Result<Option<(Vec<u64>, Description)>, String>;

impl Types {
    pub(crate) fn of<Args: Tree, R: Tree>() -> Types {
        Types {
            arguments: |words, tensors| rewrite::<Args>(words, tensors, Description::of::<Args>),
            results: |words, tensors| rewrite::<R>(words, tensors, Description::of_result),
        }
    }
}

/// Writes records.
pub(crate) fn encode(records: &[Record], to: &mut Encoder) {
    to.list(records, |to, record| record.encode(to));
}

/// Reads records; they are still to be verified.
pub(crate) fn decode(payload: &[u8]) -> Result<Vec<Record>> {
    let mut from = Decoder::new(payload);
    let records = from.list(Record::decode)?;
    match from.is_done() {
        true => Ok(records),
        false => Err(malformed("there is more after the last entry")),
    }
}

impl Record {
    /// The record of an entry.
    ///
    /// # Errors
    ///
    /// Fails if the graph's text does not read back as the graph, or the graph is larger than a load allows.
    pub(crate) fn of(entry: &Entry) -> Result<Record> {
        let (arguments, trace) = (entry.signature.to_string(), &entry.trace);
        let refuse = |message: String| ArtefactError::NoText { entry: arguments.clone(), message };
        check_size(&trace.graph).map_err(refuse)?;
        let text = entry.recorded_text();
        match text.parse::<Graph>() {
            Ok(read) if read == trace.graph => {}
            Ok(_) => return Err(refuse("its graph reads back as another one".into())),
            Err(e) => return Err(refuse(format!("its graph does not read back: {e}"))),
        }
        let on_host = |tensor: &Tensor| match tensor.to(Device::Cpu) {
            tensor if tensor.error().is_none() => Ok(tensor),
            tensor => Err(refuse(format!("{tensor} does not come from its device"))),
        };
        let captures =
            trace.captures.iter().map(|capture| Ok(Capture { tensor: on_host(&capture.tensor)?, ..capture.clone() }));
        let sources = trace.sources.iter().map(|source| match source {
            Source::Constant(tensor) => Ok(Source::Constant(on_host(tensor)?)),
            Source::Output(_) | Source::Parameter(_) => Ok(source.clone()),
        });
        Ok(Record {
            words: entry.signature.argument_words().to_vec(),
            modes: entry.signature.modes(),
            devices: entry.signature.devices().map(|device| device.code().into()).collect(),
            arguments: arguments.clone(),
            text,
            captures: captures.collect::<Result<_>>()?,
            results: trace.words.clone(),
            sources: sources.collect::<Result<_>>()?,
        })
    }

    fn encode(&self, to: &mut Encoder) {
        to.words(&self.words);
        let CallModes { is_fast, traps, is_nondeterministic } = self.modes;
        to.u8(u8::from(traps) | u8::from(is_fast) << 1 | u8::from(is_nondeterministic) << 2);
        to.words(&self.devices);
        to.text(&self.arguments);
        to.text(&self.text);
        to.list(&self.captures, |to, capture| {
            to.text(&capture.at.to_string());
            write_tensor(to, &capture.tensor);
        });
        to.words(&self.results);
        to.list(&self.sources, |to, source| match source {
            Source::Output(position) => {
                to.u8(0);
                to.count(*position);
            }
            Source::Parameter(position) => {
                to.u8(1);
                to.count(*position);
            }
            Source::Constant(tensor) => {
                to.u8(2);
                write_tensor(to, tensor);
            }
        });
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Record> {
        let capture = |from: &mut Decoder<'_>| {
            let at = Line::Noted(Arc::from(from.text()?));
            Ok(Capture { at, tensor: read_tensor(from)?, origin: Weak::new() })
        };
        let source = |from: &mut Decoder<'_>| match from.u8()? {
            0 => from.position().map(Source::Output),
            1 => from.position().map(Source::Parameter),
            2 => read_tensor(from).map(Source::Constant),
            kind => Err(malformed(format!("there is no source of kind {kind}"))),
        };
        Ok(Record {
            words: from.words()?,
            modes: match from.u8()? {
                modes @ 0..8 => {
                    CallModes { traps: modes & 1 != 0, is_fast: modes & 2 != 0, is_nondeterministic: modes & 4 != 0 }
                }
                modes => return Err(malformed(format!("there are no modes {modes}"))),
            },
            devices: from.words()?,
            arguments: from.text()?.to_owned(),
            text: from.text()?.to_owned(),
            captures: from.list(capture)?,
            results: from.words()?,
            sources: from.list(source)?,
        })
    }

    /// Checks everything that a trace guarantees.
    pub(crate) fn verify(self, types: &Types) -> Result<Verified> {
        let name: String = self.arguments.chars().take(200).collect();
        self.verified(types).map_err(|message| malformed(format!("entry ({name}): {message}")))
    }

    fn verified(self, types: &Types) -> std::result::Result<Verified, String> {
        let graph: Graph = self.text.parse().map_err(|e| format!("its graph does not read: {e}"))?;
        check_size(&graph)?;
        graph.verify().map_err(|e| format!("its graph does not verify: {e}"))?;
        let param_types: Vec<&TensorType> = graph.params().iter().map(|&id| graph.ty(id)).collect();
        let n_args = param_types.len().checked_sub(self.captures.len()).ok_or("it captures more than it takes")?;
        let (args, captured) = param_types.split_at(n_args);
        if !self.captures.iter().map(|capture| capture.tensor.ty()).eq(captured.iter().map(|&ty| Some(ty))) {
            return Err("what it captures is not what its graph takes".into());
        }
        let devices = self.devices.iter().map(|&code| Device::from_code(code)).collect::<Option<Vec<_>>>();
        let devices = devices.filter(|devices| devices.len() == args.len()).ok_or("its tensors are nowhere")?;
        let arguments = (types.arguments)(&self.words, &stand_ins(args, &devices))?;
        let (words, description) =
            arguments.filter(|(words, _)| *words == self.words).ok_or("its signature is not one of these arguments")?;
        let signature = Signature::in_modes(self.modes, words.into_iter().collect(), description);
        let sources: Vec<&TensorType> = self
            .sources
            .iter()
            .map(|source| source_type(source, &graph))
            .collect::<Option<_>>()
            .ok_or("a result comes from nowhere")?;
        let result_devices = vec![signature.target().device; sources.len()];
        let results = (types.results)(&self.results, &stand_ins(&sources, &result_devices))?;
        let (_, result) =
            results.filter(|(words, _)| *words == self.results).ok_or("its result is not one of this type")?;
        let trace = Trace { graph, captures: self.captures, words: self.results, sources: self.sources, result };
        Ok(Verified { signature, trace, text: self.text })
    }
}

fn check_size(graph: &Graph) -> std::result::Result<(), String> {
    match graph.n_nodes() {
        n if n > MAX_NODES => Err(format!("its graph has {n} nodes; an artefact holds graphs of at most {MAX_NODES}")),
        _ => Ok(()),
    }
}

fn source_type<'a>(source: &'a Source, graph: &'a Graph) -> Option<&'a TensorType> {
    match source {
        Source::Output(position) => graph.outputs().get(*position).map(|&id| graph.ty(id)),
        Source::Parameter(position) => graph.params().get(*position).map(|&id| graph.ty(id)),
        Source::Constant(tensor) => tensor.ty(),
    }
}

/// Tensors of these types that have no elements: values of a tape that nobody runs.
fn stand_ins(types: &[&TensorType], devices: &[Device]) -> Vec<Tensor> {
    let tape = Tape::new();
    types.iter().zip(devices).map(|(&ty, &device)| tape.parameter_on(ty.clone(), device)).collect()
}

/// A [`Rewrite`]. Types of the program may do anything with words that they never wrote; only a panic is caught.
fn rewrite<T: Tree>(words: &[u64], tensors: &[Tensor], describe: fn(&Writer<'_>) -> Description) -> RewrittenWords {
    let rewritten = || {
        let tree = T::read(&mut Reader::new(words, tensors))?;
        let mut leaves = Writer::with_paths();
        tree.write(&mut leaves);
        let id = |tensor: &Tensor| tensor.as_traced().map(|traced| traced.id);
        let same = leaves.tensors.iter().map(|tensor| id(tensor)).eq(tensors.iter().map(id));
        Ok(same.then(|| (leaves.words.to_vec(), describe(&leaves))))
    };
    // Words and tensors serve nobody after a panic.
    match catch_unwind(AssertUnwindSafe(rewritten)) {
        Ok(rewritten) => rewritten.map_err(|e: crate::Error| e.to_string()),
        Err(payload) => Err(format!("reading a `{}` panicked: {}", type_name::<T>(), panic_message(payload))),
    }
}

fn write_tensor(to: &mut Encoder, tensor: &Tensor) {
    // Neither captures nor results of a finished trace are anything but concrete.
    let concrete = tensor.as_concrete().expect("an entry holds concrete tensors");
    to.text(&concrete.ty().to_string());
    let len = concrete.ty().checked_bytes().expect("a concrete tensor is in memory");
    let bytes = concrete.host_bytes().expect("a record holds tensors in main memory");
    to.bytes(&bytes.bytes()[..len]);
}

fn read_tensor(from: &mut Decoder<'_>) -> Result<Tensor> {
    let text = from.text()?;
    let ty = parse_type(text).ok_or_else(|| malformed(format!("{text:.40?} is no type of a tensor")))?;
    let bytes = from.bytes()?;
    if ty.checked_bytes() != Some(bytes.len()) {
        return Err(malformed(format!("a {ty} has {} bytes", bytes.len())));
    }
    if ty.dtype == DType::Bool && bytes.iter().any(|&byte| byte > 1) {
        return Err(malformed("a truth value is neither 0 nor 1"));
    }
    let buffer = Buffer::from_bytes(bytes).map_err(|e| malformed(format!("a {ty} has no room: {e}")))?;
    Ok(Tensor::concrete(ty, buffer))
}
