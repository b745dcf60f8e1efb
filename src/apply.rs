//! Applying an op to tensors: at once if all are concrete, onto the tape if one is traced.
//!
//! The functions are methods of [`Tensor`], so that the ops, which lie below tapes and code, can call them by the type
//! alone.

use std::panic::Location;
use std::sync::Arc;

use retape_runtime::Shape;
use smallvec::SmallVec;

use crate::eager;
use crate::error::{Caller, Error, ill_typed};
use crate::method::reported;
use crate::ops::{self, BroadcastTo, Op};
use crate::tape::Tape;
use crate::tensor::{Recording, Tensor, Traced};
use crate::types::TensorType;

/// Where an op runs.
enum World {
    Eager,
    Tape(Arc<Tape>),
    /// The result is this poisoned tensor.
    Poisoned(Tensor),
}

impl World {
    fn run(&self, op: Op, args: &[&Tensor], at: Caller) -> Tensor {
        match self {
            World::Poisoned(tensor) => tensor.clone(),
            World::Tape(tape) => tape.record(op, args, at),
            World::Eager => eager::run(op, args, at).unwrap_or_else(Tensor::poisoned),
        }
    }
}

impl Tensor {
    /// Applies an op to arguments that it takes as they are.
    #[track_caller]
    pub(crate) fn apply(op: impl Into<Op>, args: &[&Tensor]) -> Tensor {
        Tensor::apply_at(op, args, Location::caller())
    }

    /// [`apply`](Tensor::apply) with the caller's line given, for use inside closures, where it cannot be tracked.
    pub(crate) fn apply_at(op: impl Into<Op>, args: &[&Tensor], at: Caller) -> Tensor {
        let op = op.into();
        world(op.name(), args, at).run(op, args, at)
    }

    /// Applies an associative op of any number of arguments to `most` at a time: to arguments in order, then to results.
    pub(crate) fn apply_in_groups(op: impl Into<Op>, most: usize, args: &[&Tensor], at: Caller) -> Tensor {
        let op = op.into();
        let world = world(op.name(), args, at);
        let types: Option<Vec<&TensorType>> = args.iter().map(|arg| arg.ty()).collect();
        let is_apart = args.iter().any(|arg| arg.device() != args[0].device());
        // Arguments that do not fit together are refused as one group, since the error counts the arguments.
        if args.len() <= most || is_apart || types.is_none_or(|types| op.infer(&types).is_err()) {
            return world.run(op, args, at);
        }
        let join = |group: &[&Tensor]| match group {
            [one] => Tensor::clone(one),
            _ => world.run(op.clone(), group, at),
        };
        let mut level: Vec<Tensor> = args.chunks(most).map(join).collect();
        while level.len() > 1 {
            if let Some(failed) = level.iter().position(|tensor| tensor.error().is_some()) {
                return level.swap_remove(failed);
            }
            level = level.iter().collect::<Vec<_>>().chunks(most).map(join).collect();
        }
        level.swap_remove(0)
    }

    /// Applies an op to arguments after they have been broadcast to a common shape.
    #[track_caller]
    pub(crate) fn broadcast_apply(op: impl Into<Op>, args: &[&Tensor]) -> Tensor {
        Tensor::broadcast_apply_at(op, args, Location::caller())
    }

    /// [`broadcast_apply`](Tensor::broadcast_apply) with the caller's line given.
    pub(crate) fn broadcast_apply_at(op: impl Into<Op>, args: &[&Tensor], at: Caller) -> Tensor {
        let op = op.into();
        let world = world(op.name(), args, at);
        if let World::Poisoned(tensor) = world {
            return tensor;
        }
        let shape = match ops::broadcast_all(args) {
            Ok(shape) => shape,
            Err(e) => return fail(&world, ill_typed(op.name(), e.0, at)),
        };
        if let Some(error) = unlike_dtypes(&op, args, &shape, at) {
            return fail(&world, error);
        }
        match world {
            World::Poisoned(tensor) => tensor,
            World::Eager => eager::run_broadcast(op, args, &shape, at).unwrap_or_else(Tensor::poisoned),
            World::Tape(tape) => {
                let spread = |arg: &&Tensor| match arg.shape() == &*shape {
                    true => Tensor::clone(arg),
                    false => tape.record(BroadcastTo { shape: shape.clone() }.into(), &[arg], at),
                };
                let args: Vec<Tensor> = args.iter().map(spread).collect();
                let args: Vec<&Tensor> = args.iter().collect();
                tape.record(op, &args, at)
            }
        }
    }

    /// Applies an op without arguments where this tensor lives: on its tape, or at once.
    pub(crate) fn nullary(&self, op: impl Into<Op>, at: Caller) -> Tensor {
        match (self.error(), self.as_traced()) {
            (Some(_), _) => self.clone(),
            (None, Some(traced)) => traced.tape().record(op.into(), &[], at),
            (None, None) => eager::run_on(self.device(), op.into(), &[], at).unwrap_or_else(Tensor::poisoned),
        }
    }
}

/// The refusal of arguments that broadcast to `shape` and do not go together all the same: of their types as they were
/// given, for the caller has not seen others.
fn unlike_dtypes(op: &Op, args: &[&Tensor], shape: &Shape, at: Caller) -> Option<Error> {
    let is_like = |arg: &&Tensor| arg.dtype() == args[0].dtype();
    let is_spread = |arg: &&Tensor| arg.shape() == &**shape;
    if args.iter().all(is_like) || args.iter().all(is_spread) {
        return None;
    }
    let types = |shape_of: &dyn Fn(&Tensor) -> Shape| -> SmallVec<[TensorType; 3]> {
        args.iter().map(|arg| TensorType::new(arg.dtype(), shape_of(arg))).collect()
    };
    let refusal = |types: &[TensorType]| op.infer(&types.iter().collect::<SmallVec<[&TensorType; 3]>>()).err();
    refusal(&types(&|_| shape.clone()))?;
    let refused = refusal(&types(&|arg| Shape::new(arg.shape())))?;
    Some(ill_typed(op.name(), refused.0, at))
}

/// A poisoned tensor; a trace remembers the error as well.
fn fail(world: &World, error: Error) -> Tensor {
    match world {
        World::Tape(tape) => tape.fail(error),
        World::Eager | World::Poisoned(_) => Tensor::poisoned(error),
    }
}

fn world(op: &'static str, args: &[&Tensor], at: Caller) -> World {
    let mut first: Option<&Traced> = None;
    for arg in args {
        if arg.shared_error().is_some() {
            return World::Poisoned(Tensor::clone(arg));
        }
        if let Some(traced) = arg.as_traced() {
            if let Some(other) = first.filter(|first| !first.is_beside(traced)) {
                let message = "mixes traced tensors of two traces; pass the outer one as an argument, \
                               and keep none beyond its trace";
                let (op, at) = reported(op, at);
                let error = Error::Escaped { op, message, at, call: None };
                other.recording.fail(error.clone());
                return World::Poisoned(traced.recording.fail(error));
            }
            first = Some(traced);
        }
    }
    first.map_or(World::Eager, |traced| World::Tape(traced.tape()))
}
