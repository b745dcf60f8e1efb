//! Cold regions: instructions that few points need.
//!
//! Formulas are free of branches: both sides of a select are made at every point. Where one side is long, such as the
//! reduction of huge angles, a nest branches around it when no point of a group takes it. The values at a point that
//! takes it are the same either way, so no bit changes.

use retape_runtime::DType;

use super::step::LoopStep;
use crate::ir::{Binary, Compare, Inst, Kernel, ValueId, operation};

/// Instructions that make a side worth a branch: more than a mispredicted one costs.
const MIN_LEN: usize = 64;

/// Selects on one condition and the instructions that only one of their sides needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ColdRegion {
    /// The condition.
    pub(crate) condition: ValueId,
    /// The value of the condition where the instructions are needed.
    pub(crate) when: bool,
    /// The selects, in order.
    pub(crate) selects: Vec<usize>,
    /// The instructions that only they need and only on that side, in order. It may hold other regions as a whole.
    pub(crate) body: Vec<usize>,
    /// The steps that make the body.
    pub(crate) steps: Vec<LoopStep>,
    /// Values from outside that the body and the selects use; all except constants are made before the selects.
    pub(crate) inputs: Vec<ValueId>,
}

impl ColdRegion {
    /// The values of the selects where the body is not needed.
    pub(crate) fn others<'k>(&'k self, insts: &'k [Inst<ValueId>]) -> impl Iterator<Item = ValueId> + 'k {
        self.selects.iter().filter_map(|&id| {
            let Inst::Select(_, x, y) = insts[id] else { return None };
            Some(if self.when { y } else { x })
        })
    }
}

/// The cold regions of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ColdRegions {
    pub(crate) all: Vec<ColdRegion>,
    /// Of each instruction, the innermost region whose body has it.
    home: Vec<Option<usize>>,
    /// Of each instruction, the region of which it is a select.
    selected: Vec<Option<usize>>,
}

impl ColdRegions {
    /// Finds them. `class` says which instructions may stand together, by equal values; `None` is for those that stay
    /// where they are, as accesses to memory, coordinates and reductions do anyway.
    pub(super) fn of<K: PartialEq>(
        kernel: &Kernel,
        dtypes: &[DType],
        class: impl Fn(usize) -> Option<K>,
    ) -> ColdRegions {
        let n = kernel.insts.len();
        let mut regions = ColdRegions { all: Vec::new(), home: vec![None; n], selected: vec![None; n] };
        if weight(kernel, dtypes, 0..n) <= MIN_LEN {
            return regions;
        }
        let class = |id: usize| match &kernel.insts[id] {
            Inst::Const(_) | Inst::Index(_) | Inst::Load(..) | Inst::LoadAt(..) | Inst::Reduce(..) => None,
            // These are no selects to the machine.
            Inst::Select(..) if dtypes[id] == DType::Bool => None,
            operation!() => class(id),
        };
        let finder = Finder { kernel, dtypes, class: (0..n).map(class).collect(), users: users(kernel) };
        let mut found: Vec<ColdRegion> = finder.conditions().into_iter().filter_map(|s| finder.region(s)).collect();
        // Inner regions lie in outer ones as a whole, or are none.
        found.sort_by_key(|region| std::cmp::Reverse(region.body.len()));
        for region in found {
            let home = regions.home[region.selects[0]];
            let together = |id: &usize| regions.home[*id] == home && regions.selected[*id].is_none();
            if region.selects.iter().chain(&region.body).all(together) {
                region.selects.iter().for_each(|&id| regions.selected[id] = Some(regions.all.len()));
                region.body.iter().for_each(|&id| regions.home[id] = Some(regions.all.len()));
                regions.all.push(region);
            }
        }
        for n in 0..regions.all.len() {
            regions.all[n].steps = regions.steps(regions.all[n].body.iter().copied(), Some(n));
        }
        regions
    }

    /// The steps that make those of some instructions, in order, that lie in the body of `region`, or in none.
    pub(super) fn steps(&self, ids: impl Iterator<Item = usize>, region: Option<usize>) -> Vec<LoopStep> {
        let step = |id: usize| match self.selected[id] {
            None => Some(LoopStep::Make(id)),
            Some(inner) => (self.all[inner].selects[0] == id).then_some(LoopStep::Branch(inner)),
        };
        ids.filter(|&id| self.home[id] == region).filter_map(step).collect()
    }
}

/// A select: its number, its condition, and its sides.
type Choice = (usize, ValueId, [ValueId; 2]);

struct Finder<'k, K> {
    kernel: &'k Kernel,
    dtypes: &'k [DType],
    class: Vec<Option<K>>,
    /// Of each instruction, those that use it; `None` if something else does.
    users: Vec<Option<Vec<usize>>>,
}

/// The number of instructions that some take as long as: the remainder of floats is a loop, on a GPU as well.
fn weight(kernel: &Kernel, dtypes: &[DType], ids: impl Iterator<Item = usize>) -> usize {
    let is_loop = |id: usize| dtypes[id].is_float() && matches!(kernel.insts[id], Inst::Binary(Binary::Rem, ..));
    ids.map(|id| if is_loop(id) { MIN_LEN } else { 1 }).sum()
}

fn users(kernel: &Kernel) -> Vec<Option<Vec<usize>>> {
    let mut users = vec![Some(Vec::new()); kernel.insts.len()];
    for (id, inst) in kernel.insts.iter().enumerate() {
        for operand in inst.operands() {
            if let Some(users) = &mut users[operand.index()] {
                users.push(id);
            }
        }
    }
    kernel.stores.iter().for_each(|store| users[store.value.index()] = None);
    users
}

impl<K: PartialEq> Finder<'_, K> {
    /// The selects by condition and side.
    fn conditions(&self) -> Vec<(bool, Vec<Choice>)> {
        let mut by_condition: Vec<Vec<Choice>> = Vec::new();
        for (id, inst) in self.kernel.insts.iter().enumerate() {
            if let (Inst::Select(c, x, y), Some(class)) = (inst, &self.class[id]) {
                let alike = |s: &&mut Vec<Choice>| s[0].1 == *c && self.class[s[0].0].as_ref() == Some(class);
                match by_condition.iter_mut().find(alike) {
                    Some(selects) => selects.push((id, *c, [*x, *y])),
                    None => by_condition.push(vec![(id, *c, [*x, *y])]),
                }
            }
        }
        let sides = by_condition.into_iter().flat_map(|s| [(true, s.clone()), (false, s)]);
        sides.filter(|(when, selects)| !self.is_usual(selects[0].1, *when)).collect()
    }

    /// Whether most points are on this side of a condition: numbers seldom equal each other.
    fn is_usual(&self, condition: ValueId, when: bool) -> bool {
        match self.kernel.insts[condition.index()] {
            Inst::Compare(Compare::Eq, ..) => !when,
            Inst::Compare(Compare::Ne, ..) => when,
            Inst::Const(_) | Inst::Index(_) | Inst::Load(..) | Inst::LoadAt(..) | Inst::Reduce(..) | operation!() => {
                false
            }
        }
    }

    /// The region that one side of some selects needs alone; of as many of them, from the first on, as can be made
    /// together.
    fn region(&self, (when, mut selects): (bool, Vec<Choice>)) -> Option<ColdRegion> {
        loop {
            let &(first, condition, _) = selects.first()?;
            let body = self.body(when, &selects);
            if weight(self.kernel, self.dtypes, body.iter().copied()) < MIN_LEN {
                return None;
            }
            let is_inside = |id: usize| body.binary_search(&id).is_ok();
            // A select that only the body needs lies in it, and one whose side others need gains nothing.
            let gains = |&(id, _, [x, y]): &Choice| !is_inside(id) && is_inside(if when { x } else { y }.index());
            if !selects.iter().all(gains) {
                selects.retain(gains);
                continue;
            }
            let of_body = body.iter().flat_map(|&id| self.kernel.insts[id].operands());
            let others = selects.iter().map(|(_, _, [x, y])| if when { *y } else { *x });
            let outside = |v: &ValueId| !is_inside(v.index());
            let mut inputs: Vec<ValueId> = of_body.filter(outside).chain(others).chain([condition]).collect();
            inputs.sort_unstable();
            inputs.dedup();
            // All is known where the first select stands, or fewer of them are made together.
            let is_constant = |v: &ValueId| matches!(self.kernel.insts[v.index()], Inst::Const(_));
            if inputs.iter().all(|v| v.index() < first || is_constant(v)) {
                let selects = selects.iter().map(|&(id, ..)| id).collect();
                return Some(ColdRegion { condition, when, selects, body, steps: Vec::new(), inputs });
            }
            selects.pop();
        }
    }

    /// The instructions that only this side of the selects uses.
    fn body(&self, when: bool, selects: &[Choice]) -> Vec<usize> {
        let Some(&(last, ..)) = selects.last() else { return Vec::new() };
        let class = &self.class[last];
        let mut inside = vec![false; last];
        for id in (0..last).rev() {
            let Some(users) = self.users[id].as_ref().filter(|users| !users.is_empty()) else { continue };
            let chosen = |user: usize| {
                let is_side = |&(select, c, [x, y]): &Choice| {
                    let (side, other) = if when { (x, y) } else { (y, x) };
                    select == user && side.index() == id && other.index() != id && c.index() != id
                };
                selects.iter().any(is_side)
            };
            inside[id] =
                self.class[id] == *class && users.iter().all(|&u| u < last && inside[u] || u <= last && chosen(u));
        }
        (0..last).filter(|&id| inside[id]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Affine, Func1, KernelBuilder, Value};

    /// The regions of a kernel that makes one value of another.
    fn regions(f: impl for<'k> Fn(Value<'k>) -> Value<'k>) -> (Kernel, ColdRegions) {
        let k = KernelBuilder::new();
        let x = k.param(DType::F32, 8, false);
        k.axis(8, false);
        let at = Affine::new(0, &[1]);
        let value = f(k.load(x, at.clone()));
        k.store(k.param(DType::F32, 8, true), at, value);
        let kernel = crate::schedule::prepared(&k.finish());
        let regions = ColdRegions::of(&kernel, &kernel.dtypes(), |_| Some(()));
        (kernel, regions)
    }

    #[test]
    fn huge_angles_are_one_region_of_all_functions_of_them() {
        let (kernel, regions) = regions(|x| x.call1(Func1::Sin) * x.call1(Func1::Cos) + x.call1(Func1::Tan));
        let [region] = &regions.all[..] else { panic!("{regions:?}\n{kernel}") };
        assert!(region.when && region.selects.len() == 3, "quadrant, rest and its tail: {region:?}");
        assert!(region.body.len() > 2 * kernel.insts.len() / 5, "{} of {}", region.body.len(), kernel.insts.len());
        let inside = |v: ValueId| region.body.contains(&v.index());
        for (id, inst) in kernel.insts.iter().enumerate() {
            let is_cold = region.body.contains(&id) || region.selects.contains(&id);
            assert!(is_cold || !inst.operands().into_iter().any(inside), "%{id} uses what is made elsewhere");
        }
        let all = |region| regions.steps(0..kernel.insts.len(), region);
        assert_eq!(region.steps, region.body.iter().map(|&id| LoopStep::Make(id)).collect::<Vec<_>>());
        assert_eq!(all(Some(0)), region.steps);
        assert_eq!(all(None).iter().filter(|step| **step == LoopStep::Branch(0)).count(), 1, "for all its selects");
        assert_eq!(all(None).len(), kernel.insts.len() - region.body.len() - region.selects.len() + 1);
        let is_constant = |v: ValueId| matches!(kernel.insts[v.index()], Inst::Const(_));
        assert!(region.inputs.iter().all(|&v| !inside(v) && (v.index() < region.selects[0] || is_constant(v))));
        assert!(region.others(&kernel.insts).all(|v| region.inputs.contains(&v)));
    }

    #[test]
    fn regions_lie_in_regions_and_share_nothing() {
        let (_, nested) = regions(|x| x.compare(Compare::Lt, 1.0).select(x, (x * 3.0).call1(Func1::Sin)));
        assert_eq!(nested.all.len(), 2);
        let [outer, inner] = &nested.all[..] else { return };
        assert!(!outer.when && inner.when);
        assert!(inner.selects.iter().chain(&inner.body).all(|id| outer.body.contains(id)));
        assert!(outer.steps.contains(&LoopStep::Branch(1)), "{outer:?}");
        assert!(!outer.steps.iter().any(|step| matches!(step, LoopStep::Make(id) if inner.body.contains(id))));
        // The other side, or somebody else, needs it too.
        let (_, shared) = regions(|x| {
            let sine = (x * 3.0).call1(Func1::Sin);
            x.compare(Compare::Lt, 1.0).select(x, sine) + sine
        });
        assert_eq!(shared.all.len(), 1, "the angles alone");
    }

    #[test]
    fn selects_that_feed_others_or_gain_nothing_are_in_no_region() {
        let (kernel, fed) = regions(|x| {
            let condition = x.compare(Compare::Lt, 1.0);
            condition.select(condition.select(x, 0.5).call1(Func1::Sin), 0.0)
        });
        assert!(!fed.all.is_empty(), "{kernel}");
        let (kernel, used) = regions(|x| {
            let condition = x.compare(Compare::Lt, 1.0);
            let sine = condition.select((x * 2.0).call1(Func1::Sin), 0.5);
            let line = sine * 3.0 + x;
            condition.select(line, 7.0) * line
        });
        assert!(!used.all.is_empty(), "{kernel}");
        for region in fed.all.iter().chain(&used.all) {
            assert!(region.selects.iter().all(|id| !region.body.contains(id)), "{region:?}");
        }
        let is_inner = |region: &&ColdRegion| used.all.iter().any(|other| other.body.contains(&region.selects[0]));
        let outer = used.all.iter().find(|region| !is_inner(region));
        assert_eq!(outer.map(|region| region.selects.len()), Some(1), "{kernel}");
    }

    #[test]
    fn short_sides_are_not_worth_a_branch() {
        let (kernel, regions) = regions(|x| x.call1(Func1::Exp) + x.call1(Func1::Tanh) + x.call1(Func1::Log1p));
        assert!(kernel.insts.len() > MIN_LEN && regions.all.is_empty(), "{regions:?}");
    }
}
