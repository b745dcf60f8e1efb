//! Joins of formulas: the kernel that computes all parts stores them where they belong in the joined value, and no step
//! copies them.
//!
//! The cotangents of a recurrent network's gates are such parts, or both halves of a rotary position embedding. Groups are
//! complete by then, and only kernels that reduce nothing store otherwise than before: no order of additions changes.

use std::collections::HashSet;

use retape_kernels::Work;
use retape_kernels::ir::{Affine, Axis, Inst, Kernel, Param, ParamId, Store, ValueId as KernelValue};
use retape_kernels::library::{Join, Library};
use smallvec::SmallVec;

use super::UnplacedStep;
use super::fuse::Groups;
use super::values::Values;
use crate::types::{ValueId, ValueTable};

/// Elements of a part of a line at least, unless all parts have one: rows of two or three fill no vectors.
const LEAST_RUN: usize = 4;

/// Parts at most: as many stores a kernel has, each compared with each.
const MOST_PARTS: usize = 16;

/// Lines from which on elements that take turns are stored by a kernel rather than copied one by one.
const MANY_LINES: usize = 256;

/// Lets kernels store the parts of joins where these would copy them.
pub(super) fn store_in_joins(values: &Values<'_>, groups: &mut Groups, steps: &mut [Option<UnplacedStep>]) {
    let outputs: HashSet<ValueId> = values.graph.outputs().iter().map(|&output| values.memory_of(output)).collect();
    let is_join = |step: &UnplacedStep| joined(step, &outputs).is_some();
    let joins: Vec<usize> = (0..steps.len()).filter(|&group| steps[group].as_ref().is_some_and(is_join)).collect();
    if joins.is_empty() {
        return;
    }
    let readers = groups.readers();
    for join in joins {
        let Some((maker, kernel, writes)) = stored(values, groups, steps, &readers, &outputs, join) else {
            if let Some(step) = &mut steps[join]
                && let Some(kernel) = joined(step, &outputs).and_then(elements_in_turn)
            {
                step.work = Work::Kernel(kernel);
            }
            continue;
        };
        let Some(after) = steps[join].take() else { continue };
        groups.absorb(maker, join, true);
        if let Some(step) = &mut steps[maker] {
            (step.work, step.writes) = (Work::Kernel(kernel), writes);
            step.roots.extend(after.roots);
            step.label = format!("{}+{}", step.label, after.label);
        }
    }
}

/// A step's join of whole values, unless it is one along the first axis: where no output lies, their places may be parts of
/// the joined one (`join.rs`).
fn joined<'s>(step: &'s UnplacedStep, outputs: &HashSet<ValueId>) -> Option<&'s Join> {
    let Work::Library { kernel: Library::Join(join), epilogue: None } = &step.work else { return None };
    let runs = || join.lens.iter().map(|len| len * join.inner);
    let is_whole = join.offsets.iter().all(|&offset| offset == 0) && join.pitches.iter().copied().eq(runs());
    let fits = runs().all(|run| run >= LEAST_RUN) || runs().all(|run| run == 1);
    let has_lines = join.outer > 1 || step.writes.iter().all(|whole| outputs.contains(whole));
    (has_lines && is_whole && fits && step.reads.len() <= MOST_PARTS).then_some(join)
}

/// A join whose parts have an element of each line as a kernel that stores them side by side, if words of many lines are
/// turned together.
fn elements_in_turn(join: &Join) -> Option<Kernel> {
    let Join { dtype, outer, ref lens, inner, .. } = *join;
    let n = lens.len();
    let is_one = lens.iter().all(|len| len * inner == 1);
    (is_one && n > 1 && dtype.size() == 4 && outer >= MANY_LINES).then_some(())?;
    let params = (0..=n).map(|param| match param == n {
        true => Param { dtype, len: outer * n, written: true },
        false => Param { dtype, len: outer, written: false },
    });
    let store = |part: usize| Store {
        param: ParamId(n as u32),
        at: Affine::new(part as i64, &[n as i64]),
        value: KernelValue(part as u32),
    };
    Some(Kernel {
        params: params.collect(),
        axes: vec![Axis { extent: outer, reduced: false }],
        insts: (0..n).map(|part| Inst::Load(ParamId(part as u32), Affine::new(0, &[1]))).collect(),
        stores: (0..n).map(store).collect(),
    })
}

/// The group that computes all parts of a join, its kernel that stores them in the joined value, and the values that
/// this writes. Parts are needed for nothing else, so that the joined value takes no more memory than they would, for as
/// long. An argument that the formula reads cannot be given away for it, whose memory the parts would have taken besides.
fn stored(
    values: &Values<'_>,
    groups: &Groups,
    steps: &[Option<UnplacedStep>],
    readers: &ValueTable<Vec<usize>>,
    outputs: &HashSet<ValueId>,
    join: usize,
) -> Option<(usize, Kernel, Vec<ValueId>)> {
    let step = steps[join].as_ref()?;
    let (kernel, parts, whole) = (joined(step, outputs)?, &step.reads, *step.writes.first()?);
    let maker = *groups.group_of.get(*parts.first()?)?;
    let made = steps[maker].as_ref()?;
    let is_free = |part: &ValueId| {
        let readers = readers.get(*part).map_or(&[][..], Vec::as_slice);
        made.writes.contains(part) && readers == [join] && !outputs.contains(part)
    };
    // A join may also read a part of a larger value, or one part twice.
    let is_whole = |(n, len): (usize, &usize)| {
        values.graph.ty(parts[n]).n_elements() == kernel.outer * len * kernel.inner && !parts[..n].contains(&parts[n])
    };
    let Work::Kernel(formula) = &made.work else { return None };
    let is_pointwise = formula.axes.iter().all(|axis| !axis.reduced);
    let are_free = parts.iter().all(is_free) && kernel.lens.iter().enumerate().all(is_whole);
    if maker == join || !is_pointwise || !are_free || !groups.can_absorb(maker, join) {
        return None;
    }
    let others = made.writes.iter().copied().filter(|value| !parts.contains(value));
    let writes: Vec<ValueId> = others.chain([whole]).collect();
    let stored = stored_in(formula, kernel, parts, &made.writes, &writes)?;
    Some((maker, stored, writes))
}

/// The kernel, whose results are `made`, with some of them as parts of a join. It writes `writes`, of which the last one is
/// joined. None if its axes cross the lines of a part.
fn stored_in(kernel: &Kernel, join: &Join, parts: &[ValueId], made: &[ValueId], writes: &[ValueId]) -> Option<Kernel> {
    let n_reads = kernel.params.len() - made.len();
    let param = |n: usize| ParamId((n_reads + n) as u32);
    let line = join.lens.iter().sum::<usize>() * join.inner;
    let starts = join.lens.iter().scan(0, |next, len| Some(std::mem::replace(next, *next + len * join.inner)));
    let starts: Vec<usize> = starts.collect();
    let store = |store: &Store| {
        let value = made[store.param.index() - n_reads];
        if let Some(n) = writes.iter().position(|&write| write == value) {
            return Some(Store { param: param(n), ..store.clone() });
        }
        let part = parts.iter().position(|&part| part == value)?;
        let at = in_line(&store.at, &kernel.axes, [join.lens[part] * join.inner, line, starts[part]])?;
        Some(Store { param: param(writes.len() - 1), at, ..*store })
    };
    let stores = kernel.stores.iter().map(store).collect::<Option<_>>()?;
    let others = kernel.params[n_reads..].iter().zip(made).filter(|(_, value)| writes.contains(value));
    let whole = Param { dtype: join.dtype, len: join.outer * line, written: true };
    let others = others.map(|(param, _)| param).copied();
    let params = kernel.params[..n_reads].iter().copied().chain(others).chain([whole]).collect();
    Some(Kernel { params, stores, ..kernel.clone() })
}

/// A position in lines of `width` elements as one in lines of `line` elements, of which those are a part from `start` on.
fn in_line(at: &Affine, axes: &[Axis], [width, line, start]: [usize; 3]) -> Option<Affine> {
    let (width, line) = (width as i64, line as i64);
    let mut end = 0;
    let strides = axes.iter().enumerate().map(|(axis, it)| {
        let (stride, last) = (at.stride(axis), it.extent as i64 - 1);
        if last <= 0 {
            return Some(stride);
        }
        if stride >= width && stride % width == 0 {
            return Some(stride / width * line);
        }
        end += stride * last;
        (stride >= 0 && end < width).then_some(stride)
    });
    let strides = strides.collect::<Option<SmallVec<_>>>()?;
    (at.offset == 0).then(|| Affine { offset: start as i64, strides })
}
