//! The straight-line body of a nest: which instruction is emitted where, and how it reads and writes memory.

use cranelift_codegen::ir::{BlockArg, InstBuilder, Value, types};
use retape_runtime::{DType, Scalar};
use smallvec::{SmallVec, smallvec};

use super::columns::first_of;
use super::emit::{LANES, Val, vector_type};
use super::loops::{Group, Loops};
use super::reduce::{packed, unpacked};
use crate::ir::{Inst, ValueId, operation};
use crate::schedule::{FormPointer, Interleaved, LoopStep};

impl Loops<'_, '_> {
    /// Emits the steps of a place.
    pub(super) fn steps(&mut self, steps: &[LoopStep]) {
        for &step in steps {
            if self.env.groups.is_empty() || !self.form.is_of_groups(step) {
                self.step(step, None);
            } else {
                (0..self.env.groups.len()).for_each(|g| self.step(step, Some(g)));
            }
        }
    }

    fn step(&mut self, step: LoopStep, group: Option<usize>) {
        match step {
            LoopStep::Make(id) => {
                let value = self.value(id, group);
                self.set(group, id, value);
            }
            LoopStep::Branch(region) => self.branch(group, region),
            LoopStep::Store(n) => self.store(n, group),
        }
    }

    pub(super) fn set(&mut self, group: Option<usize>, id: usize, value: Val) {
        match group {
            Some(g) => self.group_values[g][id] = Some(value),
            None => self.values[id] = Some(value),
        }
    }

    /// Emits the selects of a cold region, and the instructions they need, for a group: only if an element of it takes
    /// them.
    fn branch(&mut self, group: Option<usize>, region: usize) {
        let (region, insts) = (&self.form.cold.all[region], &self.kernel.insts);
        let condition = self.operand(group, region.condition);
        let others: Vec<Val> = region.others(insts).map(|other| self.operand(group, other)).collect();
        let (cold, after) = (self.e.b.create_block(), self.e.b.create_block());
        for &reg in others.iter().flat_map(|other| &other.regs) {
            let ty = self.e.b.func.dfg.value_type(reg);
            self.e.b.append_block_param(after, ty);
        }
        let otherwise: Vec<BlockArg> = packed(&others).into_iter().map(BlockArg::from).collect();
        if region.when {
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
        region.steps.iter().for_each(|&step| self.step(step, group));
        let chosen: Vec<Val> = region.selects.iter().map(|&id| self.value(id, group)).collect();
        let chosen: Vec<BlockArg> = packed(&chosen).into_iter().map(BlockArg::from).collect();
        self.e.b.ins().jump(after, &chosen);
        self.env.splats = splats;
        self.e.b.switch_to_block(after);
        let results = self.e.b.block_params(after).to_vec();
        for (&id, result) in region.selects.iter().zip(unpacked(&others, &results)) {
            self.set(group, id, result);
        }
    }

    /// The value of an instruction, of a group if it depends on the vector axis.
    fn value(&mut self, id: usize, group: Option<usize>) -> Val {
        let inst = &self.kernel.insts[id];
        match inst {
            Inst::Load(..) => self.load(id, group),
            Inst::Index(axis) if self.form.axis == Some(axis.index()) => self.position(group, true),
            Inst::Index(axis) => {
                let coordinate = self.env.coordinates[axis.index()];
                let value = coordinate.unwrap_or_else(|| self.e.int(0));
                Val::scalar(DType::I64, value)
            }
            Inst::Cast(dtype, x) if self.form.counts_in_words(*x, *dtype) => {
                let words = self.position(group, false);
                self.e.cast(*dtype, &words)
            }
            Inst::LoadAt(param, at) => {
                let (base, at) = (self.env.bases[self.form.load(id).0], self.operand(group, *at));
                self.load_at(param.index(), base, &at)
            }
            Inst::Const(_) | Inst::Reduce(..) | operation!() => {
                let operands: SmallVec<[Val; 3]> = inst.operands().iter().map(|&v| self.operand(group, v)).collect();
                self.apply(inst, &operands)
            }
        }
    }

    /// A value as a group sees it, or as all do.
    pub(super) fn operand(&mut self, group: Option<usize>, id: ValueId) -> Val {
        let vector = group.is_some_and(|g| self.env.groups[g].vector);
        let value = match group.filter(|_| self.form.is_grouped(id.index())) {
            Some(g) => return self.known(self.group_values[g][id.index()].clone(), id),
            None => self.known(self.values[id.index()].clone(), id),
        };
        if !vector {
            return value;
        }
        if let Some(splat) = &self.env.splats[id.index()] {
            return splat.clone();
        }
        let splat = self.e.vectorised(&value);
        self.env.splats[id.index()] = Some(splat.clone());
        splat
    }

    /// A value that an earlier step has made.
    fn known(&mut self, value: Option<Val>, id: ValueId) -> Val {
        value.unwrap_or_else(|| self.e.constant(Scalar::from_f64(0.0, self.form.dtypes[id.index()])))
    }

    fn apply(&mut self, inst: &Inst<ValueId>, x: &[Val]) -> Val {
        match *inst {
            Inst::Const(c) => self.e.constant(c),
            Inst::Unary(op, _) => self.e.unary(op, &x[0]),
            Inst::Binary(op, ..) => self.e.binary(op, &x[0], &x[1]),
            Inst::Compare(op, ..) => self.e.compare(op, &x[0], &x[1]),
            Inst::Select(..) => self.e.select(&x[0], &x[1], &x[2]),
            Inst::Fma(..) => self.e.fma(&x[0], &x[1], &x[2]),
            Inst::Cast(dtype, _) => self.e.cast(dtype, &x[0]),
            Inst::Bitcast(dtype, _) => self.e.bitcast(dtype, &x[0]),
            // Emitted where they have coordinates, or expanded before (`compile` refuses kernels with calls).
            Inst::Index(_)
            | Inst::Load(..)
            | Inst::LoadAt(..)
            | Inst::Reduce(..)
            | Inst::Call1(..)
            | Inst::Call2(..) => x[0].clone(),
        }
    }

    /// A gather: positions are clamped into the parameter.
    fn load_at(&mut self, param: usize, base: Value, at: &Val) -> Val {
        if at.vector {
            let lanes: SmallVec<[Val; 4]> = (0..LANES)
                .map(|lane| {
                    let at = self.e.lane(at, lane);
                    self.load_at(param, base, &at)
                })
                .collect();
            return self.e.assemble(&lanes);
        }
        let (dtype, len) = (self.kernel.params[param].dtype, self.kernel.params[param].len);
        let position = self.e.clamped(at.regs[0], len);
        let distance = self.scaled(position, dtype.size() as i64);
        let address = self.e.b.ins().iadd(base, distance);
        self.e.load(dtype, address, 0)
    }

    /// A pointer at the iteration's position, and its stride along the vector axis in elements.
    fn address(&mut self, pointer: usize) -> (Value, i64) {
        let FormPointer { param, at } = &self.form.pointers[pointer];
        let stride = self.form.axis.map_or(0, |axis| at.stride(axis));
        let base = self.env.bases[pointer];
        let Some(position) = self.env.position.filter(|_| stride != 0) else { return (base, stride) };
        if let Some(address) = self.env.addresses[pointer] {
            return (address, stride);
        }
        let distance = self.scaled(position, stride * self.kernel.params[*param].dtype.size() as i64);
        let address = self.e.b.ins().iadd(base, distance);
        self.env.addresses[pointer] = Some(address);
        (address, stride)
    }

    fn load(&mut self, id: usize, group: Option<usize>) -> Val {
        if let Some(column) = group.and_then(|g| self.load_column(id, g)) {
            return column;
        }
        let (dtype, (pointer, distance)) = (self.form.dtypes[id], self.form.load(id));
        let Some(group) = group.map(|g| self.env.groups[g]) else {
            return self.e.load(dtype, self.env.bases[pointer], distance);
        };
        let (address, stride) = self.address(pointer);
        let at = |lane: i64| distance + (group.offset + lane) * stride * dtype.size() as i64;
        match (group.vector, stride) {
            (false, _) => self.e.load(dtype, address, at(0)),
            (true, 1) => self.e.load_vector(dtype, address, at(0)),
            (true, _) => {
                let lanes: SmallVec<[Val; 4]> =
                    (0..LANES as i64).map(|lane| self.e.load(dtype, address, at(lane))).collect();
                self.e.assemble(&lanes)
            }
        }
    }

    /// Coordinates along the vector axis, as `i64` or as `i32`.
    fn position(&mut self, group: Option<usize>, wide: bool) -> Val {
        let Group { vector, offset } = group.map_or(Group { vector: false, offset: 0 }, |g| self.env.groups[g]);
        let position = self.env.position.unwrap_or_else(|| self.e.int(0));
        let position = if offset == 0 { position } else { self.e.b.ins().iadd_imm_s(position, offset) };
        let position = if wide { position } else { self.e.b.ins().ireduce(types::I32, position) };
        let dtype = if wide { DType::I64 } else { DType::I32 };
        if !vector {
            return Val::scalar(dtype, position);
        }
        let splat = self.e.b.ins().splat(vector_type(dtype), position);
        let lanes: SmallVec<[Value; 2]> = if wide {
            [[0, 1], [2, 3]].map(|lanes| self.e.vconst_i64(lanes)).into_iter().collect()
        } else {
            smallvec![self.e.vconst_i32([0, 1, 2, 3])]
        };
        Val::vector(dtype, lanes.into_iter().map(|lanes| self.e.b.ins().iadd(splat, lanes)).collect())
    }

    /// Emits a store for a group.
    fn store(&mut self, n: usize, group: Option<usize>) {
        let (store, (pointer, distance)) = (&self.kernel.stores[n], self.form.store(n));
        let value = self.operand(group, store.value);
        self.e.record_nonfinite(&value);
        if group.is_some_and(|g| self.store_column(n, g, &value)) {
            return;
        }
        let Some(group) = group.map(|g| self.env.groups[g]) else {
            return self.e.store(&value, self.env.bases[pointer], distance);
        };
        let (address, stride) = self.address(pointer);
        let at = |lane: i64| distance + (group.offset + lane) * stride * value.dtype.size() as i64;
        match (group.vector, stride) {
            (false, _) => self.e.store(&value, address, at(0)),
            (true, 1) => self.e.store_vector(&value, address, at(0)),
            (true, _) => {
                for lane in 0..LANES {
                    let element = self.e.lane(&value, lane);
                    self.e.store(&element, address, at(lane as i64));
                }
            }
        }
    }

    /// A load of a group's vector, if it is one with others.
    fn load_column(&mut self, id: usize, g: usize) -> Option<Val> {
        let Interleaved { first, ways, way } = self.short_rows.loads[id].filter(|_| self.env.groups[g].vector)?;
        let dtype = self.form.dtypes[id];
        let known = self.short_rows.loaded.get(&(first, g)).and_then(|columns| columns[way]);
        let column = match known {
            Some(column) => column,
            None => {
                let begin = first_of(way, ways);
                let rows = [0, 1, 2, 3].map(|row| {
                    let (address, bytes) = self.place_of_row(self.form.load(first), (ways, g), row, begin);
                    self.e.load_vector(dtype, address, bytes).regs[0]
                });
                let columns = self.e.turned(rows, vector_type(dtype));
                let known = self.short_rows.loaded.entry((first, g)).or_insert_with(|| vec![None; ways]);
                for (known, column) in known[begin..].iter_mut().zip(columns) {
                    known.get_or_insert(column);
                }
                columns[way - begin]
            }
        };
        Some(Val::vector(dtype, smallvec![column]))
    }

    /// A store of a group's vector, if it is one with others; the last one of four columns writes them.
    fn store_column(&mut self, n: usize, g: usize, value: &Val) -> bool {
        let set = self.short_rows.stores[n].filter(|_| self.env.groups[g].vector);
        let Some(Interleaved { first, ways, way }) = set else { return false };
        let waiting = self.short_rows.stored.entry((first, g)).or_insert_with(|| vec![None; ways]);
        waiting[way] = Some(value.regs[0]);
        let waiting = waiting.clone();
        // A column may be one of two fours.
        let mut begins = vec![first_of(way, ways)];
        begins.extend((way >= ways - LANES && begins[0] != ways - LANES).then_some(ways - LANES));
        for begin in begins {
            let columns: Vec<Value> = waiting[begin..begin + LANES].iter().copied().flatten().collect();
            if let Ok(columns) = <[Value; LANES]>::try_from(columns) {
                let rows = self.e.turned(columns, vector_type(value.dtype));
                for (row, value_of_row) in rows.into_iter().enumerate() {
                    let (address, bytes) = self.place_of_row(self.form.store(first), (ways, g), row, begin);
                    self.e.store_vector(&Val::vector(value.dtype, smallvec![value_of_row]), address, bytes);
                }
            }
        }
        true
    }

    /// Where a column of a row of a group's vector lies.
    fn place_of_row(
        &mut self,
        (pointer, distance): (usize, i64),
        (ways, g): (usize, usize),
        row: usize,
        column: usize,
    ) -> (Value, i64) {
        const WORD: i64 = 4;
        let (address, _) = self.address(pointer);
        let words = (self.env.groups[g].offset + row as i64) * ways as i64 + column as i64;
        (address, distance + words * WORD)
    }
}
