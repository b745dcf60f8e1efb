//! The straight-line body of a nest: which instruction is emitted where, and how it reads and writes memory.

use std::rc::Rc;

use cranelift_codegen::ir::{BlockArg, InstBuilder, Value, types};
use retape_runtime::{DType, Scalar};
use smallvec::{SmallVec, smallvec};

use super::emit::{Regs, Val};
use super::loops::{Group, Loops};
use super::reduce::{packed, unpacked};
use crate::ir::{Affine, Inst, ValueId, operation};
use crate::schedule::{LANES, Phase};

impl Loops<'_, '_> {
    /// Emits all instructions of a phase that are not emitted yet and whose coordinates are known.
    pub(super) fn ready(&mut self, phase: Phase) {
        let kernel = self.kernel;
        let rare = Rc::clone(&self.rare);
        for (id, inst) in kernel.insts.iter().enumerate() {
            let wanted = self.needed[phase as usize][id] && self.deps[id] & !self.env.open == 0;
            let operands = inst.operands();
            let part = rare.selected(id);
            let inputs = part.map_or(operands.as_slice(), |part| rare.all[part].inputs.as_slice());
            let made = inputs.iter().all(|v| self.is_made(v.index()));
            if !wanted || !made || !rare.is_in(id, None) || matches!(inst, Inst::Reduce(..)) {
                continue;
            }
            if self.deps[id] & self.axis_bit() == 0 {
                if self.env.values[id].is_none() {
                    self.env.values[id] = Some(self.element(id, inst));
                }
                continue;
            }
            for g in 0..self.env.groups.len() {
                self.make(g, id, inst, part);
            }
        }
    }

    /// Emits an instruction for a group, with the part of which it is a select, unless that is done.
    fn make(&mut self, g: usize, id: usize, inst: &Inst<ValueId>, part: Option<usize>) {
        match part {
            _ if self.env.group_values[g][id].is_some() => {}
            Some(part) => self.branch(g, part),
            None => self.env.group_values[g][id] = Some(self.member(g, id, inst)),
        }
    }

    /// Emits the selects of a rare part, and the instructions they need, for a group: only if an element of it takes
    /// them.
    fn branch(&mut self, g: usize, part: usize) {
        let parts = Rc::clone(&self.rare);
        let (rare, insts) = (&parts.all[part], &self.kernel.insts);
        let condition = self.operand(g, rare.condition);
        let others: Vec<Val> = rare.others(insts).map(|other| self.operand(g, other)).collect();
        let (cold, after) = (self.e.b.create_block(), self.e.b.create_block());
        for &reg in others.iter().flat_map(|other| &other.regs) {
            let ty = self.e.b.func.dfg.value_type(reg);
            self.e.b.append_block_param(after, ty);
        }
        let otherwise: Vec<BlockArg> = packed(&others).into_iter().map(BlockArg::from).collect();
        if rare.when {
            let any = self.e.any(&condition);
            self.e.b.ins().brif(any, cold, &[], after, &otherwise);
        } else {
            let all = self.e.all(&condition);
            self.e.b.ins().brif(all, after, &otherwise, cold, &[]);
        }
        self.e.b.set_cold_block(cold);
        self.e.b.switch_to_block(cold);
        // Values made in the cold block are not known elsewhere.
        let splats = self.env.splats.clone();
        for &id in rare.body.iter().filter(|&&id| parts.is_in(id, Some(part))) {
            self.make(g, id, &insts[id], parts.selected(id));
        }
        let chosen: Vec<Val> = rare.selects.iter().map(|&id| self.member(g, id, &insts[id])).collect();
        let chosen: Vec<BlockArg> = packed(&chosen).into_iter().map(BlockArg::from).collect();
        self.e.b.ins().jump(after, &chosen);
        self.env.splats = splats;
        rare.body.iter().for_each(|&id| self.env.group_values[g][id] = None);
        self.e.b.switch_to_block(after);
        let results = self.e.b.block_params(after).to_vec();
        for (&id, result) in rare.selects.iter().zip(unpacked(&others, &results)) {
            self.env.group_values[g][id] = Some(result);
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
            Inst::Const(_) | Inst::LoadAt(..) | Inst::Reduce(..) | operation!() => {
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
            Inst::Const(_) | Inst::LoadAt(..) | Inst::Reduce(..) | operation!() => {
                let operands: SmallVec<[Val; 3]> = inst.operands().iter().map(|&v| self.operand(g, v)).collect();
                self.apply(inst, &operands)
            }
        }
    }

    /// A value as a group sees it.
    pub(super) fn operand(&mut self, g: usize, id: ValueId) -> Val {
        let group = self.env.groups.get(g).copied();
        let of_group = self.env.group_values.get(g).and_then(|values| values[id.index()].clone());
        if let Some(value) = of_group {
            return value;
        }
        let vector = group.is_some_and(|g| g.vector);
        if let Some(splat) = self.env.splats[id.index()].as_ref().filter(|_| vector) {
            return splat.clone();
        }
        match self.env.values[id.index()].clone() {
            Some(value) if vector => {
                let splat = self.e.vectorised(&value);
                self.env.splats[id.index()] = Some(splat.clone());
                splat
            }
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
        let Some(position) = self.env.position.filter(|_| stride != 0) else { return base };
        if let Some(address) = self.env.addresses[access] {
            return address;
        }
        let distance = self.scaled(position, stride);
        let address = self.e.b.ins().iadd(base, distance);
        self.env.addresses[access] = Some(address);
        address
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
        let along = matches!(self.kernel.insts[x.index()], Inst::Index(axis) if Some(axis.index()) == self.axis);
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
    pub(super) fn store(&mut self, phase: Phase) {
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
                self.e.record_nonfinite(&value);
                let base = self.env.bases[n_loads + n];
                self.e.store(&value, base, 0);
                continue;
            }
            for g in 0..self.env.groups.len() {
                let group = self.env.groups[g];
                let value = self.operand(g, store.value);
                self.e.record_nonfinite(&value);
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
}
