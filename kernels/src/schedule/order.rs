//! The order of the steps of a place: one in which few values wait for their use.
//!
//! Guarantees that a step stands behind those whose values it uses, that constants come first and stores last, in their
//! order, and that no more values are alive at one time than in the order that it was given.
//!
//! A tree of operations needs fewest registers if each operation makes first the operand that needs most of them: Sethi
//! and Ullman, "The generation of optimal code for arithmetic expressions", J. ACM 17 (1970). Values that several
//! operations use make it a rule of thumb, so the two orders are compared.

use std::cmp::Reverse;

use smallvec::SmallVec;

use super::cold::ColdRegions;
use super::step::LoopStep;
use crate::ir::{Inst, Kernel};

/// Steps from which on an order is not looked for.
const MANY: usize = 1 << 12;

/// The values of a kernel as the steps of a place see them.
#[derive(Clone, Copy)]
pub(super) struct PlacedValues<'a> {
    pub(super) kernel: &'a Kernel,
    pub(super) cold: &'a ColdRegions,
    /// The registers that each takes for some groups; 0 where an instruction can read it from memory again.
    pub(super) n_registers: &'a [usize],
    /// Whether something behind all of the steps uses each.
    pub(super) lives_on: &'a [bool],
}

/// Steps and what they need of each other, by their places in the order that was given.
struct Dependences {
    /// The steps that make what each uses.
    used: Vec<SmallVec<[usize; 4]>>,
    /// The registers of the values that each makes.
    made: Vec<usize>,
    /// Whether something behind all of the steps uses a value of each.
    lives_on: Vec<bool>,
}

/// The steps of a place in an order in which fewer values live at one time, if one is found.
pub(super) fn ordered(values: PlacedValues<'_>, steps: Vec<LoopStep>) -> Vec<LoopStep> {
    if steps.len() > MANY {
        return steps;
    }
    let dependences = Dependences::of(values, &steps);
    let insts = &values.kernel.insts;
    let is_constant = |n: &usize| matches!(steps[*n], LoopStep::Make(id) if matches!(insts[id], Inst::Const(_)));
    let is_store = |n: &usize| matches!(steps[*n], LoopStep::Store(_));
    let given: Vec<usize> = (0..steps.len()).collect();
    let (first, rest): (Vec<usize>, Vec<usize>) = given.iter().partition(|n| is_constant(n));
    let (last, rest): (Vec<usize>, Vec<usize>) = rest.into_iter().partition(is_store);
    let found = [first, dependences.largest_first(&last, &rest), last].concat();
    let order = if dependences.lives(&found) < dependences.lives(&given) { found } else { given };
    order.into_iter().map(|n| steps[n]).collect()
}

impl Dependences {
    fn of(values: PlacedValues<'_>, steps: &[LoopStep]) -> Dependences {
        let PlacedValues { kernel, cold, n_registers, lives_on } = values;
        let insts = &kernel.insts;
        let selects = |region: usize| cold.all[region].selects.as_slice();
        let mut maker = vec![None; insts.len()];
        for (n, step) in steps.iter().enumerate() {
            match *step {
                LoopStep::Make(id) => maker[id] = Some(n),
                LoopStep::Branch(region) => selects(region).iter().for_each(|&id| maker[id] = Some(n)),
                LoopStep::Store(_) => {}
            }
        }
        let made = |step: &LoopStep| -> SmallVec<[usize; 1]> {
            match *step {
                LoopStep::Make(id) => SmallVec::from_slice(&[id]),
                LoopStep::Branch(region) => SmallVec::from_slice(selects(region)),
                LoopStep::Store(_) => SmallVec::new(),
            }
        };
        let used = |step: &LoopStep| {
            let mut used: SmallVec<[usize; 4]> = match *step {
                LoopStep::Make(id) => insts[id].operands().iter().filter_map(|v| maker[v.index()]).collect(),
                LoopStep::Branch(region) => {
                    let region = &cold.all[region];
                    let inputs = region.inputs.iter().copied().chain([region.condition]).chain(region.others(insts));
                    inputs.filter_map(|v| maker[v.index()]).collect()
                }
                LoopStep::Store(n) => maker[kernel.stores[n].value.index()].into_iter().collect(),
            };
            used.sort_unstable();
            used.dedup();
            used
        };
        Dependences {
            used: steps.iter().map(used).collect(),
            made: steps.iter().map(|step| made(step).iter().map(|&id| n_registers[id]).sum()).collect(),
            lives_on: steps.iter().map(|step| made(step).iter().any(|&id| lives_on[id])).collect(),
        }
    }

    /// The steps `rest`, each behind those that it uses, of which the ones that need most registers come first; those that
    /// `last` uses are made before what nothing uses.
    fn largest_first(&self, last: &[usize], rest: &[usize]) -> Vec<usize> {
        let n = self.used.len();
        // Operands stand before their users in the order that was given.
        let (mut needs, mut operands) = (vec![0; n], vec![SmallVec::<[usize; 4]>::new(); n]);
        for step in 0..n {
            let mut used = self.used[step].clone();
            used.sort_by_key(|&x| Reverse((needs[x], x)));
            let mut held = 0;
            let mut most = self.made[step];
            for &x in &used {
                most = most.max(held + needs[x]);
                held += self.made[x];
            }
            needs[step] = most.max(held);
            operands[step] = used;
        }
        let mut is_done = vec![true; n];
        rest.iter().for_each(|&step| is_done[step] = false);
        let (mut order, mut path) = (vec![], vec![]);
        for &root in last.iter().chain(rest) {
            path.push((root, 0));
            while let Some((step, at)) = path.pop() {
                if let Some(&operand) = operands[step].get(at) {
                    path.push((step, at + 1));
                    if !is_done[operand] {
                        path.push((operand, 0));
                    }
                } else if !std::mem::replace(&mut is_done[step], true) {
                    order.push(step);
                }
            }
        }
        order
    }

    /// The most registers that values of the steps take at one time, and the sum over all times.
    fn lives(&self, order: &[usize]) -> [usize; 2] {
        let mut n_users = vec![0; self.used.len()];
        self.used.iter().flatten().for_each(|&x| n_users[x] += 1);
        let (mut live, mut most, mut sum) = (0, 0, 0);
        for &step in order {
            for &x in &self.used[step] {
                n_users[x] -= 1;
                if n_users[x] == 0 && !self.lives_on[x] {
                    live -= self.made[x];
                }
            }
            if n_users[step] > 0 || self.lives_on[step] {
                live += self.made[step];
            }
            most = most.max(live);
            sum += live;
        }
        [most, sum]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::random::{random_kernel, random_kernel_of_selects, random_kernel_with_calls};
    use crate::schedule::{LoopForm, prepared, schedule};

    /// The lives in the order in which a kernel has its instructions, and in that of the steps of its form.
    fn lives(kernel: &Kernel) -> Vec<[[usize; 2]; 2]> {
        let of_nest = |nest| {
            let form = LoopForm::of_nest(nest);
            let l = form.loops.last().expect("the function at least");
            let (n_registers, lives_on) = (form.n_registers(), form.lives_on(l));
            let values =
                PlacedValues { kernel: form.kernel, cold: &form.cold, n_registers: &n_registers, lives_on: &lives_on };
            let dependences = Dependences::of(values, &l.steps);
            let mut given: Vec<usize> = (0..l.steps.len()).collect();
            let found = dependences.lives(&given);
            given.sort_by_key(|&n| match l.steps[n] {
                LoopStep::Make(id) => (!matches!(form.kernel.insts[id], Inst::Const(_)), id),
                LoopStep::Branch(region) => (true, form.cold.all[region].selects[0]),
                LoopStep::Store(n) => (true, form.kernel.insts.len() + n),
            });
            [dependences.lives(&given), found]
        };
        schedule(kernel).nests.iter().map(of_nest).collect()
    }

    #[test]
    fn no_more_values_live_than_before() {
        let mut n_better = 0;
        for seed in 0..200 {
            for kernel in [random_kernel(seed), random_kernel_with_calls(seed), random_kernel_of_selects(seed)] {
                for [given, found] in lives(&prepared(&kernel)) {
                    assert!(found <= given, "seed {seed}: {found:?} after {given:?}");
                    n_better += usize::from(found < given);
                }
            }
        }
        assert!(n_better > 50, "{n_better}");
    }

    /// The second operand of a difference needs three registers, and the first one, which it would wait for, one.
    #[test]
    fn the_larger_operand_is_made_first() {
        let text = "kernel (p0: f32[64], p1: f32[64] out) {
            axes a0 = 64
            %0 = load p0[a0]
            %1 = mul %0, %0
            %2 = add %0, %0
            %3 = neg %0
            %4 = mul %2, %3
            %5 = abs %0
            %6 = sqrt %0
            %7 = mul %5, %6
            %8 = add %4, %7
            %9 = sub %1, %8
            store p1[a0], %9
        }";
        let kernel: Kernel = text.parse().unwrap();
        let most: Vec<[usize; 2]> = lives(&kernel).iter().map(|lives| lives.map(|[most, _]| most)).collect();
        assert_eq!(most, [[4 * 16, 3 * 16]]);
    }
}
