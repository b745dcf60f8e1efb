//! Loop nests around the instructions of a kernel.
//!
//! The steps of a loop form, in its order. Those that depend on the vector axis are emitted once per group of the current
//! iteration: one vector or one element at a fixed distance from the iteration's position on the vector axis.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{BlockArg, InstBuilder, MemFlagsData, Value, types};
use smallvec::{SmallVec, smallvec};

use super::columns::ShortRows;
use super::emit::{Emitter, LANES, Val};
use crate::ir::Kernel;
use crate::schedule::{LoopForm, Nest, Traversal};

/// Bodies of at most this many instructions are repeated for the remainder of an axis instead of looped over.
const SMALL_BODY: usize = 16;

/// A vector or an element of an iteration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    pub(super) vector: bool,
    /// Its distance from the iteration's position.
    pub(super) offset: i64,
}

pub(super) type Groups = SmallVec<[Group; 8]>;

/// The body of a loop: from the counter and what is carried to what is carried on.
pub(super) type Body<'b, T> = dyn FnMut(&mut T, Value, Vec<Value>) -> Vec<Value> + 'b;

/// A bound of a loop.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bound {
    Fixed(i64),
    At(Value),
}

/// The coordinates known at a place of the nest, and values that were made of others there.
#[derive(Clone)]
pub(super) struct Env {
    /// The coordinates of open axes other than the vector axis.
    pub(super) coordinates: SmallVec<[Option<Value>; 6]>,
    /// The form's pointers, as far as the coordinates tell.
    pub(super) bases: Vec<Value>,
    /// The position on the vector axis.
    pub(super) position: Option<Value>,
    pub(super) groups: Groups,
    /// Values that do not depend on the vector axis, in all lanes.
    pub(super) splats: Vec<Option<Val>>,
    /// The form's pointers at the position.
    pub(super) addresses: Vec<Option<Value>>,
}

/// Emits one nest.
pub(super) struct Loops<'a, 'f> {
    pub(super) e: &'a mut Emitter<'f>,
    pub(super) nest: &'a Nest,
    pub(super) form: &'a LoopForm<'a>,
    pub(super) kernel: &'a Kernel,
    /// The columns of a tile: the first, and the one behind the last.
    columns: Vec<Value>,
    /// Values that do not depend on the vector axis.
    pub(super) values: Vec<Option<Val>>,
    /// Values of each group.
    pub(super) group_values: Vec<Vec<Option<Val>>>,
    pub(super) short_rows: ShortRows,
    pub(super) env: Env,
}

impl<'a, 'f> Loops<'a, 'f> {
    /// Emits a nest for the grid items `begin..end`; its parameters start at `first` in the pointer table.
    pub(super) fn emit(
        e: &'a mut Emitter<'f>,
        (nest, form): (&'a Nest, &'a LoopForm<'a>),
        (table, first): (Value, usize),
        [begin, end]: [Bound; 2],
    ) {
        let kernel = &nest.kernel;
        let env = Env {
            coordinates: smallvec![None; kernel.axes.len()],
            bases: Vec::new(),
            position: None,
            groups: smallvec![],
            splats: vec![None; kernel.insts.len()],
            addresses: Vec::new(),
        };
        let values = vec![None; kernel.insts.len()];
        let (columns, group_values, short_rows) = (Vec::new(), Vec::new(), ShortRows::of(form));
        let mut loops = Loops { e, nest, form, kernel, columns, values, group_values, short_rows, env };
        loops.load_pointers(table, first);
        loops.steps(&form.loops[0].steps);
        match nest.traversal {
            Traversal::Flat => loops.vector_range(begin, end),
            Traversal::Rows if form.loops.len() == 1 => {}
            Traversal::Columns { .. } | Traversal::Rows | Traversal::Tile => loops.grid(begin, end),
        }
    }

    fn load_pointers(&mut self, table: Value, first: usize) {
        let trusted = MemFlagsData::trusted();
        let load = |p: usize| self.e.b.ins().load(types::I64, trusted, table, (8 * (first + p)) as i32);
        let params: Vec<Value> = (0..self.kernel.params.len()).map(load).collect();
        if self.nest.traversal == Traversal::Tile {
            let behind = first + self.kernel.params.len();
            let column = |n: usize| self.e.b.ins().load(types::I64, trusted, table, (8 * (behind + n)) as i32);
            self.columns = [0, 1].map(column).to_vec();
        }
        for pointer in &self.form.pointers {
            let bytes = pointer.at.offset * self.kernel.params[pointer.param].dtype.size() as i64;
            let base = params[pointer.param];
            let base = if bytes == 0 { base } else { self.e.b.ins().iadd_imm_s(base, bytes) };
            self.env.bases.push(base);
        }
    }

    /// Makes the coordinate of an axis other than the vector axis known.
    pub(super) fn open(&mut self, axis: usize, coordinate: Value) {
        self.env.coordinates[axis] = Some(coordinate);
        for (i, pointer) in self.form.pointers.iter().enumerate() {
            let bytes = pointer.at.stride(axis) * self.kernel.params[pointer.param].dtype.size() as i64;
            if bytes != 0 {
                let distance = self.scaled(coordinate, bytes);
                self.env.bases[i] = self.e.b.ins().iadd(self.env.bases[i], distance);
                if let Some(known) = self.env.addresses.get_mut(i) {
                    *known = None;
                }
            }
        }
    }

    pub(super) fn scaled(&mut self, x: Value, factor: i64) -> Value {
        match factor {
            1 => x,
            _ if factor > 0 && factor.count_ones() == 1 => self.e.b.ins().ishl_imm_u(x, factor.trailing_zeros() as i64),
            _ => self.e.b.ins().imul_imm_s(x, factor),
        }
    }

    /// Opens the vector axis at `position` with some groups.
    pub(super) fn open_vector(&mut self, position: Value, groups: Groups) {
        self.env.position = Some(position);
        self.group_values = vec![vec![None; self.kernel.insts.len()]; groups.len()];
        self.short_rows.clear();
        self.env.addresses = vec![None; self.form.pointers.len()];
        self.env.groups = groups;
    }

    /// The loop over grid items: all kept axes but the vector axis, and the blocks of that.
    fn grid(&mut self, begin: Bound, end: Bound) {
        let form = self.form;
        let outer = form.loops[1].axes.end;
        let mut dims: Vec<usize> = self.kernel.axes[..outer].iter().map(|a| a.extent).collect();
        if let Traversal::Columns { block } = self.nest.traversal {
            dims.push(self.kernel.axes[outer].extent.div_ceil(block));
        }
        let start = self.bound(begin);
        let coordinates = self.decompose(start, &dims);
        self.repeat(begin, end, 1, coordinates, &mut |l, _, coordinates| {
            for (axis, &coordinate) in coordinates.iter().enumerate().take(outer) {
                l.open(axis, coordinate);
            }
            l.steps(&form.loops[1].steps);
            match l.nest.traversal {
                Traversal::Columns { block } => l.block(coordinates[outer], block),
                Traversal::Tile => l.vector_range(Bound::At(l.columns[0]), Bound::At(l.columns[1])),
                Traversal::Rows | Traversal::Flat => l.row(),
            }
            l.advance(&coordinates, &dims)
        });
    }

    pub(super) fn bound(&mut self, bound: Bound) -> Value {
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
        let extent = self.kernel.axes[self.form.kept - 1].extent;
        if block == extent {
            return self.vector_range(Bound::Fixed(0), Bound::Fixed(extent as i64));
        }
        let low = self.e.b.ins().imul_imm_s(index, block as i64);
        let high = self.e.b.ins().iadd_imm_s(low, block as i64);
        let most = self.e.int(extent as i64);
        let high = self.e.b.ins().umin(high, most);
        let step = self.nest.unroll * LANES;
        let (low, _) = self.repeat_points(Bound::At(low), Bound::At(high), self.nest.unroll);
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
        let groups = self.nest.unroll;
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

    pub(super) fn repeat_points(&mut self, low: Bound, high: Bound, groups: usize) -> (Value, Vec<Value>) {
        self.repeat_groups(low, high, (groups * LANES) as i64, vector_groups(groups))
    }

    pub(super) fn repeat_groups(&mut self, low: Bound, high: Bound, step: i64, groups: Groups) -> (Value, Vec<Value>) {
        self.repeat(low, high, step, vec![], &mut |l, position, _| {
            l.open_vector(position, groups.clone());
            l.point();
            vec![]
        })
    }

    /// One point of the kept axes, or as many as the iteration has groups.
    fn point(&mut self) {
        let (form, level) = (self.form, self.form.tail_level());
        self.steps(&form.loops[level].steps);
        if form.kept < self.kernel.axes.len() {
            self.reduce_columns();
            self.steps(&form.loops[level].tail);
        }
    }

    /// Runs `body` for `i` from `low` in steps while a whole step fits below `high`; returns where it stopped and what
    /// was carried. The environment is as before afterwards.
    pub(super) fn repeat(
        &mut self,
        low: Bound,
        high: Bound,
        step: i64,
        carried: Vec<Value>,
        body: &mut Body<'_, Self>,
    ) -> (Value, Vec<Value>) {
        let trips = match (low, high) {
            (Bound::Fixed(low), Bound::Fixed(high)) => Some((high - low).max(0) / step),
            _ => None,
        };
        let first = self.bound(low);
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
        let high = self.bound(high);
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

pub(super) fn vector_groups(count: usize) -> Groups {
    (0..count).map(|g| Group { vector: true, offset: (g * LANES) as i64 }).collect()
}

/// As many vectors as fit, then elements.
pub(super) fn mixed_groups(count: usize) -> Groups {
    let vectors = count / LANES;
    let elements = (vectors * LANES..count).map(|at| Group { vector: false, offset: at as i64 });
    vector_groups(vectors).into_iter().chain(elements).collect()
}

fn args(first: Value, rest: &[Value]) -> Vec<BlockArg> {
    std::iter::once(first).chain(rest.iter().copied()).map(BlockArg::from).collect()
}
