//! Memory for intermediate values: one arena, whose bytes are reused when a value dies.
//!
//! Values are placed in the order of the steps. A value takes the smallest free gap that holds it, and its bytes
//! become free after the last step that reads it. A step's result may take the very bytes of a value that it reads
//! for the last time, if it reads each element just where it writes it.

use std::collections::HashMap;

use crate::types::ValueId;

/// Slots begin at multiples of this many bytes: a cache line, and the widest vector.
const ALIGNMENT: usize = 64;

/// A span of the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    offset: usize,
    len: usize,
}

impl Span {
    fn end(&self) -> usize {
        self.offset.saturating_add(self.len)
    }
}

/// Hands out and takes back spans of an arena that grows as needed.
#[derive(Debug, Default)]
pub(super) struct Slots {
    /// Free spans below the end, by offset, never adjacent.
    free: Vec<Span>,
    end: usize,
    /// The bytes of all values that were ever placed.
    placed: usize,
    held: HashMap<ValueId, Span>,
}

impl Slots {
    /// The bytes of the arena so far.
    pub(super) fn n_bytes(&self) -> usize {
        self.end
    }

    /// The bytes of an arena in which no two values share any.
    pub(super) fn n_unshared_bytes(&self) -> usize {
        self.placed
    }

    /// Where a value lies.
    pub(super) fn offset(&self, value: ValueId) -> Option<usize> {
        self.held.get(&value).map(|span| span.offset)
    }

    /// Places a value.
    pub(super) fn take(&mut self, value: ValueId, n_bytes: usize) {
        let len = n_bytes.next_multiple_of(ALIGNMENT);
        self.placed = self.placed.saturating_add(len);
        let gaps = self.free.iter().enumerate().filter(|(_, span)| span.len >= len);
        let span = match gaps.min_by_key(|(_, span)| (span.len, span.offset)).map(|(index, _)| index) {
            Some(index) => {
                let gap = &mut self.free[index];
                let span = Span { offset: gap.offset, len };
                *gap = Span { offset: gap.offset + len, len: gap.len - len };
                if gap.len == 0 {
                    self.free.remove(index);
                }
                span
            }
            None => self.extend(len),
        };
        self.held.insert(value, span);
    }

    /// Adds to the end, beginning in the free span that lies there, if one does.
    fn extend(&mut self, len: usize) -> Span {
        let offset = match self.free.last() {
            Some(last) if last.end() == self.end => {
                let offset = last.offset;
                self.free.pop();
                offset
            }
            _ => self.end,
        };
        // An arena that cannot be counted is as large as can be, and is refused.
        self.end = offset.saturating_add(len);
        Span { offset, len }
    }

    /// Gives the bytes of a dead value to a new one of no more bytes. Returns whether it could.
    pub(super) fn hand_over(&mut self, from: ValueId, to: ValueId, n_bytes: usize) -> bool {
        let len = n_bytes.next_multiple_of(ALIGNMENT);
        match self.held.get(&from).copied() {
            Some(span) if span.len == len => {
                self.held.remove(&from);
                self.held.insert(to, span);
                self.placed = self.placed.saturating_add(len);
                true
            }
            _ => false,
        }
    }

    /// Frees the bytes of a value, if it has any.
    pub(super) fn free(&mut self, value: ValueId) {
        let Some(span) = self.held.remove(&value) else { return };
        if span.len == 0 {
            return;
        }
        let index = self.free.partition_point(|other| other.offset < span.offset);
        self.free.insert(index, span);
        let joins = |a: &Span, b: &Span| a.end() == b.offset;
        if index + 1 < self.free.len() && joins(&self.free[index], &self.free[index + 1]) {
            self.free[index].len = self.free[index].len.saturating_add(self.free.remove(index + 1).len);
        }
        if index > 0 && joins(&self.free[index - 1], &self.free[index]) {
            self.free[index - 1].len = self.free[index - 1].len.saturating_add(self.free.remove(index).len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_bytes_are_used_again_and_joined() {
        let mut slots = Slots::default();
        let [a, b, c, d] = [0, 1, 2, 3].map(ValueId);
        slots.take(a, 64);
        slots.take(b, 100);
        slots.free(a);
        slots.free(b);
        slots.take(c, 192);
        assert_eq!((slots.offset(c), slots.n_bytes()), (Some(0), 192));
        assert!(slots.hand_over(c, d, 180));
        assert_eq!((slots.offset(c), slots.offset(d)), (None, Some(0)));
        assert_eq!(slots.n_unshared_bytes(), 64 + 128 + 192 + 192);
    }

    #[test]
    fn the_smallest_gap_is_taken() {
        let mut slots = Slots::default();
        let ids = [0, 1, 2, 3, 4].map(ValueId);
        for (id, bytes) in ids.iter().zip([256, 64, 64, 64, 64]) {
            slots.take(*id, bytes);
        }
        slots.free(ids[0]);
        slots.free(ids[2]);
        slots.take(ValueId(9), 10);
        assert_eq!(slots.offset(ValueId(9)), Some(320));
    }

    #[test]
    fn empty_values_take_no_room() {
        let mut slots = Slots::default();
        slots.take(ValueId(0), 0);
        slots.take(ValueId(1), 8);
        slots.free(ValueId(0));
        assert_eq!(slots.n_bytes(), 64);
    }
}
