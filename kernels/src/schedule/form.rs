//! The loop form: the loops of a kernel from the outermost to the innermost, and the steps of each in order. It stands
//! between the schedule and the emitters, which translate its steps to instructions and decide none of this again.
//!
//! Guarantees that a value is made once, in the outermost loop that knows all coordinates it depends on, or behind the
//! reduced loops if nothing inside them needs it; that a step uses only values of steps before it; and that steps behind
//! a branch around a cold region make values that nothing outside of it uses.
//!
//! Reductions have no steps, for where they run follows from the loops: they begin before the loops inside the last
//! kept loop, take their operands at the end of the innermost loop's steps, and are complete where the tail begins.

use std::iter;
use std::ops::Range;

use retape_runtime::DType;

use super::cold::ColdRegions;
use super::order::{PlacedValues, ordered};
use super::step::LoopStep;
use super::{Nest, REDUCTION_LANES, Traversal};
use crate::ir::{Affine, Inst, Kernel, ReductionOp, Stage, Store, ValueId, operation};

/// Bytes between two accesses that share a pointer, at most: any instruction has room for them.
const MAX_DISTANCE: i64 = 1 << 24;

/// A loop, or the function around all loops.
#[derive(Clone, Debug)]
pub(crate) struct FormLoop {
    /// The axes that it counts, as one.
    pub(crate) axes: Range<usize>,
    /// Steps that all groups which are under way together make first: loads; then loads at computed positions, with the
    /// steps that these positions need. Only of the innermost loop of threads.
    pub(crate) fetches: [Vec<LoopStep>; 2],
    /// The steps before the loops inside.
    pub(crate) steps: Vec<LoopStep>,
    /// The steps behind the loops inside.
    pub(crate) tail: Vec<LoopStep>,
    /// The values of `steps` that others than those use.
    pub(crate) leaves: Vec<usize>,
}

/// A place in a loop form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LoopPlace {
    /// The number of the loop.
    level: usize,
    /// Whether it is behind the loops inside.
    is_tail: bool,
}

/// A reduction over the reduced axes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReducedValue {
    /// The reduction.
    pub(crate) id: usize,
    pub(crate) op: ReductionOp,
    /// The value that it reduces.
    pub(crate) of: ValueId,
    pub(crate) dtype: DType,
    /// Whether it differs between groups.
    pub(crate) is_grouped: bool,
}

/// A pointer to the element of a parameter at the coordinates of all loops.
#[derive(Clone, Debug)]
pub(crate) struct FormPointer {
    pub(crate) param: usize,
    pub(crate) at: Affine,
}

/// A kernel as loops and steps.
#[derive(Clone, Debug)]
pub(crate) struct LoopForm<'k> {
    pub(crate) kernel: &'k Kernel,
    /// The number of kept axes, which come first.
    pub(crate) kept: usize,
    /// The vector axis, if there is one.
    pub(crate) axis: Option<usize>,
    /// The dtype of each value.
    pub(crate) dtypes: Vec<DType>,
    /// The function, then its loops from the outermost on.
    pub(crate) loops: Vec<FormLoop>,
    pub(crate) cold: ColdRegions,
    pub(crate) reductions: Vec<ReducedValue>,
    /// Vector accumulators of a row, of [`REDUCTION_LANES`] lanes each: element `e` is added to lane `e` modulo the lanes
    /// of accumulator `e / lanes` modulo their number, in order; then neighbouring accumulators are combined until one is
    /// left, then lanes 0 and 2, 1 and 3, then those two. 0 if a row has less than one vector, whose elements are added
    /// one after the other.
    pub(crate) accumulators: usize,
    /// The pointers of all accesses, then one to the origin of each parameter with loads at computed positions.
    pub(crate) pointers: Vec<FormPointer>,
    /// Of each access, loads first: its pointer and the distance from it in bytes.
    accesses: Vec<(usize, i64)>,
    /// Of each instruction, its access or, of a load at a computed position, its pointer.
    access_of: Vec<usize>,
    /// Of each value, whether it differs between groups.
    is_grouped: Vec<bool>,
}

impl<'k> LoopForm<'k> {
    /// The form of a nest for a processor: tasks take grid items, and one axis has vectors.
    pub(crate) fn of_nest(nest: &'k Nest) -> LoopForm<'k> {
        let (kernel, n_axes) = (&nest.kernel, nest.kernel.axes.len());
        let kept = n_kept(kernel);
        let (axis, grid) = match nest.traversal {
            Traversal::Flat => (Some(0), None),
            Traversal::Columns { .. } | Traversal::Tile => (Some(kept - 1), Some(0..kept - 1)),
            Traversal::Rows if n_axes == 0 => (None, None),
            Traversal::Rows => (Some(n_axes - 1).filter(|&axis| axis >= kept), Some(0..kept)),
        };
        let each = |axis| axis..axis + 1;
        let vectors = axis.filter(|&axis| axis < kept).map(each);
        let loops = grid.into_iter().chain(vectors).chain((kept..n_axes).map(each));
        let mut form = LoopForm::with_loops(kernel, loops, axis);
        let is_row = axis.is_some_and(|axis| axis >= kept);
        form.accumulators = if is_row { nest.unroll.min(kernel.axes[n_axes - 1].extent / REDUCTION_LANES) } else { 0 };
        form.fill_by_groups();
        form
    }

    /// The form of a nest whose sums are those of columns, row by row: the vector axis is the innermost loop, so that
    /// memory is read along its rows, and the sums of the columns of a block wait from row to row. `None` if it is no such
    /// nest, if a sum is that of all columns, or if a value that belongs to a column is needed both in its rows and behind
    /// them.
    pub(crate) fn in_strips(nest: &'k Nest) -> Option<LoopForm<'k>> {
        let (kernel, n_axes) = (&nest.kernel, nest.kernel.axes.len());
        let kept = n_kept(kernel);
        (matches!(nest.traversal, Traversal::Columns { .. }) && kept < n_axes).then_some(())?;
        let each = |axis| axis..axis + 1;
        let loops = iter::once(0..kept - 1).chain((kept..n_axes).map(each)).chain(iter::once(kept - 1..kept));
        let mut form = LoopForm::with_loops(kernel, loops, Some(kept - 1));
        form.fill_by_groups();
        let is_of_columns = !form.reductions.is_empty() && form.reductions.iter().all(|reduced| reduced.is_grouped);
        let stays = form.loops.last().is_some_and(|l| l.leaves.is_empty());
        (is_of_columns && stays).then_some(form)
    }

    /// Whether it is a form [in strips](LoopForm::in_strips).
    pub(crate) fn is_in_strips(&self) -> bool {
        let is_last = |axis: usize| self.level_of(axis) + 1 == self.loops.len();
        self.kept < self.kernel.axes.len() && self.axis.is_some_and(|axis| axis < self.kept && is_last(axis))
    }

    /// Fills the loops of a processor's form.
    fn fill_by_groups(&mut self) {
        let places = self.places();
        self.cold = ColdRegions::of(self.kernel, &self.dtypes, |id| self.is_grouped[id].then_some(places[id]));
        self.fill(&places);
        let n_registers = self.n_registers();
        for n in 0..self.loops.len() {
            let lives_on = self.lives_on(&self.loops[n]);
            let values =
                PlacedValues { kernel: self.kernel, cold: &self.cold, n_registers: &n_registers, lives_on: &lives_on };
            let l = &mut self.loops[n];
            for steps in [&mut l.steps, &mut l.tail] {
                *steps = ordered(values, std::mem::take(steps));
            }
        }
    }

    /// The registers of each value, counted for sixteen groups; 0 if it can be read again.
    pub(super) fn n_registers(&self) -> Vec<usize> {
        const GROUPS: usize = 16;
        let n_registers = |(id, inst): (usize, &Inst<ValueId>)| {
            let size = self.dtypes[id].size();
            let is_whole = |at: &Affine| size >= 4 && self.axis.is_some_and(|axis| at.stride(axis) == 1);
            match inst {
                Inst::Const(_) => 0,
                Inst::Load(_, at) if is_whole(at) => 0,
                Inst::Load(..) | Inst::LoadAt(..) | Inst::Index(_) | Inst::Reduce(..) | operation!() => {
                    size.div_ceil(4) * if self.is_grouped[id] { GROUPS } else { 1 }
                }
            }
        };
        self.kernel.insts.iter().enumerate().map(n_registers).collect()
    }

    /// Of each value, whether it lives on behind the steps of a loop.
    pub(super) fn lives_on(&self, l: &FormLoop) -> Vec<bool> {
        let mut lives_on = vec![false; self.dtypes.len()];
        let reduced = self.reductions.iter().map(|reduced| reduced.of.index());
        l.leaves.iter().copied().chain(reduced).for_each(|id| lives_on[id] = true);
        lives_on
    }

    /// The form of a canonical kernel for a GPU: threads take the kept points, or groups of neighbours among them, and
    /// those that share one take units of its reduced points.
    pub(crate) fn of_threads(kernel: &'k Kernel) -> LoopForm<'k> {
        let (kept, n_axes) = (n_kept(kernel), kernel.axes.len());
        let units = (kept < n_axes).then_some(kept..n_axes);
        let mut form = LoopForm::with_loops(kernel, iter::once(0..kept).chain(units), None);
        let places = form.places();
        let fetched = &fetched(kernel);
        form.cold = ColdRegions::of(kernel, &form.dtypes, |id| fetched[id].is_none().then_some(places[id]));
        form.fill(&places);
        if let Some(inner) = form.loops.last_mut() {
            let fetch =
                |n: usize| move |step: &mut LoopStep| matches!(step, LoopStep::Make(id) if fetched[*id] == Some(n));
            inner.fetches = [0, 1].map(|n| inner.steps.extract_if(.., fetch(n)).collect());
        }
        form
    }

    fn with_loops(kernel: &'k Kernel, loops: impl Iterator<Item = Range<usize>>, axis: Option<usize>) -> LoopForm<'k> {
        let new = |axes| FormLoop { axes, fetches: [vec![], vec![]], steps: vec![], tail: vec![], leaves: vec![] };
        LoopForm {
            kernel,
            kept: n_kept(kernel),
            axis,
            dtypes: kernel.dtypes(),
            loops: iter::once(0..0).chain(loops).map(new).collect(),
            cold: ColdRegions::default(),
            reductions: vec![],
            accumulators: 0,
            pointers: vec![],
            accesses: vec![],
            access_of: vec![0; kernel.insts.len()],
            is_grouped: vec![],
        }
    }

    /// The number of the loop over an axis.
    pub(crate) fn level_of(&self, axis: usize) -> usize {
        self.loops.iter().position(|l| l.axes.contains(&axis)).unwrap_or(0)
    }

    /// The number of the last loop over kept axes, which has the tail.
    pub(crate) fn tail_level(&self) -> usize {
        self.loops.iter().rposition(|l| l.axes.end <= self.kept).unwrap_or(0)
    }

    /// Whether a step is made for each group of an iteration.
    pub(crate) fn is_of_groups(&self, step: LoopStep) -> bool {
        match step {
            LoopStep::Make(id) => self.is_grouped[id],
            LoopStep::Branch(_) | LoopStep::Store(_) => true,
        }
    }

    /// Whether a value differs between groups.
    pub(crate) fn is_grouped(&self, id: usize) -> bool {
        self.is_grouped[id]
    }

    /// The pointer of a load, and the distance from it in bytes.
    pub(crate) fn load(&self, id: usize) -> (usize, i64) {
        let n = self.access_of[id];
        if matches!(self.kernel.insts[id], Inst::LoadAt(..)) { (n, 0) } else { self.accesses[n] }
    }

    /// The pointer of a store, and the distance from it in bytes.
    pub(crate) fn store(&self, n: usize) -> (usize, i64) {
        self.accesses[self.accesses.len() - self.kernel.stores.len() + n]
    }

    /// The largest distance of an access from its pointer in bytes.
    pub(crate) fn farthest(&self) -> i64 {
        self.accesses.iter().map(|&(_, distance)| distance.saturating_abs()).max().unwrap_or(0)
    }

    /// Whether a cast of a coordinate along the vector axis can start from 32 bits.
    pub(crate) fn counts_in_words(&self, x: ValueId, dtype: DType) -> bool {
        let Inst::Index(axis) = self.kernel.insts[x.index()] else { return false };
        let is_short = self.kernel.axes[axis.index()].extent <= i32::MAX as usize;
        self.axis == Some(axis.index()) && is_short && dtype != DType::Bool && !dtype.is_half()
    }

    /// Finds reductions and accesses, and the values that differ between groups; gives the number of the innermost loop
    /// whose coordinates each value depends on.
    fn depend(&mut self) -> Vec<usize> {
        let (kernel, kept) = (self.kernel, self.kept);
        let of_axes: Vec<usize> = (0..kernel.axes.len()).map(|axis| self.level_of(axis)).collect();
        // Per value, the innermost loop over kept axes, and over any.
        let mut levels: Vec<[usize; 2]> = Vec::with_capacity(kernel.insts.len());
        for (id, inst) in kernel.insts.iter().enumerate() {
            let operands = inst.operands();
            let of_operands = |n: usize| operands.iter().map(|v| levels[v.index()][n]).max().unwrap_or(0);
            let (mut level, mut is_grouped) =
                ([0, 1].map(of_operands), operands.iter().any(|v| self.is_grouped[v.index()]));
            let mut vary = |axis: usize| {
                level = [level[0].max(if axis < kept { of_axes[axis] } else { 0 }), level[1].max(of_axes[axis])];
                is_grouped |= self.axis == Some(axis);
            };
            match inst {
                Inst::Index(axis) => vary(axis.index()),
                Inst::Load(param, at) => {
                    at.strides.iter().enumerate().filter(|(_, stride)| **stride != 0).for_each(|(axis, _)| vary(axis));
                    self.access_of[id] = self.accesses.len();
                    self.access(param.index(), at);
                }
                Inst::Reduce(op, of) => {
                    level[1] = level[0];
                    is_grouped &= self.axis.is_some_and(|axis| axis < kept);
                    let dtype = self.dtypes[id];
                    self.reductions.push(ReducedValue { id, op: *op, of: *of, dtype, is_grouped });
                }
                Inst::Const(_) | Inst::LoadAt(..) | operation!() => {}
            }
            levels.push(level);
            self.is_grouped.push(is_grouped);
        }
        kernel.stores.iter().for_each(|store| self.access(store.param.index(), &store.at));
        let n = self.pointers.len();
        for (id, inst) in kernel.insts.iter().enumerate() {
            let Inst::LoadAt(param, _) = inst else { continue };
            let known = self.pointers[n..].iter().position(|p| p.param == param.index());
            self.access_of[id] = n + known.unwrap_or(self.pointers.len() - n);
            if known.is_none() {
                self.pointers.push(FormPointer { param: param.index(), at: Affine::new(0, &[]) });
            }
        }
        levels.into_iter().map(|[_, level]| level).collect()
    }

    /// Appends an access, with a pointer of its own or that of another one at a fixed distance.
    fn access(&mut self, param: usize, at: &Affine) {
        let size = self.kernel.params[param].dtype.size() as i64;
        let known = self.pointers.iter().enumerate().find_map(|(n, p)| {
            let distance = at.offset.checked_sub(p.at.offset)?.checked_mul(size)?;
            let is_near = p.param == param && p.at.strides == at.strides && distance.abs() < MAX_DISTANCE;
            is_near.then_some((n, distance))
        });
        self.accesses.push(known.unwrap_or((self.pointers.len(), 0)));
        if known.is_none() {
            self.pointers.push(FormPointer { param, at: at.clone() });
        }
    }

    /// The place of each value.
    fn places(&mut self) -> Vec<LoopPlace> {
        let (levels, tail_level) = (self.depend(), self.tail_level());
        let is_inside = used_inside(self.kernel);
        let place = |((id, level), stage): ((usize, usize), Stage)| {
            let is_late = stage == Stage::Tail || level == tail_level && !is_inside[id];
            let is_tail = is_late && self.kept < self.kernel.axes.len();
            LoopPlace { level: if is_tail { tail_level } else { level }, is_tail }
        };
        levels.into_iter().enumerate().zip(self.kernel.stages()).map(place).collect()
    }

    fn place_of_store(&self, store: &Store) -> LoopPlace {
        let is_tail = self.kept < self.kernel.axes.len() && !self.kernel.uses_reduced(&store.at);
        LoopPlace { level: if is_tail { self.tail_level() } else { self.loops.len() - 1 }, is_tail }
    }

    /// Fills the loops with the steps of their places.
    fn fill(&mut self, places: &[LoopPlace]) {
        let kernel = self.kernel;
        let mut leaves = vec![false; places.len()];
        for (id, inst) in kernel.insts.iter().enumerate() {
            let inner = LoopPlace { level: self.loops.len() - 1, is_tail: false };
            let user = if matches!(inst, Inst::Reduce(..)) { inner } else { places[id] };
            inst.operands().iter().for_each(|v| leaves[v.index()] |= places[v.index()] != user);
        }
        for store in &kernel.stores {
            leaves[store.value.index()] |= places[store.value.index()] != self.place_of_store(store);
        }
        // Constants come first, since a cold region may use one that stands behind its selects.
        let is_constant = |id: &usize| matches!(kernel.insts[*id], Inst::Const(_));
        let (constants, others): (Vec<usize>, Vec<usize>) = (0..places.len()).partition(is_constant);
        let mut ids = vec![[vec![], vec![]]; self.loops.len()];
        for id in constants.into_iter().chain(others).filter(|id| !matches!(kernel.insts[*id], Inst::Reduce(..))) {
            ids[places[id].level][usize::from(places[id].is_tail)].push(id);
        }
        for (l, [steps, tail]) in self.loops.iter_mut().zip(ids) {
            l.leaves = steps.iter().copied().filter(|&id| leaves[id]).collect();
            [l.steps, l.tail] = [steps, tail].map(|ids| self.cold.steps(ids.into_iter(), None));
        }
        for (n, store) in kernel.stores.iter().enumerate() {
            let place = self.place_of_store(store);
            let l = &mut self.loops[place.level];
            if place.is_tail { &mut l.tail } else { &mut l.steps }.push(LoopStep::Store(n));
        }
    }
}

fn n_kept(kernel: &Kernel) -> usize {
    kernel.axes.iter().filter(|axis| !axis.reduced).count()
}

/// The values that the reduced loops use or make.
fn used_inside(kernel: &Kernel) -> Vec<bool> {
    let mut is_used = vec![false; kernel.insts.len()];
    for store in kernel.stores.iter().filter(|store| kernel.uses_reduced(&store.at)) {
        is_used[store.value.index()] = true;
    }
    for (id, inst) in kernel.insts.iter().enumerate().rev() {
        if is_used[id] || matches!(inst, Inst::Reduce(..)) {
            inst.operands().iter().for_each(|v| is_used[v.index()] = true);
        }
    }
    is_used
}

/// Of each instruction, the fetches that it is part of: 0 for loads, 1 for loads at computed positions and the values
/// that these need.
fn fetched(kernel: &Kernel) -> Vec<Option<usize>> {
    let mut fetched = vec![None; kernel.insts.len()];
    for (id, inst) in kernel.insts.iter().enumerate().rev() {
        match inst {
            Inst::LoadAt(..) => fetched[id] = Some(1),
            Inst::Load(..) => fetched[id] = Some(0),
            Inst::Const(_) | Inst::Index(_) | Inst::Reduce(..) | operation!() => {}
        }
        if fetched[id] == Some(1) {
            inst.operands().iter().for_each(|v| fetched[v.index()] = Some(1));
        }
    }
    fetched
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::random::{random_kernel, random_kernel_of_selects, random_kernel_with_calls};
    use crate::schedule::{canonical, prepared, schedule};

    /// The steps of a form as they run, and what is known then.
    struct Run<'f> {
        form: &'f LoopForm<'f>,
        /// Of each value, the place that has made it.
        made: Vec<Option<LoopPlace>>,
        /// Of each value, whether it was made behind a branch, where nothing else may use it.
        is_cold: Vec<bool>,
        stored: Vec<bool>,
        n_branches: usize,
    }

    impl Run<'_> {
        fn check(form: &LoopForm<'_>) -> usize {
            let n = form.kernel.insts.len();
            let (made, is_cold, stored) = (vec![None; n], vec![false; n], vec![false; form.kernel.stores.len()]);
            let mut run = Run { form, made, is_cold, stored, n_branches: 0 };
            for (level, l) in form.loops.iter().enumerate() {
                let place = LoopPlace { level, is_tail: false };
                l.fetches.iter().chain([&l.steps]).flatten().for_each(|&step| run.step(step, place));
                assert!(l.leaves.iter().all(|&id| run.made[id] == Some(place)));
            }
            let tail = LoopPlace { level: form.tail_level(), is_tail: true };
            for reduced in &form.reductions {
                assert!(run.made[reduced.of.index()].is_some());
                run.made[reduced.id] = Some(tail);
            }
            for (level, l) in form.loops.iter().enumerate() {
                assert!(level == tail.level || l.tail.is_empty());
                l.tail.iter().for_each(|&step| run.step(step, tail));
            }
            assert!(run.made.iter().all(Option::is_some) && run.stored.iter().all(|&is| is));
            run.n_branches
        }

        fn step(&mut self, step: LoopStep, place: LoopPlace) {
            match step {
                LoopStep::Make(id) => self.make(id, place),
                LoopStep::Branch(region) => {
                    let region = &self.form.cold.all[region];
                    self.n_branches += 1;
                    assert!(region.inputs.iter().all(|v| self.made[v.index()].is_some()));
                    region.steps.iter().for_each(|&step| self.step(step, place));
                    region.selects.iter().for_each(|&id| self.make(id, place));
                    region.body.iter().for_each(|&id| self.is_cold[id] = true);
                }
                LoopStep::Store(n) => {
                    let store = &self.form.kernel.stores[n];
                    self.check_use(store.value, place);
                    assert!(!std::mem::replace(&mut self.stored[n], true));
                }
            }
        }

        fn check_use(&self, v: ValueId, place: LoopPlace) {
            let made = self.made[v.index()].unwrap_or_else(|| panic!("{v} is used before\n{}", self.form.kernel));
            assert!(!self.is_cold[v.index()], "{v} is used behind a branch and elsewhere");
            let leaves = &self.form.loops[made.level].leaves;
            assert!(made == place || made.is_tail || leaves.contains(&v.index()), "{v} leaves its place");
        }

        /// Makes a value, once, where its coordinates are known and not all of them were known before.
        fn make(&mut self, id: usize, place: LoopPlace) {
            let (form, inst) = (self.form, &self.form.kernel.insts[id]);
            let axes: Vec<usize> = match inst {
                Inst::Index(axis) => vec![axis.index()],
                Inst::Load(_, at) => (0..form.kernel.axes.len()).filter(|&axis| at.stride(axis) != 0).collect(),
                Inst::Const(_) | Inst::LoadAt(..) | Inst::Reduce(..) | operation!() => vec![],
            };
            assert!(axes.iter().all(|&axis| form.level_of(axis) <= place.level));
            inst.operands().into_iter().for_each(|v| self.check_use(v, place));
            let is_needed_here = axes.iter().any(|&axis| form.level_of(axis) == place.level)
                || inst.operands().iter().any(|v| self.made[v.index()].is_some_and(|made| made.level == place.level));
            assert!(place.is_tail || place.level == 0 || is_needed_here, "%{id} belongs further out\n{}", form.kernel);
            assert_eq!(self.made[id].replace(place), None, "%{id} is made twice");
        }
    }

    #[test]
    fn values_are_made_once_where_all_they_need_is_known() {
        let (mut n_branches, mut n_strips) = ([0; 2], 0);
        for seed in 0..300 {
            for kernel in [random_kernel(seed), random_kernel_with_calls(seed), random_kernel_of_selects(seed)] {
                let kernel = prepared(&kernel);
                for nest in &schedule(&kernel).nests {
                    n_branches[0] += Run::check(&LoopForm::of_nest(nest));
                    let strips = LoopForm::in_strips(nest);
                    n_strips += usize::from(strips.is_some());
                    if let Some(form) = &strips {
                        Run::check(form);
                    }
                }
                if let Some(kernel) = canonical(&kernel) {
                    n_branches[1] += Run::check(&LoopForm::of_threads(&kernel));
                }
            }
        }
        assert!(n_branches.iter().all(|&n| n > 100) && n_strips > 20, "{n_branches:?} {n_strips}");
    }

    #[test]
    fn accesses_at_fixed_distances_share_a_pointer() {
        let text = "kernel (p0: f32[64], p1: f32[64], p2: f32[32] out) {
            axes a0 = 32
            %0 = load p0[a0]
            %1 = load p0[a0 + 32]
            %2 = load p1[a0]
            %3 = index a0
            %4 = load_at p1, %3
            %5 = add %0, %1
            %6 = add %2, %4
            %7 = mul %5, %6
            store p2[a0], %7
        }";
        let kernel: Kernel = text.parse().unwrap();
        let form = LoopForm::of_threads(&kernel);
        assert_eq!(form.pointers.len(), 4, "two of loads, one of the store, one to the origin");
        assert_eq!([0, 1, 2, 4].map(|id| form.load(id)), [(0, 0), (0, 128), (1, 0), (3, 0)]);
        assert_eq!(form.store(0), (2, 0));
    }
}
