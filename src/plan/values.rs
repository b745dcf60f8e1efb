//! Which values are stored, and which are computed where they are used.
//!
//! A *root* is a value that gets memory. Results of library kernels and reductions are roots, and so is what an
//! output, a library kernel or a read at computed coordinates needs as a whole, and a transposed matrix that many
//! products have on the right (ADR 42). Joins may read parts of what has memory (ADR 99). A pointwise value with several
//! users is a root unless computing it again costs less than loading it, or users compute no more of it together than
//! there is, or it is a short formula of another stored value, which users then read in its place (`paths.rs`); if fusion
//! brings all its users into its own kernel, it is never written after all.
//!
//! Once groups are complete, some transposed values become roots as well (`materialise.rs`).

use std::collections::HashMap;
use std::ops::{Range, RangeInclusive};

use retape_kernels::ir::{Affine, Binary, Inst, KernelBuilder, Unary, Value};
use retape_kernels::library::{Join, Library};
use retape_runtime::Scalar;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::paths::{PathStart, RootPath};
use super::view::View;
use super::{ComputeCost, slots};
use crate::graph::Graph;
use crate::ops::{Body, Lowering, Movement, Op, Point};
use crate::types::{TensorType, ValueId};

/// Expressions longer than this are cut by a root, which bounds the size of kernels and of recursion over them.
const MAX_COST: u32 = 160;

/// Up to this cost a value is computed again for each user.
const CHEAP: u32 = 2;

/// Elements of a transposed factor that is stored: from where a transposition is a call of the library, to what a product
/// packs at a time, so that the copy takes no more memory.
const SHARED_FACTOR: RangeInclusive<usize> = 1 << 12..=1 << 22;

/// The arguments of attention and its gradient that are vectors, without strides.
const ATTENTION_TERMS: std::ops::Range<usize> = 3..5;

/// Fewer products than these read a transposed factor as it is: the copy takes about as long as packing it once.
const MIN_SHARED: usize = 3;

/// The facts about a graph that planning starts from.
pub(super) struct Values<'g> {
    pub(super) graph: &'g Graph,
    pub(super) lowerings: Vec<Lowering>,
    roots: Vec<bool>,
    /// The cost of computing each value from stored ones, in units of an addition.
    costs: Vec<u32>,
    /// Where each join finds its arguments.
    parts: FxHashMap<ValueId, Vec<JoinedRuns>>,
}

/// A read of a kernel: of a parameter, or of a root.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Read {
    pub(super) value: ValueId,
    /// Where it reads at each point; `None` for anywhere.
    pub(super) view: Option<View>,
}

/// Where a join finds an argument: its runs begin at an offset in the memory of a value, one pitch after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct JoinedRuns {
    pub(super) source: ValueId,
    pub(super) offset: usize,
    pub(super) pitch: usize,
}

impl<'g> Values<'g> {
    /// Lowers all nodes and decides on the roots.
    pub(super) fn of(graph: &'g Graph) -> Values<'g> {
        let lower = |node: &crate::graph::Node| {
            let args: Vec<_> = node.args.iter().map(|&arg| graph.ty(arg)).collect();
            let mut lowering = node.op.lower(&args, &node.ty);
            if let Lowering::Library(Library::ScatterAdd(scatter)) = &mut lowering {
                scatter.from_zeros = is_zeros(graph, node.args[0]);
            }
            lowering
        };
        let lowerings = graph.nodes().iter().map(lower).collect();
        let (roots, costs) = (vec![false; graph.n_nodes()], vec![0; graph.n_nodes()]);
        let mut values = Values { graph, lowerings, roots, costs, parts: FxHashMap::default() };
        values.mark_by_need();
        values.mark_by_cost();
        values.fix_non_affine();
        values
    }

    pub(super) fn lowering(&self, id: ValueId) -> &Lowering {
        &self.lowerings[id.index()]
    }

    /// The cost of computing a value from stored ones, in units of an addition.
    pub(super) fn cost(&self, id: ValueId) -> u32 {
        self.costs[id.index()]
    }

    pub(super) fn is_root(&self, id: ValueId) -> bool {
        self.roots[id.index()]
    }

    /// The roots, in order.
    pub(super) fn roots(&self) -> impl Iterator<Item = ValueId> {
        self.graph.iter().map(|(id, _)| id).filter(|&id| self.is_root(id))
    }

    /// Whether the value has memory of its own: a root, or a parameter.
    pub(super) fn is_stored(&self, id: ValueId) -> bool {
        self.is_root(id) || matches!(self.lowering(id), Lowering::Parameter)
    }

    /// The value whose dense memory also holds `id`: itself, or the value it is a reshape of.
    pub(super) fn memory_of(&self, mut id: ValueId) -> ValueId {
        while !self.is_stored(id) && matches!(self.lowering(id), Lowering::Movement(Movement::Reshape)) {
            id = self.graph.node(id).args[0];
        }
        id
    }

    /// Marks a value as needed in memory as a whole; of a reshape it is the argument that is needed.
    fn need(&mut self, id: ValueId) {
        let id = self.memory_of(id);
        if !matches!(self.lowering(id), Lowering::Parameter) {
            self.roots[id.index()] = true;
        }
    }

    fn mark_by_need(&mut self) {
        let mut joins = vec![];
        for (id, node) in self.graph.iter() {
            match self.lowering(id) {
                Lowering::Library(Library::Join(_)) => {
                    self.roots[id.index()] = true;
                    joins.push(id);
                }
                Lowering::Library(_) => {
                    self.roots[id.index()] = true;
                    for (position, &arg) in self.library_args(id).iter().enumerate() {
                        if self.reads_strided(id, position) {
                            self.need_strided(arg);
                        } else {
                            self.need(arg);
                        }
                    }
                }
                Lowering::Reduce { .. } => self.roots[id.index()] = true,
                Lowering::Indexed { random, .. } => {
                    for arg in random.clone() {
                        self.need(node.args[arg]);
                    }
                }
                Lowering::Pointwise(_) | Lowering::Movement(_) | Lowering::Parameter => {}
            }
        }
        for &output in self.graph.outputs() {
            self.need(output);
        }
        self.need_parts(&joins);
        self.store_shared_factors();
    }

    /// Marks what joins need in memory, and says where they find it.
    ///
    /// A join reads parts of a larger value where that lies if it takes half of it or more, and if the value has memory
    /// anyway or is read more than once. It is the only step that copies them then. A smaller part would keep the memory of
    /// the value for long. Other parts are computed, if possible in the memory of the result.
    fn need_parts(&mut self, joins: &[ValueId]) {
        if joins.is_empty() {
            return;
        }
        let users = self.users();
        let outputs: FxHashSet<ValueId> = self.graph.outputs().iter().map(|&output| self.memory_of(output)).collect();
        for &join in joins {
            let args = &self.graph.node(join).args;
            let in_place = self.may_be_in_place(join, &outputs);
            let find = |&arg: &ValueId| if in_place { None } else { self.part(join, arg) };
            let found: Vec<Option<JoinedRuns>> = args.iter().map(find).collect();
            let mut n_taken: FxHashMap<ValueId, usize> = FxHashMap::default();
            for (part, &arg) in found.iter().zip(args) {
                if let Some(part) = part {
                    *n_taken.entry(part.source).or_default() += self.graph.ty(arg).n_elements();
                }
            }
            let mut parts = Vec::with_capacity(args.len());
            for (&arg, part) in args.iter().zip(found) {
                let n_elements = |id: ValueId| self.graph.ty(id).n_elements();
                let is_there =
                    |source: ValueId| self.is_stored(source) || users[source.index()].n_read > n_elements(source);
                let is_large = |source: ValueId| n_taken[&source] >= n_elements(source).div_ceil(2);
                let part = part.filter(|part| is_large(part.source) && is_there(part.source));
                let part = part.unwrap_or_else(|| self.whole_part(join, arg));
                self.need(part.source);
                parts.push(part);
            }
            self.parts.insert(join, parts);
        }
    }

    /// Whether all parts of a join may come to be computed in the memory of its result: neither lies in an output.
    fn may_be_in_place(&self, join: ValueId, outputs: &FxHashSet<ValueId>) -> bool {
        let parts = &self.graph.node(join).args;
        let Lowering::Library(Library::Join(Join { outer: 1, .. })) = self.lowering(join) else { return false };
        let mut seen = FxHashSet::default();
        let is_free = |&part: &ValueId| {
            let memory = self.memory_of(part);
            !outputs.contains(&memory) && !matches!(self.lowering(memory), Lowering::Parameter) && seen.insert(memory)
        };
        !outputs.contains(&join) && parts.iter().all(is_free) && slots::begin_lines(self.graph, parts)
    }

    /// An argument of a join that has memory of its own.
    fn whole_part(&self, join: ValueId, arg: ValueId) -> JoinedRuns {
        let pitch = self.graph.ty(arg).shape[self.joined_axis(join)..].iter().product();
        JoinedRuns { source: self.memory_of(arg), offset: 0, pitch }
    }

    fn joined_axis(&self, join: ValueId) -> usize {
        let Op::Concat(concat) = &self.graph.node(join).op else { unreachable!("joins are made by concat") };
        concat.axis
    }

    /// Where a join finds its arguments.
    pub(super) fn parts(&self, join: ValueId) -> &[JoinedRuns] {
        &self.parts[&join]
    }

    /// Where a join would find an argument: in the first value under its movements that is stored and in which it lies in
    /// equal runs, or else in the value under all of them.
    fn part(&self, join: ValueId, arg: ValueId) -> Option<JoinedRuns> {
        let (space, axis) = (&self.graph.ty(arg).shape, self.joined_axis(join));
        let mut view = View::of_axes(0..space.rank(), space.rank());
        let mut id = arg;
        loop {
            let runs = || runs(space, axis, &view.affine(&self.graph.ty(id).shape, space.rank()));
            let Lowering::Movement(movement) = self.lowering(id) else {
                return runs().map(|[offset, pitch]| JoinedRuns { source: id, offset, pitch });
            };
            let source = self.memory_of(id);
            if self.is_stored(source)
                && let Some([offset, pitch]) = runs()
            {
                return Some(JoinedRuns { source, offset, pitch });
            }
            let (node, moved) = (self.graph.node(id), self.graph.node(id).args[0]);
            view = view.through(movement, &self.graph.ty(moved).shape, &node.ty.shape, space)?;
            id = moved;
        }
    }

    /// Stores transposed matrices that many products have on the right: each would transpose it anew while it packs.
    fn store_shared_factors(&mut self) {
        let mut n_products: HashMap<ValueId, usize> = HashMap::new();
        let products = self.graph.iter();
        let products = products.filter(|(id, _)| matches!(self.lowering(*id), Lowering::Library(Library::MatMul(_))));
        for (id, node) in products {
            let factor = node.args[1];
            let is_large = SHARED_FACTOR.contains(&self.graph.ty(factor).n_elements());
            if is_large && self.graph.ty(id).rank() == 2 && matches!(self.graph.node(factor).op, Op::Permute(_)) {
                *n_products.entry(factor).or_default() += 1;
            }
        }
        for (factor, _) in n_products.into_iter().filter(|&(_, n)| n >= MIN_SHARED) {
            self.roots[factor.index()] = true;
        }
    }

    /// Marks what a kernel needs in memory that can read it at any non-negative strides. Returns it if that is new.
    fn need_strided(&mut self, arg: ValueId) -> Option<ValueId> {
        let needed = match self.strided(arg) {
            Ok((base, _)) => base,
            Err(obstacle) => obstacle,
        };
        let memory = self.memory_of(needed);
        let is_new = !self.is_stored(memory);
        self.need(needed);
        is_new.then_some(memory)
    }

    /// Marks what kernels that read through movements need in memory, now that more is there than when they were first
    /// looked at. Returns what is new.
    fn mark_strided(&mut self) -> Vec<ValueId> {
        let args = self.graph.iter().flat_map(|(id, node)| node.args.iter().enumerate().map(move |arg| (id, arg)));
        let args: Vec<ValueId> =
            args.filter(|&(id, (position, _))| self.reads_strided(id, position)).map(|(_, (_, &arg))| arg).collect();
        args.into_iter().filter_map(|arg| self.need_strided(arg)).collect()
    }

    /// Whether a value is made by a kernel that reads the argument at a position through movements, at any strides.
    pub(super) fn reads_strided(&self, id: ValueId, position: usize) -> bool {
        match self.lowering(id) {
            Lowering::Library(Library::MatMul(_)) => true,
            Lowering::Library(Library::Attention(_)) => !ATTENTION_TERMS.contains(&position),
            Lowering::Library(_)
            | Lowering::Pointwise(_)
            | Lowering::Indexed { .. }
            | Lowering::Movement(_)
            | Lowering::Reduce { .. }
            | Lowering::Parameter => false,
        }
    }

    /// The arguments that a library kernel reads from memory.
    pub(super) fn library_args(&self, id: ValueId) -> &'g [ValueId] {
        let args = &self.graph.node(id).args;
        match self.lowering(id) {
            Lowering::Library(Library::ScatterAdd(scatter)) if scatter.from_zeros => &args[1..],
            Lowering::Library(_)
            | Lowering::Pointwise(_)
            | Lowering::Indexed { .. }
            | Lowering::Movement(_)
            | Lowering::Reduce { .. }
            | Lowering::Parameter => args,
        }
    }

    /// Gives memory to a value that readers computed.
    pub(super) fn store(&mut self, id: ValueId) {
        self.roots[id.index()] = true;
    }

    /// Takes the memory of a value that its only reader computes.
    pub(super) fn compute_within(&mut self, id: ValueId) {
        self.roots[id.index()] = false;
    }

    /// The memory under an argument of a product, and where its elements lie there.
    pub(super) fn operand(&self, arg: ValueId) -> (ValueId, Affine) {
        self.strided(arg).unwrap_or_else(|_| {
            let shape = &self.graph.ty(arg).shape;
            (self.memory_of(arg), View::of_axes(0..shape.rank(), shape.rank()).affine(shape, shape.rank()))
        })
    }

    /// The memory under a value whose movements come down to strides, and where its elements lie there.
    ///
    /// # Errors
    ///
    /// Names a value that must be stored before that can be said.
    pub(super) fn strided(&self, arg: ValueId) -> Result<(ValueId, Affine), ValueId> {
        let space = &self.graph.ty(arg).shape;
        let mut view = View::of_axes(0..space.rank(), space.rank());
        let mut id = arg;
        // A value that lies in dense memory already, even as another shape, needs no further view.
        while !self.is_stored(self.memory_of(id))
            && let Lowering::Movement(movement) = self.lowering(id)
        {
            let (node, moved) = (self.graph.node(id), self.graph.node(id).args[0]);
            view = view.through(movement, &self.graph.ty(moved).shape, &node.ty.shape, space).ok_or(moved)?;
            id = moved;
        }
        let base = self.memory_of(id);
        let affine = view.affine(&self.graph.ty(id).shape, space.rank());
        let forward = affine.offset >= 0 && affine.strides.iter().all(|&stride| stride >= 0);
        if forward { Ok((base, affine)) } else { Err(arg) }
    }

    /// Makes roots of what several kernels would compute at a cost, and of what grows too long.
    fn mark_by_cost(&mut self) {
        let (users, graph) = (self.users(), self.graph);
        let mut paths: Vec<RootPath> = Vec::with_capacity(users.len());
        // Unrolled steps repeat their ops.
        let mut known: FxHashMap<(&Op, SmallVec<[&TensorType; 3]>), u32> = FxHashMap::default();
        for (id, node) in graph.iter() {
            let own = match self.lowering(id) {
                Lowering::Pointwise(body) | Lowering::Indexed { body, .. } => {
                    let types = node.args.iter().map(|&arg| graph.ty(arg)).collect();
                    *known.entry((&node.op, types)).or_insert_with(|| self.cost_of(id, body))
                }
                Lowering::Reduce { .. } => 1,
                Lowering::Movement(_) | Lowering::Library(_) | Lowering::Parameter => 0,
            };
            let below = |&arg: &ValueId| if self.is_stored(arg) { 1 } else { self.costs[arg.index()] };
            let cost = node.args.iter().map(below).fold(own, u32::saturating_add);
            self.costs[id.index()] = cost;
            let path = self.path(id, own, &paths);
            let computes = matches!(self.lowering(id), Lowering::Pointwise(_) | Lowering::Indexed { .. });
            let Users { count, spread, moves, n_read } = users[id.index()];
            // Of slices such as halves, all together compute no more elements than there are.
            let is_shared = count > 1 && n_read > node.ty.n_elements();
            let is_dear = cost > CHEAP && (spread || is_shared && !path.is_short(moves));
            if computes && (cost > MAX_COST || is_dear) && !node.args.is_empty() {
                self.need(id);
            }
            paths.push(path);
        }
    }

    /// Whether a broadcast value has so few elements before it is repeated that reading them takes no time beside the others.
    fn repeats_few(&self, id: ValueId) -> bool {
        const TIMES: usize = 16;
        let node = self.graph.node(id);
        self.graph.ty(node.args[0]).n_elements().saturating_mul(TIMES) <= node.ty.n_elements()
    }

    /// The path to a value, whose own work is given, from those to the values before.
    fn path(&self, id: ValueId, own: u32, paths: &[RootPath]) -> RootPath {
        let node = self.graph.node(id);
        let bytes = |id: ValueId| self.graph.ty(id).dtype.size();
        let start_of = |arg: ValueId| {
            if matches!(self.lowering(arg), Lowering::Library(_)) {
                PathStart::Library
            } else if self.is_root(arg) {
                PathStart::Root
            } else {
                PathStart::Other
            }
        };
        let of_arg = |&arg: &ValueId| match self.is_stored(arg) {
            true => RootPath::From { source: arg, work: 0, start: start_of(arg) },
            false => paths[arg.index()],
        };
        match self.lowering(id) {
            Lowering::Pointwise(_) => {}
            Lowering::Movement(Movement::Broadcast) if self.repeats_few(id) => {
                return RootPath::Repeated { work: 0 };
            }
            Lowering::Movement(Movement::Reshape) => {
                return of_arg(&node.args[0]).joined(RootPath::Repeated { work: 0 });
            }
            Lowering::Indexed { .. }
            | Lowering::Movement(_)
            | Lowering::Reduce { .. }
            | Lowering::Library(_)
            | Lowering::Parameter => return RootPath::Tangled,
        }
        let path = node.args.iter().map(of_arg).fold(RootPath::Constant, RootPath::joined).longer(own);
        // Elements that are shorter than those of the root, such as `bool`, take less memory than it.
        let is_narrower = matches!(path, RootPath::From { source, .. } if bytes(id) < bytes(source));
        if is_narrower { RootPath::Tangled } else { path }
    }

    /// The work of computing a value from its arguments.
    pub(super) fn compute_cost(&self, id: ValueId) -> ComputeCost {
        match self.lowering(id) {
            Lowering::Movement(_) | Lowering::Parameter => ComputeCost::Nothing,
            Lowering::Pointwise(body) | Lowering::Indexed { body, .. } => {
                ComputeCost::PerElement(self.cost_of(id, body))
            }
            Lowering::Reduce { .. } => ComputeCost::Reduction,
            Lowering::Library(_) => ComputeCost::Library,
        }
    }

    /// The weight of one op's instructions, counted on a kernel that holds nothing else.
    fn cost_of(&self, id: ValueId, body: &Body) -> u32 {
        let kernel = KernelBuilder::new();
        let args = self.graph.node(id).args.iter().map(|&arg| self.graph.ty(arg)).collect();
        let point = Alone { kernel: &kernel, args };
        body(&point);
        kernel.finish().insts.iter().map(weight).sum()
    }

    /// How many nodes compute with each value, movements seen through.
    fn users(&self) -> Vec<Users> {
        let mut users = vec![Users::default(); self.graph.n_nodes()];
        for (id, node) in self.graph.iter().rev() {
            let through = match self.lowering(id) {
                Lowering::Movement(movement) => {
                    let arg = node.args[0];
                    let repeats = matches!(movement, Movement::Broadcast)
                        && self.graph.ty(arg).n_elements() < node.ty.n_elements();
                    let of_movement = users[id.index()];
                    let moves = matches!(movement, Movement::Permute(_) | Movement::Slice { .. });
                    let (spread, moves) = (repeats || of_movement.spread, moves || of_movement.moves);
                    Some(Users { spread, moves, ..of_movement })
                }
                Lowering::Pointwise(_)
                | Lowering::Indexed { .. }
                | Lowering::Reduce { .. }
                | Lowering::Library(_)
                | Lowering::Parameter => None,
            };
            for &arg in &node.args {
                let of_arg = &mut users[arg.index()];
                match through {
                    Some(through) => {
                        of_arg.count += through.count;
                        of_arg.spread |= through.spread;
                        of_arg.moves |= through.moves;
                        of_arg.n_read = of_arg.n_read.saturating_add(through.n_read);
                    }
                    None => {
                        of_arg.count += 1;
                        of_arg.moves |= matches!(self.lowering(id), Lowering::Indexed { .. });
                        of_arg.n_read = of_arg.n_read.saturating_add(self.graph.ty(arg).n_elements());
                    }
                }
            }
        }
        users
    }

    /// Makes roots of the inputs of reshapes that no affine view can follow, and of operands of products that lost their
    /// strided view.
    fn fix_non_affine(&mut self) {
        let mut unseen: Vec<ValueId> = self.roots().collect();
        while !unseen.is_empty() {
            while let Some(root) = unseen.pop() {
                for value in self.broken_views(root) {
                    if !self.is_root(value) {
                        self.roots[value.index()] = true;
                        unseen.push(value);
                    }
                }
            }
            // Each new root may stand in the way of a product's view that was whole before.
            unseen = self.mark_strided();
        }
    }

    /// The values that a root's kernel reads through a reshape that no affine view can follow.
    pub(super) fn broken_views(&self, root: ValueId) -> Vec<ValueId> {
        let mut broken = vec![];
        let space = self.space(root);
        for (value, view) in self.starts(root, &space) {
            self.follow(value, &view, &space, &mut |_| {}, &mut |value| broken.push(value));
        }
        broken
    }

    /// The extents of the iteration space of a root's kernel.
    pub(super) fn space(&self, root: ValueId) -> Vec<usize> {
        match self.lowering(root) {
            Lowering::Reduce { .. } => self.graph.ty(self.graph.node(root).args[0]).shape.to_vec(),
            Lowering::Pointwise(_)
            | Lowering::Indexed { .. }
            | Lowering::Movement(_)
            | Lowering::Library(_)
            | Lowering::Parameter => self.graph.ty(root).shape.to_vec(),
        }
    }

    /// The axes that a root's kernel folds over.
    pub(super) fn folded(&self, root: ValueId) -> &[usize] {
        match self.lowering(root) {
            Lowering::Reduce { axes, .. } => axes,
            Lowering::Pointwise(_)
            | Lowering::Indexed { .. }
            | Lowering::Movement(_)
            | Lowering::Library(_)
            | Lowering::Parameter => &[],
        }
    }

    /// The first reads of a root's kernel, seen from the iteration space.
    fn starts(&self, root: ValueId, space: &[usize]) -> Vec<(ValueId, View)> {
        let identity = View::of_axes(0..space.len(), space.len());
        self.steps_from(root, &identity, space).into_iter().flatten().collect()
    }

    /// The arguments that computing `id` at `view` reads pointwise; `None` stands for one behind a broken reshape.
    pub(super) fn steps_from(&self, id: ValueId, view: &View, space: &[usize]) -> Vec<Option<(ValueId, View)>> {
        let node = self.graph.node(id);
        let same = |&arg: &ValueId| Some((arg, view.clone()));
        match self.lowering(id) {
            Lowering::Pointwise(_) | Lowering::Reduce { .. } => node.args.iter().map(same).collect(),
            Lowering::Indexed { random, .. } => {
                let pointwise = node.args.iter().enumerate().filter(|(arg, _)| !random.contains(arg));
                pointwise.map(|(_, arg)| same(arg)).collect()
            }
            Lowering::Movement(movement) => {
                let from = &self.graph.ty(node.args[0]).shape;
                let through = view.through(movement, from, &node.ty.shape, space);
                vec![through.map(|view| (node.args[0], view))]
            }
            Lowering::Library(_) | Lowering::Parameter => vec![],
        }
    }

    /// Visits what computing `id` at `view` reads from memory, and each reshape whose argument must come to be there.
    fn follow(
        &self,
        id: ValueId,
        view: &View,
        space: &[usize],
        read: &mut dyn FnMut(Read),
        broken: &mut dyn FnMut(ValueId),
    ) {
        if self.is_stored(id) {
            return read(Read { value: id, view: Some(view.clone()) });
        }
        self.follow_random(id, read);
        for step in self.steps_from(id, view, space) {
            match step {
                Some((arg, view)) => self.follow(arg, &view, space, read, broken),
                None => {
                    let arg = self.memory_of(self.graph.node(id).args[0]);
                    if self.is_stored(arg) {
                        read(Read { value: arg, view: None });
                    } else {
                        broken(arg);
                    }
                }
            }
        }
    }

    /// Visits what an op reads at computed coordinates.
    fn follow_random(&self, id: ValueId, read: &mut dyn FnMut(Read)) {
        if let Lowering::Indexed { random, .. } = self.lowering(id) {
            for &arg in random {
                let value = self.memory_of(self.graph.node(id).args[arg]);
                read(Read { value, view: None });
            }
        }
    }

    /// The reads of a root's kernel from memory, other than the root itself.
    pub(super) fn reads(&self, root: ValueId) -> Vec<Read> {
        let space = self.space(root);
        let mut reads: Vec<Read> = vec![];
        let mut collect = |read: Read| {
            if !reads.contains(&read) {
                reads.push(read);
            }
        };
        self.follow_random(root, &mut collect);
        for (value, view) in self.starts(root, &space) {
            self.follow(value, &view, &space, &mut collect, &mut |_| {});
        }
        reads
    }
}

/// The offset of the first of the equal runs that the elements of a value lie in, one for each position before an axis, and
/// the distance between two; `None` if they lie in no such runs.
fn runs(shape: &[usize], axis: usize, at: &Affine) -> Option<[usize; 2]> {
    if shape.contains(&0) {
        return Some([0, 0]);
    }
    // The distance between the elements of a merged axis, and of how many.
    let merged = |axes: Range<usize>| {
        let axes = axes.rev().map(|axis| (at.strides[axis], shape[axis] as i64)).filter(|&(_, extent)| extent > 1);
        axes.map(Some).reduce(|inner, outer| {
            let ((near, n), (far, more)) = (inner?, outer?);
            (far == near * n).then_some((near, n * more))
        })
    };
    let run = match merged(axis..shape.len()) {
        None => 1,
        Some(Some((1, n))) => n as usize,
        Some(_) => return None,
    };
    let pitch = match merged(0..axis) {
        None => run,
        Some(distance) => usize::try_from(distance?.0).ok()?,
    };
    Some([usize::try_from(at.offset).ok()?, pitch])
}

/// Whether a value is +0 everywhere, by its op.
fn is_zeros(graph: &Graph, id: ValueId) -> bool {
    matches!(&graph.node(id).op, Op::Splat(splat) if splat.value.bits == 0)
}

/// The users of a value.
#[derive(Clone, Copy, Debug, Default)]
struct Users {
    count: u32,
    /// Whether one of them reads each element several times.
    spread: bool,
    /// Whether one of them reads elements in another order, or some of them.
    moves: bool,
    /// The elements that all of them read.
    n_read: usize,
}

/// A point at which one op is computed on its own, from single elements.
struct Alone<'k, 'g> {
    kernel: &'k KernelBuilder,
    args: SmallVec<[&'g TensorType; 3]>,
}

impl<'k> Point<'k> for Alone<'k, '_> {
    fn arg(&self, arg: usize) -> Value<'k> {
        let param = self.kernel.param(self.args[arg].dtype, arg + 1, false);
        self.kernel.load(param, Affine { offset: arg as i64, strides: SmallVec::new() })
    }

    fn index(&self, _: usize) -> Value<'k> {
        self.kernel.constant(0_i64.into())
    }

    fn at(&self, arg: usize, _: &[Value<'k>]) -> Value<'k> {
        self.arg(arg)
    }

    fn constant(&self, value: Scalar) -> Value<'k> {
        self.kernel.constant(value)
    }
}

/// The cost of an instruction, in units of an addition.
fn weight<V>(inst: &Inst<V>) -> u32 {
    match inst {
        Inst::Const(_) | Inst::Load(..) | Inst::Index(_) => 0,
        Inst::Call1(..) => 16,
        Inst::Call2(..) => 32,
        Inst::Binary(Binary::Div | Binary::Rem, ..) | Inst::Unary(Unary::Sqrt, _) => 4,
        Inst::LoadAt(..) => 2,
        Inst::Unary(..)
        | Inst::Binary(..)
        | Inst::Compare(..)
        | Inst::Select(..)
        | Inst::Fma(..)
        | Inst::Cast(..)
        | Inst::Bitcast(..)
        | Inst::Reduce(..) => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which values are roots, of a program whose value 3 is a repeated element for each row, and 4 and 5 are formulas.
    fn stored(source: &str, formula: &str, users: &str) -> Vec<usize> {
        let text = format!(
            "graph (%0: f32[64, 256], %1: f32[64, 1], %2: f32[64, 256]) {{
               %3 = broadcast_to %1 {{shape=[64, 256]}} : f32[64, 256]
               %4 = {source} : f32[64, 256]
               %5 = {formula} : f32[64, 256]
               {users}
             }}"
        );
        let graph: Graph = text.parse().unwrap_or_else(|e| panic!("{e} in\n{text}"));
        let values = Values::of(&graph);
        values.roots().map(ValueId::index).collect()
    }

    /// Two sums of squares along different axes.
    const SUMS: &str = "%6 = mul %5, %5 : f32[64, 256]
         %7 = reduce_sum %6 {axes=[0]} : f32[256]
         %8 = reduce_sum %5 {axes=[1]} : f32[64]
         return %7, %8";

    #[test]
    fn formulas_of_one_value_and_few_others_are_computed_again() {
        assert_eq!(stored("add %0, %3", "mul %4, %3", SUMS), [7, 8], "of a parameter");
        assert_eq!(stored("mul %0, %2", "mul %4, %3", SUMS), [5, 7, 8], "of two");
        // An exponential of repeated elements would be computed for each element of the array, by each user.
        assert_eq!(stored("exp %3", "mul %4, %0", SUMS), [5, 7, 8]);
    }

    #[test]
    fn formulas_that_are_read_in_another_order_are_stored() {
        let turned = "%6 = permute %5 {perm=[1, 0]} : f32[256, 64]
             %7 = reduce_sum %6 {axes=[0]} : f32[64]
             %8 = reduce_sum %5 {axes=[0]} : f32[256]
             return %7, %8";
        assert_eq!(stored("add %0, %3", "mul %4, %3", turned), [5, 7, 8]);
        let part = turned.replace(
            "permute %5 {perm=[1, 0]} : f32[256, 64]",
            "slice %5 {start=[0, 0], step=[1, 1], shape=[63, 256]} : f32[63, 256]",
        );
        let part = part.replace("f32[64]", "f32[256]");
        assert_eq!(stored("add %0, %3", "mul %4, %3", &part), [5, 7, 8]);
    }

    /// An epilogue computes a formula of a product where the product would be.
    #[test]
    fn formulas_of_products_are_stored() {
        let text = "graph (%0: f32[64, 64], %1: f32[64, 256], %2: f32[256]) {
               %3 = matmul %0, %1 : f32[64, 256]
               %4 = broadcast_to %2 {shape=[64, 256]} : f32[64, 256]
               %5 = add %3, %4 : f32[64, 256]
               %6 = reduce_sum %5 {axes=[0]} : f32[256]
               %7 = reduce_sum %5 {axes=[1]} : f32[64]
               return %6, %7
             }";
        let graph: Graph = text.parse().unwrap();
        assert_eq!(Values::of(&graph).roots().map(ValueId::index).collect::<Vec<_>>(), [3, 5, 6, 7]);
    }
}
