//! The instructions of a loop nest at some points: one, or neighbours along an axis.

use retape_runtime::DType;
use smallvec::SmallVec;

use super::BoundKernel;
use super::index::Ints;
use crate::ir::{Affine, AxisId, Inst, Kernel, ParamId, Store, ValueId, operation};
use crate::ptx::value::bits_suffix;
use crate::ptx::{
    Class, Elements, PtxFunction, Reg, RegValue, Space, constant, emit_inst, load, load_many, ptx, store, store_many,
};
use crate::schedule::{FormLoop, LoopForm, LoopStep};

/// Offsets of this size and more are added to addresses, not written beside them.
const FAR: i64 = 1 << 24;

/// The value of an instruction at the points of a group.
#[derive(Clone, Debug)]
pub(super) enum Lanes {
    /// The same at all of them.
    Same(RegValue),
    /// One for each.
    Each(Elements),
}

impl Lanes {
    pub(super) fn lane(&self, lane: usize) -> RegValue {
        match self {
            Lanes::Same(value) => *value,
            Lanes::Each(values) => values[lane],
        }
    }
}

/// Neighbouring points along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Vector {
    pub(super) axis: usize,
    pub(super) lanes: usize,
}

/// Points that a thread visits at once, and the values known at them.
#[derive(Clone, Default)]
pub(super) struct PointGroup {
    values: Vec<Option<Lanes>>,
    /// The coordinates of the first of them; none for axes at their origin.
    coords: SmallVec<[Option<Reg>; 4]>,
    /// An axis along which they lie further by a constant.
    shift: Option<(usize, usize)>,
    /// How they lie; none for a single point.
    vector: Option<Vector>,
    /// Sums of strides times coordinates.
    positions: Vec<(Strides, Reg)>,
    /// Addresses of parameters moved along the axes that `fixed` names, whose coordinates they include.
    pointers: Vec<(ParamId, Strides, Reg)>,
    fixed: SmallVec<[bool; 4]>,
}

type Strides = SmallVec<[i64; 4]>;

/// A kernel being emitted.
pub(super) struct BodyEmitter<'k> {
    pub(super) kernel: &'k Kernel,
    pub(super) form: &'k LoopForm<'k>,
    pub(super) ints: Ints,
    pub(super) aligns: &'k [usize],
    bases: Vec<Option<Reg>>,
}

impl PointGroup {
    /// The same knowledge at other coordinates along some axes.
    pub(super) fn at(&self, coords: impl IntoIterator<Item = (usize, Reg)>, vector: Option<Vector>) -> PointGroup {
        let mut group = self.clone();
        for (axis, coord) in coords {
            group.coords[axis] = Some(coord);
        }
        group.vector = vector;
        group
    }

    /// The same further along an axis.
    pub(super) fn shifted(&self, axis: usize, by: usize) -> PointGroup {
        PointGroup { shift: (by > 0).then_some((axis, by)), ..self.clone() }
    }

    pub(super) fn lanes(&self) -> usize {
        self.vector.map_or(1, |v| v.lanes)
    }

    pub(super) fn value(&self, id: ValueId) -> Option<&Lanes> {
        self.values[id.index()].as_ref()
    }

    pub(super) fn set(&mut self, id: ValueId, value: Lanes) {
        self.values[id.index()] = Some(value);
    }

    /// The strides of a map along the axes that pointers include, and along the others.
    fn parted(&self, at: &Affine) -> (Strides, Strides) {
        let part = |fixed: bool| {
            let stride = |(axis, &is): (usize, &bool)| if is == fixed { at.stride(axis) } else { 0 };
            self.fixed.iter().enumerate().map(stride).collect()
        };
        (part(true), part(false))
    }
}

impl<'k> BodyEmitter<'k> {
    /// Loads the addresses of the parameters of which `used` says so.
    pub(super) fn new(nest: &BoundKernel<'k>, f: &mut PtxFunction, used: &[bool]) -> BodyEmitter<'k> {
        let mut n_params = 0;
        let bases = used.iter().map(|&used| {
            used.then(|| {
                n_params += 1;
                f.param(n_params - 1)
            })
        });
        let (kernel, form, ints, aligns) = (nest.kernel, nest.form, nest.ints, nest.aligns);
        BodyEmitter { kernel, form, ints, aligns, bases: bases.collect() }
    }

    /// The group without coordinates, and with the values that need none.
    pub(super) fn root(&self, f: &mut PtxFunction) -> PointGroup {
        let n_axes = self.kernel.axes.len();
        let mut root = PointGroup {
            values: vec![None; self.kernel.insts.len()],
            coords: SmallVec::from_elem(None, n_axes),
            fixed: SmallVec::from_elem(false, n_axes),
            ..PointGroup::default()
        };
        self.steps(f, &mut root, &self.form.loops[0].steps, None);
        root
    }

    /// The innermost loop.
    fn inner(&self) -> &'k FormLoop {
        &self.form.loops[self.form.loops.len() - 1]
    }

    /// Emits the fetches of the innermost loop, so that those of all groups are under way before the first store.
    pub(super) fn fetch<'g>(&self, f: &mut PtxFunction, groups: impl Iterator<Item = &'g mut PointGroup>) {
        let mut groups: SmallVec<[&mut PointGroup; 8]> = groups.collect();
        for fetches in &self.inner().fetches {
            groups.iter_mut().for_each(|group| self.steps(f, group, fetches, None));
        }
    }

    /// Emits the steps of the innermost loop, those that are not done yet of its fetches among them.
    pub(super) fn points(&self, f: &mut PtxFunction, group: &mut PointGroup, guard: Option<Reg>) {
        self.fetch(f, std::iter::once(&mut *group));
        self.steps(f, group, &self.inner().steps, guard);
    }

    /// Emits steps whose values are not known; they store if `guard` holds.
    pub(super) fn steps(&self, f: &mut PtxFunction, group: &mut PointGroup, steps: &[LoopStep], guard: Option<Reg>) {
        for &step in steps {
            match step {
                LoopStep::Make(id) if group.values[id].is_some() => {}
                LoopStep::Make(id) => group.values[id] = self.emit(f, group, &self.kernel.insts[id]),
                LoopStep::Branch(region) => self.branch(f, group, region),
                LoopStep::Store(n) => self.store(f, group, &self.kernel.stores[n], guard),
            }
        }
    }

    /// Emits the selects of a cold region, and the steps they need: these are run only if a point of the group takes them.
    fn branch(&self, f: &mut PtxFunction, group: &mut PointGroup, region: usize) {
        let (region, insts) = (&self.form.cold.all[region], &self.kernel.insts);
        let Some(condition) = group.value(region.condition).cloned() else { return };
        let lanes = region.inputs.iter().find_map(|&v| match group.value(v) {
            Some(Lanes::Each(values)) => Some(values.len()),
            Some(Lanes::Same(_)) | None => None,
        });
        let n_conditions = if matches!(condition, Lanes::Same(_)) { 1 } else { lanes.unwrap_or(1) };
        let op = if region.when { "or.pred" } else { "and.pred" };
        let taken = (1..n_conditions).fold(condition.lane(0).reg, |taken, lane| {
            f.op(Class::Pred, op, format_args!("{taken}, {}", condition.lane(lane).reg))
        });
        let selects = region.selects.iter().zip(region.others(insts));
        let results: Vec<(usize, Elements)> = selects
            .map(|(&id, other)| {
                let other = group.value(other);
                let copy = |lane: usize| {
                    let other = other.map(|other| other.lane(lane)).expect("inputs are known");
                    let op = format!("mov.{}", bits_suffix(other.dtype));
                    RegValue::new(other.dtype, f.op(other.reg.class, &op, format_args!("{}", other.reg)))
                };
                (id, (0..lanes.unwrap_or(1)).map(copy).collect())
            })
            .collect();
        let end = f.label();
        ptx!(f, "@{}{taken} bra {end}", if region.when { "!" } else { "" });
        self.steps(f, group, &region.steps, None);
        for (id, results) in &results {
            let chosen = self.emit(f, group, &insts[*id]);
            for (lane, result) in results.iter().enumerate() {
                let chosen = chosen.as_ref().map(|chosen| chosen.lane(lane)).expect("its operands are known");
                ptx!(f, "mov.{} {}, {}", bits_suffix(result.dtype), result.reg, chosen.reg);
            }
        }
        f.place(end);
        for (id, results) in results {
            group.values[id] = Some(if lanes.is_some() { Lanes::Each(results) } else { Lanes::Same(results[0]) });
        }
    }

    /// `None` if an operand is not known.
    fn emit(&self, f: &mut PtxFunction, group: &mut PointGroup, inst: &Inst<ValueId>) -> Option<Lanes> {
        Some(match inst {
            Inst::Const(c) => Lanes::Same(constant(f, *c)),
            // Its value is made by the loops.
            Inst::Reduce(..) => return None,
            Inst::Index(axis) => self.index(f, group, *axis),
            Inst::Load(param, at) => self.load(f, group, *param, at),
            Inst::LoadAt(param, at) => {
                let at = group.value(*at)?.clone();
                each(&[&at], |_, lane| self.load_at(f, *param, lane[0]))
            }
            other @ (operation!()) => {
                let operands: SmallVec<[Lanes; 3]> =
                    other.operands().iter().map(|&v| group.value(v).cloned()).collect::<Option<_>>()?;
                let refs: SmallVec<[&Lanes; 3]> = operands.iter().collect();
                each(&refs, |_, lane| {
                    let mut lane = lane.iter();
                    let inst = other.try_map(|_| lane.next().copied());
                    inst.and_then(|inst| emit_inst(f, &inst)).expect("expanded instructions of known operands")
                })
            }
        })
    }

    fn index(&self, f: &mut PtxFunction, group: &PointGroup, axis: AxisId) -> Lanes {
        let axis = axis.index();
        let first = match group.coords[axis] {
            Some(coord) if self.ints.wide => coord,
            Some(coord) => f.op(Class::B64, "cvt.u64.u32", format_args!("{coord}")),
            None => f.op(Class::B64, "mov.b64", format_args!("0")),
        };
        let first = match group.shift {
            Some((shifted, by)) if shifted == axis => f.op(Class::B64, "add.s64", format_args!("{first}, {by}")),
            _ => first,
        };
        let value = |reg| RegValue::new(DType::I64, reg);
        match group.vector {
            Some(vector) if vector.axis == axis => {
                let lanes = (0..vector.lanes).map(|lane| match lane {
                    0 => value(first),
                    _ => value(f.op(Class::B64, "add.s64", format_args!("{first}, {lane}"))),
                });
                Lanes::Each(lanes.collect())
            }
            _ => Lanes::Same(value(first)),
        }
    }

    fn load(&self, f: &mut PtxFunction, group: &mut PointGroup, param: ParamId, at: &Affine) -> Lanes {
        let dtype = self.kernel.params[param.index()].dtype;
        let (address, offset) = self.address(f, group, param, at);
        let Some(vector) = group.vector else { return Lanes::Same(load(f, Space::Global, dtype, address, offset)) };
        match at.stride(vector.axis) {
            0 => Lanes::Same(load(f, Space::Global, dtype, address, offset)),
            1 => {
                let align = self.align(param, at, group.vector);
                Lanes::Each(load_many(f, dtype, vector.lanes, address, offset, align))
            }
            stride => {
                let step = stride * dtype.size() as i64;
                let lanes = (0..vector.lanes as i64).map(|lane| {
                    let (address, offset) = self.moved(f, address, offset + lane * step);
                    load(f, Space::Global, dtype, address, offset)
                });
                Lanes::Each(lanes.collect())
            }
        }
    }

    /// The element at a position, which is clamped into the range of the parameter.
    fn load_at(&self, f: &mut PtxFunction, param: ParamId, at: RegValue) -> RegValue {
        let p = self.kernel.params[param.index()];
        let from = f.op(Class::B64, "max.s64", format_args!("{}, 0", at.reg));
        let to = f.op(Class::B64, "min.s64", format_args!("{from}, {}", p.len as i64 - 1));
        let base = self.base(param);
        let address = f.op(Class::B64, "mad.lo.s64", format_args!("{to}, {}, {base}", p.dtype.size()));
        load(f, Space::Global, p.dtype, address, 0)
    }

    /// Writes the value of a store at the points of a group, if `guard` holds.
    fn store(&self, f: &mut PtxFunction, group: &mut PointGroup, to: &Store, guard: Option<Reg>) {
        let Some(values) = group.value(to.value).cloned() else { return };
        let (address, offset) = self.address(f, group, to.param, &to.at);
        let lanes = group.lanes();
        let step = group.vector.map_or(0, |v| to.at.stride(v.axis));
        if step == 1 {
            let values: Elements = (0..lanes).map(|lane| values.lane(lane)).collect();
            let align = self.align(to.param, &to.at, group.vector);
            return store_many(f, &values, address, offset, align, guard);
        }
        for lane in 0..lanes {
            let value = values.lane(lane);
            let (address, offset) = self.moved(f, address, offset + lane as i64 * step * value.dtype.size() as i64);
            store(f, Space::Global, value, address, offset, guard);
        }
    }

    fn base(&self, param: ParamId) -> Reg {
        self.bases[param.index()].expect("parameters that are used have an address")
    }

    /// An address and an offset in bytes small enough to stand beside it.
    fn moved(&self, f: &mut PtxFunction, address: Reg, offset: i64) -> (Reg, i64) {
        if offset.abs() < FAR {
            return (address, offset);
        }
        (f.op(Class::B64, "add.s64", format_args!("{address}, {offset}")), 0)
    }

    /// Where the first point of a group finds its element.
    fn address(&self, f: &mut PtxFunction, group: &mut PointGroup, param: ParamId, at: &Affine) -> (Reg, i64) {
        let size = self.kernel.params[param.index()].dtype.size();
        let (fixed, free) = group.parted(at);
        let mut address = self.base(param);
        if fixed.iter().any(|&s| s != 0) {
            let known = group.pointers.iter().find(|(p, s, _)| *p == param && *s == fixed);
            address = match known {
                Some(&(_, _, reg)) => reg,
                None => {
                    let reg = self.along(f, group, address, &fixed, size);
                    group.pointers.push((param, fixed, reg));
                    reg
                }
            };
        }
        let address = self.along(f, group, address, &free, size);
        let shift = group.shift.map_or(0, |(axis, by)| at.stride(axis) * by as i64);
        self.moved(f, address, (at.offset + shift) * size as i64)
    }

    /// An address moved by strides times coordinates.
    fn along(&self, f: &mut PtxFunction, group: &mut PointGroup, address: Reg, strides: &Strides, size: usize) -> Reg {
        let known = group.positions.iter().find(|(s, _)| s == strides).map(|&(_, reg)| reg);
        let position = known.or_else(|| {
            let mut sum = None;
            for (&stride, &coord) in strides.iter().zip(&group.coords) {
                if let (1.. | ..=-1, Some(coord)) = (stride, coord) {
                    sum = Some(self.ints.mul_add(f, coord, stride, sum));
                }
            }
            group.positions.extend(sum.map(|reg| (strides.clone(), reg)));
            sum
        });
        position.map_or(address, |position| self.ints.address(f, address, position, size))
    }

    /// Moves the pointers of accesses along the coordinates that are known, which are left out from then on.
    pub(super) fn fix(&self, f: &mut PtxFunction, group: &mut PointGroup, accesses: &[(ParamId, &Affine)]) {
        let mut pointers: Vec<(ParamId, Strides, Reg)> = Vec::new();
        let fixed: SmallVec<[bool; 4]> = group.coords.iter().map(Option::is_some).collect();
        for &(param, at) in accesses {
            let along: Strides = fixed.iter().zip(&at.strides).map(|(&is, &s)| if is { s } else { 0 }).collect();
            let is_known = pointers.iter().any(|(p, s, _)| *p == param && *s == along);
            if along.iter().any(|&s| s != 0) && !is_known {
                let (address, _) = self.address(f, group, param, &Affine { offset: 0, strides: at.strides.clone() });
                pointers.push((param, along, address));
            }
        }
        group.fixed = fixed;
        group.pointers = pointers;
        group.positions.clear();
    }

    /// The largest power of two, up to 16, that divides the addresses of the first points of all groups.
    pub(super) fn align(&self, param: ParamId, at: &Affine, vector: Option<Vector>) -> usize {
        align(self.kernel, self.aligns, param, at, vector)
    }
}

/// See [`BodyEmitter::align`].
pub(super) fn align(kernel: &Kernel, aligns: &[usize], param: ParamId, at: &Affine, vector: Option<Vector>) -> usize {
    let size = kernel.params[param.index()].dtype.size() as u64;
    let mut all = 16 | aligns[param.index()] as u64 | (at.offset.unsigned_abs() * size);
    for (axis, &stride) in at.strides.iter().enumerate() {
        let step = vector.filter(|v| v.axis == axis).map_or(1, |v| v.lanes as u64);
        all |= stride.unsigned_abs() * size * step;
    }
    1 << all.trailing_zeros()
}

/// The values of an operation at all points: one if its operands are, else one for each.
fn each(operands: &[&Lanes], mut op: impl FnMut(usize, &[RegValue]) -> RegValue) -> Lanes {
    let lanes = operands.iter().find_map(|x| match x {
        Lanes::Each(values) => Some(values.len()),
        Lanes::Same(_) => None,
    });
    let mut at = |lane: usize| {
        let operands: SmallVec<[RegValue; 3]> = operands.iter().map(|x| x.lane(lane)).collect();
        op(lane, &operands)
    };
    match lanes {
        None => Lanes::Same(at(0)),
        Some(lanes) => Lanes::Each((0..lanes).map(at).collect()),
    }
}
