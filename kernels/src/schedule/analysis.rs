//! The facts about a nest that every emitter of machine code needs, whatever the width of its vectors.
//!
//! Guarantees that readers agree on the axis of the vectors, on the coordinates that a value depends on, on the part of
//! the loops that makes it, and on the cold parts that groups branch around.

use retape_runtime::DType;

use super::{Form, Nest, RareParts};
use crate::ir::{Affine, Inst, Kernel, Stage, ValueId, operation};

/// Lanes of the order of additions: a reduction along vectors adds neighbours to this many sums in turn, then these.
pub(crate) const LANES: usize = 4;

/// The part of the body that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The instructions that reductions and stores at every point need.
    Body,
    /// The instructions that stores at kept points need.
    Tail,
}

/// The facts about a nest.
#[derive(Clone, Debug)]
pub(crate) struct Analysis {
    /// The kept axes, which come first.
    pub(crate) kept: usize,
    /// The vector axis, if the nest has one.
    pub(crate) axis: Option<usize>,
    /// The dtype of each value.
    pub(crate) dtypes: Vec<DType>,
    /// Per instruction, the axes that its value depends on, as bits.
    pub(crate) deps: Vec<u64>,
    /// Per phase and instruction, whether the phase needs it.
    pub(crate) needed: [Vec<bool>; 2],
    /// The cold parts that groups branch around.
    pub(crate) rare: RareParts,
    /// The instructions that reduce.
    pub(crate) reduces: Vec<ValueId>,
    /// Of each access, loads first: parameter and map.
    pub(crate) accesses: Vec<(usize, Affine)>,
    /// The access of each load.
    pub(crate) access_of: Vec<usize>,
}

impl Analysis {
    /// Analyses a nest.
    pub(crate) fn of(nest: &Nest) -> Analysis {
        let kernel = &nest.kernel;
        let kept = kernel.axes.iter().filter(|a| !a.reduced).count();
        let axis = match nest.form {
            Form::Flat => Some(0),
            Form::Columns { .. } | Form::Tile => Some(kept - 1),
            Form::Rows => kernel.axes.len().checked_sub(1).filter(|&a| a >= kept),
        };
        let mut found = Analysis {
            kept,
            axis,
            dtypes: kernel.dtypes(),
            deps: Vec::new(),
            needed: needed(kernel),
            rare: RareParts::default(),
            reduces: Vec::new(),
            accesses: Vec::new(),
            access_of: vec![0; kernel.insts.len()],
        };
        found.depend(kernel);
        found.rare = RareParts::of(kernel, |id| {
            let [body, tail] = [found.needed[0][id], found.needed[1][id]];
            let is_of_groups = found.deps[id] & found.axis_bit() != 0;
            (is_of_groups && (body || tail)).then_some((found.deps[id], body, tail))
        });
        found
    }

    /// The vector axis as a bit.
    pub(crate) fn axis_bit(&self) -> u64 {
        self.axis.map_or(0, |axis| 1 << axis)
    }

    fn depend(&mut self, kernel: &Kernel) {
        for (id, inst) in kernel.insts.iter().enumerate() {
            let mut deps = inst.operands().iter().fold(0, |d, v| d | self.deps[v.index()]);
            match inst {
                Inst::Index(axis) => deps |= 1 << axis.index(),
                Inst::Load(param, at) => {
                    deps |= mask_of(at);
                    self.access_of[id] = self.accesses.len();
                    self.accesses.push((param.index(), at.clone()));
                }
                Inst::Reduce(..) => {
                    deps &= (1 << self.kept) - 1;
                    self.reduces.push(ValueId(id as u32));
                }
                Inst::Const(_) | Inst::LoadAt(..) | operation!() => {}
            }
            self.deps.push(deps);
        }
        for store in &kernel.stores {
            self.accesses.push((store.param.index(), store.at.clone()));
        }
    }
}

fn needed(kernel: &Kernel) -> [Vec<bool>; 2] {
    let mut needed = [vec![false; kernel.insts.len()], vec![false; kernel.insts.len()]];
    let mut work: Vec<(ValueId, usize)> = Vec::new();
    for store in &kernel.stores {
        let phase = if kernel.uses_reduced(&store.at) { Phase::Body } else { Phase::Tail };
        work.push((store.value, phase as usize));
    }
    while let Some((id, phase)) = work.pop() {
        if std::mem::replace(&mut needed[phase][id.index()], true) {
            continue;
        }
        let inst = &kernel.insts[id.index()];
        let phase = if matches!(inst, Inst::Reduce(..)) { Phase::Body as usize } else { phase };
        work.extend(inst.operands().iter().map(|&v| (v, phase)));
    }
    let stages = kernel.stages();
    debug_assert!(
        (0..stages.len()).all(|i| !(needed[Phase::Tail as usize][i] && stages[i] == Stage::Element)),
        "a tail uses no value of single points"
    );
    needed
}

fn mask_of(at: &Affine) -> u64 {
    at.strides.iter().enumerate().filter(|(_, stride)| **stride != 0).fold(0, |m, (axis, _)| m | 1 << axis)
}
