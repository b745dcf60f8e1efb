//! The place of every value, given the order of the steps: an input, an output, or bytes of the arena.
//!
//! A result may take the bytes of a value that dies in its step, if the step reads each element just where it writes it.
//! An accumulator that nobody needs lies where its epilogue writes, so that a block of a product is written over while it
//! is in cache, and elsewhere only if that could be memory that a call gives away. A large value that an output is
//! made from, element by element, lies where the output will, so that memory is moved once. Parts of a joined value are
//! written where they belong in it, unless the arena would grow for it.

use std::collections::HashMap;
use std::ops::Range;

use retape_kernels::{BufferType, Operand, Place, Plan, Step, Work};
use smallvec::SmallVec;

use super::join::{Joined, Joins};
use super::slots::{Slots, n_bytes};
use super::values::Values;
use super::{Layout, StepValues, UnplacedStep, donate, lower};
use crate::graph::Graph;
use crate::types::{ValueId, ValueTable};

/// The plan of some steps, and what they are in the graph.
pub(super) fn place(values: &Values<'_>, steps: Vec<UnplacedStep>) -> (Plan, Layout) {
    let graph = values.graph;
    let mut placing = Placing::new(values);
    let copies = placing.inputs_and_outputs(values);
    for (index, step) in steps.iter().enumerate() {
        step.reads.iter().for_each(|&value| placing.last_use.insert(value, index));
    }
    placing.begin_outputs(&steps);
    let joins = Joins::find(graph, &steps, &|value| placing.places.contains(value));
    if joins.joins.is_empty() {
        return placing.finish(values, steps, copies);
    }
    let separate = placing.clone().finish(values, steps.clone(), copies.clone());
    placing.join(joins);
    let joined = placing.finish(values, steps, copies);
    if joined.0.arena_bytes <= separate.0.arena_bytes { joined } else { separate }
}

/// The places of values, and the steps that know theirs.
#[derive(Clone)]
struct Placing<'g> {
    graph: &'g Graph,
    places: ValueTable<Place>,
    /// The last step that reads each value.
    last_use: ValueTable<usize>,
    joins: Joins,
    /// The placed step that writes each value.
    written_by: ValueTable<usize>,
    slots: Slots,
    steps: Vec<Step>,
    layout: Layout,
}

impl<'g> Placing<'g> {
    fn new(values: &Values<'g>) -> Placing<'g> {
        Placing {
            graph: values.graph,
            places: ValueTable::with_capacity(values.graph.n_nodes()),
            last_use: ValueTable::with_capacity(values.graph.n_nodes()),
            joins: Joins::default(),
            written_by: ValueTable::with_capacity(values.graph.n_nodes()),
            slots: Slots::default(),
            steps: vec![],
            layout: Layout::default(),
        }
    }

    /// Writes the parts of these joins where they belong. A joined value is used as long as any part of it.
    fn join(&mut self, joins: Joins) {
        for Joined { whole, parts } in &joins.joins {
            let last = parts.iter().chain([whole]).filter_map(|&value| self.last_use.get(value)).max();
            let last = *last.expect("a join reads its parts");
            self.last_use.insert(*whole, last);
        }
        self.joins = joins;
    }

    /// The plan of the steps, and the copies of memory that make further outputs.
    fn finish(mut self, values: &Values<'_>, steps: Vec<UnplacedStep>, copies: Vec<(ValueId, u32)>) -> (Plan, Layout) {
        let graph = self.graph;
        for (index, step) in steps.into_iter().enumerate() {
            match self.joins.of_step(&step).cloned() {
                Some(join) => self.add_joined(join, &step),
                None => self.add(index, step),
            }
        }
        for (memory, index) in copies {
            self.copy(lower::copy(values, memory), memory, Place::Output(index));
        }
        let Placing { slots, steps, mut layout, .. } = self;
        layout.unshared_bytes = slots.n_unshared_bytes();
        let buffer = |&id: &ValueId| BufferType { dtype: graph.ty(id).dtype, len: graph.ty(id).n_elements() };
        let mut plan = Plan {
            inputs: graph.params().iter().map(buffer).collect(),
            outputs: graph.outputs().iter().map(buffer).collect(),
            arena_bytes: slots.n_bytes(),
            steps,
            donations: vec![],
        };
        plan.donations = donate::donations(graph, &plan);
        (plan, layout)
    }

    /// Places what the caller gives and gets. Returns the memory that outputs are copies of.
    fn inputs_and_outputs(&mut self, values: &Values<'_>) -> Vec<(ValueId, u32)> {
        for (&id, index) in self.graph.params().iter().zip(0..) {
            self.places.insert(id, Place::Input(index));
        }
        let mut copies = vec![];
        for (&output, index) in self.graph.outputs().iter().zip(0..) {
            let memory = values.memory_of(output);
            match self.places.contains(memory) {
                true => copies.push((memory, index)),
                false => {
                    self.places.insert(memory, Place::Output(index));
                }
            }
        }
        copies
    }

    /// Places large values that an output is written over, and those that they are written over, where the output lies.
    fn begin_outputs(&mut self, steps: &[UnplacedStep]) {
        /// Bytes of a value that is worth it.
        const LARGE: usize = 1 << 16;
        let mut made_in = ValueTable::with_capacity(self.graph.n_nodes());
        for (index, step) in steps.iter().enumerate() {
            step.writes.iter().for_each(|&value| made_in.insert(value, index));
        }
        let given = self.last_reads_of_inputs();
        // Where a step has an accumulator, that lies where its epilogue writes.
        let plain = |(_, step): &(usize, &UnplacedStep)| step.work.accumulator().is_none();
        for (index, step) in steps.iter().enumerate().rev().filter(plain) {
            for (position, &write) in step.writes.iter().enumerate() {
                let ty = self.graph.ty(write);
                let Some(&place @ Place::Output(_)) = self.places.get(write) else { continue };
                if n_bytes(self.graph, write) < LARGE {
                    continue;
                }
                let inputs = given.get(&n_bytes(self.graph, write)).map_or(&[][..], Vec::as_slice);
                let begins = |&value: &ValueId| {
                    // An output has one type.
                    let is_alike = self.graph.ty(value).dtype == ty.dtype;
                    let dies = !self.places.contains(value) && self.last_use[value] == index;
                    let from = made_in.get(value).filter(|_| is_alike && dies);
                    from.is_some_and(|&from| keeps_donations(&steps[from], value, from..index, inputs))
                };
                if let Some(value) = in_place(step, position).find(begins) {
                    self.places.insert(value, place);
                }
            }
        }
    }

    /// The steps that read inputs last, and the inputs, by their bytes and in order: until then, no output may be written
    /// over an argument.
    fn last_reads_of_inputs(&self) -> HashMap<usize, Vec<(usize, ValueId)>> {
        let mut reads: HashMap<usize, Vec<(usize, ValueId)>> = HashMap::new();
        for &input in self.graph.params() {
            if let Some(&last) = self.last_use.get(input) {
                reads.entry(n_bytes(self.graph, input)).or_default().push((last, input));
            }
        }
        reads.values_mut().for_each(|reads| reads.sort_unstable());
        reads
    }

    /// Leaves out the step of a join: the step that writes the last part makes the whole.
    fn add_joined(&mut self, join: Joined, step: &UnplacedStep) {
        let last = join.parts.iter().map(|&part| self.written_by[part]).max().expect("a join has parts");
        self.layout.steps[last].roots.extend(&step.roots);
        self.layout.joined.push((last, join));
        let label = &mut self.steps[last].label;
        label.push('+');
        label.push_str(&step.label);
    }

    /// Places a joined value and all its parts, if `part` is the first of them.
    fn place_parts(&mut self, part: ValueId) {
        let Some(Joined { whole, parts }) = self.joins.of_part(part) else { return };
        if self.places.contains(part) {
            return;
        }
        self.slots.take(*whole, n_bytes(self.graph, *whole));
        let mut offset = self.slots.offset(*whole).expect("just placed");
        self.places.insert(*whole, Place::Slot { offset });
        for &part in parts {
            let n_bytes = n_bytes(self.graph, part);
            self.places.insert(part, Place::Slot { offset });
            self.slots.count_shared(n_bytes);
            // An arena that cannot be counted is refused.
            offset = offset.saturating_add(n_bytes);
        }
    }

    /// The value whose slot a value lies in.
    fn holder(&self, value: ValueId) -> ValueId {
        self.joins.of_part(value).map_or(value, |join| join.whole)
    }

    /// Places what a step writes, and the step.
    fn add(&mut self, index: usize, step: UnplacedStep) {
        let shares = self.shares_with_accumulator(index, &step);
        for (position, &write) in step.writes.iter().enumerate() {
            self.place_parts(write);
            self.written_by.insert(write, self.steps.len());
            if self.places.contains(write) {
                continue;
            }
            if let Some(shared) = shares.filter(|_| is_passing(&step, position)) {
                self.places.insert(write, self.places[shared]);
            } else {
                self.place_write(index, &step, position, shares == Some(write));
            }
        }
        let operand = |(&value, ty): (&ValueId, &BufferType)| Operand {
            len: ty.len,
            ..operand_at(self.graph, value, self.places[value])
        };
        // A strided library call may need less than all of what it reads.
        let (types, _) = step.work.signature();
        let operands = step.reads.iter().chain(&step.writes).zip(&types).map(operand).collect();
        let meaningful = step.reads.iter().chain(&step.writes).copied().take(step.work.n_meaningful()).collect();
        self.layout.steps.push(StepValues { roots: step.roots, operands: meaningful });
        self.steps.push(Step { work: step.work, operands, label: step.label });
        for &value in &step.reads {
            let holder = self.holder(value);
            if self.last_use[holder] == index {
                self.slots.free(holder);
            }
        }
        // A written value that no step reads frees its slot at once.
        let unread = step.writes.iter().filter(|&&value| !self.last_use.contains(value));
        unread.for_each(|&value| self.slots.free(value));
    }

    /// Whether no step after this one reads a value, which can be written over where this one reads it: no part of it is
    /// read beside it.
    fn dies(&self, index: usize, step: &UnplacedStep, value: ValueId) -> bool {
        let is_read_in_part = || step.reads.iter().any(|&read| read != value && self.holder(read) == value);
        self.last_use[value] == index && !is_read_in_part()
    }

    /// Gives a write a slot: that of a value that dies here, unless it is to be its `own`.
    fn place_write(&mut self, index: usize, step: &UnplacedStep, position: usize, own: bool) {
        let (write, n_bytes) = (step.writes[position], n_bytes(self.graph, step.writes[position]));
        let takes_over = |read: ValueId| self.dies(index, step, read) && self.slots.hand_over(read, write, n_bytes);
        let reused = !own && in_place(step, position).any(takes_over);
        let slots = &mut self.slots;
        if !reused {
            slots.take(write, n_bytes);
        }
        let offset = slots.offset(write).expect("just placed");
        self.places.insert(write, Place::Slot { offset });
    }

    /// The written value whose memory the accumulator of a step passes through, if nobody else needs it.
    fn shares_with_accumulator(&self, index: usize, step: &UnplacedStep) -> Option<ValueId> {
        let accumulator = step.work.accumulator().filter(|_| is_passing(step, step.writes.len() - 1))?;
        let n_reads = step.reads.len();
        // The memory of an argument must not be written before the epilogue reads it there.
        let may_be_given = |position: usize| {
            let given = |read: ValueId| {
                matches!(self.places[read], Place::Input(_))
                    && self.last_use[read] == index
                    && n_bytes(self.graph, read) >= donate::MIN_BYTES
            };
            let is_output = matches!(self.places.get(step.writes[position]), Some(Place::Output(_)));
            is_output && in_place(step, position).any(given)
        };
        let (types, _) = step.work.signature();
        let fits = |&position: &usize| {
            let written = n_reads + position;
            // An output has one type.
            types[accumulator] == types[written]
                && step.work.works_in_place(accumulator, written)
                && !may_be_given(position)
        };
        (0..step.writes.len() - 1).find(fits).map(|position| step.writes[position])
    }

    /// Adds a step that copies a value.
    fn copy(&mut self, kernel: retape_kernels::ir::Kernel, value: ValueId, to: Place) {
        let operands = [self.places[value], to].map(|place| operand_at(self.graph, value, place));
        let operands = SmallVec::from_iter(operands);
        self.steps.push(Step { work: Work::Kernel(kernel), operands, label: "copy".to_owned() });
        self.layout.steps.push(StepValues { roots: vec![], operands: vec![value; 2] });
    }
}

/// Whether a value that is written from the first of some steps on, where the output of the last one will lie, lets
/// arguments be written over by that output as before: none of them is read last in these steps, or only where the value
/// is written. `inputs` are those of its size and the steps that read them last, in order.
fn keeps_donations(first: &UnplacedStep, value: ValueId, steps: Range<usize>, inputs: &[(usize, ValueId)]) -> bool {
    let position = first.writes.iter().position(|&write| write == value);
    let is_over = |input| position.is_some_and(|at| in_place(first, at).any(|read| read == input));
    let begin = inputs.partition_point(|&(last, _)| last < steps.start);
    let until = inputs[begin..].iter().take_while(|&&(last, _)| last <= steps.end);
    until.copied().all(|(last, input)| last == steps.start && is_over(input))
}

/// Whether a write is an accumulator that nobody needs.
fn is_passing(step: &UnplacedStep, position: usize) -> bool {
    step.reads.len() + position >= step.work.n_meaningful()
}

fn operand_at(graph: &Graph, value: ValueId, place: Place) -> Operand {
    Operand { place, dtype: graph.ty(value).dtype, len: graph.ty(value).n_elements() }
}

/// The values whose bytes the write at `position` may take: the step reads each element just where it writes it, and
/// nothing else of it.
fn in_place(step: &UnplacedStep, position: usize) -> impl Iterator<Item = ValueId> {
    let written = step.reads.len() + position;
    // Once for all reads: a join may have thousands.
    let (types, _) = step.work.signature();
    let fits = move |read: usize| reads_in_place(&step.work, &types, read, written);
    let reads = || step.reads.iter().copied().enumerate();
    let all_fit = move |&(read, id): &(usize, ValueId)| {
        fits(read) && reads().filter(|&(_, other)| other == id).all(|(read, _)| fits(read))
    };
    reads().filter(all_fit).map(|(_, id)| id)
}

/// Whether operand `read` is as long as `written` and may lie where that does.
fn reads_in_place(work: &Work, types: &[BufferType], read: usize, written: usize) -> bool {
    let (from, to) = (types[read], types[written]);
    from.dtype.size() == to.dtype.size() && from.len == to.len && work.works_in_place(read, written)
}
