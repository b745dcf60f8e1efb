//! The epilogue of a product: a pointwise kernel that runs on each element before it is stored.
//!
//! The kernel loads the product at the identity map of its axes, and anything else where it likes. Its instructions run
//! once per element on the rounded sum: the bits are those of a launch of its own.

use retape_runtime::DType;

use super::index::{Digits, digits, mad, reach};
use super::place::address;
use crate::epilogue::{Epilogue, first_column_axis, is_identity};
use crate::ir::{Affine, Inst, Kernel, ParamId, ValueId, operation};
use crate::ptx::{Class, PtxFunction, Reg, RegValue, Space, emit_inst, load, ptx, store};

/// An epilogue as it is compiled.
#[derive(Clone, Debug)]
pub(crate) struct PtxEpilogue {
    kernel: Kernel,
    accumulator: ParamId,
}

/// How the coordinates of an element follow from its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Axes {
    /// Those before this one from the row, the others from the column.
    Split(usize),
    /// All from the number of the element.
    Joined,
}

/// Instructions of a tail at most: kernels beyond are slow to assemble.
const LONGEST: usize = 400;

impl PtxEpilogue {
    /// An epilogue in the form that is compiled, if it is short enough for a product with rows of `width` elements.
    pub(super) fn new(epilogue: &Epilogue, width: usize, prepare: impl Fn(&Kernel) -> Kernel) -> Option<PtxEpilogue> {
        // The accumulator is in registers, so that a store of it is one of the kernel.
        let epilogue = epilogue.storing();
        let kernel = prepare(epilogue.kernel());
        let short = kernel.insts.len() <= LONGEST;
        let n_points = kernel.n_points();
        let prepared = PtxEpilogue { kernel, accumulator: epilogue.accumulator() };
        let countable = prepared.axes(width) != Axes::Joined || n_points < 1 << 31;
        let narrow = prepared.kernel.axes.iter().all(|axis| axis.extent < 1 << 31);
        (short && countable && narrow).then_some(prepared)
    }

    /// The parameters except for the product: those of a launch, after the ones of the product.
    pub(super) fn others(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.kernel.params.len()).filter(|p| *p != self.accumulator.index())
    }

    fn axes(&self, width: usize) -> Axes {
        first_column_axis(&self.kernel, width).map_or(Axes::Joined, Axes::Split)
    }

    /// Emits the kernel at the element in a row and column of the matrix; `bases` are the addresses of `others`.
    pub(super) fn emit(&self, f: &mut PtxFunction, bases: &[Reg], [row, col]: [Reg; 2], width: usize, sum: RegValue) {
        let mut bases = bases.to_vec();
        bases.insert(self.accumulator.index(), row);
        let mut place =
            EpilogueElement { kernel: &self.kernel, bases, row, col, width, coordinates: None, axes: self.axes(width) };
        let mut values: Vec<Option<RegValue>> = Vec::with_capacity(self.kernel.insts.len());
        for inst in &self.kernel.insts {
            let of = |id: ValueId| values.get(id.index()).copied().flatten();
            let value = match inst {
                Inst::Load(p, _) if *p == self.accumulator => Some(sum),
                Inst::Load(p, at) => Some(place.load(f, *p, at)),
                Inst::LoadAt(p, at) => of(*at).map(|at| place.load_at(f, *p, at)),
                Inst::Index(axis) => {
                    let coordinate = place.coordinate(f, axis.index());
                    let wide = f.op(Class::B64, "cvt.u64.u32", format_args!("{coordinate}"));
                    Some(RegValue::new(DType::I64, wide))
                }
                Inst::Const(_) | Inst::Reduce(..) | operation!() => {
                    inst.try_map(of).and_then(|inst| emit_inst(f, &inst))
                }
            };
            values.push(value);
        }
        for to in &self.kernel.stores {
            let at = place.address(f, to.param, &to.at);
            if let Some(value) = values[to.value.index()] {
                store(f, Space::Global, value, at, 0, None);
            }
        }
    }
}

/// An element that is being computed.
struct EpilogueElement<'k> {
    kernel: &'k Kernel,
    bases: Vec<Reg>,
    row: Reg,
    col: Reg,
    width: usize,
    axes: Axes,
    coordinates: Option<Digits>,
}

impl EpilogueElement<'_> {
    fn coordinate(&mut self, f: &mut PtxFunction, axis: usize) -> Reg {
        let extents = || self.kernel.axes.iter().map(|axis| axis.extent);
        let coordinates = self.coordinates.get_or_insert_with(|| match self.axes {
            Axes::Split(first) => {
                let mut all = digits(f, self.row, extents().take(first).collect::<Vec<_>>().into_iter());
                all.extend(digits(f, self.col, extents().skip(first).collect::<Vec<_>>().into_iter()));
                all
            }
            Axes::Joined => {
                let number = mad(f, self.row, self.width as i64, self.col);
                digits(f, number, extents().collect::<Vec<_>>().into_iter())
            }
        });
        coordinates[axis]
    }

    fn address(&mut self, f: &mut PtxFunction, param: ParamId, at: &Affine) -> Reg {
        let size = self.kernel.params[param.index()].dtype.size();
        let base = self.bases[param.index()];
        if is_identity(self.kernel, at) {
            return address(f, base, [self.row, self.col], self.width, size);
        }
        let mut to = super::index::shift(f, base, at.offset * size as i64);
        for axis in 0..self.kernel.axes.len() {
            if at.stride(axis) != 0 && self.kernel.axes[axis].extent > 1 {
                let coordinate = self.coordinate(f, axis);
                to = reach(f, to, coordinate, at.stride(axis) * size as i64);
            }
        }
        to
    }

    fn load(&mut self, f: &mut PtxFunction, param: ParamId, at: &Affine) -> RegValue {
        let from = self.address(f, param, at);
        load(f, Space::Global, self.kernel.params[param.index()].dtype, from, 0)
    }

    fn load_at(&mut self, f: &mut PtxFunction, param: ParamId, at: RegValue) -> RegValue {
        let it = self.kernel.params[param.index()];
        let low = f.op(Class::B64, "min.s64", format_args!("{}, {}", at.reg, it.len as i64 - 1));
        let place = f.op(Class::B64, "max.s64", format_args!("{low}, 0"));
        let from = f.reg(Class::B64);
        ptx!(f, "mad.lo.s64 {from}, {place}, {}, {}", it.dtype.size(), self.bases[param.index()]);
        load(f, Space::Global, it.dtype, from, 0)
    }
}
