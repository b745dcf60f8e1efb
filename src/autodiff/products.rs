//! Cotangents that are matrix products.
//!
//! A weight that is used many times, as by each step of a recurrent network, has a cotangent of each use: the product
//! of what entered and what came back. Their sum is one product of the joined operands, whose sum runs over all uses.
//! It writes each element of the result once, and is a product of the size that they are quick in.
//!
//! Joining copies the operands, so that products of few uses, or large ones, are added as they are.

use std::sync::Arc;

use retape_runtime::Shape;
use smallvec::SmallVec;

use crate::error::Caller;
use crate::ops::{Concat, MAX_JOINED, MatMul, Op, Permute, Reshape, SMALL_PRODUCT};
use crate::tape::Tape;
use crate::tensor::Tensor;
use crate::types::{TensorType, ValueId};

/// Fewer products than these are added: their sum joins other formulas in a kernel, and two joins are steps too.
const MIN_MERGED: usize = 4;

/// The operands of a product.
struct Product {
    a: Tensor,
    b: Tensor,
}

impl Product {
    /// Takes a cotangent apart that is a product, or a transposed one.
    fn of(tape: &Arc<Tape>, ct: &Tensor, at: Caller) -> Option<Product> {
        if let Some(source) = source(tape, ct) {
            let Product { a, b } = Product::of(tape, &source, at)?;
            return Some(Product { a: transposed(&b, at), b: transposed(&a, at) });
        }
        Product::directly(tape, ct)
    }

    /// Takes a cotangent apart that is a product.
    fn directly(tape: &Arc<Tape>, ct: &Tensor) -> Option<Product> {
        let id = ct.as_traced()?.id;
        let [(a, a_ty), (b, b_ty)] = tape.with_graph(|graph| {
            let node = graph.node(id);
            let [a, b] = *node.args else { return None };
            let operand = |id: ValueId| (id, TensorType::clone(graph.ty(id)));
            matches!(node.op, Op::MatMul(_)).then(|| [operand(a), operand(b)])
        })?;
        Some(Product { a: tape.value(a, a_ty), b: tape.value(b, b_ty) })
    }

    /// The length of its sums.
    fn depth(&self) -> usize {
        self.a.extent(-1)
    }
}

/// The cotangent of a value whose permutation has a product as its cotangent, if the rows of the product are the value's
/// last axis: the product in the other order of the transposed operands, which products read as they lie. Its columns are
/// that axis then: the permutation that is left, if one is, moves whole rows.
pub(super) fn turned_cotangent(tape: &Arc<Tape>, op: &Op, ct: &Tensor, at: Caller) -> Option<Tensor> {
    let Op::Permute(Permute { perm }) = op else { return None };
    let rows = ct.rank().checked_sub(2)?;
    (perm[rows] == rows + 1).then_some(())?;
    let Product { a, b } = Product::directly(tape, ct)?;
    let turned = Tensor::apply_at(MatMul, &[&transposed(&b, at), &transposed(&a, at)], at);
    let mut axes: SmallVec<[usize; 4]> = perm.iter().map(|_| 0).collect();
    perm.iter().enumerate().for_each(|(axis, &source)| axes[source] = axis);
    for axis in &mut axes {
        *axis = if *axis < rows { *axis } else { 2 * rows + 1 - *axis };
    }
    let is_in_place = axes.is_sorted();
    Some(if is_in_place { turned } else { Tensor::apply_at(Permute { perm: axes }, &[&turned], at) })
}

/// Puts one product in the place of the first of many.
pub(super) fn merge(tape: &Arc<Tape>, terms: &mut [Option<Tensor>], at: Caller) {
    let product = |term: &Option<Tensor>| Product::of(tape, term.as_ref()?, at);
    let found = terms.iter().enumerate().filter_map(|(position, term)| Some((position, product(term)?)));
    // The uses of a value are visited from last to first. In their own order, slices of a sequence lie as they lay.
    let (positions, products): (Vec<usize>, Vec<Product>) = found.rev().unzip();
    if let Some(&first) = positions.last().filter(|_| pays(&products)) {
        positions.iter().for_each(|&position| terms[position] = None);
        terms[first] = Some(merged(tape, &products, at));
    }
}

/// Whether copying the operands of products of one shape moves fewer elements than adding the products does.
fn pays(products: &[Product]) -> bool {
    let [Product { a, b }, ..] = products else { return false };
    let (rows, columns) = (a.extent(-2), b.extent(-1));
    // Formulas of one kernel add small products on their way.
    let is_small = rows.saturating_mul(columns).saturating_mul(a.extent(-1)) <= SMALL_PRODUCT;
    let depth: usize = products.iter().map(Product::depth).sum();
    let (copied, added) = (depth.saturating_mul(rows + columns), (products.len() - 1).saturating_mul(rows * columns));
    products.len() >= MIN_MERGED && copied <= added && !is_small
}

/// The product of the operands joined along the axis that products add over.
fn merged(tape: &Arc<Tape>, products: &[Product], at: Caller) -> Tensor {
    let columns: Vec<Tensor> = products.iter().map(|product| product.a.clone()).collect();
    let rows: Vec<Tensor> = products.iter().map(|product| product.b.clone()).collect();
    Tensor::apply_at(MatMul, &[&joined_columns(tape, &columns, at), &joined_rows(&rows, at)], at)
}

fn joined_rows(parts: &[Tensor], at: Caller) -> Tensor {
    let axis = parts[0].rank() - 2;
    Tensor::apply_in_groups(Concat { axis }, MAX_JOINED, &parts.iter().collect::<Vec<_>>(), at)
}

/// Matrices side by side. If they are transposed, their sources are joined by rows, which lie together in memory.
fn joined_columns(tape: &Arc<Tape>, parts: &[Tensor], at: Caller) -> Tensor {
    let sources: Option<Vec<Tensor>> = parts.iter().map(|part| untransposed(tape, part, at)).collect();
    match sources {
        Some(sources) => transposed(&joined_rows(&sources, at), at),
        None => {
            let axis = parts[0].rank() - 1;
            Tensor::apply_in_groups(Concat { axis }, MAX_JOINED, &parts.iter().collect::<Vec<_>>(), at)
        }
    }
}

/// The matrices of which these are the transposed ones; of columns the rows.
fn untransposed(tape: &Arc<Tape>, part: &Tensor, at: Caller) -> Option<Tensor> {
    if part.extent(-1) == 1 {
        let mut shape = Shape::new(part.shape());
        shape.extents_mut().swap(part.rank() - 2, part.rank() - 1);
        return Some(Tensor::apply_at(Reshape { shape }, &[part], at));
    }
    source(tape, part)
}

/// The value that a traced tensor is the transposed one of.
fn source(tape: &Arc<Tape>, tensor: &Tensor) -> Option<Tensor> {
    let id = tensor.as_traced()?.id;
    let (source, ty) = tape.with_graph(|graph| {
        let node = graph.node(id);
        let Op::Permute(permute) = &node.op else { return None };
        let source = node.args[0];
        (tensor.rank() >= 2 && *permute == exchange(tensor.rank()))
            .then(|| (source, TensorType::clone(graph.ty(source))))
    })?;
    Some(tape.value(source, ty))
}

fn transposed(matrix: &Tensor, at: Caller) -> Tensor {
    Tensor::apply_at(exchange(matrix.rank()), &[matrix], at)
}

/// The permutation that exchanges the last two axes.
fn exchange(rank: usize) -> Permute {
    let mut perm: SmallVec<[usize; 4]> = (0..rank).collect();
    perm.swap(rank - 2, rank - 1);
    Permute { perm }
}
