//! Reductions: accumulators carried through loops, and the fixed order in which they are combined.

use cranelift_codegen::ir::Value;
use retape_runtime::DType;

use super::emit::{LANES, Val};
use super::loops::{Bound, Groups, Loops, mixed_groups, vector_groups};
use crate::schedule::ReducedValue;

impl Loops<'_, '_> {
    fn neutral(&mut self, reduced: &ReducedValue, vector: bool) -> Val {
        let neutral = self.e.constant(reduced.op.neutral(reduced.dtype));
        // An accumulator that starts as a constant is none.
        let neutral = if vector { self.e.vectorised(&neutral) } else { neutral };
        Val { constant: None, ..neutral }
    }

    /// The operand of a reduction, its masks 32 bits wide.
    fn reduced_operand(&mut self, group: Option<usize>, reduced: &ReducedValue) -> Val {
        let value = self.operand(group, reduced.of);
        if value.dtype == DType::Bool { self.e.mask(&value, 1) } else { value }
    }

    /// Reductions of a `Columns` nest: one accumulator per group, carried through the reduced loops.
    pub(super) fn reduce_columns(&mut self) {
        let form = self.form;
        let mut slots: Vec<(&ReducedValue, Option<usize>)> = Vec::new();
        let mut accumulators = Vec::new();
        for reduced in &form.reductions {
            let groups = if reduced.is_grouped { self.env.groups.len() } else { 1 };
            for group in (0..groups).map(|g| reduced.is_grouped.then_some(g)) {
                slots.push((reduced, group));
                let vector = group.is_some_and(|g| self.env.groups[g].vector);
                accumulators.push(self.neutral(reduced, vector));
            }
        }
        let results = self.reduced_loops(form.kept, self.kernel.axes.len(), accumulators, &mut |l, accumulators| {
            let mut next = Vec::new();
            for (&(reduced, group), accumulator) in slots.iter().zip(&accumulators) {
                let x = l.reduced_operand(group, reduced);
                next.push(l.e.combine(reduced.op, accumulator, &x));
            }
            next
        });
        for ((reduced, group), result) in slots.into_iter().zip(results) {
            self.set(group, reduced.id, result);
        }
    }

    /// Loops over the reduced axes `axis..end`, carrying accumulators.
    fn reduced_loops(
        &mut self,
        axis: usize,
        end: usize,
        accumulators: Vec<Val>,
        body: &mut dyn FnMut(&mut Self, Vec<Val>) -> Vec<Val>,
    ) -> Vec<Val> {
        if axis == end {
            return body(self, accumulators);
        }
        let extent = Bound::Fixed(self.kernel.axes[axis].extent as i64);
        let (form, like) = (self.form, accumulators.clone());
        let (_, regs) = self.repeat(Bound::Fixed(0), extent, 1, packed(&accumulators), &mut |l, i, regs| {
            l.open(axis, i);
            l.steps(&form.loops[form.level_of(axis)].steps);
            packed(&l.reduced_loops(axis + 1, end, unpacked(&like, &regs), body))
        });
        unpacked(&like, &regs)
    }

    /// One kept point of a `Rows` nest: accumulators along the last reduced axis, combined at the end.
    pub(super) fn row(&mut self) {
        let (form, last) = (self.form, self.kernel.axes.len() - 1);
        let extent = self.kernel.axes[last].extent;
        let full = self.nest.unroll * LANES;
        let main = extent / full;
        let rest = mixed_groups(extent % full);
        // A row of less than a vector has one element for each accumulator.
        let vectors = form.accumulators;
        let each = vectors.max(1);
        let mut accumulators = Vec::new();
        for reduced in &form.reductions {
            for _ in 0..each {
                accumulators.push(self.neutral(reduced, vectors > 0));
            }
        }
        let results = self.reduced_loops(form.kept, last, accumulators, &mut |l, accumulators| {
            let like = accumulators.clone();
            let end = Bound::Fixed((main * full) as i64);
            let whole = vector_groups(l.nest.unroll);
            let step = full as i64;
            let (_, regs) = l.repeat(Bound::Fixed(0), end, step, packed(&like), &mut |l, position, regs| {
                packed(&l.row_step(position, whole.clone(), unpacked(&like, &regs)))
            });
            let accumulators = unpacked(&like, &regs);
            if rest.is_empty() {
                return accumulators;
            }
            let env = l.env.clone();
            let start = l.e.int((main * full) as i64);
            let accumulators = l.row_step(start, rest.clone(), accumulators);
            l.env = env;
            accumulators
        });
        for (reduced, accumulators) in form.reductions.iter().zip(results.chunks(each)) {
            let result = self.reduce_row(reduced, accumulators);
            self.set(None, reduced.id, result);
        }
        self.steps(&form.loops[form.tail_level()].tail);
    }

    fn row_step(&mut self, at: Value, groups: Groups, accumulators: Vec<Val>) -> Vec<Val> {
        let (form, vectors) = (self.form, self.form.accumulators);
        self.open_vector(at, groups);
        self.steps(&form.loops[form.loops.len() - 1].steps);
        let mut next = accumulators;
        for (reduced, next) in form.reductions.iter().zip(next.chunks_mut(vectors.max(1))) {
            let mut elements = Vec::new();
            for g in 0..self.env.groups.len() {
                let x = self.reduced_operand(Some(g), reduced);
                if vectors > 0 && !x.vector {
                    elements.push(x);
                    continue;
                }
                let slot = if x.vector { g } else { 0 };
                next[slot] = self.e.combine(reduced.op, &next[slot], &x);
            }
            if !elements.is_empty() {
                // Fewer than a vector: the other lanes are neutral.
                let slot = (self.env.groups.len() - elements.len()) % vectors;
                let neutral = self.neutral(reduced, false);
                elements.resize(LANES, neutral);
                let x = self.e.assemble(&elements);
                next[slot] = self.e.combine(reduced.op, &next[slot], &x);
            }
        }
        next
    }

    /// Neighbouring accumulators are combined until one is left, then its lanes.
    fn reduce_row(&mut self, reduced: &ReducedValue, accumulators: &[Val]) -> Val {
        let mut level = accumulators.to_vec();
        while level.len() > 1 {
            level = level
                .chunks(2)
                .map(|pair| if let [x, y] = pair { self.e.combine(reduced.op, x, y) } else { pair[0].clone() })
                .collect();
        }
        if level[0].vector { self.e.reduce_lanes(reduced.op, &level[0]) } else { level[0].clone() }
    }
}

/// The registers of values.
pub(super) fn packed(values: &[Val]) -> Vec<Value> {
    values.iter().flat_map(|v| v.regs.iter().copied()).collect()
}

/// Values of the kinds of others in registers.
pub(super) fn unpacked(like: &[Val], regs: &[Value]) -> Vec<Val> {
    let mut at = 0;
    let take = |v: &Val| {
        let end = at + v.regs.len();
        let regs = regs[at..end].iter().copied().collect();
        at = end;
        Val { dtype: v.dtype, vector: v.vector, regs, constant: None }
    };
    like.iter().map(take).collect()
}
