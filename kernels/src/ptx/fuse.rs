//! Which steps of a plan are one: a product and the pointwise kernel that alone reads it.
//!
//! The product is computed where the kernel stood, and its result is never stored. This holds if nothing in between
//! writes what the product reads, nobody else reads its result, and the kernel does not write over the product's
//! operands, which blocks of the one launch would still be reading. Bits do not change.

use std::borrow::Cow;
use std::ops::Range;

use smallvec::{SmallVec, smallvec};

use super::product::{self, Epilogue};
use super::{Launches, Target, launchable, lower};
use crate::error::Result;
use crate::ir::{Affine, Kernel, KernelBuilder, ParamId};
use crate::library::Library;
use crate::plan::{Operand, Place, Plan, Step, Work};

/// Steps of a plan that run as one.
#[derive(Clone, Debug)]
pub struct FusedStep {
    /// Their numbers: one, or a product and what follows it.
    pub steps: SmallVec<[usize; 2]>,
    /// The operands that they read and write, numbered as the launches' arguments say.
    pub operands: SmallVec<[Operand; 6]>,
    epilogue: Option<Epilogue>,
}

/// The steps of a plan, each on its own.
pub fn unfused(plan: &Plan) -> Vec<FusedStep> {
    (0..plan.steps.len()).map(|n| alone(plan, n)).collect()
}

fn alone(plan: &Plan, n: usize) -> FusedStep {
    FusedStep { steps: smallvec![n], operands: plan.steps[n].operands.clone(), epilogue: None }
}

/// The steps of a plan in the order in which they run, some of them together.
pub fn fuse(plan: &Plan, target: Target) -> Vec<FusedStep> {
    // The product that each step takes in.
    let mut taken: Vec<Option<(usize, FusedStep)>> = plan.steps.iter().map(|_| None).collect();
    for n in 0..plan.steps.len() {
        if let Some((reader, fused)) = follower(plan, n, target)
            && taken[reader].is_none()
        {
            taken[reader] = Some((n, fused));
        }
    }
    let gone: Vec<usize> = taken.iter().flatten().map(|(product, _)| *product).collect();
    let steps = taken.into_iter().enumerate().filter(|(n, _)| !gone.contains(n));
    steps.map(|(n, taken)| taken.map_or_else(|| alone(plan, n), |(_, fused)| fused)).collect()
}

impl FusedStep {
    /// The number of the step that gives them their place in the order.
    pub fn last(&self) -> usize {
        self.steps[self.steps.len() - 1]
    }

    /// The steps as a range: without the first of two that other steps lie between.
    pub fn range(&self) -> Range<usize> {
        let last = self.last();
        if self.steps[0] + 1 == last { last - 1..last + 1 } else { last..last + 1 }
    }

    /// The launches of the steps; arguments are numbers of [`operands`](FusedStep::operands).
    ///
    /// # Errors
    ///
    /// Fails if a step cannot run on the device.
    pub fn lower(&self, plan: &Plan, target: Target) -> Result<Launches> {
        let step = &plan.steps[self.steps[0]];
        if let (Some(epilogue), Work::Library(library)) = (&self.epilogue, &step.work)
            && let Some(launches) = product::lower(library, Some(epilogue), target)?
        {
            return launchable(launches, || library.to_string());
        }
        lower(step, target)
    }
}

/// The work as a kernel that may be pointwise. Casts of 16-bit floats are.
fn pointwise(work: &Work) -> Option<Cow<'_, Kernel>> {
    match work {
        Work::Kernel(kernel) => Some(Cow::Borrowed(kernel)),
        Work::Library(Library::CastHalf(cast)) => {
            let kernel = KernelBuilder::new();
            let [from, to] =
                [(cast.from, false), (cast.to, true)].map(|(dtype, written)| kernel.param(dtype, cast.len, written));
            kernel.axis(cast.len, false);
            let value = kernel.load(from, Affine::new(0, &[1])).cast(cast.to);
            kernel.store(to, Affine::new(0, &[1]), value);
            Some(Cow::Owned(kernel.finish()))
        }
        Work::Library(_) => None,
    }
}

/// The bytes of an operand, if it lies in the arena.
fn bytes_of(operand: &Operand) -> Option<Range<usize>> {
    match operand.place {
        Place::Slot { offset } => Some(offset..offset + operand.ty().bytes()),
        Place::Input(_) | Place::Output(_) => None,
    }
}

/// Whether two operands may share memory; an output may be written over an input that is given away.
fn may_overlap(plan: &Plan, one: &Operand, other: &Operand) -> bool {
    let donated = |output: Place, input: Place| match (output, input) {
        (Place::Output(o), Place::Input(i)) => plan.donations.iter().any(|d| (d.output, d.input) == (o, i)),
        _ => false,
    };
    one.overlaps(other) || donated(one.place, other.place) || donated(other.place, one.place)
}

fn parts(step: &Step) -> (&[Operand], &[Operand]) {
    let (_, n_read) = step.work.signature();
    step.operands.split_at(n_read.min(step.operands.len()))
}

/// Whether the order of two steps does not matter: neither writes what the other touches.
pub(crate) fn are_independent(plan: &Plan, one: &FusedStep, other: &FusedStep) -> bool {
    // The result of a product that is taken in is not stored.
    let written = |fused: &FusedStep| parts(&plan.steps[fused.last()]).1;
    let touches = |written: &[Operand], fused: &FusedStep| {
        written.iter().any(|it| fused.operands.iter().any(|operand| may_overlap(plan, it, operand)))
    };
    !touches(written(one), other) && !touches(written(other), one)
}

/// The step that may take product `n` in, and the fused step of both.
fn follower(plan: &Plan, n: usize, target: Target) -> Option<(usize, FusedStep)> {
    let step = &plan.steps[n];
    let Work::Library(library @ (Library::MatMul(_) | Library::Conv2d(_))) = &step.work else { return None };
    let (sources, [result]) = parts(step) else { return None };
    let touches = |operands: &[Operand], it: &Operand| operands.iter().any(|operand| may_overlap(plan, operand, it));
    let range = bytes_of(result)?;
    let reader = (n + 1..plan.steps.len()).find(|later| touches(parts(&plan.steps[*later]).0, result))?;
    let kernel = pointwise(&plan.steps[reader].work)?;
    let (reads, writes) = parts(&plan.steps[reader]);
    let between = plan.steps[n + 1..reader].iter().map(|step| parts(step).1);
    let is_free = |written: &[Operand]| !touches(written, result) && !sources.iter().any(|it| touches(written, it));
    let mut readers = reads.iter().enumerate().filter(|(_, operand)| operand.overlaps(result));
    let (Some((accumulator, operand)), None) = (readers.next(), readers.next()) else { return None };
    let same = operand.ty() == result.ty() && operand.place == result.place;
    let clear = !sources.iter().any(|it| touches(writes, it));
    if !(same && clear && between.into_iter().all(is_free)) || is_read_later(&plan.steps[reader..], range) {
        return None;
    }
    let epilogue = Epilogue::new(&kernel, ParamId(accumulator as u32))?;
    product::fits(library, &epilogue, target).then(|| {
        let all = &plan.steps[reader].operands;
        let operands = sources.iter().copied().chain(epilogue.others().map(|p| all[p])).collect();
        (reader, FusedStep { steps: smallvec![n, reader], operands, epilogue: Some(epilogue) })
    })
}

/// Whether a step after the first of `steps` reads bytes in `range` of the arena before they are written again.
fn is_read_later(steps: &[Step], range: Range<usize>) -> bool {
    let mut left: Vec<Range<usize>> = vec![range];
    for (n, step) in steps.iter().enumerate() {
        let (reads, writes) = parts(step);
        let meets = |bytes: &Range<usize>| left.iter().any(|l| l.start.max(bytes.start) < l.end.min(bytes.end));
        if n > 0 && reads.iter().filter_map(bytes_of).any(|bytes| meets(&bytes)) {
            return true;
        }
        for bytes in writes.iter().filter_map(bytes_of) {
            let cut = |l: Range<usize>| [l.start..l.end.min(bytes.start), l.start.max(bytes.end)..l.end];
            left = left.into_iter().flat_map(cut).filter(|l| l.start < l.end).collect();
        }
    }
    false
}
