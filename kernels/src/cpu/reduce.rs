//! Reductions: accumulators carried through loops, and the fixed order in which they are folded.

use cranelift_codegen::ir::Value;
use retape_runtime::DType;

use super::emit::Val;
use super::loops::{Bound, Groups, Loops, mixed_groups, vector_groups};
use crate::ir::{Inst, Monoid, ValueId};
use crate::schedule::{LANES, Phase};

impl Loops<'_, '_> {
    /// Reductions where no axis is reduced: of one element each.
    pub(super) fn reduce_nothing(&mut self) {
        for id in self.reduces.clone() {
            for g in 0..self.env.groups.len().max(1) {
                let x = self.reduced_operand(g, id);
                let neutral = self.neutral(id, x.vector);
                let folded = self.e.combine(self.monoid(id), &neutral, &x);
                self.set(g, id, folded);
            }
            self.ready(Phase::Body);
            self.ready(Phase::Tail);
        }
    }

    fn set(&mut self, g: usize, id: ValueId, value: Val) {
        if self.env.group_values.is_empty() || self.deps[id.index()] & self.axis_bit() == 0 {
            self.env.values[id.index()] = Some(value);
            self.env.splats[id.index()] = None;
        } else {
            self.env.group_values[g][id.index()] = Some(value);
        }
    }

    fn monoid(&self, id: ValueId) -> Monoid {
        if let Inst::Reduce(monoid, _) = self.kernel.insts[id.index()] { monoid } else { Monoid::Sum }
    }

    fn neutral(&mut self, id: ValueId, vector: bool) -> Val {
        let neutral = self.monoid(id).neutral(self.dtypes[id.index()]);
        let neutral = self.e.constant(neutral);
        // An accumulator that starts as a constant is none.
        let neutral = if vector { self.e.vectorised(&neutral) } else { neutral };
        Val { constant: None, ..neutral }
    }

    /// The operand of a reduction, its masks 32 bits wide.
    fn reduced_operand(&mut self, g: usize, id: ValueId) -> Val {
        let Inst::Reduce(_, x) = self.kernel.insts[id.index()] else { return self.operand(g, id) };
        let alone = self.deps[id.index()] & self.axis_bit() == 0 && self.axis.is_some_and(|a| a < self.kept);
        let value = if alone { self.env.values[x.index()].clone() } else { None };
        let value = value.unwrap_or_else(|| self.operand(g, x));
        if value.dtype == DType::Bool { self.e.mask(&value, 1) } else { value }
    }

    /// Reductions of a `Columns` nest: one accumulator per group, carried through the reduced loops.
    pub(super) fn reduce_columns(&mut self) {
        let mut slots: Vec<(ValueId, usize)> = Vec::new();
        let mut accumulators = Vec::new();
        for id in self.reduces.clone() {
            let alone = self.deps[id.index()] & self.axis_bit() == 0;
            let groups = if alone { 1 } else { self.env.groups.len() };
            for g in 0..groups {
                slots.push((id, g));
                let vector = !alone && self.env.groups[g].vector;
                accumulators.push(self.neutral(id, vector));
            }
        }
        let results = self.reduced_loops(self.kept, self.kernel.axes.len(), accumulators, &mut |l, accumulators| {
            l.ready(Phase::Body);
            l.store(Phase::Body);
            let mut next = Vec::new();
            for (&(id, g), accumulator) in slots.iter().zip(&accumulators) {
                let x = l.reduced_operand(g, id);
                next.push(l.e.combine(l.monoid(id), accumulator, &x));
            }
            next
        });
        for (&(id, g), result) in slots.iter().zip(results) {
            self.set(g, id, result);
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
        let like = accumulators.clone();
        let (_, regs) = self.repeat(Bound::Fixed(0), extent, 1, packed(&accumulators), &mut |l, i, regs| {
            l.open(axis, i);
            l.ready(Phase::Body);
            packed(&l.reduced_loops(axis + 1, end, unpacked(&like, &regs), body))
        });
        unpacked(&like, &regs)
    }

    /// One kept point of a `Rows` nest: vector accumulators along the last reduced axis, folded at the end.
    pub(super) fn row(&mut self) {
        let Some(axis) = self.axis else {
            self.ready(Phase::Body);
            self.reduce_nothing();
            return self.store(Phase::Tail);
        };
        let extent = self.kernel.axes[axis].extent;
        let full = self.nest.groups * LANES;
        let main = extent / full;
        // The widest iteration decides how many vector accumulators there are; elements have one of their own only if
        // there is none.
        let rest = mixed_groups(extent % full);
        let vectors = if main > 0 { self.nest.groups } else { rest.iter().filter(|g| g.vector).count() };
        let lone = usize::from(vectors == 0);
        let mut accumulators = Vec::new();
        for id in self.reduces.clone() {
            for at in 0..vectors + lone {
                accumulators.push(self.neutral(id, at < vectors));
            }
        }
        let each = vectors + lone;
        let results = self.reduced_loops(self.kept, axis, accumulators, &mut |l, accumulators| {
            let like = accumulators.clone();
            let end = Bound::Fixed((main * full) as i64);
            let whole = vector_groups(l.nest.groups);
            let step = full as i64;
            let (_, regs) = l.repeat(Bound::Fixed(0), end, step, packed(&like), &mut |l, position, regs| {
                packed(&l.row_step(position, whole.clone(), unpacked(&like, &regs), vectors, each))
            });
            let accumulators = unpacked(&like, &regs);
            if rest.is_empty() {
                return accumulators;
            }
            let env = l.env.clone();
            let start = l.e.int((main * full) as i64);
            let accumulators = l.row_step(start, rest.clone(), accumulators, vectors, each);
            l.env = env;
            accumulators
        });
        for (n, id) in self.reduces.clone().into_iter().enumerate() {
            let folded = self.fold_row(id, &results[n * each..(n + 1) * each], vectors);
            self.env.values[id.index()] = Some(folded);
        }
        self.ready(Phase::Tail);
        self.store(Phase::Tail);
    }

    fn row_step(&mut self, at: Value, groups: Groups, accumulators: Vec<Val>, vectors: usize, each: usize) -> Vec<Val> {
        self.open_vector(at, groups);
        self.ready(Phase::Body);
        self.store(Phase::Body);
        let mut next = accumulators;
        for (n, id) in self.reduces.clone().into_iter().enumerate() {
            let mut elements = Vec::new();
            for g in 0..self.env.groups.len() {
                let x = self.reduced_operand(g, id);
                if vectors > 0 && !x.vector {
                    elements.push(x);
                    continue;
                }
                let slot = n * each + if x.vector { g } else { 0 };
                next[slot] = self.e.combine(self.monoid(id), &next[slot], &x);
            }
            if !elements.is_empty() {
                // Fewer than a vector: the other lanes are neutral.
                let slot = n * each + (self.env.groups.len() - elements.len()) % vectors;
                let neutral = self.neutral(id, false);
                elements.resize(LANES, neutral);
                let x = self.e.assemble(&elements);
                next[slot] = self.e.combine(self.monoid(id), &next[slot], &x);
            }
        }
        next
    }

    /// Neighbouring accumulators are combined until one is left, then its lanes, then the lone elements.
    fn fold_row(&mut self, id: ValueId, accumulators: &[Val], vectors: usize) -> Val {
        let monoid = self.monoid(id);
        let mut level = accumulators[..vectors].to_vec();
        while level.len() > 1 {
            level = level
                .chunks(2)
                .map(|pair| if let [x, y] = pair { self.e.combine(monoid, x, y) } else { pair[0].clone() })
                .collect();
        }
        let folded = level.first().map(|x| self.e.fold_lanes(monoid, x));
        match (folded, accumulators.get(vectors)) {
            (Some(x), Some(y)) => self.e.combine(monoid, &x, y),
            (Some(x), None) => x,
            (None, Some(y)) => y.clone(),
            (None, None) => self.neutral(id, false),
        }
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
