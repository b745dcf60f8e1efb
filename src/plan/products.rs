//! Small products of matrices become formulas of kernels.
//!
//! A call of the library costs more than the multiplications of a small product, whose result goes through memory
//! besides. Written out, each element of it is one chain of fused multiply-adds over the steps in order, from +0: the
//! operations of the library kernel, so it does not matter to a bit which of the two computes a product.
//!
//! A pointwise group that reads all of a product at its own points computes it, and the product loses its memory. Groups
//! that fold do not, since what is fused into a reduction decides the order of its additions.

use std::collections::{HashMap, HashSet};

use retape_kernels::library::{Library, MatMul};

use super::fuse::{Groups, MAX_COST};
use super::values::{Read, Values};
use crate::ops::{Lowering, SMALL_PRODUCT};
use crate::types::ValueId;

/// Up to so many steps a product of any size is a formula if vectors can lie along the rows of its right operand, or it
/// has no more columns than that: reading and writing takes longer than so few multiplications, and the library packs what
/// it reads.
const FEW_STEPS: usize = 4;

/// The most steps that a kernel writes out: its code is as long as they are many.
const MAX_STEPS: usize = 16;

/// The steps of a product that is small enough to be a formula; none of other values.
pub(super) fn steps_of(values: &Values<'_>, id: ValueId) -> Option<usize> {
    let Lowering::Library(Library::MatMul(MatMul { dtype, n, k, .. })) = values.lowering(id) else { return None };
    let n_multiplications = values.graph.ty(id).n_elements().saturating_mul(*k);
    let are_rows_dense = || {
        let (_, at) = values.operand(values.graph.node(id).args[1]);
        at.strides.last().is_some_and(|&stride| stride <= 1)
    };
    let is_flat = *k <= FEW_STEPS && (*n <= FEW_STEPS || are_rows_dense());
    let is_small = *k <= MAX_STEPS && n_multiplications <= SMALL_PRODUCT;
    ((is_flat || is_small) && n_multiplications > 0 && dtype.is_float()).then_some(*k)
}

/// Lets groups compute the small products that they alone read. The group of such a product stays, and makes no step.
pub(super) fn absorb(values: &mut Values<'_>, groups: &mut Groups) {
    let outputs: HashSet<ValueId> = values.graph.outputs().iter().map(|&output| values.memory_of(output)).collect();
    let products: Vec<(ValueId, usize)> = values.roots().filter_map(|id| Some((id, steps_of(values, id)?))).collect();
    let mut readers: HashMap<ValueId, Vec<usize>> = products.iter().map(|&(id, _)| (id, vec![])).collect();
    for (index, group) in groups.groups.iter().enumerate() {
        for read in &group.reads {
            if let Some(readers) = readers.get_mut(&read.value) {
                readers.push(index);
            }
        }
    }
    for (product, steps) in products {
        // A group that reads it at two views is listed twice.
        let [reader] = readers[&product][..] else { continue };
        let cost = groups.groups[reader].cost.saturating_add(steps as u32);
        if outputs.contains(&product) || cost > MAX_COST || !computes_once(values, groups, reader, product) {
            continue;
        }
        let operands = groups.groups[groups.group_of[product]].reads.clone();
        let group = &mut groups.groups[reader];
        group.cost = cost;
        group.products.push(product);
        group.reads.retain(|read| read.value != product);
        for read in operands {
            if !group.reads.contains(&read) {
                group.reads.push(read);
            }
        }
        values.compute_within(product);
    }
}

/// Whether a pointwise group reads each element of a product at one point at most.
fn computes_once(values: &Values<'_>, groups: &Groups, reader: usize, product: ValueId) -> bool {
    let group = &groups.groups[reader];
    let view = group.reads.iter().find(|read| read.value == product).and_then(|Read { view, .. }| view.as_ref());
    let Some(view) = view.filter(|_| !group.is_library && group.folded.is_empty()) else { return false };
    let at = view.affine(&values.graph.ty(product).shape, group.space.len());
    at.strides.iter().zip(&group.space).all(|(&stride, &extent)| stride != 0 || extent == 1)
}
