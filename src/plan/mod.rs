//! Graph to plan: which values share a kernel, in which order kernels run, and where every value lies.

#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

mod ancestors;
mod donate;
mod epilogue;
mod fuse;
mod join;
mod lower;
mod materialise;
mod parts;
mod paths;
mod place;
mod products;
mod readers;
mod residuals;
mod slots;
mod tails;
mod transpose;
mod values;
mod view;
mod written;

use std::collections::{BTreeSet, HashSet};

use retape_kernels::ir::Affine;
use retape_kernels::library::{Library, MatrixLayout};
use retape_kernels::{BufferType, Plan, Work};
use retape_runtime::{Device, Shortage};
use smallvec::SmallVec;

use self::fuse::{FusionGroup, Groups};
pub(crate) use self::join::Joined;
use self::lower::Lowered;
use self::place::place;
use self::values::Values;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::ops::{Lowering, Op};
use crate::types::ValueId;

/// The work of computing a value from its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ComputeCost {
    /// Nothing: readers of the value read through it.
    Nothing,
    /// This cost for each element, in units of an addition, within any kernel.
    PerElement(u32),
    /// A reduction, perhaps of a formula that is fused with it.
    Reduction,
    /// A library kernel.
    Library,
}

/// The work of computing each value of a graph, and whether its plan gives it memory on any device: one may have copies of
/// more values.
pub(crate) fn compute_costs(graph: &Graph) -> Vec<(ComputeCost, bool)> {
    let values = Values::of(graph);
    graph.iter().map(|(id, _)| (values.compute_cost(id), values.is_root(id))).collect()
}

/// The values of the graph that each step of a plan computes and reads; needed to look at a plan, not to call it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    /// One per step of the plan.
    pub(crate) steps: Vec<StepValues>,
    /// The size that the arena would have if no two values shared bytes.
    pub(crate) unshared_bytes: usize,
    /// Joined values whose parts are written where they belong, each with the step that writes the last part.
    pub(crate) joined: Vec<(usize, Joined)>,
}

/// The values of one step.
#[derive(Clone, Debug)]
pub(crate) struct StepValues {
    /// The roots that the step computes, written or not; the values between them and stored ones are computed too, except
    /// zeros that updates are scattered to.
    pub(crate) roots: Vec<ValueId>,
    /// The value that each operand holds.
    pub(crate) operands: Vec<ValueId>,
}

impl Layout {
    /// The values that each step computes, in order: its roots, and the values between them and stored ones.
    pub(crate) fn members(&self, graph: &Graph) -> Vec<BTreeSet<ValueId>> {
        let roots = self.steps.iter().flat_map(|step| &step.roots);
        let stored: HashSet<ValueId> = graph.params().iter().chain(roots).copied().collect();
        let members = |step: &StepValues| {
            let mut members = BTreeSet::new();
            let mut open = step.roots.clone();
            while let Some(id) = open.pop() {
                if members.insert(id) {
                    open.extend(graph.node(id).args.iter().copied().filter(|arg| !stored.contains(arg)));
                }
            }
            members
        };
        self.steps.iter().map(members).collect()
    }
}

/// Plans a graph for a device, and says what the steps are in it.
pub(crate) fn plan(graph: &Graph, device: Device) -> Result<(Plan, Layout)> {
    if graph.nodes().iter().any(|node| matches!(node.op, Op::Call(_))) {
        return Err(Error::Internal("a call of compiled code is to be compiled".into()));
    }
    let mut values = Values::of(graph);
    let mut groups = Groups::of(&values);
    residuals::keep_fewer(&mut values, &mut groups);
    let mut copied = vec![];
    if device == Device::Cpu {
        tails::separate(&values, &mut groups);
        copied = materialise::transposed(&mut values, &mut groups);
    }
    products::absorb(&mut values, &mut groups);
    let mut steps = unplaced_steps(&values, &groups);
    if device == Device::Cpu {
        parts::store_in_joins(&values, &mut groups, &mut steps);
    }
    // Formulas are epilogues of copies that were made for them.
    copied.iter().for_each(|&id| transpose::find(std::slice::from_mut(&mut steps[groups.group_of[id]]), device));
    epilogue::attach(&values, &mut groups, &mut steps);
    transpose::find(&mut steps, device);
    let order = groups.in_order(&[]);
    let later = groups.in_order(&groups.delayed_by(&values));
    // Steps are copied only where both orders are tried.
    let other =
        (later != order).then(|| place(&values, later.iter().filter_map(|&group| steps[group].clone()).collect()));
    let mut planned = place(&values, order.iter().filter_map(|&group| steps[group].take()).collect());
    // Other readers of what could be written over may go first, unless values then live so long that nothing is won.
    if let Some(other) = other {
        let outputs = |plan: &Plan| plan.outputs.iter().map(BufferType::bytes).fold(0, usize::saturating_add);
        let needs = |plan: &Plan| plan.arena_bytes.saturating_add(outputs(plan)).saturating_sub(plan.donated_bytes());
        if needs(&other.0) < needs(&planned.0) {
            planned = other;
        }
    }
    let bytes = planned.0.arena_bytes;
    if bytes > Plan::MOST_ARENA {
        return Err(Error::Device(Shortage::unaddressable(bytes, Device::Cpu).into()));
    }
    if cfg!(debug_assertions) {
        planned.0.verify().map_err(|e| Error::Internal(format!("{e:?} in the plan of\n{graph}")))?;
    }
    Ok(planned)
}

/// A step whose operands are still values.
#[derive(Clone)]
struct UnplacedStep {
    work: Work,
    reads: Vec<ValueId>,
    /// With an epilogue, its accumulator last.
    writes: Vec<ValueId>,
    roots: Vec<ValueId>,
    label: String,
}

/// The step of each group.
fn unplaced_steps(values: &Values<'_>, groups: &Groups) -> Vec<Option<UnplacedStep>> {
    let outside = groups.read_from_outside(values);
    let make = |group: &FusionGroup| {
        let label = label(values, group);
        let roots = group.roots.clone();
        match values.lowering(group.roots[0]) {
            Lowering::Library(library) if products::steps_of(values, group.roots[0]).is_none() => {
                let root = group.roots[0];
                let (library, reads) = with_strides(values, root, library);
                UnplacedStep { work: Work::library(library), reads, writes: vec![root], roots, label }
            }
            Lowering::Pointwise(_)
            | Lowering::Indexed { .. }
            | Lowering::Movement(_)
            | Lowering::Reduce { .. }
            | Lowering::Library(_)
            | Lowering::Parameter => {
                let Lowered { kernel, reads, writes } = lower::lower(values, group, &|root| outside.contains(root));
                UnplacedStep { work: Work::Kernel(kernel), reads, writes, roots, label }
            }
        }
    };
    // A product that a group computes has no step of its own.
    let has_step = |group: &&FusionGroup| values.is_root(group.roots[0]);
    groups.groups.iter().map(|group| Some(group).filter(has_step).map(make)).collect()
}

/// The names of the ops that a group computes.
fn label(values: &Values<'_>, group: &FusionGroup) -> String {
    let is_product = !group.products.is_empty();
    let roots = group.roots.iter().map(|&root| values.graph.node(root).op.name());
    is_product.then_some("matmul").into_iter().chain(roots).collect::<Vec<_>>().join("+")
}

/// A library call with the memory it reads; matrix products, attention and joins read through movements.
fn with_strides(values: &Values<'_>, root: ValueId, library: &Library) -> (Library, Vec<ValueId>) {
    let (mut library, args) = (library.clone(), values.library_args(root));
    if let Library::Join(join) = &mut library {
        let parts = values.parts(root);
        join.offsets = parts.iter().map(|part| part.offset).collect();
        join.pitches = parts.iter().map(|part| part.pitch).collect();
        return (library, parts.iter().map(|part| part.source).collect());
    }
    let (mut layouts, mut reads) = (SmallVec::<[Affine; 4]>::new(), Vec::with_capacity(args.len()));
    for (position, &arg) in args.iter().enumerate() {
        if values.reads_strided(root, position) {
            let (memory, at) = values.operand(arg);
            layouts.push(at);
            reads.push(memory);
        } else {
            reads.push(values.memory_of(arg));
        }
    }
    match (&mut library, &layouts[..]) {
        (Library::MatMul(product), [a, b]) => (product.a, product.b) = (matrices(a), matrices(b)),
        (Library::Attention(attention), all) => attention.operands = all.iter().map(heads).collect(),
        _ => {}
    }
    (library, reads)
}

/// The layout of `[batch, position, head, feature]`.
fn heads(at: &Affine) -> MatrixLayout {
    let [batch, position, head, feature] = at.strides[..] else { unreachable!("four axes") };
    matrices(&Affine { offset: at.offset, strides: SmallVec::from_slice(&[batch, head, position, feature]) })
}

/// The layout of `[batch.., row, column]`.
fn matrices(at: &Affine) -> MatrixLayout {
    let stride = |&stride: &i64| usize::try_from(stride).expect("strided memory runs forward");
    let strides: SmallVec<[usize; 4]> = at.strides.iter().map(stride).collect();
    let (batch, matrix) = strides.split_at(strides.len() - 2);
    MatrixLayout {
        offset: stride(&at.offset),
        batch_strides: SmallVec::from_slice(batch),
        row_stride: matrix[0],
        col_stride: matrix[1],
    }
}
