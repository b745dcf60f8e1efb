//! Loop nests around the instructions of a kernel.
//!
//! Values are emitted at the outermost loop that knows all coordinates they depend on: as one element where the
//! vector axis does not matter, else once per group of the current iteration. A group is one vector or one element
//! at a fixed distance from the iteration's position on the vector axis.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{BlockArg, InstBuilder, MemFlagsData, Value, types};
use retape_runtime::{DType, Scalar};
use smallvec::{SmallVec, smallvec};

use super::emit::{Emitter, LANES, Regs, Val};
use crate::ir::{Affine, Inst, Kernel, Monoid, Stage, ValueId};
use crate::schedule::{Form, Nest};

/// Bodies of at most this many instructions are repeated for the remainder of an axis instead of looped over.
const SMALL_BODY: usize = 16;

/// A vector or an element of an iteration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    pub(super) vector: bool,
    /// Its distance from the iteration's position.
    pub(super) offset: i64,
}

type Groups = SmallVec<[Group; 8]>;

/// A bound of a loop.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bound {
    Fixed(i64),
    At(Value),
}

/// What is known at a place of the nest.
#[derive(Clone)]
struct Env {
    /// The axes whose coordinates are known, as bits.
    open: u64,
    /// The coordinates of open axes other than the vector axis.
    coordinates: SmallVec<[Option<Value>; 6]>,
    /// Addresses of the loads, then of the stores, as far as the coordinates tell.
    bases: Vec<Value>,
    /// Values that do not depend on the vector axis.
    values: Vec<Option<Val>>,
    /// The position on the vector axis.
    position: Option<Value>,
    groups: Groups,
    /// Values of each group.
    group_values: Vec<Vec<Option<Val>>>,
}

/// Which part of the body is wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// What reductions and stores at every point need.
    Body,
    /// What stores at kept points need.
    Tail,
}

/// Emits one nest.
pub(super) struct Loops<'a, 'f> {
    pub(super) e: &'a mut Emitter<'f>,
    nest: &'a Nest,
    kernel: &'a Kernel,
    kept: usize,
    /// The vector axis, if the nest has one.
    axis: Option<usize>,
    dtypes: Vec<DType>,
    /// Per instruction, the axes that its value depends on.
    deps: Vec<u64>,
    needed: [Vec<bool>; 2],
    /// The instructions that reduce.
    reduces: Vec<ValueId>,
    pointers: Vec<Value>,
    /// Of each access, loads first: parameter and map.
    accesses: Vec<(usize, Affine)>,
    /// The access of each load.
    access_of: Vec<usize>,
    env: Env,
}

impl<'a, 'f> Loops<'a, 'f> {
    /// Emits a nest for the grid items `begin..end`; its parameters start at `first` in the pointer table.
    pub(super) fn emit(e: &'a mut Emitter<'f>, nest: &'a Nest, table: Value, first: usize, begin: Bound, end: Bound) {
        let kernel = &nest.kernel;
        let kept = kernel.axes.iter().filter(|a| !a.reduced).count();
        let axis = match nest.form {
            Form::Flat => Some(0),
            Form::Columns { .. } => Some(kept - 1),
            Form::Rows => kernel.axes.len().checked_sub(1).filter(|&a| a >= kept),
        };
        let mut loops = Loops {
            e,
            nest,
            kernel,
            kept,
            axis,
            dtypes: kernel.dtypes(),
            deps: Vec::new(),
            needed: [vec![false; kernel.insts.len()], vec![false; kernel.insts.len()]],
            reduces: Vec::new(),
            pointers: Vec::new(),
            accesses: Vec::new(),
            access_of: vec![0; kernel.insts.len()],
            env: Env {
                open: 0,
                coordinates: smallvec![None; kernel.axes.len()],
                bases: Vec::new(),
                values: vec![None; kernel.insts.len()],
                position: None,
                groups: smallvec![],
                group_values: Vec::new(),
            },
        };
        loops.analyse();
        loops.load_pointers(table, first);
        loops.ready(Phase::Body);
        loops.ready(Phase::Tail);
        match nest.form {
            Form::Flat => loops.vector_range(begin, end),
            Form::Columns { .. } | Form::Rows => loops.grid(begin, end),
        }
    }

    fn analyse(&mut self) {
        for (id, inst) in self.kernel.insts.iter().enumerate() {
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
                _ => {}
            }
            self.deps.push(deps);
        }
        for store in &self.kernel.stores {
            self.accesses.push((store.param.index(), store.at.clone()));
        }
        let stages = self.kernel.stages();
        let mut work: Vec<(ValueId, usize)> = Vec::new();
        for store in &self.kernel.stores {
            let phase = if self.kernel.uses_reduced(&store.at) { Phase::Body } else { Phase::Tail };
            work.push((store.value, phase as usize));
        }
        while let Some((id, phase)) = work.pop() {
            if std::mem::replace(&mut self.needed[phase][id.index()], true) {
                continue;
            }
            let inst = &self.kernel.insts[id.index()];
            let phase = if matches!(inst, Inst::Reduce(..)) { Phase::Body as usize } else { phase };
            work.extend(inst.operands().iter().map(|&v| (v, phase)));
        }
        debug_assert!(
            (0..stages.len()).all(|i| !(self.needed[Phase::Tail as usize][i] && stages[i] == Stage::Element)),
            "a tail uses no value of single points"
        );
    }

    fn load_pointers(&mut self, table: Value, first: usize) {
        let trusted = MemFlagsData::trusted();
        for p in 0..self.kernel.params.len() {
            let pointer = self.e.b.ins().load(types::I64, trusted, table, (8 * (first + p)) as i32);
            self.pointers.push(pointer);
        }
        for (param, at) in &self.accesses {
            let bytes = at.offset * self.kernel.params[*param].dtype.size() as i64;
            let base = self.pointers[*param];
            let base = if bytes == 0 { base } else { self.e.b.ins().iadd_imm_s(base, bytes) };
            self.env.bases.push(base);
        }
    }

    /// Makes the coordinate of an axis other than the vector axis known.
    fn open(&mut self, axis: usize, coordinate: Value) {
        self.env.open |= 1 << axis;
        self.env.coordinates[axis] = Some(coordinate);
        for i in 0..self.accesses.len() {
            let (param, at) = &self.accesses[i];
            let bytes = at.stride(axis) * self.kernel.params[*param].dtype.size() as i64;
            if bytes != 0 {
                let distance = self.scaled(coordinate, bytes);
                self.env.bases[i] = self.e.b.ins().iadd(self.env.bases[i], distance);
            }
        }
    }

    fn scaled(&mut self, x: Value, factor: i64) -> Value {
        match factor {
            1 => x,
            _ if factor > 0 && factor.count_ones() == 1 => self.e.b.ins().ishl_imm_u(x, factor.trailing_zeros() as i64),
            _ => self.e.b.ins().imul_imm_s(x, factor),
        }
    }

    /// Opens the vector axis at `position` with some groups.
    fn open_vector(&mut self, position: Value, groups: Groups) {
        if let Some(axis) = self.axis {
            self.env.open |= 1 << axis;
        }
        self.env.position = Some(position);
        self.env.group_values = vec![vec![None; self.kernel.insts.len()]; groups.len()];
        self.env.groups = groups;
    }

    fn axis_bit(&self) -> u64 {
        self.axis.map_or(0, |axis| 1 << axis)
    }

    /// Emits all instructions of a phase that are not emitted yet and whose coordinates are known.
    fn ready(&mut self, phase: Phase) {
        let kernel = self.kernel;
        for (id, inst) in kernel.insts.iter().enumerate() {
            let wanted = self.needed[phase as usize][id] && self.deps[id] & !self.env.open == 0;
            let operands = inst.operands();
            let made = operands.iter().all(|v| self.is_made(v.index()));
            if !wanted || !made || matches!(inst, Inst::Reduce(..)) {
                continue;
            }
            if self.deps[id] & self.axis_bit() == 0 {
                if self.env.values[id].is_none() {
                    self.env.values[id] = Some(self.element(id, inst));
                }
                continue;
            }
            for g in 0..self.env.groups.len() {
                if self.env.group_values[g][id].is_none() {
                    self.env.group_values[g][id] = Some(self.member(g, id, inst));
                }
            }
        }
    }

    fn is_made(&self, id: usize) -> bool {
        let of_groups = !self.env.group_values.is_empty() && self.env.group_values.iter().all(|g| g[id].is_some());
        self.env.values[id].is_some() || of_groups
    }

    /// One element that does not depend on the vector axis.
    fn element(&mut self, id: usize, inst: &Inst<ValueId>) -> Val {
        match inst {
            Inst::Load(param, _) => {
                let dtype = self.kernel.params[param.index()].dtype;
                let base = self.env.bases[self.access_of[id]];
                self.e.load(dtype, base, 0)
            }
            Inst::Index(axis) => {
                let coordinate = self.env.coordinates[axis.index()];
                let value = coordinate.unwrap_or_else(|| self.e.int(0));
                Val::scalar(DType::I64, value)
            }
            _ => {
                let operands: SmallVec<[Val; 3]> =
                    inst.operands().iter().filter_map(|v| self.env.values[v.index()].clone()).collect();
                self.apply(inst, &operands)
            }
        }
    }

    /// The value of a group.
    fn member(&mut self, g: usize, id: usize, inst: &Inst<ValueId>) -> Val {
        let group = self.env.groups[g];
        match inst {
            Inst::Load(param, at) => self.load_member(group, param.index(), at, self.access_of[id]),
            Inst::Index(_) => self.position_member(group),
            Inst::Cast(dtype, x) if self.counts_in_words(*x, *dtype) => {
                let words = self.word_position_member(group);
                self.e.cast(*dtype, &words)
            }
            _ => {
                let operands: SmallVec<[Val; 3]> = inst.operands().iter().map(|&v| self.operand(g, v)).collect();
                self.apply(inst, &operands)
            }
        }
    }

    /// A value as a group sees it.
    fn operand(&mut self, g: usize, id: ValueId) -> Val {
        let group = self.env.groups.get(g).copied();
        let of_group = self.env.group_values.get(g).and_then(|values| values[id.index()].clone());
        match of_group.or_else(|| self.env.values[id.index()].clone()) {
            Some(value) if group.is_some_and(|g| g.vector) => self.e.vectorised(&value),
            Some(value) => value,
            None => self.e.constant(Scalar::from_f64(0.0, self.dtypes[id.index()])),
        }
    }

    fn apply(&mut self, inst: &Inst<ValueId>, x: &[Val]) -> Val {
        match *inst {
            Inst::Const(c) => self.e.constant(c),
            Inst::LoadAt(param, _) => self.load_at(param.index(), &x[0]),
            Inst::Unary(op, _) => self.e.unary(op, &x[0]),
            Inst::Binary(op, ..) => self.e.binary(op, &x[0], &x[1]),
            Inst::Compare(op, ..) => self.e.compare(op, &x[0], &x[1]),
            Inst::Select(..) => self.e.select(&x[0], &x[1], &x[2]),
            Inst::Fma(..) => self.e.fma(&x[0], &x[1], &x[2]),
            Inst::Cast(dtype, _) => self.e.cast(dtype, &x[0]),
            Inst::Bitcast(dtype, _) => self.e.bitcast(dtype, &x[0]),
            // Emitted where they have coordinates, or expanded before (`compile` refuses kernels with calls).
            Inst::Index(_) | Inst::Load(..) | Inst::Reduce(..) | Inst::Call1(..) | Inst::Call2(..) => x[0].clone(),
        }
    }

    /// A gather: positions are clamped into the parameter.
    fn load_at(&mut self, param: usize, at: &Val) -> Val {
        if at.vector {
            let lanes: SmallVec<[Val; 4]> = (0..LANES)
                .map(|lane| {
                    let at = self.e.lane(at, lane);
                    self.load_at(param, &at)
                })
                .collect();
            return self.e.assemble(&lanes);
        }
        let (dtype, len) = (self.kernel.params[param].dtype, self.kernel.params[param].len);
        let position = self.e.clamped(at.regs[0], len);
        let distance = self.scaled(position, dtype.size() as i64);
        let address = self.e.b.ins().iadd(self.pointers[param], distance);
        self.e.load(dtype, address, 0)
    }

    /// The address of the iteration's position, for an access with this stride in bytes.
    fn address(&mut self, access: usize, stride: i64) -> Value {
        let base = self.env.bases[access];
        match self.env.position {
            Some(position) => {
                let distance = self.scaled(position, stride);
                self.e.b.ins().iadd(base, distance)
            }
            None => base,
        }
    }

    fn load_member(&mut self, group: Group, param: usize, at: &Affine, access: usize) -> Val {
        let dtype = self.kernel.params[param].dtype;
        let stride = self.stride(at);
        let bytes = stride * dtype.size() as i64;
        let address = self.address(access, bytes);
        if !group.vector {
            return self.e.load(dtype, address, group.offset * bytes);
        }
        if stride == 1 {
            return self.e.load_vector(dtype, address, group.offset * bytes);
        }
        let lanes: SmallVec<[Val; 4]> =
            (0..LANES as i64).map(|lane| self.e.load(dtype, address, (group.offset + lane) * bytes)).collect();
        self.e.assemble(&lanes)
    }

    fn stride(&self, at: &Affine) -> i64 {
        self.axis.map_or(0, |axis| at.stride(axis))
    }

    /// Coordinates along the vector axis.
    fn position_member(&mut self, group: Group) -> Val {
        let position = self.group_position(group);
        if !group.vector {
            return Val::scalar(DType::I64, position);
        }
        let splat = self.e.b.ins().splat(types::I64X2, position);
        let mut regs = Regs::new();
        for lanes in [[0, 1], [2, 3]] {
            let lanes = self.e.vconst_i64(lanes);
            regs.push(self.e.b.ins().iadd(splat, lanes));
        }
        Val::vector(DType::I64, regs)
    }

    fn group_position(&mut self, group: Group) -> Value {
        let position = self.env.position.unwrap_or_else(|| self.e.int(0));
        if group.offset == 0 { position } else { self.e.b.ins().iadd_imm_s(position, group.offset) }
    }

    /// Whether a cast of a coordinate along the vector axis can start from 32 bits.
    fn counts_in_words(&self, x: ValueId, dtype: DType) -> bool {
        let along = match self.kernel.insts[x.index()] {
            Inst::Index(axis) => Some(axis.index()) == self.axis,
            _ => false,
        };
        let short = self.axis.is_some_and(|a| self.kernel.axes[a].extent <= i32::MAX as usize);
        along && short && dtype.size() <= 4 && dtype != DType::Bool && !dtype.is_half()
    }

    fn word_position_member(&mut self, group: Group) -> Val {
        let position = self.group_position(group);
        let word = self.e.b.ins().ireduce(types::I32, position);
        if !group.vector {
            return Val::scalar(DType::I32, word);
        }
        let splat = self.e.b.ins().splat(types::I32X4, word);
        let lanes = self.e.vconst_i32([0, 1, 2, 3]);
        let reg = self.e.b.ins().iadd(splat, lanes);
        Val::vector(DType::I32, smallvec![reg])
    }

    /// Emits the stores of a phase at the current place.
    fn store(&mut self, phase: Phase) {
        let kernel = self.kernel;
        let n_loads = self.accesses.len() - kernel.stores.len();
        for (n, store) in kernel.stores.iter().enumerate() {
            if kernel.uses_reduced(&store.at) != (phase == Phase::Body) {
                continue;
            }
            let (dtype, stride) = (kernel.params[store.param.index()].dtype, self.stride(&store.at));
            let bytes = stride * dtype.size() as i64;
            if self.env.groups.is_empty() {
                let value = self.operand(0, store.value);
                let base = self.env.bases[n_loads + n];
                self.e.store(&value, base, 0);
                continue;
            }
            for g in 0..self.env.groups.len() {
                let group = self.env.groups[g];
                let value = self.operand(g, store.value);
                let address = self.address(n_loads + n, bytes);
                match (group.vector, stride) {
                    (false, _) => self.e.store(&value, address, group.offset * bytes),
                    (true, 1) => self.e.store_vector(&value, address, group.offset * bytes),
                    (true, _) => {
                        for lane in 0..LANES {
                            let element = self.e.lane(&value, lane);
                            self.e.store(&element, address, (group.offset + lane as i64) * bytes);
                        }
                    }
                }
            }
        }
    }

    /// The loop over grid items: all kept axes but the vector axis, and the blocks of that.
    fn grid(&mut self, begin: Bound, end: Bound) {
        let outer = if matches!(self.nest.form, Form::Rows) { self.kept } else { self.kept - 1 };
        let mut dims: Vec<usize> = self.kernel.axes[..outer].iter().map(|a| a.extent).collect();
        if let Form::Columns { block } = self.nest.form {
            dims.push(self.kernel.axes[self.kept - 1].extent.div_ceil(block));
        }
        let start = self.value(begin);
        let coordinates = self.decompose(start, &dims);
        self.repeat(begin, end, 1, coordinates, &mut |l, _, coordinates| {
            for (axis, &coordinate) in coordinates.iter().enumerate().take(outer) {
                l.open(axis, coordinate);
            }
            l.ready(Phase::Body);
            l.ready(Phase::Tail);
            match l.nest.form {
                Form::Columns { block } => l.block(coordinates[outer], block),
                Form::Rows | Form::Flat => l.row(),
            }
            l.advance(&coordinates, &dims)
        });
    }

    fn value(&mut self, bound: Bound) -> Value {
        match bound {
            Bound::Fixed(x) => self.e.int(x),
            Bound::At(x) => x,
        }
    }

    /// The coordinates of a grid item, row-major.
    fn decompose(&mut self, item: Value, dims: &[usize]) -> Vec<Value> {
        let mut coordinates = vec![item; dims.len()];
        let mut rest = item;
        for (at, &dim) in dims.iter().enumerate().skip(1).rev() {
            let dim = self.e.int(dim as i64);
            coordinates[at] = self.e.b.ins().urem(rest, dim);
            rest = self.e.b.ins().udiv(rest, dim);
        }
        if let Some(first) = coordinates.first_mut() {
            *first = rest;
        }
        coordinates
    }

    /// The coordinates of the next grid item.
    fn advance(&mut self, coordinates: &[Value], dims: &[usize]) -> Vec<Value> {
        let mut next = coordinates.to_vec();
        let mut carry: Option<Value> = None;
        for at in (0..dims.len()).rev() {
            let stepped = match carry {
                None => self.e.b.ins().iadd_imm_s(coordinates[at], 1),
                Some(carry) => self.e.b.ins().iadd(coordinates[at], carry),
            };
            if at == 0 {
                next[0] = stepped;
                break;
            }
            let full = self.e.b.ins().icmp_imm_s(IntCC::Equal, stepped, dims[at] as i64);
            let zero = self.e.int(0);
            next[at] = self.e.b.ins().select(full, zero, stepped);
            carry = Some(self.e.b.ins().uextend(types::I64, full));
        }
        next
    }

    /// One block of the vector axis of a `Columns` nest.
    fn block(&mut self, index: Value, block: usize) {
        let extent = self.kernel.axes[self.kept - 1].extent;
        if block == extent {
            return self.vector_range(Bound::Fixed(0), Bound::Fixed(extent as i64));
        }
        let low = self.e.b.ins().imul_imm_s(index, block as i64);
        let high = self.e.b.ins().iadd_imm_s(low, block as i64);
        let most = self.e.int(extent as i64);
        let high = self.e.b.ins().umin(high, most);
        let step = self.nest.groups * LANES;
        let (low, _) = self.repeat_points(Bound::At(low), Bound::At(high), self.nest.groups);
        let rest = extent % step;
        if rest > 0 {
            // Only the last block has a remainder, whose place is known.
            let done = self.e.b.ins().icmp(IntCC::Equal, low, high);
            let (last, after) = (self.e.b.create_block(), self.e.b.create_block());
            self.e.b.ins().brif(done, after, &[], last, &[]);
            self.e.b.switch_to_block(last);
            let env = self.env.clone();
            self.remainder((extent - rest) as i64, rest);
            self.env = env;
            self.e.b.ins().jump(after, &[]);
            self.e.b.switch_to_block(after);
        }
    }

    /// All points of a range of the vector axis of a kept nest.
    fn vector_range(&mut self, low: Bound, high: Bound) {
        let groups = self.nest.groups;
        if let (Bound::Fixed(low), Bound::Fixed(high)) = (low, high) {
            let rest = (high - low) % (groups * LANES) as i64;
            self.repeat_points(Bound::Fixed(low), Bound::Fixed(high), groups);
            return self.remainder(high - rest, rest as usize);
        }
        let (low, _) = self.repeat_points(low, high, groups);
        let (low, _) = if groups > 1 { self.repeat_points(Bound::At(low), high, 1) } else { (low, vec![]) };
        let one = smallvec![Group { vector: false, offset: 0 }];
        self.repeat_groups(Bound::At(low), high, 1, one);
    }

    /// `count` points from the fixed position `start` on.
    fn remainder(&mut self, start: i64, count: usize) {
        if self.kernel.insts.len() <= SMALL_BODY {
            let groups = mixed_groups(count);
            if !groups.is_empty() {
                self.repeat_groups(Bound::Fixed(start), Bound::Fixed(start + 1), 1, groups);
            }
            return;
        }
        let vectors = (count / LANES * LANES) as i64;
        self.repeat_points(Bound::Fixed(start), Bound::Fixed(start + vectors), 1);
        let one = smallvec![Group { vector: false, offset: 0 }];
        self.repeat_groups(Bound::Fixed(start + vectors), Bound::Fixed(start + count as i64), 1, one);
    }

    fn repeat_points(&mut self, low: Bound, high: Bound, groups: usize) -> (Value, Vec<Value>) {
        self.repeat_groups(low, high, (groups * LANES) as i64, vector_groups(groups))
    }

    fn repeat_groups(&mut self, low: Bound, high: Bound, step: i64, groups: Groups) -> (Value, Vec<Value>) {
        self.repeat(low, high, step, vec![], &mut |l, position, _| {
            l.open_vector(position, groups.clone());
            l.point();
            vec![]
        })
    }

    /// One point of the kept axes, or as many as the iteration has groups.
    fn point(&mut self) {
        self.ready(Phase::Body);
        self.ready(Phase::Tail);
        if self.kept < self.kernel.axes.len() {
            self.reduce_columns();
            self.ready(Phase::Tail);
        } else {
            self.reduce_nothing();
        }
        self.store(Phase::Tail);
    }

    /// Reductions where no axis is reduced: of one element each.
    fn reduce_nothing(&mut self) {
        for id in self.reduces.clone() {
            for g in 0..self.env.groups.len().max(1) {
                let x = self.reduced_operand(g, id);
                let neutral = self.neutral(id, x.vector);
                let folded = self.e.combine(self.monoid(id), &neutral, &x);
                self.set(g, id, folded);
            }
            self.ready(Phase::Body);
            self.ready(Phase::Tail);
        }
    }

    fn set(&mut self, g: usize, id: ValueId, value: Val) {
        if self.env.group_values.is_empty() || self.deps[id.index()] & self.axis_bit() == 0 {
            self.env.values[id.index()] = Some(value);
        } else {
            self.env.group_values[g][id.index()] = Some(value);
        }
    }

    fn monoid(&self, id: ValueId) -> Monoid {
        match self.kernel.insts[id.index()] {
            Inst::Reduce(monoid, _) => monoid,
            _ => Monoid::Sum,
        }
    }

    fn neutral(&mut self, id: ValueId, vector: bool) -> Val {
        let neutral = self.monoid(id).neutral(self.dtypes[id.index()]);
        let neutral = self.e.constant(neutral);
        // An accumulator that starts as a constant is none.
        let neutral = if vector { self.e.vectorised(&neutral) } else { neutral };
        Val { constant: None, ..neutral }
    }

    /// The operand of a reduction, its masks 32 bits wide.
    fn reduced_operand(&mut self, g: usize, id: ValueId) -> Val {
        let Inst::Reduce(_, x) = self.kernel.insts[id.index()] else { return self.operand(g, id) };
        let alone = self.deps[id.index()] & self.axis_bit() == 0 && self.axis.is_some_and(|a| a < self.kept);
        let value = if alone { self.env.values[x.index()].clone() } else { None };
        let value = value.unwrap_or_else(|| self.operand(g, x));
        if value.dtype == DType::Bool { self.e.mask(&value, 1) } else { value }
    }

    /// Reductions of a `Columns` nest: one accumulator per group, carried through the reduced loops.
    fn reduce_columns(&mut self) {
        let mut slots: Vec<(ValueId, usize)> = Vec::new();
        let mut accumulators = Vec::new();
        for id in self.reduces.clone() {
            let alone = self.deps[id.index()] & self.axis_bit() == 0;
            let groups = if alone { 1 } else { self.env.groups.len() };
            for g in 0..groups {
                slots.push((id, g));
                let vector = !alone && self.env.groups[g].vector;
                accumulators.push(self.neutral(id, vector));
            }
        }
        let results = self.reduced_loops(self.kept, self.kernel.axes.len(), accumulators, &mut |l, accumulators| {
            l.ready(Phase::Body);
            l.store(Phase::Body);
            let mut next = Vec::new();
            for (&(id, g), accumulator) in slots.iter().zip(&accumulators) {
                let x = l.reduced_operand(g, id);
                next.push(l.e.combine(l.monoid(id), accumulator, &x));
            }
            next
        });
        for (&(id, g), result) in slots.iter().zip(results) {
            self.set(g, id, result);
        }
    }

    /// Loops over the reduced axes `axis..end`, carrying accumulators.
    fn reduced_loops(
        &mut self,
        axis: usize,
        end: usize,
        accumulators: Vec<Val>,
        body: &mut dyn FnMut(&mut Self, Vec<Val>) -> Vec<Val>,
    ) -> Vec<Val> {
        if axis == end {
            return body(self, accumulators);
        }
        let extent = Bound::Fixed(self.kernel.axes[axis].extent as i64);
        let like = accumulators.clone();
        let (_, regs) = self.repeat(Bound::Fixed(0), extent, 1, packed(&accumulators), &mut |l, i, regs| {
            l.open(axis, i);
            l.ready(Phase::Body);
            packed(&l.reduced_loops(axis + 1, end, unpacked(&like, &regs), body))
        });
        unpacked(&like, &regs)
    }

    /// One kept point of a `Rows` nest: vector accumulators along the last reduced axis, folded at the end.
    fn row(&mut self) {
        let Some(axis) = self.axis else {
            self.ready(Phase::Body);
            self.reduce_nothing();
            return self.store(Phase::Tail);
        };
        let extent = self.kernel.axes[axis].extent;
        let full = self.nest.groups * LANES;
        let main = extent / full;
        // The widest iteration decides how many vector accumulators there are; elements share one more.
        let rest = mixed_groups(extent % full);
        let vectors = if main > 0 { self.nest.groups } else { rest.iter().filter(|g| g.vector).count() };
        let lone = usize::from(rest.iter().any(|g| !g.vector));
        let mut accumulators = Vec::new();
        for id in self.reduces.clone() {
            for at in 0..vectors + lone {
                accumulators.push(self.neutral(id, at < vectors));
            }
        }
        let each = vectors + lone;
        let results = self.reduced_loops(self.kept, axis, accumulators, &mut |l, accumulators| {
            let like = accumulators.clone();
            let end = Bound::Fixed((main * full) as i64);
            let whole = vector_groups(l.nest.groups);
            let step = full as i64;
            let (_, regs) = l.repeat(Bound::Fixed(0), end, step, packed(&like), &mut |l, position, regs| {
                packed(&l.row_step(position, whole.clone(), unpacked(&like, &regs), vectors, each))
            });
            let accumulators = unpacked(&like, &regs);
            if rest.is_empty() {
                return accumulators;
            }
            let env = l.env.clone();
            let start = l.e.int((main * full) as i64);
            let accumulators = l.row_step(start, rest.clone(), accumulators, vectors, each);
            l.env = env;
            accumulators
        });
        for (n, id) in self.reduces.clone().into_iter().enumerate() {
            let folded = self.fold_row(id, &results[n * each..(n + 1) * each], vectors);
            self.env.values[id.index()] = Some(folded);
        }
        self.ready(Phase::Tail);
        self.store(Phase::Tail);
    }

    fn row_step(&mut self, at: Value, groups: Groups, accumulators: Vec<Val>, vectors: usize, each: usize) -> Vec<Val> {
        self.open_vector(at, groups);
        self.ready(Phase::Body);
        self.store(Phase::Body);
        let mut next = accumulators;
        for (n, id) in self.reduces.clone().into_iter().enumerate() {
            for g in 0..self.env.groups.len() {
                let slot = n * each + if self.env.groups[g].vector { g } else { vectors };
                let x = self.reduced_operand(g, id);
                next[slot] = self.e.combine(self.monoid(id), &next[slot], &x);
            }
        }
        next
    }

    /// Neighbouring accumulators are combined until one is left, then its lanes, then the lone elements.
    fn fold_row(&mut self, id: ValueId, accumulators: &[Val], vectors: usize) -> Val {
        let monoid = self.monoid(id);
        let mut level = accumulators[..vectors].to_vec();
        while level.len() > 1 {
            level = level
                .chunks(2)
                .map(|pair| if let [x, y] = pair { self.e.combine(monoid, x, y) } else { pair[0].clone() })
                .collect();
        }
        let folded = level.first().map(|x| self.e.fold_lanes(monoid, x));
        match (folded, accumulators.get(vectors)) {
            (Some(x), Some(y)) => self.e.combine(monoid, &x, y),
            (Some(x), None) => x,
            (None, Some(y)) => y.clone(),
            (None, None) => self.neutral(id, false),
        }
    }

    /// Runs `body` for `i` from `low` in steps while a whole step fits below `high`; returns where it stopped and what
    /// was carried. The environment is as before afterwards.
    fn repeat(
        &mut self,
        low: Bound,
        high: Bound,
        step: i64,
        carried: Vec<Value>,
        body: &mut dyn FnMut(&mut Self, Value, Vec<Value>) -> Vec<Value>,
    ) -> (Value, Vec<Value>) {
        let trips = match (low, high) {
            (Bound::Fixed(low), Bound::Fixed(high)) => Some((high - low).max(0) / step),
            _ => None,
        };
        let first = self.value(low);
        if trips == Some(0) {
            return (first, carried);
        }
        let env = self.env.clone();
        if trips == Some(1) {
            let carried = body(self, first, carried);
            self.env = env;
            let last = self.e.b.ins().iadd_imm_s(first, step);
            return (last, carried);
        }
        let high = self.value(high);
        let limit = self.e.b.ins().iadd_imm_s(high, -step);
        let (head, exit) = (self.e.b.create_block(), self.e.b.create_block());
        for block in [head, exit] {
            self.e.b.append_block_param(block, types::I64);
            for &value in &carried {
                let ty = self.e.b.func.dfg.value_type(value);
                self.e.b.append_block_param(block, ty);
            }
        }
        let enter = args(first, &carried);
        if trips.is_some() {
            self.e.b.ins().jump(head, &enter);
        } else {
            let any = self.e.b.ins().icmp(IntCC::SignedLessThanOrEqual, first, limit);
            self.e.b.ins().brif(any, head, &enter, exit, &enter);
        }
        self.e.b.switch_to_block(head);
        let params = self.e.b.block_params(head).to_vec();
        let next = body(self, params[0], params[1..].to_vec());
        self.env = env;
        let i = self.e.b.ins().iadd_imm_s(params[0], step);
        let more = self.e.b.ins().icmp(IntCC::SignedLessThanOrEqual, i, limit);
        let again = args(i, &next);
        self.e.b.ins().brif(more, head, &again, exit, &again);
        self.e.b.switch_to_block(exit);
        let params = self.e.b.block_params(exit).to_vec();
        (params[0], params[1..].to_vec())
    }
}

fn mask_of(at: &Affine) -> u64 {
    at.strides.iter().enumerate().filter(|(_, stride)| **stride != 0).fold(0, |m, (axis, _)| m | 1 << axis)
}

fn vector_groups(count: usize) -> Groups {
    (0..count).map(|g| Group { vector: true, offset: (g * LANES) as i64 }).collect()
}

/// As many vectors as fit, then elements.
fn mixed_groups(count: usize) -> Groups {
    let vectors = count / LANES;
    let elements = (vectors * LANES..count).map(|at| Group { vector: false, offset: at as i64 });
    vector_groups(vectors).into_iter().chain(elements).collect()
}

fn args(first: Value, rest: &[Value]) -> Vec<BlockArg> {
    std::iter::once(first).chain(rest.iter().copied()).map(BlockArg::from).collect()
}

fn packed(values: &[Val]) -> Vec<Value> {
    values.iter().flat_map(|v| v.regs.iter().copied()).collect()
}

fn unpacked(like: &[Val], regs: &[Value]) -> Vec<Val> {
    let mut at = 0;
    let take = |v: &Val| {
        let end = at + v.regs.len();
        let regs = regs[at..end].iter().copied().collect();
        at = end;
        Val { dtype: v.dtype, vector: v.vector, regs, constant: None }
    };
    like.iter().map(take).collect()
}
