//! The work of a step in arithmetic and in traffic: the two numbers of a roofline.
//!
//! Source: Williams, Waterman and Patterson, "Roofline: an insightful visual performance model" (2009). Both numbers
//! follow from shapes alone. They count what has to be done, whatever the code does besides.

use std::collections::HashSet;
use std::iter::Sum;
use std::ops::Add;

use retape_runtime::DType;

use crate::ir::{Affine, Inst, Kernel, Stage};
use crate::library::Library;
use crate::plan::{Step, Work};
use crate::schedule::expanded;

/// Floating-point operations and bytes of some work.
///
/// ```
/// use retape_kernels::library::MatMul;
/// use retape_kernels::{StepCost, Work};
/// use retape_runtime::DType;
///
/// let product = Work::library(MatMul::contiguous(DType::F32, &[], [10, 20, 30]));
/// let bytes = 4 * (10 * 30 + 30 * 20 + 10 * 20);
/// assert_eq!(product.cost(), StepCost { flops: 2 * 10 * 20 * 30, flops_f64: 0, bytes });
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepCost {
    /// Operations in single precision, and in half precision, which is computed in single. Additions, multiplications,
    /// divisions, minima and maxima are one, fused multiply-adds are two, and a transcendental function has those of its
    /// formula, both sides of its selects included. Library kernels count their products only.
    pub flops: u64,
    /// Operations in double precision.
    pub flops_f64: u64,
    /// Bytes read and written, each element once.
    pub bytes: u64,
}

impl Add for StepCost {
    type Output = StepCost;

    fn add(self, other: StepCost) -> StepCost {
        StepCost {
            flops: self.flops.saturating_add(other.flops),
            flops_f64: self.flops_f64.saturating_add(other.flops_f64),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }
}

impl Sum for StepCost {
    fn sum<I: Iterator<Item = StepCost>>(costs: I) -> StepCost {
        costs.fold(StepCost::default(), Add::add)
    }
}

impl StepCost {
    /// Operations of a dtype; none if that is no float.
    fn of(dtype: DType, n: u64) -> StepCost {
        match dtype {
            DType::F16 | DType::Bf16 | DType::F32 => StepCost { flops: n, ..StepCost::default() },
            DType::F64 => StepCost { flops_f64: n, ..StepCost::default() },
            DType::Bool | DType::U8 | DType::I32 | DType::I64 | DType::U32 => StepCost::default(),
        }
    }

    /// The cost of steps that one launch does: what one of them left in a cache, the next ones neither read nor write again.
    pub fn of_launch(steps: &[Step]) -> StepCost {
        let (mut seen, mut again) = (HashSet::new(), 0_u64);
        for step in steps {
            let operands = || step.operands.iter().map(|operand| (operand.place, operand.ty()));
            let repeated = operands().filter(|operand| seen.contains(operand));
            again = repeated.fold(again, |n, (_, ty)| n.saturating_add(ty.bytes() as u64));
            seen.extend(operands());
        }
        let all: StepCost = steps.iter().map(Step::cost).sum();
        StepCost { bytes: all.bytes.saturating_sub(again), ..all }
    }

    /// Operations in either precision.
    pub fn operations(&self) -> u64 {
        self.flops.saturating_add(self.flops_f64)
    }
}

impl Work {
    /// The operations of the work, and the bytes of its operands.
    pub fn cost(&self) -> StepCost {
        match self {
            Work::Kernel(kernel) => kernel_cost(kernel),
            Work::Library { kernel, epilogue: None } => library_cost(kernel),
            Work::Library { kernel, epilogue: Some(epilogue) } => {
                let both = library_cost(kernel) + kernel_cost(epilogue.kernel());
                // The epilogue reads the result where it was just written; one that nobody else needs is not stored.
                let accumulator = epilogue.kernel().params[epilogue.accumulator().index()];
                let passes = if epilogue.keeps_accumulator() { 1 } else { 2 };
                let saved = passes * accumulator.len as u64 * accumulator.dtype.size() as u64;
                StepCost { bytes: both.bytes.saturating_sub(saved), ..both }
            }
        }
    }
}

impl Step {
    /// The operations of the step, and the bytes that it reads and writes.
    pub fn cost(&self) -> StepCost {
        self.work.cost()
    }
}

fn kernel_cost(kernel: &Kernel) -> StepCost {
    // As it is compiled, where `x^2` is a product, but with a remainder as one operation.
    let (whole, kernel) = (kernel, &expanded(kernel));
    let points = |stage: Stage| match stage {
        Stage::Kept | Stage::Tail => kernel.kept_len() as u64,
        Stage::Element => kernel.n_points() as u64,
    };
    let (stages, dtypes) = (kernel.stages(), kernel.dtypes());
    let operations = kernel.insts.iter().zip(stages.iter().zip(&dtypes)).map(|(inst, (&stage, &dtype))| {
        let (n, stage) = match inst {
            Inst::Unary(..) | Inst::Binary(..) | Inst::Call1(..) | Inst::Call2(..) => (1, stage),
            Inst::Fma(..) => (2, stage),
            Inst::Reduce(..) => (1, Stage::Element),
            Inst::Const(_)
            | Inst::Index(_)
            | Inst::Load(..)
            | Inst::LoadAt(..)
            | Inst::Compare(..)
            | Inst::Select(..)
            | Inst::Cast(..)
            | Inst::Bitcast(..) => (0, stage),
        };
        StepCost::of(dtype, points(stage).saturating_mul(n))
    });
    let traffic = StepCost { bytes: kernel_bytes(whole), ..StepCost::default() };
    operations.sum::<StepCost>() + traffic
}

/// The elements that a kernel touches of each parameter, as far as its accesses tell: overlaps are counted again, and
/// never more than there are.
fn kernel_bytes(kernel: &Kernel) -> u64 {
    let reached = |at: &Affine| {
        let moving = kernel.axes.iter().enumerate().filter(|(axis, _)| at.stride(*axis) != 0);
        moving.fold(1_u64, |n, (_, axis)| n.saturating_mul(axis.extent as u64))
    };
    let mut touched = vec![0_u64; kernel.params.len()];
    let mut touch = |param: usize, n: u64| {
        if let Some(touched) = touched.get_mut(param) {
            *touched = touched.saturating_add(n);
        }
    };
    for inst in &kernel.insts {
        match inst {
            Inst::Load(param, at) => touch(param.index(), reached(at)),
            Inst::LoadAt(param, _) => touch(param.index(), kernel.n_points() as u64),
            Inst::Const(_) | Inst::Index(_) | Inst::Reduce(..) | crate::ir::operation!() => {}
        }
    }
    for store in &kernel.stores {
        touch(store.param.index(), reached(&store.at));
    }
    let sizes = kernel.params.iter().zip(touched).map(|(param, n)| n.min(param.len as u64) * param.dtype.size() as u64);
    sizes.fold(0, u64::saturating_add)
}

fn library_cost(library: &Library) -> StepCost {
    let (dtype, n) = library.flops();
    StepCost { bytes: library.traffic(), ..StepCost::of(dtype, n) }
}
