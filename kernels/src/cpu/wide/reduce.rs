//! Reductions: sums in registers, and the fixed order in which elements and lanes are added to them.
//!
//! The loop form says which lane of which accumulator an element of a row is added to. A vector holds several such
//! accumulators side by side where there are as many, and is added part by part where there are fewer.
//! Lanes beyond the end of a row add the neutral element, which changes no sum.

use retape_runtime::DType;
use smallvec::{SmallVec, smallvec};

use super::WideIsa;
use super::code::{Code, RegClass, RegField, RegOrMem, Row, Virtual};
use super::emit::{VirtualRegs, WideEmitter, WideVal, is_wide};
use super::encode::Len;
use super::nest::WideLoops;
use super::ops;
use super::walk::chains;
use crate::ir::ReductionOp;
use crate::schedule::{LoopForm, REDUCTION_LANES, ReducedValue};

/// Registers that the sums of a nest may take: with AVX2, and with AVX-512.
const MAX_SUMS: [usize; 2] = [8, 16];

/// Vectors of an iteration of columns that are reduced.
pub(super) fn groups_of_sums(form: &LoopForm<'_>, level: WideIsa) -> usize {
    let each: usize = form.reductions.iter().map(|r| if is_wide(r.dtype) { 2 } else { 1 }).sum();
    let most = MAX_SUMS[usize::from(level.has_masks())];
    let wanted = match form.kernel.insts.len() {
        0..=8 => 4,
        9..=20 => 2,
        _ => chains(form, level),
    };
    wanted.min(most / each.max(1)).max(1)
}

impl WideLoops<'_> {
    /// Vectors of an iteration of columns: enough independent sums to hide latencies, as registers allow.
    pub(super) fn column_groups(&self) -> usize {
        if self.form.kept == self.n_axes() || self.form.reductions.is_empty() {
            return self.kernel_groups();
        }
        groups_of_sums(self.form, self.e.level).min(self.e.most_chains)
    }

    /// Vectors of an iteration of rows: those that have registers for their sums, or as many as there should be where all
    /// are added to one sum, part by part.
    pub(super) fn row_groups(&self) -> usize {
        let of_sums = (self.nest.unroll * REDUCTION_LANES / self.e.level.lanes()).max(1);
        if self.parts_of_sums().is_some() { self.kernel_groups() } else { of_sums }
    }

    /// Registers, or places of the frame, for the sums of as many groups.
    pub(super) fn make_accumulators(&mut self, groups: usize) {
        for reduced in &self.form.reductions {
            let count = match self.parts_of_sums() {
                Some((_, sums)) => sums,
                None => groups * if is_wide(reduced.dtype) { 2 } else { 1 },
            };
            let sums = (0..count).map(|_| self.e.regs.make_fixed()).collect();
            self.accumulators.push(sums);
        }
    }

    /// Where vectors along a row are added part by part: the fours of lanes that a part has, and the number of sums.
    fn parts_of_sums(&self) -> Option<(usize, usize)> {
        match self.form.accumulators {
            0 => None,
            n if n < self.nest.unroll => Some((1, n)),
            n if n * REDUCTION_LANES < self.e.level.lanes() => Some((n, 1)),
            _ => None,
        }
    }

    /// The registers of the sums of a group.
    fn sum(&self, n: usize, g: usize) -> WideVal {
        let dtype = self.form.reductions[n].dtype;
        let each = if is_wide(dtype) && self.parts_of_sums().is_none() { 2 } else { 1 };
        WideVal::new(dtype, SmallVec::from_slice(&self.accumulators[n][g * each..(g + 1) * each]))
    }

    /// Sets all sums to their neutral elements.
    pub(super) fn begin_sums(&mut self) {
        for n in 0..self.form.reductions.len() {
            let neutral = self.neutral(n).regs[0];
            for sum in self.accumulators[n].clone() {
                self.e.set(sum, neutral);
            }
        }
    }

    /// The neutral element in all lanes; of `bool` in words.
    pub(super) fn neutral(&mut self, n: usize) -> WideVal {
        let ReducedValue { op, dtype, .. } = self.form.reductions[n];
        let neutral = op.neutral(dtype);
        if dtype == DType::Bool {
            let word = self.e.word(if neutral.bits != 0 { u32::MAX } else { 0 });
            return WideVal::new(dtype, smallvec![word]);
        }
        WideVal { constant: None, ..self.e.constant(neutral) }
    }

    /// The operand of a reduction as a group sees it; of `bool` in words.
    pub(super) fn reduced(&mut self, n: usize, g: usize) -> Option<WideVal> {
        let value = self.operand(Some(g), self.form.reductions[n].of)?;
        Some(self.e.words_of_mask(value))
    }

    /// Adds the groups of a reduced point to the sums of the kept points.
    pub(super) fn add_columns(&mut self) -> Option<()> {
        for n in 0..self.form.reductions.len() {
            let op = self.form.reductions[n].op;
            for g in 0..self.groups.len() {
                let x = self.reduced(n, g)?;
                let sum = self.sum(n, g);
                self.e.add_to(op, &sum, &x)?;
            }
        }
        Some(())
    }

    /// Makes the sums of columns the values of their reductions.
    pub(super) fn column_sums(&mut self) {
        for n in 0..self.form.reductions.len() {
            let ReducedValue { id, is_grouped, .. } = self.form.reductions[n];
            for g in 0..self.groups.len() {
                let sum = self.sum(n, g);
                let value = self.e.mask_of_words(sum);
                self.set(is_grouped.then_some(g), id, value);
            }
        }
    }

    /// Adds the groups of a row to its sums.
    pub(super) fn add_row(&mut self) -> Option<()> {
        for n in 0..self.form.reductions.len() {
            let ReducedValue { op, dtype, .. } = self.form.reductions[n];
            for g in 0..self.groups.len() {
                let mut x = self.reduced(n, g)?;
                if let Some(tail) = self.groups[g].tail {
                    let neutral = self.neutral(n);
                    let mask = WideVal::new(DType::Bool, smallvec![tail.mask]);
                    x = self.e.select_words(&mask, &x, &neutral);
                }
                let Some((fours, sums)) = self.parts_of_sums() else {
                    let sum = self.sum(n, g);
                    self.e.add_to(op, &sum, &x)?;
                    continue;
                };
                let bytes = fours * REDUCTION_LANES * dtype.size().max(4);
                let first = self.groups[g].offset as usize / (fours * REDUCTION_LANES);
                let extent = self.kernel.axes[self.axis].extent;
                for (at, part) in self.e.parts(&x, bytes, usize::MAX).into_iter().enumerate() {
                    let at = first + at;
                    if at * REDUCTION_LANES < extent {
                        let sum = self.sum(n, at % sums);
                        self.e.at_len(bytes, |e| e.add_to(op, &sum, &part))?;
                    }
                }
            }
        }
        Some(())
    }

    /// Folds the sums of a row: neighbours until one is left, then its lanes.
    pub(super) fn row_sums(&mut self) -> Option<()> {
        for n in 0..self.form.reductions.len() {
            let ReducedValue { id, op, dtype, .. } = self.form.reductions[n];
            let bytes = REDUCTION_LANES * dtype.size().max(4);
            let sums = WideVal::new(dtype, SmallVec::from_slice(&self.accumulators[n]));
            let mut level = match self.parts_of_sums() {
                Some((1, _)) => sums.regs.iter().map(|&reg| WideVal::new(dtype, smallvec![reg])).collect(),
                Some((fours, _)) => self.e.parts(&sums, bytes, fours),
                None => self.e.parts(&sums, bytes, self.form.accumulators),
            };
            let combined = self.e.at_len(bytes, |e| {
                while level.len() > 1 {
                    let pairs = level.chunks(2).map(|pair| match pair {
                        [x, y] => e.combine(op, x, y),
                        _ => Some(pair[0].clone()),
                    });
                    level = pairs.collect::<Option<_>>()?;
                }
                e.reduce_lanes(op, &level[0])
            })?;
            let value = self.e.mask_of_words(combined);
            self.set(None, id, value);
        }
        Some(())
    }
}

impl WideEmitter {
    /// `to = from` for a register of its own.
    fn set(&mut self, to: Virtual, from: Virtual) {
        let len = self.level.len();
        self.push(Row::of(ops::MOVE, len, RegField::Define(to), RegOrMem::Register(RegField::Use(from))));
    }

    /// Adds a value to a sum, in place.
    fn add_to(&mut self, op: ReductionOp, sum: &WideVal, x: &WideVal) -> Option<()> {
        let made = self.combine(op, sum, x)?;
        for (&from, &to) in made.regs.iter().zip(&sum.regs) {
            let makes = |code: &&mut Code| matches!(code, Code::Row(row) if row.reg == RegField::Define(from));
            match self.block.iter_mut().rev().find(makes) {
                Some(Code::Row(row)) => row.reg = RegField::Define(to),
                _ => self.set(to, from),
            }
        }
        Some(())
    }

    /// Emits at a width of so many bytes.
    fn at_len<T>(&mut self, bytes: usize, f: impl FnOnce(&mut Self) -> T) -> T {
        self.len = match bytes {
            16 => Len::Bits128,
            32 => Len::Bits256,
            _ => Len::Bits512,
        };
        let made = f(self);
        self.len = self.level.len();
        made
    }

    /// The registers of a value in parts of so many bytes, each in one register; the first ones of them.
    fn parts(&mut self, x: &WideVal, bytes: usize, count: usize) -> Vec<WideVal> {
        let mut parts = vec![];
        for &reg in &x.regs {
            let each = self.level.len().bytes() / bytes;
            for part in 0..each.min(count - parts.len()) {
                let op = if bytes == 16 { ops::EXTRACT_128 } else { ops::EXTRACT_256 };
                // The lowest part is where it is.
                let reg = if part == 0 { reg } else { self.extracted(op, reg, part as u8) };
                parts.push(WideVal::new(x.dtype, smallvec![reg]));
            }
        }
        parts
    }

    /// Four lanes as one element in all lanes: lanes 0 and 2, 1 and 3, then the two.
    fn reduce_lanes(&mut self, op: ReductionOp, x: &WideVal) -> Option<WideVal> {
        let dtype = x.dtype;
        let wide = is_wide(dtype);
        let mut combined = x.clone();
        let halves = |e: &mut Self, x: &WideVal, imm| {
            WideVal::new(dtype, smallvec![e.one_of(ops::SHUFFLE, e.len, x.regs[0], Some(imm))])
        };
        if wide {
            let upper = WideVal::new(dtype, smallvec![self.extracted(ops::EXTRACT_128, x.regs[0], 1)]);
            self.len = Len::Bits128;
            combined = self.combine(op, &combined, &upper)?;
        }
        for imm in if wide { &[0x4e][..] } else { &[0x4e, 0x39] } {
            let moved = halves(self, &combined, *imm);
            combined = self.combine(op, &combined, &moved)?;
        }
        let all = self.one_of(ops::repeat(wide), self.level.len(), combined.regs[0], None);
        let regs: VirtualRegs = if wide { smallvec![all, all] } else { smallvec![all] };
        Some(WideVal::new(dtype, regs))
    }

    /// A mask register as words of zeros and ones, which have parts.
    fn words_of_mask(&mut self, x: WideVal) -> WideVal {
        if self.regs.class(x.regs[0]) != RegClass::Mask {
            return x;
        }
        let words = self.one_of(ops::MASK_TO_WORDS, self.level.len(), x.regs[0], None);
        WideVal::new(x.dtype, smallvec![words])
    }

    /// Words of zeros and ones as a `bool`.
    pub(super) fn mask_of_words(&mut self, x: WideVal) -> WideVal {
        if x.dtype != DType::Bool || !self.level.has_masks() {
            return x;
        }
        let mask = self.test(ops::TEST_WORDS, x.regs[0], x.regs[0], None);
        WideVal::new(x.dtype, smallvec![mask])
    }

    /// As [`select`](WideEmitter::select), of `bool` in words.
    fn select_words(&mut self, c: &WideVal, x: &WideVal, y: &WideVal) -> WideVal {
        let dtype = if x.dtype == DType::Bool { DType::U32 } else { x.dtype };
        let [p, q] = [x, y].map(|x| WideVal::new(dtype, x.regs.clone()));
        WideVal { dtype: x.dtype, ..self.select(c, &p, &q) }
    }
}
