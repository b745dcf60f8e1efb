//! Loop nests: kernels of the IR as launches.
//!
//! Nests without reductions are one launch, in which each point is made once. Reductions have one fixed tree per
//! shape, in two launches where one would leave most of a device idle or make chains of additions long.

mod body;
mod combine;
pub(super) mod index;
mod pointwise;
mod reduce;
mod schedule;

use smallvec::SmallVec;

use super::{Argument, Launches, Target, fast};
use crate::ir::{Inst, Kernel, ParamId};
use crate::plan::{Operand, Place};
use crate::ptx::PtxFunction;
use crate::schedule::{LoopForm, Source, canonical};
use body::{BodyEmitter, Vector};
use index::{Ints, NARROW};

/// The alignment of all buffers.
const BUFFER_ALIGN: usize = 256;

/// A canonical kernel with what its parameters are.
pub(super) struct BoundKernel<'k> {
    kernel: &'k Kernel,
    form: &'k LoopForm<'k>,
    /// The target of each parameter's pointer.
    arguments: &'k [Argument],
    /// The least alignment of each parameter's address.
    aligns: &'k [usize],
    ints: Ints,
    target: Target,
}

/// The launches of a kernel on some operands.
pub(super) fn lower(kernel: &Kernel, operands: &[Operand], target: Target) -> Launches {
    let aligns: Vec<usize> = operands.iter().map(align_of).collect();
    let arguments: Vec<Argument> = (0..operands.len()).map(Argument::Operand).collect();
    let mut launches = Launches::default();
    for part in parts(prepared(kernel, target)) {
        lower_part(&part, &arguments, &aligns, target, &mut launches);
    }
    launches
}

/// Appends the launches of a kernel.
fn lower_part(kernel: &Kernel, arguments: &[Argument], aligns: &[usize], target: Target, launches: &mut Launches) {
    let Some(kernel) = canonical(kernel) else { return };
    let ints = Ints { wide: is_large(&kernel) };
    let form = LoopForm::of_threads(&kernel);
    let nest = BoundKernel { kernel: &kernel, form: &form, arguments, aligns, ints, target };
    if !kernel.axes.iter().any(|a| a.reduced) {
        launches.launches.push(pointwise::lower(&nest));
        return;
    }
    let plan = schedule::reduction(&nest);
    if plan.chunks == 1 {
        launches.launches.push(reduce::lower(&nest, plan, &[]));
        return;
    }
    let (second, sources, scratch) = crate::schedule::reduction_of_partials(&kernel, plan.chunks, BUFFER_ALIGN);
    let start = launches.scratch;
    launches.scratch += scratch;
    let argument = |source: &Source| match *source {
        Source::Param(p) => (arguments[p], aligns[p]),
        Source::Scratch(at) => (Argument::Scratch(start + at), BUFFER_ALIGN),
    };
    let (all, all_aligns): (Vec<Argument>, Vec<usize>) = sources.iter().map(argument).unzip();
    launches.launches.push(reduce::lower(&nest, plan, &all[arguments.len()..]));
    lower_part(&second, &all, &all_aligns, target, launches);
}

/// The kernel in the form that is compiled: simple, and without functions that the target does not have.
pub(super) fn prepared(kernel: &Kernel, target: Target) -> Kernel {
    let mut kernel = crate::simplify(kernel);
    if target.fast {
        kernel = fast::contract(&kernel);
    }
    let expanded = crate::expand::expand_but(&kernel, |func, dtype| target.fast && fast::has(func, dtype));
    crate::simplify(&expanded)
}

/// A kernel with reduced axes but without reductions as two: the stores at every point, and the others.
fn parts(kernel: Kernel) -> Vec<Kernel> {
    let has_reductions = kernel.insts.iter().any(|inst| matches!(inst, Inst::Reduce(..)));
    if has_reductions || !kernel.axes.iter().any(|a| a.reduced) {
        return vec![kernel];
    }
    let (everywhere, once) = kernel.stores.iter().cloned().partition(|s| kernel.uses_reduced(&s.at));
    let mut points = Kernel { stores: everywhere, ..kernel.clone() };
    for axis in &mut points.axes {
        axis.reduced = false;
    }
    vec![points, Kernel { stores: once, ..kernel }]
}

fn align_of(operand: &Operand) -> usize {
    match operand.place {
        Place::Slot { offset } => 1 << (BUFFER_ALIGN | offset).trailing_zeros(),
        Place::Input(_) | Place::Output(_) => BUFFER_ALIGN,
    }
}

/// Whether a count or position needs 64 bits.
fn is_large(kernel: &Kernel) -> bool {
    // Threads beyond the end count on for less than this.
    const SLACK: usize = 1 << 16;
    kernel.n_points() >= NARROW - SLACK || kernel.params.iter().any(|p| p.len >= NARROW)
}

/// Neighbours along an axis; none for one point.
fn vector_of(axis: usize, lanes: usize) -> Option<Vector> {
    (lanes > 1).then_some(Vector { axis, lanes })
}

impl<'k> BoundKernel<'k> {
    /// An empty kernel that knows the addresses of the parameters in use, and `more` after them.
    fn begin(
        &self,
        name: &str,
        block: usize,
        more: &[Argument],
    ) -> (PtxFunction, BodyEmitter<'k>, SmallVec<[Argument; 6]>) {
        let mut used = vec![false; self.arguments.len()];
        let mut mark = |p: ParamId| used[p.index()] = true;
        for inst in &self.kernel.insts {
            if let Inst::Load(p, _) | Inst::LoadAt(p, _) = inst {
                mark(*p);
            }
        }
        self.kernel.stores.iter().for_each(|s| mark(s.param));
        let own = self.arguments.iter().zip(&used).filter(|(_, used)| **used).map(|(argument, _)| *argument);
        let arguments: SmallVec<[Argument; 6]> = own.chain(more.iter().copied()).collect();
        let mut f = PtxFunction::new(name, self.target, block as u32, arguments.len());
        // Left to itself, the assembler spills registers to fit more blocks than there is need for.
        f.min_blocks_per_sm(1);
        let body = BodyEmitter::new(self, &mut f, &used);
        (f, body, arguments)
    }
}
