//! Short rows whose elements are those of other short rows in another order, or constants: vectors of results are permutations
//! of vectors in memory.
//!
//! Written out, such rows are a store for each element. Columns of what is read would become vectors, and these rows again:
//! several instructions for each vector of a row, where one permutation of two vectors does.

use retape_runtime::Scalar;

use super::WideIsa;
use super::branch::R15;
use super::code::{ElementAddress, Virtual};
use super::encode::{Constant, Memory, RDI, Rm};
use super::ops;
use super::regs::Registers;
use crate::ir::{Inst, Kernel, operation};
use crate::schedule::{Interleaved, MOST_WAYS, interleaved_stores};

/// Bytes of an element.
const WORD: usize = 4;

/// The stores of a kernel, of which each has a loaded element or a constant.
#[derive(Clone, Debug)]
pub(super) struct PermutedRows {
    /// The store of a row's first element.
    pub(super) store: usize,
    /// The load of the least element that a row reads.
    pub(super) load: usize,
    /// Elements from what a row reads to what the next one reads.
    stride: usize,
    /// The elements of a row.
    row: Vec<RowElement>,
}

/// An element of a row.
#[derive(Clone, Copy, Debug)]
enum RowElement {
    /// So many elements behind the least one that is read.
    Behind(usize),
    Constant(u32),
}

/// A vector of results.
#[derive(Debug)]
struct PermutedVector {
    /// The first of them.
    at: usize,
    /// The first elements of the vectors that are read.
    begins: [usize; 2],
    /// Of each lane, its place in these, or its value.
    lanes: Vec<Result<usize, u32>>,
}

impl PermutedRows {
    /// The stores along the vector axis, if all of them together write rows so.
    pub(super) fn of(kernel: &Kernel, axis: usize, level: WideIsa) -> Option<PermutedRows> {
        let interleaved = interleaved_stores(kernel, Some(axis), 2);
        let &Interleaved { first, ways, .. } = interleaved.first()?.as_ref()?;
        // Nothing else is written between the elements that are read.
        let is_all = |set: &Option<Interleaved>| set.is_some_and(|set| set.first == first);
        (kernel.stores.len() == ways && interleaved.iter().all(is_all)).then_some(())?;
        let values = kernel.stores.iter().map(|store| store.value.index());
        let loads = values.clone().filter_map(|id| match &kernel.insts[id] {
            Inst::Load(param, at) => Some((id, *param, at)),
            Inst::Const(_) | Inst::Index(_) | Inst::LoadAt(..) | Inst::Reduce(..) | operation!() => None,
        });
        let (load, param, base) = loads.min_by_key(|(_, _, at)| at.offset)?;
        let stride = usize::try_from(base.stride(axis)).ok().filter(|stride| (1..=MOST_WAYS).contains(stride))?;
        let mut row = vec![RowElement::Constant(0); ways];
        for (id, set) in values.zip(&interleaved) {
            row[set.as_ref()?.way] = match &kernel.insts[id] {
                Inst::Load(of, at) if (*of, &at.strides) == (param, &base.strides) => {
                    RowElement::Behind(usize::try_from(at.offset.checked_sub(base.offset)?).ok()?)
                }
                Inst::Const(Scalar { bits, .. }) => RowElement::Constant(*bits as u32),
                Inst::Load(..) | Inst::Index(_) | Inst::LoadAt(..) | Inst::Reduce(..) | operation!() => return None,
            };
        }
        let rows = PermutedRows { store: first, load, stride, row };
        rows.fill_vectors(level.lanes(), level.lanes()).then_some(rows)
    }

    /// Of each instruction, whether it is a load that nothing but these stores needs.
    pub(super) fn are_read_here(&self, kernel: &Kernel) -> Vec<bool> {
        let mut are: Vec<bool> = kernel.insts.iter().map(|inst| matches!(inst, Inst::Load(..))).collect();
        for inst in &kernel.insts {
            inst.operands().into_iter().for_each(|v| are[v.index()] = false);
        }
        are
    }

    /// Whether so many rows are whole vectors, each of which is of two of what these rows read.
    pub(super) fn fill_vectors(&self, n_rows: usize, lanes: usize) -> bool {
        self.vectors(n_rows, lanes).is_some()
    }

    /// The vectors of so many rows. The last one ends with the last row, and may begin in the one before.
    fn vectors(&self, n_rows: usize, lanes: usize) -> Option<Vec<PermutedVector>> {
        let ways = self.row.len();
        let place = |element: usize| match self.row[element % ways] {
            RowElement::Behind(place) => Ok(element / ways * self.stride + place),
            RowElement::Constant(bits) => Err(bits),
        };
        let end = n_rows * ways;
        let last = (0..end).filter_map(|element| place(element).ok()).max()?;
        let vector = |at: usize| {
            let at = at.min(end.checked_sub(lanes)?);
            let places: Vec<_> = (at..at + lanes).map(place).collect();
            let read = || places.iter().filter_map(|place| place.ok());
            // A vector ends with the last element that is read, if not before.
            let begin = read().min().unwrap_or(0).min((last + 1).checked_sub(lanes)?);
            let begins = [begin, (begin + lanes).min(last + 1 - lanes)];
            let in_two = |place: usize| match place.checked_sub(begin)? {
                near if near < lanes => Some(near),
                _ => place.checked_sub(begins[1]).filter(|far| *far < lanes).map(|far| lanes + far),
            };
            let lanes = places.into_iter().map(|place| match place {
                Ok(place) => in_two(place).map(Ok),
                Err(bits) => Some(Err(bits)),
            });
            Some(PermutedVector { at, begins, lanes: lanes.collect::<Option<_>>()? })
        };
        (0..end).step_by(lanes).map(vector).collect()
    }
}

impl Registers {
    /// So many rows from the position on, read from `from`, which moves by the rows' stride, to `to`.
    pub(super) fn permute_rows(
        &mut self,
        rows: &PermutedRows,
        n_rows: usize,
        [made, part]: [Virtual; 2],
        [from, to]: [ElementAddress; 2],
    ) {
        let (len, ways) = (self.full(), rows.row.len());
        let lanes = len.bytes() / WORD;
        let to = self.moved(to, (ways * WORD) as i32);
        self.asm.mov(R15, RDI);
        let from = self.moved(from, (rows.stride * WORD) as i32);
        let [made, part] = [made, part].map(|v| self.give(v));
        let read =
            |begin: usize| Rm::Memory(Memory { displacement: from.displacement + (begin * WORD) as i32, ..from });
        for PermutedVector { at, begins, lanes } in rows.vectors(n_rows, lanes).into_iter().flatten() {
            self.permute([made, part], begins.map(read), &lanes);
            let words = |of: fn(&Result<usize, u32>) -> u32| -> Vec<u8> {
                lanes.iter().flat_map(|lane| of(lane).to_le_bytes()).collect()
            };
            let constants = words(|lane| lane.err().unwrap_or(0));
            if lanes.iter().any(Result::is_err) {
                let kept = words(|lane| if lane.is_ok() { u32::MAX } else { 0 });
                let kept = Rm::Pool(self.pooled(Constant::Lanes(kept)), false);
                self.write(ops::and(false), len, made, made, kept, None);
            }
            if constants.iter().any(|byte| *byte != 0) {
                let constants = Rm::Pool(self.pooled(Constant::Lanes(constants)), false);
                self.write(ops::or(false), len, made, made, constants, None);
            }
            let displacement = to.displacement + (at * WORD) as i32;
            self.write(ops::STORE, len, made, 0, Rm::Memory(Memory { base: R15, displacement, ..to }), None);
        }
    }

    /// The lanes of a vector from two vectors in memory, or from the first one alone.
    fn permute(&mut self, [made, part]: [u8; 2], [near, far]: [Rm; 2], lanes: &[Result<usize, u32>]) {
        let (len, n) = (self.full(), lanes.len());
        let places = || lanes.iter().map(|lane| lane.unwrap_or_default());
        if places().eq(0..n) {
            return self.write(ops::MOVE, len, made, 0, near, None);
        }
        let is_of_one = places().all(|place| place < n);
        let is_named_by_both = self.is_evex();
        let names = self.places(places().map(|place| if is_named_by_both { place } else { place % n }));
        self.write(ops::MOVE, len, made, 0, names, None);
        if is_of_one {
            self.write(ops::permute_by(false), len, made, made, near, None);
        } else if is_named_by_both {
            self.write(ops::MOVE, len, part, 0, near, None);
            self.write(ops::PERMUTE_TWO, len, made, part, far, None);
        } else {
            let of_far = places().enumerate().filter(|(_, place)| *place >= n).map(|(lane, _)| 1 << lane).sum();
            self.write(ops::permute_by(false), len, part, made, far, None);
            self.write(ops::permute_by(false), len, made, made, near, None);
            self.write(ops::BLEND_WORDS, len, made, made, Rm::Register(part), Some(of_far));
        }
    }
}
