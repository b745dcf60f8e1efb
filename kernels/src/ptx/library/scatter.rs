//! Scatter-add without atomics: every element of the result has one thread, which adds its updates in the order of
//! their indices.
//!
//! Few indices are all read by each thread. Many are sorted first, stably and by destination; the entries of a
//! destination then lie side by side, from a start that is found by bisection.
//!
//! Where the order is left open, many updates of `f32` and `f64` are added by atomic operations instead: a thread for
//! each update, and no sorting.

use retape_runtime::DType;

use super::entry::{EntryForm, Keys, MAX_PACKED, destination, load_index};
use super::sort::{Goal, Sorter, bisect};
use super::{BLOCK, KernelWriter, NumberType, aligned, blocks};
use crate::library::ScatterAdd;
use crate::ptx::{Argument, Class, Launch, Launches, Reg, Target, ptx};

/// So few indices are read by each thread.
const FEW: usize = 32;
/// Updates that are read ahead, as long as there are so many.
const AHEAD: [usize; 3] = [16, 4, 1];

/// Where the entries of a destination start.
const START: NumberType = NumberType(DType::U32);

/// The launches of [`ScatterAdd`].
pub(in crate::ptx) fn scatter_add(kernel: &ScatterAdd, target: Target) -> Launches {
    let emit = ScatterEmitter { kernel, target, number: NumberType::of(kernel.dtype) };
    let ScatterAdd { outer, len, inner, n_indices, along, .. } = *kernel;
    if outer * len * inner == 0 {
        return Launches::default();
    }
    let first = usize::from(!kernel.from_zeros);
    let [indices, updates, out] = [first, first + 1, first + 2].map(Argument::Operand);
    // Zeros are not read.
    let base = if kernel.from_zeros { out } else { Argument::Operand(0) };
    let is_atomic = target.nondeterministic && matches!(kernel.dtype, DType::F32 | DType::F64);
    if n_indices > FEW && is_atomic {
        let operands = [base, indices, updates, out];
        return Launches { launches: vec![emit.copy(&operands), emit.add_atomically(&operands)], scratch: 0 };
    }
    let sortable = n_indices < MAX_PACKED && len < MAX_PACKED;
    if n_indices <= FEW || !sortable {
        return Launches { launches: vec![emit.few(&[base, indices, updates, out])], scratch: 0 };
    }
    let (lines, index_inner) = if along { (outer * inner, inner) } else { (1, 1) };
    let keys = Keys::Indices(kernel.index_dtype, index_inner, len);
    let (mut launches, bytes) =
        Sorter { keys, lines, len: n_indices, kept: n_indices, target }.launches(indices, Goal::Entries);
    let (entries, starts) = (Argument::Scratch(0), Argument::Scratch(bytes));
    launches.push(emit.starts(lines, &[entries, starts]));
    launches.push(emit.add(&[base, entries, updates, out, starts]));
    Launches { launches, scratch: bytes + aligned(lines * (len + 1) * START.size()) }
}

struct ScatterEmitter<'k> {
    kernel: &'k ScatterAdd,
    target: Target,
    number: NumberType,
}

/// The place of an element of the result.
struct ResultIndex {
    outer: Reg,
    row: Reg,
    column: Reg,
}

impl ScatterEmitter<'_> {
    fn code(&self, name: &str, n_params: usize) -> KernelWriter {
        let ScatterAdd { outer, len, inner, n_indices, .. } = *self.kernel;
        let largest = (outer * (len + 1) * inner).max(outer * n_indices * inner).max(n_indices + AHEAD[0]);
        KernelWriter::new(name, self.target, BLOCK, n_params, largest.saturating_add(BLOCK as usize))
    }

    /// Runs code for each element of the result with its place and a copy of the base, and stores the latter.
    fn each_element(&self, c: &mut KernelWriter, body: impl FnOnce(&mut KernelWriter, ResultIndex, Reg)) -> usize {
        let ScatterAdd { outer, len, inner, from_zeros, .. } = *self.kernel;
        let items = outer * len * inner;
        let (base, out) = (c.param(0), c.param(3));
        let item = c.global_thread(BLOCK);
        let exists = c.test("lt", item, items);
        c.if_then(exists, |c| {
            let (at, column) = c.div_rem(item, inner);
            let (outer, row) = c.div_rem(at, len);
            let sum = if from_zeros {
                c.constant(self.number.small(0))
            } else {
                let from = c.at(base, item, self.number.size());
                c.load(self.number, from, 0)
            };
            body(c, ResultIndex { outer, row, column }, sum);
            let to = c.at(out, item, self.number.size());
            c.store(self.number, to, 0, sum);
        });
        blocks(items)
    }

    /// The element of updates, or of indices along the axis, that index `k` stands for.
    fn element(&self, c: &mut KernelWriter, place: &ResultIndex, k: Reg) -> Reg {
        let row = c.mad(place.outer, self.kernel.n_indices, k);
        c.mad(row, self.kernel.inner, place.column)
    }

    /// Each thread reads all indices.
    fn few(&self, arguments: &[Argument]) -> Launch {
        let mut c = self.code("scatter_few", arguments.len());
        let blocks = self.each_element(&mut c, |c, place, sum| {
            let (indices, updates) = (c.param(1), c.param(2));
            let own = c.long(place.row);
            let start = c.number(0);
            c.count(start, self.kernel.n_indices, 1, |c, k| {
                let element = self.element(c, &place, k);
                let index =
                    load_index(c, self.kernel.index_dtype, indices, if self.kernel.along { element } else { k });
                let (row, exists) = destination(c, index, self.kernel.len);
                let own = c.test("eq", row, own);
                let own = c.and(own, exists);
                c.if_then(own, |c| {
                    let from = c.at(updates, element, self.number.size());
                    let update = c.load(self.number, from, 0);
                    let next = c.plus(self.number, sum, update);
                    c.set(sum, next);
                });
            });
        });
        c.launch(blocks, BLOCK, arguments)
    }

    /// The base, for atomic operations to add to.
    fn copy(&self, arguments: &[Argument]) -> Launch {
        let mut c = self.code("scatter_base", arguments.len());
        let blocks = self.each_element(&mut c, |_, _, _| {});
        c.launch(blocks, BLOCK, arguments)
    }

    /// Each thread adds one update to its destination; which comes first is left to the device. Sums of `f32` that are
    /// subnormal become zero there, and so do such terms.
    fn add_atomically(&self, arguments: &[Argument]) -> Launch {
        let ScatterAdd { outer, len, inner, n_indices, index_dtype, along, .. } = *self.kernel;
        let mut c = self.code("scatter_atomic", arguments.len());
        let [indices, updates, out] = [1, 2, 3].map(|n| c.param(n));
        let items = outer * n_indices * inner;
        let element = c.global_thread(BLOCK);
        let exists = c.test("lt", element, items);
        c.if_then(exists, |c| {
            let (at, column) = c.div_rem(element, inner);
            let (outer, k) = c.div_rem(at, n_indices);
            let index = load_index(c, index_dtype, indices, if along { element } else { k });
            let (row, exists) = destination(c, index, len);
            c.if_then(exists, |c| {
                let from = c.at(updates, element, self.number.size());
                let update = c.load(self.number, from, 0);
                let row = if c.position == Class::B32 { c.low(row) } else { row };
                let to = c.mad(outer, len, row);
                let to = c.mad(to, inner, column);
                let to = c.at(out, to, self.number.size());
                ptx!(c, "red.global.add.{} [{to}], {update}", self.number.0);
            });
        });
        c.launch(blocks(items), BLOCK, arguments)
    }

    /// Where the entries of each destination of each line start, and where the last end: `[lines, len + 1]`.
    fn starts(&self, lines: usize, arguments: &[Argument]) -> Launch {
        let (len, n_indices) = (self.kernel.len, self.kernel.n_indices);
        let mut c = self.code("scatter_starts", arguments.len());
        let (entries, starts) = (c.param(0), c.param(1));
        let item = c.global_thread(BLOCK);
        let exists = c.test("lt", item, lines * (len + 1));
        c.if_then(exists, |c| {
            let (line, row) = c.div_rem(item, len + 1);
            let first = c.mul(line, n_indices);
            let row = c.long(row);
            let key = c.shl(row, 32);
            let (low, high) = (c.number(0), c.number(n_indices));
            let start = bisect(c, low, high, |c, middle| {
                let slot = c.add(first, middle);
                let from = c.at(entries, slot, EntryForm::Packed.size());
                let entry = c.op(Class::B64, "ld.global.b64", format_args!("[{from}]"));
                c.test("lt", entry, key)
            });
            let start = c.low(start);
            let to = c.at(starts, item, START.size());
            c.store(START, to, 0, start);
        });
        c.launch(blocks(lines * (len + 1)), BLOCK, arguments)
    }

    /// Each thread adds the updates of its destination.
    fn add(&self, arguments: &[Argument]) -> Launch {
        let mut c = self.code("scatter_add", arguments.len());
        let blocks = self.each_element(&mut c, |c, place, sum| {
            let [entries, updates, starts] = [1, 2, 4].map(|n| c.param(n));
            let line = match self.kernel.along {
                true => c.mad(place.outer, self.kernel.inner, place.column),
                false => c.number(0),
            };
            let from = c.mad(line, self.kernel.len + 1, place.row);
            let from = c.at(starts, from, START.size());
            let [slot, end] = [0, START.size()].map(|offset| {
                let number = c.load(START, from, offset);
                c.widen(number)
            });
            let first = c.mul(line, self.kernel.n_indices);
            let run = |c: &mut KernelWriter, slot: Reg, n: usize| {
                let elements: Vec<Reg> = (0..n)
                    .map(|n| {
                        let slot = c.add(slot, n);
                        let slot = c.add(first, slot);
                        let from = c.at(entries, slot, EntryForm::Packed.size());
                        // The position is the low half of an entry.
                        let k = c.load(START, from, 0);
                        let k = c.widen(k);
                        self.element(c, &place, k)
                    })
                    .collect();
                let terms: Vec<Reg> = elements
                    .into_iter()
                    .map(|element| {
                        let from = c.at(updates, element, self.number.size());
                        c.load(self.number, from, 0)
                    })
                    .collect();
                for term in terms {
                    let next = c.plus(self.number, sum, term);
                    c.set(sum, next);
                }
            };
            for ahead in AHEAD {
                let count = c.sub(end, slot);
                let rest = c.and(count, ahead - 1);
                let whole = c.sub(end, rest);
                c.count(slot, whole, ahead, |c, slot| run(c, slot, ahead));
                c.set(slot, whole);
            }
        });
        c.launch(blocks, BLOCK, arguments)
    }
}
