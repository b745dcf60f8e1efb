//! Which formulas are computed where all that they read is made, and kept in the place of it.
//!
//! A derivative that the backward pass multiplies by is such a formula: of `x * sigmoid(x)` the forward pass would keep both
//! `x` and the sigmoid for it. Groups are complete by then, and only pointwise ones compute more: the order of additions in a
//! sum stays what it was. Frameworks call what a forward pass keeps for the backward pass its residuals.

use retape_runtime::DType;
use rustc_hash::{FxHashMap, FxHashSet};

use super::fuse::{Groups, MAX_COST};
use super::values::Values;
use crate::ops::{Lowering, Movement};
use crate::types::ValueId;

/// Bytes of a value from which on it matters whether it is kept.
const MIN_BYTES: usize = 1 << 16;

/// Moves formulas to the groups that make what they read, if fewer bytes are kept then.
pub(super) fn keep_fewer(values: &mut Values<'_>, groups: &mut Groups) {
    let mut n_users = vec![0_u32; values.graph.n_nodes()];
    values.graph.iter().flat_map(|(_, node)| &node.args).for_each(|arg| n_users[arg.index()] += 1);
    let outputs: FxHashSet<ValueId> = values.graph.outputs().iter().map(|&id| values.memory_of(id)).collect();
    let readers = groups.readers();
    for reader in 0..groups.groups.len() {
        let mut search =
            FormulaSearch { values, groups, n_users: &n_users, reader, sources: FxHashMap::default(), found: vec![] };
        search.run();
        let found = search.found;
        for (maker, formulas) in by_maker(found) {
            let is_read_elsewhere = |root: ValueId| {
                let mut others = readers.get(root).into_iter().flatten();
                outputs.contains(&root) || others.any(|&group| group != maker && group != reader)
            };
            move_if_fewer(values, groups, is_read_elsewhere, [maker, reader], &formulas);
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

/// The origin of what a value is computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadFrom {
    /// Constants.
    Nothing,
    /// Elements that one other group makes at the same point.
    Group(usize),
    /// Anything else.
    Other,
}

impl ReadFrom {
    fn joined(self, other: ReadFrom) -> ReadFrom {
        match (self, other) {
            (ReadFrom::Nothing, source) | (source, ReadFrom::Nothing) => source,
            (ReadFrom::Group(a), ReadFrom::Group(b)) if a == b => self,
            _ => ReadFrom::Other,
        }
    }
}

/// The search for formulas in a group.
struct FormulaSearch<'s, 'g> {
    values: &'s Values<'g>,
    groups: &'s Groups,
    n_users: &'s [u32],
    reader: usize,
    sources: FxHashMap<ValueId, ReadFrom>,
    /// Formulas, of no other one in the group, with the group that makes what they read.
    found: Vec<(usize, ValueId)>,
}

impl FormulaSearch<'_, '_> {
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

    /// The source of what a value of the group is computed from, after a look at it.
    fn look_below(&mut self, id: ValueId) -> ReadFrom {
        let args = &self.values.graph.node(id).args;
        let sources: Vec<ReadFrom> = args.iter().map(|&arg| self.source(arg)).collect();
        let source = sources.iter().copied().fold(ReadFrom::Nothing, ReadFrom::joined);
        if source == ReadFrom::Other {
            for (&arg, source) in args.iter().zip(sources) {
                // A value that others use as well is computed again for each of them.
                let is_formula = !self.values.is_stored(arg) && self.n_users[arg.index()] == 1;
                if let (ReadFrom::Group(maker), true) = (source, is_formula) {
                    self.found.push((maker, arg));
                }
            }
        }
        source
    }

    fn source(&mut self, id: ValueId) -> ReadFrom {
        if let Some(&source) = self.sources.get(&id) {
            return source;
        }
        let source = self.source_of(id);
        self.sources.insert(id, source);
        source
    }

    fn source_of(&mut self, id: ValueId) -> ReadFrom {
        let (values, groups) = (self.values, self.groups);
        let shape = &values.graph.ty(id).shape;
        if values.is_stored(id) {
            let Some(&maker) = groups.group_of.get(id) else { return ReadFrom::Other };
            let group = &groups.groups[maker];
            let is_element = !group.is_library && group.folded.is_empty() && *group.space == **shape;
            return if maker != self.reader && is_element { ReadFrom::Group(maker) } else { ReadFrom::Other };
        }
        match values.lowering(id) {
            Lowering::Pointwise(_) => self.look_below(id),
            Lowering::Movement(Movement::Broadcast) => match self.source(values.graph.node(id).args[0]) {
                ReadFrom::Nothing => ReadFrom::Nothing,
                ReadFrom::Group(_) | ReadFrom::Other => ReadFrom::Other,
            },
            Lowering::Movement(_)
            | Lowering::Indexed { .. }
            | Lowering::Reduce { .. }
            | Lowering::Library(_)
            | Lowering::Parameter => ReadFrom::Other,
        }
    }
}

/// Lets `maker` compute formulas that `reader` did, if it keeps fewer bytes for it then.
fn move_if_fewer(
    values: &mut Values<'_>,
    groups: &mut Groups,
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
    if cost > MAX_COST || !group.has_room(formulas.len()) {
        return;
    }
    formulas.iter().for_each(|&id| values.store(id));
    let still_read: FxHashSet<ValueId> =
        groups.groups[reader].roots.iter().flat_map(|&root| values.reads(root)).map(|read| read.value).collect();
    let is_read = |root: ValueId| groups.groups[reader].reads.iter().any(|read| read.value == root);
    let is_freed = |&&root: &&ValueId| is_read(root) && !still_read.contains(&root) && !is_read_elsewhere(root);
    let freed = groups.groups[maker].roots.iter().filter(is_freed).map(|&root| bytes(values, root));
    let (freed, kept) = (freed.sum::<usize>(), formulas.iter().map(|&id| bytes(values, id)).sum::<usize>());
    if freed <= kept || kept < MIN_BYTES {
        formulas.iter().for_each(|&id| values.compute_within(id));
        return;
    }
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
