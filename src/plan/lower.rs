//! A group of roots as a kernel.
//!
//! Each value of the group is computed at a view of the iteration space: parameters and roots of other groups are
//! loaded, everything else is computed from its arguments, once per view.

use std::cell::RefCell;

use retape_kernels::ir::{Affine, AxisId, Kernel, KernelBuilder, ParamId, Value};
use retape_kernels::library::Library;
use retape_runtime::Scalar;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::fuse::FusionGroup;
use super::values::Values;
use super::view::View;
use crate::graph::Node;
use crate::ops::{Body, Lowering, Point};
use crate::types::ValueId;

/// A kernel and the values it reads and writes, in the order of its parameters.
pub(super) struct Lowered {
    pub(super) kernel: Kernel,
    pub(super) reads: Vec<ValueId>,
    pub(super) writes: Vec<ValueId>,
}

/// Lowers a group; `written` says which of its roots someone outside needs.
pub(super) fn lower(values: &Values<'_>, group: &FusionGroup, written: &dyn Fn(ValueId) -> bool) -> Lowered {
    let kernel = KernelBuilder::new();
    let axes = group.space.iter().enumerate();
    let axes: Vec<AxisId> = axes.map(|(axis, &extent)| kernel.axis(extent, group.folded.contains(&axis))).collect();
    let lowerer = Lowerer { values, group, kernel: &kernel, axes, state: RefCell::default() };
    let writes: Vec<ValueId> = group.roots.iter().copied().filter(|&root| written(root)).collect();
    let computed: Vec<(View, Value<'_>)> = group
        .roots
        .iter()
        .map(|&root| {
            let view = lowerer.place(root);
            let value = lowerer.compute(root, &view);
            (view, value)
        })
        .collect();
    for (&root, (view, value)) in group.roots.iter().zip(&computed).filter(|(root, _)| writes.contains(root)) {
        let ty = values.graph.ty(root);
        let param = kernel.param(ty.dtype, ty.n_elements(), true);
        kernel.store(param, view.affine(&ty.shape, group.space.len()), *value);
    }
    let reads = lowerer.state.into_inner().params.into_iter().map(|(value, _)| value).collect();
    Lowered { kernel: kernel.finish(), reads, writes }
}

/// A kernel that copies a stored value.
pub(super) fn copy(values: &Values<'_>, value: ValueId) -> Kernel {
    let kernel = KernelBuilder::new();
    let ty = values.graph.ty(value);
    let n = ty.n_elements();
    kernel.axis(n, false);
    let along = Affine { offset: 0, strides: SmallVec::from_elem(1, 1) };
    let from = kernel.param(ty.dtype, n, false);
    let element = kernel.load(from, along.clone());
    let to = kernel.param(ty.dtype, n, true);
    kernel.store(to, along, element);
    kernel.finish()
}

struct Lowerer<'k, 'g> {
    values: &'k Values<'g>,
    group: &'k FusionGroup,
    kernel: &'k KernelBuilder,
    axes: Vec<AxisId>,
    state: RefCell<LoweringState<'k>>,
}

#[derive(Default)]
struct LoweringState<'k> {
    params: Vec<(ValueId, ParamId)>,
    computed: FxHashMap<(ValueId, View), Value<'k>>,
}

impl<'k> Lowerer<'k, '_> {
    /// The view of a root at its own coordinates: all axes, or those that are kept.
    fn place(&self, root: ValueId) -> View {
        let n_axes = self.group.space.len();
        let kept = (0..n_axes).filter(|axis| !self.group.folded.contains(axis));
        if self.group.is_tail(self.values, root) {
            View::of_axes(kept, n_axes)
        } else {
            View::of_axes(0..n_axes, n_axes)
        }
    }

    /// The value of `id` at a view: loaded if it lies in memory, else computed.
    fn value(&self, id: ValueId, view: &View) -> Value<'k> {
        if self.values.is_stored(id) && !self.group.roots.contains(&id) {
            return self.load(id, view.affine(&self.values.graph.ty(id).shape, self.group.space.len()));
        }
        self.compute(id, view)
    }

    fn compute(&self, id: ValueId, view: &View) -> Value<'k> {
        let key = (id, view.clone());
        if let Some(&value) = self.state.borrow().computed.get(&key) {
            return value;
        }
        let node = self.values.graph.node(id);
        let value = match self.values.lowering(id) {
            Lowering::Pointwise(body) | Lowering::Indexed { body, .. } => self.apply(node, body, view),
            Lowering::Movement(movement) => {
                let from = &self.values.graph.ty(node.args[0]).shape;
                match view.through(movement, from, &node.ty.shape, &self.group.space) {
                    Some(through) => self.value(node.args[0], &through),
                    None => {
                        // The values behind such a reshape are in memory, in the same order as its result.
                        let at = view.affine(&node.ty.shape, self.group.space.len());
                        self.load(self.values.memory_of(node.args[0]), at)
                    }
                }
            }
            Lowering::Reduce { axes, .. } if axes.is_empty() => self.value(node.args[0], view),
            Lowering::Reduce { op, .. } => {
                let n_axes = self.group.space.len();
                let element = self.value(node.args[0], &View::of_axes(0..n_axes, n_axes));
                element.reduce(*op)
            }
            Lowering::Library(Library::MatMul(product)) => self.product(node, product.k, view),
            Lowering::Library(_) | Lowering::Parameter => unreachable!("library results and parameters are in memory"),
        };
        self.state.borrow_mut().computed.insert(key, value);
        value
    }

    fn apply(&self, node: &Node, body: &Body, view: &View) -> Value<'k> {
        body(&Here { lowerer: self, node, view })
    }

    /// One chain of fused multiply-adds from +0, as the library kernel of products computes it.
    fn product(&self, node: &Node, steps: usize, view: &View) -> Value<'k> {
        let rank = node.ty.rank();
        let [(a, at_a), (b, at_b)] = [0, 1].map(|arg| self.values.operand(node.args[arg]));
        let sum = self.kernel.constant(Scalar { dtype: node.ty.dtype, bits: 0 });
        (0..steps as i64).fold(sum, |sum, step| {
            let n_axes = self.group.space.len();
            let x = self.load(a, view.with_coordinate(rank - 1, step).through_strides(&at_a, n_axes));
            let y = self.load(b, view.with_coordinate(rank - 2, step).through_strides(&at_b, n_axes));
            x.fma(y, sum)
        })
    }

    fn load(&self, id: ValueId, at: Affine) -> Value<'k> {
        let ty = self.values.graph.ty(id);
        if ty.n_elements() == 0 {
            // Only a fold over nothing comes here, and it ignores what it is given.
            return self.kernel.constant(Scalar { dtype: ty.dtype, bits: 0 });
        }
        self.kernel.load(self.param(id), at)
    }

    fn param(&self, id: ValueId) -> ParamId {
        let params = &mut self.state.borrow_mut().params;
        if let Some(&(_, param)) = params.iter().find(|(known, _)| *known == id) {
            return param;
        }
        let ty = self.values.graph.ty(id);
        let param = self.kernel.param(ty.dtype, ty.n_elements(), false);
        params.push((id, param));
        param
    }

    /// An affine function of the point as an `i64` value.
    fn affine(&self, offset: i64, strides: &[i64]) -> Value<'k> {
        let mut sum = self.kernel.constant(offset.into());
        for (&stride, &axis) in strides.iter().zip(&self.axes) {
            if stride != 0 {
                sum = sum + self.kernel.index(axis) * self.kernel.constant(stride.into());
            }
        }
        sum
    }
}

/// The point that a body is evaluated at.
struct Here<'l, 'k, 'g> {
    lowerer: &'l Lowerer<'k, 'g>,
    node: &'l Node,
    view: &'l View,
}

impl<'k> Point<'k> for Here<'_, 'k, '_> {
    fn arg(&self, arg: usize) -> Value<'k> {
        self.lowerer.value(self.node.args[arg], self.view)
    }

    fn index(&self, axis: usize) -> Value<'k> {
        let (offset, strides) = self.view.parts().nth(axis).expect("ops ask for axes of their result");
        self.lowerer.affine(offset, strides)
    }

    fn at(&self, arg: usize, coordinates: &[Value<'k>]) -> Value<'k> {
        let id = self.node.args[arg];
        let shape = &self.lowerer.values.graph.ty(id).shape;
        let kernel = self.lowerer.kernel;
        let mut position = kernel.constant(0_i64.into());
        for (&coordinate, stride) in coordinates.iter().zip(shape.strides()) {
            position = position + coordinate * kernel.constant((stride as i64).into());
        }
        kernel.load_at(self.lowerer.param(self.lowerer.values.memory_of(id)), position)
    }

    fn constant(&self, value: Scalar) -> Value<'k> {
        self.lowerer.kernel.constant(value)
    }
}
