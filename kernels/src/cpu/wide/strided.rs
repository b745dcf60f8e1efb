//! Elements at equal distances along a row: as one vector, picked from whole vectors of neighbours, and back to memory.
//!
//! Reads and writes no byte beside the elements: of neighbours, the last vector ends with the last one.

use super::WideIsa;
use super::branch::R15;
use super::code::{ElementAddress, LaneCount, MoveWidth, Virtual};
use super::encode::{Alu, Condition, Constant, Len, Memory, RAX, RDI, RSP, Rm};
use super::ops;
use super::regs::Registers;
use crate::schedule::{PermutedRows, PermutedVector, RowElement};

/// Bytes of the elements that are picked.
const WORD: usize = 4;

/// Columns that are turned at a time, words of 128 bits.
const QUAD: usize = 4;

/// The fewest columns of rows that are turned together: fewer are picked by permutations of two vectors, where there are any.
pub(super) const fn min_turned(level: WideIsa) -> usize {
    match level {
        WideIsa::Avx2 => QUAD,
        WideIsa::Avx512 => 6,
    }
}

/// The elements at multiples of a stride, and the vectors that have them.
#[derive(Clone, Copy, Debug)]
struct Picked {
    /// Elements of a vector.
    lanes: usize,
    stride: usize,
}

impl Picked {
    fn n_vectors(self) -> usize {
        ((self.lanes - 1) * self.stride + 1).div_ceil(self.lanes)
    }

    /// The first element of a vector.
    fn first_of(self, vector: usize) -> usize {
        (vector * self.lanes).min((self.lanes - 1) * self.stride + 1 - self.lanes)
    }

    /// The place in a vector of what a lane gets, if it lies in none before it.
    fn place(self, vector: usize, lane: usize) -> Option<usize> {
        (lane * self.stride / self.lanes == vector).then(|| lane * self.stride - self.first_of(vector))
    }

    /// For each lane its place in two vectors: what earlier ones have given, or the first one, and then another.
    fn of_two(self, vector: usize) -> impl Iterator<Item = usize> {
        (0..self.lanes).map(move |lane| match self.place(vector, lane) {
            Some(place) => self.lanes + place,
            None if vector == 1 => self.place(0, lane).unwrap_or(lane),
            None => lane,
        })
    }
}

impl Registers {
    /// Every `stride`-th word. Each vector of neighbours adds its elements to those of the ones before.
    pub(super) fn deinterleave(&mut self, [to, part]: [Virtual; 2], from: ElementAddress, stride: usize) {
        let picked = Picked { lanes: self.full().bytes() / WORD, stride };
        let base = self.moved(from, (stride * WORD) as i32);
        let neighbours = |vector: usize| {
            let displacement = base.displacement + (picked.first_of(vector) * WORD) as i32;
            Rm::Memory(Memory { displacement, ..base })
        };
        let [to, part] = [to, part].map(|v| self.give(v));
        match self.is_evex() {
            true => self.deinterleave_by_pairs([to, part], picked, neighbours),
            false => self.deinterleave_by_blends([to, part], picked, neighbours),
        }
    }

    /// With permutations of two vectors at a time, in two registers that take turns.
    fn deinterleave_by_pairs(&mut self, [to, part]: [u8; 2], picked: Picked, neighbours: impl Fn(usize) -> Rm) {
        let (len, n) = (self.full(), picked.n_vectors());
        let [mut made, mut before] = if n.is_multiple_of(2) { [to, part] } else { [part, to] };
        self.write(ops::MOVE, len, before, 0, neighbours(0), None);
        for vector in 1..n {
            let places = self.places(picked.of_two(vector));
            self.write(ops::MOVE, len, made, 0, places, None);
            self.write(ops::PERMUTE_TWO, len, made, before, neighbours(vector), None);
            (made, before) = (before, made);
        }
    }

    /// With a permutation of each vector.
    fn deinterleave_by_blends(&mut self, [to, part]: [u8; 2], picked: Picked, neighbours: impl Fn(usize) -> Rm) {
        let len = self.full();
        for vector in 0..picked.n_vectors() {
            let places = (0..picked.lanes).map(|lane| picked.place(vector, lane));
            let places = self.places(places.map(Option::unwrap_or_default));
            self.write(ops::MOVE, len, part, 0, places, None);
            let made = if vector == 0 { to } else { part };
            self.write(ops::permute_by(false), len, made, part, neighbours(vector), None);
            if vector > 0 {
                let has = |lane: &usize| picked.place(vector, *lane).is_some();
                let lanes = (0..picked.lanes).filter(has).map(|lane| 1 << lane).sum();
                self.write(ops::BLEND_WORDS, len, to, to, Rm::Register(part), Some(lanes));
            }
        }
    }

    /// Numbers of lanes as a constant.
    fn places(&mut self, places: impl Iterator<Item = usize>) -> Rm {
        let bytes = places.flat_map(|place| (place as u32).to_le_bytes()).collect();
        Rm::Pool(self.pooled(Constant::Lanes(bytes)), false)
    }

    /// The words of vectors in turn, as vectors in memory, each by permutations of two vectors at a time.
    pub(super) fn interleave(&mut self, [made, before]: [Virtual; 2], ways: usize, frame: i32, memory: ElementAddress) {
        let (len, lanes) = (self.full(), self.full().bytes() / WORD);
        let to = self.moved(memory, (WORD * ways) as i32);
        let [mut made, mut before] = [made, before].map(|v| self.give(v));
        let vector = |way: usize| Rm::Memory(Memory::at(RSP, frame + (way * len.bytes()) as i32));
        for n in 0..ways {
            self.write(ops::MOVE, len, before, 0, vector(0), None);
            for way in 1..ways {
                let place = |lane: usize| match (n * lanes + lane) % ways {
                    of if of == way => lanes + (n * lanes + lane) / ways,
                    0 if way == 1 => (n * lanes + lane) / ways,
                    _ => lane,
                };
                let places = self.places((0..lanes).map(place));
                self.write(ops::MOVE, len, made, 0, places, None);
                self.write(ops::PERMUTE_TWO, len, made, before, vector(way), None);
                (made, before) = (before, made);
            }
            let to = Memory { displacement: to.displacement + (n * len.bytes()) as i32, ..to };
            self.write(ops::STORE, len, before, 0, Rm::Memory(to), None);
        }
    }

    /// Some rows from the position on, read from `from`, which moves by the rows' stride, to `to`.
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
            let words = |of: fn(&RowElement) -> u32| lanes.iter().flat_map(|lane| of(lane).to_le_bytes()).collect();
            let constants: Vec<u8> = words(|lane| if let RowElement::Constant(bits) = lane { *bits } else { 0 });
            if lanes.iter().any(|lane| lane.place().is_none()) {
                let read = words(|lane| if lane.place().is_some() { u32::MAX } else { 0 });
                let read = Rm::Pool(self.pooled(Constant::Lanes(read)), false);
                self.write(ops::and(false), len, made, made, read, None);
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
    fn permute(&mut self, [made, part]: [u8; 2], [near, far]: [Rm; 2], lanes: &[RowElement]) {
        let (len, n) = (self.full(), lanes.len());
        let places = || lanes.iter().map(|lane| lane.place().unwrap_or(0));
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

    /// Rows of a few words to columns in the frame, or back: four columns at a time, of which each 128 bits of a vector are
    /// turned in itself. The last four columns of a number that is no multiple of four begin among those before.
    pub(super) fn turn(
        &mut self,
        parts: [Virtual; 5],
        columns: usize,
        frame: i32,
        memory: ElementAddress,
        loads: bool,
    ) {
        let (len, row) = (self.full(), (columns * WORD) as i32);
        let base = self.moved(memory, row);
        let [a, b, c, d, e] = parts.map(|v| self.give(v));
        let n_parts = len.bytes() / (QUAD * WORD);
        // Four words of a row, which is one of each four rows: that of a part of the vector.
        let quad = |part: usize, row_of_four: usize, column: usize| {
            let displacement = base.displacement + (part * QUAD + row_of_four) as i32 * row + (column * WORD) as i32;
            Rm::Memory(Memory { displacement, ..base })
        };
        let vector = |column: usize| Rm::Memory(Memory::at(RSP, frame + (column * len.bytes()) as i32));
        for at in (0..columns).step_by(QUAD) {
            let first = at.min(columns - QUAD);
            // Lines are rows that are read, or columns that are written as rows.
            for (line, to) in [a, b, c, d].into_iter().enumerate() {
                if !loads {
                    self.write(ops::MOVE, len, to, 0, vector(first + line), None);
                    continue;
                }
                self.write(ops::MOVE, Len::Bits128, to, 0, quad(0, line, first), None);
                for part in 1..n_parts {
                    self.write(ops::INSERT_128, len, to, to, quad(part, line, first), Some(part as u8));
                }
            }
            // The first halves of two, and the second ones.
            self.write(ops::SHUFFLE_TWO, len, e, a, Rm::Register(b), Some(0x44));
            self.write(ops::SHUFFLE_TWO, len, a, a, Rm::Register(b), Some(0xee));
            self.write(ops::SHUFFLE_TWO, len, b, c, Rm::Register(d), Some(0x44));
            self.write(ops::SHUFFLE_TWO, len, c, c, Rm::Register(d), Some(0xee));
            for (line, (low, high)) in [(e, b), (e, b), (a, c), (a, c)].into_iter().enumerate() {
                let words = if line % 2 == 0 { 0x88 } else { 0xdd };
                self.write(ops::SHUFFLE_TWO, len, d, low, Rm::Register(high), Some(words));
                if loads {
                    if first + line >= at {
                        self.write(ops::STORE, len, d, 0, vector(first + line), None);
                    }
                    continue;
                }
                self.write(ops::STORE, Len::Bits128, d, 0, quad(0, line, first), None);
                for part in 1..n_parts {
                    self.write(ops::EXTRACT_128, len, d, 0, quad(part, line, first), Some(part as u8));
                }
            }
        }
    }

    /// Copies elements one by one from a place of the stack, where a vector was written as a whole.
    pub(super) fn scatter(&mut self, size: usize, frame: i32, to: ElementAddress, stride: i32, lanes: LaneCount) {
        let to = self.moved(to, stride);
        let from = Memory::at(RSP, frame);
        match lanes {
            LaneCount::Known(count) => {
                for lane in 0..count as i32 {
                    self.load_element(size, Memory { displacement: frame + lane * size as i32, ..from });
                    self.store_element(size, Memory { displacement: to.displacement + lane * stride, ..to });
                }
            }
            LaneCount::Left(left) => {
                self.asm.mov_imm(Rm::Register(R15), 0);
                let top = self.asm.label();
                self.asm.bind(top);
                self.load_element(size, Memory { index: Some((R15, size.trailing_zeros() as u8)), ..from });
                self.store_element(size, to);
                self.asm.alu_imm(Alu::Add, Rm::Register(RDI), stride);
                self.asm.alu_imm(Alu::Add, Rm::Register(R15), 1);
                self.asm.alu(Alu::Cmp, R15, Registers::cell(left));
                self.asm.jump_if(Condition::Less, top);
            }
        }
    }

    fn load_element(&mut self, size: usize, from: Memory) {
        match MoveWidth::of(size) {
            Some(unit) => self.load_unit(unit, RAX, from),
            None => self.asm.general(&[0x8b], size == 8, RAX, Rm::Memory(from)),
        }
    }

    fn store_element(&mut self, size: usize, to: Memory) {
        match MoveWidth::of(size) {
            Some(unit) => self.store_unit(unit, RAX, to),
            None => self.asm.general(&[0x89], size == 8, RAX, Rm::Memory(to)),
        }
    }
}
