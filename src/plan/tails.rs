//! Which formulas of sums have a kernel of their own.
//!
//! A group that folds computes what follows from its results row by row, one element at a time. Where rows are short and
//! many, a logarithm of each takes longer than the row: a kernel over all results has them as lanes. The order of additions
//! is that of a group without these formulas.

use super::fuse::{Groups, kept_shape};
use super::values::Values;
use crate::types::ValueId;

/// The cost from which on a formula is computed apart, in units of an addition: no less than a transcendental function.
const DEAR: u32 = 16;

/// Rows that are worth a kernel of their own.
const MANY_ROWS: usize = 64;

/// The most elements of a row, beside whose work one formula is little.
const SHORT_ROW: usize = 1 << 10;

/// Gives groups of their own to dear formulas of the results of short rows, and to the other formulas of these.
pub(super) fn separate(values: &Values<'_>, groups: &mut Groups) {
    let mut is_changed = false;
    for index in 0..groups.groups.len() {
        let group = &groups.groups[index];
        let n_rows = kept_shape(&group.space, &group.folded).iter().product::<usize>();
        let row: usize = group.folded.iter().map(|&axis| group.space[axis]).product();
        if group.folded.is_empty() || n_rows < MANY_ROWS || row > SHORT_ROW {
            continue;
        }
        let is_formula = |root: &ValueId| values.folded(*root).is_empty() && group.is_tail(values, *root);
        let formulas: Vec<ValueId> = group.roots.iter().copied().filter(is_formula).collect();
        if formulas.iter().any(|&root| values.cost(root) >= DEAR) {
            groups.separate(values, index, &formulas);
            is_changed = true;
        }
    }
    if is_changed {
        groups.renew_ancestors();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Graph;
    use crate::plan::fuse::tests::assert_known;

    /// The roots of the groups, after formulas got groups of their own, in the order of the program.
    fn roots(text: &str) -> Vec<Vec<usize>> {
        let graph: Graph = text.parse().unwrap_or_else(|e| panic!("{e} in\n{text}"));
        let values = Values::of(&graph);
        let mut groups = Groups::of(&values);
        separate(&values, &mut groups);
        assert_known(&groups, &values);
        let order = groups.in_order(&[]);
        let ids = |index: &usize| groups.groups[*index].roots.iter().map(|root| root.index()).collect();
        order.iter().map(ids).collect()
    }

    /// The logarithm of sums and, from it and the maxima, of those of exponentials, over rows; and their distances.
    fn log_sum_exp(rows: usize, row: usize, op: &str) -> String {
        format!(
            "graph (%0: f32[{rows}, {row}]) {{
               %1 = reduce_max %0 {{axes=[1]}} : f32[{rows}]
               %2 = reduce_sum %0 {{axes=[1]}} : f32[{rows}]
               %3 = {op} %2 : f32[{rows}]
               %4 = add %3, %1 : f32[{rows}]
               %5 = broadcast_to %4 {{shape=[{row}, {rows}]}} : f32[{row}, {rows}]
               return %4, %5
             }}"
        )
    }

    #[test]
    fn dear_formulas_of_many_short_rows_are_apart() {
        assert_eq!(roots(&log_sum_exp(100, 10, "log")), [vec![1, 2], vec![4], vec![5]]);
        assert_eq!(roots(&log_sum_exp(100, 10, "sqrt")), [vec![1, 2, 4], vec![5]], "cheap");
        assert_eq!(roots(&log_sum_exp(10, 10, "log")), [vec![1, 2, 4], vec![5]], "few rows");
        assert_eq!(roots(&log_sum_exp(100, 2000, "log")), [vec![1, 2, 4], vec![5]], "long rows");
    }
}
