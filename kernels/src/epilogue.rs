//! The epilogue of a library kernel: a pointwise kernel over the elements of its result.
//!
//! Guarantees that the kernel loads the result, its *accumulator*, at each point's own element, and visits the elements
//! in their order in memory: so any part of the result that is finished can meet its part of the kernel at once, with
//! the bits of a kernel that runs after the whole.

use smallvec::SmallVec;

use crate::ir::{Affine, AxisId, Inst, Kernel, Param, ParamId, Store, ValueId, operation};

/// A pointwise kernel that runs on the result of a library kernel, element by element.
#[derive(Clone, Debug, PartialEq)]
pub struct Epilogue {
    /// In memory of its own, so that steps without an epilogue are small.
    kernel: Box<Kernel>,
    accumulator: ParamId,
    keeps_accumulator: bool,
}

impl Epilogue {
    /// The kernel as an epilogue of what it loads as `accumulator`, if it can be one: it folds over nothing, and there is
    /// an order of its axes in which it loads the accumulator element by element.
    pub fn new(kernel: &Kernel, accumulator: ParamId) -> Option<Epilogue> {
        let param = kernel.params.get(accumulator.index())?;
        let fits = !param.written && param.len == kernel.n_points() && param.len > 0;
        let folds = kernel.axes.iter().any(|axis| axis.reduced);
        if !fits || folds {
            return None;
        }
        let kernel = Box::new(in_order_of_loads(kernel, accumulator)?);
        let is_at_element = |inst: &Inst<ValueId>| match inst {
            Inst::Load(p, at) => *p != accumulator || is_identity(&kernel, at),
            Inst::LoadAt(p, _) => *p != accumulator,
            Inst::Reduce(..) => false,
            Inst::Const(_) | Inst::Index(_) | operation!() => true,
        };
        let is_pointwise = kernel.insts.iter().all(is_at_element);
        is_pointwise.then_some(Epilogue { kernel, accumulator, keeps_accumulator: false })
    }

    /// The same kernel, after which the accumulator is a result of the step as well, if it is `kept`.
    #[must_use]
    pub fn keeping_accumulator(self, kept: bool) -> Epilogue {
        Epilogue { keeps_accumulator: kept, ..self }
    }

    /// The kernel. It reads the accumulator like any other parameter.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// The parameter of the kernel that is the library kernel's result.
    pub fn accumulator(&self) -> ParamId {
        self.accumulator
    }

    /// Whether the accumulator is a result of the step. If not, nobody may read the memory that it lies in.
    pub fn keeps_accumulator(&self) -> bool {
        self.keeps_accumulator
    }

    /// The parameters other than the accumulator, in order: read ones, then written ones.
    pub(crate) fn others(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.kernel.params.len()).filter(|p| *p != self.accumulator.index())
    }

    /// The kernel with the accumulator stored by a last parameter, if it is kept: for code that has it in registers
    /// only.
    pub(crate) fn storing(&self) -> Epilogue {
        let mut stored = self.clone();
        let kernel = &mut stored.kernel;
        let load = kernel.insts.iter().position(|inst| matches!(inst, Inst::Load(p, _) if *p == self.accumulator));
        if let (true, Some(load)) = (self.keeps_accumulator, load)
            && let Inst::Load(_, at) = &kernel.insts[load]
        {
            let at = at.clone();
            let param = ParamId(kernel.params.len() as u32);
            kernel.params.push(Param { written: true, ..kernel.params[self.accumulator.index()] });
            kernel.stores.push(Store { param, at, value: ValueId(load as u32) });
        }
        stored
    }
}

/// The kernel with its axes in the order of the accumulator's elements.
fn in_order_of_loads(kernel: &Kernel, accumulator: ParamId) -> Option<Kernel> {
    let at = kernel.insts.iter().find_map(|inst| match inst {
        Inst::Load(p, at) if *p == accumulator => Some(at),
        _ => None,
    })?;
    if is_identity(kernel, at) {
        return Some(kernel.clone());
    }
    let mut order: Vec<usize> = (0..kernel.axes.len()).collect();
    // An axis of one point has a place nowhere; it goes to the front.
    let stride = |&axis: &usize| if kernel.axes[axis].extent == 1 { i64::MAX } else { at.stride(axis) };
    order.sort_by_key(|axis| std::cmp::Reverse(stride(axis)));
    Some(permuted(kernel, &order))
}

/// The kernel with its axes in another order.
fn permuted(kernel: &Kernel, order: &[usize]) -> Kernel {
    let map = |at: &Affine| Affine { offset: at.offset, strides: order.iter().map(|&axis| at.stride(axis)).collect() };
    let place = |axis: AxisId| order.iter().position(|&from| from == axis.index()).unwrap_or(axis.index());
    let insts = kernel.insts.iter().map(|inst| match inst {
        Inst::Load(p, at) => Inst::Load(*p, map(at)),
        Inst::Index(axis) => Inst::Index(AxisId(place(*axis) as u32)),
        other @ (Inst::Const(_) | Inst::LoadAt(..) | Inst::Reduce(..) | operation!()) => other.clone(),
    });
    Kernel {
        params: kernel.params.clone(),
        axes: order.iter().map(|&axis| kernel.axes[axis]).collect(),
        insts: insts.collect(),
        stores: kernel.stores.iter().map(|store| Store { at: map(&store.at), ..store.clone() }).collect(),
    }
}

/// Whether a map numbers the points of a kernel in row-major order.
pub(crate) fn is_identity(kernel: &Kernel, at: &Affine) -> bool {
    let mut stride = 1;
    at.offset == 0
        && kernel.axes.iter().enumerate().rev().all(|(axis, it)| {
            let fits = it.extent == 1 || at.stride(axis) == stride;
            stride *= it.extent as i64;
            fits
        })
}

/// The first of the axes that are the columns of a matrix of `width` columns; those before it are its rows.
pub(crate) fn first_column_axis(kernel: &Kernel, width: usize) -> Option<usize> {
    let extents: SmallVec<[usize; 6]> = kernel.axes.iter().map(|axis| axis.extent).collect();
    let mut n_columns = 1;
    (0..=extents.len()).rev().find(|&first| {
        n_columns *= extents.get(first).copied().unwrap_or(1);
        n_columns == width
    })
}
