//! Short rows of words, of which each is an access of its own: they are read and written as vectors, which are turned to the
//! columns that instructions take, and back.
//!
//! Four rows and columns are turned at a time. The last four columns of a number that is no multiple of four begin among those
//! before.

use cranelift_codegen::ir::{Type, Value, types};
use rustc_hash::FxHashMap;

use super::emit::{Emitter, LANES};
use crate::schedule::{Interleaved, LoopForm, interleaved_loads, interleaved_stores};

/// The columns of the rows of an iteration's groups, by their first access and the group.
type KnownColumns = FxHashMap<(usize, usize), Vec<Option<Value>>>;

/// The accesses that are one with others.
pub(super) struct ShortRows {
    pub(super) loads: Vec<Option<Interleaved>>,
    pub(super) stores: Vec<Option<Interleaved>>,
    /// The columns that have been turned, and those that wait to be.
    pub(super) loaded: KnownColumns,
    pub(super) stored: KnownColumns,
}

impl ShortRows {
    pub(super) fn of(form: &LoopForm<'_>) -> ShortRows {
        ShortRows {
            loads: interleaved_loads(form.kernel, form.axis, LANES),
            stores: interleaved_stores(form.kernel, form.axis, LANES),
            loaded: KnownColumns::default(),
            stored: KnownColumns::default(),
        }
    }

    /// Forgets the columns of other places.
    pub(super) fn clear(&mut self) {
        self.loaded.clear();
        self.stored.clear();
    }
}

/// The first of the four columns with which one is turned.
pub(super) fn first_of(way: usize, ways: usize) -> usize {
    (way - way % LANES).min(ways - LANES)
}

impl Emitter<'_> {
    /// Four vectors of four words, rows as columns.
    pub(super) fn turned(&mut self, [a, b, c, d]: [Value; LANES], ty: Type) -> [Value; LANES] {
        // Words of two vectors in turn, then pairs of words: instructions of every machine.
        let words = |half: u8| [0, 16, 4, 20].map(|byte| byte + 8 * half).into_iter();
        let pairs = |half: u8| [0, 4, 16, 20].map(|byte| byte + 8 * half).into_iter();
        let [a, b, c, d] = [a, b, c, d].map(|x| self.raw_bitcast(types::I8X16, x));
        let mixed = |e: &mut Self, x, y, lanes: &mut dyn Iterator<Item = u8>| {
            let bytes: Vec<u8> = lanes.flat_map(|first| first..first + 4).collect();
            e.shuffle(x, y, &bytes)
        };
        let low = [mixed(self, a, b, &mut words(0)), mixed(self, c, d, &mut words(0))];
        let high = [mixed(self, a, b, &mut words(1)), mixed(self, c, d, &mut words(1))];
        let columns = [(low, 0), (low, 1), (high, 0), (high, 1)];
        columns.map(|([x, y], half)| {
            let column = mixed(self, x, y, &mut pairs(half));
            self.raw_bitcast(ty, column)
        })
    }
}
