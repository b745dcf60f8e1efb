//! A plan as launches before their code is loaded.

use std::ops::Range;

use smallvec::SmallVec;

use crate::error::Result;
use crate::plan::{Operand, Place, Plan, Step, Work};
use crate::ptx::{self, Argument, Launch, Target};

/// A part that runs without the host in between, or on the host.
pub(super) enum PendingSegment {
    Launches(Vec<PlacedLaunch>),
    /// The step that the host does.
    Host(usize),
}

/// A launch that knows what its arguments are.
pub(super) struct PlacedLaunch {
    pub(super) launch: Launch,
    pub(super) arguments: SmallVec<[ArgumentTarget; 6]>,
    pub(super) task: Task,
}

/// The part of a plan that a launch does.
#[derive(Clone, Debug)]
pub(super) struct Task {
    /// The steps that it is a part of.
    pub(super) steps: Range<usize>,
    /// The steps among them whose results are stored by then.
    pub(super) finished: SmallVec<[usize; 1]>,
}

/// The target of an argument's pointer.
pub(super) enum ArgumentTarget {
    Operand(Operand),
    /// Bytes from the start of scratch memory.
    Scratch(usize),
}

/// The launches of all steps, and the bytes of scratch memory that they need. Where each step is `separate`, none does
/// the work of several.
pub(super) fn segments(plan: &Plan, target: Target, separate: bool) -> Result<(Vec<PendingSegment>, usize)> {
    let (mut pending, mut scratch) = (vec![], 0);
    let mut row = LaunchMerger { plan, separate, done: vec![], open: vec![] };
    for (n, step) in plan.steps.iter().enumerate() {
        if let Work::Library { kernel, .. } = &step.work
            && kernel.has_effect()
        {
            pending.extend(row.take());
            pending.push(PendingSegment::Host(n));
            continue;
        }
        let lowered = if separate { ptx::lower_separately(step, target)? } else { ptx::lower(step, target)? };
        scratch = scratch.max(lowered.scratch);
        let last = lowered.launches.len().saturating_sub(1);
        for (position, launch) in lowered.launches.into_iter().enumerate() {
            row.push(OpenLaunch { launch, step: n, is_last: position == last });
        }
    }
    pending.extend(row.take());
    Ok((pending, scratch))
}

/// The task of each launch and of each step of the host: the steps, and those whose results are stored by then.
pub(super) fn tasks(pending: &[PendingSegment]) -> Vec<Task> {
    let tasks = pending.iter().flat_map(|pending| match pending {
        PendingSegment::Host(n) => vec![Task { steps: *n..n + 1, finished: SmallVec::from([*n]) }],
        PendingSegment::Launches(launches) => launches.iter().map(|placed| placed.task.clone()).collect(),
    });
    tasks.collect()
}

/// Whether the order of two steps does not matter: neither writes what the other touches.
fn are_independent(plan: &Plan, one: &Step, other: &Step) -> bool {
    let touches = |from: &Step, to: &Step| {
        let (_, n_read) = from.work.signature();
        let is_touched = |written: &Operand| to.operands.iter().any(|operand| may_overlap(plan, written, operand));
        from.operands[n_read..].iter().any(is_touched)
    };
    !touches(one, other) && !touches(other, one)
}

/// Whether two operands may share memory; an output may be written over an input that is given away.
fn may_overlap(plan: &Plan, one: &Operand, other: &Operand) -> bool {
    let donated = |output: Place, input: Place| match (output, input) {
        (Place::Output(o), Place::Input(i)) => plan.donations.iter().any(|d| (d.output, d.input) == (o, i)),
        _ => false,
    };
    one.overlaps(other) || donated(one.place, other.place) || donated(other.place, one.place)
}

/// Launches in order. Small ones of steps that do not depend on each other become one.
struct LaunchMerger<'p> {
    plan: &'p Plan,
    separate: bool,
    done: Vec<PlacedLaunch>,
    /// Those that may become one with what comes next.
    open: Vec<OpenLaunch>,
}

/// A launch that may become one with others.
struct OpenLaunch {
    launch: Launch,
    /// The number of the step that it belongs to, and whether it is the last launch of that.
    step: usize,
    is_last: bool,
}

impl LaunchMerger<'_> {
    fn push(&mut self, next: OpenLaunch) {
        if !self.can_run_concurrently(&next) {
            self.close();
        }
        self.open.push(next);
    }

    fn step(&self, launch: &OpenLaunch) -> &Step {
        &self.plan.steps[launch.step]
    }

    /// Whether a launch may run beside all that are open.
    fn can_run_concurrently(&self, next: &OpenLaunch) -> bool {
        // The launches of one step depend on each other.
        let is_free = |other: &OpenLaunch| {
            other.step != next.step && are_independent(self.plan, self.step(other), self.step(next))
        };
        let is_behind = |last: &OpenLaunch| last.step + 1 == next.step;
        let uses_scratch = |launch: &Launch| launch.arguments.iter().any(|a| matches!(a, Argument::Scratch(_)));
        let all: SmallVec<[&Launch; 16]> = self.open.iter().chain([next]).map(|open| &open.launch).collect();
        !self.separate
            && self.open.last().is_none_or(is_behind)
            && self.open.iter().all(is_free)
            && all.iter().all(|launch| ptx::is_small(launch))
            && all.iter().filter(|launch| uses_scratch(launch)).count() <= 1
            && ptx::can_merge(&all)
    }

    /// Makes one launch of those that are open.
    fn close(&mut self) {
        let open = std::mem::take(&mut self.open);
        let (Some(first), Some(last)) = (open.first(), open.last()) else { return };
        let steps = first.step..last.step + 1;
        let finished = open.iter().filter(|open| open.is_last).map(|open| open.step).collect();
        let arguments = open.iter().flat_map(|open| self.origins(open)).collect();
        let launch = match open.as_slice() {
            [alone] => alone.launch.clone(),
            _ => ptx::merge_launches(&open.iter().map(|open| &open.launch).collect::<SmallVec<[&Launch; 16]>>()),
        };
        self.done.push(PlacedLaunch { launch, arguments, task: Task { steps, finished } });
    }

    /// The targets of a launch's arguments.
    fn origins(&self, open: &OpenLaunch) -> SmallVec<[ArgumentTarget; 6]> {
        let at = |argument: &Argument| match *argument {
            Argument::Operand(n) => ArgumentTarget::Operand(self.step(open).operands[n]),
            Argument::Scratch(offset) => ArgumentTarget::Scratch(offset),
        };
        open.launch.arguments.iter().map(at).collect()
    }

    /// The launches so far, if there are any.
    fn take(&mut self) -> Option<PendingSegment> {
        self.close();
        let done = std::mem::take(&mut self.done);
        (!done.is_empty()).then_some(PendingSegment::Launches(done))
    }
}
