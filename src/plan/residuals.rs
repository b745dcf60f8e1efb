//! Which formulas are computed where all that they read is made or read, and kept in the place of it.
//!
//! A derivative that the backward pass multiplies by is such a formula: of `x * sigmoid(x)` the forward pass would keep both
//! `x` and the sigmoid for it. Groups are complete by then, and only pointwise ones compute more. Frameworks call what a forward
//! pass keeps for the backward pass its residuals.

use retape_runtime::DType;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::fuse::{Groups, MAX_COST};
use super::values::Values;
use super::view::View;
use crate::ops::{Lowering, Movement};
use crate::types::{ValueId, ValueTable};

/// Bytes of a value from which on it matters whether it is kept.
const MIN_BYTES: usize = 1 << 16;

/// Moves formulas to the groups that make what they read, if fewer bytes are kept then.
pub(super) fn keep_fewer(values: &mut Values<'_>, groups: &mut Groups) {
    let mut n_users = vec![0_u32; values.graph.n_nodes()];
    values.graph.iter().flat_map(|(_, node)| &node.args).for_each(|arg| n_users[arg.index()] += 1);
    let outputs: FxHashSet<ValueId> = values.graph.outputs().iter().map(|&id| values.memory_of(id)).collect();
    let readers = groups.readers();
    let mut written = groups.read_from_outside(values);
    for reader in 0..groups.groups.len() {
        let mut search =
            FormulaSearch { values, groups, n_users: &n_users, reader, reads: FxHashMap::default(), found: vec![] };
        search.run();
        let found = search.found;
        for (maker, formulas) in by_maker(found) {
            let is_read_elsewhere = |root: ValueId| {
                let mut others = readers.get(root).into_iter().flatten();
                outputs.contains(&root) || others.any(|&group| group != maker && group != reader)
            };
            move_if_fewer(values, groups, &mut written, is_read_elsewhere, [maker, reader], &formulas);
        }
    }
}

/// Formulas in the order in which they were found, for each group that makes what they read.
fn by_maker(mut found: Vec<(usize, ValueId)>) -> Vec<(usize, Vec<ValueId>)> {
    found.sort_unstable();
    found.dedup();
    let parts = found.chunk_by(|a, b| a.0 == b.0);
    parts.map(|part| (part[0].0, part.iter().map(|&(_, formula)| formula).collect())).collect()
}

/// Values that a formula reads, all at its own point.
#[derive(Clone, Debug, Default)]
struct ReadElements {
    /// The pointwise group that makes some of them.
    maker: Option<usize>,
    /// Others.
    others: SmallVec<[ValueId; 4]>,
}

/// The search for formulas in a group.
struct FormulaSearch<'s, 'g> {
    values: &'s Values<'g>,
    groups: &'s Groups,
    n_users: &'s [u32],
    reader: usize,
    /// The reads of values of the group, if one other group could read or make all that they read.
    reads: FxHashMap<ValueId, Option<ReadElements>>,
    /// Formulas, of no other one in the group, with the group that can make them.
    found: Vec<(usize, ValueId)>,
}

impl FormulaSearch<'_, '_> {
    /// Values beside those of the maker at most.
    const MOST_OTHERS: usize = 4;

    fn run(&mut self) {
        let group = &self.groups.groups[self.reader];
        let n_elements = group.space.iter().product::<usize>();
        if group.is_library || n_elements.saturating_mul(DType::F64.size()) < MIN_BYTES {
            return;
        }
        for &root in &group.roots {
            self.look_below(root);
        }
    }

    /// The reads of the arguments of a value, after a look at them.
    fn look_below(&mut self, id: ValueId) -> Option<ReadElements> {
        let args = &self.values.graph.node(id).args;
        let all: SmallVec<[Option<ReadElements>; 3]> = args.iter().map(|&arg| self.reads_of(arg)).collect();
        let joined = all.iter().try_fold(ReadElements::default(), |joined, reads| self.joined(joined, reads.as_ref()?));
        if joined.is_none() {
            for (&arg, reads) in args.iter().zip(all) {
                // A value that others use as well is computed again for each of them.
                let is_formula = !self.values.is_stored(arg) && self.n_users[arg.index()] == 1;
                if let (Some(ReadElements { maker: Some(maker), .. }), true) = (reads, is_formula) {
                    self.found.push((maker, arg));
                }
            }
        }
        joined
    }

    /// All that two values read, unless one group cannot read or make it.
    fn joined(&self, mut reads: ReadElements, more: &ReadElements) -> Option<ReadElements> {
        if reads.maker.is_some() && more.maker.is_some() && reads.maker != more.maker {
            return None;
        }
        reads.maker = reads.maker.or(more.maker);
        for &other in &more.others {
            if !reads.others.contains(&other) {
                reads.others.push(other);
            }
        }
        let is_read = |&value: &ValueId, maker: usize| {
            let n_axes = self.values.graph.ty(value).rank();
            let view = Some(View::of_axes(0..n_axes, n_axes));
            self.groups.groups[maker].reads.iter().any(|read| read.value == value && read.view == view)
        };
        let fits = reads.maker.is_none_or(|maker| reads.others.iter().all(|value| is_read(value, maker)));
        (fits && reads.others.len() <= FormulaSearch::MOST_OTHERS).then_some(reads)
    }

    fn reads_of(&mut self, id: ValueId) -> Option<ReadElements> {
        if let Some(reads) = self.reads.get(&id) {
            return reads.clone();
        }
        let reads = self.find_reads(id);
        self.reads.insert(id, reads.clone());
        reads
    }

    fn find_reads(&mut self, id: ValueId) -> Option<ReadElements> {
        let (values, groups) = (self.values, self.groups);
        if values.is_stored(id) {
            let group = groups.group_of.get(id).copied();
            if group == Some(self.reader) {
                return None;
            }
            let is_maker = |&index: &usize| {
                let group = &groups.groups[index];
                !group.is_library && group.folded.is_empty() && *group.space == *values.graph.ty(id).shape
            };
            return Some(match group.filter(is_maker) {
                Some(maker) => ReadElements { maker: Some(maker), others: SmallVec::new() },
                None => ReadElements { maker: None, others: SmallVec::from_slice(&[id]) },
            });
        }
        match values.lowering(id) {
            Lowering::Pointwise(_) => self.look_below(id),
            Lowering::Movement(Movement::Broadcast) => {
                let repeated = self.reads_of(values.graph.node(id).args[0])?;
                (repeated.maker.is_none() && repeated.others.is_empty()).then_some(repeated)
            }
            Lowering::Movement(_)
            | Lowering::Indexed { .. }
            | Lowering::Reduce { .. }
            | Lowering::Library(_)
            | Lowering::Parameter => None,
        }
    }
}

/// Lets `maker` compute formulas that `reader` did, if it keeps fewer bytes for it then; they are `written` from then on.
fn move_if_fewer(
    values: &mut Values<'_>,
    groups: &mut Groups,
    written: &mut ValueTable<()>,
    is_read_elsewhere: impl Fn(ValueId) -> bool,
    [maker, reader]: [usize; 2],
    formulas: &[ValueId],
) {
    let bytes = |values: &Values<'_>, id: ValueId| {
        let ty = values.graph.ty(id);
        ty.n_elements().saturating_mul(ty.dtype.size())
    };
    let group = &groups.groups[maker];
    let cost = formulas.iter().map(|&id| values.cost(id)).fold(group.cost, u32::saturating_add);
    let n_written = group.roots.iter().filter(|&&root| written.contains(root)).count();
    if cost > MAX_COST || !group.has_room(n_written, formulas.len()) {
        return;
    }
    formulas.iter().for_each(|&id| values.store(id));
    let still_read: FxHashSet<ValueId> =
        groups.groups[reader].roots.iter().flat_map(|&root| values.reads(root)).map(|read| read.value).collect();
    let is_freed =
        |&value: &ValueId| values.is_root(value) && !still_read.contains(&value) && !is_read_elsewhere(value);
    let before: FxHashSet<ValueId> = groups.groups[reader].reads.iter().map(|read| read.value).collect();
    let freed: SmallVec<[usize; 8]> =
        before.iter().filter(|value| is_freed(value)).map(|&id| bytes(values, id)).collect();
    let (n_freed, freed) = (freed.len(), freed.iter().sum::<usize>());
    let kept = formulas.iter().map(|&id| bytes(values, id)).sum::<usize>();
    if freed <= kept || kept < MIN_BYTES || n_freed < formulas.len() {
        formulas.iter().for_each(|&id| values.compute_within(id));
        return;
    }
    formulas.iter().for_each(|&id| written.insert(id, ()));
    groups.take_over(values, [maker, reader], formulas);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Graph;
    use crate::plan::fuse::tests::assert_known;

    /// The roots of the groups, after formulas moved, in the order of the program.
    fn roots(text: &str) -> Vec<Vec<usize>> {
        let graph: Graph = text.parse().unwrap_or_else(|e| panic!("{e} in\n{text}"));
        let mut values = Values::of(&graph);
        let mut groups = Groups::of(&values);
        keep_fewer(&mut values, &mut groups);
        assert_known(&groups, &values);
        let order = groups.in_order(&[]);
        let ids = |index: &usize| groups.groups[*index].roots.iter().map(|root| root.index()).collect();
        order.iter().map(ids).collect()
    }

    /// An activation between two products, and its derivative times what the second one gives.
    fn layers(side: usize, derivative: &str, outputs: &str) -> String {
        let ty = format!("f32[{side}, {side}]");
        format!(
            "graph (%0: {ty}, %1: {ty}) {{
               %2 = matmul %0, %1 : {ty}
               %3 = sin %2 : {ty}
               %4 = tanh %3 : {ty}
               %5 = mul %3, %4 : {ty}
               %6 = matmul %5, %1 : {ty}
               {derivative}
               %9 = mul %6, %8 : {ty}
               return {outputs}
             }}"
        )
        .replace("TY", &ty)
    }

    const DERIVATIVE: &str = "%7 = mul %4, %4 : TY\n %8 = sub %3, %7 : TY";

    #[test]
    fn a_derivative_is_made_where_its_arguments_are() {
        assert_eq!(roots(&layers(128, DERIVATIVE, "%9")), [vec![2], vec![3, 4, 5, 8], vec![6], vec![9]]);
    }

    /// The activation reads the product itself.
    #[test]
    fn a_derivative_of_a_product_is_made_with_the_activation() {
        let ty = "f32[128, 128]";
        let text = format!(
            "graph (%0: {ty}, %1: {ty}) {{
               %2 = matmul %0, %1 : {ty}
               %3 = tanh %2 : {ty}
               %4 = mul %2, %3 : {ty}
               %5 = matmul %4, %1 : {ty}
               %6 = mul %3, %3 : {ty}
               %7 = sub %2, %6 : {ty}
               %8 = mul %5, %7 : {ty}
               return %8
             }}"
        );
        assert_eq!(roots(&text), [vec![2], vec![3, 4, 7], vec![5], vec![8]]);
    }

    #[test]
    fn others_stay_where_they_are_multiplied() {
        let stay = [vec![2], vec![3, 4, 5], vec![6], vec![9]];
        assert_eq!(roots(&layers(64, DERIVATIVE, "%9")), stay, "few bytes");
        assert_eq!(roots(&layers(128, DERIVATIVE, "%9, %4")), stay, "one of two arguments is kept anyway");
        let of_one = "%7 = mul %4, %4 : TY\n %8 = sub %4, %7 : TY";
        assert_eq!(roots(&layers(128, of_one, "%9")), stay, "one argument");
        let of_others = "%7 = mul %4, %0 : TY\n %8 = sub %3, %7 : TY";
        assert_eq!(roots(&layers(128, of_others, "%9")), stay, "an argument from elsewhere");
        let turned = "%7 = permute %4 {perm=[1, 0]} : TY\n %8 = sub %3, %7 : TY";
        assert_eq!(roots(&layers(128, turned, "%9")), stay, "an argument at other points");
    }
}
