//! The tape: records ops while a closure runs on traced tensors.
//!
//! Guarantees: a finished tape accepts nothing, so that a traced tensor which outlives it is an error at its next use;
//! the first error of a trace is kept even if the closure drops the poisoned value; a concrete tensor that meets a
//! traced one becomes a hidden input, once per tensor.
//!
//! A tape is recorded either to be compiled as a whole or to be evaluated op by op. On the second kind, accelerated
//! functions stay calls of their machine code; on the first they become part of the trace.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use retape_runtime::{Device, lock, note_progress};

use crate::error::{Caller, Error, Result, caught, ill_typed};
use crate::graph::{Args, Graph, Node};
use crate::method::{origin, reported};
use crate::ops::{Add, Call, Callee, Op, Parameter};
use crate::tensor::{Concrete, Recording, Tensor, Traced};
use crate::types::{TensorType, ValueId};

/// A recorder shared by the traced tensors of one trace.
#[derive(Debug)]
pub(crate) struct Tape {
    state: Mutex<TapeState>,
    is_evaluated: bool,
    /// Whether the trace is looked at and then forgotten.
    is_compared: bool,
    /// Where what it records will run.
    device: Device,
}

#[derive(Debug)]
struct TapeState {
    graph: Graph,
    /// Hidden inputs with the line that brought each in; the map finds them by address, and they keep it theirs.
    captures: Vec<Capture>,
    captured: HashMap<usize, ValueId>,
    error: Option<Arc<Error>>,
    /// The explicit input that the error is about, by its position, and how the error calls it.
    blamed: Option<(usize, String)>,
    finished: bool,
    /// Whether the leaves of the result are to be described.
    describes: bool,
    /// Whether NaN and infinities that an op makes are an error of the evaluation.
    is_trapped: bool,
    /// The token of the last op with an effect.
    last_effect: Option<ValueId>,
}

/// A concrete tensor that the closure captured.
#[derive(Clone, Debug)]
pub(crate) struct Capture {
    /// The tensor, with the value it had at trace time.
    pub(crate) tensor: Tensor,
    /// The line that used it.
    pub(crate) at: Line,
    /// The tensor that the closure held: the owner of the bytes before they were sent to a device. A weak handle is enough
    /// to recognise it, and keeps no bytes alive.
    pub(crate) origin: Weak<Concrete>,
}

/// A line of a program: of this one, or of the one that saved an artefact.
#[derive(Clone, Debug)]
pub(crate) enum Line {
    Known(Caller),
    Noted(Arc<str>),
}

impl Line {
    /// The line, if it is one of this program.
    pub(crate) fn known(&self) -> Option<Caller> {
        match self {
            Line::Known(at) => Some(at),
            Line::Noted(_) => None,
        }
    }
}

/// Lines are equal if they read alike.
impl PartialEq for Line {
    fn eq(&self, other: &Line) -> bool {
        match (self, other) {
            (Line::Known(one), Line::Known(other)) => one == other,
            (one, other) => one.to_string() == other.to_string(),
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Line::Known(at) => at.fmt(f),
            Line::Noted(at) => f.write_str(at),
        }
    }
}

/// The recording of a finished tape.
#[derive(Debug)]
pub(crate) struct Recorded {
    /// The graph; its parameters are the explicit inputs, then the captures. Outputs are still to be named.
    pub(crate) graph: Graph,
    /// The hidden inputs.
    pub(crate) captures: Vec<Capture>,
    /// The token of the last effect, which must be an output.
    pub(crate) last_effect: Option<ValueId>,
}

impl Tape {
    /// An empty tape that is to be compiled for the processor, or not at all.
    pub(crate) fn new() -> Arc<Tape> {
        Tape::on(Device::Cpu)
    }

    /// An empty tape that is to be compiled for a device.
    pub(crate) fn on(device: Device) -> Arc<Tape> {
        Arc::new(Tape::of_kind(device))
    }

    /// An empty tape that is to be evaluated op by op on a device.
    pub(crate) fn evaluated(device: Device) -> Arc<Tape> {
        Arc::new(Tape { is_evaluated: true, ..Tape::of_kind(device) })
    }

    fn of_kind(device: Device) -> Tape {
        let state = TapeState {
            graph: Graph::default(),
            captures: vec![],
            captured: HashMap::new(),
            error: None,
            blamed: None,
            finished: false,
            describes: false,
            is_trapped: false,
            last_effect: None,
        };
        Tape { state: Mutex::new(state), is_evaluated: false, is_compared: false, device }
    }

    /// An empty tape whose trace describes its result, for a comparison with another one.
    pub(crate) fn describing(device: Device) -> Arc<Tape> {
        let tape = Tape::on(device);
        tape.lock().describes = true;
        tape
    }

    /// As [`describing`](Tape::describing), for a trace that is compared with another one and never run: nothing is sent
    /// to a device, and nothing is logged.
    pub(crate) fn comparing(device: Device) -> Arc<Tape> {
        let tape = Tape { is_compared: true, ..Tape::of_kind(device) };
        tape.lock().describes = true;
        Arc::new(tape)
    }

    /// Whether the trace is compared with another one and never run.
    pub(crate) fn is_compared(&self) -> bool {
        self.is_compared
    }

    /// Whether the leaves of the result are to be described.
    pub(crate) fn describes(&self) -> bool {
        self.lock().describes
    }

    fn lock(&self) -> MutexGuard<'_, TapeState> {
        // A panic inside the lock can only come from a broken invariant; the state itself is whole after each push.
        lock(&self.state)
    }

    /// A new explicit input.
    pub(crate) fn parameter(self: &Arc<Tape>, ty: TensorType) -> Tensor {
        self.parameter_on(ty, self.device)
    }

    /// A new explicit input that says it is on a device: that of the tape, or a number in main memory.
    pub(crate) fn parameter_on(self: &Arc<Tape>, ty: TensorType, device: Device) -> Tensor {
        let id = self.lock().parameter(ty.clone());
        Tensor::traced(Traced { recording: Arc::<Tape>::clone(self), id, ty, device })
    }

    /// Where what it records will run.
    pub(crate) fn device(&self) -> Device {
        self.device
    }

    /// Records an application; concrete arguments become hidden inputs.
    pub(crate) fn record(self: &Arc<Tape>, op: Op, args: &[&Tensor], at: Caller) -> Tensor {
        note_progress();
        let mut state = self.lock();
        if state.finished {
            return Tensor::poisoned(escaped(op.name(), at));
        }
        let (_, at) = reported(op.name(), at);
        let mut ids: Args = args.iter().map(|arg| state.resolve(arg, at)).collect();
        if op.takes_token()
            && let (Some(before), Some(last)) = (ids.last_mut(), state.last_effect)
        {
            // A graph that is replayed here had an order of its own; now it goes on after what there is.
            *before = last;
        }
        let types: Vec<&TensorType> = ids.iter().map(|&id| state.graph.ty(id)).collect();
        match op.admit(&types) {
            Ok(ty) => {
                let is_effect = op.has_effect();
                let id = state.graph.push(Node { op, args: ids, ty: ty.clone(), at: Some(at), origin: origin() });
                state.last_effect = if is_effect { Some(id) } else { state.last_effect };
                drop(state);
                self.value(id, ty)
            }
            Err(e) => {
                drop(state);
                self.fail(ill_typed(op.name(), e.0, at))
            }
        }
    }

    /// Records a call of compiled code: a node for each result, one after the other.
    pub(crate) fn record_call(self: &Arc<Tape>, callee: &Arc<dyn Callee>, args: &[&Tensor], at: Caller) -> Vec<Tensor> {
        let types = callee.output_types();
        if let Some(poison) = args.iter().find(|arg| arg.error().is_some()) {
            return vec![Tensor::clone(poison); types.len()];
        }
        let mut state = self.lock();
        if state.finished {
            return vec![Tensor::poisoned(escaped("call", at)); types.len()];
        }
        let (_, at) = reported("call", at);
        let ids: Args = args.iter().map(|arg| state.resolve(arg, at)).collect();
        let mut push = |(output, ty): (usize, &TensorType)| {
            let op = Call { callee: Arc::clone(callee), output }.into();
            state.graph.push(Node { op, args: ids.clone(), ty: ty.clone(), at: Some(at), origin: origin() })
        };
        let outputs: Vec<ValueId> = types.iter().enumerate().map(&mut push).collect();
        if let Some(&token) = outputs.last().filter(|_| callee.has_effect()) {
            // The effects inside the call have an order of their own; those before it must not be lost.
            state.last_effect = Some(match state.last_effect {
                Some(before) => {
                    let (args, ty) = (Args::from_iter([before, token]), state.graph.ty(token).clone());
                    state.graph.push(Node { op: Add.into(), args, ty, at: Some(at), origin: origin() })
                }
                None => token,
            });
        }
        drop(state);
        outputs.into_iter().zip(types).map(|(id, ty)| self.value(id, ty.clone())).collect()
    }

    /// Whether the trace is evaluated op by op rather than compiled.
    pub(crate) fn is_evaluated(&self) -> bool {
        self.is_evaluated
    }

    /// Makes the evaluation fail where an op makes NaN or an infinity.
    pub(crate) fn trap(&self) {
        self.lock().is_trapped = true;
    }

    /// Whether [`trap`](Tape::trap) was asked for.
    pub(crate) fn is_trapped(&self) -> bool {
        self.lock().is_trapped
    }

    /// The traced tensor for a value.
    pub(crate) fn value(self: &Arc<Tape>, id: ValueId, ty: TensorType) -> Tensor {
        Tensor::traced(Traced { recording: Arc::<Tape>::clone(self), id, ty, device: self.device })
    }

    /// As [`fail`](Recording::fail), with an error about a value that it calls `name`.
    pub(crate) fn fail_about(&self, id: ValueId, name: &str, error: Error) -> Tensor {
        let mut state = self.lock();
        if state.error.is_none() {
            let parameter = state.graph.params().iter().position(|&parameter| parameter == id);
            state.blamed = parameter.map(|parameter| (parameter, name.to_owned()));
        }
        drop(state);
        self.fail(error)
    }

    /// The error of a trace as the caller of the function knows it: if it is about an argument, that is called as
    /// `argument` does, which knows the explicit inputs by their positions.
    pub(crate) fn in_words_of_caller(&self, error: Error, argument: impl FnOnce(usize) -> Option<String>) -> Error {
        let blamed = self.lock().blamed.clone();
        match (error, blamed) {
            (Error::Gradient { message, at, call }, Some((parameter, name))) => {
                let known = argument(parameter).unwrap_or_else(|| name.clone());
                Error::Gradient { message: message.replacen(&name, &known, 1), at, call }
            }
            (error, _) => error,
        }
    }

    /// The error of a trace with the call that made it. An op outside that was refused, whose result the closure
    /// captured, has nothing to do with the call.
    pub(crate) fn in_call(&self, error: Error, function: impl FnOnce() -> Arc<str>, called_at: Caller) -> Error {
        // The result of the closure is its own.
        let is_result = matches!(error, Error::Escaped { op: "return", .. });
        let is_of_op = matches!(error, Error::Type { .. } | Error::Gradient { .. } | Error::Escaped { .. });
        let is_captured = is_of_op && !is_result && self.error().is_none();
        if is_captured { error } else { error.in_call(function, called_at) }
    }

    /// Runs a call on this tape; a panic in it ends the whole trace, whatever the closure makes of the call.
    pub(crate) fn failing_with_panics<T>(&self, call: impl FnOnce() -> Result<T>) -> Result<T> {
        caught(call).inspect_err(|error| {
            if let Error::Panicked(_) = error {
                drop(self.fail(error.clone()));
            }
        })
    }

    /// The first error so far.
    pub(crate) fn error(&self) -> Option<Arc<Error>> {
        self.lock().error.clone()
    }

    /// Runs `look` on the graph so far.
    pub(crate) fn with_graph<T>(&self, look: impl FnOnce(&Graph) -> T) -> T {
        look(&self.lock().graph)
    }

    /// The token of the last effect, if there was one.
    pub(crate) fn last_effect(self: &Arc<Tape>) -> Option<Tensor> {
        let state = self.lock();
        let id = state.last_effect.filter(|_| !state.finished)?;
        let ty = state.graph.ty(id).clone();
        drop(state);
        Some(self.value(id, ty))
    }

    /// Ends the trace and takes what was recorded.
    pub(crate) fn finish(&self) -> Recorded {
        let mut state = self.lock();
        state.finished = true;
        state.captured.clear();
        Recorded {
            graph: std::mem::take(&mut state.graph),
            captures: std::mem::take(&mut state.captures),
            last_effect: state.last_effect,
        }
    }
}

impl Recording for Tape {
    fn fail(&self, error: Error) -> Tensor {
        let error = error.shared();
        self.lock().error.get_or_insert_with(|| Arc::clone(&error));
        Tensor::poisoned_shared(error)
    }

    fn is_finished(&self) -> bool {
        self.lock().finished
    }
}

impl Traced {
    /// The tape that the value is on.
    pub(crate) fn tape(&self) -> Arc<Tape> {
        let recording: Arc<dyn Any + Send + Sync> = Arc::clone(&self.recording) as _;
        recording.downcast().expect("only tapes record")
    }

    /// Whether the value is on this tape.
    pub(crate) fn is_on(&self, tape: &Arc<Tape>) -> bool {
        Arc::as_ptr(&self.recording).addr() == Arc::as_ptr(tape).addr()
    }

    /// Whether both values are on one tape.
    pub(crate) fn is_beside(&self, other: &Traced) -> bool {
        Arc::as_ptr(&self.recording).addr() == Arc::as_ptr(&other.recording).addr()
    }
}

impl TapeState {
    fn parameter(&mut self, ty: TensorType) -> ValueId {
        let op = Op::Parameter(Parameter { index: self.graph.params().len(), ty: ty.clone() });
        self.graph.push(Node { op, args: Args::new(), ty, at: None, origin: None })
    }

    /// Invariant: `tensor` is concrete or belongs to this tape; callers have sorted out the rest.
    fn resolve(&mut self, tensor: &Tensor, at: Caller) -> ValueId {
        if let Some(traced) = tensor.as_traced() {
            return traced.id;
        }
        let concrete = tensor.as_concrete().expect("poisoned tensors never reach a tape");
        let address = Arc::as_ptr(concrete).addr();
        if let Some(&id) = self.captured.get(&address) {
            return id;
        }
        let id = self.parameter(concrete.ty().clone());
        self.captured.insert(address, id);
        let origin = Arc::downgrade(concrete.owner());
        self.captures.push(Capture { tensor: tensor.clone(), at: Line::Known(at), origin });
        id
    }
}

/// The error of an op on a traced tensor whose trace has ended.
pub(crate) fn escaped(op: &'static str, at: Caller) -> Error {
    let message =
        "a traced tensor was used after its trace had ended; return it from the closure instead of storing it";
    let (op, at) = reported(op, at);
    Error::Escaped { op, message, at, call: None }
}
