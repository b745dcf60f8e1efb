//! The facts about instructions and kernels: operands, dtypes, stages, sizes.
//!
//! The questions about whole kernels have sensible answers for verified ones; they never panic on others, but may
//! answer nonsense.

use retape_runtime::{DType, Scalar};
use smallvec::SmallVec;

use super::{Affine, Binary, Inst, Kernel, ReductionOp, ValueId, operation};

/// When an instruction of a kernel runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Its value is the same along all reduced axes and needs no reduction: ready before the reduced loops.
    Kept,
    /// Its value differs between points of the reduced axes: once per point.
    Element,
    /// Its value depends on a reduction: after the reduced loops, once per kept point.
    Tail,
}

/// The numbers of an integer dtype, as far as `i64` has them; all of `i64` for other dtypes.
pub(crate) fn int_range(dtype: DType) -> (i64, i64) {
    match dtype {
        DType::I32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        DType::U32 => (0, i64::from(u32::MAX)),
        DType::U8 => (0, 255),
        DType::I64 | DType::Bool | DType::F16 | DType::Bf16 | DType::F32 | DType::F64 => (i64::MIN, i64::MAX),
    }
}

impl Stage {
    /// The stage of a value made of values of two stages; `None` for one of an element and a tail value.
    pub fn join(self, other: Stage) -> Option<Stage> {
        match (self, other) {
            (Stage::Kept, s) | (s, Stage::Kept) => Some(s),
            (Stage::Element, Stage::Element) => Some(Stage::Element),
            (Stage::Tail, Stage::Tail) => Some(Stage::Tail),
            (Stage::Element, Stage::Tail) | (Stage::Tail, Stage::Element) => None,
        }
    }
}

impl Affine {
    /// The map with this offset and these strides, one per axis.
    pub fn new(offset: i64, strides: &[i64]) -> Affine {
        Affine { offset, strides: SmallVec::from_slice(strides) }
    }

    /// The stride along the axis with this index; 0 for an axis that the map does not list.
    pub fn stride(&self, axis: usize) -> i64 {
        self.strides.get(axis).copied().unwrap_or(0)
    }
}

impl ReductionOp {
    /// The operation that combines two values.
    pub const fn binary(self) -> Binary {
        match self {
            ReductionOp::Sum => Binary::Add,
            ReductionOp::Prod => Binary::Mul,
            ReductionOp::Max => Binary::Max,
            ReductionOp::Min => Binary::Min,
            ReductionOp::All => Binary::And,
            ReductionOp::Any => Binary::Or,
        }
    }

    /// Whether values of `dtype` can be reduced with it: numbers for the arithmetic ones, `bool` for the logical ones.
    pub const fn allows(self, dtype: DType) -> bool {
        match self {
            ReductionOp::Sum | ReductionOp::Prod | ReductionOp::Max | ReductionOp::Min => {
                dtype.is_float() || dtype.is_int()
            }
            ReductionOp::All | ReductionOp::Any => matches!(dtype, DType::Bool),
        }
    }

    /// The value of a reduction over no elements; for integers the extremes of their range.
    pub fn neutral(self, dtype: DType) -> Scalar {
        match self {
            ReductionOp::Sum | ReductionOp::Any => Scalar::from_f64(0.0, dtype),
            ReductionOp::Prod | ReductionOp::All => Scalar::from_f64(1.0, dtype),
            ReductionOp::Max => Scalar::from_f64(f64::NEG_INFINITY, dtype),
            ReductionOp::Min => Scalar::from_f64(f64::INFINITY, dtype),
        }
    }
}

impl<V: Copy> Inst<V> {
    /// The operands in order.
    pub fn operands(&self) -> SmallVec<[V; 3]> {
        match *self {
            Inst::Const(_) | Inst::Index(_) | Inst::Load(..) => SmallVec::new(),
            Inst::LoadAt(_, x)
            | Inst::Unary(_, x)
            | Inst::Cast(_, x)
            | Inst::Bitcast(_, x)
            | Inst::Call1(_, x)
            | Inst::Reduce(_, x) => SmallVec::from_slice(&[x]),
            Inst::Binary(_, x, y) | Inst::Compare(_, x, y) | Inst::Call2(_, x, y) => SmallVec::from_slice(&[x, y]),
            Inst::Select(x, y, z) | Inst::Fma(x, y, z) => SmallVec::from_slice(&[x, y, z]),
        }
    }

    /// The same instruction over other operands.
    pub fn map<W>(&self, mut f: impl FnMut(V) -> W) -> Inst<W> {
        self.try_map(|v| Some(f(v))).expect("a map that always answers")
    }

    /// The same instruction over other operands, if `f` has one for each.
    pub fn try_map<W>(&self, mut f: impl FnMut(V) -> Option<W>) -> Option<Inst<W>> {
        Some(match *self {
            Inst::Const(c) => Inst::Const(c),
            Inst::Index(axis) => Inst::Index(axis),
            Inst::Load(param, ref at) => Inst::Load(param, at.clone()),
            Inst::LoadAt(param, at) => Inst::LoadAt(param, f(at)?),
            Inst::Unary(op, x) => Inst::Unary(op, f(x)?),
            Inst::Binary(op, x, y) => Inst::Binary(op, f(x)?, f(y)?),
            Inst::Compare(op, x, y) => Inst::Compare(op, f(x)?, f(y)?),
            Inst::Select(c, x, y) => Inst::Select(f(c)?, f(x)?, f(y)?),
            Inst::Fma(x, y, z) => Inst::Fma(f(x)?, f(y)?, f(z)?),
            Inst::Cast(dtype, x) => Inst::Cast(dtype, f(x)?),
            Inst::Bitcast(dtype, x) => Inst::Bitcast(dtype, f(x)?),
            Inst::Call1(func, x) => Inst::Call1(func, f(x)?),
            Inst::Call2(func, x, y) => Inst::Call2(func, f(x)?, f(y)?),
            Inst::Reduce(op, x) => Inst::Reduce(op, f(x)?),
        })
    }
}

/// The dtype of an instruction: its own, or that of an operand.
enum TypeOf {
    Known(DType),
    SameAs(ValueId),
}

impl Kernel {
    fn type_of(&self, inst: &Inst<ValueId>) -> TypeOf {
        match *inst {
            Inst::Const(c) => TypeOf::Known(c.dtype),
            Inst::Index(_) => TypeOf::Known(DType::I64),
            Inst::Load(p, _) | Inst::LoadAt(p, _) => {
                TypeOf::Known(self.params.get(p.index()).map_or(DType::F32, |p| p.dtype))
            }
            Inst::Compare(..) => TypeOf::Known(DType::Bool),
            Inst::Cast(dtype, _) | Inst::Bitcast(dtype, _) => TypeOf::Known(dtype),
            Inst::Unary(_, x)
            | Inst::Binary(_, x, _)
            | Inst::Select(_, x, _)
            | Inst::Fma(x, _, _)
            | Inst::Call1(_, x)
            | Inst::Call2(_, x, _)
            | Inst::Reduce(_, x) => TypeOf::SameAs(x),
        }
    }

    /// The dtype of the value that an instruction makes; walks a chain of operands, see [`dtypes`](Kernel::dtypes)
    /// for all of them at once.
    pub fn dtype_of(&self, mut id: ValueId) -> DType {
        loop {
            match self.insts.get(id.index()).map(|inst| self.type_of(inst)) {
                Some(TypeOf::Known(dtype)) => return dtype,
                Some(TypeOf::SameAs(x)) if x < id => id = x,
                Some(TypeOf::SameAs(_)) | None => return DType::F32,
            }
        }
    }

    /// The dtypes of all values.
    pub fn dtypes(&self) -> Vec<DType> {
        let mut dtypes = Vec::with_capacity(self.insts.len());
        for inst in &self.insts {
            let dtype = self.dtype_given(inst, &dtypes);
            dtypes.push(dtype);
        }
        dtypes
    }

    /// The dtype of the value that an instruction makes, given those before it.
    pub(super) fn dtype_given(&self, inst: &Inst<ValueId>, before: &[DType]) -> DType {
        match self.type_of(inst) {
            TypeOf::Known(dtype) => dtype,
            TypeOf::SameAs(x) => before.get(x.index()).copied().unwrap_or(DType::F32),
        }
    }

    /// Whether an affine map has a stride along a reduced axis.
    pub fn uses_reduced(&self, at: &Affine) -> bool {
        self.axes.iter().zip(&at.strides).any(|(axis, &stride)| axis.reduced && stride != 0)
    }

    /// The stage of an instruction given those before it; `None` if it mixes element and tail values or reduces a
    /// tail value.
    pub(super) fn stage_of(&self, inst: &Inst<ValueId>, before: &[Stage]) -> Option<Stage> {
        let stage = |v: ValueId| before.get(v.index()).copied().unwrap_or(Stage::Kept);
        let varies = |reduced| if reduced { Stage::Element } else { Stage::Kept };
        match inst {
            Inst::Reduce(_, x) => (stage(*x) != Stage::Tail).then_some(Stage::Tail),
            Inst::Index(axis) => Some(varies(self.axes.get(axis.index()).is_some_and(|a| a.reduced))),
            Inst::Load(_, at) => Some(varies(self.uses_reduced(at))),
            Inst::Const(_) | Inst::LoadAt(..) | operation!() => {
                inst.operands().into_iter().try_fold(Stage::Kept, |s, v| s.join(stage(v)))
            }
        }
    }

    /// The stages of all values.
    pub fn stages(&self) -> Vec<Stage> {
        let mut stages = Vec::with_capacity(self.insts.len());
        for inst in &self.insts {
            let stage = self.stage_of(inst, &stages).unwrap_or(Stage::Tail);
            stages.push(stage);
        }
        stages
    }

    /// Whether a value depends on a reduction, so that it is made once per kept point.
    pub fn in_tail(&self, id: ValueId) -> bool {
        self.stages().get(id.index()) == Some(&Stage::Tail)
    }

    /// The number of points of the iteration space.
    pub fn n_points(&self) -> usize {
        product(self.axes.iter().map(|a| a.extent))
    }

    /// The number of points of the kept axes; 1 if all are reduced.
    pub fn kept_len(&self) -> usize {
        product(self.axes.iter().filter(|a| !a.reduced).map(|a| a.extent))
    }
}

/// The product of extents, saturating; verified kernels have it below `i64::MAX`.
fn product(extents: impl Iterator<Item = usize> + Clone) -> usize {
    if extents.clone().any(|d| d == 0) { 0 } else { extents.fold(1, usize::saturating_mul) }
}
