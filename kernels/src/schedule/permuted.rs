//! Short rows whose elements are those of other short rows in another order, or constants: vectors of results are permutations
//! of vectors in memory.
//!
//! Written out, such rows are a store for each element. Columns of what is read would become vectors, and these rows again:
//! several instructions for each vector of a row, where one permutation of two vectors does.

use retape_runtime::Scalar;

use super::interleaved::{Interleaved, MOST_WAYS, interleaved_stores};
use crate::ir::{Inst, Kernel, operation};

/// The stores of a kernel, of which each has a loaded element or a constant.
#[derive(Clone, Debug)]
pub(crate) struct PermutedRows {
    /// The store of a row's first element.
    pub(crate) store: usize,
    /// The load of the least element that a row reads.
    pub(crate) load: usize,
    /// The loads that nothing but these stores needs.
    pub(crate) only_here: Vec<usize>,
    /// The least number of rows that are whole vectors.
    pub(crate) least: usize,
    /// Elements from what a row reads to what the next one reads.
    pub(crate) stride: usize,
    /// The elements of a row.
    pub(crate) row: Vec<RowElement>,
}

/// An element of a row, or a lane of a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowElement {
    /// An element that is read: its distance from the least one that a row reads, or its place in the vectors that are read.
    Read(usize),
    /// The bits of a constant.
    Constant(u32),
}

impl RowElement {
    /// The place of an element that is read.
    pub(crate) fn place(self) -> Option<usize> {
        match self {
            RowElement::Read(place) => Some(place),
            RowElement::Constant(_) => None,
        }
    }
}

/// A vector of results.
#[derive(Debug)]
pub(crate) struct PermutedVector {
    /// The first of them.
    pub(crate) at: usize,
    /// The first elements of the two vectors that are read.
    pub(crate) begins: [usize; 2],
    /// The lanes, of which places count through both vectors.
    pub(crate) lanes: Vec<RowElement>,
}

impl PermutedRows {
    /// The stores along the vector axis, if all of them together write rows so with vectors of as many words.
    pub(crate) fn of(kernel: &Kernel, axis: usize, lanes: usize) -> Option<PermutedRows> {
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
                    RowElement::Read(usize::try_from(at.offset.checked_sub(base.offset)?).ok()?)
                }
                Inst::Const(Scalar { bits, .. }) => RowElement::Constant(*bits as u32),
                Inst::Load(..) | Inst::Index(_) | Inst::LoadAt(..) | Inst::Reduce(..) | operation!() => return None,
            };
        }
        let only_here = loads_without_operations(kernel);
        let mut rows = PermutedRows { store: first, load, only_here, least: lanes, stride, row };
        rows.least = (1..=lanes).rev().take_while(|&n_rows| rows.vectors(n_rows, lanes).is_some()).last()?;
        Some(rows)
    }

    /// The vectors of some rows, if each is of two vectors of what these rows read. The last one ends with the last row, and may
    /// begin in the one before.
    pub(crate) fn vectors(&self, n_rows: usize, lanes: usize) -> Option<Vec<PermutedVector>> {
        let ways = self.row.len();
        let element = |at: usize| match self.row[at % ways] {
            RowElement::Read(place) => RowElement::Read(at / ways * self.stride + place),
            constant @ RowElement::Constant(_) => constant,
        };
        let end = n_rows * ways;
        let n_read = (0..end).filter_map(|at| element(at).place()).max()? + 1;
        // A vector ends with the last element that is read, if not before.
        let last = n_read.checked_sub(lanes)?;
        let vector = |at: usize| {
            let at = at.min(end.checked_sub(lanes)?);
            let elements = (at..at + lanes).map(element);
            let begin = elements.clone().filter_map(RowElement::place).min().unwrap_or(0).min(last);
            let begins = [begin, (begin + lanes).min(last)];
            let in_two = |place: usize| match place - begin {
                near if near < lanes => Some(near),
                _ => place.checked_sub(begins[1]).filter(|far| *far < lanes).map(|far| lanes + far),
            };
            let lanes = elements.map(|element| match element {
                RowElement::Read(place) => in_two(place).map(RowElement::Read),
                constant @ RowElement::Constant(_) => Some(constant),
            });
            Some(PermutedVector { at, begins, lanes: lanes.collect::<Option<_>>()? })
        };
        (0..end).step_by(lanes).map(vector).collect()
    }
}

/// The loads that are stored, if they are needed at all, and no operand of an instruction.
fn loads_without_operations(kernel: &Kernel) -> Vec<usize> {
    let mut are: Vec<bool> = kernel.insts.iter().map(|inst| matches!(inst, Inst::Load(..))).collect();
    for inst in &kernel.insts {
        inst.operands().into_iter().for_each(|v| are[v.index()] = false);
    }
    (0..are.len()).filter(|&id| are[id]).collect()
}
